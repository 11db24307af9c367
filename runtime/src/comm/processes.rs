//! ranks in other processes: this program started again, inheriting the shared memory
//!
//! The first rank watches the others: if one ends, or is stopped for several seconds, the current call fails with an
//! error that says so. While the other ranks wait, they check whether the first rank still exists.

use super::link::Link;
use super::mpi;
use super::order::serialize_error;
use super::peer::Peer;
use super::segment::Segment;
use super::shared::Shared;
use sardonyx_base::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Environment variable of a rank's process: file descriptor, rank, number of ranks, size of a room (see `segment.rs`),
/// and pid of the first rank.
const VARIABLE: &str = "SARDONYX_RANK";

/// How long a rank's process may be stopped by a signal before the call fails.
const STOPPED: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

/// A rank in another process.
pub struct Process {
    watch: Arc<Watch>,
    watcher: Option<JoinHandle<()>>,
}

struct Watch {
    pid: libc::pid_t,
    rank: usize,
    state: Mutex<State>,
    segment: Arc<Segment>,
    /// The number of the last order.
    last: Arc<AtomicU32>,
}

/// Status of a process.
#[derive(Default)]
struct State {
    /// Why the process cannot be relied on any more; `None` while it can.
    gone: Option<String>,
    /// Whether the process has been waited for: then its pid may belong to another process.
    ended: bool,
}

impl Process {
    /// Starts this program as a rank. Errors: E0408.
    pub fn start(segment: &Arc<Segment>, rank: usize, last: &Arc<AtomicU32>) -> Result<Process> {
        let failed = |e: std::io::Error| Error::user("E0408", format!("rank {rank} cannot be started: {e}"));
        let file = segment.file().ok_or_else(|| Error::defect("memory that no process shares"))?.as_raw_fd();
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.env(VARIABLE, format!("{file} {rank} {} {} {}", segment.n_ranks, segment.room, std::process::id()));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: calls only functions that are allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // Clears close-on-exec in the child alone, so that no other child of this process inherits the file.
                match libc::fcntl(file, libc::F_SETFD, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn().map_err(failed)?;
        let (segment, last) = (segment.clone(), last.clone());
        let watch = Arc::new(Watch { pid: child.id() as libc::pid_t, rank, state: Mutex::default(), segment, last });
        let watcher = std::thread::Builder::new().name(format!("watch {rank}")).stack_size(128 << 10).spawn({
            let watch = watch.clone();
            move || watch.watch()
        });
        Ok(Process { watch, watcher: Some(watcher.map_err(failed)?) })
    }

    /// Returns why the process cannot be relied on any more; `None` while it can.
    pub fn gone(&self) -> Option<String> {
        self.watch.state().gone.clone()
    }

    /// Waits until the process, which has been ordered to end, has ended; kills the process at time `by`.
    pub fn end(mut self, by: Instant) {
        while self.gone().is_none() && Instant::now() < by {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.watch.signal(libc::SIGKILL);
        if let Some(watcher) = self.watcher.take() {
            // The watcher returns when the process has ended; a panic has already been reported.
            let _ = watcher.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.watch.signal(libc::SIGKILL);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: i32) {
        let state = self.state();
        if !state.ended {
            // SAFETY: the process has not been waited for, so the pid is still its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    fn watch(&self) {
        let mut stopped: Option<Instant> = None;
        loop {
            // SAFETY: all zeros are a valid value.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let poll = if stopped.is_some() { libc::WNOHANG } else { 0 };
            let kinds = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED | libc::WNOWAIT | poll;
            // SAFETY: the pid is that of a child that has not been waited for.
            let waited = unsafe { libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, kinds) };
            if waited != 0 {
                if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                    continue;
                }
                return self.ended("is not to be found");
            }
            // SAFETY: `waitid` has filled in `info`.
            let (code, status) = unsafe { (info.si_code, info.si_status()) };
            match code {
                libc::CLD_EXITED => return self.ended(&format!("ended with exit code {status}")),
                libc::CLD_KILLED | libc::CLD_DUMPED => return self.ended(&format!("was killed by signal {status}")),
                libc::CLD_STOPPED => {
                    stopped = stopped.or(Some(Instant::now()));
                    self.take(libc::WSTOPPED);
                }
                libc::CLD_CONTINUED => {
                    stopped = None;
                    self.state().gone = None;
                    self.take(libc::WCONTINUED);
                }
                _ => {}
            }
            if let Some(since) = stopped {
                if since.elapsed() > STOPPED && self.state().gone.is_none() {
                    self.fail("is stopped", "let it go on, or end it");
                }
                std::thread::sleep(POLL);
            }
        }
    }

    /// Consumes a state change that `watch` has seen, so that it is not reported again.
    fn take(&self, kind: i32) {
        // SAFETY: as in `watch`.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, kind | libc::WNOHANG);
        }
    }

    fn ended(&self, how: &str) {
        let mut state = self.state();
        self.take(libc::WEXITED);
        state.ended = true;
        drop(state);
        self.fail(how, "load the model again");
    }

    /// Records why the process cannot be relied on, and fails the current call unless its rank has already ended it.
    fn fail(&self, how: &str, help: &str) {
        self.state().gone = Some(how.to_string());
        let call = self.last.load(Ordering::SeqCst);
        if self.segment.idle(self.rank).get() != call {
            let error = Error::user("E0408", format!("it {how}")).help(help);
            self.segment.fail(call, self.rank, &serialize_error(&error));
        }
        self.segment.idle(self.rank).wake();
    }
}

/// Serves as a rank if this process was started as one, by [`Transport::Processes`](crate::Transport) or by an MPI
/// launcher: carries out the orders of the first rank, and returns the exit code. In any other process, which includes
/// the first rank, it returns `None` at once. A program that loads models with one of these transports must call this
/// function before anything else.
pub fn serve_rank() -> Option<i32> {
    let served = match std::env::var(VARIABLE) {
        Ok(told) => {
            // SAFETY: no other thread has been started yet, as the documentation requires.
            unsafe { std::env::remove_var(VARIABLE) };
            attach(&told).and_then(|rank| Peer::new(Arc::new(rank), None).serve())
        }
        Err(_) => match mpi::joined() {
            Ok(None) => return None,
            Ok(Some(first)) if first.rank() == 0 => return None,
            Ok(Some(rank)) => {
                let served = Peer::new(rank.clone(), None).serve();
                rank.finish();
                served
            }
            Err(e) => Err(e),
        },
    };
    Some(match served {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("{e}");
            2
        }
    })
}

fn attach(told: &str) -> Result<Shared> {
    let unfit = || Error::user("E0408", format!("`{VARIABLE}={told}` is not what a first rank says"));
    let words: Vec<&str> = told.split(' ').collect();
    let [file, rank, n, room, leader] = words[..] else { return Err(unfit()) };
    let number = |text: &str| text.parse::<usize>().map_err(|_| unfit());
    let (file, rank, n, room) = (number(file)?, number(rank)?, number(n)?, number(room)?);
    if rank >= n {
        return Err(unfit());
    }
    // SAFETY: the first rank has opened the file for this process, in which nothing else uses it.
    let file = unsafe { OwnedFd::from_raw_fd(i32::try_from(file).map_err(|_| unfit())?) };
    let segment = Arc::new(Segment::attach(file, n, room)?);
    let leader = libc::pid_t::try_from(number(leader)?).map_err(|_| unfit())?;
    Ok(Shared::new(segment, rank).led_by(leader))
}
