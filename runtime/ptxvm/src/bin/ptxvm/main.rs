//! ptxvm run K.ptx --launch L.json [--json] [--seed N]

mod buffers;
mod json;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use buffers::Job;
use ptxvm::{Module, Options, run};

const HELP: &str = "\
Executes PTX on the CPU and reports what is wrong with it.

usage: ptxvm run KERNEL.ptx --launch LAUNCH.json [--json] [--seed N] [--threads N] [--no-checks]
       ptxvm entries KERNEL.ptx

  --launch FILE  what to run, on which buffers (see below)
  --json         print the report as JSON
  --seed N       choose another order of warps
  --threads N    blocks that run at the same time
  --no-checks    only bounds and alignment: no races, no uninitialised memory

exit status: 0 nothing found and all expected values met, 1 findings or wrong values, 2 not run

The launch file:

  { \"entry\": \"saxpy\", \"grid\": [4, 1, 1], \"block\": 128, \"shared_bytes\": 0,
    \"buffers\": {
      \"x\": { \"dtype\": \"f32\", \"count\": 512, \"fill\": \"random\" },
      \"y\": { \"dtype\": \"f32\", \"file\": \"y.bin\" },
      \"z\": { \"dtype\": \"f32\", \"count\": 512, \"expected\": { \"file\": \"z.bin\" }, \"tolerance\": 1e-5 } },
    \"params\": [ \"x\", \"y\", \"z\", { \"f32\": 2.0 }, { \"u32\": 512 } ] }

dtypes: u8 i8 u16 i16 f16 bf16 u32 i32 f32 u64 i64 f64. A buffer has `values`, a `file` of raw bytes, or a `count`
with a `fill`: a number, \"random\" or \"iota\"; without one it is not initialised. `expected` has `values` or a `file`;
`tolerance` is relative to the largest expected magnitude, 0 if absent. Files are relative to the launch file.
";

fn main() -> ExitCode {
    match command(std::env::args().skip(1).collect()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    kernel: PathBuf,
    launch: PathBuf,
    json: bool,
    options: Options,
}

/// Executes the command line. Returns false if there were findings or wrong values.
fn command(arguments: Vec<String>) -> Result<bool, String> {
    let mut words = arguments.iter().map(String::as_str);
    match words.next() {
        Some("run") => execute(parse_arguments(words)?),
        Some("entries") => {
            let path = words.next().ok_or("`ptxvm entries` needs a file")?;
            let module = read_module(Path::new(path))?;
            for entry in module.entries() {
                println!("{entry}");
            }
            Ok(true)
        }
        Some("--help" | "-h" | "help") | None => {
            print!("{HELP}");
            Ok(true)
        }
        Some(other) => Err(format!("unknown command `{other}`; `ptxvm --help` lists them")),
    }
}

fn parse_arguments<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Arguments, String> {
    let (mut kernel, mut launch, mut json, mut options) = (None, None, false, Options::default());
    while let Some(word) = words.next() {
        let mut value = |what: &str| words.next().ok_or_else(|| format!("`{word}` needs {what}"));
        match word {
            "--launch" => launch = Some(PathBuf::from(value("a file")?)),
            "--json" => json = true,
            "--no-checks" => options.checks = false,
            "--seed" => options.seed = number(value("a number")?)?,
            "--threads" => options.threads = number(value("a number")?)? as usize,
            _ if word.starts_with('-') => return Err(format!("unknown option `{word}`; `ptxvm --help` lists them")),
            _ if kernel.is_none() => kernel = Some(PathBuf::from(word)),
            _ => return Err(format!("one kernel at a time, not `{word}` as well")),
        }
    }
    let kernel = kernel.ok_or("name a file of PTX; `ptxvm --help` shows how")?;
    let launch = launch.ok_or("name a launch file with --launch; `ptxvm --help` shows its form")?;
    Ok(Arguments { kernel, launch, json, options })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn read_module(path: &Path) -> Result<Module, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Module::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| format!("{}: {error}", path.display()))
}

fn execute(arguments: Arguments) -> Result<bool, String> {
    let module = read_module(&arguments.kernel)?;
    let at_launch = |message: String| format!("{}: {message}", arguments.launch.display());
    let text = std::fs::read_to_string(&arguments.launch).map_err(|error| at_launch(error.to_string()))?;
    let folder = arguments.launch.parent().unwrap_or(Path::new("."));
    let mut job = Job::read(&text, folder).map_err(at_launch)?;
    let report = run(&module, &mut job.memory, &job.launch, &arguments.options).map_err(|error| error.to_string())?;
    let mismatches = job.compare().map_err(at_launch)?;
    if arguments.json {
        let mismatches: Vec<String> = mismatches.iter().map(|text| ptxvm::quoted(text)).collect();
        println!("{{\"report\":{},\"mismatches\":[{}]}}", report.to_json(), mismatches.join(","));
    } else {
        for mismatch in &mismatches {
            println!("wrong values: {mismatch}");
        }
        print!("{report}");
    }
    Ok(report.findings.is_empty() && mismatches.is_empty())
}
