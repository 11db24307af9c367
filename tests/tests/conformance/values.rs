//! element type, dimensions  =>  random tensors; actual and expected outputs  =>  whether they are close enough

use super::case::Bound;
use sardonyx_base::{DType, Result, Tensor, minifloat, packed};
use sardonyx_dialects::interp;
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::sdx::{Graph, Op};

/// A linear congruential generator, which gives the same sequence on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// Returns a value between −2 and 2 with 53 random bits. Values that narrower types represent exactly would hide
    /// the rounding errors of these types.
    fn float(&mut self) -> f64 {
        let digits = (self.bits() << 22 | self.bits() >> 9) & ((1 << 53) - 1);
        digits as f64 / (1u64 << 51) as f64 - 2.0
    }
}

/// Returns a random tensor of floats between −2 and 2, of integers between −8 and 8, or of booleans.
pub fn tensor(r: &mut Random, dtype: DType, dims: Vec<usize>) -> Tensor {
    let n: usize = dims.iter().product();
    let floats: Vec<f64> = (0..n).map(|_| r.float()).collect();
    of_floats(dtype, dims, &floats)
}

pub fn indices(r: &mut Random, dims: Vec<usize>, limit: i64) -> Tensor {
    let n: usize = dims.iter().product();
    Tensor::from_vec(dims, (0..n).map(|_| r.below(limit.max(1) as u64) as i64).collect())
}

/// Returns the values converted to the element type. An integer is four times the value, truncated; unsigned types of
/// at least 8 bits take the magnitude. A boolean says whether the value is positive.
pub fn of_floats(dtype: DType, dims: Vec<usize>, values: &[f64]) -> Tensor {
    macro_rules! of {
        ($convert:expr) => {
            Tensor::from_vec(dims, values.iter().map(|v| $convert(*v)).collect())
        };
    }
    match dtype {
        DType::F64 => of!(|v| v),
        DType::F32 => of!(|v| v as f32),
        DType::F16 => of!(half::f16::from_f64),
        DType::BF16 => of!(half::bf16::from_f64),
        DType::Bool => of!(|v| v > 0.0),
        DType::I8 => of!(|v: f64| (4.0 * v) as i8),
        DType::U8 => of!(|v: f64| (4.0 * v).abs() as u8),
        DType::I16 => of!(|v: f64| (4.0 * v) as i16),
        DType::U16 => of!(|v: f64| (4.0 * v).abs() as u16),
        DType::I32 => of!(|v: f64| (4.0 * v) as i32),
        DType::U32 => of!(|v: f64| (4.0 * v).abs() as u32),
        DType::I64 => of!(|v: f64| (4.0 * v) as i64),
        DType::U64 => of!(|v: f64| (4.0 * v).abs() as u64),
        t if t.is_float() => {
            let code = |v: &f64| minifloat::encode(t, minifloat::round(t, *v)).unwrap_or(0) as u8;
            Tensor::new(t, dims, values.iter().map(code).collect::<Vec<u8>>().into()).expect("a byte to each")
        }
        t if t.is_int() => {
            let byte = |v: &f64| packed::held(t, (4.0 * v) as i8 as u8);
            Tensor::new(t, dims, values.iter().map(byte).collect::<Vec<u8>>().into()).expect("a byte to each")
        }
        other => panic!("no case has elements of type {other}"),
    }
}

/// Unit roundoff: half a unit in the last place of 1.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-53),
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F8E4M3FN => 2f64.powi(-4),
        _ => 2f64.powi(-24),
    }
}

pub type Tensors = Vec<(String, Tensor)>;

/// Expected outputs of one call, and the permitted distance of actual outputs from them.
pub struct Expected {
    pub outputs: Tensors,
    bound: Bound,
    /// Absolute bound under [`Bound::Sums`].
    absolute: f64,
}

impl Expected {
    /// Runs the interpreter. Compiled code may add in another order, and every operation rounds. So the absolute bound
    /// is 4 · u · m · (l + n), where u is the coarsest unit roundoff of a value in the graph, m the largest magnitude
    /// that occurs (at least 1), l the length of the longest reduction, and n the number of nodes. For a contraction, l
    /// is the size of its smaller operand.
    pub fn new(graph: &Graph, params: &dyn ParamValues, inputs: &[(String, Tensor)], bound: Bound) -> Result<Expected> {
        let (mut largest, mut longest, mut coarsest) = (1f64, 1usize, 2f64.powi(-53));
        let mut lengths = vec![];
        let outputs = interp::run_all(graph, params, inputs, &mut |v, t| {
            let node = graph.node(v);
            lengths.push(t.len());
            if t.dtype().is_float() {
                let finite = (0..t.len()).filter_map(|i| t.get_f64(i)).map(f64::abs).filter(|x| x.is_finite());
                largest = finite.fold(largest, f64::max);
                coarsest = f64::max(coarsest, unit(t.dtype()));
            }
            match &node.op {
                Op::Reduce { .. } => longest = longest.max(lengths[node.args[0].index()] / t.len().max(1)),
                Op::Contract(_) => {
                    let [x, y] = [0, 1].map(|i| lengths[node.args[i].index()]);
                    longest = longest.max(x.min(y));
                }
                _ => {}
            }
            Ok(())
        })?;
        let absolute = 4.0 * coarsest * largest * (longest + graph.nodes.len()) as f64;
        Ok(Expected { outputs, bound, absolute })
    }

    /// Returns an error that names the element that exceeds the bound the most.
    pub fn compare(&self, got: &[(String, Tensor)]) -> std::result::Result<(), String> {
        if self.outputs.len() != got.len() {
            return Err(format!("{} outputs, not {}", got.len(), self.outputs.len()));
        }
        for ((name, want), (other, got)) in self.outputs.iter().zip(got) {
            if name != other || want.dtype() != got.dtype() || want.dims() != got.dims() {
                return Err(format!("the output is {other} {got:?}, not {name} {want:?}"));
            }
            let excess = |i: usize| self.excess(want, got, i);
            let worst = (0..want.len()).map(|i| (excess(i), i)).filter(|(e, _)| *e > 0.0);
            let all: Vec<(f64, usize)> = worst.collect();
            if let Some((_, i)) = all.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0)) {
                let (w, g) = (want.get_f64(i), got.get_f64(i));
                let (n, of, bound) = (all.len(), want.len(), self.allowed(want.dtype(), w.unwrap_or(0.0)));
                return Err(format!("element {i} of {name} is {g:?}, not {w:?} within {bound:e}; {n} of {of} differ"));
            }
        }
        Ok(())
    }

    fn allowed(&self, dtype: DType, wanted: f64) -> f64 {
        match self.bound {
            Bound::Sums => self.absolute,
            Bound::Function { ulps, absolute } => {
                let f32_error = ulps * 2.0 * unit(DType::F32).min(unit(dtype)) * wanted.abs() + absolute;
                // Narrow types round the f32 result, and so may give a neighbouring value.
                let rounding = if dtype.bits() < 32 { 2.0 * unit(dtype) * wanted.abs() } else { 0.0 };
                let subnormal = match dtype {
                    DType::F16 => 2f64.powi(-24),
                    DType::F8E4M3FN => 2f64.powi(-9),
                    _ => 0.0,
                };
                let inexact = f32_error > 0.0;
                f32_error + if inexact { rounding + subnormal } else { 0.0 }
            }
        }
    }

    /// Returns the amount by which the error of an element exceeds the bound; it is positive only for a wrong element.
    /// Integers and infinities must be equal, and a NaN must be a NaN.
    fn excess(&self, want: &Tensor, got: &Tensor, i: usize) -> f64 {
        if !want.dtype().is_float() {
            return if want.get_i64(i) == got.get_i64(i) { 0.0 } else { f64::INFINITY };
        }
        let (Some(w), Some(g)) = (want.get_f64(i), got.get_f64(i)) else { return f64::INFINITY };
        match (w.is_nan() || g.is_nan(), w.is_finite() && g.is_finite()) {
            (true, _) => {
                if w.is_nan() && g.is_nan() {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            (false, true) => (w - g).abs() - self.allowed(want.dtype(), w),
            (false, false) => {
                if w == g {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
        }
    }
}
