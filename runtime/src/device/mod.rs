//! `cpu`, `sim:sm_80`, `cuda:0`  =>  memory, and a queue for launches of kernels
//!
//! | device | kernels | memory |
//! |---|---|---|
//! | `cpu` | the artifact's machine code, split over threads | that of the caller and the session, in place |
//! | `sim:sm_80` | the artifact's PTX, executed by `ptxvm` with all its checks | its own, every buffer separate |
//! | `cuda:N` | the artifact's PTX, compiled by the driver | its own, kept from call to call |
//!
//! One executor of plans (`call.rs`) serves all devices. A device is opened with the artifact's code for one model, and
//! shared by the model's sessions, each of which has a queue.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod name;
#[cfg(any(feature = "cuda", feature = "sim"))]
mod ptx;
mod report;
#[cfg(feature = "sim")]
mod sim;

pub(crate) use cpu::address as host_address;
pub use name::DeviceName;
pub use report::{DeviceReport, Finding};

use crate::pool::Threads;
use crate::program::Program;
use crate::stop::Stop;
use bytes::Bytes;
use sardonyx_base::cpu::Level;
use sardonyx_base::plan::Manifest;
use sardonyx_base::plan::messages::Plan;
use sardonyx_base::{Error, Result};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// A location in a device's memory: on the CPU a pointer, elsewhere a number that only the device can interpret.
pub(crate) type Address = u64;

/// The parts of an artifact that a device needs.
pub(crate) struct Source<'a> {
    pub manifest: &'a Manifest,
    pub plan: &'a Plan,
    pub program: &'a Program,
    /// Index of the rank among those of its host.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only GPUs are several"))]
    pub place: usize,
    /// The context of the GPU to use, if the caller has one.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only GPUs have contexts"))]
    pub context: Option<NonZeroUsize>,
    pub code: Option<&'a Bytes>,
    pub ptx: &'a [(String, Bytes)],
    /// Index of the choice of tiles whose code is loaded, in an artifact for measuring tiles; otherwise 0.
    #[cfg_attr(not(any(feature = "cuda", feature = "sim")), expect(dead_code, reason = "only GPUs have tiles"))]
    pub candidate: usize,
    /// The highest variant of CPU code to use.
    pub level: Option<Level>,
}

/// The memory that kernels work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The host's memory: nothing is uploaded or downloaded.
    Host,
    /// The device's own memory. Inputs are uploaded, outputs downloaded.
    Own {
        /// Whether every buffer gets new memory in every call, so that accesses out of bounds and reads of unwritten
        /// memory can be detected.
        apart: bool,
    },
}

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name, such as `NVIDIA A100-SXM4-40GB`.
    pub name: String,
    /// The version of CUDA that its driver supports, such as `13.0`.
    pub driver: String,
}

/// A device, with the kernels of one artifact.
pub(crate) trait Device: Send + Sync {
    fn memory(&self) -> Memory;

    /// The variant of CPU code in use.
    fn level(&self) -> Option<Level> {
        None
    }

    /// The PTX target whose kernels run, and whose launch parameters are used; `None` on a CPU.
    fn target(&self) -> Option<&str> {
        None
    }

    /// The GPU; `None` for other devices.
    fn gpu(&self) -> Option<Gpu> {
        None
    }

    /// Allocates memory that is freed when the block is dropped; `name` describes it in messages. Errors: E0304.
    fn allocate(self: Arc<Self>, bytes: usize, name: &dyn Fn() -> String) -> Result<Block>;

    /// Writes to the beginning of a block. No queue may use the block meanwhile.
    fn write(&self, to: &Block, bytes: &[u8]) -> Result<()>;

    /// Reads a block from byte `at` on. No queue may write the block meanwhile.
    fn read(&self, from: &Block, at: usize, to: &mut [u8]) -> Result<()>;

    /// Creates a queue, on a stream of the caller if there is one. Errors: E0001 if the device has no streams or the
    /// stream belongs to another context, E0304 if a thread cannot be started or pinned.
    fn queue(self: Arc<Self>, threads: Threads, stream: Option<NonZeroUsize>) -> Result<Box<dyn Queue>>;

    /// Waits for work on a stream of the caller. Errors: E0001 if it belongs to another context, E0405 and E0410 of the
    /// driver, a defect if the device has no streams.
    fn wait_for(&self, _stream: NonZeroUsize) -> Result<()> {
        Err(Error::defect("a stream of a device that has none"))
    }

    /// Records in the report that the host computes a step of a call instead of this device.
    fn host_computes(&self) {}

    /// Returns the launches and findings of a simulated device so far.
    fn report(&self) -> Option<DeviceReport> {
        None
    }
}

/// A queue, in which the work of one session is done in order.
///
/// # Safety
/// For all unsafe methods: the addresses are in memory of this device, which has the size that the plan computes and
/// lives until `finish` has returned; sources and destinations do not overlap; nothing else uses the destinations.
pub(crate) trait Queue: Send {
    /// Prepares for a call with this many steps.
    fn begin(&mut self, n_steps: usize) -> Result<()>;

    /// Returns the scratch bytes of all workers together.
    fn scratch_bytes(&self, per_worker: usize) -> usize;

    /// Allocates `per_worker` bytes of scratch for every worker.
    fn reserve(&mut self, per_worker: usize) -> Result<()>;

    /// Frees the memory that the queue keeps from call to call; may be called between calls only. Returns the number of
    /// bytes.
    fn trim(&mut self) -> usize;

    /// Launches a kernel. Errors: E0303 if an index is found out of range at once, E0305 and E0306 from `stop`.
    unsafe fn launch(&mut self, work: &Work, stop: &Stop) -> Result<()>;

    unsafe fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<()>;

    /// Copies `rows` rows of `width` bytes, which are `from_pitch` and `to_pitch` bytes apart.
    #[cfg(feature = "cuda")]
    unsafe fn copy_rows(
        &mut self,
        (from, from_pitch): (Address, usize),
        (to, to_pitch): (Address, usize),
        width: usize,
        rows: usize,
    ) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let row = |i: usize| unsafe { self.copy(from + (i * from_pitch) as u64, to + (i * to_pitch) as u64, width) };
        (0..rows).try_for_each(row)
    }

    /// Returns the GPU stream, where libraries can enqueue work too; `None` on other devices.
    #[cfg(feature = "cuda")]
    fn stream(&mut self) -> Result<Option<Stream>> {
        Ok(None)
    }

    /// Whether all work so far is done; does not wait.
    #[cfg(feature = "cuda")]
    fn is_idle(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Copies bytes to the device. The source must live until `finish`.
    unsafe fn upload(&mut self, from: &[u8], to: Address) -> Result<()>;

    /// Copies bytes to the host, after all work so far is done.
    unsafe fn download(&mut self, from: Address, to: &mut [u8]) -> Result<()>;

    /// Waits until all work is done. Returns the first step of the call in which an index read from data was out of
    /// range, unless `launch` has already reported it.
    fn finish(&mut self) -> Result<Option<usize>>;

    /// As `finish`, and copies results of the call to the host, unless an index was out of range.
    unsafe fn finish_and_read(&mut self, results: &mut [(Address, &mut [u8])]) -> Result<Option<usize>> {
        let failed = self.finish()?;
        for (from, to) in results.iter_mut().filter(|_| failed.is_none()) {
            // SAFETY: the caller guarantees it.
            unsafe { self.download(*from, to) }?;
        }
        Ok(failed)
    }

    /// Drops the work of a failed call that has not been submitted; `finish` follows.
    fn discard(&mut self) {}

    /// Records the time at which all work so far is done. Returns whether the device can record times; if it cannot,
    /// the caller measures how long `launch` takes.
    fn mark(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Returns the recorded times of a call that has finished, relative to the first of them.
    fn times(&mut self) -> Result<Vec<Duration>> {
        Ok(vec![])
    }
}

/// The stream of a queue on a GPU, whose context is current on this thread while this value lives.
#[cfg(feature = "cuda")]
pub(crate) struct Stream {
    pub handle: *mut std::ffi::c_void,
    /// UUID of the GPU.
    pub gpu: [u8; 16],
    _context: Box<dyn std::any::Any>,
}

/// A launch as a device runs it: a kernel, addresses of buffers, and evaluated parameters.
#[cfg_attr(not(any(feature = "cuda", feature = "sim")), expect(dead_code, reason = "the CPU needs only a part"))]
pub(crate) struct Work<'a> {
    pub kernel: usize,
    pub step: usize,
    pub buffers: &'a [Address],
    pub params: &'a [i64],
    /// Number of work items, for devices that split them.
    pub items: i64,
    /// Whether all items together are so few that one thread computes them.
    pub is_small: bool,
    /// Number of blocks of threads, for devices that run PTX.
    pub blocks: u32,
    /// Scratch bytes of each worker.
    pub scratch_bytes: usize,
    pub order: Order,
}

/// The order of a launch's work items, for devices that split them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Any,
    /// The launch is repeated, and each worker begins with the same part of the items every time: in ascending order
    /// (`Forth`) and descending order (`Back`) alternately, so that it starts with the data that is most likely still
    /// in its cache.
    Forth,
    Back,
    /// The caller's thread computes all items.
    Alone,
}

/// Memory of a device, freed when it is dropped.
pub(crate) struct Block {
    address: Address,
    bytes: usize,
    _owner: Box<dyn Send + Sync>,
}

impl Block {
    pub fn new(address: Address, bytes: usize, owner: impl Send + Sync + 'static) -> Block {
        Block { address, bytes, _owner: Box::new(owner) }
    }

    pub fn address(&self) -> Address {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of a range within the block. Errors: E0901.
    fn range(&self, at: usize, bytes: usize) -> Result<Address> {
        match at.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + at as u64),
            _ => Err(Error::defect(format!("{bytes} bytes at {at} of a block of {}", self.bytes))),
        }
    }
}

/// Opens a device. Errors: E0401 if the code is damaged, E0403 if the artifact has no code for the device, E0405 if the
/// device is unavailable.
pub(crate) fn open(name: &DeviceName, source: &Source) -> Result<Arc<dyn Device>> {
    match name {
        DeviceName::Cpu => cpu::Cpu::open(source),
        #[cfg(feature = "sim")]
        DeviceName::Sim(target) => sim::Sim::open(target, source),
        #[cfg(feature = "cuda")]
        DeviceName::Cuda(number) => cuda::Cuda::open(*number, source),
        #[cfg(not(feature = "sim"))]
        DeviceName::Sim(_) => Err(left_out("sim", name)),
        #[cfg(not(feature = "cuda"))]
        DeviceName::Cuda(_) => Err(left_out("cuda", name)),
    }
}

#[cfg(not(all(feature = "cuda", feature = "sim")))]
fn left_out(feature: &str, name: &DeviceName) -> Box<Error> {
    let help = format!("build sardonyx-runtime with the feature `{feature}`, or use `--device cpu`");
    Error::user("E0405", format!("this program was built without devices such as `{name}`")).help(help)
}

/// Lists the targets that an artifact has code for: `cpu`, `sm_80`.
fn targets(source: &Source) -> String {
    let cpu = source.code.map(|_| "`cpu`".to_string());
    // Candidates of tiles are not targets of their own.
    let gpus = source.ptx.iter().filter(|(target, _)| !target.contains('~'));
    let all: Vec<String> = cpu.into_iter().chain(gpus.map(|(t, _)| format!("`{t}`"))).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

/// Returns the error for an artifact that was not compiled for this device.
fn no_code(source: &Source, wanted: &str, option: &str) -> Box<Error> {
    let message = format!("the artifact has no code for `{wanted}`, only for {}", targets(source));
    Error::user("E0403", message).help(format!("compile the model with `--target {option}`"))
}

/// Refuses a stream on a device that has none.
fn without_stream(stream: Option<NonZeroUsize>) -> Result<()> {
    match stream {
        None => Ok(()),
        Some(_) => Err(Error::user("E0001", "a stream is for a model on a GPU").help("open the session without one")),
    }
}

pub(crate) fn index_out_of_range() -> Box<Error> {
    Error::user("E0303", "an index read from the data is out of range")
}
