//! flow kernel  =>  MLIR or PTX, then machine code: one function per kernel and CPU level, one entry per kernel and GPU

mod asm;
mod attention;
pub mod codegen;
pub mod contract;
mod cx;
pub mod def;
pub mod device_spec;
mod dims;
mod eval;
mod footprint;
mod linear;
mod map;
mod math;
mod math64;
mod memory;
mod minifloat;
pub mod nest;
mod normalise;
mod pace;
pub mod packing;
mod pass;
pub mod ptx;
mod ranges;
pub mod rates;
mod reduce;
mod scalar;
mod stages;
pub mod target;
pub mod usual;
mod work;

pub use def::KernelDef;
pub use device_spec::DeviceSpec;
pub use footprint::Footprint;
pub use linear::{Lowered, lower};
pub use pace::Pace;
pub use packing::{Packable, PackedFactor, packable, plain_load, products};
pub use rates::Rates;
pub use sardonyx_base::cpu::{Extension, Level};
pub use target::Target;

use asm::Mlir;
use cx::Cx;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::Class;

/// The emitter that a kernel gets: its class, but for contractions in a form that has no fast path.
enum Route {
    Map,
    Normalise,
    Contract(contract::Plan),
    Attention(attention::Plan),
}

impl KernelDef {
    fn route(&self) -> Route {
        match self.class {
            Class::Map => Route::Map,
            Class::Normalise => Route::Normalise,
            Class::Attention => attention::plan(self).map_or(Route::Normalise, Route::Attention),
            Class::Contract => contract::plan(self).map_or(Route::Normalise, Route::Contract),
        }
    }

    /// Work items of a launch, over `p0`, `p1`, …; the same for every level.
    pub fn grid(&self) -> Dim {
        match self.route() {
            Route::Map => map::grid(self),
            Route::Normalise => normalise::grid(self),
            Route::Contract(plan) => plan.grid(self),
            Route::Attention(plan) => plan.grid(self),
        }
    }

    /// Bytes of scratch per thread, over `p0`, `p1`, …; the same for every level.
    pub fn scratch_bytes(&self) -> Dim {
        match self.route() {
            Route::Map => Dim::constant(0),
            Route::Normalise => normalise::scratch_bytes(self),
            Route::Contract(plan) => plan.scratch_bytes(self),
            Route::Attention(plan) => plan.scratch_bytes(self),
        }
    }

    /// Whether a contraction goes through the register-blocked path.
    pub fn is_blocked_contraction(&self) -> bool {
        matches!(self.route(), Route::Contract(_))
    }

    /// What a blocked contraction or attention takes at a time: of more than one element CPUs have instructions of their own.
    pub fn words(&self) -> Option<contract::Words> {
        match self.route() {
            Route::Contract(plan) => Some(plan.words),
            Route::Attention(plan) if plan.narrow => Some(contract::Words::Pairs),
            Route::Attention(_) => Some(contract::Words::Singles),
            Route::Map | Route::Normalise => None,
        }
    }

    /// The extension of CPUs that it multiplies words with, where there is one, and tiles where it can have them.
    fn multiplied_by(&self) -> Vec<Extension> {
        let tiles = match self.route() {
            Route::Contract(plan) => contract::fits_tiles(&plan, self),
            Route::Attention(plan) => plan.fits_tiles(),
            Route::Map | Route::Normalise => false,
        };
        let words = self.words().and_then(contract::Words::extension);
        words.into_iter().chain(tiles.then_some(Extension::Tiles)).collect()
    }

    /// Whether its code for a level is not that of the best one that the level includes.
    pub fn has_code_for(&self, level: Level) -> bool {
        // Bf16 is rounded by instructions of the extension that multiplies it.
        let rounds = self.reads.iter().chain(&self.writes).any(|b| b.dtype == DType::BF16);
        let extensions = self.multiplied_by().into_iter().chain(rounds.then_some(Extension::Pairs));
        level.is_common() || extensions.into_iter().any(|extension| level.adds(extension))
    }

    /// Whether attention goes through the register-blocked path.
    pub fn is_blocked_attention(&self) -> bool {
        self.attention_rows().is_some()
    }

    /// The queries of a batch element, where attention goes through the register-blocked path.
    pub fn attention_rows(&self) -> Option<Dim> {
        match self.route() {
            Route::Attention(plan) => Some(plan.n_rows(self)),
            Route::Map | Route::Normalise | Route::Contract(_) => None,
        }
    }

    /// The kernel as MLIR text: one `llvm.func` named `symbol`_`level`.
    pub fn emit(&self, symbol: &str, level: Level) -> String {
        let mut asm = Mlir::new(level);
        let cx = Cx::arguments(&mut asm, self, level);
        match self.route() {
            Route::Map => map::emit(&cx, &mut asm),
            Route::Normalise => normalise::emit(&cx, &mut asm),
            Route::Contract(plan) => contract::emit(&cx, &mut asm, &plan),
            Route::Attention(plan) => attention::emit(&cx, &mut asm, &plan),
        }
        asm.finish(&signature(symbol, level))
    }
}

/// The levels that these kernels have code for, each at least one. A kernel without code of its own for a level runs that
/// of the best one that the level includes. Rounding alone is no reason for a level: its instructions also lose subnormals.
pub fn levels_of<'a>(kernels: impl IntoIterator<Item = &'a KernelDef>) -> Vec<Level> {
    let multiplied: Vec<Extension> = kernels.into_iter().flat_map(KernelDef::multiplied_by).collect();
    Level::all()
        .filter(|level| level.is_common() || multiplied.iter().any(|extension| level.adds(*extension)))
        .collect()
}

/// The functions of one level, of the kernels that have code of their own for it.
pub fn functions<'a>(kernels: impl IntoIterator<Item = (&'a str, &'a KernelDef)>, level: Level) -> String {
    let own = kernels.into_iter().filter(|(_, def)| def.has_code_for(level));
    own.map(|(symbol, def)| def.emit(symbol, level)).collect()
}

/// `no-builtins` keeps LLVM from turning loops into calls of memcpy or memset: a kernel imports nothing.
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
