//! execution of the artifact's machine code on the threads of a session, in the host's memory

use super::{Address, Block, Device, Memory, Order, Queue, Source, Work, no_code};
use crate::code::Library;
use crate::memory::AlignedBuf;
use crate::pool::{Pool, Threads};
use crate::stop::Stop;
use sardonyx_base::cpu::{self, Level};
use sardonyx_base::plan::{KERNEL_ABI_VERSION, KernelArgs, KernelFn, Manifest};
use sardonyx_base::{Error, Result};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

pub(super) struct Cpu {
    /// Level of the code in use; absent if the plan has no kernels, since a plan that only copies runs on any CPU.
    level: Option<Level>,
    /// Functions of the library, in the plan's order; valid as long as `_library` lives.
    kernels: Vec<KernelFn>,
    _library: Option<Library>,
}

impl Cpu {
    pub fn open(source: &Source) -> Result<Arc<dyn Device>> {
        let kernels = &source.program.kernels;
        if kernels.is_empty() {
            return Ok(Arc::new(Cpu { level: None, kernels: vec![], _library: None }));
        }
        let Manifest { arch, variants, .. } = source.manifest;
        if arch.is_empty() {
            return Err(no_code(source, "cpu", "cpu"));
        }
        let level = cpu::select(arch, variants, source.level)?;
        let code = source.code.ok_or_else(|| no_code(source, "cpu", "cpu"))?;
        let library = Library::load(code, level.arch())?;
        library.check_declared(&source.plan.kernels)?;
        // Every variant that this CPU might run must be complete, not only the selected one.
        let variants = source.manifest.variants.iter().filter_map(|v| Level::from_name(v));
        for other in variants.filter(|level| level.is_here()) {
            library.kernels(kernels, other)?;
        }
        let kernels = library.kernels(kernels, level)?;
        Ok(Arc::new(Cpu { level: Some(level), kernels, _library: Some(library) }))
    }
}

impl Device for Cpu {
    fn memory(&self) -> Memory {
        Memory::Host
    }

    fn level(&self) -> Option<Level> {
        self.level
    }

    fn allocate(self: Arc<Self>, bytes: usize, _: &dyn Fn() -> String) -> Result<Block> {
        let memory = AlignedBuf::new(bytes)?;
        Ok(Block::new(address(memory.as_ptr()), memory.size(), memory))
    }

    fn write(&self, to: &Block, bytes: &[u8]) -> Result<()> {
        let to = pointer(to.range(0, bytes.len())?);
        // SAFETY: the range is within the block, whose memory nothing else uses meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    fn read(&self, from: &Block, at: usize, to: &mut [u8]) -> Result<()> {
        let from = pointer(from.range(at, to.len())?);
        // SAFETY: the range is within the block, whose memory nothing writes meanwhile; blocks are initialized.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn queue(self: Arc<Self>, threads: Threads, stream: Option<NonZeroUsize>) -> Result<Box<dyn Queue>> {
        super::without_stream(stream)?;
        Ok(Box::new(CpuQueue { pool: Pool::new(threads)?, scratch: AlignedBuf::new(0)?, device: self }))
    }
}

/// Returns the address of host memory, for kernels of a CPU.
pub(crate) fn address(start: *const u8) -> Address {
    start.expose_provenance() as Address
}

fn pointer(address: Address) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

struct CpuQueue {
    pool: Pool,
    scratch: AlignedBuf,
    device: Arc<Cpu>,
}

impl Queue for CpuQueue {
    fn begin(&mut self, _: usize) -> Result<()> {
        self.pool.begin_call();
        Ok(())
    }

    fn scratch_bytes(&self, per_worker: usize) -> usize {
        per_worker.saturating_mul(self.pool.threads())
    }

    fn reserve(&mut self, per_worker: usize) -> Result<()> {
        let bytes = per_worker.checked_mul(self.pool.threads());
        self.scratch.grow(bytes.ok_or_else(|| Error::user("E0202", "the size of the scratch overflows"))?, 0)
    }

    fn trim(&mut self) -> usize {
        let kept = self.scratch.size();
        // If not even the smallest block can be allocated, the scratch stays, and the result is 0.
        AlignedBuf::new(0).into_iter().for_each(|least| self.scratch = least);
        kept - self.scratch.size()
    }

    unsafe fn launch(&mut self, work: &Work, stop: &Stop) -> Result<()> {
        let status = AtomicI64::new(0);
        let pieces = Pieces {
            kernel: self.device.kernels[work.kernel],
            n_buffers: work.buffers.len() as u32,
            buffers: work.buffers.as_ptr().cast(),
            params: work.params.as_ptr(),
            scratch: self.scratch.as_ptr(),
            scratch_stride: work.scratch_bytes,
            status: status.as_ptr(),
        };
        // The arguments lie in the closure itself, so that they are one indirection away from the job.
        let piece = move |worker, begin, end| pieces.piece(worker, begin, end);
        if work.is_small || work.order == Order::Alone {
            piece(0, 0, work.items);
            stop.check()?;
        } else if work.order != Order::Any {
            let go_on = || !stop.possible() || stop.go_on();
            self.pool.for_each_again(work.items, work.order == Order::Back, &go_on, &piece);
            stop.check()?;
        } else if stop.possible() {
            self.pool.for_each_while(work.items, &|| stop.go_on(), &piece);
            stop.check()?;
        } else {
            self.pool.for_each(work.items, &piece);
        }
        match status.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(super::index_out_of_range()),
        }
    }

    unsafe fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<()> {
        // SAFETY: the caller guarantees it.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from), pointer(to), bytes) };
        Ok(())
    }

    unsafe fn upload(&mut self, from: &[u8], to: Address) -> Result<()> {
        // SAFETY: the caller guarantees it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), pointer(to), from.len()) };
        Ok(())
    }

    unsafe fn download(&mut self, from: Address, to: &mut [u8]) -> Result<()> {
        // SAFETY: the caller guarantees it.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<usize>> {
        self.pool.end_call();
        Ok(None)
    }
}

/// The arguments of a launch, as the threads share them.
struct Pieces {
    kernel: KernelFn,
    n_buffers: u32,
    buffers: *const *mut u8,
    params: *const i64,
    scratch: *mut u8,
    scratch_stride: usize,
    status: *mut i64,
}

// Kernels use addresses as pointers.
const _: () = assert!(size_of::<Address>() == size_of::<*mut u8>());

// SAFETY: the pointers outlive the launch, kernels write disjoint parts of their outputs, the scratch is split per
// worker, and the status is only ever set to 1.
unsafe impl Sync for Pieces {}

impl Pieces {
    fn piece(&self, worker: usize, begin: i64, end: i64) {
        let args = KernelArgs {
            version: KERNEL_ABI_VERSION,
            n_buffers: self.n_buffers,
            buffers: self.buffers,
            params: self.params,
            scratch: self.scratch.wrapping_add(worker * self.scratch_stride),
            begin,
            end,
            status: self.status,
        };
        // SAFETY: number and kind of buffers and parameters match the kernel (`program::verify`), and the caller of
        // `launch` guarantees the memory. The compiler guarantees what the kernel does with it.
        unsafe { (self.kernel)(&args) }
    }
}
