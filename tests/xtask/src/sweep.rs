//! `cargo xtask sweep`  =>  `docs/SWEEP.md`: results and times of the models' variants that public tools write

use crate::bench::environment;
use crate::context::{Context, Failure, Result, create_dir, output, read, run, sha256, write};
use crate::{models, setup};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools, and the peers that the results are compared with.
static PACKAGES: &[&str] = &[
    "onnxruntime==1.31.1",
    "openvino==2026.4.1",
    "onnx==1.23.2",
    "onnx-ir==1.1.0",
    "onnxconverter-common==1.16.0",
    "onnxsim==0.8.1",
    "onnxslim==0.1.98",
    "numpy",
];
const THREADS: &str = "2";
/// Number of rounds in which Sardonyx and the peers are timed. A file at which Sardonyx was slower is timed once more
/// after all other files, in `ROUNDS_AGAIN` rounds, because another program may have run meanwhile.
const ROUNDS: &str = "3";
const ROUNDS_AGAIN: &str = "9";

/// Smallest part of the best rate between two processors at which a time is one of a quiet machine; as in `sweep.py`.
const USUAL: f64 = 0.6;

/// Shares, in thousandths, of all pairs of a model and a variant: `WHOLE_PER_MILLE` are in the whole sweep,
/// `TENTH_PER_MILLE` in the sweep with `--tenth`.
const WHOLE_PER_MILLE: u64 = 600;
const TENTH_PER_MILLE: u64 = 60;

/// Tolerances of outputs, compared with the nearer of ONNX Runtime's two results (with and without optimizations).
/// `APART_MAX` and, for f16 files, `APART_MAX_HALF` are relative to the largest element; `TIMES_PEER_APART` is a
/// multiple of the difference between the two results.
const APART_MAX: f64 = 1e-3;
const APART_MAX_HALF: f64 = 2e-2;
const TIMES_PEER_APART: f64 = 4.0;
/// Limit of 1 - cosine of an unstable file, as a multiple of 1 - cosine between ONNX Runtime's results before and after
/// the floats of the file change by at most one unit in the last place.
const TIMES_PEER_MOVED: f64 = 2.0;
/// Minimum cosine of outputs of files that round to integer codes; `UNSTABLE_COSINE_MIN` for unstable files.
const COSINE_MIN: f64 = 0.99;
const UNSTABLE_COSINE_MIN: f64 = 0.9;

#[derive(Debug, Default, PartialEq)]
struct Options {
    tenth: bool,
    times: bool,
    words: Vec<String>,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    /// The tool failed, or wrote a file that ONNX Runtime does not load.
    NotMade,
    Refused(String),
    Wrong(String),
    /// The file rounds so coarsely that ONNX Runtime's own results change about as much when the floats of the file
    /// change by at most one unit in the last place.
    Unstable(String),
    Right,
}

/// One file of the sweep.
struct Row {
    model: String,
    variant: String,
    judged: Option<Value>,
}

/// `cargo xtask sweep [--tenth] [--times] [WORD…]`: writes the page, unless words or `--tenth` are given.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    let options = options(args)?;
    setup::ensure()?;
    let python = environment(context, "sweep-tools", PACKAGES)?;
    run(&mut context.cargo(["build", "--release", "-p", "sardonyx", "--bin", "sardonyx"]))?;
    let script = context.root.join("tests/xtask/src/sweep.py");
    let tool = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.arg(&script).args(arguments);
        command
    };
    // The best rate between two processors so far, which each process of the tool reads, is that of this sweep.
    let _ = std::fs::remove_file(context.target.join("sweep/passing-rate"));
    let mut rows: Vec<Row> = vec![];
    for folder in folders(context)? {
        let model = name_of(&folder);
        let source = context.target.join("sweep").join(&model);
        if !source.join("model.onnx").exists() {
            run(&mut tool(&["source", &text(&folder), &text(&source)]))?;
        }
        let folder = source;
        let names = output(&mut tool(&["variants", &text(&folder)]))
            .ok_or_else(|| Failure::check(format!("cannot list the variants of {model}")))?;
        let wanted = names.lines().filter(|variant| options.takes(&model, variant)).map(String::from);
        for variant in wanted.collect::<Vec<_>>() {
            let judged = judged(context, &tool, &model, &variant, options.times.then_some(ROUNDS))?;
            let row = Row { judged, model: model.clone(), variant };
            println!("sweep: {}", row.line());
            rows.push(row);
        }
    }
    for row in rows.iter_mut().filter(|row| row.times().is_some_and(|(ours, best)| ours > best)) {
        let judged = judged(context, &tool, &row.model, &row.variant, Some(ROUNDS_AGAIN))?;
        let again = Row { judged, model: row.model.clone(), variant: row.variant.clone() };
        if again.times().is_some() {
            *row = again;
            println!("sweep: again: {}", row.line());
        }
    }
    if options.words.is_empty() && !options.tenth {
        let docs = context.root.join("docs");
        create_dir(&docs)?;
        let path = docs.join("SWEEP.md");
        let page = page(&rows, options.times);
        write(&path, |out| out.write_all(page.as_bytes()))?;
    }
    let bad = rows.iter().filter(|row| matches!(row.verdict(), Verdict::Refused(_) | Verdict::Wrong(_))).count();
    println!("sweep: {}", summary(&rows));
    match bad {
        0 => Ok(()),
        _ => Err(Failure::check(format!("{bad} files were refused or gave wrong results"))),
    }
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    for arg in args {
        match arg.as_str() {
            "--tenth" => options.tenth = true,
            "--times" => options.times = true,
            flag if flag.starts_with('-') => {
                return Err(Failure::user("usage: cargo xtask sweep [--tenth] [--times] [WORD…]"));
            }
            word => options.words.push(word.into()),
        }
    }
    Ok(options)
}

impl Options {
    /// Returns whether a file belongs to the sweep. If words are given, all of them must occur in `MODEL VARIANT`.
    /// Otherwise a fixed pseudo-random share belongs to it and, without `--tenth`, every original model.
    fn takes(&self, model: &str, variant: &str) -> bool {
        let name = format!("{model} {variant}");
        if !self.words.is_empty() {
            return self.words.iter().all(|word| name.contains(word.as_str()));
        }
        let drawn = u64::from_str_radix(&sha256(name.as_bytes())[..8], 16).unwrap_or(0) % 1000;
        match self.tenth {
            true => drawn < TENTH_PER_MILLE,
            false => drawn < WHOLE_PER_MILLE || variant == "original",
        }
    }
}

/// Returns the folders of the committed models, with their weights, and those in the folder that `SARDONYX_MODELS`
/// names.
fn folders(context: &Context) -> Result<Vec<PathBuf>> {
    let committed = models::names(context)?;
    let mut folders = vec![];
    for name in &committed {
        folders.push(models::ensure(context, name)?);
    }
    let Some(more) = std::env::var_os("SARDONYX_MODELS") else { return Ok(folders) };
    let list = std::fs::read_dir(&more).map_err(|e| Failure::io(Path::new(&more), "list", e))?;
    let mut found: Vec<PathBuf> = list.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    let complete = |path: &PathBuf| {
        let weights = !path.join("weights.json").exists() || path.join("weights.bin").exists();
        path.join("model.onnx").exists() && weights && !committed.contains(&name_of(path))
    };
    folders.extend(found.into_iter().filter(complete));
    Ok(folders)
}

/// Returns the judgement of one file, with times if `rounds` is given; `None` if the tool wrote no file. The file is
/// made again only after `PACKAGES` has changed.
fn judged(
    context: &Context,
    tool: &dyn Fn(&[&str]) -> Command,
    model: &str,
    variant: &str,
    rounds: Option<&str>,
) -> Result<Option<Value>> {
    let folder = &context.target.join("sweep").join(model);
    let to = context.target.join("sweep").join(format!("{model}__{variant}"));
    create_dir(&to)?;
    let (stamp, packages) = (to.join("made-by"), PACKAGES.join("\n"));
    if !stamp.exists() || read(&stamp)? != packages.as_bytes() {
        let made = tool(&["make", &text(folder), variant, &text(&to)]).output();
        let made = made.map_err(|e| Failure::io(&to, "make a file in", e))?;
        let reason = String::from_utf8_lossy(&made.stderr).lines().last().unwrap_or_default().to_string();
        match made.status.success() {
            true => drop(std::fs::remove_file(to.join("not-made"))),
            false => write(&to.join("not-made"), |out| out.write_all(reason.as_bytes()))?,
        }
        write(&stamp, |out| out.write_all(packages.as_bytes()))?;
    }
    if to.join("not-made").exists() {
        return Ok(None);
    }
    let program = context.target.join("release/sardonyx");
    let judge = |rounds: &str| -> Option<Value> {
        let text = output(&mut tool(&["judge", &text(&to), &text(folder), &text(&program), THREADS, rounds]));
        serde_json::from_str(text.as_deref()?.lines().last()?).ok()
    };
    // A peer may end the process while it is timed; the results are then compared without times.
    let timed = rounds.and_then(judge);
    Ok(Some(timed.or_else(|| judge("0")).unwrap_or(Value::Null)))
}

impl Row {
    fn verdict(&self) -> Verdict {
        let Some(judged) = &self.judged else { return Verdict::NotMade };
        if judged["compile_code"].as_i64() != Some(0) {
            return Verdict::Refused(judged["said"].as_str().unwrap_or("the comparison itself failed").into());
        }
        if let Some(error) = judged["run_error"].as_str() {
            return Verdict::Wrong(error.into());
        }
        let number = |name: &str| judged[name].as_f64().unwrap_or(f64::NAN);
        let (apart, cosine) = (number("apart"), number("cosine"));
        let apart_max = if self.variant.starts_with("f16") { APART_MAX_HALF } else { APART_MAX };
        let near = apart <= apart_max.max(TIMES_PEER_APART * number("peer_apart"));
        let angle =
            self.rounds_codes() && cosine >= COSINE_MIN.min(1.0 - TIMES_PEER_APART * (1.0 - number("peer_cosine")));
        // Rounding changes the results of a deep net. So a result also counts as right if it is as near to the result
        // of the original model as the peer's result is.
        let faithful = number("to_model") <= number("peer_to_model");
        if near || angle || faithful {
            return Verdict::Right;
        }
        match judged["peer_moved"].as_f64().filter(|_| self.rounds_codes()) {
            Some(moved) if cosine >= UNSTABLE_COSINE_MIN.max(1.0 - TIMES_PEER_MOVED * (1.0 - moved)) => {
                Verdict::Unstable(format!("cosine {cosine:.4}, the peer's own after one ulp {moved:.4}"))
            }
            _ => Verdict::Wrong(format!("differs by {apart:.1e} of the largest element, cosine {cosine:.4}")),
        }
    }

    fn rounds_codes(&self) -> bool {
        let coded = ["int8", "int4", "uint8", "qdq", "qoperator"];
        coded.iter().any(|word| self.variant.contains(word) || self.model.contains(word))
    }

    /// Returns the rate at which data passed between two processors when the file was timed, as a part of the best rate.
    fn passed(&self) -> f64 {
        self.judged.as_ref().and_then(|judged| judged["passed"].as_f64()).unwrap_or(1.0)
    }

    /// Returns the times of Sardonyx and of the fastest peer, in milliseconds.
    fn times(&self) -> Option<(f64, f64)> {
        let ms = self.judged.as_ref()?.get("ms")?;
        let peers = ["onnxruntime", "openvino"].iter().filter_map(|peer| ms[peer].as_f64());
        Some((ms["ours"].as_f64()?, peers.fold(f64::INFINITY, f64::min)))
    }

    fn line(&self) -> String {
        let said = match self.verdict() {
            Verdict::NotMade => "no file".into(),
            Verdict::Refused(why) => format!("refused: {}", first_line(&why)),
            Verdict::Wrong(why) => format!("wrong: {}", first_line(&why)),
            Verdict::Unstable(why) => format!("unstable: {why}"),
            Verdict::Right => "right".into(),
        };
        let times = self.times().map_or(String::new(), |(ours, best)| format!(", {ours:.3} ms of {best:.3}"));
        format!("{} {}: {said}{times}", self.model, self.variant)
    }
}

fn summary(rows: &[Row]) -> String {
    let count = |f: fn(&Verdict) -> bool| rows.iter().filter(|row| f(&row.verdict())).count();
    let made = rows.len() - count(|v| matches!(v, Verdict::NotMade));
    let (refused, wrong) = (count(|v| matches!(v, Verdict::Refused(_))), count(|v| matches!(v, Verdict::Wrong(_))));
    let unstable = count(|v| matches!(v, Verdict::Unstable(_)));
    let mut text = format!("{made} files, {refused} refused, {wrong} wrong, {unstable} unstable");
    for (what, is_coded) in [("not quantised", false), ("quantised", true)] {
        let timed = rows.iter().filter(|row| row.rounds_codes() == is_coded).filter_map(Row::times);
        let ratios: Vec<f64> = timed.map(|(ours, best)| ours / best).collect();
        if !ratios.is_empty() {
            let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
            let [slower, tenth] = [1.0, 1.1].map(|limit| ratios.iter().filter(|r| **r > limit).count());
            let n = ratios.len();
            text += &format!(
                "; {n} {what}: {mean:.2} of the best peer's time (geometric mean), {slower} slower, {tenth} by more than a tenth"
            );
        }
    }
    text
}

fn page(rows: &[Row], times: bool) -> String {
    let mut page = String::from(
        "# Files that other tools write\n\n\
         Written by `cargo xtask sweep --times`; packages: ",
    );
    page += &PACKAGES.join(", ");
    page += &format!(
        ". Each model of testdata/models, and of the folder that `SARDONYX_MODELS` names, is taken through public tools; each \
         file is compiled with its dimensions as they are, and its outputs are compared with ONNX Runtime's. {}.\n\n",
        summary(rows)
    );
    page += &match times {
        true => format!(
            "Times are medians of {ROUNDS} turns on two threads of {}, the peers with fixed shapes. Before a file is timed, \
             the sweep waits up to a minute until data pass from one processor to the other about as fast as at best so far, \
             because a virtual machine's processors may be moved; {} files were timed although they did not. Files at which \
             ours was slower were timed once more, after all others, in {ROUNDS_AGAIN} turns, and these times count.\n\n",
            processor(),
            rows.iter().filter(|row| row.passed() < USUAL).count()
        ),
        false => "No times were measured.\n\n".into(),
    };
    page += "Unstable: the file rounds so coarsely that ONNX Runtime's own outputs turn about as far when each of its floats moves by at most one unit in \
         the last place.\n\nSlow: how many launches `compile` names that will be slow, most of them products in plain loops.\n\n\
         | model | variant | result | apart | slow | Sardonyx ms | best peer ms | ratio |\n|---|---|---|--:|--:|--:|--:|--:|\n";
    for row in rows.iter().filter(|row| row.judged.is_some()) {
        let result = match row.verdict() {
            Verdict::Refused(why) => format!("refused: {}", first_line(&why).replace('|', "\\|")),
            Verdict::Wrong(why) => format!("wrong: {}", first_line(&why).replace('|', "\\|")),
            Verdict::Unstable(why) => format!("unstable: {why}"),
            Verdict::NotMade | Verdict::Right => "right".into(),
        };
        let apart = row.judged.as_ref().and_then(|j| j["apart"].as_f64()).map_or(String::new(), |a| format!("{a:.0e}"));
        let times = row.times().map_or(" | | ".into(), |(ours, best)| {
            let ratio = ours / best;
            let ratio = if ratio > 1.0 { format!("**{ratio:.2}**") } else { format!("{ratio:.2}") };
            format!("{ours:.3} | {best:.3} | {ratio}")
        });
        let slow = row.judged.as_ref().and_then(|j| j["slow"].as_array()).map_or(0, Vec::len);
        let slow = if slow > 0 { slow.to_string() } else { String::new() };
        page += &format!("| {} | {} | {result} | {apart} | {slow} | {times} |\n", row.model, row.variant);
    }
    page
}

/// Returns the name of this machine's processor.
fn processor() -> String {
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = known.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("an unknown processor".into(), |(_, name)| name.trim().into())
}

/// Returns the beginning of the first line of a message.
fn first_line(text: &str) -> String {
    const CHARS_MAX: usize = 160;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.into(),
    }
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict(variant: &str, judged: Value) -> Verdict {
        Row { model: "m".into(), variant: variant.into(), judged: Some(judged) }.verdict()
    }

    fn compared(apart: f64, cosine: f64, peer: f64) -> Value {
        json!({"compile_code": 0, "run_error": null, "apart": apart, "cosine": cosine, "peer_apart": peer, "peer_cosine": 1.0})
    }

    #[test]
    fn results_are_judged_by_the_types_of_the_file() {
        assert_eq!(verdict("onnxsim", compared(5e-4, 1.0, 0.0)), Verdict::Right);
        assert!(matches!(verdict("onnxsim", compared(5e-3, 1.0, 0.0)), Verdict::Wrong(_)));
        assert_eq!(
            verdict("onnxsim", compared(5e-3, 1.0, 2e-3)),
            Verdict::Right,
            "within what the peer is apart from itself"
        );
        assert_eq!(verdict("f16", compared(5e-3, 1.0, 0.0)), Verdict::Right);
        assert_eq!(verdict("qdq-u8s8", compared(0.1, 0.995, 0.0)), Verdict::Right);
        assert!(matches!(verdict("qdq-u8s8", compared(0.1, 0.9, 0.0)), Verdict::Wrong(_)));
        let mut rounded = compared(0.2, 0.98, 0.0);
        (rounded["to_model"], rounded["peer_to_model"]) = (json!(0.04), json!(0.15));
        assert_eq!(verdict("f16", rounded.clone()), Verdict::Right, "nearer to the model than the peer");
        (rounded["to_model"], rounded["peer_to_model"]) = (json!(0.15), json!(0.04));
        assert!(matches!(verdict("f16", rounded), Verdict::Wrong(_)));
        let mut turned = compared(0.5, 0.98, 0.0);
        turned["peer_moved"] = json!(0.985);
        assert!(
            matches!(verdict("qdq-u8s8", turned.clone()), Verdict::Unstable(_)),
            "the peer's own results turn as far"
        );
        assert!(matches!(verdict("onnxsim", turned.clone()), Verdict::Wrong(_)), "a net of floats does not round");
        let mut far = compared(0.5, 0.6, 0.0);
        far["peer_moved"] = json!(0.5);
        assert!(matches!(verdict("qdq-u8s8", far), Verdict::Wrong(_)), "too far for any excuse");
        turned["peer_moved"] = json!(0.9999);
        assert!(matches!(verdict("qdq-u8s8", turned), Verdict::Wrong(_)));
        assert!(matches!(verdict("f16", json!({"compile_code": 2, "said": "error"})), Verdict::Refused(_)));
        assert!(matches!(verdict("f16", compared(f64::NAN, 1.0, 0.0)), Verdict::Wrong(_)));
    }

    #[test]
    fn a_share_of_the_pairs_is_drawn_and_every_model_as_it_is() {
        let pairs: Vec<String> = (0..1000).map(|i| format!("variant-{i}")).collect();
        let taken = |options: &Options| pairs.iter().filter(|variant| options.takes("m", variant)).count();
        let whole = taken(&Options::default());
        let tenth = taken(&Options { tenth: true, ..Options::default() });
        assert!((500..700).contains(&whole) && (30..90).contains(&tenth), "{whole} {tenth}");
        assert!(Options::default().takes("m", "original"));
        let words = Options { words: vec!["m ".into(), "f16".into()], ..Options::default() };
        assert!(words.takes("m", "f16-inside") && !words.takes("m", "int4"));
    }
}
