//! waiting jobs  =>  the jobs of one call: the oldest job, and those that can be stacked with it
//!
//! No timer delays a job to collect more: a free session takes what is waiting. A job leaves the queue as soon as its
//! client disconnects or its deadline passes. A call is cancelled when no client waits for it any more.

use crate::pace::{CallSize, Pace};
use crate::refusal::{Answer, Refusal};
use axum::http::StatusCode;
use sardonyx_base::{Result, Tensor};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A request, or a part of one, that goes into one call as a whole.
pub struct Job {
    /// The inputs, in the order of the ports.
    pub inputs: Vec<Tensor>,
    /// Names of the requested outputs; an empty list requests all outputs.
    pub outputs: Vec<String>,
    /// The size of the dimension along which jobs are stacked.
    pub rows: usize,
    /// Number of positions (see `Ports::positions`), which measures the work.
    pub positions: usize,
    pub deadline: Instant,
    pub arrived: Instant,
    /// Whether the job must be computed alone, because a call that it shared with other jobs has failed.
    pub is_alone: bool,
    pub ticket: Arc<Ticket>,
    pub reply: oneshot::Sender<Result<Done>>,
}

/// The outputs of a job, by name.
pub type Done = Vec<(String, Tensor)>;

/// Identifies a job while it waits and while it is computed.
#[derive(Default)]
pub struct Ticket {
    /// Whether the client no longer waits.
    has_left: AtomicBool,
    /// The call that computes the job; `None` while the job waits.
    call: Mutex<Option<Arc<Call>>>,
}

/// A running call.
pub struct Call {
    /// Number of its jobs whose clients still wait.
    waiting: AtomicUsize,
    /// Set to true to cancel the call.
    pub cancel: Arc<AtomicBool>,
}

/// Maximum number of rows and of positions of one stacked call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub rows: usize,
    pub positions: usize,
}

/// The jobs of a model that wait for a session.
pub struct Queue {
    /// Maximum number of jobs that wait, besides those that free sessions are about to take.
    jobs_max: usize,
    /// Maximum number of positions that wait, unless a single request has more.
    positions_max: usize,
    /// Maximum number of concurrent calls: the number of sessions.
    calls_max: usize,
    /// Time that a call of several jobs should take at most.
    call_time: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    positions: usize,
    calls: usize,
    counts: Counts,
    pace: Pace,
    call_size: CallSize,
}

/// Counters of a queue at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Number of waiting jobs.
    pub waiting: usize,
    /// Number of positions of the waiting jobs.
    pub positions: usize,
    /// Time that the first job of the queue has waited.
    pub oldest: Duration,
    /// Number of running calls.
    pub calls: usize,
    /// Number of requests refused so far because the queue was full.
    pub refused: u64,
    /// Number of jobs removed so far because their deadline had passed.
    pub expired: u64,
    /// Number of jobs removed so far because their client had disconnected.
    pub left: u64,
}

impl Queue {
    pub fn new(jobs_max: usize, positions_max: usize, calls_max: usize, call_time: Duration) -> Queue {
        Queue { jobs_max, positions_max, calls_max, call_time, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counts(&self) -> Counts {
        let state = self.lock();
        Counts {
            waiting: state.waiting.len(),
            positions: state.positions,
            oldest: state.waiting.front().map_or(Duration::ZERO, |job| job.arrived.elapsed()),
            calls: state.calls,
            ..state.counts
        }
    }

    /// Accepts all jobs of a request, or none. Errors: 413 for a request with more jobs than may ever wait, 429 while
    /// the queue is too full for it.
    pub fn push(&self, jobs: Vec<Job>) -> Answer<()> {
        if jobs.len() > self.jobs_max {
            let message = format!("the request has {} parts, and at most {} may wait", jobs.len(), self.jobs_max);
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(Refusal::new(status, "too-large", message, "send several smaller requests"));
        }
        let positions = jobs.iter().fold(0usize, |n, job| n.saturating_add(job.positions));
        let mut state = self.lock();
        let free = self.calls_max - state.calls.min(self.calls_max);
        let has_room = state.waiting.len() + jobs.len() <= self.jobs_max.saturating_add(free)
            && (state.waiting.is_empty() || state.positions.saturating_add(positions) <= self.positions_max);
        if !has_room {
            state.counts.refused += 1;
            let seconds = state.seconds_to_drain();
            let message =
                format!("{} requests with {} positions wait, and no more may", state.waiting.len(), state.positions);
            let help = "ask again later, or let more wait with `--waiting-max` and `--waiting-positions-max`";
            let status = StatusCode::TOO_MANY_REQUESTS;
            return Err(Refusal::new(status, "queue-full", message, help).retry_after(seconds));
        }
        state.positions = state.positions.saturating_add(positions);
        state.waiting.extend(jobs);
        Ok(())
    }

    /// Puts the jobs of a failed call back at the front of the queue, each to be computed alone.
    pub fn push_back(&self, jobs: Vec<Job>) {
        let mut state = self.lock();
        for mut job in jobs.into_iter().rev() {
            job.is_alone = true;
            *job.ticket.call() = None;
            state.positions = state.positions.saturating_add(job.positions);
            state.waiting.push_front(job);
        }
    }

    /// Takes the oldest job, and the jobs that `fits` allows to stack with it, oldest first, within `limits` and the
    /// current call size; without `limits`, takes one job. Returns `None` if all sessions are busy, or no job waits.
    pub fn take(&self, limits: Option<Limits>, fits: impl Fn(&Job, &Job) -> bool) -> Option<(Vec<Job>, Arc<Call>)> {
        let mut state = self.lock();
        if state.calls >= self.calls_max {
            return None;
        }
        let now = Instant::now();
        let first = loop {
            let job = state.pop_front()?;
            match (job.ticket.has_left.load(Ordering::Relaxed), job.deadline <= now) {
                (false, false) => break job,
                // An expired job is dropped without a reply, from which its handler concludes that the deadline passed.
                (false, true) => state.counts.expired += 1,
                (true, _) => state.counts.left += 1,
            }
        };
        let mut jobs = vec![first];
        if let Some(limits) = limits.filter(|_| !jobs[0].is_alone) {
            let limits = Limits { positions: limits.positions.min(state.call_size.positions), ..limits };
            let (mut rows, mut positions) = (jobs[0].rows, jobs[0].positions);
            let mut at = 0;
            while at < state.waiting.len() && rows < limits.rows && positions < limits.positions {
                let job = &state.waiting[at];
                let joins = !job.is_alone
                    && job.deadline > now
                    && rows.saturating_add(job.rows) <= limits.rows
                    && positions.saturating_add(job.positions) <= limits.positions
                    && fits(&jobs[0], job);
                match joins.then(|| state.remove(at)).flatten() {
                    Some(job) => {
                        rows += job.rows;
                        positions += job.positions;
                        jobs.push(job);
                    }
                    None => at += 1,
                }
            }
        }
        state.calls += 1;
        let call = Arc::new(Call { waiting: AtomicUsize::new(jobs.len()), cancel: Arc::default() });
        for job in &jobs {
            *job.ticket.call() = Some(call.clone());
        }
        Some((jobs, call))
    }

    /// Frees the session of a call, and updates the pace and the call size. Must be called after each call whose jobs
    /// came from `take`.
    pub fn call_ended(&self, positions: usize, took: Duration) {
        let mut state = self.lock();
        let State { calls, pace, call_size, .. } = &mut *state;
        *calls -= 1;
        pace.add(positions, took);
        call_size.follow(positions, pace, self.call_time);
    }

    /// Removes a job from the queue, because its client has disconnected or (`is_late`) its deadline has passed. If the
    /// job is being computed, its call is cancelled once the clients of all its jobs have left.
    pub fn leave(&self, ticket: &Arc<Ticket>, is_late: bool) {
        let mut state = self.lock();
        if ticket.has_left.swap(true, Ordering::Relaxed) {
            return;
        }
        match ticket.call().take() {
            Some(call) => {
                if call.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
                    call.cancel.store(true, Ordering::Relaxed);
                }
            }
            None => {
                let at = state.waiting.iter().position(|job| Arc::ptr_eq(&job.ticket, ticket));
                if at.and_then(|at| state.remove(at)).is_some() {
                    match is_late {
                        true => state.counts.expired += 1,
                        false => state.counts.left += 1,
                    }
                }
            }
        }
    }
}

impl State {
    fn pop_front(&mut self) -> Option<Job> {
        self.remove(0)
    }

    fn remove(&mut self, at: usize) -> Option<Job> {
        let job = self.waiting.remove(at)?;
        self.positions = self.positions.saturating_sub(job.positions);
        Some(job)
    }

    /// Returns the estimated time in seconds until the waiting jobs are computed, from 1 to 60.
    fn seconds_to_drain(&self) -> u64 {
        let seconds = self.positions as f64 / self.pace.positions_per_second().max(1.0);
        (seconds.ceil() as u64).clamp(1, 60)
    }
}

impl Ticket {
    fn call(&self) -> MutexGuard<'_, Option<Arc<Call>>> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(rows: usize, deadline: Instant) -> Job {
        Job {
            inputs: vec![],
            outputs: vec![],
            rows,
            positions: rows * 10,
            deadline,
            arrived: Instant::now(),
            is_alone: false,
            ticket: Arc::default(),
            reply: oneshot::channel().0,
        }
    }

    /// Returns a queue that has measured very fast calls, so that time does not limit the size of calls.
    fn queue(jobs_max: usize, positions_max: usize, calls_max: usize) -> Queue {
        let queue = Queue::new(jobs_max, positions_max, calls_max, Duration::from_secs(1));
        [10, 20].iter().for_each(|positions| queue.lock().pace.add(*positions, Duration::from_micros(1)));
        queue
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    const LIMITS: Option<Limits> = Some(Limits { rows: 8, positions: 50 });

    fn rows(taken: Option<(Vec<Job>, Arc<Call>)>) -> Vec<usize> {
        taken.map(|(jobs, _)| jobs.iter().map(|job| job.rows).collect()).unwrap_or_default()
    }

    #[test]
    fn what_waits_is_taken_together_in_order_and_within_limits() {
        let queue = queue(10, 1000, 9);
        queue.push([2, 4, 1, 1, 1].map(|rows| job(rows, later())).into()).unwrap();
        // Adding the job of four rows would exceed the positions; the later jobs still fit.
        assert_eq!(rows(queue.take(LIMITS, |_, _| true)), [2, 1, 1, 1]);
        assert_eq!(rows(queue.take(LIMITS, |_, _| true)), [4]);
        queue.push([1, 1, 2].map(|rows| job(rows, later())).into()).unwrap();
        assert_eq!(rows(queue.take(LIMITS, |a, b| a.rows == b.rows)), [1, 1]);
        assert_eq!(rows(queue.take(None, |_, _| true)), [2]);
        assert_eq!((queue.counts().waiting, queue.counts().positions, queue.counts().calls), (0, 0, 4));
    }

    #[test]
    fn a_call_has_no_more_than_there_is_time_for() {
        let queue = Queue::new(10, 1000, 9, Duration::from_millis(50));
        let push = || queue.push([1, 1, 1, 1].map(|rows| job(rows, later())).into()).unwrap();
        push();
        // No call has been measured yet.
        assert_eq!(rows(queue.take(LIMITS, |_, _| true)), [1, 1, 1, 1]);
        push();
        // Two calls took 1.5 ms per position: 33 positions take 50 ms, and the call size is the power of two below, 32.
        queue.call_ended(20, Duration::from_millis(30));
        queue.lock().calls += 1;
        queue.call_ended(40, Duration::from_millis(60));
        assert_eq!(rows(queue.take(LIMITS, |_, _| true)), [1, 1, 1]);
        // A single job may take longer than the time of a call.
        queue.push([9, 1].map(|rows| job(rows, later())).into()).unwrap();
        assert_eq!(rows(queue.take(LIMITS, |_, _| true)), [1, 1]);
        assert_eq!(rows(queue.take(LIMITS, |_, _| true)), [9]);
    }

    #[test]
    fn no_more_wait_than_may_and_no_more_calls_run() {
        let queue = queue(2, 40, 1);
        queue.push(vec![job(1, later())]).unwrap();
        let _running = queue.take(LIMITS, |_, _| true).unwrap();
        queue.push(vec![job(1, later()), job(1, later())]).unwrap();
        assert!(queue.take(LIMITS, |_, _| true).is_none());
        let refusal = queue.push(vec![job(1, later())]).unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.reason), (429, "queue-full"));
        assert!(refusal.retry_after.is_some());
        assert_eq!(queue.push([1, 1, 1].map(|r| job(r, later())).into()).unwrap_err().status.as_u16(), 413);
        queue.call_ended(10, Duration::from_millis(1));
        assert_eq!(rows(queue.take(LIMITS, |_, _| true)), [1, 1]);
        // A job that is larger than the whole queue may wait if no other job waits.
        queue.push(vec![job(9, later())]).unwrap();
        assert_eq!(queue.push(vec![job(1, later())]).unwrap_err().status.as_u16(), 429);
    }

    #[test]
    fn those_who_leave_are_not_computed() {
        let queue = queue(10, 1000, 1);
        let (a, b, late) = (job(1, later()), job(2, later()), job(3, Instant::now()));
        let (ticket_a, ticket_b) = (a.ticket.clone(), b.ticket.clone());
        let c = job(4, later());
        let ticket_c = c.ticket.clone();
        queue.push(vec![late, a, b, c]).unwrap();
        queue.leave(&ticket_a, false);
        let (jobs, call) = queue.take(None, |_, _| true).unwrap();
        assert_eq!(jobs[0].rows, 2);
        queue.leave(&ticket_c, true);
        assert!(!call.cancel.load(Ordering::Relaxed));
        queue.leave(&ticket_b, false);
        assert!(call.cancel.load(Ordering::Relaxed));
        let Counts { waiting, positions, expired, left, .. } = queue.counts();
        assert_eq!((waiting, positions, expired, left), (0, 0, 2, 1));
    }

    #[test]
    fn a_call_goes_on_as_long_as_one_waits() {
        let queue = queue(10, 1000, 1);
        let jobs = [1, 1].map(|rows| job(rows, later()));
        let tickets = [0, 1].map(|i| jobs[i].ticket.clone());
        queue.push(jobs.into()).unwrap();
        let (jobs, call) = queue.take(LIMITS, |_, _| true).unwrap();
        queue.leave(&tickets[0], false);
        queue.leave(&tickets[0], false);
        assert!(!call.cancel.load(Ordering::Relaxed));
        queue.call_ended(10, Duration::ZERO);
        queue.push_back(jobs);
        // The job whose client left is skipped, and the other job is computed alone.
        queue.push(vec![job(1, later())]).unwrap();
        let (jobs, _) = queue.take(LIMITS, |_, _| true).unwrap();
        assert!(jobs.len() == 1 && Arc::ptr_eq(&jobs[0].ticket, &tickets[1]));
    }
}
