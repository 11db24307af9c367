//! calls and requests of a model  =>  counts and times, for the statistics of KServe's protocol and for the metrics

use crate::stacking::Share;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub struct Statistics {
    counts: Mutex<Counts>,
    positions: Histogram,
}

/// How often something happened, and its total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    pub count: u64,
    pub total: Duration,
}

impl Times {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.total += took;
    }

    fn json(self) -> Value {
        json!({ "count": self.count, "ns": self.ns() })
    }

    pub fn ns(self) -> u64 {
        u64::try_from(self.total.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests that succeeded, with the time from the end of their headers to their answer.
    pub succeeded: Times,
    pub failed: Times,
    pub waited: Times,
    pub decoded: Times,
    pub encoded: Times,
    pub computed: Times,
    pub rows: u64,
    pub positions: u64,
    pub padding: u64,
    /// Number and time of calls, by their number of rows.
    pub batches: BTreeMap<usize, Times>,
    pub last: Option<std::time::SystemTime>,
}

impl Counts {
    /// Returns the time of the last answer in milliseconds since 1970-01-01; 0 before the first.
    pub fn last_millis(&self) -> u64 {
        let since = self.last.and_then(|last| last.duration_since(std::time::UNIX_EPOCH).ok());
        since.map_or(0, |since| since.as_millis() as u64)
    }
}

/// Batches with at least this many rows are counted together.
const BATCHES_MAX: usize = 1024;

impl Statistics {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn new(positions: Histogram) -> Statistics {
        Statistics { counts: Mutex::default(), positions }
    }

    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// Records a call that computed these shares, padded to the longest one if `pads`.
    pub fn call_ended(&self, shares: &[Share], positions: usize, pads: bool, took: Duration) {
        let rows = shares.iter().map(|share| share.rows).sum::<usize>();
        let longest = shares.iter().map(|share| share.length).max().unwrap_or(0);
        let padded = if pads { rows.saturating_mul(longest) } else { positions };
        self.positions.observe(positions as f64);
        let mut counts = self.lock();
        counts.computed.add(took);
        counts.rows += rows as u64;
        counts.positions += positions as u64;
        counts.padding += padded.saturating_sub(positions) as u64;
        counts.batches.entry(rows.min(BATCHES_MAX)).or_default().add(took);
    }

    pub fn waited(&self, took: Duration) {
        self.lock().waited.add(took);
    }

    pub fn decoded(&self, took: Duration) {
        self.lock().decoded.add(took);
    }

    pub fn encoded(&self, took: Duration) {
        self.lock().encoded.add(took);
    }

    pub fn answered(&self, took: Duration, is_ok: bool) {
        let mut counts = self.lock();
        counts.last = Some(std::time::SystemTime::now());
        match is_ok {
            true => counts.succeeded.add(took),
            false => counts.failed.add(took),
        }
    }

    /// Returns the counts in the format of the protocol's statistics extension.
    pub fn json(&self, name: &str, version: u64) -> Value {
        let counts = self.counts();
        let batches: Vec<Value> = counts
            .batches
            .iter()
            .map(|(rows, times)| json!({ "batch_size": rows, "compute_infer": times.json() }))
            .collect();
        json!({
            "name": name,
            "version": version.to_string(),
            "last_inference": counts.last_millis(),
            "inference_count": counts.rows,
            "execution_count": counts.computed.count,
            "inference_stats": {
                "success": counts.succeeded.json(),
                "fail": counts.failed.json(),
                "queue": counts.waited.json(),
                "compute_input": counts.decoded.json(),
                "compute_infer": counts.computed.json(),
                "compute_output": counts.encoded.json(),
            },
            "batch_stats": batches,
        })
    }
}
