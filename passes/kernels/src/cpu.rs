//! `CpuPlan`: how a CPU computes one kernel: its launch requirements, its cost, and its MLIR

use super::asm::Mlir;
use super::cx::Cx;
use super::def::KernelDef;
use super::nest::Nest;
use super::pace::Pace;
use super::words::Words;
use sardonyx_base::Dim;
use std::fmt::Debug;

/// Plan of a kernel, created once for all CPU levels. Every function receives the kernel that the plan was created for.
pub trait CpuPlan: Debug + Send + Sync {
    /// Number of work items of a launch, over `p0`, `p1`, …; the same for every level.
    fn grid(&self, def: &KernelDef) -> Dim;

    /// Bytes of scratch per thread, over `p0`, `p1`, …; the same for every level.
    fn scratch_bytes(&self, _def: &KernelDef) -> Dim {
        Dim::constant(0)
    }

    /// Loops executed for these parameters when one thread runs all work items in order.
    fn nest(&self, def: &KernelDef, params: &[i64]) -> Nest;

    /// Returns the estimated efficiency of the code, by which layouts are compared.
    fn pace(&self, def: &KernelDef) -> Pace;

    /// Kind of words that register-blocked code multiplies; `None` if the code is plain loops.
    fn words(&self) -> Option<Words> {
        None
    }

    /// Whether a padded operand A is computed in scratch by the work item that reads it.
    fn stages(&self) -> bool {
        false
    }

    /// Whether CPU levels that have tiles (AMX) compute this kernel in tiles.
    fn fits_tiles(&self, _def: &KernelDef) -> bool {
        false
    }

    /// Number of queries of a batch element; only for register-blocked attention.
    fn attention_rows(&self, _def: &KernelDef) -> Option<Dim> {
        None
    }

    /// Writes the loop over the work items from `cx.launch.begin` to `cx.launch.end`.
    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir);
}
