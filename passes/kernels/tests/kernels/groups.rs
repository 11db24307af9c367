//! Contractions with codes that have a scale per group along K: f32 or bytes times integer codes of 4 and 8 bits, f32
//! times 8-bit floats

use crate::build::{Groups, builder_of_groups as builder, grouped, sum_of_groups as sum};
use crate::check;
use crate::harness::Case;
use sardonyx_base::minifloat::decode;
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::{Class, Kernel};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Target, Words, lower};

/// Types of operands A and B: f32 or bytes times i4 or i8, or f32 times 8-bit floats.
type Types = [DType; 2];

/// Returns a case whose codes and bytes run through all values of their types, except 8-bit floats of large magnitude.
fn case(name: &str, kernel: Kernel, m: i64) -> Case {
    assert_eq!(kernel.class(), Class::Groups, "{name}");
    let mut case = Case::new(name, kernel, &[("m", m)]);
    for read in 0..case.reads.len() {
        let (dtype, dims) = (case.reads[read].dtype(), case.reads[read].dims().to_vec());
        let n: usize = dims.iter().product();
        let byte = |i: usize| (i * 89 + i / 7) as u8;
        let dtype = if dtype == DType::F32 { case.kernel.reads[read].dtype } else { dtype };
        let bytes: Option<Vec<u8>> = match dtype {
            DType::U8 | DType::I8 => Some((0..n).map(|i| !byte(i)).collect()),
            DType::I4 => Some((0..n).map(|i| ((byte(i) << 4) as i8 >> 4) as u8).collect()),
            float if float.bits() == 8 => {
                // Larger numbers would cause larger rounding errors in a sum than the tolerance allows.
                let small = |code: &u8| decode(float, (*code).into()).is_some_and(|x| x.abs() <= 448.0);
                Some((0..n).map(|i| Some(byte(i)).filter(small).unwrap_or(0)).collect())
            }
            _ => None,
        };
        if let Some(bytes) = bytes {
            case = case.read(read, Tensor::new(dtype, dims, bytes.into()).unwrap());
        }
    }
    case.within(2e-2, 2e-6)
}

const ALL: [Types; 8] = [
    [DType::F32, DType::I4],
    [DType::F32, DType::I8],
    [DType::U8, DType::I4],
    [DType::U8, DType::I8],
    [DType::F32, DType::F8E4M3FN],
    [DType::F32, DType::F8E4M3FNUZ],
    [DType::F32, DType::F8E5M2],
    [DType::F32, DType::F8E5M2FNUZ],
];

fn blocked(name: &str, types: Types, kernel: Kernel, m: i64) -> Case {
    let words = if types[0] == DType::U8 { Words::Quads } else { Words::Singles };
    assert_eq!(lower(&kernel).unwrap().words(), Some(words), "{name}");
    case(name, kernel, m)
}

#[test]
fn sizes_around_the_blocks() {
    let mut cases = vec![];
    for types in ALL {
        for m in [0i64, 1, 2, 3, 5, 6, 7, 13, 50, 97] {
            for (n, groups, size) in
                [(2i64, 1i64, 32i64), (31, 3, 8), (32, 2, 128), (33, 4, 16), (64, 1, 8), (70, 5, 32)]
            {
                if m > 13 && n != 33 && n != 70 {
                    continue;
                }
                let s = Groups { m: "m", n, groups, size };
                let name = format!("{types:?} {m} by {n}, {groups} of {size}");
                cases.push(blocked(&name, types, grouped(types, &s, false), m));
            }
        }
    }
    check(cases);
}

#[test]
fn what_is_added_and_several_sums() {
    let mut cases = vec![];
    for types in ALL {
        for m in [1i64, 2, 13, 50] {
            let s = Groups { m: "m", n: 70, groups: 3, size: 32 };
            let name = format!("{types:?} {m}");
            cases.push(blocked(&format!("added {name}"), types, grouped(types, &s, true), m));
            let (mut b, x) = builder(types, &s);
            let [one, other] = [false, true].map(|added| sum(&mut b, x, types, &s, added));
            let y = b.apply(ScalarFn::Sub, &[one, other]);
            b.store(y, &["m", "70"], &["%0", "%1"]);
            cases.push(blocked(&format!("two sums {name}"), types, b.0, m));
        }
    }
    check(cases);
}

/// Each result is a single decoded float, since operand A is an identity matrix; all finite floats occur, including
/// subnormals and the largest.
#[test]
fn every_float_is_decoded_exactly() {
    let mut cases = vec![];
    for dtype in [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ] {
        let types = [DType::F32, dtype];
        let s = Groups { m: "m", n: 32, groups: 1, size: 8 };
        let number = |code: u8| decode(dtype, code.into()).is_some_and(f64::is_finite);
        let codes: Vec<u8> = (0..=u8::MAX).map(|code| if number(code) { code } else { 0 }).collect();
        let unit = (0..64).map(|i| f32::from(u8::from(i / 8 == i % 8))).collect();
        let case = blocked(&format!("{dtype}"), types, grouped(types, &s, false), 8);
        let case = case.read(0, Tensor::from_vec(vec![8, 8], unit));
        let case = case.read(1, Tensor::new(dtype, vec![8, 32], codes.into()).unwrap());
        cases.push(case.read(2, Tensor::from_vec(vec![1, 32], vec![1f32; 32])).exact());
    }
    check(cases);
}

/// Groups that end within a word of codes are read code by code.
#[test]
fn groups_of_parts_of_cells() {
    let mut cases = vec![];
    for types in ALL {
        let s = Groups { m: "m", n: 40, groups: 3, size: 6 };
        let kernel = grouped(types, &s, true);
        assert_eq!(lower(&kernel).unwrap().words(), None, "{types:?}");
        cases.extend([1, 7].map(|m| case(&format!("{types:?} {m}"), kernel.clone(), m)));
    }
    check(cases);
}

/// GPUs also multiply signed bytes. A group spans one chunk of K, several chunks, or part of a chunk; a single group
/// may have any length.
#[test]
fn left_factors_with_a_sign() {
    let gpu = Target::from_ptx("sm_80").unwrap();
    let mut cases = vec![];
    for code in [DType::I4, DType::I8] {
        for (m, n, groups, size) in [(3i64, 40i64, 3i64, 32i64), (40, 33, 2, 128), (20, 96, 3, 64), (70, 70, 1, 100)] {
            let types = [DType::I8, code];
            let kernel = grouped(types, &Groups { m: "m", n, groups, size }, true);
            assert!(lower(&kernel).unwrap().for_gpu(gpu).plan.is_on_tensor_cores(), "{types:?}");
            cases.push(case(&format!("{types:?} {m} by {n}, {groups} of {size}"), kernel, m));
        }
    }
    check(cases);
}

/// An infinity in operand A must give the interpreter's result, although it cannot be split into tf32 parts.
#[test]
fn infinities_come_out_as_they_are() {
    let kernel = grouped([DType::F32, DType::I4], &Groups { m: "m", n: 40, groups: 2, size: 32 }, false);
    let mut case = case("infinities", kernel, 20);
    let mut values: Vec<f32> = case.reads[0].to_vec().unwrap();
    (values[70], values[200], values[700]) = (f32::INFINITY, f32::NEG_INFINITY, f32::MAX);
    let dims = case.reads[0].dims().to_vec();
    case = case.read(0, Tensor::from_vec(dims, values));
    check(vec![case]);
}
