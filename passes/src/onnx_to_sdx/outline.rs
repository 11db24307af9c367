//! what a closure builds  =>  a function of its own: its captures are inputs, its dimensions are its own symbols
//!
//! In the new function (the body), a symbol that is a whole dimension of some input stays a symbol, and dimensions that
//! are expressions over such symbols stay expressions; any other dimension is a new symbol of the body. Constants and
//! parameters are not passed: the body has copies of them.

use super::builder::Builder;
use super::held::Held;
use sardonyx_base::{DType, Dim, Error, Result};
use sardonyx_dialects::sdx::{Graph, Op, Symbol, SymbolKind, TensorType, Value};
use std::collections::{BTreeMap, BTreeSet};

/// An input that is not a captured value.
#[derive(Clone)]
pub struct Param {
    pub ty: TensorType,
    /// Whether each dimension is known only at run time and may change from call to call.
    pub open: Vec<bool>,
    /// Type of the input's contents, if it is opaque.
    pub held: Held,
}

impl Param {
    pub fn scalar(dtype: DType) -> Param {
        Param { ty: TensorType::new(dtype, vec![]), open: vec![], held: Held::Unknown }
    }
}

/// A body that is not yet a function of the module.
pub struct Outlined {
    pub graph: Graph,
    /// The functions that the body calls.
    inner: Vec<Graph>,
    /// The captured values that are passed, after the other inputs.
    pub captured: Vec<Value>,
    /// The parameters, as values of the body.
    pub params: Vec<Value>,
    pub outputs: Vec<Value>,
    /// Elements of the outputs, where they are the same in every call.
    pub constants: Vec<Option<Vec<i64>>>,
    /// For each output, the type of its contents if it is opaque, else its own type.
    pub held: Vec<Held>,
    frame: Frame,
}

impl Outlined {
    pub fn ty(&self, v: Value) -> &TensorType {
        self.graph.ty(v)
    }

    /// A dimension of the body in the caller's symbols, if they can express it.
    pub fn outside(&self, d: &Dim) -> Option<Dim> {
        let known = d.names().iter().all(|s| self.frame.back.contains_key(&**s));
        known.then(|| d.substitute(&|s| self.frame.back.get(s.name()?).cloned()))
    }
}

/// The symbols of a body, and the dimensions of the caller that they stand for.
struct Frame {
    body: String,
    own: BTreeMap<String, String>,
    others: Vec<(Dim, String)>,
    back: BTreeMap<String, Dim>,
    symbols: BTreeMap<String, Symbol>,
}

impl Frame {
    /// A frame with the symbols that are a whole dimension of some input.
    fn new<'t>(body: &str, graph: &Graph, types: impl Iterator<Item = &'t TensorType>) -> Frame {
        let mut frame = Frame {
            body: body.into(),
            own: BTreeMap::new(),
            others: vec![],
            back: BTreeMap::new(),
            symbols: BTreeMap::new(),
        };
        for name in types.flat_map(|ty| &ty.dims).filter_map(Dim::as_name) {
            let range = graph.symbols.get(name).map_or((0, None), |s| (s.lo, s.hi));
            let own = frame.declare(name, range);
            frame.back.insert(own.clone(), Dim::symbol(name));
            frame.own.insert(name.to_string(), own);
        }
        frame
    }

    fn declare(&mut self, name: &str, (lo, hi): (i64, Option<i64>)) -> String {
        let own = format!("{name}@{}", self.body);
        self.symbols.insert(own.clone(), Symbol { kind: SymbolKind::Input, lo, hi });
        own
    }

    /// A dimension of the caller in the body's own symbols, if they can express it.
    fn known(&self, d: &Dim) -> Option<Dim> {
        let all = d.names().iter().all(|s| self.own.contains_key(&**s));
        all.then(|| d.substitute(&|s| self.own.get(s.name()?).map(|own| Dim::symbol(own))))
    }

    fn dim(&mut self, d: &Dim) -> Dim {
        if let Some(known) = self.known(d) {
            return known;
        }
        if let Some((_, own)) = self.others.iter().find(|(other, _)| other == d) {
            return Dim::symbol(own);
        }
        let own = self.declare(&format!("d{}", self.others.len()), (0, None));
        self.back.insert(own.clone(), d.clone());
        self.others.push((d.clone(), own.clone()));
        Dim::symbol(&own)
    }

    fn ty(&mut self, ty: &TensorType) -> TensorType {
        TensorType::new(ty.dtype, ty.dims.iter().map(|d| self.dim(d)).collect::<Vec<_>>())
    }
}

/// Builds a body from its parameters and captured values, given as values of the body; returns the outputs.
pub type Build<'a> = &'a mut dyn FnMut(&mut Builder, &[Value], &[Value]) -> Result<Vec<Value>>;

impl Builder {
    /// A name that no function of the module has.
    pub fn body_name(&mut self) -> String {
        let mut names = self.functions.borrow_mut();
        let free = (0..).map(|i| format!("{}.body{i}", self.graph.name)).find(|name| !names.contains(name));
        let name = free.unwrap_or_default();
        names.insert(name.clone());
        name
    }

    pub fn outline(&mut self, name: &str, params: &[Param], captures: &[Value], build: Build) -> Result<Outlined> {
        if self.depth >= DEPTH_MAX {
            return Err(self.error("E0103", format!("bodies are nested to more than {DEPTH_MAX} levels")));
        }
        let handed: Vec<Value> = captures.iter().copied().filter(|v| !self.is_literal(*v)).collect();
        let given = params.iter().flat_map(|p| {
            let dims = p.ty.dims.iter().enumerate().filter(|(i, _)| !p.open.get(*i).is_some_and(|o| *o));
            dims.map(|(_, d)| TensorType::new(DType::Bool, vec![d.clone()]))
        });
        let types: Vec<TensorType> = given.chain(handed.iter().map(|v| self.ty(*v).clone())).collect();
        let mut frame = Frame::new(name, &self.graph, types.iter());
        let mut child = Builder::within(self.functions.clone(), self.depth + 1);
        child.origin.clone_from(&self.origin);
        child.nchwc_block = self.nchwc_block;
        child.activations = self.activations;
        (child.graph.name, child.graph.internal) = (name.to_string(), true);
        let mut inputs = vec![];
        for (i, param) in params.iter().enumerate() {
            let open = |axis: usize| param.open.get(axis).is_some_and(|o| *o);
            let dims = param.ty.dims.iter().enumerate().map(|(axis, d)| match open(axis) {
                true => Dim::symbol(&frame.declare(&format!("p{i}_{axis}"), (0, None))),
                false => frame.dim(d),
            });
            let ty = TensorType::new(param.ty.dtype, dims.collect::<Vec<_>>());
            let input = child.add_typed(Op::Input { name: format!("p{i}"), parts: vec![] }, &[], Some(ty))?;
            child.hold(input, param.held.clone());
            inputs.push(input);
        }
        let types: Vec<TensorType> = handed.iter().map(|v| frame.ty(self.ty(*v))).collect();
        child.graph.symbols = frame.symbols.clone();
        let mut known = BTreeMap::new();
        for (i, (&v, ty)) in handed.iter().zip(types).enumerate() {
            let input = child.add_typed(Op::Input { name: format!("c{i}"), parts: vec![] }, &[], Some(ty))?;
            child.hold(input, self.held(v));
            known.insert(v, input);
        }
        let mut values = vec![];
        for &v in captures {
            let again = self.again(&mut child, v, &frame)?;
            values.push(match (again, known.get(&v)) {
                (Some(same), _) => same,
                (None, Some(input)) => *input,
                (None, None) => return Err(Error::defect("a captured value is not handed in")),
            });
        }
        let outputs = build(&mut child, &inputs, &values)?;
        child.graph.outputs = outputs.iter().enumerate().map(|(i, v)| (format!("o{i}"), *v)).collect();
        let constants = outputs.iter().map(|v| child.constants(*v)).collect();
        let held = outputs.iter().map(|v| child.held(*v)).collect();
        let (graph, inner) = (child.graph, child.bodies);
        Ok(Outlined { held, graph, inner, captured: handed, params: inputs, outputs, constants, frame })
    }

    fn is_literal(&self, v: Value) -> bool {
        matches!(self.graph.node(v).op, Op::Const(_) | Op::Param { .. })
    }

    /// Copies a captured value into the body if it needs no input: a constant, a parameter, or integers that the body's
    /// symbols express. Returns the copy.
    fn again(&self, child: &mut Builder, v: Value, frame: &Frame) -> Result<Option<Value>> {
        let node = self.graph.node(v);
        if self.is_literal(v) {
            let same = child.add_typed(node.op.clone(), &[], Some(node.ty.clone()))?;
            child.hold(same, self.held(v));
            if self.elements.get(&v).is_some_and(Vec::is_empty) {
                child.elements.insert(same, vec![]);
            }
            return Ok(Some(same));
        }
        let Some(contents) = self.contents(v).filter(|_| node.ty.dtype == DType::I64) else { return Ok(None) };
        let (contents, dims) = (contents.iter().map(|d| frame.known(d)), node.ty.dims.iter().map(|d| frame.known(d)));
        let (contents, dims): (Option<Vec<Dim>>, Option<Vec<Dim>>) = (contents.collect(), dims.collect());
        let (Some(contents), Some(dims)) = (contents, dims) else { return Ok(None) };
        let vector = child.dims_vector(contents)?;
        child.reshape(vector, &dims).map(Some)
    }

    /// Makes a body a function of the module. Returns its name.
    pub fn adopt(&mut self, outlined: Outlined) -> String {
        let name = outlined.graph.name.clone();
        self.bodies.push(outlined.graph);
        self.bodies.extend(outlined.inner);
        name
    }
}

/// Maximum nesting depth of bodies; only malicious files exceed it.
const DEPTH_MAX: usize = 16;

/// Returns the dimension that all of `dims` are equal to. If they differ or one is not known, returns a new
/// data-dependent symbol, and adds it to `fresh`.
pub fn merged(b: &mut Builder, dims: Vec<Option<Dim>>, fresh: &mut Vec<String>) -> Dim {
    let distinct: BTreeSet<&Option<Dim>> = dims.iter().collect();
    match dims.first() {
        Some(Some(only)) if distinct.len() == 1 => only.clone(),
        Some(_) | None => {
            let symbol = b.data_symbol();
            fresh.push(symbol.clone());
            Dim::symbol(&symbol)
        }
    }
}
