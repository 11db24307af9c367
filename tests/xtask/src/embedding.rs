//! `cargo xtask embedding`  =>  C programs under valgrind and the Python module's tests, over artifacts of real models

use crate::bench::environment;
use crate::context::{Context, Failure, Result, create_dir, run};
use crate::{models, setup};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that the Python module needs, and a type checker for its interface.
static PACKAGES: &[&str] = &["numpy", "mypy==2.4.1"];

pub fn command(context: &Context, args: &[String]) -> Result<()> {
    if let Some(word) = args.first() {
        return Err(Failure::user(format!("`embedding` takes no argument, but got `{word}`")));
    }
    setup::ensure()?;
    setup::ensure_embedding()?;
    let compiler = context.target.join("release/sardonyx");
    run(&mut context.cargo(["build", "--release", "-p", "sardonyx", "--bin", "sardonyx"]))?;
    let home = context.target.join("embedding");
    create_dir(&home)?;
    let compiled = |name: &str| -> Result<(PathBuf, PathBuf)> {
        let model = models::ensure(context, name)?.join("model.onnx");
        let artifact = home.join(name).with_extension("sdx");
        run(Command::new(&compiler).arg("compile").arg(&model).arg("-o").arg(&artifact))?;
        Ok((model, artifact))
    };
    let (model, encoder) = compiled("skel_minilm_l6_safetensors")?;
    let (_, decoder) = compiled("skel_llama_tiny_kv_dyn18")?;
    let valgrind = ["test", "-p", "sardonyx-capi", "--test", "embedding", "--", "--include-ignored"];
    run(context.cargo(valgrind).env("SARDONYX_ENCODER", &encoder))?;

    let python = environment(context, "embedding/python", PACKAGES)?;
    let module = lay_out(context, &home)?;
    run(Command::new(&python).args(["-m", "mypy", "--strict", "sardonyx"]).current_dir(&module))?;
    let example = context.root.join("runtime/python/examples/smallest.py");
    run(Command::new(&python).arg(example).arg(&encoder).env("PYTHONPATH", &module))?;
    let mut tests = Command::new(&python);
    tests.arg(context.root.join("runtime/python/tests/test_sardonyx.py")).env("PYTHONPATH", &module);
    tests.env("SARDONYX_COMPILER", &compiler).env("SARDONYX_ONNX", &model);
    run(tests.env("SARDONYX_ENCODER", &encoder).env("SARDONYX_DECODER", &decoder))?;
    let on_gpu = ["test", "-p", "sardonyx-runtime", "--test", "devices", "--", "--ignored", "arrays_of_python"];
    run(context.cargo(on_gpu).env("SARDONYX_PYTHON", &python).env("PYTHONPATH", &module))
}

/// Lays the module out as in a wheel: the library beside the Python files.
fn lay_out(context: &Context, home: &Path) -> Result<PathBuf> {
    run(&mut context.cargo(["build", "--release", "-p", "sardonyx-python"]))?;
    let (module, source) = (home.join("module"), context.root.join("runtime/python/sardonyx"));
    if module.exists() {
        std::fs::remove_dir_all(&module).map_err(|e| Failure::io(&module, "remove", e))?;
    }
    create_dir(&module)?;
    run(Command::new("cp").arg("-r").arg(&source).arg(&module))?;
    let library = context.target.join("release/libsardonyx_native.so");
    let to = module.join("sardonyx/_native.abi3.so");
    std::fs::copy(&library, &to).map_err(|e| Failure::io(&to, "write", e))?;
    Ok(module)
}
