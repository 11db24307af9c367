//! `cargo xtask gpu`  =>  `target/gpu`: all that a check on a machine with a GPU needs, without Rust or LLVM there

use crate::context::{Context, Failure, Result, Scratch, create_dir, run, write};
use crate::{models, setup};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Models that are small enough to transfer: an encoder, and decoders with caches.
static MODELS: &[&str] = &["rxnmapper_albert_ts17", "skel_gpt2_tiny_kv_dyn18", "skel_llama_tiny_kv_dyn23"];

/// The script that the machine with the GPU runs.
static SCRIPT: &str = include_str!("gpu.sh");

/// Maximum size of the folder, so that it can be transferred in one call.
const BYTES_MAX: u64 = 60_000_000;

/// `cargo xtask gpu [--peers DIR]`: with `--peers`, also packs `DIR/gpu.py`, which measures other programs for
/// comparison.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    let peers = match args {
        [] => None,
        [flag, dir] if flag == "--peers" => Some(Path::new(dir).join("gpu.py")),
        _ => return Err(Failure::user("usage: cargo xtask gpu [--peers DIR]")),
    };
    setup::ensure()?;
    let packages = ["build", "--release", "-p", "sardonyx", "-p", "sardonyx-run", "--bins"];
    run(&mut context.cargo(packages))?;
    run(&mut context.cargo(["build", "--release", "-p", "sardonyx-runtime", "--example", "gpu_goldens"]))?;
    let (release, place) = (context.target.join("release"), context.target.join("gpu"));
    let scratch = Scratch::create_beside(&place)?;
    copy(&release.join("sardonyx-run"), scratch.path())?;
    copy(&release.join("examples/gpu_goldens"), scratch.path())?;
    for name in MODELS {
        pack(context, &release.join("sardonyx"), name, &scratch.path().join("models").join(name))?;
    }
    if let Some(script) = peers {
        copy(&script, scratch.path())?;
    }
    let script = scratch.path().join("run.sh");
    write(&script, |file| file.write_all(SCRIPT.as_bytes()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(|e| Failure::io(&script, "write", e))?;
    let bytes = size(scratch.path())?;
    if bytes > BYTES_MAX {
        return Err(Failure::check(format!("what was packed has {bytes} bytes, but {BYTES_MAX} is the limit")));
    }
    scratch.keep(&place)?;
    println!(
        "gpu: {} holds {:.0} MB. On a machine with a GPU, within ten minutes:\n\n    sh {}/run.sh RESULTS\n\n\
         RESULTS/goldens.json then belongs into testdata/goldens, under the name of the GPU.",
        context.show(&place),
        bytes as f64 / 1e6,
        context.show(&place)
    );
    Ok(())
}

/// Compiles a model for CPUs and GPUs, and packs it with its data sets.
fn pack(context: &Context, compiler: &Path, name: &str, to: &Path) -> Result<()> {
    let folder = models::ensure(context, name)?;
    create_dir(to)?;
    let mut compile = Command::new(compiler);
    compile.arg("compile").arg(folder.join("model.onnx")).arg("-o").arg(to.join("model.sdx"));
    run(compile.args(["--target", "cpu", "--target", "cuda:sm_80"]))?;
    for set in (0..).map(|i| format!("test_data_set_{i}")).take_while(|set| folder.join(set).is_dir()) {
        create_dir(&to.join(&set))?;
        for file in entries(&folder.join(&set))? {
            copy(&file, &to.join(&set))?;
        }
    }
    Ok(())
}

fn copy(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().ok_or_else(|| Failure::user(format!("{} is no file", file.display())))?;
    fs::copy(file, folder.join(name)).map(drop).map_err(|e| Failure::io(file, "copy", e))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = fs::read_dir(folder).map_err(|e| Failure::io(folder, "list", e))?;
    Ok(found.flatten().map(|e| e.path()).collect())
}

/// Returns the total size of all files below a folder, in bytes.
fn size(folder: &Path) -> Result<u64> {
    entries(folder)?.iter().try_fold(0, |sum, path| {
        let bytes = match path.is_dir() {
            true => size(path)?,
            false => fs::metadata(path).map_err(|e| Failure::io(path, "read", e))?.len(),
        };
        Ok(sum + bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_folder_is_that_of_all_its_files() {
        let dir = tempfile::tempdir().unwrap();
        create_dir(&dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("x"), "123").unwrap();
        fs::write(dir.path().join("a/b/y"), "4567").unwrap();
        assert_eq!(size(dir.path()).unwrap(), 7);
    }

    /// Checks the syntax of the script, and that the limits of its steps add up to at most ten minutes.
    #[test]
    fn the_script_gives_every_step_a_limit_and_is_sound() {
        let steps = || SCRIPT.lines().filter_map(|l| l.trim().strip_prefix("step "));
        // Steps whose names begin with `$net-` run once for each model.
        let times = |step: &str| if step.starts_with("\"$net-") { MODELS.len() as u32 } else { 1 };
        let seconds: u32 = steps().map(|step| times(step) * limit(step)).sum();
        assert!(steps().count() > 4 && seconds <= 600, "{seconds} s");
        let check = Command::new("sh").args(["-n", "-c", SCRIPT]).status().unwrap();
        assert!(check.success());
    }

    /// Returns the limit in seconds of a step `NAME SECONDS COMMAND…`.
    fn limit(step: &str) -> u32 {
        step.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("no limit: {step}"))
    }

    #[test]
    fn other_arguments_are_the_users_mistake() {
        let failure = command(&Context::new(), &["--fast".into()]).unwrap_err();
        assert_eq!((failure.code, failure.to_string().as_str()), (2, "error: usage: cargo xtask gpu [--peers DIR]"));
    }
}
