//! plans of one model for two ranks with slow links  =>  measured times in the order of the simulated ones

use super::started;
use super::{Start, outputs};
use sardonyx_tests::prepared::model;
use sardonyx_tests::programs::{Outcome, compile, program};
use std::path::Path;
use std::process::Command;

const MODEL: &str = "skel_minilm_l6_ts14";
/// Latency and bandwidth of the links that `bench` emulates; [`TOPOLOGY`] describes the same links.
const LINKS: &str = "50us,512M";
static TOPOLOGY: &str = r#"
name = "slow"
about = "Two ranks with a core each"
overhead_us = { value = 1, source = "assumed" }
combine_gb_s = { value = 8, source = "assumed" }
[device]
name = "x86-64-v4"
cores = 1
[sources]
assumed = "assumed, not measured"
[[level]]
kind = "switch"
members = [2]
latency_us = { value = 25, source = "assumed" }
gb_s = { value = 0.536870912, source = "assumed" }
"#;

/// Names of plans, and what they contain in addition to the mesh.
static PLANS: [(&str, &str); 11] = [
    ("products split", ""),
    ("in 2 chunks", "[overlap]\nchunks = 2\n"),
    ("in 4 chunks", "[overlap]\nchunks = 4\n"),
    ("in 8 chunks", "[overlap]\nchunks = 8\n"),
    ("2 in turns", "[overlap]\nmicro_batches = 2\n"),
    ("4 in turns", "[overlap]\nmicro_batches = 4\n"),
    ("everything everywhere", "seeds = false\n"),
    ("stages, 1 at a time", "[pipeline]\nmicro_batches = 1\n"),
    ("stages, 2 at a time", "[pipeline]\nmicro_batches = 2\n"),
    ("stages, 4 at a time", "[pipeline]\nmicro_batches = 4\n"),
    ("stages, 8 at a time", "[pipeline]\nmicro_batches = 8\n"),
];
const SECOND_STAGE: &str = "/m/encoder/layer.3/attention/self/query/MatMul";

/// Sizes for which plans are made: the first are those of the measured calls, and for the second another plan is best.
static AT: [&str; 2] = ["batch=8,seq=128", "batch=1,seq=128"];

/// Largest permitted time of the chosen plan, relative to the best of those measured.
const CHOSEN_MAX: f64 = 1.05;
const SPEARMAN_MIN: f64 = 0.8;

pub fn number(json: &str, key: &str) -> f64 {
    let at = json.split_once(&format!("\"{key}\": ")).unwrap_or_else(|| panic!("no {key} in {json}")).1;
    at.split([',', '}']).next().unwrap().parse().unwrap()
}

pub fn printed_by(command: &mut Command) -> String {
    let outcome = Outcome::run(command);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    outcome.stdout
}

/// Position of each number in ascending order.
fn ranks_of(numbers: &[f64]) -> Vec<f64> {
    numbers.iter().map(|n| numbers.iter().filter(|other| *other < n).count() as f64).collect()
}

fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let squares: f64 = ranks_of(a).iter().zip(ranks_of(b)).map(|(a, b)| (a - b) * (a - b)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}

#[test]
#[ignore = "minutes, on an idle machine"]
fn plans_are_measured_in_the_order_in_which_they_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (source, topology) = (model(MODEL), at("slow.toml"));
    std::fs::write(&topology, TOPOLOGY).unwrap();
    let mut plans: Vec<(String, std::path::PathBuf)> = vec![];
    for (i, sizes) in AT.iter().enumerate() {
        let path = at(&format!("planned{i}.toml"));
        let mut command = Command::new(program("sardonyx"));
        command.arg("plan").arg(&source).args(["--ranks", "2", "--at", sizes]).arg("--topology").arg(&topology);
        printed_by(command.arg("-o").arg(&path));
        plans.push((format!("planned for {sizes}"), path));
    }
    for (i, (name, rest)) in PLANS.iter().enumerate() {
        let begins = if rest.contains("pipeline") { format!("begins = ['{SECOND_STAGE}']\n") } else { String::new() };
        let path = at(&format!("plan{i}.toml"));
        std::fs::write(&path, format!("mesh = [2]\n{rest}{begins}")).unwrap();
        plans.push(((*name).into(), path));
    }
    let artifact = |plan: &Path| plan.with_extension("sdx");
    let mut simulated = vec![];
    for (_, plan) in &plans {
        compile(&source, &artifact(plan), &["--plan", plan.to_str().unwrap()]);
        let mut command = Command::new(program("sardonyx"));
        command.arg("simulate").arg(&source).args(["--at", AT[0], "--json"]).arg("--plan").arg(plan);
        simulated.push(number(&printed_by(command.arg("--topology").arg(&topology)), "time_us") / 1e3);
    }
    let mut measured = vec![f64::INFINITY; plans.len()];
    // The plans take turns, so that a busy moment of the machine affects all of them.
    for _ in 0..3 {
        for ((_, plan), best) in plans.iter().zip(&mut measured) {
            let model = artifact(plan);
            let mut arguments = vec!["bench", model.to_str().unwrap(), "--links", LINKS, "--min-time", "1", "--json"];
            AT[0].split(',').for_each(|size| arguments.extend(["--dim", size]));
            *best = best.min(number(&printed_by(&mut started(Start::Threads, 2, &arguments)), "median_ms"));
        }
    }
    for (((name, _), simulated), measured) in plans.iter().zip(&simulated).zip(&measured) {
        println!("{name:<28} simulated {simulated:>9.3} ms  measured {measured:>9.3} ms");
    }
    let (rho, best) = (spearman(&simulated, &measured), measured.iter().copied().fold(f64::INFINITY, f64::min));
    println!("Spearman {rho:.3}; the plan that is chosen takes {:.3} of the best", measured[0] / best);
    let plain = plans.iter().position(|(name, _)| name == PLANS[0].0).unwrap();
    let turns = plans.iter().position(|(name, _)| name == "2 in turns").unwrap();
    println!("micro-batches in turns take {:.3} of the time without", measured[turns] / measured[plain]);
    assert!(rho >= SPEARMAN_MIN && measured[0] <= CHOSEN_MAX * best && measured[turns] < measured[plain]);
    let bits = |i: usize| outputs(&artifact(&plans[i].1), MODEL, Start::Threads, 2);
    assert!(bits(plain) == bits(turns), "other bits");
}
