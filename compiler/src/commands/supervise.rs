//! compile within limits: a child process does the work, and this one ends it if it exceeds its time or memory
//!
//! A failed allocation kills the process, in LLVM's code as in ours, and a pass that does not terminate cannot be
//! interrupted. So the command does its work in a child process, which reports each stage that it begins. If the child
//! runs out of memory or of its share of the time, it is started again without one optional stage, which the result
//! does not depend on for its correctness: the stage in which memory ran out, or the optional one that took longest. If
//! there is no such stage, the command fails with a diagnostic. A signal that ends the command removes the files that
//! the child has left behind.

use super::values::Limits;
use crate::pipeline::OPTIONAL;
use sardonyx_base::{Error, Result};
use sardonyx_format::file::remove_leftovers;
use signal_hook::consts::{SIGABRT, SIGBUS, SIGHUP, SIGINT, SIGKILL, SIGSEGV, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeWriter, Write, pipe};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// File descriptor on which the child reports its stages.
const STAGES_VARIABLE: &str = "SARDONYX_COMPILE_STAGES";
/// Stages that the child leaves out, with the resource that ran out: `fuse=time,e-graph=memory`.
const GIVEN_UP_VARIABLE: &str = "SARDONYX_COMPILE_GIVEN_UP";

/// Exit code of a program whose libraries cannot be loaded.
const LOADER_FAILED: i32 = 127;

/// A stage that is left out, and the resource that ran out in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    pub stage: &'static str,
    pub out_of: Resource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Time,
    Memory,
}

impl Resource {
    pub fn name(self) -> &'static str {
        match self {
            Resource::Time => "time",
            Resource::Memory => "memory",
        }
    }
}

/// What the child process gets from the supervising one.
pub struct Work {
    stages: File,
    pub given_up: Vec<GivenUp>,
}

impl Work {
    /// Reads the environment; `None` if no process supervises this one.
    pub fn of_environment() -> Option<Work> {
        let descriptor = std::env::var(STAGES_VARIABLE).ok()?.parse().ok()?;
        // SAFETY: this process was started with the descriptor open for this purpose only, and takes it only once.
        let stages = unsafe { File::from_raw_fd(descriptor) };
        let given_up = std::env::var(GIVEN_UP_VARIABLE).unwrap_or_default();
        Some(Work { stages, given_up: given_up.split(',').filter_map(GivenUp::parse).collect() })
    }

    /// Reports that a stage begins.
    pub fn begin(&mut self, stage: &str) {
        // If the supervisor no longer reads, it is about to end this process.
        let _ = self.stages.write_all(format!("{stage}\n").as_bytes());
    }
}

impl GivenUp {
    fn parse(text: &str) -> Option<GivenUp> {
        let (name, out_of) = text.split_once('=')?;
        let stage = OPTIONAL.iter().find(|stage| **stage == name)?;
        let out_of = [Resource::Time, Resource::Memory].into_iter().find(|resource| resource.name() == out_of)?;
        Some(GivenUp { stage, out_of })
    }
}

/// Events carry the number of the attempt, since those of an earlier attempt may arrive late.
enum Event {
    Stage(usize, String),
    /// The child has ended, or is about to.
    End(usize),
    Signal(i32),
}

/// How an attempt ended.
enum Outcome {
    Exit(i32),
    /// The resource that ran out, the stage at that time, and the time that each stage took.
    OutOf(Resource, String, BTreeMap<String, Duration>),
    /// A signal that neither the supervisor nor a lack of memory explains, and the stage.
    Killed(i32, String),
    Signal(i32),
}

/// Runs this program with the same arguments in a child process. Returns its exit code. `outputs` are the files that it
/// writes. Errors: E0502 if a limit is exceeded, E0901 if another signal ended the child.
pub fn supervised(limits: &Limits, outputs: &[&Path]) -> Result<i32> {
    let begun = Instant::now();
    let (sender, events) = channel();
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| cannot_start(&e))?;
    watch_signals(signals, sender.clone())?;
    let clear = || outputs.iter().for_each(|output| remove_leftovers(output));
    let mut given_up: Vec<GivenUp> = vec![];
    loop {
        let folder = tempfile::tempdir().ok();
        let scratch = folder.as_ref().map(tempfile::TempDir::path);
        let child = start(limits, scratch, &given_up, &sender)?;
        let left = limits.time_limit.0.map(|time| time.saturating_sub(begun.elapsed()));
        let (resource, stage, took) = match attend(child, left, limits, &given_up, &events) {
            Outcome::Exit(code) => return Ok(code),
            Outcome::Signal(signal) => {
                drop(folder);
                clear();
                // Ends this process as the signal itself would have.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                return Ok(128 + signal);
            }
            Outcome::Killed(signal, stage) => {
                clear();
                return Err(Error::defect(format!("signal {signal} ended the compilation in stage `{stage}`")));
            }
            Outcome::OutOf(resource, stage, took) => (resource, stage, took),
        };
        clear();
        let Some(next) = to_give_up(resource, &stage, &took, &given_up) else {
            return Err(refused(limits, resource, &stage));
        };
        given_up.push(GivenUp { stage: next, out_of: resource });
        eprintln!("note: compiling again without `{next}`, which ran out of {}", resource.name());
    }
}

/// The optional stage to leave out in the next attempt.
fn to_give_up(
    resource: Resource,
    stage: &str,
    took: &BTreeMap<String, Duration>,
    given_up: &[GivenUp],
) -> Option<&'static str> {
    let mut left = OPTIONAL.iter().copied().filter(|stage| given_up.iter().all(|given| given.stage != *stage));
    match resource {
        Resource::Memory => left.find(|one| *one == stage),
        Resource::Time => left.filter(|one| took.contains_key(*one)).max_by_key(|one| took[*one]),
    }
}

fn refused(limits: &Limits, resource: Resource, stage: &str) -> Box<Error> {
    match (resource, limits.time_limit.0, limits.memory_limit) {
        (Resource::Time, Some(time), _) => {
            let message = format!("the compilation took more than {time:?}; it was in stage `{stage}`");
            Error::user("E0502", message).help("allow more with `--time-limit`")
        }
        (Resource::Memory, _, Some(bytes)) => {
            let message = format!("the compilation needs more than {bytes} bytes; it was in stage `{stage}`");
            Error::user("E0502", message).help("allow more with `--memory-limit`")
        }
        (Resource::Time | Resource::Memory, ..) => {
            let message = format!("this machine has not the memory for the compilation; it was in stage `{stage}`");
            Error::user("E0502", message).help("compile on a machine with more memory")
        }
    }
}

fn cannot_start(e: &std::io::Error) -> Box<Error> {
    Error::user("E0502", format!("cannot start the process that compiles: {e}"))
}

fn watch_signals(mut signals: Signals, sender: Sender<Event>) -> Result<()> {
    let watch = move || signals.forever().for_each(|signal| drop(sender.send(Event::Signal(signal))));
    let thread = std::thread::Builder::new().name("signals".into()).spawn(watch);
    thread.map(drop).map_err(|e| cannot_start(&e))
}

/// Starts the child, and a thread that reads the stages it reports.
fn start(limits: &Limits, scratch: Option<&Path>, given_up: &[GivenUp], sender: &Sender<Event>) -> Result<Child> {
    let program = std::env::current_exe().map_err(|e| cannot_start(&e))?;
    let (reader, writer) = pipe().map_err(|e| cannot_start(&e))?;
    let told: Vec<String> = given_up.iter().map(|one| format!("{}={}", one.stage, one.out_of.name())).collect();
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    command.env(STAGES_VARIABLE, writer.as_raw_fd().to_string()).env(GIVEN_UP_VARIABLE, told.join(","));
    if let Some(scratch) = scratch {
        command.env("TMPDIR", scratch);
    }
    confine(&mut command, &writer, limits.memory_limit);
    let child = command.spawn().map_err(|e| cannot_start(&e))?;
    drop(writer);
    let (sender, number) = (sender.clone(), given_up.len());
    let read = move || {
        let lines = BufReader::new(reader).lines().map_while(|line| line.ok());
        let events = lines.map(|stage| Event::Stage(number, stage)).chain([Event::End(number)]);
        events.for_each(|event| drop(sender.send(event)));
    };
    std::thread::Builder::new().name("stages".into()).spawn(read).map_err(|e| cannot_start(&e))?;
    Ok(child)
}

/// Makes the child keep the pipe, limits its memory, and lets it die with this process.
fn confine(command: &mut Command, writer: &PipeWriter, memory: Option<u64>) {
    let (descriptor, parent) = (writer.as_raw_fd(), std::process::id());
    let kept = move || {
        // SAFETY: these calls are allowed between fork and exec, and touch no memory except the limit on the stack.
        unsafe {
            if libc::fcntl(descriptor, libc::F_SETFD, 0) != 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            let limit = memory.map(|bytes| libc::rlimit { rlim_cur: bytes, rlim_max: bytes });
            if limit.is_some_and(|limit| libc::setrlimit(libc::RLIMIT_DATA, &limit) != 0) {
                return Err(std::io::Error::last_os_error());
            }
            match libc::getppid() as u32 == parent {
                true => Ok(()),
                // The parent has ended in the meantime.
                false => Err(std::io::ErrorKind::BrokenPipe.into()),
            }
        }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(kept) };
}

/// Waits for the child to end. Kills it when `left` is over; or at half of it, if optional stages took at least a
/// quarter of the time so far and one of them can be left out.
fn attend(
    mut child: Child,
    left: Option<Duration>,
    limits: &Limits,
    given_up: &[GivenUp],
    events: &Receiver<Event>,
) -> Outcome {
    let begun = Instant::now();
    let (mut stage, mut since) = (String::from("start"), begun);
    let mut took: BTreeMap<String, Duration> = BTreeMap::new();
    let mut share = left.map(|left| left / 2);
    let end = |child: &mut Child| {
        // The child may have ended by itself in the meantime; then there is nothing to do.
        let _ = child.kill();
        let _ = child.wait();
    };
    loop {
        let now = begun.elapsed();
        let until = share.into_iter().chain(left).filter(|until| *until > now).min();
        let event = match until {
            Some(until) => events.recv_timeout(until - now),
            None if left.is_some() => Err(RecvTimeoutError::Timeout),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            // This event comes from an earlier attempt, and is ignored.
            Ok(Event::Stage(number, _) | Event::End(number)) if number != given_up.len() => {}
            Ok(Event::Stage(_, next)) => {
                *took.entry(std::mem::replace(&mut stage, next)).or_default() += since.elapsed();
                since = Instant::now();
            }
            Ok(Event::Signal(signal)) => {
                end(&mut child);
                return Outcome::Signal(signal);
            }
            Ok(Event::End(_)) | Err(RecvTimeoutError::Disconnected) => {
                return match child.wait() {
                    Ok(status) => ended(status, limits, stage, took),
                    Err(_) => Outcome::Killed(0, stage),
                };
            }
            Err(RecvTimeoutError::Timeout) => {
                let mut spent = took.clone();
                *spent.entry(stage.clone()).or_default() += since.elapsed();
                let optional: Duration = OPTIONAL.iter().filter_map(|one| spent.get(*one)).sum();
                let is_over = left.is_some_and(|left| begun.elapsed() >= left);
                let saves =
                    optional * 4 >= begun.elapsed() && to_give_up(Resource::Time, &stage, &spent, given_up).is_some();
                if is_over || saves {
                    end(&mut child);
                    // Once all the time is over there is no further attempt.
                    return Outcome::OutOf(Resource::Time, stage, if is_over { BTreeMap::new() } else { spent });
                }
                share = None;
            }
        }
    }
}

/// Interprets an exit status. Under a memory limit, a failed allocation may end the process in several ways.
fn ended(status: ExitStatus, limits: &Limits, stage: String, took: BTreeMap<String, Duration>) -> Outcome {
    let limited = limits.memory_limit.is_some() || is_limited();
    match (status.code(), status.signal()) {
        // The loader failed: there is not even memory for the program itself.
        (Some(LOADER_FAILED), _) if limited => Outcome::OutOf(Resource::Memory, stage, took),
        (Some(code), _) => Outcome::Exit(code),
        (None, Some(SIGKILL)) => Outcome::OutOf(Resource::Memory, stage, took),
        (None, Some(SIGABRT | SIGSEGV | SIGBUS)) if limited => Outcome::OutOf(Resource::Memory, stage, took),
        (None, signal) => Outcome::Killed(signal.unwrap_or(0), stage),
    }
}

/// Whether this process was started with a memory limit.
fn is_limited() -> bool {
    let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
    limits.into_iter().any(|resource| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call only writes to `limit`.
        let known = unsafe { libc::getrlimit(resource, &mut limit) } == 0;
        known && limit.rlim_cur != libc::RLIM_INFINITY
    })
}
