//! `sardonyx-run calibrate --ranks 2 -o FILE.toml`  =>  a topology: latency, bandwidth and combining rate of the links
//!
//! The time of a small exchange gives the latency, and the additional time of larger exchanges gives the bandwidth: the
//! geometric mean of the rates at two sizes, since the data of smaller exchanges fit into caches. A reduction takes
//! longer than moving the same bytes, and the difference gives the combining rate. A direct exchange has all its
//! messages in one round, and a ring has one message per rank and round; comparing the two times separates the time for
//! which a message occupies a rank (the overhead) from the latency. With two ranks, and with ranks that share memory,
//! overhead and latency cannot be separated.

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use crate::collectives::RanksArgs;
use crate::{TRANSPORTS, put};
use sardonyx_base::cpu::Level;
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::operands_for;
use sardonyx_base::{Error, Result};
use sardonyx_cluster::{Means, Topology, compare};
use sardonyx_format::file::write_whole;
use sardonyx_runtime::{Algorithm, Transport};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Measures the links between ranks, and writes the result as a topology for `sardonyx plan` and `simulate`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} calibrate --ranks 2 --transport processes -o here.toml
  mpirun -n 8 {bin} calibrate --ranks 8 -o cluster.toml")]
pub struct CalibrateArgs {
    #[command(flatten)]
    pub meeting: RanksArgs,
    /// The topology file to write
    #[arg(short, long, value_name = "FILE.toml")]
    pub output: PathBuf,
}

static GATHER: &str = "AllGather mesh=0 dim=0";
static SCATTER: &str = "ReduceScatter mesh=0 by=add dim=0";
/// Sizes in bytes of the gathered result, or of the operand of the reduce-scatter.
const SIZES: [usize; 3] = [1 << 10, 2 << 20, 32 << 20];

/// Measured times in microseconds, in the order of `SIZES`.
#[derive(Clone, Copy, Debug)]
struct Times {
    gather: [f64; 3],
    scatter: [f64; 3],
    /// Time of the smallest all-gather as a ring; only for three or more ranks that send messages.
    ring: Option<f64>,
}

/// The figures of the topology.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    overhead_us: f64,
    latency_us: f64,
    gb_s: f64,
    combine_gb_s: f64,
}

/// Combining rate that is reported if the actual rate is so high that a reduction takes hardly longer than moving the
/// same bytes.
const UNSEEN_GB_S: f64 = 1000.0;

impl Figures {
    fn new(ranks: usize, times: &Times) -> Figures {
        let others = ranks as f64 - 1.0;
        // Each rank receives everything except its own part.
        let moved = |bytes: usize| bytes as f64 * others / ranks as f64;
        let rate = |at: usize| moved(SIZES[at]) / (times.gather[at] - times.gather[0]).max(1e-3) * 1e-3;
        // If latency dominates the time at the middle size, the additional time at that size is mostly noise.
        let is_seen = times.gather[1] > 2.0 * times.gather[0];
        let gb_s = if is_seen { (rate(1) * rate(2)).sqrt() } else { rate(2) };
        let (combining, bytes) = (times.scatter[2] - times.gather[2], moved(SIZES[2]));
        let combine_gb_s = if combining > bytes * 1e-3 / UNSEEN_GB_S { bytes / combining * 1e-3 } else { UNSEEN_GB_S };
        // direct = n o + 2 l and ring = (n - 1) (2 o + 2 l), where o is the overhead and l the latency of a link. In a
        // direct exchange, a rank sends n - 1 messages one after the other, and the last of them is then received; in a
        // ring, there is one send and one receive in each of n - 1 rounds.
        let direct = times.gather[0];
        let overhead = times.ring.map_or(0.0, |ring| (direct - ring / others) / (ranks as f64 - 2.0));
        let overhead = overhead.clamp(0.0, direct / ranks as f64);
        // A message passes two links, to the switch and from it, each with half of the latency.
        let latency_us = ((direct - overhead * ranks as f64) / 2.0).max(1e-3);
        Figures { overhead_us: overhead, latency_us, gb_s, combine_gb_s }
    }

    fn toml(&self, ranks: usize, command: &str, cores: usize) -> String {
        let Figures { overhead_us, latency_us, gb_s, combine_gb_s } = self;
        let level = Level::all().rfind(|level| level.is_here());
        let device = level
            .map_or(String::new(), |level| format!("[device]\nname = \"{}\"\ncores = {cores}\n\n", level.llvm().0));
        let overhead = if *overhead_us > 0.0 { "measured" } else { "counted" };
        let combine = if *combine_gb_s < UNSEEN_GB_S { "measured" } else { "unseen" };
        format!(
            "name = \"calibrated\"\n\
             about = \"{ranks} ranks, as `sardonyx-run calibrate` has measured them\"\n\
             overhead_us = {{ value = {overhead_us:.3}, source = \"{overhead}\" }}\n\
             combine_gb_s = {{ value = {combine_gb_s:.3}, source = \"{combine}\" }}\n\n\
             {device}\
             [sources]\n\
             measured = \"{command}\"\n\
             counted = \"part of the latency, which it cannot be told from\"\n\
             unseen = \"combining took no longer than moving\"\n\n\
             [[level]]\n\
             kind = \"switch\"\n\
             members = [{ranks}]\n\
             latency_us = {{ value = {latency_us:.3}, source = \"measured\" }}\n\
             gb_s = {{ value = {gb_s:.3}, source = \"measured\" }}\n"
        )
    }
}

/// Measures the links and writes the topology file. Errors: E0001 for a single rank, E0002 for the file, and those of
/// ranks that fail to meet.
pub fn calibrate(args: &CalibrateArgs, out: &mut dyn Write) -> Result<()> {
    let n = args.meeting.ranks.get();
    if n < 2 {
        return Err(Error::user("E0001", "one rank has no links").help("give `--ranks 2` or more"));
    }
    let (transport, ranks) = (args.meeting.transport(), args.meeting.start()?);
    let median = |op: &str, bytes: usize, algorithm: Algorithm| -> Result<f64> {
        let times = (200_000_000 / bytes).clamp(9, 200) as u32;
        let mut took = ranks.measure(op, bytes, times, Some(algorithm))?;
        took.sort_unstable();
        Ok(took.get(took.len() / 2).map_or(0.0, |median| median.as_secs_f64() * 1e6))
    };
    let all = |op: &str| -> Result<[f64; 3]> {
        let mut times = [0.0; 3];
        for (time, bytes) in times.iter_mut().zip(SIZES) {
            *time = median(op, bytes, Algorithm::Direct)?;
        }
        Ok(times)
    };
    let sends = transport == Transport::Mpi && n > 2;
    let ring = sends.then(|| median(GATHER, SIZES[0], Algorithm::Ring)).transpose()?;
    let times = Times { gather: all(GATHER)?, scatter: all(SCATTER)?, ring };
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).div_ceil(n);
    let name = TRANSPORTS.iter().find(|(_, known)| *known == transport).map_or("", |(name, _)| name);
    let command = format!("`sardonyx-run calibrate --ranks {n} --transport {name}`");
    let text = Figures::new(n, &times).toml(n, &command, cores);
    let topology = Topology::parse(&text)?;
    write_whole(&args.output, &text)?;
    put!(out, "{}: written, as follows by what was measured and what it predicts", args.output.display())?;
    for (name, measured) in [(GATHER, times.gather), (SCATTER, times.scatter)] {
        let op = Collective::from_user(name)?;
        for (bytes, measured) in SIZES.into_iter().zip(measured) {
            let all = compare(&topology, &op, &operands_for(&op, n, bytes))?;
            let direct = all.candidates.iter().find(|c| c.means == Means::Schedule(Algorithm::Direct));
            let predicted = direct.map_or(0.0, |direct| direct.outcome.time_us);
            let ratio = predicted / measured.max(1e-3);
            put!(
                out,
                "{name:<33} {bytes:>10} bytes  measured {measured:>12.3} us  predicted {predicted:>12.3} us  {ratio:.2}"
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times that ranks with these figures would have.
    fn times(ranks: usize, figures: &Figures) -> Times {
        let Figures { overhead_us: o, latency_us: l, gb_s, combine_gb_s } = *figures;
        let n = ranks as f64;
        let small = n * o + 2.0 * l;
        let moved = |bytes: usize| bytes as f64 * (n - 1.0) / n * 1e-3;
        let gather = [0.0, moved(SIZES[1]) / gb_s, moved(SIZES[2]) / gb_s].map(|moving| small + moving);
        let scatter = [0, 1, 2].map(|i| gather[i] + moved(SIZES[i]) / combine_gb_s);
        Times { gather, scatter, ring: (ranks > 2).then_some((n - 1.0) * (2.0 * o + 2.0 * l)) }
    }

    #[test]
    fn figures_come_back_from_their_times() {
        let made = Figures { overhead_us: 0.5, latency_us: 2.0, gb_s: 12.0, combine_gb_s: 30.0 };
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * b;
        for ranks in [3, 8] {
            let found = Figures::new(ranks, &times(ranks, &made));
            assert!(close(found.overhead_us, 0.5) && close(found.latency_us, 2.0), "{found:?}");
            assert!(close(found.gb_s, 12.0) && close(found.combine_gb_s, 30.0), "{found:?}");
        }
        // With two ranks, overhead and latency cannot be told apart.
        let found = Figures::new(2, &times(2, &made));
        assert!(found.overhead_us == 0.0 && close(found.latency_us, 2.5), "{found:?}");
        let text = found.toml(2, "by hand", 1);
        assert_eq!(Topology::parse(&text).unwrap().devices(), 2);
    }

    #[test]
    fn combining_that_is_hidden_has_a_source_that_says_so() {
        let hidden = Times { gather: [1.0, 100.0, 800.0], scatter: [1.0, 100.0, 790.0], ring: None };
        let figures = Figures::new(2, &hidden);
        assert_eq!(figures.combine_gb_s, UNSEEN_GB_S);
        assert!(figures.toml(2, "by hand", 1).contains("source = \"unseen\""));
    }
}
