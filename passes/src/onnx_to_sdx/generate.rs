//! OneHot, Trilu, EyeLike, ReverseSequence  =>  comparisons and arithmetic with iota; Tile  =>  broadcast, reshape

use super::builder::Builder;
use super::coordinates::{
    checked_index, from_end, gather_along, indices, iota, one_element, positions_except, scalar_index,
};
use super::node::Node;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

/// select(iota == index, on, off) along a new dimension of `depth`; an index outside -depth..depth gives only `off`.
pub fn one_hot(b: &mut Builder, node: &Node) -> Outputs {
    let (index, depth, values) = (node.input(0)?, node.input(1)?, node.input(2)?);
    if !ScalarFn::Eq.row().domain.contains(b.dtype(index)) || b.dtype(index) == DType::Bool {
        return Err(node.error("E0107", format!("indices of type {} are not allowed", b.dtype(index))));
    }
    let index = b.convert(index, DType::I64)?;
    let depth = b.convert(depth, DType::I64)?;
    let depth = one_element(b, depth)?;
    let depth = b.read_dims(depth)?;
    let depth = depth.into_iter().next().ok_or_else(|| node.error("E0201", "`depth` has no element"))?;
    let rank = b.rank(index);
    let axis = node.axis(node.int_or("axis", -1)?, rank + 1)?;
    let mut dims = b.dims(index);
    dims.insert(axis, depth.clone());
    let index = from_end(b, index, &depth)?;
    let index = b.broadcast_at(index, positions_except(rank, axis), &dims)?;
    let place = iota(b, axis, &dims)?;
    let hot = b.map2(ScalarFn::Eq, index, place)?;
    if b.rank(values) != 1 {
        return Err(node.error("E0201", format!("`values` is [off, on], not {}", b.ty(values))));
    }
    let n_values = b.dims(values)[0].clone();
    b.unify(&n_values, &Dim::constant(2))?;
    let mut pick = |i: i64| {
        let one = b.slice_axis(values, 0, Dim::constant(i), 1, Dim::constant(1))?;
        b.reshape(one, &[])
    };
    let (off, on) = (pick(0)?, pick(1)?);
    Ok(vec![b.select(hot, on, off)?])
}

/// Tile: each dimension becomes a pair (times, extent), and the pair is merged into one dimension.
pub fn tile(b: &mut Builder, node: &Node) -> Outputs {
    let (x, times) = (node.input(0)?, node.input(1)?);
    if let [n] = b.dims(times).as_slice() {
        b.unify(n, &Dim::constant(b.rank(x) as i64))?;
    }
    let times = b.read_dims(times)?;
    let dims = b.dims(x);
    if times.len() != dims.len() {
        return Err(node.error("E0201", format!("{} repetitions of {}", times.len(), b.ty(x))));
    }
    let pairs: Vec<Dim> = times.iter().zip(&dims).flat_map(|(t, d)| [t.clone(), d.clone()]).collect();
    let at = (0..dims.len()).map(|i| 2 * i + 1).collect();
    let spread = b.broadcast_at(x, at, &pairs)?;
    let wide: Vec<Dim> = times.into_iter().zip(dims).map(|(t, d)| t * d).collect();
    Ok(vec![b.reshape(spread, &wide)?])
}

/// Maximum magnitude of a diagonal's offset: a diagonal with a larger offset is outside every matrix, and adding a row
/// index to an offset within this limit cannot overflow.
const DIAGONAL_MAX: i64 = 1 << 62;

/// Clamps the offset of a diagonal to ±`DIAGONAL_MAX`; a diagonal outside every matrix stays outside.
fn bounded_diagonal(b: &mut Builder, k: Value) -> Result<Value> {
    if b.constants(k).is_some_and(|known| known.iter().all(|k| k.unsigned_abs() <= DIAGONAL_MAX as u64)) {
        return Ok(k);
    }
    let (least, most) = (b.dims_scalar(Dim::constant(-DIAGONAL_MAX))?, b.dims_scalar(Dim::constant(DIAGONAL_MAX))?);
    let k = b.map2(ScalarFn::Max, k, least)?;
    b.map2(ScalarFn::Min, k, most)
}

/// Keeps the upper (j - i >= k) or lower (j - i <= k) triangle of the last two dimensions; the rest becomes 0.
pub fn trilu(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let (dims, rank) = (b.dims(x), b.rank(x));
    if rank < 2 {
        return Err(node.error("E0201", format!("takes matrices, not {}", b.ty(x))));
    }
    let matrix = &dims[rank - 2..];
    let (i, j) = (iota(b, 0, matrix)?, iota(b, 1, matrix)?);
    let offset = match node.optional(1) {
        Some(_) => {
            let k = scalar_index(b, node, 1)?;
            bounded_diagonal(b, k)?
        }
        None => b.dims_scalar(Dim::constant(0))?,
    };
    let diagonal = b.map2(ScalarFn::Add, i, offset)?;
    let (low, high) = if node.int_or("upper", 1)? != 0 { (diagonal, j) } else { (j, diagonal) };
    let kept = b.map2(ScalarFn::Le, low, high)?;
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    Ok(vec![b.select(kept, x, zero)?])
}

/// EyeLike: 1 where j == i + k, else 0.
pub fn eye_like(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let dtype = node.dtype("dtype")?.unwrap_or(b.dtype(x));
    let dims = b.dims(x);
    if dims.len() != 2 {
        return Err(node.error("E0201", format!("takes a matrix, not {}", b.ty(x))));
    }
    let (i, j) = (iota(b, 0, &dims)?, iota(b, 1, &dims)?);
    let offset = node.int_or("k", 0)?.clamp(-DIAGONAL_MAX, DIAGONAL_MAX);
    let offset = b.dims_scalar(Dim::constant(offset))?;
    let diagonal = b.map2(ScalarFn::Add, i, offset)?;
    let on = b.map2(ScalarFn::Eq, diagonal, j)?;
    Ok(vec![b.convert(on, dtype)?])
}

/// Reverses the first `lengths[i]` positions of sequence i.
pub fn reverse_sequence(b: &mut Builder, node: &Node) -> Outputs {
    let (x, lengths) = (node.input(0)?, indices(b, node, 1)?);
    let rank = b.rank(x);
    let batch = node.axis(node.int_or("batch_axis", 1)?, rank)?;
    let time = node.axis(node.int_or("time_axis", 0)?, rank)?;
    if batch == time || b.rank(lengths) != 1 {
        return Err(node.error("E0201", format!("lengths {} of {} along {time}", b.ty(lengths), b.ty(x))));
    }
    let (l, r) = (b.dims(lengths)[0].clone(), b.dims(x)[batch].clone());
    b.unify(&l, &r)?;
    let dims = b.dims(x);
    let lengths = checked_index(b, lengths, &(dims[time].clone() + Dim::constant(1)))?;
    let length = b.broadcast_at(lengths, vec![batch], &dims)?;
    let at = iota(b, time, &dims)?;
    let last = b.map_const(ScalarFn::Sub, length, 1.0)?;
    let mirrored = b.map2(ScalarFn::Sub, last, at)?;
    let inside = b.map2(ScalarFn::Lt, at, length)?;
    let at = b.select(inside, mirrored, at)?;
    Ok(vec![gather_along(b, x, time, at)?])
}
