//! atom and red on global and shared memory

use crate::testing::{HEAD, clean, run_text};

#[test]
fn every_operation_on_shared_words() {
    let cases: &[(&str, u32, u32, u32)] = &[
        ("add.u32", 10, 3, 13),
        ("and.b32", 12, 10, 8),
        ("or.b32", 12, 10, 14),
        ("xor.b32", 12, 10, 6),
        ("exch.b32", 12, 10, 10),
        ("min.s32", 1, u32::MAX, u32::MAX),
        ("max.u32", 1, u32::MAX, u32::MAX),
        ("inc.u32", 5, 5, 0),
        ("inc.u32", 4, 5, 5),
        ("dec.u32", 0, 5, 5),
        ("dec.u32", 3, 5, 2),
        ("add.f32", 0x3f80_0000, 0x3f80_0000, 0x4000_0000),
        ("add.noftz.f16x2", 0x3c00_3c00, 0x3c00_4000, 0x4000_4200),
    ];
    for (name, start, operand, expected) in cases {
        let body = format!(
            ".shared .b32 cell; mov.u32 %r1, {start}; st.shared.u32 [cell], %r1; mov.b32 %r2, {operand};
             atom.shared.{name} %r3, [cell], %r2; ld.shared.u32 %r4, [cell];
             sub.u32 %r3, %r3, %r1; add.u32 %r4, %r4, %r3; st.global.u32 [%rd0], %r4;"
        );
        let body = body.replace("%r2, [cell]", "[cell]");
        assert_eq!(clean(&body, 1, &[])[0], *expected, "{name}");
    }
}

#[test]
fn threads_of_all_blocks_add_up() {
    let text = format!(
        "{HEAD}.entry k(.param .u64 out, .param .u64 in)\n{{ .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .pred %p<3>;
        ld.param.u64 %rd1, [in];
        red.global.add.u32 [%rd1], 1;
        atom.global.add.u64 %rd2, [%rd1+8], 3;
        atom.global.max.s32 %r1, [%rd1+4], 7;
        mov.u64 %rd4, 0; atom.global.cas.b64 %rd3, [%rd1+16], %rd4, 5;
        ret; }}"
    );
    let module = crate::Module::parse(&text).unwrap();
    let mut memory = crate::Memory::new();
    let data = memory.alloc(24, "data");
    memory.write(data, &[0; 24]).unwrap();
    let params = crate::Params::new().u64(data).u64(data).build();
    let launch = crate::Launch::new("k", 5, 96, params);
    let report = crate::run(&module, &mut memory, &launch, &crate::Options::default()).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let mut bytes = [0; 24];
    memory.read(data, &mut bytes).unwrap();
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    assert_eq!([word(0), word(4), word(8), word(16)], [480, 7, 1440, 5]);
}

#[test]
fn a_flag_hands_over_when_it_is_released() {
    let body = "
        .shared .b32 data; .shared .b32 flag;
        setp.lt.u32 %p1, %r0, 32;
        setp.eq.u32 %p2, %r0, 0;
        @%p2 st.shared.u32 [flag], 0;
        bar.sync 0;
        @!%p1 bra WAIT;
        @!%p2 bra END;
        st.shared.u32 [data], 9;
        st.release.cta.shared.u32 [flag], 1;
        bra END;
    WAIT:
        ld.acquire.cta.shared.u32 %r1, [flag];
        setp.eq.u32 %p3, %r1, 0;
        @%p3 bra WAIT;
        ld.shared.u32 %r2, [data];
        add.u32 %r0, %r0, %r2;
    END:
        st.global.u32 [%rd0], %r0;";
    let expected: Vec<u32> = (0..64).map(|i| if i < 32 { i } else { i + 9 }).collect();
    assert_eq!(clean(body, 64, &[]), expected);
    let (_, report) = run_text(&crate::testing::kernel(&body.replace("acquire.cta", "relaxed.cta")), 1, 64, &[]);
    assert!(report.findings.iter().any(|finding| finding.kind == crate::Kind::Race), "{:#?}", report.findings);
}
