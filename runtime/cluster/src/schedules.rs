//! stages, micro-batches  =>  the order in which each worker of a pipeline executes its work, and the times
//!
//! GPipe runs all micro-batches forward before it runs any backward; 1F1B runs each micro-batch backward as soon as
//! possible, so that few activations are kept; in an interleaved schedule, each worker has several chunks of the model,
//! so that the pipeline fills sooner; Chimera runs a second pipeline in the other direction through the same workers,
//! and its work fills the idle times of the first pipeline. A worker executes its list in order, and each item as soon
//! as the worker is free and the inputs of the item are available.

use sardonyx_base::{Error, Result};
use std::collections::BTreeMap;

/// Pipeline schedule: determines the order in which each worker processes micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Forward passes only, for inference.
    Forward,
    /// All micro-batches run forward before any runs backward.
    GPipe,
    /// 1F1B: after a warm-up, each worker alternates between one micro-batch forward and one backward.
    OneForwardOneBackward,
    /// Each worker has several chunks of the model.
    Interleaved {
        /// Number of chunks of each worker; [`Schedule::named`] accepts 1 to 64.
        chunks: usize,
    },
    /// Two pipelines in opposite directions, each with half of the micro-batches, share the workers.
    Chimera,
}

/// Direction in which a stage runs a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the first stage to the last.
    Forward,
    /// From the last stage to the first.
    Backward,
}

/// One stage's work on one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work {
    /// Number of the stage in the order of the model, from 0; in an interleaved schedule, the number of the chunk.
    pub stage: usize,
    /// Index of the micro-batch, from 0.
    pub micro_batch: usize,
    /// Whether the stage runs forward or backward.
    pub direction: Direction,
    /// Whether the work belongs to the pipeline that runs from the last worker to the first.
    pub up: bool,
}

/// One item of work of a worker, with its start and end times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// What the worker executes.
    pub work: Work,
    /// Time at which the work starts, from 0, in the unit of the arguments of [`Schedule::timeline`].
    pub start: f64,
    /// Time at which the work ends, in the same unit.
    pub end: f64,
}

/// Execution of a schedule, with the times of all work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// By worker: its slots in order.
    pub slots: Vec<Vec<Slot>>,
    /// Time at which the last worker ends.
    pub total: f64,
    /// By worker: the maximum number of work items that have, at one time, run forward on the worker and not yet
    /// backward; the activations of these items are kept.
    pub activations: Vec<usize>,
}

impl Timeline {
    /// The total time during which a worker is idle.
    pub fn idle(&self, worker: usize) -> f64 {
        self.total - self.slots[worker].iter().map(|slot| slot.end - slot.start).sum::<f64>()
    }

    /// The idle time of all workers, as a fraction of the total time of all workers.
    pub fn bubble(&self) -> f64 {
        let idle: f64 = (0..self.slots.len()).map(|worker| self.idle(worker)).sum();
        idle / (self.total * self.slots.len() as f64)
    }
}

impl Schedule {
    /// Returns the name that [`Schedule::named`] accepts, such as `interleaved:2`.
    pub fn name(self) -> String {
        match self {
            Schedule::Forward => "forward".into(),
            Schedule::GPipe => "gpipe".into(),
            Schedule::OneForwardOneBackward => "1f1b".into(),
            Schedule::Interleaved { chunks } => format!("interleaved:{chunks}"),
            Schedule::Chimera => "chimera".into(),
        }
    }

    /// Parses the name of a schedule. Errors: E0001 for an unknown name; its help lists the names.
    pub fn named(text: &str) -> Result<Schedule> {
        let unknown = || {
            let error = Error::user("E0001", format!("there is no schedule `{text}`"));
            error.help("the schedules are forward, gpipe, 1f1b, interleaved:CHUNKS, chimera")
        };
        Ok(match text {
            "forward" => Schedule::Forward,
            "gpipe" => Schedule::GPipe,
            "1f1b" => Schedule::OneForwardOneBackward,
            "chimera" => Schedule::Chimera,
            _ => {
                let chunks =
                    text.strip_prefix("interleaved:").and_then(|n| n.parse().ok()).filter(|n| (1..=64).contains(n));
                Schedule::Interleaved { chunks: chunks.ok_or_else(unknown)? }
            }
        })
    }

    fn chunks(self) -> usize {
        if let Schedule::Interleaved { chunks } = self { chunks } else { 1 }
    }

    /// Returns the work of each worker, in order of execution. Errors: E0001 for numbers of stages and micro-batches
    /// that the schedule does not support.
    pub fn orders(self, workers: usize, micro_batches: usize) -> Result<Vec<Vec<Work>>> {
        let unfit = |what: &str| {
            let message = format!("`{}` of {workers} stages and {micro_batches} micro-batches", self.name());
            Err(Error::user("E0001", message).help(what.to_string()))
        };
        if workers == 0 || micro_batches == 0 || workers > 1024 || micro_batches > 1 << 16 {
            return unfit("give 1 to 1024 stages and 1 to 65536 micro-batches");
        }
        let down = |stage, micro_batch, direction| Work { stage, micro_batch, direction, up: false };
        let all = |stage: usize, direction| (0..micro_batches).map(move |m| down(stage, m, direction));
        Ok(match self {
            Schedule::Forward => (0..workers).map(|s| all(s, Direction::Forward).collect()).collect(),
            Schedule::GPipe => {
                let order = |s| all(s, Direction::Forward).chain(all(s, Direction::Backward)).collect();
                (0..workers).map(order).collect()
            }
            Schedule::OneForwardOneBackward => {
                let order = |s: usize| {
                    let warm_up = (workers - 1 - s).min(micro_batches);
                    alternating(warm_up, micro_batches, &|k, direction| down(s, k, direction))
                };
                (0..workers).map(order).collect()
            }
            Schedule::Interleaved { .. } if !micro_batches.is_multiple_of(workers) => {
                return unfit("an interleaved schedule needs a multiple of the stages as micro-batches");
            }
            Schedule::Interleaved { chunks } => {
                (0..workers).map(|s| interleaved(s, (workers, chunks), micro_batches)).collect()
            }
            Schedule::Chimera if !workers.is_multiple_of(2) || !micro_batches.is_multiple_of(workers) => {
                return unfit("Chimera needs an even number of stages, and a multiple of them as micro-batches");
            }
            Schedule::Chimera => chimera(workers, micro_batches),
        })
    }

    /// Computes the start and end of each worker's items, given the time that one worker's share of the model takes
    /// forward and backward. Errors: those of [`orders`](Schedule::orders).
    pub fn timeline(self, workers: usize, micro_batches: usize, forward: f64, backward: f64) -> Result<Timeline> {
        let orders = self.orders(workers, micro_batches)?;
        let share = 1.0 / self.chunks() as f64;
        executed(&orders, workers * self.chunks(), (forward * share, backward * share))
    }
}

/// The order of one worker: `warm_up` items forward, then alternately one forward and one backward, then the remaining
/// items backward.
fn alternating(warm_up: usize, n: usize, work: &dyn Fn(usize, Direction) -> Work) -> Vec<Work> {
    let mut order: Vec<Work> = (0..warm_up).map(|k| work(k, Direction::Forward)).collect();
    for k in warm_up..n {
        order.extend([work(k, Direction::Forward), work(k - warm_up, Direction::Backward)]);
    }
    order.extend((n - warm_up..n).map(|k| work(k, Direction::Backward)));
    order
}

/// The order of one worker in an interleaved schedule: each group of `workers` micro-batches passes through the chunks
/// of the worker one after another.
fn interleaved(worker: usize, (workers, chunks): (usize, usize), micro_batches: usize) -> Vec<Work> {
    let n = micro_batches * chunks;
    let warm_up = ((workers - 1 - worker) * 2 + (chunks - 1) * workers).min(n);
    let work = |k: usize, direction| {
        let (group, within) = (k / (workers * chunks), k % (workers * chunks));
        let chunk = match direction {
            Direction::Forward => within / workers,
            Direction::Backward => chunks - 1 - within / workers,
        };
        let micro_batch = group * workers + within % workers;
        Work { stage: chunk * workers + worker, micro_batch, direction, up: false }
    };
    alternating(warm_up, n, &work)
}

/// Orders for Chimera: half of the micro-batches start at the first worker, half at the last (`up`). Both halves
/// interleave without gaps if forward and backward passes take equally long.
fn chimera(workers: usize, micro_batches: usize) -> Vec<Vec<Work>> {
    let mut slots: Vec<Vec<(usize, Work)>> = vec![vec![]; workers];
    for unit in 0..micro_batches / workers {
        let base = 2 * workers * unit;
        for (m, up) in (0..workers / 2).flat_map(|m| [(m, false), (m, true)]) {
            let micro_batch = unit * workers + m + if up { workers / 2 } else { 0 };
            for stage in 0..workers {
                let worker = if up { workers - 1 - stage } else { stage };
                let work = |direction| Work { stage, micro_batch, direction, up };
                let backward = workers - 1 + 2 * m + workers - stage;
                slots[worker].push((base + stage + 2 * m, work(Direction::Forward)));
                slots[worker].push((base + backward, work(Direction::Backward)));
            }
        }
    }
    slots.iter_mut().for_each(|slots| slots.sort_by_key(|(slot, _)| *slot));
    slots.into_iter().map(|slots| slots.into_iter().map(|(_, work)| work).collect()).collect()
}

/// Executes each worker's list in order. A stage runs a micro-batch forward when the previous stage has done so, and
/// backward when the next stage has done so.
fn executed(orders: &[Vec<Work>], n_stages: usize, (forward, backward): (f64, f64)) -> Result<Timeline> {
    let mut ends: BTreeMap<Work, f64> = BTreeMap::new();
    let mut line = Timeline { slots: vec![vec![]; orders.len()], total: 0.0, activations: vec![0; orders.len()] };
    let mut kept = vec![0usize; orders.len()];
    loop {
        let (mut some, mut done) = (false, true);
        for (worker, order) in orders.iter().enumerate() {
            while let Some(work) = order.get(line.slots[worker].len()) {
                done = false;
                let Some(ready) = ready_at(work, n_stages, &ends) else { break };
                let free = line.slots[worker].last().map_or(0.0, |slot| slot.end);
                let takes = if work.direction == Direction::Forward { forward } else { backward };
                let start = ready.max(free);
                let slot = Slot { work: *work, start, end: start + takes };
                ends.insert(*work, slot.end);
                line.total = line.total.max(slot.end);
                line.slots[worker].push(slot);
                match work.direction {
                    Direction::Forward => kept[worker] += 1,
                    Direction::Backward => kept[worker] -= 1,
                }
                line.activations[worker] = line.activations[worker].max(kept[worker]);
                some = true;
            }
        }
        match (done, some) {
            (true, _) => return Ok(line),
            (false, true) => {}
            (false, false) => return Err(Error::defect("the workers of a schedule wait for each other")),
        }
    }
}

/// The time at which the inputs of the work are available; `None` if the work that produces them has not been timed
/// yet.
fn ready_at(work: &Work, n_stages: usize, ends: &BTreeMap<Work, f64>) -> Option<f64> {
    let before = match (work.direction, work.stage) {
        (Direction::Forward, 0) => return Some(0.0),
        (Direction::Forward, stage) => Work { stage: stage - 1, ..*work },
        (Direction::Backward, stage) if stage + 1 == n_stages => Work { direction: Direction::Forward, ..*work },
        (Direction::Backward, stage) => {
            let own = ends.get(&Work { direction: Direction::Forward, ..*work })?;
            return ends.get(&Work { stage: stage + 1, ..*work }).map(|end| end.max(*own));
        }
    };
    ends.get(&before).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(schedule: Schedule, d: usize, n: usize, backward: f64) -> Timeline {
        schedule.timeline(d, n, 1.0, backward).unwrap()
    }

    /// Checks that each stage runs each micro-batch once per direction, and that a worker does one thing at a time.
    fn check_all(schedule: Schedule, d: usize, n: usize, backward: f64) -> Timeline {
        let line = line(schedule, d, n, backward);
        let mut all: Vec<Work> = line.slots.iter().flatten().map(|slot| slot.work).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2 * n * d * schedule.chunks(), "{schedule:?} {d} {n}");
        for slots in &line.slots {
            assert!(slots.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
        line
    }

    #[test]
    fn totals_bubbles_and_activations_are_the_closed_forms() {
        for d in (4..=16).step_by(2) {
            for k in [1, 2, 4] {
                let n = k * d;
                for backward in [1.0, 2.0] {
                    let total = (n + d - 1) as f64 * (1.0 + backward);
                    let idle = (d - 1) as f64 * (1.0 + backward);
                    let gpipe = check_all(Schedule::GPipe, d, n, backward);
                    assert_eq!((gpipe.total, gpipe.idle(0)), (total, idle), "{d} {n}");
                    assert_eq!(gpipe.activations, vec![n; d]);
                    let alternating = check_all(Schedule::OneForwardOneBackward, d, n, backward);
                    assert_eq!((alternating.total, alternating.idle(d - 1)), (total, idle), "{d} {n}");
                    assert_eq!(alternating.activations, (0..d).map(|s| d - s).collect::<Vec<usize>>());
                    for chunks in [2, 4] {
                        let interleaved = check_all(Schedule::Interleaved { chunks }, d, n, backward);
                        let bubble = idle / chunks as f64;
                        assert!((interleaved.idle(0) - bubble).abs() < 1e-9, "{d} {n} {chunks}");
                    }
                }
                let chimera = check_all(Schedule::Chimera, d, n, 1.0);
                assert_eq!(chimera.total, (2 * n + d - 2) as f64, "{d} {n}");
                assert!((0..d).all(|worker| chimera.idle(worker) == (d - 2) as f64), "{d} {n}");
                let kept = chimera.activations.iter();
                assert!(kept.clone().all(|kept| (d / 2 + 1..=d).contains(kept)), "{d} {n} {:?}", chimera.activations);
                let serving = line(Schedule::Forward, d, n, 0.0);
                assert_eq!(serving.total, (n + d - 1) as f64);
            }
        }
    }

    #[test]
    fn where_backward_takes_twice_as_long_chimera_gains_at_first_and_loses_later() {
        for (d, n, chimera, alternating) in
            [(4, 4, 16, 21), (4, 8, 30, 33), (8, 8, 36, 45), (8, 16, 66, 69), (8, 24, 96, 93)]
        {
            assert_eq!(line(Schedule::Chimera, d, n, 2.0).total, f64::from(chimera), "{d} {n}");
            assert_eq!(line(Schedule::OneForwardOneBackward, d, n, 2.0).total, f64::from(alternating), "{d} {n}");
        }
    }

    #[test]
    fn what_a_schedule_is_not_for_is_refused() {
        for (schedule, d, n) in [("chimera", 5, 5), ("chimera", 4, 6), ("interleaved:2", 4, 6), ("gpipe", 0, 1)] {
            let error = Schedule::named(schedule).unwrap().orders(d, n).unwrap_err();
            assert_eq!((error.code, error.help.is_some()), ("E0001", true), "{schedule}");
        }
        for text in ["zero-bubble", "interleaved:0", "interleaved:x", ""] {
            assert_eq!(Schedule::named(text).unwrap_err().code, "E0001");
        }
        for schedule in ["forward", "gpipe", "1f1b", "interleaved:3", "chimera"] {
            assert_eq!(Schedule::named(schedule).unwrap().name(), schedule);
        }
    }
}
