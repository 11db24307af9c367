//! kernels  =>  fewer, larger kernels: the cheapest legal fusions of producers with consumers that the search finds
//!
//! First, index maps are inlined into their consumers, and other maps into a map that is their only consumer. This can
//! cost a launch where the map's producer, the map and its consumers could have become one kernel. The remaining
//! program is divided into regions, between which nothing is fused. For each region, `search` looks for the fusions
//! with the least estimated time to move words, execute operations and launch kernels (`cost`). Equal regions, such as
//! those of repeated layers, are searched once. If the resulting program does not cost less than the result of applying
//! the rules in order (`rules`), that result is used instead. Finally, a function that narrows a reduction's result
//! before it is padded is fused into the reduction (`padding`). Programs of more than `STEPS_MAX` steps are processed
//! in parts, so that the compile time stays linear in their length.

mod cost;
mod moves;
mod padding;
mod region;
mod rules;
mod search;
#[cfg(test)]
mod tests;

use crate::inline_maps;
use crate::rewrite::Rewrites;
use crate::steps::sort_steps;
pub use cost::Costs;
use region::{Region, RegionKey};
use sardonyx_base::Result;
use sardonyx_dialects::flow::Program;
use sardonyx_dialects::mlir::Module;
use search::Way;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Once the search of a region has reached this many programs, it applies no moves to further ones.
const STATES_MAX: usize = 200;

/// Programs of more steps are rewritten in parts, because a rewrite takes time proportional to the program's length.
const STEPS_MAX: usize = 4096;

/// Number of steps of a part. Nothing is fused across the ends of a part.
const PART_STEPS: usize = 128;

/// The best sequence of fusions found for each region, by the region's key.
type Ways = HashMap<RegionKey, Way>;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let costs = Costs::new(rewrites.options().target);
    rewrites.programs(module, |rewrites, program| {
        let mut known = Ways::new();
        match program.steps.len() > STEPS_MAX {
            true => region::in_parts(program, PART_STEPS, |part| fuse(part, &costs, rewrites, &mut known)),
            false => fuse(program, &costs, rewrites, &mut known),
        }
    })
}

/// Applies the rules, or the fusions that the search finds if their program costs less; then applies `padding`.
fn fuse(program: &mut Program, costs: &Costs, rewrites: &mut Rewrites, known: &mut Ways) -> Result<()> {
    let [mut ruled, mut searched] = [program.clone(), program.clone()];
    let [mut by_rules, mut by_search] = [rewrites.trial(), rewrites.trial()];
    rules::apply(&mut ruled, &mut by_rules)?;
    by_regions(&mut searched, costs, &mut by_search, known)?;
    let is_better = costs.program(&searched) < costs.program(&ruled);
    let (trial, outcome) = if is_better { (by_search, searched) } else { (by_rules, ruled) };
    match is_better {
        _ if rewrites.take_over(&trial) => *program = outcome,
        true => by_regions(program, costs, rewrites, known)?,
        false => rules::apply(program, rewrites)?,
    }
    rewrites.sweep(program, padding::RULE, padding::find, padding::apply)
}

fn by_regions(program: &mut Program, costs: &Costs, rewrites: &mut Rewrites, known: &mut Ways) -> Result<()> {
    rewrites.sweep(program, inline_maps::RULE, inline_maps::find_free, inline_maps::apply)?;
    for members in region::regions(program) {
        let Some(region) = Region::extract(program, &members) else { continue };
        let way = match known.entry(region.key()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(search::best(&region.program, costs, STATES_MAX, rewrites)?),
        };
        let mut merged = region.program.clone();
        if way.by_rules {
            rules::apply(&mut merged, rewrites)?;
        }
        for m in &way.path {
            let steps = m.steps(&merged);
            if !rewrites.apply(&mut merged, m.rule(), &steps, |program| *program = m.apply(program))? {
                break;
            }
        }
        region.put_back(program, &merged);
    }
    sort_steps(program);
    Ok(())
}
