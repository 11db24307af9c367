//! Compares the sectors that the simulator counts with predicted sectors; counts shared-memory bank conflicts

use crate::build::{Builder, layer_norm, softmax};
use crate::harness::{Case, Random};
use crate::ptx::launch;
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_kernels::Target;
use sardonyx_kernels::lower;

/// Whether two numbers agree within 2 %.
fn near(counted: u64, stated: i64) -> bool {
    (counted as i64 - stated).abs() * 50 <= stated
}

/// Compares the sectors that a launch requests and touches with those that the kernel predicts.
fn check(cases: Vec<Case>) {
    let mut failures = vec![];
    for case in &cases {
        let lowered = lower(&case.kernel).unwrap();
        let outcome = launch(&lowered, case, 3);
        let stated = lowered.for_gpu(Target::from_ptx("sm_80").unwrap()).movement(&outcome.params);
        for (buffer, stated) in stated.iter().enumerate() {
            let counted = outcome.counters(buffer);
            let (requested, distinct) = match counted {
                Some(c) => (c.loads.sectors + c.stores.sectors, c.distinct_load_sectors + c.distinct_store_sectors),
                None => (0, 0),
            };
            let enough =
                if stated.from_data { distinct as i64 <= stated.algebraic } else { near(distinct, stated.algebraic) };
            if !near(requested, stated.scheduled) || !enough {
                let name = &case.name;
                failures
                    .push(format!("{name} b{buffer}: {requested} requested, {distinct} distinct, {stated:?} stated"));
            }
        }
        let conflicts = outcome.report.counters.shared.conflicts();
        if conflicts > 0 || !outcome.report.findings.is_empty() {
            failures.push(format!("{}: {conflicts} bank conflicts, {:?}", case.name, outcome.report.findings));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn affine(rows: &str, n: &str, t: DType) -> Kernel {
    let mut b = Builder::new(&[rows, n], &[]);
    let x = b.load(t, &[rows, n], &["%0", "%1"]);
    let bias = b.load(t, &[n], &["%1"]);
    let scale = b.load(t, &[rows], &["%0"]);
    let y = b.apply(ScalarFn::Mul, &[bias, scale]);
    let y = b.apply(ScalarFn::Add, &[x, y]);
    b.store(y, &[rows, n], &["%0", "%1"]);
    b.0
}

#[test]
fn maps() {
    let mut cases = vec![];
    for t in [DType::F32, DType::F16, DType::I8, DType::F64] {
        cases.push(Case::new(&format!("{t} 64 x 1024"), affine("64", "1024", t), &[]));
        cases.push(Case::new(&format!("{t} r x n"), affine("r", "n", t), &[("r", 48), ("n", 512)]));
        cases.push(Case::new(&format!("{t} narrow rows"), affine("r", "64", t), &[("r", 512)]));
    }
    // Every second element is read, so each thread reads single elements rather than vectors.
    let mut every = Builder::new(&["64", "256"], &[]);
    let x = every.load(DType::F32, &["64", "512"], &["%0", "2*%1"]);
    let y = every.again(0, &["%0", "511 - 2*%1"]);
    let z = every.apply(ScalarFn::Add, &[x, y]);
    every.store(z, &["64", "256"], &["%0", "%1"]);
    cases.push(Case::new("every second", every.0, &[]));
    check(cases);
}

#[test]
fn gathers_pads_and_concatenations() {
    let mut random = Random(3);
    let mut gather = Builder::new(&["128", "256"], &[]);
    let i = gather.load(DType::I64, &["128"], &["%0"]);
    let x = gather.load(DType::F32, &["40", "256"], &[&format!("${i}"), "%1"]);
    gather.store(x, &["128", "256"], &["%0", "%1"]);
    let rows = Tensor::from_vec(vec![128], (0..128).map(|_| (random.next() % 40) as i64).collect());
    let mut pad = Builder::new(&["64", "256"], &[]);
    let at = pad.index("%1 - 64");
    let (zero, end) = (pad.constant(0.0, DType::I64), pad.constant(128.0, DType::I64));
    let (from, to) = (pad.apply(ScalarFn::Le, &[zero, at]), pad.apply(ScalarFn::Lt, &[at, end]));
    let inside = pad.apply(ScalarFn::And, &[from, to]);
    let x = pad.guarded(DType::F32, &["64", "128"], &["%0", "%1 - 64"], Some(inside));
    pad.store(x, &["64", "256"], &["%0", "%1"]);
    let mut whole = Builder::new(&["96", "256"], &[]);
    let (row, edge) = (whole.index("%0"), whole.constant(32.0, DType::I64));
    let first = whole.apply(ScalarFn::Lt, &[row, edge]);
    let second = whole.apply(ScalarFn::Not, &[first]);
    let x = whole.guarded(DType::F32, &["32", "256"], &["%0", "%1"], Some(first));
    let y = whole.guarded(DType::F32, &["64", "256"], &["%0 - 32", "%1"], Some(second));
    let z = whole.apply(ScalarFn::Select, &[first, x, y]);
    whole.store(z, &["96", "256"], &["%0", "%1"]);
    check(vec![
        Case::new("rows", gather.0, &[]).read(0, rows),
        Case::new("pad", pad.0, &[]),
        Case::new("concatenation", whole.0, &[]),
    ]);
}

#[test]
fn transposes() {
    let mut cases = vec![];
    for t in [DType::F32, DType::F16, DType::F64, DType::Bool] {
        let mut b = Builder::new(&["2", "r", "c"], &[]);
        let x = b.load(t, &["2", "c", "r"], &["%0", "%2", "%1"]);
        b.store(x, &["2", "r", "c"], &["%0", "%1", "%2"]);
        cases.push(Case::new(&format!("{t}"), b.0, &[("r", 128), ("c", 96)]));
    }
    check(cases);
}

#[test]
fn rows() {
    let mut cases = vec![];
    for n in [128i64, 256, 1024, 2048, 4096, 16384] {
        let rows = (65536 / n).max(8).to_string();
        cases.push(Case::new(&format!("softmax {n}"), softmax(&[&rows], &n.to_string()), &[]));
        cases.push(Case::new(&format!("softmax n = {n}"), softmax(&[&rows], "n"), &[("n", n)]));
    }
    for (n, count) in [("384", 384.0), ("768", 768.0), ("4096", 4096.0)] {
        cases.push(Case::new(&format!("layer norm {n}"), layer_norm(n, count), &[("b", 4), ("s", 16)]));
    }
    check(cases);
}

#[test]
fn reductions() {
    let mut whole = Builder::new(&[], &["n"]);
    let x = whole.load(DType::F32, &["n"], &["%0"]);
    let r = whole.reduce(ReduceFn::Max, x);
    whole.store(r, &[], &[]);
    let mut columns = Builder::new(&["c"], &["r"]);
    let x = columns.load(DType::F32, &["r", "c"], &["%1", "%0"]);
    let r = columns.reduce(ReduceFn::Add, x);
    columns.store(r, &["c"], &["%0"]);
    let mut nest = Builder::new(&["s"], &["4", "n"]);
    let x = nest.load(DType::F32, &["4", "s", "n"], &["%1", "%0", "%2"]);
    let sum = nest.reduce(ReduceFn::Add, x);
    nest.store(sum, &["s"], &["%0"]);
    check(vec![
        Case::new("whole", whole.0, &[("n", 65536)]),
        Case::new("columns", columns.0, &[("c", 256), ("r", 100)]),
        Case::new("nest", nest.0, &[("s", 16), ("n", 512)]),
    ]);
}
