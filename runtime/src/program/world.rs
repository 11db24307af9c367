//! collectives of an entry point  =>  checked for every rank of the mesh: what the ranks bring fits, and makes the result
//!
//! All ranks run this one plan, so that they meet in one order; what differs is their coordinates. Sizes are compared at points
//! of the symbols' ranges; a call compares its own (`schedule::fitting`), before anything is exchanged.

use super::{Action, Host, Operand, Program};
use crate::comm::{self, Operand as Brought};
use sardonyx_base::plan::{self, malformed, step_label};
use sardonyx_base::{Dim, Result};

/// Values that symbols take in turn, within their ranges.
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
        // Which ranks come to a body depends on data.
        return Err(malformed(format!("`{op}` is in an entry point that host operations call")));
    }
    let (n, coordinate) = (program.mesh[op.mesh()], program.coordinates[op.mesh()].0);
    let depends = |operand: &Operand| {
        let name = &program.symbols[coordinate].name;
        operand.dims.iter().any(|d| d.symbols().contains(name.as_str()))
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
                let size = |d: &Dim| d.eval(&value).ok().and_then(|n| usize::try_from(n).ok());
                let dims = operand.dims.iter().map(size).collect::<Option<Vec<usize>>>()?;
                Some(Brought { dtype: operand.dtype, dims })
            };
            let brought: Option<Vec<Brought>> = (0..n).map(|rank| described(from, rank)).collect();
            // A symbol that depends on data may have no such value; the call knows.
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

fn list(dims: &[Dim]) -> String {
    let all: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", all.join(", "))
}
