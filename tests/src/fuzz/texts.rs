//! text  =>  expressions, textual IR, PTX

use super::refused;
use melior::Context;
use melior::ir::operation::OperationLike;
use ptxvm::{Launch, Memory, Options, Params};
use sardonyx_base::{Dim, Result};
use std::cell::LazyCell;

/// Checks two properties of every parser of expressions: parsing the printed form of an expression gives the same
/// expression, and evaluating an expression gives the same value as substituting constants for its symbols.
pub fn expressions(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsers: [fn(&str) -> Result<Dim>; 3] = [Dim::parse, Dim::parse_launch, Dim::parse_names];
    for parse in parsers {
        let dim = match parse(text) {
            Ok(dim) => dim,
            Err(e) => {
                refused(&e);
                continue;
            }
        };
        let printed = dim.to_string();
        let again = parse(&printed).unwrap_or_else(|e| panic!("{text} is printed as {printed}, which is refused: {e}"));
        assert_eq!(again, dim, "{text} is printed as {printed}");
        for value in [0, 1, 7, i64::MAX] {
            let evaluated = dim.eval(&|_| Some(value));
            evaluated.as_ref().err().into_iter().for_each(|e| refused(e));
            let known = dim.substitute(&|_| Some(Dim::constant(value)));
            if let (Ok(evaluated), Some(known)) = (evaluated, known.as_const()) {
                assert_eq!(evaluated, known, "{text} where symbols are {value}");
            }
        }
        let _ = dim.lower_bound(&|_| 0);
    }
}

pub fn expression_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "64*((6148*batch*seq + 60) floordiv (64))",
        "max(0, n - 1) + 1",
        "min(batch, 500) mod 7",
        "3*p0 ceildiv p1",
        "(a - b)*(a + b)",
        "%0 + 2*%1",
        "-9223372036854775808",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// Checks that the printed form of a module that verifies can be parsed, and that the parsed module prints the same
/// text.
pub fn ir(bytes: &[u8]) {
    thread_local! {
        static CONTEXT: LazyCell<Context> = LazyCell::new(|| {
            let context = sardonyx_passes::context();
            context.attach_diagnostic_handler(|_| true);
            context
        });
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    CONTEXT.with(|context| {
        let Some(module) = sardonyx_passes::parse(context, text).filter(|module| module.as_operation().verify()) else {
            return;
        };
        let printed = module.as_operation().to_string();
        let again =
            sardonyx_passes::parse(context, &printed).unwrap_or_else(|| panic!("printed, but not read:\n{printed}"));
        assert_eq!(again.as_operation().to_string(), printed);
    });
}

pub fn ir_seeds() -> Vec<Vec<u8>> {
    let sdx = "module { func.func @main(%x: !sdx.tensor<[batch, 8], f32>) -> !sdx.tensor<[batch, 4], f32> {\n\
               %w = sdx.param \"w\" : !sdx.tensor<[8, 4], f32>\n\
               %0 = sdx.contract \"mk,kn->mn\"(%x, %w) : (!sdx.tensor<[batch, 8], f32>, !sdx.tensor<[8, 4], f32>) -> \
               !sdx.tensor<[batch, 4], f32>\n\
               %1 = sdx.map \"tanh\"(%0) : (!sdx.tensor<[batch, 4], f32>) -> !sdx.tensor<[batch, 4], f32>\n\
               return %1 : !sdx.tensor<[batch, 4], f32>\n} }";
    // Passes that lower the module to the levels flow and plan.
    let lowered =
        ["sdx-to-flow", "sdx-to-flow,inline-maps,fuse-epilogues,pack-weights", "sdx-to-flow,schedule,plan-memory"];
    let lower = |passes: &str| {
        let context = sardonyx_passes::context();
        let mut module = sardonyx_passes::parse(&context, sdx)?;
        sardonyx_passes::run_pipeline(&context, &mut module, &format!("builtin.module({passes})")).ok()?;
        Some(module.as_operation().to_string().into_bytes())
    };
    lowered.into_iter().filter_map(lower).chain([sdx.as_bytes().to_vec()]).collect()
}

/// Number of warp instructions after which a launch is stopped.
const INSTRUCTIONS_MAX: u64 = 20_000;
/// Size of a buffer; each 8-byte parameter is the address of a buffer.
const BUFFER_BYTES: usize = 4096;

/// Runs the first kernel of a text that the simulator accepts. The run must not panic; findings are allowed.
pub fn ptx(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(module) = ptxvm::Module::parse(text) else { return };
    let Some(entry) = module.entries().next().map(str::to_string) else { return };
    let mut memory = Memory::new();
    let mut params = Params::new();
    for (_, _, bytes) in module.entry_params(&entry).unwrap_or_default() {
        params = match bytes {
            8 => params.u64(memory.alloc(BUFFER_BYTES, "buffer")),
            4 => params.u32(64),
            n if n <= 256 => params.bytes(&vec![1; n as usize], 1),
            _ => return,
        };
    }
    let options = Options { instructions_max: INSTRUCTIONS_MAX, ..Options::default() };
    for (grid, block) in [(1, 32), (2, 64)] {
        let launch = Launch::new(&entry, grid, block, params.clone().build());
        let _ = ptxvm::run(&module, &mut memory, &launch, &options);
    }
}

pub fn ptx_seeds() -> Vec<Vec<u8>> {
    let text = include_str!("../../../runtime/tests/common/kernels.ptx");
    let (head, _) = text.split_once(".visible").unwrap_or((text, ""));
    let head: String = head.lines().filter(|line| line.starts_with('.')).map(|line| format!("{line}\n")).collect();
    // Each kernel in a module of its own, and a kernel of instructions that these kernels lack.
    let kernels = text.split(".visible").skip(1).map(|kernel| format!("{head}.visible{kernel}"));
    let more = "
        .version 8.0 .target sm_90a .address_size 64
        .visible .entry k(.param .u64 out) {
        .reg .pred %p<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %rd<9>;
        .shared .align 8 .b64 full; .shared .align 128 .b8 tile[256];
        mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [out]; mov.u32 %r1, full; mov.u32 %r2, tile;
        setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r1], 1; bar.sync 0;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
        @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 256, [%r1];
        WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra WAIT;
        ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r3, %r4}, [%r2]; shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1;
        cp.async.cg.shared.global [%r2], [%rd0], 16; cp.async.commit_group; cp.async.wait_group 0;
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r3,%r4,%r5,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3};
        atom.global.add.u32 %r6, [%rd0], 1; ex2.approx.f32 %f4, %f0; st.global.f32 [%rd0], %f4; ret; }";
    kernels.chain([more.to_string()]).map(String::into_bytes).collect()
}
