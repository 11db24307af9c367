//! LinearAttention, CausalConvWithState  =>  a recurrence over the steps, or masked contractions over all of them
//!
//! In each step t, state[b,n,d,m] becomes state · exp(decay) + k ⊗ v, and y = scale · q · state, with b the batch, d a
//! channel of the keys and m a channel of the values. There are h = n·g heads of queries: g of them share each of the n
//! states.

use super::builder::Builder;
use super::elementwise::sigmoid_of;
use super::heads::{iota, split_heads};
use super::node::Node;
use super::recurrence::{Recurrence, recur};
use super::reduction::wide;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// The exponential of any lower number is 0 in f32. Stronger decays are clamped to it, so that their sums with others
/// stay precise.
const DECAY_MIN: f64 = -128.0;

struct Parts {
    /// [b,n,g,t,d], scaled
    q: Value,
    /// [b,n,t,d]
    k: Value,
    /// [b,n,t,m]
    v: Value,
    /// [b,n,d,m]
    state: Value,
    /// [b,n,t,d], or [b,n,t,1] where all channels of a head have the same decay.
    decay: Option<Value>,
    /// [b,n,t,1], or [b,1,t,1]
    beta: Option<Value>,
}

/// ai.onnx LinearAttention, computed in f32 at least. Without a delta rule a sequence is one masked product over all
/// pairs of steps, quadratic in its length; with one, each step needs the state before it.
pub fn linear_attention(b: &mut Builder, node: &Node) -> Outputs {
    let (heads, kv) = (node.require("q_num_heads", node.int("q_num_heads")?)?, node.int("kv_num_heads")?);
    let kv = node.require("kv_num_heads", kv)?;
    if heads <= 0 || kv <= 0 || heads % kv != 0 {
        return Err(node.error("E0106", format!("{heads} heads do not divide into groups of {kv}")));
    }
    let query = node.input(0)?;
    let dtype = b.dtype(query);
    if !dtype.is_float() {
        return Err(node.error("E0107", format!("does not take {dtype}")));
    }
    let parts = parts(b, node, heads, kv)?;
    let steps = b.dims(parts.k)[2].clone();
    // [b,n,g,t,m]
    let (y, state) = match parts.beta.is_some() || steps.is_const(1) {
        true => stepwise(b, node, &parts)?,
        false => at_once(b, &parts)?,
    };
    let y = b.transpose(y, vec![0, 3, 1, 2, 4])?;
    let dims = b.dims(y);
    let width = dims[2].clone() * dims[3].clone() * dims[4].clone();
    let y = b.reshape(y, &[dims[0].clone(), dims[1].clone(), width])?;
    let state_dtype = node.optional(3).map_or(dtype, |past| b.dtype(past));
    Ok(vec![b.convert(y, dtype)?, b.convert(state, state_dtype)?])
}

fn parts(b: &mut Builder, node: &Node, heads: i64, kv: i64) -> Result<Parts> {
    let rule = node.str_or("update_rule", "gated_delta")?;
    let (gated, delta) = match rule.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        _ => return Err(node.error("E0106", format!("has no update rule `{rule}`"))),
    };
    for (i, name, wanted) in [(4, "decay", gated), (5, "beta", delta)] {
        if node.optional(i).is_some() != wanted {
            let verb = if wanted { "needs" } else { "takes no" };
            return Err(node.error("E0103", format!("the update rule `{rule}` {verb} `{name}`")));
        }
    }
    let single = |b: &mut Builder, v: Value| b.convert(v, wide(b.dtype(v)));
    let split = |b: &mut Builder, v: Value, heads: i64| {
        let v = single(b, v)?;
        split_heads(b, v, heads)
    };
    let (q, k) = (split(b, node.input(0)?, heads)?, split(b, node.input(1)?, kv)?);
    let v = split(b, node.input(2)?, kv)?;
    for (l, r, axis) in [(q, k, 0), (q, v, 0), (q, k, 2), (q, v, 2), (q, k, 3)] {
        let (l, r) = (b.dims(l)[axis].clone(), b.dims(r)[axis].clone());
        b.unify(&l, &r)?;
    }
    let scale = match node.float_or("scale", 0.0)? {
        0.0 => None,
        given => Some(given),
    };
    let q = super::attention::scaled(b, q, scale, false)?;
    let dims = b.dims(q);
    let grouped = [&dims[0], &Dim::constant(kv), &Dim::constant(heads / kv), &dims[2], &dims[3]].map(Dim::clone);
    let q = b.reshape(q, &grouped)?;
    let state_dims =
        [0, 1].map(|i| b.dims(k)[i].clone()).into_iter().chain([b.dims(k)[3].clone(), b.dims(v)[3].clone()]);
    let state_dims: Vec<Dim> = state_dims.collect();
    let state = match node.optional(3) {
        None => b.splat(b.dtype(q), 0.0, &state_dims)?,
        Some(past) if b.rank(past) != 4 => {
            return Err(node.error("E0201", format!("a state of rank {} is not supported", b.rank(past))));
        }
        Some(past) => {
            let past = b.convert(past, b.dtype(q))?;
            for (i, wanted) in state_dims.iter().enumerate() {
                let own = b.dims(past)[i].clone();
                b.unify(&own, wanted)?;
            }
            past
        }
    };
    let decay = match node.optional(4) {
        None => None,
        Some(decay) => {
            let decay = split(b, decay, kv)?;
            let d = b.dims(k)[3].clone();
            Some(one_or_all(b, decay, 3, &d)?)
        }
    };
    let beta = match node.optional(5) {
        None => None,
        Some(beta) => {
            // [b,t,w] → [b,w,t,1], where w is 1 or one row per head.
            let beta = single(b, beta)?;
            let rows = b.transpose(beta, vec![0, 2, 1])?;
            let rows = with_axis(b, rows, 3)?;
            Some(one_or_all(b, rows, 1, &Dim::constant(kv))?)
        }
    };
    Ok(Parts { q, k, v, state, decay, beta })
}

/// Computes step by step. Returns y[b,n,g,t,m] and the last state.
fn stepwise(b: &mut Builder, node: &Node, p: &Parts) -> Result<(Value, Value)> {
    // The steps become the first dimension.
    let mut sequences = vec![b.transpose(p.q, vec![3, 0, 1, 2, 4])?];
    for v in [Some(p.k), Some(p.v), p.decay, p.beta].into_iter().flatten() {
        sequences.push(b.transpose(v, vec![2, 0, 1, 3])?);
    }
    let (gated, delta) = (p.decay.is_some(), p.beta.is_some());
    let mut step = |b: &mut Builder, now: &[Value], states: &[Value], _: &[Value]| {
        let (q, k, mut v, mut state) = (now[0], now[1], now[2], states[0]);
        if gated {
            let factor = b.map1(ScalarFn::Exp, now[3])?;
            let factor = with_axis(b, factor, 3)?;
            state = b.map2(ScalarFn::Mul, state, factor)?;
        }
        if delta {
            let known = b.contract("bndm,bnd->bnm", state, k)?;
            let new = b.map2(ScalarFn::Sub, v, known)?;
            v = b.map2(ScalarFn::Mul, new, now[3 + usize::from(gated)])?;
        }
        let (column, row) = (with_axis(b, k, 3)?, with_axis(b, v, 2)?);
        let outer = b.map2(ScalarFn::Mul, column, row)?;
        let state = b.map2(ScalarFn::Add, state, outer)?;
        Ok((vec![state], vec![b.contract("bngd,bndm->bngm", q, state)?]))
    };
    let run = Recurrence { sequences: &sequences, states: &[p.state], captured: &[], reverse: false };
    let (last, outputs) = recur(b, node, &run, &mut step)?;
    Ok((b.transpose(outputs[0], vec![1, 2, 3, 0, 4])?, last[0]))
}

/// Expands an axis with 1 or `n` elements to `n`. A dimension known to be 1 is not expanded: its consumers then take a
/// shorter path.
fn one_or_all(b: &mut Builder, v: Value, axis: usize, n: &Dim) -> Result<Value> {
    if b.dims(v)[axis].is_const(1) { Ok(v) } else { b.one_or_all(v, axis, n) }
}

fn with_axis(b: &mut Builder, v: Value, axis: usize) -> Result<Value> {
    let mut dims = b.dims(v);
    dims.insert(axis, Dim::constant(1));
    b.reshape(v, &dims)
}

/// y[t] = q[t] · exp(G[t]) · state + Σ over i <= t of (q[t] · exp(G[t] - G[i]) · k[i]) v[i], where G sums the decays.
fn at_once(b: &mut Builder, p: &Parts) -> Result<(Value, Value)> {
    let t = b.dims(p.k)[2].clone();
    let square = [t.clone(), t];
    let (row, column) = (iota(b, 0, &square)?, iota(b, 1, &square)?);
    let seen = b.map2(ScalarFn::Le, column, row)?;
    let Some(decay) = p.decay else {
        let scores = b.contract("bngtd,bnid->bngti", p.q, p.k)?;
        let zero = b.splat(b.dtype(scores), 0.0, &[])?;
        let scores = b.select(seen, scores, zero)?;
        let new = b.contract("bnid,bnim->bndm", p.k, p.v)?;
        return combined(b, p, scores, p.q, p.state, new);
    };
    let dtype = b.dtype(decay);
    let decay = b.map_const(ScalarFn::Max, decay, DECAY_MIN)?;
    // Decays are summed in f64, as the sums over long sequences are large and their differences small.
    let decay = b.convert(decay, DType::F64)?;
    let ones = b.convert(seen, DType::F64)?;
    let sums = b.contract("ti,bnid->bntd", ones, decay)?;
    let all = b.reduce(ReduceFn::Add, decay, &[2], true)?;
    // [b,n,t,i,d]
    let (later, earlier) = (with_axis(b, sums, 3)?, with_axis(b, sums, 2)?);
    let between = b.map2(ScalarFn::Sub, later, earlier)?;
    let between = b.convert(between, dtype)?;
    let seen = with_axis(b, seen, 2)?;
    let never = b.splat(dtype, f64::NEG_INFINITY, &[])?;
    let between = b.select(seen, between, never)?;
    let factors = b.map1(ScalarFn::Exp, between)?;
    let scores = if b.dims(factors)[4].is_const(1) {
        let plain = b.contract("bngtd,bnid->bngti", p.q, p.k)?;
        let dims = b.dims(factors);
        let factors =
            b.reshape(factors, &[&dims[0], &dims[1], &Dim::constant(1), &dims[2], &dims[3]].map(Dim::clone))?;
        b.map2(ScalarFn::Mul, plain, factors)?
    } else {
        let keys = with_axis(b, p.k, 2)?;
        let keys = b.map2(ScalarFn::Mul, factors, keys)?;
        b.contract("bngtd,bntid->bngti", p.q, keys)?
    };
    let power = |b: &mut Builder, v: Value| {
        let v = b.convert(v, dtype)?;
        b.map1(ScalarFn::Exp, v)
    };
    let reach = power(b, sums)?;
    let reach = with_axis(b, reach, 2)?;
    let q = b.map2(ScalarFn::Mul, p.q, reach)?;
    let rest = b.map2(ScalarFn::Sub, all, sums)?;
    let rest = power(b, rest)?;
    let keys = b.map2(ScalarFn::Mul, p.k, rest)?;
    let new = b.contract("bnid,bnim->bndm", keys, p.v)?;
    // [b,n,1,d] → [b,n,d,1]
    let kept = power(b, all)?;
    let kept = b.transpose(kept, vec![0, 1, 3, 2])?;
    let state = b.map2(ScalarFn::Mul, p.state, kept)?;
    combined(b, p, scores, q, state, new)
}

/// Returns scores · v + q · (the previous state), and the new state: the kept part of the state plus `new`.
fn combined(b: &mut Builder, p: &Parts, scores: Value, q: Value, kept: Value, new: Value) -> Result<(Value, Value)> {
    let within = b.contract("bngti,bnim->bngtm", scores, p.v)?;
    let before = b.contract("bngtd,bndm->bngtm", q, p.state)?;
    Ok((b.map2(ScalarFn::Add, within, before)?, b.map2(ScalarFn::Add, kept, new)?))
}

/// Convolutions of up to this many taps are sums of shifted products; wider ones gather their windows.
const TAPS_MAX: i64 = 16;

/// ai.onnx CausalConvWithState: convolves each channel x[b,c,l] with its w[c,1,j], over a position and the j - 1
/// positions before it, which a state carries from call to call.
pub fn causal_conv_with_state(b: &mut Builder, node: &Node) -> Outputs {
    let (x, w) = (node.input(0)?, node.input(1)?);
    let dtype = b.dtype(x);
    if b.rank(x) != 3 || b.rank(w) != 3 || !dtype.is_float() || b.dtype(w) != dtype {
        return Err(node.error("E0201", format!("takes floats of rank 3, not {} and {}", b.ty(x), b.ty(w))));
    }
    let silu = match node.str_or("activation", "none")?.as_str() {
        "none" => false,
        "silu" | "swish" => true,
        other => return Err(node.error("E0106", format!("has no activation `{other}`"))),
    };
    let (channels, own) = (b.dims(x)[1].clone(), b.dims(w)[0].clone());
    b.unify(&channels, &own)?;
    let one = b.dims(w)[1].clone();
    b.unify(&one, &Dim::constant(1))?;
    let taps = b.dims(w)[2].clone();
    let before = taps.clone() - Dim::constant(1);
    let padded = with_state(b, node, x, &before)?;
    let (length, taps) = (b.dims(x)[2].clone(), b.dims(w)[2].clone());
    let before = taps.clone() - Dim::constant(1);
    let wide = wide(dtype);
    let source = b.convert(padded, wide)?;
    let weights = b.convert(w, wide)?;
    let weights = b.reshape(weights, &[b.dims(w)[0].clone(), taps.clone()])?;
    let mut y = match taps.as_const() {
        Some(n @ 1..=TAPS_MAX) => shifted_products(b, source, weights, &length, n)?,
        _ => {
            let window = [length.clone(), taps];
            let (place, tap) = (iota(b, 0, &window)?, iota(b, 1, &window)?);
            let index = b.map2(ScalarFn::Add, place, tap)?;
            let windows = b.add(Op::Gather { axis: 2 }, &[source, index])?;
            b.contract("bclj,cj->bcl", windows, weights)?
        }
    };
    if let Some(bias) = node.optional(2) {
        if b.rank(bias) != 1 {
            return Err(node.error("E0201", format!("takes a bias of rank 1, not {}", b.ty(bias))));
        }
        let bias = b.convert(bias, wide)?;
        let column = b.reshape(bias, &[b.dims(bias)[0].clone(), Dim::constant(1)])?;
        y = b.map2(ScalarFn::Add, y, column)?;
    }
    y = b.convert(y, dtype)?;
    if silu {
        let x = b.convert(y, wide)?;
        let gate = sigmoid_of(b, x)?;
        let product = b.map2(ScalarFn::Mul, x, gate)?;
        y = b.convert(product, dtype)?;
    }
    Ok(vec![y, b.slice_axis(padded, 2, length, 1, before)?])
}

/// Prepends the positions before the input, which are 0 if no state gives them.
fn with_state(b: &mut Builder, node: &Node, x: Value, before: &Dim) -> Result<Value> {
    let mut ty = b.ty(x).clone();
    match node.optional(3) {
        Some(past) if b.rank(past) == 3 => {
            for (i, wanted) in [ty.dims[0].clone(), ty.dims[1].clone(), before.clone()].into_iter().enumerate() {
                let own = b.dims(past)[i].clone();
                b.unify(&own, &wanted)?;
            }
            b.add(Op::Concat { axis: 2 }, &[past, x])
        }
        Some(past) => Err(node.error("E0201", format!("a state {} is not supported", b.ty(past)))),
        None => {
            ty.dims[2] = ty.dims[2].clone() + before.clone();
            let zero = b.splat(ty.dtype, 0.0, &[])?;
            let low = vec![Dim::constant(0), Dim::constant(0), before.clone()];
            b.add_typed(Op::Pad { low }, &[x, zero], Some(ty))
        }
    }
}

fn shifted_products(b: &mut Builder, x: Value, w: Value, length: &Dim, taps: i64) -> Result<Value> {
    let tap = |b: &mut Builder, j: i64| {
        let piece = b.slice_axis(x, 2, Dim::constant(j), 1, length.clone())?;
        let weight = b.slice_axis(w, 1, Dim::constant(j), 1, Dim::constant(1))?;
        b.map2(ScalarFn::Mul, piece, weight)
    };
    let mut sum = tap(b, 0)?;
    for j in 1..taps {
        let next = tap(b, j)?;
        sum = b.map2(ScalarFn::Add, sum, next)?;
    }
    Ok(sum)
}
