//! Scalar functions and conversions of every type, with special values, and the accuracy of the math functions

use crate::build::Builder;
use crate::check;
use crate::harness::{Case, Library, Random, levels, run};
use sardonyx_base::{DType, Tensor, minifloat, packed};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::{Domain, ROWS, ScalarFn};
use sardonyx_kernels::codegen::build_shared_object;
use sardonyx_kernels::lower;

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
const INTS: [DType; 8] = [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];
const SMALL_FLOATS: [DType; 6] =
    [DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F8E8M0, DType::F4E2M1];
const SMALL_INTS: [DType; 4] = [DType::I4, DType::U4, DType::I2, DType::U2];

/// Returns special and ordinary values, converted to the type; all values of types with few codes.
fn special(t: DType) -> Tensor {
    let floats: Vec<f64> = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        -3.0,
        7.25,
        1e-3,
        100.0,
        -100.0,
        1e4,
        1e30,
        -1e30,
        1e-30,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.1,
        2.0,
        -2.0,
    ];
    let ints: Vec<i64> =
        vec![0, 1, -1, 2, -2, 3, 5, -5, 7, 10, 100, 127, -128, 255, 32767, -32768, i64::MAX, i64::MIN, 1 << 40, 64, 33];
    let n = if t.is_float() { floats.len() } else { ints.len() };
    if t.bits() <= 8 && (t.is_float() || t.bits() < 8) {
        // Every code of the type.
        let codes: Vec<u8> = (0..1u32 << t.bits()).map(|code| packed::held(t, code as u8)).collect();
        return Tensor::new(t, vec![codes.len()], codes.into()).unwrap();
    }
    match t {
        DType::F32 => Tensor::from_vec(vec![n], floats.iter().map(|x| *x as f32).collect()),
        DType::F64 => Tensor::from_vec(vec![n], floats),
        DType::F16 => Tensor::from_vec(vec![n], floats.iter().map(|x| half::f16::from_f64(*x)).collect()),
        DType::BF16 => Tensor::from_vec(vec![n], floats.iter().map(|x| half::bf16::from_f64(*x)).collect()),
        DType::I8 => Tensor::from_vec(vec![n], ints.iter().map(|x| *x as i8).collect()),
        DType::I16 => Tensor::from_vec(vec![n], ints.iter().map(|x| *x as i16).collect()),
        DType::I32 => Tensor::from_vec(vec![n], ints.iter().map(|x| *x as i32).collect()),
        DType::U8 => Tensor::from_vec(vec![n], ints.iter().map(|x| *x as u8).collect()),
        DType::U16 => Tensor::from_vec(vec![n], ints.iter().map(|x| *x as u16).collect()),
        DType::U32 => Tensor::from_vec(vec![n], ints.iter().map(|x| *x as u32).collect()),
        DType::U64 => Tensor::from_vec(vec![n], ints.iter().map(|x| *x as u64).collect()),
        DType::Bool => Tensor::from_vec(vec![n], ints.iter().map(|x| *x > 0).collect()),
        _ => Tensor::from_vec(vec![n], ints),
    }
}

/// A case that applies f to all pairs of special values.
fn combinations(f: ScalarFn, t: DType) -> Case {
    let mut values = special(t);
    if t == DType::F64 && matches!(f, ScalarFn::Sin | ScalarFn::Cos) {
        // The f64 functions give NaN for arguments of magnitude above 10^9.
        let cut = |x: &f64| if x.is_finite() { x.clamp(-1e8, 1e8) } else { *x };
        values = Tensor::from_vec(values.dims().to_vec(), values.to_vec::<f64>().unwrap().iter().map(cut).collect());
    }
    let n = values.len().to_string();
    let mut b = Builder::new(&[&n, &n], &[]);
    let mut args = vec![];
    if f == ScalarFn::Select {
        args.push(b.load(DType::Bool, &[&n], &["%1"]));
    }
    let x = b.load(t, &[&n], &["%0"]);
    let y = b.load(t, &[&n], &["%1"]);
    args.push(x);
    args.push(y);
    args.truncate(f.row().operands);
    let r = b.apply(f, &args);
    b.store(r, &[&n, &n], &["%0", "%1"]);
    let mut case = Case::new(&format!("{} {t}", f.name()), b.0, &[]).within(0.0, tolerance(f, t));
    for operand in 0..case.reads.len() {
        if case.kernel.reads[operand].dtype == t {
            case.reads[operand] = values.clone();
        }
    }
    case
}

/// Returns the allowed relative error of a function: 0 if the function is exact or a single instruction, otherwise a
/// bound of its approximation error.
fn tolerance(f: ScalarFn, t: DType) -> f64 {
    use ScalarFn::*;
    let unit = match t {
        DType::F64 => 2f64.powi(-52),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F8E4M3FN => 2f64.powi(-3),
        DType::F4E2M1 => 0.5,
        _ => 2f64.powi(-23),
    };
    match f {
        Exp | Tanh | Erf => 4.0 * unit,
        Atan | Log | Sin | Cos if t == DType::F64 => 64.0 * unit,
        Pow if t == DType::F64 => 4096.0 * unit,
        Atan | Pow | Log | Sin | Cos if t.is_float() => unit,
        Abs | Add | And | Atan | BitAnd | BitOr | BitXor | Shl | Shr | Ceil | Cos | Div | Eq | Floor | IsNan | Le
        | Log | Lt | Max | Min | Mul | Neg | Not | Or | Pow | Rem | Round | Select | Sign | Sin | Sqrt | Sub | Xor => {
            0.0
        }
    }
}

#[test]
fn every_function_of_every_type() {
    let mut cases = vec![];
    for row in ROWS {
        let floats = matches!(row.domain, Domain::Numbers | Domain::Floats | Domain::Any);
        let ints = matches!(row.domain, Domain::Numbers | Domain::Integers | Domain::Any);
        let bools = matches!(row.domain, Domain::Bools | Domain::Any);
        let mut types: Vec<&DType> = vec![];
        types.extend(FLOATS.iter().chain(&[DType::F8E4M3FN, DType::F4E2M1]).filter(|_| floats));
        types.extend(INTS.iter().chain(&SMALL_INTS).filter(|_| ints));
        types.extend([DType::Bool].iter().filter(|_| bools));
        cases.extend(types.into_iter().map(|t| combinations(row.function, *t)));
    }
    check(cases);
}

#[test]
fn every_conversion() {
    let small = SMALL_FLOATS.into_iter().chain(SMALL_INTS);
    let all: Vec<DType> = FLOATS.into_iter().chain(INTS).chain([DType::Bool]).chain(small).collect();
    let mut cases = vec![];
    for from in &all {
        for to in &all {
            let values = special(*from);
            let n = values.len().to_string();
            let mut b = Builder::new(&[&n], &[]);
            let x = b.load(*from, &[&n], &["%0"]);
            let y = b.convert(x, *to);
            b.store(y, &[&n], &["%0"]);
            cases.push(Case::new(&format!("{from} to {to}"), b.0, &[]).exact().read(0, values));
        }
    }
    check(cases);
}

/// Conversions from f32 and f64 of values at and next to every tie, and beyond the ends of the range. Rounding twice
/// would give different results.
#[test]
fn narrow_floats_are_rounded_once() {
    let mut cases = vec![];
    for to in SMALL_FLOATS {
        let mut values: Vec<f64> = vec![];
        for code in 0..1u32 << to.bits() {
            let value = minifloat::decode(to, code).unwrap();
            let next = minifloat::decode(to, code + 1).unwrap();
            let tie = (value + next) / 2.0;
            values.extend([tie, tie * (1.0 + 2f64.powi(-40)), tie * (1.0 - 2f64.powi(-40))]);
            values.extend([tie * (1.0 + 2f64.powi(-20)), tie * (1.0 - 2f64.powi(-20))]);
        }
        values.extend([1e-60, 1e-40, -1e-40, 1e-20, 2f64.powi(-128), 1e300, f64::MAX]);
        let n = values.len().to_string();
        let narrow: Vec<f32> = values.iter().map(|v| *v as f32).collect();
        let tensors = [Tensor::from_vec(vec![values.len()], values), Tensor::from_vec(vec![narrow.len()], narrow)];
        for tensor in tensors {
            let mut b = Builder::new(&[&n], &[]);
            let x = b.load(tensor.dtype(), &[&n], &["%0"]);
            let y = b.convert(x, to);
            b.store(y, &[&n], &["%0"]);
            let name = format!("{} to {to}", tensor.dtype());
            cases.push(Case::new(&name, b.0, &[]).exact().read(0, tensor));
        }
    }
    check(cases);
}

#[test]
fn bits_are_kept() {
    let all = FLOATS.into_iter().chain(INTS).chain(SMALL_FLOATS).chain(SMALL_INTS).chain([DType::Bool]);
    let all: Vec<DType> = all.collect();
    let mut cases = vec![];
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
        if from == to || from.bits() != to.bits() {
            continue;
        }
        let mut values = special(from);
        if let Some(halves) = values.to_vec::<half::f16>() {
            // In registers f16 values are f32, and an instruction may change the payload of a NaN, so NaN values are
            // left out.
            let numbers: Vec<half::f16> = halves.into_iter().filter(|h| !h.is_nan()).collect();
            values = Tensor::from_vec(vec![numbers.len()], numbers);
        }
        let n = values.len().to_string();
        let mut b = Builder::new(&[&n], &[]);
        let x = b.load(from, &[&n], &["%0"]);
        let y = b.reinterpret(x, to);
        b.store(y, &[&n], &["%0"]);
        cases.push(Case::new(&format!("bits of {from} as {to}"), b.0, &[]).exact().read(0, values));
    }
    check(cases);
}

#[test]
fn f64_to_f16_is_rounded_once() {
    // The first three values are so close to a tie of f16 or bf16 that rounding to f32 first would change the result.
    let x: Vec<f64> =
        vec![1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1.0 + 2f64.powi(-8) + 2f64.powi(-40), 65519.999999999, 1e-8];
    let mut cases = vec![];
    for t in [DType::F16, DType::BF16] {
        let mut b = Builder::new(&["4"], &[]);
        let v = b.load(DType::F64, &["4"], &["%0"]);
        let y = b.convert(v, t);
        b.store(y, &["4"], &["%0"]);
        cases.push(Case::new("ties", b.0, &[]).exact().read(0, Tensor::from_vec(vec![4], x.clone())));
    }
    check(cases);
}

fn unary(f: ScalarFn, n: usize) -> Kernel {
    let n = n.to_string();
    let mut b = Builder::new(&[&n], &[]);
    let x = b.load(DType::F32, &[&n], &["%0"]);
    let y = b.apply(f, &[x]);
    b.store(y, &[&n], &["%0"]);
    b.0
}

/// Returns the distance between y and the exact value, in units of the last place of f32 at the exact value.
fn ulps(y: f32, exact: f64) -> f64 {
    let size = (exact.abs() as f32).max(f32::MIN_POSITIVE);
    let ulp = f32::from_bits(size.to_bits() + 1) as f64 - size as f64;
    (y as f64 - exact).abs() / ulp
}

/// Returns the largest `error` of f over the samples.
fn worst(f: ScalarFn, samples: &[f32], error: impl Fn(f32, f32) -> f64) -> f64 {
    worst_of(f, samples.len(), [samples.to_vec()], error)
}

/// Returns the largest `error` of f over several sets of `n` samples.
fn worst_of(f: ScalarFn, n: usize, runs: impl IntoIterator<Item = Vec<f32>>, error: impl Fn(f32, f32) -> f64) -> f64 {
    let kernel = unary(f, n);
    let lowered = lower(&kernel).unwrap();
    let library = Library::new(&build_shared_object(&[("f".into(), &lowered)]).unwrap());
    let mut case = Case::new(f.name(), kernel, &[]);
    let mut worst = 0f64;
    for samples in runs {
        case.reads[0] = Tensor::from_vec(vec![n], samples.clone());
        let mut results = levels().into_iter().map(|v| run(library.kernel("f", v), &lowered, &case, i64::MAX / 2).0);
        let first = results.next().expect("v3 at least");
        assert!(results.all(|r| r == first), "{}: the levels differ", f.name());
        for (x, y) in samples.iter().zip(first[0].chunks(4)) {
            let y = f32::from_le_bytes(y.try_into().unwrap());
            let e = error(*x, y);
            assert!(!e.is_nan(), "{}({x:e}) = {y:e}", f.name());
            worst = worst.max(e);
        }
    }
    println!("{}: {worst:.3e}", f.name());
    worst
}

/// Returns samples of every sign and exponent with pseudo-random mantissas, up to the magnitude `limit`, and two evenly
/// spaced grids.
fn samples(limit: f32) -> Vec<f32> {
    let mut random = Random(11);
    let mut out: Vec<f32> = vec![];
    for high in 0..=0xFFFFu32 {
        for _ in 0..8 {
            out.push(f32::from_bits(high << 16 | (random.next() as u32 & 0xFFFF)));
        }
    }
    out.retain(|x| x.abs() <= limit);
    out.extend((0..400_000).map(|i| limit * (i as f32 / 200_000.0 - 1.0)));
    out.extend((0..400_000).map(|i| 5.0 * (i as f32 / 200_000.0 - 1.0)));
    out
}

#[test]
fn exp_is_within_4_ulp() {
    assert!(worst(ScalarFn::Exp, &samples(110.0), exp_error) <= 4.0);
}

#[test]
fn tanh_is_within_4_ulp() {
    assert!(worst(ScalarFn::Tanh, &samples(30.0), |x, y| ulps(y, (x as f64).tanh())) <= 4.0);
}

#[test]
fn erf_is_within_2_to_the_minus_22() {
    assert!(worst(ScalarFn::Erf, &samples(10.0), |x, y| (y as f64 - libm::erf(x as f64)).abs()) <= 2f64.powi(-22));
    assert!(worst(ScalarFn::Erf, &samples(f32::MAX), |x, y| ulps(y, libm::erf(x as f64))) <= 4.0);
    let size = |x: f32, y: f32| if x.abs() < 3.92 { y.abs() } else { (y - x.signum()).abs() + 1.0 } as f64;
    assert!(worst(ScalarFn::Erf, &samples(f32::MAX), size) <= 1.0);
}

/// Returns the error of exp in ulp; if the exact value is above the largest f32, the result must be infinite.
fn exp_error(x: f32, y: f32) -> f64 {
    match (x as f64).exp() {
        exact if exact <= f32::MAX as f64 => ulps(y, exact),
        _ if y == f32::INFINITY => 0.0,
        _ => f64::NAN,
    }
}

#[test]
#[ignore = "every f32: minutes, with --release"]
fn bounds_hold_for_every_f32() {
    let bits = 22;
    let all = || {
        (0..1u32 << (32 - bits)).map(|high| (0..1u32 << bits).map(|low| f32::from_bits(high << bits | low)).collect())
    };
    let number = |x: f32, e: f64| if x.is_nan() { 0.0 } else { e };
    assert!(worst_of(ScalarFn::Exp, 1 << bits, all(), |x, y| number(x, exp_error(x, y))) <= 4.0);
    assert!(worst_of(ScalarFn::Tanh, 1 << bits, all(), |x, y| number(x, ulps(y, (x as f64).tanh()))) <= 4.0);
    let erf = |x: f32, y: f32| number(x, (y as f64 - libm::erf(x as f64)).abs());
    assert!(worst_of(ScalarFn::Erf, 1 << bits, all(), erf) <= 2f64.powi(-22));
}

#[test]
fn log_sine_and_cosine_are_rounded_once() {
    let positive: Vec<f32> = samples(f32::MAX).into_iter().filter(|x| *x > 0.0).collect();
    assert!(worst(ScalarFn::Log, &positive, |x, y| ulps(y, (x as f64).ln())) <= 0.51);
    let wide = |x: f32, y: f32| (y as f64 - (x as f64).sin()).abs();
    assert!(worst(ScalarFn::Sin, &samples(f32::MAX), wide) <= 2f64.powi(-24));
    assert!(worst(ScalarFn::Sin, &samples(1e5), |x, y| ulps(y, (x as f64).sin())) <= 0.51);
    assert!(worst(ScalarFn::Cos, &samples(1e5), |x, y| ulps(y, (x as f64).cos())) <= 0.51);
}

#[test]
fn zeros_keep_their_sign() {
    use ScalarFn::*;
    for f in [Tanh, Erf, Sin, Sqrt, Round, Floor, Ceil] {
        let sign =
            |x: f32, y: f32| if y == 0.0 && y.is_sign_negative() == x.is_sign_negative() { 0.0 } else { f64::NAN };
        assert_eq!(worst(f, &[-0.0, 0.0, -0.0], sign), 0.0);
    }
}

/// Divides dividends of every sign and exponent from -100 on, zeros, infinities and NaN by constants of all sizes; the
/// results must have the interpreter's bits.
#[test]
fn quotients_by_constants_are_rounded_once() {
    let mut random = Random(5);
    let mut x: Vec<f32> = (0..40_000u32).map(|i| f32::from_bits(i << 17 | (random.next() as u32 & 0x1_FFFF))).collect();
    x.retain(|x| x.abs() >= 2f32.powi(-100));
    x.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN]);
    let n = x.len().to_string();
    let of = |c: f32| {
        let mut b = Builder::new(&[&n], &[]);
        let (x_value, c_value) = (b.load(DType::F32, &[&n], &["%0"]), b.constant(f64::from(c), DType::F32));
        let y = b.apply(ScalarFn::Div, &[x_value, c_value]);
        b.store(y, &[&n], &["%0"]);
        Case::new(&format!("by {c:e}"), b.0, &[]).exact().read(0, Tensor::from_vec(vec![x.len()], x.clone()))
    };
    let constants = [0.023529412, 0.463_146_9, 1.0, 3.0, 1e-12, 2f32.powi(60), 2f32.powi(61), -7.0, f32::MIN_POSITIVE];
    check(constants.into_iter().map(of).collect());
}

/// convert(clamp(round(x / scale) + zero)), as in quantised models. The limits of the clamp are those of the result
/// type, or narrower ones.
#[test]
fn codes_of_special_floats_and_of_halves() {
    let mut cases = vec![];
    for (t, zero) in [
        (DType::U8, 0.0),
        (DType::U8, 121.0),
        (DType::I8, -128.0),
        (DType::I8, 0.0),
        (DType::I16, -7.0),
        (DType::U16, 65535.0),
    ] {
        let (least, most) = match t {
            DType::U8 => (0.0, 255.0),
            DType::I8 => (-128.0, 127.0),
            DType::U16 => (0.0, 65535.0),
            _ => (-32768.0, 32767.0),
        };
        for (scale, cut) in
            [(0.023529412f32, 0.0), (0.25, 0.0), (2f32.powi(-60), 0.0), (2f32.powi(60), 0.0), (0.1, 20.0)]
        {
            let near = |x: f32| [x.next_down(), x, x.next_up()];
            let half = |i: i32| near(((f64::from(i) / 2.0 - zero) * f64::from(scale)) as f32);
            let mut values: Vec<f32> = special(DType::F32).to_vec::<f32>().unwrap();
            values.extend(
                (2 * least as i32 - 3..2 * most as i32 + 4)
                    .step_by(if t.bits() == 16 { 501 } else { 1 })
                    .flat_map(half),
            );
            let n = values.len().to_string();
            let mut b = Builder::new(&[&n], &[]);
            let (x, divisor) = (b.load(DType::F32, &[&n], &["%0"]), b.constant(f64::from(scale), DType::F32));
            let y = b.apply(ScalarFn::Div, &[x, divisor]);
            let y = b.apply(ScalarFn::Round, &[y]);
            let zero_point = b.constant(zero, DType::F32);
            let y = if zero == 0.0 { y } else { b.apply(ScalarFn::Add, &[zero_point, y]) };
            let (low, high) = (b.constant(least + cut, DType::F32), b.constant(most - cut, DType::F32));
            let y = b.apply(ScalarFn::Max, &[low, y]);
            let y = b.apply(ScalarFn::Min, &[y, high]);
            let y = b.convert(y, t);
            b.store(y, &[&n], &["%0"]);
            let name = format!("{t} {zero} {scale} {cut}");
            cases.push(Case::new(&name, b.0, &[]).exact().read(0, Tensor::from_vec(vec![values.len()], values)));
        }
    }
    check(cases);
}
