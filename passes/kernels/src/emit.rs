//! A lowered kernel  =>  its MLIR for a CPU level, or its plan for a GPU

use super::asm::Mlir;
use super::classes;
use super::cx::Cx;
use super::footprint::Footprint;
use super::linear::Lowered;
use super::nest::Nest;
use super::pace::Pace;
use super::ptx::GpuKernel;
use super::target::Target;
use super::words::Words;
use sardonyx_base::cpu::{Extension, Level};
use sardonyx_base::{DType, Dim};

impl Lowered {
    /// Whether a padded operand A is computed in scratch by the work item that reads it.
    pub fn stages(&self) -> bool {
        self.plan.stages()
    }

    /// Kind of words that register-blocked code multiplies; `None` if the code is plain loops.
    pub fn words(&self) -> Option<Words> {
        self.plan.words()
    }

    /// Whether code for the target keeps blocks of accumulators in registers. If CPU code does, the answer is yes for
    /// GPUs too, because they can read the panels packed for CPUs.
    pub fn is_blocked(&self, target: Target) -> bool {
        self.words().is_some() || target.gpu().is_some() && self.for_gpu(target).plan.is_on_tensor_cores()
    }

    /// Number of queries of a batch element; only for register-blocked attention.
    pub fn attention_rows(&self) -> Option<Dim> {
        self.plan.attention_rows(&self.def)
    }

    /// Loops that a CPU executes for these parameters when one thread runs all work items in order.
    pub fn nest(&self, params: &[i64]) -> Nest {
        self.plan.nest(&self.def, params)
    }

    /// Conditions that a launch must satisfy.
    pub fn footprint(&self) -> Footprint {
        self.def.footprint(self.plan.grid(&self.def))
    }

    /// Returns the estimated efficiency of the kernel's CPU code.
    pub fn pace(&self) -> Pace {
        self.plan.pace(&self.def)
    }

    /// The kernel with a new plan for a GPU.
    pub fn for_gpu(&self, target: Target) -> GpuKernel<'_> {
        GpuKernel { def: &self.def, target, plan: classes::plan_for_gpu(&self.def, target) }
    }

    /// CPU extensions that the kernel's products use: the extension of its words, if any, and tiles if the kernel fits
    /// them.
    fn multiplied_by(&self) -> Vec<Extension> {
        let tiles = self.plan.fits_tiles(&self.def);
        self.words().and_then(Words::extension).into_iter().chain(tiles.then_some(Extension::Tiles)).collect()
    }

    /// Whether the kernel's code for a level differs from its code for the best other level that this level includes.
    pub fn has_code_for(&self, level: Level) -> bool {
        // The extension that multiplies bf16 also rounds to it.
        let rounds = self.def.reads.iter().chain(&self.def.writes).any(|b| b.dtype == DType::BF16);
        let extensions = self.multiplied_by().into_iter().chain(rounds.then_some(Extension::Pairs));
        level.is_common() || extensions.into_iter().any(|extension| level.adds(extension))
    }

    /// MLIR text of the kernel: one `llvm.func` named `symbol`_`level`.
    pub fn emit(&self, symbol: &str, level: Level) -> String {
        let mut asm = Mlir::new(level);
        let cx = Cx::arguments(&mut asm, &self.def, level);
        self.plan.emit(&cx, &mut asm);
        asm.finish(&signature(symbol, level))
    }
}

/// Levels for which at least one of these kernels has its own code. On a level for which a kernel has no code, its
/// code for the best included level runs. Rounding to bf16 alone does not add a level, because the instructions for it
/// flush subnormals.
pub fn levels_of<'a>(kernels: impl IntoIterator<Item = &'a Lowered>) -> Vec<Level> {
    let multiplied: Vec<Extension> = kernels.into_iter().flat_map(Lowered::multiplied_by).collect();
    Level::all()
        .filter(|level| level.is_common() || multiplied.iter().any(|extension| level.adds(*extension)))
        .collect()
}

/// Functions of one level, for the kernels that have their own code for it.
pub fn functions<'a>(kernels: impl IntoIterator<Item = (&'a str, &'a Lowered)>, level: Level) -> String {
    let own = kernels.into_iter().filter(|(_, l)| l.has_code_for(level));
    own.map(|(symbol, l)| l.emit(symbol, level)).collect()
}

/// Attributes and name of a kernel's function. `no-builtins` keeps LLVM from turning loops into calls of memcpy or
/// memset: a kernel imports nothing.
fn signature(symbol: &str, level: Level) -> String {
    let (bits, (cpu, features), name) = (level.vector_bits(), level.llvm(), level.name());
    let features = match features.as_str() {
        "" => String::new(),
        features => format!(r#"["target-features", "{features}"], "#),
    };
    let attributes = format!(
        r#""nounwind", "no-builtins", ["target-cpu", "{cpu}"], {features}["min-legal-vector-width", "{bits}"], ["prefer-vector-width", "{bits}"]"#
    );
    format!("llvm.func @{symbol}_{name}(%0: !llvm.ptr) attributes {{passthrough = [{attributes}]}}")
}
