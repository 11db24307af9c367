//! small all-reduces that do not depend on each other  =>  one all-reduce of their operands, joined
//!
//! Every all-reduce takes some time for all ranks to meet, however few bytes it has. Joining operands saves that time
//! and copies them twice. Which neighbours are joined is found by dynamic programming over the all-reduces in their
//! order: the least total time of the first n. Elements are combined as before, in the order of the ranks, so no bits
//! change.

use super::micro_batches::collective;
use super::seed::{BANDWIDTH, LATENCY};
use crate::usual;
use sardonyx_base::host::Collective;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::usual::LARGE;
use sardonyx_base::{DType, Dim, Error, Result};
use sardonyx_dialects::sdx::{Graph, Host, Node, Op, TensorType, Value};
use std::collections::BTreeSet;

/// Maximum number of all-reduces in a bucket, that is, joined to one.
const JOINED_MAX: usize = 16;

/// Returns the program with small all-reduces joined where that takes less time.
pub fn joined(graph: &Graph) -> Result<Graph> {
    let kinds: BTreeSet<Kind> = graph.nodes.iter().filter_map(kind).collect();
    let mut out = graph.clone();
    // One kind after the other, so that no two buckets depend on each other.
    for kind in kinds {
        let buckets = buckets(&out, kind);
        if !buckets.is_empty() {
            out = joined_in(&out, buckets)?;
        }
    }
    Ok(out)
}

fn joined_in(graph: &Graph, buckets: Vec<Vec<Value>>) -> Result<Graph> {
    let out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut joining =
        Joining { graph, out, now: vec![None; graph.nodes.len()], buckets, next_group: graph.next_group() };
    for (v, _) in graph.values() {
        joining.value(v)?;
    }
    let outputs = graph.outputs.iter().map(|(name, v)| Ok((name.clone(), joining.value(*v)?)));
    joining.out.outputs = outputs.collect::<Result<_>>()?;
    Ok(joining.out)
}

/// All-reduces of one kind: axis of the mesh, function, type.
type Kind = (usize, Reduction, DType);

fn kind(node: &Node) -> Option<Kind> {
    match collective(node)? {
        Collective::AllReduce { mesh, f } => Some((mesh, f, node.ty.dtype)),
        _ => None,
    }
}

/// Returns the all-reduces of a kind that are joined, bucket by bucket.
fn buckets(graph: &Graph, of: Kind) -> Vec<Vec<Value>> {
    // Joining a dead all-reduce would keep it from being removed.
    let live = graph.live();
    let members = graph.values().filter(|(v, node)| live[v.index()] && kind(node) == Some(of));
    let members: Vec<Value> = members.map(|(v, _)| v).collect();
    let dims: Vec<&[Dim]> = graph.inputs().map(|(_, _, ty)| ty.dims.as_slice()).collect();
    // Sizes are those of a large call: a bucket that saves time there saves more in a small call.
    let sizes = usual::usual(&graph.symbols, dims, LARGE);
    let seconds = |v: &Value| {
        let n = graph.ty(*v).elements().eval_named(&|name| sizes.get(name).copied().or(Some(0)));
        n.unwrap_or(i64::MAX) as f64 * of.2.bytes() as f64 / BANDWIDTH
    };
    let times: Vec<f64> = members.iter().map(seconds).collect();
    let ranges = cheapest(&times, &independent_since(graph, &members), LATENCY);
    ranges.into_iter().filter(|(start, end)| end - start > 1).map(|(start, end)| members[start..end].to_vec()).collect()
}

/// Returns, for each member, the least index such that no member from there up to this one depends on another.
fn independent_since(graph: &Graph, members: &[Value]) -> Vec<usize> {
    // By value: the last member that it depends on or is, if any.
    let mut last: Vec<Option<usize>> = vec![];
    let mut first = vec![];
    for (v, node) in graph.values() {
        let mut depends = node.args.iter().filter_map(|a| last[a.index()]).max();
        if members.get(first.len()) == Some(&v) {
            let before = first.last().copied().unwrap_or(0);
            first.push(depends.map_or(before, |at| before.max(at + 1)));
            depends = Some(first.len() - 1);
        }
        last.push(depends);
    }
    first
}

/// Returns ranges of members such that the total time is least. `seconds` are transfer times; a range takes the latency
/// and the sum of these, three times if it has several members, whose operands are copied twice. No range that ends
/// with member i begins before `first[i]`.
fn cheapest(seconds: &[f64], first: &[usize], latency: f64) -> Vec<(usize, usize)> {
    let takes = |start: usize, end: usize| {
        let transfer: f64 = seconds[start..end].iter().sum();
        latency + if end - start > 1 { 3.0 * transfer } else { transfer }
    };
    let mut least: Vec<(f64, usize)> = vec![(0.0, 0)];
    for end in 1..=seconds.len() {
        let from = first[end - 1].max(end.saturating_sub(JOINED_MAX));
        let ways = (from..end).map(|start| (least[start].0 + takes(start, end), start));
        least.push(ways.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, end - 1)));
    }
    let (mut end, mut ranges) = (seconds.len(), vec![]);
    while end > 0 {
        let start = least[end].1;
        ranges.push((start, end));
        end = start;
    }
    ranges.reverse();
    ranges
}

struct Joining<'g> {
    graph: &'g Graph,
    out: Graph,
    /// By value of the program: its value in the result, if it has been added.
    now: Vec<Option<Value>>,
    buckets: Vec<Vec<Value>>,
    next_group: usize,
}

impl Joining<'_> {
    /// Adds a value, after all that it depends on and, if it is joined, after all that its bucket depends on.
    fn value(&mut self, wanted: Value) -> Result<Value> {
        let mut open = vec![wanted];
        while let Some(&v) = open.last() {
            if self.now[v.index()].is_some() {
                open.pop();
                continue;
            }
            let bucket = self.buckets.iter().position(|bucket| bucket.contains(&v));
            let members: Vec<Value> = bucket.map_or_else(|| vec![v], |at| self.buckets[at].clone());
            let operands: BTreeSet<Value> =
                members.iter().flat_map(|m| self.graph.node(*m).args.iter().copied()).collect();
            let missing: Vec<Value> = operands.into_iter().filter(|a| self.now[a.index()].is_none()).collect();
            if !missing.is_empty() {
                open.extend(missing.into_iter().rev());
                continue;
            }
            match bucket {
                Some(_) => self.join(&members)?,
                None => {
                    let node = self.graph.node(v);
                    let args = node.args.iter().filter_map(|a| self.now[a.index()]).collect();
                    self.now[v.index()] = Some(self.out.push(Node { args, ..node.clone() }));
                }
            }
        }
        self.now[wanted.index()].ok_or_else(|| Error::defect("a value that was not added"))
    }

    /// Adds one all-reduce for all members, whose operands have been added.
    fn join(&mut self, members: &[Value]) -> Result<()> {
        let first = self.graph.node(members[0]);
        let dtype = first.ty.dtype;
        let origins: Vec<String> = members.iter().flat_map(|m| self.graph.node(*m).origins.clone()).collect();
        let flat = |n: &Dim| TensorType::new(dtype, vec![n.clone()]);
        let (mut parts, mut sizes) = (vec![], vec![]);
        for m in members {
            let node = self.graph.node(*m);
            let operand: Vec<Value> = node.args.iter().filter_map(|a| self.now[a.index()]).collect();
            let n = node.ty.elements();
            parts.push(self.out.add_as(Op::Reshape, &operand, Some(flat(&n)), &node.origins)?);
            sizes.push(n);
        }
        let whole = flat(&sizes.iter().cloned().fold(Dim::constant(0), |all, n| all + n));
        let all = self.out.add_as(Op::Concat { axis: 0 }, &parts, None, &origins)?;
        let Op::Host(host) = &first.op else { return Err(Error::defect("a collective is a host operation")) };
        let host = Host { group: self.next_group, ..(**host).clone() };
        self.next_group += 1;
        let all = self.out.add_as(Op::Host(Box::new(host)), &[all], Some(whole), &origins)?;
        let mut start = Dim::constant(0);
        for (m, n) in members.iter().zip(sizes) {
            let node = self.graph.node(*m);
            let slice = Op::Slice { starts: vec![start.clone()], steps: vec![1] };
            let own = self.out.add_as(slice, &[all], Some(flat(&n)), &node.origins)?;
            self.now[m.index()] = Some(self.out.add_as(Op::Reshape, &[own], Some(node.ty.clone()), &node.origins)?);
            start = start + n;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The least total time over all ways to cut a list into ranges.
    fn least(seconds: &[f64], first: &[usize], latency: f64) -> f64 {
        let n = seconds.len();
        let mut best = f64::INFINITY;
        for cuts in 0u32..1 << (n - 1) {
            let mut start = 0;
            let mut total = 0.0;
            for end in 1..=n {
                if end < n && cuts >> (end - 1) & 1 == 0 {
                    continue;
                }
                let transfer: f64 = seconds[start..end].iter().sum();
                let is_allowed = first[end - 1] <= start;
                let takes = latency + transfer * if end - start > 1 { 3.0 } else { 1.0 };
                total += if is_allowed { takes } else { f64::INFINITY };
                start = end;
            }
            best = best.min(total);
        }
        best
    }

    #[test]
    fn buckets_are_those_of_a_search_through_all() {
        let mut random = Random::new(5);
        for _ in 0..300 {
            let n = 1 + random.below(9);
            let seconds: Vec<f64> = (0..n).map(|_| random.below(100) as f64 / 20.0).collect();
            let mut first = vec![0];
            for i in 1..n {
                first.push(if random.below(3) == 0 {
                    first[i - 1] + random.below(i + 1 - first[i - 1])
                } else {
                    first[i - 1]
                });
            }
            let found = cheapest(&seconds, &first, 2.0);
            let takes = |(start, end): &(usize, usize)| {
                assert!(first[end - 1] <= *start, "{first:?} {found:?}");
                let transfer: f64 = seconds[*start..*end].iter().sum();
                2.0 + transfer * if end - start > 1 { 3.0 } else { 1.0 }
            };
            let total: f64 = found.iter().map(takes).sum();
            assert!((total - least(&seconds, &first, 2.0)).abs() < 1e-9, "{seconds:?} {first:?} {found:?}");
        }
    }
}
