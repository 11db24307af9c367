//! a loaded model  =>  its queue, its sessions, and answers to requests

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
    /// Counts the times that a model of this name was loaded.
    pub version: u64,
    pub ports: Ports,
    pub stacking: Option<Stacking>,
    pub queue: Queue,
    pub statistics: Statistics,
    /// There is one for a model that makes embeddings of texts.
    pub embedder: Option<Embedder>,
    /// There is one for a model that adds to texts.
    pub decoder: Option<Decoder>,
    /// A rank has failed: no call succeeds any more.
    has_lost_ranks: AtomicBool,
    pool: SessionPool,
}

impl Served {
    /// Loads an artifact, and tests it as it says: where others are served, on a thread that gives way to theirs. Errors: those
    /// of `Model::load` and `Model::session_pool`.
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

    /// Whether the model has to be loaded again; told once for each time that it fails.
    pub fn takes_loading(&self) -> bool {
        self.has_lost_ranks.swap(false, Ordering::Relaxed)
    }

    /// Puts the inputs of several requests into the queue, and waits for all of them. Whoever drops the future leaves the queue.
    pub async fn compute(self: &Arc<Served>, asked: Vec<Asked>, deadline: Instant) -> Answer<Vec<Done>> {
        let arrived = Instant::now();
        let (mut jobs, mut waiting) = (Vec::with_capacity(asked.len()), Vec::with_capacity(asked.len()));
        for Asked { inputs, outputs } in asked {
            let positions = self.ports.positions(&inputs)?;
            let rows = Share::of(&inputs).rows;
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
                // Only a job that has expired is dropped without an answer.
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

    /// The counts of the statistics extension of KServe's protocol, with the queue's own beside them.
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

    /// Starts calls as long as sessions are free and jobs wait.
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
        // The callback has the jobs; where it is dropped without a call, the pool was closed.
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

    /// The outputs that some job wants.
    fn wanted(&self, jobs: &[Job]) -> Vec<String> {
        let is_wanted =
            |name: &str| jobs.iter().any(|job| job.outputs.is_empty() || job.outputs.iter().any(|o| o == name));
        self.ports.outputs().map(|port| port.name.clone()).filter(|name| is_wanted(name)).collect()
    }

    /// Answers the jobs of a call. Where one of several is wrong, nobody knows which, so each is computed alone.
    fn end(&self, jobs: Vec<Job>, result: Result<Outputs>, began: Instant, positions: usize) {
        let took = began.elapsed();
        self.queue.call_ended(positions, took);
        let shares: Vec<Share> = jobs.iter().map(|job| Share::of(&job.inputs)).collect();
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
                    // Whoever has left needs no answer.
                    let _ = job.reply.send(Ok(outputs));
                }
            }
            Err(error) if jobs.len() > 1 && is_of_one(error.kind()) => self.queue.push_back(jobs),
            Err(error) => jobs.into_iter().for_each(|job| drop(job.reply.send(Err(error.clone())))),
        }
    }
}

/// A model that is ready for sessions, whose threads are not those that it was tested on.
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
        let stacking = Stacking::of(&model, &ports, &pool.session, args.compute.batch_positions_max.get());
        let embedder = Embedder::load(&model, &ports, args.tokenizer.as_deref())?;
        Ok(Tested { model, ports, pool, stacking, embedder })
    }
}

/// The error may come from one request of several.
fn is_of_one(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Deadline | ErrorKind::Cancelled | ErrorKind::Closed | ErrorKind::Device)
}

fn late() -> Refusal {
    Error::user("E0305", "the deadline of the request has passed").into()
}

/// The inputs of a job in the order of the ports, and the outputs wanted of it; all where empty.
pub struct Asked {
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<String>,
}

/// Takes a job out of the queue when nobody waits for it any more.
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
