//! what GPUs computed (testdata/goldens/*.json)  =>  the simulator computes the same, within what the PTX ISA leaves free
#![cfg(feature = "sim")]

#[path = "../examples/gpu_goldens/cases.rs"]
mod cases;

use cases::{Case, PTX, Shape, cases, to_json};
use half::{bf16, f16};
use ptxvm::{Launch, Memory, Module, Options};
use serde_json::Value;
use std::path::Path;

fn simulated(module: &Module, case: &Case) -> Vec<u32> {
    let mut memory = Memory::new();
    let (from, to) = (memory.alloc(4 * case.inputs.len(), "in"), memory.alloc(4 * case.n_outputs(), "out"));
    memory.write(from, &case.inputs.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let params = [from, to].iter().flat_map(|a| a.to_le_bytes()).collect();
    let (grid, block) = ([case.warps() as u32, 1, 1], [32, 1, 1]);
    let launch = Launch { entry: case.entry.clone(), grid, block, cluster: [1; 3], shared_bytes: 0, params };
    let report = ptxvm::run(module, &mut memory, &launch, &Options::default()).unwrap();
    assert!(report.findings.is_empty(), "{}: {:?}", case.entry, report.findings);
    let mut bytes = vec![0; 4 * case.n_outputs()];
    memory.read(to, &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

/// What was asked, and the answer.
type Answered = (Case, Vec<u32>);

/// The device, and its answers.
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

/// How far two results of `entry` for `x` may be apart: the errors that the PTX ISA states, of both.
fn unary_bound(entry: &str, x: f32, y: f32) -> f32 {
    let relative = |exponent: i32| y.abs() * (exponent as f32).exp2() + f32::MIN_POSITIVE;
    match entry {
        "ex2" | "ex2_ftz" | "lg2" | "rsqrt" => relative(-21),
        "rcp" | "sqrt" => relative(-22),
        "tanh" => relative(-10),
        // Stated for arguments up to 2π only; beyond it the reduction loses bits with the exponent.
        "sin" | "cos" => (-20.0_f32).exp2() * (x.abs() / std::f32::consts::TAU).max(1.0),
        other => panic!("no bound is known for {other}"),
    }
}

fn unary_agrees(entry: &str, x: u32, ours: u32, theirs: u32) -> bool {
    let (x, a, b) = (f32::from_bits(x), f32::from_bits(ours), f32::from_bits(theirs));
    let far = matches!(entry, "sin" | "cos") && x.abs() > 1e4;
    ours == theirs || far || a.is_nan() && b.is_nan() || (a - b).abs() <= unary_bound(entry, x, b)
}

/// The factors of each result of a warp, as (Σ|a·b| + |c|, number of terms).
fn magnitudes(case: &Case, warp: usize) -> (Vec<f64>, usize) {
    let lanes = &case.inputs[warp * 320..][..320];
    let word = |lane: usize, i: usize| lanes[10 * lane + i];
    let halves = |w: u32, wide: fn(u16) -> f64| vec![wide(w as u16), wide((w >> 16) as u16)];
    let values = |w: u32| match case.entry.as_str() {
        "mma_bf16" => halves(w, |h| bf16::from_bits(h).to_f64()),
        "mma_f16" => halves(w, |h| f16::from_bits(h).to_f64()),
        "mma_tf32" => vec![f64::from(f32::from_bits(w))],
        other => panic!("{other} is exact"),
    };
    let (per_word, mut out) = (values(0).len(), vec![]);
    for lane in 0..32 {
        for c in 0..4 {
            let (row, column) = (lane / 4 + 8 * (c / 2), 2 * (lane % 4) + c % 2);
            let mut sum = f64::from(f32::from_bits(word(lane, 6 + c))).abs();
            // A register holds four bytes of K: quarter t of block k.
            for (block, t) in (0..2).flat_map(|block| (0..4).map(move |t| (block, t))) {
                let a = values(word(4 * (row % 8) + t, 2 * block + row / 8));
                let b = values(word(4 * column + t, 4 + block));
                sum += a.iter().zip(&b).map(|(a, b)| (a * b).abs()).sum::<f64>();
            }
            out.push(sum);
        }
    }
    (out, 8 * per_word + 1)
}

/// What differs by more than may be, in words.
fn differences(case: &Case, ours: &[u32], theirs: &[u32]) -> Vec<String> {
    let told = |i: usize| format!("{} {i}: {:08x}, but a GPU gives {:08x}", case.entry, ours[i], theirs[i]);
    let all = 0..theirs.len();
    if case.shape == Shape::Unary {
        return all.filter(|&i| !unary_agrees(&case.entry, case.inputs[i], ours[i], theirs[i])).map(told).collect();
    }
    if case.entry == "mma_s8" {
        return all.filter(|&i| ours[i] != theirs[i]).map(told).collect();
    }
    let bounds = (0..case.warps()).flat_map(|warp| {
        let (sums, terms) = magnitudes(case, warp);
        // Each addition may round, or cut off, one unit of the largest sum.
        sums.into_iter().map(move |s| s * terms as f64 * f64::from(f32::EPSILON))
    });
    let apart = |i: usize| (f64::from(f32::from_bits(ours[i])) - f64::from(f32::from_bits(theirs[i]))).abs();
    all.zip(bounds).filter(|&(i, bound)| apart(i) > bound).map(|(i, _)| told(i)).collect()
}

#[test]
fn the_simulator_computes_what_gpus_computed() {
    let module = Module::parse(PTX).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/goldens");
    let files = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let mut recorded = 0;
    for file in files.filter(|f| f.extension().is_some_and(|e| e == "json")) {
        let (device, answers) = from_json(&std::fs::read_to_string(&file).unwrap()).expect("the recorder wrote it");
        for (case, theirs) in &answers {
            let ours = simulated(&module, case);
            let found = differences(case, &ours, theirs);
            let equal = ours.iter().zip(theirs).filter(|(a, b)| a == b).count();
            println!("{device}: {}: {equal} of {} are equal bit for bit", case.entry, ours.len());
            assert!(found.is_empty(), "{device}: {}", found.join("\n"));
        }
        recorded += 1;
    }
    println!("{recorded} recordings");
}

/// The probe runs on the simulator, and its answers survive being written and read; a wrong one is seen.
#[test]
fn recordings_are_read_back_and_differences_are_seen() {
    let module = Module::parse(PTX).unwrap();
    let answers: Vec<_> = cases().into_iter().map(|case| (case.clone(), simulated(&module, &case))).collect();
    assert_eq!(answers.len(), 13);
    let (device, again) = from_json(&to_json("simulated", &answers)).unwrap();
    assert_eq!((device.as_str(), &again), ("simulated", &answers));
    for (case, outputs) in &answers {
        assert_eq!(differences(case, outputs, outputs), Vec::<String>::new());
        let wrong: Vec<u32> = outputs.iter().map(|w| w ^ 1 << 20).collect();
        assert!(differences(case, outputs, &wrong).len() > outputs.len() / 4, "{}", case.entry);
    }
}

/// The reference of the reference: the library's own functions on arguments in the usual range.
#[test]
fn approximations_are_near_the_functions() {
    let module = Module::parse(PTX).unwrap();
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
        for (x, y) in case.inputs.iter().zip(simulated(&module, &case)).map(|(x, y)| (f32::from_bits(*x), y)) {
            let wanted = right(f64::from(x)) as f32;
            let usual = (1e-3..100.0).contains(&x.abs()) && wanted.is_normal();
            assert!(!usual || unary_agrees(&case.entry, x.to_bits(), y, wanted.to_bits()), "{} {x}: {y:x}", case.entry);
        }
    }
}
