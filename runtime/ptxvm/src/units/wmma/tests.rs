//! Fragments are bijections, and products computed through load and store equal naive ones

use super::*;
use crate::units::testing::Random;
use std::collections::BTreeSet;

const INSTRUCTIONS: [&str; 11] = [
    "row.col.m16n16k16.s32.s8.s8.s32",
    "row.row.m16n16k16.s32.u8.u8.s32.satfinite",
    "col.row.m32n8k16.s32.s8.s8.s32",
    "row.col.m8n32k16.f32.bf16.bf16.f32",
    "row.col.m16n16k16.f32.f32",
    "col.col.m32n8k16.f16.f16",
    "row.col.m8n32k16.f16.f32",
    "row.col.m16n16k16.f32.f16",
    "row.col.m16n16k16.f32.bf16.bf16.f32",
    "row.row.m16n16k8.f32.tf32.tf32.f32",
    "row.col.m8n8k32.s32.s4.s4.s32",
];

fn parse(text: &str) -> Result<Wmma, String> {
    Wmma::parse(&text.split('.').collect::<Vec<_>>())
}

/// Executes `wmma.load` from a matrix of bit patterns, one per element, with a leading dimension of `stride` elements.
fn load(fragment: &Fragment, memory: &[u32], row_major: bool, stride: u64) -> Vec<Lanes> {
    let bits = fragment.element_bits();
    let mut registers = vec![[0; 32]; fragment.registers()];
    for lane in 0..32 {
        for i in 0..fragment.elements() {
            let pattern = memory[fragment.offset(lane, i, row_major, stride) as usize];
            registers[i * bits / 32][lane] |= pattern << (i * bits % 32);
        }
    }
    fragment.repeat(&mut registers);
    registers
}

#[test]
fn fragments_hold_every_element_once() {
    for text in INSTRUCTIONS {
        let w = parse(text).unwrap();
        for fragment in [w.a, w.b, w.c, w.d] {
            let places: Vec<_> = (0..32).flat_map(|lane| (0..fragment.elements()).map(move |i| (lane, i))).collect();
            let distinct: BTreeSet<_> = places.iter().map(|&(lane, i)| fragment.position(lane, i)).collect();
            assert_eq!((places.len(), distinct.len()), (distinct.len(), fragment.rows * fragment.columns), "{text}");
        }
    }
    let registers = |text| {
        let w = parse(text).unwrap();
        [w.a, w.b, w.c, w.d].map(|f| f.registers())
    };
    assert_eq!(registers("row.col.m16n16k16.s32.s8.s8.s32"), [2, 2, 8, 8]);
    assert_eq!(registers("row.col.m16n16k16.f32.f32"), [8, 8, 8, 8]);
    assert_eq!(registers("row.col.m32n8k16.f16.f16"), [8, 8, 4, 4]);
    assert_eq!(registers("row.col.m8n32k16.f32.bf16.bf16.f32"), [2, 8, 8, 8]);
    assert_eq!(registers("row.col.m16n16k8.f32.tf32.tf32.f32"), [4, 4, 8, 8]);
    assert_eq!(registers("row.col.m8n8k32.s32.s4.s4.s32"), [1, 1, 2, 2]);
}

#[test]
fn products_of_loaded_matrices_are_naive_products() {
    let mut r = Random(91);
    for text in INSTRUCTIONS {
        let w = parse(text).unwrap();
        let (a_rows, b_rows) = (text.starts_with("row"), &text[4..7] == "row");
        let (m, n, k) = (w.a.rows, w.b.columns, w.a.columns);
        // The elements are small integers, so that every type represents them and their sums exactly.
        let mut matrix = |f: &Fragment, row_major: bool| {
            let stride = if row_major { f.columns } else { f.rows } as u64 + 8;
            let mut memory = vec![0xffff_ffff; 32 * 64];
            let mut values = vec![vec![0i64; f.columns]; f.rows];
            for (row, values) in values.iter_mut().enumerate() {
                for (column, value) in values.iter_mut().enumerate() {
                    *value = r.below(8) as i64 - if text.contains("u8") { 0 } else { 4 };
                    let x = *value as f32;
                    let pattern = match f.kind {
                        Kind::F32 | Kind::Element(Element::Tf32) => x.to_bits(),
                        Kind::Element(Element::Bf16) => x.to_bits() >> 16,
                        Kind::Element(Element::F16) => u32::from(half::f16::from_f32(x).to_bits()),
                        Kind::S32 => *value as u32,
                        Kind::Element(other) => *value as u32 & ((1 << other.bits()) - 1),
                    };
                    let at = if row_major {
                        row as u64 * stride + column as u64
                    } else {
                        column as u64 * stride + row as u64
                    };
                    memory[at as usize] = pattern;
                }
            }
            (values, load(f, &memory, row_major, stride))
        };
        let (a, a_registers) = matrix(&w.a, a_rows);
        let (b, b_registers) = matrix(&w.b, b_rows);
        let (c, c_registers) = matrix(&w.c, true);
        let mut d = vec![[0xdead_beef; 32]; w.d.registers()];
        w.run(&a_registers, &b_registers, &c_registers, &mut d);
        for (lane, i) in (0..32).flat_map(|lane| (0..w.d.elements()).map(move |i| (lane, i))) {
            let (row, column) = w.d.position(lane, i);
            let exact = c[row][column] + (0..k).map(|k| a[row][k] * b[k][column]).sum::<i64>();
            let bits = w.d.element_bits();
            let got = w.d.value(d[i * bits / 32][lane] >> (i * bits % 32));
            assert_eq!(got, exact as f64, "{text} m{m}n{n} row {row} column {column}");
        }
    }
}

#[test]
fn integers_wrap_or_saturate() {
    for (text, expected) in
        [("row.col.m16n16k16.s32.u8.u8.s32", i32::MIN + 15), ("row.col.m16n16k16.s32.u8.u8.s32.satfinite", i32::MAX)]
    {
        let w = parse(text).unwrap();
        let mut d = vec![[0; 32]; 8];
        let ones = vec![[0x0101_0101; 32]; 2];
        w.run(&ones, &ones, &vec![[i32::MAX as u32; 32]; 8], &mut d);
        assert_eq!(d[7][31] as i32, expected);
    }
}

#[test]
fn other_combinations_are_refused() {
    for bad in [
        "row.col.m16n16k16.f32.f16.f16",
        "row.m16n16k16.f32.f32",
        "row.col.m16n16k8.f32.f32",
        "row.col.m16n16k16.s32.s8.u8.s32",
        "row.col.m16n16k16.f16.bf16.bf16.f16",
        "row.col.m8n8k4.f64.f64.f64.f64",
        "row.col.m16n16k16.f32.e4m3.e4m3.f32",
        "",
    ] {
        let error = parse(bad).unwrap_err();
        assert!(error.ends_with("is not supported"), "{error}");
    }
}
