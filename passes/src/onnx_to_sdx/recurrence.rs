//! s₀, x[0..n]  =>  s₁, y₀ = step(s₀, x[0]); s₂, y₁ = step(s₁, x[1]); …; y = concat(y₀, y₁, …)

use super::builder::Builder;
use super::node::Node;
use sardonyx_dialects::sdx::{Op, Value};
use sardonyx_runtime::{Dim, Result};

/// Steps up to which a recurrence is unrolled: the programs of longer ones would grow beyond what a kernel per step is
/// worth.
pub const STEPS_MAX: i64 = 64;

/// One step: the elements of the sequences, then the states, to the new states and what the step puts out.
pub type Step<'a> = dyn FnMut(&mut Builder, &[Value], &[Value]) -> Result<(Vec<Value>, Vec<Value>)> + 'a;

/// Carries `states` over axis 0 of the sequences, from the last element down where `reverse` says so. Gives the last
/// states, and each output of all steps along a new axis 0, in the sequences' order.
pub fn recur(
    b: &mut Builder,
    node: &Node,
    sequences: &[Value],
    states: Vec<Value>,
    reverse: bool,
    step: &mut Step,
) -> Result<(Vec<Value>, Vec<Value>)> {
    let first = *sequences.first().ok_or_else(|| node.error("E0103", "has no sequence"))?;
    for &other in sequences {
        let (l, r) = (b.dims(first)[0].clone(), b.dims(other)[0].clone());
        b.unify(&l, &r)?;
    }
    let steps = b.dims(first)[0].clone();
    let n = match steps.as_const() {
        Some(n @ 1..=STEPS_MAX) => n,
        Some(0) => return Err(node.error("E0201", "a sequence of no steps has no last state")),
        Some(_) | None => return Err(too_long(node, &steps)),
    };
    let order: Vec<i64> = if reverse { (0..n).rev().collect() } else { (0..n).collect() };
    let mut states = states;
    let mut pieces: Vec<(i64, Vec<Value>)> = vec![];
    for t in order {
        let elements = sequences.iter().map(|&x| element(b, x, t)).collect::<Result<Vec<_>>>()?;
        let (next, outputs) = step(b, &elements, &states)?;
        states = next;
        pieces.push((t, outputs));
    }
    pieces.sort_by_key(|(t, _)| *t);
    let count = pieces.first().map_or(0, |(_, outputs)| outputs.len());
    let stack = |i: usize| {
        let mut rows = vec![];
        for (_, outputs) in &pieces {
            let mut dims = b.dims(outputs[i]);
            dims.insert(0, Dim::constant(1));
            rows.push(b.reshape(outputs[i], &dims)?);
        }
        concat(b, 0, &rows)
    };
    let stacked = (0..count).map(stack).collect::<Result<_>>()?;
    Ok((states, stacked))
}

fn too_long(node: &Node, steps: &Dim) -> Box<sardonyx_runtime::Error> {
    let message = format!("a recurrence of {steps} steps is not supported, only one of 1 to {STEPS_MAX}");
    node.error("E0203", message).help("fix the sequence's length with --dim, or export the model with one")
}

/// x[t, ..]
pub fn element(b: &mut Builder, x: Value, t: i64) -> Result<Value> {
    let one = b.slice_axis(x, 0, Dim::constant(t), 1, Dim::constant(1))?;
    let dims = b.dims(one);
    b.reshape(one, &dims[1..])
}

pub fn concat(b: &mut Builder, axis: usize, parts: &[Value]) -> Result<Value> {
    match parts {
        [one] => Ok(*one),
        many => b.add(Op::Concat { axis }, many),
    }
}
