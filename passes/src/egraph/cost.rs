//! node  =>  picoseconds: bytes moved and operations, on a device that is described by a few rates
//!
//! The model looks at one node, before fusion. What fusion will join is counted as what it costs within a kernel:
//!
//! * contractions, reductions, lookups, concatenations read and write memory, and are a launch each;
//! * elementwise functions ride along with those: their operations count, and a fraction of the bytes that they write; of
//!   inputs, parameters and caches alone they are a launch of their own, and so are those of a part of a value;
//! * a scale of a contraction is free: it is applied where the result is written;
//! * transposes read and write with the same fraction; repetitions are index arithmetic, and so are slices where the
//!   device's kernels read them in place; reshapes are little more;
//! * parameters one behind the other cost nothing: they are put together when the artifact is written;
//! * what else is computed of parameters alone costs nothing where weights are prepared when the model is compiled. Elsewhere it
//!   would be computed in every call, and no saving is worth that.

use super::expr::Site;
use super::merging::is_param;
use super::table::names;
use crate::usual::USUAL;
use sardonyx_base::Dim;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType};
use sardonyx_kernels::Target;

/// What the cost of a node needs to know of a device, and of what is done behind the e-graph.
#[derive(Clone, Debug)]
pub struct Rates {
    pub bytes_per_s: f64,
    /// Multiplications and additions of contractions.
    pub contract_ops_per_s: f64,
    /// Additions, one element at a time; other functions are multiples of one.
    pub map_ops_per_s: f64,
    pub launch_ns: f64,
    /// Contractions read a part of a value where it lies.
    pub slices_in_place: bool,
    /// Parameters are put together when the artifact is written.
    pub joins_weights: bool,
    /// Expressions over parameters are evaluated when the model is compiled.
    pub prepares_weights: bool,
}

/// Beside the register blocks of a contraction, code reaches this part of what vectors can do.
const ELEMENTWISE_SHARE: f64 = 0.25;

impl Rates {
    pub fn for_target(target: Target) -> Rates {
        let rates = target.rates();
        Rates {
            bytes_per_s: rates.bytes_per_s,
            contract_ops_per_s: rates.contract_ops_per_s,
            map_ops_per_s: rates.vector_ops_per_s * ELEMENTWISE_SHARE,
            launch_ns: rates.launch_s * 1e9,
            slices_in_place: true,
            joins_weights: true,
            prepares_weights: true,
        }
    }
}

/// A second: more than any kernel, and little enough to be added up.
const UNPREPARED: u64 = 1_000_000_000_000;

/// Of the bytes of a value that a fusion keeps out of memory, the share that is counted still: not all of it succeeds.
const FUSED: f64 = 0.125;

impl Rates {
    pub fn picoseconds(&self, s: &Site, extent: &dyn Fn(&str) -> i64) -> u64 {
        // Of two graphs that cost the same, the one with fewer nodes.
        let one = 1;
        if s.is_constant(s.class) && (self.prepares_weights || s.splat(s.class).is_some()) {
            return one;
        }
        if self.joins_weights && matches!(s.op(), Op::Concat { .. }) && s.node.args.iter().all(|a| is_param(s, *a)) {
            return one;
        }
        let computed = matches!(s.op(), Op::Map(_) | Op::Contract(_) | Op::Concat { .. } | Op::Gather { .. });
        if s.is_constant(s.class) && computed {
            return UNPREPARED;
        }
        let elements = |t: &TensorType| t.elements().eval(&|n| Some(extent(n))).unwrap_or(i64::MAX).max(0) as f64;
        let bytes = |t: &TensorType| elements(t) * t.dtype.bytes() as f64;
        let written = bytes(s.ty());
        let read: f64 = s.node.args.iter().map(|a| bytes(s.ty_of(once(s, *a)))).sum();
        let memory = |b: f64| b / self.bytes_per_s;
        let launch = self.launch_ns * 1e-9;
        let seconds = match s.op() {
            Op::Input { .. } | Op::Param { .. } | Op::Const(_) | Op::Dims(_) | Op::Iota { .. } => 0.0,
            // Nothing stands for it.
            Op::Bind { .. } | Op::Place(_) | Op::Host(_) => 0.0,
            Op::Reshape if is_view(s) => launch * VIEW,
            Op::Reshape | Op::Broadcast { .. } => 0.0,
            // Weights are laid out for their kernels from any part of a parameter.
            Op::Slice { .. } if self.slices_in_place || s.is_constant(s.class) => 0.0,
            // Read in place by a map, a copy before a contraction.
            Op::Slice { .. } => memory(written),
            // Its readers look into the operand.
            Op::Window(_) => 0.0,
            Op::Transpose { .. } => memory((read + written) * FUSED),
            Op::Convert(_) => elements(s.ty()) / self.map_ops_per_s + memory(written * FUSED),
            // A contraction's result is scaled as it is written.
            Op::Map(ScalarFn::Mul) if scales_product(s) => 0.0,
            Op::Map(f) => {
                let part = s.node.args.iter().any(|a| is_part(s, *a, MOTIONS_MAX));
                let rides = !part && s.node.args.iter().any(|a| !lies_in_memory(s, *a, MOTIONS_MAX));
                let alone = if rides { memory(written * FUSED) } else { launch + memory(read + written) };
                elements(s.ty()) * weight(*f) / self.map_ops_per_s + alone
            }
            Op::Reduce { .. } => {
                launch + elements(s.ty_of(s.arg(0))) / self.map_ops_per_s + memory(read * FUSED + written)
            }
            Op::Contract(spec) => {
                let sum: Dim = s
                    .dims_of(s.arg(0))
                    .iter()
                    .zip(&spec.left)
                    .filter(|(_, c)| !spec.result.contains(c))
                    .fold(Dim::constant(1), |p, (d, _)| p * d.clone());
                let sum = sum.eval(&|n| Some(extent(n))).unwrap_or(i64::MAX) as f64;
                // Weights are packed for one summed and one free dimension; others are read as they lie.
                let odd = if spec.summed().len() > 1 || spec.right.len() > 4 { 1.3 } else { 1.0 };
                launch + odd * (2.0 * elements(s.ty()) * sum / self.contract_ops_per_s + memory(read + written))
            }
            Op::Gather { .. } | Op::Pad { .. } | Op::Concat { .. } | Op::Append { .. } => {
                launch + memory(2.0 * written)
            }
        };
        one + (seconds * 1e12).min(1e18) as u64
    }
}

/// Fusion does not look through a view: of a launch, the share that it may cost.
const VIEW: f64 = 0.05;

/// Dimensions are put together or taken apart, and the memory stays. Repeated ones are read where they stand once.
fn is_view(s: &Site) -> bool {
    let repeats = |op: &Op| matches!(op, Op::Broadcast { .. }).then_some(());
    let long = |dims: &[Dim]| dims.iter().filter(|d| !d.is_const(1)).cloned().collect::<Vec<_>>();
    !s.is_constant(s.class)
        && long(s.dims_of(s.arg(0))) != long(&s.ty().dims)
        && s.find(s.arg(0), repeats).next().is_none()
}

/// What is read of a value that only repeats another: that one.
fn once(s: &Site, id: egg::Id) -> egg::Id {
    let repeats = |op: &Op| matches!(op, Op::Broadcast { .. }).then_some(());
    let grouped = |op: &Op| (*op == Op::Reshape).then_some(());
    let source = |id| s.find(id, repeats).map(|(_, n)| n.args[0]).next();
    source(id).or_else(|| s.find(id, grouped).find_map(|(_, n)| source(n.args[0]))).unwrap_or(id)
}

fn scales_product(s: &Site) -> bool {
    let product = |op: &Op| matches!(op, Op::Contract(_)).then_some(());
    let by = |i: usize, j: usize| s.splat(s.arg(i)).is_some() && s.find(s.arg(j), product).next().is_some();
    let parts = s.node.args.iter().any(|a| is_part(s, *a, MOTIONS_MAX));
    !parts && (by(0, 1) || by(1, 0))
}

/// Motions that are looked through to what is moved.
const MOTIONS_MAX: usize = 4;

/// Nothing computes the value just before: an input, a parameter, a cache, or one of these moved. A map of such values
/// alone has no kernel to ride along with.
fn lies_in_memory(s: &Site, id: egg::Id, depth: usize) -> bool {
    if s.splat(id).is_some() {
        return true;
    }
    s.nodes(id).iter().all(|n| match s.op_of(n) {
        Op::Input { .. } | Op::Param { .. } | Op::Append { .. } | Op::Const(_) => true,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast { .. } => {
            depth > 0 && !s.same(n.args[0], id) && lies_in_memory(s, n.args[0], depth - 1)
        }
        Op::Dims(_) | Op::Map(_) | Op::Convert(_) | Op::Reduce { .. } | Op::Contract(_) | Op::Gather { .. } => false,
        Op::Window(_) | Op::Slice { .. } | Op::Pad { .. } | Op::Concat { .. } | Op::Iota { .. } => false,
        Op::Bind { .. } | Op::Place(_) | Op::Host(_) => false,
    })
}

/// A part of a value that is computed as a whole, for several readers: what is computed of the part is no epilogue.
fn is_part(s: &Site, id: egg::Id, depth: usize) -> bool {
    s.nodes(id).iter().any(|n| match s.op_of(n) {
        Op::Slice { .. } => !s.is_constant(id),
        Op::Reshape | Op::Transpose { .. } => depth > 0 && !s.same(n.args[0], id) && is_part(s, n.args[0], depth - 1),
        Op::Input { .. } | Op::Param { .. } | Op::Const(_) | Op::Dims(_) | Op::Map(_) | Op::Convert(_) => false,
        Op::Reduce { .. } | Op::Contract(_) | Op::Gather { .. } | Op::Pad { .. } | Op::Concat { .. } => false,
        Op::Window(_)
        | Op::Append { .. }
        | Op::Broadcast { .. }
        | Op::Iota { .. }
        | Op::Bind { .. }
        | Op::Place(_)
        | Op::Host(_) => false,
    })
}

/// In additions.
fn weight(f: ScalarFn) -> f64 {
    match f {
        ScalarFn::Exp | ScalarFn::Log | ScalarFn::Sin | ScalarFn::Cos => 12.0,
        ScalarFn::Tanh | ScalarFn::Erf | ScalarFn::Atan => 16.0,
        ScalarFn::Pow | ScalarFn::Rem => 40.0,
        ScalarFn::Div | ScalarFn::Sqrt => 4.0,
        ScalarFn::Abs | ScalarFn::Add | ScalarFn::And | ScalarFn::Ceil | ScalarFn::Eq | ScalarFn::Floor => 1.0,
        ScalarFn::IsNan | ScalarFn::Le | ScalarFn::Lt | ScalarFn::Max | ScalarFn::Min | ScalarFn::Mul => 1.0,
        ScalarFn::Neg | ScalarFn::Not | ScalarFn::Or | ScalarFn::Round | ScalarFn::Select | ScalarFn::Sign => 1.0,
        ScalarFn::Sub | ScalarFn::Xor => 1.0,
        ScalarFn::BitAnd | ScalarFn::BitOr | ScalarFn::BitXor | ScalarFn::Shl | ScalarFn::Shr => 1.0,
    }
}

/// A symbol's value when costs are compared: within its range.
pub fn nominal(lo: i64, hi: Option<i64>) -> i64 {
    USUAL.other.clamp(lo, hi.unwrap_or(i64::MAX).max(lo))
}

/// What a node is called where two cost the same: the order must not follow from how the graph was written.
pub fn spelling(op: &Op) -> String {
    format!("{} {op:?}", names(op).last().unwrap_or(&""))
}
