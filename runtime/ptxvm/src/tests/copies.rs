//! cp.async: groups, waits, sizes

use crate::Kind;
use crate::testing::{clean, run_body};

const COPY: &str = "
    .shared .align 16 .b8 tile[512];
    mov.u32 %r1, tile; shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2;";

#[test]
fn copies_arrive_with_the_wait_and_pass_through_a_barrier() {
    let body = format!(
        "{COPY} cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
         xor.b32 %r3, %r2, 4; mov.u32 %r4, tile; add.u32 %r3, %r3, %r4; ld.shared.u32 %r5, [%r3];
         st.global.u32 [%rd0], %r5;"
    );
    let input: Vec<u32> = (0..64).map(|i| i * 10).collect();
    let expected: Vec<u32> = (0..64).map(|i| (i ^ 1) * 10).collect();
    assert_eq!(clean(&body, 64, &input), expected);
    let (_, report) = run_body(&body.replace("bar.sync 0;", ""), 64, &input);
    assert_eq!(report.findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [Kind::Race]);
    let (words, report) = run_body(&body.replace("cp.async.wait_group 0;", ""), 64, &input);
    assert!(report.findings.iter().any(|finding| finding.kind == Kind::InFlight), "{:#?}", report.findings);
    assert_eq!(words, vec![0; 64]);
}

#[test]
fn the_newest_groups_may_stay_under_way() {
    let body = format!(
        "{COPY} cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.commit_group;
         cp.async.ca.shared.global [%r1+256], [%rd1], 4; cp.async.commit_group;
         cp.async.wait_group 1; ld.shared.u32 %r5, [%r1]; st.global.u32 [%rd0], %r5; cp.async.wait_all;
         ld.shared.u32 %r5, [%r1+256]; st.global.u32 [%rd0], %r5;"
    );
    let input: Vec<u32> = (0..64).map(|i| i + 7).collect();
    assert_eq!(clean(&body, 64, &input), input);
    let (_, report) = run_body(&body.replace("wait_group 1", "wait_group 2"), 64, &input);
    assert_eq!(report.findings[0].kind, Kind::InFlight);
}

#[test]
fn bytes_past_the_source_size_are_zero() {
    let body = format!(
        "{COPY} mov.u32 %r6, 4; shl.b32 %r2, %r0, 4; mov.u32 %r1, tile; add.u32 %r1, %r1, %r2;
         sub.s64 %rd1, %rd1, %rd2;
         cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16, %r6; cp.async.wait_all;
         ld.shared.v4.u32 {{%r7, %r8, %r9, %r10}}, [%r1]; add.u32 %r7, %r7, %r8; add.u32 %r7, %r7, %r10;
         st.global.u32 [%rd0], %r7;"
    );
    assert_eq!(clean(&body, 8, &[5, 6, 7, 8]), vec![5; 8]);
}
