//! an entry point  =>  its inputs, outputs and symbols, as a caller sees them

use crate::program::{self, Entry, Program};
use sardonyx_base::plan::SymbolKind;
use sardonyx_base::{DType, Dim, Kind};

/// The inputs and outputs of an entry point.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EntryPoint {
    /// Name of the entry point, by which calls refer to it.
    pub name: String,
    /// Inputs, in the model's order.
    pub inputs: Vec<Port>,
    /// Outputs, in the model's order.
    pub outputs: Vec<Port>,
    /// The symbols that occur in the dimensions of the inputs and outputs.
    pub symbols: Vec<Symbol>,
}

/// An input or an output.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Port {
    /// Name of the value, unique among the inputs or among the outputs.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Size of each dimension, as an expression of symbols: `batch`, `past + seq`, 384.
    pub dims: Vec<Dim>,
    /// A tensor, unless the model declares another kind.
    pub kind: Kind,
    /// Whether a [`Cache`](crate::Cache) can hold the value from call to call.
    pub is_state: bool,
}

/// A symbol of a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbol {
    /// Name of the symbol, as it occurs in the dimensions.
    pub name: String,
    /// The smallest value that is allowed in a call.
    pub lo: i64,
    /// The largest value that is allowed in a call; `None` if there is no maximum.
    pub hi: Option<i64>,
    /// Whether the symbol depends on the values of the inputs, and so is only known when a call ends.
    pub is_data: bool,
}

impl EntryPoint {
    pub(crate) fn new(program: &Program, entry: &Entry) -> EntryPoint {
        let ports = |ports: &[program::Port], states: &[Option<usize>]| -> Vec<Port> {
            ports.iter().zip(states).map(|(port, state)| Port::new(port, state.is_some())).collect()
        };
        let (inputs, outputs) =
            (ports(&entry.inputs, &entry.input_states), ports(&entry.outputs, &entry.output_states));
        let occurs = |symbol: &&program::Symbol| {
            let mut dims = inputs.iter().chain(&outputs).flat_map(|port| &port.dims);
            dims.any(|dim| dim.names().contains(symbol.name.as_str()))
        };
        let symbols = program.symbols.iter().filter(occurs).map(Symbol::new).collect();
        EntryPoint { name: entry.name.clone(), inputs, outputs, symbols }
    }
}

impl Port {
    fn new(port: &program::Port, is_state: bool) -> Port {
        let program::Port { name, dtype, dims, kind, .. } = port;
        Port { name: name.clone(), dtype: *dtype, dims: dims.clone(), kind: kind.clone(), is_state }
    }
}

impl Symbol {
    fn new(symbol: &program::Symbol) -> Symbol {
        let program::Symbol { name, kind, lo, hi } = symbol;
        Symbol { name: name.clone(), lo: *lo, hi: *hi, is_data: *kind == SymbolKind::Data }
    }
}
