//! PTX  =>  registers, stack and spills of each entry from `ptxas -v`, and the machine code from `nvdisasm`

use sardonyx_tests::prepared::fetched;
use std::process::Command;

/// What the assembler reports about an entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub registers: u32,
    pub stack_bytes: u32,
    /// Bytes of spill stores and spill loads together.
    pub spill_bytes: u32,
}

#[derive(Debug)]
pub struct Assembled {
    pub entries: Vec<Entry>,
    pub machine_code: String,
}

/// Assembles PTX. `Err` if the assembler rejects it, or gives advice or a warning other than about spills.
pub fn assemble(ptx: &str, arch: &str) -> Result<Assembled, String> {
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    let (text, code) = (dir.path().join("k.ptx"), dir.path().join("k.cubin"));
    std::fs::write(&text, ptx).expect("a temporary file");
    let log = run(Command::new(fetched("nvidia-cuda-nvcc-13.5.37", "ptxas"))
        .args(["-v", "--warn-on-spills"])
        .arg(format!("-arch={arch}"))
        .arg(&text)
        .arg("-o")
        .arg(&code))?;
    // If the assembler inserts waits that the kernel does not contain, it reports that as numbered advice (`C75…`).
    if let Some(line) = log.lines().find(|l| l.contains("warning") && !l.contains("spill") || l.contains("(C75")) {
        return Err(line.into());
    }
    let machine_code = run(Command::new(fetched("nvidia-cuda-nvdisasm-13.5.37", "nvdisasm")).arg(&code))?;
    Ok(Assembled { entries: entries(&log), machine_code })
}

/// Runs the program. Returns its output on both streams, as `Err` if the program fails.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?} cannot be started: {e}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

/// Parses lines such as `Function properties for k`, `0 bytes stack frame, …`, `Used 12 registers, …`.
fn entries(log: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = vec![];
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Compiling entry function '") {
            let name = name.split('\'').next().unwrap_or(name).to_string();
            entries.push(Entry { name, registers: 0, stack_bytes: 0, spill_bytes: 0 });
        }
        let Some(entry) = entries.last_mut() else { continue };
        let before = |what: &str| -> u32 {
            let words = line.split(what).next().filter(|_| line.contains(what)).unwrap_or("");
            words.trim_end().rsplit([' ', ',']).next().and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        entry.registers += before("registers");
        entry.stack_bytes += before("bytes stack frame");
        entry.spill_bytes += before("bytes spill stores") + before("bytes spill loads");
    }
    entries
}

#[test]
fn a_log_is_read_entry_by_entry() {
    let log = "ptxas info    : 0 bytes gmem\n\
               ptxas info    : Compiling entry function 'a' for 'sm_80'\n\
               ptxas info    : Function properties for a\n    \
               8 bytes stack frame, 16 bytes spill stores, 12 bytes spill loads\n\
               ptxas info    : Used 32 registers, used 1 barriers, 360 bytes cmem[0]\n\
               ptxas info    : Compiling entry function 'b' for 'sm_80'\n    \
               0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
               ptxas info    : Used 12 registers, used 0 barriers\n";
    let entry = |name: &str, registers, stack_bytes, spill_bytes| Entry {
        name: name.into(),
        registers,
        stack_bytes,
        spill_bytes,
    };
    assert_eq!(entries(log), [entry("a", 32, 8, 28), entry("b", 12, 0, 0)]);
}
