//! model.onnx, sizes, a device  =>  a page that shows what each launch computes, moves and is limited by

mod measured;

pub use self::measured::{Measured, measure};
use crate::explain::{Launch, Launches, Planned};
use crate::movement::{Row, sum};
use crate::sizes::{Sizes, value};
use sardonyx_base::Result;
use sardonyx_base::json::Json;
use sardonyx_base::plan::{Step as PlanStep, is_product};
use sardonyx_dialects::plan::{Action, Buffer, Entry};
use sardonyx_kernels::{DeviceSpec, Rates};
use sardonyx_run::page::{Column, Page, Point, Roofline, Step, blocks, edges};
use std::collections::BTreeSet;

/// Returns the page of a compiled model. Errors: E0406 if the description of the device lacks a figure.
pub fn page(
    title: &str,
    planned: &Planned,
    found: &Launches,
    device: &DeviceSpec,
    measured: Option<&Measured>,
) -> Result<Page> {
    let rates = Rates::new(device)?;
    let rows = found.launches.iter().zip(&found.movement.after).enumerate();
    let steps: Vec<Step> = rows
        .map(|(i, (launch, row))| step(found, launch, row, &rates, measured.and_then(|m| m.us.get(i).copied())))
        .collect();
    let total_us = steps.iter().filter_map(|step| Some(step.point.as_ref()?.predicted_us)).sum();
    let entry = planned.plan.entries.first();
    let buffers = |entry: &Entry| {
        // A step that is no launch is shown with the launch before it.
        let shown = numbers(entry).scan(0, |last, number| {
            *last = number.unwrap_or(*last);
            Some(*last)
        });
        let used = shown.zip(entry.steps.iter().map(|step| step.buffers()));
        blocks(used, |buffer| place(entry, &found.movement.sizes, buffer))
    };
    Ok(Page {
        title: title.into(),
        words: ["launch", "launches"],
        figures: figures(found, total_us, measured),
        columns: columns(measured.is_some()),
        steps,
        edges: entry.map(|entry| flow(planned, entry)).unwrap_or_default(),
        layers: found.layers,
        blocks: entry.map(buffers).unwrap_or_default(),
        roofline: Some(Roofline {
            operations_per_s: rates.contract_ops_per_s,
            bytes_per_s: rates.bytes_per_s,
            source: match measured {
                None => "As the device is described; nothing here was measured.",
                Some(_) => "Filled as the device is described, dashed as measured on this machine.",
            },
        }),
    })
}

fn columns(is_measured: bool) -> Vec<Column> {
    let column = |key, label| Column { key, label, decimals: 0, is_measured: false };
    let time = |key, label, is_measured| Column { key, label, decimals: 2, is_measured };
    let mut columns = vec![time("us", "predicted µs", false)];
    columns.extend(is_measured.then(|| time("measured", "measured µs", true)));
    columns.extend([column("words", "words"), column("scheduled", "scheduled"), column("bound", "bound")]);
    columns.push(column("operations", "operations"));
    columns
}

/// A launch with its figures, in the order of `columns`: its predicted time on the described device, its measured time
/// if any, words that are moved if each distinct element is moved once, words that the code requests, the least number
/// of words that any code could request, operations.
fn step(found: &Launches, launch: &Launch, row: &Row, rates: &Rates, measured_us: Option<f64>) -> Step {
    let (kernel, class) = &found.kernels[launch.kernel];
    let scheduled = row.scheduled.unwrap_or(row.words);
    let computes = if is_product(class) { rates.contract_ops_per_s } else { rates.vector_ops_per_s };
    let (operations, bytes) = (row.flops as f64, row.scheduled_bytes.unwrap_or(4 * scheduled) as f64);
    let predicted_us = 1e6 * ((operations / computes).max(bytes / rates.bytes_per_s) + rates.launch_s);
    let mut values: Vec<Json> = vec![predicted_us.into()];
    values.extend(measured_us.map(Json::from));
    values.extend([row.words, scheduled, row.lower_bound.unwrap_or(row.words), row.flops].map(Json::from));
    Step {
        name: kernel.clone(),
        class: class.clone(),
        origins: launch.origins.clone(),
        values,
        point: Some(Point { operations, bytes, predicted_us, measured_us }),
    }
}

fn figures(found: &Launches, total_us: f64, measured: Option<&Measured>) -> Vec<(&'static str, String)> {
    let movement = &found.movement;
    let (before, after) = (sum(&movement.before), sum(&movement.after));
    let percent = |part: i64, whole: i64| if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 };
    let sizes: Vec<String> = movement.sizes.iter().map(|(name, n)| format!("{name} = {n}")).collect();
    let (words, bound) = (percent(after.words, before.words), percent(after.lower_bound, after.scheduled));
    let measured = measured.map(|m| {
        let (ms, threads) = (m.us.iter().sum::<f64>() / 1e3, m.threads);
        ("measured", format!("{ms:.3} ms on this machine, threads: {threads}, medians of {} calls", m.calls))
    });
    let mut figures = vec![
        ("launches", format!("{} of {} kernels", found.launches.len(), found.kernels.len())),
        ("predicted", format!("{:.3} ms on {}", total_us / 1e3, movement.device)),
        ("words", format!("{} for {} of the model ({words:.1} %)", after.words, before.words)),
        ("scheduled", format!("{} words, the bound is {bound:.1} % of it", after.scheduled)),
        ("sizes", sizes.join(", ")),
    ];
    figures.extend(measured);
    figures
}

/// The number of each step among the launches; `None` for other steps.
fn numbers(entry: &Entry) -> impl Iterator<Item = Option<usize>> + '_ {
    let mut n = 0;
    entry.steps.iter().map(move |step| {
        matches!(step.action, Action::Launch(_)).then(|| {
            n += 1;
            n - 1
        })
    })
}

/// The pairs of a launch and a later one that reads its results, directly or through copies and host steps.
fn flow(planned: &Planned, entry: &Entry) -> Vec<(usize, usize)> {
    let numbers: Vec<Option<usize>> = numbers(entry).collect();
    // For each step that is no launch: the launches that its operands come from.
    let mut passes_on = vec![BTreeSet::new(); numbers.len()];
    let mut pairs = BTreeSet::new();
    for (from, to) in edges(entry.steps.iter().map(|step| accesses(planned, step))) {
        let sources = numbers[from].map_or_else(|| passes_on[from].clone(), |launch| BTreeSet::from([launch]));
        match numbers[to] {
            Some(launch) => pairs.extend(sources.into_iter().map(|source| (source, launch))),
            None => passes_on[to].extend(sources),
        }
    }
    pairs.into_iter().collect()
}

/// The buffers that a step reads, and those that it writes.
fn accesses(planned: &Planned, step: &PlanStep) -> [Vec<usize>; 2] {
    match &step.action {
        Action::Launch(launch) => {
            let reads = planned.plan.kernels.get(launch.kernel).map_or(0, |(_, kernel)| kernel.reads.len());
            let (read, written) = launch.buffers.split_at(reads.min(launch.buffers.len()));
            [read.to_vec(), written.to_vec()]
        }
        Action::Copy(copy) => [vec![copy.from], vec![copy.to]],
        Action::Bind(bind) => [vec![bind.buffer], vec![]],
        Action::Host(host) => {
            [&host.args, &host.results].map(|operands| operands.iter().map(|operand| operand.buffer).collect())
        }
    }
}

/// Offset and size in bytes of a buffer in the arena; `None` for other buffers, and if offset or size depend on data.
fn place(entry: &Entry, sizes: &Sizes, buffer: usize) -> Option<(i64, i64)> {
    let Some(Buffer::Arena { bytes, offset: Some(offset) }) = entry.buffers.get(buffer) else { return None };
    Some((value(offset, sizes).ok()?, value(bytes, sizes).ok()?))
}
