//! o = Σ (p / l)·v  =>  o = (Σ p·v) / l, with one l per row: one division per result instead of per weight
//!
//! A select that replaces NaN weights by 0 is moved after the sum together with the division, since the weights of a
//! softmax row are NaN all at once. Results are rounded at other points of the computation (class: reassociating). If a
//! row attends to no key, values that are not finite no longer make its result NaN (class: finite-only). f16 is
//! excluded, as the undivided sum could overflow.

use crate::splice::renumber_stores;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::{Body, Kernel, Level, Statement};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

pub fn apply(k: &mut Kernel, symbol_lo: &dyn Fn(&Symbol) -> i64) {
    let Some(site) = matches(k, symbol_lo) else { return };
    let dtype = k.body[site.sum].dtype;
    let (mut body, mut map): (Vec<Statement>, Vec<usize>) = (vec![], vec![]);
    let push = |body: &mut Vec<Statement>, new: Body, dtype: DType| {
        body.push(Statement { body: new, dtype });
        body.len() - 1
    };
    for (at, statement) in k.body.iter().enumerate() {
        if at != site.sum {
            let same = statement.body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k]));
            map.push(push(&mut body, same, statement.dtype));
            continue;
        }
        let apply = |f, args: &[usize]| Body::Apply { f, args: args.to_vec() };
        let product = push(&mut body, apply(ScalarFn::Mul, &[map[site.p], map[site.value]]), dtype);
        let sum = push(&mut body, Body::Reduce { f: ReduceFn::Add, arg: product }, dtype);
        let mut by = map[site.by];
        if site.at_least_one {
            let one = push(&mut body, Body::Const(1.0), dtype);
            by = push(&mut body, apply(ScalarFn::Max, &[by, one]), dtype);
        }
        let mut last = push(&mut body, apply(site.f, &[sum, by]), dtype);
        if site.nan_is_zero {
            let nan = push(&mut body, apply(ScalarFn::IsNan, &[map[site.by]]), DType::Bool);
            let zero = push(&mut body, Body::Const(0.0), dtype);
            last = push(&mut body, apply(ScalarFn::Select, &[nan, zero, last]), dtype);
        }
        map.push(last);
    }
    k.body = body;
    renumber_stores(k, &map);
}

struct Site {
    /// The reduction Σ p·v, and v, the value by which each weight is multiplied.
    sum: usize,
    value: usize,
    /// The weight is `f(p, by)`.
    p: usize,
    f: ScalarFn,
    by: usize,
    nan_is_zero: bool,
    /// Whether to divide by max(l, 1): l is the sum of the exponentials of a row, which is 0 if the row has no keys.
    at_least_one: bool,
}

fn matches(k: &Kernel, symbol_lo: &dyn Fn(&Symbol) -> i64) -> Option<Site> {
    let levels = k.levels();
    (0..k.body.len()).find_map(|sum| {
        let Body::Reduce { f: ReduceFn::Add, arg } = k.body[sum].body else { return None };
        let (a, b) = applied(k, arg, ScalarFn::Mul)?;
        let sides = [(a, b), (b, a)].into_iter();
        let mut all = sides.flat_map(|(weight, value)| weights_of(k, &levels, weight).map(move |w| (weight, value, w)));
        all.find_map(|(weight, value, (p, f, by, nan_is_zero))| {
            let kept = matches!(k.body[sum].dtype, DType::F32 | DType::F64 | DType::BF16);
            let whole = has_keys(k, symbol_lo) || (f == ScalarFn::Div && is_at_least(k, by));
            let at_least_one = !whole && f == ScalarFn::Div && is_softmax(k, p, by);
            let same_type = [weight, value, p, by].iter().all(|&s| k.body[s].dtype == k.body[sum].dtype);
            let site = Site { sum, value, p, f, by, nan_is_zero, at_least_one };
            (kept && same_type && (whole || at_least_one)).then_some(site)
        })
    })
}

/// (p, f, l, whether NaN is replaced by 0)
type Weight = (usize, ScalarFn, usize, bool);

/// Returns the ways to express a weight as f(p, l), where l has one value per row, in order of preference.
fn weights_of(k: &Kernel, levels: &[Level], weight: usize) -> impl Iterator<Item = Weight> {
    let per_row = |(p, l): &(usize, usize)| levels[*p] == Level::Point && levels[*l] == Level::Row;
    let quotient = |weight: usize| applied(k, weight, ScalarFn::Div).filter(per_row);
    // A product with a reciprocal that is computed once per row counts as a quotient, too.
    let of_reciprocal = |weight: usize| {
        let (a, b) = applied(k, weight, ScalarFn::Mul)?;
        let reciprocal = |(p, r): (usize, usize)| {
            let (one, l) = applied(k, r, ScalarFn::Div)?;
            matches!(k.body[one].body, Body::Const(1.0)).then_some((p, l))
        };
        reciprocal((a, b)).or_else(|| reciprocal((b, a))).filter(per_row)
    };
    let product = || {
        let (a, b) = applied(k, weight, ScalarFn::Mul)?;
        [(a, b), (b, a)].into_iter().find(per_row)
    };
    let without_nan = || {
        let Body::Apply { f: ScalarFn::Select, args } = &k.body[weight].body else { return None };
        let [nan, zero, weight] = args[..] else { return None };
        let asks = matches!(&k.body[nan].body, Body::Apply { f: ScalarFn::IsNan, args } if args[..] == [weight]);
        let (p, l) = quotient(weight).or_else(|| of_reciprocal(weight))?;
        let fits = asks && matches!(k.body[zero].body, Body::Const(0.0)) && is_softmax(k, p, l);
        fits.then_some((p, ScalarFn::Div, l, true))
    };
    let plain = |f: ScalarFn, found: Option<(usize, usize)>| found.map(|(p, l)| (p, f, l, false));
    let all = [
        plain(ScalarFn::Div, quotient(weight)),
        plain(ScalarFn::Mul, product()),
        plain(ScalarFn::Div, of_reciprocal(weight)),
        without_nan(),
    ];
    all.into_iter().flatten()
}

/// Returns the operands of a statement that applies the given binary function.
fn applied(k: &Kernel, at: usize, wanted: ScalarFn) -> Option<(usize, usize)> {
    match &k.body[at].body {
        Body::Apply { f, args } if *f == wanted => <[usize; 2]>::try_from(args.as_slice()).ok().map(|[a, b]| (a, b)),
        _ => None,
    }
}

/// Whether p = exp(s − max s) and l = Σ p: l is NaN if any p is NaN; otherwise l is at least 1 if the row has a key.
fn is_softmax(k: &Kernel, p: usize, l: usize) -> bool {
    let sums = matches!(k.body[l].body, Body::Reduce { f: ReduceFn::Add, arg } if arg == p);
    let Body::Apply { f: ScalarFn::Exp, args } = &k.body[p].body else { return false };
    let Some((s, m)) = applied(k, args[0], ScalarFn::Sub) else { return false };
    sums && matches!(k.body[m].body, Body::Reduce { f: ReduceFn::Max, arg } if arg == s)
}

/// Whether a statement is the maximum of a value and a positive constant.
fn is_at_least(k: &Kernel, at: usize) -> bool {
    let positive = |s: usize| matches!(k.body[s].body, Body::Const(c) if c > 0.0);
    applied(k, at, ScalarFn::Max).is_some_and(|(a, b)| positive(a) || positive(b))
}

/// Whether every row has at least one key.
fn has_keys(k: &Kernel, symbol_lo: &dyn Fn(&Symbol) -> i64) -> bool {
    let one = |n: &Dim| n.lower_bound(symbol_lo).is_some_and(|lo| lo >= 1);
    k.inner.iter().all(|n| one(n) || k.outer.iter().any(|m| n.provably_ge(m, symbol_lo)))
}
