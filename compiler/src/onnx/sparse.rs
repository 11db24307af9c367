//! SparseTensorProto  =>  the same tensor in dense format

use super::budget::Budget;
use super::external::External;
use super::proto::SparseTensorProto;
use super::tensor::{checked_dims, tensor_data};
use sardonyx_base::{Error, Result, Tensor};

/// Expands a sparse tensor. Indices are `[n]` row-major positions or `[n, rank]` coordinates, strictly ascending.
pub fn dense(proto: &SparseTensorProto, external: &mut External, budget: &mut Budget) -> Result<Tensor> {
    let name = sparse_name(proto);
    expand(proto, external, budget).map_err(|e| if name.is_empty() { e } else { e.node(name) })
}

/// The name of a sparse initializer, which is that of its values.
pub fn sparse_name(proto: &SparseTensorProto) -> &str {
    proto.values.as_ref().map_or("", |v| &v.name)
}

fn expand(proto: &SparseTensorProto, external: &mut External, budget: &mut Budget) -> Result<Tensor> {
    let (Some(values), Some(indices)) = (&proto.values, &proto.indices) else {
        return Err(malformed("a sparse tensor lacks its values or its indices"));
    };
    let (dims, count) = checked_dims(&proto.dims)?;
    let values = tensor_data(values, external)?;
    let &[n_values] = values.dims() else { return Err(malformed("the values of a sparse tensor are not a list")) };
    let indices = tensor_data(indices, external)?;
    let positions = positions(&indices, n_values, &dims, count)?;
    if let Some(strings) = values.strings() {
        budget.charge(count.saturating_mul(size_of::<&[u8]>()), "a sparse tensor")?;
        let mut out: Vec<&[u8]> = vec![&[]; count];
        positions.into_iter().zip(strings).for_each(|(at, value)| out[at] = value);
        return Ok(Tensor::from_strings(dims, &out));
    }
    let bytes = values.dtype().bytes_for(count);
    budget.charge(bytes.unwrap_or(usize::MAX), "a sparse tensor")?;
    let mut out = vec![0u8; bytes.unwrap_or(0)];
    scatter(&values, &positions, &mut out);
    Tensor::new(values.dtype(), dims, out.into())
}

/// Row-major positions of the values, strictly ascending and below `count`.
fn positions(indices: &Tensor, n_values: usize, dims: &[usize], count: usize) -> Result<Vec<usize>> {
    let index_list = indices.to_vec::<i64>();
    let index_list = index_list.ok_or_else(|| malformed("the indices of a sparse tensor are not i64"))?;
    let out_of_range = || malformed("an index of a sparse tensor is out of range");
    let at = |i: i64, limit: usize| usize::try_from(i).ok().filter(|&i| i < limit).ok_or_else(out_of_range);
    let positions: Vec<usize> = match *indices.dims() {
        [n] if n == n_values => index_list.iter().map(|&i| at(i, count)).collect::<Result<_>>()?,
        [n, rank] if n == n_values && rank == dims.len() && rank > 0 => {
            let row = |row: &[i64]| row.iter().zip(dims).try_fold(0, |sum, (&i, &d)| Ok(sum * d + at(i, d)?));
            index_list.chunks_exact(rank).map(row).collect::<Result<_>>()?
        }
        _ => return Err(malformed("the indices of a sparse tensor fit neither its values nor its rank")),
    };
    match positions.windows(2).all(|w| w[0] < w[1]) {
        true => Ok(positions),
        false => Err(malformed("the indices of a sparse tensor are not in ascending order")),
    }
}

fn scatter(values: &Tensor, positions: &[usize], out: &mut [u8]) {
    let (from, width) = (values.bytes(), values.dtype().bytes());
    for (i, &at) in positions.iter().enumerate() {
        out[at * width..(at + 1) * width].copy_from_slice(&from[i * width..(i + 1) * width]);
    }
}

fn malformed(message: &str) -> Box<Error> {
    Error::user("E0302", message).help("the file is damaged or was written by a faulty tool; export it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::TensorProto;

    fn i64s(dims: &[i64], values: &[i64]) -> Option<TensorProto> {
        Some(TensorProto { data_type: 7, dims: dims.to_vec(), int64_data: values.to_vec(), ..Default::default() })
    }

    fn read(proto: SparseTensorProto) -> Result<Tensor> {
        dense(&proto, &mut External::absent(), &mut Budget::for_file(0))
    }

    fn floats(values: &[f32]) -> Option<TensorProto> {
        let (dims, float_data) = (vec![values.len() as i64], values.to_vec());
        Some(TensorProto { data_type: 1, dims, float_data, name: "w".into(), ..Default::default() })
    }

    #[test]
    fn positions_and_coordinates_agree() {
        let linear = SparseTensorProto { values: floats(&[5.0, 7.0]), indices: i64s(&[2], &[1, 5]), dims: vec![2, 3] };
        let rows = SparseTensorProto { indices: i64s(&[2, 2], &[0, 1, 1, 2]), ..linear.clone() };
        for proto in [linear, rows] {
            let tensor = read(proto).unwrap().clone();
            assert_eq!(tensor.to_vec::<f32>().unwrap(), [0.0, 5.0, 0.0, 0.0, 0.0, 7.0]);
        }
    }

    #[test]
    fn packed_elements_and_strings() {
        let values = TensorProto { data_type: 22, dims: vec![3], int32_data: vec![0xf7, 0x02], ..Default::default() };
        let proto = SparseTensorProto { values: Some(values), indices: i64s(&[3], &[0, 3, 4]), dims: vec![5] };
        assert_eq!(&read(proto).unwrap().bytes()[..], [7, 0, 0, 0xff, 2]);
        let values = TensorProto { data_type: 8, dims: vec![1], string_data: vec!["a".into()], ..Default::default() };
        let proto = SparseTensorProto { values: Some(values), indices: i64s(&[1], &[1]), dims: vec![2] };
        assert_eq!(read(proto).unwrap().texts().unwrap(), ["", "a"]);
    }

    #[test]
    fn hostile_indices_and_sizes_are_refused() {
        let good = SparseTensorProto { values: floats(&[5.0, 7.0]), indices: i64s(&[2], &[1, 5]), dims: vec![2, 3] };
        let cases = [
            (SparseTensorProto { indices: i64s(&[2], &[1, 6]), ..good.clone() }, "E0302"),
            (SparseTensorProto { indices: i64s(&[2], &[-1, 2]), ..good.clone() }, "E0302"),
            (SparseTensorProto { indices: i64s(&[2], &[2, 2]), ..good.clone() }, "E0302"),
            (SparseTensorProto { indices: i64s(&[2, 2], &[0, 1, 1, 3]), ..good.clone() }, "E0302"),
            (SparseTensorProto { indices: i64s(&[3], &[1, 2, 3]), ..good.clone() }, "E0302"),
            (SparseTensorProto { indices: None, ..good.clone() }, "E0302"),
            (SparseTensorProto { dims: vec![1 << 30, 1 << 20], ..good.clone() }, "E0202"),
            (SparseTensorProto { dims: vec![1 << 40, 1 << 40], ..good }, "E0202"),
        ];
        for (proto, code) in cases {
            assert_eq!(read(proto).unwrap_err().code, code);
        }
    }
}
