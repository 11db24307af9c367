//! the symbols of a program  =>  the sizes of a usual call, which keep its checks

use sardonyx_base::Dim;
use sardonyx_dialects::sdx::{Check, Symbol, SymbolKind};
pub use sardonyx_kernels::usual::{CALLS, USUAL, Usual};
use std::collections::BTreeMap;

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

/// Gives symbols that are not fixed what a check needs them to be.
pub fn keep_checks(checks: &[Check], is_fixed: &dyn Fn(&str) -> bool, sizes: &mut Sizes) {
    for check in checks {
        for (free, other) in [(&check.right, &check.left), (&check.left, &check.right)] {
            let value = |d: &Dim| d.eval(&|name| sizes.get(name).copied());
            let (Ok(is), Ok(must)) = (value(free), value(other)) else { continue };
            let name = free.as_symbol().filter(|n| !is_fixed(n));
            if let Some(name) = name.filter(|_| is != must) {
                sizes.insert(name.to_string(), must);
            }
        }
    }
}
