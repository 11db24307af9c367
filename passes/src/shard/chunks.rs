//! a contraction and a collective on its result, a number of chunks  =>  both operations for each chunk of rows
//!
//! Alternatively, the whole program is executed in alternating micro-batches. The exchange of one chunk can overlap
//! with the computation of the next (`overlap.rs`). The rows are a dimension of the operand that is computed in the
//! call: each chunk reads the same weights, and its results equal those of the whole.

use super::micro_batches::{Turns, collective, in_micro_batches};
use super::redistribute::fixed_values;
use super::split::part_in_time;
use super::stages::check_no_state;
use crate::placement::Overlap;
use crate::remark::Missed;
use crate::usual::{self, USUAL};
use sardonyx_base::host::Collective;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::sdx::{Graph, Host, Node, Op, TensorType, Value};

/// Returns the program with computation that can overlap with exchanges. Errors: E0108 if the program
/// grows a cache in place, or if the overlap names a node without a contraction that only a collective reads.
pub fn overlapped(graph: &Graph, overlap: &Overlap) -> Result<(Graph, Vec<Missed>)> {
    let (cut, missed) = match overlap.micro_batches {
        1 => (graph.clone(), vec![]),
        n => {
            check_no_state(graph, "cannot take turns")?;
            in_micro_batches(graph, n, Turns::AtCollectives)?
        }
    };
    if overlap.chunks > 1 { in_chunks(&cut, overlap).map(|cut| (cut, missed)) } else { Ok((cut, missed)) }
}

fn in_chunks(graph: &Graph, overlap: &Overlap) -> Result<Graph> {
    let mut sites = sites(graph);
    sites.retain(|site| overlap.is_for(&graph.node(site.collective).origins));
    let is_cut = |name: &&String| sites.iter().any(|s| graph.node(s.collective).origins.contains(*name));
    if let Some(name) = overlap.nodes.iter().find(|name| !is_cut(name)) {
        let message =
            format!("nothing of `{name}` can be computed while ranks exchange: no product with rows has a collective");
        return Err(Error::user("E0108", message).help("leave the node out of `nodes` of `[overlap]`"));
    }
    let (out, next_group) = (Graph { nodes: vec![], outputs: vec![], ..graph.clone() }, graph.next_group());
    let mut chunked = Chunked { out, now: vec![], next_group };
    for (v, node) in graph.values() {
        let now = match sites.iter().find(|site| site.collective == v || site.contraction == v) {
            // This entry is never read: the only consumer is the collective, which computes the contraction in chunks.
            Some(site) if site.contraction == v => chunked.now[node.args[0].index()],
            Some(site) => chunked.chunks(graph, site, overlap.chunks)?,
            None => {
                let args = node.args.iter().map(|a| chunked.now[a.index()]).collect();
                chunked.out.push(Node { args, ..node.clone() })
            }
        };
        chunked.now.push(now);
    }
    chunked.out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), chunked.now[v.index()])).collect();
    Ok(chunked.out)
}

/// A contraction whose only consumer is a collective.
struct Site {
    contraction: Value,
    collective: Value,
    /// Dimension along which both results are cut; `factor` is the operand (0 or 1) that has it, and its index there.
    dim: usize,
    factor: (usize, usize),
}

impl Site {
    fn rows<'g>(&self, graph: &'g Graph) -> &'g Dim {
        &graph.ty(self.contraction).dims[self.dim]
    }
}

fn sites(graph: &Graph) -> Vec<Site> {
    let mut readers = vec![0; graph.nodes.len()];
    graph
        .nodes
        .iter()
        .flat_map(|n| &n.args)
        .chain(graph.outputs.iter().map(|(_, v)| v))
        .for_each(|v| readers[v.index()] += 1);
    let fixed = fixed_values(graph);
    let dims: Vec<&[Dim]> = graph.inputs().map(|(_, _, ty)| ty.dims.as_slice()).collect();
    let sizes = usual::usual(&graph.symbols, dims, USUAL);
    let size = |d: &Dim| d.eval_named(&|name| sizes.get(name).copied()).unwrap_or(0);
    let site = |(v, node): (Value, &Node)| {
        let op = collective(node)?;
        let [contraction] = node.args[..] else { return None };
        let made = graph.node(contraction);
        let Op::Contract(spec) = &made.op else { return None };
        if readers[contraction.index()] != 1 {
            return None;
        }
        let cuttable = |dim: &usize| match op {
            Collective::AllReduce { .. } => true,
            Collective::AllGather { dim: joined, .. } | Collective::ReduceScatter { dim: joined, .. } => *dim != joined,
            _ => false,
        };
        let of_factor = |dim: usize| {
            let letter = spec.result[dim];
            let at = |side: &[char]| side.iter().position(|c| *c == letter);
            match (at(&spec.left), at(&spec.right)) {
                (Some(at), None) if !fixed[made.args[0].index()] => Some((0, at)),
                (None, Some(at)) if !fixed[made.args[1].index()] => Some((1, at)),
                _ => None,
            }
        };
        let rows = (0..spec.result.len()).filter(cuttable).filter_map(|dim| Some((dim, of_factor(dim)?)));
        // Of equally long dimensions, the outer one is cut, as its chunks are contiguous.
        let (dim, factor) = rows.max_by_key(|(dim, _)| (size(&made.ty.dims[*dim]), std::cmp::Reverse(*dim)))?;
        (!made.ty.dims[dim].is_const(1)).then_some(Site { contraction, collective: v, dim, factor })
    };
    graph.values().filter_map(site).collect()
}

struct Chunked {
    out: Graph,
    now: Vec<Value>,
    next_group: usize,
}

impl Chunked {
    fn chunks(&mut self, graph: &Graph, site: &Site, n: usize) -> Result<Value> {
        let (made, all) = (graph.node(site.contraction), graph.node(site.collective));
        let Op::Host(host) = &all.op else { return Err(Error::defect("a collective that is no host operation")) };
        let (operand, at) = site.factor;
        let mut parts = vec![];
        for i in 0..n as i64 {
            let [start, rows] = part_in_time(site.rows(graph), n as i64, i);
            let cut = |ty: &TensorType, dim: usize| {
                let mut dims = ty.dims.clone();
                dims[dim] = rows.clone();
                TensorType::new(ty.dtype, dims)
            };
            let whole = graph.ty(made.args[operand]);
            let mut starts = vec![Dim::constant(0); whole.rank()];
            starts[at] = start;
            let op = Op::Slice { starts, steps: vec![1; whole.rank()] };
            let args = vec![self.now[made.args[operand].index()]];
            let slice = self.out.push(Node { op, args, ty: cut(whole, at), origins: made.origins.clone() });
            let mut args: Vec<Value> = made.args.iter().map(|a| self.now[a.index()]).collect();
            args[operand] = slice;
            let part = self.out.push(Node { args, ty: cut(&made.ty, site.dim), ..made.clone() });
            let op = Op::Host(Box::new(Host { group: self.next_group, ..(**host).clone() }));
            self.next_group += 1;
            parts.push(self.out.push(Node {
                op,
                args: vec![part],
                ty: cut(&all.ty, site.dim),
                origins: all.origins.clone(),
            }));
        }
        Ok(self.out.push(Node { op: Op::Concat { axis: site.dim }, args: parts, ..all.clone() }))
    }
}
