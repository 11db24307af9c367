//! compile MODEL.onnx -o MODEL.sdx  =>  the artifact, and a summary of the compilation

mod args;

use super::embedder::{default_output, padding_line};
use super::movement::{kernels_json, movement_json, operators_json};
use super::supervise::{GivenUp, Work, supervised};
use super::{Progress, say, write_whole};
use crate::calibrate::Layer;
use crate::calibrate::score::Score;
use crate::compile::{Report, Request, compile_shown, parse_dims};
use crate::emit::{EntrySummary, HostSummary, PlanSummary, PtxSummary};
use crate::entries::{Entries, parse_entries, parse_specialized};
use crate::import::DimRange;
use crate::lock;
use crate::movement::{Movement, Question};
use crate::pipeline::{SELFTEST, Watch};
use crate::placement::Placement;
use crate::precision::{Lowered, OnData, OutputError, worst};
use crate::sparsify::Pruned;
pub use args::CompileArgs;
use sardonyx_base::cpu::{self, Extension};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result, dim};
use sardonyx_format::SecretKey;
use sardonyx_kernels::Target;
use sardonyx_kernels::target::Class;
use sardonyx_passes::{Options, Remark, Rewrite, Rewrites, Validation};
use sardonyx_run::values::bytes_text;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Compiles in a child process, which this process supervises, and returns the exit code. If this process is such a
/// child, it compiles.
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
    let is_for_gpus = args.targets.iter().any(|target| target.class() == Class::Gpu);
    if (args.tune_candidates || !args.tune.is_empty()) && !is_for_gpus {
        let option = if args.tune_candidates { "--tune-candidates" } else { "--tune" };
        let message = format!("`{option}` is about code for GPUs, and no target is one");
        return Err(Error::user("E0001", message).help("add `--target cuda:sm_80`, or leave the option out"));
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
        tuning: if args.tune_candidates { None } else { Some(lock::read(&args.tune)?) },
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
            nchwc_block: args.nchwc_block,
            layouts: args.layouts,
            masked_rows: args.masked_rows,
            sparsity: args.sparsity,
            assume_finite: args.assume_finite,
            workspace_limit: args.workspace_limit,
            mesh: args.ranks.as_ref().map_or(vec![], |mesh| if mesh.0.is_empty() { vec![1] } else { mesh.0.clone() }),
            ..Options::default()
        },
    };
    // With `--print-after`, the IR goes to standard error too, and the redrawn progress line would garble it.
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
            print(&output, &request.dims, &report, start.elapsed(), out)?;
            for GivenUp { stage, out_of } in given_up {
                say(out, &format!("without `{stage}`, which ran out of {}", out_of.name()))?;
            }
            tile_lines(args, &output, &report).try_for_each(|line| say(out, &line))?;
            padding_line(&report).filter(|_| embeds).map_or(Ok(()), |line| say(out, &line))
        }
    }
}

fn secret_key(path: &Path) -> Result<(SecretKey, PathBuf)> {
    let named = |e: Box<Error>| e.file(path.display().to_string());
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))?;
    Ok((SecretKey::from_pem(&text).map_err(named)?, path.into()))
}

/// The sizes and the device for which `--report` counts data movement; `None` without `--report`. The default device
/// is that of the first target.
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

/// Prints the time of each stage and the lines of `rewrite_lines`, as far as they were requested.
fn print_way(args: &CompileArgs, report: &Report, out: &mut dyn Write) -> Result<()> {
    let ms = |t: &Duration| t.as_secs_f64() * 1e3;
    let times = report.times.iter().filter(|_| args.time_passes);
    let times = times.map(|(stage, t)| format!("{stage:<16} {:>9.1} ms", ms(t)));
    times.chain(rewrite_lines(args, &report.rewrites)).try_for_each(|line| say(out, &line))?;
    for (target, rewrites) in &report.others {
        let mut lines = rewrite_lines(args, rewrites).peekable();
        if lines.peek().is_some() {
            say(out, &format!("for {}:", target.name()))?;
        }
        lines.try_for_each(|line| say(out, &line))?;
    }
    Ok(())
}

/// The requested lines about what the passes did: rewrites, remarks, validation.
fn rewrite_lines<'a>(args: &'a CompileArgs, rewrites: &'a Rewrites) -> impl Iterator<Item = String> + 'a {
    let applied = rewrites.applied().iter().filter(|_| args.list_rewrites).map(Rewrite::line);
    let remarks = rewrites.remarks().iter();
    let remarks = remarks.filter(|r| r.unasked || args.remarks.as_ref().is_some_and(|shown| shown.is_match(r.pass)));
    let checks = rewrites.validation().map(Validation::line);
    applied.chain(remarks.map(Remark::to_string)).chain(checks)
}

fn print(
    output: &Path,
    dims: &BTreeMap<String, DimRange>,
    report: &Report,
    time: Duration,
    out: &mut dyn Write,
) -> Result<()> {
    let Some(s) = &report.summary else { return Ok(()) };
    let [main, others @ ..] = s.first.entries.as_slice() else { return Ok(()) };
    let ptx = s.ptx.iter().map(|ptx| format!("{:.0} KiB of PTX for {}", kib(ptx.bytes), ptx.target));
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
    say(out, &format!("arena: {}", arena(main)))?;
    narrowed(dims, &main.ranges).iter().try_for_each(|line| say(out, line))?;
    for e in others {
        let kind = if e.internal { "body" } else { "entry" };
        say(out, &format!("{kind} {}: {} launches, arena: {}", e.name, e.launches, arena(e)))?;
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
    let has_cpu = s.first.class == Class::Cpu;
    report.lowered.iter().flat_map(|lowered| precision_lines(lowered, has_cpu)).try_for_each(|line| say(out, &line))?;
    let is_for_both = has_cpu && s.others.iter().any(|plan| plan.class == Class::Gpu);
    if is_for_both && report.lowered.as_ref().is_some_and(|lowered| lowered.name.contains("bf16")) {
        say(
            out,
            "precision: weights have one form for CPUs and GPUs; in an artifact for GPUs alone, Hopper multiplies them faster",
        )?;
    }
    pruned_lines(report).iter().try_for_each(|line| say(out, line))?;
    layer_lines(report).iter().try_for_each(|line| say(out, line))?;
    match &report.selftest_skipped {
        Some(why) => say(out, &format!("self-test: none, {why}")),
        None => Ok(()),
    }
}

/// Lines about tiles that were measured, or that are to be measured.
fn tile_lines<'a>(args: &'a CompileArgs, output: &'a Path, report: &'a Report) -> impl Iterator<Item = String> + 'a {
    let all = report.summary.iter().flat_map(|summary| &summary.ptx);
    all.filter(|_| args.tune_candidates || !args.tune.is_empty()).map(|ptx| {
        let PtxSummary { target, candidates, kernels, measured, .. } = ptx;
        match args.tune_candidates {
            true if *candidates < 2 => format!("tiles: no kernel for {target} can have several"),
            true => format!(
                "tiles: up to {candidates} for each kernel of {target}; `sardonyx-run tune {}` measures them",
                output.display()
            ),
            false => format!("tiles: {measured} of {kernels} kernels for {target} have the tile that was the fastest"),
        }
    })
}

/// A line for each dimension whose range on the command line is wider than the range that the model accepts.
fn narrowed(dims: &BTreeMap<String, DimRange>, taken: &BTreeMap<String, (i64, Option<i64>)>) -> Vec<String> {
    let line = |(name, given): (&String, &DimRange)| {
        let (lo, hi) = *taken.get(name)?;
        let is_narrower = lo > given.lo || hi.is_some_and(|hi| given.hi.is_none_or(|given| given > hi));
        let (limit, given) = (dim::range(lo, hi), dim::range(given.lo, given.hi));
        is_narrower.then(|| format!("dimension {name}: the model limits it to {limit}; {given} was given"))
    };
    dims.iter().filter_map(line).collect()
}

/// `1.1 MiB at batch=1, seq=128 (9216*batch*seq bytes)`
fn arena(entry: &EntrySummary) -> String {
    match &entry.arena_example {
        None => entry.arena_bytes.parse().map_or(format!("{} bytes", entry.arena_bytes), bytes_text),
        Some((at, bytes)) => {
            let at: Vec<String> = at.iter().map(|(name, size)| format!("{name}={size}")).collect();
            format!("{} at {} ({} bytes)", bytes_text(*bytes as u64), at.join(", "), entry.arena_bytes)
        }
    }
}

/// Lines about a lower precision: the type, the number of launches that use it, and the errors of the outputs.
fn precision_lines(lowered: &Lowered, has_cpu: bool) -> Vec<String> {
    let (name, n) = (lowered.name.as_str(), lowered.contractions);
    // Every CPU level has native instructions for 8-bit operands, but only some levels have them for bf16.
    let native = cpu::has(Extension::Pairs) || !has_cpu || !name.contains("bf16");
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

/// Describes the inputs on which errors were measured.
fn on_what(lowered: &Lowered) -> String {
    match &lowered.measured.data {
        None => "canary inputs".to_string(),
        Some(OnData { calls, is_unseen: false, .. }) => format!("{calls} calls of the data"),
        Some(OnData { calls, is_unseen: true, .. }) => format!("{calls} calls that nothing was rounded by"),
    }
}

/// Largest number of outputs, products or layers that are printed; those with the largest errors come first.
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
            ("ptx_bytes", Json::Object(s.ptx.iter().map(|ptx| (ptx.target, ptx.bytes.into())).collect())),
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

/// JSON object about the plan of a further target class.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_the_model_narrows_are_named() {
        let given = parse_dims(&["seq=1..100000", "batch=1..8", "open=0..9"].map(String::from)).unwrap();
        let taken = [("seq", (1, Some(512))), ("batch", (1, Some(8))), ("open", (0, None))];
        let taken = taken.map(|(name, range)| (name.to_string(), range)).into();
        let lines = narrowed(&given, &taken);
        assert_eq!(lines, ["dimension seq: the model limits it to 1..512; 1..100000 was given"]);
    }
}
