//! host operation, operands  =>  results, computed by the same code as in the runtime
//!
//! Operations that call functions, such as `If` and `Loop`, run the bodies of the graph.

use super::bind::Symbols;
use super::{Expected, Setting};
use crate::sdx::{Graph, Host, Op, Value};
use sardonyx_base::host::{Bodies, Budget, Collective, Wanted};
use sardonyx_base::{DType, Dim, Error, HostOp, Result, Tensor};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Results of a graph's host operations: one run serves all nodes of a group.
#[derive(Default)]
pub struct Groups {
    done: BTreeMap<usize, (HostOp, Vec<Tensor>)>,
}

impl Groups {
    pub(super) fn result(
        &mut self,
        graph: &Graph,
        host: &Host,
        v: Value,
        args: &[Tensor],
        setting: Setting,
        symbols: &mut Symbols,
    ) -> Result<Tensor> {
        if self.done.get(&host.group).is_none_or(|(op, _)| *op != host.op) {
            let results = run_group(graph, host, args, setting, symbols)?;
            // The types of the other results may contain symbols that one of them binds.
            for node in &graph.nodes {
                let Op::Host(other) = &node.op else { continue };
                if let (true, Some(value)) = (other.same_run(host), results.get(other.result)) {
                    bind(symbols, &other.binds, value)?;
                }
            }
            self.done.insert(host.group, (host.op.clone(), results));
        }
        let results = self.done.get(&host.group).map_or(&[][..], |(_, results)| results);
        let value = results.get(host.result).ok_or_else(|| Error::defect("a host operation gives too few results"))?;
        Expected::new(&graph.node(v).ty, &|name| symbols.get(name))?.accept(value.clone())
    }
}

fn run_group(graph: &Graph, host: &Host, args: &[Tensor], setting: Setting, symbols: &Symbols) -> Result<Vec<Tensor>> {
    let of_group = graph.nodes.iter().filter_map(|n| match &n.op {
        Op::Host(other) if other.same_run(host) => Some((other.result, (n.ty.dtype, n.ty.dims.as_slice()))),
        _ => None,
    });
    let wanted = wanted(of_group, &|s| symbols.get(s));
    run(&host.op, args, &wanted, setting, &mut |at, inputs, setting| {
        let body = graph.bodies.get(&host.bodies[at]);
        let body = body.ok_or_else(|| Error::defect(format!("the function `{}` is not there", host.bodies[at])))?;
        let inputs: Vec<(String, Tensor)> = body.inputs().map(|(_, name, _)| name.to_string()).zip(inputs).collect();
        Ok(super::run_in(body, setting, &inputs, &mut |_, _| Ok(()))?.into_iter().map(|(_, t)| t).collect())
    })
}

/// Types and dimensions of the results, by their index, as far as they are known before the operation runs.
pub fn wanted<'a>(
    results: impl Iterator<Item = (usize, (DType, &'a [Dim]))>,
    symbols: &dyn Fn(&str) -> Option<i64>,
) -> Vec<Wanted> {
    let mut out: Vec<Wanted> = vec![];
    for (index, (dtype, dims)) in results {
        let size = |d: &Dim| d.eval_named(symbols).ok().and_then(|n| usize::try_from(n).ok());
        if out.len() <= index {
            out.resize(index + 1, None);
        }
        out[index] = Some((dtype, dims.iter().map(size).collect()));
    }
    out
}

type Run<'a> = &'a mut dyn FnMut(usize, Vec<Tensor>, Setting) -> Result<Vec<Tensor>>;

/// Computes all results of an operation; `body` runs the body with a given index on given inputs, in a given setting.
pub fn run(op: &HostOp, args: &[Tensor], wanted: &[Wanted], setting: Setting, body: Run) -> Result<Vec<Tensor>> {
    let own = Cell::new(0);
    let n_turns = setting.n_turns.unwrap_or(&own);
    let setting = Setting { n_turns: Some(n_turns), ..setting };
    op.run_with(args, wanted, &mut Functions { run: body, setting, n_turns }, &Budget::unlimited())
}

/// Binds symbols to the sizes of a value's dimensions.
pub(super) fn bind(symbols: &mut Symbols, binds: &[(usize, String)], value: &Tensor) -> Result<()> {
    for (axis, symbol) in binds {
        let size = value.dims().get(*axis).ok_or_else(|| Error::defect("a host operation gives another rank"))?;
        symbols.bind(symbol, *size as i64)?;
    }
    Ok(())
}

/// Maximum number of loop iterations, nested loops included, that are interpreted; a call that needs more is refused.
const TURNS_MAX: usize = 1 << 16;

struct Functions<'a> {
    run: Run<'a>,
    setting: Setting<'a>,
    n_turns: &'a Cell<usize>,
}

impl Bodies for Functions<'_> {
    fn run(&mut self, at: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        (self.run)(at, inputs, self.setting)
    }

    fn exchange(&mut self, op: &Collective, operand: &Tensor) -> Result<Tensor> {
        self.setting.world.exchange(op, operand)
    }

    fn check(&self, _: usize) -> Result<()> {
        self.n_turns.set(self.n_turns.get() + 1);
        match self.n_turns.get() > TURNS_MAX {
            true => Err(Error::user("E0202", format!("a loop of more than {TURNS_MAX} turns"))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_loops_in_loops_count_together() {
        let (op, goes_on) = (HostOp::Loop { n_carried: 0 }, || Ok(vec![Tensor::scalar(true)]));
        let trips = |n: i64| [Tensor::scalar(n), Tensor::scalar(true)];
        let no_params = |name: &str| -> Result<Tensor> { Err(Error::defect(format!("there is no `{name}`"))) };
        let nested = |outer: i64, inner: i64| {
            let mut n_bodies = 0;
            let run = run(&op, &trips(outer), &[], Setting::alone(&no_params), &mut |_, _, setting| {
                run(&op, &trips(inner), &[], setting, &mut |_, _, _| {
                    n_bodies += 1;
                    goes_on()
                })?;
                goes_on()
            });
            (run.map_err(|e| e.code).err(), n_bodies)
        };
        assert_eq!(nested(100, 100), (None, 10_000));
        let (code, n_bodies) = nested(1000, 1000);
        assert_eq!(code, Some("E0202"));
        assert!(n_bodies < TURNS_MAX, "{n_bodies} bodies");
    }
}
