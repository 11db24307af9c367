//! `cargo xtask fuzz`  =>  libFuzzer on the targets of `tests/src/fuzz`, and the inputs that it found worth keeping
//!
//! All code, but not its build scripts, is compiled with counters of edges, in a target folder of its own. An input that
//! breaks a promise stays in `target/fuzz/TARGET`. With `--keep`, inputs that together cover what was reached go to
//! `testdata/corpora/TARGET.bin`, which the default suite replays, and the totals to `testdata/corpora/totals.tsv`.

use crate::context::{Context, Failure, Result, create_dir, run, write};
use crate::setup;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str = "usage: cargo xtask fuzz [--seconds N] [--keep] [TARGET…]";

/// Names of the targets, which `tests/src/fuzz` defines.
static TARGETS: &[&str] = &["archives", "compile", "expressions", "host", "ir", "models", "plans", "ptx", "tensors"];

/// How long each target runs by default.
const SECONDS: u64 = 60;
/// Maximum number of bytes of inputs that are kept for a target.
const KEPT_BYTES_MAX: usize = 64 << 10;
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Flags that make LLVM count edges and record comparisons, as libFuzzer needs them.
static FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

struct Request<'a> {
    seconds: u64,
    keep: bool,
    targets: Vec<&'a str>,
}

/// What a run of a target did.
struct Ran {
    executions: u64,
    edges: u64,
}

pub fn command(context: &Context, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    setup::ensure()?;
    let build = context.target.join("fuzz/build");
    let manifest = context.root.join("tests/fuzz/Cargo.toml");
    let mut cargo = context.cargo(["build", "--release", "--target", TRIPLE, "--manifest-path"]);
    run(cargo.arg(&manifest).arg("--target-dir").arg(&build).env("RUSTFLAGS", FLAGS.join(" ")))?;
    let program = build.join(TRIPLE).join("release/sardonyx-fuzz");
    let mut failed = vec![];
    println!("{:<12} {:>8} {:>12} {:>8}", "target", "seconds", "executions", "edges");
    for target in &request.targets {
        match one(context, &program, target, &request) {
            Ok(ran) => println!("{target:<12} {:>8} {:>12} {:>8}", request.seconds, ran.executions, ran.edges),
            Err(e) => {
                println!("{target:<12} {e}");
                failed.push(*target);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::check(format!("findings in {}", failed.join(", ")))),
    }
}

fn parse(args: &[String]) -> Result<Request<'_>> {
    let mut request = Request { seconds: SECONDS, keep: false, targets: vec![] };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--keep" => request.keep = true,
            "--seconds" => {
                let seconds = args.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                request.seconds = seconds.ok_or_else(|| Failure::user(USAGE))?;
            }
            name if TARGETS.contains(&name) => request.targets.push(name),
            name => {
                let known = format!("the targets are {}", TARGETS.join(", "));
                return Err(Failure::user(format!("there is no target `{name}`; {USAGE}")).help(known));
            }
        }
    }
    if request.targets.is_empty() {
        request.targets = TARGETS.to_vec();
    }
    Ok(request)
}

/// Runs a target from the kept corpus, the seeds and the inputs of earlier runs on this machine.
fn one(context: &Context, program: &Path, target: &str, request: &Request) -> Result<Ran> {
    let place = context.target.join("fuzz").join(target);
    let [own, kept, seeds] = ["corpus", "kept", "seeds"].map(|name| place.join(name));
    for folder in [&own, &kept, &seeds] {
        create_dir(folder)?;
    }
    let packed = packed(context, target);
    for (i, input) in unpacked(&packed)?.iter().enumerate() {
        write(&kept.join(format!("{i:04}")), |file| file.write_all(input))?;
    }
    let log = place.join("log");
    let file = fs::File::create(&log).map_err(|e| Failure::io(&log, "write", e))?;
    let errors = file.try_clone().map_err(|e| Failure::io(&log, "write", e))?;
    let mut fuzzer = Command::new(program);
    fuzzer.arg(&own).arg(&kept).arg(&seeds).args(["-timeout=30", "-rss_limit_mb=3000", "-print_final_stats=1"]);
    fuzzer.arg(format!("-max_total_time={}", request.seconds)).arg("-max_len=65536");
    fuzzer.arg(format!("-artifact_prefix={}/", place.display()));
    fuzzer.env("SARDONYX_FUZZ", target).env("SARDONYX_FUZZ_SEEDS", &seeds).stdout(file).stderr(errors);
    fuzzer.envs(libraries());
    let done = fuzzer.status().map_err(|e| Failure::io(program, "start", e))?;
    let text = fs::read(&log).map_err(|e| Failure::io(&log, "read", e))?;
    let text = String::from_utf8_lossy(&text);
    if !done.success() {
        return Err(Failure::check(format!("a finding: see {} and the input beside it", context.show(&log))));
    }
    let ran = Ran {
        executions: number_after(&text, "stat::number_of_executed_units:").unwrap_or(0),
        edges: number_after(&text, " cov: ").unwrap_or(0),
    };
    if request.keep {
        let merged = place.join("merged");
        let _ = fs::remove_dir_all(&merged);
        create_dir(&merged)?;
        let mut merge = Command::new(program);
        merge.args(["-merge=1", "-max_len=65536"]).arg(&merged).arg(&kept).arg(&own).arg(&seeds);
        merge
            .env("SARDONYX_FUZZ", target)
            .envs(libraries())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        run(&mut merge)?;
        pack(&packed, &merged)?;
        add_totals(context, target, &ran, request.seconds)?;
    }
    Ok(ran)
}

/// Where the program finds the libraries of LLVM: `RUSTFLAGS` replaces the flags of `.cargo/config.toml`, which would
/// tell it.
fn libraries() -> Option<(&'static str, PathBuf)> {
    Some(("LD_LIBRARY_PATH", PathBuf::from(std::env::var_os("MLIR_SYS_220_PREFIX")?).join("lib")))
}

/// The number behind the last occurrence of a word.
fn number_after(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(word)?;
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn packed(context: &Context, target: &str) -> PathBuf {
    context.root.join("testdata/corpora").join(format!("{target}.bin"))
}

/// Reads inputs, each of which is its length in four bytes, least significant first, and its bytes; none without a file.
fn unpacked(path: &Path) -> Result<Vec<Vec<u8>>> {
    let Ok(mut bytes) = fs::read(path).map(std::collections::VecDeque::from) else { return Ok(vec![]) };
    let mut inputs = vec![];
    while bytes.len() >= 4 {
        let length: Vec<u8> = bytes.drain(..4).collect();
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if bytes.len() < length {
            return Err(Failure::user(format!("{} is cut off", path.display())));
        }
        inputs.push(bytes.drain(..length).collect());
    }
    Ok(inputs)
}

/// Writes the smallest inputs of a folder, as many as there is space for.
fn pack(path: &Path, folder: &Path) -> Result<()> {
    let read = |e: std::io::Result<fs::DirEntry>| fs::read(e?.path());
    let entries = fs::read_dir(folder).map_err(|e| Failure::io(folder, "read", e))?;
    let mut inputs: Vec<Vec<u8>> =
        entries.map(read).collect::<std::io::Result<_>>().map_err(|e| Failure::io(folder, "read", e))?;
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let mut bytes = vec![];
    for input in inputs {
        if bytes.len() + 4 + input.len() > KEPT_BYTES_MAX {
            break;
        }
        bytes.extend((input.len() as u32).to_le_bytes());
        bytes.extend(input);
    }
    write(path, |file| file.write_all(&bytes))
}

/// Adds a run to the totals: seconds and executions of all runs, and the most edges that one has covered.
fn add_totals(context: &Context, target: &str, ran: &Ran, seconds: u64) -> Result<()> {
    let path = context.root.join("testdata/corpora/totals.tsv");
    let old = fs::read_to_string(&path).unwrap_or_default();
    let mut rows: Vec<(String, [u64; 3])> = old.lines().skip(1).filter_map(row).collect();
    match rows.iter_mut().find(|(name, _)| name == target) {
        Some((_, [all, executions, edges])) => {
            (*all, *executions, *edges) = (*all + seconds, *executions + ran.executions, ran.edges.max(*edges));
        }
        None => rows.push((target.into(), [seconds, ran.executions, ran.edges])),
    }
    rows.sort();
    let rows = rows.into_iter().map(|(name, [a, b, c])| format!("{name}\t{a}\t{b}\t{c}\n"));
    let text: String = ["target\tseconds\texecutions\tedges\n".to_string()].into_iter().chain(rows).collect();
    write(&path, |file| file.write_all(text.as_bytes()))
}

fn row(line: &str) -> Option<(String, [u64; 3])> {
    let mut words = line.split('\t');
    let name = words.next()?.to_string();
    let mut number = || words.next()?.parse().ok();
    Some((name, [number()?, number()?, number()?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_the_log() {
        let log = "#2 INITED cov: 10 ft: 12\n#9 NEW cov: 34 ft: 50\nstat::number_of_executed_units: 1234\n";
        assert_eq!(number_after(log, " cov: "), Some(34));
        assert_eq!(number_after(log, "stat::number_of_executed_units:"), Some(1234));
        assert_eq!(number_after(log, "stat::none:"), None);
    }

    #[test]
    fn inputs_are_packed_and_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let inputs = folder.path().join("inputs");
        fs::create_dir(&inputs).unwrap();
        for (name, bytes) in [("a", &b"longer"[..]), ("b", b""), ("c", b"x"), ("d", &[7; KEPT_BYTES_MAX])] {
            fs::write(inputs.join(name), bytes).unwrap();
        }
        let path = folder.path().join("t.bin");
        pack(&path, &inputs).unwrap();
        assert_eq!(unpacked(&path).unwrap(), [b"".to_vec(), b"x".to_vec(), b"longer".to_vec()]);
        fs::write(&path, [9, 0, 0, 0, 1]).unwrap();
        assert!(unpacked(&path).is_err());
        assert!(unpacked(&folder.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn targets_and_times_are_chosen() {
        let parsed = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
            parse(&args).map(|r| (r.seconds, r.keep, r.targets.len())).map_err(|e| e.to_string())
        };
        assert_eq!(parsed(&[]), Ok((SECONDS, false, TARGETS.len())));
        assert_eq!(parsed(&["ptx", "--seconds", "5", "--keep"]), Ok((5, true, 1)));
        assert!(parsed(&["ptxx"]).unwrap_err().contains("the targets are archives, "));
        assert!(parsed(&["--seconds", "0"]).is_err());
    }
}
