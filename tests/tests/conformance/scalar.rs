//! each scalar function and each conversion, for each element type  =>  a case with a single operation

use super::case::{Bound, Case};
use sardonyx_base::DType;
use sardonyx_dialects::scalar::{Domain, ROWS, ResultType, Row, ScalarFn};

static TYPES: &[DType] = &[
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

/// Narrow types: floats of 8 and 4 bits, integers of 4 and 2. Functions are tested in one float type and one integer
/// type of these, conversions from and to [`PARTNERS`].
static SMALL: &[DType] = &[
    DType::F8E4M3FN,
    DType::F8E4M3FNUZ,
    DType::F8E5M2,
    DType::F8E5M2FNUZ,
    DType::F8E8M0,
    DType::F4E2M1,
    DType::I4,
    DType::U4,
    DType::I2,
    DType::U2,
];

static PARTNERS: &[DType] = &[DType::F32, DType::F64, DType::F16, DType::I32, DType::U8, DType::Bool, DType::F8E5M2];

/// No elements, one element, and sizes around the number of threads of a warp and of a block.
const CALLS: &str = "// CALLS n: 0, 1, 31, 33, 255, 257";

pub fn cases() -> Vec<Case> {
    let types = || TYPES.iter().chain(&[DType::F8E4M3FN, DType::I4]);
    let functions = ROWS.iter().flat_map(|row| types().filter(|t| takes(row, **t)).map(|t| function(row, *t)));
    let conversions =
        TYPES.iter().flat_map(|from| TYPES.iter().filter(move |to| *to != from).map(|to| convert(*from, *to)));
    let pairs = SMALL.iter().flat_map(|small| PARTNERS.iter().map(move |other| (*small, *other)));
    let small = pairs.filter(|(a, b)| a != b).flat_map(|(a, b)| [convert(a, b), convert(b, a)]);
    functions.chain(conversions).chain(small).collect()
}

fn takes(row: &Row, t: DType) -> bool {
    match row.domain {
        Domain::Numbers => t != DType::Bool,
        Domain::Floats => t.is_float(),
        Domain::Integers => t.is_int(),
        Domain::Bools => t == DType::Bool,
        Domain::Any => true,
    }
}

fn ty(t: DType) -> String {
    let name = match t {
        DType::Bool => "i1".to_string(),
        DType::F8E4M3FN => "f8E4M3FN".to_string(),
        DType::F8E4M3FNUZ => "f8E4M3FNUZ".to_string(),
        DType::F8E5M2 => "f8E5M2".to_string(),
        DType::F8E5M2FNUZ => "f8E5M2FNUZ".to_string(),
        DType::F8E8M0 => "f8E8M0FNU".to_string(),
        DType::F4E2M1 => "f4E2M1FN".to_string(),
        other => other.to_string().replace('u', "ui"),
    };
    format!("!sdx.tensor<[n], {name}>")
}

fn function(row: &Row, t: DType) -> Case {
    let mut types = vec![t; row.operands];
    if row.function == ScalarFn::Select {
        types[0] = DType::Bool;
    }
    let result = ty(if row.result == ResultType::Bool { DType::Bool } else { t });
    let arguments: Vec<String> = types.iter().enumerate().map(|(i, t)| format!("%x{i}: {}", ty(*t))).collect();
    let names: Vec<String> = (0..types.len()).map(|i| format!("%x{i}")).collect();
    let types: Vec<String> = types.iter().map(|t| ty(*t)).collect();
    let text = format!(
        "{CALLS}\nfunc.func @{}_{t}({}) -> {result} {{\n  %y = sdx.map \"{}\"({}) : ({}) -> {result}\n  return %y : {result}\n}}\n",
        row.name,
        arguments.join(", "),
        row.name,
        names.join(", "),
        types.join(", "),
    );
    let mut case = Case::read("scalar", &text);
    case.bound = bound(row.function);
    case
}

/// Bound of the function in `dialects/FLOATING_POINT.md`.
fn bound(f: ScalarFn) -> Bound {
    use ScalarFn::*;
    let (ulps, absolute) = match f {
        Atan | Exp | Log | Tanh => (4.0, 0.0),
        Pow => (16.0, 0.0),
        Erf | Sin | Cos => (0.0, 2f64.powi(-22)),
        Abs | Add | And | BitAnd | BitOr | BitXor | Shl | Shr | Ceil | Div | Eq | Floor | IsNan | Le | Lt | Max
        | Min | Mul | Neg | Not | Or | Rem | Round | Select | Sign | Sqrt | Sub | Xor => (0.0, 0.0),
    };
    Bound::Function { ulps, absolute }
}

fn convert(from: DType, to: DType) -> Case {
    let (x, y) = (ty(from), ty(to));
    let body = format!("  %y = sdx.convert %x : {x} -> {y}\n  return %y : {y}\n");
    let text = format!("{CALLS}\nfunc.func @{from}_to_{to}(%x: {x}) -> {y} {{\n{body}}}\n");
    let mut case = Case::read("convert", &text);
    case.bound = Bound::Function { ulps: 0.0, absolute: 0.0 };
    case
}
