//! wmma.load, wmma.mma, wmma.store  =>  a product of 16×16×16, for each type and element order

use half::{bf16, f16};
use ptxvm::{Launch, Memory, Module, Options, Params};

/// An element type of A and B, and how its elements are encoded in memory.
struct Type {
    name: &'static str,
    bytes: usize,
    registers: usize,
    mma: &'static str,
    sum: &'static str,
    encode: fn(i32) -> u32,
}

static TYPES: [Type; 4] = [
    Type {
        name: "f16",
        bytes: 2,
        registers: 8,
        mma: "f32.f32",
        sum: "f32",
        encode: |v| f16::from_f32(v as f32).to_bits().into(),
    },
    Type {
        name: "bf16",
        bytes: 2,
        registers: 4,
        mma: "f32.bf16.bf16.f32",
        sum: "f32",
        encode: |v| bf16::from_f32(v as f32).to_bits().into(),
    },
    Type { name: "s8", bytes: 1, registers: 2, mma: "s32.s8.s8.s32", sum: "s32", encode: |v| v as u8 as u32 },
    Type { name: "u8", bytes: 1, registers: 2, mma: "s32.u8.u8.s32", sum: "s32", encode: |v| v as u32 },
];

/// Leading dimension of the matrices, in elements; larger than the 16 elements of a row or column.
const STRIDE: usize = 24;

fn value(ty: &Type, i: usize) -> i32 {
    let v = (i * 37 % 29) as i32;
    if ty.name == "u8" { v } else { v - 14 }
}

fn text(ty: &Type, [a, b, d]: [&str; 3]) -> String {
    let list = |from: usize, n: usize| (from..from + n).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(", ");
    let (n, sum) = (ty.registers, ty.sum);
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n{{\n\
         .reg .b64 %p<4>;\n.reg .b32 %r<40>;\n\
         ld.param.u64 %p0, [a];\nld.param.u64 %p1, [b];\nld.param.u64 %p2, [c];\nld.param.u64 %p3, [d];\n\
         mov.u32 %r39, {STRIDE};\n\
         wmma.load.a.sync.aligned.{a}.m16n16k16.global.{name} {{{ra}}}, [%p0], %r39;\n\
         wmma.load.b.sync.aligned.{b}.m16n16k16.{name} {{{rb}}}, [%p1], %r39;\n\
         wmma.load.c.sync.aligned.row.m16n16k16.global.{sum} {{{rc}}}, [%p2+64];\n\
         wmma.mma.sync.aligned.{a}.{b}.m16n16k16.{mma} {{{rc}}}, {{{ra}}}, {{{rb}}}, {{{rc}}};\n\
         wmma.store.d.sync.aligned.{d}.m16n16k16.global.{sum} [%p3], {{{rc}}}, {STRIDE};\n\
         ret;\n}}\n",
        name = ty.name,
        mma = ty.mma,
        ra = list(0, n),
        rb = list(n, n),
        rc = list(2 * n, 8),
    )
}

fn check(ty: &Type, [a, b, d]: [&str; 3]) {
    let module = Module::parse(&text(ty, [a, b, d])).unwrap();
    let mut memory = Memory::new();
    let factor = |memory: &mut Memory, name: &str, shift: usize| {
        let address = memory.alloc(16 * STRIDE * ty.bytes, name);
        let words = (0..16 * STRIDE).map(|i| (ty.encode)(value(ty, i + shift)));
        memory.write(address, &words.flat_map(|w| w.to_le_bytes()[..ty.bytes].to_vec()).collect::<Vec<_>>()).unwrap();
        address
    };
    let (at_a, at_b) = (factor(&mut memory, "a", 0), factor(&mut memory, "b", 5));
    // C begins at an offset of 64 bytes. Its load has no stride operand, so its rows of 16 elements are contiguous.
    let at_c = memory.alloc(64 + 4 * 256, "c");
    let bits = |v: i32| if ty.sum == "f32" { (v as f32).to_bits() } else { v as u32 };
    memory.write(at_c + 64, &(0..256).flat_map(|i| bits(i).to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let at_d = memory.alloc(4 * 16 * STRIDE, "d");
    let params = Params::new().u64(at_a).u64(at_b).u64(at_c).u64(at_d).build();
    let report = ptxvm::run(&module, &mut memory, &Launch::new("k", 1, 32, params), &Options::default()).unwrap();
    assert!(report.findings.is_empty(), "{}: {:?}", ty.name, report.findings);
    let place = |row: usize, column: usize, order: &str| match order {
        "row" => row * STRIDE + column,
        _ => column * STRIDE + row,
    };
    let mut bytes = vec![0; 4 * 16 * STRIDE];
    memory.read(at_d, &mut bytes).unwrap();
    let words: Vec<u32> = bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    for (m, n) in (0..16).flat_map(|m| (0..16).map(move |n| (m, n))) {
        let product = |k: usize| value(ty, place(m, k, a)) * value(ty, place(k, n, b) + 5);
        let wanted = (16 * m + n) as i32 + (0..16).map(product).sum::<i32>();
        assert_eq!(words[place(m, n, d)], bits(wanted), "{} {a} {b} {d}: row {m}, column {n}", ty.name);
    }
}

#[test]
fn every_type_and_order_gives_the_product() {
    for ty in &TYPES {
        for order in [["row", "col", "row"], ["row", "row", "row"], ["col", "col", "col"], ["col", "row", "row"]] {
            check(ty, order);
        }
    }
}

#[test]
fn what_is_not_supported_is_refused_with_its_line() {
    let text = text(&TYPES[0], ["row", "col", "row"]).replace("m16n16k16", "m24n8k16");
    let error = Module::parse(&text).expect_err("it is refused").to_string();
    assert!(error.contains("line 13") && error.contains("m24n8k16"), "{error}");
}
