//! instructions  =>  control flow, and reconvergence points: immediate post-dominators (Cooper, Harvey, Kennedy)

use super::program::{NONE, Op};
use super::statements::Raw;

/// Basic blocks. With n blocks, number n stands for the common exit.
pub struct Flow {
    /// First instruction of each block; the last element is the end of the code.
    pub starts: Vec<u32>,
    pub successors: Vec<Vec<u32>>,
    /// The block of each instruction.
    pub block_of: Vec<u32>,
}

/// Returns the targets of an instruction ([`NONE`] for an exit), and whether it may continue with the next instruction.
/// Labels have been resolved before, so branches hold instruction numbers.
fn targets(raw: &Raw) -> (Vec<u32>, bool) {
    match &raw.op {
        Op::Branch(target) => (vec![*target], raw.guard.is_some()),
        Op::BranchTable(_, targets) => (targets.to_vec(), raw.guard.is_some()),
        Op::Exit | Op::Trap => (vec![NONE], raw.guard.is_some()),
        _ => (Vec::new(), true),
    }
}

impl Flow {
    pub fn new(code: &[Raw]) -> Flow {
        let mut leaders = vec![false; code.len() + 1];
        leaders[0] = true;
        for (i, raw) in code.iter().enumerate() {
            let (targets, _) = targets(raw);
            if !targets.is_empty() {
                leaders[i + 1] = true;
            }
            for target in targets.into_iter().filter(|target| *target != NONE) {
                if let Some(leader) = leaders.get_mut(target as usize) {
                    *leader = true;
                }
            }
        }
        let mut starts: Vec<u32> = (0..code.len() as u32).filter(|i| leaders[*i as usize]).collect();
        let n = starts.len() as u32;
        starts.push(code.len() as u32);
        let mut block_of = vec![0; code.len()];
        for (block, pair) in starts.windows(2).enumerate() {
            block_of[pair[0] as usize..pair[1] as usize].fill(block as u32);
        }
        let of = |at: u32| block_of.get(at as usize).copied().unwrap_or(n);
        let successors = starts.windows(2).map(|pair| {
            let last = pair[1] - 1;
            let (targets, falls) = targets(&code[last as usize]);
            let mut next: Vec<u32> =
                targets.into_iter().map(|target| if target == NONE { n } else { of(target) }).collect();
            if falls {
                next.push(of(last + 1));
            }
            next.sort_unstable();
            next.dedup();
            next
        });
        let successors = successors.collect();
        Flow { starts, successors, block_of }
    }

    pub fn n_blocks(&self) -> usize {
        self.successors.len()
    }

    /// Returns the immediate post-dominator of each block, or [`NONE`] if the paths from the block meet only at the
    /// exit or never. Without `early_exits`, only the last reachable exit of the code counts as an exit.
    fn post_dominators(&self, early_exits: bool) -> Vec<u32> {
        let n = self.n_blocks();
        let end = if early_exits { None } else { self.last_exit() };
        let leads = |block: usize, to: u32| early_exits || to != n as u32 || end == Some(block);
        let mut predecessors = vec![Vec::new(); n + 1];
        for (block, next) in self.successors.iter().enumerate() {
            for to in next.iter().filter(|to| leads(block, **to)) {
                predecessors[*to as usize].push(block as u32);
            }
        }
        // Postorder of the reversed graph, starting at the exit.
        let mut order = Vec::with_capacity(n + 1);
        let mut number = vec![NONE; n + 1];
        let mut seen = vec![false; n + 1];
        let mut stack = vec![(n as u32, 0usize)];
        seen[n] = true;
        while let Some((block, next)) = stack.pop() {
            match predecessors[block as usize].get(next) {
                Some(to) => {
                    stack.push((block, next + 1));
                    if !seen[*to as usize] {
                        seen[*to as usize] = true;
                        stack.push((*to, 0));
                    }
                }
                None => {
                    number[block as usize] = order.len() as u32;
                    order.push(block);
                }
            }
        }
        let mut dominator = vec![NONE; n + 1];
        dominator[n] = n as u32;
        let mut changed = true;
        while changed {
            changed = false;
            for block in order.iter().rev().copied().filter(|block| *block != n as u32) {
                let mut best = NONE;
                for to in self.successors[block as usize].iter().filter(|to| leads(block as usize, **to)) {
                    if dominator[*to as usize] == NONE {
                        continue;
                    }
                    best = if best == NONE { *to } else { meet(&dominator, &number, best, *to) };
                }
                if best != NONE && dominator[block as usize] != best {
                    dominator[block as usize] = best;
                    changed = true;
                }
            }
        }
        dominator.truncate(n);
        for found in &mut dominator {
            if *found == n as u32 {
                *found = NONE;
            }
        }
        dominator
    }

    /// Returns the last reachable block, in the order of the code, from which threads exit.
    fn last_exit(&self) -> Option<usize> {
        let n = self.n_blocks();
        let mut reached = vec![false; n + 1];
        let mut open = vec![0];
        while let Some(block) = open.pop() {
            if !std::mem::replace(&mut reached[block], true) {
                open.extend(self.successors.get(block).into_iter().flatten().map(|to| *to as usize));
            }
        }
        (0..n).rev().find(|block| reached[*block] && self.successors[*block].contains(&(n as u32)))
    }

    /// Returns the reconvergence point of each instruction. Early exits are ignored, so that lanes do not wait for
    /// lanes that exit early; blocks from which every path exits early use the post-dominator that considers all exits.
    pub fn meets(&self, code: &[Raw]) -> Vec<u32> {
        let (usual, whole) = (self.post_dominators(false), self.post_dominators(true));
        let block_at =
            |dominators: &[u32], i: usize| dominators.get(self.block_of[i] as usize).copied().unwrap_or(NONE);
        let meeting = |i: usize| match (block_at(&usual, i), block_at(&whole, i)) {
            (NONE, NONE) => NONE,
            (NONE, block) | (block, _) => self.starts[block as usize],
        };
        (0..code.len()).map(meeting).collect()
    }
}

fn meet(dominator: &[u32], number: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        while number[a as usize] < number[b as usize] {
            a = dominator[a as usize];
        }
        while number[b as usize] < number[a as usize] {
            b = dominator[b as usize];
        }
    }
    a
}
