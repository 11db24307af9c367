//! Dim  =>  integer arithmetic on scalars or lanes

use super::asm::{Asm, Bin, Val};
use sardonyx_base::Dim;
use sardonyx_base::dim::{Atom, Symbol};

/// Emits an integer expression; `symbol` returns the symbols' values, scalar or with `lanes` lanes.
pub fn emit_dim<A: Asm>(asm: &mut A, d: &Dim, lanes: u32, symbol: &mut dyn FnMut(&mut A, &Symbol) -> Val) -> Val {
    let mut sum: Option<Val> = None;
    for (monomial, c) in d.terms() {
        let mut product = (c != 1 || monomial.is_empty()).then(|| asm.i64(c));
        for atom in monomial {
            let v = emit_atom(asm, atom, lanes, symbol);
            product = Some(match product {
                None => v,
                Some(p) => asm.both(Bin::MulI, p, v),
            });
        }
        let term = product.expect("a factor");
        sum = Some(match sum {
            None => term,
            Some(s) => add(asm, s, term),
        });
    }
    sum.unwrap_or_else(|| asm.i64(0))
}

fn emit_atom<A: Asm>(asm: &mut A, atom: &Atom, lanes: u32, symbol: &mut dyn FnMut(&mut A, &Symbol) -> Val) -> Val {
    let (op, a, b) = match atom {
        Atom::Symbol(s) => return symbol(asm, s),
        Atom::FloorDiv(a, b) => (None, a, b),
        Atom::Max(a, b) => (Some(Bin::MaxSI), a, b),
        Atom::Min(a, b) => (Some(Bin::MinSI), a, b),
    };
    let a = emit_dim(asm, a, lanes, symbol);
    let b = emit_dim(asm, b, lanes, symbol);
    match op {
        Some(op) => asm.both(op, a, b),
        None => asm.floordiv(a, b),
    }
}

/// Sum of two integers; broadcasts a scalar to the lanes of the other.
pub fn add(asm: &mut impl Asm, a: Val, b: Val) -> Val {
    asm.both(Bin::AddI, a, b)
}
