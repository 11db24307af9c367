//! testdata/kernels/*.mlir × shapes × devices  =>  the interpreter's results, within the bound of the case
//!
//! Every device runs the same cases: `cpu`, `sim:sm_80`, and `cuda:0` if the machine has one. Each case is compiled
//! through the whole pipeline and, unless it is marked `ONLY fused`, also with every operation as a kernel of its own.
//! The simulated device must report no findings. `cargo test -p sardonyx-tests --test conformance NAME --
//! --include-ignored` runs the cases whose names contain NAME; without `--include-ignored`, it runs only those of them
//! that are drawn.

mod attention;
mod case;
mod compiled;
mod scalar;
mod values;

use case::Case;
use compiled::Route;
use libtest_mimic::{Arguments, Failed, Trial};
use sardonyx_runtime::DeviceName;
use sardonyx_tests::drawn::is_drawn;
use sardonyx_tests::prepared::workspace;

fn main() {
    let arguments = Arguments::from_args();
    let mut cases = written();
    cases.extend(scalar::cases());
    cases.extend(attention::cases());
    let mut trials = vec![Trial::test("the basis is covered", {
        let cases = cases.clone();
        move || covered(&cases)
    })];
    for device in ["cpu", "sim:sm_80", "cuda:0"] {
        let device: DeviceName = device.parse().expect("a device");
        // Devices that this machine does not have are skipped.
        if let Err(why) = compiled::available(&device) {
            println!("not run on {device}: {why}");
            continue;
        }
        for case in &cases {
            for route in case.routes() {
                let (case, device) = (case.clone(), device.clone());
                let name = format!("{device} {} {}", route.name(), case.name);
                let drawn = is_drawn(&name);
                trials.push(Trial::test(name, move || check(&case, route, &device)).with_ignored_flag(!drawn));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn check(case: &Case, route: Route, device: &DeviceName) -> Result<(), Failed> {
    compiled::check(case, route, device).map_err(|what| format!("{}: {what}\n{}", case.name, case.text).into())
}

/// Returns the cases of the files in testdata/kernels.
fn written() -> Vec<Case> {
    let folder = workspace().join("testdata/kernels");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    files.sort();
    files.iter().flat_map(|file| Case::read_file(file)).collect()
}

/// Checks that each of these sdx operations, every scalar function and every reduction occurs in some case.
fn covered(cases: &[Case]) -> Result<(), Failed> {
    use sardonyx_dialects::scalar::{ROWS, ReduceFn};
    let texts: String = cases.iter().map(|c| c.text.as_str()).collect();
    let operations = "append broadcast concat const contract convert dims gather iota map pad param reduce reshape slice \
                      transpose";
    let operations = operations.split_whitespace().map(|op| format!("sdx.{op} "));
    let functions = ROWS.iter().map(|row| format!("sdx.map \"{}\"", row.name));
    let reductions = ReduceFn::ALL.iter().map(|f| format!("sdx.reduce \"{}\"", f.name()));
    let missing: Vec<String> =
        operations.chain(functions).chain(reductions).filter(|word| !texts.contains(word)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("no case has {missing:?}").into()) }
}
