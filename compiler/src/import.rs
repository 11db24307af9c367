//! onnx::Model  =>  a module of `onnx.node` operations, and the store of its parameters
//!
//! Small constants become part of the IR, where they can be folded; everything else is a named parameter whose bytes
//! stay in the mapped files.

use crate::onnx::{Attribute, DimSpec, Graph, Model, ValueInfo, ValueType};
use melior::Context as MlirContext;
use sardonyx_base::{DType, Dim, Error, Kind, Result, Tensor, dim, solve};
use sardonyx_dialects::mlir::{Attr, Context, NewBlock, NewOperation, Operand, Parts, Type};
use sardonyx_dialects::sdx::{BOUND, Symbol, SymbolKind, ir};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Parameters by name.
pub type ParamStore = BTreeMap<String, Tensor>;

/// Integer constants of at most this many elements are stored in the IR: shapes and scalars, not weights.
const INTEGERS_MAX: usize = 64;
const FLOATS_MAX: usize = 4;
/// Longest vector of floats that is stored in the IR, since it may determine sizes, like the scales of a Resize.
const FLOAT_VECTOR_MAX: usize = 16;

/// Longest vector of equal bytes, such as the zero points of channels, that is stored in the IR.
const CHANNELS_MAX: usize = 1 << 16;

/// Whether a tensor is a vector of bytes that are all equal, as zero points mostly are.
fn is_one_byte(t: &Tensor) -> bool {
    let fits = matches!(t.dtype(), DType::I8 | DType::U8) && t.rank() == 1 && t.len() <= CHANNELS_MAX;
    fits && t.bytes().iter().all(|b| *b == t.bytes()[0])
}

/// Longest sequence 0, 1, 2, … that is stored in the IR.
const COUNT_MAX: usize = 1 << 12;

/// Whether the elements are 0, 1, 2, …, as for positions or the indices of a mask.
fn is_count(t: &Tensor) -> bool {
    let fits = matches!(t.dtype(), DType::I32 | DType::I64) && (2..=COUNT_MAX).contains(&t.len());
    fits && (0..t.len()).all(|i| t.get_i64(i) == Some(i as i64))
}

/// Whether every element of a floating-point tensor is at most [`BOUND`] in magnitude; false for other types.
fn is_bounded(t: &Tensor) -> bool {
    // Without the sign, the bits of floats are ordered like their values, with infinities and NaNs at the end. All
    // elements are visited, without a branch, so that the loop vectorises.
    fn none<const N: usize>(bytes: &[u8], is_beyond: impl Fn([u8; N]) -> bool) -> bool {
        !bytes.as_chunks::<N>().0.iter().fold(false, |some, b| some | is_beyond(*b))
    }
    let bytes = t.bytes();
    match t.dtype() {
        DType::F32 => none(bytes, |b| i32::from_le_bytes(b) & i32::MAX > (BOUND as f32).to_bits() as i32),
        DType::F64 => none(bytes, |b| i64::from_le_bytes(b) & i64::MAX > BOUND.to_bits() as i64),
        DType::F16 => none(bytes, |b| i16::from_le_bytes(b) & i16::MAX >= 0x7C00),
        DType::BF16 => none(bytes, |b| i16::from_le_bytes(b) & i16::MAX > ((BOUND as f32).to_bits() >> 16) as i16),
        _ => false,
    }
}

/// Range of a symbol on the command line: `--dim seq=1..512`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DimRange {
    /// Lower bound, inclusive.
    pub lo: i64,
    /// Upper bound, inclusive; `None` if there is none.
    pub hi: Option<i64>,
}

/// Imports a model as a detached function. Also returns the parameters, which do not depend on `ranges`.
pub fn import<'c>(
    context: &'c MlirContext,
    model: &Model,
    name: &str,
    ranges: &BTreeMap<String, DimRange>,
) -> Result<(NewOperation<'c>, ParamStore)> {
    let cx = Context::new(context);
    let symbols = declare_symbols(&model.graph, ranges)?;
    let (params, ranks) = (ParamStore::new(), HashMap::new());
    let mut importer = Importer { cx, params, ranks, lacking: &model.lacking };
    let function = importer.function(name, &model.graph, &symbols)?;
    Ok((function, importer.params))
}

/// Values by name: those of a graph and of the graphs around it.
type Scope<'b> = HashMap<String, Operand<'b>>;

fn value<'b>(scope: &Scope<'b>, name: &str) -> Result<Operand<'b>> {
    let found = scope.get(name).copied();
    found.ok_or_else(|| Error::user("E0104", format!("the value `{name}` is never defined")))
}

struct Importer<'m, 'c> {
    cx: Context<'c>,
    params: ParamStore,
    /// Declared ranks of values of the current graph.
    ranks: HashMap<String, usize>,
    /// Initializers whose data is missing.
    lacking: &'m BTreeSet<String>,
}

/// A dimension as the exporter declared it; `None` if it is unknown, in which case it gets a generated name later.
fn input_dim(spec: &DimSpec) -> Option<Dim> {
    match spec {
        DimSpec::Fixed(n) => Some(Dim::constant(*n)),
        // Exporters may write an expression where a name is expected.
        DimSpec::Named(name) => Some(Dim::parse_names(name).unwrap_or_else(|_| Dim::symbol(name))),
        DimSpec::Unknown => None,
    }
}

/// Ranks that the graph declares for its outputs, propagated backwards through nodes that keep the rank.
fn declared_ranks(graph: &Graph) -> HashMap<String, usize> {
    let rank = |o: &crate::onnx::ValueInfo| Some((o.name.clone(), o.tensor()?.1?.len()));
    let mut ranks: HashMap<String, usize> = graph.outputs.iter().filter_map(rank).collect();
    for node in graph.nodes.iter().rev() {
        if let (Some(Some(from)), Some(to)) = (node.inputs.first(), node.output(0))
            && let Some(rank) = ranks.get(to).copied()
            && sardonyx_passes::keeps_rank(&node.domain, &node.op_type)
        {
            ranks.entry(from.clone()).or_insert(rank);
        }
    }
    ranks
}

type InputType = (String, DType, Vec<Dim>);

fn input_types(graph: &Graph) -> Result<Vec<InputType>> {
    let of = |input: &crate::onnx::ValueInfo| {
        let refuse = |what: &str| {
            let error = Error::user("E0107", format!("the input `{}` {what}", input.name));
            error.help("inputs are tensors, and sequences, optionals and maps of them")
        };
        if input.kind() != Kind::Tensor {
            return Ok((input.name.clone(), DType::Value, vec![]));
        }
        let (dtype, dims) = input.tensor().ok_or_else(|| refuse("is not a tensor"))?;
        let dims = dims.ok_or_else(|| {
            Error::user("E0203", format!("the input `{}` has no declared rank", input.name))
                .help("export the model with declared input shapes")
        })?;
        Ok((input.name.clone(), dtype, dims.to_vec()))
    };
    let declared = graph.inputs.iter().map(of).collect::<Result<Vec<_>>>()?;
    let named = declared.iter().flat_map(|(_, _, dims)| dims).filter_map(input_dim);
    let mut taken: BTreeSet<Arc<str>> = named.flat_map(|d| d.names()).collect();
    let mut typed: Vec<InputType> = vec![];
    for (name, dtype, dims) in declared {
        let dims = dims.iter().enumerate().map(|(i, d)| input_dim(d).unwrap_or_else(|| fresh(&name, i, &mut taken)));
        let dims = dims.collect();
        typed.push((name, dtype, dims));
    }
    name_unsolvable(&mut typed, &graph.inputs);
    Ok(typed)
}

/// Describes what an input that is not a tensor holds; empty for tensors.
fn held(input: &ValueInfo) -> String {
    match input.kind() {
        Kind::Tensor => String::new(),
        Kind::Sequence(_) | Kind::Optional(_) | Kind::Map(_) => input.ty.as_ref().map_or("?".into(), held_text),
    }
}

/// Type as text: element type and rank, as in `sequence(f32:2)`.
fn held_text(ty: &ValueType) -> String {
    match ty {
        ValueType::Tensor { dtype, dims } => {
            format!("{dtype}:{}", dims.as_ref().map_or("?".into(), |dims| dims.len().to_string()))
        }
        ValueType::Sequence(of) => format!("sequence({})", held_text(of)),
        ValueType::Optional(of) => format!("optional({})", held_text(of)),
        ValueType::Map { value, .. } => format!("map({})", held_text(value)),
        ValueType::SparseTensor { .. } | ValueType::Opaque { .. } => "?".into(),
    }
}

/// A new symbol for an undeclared dimension: `ids_1` for the second of input `ids`, with `_` appended while taken.
fn fresh(input: &str, axis: usize, taken: &mut BTreeSet<Arc<str>>) -> Dim {
    let mut name = format!("{input}_{axis}");
    while !taken.insert(name.as_str().into()) {
        name.push('_');
    }
    Dim::symbol(&name)
}

/// Replaces expressions that the inputs' shapes do not determine by plain symbols of the same text: `a + b`, or
/// `max-length`, which only looks like a difference.
fn name_unsolvable(inputs: &mut [InputType], declared: &[crate::onnx::ValueInfo]) {
    let found = solve::sources(inputs.iter().map(|(_, _, dims)| dims.as_slice()), &|_| true);
    let known: BTreeSet<Arc<str>> = found.into_iter().map(|s| s.symbol).collect();
    for ((_, _, dims), input) in inputs.iter_mut().zip(declared) {
        let specs = input.tensor().and_then(|(_, dims)| dims).unwrap_or_default();
        for (dim, spec) in dims.iter_mut().zip(specs) {
            if let DimSpec::Named(text) = spec
                && !dim.names().is_subset(&known)
            {
                *dim = Dim::symbol(text);
            }
        }
    }
}

/// Dimensions of every input as the model declares them.
pub fn declared_dims(graph: &Graph) -> Result<Vec<Vec<Dim>>> {
    Ok(input_types(graph)?.into_iter().map(|(_, _, dims)| dims).collect())
}

/// The symbols of the inputs, with their ranges from the command line. Errors: E0204.
fn declare_symbols(graph: &Graph, ranges: &BTreeMap<String, DimRange>) -> Result<BTreeMap<String, Symbol>> {
    let mut symbols = BTreeMap::new();
    for (_, _, dims) in input_types(graph)? {
        for name in dims.iter().flat_map(|d| d.names()) {
            symbols.insert(name.to_string(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
        }
    }
    for (name, range) in ranges {
        let known: Vec<&str> = symbols.keys().map(String::as_str).collect();
        let help = match known.as_slice() {
            [] => "all input dimensions of this model are fixed".to_string(),
            names => format!("its symbols are {}", names.join(", ")),
        };
        let symbol = symbols
            .get_mut(name)
            .ok_or_else(|| Error::user("E0204", format!("the model has no dimension symbol `{name}`")).help(help))?;
        if range.lo < 0 || range.hi.is_some_and(|h| h < range.lo) {
            let hi = range.hi.map_or(String::new(), |h| h.to_string());
            return Err(Error::user("E0204", format!("the range {}..{hi} of `{name}` is empty or negative", range.lo))
                .help("write --dim NAME=N or --dim NAME=LO..HI with 0 <= LO <= HI"));
        }
        (symbol.lo, symbol.hi) = (range.lo, range.hi);
    }
    Ok(symbols)
}

impl<'c> Importer<'_, 'c> {
    fn function(&mut self, name: &str, graph: &Graph, symbols: &BTreeMap<String, Symbol>) -> Result<NewOperation<'c>> {
        let cx = self.cx;
        // A symbol whose range is a single value is replaced by it.
        let fixed = |s: &Symbol| s.hi == Some(s.lo);
        let constant = |s: &dim::Symbol| symbols.get(s.name()?).filter(|s| fixed(s)).map(|s| Dim::constant(s.lo));
        let inputs = input_types(graph)?;
        let mut types = vec![];
        for (name, dtype, dims) in &inputs {
            let dims: Vec<Dim> = dims.iter().map(|d| d.substitute(&constant)).collect();
            let ty = sardonyx_dialects::sdx::TensorType::new(*dtype, dims);
            sardonyx_dialects::sdx::graph::check_type(&ty).map_err(|e| e.node(name))?;
            types.push(cx.tensor(*dtype, &ty.dims));
        }
        let body = NewBlock::new(cx, &types);
        let named = inputs.iter().zip(body.arguments());
        let mut scope: Scope = named.map(|((name, _, _), v)| (name.clone(), v)).collect();
        self.nodes(&body, graph, &mut scope)?;
        let results = graph.outputs.iter().map(|output| value(&scope, &output.name)).collect::<Result<Vec<_>>>()?;
        body.push(cx.build(Parts { name: "func.return", operands: &results, ..Parts::default() })?);
        let names: Vec<String> = inputs.into_iter().map(|(n, _, _)| n).collect();
        let outputs: Vec<&str> = graph.outputs.iter().map(|o| o.name.as_str()).collect();
        let open = symbols.iter().filter(|(_, s)| !fixed(s)).map(|(n, s)| (n.clone(), s.clone())).collect();
        let attrs = vec![
            ("sdx.symbols", ir::write_symbols(cx, &open)),
            ("sdx.checks", ir::write_checks(cx, &[])),
            ("sdx.results", cx.strs(&outputs)),
            ("onnx.held", cx.strs(&graph.inputs.iter().map(held).collect::<Vec<_>>())),
        ];
        let types: Vec<Type> = results.iter().map(|v| body.type_of(*v)).collect();
        let arguments: Vec<Attr> = names.iter().map(|name| ir::argument(cx, name, &[])).collect();
        ir::build_function(cx, name, body, &arguments, &types, attrs)
    }

    fn initializer(&mut self, name: &str, tensor: &Tensor) -> Result<NewOperation<'c>> {
        let cx = self.cx;
        let dims: Vec<Dim> = tensor.dims().iter().map(|&d| Dim::constant(d as i64)).collect();
        let results = [cx.tensor(tensor.dtype(), &dims)];
        let limit = match tensor.dtype().is_float() {
            true if tensor.rank() == 1 => FLOAT_VECTOR_MAX,
            true => FLOATS_MAX,
            false => INTEGERS_MAX,
        };
        let says = tensor.len() <= limit || is_one_byte(tensor) || is_count(tensor);
        if says && !tensor.dtype().is_opaque() {
            let attrs = [("value", cx.dense(tensor)?)];
            return cx.build(Parts { name: "sdx.const", results: &results, attrs: &attrs, ..Parts::default() });
        }
        let mut attrs = vec![("name", cx.str(&self.param(name, tensor)))];
        if self.lacking.contains(name) || is_bounded(tensor) {
            attrs.push(("bounded", cx.unit()));
        }
        cx.build(Parts { name: "sdx.param", results: &results, attrs: &attrs, ..Parts::default() })
    }

    /// Appends a node to `body`, and its outputs to `scope`.
    fn node<'b>(&mut self, body: &'b NewBlock<'c>, node: &crate::onnx::Node, scope: &mut Scope<'b>) -> Result<()> {
        let cx = self.cx;
        let unknown = cx.parse_type("!onnx.value");
        let mut operands = vec![];
        for input in &node.inputs {
            operands.push(match input {
                Some(name) => value(scope, name)?,
                None => body.push(cx.build(Parts { name: "onnx.none", results: &[unknown], ..Parts::default() })?)[0],
            });
        }
        let mut attributes = vec![];
        // Unsupported operators are refused later, all in one diagnostic; until then their attributes do not matter.
        let known = sardonyx_passes::is_supported(&node.domain, &node.op_type, node.opset);
        let (mut body_names, mut bodies) = (vec![], vec![]);
        for (name, value) in &node.attributes {
            if let Attribute::Graph(graph) = value {
                body_names.push(name.clone());
                bodies.push(self.body(graph, body, scope)?);
                continue;
            }
            let attribute = match self.attribute(name, value) {
                Err(_) if !known => cx.str(&format!("({})", value.kind())),
                other => other?,
            };
            attributes.push((name.clone(), attribute));
        }
        let mut attrs = vec![
            ("op_type", cx.str(&node.op_type)),
            ("opset", cx.i64(node.opset)),
            ("node_attributes", cx.dict(&attributes)),
        ];
        if !node.domain.is_empty() {
            attrs.push(("op_domain", cx.str(&node.domain)));
        }
        let declared = node.output(0).and_then(|name| self.ranks.get(name));
        if let Some(rank) = declared.filter(|_| sardonyx_passes::has_open_rank(&node.domain, &node.op_type)) {
            attrs.push(("rank", cx.i64(*rank as i64)));
        }
        if !node.places.is_empty() {
            attrs.push(("places", cx.strs(&node.places)));
        }
        if !body_names.is_empty() {
            attrs.push(("body_names", cx.strs(&body_names)));
        }
        // Trailing absent outputs are dropped; one in the middle keeps its position.
        let wanted = node.outputs.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
        let results = vec![unknown; wanted];
        let origins = [node.name.clone()];
        let parts =
            Parts { operands: &operands, results: &results, attrs: &attrs, origins: &origins, ..Parts::default() };
        let op = cx.build(Parts { name: "onnx.node", regions: bodies, ..parts })?;
        let named = node.outputs.iter().zip(body.push(op));
        scope.extend(named.filter_map(|(name, v)| Some((name.clone()?, v))));
        Ok(())
    }

    /// The body of a subgraph; it can use the values of the enclosing graph.
    fn body(&mut self, graph: &Graph, outer: &NewBlock<'c>, scope: &Scope) -> Result<NewBlock<'c>> {
        let cx = self.cx;
        let block = NewBlock::nested(cx, &vec![cx.parse_type("!onnx.value"); graph.inputs.len()], outer);
        let mut scope = scope.clone();
        scope.extend(graph.inputs.iter().zip(block.arguments()).map(|(input, v)| (input.name.clone(), v)));
        self.nodes(&block, graph, &mut scope)?;
        let outputs = graph.outputs.iter().map(|output| value(&scope, &output.name)).collect::<Result<Vec<_>>>()?;
        block.push(cx.build(Parts { name: "onnx.yield", operands: &outputs, ..Parts::default() })?);
        drop(scope);
        Ok(block)
    }

    fn nodes<'b>(&mut self, block: &'b NewBlock<'c>, graph: &Graph, scope: &mut Scope<'b>) -> Result<()> {
        let ranks = declared_ranks(graph);
        let outer = std::mem::replace(&mut self.ranks, ranks);
        for initializer in &graph.initializers {
            let op = self.initializer(&initializer.name, &initializer.data)?;
            scope.insert(initializer.name.clone(), block.push(op)[0]);
        }
        graph.nodes.iter().try_for_each(|node| self.node(block, node, scope).map_err(|e| e.node(&node.name)))?;
        self.ranks = outer;
        Ok(())
    }

    /// A unique name for a parameter, since two graphs may each have an initializer of the same name.
    fn param(&mut self, name: &str, tensor: &Tensor) -> String {
        let same = |known: &Tensor| {
            let place = |t: &Tensor| (t.bytes().as_ptr(), t.bytes().len());
            known.dims() == tensor.dims() && known.dtype() == tensor.dtype() && place(known) == place(tensor)
        };
        let mut free = name.to_string();
        while self.params.get(&free).is_some_and(|known| !same(known)) {
            free.push('\'');
        }
        self.params.insert(free.clone(), tensor.clone());
        free
    }

    fn attribute(&self, name: &str, value: &Attribute) -> Result<Attr<'c>> {
        let cx = self.cx;
        let text = |bytes: &[u8]| cx.str(&String::from_utf8_lossy(bytes));
        let unsupported =
            |what: &str| Error::user("E0106", format!("the attribute `{name}` is {what}, which is not supported"));
        Ok(match value {
            Attribute::Int(v) => cx.i64(*v),
            Attribute::Float(v) => cx.f32(*v),
            Attribute::String(v) => text(v),
            Attribute::Ints(v) => cx.array(&v.iter().map(|x| cx.i64(*x)).collect::<Vec<_>>()),
            Attribute::Floats(v) => cx.array(&v.iter().map(|x| cx.f32(*x)).collect::<Vec<_>>()),
            Attribute::Strings(v) => cx.array(&v.iter().map(|s| text(s)).collect::<Vec<_>>()),
            // The elements attribute cannot represent strings.
            Attribute::Tensor(t) if t.dtype().is_opaque() => {
                let strings = t.strings().unwrap_or_default().into_iter().map(text).collect::<Vec<_>>();
                cx.array(&strings)
            }
            Attribute::Tensor(t) => cx.dense(t)?,
            Attribute::Type(ty) => cx.str(&held_text(ty)),
            other => return Err(unsupported(other.kind())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn what_is_infinite_no_number_or_huge_is_not_bounded() {
        let one = |v: f64| Tensor::from_vec(vec![2], vec![0.5, v]);
        let cases = [
            (0.0, true),
            (-1e-310, true),
            (BOUND, true),
            (-BOUND, true),
            (-BOUND * 1.01, false),
            (f64::INFINITY, false),
            (f64::NEG_INFINITY, false),
            (f64::NAN, false),
        ];
        for (v, bounded) in cases {
            assert_eq!(is_bounded(&one(v)), bounded, "{v}");
            let narrow = Tensor::from_vec(vec![2], vec![0.5, v as f32]);
            assert_eq!(is_bounded(&narrow), bounded, "{v} in f32");
            let narrower = Tensor::from_vec(vec![2], vec![bf16::from_f64(0.5), bf16::from_f64(v)]);
            assert_eq!(is_bounded(&narrower), bounded, "{v} in bf16");
            // All finite f16 values are smaller.
            let half = Tensor::from_vec(vec![2], vec![f16::from_f64(0.5), f16::from_f64(v)]);
            assert_eq!(is_bounded(&half), v.is_finite() && f16::from_f64(v).is_finite(), "{v} in f16");
        }
        assert!(is_bounded(&Tensor::from_vec(vec![0], Vec::<f32>::new())));
        assert!(!is_bounded(&Tensor::from_vec(vec![1], vec![1i64])), "nothing is said of integers");
    }
}
