//! an entry point  =>  the shapes that a request must have, and the dimension along which requests may be stacked

use crate::refusal::{Answer, Refusal};
use sardonyx_base::{DType, Dim, Kind, Tensor};
use sardonyx_runtime::{EntryPoint, Port, Symbol};
use std::collections::BTreeMap;

/// The inputs and outputs of the entry point that is served.
#[derive(Clone, Debug)]
pub struct Ports {
    pub entry: EntryPoint,
    /// The symbol that is the first dimension of every input and output, and occurs in no other dimension.
    pub stacked: Option<Symbol>,
}

impl Ports {
    pub fn new(entry: EntryPoint) -> Ports {
        let stacked = common_first_symbol(&entry).cloned();
        Ports { entry, stacked }
    }

    pub fn inputs(&self) -> &[Port] {
        &self.entry.inputs
    }

    /// Returns the outputs that the protocol can carry, which are tensors.
    pub fn outputs(&self) -> impl Iterator<Item = &Port> {
        self.entry.outputs.iter().filter(|port| port.kind == Kind::Tensor)
    }

    pub fn input(&self, name: &str) -> Answer<&Port> {
        let found = self.inputs().iter().find(|port| port.name == name);
        let port = found.ok_or_else(|| {
            Refusal::input(format!("the model has no input `{name}`"), known("input", self.inputs().iter()))
        })?;
        match port.kind {
            Kind::Tensor => Ok(port),
            _ => Err(Refusal::input(format!("the input `{name}` is no tensor"), "call the model from a program")),
        }
    }

    pub fn check_output(&self, name: &str) -> Answer<()> {
        match self.outputs().any(|port| port.name == name) {
            true => Ok(()),
            false => Err(Refusal::input(format!("the model has no output `{name}`"), known("output", self.outputs()))),
        }
    }

    /// Refuses dimensions that the port cannot have, whatever the other inputs are.
    pub fn check_dims(&self, port: &Port, dims: &[usize]) -> Answer<()> {
        let wrong = |message: String| {
            let wanted: Vec<String> = port.dims.iter().map(Dim::to_string).collect();
            let help = format!("send `{}` with the shape [{}]", port.name, wanted.join(", "));
            Err(Refusal::input(format!("the input `{}` {message}", port.name), help))
        };
        if dims.len() != port.dims.len() {
            return wrong(format!("has {} dimensions instead of {}", dims.len(), port.dims.len()));
        }
        for (axis, (dim, given)) in port.dims.iter().zip(dims).enumerate() {
            let size = i64::try_from(*given).unwrap_or(i64::MAX);
            if dim.as_const().is_some_and(|wanted| wanted != size) {
                return wrong(format!("has the size {given} in dimension {axis} instead of {dim}"));
            }
            let symbol = dim.as_name().and_then(|name| self.symbol(name));
            if let Some(Symbol { name, lo, hi, .. }) =
                symbol.filter(|s| size < s.lo || s.hi.is_some_and(|hi| size > hi))
            {
                let range = hi.map_or(format!("{lo} and more"), |hi| format!("{lo} to {hi}"));
                return wrong(format!("has the size {given} in dimension {axis}, where `{name}` may be {range}"));
            }
        }
        Ok(())
    }

    fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.entry.symbols.iter().find(|symbol| symbol.name == name)
    }

    /// Returns the number of positions: the product of the sizes of all symbols that are dimensions of inputs, where a
    /// size of 0 counts as 1. Refuses inputs that give a symbol different sizes.
    pub fn positions(&self, inputs: &[Tensor]) -> Answer<usize> {
        let mut sizes: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for (port, tensor) in self.inputs().iter().zip(inputs) {
            for (dim, size) in port.dims.iter().zip(tensor.dims()) {
                let Some(symbol) = dim.as_name() else { continue };
                let (first, of) = *sizes.entry(symbol).or_insert((*size, &port.name));
                if first != *size {
                    let message =
                        format!("`{symbol}` is {first} in the input `{of}`, but {size} in the input `{}`", port.name);
                    return Err(Refusal::input(message, format!("send both with the same `{symbol}`")));
                }
            }
        }
        Ok(sizes.values().fold(1, |n: usize, (size, _)| n.saturating_mul((*size).max(1))))
    }
}

/// Returns a help text that lists the names of the ports.
fn known<'a>(kind: &str, ports: impl Iterator<Item = &'a Port>) -> String {
    let names: Vec<String> = ports.map(|port| format!("`{}`", port.name)).collect();
    format!("the model's {kind}s are {}", names.join(", "))
}

/// Returns the symbol for [`Ports::stacked`]. Shapes alone do not prove that rows are independent: see `stacking.rs`.
fn common_first_symbol(entry: &EntryPoint) -> Option<&Symbol> {
    let first = entry.inputs.first()?.dims.first()?.as_name()?;
    let stacks = |port: &Port| {
        let mut dims = port.dims.iter();
        port.kind == Kind::Tensor
            && !port.is_state
            && port.dtype != DType::String
            && dims.next().and_then(Dim::as_name) == Some(first)
            && dims.all(|dim| !dim.names().contains(first))
    };
    let symbol = entry.symbols.iter().find(|symbol| symbol.name == first && !symbol.is_data)?;
    let is_data = |port: &Port| port.dims.iter().any(|dim| has_data_symbol(entry, dim));
    let all = entry.inputs.iter().chain(&entry.outputs).all(stacks);
    (all && !entry.outputs.iter().any(is_data)).then_some(symbol)
}

/// Returns whether the dimension depends on the data, and therefore on all requests of a batch.
fn has_data_symbol(entry: &EntryPoint, dim: &Dim) -> bool {
    let symbols = dim.names();
    entry.symbols.iter().any(|symbol| symbol.is_data && symbols.contains(symbol.name.as_str()))
}
