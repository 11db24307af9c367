//! sardonyx compile MODEL.onnx -o MODEL.sdx

use crate::calibrate::score::Score;
use crate::calibrate::{Calibration, Data, Judge, Layer, calibrate};
use crate::contradictions;
use crate::embedder::Embedder;
use crate::emit::{self, HostSummary, Product, Summary, host_operations};
use crate::entries::{Entries, EntrySpec, Skipped, propose};
use crate::import::{DimRange, ParamStore, import};
use crate::module::{body, graph, lower_model};
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
use sardonyx_dialects::plan::Plan;
use sardonyx_dialects::sdx::Graph;
use sardonyx_format::SecretKey;
use sardonyx_kernels::Target;
use sardonyx_passes::calibrated::Calibrated;
use sardonyx_passes::options::RANKS_MAX;
use sardonyx_passes::{KvCache, MaskedRows, Named, Options, Params, Quantize, Rewrites};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `NAME=N` or `NAME=LO..HI`, either end optional.
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

/// The ranges of several `--dim` arguments.
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

#[derive(Clone)]
pub struct Request<'a> {
    pub model: &'a Path,
    pub output: PathBuf,
    pub dims: BTreeMap<String, DimRange>,
    pub entries: Entries,
    pub watch: Watch,
    /// What the artifact has code for: with a plan for each class of them, over the same constants.
    pub targets: Vec<Target>,
    /// What the passes are asked for; each target takes the place of `options.target`.
    pub options: Options,
    /// Put a call with known results into the artifact, which loading it repeats.
    pub selftest: bool,
    /// Count what the program moves.
    pub movement: Option<Question>,
    /// Refuse models of which the host must compute something.
    pub no_host: bool,
    /// Sizes that get code of their own, as entry points that calls of `main` run where they fit.
    pub specialized: Vec<EntrySpec>,
    /// What ranks are to have of the tensors of nodes.
    pub plan: Option<Placement>,
    /// The relative error (L2) that an output of lower precision may have.
    pub error_budget: Option<f64>,
    /// Rules by which weights become 0.
    pub sparsify: Vec<Choice>,
    /// The score by which `sparsify` keeps weights: by default `obs` where there is data, else their magnitude.
    pub saliency: Option<Saliency>,
    /// Files and folders with inputs that weights are rounded or pruned by; none where there are none.
    pub calibrate: Vec<PathBuf>,
    /// What a choice of precisions is judged by, in the place of an error budget.
    pub score: Option<Score>,
    /// Whether it is measured what a lower precision costs.
    pub measure: bool,
    /// The pooling and the tokenizer of a model that makes embeddings.
    pub embedder: Option<Embedder>,
    /// The key that signs the artifact, and the file that holds the key.
    pub sign: Option<(SecretKey, PathBuf)>,
    /// Where the caller writes a report, which is no file that is read either.
    pub report: Option<PathBuf>,
}

impl<'a> Request<'a> {
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

    /// Names the changes to precision and weights, as manifests and reports do; none where there are none.
    fn lowered(&self) -> Option<String> {
        let sparsified = self.sparsify.iter().map(|choice| format!("sparsify={}", choice.text));
        let saliency = Some(self.saliency()).filter(|s| !self.sparsify.is_empty() && *s != Saliency::Magnitude);
        let saliency = saliency.map(|saliency| format!("saliency={}", saliency.name()));
        let all: Vec<String> = self.options.lowered().into_iter().chain(sparsified).chain(saliency).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }
}

#[derive(Default)]
pub struct Report {
    /// Absent where the compilation stopped at a stage; then the IR is here.
    pub summary: Option<Summary>,
    pub stopped_at: Option<String>,
    pub times: Times,
    /// Why the artifact has no self-test, where it has none.
    pub selftest_skipped: Option<String>,
    /// Entry points that a model with caches might have had, and why it has not.
    pub entries_skipped: Vec<Skipped>,
    /// What the entry point `main` moves, where that was asked for.
    pub movement: Option<Movement>,
    /// What a precision below f32 came to, where one was asked for.
    pub lowered: Option<Lowered>,
    /// The loss of each product whose weights are pruned.
    pub pruned: Vec<Pruned>,
    /// What each product lost that calibration rounded.
    pub layers: Vec<Layer>,
    /// What the user's command says of f32, and of this artifact.
    pub scores: Option<[f64; 2]>,
    /// What the passes applied, for the first class of targets.
    pub rewrites: Rewrites,
    /// The same for each further class, with the first of its targets.
    pub others: Vec<(Target, Rewrites)>,
}

impl Report {
    fn of(times: Times, rewrites: Rewrites) -> Report {
        Report { times, rewrites, ..Report::default() }
    }
}

/// Puts the entry points beside `main` into its module. Gives those that a model with caches cannot have.
fn add_entries(context: &Context, module: &Module, model: &Model, request: &Request) -> Result<Vec<Skipped>> {
    let (specs, skipped) = match &request.entries {
        Entries::Automatic => propose(context, model, &request.dims)?,
        Entries::Given(specs) => (specs.clone(), vec![]),
    };
    for spec in specs.iter().chain(&request.specialized) {
        let imported = spec.ranges(&request.dims).and_then(|ranges| import(context, model, &spec.name, &ranges));
        let (function, _) = imported.map_err(|e| in_entry(&spec.name, e))?;
        body(module)?.push(function);
    }
    Ok(skipped)
}

/// The message says in which of several entry points.
fn in_entry(name: &str, mut e: Box<Error>) -> Box<Error> {
    e.message = format!("in the entry point `{name}`: {}", e.message);
    e
}

pub fn compile(request: &Request) -> Result<Report> {
    compile_shown(request, &mut |_| {})
}

/// No output may replace a file that the compilation reads. `files` are those that lie beside the model.
fn refuse_replacing_inputs(request: &Request, files: &BTreeSet<PathBuf>) -> Result<()> {
    let mut read = files_of_model(request.model, files);
    read.extend(request.plan.iter().filter_map(|plan| Some(("the plan of the ranks", plan.file.as_deref()?))));
    let embedder = request.embedder.iter().flat_map(|embedder| &embedder.files);
    read.extend(embedder.map(|file| ("read for texts and pooling", file.as_path())));
    read.extend(request.calibrate.iter().map(|data| ("among the data of --calibrate", data.as_path())));
    read.extend(request.sign.iter().map(|(_, file)| ("the key of --sign", file.as_path())));
    std::iter::once(&request.output).chain(&request.report).try_for_each(|output| refuse_replacing(output, &read))
}

/// All nodes that the host computes, in one diagnostic.
fn refuse_host(plan: &Plan) -> Result<()> {
    let all = plan.entries.iter().flat_map(host_operations).filter(|host| !host.calls);
    let found: Vec<HostSummary> = all.collect();
    let Some(first) = found.first().map(|host| host.origins.join(" + ")) else { return Ok(()) };
    let nodes: Vec<String> = found.iter().map(|host| format!("{} ({})", host.op, host.origins.join(" + "))).collect();
    let message = format!("the host would compute {}", nodes.join(", "));
    Err(Error::user("E0109", message).node(first).help("compile without --no-host, or export the model without them"))
}

/// How many ranks there are along each axis: as the request says, else as the plan or the model's device configuration.
fn mesh(model: &Model, request: &Request) -> Result<Vec<i64>> {
    let of_plan = request.plan.as_ref().map(|plan| plan.mesh.clone());
    let of_model = model.devices.map(|n| if n > 1 { vec![n] } else { vec![] });
    let said = of_plan.or(of_model);
    match (&request.options.mesh[..], said) {
        // One rank: nothing is placed.
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

/// As `compile`, and tells the name of each stage as it begins.
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

/// As `compile_shown`, of a model that is in memory; the request's path is not read.
pub fn compile_read(model: &Model, request: &Request, show: &mut dyn FnMut(&'static str)) -> Result<Report> {
    let mut options = Options { mesh: mesh(model, request)?, ..request.options.clone() };
    if let Some(plan) = request.plan.as_ref().filter(|_| !options.mesh.is_empty()) {
        (options.places, options.seeds) = (plan.operands.clone(), plan.seeds);
        (options.stages, options.overlap) = (plan.stages.clone(), plan.overlap.clone());
    }
    contradictions::refuse(request, &options)?;
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
    // Data by which weights are pruned may round nothing.
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

/// The weights as pruning and calibration leave them, before the passes see them.
#[derive(Default)]
struct Prepared {
    sparsified: Option<Sparsified>,
    calibration: Option<Calibration>,
    times: Times,
}

/// The choice that the user's command lets pass, and what it says of f32 and of that.
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
    // Errors reach the user as our diagnostics; MLIR's own copies are for sardonyx-opt.
    context.attach_diagnostic_handler(|_| true);
    let (module, mut params) = lower_model(&context, model, &request.dims)?;
    show("entries");
    let start = Instant::now();
    let entries_skipped = add_entries(&context, &module, model, request)?;
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
        // How many rows there are is counted by the host.
        watch.without.push("remove-padding");
    }
    if !request.options.mesh.is_empty() {
        // How many rows there are would be counted by every rank for itself.
        watch.without.push("remove-padding");
    }
    // The code generator writes the kernels from the plan: the stage is for those who look at it.
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
        Made::Stopped(ir, rewrites) => return Ok(Report { stopped_at: Some(ir), ..Report::of(times, *rewrites) }),
    };
    times.extend(canary.time.map(|time| ("self-test", time)));
    canary.keep_comparable(&planned, request);
    if request.no_host {
        planned.iter().try_for_each(|made| refuse_host(&made.plan))?;
    }
    let movement = match (&levels, &request.movement) {
        (Some(levels), Some(question)) => Some(Movement::of(levels, &planned[0].plan, question)?),
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
        Lowered { name: request.lowered().unwrap_or_default(), contractions: contractions + pruned.len(), measured }
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
        ..Report::of(times, rewrites)
    })
}

/// Writes the artifact. Of a lower precision it is measured before it gets its name.
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
    // Data has what the model's inputs are.
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
        // It was measured on data.
        (Some(_), Quantize::Auto) => Accept::All,
        (Some(budget), _) => Accept::Within(budget),
        (None, Quantize::None) if request.selftest && request.sparsify.is_empty() => Accept::Tolerable,
        (None, _) => Accept::All,
    };
    let (summary, measured) = precision::write_measured(&request.output, by, accept, write)?;
    // The self-test expects the results of the pruned weights.
    let own = request.selftest && request.sparsify.is_empty();
    let test = canary.test.as_ref().ok().filter(|_| own);
    let Some(wider) = test.and_then(|test| widened(test, &measured.canary)) else {
        return Ok((summary, Some(measured)));
    };
    // What the self-test allows is not what the model's errors are.
    let product = Product { selftest: Some(&wider), ..product };
    Ok((emit::write(&request.output, &product, &built)?, Some(measured)))
}

/// The test with twice the errors that were measured, where codes have larger ones than it allows.
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

/// A call with known results, which the artifact makes at load and a lower precision is measured by.
struct Canary {
    /// Or why there is none.
    test: std::result::Result<SelfTest, String>,
    /// The same call of the model as it was, where its weights are pruned.
    dense: Option<std::result::Result<SelfTest, String>>,
    /// Inputs for an artifact of f32, where the interpreter is too slow or the test of no use.
    calls: Vec<Vec<(String, Tensor)>>,
    time: Option<Duration>,
}

impl Default for Canary {
    fn default() -> Canary {
        Canary { test: Err("it was not asked for".to_string()), dense: None, calls: vec![], time: None }
    }
}

impl Canary {
    /// What a lower precision costs is measured by the same call.
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

    /// Gives the outputs that errors are measured by.
    fn yardstick(&self) -> &std::result::Result<SelfTest, String> {
        self.dense.as_ref().unwrap_or(&self.test)
    }

    /// Where rows are left out, the outputs are others than the model's.
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
