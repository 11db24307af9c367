//! a mutant of a topology or of a plan  =>  finite times or a compiled model, or one diagnostic

use crate::watch::Tally;
use crate::{Outcome, Subject};
use sardonyx::compile::{Request, compile};
use sardonyx::pipeline::Watch;
use sardonyx::placement::Placement;
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::operands_for;
use sardonyx_base::{Error, Fault, Result};
use sardonyx_cluster::{Fastest, Groups, PRESETS, Topology, compare};
use sardonyx_tests::damage::{Random, damaged};
use sardonyx_tests::onnx::{Net, encoder};
use std::path::Path;
use tempfile::TempDir;

/// Replacement values: invalid ones, and ones that a careless parser mistakes for another type or number.
static VALUES: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "0.5",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "1e-320",
    "99999999999",
    "9223372036854775807",
    "true",
    "\"\"",
    "'x'",
    "[]",
    "[2, 2]",
    "[0]",
    "{}",
];

/// Mutates lines, values and names of a text, or damages its bytes.
fn mutant(good: &str, random: &mut Random) -> Vec<u8> {
    if random.below(6) == 0 {
        return damaged(good.as_bytes(), random);
    }
    let mut lines: Vec<String> = good.lines().map(str::to_string).collect();
    for _ in 0..1 + random.below(4) / 3 {
        let at = random.below(lines.len());
        match random.below(6) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at].clone()),
            2 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            3 => lines[at] = lines[at].replacen(['a', 'e', 'i'], "o", 1),
            _ => lines[at] = with_another_value(&lines[at], random),
        }
        if lines.is_empty() {
            break;
        }
    }
    lines.join("\n").into_bytes()
}

/// Replaces one of the values of a line; a line with an inline table has several.
fn with_another_value(line: &str, random: &mut Random) -> String {
    let begins: Vec<usize> = line.match_indices("= ").map(|(at, _)| at + 2).collect();
    if begins.is_empty() {
        return line.to_string();
    }
    let begin = begins[random.below(begins.len())];
    let length =
        line[begin..].find([',', '}']).filter(|_| !line[begin..].starts_with('[')).unwrap_or(line.len() - begin);
    let value = VALUES[random.below(VALUES.len())];
    format!("{}{value}{}", &line[..begin], &line[begin + length..])
}

fn refused(error: &Error) -> Outcome {
    match (error.fault, error.remedy()) {
        (Fault::User, Some(_)) => Outcome::Fine(format!("refused {}", error.code)),
        _ => Outcome::Fault(format!("no fault of the user, or no remedy: {error}")),
    }
}

fn both_sides(tally: &Tally) {
    let n = tally.total();
    let (used, refused) = (tally.count(|w| w == "used"), tally.count(|w| w.starts_with("refused")));
    assert!(used > n / 20 && refused > n / 4, "{used} used, {refused} refused, of {n}");
}

pub struct Topologies {
    last: Vec<u8>,
}

impl Topologies {
    pub fn open() -> Box<dyn Subject> {
        Box::new(Topologies { last: vec![] })
    }

    pub fn check(tally: &Tally) {
        both_sides(tally);
    }
}

impl Subject for Topologies {
    fn attempt(&mut self, seed: u64) -> Outcome {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x70_701);
        self.last = mutant(PRESETS[random.below(PRESETS.len())].1, &mut random);
        let Ok(text) = std::str::from_utf8(&self.last) else { return Outcome::Fine("refused: no text".into()) };
        let topology = match Topology::parse(text) {
            Ok(topology) => topology,
            Err(e) => return refused(&e),
        };
        for text in [
            "AllReduce mesh=0 by=add",
            "AllGather mesh=0 dim=0",
            "AllToAll mesh=0 split=0 join=1",
            "Halo mesh=0 dim=0 before=1 after=2",
        ] {
            let op = Collective::parse(text).expect("a collective");
            let ranks = topology.devices().min(8);
            let operands = operands_for(&op, ranks, 1 << random.below(20));
            let all = match compare(&topology, &op, &operands) {
                Ok(all) => all,
                Err(e) => return refused(&e),
            };
            let mut times: Vec<f64> = all.candidates.iter().map(|c| c.outcome.time_us).collect();
            match Fastest::new(&topology).time_us(&op, &operands, Groups::one(ranks)) {
                Ok(time) => times.extend(time),
                Err(e) => return refused(&e),
            }
            if let Some(time) = times.iter().find(|time| !(time.is_finite() && **time >= 0.0)) {
                return Outcome::Fault(format!("{text} takes {time} microseconds"));
            }
        }
        Outcome::Fine("used".into())
    }

    fn keep(&self, path: &Path) {
        std::fs::write(path, &self.last).expect("a temporary folder takes a mutant");
    }
}

/// Plans for the encoder: placements of nodes, placements of operations, and pipeline stages.
static PLANS: &[&str] = &[
    "mesh = [2]\n[[place]]\nnode = '/q/mm'\noutput = 0\naxis = 0\ndim = -1\nunit = 8\nruns = 1\n",
    "mesh = [2, 3]\nseeds = false\n[[place]]\nnode = '/lookup'\noutput = 0\ndim = 0\n[[place]]\nnode = '/norm'\ninput = 0\naxis = 1\n\
     dim = 1\n",
    "mesh = [2]\nseeds = false\ngathered_weights = 0\n[overlap]\nmicro_batches = 2\n[[place]]\nnode = '/norm'\ninput = 0\ndim = 0\n",
    "mesh = [2]\nseeds = false\n[pipeline]\naxis = 0\nbegins = ['/mix']\nmicro_batches = 2\n",
    "mesh = [2, 2]\n[pipeline]\naxis = 0\nbegins = ['/scores']\n[[place]]\nnode = '/v/mm'\naxis = 1\noutput = 0\ndim = 2\n",
    "mesh = [4]\nseeds = false\n[[place]]\nnode = '/q/mm'\nop = 0\ninput = 1\ndim = 1\nunit = '8'\nruns = 1\n[[place]]\n\
     node = '/k/mm'\nop = 0\ninput = 0\n",
];

pub struct Plans {
    folder: TempDir,
    last: Vec<u8>,
}

impl Plans {
    pub fn open() -> Box<dyn Subject> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let net: Net = encoder();
        std::fs::write(folder.path().join("m.onnx"), net.bytes()).expect("a temporary folder takes a model");
        let made = Plans { folder, last: vec![] };
        for plan in PLANS {
            made.used(plan.as_bytes()).unwrap_or_else(|e| panic!("{plan}: {e}"));
        }
        Box::new(made)
    }

    pub fn check(tally: &Tally) {
        both_sides(tally);
    }

    /// Compiles the model with a plan, up to the stage `fuse`.
    fn used(&self, plan: &[u8]) -> Result<()> {
        let [file, model, output] = ["plan.toml", "m.onnx", "m.mlir"].map(|name| self.folder.path().join(name));
        std::fs::write(&file, plan).expect("a temporary folder takes a plan");
        let watch = Watch { stop_after: Some("fuse".into()), ..Watch::default() };
        let plan = Placement::read(&file)?;
        compile(&Request { plan: Some(plan), watch, ..Request::new(&model, &output) }).map(drop)
    }
}

impl Subject for Plans {
    fn attempt(&mut self, seed: u64) -> Outcome {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x91_a45);
        self.last = mutant(PLANS[random.below(PLANS.len())], &mut random);
        match self.used(&self.last) {
            Ok(()) => Outcome::Fine("used".into()),
            Err(e) if e.file.is_none() => Outcome::Fault(format!("no file: {e}")),
            Err(e) => refused(&e),
        }
    }

    fn keep(&self, path: &Path) {
        std::fs::write(path, &self.last).expect("a temporary folder takes a mutant");
    }
}
