//! Small kernels for tests: a PTX body, and one output word per thread

use crate::{Launch, Memory, Module, Options, Params, Report, run};

pub const HEAD: &str = ".version 8.5\n.target sm_80\n.address_size 64\n";

/// Wraps a body in a kernel that declares registers of every kind. %r0 holds the index of the thread in its block, and
/// %rd0 and %rd1 the addresses of the 32-bit words of `out` and `in` with this index.
pub fn kernel(body: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %rd<20>; .reg .f64 %fd<9>;\n\
         mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [in];\n\
         mul.wide.u32 %rd2, %r0, 4; add.s64 %rd0, %rd0, %rd2; add.s64 %rd1, %rd1, %rd2;\n{body}\nret;\n}}\n"
    )
}

/// Like `kernel`, for sm_90a.
pub fn hopper(body: &str) -> String {
    kernel(body).replace("sm_80", "sm_90a")
}

/// Runs [`kernel`] with one block of `threads` threads.
pub fn run_body(body: &str, threads: u32, input: &[u32]) -> (Vec<u32>, Report) {
    run_text(&kernel(body), 1, threads, input)
}

pub fn run_text(text: &str, grid: u32, threads: u32, input: &[u32]) -> (Vec<u32>, Report) {
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut memory = Memory::new();
    let n = (grid * threads) as usize;
    let (out, from) = (memory.alloc(n * 4, "out"), memory.alloc(input.len() * 4, "in"));
    let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.write(from, &bytes).unwrap();
    let launch = Launch::new("k", grid, threads, Params::new().u64(out).u64(from).build());
    let options = Options { instructions_max: 1 << 20, ..Options::default() };
    let report = run(&module, &mut memory, &launch, &options).unwrap();
    let mut bytes = vec![0; n * 4];
    memory.read(out, &mut bytes).unwrap();
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    (words, report)
}

/// Runs a kernel that must have no findings, and returns its output words.
pub fn clean(body: &str, threads: u32, input: &[u32]) -> Vec<u32> {
    let (words, report) = run_body(body, threads, input);
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    words
}
