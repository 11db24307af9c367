//! graph, parameters, inputs  =>  for each operator, the number of distinct elements that it reads and writes
//!
//! Views are evaluated on the numbers (flat indices) of elements instead of their values: a transposed slice then
//! contains the numbers of the elements it shows. Tests compare the counts with formulas, which this code does not use.

use super::bind::Symbols;
use super::kernel::Touched;
use super::world::Alone;
use super::{evaluate, run_all};
use crate::params::ParamValues;
use crate::sdx::{Graph, Node, Op, Read, Reading, TensorType, Value, viewed};
use sardonyx_base::{DType, Error, Result, Tensor};
use std::collections::BTreeMap;

/// Runs the graph; returns the counts of each operator of [`Graph::operators`], in that order.
pub fn count_graph(graph: &Graph, params: &dyn ParamValues, inputs: &[(String, Tensor)]) -> Result<Vec<Touched>> {
    let operators = graph.operators();
    let reads = || operators.iter().flat_map(|o| &o.reads);
    let gathers = reads().flat_map(|r| &r.through).filter_map(|(_, reading)| match reading {
        Reading::All => None,
        Reading::Gathered(gather) => Some(*gather),
    });
    let mut counter = Counter {
        graph,
        symbols: Symbols::new(graph.into(), inputs, &Alone)?,
        dims: vec![vec![]; graph.nodes.len()],
        shown: BTreeMap::new(),
        indices: gathers.map(|g| (graph.node(g).args[1], None)).collect(),
    };
    let live = graph.live();
    run_all(graph, params, inputs, &mut |v, value| match live[v.index()] {
        true => counter.see(v, value),
        false => Ok(()),
    })?;
    let touched = |o: &crate::sdx::Operator| {
        let reads = o.reads.iter().map(|r| counter.distinct(r)).collect::<Result<_>>()?;
        Ok(Touched { reads, writes: o.writes.iter().map(|v| counter.len(*v)).collect() })
    };
    operators.iter().map(touched).collect()
}

struct Counter<'g> {
    graph: &'g Graph,
    symbols: Symbols<'g>,
    dims: Vec<Vec<usize>>,
    /// For each view, the numbers of its root's elements, in the view's shape.
    shown: BTreeMap<Value, Tensor>,
    /// Index operands of the gathers that are counted; `None` until they are computed.
    indices: BTreeMap<Value, Option<Tensor>>,
}

impl Counter<'_> {
    fn see(&mut self, v: Value, value: &Tensor) -> Result<()> {
        let node = self.graph.node(v);
        self.dims[v.index()] = value.dims().to_vec();
        if let Some(kept) = self.indices.get_mut(&v) {
            *kept = Some(value.clone());
        }
        if let Op::Bind { symbol } = &node.op {
            let bound = value.get_i64(0).ok_or_else(|| Error::defect("a symbol is bound to one i64"))?;
            self.symbols.bind(symbol, bound)?;
        }
        if let Op::Host(host) = &node.op {
            for (axis, symbol) in &host.binds {
                self.symbols.bind(symbol, value.dims().get(*axis).map_or(0, |&n| n as i64))?;
            }
        }
        if let Some(of) = viewed(node) {
            let numbers = self.numbers(of);
            let shown = match &node.op {
                Op::Bind { .. } => numbers,
                _ => self.on_numbers(node, &[numbers])?,
            };
            self.shown.insert(v, shown);
        }
        Ok(())
    }

    fn len(&self, v: Value) -> usize {
        self.dims[v.index()].iter().product()
    }

    /// The numbers of the root's elements that a value shows.
    fn numbers(&self, v: Value) -> Tensor {
        let all = || Tensor::from_vec(self.dims[v.index()].clone(), (0..self.len(v) as i64).collect());
        self.shown.get(&v).cloned().unwrap_or_else(all)
    }

    /// Evaluates an operation that only moves elements, on the numbers of the elements instead of the elements.
    fn on_numbers(&self, node: &Node, args: &[Tensor]) -> Result<Tensor> {
        let ty = TensorType::new(DType::I64, node.ty.dims.clone());
        evaluate(&Node { ty, ..node.clone() }, args, &|s| self.symbols.get(s))
    }

    fn distinct(&self, read: &Read) -> Result<usize> {
        let mut seen = vec![false; self.len(read.root)];
        for (v, reading) in &read.through {
            let numbers = match reading {
                Reading::All => self.numbers(*v),
                Reading::Gathered(gather) => {
                    let node = self.graph.node(*gather);
                    let indices = self.indices.get(&node.args[1]).cloned().flatten();
                    let indices = indices.ok_or_else(|| Error::defect("a gather without indices"))?;
                    self.on_numbers(node, &[self.numbers(*v), indices])?
                }
            };
            for i in (0..numbers.len()).filter_map(|i| numbers.get_i64(i)) {
                seen[i as usize] = true;
            }
        }
        Ok(seen.into_iter().filter(|s| *s).count())
    }
}
