//! sequences of tokens  =>  one more token of each in turn, with the keys and values of each in its own cache
//!
//! A sequence joins the running ones as soon as there is capacity, between two of their tokens, and leaves after its
//! last token. Each sequence is computed by separate calls, so its tokens do not depend on concurrent requests.

use super::sampling::{Sampler, Sampling};
use crate::args::ServeArgs;
use crate::refusal::{Answer, Refusal};
use crate::texts::{Settings, Texts};
use axum::http::StatusCode;
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_runtime::{Cache, Model, RunOptions, Session};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// A model that keeps keys and values in a cache, its tokenizer, and the queue of the thread that computes its
/// sequences.
pub struct Decoder {
    pub texts: Texts,
    line: Arc<Line>,
}

/// A sequence that is waiting or being extended.
pub struct Sequence {
    /// Index among the sequences of its request.
    pub index: usize,
    /// The tokens of the prompt, followed by the generated ones.
    pub tokens: Vec<i64>,
    pub wanted: usize,
    /// Tokens that end the sequence.
    pub ends: Vec<u32>,
    pub sampling: Sampling,
    pub deadline: Instant,
    /// Receives `(index, event)`: at most `wanted` tokens and one final event.
    pub events: UnboundedSender<(usize, Event)>,
}

#[derive(Debug)]
pub enum Event {
    Token(u32),
    /// The sequence has as many tokens as were requested, or its last token is one of `ends`.
    End(Reason),
    Failed(Box<Error>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Length,
    Stop,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Reason::Length => "length",
            Reason::Stop => "stop",
        }
    }
}

/// The queue of waiting sequences, and counters of the running ones.
#[derive(Default)]
struct Line {
    waiting: Mutex<Waiting>,
    news: Condvar,
    running: AtomicUsize,
    generated: AtomicUsize,
    cached_bytes: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    sequences: VecDeque<Sequence>,
    is_closed: bool,
}

/// Counters of a decoder at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub waiting: usize,
    pub running: usize,
    pub generated: usize,
    pub cached_bytes: usize,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Decoder {
    /// Creates the decoder of a model. Returns `None` if the model keeps no keys and values, or has inputs other than
    /// [`INPUTS`]. Errors: those of `Texts::load`, E0304.
    pub fn load(model: &Model, session: impl FnOnce() -> Result<Session>, args: &ServeArgs) -> Result<Option<Decoder>> {
        let Some(entries) = Entries::find(model) else { return Ok(None) };
        let texts = Texts::load(model, Settings::attached(model)?, args.tokenizer.as_deref())?.bounded(None)?;
        let line = Arc::<Line>::default();
        let worker = Worker {
            session: session()?,
            entries,
            line: line.clone(),
            running_max: args.compute.sequences_max.get(),
            cached_bytes_max: args.compute.cache_memory_max.get().saturating_mul(1 << 20),
            position_bytes: 0,
        };
        let thread = std::thread::Builder::new().name("sardonyx-decode".into()).spawn(move || worker.run());
        thread.map_err(|e| Error::user("E0304", format!("cannot start a thread: {e}")))?;
        Ok(Some(Decoder { texts, line }))
    }

    pub fn counts(&self) -> Counts {
        let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let waiting = self.line.lock().sequences.len();
        let Line { running, generated, cached_bytes, .. } = &*self.line;
        Counts { waiting, running: count(running), generated: count(generated), cached_bytes: count(cached_bytes) }
    }

    /// Enqueues all sequences of a request or none.
    pub fn push(&self, sequences: Vec<Sequence>, waiting_max: usize) -> Answer<()> {
        let mut waiting = self.line.lock();
        if waiting.sequences.len() + sequences.len() > waiting_max {
            let message = format!("{} sequences wait, and at most {waiting_max} may", waiting.sequences.len());
            let help = "ask again later, or let more wait with `--waiting-max`";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", message, help).retry_after(1));
        }
        waiting.sequences.extend(sequences);
        drop(waiting);
        self.line.news.notify_one();
        Ok(())
    }
}

impl Drop for Decoder {
    /// Lets the thread end once the sequences that it already has are finished.
    fn drop(&mut self) {
        self.line.lock().is_closed = true;
        self.line.news.notify_one();
    }
}

/// Names of the entry points for a prompt and for the tokens after it; both may be the same entry point.
struct Entries {
    prefill: String,
    decode: String,
}

const LOGITS: &str = "logits";

/// The inputs that the decoder can supply.
static INPUTS: [&str; 3] = ["attention_mask", "input_ids", "position_ids"];

impl Entries {
    fn find(model: &Model) -> Option<Entries> {
        let fits = |name: &&str| {
            let Ok(entry) = model.entry(name) else { return false };
            let takes = |name: &str, dtype: DType| INPUTS.contains(&name) && dtype == DType::I64;
            !entry.states.is_empty()
                && entry.fresh_inputs().all(|port| takes(&port.name, port.dtype))
                && entry.fresh_inputs().any(|port| port.name == "input_ids")
                && entry.outputs.iter().any(|port| port.name == LOGITS && port.dtype.is_float())
        };
        let [prefill, decode] =
            ["prefill", "decode"].map(|name| [name, "main"].into_iter().find(fits).map(str::to_string));
        Some(Entries { prefill: prefill?, decode: decode? })
    }
}

/// A sequence that is being extended.
struct Running {
    sequence: Sequence,
    prompt: usize,
    sampler: Sampler,
    cache: Cache<'static>,
    /// Bytes of its cache: an estimate before its first step, the actual size afterwards.
    bytes: usize,
}

struct Worker {
    session: Session,
    entries: Entries,
    line: Arc<Line>,
    running_max: usize,
    cached_bytes_max: usize,
    /// Bytes of a cache per position; 0 until the first call has shown it.
    position_bytes: usize,
}

impl Worker {
    fn run(mut self) {
        let mut running: Vec<Running> = vec![];
        loop {
            if !self.admit(&mut running) {
                return;
            }
            running.retain_mut(|one| self.step(one));
            self.line.running.store(running.len(), Ordering::Relaxed);
            self.line.cached_bytes.store(running.iter().map(|one| one.bytes).sum(), Ordering::Relaxed);
        }
    }

    /// Starts waiting sequences as long as there is capacity, and blocks while none is running. Returns false at
    /// shutdown.
    fn admit(&mut self, running: &mut Vec<Running>) -> bool {
        let line = self.line.clone();
        let mut waiting = line.lock();
        loop {
            while let Some(next) = waiting.sequences.front() {
                // The last token is never an input, so it needs no position.
                let capacity = next.tokens.len().saturating_add(next.wanted) - 1;
                let bytes = capacity.saturating_mul(self.position_bytes);
                let held: usize = running.iter().map(|one| one.bytes).sum();
                let fits = running.len() < self.running_max
                    && held.saturating_add(bytes) <= self.cached_bytes_max
                    // The first sequence runs alone, because its cache shows how much memory a position takes.
                    && (self.position_bytes > 0 || running.is_empty());
                if !fits && !running.is_empty() {
                    return true;
                }
                let Some(sequence) = waiting.sequences.pop_front() else { break };
                match self.begun(sequence, capacity, bytes) {
                    Ok(one) => running.push(one),
                    Err((sequence, error)) => drop(sequence.events.send((sequence.index, Event::Failed(error)))),
                }
            }
            if !running.is_empty() {
                return true;
            }
            if waiting.is_closed {
                return false;
            }
            waiting =
                line.news.wait_timeout(waiting, Duration::from_secs(1)).map_or_else(|e| e.into_inner().0, |w| w.0);
        }
    }

    fn begun(
        &self,
        sequence: Sequence,
        capacity: usize,
        bytes: usize,
    ) -> std::result::Result<Running, (Sequence, Box<Error>)> {
        if bytes > self.cached_bytes_max {
            let message = format!(
                "{capacity} positions need {bytes} bytes of a cache, and at most {} may be used",
                self.cached_bytes_max
            );
            let error =
                Error::user("E0304", message).help("ask for fewer tokens, or allow more with `--cache-memory-max`");
            return Err((sequence, error));
        }
        match self.session.cache(&self.entries.decode, capacity) {
            Ok(cache) => {
                let (prompt, sampler) = (sequence.tokens.len(), Sampler::new(sequence.sampling));
                Ok(Running { sequence, prompt, sampler, cache, bytes })
            }
            Err(error) => Err((sequence, error)),
        }
    }

    /// Generates one token. Returns whether the sequence continues.
    fn step(&mut self, one: &mut Running) -> bool {
        if one.sequence.events.is_closed() {
            return false;
        }
        let next = self.token(one);
        one.bytes = one.cache.bytes();
        self.position_bytes = self.position_bytes.max(one.bytes.div_ceil(one.cache.capacity().max(1)));
        let Running { sequence, prompt, .. } = one;
        let index = sequence.index;
        let send = |event| sequence.events.send((index, event)).is_ok();
        let token = match next {
            Ok(token) => token,
            Err(error) => {
                send(Event::Failed(error));
                return false;
            }
        };
        self.line.generated.fetch_add(1, Ordering::Relaxed);
        sequence.tokens.push(i64::from(token));
        let reason = if sequence.ends.contains(&token) {
            Some(Reason::Stop)
        } else {
            (sequence.tokens.len() - *prompt >= sequence.wanted).then_some(Reason::Length)
        };
        let is_read = send(Event::Token(token));
        match reason {
            Some(reason) => {
                send(Event::End(reason));
                false
            }
            None => is_read,
        }
    }

    fn token(&self, one: &mut Running) -> Result<u32> {
        let name = if one.cache.is_empty() { &self.entries.prefill } else { &self.entries.decode };
        let tokens = &one.sequence.tokens;
        let new = one.cache.len()..tokens.len();
        let mut inputs = vec![];
        for port in self.session.model().entry(name)?.fresh_inputs() {
            let values = match port.name.as_str() {
                "input_ids" => tokens[new.clone()].to_vec(),
                "position_ids" => new.clone().map(|position| position as i64).collect(),
                // A single sequence has no padding to mask.
                _ => vec![1; tokens.len()],
            };
            inputs.push((port.name.as_str(), Tensor::from_vec(vec![1, values.len()], values)));
        }
        let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor.into())).collect();
        let options = RunOptions::default().deadline(one.sequence.deadline).outputs([LOGITS]);
        let outputs = self.session.run_cached(name, &inputs, &mut [], &mut one.cache, &options)?;
        let logits = outputs.get(LOGITS);
        one.sampler.next(logits.ok_or_else(|| Error::defect("a decoder without logits"))?)
    }
}
