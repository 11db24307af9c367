//! kernels  =>  fewer, larger kernels: of all legal ways to merge neighbours, the one that costs least
//!
//! Maps that cost nothing where they are read go there first. What is left falls into regions between which nothing can
//! merge; within a region the ways are searched (`search`), by the time that a device would
//! need for the words they move and the operations they make (`cost`). Equal regions, as layers have, are searched once.

mod cost;
mod moves;
mod region;
mod search;
#[cfg(test)]
mod tests;

use crate::fusion::{sort_steps, sweep};
use crate::{DeviceSpec, Rewrites, inline_maps, miss, rewrite};
use cost::Costs;
use moves::Move;
use region::Region;
use sardonyx_dialects::flow::Program;
use sardonyx_dialects::mlir::Operation;
use sardonyx_runtime::{Error, Result};
use std::collections::HashMap;

/// All devices execute one plan, so one device's figures choose it: what every CPU that we run on has.
const DEVICE: &str = "x86-64-v3";
/// How many ways to merge a region are looked at.
const STATES_MAX: usize = 200;

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    let device = DeviceSpec::named(DEVICE).ok_or_else(|| Error::defect("the device to fuse for has no description"))?;
    rewrites.functions(module, |rewrites, function| {
        if !crate::is_flow(function) {
            return Ok(None);
        }
        let mut program = Program::read(function)?;
        miss::note_reducers(&program, rewrites);
        fuse(&mut program, &Costs::of(&device), rewrites)?;
        miss::tell(&program, rewrites);
        program.write(function.context()).map(Some)
    })
}

fn fuse(program: &mut Program, costs: &Costs, rewrites: &mut Rewrites) -> Result<()> {
    sweep(program, rewrites, "inline", inline_maps::find_free, inline_maps::apply)?;
    let mut known: HashMap<String, Vec<Move>> = HashMap::new();
    for members in region::regions(program) {
        let Some(region) = Region::of(program, &members) else { continue };
        let path = known.entry(region.key()).or_insert_with(|| search::best(&region.program, costs, STATES_MAX));
        let mut merged = region.program.clone();
        for m in path {
            let origins = m.steps(&merged).into_iter().map(|step| merged.steps[step].origins.as_slice());
            if !rewrites.allow(m.rule(), &rewrite::union(origins)) {
                break;
            }
            let next = m.apply(&merged);
            if rewrites.validates() {
                rewrites.check_programs(&merged, &next)?;
            }
            merged = next;
        }
        region.put_back(program, &merged);
    }
    sort_steps(program);
    Ok(())
}
