//! The `manifest`, `plan` and `selftest` entries of a `.sdx` file, as prost messages declared in Rust
//!
//! Dimension-like fields are [`Dim`](crate::Dim) expressions in text form over the manifest's symbols, so that one
//! parser, one normal form and one overflow rule serve the IR, the file and the command line.

use crate::{DType, Error, Result, Tensor};
use prost::{Enumeration, Message, Oneof};

/// A reader accepts any minor version of its own major one and refuses other major versions with a sentence.
pub const FORMAT_MAJOR: u32 = 1;
/// 1: the optional entry `selftest`. 2: states of entry points, derived symbols, input dimensions that are solved for a
/// symbol. 3: code for GPUs, with what its launches need; an artifact for GPUs alone has no `cpu/x86_64.so`. 4: states that
/// one launch carries over and continues. 5: steps of the host, entry points that only they call. 6: what kernels compute
/// and move. 7: the precision of contractions; entry points for some sizes, which calls of another one take where they fit. 8:
/// kernels without code for every variant.
pub const FORMAT_MINOR: u32 = 8;
/// Of artifacts with a plan for each of several classes of devices.
pub const FORMAT_MINOR_PLANS: u32 = 9;

#[derive(Clone, PartialEq, Message)]
pub struct Manifest {
    #[prost(uint32, tag = "1")]
    pub format_major: u32,
    #[prost(uint32, tag = "2")]
    pub format_minor: u32,
    /// Compiler name and version.
    #[prost(string, tag = "3")]
    pub producer: String,
    /// Architecture of the CPU code, `x86_64`; empty where there is none.
    #[prost(string, tag = "4")]
    pub arch: String,
    /// Variants that kernels have code for, best last: `v3`, `v4`, `v4vnni`, `v4bf16`, `v4amx`. Kernel `k0` is exported as `k0_v3`,
    /// `k0_v4` and so on; where it has no code of its own for a variant, it runs that of the best one before it.
    #[prost(string, repeated, tag = "5")]
    pub variants: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub symbols: Vec<Symbol>,
    /// The passes that were run, as a pipeline string.
    #[prost(string, tag = "7")]
    pub pipeline: String,
    /// Every other entry of the archive.
    #[prost(message, repeated, tag = "8")]
    pub files: Vec<File>,
    /// BLAKE3 of the model file, hexadecimal.
    #[prost(string, tag = "9")]
    pub model_hash: String,
    /// Names of the model that turned out to be an expression of the symbols.
    #[prost(message, repeated, tag = "10")]
    pub derived: Vec<Derived>,
    /// In what the factors of contractions are, where that is less than the model says: `bf16`.
    #[prost(string, tag = "11")]
    pub precision: String,
}

impl Manifest {
    /// A manifest of this format version for this architecture; the other fields are empty.
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

#[derive(Clone, PartialEq, Message)]
pub struct File {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// 32 bytes of BLAKE3.
    #[prost(bytes = "vec", tag = "3")]
    pub blake3: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum SymbolKind {
    /// Bound by the dimensions of the call's inputs.
    Input = 0,
    /// Read from a buffer while the plan runs, by a `Bind` step.
    Data = 1,
    /// Positions that the memory of a [`State`] has room for.
    Capacity = 2,
    /// Positions of a [`State`] that a call leaves where they are.
    Kept = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Symbol {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "SymbolKind", tag = "2")]
    pub kind: i32,
    /// Inclusive bounds; `hi` is absent where the symbol is unbounded.
    #[prost(int64, tag = "3")]
    pub lo: i64,
    #[prost(int64, optional, tag = "4")]
    pub hi: Option<i64>,
}

/// A dimension name of the model that is no symbol of its own, because a node needs it to equal an expression. The file's
/// expressions do not use it; users may. A call must keep its range.
#[derive(Clone, PartialEq, Message)]
pub struct Derived {
    #[prost(string, tag = "1")]
    pub name: String,
    /// An expression over the symbols.
    #[prost(string, tag = "2")]
    pub equals: String,
    /// Inclusive bounds; `hi` is absent where there is none.
    #[prost(int64, tag = "3")]
    pub lo: i64,
    #[prost(int64, optional, tag = "4")]
    pub hi: Option<i64>,
    /// The ONNX node that needs it.
    #[prost(string, tag = "5")]
    pub why: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Plan {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    #[prost(message, repeated, tag = "2")]
    pub constants: Vec<Constant>,
    #[prost(message, repeated, tag = "3")]
    pub kernels: Vec<Kernel>,
}

/// A function of the model that can be called.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub inputs: Vec<Port>,
    #[prost(message, repeated, tag = "3")]
    pub outputs: Vec<Port>,
    #[prost(message, repeated, tag = "4")]
    pub buffers: Vec<Buffer>,
    #[prost(message, optional, tag = "5")]
    pub body: Option<Block>,
    /// Bytes of the arena.
    #[prost(string, tag = "6")]
    pub arena_bytes: String,
    /// Facts that the compiler assumed and a call must satisfy.
    #[prost(message, repeated, tag = "7")]
    pub checks: Vec<Check>,
    #[prost(message, repeated, tag = "8")]
    pub states: Vec<State>,
    /// Only [`Host`] steps of other entry points call it.
    #[prost(bool, tag = "9")]
    pub internal: bool,
    /// The entry point that this one is with some dimensions fixed: a call of that one, where the inputs have these, may
    /// run this one. It has the same ports in the same order. Empty where it is none's.
    #[prost(string, tag = "10")]
    pub specializes: String,
}

/// An output that is an input with more positions at the end of one axis: a key or value cache.
///
/// In memory, the axis of either has as many positions as its capacity symbol says; the buffer's size and the kernels
/// use that, the port's dimensions say how many are filled. A call may give both the same memory (and so the same
/// capacity): then only the new positions are written. Whoever carries the old ones over begins behind those that are
/// kept; or it is a launch of its own, which is left out. In any other call the capacities are the ports' own dimensions.
#[derive(Clone, PartialEq, Message)]
pub struct State {
    /// Index into `Entry.inputs`.
    #[prost(uint32, tag = "1")]
    pub input: u32,
    /// Index into `Entry.outputs`.
    #[prost(uint32, tag = "2")]
    pub output: u32,
    #[prost(uint32, tag = "3")]
    pub axis: u32,
    /// `Capacity` symbols; states whose dimensions agree may share them.
    #[prost(string, tag = "4")]
    pub input_capacity: String,
    #[prost(string, tag = "5")]
    pub output_capacity: String,
    /// A `Kept` symbol: as many positions as the input has where both are one memory, else 0. A launch that reads the
    /// input and writes the output reads and writes only what is behind them. Empty where there is no such launch.
    #[prost(string, tag = "6")]
    pub kept: String,
}

/// `left == right`. `max(a, b) == b` says `a <= b`.
#[derive(Clone, PartialEq, Message)]
pub struct Check {
    #[prost(string, tag = "1")]
    pub left: String,
    #[prost(string, tag = "2")]
    pub right: String,
    /// The ONNX node that needs it.
    #[prost(string, tag = "3")]
    pub why: String,
}

/// A named input or output. An input dimension that is one bare symbol binds it (the first such input does; later
/// ones must agree); a symbol without such a dimension is solved for where an expression has no other unknown
/// ([`crate::solve`]).
#[derive(Clone, PartialEq, Message)]
pub struct Port {
    #[prost(string, tag = "1")]
    pub name: String,
    /// ONNX `TensorProto.DataType` code.
    #[prost(int32, tag = "2")]
    pub dtype: i32,
    #[prost(string, repeated, tag = "3")]
    pub dims: Vec<String>,
    /// Index into `Entry.buffers`.
    #[prost(uint32, tag = "4")]
    pub buffer: u32,
    /// What it is made of where it is no tensor (see [`Kind`](crate::Kind)); else empty.
    #[prost(string, tag = "5")]
    pub kind: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Buffer {
    #[prost(string, tag = "1")]
    pub bytes: String,
    #[prost(oneof = "Place", tags = "2, 3, 4, 5, 6")]
    pub place: Option<Place>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Place {
    /// Index into `Entry.inputs`; read only.
    #[prost(uint32, tag = "2")]
    Input(u32),
    /// Index into `Entry.outputs`.
    #[prost(uint32, tag = "3")]
    Output(u32),
    /// Index into `Plan.constants`; read only.
    #[prost(uint32, tag = "4")]
    Constant(u32),
    /// Byte offset in the arena, a multiple of 64.
    #[prost(string, tag = "5")]
    Arena(String),
    /// A result of a [`Host`] step, which makes its memory.
    #[prost(message, tag = "6")]
    Value(Value),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Value {}

#[derive(Clone, PartialEq, Message)]
pub struct Block {
    #[prost(message, repeated, tag = "1")]
    pub steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Step {
    #[prost(oneof = "Action", tags = "1, 2, 3, 4")]
    pub action: Option<Action>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Action {
    #[prost(message, tag = "1")]
    Launch(Launch),
    #[prost(message, tag = "2")]
    Copy(Copy),
    #[prost(message, tag = "3")]
    Bind(Bind),
    #[prost(message, tag = "4")]
    Host(Host),
}

#[derive(Clone, PartialEq, Message)]
pub struct Launch {
    /// Index into `Plan.kernels`.
    #[prost(uint32, tag = "1")]
    pub kernel: u32,
    /// Indices into `Entry.buffers`, in the kernel's order.
    #[prost(uint32, repeated, tag = "2")]
    pub buffers: Vec<u32>,
    /// Values of the kernel's integer parameters.
    #[prost(string, repeated, tag = "3")]
    pub params: Vec<String>,
    /// Independent work items; the kernel is called on sub-ranges of `0..grid` from several threads.
    #[prost(string, tag = "4")]
    pub grid: String,
    /// Names of the ONNX nodes that it computes.
    #[prost(string, repeated, tag = "5")]
    pub origins: Vec<String>,
    /// It copies the input of this state, an index into `Entry.states`, to its output; nothing else does it read or
    /// write.
    #[prost(uint32, optional, tag = "6")]
    pub carries: Option<u32>,
}

/// Copies a whole buffer; both have the same size.
#[derive(Clone, PartialEq, Message)]
pub struct Copy {
    #[prost(uint32, tag = "1")]
    pub from: u32,
    #[prost(uint32, tag = "2")]
    pub to: u32,
}

/// Gives a `Data` symbol the value of the first i64 of a buffer.
#[derive(Clone, PartialEq, Message)]
pub struct Bind {
    #[prost(string, tag = "1")]
    pub symbol: String,
    #[prost(uint32, tag = "2")]
    pub buffer: u32,
}

/// Code of the runtime computes values, or calls other entry points. What follows knows the symbols that it binds.
#[derive(Clone, PartialEq, Message)]
pub struct Host {
    /// [`HostOp`](crate::HostOp) as text.
    #[prost(string, tag = "1")]
    pub op: String,
    #[prost(message, repeated, tag = "2")]
    pub args: Vec<Operand>,
    /// Those that something reads.
    #[prost(message, repeated, tag = "3")]
    pub results: Vec<HostResult>,
    /// Indices into `Plan.entries`, of internal ones behind this one: inputs are the operands in their order.
    #[prost(uint32, repeated, tag = "4")]
    pub bodies: Vec<u32>,
    /// Names of the ONNX nodes that it computes.
    #[prost(string, repeated, tag = "5")]
    pub origins: Vec<String>,
}

/// A buffer as the tensor that it holds.
#[derive(Clone, PartialEq, Message)]
pub struct Operand {
    /// Index into `Entry.buffers`.
    #[prost(uint32, tag = "1")]
    pub buffer: u32,
    /// ONNX `TensorProto.DataType` code.
    #[prost(int32, tag = "2")]
    pub dtype: i32,
    #[prost(string, repeated, tag = "3")]
    pub dims: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HostResult {
    /// Which one of the operation.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// Its place is a `Value`.
    #[prost(message, optional, tag = "2")]
    pub value: Option<Operand>,
    #[prost(message, repeated, tag = "3")]
    pub binds: Vec<Binding>,
}

/// Gives a `Data` symbol the size of a dimension.
#[derive(Clone, PartialEq, Message)]
pub struct Binding {
    #[prost(uint32, tag = "1")]
    pub axis: u32,
    #[prost(string, tag = "2")]
    pub symbol: String,
}

/// A constant in the `weights` entry.
#[derive(Clone, PartialEq, Message)]
pub struct Constant {
    #[prost(string, tag = "1")]
    pub name: String,
    /// ONNX `TensorProto.DataType` code.
    #[prost(int32, tag = "2")]
    pub dtype: i32,
    /// Byte offset in `weights`, a multiple of 64.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// `row_major`, or how it is packed.
    #[prost(string, tag = "5")]
    pub layout: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Kernel {
    /// Symbol in `cpu/x86_64.so`, without the variant's suffix.
    #[prost(string, tag = "1")]
    pub symbol: String,
    /// Per buffer: whether the kernel writes it. What it writes it does not read.
    #[prost(bool, repeated, tag = "2")]
    pub writes: Vec<bool>,
    #[prost(uint32, tag = "3")]
    pub params: u32,
    /// Scratch bytes per thread, over the kernel's parameters named `p0`, `p1`, …
    #[prost(string, tag = "4")]
    pub scratch_bytes: String,
    /// What family it is from: `contract`, `reduce`, `map`.
    #[prost(string, tag = "5")]
    pub class: String,
    /// What every launch with work must fulfil for the kernel to stay within its buffers: expressions over its
    /// parameters `p0`, `p1`, …, the bytes of its buffers `b0`, `b1`, … and `grid`, none of them negative.
    #[prost(string, repeated, tag = "20")]
    pub requires: Vec<String>,
    /// As `requires`; where one is negative, indices are read from data for something without elements.
    #[prost(string, repeated, tag = "21")]
    pub indexes: Vec<String>,
    /// How it is launched on GPUs: one for every `ptx/TARGET.ptx` of the artifact.
    #[prost(message, repeated, tag = "22")]
    pub targets: Vec<KernelTarget>,
    /// Operations on floating-point numbers of a launch, over `p0`, …, `b0`, …; empty where they are not counted.
    #[prost(string, tag = "23")]
    pub flops: String,
    /// Bytes that a launch reads and writes, each once.
    #[prost(string, tag = "24")]
    pub moved_bytes: String,
}

/// A kernel as an entry of a PTX module, `.visible .entry SYMBOL(b0, …, p0, …, status)`: addresses of its buffers, values
/// of its parameters, and the address of an i64 where it stores 1 when an index read from data was out of range (it then
/// reads element 0 instead).
#[derive(Clone, PartialEq, Message)]
pub struct KernelTarget {
    /// `sm_80`
    #[prost(string, tag = "1")]
    pub target: String,
    /// Blocks of the one-dimensional grid, over the kernel's parameters `p0`, `p1`, …; 0 is no launch.
    #[prost(string, tag = "2")]
    pub grid: String,
    /// Threads of a block.
    #[prost(uint32, tag = "3")]
    pub block: u32,
    /// Dynamic shared memory of a block, beside what the entry declares itself.
    #[prost(uint32, tag = "4")]
    pub shared_bytes: u32,
}

/// Limits of every GPU that PTX is emitted for.
pub const BLOCKS_MAX: i64 = (1 << 31) - 1;
pub const THREADS_MAX: u32 = 1024;
pub const SHARED_BYTES_MAX: u32 = 227 << 10;

/// What a symbol in the expressions of a [`Kernel`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchSymbol {
    /// `p3`: the launch's parameter 3.
    Param(usize),
    /// `b3`: the bytes of its buffer 3.
    BufferBytes(usize),
    /// `grid`: its work items.
    Grid,
}

impl LaunchSymbol {
    pub fn parse(name: &str) -> Option<LaunchSymbol> {
        let number = |mark| name.strip_prefix(mark).and_then(|n: &str| n.parse().ok());
        match name {
            "grid" => Some(LaunchSymbol::Grid),
            _ => number('p').map(LaunchSymbol::Param).or_else(|| number('b').map(LaunchSymbol::BufferBytes)),
        }
    }
}

/// The `selftest` entry: one call of `main` whose results are known, made when the artifact is loaded.
#[derive(Clone, PartialEq, Message)]
pub struct SelfTest {
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<Canary>,
    #[prost(message, repeated, tag = "2")]
    pub outputs: Vec<ExpectedOutput>,
}

/// A named tensor.
#[derive(Clone, PartialEq, Message)]
pub struct Canary {
    #[prost(string, tag = "1")]
    pub name: String,
    /// ONNX `TensorProto.DataType` code.
    #[prost(int32, tag = "2")]
    pub dtype: i32,
    #[prost(uint64, repeated, tag = "3")]
    pub dims: Vec<u64>,
    /// Little-endian, row-major.
    #[prost(bytes = "bytes", tag = "4")]
    pub data: prost::bytes::Bytes,
}

impl Canary {
    pub fn new(name: &str, tensor: &Tensor) -> Canary {
        Canary {
            name: name.to_string(),
            dtype: tensor.dtype().onnx_code(),
            dims: tensor.dims().iter().map(|&d| d as u64).collect(),
            data: tensor.bytes().clone(),
        }
    }

    /// Refuses a size that does not follow from type and dimensions.
    pub fn tensor(&self) -> Result<Tensor> {
        let dtype = DType::from_onnx(self.dtype);
        let dtype = dtype.ok_or_else(|| Error::user("E0107", format!("{} is no element type", self.dtype)))?;
        let dims: std::result::Result<Vec<usize>, _> = self.dims.iter().map(|&d| usize::try_from(d)).collect();
        let dims =
            dims.map_err(|_| Error::user("E0202", format!("the dimensions of `{}` are too large", self.name)))?;
        Tensor::new(dtype, dims, self.data.clone())
    }
}

/// Floats pass where |actual - expected| <= atol + rtol·|expected|.
#[derive(Clone, PartialEq, Message)]
pub struct ExpectedOutput {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<Canary>,
    #[prost(double, tag = "2")]
    pub rtol: f64,
    #[prost(double, tag = "3")]
    pub atol: f64,
}

/// Data of the code entry: the length as a little-endian u64, then a [`Plan`] with nothing but the kernels that the
/// code has. The plan's own must be the same. Code without it declares nothing.
pub const KERNELS_SYMBOL: &str = "sardonyx_kernels";

/// The same in PTX: a line with this comment and the message in hexadecimal.
pub const KERNELS_COMMENT: &str = "// sardonyx_kernels ";

/// What a kernel is called with: `void kernel(const KernelArgs *)`. The layout is the ABI; `version` guards it.
#[repr(C)]
pub struct KernelArgs {
    pub version: u32,
    pub n_buffers: u32,
    pub buffers: *const *mut u8,
    pub params: *const i64,
    /// This thread's scratch, 64-byte aligned.
    pub scratch: *mut u8,
    /// The work items `begin..end` of the launch's grid.
    pub begin: i64,
    pub end: i64,
    /// Shared by all threads of a launch; a kernel stores 1 where an index read from data was out of range (it then
    /// reads element 0 instead). Never cleared by a kernel.
    pub status: *mut i64,
}

pub const KERNEL_ABI_VERSION: u32 = 1;

pub type KernelFn = unsafe extern "C" fn(*const KernelArgs);
