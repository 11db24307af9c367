//! x, an activation function f that an attribute of a recurrent or fused operator names  =>  f(x) as sdx maps

use super::builder::Builder;
use super::elementwise::sigmoid_of;
use super::node::Node;
use sardonyx_base::Result;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// alpha · x + beta
    Affine,
    /// x where x >= 0, else alpha · (exp(x) - 1)
    Elu,
    /// alpha · x + beta, clamped to 0 to 1
    HardSigmoid,
    /// x where x >= 0, else alpha · x
    LeakyRelu,
    Relu,
    /// alpha · tanh(beta · x)
    ScaledTanh,
    Sigmoid,
    /// log(1 + exp(x))
    Softplus,
    /// x / (1 + |x|)
    Softsign,
    Tanh,
    /// x where x >= alpha, else 0
    ThresholdedRelu,
}

/// Name in lower case, kind, and the defaults of alpha and beta; `None` for a parameter that the function lacks.
type Row = (&'static str, Kind, Option<f64>, Option<f64>);

/// All functions, sorted by name.
static FUNCTIONS: &[Row] = &[
    ("affine", Kind::Affine, Some(1.0), Some(0.0)),
    ("elu", Kind::Elu, Some(1.0), None),
    ("hardsigmoid", Kind::HardSigmoid, Some(0.2), Some(0.5)),
    ("leakyrelu", Kind::LeakyRelu, Some(0.01), None),
    ("relu", Kind::Relu, None, None),
    ("scaledtanh", Kind::ScaledTanh, Some(1.0), Some(1.0)),
    ("sigmoid", Kind::Sigmoid, None, None),
    ("softplus", Kind::Softplus, None, None),
    ("softsign", Kind::Softsign, None, None),
    ("tanh", Kind::Tanh, None, None),
    ("thresholdedrelu", Kind::ThresholdedRelu, Some(1.0), None),
];

/// An activation function with its parameters; a parameter that the function lacks is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activation {
    kind: Kind,
    alpha: f64,
    beta: f64,
}

impl Activation {
    /// Looks up a function by its name, in any case. If the function has a parameter alpha or beta, takes its value
    /// from the iterator of that name, or the default at the iterator's end; a function without the parameter takes
    /// none, as ONNX requires. Errors: E0106 for an unknown name.
    pub fn next(
        node: &Node,
        name: &str,
        alpha: &mut dyn Iterator<Item = f64>,
        beta: &mut dyn Iterator<Item = f64>,
    ) -> Result<Activation> {
        let lower = name.to_ascii_lowercase();
        let row = FUNCTIONS.iter().find(|row| row.0 == lower);
        let &(_, kind, a, b) = row.ok_or_else(|| {
            let names: Vec<&str> = FUNCTIONS.iter().map(|row| row.0).collect();
            let error = node.error("E0106", format!("has no activation `{name}`"));
            error.help(format!("the activations are {}", names.join(", ")))
        })?;
        let alpha = a.map_or(0.0, |default| alpha.next().unwrap_or(default));
        let beta = b.map_or(0.0, |default| beta.next().unwrap_or(default));
        Ok(Activation { kind, alpha, beta })
    }

    /// Builds f(x).
    pub fn apply(&self, b: &mut Builder, x: Value) -> Result<Value> {
        let Activation { kind, alpha, beta } = *self;
        match kind {
            Kind::Affine => {
                let scaled = b.map_const(ScalarFn::Mul, x, alpha)?;
                b.map_const(ScalarFn::Add, scaled, beta)
            }
            Kind::Elu => {
                let power = b.map1(ScalarFn::Exp, x)?;
                let below = b.map_const(ScalarFn::Sub, power, 1.0)?;
                let below = b.map_const(ScalarFn::Mul, below, alpha)?;
                select_from(b, x, 0.0, x, below)
            }
            Kind::HardSigmoid => {
                let scaled = b.map_const(ScalarFn::Mul, x, alpha)?;
                let line = b.map_const(ScalarFn::Add, scaled, beta)?;
                let line = b.map_const(ScalarFn::Max, line, 0.0)?;
                b.map_const(ScalarFn::Min, line, 1.0)
            }
            Kind::LeakyRelu => {
                let below = b.map_const(ScalarFn::Mul, x, alpha)?;
                select_from(b, x, 0.0, x, below)
            }
            Kind::Relu => b.map_const(ScalarFn::Max, x, 0.0),
            Kind::ScaledTanh => {
                let inner = b.map_const(ScalarFn::Mul, x, beta)?;
                let inner = b.map1(ScalarFn::Tanh, inner)?;
                b.map_const(ScalarFn::Mul, inner, alpha)
            }
            Kind::Sigmoid => sigmoid_of(b, x),
            Kind::Softplus => super::activation::softplus_of(b, x),
            Kind::Softsign => {
                let size = b.map1(ScalarFn::Abs, x)?;
                let sum = b.map_const(ScalarFn::Add, size, 1.0)?;
                b.map2(ScalarFn::Div, x, sum)
            }
            Kind::Tanh => b.map1(ScalarFn::Tanh, x),
            Kind::ThresholdedRelu => {
                let zero = b.splat(b.dtype(x), 0.0, &b.dims(x))?;
                select_from(b, x, alpha, x, zero)
            }
        }
    }
}

/// Selects `above` where x >= threshold or x is NaN, else `below`.
fn select_from(b: &mut Builder, x: Value, threshold: f64, above: Value, below: Value) -> Result<Value> {
    let limit = b.splat(b.dtype(x), threshold, &b.dims(x))?;
    let under = b.map2(ScalarFn::Lt, x, limit)?;
    b.select(under, below, above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        assert!(FUNCTIONS.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
