//! plan.arena "4*n"  =>  plan.arena "4*n" at "max(…)": offsets in one arena, reused where live ranges do not overlap
//!
//! Buffers are placed in some order, each directly above the highest end of the buffers placed before it that are live
//! at the same time ([`order`]): an offset is the maximum of some sums of sizes ([`largest`]), valid for all values of
//! the symbols. The order is chosen for typical sizes ([`CALLS`]). A buffer whose size depends on a symbol that a later
//! step binds is placed above the other buffers that are live with it, so that buffers which are live when a symbol is
//! bound do not move.

mod largest;
mod not_negative;
mod order;
#[cfg(test)]
mod tests;

use crate::rewrite::Rewrites;
use crate::usual::{self, CALLS, Sizes, Usual};
use largest::{Largest, Probes, Room};
use order::{Cost, Problem};
use sardonyx_base::dim::Symbol;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::plan::{Buffer, Entry, Plan};
use sardonyx_dialects::sdx::SymbolKind;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

const ALIGNMENT: i64 = 64;

/// Sets the offsets of the arena buffers, separately for each entry point of the plan.
pub fn run(module: &mut Module, _: &mut Rewrites) -> Result<()> {
    let Some(mut plan) = Plan::read(module.operation())? else { return Ok(()) };
    plan.entries.iter_mut().for_each(place);
    plan.replace(module)
}

/// Returns the first and last step that touch each buffer.
fn lifetimes(entry: &Entry) -> Vec<Option<(usize, usize)>> {
    let mut out: Vec<Option<(usize, usize)>> = vec![None; entry.buffers.len()];
    for (i, step) in entry.steps.iter().enumerate() {
        for b in step.buffers() {
            out[b] = Some((out[b].map_or(i, |l| l.0), i));
        }
    }
    out
}

/// Returns, for each data-dependent symbol, the step that binds it, counted from 1.
fn stages(entry: &Entry) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for (i, step) in entry.steps.iter().enumerate() {
        out.extend(step.binds().into_iter().map(|symbol| (symbol.to_string(), i + 1)));
    }
    out
}

/// The placement problem of the arena buffers of an entry point.
struct Arena {
    buffers: Vec<usize>,
    /// An upper bound of each buffer's size (see `spaced`), such that only the sum of the bounds is rounded to the
    /// alignment: the expression of an offset needs one division instead of a division per buffer.
    bytes: Vec<Dim>,
    problem: Problem,
    /// Symbol values of typical calls, one for each point of the problem.
    calls: Vec<Sizes>,
}

fn arena(entry: &Entry) -> Arena {
    let stages = stages(entry);
    let stage = |d: &Dim| d.names().iter().filter_map(|s| stages.get(&**s)).max().copied().unwrap_or(0);
    let (mut buffers, mut bytes, mut lives) = (vec![], vec![], vec![]);
    for (b, life) in lifetimes(entry).into_iter().enumerate() {
        if let (Buffer::Arena { bytes: own, .. }, Some(life)) = (&entry.buffers[b], life) {
            buffers.push(b);
            bytes.push(own.clone());
            lives.push(life);
        }
    }
    let (mut numbers, mut calls): (Vec<Vec<u64>>, Vec<Sizes>) = (vec![], vec![]);
    for call in CALLS {
        let values = values(entry, call);
        let value = |d: &Dim| d.eval_named(&|s| values.get(s).copied()).ok().and_then(|v| u64::try_from(v).ok());
        // A size that cannot be evaluated, for instance because it overflows, counts as 0 when the order is chosen.
        let whole = |bytes: u64| bytes.checked_next_multiple_of(ALIGNMENT as u64);
        let own = bytes.iter().map(|d| value(d).and_then(whole).unwrap_or(0)).collect();
        if !numbers.contains(&own) {
            numbers.push(own);
            calls.push(values);
        }
    }
    let waits: Vec<usize> = bytes.iter().map(stage).collect();
    let distinct: BTreeSet<usize> = waits.iter().copied().collect();
    let waits = waits.iter().map(|wait| distinct.range(..wait).count()).collect();
    let bytes = bytes.iter().map(spaced).collect();
    Arena { buffers, problem: Problem::new(numbers, lives, waits), bytes, calls }
}

/// Returns an upper bound of a buffer's size rounded up to the alignment: the size plus the most that rounding can add,
/// which is 60 for a multiple of 4 bytes. Where the sum of such bounds is rounded down to the alignment, it is still at
/// least the sum of the rounded sizes, so buffers do not overlap.
fn spaced(bytes: &Dim) -> Dim {
    let unit = Dim::constant(ALIGNMENT);
    if bytes.as_const().is_some() {
        return bytes.ceildiv(&unit) * unit;
    }
    let mut divisor = ALIGNMENT;
    while bytes.terms().any(|(_, c)| c % divisor != 0) {
        divisor /= 2;
    }
    bytes.clone() + Dim::constant(ALIGNMENT - divisor)
}

fn aligned(d: Dim) -> Dim {
    let unit = Dim::constant(ALIGNMENT);
    d.floordiv(&unit) * unit
}

/// Returns typical values of all symbols that sizes of buffers may depend on. A size that depends on data is assumed to
/// be as large as other dimensions.
pub fn values(entry: &Entry, call: Usual) -> Sizes {
    let inputs = entry.ports(true);
    let mut values = usual::usual(&entry.symbols, inputs.iter().map(|(_, _, c)| c.dims.as_slice()), call);
    usual::keep_checks(&entry.checks, &entry.symbols, &|_| false, &mut values);
    for (name, symbol) in &entry.symbols {
        if symbol.kind == SymbolKind::Data {
            values.insert(name.clone(), call.other.min(symbol.hi.unwrap_or(i64::MAX)).max(symbol.lo));
        }
    }
    values
}

/// Returns symbol values of calls in which one symbol is small and all others are large, or one is large and all others
/// small.
fn corners(entry: &Entry) -> Vec<Sizes> {
    let corner = |chosen: usize, [own, others]: [i64; 2]| {
        let symbols = entry.symbols.iter().enumerate();
        symbols
            .map(|(i, (name, s))| (name.clone(), s.lo.saturating_add(if i == chosen { own } else { others })))
            .collect()
    };
    let all = (0..entry.symbols.len()).flat_map(|i| [[0, 1], [1, 1000], [1000, 1]].map(|sizes| corner(i, sizes)));
    all.collect()
}

/// Offsets of the arena's buffers, and the size of the arena, as expressions.
struct Places {
    offsets: Vec<Dim>,
    arena: Dim,
}

/// Maximum numbers of alternatives in the `max` of an offset, tried in turn until the arena is about as small as the
/// order allows.
static ALTERNATIVES: [usize; 7] = [1, 2, 3, 4, 6, 8, 16];
/// Maximum length of an expression in bytes of text; the runtime's limit is slightly higher.
const TEXT_BYTES_MAX: usize = 15 << 10;
/// By how much the arena may exceed the smallest arena that the order of buffers allows in typical calls, in
/// millionths.
const LOSS_MAX: u64 = 10_000;

fn place(entry: &mut Entry) {
    let arena = arena(entry);
    let order = arena.problem.solve();
    let others = corners(entry);
    let lo = |s: &Symbol| entry.symbol_lo(s);
    let probes = Probes { calls: &arena.calls, others: &others, lo: &lo, known: RefCell::default() };
    let mut best: Option<(Cost, Places)> = None;
    for n_max in ALTERNATIVES {
        let places = arena.places(&order.order, &probes, n_max);
        let cost = arena.cost(&places);
        let is_long = |d: &Dim| d.is_overflow() || d.to_string().len() > TEXT_BYTES_MAX;
        let long = places.offsets.iter().chain([&places.arena]).any(is_long);
        if best.is_none() || !long && best.as_ref().is_some_and(|(least, _)| cost < *least) {
            best = Some((cost, places));
        }
        let enough = Cost(order.cost.0.saturating_add(LOSS_MAX), u64::MAX);
        if long || best.as_ref().is_some_and(|(least, _)| *least <= enough) {
            break;
        }
    }
    let Some((_, places)) = best else { return };
    for (b, own) in arena.buffers.iter().zip(places.offsets) {
        if let Buffer::Arena { offset, .. } = &mut entry.buffers[*b] {
            *offset = Some(own);
        }
    }
    entry.arena_bytes = Some(places.arena);
}

impl Arena {
    fn places(&self, order: &[usize], probes: &Probes, n_max: usize) -> Places {
        let rooms = self.problem.rooms(order);
        let mut ends: Vec<Largest> = vec![Largest::default(); self.bytes.len()];
        let mut offsets = vec![Dim::constant(0); self.bytes.len()];
        for &b in order {
            let at: Vec<u64> = rooms.iter().map(|room| room[b]).collect();
            let below = self.problem.beside[b].iter().flat_map(|&a| ends[a].sizes());
            let below = Largest::select(below, probes, &Room { n_max, at: &at });
            offsets[b] = aligned(below.to_dim());
            ends[b] = below.plus(&probes.size(self.bytes[b].clone()));
        }
        let room = Room { n_max: 2 * n_max, at: &self.problem.peaks(order) };
        let all = Largest::select(ends.iter().flat_map(|e| e.sizes()), probes, &room);
        Places { offsets, arena: aligned(all.to_dim()) }
    }

    fn cost(&self, places: &Places) -> Cost {
        let value = |values: &Sizes| places.arena.eval_named(&|s| values.get(s).copied()).ok();
        let peak = |values| value(values).and_then(|v| u64::try_from(v).ok()).unwrap_or(u64::MAX);
        let peaks: Vec<u64> = self.calls.iter().map(peak).collect();
        self.problem.cost(&peaks, &self.problem.bounds())
    }
}
