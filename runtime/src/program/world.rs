//! collectives of an entry point  =>  checked for every rank of the mesh: operands that fit together, and give the
//! declared result
//!
//! All ranks run the same plan, and so reach the collectives in the same order; only their coordinates differ. Sizes
//! are compared here at sample values of the symbols; a call compares its actual sizes (`link::fitting`) before it
//! exchanges anything.

use super::{Action, Entry, Host, Operand, Program};
use crate::comm::{self, Operand as Brought};
use sardonyx_base::host::HostOp;
use sardonyx_base::plan::{self, malformed, step_label};
use sardonyx_base::{Dim, Error, Result};

/// Sample values of symbols, each clamped to the symbol's range.
static POINTS: [i64; 6] = [1, 2, 3, 7, 16, 129];

pub fn check(program: &Program, entry: &plan::Entry) -> Result<()> {
    for (i, step) in entry.steps.iter().enumerate() {
        let Action::Host(host) = &step.action else { continue };
        if host.call.op.exchange().is_some() {
            check_exchange(program, entry, host).map_err(|e| e.node(step_label(i, &step.origins)))?;
        }
    }
    Ok(())
}

fn check_exchange(program: &Program, entry: &plan::Entry, host: &Host) -> Result<()> {
    let (Some(op), [from], [to]) = (host.call.op.exchange(), &host.args[..], &host.results[..]) else {
        return Err(malformed(format!("`{}` has {} results", host.call.op, host.results.len())));
    };
    if entry.internal {
        // Which ranks reach a collective in a body depends on data.
        return Err(malformed(format!("`{op}` is in an entry point that host operations call")));
    }
    let (n, coordinate) = (program.mesh[op.mesh()], program.coordinates[op.mesh()].0);
    let depends = |operand: &Operand| {
        let name = &program.symbols[coordinate].name;
        operand.dims.iter().any(|d| d.names().contains(name.as_str()))
    };
    if matches!(op, sardonyx_base::host::Collective::AllReduce { .. }) && depends(from) {
        return Err(malformed(format!(
            "the ranks bring {} to `{op}`, which is not the same for all",
            list(&from.dims)
        )));
    }
    for point in POINTS {
        for own in 0..n {
            let described = |operand: &Operand, rank: usize| {
                let value = |name: &str| {
                    let at = *program.symbol_index.get(name)?;
                    let symbol = &program.symbols[at];
                    let place = program.coordinates.iter().find(|(of, _)| *of == at);
                    Some(match place {
                        Some(_) if at == coordinate => rank as i64,
                        Some((_, place)) => *place,
                        None => point.max(symbol.lo).min(symbol.hi.unwrap_or(i64::MAX)),
                    })
                };
                let size = |d: &Dim| d.eval_named(&value).ok().and_then(|n| usize::try_from(n).ok());
                let dims = operand.dims.iter().map(size).collect::<Option<Vec<usize>>>()?;
                Some(Brought { dtype: operand.dtype, dims })
            };
            let brought: Option<Vec<Brought>> = (0..n).map(|rank| described(from, rank)).collect();
            // Sizes that cannot be evaluated at the sample values are skipped, because a symbol that depends on data
            // may never take such a value; the call checks its actual sizes.
            let (Some(brought), Some(wanted)) = (brought, described(to, own)) else { continue };
            let made = comm::result(op, &brought, own).map_err(|e| malformed(e.message))?;
            if made != wanted {
                let (made, wanted) = (made.dims, wanted.dims);
                let message = format!("`{op}` gives rank {own} of {n} {made:?}, not {wanted:?}: {}", list(&to.dims));
                return Err(malformed(message));
            }
        }
    }
    Ok(())
}

/// Returns the ranks along an axis of the mesh, and the index of this rank among them. Errors: E0901 if there is no
/// such axis.
pub fn members(program: &Program, axis: usize) -> Result<(Vec<usize>, usize)> {
    let unknown = || Error::defect(format!("a collective along axis {axis} of {:?}", program.mesh));
    let (_, own) = *program.coordinates.get(axis).ok_or_else(unknown)?;
    // Ranks are numbered with the last axis varying fastest.
    let number = |at: usize| {
        let axes = program.mesh.iter().zip(&program.coordinates).enumerate();
        let place = |i: usize, own: i64| if i == axis { at } else { own as usize };
        axes.fold(0, |rank, (i, (size, (_, own)))| rank * size + place(i, *own))
    };
    Ok(((0..program.mesh[axis]).map(number).collect(), own as usize))
}

/// The ranks that take part in a collective of a call.
pub struct Group {
    /// The ranks along the axis, and the operand of each.
    pub ranks: Vec<usize>,
    pub operands: Vec<Brought>,
    /// Index of this rank in `ranks`.
    pub own: usize,
}

impl Group {
    /// Evaluates the operands of a collective from the values of the symbols.
    pub fn new(program: &Program, values: &[Option<i64>], axis: usize, operand: &Operand) -> Result<Group> {
        let (ranks, own) = members(program, axis)?;
        let (coordinate, _) = program.coordinates[axis];
        let brings = |at: usize| {
            let size = |d: &Dim| {
                let value = |name: &str| match program.symbol_index.get(name) {
                    Some(&symbol) if symbol == coordinate => Some(at as i64),
                    _ => program.value(values, name),
                };
                d.eval_named(&value).map(|n| usize::try_from(n).unwrap_or(0))
            };
            let dims = operand.dims.iter().map(size).collect::<Result<Vec<usize>>>();
            dims.map(|dims| Brought { dtype: operand.dtype, dims })
        };
        let operands = (0..ranks.len()).map(brings).collect::<Result<_>>()?;
        Ok(Group { ranks, operands, own })
    }
}

/// Returns the bytes that this rank receives from other ranks in a call without a cache: in its collectives, and for
/// the outputs that are split among ranks.
pub fn exchanged_bytes(program: &Program, entry: &Entry, values: &[Option<i64>]) -> Result<usize> {
    let mut bytes = 0usize;
    for (step, _) in entry.steps.iter().zip(&entry.needed).filter(|(_, needed)| **needed) {
        let Action::Host(host) = &step.action else { continue };
        let (Some(op), [from]) = (host.call.op.exchange(), &host.args[..]) else { continue };
        if matches!(host.call.op, HostOp::Begin(_)) {
            // An exchange in two steps is counted at its `Wait`.
            continue;
        }
        let group = Group::new(program, values, op.mesh(), from)?;
        bytes = bytes.saturating_add(comm::taken_bytes(op, &group.operands, group.own));
    }
    for state in &entry.states {
        let sizes = entry.own_outputs[state.output].iter().map(|d| program.eval(values, d));
        let mut dims = sizes.collect::<Result<Vec<i64>>>()?;
        let size = |dims: &[i64]| dims.iter().fold(entry.outputs[state.output].dtype.bytes(), |n, d| n * *d as usize);
        for units in state.units.iter().rev() {
            let own = size(&dims);
            dims[units.dim] = (units.outer * units.count * units.unit) as i64;
            bytes = bytes.saturating_add(size(&dims) - own);
        }
    }
    Ok(bytes)
}

fn list(dims: &[Dim]) -> String {
    let all: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", all.join(", "))
}
