//! the artifact's PTX on a GPU, through the driver of this machine, which is loaded when a GPU is first used
//!
//! Every session has a stream. A call waits for it at its end, and earlier only to read data back. An index out of
//! range, or a deadline that passes during launches, is therefore reported only when the call waits.

use super::ptx::{self, Entry};
use super::{Address, Block, Device, Memory, Queue, Source, Work, no_code};
use crate::pool::Threads;
use crate::stop::Stop;
use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUresult};
use sardonyx_base::{Error, Result};
use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

/// A driver handle of a context, module or stream, which any thread may use after it has entered the context.
#[derive(Clone, Copy)]
struct Handle<T>(*mut T);

// SAFETY: the driver's functions may be called from every thread, after `Context::enter`.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// The driver's primary context of a GPU, shared with all other users of the GPU in this process.
struct Context {
    gpu: sys::CUdevice,
    handle: Handle<sys::CUctx_st>,
}

/// Guard during which the context is current on this thread; dropping it restores the previous one.
struct Entered {
    is_pushed: bool,
    /// The driver keeps a stack of contexts for each thread.
    _not_send: PhantomData<*mut ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut ours = std::ptr::null_mut();
        if self.is_pushed {
            // SAFETY: the driver writes its result to the given location; the context that was pushed here is on top.
            let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut ours) };
        }
    }
}

pub(super) struct Cuda {
    target: String,
    /// Functions of the module, by kernel of the plan.
    functions: Vec<Function>,
    _module: Option<Module>,
    /// Stream for copies that belong to no call.
    copies: Ordered,
    context: Arc<Context>,
}

/// A stream of the driver that does not wait for other streams.
struct Ordered {
    handle: Handle<sys::CUstream_st>,
    context: Arc<Context>,
}

struct Function {
    handle: Handle<sys::CUfunc_st>,
    entry: Entry,
}

struct Module {
    handle: Handle<sys::CUmod_st>,
    context: Arc<Context>,
}

/// Size of the buffer for messages of the driver's PTX compiler.
const LOG_BYTES: usize = 1 << 14;
/// Dynamic shared memory in bytes that a kernel can use without setting an attribute.
const SHARED_BYTES_FREE: u32 = 48 << 10;

impl Cuda {
    pub fn open(number: u32, source: &Source) -> Result<Arc<dyn Device>> {
        let context = Arc::new(Context::open(number, source.place)?);
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

/// Returns the best PTX target that this GPU can run: code for `sm_80` runs on GPUs of capability 8.0 and above, code
/// for `sm_90a` only on those of 9.0.
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
        Some((_, target)) => Ok(target.clone()),
        None if source.program.kernels.is_empty() => Ok(String::new()),
        None => Err(no_code(source, &format!("sm_{capability}"), "cuda:sm_80")),
    }
}

/// Converts the result of a driver call to an error.
fn check(result: CUresult, doing: &str) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver returns a constant string, or leaves null for an unknown code.
    let text = unsafe {
        let _ = sys::cuGetErrorString(result, &mut text);
        if text.is_null() { format!("{result:?}") } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    };
    if LOST.contains(&result) {
        return Err(Error::user("E0410", format!("the GPU was lost when it was to {doing}: {text}")));
    }
    let code = if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY { "E0304" } else { "E0405" };
    Err(Error::user(code, format!("the GPU's driver cannot {doing}: {text}")))
}

/// After these errors the context refuses all calls, and the driver creates no new context for the process (CUDA Driver
/// API, CUresult).
static LOST: &[CUresult] = &[
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
];

impl Context {
    /// Opens a GPU. The ranks of a host are spread round-robin over the GPUs from `number` on.
    fn open(number: u32, place: usize) -> Result<Context> {
        let remedy = "install NVIDIA's driver (`nvidia-smi` shows what it finds), or use `--device cpu`";
        // SAFETY: only checks whether the library can be loaded.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::user("E0405", "there is no CUDA driver: libcuda.so cannot be loaded").help(remedy));
        }
        let (mut n, mut gpu, mut handle) = (0, 0, std::ptr::null_mut());
        // SAFETY: the driver writes its results to the given locations.
        unsafe {
            check(sys::cuInit(0), "start").map_err(|e| e.help(remedy))?;
            check(sys::cuDeviceGetCount(&mut n), "count GPUs").map_err(|e| e.help(remedy))?;
            if i64::from(number) >= i64::from(n) {
                let message = format!("there is no GPU `cuda:{number}`; the driver knows {n}");
                return Err(Error::user("E0405", message).help(remedy));
            }
            let number = i64::from(number) + place as i64 % (i64::from(n) - i64::from(number));
            check(sys::cuDeviceGet(&mut gpu, number as i32), "find the GPU")?;
            check(sys::cuDevicePrimaryCtxRetain(&mut handle, gpu), "use the GPU")?;
        }
        Ok(Context { gpu, handle: Handle(handle) })
    }

    /// Makes the context current on this thread until the guard is dropped.
    fn enter(&self) -> Result<Entered> {
        let mut current = std::ptr::null_mut();
        // SAFETY: the driver writes its result to the given location; the context is retained until `self` is dropped.
        unsafe {
            check(sys::cuCtxGetCurrent(&mut current), "tell the context")?;
            let is_pushed = current != self.handle.0;
            if is_pushed {
                check(sys::cuCtxPushCurrent_v2(self.handle.0), "enter the context")?;
            }
            Ok(Entered { is_pushed, _not_send: PhantomData })
        }
    }

    /// Returns the compute capability, such as 80 for sm_80.
    fn capability(&self) -> Result<u32> {
        let (mut major, mut minor) = (0, 0);
        let doing = "tell the GPU's capability";
        // SAFETY: the driver writes its results to the given locations.
        unsafe {
            let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
            check(sys::cuDeviceGetAttribute(&mut major, attribute, self.gpu), doing)?;
            let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
            check(sys::cuDeviceGetAttribute(&mut minor, attribute, self.gpu), doing)?;
        }
        Ok(u32::try_from(10 * major + minor).unwrap_or(0))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once; its modules, streams and memory are gone, because each of them holds
        // the context.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.gpu) };
    }
}

impl Module {
    /// Lets the driver compile the PTX; the error contains its messages.
    fn load(context: &Arc<Context>, text: &str) -> Result<Module> {
        let image = CString::new(text).map_err(|_| Error::defect("PTX with a zero byte"))?;
        let _here = context.enter()?;
        let (mut handle, mut log) = (std::ptr::null_mut(), vec![0u8; LOG_BYTES]);
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver expects a number where the type is a pointer.
        let size = std::ptr::without_provenance_mut::<c_void>(LOG_BYTES);
        let mut values = [log.as_mut_ptr().cast(), size];
        // SAFETY: the text is zero-terminated, there are two options with two values, and the log has the given size.
        let loaded = unsafe {
            sys::cuModuleLoadDataEx(&mut handle, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        check(loaded, "compile the PTX").map_err(|mut e| {
            let said = log.split(|b| *b == 0).next().unwrap_or(&[]);
            let said = String::from_utf8_lossy(said);
            if !said.trim().is_empty() {
                e.message = format!("{}\n{}", e.message, said.trim());
            }
            e.help("use a driver for CUDA 12.0 or later, or compile the model again with this version")
        })?;
        Ok(Module { handle: Handle(handle), context: context.clone() })
    }

    fn function(&self, entry: Entry) -> Result<Function> {
        let mut handle = std::ptr::null_mut();
        let missing = || Error::user("E0401", format!("the PTX lacks the kernel `{}`", entry.symbol));
        let name = CString::new(entry.symbol.as_str()).map_err(|_| missing())?;
        let _here = self.context.enter()?;
        // SAFETY: the module is loaded and the name is zero-terminated.
        match unsafe { sys::cuModuleGetFunction(&mut handle, self.handle.0, name.as_ptr()) } {
            CUresult::CUDA_ERROR_NOT_FOUND => return Err(missing()),
            result => check(result, "find a kernel")?,
        }
        if entry.shared_bytes > SHARED_BYTES_FREE {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function belongs to a loaded module. `program::verify` bounds the number.
            let set = unsafe { sys::cuFuncSetAttribute(handle, attribute, entry.shared_bytes as i32) };
            check(set, "give a kernel its shared memory").map_err(|e| e.node(entry.symbol.clone()))?;
        }
        Ok(Function { handle: Handle(handle), entry })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: loaded once, unloaded once; users of its functions hold the device, and so the module.
            let _ = unsafe { sys::cuModuleUnload(self.handle.0) };
        }
    }
}

/// Memory of the GPU.
struct Allocation {
    context: Arc<Context>,
    address: Address,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: allocated once, freed once. The driver waits for work that still uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

impl Device for Cuda {
    fn memory(&self) -> Memory {
        Memory::Own { apart: false }
    }

    fn target(&self) -> Option<&str> {
        Some(&self.target).filter(|t| !t.is_empty()).map(String::as_str)
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
        // read it.
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

    fn queue(self: Arc<Self>, _: Threads) -> Result<Box<dyn Queue>> {
        let stream = Ordered::new(&self.context)?;
        Ok(Box::new(Stream { stream, device: self, status: None, n_steps: 0, values: vec![] }))
    }
}

impl Ordered {
    fn new(context: &Arc<Context>) -> Result<Ordered> {
        let _here = context.enter()?;
        let mut handle = std::ptr::null_mut();
        let flag = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes its result to the given location.
        check(unsafe { sys::cuStreamCreate(&mut handle, flag) }, "make a stream")?;
        Ok(Ordered { handle: Handle(handle), context: context.clone() })
    }

    fn wait(&self) -> Result<()> {
        let _here = self.context.enter()?;
        // SAFETY: the stream lives as long as `self`.
        check(unsafe { sys::cuStreamSynchronize(self.handle.0) }, "finish its work")
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: created once, destroyed once.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle.0) };
        }
    }
}

struct Stream {
    stream: Ordered,
    device: Arc<Cuda>,
    /// Status words: one of 8 bytes for each step of a call.
    status: Option<Block>,
    /// Number of steps of the current call; 0 between calls.
    n_steps: usize,
    /// Arguments of the launch under construction.
    values: Vec<u64>,
}

impl Queue for Stream {
    fn begin(&mut self, n_steps: usize) -> Result<()> {
        if self.status.as_ref().is_none_or(|status| status.bytes() < 8 * n_steps) {
            self.status = Some(self.device.clone().allocate(8 * n_steps, &String::new)?);
        }
        self.n_steps = n_steps;
        let Some(status) = self.status.as_ref().filter(|_| n_steps > 0) else { return Ok(()) };
        let _here = self.device.context.enter()?;
        // SAFETY: the status words belong to this queue, and have that size.
        check(unsafe { sys::cuMemsetD8Async(status.address(), 0, 8 * n_steps, self.stream.handle.0) }, "clear memory")
    }

    fn scratch_bytes(&self, _: usize) -> usize {
        0
    }

    fn reserve(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn trim(&mut self) -> usize {
        0
    }

    unsafe fn launch(&mut self, work: &Work, _: &Stop) -> Result<()> {
        let (Some(function), Some(status)) = (self.device.functions.get(work.kernel), &self.status) else {
            return Err(Error::defect("a launch without a module or outside of a call"));
        };
        if work.blocks == 0 {
            return Ok(());
        }
        self.values.clear();
        self.values.extend_from_slice(work.buffers);
        self.values.extend(work.params.iter().map(|p| *p as u64));
        self.values.push(status.range(8 * work.step, 8)?);
        let mut arguments: Vec<*mut c_void> = self.values.iter_mut().map(|v| (v as *mut u64).cast()).collect();
        let _here = self.device.context.enter()?;
        let Entry { block, shared_bytes, .. } = function.entry;
        let (kernel, stream) = (function.handle.0, self.stream.handle.0);
        // SAFETY: the entry declares as many arguments, each of 8 bytes (`program::verify`, and the declaration in the
        // PTX); the driver copies them before it returns. The caller guarantees the memory.
        let launched = unsafe {
            let (arguments, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
            sys::cuLaunchKernel(kernel, work.blocks, 1, 1, block, 1, 1, shared_bytes, stream, arguments, none)
        };
        check(launched, &format!("launch `{}`", function.entry.symbol))
    }

    unsafe fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<()> {
        let _here = self.device.context.enter()?;
        // SAFETY: the caller guarantees it.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream.handle.0) }, "copy on the GPU")
    }

    unsafe fn copy_rows(
        &mut self,
        (from, from_pitch): (Address, usize),
        (to, to_pitch): (Address, usize),
        width: usize,
        rows: usize,
    ) -> Result<()> {
        if width == 0 || rows == 0 {
            return Ok(());
        }
        let _here = self.device.context.enter()?;
        let what = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: from,
            srcArray: std::ptr::null_mut(),
            srcPitch: from_pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: to,
            dstArray: std::ptr::null_mut(),
            dstPitch: to_pitch,
            WidthInBytes: width,
            Height: rows,
        };
        // SAFETY: the caller guarantees it.
        check(unsafe { sys::cuMemcpy2DAsync_v2(&what, self.stream.handle.0) }, "copy on the GPU")
    }

    fn stream(&self) -> Result<Option<super::Stream>> {
        let here = self.device.context.enter()?;
        let mut id = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the driver writes its result to the given location.
        check(unsafe { sys::cuDeviceGetUuid_v2(&mut id, self.device.context.gpu) }, "tell the GPU's number")?;
        let (handle, gpu) = (self.stream.handle.0.cast(), id.bytes.map(|b| b as u8));
        Ok(Some(super::Stream { handle, gpu, _context: Box::new(here) }))
    }

    fn is_idle(&mut self) -> Result<bool> {
        let _here = self.device.context.enter()?;
        // SAFETY: the stream lives as long as `self`.
        match unsafe { sys::cuStreamQuery(self.stream.handle.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check(result, "finish its work").map(|()| true),
        }
    }

    unsafe fn upload(&mut self, from: &[u8], to: Address) -> Result<()> {
        let _here = self.device.context.enter()?;
        // SAFETY: the caller guarantees it.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.stream.handle.0) };
        check(copied, "copy to the GPU")
    }

    unsafe fn download(&mut self, from: Address, to: &mut [u8]) -> Result<()> {
        let _here = self.device.context.enter()?;
        // SAFETY: the caller guarantees it; the bytes are complete once the stream has been waited for.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.stream.handle.0) };
        let waited = self.stream.wait();
        check(copied, "copy from the GPU").and(waited)
    }

    fn finish(&mut self) -> Result<Option<usize>> {
        let n = std::mem::take(&mut self.n_steps);
        let mut words = vec![0; 8 * n];
        match self.status.as_ref().map(Block::address).filter(|_| n > 0) {
            // SAFETY: the status has a word for each step of the call.
            Some(status) => unsafe { self.download(status, &mut words) }?,
            None => self.stream.wait()?,
        }
        Ok(words.chunks_exact(8).position(|word| word.iter().any(|b| *b != 0)))
    }
}
