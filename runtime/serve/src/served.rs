//! a loaded model  =>  its queue, its sessions, and results of requests

use crate::args::ServeArgs;
use crate::completions::Decoder;
use crate::embedder::Embedder;
use crate::gentle::gently;
use crate::metrics::Metrics;
use crate::ports::Ports;
use crate::queue::{Call, Done, Job, Queue, Ticket};
use crate::refusal::{Answer, Refusal};
use crate::stacking::{Share, Stacking, cut, stack};
use crate::statistics::Statistics;
use sardonyx_base::{Error, ErrorKind, Result, Tensor};
use sardonyx_runtime::{Model, Outputs, PoolOptions, Request, RunOptions, SessionPool};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;

pub struct Served {
    pub name: String,
    /// Number of times that a model of this name has been loaded.
    pub version: u64,
    pub ports: Ports,
    pub stacking: Option<Stacking>,
    pub queue: Queue,
    pub statistics: Statistics,
    /// Present for a model that computes embeddings or scores of texts.
    pub embedder: Option<Embedder>,
    /// Present for a model that extends texts.
    pub decoder: Option<Decoder>,
    /// Whether a rank has failed, so that no call succeeds until the model is loaded again.
    has_lost_ranks: AtomicBool,
    pool: SessionPool,
}

impl Served {
    /// Loads and tests an artifact; if other models are already served, at low priority. Errors: those of `Model::load`
    /// and `Model::session_pool`.
    pub fn load(
        (name, version): (&str, u64),
        path: &Path,
        args: &ServeArgs,
        metrics: &Metrics,
        is_serving: bool,
    ) -> Result<Served> {
        let tested = || Tested::load(path, args);
        let Tested { model, ports, pool, stacking, embedder } = if is_serving { gently(tested) } else { tested() }?;
        let decoder = Decoder::load(&model, || model.session(&pool.session), args)?;
        let pool = model.session_pool(&pool)?;
        let limits = &args.limits;
        let (jobs, positions) = (limits.waiting_max.get(), limits.waiting_positions_max.get());
        let queue = Queue::new(jobs, positions, pool.sessions(), args.compute.batch_time_max);
        let statistics = Statistics::new(metrics.positions_of(name));
        let (name, has_lost_ranks) = (name.into(), AtomicBool::new(false));
        Ok(Served { name, version, ports, stacking, queue, statistics, embedder, decoder, has_lost_ranks, pool })
    }

    /// Whether the model has to be loaded again; returns true once per failure.
    pub fn takes_loading(&self) -> bool {
        self.has_lost_ranks.swap(false, Ordering::Relaxed)
    }

    /// Enqueues the inputs of several jobs, and waits for all results. Dropping the future takes its jobs out of the
    /// queue.
    pub async fn compute(self: &Arc<Served>, asked: Vec<Asked>, deadline: Instant) -> Answer<Vec<Done>> {
        let arrived = Instant::now();
        let (mut jobs, mut waiting) = (Vec::with_capacity(asked.len()), Vec::with_capacity(asked.len()));
        for Asked { inputs, outputs } in asked {
            let positions = self.ports.positions(&inputs)?;
            let rows = Share::from_inputs(&inputs).rows;
            let (ticket, (reply, answer)) = (Arc::<Ticket>::default(), oneshot::channel());
            waiting.push((Leave { served: self.clone(), ticket: ticket.clone(), is_late: false }, answer));
            jobs.push(Job { inputs, outputs, rows, positions, deadline, arrived, is_alone: false, ticket, reply });
        }
        self.queue.push(jobs)?;
        self.dispatch();
        let mut done = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let (leave, answer) = &mut waiting[0];
            match tokio::time::timeout_at(deadline.into(), answer).await {
                Ok(Ok(result)) => done.push(result?),
                // A job is dropped without an answer only if it has expired.
                Ok(Err(_)) | Err(_) => {
                    leave.is_late = true;
                    waiting.iter_mut().for_each(|(leave, _)| leave.is_late = true);
                    return Err(late());
                }
            }
            waiting.remove(0);
        }
        Ok(done)
    }

    /// Returns the counters of KServe's statistics extension, together with those of the queue.
    pub fn statistics_json(&self) -> serde_json::Value {
        let mut json = self.statistics.json(&self.name, self.version);
        let counts = self.queue.counts();
        json["stacked"] = self.stacking.is_some().into();
        json["waiting"] = counts.waiting.into();
        json["waiting_positions"] = counts.positions.into();
        json["running"] = counts.calls.into();
        json["refused"] = counts.refused.into();
        json["expired"] = counts.expired.into();
        json["left"] = counts.left.into();
        if let Some(decoder) = &self.decoder {
            let counts = decoder.counts();
            json["sequences"] = json!({ "waiting": counts.waiting, "running": counts.running,
                                        "generated": counts.generated, "cached_bytes": counts.cached_bytes });
        }
        json
    }

    /// Starts calls as long as sessions are free and jobs are waiting.
    fn dispatch(self: &Arc<Served>) {
        let limits = self.stacking.as_ref().map(|stacking| stacking.limits);
        let fits = |a: &Job, b: &Job| self.stacking.as_ref().is_some_and(|stacking| stacking.fits(a, b));
        while let Some((jobs, call)) = self.queue.take(limits, fits) {
            self.begin(jobs, call);
        }
    }

    fn begin(self: &Arc<Served>, jobs: Vec<Job>, call: Arc<Call>) {
        let began = Instant::now();
        let positions = jobs.iter().map(|job| job.positions).sum();
        let request = match self.request(&jobs, &call) {
            Ok(request) => request,
            Err(error) => return self.end(jobs, Err(error), began, positions),
        };
        // The callback owns the jobs. If it is dropped without being called, the pool was closed.
        let served = self.clone();
        let accepted = self.pool.submit(request, move |result| {
            served.end(jobs, result, began, positions);
            served.dispatch();
        });
        if accepted.is_err() {
            self.queue.call_ended(positions, began.elapsed());
        }
    }

    fn request(&self, jobs: &[Job], call: &Call) -> Result<Request> {
        let inputs: Vec<&[Tensor]> = jobs.iter().map(|job| job.inputs.as_slice()).collect();
        let stacked = stack(&inputs, self.stacking.as_ref().is_some_and(|stacking| stacking.pads))?;
        let names = self.ports.inputs().iter().map(|port| port.name.as_str());
        let options = RunOptions::default()
            .deadline(jobs.iter().map(|job| job.deadline).max())
            .cancel(call.cancel.clone())
            .outputs(self.wanted(jobs));
        Ok(Request::new(names.zip(stacked)).entry(&self.ports.entry.name).options(options))
    }

    /// Returns the outputs that at least one job requests.
    fn wanted(&self, jobs: &[Job]) -> Vec<String> {
        let is_wanted =
            |name: &str| jobs.iter().any(|job| job.outputs.is_empty() || job.outputs.iter().any(|o| o == name));
        self.ports.outputs().map(|port| port.name.clone()).filter(|name| is_wanted(name)).collect()
    }

    /// Replies to the jobs of a call. If a call of several jobs fails because of one of them, each is computed alone,
    /// because the error does not tell which job has caused it.
    fn end(&self, jobs: Vec<Job>, result: Result<Outputs>, began: Instant, positions: usize) {
        let took = began.elapsed();
        self.queue.call_ended(positions, took);
        let shares: Vec<Share> = jobs.iter().map(|job| Share::from_inputs(&job.inputs)).collect();
        let pads = self.stacking.as_ref().is_some_and(|stacking| stacking.pads);
        let parts = result.and_then(|outputs| cut(outputs, &shares, &self.ports, pads));
        if parts.as_ref().is_err_and(|error| error.kind() == ErrorKind::Ranks) {
            self.has_lost_ranks.store(true, Ordering::Relaxed);
        }
        self.statistics.call_ended(&shares, positions, pads, took);
        match parts {
            Ok(parts) => {
                for (job, mut outputs) in jobs.into_iter().zip(parts) {
                    outputs.retain(|(name, _)| job.outputs.is_empty() || job.outputs.contains(name));
                    self.statistics.waited(began - job.arrived);
                    // Sending fails if the client has left, which needs no handling.
                    let _ = job.reply.send(Ok(outputs));
                }
            }
            Err(error) if jobs.len() > 1 && is_of_one(error.kind()) => self.queue.push_back(jobs),
            Err(error) => jobs.into_iter().for_each(|job| drop(job.reply.send(Err(error.clone())))),
        }
    }
}

/// A loaded and tested model. Its sessions are created later, so that their threads do not inherit the low priority.
struct Tested {
    model: Model,
    ports: Ports,
    pool: PoolOptions,
    stacking: Option<Stacking>,
    embedder: Option<Embedder>,
}

impl Tested {
    fn load(path: &Path, args: &ServeArgs) -> Result<Tested> {
        let model = args.load.load(path)?;
        let entry = model.entry_points().into_iter().next();
        let entry = entry.ok_or_else(|| Error::user("E0401", "the model has no entry point").file(model.file()))?;
        let ports = Ports::new(entry);
        let pool = args.compute.pool(&model);
        let stacking = Stacking::probe(&model, &ports, &pool.session, args.compute.batch_positions_max.get());
        let embedder = Embedder::load(&model, &ports, args.tokenizer.as_deref())?;
        Ok(Tested { model, ports, pool, stacking, embedder })
    }
}

/// Whether the error may be caused by one of several requests.
fn is_of_one(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Deadline | ErrorKind::Cancelled | ErrorKind::Closed | ErrorKind::Device)
}

fn late() -> Refusal {
    Error::user("E0305", "the deadline of the request has passed").into()
}

/// The inputs of a job in the order of the ports, and the names of the requested outputs; empty requests all.
pub struct Asked {
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<String>,
}

/// Guard that takes a job out of the queue when its client no longer waits.
struct Leave {
    served: Arc<Served>,
    ticket: Arc<Ticket>,
    is_late: bool,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.served.queue.leave(&self.ticket, self.is_late);
    }
}
