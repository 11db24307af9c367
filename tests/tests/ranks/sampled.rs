//! random combinations of model, kinds of division, ranks and transport  =>  the results of one rank, with the same
//! bits over every transport

use super::kinds::{Divided, Kind, PIPELINE, check_near, first_input, plan, run};
use super::measured::{number, printed_by};
use super::{Start, check_starts, started, starts};
use sardonyx_base::Tensor;
use sardonyx_format::tensor_io::save_npy;
use sardonyx_tests::checked::check_artifact;
use sardonyx_tests::damage::Random;
use sardonyx_tests::prepared::model;
use sardonyx_tests::programs::{Outcome, compile, program};
use std::path::Path;
use std::process::Command;

/// Number of plans that are drawn; each is run over every transport.
const PLANS: usize = 60;
const RANKS_MAX: usize = 8;

/// Draws a mesh of one or two axes. Returns the number of ranks along each axis, and the kind of division along it.
fn drawn<'k>(random: &mut Random, kinds: &'k [Kind]) -> (Vec<usize>, Vec<&'k Kind>) {
    let first = &kinds[random.below(kinds.len())];
    let size = |kind: &Kind, random: &mut Random| match kind.places[0].1 {
        PIPELINE => 2,
        _ => 2 + random.below(3),
    };
    let n = size(first, random);
    let other = &kinds[random.below(kinds.len())];
    let is_pair = other.name != first.name && other.places[0].1 != PIPELINE && random.below(2) == 0;
    let m = size(other, random);
    if is_pair && n * m <= RANKS_MAX { (vec![n, m], vec![first, other]) } else { (vec![n], vec![first]) }
}

/// Runs the artifact over a transport. Returns the bytes of the output.
fn output(folder: &Path, start: Start, ranks: usize) -> Vec<u8> {
    let at = |name: &str| folder.join(name).to_str().unwrap().to_string();
    let (input, artifact, out) = (format!("x={}", at("x.npy")), at("m.sdx"), at("out"));
    let arguments = ["run", &artifact, "--input", &input, "--output-dir", &out];
    let outcome = Outcome::run(&mut started(start, ranks, &arguments));
    assert_eq!(outcome.code, 0, "{start:?}: {}", outcome.stderr);
    std::fs::read(folder.join("out/y.npy")).unwrap()
}

/// Returns the number of bytes that the first rank takes from other ranks in a call: as `sardonyx simulate` predicts
/// it, and as counted over each transport.
fn taken_bytes(folder: &Path, divided: &Divided, starts: &[Start], ranks: usize) -> (f64, Vec<f64>) {
    let at = |name: &str| folder.join(name);
    let mut simulate = Command::new(program("sardonyx"));
    simulate.arg("simulate").arg(at("m.onnx")).arg("--plan").arg(at("plan.toml"));
    for size in divided.sizes {
        simulate.args(["--at", size]);
    }
    let simulated = printed_by(simulate.args(["--topology", "one-host", "--json"]));
    let artifact = at("m.sdx");
    let mut arguments = vec!["bench", artifact.to_str().unwrap(), "--min-time", "0", "--json"];
    divided.sizes.iter().for_each(|size| arguments.extend(["--dim", size]));
    let counted = |start: &Start| number(&printed_by(&mut started(*start, ranks, &arguments)), "taken_bytes");
    (number(&simulated, "taken_bytes"), starts.iter().map(counted).collect())
}

/// Part of `cargo xtask test --suite ranks`.
#[test]
#[ignore = "minutes"]
fn combinations_give_what_one_rank_gives() {
    let folder = tempfile::tempdir().unwrap();
    let all = Divided::all();
    let alone: Vec<Vec<f32>> = all.iter().map(|d| run(folder.path(), &d.net, None).unwrap().0).collect();
    let (mut random, starts, mut count) = (Random(27), starts(), 0);
    for _ in 0..PLANS {
        let at = random.below(all.len());
        let (divided, wanted) = (&all[at], &alone[at]);
        let (mesh, kinds) = drawn(&mut random, divided.kinds);
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
        let what = format!("{} on {mesh:?}", names.join(" and "));
        let (got, _) =
            run(folder.path(), &divided.net, Some(&plan(&mesh, &kinds))).unwrap_or_else(|e| panic!("{what}: {e}"));
        check_near(&got, wanted, &what);
        save_npy(folder.path().join("x.npy"), &first_input(&divided.net.1)).unwrap();
        let expected = folder.path().join("y.npy");
        save_npy(&expected, &Tensor::from_vec(divided.output.clone(), got)).unwrap();
        let expected = std::fs::read(expected).unwrap();
        for &start in &starts {
            assert!(output(folder.path(), start, mesh.iter().product()) == expected, "{what}, {start:?}: other bits");
            count += 1;
        }
        let (simulated, counted) = taken_bytes(folder.path(), divided, &starts, mesh.iter().product());
        assert!(counted.iter().all(|bytes| *bytes == simulated), "{what}: {simulated} simulated, {counted:?} counted");
    }
    println!("{count} combinations of {PLANS} plans and {starts:?}");
}

/// Splits of samples, rows, filters and channels: the name of the split, and its entry in a plan.
static OF_RESNET: [(&str, &str); 4] = [
    ("sample", "node = '/conv1/Conv'\ninput = 0\ndim = 0\n"),
    ("spatial", "node = '/conv1/Conv'\ninput = 0\ndim = 2\n"),
    ("filter", "node = '.*conv[123]/Conv'\noutput = 0\ndim = 1\n"),
    ("channel", "node = '.*conv[123]/Conv'\ninput = 1\ndim = 1\n"),
];

/// Part of `cargo xtask test --suite ranks`.
#[test]
#[ignore = "minutes"]
fn a_residual_net_is_divided_in_four_ways() {
    let name = "skel_resnet50_rand_ts17";
    let folder = tempfile::tempdir().unwrap();
    for (kind, place) in OF_RESNET {
        for ranks in [2, 4] {
            let [file, artifact] = ["plan.toml", "m.sdx"].map(|name| folder.path().join(name));
            std::fs::write(&file, format!("mesh = [{ranks}]\nseeds = false\n[[place]]\n{place}")).unwrap();
            compile(&model(name), &artifact, &["--plan", file.to_str().unwrap()]);
            check_artifact(name, &artifact).unwrap_or_else(|e| panic!("{kind} on {ranks}: {e}"));
            check_starts(&artifact, name, ranks, &starts(), 1);
        }
    }
}
