//! Tests of what almost every kernel uses: threads, branches and memory

use crate::testing::{clean, run_body};

#[test]
fn each_thread_stores_its_index() {
    let words = clean("mad.lo.s32 %r1, %r0, 3, 5; st.global.u32 [%rd0], %r1;", 70, &[]);
    assert_eq!(words, (0..70).map(|i| i * 3 + 5).collect::<Vec<_>>());
}

#[test]
fn lanes_diverge_and_meet() {
    let body = "
        and.b32 %r1, %r0, 1;
        setp.eq.s32 %p1, %r1, 0;
        mov.u32 %r2, 0;
        @%p1 bra EVEN;
        add.s32 %r2, %r2, 100;
        bra MEET;
    EVEN:
        add.s32 %r2, %r2, 200;
    MEET:
        activemask.b32 %r3;
        popc.b32 %r3, %r3;
        add.s32 %r2, %r2, %r3;
        st.global.u32 [%rd0], %r2;";
    assert_eq!(clean(body, 64, &[]), (0..64).map(|i| if i % 2 == 0 { 232 } else { 132 }).collect::<Vec<_>>());
}

#[test]
fn loops_of_different_length_end_together() {
    let body = "
        mov.u32 %r1, 0; mov.u32 %r2, 0;
    LOOP:
        setp.ge.u32 %p1, %r1, %r0;
        @%p1 bra DONE;
        add.s32 %r1, %r1, 1;
        add.s32 %r2, %r2, %r1;
        bra LOOP;
    DONE:
        st.global.u32 [%rd0], %r2;
        bar.warp.sync 0xffffffff;";
    assert_eq!(clean(body, 64, &[]), (0..64).map(|i| i * (i + 1) / 2).collect::<Vec<_>>());
}

#[test]
fn shared_memory_passes_values_between_warps() {
    let body = "
        .shared .align 4 .b32 tile[64];
        mov.u32 %r1, tile;
        shl.b32 %r2, %r0, 2;
        add.s32 %r3, %r1, %r2;
        st.shared.u32 [%r3], %r0;
        bar.sync 0;
        sub.s32 %r4, 63, %r0;
        shl.b32 %r4, %r4, 2;
        add.s32 %r4, %r1, %r4;
        ld.shared.u32 %r5, [%r4];
        st.global.u32 [%rd0], %r5;";
    assert_eq!(clean(body, 64, &[]), (0..64).rev().collect::<Vec<_>>());
}

#[test]
fn vectors_and_narrow_types() {
    let body = "
        ld.global.v2.u16 {%h1, %h2}, [%rd1];
        ld.global.s8 %r1, [%rd1+3];
        cvt.u32.u16 %r2, %h1;
        cvt.s32.s16 %r3, %h2;
        add.s32 %r4, %r2, %r3;
        add.s32 %r4, %r4, %r1;
        st.global.u32 [%rd0], %r4;";
    assert_eq!(
        clean(body, 2, &[0x8001_0002, 0x7f00_ffff]),
        [2u32.wrapping_sub(0x7fff).wrapping_sub(128), 0xffff + 0x7f00 + 0x7f]
    );
}

#[test]
fn an_access_past_the_end_is_reported_and_gives_zero() {
    let (words, report) =
        run_body("ld.global.u32 %r1, [%rd1]; add.s32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;", 4, &[7, 8]);
    assert_eq!(words, [8, 9, 1, 1]);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert_eq!((report.findings[0].kind, report.findings[0].count), (crate::Kind::OutOfBounds, 2));
    assert!(
        report.findings[0].message.contains("0 bytes past the end of `in` (8 bytes)"),
        "{}",
        report.findings[0].message
    );
}
