//! x · w  =>  contract or, if w is quantised, x quantised at run time, an exact integer product, and its scales
//!
//! If q are the codes of x and z is their zero point, Σ (q - z)·w is Σ q·w - z·Σ w: codes are multiplied as they are,
//! and the sum of w depends on the weights alone.

use super::builder::Builder;
use super::recurrence::element;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::Value;

/// The second operand of a product whose first operand has rows of length k.
#[derive(Clone, Copy)]
pub enum Weights {
    /// w[n,k]: one row per result.
    Rows(Value),
    /// w[k,n] in 8 bits, a scale and a zero point (`None` if it is 0); scale and zero point have one element or n.
    Quantized { values: Value, scale: Value, zero: Option<Value> },
}

impl Weights {
    /// Number of results, n.
    pub fn width(&self, b: &Builder) -> Dim {
        match self {
            Weights::Rows(w) => b.dims(*w)[0].clone(),
            Weights::Quantized { values, .. } => b.dims(*values)[1].clone(),
        }
    }

    /// Length of the reduction, k.
    pub fn depth(&self, b: &Builder) -> Dim {
        match self {
            Weights::Rows(w) => b.dims(*w)[1].clone(),
            Weights::Quantized { values, .. } => b.dims(*values)[0].clone(),
        }
    }

    pub fn values(&self) -> Vec<Value> {
        match *self {
            Weights::Rows(w) => vec![w],
            Weights::Quantized { values, scale, zero } => [values, scale].into_iter().chain(zero).collect(),
        }
    }

    pub fn map(&self, f: &mut dyn FnMut(Value) -> Value) -> Weights {
        match *self {
            Weights::Rows(w) => Weights::Rows(f(w)),
            Weights::Quantized { values, scale, zero } => {
                let (values, scale) = (f(values), f(scale));
                Weights::Quantized { values, scale, zero: zero.map(f) }
            }
        }
    }

    /// Returns the weights of direction `d`; the first axis of `self` numbers the directions.
    pub fn element(&self, b: &mut Builder, d: i64) -> Result<Weights> {
        Ok(match *self {
            Weights::Rows(w) => Weights::Rows(element(b, w, d)?),
            Weights::Quantized { values, scale, zero } => {
                let (values, scale) = (element(b, values, d)?, element(b, scale, d)?);
                Weights::Quantized { values, scale, zero: zero.map(|z| element(b, z, d)).transpose()? }
            }
        })
    }

    /// Returns the slice for gates `from..from + n` of the weights of a recurrent state: each gate has k results, as
    /// many as the state has elements.
    pub fn gates(&self, b: &mut Builder, from: i64, n: i64) -> Result<Weights> {
        let hidden = self.depth(b);
        let (start, width) = (hidden.clone() * Dim::constant(from), hidden * Dim::constant(n));
        let mut cut = |v: Value, axis: usize| match b.rank(v) > axis && !b.dims(v)[axis].is_const(1) {
            true => b.slice_axis(v, axis, start.clone(), 1, width.clone()),
            false => Ok(v),
        };
        Ok(match *self {
            Weights::Rows(w) => Weights::Rows(cut(w, 0)?),
            Weights::Quantized { values, scale, zero } => {
                let (values, scale) = (cut(values, 1)?, cut(scale, 0)?);
                Weights::Quantized { values, scale, zero: zero.map(|z| cut(z, 0)).transpose()? }
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
            let Codes { codes, scale: left_scale, zero: left_zero } = quantized(b, x)?;
            let (left, mut right) = (b.convert(codes, DType::I32)?, b.convert(values, DType::I32)?);
            if let Some(zero) = zero {
                let zero = b.convert(zero, DType::I32)?;
                right = b.map2(ScalarFn::Sub, right, zero)?;
            }
            let product = b.contract(&format!("{lead}k,kn->{lead}n"), left, right)?;
            let columns = b.reduce(ReduceFn::Add, right, &[0], false)?;
            let shift = b.map2(ScalarFn::Mul, left_zero, columns)?;
            let product = b.map2(ScalarFn::Sub, product, shift)?;
            let product = b.convert(product, b.dtype(x))?;
            let scales = b.map2(ScalarFn::Mul, left_scale, scale)?;
            b.map2(ScalarFn::Mul, product, scales)
        }
    }
}

/// x ≈ scale · (codes - zero)
struct Codes {
    /// u8
    codes: Value,
    scale: Value,
    /// i32, from 0 to 255
    zero: Value,
}

/// Quantises x over a range that contains 0, as DynamicQuantizeLinear does. A tensor of rank 2, such as the states of a
/// batch, has one scale per row, which does not depend on other rows. Any other tensor, such as a sequence, has one
/// scale.
fn quantized(b: &mut Builder, x: Value) -> Result<Codes> {
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
    Ok(Codes { codes: b.convert(shifted, DType::U8)?, scale, zero: b.convert(offset, DType::I32)? })
}
