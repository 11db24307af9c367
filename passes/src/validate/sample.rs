//! symbols with their ranges and checks  =>  small sizes;   element type, dimensions, bounds  =>  a random tensor

use sardonyx_base::random::Random;
use sardonyx_base::{DType, Dim, Tensor, minifloat, packed};
use sardonyx_dialects::sdx::{Check, Symbol, SymbolKind};
use std::collections::BTreeMap;

/// Returns the declared symbols, and the undeclared symbols that occur in dimensions, as symbols of kind `Input`.
pub fn symbols<'d>(
    declared: &BTreeMap<String, Symbol>,
    dims: impl Iterator<Item = &'d Dim>,
) -> BTreeMap<String, Symbol> {
    let mut out = declared.clone();
    for name in dims.flat_map(|d| d.names()).map(|s| s.to_string()) {
        out.entry(name).or_insert(Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
    }
    out
}

/// How sizes and operands are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// Number of different sizes from which the size of a symbol is chosen.
    pub sizes: u64,
    /// Number of different integers, from 0 or from an operand's lower bound on; small enough for valid indices.
    pub whole_below: u64,
    pub floats: (f64, f64),
}

const ANY: (f64, f64) = (-2.0, 2.0);
/// Bounds of random operands for logarithms and roots.
const POSITIVE: (f64, f64) = (0.1, 2.0);

/// Variants that are tried in order until the program before the rewrite can be evaluated; the last variants are for
/// large parts, and for dimensions of extent 1.
pub static DRAWS: &[Draw] = &[
    Draw { sizes: 4, whole_below: 2, floats: ANY },
    Draw { sizes: 4, whole_below: 2, floats: POSITIVE },
    Draw { sizes: 4, whole_below: 1, floats: ANY },
    Draw { sizes: 4, whole_below: 1, floats: POSITIVE },
    Draw { sizes: 1, whole_below: 2, floats: ANY },
    Draw { sizes: 1, whole_below: 1, floats: POSITIVE },
];

pub type Sizes = BTreeMap<String, i64>;

/// Maximum number of attempts to find sizes that satisfy all checks.
const TRIES: u64 = 400;

/// Returns small values for all symbols except derived ones, or `None` if no attempt satisfies the model's checks. No
/// cached positions are kept in place, since that does not affect a program's meaning.
pub fn sizes(symbols: &BTreeMap<String, Symbol>, checks: &[Check], how: &Draw, r: &mut Random) -> Option<Sizes> {
    let fits = |drawn: &Sizes| {
        let value = |name: &str| drawn.get(name).copied();
        let holds = |c: &Check| match (c.left.eval_named(&value), c.right.eval_named(&value)) {
            (Ok(left), Ok(right)) => left == right,
            (Err(_), _) | (_, Err(_)) => false,
        };
        let in_range = |s: &Symbol| match &s.kind {
            SymbolKind::Derived { equals, .. } => {
                equals.eval_named(&value).is_ok_and(|v| v >= s.lo && s.hi.is_none_or(|hi| v <= hi))
            }
            SymbolKind::Rank { .. } => true,
            SymbolKind::Input | SymbolKind::Data | SymbolKind::Capacity | SymbolKind::Kept => true,
        };
        checks.iter().all(holds) && symbols.values().all(in_range)
    };
    (0..TRIES).find_map(|t| {
        // Sizes of 1 hide errors, so they are used only where larger sizes do not fit.
        let least = if t < TRIES / 2 { 2 } else { 1 };
        let draw = |s: &Symbol, r: &mut Random| {
            if s.kind == SymbolKind::Kept {
                return 0;
            }
            if let (SymbolKind::Rank { .. }, Some(last)) = (&s.kind, s.hi) {
                return r.below(last as u64 + 1) as i64;
            }
            let lo = s.lo.max(least).min(s.hi.unwrap_or(i64::MAX));
            (lo + r.below(how.sizes) as i64).min(s.hi.unwrap_or(i64::MAX))
        };
        let own = symbols.iter().filter(|(_, s)| !matches!(s.kind, SymbolKind::Derived { .. }));
        let drawn: Sizes = own.map(|(name, s)| (name.clone(), draw(s, r))).collect();
        fits(&drawn).then_some(drawn)
    })
}

/// Returns a tensor of random elements within the bounds.
pub fn tensor(dtype: DType, dims: &[usize], (lo, hi): (f64, f64), how: &Draw, r: &mut Random) -> Option<Tensor> {
    let n: usize = dims.iter().product();
    let (lo, hi) = match (lo.is_finite(), hi.is_finite()) {
        (true, true) => (lo, hi),
        (true, false) => (lo, lo + 4.0),
        (false, true) => (hi - 4.0, hi),
        (false, false) => how.floats,
    };
    let dims = dims.to_vec();
    let mut floats = || (0..n).map(|_| (lo + (hi - lo) * r.fraction()).clamp(-1e4, 1e4)).collect::<Vec<f64>>();
    Some(match dtype {
        DType::F64 => Tensor::from_vec(dims, floats()),
        DType::F32 => Tensor::from_vec(dims, floats().into_iter().map(|x| x as f32).collect()),
        DType::F16 => Tensor::from_vec(dims, floats().into_iter().map(half::f16::from_f64).collect()),
        DType::BF16 => Tensor::from_vec(dims, floats().into_iter().map(half::bf16::from_f64).collect()),
        t if t.is_float() => {
            let code = |x: f64| minifloat::encode(t, minifloat::round(t, x)).map(|code| code as u8);
            let codes: Vec<u8> = floats().into_iter().map(code).collect::<Option<_>>()?;
            Tensor::new(t, dims, codes.into()).ok()?
        }
        DType::Bool => Tensor::from_vec(dims, (0..n).map(|_| lo >= 1.0 || (hi > 0.0 && r.below(2) == 1)).collect()),
        _ => {
            let (lo, hi) = if lo > 0.0 { (lo, hi.max(lo)) } else { (0.0, hi.max(0.0)) };
            let mut one = || (lo as i64).saturating_add(r.below(how.whole_below) as i64).min(hi.min(1e9) as i64);
            let whole: Vec<i64> = (0..n).map(|_| one()).collect();
            if !dtype.is_int() {
                return None;
            }
            let bytes: Vec<u8> = whole.iter().flat_map(|x| x.to_le_bytes().into_iter().take(dtype.bytes())).collect();
            Tensor::new(dtype, dims, packed::normalise(dtype, bytes.into())).ok()?
        }
    })
}
