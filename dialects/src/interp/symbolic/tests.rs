//! Hand-written expressions, and random graphs whose contents equal what the interpreter computes

use super::super::tests::Random;
use super::super::{run, run_all};
use super::*;
use crate::scalar::Conversion;
use crate::sdx::{Graph, Symbol, SymbolKind, Value};
use sardonyx_base::dim;

fn dim(text: &str) -> Dim {
    Dim::parse(text).unwrap()
}

fn dims(texts: &[&str]) -> Vec<Dim> {
    texts.iter().map(|t| dim(t)).collect()
}

fn vector(dtype: DType, n: usize) -> TensorType {
    TensorType::new(dtype, vec![Dim::constant(n as i64)])
}

/// `a` is at least 0, `b` at least 2, all others at least 1.
fn lo(symbol: &dim::Symbol) -> i64 {
    match symbol.name() {
        Some("a") => 0,
        Some("b") => 2,
        _ => 1,
    }
}

/// The result of one function on one-element vectors, as text.
fn map(f: ScalarFn, args: &[&str]) -> Option<String> {
    let types: Vec<TensorType> = args.iter().map(|_| vector(DType::I64, 1)).collect();
    let known: Vec<Vec<Dim>> = args.iter().map(|a| dims(&[a])).collect();
    let args: Vec<Argument<'_>> = types.iter().zip(&known).map(|(t, k)| (t, Some(k.as_slice()))).collect();
    Some(contents(&Op::Map(f), &vector(DType::I64, 1), &args, &lo)?[0].to_string())
}

#[test]
fn arithmetic_on_symbols() {
    use ScalarFn::*;
    let cases: &[(ScalarFn, &[&str], Option<&str>)] = &[
        (Add, &["n", "2"], Some("n + 2")),
        (Sub, &["n", "n"], Some("0")),
        (Mul, &["n", "384"], Some("384*n")),
        (Neg, &["n"], Some("-n")),
        (Div, &["384*n", "12"], Some("32*n")),
        (Div, &["-384*n", "12"], Some("-32*n")),
        (Div, &["n", "-1"], Some("-n")),
        (Div, &["n + 1", "2"], Some("((n + 1) floordiv (2))")),
        (Div, &["n - 2", "2"], None),
        (Div, &["b - 2", "2"], Some("((b) floordiv (2)) - 1")),
        (Div, &["n*b", "n"], Some("b")),
        (Div, &["n*a", "a"], None),
        (Div, &["-7", "2"], Some("-3")),
        (Div, &["n", "0"], Some("0")),
        (Rem, &["4*n + 3", "2"], Some("1")),
        (Rem, &["-7", "3"], Some("2")),
        (Rem, &["7", "-3"], Some("-2")),
        (Rem, &["4*n", "a"], None),
        (Abs, &["n - 1"], Some("n - 1")),
        (Abs, &["-n"], Some("n")),
        (Max, &["n", "1"], Some("n")),
        (Max, &["a", "n"], Some("max(a, n)")),
        (Min, &["b", "1"], Some("1")),
        (Sign, &["n"], None),
    ];
    for (f, args, expected) in cases {
        assert_eq!(map(*f, args).as_deref(), *expected, "{} {args:?}", f.name());
    }
}

#[test]
fn comparisons_are_decided_only_where_the_bounds_decide() {
    use ScalarFn::*;
    let cases: &[(ScalarFn, &[&str], Option<&str>)] = &[
        (Eq, &["n", "-1"], Some("0")),
        (Eq, &["n", "0"], Some("0")),
        (Eq, &["a", "0"], None),
        (Eq, &["n + a", "a + n"], Some("1")),
        (Eq, &["n", "1"], None),
        (Lt, &["n", "1"], Some("0")),
        (Lt, &["1", "b"], Some("1")),
        (Lt, &["1", "n"], None),
        (Le, &["1", "n"], Some("1")),
        (Le, &["n", "0"], Some("0")),
        (Select, &["1", "n", "a"], Some("n")),
        (Select, &["0", "n", "a"], Some("a")),
        (And, &["1", "0"], Some("0")),
        (Or, &["1", "0"], Some("1")),
        (Xor, &["1", "1"], Some("0")),
        (Not, &["0"], Some("1")),
    ];
    for (f, args, expected) in cases {
        assert_eq!(map(*f, args).as_deref(), *expected, "{} {args:?}", f.name());
    }
}

#[test]
fn bounds_reach_inside_floordiv() {
    // n = 1 gives floor(-1 / 3) = -1, and n = 2 gives 0; b - 2 is never negative.
    assert_eq!(map(ScalarFn::Lt, &["(n - 2) floordiv 3", "0"]), None);
    assert_eq!(map(ScalarFn::Lt, &["(b - 2) floordiv 3", "0"]).as_deref(), Some("0"));
}

#[test]
fn conversions_between_integers_and_bools() {
    let convert = |to: DType, x: &str| {
        let from = vector(DType::I64, 1);
        Some(
            contents(&Op::Convert(Conversion::Value), &vector(to, 1), &[(&from, Some(&dims(&[x])))], &lo)?[0]
                .to_string(),
        )
    };
    assert_eq!(convert(DType::Bool, "n").as_deref(), Some("1"));
    assert_eq!(convert(DType::Bool, "a"), None);
    assert_eq!(convert(DType::I32, "a").as_deref(), Some("a"));
    assert_eq!(convert(DType::I32, "4294967296"), None);
    assert_eq!(convert(DType::F32, "1"), None);
}

#[test]
fn movement_keeps_the_expressions() {
    let shape = dims(&["batch", "seq", "384"]);
    let from = vector(DType::I64, 3);
    let of = |op: Op, ty: TensorType, args: &[Argument<'_>]| contents(&op, &ty, args, &lo);
    let x: Argument<'_> = (&from, Some(&shape));
    let last = dims(&["2", "0"]);
    let gathered = of(Op::Gather { axis: 0 }, vector(DType::I64, 2), &[x, (&vector(DType::I64, 2), Some(&last))]);
    assert_eq!(gathered, Some(dims(&["384", "batch"])));
    let symbolic = dims(&["batch"]);
    let unknown = of(Op::Gather { axis: 0 }, vector(DType::I64, 1), &[x, (&vector(DType::I64, 1), Some(&symbolic))]);
    assert_eq!(unknown, None);
    let reversed = Op::Slice { starts: vec![2.into()], steps: vec![-2] };
    assert_eq!(of(reversed, vector(DType::I64, 2), &[x]), Some(dims(&["384", "batch"])));
    let outside = Op::Slice { starts: vec![2.into()], steps: vec![1] };
    assert_eq!(of(outside, vector(DType::I64, 2), &[x]), None);
    let symbolic = Op::Slice { starts: dims(&["n"]), steps: vec![1] };
    assert_eq!(of(symbolic, vector(DType::I64, 1), &[x]), None);
    let joined = of(Op::Concat { axis: 0 }, vector(DType::I64, 6), &[x, x]);
    assert_eq!(joined, Some([shape.clone(), shape.clone()].concat()));
    let padded = of(
        Op::Pad { low: vec![1.into()] },
        vector(DType::I64, 4),
        &[x, (&TensorType::new(DType::I64, vec![]), Some(&dims(&["7"])))],
    );
    assert_eq!(padded, Some(dims(&["7", "batch", "seq", "384"])));
    let column = TensorType::new(DType::I64, dims(&["3", "1"]));
    assert_eq!(of(Op::Reshape, column.clone(), &[x]), Some(shape.clone()));
    let repeated = TensorType::new(DType::I64, dims(&["2", "3"]));
    let repeated = of(Op::Broadcast { dims: vec![1] }, repeated, &[x]);
    assert_eq!(repeated, Some([shape.clone(), shape.clone()].concat()));
    let turned =
        of(Op::Transpose { perm: vec![1, 0] }, TensorType::new(DType::I64, dims(&["1", "3"])), &[(&column, x.1)]);
    assert_eq!(turned, Some(shape.clone()));
    assert_eq!(of(Op::Iota { axis: 0 }, vector(DType::I64, 3), &[]), Some(dims(&["0", "1", "2"])));
}

#[test]
fn reductions_combine_expressions() {
    let matrix = TensorType::new(DType::I64, dims(&["2", "2"]));
    let elements = dims(&["n", "2", "b", "1"]);
    let of = |f, axes: &[usize], n: usize| {
        let op = Op::Reduce { f, axes: axes.to_vec() };
        contents(&op, &vector(DType::I64, n), &[(&matrix, Some(&elements))], &lo)
    };
    assert_eq!(of(ReduceFn::Mul, &[1], 2), Some(dims(&["2*n", "b"])));
    assert_eq!(of(ReduceFn::Add, &[0], 2), Some(dims(&["n + b", "3"])));
    assert_eq!(of(ReduceFn::Min, &[1], 2), Some(dims(&["min(n, 2)", "1"])));
    let op = Op::Reduce { f: ReduceFn::Mul, axes: vec![0] };
    let empty = contents(&op, &TensorType::new(DType::I64, vec![]), &[(&vector(DType::I64, 0), Some(&[]))], &lo);
    assert_eq!(empty, Some(dims(&["1"])));
    let op = Op::Reduce { f: ReduceFn::Max, axes: vec![0, 1] };
    let all = contents(&op, &TensorType::new(DType::I64, vec![]), &[(&matrix, Some(&elements))], &lo);
    assert_eq!(all.map(|d| d.len()), Some(1));
}

#[test]
fn what_is_large_symbolic_or_unknown_is_left_alone() {
    let iota = |ty: TensorType| contents(&Op::Iota { axis: 0 }, &ty, &[], &lo);
    assert!(iota(vector(DType::I64, 64)).is_some());
    assert_eq!(iota(vector(DType::I64, 65)), None);
    assert_eq!(iota(TensorType::new(DType::I64, dims(&["n"]))), None);
    let (one, wrong_count) = (vector(DType::I64, 1), dims(&["1", "2"]));
    for known in [None, Some(&wrong_count[..])] {
        for op in [Op::Map(ScalarFn::Neg), Op::Reshape, Op::Convert(Conversion::Value), Op::Transpose { perm: vec![0] }]
        {
            assert_eq!(contents(&op, &one, &[(&one, known)], &lo), None, "{op:?}");
        }
    }
    let float = Op::Const(Tensor::from_vec(vec![1], vec![1f32]));
    assert_eq!(contents(&float, &vector(DType::F32, 1), &[], &lo), None);
    let overflow = dims(&["9223372036854775807"]);
    let args: &[Argument<'_>] = &[(&one, Some(&overflow)), (&one, Some(&overflow))];
    assert_eq!(contents(&Op::Map(ScalarFn::Add), &one, args, &lo), None);
}

const N: usize = 4;

/// A graph that computes vectors of `N` elements; the contents of most are known.
fn random_graph(r: &mut Random) -> Graph {
    use ScalarFn::*;
    let mut g = Graph::default();
    for name in ["a", "b", "n"] {
        g.symbols.insert(name.to_string(), Symbol { kind: SymbolKind::Data, lo: lo(&name.into()), hi: None });
        let (ty, op) = (TensorType::new(DType::I64, vec![]), Op::Input { name: name.to_string(), parts: vec![] });
        let input = g.push(bare(op, ty.clone()));
        g.push(Node { args: vec![input], ..bare(Op::Bind { symbol: name.to_string() }, ty) });
    }
    let i64s = vector(DType::I64, N);
    let source = dims(&["a", "b", "n", "a*n + 1", "2*b", "-n", "3", "0", "(n + a) floordiv 2", "max(a, b)"]);
    let mut values = vec![];
    for _ in 0..3 {
        let list = (0..N).map(|_| source[r.below(source.len())].clone()).collect();
        values.push(g.push(bare(Op::Dims(list), i64s.clone())));
    }
    let arithmetic = [Add, Sub, Mul, Div, Rem, Max, Min, Neg, Abs];
    for _ in 0..12 {
        let mut pick = || values[r.below(values.len())];
        let (x, y) = (pick(), pick());
        let op = match r.below(5) {
            0 => {
                let test = Op::Map([Eq, Lt, Le][r.below(3)]);
                let test = g.push(Node { args: vec![x, y], ..bare(test, vector(DType::Bool, N)) });
                let args = vec![test, y, x];
                values.push(g.push(Node { args, ..bare(Op::Map(Select), i64s.clone()) }));
                continue;
            }
            1 => {
                let joined =
                    g.push(Node { args: vec![x, y], ..bare(Op::Concat { axis: 0 }, vector(DType::I64, 2 * N)) });
                let start = Dim::constant(2 * N as i64 - 1);
                let slice = Op::Slice { starts: vec![start], steps: vec![-2] };
                values.push(g.push(Node { args: vec![joined], ..bare(slice, i64s.clone()) }));
                continue;
            }
            2 => {
                let square = g.push(Node {
                    args: vec![x],
                    ..bare(Op::Broadcast { dims: vec![1] }, TensorType::new(DType::I64, dims(&["4", "4"])))
                });
                let f = ReduceFn::ALL[r.below(4)];
                values.push(g.push(Node { args: vec![square], ..bare(Op::Reduce { f, axes: vec![1] }, i64s.clone()) }));
                continue;
            }
            _ => Op::Map(arithmetic[r.below(arithmetic.len())]),
        };
        let args = if matches!(op, Op::Map(Neg | Abs)) { vec![x] } else { vec![x, y] };
        values.push(g.push(Node { args, ..bare(op, i64s.clone()) }));
    }
    g
}

fn all_contents(g: &Graph) -> Vec<Option<Vec<Dim>>> {
    let mut out: Vec<Option<Vec<Dim>>> = vec![];
    for (_, node) in g.values() {
        let args: Vec<Argument<'_>> = node.args.iter().map(|&a| (g.ty(a), out[a.index()].as_deref())).collect();
        // The contents of inputs are unknown, and so are those of the `bind` operations that bind the symbols to them.
        let known = contents(&node.op, &node.ty, &args, &|s| g.symbol_lo(s));
        out.push(known);
    }
    out
}

#[test]
fn contents_equal_what_the_interpreter_computes() {
    let mut r = Random(11);
    let mut compared = 0;
    for case in 0..200 {
        let g = random_graph(&mut r);
        let known = all_contents(&g);
        for _ in 0..5 {
            let symbols = [("a", r.below(5) as i64), ("b", 2 + r.below(5) as i64), ("n", 1 + r.below(5) as i64)];
            let inputs: Vec<(String, Tensor)> =
                symbols.iter().map(|(name, v)| (name.to_string(), Tensor::scalar(*v))).collect();
            let value = |name: &str| symbols.iter().find(|(s, _)| *s == name).map(|(_, v)| *v);
            let mut check = |v: Value, t: &Tensor| {
                let Some(expected) = &known[v.index()] else { return Ok(()) };
                for (i, d) in expected.iter().enumerate() {
                    // The interpreter wraps where an expression overflows i64.
                    let Ok(expected) = d.eval_named(&value) else { continue };
                    assert_eq!(t.get_i64(i), Some(expected), "case {case}, %{}[{i}] = {d} with {symbols:?}", v.0);
                    compared += 1;
                }
                Ok(())
            };
            run_all(
                &g,
                &|_: &str| -> sardonyx_base::Result<Tensor> { unreachable!("no parameters") },
                &inputs,
                &mut check,
            )
            .unwrap();
        }
    }
    assert!(compared > 20_000, "only {compared} elements were known");
}

#[test]
fn an_exported_reshape_is_understood() {
    // shape(x)[0] concatenated with the constants -1 and 64 is a reshape target that stays symbolic.
    let mut g = Graph::default();
    let shape = g.push(bare(Op::Dims(dims(&["n", "b"])), vector(DType::I64, 2)));
    let first = Op::Slice { starts: vec![0.into()], steps: vec![1] };
    let first = g.push(Node { args: vec![shape], ..bare(first, vector(DType::I64, 1)) });
    let rest = g.push(bare(Op::Const(Tensor::from_vec(vec![2], vec![-1i64, 64])), vector(DType::I64, 2)));
    let all = g.push(Node { args: vec![first, rest], ..bare(Op::Concat { axis: 0 }, vector(DType::I64, 3)) });
    g.outputs = vec![("target".to_string(), all)];
    assert_eq!(all_contents(&g)[all.index()], Some(dims(&["n", "-1", "64"])));
    g.nodes[0] = bare(Op::Const(Tensor::from_vec(vec![2], vec![5i64, 2])), vector(DType::I64, 2));
    let out = run(&g, &|_: &str| -> sardonyx_base::Result<Tensor> { unreachable!("no parameters") }, &[]).unwrap();
    assert_eq!(out[0].1.to_vec::<i64>().unwrap(), [5, -1, 64]);
}
