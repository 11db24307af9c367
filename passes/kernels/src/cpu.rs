//! `CpuPlan`: how a CPU computes one kernel, which says what a launch needs, what it costs, and writes its MLIR

use super::asm::Mlir;
use super::cx::Cx;
use super::def::KernelDef;
use super::nest::Nest;
use super::pace::Pace;
use super::words::Words;
use sardonyx_base::Dim;
use std::fmt::Debug;

/// Made once per kernel, for all levels of CPUs. Every function is given the kernel that the plan was made for.
pub trait CpuPlan: Debug + Send + Sync {
    /// Work items of a launch, over `p0`, `p1`, …; the same for every level.
    fn grid(&self, def: &KernelDef) -> Dim;

    /// Bytes of scratch per thread, over `p0`, `p1`, …; the same for every level.
    fn scratch_bytes(&self, _def: &KernelDef) -> Dim {
        Dim::constant(0)
    }

    /// The loops with these parameters, as one thread runs all work items in their order.
    fn nest(&self, def: &KernelDef, params: &[i64]) -> Nest;

    fn pace(&self, def: &KernelDef) -> Pace;

    /// What code in blocks of registers takes at a time; none where the code is plain loops.
    fn words(&self) -> Option<Words> {
        None
    }

    /// Whether a left factor that is padded is computed where it is read.
    fn stages(&self) -> bool {
        false
    }

    /// Whether CPUs with tiles multiply in them.
    fn fits_tiles(&self, _def: &KernelDef) -> bool {
        false
    }

    /// The queries of a batch element, of attention in blocks of registers.
    fn attention_rows(&self, _def: &KernelDef) -> Option<Dim> {
        None
    }

    /// Writes the work items from `cx.launch.begin` to `cx.launch.end`.
    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir);
}
