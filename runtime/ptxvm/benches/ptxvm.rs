//! Thread instructions per second of small loops, and the time of a tensor-core matrix product, as medians of 7 runs

use std::time::Instant;

use ptxvm::{Launch, Memory, Module, Options, Params, Report, run};

const HEAD: &str = ".version 8.5\n.target sm_80\n.address_size 64\n";
const RUNS: usize = 7;

fn main() {
    // The first argument that is not a flag filters the benchmarks by name; cargo adds flags of its own.
    let chosen = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let one = Options { threads: 1, ..Options::default() };
    let unchecked = Options { checks: false, ..one.clone() };
    for (name, body) in loops().into_iter().filter(|(name, _)| name.contains(&chosen)) {
        for (label, options) in [("checks", &one), ("no checks", &unchecked)] {
            report_loop(name, label, &body, options);
        }
    }
    let every = Options::default();
    let gemms = [("checks", &one), ("no checks", &unchecked), ("checks, all cores", &every)];
    for (label, options) in gemms.into_iter().filter(|_| "gemm".contains(&chosen)) {
        gemm(256, label, options);
    }
}

/// Bodies of the measured loops, by name. 8 blocks of 256 threads execute each loop, for 256 iterations.
fn loops() -> Vec<(&'static str, String)> {
    let integers = "mad.lo.s32 %r3, %r2, %r2, 7; xor.b32 %r4, %r3, %r2; shr.u32 %r5, %r4, 3; add.s32 %r6, %r5, %r3;
        and.b32 %r7, %r6, 255; sub.s32 %r8, %r7, %r4; max.s32 %r9, %r8, %r6; min.u32 %r10, %r9, %r3;";
    let floats = "fma.rn.f32 %f1, %f2, %f3, %f2; mul.f32 %f4, %f1, %f3; add.f32 %f5, %f4, %f1; max.f32 %f6, %f5, %f2;
        setp.gt.f32 %p2, %f6, %f1; selp.f32 %f7, %f6, %f1, %p2; sub.f32 %f8, %f7, %f2; neg.f32 %f9, %f8;";
    let special = "ex2.approx.f32 %f1, %f2; rcp.approx.f32 %f4, %f1; sqrt.rn.f32 %f5, %f4; tanh.approx.f32 %f6, %f5;";
    let shuffles = "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; shfl.sync.bfly.b32 %r4, %r3, 2, 31, -1;
        shfl.sync.idx.b32 %r5, %r4, 3, 31, -1; add.s32 %r6, %r5, %r3;";
    let shared = "st.shared.u32 [%r11], %r2; ld.shared.u32 %r3, [%r11]; bar.sync 0; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r12];
        bar.sync 0;";
    let global = "ld.global.u32 %r3, [%rd3]; add.s32 %r4, %r3, 1; st.global.u32 [%rd3], %r4; ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd4];";
    vec![
        ("integers", integers.into()),
        ("floats", floats.into()),
        ("special functions", special.into()),
        ("shuffles", shuffles.into()),
        ("shared memory", shared.into()),
        ("global memory", global.into()),
    ]
}

fn loop_kernel(body: &str) -> String {
    format!(
        "{HEAD}.entry k(.param .u64 data)\n{{
        .reg .pred %p<9>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 %rd<9>;
        .shared .align 16 .b8 tile[4096];
        mov.u32 %r0, %tid.x; mov.u32 %r1, 0; mov.u32 %r2, %tid.x;
        mov.u32 %r13, tile; shl.b32 %r14, %r0, 2; add.u32 %r11, %r13, %r14;
        and.b32 %r15, %r0, 63; shl.b32 %r15, %r15, 4; add.u32 %r12, %r13, %r15;
        cvt.rn.f32.u32 %f2, %r0; mov.f32 %f3, 0f3F000000;
        ld.param.u64 %rd1, [data]; mov.u32 %r16, %ctaid.x; mad.lo.u32 %r17, %r16, 256, %r0; mul.wide.u32 %rd2, %r17, 4;
        add.u64 %rd3, %rd1, %rd2; mul.wide.u32 %rd2, %r17, 16; add.u64 %rd4, %rd1, %rd2; add.u64 %rd4, %rd4, 65536;
        L: {body}
        add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 256; @%p1 bra L;
        ret;\n}}"
    )
}

fn report_loop(name: &str, label: &str, body: &str, options: &Options) {
    let module = Module::parse(&loop_kernel(body)).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new();
    let data = memory.alloc(1 << 20, "data");
    memory.write(data, &vec![1; 1 << 20]).unwrap_or_else(|error| panic!("{error}"));
    let launch = Launch::new("k", 8, 256, Params::new().u64(data).build());
    let (seconds, report) =
        median(|| run(&module, &mut memory, &launch, options).unwrap_or_else(|error| panic!("{error}")));
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let n = report.counters.thread_instructions as f64;
    let per_warp = seconds / report.counters.warp_instructions as f64 * 1e9;
    println!(
        "{name:18} {label:18} {:8.1} million thread instructions/s, {per_warp:6.1} ns a warp instruction",
        n / seconds / 1e6
    );
}

fn median(mut work: impl FnMut() -> Report) -> (f64, Report) {
    let mut times = Vec::new();
    let mut last = work();
    for _ in 0..RUNS {
        let start = Instant::now();
        last = work();
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    (times[RUNS / 2], last)
}

/// Measures c[n,n] = a[n,k] · b[n,k]ᵀ with k = n, in bf16 with f32 accumulators. Each block of threads computes a tile
/// of 64x64 with `cp.async` in two stages, `ldmatrix` and `mma`.
fn gemm(n: usize, label: &str, options: &Options) {
    let module = Module::parse(&gemm_kernel(n)).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new();
    let [a, b] = ["a", "b"].map(|name| memory.alloc(n * n * 2, name));
    let c = memory.alloc(n * n * 4, "c");
    let value = |i: usize, salt: usize| ((i * 7919 + salt) % 17) as f32 - 8.0;
    for (address, salt) in [(a, 3), (b, 11)] {
        let bytes: Vec<u8> = (0..n * n).flat_map(|i| ((value(i, salt).to_bits() >> 16) as u16).to_le_bytes()).collect();
        memory.write(address, &bytes).unwrap_or_else(|error| panic!("{error}"));
    }
    let blocks = (n / 64) as u32;
    let params = Params::new().u64(a).u64(b).u64(c).build();
    let launch = Launch { grid: [blocks, blocks, 1], ..Launch::new("gemm", 1, 128, params) };
    let (seconds, report) =
        median(|| run(&module, &mut memory, &launch, options).unwrap_or_else(|error| panic!("{error}")));
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let mut bytes = vec![0; n * n * 4];
    memory.read(c, &mut bytes).unwrap_or_else(|error| panic!("{error}"));
    for (i, word) in bytes.chunks_exact(4).enumerate().step_by(97) {
        let (row, col) = (i / n, i % n);
        let expected: f32 = (0..n).map(|k| value(row * n + k, 3) * value(col * n + k, 11)).sum();
        assert_eq!(f32::from_le_bytes([word[0], word[1], word[2], word[3]]), expected, "c[{row}, {col}]");
    }
    println!(
        "gemm {n}³ bf16      {label:18} {:8.2} ms, {} warp instructions, {} mma, {} shared wavefronts of {} ideal",
        seconds * 1e3,
        report.counters.warp_instructions,
        report.counters.classes["mma"].warp,
        report.counters.shared.wavefronts,
        report.counters.shared.ideal
    );
}

/// Returns the text of the kernel. In shared memory, rows of 32 elements take 64 bytes plus 16 bytes of padding, so
/// that `ldmatrix` has no bank conflicts.
fn gemm_kernel(n: usize) -> String {
    let mut text = format!(
        "{HEAD}.entry gemm(.param .u64 a, .param .u64 b, .param .u64 c)\n{{
        .reg .pred %p<9>; .reg .b32 %r<90>; .reg .f32 %f<40>; .reg .b64 %rd<40>;
        .shared .align 16 .b8 tiles[20480];
        mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y;
        shr.u32 %r3, %r0, 2; and.b32 %r4, %r0, 3; shl.b32 %r5, %r4, 4;
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
        shl.b32 %r6, %r2, 6; add.u32 %r7, %r6, %r3; mul.lo.u32 %r7, %r7, {row}; add.u32 %r7, %r7, %r5;
        cvt.u64.u32 %rd4, %r7; add.u64 %rd1, %rd1, %rd4;
        shl.b32 %r8, %r1, 6; add.u32 %r9, %r8, %r3; mul.lo.u32 %r9, %r9, {row}; add.u32 %r9, %r9, %r5;
        cvt.u64.u32 %rd5, %r9; add.u64 %rd2, %rd2, %rd5;
        mov.u32 %r10, tiles; mul.lo.u32 %r11, %r3, 80; add.u32 %r11, %r11, %r5; add.u32 %r11, %r11, %r10;
        and.b32 %r12, %r0, 31; shr.u32 %r13, %r0, 5; and.b32 %r14, %r13, 1; shr.u32 %r15, %r13, 1;
        shl.b32 %r16, %r15, 5; and.b32 %r17, %r12, 15; add.u32 %r17, %r17, %r16; mul.lo.u32 %r17, %r17, 80;
        shr.u32 %r18, %r12, 4; shl.b32 %r18, %r18, 4; add.u32 %r17, %r17, %r18; add.u32 %r17, %r17, %r10;
        shl.b32 %r19, %r14, 5; and.b32 %r20, %r12, 7; shr.u32 %r21, %r12, 4; shl.b32 %r21, %r21, 3; add.u32 %r20, %r20, %r21;
        add.u32 %r20, %r20, %r19; mul.lo.u32 %r20, %r20, 80; shr.u32 %r22, %r12, 3; and.b32 %r22, %r22, 1;
        shl.b32 %r22, %r22, 4; add.u32 %r20, %r20, %r22; add.u32 %r20, %r20, %r10; add.u32 %r20, %r20, 5120;\n",
        row = n * 2
    );
    for i in 0..32 {
        text += &format!("mov.f32 %f{i}, 0f00000000;\n");
    }
    let far = 32 * n * 2;
    let copy = format!(
        "cp.async.cg.shared.global [%r30], [%rd1], 16; cp.async.cg.shared.global [%r30+2560], [%rd1+{far}], 16;
        cp.async.cg.shared.global [%r30+5120], [%rd2], 16; cp.async.cg.shared.global [%r30+7680], [%rd2+{far}], 16;
        add.u64 %rd1, %rd1, 64; add.u64 %rd2, %rd2, 64;\n"
    );
    text += &format!("mov.u32 %r30, %r11; {copy} cp.async.commit_group; mov.u32 %r31, 0; mov.u32 %r32, 0;\nLOOP:\n");
    text += &format!(
        "add.u32 %r33, %r31, 1; setp.ge.u32 %p1, %r33, {steps}; xor.b32 %r34, %r32, 10240; add.u32 %r30, %r11, %r34;
        @%p1 bra LAST; {copy} LAST: cp.async.commit_group; cp.async.wait_group 1; bar.sync 0;
        add.u32 %r35, %r17, %r32; add.u32 %r36, %r20, %r32;\n",
        steps = n / 32
    );
    for k in 0..2 {
        for m in 0..2 {
            let r = 40 + 4 * m;
            text += &format!(
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r{r}, %r{}, %r{}, %r{}}}, [%r35+{}];\n",
                r + 1,
                r + 2,
                r + 3,
                m * 16 * 80 + k * 32
            );
        }
        for j in 0..2 {
            let r = 50 + 4 * j;
            text += &format!(
                "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r{r}, %r{}, %r{}, %r{}}}, [%r36+{}];\n",
                r + 1,
                r + 2,
                r + 3,
                j * 16 * 80 + k * 32
            );
        }
        for m in 0..2 {
            for j in 0..4 {
                let (c, a, b) = (16 * m + 4 * j, 40 + 4 * m, 50 + 2 * j);
                let d = format!("{{%f{c}, %f{}, %f{}, %f{}}}", c + 1, c + 2, c + 3);
                text += &format!(
                    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {d}, {{%r{a}, %r{}, %r{}, %r{}}}, {{%r{b}, %r{}}}, {d};\n",
                    a + 1,
                    a + 2,
                    a + 3,
                    b + 1
                );
            }
        }
    }
    text += &format!(
        "bar.sync 0; xor.b32 %r32, %r32, 10240; add.u32 %r31, %r31, 1; setp.lt.u32 %p2, %r31, {}; @%p2 bra LOOP;
        shr.u32 %r60, %r12, 2; and.b32 %r61, %r12, 3; shl.b32 %r61, %r61, 1; add.u32 %r60, %r60, %r16; add.u32 %r60, %r60, %r6;
        add.u32 %r61, %r61, %r19; add.u32 %r61, %r61, %r8; mad.lo.u32 %r62, %r60, {n}, %r61; mul.wide.u32 %rd10, %r62, 4;
        add.u64 %rd3, %rd3, %rd10;\n",
        n / 32
    );
    for m in 0..2 {
        for j in 0..4 {
            for half in 0..2 {
                let f = 16 * m + 4 * j + 2 * half;
                let at = ((16 * m + 8 * half) * n + 8 * j) * 4;
                text += &format!("st.global.v2.f32 [%rd3+{at}], {{%f{f}, %f{}}};\n", f + 1);
            }
        }
    }
    text + "ret;\n}"
}
