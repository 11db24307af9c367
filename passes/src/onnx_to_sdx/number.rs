//! scale = size / extent, as a number where both are known at compile time, else as a value of rank 0
//!
//! Positions in a resized tensor are computed from scales in f64, because a different rounding could select another
//! element.

use super::builder::Builder;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

#[derive(Clone, Copy)]
pub enum Number {
    Known(f64),
    /// f64, of rank 0.
    Value(Value),
}

impl Number {
    pub fn of_dim(b: &mut Builder, d: &Dim) -> Result<Number> {
        if let Some(c) = d.as_const() {
            return Ok(Number::Known(c as f64));
        }
        let v = b.dims_scalar(d.clone())?;
        Ok(Number::Value(b.convert(v, DType::F64)?))
    }

    /// Element `i` of a vector.
    pub fn element(b: &mut Builder, vector: Value, i: i64) -> Result<Number> {
        if let Some(known) = usize::try_from(i).ok().and_then(|i| known_element(b, vector, i)) {
            return Ok(Number::Known(known));
        }
        if let Some(known) = b.contents(vector).and_then(|c| c.get(i as usize)?.as_const()) {
            return Ok(Number::Known(known as f64));
        }
        let one = b.slice_axis(vector, 0, Dim::constant(i), 1, Dim::constant(1))?;
        let one = b.reshape(one, &[])?;
        Ok(Number::Value(b.convert(one, DType::F64)?))
    }

    pub fn known(self) -> Option<f64> {
        match self {
            Number::Known(v) => Some(v),
            Number::Value(_) => None,
        }
    }

    pub fn value(self, b: &mut Builder) -> Result<Value> {
        match self {
            Number::Known(v) => b.constant(Tensor::scalar(v)),
            Number::Value(v) => Ok(v),
        }
    }

    fn binary(self, b: &mut Builder, f: ScalarFn, of: fn(f64, f64) -> f64, other: Number) -> Result<Number> {
        if let (Number::Known(x), Number::Known(y)) = (self, other) {
            return Ok(Number::Known(of(x, y)));
        }
        let (x, y) = (self.value(b)?, other.value(b)?);
        Ok(Number::Value(b.map2(f, x, y)?))
    }

    pub fn add(self, b: &mut Builder, other: Number) -> Result<Number> {
        self.binary(b, ScalarFn::Add, |x, y| x + y, other)
    }

    pub fn sub(self, b: &mut Builder, other: Number) -> Result<Number> {
        self.binary(b, ScalarFn::Sub, |x, y| x - y, other)
    }

    pub fn mul(self, b: &mut Builder, other: Number) -> Result<Number> {
        self.binary(b, ScalarFn::Mul, |x, y| x * y, other)
    }

    pub fn div(self, b: &mut Builder, other: Number) -> Result<Number> {
        self.binary(b, ScalarFn::Div, |x, y| x / y, other)
    }

    pub fn min(self, b: &mut Builder, other: Number) -> Result<Number> {
        self.binary(b, ScalarFn::Min, f64::min, other)
    }

    pub fn max(self, b: &mut Builder, other: Number) -> Result<Number> {
        self.binary(b, ScalarFn::Max, f64::max, other)
    }

    pub fn floor(self, b: &mut Builder) -> Result<Number> {
        Ok(match self {
            Number::Known(v) => Number::Known(v.floor()),
            Number::Value(v) => Number::Value(b.map1(ScalarFn::Floor, v)?),
        })
    }

    /// Returns an integer as a dimension; a number that is unknown at compile time becomes a data-dependent symbol.
    pub fn dim(self, b: &mut Builder) -> Result<Dim> {
        match self {
            Number::Known(v) if v.abs() < 2f64.powi(53) => Ok(Dim::constant(v as i64)),
            Number::Known(v) => Err(b.error("E0202", format!("a dimension of {v} is too large"))),
            Number::Value(v) => {
                let v = b.convert(v, DType::I64)?;
                let v = b.reshape(v, &[Dim::constant(1)])?;
                Ok(b.read_dims(v)?.remove(0))
            }
        }
    }

    /// f(x, self) for each element of an f64 tensor.
    pub fn map(self, b: &mut Builder, f: ScalarFn, x: Value) -> Result<Value> {
        let own = self.value(b)?;
        b.map2(f, x, own)
    }
}

/// Returns an element of a constant, looking through conversions to a wider float type, reshapes and concatenations
/// along the first axis: tools that convert models to narrower types leave such chains.
fn known_element(b: &Builder, v: Value, i: usize) -> Option<f64> {
    let node = b.graph.node(v);
    match &node.op {
        Op::Const(t) => t.get_f64(i),
        Op::Convert(Conversion::Value) => {
            let (from, to) = (b.dtype(node.args[0]), node.ty.dtype);
            let is_exact =
                from.is_float() && to.is_float() && (to == DType::F32 && from.bits() < 32 || to == DType::F64);
            is_exact.then(|| known_element(b, node.args[0], i))?
        }
        Op::Reshape => known_element(b, node.args[0], i),
        Op::Concat { axis: 0 } => {
            let mut left = i;
            for &part in &node.args {
                let n = usize::try_from(b.ty(part).elements().as_const()?).ok()?;
                match left.checked_sub(n) {
                    None => return known_element(b, part, left),
                    Some(rest) => left = rest,
                }
            }
            None
        }
        _ => None,
    }
}

/// Returns ⌊n · scale⌋, computed in f64 if n is constant. Returns `None` if the scale is not positive and finite, if a
/// constant result is 2^53 or more, or if n is symbolic and the scale is no fraction m / 2^e with m < 2^53 and e <= 62.
pub fn scaled_extent(n: &Dim, scale: f64) -> Option<Dim> {
    if !(scale.is_finite() && scale > 0.0) {
        return None;
    }
    if let Some(n) = n.as_const() {
        let scaled = (n as f64 * scale).floor();
        return (scaled < 2f64.powi(53)).then(|| Dim::constant(scaled as i64));
    }
    let (mut numerator, mut exponent) = (scale, 0);
    while numerator.fract() != 0.0 && exponent < 62 {
        (numerator, exponent) = (numerator * 2.0, exponent + 1);
    }
    let exact = numerator.fract() == 0.0 && numerator < 2f64.powi(53);
    exact.then(|| (n.clone() * Dim::constant(numerator as i64)).floordiv(&Dim::constant(1 << exponent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_scaled_exactly() {
        let scaled = |n: &str, scale: f64| scaled_extent(&Dim::parse(n).unwrap(), scale).map(|d| d.to_string());
        assert_eq!(scaled("4", 0.6), Some("2".into()));
        assert_eq!(scaled("n", 2.0), Some("2*n".into()));
        assert_eq!(scaled("2*n", 0.5), Some("n".into()));
        assert_eq!(scaled("n", 0.75), Some(Dim::parse("(3*n) floordiv 4").unwrap().to_string()));
        assert_eq!(scaled("n", 0.0), None);
        assert_eq!(scaled("n", f64::NAN), None);
        assert_eq!(scaled("n", 1e300), None);
    }
}
