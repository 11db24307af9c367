//! The closed basis of operations: their attributes, and the properties of each kind of operation
//!
//! A pass that has to treat every operation decides by the operation's [`Role`]. A pass that recognises only some
//! operations names these, and treats all others in a way that is correct for any operation.

use crate::params::Part;
use crate::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_base::{Dim, HostOp, Tensor};
use std::fmt;

/// Operation of a node: an operation of the `sdx` dialect, or a function argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A function argument.
    Input {
        /// Name of the input, from the argument's attribute `sdx.name`.
        name: String,
        /// The parts that a rank holds; empty if every rank holds all of the input. Callers pass the whole tensor and,
        /// if an output continues the input, receive that whole output.
        parts: Vec<Part>,
    },
    /// A named tensor in the parameter store (a weight): its values are never in the IR.
    Param {
        /// Name in the parameter store.
        name: String,
        /// The parts that a rank holds; empty if every rank holds all of it.
        parts: Vec<Part>,
        /// Whether every element is a number of at most [`BOUND`](super::BOUND) in magnitude.
        bounded: bool,
    },
    /// A small constant.
    Const(Tensor),
    /// i64 values that are expressions of the symbols: a scalar (rank 0, one entry) or a vector.
    Dims(Vec<Dim>),
    /// Applies one scalar function to every element; all operands have the result's dimensions.
    Map(ScalarFn),
    /// Converts elements to the result's element type.
    Convert(Conversion),
    /// Combines elements over `axes` (sorted, distinct), which the result lacks. A reduction over no elements gives the
    /// neutral element of the function.
    Reduce {
        /// Function that combines the elements.
        f: ReduceFn,
        /// Dimensions of the operand that are reduced.
        axes: Vec<usize>,
    },
    /// Sum of products over the dimensions that the result lacks, as an einsum of two operands.
    Contract(ContractSpec),
    /// data, indices (i64, all in 0..n)  =>  data.dims[..axis] ++ indices.dims ++ data.dims[axis+1..]
    Gather {
        /// Dimension of the data that the indices refer to.
        axis: usize,
    },
    /// result[i] = operand[starts + i * steps]; steps may be negative.
    Slice {
        /// Index of the first selected element, for each dimension of the operand.
        starts: Vec<Dim>,
        /// Distance between selected elements, for each dimension of the operand; not 0.
        steps: Vec<i64>,
    },
    /// operand, scalar value: result[i] = operand[i - low] if that is inside the operand, else the value.
    Pad {
        /// Position in the result of the operand's first element, for each dimension.
        low: Vec<Dim>,
    },
    /// A view along one axis: the axis becomes the window positions, and a new last dimension the offsets within the
    /// window: result[.., o, .., k] = operand[.., o * stride + k * dilation, ..]. All windows are inside the operand.
    Window(WindowSpec),
    /// The operands, of which there is at least one, concatenated along an axis.
    Concat {
        /// Dimension in which the operands may differ.
        axis: usize,
    },
    /// past, new  =>  both concatenated along an axis; the result may share the memory of the past. The past is an
    /// input with no other use, and the result is an output; rewrites of `Concat` do not apply to this operation.
    Append {
        /// Dimension along which new positions are appended.
        axis: usize,
    },
    /// The same elements in row-major order with the result's dimensions.
    Reshape,
    /// result.dims[i] = operand.dims[perm[i]]
    Transpose {
        /// Dimension of the operand that becomes each dimension of the result.
        perm: Vec<usize>,
    },
    /// Dimension i of the operand becomes dimension dims[i] of the result, where `dims` is increasing; a dimension of
    /// the operand whose extent is 1 may be repeated.
    Broadcast {
        /// Dimension of the result for each dimension of the operand.
        dims: Vec<usize>,
    },
    /// result[i] = i[axis], i64
    Iota {
        /// Dimension of the result whose index is the value.
        axis: usize,
    },
    /// Binds a data-dependent symbol to the scalar operand (i64); the result is the operand.
    Bind {
        /// Name of the symbol that is bound.
        symbol: String,
    },
    /// Returns the operand, and declares how it is to be distributed over the ranks of a mesh.
    Place(Box<Place>),
    /// A result of a host operation, computed by Rust code of the runtime.
    Host(Box<Host>),
}

/// How a value is to be distributed over the ranks along an axis of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Number of the mesh axis.
    pub mesh: usize,
    /// The dimension that is split, the number of runs in it, and the elements per unit; absent if every rank holds the
    /// whole value.
    pub split: Option<(usize, Dim, Dim)>,
}

/// One result of a host operation. An operation with several results has a node for each. These nodes form a group:
/// they have the same operation and operands, and the operation runs once for all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// Operation that is run.
    pub op: HostOp,
    /// Names of the functions that the operation calls.
    pub bodies: Vec<String>,
    /// Number of the group; nodes with the same number are results of the same execution.
    pub group: usize,
    /// Index of this result among those of the operation.
    pub result: usize,
    /// Data-dependent symbols that are bound to the sizes of the result's dimensions: (axis, symbol).
    pub binds: Vec<(usize, String)>,
}

impl Host {
    /// Returns whether both are results of the same execution of an operation.
    pub fn same_run(&self, other: &Host) -> bool {
        (self.group, &self.op, &self.bodies) == (other.group, &other.op, &other.bodies)
    }
}

/// A kind of operation, by what it does with its operands. Most analyses need to know nothing else about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Has no operands: an input, a parameter, or known values.
    Given,
    /// Each element of the result is computed from those at the same position of the operands.
    Elementwise,
    /// Combines elements of its operand along dimensions.
    Reduction,
    /// Sums products of elements.
    Product,
    /// Presents elements of its only operand in another arrangement; computes and copies nothing.
    View,
    /// Returns its operand, and gives the compiler information about it; the operation is never replaced.
    Marker,
    /// Copies elements of its operands to other positions.
    Copy,
    /// Runs on the host.
    Host,
}

/// The properties that all operations of one kind share.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// The MLIR operation's name; `input` for inputs, which are block arguments.
    pub name: &'static str,
    /// Number of operands; `None` if it depends on the attributes or varies.
    pub operands: Option<usize>,
    /// What the operation does with its operands.
    pub role: Role,
}

impl Op {
    /// Returns the properties of this kind of operation; the table has one row per kind.
    pub fn properties(&self) -> Properties {
        let row = |name, operands, role| Properties { name, operands, role };
        match self {
            Op::Input { .. } => row("input", Some(0), Role::Given),
            Op::Param { .. } => row("sdx.param", Some(0), Role::Given),
            Op::Const(_) => row("sdx.const", Some(0), Role::Given),
            Op::Dims(_) => row("sdx.dims", Some(0), Role::Given),
            Op::Iota { .. } => row("sdx.iota", Some(0), Role::Given),
            Op::Map(f) => row("sdx.map", Some(f.row().operands), Role::Elementwise),
            Op::Convert(_) => row("sdx.convert", Some(1), Role::Elementwise),
            Op::Reduce { .. } => row("sdx.reduce", Some(1), Role::Reduction),
            Op::Contract(_) => row("sdx.contract", Some(2), Role::Product),
            Op::Slice { .. } => row("sdx.slice", Some(1), Role::View),
            Op::Window(_) => row("sdx.window", Some(1), Role::View),
            Op::Reshape => row("sdx.reshape", Some(1), Role::View),
            Op::Transpose { .. } => row("sdx.transpose", Some(1), Role::View),
            Op::Broadcast { .. } => row("sdx.broadcast", Some(1), Role::View),
            Op::Bind { .. } => row("sdx.bind", Some(1), Role::Marker),
            Op::Place(_) => row("sdx.place", Some(1), Role::Marker),
            Op::Gather { .. } => row("sdx.gather", Some(2), Role::Copy),
            Op::Pad { .. } => row("sdx.pad", Some(2), Role::Copy),
            Op::Concat { .. } => row("sdx.concat", None, Role::Copy),
            Op::Append { .. } => row("sdx.append", Some(2), Role::Copy),
            Op::Host(host) => row("sdx.host", host.op.n_args(), Role::Host),
        }
    }

    /// Returns the MLIR operation's name, or `input` for inputs, which are block arguments.
    pub fn name(&self) -> &'static str {
        self.properties().name
    }

    /// Returns what the operation does with its operands.
    pub fn role(&self) -> Role {
        self.properties().role
    }

    /// Returns the data-dependent symbols that the operation binds.
    pub fn binds(&self) -> Vec<&str> {
        match self {
            Op::Bind { symbol } => vec![symbol],
            Op::Host(host) => host.binds.iter().map(|(_, symbol)| symbol.as_str()).collect(),
            _ => vec![],
        }
    }

    /// Returns the dimension expressions among the attributes.
    pub fn dims(&self) -> Vec<&Dim> {
        match self {
            Op::Dims(dims) | Op::Slice { starts: dims, .. } | Op::Pad { low: dims } => dims.iter().collect(),
            Op::Window(window) => vec![&window.size],
            Op::Place(place) => place.split.iter().flat_map(|(_, outer, unit)| [outer, unit]).collect(),
            Op::Input { .. } | Op::Param { .. } | Op::Const(_) | Op::Map(_) | Op::Convert(_) | Op::Reduce { .. } => {
                vec![]
            }
            Op::Contract(_) | Op::Gather { .. } | Op::Concat { .. } | Op::Append { .. } | Op::Reshape => vec![],
            Op::Transpose { .. } | Op::Broadcast { .. } | Op::Iota { .. } | Op::Bind { .. } | Op::Host(_) => vec![],
        }
    }

    /// Returns mutable references to the expressions of [`Op::dims`].
    pub fn dims_mut(&mut self) -> Vec<&mut Dim> {
        match self {
            Op::Dims(dims) | Op::Slice { starts: dims, .. } | Op::Pad { low: dims } => dims.iter_mut().collect(),
            Op::Window(window) => vec![&mut window.size],
            Op::Place(place) => place.split.iter_mut().flat_map(|(_, outer, unit)| [outer, unit]).collect(),
            Op::Input { .. } | Op::Param { .. } | Op::Const(_) | Op::Map(_) | Op::Convert(_) | Op::Reduce { .. } => {
                vec![]
            }
            Op::Contract(_) | Op::Gather { .. } | Op::Concat { .. } | Op::Append { .. } | Op::Reshape => vec![],
            Op::Transpose { .. } | Op::Broadcast { .. } | Op::Iota { .. } | Op::Bind { .. } | Op::Host(_) => vec![],
        }
    }

    /// Returns the name and the distinguishing attributes of the operation, as in `sdx.contract "mk,kn->mn"`.
    pub fn text(&self) -> String {
        let list = |dims: &[Dim]| dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
        let attributes = match self {
            Op::Input { name, .. } | Op::Param { name, .. } => format!("\"{name}\""),
            Op::Map(f) => format!("\"{}\"", f.name()),
            Op::Reduce { f, axes } => format!("\"{}\" axes {axes:?}", f.name()),
            Op::Contract(spec) => format!("\"{spec}\""),
            Op::Const(t) if t.len() == 1 => t.get_f64(0).map_or(String::new(), |v| v.to_string()),
            Op::Dims(values) => format!("[{}]", list(values)),
            Op::Slice { starts, steps } => format!("[{}] by {steps:?}", list(starts)),
            Op::Window(w) => format!("axis {} of {} by {} and {}", w.axis, w.size, w.stride, w.dilation),
            Op::Transpose { perm } => format!("{perm:?}"),
            Op::Broadcast { dims } => format!("to {dims:?}"),
            Op::Gather { axis } | Op::Concat { axis } | Op::Append { axis } | Op::Iota { axis } => {
                format!("axis {axis}")
            }
            Op::Host(host) => format!("{} result {}", host.op, host.result),
            _ => String::new(),
        };
        format!("{} {attributes}", self.name()).trim_end().to_string()
    }
}

/// The window that convolutions and poolings move along an axis. All numbers except the axis are at least 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowSpec {
    /// Dimension of the operand along which the window moves.
    pub axis: usize,
    /// Number of offsets in the window.
    pub size: Dim,
    /// Distance between neighbouring positions of the window, in elements.
    pub stride: i64,
    /// Distance between neighbouring offsets in the window, in elements.
    pub dilation: i64,
}

impl WindowSpec {
    /// Returns the number of positions of the window along `extent`, which must be at least the window's span.
    pub fn places(&self, extent: &Dim) -> Dim {
        let one = Dim::constant(1);
        let span = (self.size.clone() - one.clone()) * Dim::constant(self.dilation);
        (extent.clone() - span - one.clone()).floordiv(&Dim::constant(self.stride)) + one
    }
}

/// `bmk,bkn->bmn`: one letter per dimension of the operands and of the result. A letter occurs at most once in each;
/// every letter of the result occurs in an operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContractSpec {
    /// Letter of each dimension of the left operand, A.
    pub left: Vec<char>,
    /// Letter of each dimension of the right operand, B.
    pub right: Vec<char>,
    /// Letter of each dimension of the result.
    pub result: Vec<char>,
}

impl ContractSpec {
    /// Parses text such as `bmk,bkn->bmn`; `None` if it is malformed or breaks a rule of [`ContractSpec`].
    pub fn parse(text: &str) -> Option<ContractSpec> {
        let (operands, result) = text.split_once("->")?;
        let (left, right) = operands.split_once(',')?;
        let letters = |s: &str| -> Option<Vec<char>> {
            let all: Vec<char> = s.chars().collect();
            let ok = all.iter().enumerate().all(|(i, c)| c.is_ascii_alphabetic() && !all[..i].contains(c));
            ok.then_some(all)
        };
        let spec = ContractSpec { left: letters(left)?, right: letters(right)?, result: letters(result)? };
        spec.result.iter().all(|c| spec.left.contains(c) || spec.right.contains(c)).then_some(spec)
    }

    /// Returns the letters of the reduced dimensions, in order of first appearance.
    pub fn summed(&self) -> Vec<char> {
        let mut out = vec![];
        for &c in self.left.iter().chain(&self.right) {
            if !self.result.contains(&c) && !out.contains(&c) {
                out.push(c);
            }
        }
        out
    }
}

impl fmt::Display for ContractSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |v: &[char]| v.iter().collect::<String>();
        write!(f, "{},{}->{}", text(&self.left), text(&self.right), text(&self.result))
    }
}
