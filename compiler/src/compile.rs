//! an ONNX model, a request  =>  an artifact (`sardonyx compile MODEL.onnx -o MODEL.sdx`)

use crate::calibrate::score::Score;
use crate::calibrate::{Calibration, Data, Judge, Layer, calibrate};
use crate::contradictions;
use crate::embedder::Embedder;
use crate::emit::{self, HostSummary, Product, Summary, host_operations};
use crate::entries::{Entries, EntrySpec, Skipped, propose};
use crate::import::{DimRange, ParamStore, import};
use crate::module::{graph, lower_model};
use crate::movement::{Levels, Movement, Question};
use crate::onnx::{Model, read_model};
use crate::pipeline::{self, Event, Watch};
use crate::placement::Placement;
use crate::plans::{Made, Planned, Times, Way};
use crate::precision::{self, Accept, Errors, Lowered, Measured, Reference, Yardstick};
use crate::prepare;
use crate::replaced::{files_of_model, refuse_replacing};
use crate::selftest;
use crate::sparsify::{Choice, Pruned, Saliency, Sparsified, name_worst, sparsify};
use melior::Context;
use melior::ir::Module;
use sardonyx_base::plan::SelfTest;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::mlir;
use sardonyx_dialects::plan::Plan;
use sardonyx_dialects::sdx::Graph;
use sardonyx_format::SecretKey;
use sardonyx_kernels::{Target, Tuning};
use sardonyx_passes::calibrated::Calibrated;
use sardonyx_passes::options::RANKS_MAX;
use sardonyx_passes::{KvCache, MaskedRows, Named, Options, Params, Quantize, Rewrites};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Parses `NAME=N` or `NAME=LO..HI`, either end of which is optional.
pub fn parse_dim(text: &str) -> Result<(String, DimRange)> {
    let wrong = || {
        Error::user("E0204", format!("`--dim {text}` is not understood"))
            .help("write --dim NAME=N or --dim NAME=LO..HI, for example --dim seq=1..512")
    };
    let (name, range) = text.split_once('=').ok_or_else(wrong)?;
    let number = |t: &str| t.trim().parse::<i64>().map_err(|_| wrong());
    let range = match range.split_once("..") {
        None => {
            let n = number(range)?;
            DimRange { lo: n, hi: Some(n) }
        }
        Some((lo, hi)) => DimRange {
            lo: if lo.is_empty() { 0 } else { number(lo)? },
            hi: if hi.is_empty() { None } else { Some(number(hi)?) },
        },
    };
    match name.trim() {
        "" => Err(wrong()),
        name => Ok((name.to_string(), range)),
    }
}

/// Parses the ranges of several `--dim` arguments.
pub fn parse_dims(texts: &[String]) -> Result<BTreeMap<String, DimRange>> {
    let mut dims = BTreeMap::new();
    for text in texts {
        let (name, range) = parse_dim(text)?;
        if dims.insert(name.clone(), range).is_some() {
            return Err(Error::user("E0204", format!("`--dim` gives the range of `{name}` twice"))
                .help("write --dim once for each symbol"));
        }
    }
    Ok(dims)
}

/// A request to compile an ONNX model.
#[derive(Clone)]
pub struct Request<'a> {
    /// Path of the ONNX model.
    pub model: &'a Path,
    /// Path of the artifact to write.
    pub output: PathBuf,
    /// Ranges of dimension symbols, by name; the others are at least 0 and have no upper bound.
    pub dims: BTreeMap<String, DimRange>,
    /// Entry points besides `main`.
    pub entries: Entries,
    /// Which IR to show, and which stages to skip or to stop after.
    pub watch: Watch,
    /// The artifact has a plan for each class of these targets; the plans share the constants.
    pub targets: Vec<Target>,
    /// Options of the passes; `options.target` is replaced by each target.
    pub options: Options,
    /// Whether the artifact gets a self-test: a call with known results that is repeated at load.
    pub selftest: bool,
    /// Counts the data that the program moves, if given.
    pub movement: Option<Question>,
    /// Refuses models that need the host to compute anything.
    pub no_host: bool,
    /// Sizes that get their own code, as entry points that `main` calls when its sizes match.
    pub specialized: Vec<EntrySpec>,
    /// How the tensors of nodes are distributed over ranks.
    pub plan: Option<Placement>,
    /// Tiles of the kernels for GPUs; `None` for code with each candidate, to be measured.
    pub tuning: Option<Tuning>,
    /// Bound on the relative error (L2) of outputs at lower precision.
    pub error_budget: Option<f64>,
    /// Rules that decide which weights become 0.
    pub sparsify: Vec<Choice>,
    /// The saliency by which `sparsify` keeps weights: by default `obs` if there is data, else the magnitude.
    pub saliency: Option<Saliency>,
    /// Files and folders of inputs by which weights are rounded or pruned; may be empty.
    pub calibrate: Vec<PathBuf>,
    /// The command that judges a choice of precisions, instead of an error budget.
    pub score: Option<Score>,
    /// Whether to measure the error of a lower precision.
    pub measure: bool,
    /// Pooling and tokenizer, for a model that computes embeddings.
    pub embedder: Option<Embedder>,
    /// The key that signs the artifact, and its file.
    pub sign: Option<(SecretKey, PathBuf)>,
    /// File to which the caller writes a report; it must not be one of the input files.
    pub report: Option<PathBuf>,
}

impl<'a> Request<'a> {
    /// Returns a request for the CPU with a self-test, default options, and no calibration or pruning.
    pub fn new(model: &'a Path, output: impl Into<PathBuf>) -> Request<'a> {
        Request {
            model,
            output: output.into(),
            dims: BTreeMap::new(),
            entries: Entries::default(),
            watch: Watch::default(),
            targets: vec![Target::cpu()],
            options: Options::default(),
            selftest: true,
            movement: None,
            no_host: false,
            specialized: vec![],
            plan: None,
            tuning: Some(Tuning::expected()),
            error_budget: None,
            sparsify: vec![],
            saliency: None,
            calibrate: vec![],
            score: None,
            measure: true,
            embedder: None,
            sign: None,
            report: None,
        }
    }
}

impl Request<'_> {
    fn saliency(&self) -> Saliency {
        let by_default = if self.calibrate.is_empty() { Saliency::Magnitude } else { Saliency::Obs };
        self.saliency.unwrap_or(by_default)
    }

    /// Describes the changes to precision and weights, as manifests and reports do; `None` if there are none.
    fn lowered(&self) -> Option<String> {
        let sparsified = self.sparsify.iter().map(|choice| format!("sparsify={}", choice.text));
        let saliency = Some(self.saliency()).filter(|s| !self.sparsify.is_empty() && *s != Saliency::Magnitude);
        let saliency = saliency.map(|saliency| format!("saliency={}", saliency.name()));
        let all: Vec<String> = self.options.lowered().into_iter().chain(sparsified).chain(saliency).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }
}

/// Outcome of a compilation.
#[derive(Default)]
pub struct Report {
    /// Summary of the artifact; `None` if the compilation stopped after a stage, and `stopped_at` holds the IR.
    pub summary: Option<Summary>,
    /// IR after the stage to stop after; `None` if the artifact was written.
    pub stopped_at: Option<String>,
    /// Time of each step in order, including those outside the pipeline, such as `read` and `codegen`.
    pub times: Times,
    /// Why the artifact has no self-test, if it has none.
    pub selftest_skipped: Option<String>,
    /// Entry points that a model with caches usually gets but this one cannot have, and why.
    pub entries_skipped: Vec<Skipped>,
    /// Data movement of the entry point `main`, if requested.
    pub movement: Option<Movement>,
    /// Errors of a precision below f32, if one was requested.
    pub lowered: Option<Lowered>,
    /// The loss of each product whose weights are pruned.
    pub pruned: Vec<Pruned>,
    /// The errors of the products that calibration rounded.
    pub layers: Vec<Layer>,
    /// The scores of the f32 artifact and of this one, by the user's command.
    pub scores: Option<[f64; 2]>,
    /// Rewrites of the first target class.
    pub rewrites: Rewrites,
    /// Rewrites of each further target class, with the first of its targets.
    pub others: Vec<(Target, Rewrites)>,
}

impl Report {
    fn new(times: Times, rewrites: Rewrites) -> Report {
        Report { times, rewrites, ..Report::default() }
    }
}

/// Adds the entry points besides `main` to the module. Returns those that a model with caches cannot have.
fn add_entries(context: &Context, module: &mut Module, model: &Model, request: &Request) -> Result<Vec<Skipped>> {
    let (specs, skipped) = match &request.entries {
        Entries::Automatic => propose(context, model, &request.dims, &request.options)?,
        Entries::Given(specs) => (specs.clone(), vec![]),
    };
    for spec in specs.iter().chain(&request.specialized) {
        let imported = spec.ranges(&request.dims).and_then(|ranges| import(context, model, &spec.name, &ranges));
        let (function, _) = imported.map_err(|e| in_entry(&spec.name, e))?;
        mlir::Module::new(module).push(function)?;
    }
    Ok(skipped)
}

/// Adds the name of the entry point to the message.
fn in_entry(name: &str, mut e: Box<Error>) -> Box<Error> {
    e.message = format!("in the entry point `{name}`: {}", e.message);
    e
}

/// Compiles a model and writes the artifact. Errors name the model's file.
pub fn compile(request: &Request) -> Result<Report> {
    compile_shown(request, &mut |_| {})
}

/// Refuses outputs that would replace a file the compilation reads. `files` are the external files of the model.
fn refuse_replacing_inputs(request: &Request, files: &BTreeSet<PathBuf>) -> Result<()> {
    let mut read = files_of_model(request.model, files);
    read.extend(request.plan.iter().filter_map(|plan| Some(("the plan of the ranks", plan.file.as_deref()?))));
    let embedder = request.embedder.iter().flat_map(|embedder| &embedder.files);
    read.extend(embedder.map(|file| ("read for texts and pooling", file.as_path())));
    read.extend(request.calibrate.iter().map(|data| ("among the data of --calibrate", data.as_path())));
    let locks = request.tuning.iter().flat_map(|tuning| &tuning.files);
    read.extend(locks.map(|file| ("a file of measured tiles", file.as_path())));
    read.extend(request.sign.iter().map(|(_, file)| ("the key of --sign", file.as_path())));
    std::iter::once(&request.output).chain(&request.report).try_for_each(|output| refuse_replacing(output, &read))
}

/// Refuses plans with operations on the host; one diagnostic names all of their nodes.
fn refuse_host(plan: &Plan) -> Result<()> {
    let all = plan.entries.iter().flat_map(host_operations).filter(|host| !host.calls);
    let found: Vec<HostSummary> = all.collect();
    let Some(first) = found.first().map(|host| host.origins.join(" + ")) else { return Ok(()) };
    let nodes: Vec<String> = found.iter().map(|host| format!("{} ({})", host.op, host.origins.join(" + "))).collect();
    let message = format!("the host would compute {}", nodes.join(", "));
    Err(Error::user("E0109", message).node(first).help("compile without --no-host, or export the model without them"))
}

/// Number of ranks along each axis: from the request, else from the plan or the model's device configuration.
fn mesh(model: &Model, request: &Request) -> Result<Vec<i64>> {
    let of_plan = request.plan.as_ref().map(|plan| plan.mesh.clone());
    let of_model = model.devices.map(|n| if n > 1 { vec![n] } else { vec![] });
    let said = of_plan.or(of_model);
    match (&request.options.mesh[..], said) {
        // A single rank: nothing is distributed.
        ([1], _) | ([], None) => Ok(vec![]),
        ([], Some(mesh)) if mesh.iter().product::<i64>() > RANKS_MAX => {
            let message = format!("the plan is for {} ranks; {RANKS_MAX} can run", mesh.iter().product::<i64>());
            Err(Error::user("E0108", message).help("plan for fewer ranks: `sardonyx plan --ranks N`"))
        }
        ([], Some(mesh)) => Ok(mesh),
        (given, Some(said)) if given != said => {
            let message = format!("the ranks are {given:?}, the plan or the model's configuration says {said:?}");
            Err(Error::user("E0108", message).help("leave out `--ranks`, or give `--ranks 1` for none of it"))
        }
        (given, _) => Ok(given.to_vec()),
    }
}

/// Like [`compile`]; `show` gets the name of each stage as it begins.
pub fn compile_shown(request: &Request, show: &mut dyn FnMut(&'static str)) -> Result<Report> {
    let file = request.model.display().to_string();
    compile_model(request, show).map_err(|e| e.file(file))
}

fn compile_model(request: &Request, show: &mut dyn FnMut(&'static str)) -> Result<Report> {
    show("read");
    let start = Instant::now();
    refuse_replacing_inputs(request, &BTreeSet::new())?;
    let mut model = read_model(request.model)?;
    refuse_replacing_inputs(request, &model.files)?;
    if let Some(plan) = &request.plan {
        plan.apply(&mut model)?;
    }
    let mut request = request.clone();
    if let Some(embedder) = &mut request.embedder {
        embedder.apply(&mut model, &mut request.dims)?;
    }
    let read = ("read", start.elapsed());
    let mut report = compile_read(&model, &request, show)?;
    report.times.insert(0, read);
    Ok(report)
}

/// Like [`compile_shown`] for a model in memory; the request's path is not read.
pub fn compile_read(model: &Model, request: &Request, show: &mut dyn FnMut(&'static str)) -> Result<Report> {
    let mut options = Options { mesh: mesh(model, request)?, ..request.options.clone() };
    if let Some(plan) = request.plan.as_ref().filter(|_| !options.mesh.is_empty()) {
        plan.set(&mut options);
    }
    contradictions::refuse(model, request, &options)?;
    let options = Options { assume_finite: options.assume_finite || !request.sparsify.is_empty(), ..options };
    let request = &Request { options, ..request.clone() };
    let mut prepared = Prepared::default();
    if !request.sparsify.is_empty() {
        show("sparsify");
        let start = Instant::now();
        let by = (request.saliency(), &request.calibrate[..]);
        prepared.sparsified = Some(sparsify(model, &request.dims, &request.options, &request.sparsify, by)?);
        prepared.times.push(("sparsify", start.elapsed()));
    }
    // Data that is given for pruning need not be used for rounding as well.
    let prunes_alone =
        prepared.sparsified.is_some() && matches!(request.options.quantize, Quantize::None | Quantize::Lossless);
    if request.calibrate.is_empty() || prunes_alone {
        return compile_prepared(model, request, prepared, show);
    }
    show("calibrate");
    let start = Instant::now();
    let (made, scores) = match &request.score {
        Some(score) => scored(model, request, score)?,
        None => {
            let judge = request.error_budget.map(Judge::Budget);
            let pruned = prepared.sparsified.as_ref().map(|made| &made.params);
            (calibrate(model, &request.dims, &request.options, (&request.calibrate, pruned), judge)?, None)
        }
    };
    prepared.calibration = Some(made);
    prepared.times.push(("calibrate", start.elapsed()));
    let report = compile_prepared(model, request, prepared, show)?;
    Ok(Report { scores, ..report })
}

/// The weights as changed by pruning and calibration, before any pass runs.
#[derive(Default)]
struct Prepared {
    sparsified: Option<Sparsified>,
    calibration: Option<Calibration>,
    times: Times,
}

/// The choice that the user's command accepts, and the scores of f32 and of that choice.
fn scored(model: &Model, request: &Request, score: &Score) -> Result<(Calibration, Option<[f64; 2]>)> {
    let folder = tempfile::tempdir().map_err(|e| Error::io(Path::new("a temporary folder"), "make", &e))?;
    let output = folder.path().join("scored.sdx");
    let tried = Request {
        output: output.clone(),
        movement: None,
        calibrate: vec![],
        score: None,
        measure: false,
        selftest: false,
        ..request.clone()
    };
    let plain = Request { options: Options { quantize: Quantize::None, ..tried.options.clone() }, ..tried.clone() };
    compile_prepared(model, &plain, Prepared::default(), &mut |_| {})?;
    let before = score.measure(&output)?;
    let mut last = before;
    let mut passes = |calibrated: Calibrated, params: &ParamStore| {
        let made = Calibration { calibrated, params: params.clone(), layers: vec![], data: Data::default() };
        let prepared = Prepared { calibration: Some(made), ..Prepared::default() };
        compile_prepared(model, &tried, prepared, &mut |_| {})?;
        last = score.measure(&output)?;
        Ok(last >= before - score.drop)
    };
    let judge = Judge::Artifact(&mut passes);
    let made = calibrate(model, &request.dims, &request.options, (&request.calibrate, None), Some(judge))?;
    Ok((made, Some([before, last])))
}

fn compile_prepared(
    model: &Model,
    request: &Request,
    prepared: Prepared,
    show: &mut dyn FnMut(&'static str),
) -> Result<Report> {
    let Prepared { sparsified, calibration, mut times } = prepared;
    let calibrated = calibration.as_ref().map(|made| made.calibrated.clone()).unwrap_or_default();
    let options = Options { calibrated, ..request.options.clone() };
    let request = &Request { options, ..request.clone() };
    let context = sardonyx_passes::context();
    // Errors are reported as our own diagnostics; MLIR's copies are only for sardonyx-opt.
    context.attach_diagnostic_handler(|_| true);
    let (mut module, mut params) = lower_model(&context, model, &request.dims)?;
    show("entries");
    let start = Instant::now();
    let entries_skipped = add_entries(&context, &mut module, model, request)?;
    times.push(("entries", start.elapsed()));
    let (mut dense, mut pruned, mut data) = (None, vec![], Data::default());
    if let Some(made) = sparsified {
        dense = Some(params.clone());
        params.extend(made.params);
        (pruned, data) = (made.pruned, Data { samples: made.samples, is_unseen: false });
    }
    let mut layers = vec![];
    if let Some(made) = calibration {
        params.extend(made.params);
        (layers, data) = (made.layers, made.data);
    }
    let mut canary = Canary::default();
    let mut levels = request.movement.as_ref().map(|_| Levels::default());
    let mut watch = request.watch.clone();
    if request.no_host {
        // The pass that removes padding needs the number of unmasked rows, which only the host can count.
        watch.without.push("remove-padding");
    }
    if !request.options.mesh.is_empty() {
        // The pass that removes padding needs the number of unmasked rows, and every rank would have to count them for
        // its own part.
        watch.without.push("remove-padding");
    }
    // The code generator writes the kernels directly from the plan; the stage only shows them as IR.
    if !watch.shows(pipeline::KERNELS) {
        watch.without.push(pipeline::KERNELS);
    }
    let made = Way {
        context: &context,
        watch: &watch,
        targets: &request.targets,
        times: &mut times,
        observe: &mut |event| {
            if let Some(levels) = &mut levels {
                levels.see(&event)?;
            }
            match event {
                Event::Begin(stage) => show(stage),
                Event::End(selftest::STAGE, module) if canary.is_wanted(request) => {
                    show(pipeline::SELFTEST);
                    canary.make(&graph(module)?, (&params, dense.as_ref()), request);
                }
                Event::End(_, _) => {}
            }
            Ok(())
        },
    };
    let options =
        Options { params: Params::new(params.clone()).prepared_by(prepare::values), ..request.options.clone() };
    let mut planned = match made.plans(module, Rewrites::new(options))? {
        Made::Plans(planned) => planned,
        Made::Stopped(ir, rewrites) => return Ok(Report { stopped_at: Some(ir), ..Report::new(times, *rewrites) }),
    };
    times.extend(canary.time.map(|time| ("self-test", time)));
    canary.keep_comparable(&planned, request);
    if request.no_host {
        planned.iter().try_for_each(|made| refuse_host(&made.plan))?;
    }
    let movement = match (&levels, &request.movement) {
        (Some(levels), Some(question)) => Some(Movement::compute(levels, &planned[0].plan, question)?),
        (None, _) | (_, None) => None,
    };
    show("codegen");
    let start = Instant::now();
    let (summary, measured) =
        write(model, request, &planned, &params, (&canary, &data)).map_err(|e| name_worst(e, &pruned))?;
    times.push(("codegen", start.elapsed()));
    let Planned { rewrites, .. } = planned.remove(0);
    let lowered = measured.map(|measured| {
        let narrows = |pass: &str| ["lower-precision", "quantize"].contains(&pass);
        let contractions: usize = rewrites.counts().into_iter().filter(|(pass, _)| narrows(pass)).map(|(_, n)| n).sum();
        let contractions = contractions + pruned.len() + precision::codes_of_file(model, &request.options).unwrap_or(0);
        Lowered { name: request.lowered().unwrap_or_default(), contractions, measured }
    });
    Ok(Report {
        summary: Some(summary),
        selftest_skipped: canary.why_none(request),
        entries_skipped,
        movement,
        lowered,
        layers,
        pruned,
        others: planned.into_iter().map(|made| (made.target, made.rewrites)).collect(),
        ..Report::new(times, rewrites)
    })
}

/// Writes the artifact. One of lower precision is measured before it gets its final name.
fn write(
    model: &Model,
    request: &Request,
    planned: &[Planned],
    params: &ParamStore,
    (canary, data): (&Canary, &Data),
) -> Result<(Summary, Option<Measured>)> {
    let product = Product {
        model_hash: &model.hash,
        selftest: canary.test.as_ref().ok().filter(|_| request.selftest),
        precision: request.lowered(),
        kinds: &model.graph.kinds(),
        tuning: request.tuning.as_ref(),
        sign: request.sign.as_ref().map(|(key, _)| key),
        attached: &request.embedder.as_ref().map(Embedder::attached).unwrap_or_default(),
        specialized: &request.specialized.iter().map(|spec| spec.name.clone()).collect::<Vec<_>>(),
        ..Product::of_plans(planned, params, &request.targets)
    };
    let built = emit::build(&product)?;
    let write = |path: &Path| emit::write(path, &product, &built);
    if request.lowered().is_none() || !request.measure {
        return Ok((write(&request.output)?, None));
    }
    // The data matches the artifact's inputs only if its caches are f32.
    let on_data = !data.samples.is_empty() && request.options.kv_cache == KvCache::F32;
    let reference = (on_data || canary.yardstick().is_err()).then(|| Reference::new(model, request));
    let reference = || reference.as_ref().map(|made| made.as_ref().map_err(String::clone));
    let by_f32 = match (canary.yardstick(), on_data) {
        (Err(_), false) => reference().map(|made| made?.test(&canary.calls, &request.options)),
        (Ok(_), _) | (Err(_), true) => None,
    };
    let by = Yardstick {
        canary: by_f32.as_ref().unwrap_or(canary.yardstick()).as_ref().map_err(String::clone),
        data: reference().filter(|_| on_data).map(|reference| (data, reference)),
    };
    let accept = match (request.error_budget, request.options.quantize) {
        // The budget has been enforced during calibration, on data.
        (Some(_), Quantize::Auto) => Accept::All,
        (Some(budget), _) => Accept::Within(budget),
        (None, Quantize::None) if request.selftest && request.sparsify.is_empty() => Accept::Tolerable,
        (None, _) => Accept::All,
    };
    let (summary, measured) = precision::write_measured(&request.output, by, accept, write)?;
    // The self-test expects the results with pruned weights, so the error that pruning causes is no reason to widen its
    // tolerances.
    let own = request.selftest && request.sparsify.is_empty();
    let test = canary.test.as_ref().ok().filter(|_| own);
    let Some(wider) = test.and_then(|test| widened(test, &measured.canary)) else {
        return Ok((summary, Some(measured)));
    };
    // Only the tolerances of the self-test change; the reported errors stay as measured.
    let product = Product { selftest: Some(&wider), ..product };
    Ok((emit::write(&request.output, &product, &built)?, Some(measured)))
}

/// The test with tolerances of at least twice the measured errors; `None` if its tolerances already are that wide.
fn widened(test: &SelfTest, errors: &Errors) -> Option<SelfTest> {
    let mut wider = test.clone();
    let errors = errors.as_ref().ok()?;
    for output in wider.outputs.iter_mut().filter(|output| output.relative > 0.0) {
        let name = output.tensor.as_ref().map(|t| t.name.clone());
        let measured = errors.iter().find(|e| Some(&e.name) == name.as_ref()).map_or(0.0, |e| 2.0 * e.relative);
        output.relative = output.relative.max(measured);
    }
    (wider != *test).then_some(wider)
}

/// A call with known results: the artifact repeats it at load, and errors of a lower precision are measured on it.
struct Canary {
    /// The self-test, or why there is none.
    test: std::result::Result<SelfTest, String>,
    /// If weights are pruned: the same call of the model with its original weights.
    dense: Option<std::result::Result<SelfTest, String>>,
    /// Inputs for an f32 artifact, used as the reference if there is no self-test or it cannot be compared.
    calls: Vec<Vec<(String, Tensor)>>,
    time: Option<Duration>,
}

impl Default for Canary {
    fn default() -> Canary {
        Canary { test: Err("it was not asked for".to_string()), dense: None, calls: vec![], time: None }
    }
}

impl Canary {
    /// Whether the call is needed, either as self-test or to measure the error of a lower precision.
    fn is_wanted(&self, request: &Request) -> bool {
        (request.selftest || request.measure && request.lowered().is_some()) && request.watch.stop_after.is_none()
    }

    fn make(&mut self, graph: &Graph, (params, dense): (&ParamStore, Option<&ParamStore>), request: &Request) {
        let start = Instant::now();
        self.test = selftest::make(graph, params, &request.options);
        self.dense = dense.map(|dense| selftest::make(graph, dense, &request.options));
        let comparable = self.test.is_ok() && request.options.masked_rows == MaskedRows::Compute;
        if request.lowered().is_some() && !comparable {
            self.calls = selftest::inputs(graph);
        }
        self.time = Some(start.elapsed());
    }

    /// The expected outputs that errors are measured against.
    fn yardstick(&self) -> &std::result::Result<SelfTest, String> {
        self.dense.as_ref().unwrap_or(&self.test)
    }

    /// Drops the self-test if masked rows are left out, because the outputs then have zeros there, unlike the model's.
    fn keep_comparable(&mut self, planned: &[Planned], request: &Request) {
        let removes = |made: &Planned| made.rewrites.applied().iter().any(|r| r.pass == "remove-padding");
        if request.options.masked_rows == MaskedRows::Zero && planned.iter().any(removes) {
            self.test = Err("outputs are 0 where the mask is, and the model does not say so".to_string());
        }
    }

    fn why_none(&self, request: &Request) -> Option<String> {
        match request.selftest {
            true => self.test.as_ref().err().cloned(),
            false => Some("it was not asked for".into()),
        }
    }
}
