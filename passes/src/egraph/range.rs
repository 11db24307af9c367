//! exp(x) ∈ [0, ∞], iota ∈ [0, n − 1]: bounds on the elements of a value, from those of its operands

use sardonyx_base::DType;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

/// Every element is in `lo..=hi`, or may be NaN if `nan` is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub lo: f64,
    pub hi: f64,
    pub nan: bool,
}

/// Upper bound on the extent of a dimension: memory would run out before a larger one.
pub const EXTENT_MAX: f64 = (1u64 << 48) as f64;

/// Bound on the magnitude of integers that are treated as exact in f64.
const EXACT_MAX: f64 = (1u64 << 52) as f64;

/// Relative error allowed for functions that are not correctly rounded.
const SLACK: f64 = 1e-5;

impl Range {
    pub fn any(dtype: DType) -> Range {
        let (lo, hi) = match dtype {
            DType::Bool => (0.0, 1.0),
            t if t.is_unsigned_int() => (0.0, 2f64.powi(t.bits() as i32)),
            t if t.is_signed_int() => (-2f64.powi(t.bits() as i32 - 1), 2f64.powi(t.bits() as i32 - 1)),
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        };
        Range { lo, hi, nan: dtype.is_float() }
    }

    pub fn new(lo: f64, hi: f64) -> Range {
        Range { lo, hi, nan: false }
    }

    /// The smallest range that contains the values.
    pub fn from_values(values: impl Iterator<Item = f64>) -> Range {
        let start = Range { lo: f64::INFINITY, hi: f64::NEG_INFINITY, nan: false };
        values.fold(start, |r, v| match v.is_nan() {
            true => Range { nan: true, ..r },
            false => Range { lo: r.lo.min(v), hi: r.hi.max(v), nan: r.nan },
        })
    }

    /// Whether all elements are the same number.
    pub fn is_single(self) -> bool {
        self.lo == self.hi && !self.nan
    }

    pub fn finite(self) -> bool {
        !self.nan && self.lo > f64::NEG_INFINITY && self.hi < f64::INFINITY
    }

    pub fn union(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi), nan: self.nan || other.nan }
    }

    /// Range of a value in both ranges.
    pub fn intersection(self, other: Range) -> Range {
        Range { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi), nan: self.nan && other.nan }
    }

    fn infinite(self) -> bool {
        self.lo == f64::NEG_INFINITY || self.hi == f64::INFINITY
    }

    fn holds_zero(self) -> bool {
        self.lo <= 0.0 && self.hi >= 0.0
    }
}

/// The smallest range that contains the bounds; `None` if one of them is NaN.
fn hull(bounds: &[f64], nan: bool) -> Option<Range> {
    if bounds.iter().any(|b| b.is_nan()) {
        return None;
    }
    let lo = bounds.iter().copied().fold(f64::INFINITY, f64::min);
    let hi = bounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(Range { lo, hi, nan })
}

/// Rounds bounds as the element type does; rounding is monotonic, so bounds stay bounds.
fn rounded(r: Range, dtype: DType) -> Range {
    match dtype {
        DType::F64 => r,
        DType::F32 => Range { lo: r.lo as f32 as f64, hi: r.hi as f32 as f64, nan: r.nan },
        // Types this narrow round too coarsely for the margin below, and some turn large values into NaN.
        t if t.is_float() && t.bits() < 16 => Range::any(t),
        t if t.is_float() => {
            let widened = |v: f64, up: f64| match v {
                // Bounds only move outwards: a large value may become infinity, but never less than it was.
                v if v * up > 3e4 => up * f64::INFINITY,
                v if v.is_infinite() => v,
                v => v + up * (v.abs() * 0.01 + if v == 0.0 { 0.0 } else { 1e-6 }),
            };
            Range { lo: widened(r.lo, -1.0), hi: widened(r.hi, 1.0), nan: r.nan }
        }
        t => {
            let all = Range::any(t);
            match r.lo >= all.lo.max(-EXACT_MAX) && r.hi < all.hi.min(EXACT_MAX) {
                true => r,
                false => all,
            }
        }
    }
}

/// Range of a scalar function's result. `same`: the first two operands are the same value.
pub fn map(f: ScalarFn, args: &[Range], same: bool, operand: DType, result: DType) -> Range {
    let any = Range::any(result);
    let inside = |r: Option<Range>| r.map_or(any, |r| rounded(r, result));
    let nan = args.iter().any(|a| a.nan);
    let (a, b) = (args[0], args.get(1).copied().unwrap_or(args[0]));
    let monotone = |g: fn(f64) -> f64| Range { lo: g(a.lo), hi: g(a.hi), nan };
    let approximate = |g: fn(f64) -> f64| {
        let r = monotone(g);
        Range { lo: r.lo - r.lo.abs() * SLACK, hi: r.hi + r.hi.abs() * SLACK, nan }
    };
    let clipped = |lo: f64, hi: f64, r: Range| Range { lo: r.lo.max(lo), hi: r.hi.min(hi), nan: r.nan };
    let truth = |r: Option<bool>| r.map_or(Range::new(0.0, 1.0), |t| Range::new(t as u8 as f64, t as u8 as f64));
    match f {
        ScalarFn::Abs => {
            let lo = if a.holds_zero() { 0.0 } else { a.lo.abs().min(a.hi.abs()) };
            // The absolute value of the least integer is that integer; `inside` accounts for it.
            inside(Some(Range { lo, hi: a.lo.abs().max(a.hi.abs()), nan }))
        }
        ScalarFn::Add => inside(hull(&[a.lo + b.lo, a.hi + b.hi], nan || (a.infinite() && b.infinite()))),
        ScalarFn::Sub => inside(hull(&[a.lo - b.hi, a.hi - b.lo], nan || (a.infinite() && b.infinite()))),
        ScalarFn::Mul => {
            let nan = nan || (a.infinite() && b.holds_zero()) || (b.infinite() && a.holds_zero());
            let r = match same {
                true if result.is_float() => Some(Range { lo: 0.0, hi: (a.lo * a.lo).max(a.hi * a.hi), nan: a.nan }),
                _ => hull(&[a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi], nan),
            };
            inside(r)
        }
        ScalarFn::Div if b.holds_zero() || !result.is_float() => any,
        ScalarFn::Div => {
            let nan = nan || (a.infinite() && b.infinite());
            inside(hull(&[a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi], nan))
        }
        ScalarFn::Neg => inside(Some(Range { lo: -a.hi, hi: -a.lo, nan })),
        ScalarFn::Max => Range { lo: a.lo.max(b.lo), hi: a.hi.max(b.hi), nan },
        ScalarFn::Min => Range { lo: a.lo.min(b.lo), hi: a.hi.min(b.hi), nan },
        ScalarFn::Exp => inside(Some(clipped(0.0, f64::INFINITY, approximate(f64::exp)))),
        ScalarFn::Sqrt => {
            let r = Range { lo: a.lo.max(0.0).sqrt(), hi: a.hi.max(0.0).sqrt(), nan: nan || a.lo < 0.0 };
            inside(Some(r))
        }
        ScalarFn::Tanh => inside(Some(clipped(-1.0, 1.0, approximate(f64::tanh)))),
        ScalarFn::Erf => Range { lo: if a.lo >= 0.0 { 0.0 } else { -1.0 }, hi: 1.0, nan },
        ScalarFn::Sin | ScalarFn::Cos => Range { lo: -1.0, hi: 1.0, nan: nan || a.infinite() },
        ScalarFn::Floor => inside(Some(monotone(f64::floor))),
        ScalarFn::Ceil => inside(Some(monotone(f64::ceil))),
        ScalarFn::Round => inside(Some(monotone(f64::round_ties_even))),
        ScalarFn::Sign => {
            let lo = if a.lo < 0.0 { -1.0 } else { 0.0 };
            Range { lo, hi: if a.hi > 0.0 { 1.0 } else { 0.0 }, nan }
        }
        ScalarFn::Select => match (a.lo, a.hi) {
            (1.0, _) => args[1],
            (_, 0.0) => args[2],
            (_, _) => args[1].union(args[2]),
        },
        // A comparison with NaN is false, so a possible NaN only rules out "always true".
        ScalarFn::Lt if same => truth(Some(false)),
        ScalarFn::Lt => truth(decided(!nan && a.hi < b.lo, a.lo >= b.hi)),
        ScalarFn::Le => truth(decided(!nan && (a.hi <= b.lo || same), a.lo > b.hi)),
        ScalarFn::Eq => {
            let point = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo && a.lo.abs() < EXACT_MAX;
            truth(decided(!nan && (point || same), a.hi < b.lo || b.hi < a.lo))
        }
        ScalarFn::IsNan => truth(decided(false, !a.nan || !operand.is_float())),
        ScalarFn::Not => Range::new(1.0 - a.hi, 1.0 - a.lo),
        ScalarFn::And => Range::new(a.lo.min(b.lo), a.hi.min(b.hi)),
        ScalarFn::Or => Range::new(a.lo.max(b.lo), a.hi.max(b.hi)),
        ScalarFn::Atan => Range { lo: -2.0, hi: 2.0, nan },
        ScalarFn::Xor | ScalarFn::Pow | ScalarFn::Rem | ScalarFn::Log => any,
        ScalarFn::BitAnd | ScalarFn::BitOr | ScalarFn::BitXor | ScalarFn::Shl | ScalarFn::Shr => any,
    }
}

fn decided(yes: bool, no: bool) -> Option<bool> {
    (yes || no).then_some(yes)
}

pub fn convert(a: Range, from: DType, to: DType) -> Range {
    let any = Range::any(to);
    match (from.is_float(), to.is_float()) {
        _ if to == DType::Bool => match (a.lo, a.hi) {
            (0.0, 0.0) if !a.nan => Range::new(0.0, 0.0),
            (lo, hi) if lo > 0.0 || hi < 0.0 => Range::new(1.0, 1.0),
            _ => any,
        },
        (true, true) => rounded(a, to),
        (false, true) => rounded(Range { nan: false, ..a }, to),
        (true, false) => {
            let lo = if a.nan { a.lo.min(0.0) } else { a.lo };
            let hi = if a.nan { a.hi.max(0.0) } else { a.hi };
            Range::new(lo.trunc().max(any.lo), hi.trunc().min(any.hi))
        }
        (false, false) => rounded(a, to),
    }
}

/// Range of the result of a reduction. `empty`: there may be no elements. `n_max`: maximum number of elements that are
/// combined.
pub fn reduce(f: ReduceFn, a: Range, empty: bool, n_max: f64, dtype: DType) -> Range {
    let any = Range::any(dtype);
    let neutral = |v: f64| if dtype.is_float() { Range::new(v, v) } else { any };
    match f {
        ReduceFn::Max if empty => a.union(neutral(f64::NEG_INFINITY)),
        ReduceFn::Min if empty => a.union(neutral(f64::INFINITY)),
        ReduceFn::Max | ReduceFn::Min => a,
        ReduceFn::Mul => any,
        ReduceFn::Add => {
            let n_max = n_max.max(1.0);
            let lo = if a.lo >= 0.0 { 0.0 } else { a.lo * n_max };
            let hi = if a.hi <= 0.0 { 0.0 } else { a.hi * n_max };
            // Partial sums may overflow to infinities of both signs.
            let both = lo < -f32::MAX as f64 / 2.0 && hi > f32::MAX as f64 / 2.0;
            let half = dtype.is_float() && !matches!(dtype, DType::F32 | DType::F64);
            let slack = |v: f64, up: f64| v + up * v.abs() * SLACK;
            match half {
                true => Range { lo: if lo >= 0.0 { 0.0 } else { any.lo }, hi: any.hi, nan: a.nan || lo < 0.0 },
                false => rounded(Range { lo: slack(lo, -1.0), hi: slack(hi, 1.0), nan: a.nan || both }, dtype),
            }
        }
    }
}
