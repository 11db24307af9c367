//! kernel text, call  =>  whether a finding of the simulator or a wrong result shows that the kernel is broken

use crate::kernels::{Call, Subject};
use ptxvm::{Kind, Launch, Memory, Module, Options, Report};
use sardonyx_base::Tensor;

/// Outcome of running a kernel.
#[derive(Debug)]
pub enum Verdict {
    /// Correct results and no finding.
    Right,
    Finding(String),
    Wrong(String),
    /// The simulator refuses to run the kernel.
    Refused(String),
}

/// Returns the first verdict other than `Right` among all calls and seeds; `Right` if there is none.
pub fn verdict(subject: &Subject, text: &str, seeds: &[u64]) -> Verdict {
    let module = match Module::parse(text) {
        Ok(module) => module,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    for call in &subject.calls {
        for seed in seeds {
            match play(subject, &module, call, *seed) {
                Verdict::Right => {}
                other => return other,
            }
        }
    }
    Verdict::Right
}

/// Returns whether a `trap` that was inserted into the text is executed in some call.
pub fn reaches_trap(subject: &Subject, text: &str) -> Result<bool, String> {
    let module = Module::parse(text).map_err(|error| error.to_string())?;
    let traps = |call: &Call| {
        let (report, ..) = launch(subject, &module, call, 1).ok().flatten()?;
        Some(report.findings.iter().any(|finding| finding.kind == Kind::Trap))
    };
    Ok(subject.calls.iter().any(|call| traps(call) == Some(true)))
}

fn play(subject: &Subject, module: &Module, call: &Call, seed: u64) -> Verdict {
    match launch(subject, module, call, seed) {
        Ok(Some((report, memory, addresses))) => judge(subject, call, &report, &memory, &addresses),
        Ok(None) => Verdict::Right,
        Err(error) => Verdict::Refused(error.to_string()),
    }
}

/// The report, the memory after the run, and the addresses of the results and then of the status word; `None` for an
/// empty grid.
type Played = Option<(Report, Memory, Vec<u64>)>;

fn launch(subject: &Subject, module: &Module, call: &Call, seed: u64) -> Result<Played, ptxvm::Error> {
    let value = |s: &str| call.value(s);
    let params: Vec<i64> = subject.lowered.params.iter().map(|d| d.eval_named(&value).unwrap()).collect();
    let grid = subject.ptx.launch.grid.eval_params(&params).unwrap();
    if grid == 0 {
        return Ok(None);
    }
    let mut memory = Memory::new();
    let mut addresses = vec![];
    for (i, bytes) in call.reads.iter().enumerate() {
        let address = memory.alloc(bytes.len() + call.offset as usize, &format!("b{i}")) + call.offset;
        memory.write(address, bytes)?;
        addresses.push(address);
    }
    let mut room = |t: &Tensor| memory.alloc(t.bytes().len() + call.offset as usize, "result") + call.offset;
    let mut results: Vec<u64> = call.expected.iter().map(&mut room).collect();
    let status = memory.alloc(8, "status");
    memory.write(status, &0i64.to_le_bytes())?;
    let words = addresses.iter().chain(&results).copied().chain(params.iter().map(|p| *p as u64)).chain([status]);
    let launch = Launch {
        entry: "kernel".into(),
        grid: [grid as u32, 1, 1],
        block: [subject.ptx.launch.block, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: subject.ptx.launch.shared_bytes,
        params: words.flat_map(u64::to_le_bytes).collect(),
    };
    let options = Options { seed, threads: 1, instructions_max: 20_000_000, ..Options::default() };
    let report = ptxvm::run(module, &mut memory, &launch, &options)?;
    results.push(status);
    Ok(Some((report, memory, results)))
}

fn judge(subject: &Subject, call: &Call, report: &Report, memory: &Memory, addresses: &[u64]) -> Verdict {
    if let Some(finding) = report.findings.first() {
        return Verdict::Finding(format!("{}: {}", finding.kind.name(), finding.message));
    }
    let read = |address: u64, bytes: usize| {
        let mut read = vec![0; bytes];
        memory.read(address, &mut read).map(|()| read)
    };
    for (address, expected) in addresses.iter().zip(&call.expected) {
        let Ok(bytes) = read(*address, expected.bytes().len()) else { return Verdict::Refused("no result".into()) };
        let got = Tensor::new(expected.dtype(), expected.dims().to_vec(), bytes.into()).unwrap();
        if let Some(text) = difference(&got, expected, subject.bound) {
            return Verdict::Wrong(text);
        }
    }
    match addresses.last().map(|status| read(*status, 8)) {
        Some(Ok(word)) if word == [0; 8] => Verdict::Right,
        _ => Verdict::Wrong("the status word is set".into()),
    }
}

fn difference(got: &Tensor, expected: &Tensor, bound: f64) -> Option<String> {
    (0..expected.len()).find_map(|i| {
        let (a, b) = (got.get_f64(i)?, expected.get_f64(i)?);
        let same = a == b || (a - b).abs() <= bound * (1.0 + b.abs()) || a.is_nan() && b.is_nan();
        (!same).then(|| format!("element {i} of {:?}: {a} instead of {b}", expected.dims()))
    })
}
