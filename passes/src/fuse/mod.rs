//! kernels  =>  fewer, larger kernels: of all legal ways to merge neighbours, the one that costs least
//!
//! Maps that cost nothing where they are read go there first, which can lose a launch where their readers would have
//! merged over them. What is left falls into regions between which nothing can merge; within a region the ways are
//! searched (`search`), by the time that a device would need for the words they move and the operations they make
//! (`cost`). Equal regions, as layers have, are searched once. Where all this finds nothing better, the rules are applied
//! in their order (`rules`). At last what becomes narrower on the way from a reduction to its padding does so in the reduction
//! (`padding`). A program of very many steps goes through all this in parts, so that the time grows as the program does.

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
use region::Region;
use sardonyx_base::Result;
use sardonyx_dialects::flow::Program;
use sardonyx_dialects::mlir::Operation;
use search::Way;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// How many ways to merge a region are looked at.
const STATES_MAX: usize = 200;

/// A program of more steps is rewritten in parts: each rewrite takes as long as what it is made in is long.
const STEPS_MAX: usize = 4096;

/// The steps of a part. Nothing merges over its ends.
const PART_STEPS: usize = 128;

/// The best way for each region so far, by its key.
type Ways = HashMap<String, Way>;

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    let costs = Costs::new(rewrites.options().target);
    rewrites.programs(module, |rewrites, program| {
        let mut known = Ways::new();
        match program.steps.len() > STEPS_MAX {
            true => region::in_parts(program, PART_STEPS, |part| fuse(part, &costs, rewrites, &mut known)),
            false => fuse(program, &costs, rewrites, &mut known),
        }
    })
}

/// By the rules, unless the search finds what costs less.
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
        let Some(region) = Region::of(program, &members) else { continue };
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
