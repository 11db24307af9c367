//! The order of the passes from `onnx` to `plan`, and how a module is taken through them

use melior::Context;
use melior::ir::Module;
use melior::ir::operation::{OperationLike, OperationPrintingFlags};
use sardonyx_base::{Error, Result};
use sardonyx_kernels::Target;
use sardonyx_passes::Rewrites;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The stages in order: a name for `--stop-after` and `--print-after`, and what runs.
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
    ("pack-weights", "pack-weights"),
    ("lower-precision", "lower-precision"),
    ("stage-operands", "stage-operands"),
    ("schedule", "schedule"),
    ("overlap", "overlap"),
    ("plan-memory", "plan-memory"),
    (KERNELS, "lower-kernels"),
];

/// What may be left out: the result is right without it, and slower or not tested when it is loaded.
pub static OPTIONAL: &[&str] = &[
    "e-graph",
    "fuse",
    "fuse-attention",
    "fuse-siblings",
    "split-columns",
    "remove-padding",
    "skip-masked-keys",
    "choose-layouts",
    "choose-algorithms",
    "skip-zeros",
    "stage-operands",
    "overlap",
    SELFTEST,
];

/// No stage of its own: what is computed for it goes into the artifact.
pub const SELFTEST: &str = "self-test";

/// The first stage that asks what code is for: from here on each class of targets has a module of its own.
const FIRST_OF_TARGET: &str = "e-graph";

/// The stages before any target matters, and those of each class of targets.
pub fn parts() -> [Range<usize>; 2] {
    let fork = STAGES.iter().position(|(name, _)| *name == FIRST_OF_TARGET).unwrap_or(STAGES.len());
    [0..fork, fork..STAGES.len()]
}

/// The stage that writes the kernels as MLIR.
pub const KERNELS: &str = "lower-kernels";

/// The whole as one pipeline string, for the manifest and for `sardonyx-opt`.
pub fn pipeline() -> String {
    let passes: Vec<&str> = STAGES.iter().map(|(_, p)| *p).filter(|p| !p.is_empty()).collect();
    format!("builtin.module({})", passes.join(","))
}

/// What to show on the way.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Print the IR to standard error after these stages; `all` for every one.
    pub print_after: Vec<String>,
    /// Write the IR after every stage to `NN-stage.mlir` in this folder.
    pub dump_dir: Option<PathBuf>,
    pub stop_after: Option<String>,
    /// Stages that do nothing, for those who compare with and without.
    pub without: Vec<&'static str>,
    /// What is shown is made for this target, where another is beside it.
    pub of: Option<Target>,
    pub time_passes: bool,
}

/// What happens on the way, for those who show progress or read the module between stages.
pub enum Event<'a, 'c> {
    Begin(&'static str),
    End(&'static str, &'a Module<'c>),
}

/// Runs the stages. Gives the time of each.
pub fn run<'c>(
    context: &'c Context,
    module: &mut Module<'c>,
    watch: &Watch,
    observe: &mut dyn FnMut(Event<'_, 'c>) -> Result<()>,
) -> Result<Vec<(&'static str, Duration)>> {
    run_with(context, module, watch, &mut Rewrites::default(), observe)
}

/// The same within the fuel of a compilation, which goes on counting what is applied.
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

/// The same for some of the stages, up to the one to stop after.
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
    /// Whether anybody sees the IR after a stage.
    pub fn shows(&self, stage: &str) -> bool {
        self.dump_dir.is_some()
            || self.stop_after.as_deref() == Some(stage)
            || self.print_after.iter().any(|n| n == stage || n == "all")
    }

    /// Errors: E0001 for stages that there are not.
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
