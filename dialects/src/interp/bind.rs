//! input tensors, declared symbols  =>  the value of each symbol; checks the requirements of the call

use super::World;
use crate::flow::Program;
use crate::sdx::{Check, Graph, Symbol, SymbolKind};
use sardonyx_base::solve::sources;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::collections::BTreeMap;

/// Inputs, symbols and checks that a function of any level declares.
#[derive(Clone)]
pub struct Signature<'g> {
    /// Name, element type and dimensions of each input.
    inputs: Vec<(&'g str, DType, &'g [Dim])>,
    symbols: &'g BTreeMap<String, Symbol>,
    checks: &'g [Check],
}

impl<'g> From<&'g Graph> for Signature<'g> {
    fn from(graph: &'g Graph) -> Signature<'g> {
        let inputs = graph.inputs().map(|(_, name, ty)| (name, ty.dtype, ty.dims.as_slice())).collect();
        Signature { inputs, symbols: &graph.symbols, checks: &graph.checks }
    }
}

impl<'g> From<&'g Program> for Signature<'g> {
    fn from(program: &'g Program) -> Signature<'g> {
        let container = |id: usize| &program.containers[id];
        let input =
            |(name, id): &'g (String, usize)| (name.as_str(), container(*id).dtype, container(*id).dims.as_slice());
        Signature {
            inputs: program.inputs.iter().map(input).collect(),
            symbols: &program.symbols,
            checks: &program.checks,
        }
    }
}

/// Values of symbols, and the signature that declares them.
pub struct Symbols<'g> {
    declared: Signature<'g>,
    values: BTreeMap<String, i64>,
    /// For each check of the function, whether it has been evaluated, which happens as soon as all its symbols have
    /// values.
    checked: Vec<bool>,
}

impl<'g> Symbols<'g> {
    /// Binds symbols from the dimensions of the inputs, in order: a symbol is bound by the first dimension that is the
    /// bare symbol, or else by the first expression with no other unknown. All other dimensions must agree with the
    /// values.
    pub fn new(declared: Signature<'g>, inputs: &[(String, Tensor)], world: &dyn World) -> Result<Symbols<'g>> {
        check_names(&declared, inputs)?;
        let checked = vec![false; declared.checks.len()];
        let given = |(name, symbol): (&String, &Symbol)| match symbol.kind {
            SymbolKind::Kept => Some((name.clone(), 0)),
            SymbolKind::Rank { axis } => Some((name.clone(), world.coordinate(axis)?)),
            _ => None,
        };
        let values = declared.symbols.iter().filter_map(given).collect();
        let mut symbols = Symbols { declared: declared.clone(), values, checked };
        for &(name, dtype, dims) in &declared.inputs {
            let tensor = input(inputs, name)?;
            if tensor.dtype() != dtype {
                return Err(mismatch(name, format!("has elements of type {}, not {dtype}", tensor.dtype())));
            }
            if tensor.rank() != dims.len() {
                return Err(mismatch(name, format!("has rank {}, not {}", tensor.rank(), dims.len())));
            }
        }
        let of_inputs = |s: &str| declared.symbols.get(s).is_none_or(|s| s.kind == SymbolKind::Input);
        for source in sources(declared.inputs.iter().map(|(_, _, dims)| *dims), &of_inputs) {
            let (name, _, dims) = declared.inputs[source.input];
            let size = input(inputs, name)?.dims()[source.axis] as i64;
            let value = source.value(size, &|s| symbols.get(s)).ok_or_else(|| {
                let dim = &dims[source.axis];
                mismatch(name, format!("has {size} in dimension {}, for which `{dim}` has no solution", source.axis))
            })?;
            symbols.values.insert(source.symbol.to_string(), value);
        }
        for &(name, _, dims) in &declared.inputs {
            let tensor = input(inputs, name)?;
            for (i, (dim, &n)) in dims.iter().zip(tensor.dims()).enumerate() {
                let wanted = dim.eval_named(&|s| symbols.get(s)).map_err(|e| e.node(name))?;
                if wanted != n as i64 {
                    return Err(mismatch(name, format!("has {n} in dimension {i}, but `{dim}` is {wanted}")));
                }
            }
        }
        for (name, symbol) in declared.symbols {
            let value = match &symbol.kind {
                SymbolKind::Input => symbols.get(name),
                // Skipped if the expression contains data-dependent symbols, which have no values yet.
                SymbolKind::Derived { equals, .. } => equals.eval_named(&|s| symbols.get(s)).ok(),
                SymbolKind::Kept => Some(0),
                SymbolKind::Rank { .. } => symbols.get(name),
                // A capacity affects only where elements are stored; a data-dependent symbol has no value yet.
                SymbolKind::Data | SymbolKind::Capacity => None,
            };
            if let Some(value) = value {
                symbols.check_range(name, value).map_err(|m| Error::user("E0301", m))?;
            }
        }
        symbols.check_due()?;
        Ok(symbols)
    }

    pub fn get(&self, name: &str) -> Option<i64> {
        self.values.get(name).copied()
    }

    /// Binds a data-dependent symbol to its value.
    pub fn bind(&mut self, symbol: &str, value: i64) -> Result<()> {
        if let Some(before) = self.get(symbol).filter(|&before| before != value) {
            return Err(Error::user("E0201", format!("the data give `{symbol}` the values {before} and {value}")));
        }
        self.check_range(symbol, value).map_err(|m| Error::user("E0201", m))?;
        self.values.insert(symbol.to_string(), value);
        self.check_due()
    }

    fn check_range(&self, name: &str, value: i64) -> std::result::Result<(), String> {
        // Every symbol is a count, so even an undeclared one must not be negative.
        let symbol = self.declared.symbols.get(name);
        let (lo, hi) = (symbol.map_or(0, |s| s.lo), symbol.and_then(|s| s.hi));
        if value >= lo && hi.is_none_or(|hi| value <= hi) {
            return Ok(());
        }
        let range = hi.map_or(format!("at least {lo}"), |hi| format!("between {lo} and {hi}"));
        Err(format!("`{name}` is {value}, but must be {range}"))
    }

    fn check_due(&mut self) -> Result<()> {
        for (check, done) in self.declared.checks.iter().zip(&mut self.checked) {
            let known = |d: &Dim| d.names().iter().all(|s| self.values.contains_key(&**s));
            if *done || !known(&check.left) || !known(&check.right) {
                continue;
            }
            let value = |d: &Dim| d.eval_named(&|s| self.values.get(s).copied());
            let (left, right) = (value(&check.left)?, value(&check.right)?);
            if left != right {
                let message =
                    format!("`{}` is {left} and `{}` is {right}, but they must be equal", check.left, check.right);
                return Err(Error::user("E0201", message).node(check.why.clone()));
            }
            *done = true;
        }
        Ok(())
    }
}

fn mismatch(name: &str, what: String) -> Box<Error> {
    Error::user("E0301", format!("the input `{name}` {what}"))
}

/// The tensor passed for an input.
pub fn input<'a>(inputs: &'a [(String, Tensor)], name: &str) -> Result<&'a Tensor> {
    let found = inputs.iter().find(|(given, _)| given == name);
    found.map(|(_, t)| t).ok_or_else(|| mismatch(name, "is missing".to_string()))
}

fn check_names(declared: &Signature, inputs: &[(String, Tensor)]) -> Result<()> {
    for (i, (name, _)) in inputs.iter().enumerate() {
        if inputs[..i].iter().any(|(other, _)| other == name) {
            return Err(mismatch(name, "is given twice".to_string()));
        }
        if !declared.inputs.iter().any(|(declared, _, _)| declared == name) {
            let known: Vec<&str> = declared.inputs.iter().map(|(n, _, _)| *n).collect();
            return Err(mismatch(name, "is not one of the model's".to_string())
                .help(format!("the model's inputs are: {}", known.join(", "))));
        }
    }
    Ok(())
}
