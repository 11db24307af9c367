//! instructions  =>  the reads to check at run time, because on some path the register may not have been written

use std::collections::{BTreeSet, HashMap};

use super::flow::Flow;
use super::program::{Bank, GUARD, Reg};
use super::statements::Raw;

/// Maximum total size, in bits, of the sets of written registers: one set per basic block. Above this limit, a register
/// counts as possibly unwritten unless the same basic block has written it or it holds a constant.
const BITS_MAX: usize = 1 << 30;

pub struct Tracking {
    /// For each instruction, `checks` has the slots of the registers that must be checked before it reads them
    /// ([`GUARD`] stands for its guard predicate), and `marks` the slots that it writes.
    pub checks: Vec<Vec<u32>>,
    pub marks: Vec<Vec<u32>>,
    /// The register of each slot.
    pub slots: Vec<Reg>,
}

/// Finds the reads to check. `constants` are registers written before the first instruction.
pub fn track(code: &[Raw], flow: &Flow, constants: &[Reg]) -> Tracking {
    let mut dense: HashMap<Reg, usize> = HashMap::new();
    for reg in code.iter().flat_map(|raw| raw.reads.iter().chain(&raw.writes)) {
        let next = dense.len();
        dense.entry(key(*reg)).or_insert(next);
    }
    let n = dense.len();
    let constants: BTreeSet<usize> = constants.iter().filter_map(|reg| dense.get(&key(*reg)).copied()).collect();
    let entry = |set: &mut Vec<u64>| constants.iter().for_each(|bit| set[bit / 64] |= 1 << (bit % 64));
    let words = n.div_ceil(64).max(1);
    let too_large = words.saturating_mul(64).saturating_mul(flow.n_blocks()) > BITS_MAX;
    let assigned = if too_large { Vec::new() } else { solve(code, flow, &dense, words, &entry) };

    let mut doubtful: Vec<(usize, Reg)> = Vec::new();
    for block in 0..flow.n_blocks() {
        let mut set = assigned.get(block).cloned().unwrap_or_else(|| {
            let mut set = vec![0; words];
            entry(&mut set);
            set
        });
        let range = flow.starts[block] as usize..flow.starts[block + 1] as usize;
        for (i, raw) in code.iter().enumerate().skip(range.start).take(range.len()) {
            for reg in &raw.reads {
                let bit = dense[&key(*reg)];
                if set[bit / 64] >> (bit % 64) & 1 == 0 && !constants.contains(&bit) {
                    doubtful.push((i, key(*reg)));
                }
            }
            if raw.guard.is_none() {
                for reg in &raw.writes {
                    let bit = dense[&key(*reg)];
                    set[bit / 64] |= 1 << (bit % 64);
                }
            }
        }
    }
    let mut slots: HashMap<Reg, u32> = HashMap::new();
    let mut tracking =
        Tracking { checks: vec![Vec::new(); code.len()], marks: vec![Vec::new(); code.len()], slots: Vec::new() };
    for (i, reg) in doubtful {
        let slot = *slots.entry(reg).or_insert_with(|| {
            tracking.slots.push(reg);
            (tracking.slots.len() - 1) as u32
        });
        let is_guard = code[i].guard.is_some_and(|(index, _)| reg.bank == Bank::Pred && reg.index == index);
        let slot = if is_guard { slot | GUARD } else { slot };
        if !tracking.checks[i].contains(&slot) {
            tracking.checks[i].push(slot);
        }
    }
    for (i, raw) in code.iter().enumerate() {
        tracking.marks[i] = raw.writes.iter().filter_map(|reg| slots.get(&key(*reg)).copied()).collect();
    }
    tracking
}

fn key(reg: Reg) -> Reg {
    Reg { bits: 0, ..reg }
}

/// Returns, for each basic block, the registers that have been written on every path to the block.
fn solve(
    code: &[Raw],
    flow: &Flow,
    dense: &HashMap<Reg, usize>,
    words: usize,
    entry: &impl Fn(&mut Vec<u64>),
) -> Vec<Vec<u64>> {
    let n = flow.n_blocks();
    let mut writes = vec![vec![0u64; words]; n];
    for (i, raw) in code.iter().enumerate().filter(|(_, raw)| raw.guard.is_none()) {
        for reg in &raw.writes {
            let bit = dense[&key(*reg)];
            writes[flow.block_of[i] as usize][bit / 64] |= 1 << (bit % 64);
        }
    }
    let mut sets = vec![vec![u64::MAX; words]; n];
    if let Some(first) = sets.first_mut() {
        *first = vec![0; words];
        entry(first);
    }
    let mut work: BTreeSet<usize> = (0..n).collect();
    while let Some(block) = work.pop_first() {
        let out: Vec<u64> = sets[block].iter().zip(&writes[block]).map(|(a, b)| a | b).collect();
        for next in flow.successors[block].iter().map(|next| *next as usize).filter(|next| *next < n) {
            let mut changed = false;
            for (word, out) in sets[next].iter_mut().zip(&out) {
                changed |= *word & !out != 0;
                *word &= out;
            }
            if changed {
                work.insert(next);
            }
        }
    }
    sets
}
