//! node  =>  picoseconds, from the bytes moved and the operations, on a device described by a few rates
//!
//! The model looks at one node at a time, before fusion. A node that fusion should merge into another node's kernel is
//! charged what it adds to that kernel:
//!
//! * contractions, reductions, gathers and concatenations take a launch each, and read and write memory; reductions are
//!   charged only a fraction of their reads, because their operands are often computed in the same kernel;
//! * elementwise functions are fused into these kernels: their operations count, and a fraction of the bytes that they
//!   write; a map of only inputs, parameters and caches takes a launch of its own, and so does a map of a slice;
//! * scaling the result of a contraction is free: the contraction's kernel scales the result as it writes it;
//! * transposes are charged the same fraction of their reads and writes; broadcasts are index arithmetic, and so are
//!   slices where the device's kernels read them in place; reshapes cost at most a small part of a launch;
//! * concatenations of parameters cost nothing where parameters are concatenated when the artifact is written;
//! * other expressions over parameters cost nothing where weights are prepared at compile time. Elsewhere every call
//!   would compute them, so maps, contractions, concatenations and gathers of parameters have a prohibitive cost.

use super::expr::Site;
use super::merging::is_param;
use super::table::names;
use crate::usual::USUAL;
use sardonyx_base::Dim;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, Role, TensorType};
use sardonyx_kernels::Target;

/// Properties of a device, and of the passes after the e-graph, on which costs depend.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Bandwidth of the memory that holds tensors between kernels, in bytes per second.
    pub bytes_per_s: f64,
    /// Multiplications and additions of contractions per second.
    pub contract_ops_per_s: f64,
    /// Elementwise additions per second; the cost of other functions is a multiple of an addition's.
    pub map_ops_per_s: f64,
    /// Nanoseconds to launch one kernel.
    pub launch_ns: f64,
    /// Whether contractions read a slice of a value in place.
    pub slices_in_place: bool,
    /// Whether parameters are concatenated when the artifact is written.
    pub joins_weights: bool,
    /// Whether expressions over parameters are evaluated when the model is compiled.
    pub prepares_weights: bool,
}

/// Share of the peak vector throughput that code reaches outside the register blocks of contractions.
const ELEMENTWISE_SHARE: f64 = 0.25;

impl Rates {
    /// Returns a target's rates, with slices read in place and weights joined and prepared at compile time.
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

/// Cost of an expression over parameters that every call would compute: one second, longer than any kernel takes, yet
/// small enough that sums do not overflow.
const UNPREPARED: u64 = 1_000_000_000_000;

/// Fraction of a value's bytes that is charged although fusion should keep the value out of memory: some fusions fail.
const FUSED: f64 = 0.125;

impl Rates {
    /// Returns the cost of a node, at least 1; `extent` returns the value of a symbol.
    pub fn picoseconds(&self, s: &Site, extent: &dyn Fn(&str) -> i64) -> u64 {
        // Every node costs at least 1, so that of two otherwise equally cheap graphs the one with fewer nodes wins.
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
        let elements = |t: &TensorType| t.elements().eval_named(&|n| Some(extent(n))).unwrap_or(i64::MAX).max(0) as f64;
        let bytes = |t: &TensorType| elements(t) * t.dtype.bytes() as f64;
        let written = bytes(s.ty());
        let read: f64 = s.node.args.iter().map(|a| bytes(s.ty_of(once(s, *a)))).sum();
        let memory = |b: f64| b / self.bytes_per_s;
        let launch = self.launch_ns * 1e-9;
        let seconds = match s.op() {
            Op::Reshape if is_view(s) => launch * VIEW,
            // A slice of a parameter is always free, because weights are packed for their kernels from any slice.
            Op::Slice { .. } if self.slices_in_place || s.is_constant(s.class) => 0.0,
            // Otherwise a map reads the slice in place, but a contraction needs a copy of it.
            Op::Slice { .. } => memory(written),
            Op::Transpose { .. } => memory((read + written) * FUSED),
            Op::Convert(_) => elements(s.ty()) / self.map_ops_per_s + memory(written * FUSED),
            // The result of a contraction is scaled as it is written.
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
                let sum = sum.eval_named(&|n| Some(extent(n))).unwrap_or(i64::MAX) as f64;
                // Contractions with several reduced dimensions, or more than 4 dimensions of operand B, are assumed to
                // be slower.
                let odd = if spec.summed().len() > 1 || spec.right.len() > 4 { 1.3 } else { 1.0 };
                launch + odd * (2.0 * elements(s.ty()) * sum / self.contract_ops_per_s + memory(read + written))
            }
            op => match op.role() {
                Role::Copy => launch + memory(2.0 * written),
                // Consumers read the operand directly.
                Role::View => 0.0,
                // No rewrite can replace these nodes.
                Role::Given | Role::Marker | Role::Host => 0.0,
                Role::Elementwise | Role::Reduction | Role::Product => launch + memory(read + written),
            },
        };
        one + (seconds * 1e12).min(1e18) as u64
    }
}

/// Share of a launch that a view is charged, because fusion does not look through it.
const VIEW: f64 = 0.05;

/// Returns whether a reshape merges or splits dimensions of a value in memory. A reshape of a broadcast does not,
/// because it reads the operand of the broadcast.
fn is_view(s: &Site) -> bool {
    let repeats = |op: &Op| matches!(op, Op::Broadcast { .. }).then_some(());
    let long = |dims: &[Dim]| dims.iter().filter(|d| !d.is_const(1)).cloned().collect::<Vec<_>>();
    !s.is_constant(s.class)
        && long(s.dims_of(s.arg(0))) != long(&s.ty().dims)
        && s.find(s.arg(0), repeats).next().is_none()
}

/// Returns the value that is actually read for `id`: the operand of a broadcast, which may be reshaped, else `id`
/// itself.
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

/// Maximum number of motions (reshapes, transposes, broadcasts) that are looked through to the moved value.
const MOTIONS_MAX: usize = 4;

/// Returns whether no kernel computes the value just before its use: it is an input, a parameter, a constant, a cache,
/// or a motion of one. A map of only such values has no kernel to be fused into.
fn lies_in_memory(s: &Site, id: egg::Id, depth: usize) -> bool {
    if s.splat(id).is_some() {
        return true;
    }
    s.nodes(id).iter().all(|n| match s.op_of(n) {
        Op::Input { .. } | Op::Param { .. } | Op::Append { .. } | Op::Const(_) => true,
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast { .. } => {
            depth > 0 && !s.same(n.args[0], id) && lies_in_memory(s, n.args[0], depth - 1)
        }
        _ => false,
    })
}

/// Returns whether the value is a slice, possibly reshaped or transposed, of a value that is not constant. The sliced
/// value is computed as a whole, usually for several consumers, so a map of the slice is not fused into its kernel.
fn is_part(s: &Site, id: egg::Id, depth: usize) -> bool {
    s.nodes(id).iter().any(|n| match s.op_of(n) {
        Op::Slice { .. } => !s.is_constant(id),
        Op::Reshape | Op::Transpose { .. } => depth > 0 && !s.same(n.args[0], id) && is_part(s, n.args[0], depth - 1),
        _ => false,
    })
}

/// Returns the cost of a scalar function, in additions.
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

/// Returns the extent that is assumed for a symbol when costs are compared; it is within the symbol's range.
pub fn nominal(lo: i64, hi: Option<i64>) -> i64 {
    USUAL.other.clamp(lo, hi.unwrap_or(i64::MAX).max(lo))
}

/// Returns a key by which the nodes of a class are sorted, so that the choice among nodes of equal cost does not depend
/// on the order of the graph's nodes.
pub fn spelling(op: &Op) -> String {
    format!("{} {op:?}", names(op).last().unwrap_or(&""))
}
