//! gather, slice, pad, window, concat, transpose, broadcast: elements copied as bytes, whatever their type

use super::Expected;
use crate::sdx::WindowSpec;
use sardonyx_base::tensor::element_count;
use sardonyx_base::{Error, Result, Tensor};

/// Calls `each` with `start + Σ index[d] * strides[d]` for every index in `dims`, in row-major order.
pub fn walk(dims: &[usize], start: i64, strides: &[i64], mut each: impl FnMut(usize)) {
    if dims.contains(&0) {
        return;
    }
    let Some((&n, outer)) = dims.split_last() else { return each(start as usize) };
    let step = strides[outer.len()];
    let mut index = vec![0; outer.len()];
    let mut base = start;
    loop {
        let mut offset = base;
        for _ in 0..n {
            each(offset as usize);
            offset += step;
        }
        let mut d = outer.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            base += strides[d];
            if index[d] < outer[d] {
                break;
            }
            base -= strides[d] * outer[d] as i64;
            index[d] = 0;
        }
    }
}

/// Row-major strides in elements. They saturate only if a dimension is 0, in which case no stride is used.
pub fn strides(dims: &[usize]) -> Vec<i64> {
    let mut out = vec![1i64; dims.len()];
    for d in (1..dims.len()).rev() {
        out[d - 1] = out[d].saturating_mul(dims[d].max(1) as i64);
    }
    out
}

/// Returns a tensor of dimensions `dims`: its element at an index is the source's element at `start + Σ index[d] *
/// strides[d]`.
fn strided(source: &Tensor, dims: &[usize], start: i64, strides: &[i64]) -> Result<Tensor> {
    fn copy<const WIDTH: usize>(from: &[u8], dims: &[usize], start: i64, strides: &[i64]) -> Vec<u8> {
        let mut out = Vec::with_capacity(element_count(dims).unwrap_or(0) * WIDTH);
        walk(dims, start, strides, |at| out.extend_from_slice(&from[at * WIDTH..(at + 1) * WIDTH]));
        out
    }
    let from = source.bytes();
    let bytes = match width(source) {
        1 => copy::<1>(from, dims, start, strides),
        2 => copy::<2>(from, dims, start, strides),
        4 => copy::<4>(from, dims, start, strides),
        _ => copy::<8>(from, dims, start, strides),
    };
    Tensor::new(source.dtype(), dims.to_vec(), bytes.into())
}

/// Bytes per element: 1, 2, 4 or 8 for all supported types.
fn width(t: &Tensor) -> usize {
    t.dtype().bytes()
}

fn axis_in_range(axis: usize, rank: usize) -> Result<()> {
    if axis < rank { Ok(()) } else { Err(Error::defect(format!("axis {axis} of a tensor of rank {rank}"))) }
}

pub fn gather(axis: usize, data: &Tensor, indices: &Tensor, expected: &Expected) -> Result<Tensor> {
    axis_in_range(axis, data.rank())?;
    let n = data.dims()[axis];
    let computed = [&data.dims()[..axis], indices.dims(), &data.dims()[axis + 1..]].concat();
    expected.agree(&computed)?;
    let indices: Vec<i64> = indices
        .to_vec()
        .ok_or_else(|| Error::defect(format!("the indices of a gather are {}, not i64", indices.dtype())))?;
    if let Some(i) = indices.iter().find(|&&i| i < 0 || i as usize >= n) {
        return Err(Error::user("E0303", format!("the index {i} is out of range 0..{n} of axis {axis}")));
    }
    let block: usize = data.dims()[axis + 1..].iter().product::<usize>() * width(data);
    let outer: usize = data.dims()[..axis].iter().product();
    let mut out = Vec::with_capacity(outer * indices.len() * block);
    for o in 0..outer {
        for &i in &indices {
            let at = (o * n + i as usize) * block;
            out.extend_from_slice(&data.bytes()[at..at + block]);
        }
    }
    Tensor::new(data.dtype(), computed, out.into())
}

pub fn slice(starts: &[i64], steps: &[i64], data: &Tensor, expected: &Expected) -> Result<Tensor> {
    let dims = &expected.dims;
    if [starts.len(), steps.len(), dims.len()].iter().any(|&n| n != data.rank()) {
        return Err(Error::defect(format!("a slice of rank {} of a tensor of rank {}", starts.len(), data.rank())));
    }
    let of = strides(data.dims());
    let mut start = 0;
    let empty = dims.contains(&0);
    for d in 0..if empty { 0 } else { dims.len() } {
        let (first, n) = (starts[d] as i128, data.dims()[d] as i128);
        let last = first + (dims[d] as i128 - 1) * steps[d] as i128;
        if let Some(i) = [first, last].into_iter().find(|i| !(0..n).contains(i)) {
            return Err(Error::user(
                "E0303",
                format!("the slice reaches index {i} of dimension {d}, which has 0..{n}"),
            ));
        }
        start += starts[d] * of[d];
    }
    // A step is used only if it stays within the dimension, so the product cannot overflow.
    let by = |d: usize| if dims[d] <= 1 || empty { 0 } else { steps[d] * of[d] };
    let by: Vec<i64> = (0..dims.len()).map(by).collect();
    strided(data, dims, start, &by)
}

pub fn pad(low: &[i64], data: &Tensor, value: &Tensor, expected: &Expected) -> Result<Tensor> {
    let dims = &expected.dims;
    let fits = low.len() == data.rank() && dims.len() == data.rank() && value.len() == 1;
    if !fits || value.dtype() != data.dtype() {
        return Err(Error::defect("a pad takes one `low` per dimension and a scalar of the operand's type"));
    }
    let width = width(data);
    let mut out = value.bytes().repeat(element_count(dims).unwrap_or(0));
    // The part of the operand that lies inside the result: `n` elements per dimension, read from offset `read` on.
    let (of, to) = (strides(data.dims()), strides(dims));
    let (mut n, mut read, mut write) = (vec![], 0i64, 0i64);
    for d in 0..dims.len() {
        let (low, size) = (low[d] as i128, data.dims()[d] as i128);
        let (first, last) = (low.max(0), (low + size).min(dims[d] as i128));
        if first >= last {
            return Tensor::new(data.dtype(), dims.clone(), out.into());
        }
        n.push((last - first) as usize);
        read += (first - low) as i64 * of[d];
        write += first as i64 * to[d];
    }
    let mut sources = Vec::with_capacity(element_count(&n).unwrap_or(0));
    walk(&n, read, &of, |at| sources.push(at));
    let mut sources = sources.into_iter();
    walk(&n, write, &to, |at| {
        if let Some(from) = sources.next() {
            out[at * width..(at + 1) * width].copy_from_slice(&data.bytes()[from * width..(from + 1) * width]);
        }
    });
    Tensor::new(data.dtype(), dims.clone(), out.into())
}

pub fn window(w: &WindowSpec, size: i64, data: &Tensor, expected: &Expected) -> Result<Tensor> {
    axis_in_range(w.axis, data.rank())?;
    let dims = &expected.dims;
    let mut computed = data.dims().to_vec();
    computed[w.axis] = dims.get(w.axis).copied().unwrap_or(0);
    computed.push(usize::try_from(size).unwrap_or(0));
    expected.agree(&computed)?;
    if dims.contains(&0) {
        return strided(data, dims, 0, &vec![0; dims.len()]);
    }
    let (n, places) = (data.dims()[w.axis] as i128, dims[w.axis] as i128);
    let last = (places - 1) * i128::from(w.stride) + (i128::from(size) - 1) * i128::from(w.dilation);
    if last >= n {
        let message = format!("the window reaches index {last} of dimension {}, which has 0..{n}", w.axis);
        return Err(Error::user("E0303", message));
    }
    let mut by = strides(data.dims());
    let along = by[w.axis];
    // A step is used only if it stays within the dimension, so the product cannot overflow.
    by[w.axis] = if places > 1 { along * w.stride } else { 0 };
    by.push(if size > 1 { along * w.dilation } else { 0 });
    strided(data, dims, 0, &by)
}

pub fn concat(axis: usize, parts: &[Tensor], expected: &Expected) -> Result<Tensor> {
    let whole = joined(axis, parts)?;
    expected.agree(whole.dims())?;
    Ok(whole)
}

/// Concatenates tensors along an axis.
pub fn joined(axis: usize, parts: &[Tensor]) -> Result<Tensor> {
    let first = parts.first().ok_or_else(|| Error::defect("a concat of nothing"))?;
    axis_in_range(axis, first.rank())?;
    let mut computed = first.dims().to_vec();
    for part in &parts[1..] {
        let same = |d: usize| d == axis || part.dims()[d] == first.dims()[d];
        if part.rank() != first.rank() || !(0..first.rank()).all(same) {
            let message = format!("{:?} and {:?} cannot be joined along axis {axis}", first.dims(), part.dims());
            return Err(Error::user("E0201", message));
        }
        if part.dtype() != first.dtype() {
            return Err(Error::defect(format!("a concat of {} and {}", first.dtype(), part.dtype())));
        }
        computed[axis] += part.dims()[axis];
    }
    let outer: usize = first.dims()[..axis].iter().product();
    let mut out = Vec::with_capacity(element_count(&computed).unwrap_or(0) * width(first));
    for o in 0..outer {
        for part in parts {
            let block = part.dims()[axis..].iter().product::<usize>() * width(part);
            out.extend_from_slice(&part.bytes()[o * block..(o + 1) * block]);
        }
    }
    Tensor::new(first.dtype(), computed, out.into())
}

pub fn reshape(data: &Tensor, expected: &Expected) -> Result<Tensor> {
    if element_count(&expected.dims) != Some(data.len()) {
        let message = format!("{:?} cannot be reshaped to {:?}: the element counts differ", data.dims(), expected.dims);
        return Err(Error::user("E0201", message));
    }
    data.with_dims(expected.dims.clone())
}

pub fn transpose(perm: &[usize], data: &Tensor, expected: &Expected) -> Result<Tensor> {
    let result = transposed(data, perm)?;
    expected.agree(result.dims())?;
    Ok(result)
}

/// Transposes a tensor: dimension i of the result is dimension `perm[i]` of `data`.
pub fn transposed(data: &Tensor, perm: &[usize]) -> Result<Tensor> {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..data.rank()) {
        return Err(Error::defect(format!("{perm:?} does not permute a tensor of rank {}", data.rank())));
    }
    let computed: Vec<usize> = perm.iter().map(|&p| data.dims()[p]).collect();
    let of = strides(data.dims());
    let by: Vec<i64> = perm.iter().map(|&p| of[p]).collect();
    strided(data, &computed, 0, &by)
}

pub fn broadcast(to: &[usize], data: &Tensor, expected: &Expected) -> Result<Tensor> {
    let dims = &expected.dims;
    let increasing = to.windows(2).all(|w| w[0] < w[1]) && to.iter().all(|&d| d < dims.len());
    if to.len() != data.rank() || !increasing {
        return Err(Error::defect(format!("{to:?} does not place rank {} in rank {}", data.rank(), dims.len())));
    }
    let of = strides(data.dims());
    let mut by = vec![0; dims.len()];
    for (i, &d) in to.iter().enumerate() {
        match data.dims()[i] {
            n if n == dims[d] => by[d] = of[i],
            1 => {}
            n => {
                let message = format!("dimension {i} of {:?} is {n}: it cannot repeat to {}", data.dims(), dims[d]);
                return Err(Error::user("E0201", message));
            }
        }
    }
    strided(data, dims, 0, &by)
}

pub fn iota(axis: usize, expected: &Expected) -> Result<Tensor> {
    let dims = &expected.dims;
    axis_in_range(axis, dims.len())?;
    let mut by = vec![0; dims.len()];
    by[axis] = 1;
    let mut out: Vec<i64> = Vec::with_capacity(element_count(dims).unwrap_or(0));
    walk(dims, 0, &by, |i| out.push(i as i64));
    Ok(Tensor::from_vec(dims.clone(), out))
}
