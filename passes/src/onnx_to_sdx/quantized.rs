//! x · w  =>  contract, or quantise x as it comes, an exact product of integers, and its scales

use super::builder::Builder;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::Value;

/// The second operand of a product with rows of some width.
#[derive(Clone, Copy)]
pub enum Weights {
    /// w[n,k]: one row per result.
    Rows(Value),
    /// w[k,n] in 8 bits, a scale and a zero point, each of one number or of n.
    Quantized { values: Value, scale: Value, zero: Value },
}

impl Weights {
    /// Number of results, n.
    pub fn width(&self, b: &Builder) -> Dim {
        match self {
            Weights::Rows(w) => b.dims(*w)[0].clone(),
            Weights::Quantized { values, .. } => b.dims(*values)[1].clone(),
        }
    }

    /// Length of what is summed over, k.
    pub fn depth(&self, b: &Builder) -> Dim {
        match self {
            Weights::Rows(w) => b.dims(*w)[1].clone(),
            Weights::Quantized { values, .. } => b.dims(*values)[0].clone(),
        }
    }

    pub fn values(&self) -> Vec<Value> {
        match *self {
            Weights::Rows(w) => vec![w],
            Weights::Quantized { values, scale, zero } => vec![values, scale, zero],
        }
    }

    pub fn map(&self, f: &mut dyn FnMut(Value) -> Value) -> Weights {
        match *self {
            Weights::Rows(w) => Weights::Rows(f(w)),
            Weights::Quantized { values, scale, zero } => {
                let (values, scale, zero) = (f(values), f(scale), f(zero));
                Weights::Quantized { values, scale, zero }
            }
        }
    }

    /// The part that computes gate `i`, of as many results as there are states.
    pub fn gate(&self, b: &mut Builder, i: i64) -> Result<Weights> {
        let hidden = self.depth(b);
        let start = hidden.clone() * Dim::constant(i);
        let mut cut = |v: Value, axis: usize| match b.rank(v) > axis && !b.dims(v)[axis].is_const(1) {
            true => b.slice_axis(v, axis, start.clone(), 1, hidden.clone()),
            false => Ok(v),
        };
        Ok(match *self {
            Weights::Rows(w) => Weights::Rows(cut(w, 0)?),
            Weights::Quantized { values, scale, zero } => {
                Weights::Quantized { values: cut(values, 1)?, scale: cut(scale, 0)?, zero: cut(zero, 0)? }
            }
        })
    }
}

/// x[..,k] · w → [..,n]
pub fn dequantized_product(b: &mut Builder, x: Value, w: &Weights) -> Result<Value> {
    let lead = &"abc"[..b.rank(x).saturating_sub(1).min(3)];
    match *w {
        Weights::Rows(w) => b.contract(&format!("{lead}k,nk->{lead}n"), x, w),
        Weights::Quantized { values, scale, zero } => {
            let (left, left_scale) = quantized(b, x)?;
            let right = b.convert(values, DType::I32)?;
            let zero = b.convert(zero, DType::I32)?;
            let right = b.map2(ScalarFn::Sub, right, zero)?;
            let product = b.contract(&format!("{lead}k,kn->{lead}n"), left, right)?;
            let product = b.convert(product, b.dtype(x))?;
            let scales = b.map2(ScalarFn::Mul, left_scale, scale)?;
            b.map2(ScalarFn::Mul, product, scales)
        }
    }
}

/// x ≈ scale · q, where q in -255 to 255 is eight bits less their zero point. The range holds 0, as DynamicQuantizeLinear
/// has it. A sequence has one scale; of the states each row has its own, which does not depend on the others of a batch.
fn quantized(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    let rank = b.rank(x);
    let axes: Vec<usize> = if rank == 2 { vec![1] } else { (0..rank).collect() };
    let lo = b.reduce(ReduceFn::Min, x, &axes, true)?;
    let lo = b.map_const(ScalarFn::Min, lo, 0.0)?;
    let hi = b.reduce(ReduceFn::Max, x, &axes, true)?;
    let hi = b.map_const(ScalarFn::Max, hi, 0.0)?;
    let span = b.map2(ScalarFn::Sub, hi, lo)?;
    let scale = b.map_const(ScalarFn::Div, span, 255.0)?;
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    let none = b.map2(ScalarFn::Eq, span, zero)?;
    let one = b.splat(b.dtype(x), 1.0, &[])?;
    let scale = b.select(none, one, scale)?;
    let offset = b.map2(ScalarFn::Div, lo, scale)?;
    let offset = b.map1(ScalarFn::Neg, offset)?;
    let offset = b.map1(ScalarFn::Round, offset)?;
    let steps = b.map2(ScalarFn::Div, x, scale)?;
    let steps = b.map1(ScalarFn::Round, steps)?;
    let shifted = b.map2(ScalarFn::Add, steps, offset)?;
    let shifted = b.map_const(ScalarFn::Max, shifted, 0.0)?;
    let shifted = b.map_const(ScalarFn::Min, shifted, 255.0)?;
    let q = b.map2(ScalarFn::Sub, shifted, offset)?;
    Ok((b.convert(q, DType::I32)?, scale))
}
