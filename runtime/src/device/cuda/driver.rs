//! the driver's contexts, modules, streams and memory  =>  values that release what they hold

use super::super::ptx::Entry;
use super::super::{Address, Gpu};
use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUresult};
use sardonyx_base::{Error, Result};
use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// A driver handle of a context, module or stream, which any thread may use after it has entered the context.
#[derive(Clone, Copy)]
pub struct Handle<T>(pub *mut T);

// SAFETY: the driver's functions may be called from every thread, after `Context::enter`.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// A context of a GPU: the driver's primary one, shared with other users of the GPU in this process, or the caller's.
pub struct Context {
    pub gpu: sys::CUdevice,
    handle: Handle<sys::CUctx_st>,
    is_primary: bool,
}

/// Guard during which the context is current on this thread; dropping it restores the previous one.
pub struct Entered {
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

/// A stream: one that does not synchronize implicitly with the default stream, or one of the caller.
pub struct Ordered {
    pub handle: Handle<sys::CUstream_st>,
    context: Arc<Context>,
    is_the_callers: bool,
}

pub struct Function {
    pub handle: Handle<sys::CUfunc_st>,
    pub entry: Entry,
}

pub struct Module {
    handle: Handle<sys::CUmod_st>,
    context: Arc<Context>,
}

/// Size of the buffer for messages of the driver's PTX compiler.
const LOG_BYTES: usize = 1 << 14;
/// Dynamic shared memory in bytes that a kernel can use without setting an attribute.
const SHARED_BYTES_FREE: u32 = 48 << 10;

/// Converts the result of a driver call to an error.
pub fn check(result: CUresult, doing: &str) -> Result<()> {
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
    /// Opens a GPU: in the context `given`, or in the primary context. The ranks of a host, numbered by `place`, are
    /// spread round-robin over the GPUs from `number` on.
    pub fn open(number: u32, place: usize, given: Option<NonZeroUsize>) -> Result<Context> {
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
            if let Some(given) = given {
                return Context::of_caller(given, gpu);
            }
            check(sys::cuDevicePrimaryCtxRetain(&mut handle, gpu), "use the GPU")?;
        }
        Ok(Context { gpu, handle: Handle(handle), is_primary: true })
    }

    /// Returns the name of the GPU, and the version of CUDA that its driver supports.
    pub fn describe(&self) -> Result<Gpu> {
        let (mut name, mut version) = ([0; 256], 0);
        // SAFETY: the driver writes at most this many bytes of text, with a 0 at its end, and the version.
        unsafe {
            check(sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, self.gpu), "tell the GPU's name")?;
            check(sys::cuDriverGetVersion(&mut version), "tell its version")?;
        }
        let name: Vec<u8> = name.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
        let driver = format!("{}.{}", version / 1000, version % 1000 / 10);
        Ok(Gpu { name: String::from_utf8_lossy(&name).into_owned(), driver })
    }

    fn of_caller(given: NonZeroUsize, gpu: sys::CUdevice) -> Result<Context> {
        let handle = Handle(std::ptr::with_exposed_provenance_mut(given.get()));
        let (context, mut own) = (Context { gpu, handle, is_primary: false }, 0);
        let _here = context.enter()?;
        // SAFETY: the driver writes its result to the given location.
        check(unsafe { sys::cuCtxGetDevice(&mut own) }, "tell the GPU of the context")?;
        if own != gpu {
            return Err(Error::user("E0001", format!("the context is one of GPU {own}, not of GPU {gpu}"))
                .help("name the GPU of the context as the device"));
        }
        Ok(context)
    }

    /// Makes the context current on this thread until the guard is dropped.
    pub fn enter(&self) -> Result<Entered> {
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
    pub fn capability(&self) -> Result<u32> {
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
        if self.is_primary {
            // SAFETY: retained once, released once; its modules, streams and memory are gone, because each of them
            // holds the context.
            let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.gpu) };
        }
    }
}

impl Module {
    /// Lets the driver compile the PTX; an error contains the driver's messages.
    pub fn load(context: &Arc<Context>, text: &str) -> Result<Module> {
        let image = CString::new(text).map_err(|_| Error::defect("PTX with a zero byte"))?;
        let _here = context.enter()?;
        let (mut handle, mut log) = (std::ptr::null_mut(), vec![0u8; LOG_BYTES]);
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver reads this option as a number, although its type is a pointer.
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

    pub fn function(&self, entry: Entry) -> Result<Function> {
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
pub struct Allocation {
    pub context: Arc<Context>,
    pub address: Address,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: allocated once, freed once. The driver waits for work that still uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

impl Ordered {
    pub fn new(context: &Arc<Context>) -> Result<Ordered> {
        let _here = context.enter()?;
        let mut handle = std::ptr::null_mut();
        let flag = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes its result to the given location.
        check(unsafe { sys::cuStreamCreate(&mut handle, flag) }, "make a stream")?;
        Ok(Ordered { handle: Handle(handle), context: context.clone(), is_the_callers: false })
    }

    /// Uses a stream of the caller. Errors: E0001 if it belongs to another context.
    pub fn of_caller(context: &Arc<Context>, given: NonZeroUsize) -> Result<Ordered> {
        let handle: Handle<sys::CUstream_st> = Handle(std::ptr::with_exposed_provenance_mut(given.get()));
        let mut own = std::ptr::null_mut();
        let _here = context.enter()?;
        // SAFETY: the caller guarantees the stream; the driver writes its result to the given location.
        check(unsafe { sys::cuStreamGetCtx(handle.0, &mut own) }, "tell the context of the stream")?;
        if own != context.handle.0 {
            return Err(Error::user("E0001", "the stream belongs to another context than the model")
                .help("load the model in the stream's context"));
        }
        Ok(Ordered { handle, context: context.clone(), is_the_callers: true })
    }

    pub fn wait(&self) -> Result<()> {
        let _here = self.context.enter()?;
        // SAFETY: the stream lives as long as `self`.
        check(unsafe { sys::cuStreamSynchronize(self.handle.0) }, "finish its work")
    }
}

impl Drop for Ordered {
    fn drop(&mut self) {
        if self.is_the_callers {
            return;
        }
        if let Ok(_here) = self.context.enter() {
            // SAFETY: created once, destroyed once.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle.0) };
        }
    }
}

/// An executable graph: a sequence of work that the driver launches at once.
pub struct Graph {
    handle: Handle<sys::CUgraphExec_st>,
    context: Arc<Context>,
}

impl Graph {
    /// Records the work that `enqueue` enqueues on `stream`. This stream serves for recording only, so that neither
    /// work on other streams nor other threads are affected.
    pub fn record(stream: &Ordered, enqueue: impl FnOnce(sys::CUstream) -> Result<()>) -> Result<Graph> {
        let _here = stream.context.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let (mut graph, mut handle) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the stream lives, and the driver writes its results to the given locations. A capture that has begun
        // is ended, and the graph is destroyed after it was made executable.
        unsafe {
            check(sys::cuStreamBeginCapture_v2(stream.handle.0, mode), "record a graph")?;
            let enqueued = enqueue(stream.handle.0);
            let ended = check(sys::cuStreamEndCapture(stream.handle.0, &mut graph), "record a graph");
            let made = enqueued
                .and(ended)
                .and_then(|()| check(sys::cuGraphInstantiateWithFlags(&mut handle, graph, 0), "make a graph"));
            if !graph.is_null() {
                let _ = sys::cuGraphDestroy(graph);
            }
            made?;
        }
        Ok(Graph { handle: Handle(handle), context: stream.context.clone() })
    }

    /// Enqueues the work on a stream.
    ///
    /// # Safety
    /// The requirements of the recorded work hold, and all memory that it uses is still allocated.
    pub unsafe fn launch(&self, stream: &Ordered) -> Result<()> {
        // SAFETY: the caller guarantees the work; graph and stream live.
        check(unsafe { sys::cuGraphLaunch(self.handle.0, stream.handle.0) }, "launch a graph")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: made once, destroyed once.
            let _ = unsafe { sys::cuGraphExecDestroy(self.handle.0) };
        }
    }
}

/// A point in a stream whose time is recorded.
pub struct Event {
    handle: Handle<sys::CUevent_st>,
    context: Arc<Context>,
}

impl Event {
    pub fn new(context: &Arc<Context>) -> Result<Event> {
        let _here = context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the driver writes its result to the given location.
        check(unsafe { sys::cuEventCreate(&mut handle, 0) }, "make an event")?;
        Ok(Event { handle: Handle(handle), context: context.clone() })
    }

    /// Records the time at which all earlier work on the stream is done. `in_graph` must be set if the stream records a
    /// graph.
    pub fn record(&self, stream: sys::CUstream, in_graph: bool) -> Result<()> {
        // 1 is CU_EVENT_RECORD_EXTERNAL: every launch of the graph records the event.
        // SAFETY: the event lives; the caller's stream does too.
        let recorded = unsafe { sys::cuEventRecordWithFlags(self.handle.0, stream, u32::from(in_graph)) };
        check(recorded, "record an event")
    }

    /// Returns the time from another event to this one. Both must have been waited for.
    pub fn since(&self, start: &Event) -> Result<Duration> {
        let _here = self.context.enter()?;
        let mut ms = 0f32;
        // SAFETY: both events live, and the driver writes its result to the given location.
        check(unsafe { sys::cuEventElapsedTime(&mut ms, start.handle.0, self.handle.0) }, "tell a time")?;
        Ok(Duration::try_from_secs_f32(ms / 1e3).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: made once, destroyed once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle.0) };
        }
    }
}

/// Page-locked memory of the host, which the GPU reads and writes itself.
pub struct Pinned {
    start: Handle<c_void>,
    bytes: usize,
    context: Arc<Context>,
}

impl Pinned {
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Pinned> {
        let _here = context.enter()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: the driver writes the address to the given location.
        let result = unsafe { sys::cuMemHostAlloc(&mut start, bytes, 0) };
        check(result, &format!("allocate {bytes} page-locked bytes of the host"))?;
        Ok(Pinned { start: Handle(start), bytes, context: context.clone() })
    }

    pub fn start(&self) -> *mut u8 {
        self.start.0.cast()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Ok(_here) = self.context.enter() {
            // SAFETY: allocated once, freed once, after all copies have been waited for.
            let _ = unsafe { sys::cuMemFreeHost(self.start.0) };
        }
    }
}
