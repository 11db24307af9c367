//! append(past, x)  =>  a kernel that carries the past over, and one that writes x behind it into the same memory
//!
//! In memory the axis of either has room for more than is there: a capacity symbol counts in strides and sizes. Where
//! a call keeps past and result in one memory, the first kernel has nothing to do and is left out.

use super::{BodyBuilder, Converter, vars};
use crate::find_caches::{is_state, uses};
use sardonyx_dialects::flow::{Container, FlowOp, Layout, Memlet, Step, Store};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::sdx::{Graph, Node, Op, Symbol, SymbolKind, Value, ir};
use sardonyx_runtime::{Dim, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The layouts of the pasts and of the results of a graph's states.
#[derive(Default)]
pub struct States {
    pub layouts: BTreeMap<Value, Layout>,
    pub symbols: Vec<String>,
}

impl States {
    /// States of equal dimensions share their capacities.
    pub fn of(graph: &Graph, taken: &BTreeSet<String>) -> States {
        let uses = uses(graph);
        let mut out = States::default();
        let mut pairs: Vec<([Dim; 2], [Dim; 2])> = vec![];
        for (v, node) in graph.values().filter(|(v, _)| is_state(graph, &uses, *v)) {
            let Op::Append { axis } = node.op else { continue };
            let dims = [node.args[0], v].map(|v| graph.ty(v).dims[axis].clone());
            let known = pairs.iter().find(|(d, _)| *d == dims).map(|(_, sizes)| sizes.clone());
            let sizes = known.unwrap_or_else(|| {
                let names = fresh(taken, &out.symbols);
                let sizes = names.clone().map(|n| Dim::symbol(&n));
                out.symbols.extend(names);
                pairs.push((dims, sizes.clone()));
                sizes
            });
            for (v, size) in [node.args[0], v].into_iter().zip(sizes) {
                out.layouts.insert(v, Layout::Capacity { axis, size });
            }
        }
        out
    }
}

/// `capacity_in` and `capacity_out`, or with the first number that makes them new.
fn fresh(taken: &BTreeSet<String>, own: &[String]) -> [String; 2] {
    let base = |i: usize| if i == 0 { "capacity".to_string() } else { format!("capacity{i}") };
    let names = |i: usize| ["in", "out"].map(|end| format!("{}_{end}", base(i)));
    let free = |n: &[String; 2]| n.iter().all(|n| !taken.contains(n) && !own.contains(n));
    (0..).map(names).find(free).expect("finitely many names are taken")
}

/// The names that dimensions of any function of the module have: entry points share the capacities' names, and none
/// may be another one's dimension.
pub fn taken_names(module: Operation) -> Result<BTreeSet<String>> {
    let mut taken = BTreeSet::new();
    for function in module.block(0).map_or(vec![], |b| b.operations()) {
        let declared = ir::read_symbols(function.attr("sdx.symbols"))?;
        taken.extend(declared.into_iter().filter(|(_, s)| s.kind != SymbolKind::Capacity).map(|(n, _)| n));
        let checks = ir::read_checks(function.attr("sdx.checks"))?;
        let mentioned = checks.iter().flat_map(|c| c.left.symbols().into_iter().chain(c.right.symbols()));
        taken.extend(mentioned.map(|s| s.to_string()));
        let arguments = function.block(0).map_or(vec![], |b| b.arguments());
        let shapes = arguments.iter().filter_map(|v| v.ty().as_shaped());
        taken.extend(shapes.flat_map(|(dims, _)| dims).flat_map(|d| d.symbols()).map(|s| s.to_string()));
    }
    Ok(taken)
}

pub fn capacity_symbol() -> Symbol {
    Symbol { kind: SymbolKind::Capacity, lo: 0, hi: None }
}

impl Converter<'_> {
    /// Two kernels over one memory, or a concat's one where the append is no state.
    pub fn append_kernels(&mut self, v: Value, axis: usize, node: &Node) -> Result<usize> {
        let Some(layout) = self.states.layouts.get(&v).cloned() else { return self.concat_kernel(axis, node) };
        let [past, new] = [0, 1].map(|i| self.graph.ty(node.args[i]).clone());
        let dims = past.dims.clone();
        let begun = Container { dtype: node.ty.dtype, dims, layout: layout.clone() };
        let b = BodyBuilder::new(&past.dims, &[]);
        let begun = self.write_at(b, node.args[0], vars(0, past.rank()), begun, None, node)?;
        let mut index = vars(0, new.rank());
        index[axis] = index[axis].clone() + past.dims[axis].clone();
        let result = Container { dtype: node.ty.dtype, dims: node.ty.dims.clone(), layout };
        self.write_at(BodyBuilder::new(&new.dims, &[]), node.args[1], index, result, Some(begun), node)
    }

    /// result[index] = operand[%…]
    fn write_at(
        &mut self,
        mut b: BodyBuilder,
        operand: Value,
        index: Vec<Dim>,
        result: Container,
        update: Option<usize>,
        node: &Node,
    ) -> Result<usize> {
        let value = self.read(&mut b, operand, vars(0, index.len()), None)?;
        b.kernel.stores.push(Store { memlet: Memlet { container: 0, index }, value });
        b.kernel.writes.push(result.clone());
        let id = self.program.container(result);
        let (op, origins) = (FlowOp::Kernel(Box::new(b.kernel)), node.origins.clone());
        self.program.steps.push(Step { op, args: b.args, update, results: vec![id], origins });
        Ok(id)
    }

    /// The container of a value as a view needs it, without room between its elements: a copy of one that has room.
    pub fn dense(&mut self, v: Value) -> Result<usize> {
        let id = self.materialise(v)?;
        match self.program.containers[id].layout {
            Layout::RowMajor | Layout::Panels { .. } => Ok(id),
            Layout::Capacity { .. } => {
                let node = self.graph.node(v).clone();
                let result = Container { layout: Layout::RowMajor, ..self.program.containers[id].clone() };
                let b = BodyBuilder::new(&node.ty.dims, &[]);
                self.write_at(b, v, vars(0, node.ty.rank()), result, None, &node)
            }
        }
    }
}
