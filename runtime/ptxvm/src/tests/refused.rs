//! PTX texts and launches that are refused, with errors that name the line

use crate::testing::{HEAD, kernel};
use crate::{Launch, Memory, Module, Options, Params, run};

fn error(body: &str) -> String {
    Module::parse(&kernel(body)).unwrap_err().to_string()
}

#[test]
fn what_is_unknown_is_named_with_its_line() {
    let rows = [
        ("foo.bar %r1;", "line 9: unknown instruction `foo.bar`"),
        ("add.s32.fast %r1, %r1, %r1;", "line 9: `add.s32.fast`: unknown modifier `.fast`"),
        ("add.s32 %r1, %r1;", "line 9: `add.s32`: takes 3 operands, not 2"),
        ("add.s32 %r1, %r1, %r99;", "line 9: `add.s32`: unknown name `%r99`"),
        ("add.s32 %rd1, %rd1, %rd1;", "line 9: `add.s32`: an operand has 64 bits where .s32 is needed"),
        ("add.s32 %r1, %r1, 0x1ffffffff;", "line 9: `add.s32`: Int(1ffffffff) is no value of .s32"),
        ("add.f32 %f1, %f1, 1;", "line 9: `add.f32`: Int(1) is no value of .f32"),
        ("bra NOWHERE;", "line 9: `bra`: unknown label `NOWHERE`"),
        ("ld.global.u128 %r1, [%rd0];", "line 9: `ld.global.u128`: a type is missing"),
        ("ld.global.v4.u64 {%rd1,%rd2,%rd3,%rd4}, [%rd0];", "at most 16 bytes"),
        ("L: L: ret;", "line 9: label `L` stands twice in one block"),
        (".shared .b8 big[1000000];", "line 9: `big`: 1000000 bytes of shared memory, more than 232448"),
        (".local .b8 big[99999999999];", "bytes of local memory"),
        ("mma.sync.aligned.m16n8k16.row.row.f32.bf16.bf16.f32 {%f1}, {%f1}, {%f1}, {%f1};", "is not supported"),
        ("call nobody;", "function `nobody` has no body here"),
        ("{ { { add.s32 %r1, %r1, 1; }", "expected an instruction, a label or `}`"),
        ("vote.ballot.b32 %r1, %p1;", "expected .sync"),
    ];
    for (body, expected) in rows {
        let found = error(body);
        assert!(found.contains(expected), "{body}: {found}");
    }
}

#[test]
fn instructions_that_the_target_or_the_version_does_not_have() {
    let rows = [
        ("setmaxnreg.dec.sync.aligned.u32 40;", "needs .target sm_90a, the text has sm_80"),
        ("elect.sync _|%p1, -1;", "needs .target sm_90, the text has sm_80"),
        ("griddepcontrol.wait;", "needs .target sm_90, the text has sm_80"),
        ("fence.proxy.async;", "needs .target sm_90, the text has sm_80"),
        ("mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;", "needs .target sm_90, the text has sm_80"),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};", "needs .target sm_90, the text has sm_80"),
    ];
    for (body, expected) in rows {
        let found = error(body);
        assert!(found.contains(expected), "{body}: {found}");
        assert!(Module::parse(&crate::testing::hopper(body)).is_ok(), "{body}");
        let old = crate::testing::hopper(body).replace("8.5", "7.5");
        assert!(Module::parse(&old).unwrap_err().message.contains("needs .version"), "{body}");
    }
    let odd = crate::testing::hopper("setmaxnreg.inc.sync.aligned.u32 42;");
    assert!(Module::parse(&odd).unwrap_err().message.contains("a multiple of 8 from 24 to 256"));
}

#[test]
fn functions_that_call_themselves() {
    let text = format!("{HEAD}.func f() {{ call f; }} .entry k() {{ call f; }}");
    assert!(Module::parse(&text).unwrap_err().message.contains("recursion is not supported"));
}

#[test]
fn launches_that_make_no_sense() {
    let module = Module::parse(&kernel("")).unwrap();
    let launch = Launch::new("k", 1, 32, Params::new().u64(0).u64(0).build());
    let refusal = |change: &dyn Fn(&mut Launch)| {
        let mut launch = launch.clone();
        change(&mut launch);
        run(&module, &mut Memory::new(), &launch, &Options::default()).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refusal(&|launch| launch.entry = "l".into()).contains("no entry `l`; the text has k"));
    assert!(refusal(&|launch| launch.block = [1025, 1, 1]).contains("1 to 1024 threads"));
    assert!(refusal(&|launch| launch.block = [0, 1, 1]).contains("1 to 1024 threads"));
    assert!(refusal(&|launch| launch.grid = [1, 70000, 1]).contains("larger than any GPU's"));
    assert!(refusal(&|launch| launch.shared_bytes = u32::MAX).contains("bytes of shared memory"));
    assert!(refusal(&|launch| launch.params.push(0)).contains("16 bytes of parameters, not 17"));
    assert!(refusal(&|launch| launch.cluster = [2, 1, 1]).contains("cluster"));
    let mut empty = launch;
    empty.grid = [0, 1, 1];
    assert!(run(&module, &mut Memory::new(), &empty, &Options::default()).unwrap().findings.is_empty());
}

#[test]
fn torn_texts_never_panic() {
    let text = kernel(
        ".shared .align 16 .b8 t[64]; L: @%p1 bra L; ld.global.v4.f32 {%f1, %f2, _, %f3}, [%rd1+-16];
         setp.lt.and.s32 %p1|%p2, %r1, 0x10, !%p3; cp.async.cg.shared.global [t], [%rd1], 16, 8; mov.b64 {%r1, %r2}, %rd1;
         table: .branchtargets L; brx.idx %r1, table; { .param .b32 q; st.param.b32 [q], %r1; }",
    );
    for end in 0..text.len() {
        let _ = Module::parse(&text[..end]);
        let mut cut = text.clone();
        cut.remove(end);
        let _ = Module::parse(&cut);
    }
    for word in [";", "{", "}", "[", "]", ",", ".", "%", "\"", "0x", "-", "@", "(", ")"] {
        for at in (0..text.len()).step_by(7) {
            let mut changed = text.clone();
            changed.insert_str(at, word);
            let _ = Module::parse(&changed);
        }
    }
}
