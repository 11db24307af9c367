//! The value level: tensors with symbolic dimensions and a closed basis of operations on them

pub mod graph;
pub mod infer;
pub mod ir;
pub mod operators;

pub use graph::{
    Axis, BOUND, ContractSpec, Graph, Host, Node, Op, Place, Symbol, SymbolKind, TensorType, Value, WindowSpec,
    coordinates, mesh,
};
pub use operators::{Operator, Read, Reading, viewed};
pub use sardonyx_base::plan::Check;
