//! append(past, x)  =>  a kernel that writes the past followed by x, starting at the first position that is not kept
//!
//! In memory, past and result have spare capacity along the axis: a capacity symbol replaces the extent of this axis in
//! strides and sizes. If past and result of a call are in the same memory, the past is kept in place: another symbol
//! gives the number of kept positions, which the kernel does not write.

use super::{BodyBuilder, Converter, vars};
use crate::find_caches::{is_state, uses};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::{Container, FlowOp, Layout, Memlet, State, Step, Store};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::sdx::{Graph, Node, Op, Symbol, SymbolKind, Value, ir};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The layouts of the caches of a graph (pasts and results), and for each result the symbol that counts its kept
/// positions.
#[derive(Default)]
pub struct States {
    pub layouts: BTreeMap<Value, Layout>,
    pub kept: BTreeMap<Value, String>,
    pub symbols: Vec<(String, SymbolKind)>,
}

impl States {
    /// Finds the caches of a graph and names their symbols. Caches share symbols if their pasts have equal extents
    /// along the axis, and their results do, too.
    pub fn from_graph(graph: &Graph, taken: &BTreeSet<String>) -> States {
        let uses = uses(graph);
        let mut out = States::default();
        let mut pairs: Vec<([Dim; 2], [String; 3])> = vec![];
        for (v, node) in graph.values().filter(|(v, _)| is_state(graph, &uses, *v)) {
            let Op::Append { axis } = node.op else { continue };
            let dims = [node.args[0], v].map(|v| graph.ty(v).dims[axis].clone());
            let known = pairs.iter().find(|(d, _)| *d == dims).map(|(_, names)| names.clone());
            let names = known.unwrap_or_else(|| {
                let names = fresh(taken, &out.symbols);
                let kinds = [SymbolKind::Capacity, SymbolKind::Capacity, SymbolKind::Kept];
                // A past that is always empty has no positions to keep, so it needs no `kept` symbol.
                let used = if dims[0].is_const(0) { 2 } else { 3 };
                out.symbols.extend(names.clone().into_iter().zip(kinds).take(used));
                pairs.push((dims.clone(), names.clone()));
                names
            });
            let [size_in, size_out, kept] = names;
            for (v, size) in [(node.args[0], size_in), (v, size_out)] {
                out.layouts.insert(v, Layout::Capacity { axis, size: Dim::symbol(&size) });
            }
            if !dims[0].is_const(0) {
                out.kept.insert(v, kept);
            }
        }
        out
    }

    /// Returns, for each cache, the indices of its input and output, the symbol of its kept positions if there is one,
    /// and the parts that a rank holds.
    pub fn ports(&self, graph: &Graph) -> Vec<State> {
        let state = |(output, (_, v)): (usize, &(String, Value))| {
            let past = graph.node(*v).args.first().filter(|_| self.layouts.contains_key(v))?;
            let input = graph.inputs().position(|(input, _, _)| input == *past)?;
            let parts = graph.output_parts(*v).to_vec();
            Some(State { input, output, kept: self.kept.get(v).cloned(), parts })
        };
        let states = graph.outputs.iter().enumerate().filter_map(state);
        states.collect()
    }
}

/// Returns the first of these triples of names in which no name is taken: `capacity_in`, `capacity_out` and `kept`;
/// then `capacity1_in`, `capacity1_out` and `kept1`; and so on.
fn fresh(taken: &BTreeSet<String>, own: &[(String, SymbolKind)]) -> [String; 3] {
    let numbered = |base: &str, i: usize| if i == 0 { base.to_string() } else { format!("{base}{i}") };
    let names = |i: usize| {
        let capacity = numbered("capacity", i);
        [format!("{capacity}_in"), format!("{capacity}_out"), numbered("kept", i)]
    };
    let free = |names: &[String; 3]| {
        names.iter().all(|name| !taken.contains(name) && !own.iter().any(|(other, _)| other == name))
    };
    (0..).map(names).find(free).expect("finitely many names are taken")
}

/// Returns the names used in dimensions of any function of the module. Entry points share the names of capacity
/// symbols, so a capacity symbol must not have the name of a dimension in any function.
pub fn taken_names(module: Operation) -> Result<BTreeSet<String>> {
    let mut taken = BTreeSet::new();
    for function in module.block(0).map_or(vec![], |b| b.operations()) {
        let declared = ir::read_symbols(function.attr("sdx.symbols"))?;
        taken.extend(declared.into_iter().filter(|(_, s)| !is_of_memory(s)).map(|(n, _)| n));
        let checks = ir::read_checks(function.attr("sdx.checks"))?;
        let mentioned = checks.iter().flat_map(|c| c.left.names().into_iter().chain(c.right.names()));
        taken.extend(mentioned.map(|s| s.to_string()));
        let arguments = function.block(0).map_or(vec![], |b| b.arguments());
        let shapes = arguments.iter().filter_map(|v| v.ty().as_shaped());
        taken.extend(shapes.flat_map(|(dims, _)| dims).flat_map(|d| d.names()).map(|s| s.to_string()));
    }
    Ok(taken)
}

/// Returns whether a symbol describes the memory of caches; entry points share such symbols.
fn is_of_memory(symbol: &Symbol) -> bool {
    matches!(symbol.kind, SymbolKind::Capacity | SymbolKind::Kept)
}

impl Converter<'_> {
    /// Adds the kernel of an append. It is the kernel of a concat unless the result is a cache. The kernel of a cache
    /// starts at the first position that is not kept, or reads only the new positions if the past is always empty.
    pub fn append_kernel(&mut self, v: Value, axis: usize, node: &Node) -> Result<usize> {
        let Some(layout) = self.states.layouts.get(&v).cloned() else { return self.concat_kernel(axis, node) };
        let result = Container { layout, ..Container::plain(node.ty.dtype, node.ty.dims.clone()) };
        let Some(kept) = self.states.kept.get(&v).map(|name| Dim::symbol(name)) else {
            let index = vars(0, node.ty.rank());
            return self.write_at(BodyBuilder::new(&node.ty.dims, &[]), node.args[1], index, result, node);
        };
        let mut extents = node.ty.dims.clone();
        extents[axis] = extents[axis].clone() - kept.clone();
        let mut b = BodyBuilder::new(&extents, &[]);
        let mut index = vars(0, node.ty.rank());
        index[axis] = index[axis].clone() + kept;
        let value = self.joined(&mut b, axis, &index, node)?;
        Ok(self.store_at(b, value, index, result, node))
    }

    /// Adds the kernel result[index] = operand[%0, %1, …].
    fn write_at(
        &mut self,
        mut b: BodyBuilder,
        operand: Value,
        index: Vec<Dim>,
        result: Container,
        node: &Node,
    ) -> Result<usize> {
        let value = self.read(&mut b, operand, vars(0, index.len()), None)?;
        Ok(self.store_at(b, value, index, result, node))
    }

    /// Adds the kernel result[index] = value.
    fn store_at(&mut self, mut b: BodyBuilder, value: usize, index: Vec<Dim>, result: Container, node: &Node) -> usize {
        b.kernel.stores.push(Store { memlet: Memlet { container: 0, index }, value });
        b.kernel.writes.push(result.clone());
        let id = self.program.container(result);
        let (op, origins) = (FlowOp::Kernel(Arc::new(b.kernel)), node.origins.clone());
        self.program.steps.push(Step { op, args: b.args, results: vec![id], origins });
        id
    }

    /// Returns a contiguous container of a value, as views require; for a value with spare capacity, this is a copy.
    pub fn dense(&mut self, v: Value) -> Result<usize> {
        let id = self.materialise(v)?;
        match self.program.containers[id].layout {
            Layout::RowMajor | Layout::Order(_) => Ok(id),
            Layout::Capacity { .. } => {
                let node = self.graph.node(v).clone();
                let result = Container { layout: Layout::RowMajor, ..self.program.containers[id].clone() };
                let b = BodyBuilder::new(&node.ty.dims, &[]);
                self.write_at(b, v, vars(0, node.ty.rank()), result, &node)
            }
        }
    }
}
