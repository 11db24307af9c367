//! Statistics gathered by calibration on small graphs, compared with the interpreter

use super::data::Sample;
use super::walk::Walk;
use super::*;
use sardonyx_base::DType;
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::Operation;
use sardonyx_format::tensor_io::Synthetic;

/// Two products: operand A of the second is the tanh of the first one's result, plus the input.
static TEXT: &str = r#"
func.func @main(%x: !sdx.tensor<[m, 64], f32> {sdx.name = "x"}) -> !sdx.tensor<[m, 96], f32> attributes {sdx.symbols = ["input m 0.."]} {
  %u = sdx.param "u" : !sdx.tensor<[64, 64], f32>
  %w = sdx.param "w" : !sdx.tensor<[64, 96], f32>
  %0 = sdx.contract "mk,kn->mn"(%x, %u) : (!sdx.tensor<[m, 64], f32>, !sdx.tensor<[64, 64], f32>) -> !sdx.tensor<[m, 64], f32>
  %1 = sdx.map "tanh"(%0) : (!sdx.tensor<[m, 64], f32>) -> !sdx.tensor<[m, 64], f32>
  %2 = sdx.map "add"(%1, %x) : (!sdx.tensor<[m, 64], f32>, !sdx.tensor<[m, 64], f32>) -> !sdx.tensor<[m, 64], f32>
  %3 = sdx.contract "mk,kn->mn"(%2, %w) : (!sdx.tensor<[m, 64], f32>, !sdx.tensor<[64, 96], f32>) -> !sdx.tensor<[m, 96], f32>
  return %3 : !sdx.tensor<[m, 96], f32>
}"#;

fn read(text: &str) -> Graph {
    let context = sardonyx_passes::context();
    let module = melior::ir::Module::parse(&context, text).unwrap();
    let root: Operation = Operation::of_module(&module);
    Graph::read_whole(root.block(0).unwrap().operations()[0], root).unwrap()
}

fn random(dims: &[usize], seed: u64) -> Tensor {
    Synthetic::Random.tensor(DType::F32, dims.to_vec(), seed).unwrap()
}

#[test]
fn each_part_runs_behind_products_that_are_rounded() {
    let graph = read(TEXT);
    let params = ParamStore::from([("u".into(), random(&[64, 64], 1)), ("w".into(), random(&[64, 96], 2))]);
    let sample = |rows: usize| Sample { name: rows.to_string(), inputs: vec![("x".into(), random(&[rows, 64], 3))] };
    let samples = [sample(5), sample(2)];
    let options = Options { quantize: Quantize::Int4, ..Options::default() };
    let found = products(&graph, &Options { activations: Some(sardonyx_passes::Activations::F32), ..options });
    assert_eq!(
        found.iter().map(|p| (p.code, p.size)).collect::<Vec<_>>(),
        [(CodeType::Int(4), 32), (CodeType::BYTES, 64)]
    );
    let mut walk = Walk::new(&graph, params.clone(), &samples, factors(&found));
    let of_values = |values: &[Tensor]| -> Vec<f64> {
        let mut sums = vec![0.0; 64 * 64];
        for row in
            values.iter().flat_map(|t| t.to_vec::<f32>().unwrap().chunks(64).map(<[f32]>::to_vec).collect::<Vec<_>>())
        {
            (0..64 * 64).for_each(|at| sums[at] += f64::from(row[at / 64]) * f64::from(row[at % 64]));
        }
        sums
    };
    let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
    let given: Vec<Tensor> = samples.iter().map(|s| s.inputs[0].1.clone()).collect();
    assert!(near(&walk.factor(found[0].left).unwrap().products, &of_values(&given)));
    assert_eq!(walk.weights(&found[0]).unwrap(), params["u"]);
    // Replaces the weights, to show that later parts use the new ones.
    let other = random(&[64, 64], 9);
    walk.round(&found[0], other.clone());
    let changed = ParamStore::from([("u".into(), other), ("w".into(), params["w"].clone())]);
    let part = Graph { outputs: vec![("y".into(), found[1].left.0)], ..graph.clone() };
    let expected = samples.iter().map(|s| interp::run(&part, &changed, &s.inputs).unwrap().remove(0).1);
    assert!(near(&walk.factor(found[1].left).unwrap().products, &of_values(&expected.collect::<Vec<_>>())));
}

/// A product that reduces over two axes, which are in the opposite order in its weights.
static TWO_AXES: &str = r#"
func.func @main(%x: !sdx.tensor<[m, 4, 6], f32> {sdx.name = "x"}) -> !sdx.tensor<[m, 200], f32> attributes {sdx.symbols = ["input m 0.."]} {
  %w = sdx.param "w" : !sdx.tensor<[6, 4, 200], f32>
  %0 = sdx.contract "mab,ban->mn"(%x, %w) : (!sdx.tensor<[m, 4, 6], f32>, !sdx.tensor<[6, 4, 200], f32>) -> !sdx.tensor<[m, 200], f32>
  return %0 : !sdx.tensor<[m, 200], f32>
}"#;

#[test]
fn sums_over_two_axes_are_in_the_order_of_the_weights() {
    let graph = read(TWO_AXES);
    let found = sardonyx_passes::weights::weights(&graph);
    let (x, axes) = &found[0].factor;
    assert_eq!((found.len(), found[0].dims, &axes[..]), (1, [200, 24], &[2, 1][..]));
    let samples = [Sample { name: "x".into(), inputs: vec![("x".into(), random(&[7, 4, 6], 3))] }];
    let mut walk = Walk::new(&graph, ParamStore::new(), &samples, [*x]);
    let products = walk.products(*x, axes).unwrap();
    let values = samples[0].inputs[0].1.to_vec::<f32>().unwrap();
    let place = |row: usize, k: usize| f64::from(values[row * 24 + k % 4 * 6 + k / 4]);
    for (at, product) in products.iter().enumerate() {
        let sum: f64 = (0..7).map(|row| place(row, at / 24) * place(row, at % 24)).sum();
        assert!((product - sum).abs() < 1e-5, "{at}: {product} {sum}");
    }
}
