//! `cargo xtask bench`  =>  the table of speed in docs/benchmarks.md: our times beside those of ONNX Runtime and
//! OpenVINO, measured alternately

use crate::context::{Context, Failure, Result, output, run};
use crate::{models, serving, setup, tables};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A measurement: a model, its dimensions, and further arguments of our `compile` and `bench`.
struct Row {
    label: &'static str,
    model: &'static str,
    dims: &'static str,
    compile: &'static [&'static str],
    /// Arguments of our `bench`: `{inputs}` stands for the inputs that the peers get too; a decoder has an entry point
    /// with its states in place instead.
    ours: &'static [&'static str],
}

const fn row(label: &'static str, model: &'static str, dims: &'static str) -> Row {
    Row { label, model, dims, compile: &[], ours: &["{inputs}"] }
}

/// The row of a padded batch, where the positions that the mask excludes are never used.
const fn padded(label: &'static str, model: &'static str, dims: &'static str) -> Row {
    Row { compile: &["--masked-rows", "zero"], ..row(label, model, dims) }
}

static ROWS: &[Row] = &[
    row("MiniLM-L6 b1 s128", "skel_minilm_l6_dyn18", "batch=1,seq=128"),
    row("MiniLM-L6 b1 s16", "skel_minilm_l6_dyn18", "batch=1,seq=16"),
    row("MiniLM-L6 b8 s128", "skel_minilm_l6_dyn18", "batch=8,seq=128"),
    padded("MiniLM-L6 b8 s128, half padding", "skel_minilm_l6_dyn18", "batch=8,seq=128,mean_length=64"),
    row("BERT base b1 s128", "skel_bert_base_rand_dyn18", "batch=1,seq=128"),
    row("BERT base b1 s16", "skel_bert_base_rand_dyn18", "batch=1,seq=16"),
    row("BERT base b8 s128", "skel_bert_base_rand_dyn18", "batch=8,seq=128"),
    padded("BERT base b8 s128, half padding", "skel_bert_base_rand_dyn18", "batch=8,seq=128,mean_length=64"),
    row("ViT-S b1", "skel_vit_small_rand_ts17", "batch=1"),
    row("ResNet-50 b1", "skel_resnet50_rand_ts17", "batch=1"),
    row("EfficientNet-B0 b1", "skel_efficientnet_b0_rand_ts17", "batch=1"),
    row("DenseNet-121 b1", "light_densenet121_seeded", ""),
    row("SqueezeNet b1", "light_squeezenet_seeded", ""),
];

/// The peers' Python packages.
static PACKAGES: &[&str] = &["onnxruntime==1.31.1", "openvino==2026.4.1", "numpy"];
const THREADS: usize = 2;
const ROUNDS: usize = 5;

/// `cargo xtask bench [LABEL…]`: measures all rows and writes the table, or prints the rows whose label contains a
/// word.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    if let Some((first, rest)) = args.split_first()
        && first == "serving"
    {
        return serving::command(context, rest);
    }
    if args == ["sparsity"] {
        return sparsity(context);
    }
    let wanted = |r: &&Row| args.is_empty() || args.iter().any(|a| r.label.contains(a.as_str()));
    let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    if rows.is_empty() {
        let all: Vec<&str> = ROWS.iter().map(|r| r.label).collect();
        return Err(Failure::user("no row of the table is called so").help(format!("there are: {}", all.join(", "))));
    }
    setup::ensure()?;
    let python = environment(context, "peers", PACKAGES)?;
    run(&mut context.cargo(["build", "--release", "-p", "sardonyx", "--bin", "sardonyx"]))?;
    let mut lines = vec![];
    for row in rows {
        let times = measure(context, &python, row)?;
        let line = line(row, &times).ok_or_else(|| Failure::check(format!("no times of {}", row.label)))?;
        println!("bench: {line}");
        lines.push(line);
    }
    if !args.is_empty() {
        return Ok(());
    }
    tables::fill(context, "speed", &(heading() + &lines.join("\n") + "\n"))
}

/// `cargo xtask bench sparsity`: over a grid of sizes and sparsities, compares whether the compiler chose the dense or
/// the sparse product with which of the two is faster.
fn sparsity(context: &Context) -> Result<()> {
    setup::ensure()?;
    let python = environment(context, "sparsity-tools", &["onnx==1.23.2", "numpy"])?;
    run(&mut context.cargo(["build", "--release", "-p", "sardonyx", "--bin", "sardonyx"]))?;
    let mut command = Command::new(python);
    command.arg(context.root.join("tests/xtask/src/sparsity.py")).arg(context.target.join("release/sardonyx"));
    run(command.arg(context.target.join("sparsity")).arg(ROUNDS.to_string()))
}

/// Returns the Python of a virtual environment, `target/NAME`, that has the packages.
pub fn environment(context: &Context, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let home = context.target.join(name);
    let python = home.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    }
    run(Command::new(&python).args(["-m", "pip", "install", "-q", "--disable-pip-version-check"]).args(packages))?;
    Ok(python)
}

fn measure(context: &Context, python: &Path, row: &Row) -> Result<Value> {
    let model = models::ensure(context, row.model)?.join("model.onnx");
    let sardonyx = context.target.join("release/sardonyx");
    let compile = |name: &str, options: &[&str]| {
        let artifact = context.target.join(name).with_extension("sdx");
        let mut command = Command::new(&sardonyx);
        let compiled = command.arg("compile").arg(&model).args(options).arg("-o").arg(&artifact).output();
        match compiled.is_ok_and(|o| o.status.success()) {
            true => Ok(artifact),
            false => Err(Failure::check(format!("{} does not compile {}", row.model, options.join(" ")))),
        }
    };
    // The error of bf16 has its own column, so the self-test is skipped.
    let bf16 = [row.compile, &["--precision", "bf16", "--no-selftest"]].concat();
    let (f32, bf16) = (compile("bench", row.compile)?, compile("bench_bf16", &bf16)?);
    let mut command = Command::new(python);
    command.arg(context.root.join("tests/xtask/src/peers.py")).arg(&model);
    command.args([THREADS.to_string(), ROUNDS.to_string(), row.dims.into()]);
    command.args([&f32, &bf16, &sardonyx]).arg("bench").args(row.ours);
    command.args(["--threads", &THREADS.to_string(), "--min-time", "0.3", "--json"]);
    let text = output(&mut command).ok_or_else(|| Failure::check(format!("the peers cannot run {}", row.model)))?;
    serde_json::from_str(&text).map_err(|e| Failure::check(format!("the times of {} are no JSON: {e}", row.model)))
}

fn line(row: &Row, times: &Value) -> Option<String> {
    let of = |name: &str| times[name].as_f64();
    let (ours, ort, f32) = (of("ours")?, of("onnxruntime")?, of("openvino_f32")?);
    let (ours_bf16, bf16, share) = (of("ours_bf16")?, of("openvino_bf16")?, of("ours_of_peak")?);
    let ms = |ms: f64| if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") };
    let ratio = |ratio: f64| if ratio > 1.0 { format!("**{ratio:.2}**") } else { format!("{ratio:.2}") };
    let ratios = [ours / ort.min(f32), ours_bf16 / bf16].map(ratio);
    let error = |name: &str| of(name).map_or("-".into(), |e| format!("{e:.1e}"));
    let errors = ["ours_bf16_error", "openvino_bf16_error"].map(error);
    let [ours, ort, f32, ours_bf16, bf16] = [ours, ort, f32, ours_bf16, bf16].map(ms);
    Some(format!(
        "| {} | {ours} | {ort} | {f32} | {} | {:.0} % | {ours_bf16} | {bf16} | {} | {} | {} |",
        row.label,
        ratios[0],
        100.0 * share,
        ratios[1],
        errors[0],
        errors[1]
    ))
}

/// Returns the processor's name, and its vector units.
pub fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field =
        |name: &str| cpu.lines().find(|l| l.starts_with(name)).and_then(|l| l.split_once(": ")).map_or("", |l| l.1);
    let has = |flag: &str| field("flags").split(' ').any(|f| f == flag);
    let vectors = match (has("amx_bf16"), has("avx512f")) {
        (true, _) => "AMX",
        (false, true) => "AVX-512, no AMX",
        (false, false) => "AVX2",
    };
    format!("{} ({vectors})", field("model name"))
}

/// Returns machine, date, versions, commands, and the table's head.
fn heading() -> String {
    let date = output(Command::new("date").arg("+%F")).unwrap_or_default();
    format!(
        "{}, {THREADS} threads, {}; {}. Milliseconds, medians of turns; each artifact is compiled once \
         (`sardonyx compile MODEL.onnx`) with all dimensions open and measured by `sardonyx bench MODEL.sdx --threads {THREADS}`, \
         the peers get static shapes. Half padding: lengths from an eighth to seven eighths of the maximum, `--masked-rows zero`. \
         Bold where a peer is faster. Of the peak: what our products are of the multiply-adds of f32 that a loop in registers does in \
         the same time, measured in the same runs; Winograd's algorithm counts those that it does. bf16 is `--precision bf16`; its errors are relative (L2) to ONNX Runtime's f32.\n\n\
         | model | Sardonyx | ONNX Runtime | OpenVINO | ratio to the best | of the peak | bf16: Sardonyx | OpenVINO | ratio | error | OpenVINO's |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        machine(),
        date.trim(),
        PACKAGES[..2].join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_faster_is_marked() {
        let times = |ours: f64| {
            serde_json::json!({"ours": ours, "onnxruntime": 20.0, "openvino_f32": 8.0, "openvino_bf16": 4.0,
                "ours_of_peak": 0.934, "ours_bf16": ours / 2.0, "ours_bf16_error": 0.0123, "openvino_bf16_error": 0.5})
        };
        let wanted = "| MiniLM-L6 b1 s128 | 6.00 | 20.0 | 8.00 | 0.75 | 93 % | 3.00 | 4.00 | 0.75 | 1.2e-2 | 5.0e-1 |";
        assert_eq!(line(&ROWS[0], &times(6.0)).unwrap(), wanted);
        assert!(line(&ROWS[0], &times(12.0)).unwrap().contains("| **1.50** |"));
        assert!(line(&ROWS[0], &serde_json::json!({"ours": 1.0})).is_none());
    }

    #[test]
    fn rows_are_of_committed_models() {
        let names = models::names(&Context::new()).unwrap();
        assert!(ROWS.iter().all(|r| names.iter().any(|n| n == r.model)));
    }
}
