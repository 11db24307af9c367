//! Hand-computed cases of single operations

use super::*;
use crate::scalar::{Conversion, ReduceFn, ScalarFn};
use crate::sdx::{ContractSpec, WindowSpec};

fn contract(spec: &str, dtype: DType, dims: &[usize], left: Tensor, right: Tensor) -> Tensor {
    op(Op::Contract(ContractSpec::parse(spec).unwrap()), dtype, dims, &[left, right]).unwrap()
}

fn reduce(f: ReduceFn, axes: &[usize], dims: &[usize], arg: Tensor) -> Tensor {
    op(Op::Reduce { f, axes: axes.to_vec() }, arg.dtype(), dims, &[arg]).unwrap()
}

fn slice(starts: &[i64], steps: &[i64], dims: &[usize], arg: &Tensor) -> Result<Tensor> {
    let starts = starts.iter().map(|&s| Dim::constant(s)).collect();
    op(Op::Slice { starts, steps: steps.to_vec() }, arg.dtype(), dims, std::slice::from_ref(arg))
}

fn pad(low: &[i64], dims: &[usize], arg: Tensor, value: Tensor) -> Vec<f64> {
    let low = low.iter().map(|&s| Dim::constant(s)).collect();
    floats(&op(Op::Pad { low }, arg.dtype(), dims, &[arg, value]).unwrap())
}

/// 0, 1, 2 … in row-major order with dimensions `dims`.
fn counting(dims: &[usize]) -> Tensor {
    f32s(dims, &(0..dims.iter().product()).map(|i| i as f32).collect::<Vec<_>>())
}

#[test]
fn constants_and_dims() {
    let c = op(Op::Const(i64s(&[2], &[3, 4])), DType::I64, &[2], &[]).unwrap();
    assert_eq!(floats(&c), [3.0, 4.0]);
    let dims = node(Op::Dims(vec![Dim::parse("2*n + 1").unwrap()]), ty(DType::I64, &["1"]));
    let value = evaluate(&dims, &[], &|_| Some(5)).unwrap();
    assert_eq!((value.dims(), value.get_i64(0)), (&[1][..], Some(11)));
}

#[test]
fn map_rounds_once_to_each_type() {
    let third = |t: Tensor, three: Tensor| {
        let dtype = t.dtype();
        floats(&op(Op::Map(ScalarFn::Div), dtype, &[], &[t, three]).unwrap())[0]
    };
    assert_eq!(third(Tensor::scalar(1f32), Tensor::scalar(3f32)), (1f32 / 3.0) as f64);
    assert_eq!(third(Tensor::scalar(1f64), Tensor::scalar(3f64)), 1.0 / 3.0);
    let (one, three) = (half::f16::from_f64(1.0), half::f16::from_f64(3.0));
    assert_eq!(third(Tensor::scalar(one), Tensor::scalar(three)), 0.333251953125);
    let (one, three) = (half::bf16::from_f64(1.0), half::bf16::from_f64(3.0));
    assert_eq!(third(Tensor::scalar(one), Tensor::scalar(three)), 0.333984375);
}

#[test]
fn integer_maps_wrap_in_every_width() {
    let add = |a: Tensor, b: Tensor| {
        let dtype = a.dtype();
        op(Op::Map(ScalarFn::Add), dtype, &[], &[a, b]).unwrap()
    };
    assert_eq!(add(Tensor::scalar(i8::MAX), Tensor::scalar(1i8)).get_i64(0), Some(i8::MIN as i64));
    assert_eq!(add(Tensor::scalar(i16::MIN), Tensor::scalar(-1i16)).get_i64(0), Some(i16::MAX as i64));
    assert_eq!(add(Tensor::scalar(i32::MAX), Tensor::scalar(1i32)).get_i64(0), Some(i32::MIN as i64));
    assert_eq!(add(Tensor::scalar(i64::MAX), Tensor::scalar(1i64)).get_i64(0), Some(i64::MIN));
    assert_eq!(add(Tensor::scalar(255u8), Tensor::scalar(2u8)).get_i64(0), Some(1));
    assert_eq!(add(Tensor::scalar(65535u16), Tensor::scalar(2u16)).get_i64(0), Some(1));
    assert_eq!(add(Tensor::scalar(u32::MAX), Tensor::scalar(2u32)).get_i64(0), Some(1));
    assert_eq!(add(Tensor::scalar(u64::MAX), Tensor::scalar(2u64)).to_vec::<u64>().unwrap(), [1]);
    let least = [Tensor::scalar(i64::MIN), Tensor::scalar(-1i64)];
    let quotient = op(Op::Map(ScalarFn::Div), DType::I64, &[], &least).unwrap();
    assert_eq!(quotient.get_i64(0), Some(i64::MIN));
    let power = [Tensor::scalar(3u64), Tensor::scalar(64u64)];
    let power = op(Op::Map(ScalarFn::Pow), DType::U64, &[], &power).unwrap();
    assert_eq!(power.to_vec::<u64>().unwrap(), [3u64.wrapping_pow(64)]);
}

#[test]
fn comparisons_and_select_take_every_type() {
    let (a, b) = (f32s(&[3], &[1.0, f32::NAN, 3.0]), f32s(&[3], &[2.0, 2.0, 2.0]));
    let less = op(Op::Map(ScalarFn::Lt), DType::Bool, &[3], &[a.clone(), b.clone()]).unwrap();
    assert_eq!(less.to_vec::<bool>().unwrap(), [true, false, false]);
    let chosen = op(Op::Map(ScalarFn::Select), DType::F32, &[3], &[less.clone(), a, b]).unwrap();
    assert_eq!(floats(&chosen), [1.0, 2.0, 2.0]);
    let not = op(Op::Map(ScalarFn::Not), DType::Bool, &[3], std::slice::from_ref(&less)).unwrap();
    let same = op(Op::Map(ScalarFn::Eq), DType::Bool, &[3], &[not, less]).unwrap();
    assert_eq!(same.to_vec::<bool>().unwrap(), [false; 3]);
}

#[test]
fn maps_of_nothing_and_of_scalars() {
    let empty = op(Op::Map(ScalarFn::Exp), DType::F32, &[2, 0], &[f32s(&[2, 0], &[])]).unwrap();
    assert_eq!(empty.dims(), [2, 0]);
    let scalar = op(Op::Map(ScalarFn::Neg), DType::F32, &[], &[Tensor::scalar(2f32)]).unwrap();
    assert_eq!((scalar.rank(), scalar.get_f64(0)), (0, Some(-2.0)));
}

#[test]
fn converting() {
    let to_u8 =
        op(Op::Convert(Conversion::Value), DType::U8, &[4], &[f32s(&[4], &[-1.0, 2.9, 300.0, f32::NAN])]).unwrap();
    assert_eq!(to_u8.to_vec::<u8>().unwrap(), [0, 2, 255, 0]);
    let to_bool = op(Op::Convert(Conversion::Value), DType::Bool, &[3], &[i64s(&[3], &[0, -4, 1])]).unwrap();
    assert_eq!(to_bool.to_vec::<bool>().unwrap(), [false, true, true]);
    let to_float =
        op(Op::Convert(Conversion::Value), DType::F32, &[2], &[Tensor::from_vec(vec![2], vec![true, false])]).unwrap();
    assert_eq!(floats(&to_float), [1.0, 0.0]);
}

#[test]
fn reducing_over_each_axis_set() {
    let x = counting(&[2, 3]);
    assert_eq!(floats(&reduce(ReduceFn::Add, &[1], &[2], x.clone())), [3.0, 12.0]);
    assert_eq!(floats(&reduce(ReduceFn::Add, &[0], &[3], x.clone())), [3.0, 5.0, 7.0]);
    assert_eq!(floats(&reduce(ReduceFn::Max, &[0, 1], &[], x.clone())), [5.0]);
    assert_eq!(floats(&reduce(ReduceFn::Min, &[1], &[2], x.clone())), [0.0, 3.0]);
    assert_eq!(floats(&reduce(ReduceFn::Mul, &[1], &[2], x.clone())), [0.0, 60.0]);
    assert_eq!(floats(&reduce(ReduceFn::Add, &[], &[2, 3], x.clone())), floats(&x));
    let wrapped = reduce(ReduceFn::Add, &[0], &[], Tensor::from_vec(vec![2], vec![100i8, 100]));
    assert_eq!(wrapped.get_i64(0), Some(-56));
}

#[test]
fn reductions_round_once_and_pass_nan_on() {
    // 1 + 2^-24 + 2^-24 rounded once; rounding to f32 after each addition would lose both small terms.
    let small = 2f32.powi(-24);
    assert_eq!(floats(&reduce(ReduceFn::Add, &[0], &[], f32s(&[3], &[1.0, small, small])))[0], 1.0 + 2f64.powi(-23));
    for f in ReduceFn::ALL {
        assert!(floats(&reduce(f, &[0], &[], f32s(&[3], &[1.0, f32::NAN, 2.0])))[0].is_nan(), "{f:?}");
    }
}

#[test]
fn reductions_of_nothing_are_neutral() {
    let of = |f| floats(&reduce(f, &[0], &[2], f32s(&[0, 2], &[])));
    assert_eq!((of(ReduceFn::Add), of(ReduceFn::Mul)), (vec![0.0; 2], vec![1.0; 2]));
    assert_eq!((of(ReduceFn::Max), of(ReduceFn::Min)), (vec![f64::NEG_INFINITY; 2], vec![f64::INFINITY; 2]));
    let ints = |f| reduce(f, &[0], &[], Tensor::from_vec(vec![0], Vec::<i16>::new())).get_i64(0);
    assert_eq!((ints(ReduceFn::Max), ints(ReduceFn::Min)), (Some(i16::MIN as i64), Some(i16::MAX as i64)));
    assert_eq!(reduce(ReduceFn::Add, &[1], &[0], f32s(&[0, 2], &[])).dims(), [0]);
}

#[test]
fn contractions_of_every_kind() {
    let (a, b) = (counting(&[2, 3]), counting(&[3, 2]));
    assert_eq!(floats(&contract("mk,kn->mn", DType::F32, &[2, 2], a.clone(), b.clone())), [10.0, 13.0, 28.0, 40.0]);
    assert_eq!(floats(&contract("mk,kn->nm", DType::F32, &[2, 2], a.clone(), b.clone())), [10.0, 28.0, 13.0, 40.0]);
    assert_eq!(floats(&contract("mk,mk->", DType::F32, &[], a.clone(), a.clone())), [55.0]);
    assert_eq!(floats(&contract("mk,mk->m", DType::F32, &[2], a.clone(), a.clone())), [5.0, 50.0]);
    assert_eq!(
        floats(&contract("i,j->ji", DType::F32, &[3, 2], counting(&[2]), counting(&[3]))),
        [0., 0., 0., 1., 0., 2.]
    );
    // The letter `p` is reduced, although only one operand has it.
    assert_eq!(floats(&contract("mp,n->mn", DType::F32, &[2, 2], a.clone(), counting(&[2]))), [0.0, 3.0, 0.0, 12.0]);
    assert_eq!(floats(&contract(",->", DType::F32, &[], Tensor::scalar(3f32), Tensor::scalar(4f32))), [12.0]);
    let batched = contract("bmk,bkn->bmn", DType::F32, &[2, 1, 1], counting(&[2, 1, 2]), counting(&[2, 2, 1]));
    assert_eq!(floats(&batched), [1.0, 13.0]);
    let ints = contract("k,k->", DType::I32, &[], Tensor::from_vec(vec![2], vec![100i8, 100]), {
        Tensor::from_vec(vec![2], vec![200u8, 200])
    });
    assert_eq!(ints.get_i64(0), Some(40000));
}

#[test]
fn contractions_agree_with_the_definition() {
    // The 5 rows are no multiple of the 4 accumulated together, two letters are reduced, and every operand is permuted.
    let dims = [('a', 2usize), ('b', 5), ('c', 3), ('d', 2), ('e', 4)];
    let n = |c: char| dims.iter().find(|(l, _)| *l == c).unwrap().1;
    let spec = ContractSpec::parse("dbca,ecda->bea").unwrap();
    let of = |letters: &[char]| counting(&letters.iter().map(|&c| n(c)).collect::<Vec<_>>());
    let (left, right) = (of(&spec.left), of(&spec.right));
    let got = contract("dbca,ecda->bea", DType::F64, &[5, 4, 2], as_f64(&left), as_f64(&right));
    let points = (0..5).flat_map(|b| (0..4).flat_map(move |e| (0..2).map(move |a| (b, e, a))));
    for (at, (b, e, a)) in points.enumerate() {
        let mut sum = 0.0;
        for (c, d) in (0..3).flat_map(|c| (0..2).map(move |d| (c, d))) {
            sum += left.get_f64(((d * 5 + b) * 3 + c) * 2 + a).unwrap()
                * right.get_f64(((e * 3 + c) * 2 + d) * 2 + a).unwrap();
        }
        assert_eq!(got.get_f64(at), Some(sum));
    }
}

fn as_f64(t: &Tensor) -> Tensor {
    Tensor::from_vec(t.dims().to_vec(), floats(t))
}

#[test]
fn contractions_over_nothing_are_zero() {
    let got = contract("mk,kn->mn", DType::F32, &[2, 1], f32s(&[2, 0], &[]), f32s(&[0, 1], &[]));
    assert_eq!(floats(&got), [0.0, 0.0]);
    let got = contract("mp,n->mn", DType::F32, &[1, 1], f32s(&[1, 0], &[]), f32s(&[1], &[f32::INFINITY]));
    assert_eq!(floats(&got), [0.0]);
    let got = contract("mk,kn->mn", DType::F32, &[0, 2], f32s(&[0, 3], &[]), counting(&[3, 2]));
    assert_eq!(got.dims(), [0, 2]);
    let nan = contract("k,k->", DType::F32, &[], f32s(&[1], &[0.0]), f32s(&[1], &[f32::INFINITY]));
    assert!(floats(&nan)[0].is_nan());
}

#[test]
fn gathering_blocks() {
    let gather = |axis, dims: &[usize], data, at| op(Op::Gather { axis }, DType::F32, dims, &[data, at]);
    let x = counting(&[2, 3]);
    assert_eq!(floats(&gather(0, &[2, 3], x.clone(), i64s(&[2], &[1, 0])).unwrap()), [3., 4., 5., 0., 1., 2.]);
    assert_eq!(floats(&gather(1, &[2, 1, 2], x.clone(), i64s(&[1, 2], &[2, 2])).unwrap()), [2., 2., 5., 5.]);
    assert_eq!(floats(&gather(1, &[2], x.clone(), Tensor::scalar(1i64)).unwrap()), [1.0, 4.0]);
    assert_eq!(gather(0, &[0, 3], x.clone(), i64s(&[0], &[])).unwrap().dims(), [0, 3]);
    for bad in [-1, 2] {
        let e = gather(0, &[1, 3], x.clone(), i64s(&[1], &[bad])).unwrap_err();
        assert_eq!((e.code, e.message), ("E0303", format!("the index {bad} is out of range 0..2 of axis 0")));
    }
}

#[test]
fn slicing_forwards_and_backwards() {
    let x = counting(&[3, 4]);
    assert_eq!(floats(&slice(&[1, 0], &[1, 2], &[2, 2], &x).unwrap()), [4., 6., 8., 10.]);
    assert_eq!(floats(&slice(&[2, 3], &[-2, -3], &[2, 2], &x).unwrap()), [11., 8., 3., 0.]);
    assert_eq!(slice(&[0, 9], &[1, 1], &[3, 0], &x).unwrap().dims(), [3, 0]);
    assert_eq!(floats(&slice(&[2, 2], &[i64::MIN, i64::MAX], &[1, 1], &x).unwrap()), [10.0]);
    assert_eq!(slice(&[1, 0], &[1, 1], &[3, 4], &x).unwrap_err().code, "E0303");
    assert_eq!(slice(&[0, 1], &[1, -1], &[3, 3], &x).unwrap_err().code, "E0303");
    assert_eq!(slice(&[0, i64::MAX], &[1, i64::MAX], &[3, 3], &x).unwrap_err().code, "E0303");
}

#[test]
fn padding_and_cropping() {
    let seven = || Tensor::scalar(7f32);
    assert_eq!(pad(&[1], &[4], counting(&[2]), seven()), [7., 0., 1., 7.]);
    assert_eq!(pad(&[-1], &[3], counting(&[3]), seven()), [1., 2., 7.]);
    assert_eq!(pad(&[0, 1], &[2, 2], counting(&[1, 1]), seven()), [7., 0., 7., 7.]);
    assert_eq!(pad(&[5], &[2], counting(&[2]), seven()), [7., 7.]);
    assert_eq!(pad(&[0], &[2], f32s(&[0], &[]), seven()), [7., 7.]);
    assert_eq!(pad(&[], &[], counting(&[]), seven()), [0.]);
}

#[test]
fn concatenating() {
    let concat = |axis, dims: &[usize], parts: &[Tensor]| op(Op::Concat { axis }, DType::F32, dims, parts);
    let (x, y) = (counting(&[2, 2]), f32s(&[2, 1], &[8.0, 9.0]));
    assert_eq!(floats(&concat(1, &[2, 3], &[x.clone(), y.clone()]).unwrap()), [0., 1., 8., 2., 3., 9.]);
    assert_eq!(
        floats(&concat(0, &[3, 2], &[x.clone(), f32s(&[0, 2], &[]), counting(&[1, 2])]).unwrap()),
        [0., 1., 2., 3., 0., 1.]
    );
    assert_eq!(concat(0, &[4, 2], &[x, y]).unwrap_err().code, "E0201");
}

#[test]
fn reshaping_transposing_and_repeating() {
    let x = counting(&[2, 3]);
    let one = std::slice::from_ref(&x);
    assert_eq!(floats(&op(Op::Reshape, DType::F32, &[3, 2], one).unwrap()), floats(&x));
    assert_eq!(op(Op::Reshape, DType::F32, &[4], one).unwrap_err().code, "E0201");
    let t = op(Op::Transpose { perm: vec![1, 0] }, DType::F32, &[3, 2], one).unwrap();
    assert_eq!(floats(&t), [0., 3., 1., 4., 2., 5.]);
    let r = op(Op::Broadcast { dims: vec![1, 2] }, DType::F32, &[2, 2, 3], one).unwrap();
    assert_eq!(floats(&r), [0., 1., 2., 3., 4., 5., 0., 1., 2., 3., 4., 5.]);
    let column = f32s(&[2, 1], &[1.0, 2.0]);
    let r = op(Op::Broadcast { dims: vec![0, 1] }, DType::F32, &[2, 2], std::slice::from_ref(&column)).unwrap();
    assert_eq!(floats(&r), [1., 1., 2., 2.]);
    let r = op(Op::Broadcast { dims: vec![0, 1] }, DType::F32, &[2, 0], &[column]).unwrap();
    assert_eq!(r.dims(), [2, 0]);
    let r = op(Op::Broadcast { dims: vec![] }, DType::F32, &[2], &[Tensor::scalar(4f32)]).unwrap();
    assert_eq!(floats(&r), [4., 4.]);
    let bad = op(Op::Broadcast { dims: vec![0, 1] }, DType::F32, &[2, 6], one).unwrap_err();
    assert_eq!((bad.code, bad.message.as_str()), ("E0201", "dimension 1 of [2, 3] is 3: it cannot repeat to 6"));
}

#[test]
fn movement_takes_every_width() {
    for t in [
        Tensor::from_vec(vec![2, 1], vec![1u8, 2]),
        Tensor::from_vec(vec![2, 1], vec![half::bf16::ONE, half::bf16::from_f64(2.0)]),
        Tensor::from_vec(vec![2, 1], vec![1u32, 2]),
        Tensor::from_vec(vec![2, 1], vec![1f64, 2.0]),
    ] {
        let dtype = t.dtype();
        let out = op(Op::Transpose { perm: vec![1, 0] }, dtype, &[1, 2], std::slice::from_ref(&t)).unwrap();
        assert_eq!((out.dims(), floats(&out)), (&[1, 2][..], vec![1.0, 2.0]));
        assert_eq!(floats(&slice(&[1, 0], &[-1, 1], &[2, 1], &t).unwrap()), [2.0, 1.0]);
    }
}

#[test]
fn iota_counts_along_its_axis() {
    let iota = |axis, dims: &[usize]| op(Op::Iota { axis }, DType::I64, dims, &[]).unwrap();
    assert_eq!(floats(&iota(0, &[2, 2])), [0., 0., 1., 1.]);
    assert_eq!(floats(&iota(1, &[2, 2])), [0., 1., 0., 1.]);
    assert_eq!(iota(0, &[0]).dims(), [0]);
}

#[test]
fn windows_overlap_and_leave_out() {
    let window = |axis, stride, dilation, dims: &[usize], x: &Tensor| {
        let spec = WindowSpec { axis, size: 2.into(), stride, dilation };
        op(Op::Window(spec), DType::F32, dims, std::slice::from_ref(x))
    };
    let x = counting(&[2, 4]);
    assert_eq!(floats(&window(1, 1, 2, &[2, 2, 2], &x).unwrap()), [0., 2., 1., 3., 4., 6., 5., 7.]);
    assert_eq!(floats(&window(1, 3, 1, &[2, 1, 2], &x).unwrap()), [0., 1., 4., 5.]);
    // The offsets within the window are the last dimension, whichever axis is windowed.
    assert_eq!(floats(&window(0, 1, 1, &[1, 4, 2], &x).unwrap()), [0., 4., 1., 5., 2., 6., 3., 7.]);
    assert_eq!(window(1, 1, 1, &[2, 4, 2], &x).unwrap_err().code, "E0303");
    assert_eq!(floats(&window(1, i64::MAX, i64::MAX, &[2, 0, 2], &x).unwrap()), []);
}
