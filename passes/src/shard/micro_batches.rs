//! a program with a batch, a number of micro-batches  =>  the program executed for one micro-batch after the other
//!
//! A batch is cut over time in the same way as a program is split over ranks: by the same rules, along a pseudo-axis
//! without ranks. Exchanges along this axis become operations of one program: parts are concatenated, partial sums
//! added. In a pipeline, each micro-batch passes a stage before the next one enters it, so that stages work on
//! different micro-batches at the same time. Where ranks share the work of each micro-batch, micro-batches alternate,
//! so that one computes while another one exchanges.

use super::redistribute::{Local, States};
use super::split::{Ranks, TIME};
use crate::remark::Missed;
use sardonyx_base::host::Collective;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::{Dim, Error, HostOp, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Graph, Node, Op, Place, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the batch: the first dimension, unless it is 1, of the first input that has one.
pub fn batch(graph: &Graph) -> Option<Dim> {
    graph.inputs().find_map(|(_, _, ty)| ty.dims.first().filter(|d| !d.is_const(1)).cloned())
}

/// When execution switches to the next micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// After the whole micro-batch.
    Whole,
    /// At each collective: the next micro-batch computes during the exchange.
    AtCollectives,
}

pub fn in_micro_batches(graph: &Graph, n: usize, turns: Turns) -> Result<(Graph, Vec<Missed>)> {
    let Some(batch) = batch(graph) else {
        let missed = Missed::because("there are no micro-batches", "no input has a batch in its first dimension");
        return Ok((graph.clone(), vec![missed]));
    };
    let cut = with_batch_placed(graph, &batch)?;
    let parts = (0..n).map(|i| part(&cut, n, i)).collect::<Result<Vec<Graph>>>()?;
    Merge::new(&parts).merged(&parts, turns).map(|merged| (merged, vec![]))
}

fn with_batch_placed(graph: &Graph, batch: &Dim) -> Result<Graph> {
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut now: Vec<Value> = vec![];
    for node in &graph.nodes {
        let args = node.args.iter().map(|a| now[a.index()]).collect();
        let v = out.push(Node { args, ..node.clone() });
        let is_batch = matches!(node.op, Op::Input { .. }) && node.ty.dims.first() == Some(batch);
        now.push(if is_batch {
            let place = Place { mesh: TIME, split: Some((0, Dim::constant(1), Dim::constant(1))) };
            out.add_as(Op::Place(Box::new(place)), &[v], None, &node.origins)?
        } else {
            v
        });
    }
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), now[v.index()])).collect();
    Ok(out)
}

/// Returns the program of one micro-batch.
fn part(graph: &Graph, n: usize, i: usize) -> Result<Graph> {
    let ranks = Ranks { axis: TIME, size: n as i64, coordinate: Dim::constant(i as i64) };
    let mut states = States::new();
    let mut local = Local::new(graph, ranks, &mut states);
    for (v, _) in graph.values() {
        local.place(v)?;
    }
    local.finish()?;
    Ok(local.into_graph())
}

/// Merges the programs of all micro-batches, which have the same operations, into one.
struct Merge {
    out: Graph,
    /// The merged program's value, by micro-batch and by value of the micro-batch's program.
    now: Vec<Vec<Option<Value>>>,
    groups: BTreeMap<(usize, usize), usize>,
}

impl Merge {
    fn new(parts: &[Graph]) -> Merge {
        let out = Graph { nodes: vec![], outputs: vec![], ..parts[0].clone() };
        let now = parts.iter().map(|part| vec![None; part.nodes.len()]).collect();
        Merge { out, now, groups: BTreeMap::new() }
    }

    fn merged(mut self, parts: &[Graph], turns: Turns) -> Result<Graph> {
        let n = parts[0].nodes.len();
        if parts.iter().any(|part| part.nodes.len() != n) {
            return Err(Error::defect("micro-batches have different programs"));
        }
        // Between two of these positions, the micro-batches are executed one after the other.
        let mut ends: BTreeSet<usize> = [n].into();
        for (at, node) in parts[0].nodes.iter().enumerate() {
            match turns {
                _ if joint(node).is_some() => drop(ends.insert(at)),
                Turns::Whole if goes_back(node) => drop(ends.insert(at)),
                Turns::AtCollectives if collective(node).is_some() => drop(ends.insert(at + 1)),
                Turns::Whole | Turns::AtCollectives => {}
            }
        }
        let mut begun = 0;
        for at in ends {
            for (i, part) in parts.iter().enumerate() {
                (begun..at).for_each(|v| self.push(parts, i, &part.nodes[v], v));
            }
            begun = at;
            if at < n && joint(&parts[0].nodes[at]).is_some() {
                self.join(parts, at)?;
                begun += 1;
            }
        }
        let outputs = parts[0].outputs.iter().map(|(name, v)| Ok((name.clone(), self.value(0, *v)?)));
        self.out.outputs = outputs.collect::<Result<_>>()?;
        Ok(self.out)
    }

    fn value(&self, i: usize, v: Value) -> Result<Value> {
        self.now[i][v.index()].ok_or_else(|| Error::defect("a micro-batch reads what nothing makes"))
    }

    /// Adds a node; a value that does not depend on the micro-batch is shared.
    fn push(&mut self, parts: &[Graph], i: usize, node: &Node, v: usize) {
        let args = |merge: &Merge, i: usize| -> Vec<Option<Value>> {
            parts[i].nodes[v].args.iter().map(|a| merge.now[i][a.index()]).collect()
        };
        let own = args(self, i);
        let first = &parts[0].nodes[v];
        let same = i > 0 && own == args(self, 0) && (&node.ty, &node.op) == (&first.ty, &first.op);
        if same {
            self.now[i][v] = self.now[0][v];
            return;
        }
        let mut op = node.op.clone();
        if let Op::Host(host) = &mut op {
            let fresh = self.groups.len();
            host.group = *self.groups.entry((i, host.group)).or_insert(fresh);
        }
        let args = own.into_iter().flatten().collect();
        self.now[i][v] = Some(self.out.push(Node { op, args, ..node.clone() }));
    }

    /// Adds a value that is computed from the values of all micro-batches.
    fn join(&mut self, parts: &[Graph], at: usize) -> Result<()> {
        let node = &parts[0].nodes[at];
        let own =
            (0..parts.len()).map(|i| self.value(i, parts[i].nodes[at].args[0])).collect::<Result<Vec<Value>>>()?;
        let joined = match joint(node) {
            Some(Collective::AllGather { dim, .. }) => {
                self.out.push(Node { op: Op::Concat { axis: dim }, args: own, ..node.clone() })
            }
            Some(Collective::AllReduce { f, .. }) => self.combined(f, &own, &node.origins)?,
            Some(Collective::ReduceScatter { f, dim, .. }) => {
                let sum = self.combined(f, &own, &node.origins)?;
                let mut start = Dim::constant(0);
                for (i, part) in parts.iter().enumerate() {
                    let node = &part.nodes[at];
                    let mut starts = vec![Dim::constant(0); node.ty.rank()];
                    starts[dim] = start.clone();
                    start = start + node.ty.dims[dim].clone();
                    let op = Op::Slice { starts, steps: vec![1; node.ty.rank()] };
                    self.now[i][at] = Some(self.out.push(Node { op, args: vec![sum], ..node.clone() }));
                }
                return Ok(());
            }
            other => return Err(Error::defect(format!("micro-batches exchange {other:?}"))),
        };
        self.now.iter_mut().for_each(|now| now[at] = Some(joined));
        Ok(())
    }

    fn combined(&mut self, f: Reduction, own: &[Value], origins: &[String]) -> Result<Value> {
        let f = ScalarFn::from_name(f.name()).ok_or_else(|| Error::defect("a reduction that is no function"))?;
        let (first, rest) = own.split_first().ok_or_else(|| Error::defect("no micro-batches"))?;
        rest.iter().try_fold(*first, |sum, next| self.out.add(Op::Map(f), &[sum, *next], origins))
    }
}

/// Returns the collective of the node, if it combines micro-batches.
fn joint(node: &Node) -> Option<Collective> {
    collective(node).filter(|op| op.mesh() == TIME)
}

pub fn collective(node: &Node) -> Option<Collective> {
    let Op::Host(host) = &node.op else { return None };
    if let HostOp::Collective(op) = host.op { Some(op) } else { None }
}

/// Whether a node sends a value back to an earlier stage, which would have to wait for the value before it continues
/// with the next micro-batch.
fn goes_back(node: &Node) -> bool {
    matches!(collective(node), Some(Collective::Send { from, to, .. }) if from > to)
}
