//! model.onnx, sizes  =>  the time of each of its launches on this machine

use crate::compile::{Request, compile};
use crate::entries::Entries;
use crate::import::DimRange;
use crate::session::own;
use crate::sizes::Sizes;
use sardonyx_base::{Error, Result};
use sardonyx_run::synthetic_inputs;
use sardonyx_runtime::{Model, SessionOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Median times of the launches, and how they were measured.
pub struct Measured {
    /// Microseconds, in the order of the launches.
    pub us: Vec<f64>,
    /// Number of measured calls, without the warm-up.
    pub calls: usize,
    /// Number of threads that ran the calls.
    pub threads: usize,
}

/// Least total time of all calls, including the warm-up.
const TIME: Duration = Duration::from_secs(1);

/// Compiles the model and calls it with random inputs. `kernels` are the kernels of the planned launches. Errors: also
/// E0001 if a call does not make exactly these launches.
pub fn measure(model: &Path, dims: &BTreeMap<String, DimRange>, sizes: &Sizes, kernels: &[&str]) -> Result<Measured> {
    let folder = tempfile::tempdir().map_err(|e| Error::io(std::env::temp_dir(), "create a folder in", &e))?;
    let artifact = folder.path().join("measured.sdx");
    let mut request = Request::new(model, &artifact);
    (request.dims, request.entries, request.selftest) = (dims.clone(), Entries::NONE, false);
    compile(&request)?;
    let loaded = Model::load(&artifact, &own())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let session = loaded.session(&SessionOptions::default().threads(threads))?;
    let sizes: Vec<String> = sizes.iter().map(|(name, n)| format!("{name}={n}")).collect();
    let inputs = synthetic_inputs(&loaded, "main", &sizes)?;
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let mut seconds = vec![vec![]; kernels.len()];
    let (start, mut calls) = (Instant::now(), 0);
    while calls < 4 || start.elapsed() < TIME {
        let mut at = 0;
        session.run_timed("main", &inputs, &mut |launched| {
            if kernels.get(at) != Some(&launched.kernel) {
                return Err(other());
            }
            // The first call is a warm-up, which touches the memory for the first time.
            if calls > 0 {
                seconds[at].push(launched.ran.1.duration_since(launched.ran.0).as_secs_f64());
            }
            at += 1;
            Ok(())
        })?;
        if at != kernels.len() {
            return Err(other());
        }
        calls += 1;
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        1e6 * times[times.len() / 2]
    };
    let us = seconds.into_iter().map(median).collect();
    Ok(Measured { us, calls: calls - 1, threads: session.threads() })
}

fn other() -> Box<Error> {
    Error::user("E0001", "a call of the compiled model makes other launches than the graph shows")
        .help("models with loops, and those whose weights decide about kernels, are measured by `sardonyx bench --per-kernel`")
}
