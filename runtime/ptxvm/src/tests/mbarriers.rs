//! mbarriers: phases, waits, copies that arrive asynchronously, and wrong uses of all these

use crate::testing::{clean, hopper, run_body, run_text};
use crate::{Kind, Report};

const BARRIER: &str = "
    .shared .align 8 .b64 full; .shared .align 512 .b32 box[128];
    mov.u32 %r1, full; mov.u32 %r2, box; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2;
    setp.eq.u32 %p1, %r0, 0;";

fn kinds(report: &Report) -> Vec<Kind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

/// All threads write, arrive and wait; then each reads a word of the other warp.
fn exchange() -> String {
    format!(
        "{BARRIER} @%p1 mbarrier.init.shared.b64 [%r1], 64; bar.sync 0;
         st.shared.u32 [%r3], %r0; mbarrier.arrive.shared.b64 %rd3, [%r1];
         WAIT: mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra WAIT;
         xor.b32 %r4, %r3, 128; ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd0], %r5;"
    )
}

#[test]
fn a_phase_orders_what_was_done_before_it() {
    let expected: Vec<u32> = (0..64).map(|i| i ^ 32).collect();
    assert_eq!(clean(&exchange(), 64, &[]), expected);
    let state = exchange().replace(".parity", "").replace("[%r1], 0;", "[%r1], %rd3;");
    assert_eq!(clean(&state, 64, &[]), expected);
    let relaxed = exchange().replace("arrive.shared", "arrive.relaxed.cta.shared");
    let (_, report) = run_text(&hopper(&relaxed), 1, 64, &[]);
    assert_eq!(kinds(&report), [Kind::Race]);
    // A wait with parity 1 refers to the phase before the first phase, which counts as completed, so the wait does not
    // order the accesses.
    let (_, report) = run_body(&exchange().replace("[%r1], 0;", "[%r1], 1;"), 64, &[]);
    assert!(kinds(&report).contains(&Kind::Race) || kinds(&report).contains(&Kind::UninitialisedMemory));
    let (_, report) = run_body(&exchange().replace("64; bar.sync 0;", "64; bar.warp.sync -1;"), 64, &[]);
    assert!(!report.findings.is_empty());
}

#[test]
fn a_wait_that_cannot_end_names_the_barrier() {
    let (_, report) = run_body(&exchange().replace("[%r1], 64;", "[%r1], 65;"), 64, &[]);
    assert_eq!(kinds(&report), [Kind::Deadlock]);
    let message = &report.findings[0].message;
    let expected = "2 warps in line 14 at the mbarrier at shared address 0, byte 0 of `full` (8 bytes) \
                    (64 of 65 arrivals, 0 bytes expected)";
    assert!(message.contains(expected), "{message}");
    let bytes = format!(
        "{BARRIER} @%p1 mbarrier.init.shared.b64 [%r1], 1; bar.sync 0;
         @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64; @%p1 mbarrier.complete_tx.shared.b64 [%r1], 32;
         WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0, 100; @!%p2 bra WAIT; st.global.u32 [%rd0], %r0;"
    );
    let (_, report) = run_text(&hopper(&bytes), 1, 32, &[]);
    assert_eq!(kinds(&report), [Kind::Deadlock]);
    assert!(report.findings[0].message.contains("1 of 1 arrivals, 32 bytes expected"));
    let (words, report) = run_text(&hopper(&bytes.replace("[%r1], 32;", "[%r1], 64;")), 1, 32, &[]);
    assert_eq!((words, kinds(&report)), ((0..32).collect(), vec![]));
}

#[test]
fn a_wait_with_a_time_limit_may_give_up() {
    let body = format!(
        "{BARRIER} @%p1 mbarrier.init.shared.b64 [%r1], 2; bar.sync 0;
         @%p1 mbarrier.arrive.shared.b64 %rd3, [%r1]; mov.u32 %r5, 7;
         mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @%p2 bra END; mov.u32 %r5, 9;
         END: st.global.u32 [%rd0], %r5;"
    );
    let (words, report) = run_text(&hopper(&body), 1, 32, &[]);
    assert_eq!((words, kinds(&report)), (vec![9; 32], vec![]));
}

#[test]
fn a_ring_of_two_stages_between_two_warps() {
    // Warp 0 fills a stage, warp 1 reads it; four iterations, so that each stage is used twice.
    let ring = "
        .shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2]; .shared .align 16 .b32 box[64];
        mov.u32 %r1, full; mov.u32 %r2, empty; mov.u32 %r3, box;
        setp.eq.u32 %p1, %r0, 0;
        @%p1 mbarrier.init.shared.b64 [%r1], 32; @%p1 mbarrier.init.shared.b64 [%r1+8], 32;
        @%p1 mbarrier.init.shared.b64 [%r2], 32; @%p1 mbarrier.init.shared.b64 [%r2+8], 32;
        bar.sync 0;
        mov.u32 %r4, %laneid; shl.b32 %r5, %r4, 2; add.u32 %r5, %r5, %r3;
        mov.u32 %r6, 0; mov.u32 %r12, 0; setp.ge.u32 %p2, %r0, 32; @%p2 bra CONSUMER;
    PRODUCER:
        and.b32 %r7, %r6, 1; shl.b32 %r8, %r7, 3; add.u32 %r9, %r2, %r8; add.u32 %r10, %r1, %r8;
        shr.u32 %r11, %r6, 1; xor.b32 %r11, %r11, 1; and.b32 %r11, %r11, 1;
    EMPTY: mbarrier.test_wait.parity.shared.b64 %p3, [%r9], %r11; @!%p3 bra EMPTY;
        shl.b32 %r8, %r7, 7; add.u32 %r8, %r8, %r5; FILL
        add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 4; @%p4 bra PRODUCER; bra END;
    CONSUMER:
        and.b32 %r7, %r6, 1; shl.b32 %r8, %r7, 3; add.u32 %r9, %r2, %r8; add.u32 %r10, %r1, %r8;
        shr.u32 %r11, %r6, 1; and.b32 %r11, %r11, 1;
    FULL: mbarrier.test_wait.parity.shared.b64 %p3, [%r10], %r11; @!%p3 bra FULL;
        shl.b32 %r8, %r7, 7; add.u32 %r8, %r8, %r3; shl.b32 %r13, %r4, 2; xor.b32 %r13, %r13, 64; add.u32 %r8, %r8, %r13;
        ld.shared.u32 %r13, [%r8]; add.u32 %r12, %r12, %r13; mbarrier.arrive.shared.b64 %rd3, [%r9];
        add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 4; @%p4 bra CONSUMER;
    END: st.global.u32 [%rd0], %r12;";
    let stores = ring.replace(
        "FILL",
        "mad.lo.u32 %r13, %r6, 100, %r4; st.shared.u32 [%r8], %r13; mbarrier.arrive.shared.b64 %rd3, [%r10];",
    );
    let expected: Vec<u32> = (0..64).map(|i| if i < 32 { 0 } else { 600 + 4 * ((i % 32) ^ 16) }).collect();
    assert_eq!(clean(&stores, 64, &[]), expected);
    // Without the wait for an empty stage the producer overtakes the consumer.
    let (_, report) = run_body(&stores.replace("@!%p3 bra EMPTY;", ""), 64, &[]);
    assert!(kinds(&report).iter().any(|kind| matches!(kind, Kind::Race | Kind::Deadlock)), "{:#?}", report.findings);
    let copies = ring.replace(
        "FILL",
        "cp.async.ca.shared.global [%r8], [%rd1], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [%r10]; add.u64 %rd1, %rd1, 128;",
    );
    let input: Vec<u32> = (0..256).map(|i| i * i).collect();
    let sum = |lane: u32| (0..4).map(|turn| input[(turn * 32 + (lane ^ 16)) as usize]).sum();
    let expected: Vec<u32> = (0..64).map(|i| if i < 32 { 0 } else { sum(i % 32) }).collect();
    assert_eq!(clean(&copies, 64, &input), expected);
    let (_, report) = run_body(&copies.replace("@!%p3 bra FULL;", ""), 64, &input);
    assert!(kinds(&report).contains(&Kind::InFlight) || kinds(&report).contains(&Kind::Race));
    // Without .noinc each copy also adds a pending arrival, so the phase never completes.
    let (_, report) = run_body(&copies.replace(".noinc", ""), 64, &input);
    assert_eq!(kinds(&report), [Kind::Deadlock]);
}

#[test]
fn wrong_uses() {
    let with = |text: &str| {
        let (_, report) = run_text(&hopper(&format!("{BARRIER} {text} st.global.u32 [%rd0], %r0;")), 1, 32, &[]);
        report
    };
    let misuse = [
        ("@%p1 mbarrier.arrive.shared.b64 %rd3, [%r1];", "an mbarrier that nothing initialised"),
        ("@%p1 mbarrier.init.shared.b64 [%r1], 0;", "for 0 arrivals"),
        ("@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.init.shared.b64 [%r1], 1;", "that is in use"),
        ("@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 st.shared.u32 [%r1+4], 0;", "with another instruction"),
        (
            "@%p1 mbarrier.init.shared.b64 [%r1], 2; @%p1 mbarrier.arrive.shared.b64 %rd3, [%r1], 3;",
            "arrives 3 times where 2 are expected",
        ),
        (
            "@%p1 mbarrier.init.shared.b64 [%r1], 2; @%p1 mbarrier.expect_tx.shared.b64 [%r1], 1048576;",
            "leaves 1048576 bytes under way",
        ),
        (
            "@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.arrive.noComplete.shared.b64 %rd3, [%r1], 1;",
            "with .noComplete",
        ),
    ];
    for (text, expected) in misuse {
        let report = with(text);
        assert_eq!(kinds(&report), [Kind::BarrierMisuse], "{text}");
        assert!(report.findings[0].message.contains(expected), "{}", report.findings[0].message);
    }
    let again =
        "@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.inval.shared.b64 [%r1]; @%p1 st.shared.u32 [%r1], 0;";
    assert_eq!(kinds(&with(again)), []);
}

#[test]
fn states_tell_what_was_pending() {
    let body = format!(
        "{BARRIER} @%p1 mbarrier.init.shared.b64 [%r1], 5; bar.sync 0; mov.u32 %r5, 0;
         @%p1 mbarrier.arrive.shared.b64 %rd3, [%r1]; @%p1 mbarrier.arrive_drop.shared.b64 %rd3, [%r1];
         @%p1 mbarrier.pending_count.b64 %r5, %rd3; st.global.u32 [%rd0], %r5;"
    );
    assert_eq!(clean(&body, 32, &[])[0], 4);
}
