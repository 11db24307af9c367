//! bench MODEL.sdx  =>  median, quartiles, minimum of the time of one call

use super::inputs::{InputArgs, Missing, gather};
use super::{ModelArgs, ThreadArgs, put};
use crate::json::Json;
use crate::{Error, Result, Session, Tensor};
use std::io::Write;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} bench model.sdx --dim batch=1 --dim seq=128
  {bin} bench model.sdx --input input_ids=range:0..30521 --dim seq=128 --threads 1 --json")]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub inputs: InputArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Measure for at least so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub min_time: f64,
}

/// Calls measured at least, however long each takes.
const ITERATIONS_MIN: usize = 5;
/// And at most: enough for any quantile, and bounds the memory for the times.
const ITERATIONS_MAX: usize = 1_000_000;

/// Inputs that are not given are random, dimensions that are not given as small as they may be.
pub fn bench(args: &BenchArgs, out: &mut dyn Write) -> Result<()> {
    if !(0.0..=86_400.0).contains(&args.min_time) {
        return Err(Error::user("E0001", format!("`--min-time {}` is not between 0 and 86400", args.min_time)));
    }
    let model = args.model.load()?;
    let inputs = gather(&model, &args.inputs, Missing::MakeUp).map_err(|e| e.file(model.file()))?;
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let session = args.threads.session(&model)?;
    let times = measure(&session, &inputs, args.min_time)?;
    let report = Report { times: &times, inputs: &inputs, session: &session };
    if args.json { put!(out, "{}", report.json()) } else { put!(out, "{}", report.text()) }
}

/// Seconds per call, sorted. Loading, the first calls (page faults, clock) and making up inputs are not in it.
fn measure(session: &Session, inputs: &[(&str, Tensor)], seconds: f64) -> Result<Vec<f64>> {
    let limit = Duration::from_secs_f64(seconds);
    let warm = Instant::now();
    for i in 0.. {
        session.run(inputs)?;
        if i > 0 && warm.elapsed() > limit / 4 {
            break;
        }
    }
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < ITERATIONS_MIN || (start.elapsed() < limit && times.len() < ITERATIONS_MAX) {
        let call = Instant::now();
        // Giving the outputs' memory back belongs to a call.
        drop(session.run(inputs)?);
        times.push(call.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

struct Report<'a> {
    times: &'a [f64],
    inputs: &'a [(&'a str, Tensor)],
    session: &'a Session,
}

impl Report<'_> {
    /// Linear between neighbours, in milliseconds.
    fn quantile_ms(&self, q: f64) -> f64 {
        let at = q * (self.times.len() - 1) as f64;
        let (low, high) = (self.times[at.floor() as usize], self.times[at.ceil() as usize]);
        (low + (high - low) * at.fract()) * 1e3
    }

    fn level(&self) -> &'static str {
        self.session.model().level().map_or("none", |l| l.name())
    }

    fn json(&self) -> String {
        let inputs = self.inputs.iter().map(|(name, t)| {
            format!("{}: {{\"dtype\": \"{}\", \"dims\": {:?}}}", Json::from(*name), t.dtype(), t.dims())
        });
        let inputs: Vec<String> = inputs.collect();
        format!(
            "{{\"model\": {}, \"median_ms\": {:.6}, \"q1_ms\": {:.6}, \"q3_ms\": {:.6}, \"min_ms\": {:.6}, \
             \"iterations\": {}, \"per_second\": {:.3}, \"threads\": {}, \"cpu\": \"{}\", \"inputs\": {{{}}}}}",
            Json::from(self.session.model().file()),
            self.quantile_ms(0.5),
            self.quantile_ms(0.25),
            self.quantile_ms(0.75),
            self.quantile_ms(0.0),
            self.times.len(),
            1e3 / self.quantile_ms(0.5),
            self.session.threads(),
            self.level(),
            inputs.join(", "),
        )
    }

    fn text(&self) -> String {
        let inputs: Vec<String> =
            self.inputs.iter().map(|(name, t)| format!("{name} {} {:?}", t.dtype(), t.dims())).collect();
        format!(
            "inputs      {}\nthreads     {}, code {}\nmedian      {:.4} ms\nquartiles   {:.4} .. {:.4} ms\n\
             minimum     {:.4} ms\niterations  {}\nthroughput  {:.1} calls per second",
            inputs.join(", "),
            self.session.threads(),
            self.level(),
            self.quantile_ms(0.5),
            self.quantile_ms(0.25),
            self.quantile_ms(0.75),
            self.quantile_ms(0.0),
            self.times.len(),
            1e3 / self.quantile_ms(0.5),
        )
    }
}
