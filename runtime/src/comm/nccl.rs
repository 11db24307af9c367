//! ranks that have a GPU each  =>  collectives from GPU to GPU, through NCCL
//!
//! The library is loaded when ranks first exchange something on GPUs. Over their link, the ranks tell each other
//! whether they have the library, and which GPU they use: if one lacks the library, or two use the same GPU, all ranks
//! exchange through the memory of their hosts, and [`Meeting::how`] returns the reason. Calls of the library are
//! non-blocking. A rank that waits for its GPU checks whether another rank has failed and whether the call must stop,
//! and if so, aborts what it has begun. After a call that failed, all ranks join anew.
//!
//! cudarc's bindings of the NCCL functions are not used: they look for other file names than the one under which NCCL
//! is installed, and panic if a function is missing. The types that cudarc declares are used.

use super::library::{self, functions};
use super::link::fitting;
use super::link::{Exchange, Link};
use crate::device::{Address, Queue};
use crate::stop::Stop;
use cudarc::nccl::sys::{ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};
use sardonyx_base::host::Collective;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::schedule::Operand;
use sardonyx_base::{DType, Error, Result};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Environment variable with the path of a library to load instead of `NAMES`.
const LIBRARY: &str = "SARDONYX_NCCL";
static NAMES: &[&str] = &["libnccl.so.2", "libnccl.so"];
/// The oldest supported version, as a number and as text: the first with non-blocking variants of all calls.
const OLDEST: (c_int, &str) = (21800, "2.18");
/// The magic number of a communicator's configuration in every version, and the version of the configuration that is
/// passed.
const MAGIC: u32 = 0xcafe_beef;
const CONFIGURED: u32 = 22400;
/// Value of an option that leaves the choice to the library.
const UNSET: c_int = c_int::MIN;

type Comm = *mut c_void;
type Stream = *mut c_void;

functions! {
    version: "ncclGetVersion" (*mut c_int);
    unique_id: "ncclGetUniqueId" (*mut ncclUniqueId);
    init: "ncclCommInitRankConfig" (*mut Comm, c_int, ncclUniqueId, c_int, *mut ncclConfig_t);
    abort: "ncclCommAbort" (Comm);
    async_error: "ncclCommGetAsyncError" (Comm, *mut c_int);
    group_start: "ncclGroupStart" ();
    group_end: "ncclGroupEnd" ();
    all_reduce: "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream);
    all_gather: "ncclAllGather" (*const c_void, *mut c_void, usize, c_int, Comm, Stream);
    broadcast: "ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream);
}

struct Library {
    functions: Functions,
    error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    version: c_int,
}

/// Loads the library once. Returns it, or why it is unavailable.
fn library() -> &'static std::result::Result<Library, String> {
    static KNOWN: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let (handle, name) = library::open(NAMES, LIBRARY)?;
        let lacks = |symbol: &str| format!("{name} has no function `{symbol}`");
        let functions = Functions::load(handle).map_err(lacks)?;
        let text = library::symbol(handle, "ncclGetErrorString\0").ok_or_else(|| lacks("ncclGetErrorString"))?;
        // SAFETY: the function of this name has this type in every version.
        let error_text =
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(text) };
        let mut version = 0;
        // SAFETY: the library writes its result to the given location.
        if unsafe { (functions.version)(&mut version) } != 0 || version < OLDEST.0 {
            return Err(format!("{name} is NCCL {}, older than {}", shown(version), OLDEST.1));
        }
        Ok(Library { functions, error_text, version })
    })
}

/// Formats a version: 22403 is 2.24.3.
fn shown(version: c_int) -> String {
    format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)
}

impl Library {
    fn error(&self, code: c_int, doing: &str) -> Box<Error> {
        // SAFETY: the library returns a constant string for every code.
        let text = unsafe { CStr::from_ptr((self.error_text)(code)) }.to_string_lossy();
        Error::user("E0408", format!("NCCL cannot {doing}: {text}")).help("`NCCL_DEBUG=WARN` has it say more")
    }

    /// Checks the result of a call; a call in progress is not an error.
    fn check(&self, code: c_int, doing: &str) -> Result<()> {
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            _ => Err(self.error(code, doing)),
        }
    }
}

const SUCCESS: c_int = ncclResult_t::ncclSuccess as c_int;
const IN_PROGRESS: c_int = ncclResult_t::ncclInProgress as c_int;
const BYTES: c_int = ncclDataType_t::ncclUint8 as c_int;

/// Bytes that each rank tells about itself before joining: whether it has the library, and the UUID of its GPU.
const SAYS: usize = 17;
const ID: usize = size_of::<ncclUniqueId>();

/// How long a rank polls without sleeping, how long it sleeps afterwards, and after how many polls it checks other
/// ranks.
const LOOK: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(50);
const ASK: u32 = 64;

/// The communicators of a queue, by axis of the mesh.
#[derive(Default)]
pub struct Meeting {
    /// The communicator of each axis; `None` if the ranks along the axis exchange through their hosts.
    groups: BTreeMap<usize, Option<Group>>,
    how: Option<String>,
    /// The last collective that was enqueued, which may still be running.
    busy: Option<Collective>,
}

struct Group {
    library: &'static Library,
    comm: Comm,
}

// SAFETY: any thread may use a communicator, but only one thread at a time; the queue that owns it is used by one
// thread at a time.
unsafe impl Send for Group {}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: created once, ended once. Every other function that ends a communicator waits for ranks that may be
        // gone.
        unsafe { (self.library.functions.abort)(self.comm) };
    }
}

/// State of a rank that waits for a collective.
struct Wait<'a> {
    link: &'a dyn Link,
    stop: &'a Stop<'a>,
    op: &'a Collective,
    begun: Instant,
    looks: u32,
}

impl Wait<'_> {
    /// Pauses, and from time to time checks other ranks and the stop conditions. Errors: E0305, E0306, E0408.
    fn look(&mut self) -> Result<()> {
        self.looks += 1;
        if self.looks % ASK == 1 {
            if let Some((rank, _)) = self.link.failed() {
                return Err(Error::user("E0408", format!("rank {rank} failed before it came to `{}`", self.op)));
            }
            self.stop.check().map_err(|e| {
                Error::user(e.code, format!("{}; another rank had not come to `{}`", e.message, self.op))
            })?;
        }
        match self.begun.elapsed() < LOOK {
            true => std::thread::yield_now(),
            false => std::thread::sleep(NAP),
        }
        Ok(())
    }
}

impl Group {
    /// Waits until the library has carried out the previous call. Errors: E0305, E0306, E0408.
    fn settle(&self, wait: &mut Wait) -> Result<()> {
        loop {
            match self.state()? {
                true => return Ok(()),
                false => wait.look()?,
            }
        }
    }

    /// Whether the library is idle. Errors: E0408.
    fn state(&self) -> Result<bool> {
        let mut code = 0;
        // SAFETY: the communicator exists; the library writes its result to the given location.
        let asked = unsafe { (self.library.functions.async_error)(self.comm, &mut code) };
        self.library.check(asked, "tell its state")?;
        self.library.check(code, "exchange")?;
        Ok(code == SUCCESS)
    }
}

impl Meeting {
    /// Returns how the ranks exchange; `None` before their first exchange.
    pub fn how(&self) -> Option<&str> {
        self.how.as_deref()
    }

    /// Drops the communicators; all ranks do so after a call that failed.
    pub fn renew(&mut self) {
        self.groups.clear();
        self.busy = None;
    }

    /// Enqueues a collective. Returns false if the ranks must exchange through their hosts. Errors: E0305, E0306,
    /// E0408.
    ///
    /// # Safety
    /// As for [`Queue::copy`], with the bytes of this rank's operand and of the result.
    pub unsafe fn exchange(
        &mut self,
        queue: &mut dyn Queue,
        what: &Exchange,
        link: &dyn Link,
        (from, to, staging): (Address, Address, &mut dyn FnMut(usize) -> Result<Address>),
        stop: &Stop,
    ) -> Result<bool> {
        let Some(stream) = queue.stream()? else { return Ok(false) };
        let Some(form) = Form::for_exchange(what) else {
            self.how = Some(format!("through the memory of hosts: NCCL has no `{}`", what.op));
            return Ok(false);
        };
        fitting(what)?;
        let mut wait = Wait { link, stop, op: what.op, begun: Instant::now(), looks: 0 };
        if !self.groups.contains_key(&what.op.mesh()) {
            let joined = self.join(what, link, &stream.gpu, &mut wait)?;
            self.groups.insert(what.op.mesh(), joined);
        }
        let Some(Some(group)) = self.groups.get(&what.op.mesh()) else { return Ok(false) };
        let f = &group.library.functions;
        let pointer = |at: Address| std::ptr::without_provenance_mut::<c_void>(at as usize);
        self.busy = Some(*what.op);
        let (comm, stream) = (group.comm, stream.handle);
        let begun = |code| group.library.check(code, "begin to exchange");
        let mut place = to;
        match form {
            Form::Reduce { elements, dtype, f: op } => {
                // SAFETY: the caller guarantees that the buffers have these elements.
                begun(unsafe { (f.all_reduce)(pointer(from), pointer(to), elements, dtype, op, comm, stream) })?
            }
            Form::Gather { bytes } => {
                // SAFETY: as above.
                begun(unsafe { (f.all_gather)(pointer(from), pointer(to), bytes, BYTES, comm, stream) })?
            }
            Form::Parts { rows, .. } => {
                if rows > 1 {
                    place = staging(what.operands.iter().map(Operand::bytes).sum())?;
                }
                // SAFETY: as above; the operands are stored one behind the other, in the result or in the staging
                // memory.
                unsafe {
                    begun((f.group_start)())?;
                    let mut at = place;
                    for (rank, operand) in what.operands.iter().enumerate() {
                        let (root, bytes) = (rank as c_int, operand.bytes());
                        begun((f.broadcast)(pointer(from), pointer(at), bytes, BYTES, root, comm, stream))?;
                        at += bytes as u64;
                    }
                    begun((f.group_end)())?;
                }
            }
        }
        group.settle(&mut wait)?;
        if let Form::Parts { rows, pitch } = form
            && rows > 1
        {
            let mut column = 0;
            for operand in what.operands {
                let width = operand.bytes() / rows;
                // SAFETY: the staging memory holds the operands; a row of the result holds one row of each, side by
                // side.
                unsafe { queue.copy_rows((place, width), (to + column as u64, pitch), width, rows) }?;
                (place, column) = (place + operand.bytes() as u64, column + width);
            }
        }
        Ok(true)
    }

    /// Waits until the queue is idle. Errors: E0305, E0306, E0408; then nothing is under way any more.
    pub fn settle(&mut self, queue: &mut dyn Queue, link: &dyn Link, stop: &Stop) -> Result<()> {
        let Some(op) = self.busy.take() else { return Ok(()) };
        let mut wait = Wait { link, stop, op: &op, begun: Instant::now(), looks: 0 };
        let waited = loop {
            match queue.is_idle() {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(e) => break Err(e),
            }
            let stood = self.groups.values().flatten().try_for_each(|group| group.state().map(drop));
            if let Err(e) = stood.and_then(|()| wait.look()) {
                break Err(e);
            }
        };
        if waited.is_err() {
            self.renew();
        }
        waited
    }

    /// Creates a communicator for the ranks of a group, if all can take part. Errors: E0305, E0306, E0408.
    fn join(&mut self, what: &Exchange, link: &dyn Link, gpu: &[u8; 16], wait: &mut Wait) -> Result<Option<Group>> {
        let (n, own, library) = (what.ranks.len(), what.own, library());
        let says = |rows: usize, bytes: usize| Operand { dtype: DType::U8, dims: vec![rows, bytes] };
        let share = |op: &Collective, operand: Operand, result: Operand, from: &[u8], to: &mut [u8]| {
            let operands = vec![operand; n];
            let what = Exchange { op, operands: &operands, result: &result, ..*what };
            // SAFETY: both have the bytes of their dimensions, and do not overlap.
            unsafe { link.exchange(&what, from.as_ptr(), to.as_mut_ptr(), wait.stop) }
        };
        let mesh = what.op.mesh();
        let mut all = vec![0; n * SAYS];
        let mine = [&[u8::from(library.is_ok())][..], gpu].concat();
        share(&Collective::AllGather { mesh, dim: 0 }, says(1, SAYS), says(n, SAYS), &mine, &mut all)?;
        let ranks: Vec<(bool, &[u8])> = all.chunks_exact(SAYS).map(|said| (said[0] == 1, &said[1..])).collect();
        let why = match (library, ranks.iter().position(|(has, _)| !has)) {
            (Err(why), _) => Some(format!("there is no NCCL: {why}")),
            (Ok(_), Some(rank)) => Some(format!("rank {} has no NCCL", what.ranks[rank])),
            (Ok(_), None) => {
                let same = |rank: usize| ranks[..rank].iter().position(|(_, gpu)| *gpu == ranks[rank].1);
                let pair = (1..n).find_map(|rank| Some((same(rank)?, rank)));
                pair.map(|(a, b)| format!("ranks {} and {} have one GPU", what.ranks[a], what.ranks[b]))
            }
        };
        let (Ok(library), None) = (library, &why) else {
            self.how = Some(format!("through the memory of hosts: {}", why.unwrap_or_default()));
            return Ok(None);
        };
        let mut id = ncclUniqueId { internal: [0; ID] };
        if own == 0 {
            // SAFETY: the library writes its result to the given location.
            library.check(unsafe { (library.functions.unique_id)(&mut id) }, "begin")?;
        }
        let (mut told, sent) = ([0; ID], id.internal.map(|c| c as u8));
        share(&Collective::Broadcast { mesh, root: 0 }, says(1, ID), says(1, ID), &sent, &mut told)?;
        id.internal = told.map(|b| b as c_char);
        let mut config = ncclConfig_t {
            size: size_of::<ncclConfig_t>(),
            magic: MAGIC,
            version: CONFIGURED,
            blocking: 0,
            cgaClusterSize: UNSET,
            minCTAs: UNSET,
            maxCTAs: UNSET,
            netName: std::ptr::null(),
            splitShare: UNSET,
        };
        let mut comm = std::ptr::null_mut();
        // SAFETY: the id belongs to the group, and the configuration has the version that it states.
        let begun = unsafe { (library.functions.init)(&mut comm, n as c_int, id, own as c_int, &mut config) };
        library.check(begun, "join the ranks")?;
        let group = Group { library, comm };
        group.settle(wait)?;
        self.how = Some(format!("through NCCL {}", shown(library.version)));
        Ok(Some(group))
    }
}

/// The calls of the library that compute a collective.
#[derive(Clone, Copy)]
enum Form {
    Reduce {
        elements: usize,
        dtype: c_int,
        f: c_int,
    },
    /// Equal operands, which the result contains one behind the other.
    Gather {
        bytes: usize,
    },
    /// Operands of any size, each of which contributes a piece to every row of the result.
    Parts {
        rows: usize,
        pitch: usize,
    },
}

impl Form {
    /// Returns `None` for collectives that do not use NCCL: averages, the maximum and minimum of floating-point
    /// numbers, because NCCL does not specify their result for NaN, element types that NCCL lacks, and all collectives
    /// but all-reduce and all-gather.
    fn for_exchange(what: &Exchange) -> Option<Form> {
        let (first, result) = (&what.operands[0], what.result);
        match *what.op {
            Collective::AllReduce { f, .. } => {
                let f = match f {
                    Reduction::Add => ncclRedOp_t::ncclSum,
                    Reduction::Mul => ncclRedOp_t::ncclProd,
                    Reduction::Avg => return None,
                    Reduction::Max | Reduction::Min if first.dtype.is_float() => return None,
                    Reduction::Max => ncclRedOp_t::ncclMax,
                    Reduction::Min => ncclRedOp_t::ncclMin,
                };
                let dtype = match first.dtype {
                    DType::I8 => ncclDataType_t::ncclInt8,
                    DType::U8 => ncclDataType_t::ncclUint8,
                    DType::I32 => ncclDataType_t::ncclInt32,
                    DType::U32 => ncclDataType_t::ncclUint32,
                    DType::I64 => ncclDataType_t::ncclInt64,
                    DType::U64 => ncclDataType_t::ncclUint64,
                    DType::F16 => ncclDataType_t::ncclFloat16,
                    DType::BF16 => ncclDataType_t::ncclBfloat16,
                    DType::F32 => ncclDataType_t::ncclFloat32,
                    DType::F64 => ncclDataType_t::ncclFloat64,
                    _ => return None,
                };
                let elements = first.dims.iter().product();
                Some(Form::Reduce { elements, dtype: dtype as c_int, f: f as c_int })
            }
            Collective::AllGather { dim, .. } => {
                let rows = first.dims[..dim].iter().product::<usize>();
                let equal = what.operands.iter().all(|o| o == first);
                Some(match rows == 1 && equal {
                    true => Form::Gather { bytes: first.bytes() },
                    false => Form::Parts { rows, pitch: result.bytes() / rows.max(1) },
                })
            }
            _ => None,
        }
    }
}
