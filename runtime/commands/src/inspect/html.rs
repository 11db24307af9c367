//! an entry point of an artifact, sizes  =>  a page that shows its steps, what each reads and writes, and the arena

use crate::call_bytes;
use crate::inputs;
use crate::page::{Column, Page, Step, blocks, edges, layers};
use crate::values::bytes_text;
use sardonyx_base::dim::Symbol;
use sardonyx_base::json::Json;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_format::artifact::Artifact;
use sardonyx_runtime::CallBytes;
use sardonyx_runtime::program::{self, Action, Entry, Launch, Place, Program};
use std::collections::BTreeMap;

static COLUMNS: &[(&str, &str)] = &[
    ("items", "work items"),
    ("operations", "operations"),
    ("read", "bytes read"),
    ("constants", "bytes of weights"),
    ("written", "bytes written"),
];

/// Larger entry points are refused: a browser could not show them.
const STEPS_MAX: usize = 20_000;
/// Symbols and classes of kernels are cut at this many characters.
const NAME_MAX: usize = 80;

/// Returns the page of an entry point at the sizes in the `--dim` arguments, and default sizes of other dimensions.
/// Errors: E0001 for too many steps or invalid sizes, E0204, E0301.
pub fn page(title: String, artifact: &Artifact, program: &Program, entry: &Entry, dims: &[String]) -> Result<Page> {
    if entry.steps.len() > STEPS_MAX {
        let message = format!("entry point {} has {} steps, more than {STEPS_MAX}", entry.name, entry.steps.len());
        return Err(Error::user("E0001", message).help("`--steps` prints them as text"));
    }
    let mut values = inputs::sizes(program, entry, dims)?;
    let call = CallBytes::new(program, entry, &|symbol| values.get(&symbol.name).copied()).ok().flatten();
    // Capacities of states follow from the other sizes.
    values.extend(call.iter().flat_map(|call| call.at.clone()));
    let shown = Shown { program, entry, values };
    let runs: Vec<(String, String)> = entry.steps.iter().map(|step| shown.runs(&step.action)).collect();
    let distinct: BTreeMap<&(String, String), usize> = runs.iter().zip(0..).collect();
    let order: Vec<usize> = runs.iter().map(|step| distinct[step]).collect();
    let column = |&(key, label)| Column { key, label, decimals: 0, is_measured: false };
    Ok(Page {
        title,
        words: ["step", "steps"],
        figures: figures(artifact, program, entry, &shown.values, call.as_ref()),
        columns: COLUMNS.iter().map(column).collect(),
        layers: layers(&order),
        steps: runs.into_iter().zip(&entry.steps).map(|(runs, step)| shown.step(runs, step)).collect(),
        edges: edges(entry.steps.iter().map(|step| shown.accesses(&step.action))),
        blocks: blocks(entry.steps.iter().map(|step| step.buffers()).enumerate(), |buffer| shown.place(buffer)),
        roofline: None,
    })
}

fn figures(
    artifact: &Artifact,
    program: &Program,
    entry: &Entry,
    sizes: &BTreeMap<String, i64>,
    call: Option<&CallBytes>,
) -> Vec<(&'static str, String)> {
    let manifest = &artifact.manifest;
    let launched = entry.steps.iter().filter_map(|step| match &step.action {
        Action::Launch(launch) => Some(launch.kernel),
        Action::Copy(_) | Action::Bind(_) | Action::Host(_) => None,
    });
    let launched: Vec<usize> = launched.collect();
    let mut kernels = launched.clone();
    kernels.sort_unstable();
    kernels.dedup();
    let constants: usize = program.constants.iter().map(|range| range.len()).sum();
    let mut figures = vec![
        ("entry point", entry.name.clone()),
        ("launches", format!("{} of {} kernels", launched.len(), kernels.len())),
        ("other steps", (entry.steps.len() - launched.len()).to_string()),
        ("weights", bytes_text(constants as u64)),
    ];
    let sizes: Vec<String> = sizes.iter().map(|(name, n)| format!("{name} = {n}")).collect();
    figures.push(("sizes", sizes.join(", ")));
    if let Some(call) = call {
        figures.push(("memory of a call", call_bytes::text(call)));
    }
    if !program.mesh.is_empty() {
        let mesh: Vec<String> = program.mesh.iter().map(usize::to_string).collect();
        figures.push(("ranks", mesh.join("x")));
    }
    if artifact.code.is_some() {
        figures.push(("code", format!("{} {}", manifest.arch, manifest.variants.join(" "))));
    }
    figures.push((
        "producer",
        format!("{}, format {}.{}", manifest.producer, manifest.format_major, manifest.format_minor),
    ));
    if let Some(seal) = &artifact.seal {
        figures.push(("signed", seal.signer.map_or("by nobody".into(), |key| format!("by {key}"))));
    }
    figures
}

fn cut(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

/// An entry point, and values of its symbols.
struct Shown<'a> {
    program: &'a Program,
    entry: &'a Entry,
    values: BTreeMap<String, i64>,
}

impl Shown<'_> {
    /// Returns the value of an expression; `None` if it depends on data or is out of range.
    fn value(&self, dim: &Dim) -> Option<i64> {
        let fixed = |name: &str| {
            let symbol = &self.program.symbols[*self.program.symbol_index.get(name)?];
            symbol.hi.filter(|hi| *hi == symbol.lo)
        };
        dim.eval_named(&|name| self.values.get(name).copied().or_else(|| fixed(name))).ok()
    }

    /// Returns the value of an expression over the arguments of a launch.
    fn value_in(&self, launch: &Launch, dim: &Dim) -> Option<i64> {
        let argument = |symbol: &Symbol| match symbol {
            Symbol::Param(n) => self.value(launch.params.get(*n)?),
            Symbol::BufferBytes(n) => self.value(&self.entry.buffers[*launch.buffers.get(*n)?].bytes),
            Symbol::Grid => self.value(&launch.grid),
            _ => None,
        };
        dim.eval(&argument).ok()
    }

    /// Returns what a step runs, and its class.
    fn runs(&self, action: &Action) -> (String, String) {
        match action {
            Action::Launch(launch) => {
                let kernel = &self.program.kernels[launch.kernel];
                (cut(&kernel.symbol), cut(&kernel.class))
            }
            Action::Copy(_) => ("copy".into(), "host".into()),
            Action::Bind(bind) => (format!("bind {}", bind.symbol), "host".into()),
            Action::Host(host) => (host.call.op.to_string(), "host".into()),
        }
    }

    /// Returns the buffers that a step reads, and those that it writes.
    fn accesses(&self, action: &Action) -> [Vec<usize>; 2] {
        match action {
            Action::Launch(launch) => {
                let writes = &self.program.kernels[launch.kernel].writes;
                let (written, read): (Vec<_>, Vec<_>) = launch.buffers.iter().zip(writes).partition(|(_, w)| **w);
                [read, written].map(|buffers| buffers.into_iter().map(|(buffer, _)| *buffer).collect())
            }
            Action::Copy(copy) => [vec![copy.from], vec![copy.to]],
            Action::Bind(bind) => [vec![bind.buffer], vec![]],
            Action::Host(host) => {
                [&host.args, &host.results].map(|operands| operands.iter().map(|operand| operand.buffer).collect())
            }
        }
    }

    fn step(&self, (name, class): (String, String), step: &program::Step) -> Step {
        let [read, written] = self.accesses(&step.action);
        let (constants, others): (Vec<usize>, Vec<usize>) =
            read.iter().partition(|&&buffer| matches!(self.entry.buffers[buffer].place, Place::Constant(_)));
        let bytes = |buffers: &[usize]| -> Json {
            let mut sizes = buffers.iter().map(|&buffer| self.value(&self.entry.buffers[buffer].bytes));
            sizes.try_fold(0i64, |sum, bytes| sum.checked_add(bytes?)).into()
        };
        let (items, operations) = match &step.action {
            Action::Launch(launch) => {
                let flops = self.program.kernels[launch.kernel].flops.as_ref();
                (self.value(&launch.grid), flops.and_then(|flops| self.value_in(launch, flops)))
            }
            Action::Copy(_) | Action::Bind(_) | Action::Host(_) => (None, None),
        };
        let values = vec![items.into(), operations.into(), bytes(&others), bytes(&constants), bytes(&written)];
        Step { name, class, origins: step.origins.clone(), values, point: None }
    }

    /// Returns offset and size of a buffer in the arena.
    fn place(&self, buffer: usize) -> Option<(i64, i64)> {
        let buffer = &self.entry.buffers[buffer];
        let Place::Arena(offset) = &buffer.place else { return None };
        Some((self.value(offset)?, self.value(&buffer.bytes)?))
    }
}
