//! sardonyx-serve MODEL.sdx --threads 2 …  =>  where to listen, how to load, and the limits on clients' requests

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

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
    /// An artifact, or a folder of artifacts; the name of each model is its file's name without `.sdx`
    #[arg(value_name = "MODEL.sdx|FOLDER")]
    pub path: PathBuf,
    #[command(flatten)]
    pub load: LoadArgs,
    /// Address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Name of the model, if a single artifact is served [default: the file's name without `.sdx`]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Tokenizer for models whose artifact has none, for debugging
    #[arg(long, value_name = "tokenizer.json")]
    pub tokenizer: Option<PathBuf>,
    /// Write a line of JSON for each request to standard error
    #[arg(long)]
    pub log_json: bool,
    /// Send a span for each request to an OpenTelemetry collector over gRPC: http://127.0.0.1:4317
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Allow clients to load, unload and list the models of the folder
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
    /// Number of threads of each session [default: the processors that this process may use, divided among the ranks of
    /// all sessions]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Number of sessions of each model, that is, of batches that are computed at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub sessions: NonZeroUsize,
    /// Memory of one call besides the weights, in MiB; a request that needs more is refused
    #[arg(long, value_name = "MIB", default_value = "4096")]
    pub call_memory_max: NonZeroUsize,
    /// Number of texts that a decoder generates at the same time; others wait
    #[arg(long, value_name = "N", default_value = "16")]
    pub sequences_max: NonZeroUsize,
    /// Memory for the keys and values of a decoder's texts, in MiB
    #[arg(long, value_name = "MIB", default_value = "4096")]
    pub cache_memory_max: NonZeroUsize,
    /// Maximum number of positions (sequences times their length, or rows) of a batch of several requests
    #[arg(long, value_name = "N", default_value = "4096")]
    pub batch_positions_max: NonZeroUsize,
    /// Maximum estimated time of a batch of several requests, in seconds, from the measured rate; a single request may
    /// take longer
    #[arg(long, value_name = "SECONDS", default_value = "0.05", value_parser = seconds)]
    pub batch_time_max: Duration,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Maximum number of waiting requests of each model; a further one is refused
    #[arg(long, value_name = "N", default_value = "2048")]
    pub waiting_max: NonZeroUsize,
    /// Maximum number of positions of all waiting requests of each model
    #[arg(long, value_name = "N", default_value = "131072")]
    pub waiting_positions_max: NonZeroUsize,
    /// Maximum size of a request's body, in MiB
    #[arg(long, value_name = "MIB", default_value = "64")]
    pub body_max: NonZeroUsize,
    /// Maximum total size of the bodies of all requests that are being received or answered, in MiB
    #[arg(long, value_name = "MIB", default_value = "256")]
    pub bodies_max: NonZeroUsize,
    /// Maximum number of open connections; others wait to be accepted
    #[arg(long, value_name = "N", default_value = "1024")]
    pub connections_max: NonZeroUsize,
    /// Maximum time of a request in seconds, including the time that it waits
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// Maximum time in seconds that the server, when it is told to end, waits for accepted requests to finish
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub drain: Duration,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || "write a number of seconds between 0 and 86400, such as 2.5".to_string();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.0..=86400.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

impl ComputeArgs {
    /// Returns the options of a pool that takes a batch only when one of its sessions is free, because waiting requests
    /// can still be stacked while they are in the server's own queue.
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
    /// Checks that the limits do not contradict each other. Errors: E0001.
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
