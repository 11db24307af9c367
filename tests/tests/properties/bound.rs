//! a program, its inputs  =>  the interpreter's outputs, and the largest permitted error of compiled code, by
//! dialects/FLOATING_POINT.md

use sardonyx_base::{DType, Dim, Result, Tensor, minifloat};
use sardonyx_dialects::interp;
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType};

pub struct Expected {
    pub outputs: Vec<(String, Tensor)>,
    /// Permitted error in units in the last place of f32, or of f64 for results of type f64.
    ulps: f64,
    /// Permitted absolute error, in addition to `ulps`.
    absolute: f64,
    /// Permitted error in units in the last place of the element type itself, in addition to the others.
    own_ulps: f64,
    /// Whether the sign of a zero may differ from the interpreter's.
    any_zero: bool,
}

/// Returns the error bound of a function: units in the last place, and an absolute part.
fn of_function(f: ScalarFn) -> (f64, f64) {
    use ScalarFn::*;
    match f {
        Atan | Exp | Log | Tanh => (4.0, 0.0),
        Pow => (16.0, 0.0),
        Erf | Sin | Cos => (0.0, 2f64.powi(-22)),
        Abs | Add | And | BitAnd | BitOr | BitXor | Shl | Shr | Ceil | Div | Eq | Floor | IsNan | Le | Lt | Max
        | Min | Mul | Neg | Not | Or | Rem | Round | Select | Sign | Sqrt | Sub | Xor => (0.0, 0.0),
    }
}

/// (half a unit in the last place of 1, the smallest positive number, the largest number)
fn format(dtype: DType) -> (f64, f64, f64) {
    match dtype {
        DType::F64 => (2f64.powi(-53), f64::from_bits(1), f64::MAX),
        DType::F32 => (2f64.powi(-24), f32::from_bits(1).into(), f32::MAX.into()),
        t => {
            let format = minifloat::format(t).expect("a narrow float");
            let least = (1..16).map(|code| format.decode(code)).find(|x| *x > 0.0).expect("a number");
            let next = |x: f64| (1..=format.magnitude_mask()).map(|code| format.decode(code)).find(|y| *y > x);
            let unit = next(1.0).map_or(1.0, |x| x - 1.0) / 2.0;
            (unit, least, format.max())
        }
    }
}

impl Expected {
    pub fn new(graph: &Graph, params: &dyn ParamValues, inputs: &[(String, Tensor)]) -> Result<Expected> {
        let (mut ulps, mut absolute, mut own_ulps, mut any_zero) = (0f64, 0f64, 0f64, false);
        let constant = constants(graph);
        let has = |f: ScalarFn| graph.nodes.iter().any(|n| n.op == Op::Map(f));
        // −(a − b) may become b − a, whose zero has the other sign.
        let turned = has(ScalarFn::Sub) && has(ScalarFn::Neg);
        let mut values: Vec<Tensor> = vec![];
        let outputs = interp::run_all(graph, params, inputs, &mut |v, t| {
            values.push(t.clone());
            let node = graph.node(v);
            let operand = node.args.last().map(|a| graph.ty(*a).dtype);
            if !operand.is_some_and(DType::is_float) {
                return Ok(());
            }
            match &node.op {
                Op::Map(f) => {
                    let (more, wider) = of_function(*f);
                    (ulps, absolute) = (ulps.max(more), absolute.max(wider));
                    any_zero |= turned || matches!(f, ScalarFn::Max | ScalarFn::Min);
                    // Division by a constant may become multiplication by its rounded reciprocal.
                    if *f == ScalarFn::Div && constant[node.args[1].index()] {
                        own_ulps = 2.0;
                    }
                }
                Op::Reduce { .. } | Op::Contract(_) => {
                    any_zero = true;
                    let args: Vec<&Tensor> = node.args.iter().map(|a| &values[a.index()]).collect();
                    absolute += roundings(node, &args, t)?;
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(Expected { outputs, ulps, absolute, own_ulps, any_zero })
    }

    /// Returns an error that names the first element that is not close enough.
    pub fn compare(&self, got: &[(String, Tensor)]) -> std::result::Result<(), String> {
        if self.outputs.len() != got.len() {
            return Err(format!("{} outputs, not {}", got.len(), self.outputs.len()));
        }
        for ((name, want), (other, got)) in self.outputs.iter().zip(got) {
            if name != other || want.dtype() != got.dtype() || want.dims() != got.dims() {
                let text = |t: &Tensor| format!("{} {:?}", t.dtype(), t.dims());
                return Err(format!("the output is {other} {}, not {name} {}", text(got), text(want)));
            }
            if let Some(i) = (0..want.len()).find(|i| !self.near(want, got, *i)) {
                let at = |t: &Tensor| match t.dtype().is_float() {
                    true => format!("{:?}", t.get_f64(i)),
                    false => format!("{:?}", bytes(t, i)),
                };
                let dims = want.dims();
                return Err(format!("element {i} of {name} {dims:?} is {}, not {}", at(got), at(want)));
            }
        }
        Ok(())
    }

    fn near(&self, want: &Tensor, got: &Tensor, i: usize) -> bool {
        if !want.dtype().is_float() {
            return bytes(want, i) == bytes(got, i);
        }
        let (Some(w), Some(g)) = (want.get_f64(i), got.get_f64(i)) else { return false };
        if w.is_nan() || g.is_nan() {
            return w.is_nan() && g.is_nan();
        }
        if w == g {
            return w != 0.0 || self.any_zero || w.is_sign_negative() == g.is_sign_negative();
        }
        let (_, _, most) = format(want.dtype());
        let held = |x: f64| if x.is_infinite() { x.signum() * most } else { x };
        (held(w) - held(g)).abs() <= self.allowed(want.dtype(), held(w))
    }

    fn allowed(&self, dtype: DType, wanted: f64) -> f64 {
        let ((unit, least, _), (coarse, tiny, _)) = (format(dtype), format(DType::F32));
        let (step, smallest) = if dtype == DType::F64 { (unit, least) } else { (coarse, tiny) };
        let error = self.ulps * (2.0 * step * wanted.abs()).max(smallest) + self.absolute;
        let ulp = (2.0 * unit * wanted.abs()).max(least);
        // Narrow types round the f32 result, and so may give a neighbouring value.
        let beside = if error > 0.0 && dtype.bits() < 32 { 1.0 } else { 0.0 };
        error + (self.own_ulps + beside) * ulp
    }
}

/// Returns, for each value, whether it is computed from parameters and constants alone.
fn constants(graph: &Graph) -> Vec<bool> {
    let mut out: Vec<bool> = vec![];
    for node in &graph.nodes {
        let stored = matches!(node.op, Op::Param { .. } | Op::Const(_));
        out.push(stored || (!node.args.is_empty() && node.args.iter().all(|a| out[a.index()])));
    }
    out
}

fn bytes(t: &Tensor, i: usize) -> &[u8] {
    let n = t.dtype().bytes();
    &t.bytes()[i * n..(i + 1) * n]
}

/// Returns the bound 2 · (n + 1) · u · Σ|x| on the difference of two roundings of a sum. The factor 2 covers the errors
/// of both the interpreter and the compiled code, n is the size of the largest operand divided by the size of the
/// result, 1 is for the rounding of the result, u is the unit roundoff, and Σ|x| is the largest such sum among the
/// results. For a reduction by multiplication, Π|x| replaces Σ|x|; for a contraction, Σ|x · y| does. Maxima and minima
/// are exact.
fn roundings(node: &Node, args: &[&Tensor], result: &Tensor) -> Result<f64> {
    if matches!(node.op, Op::Reduce { f: ReduceFn::Max | ReduceFn::Min, .. }) {
        return Ok(0.0);
    }
    let absolute: Vec<Tensor> = args.iter().map(|t| magnitudes(t)).collect();
    let dims: Vec<Dim> = result.dims().iter().map(|n| Dim::constant(*n as i64)).collect();
    let sums = Node { ty: TensorType::new(DType::F64, dims), ..node.clone() };
    let sums = interp::evaluate(&sums, &absolute, &|_| None)?;
    let finite = (0..sums.len()).filter_map(|i| sums.get_f64(i)).filter(|x| x.is_finite());
    let n = args.iter().map(|t| t.len()).max().unwrap_or(0).div_ceil(result.len().max(1));
    let (unit, least, _) = format(if result.dtype() == DType::F64 { DType::F64 } else { DType::F32 });
    Ok(2.0 * (n + 1) as f64 * finite.fold(0.0, f64::max) * unit + least)
}

fn magnitudes(t: &Tensor) -> Tensor {
    let of = |i| t.get_f64(i).map_or(f64::NAN, f64::abs);
    Tensor::from_vec(t.dims().to_vec(), (0..t.len()).map(of).collect())
}
