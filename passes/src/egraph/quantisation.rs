//! convert(convert(x)) => convert(x),  round(round(x)) => round(x): conversions and roundings around quantisation

use super::expr::{Expr, Site, class, typed};
use super::rule::{Rule, code, rule};
use crate::class::Class::Exact;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::Conversion;
use sardonyx_dialects::sdx::Op;

pub static RULES: &[Rule] = &[
    rule("ceil-of-round", Exact, "(ceil (round ?x)) => (round ?x)"),
    rule("clip-twice", Exact, "(min (max (min (max ?x ?a) ?b) ?a) ?b) => (min (max ?x ?a) ?b) if splat ?a, splat ?b"),
    rule("floor-of-round", Exact, "(floor (round ?x)) => (round ?x)"),
    rule("round-of-ceil", Exact, "(round (ceil ?x)) => (ceil ?x)"),
    rule("round-of-floor", Exact, "(round (floor ?x)) => (floor ?x)"),
    rule("round-twice", Exact, "(round (round ?x)) => (round ?x)"),
    code("convert-twice", Exact, "(convert (convert ?x))", convert_twice),
];

/// Whether `wide` holds every value of `narrow`. Integers hold neither NaN nor infinities.
fn holds_all(wide: DType, narrow: DType) -> bool {
    let fraction = |t: DType| match t {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    };
    match (narrow, wide) {
        (a, b) if a == b => true,
        (DType::Bool, b) => b.is_int() || (b.is_float() && b.bits() >= 16),
        (DType::F16, b) => matches!(b, DType::F32 | DType::F64),
        (DType::BF16, b) => matches!(b, DType::F32 | DType::F64),
        (DType::F32, b) => b == DType::F64,
        (a, b) if a.is_unsigned_int() && b.is_unsigned_int() => a.bits() <= b.bits(),
        (a, b) if a.is_signed_int() && b.is_signed_int() => a.bits() <= b.bits(),
        (a, b) if a.is_unsigned_int() && b.is_signed_int() => a.bits() < b.bits(),
        // Floats of 8 and 4 bits hold few values of other types, and are not held by them in general.
        (a, b) if b.is_float() && b.bits() < 16 || a.is_float() && a.bits() < 16 => false,
        (a, DType::F16) if a.is_int() => a.bits() <= 8,
        (a, b) if a.is_int() && matches!(b, DType::BF16 | DType::F32 | DType::F64) => a.bits() <= fraction(b),
        _ => false,
    }
}

/// convert(convert(x)) => convert(x), where the type in the middle holds every value of x
fn convert_twice(s: &Site) -> Vec<Expr> {
    let middle = s.ty_of(s.arg(0)).dtype;
    let direct = s.find(s.arg(0), |op| (*op == Op::Convert(Conversion::Value)).then_some(()));
    let lossless = direct.filter(|(_, n)| holds_all(middle, s.ty_of(n.args[0]).dtype));
    lossless.map(|(_, n)| typed(Op::Convert(Conversion::Value), s.ty().clone(), vec![class(n.args[0])])).collect()
}
