//! `sardonyx-run tune MODEL.sdx --device cuda:0 -o tune.lock`  =>  the fastest tile of each kernel, measured on a GPU
//!
//! An artifact of `sardonyx compile --tune-candidates` contains the code of every kernel with each of the kernel's
//! possible tiles, the candidates. Candidate i of all kernels is measured in the same calls of whole entry points, so
//! that the operands of a kernel are in the same levels of memory as in use. `sardonyx compile --tune tune.lock` then
//! gives each kernel its fastest tile.

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use crate::inputs::synthetic_inputs;
use crate::{ModelArgs, put, refuse_replacing};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_format::file::AtomicFile;
use sardonyx_runtime::{EntryPoint, Gpu, Launched, Model, Session, SessionOptions};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measures the tiles that kernels can have on a GPU, and writes the fastest for `sardonyx compile --tune`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} tune candidates.sdx --device cuda:0 -o tune.lock
  {bin} tune candidates.sdx --device cuda:0 --at batch=1,seq=128 --at batch=8,seq=128")]
pub struct TuneArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Entry points to measure; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    pub entry: Vec<String>,
    /// Sizes of a call to measure: NAME=N[,NAME=N]; may be repeated, and all calls count the same. An entry point takes those that
    /// its inputs have [default: 1 for the first dimension of inputs, 128 for others]
    #[arg(long, value_name = "NAME=N,…")]
    pub at: Vec<String>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "tune.lock")]
    pub output: PathBuf,
    /// Minimum time to measure each candidate at each size, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2)]
    pub min_time: f64,
}

/// Minimum number of calls that are measured for each candidate, size and direction.
const CALLS_MIN: usize = 5;

/// A tile replaces the expected tile if its time is less than this fraction of the expected tile's time.
const NOISE: f64 = 0.97;

/// Measures all candidates and writes the lock file. Errors: E0001 for a device without times or an artifact without
/// candidates, E0002 for the file, and those of loading and calling the model.
pub fn tune(args: &TuneArgs, out: &mut dyn Write) -> Result<()> {
    if !(0.0..=3600.0).contains(&args.min_time) {
        return Err(Error::user("E0001", format!("`--min-time {}` is not between 0 and 3600", args.min_time)));
    }
    let device = &args.model.load.device;
    if device.is_host() || device.is_simulated() {
        let message = format!("`{device}` has no tiles to measure: only code for GPUs has, on a real one");
        return Err(Error::user("E0001", message).help("use `--device cuda:0`"));
    }
    refuse_replacing(&args.output, &args.model.model)?;
    let first = args.candidate(0)?;
    let n = first.candidates();
    if n < 2 {
        let message = format!("{} has no candidates: its kernels have one tile each", first.file());
        return Err(Error::user("E0001", message).help("compile the model with `--tune-candidates`"));
    }
    let calls = args.calls(&first)?;
    let mut file = AtomicFile::create(&args.output)?;
    let (gpu, compiler) = (first.gpu(), first.manifest().producer.clone());
    drop(first);
    let mut found = Found::default();
    // The candidates are measured once in each direction, because the clock frequency drifts.
    for (turn, i) in (0..n).chain((0..n).rev()).enumerate() {
        let model = match args.candidate(i) {
            Ok(model) => model,
            Err(e) if i > 0 => {
                put!(out, "candidate {i} is left out: {e}")?;
                continue;
            }
            Err(e) => return Err(e),
        };
        let session = model.session(&SessionOptions::default())?;
        for call in &calls {
            found.measure(&session, call, args.min_time / 2.0, turn == 0)?;
        }
    }
    let written = file.write_all(found.toml(&compiler, gpu.as_ref()).as_bytes());
    written.map_err(|e| Error::io(&args.output, "write", &e))?;
    file.commit()?;
    put!(out, "{}", found.text().trim_end())?;
    put!(out, "{}: written; `sardonyx compile --tune {0}` uses it", args.output.display())
}

impl TuneArgs {
    /// The calls to measure: each entry point at each of the sizes. Errors: E0204 for a dimension that no measured
    /// entry point has, E0301 for an unknown entry point, and those of making inputs.
    fn calls(&self, model: &Model) -> Result<Vec<Call>> {
        let all = model.entry_points();
        let is_asked = |name: &String| self.entry.is_empty() || self.entry.contains(name);
        if let Some(name) = self.entry.iter().find(|name| all.iter().all(|entry| entry.name != **name)) {
            model.entry(name)?;
        }
        let entries: Vec<_> = all.into_iter().filter(|entry| is_asked(&entry.name)).collect();
        let by_default = String::new();
        let ats = if self.at.is_empty() { std::slice::from_ref(&by_default) } else { &self.at };
        let mut calls = vec![];
        for at in ats {
            let sizes: Vec<&str> = at.split(',').map(str::trim).filter(|size| !size.is_empty()).collect();
            let name = |size: &str| size.split('=').next().unwrap_or_default().to_string();
            let has = |entry: &EntryPoint, size: &str| entry.symbols.iter().any(|s| s.name == name(size));
            if let Some(size) = sizes.iter().find(|size| entries.iter().all(|entry| !has(entry, size))) {
                let message = format!("no entry point that is measured has a dimension named `{}`", name(size));
                return Err(
                    Error::user("E0204", message).help("`sardonyx-run inspect` lists the dimensions of the inputs")
                );
            }
            for entry in &entries {
                let sizes: Vec<String> =
                    sizes.iter().filter(|size| has(entry, size)).map(|size| size.to_string()).collect();
                let inputs = synthetic_inputs(model, &entry.name, &sizes)?;
                calls.push(Call { entry: entry.name.clone(), inputs });
            }
        }
        Ok(calls)
    }

    /// Loads the model with candidate `i` of its kernels; its self-test, if any, must pass.
    fn candidate(&self, i: usize) -> Result<Model> {
        Model::load(&self.model.model, &self.model.load.options()?.candidate(i))
    }
}

/// A call to measure.
struct Call {
    entry: String,
    inputs: Vec<(String, Tensor)>,
}

/// The launches of one kernel.
#[derive(Default)]
struct Kernel {
    /// Name of the first ONNX node that the kernel computes.
    node: String,
    /// Launches by the values of their parameters.
    launches: BTreeMap<Vec<i64>, Sizes>,
}

/// The launches of a kernel with equal parameters.
#[derive(Default)]
struct Sizes {
    /// Number of launches if each call is made once.
    launches: usize,
    /// By tile: the measured seconds of each launch. The tile that is expected to be the fastest is the first.
    seconds: Vec<(String, Vec<f64>)>,
}

/// The measured kernels, by target and key.
#[derive(Default)]
struct Found {
    kernels: BTreeMap<(String, String), Kernel>,
}

impl Sizes {
    fn add(&mut self, tile: &str, seconds: f64) {
        let at = self.seconds.iter().position(|(known, _)| known == tile);
        let at = at.unwrap_or_else(|| {
            self.seconds.push((tile.to_string(), vec![]));
            self.seconds.len() - 1
        });
        self.seconds[at].1.push(seconds);
    }

    /// Median seconds of a launch with each tile.
    fn medians(&self) -> Vec<(&str, f64)> {
        let median = |seconds: &[f64]| {
            let mut sorted = seconds.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        self.seconds.iter().map(|(tile, seconds)| (tile.as_str(), median(seconds))).collect()
    }
}

impl Kernel {
    /// Seconds of all launches together with each tile: the sum of their medians.
    fn totals(&self) -> Vec<(&str, f64)> {
        let mut totals: Vec<(&str, f64)> = vec![];
        for sizes in self.launches.values() {
            for (tile, seconds) in sizes.medians() {
                let seconds = seconds * sizes.launches as f64;
                match totals.iter_mut().find(|(known, _)| *known == tile) {
                    Some((_, total)) => *total += seconds,
                    None => totals.push((tile, seconds)),
                }
            }
        }
        totals
    }

    /// The fastest tile and its total seconds, if it is faster than the expected tile by more than the noise; otherwise
    /// the expected tile.
    fn fastest(&self) -> Option<(&str, f64)> {
        let totals = self.totals();
        let expected = *totals.first()?;
        let fastest = totals.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(if fastest.1 < expected.1 * NOISE { fastest } else { expected })
    }
}

impl Found {
    /// Measures the launches of one candidate in repetitions of a call. If `counts` is set, also counts the launches of
    /// one call.
    fn measure(&mut self, session: &Session, call: &Call, seconds: f64, counts: bool) -> Result<()> {
        let inputs: Vec<(&str, Tensor)> = call.inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
        let (start, mut calls) = (Instant::now(), 0);
        // The first call is not measured, because it accesses the memory for the first time.
        while calls <= CALLS_MIN || start.elapsed() < Duration::from_secs_f64(seconds) {
            session.run_timed(&call.entry, &inputs, &mut |launched: Launched| {
                let Some(sizes) = self.sizes(&launched) else { return Ok(()) };
                match calls {
                    0 => sizes.launches += usize::from(counts),
                    _ => {
                        let tile = launched.target.map_or("", |target| &target.tile);
                        sizes.add(tile, launched.ran.1.duration_since(launched.ran.0).as_secs_f64());
                    }
                }
                Ok(())
            })?;
            calls += 1;
        }
        Ok(())
    }

    /// Returns the entry to which the times of this launch are added; `None` if its kernel can have one tile only.
    fn sizes(&mut self, launched: &Launched) -> Option<&mut Sizes> {
        let target = launched.target.filter(|target| !target.key.is_empty())?;
        let own = target.target.split_once('~').map_or(target.target.as_str(), |(own, _)| own);
        let kernel = self.kernels.entry((own.to_string(), target.key.clone())).or_default();
        if kernel.node.is_empty() {
            kernel.node = launched.origins.first().cloned().unwrap_or_default();
        }
        Some(kernel.launches.entry(launched.params.to_vec()).or_default())
    }

    fn toml(&self, compiler: &str, gpu: Option<&Gpu>) -> String {
        let (name, driver) = gpu.map_or(("", ""), |gpu| (gpu.name.as_str(), gpu.driver.as_str()));
        let mut text = format!(
            "# The fastest tiles of kernels, measured by `sardonyx-run tune`, for `sardonyx compile --tune`. Times are \
             medians in microseconds.\n\
             version = 1\ncompiler = {}\ndevice = {}\ndriver = {}\n",
            quoted(compiler),
            quoted(name),
            quoted(driver),
        );
        for ((target, key), kernel) in &self.kernels {
            let Some((tile, _)) = kernel.fastest() else { continue };
            let _ = write!(
                text,
                "\n[[kernel]]\ntarget = {}\nkey = {}\ntile = {}\nnode = {}\n",
                quoted(target),
                quoted(key),
                quoted(tile),
                quoted(&kernel.node),
            );
            for (params, sizes) in &kernel.launches {
                let us = sizes.medians().into_iter().map(|(tile, s)| format!("{} = {:.3}", quoted(tile), s * 1e6));
                let (us, launches) = (us.collect::<Vec<_>>().join(", "), sizes.launches);
                let _ =
                    write!(text, "\n[[kernel.measured]]\nsizes = {params:?}\nlaunches = {launches}\nus = {{ {us} }}\n");
            }
        }
        text
    }

    /// Returns a line for each kernel, with the time of all its launches with the expected and with the fastest tile.
    fn text(&self) -> String {
        let mut text = String::from("  expected us   fastest us  tile                       first node\n");
        let mut sums = [0.0; 2];
        for kernel in self.kernels.values() {
            let (Some(&(expected, before)), Some((tile, after))) = (kernel.totals().first(), kernel.fastest()) else {
                continue;
            };
            sums = [sums[0] + before, sums[1] + after];
            let tile = if tile == expected { format!("{tile}, as expected") } else { tile.to_string() };
            let _ = writeln!(text, "{:>13.3} {:>12.3}  {tile:<26} {}", before * 1e6, after * 1e6, kernel.node);
        }
        let [before, after] = sums.map(|seconds| seconds * 1e3);
        let _ = writeln!(text, "{} kernels: {before:.4} ms as expected, {after:.4} ms tuned", self.kernels.len());
        text
    }
}

/// Quotes a string for TOML, whose escapes include those of JSON, and which does not allow U+007F unescaped.
fn quoted(text: &str) -> String {
    Json::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters, number of launches, and the seconds with each tile.
    type Launches<'a> = (&'a [i64], usize, &'a [(&'a str, &'a [f64])]);

    fn kernel(launches: &[Launches]) -> Kernel {
        let mut kernel = Kernel { node: "/a \"b\"\u{7f}".into(), ..Kernel::default() };
        for (params, launches, tiles) in launches {
            let sizes = kernel.launches.entry(params.to_vec()).or_default();
            sizes.launches = *launches;
            for (tile, seconds) in *tiles {
                seconds.iter().for_each(|s| sizes.add(tile, *s));
            }
        }
        kernel
    }

    #[test]
    fn the_fastest_tile_is_that_of_all_launches_together() {
        let one = kernel(&[
            (&[128], 1, &[("large", &[3.0, 9.0, 3.5]), ("small", &[2.0, 2.0, 8.0])]),
            (&[512], 2, &[("large", &[4.0]), ("small", &[4.5])]),
        ]);
        // The medians of `large` and `small` are 3.5 and 2 for one launch, and 4 and 4.5 for two launches.
        assert_eq!(one.totals(), [("large", 11.5), ("small", 11.0)]);
        assert_eq!(one.fastest(), Some(("small", 11.0)));
        let equal = kernel(&[(&[], 1, &[("large", &[1.0]), ("small", &[1.0])])]);
        assert_eq!(equal.fastest(), Some(("large", 1.0)));
        let noise = kernel(&[(&[], 1, &[("large", &[1.0]), ("small", &[0.98])])]);
        assert_eq!(noise.fastest(), Some(("large", 1.0)));
    }

    #[test]
    fn the_file_says_what_was_measured() {
        let one = kernel(&[(&[128, 768], 2, &[("large", &[3e-6]), ("small", &[2.5e-6])])]);
        let found = Found { kernels: [(("sm_80".into(), "ab".into()), one)].into() };
        let gpu = Gpu { name: "GPU".into(), driver: "12.4".into() };
        let text = found.toml("sardonyx 0.1.0", Some(&gpu));
        for line in [
            "version = 1",
            "compiler = \"sardonyx 0.1.0\"",
            "device = \"GPU\"",
            "driver = \"12.4\"",
            "target = \"sm_80\"",
            "key = \"ab\"",
            "tile = \"small\"",
            "node = \"/a \\\"b\\\"\\u007F\"",
            "sizes = [128, 768]",
            "launches = 2",
            "us = { \"large\" = 3.000, \"small\" = 2.500 }",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(found.text().ends_with("1 kernels: 0.0060 ms as expected, 0.0050 ms tuned\n"), "{}", found.text());
    }
}
