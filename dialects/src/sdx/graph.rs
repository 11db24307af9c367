//! `Graph`: a function of the sdx level as a list of nodes, which passes read, rewrite and write back
//!
//! Nodes are in topological order: a node's operands precede it. Inputs are the first nodes. A node has one result.

use super::op::Op;
use crate::params::Part;
use sardonyx_base::plan::Check;
use sardonyx_base::{DType, Dim, Error, Result, dim};
use std::collections::BTreeMap;
use std::fmt;

/// `!sdx.tensor<[dims], dtype>`: the logical type; storage and layout belong to the flow level.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Extent of each dimension, outermost first; empty for a scalar.
    pub dims: Vec<Dim>,
    /// Element type.
    pub dtype: DType,
}

impl TensorType {
    /// Returns the type with this element type and these dimensions, which are not checked.
    pub fn new(dtype: DType, dims: impl Into<Vec<Dim>>) -> TensorType {
        TensorType { dims: dims.into(), dtype }
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Returns the number of elements: the product of the dimensions.
    pub fn elements(&self) -> Dim {
        sardonyx_base::dim::product(&self.dims)
    }

    /// Returns the dimensions as numbers; `None` unless all are non-negative constants.
    pub fn static_dims(&self) -> Option<Vec<usize>> {
        self.dims.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(Dim::to_string).collect();
        write!(f, "!sdx.tensor<[{}], {}>", dims.join(", "), self.dtype)
    }
}

/// A node's result: the node's index in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

impl Value {
    /// Returns the index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Maximum magnitude of the elements of a `bounded` parameter: 2⁶⁴. In f32, the product of such an element and a number
/// whose magnitude is below 2⁶⁴ is finite.
pub const BOUND: f64 = (1u128 << 64) as f64;

/// An operation with its operands and its only result.
#[derive(Clone, Debug)]
pub struct Node {
    /// Operation that computes the result.
    pub op: Op,
    /// Operands, which precede the node in the graph.
    pub args: Vec<Value>,
    /// Type of the result.
    pub ty: TensorType,
    /// Names of the ONNX nodes that the node originates from.
    pub origins: Vec<String>,
}

/// Where the value of a symbol comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    /// A dimension of an input.
    Input,
    /// Data that is read at run time: `sdx.bind` or a host operation binds the symbol.
    Data,
    /// Capacity of a state's memory in positions. The symbol occurs in no dimension of a tensor, only in sizes and
    /// strides in memory.
    Capacity,
    /// Number of positions of a state that a call leaves unchanged because past and result share memory; 0 in all other
    /// calls. The value does not affect what a program computes.
    Kept,
    /// The coordinate of a rank along an axis of the mesh; [`Symbol::hi`] is the last coordinate.
    Rank {
        /// Number of the mesh axis.
        axis: usize,
    },
    /// A symbol of the model that the ONNX node `why` requires to equal an expression of the other symbols. No type
    /// contains the symbol, but a call must respect its range, and users may refer to it.
    Derived {
        /// Expression that the symbol must equal.
        equals: Dim,
        /// Name of the ONNX node that requires the equality.
        why: String,
    },
}

/// Declaration of a symbol; the name is the key in [`Graph::symbols`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Source of the value.
    pub kind: SymbolKind,
    /// Inclusive lower bound.
    pub lo: i64,
    /// Inclusive upper bound, if there is one.
    pub hi: Option<i64>,
}

/// An axis of the mesh of ranks that run a program together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Symbol of the coordinate along the axis.
    pub symbol: String,
    /// Number of ranks along the axis.
    pub size: usize,
}

/// Returns the axes of the mesh that a program's symbols declare, ordered by number; empty for a single rank.
pub fn mesh(symbols: &BTreeMap<String, Symbol>) -> Vec<Axis> {
    let axis = |(name, s): (&String, &Symbol)| match s.kind {
        SymbolKind::Rank { axis } => {
            let size = s.hi.and_then(|hi| usize::try_from(hi).ok()).map_or(1, |hi| hi + 1);
            Some((axis, Axis { symbol: name.clone(), size }))
        }
        _ => None,
    };
    let by_axis: BTreeMap<usize, Axis> = symbols.iter().filter_map(axis).collect();
    by_axis.into_values().collect()
}

/// Returns the coordinates of all ranks of a mesh, in rank order: the coordinate along the last axis varies fastest.
pub fn coordinates(mesh: &[Axis]) -> Vec<Vec<usize>> {
    mesh.iter().fold(vec![vec![]], |ranks: Vec<Vec<usize>>, axis| {
        let along = |rank: &Vec<usize>| (0..axis.size).map(|at| [rank.as_slice(), &[at]].concat()).collect::<Vec<_>>();
        ranks.iter().flat_map(along).collect()
    })
}

/// A function of the sdx level.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Name of the function: its attribute `sym_name`.
    pub name: String,
    /// Nodes in topological order, inputs first; a [`Value`] is an index into this list.
    pub nodes: Vec<Node>,
    /// Names and values of the outputs, in order.
    pub outputs: Vec<(String, Value)>,
    /// Declared symbols, by name.
    pub symbols: BTreeMap<String, Symbol>,
    /// Equalities of dimensions that type inference assumed and that every call must satisfy.
    pub checks: Vec<Check>,
    /// Whether only host operations of other functions call this function.
    pub internal: bool,
    /// Functions that the host operations call, by name; empty unless the graph was read by [`Graph::read_whole`].
    pub bodies: BTreeMap<String, Graph>,
}

impl Graph {
    /// Returns the node that produces a value.
    pub fn node(&self, v: Value) -> &Node {
        &self.nodes[v.index()]
    }

    /// Returns the type of a value.
    pub fn ty(&self, v: Value) -> &TensorType {
        &self.node(v).ty
    }

    /// Appends a node without checking its type; returns its result.
    pub fn push(&mut self, node: Node) -> Value {
        self.nodes.push(node);
        Value((self.nodes.len() - 1) as u32)
    }

    /// Returns every value with the node that produces it, in order.
    pub fn values(&self) -> impl Iterator<Item = (Value, &Node)> {
        self.nodes.iter().enumerate().map(|(i, n)| (Value(i as u32), n))
    }

    /// Returns value, name and type of each input, in order.
    pub fn inputs(&self) -> impl Iterator<Item = (Value, &str, &TensorType)> {
        self.values().filter_map(|(v, n)| match &n.op {
            Op::Input { name, .. } => Some((v, name.as_str(), &n.ty)),
            _ => None,
        })
    }

    /// Returns the parts of an input or a parameter that a rank holds; empty if every rank holds the whole value, and
    /// for all other values.
    pub fn parts(&self, v: Value) -> &[Part] {
        match &self.node(v).op {
            Op::Input { parts, .. } | Op::Param { parts, .. } => parts,
            _ => &[],
        }
    }

    /// Returns the parts of an output that a rank holds. An output that appends to an input has that input's parts.
    pub fn output_parts(&self, v: Value) -> &[Part] {
        match (&self.node(v).op, self.node(v).args.first()) {
            (Op::Append { .. }, Some(past)) if matches!(self.node(*past).op, Op::Input { .. }) => self.parts(*past),
            _ => self.parts(v),
        }
    }

    /// Returns how often each value is used as an operand or as an output.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        for v in self.nodes.iter().flat_map(|n| &n.args).chain(self.outputs.iter().map(|(_, v)| v)) {
            uses[v.index()] += 1;
        }
        uses
    }

    /// Returns the lower bound of a symbol; 0 if the graph does not declare the symbol.
    pub fn symbol_lo(&self, symbol: &dim::Symbol) -> i64 {
        symbol.name().and_then(|name| self.symbols.get(name)).map_or(0, |s| s.lo)
    }
}

/// Returns the reason why a dimension of a tensor cannot contain this symbol: the symbol has a meaning only within a
/// kernel, or its name has control characters. `None` if the symbol is valid.
pub fn odd_symbol(symbol: &dim::Symbol) -> Option<String> {
    match symbol.name() {
        None => Some(format!("`{symbol}` is an iteration variable or a statement of a kernel, not a dimension")),
        Some(name) if name.contains(char::is_control) => {
            Some(format!("the dimension symbol {name:?} has control characters"))
        }
        Some(_) => None,
    }
}

/// Refuses types that no tensor can have. Errors: E0204 for a symbol that `odd_symbol` refuses, E0201 for a negative
/// constant dimension, E0202 if 16 bytes times the number of elements overflow.
pub fn check_type(ty: &TensorType) -> Result<()> {
    if let Some(reason) = ty.dims.iter().flat_map(Dim::symbols).find_map(|s| odd_symbol(&s)) {
        return Err(Error::user("E0204", reason).help("rename the dimension in the model"));
    }
    if let Some(d) = ty.dims.iter().find(|d| d.as_const().is_some_and(|c| c < 0)) {
        return Err(Error::user("E0201", format!("the dimension {d} of {ty} is negative")));
    }
    let bytes = ty.elements() * Dim::constant(16);
    if bytes.is_overflow() {
        return Err(Error::user("E0202", format!("the size of {ty} overflows")).help("reduce the dimensions"));
    }
    Ok(())
}
