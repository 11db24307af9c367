//! The sdx level: tensors with symbolic dimensions, and a fixed set of operations on them

pub mod graph;
pub mod infer;
pub mod ir;
mod op;
pub mod operators;

pub use graph::{Axis, BOUND, Graph, Node, Symbol, SymbolKind, TensorType, Value, coordinates, mesh};
pub use op::{ContractSpec, Host, Op, Place, Properties, Role, WindowSpec};
pub use operators::{Operator, Read, Reading, viewed};
pub use sardonyx_base::plan::Check;
