//! Calls, branch tables, local and constant memory, module variables

use crate::testing::{HEAD, run_text};

#[track_caller]
fn run(text: &str, threads: u32) -> Vec<u32> {
    let (words, report) = run_text(&format!("{HEAD}{text}"), 1, threads, &[]);
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    words
}

const OUT: &str = "
    .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<9>;
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;";

#[test]
fn functions_are_called_with_parameters_in_memory_and_in_registers() {
    let text = format!(
        ".func (.param .b32 result) twice (.param .b32 x)
        {{ .reg .b32 %r<3>; ld.param.u32 %r1, [x]; add.u32 %r1, %r1, %r1; st.param.b32 [result], %r1; ret; }}
        .func (.reg .b32 d) four (.reg .b32 x)
        {{ .reg .b32 %r<3>;
           {{ .param .b32 a; .param .b32 b; st.param.b32 [a], x; call.uni (b), twice, (a); ld.param.b32 %r1, [b]; }}
           setp.gt.u32 %p1, x, 3; @%p1 bra BIG; add.u32 d, %r1, %r1; ret; BIG: mov.u32 d, 1000; ret; }}
        .visible .entry k(.param .u64 out, .param .u64 in)
        {{ {OUT} call (%r5), four, (%r0); st.global.u32 [%rd0], %r5; ret; }}"
    );
    let text = text.replace("{ .reg .b32 %r<3>;\n           {", "{ .reg .b32 %r<3>; .reg .pred %p<3>;\n           {");
    assert_eq!(run(&text, 6), [0, 4, 8, 12, 1000, 1000]);
}

#[test]
fn branch_tables_choose_by_index() {
    let text = format!(
        ".entry k(.param .u64 out, .param .u64 in)
        {{ {OUT}
           table: .branchtargets A, B, C;
           rem.u32 %r1, %r0, 3;
           brx.idx %r1, table;
           A: mov.u32 %r2, 10; bra END;
           B: mov.u32 %r2, 20; bra END;
           C: mov.u32 %r2, 30;
           END: st.global.u32 [%rd0], %r2; ret; }}"
    );
    assert_eq!(run(&text, 5), [10, 20, 30, 10, 20]);
}

#[test]
fn variables_of_the_module_have_their_values() {
    let text = format!(
        ".const .align 4 .u32 table[4] = {{ 5, 6, 7, 8 }};
        .global .align 4 .f32 half = 0.5;
        .global .align 8 .u64 pointer[2] = {{ half, generic(table)+4 }};
        .global .align 4 .b32 zero[3];
        .entry k(.param .u64 out, .param .u64 in)
        {{ {OUT} .reg .f32 %f<3>;
           mul.wide.u32 %rd3, %r0, 4; mov.u64 %rd4, table; add.u64 %rd4, %rd4, %rd3; ld.const.u32 %r1, [%rd4];
           ld.global.u64 %rd5, [pointer]; ld.f32 %f1, [%rd5]; cvt.rpi.u32.f32 %r2, %f1;
           ld.global.u64 %rd6, [pointer+8]; ld.u32 %r3, [%rd6]; ld.global.u32 %r4, [zero+8];
           mad.lo.u32 %r1, %r1, 100, %r2; mad.lo.u32 %r3, %r3, 10, %r4; add.u32 %r1, %r1, %r3;
           st.global.u32 [%rd0], %r1; ret; }}"
    );
    assert_eq!(run(&text, 4), [561, 661, 761, 861]);
}

#[test]
fn local_memory_belongs_to_one_thread_and_generic_addresses_reach_every_space() {
    let text = format!(
        ".entry k(.param .u64 out, .param .u64 in)
        {{ {OUT} .local .align 16 .b8 depot[32]; .shared .align 4 .b32 cell[64];
           mov.u64 %rd3, depot; cvta.local.u64 %rd4, %rd3;
           st.local.v2.u32 [%rd3+8], {{%r0, 3}};
           st.u32 [%rd4], %r0;
           ld.u32 %r1, [%rd4+8]; ld.local.u32 %r2, [%rd3+12]; ld.local.u8 %r3, [depot];
           mov.u64 %rd5, cell; cvta.shared.u64 %rd6, %rd5; mul.wide.u32 %rd7, %r0, 4; add.u64 %rd6, %rd6, %rd7;
           st.u32 [%rd6], %r2; isspacep.shared %p1, %rd6; isspacep.global %p2, %rd6;
           ld.u32 %r4, [%rd6]; cvta.to.shared.u64 %rd8, %rd6; ld.shared.u32 %r5, [%rd8];
           add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
           selp.b32 %r6, 100, 0, %p1; selp.b32 %r7, 1000, 0, %p2;
           add.u32 %r1, %r1, %r6; add.u32 %r1, %r1, %r7;
           st.u32 [%rd0], %r1; ret; }}"
    );
    assert_eq!(run(&text, 3), [106, 108, 110]);
}

#[test]
fn dynamic_shared_memory_starts_after_the_static() {
    let text = format!(
        "{HEAD}.extern .shared .align 16 .b8 dynamic[];
        .entry k(.param .u64 out, .param .u64 in)
        {{ {OUT} .shared .b32 own; mov.u32 %r1, dynamic; mov.u32 %r2, %dynamic_smem_size; st.shared.u32 [dynamic+60], 7;
           ld.shared.u32 %r3, [dynamic+60]; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
           st.shared.u32 [own], 3; st.global.u32 [%rd0], %r1; }}"
    );
    let module = crate::Module::parse(&text).unwrap();
    let mut memory = crate::Memory::new();
    let out = memory.alloc(4, "out");
    let mut launch = crate::Launch::new("k", 1, 1, crate::Params::new().u64(out).u64(0).build());
    launch.shared_bytes = 64;
    let report = crate::run(&module, &mut memory, &launch, &crate::Options::default()).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    let mut bytes = [0; 4];
    memory.read(out, &mut bytes).unwrap();
    assert_eq!(u32::from_le_bytes(bytes), 16 + 64 + 7);
}
