//! RotaryEmbedding(x, cos, sin)  =>  x1 cos - x2 sin, x1 sin + x2 cos: the operators of ai.onnx and com.microsoft

use super::builder::Builder;
use super::heads::{iota, join_heads, split_heads};
use super::node::Node;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// Lowers RotaryEmbedding of ai.onnx: pairs of channels are rotated by the angle that the tables hold for their
/// position.
pub fn rotary_embedding(b: &mut Builder, node: &Node) -> Outputs {
    let (input, mut cos, mut sin) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let joined = b.rank(input) == 3;
    // x is [b,h,s,d], whether the input has rank 3 or 4.
    let x = match joined {
        true => split_heads(b, input, node.require("num_heads", node.int("num_heads")?)?)?,
        false => input,
    };
    if let Some(positions) = node.optional(3) {
        (cos, sin) = angles(b, cos, sin, positions)?;
    }
    let y = rotate(b, node, x, cos, sin, "interleaved")?;
    Ok(vec![if joined { join_heads(b, y)? } else { y }])
}

/// Lowers RotaryEmbedding of com.microsoft: the positions are the operand before the tables. They are given for each
/// token, or for the first token only.
pub fn microsoft_rotary_embedding(b: &mut Builder, node: &Node) -> Outputs {
    let (input, positions, cos, sin) = (node.input(0)?, node.input(1)?, node.input(2)?, node.input(3)?);
    if node.float_or("scale", 1.0)? != 1.0 || node.int_or("is_packed_batching", 0)? != 0 {
        return Err(node.error("E0101", "a scale and packed batches are not supported"));
    }
    let joined = b.rank(input) == 3;
    let x = match (joined, node.int_or("num_heads", 0)?) {
        (false, _) => input,
        (true, 0) => {
            // Without `num_heads`, all channels of a head are rotated, so the tables are half as wide as a head.
            let (hidden, half) = (b.dims(input)[2].clone(), b.dims(cos).last().and_then(Dim::as_const).unwrap_or(0));
            let heads =
                half.checked_mul(2).and_then(|d| hidden.exact_div(&Dim::constant(d))).and_then(|h| h.as_const());
            split_heads(b, input, node.require("num_heads", heads)?)?
        }
        (true, heads) => split_heads(b, input, heads)?,
    };
    if b.rank(x) != 4 {
        return Err(node.error("E0201", format!("takes operands of rank 3 or 4, not {}", b.ty(x))));
    }
    let positions = match b.rank(positions) {
        2 => positions,
        _ => {
            let dims = b.dims(x);
            let shape = [dims[0].clone(), dims[2].clone()];
            let (first, count) = (b.convert(positions, DType::I64)?, iota(b, 1, &shape)?);
            b.map2(ScalarFn::Add, count, first)?
        }
    };
    let (cos, sin) = angles(b, cos, sin, positions)?;
    let y = rotate(b, node, x, cos, sin, "interleaved")?;
    Ok(vec![if joined { join_heads(b, y)? } else { y }])
}

/// Returns the rows [b,s,r] of both tables at positions[b,s].
pub fn angles(b: &mut Builder, cos: Value, sin: Value, positions: Value) -> Result<(Value, Value)> {
    let positions = b.convert(positions, DType::I64)?;
    let cos = b.add(Op::Gather { axis: 0 }, &[cos, positions])?;
    let sin = b.add(Op::Gather { axis: 0 }, &[sin, positions])?;
    Ok((cos, sin))
}

/// Rotates r pairs of channels of x[b,h,s,d] by the angles whose cosines and sines are cos[b,s,r] and sin[b,s,r]. A
/// pair is two adjacent channels if the attribute with the name in `neighbours` is set, else the channels i and i + r;
/// the channels from 2r on are not changed.
pub fn rotate(b: &mut Builder, node: &Node, x: Value, cos: Value, sin: Value, neighbours: &str) -> Result<Value> {
    let channels = Some(node.int_or("rotary_embedding_dim", 0)?).filter(|given| *given != 0);
    rotated(b, node, x, (cos, sin), (channels, neighbours))
}

/// As [`rotate`], with as many pairs as the tables have columns if their number is constant, at most all.
pub fn rotate_by_tables(b: &mut Builder, node: &Node, x: Value, cos: Value, sin: Value) -> Result<Value> {
    let columns = b.dims(cos).last().and_then(Dim::as_const);
    let width = b.dims(x).last().and_then(Dim::as_const);
    let some = columns.zip(width).filter(|(columns, width)| 2 * columns < *width);
    rotated(b, node, x, (cos, sin), (some.map(|(columns, _)| 2 * columns), "rotary_interleaved"))
}

fn rotated(
    b: &mut Builder,
    node: &Node,
    x: Value,
    (cos, sin): (Value, Value),
    (channels, neighbours): (Option<i64>, &str),
) -> Result<Value> {
    if b.rank(x) != 4 {
        return Err(node.error("E0201", format!("takes operands of rank 3 or 4, not {}", b.ty(x))));
    }
    let mut tables = [cos, sin];
    for table in &mut tables {
        if b.rank(*table) != 3 || b.dtype(*table) != b.dtype(x) {
            return Err(node.error("E0201", format!("{} is no table of angles for {}", b.ty(*table), b.ty(x))));
        }
        // [b,s,r] → [b,1,s,r]
        let mut dims = b.dims(*table);
        dims.insert(1, Dim::constant(1));
        *table = b.reshape(*table, &dims)?;
    }
    let [cos, sin] = tables;
    let (half, rotated) = rotated_width(b, node, x, cos, channels)?;
    let width = b.dims(x)[3].clone();
    let interleaved = node.int_or(neighbours, 0)? != 0;
    let (zero, one) = (Dim::constant(0), Dim::constant(1));
    let (x1, x2) = match interleaved {
        true => (b.slice_axis(x, 3, zero, 2, half.clone())?, b.slice_axis(x, 3, one, 2, half.clone())?),
        false => (b.slice_axis(x, 3, zero, 1, half.clone())?, b.slice_axis(x, 3, half.clone(), 1, half.clone())?),
    };
    let turn = |b: &mut Builder, f, (p, c): (Value, Value), (q, s): (Value, Value)| {
        let (l, r) = (b.map2(ScalarFn::Mul, p, c)?, b.map2(ScalarFn::Mul, q, s)?);
        b.map2(f, l, r)
    };
    let real = turn(b, ScalarFn::Sub, (x1, cos), (x2, sin))?;
    let imaginary = turn(b, ScalarFn::Add, (x1, sin), (x2, cos))?;
    let mut parts = match interleaved {
        true => {
            let mut pair = b.dims(real);
            pair.push(Dim::constant(1));
            let (r, i) = (b.reshape(real, &pair)?, b.reshape(imaginary, &pair)?);
            let both = b.add(Op::Concat { axis: 4 }, &[r, i])?;
            let mut flat = b.dims(real);
            flat[3] = flat[3].clone() * Dim::constant(2);
            vec![b.reshape(both, &flat)?]
        }
        false => vec![real, imaginary],
    };
    if rotated != width {
        parts.push(b.slice_axis(x, 3, rotated.clone(), 1, width - rotated)?);
    }
    b.concat(3, &parts)
}

/// Returns the number of rotated pairs of channels and the number of rotated channels: `channels`, or all if absent.
fn rotated_width(b: &mut Builder, node: &Node, x: Value, cos: Value, channels: Option<i64>) -> Result<(Dim, Dim)> {
    let width = b.dims(x)[3].clone();
    let odd = |b: &Builder| node.error("E0201", format!("a width of {} has no pairs of channels", b.dims(x)[3]));
    let half = match channels {
        None => b.divide(&width, 2)?.ok_or_else(|| odd(b))?,
        Some(given) => {
            let fits = b.dims(x)[3].as_const().is_none_or(|w| given <= w);
            if given < 0 || given % 2 != 0 || !fits {
                return Err(node.error("E0106", format!("`rotary_embedding_dim` = {given} does not fit {width}")));
            }
            b.require_at_most(&Dim::constant(given), &width)?;
            Dim::constant(given / 2)
        }
    };
    let table = b.dims(cos)[3].clone();
    b.unify(&table, &half)?;
    // Computed again, because unification may have rewritten the width in other symbols.
    let half = match channels {
        None => b.dims(x)[3].exact_div(&Dim::constant(2)).ok_or_else(|| odd(b))?,
        Some(given) => Dim::constant(given / 2),
    };
    Ok((half.clone(), half * Dim::constant(2)))
}
