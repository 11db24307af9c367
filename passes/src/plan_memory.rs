//! plan.arena "4*n"  =>  plan.arena "4*n" at "64*…": places in one arena, reused where lifetimes do not meet
//!
//! Buffers share a slot when one is dead before the next is written and one of their sizes is provably the larger,
//! for all values of the symbols. Slots follow one another, each rounded up to 64 bytes, so that every offset is an
//! expression of the symbols. Those whose size waits for a later symbol come behind the others: what lives when a
//! symbol gets its value stays where it is.

use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::{Action, Buffer, Entry, Plan};
use sardonyx_runtime::{Dim, Result};
use std::collections::BTreeMap;

const ALIGNMENT: i64 = 64;

pub fn run(module: Operation) -> Result<()> {
    let Some(mut plan) = Plan::read(module)? else { return Ok(()) };
    plan.entries.iter_mut().for_each(place);
    let Some(block) = module.block(0) else { return Ok(()) };
    for op in block.operations().into_iter().filter(|op| op.name().starts_with("plan.")) {
        op.detach();
        op.erase();
    }
    for op in plan.write(module.context())? {
        block.push(op);
    }
    Ok(())
}

struct Slot {
    bytes: Dim,
    /// The step, counted from 1, with which its size is known; 0 where it is from the start.
    stage: usize,
    /// The last step that uses what is in it now.
    busy_until: usize,
    buffers: Vec<usize>,
}

/// First and last step that touch each buffer.
fn lifetimes(entry: &Entry) -> Vec<Option<(usize, usize)>> {
    let mut out: Vec<Option<(usize, usize)>> = vec![None; entry.buffers.len()];
    for (i, step) in entry.steps.iter().enumerate() {
        for b in step.buffers() {
            out[b] = Some((out[b].map_or(i, |l| l.0), i));
        }
    }
    out
}

/// The step, counted from 1, that gives each data-dependent symbol its value.
fn stages(entry: &Entry) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for (i, step) in entry.steps.iter().enumerate() {
        match &step.action {
            Action::Bind { symbol, .. } => drop(out.insert(symbol.clone(), i + 1)),
            Action::Host { host, .. } => {
                let bound = host.results.iter().flat_map(|r| &r.binds);
                out.extend(bound.map(|(_, symbol)| (symbol.clone(), i + 1)));
            }
            Action::Launch { .. } | Action::Copy { .. } => {}
        }
    }
    out
}

fn place(entry: &mut Entry) {
    let lifetimes = lifetimes(entry);
    let stages = stages(entry);
    let stage = |d: &Dim| d.symbols().iter().filter_map(|s| stages.get(&**s)).max().copied().unwrap_or(0);
    let mut order: Vec<(usize, usize, usize)> = vec![];
    for (b, life) in lifetimes.iter().enumerate() {
        if let (Buffer::Arena { .. }, Some((first, last))) = (&entry.buffers[b], life) {
            order.push((*first, *last, b));
        }
    }
    order.sort();
    let mut slots: Vec<Slot> = vec![];
    for (first, last, b) in order {
        let Buffer::Arena { bytes, .. } = &entry.buffers[b] else { continue };
        let stage = stage(bytes);
        let at = choose(entry, &slots, bytes, stage, first);
        match at {
            Some((i, grows)) => {
                if grows {
                    slots[i].bytes = bytes.clone();
                }
                slots[i].busy_until = last;
                slots[i].buffers.push(b);
            }
            None => slots.push(Slot { bytes: bytes.clone(), stage, busy_until: last, buffers: vec![b] }),
        }
    }
    slots.sort_by_key(|slot| slot.stage);
    let mut offset = Dim::constant(0);
    for slot in slots {
        for b in slot.buffers {
            if let Buffer::Arena { offset: at, .. } = &mut entry.buffers[b] {
                *at = Some(offset.clone());
            }
        }
        let unit = Dim::constant(ALIGNMENT);
        offset = offset + slot.bytes.ceildiv(&unit) * unit;
    }
    entry.arena_bytes = Some(offset);
}

/// A slot that is free at `first`: one of the same size, else the smallest that is large enough, else one to grow. A slot
/// never grows to a size that is known later than its own: what it held needed its place before.
fn choose(entry: &Entry, slots: &[Slot], bytes: &Dim, stage: usize, first: usize) -> Option<(usize, bool)> {
    let lo = |s: &str| entry.symbol_lo(s);
    let free = || slots.iter().enumerate().filter(|(_, s)| s.busy_until < first);
    if let Some((i, _)) = free().find(|(_, s)| s.bytes == *bytes) {
        return Some((i, false));
    }
    let smaller = |a: &Slot, b: &Slot| b.bytes.provably_ge(&a.bytes, &lo) && !a.bytes.provably_ge(&b.bytes, &lo);
    let large = free().filter(|(_, s)| s.bytes.provably_ge(bytes, &lo));
    // Where two sizes cannot be compared, the earlier slot stays the choice.
    if let Some((i, _)) = large.reduce(|best, next| if smaller(next.1, best.1) { next } else { best }) {
        return Some((i, false));
    }
    let mut growable = free().filter(|(_, s)| stage <= s.stage);
    growable.find(|(_, s)| bytes.provably_ge(&s.bytes, &lo)).map(|(i, _)| (i, true))
}
