//! sardonyx-serve MODEL.sdx --threads 2 …  =>  where to listen, how to load, and the limits on clients' requests

use sardonyx_base::{Error, Result};
use sardonyx_run::LoadArgs;
use sardonyx_runtime::{Model, PoolOptions, SessionOptions};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Serves compiled models over HTTP
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "sardonyx-serve", version, about)]
#[command(after_help = "Examples:
  sardonyx-serve minilm.sdx
  sardonyx-serve models/ --listen 127.0.0.1:9000 --threads 4 --sessions 2
  curl http://127.0.0.1:8080/v2/models/minilm")]
pub struct ServeArgs {
    /// An artifact, or a folder whose artifacts are served under the names of their files
    #[arg(value_name = "MODEL.sdx|FOLDER")]
    pub path: PathBuf,
    #[command(flatten)]
    pub load: LoadArgs,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// The name of the one artifact [default: that of its file, without `.sdx`]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The tokenizer of a model whose artifact has none, for debugging
    #[arg(long, value_name = "tokenizer.json")]
    pub tokenizer: Option<PathBuf>,
    /// Write a line of JSON for each request to the standard error output
    #[arg(long)]
    pub log_json: bool,
    /// Send a span for each request to a collector of OpenTelemetry, over gRPC: http://127.0.0.1:4317
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Let clients load and unload models of the folder, and list them
    #[arg(long)]
    pub allow_load: bool,
    #[command(flatten)]
    pub compute: ComputeArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Computing")]
pub struct ComputeArgs {
    /// Threads of each session [default: as many as each may have of the processors that this process may use]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Batches of a model that are computed at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub sessions: NonZeroUsize,
    /// Memory that one call may take beside the weights, in MiB; a request that needs more is refused
    #[arg(long, value_name = "MIB", default_value = "4096")]
    pub call_memory_max: NonZeroUsize,
    /// Texts of a decoder that grow at the same time; others wait
    #[arg(long, value_name = "N", default_value = "16")]
    pub sequences_max: NonZeroUsize,
    /// Memory of the keys and values of a decoder's texts, in MiB
    #[arg(long, value_name = "MIB", default_value = "4096")]
    pub cache_memory_max: NonZeroUsize,
    /// The most positions (sequences times their length, or rows) that requests are stacked up to
    #[arg(long, value_name = "N", default_value = "4096")]
    pub batch_positions_max: NonZeroUsize,
    /// Seconds that a batch should take at most, at the rate so far; a request alone may take longer
    #[arg(long, value_name = "SECONDS", default_value = "0.05", value_parser = seconds)]
    pub batch_time_max: Duration,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Requests of a model that may wait; one more is refused
    #[arg(long, value_name = "N", default_value = "2048")]
    pub waiting_max: NonZeroUsize,
    /// Positions of the requests that may wait together
    #[arg(long, value_name = "N", default_value = "131072")]
    pub waiting_positions_max: NonZeroUsize,
    /// Bytes of one request's body, in MiB
    #[arg(long, value_name = "MIB", default_value = "64")]
    pub body_max: NonZeroUsize,
    /// Bytes of the bodies of all requests that are being received or answered, in MiB
    #[arg(long, value_name = "MIB", default_value = "256")]
    pub bodies_max: NonZeroUsize,
    /// Connections that are served at the same time; others wait to be accepted
    #[arg(long, value_name = "N", default_value = "1024")]
    pub connections_max: NonZeroUsize,
    /// The longest time in seconds that a request may take, its wait included
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// The longest time in seconds that the end of the server waits for requests that were accepted
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub drain: Duration,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || "write a number of seconds between 0 and 86400, such as 2.5".to_string();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.0..=86400.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

impl ComputeArgs {
    /// Options of a pool that takes a batch only when one of its sessions is free, because waiting requests can still
    /// be stacked while they are in the server's own queue.
    pub fn pool(&self, model: &Model) -> PoolOptions {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let fitting = (processors / model.ranks() / self.sessions.get()).max(1);
        let threads = self.threads.map_or(fitting, NonZeroUsize::get);
        PoolOptions::default().sessions(self.sessions.get()).waiting_max(self.sessions.get()).session(
            SessionOptions::default()
                .threads(threads)
                .memory_bytes_max(self.call_memory_max.get().saturating_mul(1 << 20)),
        )
    }
}

impl LimitArgs {
    /// Errors: E0001 for limits that contradict each other.
    pub fn check(&self) -> Result<()> {
        if self.body_max > self.bodies_max {
            let message = format!("one body may have {} MiB, but all together {}", self.body_max, self.bodies_max);
            return Err(Error::user("E0001", message).help("raise `--bodies-max`, or lower `--body-max`"));
        }
        Ok(())
    }

    pub fn body_bytes_max(&self) -> usize {
        self.body_max.get().saturating_mul(1 << 20)
    }
}
