//! `cpu`, `sim:sm_80`, `cuda:0`  =>  memory, and a queue that kernels are launched into
//!
//! | device | kernels | memory |
//! |---|---|---|
//! | `cpu` | the artifact's machine code, split over threads | the caller's and ours, in place |
//! | `sim:sm_80` | the artifact's PTX, executed by `ptxvm` with all its checks | its own, every buffer apart |
//! | `cuda:N` | the artifact's PTX, compiled by the driver | its own, kept from call to call |
//!
//! A plan has one executor (`call.rs`) for all of them. A device is opened with the artifact's code for one model and
//! shared by its sessions, each of which has a queue.

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
use std::sync::Arc;

/// A place in a device's memory: on the CPU a pointer, elsewhere a number that only the device understands.
pub(crate) type Address = u64;

/// What a device is given of an artifact.
pub(crate) struct Source<'a> {
    pub manifest: &'a Manifest,
    pub plan: &'a Plan,
    pub program: &'a Program,
    /// Of the rank among those of its host.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only GPUs are several"))]
    pub place: usize,
    pub code: Option<&'a Bytes>,
    pub ptx: &'a [(String, Bytes)],
    /// The highest variant of CPU code to use.
    pub level: Option<Level>,
}

/// Whose memory kernels work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// That of the host: nothing is copied.
    Host,
    /// The device's own. Inputs are uploaded, outputs downloaded.
    Own {
        /// Every buffer gets new memory in every call, so that accesses beyond one, and reads of what nobody wrote, can
        /// be seen.
        apart: bool,
    },
}

/// A device, with the kernels of one artifact.
pub(crate) trait Device: Send + Sync {
    fn memory(&self) -> Memory;

    /// The variant of CPU code in use.
    fn level(&self) -> Option<Level> {
        None
    }

    /// The target whose launches the plan describes.
    fn target(&self) -> Option<&str> {
        None
    }

    /// Memory that is given back when the block is dropped; `name` is for messages about it. Errors: E0304.
    fn allocate(self: Arc<Self>, bytes: usize, name: &dyn Fn() -> String) -> Result<Block>;

    /// Fills the beginning of a block, in which no queue works meanwhile.
    fn write(&self, to: &Block, bytes: &[u8]) -> Result<()>;

    /// Reads from byte `at` of a block on, in which no queue works meanwhile.
    fn read(&self, from: &Block, at: usize, to: &mut [u8]) -> Result<()>;

    fn queue(self: Arc<Self>, threads: Threads) -> Result<Box<dyn Queue>>;

    /// What a simulated device has seen so far.
    fn report(&self) -> Option<DeviceReport> {
        None
    }
}

/// The order in which a session's work is done.
///
/// # Safety
/// For all unsafe methods: the addresses are of this device's memory, which has the size that the plan says and lives
/// until `finish` has returned; what is read and what is written do not overlap; nothing else uses what is written.
pub(crate) trait Queue: Send {
    /// Makes ready for a call of so many steps.
    fn begin(&mut self, n_steps: usize) -> Result<()>;

    /// Scratch that launches which need so much per worker take together.
    fn scratch_bytes(&self, per_worker: usize) -> usize;

    /// Sees to it that there is that scratch.
    fn reserve(&mut self, per_worker: usize) -> Result<()>;

    /// Gives the scratch back, outside of calls, and returns how many bytes it was.
    fn trim(&mut self) -> usize;

    /// Errors: E0303 where it is known at once that an index was out of range, E0305 and E0306 by `stop`.
    unsafe fn launch(&mut self, work: &Work, stop: &Stop) -> Result<()>;

    unsafe fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<()>;

    /// Copies `rows` pieces of `width` bytes, each so many bytes behind the one before it.
    #[cfg(feature = "cuda")]
    unsafe fn copy_rows(
        &mut self,
        (from, from_pitch): (Address, usize),
        (to, to_pitch): (Address, usize),
        width: usize,
        rows: usize,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        let row = |i: usize| unsafe { self.copy(from + (i * from_pitch) as u64, to + (i * to_pitch) as u64, width) };
        (0..rows).try_for_each(row)
    }

    /// Where libraries can be given work too.
    #[cfg(feature = "cuda")]
    fn stream(&self) -> Result<Option<Stream>> {
        Ok(None)
    }

    /// Whether all work so far is done, without waiting for it.
    #[cfg(feature = "cuda")]
    fn is_idle(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// The bytes are the queue's until `finish`.
    unsafe fn upload(&mut self, from: &[u8], to: Address) -> Result<()>;

    /// Waits for all work so far.
    unsafe fn download(&mut self, from: Address, to: &mut [u8]) -> Result<()>;

    /// Waits until all is done. Gives the first step of the call in which an index read from data was out of range, if
    /// `launch` has not told.
    fn finish(&mut self) -> Result<Option<usize>>;
}

/// A queue of a GPU, whose context is this thread's as long as this is there.
#[cfg(feature = "cuda")]
pub(crate) struct Stream {
    pub handle: *mut std::ffi::c_void,
    /// The GPU's own number.
    pub gpu: [u8; 16],
    _context: Box<dyn std::any::Any>,
}

/// A launch as the device sees it.
#[cfg_attr(not(any(feature = "cuda", feature = "sim")), expect(dead_code, reason = "the CPU needs only a part"))]
pub(crate) struct Work<'a> {
    pub kernel: usize,
    pub step: usize,
    pub buffers: &'a [Address],
    pub params: &'a [i64],
    /// Work items, for devices that split them.
    pub items: i64,
    /// Blocks of threads, for those with PTX.
    pub blocks: u32,
    /// Of each worker.
    pub scratch_bytes: usize,
    pub order: Order,
}

/// The order of a launch's work items, for devices that split them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Any,
    /// A launch is repeated: each worker takes the same items again, from the first on or from the last, so that it
    /// begins with what it read last, which is still near.
    Forth,
    Back,
}

/// Memory of a device, given back when it is dropped.
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

    /// The address of a range within the block. Errors: E0901.
    fn range(&self, at: usize, bytes: usize) -> Result<Address> {
        match at.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + at as u64),
            _ => Err(Error::defect(format!("{bytes} bytes at {at} of a block of {}", self.bytes))),
        }
    }
}

/// Errors: E0401 where the code is damaged, E0403 where the artifact has none for the device, E0405 where the device
/// cannot be used.
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

/// What an artifact has code for: `cpu`, `sm_80`.
fn targets(source: &Source) -> String {
    let cpu = source.code.map(|_| "`cpu`".to_string());
    let all: Vec<String> = cpu.into_iter().chain(source.ptx.iter().map(|(t, _)| format!("`{t}`"))).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

/// The artifact was not compiled for this device.
fn no_code(source: &Source, wanted: &str, option: &str) -> Box<Error> {
    let message = format!("the artifact has no code for `{wanted}`, only for {}", targets(source));
    Error::user("E0403", message).help(format!("compile the model with `--target {option}`"))
}

pub(crate) fn index_out_of_range() -> Box<Error> {
    Error::user("E0303", "an index read from the data is out of range")
}
