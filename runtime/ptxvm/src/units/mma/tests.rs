//! Dense and sparse shapes, with operands placed by the fragment tables of the ISA, compared with a naive product

use super::*;
use crate::units::format::Format;
use crate::units::testing::Random;

/// One row of the fragment tables, as printed in the PTX ISA: the positions of element `i` in the lane of group `g`,
/// member `t`.
struct Shape {
    modifiers: &'static str,
    bits: usize,
    m: usize,
    k: usize,
    a: fn(usize, usize, usize) -> (usize, usize),
    b_row: fn(usize, usize) -> usize,
}

fn shape(
    modifiers: &'static str,
    bits: usize,
    a: fn(usize, usize, usize) -> (usize, usize),
    b_row: fn(usize, usize) -> usize,
) -> Shape {
    let (m, k) = modifiers.split('.').next().unwrap().split_once("n8k").unwrap();
    Shape { modifiers, bits, m: m[1..].parse().unwrap(), k: k.parse().unwrap(), a, b_row }
}

fn shapes() -> Vec<Shape> {
    let half8 = |modifiers| shape(modifiers, 16, |g, t, i| (g + 8 * (i >> 1), 2 * t + (i & 1)), |t, i| 2 * t + i);
    let half16 = |modifiers| {
        let a = |g: usize, t: usize, i: usize| (g + 8 * ((i >> 1) & 1), 2 * t + (i & 1) + 8 * (i >> 2));
        shape(modifiers, 16, a, |t, i| 2 * t + (i & 1) + 8 * (i >> 1))
    };
    let byte16 = |modifiers| shape(modifiers, 8, |g, t, i| (g + 8 * (i >> 2), 4 * t + (i & 3)), |t, i| 4 * t + i);
    let byte32 = |modifiers| {
        let a = |g: usize, t: usize, i: usize| (g + 8 * ((i >> 2) & 1), 4 * t + (i & 3) + 16 * (i >> 3));
        shape(modifiers, 8, a, |t, i| 4 * t + (i & 3) + 16 * (i >> 2))
    };
    let nibble64 = |modifiers| {
        let a = |g: usize, t: usize, i: usize| (g + 8 * ((i >> 3) & 1), 8 * t + (i & 7) + 32 * (i >> 4));
        shape(modifiers, 4, a, |t, i| 8 * t + (i & 7) + 32 * (i >> 3))
    };
    vec![
        half8("m16n8k8.row.col.f32.f16.f16.f32"),
        half8("m16n8k8.row.col.f16.f16.f16.f16"),
        half8("m16n8k8.row.col.f32.bf16.bf16.f32"),
        half16("m16n8k16.row.col.f32.f16.f16.f32"),
        half16("m16n8k16.row.col.f16.f16.f16.f16"),
        half16("m16n8k16.row.col.f32.f16.f16.f16"),
        half16("m16n8k16.row.col.f16.f16.f16.f32"),
        half16("m16n8k16.row.col.f32.bf16.bf16.f32"),
        shape("m16n8k4.row.col.f32.tf32.tf32.f32", 32, |g, t, i| (g + 8 * i, t), |t, _| t),
        shape("m16n8k8.row.col.f32.tf32.tf32.f32", 32, |g, t, i| (g + 8 * (i & 1), t + 4 * (i >> 1)), |t, i| t + 4 * i),
        byte16("m16n8k16.row.col.s32.s8.s8.s32"),
        byte16("m16n8k16.row.col.satfinite.s32.u8.s8.s32"),
        byte16("m16n8k16.row.col.f32.e4m3.e5m2.f32"),
        byte32("m16n8k32.row.col.s32.s8.u8.s32"),
        byte32("m16n8k32.row.col.satfinite.s32.u8.u8.s32"),
        byte32("m16n8k32.row.col.f32.e4m3.e4m3.f32"),
        byte32("m16n8k32.row.col.f16.e5m2.e4m3.f16"),
        shape("m16n8k32.row.col.s32.s4.s4.s32", 4, |g, t, i| (g + 8 * (i >> 3), 8 * t + (i & 7)), |t, i| 8 * t + i),
        nibble64("m16n8k64.row.col.s32.s4.u4.s32"),
        nibble64("m16n8k64.row.col.satfinite.s32.u4.s4.s32"),
        shape("m8n8k16.row.col.s32.s8.u8.s32", 8, |g, t, i| (g, 4 * t + i), |t, i| 4 * t + i),
        shape("m8n8k32.row.col.s32.u4.s4.s32", 4, |g, t, i| (g, 8 * t + i), |t, i| 8 * t + i),
        shape("m8n8k4.row.col.f64.f64.f64.f64", 64, |g, t, _| (g, t), |t, _| t),
        shape("m16n8k4.row.col.f64.f64.f64.f64", 64, |g, t, i| (g + 8 * i, t), |t, _| t),
        shape("m16n8k8.row.col.f64.f64.f64.f64", 64, |g, t, i| (g + 8 * (i & 1), t + 4 * (i >> 1)), |t, i| t + 4 * i),
        shape("m16n8k16.row.col.f64.f64.f64.f64", 64, |g, t, i| (g + 8 * (i & 1), t + 4 * (i >> 1)), |t, i| t + 4 * i),
    ]
}

/// Stores `bits` as element number `i` in a lane's registers.
fn put(registers: &mut [Lanes], lane: usize, i: usize, width: usize, bits: u64) {
    let at = i * width;
    registers[at / 32][lane] |= (bits << (at % 32)) as u32;
    if width == 64 {
        registers[at / 32 + 1][lane] |= (bits >> 32) as u32;
    }
}

fn get(registers: &[Lanes], lane: usize, i: usize, width: usize) -> u64 {
    let at = i * width;
    let low = u64::from(registers[at / 32][lane] >> (at % 32));
    if width == 64 { low | u64::from(registers[at / 32 + 1][lane]) << 32 } else { low & (u64::MAX >> (64 - width)) }
}

/// A number and its bits: a float with few or many mantissa bits, or any integer.
fn random_element(r: &mut Random, kind: &str, few_bits: bool) -> (f64, u64) {
    let small = r.below(15) as f64 - 7.0;
    let wide = small * 2f64.powi(r.below(8) as i32 - 4) * (1.0 + r.below(1 << 20) as f64 / (1 << 20) as f64);
    let x = if few_bits { small / 2.0 } else { wide };
    let narrow = |format: Format| {
        let bits = format.narrow(x, super::super::format::Rounding::Rn, true);
        (f64::from(format.widen(bits)), u64::from(bits))
    };
    match kind {
        "f16" => narrow(Format::F16),
        "bf16" => narrow(Format::Bf16),
        // The low bits of the register are noise that the multiplier ignores.
        "tf32" => {
            let (value, bits) = narrow(Format::Tf32);
            (value, bits | r.below(1 << 13))
        }
        "e4m3" => narrow(Format::E4m3),
        "e5m2" => narrow(Format::E5m2),
        "f32" => (f64::from(x as f32), u64::from((x as f32).to_bits())),
        "f64" => (x, x.to_bits()),
        "s8" => {
            let v = r.u32() as i8;
            (v.into(), u64::from(v as u8))
        }
        "u8" => {
            let v = r.u32() as u8;
            (v.into(), v.into())
        }
        "s4" => {
            let v = (r.u32() as i8) >> 4;
            (v.into(), u64::from(v as u8 & 15))
        }
        "u4" => {
            let v = r.u32() as u8 & 15;
            (v.into(), v.into())
        }
        "s32" => {
            let v =
                if few_bits { r.u32() as i32 >> 12 } else { [i32::MAX, i32::MIN, r.u32() as i32][r.below(3) as usize] };
            (v.into(), u64::from(v as u32))
        }
        other => panic!("{other}"),
    }
}

fn check(s: &Shape, r: &mut Random, few_bits: bool) {
    let parts: Vec<&str> = s.modifiers.split('.').collect();
    let mma = Mma::parse(&parts).unwrap();
    let [d_kind, a_kind, b_kind, c_kind] = parts[parts.len() - 4..] else { panic!() };
    let width = |kind: &str| match kind {
        "f16" => 16,
        "f64" => 64,
        _ => 32,
    };
    let (mut a, mut b, mut c) = (vec![[0; 32]; mma.n_a], vec![[0; 32]; mma.n_b], vec![[0; 32]; mma.n_c]);
    let (mut a_tile, mut b_tile) = (vec![vec![f64::NAN; s.k]; s.m], vec![[f64::NAN; 8]; s.k]);
    let mut c_tile = vec![[0f64; 8]; s.m];
    let c_at = |lane: usize, i: usize| (lane / 4 + 8 * (i >> 1), 2 * (lane % 4) + (i & 1));
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for i in 0..s.m * s.k / 32 {
            let (value, bits) = random_element(r, a_kind, few_bits);
            put(&mut a, lane, i, s.bits, bits);
            let (row, column) = (s.a)(g, t, i);
            a_tile[row][column] = value;
        }
        for i in 0..s.k / 4 {
            let (value, bits) = random_element(r, b_kind, few_bits);
            put(&mut b, lane, i, s.bits, bits);
            b_tile[(s.b_row)(t, i)][g] = value;
        }
        for i in 0..s.m / 4 {
            let (value, bits) = random_element(r, c_kind, few_bits);
            put(&mut c, lane, i, width(c_kind), bits);
            let (row, column) = c_at(lane, i);
            c_tile[row][column] = value;
        }
    }
    let mut d = vec![[0xdead_beef; 32]; mma.n_d];
    mma.run(&a, &b, &c, &mut d);
    for lane in 0..32 {
        for i in 0..s.m / 4 {
            let (row, column) = c_at(lane, i);
            let products = (0..s.k).map(|k| a_tile[row][k] * b_tile[k][column]);
            let exact = products.clone().sum::<f64>() + c_tile[row][column];
            let scale = products.map(f64::abs).sum::<f64>() + c_tile[row][column].abs();
            let bits = get(&d, lane, i, width(d_kind));
            let (got, step) = match d_kind {
                "s32" => {
                    let sum = exact as i64;
                    let expected = if mma.saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
                    assert_eq!(bits as u32 as i32, expected as i32, "{} lane {lane} element {i}", s.modifiers);
                    continue;
                }
                "f16" => (f64::from(f16_to_f32(bits as u16)), 2f64.powi(-11)),
                "f32" => (f64::from(f32::from_bits(bits as u32)), 2f64.powi(-24)),
                _ => (f64::from_bits(bits), 2f64.powi(-53) * (s.k + 1) as f64),
            };
            // The tolerance is half a step of the result plus the error of sums in f64; sums of operands with few bits
            // are exact before the last rounding.
            let tolerance = exact.abs() * step + scale * 2f64.powi(-47) + if few_bits { 0.0 } else { 2f64.powi(-25) };
            // With an f32 result, the result and each term smaller than the largest are truncated.
            let cut = if d_kind == "f32" { exact.abs() * 2f64.powi(-23) + scale * 2f64.powi(-24) } else { 0.0 };
            let tolerance = tolerance.max(cut);
            assert!((got - exact).abs() <= tolerance, "{} lane {lane} element {i}: {got} for {exact}", s.modifiers);
        }
    }
}

#[test]
fn every_shape_multiplies_as_its_fragment_tables_say() {
    let mut r = Random(11);
    for s in shapes() {
        for trial in 0..20 {
            check(&s, &mut r, trial % 2 == 0);
        }
    }
}

#[test]
fn special_values_and_rounding_reach_the_result() {
    let mma = Mma::parse(&["m16n8k8", "row", "col", "f32", "bf16", "bf16", "f32"]).unwrap();
    let bf16 = |x: f32| u32::from(super::super::format::f32_to_bf16(x));
    // Row g of A is (x_g, 1, 0...), every column of B is (1, y, 0...).
    let a_of = |x: f32| {
        let mut a = [[0; 32]; 2];
        (0..8).for_each(|g| a[0][4 * g] = bf16(x) | bf16(1.0) << 16);
        a
    };
    let b_of = |y: f32| {
        let mut b = [[0; 32]; 1];
        (0..8).for_each(|g| b[0][4 * g] = bf16(1.0) | bf16(y) << 16);
        b
    };
    let run = |x: f32, y: f32, c: f32| {
        let mut d = [[0; 32]; 4];
        mma.run(&a_of(x), &b_of(y), &[[c.to_bits(); 32]; 4], &mut d);
        (f32::from_bits(d[0][0]), d[0][0], f32::from_bits(d[3][31]))
    };
    assert_eq!(run(f32::INFINITY, f32::NEG_INFINITY, 0.0).1, 0x7fff_ffff);
    assert_eq!(run(f32::INFINITY, 1.0, 5.0).0, f32::INFINITY);
    // 2^25 - 2^25 + c: of c, only the bits from 2^-25 times the largest term upwards are kept. Rows 8 to 15 of A are
    // zero.
    assert_eq!(run(2f32.powi(25), -2f32.powi(25), 1.5), (1.0, 1f32.to_bits(), 1.5));
    assert_eq!(run(2f32.powi(40), -2f32.powi(40), 1.5).0, 0.0);
    // The sum is rounded towards zero.
    assert_eq!(run(2f32.powi(-24), 2f32.powi(-25), 1.0).0, 1.0);
    assert_eq!(run(f32::INFINITY, -1.0, f32::NEG_INFINITY).1, 0x7fff_ffff);
    assert_eq!(run(f32::MAX, f32::MAX, 0.0).0, f32::INFINITY);
}

#[test]
fn unknown_shapes_are_refused_with_their_modifiers() {
    for bad in [
        "m16n8k16.row.row.f32.f16.f16.f32",
        "m16n8k16.row.col.f32.f16.bf16.f32",
        "m16n8k16.row.col.f16.bf16.bf16.f16",
        "m16n8k16.row.col.f32.tf32.tf32.f32",
        "m16n8k16.row.col.s32.s8.s4.s32",
        "m16n8k32.row.col.satfinite.f32.e4m3.e4m3.f32",
        "m8n8k4.row.col.f32.f16.f16.f32",
        "m16n8k128.row.col.s32.s8.s8.s32",
        "m16n8k99999999999999999999.row.col.s32.s8.s8.s32",
        "m16n8k0.row.col.f64.f64.f64.f64",
        "",
    ] {
        let parts: Vec<&str> = bad.split('.').collect();
        assert_eq!(Mma::parse(&parts), Err(format!("`mma` with `.{bad}` is not supported")));
    }
    let registers = |mma: Mma| [mma.n_a, mma.n_b, mma.n_c, mma.n_d];
    let parse = |text: &str| Mma::parse(&text.split('.').collect::<Vec<_>>()).unwrap();
    assert_eq!(registers(parse("m16n8k16.row.col.f32.bf16.bf16.f32")), [4, 2, 4, 4]);
    assert_eq!(registers(parse("m16n8k16.row.col.f16.f16.f16.f16")), [4, 2, 2, 2]);
    assert_eq!(registers(parse("m8n8k4.row.col.f64.f64.f64.f64")), [2, 2, 4, 4]);
}

/// A sparse shape. `supplier` returns the lane whose metadata holds the nibble of a chunk, and the position of the
/// nibble.
struct Sparse {
    modifiers: &'static str,
    bits: usize,
    chunk: usize,
    selectors: usize,
    supplier: fn(usize, usize, usize) -> (usize, usize),
}

fn sparse_shapes() -> Vec<Sparse> {
    // Arguments: selector, row, chunk; results: lane, nibble in its register.
    let one_lane = |f: usize, row: usize, chunk: usize| (4 * (row % 8) + f, chunk + 4 * (row / 8));
    let lane_pair = |f: usize, row: usize, chunk: usize| (4 * (row % 8) + 2 * f + chunk / 4, chunk % 4 + 4 * (row / 8));
    let row_pair = |f: usize, row: usize, chunk: usize| (4 * (row % 8) + 2 * f + row / 8, chunk);
    let all = |_: usize, row: usize, chunk: usize| (4 * (row % 8) + row / 8 + 2 * (chunk / 8), chunk % 8);
    vec![
        Sparse { modifiers: "m16n8k16.row.col.f32.f16.f16.f32", bits: 16, chunk: 4, selectors: 4, supplier: one_lane },
        Sparse {
            modifiers: "m16n8k32.row.col.f32.bf16.bf16.f32",
            bits: 16,
            chunk: 4,
            selectors: 2,
            supplier: lane_pair,
        },
        Sparse { modifiers: "m16n8k8.row.col.f32.tf32.tf32.f32", bits: 32, chunk: 2, selectors: 4, supplier: one_lane },
        Sparse {
            modifiers: "m16n8k16.row.col.f32.tf32.tf32.f32",
            bits: 32,
            chunk: 2,
            selectors: 2,
            supplier: lane_pair,
        },
        Sparse { modifiers: "m16n8k32.row.col.s32.s8.s8.s32", bits: 8, chunk: 4, selectors: 2, supplier: row_pair },
        Sparse { modifiers: "m16n8k64.row.col.s32.s8.s8.s32", bits: 8, chunk: 4, selectors: 1, supplier: all },
    ]
}

#[test]
fn sparse_shapes_place_what_the_metadata_says() {
    let mut r = Random(12);
    for s in sparse_shapes() {
        let parts: Vec<&str> = s.modifiers.split('.').collect();
        let mma = Mma::parse_sparse(&parts).unwrap();
        let kind = parts[4];
        assert_eq!(mma.selectors() as usize, s.selectors, "{}", s.modifiers);
        for selector in 0..s.selectors {
            let (mut a, mut b, mut e) = (vec![[0; 32]; mma.n_a], vec![[0; 32]; mma.n_b], [0; 32]);
            let mut a_tile = vec![vec![0.0; mma.k]; 16];
            let mut b_tile = vec![[f64::NAN; 8]; mma.k];
            let per = 32 / s.bits;
            for row in 0..16 {
                for chunk in 0..mma.k / s.chunk {
                    let nibble = if s.chunk == 2 {
                        [0b0100, 0b1110][r.below(2) as usize]
                    } else {
                        [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110][r.below(6) as usize]
                    };
                    let (lane, at) = (s.supplier)(selector, row, chunk);
                    e[lane] |= nibble << (4 * at);
                    let kept = if s.chunk == 2 { vec![nibble >> 1 & 1] } else { vec![nibble & 3, nibble >> 2] };
                    for (j, &position) in kept.iter().enumerate() {
                        let (value, bits) = random_element(&mut r, kind, true);
                        a_tile[row][s.chunk * chunk + position as usize] = value;
                        // The column among the kept elements, which are stored as in the dense shape of half the depth.
                        let column = kept.len() * chunk + j;
                        let (block, within) = (column / (4 * per), column % (4 * per));
                        let lane = 4 * (row % 8) + within / per;
                        put(&mut a[row / 8 + 2 * block..], lane, within % per, s.bits, bits);
                    }
                }
            }
            for (k, row) in b_tile.iter_mut().enumerate() {
                let (block, within) = (k / (4 * per), k % (4 * per));
                for (n, element) in row.iter_mut().enumerate() {
                    let (value, bits) = random_element(&mut r, kind, true);
                    *element = value;
                    put(&mut b[block..], 4 * n + within / per, within % per, s.bits, bits);
                }
            }
            let mut d = vec![[0; 32]; mma.n_d];
            mma.run_sparse(&a, &b, &vec![[0; 32]; mma.n_c], &e, selector as u32, &mut d);
            for_accumulators(16, |lane, i, row, column| {
                let exact: f64 = (0..mma.k).map(|k| a_tile[row][k] * b_tile[k][column]).sum();
                let bits = d[i][lane];
                let got = if kind == "s8" { f64::from(bits as i32) } else { f64::from(f32::from_bits(bits)) };
                assert_eq!(got, exact, "{} selector {selector} row {row} column {column}", s.modifiers);
            });
        }
    }
    for bad in
        ["m8n8k32.row.col.s32.s8.s8.s32", "m16n8k128.row.col.s32.s4.s4.s32", "m16n8k32.row.col.f32.e4m3.e4m3.f32"]
    {
        assert!(Mma::parse_sparse(&bad.split('.').collect::<Vec<_>>()).is_err(), "{bad}");
    }
}
