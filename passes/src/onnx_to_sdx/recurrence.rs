//! s₀, x[0..n]  =>  s₁, y₀ = step(s₀, x[0]); s₂, y₁ = step(s₁, x[1]); …; y = stack(y₀, y₁, …)

use super::builder::Builder;
use super::control::reversed;
use super::node::Node;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::sdx::Value;

/// Builds one step. Takes the elements of the sequences, the states and the captured values, all as values of the
/// function that the step is built into; returns the new states and the outputs of the step.
pub type Step<'a> = dyn FnMut(&mut Builder, &[Value], &[Value], &[Value]) -> Result<(Vec<Value>, Vec<Value>)> + 'a;

/// The operands of a recurrence.
pub struct Recurrence<'a> {
    /// Each step takes the next element of each sequence along its axis 0.
    pub sequences: &'a [Value],
    pub states: &'a [Value],
    pub captured: &'a [Value],
    /// Whether the steps go from the last element to the first.
    pub reverse: bool,
}

/// Returns the last states and the outputs. Each output has the results of all steps along a new axis 0, in the order
/// of the sequences' elements.
pub fn recur(b: &mut Builder, node: &Node, r: &Recurrence, step: &mut Step) -> Result<(Vec<Value>, Vec<Value>)> {
    let first = *r.sequences.first().ok_or_else(|| node.error("E0103", "has no sequence"))?;
    let mut scanned = vec![];
    for &x in r.sequences {
        let (l, own) = (b.dims(first)[0].clone(), b.dims(x)[0].clone());
        b.unify(&l, &own)?;
        scanned.push((if r.reverse { reversed(b, x, 0)? } else { x }, 0));
    }
    let steps = b.dims(first)[0].clone();
    let (states, mut outputs) = b.scan(&steps, r.states, &scanned, r.captured, &mut |b, turn| {
        step(b, turn.slices, turn.carried, turn.captured)
    })?;
    if r.reverse {
        for y in &mut outputs {
            *y = reversed(b, *y, 0)?;
        }
    }
    Ok((states, outputs))
}

/// x[t, ..]
pub fn element(b: &mut Builder, x: Value, t: i64) -> Result<Value> {
    if b.rank(x) == 0 {
        return Err(b.error("E0201", format!("{} has no elements to choose from", b.ty(x))));
    }
    let one = b.slice_axis(x, 0, Dim::constant(t), 1, Dim::constant(1))?;
    let dims = b.dims(one);
    b.reshape(one, &dims[1..])
}
