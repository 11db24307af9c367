//! Exchange between lanes and warps: shuffles, votes, barriers, matrices

use crate::testing::{HEAD, clean, run_body, run_text};

#[test]
fn shuffles_of_every_mode() {
    let store = "st.global.u32 [%rd0], %r1;";
    let shuffle = |text: &str| clean(&format!("{text} {store}"), 32, &[]);
    assert_eq!(
        shuffle("shfl.sync.bfly.b32 %r1, %r0, 1, 0x1f, 0xffffffff;"),
        (0..32).map(|i| i ^ 1).collect::<Vec<_>>()
    );
    assert_eq!(shuffle("shfl.sync.idx.b32 %r1, %r0, 5, 0x1f, -1;"), vec![5; 32]);
    assert_eq!(
        shuffle("shfl.sync.up.b32 %r1|%p1, %r0, 2, 0, -1; @!%p1 mov.u32 %r1, 99;"),
        (0..32).map(|i| if i < 2 { 99 } else { i - 2 }).collect::<Vec<_>>()
    );
    assert_eq!(
        shuffle("shfl.sync.down.b32 %r1|%p1, %r0, 4, 0x1807, -1; @!%p1 mov.u32 %r1, 99;"),
        (0..32).map(|i| if i % 8 > 3 { 99 } else { i + 4 }).collect::<Vec<_>>()
    );
}

#[test]
fn votes_matches_and_reductions() {
    let body = "
        and.b32 %r1, %r0, 3;
        setp.eq.u32 %p1, %r1, 0;
        vote.sync.ballot.b32 %r2, %p1, -1;
        vote.sync.any.pred %p2, %p1, -1;
        vote.sync.all.pred %p3, %p1, -1;
        selp.b32 %r3, 1, 0, %p2; selp.b32 %r4, 1, 0, %p3;
        match.any.sync.b32 %r5, %r1, -1;
        match.all.sync.b32 %r6|%p4, %r1, -1;
        redux.sync.add.u32 %r7, %r0, -1;
        redux.sync.max.s32 %r8, %r1, -1;
        add.u32 %r9, %r3, %r4;
        xor.b32 %r9, %r9, %r2; xor.b32 %r9, %r9, %r5;
        add.u32 %r9, %r9, %r6; add.u32 %r9, %r9, %r7; add.u32 %r9, %r9, %r8;
        st.global.u32 [%rd0], %r9;";
    let expected = |lane: u32| (0x1111_1111 ^ 1 ^ (0x1111_1111 << (lane % 4))) + 31 * 16 + 3;
    assert_eq!(clean(body, 32, &[]), (0..32).map(expected).collect::<Vec<_>>());
}

#[test]
fn barriers_with_names_counts_and_reductions() {
    let body = "
        .shared .b32 box[4];
        setp.ge.u32 %p1, %r0, 32;
        mov.u32 %r1, box;
        @%p1 bra CONSUMER;
        st.shared.u32 [%r1], 41;
        bar.arrive 3, 64;
        bra JOIN;
    CONSUMER:
        bar.sync 3, 64;
        ld.shared.u32 %r2, [%r1];
        add.u32 %r2, %r2, 1;
        st.shared.u32 [%r1+4], %r2;
    JOIN:
        barrier.sync 0;
        ld.shared.u32 %r3, [%r1+4];
        setp.lt.u32 %p2, %r0, 5;
        bar.red.popc.u32 %r4, 1, %p2;
        bar.red.or.pred %p3, 2, %p2;
        bar.red.and.pred %p4, 2, 64, !%p2;
        selp.b32 %r5, 100, 0, %p3; selp.b32 %r6, 1000, 0, %p4;
        add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6;
        st.global.u32 [%rd0], %r3;";
    // All lanes of the first warp store 41 to the same word; equal values are not reported.
    assert_eq!(clean(body, 64, &[]), vec![42 + 5 + 100; 64]);
}

#[test]
fn matrices_go_through_shared_memory() {
    let body = "
        .shared .align 16 .b8 tile[512];
        mov.u32 %r1, tile;
        shl.b32 %r2, %r0, 4;
        add.u32 %r1, %r1, %r2;
        shl.b32 %r3, %r0, 2;
        add.u32 %r4, %r3, 1; add.u32 %r5, %r3, 2; add.u32 %r6, %r3, 3;
        st.shared.v4.u32 [%r1], {%r3, %r4, %r5, %r6};
        bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r7, %r8, %r9, %r10}, [%r1];
        add.u32 %r7, %r7, %r10;
        st.global.u32 [%rd0], %r7;";
    let (words, report) = run_body(body, 32, &[]);
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    // Register 0 of lane l is word l of the first tile; register 3 is word l of the fourth.
    assert_eq!(words, (0..32).map(|lane| lane + 96 + lane).collect::<Vec<_>>());
    let line = report.counters.lines.iter().find(|line| line.text.contains("ldmatrix")).unwrap();
    assert_eq!((line.shared.wavefronts, line.shared.ideal), (4, 4));
}

#[test]
fn a_product_of_ones_counts_the_depth() {
    let body = "
        mov.b32 %r1, 0x3f803f80;
        mov.f32 %f0, 0f00000000;
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%f0, %f0, %f0, %f0};
        add.f32 %f1, %f1, %f4;
        cvt.rni.u32.f32 %r2, %f1;
        st.global.u32 [%rd0], %r2;";
    assert_eq!(clean(body, 32, &[]), vec![32; 32]);
}

#[test]
fn grids_and_special_registers() {
    let text = format!(
        "{HEAD}.entry k(.param .u64 out, .param .u64 in)\n{{ .reg .b32 %r<9>; .reg .b64 %rd<5>;
        ld.param.u64 %rd1, [out];
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
        mad.lo.u32 %r4, %r1, %r2, %r3;
        mul.wide.u32 %rd2, %r4, 4; add.u64 %rd1, %rd1, %rd2;
        mov.u32 %r5, %laneid; mov.u32 %r6, %warpid; mad.lo.u32 %r5, %r6, 100, %r5;
        mov.u32 %r7, %nctaid.x; mad.lo.u32 %r5, %r7, 1000, %r5;
        mov.u32 %r8, %lanemask_lt; popc.b32 %r8, %r8; add.u32 %r5, %r5, %r8;
        st.global.u32 [%rd1], %r5; }}"
    );
    let (words, report) = run_text(&text, 3, 48, &[]);
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let expected = (0..3).flat_map(|_| (0..48).map(|t| 3000 + t / 32 * 100 + 2 * (t % 32)));
    assert_eq!(words, expected.collect::<Vec<u32>>());
    assert_eq!(
        report.counters.warp_instructions,
        report.counters.classes.values().map(|class| class.warp).sum::<u64>()
    );
}
