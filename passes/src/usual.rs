//! the symbols of a program  =>  the sizes of a typical call, which satisfy its checks

use sardonyx_base::Dim;
pub use sardonyx_base::usual::{CALLS, Sizes, USUAL, Usual};
use sardonyx_dialects::sdx::{Check, Symbol, SymbolKind};
use std::collections::BTreeMap;

/// Returns typical values of the symbols that a caller chooses: each symbol of kind `Input` gets a size within its
/// range, and symbols of kind `Kept` and `Rank` are 0. `inputs` are the dimensions of each input.
pub fn usual<'a>(
    symbols: &BTreeMap<String, Symbol>,
    inputs: impl IntoIterator<Item = &'a [Dim]>,
    usual: Usual,
) -> Sizes {
    let inputs: Vec<&[Dim]> = inputs.into_iter().collect();
    let mut out = Sizes::new();
    for (name, symbol) in symbols {
        match &symbol.kind {
            // A symbol of kind `Kept` is the number of positions of a state that stay in place; 0 means that the call
            // copies all positions. Rank 0 stands for all ranks, because no rank has a larger part than rank 0.
            SymbolKind::Kept | SymbolKind::Rank { .. } => out.insert(name.clone(), 0),
            SymbolKind::Input => out.insert(name.clone(), usual.size(name, (symbol.lo, symbol.hi), &inputs)),
            SymbolKind::Data | SymbolKind::Capacity | SymbolKind::Derived { .. } => None,
        };
    }
    out
}

/// Changes the sizes of input symbols, except the fixed ones, until the checks hold; see
/// [`sardonyx_base::usual::keep_checks`].
pub fn keep_checks(
    checks: &[Check],
    symbols: &BTreeMap<String, Symbol>,
    is_fixed: &dyn Fn(&str) -> bool,
    sizes: &mut Sizes,
) {
    let range = |name: &str| symbols.get(name).filter(|s| s.kind == SymbolKind::Input).map(|s| (s.lo, s.hi));
    sardonyx_base::usual::keep_checks(checks.iter().map(|c| (&c.left, &c.right)), &range, is_fixed, sizes);
}
