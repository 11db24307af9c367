//! results recorded on GPUs (testdata/goldens/*.json)  =>  the simulator computes the same: products bit for bit,
//! approximations within the tolerance of the PTX ISA
#![cfg(feature = "sim")]

#[path = "../examples/gpu_goldens/cases.rs"]
mod cases;

use cases::{Case, PTX, PTX_SM_90A, Shape, cases, to_json};
use ptxvm::{Launch, Memory, Module, Options};
use serde_json::Value;
use std::path::Path;

/// The modules of both probes.
struct Probes([Module; 2]);

impl Probes {
    fn new() -> Probes {
        Probes([PTX, PTX_SM_90A].map(|text| Module::parse(text).unwrap()))
    }
}

fn simulated(Probes(modules): &Probes, case: &Case) -> Vec<u32> {
    let module = &modules[usize::from(case.is_of_warpgroups())];
    let mut memory = Memory::new();
    let (from, to) = (memory.alloc(4 * case.inputs.len(), "in"), memory.alloc(4 * case.n_outputs(), "out"));
    memory.write(from, &case.inputs.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let params = [from, to].iter().flat_map(|a| a.to_le_bytes()).collect();
    let (grid, block) = ([case.blocks(), 1, 1], [case.threads(), 1, 1]);
    let launch = Launch { entry: case.entry.clone(), grid, block, cluster: [1; 3], shared_bytes: 0, params };
    let report = ptxvm::run(module, &mut memory, &launch, &Options::default()).unwrap();
    assert!(report.findings.is_empty(), "{}: {:?}", case.entry, report.findings);
    let mut bytes = vec![0; 4 * case.n_outputs()];
    memory.read(to, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

/// A case and the results for it.
type Answered = (Case, Vec<u32>);

/// Returns the device and its recorded results.
fn from_json(text: &str) -> Option<(String, Vec<Answered>)> {
    let all: Value = serde_json::from_str(text).ok()?;
    let case = |v: &Value| {
        let shape = if v["matrix"].as_bool()? { Shape::Matrix } else { Shape::Unary };
        let case = Case { entry: v["entry"].as_str()?.into(), shape, inputs: words(v["inputs"].as_str()?)? };
        Some((case, words(v["outputs"].as_str()?)?))
    };
    let cases = all["cases"].as_array()?.iter().map(case).collect::<Option<_>>()?;
    Some((all["device"].as_str()?.into(), cases))
}

fn words(hex: &str) -> Option<Vec<u32>> {
    let word = |w: &[u8]| u32::from_str_radix(std::str::from_utf8(w).ok()?, 16).ok();
    hex.as_bytes().chunks(8).map(word).collect()
}

/// Largest allowed difference between two results of `entry` for `x`: the sum of the errors that the PTX ISA allows for
/// each of them.
fn unary_bound(entry: &str, x: f32, y: f32) -> f32 {
    let relative = |exponent: i32| y.abs() * (exponent as f32).exp2() + f32::MIN_POSITIVE;
    match entry {
        "ex2" | "ex2_ftz" | "rsqrt" => relative(-21),
        // Between 0.5 and 2 the stated error is absolute, elsewhere relative to the result.
        "lg2" if (0.5..=2.0).contains(&x) => (-21.0_f32).exp2(),
        "lg2" => relative(-21),
        "rcp" | "sqrt" => relative(-22),
        "tanh" => relative(-10),
        // The error is stated for arguments up to 2π only; beyond them, the range reduction loses bits in proportion to
        // the argument.
        "sin" | "cos" => (-20.0_f32).exp2() * (x.abs() / std::f32::consts::TAU).max(1.0),
        other => panic!("no bound is known for {other}"),
    }
}

fn unary_agrees(entry: &str, x: u32, ours: u32, theirs: u32) -> bool {
    let (x, a, b) = (f32::from_bits(x), f32::from_bits(ours), f32::from_bits(theirs));
    let far = matches!(entry, "sin" | "cos") && x.abs() > 1e4;
    ours == theirs || far || a.is_nan() && b.is_nan() || (a - b).abs() <= unary_bound(entry, x, b)
}

/// Describes the results that differ by more than is allowed.
fn differences(case: &Case, ours: &[u32], theirs: &[u32]) -> Vec<String> {
    let told = |i: usize| format!("{} {i}: {:08x}, but a GPU gives {:08x}", case.entry, ours[i], theirs[i]);
    let all = 0..theirs.len();
    if case.shape == Shape::Unary {
        return all.filter(|&i| !unary_agrees(&case.entry, case.inputs[i], ours[i], theirs[i])).map(told).collect();
    }
    all.filter(|&i| ours[i] != theirs[i]).map(told).collect()
}

#[test]
fn the_simulator_computes_what_gpus_computed() {
    let probes = Probes::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/goldens");
    let files = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let mut recorded = 0;
    for file in files.filter(|f| f.extension().is_some_and(|e| e == "json")) {
        let (device, answers) = from_json(&std::fs::read_to_string(&file).unwrap()).expect("the recorder wrote it");
        for (case, theirs) in &answers {
            let ours = simulated(&probes, case);
            let found = differences(case, &ours, theirs);
            let equal = ours.iter().zip(theirs).filter(|(a, b)| a == b).count();
            println!("{device}: {}: {equal} of {} are equal bit for bit", case.entry, ours.len());
            assert!(found.is_empty(), "{device}: {}", found.join("\n"));
        }
        recorded += 1;
    }
    println!("{recorded} recordings");
}

/// The simulator's results survive being written and read, and wrong results are noticed.
#[test]
fn recordings_are_read_back_and_differences_are_seen() {
    let probes = Probes::new();
    let answers: Vec<_> = cases().into_iter().map(|case| (case.clone(), simulated(&probes, &case))).collect();
    assert_eq!(answers.len(), 18);
    let (device, again) = from_json(&to_json("simulated", &answers)).unwrap();
    assert_eq!((device.as_str(), &again), ("simulated", &answers));
    for (case, outputs) in &answers {
        assert_eq!(differences(case, outputs, outputs), Vec::<String>::new());
        let wrong: Vec<u32> = outputs.iter().map(|w| w ^ 1 << 20).collect();
        assert!(differences(case, outputs, &wrong).len() > outputs.len() / 4, "{}", case.entry);
    }
}

/// Checks the simulator's approximations against the functions of the standard library, for arguments in the usual
/// range.
#[test]
fn approximations_are_near_the_functions() {
    let probes = Probes::new();
    for case in cases().into_iter().filter(|c| c.shape == Shape::Unary) {
        let right: fn(f64) -> f64 = match case.entry.as_str() {
            "ex2" | "ex2_ftz" => f64::exp2,
            "lg2" => f64::log2,
            "rcp" => f64::recip,
            "rsqrt" => |x| x.sqrt().recip(),
            "sqrt" => f64::sqrt,
            "sin" => f64::sin,
            "cos" => f64::cos,
            "tanh" => f64::tanh,
            other => panic!("{other} is unknown"),
        };
        for (x, y) in case.inputs.iter().zip(simulated(&probes, &case)).map(|(x, y)| (f32::from_bits(*x), y)) {
            let wanted = right(f64::from(x)) as f32;
            let usual = (1e-3..100.0).contains(&x.abs()) && wanted.is_normal();
            assert!(!usual || unary_agrees(&case.entry, x.to_bits(), y, wanted.to_bits()), "{} {x}: {y:x}", case.entry);
        }
    }
}
