//! the artifact's PTX on a GPU, through the driver of this machine, which is loaded when a GPU is first used
//!
//! Every session has a stream. A call waits for the stream at its end, and earlier only to read data back. An index
//! out of range is therefore reported only when the call waits. Deadline and cancellation are checked when the host
//! comes to a step and while it waits for other ranks, but not while it waits for the stream. Operations between two
//! waits that repeat earlier ones exactly are submitted as one launch of a CUDA graph, unless they are very few.

mod driver;
mod queue;
mod segment;
mod staging;

use super::ptx;
use super::{Block, Device, Gpu, Memory, Queue, Source, no_code};
use crate::pool::Threads;
use cudarc::driver::sys::{self, CUresult};
use driver::{Allocation, Context, Function, Module, Ordered, check};
use sardonyx_base::Result;
use std::num::NonZeroUsize;
use std::sync::Arc;

pub(super) struct Cuda {
    target: String,
    /// Functions of the module, indexed by the number of the kernel in the plan.
    functions: Vec<Function>,
    _module: Option<Module>,
    /// Stream for copies that belong to no call.
    copies: Ordered,
    context: Arc<Context>,
}

impl Cuda {
    pub fn open(number: u32, source: &Source) -> Result<Arc<dyn Device>> {
        let context = Arc::new(Context::open(number, source.place, source.context)?);
        let target = choose_target(source, context.capability()?)?;
        let (module, functions) = match ptx::module(source, &target)? {
            None => (None, vec![]),
            Some((text, entries)) => {
                let module = Module::load(&context, text)?;
                let functions = entries.into_iter().map(|entry| module.function(entry)).collect::<Result<_>>()?;
                (Some(module), functions)
            }
        };
        let copies = Ordered::new(&context)?;
        Ok(Arc::new(Cuda { target, functions, _module: module, copies, context }))
    }
}

/// Returns the newest PTX target of the artifact that this GPU can run: code for `sm_80` runs on GPUs of capability 8.0
/// and above, code for `sm_90a` only on those of 9.0. Errors: E0403 if there is none.
fn choose_target(source: &Source, capability: u32) -> Result<String> {
    let number = |target: &str| {
        let digits = target.strip_prefix("sm_")?;
        match digits.strip_suffix('a') {
            Some(exact) => exact.parse::<u32>().ok().filter(|n| *n == capability).map(|n| (n, true)),
            None => digits.parse::<u32>().ok().filter(|n| *n <= capability).map(|n| (n, false)),
        }
    };
    let usable = source.ptx.iter().filter_map(|(target, _)| Some((number(target)?, target)));
    match usable.max() {
        Some((_, target)) => Ok(ptx::selected(source, target)),
        None if source.program.kernels.is_empty() => Ok(String::new()),
        None => Err(no_code(source, &format!("sm_{capability}"), "cuda:sm_80")),
    }
}

impl Device for Cuda {
    fn memory(&self) -> Memory {
        Memory::Own { apart: false }
    }

    fn target(&self) -> Option<&str> {
        Some(&self.target).filter(|t| !t.is_empty()).map(String::as_str)
    }

    fn gpu(&self) -> Option<Gpu> {
        self.context.describe().ok()
    }

    fn wait_for(&self, stream: NonZeroUsize) -> Result<()> {
        Ordered::of_caller(&self.context, stream)?.wait()
    }

    fn allocate(self: Arc<Self>, bytes: usize, _: &dyn Fn() -> String) -> Result<Block> {
        let _here = self.context.enter()?;
        let mut address = 0;
        // SAFETY: the driver writes the address to the given location.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) };
        check(result, &format!("allocate {bytes} bytes")).map_err(|mut e| {
            let (mut free, mut total) = (0, 0);
            // SAFETY: the driver writes its results to the given locations.
            if unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) } == CUresult::CUDA_SUCCESS {
                e.message = format!("{}; {free} of {total} bytes are free", e.message);
            }
            e
        })?;
        Ok(Block::new(address, bytes, Allocation { context: self.context.clone(), address }))
    }

    fn write(&self, to: &Block, bytes: &[u8]) -> Result<()> {
        let address = to.range(0, bytes.len())?;
        let _here = self.context.enter()?;
        // SAFETY: the range is within the block, and the bytes live until the copy is done. Afterwards all streams may
        // read the block.
        let copied =
            unsafe { sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.copies.handle.0) };
        let waited = self.copies.wait();
        check(copied, "copy to the GPU").and(waited)
    }

    fn read(&self, from: &Block, at: usize, to: &mut [u8]) -> Result<()> {
        let address = from.range(at, to.len())?;
        let _here = self.context.enter()?;
        // SAFETY: the range is within the block, and the bytes live until the copy is done.
        let copied =
            unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), address, to.len(), self.copies.handle.0) };
        let waited = self.copies.wait();
        check(copied, "copy from the GPU").and(waited)
    }

    fn queue(self: Arc<Self>, _: Threads, stream: Option<NonZeroUsize>) -> Result<Box<dyn Queue>> {
        Ok(Box::new(queue::Stream::new(self, stream)?))
    }
}
