//! The content of the entries `manifest`, `plan` and `selftest` of a `.sdx` file
//!
//! `runtime/base/proto/sardonyx.proto` defines the messages and records the versions of the format; [`messages`] is
//! generated from it. [`Plan`] has the same content as [`messages::Plan`], but its expressions are parsed. To add a
//! field, add a line to the `.proto` file, run `cargo xtask docs`, and add a line of the same name to `checked.rs`.

mod checked;
#[rustfmt::skip]
#[allow(missing_docs, reason = "the schema documents the fields that need it")]
pub mod messages;
mod wire;

use crate::compare::{Instead, Tolerance};
use crate::{DType, Error, Result, Tensor};
pub use checked::*;
pub use messages::{Canary, ExpectedOutput, File, Manifest, SelfTest, SymbolKind};
pub use wire::{Wire, malformed};

/// Major version of the format. A reader accepts any minor version of its own major version and refuses other ones.
pub const FORMAT_MAJOR: u32 = 1;
/// Minor version of the format; `sardonyx.proto` lists the versions.
pub const FORMAT_MINOR: u32 = 8;
/// Minor version of artifacts with a plan for each of several device classes.
pub const FORMAT_MINOR_PLANS: u32 = 9;
/// Minor version of artifacts that several ranks run together.
pub const FORMAT_MINOR_MESH: u32 = 10;
/// Minor version of artifacts whose ranks compute while they exchange.
pub const FORMAT_MINOR_OVERLAP: u32 = 11;
/// Features that this reader supports, of those that [`Manifest::needs`] may list.
pub const NEEDS: [&str; 2] = [NEEDS_MESH, NEEDS_OVERLAP];
/// Feature in [`Manifest::needs`]: the plan is for several ranks.
pub const NEEDS_MESH: &str = "mesh";
/// Feature in [`Manifest::needs`]: collectives are started in one step and awaited in a later one.
pub const NEEDS_OVERLAP: &str = "overlap";

/// Whether a kernel of this class (see [`Kernel::class`]) spends most of its operations on matrix products.
pub fn is_product(class: &str) -> bool {
    matches!(class, "attention" | "contract" | "groups")
}

impl Manifest {
    /// A manifest of this format version for x86_64; the other fields are empty.
    pub fn current(producer: &str) -> Manifest {
        Manifest {
            format_major: FORMAT_MAJOR,
            format_minor: FORMAT_MINOR,
            producer: producer.to_string(),
            arch: "x86_64".to_string(),
            ..Manifest::default()
        }
    }
}

/// Maximum number of blocks of a launch. This limit and the next two hold on all GPUs for which PTX is emitted.
pub const BLOCKS_MAX: i64 = (1 << 31) - 1;
/// Maximum number of threads of a block.
pub const THREADS_MAX: u32 = 1024;
/// Maximum shared memory of a block in bytes.
pub const SHARED_BYTES_MAX: u32 = 227 << 10;

impl ExpectedOutput {
    /// The tolerance with which the output is compared.
    pub fn tolerance(&self) -> Tolerance {
        let instead = (self.relative > 0.0).then_some(Instead::Length(self.relative));
        Tolerance { rtol: self.rtol, atol: self.atol, instead }
    }
}

impl Canary {
    /// Returns the message for a tensor, which shares the tensor's bytes.
    pub fn new(name: &str, tensor: &Tensor) -> Canary {
        Canary {
            name: name.to_string(),
            dtype: tensor.dtype().onnx_code(),
            dims: tensor.dims().iter().map(|&d| d as u64).collect(),
            data: tensor.bytes().clone(),
        }
    }

    /// Returns the tensor. Errors: E0107, E0202, and E0302 if the size does not match type and dimensions.
    pub fn tensor(&self) -> Result<Tensor> {
        let dtype = DType::from_onnx(self.dtype);
        let dtype = dtype.ok_or_else(|| Error::user("E0107", format!("{} is no element type", self.dtype)))?;
        let dims: std::result::Result<Vec<usize>, _> = self.dims.iter().map(|&d| usize::try_from(d)).collect();
        let dims =
            dims.map_err(|_| Error::user("E0202", format!("the dimensions of `{}` are too large", self.name)))?;
        Tensor::new(dtype, dims, self.data.clone())
    }
}

/// Symbol of data in the code entry: its length as a little-endian u64, then a [`Plan`] that contains only the kernels
/// of the code. They must equal the kernels of the artifact's plan. Code without this symbol is not checked.
pub const KERNELS_SYMBOL: &str = "sardonyx_kernels";

/// Name of the target whose kernels have candidate `i` of the tiles that they can have: `sm_80~1`. Candidate 0 is the
/// target itself.
pub fn candidate_target(target: &str, i: usize) -> String {
    if i == 0 { target.to_string() } else { format!("{target}~{i}") }
}

/// Start of the line of PTX that declares its kernels; the [`Plan`] message follows in hexadecimal.
pub const KERNELS_COMMENT: &str = "// sardonyx_kernels ";

/// Arguments of a kernel: `void kernel(const KernelArgs *)`. The layout is the ABI; `version` guards it.
#[repr(C)]
pub struct KernelArgs {
    /// [`KERNEL_ABI_VERSION`] of the caller.
    pub version: u32,
    /// Number of pointers in `buffers`.
    pub n_buffers: u32,
    /// Address of each buffer, in the kernel's order.
    pub buffers: *const *mut u8,
    /// Value of each parameter `p0`, `p1`, ….
    pub params: *const i64,
    /// Scratch memory of the calling thread, 64-byte aligned.
    pub scratch: *mut u8,
    /// First work item: the call computes the items `begin..end` of the launch's grid.
    pub begin: i64,
    /// End of the work items, exclusive.
    pub end: i64,
    /// Shared by all threads of a launch; a kernel stores 1 if an index read from data was out of range (it then reads
    /// element 0 instead). Never cleared by a kernel.
    pub status: *mut i64,
}

/// Value of [`KernelArgs::version`] for this layout of the arguments.
pub const KERNEL_ABI_VERSION: u32 = 1;

/// A kernel for CPUs; its caller guarantees that the pointers of the arguments are valid.
pub type KernelFn = unsafe extern "C" fn(*const KernelArgs);
