//! an `sdx` graph, parameters  =>  a call with known results, which the runtime repeats when it loads the artifact

use crate::import::ParamStore;
use sardonyx_base::plan::{Canary, ExpectedOutput, SelfTest};
use sardonyx_base::{DType, Dim, Error, HostOp, Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::scalar::{Conversion, Domain, ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Check, ContractSpec, Graph, Host, Node, Op, Symbol, SymbolKind, TensorType, Value};
use sardonyx_format::tensor_io::Synthetic;
use sardonyx_passes::{Options, Precision, Quantize, has_exact_sums, usual};
use sardonyx_run::{BF16_OF_MAX, CODES_RELATIVE};
use std::collections::{BTreeMap, BTreeSet};

/// The stage after which the graph is interpreted: all its operations are then in `sdx` and simplified. Later stages
/// may change roundings, so the results of the compiled code are compared with the interpreter's within a tolerance.
pub const STAGE: &str = "simplify";

/// Bound on the work of all calls that are tried for a self-test, in multiply-adds and elements; interpreting that much
/// takes some seconds.
const WORK_MAX: i64 = 2_000_000_000;
/// Maximum number of elements of any value of a self-test except weights: the interpreter keeps a value in memory until
/// its last use.
const ELEMENTS_MAX: i64 = 1 << 27;
/// Bound on the bytes of all canary inputs and expected outputs together, which are stored in the artifact.
const BYTES_MAX: usize = 16 << 20;

/// Makes a self-test; `Err` says why that is not possible.
pub fn make(graph: &Graph, params: &ParamStore, options: &Options) -> std::result::Result<SelfTest, String> {
    let n = graph.symbols.values().filter(|s| s.kind == SymbolKind::Input).count();
    if let Some(name) = rounded_sum(graph) {
        return Err(format!("{name} rounds sums to integers, of which a last place more or less makes another one"));
    }
    let (mut why, mut budget, mut tried) = (None, WORK_MAX, BTreeSet::new());
    let demands = demands_of_bodies(graph);
    let candidates = choices(n).into_iter().flat_map(|choice| {
        let more: Vec<_> = demands.iter().map(|demands| choose_symbols(graph, demands, &choice)).collect();
        more.into_iter().chain([choose_symbols(graph, &[], &choice)]).flatten()
    });
    for symbols in candidates {
        if !tried.insert(symbols.clone()) {
            continue;
        }
        let value = |name: &str| symbols.get(name).copied();
        let made = work(graph, &value).and_then(|work| match work > budget {
            true => {
                Err(format!("a small call takes {work} multiply-adds, more than the {WORK_MAX} worth interpreting"))
            }
            false => {
                budget -= work;
                call(graph, params, options, &value)
            }
        });
        match made {
            Ok(test) => return Ok(test),
            // Some models require sizes that no type expresses; another choice may satisfy them.
            Err(reason) => why = why.or(Some(reason)),
        }
    }
    Err(why.unwrap_or("no small dimensions satisfy what the model demands of them".into()))
}

/// Returns choices of values for `n` symbols, whose names are in alphabetical order; the best choice is first. It has
/// distinct values for up to six symbols, to tell apart dimensions that a fault may have mixed up; each value is the
/// sum of the two before it (1, 2, 3, 5, …), as a mask's length is the sum of `past` and `seq`. For up to six symbols,
/// all choices of ones and twos follow, which contain such sums for names in another order too; for more symbols, only
/// all ones and all twos follow. The last choice asks for the largest value of each symbol.
pub(crate) fn choices(n: usize) -> Vec<Vec<i64>> {
    let distinct = (0..n).map(|i| [1, 2, 3, 5, 8, 13][i % 6]).collect();
    let mixed = match n {
        0..=6 => (0..1 << n).map(|bits: i64| (0..n).map(|i| 1 + (bits >> i & 1)).collect()).collect(),
        _ => vec![vec![1; n], vec![2; n]],
    };
    [vec![distinct], mixed, vec![vec![i64::MAX; n]]].concat()
}

/// Returns the inputs of a small call for each choice of symbol values, in the order of `choices`; the work of a call
/// is not bounded.
pub fn inputs(graph: &Graph) -> Vec<Vec<(String, Tensor)>> {
    let n = graph.symbols.values().filter(|s| s.kind == SymbolKind::Input).count();
    let (mut tried, mut found) = (BTreeSet::new(), vec![]);
    for symbols in choices(n).iter().filter_map(|choice| choose_symbols(graph, &[], choice)) {
        if tried.insert(symbols.clone()) {
            found.extend(canaries(graph, &|name| symbols.get(name).copied()).ok());
        }
    }
    found
}

/// Returns the self-test that makes a call with these inputs and expects these outputs.
pub fn from_call(inputs: &[(String, Tensor)], outputs: &[(String, Tensor)], options: &Options) -> SelfTest {
    SelfTest {
        inputs: inputs.iter().map(|(name, t)| Canary::new(name, t)).collect(),
        outputs: outputs.iter().map(|(name, t)| expected(name, t, options)).collect(),
    }
}

fn canaries(graph: &Graph, value: &dyn Fn(&str) -> Option<i64>) -> Result<Vec<(String, Tensor)>> {
    let input = |(i, (_, name, ty)): (usize, (Value, &str, &TensorType))| {
        let size = |d: &Dim| Ok(usize::try_from(d.eval_named(value)?).unwrap_or(0));
        let dims = ty.dims.iter().map(size).collect::<Result<_>>()?;
        Ok((name.to_string(), canary(ty.dtype, dims, i as u64)?))
    };
    graph.inputs().enumerate().map(input).collect()
}

fn call(
    graph: &Graph,
    params: &ParamStore,
    options: &Options,
    value: &dyn Fn(&str) -> Option<i64>,
) -> std::result::Result<SelfTest, String> {
    let too_large = |bytes| match bytes > BYTES_MAX {
        true => Err(format!("its inputs and outputs would take {bytes} bytes, more than {BYTES_MAX}")),
        false => Ok(()),
    };
    too_large(port_bytes(graph, value))?;
    let inputs = canaries(graph, value).map_err(|e| e.message)?;
    let outputs = interp::run(graph, params, &inputs);
    let outputs = outputs.map_err(|e| format!("the interpreter says: {}", e.message))?;
    too_large(inputs.iter().chain(&outputs).map(|(_, t)| t.bytes().len()).sum())?;
    let mut test = from_call(&inputs, &outputs, options);
    if computes_halves(graph) {
        let floats = test.outputs.iter_mut().filter(|o| o.atol > 0.0);
        floats.for_each(|output| output.relative = CODES_RELATIVE);
    }
    Ok(test)
}

/// Returns whether the graph computes in f16 or bf16. A device may leave out roundings to these types, which changes
/// all elements of a deep network's outputs, so outputs are compared by their relative L2 error.
fn computes_halves(graph: &Graph) -> bool {
    let rounds = |node: &Node| {
        let is_half = matches!(node.ty.dtype, DType::F16 | DType::BF16);
        is_half && matches!(node.op, Op::Map(_) | Op::Reduce { .. } | Op::Contract(_))
    };
    graph.nodes.iter().any(rounds) || graph.bodies.values().any(computes_halves)
}

/// Returns the bytes of all inputs and outputs together, without those whose sizes depend on data.
fn port_bytes(graph: &Graph, value: &dyn Fn(&str) -> Option<i64>) -> usize {
    let ports = graph.inputs().map(|(v, _, _)| v).chain(graph.outputs.iter().map(|(_, v)| *v));
    let bytes = |v: Value| {
        let ty = graph.ty(v);
        let elements = usize::try_from(ty.elements().eval_named(value).ok()?).ok()?;
        ty.dtype.bytes_for(elements)
    };
    ports.filter_map(bytes).fold(0, usize::saturating_add)
}

/// Returns the origin of the first operation that rounds to integers and whose operand devices compute inexactly;
/// `None` if there is no such operation.
fn rounded_sum(graph: &Graph) -> Option<String> {
    let mut inexact: Vec<bool> = vec![];
    for (_, node) in graph.values() {
        let of_inexact = node.args.iter().any(|a| inexact[a.index()]);
        let rounds = match &node.op {
            Op::Map(ScalarFn::Round | ScalarFn::Floor | ScalarFn::Ceil) => true,
            Op::Convert(Conversion::Value) => {
                node.ty.dtype.is_int() && node.args.iter().any(|a| graph.ty(*a).dtype.is_float())
            }
            _ => false,
        };
        if rounds && of_inexact {
            return Some(node.origins.first().cloned().unwrap_or_else(|| "the model".into()));
        }
        let sums = match &node.op {
            Op::Contract(spec) => node.ty.dtype.is_float() && !multiplies_integers(graph, node, spec),
            Op::Reduce { f: ReduceFn::Add | ReduceFn::Mul, .. } => node.ty.dtype.is_float(),
            Op::Map(ScalarFn::IsNan | ScalarFn::Sqrt) => false,
            Op::Map(f) => f.row().domain == Domain::Floats && !rounds,
            _ => false,
        };
        inexact.push(sums || of_inexact);
    }
    None
}

/// Returns whether both operands of a contraction of floats are converted integers, and the sums are exact.
fn multiplies_integers(graph: &Graph, node: &Node, spec: &ContractSpec) -> bool {
    let integer = |v: Value| match &graph.node(v).op {
        Op::Convert(Conversion::Value) => Some(graph.node(v).args[0]).filter(|v| graph.ty(*v).dtype.is_int()),
        _ => None,
    };
    let both = integer(node.args[0]).zip(integer(node.args[1]));
    both.is_some_and(|(left, right)| has_exact_sums(graph, spec, [left, right]))
}

/// Returns the checks that called functions require of the graph's symbols. Data decides which branch of an `If` is
/// taken, so there is one list per branch number: list i assumes that each call takes its branch i, or its last one if
/// it has fewer.
fn demands_of_bodies(graph: &Graph) -> Vec<Vec<Check>> {
    let calls: Vec<(&Host, &Node)> = graph
        .nodes
        .iter()
        .filter_map(|node| if let Op::Host(host) = &node.op { Some((&**host, node)) } else { None })
        .filter(|(host, _)| host.op.is_call())
        .collect();
    let branches = calls.iter().map(|(host, _)| host.bodies.len()).max().unwrap_or(0);
    let one = |branch: usize| {
        let of_call = |(host, node): &(&Host, &Node)| {
            let at = branch.min(host.bodies.len().saturating_sub(1));
            let body = host.bodies.get(at).and_then(|name| graph.bodies.get(name));
            body.map_or(vec![], |body| demands_of_body(graph, body, operands_of_body(&host.op, at, &node.args)))
        };
        calls.iter().flat_map(of_call).collect()
    };
    (0..branches).map(one).collect()
}

/// The operands of a call that correspond to the body's last inputs; earlier inputs, such as an iteration number, are
/// scalars.
fn operands_of_body<'a>(op: &HostOp, branch: usize, args: &'a [Value]) -> &'a [Value] {
    match *op {
        HostOp::If { n_then } if branch == 0 => args.get(1..1 + n_then),
        HostOp::If { n_then } => args.get(1 + n_then..),
        _ => args.get(2..),
    }
    .unwrap_or_default()
}

/// Returns the checks of one call, over the graph's symbols: dimensions of the body's inputs equal those of the
/// operands, and the body's own checks hold.
fn demands_of_body(graph: &Graph, body: &Graph, operands: &[Value]) -> Vec<Check> {
    let inputs: Vec<&TensorType> = body.inputs().map(|(_, _, ty)| ty).collect();
    let inputs = inputs.iter().skip(inputs.len().saturating_sub(operands.len()));
    let pairs: Vec<(&Dim, &Dim)> =
        inputs.zip(operands).flat_map(|(ty, operand)| ty.dims.iter().zip(&graph.ty(*operand).dims)).collect();
    let mut bound: BTreeMap<&str, &Dim> = BTreeMap::new();
    for (inside, outside) in &pairs {
        if let Some(name) = inside.as_name() {
            bound.entry(name).or_insert(outside);
        }
    }
    let outside = |d: &Dim| d.substitute(&|s| bound.get(s.name()?).map(|d| (*d).clone()));
    let why = format!("called as {}", body.name);
    let ports = pairs.iter().map(|(inside, operand)| Check {
        left: outside(inside),
        right: (*operand).clone(),
        why: why.clone(),
    });
    let own = body.checks.iter().map(|c| Check { left: outside(&c.left), right: outside(&c.right), why: why.clone() });
    ports.chain(own).filter(|c| c.left != c.right).collect()
}

/// Returns a value for each symbol that inputs bind: the value of `choice`, limited to the symbol's range, then
/// adjusted so that the graph's checks and, if possible, `demands` hold. `None` if the adjusted values violate a check
/// of the graph or the range of a symbol, or if a dimension of an input is negative or unknown.
pub(crate) fn choose_symbols(graph: &Graph, demands: &[Check], choice: &[i64]) -> Option<BTreeMap<String, i64>> {
    let inputs = graph.symbols.iter().filter(|(_, s)| s.kind == SymbolKind::Input);
    let one = |(i, (name, s)): (usize, (&String, &Symbol))| {
        // If the choice asks for the largest value, a symbol without an upper bound gets its smallest non-zero value.
        let hi = s.hi.unwrap_or(if choice[i] == i64::MAX { s.lo.max(1) } else { i64::MAX });
        (name.clone(), choice[i].max(s.lo).min(hi))
    };
    let mut values: BTreeMap<String, i64> = inputs.enumerate().map(one).collect();
    let checks: Vec<Check> = graph.checks.iter().chain(demands).cloned().collect();
    usual::keep_checks(&checks, &graph.symbols, &|_| false, &mut values);
    let eval = |d: &Dim| d.eval_named(&|name| values.get(name).copied());
    let holds = graph.checks.iter().all(|c| match (eval(&c.left), eval(&c.right)) {
        (Ok(left), Ok(right)) => left == right,
        // The check depends on data; the interpreter evaluates it during the call.
        (Err(_), _) | (_, Err(_)) => true,
    });
    let in_range = |(name, s): (&String, &Symbol)| {
        let value = match &s.kind {
            SymbolKind::Derived { equals, .. } => eval(equals).ok(),
            SymbolKind::Input => values.get(name).copied(),
            SymbolKind::Data | SymbolKind::Capacity | SymbolKind::Kept | SymbolKind::Rank { .. } => return true,
        };
        value.is_some_and(|n| n >= s.lo && s.hi.is_none_or(|hi| n <= hi))
    };
    let holds = holds && graph.symbols.iter().all(in_range);
    let sizes = graph.inputs().all(|(_, _, ty)| ty.dims.iter().all(|d| eval(d).is_ok_and(|n| n >= 0)));
    (holds && sizes).then_some(values)
}

/// Returns the work of a call: the multiply-adds of contractions, and one for each element of any other value. `Err` if
/// a size depends on data, or if a value has more than `ELEMENTS_MAX` elements.
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
        let product = |dims: &[&Dim]| {
            let product = dims.iter().try_fold(1i64, |p, d| p.checked_mul(d.eval_named(value).ok()?.max(0)));
            product.ok_or("its sizes depend on data")
        };
        let elements = product(&dims[..node.ty.rank()])?;
        if elements > ELEMENTS_MAX && !matches!(node.op, Op::Param { .. }) {
            return Err(format!("a small call has a value of {elements} elements, more than {ELEMENTS_MAX}"));
        }
        sum = sum.saturating_add(product(&dims)?);
    }
    Ok(sum)
}

/// Returns an input of a self-test: random floats in -1..1, or integers or bools that are all 1, because 1 is usually
/// valid as an index, mask or token type. Elements of 8-bit floats and of types with 2 or 4 bits have random bits.
fn canary(dtype: DType, dims: Vec<usize>, seed: u64) -> Result<Tensor> {
    let n = sardonyx_base::tensor::element_count(&dims).filter(|&n| n <= BYTES_MAX);
    let n = n.ok_or_else(|| Error::user("E0202", format!("an input of {dims:?} is too large")))?;
    match dtype {
        DType::Bool => Ok(Tensor::from_vec(dims, vec![true; n])),
        dtype if dtype.is_float() => Synthetic::Random.tensor(dtype, dims, seed),
        dtype => Synthetic::Range { lo: 1.0, hi: 1.0 }.tensor(dtype, dims, seed),
    }
}

fn expected(name: &str, tensor: &Tensor, options: &Options) -> ExpectedOutput {
    let (rtol, atol) = tolerance(tensor, options.precision);
    let codes = options.quantize != Quantize::None && tensor.dtype().is_float();
    let relative = if codes { CODES_RELATIVE } else { 0.0 };
    ExpectedOutput { tensor: Some(Canary::new(name, tensor)), rtol, atol, relative }
}

/// Returns the relative and the absolute tolerance. The absolute one is proportional to the largest magnitude of an
/// element, since small elements may result from cancellation; with f32 it is at least 1e-6.
fn tolerance(tensor: &Tensor, precision: Precision) -> (f64, f64) {
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
    match precision {
        Precision::F32 => (rtol, (0.1 * rtol * largest).max(1e-6)),
        // Every value accumulates many roundings, so only errors relative to the largest element reveal a fault.
        Precision::Bf16 => (rtol, BF16_OF_MAX * largest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_dialects::sdx::{Check, ContractSpec, Node};

    fn push(graph: &mut Graph, op: Op, args: &[Value], dims: &[&str], dtype: DType) -> Value {
        let dims: Vec<Dim> = dims.iter().map(|d| Dim::parse(d).unwrap()).collect();
        graph.push(Node { op, args: args.to_vec(), ty: TensorType::new(dtype, dims), origins: vec![] })
    }

    /// y[m, n] = x[m, k] · w[k, n], with symbols for all three.
    fn product() -> Graph {
        let mut g = Graph::default();
        for name in ["k", "m", "n"] {
            g.symbols.insert(name.into(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
        }
        let x = push(&mut g, Op::Input { name: "x".into(), parts: vec![] }, &[], &["m", "k"], DType::F32);
        let w = push(&mut g, Op::Input { name: "w".into(), parts: vec![] }, &[], &["k", "n"], DType::F32);
        let spec = ContractSpec::parse("mk,kn->mn").unwrap();
        let y = push(&mut g, Op::Contract(spec), &[x, w], &["m", "n"], DType::F32);
        g.outputs = vec![("y".into(), y)];
        g
    }

    fn floats(c: &Canary) -> Vec<f32> {
        c.data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn a_sum_that_is_rounded_to_integers_has_no_call_to_make() {
        let mut g = product();
        let y = g.outputs[0].1;
        let rounded = push(&mut g, Op::Map(ScalarFn::Round), &[y], &["m", "n"], DType::F32);
        g.outputs[0].1 = rounded;
        assert!(make(&g, &ParamStore::new(), &Options::default()).unwrap_err().contains("rounds sums to integers"));
    }

    #[test]
    fn the_expected_outputs_are_those_of_the_canaries() {
        let test = make(&product(), &ParamStore::new(), &Options::default()).unwrap();
        // k = 1, m = 2, n = 3.
        assert_eq!((&test.inputs[0].dims[..], &test.inputs[1].dims[..]), (&[2, 1][..], &[1, 3][..]));
        let (x, w, y) = (&test.inputs[0], &test.inputs[1], test.outputs[0].tensor.as_ref().unwrap());
        assert_eq!((y.name.as_str(), &y.dims[..]), ("y", &[2, 3][..]));
        let products: Vec<f32> = floats(x).iter().flat_map(|a| floats(w).into_iter().map(move |b| a * b)).collect();
        assert_eq!(floats(y), products);
        assert!(floats(x).iter().all(|v| (-1.0..1.0).contains(v)) && floats(x)[0] != floats(x)[1]);
        let largest = products.iter().fold(0f32, |m, v| m.max(v.abs())) as f64;
        assert_eq!(test.outputs[0].rtol, 1e-3);
        assert!((test.outputs[0].atol - 1e-4 * largest).abs() < 1e-12);
        assert_eq!(test, make(&product(), &ParamStore::new(), &Options::default()).unwrap(), "the same every time");
    }

    #[test]
    fn ranges_and_checks_of_the_model_are_kept() {
        let mut g = product();
        g.symbols.get_mut("m").unwrap().hi = Some(0);
        g.symbols.get_mut("n").unwrap().lo = 7;
        let dims = |g: &Graph| {
            make(g, &ParamStore::new(), &Options::default()).map(|t| t.outputs[0].tensor.as_ref().unwrap().dims.clone())
        };
        assert_eq!(dims(&g).unwrap(), [0, 7]);
        let mut g = product();
        let equal = |left: &str, right: &str| Check {
            left: Dim::parse(left).unwrap(),
            right: Dim::parse(right).unwrap(),
            why: "/node".into(),
        };
        g.checks.push(equal("m", "n"));
        assert_eq!(dims(&g).unwrap(), [2, 2]);
        // For m = 2, the check requires a value outside the range of n; a choice with m = 1 is used.
        let mut small = g.clone();
        small.symbols.get_mut("n").unwrap().hi = Some(1);
        assert_eq!(dims(&small).unwrap(), [1, 1]);
        g.checks.push(equal("m", "n + 1"));
        assert_eq!(dims(&g).unwrap_err(), "no small dimensions satisfy what the model demands of them");
    }

    #[test]
    fn a_demand_that_no_type_says_is_found() {
        // A gather with index n - 1 - k from m rows, which is in range only for some choices.
        let mut g = product();
        let data = push(&mut g, Op::Input { name: "data".into(), parts: vec![] }, &[], &["m"], DType::F32);
        let i = push(&mut g, Op::Dims(vec![Dim::parse("n - 1 - k").unwrap()]), &[], &[], DType::I64);
        let picked = push(&mut g, Op::Gather { axis: 0 }, &[data, i], &[], DType::F32);
        g.outputs.push(("picked".into(), picked));
        let test = make(&g, &ParamStore::new(), &Options::default()).unwrap();
        assert!(test.outputs.iter().any(|o| o.tensor.as_ref().unwrap().name == "picked"));
        let [m, k, n] = [test.inputs[0].dims[0], test.inputs[0].dims[1], test.inputs[1].dims[1]];
        assert!(n > k && n - 1 - k < m, "{m} {k} {n}");
        // For three symbols: the distinct values, all choices of ones and twos, the largest values.
        assert_eq!(choices(3).len(), 1 + 8 + 1);
        assert!(choices(3)[1..9].contains(&vec![1, 2, 1]));
        assert_eq!(choices(9).len(), 4);
    }

    #[test]
    fn a_called_function_asks_its_own_of_the_dimensions() {
        let input = |g: &mut Graph, name: &str, dims: &[&str]| {
            push(g, Op::Input { name: name.into(), parts: vec![] }, &[], dims, DType::F32)
        };
        let (mut g, mut body) = (Graph::default(), Graph::default());
        let operands = [input(&mut g, "x", &["m", "n"]), input(&mut g, "y", &["k"])];
        input(&mut body, "c0", &["p", "q"]);
        input(&mut body, "c1", &["p"]);
        let dim = |text: &str| Dim::parse(text).unwrap();
        body.checks.push(Check { left: dim("q floordiv 2"), right: dim("1"), why: "/node".into() });
        let asked: Vec<String> =
            demands_of_body(&g, &body, &operands).iter().map(|c| format!("{} == {}", c.left, c.right)).collect();
        assert_eq!(asked, ["m == k", "((n) floordiv (2)) == 1"]);
    }

    #[test]
    fn outputs_of_16_bit_arithmetic_are_compared_by_their_lengths() {
        let relative = |dtype: DType| {
            let mut g = Graph::default();
            let x = push(&mut g, Op::Input { name: "x".into(), parts: vec![] }, &[], &["2"], dtype);
            let y = push(&mut g, Op::Map(ScalarFn::Neg), &[x], &["2"], dtype);
            g.outputs = vec![("y".into(), y)];
            make(&g, &ParamStore::new(), &Options::default()).unwrap().outputs[0].relative
        };
        assert_eq!([DType::F32, DType::F16, DType::BF16].map(relative), [0.0, CODES_RELATIVE, CODES_RELATIVE]);
    }

    #[test]
    fn integers_are_ones_and_bools_true() {
        let mut g = Graph::default();
        let i = push(&mut g, Op::Input { name: "i".into(), parts: vec![] }, &[], &["2"], DType::I64);
        let b = push(&mut g, Op::Input { name: "b".into(), parts: vec![] }, &[], &["2"], DType::Bool);
        g.outputs = vec![("i2".into(), i), ("b2".into(), b)];
        let test = make(&g, &ParamStore::new(), &Options::default()).unwrap();
        assert_eq!(test.inputs[0].data[..], [1i64.to_le_bytes(), 1i64.to_le_bytes()].concat());
        assert_eq!(test.inputs[1].data[..], [1, 1]);
        assert_eq!((test.outputs[0].rtol, test.outputs[0].atol), (0.0, 0.0));
    }

    #[test]
    fn what_is_too_large_or_cannot_be_interpreted_is_said() {
        let mut g = product();
        for name in ["k", "m", "n"] {
            g.symbols.get_mut(name).unwrap().lo = 2000;
        }
        let why = make(&g, &ParamStore::new(), &Options::default()).unwrap_err();
        let words = "a small call takes 8008000000 multiply-adds, more than the 2000000000 worth interpreting";
        assert_eq!(why, words);
        let large = |n: &str| {
            let mut g = Graph::default();
            let x = push(&mut g, Op::Input { name: "x".into(), parts: vec![] }, &[], &[], DType::F32);
            let wide = push(&mut g, Op::Broadcast { dims: vec![] }, &[x], &[n], DType::F32);
            let y = push(&mut g, Op::Reduce { f: ReduceFn::Max, axes: vec![0] }, &[wide], &[], DType::F32);
            g.outputs = vec![("y".into(), y)];
            make(&g, &ParamStore::new(), &Options::default())
        };
        let why = "a small call has a value of 268435456 elements, more than 134217728";
        assert_eq!(large("268435456").unwrap_err(), why);
        assert!(large("1024").is_ok());
        // Index 1 with a single row, and with two.
        let gather = |rows: &str| {
            let mut g = Graph::default();
            let data = push(&mut g, Op::Input { name: "data".into(), parts: vec![] }, &[], &[rows], DType::F32);
            let i = push(&mut g, Op::Input { name: "i".into(), parts: vec![] }, &[], &[], DType::I64);
            let y = push(&mut g, Op::Gather { axis: 0 }, &[data, i], &[], DType::F32);
            g.outputs = vec![("y".into(), y)];
            make(&g, &ParamStore::new(), &Options::default())
        };
        assert!(gather("1").unwrap_err().starts_with("the interpreter says: the index 1 is out of range"));
        assert!(gather("2").is_ok());
        let mut g = product();
        let p = push(&mut g, Op::Param { name: "p".into(), parts: vec![], bounded: false }, &[], &["2"], DType::F32);
        g.outputs.push(("p".into(), p));
        assert!(make(&g, &ParamStore::new(), &Options::default()).unwrap_err().contains("the parameter `p` is gone"));
    }

    #[test]
    fn the_stage_is_the_last_one_that_keeps_roundings() {
        let at = crate::pipeline::STAGES.iter().position(|(name, _)| *name == STAGE).unwrap();
        assert_eq!(crate::pipeline::STAGES[at + 1].0, "shard");
    }
}
