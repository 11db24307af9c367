//! deadline, cancellation  =>  whether a call may continue

use sardonyx_base::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Instant;

/// When to stop a call, and which outputs to return. Deadline and cancellation are checked before the call starts,
/// between launches, between chunks of a launch, and within host operations; the session stays usable afterwards. On a
/// GPU, launches that were submitted are waited for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Ends the call with E0305 once it has passed; time spent waiting for another call of the session counts.
    pub deadline: Option<Instant>,
    /// Ends the call with E0306 once it is true; set by any thread, never by the session.
    pub cancel: Option<Arc<AtomicBool>>,
    /// Names of the outputs to return, beside those that the caller gives memory for; all if absent.
    pub outputs: Option<Vec<String>>,
}

impl RunOptions {
    /// Sets the time after which the call ends with E0305; `None`, the default, is no deadline.
    pub fn deadline(self, deadline: impl Into<Option<Instant>>) -> RunOptions {
        RunOptions { deadline: deadline.into(), ..self }
    }

    /// Sets a flag that ends the call with E0306 once it is true; none by default.
    pub fn cancel(self, cancel: impl Into<Option<Arc<AtomicBool>>>) -> RunOptions {
        RunOptions { cancel: cancel.into(), ..self }
    }

    /// Sets the names of the outputs to return, beside those that the caller gives memory for; all by default.
    pub fn outputs<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> RunOptions {
        RunOptions { outputs: Some(names.into_iter().map(N::into).collect()), ..self }
    }
}

/// The stop conditions of one call.
pub(crate) struct Stop<'a> {
    options: &'a RunOptions,
    /// The [`Reason`] why a chunk of work was skipped, or 0. Once it is set, the result is incomplete, even if the
    /// cancel flag is reset.
    skipped: AtomicU8,
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum Reason {
    Cancelled = 1,
    Late = 2,
}

impl<'a> Stop<'a> {
    pub fn new(options: &'a RunOptions) -> Stop<'a> {
        Stop { options, skipped: AtomicU8::new(0) }
    }

    /// Whether anything can stop the call.
    pub fn possible(&self) -> bool {
        self.options.deadline.is_some() || self.options.cancel.is_some()
    }

    pub fn options(&self) -> &RunOptions {
        self.options
    }

    /// Whether a chunk of work may begin; if not, it counts as skipped.
    pub fn go_on(&self) -> bool {
        match self.reason() {
            None => true,
            Some(reason) => {
                self.skipped.store(reason as u8, Ordering::Relaxed);
                false
            }
        }
    }

    pub fn check(&self) -> Result<()> {
        let skipped = match self.skipped.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Reason::Cancelled),
            _ => Some(Reason::Late),
        };
        match skipped.or_else(|| self.reason()) {
            None => Ok(()),
            Some(Reason::Cancelled) => Err(Error::user("E0306", "the call was cancelled")),
            Some(Reason::Late) => Err(Error::user("E0305", "the deadline of the call has passed")),
        }
    }

    fn reason(&self) -> Option<Reason> {
        if self.options.cancel.as_ref().is_some_and(|c| c.load(Ordering::Relaxed)) {
            return Some(Reason::Cancelled);
        }
        self.options.deadline.is_some_and(|d| Instant::now() >= d).then_some(Reason::Late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_piece_that_was_left_out_is_remembered() {
        let flag = Arc::new(AtomicBool::new(true));
        let options = RunOptions::default().cancel(flag.clone());
        let stop = Stop::new(&options);
        assert!(!stop.go_on());
        assert_eq!(stop.check().unwrap_err().code, "E0306");
        // The flag is reset too late: the result lacks a chunk.
        flag.store(false, Ordering::Relaxed);
        assert_eq!(stop.check().unwrap_err().code, "E0306");
    }

    #[test]
    fn a_deadline_is_an_instant() {
        let at = |deadline| RunOptions::default().deadline(deadline);
        assert_eq!(Stop::new(&at(Instant::now())).check().unwrap_err().code, "E0305");
        assert!(Stop::new(&at(Instant::now() + Duration::from_secs(60))).check().is_ok());
        assert!(!Stop::new(&RunOptions::default()).possible());
    }
}
