//! Each kind of finding: a small wrong kernel causes the finding, and the corrected kernel does not

use crate::Kind;
use crate::testing::{kernel, run_body, run_text};

/// The kinds of findings that a kernel causes.
fn kinds(body: &str, threads: u32, input: &[u32]) -> Vec<Kind> {
    let (_, report) = run_body(body, threads, input);
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[track_caller]
fn check(kind: Kind, wrong: &str, right: &str, threads: u32) {
    let input: Vec<u32> = (0..threads).collect();
    assert_eq!(kinds(wrong, threads, &input), [kind], "{wrong}");
    assert_eq!(kinds(right, threads, &input), [], "{right}");
}

#[test]
fn misaligned() {
    check(
        Kind::Misaligned,
        "ld.global.v2.u32 {%r1, %r2}, [%rd1]; st.global.u32 [%rd0], %r1;",
        "and.b64 %rd1, %rd1, -8; ld.global.v2.u32 {%r1, %r2}, [%rd1]; st.global.u32 [%rd0], %r1;",
        4,
    );
}

#[test]
fn out_of_bounds_of_shared_memory() {
    check(
        Kind::OutOfBounds,
        ".shared .b32 tile[32]; shl.b32 %r1, %r0, 2; st.shared.u32 [%r1+4], %r0;",
        ".shared .b32 tile[33]; shl.b32 %r1, %r0, 2; st.shared.u32 [%r1+4], %r0;",
        32,
    );
}

#[test]
fn uninitialised_memory() {
    check(
        Kind::UninitialisedMemory,
        ".shared .b32 tile[32]; shl.b32 %r1, %r0, 2; ld.shared.u32 %r2, [%r1]; st.global.u32 [%rd0], %r2;",
        ".shared .b32 tile[32]; shl.b32 %r1, %r0, 2; st.shared.u32 [%r1], 1; ld.shared.u32 %r2, [%r1]; st.global.u32 [%rd0], %r2;",
        32,
    );
    check(
        Kind::UninitialisedMemory,
        "ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd0], %r1;",
        "ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd0], %r1;",
        4,
    );
    check(
        Kind::UninitialisedMemory,
        ".local .b32 cell[2]; ld.local.u32 %r1, [cell]; st.global.u32 [%rd0], %r1;",
        ".local .b32 cell[2]; st.local.u32 [cell], 0; ld.local.u32 %r1, [cell]; st.global.u32 [%rd0], %r1;",
        4,
    );
}

#[test]
fn uninitialised_register_in_some_lanes_only() {
    let wrong = "setp.lt.u32 %p1, %r0, 3; @%p1 mov.u32 %r1, 5; st.global.u32 [%rd0], %r1;";
    let (_, report) = run_body(wrong, 8, &[]);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert_eq!((report.findings[0].kind, report.findings[0].count), (Kind::UninitialisedRegister, 5));
    assert!(report.findings[0].message.contains("thread (3, 0, 0)") && report.findings[0].message.contains("`%r1`"));
    check(
        Kind::UninitialisedRegister,
        wrong,
        "setp.lt.u32 %p1, %r0, 3; mov.u32 %r1, 4; @%p1 mov.u32 %r1, 5; st.global.u32 [%rd0], %r1;",
        8,
    );
    // Write and read have the same guard: the lanes that skip the write skip the read.
    assert_eq!(kinds("setp.lt.u32 %p1, %r0, 3; @%p1 mov.u32 %r1, 5; @%p1 st.global.u32 [%rd0], %r1;", 8, &[]), []);
    // The guard itself is read by every lane.
    assert_eq!(
        kinds("setp.lt.u32 %p1, %r0, 3; @%p1 setp.lt.u32 %p2, %r0, 9; @%p2 st.global.u32 [%rd0], 1;", 8, &[]),
        [Kind::UninitialisedRegister]
    );
    // A loop that writes the register in its first iteration is correct, even if the analysis cannot prove it.
    assert_eq!(
        kinds(
            "mov.u32 %r2, 0; L: setp.eq.u32 %p1, %r2, 0; @%p1 mov.u32 %r1, 1; add.u32 %r1, %r1, 1; add.u32 %r2, %r2, 1;
             setp.lt.u32 %p2, %r2, 3; @%p2 bra L; st.global.u32 [%rd0], %r1;",
            4,
            &[]
        ),
        []
    );
}

#[test]
fn races_within_a_block() {
    let body = |barrier: &str| {
        format!(
            ".shared .b32 tile[64]; shl.b32 %r1, %r0, 2; st.shared.u32 [%r1], %r0; {barrier}
             xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd0], %r3;"
        )
    };
    for seed in 0..4 {
        let module = crate::Module::parse(&kernel(&body(""))).unwrap();
        let mut memory = crate::Memory::new();
        let out = memory.alloc(256, "out");
        let launch = crate::Launch::new("k", 1, 64, crate::Params::new().u64(out).u64(out).build());
        let options = crate::Options { seed, ..crate::Options::default() };
        let report = crate::run(&module, &mut memory, &launch, &options).unwrap();
        assert!(
            report.findings.iter().any(|finding| finding.kind == Kind::Race),
            "seed {seed}: {:#?}",
            report.findings
        );
    }
    assert_eq!(kinds(&body("bar.sync 0;"), 64, &[]), []);
}

#[test]
fn races_between_blocks() {
    let body =
        "sub.s64 %rd0, %rd0, %rd2; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r0, 0; @%p1 st.global.u32 [%rd0], %r1;";
    let (_, report) = run_text(&kernel(body), 4, 32, &[]);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert_eq!(report.findings[0].kind, Kind::Race);
    let (_, report) = run_text(
        &kernel(
            &body
                .replace("st.global.u32", "red.global.add.u32")
                .replace("%rd0], %r1", "%rd1], %r1")
                .replace("%rd0, %rd0, %rd2", "%rd1, %rd1, %rd2"),
        ),
        4,
        32,
        &[0],
    );
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

#[test]
fn stores_of_different_values_to_one_address() {
    check(
        Kind::Race,
        "sub.s64 %rd0, %rd0, %rd2; st.global.u32 [%rd0], %r0;",
        "sub.s64 %rd0, %rd0, %rd2; st.global.u32 [%rd0], 7;",
        32,
    );
}

#[test]
fn divergent_sync() {
    check(
        Kind::DivergentSync,
        "setp.lt.u32 %p1, %r0, 16; @!%p1 bra END; bar.warp.sync -1; END: st.global.u32 [%rd0], %r0;",
        "setp.lt.u32 %p1, %r0, 16; @!%p1 bra END; bar.warp.sync 0xffff; END: st.global.u32 [%rd0], %r0;",
        32,
    );
    assert!(kinds("setp.lt.u32 %p1, %r0, 16; @%p1 bar.sync 0;", 32, &[]).contains(&Kind::DivergentSync));
    assert!(
        kinds("setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;", 32, &[])
            .contains(&Kind::DivergentSync)
    );
}

#[test]
fn a_way_out_that_no_lane_takes_keeps_the_others_together() {
    let input: Vec<u32> = (0..32).collect();
    for way_out in ["trap", "exit", "ret"] {
        let body = format!(
            "setp.lt.u32 %p1, %r0, 16; @!%p1 bra END; setp.eq.u32 %p0, %r0, 99; @%p0 {way_out}; END: \
             shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; st.global.u32 [%rd0], %r1;"
        );
        assert_eq!(kinds(&body, 32, &input), [], "{way_out}");
    }
    let body = "setp.lt.u32 %p1, %r0, 16; @%p1 bra END; setp.lt.u32 %p0, %r0, 24; @%p0 bra IN; add.u32 %r0, %r0, 1; \
                IN: bar.warp.sync 0xffff0000; ret; END: st.global.u32 [%rd0], %r0;";
    assert_eq!(kinds(body, 32, &input), [], "a part that always exits has a meeting place of its own");
}

#[test]
fn deadlock() {
    let wrong = "setp.lt.u32 %p1, %r0, 32; @%p1 bra END; bar.sync 1, 64; END: st.global.u32 [%rd0], %r0;";
    let (_, report) = run_body(wrong, 64, &[]);
    assert_eq!(report.findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [Kind::Deadlock]);
    assert!(report.findings[0].message.contains("1 warps at barrier 1 in line 9"), "{}", report.findings[0].message);
    check(Kind::Deadlock, wrong, &wrong.replace("1, 64", "1, 32"), 64);
}

#[test]
fn barrier_misuse() {
    check(Kind::BarrierMisuse, "bar.sync 16;", "bar.sync 15;", 32);
    check(Kind::BarrierMisuse, "bar.sync 1, 33;", "bar.sync 1, 32;", 32);
}

#[test]
fn undefined_shuffle() {
    check(
        Kind::UndefinedShuffle,
        "setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r1, %r0, 20, 31, 0xffff;",
        "setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r1, %r0, 12, 31, 0xffff;",
        32,
    );
}

#[test]
fn instruction_limit_and_trap() {
    check(Kind::InstructionLimit, "L: bra L;", "bra L; L:", 32);
    check(Kind::Trap, "setp.eq.u32 %p1, %r0, 3; @%p1 trap;", "setp.eq.u32 %p1, %r0, 99; @%p1 trap;", 32);
}

#[test]
fn reports_do_not_depend_on_the_number_of_threads() {
    let text = kernel(
        "mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd0, %rd0, %rd3; st.global.u32 [%rd0], %r1;",
    );
    let module = crate::Module::parse(&text).unwrap();
    let reports: Vec<_> = [1, 2, 7]
        .map(|threads| {
            let mut memory = crate::Memory::new();
            let out = memory.alloc(64, "out");
            let launch = crate::Launch::new("k", 40, 64, crate::Params::new().u64(out).u64(out).build());
            let options = crate::Options { threads, seed: 5, ..crate::Options::default() };
            let report = crate::run(&module, &mut memory, &launch, &options).unwrap();
            (report.findings, report.counters)
        })
        .into();
    assert!(reports[0].0.iter().any(|finding| finding.kind == Kind::OutOfBounds));
    assert_eq!(reports[0], reports[1]);
    assert_eq!(reports[0], reports[2]);
}
