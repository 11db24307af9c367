//! The order of the passes from `onnx` to `plan`, and the driver that runs a module through them

use melior::Context;
use melior::ir::Module;
use melior::ir::operation::{OperationLike, OperationPrintingFlags};
use sardonyx_base::{Error, Result};
use sardonyx_kernels::Target;
use sardonyx_passes::Rewrites;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The stages in order: the name for `--stop-after` and `--print-after`, and the passes to run.
pub static STAGES: &[(&str, &str)] = &[
    ("import", ""),
    ("onnx-to-sdx", "onnx-to-sdx"),
    ("find-caches", "find-caches"),
    ("narrow-caches", "narrow-caches"),
    ("fold-constants", "fold-constants"),
    ("simplify", "simplify,func.func(cse)"),
    ("shard", "shard"),
    ("e-graph", "e-graph,simplify,func.func(cse)"),
    ("quantize", "quantize"),
    ("sdx-to-flow", "sdx-to-flow"),
    ("widen-halves", "widen-halves"),
    ("prepare-weights", "prepare-weights"),
    ("split-extrema", "split-extrema"),
    ("fuse", "fuse,drop-roundings"),
    ("fuse-attention", "fuse-attention,inline-maps"),
    ("fuse-siblings", "fuse-siblings"),
    ("split-columns", "split-columns"),
    ("remove-padding", "remove-padding"),
    ("int8-contractions", "int8-contractions"),
    ("expand-weights", "expand-weights"),
    ("skip-masked-keys", "skip-masked-keys"),
    ("choose-layouts", "choose-layouts"),
    ("choose-algorithms", "choose-algorithms"),
    ("skip-zeros", "skip-zeros"),
    ("tabulate", "tabulate"),
    ("pack-weights", "pack-weights"),
    ("lower-precision", "lower-precision"),
    ("stage-operands", "stage-operands"),
    ("schedule", "schedule"),
    ("overlap", "overlap"),
    ("plan-memory", "plan-memory"),
    (KERNELS, "lower-kernels"),
];

/// Stages that may be left out: the result stays correct, but is slower or lacks the self-test.
pub static OPTIONAL: &[&str] = &[
    "e-graph",
    "split-extrema",
    "fuse",
    "fuse-attention",
    "fuse-siblings",
    "split-columns",
    "remove-padding",
    "skip-masked-keys",
    "choose-layouts",
    "choose-algorithms",
    "skip-zeros",
    "tabulate",
    "stage-operands",
    "overlap",
    SELFTEST,
];

/// Not a stage in `STAGES`: the computation of the self-test's expected results.
pub const SELFTEST: &str = "self-test";

/// The first stage that depends on the target: from here on each target class has its own module.
const FIRST_OF_TARGET: &str = "e-graph";

/// The stages that are shared by all targets, and those that run for each target class.
pub fn parts() -> [Range<usize>; 2] {
    let fork = STAGES.iter().position(|(name, _)| *name == FIRST_OF_TARGET).unwrap_or(STAGES.len());
    [0..fork, fork..STAGES.len()]
}

/// The stage that writes the kernels as MLIR.
pub const KERNELS: &str = "lower-kernels";

/// All passes as one pipeline string, for the manifest and for `sardonyx-opt`.
pub fn pipeline() -> String {
    let passes: Vec<&str> = STAGES.iter().map(|(_, p)| *p).filter(|p| !p.is_empty()).collect();
    format!("builtin.module({})", passes.join(","))
}

/// What to show and what to skip while the stages run.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Print the IR to standard error after these stages; `all` for every one.
    pub print_after: Vec<String>,
    /// Write the IR after every stage to `NN-stage.mlir` in this folder.
    pub dump_dir: Option<PathBuf>,
    /// Stage after which to stop; `None` to run all stages.
    pub stop_after: Option<String>,
    /// Stages to skip, for example to compare results with and without a stage.
    pub without: Vec<&'static str>,
    /// The target of the module, if there are several targets; printed and dumped IR is labelled with it.
    pub of: Option<Target>,
    /// Whether the caller prints the time of each stage; the pipeline measures it in any case.
    pub time_passes: bool,
}

/// Events between stages, for callers that show progress or read the module.
pub enum Event<'a, 'c> {
    /// The stage with this name begins.
    Begin(&'static str),
    /// The stage with this name has ended, with the module after it.
    End(&'static str, &'a Module<'c>),
}

/// Runs all stages. Returns the time of each.
pub fn run<'c>(
    context: &'c Context,
    module: &mut Module<'c>,
    watch: &Watch,
    observe: &mut dyn FnMut(Event<'_, 'c>) -> Result<()>,
) -> Result<Vec<(&'static str, Duration)>> {
    run_with(context, module, watch, &mut Rewrites::default(), observe)
}

/// Like [`run`], with given options and fuel; the rewrites that are applied are added to `rewrites`.
pub fn run_with<'c>(
    context: &'c Context,
    module: &mut Module<'c>,
    watch: &Watch,
    rewrites: &mut Rewrites,
    observe: &mut dyn FnMut(Event<'_, 'c>) -> Result<()>,
) -> Result<Vec<(&'static str, Duration)>> {
    watch.check()?;
    run_stages(context, module, 0..STAGES.len(), watch, rewrites, observe)
}

/// Like [`run_with`] for a range of stages, ending with the one to stop after.
pub fn run_stages<'c>(
    context: &'c Context,
    module: &mut Module<'c>,
    stages: Range<usize>,
    watch: &Watch,
    rewrites: &mut Rewrites,
    observe: &mut dyn FnMut(Event<'_, 'c>) -> Result<()>,
) -> Result<Vec<(&'static str, Duration)>> {
    let mut times = vec![];
    for i in stages {
        let (name, passes) = STAGES[i];
        observe(Event::Begin(name))?;
        let start = Instant::now();
        if !passes.is_empty() && !watch.without.contains(&name) {
            let pipeline = format!("builtin.module({passes})");
            sardonyx_passes::run_pipeline_with(context, module, &pipeline, rewrites)?;
        }
        times.push((name, start.elapsed()));
        observe(Event::End(name, module))?;
        watch.show(i, module)?;
        if watch.stop_after.as_deref() == Some(name) {
            break;
        }
    }
    Ok(times)
}

impl Watch {
    /// Whether the IR after a stage is printed, dumped or returned.
    pub fn shows(&self, stage: &str) -> bool {
        self.dump_dir.is_some()
            || self.stop_after.as_deref() == Some(stage)
            || self.print_after.iter().any(|n| n == stage || n == "all")
    }

    /// Checks that the stages to print after and to stop after exist. Errors: E0001.
    pub fn check(&self) -> Result<()> {
        for name in self.print_after.iter().filter(|n| *n != "all").chain(&self.stop_after) {
            if !STAGES.iter().any(|(s, _)| s == name) {
                let known: Vec<&str> = STAGES.iter().map(|(s, _)| *s).collect();
                return Err(Error::user("E0001", format!("there is no stage `{name}`"))
                    .help(format!("the stages are {}", known.join(", "))));
            }
        }
        Ok(())
    }

    fn show(&self, stage: usize, module: &Module) -> Result<()> {
        let name = STAGES[stage].0;
        let of = self.of.map_or(String::new(), |target| format!(" for {}", target.name()));
        if self.print_after.iter().any(|n| n == name || n == "all") {
            eprintln!("// after {name}{of}\n{}", text(module)?);
        }
        if let Some(dir) = &self.dump_dir {
            std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, "create", &e))?;
            let of = self.of.map_or(String::new(), |target| format!(".{}", target.class().name()));
            let path = dir.join(format!("{stage:02}-{name}{of}.mlir"));
            std::fs::write(&path, text(module)?).map_err(|e| Error::io(&path, "write", &e))?;
        }
        Ok(())
    }
}

/// The module as text, with the ONNX nodes as locations.
pub fn text(module: &Module) -> Result<String> {
    let flags = OperationPrintingFlags::new().enable_debug_info(true, false);
    module.as_operation().to_string_with_flags(flags).map_err(|e| Error::defect(e.to_string()))
}
