//! `tune`: the file that it writes with the stand-in driver of a GPU, and its error messages

use super::common::{Builder, PTX, driver};
use super::*;
use sardonyx_base::plan::candidate_target;
use sardonyx_base::plan::messages::SymbolKind;

/// y = 2 (2x + 1) + 1 by two launches of one kernel.
fn layers() -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 0, Some(1000));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", DType::F32, &["batch", "8"], "batch*32");
    let h = b.arena("batch*32", "0");
    b.entry.arena_bytes = "batch*32".into();
    let affine = b.kernel("affine", &[false, true], 1, "0");
    b.launch(affine, &[x, h], &["batch*8"], "batch*8");
    b.launch(affine, &[h, y], &["batch*8"], "batch*8");
    b.for_gpus();
    b
}

/// Writes an artifact whose kernel has two tiles.
fn candidates(path: &Path) {
    let mut b = layers();
    b.ptx.push((candidate_target("sm_80", 1), PTX.into()));
    for kernel in &mut b.kernels {
        let mut other = kernel.targets[0].clone();
        other.target = candidate_target("sm_80", 1);
        kernel.targets.push(other);
        for (target, tile) in kernel.targets.iter_mut().zip(["large", "small"]) {
            (target.key, target.tile) = ("0a1b".into(), tile.into());
        }
    }
    b.write(path);
}

#[test]
fn the_fastest_tiles_are_written() {
    let (folder, driver) = (Folder::new(), driver());
    candidates(&folder.path("candidates.sdx"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx-run"));
    command.args(["tune", "candidates.sdx", "--device", "cuda:0", "--min-time", "0"]);
    command.args(["--at", "batch=3", "--at", "batch=9"]).current_dir(&folder.dir);
    let done = command.env("LD_LIBRARY_PATH", driver.path()).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let printed = text(&done.stdout);
    assert!(printed.contains("1 kernels: ") && printed.contains("tune.lock: written"), "{printed}");
    let lock = std::fs::read_to_string(folder.path("tune.lock")).unwrap();
    for line in
        ["device = \"stand-in 0\"", "driver = \"12.4\"", "target = \"sm_80\"", "key = \"0a1b\"", "node = \"/node_0\""]
    {
        assert_eq!(lock.lines().filter(|found| *found == line).count(), 1, "{line}\n{lock}");
    }
    let measured = |sizes: &str| {
        let rest = lock
            .split_once(&format!("sizes = [{sizes}]\nlaunches = 2\nus = {{ "))
            .unwrap_or_else(|| panic!("{lock}"))
            .1;
        let line = rest.lines().next().unwrap();
        assert!(line.contains("\"large\" = ") && line.contains("\"small\" = "), "{line}");
    };
    ["24", "72"].into_iter().for_each(measured);
}

#[test]
fn what_cannot_be_tuned_is_a_sentence() {
    let (folder, driver) = (Folder::new(), driver());
    candidates(&folder.path("candidates.sdx"));
    let (code, message) = folder.bad(&["tune", "candidates.sdx"]);
    assert!(code == 2 && message.contains("`cpu` has no tiles to measure"), "{message}");
    let (code, message) = folder.bad(&["tune", "candidates.sdx", "--device", "sim:sm_80"]);
    assert!(code == 2 && message.contains("`sim:sm_80` has no tiles to measure"), "{message}");
    layers().write(&folder.path("plain.sdx"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx-run"));
    command.args(["tune", "plain.sdx", "--device", "cuda:0"]).current_dir(&folder.dir);
    let done = command.env("LD_LIBRARY_PATH", driver.path()).output().unwrap();
    let message = text(&done.stderr);
    assert!(done.status.code() == Some(2) && message.contains("--tune-candidates"), "{message}");
    assert!(!folder.path("tune.lock").exists());
}
