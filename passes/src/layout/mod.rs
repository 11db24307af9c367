//! x[n, c, h, w] between kernels  =>  x with its dimensions in the order that makes the kernels fastest in total
//!
//! A container that only kernels write and read may be laid out in any order. The candidate orders follow from the
//! contractions, whose results should be contiguous along their columns, and whose operands should be contiguous along
//! K. The layouts are chosen by a shortest path (`path`) through the kernels in order: its states are the layouts of
//! the containers alive between two kernels, and each step costs the time of its kernel under those layouts (`pace`). A
//! container that is read much later, such as a residual, is part of every state between its producer and its last
//! consumer.

mod pace;
mod path;
#[cfg(test)]
mod tests;

use crate::fuse::Costs;
use crate::options::Layouts;
use crate::remark::Missed;
use crate::rewrite::Rewrites;
use crate::steps::{kernel, parameter};
pub(crate) use pace::Pricer;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, Class, FlowOp, Kernel, Layout, Memlet, Program};
use sardonyx_dialects::mlir::Module;
use sardonyx_kernels::{Target, packable};
use std::collections::BTreeSet;
use std::sync::Arc;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let layouts = rewrites.options().layouts;
    let target = rewrites.options().target;
    let costs = Costs::new(target);
    rewrites.programs(module, |rewrites, program| match layouts {
        Layouts::Chosen => lay_out(program, &costs, rewrites),
        Layouts::RowMajor => Ok(()),
        Layouts::Columns => {
            let layouts = choices(program, target).into_iter().filter_map(|c| Some((c.id, c.layouts.get(1)?.clone())));
            set_all(program, layouts.collect(), rewrites)
        }
    })
}

fn lay_out(program: &mut Program, costs: &Costs, rewrites: &mut Rewrites) -> Result<()> {
    let choices = choices(program, costs.target);
    if choices.is_empty() {
        return Ok(());
    }
    let found = path::shortest(program, &choices, &Pricer::new(program, costs));
    if rewrites.options().remarks {
        let us = |ps: u64| format!("{:.1} us", ps as f64 / 1e6);
        let [all, best, plain] = [found.cost, found.best_alone, found.plain].map(us);
        let detail = format!("estimated {all}, {best} if each kernel had its own choice, {plain} in row-major order");
        rewrites.missed(Missed {
            reason: "kernels share the layouts between them",
            detail: Some(detail),
            ..Missed::default()
        });
    }
    set_all(program, found.layouts, rewrites)
}

fn set_all(program: &mut Program, layouts: Vec<(Id, Layout)>, rewrites: &mut Rewrites) -> Result<()> {
    let producers = program.producers();
    for (id, layout) in layouts {
        if layout == Layout::RowMajor {
            continue;
        }
        let made_by: Vec<usize> = producers[id].into_iter().collect();
        if !rewrites.apply(program, "order", &made_by, |program| set(program, id, &layout))? {
            break;
        }
    }
    Ok(())
}

/// A container and its candidate layouts, row-major first.
#[derive(Clone, Debug)]
struct Choice {
    id: Id,
    layouts: Vec<Layout>,
}

/// Sets the layout of a container, in the program and in every kernel that reads or writes it.
fn set(program: &mut Program, id: Id, layout: &Layout) {
    program.containers[id].layout = layout.clone();
    for step in &mut program.steps {
        let (args, results) = (&step.args, &step.results);
        let FlowOp::Kernel(k) = &mut step.op else { continue };
        let k = Arc::make_mut(k);
        let reads = k.reads.iter_mut().zip(args);
        let mut own: Vec<_> = reads.chain(k.writes.iter_mut().zip(results)).filter(|(_, i)| **i == id).collect();
        own.iter_mut().for_each(|(c, _)| c.layout = layout.clone());
        if !own.is_empty() {
            sort_outer(k);
        }
    }
}

/// Sorts the outer variables in the memory order of the first result; the vector lanes run along the innermost
/// variable.
pub(crate) fn sort_outer(k: &mut Kernel) {
    let Some(store) = k.stores.first() else { return };
    let strides = k.writes[store.memlet.container].strides();
    let flat = store.memlet.index.iter().zip(strides).fold(Dim::constant(0), |sum, (i, s)| sum + i.clone() * s);
    let stride = |v: &usize| flat.linear_in(&Symbol::Variable(*v)).map(|(stride, _)| stride);
    // Variables that do not index the result go outermost; unknown strides count as larger than known ones.
    let key = |v: &usize| match stride(v) {
        Some(s) if s.is_const(0) => i64::MAX,
        Some(s) => s.as_const().unwrap_or(i64::MAX - 1),
        None => i64::MAX,
    };
    let mut order: Vec<usize> = (0..k.outer.len()).collect();
    order.sort_by_key(|v| std::cmp::Reverse(key(v)));
    let place = |v: usize| order.iter().position(|o| *o == v).map(Kernel::var);
    let outer = order.iter().map(|v| k.outer[*v].clone()).collect();
    k.rename_vars(&place);
    k.outer = outer;
}

/// Returns the containers whose layout can be chosen: those written by kernels (or constants that a single kernel
/// reads), and read by kernels only.
fn choices(program: &Program, target: Target) -> Vec<Choice> {
    let (producers, consumers) = (program.producers(), program.consumers());
    let wanted = wanted(program, &producers);
    let mut found = vec![];
    for (id, wanted) in wanted.iter().enumerate() {
        let container = &program.containers[id];
        let readers = &consumers[id];
        let made_well = match producers[id].map(|s| &program.steps[s].op) {
            Some(FlowOp::Kernel(_)) => true,
            // Constants that a contraction streams are not laid out here, because they are packed.
            Some(FlowOp::Param { window: None, .. } | FlowOp::Const(_)) => {
                let reader = readers.first().and_then(|s| kernel(&program.steps[*s]));
                readers.len() == 1 && reader.is_some_and(|k| packable(k, target).is_none())
            }
            Some(FlowOp::Param { .. } | FlowOp::View | FlowOp::Bind { .. } | FlowOp::Host(_)) | None => false,
        };
        let read_well = readers.iter().all(|s| kernel(&program.steps[*s]).is_some());
        if !made_well || !read_well || !container.is_plain() || program.is_output(id) {
            continue;
        }
        let mut layouts = vec![Layout::RowMajor];
        layouts.extend(wanted.iter().filter_map(|axis| innermost(&container.dims, *axis)));
        if layouts.len() > 1 {
            found.push(Choice { id, layouts });
        }
    }
    found
}

/// Returns the layout with one dimension innermost, or `None` if that is the row-major order.
fn innermost(dims: &[Dim], axis: usize) -> Option<Layout> {
    let one = |d: &Dim| d.is_const(1);
    if one(&dims[axis]) || dims[axis + 1..].iter().all(one) {
        return None;
    }
    Some(Layout::Order((0..dims.len()).filter(|d| *d != axis).chain([axis]).collect()))
}

/// Returns, for each container, the dimensions that may be worth storing innermost: the columns of a contraction with
/// constant weights, the K dimensions of its other operand, and dimensions of other containers that a kernel indexes
/// with the same variables as these dimensions.
fn wanted(program: &Program, producers: &[Option<usize>]) -> Vec<BTreeSet<usize>> {
    let mut wanted = vec![BTreeSet::new(); program.containers.len()];
    for step in &program.steps {
        let Some(k) = kernel(step) else { continue };
        let constant = |c: usize| parameter(program, producers, step.args[c]).is_some();
        if let Some((var, other)) = columns(k, &constant) {
            each_memlet(k, &mut |stored, memlet| {
                if stored {
                    wanted[step.results[memlet.container]].extend(places(memlet, var));
                }
            });
            let summed = (k.outer.len()..k.n_vars()).filter_map(|v| places(&other, v));
            wanted[step.args[other.container]].extend(summed);
        }
    }
    loop {
        let before: usize = wanted.iter().map(BTreeSet::len).sum();
        for step in &program.steps {
            let Some(k) = kernel(step) else { continue };
            let id = |stored: bool, m: &Memlet| if stored { step.results[m.container] } else { step.args[m.container] };
            let mut vars = BTreeSet::new();
            each_memlet(k, &mut |stored, m| {
                let here = wanted[id(stored, m)].iter().filter_map(|axis: &usize| variable(&m.index[*axis]));
                vars.extend(here.filter(|v| *v < k.outer.len()));
            });
            each_memlet(k, &mut |stored, m| {
                vars.iter().for_each(|var| wanted[id(stored, m)].extend(places(m, *var)));
            });
        }
        if wanted.iter().map(BTreeSet::len).sum::<usize>() == before {
            return wanted;
        }
    }
}

/// Returns the outer variable that indexes the constant operand of a contraction but not its other operand, and the
/// load of this other operand.
fn columns(k: &Kernel, constant: &dyn Fn(usize) -> bool) -> Option<(usize, Memlet)> {
    if k.class() != Class::Contract {
        return None;
    }
    let factor = |k: &Kernel, s: usize| match &k.body[k.narrow(s)].body {
        Body::Load { memlet, .. } => Some(memlet.clone()),
        Body::Const(_) | Body::Index(_) | Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => None,
    };
    let product = k.body.iter().find_map(|s| if let Body::Reduce { arg, .. } = s.body { Some(arg) } else { None })?;
    let Body::Apply { args, .. } = &k.body[product].body else { return None };
    let [left, right] = [factor(k, *args.first()?)?, factor(k, *args.get(1)?)?];
    let (weights, other) = match (constant(left.container), constant(right.container)) {
        (true, false) => (left, right),
        (false, true) => (right, left),
        (true, true) | (false, false) => return None,
    };
    let moves = |m: &Memlet, v: usize| {
        m.index.iter().any(|d| d.linear_in(&Symbol::Variable(v)).is_none_or(|c| !c.0.is_const(0)))
    };
    let var = (0..k.outer.len()).find(|v| moves(&weights, *v) && !moves(&other, *v))?;
    Some((var, other))
}

/// Calls `each` with (false, memlet) for every load and (true, memlet) for every store.
fn each_memlet(k: &Kernel, each: &mut dyn FnMut(bool, &Memlet)) {
    for statement in &k.body {
        if let Body::Load { memlet, .. } = &statement.body {
            each(false, memlet);
        }
    }
    k.stores.iter().for_each(|s| each(true, &s.memlet));
}

/// Returns the only dimension whose index depends on a variable, if the variable has coefficient 1 in this index.
fn places(memlet: &Memlet, var: usize) -> Option<usize> {
    let mut found = (0..memlet.index.len()).filter(|axis| memlet.index[*axis].variables().contains(&var));
    let (axis, more) = (found.next()?, found.next());
    (more.is_none() && variable(&memlet.index[axis]) == Some(var)).then_some(axis)
}

/// Returns the only iteration variable in an index, if the variable has coefficient 1.
fn variable(index: &Dim) -> Option<usize> {
    let [var] = index.variables()[..] else { return None };
    index.linear_in(&Symbol::Variable(var))?.0.is_const(1).then_some(var)
}
