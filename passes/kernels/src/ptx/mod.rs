//! flow kernel  =>  PTX: one entry per kernel, and its launch configuration
//!
//! An entry takes the addresses of its buffers (reads first), its integer parameters, and the address of the status
//! word. Blocks and grids have one dimension. The computation of a kernel is emitted by the same code as for a CPU
//! (`eval`, `memory`, `scalar`, `math`); what differs here is how work is assigned to blocks and threads: the *forms*.

pub mod attention;
mod descriptor;
pub mod gemm;
mod index;
mod launch;
mod limits;
pub mod map;
pub mod movement;
mod pairs;
mod ring;
pub mod rows;
mod team;
mod tile;
mod vector;

pub use launch::{GpuLaunch, TensorMap};
pub use movement::Traffic;

use movement::Launch;

use super::asm::{Ptx, Ty};
use super::cx::Cx;
use super::def::KernelDef;
use crate::target::Target;
use sardonyx_base::{Dim, Error, Result};

/// One entry, ready to be put into a module.
#[derive(Clone, Debug)]
pub struct PtxKernel {
    /// PTX of the entry, without the head of a module.
    pub text: String,
    /// Launch configuration, over the launch parameters.
    pub launch: GpuLaunch,
    /// Version of PTX that the entry's instructions need, if it is newer than the lowest version for the target.
    pub version: Option<Version>,
}

/// Version of PTX: major and minor.
pub type Version = (u32, u32);

/// Properties of an entry that its form determines.
pub struct Form {
    /// Launch configuration, over the launch parameters.
    pub launch: GpuLaunch,
    /// Declarations of shared variables, in PTX.
    pub variables: String,
    /// Whether a multiprocessor need only hold a single block, which can then use all registers; otherwise the
    /// assembler would spill registers.
    pub wide: bool,
}

/// Maximum bytes of shared memory that an entry may declare; more must be requested at the launch.
const STATIC_MAX: i64 = 48 * 1024;

impl Form {
    /// Returns, for an array of `bytes` bytes in shared memory, its name, its declaration in the entry, and the number
    /// of bytes that a launch must request as dynamic shared memory.
    fn shared(bytes: i64) -> (&'static str, String, u32) {
        match bytes <= STATIC_MAX {
            true => ("tiles", format!("  .shared .align 128 .b8 tiles[{bytes}];\n"), 0),
            false => (DYNAMIC, String::new(), bytes as u32),
        }
    }

    /// Form with blocks of `threads` threads, each of which takes `per_block` items.
    fn of_items(items: &Dim, per_block: i64, threads: i64) -> Form {
        let grid = items.ceildiv(&Dim::constant(per_block));
        Form { launch: GpuLaunch::plain(grid, threads as u32), variables: String::new(), wide: false }
    }
}

/// Plan of a kernel for a GPU, created once per kernel and target.
pub trait GpuPlan {
    /// Returns the traffic that a launch schedules for each buffer, reads first.
    fn requests(&self, launch: &Launch) -> Vec<Traffic>;

    /// Writes the code of one block and returns the properties of the entry.
    fn emit(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Form;

    /// Returns whether tensor cores compute the products.
    fn is_on_tensor_cores(&self) -> bool {
        false
    }

    /// Returns the version of PTX that the code's instructions need, if it is newer than the lowest version for the
    /// target.
    fn version(&self) -> Option<Version> {
        None
    }

    /// Returns the name of the plan's tile; `None` if the kernel can have no other tile.
    fn tile(&self) -> Option<String> {
        None
    }

    /// Returns the plans of the kernel with other tiles.
    fn others(&self, _: &KernelDef) -> Vec<Box<dyn GpuPlan>> {
        vec![]
    }
}

/// A kernel with its plan for one GPU.
pub struct GpuKernel<'a> {
    /// Kernel over formal parameters.
    pub def: &'a KernelDef,
    /// GPU that the plan was created for.
    pub target: Target,
    /// How the GPU computes the kernel.
    pub plan: Box<dyn GpuPlan>,
}

/// Name of the dynamic shared memory, which is requested at the launch.
const DYNAMIC: &str = "dynamic";

/// Text of a module with several entries.
pub fn module(target: Target, kernels: &[PtxKernel]) -> String {
    let name = target.ptx().unwrap_or_default();
    let own = target.gpu().and_then(|gpu| gpu.ptx_version.split_once('.'));
    let own = own.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let needed = kernels.iter().filter_map(|k| k.version);
    let (major, minor) = needed.chain(own).max().unwrap_or_default();
    let mut head = format!(".version {major}.{minor}\n.target {name}\n.address_size 64\n");
    if kernels.iter().any(|k| k.launch.shared_bytes > 0) {
        head += &format!(".extern .shared .align 128 .b8 {DYNAMIC}[];\n");
    }
    kernels.iter().fold(head, |text, k| text + "\n" + &k.text)
}

impl GpuKernel<'_> {
    /// Emits the kernel as a PTX entry. Errors: E0202 for sizes that the grid cannot express, E0901 for launches beyond
    /// the device's limits.
    pub fn emit(&self, symbol: &str) -> Result<PtxKernel> {
        let mut asm = Ptx::default();
        let form = self.plan.emit(&arguments(&mut asm, self.def), &mut asm);
        if form.launch.grid.is_overflow() {
            return Err(Error::user("E0202", "the number of blocks of a kernel overflows 64 bits"));
        }
        let head = signature(self.def, symbol, &form);
        let text = asm.finish(&head, &form.variables);
        let kernel = PtxKernel { text, launch: form.launch, version: self.plan.version() };
        limits::check(self.target, symbol, &kernel.launch)?;
        Ok(kernel)
    }

    /// Returns the kernel with each tile that it can have, and the tile's name; the kernel's current tile comes first.
    /// Empty if the kernel can have no other tile.
    pub fn candidates(self) -> Vec<(String, Self)> {
        let GpuKernel { def, target, plan } = self;
        let others = plan.others(def);
        let named = [plan].into_iter().chain(others).filter_map(|plan| Some((plan.tile()?, plan)));
        let all: Vec<_> = named.map(|(tile, plan)| (tile, GpuKernel { def, target, plan })).collect();
        if all.len() > 1 { all } else { vec![] }
    }

    /// Returns whether the kernel multiplies on tensor cores.
    pub fn is_on_tensor_cores(&self) -> bool {
        self.plan.is_on_tensor_cores()
    }

    /// Traffic of each buffer, reads first, for a launch with these parameters.
    pub fn movement(&self, params: &[i64]) -> Vec<Traffic> {
        let launch = Launch::new(self.def, params);
        let mut traffic = self.plan.requests(&launch);
        for (buffer, t) in traffic.iter_mut().enumerate() {
            t.algebraic = launch.algebraic(buffer);
        }
        traffic
    }
}

fn signature(def: &KernelDef, symbol: &str, form: &Form) -> String {
    let buffers = (0..def.reads.len() + def.writes.len()).map(|i| format!("  .param .u64 b{i}"));
    let params = (0..def.n_params).map(|i| format!("  .param .s64 p{i}"));
    let all: Vec<String> =
        form.launch.params().chain(buffers).chain(params).chain(["  .param .u64 status".to_string()]).collect();
    let wide = if form.wide { "\n.minnctapersm 1" } else { "" };
    format!(".visible .entry {symbol}(\n{}\n){}{wide}", all.join(",\n"), form.launch.directives())
}

fn arguments<'a>(asm: &mut Ptx, def: &'a KernelDef) -> Cx<'a, Ptx> {
    let mut pointer = |name: String| {
        let generic = asm.instruction(Ty::PTR, "ld.param.u64", &[format!("[{name}]")]);
        let operands = [asm.name(generic, 0)];
        asm.instruction(Ty::PTR, "cvta.to.global.u64", &operands)
    };
    let n_reads = def.reads.len();
    let reads = (0..n_reads).map(|i| pointer(format!("b{i}"))).collect();
    let writes = (0..def.writes.len()).map(|i| pointer(format!("b{}", n_reads + i))).collect();
    let status = pointer("status".to_string());
    let params = (0..def.n_params).map(|i| asm.instruction(Ty::I64, "ld.param.s64", &[format!("[p{i}]")])).collect();
    Cx { def, deps: def.dependences(), params, reads, writes, status, launch: () }
}

fn outer_points(def: &KernelDef) -> Dim {
    def.outer.iter().fold(Dim::constant(1), |p, e| p * e.dim())
}
