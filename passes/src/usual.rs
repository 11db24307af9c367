//! the symbols of a program  =>  the sizes of a typical call, which satisfy its checks

use sardonyx_base::Dim;
pub use sardonyx_base::usual::{CALLS, Sizes, USUAL, Usual};
use sardonyx_dialects::sdx::{Check, Symbol, SymbolKind};
use std::collections::BTreeMap;

/// Returns typical values of the symbols that a caller chooses: each symbol of kind `Input` gets a size within its
/// range. `inputs` are the dimensions of each input.
pub fn usual<'a>(
    symbols: &BTreeMap<String, Symbol>,
    inputs: impl IntoIterator<Item = &'a [Dim]>,
    usual: Usual,
) -> Sizes {
    let inputs: Vec<&[Dim]> = inputs.into_iter().collect();
    let mut out = Sizes::new();
    for (name, symbol) in symbols {
        match &symbol.kind {
            // No position of a state is kept in place: the call copies all of them. Rank 0 stands for all ranks,
            // because no rank has a larger part.
            SymbolKind::Kept | SymbolKind::Rank { .. } => out.insert(name.clone(), 0),
            SymbolKind::Input => out.insert(name.clone(), usual.size(name, (symbol.lo, symbol.hi), &inputs)),
            SymbolKind::Data | SymbolKind::Capacity | SymbolKind::Derived { .. } => None,
        };
    }
    out
}

/// Changes sizes of input symbols that are not fixed until the checks hold; see [`sardonyx_base::usual::keep_checks`].
pub fn keep_checks(
    checks: &[Check],
    symbols: &BTreeMap<String, Symbol>,
    is_fixed: &dyn Fn(&str) -> bool,
    sizes: &mut Sizes,
) {
    let range = |name: &str| symbols.get(name).filter(|s| s.kind == SymbolKind::Input).map(|s| (s.lo, s.hi));
    sardonyx_base::usual::keep_checks(checks.iter().map(|c| (&c.left, &c.right)), &range, is_fixed, sizes);
}
