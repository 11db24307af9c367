//! random accesses, enumerated  =>  counts equal to the formulas that are exact, and not above those that are upper
//! bounds

use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::flow::{Body, Container, Kernel, Memlet, Statement, Store};
use sardonyx_dialects::interp::{Touched, run_counted};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_passes::movement::{Sure, Words};
use sardonyx_tests::damage::Random;

/// A kernel, the values of its symbols, and the dimensions of its operand.
struct Case {
    kernel: Kernel,
    sizes: Vec<(&'static str, i64)>,
    dims: Vec<usize>,
}

fn value(d: &Dim, sizes: &[(&str, i64)], vars: &[i64]) -> i64 {
    let of = |symbol: &Symbol| match symbol.variable() {
        Some(v) => vars.get(v).copied(),
        None => sizes.iter().find(|(name, _)| symbol == *name).map(|(_, v)| *v),
    };
    d.eval(&of).unwrap()
}

fn var(v: usize) -> Dim {
    Kernel::var(v)
}

/// A random index expression.
fn expression(random: &mut Random, extents: &[Dim]) -> Dim {
    let v = random.below(extents.len());
    let w = random.below(extents.len());
    let c = |random: &mut Random, n: usize| Dim::constant(random.below(n) as i64);
    match random.below(10) {
        0 => c(random, 3),
        1 | 2 => var(v),
        3 => var(v) + c(random, 3),
        4 => var(v) * Dim::constant(2) + c(random, 2),
        5 => var(v) * extents[w].clone() + var(w),
        6 => var(v) + var(w),
        7 => var(v).floordiv(&Dim::constant(2)),
        8 => var(v).modulo(&Dim::constant(2)),
        _ => extents[v].clone() - Dim::constant(1) - var(v),
    }
}

/// Adds the guard lo <= %v < hi and returns its statement.
fn guard(random: &mut Random, extents: &[Dim], body: &mut Vec<Statement>) -> usize {
    let v = random.below(extents.len());
    let mut push = |body_: Body, dtype| {
        body.push(Statement { body: body_, dtype });
        body.len() - 1
    };
    let at = push(Body::Index(var(v)), DType::I64);
    let lo = push(Body::Index(Dim::constant(random.below(3) as i64)), DType::I64);
    let hi = push(Body::Index(extents[v].clone() - Dim::constant(random.below(2) as i64)), DType::I64);
    let above = push(Body::Apply { f: ScalarFn::Le, args: vec![lo, at] }, DType::Bool);
    let below = push(Body::Apply { f: ScalarFn::Lt, args: vec![at, hi] }, DType::Bool);
    push(Body::Apply { f: ScalarFn::And, args: vec![above, below] }, DType::Bool)
}

fn points(extents: &[i64]) -> Vec<Vec<i64>> {
    extents.iter().fold(vec![vec![]], |points, n| {
        points.into_iter().flat_map(|p| (0..*n).map(move |i| [p.clone(), vec![i]].concat())).collect()
    })
}

/// y[%0, %1, …] = Σ loads of one container, which is just large enough for the loads.
fn case(random: &mut Random) -> Case {
    let sizes = vec![("n", 1 + random.below(5) as i64), ("m", 1 + random.below(5) as i64)];
    let extent = |random: &mut Random| match random.below(4) {
        0 => Dim::symbol("n"),
        1 => Dim::symbol("m"),
        _ => Dim::constant(1 + random.below(5) as i64),
    };
    let extents: Vec<Dim> = (0..1 + random.below(3)).map(|_| extent(random)).collect();
    let rank = 1 + random.below(3);
    let mut body = vec![];
    let mut loads = vec![];
    for _ in 0..1 + random.below(3) {
        let guard = (random.below(3) == 0).then(|| guard(random, &extents, &mut body));
        let index = (0..rank).map(|_| expression(random, &extents)).collect();
        body.push(Statement { body: Body::Load { memlet: Memlet { container: 0, index }, guard }, dtype: DType::F32 });
        loads.push(body.len() - 1);
    }
    let numbers: Vec<i64> = extents.iter().map(|d| value(d, &sizes, &[])).collect();
    let mut dims = vec![1; rank];
    for statement in &body {
        let Body::Load { memlet, .. } = &statement.body else { continue };
        for point in points(&numbers) {
            for (dim, index) in dims.iter_mut().zip(&memlet.index) {
                *dim = (*dim).max(value(index, &sizes, &point) as usize + 1);
            }
        }
    }
    let mut sum = loads[0];
    for load in &loads[1..] {
        body.push(Statement { body: Body::Apply { f: ScalarFn::Add, args: vec![sum, *load] }, dtype: DType::F32 });
        sum = body.len() - 1;
    }
    let container = |dims: Vec<Dim>| Container::plain(DType::F32, dims);
    let index = (0..extents.len()).map(var).collect();
    let kernel = Kernel {
        reads: vec![container(dims.iter().map(|d| Dim::constant(*d as i64)).collect())],
        writes: vec![container(extents.clone())],
        outer: extents,
        inner: vec![],
        deep: vec![],
        body,
        stores: vec![Store { memlet: Memlet { container: 0, index }, value: sum }],
    };
    Case { kernel, sizes, dims }
}

/// Text of a kernel's accesses, for the message of a failure.
fn shown(kernel: &Kernel) -> String {
    let text = |d: &Dim| d.to_string();
    let list = |dims: &[Dim]| dims.iter().map(text).collect::<Vec<_>>().join(", ");
    let line = |(k, s): (usize, &Statement)| match &s.body {
        Body::Load { memlet, guard } => format!("${k} = load [{}] if {guard:?}", list(&memlet.index)),
        Body::Index(d) => format!("${k} = {d}"),
        other => format!("${k} = {other:?}"),
    };
    let body: Vec<String> = kernel.body.iter().enumerate().map(line).collect();
    format!("for [{}] of [{}]\n{}", list(&kernel.outer), list(&kernel.reads[0].dims), body.join("\n"))
}

#[test]
fn formulas_are_what_enumeration_counts() {
    let (mut exact, cases) = (0, 3000);
    for seed in 0..cases {
        let Case { kernel, sizes, dims } = case(&mut Random(0xC0_FFEE + seed));
        let symbol = |name: &str| sizes.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        let n = dims.iter().product();
        let mut touched = Touched::default();
        let tensor = Tensor::from_vec(dims, vec![1f32; n]);
        run_counted(&kernel, &symbol, &[tensor], Some(&mut touched)).unwrap_or_else(|e| panic!("{seed}: {e}"));
        // Extents are positive, which the formulas assume.
        let words = Words::count(&kernel, &|_| 1);
        let (read, counted) = (&words.reads[0], touched.reads[0] as i64);
        let said = read.words.eval_named(&symbol).unwrap();
        match read.sure {
            Sure::Exact => assert_eq!(said, counted, "seed {seed}: {} {sizes:?}\n{}", read.words, shown(&kernel)),
            Sure::ByData | Sure::AtMost => {
                assert!(
                    counted <= said && said <= n as i64,
                    "seed {seed}: {} {sizes:?}\n{}",
                    read.words,
                    shown(&kernel)
                );
            }
        }
        exact += (read.sure == Sure::Exact) as u64;
        assert_eq!(words.writes[0].words.eval_named(&symbol).unwrap(), touched.writes[0] as i64);
    }
    println!("{exact} of {cases} exact");
    // Many of the cases index several dimensions by one variable, which no model does.
    assert!(exact * 10 > cases * 4, "only {exact} of {cases} are exact");
}
