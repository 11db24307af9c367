//! the symbols of a program  =>  the sizes of a usual call, which keep its checks

use sardonyx_base::Dim;
use sardonyx_dialects::sdx::{Check, Symbol, SymbolKind};
pub use sardonyx_kernels::usual::{CALLS, USUAL, Usual};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Values by symbol.
pub type Sizes = BTreeMap<String, i64>;

/// A value for every symbol of an input, within its range, and none kept of what a call could keep. `inputs` are the
/// dimensions of each input.
pub fn usual<'a>(
    symbols: &BTreeMap<String, Symbol>,
    inputs: impl IntoIterator<Item = &'a [Dim]>,
    usual: Usual,
) -> Sizes {
    let firsts: Vec<&Dim> = inputs.into_iter().filter_map(|dims| dims.first()).collect();
    let mut out = Sizes::new();
    for (name, symbol) in symbols {
        match &symbol.kind {
            // Of a call with states of its own: everything is copied. The first rank has as much as any.
            SymbolKind::Kept | SymbolKind::Rank { .. } => drop(out.insert(name.clone(), 0)),
            SymbolKind::Input => {
                let is_first = firsts.iter().any(|d| d.symbols().contains(name.as_str()));
                let value = if is_first { usual.first } else { usual.other };
                out.insert(name.clone(), value.min(symbol.hi.unwrap_or(i64::MAX)).max(symbol.lo));
            }
            SymbolKind::Data | SymbolKind::Capacity | SymbolKind::Derived { .. } => {}
        }
    }
    out
}

/// How far beyond the least size of a symbol those are sought that a check needs.
const SOUGHT: i64 = 4096;

/// Gives symbols that are not fixed what a check needs them to be: the side that is a symbol the value of the other one,
/// else all symbols of the check one value, else one of them.
pub fn keep_checks(
    checks: &[Check],
    symbols: &BTreeMap<String, Symbol>,
    is_fixed: &dyn Fn(&str) -> bool,
    sizes: &mut Sizes,
) {
    for check in checks {
        for (free, other) in [(&check.right, &check.left), (&check.left, &check.right)] {
            let value = |d: &Dim| d.eval(&|name| sizes.get(name).copied());
            let (Ok(is), Ok(must)) = (value(free), value(other)) else { continue };
            let name = free.as_symbol().filter(|n| !is_fixed(n));
            if let Some(name) = name.filter(|_| is != must) {
                sizes.insert(name.to_string(), must);
            }
        }
        if holds(check, sizes, &[], 0) != Some(false) {
            continue;
        }
        let names: BTreeSet<Arc<str>> = [&check.left, &check.right].into_iter().flat_map(|d| d.symbols()).collect();
        let is_free = |n: &&Arc<str>| symbols.get(&***n).is_some_and(|s| s.kind == SymbolKind::Input) && !is_fixed(n);
        let free: Vec<&str> = names.iter().filter(is_free).map(|n| &**n).collect();
        let sought = [free.as_slice()].into_iter().chain(free.chunks(1)).find_map(|names| {
            let all = names.iter().map(|n| &symbols[*n]);
            let (lo, hi) = all.fold((0, i64::MAX), |(lo, hi), s| (s.lo.max(lo), s.hi.unwrap_or(hi).min(hi)));
            let mut values = lo.max(1)..=hi.min(lo.saturating_add(SOUGHT));
            values.find(|value| holds(check, sizes, names, *value) == Some(true)).map(|value| (names, value))
        });
        if let Some((names, value)) = sought {
            sizes.extend(names.iter().map(|n| (n.to_string(), value)));
        }
    }
}

/// Whether a check holds where these symbols have one value and others their sizes; `None` where a size is not known.
fn holds(check: &Check, sizes: &Sizes, names: &[&str], value: i64) -> Option<bool> {
    let size = |name: &str| if names.contains(&name) { Some(value) } else { sizes.get(name).copied() };
    let side = |d: &Dim| d.eval(&size).ok();
    Some(side(&check.left)? == side(&check.right)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_sought_that_keep_a_check() {
        let symbol = |lo| Symbol { kind: SymbolKind::Input, lo, hi: None };
        let symbols: BTreeMap<String, Symbol> = [("a", 0), ("b", 2)].map(|(n, lo)| (n.to_string(), symbol(lo))).into();
        let sizes = |left: &str, right: &str, fixed: &str| {
            let dim = |t: &str| Dim::parse(t).unwrap();
            let check = Check { left: dim(left), right: dim(right), why: "/n".into() };
            let mut sizes: Sizes = [("a".to_string(), 1), ("b".to_string(), 128)].into();
            keep_checks(&[check], &symbols, &|name| name == fixed, &mut sizes);
            (sizes["a"], sizes["b"])
        };
        assert_eq!(sizes("a*b", "49", ""), (7, 7));
        assert_eq!(sizes("a*b", "51", ""), (1, 51));
        assert_eq!(sizes("a*b", "49", "b"), (1, 128));
        assert_eq!(sizes("a", "b + 1", ""), (129, 128));
        assert_eq!(sizes("(256*a*b) floordiv 384", "256", "a"), (1, 384));
        assert_eq!(sizes("a*b", "128", ""), (1, 128));
    }
}
