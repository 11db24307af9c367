//! $4, %3, b1, grid, p2, batch: what a symbol of a dimension expression stands for

use super::text::plain_name;
use super::{Atom, Dim};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A non-negative integer that an expression depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Symbol {
    /// `$4`: the value of statement 4 of a kernel.
    Statement(usize),
    /// `%3`: iteration variable 3 of a kernel.
    Variable(usize),
    /// `b3`: the bytes of buffer 3 of a launch.
    BufferBytes(usize),
    /// `grid`: the number of work items of a launch.
    Grid,
    /// `p2`: parameter 2 of a launch.
    Param(usize),
    /// A dimension of the model, the coordinate of a rank, or a size that data determines.
    Named(Arc<str>),
}

impl Symbol {
    /// The name, if the symbol is named.
    pub fn name(&self) -> Option<&str> {
        if let Symbol::Named(name) = self { Some(name) } else { None }
    }

    /// The number, if the symbol is an iteration variable.
    pub fn variable(&self) -> Option<usize> {
        if let Symbol::Variable(i) = self { Some(*i) } else { None }
    }

    /// The number, if the symbol is the value of a statement.
    pub fn statement(&self) -> Option<usize> {
        if let Symbol::Statement(k) = self { Some(*k) } else { None }
    }

    /// The number, if the symbol is a launch parameter.
    pub fn param(&self) -> Option<usize> {
        if let Symbol::Param(n) = self { Some(*n) } else { None }
    }

    /// Returns whether the symbol is an iteration variable or a statement, which only have meaning within a kernel.
    pub fn is_own(&self) -> bool {
        matches!(self, Symbol::Statement(_) | Symbol::Variable(_))
    }

    /// The symbol that a word without quotes stands for in a kernel.
    pub(super) fn in_kernel(word: &str) -> Symbol {
        let number = |mark| word.strip_prefix(mark).and_then(|n: &str| n.parse().ok());
        let own = number('%').map(Symbol::Variable).or_else(|| number('$').map(Symbol::Statement));
        own.unwrap_or_else(|| Symbol::from(word))
    }

    /// The symbol that a word without quotes stands for in an expression over the arguments of a launch.
    pub(super) fn in_launch(word: &str) -> Symbol {
        let number = |mark| word.strip_prefix(mark).and_then(|n: &str| n.parse().ok());
        let numbered = number('p').map(Symbol::Param).or_else(|| number('b').map(Symbol::BufferBytes));
        numbered.unwrap_or_else(|| if word == "grid" { Symbol::Grid } else { Symbol::from(word) })
    }
}

impl From<&str> for Symbol {
    fn from(name: &str) -> Symbol {
        Symbol::Named(name.into())
    }
}

/// A symbol equals a string if it is named and the string is its name.
impl PartialEq<str> for Symbol {
    fn eq(&self, name: &str) -> bool {
        self.name() == Some(name)
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Symbol::Statement(k) => write!(f, "${k}"),
            Symbol::Variable(i) => write!(f, "%{i}"),
            Symbol::BufferBytes(n) => write!(f, "b{n}"),
            Symbol::Grid => f.write_str("grid"),
            Symbol::Param(n) => write!(f, "p{n}"),
            Symbol::Named(name) if plain_name(name) => f.write_str(name),
            Symbol::Named(name) => write!(f, "\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
        }
    }
}

impl From<Symbol> for Dim {
    fn from(symbol: Symbol) -> Dim {
        Dim::atom(Atom::Symbol(symbol))
    }
}

impl Dim {
    /// Returns the expression that consists of a named symbol.
    pub fn symbol(name: &str) -> Dim {
        Symbol::from(name).into()
    }

    /// Returns the expression that consists of iteration variable `i`.
    pub fn variable(i: usize) -> Dim {
        Symbol::Variable(i).into()
    }

    /// Returns the expression that consists of the value of statement `k`.
    pub fn statement(k: usize) -> Dim {
        Symbol::Statement(k).into()
    }

    /// Returns the expression that consists of launch parameter `n`.
    pub fn param(n: usize) -> Dim {
        Symbol::Param(n).into()
    }

    /// The symbol, if the expression is a single symbol.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        if let Atom::Symbol(symbol) = self.as_atom()? { Some(symbol) } else { None }
    }

    /// The name, if the expression is a single named symbol.
    pub fn as_name(&self) -> Option<&str> {
        self.as_symbol()?.name()
    }

    /// The number, if the expression is a single iteration variable.
    pub fn as_variable(&self) -> Option<usize> {
        self.as_symbol()?.variable()
    }

    /// All symbols that occur in the expression, sorted.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut out = BTreeSet::new();
        self.collect_symbols(&mut out);
        out
    }

    /// The names of the named symbols that occur in the expression, sorted.
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        self.symbols().into_iter().filter_map(|s| if let Symbol::Named(name) = s { Some(name) } else { None }).collect()
    }

    /// The numbers of the iteration variables that occur in the expression, sorted.
    pub fn variables(&self) -> Vec<usize> {
        self.symbols().iter().filter_map(Symbol::variable).collect()
    }

    /// The numbers of the statements whose values occur in the expression, sorted.
    pub fn statements(&self) -> Vec<usize> {
        self.symbols().iter().filter_map(Symbol::statement).collect()
    }

    /// Returns whether an iteration variable or a statement of a kernel occurs in the expression.
    pub fn has_own(&self) -> bool {
        self.symbols().iter().any(Symbol::is_own)
    }

    fn collect_symbols(&self, out: &mut BTreeSet<Symbol>) {
        for atom in self.terms.keys().flatten() {
            match atom {
                Atom::Symbol(symbol) => drop(out.insert(symbol.clone())),
                Atom::FloorDiv(a, b) | Atom::Max(a, b) | Atom::Min(a, b) => {
                    a.collect_symbols(out);
                    b.collect_symbols(out);
                }
            }
        }
    }
}
