//! a call of the first rank  =>  the same call on all ranks
//!
//! The application calls the first rank, which gives orders to the others and does its own part. A call ends when all
//! ranks have ended it, successfully or not, so that the next call finds all ranks idle. If ranks fail, the call
//! returns the error of the rank that failed first.

use super::link::Link;
use super::order::{Order, Run};
use crate::stop::Stop;
use sardonyx_base::view::TensorView;
use sardonyx_base::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The ranks of a model, as seen from the first one.
pub struct World {
    link: Arc<dyn Link>,
    /// Held while an order is carried out.
    turn: Mutex<()>,
    pub caches: Arc<CacheIds>,
    sessions: AtomicU64,
}

/// Hands out ids of caches, by which the other ranks identify the corresponding caches.
#[derive(Default)]
pub struct CacheIds {
    next: AtomicU64,
    dropped: Mutex<Vec<u64>>,
}

impl CacheIds {
    pub fn give(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn forget(&self, id: u64) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl World {
    pub fn new(link: Arc<dyn Link>) -> World {
        World { link, turn: Mutex::new(()), caches: Arc::default(), sessions: AtomicU64::new(0) }
    }

    pub fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    /// Returns a new id for a session, by which the other ranks identify the corresponding session.
    pub fn session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives an order to the other ranks, and waits until they have carried it out.
    pub fn tell(&self, order: Order) -> Result<()> {
        let turn = self.lock_when_idle(None)?;
        self.link.give(order, &[])?;
        self.ended(Ok(()), None, turn)
    }

    /// Gives an order to the other ranks, and carries out this rank's part with `own`.
    pub fn together<T>(&self, order: Order, own: impl FnOnce(&dyn Link) -> Result<T>) -> Result<T> {
        let turn = self.lock_when_idle(None)?;
        self.link.give(order, &[])?;
        let made = own(&*self.link);
        if let Err(e) = &made {
            self.link.fail(e);
        }
        self.ended(made, None, turn)
    }

    /// Makes a call on all ranks: the others carry out `run`, this one calls `own`.
    pub fn call<T>(
        &self,
        mut run: Run,
        inputs: &[(&str, TensorView)],
        stop: &Stop,
        own: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let turn = self.lock_when_idle(Some(stop))?;
        run.limit = stop.options().deadline.map(|at| at.saturating_duration_since(Instant::now()).as_nanos() as u64);
        run.dropped = self.caches.take();
        self.link.give(Order { run: Some(run), ..Order::default() }, inputs)?;
        let made = own();
        if let Err(e) = &made {
            self.link.fail(e);
        }
        self.ended(made, Some(stop), turn)
    }

    /// Takes the lock, and waits until all other ranks are idle.
    fn lock_when_idle(&self, stop: Option<&Stop>) -> Result<MutexGuard<'_, ()>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.link.await_idle(stop)?;
        Ok(turn)
    }

    /// Waits for all ranks to end an order. Returns this rank's result `made`, or the error of the first rank that
    /// failed.
    fn ended<T>(&self, made: Result<T>, stop: Option<&Stop>, _turn: MutexGuard<'_, ()>) -> Result<T> {
        // A call that has failed ends soon on all ranks, so its deadline does not matter.
        let idle = self.link.await_idle(if made.is_ok() { stop } else { None });
        match self.link.failed() {
            Some((first, error)) if first > 0 => Err(met(error, made.err())),
            Some(_) | None => idle.and(made),
        }
    }
}

/// Adds to the error of another rank the message and the node of this rank's own error, which tell where this rank
/// waited for the other; only if the own error is E0408 and the other error names no node.
fn met(mut error: Box<Error>, own: Option<Box<Error>>) -> Box<Error> {
    let Some(own) = own.filter(|own| own.code == "E0408" && error.node.is_none()) else { return error };
    error.message = format!("{}; {}", error.message, own.message);
    match own.node {
        Some(node) => error.node(node),
        None => error,
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.link.end();
    }
}
