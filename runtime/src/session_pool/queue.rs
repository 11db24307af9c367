//! waiting requests  =>  the next one, in order of arrival; an error for those that expire or are cancelled meanwhile

use super::{PoolStatistics, Request};
use crate::outputs::Outputs;
use crate::stop::Stop;
use sardonyx_base::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub type Done = Box<dyn FnOnce(Result<Outputs>) + Send>;

pub struct Waiting {
    pub request: Request,
    pub done: Done,
}

/// Interval at which waiting requests are checked for cancellation, if they have a flag for it.
const CANCEL_POLL: Duration = Duration::from_millis(2);

pub struct Queue {
    n_sessions: usize,
    waiting_max: usize,
    state: Mutex<State>,
    /// Wakes a session: there is a request, or the pool ends.
    arrived: Condvar,
    /// Wakes the thread that answers expired requests: a request must be checked earlier, or the pool ends.
    expires_sooner: Condvar,
    /// Wakes callers that wait until everything is answered.
    answered: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Counts so far; `waiting` is only filled in by `statistics`.
    counts: PoolStatistics,
    /// Number of requests that have left the queue and whose callbacks have not returned.
    n_in_hand: usize,
    /// Whether requests are refused.
    is_closed: bool,
    /// Whether threads end as soon as nothing is waiting.
    has_ended: bool,
    /// When the thread that answers expired requests wakes up by itself; `None` if it does not.
    next_look: Option<Instant>,
}

impl Waiting {
    /// Checks that the request has neither expired nor been cancelled. Errors: E0305, E0306.
    fn check(&self) -> Result<()> {
        Stop::new(&self.request.options).check()
    }

    /// Returns when to check next whether the request has expired or been cancelled; `None` if neither can happen.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let poll = self.request.options.cancel.as_ref().map(|_| now + CANCEL_POLL);
        self.request.options.deadline.into_iter().chain(poll).min()
    }
}

impl State {
    /// Removes the expired and cancelled requests from the queue, and returns each with its error.
    fn take_expired(&mut self) -> Vec<(Waiting, Box<Error>)> {
        let mut expired = vec![];
        for i in (0..self.waiting.len()).rev() {
            let Err(error) = self.waiting[i].check() else { continue };
            expired.extend(self.waiting.remove(i).map(|waiting| (waiting, error)));
        }
        expired.reverse();
        expired.iter().for_each(|(_, error)| self.count_expired(error));
        expired
    }

    fn count_expired(&mut self, error: &Error) {
        self.n_in_hand += 1;
        match error.kind() == ErrorKind::Deadline {
            true => self.counts.expired += 1,
            false => self.counts.cancelled += 1,
        }
    }
}

impl Queue {
    pub fn new(n_sessions: usize, waiting_max: usize) -> Queue {
        Queue {
            n_sessions,
            waiting_max,
            state: Mutex::default(),
            arrived: Condvar::new(),
            expires_sooner: Condvar::new(),
            answered: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn statistics(&self) -> PoolStatistics {
        let state = self.lock();
        PoolStatistics { waiting: state.waiting.len(), ..state.counts }
    }

    /// Enqueues a request. Errors: E0308, E0309.
    pub fn push(&self, waiting: Waiting) -> Result<()> {
        let mut state = self.lock();
        if let Err(error) = self.check_room(&state) {
            state.counts.refused += 1;
            // A refused request is dropped after the lock is released: its callback may own anything.
            drop(state);
            return Err(error);
        }
        let look = waiting.next_look(Instant::now());
        // A free session takes the request at once.
        let stays = state.waiting.len() + state.n_in_hand >= self.n_sessions;
        state.waiting.push_back(waiting);
        self.arrived.notify_one();
        if stays && look.is_some_and(|at| state.next_look.is_none_or(|next| at < next)) {
            self.expires_sooner.notify_one();
        }
        Ok(())
    }

    fn check_room(&self, state: &State) -> Result<()> {
        let n_waiting = state.waiting.len();
        if state.is_closed {
            return Err(closed());
        }
        match n_waiting + state.counts.running < self.n_sessions.saturating_add(self.waiting_max) {
            true => Ok(()),
            false => Err(Error::user("E0308", format!("{n_waiting} requests wait for a session, and no more may"))),
        }
    }

    /// Waits for the next request that may begin, and returns it; `None` when the pool has ended.
    pub fn pop(&self) -> Option<Waiting> {
        let mut state = self.lock();
        loop {
            let Some(next) = state.waiting.pop_front() else {
                if state.has_ended {
                    return None;
                }
                state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Err(error) = next.check() else {
                state.n_in_hand += 1;
                state.counts.running += 1;
                return Some(next);
            };
            state.count_expired(&error);
            drop(state);
            self.refuse(next, error);
            state = self.lock();
        }
    }

    /// Answers a request that `pop` has returned.
    pub fn answer(&self, done: Done, result: Result<Outputs>) {
        let mut state = self.lock();
        state.counts.running -= 1;
        state.counts.served += 1;
        state.counts.failed += u64::from(result.is_err());
        // The request is counted before its callback runs, so that a caller that has its answer finds it in the
        // statistics.
        drop(state);
        self.call(done, result);
    }

    /// Answers waiting requests that have expired or been cancelled, until the pool ends.
    pub fn answer_expired(&self) {
        let mut state = self.lock();
        while !state.has_ended {
            let expired = state.take_expired();
            if !expired.is_empty() {
                drop(state);
                expired.into_iter().for_each(|(waiting, error)| self.refuse(waiting, error));
                state = self.lock();
                continue;
            }
            let now = Instant::now();
            state.next_look = state.waiting.iter().filter_map(|waiting| waiting.next_look(now)).min();
            let limit = state.next_look.map(|at| at.saturating_duration_since(now));
            state = match limit {
                None => self.expires_sooner.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(limit) => self.expires_sooner.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Answers a request that is not computed.
    fn refuse(&self, Waiting { request, done }: Waiting, error: Box<Error>) {
        caught(|| drop(request));
        self.call(done, Err(error));
    }

    fn call(&self, done: Done, result: Result<Outputs>) {
        let returned = caught(|| done(result)).is_some();
        let mut state = self.lock();
        state.counts.panicked += u64::from(!returned);
        state.n_in_hand -= 1;
        if state.n_in_hand == 0 && state.waiting.is_empty() {
            self.answered.notify_all();
        }
    }

    /// Refuses further requests, and waits until every accepted one is answered.
    pub fn finish(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        while state.n_in_hand > 0 || !state.waiting.is_empty() {
            state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Refuses further requests, answers waiting ones with E0309, and lets the threads end.
    pub fn end(&self) {
        let mut state = self.lock();
        (state.is_closed, state.has_ended) = (true, true);
        let waiting = std::mem::take(&mut state.waiting);
        state.n_in_hand += waiting.len();
        state.counts.refused += waiting.len() as u64;
        drop(state);
        self.arrived.notify_all();
        self.expires_sooner.notify_all();
        waiting.into_iter().for_each(|waiting| self.refuse(waiting, closed()));
    }
}

/// Returns the result of a function; `None` if it panics.
pub fn caught<T>(f: impl FnOnce() -> T) -> Option<T> {
    // The caller is responsible for what its code leaves behind after a panic; our state is behind locks that ignore
    // poisoning.
    catch_unwind(AssertUnwindSafe(f)).map_err(std::mem::forget).ok()
}

fn closed() -> Box<Error> {
    Error::user("E0309", "the pool of sessions is closed")
}
