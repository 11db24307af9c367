//! a kind and its number of seeds  =>  watched workers on every processor, and a tally of all outcomes

use crate::Kind;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Number of seeds that one worker process takes before a new one starts, so that small leaks do not add up to a fault.
const BATCH: u64 = 250;
/// Limits on the time between two lines of output of a worker. `PROCESSOR_MAX` bounds its processor time, and is more
/// than any mutant may take; `SILENCE_MAX` bounds wall time, for a worker that waits forever. Wall time alone would
/// measure how busy the machine is.
const PROCESSOR_MAX: Duration = Duration::from_secs(40);
const SILENCE_MAX: Duration = Duration::from_secs(240);
const TICK: Duration = Duration::from_secs(1);

/// How often each outcome occurred, and every fault.
#[derive(Default)]
pub struct Tally {
    pub outcomes: BTreeMap<String, u64>,
    pub faults: Vec<String>,
}

impl Tally {
    /// Records a fault and prints it at once, because the whole suite takes long.
    fn fault(&mut self, what: String) {
        eprintln!("{what}");
        self.faults.push(what);
    }

    pub fn total(&self) -> u64 {
        self.outcomes.values().sum::<u64>() + self.faults.len() as u64
    }

    /// Number of mutants whose outcome satisfies `matches`.
    pub fn count(&self, matches: impl Fn(&str) -> bool) -> u64 {
        self.outcomes.iter().filter(|(what, _)| matches(what)).map(|(_, n)| n).sum()
    }
}

pub fn run(kind: &Kind, n: u64) -> Result<(), String> {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(8);
    let batch = BATCH.min(n.div_ceil(workers as u64));
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let work = || {
            let mut tally = Tally::default();
            loop {
                let from = next.fetch_add(batch, Ordering::Relaxed);
                if from >= n {
                    return tally;
                }
                seeds(kind, from..(from + batch).min(n), &mut tally);
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().expect("a watcher does not panic")).collect()
    });
    let mut all = Tally::default();
    for tally in tallies {
        tally.outcomes.into_iter().for_each(|(what, n)| *all.outcomes.entry(what).or_default() += n);
        all.faults.extend(tally.faults);
    }
    println!(
        "{}: {} mutants in {:.1} s, {} faults",
        kind.name,
        all.total(),
        start.elapsed().as_secs_f64(),
        all.faults.len()
    );
    all.outcomes.iter().for_each(|(what, n)| println!("{n:8}  {what}"));
    if !all.faults.is_empty() {
        return Err(format!("{} of {n} mutants:\n{}", all.faults.len(), all.faults.join("\n")));
    }
    (kind.check)(&all);
    Ok(())
}

/// Runs all seeds of a batch. A worker that ends early is replaced, and its current seed counts as a fault.
fn seeds(kind: &Kind, seeds: Range<u64>, tally: &mut Tally) {
    let mut from = seeds.start;
    while from < seeds.end {
        let mut worker = Worker::start(kind, from..seeds.end);
        let mut current = from;
        loop {
            match worker.line() {
                Ok(line) => {
                    let mut words = line.splitn(3, ' ');
                    let (verb, seed, rest) = (words.next(), words.next(), words.next().unwrap_or(""));
                    current = seed.and_then(|s| s.parse().ok()).unwrap_or(current);
                    match verb {
                        Some("fine") => *tally.outcomes.entry(rest.to_string()).or_default() += 1,
                        Some("fault") => tally.fault(format!("{} {current}: {rest}", kind.name)),
                        Some(_) | None => continue,
                    }
                    from = current + 1;
                }
                Err(why) => {
                    if from < seeds.end {
                        let how = worker.end(why);
                        tally.fault(format!("{} {current}: {how}", kind.name));
                        from = current + 1;
                    }
                    break;
                }
            }
        }
    }
}

struct Worker {
    child: Child,
    lines: Receiver<String>,
    /// Whether the worker has written its first line.
    began: bool,
}

impl Worker {
    fn start(kind: &Kind, seeds: Range<u64>) -> Worker {
        let own = std::env::current_exe().expect("a test knows its own path");
        let mut command = Command::new(own);
        command.args(["worker", kind.name]).args([seeds.start.to_string(), seeds.end.to_string()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a worker starts");
        let (say, lines) = channel();
        let out = child.stdout.take().expect("it is piped");
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|l| say.send(l)));
        Worker { child, lines, began: false }
    }

    /// The next line of the worker. An error if the worker ended or exceeded a time limit.
    fn line(&mut self) -> Result<String, RecvTimeoutError> {
        let (asked, spent) = (Instant::now(), self.processor_time());
        loop {
            match self.lines.recv_timeout(TICK) {
                Err(RecvTimeoutError::Timeout) => {
                    let busy = self.processor_time().saturating_sub(spent) > PROCESSOR_MAX;
                    // The processor time before the first line includes the preparations and is not limited.
                    if asked.elapsed() > SILENCE_MAX || (busy && self.began) {
                        return Err(RecvTimeoutError::Timeout);
                    }
                }
                other => {
                    self.began = true;
                    return other;
                }
            }
        }
    }

    /// User and system time of the worker, which Linux counts in hundredths of a second.
    fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The name is followed by the state and ten other fields, then by the two times.
        let behind = stat.rsplit(')').next().unwrap_or("").split_whitespace();
        Duration::from_millis(behind.skip(11).take(2).map(|n| 10 * n.parse::<u64>().unwrap_or(0)).sum())
    }

    /// Describes how a worker ended before its work was done.
    fn end(&mut self, why: RecvTimeoutError) -> String {
        let hung = why == RecvTimeoutError::Timeout;
        if hung {
            let _ = self.child.kill();
        }
        let status = self.child.wait().map_or("no status".to_string(), |s| s.to_string());
        let mut said = String::new();
        let _ = self.child.stderr.take().map(|mut e| e.read_to_string(&mut said));
        let said: Vec<&str> = said.lines().rev().take(12).collect();
        match hung {
            true => format!("no end after {PROCESSOR_MAX:?} of a processor, or {SILENCE_MAX:?}"),
            false => format!("the worker ended: {status}: {}", said.into_iter().rev().collect::<Vec<_>>().join(" | ")),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
