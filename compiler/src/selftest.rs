//! value-level graph, parameters  =>  a call with known results, for the artifact to make at load

use crate::import::ParamStore;
use sardonyx_dialects::interp;
use sardonyx_dialects::sdx::{Graph, Op, Symbol, SymbolKind, TensorType, Value};
use sardonyx_runtime::plan::{Canary, ExpectedOutput, SelfTest};
use sardonyx_runtime::tensor_io::Synthetic;
use sardonyx_runtime::{DType, Dim, Error, Result, Tensor};
use std::collections::BTreeMap;

/// The stage after which the graph is what the interpreter computes: all of it values, and as few as they get.
pub const STAGE: &str = "simplify";

/// Multiply-adds and elements that are worth interpreting: some seconds.
const WORK_MAX: i64 = 2_000_000_000;
/// The canaries and the expected outputs are bytes of every copy of the artifact.
const BYTES_MAX: usize = 16 << 20;

/// Values for the symbols, by the symbol's place in alphabetical order, best first. Distinct ones tell dimensions apart
/// that a fault may have mixed up; each is the sum of the two before, as a mask's length is of `past` and `seq`.
static CHOICES: [fn(usize) -> i64; 4] = [|i| [1, 2, 3, 5, 8, 13][i % 6], |_| 1, |_| 2, |_| i64::MAX];

/// `Err` says why there is no such call.
pub fn make(graph: &Graph, params: &ParamStore) -> std::result::Result<SelfTest, String> {
    let mut why = None;
    for symbols in CHOICES.iter().filter_map(|choice| choose_symbols(graph, choice)) {
        match call(graph, params, &|name| symbols.get(name).copied()) {
            Ok(test) => return Ok(test),
            // Some models demand of dimensions what no type says: another choice may do.
            Err(reason) => why = why.or(Some(reason)),
        }
    }
    Err(why.unwrap_or("no small dimensions satisfy what the model demands of them".into()))
}

fn call(
    graph: &Graph,
    params: &ParamStore,
    value: &dyn Fn(&str) -> Option<i64>,
) -> std::result::Result<SelfTest, String> {
    let work = work(graph, value)?;
    if work > WORK_MAX {
        return Err(format!("a small call takes {work} multiply-adds, more than the {WORK_MAX} worth interpreting"));
    }
    let input = |(i, (_, name, ty)): (usize, (Value, &str, &TensorType))| {
        let size = |d: &Dim| Ok(usize::try_from(d.eval(value)?).unwrap_or(0));
        let dims = ty.dims.iter().map(size).collect::<Result<_>>()?;
        Ok((name.to_string(), canary(ty.dtype, dims, i as u64)?))
    };
    let inputs: Result<Vec<(String, Tensor)>> = graph.inputs().enumerate().map(input).collect();
    let inputs = inputs.map_err(|e| e.message)?;
    let param =
        |name: &str| params.get(name).cloned().ok_or_else(|| Error::defect(format!("the parameter `{name}` is gone")));
    let outputs = interp::run(graph, &param, &inputs).map_err(|e| format!("the interpreter says: {}", e.message))?;
    let bytes: usize = inputs.iter().chain(&outputs).map(|(_, t)| t.bytes().len()).sum();
    if bytes > BYTES_MAX {
        return Err(format!("its inputs and outputs would take {bytes} bytes, more than {BYTES_MAX}"));
    }
    Ok(SelfTest {
        inputs: inputs.iter().map(|(name, t)| Canary::new(name, t)).collect(),
        outputs: outputs.iter().map(|(name, t)| expected(name, t)).collect(),
    })
}

/// A value for each symbol that inputs bind, in its range; `None` where the graph's checks do not hold.
fn choose_symbols(graph: &Graph, choice: &fn(usize) -> i64) -> Option<BTreeMap<String, i64>> {
    let inputs = graph.symbols.iter().filter(|(_, s)| s.kind == SymbolKind::Input);
    let one = |(i, (name, s)): (usize, (&String, &Symbol))| {
        // Without an upper bound the largest value is the smallest that is not 0.
        let hi = s.hi.unwrap_or(if choice(i) == i64::MAX { s.lo.max(1) } else { i64::MAX });
        (name.clone(), choice(i).max(s.lo).min(hi))
    };
    let values: BTreeMap<String, i64> = inputs.enumerate().map(one).collect();
    let eval = |d: &Dim| d.eval(&|name| values.get(name).copied());
    let holds = graph.checks.iter().all(|c| match (eval(&c.left), eval(&c.right)) {
        (Ok(left), Ok(right)) => left == right,
        // It waits for a value from data; the interpreter will see.
        (Err(_), _) | (_, Err(_)) => true,
    });
    let sizes = graph.inputs().all(|(_, _, ty)| ty.dims.iter().all(|d| eval(d).is_ok_and(|n| n >= 0)));
    (holds && sizes).then_some(values)
}

/// Multiply-adds of the contractions, and one for each element of any value.
fn work(graph: &Graph, value: &dyn Fn(&str) -> Option<i64>) -> std::result::Result<i64, String> {
    let mut sum = 0i64;
    for (_, node) in graph.values() {
        let mut dims: Vec<&Dim> = node.ty.dims.iter().collect();
        if let Op::Contract(spec) = &node.op {
            let operands = [(&spec.left, node.args[0]), (&spec.right, node.args[1])];
            for letter in spec.summed() {
                let at = |(letters, arg): &(&Vec<char>, _)| Some((*arg, letters.iter().position(|c| *c == letter)?));
                let (arg, axis) = operands.iter().find_map(at).ok_or("a contraction sums over nothing")?;
                dims.push(&graph.ty(arg).dims[axis]);
            }
        }
        let product = dims.into_iter().try_fold(1i64, |p, d| p.checked_mul(d.eval(value).ok()?.max(0)));
        let product = product.ok_or("its sizes depend on data")?;
        sum = sum.saturating_add(product);
    }
    Ok(sum)
}

/// Floats uniform in -1..1; integers 1, a valid index, mask and type wherever there are two of them.
fn canary(dtype: DType, dims: Vec<usize>, seed: u64) -> Result<Tensor> {
    let n = sardonyx_runtime::tensor::element_count(&dims).filter(|&n| n <= BYTES_MAX);
    let n = n.ok_or_else(|| Error::user("E0202", format!("an input of {dims:?} is too large")))?;
    match dtype {
        DType::Bool => Ok(Tensor::from_vec(dims, vec![true; n])),
        dtype if dtype.is_float() => Synthetic::Random.tensor(dtype, dims, seed),
        dtype => Synthetic::Range { lo: 1.0, hi: 1.0 }.tensor(dtype, dims, seed),
    }
}

fn expected(name: &str, tensor: &Tensor) -> ExpectedOutput {
    let (rtol, atol) = tolerance(tensor);
    ExpectedOutput { tensor: Some(Canary::new(name, tensor)), rtol, atol }
}

/// Relative to the largest value: what cancels to a small one has the error of the large ones it came from.
fn tolerance(tensor: &Tensor) -> (f64, f64) {
    if !tensor.dtype().is_float() {
        return (0.0, 0.0);
    }
    let rtol = match tensor.dtype() {
        DType::BF16 => 6e-2,
        DType::F16 => 8e-3,
        _ => 1e-3,
    };
    let values = (0..tensor.len()).filter_map(|i| tensor.get_f64(i)).filter(|v| v.is_finite());
    let largest = values.fold(0.0, |m: f64, v| m.max(v.abs()));
    (rtol, (0.1 * rtol * largest).max(1e-6))
}
