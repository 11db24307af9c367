//! cp.async.bulk and cp.async.bulk.tensor: results, completion, and accesses that conflict with copies in flight

use crate::testing::{HEAD, hopper, run_text};
use crate::{Kind, Launch, Memory, Module, Options, Params, Report, TensorMap, run};

fn kinds(report: &Report) -> Vec<Kind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

/// Thread 0 loads 256 bytes; all 64 threads of two warps wait for them.
const LOAD: &str = "
    .shared .align 8 .b64 full; .shared .align 128 .b8 tile[256];
    mov.u32 %r1, full; mov.u32 %r2, tile; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2;
    setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r1], 1; bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r1];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
    @!%p2 bra WAIT;
    ld.shared.u32 %r5, [%r3]; st.global.u32 [%rd0], %r5;";

#[test]
fn loads_arrive_at_their_barrier() {
    let input: Vec<u32> = (0..64).map(|i| i * 3).collect();
    let (words, report) = run_text(&hopper(LOAD), 1, 64, &input);
    assert_eq!((words, kinds(&report)), (input.clone(), vec![]));
    let found = |from: &str, to: &str| {
        assert!(LOAD.contains(from), "{from}");
        kinds(&run_text(&hopper(&LOAD.replace(from, to)), 1, 64, &input).1)
    };
    let wait = "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;\n    @!%p2 bra WAIT;";
    let early = found(wait, "");
    assert!(early.contains(&Kind::InFlight) || early.contains(&Kind::Race), "{early:?}");
    assert_eq!(found("[%r1], 256;\n", "[%r1], 240;\n"), [Kind::Deadlock]);
    assert!(found("[%rd1], 256", "[%rd1], 240").contains(&Kind::Deadlock));
    assert!(found("[%rd1], 256", "[%rd1], 250").contains(&Kind::Misaligned));
    assert!(found("[%r2], [%rd1]", "[%r2+128], [%rd1]").contains(&Kind::OutOfBounds));
    assert!(found("[%r2], [%rd1]", "[%r2], [%rd1+16]").contains(&Kind::OutOfBounds));
    assert!(found("@%p1 mbarrier.init.shared.b64 [%r1], 1;", "").contains(&Kind::BarrierMisuse));
    // A proxy fence must separate earlier stores to the destination from the copy.
    let stored = found("[%r1], 1; bar", "[%r1], 1; st.shared.u32 [%r3], 0; bar");
    assert_eq!(stored, [Kind::MissingFence]);
    assert_eq!(found("[%r1], 1; bar", "[%r1], 1; st.shared.u32 [%r3], 0; fence.proxy.async; bar"), []);
    // Nothing waits for the copy, so in some of many blocks it is still in flight when the block ends.
    let unwaited = LOAD.split("WAIT:").next().unwrap();
    let (_, report) = run_text(&hopper(unwaited), 16, 64, &input);
    assert_eq!(kinds(&report), [Kind::InFlight]);
}

const STORE: &str = "
    .shared .align 128 .b8 tile[256];
    mov.u32 %r2, tile; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2; mul.lo.u32 %r4, %r0, 5;
    st.shared.u32 [%r3], %r4;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r2], 256;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    END:";

#[test]
fn stores_read_what_was_fenced() {
    let (words, report) = run_text(&hopper(STORE), 1, 64, &[]);
    assert_eq!((words, kinds(&report)), ((0..64).map(|i| i * 5).collect(), vec![]));
    let found = |from: &str, to: &str| {
        assert!(STORE.contains(from), "{from}");
        kinds(&run_text(&hopper(&STORE.replace(from, to)), 1, 64, &[]).1)
    };
    assert_eq!(found("fence.proxy.async.shared::cta;", ""), [Kind::MissingFence]);
    let unordered = found("bar.sync 0;", "");
    assert!(unordered.contains(&Kind::Race) || unordered.contains(&Kind::UninitialisedMemory), "{unordered:?}");
    assert_eq!(found("cp.async.bulk.wait_group.read 0;", ""), [Kind::InFlight]);
    assert_eq!(found("cp.async.bulk.commit_group;", ""), [Kind::InFlight]);
    // A store uses its source until `wait_group.read` returns, and its destination until `wait_group` returns.
    let early = "END: bar.sync 1; setp.eq.u32 %p2, %r0, 63; @%p2 st.shared.u32 [%r2+4], 1;";
    assert!(found("cp.async.bulk.wait_group.read 0;\n    END:", early).contains(&Kind::InFlight));
    assert_eq!(found("END:", early), []);
    let own = "st.shared.u32 [%r2+4], 9; cp.async.bulk.wait_group.read 0;";
    assert_eq!(found("cp.async.bulk.wait_group.read 0;", own), [Kind::InFlight]);
    assert_eq!(found("END:", "ld.global.u32 %r9, [%rd0]; END:"), [Kind::InFlight]);
    assert_eq!(found("wait_group.read 0;", "wait_group 0; ld.global.u32 %r9, [%rd0];"), []);
}

/// Runs a kernel that copies boxes of 8 rows by 32 columns from or to a matrix of u32 with 10 rows and 40 columns.
/// Returns the matrix if the kernel copies to it, else the kernel's output.
fn tensor(body: &str, swizzle_bytes: u32) -> (Vec<u32>, Report) {
    let text = format!(
        "{}.visible .entry k(.param .u64 out, .param .align 64 .b8 map[128])\n{{
         .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .shared .align 8 .b64 full; .shared .align 1024 .b8 tile[1024];
         mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [out]; mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1;
         mov.u32 %r1, full; mov.u32 %r2, tile; setp.eq.u32 %p1, %r0, 0;
         {body} ret; }}",
        HEAD.replace("sm_80", "sm_90a")
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut memory = Memory::new();
    let (out, matrix) = (memory.alloc(1024, "out"), memory.alloc(10 * 160, "matrix"));
    let bytes: Vec<u8> = (0..400u32).flat_map(|i| (1000 + i).to_le_bytes()).collect();
    memory.write(matrix, &bytes).unwrap();
    let (dims, stride_bytes, tile) = (vec![40, 10], vec![160], vec![32, 8]);
    let map = TensorMap { address: matrix, element_bytes: 4, dims, stride_bytes, tile, swizzle_bytes };
    let object = memory.tensor_map(map).unwrap();
    let launch = Launch::new("k", 1, 256, Params::new().u64(out).bytes(&object, 64).build());
    let report = run(&module, &mut memory, &launch, &Options::default()).unwrap();
    let mut found = vec![0; if body.contains("global.shared::cta") { 1600 } else { 1024 }];
    memory.read(if found.len() == 1600 { matrix } else { out }, &mut found).unwrap();
    (found.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect(), report)
}

const BOX: &str = "
    @%p1 mbarrier.init.shared.b64 [%r1], 1; bar.sync 0; mov.u32 %r4, 16; mov.u32 %r5, -2;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 1024;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r4, %r5}], [%r1];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra WAIT;
    shl.b32 %r6, %r0, 2; add.u32 %r7, %r6, %r2; ld.shared.u32 %r8, [%r7]; cvt.u64.u32 %rd2, %r6; add.u64 %rd2, %rd2, %rd0;
    st.global.u32 [%rd2], %r8;";

#[test]
fn boxes_are_swizzled_and_filled_with_zeros() {
    for swizzle in [0, 128] {
        let (words, report) = tensor(BOX, swizzle);
        assert_eq!(kinds(&report), []);
        for (row, column) in (0..8).flat_map(|row| (0..32).map(move |column| (row, column))) {
            let chunk = if swizzle == 128 { (column / 4) ^ row } else { column / 4 };
            let at = row * 32 + chunk * 4 + column % 4;
            let inside = row >= 2 && column + 16 < 40;
            let expected = if inside { 1000 + (row - 2) * 40 + column + 16 } else { 0 };
            assert_eq!(words[at], expected as u32, "row {row}, column {column}, swizzle {swizzle}");
        }
    }
    let (_, report) = tensor(&BOX.replace(", 1024;", ", 960;"), 128);
    assert_eq!(kinds(&report), [Kind::Deadlock], "all bytes of the box count, also those outside the matrix");
    let (_, report) = tensor(&BOX.replace("[%r2], [%rd1", "[%r2+64], [%rd1"), 0);
    assert!(kinds(&report).contains(&Kind::Misaligned));
    let (_, report) = tensor(&BOX.replace("[%rd1, {", "[%rd0, {"), 0);
    assert!(kinds(&report).contains(&Kind::OutOfBounds), "an address without a tensor map");
}

#[test]
fn boxes_are_stored_as_far_as_they_exist() {
    let body = "
        shl.b32 %r6, %r0, 2; add.u32 %r7, %r6, %r2; st.shared.u32 [%r7], %r0; fence.proxy.async; bar.sync 0;
        mov.u32 %r4, 32; mov.u32 %r5, 5; setp.ne.u32 %p1, %r0, 0; @%p1 bra END;
        cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r4, %r5}], [%r2];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END:";
    let (words, report) = tensor(body, 0);
    assert_eq!(kinds(&report), []);
    for (row, column) in (0..10).flat_map(|row| (0..40).map(move |column| (row, column))) {
        let inside = row >= 5 && column >= 32;
        let expected = if inside { (row - 5) * 32 + column - 32 } else { 1000 + row * 40 + column };
        assert_eq!(words[row * 40 + column], expected as u32, "row {row}, column {column}");
    }
}

#[test]
fn forms_that_are_refused() {
    let error = |text: &str| Module::parse(&hopper(text)).unwrap_err().to_string();
    let rows = [
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16;", "number of operands"),
        (
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r2], 16, [%r3];",
            "not supported",
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2}], [%r3];",
            "takes 2 coordinates, not 1",
        ),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1], 16, [%r3], %h1;",
            "only clusters of one block",
        ),
    ];
    for (text, expected) in rows {
        assert!(error(text).contains(expected), "{text}: {}", error(text));
    }
    assert!(Module::parse(&crate::testing::kernel(STORE)).unwrap_err().message.contains("needs .target sm_90"));
}
