//! data/folded.txt: the results to which NVIDIA's assembler folds instructions on constants  =  the simulator's results

use ptxvm::{Launch, Memory, Module, Options};

const FOLDED: &str = include_str!("data/folded.txt");

/// Runs `body` with one thread and returns `%r1`.
fn execute(body: &str) -> Result<u32, String> {
    let text = format!(
        ".version 7.8\n.target sm_86\n.address_size 64\n.visible .entry k(.param .u64 out) {{\n\
         .reg .u64 %rd<4>; .reg .pred %p<5>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %d<9>;\n\
         .reg .b64 %l<9>; .reg .b16 %h<9>;\nld.param.u64 %rd1,[out];\n{body}\nst.global.u32 [%rd1],%r1; ret; }}\n"
    );
    let module = Module::parse(&text).map_err(|e| e.to_string())?;
    let mut memory = Memory::new();
    let out = memory.alloc(4, "out");
    let launch = Launch {
        entry: "k".into(),
        grid: [1; 3],
        block: [1, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        params: out.to_le_bytes().to_vec(),
    };
    let report = ptxvm::run(&module, &mut memory, &launch, &Options::default()).map_err(|e| e.to_string())?;
    if let Some(finding) = report.findings.first() {
        return Err(format!("{finding:?}"));
    }
    let mut bytes = [0; 4];
    memory.read(out, &mut bytes).map_err(|e| e.to_string())?;
    Ok(u32::from_le_bytes(bytes))
}

#[test]
fn instructions_on_constants_give_what_an_assembler_folds_them_to() {
    let lines = FOLDED.lines().filter(|line| !line.starts_with('#'));
    let mut failures = Vec::new();
    let mut n = 0;
    for line in lines {
        let (expected, body) = line.split_once(' ').expect("a value and a body");
        let expected = u32::from_str_radix(expected, 16).expect("a hexadecimal value");
        n += 1;
        match execute(body) {
            Ok(got) if got == expected => {}
            Ok(got) => failures.push(format!("{body}\n    {got:08x}, folded {expected:08x}")),
            Err(error) => failures.push(format!("{body}\n    {error}")),
        }
    }
    assert!(failures.is_empty(), "{} of {n} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(n > 900, "{n} cases");
}
