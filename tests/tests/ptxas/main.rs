//! PTX of every kernel  =>  accepted by NVIDIA's assembler without warnings or spills, with tensor cores for mma
//!
//! `cargo xtask test --suite ptxas` fetches the assembler and the disassembler. Only this test uses these tools:
//! nothing that is built or shipped needs them. They check syntax and resources, not results.

mod kernels;
mod tools;

use kernels::{Text, of_cases, of_model, of_options};
use sardonyx_tests::fatbin;
use sardonyx_tests::prepared::{fetched, names};
use tools::{Assembled, assemble};

/// Kinds of matrix instruction: the beginning of the PTX instruction, its types, the machine instruction that it must
/// become, and part of the machine instruction's suffixes.
static MATRIX: &[(&str, &str, &str, &str)] = &[
    ("mma.sync", ".f32.bf16.bf16.f32", "HMMA", "F32.BF16"),
    ("mma.sync", ".f32.tf32.tf32.f32", "HMMA", "F32.TF32"),
    ("mma.sync", ".f32.f16.f16.f32", "HMMA", "F32"),
    ("mma.sync", ".s32.s8.s8.s32", "IMMA", "S8.S8"),
    ("mma.sp.sync", ".f32.bf16.bf16.f32", "HMMA.SP", "F32.BF16"),
    ("mma.sp.sync", ".s32.s8.s8.s32", "IMMA.SP", "S8.S8"),
    ("wgmma.mma_async.sync", ".f32.bf16.bf16", "HGMMA", "F32.BF16"),
    ("wgmma.mma_async.sp.sync", ".f32.bf16.bf16", "HGMMA.SP", "F32.BF16"),
];

/// Models that are compiled with options: the model, the options, and the rule by which its weights are pruned.
static WITH_OPTIONS: &[(&str, &[&str], Option<&str>)] = &[
    ("skel_minilm_l6_safetensors", &["quantize=int8", "activations=int8"], None),
    ("skel_minilm_l6_safetensors", &["quantize=int4", "activations=int8"], None),
    ("skel_minilm_l6_safetensors", &["quantize=int4", "activations=f32"], None),
    ("skel_minilm_l6_safetensors", &["precision=bf16"], None),
    ("skel_llama_tiny_kv_ts17", &["precision=bf16"], None),
    ("skel_minilm_l6_safetensors", &["precision=bf16"], Some("2:4")),
    ("skel_minilm_l6_safetensors", &["quantize=int8", "activations=int8"], Some("2:4")),
    ("skel_minilm_l6_safetensors", &["precision=bf16"], Some("block:0.9,8x1")),
];

/// Returns whether a text has an instruction of this kind and these types.
fn has(ptx: &str, kind: &str, types: &str) -> bool {
    ptx.lines().any(|line| line.contains(kind) && line.contains(types))
}

/// Returns messages about spills, stack memory and missing matrix instructions of one text.
fn wrong(text: &Text, assembled: &Assembled) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for entry in &assembled.entries {
        if entry.spill_bytes > 0 || entry.stack_bytes > 0 {
            out.push(format!("{}: {entry:?}", text.name));
        }
    }
    for (kind, ptx, instruction, machine) in MATRIX {
        let wanted = has(&text.ptx, kind, ptx);
        let found =
            assembled.machine_code.lines().any(|l| l.contains(&format!("{instruction}.")) && l.contains(machine));
        if wanted && !found {
            out.push(format!("{}: {kind} of {ptx} became no {instruction} of {machine}", text.name));
        }
    }
    out
}

/// Assembles the texts on two threads, because the assembler takes a second for four texts.
fn all_assembled(texts: &[Text]) -> Vec<Assembled> {
    let one = |t: &Text| assemble(&t.ptx, t.target.ptx().unwrap()).unwrap_or_else(|e| panic!("{}: {e}", t.name));
    let (left, right) = texts.split_at(texts.len() / 2);
    std::thread::scope(|scope| {
        let right = scope.spawn(|| right.iter().map(one).collect::<Vec<_>>());
        let left: Vec<Assembled> = left.iter().map(one).collect();
        left.into_iter().chain(right.join().expect("it says itself what was refused")).collect()
    })
}

/// Checks every distinct kernel of every model that compiles and of every conformance case.
#[test]
#[ignore = "fetches NVIDIA's tools: cargo xtask test --suite ptxas"]
fn every_kernel_is_accepted_and_spills_nothing() {
    let (mut models, mut registers_max, mut faults) = (0, 0, vec![]);
    let mut texts = std::collections::BTreeMap::new();
    for name in names() {
        match of_model(&name) {
            Some(kernels) => {
                models += 1;
                texts.extend(kernels.into_iter().map(|k| (k.ptx.clone(), k)));
            }
            None => println!("{name} does not compile yet"),
        }
    }
    for (name, options, rule) in WITH_OPTIONS {
        texts.extend(of_options(name, options, *rule).into_iter().map(|k| (k.ptx.clone(), k)));
    }
    texts.extend(of_cases().into_iter().map(|k| (k.ptx.clone(), k)));
    let is_judged = |kind: &str, types: &str| texts.keys().any(|ptx| has(ptx, kind, types));
    let left: Vec<_> = MATRIX.iter().filter(|(kind, types, ..)| !is_judged(kind, types)).collect();
    assert!(left.is_empty(), "no text has these: {left:?}");
    assert!(models >= 13 && texts.len() > 100, "{models} models, {} kernels", texts.len());
    let texts: Vec<Text> = texts.into_values().collect();
    let matrix = texts.iter().filter(|t| t.ptx.contains("mma.sync")).count();
    for (text, assembled) in texts.iter().zip(all_assembled(&texts)) {
        registers_max = registers_max.max(assembled.entries.iter().map(|e| e.registers).max().unwrap_or(0));
        faults.extend(wrong(text, &assembled));
    }
    println!("{} texts of {models} models, at most {registers_max} registers", texts.len());
    println!("{matrix} kernels use tensor cores");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The suite `published` runs these kernels for the target sm_80, although they were published for sm_86.
#[test]
#[ignore = "fetches NVIDIA's tools: cargo xtask test --suite ptxas"]
fn published_kernels_for_sm_86_need_nothing_beyond_sm_80() {
    let library = std::fs::read(fetched("fusedtok-2.5.0", "kernels.so")).expect("the file is there");
    let modules = fatbin::modules(&library);
    assert_eq!(modules.len(), 11);
    for (i, module) in modules.iter().enumerate() {
        let text = module.replace(".target sm_86", ".target sm_80");
        let assembled = assemble(&text, "sm_80").unwrap_or_else(|e| panic!("module {i}: {e}"));
        assert!(!assembled.entries.is_empty());
    }
}

/// Checks the tools themselves: they must report a spill, a mistake, and the kind of matrix instruction.
#[test]
#[ignore = "fetches NVIDIA's tools: cargo xtask test --suite ptxas"]
fn the_tools_report_what_the_suite_looks_for() {
    let body = |registers: &str, code: &str| {
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a) {{\n{registers}\n{code}\nret;\n}}\n"
        )
    };
    let wrong = assemble(&body(".reg .b32 %r<2>;", "add.f32 %r0, %r1;"), "sm_80").unwrap_err();
    assert!(wrong.contains("line 6"), "{wrong}");
    let mma = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r0,%r0,%r0}, {%r0,%r0}, \
               {%f0,%f1,%f2,%f3};";
    let code = format!(
        "ld.param.u64 %d0, [a]; ld.global.b32 %r0, [%d0]; ld.global.v4.f32 {{%f0,%f1,%f2,%f3}}, [%d0]; {mma} \
         st.global.v4.f32 [%d0], {{%f0,%f1,%f2,%f3}};"
    );
    let good = assemble(&body(".reg .b32 %r<1>; .reg .f32 %f<4>; .reg .b64 %d<1>;", &code), "sm_80").unwrap();
    assert!(good.machine_code.contains("HMMA.16816.F32.BF16"), "{}", good.machine_code);
    assert_eq!((good.entries.len(), good.entries[0].spill_bytes), (1, 0));
    // 128 values that are live across a loop fit neither in the 32 registers that are allowed nor in the uniform
    // registers of the warp.
    let n = 128;
    let list = |f: &dyn Fn(usize) -> String| (0..n).map(f).collect::<String>();
    let code = format!(
        "ld.param.u64 %d0, [a];\n{}L: {}ld.volatile.global.u32 %r0, [%d0]; setp.ne.u32 %p0, %r0, 0; @%p0 bra L;\n{}",
        list(&|i| format!("ld.volatile.global.f32 %f{i}, [%d0+{}];\n", 4 * i)),
        list(&|i| format!("fma.rn.f32 %f{i}, %f{}, %f{}, %f{i};\n", (i + 1) % n, (i + 7) % n)),
        list(&|i| format!("st.volatile.global.f32 [%d0+{}], %f{i};\n", 4 * i)),
    );
    let text = body(".reg .b32 %r<1>; .reg .f32 %f<128>; .reg .b64 %d<1>; .reg .pred %p<1>;", &code);
    let spilled = assemble(&text.replace("a) {", "a) .maxnreg 32 {"), "sm_80").unwrap();
    assert!(spilled.entries[0].spill_bytes > 0, "{:?}", spilled.entries);
}
