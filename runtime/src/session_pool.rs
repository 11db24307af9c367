//! requests of many callers  =>  calls of a fixed number of sessions, in order of arrival, each answered once

mod queue;

use crate::model::Model;
use crate::outputs::Outputs;
use crate::session::{Session, SessionOptions};
use crate::stop::RunOptions;
use queue::{Queue, Waiting, caught};
use sardonyx_base::{Error, Result, Tensor, TensorView};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

/// A call for a pool to make: `Request::new([("input_ids", ids)]).options(options)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// Name of the entry point, `main` by default.
    pub entry: String,
    /// Names and tensors. A clone of a [`Tensor`] shares its bytes.
    pub inputs: Vec<(String, Tensor)>,
    /// Deadline and cancellation apply from the submission on: time in the queue is part of the call.
    pub options: RunOptions,
}

impl Request {
    /// Creates a request to the entry point `main`, with default options.
    pub fn new<N: Into<String>>(inputs: impl IntoIterator<Item = (N, Tensor)>) -> Request {
        let inputs = inputs.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect();
        Request { entry: "main".into(), inputs, options: RunOptions::default() }
    }

    /// Sets the name of the entry point.
    pub fn entry(self, entry: impl Into<String>) -> Request {
        Request { entry: entry.into(), ..self }
    }

    /// Sets the deadline, the cancel flag, and the outputs to return.
    pub fn options(self, options: RunOptions) -> Request {
        Request { options, ..self }
    }

    fn run(self, session: &Session) -> Result<Outputs> {
        let views: Vec<(&str, TensorView)> = self.inputs.iter().map(|(name, t)| (name.as_str(), t.into())).collect();
        session.run_with(&self.entry, &views, &mut [], &self.options)
    }
}

/// Options of a pool: `PoolOptions::default().sessions(4).waiting_max(100)`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolOptions {
    /// Number of sessions, each of which runs one call at a time. If absent, the number of processors divided by the
    /// threads of a session, but at least 1. On a device other than the CPU, and for a model with several ranks, whose
    /// calls run one at a time, the default is 1.
    pub sessions: Option<usize>,
    /// Number of requests that may wait while every session is busy; further ones are refused. With 0, only a free
    /// session accepts a request.
    pub waiting_max: usize,
    /// Options of each session. With `memory_bytes_max`, all calls of the pool together take at most that many bytes
    /// times the number of sessions. `pinned` is only allowed with one session: the threads of several would be pinned
    /// to the same processors.
    pub session: SessionOptions,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions { sessions: None, waiting_max: 128, session: SessionOptions::default() }
    }
}

impl PoolOptions {
    /// Sets the number of sessions; `None`, the default, derives it from processors, device and ranks.
    pub fn sessions(self, sessions: impl Into<Option<usize>>) -> PoolOptions {
        PoolOptions { sessions: sessions.into(), ..self }
    }

    /// Sets how many requests may wait while every session is busy; 128 by default.
    pub fn waiting_max(self, waiting_max: usize) -> PoolOptions {
        PoolOptions { waiting_max, ..self }
    }

    /// Sets the options of each session.
    pub fn session(self, session: SessionOptions) -> PoolOptions {
        PoolOptions { session, ..self }
    }

    /// Returns the number of sessions of a pool over this model. Errors: E0001 for an invalid number.
    fn sessions_for(&self, model: &Model) -> Result<usize> {
        self.session.check()?;
        let threads = self.session.threads.saturating_mul(model.ranks());
        let processors = || std::thread::available_parallelism().map_or(1, |n| n.get());
        // Calls of several ranks run one at a time, whatever session they belong to.
        let fitting = || match model.device_name().is_host() && model.ranks() == 1 {
            true => (processors() / threads).max(1),
            false => 1,
        };
        let sessions = self.sessions.unwrap_or_else(fitting);
        let (total, most) = (sessions.saturating_mul(threads), SessionOptions::THREADS_MAX);
        if sessions == 0 {
            return Err(Error::user("E0001", "a pool needs at least one session"));
        }
        if total > most && sessions > 1 {
            let message =
                format!("a pool of {sessions} sessions with {threads} threads each; {most} are supported in all");
            return Err(Error::user("E0001", message).help("use fewer sessions, or fewer threads for each"));
        }
        if self.session.pinned && sessions > 1 {
            let message =
                format!("{sessions} sessions whose threads are pinned would have them on the same processors");
            return Err(Error::user("E0001", message).help("leave `pinned` out, or use one session"));
        }
        Ok(sessions)
    }
}

/// Counts of a pool at one moment. Every request that was ever submitted is in exactly one of the counts other than
/// `failed` and `panicked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Requests that are waiting for a session.
    pub waiting: usize,
    /// Requests that a session is computing.
    pub running: usize,
    /// Requests that a session has computed, whether they succeeded or failed.
    pub served: u64,
    /// Those of `served` that failed.
    pub failed: u64,
    /// Requests that were not accepted, because the queue was full or the pool closed, or that still waited when it was
    /// dropped.
    pub refused: u64,
    /// Requests whose deadline passed while they waited, so that they were not computed.
    pub expired: u64,
    /// Requests that were cancelled while they waited, so that they were not computed.
    pub cancelled: u64,
    /// Callbacks that panicked.
    pub panicked: u64,
}

/// A fixed number of sessions over one model, for servers. Requests wait in one bounded queue and begin in order of
/// arrival; each accepted request is answered exactly once, through its callback. The outputs are those of
/// [`Session::run`], bit for bit.
///
/// **Threads.** Each session is called by a thread of its own, which sleeps while there is no request; in addition,
/// each session has one worker less than `threads`. So at most sessions × `threads` threads compute (on each rank of
/// the model), by default as many as there are processors. With the default of one thread per session, each processor
/// computes a separate request, which gives the most requests per second; one session with all processors as threads
/// gives the shortest single call. One more thread answers the requests that expire or are cancelled while they wait.
/// Several pools of a process are not coordinated: their numbers of sessions must be chosen so that they share the
/// processors.
///
/// **Callbacks** run on threads of the pool, or on the thread that drops it, and should be short: they pass the result
/// on, or submit the next request. If one panics, it is counted, and the pool continues.
///
/// **Dropping** the pool lets running calls end as usual, answers waiting requests with E0309, and returns when all
/// callbacks have returned, except one that drops the pool itself. [`finish`](SessionPool::finish) computes the waiting
/// requests first.
///
/// ```no_run
/// use sardonyx_runtime::{ErrorKind, LoadOptions, Model, PoolOptions, Request, RunOptions, Tensor, Trust};
/// use std::time::{Duration, Instant};
///
/// # fn reply(_: u16, _: &str) {}
/// # fn main() -> sardonyx_runtime::Result<()> {
/// let model = Model::load("model.sdx", &LoadOptions::new(Trust::pin("9f2c…")?))?;
/// let pool = model.session_pool(&PoolOptions::default().waiting_max(100))?;
/// // For each request that arrives:
/// let ids = Tensor::from_vec(vec![1, 4], vec![101i64, 7592, 2088, 102]);
/// let options = RunOptions::default().deadline(Instant::now() + Duration::from_millis(50));
/// let accepted = pool.submit(Request::new([("input_ids", ids)]).options(options), |result| match result {
///     Ok(outputs) => reply(200, &format!("{:?}", outputs[0].1.as_slice::<f32>())),
///     Err(error) if error.kind() == ErrorKind::Deadline => reply(504, &error.message),
///     Err(error) => reply(500, &error.message),
/// });
/// if let Err(error) = accepted {
///     reply(503, &error.message); // E0308: more would wait than the queue admits.
/// }
/// pool.finish()?; // Answers what was accepted, at the end of the server.
/// # Ok(())
/// # }
/// ```
pub struct SessionPool {
    queue: Arc<Queue>,
    sessions: Vec<Arc<Session>>,
    threads: Vec<JoinHandle<()>>,
}

impl SessionPool {
    pub(crate) fn new(model: &Model, options: &PoolOptions) -> Result<SessionPool> {
        let n_sessions = options.sessions_for(model).map_err(|e| e.file(model.file()))?;
        let queue = Arc::new(Queue::new(n_sessions, options.waiting_max));
        let mut pool = SessionPool { queue, sessions: vec![], threads: vec![] };
        for i in 0..n_sessions {
            let session = Arc::new(model.session(&options.session)?);
            pool.sessions.push(session.clone());
            pool.start(format!("sardonyx-run-{i}"), move |queue| serve(queue, &session))?;
        }
        pool.start("sardonyx-expiry".into(), Queue::answer_expired)?;
        Ok(pool)
    }

    fn start(&mut self, name: String, work: impl FnOnce(&Queue) + Send + 'static) -> Result<()> {
        let queue = self.queue.clone();
        let thread = Builder::new().name(name).spawn(move || work(&queue));
        let refuse =
            |e| Error::user("E0304", format!("cannot start a thread of a pool: {e}")).help("use fewer sessions");
        self.threads.push(thread.map_err(refuse)?);
        Ok(())
    }

    /// Returns the model that all sessions share.
    pub fn model(&self) -> &Model {
        self.sessions[0].model()
    }

    /// Returns the number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Submits a request and returns at once. `done` is called exactly once, with the outputs or with an error: one of
    /// [`Session::run_with`], such as E0305 if the deadline passed or E0306 if the request was cancelled, even while it
    /// waited; or E0309 if the pool was dropped before the request was computed. `done` is called on a thread of the
    /// pool; after E0309, on the thread that drops the pool. If the request is not accepted, this function returns the
    /// error, and `done` is dropped without being called. Errors: E0308 if as many requests wait as the pool admits,
    /// E0309 after [`finish`](SessionPool::finish).
    pub fn submit(&self, request: Request, done: impl FnOnce(Result<Outputs>) + Send + 'static) -> Result<()> {
        let waiting = Waiting { request, done: Box::new(done) };
        self.queue.push(waiting).map_err(|e| e.file(self.model().file()))
    }

    /// As [`submit`](SessionPool::submit), but waits for the result and returns it. Further errors: E0001 on a thread
    /// of this pool, which would wait for itself.
    pub fn run(&self, request: Request) -> Result<Outputs> {
        self.check_outside("run")?;
        let (sender, receiver) = channel();
        // Sending cannot fail: the receiver lives until the result has arrived.
        self.submit(request, move |result| drop(sender.send(result)))?;
        receiver.recv().unwrap_or_else(|_| Err(Error::defect("a request of a pool was not answered")))
    }

    /// Returns the counts at this moment.
    pub fn statistics(&self) -> PoolStatistics {
        self.queue.statistics()
    }

    /// Trims the sessions that are idle, as [`Session::trim`] does. Returns the number of bytes that were freed.
    pub fn trim(&self) -> usize {
        self.sessions.iter().map(|session| session.trim()).sum()
    }

    /// Refuses requests from now on, and returns when all accepted ones have been computed and their callbacks have
    /// returned. Errors: E0001 on a thread of this pool, which would wait for itself.
    pub fn finish(&self) -> Result<()> {
        self.check_outside("finish")?;
        self.queue.finish();
        Ok(())
    }

    fn check_outside(&self, function: &str) -> Result<()> {
        match self.threads.iter().any(|thread| thread.thread().id() == std::thread::current().id()) {
            false => Ok(()),
            true => {
                let message = format!("`{function}` is called by a callback of the same pool, whose end it waits for");
                Err(Error::user("E0001", message).help("call `submit`, or call it from another thread"))
            }
        }
    }
}

impl Drop for SessionPool {
    fn drop(&mut self) {
        self.queue.end();
        for thread in self.threads.drain(..) {
            // If a callback owns the last reference to its pool, this code runs on the callback's thread, which cannot
            // wait for itself, but ends afterwards.
            if thread.thread().id() != std::thread::current().id() {
                // Panics are caught where they occur.
                let _ = thread.join();
            }
        }
    }
}

/// Runs requests in one session until the pool ends.
fn serve(queue: &Queue, session: &Session) {
    while let Some(Waiting { request, done }) = queue.pop() {
        // A session stays usable after a panic: its state is returned when the call unwinds.
        let result = caught(|| request.run(session));
        queue.answer(done, result.unwrap_or_else(|| Err(Error::defect("a call panicked"))));
    }
}
