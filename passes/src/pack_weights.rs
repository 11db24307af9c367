//! contract(x, param w[k, n])  =>  contract(x, param w in panels of 32 columns): constants in streaming order
//!
//! If a parameter is both multiplied and used as a lookup table, as the embedding of most language models is, its rows
//! are looked up in the panels, so that the artifact stores the parameter only once.

use crate::rewrite::Found;
use crate::rewrite::Rewrites;
use crate::steps::{kernel, parameter};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::kernel::{Body, Container, Kernel, Memlet};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{FlowOp, Program, Source, Step, Window};
use sardonyx_dialects::mlir::Module;
use sardonyx_kernels::{Packable, Target, packable};
use std::sync::Arc;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let target = rewrites.options().target;
    rewrites.programs(module, |rewrites, program| {
        let matches = |program: &Program, step| matches(program, step, target);
        rewrites.each_step(program, matches, apply)?;
        rewrites.each_step(program, looked_up, apply_panels)
    })
}

/// The parameter of each packed operand of a kernel, and the kernel's packed form.
type Site = (Vec<Source>, Packable);

fn matches(program: &Program, step: usize, target: Target) -> Found<Site> {
    let Some(packed) = kernel(&program.steps[step]).and_then(|k| packable(k, target)) else { return Ok(None) };
    let (args, producers) = (&program.steps[step].args, program.producers());
    let sources = packed.factors.iter().map(|f| parameter(program, &producers, args[f.operand]));
    let sources: Option<Vec<Source>> = sources.collect();
    Ok(sources.map(|sources| ("panels".into(), (sources, packed))))
}

fn apply(program: &mut Program, step: usize, (sources, site): Site) {
    for (source, factor) in sources.into_iter().zip(site.factors) {
        let id = program.container(site.kernel.reads[factor.packed].clone());
        let op = FlowOp::Param { source, window: Some(factor.window) };
        program.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
        let args = &mut program.steps[step].args;
        match factor.packed < args.len() {
            true => args[factor.packed] = id,
            false => args.push(id),
        }
    }
    program.steps[step].op = FlowOp::Kernel(Arc::new(site.kernel));
}

/// A table whose rows are looked up, and the container that holds it in panels.
struct Table {
    packed: Id,
    /// Each kernel that reads the table, as (step, operand index).
    readers: Vec<(usize, usize)>,
    window: Window,
}

/// Returns the table if step `step` is a parameter that is also stored in panels, and all consumers of this step look
/// up rows.
fn looked_up(program: &Program, step: usize) -> Found<Table> {
    let FlowOp::Param { source, window: None } = &program.steps[step].op else { return Ok(None) };
    let plain = program.steps[step].results[0];
    let panels = program.steps.iter().find_map(|other| match &other.op {
        FlowOp::Param { source: same, window: Some(window) } if same == source => {
            is_whole(window, &program.containers[other.results[0]]).then_some((other.results[0], window))
        }
        _ => None,
    });
    let Some((packed, window)) = panels else { return Ok(None) };
    let mut readers = vec![];
    for &reader in &program.consumers()[plain] {
        let Some(kernel) = kernel(&program.steps[reader]) else { return Ok(None) };
        for (operand, _) in program.steps[reader].args.iter().enumerate().filter(|(_, id)| **id == plain) {
            if in_panels(kernel, operand, &program.containers[packed], window).is_none() {
                return Ok(None);
            }
            readers.push((reader, operand));
        }
    }
    let is_output = program.outputs.iter().any(|(_, id)| *id == plain);
    let table = Table { packed, readers, window: window.clone() };
    Ok((!is_output && !table.readers.is_empty()).then(|| ("looked_up".into(), table)))
}

fn apply_panels(program: &mut Program, _: usize, table: Table) {
    let container = program.containers[table.packed].clone();
    for (reader, operand) in table.readers {
        let step = &mut program.steps[reader];
        let FlowOp::Kernel(kernel) = &mut step.op else { continue };
        if let Some(read) = in_panels(kernel, operand, &container, &table.window) {
            *kernel = Arc::new(read);
            step.args[operand] = table.packed;
        }
    }
}

/// Whether a window contains each element of a parameter exactly once.
fn is_whole(window: &Window, container: &Container) -> bool {
    let [Some(k), Some(n)] = [0, 1].map(|i| container.dims.get(i).and_then(Dim::as_const)) else { return false };
    let strides = (window.stride_k, window.stride_n);
    let once = window.offset == 0 && window.digits.is_empty() && (strides == (1, k) || strides == (n, 1));
    once && k > 0 && n > 0
}

/// Returns the kernel with an operand read from panels, if each load of the operand looks up rows.
fn in_panels(kernel: &Kernel, operand: usize, panels: &Container, window: &Window) -> Option<Kernel> {
    let mut out = kernel.clone();
    let strides: Option<Vec<i64>> = kernel.reads[operand].strides().iter().map(Dim::as_const).collect();
    let strides = strides?;
    for statement in &mut out.body {
        let Body::Load { memlet, .. } = &mut statement.body else { continue };
        if memlet.container != operand {
            continue;
        }
        let mut found = [vec![], vec![]];
        let mut rows = 0;
        for (d, index) in memlet.index.iter().enumerate() {
            let (column, step) = match (strides[d] % window.stride_n, strides[d] % window.stride_k) {
                (0, _) if window.stride_n > 1 => (1, strides[d] / window.stride_n),
                (_, 0) if window.stride_k > 1 => (0, strides[d] / window.stride_k),
                _ => (usize::from(window.stride_n == 1), strides[d]),
            };
            let from_data = !index.statements().is_empty();
            // A data-dependent index is checked against the extent of its dimension, which must therefore stay the
            // same.
            if from_data && (step != 1 || panels.dims[column] != kernel.reads[operand].dims[d]) {
                return None;
            }
            rows += usize::from(from_data);
            found[column].push(index.clone() * Dim::constant(step));
        }
        if rows == 0 {
            return None;
        }
        let index: Vec<Dim> = found.map(|part| part.into_iter().fold(Dim::constant(0), |sum, d| sum + d)).into();
        *memlet = Memlet { container: operand, index };
    }
    out.reads[operand] = panels.clone();
    Some(out)
}
