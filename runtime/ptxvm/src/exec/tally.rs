//! The counters of one worker thread, by instruction and by allocation; as sums, they do not depend on block order

use std::collections::BTreeMap;

use crate::decode::program::Program;
use crate::memory::Memory;
use crate::report::{AllocationCounters, Counters, LineCounters, SharedCounters, Traffic};

#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub warp: u64,
    pub thread: u64,
}

#[derive(Debug, Default)]
pub struct Tally {
    /// Executions of each instruction of the program; `global` and `shared` also have one entry per instruction.
    pub counts: Vec<Count>,
    pub global: Vec<Traffic>,
    pub shared: Vec<SharedCounters>,
    /// Loads and stores of each allocation.
    pub allocations: Vec<[Traffic; 2]>,
}

impl Tally {
    pub fn new(n_code: usize, n_allocations: usize) -> Self {
        Tally {
            counts: vec![Count::default(); n_code],
            global: vec![Traffic::default(); n_code],
            shared: vec![SharedCounters::default(); n_code],
            allocations: vec![[Traffic::default(); 2]; n_allocations],
        }
    }

    pub fn merge(&mut self, other: &Tally) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            mine.warp += theirs.warp;
            mine.thread += theirs.thread;
        }
        self.global.iter_mut().zip(&other.global).for_each(|(mine, theirs)| mine.add(theirs));
        self.shared.iter_mut().zip(&other.shared).for_each(|(mine, theirs)| mine.add(theirs));
        for (mine, theirs) in self.allocations.iter_mut().zip(&other.allocations) {
            mine[0].add(&theirs[0]);
            mine[1].add(&theirs[1]);
        }
    }

    pub fn counters(&self, program: &Program, memory: &Memory, lines: &[String]) -> Counters {
        let mut counters = Counters::default();
        let mut by_line: BTreeMap<u32, LineCounters> = BTreeMap::new();
        for (i, instr) in program.code.iter().enumerate() {
            let count = self.counts[i];
            if count.warp == 0 {
                continue;
            }
            let class = counters.classes.entry(instr.class.name()).or_default();
            class.warp += count.warp;
            class.thread += count.thread;
            counters.warp_instructions += count.warp;
            counters.thread_instructions += count.thread;
            counters.shared.add(&self.shared[i]);
            if self.shared[i].requests + self.global[i].requests > 0 {
                let line = by_line.entry(instr.line).or_default();
                line.line = instr.line;
                line.warp += count.warp;
                line.thread += count.thread;
                line.global.add(&self.global[i]);
                line.shared.add(&self.shared[i]);
            }
        }
        for line in by_line.values_mut() {
            line.text = lines.get(line.line.wrapping_sub(1) as usize).cloned().unwrap_or_default();
        }
        counters.lines = by_line.into_values().collect();
        for (allocation, [loads, stores]) in memory.allocations.iter().zip(&self.allocations) {
            if loads.requests + stores.requests > 0 {
                counters.allocations.push(AllocationCounters {
                    name: allocation.name.clone(),
                    address: allocation.base,
                    bytes: allocation.bytes,
                    loads: *loads,
                    stores: *stores,
                    ..AllocationCounters::default()
                });
            }
        }
        counters
    }
}
