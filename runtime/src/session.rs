//! inputs  =>  outputs: one call after another, with the state that is kept between them

use crate::bind::{Destination, bind_capacities, bind_symbols, check_wanted, match_inputs, match_outputs, tensors};
use crate::cache::{Cache, Held};
use crate::call::pace::Pace;
use crate::call::{Call, Look, Watch};
#[cfg(feature = "cuda")]
use crate::comm::Meeting;
use crate::comm::{Link, Open, Order, Run};
use crate::device::{Address, Block, DeviceName, Queue};
use crate::device_tensor::{DeviceTensor, Input};
use crate::kept_shapes::KeptShapes;
use crate::memory::Recycler;
use crate::model::Model;
use crate::outputs::Outputs;
use crate::pool::Threads;
use crate::stop::{RunOptions, Stop};
use sardonyx_base::view::{TensorBuffer, TensorView};
use sardonyx_base::{Error, Result, Tensor};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Options of a session: `SessionOptions::default().threads(2)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Number of threads, at most [`THREADS_MAX`](SessionOptions::THREADS_MAX). The caller's thread is one of them;
    /// with 1, no other is started. On a GPU, 1 is enough.
    pub threads: usize,
    /// Whether each thread but the caller's is pinned to one of the processors that the process may use, in ascending
    /// order; the first of them is left to the caller. This is meant for a process that has its processors to itself.
    pub pinned: bool,
    /// Bytes that a call may take for intermediate values, scratch, outputs and its cache together. Operations on the
    /// host count everything that they allocate in proportion to their operands, while they run.
    pub memory_bytes_max: Option<usize>,
    /// How long each thread but the caller's spins for work before it sleeps, between the launches of a call and after
    /// it. If absent, 200,000 iterations of a loop, which take some milliseconds. With [`Duration::ZERO`], threads
    /// sleep at once and each launch wakes them: that takes no processor time between calls, but makes calls with short
    /// launches slower. While more threads are awake than there are processors, threads sleep at once in any case. Does
    /// not apply to callers, nor to ranks that wait for each other.
    pub spin_max: Option<Duration>,
    /// Time limit of calls without a deadline of their own; it ends them with E0305, as [`RunOptions::deadline`] does.
    pub time_max: Option<Duration>,
    /// The caller's stream of the GPU to work on, as an address.
    pub(crate) cuda_stream: Option<NonZeroUsize>,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            threads: 1,
            pinned: false,
            memory_bytes_max: None,
            spin_max: None,
            time_max: None,
            cuda_stream: None,
        }
    }
}

impl SessionOptions {
    /// Maximum number of threads: more than any machine benefits from. Far more could make the system kill the process.
    pub const THREADS_MAX: usize = 1024;

    /// Sets the number of threads, including the caller's; 1 by default.
    pub fn threads(self, threads: usize) -> SessionOptions {
        SessionOptions { threads, ..self }
    }

    /// Sets whether each thread but the caller's is pinned to a processor; by default none is.
    pub fn pinned(self, pinned: bool) -> SessionOptions {
        SessionOptions { pinned, ..self }
    }

    /// Sets the number of bytes that a call may take; `None`, the default, is no limit.
    pub fn memory_bytes_max(self, bytes: impl Into<Option<usize>>) -> SessionOptions {
        SessionOptions { memory_bytes_max: bytes.into(), ..self }
    }

    /// Sets how long idle threads spin before they sleep; `None`, the default, is 200,000 iterations of a loop.
    pub fn spin_max(self, spin_max: impl Into<Option<Duration>>) -> SessionOptions {
        SessionOptions { spin_max: spin_max.into(), ..self }
    }

    /// Sets the time limit of calls without a deadline of their own; `None`, the default, is no limit.
    pub fn time_max(self, time_max: impl Into<Option<Duration>>) -> SessionOptions {
        SessionOptions { time_max: time_max.into(), ..self }
    }

    /// Sets the stream (`CUstream`) of the model's GPU that calls work on, after what the caller has enqueued there;
    /// null, the default, is a stream of the session's own. It must belong to the context that the model is loaded in.
    /// A call waits for the stream before it returns.
    ///
    /// # Safety
    /// The stream must exist until the session has been dropped, and must not be in capture mode during calls.
    pub unsafe fn cuda_stream(self, stream: *mut std::ffi::c_void) -> SessionOptions {
        SessionOptions { cuda_stream: NonZeroUsize::new(stream.expose_provenance()), ..self }
    }

    /// Checks the number of threads. Errors: E0001.
    pub fn check(&self) -> Result<()> {
        match self.threads {
            0 => Err(Error::user("E0001", "a session needs at least one thread")),
            1..=SessionOptions::THREADS_MAX => Ok(()),
            n => {
                let most = SessionOptions::THREADS_MAX;
                let error = Error::user("E0001", format!("a session of {n} threads; at most {most} are supported"));
                Err(error.help("give as many threads as the machine has cores, or fewer"))
            }
        }
    }
}

/// A session runs one call at a time; other calls wait, and begin in no particular order. Make one session per thread
/// of a server, or pass its requests to a [`SessionPool`](crate::SessionPool). Sessions share the model.
pub struct Session {
    pub(crate) model: Model,
    threads: usize,
    pub(crate) memory_bytes_max: Option<usize>,
    time_max: Option<Duration>,
    pub(crate) outputs: Recycler,
    /// If the model has several ranks: the link to the others, and on the first rank the id by which they identify the
    /// session.
    rank: Option<Arc<dyn Link>>,
    number: Option<u64>,
    /// Whether the last call on several ranks failed, so that ranks with GPUs must create new communicators.
    failed: AtomicBool,
    /// Data kept from call to call; absent during a call, which owns it.
    state: Mutex<Option<Box<State>>>,
    free: Condvar,
}

/// Data kept from call to call. None of it influences results.
pub(crate) struct State {
    pub queue: Box<dyn Queue>,
    /// The rank in whose shared memory the arena is allocated, so that other ranks can read it.
    pub rank: Option<Arc<dyn Link>>,
    /// The communicators between GPUs of several ranks.
    #[cfg(feature = "cuda")]
    pub meeting: Meeting,
    /// Memory for the operands of all ranks, before their rows are moved into the result. New exchanges use the last
    /// block, which is the largest.
    #[cfg(feature = "cuda")]
    pub staging: Vec<Block>,
    /// The arena; absent until a call needs one.
    pub arena: Option<Block>,
    /// By buffer: memory on the device, for buffers that are neither in the arena nor in memory of the caller. On a
    /// simulated device, buffers of the arena have such memory too.
    pub blocks: Vec<Option<Block>>,
    pub shapes: KeptShapes,
    /// Addresses by buffer, and by launch argument.
    pub bases: Vec<Address>,
    pub pointers: Vec<Address>,
    /// For each loop, given by its body and its sizes: whether threads make its iterations faster.
    pub paces: HashMap<(usize, usize), Pace>,
    /// Bytes that the call takes at its current stage; set only if the session limits them.
    pub taken: usize,
    /// State for entry points that host steps call; absent until the first such call.
    pub nested: Option<Box<State>>,
}

/// Interval at which a call that waits for another one checks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(2);

impl Session {
    pub(crate) fn new(model: Model, options: &SessionOptions) -> Result<Session> {
        options.check()?;
        let Some(world) = model.world() else { return Session::with(model, options, None, None) };
        let (rank, session) = (world.link().clone(), world.session());
        rank.expect_threads(options.threads);
        let (threads, memory_bytes_max) = (options.threads as u64, options.memory_bytes_max.map(|n| n as u64));
        let spin_ns_max = options.spin_max.map(|max| u64::try_from(max.as_nanos()).unwrap_or(u64::MAX));
        let open = Open { session, threads, pinned: options.pinned, memory_bytes_max, spin_ns_max };
        world.tell(Order { open: Some(open), ..Order::default() }).map_err(|e| e.file(model.file()))?;
        Session::with(model, options, Some(rank), Some(session))
    }

    /// Creates the session of a rank other than the first.
    pub(crate) fn of_rank(model: Model, options: &SessionOptions, rank: Arc<dyn Link>) -> Result<Session> {
        rank.expect_threads(options.threads);
        Session::with(model, options, Some(rank), None)
    }

    fn with(
        model: Model,
        options: &SessionOptions,
        rank: Option<Arc<dyn Link>>,
        number: Option<u64>,
    ) -> Result<Session> {
        let SessionOptions { threads, pinned, spin_max, cuda_stream, .. } = *options;
        let state = State::new(&model, Threads { count: threads, pinned, spin_max }, rank.clone(), cuda_stream)?;
        Ok(Session {
            model,
            rank,
            number,
            failed: AtomicBool::new(false),
            threads: options.threads,
            memory_bytes_max: options.memory_bytes_max,
            time_max: options.time_max,
            outputs: Recycler::default(),
            state: Mutex::new(Some(Box::new(state))),
            free: Condvar::new(),
        })
    }

    /// Returns the model that the session was created from.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the number of threads of each rank.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Makes ranks with GPUs create new communicators before the next call.
    pub(crate) fn renew(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns how ranks with GPUs exchange, and why: from GPU to GPU, or through the memory of their hosts. `None`
    /// before their first exchange.
    pub fn exchange(&self) -> Option<String> {
        #[cfg(feature = "cuda")]
        {
            let slot = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            slot.as_ref()?.meeting.how().map(str::to_string)
        }
        #[cfg(not(feature = "cuda"))]
        None
    }

    /// Returns the number of bytes that exchanges have brought to this rank from others since the ranks were started,
    /// without those that GPUs exchange directly; 0 for a model of one rank.
    pub fn taken_bytes(&self) -> u64 {
        self.rank.as_ref().map_or(0, |link| link.taken_bytes())
    }

    pub(crate) fn rank(&self) -> Option<&Arc<dyn Link>> {
        self.rank.as_ref()
    }

    /// Frees the memory that an idle session keeps from call to call, also on its device: intermediate values, scratch,
    /// memory of dropped outputs, evaluated shapes. Returns the number of bytes. The next call allocates again what it
    /// needs, which makes it slower, with the same results. Blocks of 4 MiB and more return to the system at once,
    /// smaller ones to the allocator of the process. During a call, and if the model has several ranks, which know each
    /// other's memory, only the memory of dropped outputs is freed. Caches belong to the caller and are not freed.
    pub fn trim(&self) -> usize {
        let outputs = self.outputs.clear();
        let idle = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Calls that begin meanwhile wait, as they do during another call.
        let Some(state) = idle else { return outputs };
        let mut entered = Entered { session: self, state: Some(state) };
        let is_known_to_others = self.rank.is_some();
        outputs + if is_known_to_others { 0 } else { entered.trim() }
    }

    /// Runs the entry point `main`. Errors: E0301 for the inputs, E0303 if an index in the data is out of range, E0304
    /// if memory is short.
    pub fn run(&self, inputs: &[(&str, Tensor)]) -> Result<Outputs> {
        self.run_entry("main", inputs)
    }

    /// As [`run`](Session::run), but runs the entry point with this name. Further errors: E0301 for an unknown name.
    pub fn run_entry(&self, entry: &str, inputs: &[(&str, Tensor)]) -> Result<Outputs> {
        self.call(entry, &of_tensors(inputs), vec![], None, &RunOptions::default(), None)
    }

    /// As [`run`](Session::run), but with borrowed inputs, the caller's memory for those outputs that are named in
    /// `outputs`, and a deadline. Returns the outputs without such memory, in the model's order. Further errors: E0301
    /// for the buffers, E0305 past the deadline, E0306 cancelled.
    pub fn run_with(
        &self,
        entry: &str,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorBuffer<'_>)],
        options: &RunOptions,
    ) -> Result<Outputs> {
        self.call(entry, &of_views(inputs), of_buffers(outputs), None, options, None)
    }

    /// As [`run_with`](Session::run_with), but with inputs and outputs in the memory of the model's GPU, in place: the
    /// call writes `outputs` there and sets their dimensions; other outputs are returned in the host's memory. With a
    /// cache, the call appends to it as [`run_cached`](Session::run_cached) does. When the call returns, the outputs
    /// are complete. Memory that is not aligned to 16 bytes is copied within the GPU. Further errors: E0301 if the
    /// model does not run on one GPU, or if an output overlaps another tensor; E0001 if a stream of
    /// [`DeviceTensor::used_on`] belongs to another context.
    pub fn run_on_device(
        &self,
        entry: &str,
        inputs: &[(&str, Input<'_>)],
        outputs: &mut [(&str, DeviceTensor)],
        cache: Option<&mut Cache<'_>>,
        options: &RunOptions,
    ) -> Result<Outputs> {
        self.check_device_tensors(inputs, outputs).map_err(|e| e.file(self.model.file()))?;
        let read = inputs.iter().filter_map(|(_, input)| input.on_device()?.stream());
        let written = outputs.iter().filter_map(|(_, tensor)| tensor.stream());
        for stream in read.chain(written).collect::<BTreeSet<_>>() {
            self.model.device().wait_for(stream).map_err(|e| e.file(self.model.file()))?;
        }
        let outputs = outputs.iter_mut().map(|(name, tensor)| (*name, Destination::Device(tensor))).collect();
        self.call(entry, inputs, outputs, cache, options, None)
    }

    fn check_device_tensors(&self, inputs: &[(&str, Input)], outputs: &[(&str, DeviceTensor)]) -> Result<()> {
        let read: Vec<_> =
            inputs.iter().filter_map(|(name, input)| Some((*name, input.on_device()?.range()))).collect();
        let written: Vec<_> = outputs.iter().map(|(name, tensor)| (*name, tensor.range())).collect();
        let Some((first, _)) = read.iter().chain(&written).next() else { return Ok(()) };
        let name = self.model.device_name();
        if !matches!(name, DeviceName::Cuda(_)) || self.model.ranks() > 1 {
            let n = self.model.ranks();
            let message = format!("`{first}` is in the memory of a GPU, but the model runs on {n} x `{name}`");
            return Err(Error::user("E0301", message).help("give tensors in the host's memory"));
        }
        for (i, (name, range)) in written.iter().enumerate() {
            let overlaps = |(_, other): &&(&str, Range<u64>)| range.start.max(other.start) < range.end.min(other.end);
            if let Some((other, _)) = read.iter().chain(&written[..i]).find(overlaps) {
                return Err(Error::user(
                    "E0301",
                    format!("the memory of the output `{name}` overlaps that of `{other}`"),
                ));
            }
        }
        Ok(())
    }

    /// As [`run_entry`](Session::run_entry), and reports to `watch` when each launch ran, in order.
    pub fn run_timed(&self, entry: &str, inputs: &[(&str, Tensor)], watch: Watch) -> Result<Outputs> {
        let watch = Some((watch, Look::Times));
        self.call(entry, &of_tensors(inputs), vec![], None, &RunOptions::default(), watch)
    }

    /// As [`run_entry`](Session::run_entry), and passes the results of each launch to `watch`, in order, for debugging.
    pub fn run_watched(&self, entry: &str, inputs: &[(&str, Tensor)], watch: Watch) -> Result<Outputs> {
        let watch = Some((watch, Look::Results));
        self.call(entry, &of_tensors(inputs), vec![], None, &RunOptions::default(), watch)
    }

    /// Creates an empty cache for `capacity` positions of the entry point's states. Errors: E0301.
    pub fn cache(&self, entry: &str, capacity: usize) -> Result<Cache<'static>> {
        let entry = self.model.entry(entry)?;
        let cache = Cache::new(&self.model, entry, capacity).map(|cache| self.known(cache));
        cache.map_err(|e| e.file(self.model.file()))
    }

    /// Registers a cache with the other ranks, if there are any.
    fn known<'a>(&self, cache: Cache<'a>) -> Cache<'a> {
        match self.model.world() {
            Some(world) => cache.on_all_ranks(&world.caches),
            None => cache,
        }
    }

    /// As [`cache`](Session::cache), but in memory of the caller: for every state, under the name of its input or
    /// output, at least as many elements as the state has when all `capacity` positions are filled. A call that needs
    /// more is refused. The previous content of the memory does not matter. Errors: E0301.
    pub fn cache_over<'a>(
        &self,
        entry: &str,
        capacity: usize,
        memory: Vec<(&str, TensorBuffer<'a>)>,
    ) -> Result<Cache<'a>> {
        let entry = self.model.entry(entry)?;
        let cache = Cache::new(&self.model, entry, capacity).and_then(|cache| self.known(cache).over(memory));
        cache.map_err(|e| e.file(self.model.file()))
    }

    /// As [`run_with`](Session::run_with), with the entry point's states in a cache: `inputs` and `outputs` name only
    /// ports that are not states. The call appends the positions that it computes to the cache; if the call fails, the
    /// cache keeps its filled positions. Further errors: E0301 if the cache does not fit the call, E0307 if the new
    /// positions do not fit in the cache.
    pub fn run_cached(
        &self,
        entry: &str,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorBuffer<'_>)],
        cache: &mut Cache<'_>,
        options: &RunOptions,
    ) -> Result<Outputs> {
        self.call(entry, &of_views(inputs), of_buffers(outputs), Some(cache), options, None)
    }

    fn call(
        &self,
        entry: &str,
        inputs: &[(&str, Input<'_>)],
        outputs: Vec<(&str, Destination<'_, '_>)>,
        cache: Option<&mut Cache<'_>>,
        options: &RunOptions,
        mut watch: Option<(Watch<'_>, Look)>,
    ) -> Result<Outputs> {
        let begun = Instant::now();
        let named = |e: Box<Error>| e.file(self.model.file());
        let (called, given_inputs) = (entry, inputs);
        let at = self.model.entry_index(entry)?;
        let program = self.model.program();
        let entry = &program.entries[at];
        let mut held = cache.map(|cache| Held::new(cache, &self.model, entry)).transpose().map_err(named)?;
        let inputs = match_inputs(entry, inputs, held.as_ref()).map_err(named)?;
        let (at, entry) = match tensors(&inputs) {
            Some(dims) if !entry.specialized.is_empty() => {
                let at = program.tightest(at, &dims);
                (at, &program.entries[at])
            }
            Some(_) | None => (at, entry),
        };
        let mut given = match_outputs(entry, outputs, held.is_some()).map_err(named)?;
        check_wanted(entry, options.outputs.as_deref()).map_err(named)?;
        let mut values = bind_symbols(program, entry, &inputs).map_err(named)?;
        bind_capacities(program, entry, held.as_ref().map(Held::capacity), &mut values).map_err(named)?;
        if let Some(held) = &mut held {
            held.bind(program, entry, &values).map_err(named)?;
        }
        let timed;
        let options = match (options.deadline, self.time_max) {
            (None, Some(time)) => {
                timed = options.clone().deadline(begun.checked_add(time));
                &timed
            }
            _ => options,
        };
        let stop = Stop::new(options);
        let mut state = self.enter(&stop).map_err(named)?;
        let renew = self.failed.swap(false, Ordering::Relaxed);
        if renew {
            state.renew();
        }
        let shape = state.shapes.shape_for(program, at, values).map_err(named)?;
        let memory = self.model.device().memory();
        // The callback is reborrowed, so that the borrow ends with the call.
        let watch = watch.as_mut().map(|(watch, look)| (RefCell::new(&mut **watch as Watch), *look));
        let call = Call { session: self, program, entry, inputs: &inputs, stop: &stop, memory, watch, outside: 0 };
        let known = held.as_ref().map(Held::known);
        let mut run = || call.run(&mut state, shape.clone(), &mut given, held.as_mut());
        let outputs = match (self.model.world(), self.number) {
            (Some(world), Some(session)) => known.transpose().and_then(|cache| {
                let order = Run { entry: called.to_string(), cache, session, renew, ..Run::default() };
                // With several ranks, all inputs are in the host's memory (`check_device_tensors`).
                let on_host = given_inputs.iter().filter_map(|(name, input)| Some((*name, input.on_host()?)));
                let given_inputs: Vec<_> = on_host.collect();
                let made = world.call(order, &given_inputs, &stop, run);
                self.failed.store(made.is_err(), Ordering::Relaxed);
                made
            }),
            _ => run(),
        };
        let outputs = outputs.map_err(named)?;
        if let Some(held) = &mut held {
            held.grow();
        }
        Ok(outputs)
    }

    /// Waits for the state, but no longer than the call may last.
    fn enter(&self, stop: &Stop) -> Result<Entered<'_>> {
        let options = stop.options();
        let mut slot = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // The state is checked before the stop conditions: a thread that was woken for a free state must take it,
            // or no thread would.
            if let Some(state) = slot.take() {
                return Ok(Entered { session: self, state: Some(state) });
            }
            stop.check()?;
            let until = options.deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let poll = options.cancel.as_ref().map(|_| CANCEL_POLL);
            slot = match until.into_iter().chain(poll).min() {
                None => self.free.wait(slot).unwrap_or_else(PoisonError::into_inner),
                Some(limit) => self.free.wait_timeout(slot, limit).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (Some(world), Some(close)) = (self.model.world(), self.number) {
            // Ranks that are gone have dropped the session anyway.
            let _ = world.tell(Order { close: Some(close), ..Order::default() });
        }
    }
}

fn of_tensors<'a>(inputs: &'a [(&'a str, Tensor)]) -> Vec<(&'a str, Input<'a>)> {
    inputs.iter().map(|(name, tensor)| (*name, tensor.into())).collect()
}

fn of_views<'a>(inputs: &[(&'a str, TensorView<'a>)]) -> Vec<(&'a str, Input<'a>)> {
    inputs.iter().map(|(name, view)| (*name, (*view).into())).collect()
}

fn of_buffers<'a, 'b>(outputs: &'a mut [(&str, TensorBuffer<'b>)]) -> Vec<(&'a str, Destination<'a, 'b>)> {
    outputs.iter_mut().map(|(name, buffer)| (*name, Destination::Host(buffer))).collect()
}

/// Guard with the state during a call; returns it to the session at the end, even after a panic.
struct Entered<'a> {
    session: &'a Session,
    /// The state; `None` only while the guard is being dropped.
    state: Option<Box<State>>,
}

impl Deref for Entered<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.state.as_deref().expect("there until the drop")
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_deref_mut().expect("there until the drop")
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        *self.session.state.lock().unwrap_or_else(PoisonError::into_inner) = self.state.take();
        self.session.free.notify_one();
    }
}

impl State {
    pub fn new(
        model: &Model,
        threads: Threads,
        rank: Option<Arc<dyn Link>>,
        cuda_stream: Option<NonZeroUsize>,
    ) -> Result<State> {
        Ok(State {
            queue: model.device().clone().queue(threads, cuda_stream)?,
            rank,
            #[cfg(feature = "cuda")]
            meeting: Meeting::default(),
            #[cfg(feature = "cuda")]
            staging: Vec::new(),
            arena: None,
            blocks: Vec::new(),
            shapes: KeptShapes::default(),
            bases: Vec::new(),
            pointers: Vec::new(),
            paces: HashMap::new(),
            taken: 0,
            nested: None,
        })
    }

    /// Calls `run` with the nested state, which uses the queue of `self` meanwhile.
    pub fn nested<T>(&mut self, model: &Model, run: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut nested = match self.nested.take() {
            Some(nested) => nested,
            None => Box::new(State::new(model, Threads::ONE, None, None)?),
        };
        std::mem::swap(&mut nested.queue, &mut self.queue);
        let ran = run(&mut nested);
        std::mem::swap(&mut nested.queue, &mut self.queue);
        self.nested = Some(nested);
        ran
    }

    /// Drops everything that calls allocate on demand. Returns the number of bytes.
    fn trim(&mut self) -> usize {
        let nested = self.nested.take().map_or(0, |mut nested| nested.trim());
        let blocks = self.arena.take().into_iter().chain(std::mem::take(&mut self.blocks).into_iter().flatten());
        let blocks: usize = blocks.map(|block| block.bytes()).sum();
        #[cfg(feature = "cuda")]
        let blocks = blocks + std::mem::take(&mut self.staging).iter().map(Block::bytes).sum::<usize>();
        let shapes = std::mem::take(&mut self.shapes).bytes();
        let addresses = std::mem::take(&mut self.bases).capacity() + std::mem::take(&mut self.pointers).capacity();
        nested + blocks + shapes + addresses * size_of::<Address>() + self.queue.trim()
    }

    fn renew(&mut self) {
        #[cfg(feature = "cuda")]
        self.meeting.renew();
        if let Some(nested) = &mut self.nested {
            nested.renew();
        }
    }
}
