//! All rules at once: all nodes of a class have the same value, and the extracted graph computes what the original did

use super::sketch;
use super::values::{Bound, Kind, differs};
use crate::class::Class;
use crate::egraph::language::{ENode, load};
use crate::egraph::rule::{Rule, compile};
use crate::egraph::saturate::{Limits, saturate};
use crate::egraph::tests::harness::{Values, text};
use crate::egraph::{Options, Rates, TOPICS, optimise};
use crate::random::Random;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Op, Symbol, SymbolKind, TensorType, Value};
use sardonyx_kernels::Target;

/// Operations that amplify rounding errors only slightly.
const HEADS: [&str; 14] = [
    "add",
    "mul",
    "sub",
    "max",
    "neg",
    "tanh",
    "transpose",
    "reshape",
    "broadcast",
    "slice",
    "concat",
    "sum",
    "contract",
    "select",
];

fn random_sketch(r: &mut Random, depth: usize) -> String {
    if depth == 0 || r.chance(15) {
        return r.pick(&["?x", "?y", "scale", "splat1", "param"]).replace("splat1", "1");
    }
    let head = r.pick(&HEADS);
    let n = match head {
        "add" | "mul" | "sub" | "max" | "concat" | "contract" => 2,
        "select" => 3,
        _ => 1,
    };
    let args: Vec<String> =
        (0..n).map(|i| if head == "select" && i == 0 { "?c".into() } else { random_sketch(r, depth - 1) }).collect();
    format!("({head} {})", args.join(" "))
}

#[test]
fn everything_in_a_class_is_equal() {
    let rules: Vec<Rule> = TOPICS.iter().flat_map(|t| t.iter().copied()).collect();
    let compiled = compile(&rules);
    let limits = Limits { nodes_max: 400, iterations_max: 6, sites_max: 200 };
    let (mut graphs, mut unions) = (0, 0);
    for seed in 0..4000 {
        let mut r = Random::new(seed);
        let sketch = random_sketch(&mut r, 4);
        let Some(graph) = sketch::sample(&sketch::parse(&sketch), &mut r) else { continue };
        // In chains of products, f16 overflows and bf16 rounds too coarsely for the bound.
        if graph.nodes.len() < 4 || graph.nodes.iter().any(|n| matches!(n.ty.dtype, DType::F16 | DType::BF16)) {
            continue;
        }
        let fail = |what: String| -> String { format!("seed {seed}: {what}\n{}", text(&graph)) };
        let (mut egraph, ids) = load(&graph).unwrap_or_else(|e| panic!("{}", fail(e)));
        let run = saturate(&mut egraph, &compiled, &limits, false, &mut |_, _| true)
            .unwrap_or_else(|e| panic!("{}", fail(e)));
        let symbols = |name: &str| Some(if name == "b" { 2 } else { 3 });
        let mut values = Values::new(&graph, &egraph, &ids, Kind::Ordinary, &symbols, &mut r).unwrap();
        values.complete(&egraph).unwrap_or_else(|e| panic!("{}", fail(e)));
        for class in egraph.classes() {
            let want = values.value(&egraph, class.id).unwrap_or_else(|e| panic!("{}", fail(e)));
            let leaf = |n: &&ENode| matches!(egraph.analysis.table.op(n.op), Op::Input { .. } | Op::Param { .. });
            for node in class.nodes.iter().filter(|n| !leaf(n)) {
                let got = values.node(&egraph, node).unwrap_or_else(|e| panic!("{}", fail(e)));
                let bound = Bound { largest: values.largest, roundings: 64 * (values.longest + 64) };
                if let Some(what) = differs(&want, &got, Class::FiniteOnly, &bound) {
                    panic!("{}", fail(format!("{what}: {:?} {:?}", egraph.analysis.table.op(node.op), run.steps)));
                }
            }
        }
        graphs += 1;
        unions += run.steps.len();
    }
    assert!(graphs > 400 && unions > 4 * graphs, "{graphs} graphs, {unions} equalities");
}

#[test]
fn what_is_extracted_means_the_same() {
    let mut changed = 0;
    for seed in 0..1500 {
        let mut r = Random::new(seed + 10_000);
        let Some(graph) = sketch::sample(&sketch::parse(&random_sketch(&mut r, 4)), &mut r) else { continue };
        if graph.nodes.iter().any(|n| matches!(n.ty.dtype, DType::F16 | DType::BF16)) {
            continue;
        }
        let (new, report) =
            optimise(&graph, &Options::for_target(Target::cpu())).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(report.cost_after <= report.cost_before, "seed {seed}");
        let symbols = |name: &str| Some(if name == "b" { 2 } else { 3 });
        let run = |g: &Graph| -> Vec<Tensor> {
            let mut all: Vec<Tensor> = vec![];
            for (v, node) in g.values() {
                let args: Vec<Tensor> = node.args.iter().map(|a| all[a.index()].clone()).collect();
                all.push(match &node.op {
                    Op::Input { name, .. } | Op::Param { name, .. } => {
                        let dims: Vec<usize> =
                            node.ty.dims.iter().map(|d| d.eval_named(&symbols).unwrap() as usize).collect();
                        let own = name.bytes().fold(seed, |h, b| h * 31 + u64::from(b));
                        super::values::tensor(&mut Random::new(own), node.ty.dtype, &dims, Kind::Ordinary)
                    }
                    _ => interp::evaluate(node, &args, &symbols).unwrap_or_else(|e| panic!("seed {seed}, {v:?}: {e}")),
                });
            }
            all
        };
        let (before, after) = (run(&graph), run(&new));
        let largest =
            before.iter().flat_map(|t| (0..t.len()).filter_map(|i| t.get_f64(i))).map(f64::abs).fold(1.0, f64::max);
        for ((_, v), (_, w)) in graph.outputs.iter().zip(&new.outputs) {
            let bound = Bound { largest, roundings: 64 * 2064 };
            let what = differs(&before[v.index()], &after[w.index()], Class::FiniteOnly, &bound);
            assert!(what.is_none(), "seed {seed}: {}\n{}=>\n{}", what.unwrap_or_default(), text(&graph), text(&new));
        }
        changed += (report.cost_after < report.cost_before) as usize;
    }
    assert!(changed > 150, "{changed} graphs became cheaper");
}

fn ty(dims: &[&str]) -> TensorType {
    TensorType::new(DType::F32, dims.iter().map(|d| Dim::parse(d).unwrap()).collect::<Vec<_>>())
}

/// Returns a graph of `layers` consecutive layers. Each layer multiplies its input by one matrix per width. From each
/// product it computes a tensor [b, 64]: the product's tanh if `activated`, else rows whose elements all equal the sum
/// of the product's row. The layer's result is the elementwise product of these tensors.
fn linears(widths: &[&str], layers: usize, activated: bool) -> Graph {
    let mut g = Graph { name: "main".into(), ..Graph::default() };
    g.symbols.insert("b".into(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
    let origin = |n: String| vec![n];
    let mut x = g.add_as(Op::Input { name: "x".into(), parts: vec![] }, &[], Some(ty(&["b", "64"])), &[]).unwrap();
    for l in 0..layers {
        let mut sum: Option<Value> = None;
        for (i, n) in widths.iter().enumerate() {
            let w = g
                .add_as(
                    Op::Param { name: format!("w{l}.{i}"), parts: vec![], bounded: false },
                    &[],
                    Some(ty(&["64", n])),
                    &[],
                )
                .unwrap();
            let spec = ContractSpec::parse("bk,kn->bn").unwrap();
            let y = g.add(Op::Contract(spec), &[x, w], &origin(format!("/linear{l}.{i}"))).unwrap();
            let t = match activated {
                true => g.add(Op::Map(ScalarFn::Tanh), &[y], &origin(format!("/tanh{l}.{i}"))).unwrap(),
                false => {
                    let sum = Op::Reduce { f: ReduceFn::Add, axes: vec![1] };
                    let sum = g.add(sum, &[y], &origin(format!("/sum{l}.{i}"))).unwrap();
                    g.add_as(Op::Broadcast { dims: vec![0] }, &[sum], Some(ty(&["b", "64"])), &[]).unwrap()
                }
            };
            sum = Some(
                sum.map_or(t, |s| g.add(Op::Map(ScalarFn::Mul), &[s, t], &origin(format!("/mul{l}.{i}"))).unwrap()),
            );
        }
        x = sum.unwrap();
    }
    g.outputs.push(("y".into(), x));
    g
}

fn contractions(g: &Graph) -> usize {
    g.nodes.iter().filter(|n| matches!(n.op, Op::Contract(_))).count()
}

/// If concatenated parameters are prepared at compile time, the products of one input become one product.
#[test]
fn linear_maps_of_one_input_are_packed_where_that_is_prepared() {
    let graph = linears(&["64", "32", "32"], 2, false);
    let rates = Rates { joins_weights: false, prepares_weights: false, ..Rates::for_target(Target::cpu()) };
    let (as_it_was, _) = optimise(&graph, &Options { rates, ..Options::for_target(Target::cpu()) }).unwrap();
    assert_eq!(contractions(&as_it_was), 6);
    let (packed, _) = optimise(&graph, &Options::for_target(Target::cpu())).unwrap();
    assert_eq!(contractions(&packed), 2);
    let concats = packed.nodes.iter().filter(|n| matches!(n.op, Op::Concat { .. })).count();
    assert_eq!(concats, 2);
    // Every origin of the graph is kept, although nodes are merged.
    for name in graph.nodes.iter().flat_map(|n| &n.origins) {
        assert!(packed.nodes.iter().any(|n| n.origins.contains(name)), "{name} is lost");
    }
}

/// The activation is an epilogue of its product; on a slice of a packed product it would be a separate kernel.
#[test]
fn what_an_activation_reads_is_packed_with_nothing() {
    let graph = linears(&["64", "64", "64"], 2, true);
    let (new, _) = optimise(&graph, &Options::for_target(Target::cpu())).unwrap();
    assert_eq!(contractions(&new), 6);
}

#[test]
fn a_large_graph_has_one_answer() {
    let graph = linears(&["64", "64", "64"], 300, true);
    let (first, report) = optimise(&graph, &Options::for_target(Target::cpu())).unwrap();
    let (second, _) = optimise(&graph, &Options::for_target(Target::cpu())).unwrap();
    assert_eq!(text(&first), text(&second));
    assert!(!report.limited && report.cost_after <= report.cost_before);
}

/// Whatever the limits are, the result is a graph that costs no more than the original, and not an error.
#[test]
fn limits_end_the_search_with_the_best_so_far() {
    let graph = linears(&["64", "64"], 20, true);
    for (growth_max, iterations_max) in [(0, 0), (0, 1), (1, 2), (2, 16)] {
        let options = Options { growth_max, iterations_max, ..Options::for_target(Target::cpu()) };
        let (_, report) = optimise(&graph, &options).unwrap();
        assert!(report.cost_after <= report.cost_before);
    }
}
