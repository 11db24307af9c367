//! `sardonyx-run collectives --ranks 2`  =>  the time that collectives take among ranks

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use crate::values::wire;
use crate::{put, transport_parser};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sardonyx_base::Result;
use sardonyx_runtime::{Algorithm, Ranks, Transport, Wire, is_launched};
use std::io::Write;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Ranks among which something is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct RanksArgs {
    /// Number of ranks
    #[arg(long, value_name = "N")]
    pub ranks: NonZeroUsize,
    /// Where the ranks run: threads of this process, processes of this host, or what an MPI launcher has started
    /// [default: mpi under a launcher, else threads]
    #[arg(long, value_name = "WHERE", value_parser = transport_parser())]
    pub transport: Option<Transport>,
    /// Emulate links with this latency and bandwidth, in bytes per second, between ranks of this host: 50us,1G
    #[arg(long, value_name = "LATENCY,BYTES", value_parser = wire)]
    pub links: Option<Wire>,
}

impl RanksArgs {
    /// Starts the ranks. Errors: those of [`Ranks::start`].
    pub fn start(&self) -> Result<Ranks> {
        Ranks::start(self.ranks.get(), self.transport(), self.links)
    }

    pub fn transport(&self) -> Transport {
        self.transport.unwrap_or(if is_launched() { Transport::Mpi } else { Transport::Threads })
    }
}

/// Measures collectives of f32 among ranks, or predicts them on a described cluster
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} collectives --ranks 2 --transport processes
  mpirun -n 2 {bin} collectives --ranks 2 --library --bytes 8,65536
  mpirun -n 4 {bin} collectives --ranks 4 --algorithm bruck --op 'AllGather mesh=0 dim=0'
  {bin} collectives --ranks 64 --topology dgx-h100 --bytes 1048576 --json")]
pub struct CollectivesArgs {
    #[command(flatten)]
    pub meeting: RanksArgs,
    /// Sizes of the result, in bytes
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8,1024,65536,1048576,16777216,67108864")]
    pub bytes: Vec<usize>,
    /// Collective to measure; may be repeated
    #[arg(long, value_name = "COLLECTIVE", default_values = ["AllReduce mesh=0 by=add", "AllGather mesh=0 dim=0"])]
    pub op: Vec<String>,
    /// Algorithm of the collectives: which rank sends what to which, and in what order. Ranks that share memory support
    /// only `direct`; under an MPI launcher there are all
    #[arg(long, value_name = "NAME", default_value = "direct", value_parser = algorithm_parser())]
    pub algorithm: Algorithm,
    /// Measure the collectives of the MPI library instead of ours
    #[arg(long, conflicts_with = "algorithm")]
    pub library: bool,
    #[cfg(feature = "topology")]
    #[arg(long, value_name = "FILE", help = crate::predicted::help())]
    #[arg(conflicts_with_all = ["transport", "links", "library", "algorithm", "times"])]
    pub topology: Option<String>,
    /// Number of times to run each collective [default: about a quarter of a second's worth]
    #[arg(long, value_name = "N")]
    pub times: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn algorithm_parser() -> impl TypedValueParser<Value = Algorithm> {
    let names = Algorithm::ALL.map(Algorithm::name);
    PossibleValuesParser::new(names).map(|name| Algorithm::from_name(&name).unwrap_or(Algorithm::Direct))
}

/// Runs the command: measures each collective at each size, or predicts it with `--topology`.
pub fn collectives(args: &CollectivesArgs, out: &mut dyn Write) -> Result<()> {
    #[cfg(feature = "topology")]
    if let Some(topology) = &args.topology {
        return crate::predicted::predicted(args, topology, out);
    }
    let ranks = args.meeting.start()?;
    let mut rows = vec![];
    let algorithm = (!args.library).then_some(args.algorithm);
    for op in &args.op {
        for &bytes in &args.bytes {
            // As many runs as take a quarter of a second at 1 GB/s, limited to 15 to 20000.
            let usual = (250_000_000 / bytes.max(1)).clamp(15, 20_000) as u32;
            let times = args.times.unwrap_or(usual);
            let mut took = ranks.measure(op, bytes, times, algorithm)?;
            took.sort_unstable();
            let micros = |at: usize| took.get(at).copied().unwrap_or(Duration::ZERO).as_secs_f64() * 1e6;
            rows.push((op, bytes, micros(took.len() / 2), micros(0)));
        }
    }
    if args.json {
        let row = |(op, bytes, median, least): &(&String, usize, f64, f64)| {
            let times = format!("\"median_us\": {median:.3}, \"minimum_us\": {least:.3}");
            format!("{{\"collective\": \"{op}\", \"bytes\": {bytes}, {times}}}")
        };
        let all: Vec<String> = rows.iter().map(row).collect();
        return put!(out, "{{\"ranks\": {}, \"collectives\": [{}]}}", args.meeting.ranks, all.join(", "));
    }
    for (op, bytes, median, least) in rows {
        put!(out, "{op:<26} {bytes:>10} bytes  median {median:>12.3} us  least {least:>12.3} us")?;
    }
    Ok(())
}
