//! bench MODEL.sdx  =>  median, quartiles and minimum of the time of one call

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

mod kernels;
mod peak;

use super::inputs::{Gathered, InputArgs, Missing, Wanted, gather};
use super::{EntryArgs, ModelArgs, ThreadArgs, put};
use kernels::Kernels;
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result, Tensor, TensorView};
use sardonyx_format::file::write_whole;
use sardonyx_runtime::{Cache, Outputs, RunOptions, Session};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} bench model.sdx --dim batch=1 --dim seq=128
  {bin} bench model.sdx --input input_ids=range:0..30521 --dim seq=128 --threads 1 --json
  {bin} bench model.sdx --dim seq=128 --per-kernel --trace call.json
  {bin} bench new.sdx --baseline old.sdx
  {bin} bench model.sdx --entry decode --cache-len 128 --capacity 512 --threads 1")]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub entry: EntryArgs,
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Keep the entry point's states in a cache, which holds this many positions before each call
    #[arg(long, value_name = "POSITIONS")]
    pub cache_len: Option<usize>,
    /// Number of positions for which the cache has space [default: 64 more than `--cache-len`]
    #[arg(long, value_name = "POSITIONS", requires = "cache_len")]
    pub capacity: Option<usize>,
    #[command(flatten)]
    pub threads: ThreadArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Minimum time to measure, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub min_time: f64,
    /// Show each kernel's time, its rates, and the share of the machine's peak that it reaches
    #[arg(long, conflicts_with = "cache_len")]
    pub per_kernel: bool,
    /// Write a timeline of the launches of one call as a Chrome trace
    #[arg(long, value_name = "FILE.json", conflicts_with = "cache_len")]
    pub trace: Option<PathBuf>,
    /// Measure this artifact too, in alternation, and show the ratio of the times
    #[arg(long, value_name = "MODEL.sdx", conflicts_with = "cache_len")]
    pub baseline: Option<PathBuf>,
}

/// Minimum number of measured calls, however long each takes.
const ITERATIONS_MIN: usize = 5;
/// Maximum number of measured calls: enough for any quantile, and a bound on the memory for the times.
const ITERATIONS_MAX: usize = 1_000_000;
/// How long one of two artifacts is called before switching to the other.
const TURN: Duration = Duration::from_millis(60);
/// Default capacity of the cache beyond what it holds: a call may append several positions.
const SPARE_POSITIONS: usize = 64;

/// Runs the command. Inputs that are not given are random, of the default sizes, which the report names.
pub fn bench(args: &BenchArgs, out: &mut dyn Write) -> Result<()> {
    if !(0.0..=86_400.0).contains(&args.min_time) {
        return Err(Error::user("E0001", format!("`--min-time {}` is not between 0 and 86400", args.min_time)));
    }
    let device = &args.model.load.device;
    if device.is_simulated() {
        let message = format!("`{device}` is simulated: it has exact results and counts, but no time to measure");
        return Err(Error::user("E0001", message).help("use `--device cpu` or `--device cuda:N`"));
    }
    let model = args.model.load()?;
    let entry = args.entry.entry.as_str();
    let wanted = Wanted { entry, cache_len: args.cache_len, missing: Missing::MakeUp };
    let Gathered { inputs, assumed } = gather(&model, &args.inputs, &wanted).map_err(|e| e.file(model.file()))?;
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let session = args.threads.session(&model)?;
    let mut cache = args.cache(&session)?;
    let (mut calls, taken) = (0, session.taken_bytes());
    let times = match &mut cache {
        None => measure(args.min_time, || {
            calls += 1;
            session.run_entry(entry, &inputs)
        })?,
        Some((cache, len)) => {
            let views: Vec<(&str, TensorView)> = inputs.iter().map(|(n, t)| (*n, t.into())).collect();
            measure(args.min_time, || {
                calls += 1;
                cache.truncate(*len);
                session.run_cached(entry, &views, &mut [], cache, &RunOptions::default())
            })?
        }
    };
    let taken_per_call = (session.taken_bytes() - taken) / calls.max(1) as u64;
    let baseline = args.baseline(&session, &inputs)?;
    let kernels = args.kernels(&session, &inputs)?;
    if let Some(path) = &args.trace {
        let text = kernels::trace(&session, entry, &inputs)?;
        write_whole(path, &text)?;
    }
    let (times, inputs, cache) = (&times[..], &inputs[..], cache.as_ref());
    let report =
        Report { times, calls, taken_per_call, entry, inputs, assumed, session: &session, cache, baseline, kernels };
    if args.json { put!(out, "{}", report.json()) } else { put!(out, "{}", report.text()) }
}

impl BenchArgs {
    /// The cache, and the number of positions (of zeros) that it holds before each call.
    fn cache(&self, session: &Session) -> Result<Option<(Cache<'static>, usize)>> {
        let Some(len) = self.cache_len else { return Ok(None) };
        let capacity = self.capacity.unwrap_or(len.saturating_add(SPARE_POSITIONS));
        let mut cache = session.cache(&self.entry.entry, capacity)?;
        cache.pretend(len)?;
        Ok(Some((cache, len)))
    }

    fn kernels(&self, session: &Session, inputs: &[(&str, Tensor)]) -> Result<Option<Kernels>> {
        if !self.per_kernel {
            return Ok(None);
        }
        // On a GPU the driver records the times of kernels, but nothing measures its peak.
        let level = session.model().level();
        let peak = || level.map(|level| peak::measure(level, session.threads()));
        Kernels::measure(session, (&self.entry.entry, inputs), self.min_time, &peak).map(Some)
    }

    /// Measures both artifacts alternately on the same inputs.
    fn baseline(&self, session: &Session, inputs: &[(&str, Tensor)]) -> Result<Option<Baseline>> {
        let Some(path) = &self.baseline else { return Ok(None) };
        let other = ModelArgs { model: path.clone(), ..self.model.clone() }.load()?;
        let other = self.threads.session(&other)?;
        let entry = self.entry.entry.as_str();
        let limit = Duration::from_secs_f64(self.min_time * 2.0);
        let (start, mut times) = (Instant::now(), [vec![], vec![]]);
        while times[0].len() < ITERATIONS_MIN || (start.elapsed() < limit && times[0].len() < ITERATIONS_MAX) {
            for (session, times) in [session, &other].into_iter().zip(&mut times) {
                // The other session's threads keep spinning for a while after its calls.
                std::thread::sleep(TURN);
                times.extend(measure(TURN.as_secs_f64(), || session.run_entry(entry, inputs))?);
            }
        }
        let [ours, theirs] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            quantile(&times, 0.5)
        });
        Ok(Some(Baseline { file: other.model().file().into(), median_ms: theirs * 1e3, ratio: ours / theirs }))
    }
}

/// The artifact that the measured one is compared with; both are called alternately.
struct Baseline {
    file: String,
    median_ms: f64,
    ratio: f64,
}

/// Seconds per call, sorted. Loading, warm-up calls (page faults, clock frequency) and generating inputs are not
/// included.
fn measure(seconds: f64, mut call: impl FnMut() -> Result<Outputs>) -> Result<Vec<f64>> {
    let limit = Duration::from_secs_f64(seconds);
    let warm = Instant::now();
    for i in 0.. {
        call()?;
        if i > 0 && warm.elapsed() > limit / 4 {
            break;
        }
    }
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < ITERATIONS_MIN || (start.elapsed() < limit && times.len() < ITERATIONS_MAX) {
        let begin = Instant::now();
        // Releasing the outputs' memory is part of a call.
        drop(call()?);
        times.push(begin.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Quantile `q` of sorted times, interpolated linearly between neighbours; 0 if there are no times.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * sorted.len().saturating_sub(1) as f64;
    let [low, high] = [at.floor(), at.ceil()].map(|i| sorted.get(i as usize).copied().unwrap_or(0.0));
    low + (high - low) * at.fract()
}

struct Report<'a> {
    times: &'a [f64],
    /// Number of calls, including the warm-up calls.
    calls: usize,
    /// Number of bytes that a call brings to this rank from others.
    taken_per_call: u64,
    entry: &'a str,
    inputs: &'a [(&'a str, Tensor)],
    assumed: Vec<(String, i64)>,
    session: &'a Session,
    cache: Option<&'a (Cache<'static>, usize)>,
    baseline: Option<Baseline>,
    kernels: Option<Kernels>,
}

impl Report<'_> {
    fn quantile_ms(&self, q: f64) -> f64 {
        quantile(self.times, q) * 1e3
    }

    fn level(&self) -> &'static str {
        self.session.model().level().map_or("none", |l| l.name())
    }

    fn device(&self) -> String {
        self.session.model().device_name().to_string()
    }

    fn json(&self) -> String {
        let inputs = self.inputs.iter().map(|(name, t)| {
            format!("{}: {{\"dtype\": \"{}\", \"dims\": {:?}}}", Json::from(*name), t.dtype(), t.dims())
        });
        let inputs: Vec<String> = inputs.collect();
        let assumed: Vec<String> =
            self.assumed.iter().map(|(n, size)| format!("{}: {size}", Json::from(n.as_str()))).collect();
        let cache = self.cache.map_or("null".to_string(), |(cache, len)| {
            format!("{{\"len\": {len}, \"capacity\": {}, \"bytes\": {}}}", cache.capacity(), cache.bytes())
        });
        format!(
            "{{\"model\": {}, \"entry\": {}, \"median_ms\": {:.6}, \"q1_ms\": {:.6}, \"q3_ms\": {:.6}, \"p95_ms\": {:.6}, \"p99_ms\": {:.6}, \"min_ms\": {:.6}, \
             \"iterations\": {}, \"calls\": {}, \"per_second\": {:.3}, \"threads\": {}, \"device\": \"{}\", \"exchange\": {}, \"taken_bytes\": {}, \"cpu\": \"{}\", \"inputs\": {{{}}}, \"assumed\": {{{}}}, \
             \"cache\": {cache}, \"baseline\": {}, \"kernels\": {}}}",
            Json::from(self.session.model().file()),
            Json::from(self.entry),
            self.quantile_ms(0.5),
            self.quantile_ms(0.25),
            self.quantile_ms(0.75),
            self.quantile_ms(0.95),
            self.quantile_ms(0.99),
            self.quantile_ms(0.0),
            self.times.len(),
            self.calls,
            1e3 / self.quantile_ms(0.5),
            self.session.threads(),
            self.device(),
            self.session.exchange().map_or("null".into(), |how| Json::from(how.as_str()).to_string()),
            self.taken_per_call,
            self.level(),
            inputs.join(", "),
            assumed.join(", "),
            self.baseline.as_ref().map_or("null".into(), |b| {
                let Baseline { file, median_ms, ratio } = b;
                let file = Json::from(file.as_str());
                format!("{{\"model\": {file}, \"median_ms\": {median_ms:.6}, \"ratio\": {ratio:.4}}}")
            }),
            self.kernels.as_ref().map_or("null".into(), Kernels::json),
        )
    }

    fn text(&self) -> String {
        let inputs: Vec<String> =
            self.inputs.iter().map(|(name, t)| format!("{name} {} {:?}", t.dtype(), t.dims())).collect();
        let cache = self.cache.map_or(String::new(), |(cache, len)| {
            format!("cache       {len} of {} positions, {} bytes\n", cache.capacity(), cache.bytes())
        });
        let assumed: Vec<String> = self.assumed.iter().map(|(name, size)| format!("{name}={size}")).collect();
        let assumed = match assumed.is_empty() {
            true => String::new(),
            false => format!("assumed     {}, as no size was given: --dim NAME=N\n", assumed.join(" ")),
        };
        let device = self.session.model().device_name();
        let taken = match self.taken_per_call {
            0 => String::new(),
            n => format!("\nexchanges   {n} bytes per call from other ranks, counted"),
        };
        let code = match self.session.exchange() {
            _ if device.is_host() => format!("threads     {}, code {}", self.session.threads(), self.level()),
            Some(how) => format!("device      {device}, ranks exchange {how}"),
            None => format!("device      {device}"),
        };
        format!(
            "inputs      {}\n{assumed}{cache}{code}\nmedian      {:.4} ms\nquartiles   {:.4} .. {:.4} ms\n\
             p95, p99    {:.4}, {:.4} ms\nminimum     {:.4} ms\niterations  {}\nthroughput  {:.1} calls per second{taken}{}{}",
            inputs.join(", "),
            self.quantile_ms(0.5),
            self.quantile_ms(0.25),
            self.quantile_ms(0.75),
            self.quantile_ms(0.95),
            self.quantile_ms(0.99),
            self.quantile_ms(0.0),
            self.times.len(),
            1e3 / self.quantile_ms(0.5),
            self.baseline.as_ref().map_or(String::new(), |b| {
                format!(
                    "\nbaseline    {:.4} ms, {}\nratio       {:.3} of the baseline's time",
                    b.median_ms, b.file, b.ratio
                )
            }),
            self.kernels.as_ref().map_or(String::new(), |k| format!("\n{}", k.text())),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|q| quantile(&[1.0, 2.0, 4.0, 8.0], q)), [1.0, 1.75, 3.0, 5.0, 8.0]);
        assert_eq!((quantile(&[3.0], 0.5), quantile(&[], 0.5)), (3.0, 0.0));
    }
}
