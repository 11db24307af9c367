//! 384*%0 + $2  =>  a polynomial whose variables are numbered, so that it is evaluated without looking up names

use sardonyx_base::dim::{Atom, Symbol};
use sardonyx_base::{Dim, Error, Result};

/// An index expression in which model symbols have been replaced by their values.
pub struct Expr {
    terms: Vec<(i64, Vec<Factor>)>,
    text: String,
}

enum Factor {
    Var(usize),
    Value(usize),
    FloorDiv(Expr, Expr),
    Max(Expr, Expr),
    Min(Expr, Expr),
}

impl Expr {
    pub fn new(dim: &Dim, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<Expr> {
        Expr::compile(&dim.substitute(&|symbol| symbols(symbol.name()?).map(Dim::constant)))
    }

    fn compile(dim: &Dim) -> Result<Expr> {
        let text = dim.to_string();
        if dim.is_overflow() {
            return Err(overflow(&text));
        }
        let factor = |atom: &Atom| {
            Ok(match atom {
                Atom::Symbol(Symbol::Variable(i)) => Factor::Var(*i),
                Atom::Symbol(Symbol::Statement(k)) => Factor::Value(*k),
                Atom::Symbol(symbol) => {
                    return Err(Error::user("E0204", format!("the symbol `{symbol}` has no value")));
                }
                Atom::FloorDiv(a, b) => Factor::FloorDiv(Expr::compile(a)?, Expr::compile(b)?),
                Atom::Max(a, b) => Factor::Max(Expr::compile(a)?, Expr::compile(b)?),
                Atom::Min(a, b) => Factor::Min(Expr::compile(a)?, Expr::compile(b)?),
            })
        };
        let term = |(atoms, c): (&[Atom], i64)| Ok((c, atoms.iter().map(factor).collect::<Result<Vec<_>>>()?));
        Ok(Expr { terms: dim.terms().map(term).collect::<Result<_>>()?, text })
    }

    pub fn eval(&self, vars: &[i64], value: &dyn Fn(usize) -> i64) -> Result<i64> {
        let mut sum = 0i64;
        for (c, factors) in &self.terms {
            let mut product = *c;
            for factor in factors {
                let x = self.factor(factor, vars, value)?;
                product = product.checked_mul(x).ok_or_else(|| overflow(&self.text))?;
            }
            sum = sum.checked_add(product).ok_or_else(|| overflow(&self.text))?;
        }
        Ok(sum)
    }

    fn factor(&self, factor: &Factor, vars: &[i64], value: &dyn Fn(usize) -> i64) -> Result<i64> {
        let both = |a: &Expr, b: &Expr| -> Result<(i64, i64)> { Ok((a.eval(vars, value)?, b.eval(vars, value)?)) };
        Ok(match factor {
            Factor::Var(i) => vars[*i],
            Factor::Value(k) => value(*k),
            Factor::FloorDiv(a, b) => {
                let (a, b) = both(a, b)?;
                let quotient = if b > 0 { a.checked_div_euclid(b) } else { None };
                quotient.ok_or_else(|| overflow(&self.text))?
            }
            Factor::Max(a, b) => both(a, b).map(|(a, b)| a.max(b))?,
            Factor::Min(a, b) => both(a, b).map(|(a, b)| a.min(b))?,
        })
    }
}

fn overflow(text: &str) -> Box<Error> {
    Error::user("E0202", format!("the value of `{text}` overflows"))
}
