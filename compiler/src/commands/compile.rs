//! compile MODEL.onnx -o MODEL.sdx  =>  the artifact and what it came to

use super::embedder::{EmbedderArgs, default_output, padding_line};
use super::movement::{MovementArgs, kernels_json, movement_json, operators_json};
use super::supervise::{GivenUp, Work, supervised};
use super::values::{Limits, Mesh, budget, kept, named, passes_named, ranks, score_command, score_drop};
use super::{Progress, say, write_whole};
use crate::calibrate::Layer;
use crate::calibrate::score::Score;
use crate::compile::{Report, Request, compile_shown, parse_dims};
use crate::emit::{EntrySummary, HostSummary, PlanSummary};
use crate::entries::{Entries, parse_entries, parse_specialized};
use crate::movement::{Movement, Question};
use crate::pipeline::{SELFTEST, Watch};
use crate::placement::Placement;
use crate::precision::{Lowered, OnData, OutputError, worst};
use crate::sparsify::{Choice, Pruned, Saliency};
use crate::targets;
use regex_lite::Regex;
use sardonyx_base::cpu::{self, Extension};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_format::SecretKey;
use sardonyx_kernels::Target;
use sardonyx_passes::{
    Activations, Group, KvCache, Layouts, MaskedRows, Options, Precision, Quantize, Remark, Rewrite, Rewrites,
    Sparsity, Validation,
};
use sardonyx_run::values::byte_count;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} compile model.onnx -o model.sdx
  {bin} compile model.onnx --dim batch=1..8 --dim seq=1..512 --json
  {bin} compile model.onnx --target cpu --target cuda:sm_80
  {bin} compile model.onnx --precision bf16
  {bin} compile decoder.onnx --entry decode:seq=1 --entry start:seq=64,past=0
  {bin} compile model.onnx --stop-after simplify -o model.mlir
  {bin} compile model.onnx --time-passes --dump-dir stages
  {bin} compile model.onnx --report report.json --at batch=8,seq=512
  {bin} compile all-MiniLM-L6-v2 -o minilm.sdx
  {bin} compile model.onnx --pooling mean --normalize --tokenizer tokenizer.json")]
pub struct CompileArgs {
    /// The model, or a folder in the layout of sentence-transformers: its pooling becomes part of the model, its tokenizer of the
    /// artifact
    #[arg(value_name = "MODEL.onnx|FOLDER")]
    pub model: PathBuf,
    #[command(flatten)]
    pub embedder: EmbedderArgs,
    /// Where to write; the model's name with .sdx by default
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// What to compile for; may be given several times
    #[arg(long = "target", value_name = "TARGET", default_value = "cpu", value_parser = targets::parser())]
    pub targets: Vec<Target>,
    /// What contractions multiply: `bf16` rounds weights and what they are multiplied with, and the factors of attention; sums,
    /// softmax and normalisation stay f32. The error against f32 is printed. For CPUs; those without AVX-512 BF16 convert
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = named::<Precision>())]
    pub precision: Precision,
    /// Codes in the place of weights: whole numbers of so many bits, with a scale for each column or for each group of it; what
    /// they are multiplied with becomes bytes in the call, with a scale for each row. `fp8` has floats of 8 bits (e4m3) in the place
    /// of whole numbers, which are multiplied with f32. The error against f32 is printed. `lossless` loses nothing: weights that are
    /// such numbers in f32 are found and stored so. `auto` stores each layer in f32, int8 or int4, in as few bytes as
    /// `--error-budget` allows on the data of `--calibrate`
    #[arg(long, value_name = "TYPE", default_value = "none", value_parser = named::<Quantize>())]
    pub quantize: Quantize,
    /// Weights along the sum that have one scale [default: channel, all of them, for int8 and fp8; 32 for fewer bits]
    #[arg(long, value_name = "N", value_parser = named::<Group>(), requires = "quantize")]
    pub group: Option<Group>,
    /// The type that quantised weights are multiplied with: int8 is faster, f32 loses nothing [default: f32 for fp8 and lossless, else int8]
    #[arg(long, value_name = "TYPE", value_parser = named::<Activations>(), requires = "quantize")]
    pub activations: Option<Activations>,
    /// The format in which a decoder keeps its caches: f32; bf16; int8, with a scale for each head and position; or block floating
    /// point, bfp8 or bfp4: codes of so many bits, with an exponent for up to 32 elements of a head. The inputs and outputs that
    /// are caches have these types, and scales or exponents beside them
    #[arg(long, value_name = "FORMAT", default_value = "f32", value_parser = named::<KvCache>())]
    pub kv_cache: KvCache,
    /// Nodes that are not quantised: REGEX=f32, the pattern of their names; may be given several times
    #[arg(long, value_name = "REGEX=f32", value_parser = kept, requires = "quantize")]
    pub keep: Vec<Regex>,
    /// Inputs that int4, int3 and fp8 weights are rounded by: `.npz` files with an array for each input, `test_data_set_*` folders, or
    /// folders of them. Each weight makes good what those before it lost of the products with these inputs. With int8, inputs
    /// that say the ranges of what convolutions read. With `--sparsify`, inputs that weights are pruned by (`--saliency`). `random`
    /// makes inputs up
    #[arg(long, value_name = "DATA", num_args = 1..)]
    pub calibrate: Vec<PathBuf>,
    /// The relative error (L2) that an output may have by lower precision, on inputs made for that, or for `--quantize auto` on
    /// data; above it nothing is written
    #[arg(long, value_name = "X", value_parser = budget)]
    pub error_budget: Option<f64>,
    /// For `--quantize auto`, in the place of an error budget: a command of the shell that judges an artifact, whose path stands
    /// for `{}`. The last line that it prints is a number, the larger the better
    #[arg(long, value_name = "COMMAND", requires = "drop", conflicts_with = "error_budget", value_parser = score_command)]
    pub score: Option<String>,
    /// By how much the score may be less than that of f32
    #[arg(long, value_name = "X", value_parser = score_drop, requires = "score")]
    pub drop: Option<f64>,
    /// Ranks that run the model together, each with a part of the weights: N, or NxM for a mesh of two axes
    /// [default: what the model's device configuration says, else 1]
    #[arg(long, value_name = "N", value_parser = ranks)]
    pub ranks: Option<Mesh>,
    /// A TOML file with the mesh and what its ranks are to have of the tensors of nodes: `mesh = [2]`, and for each rule
    /// `[[place]]` with `node = 'REGEX'`, `output` or `input = N`, `axis = N` of the mesh, `dim = N` that is split, or none,
    /// `unit = N` elements that stay together, `runs = N`
    #[arg(long, value_name = "PLAN.toml")]
    pub plan: Option<PathBuf>,
    /// Range of a dimension symbol: NAME=N or NAME=LO..HI
    #[arg(long = "dim", value_name = "NAME=RANGE")]
    pub dims: Vec<String>,
    /// A further entry point, with some dimension symbols fixed: NAME:DIM=N[,DIM=N]. Without any, a model with caches
    /// gets `prefill`, where they begin empty, and `decode`, which adds one position
    #[arg(long = "entry", value_name = "NAME:DIM=N")]
    pub entries: Vec<String>,
    /// Code of its own for these sizes: DIM=N[,DIM=N]. A call of `main` runs that for the most of its sizes
    #[arg(long, value_name = "DIM=N")]
    pub specialize: Vec<String>,
    /// No entry point but `main`
    #[arg(long, conflicts_with = "entries")]
    pub no_entries: bool,
    /// Refuse a model of which the host would compute something, whatever the device: a size that depends on data
    #[arg(long)]
    pub no_host: bool,
    /// What outputs hold at positions that an attention mask leaves out: what the model says (`compute`), or 0 where that saves
    /// computing them, because nobody reads them (`zero`). Rows of padding are not computed where no output has such a row, or
    /// where it may be 0; `--remarks remove-padding` says why they are
    #[arg(long, value_name = "WHAT", default_value = "compute", value_parser = named::<MaskedRows>())]
    pub masked_rows: MaskedRows,
    /// How tensors between kernels lie: as the kernels are estimated fastest together, all as the model has them, or with the
    /// columns of contractions innermost (channels last); the others are to compare with
    #[arg(long, value_name = "WHICH", default_value = "chosen", value_parser = named::<Layouts>())]
    pub layouts: Layouts,
    /// Make weights of products 0: the N largest of each M along the sum stay (2:4), or N of M neighbouring results, each choice
    /// for about as many columns of a group (2:4:16, which is fast), or all but a part of all weights (global:0.9), or of each
    /// product's blocks (block:0.8,1x4). REGEX=RULE is for the nodes whose names match; may be given
    /// several times, and the first rule that is for a node counts. Implies `--assume-finite`
    #[arg(long, value_name = "RULE|REGEX=RULE", value_parser = Choice::parse)]
    pub sparsify: Vec<Choice>,
    /// Which weights `--sparsify` makes 0: those of the least magnitude; by the data of `--calibrate`, those of the least w² · Σ x²
    /// (`obd`), or those that the product loses least by where the weights that stay make good what the others did (`obs`, as
    /// SparseGPT). By data, global:0.9 is this part of each product. With `--quantize`, zeros stay 0 where data rounds
    /// the others. [default: obs with `--calibrate`, else magnitude]
    #[arg(long, value_name = "WHICH", requires = "sparsify", value_parser = named::<Saliency>())]
    pub saliency: Option<Saliency>,
    /// Leave the zeros of weights that are mostly 0 out of products where that is estimated faster (which, for floats, needs
    /// `--assume-finite`), wherever a format stores them, or multiply them like any number
    #[arg(long, value_name = "WHICH", default_value = "auto", value_parser = named::<Sparsity>())]
    pub sparsity: Sparsity,
    /// Weights are multiplied with finite numbers alone, whatever the inputs: a product with a weight that is 0 is 0
    #[arg(long)]
    pub assume_finite: bool,
    /// Bytes that may lie between the kernels of one convolution, for algorithms that need them to be faster: N, NKiB,
    /// NMiB or NGiB. Where the batch is open, for one image
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub workspace_limit: Option<u64>,
    /// Stop after a stage and print the IR (to -o, or standard output)
    #[arg(long, value_name = "STAGE")]
    pub stop_after: Option<String>,
    /// Print the IR to standard error after a stage; `all` for every one
    #[arg(long, value_name = "STAGE")]
    pub print_after: Vec<String>,
    /// Write the IR after every stage into a folder
    #[arg(long, value_name = "DIR")]
    pub dump_dir: Option<PathBuf>,
    /// Print the time of each stage
    #[arg(long)]
    pub time_passes: bool,
    /// Apply the first N rewrites only, over all passes: a search for the one that breaks a model
    #[arg(long, value_name = "N")]
    pub fuel: Option<usize>,
    /// Print the rewrites that were applied, numbered as `--fuel` counts them
    #[arg(long)]
    pub list_rewrites: bool,
    /// Print why kernels that could be one are two, and which ONNX node is in the way: of the passes whose names match,
    /// or `all`
    #[arg(long, value_name = "REGEX", value_parser = passes_named)]
    pub remarks: Option<Regex>,
    /// Check each rewrite on random operands at small sizes, and fail at the first that is wrong
    #[arg(long)]
    pub validate: bool,
    /// Leave out the call with known results that loading the artifact repeats
    #[arg(long)]
    pub no_selftest: bool,
    /// Sign the artifact with this secret key of Ed25519, as `openssl genpkey -algorithm ed25519` writes it: `run --key` with the
    /// public one loads no other
    #[arg(long, value_name = "SECRET.pem", conflicts_with = "stop_after")]
    pub sign: Option<PathBuf>,
    /// Write what each kernel moves, and what the model would without the optimiser, as one JSON object
    #[arg(long, value_name = "FILE.json", conflicts_with = "stop_after")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub movement: MovementArgs,
    #[command(flatten)]
    pub limits: Limits,
    /// Print one JSON object: file, counts, bytes, stage times
    #[arg(long)]
    pub json: bool,
}

/// Compiles in a process that this one watches. Gives the exit code.
pub fn run_compile(args: &CompileArgs, out: &mut dyn Write) -> Result<i32> {
    match Work::of_environment() {
        Some(work) => compile_watched(args, work, out).map(|()| 0),
        None => {
            let output = args.output.clone().unwrap_or_else(|| default_output(&args.model));
            let outputs: Vec<&Path> = [Some(output.as_path()), args.report.as_deref()].into_iter().flatten().collect();
            supervised(&args.limits, &outputs)
        }
    }
}

fn compile_watched(args: &CompileArgs, mut work: Work, out: &mut dyn Write) -> Result<()> {
    if args.json && args.stop_after.is_some() && args.output.is_none() {
        return Err(Error::user("E0001", "`--json` and `--stop-after` would both write to standard output")
            .help("give the IR a file with `-o FILE.mlir`"));
    }
    let start = Instant::now();
    let model = args.embedder.model_file(&args.model)?;
    let embedder = args.embedder.embedder(&args.model)?;
    let embeds = embedder.as_ref().is_some_and(|embedder| !embedder.poolings.is_empty());
    let output = args.output.clone().unwrap_or_else(|| default_output(&args.model));
    let given_up = work.given_up.clone();
    let is_left_out = |stage: &str| given_up.iter().any(|one| one.stage == stage);
    let request = Request {
        model: &model,
        embedder,
        output: output.clone(),
        dims: parse_dims(&args.dims)?,
        entries: entries(args)?,
        specialized: parse_specialized(&args.specialize)?,
        watch: Watch {
            print_after: args.print_after.clone(),
            dump_dir: args.dump_dir.clone(),
            stop_after: args.stop_after.clone(),
            time_passes: args.time_passes,
            without: given_up.iter().map(|one| one.stage).collect(),
            ..Watch::default()
        },
        targets: distinct(&args.targets),
        selftest: !args.no_selftest && !is_left_out(SELFTEST),
        no_host: args.no_host,
        error_budget: args.error_budget,
        score: args.score.clone().zip(args.drop).map(|(command, drop)| Score { command, drop }),
        measure: true,
        sign: args.sign.as_deref().map(secret_key).transpose()?,
        report: args.report.clone(),
        calibrate: args.calibrate.clone(),
        sparsify: args.sparsify.clone(),
        saliency: args.saliency,
        plan: args.plan.as_deref().map(Placement::read).transpose()?,
        movement: question(args, &output)?,
        options: Options {
            fuel: args.fuel,
            remarks: args.remarks.is_some() || args.report.is_some() || embeds,
            validate: args.validate,
            precision: args.precision,
            quantize: args.quantize,
            group: args.group,
            activations: args.activations,
            keep: args.keep.clone(),
            kv_cache: args.kv_cache,
            layouts: args.layouts,
            masked_rows: args.masked_rows,
            sparsity: args.sparsity,
            assume_finite: args.assume_finite,
            workspace_limit: args.workspace_limit,
            mesh: args.ranks.as_ref().map_or(vec![], |mesh| if mesh.0.is_empty() { vec![1] } else { mesh.0.clone() }),
            ..Options::default()
        },
    };
    // The IR goes to standard error as well; a line that is rewritten would cut it.
    let progress = if args.print_after.is_empty() { Progress::on_terminal() } else { Progress::none() };
    let report = compile_shown(&request, &mut |stage| {
        work.begin(stage);
        progress.show(stage);
    })?;
    drop(progress);
    if let (Some(path), Some(movement)) = (&args.report, &report.movement) {
        write_whole(path, &format!("{}\n", report_json(args, &report, movement)))?;
    }
    if let Some(ir) = &report.stopped_at {
        match &args.output {
            Some(path) => write_whole(path, ir)?,
            None => return print_way(args, &report, out).and_then(|()| say(out, ir)),
        }
    }
    match args.json {
        true => say(out, &json(args, &output, &report, &given_up, start.elapsed()).to_string()),
        false => {
            print_way(args, &report, out)?;
            print(&output, &report, start.elapsed(), out)?;
            for GivenUp { stage, out_of } in given_up {
                say(out, &format!("without `{stage}`, which ran out of {}", out_of.name()))?;
            }
            padding_line(&report).filter(|_| embeds).map_or(Ok(()), |line| say(out, &line))
        }
    }
}

fn secret_key(path: &Path) -> Result<(SecretKey, PathBuf)> {
    let named = |e: Box<Error>| e.file(path.display().to_string());
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))?;
    Ok((SecretKey::from_pem(&text).map_err(named)?, path.into()))
}

/// What is counted for a report, where one is asked for: on the first target's device, where none is named.
fn question(args: &CompileArgs, output: &Path) -> Result<Option<Question>> {
    let Some(report) = &args.report else {
        return match args.movement.at.is_empty() && args.movement.device.is_none() {
            true => Ok(None),
            false => Err(Error::user("E0001", "`--at` and `--device` say for what `--report` counts")
                .help("add --report FILE.json, or use `sardonyx explain`")),
        };
    };
    let same = |other: &Path| match (report.canonicalize(), other.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => report == other,
    };
    if same(&args.model) || same(output) {
        return Err(Error::user("E0001", format!("the report {} is the model or the output", report.display()))
            .help("name another file with --report"));
    }
    let target = args.targets.first().copied().unwrap_or(Target::cpu());
    args.movement.question(&target.spec().name).map(Some)
}

fn report_json(args: &CompileArgs, report: &Report, movement: &Movement) -> Json {
    let launches = report.summary.as_ref().and_then(|s| s.first.entries.first()).map(|e| e.launches);
    Json::Object(vec![
        ("model", args.model.display().to_string().into()),
        ("launches", launches.into()),
        ("movement", movement_json(movement)),
        ("kernels", kernels_json(movement)),
        ("operators", operators_json(movement)),
        ("rewrites", Json::Object(report.rewrites.counts().into_iter().map(|(pass, n)| (pass, n.into())).collect())),
        ("validation", report.rewrites.validation().map_or(Json::Null, Validation::json)),
        ("remarks", report.rewrites.remarks_json(&|pass| args.remarks.as_ref().is_none_or(|r| r.is_match(pass)))),
    ])
}

fn distinct(targets: &[Target]) -> Vec<Target> {
    Target::all().filter(|target| targets.contains(target)).collect()
}

fn entries(args: &CompileArgs) -> Result<Entries> {
    match args.entries.is_empty() && !args.no_entries {
        true => Ok(Entries::Automatic),
        false => Ok(Entries::Given(parse_entries(&args.entries)?)),
    }
}

/// What the stages took and what they did.
fn print_way(args: &CompileArgs, report: &Report, out: &mut dyn Write) -> Result<()> {
    let ms = |t: &Duration| t.as_secs_f64() * 1e3;
    let times = report.times.iter().filter(|_| args.time_passes);
    let times = times.map(|(stage, t)| format!("{stage:<16} {:>9.1} ms", ms(t)));
    times.chain(told(args, &report.rewrites)).try_for_each(|line| say(out, &line))?;
    for (target, rewrites) in &report.others {
        let mut lines = told(args, rewrites).peekable();
        if lines.peek().is_some() {
            say(out, &format!("for {}:", target.name()))?;
        }
        lines.try_for_each(|line| say(out, &line))?;
    }
    Ok(())
}

/// What is asked for of what the passes did.
fn told<'a>(args: &'a CompileArgs, rewrites: &'a Rewrites) -> impl Iterator<Item = String> + 'a {
    let applied = rewrites.applied().iter().filter(|_| args.list_rewrites).map(Rewrite::line);
    let remarks = rewrites.remarks().iter();
    let remarks = remarks.filter(|r| r.unasked || args.remarks.as_ref().is_some_and(|shown| shown.is_match(r.pass)));
    let checks = rewrites.validation().map(Validation::line);
    applied.chain(remarks.map(Remark::to_string)).chain(checks)
}

fn print(output: &Path, report: &Report, time: Duration, out: &mut dyn Write) -> Result<()> {
    let Some(s) = &report.summary else { return Ok(()) };
    let [main, others @ ..] = s.first.entries.as_slice() else { return Ok(()) };
    let ptx = s.ptx_bytes.iter().map(|(target, bytes)| format!("{:.0} KiB of PTX for {target}", kib(*bytes)));
    let code = (s.code_bytes > 0).then(|| format!("{:.0} KiB of code", kib(s.code_bytes)));
    let code: Vec<String> = code.into_iter().chain(ptx).collect();
    let line = format!(
        "{}: {} kernels in {} launches, {:.1} MiB of weights, {}, {:.2} s",
        output.display(),
        s.first.kernels,
        main.launches,
        s.weights_bytes as f64 / (1 << 20) as f64,
        if code.is_empty() { "no code".to_string() } else { code.join(", ") },
        time.as_secs_f64()
    );
    say(out, &line)?;
    say(out, &format!("arena: {} bytes", main.arena_bytes))?;
    for e in others {
        let kind = if e.internal { "body" } else { "entry" };
        say(out, &format!("{kind} {}: {} launches, arena: {} bytes", e.name, e.launches, e.arena_bytes))?;
    }
    for e in &s.first.entries {
        for host in e.hosts.iter().filter(|host| !host.calls) {
            say(out, &format!("host: {} in {}, {}", host.op, e.name, host.origins.join(" + ")))?;
        }
    }
    for plan in &s.others {
        let launches = plan.entries.first().map_or(0, |e| e.launches);
        say(out, &format!("plan for {}: {} kernels in {launches} launches", plan.class.name(), plan.kernels))?;
    }
    for (name, why) in &report.entries_skipped {
        say(out, &format!("entry {name}: none, {why}"))?;
    }
    report.lowered.iter().flat_map(precision_lines).try_for_each(|line| say(out, &line))?;
    pruned_lines(report).iter().try_for_each(|line| say(out, line))?;
    layer_lines(report).iter().try_for_each(|line| say(out, line))?;
    match &report.selftest_skipped {
        Some(why) => say(out, &format!("self-test: none, {why}")),
        None => Ok(()),
    }
}

/// What a lower precision came to, and what its code is.
fn precision_lines(lowered: &Lowered) -> Vec<String> {
    let (name, n) = (lowered.name.as_str(), lowered.contractions);
    // Bytes are multiplied in some way everywhere.
    let native = cpu::has(Extension::Pairs) || !name.contains("bf16");
    let how = match native {
        true => String::new(),
        false => {
            format!("; this CPU has no instructions for {name}: it converts, and gains only where it waits for weights")
        }
    };
    let why = if n == 0 { "; `--remarks 'quantize|precision'` says why" } else { "" };
    let mut lines = vec![format!("precision: {name} factors in {n} launches{how}{why}")];
    let on = on_what(lowered);
    match lowered.measured.errors() {
        Ok(errors) => {
            let shown = worst(errors, SHOWN, |e| e.relative);
            let rest = errors.len() - shown.len();
            lines.extend(shown.into_iter().map(|OutputError { name, abs_max, relative, .. }| {
                format!("precision: {name} on {on}: max abs error {abs_max:.3e}, relative (L2) {relative:.3e}")
            }));
            lines.extend((rest > 0).then(|| format!("precision: {rest} more outputs, none worse; `--json` has all")));
        }
        Err(why) => lines.push(format!("precision: error not measured, {why}")),
    }
    lines
}

/// The inputs that errors were measured on.
fn on_what(lowered: &Lowered) -> String {
    match &lowered.measured.data {
        None => "canary inputs".to_string(),
        Some(OnData { calls, is_unseen: false, .. }) => format!("{calls} calls of the data"),
        Some(OnData { calls, is_unseen: true, .. }) => format!("{calls} calls that nothing was rounded by"),
    }
}

/// Outputs and layers that are printed: those that lost most.
const SHOWN: usize = 5;

fn pruned_lines(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> =
        worst(&report.pruned, SHOWN, Pruned::loss).into_iter().map(Pruned::to_string).collect();
    let rest = report.pruned.len() - lines.len();
    lines.extend((rest > 0).then(|| format!("pruned: {rest} more products, none further off; `--json` has all")));
    lines
}

fn layer_lines(report: &Report) -> Vec<String> {
    let line = |l: &Layer| {
        format!("calibrated: {:.4} off, {} by {}: {}", l.error, precision(l), l.size, l.origins.join(" + "))
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    report.layers.iter().for_each(|l| *counts.entry(precision(l)).or_default() += 1);
    let counts: Vec<String> = counts.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let counts = (!counts.is_empty()).then(|| format!("calibrated: {}", counts.join(", ")));
    let scores = report.scores.map(|[before, after]| format!("score: {after} (f32 {before})"));
    counts.into_iter().chain(scores).chain(worst(&report.layers, SHOWN, |l| l.error).into_iter().map(line)).collect()
}

fn precision(layer: &Layer) -> String {
    layer.code.map_or("f32".to_string(), |code| code.to_string())
}

fn layer_json(layer: &Layer) -> Json {
    Json::Object(vec![
        ("nodes", Json::list(layer.origins.iter().map(String::as_str))),
        ("precision", precision(layer).into()),
        ("group", layer.size.into()),
        ("error", layer.error.into()),
        ("weight_error", layer.weight_error.into()),
        ("bytes", layer.bytes.into()),
        ("damping", layer.damping.into()),
    ])
}

fn precision_json(lowered: &Lowered) -> Json {
    let error = |e: &OutputError| {
        let numbers = [("abs_max", e.abs_max.into()), ("relative_l2", e.relative.into())];
        Json::Object([vec![("output", e.name.as_str().into())], numbers.to_vec()].concat())
    };
    let errors = lowered.measured.errors();
    Json::Object(vec![
        ("name", lowered.name.as_str().into()),
        ("contractions", lowered.contractions.into()),
        ("errors", errors.as_ref().map_or(Json::Null, |errors| Json::List(errors.iter().map(error).collect()))),
        ("measured_on", on_what(lowered).into()),
        ("not_measured", errors.as_ref().err().cloned().into()),
    ])
}

fn kib(bytes: usize) -> f64 {
    bytes as f64 / 1024.0
}

fn json(args: &CompileArgs, output: &Path, report: &Report, given_up: &[GivenUp], time: Duration) -> Json {
    let ms = |t: Duration| Json::from(t.as_secs_f64() * 1e3);
    let stages = report.times.iter().map(|(name, t)| Json::Object(vec![("name", (*name).into()), ("ms", ms(*t))]));
    let mut members = vec![("output", output.display().to_string().into())];
    let skipped = |(name, why): &(String, String)| {
        Json::Object(vec![("name", name.as_str().into()), ("why", why.as_str().into())])
    };
    let skipped = Json::List(report.entries_skipped.iter().map(skipped).collect());
    let main = report.summary.as_ref().and_then(|s| s.first.entries.first());
    match &report.summary {
        Some(s) => members.extend([
            ("kernels", s.first.kernels.into()),
            ("launches", main.map_or(0, |e| e.launches).into()),
            ("weights_bytes", s.weights_bytes.into()),
            ("code_bytes", s.code_bytes.into()),
            ("ptx_bytes", Json::Object(s.ptx_bytes.iter().map(|(target, n)| (*target, (*n).into())).collect())),
            ("arena_bytes", main.map_or("0", |e| e.arena_bytes.as_str()).into()),
            ("plans", Json::List(s.others.iter().map(plan_json).collect())),
            ("entries", Json::List(s.first.entries.iter().map(entry_json).collect())),
            ("entries_skipped", skipped),
            ("selftest", report.selftest_skipped.is_none().into()),
            ("selftest_skipped", report.selftest_skipped.clone().into()),
        ]),
        None => members.push(("stopped_after", report.times.last().map(|(name, _)| *name).into())),
    }
    if !given_up.is_empty() {
        let one = |one: &GivenUp| Json::Object(vec![("stage", one.stage.into()), ("out_of", one.out_of.name().into())]);
        members.push(("given_up", Json::List(given_up.iter().map(one).collect())));
    }
    if let Some(lowered) = &report.lowered {
        members.push(("precision", precision_json(lowered)));
    }
    if !report.pruned.is_empty() {
        members.push(("pruned", Json::list(report.pruned.iter().map(Pruned::json))));
    }
    if !report.layers.is_empty() {
        members.push(("layers", Json::List(report.layers.iter().map(layer_json).collect())));
        members.push(("scores", report.scores.map(|scores| Json::List(scores.map(Json::from).to_vec())).into()));
    }
    if args.list_rewrites {
        members.push(("rewrites", report.rewrites.json()));
    }
    if let Some(validation) = report.rewrites.validation() {
        members.push(("validation", validation.json()));
    }
    let remarks = report.rewrites.remarks();
    if args.remarks.is_some() || remarks.iter().any(|r| r.unasked) {
        let asked = |pass: &str| args.remarks.as_ref().is_some_and(|shown| shown.is_match(pass));
        let unasked = |pass: &str| remarks.iter().any(|r| r.unasked && r.pass == pass);
        members.push(("remarks", report.rewrites.remarks_json(&|pass| asked(pass) || unasked(pass))));
    }
    members.extend([("ms", ms(time)), ("stages", Json::List(stages.collect()))]);
    Json::Object(members)
}

pub(super) fn host_json(host: &HostSummary) -> Json {
    Json::Object(vec![
        ("op", host.op.as_str().into()),
        ("calls", host.calls.into()),
        ("origins", Json::list(host.origins.iter().map(String::as_str))),
    ])
}

/// The plan of a further class of targets.
fn plan_json(plan: &PlanSummary) -> Json {
    Json::Object(vec![
        ("class", plan.class.name().into()),
        ("kernels", plan.kernels.into()),
        ("entries", Json::List(plan.entries.iter().map(entry_json).collect())),
    ])
}

fn entry_json(e: &EntrySummary) -> Json {
    Json::Object(vec![
        ("name", e.name.as_str().into()),
        ("launches", e.launches.into()),
        ("states", e.states.into()),
        ("arena_bytes", e.arena_bytes.as_str().into()),
        ("internal", e.internal.into()),
        ("hosts", Json::List(e.hosts.iter().map(host_json).collect())),
    ])
}
