//! a prepared model or a case of the conformance suite  =>  the PTX of each of its kernels, for each target

use melior::ir::Module;
use sardonyx::compile::{Request, compile};
use sardonyx::pipeline::STAGES;
use sardonyx::sparsify::Choice;
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::Plan;
use sardonyx_kernels::Target;
use sardonyx_kernels::ptx::module;
use sardonyx_kernels::{Lowered, lower};
use sardonyx_passes::{Options, Rewrites};
use sardonyx_tests::prepared::{model, workspace};

/// A kernel as a PTX module of its own.
pub struct Text {
    pub name: String,
    pub target: Target,
    pub ptx: String,
}

/// Target for which plans are made. GPUs share a plan, which uses the device figures of the first GPU that is named.
fn planned_for() -> Target {
    Target::from_name("cuda:sm_80").expect("it is a target")
}

/// Kernels of a model; `None` if the compiler refuses it for a reason other than a defect (E0901).
pub fn of_model(name: &str) -> Option<Vec<Text>> {
    compiled(name, Options::default(), vec![])
}

/// Kernels of a model compiled with options, and with weights pruned by a rule, if there is one.
pub fn of_options(name: &str, given: &[&str], rule: Option<&str>) -> Vec<Text> {
    let mut options = Options::default();
    for option in given {
        options.set(option).expect("such options there are");
    }
    let pruned = rule.map(|rule| Choice::parse(rule).expect("it is a rule")).into_iter().collect();
    compiled(name, options, pruned).expect("it compiles")
}

fn compiled(name: &str, options: Options, sparsify: Vec<Choice>) -> Option<Vec<Text>> {
    let model = model(name);
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    let mut request = Request::new(&model, dir.path().join("m.sdx"));
    request.targets = vec![planned_for()];
    (request.options, request.sparsify) = (options, sparsify);
    request.watch.stop_after = Some("plan-memory".into());
    let report = match compile(&request) {
        Ok(report) => report,
        Err(e) => {
            assert_ne!(e.code, "E0901", "{name}: {e}");
            return None;
        }
    };
    let text = report.stopped_at.expect("it was told to stop");
    Some(of_plan(name, &text, ""))
}

/// Kernels of the conformance cases, which run on every device.
pub fn of_cases() -> Vec<Text> {
    let folder = workspace().join("testdata/kernels");
    let files = std::fs::read_dir(&folder).expect("the folder is there").map(|e| e.expect("an entry").path());
    let passes = STAGES.iter().map(|(_, passes)| *passes).skip_while(|p| !p.starts_with("simplify"));
    let passes: Vec<&str> = passes.take_while(|p| *p != "lower-kernels").collect();
    let pipeline = format!("builtin.module({})", passes.join(","));
    let mut out = vec![];
    for file in files {
        let (text, name) = (std::fs::read_to_string(&file).expect("a case file"), file.display().to_string());
        let of_case = |case: &str| {
            let function = case.split_once('@').map_or("", |(_, rest)| rest.split('(').next().unwrap_or_default());
            of_plan(&format!("{name} @{function}"), case, &pipeline)
        };
        out.extend(text.split("\n// -----").flat_map(of_case));
    }
    out
}

/// Kernels of a plan, or of the plan that a pipeline makes of the text.
fn of_plan(name: &str, text: &str, pipeline: &str) -> Vec<Text> {
    let context = sardonyx_passes::context();
    let mut module = Module::parse(&context, text).expect("a stage's text can be read");
    if !pipeline.is_empty() {
        let mut rewrites = Rewrites::new(Options { target: planned_for(), ..Options::default() });
        sardonyx_passes::run_pipeline_with(&context, &mut module, pipeline, &mut rewrites)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let plan = Plan::read(Operation::of_module(&module)).expect("the plan is sound");
    let kernels = plan.expect("there is a plan after this stage").kernels;
    let lowered = kernels.iter().map(|(symbol, k)| (symbol, lower(k).expect("the pipeline lowers it too")));
    lowered.flat_map(|(symbol, l)| texts(&format!("{name} {symbol}"), &l)).collect()
}

/// The kernel's text for every GPU target.
pub fn texts(name: &str, lowered: &Lowered) -> Vec<Text> {
    let text = |target: Target| {
        // All kernels get the same symbol, so that equal kernels have equal texts.
        let kernel = lowered.for_gpu(target).emit("k").unwrap_or_else(|e| panic!("{name}: {e}"));
        Text { name: name.into(), target, ptx: module(target, &[kernel]) }
    };
    Target::all().filter(|target| target.ptx().is_some()).map(text).collect()
}
