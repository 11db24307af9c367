//! Single ops on hand-computed cases, whole graphs, errors, and random graphs against a second evaluation

mod errors;
mod ops;
mod random;

pub use random::Random;

use super::*;
use crate::sdx::{Symbol, SymbolKind};

pub fn ty(dtype: DType, dims: &[&str]) -> TensorType {
    TensorType::new(dtype, dims.iter().map(|d| Dim::parse(d).unwrap()).collect::<Vec<_>>())
}

pub fn node(op: Op, ty: TensorType) -> Node {
    Node { op, args: vec![], ty, origins: vec!["/a/Node".to_string()] }
}

/// Evaluates one op with constant dimensions on its operands.
pub fn op(op: Op, dtype: DType, dims: &[usize], args: &[Tensor]) -> Result<Tensor> {
    let dims: Vec<Dim> = dims.iter().map(|&d| Dim::constant(d as i64)).collect();
    evaluate(&node(op, TensorType::new(dtype, dims)), args, &|_| None)
}

pub fn floats(t: &Tensor) -> Vec<f64> {
    (0..t.len()).map(|i| t.get_f64(i).unwrap()).collect()
}

pub fn f32s(dims: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_vec(dims.to_vec(), values.to_vec())
}

pub fn i64s(dims: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_vec(dims.to_vec(), values.to_vec())
}

pub fn symbol(kind: SymbolKind, lo: i64, hi: Option<i64>) -> Symbol {
    Symbol { kind, lo, hi }
}

/// Adds a node with operands.
pub fn add(graph: &mut Graph, op: Op, args: &[Value], ty: TensorType) -> Value {
    let origins = vec![format!("/n/{}", graph.nodes.len())];
    graph.push(Node { op, args: args.to_vec(), ty, origins })
}

pub fn add_input(graph: &mut Graph, name: &str, ty: TensorType) -> Value {
    graph.push(Node { op: Op::Input { name: name.to_string(), parts: vec![] }, args: vec![], ty, origins: vec![] })
}

pub fn no_params(name: &str) -> Result<Tensor> {
    Err(Error::defect(format!("no parameter `{name}`")))
}

pub fn named(inputs: &[(&str, Tensor)]) -> Vec<(String, Tensor)> {
    inputs.iter().map(|(n, t)| (n.to_string(), t.clone())).collect()
}

/// x[batch, 3] · w[3, 2], then the sum over the batch, and the batch size itself.
fn small_model() -> Graph {
    let mut g = Graph::default();
    g.symbols.insert("batch".to_string(), symbol(SymbolKind::Input, 1, Some(8)));
    let x = add_input(&mut g, "x", ty(DType::F32, &["batch", "3"]));
    let w = add(
        &mut g,
        Op::Param { name: "w".to_string(), parts: vec![], bounded: false },
        &[],
        ty(DType::F32, &["3", "2"]),
    );
    let spec = crate::sdx::ContractSpec::parse("bk,kn->bn").unwrap();
    let y = add(&mut g, Op::Contract(spec), &[x, w], ty(DType::F32, &["batch", "2"]));
    let sum = Op::Reduce { f: crate::scalar::ReduceFn::Add, axes: vec![0] };
    let s = add(&mut g, sum, &[y], ty(DType::F32, &["2"]));
    let n = add(&mut g, Op::Dims(vec![Dim::symbol("batch")]), &[], ty(DType::I64, &[]));
    g.outputs = vec![("y".to_string(), y), ("s".to_string(), s), ("n".to_string(), n), ("again".to_string(), y)];
    g
}

fn weights(name: &str) -> Result<Tensor> {
    assert_eq!(name, "w");
    Ok(f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
}

#[test]
fn a_graph_gives_its_outputs_in_order() {
    let x = f32s(&[2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, -1.0]);
    let out = run(&small_model(), &weights, &named(&[("x", x)])).unwrap();
    let names: Vec<&str> = out.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["y", "s", "n", "again"]);
    assert_eq!(floats(&out[0].1), [1.0, 2.0, -2.0, -2.0]);
    assert_eq!(floats(&out[1].1), [-1.0, 0.0]);
    assert_eq!((out[2].1.dims(), out[2].1.get_i64(0)), (&[][..], Some(2)));
    assert_eq!(floats(&out[3].1), floats(&out[0].1));
}

#[test]
fn every_value_is_shown_in_order() {
    let mut seen = vec![];
    let x = f32s(&[1, 3], &[1.0, 1.0, 1.0]);
    run_all(&small_model(), &weights, &named(&[("x", x)]), &mut |v, t| {
        seen.push((v.0, t.dims().to_vec()));
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [(0, vec![1, 3]), (1, vec![3, 2]), (2, vec![1, 2]), (3, vec![2]), (4, vec![])]);
}

#[test]
fn a_data_symbol_gets_its_value_from_bind() {
    let mut g = Graph::default();
    g.symbols.insert("k".to_string(), symbol(SymbolKind::Data, 0, Some(4)));
    let n = add_input(&mut g, "n", ty(DType::I64, &[]));
    add(&mut g, Op::Bind { symbol: "k".to_string() }, &[n], ty(DType::I64, &[]));
    let i = add(&mut g, Op::Iota { axis: 0 }, &[], ty(DType::I64, &["2*k"]));
    g.outputs = vec![("i".to_string(), i)];
    let call = |g: &Graph, n: i64| run(g, &no_params, &named(&[("n", Tensor::scalar(n))]));
    assert_eq!(call(&g, 2).unwrap()[0].1.to_vec::<i64>().unwrap(), [0, 1, 2, 3]);
    assert_eq!(call(&g, 0).unwrap()[0].1.dims(), [0]);
    let e = call(&g, 5).unwrap_err();
    assert_eq!((e.code, e.message.as_str()), ("E0201", "`k` is 5, but must be between 0 and 4"));
    assert_eq!(e.node.as_deref(), Some("/n/1"));
    // A check over data-dependent symbols is made as soon as they have values.
    let why = "/a/Concat".to_string();
    g.checks.push(crate::sdx::Check { left: Dim::symbol("k"), right: Dim::constant(3), why });
    assert_eq!(call(&g, 2).unwrap_err().node.as_deref(), Some("/a/Concat"));
    assert!(call(&g, 3).is_ok());
}

/// One MiniLM-sized contraction; its time is printed (see `--nocapture`), and four of its elements are checked.
#[test]
fn a_large_contraction_is_right() {
    let (m, k, n) = (128, 384, 1536);
    let fill = |count: usize, by: usize| (0..count).map(|i| ((i * by) % 17) as f32 - 8.0).collect::<Vec<_>>();
    let (a, b) = (fill(m * k, 7), fill(k * n, 5));
    let spec = crate::sdx::ContractSpec::parse("mk,kn->mn").unwrap();
    let start = std::time::Instant::now();
    let c = op(Op::Contract(spec), DType::F32, &[m, n], &[f32s(&[m, k], &a), f32s(&[k, n], &b)]).unwrap();
    println!("{m}x{k}x{n}: {:?}", start.elapsed());
    for (i, j) in [(0, 0), (5, 1000), (127, 1535), (66, 3)] {
        let expected: f32 = (0..k).map(|kk| a[i * k + kk] * b[kk * n + j]).sum();
        assert_eq!(c.get_f64(i * n + j), Some(expected as f64));
    }
}
