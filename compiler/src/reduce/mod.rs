//! a file with a fault, a test for it  =>  the smallest file found that still fails
//!
//! A candidate removes something: outputs, everything before a value (which becomes an input), an operation (replaced
//! by an operand of its type), statements of a kernel, symbols, sizes. It is kept if the test says that the fault is
//! still there. Nothing else needs to be known about the fault.

mod filecheck;
mod graph;
mod model;
mod program;
mod sizes;
mod test;

pub use filecheck::{LINES_MAX, filecheck};
pub use model::{Whole, reduce as reduce_model};
pub use test::{Command, Failure, PassTest, Test, model_fails};

use crate::meaning::{Function, functions};
use melior::Context as MlirContext;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::Context;
use std::collections::BTreeSet;

/// Maximum number of tests of one [`Search`]: that of a model, or of one function of a module.
const TESTS_MAX: usize = 4000;

/// A test, and the number of times it was run.
pub struct Search<'t, T> {
    test: &'t mut dyn FnMut(&T) -> bool,
    n_tests: usize,
}

impl<'t, T> Search<'t, T> {
    /// Creates a search that has not run any test.
    pub fn new(test: &'t mut dyn FnMut(&T) -> bool) -> Search<'t, T> {
        Search { test, n_tests: 0 }
    }

    /// Whether the candidate has the fault; always false once the tests are used up.
    pub fn holds(&mut self, candidate: &T) -> bool {
        self.n_tests += 1;
        self.n_tests <= TESTS_MAX && (self.test)(candidate)
    }

    /// Whether all tests are used up.
    pub fn is_over(&self) -> bool {
        self.n_tests >= TESTS_MAX
    }
}

/// Result of a reduction.
pub struct Reduced {
    /// The smallest module found, as MLIR text.
    pub text: String,
    /// Number of times that the test was run.
    pub n_tests: usize,
}

/// Reduces a module of `sdx` or `flow` functions. `hints` are ONNX nodes near which the fault is likely to be. Errors:
/// E0103 if the text is not MLIR; E0001 if it holds no such function, or if the test fails neither on it nor near
/// a hint.
pub fn reduce(context: &MlirContext, text: &str, test: &mut dyn Test, hints: &[String]) -> Result<Reduced> {
    let module = sardonyx_passes::parse(context, text).ok_or_else(|| {
        Error::user("E0103", "the file is no MLIR that can be read").help("`sardonyx-opt` says where")
    })?;
    let mut all = functions(&module)?;
    if all.is_empty() {
        return Err(Error::user("E0001", "the file holds no function of the levels `sdx` or `flow`")
            .help("print the IR after such a stage: `sardonyx compile MODEL --stop-after simplify -o FILE.mlir`"));
    }
    let cx = Context::new(context);
    let printed = |all: &[Function]| print(cx, all);
    let mut n_tests = 1;
    if !test.fails(&printed(&all)?)? {
        // The whole module may be too large to interpret, or its outputs may hide the fault: tries small functions
        // around the hinted nodes.
        let fails = |all: &Vec<Function>| {
            n_tests += 1;
            printed(all).and_then(|text| test.fails(&text)).unwrap_or(false)
        };
        let found = near(&all, hints).find(fails);
        let none = || Error::user("E0001", "the test finds no fault in the file").help(test.help());
        all = found.ok_or_else(none)?;
    }
    for at in (0..all.len()).rev() {
        let alone = [all[at].clone()];
        n_tests += 1;
        if all.len() > 1 && test.fails(&printed(&alone)?).unwrap_or(false) {
            all = alone.to_vec();
            break;
        }
    }
    for at in 0..all.len() {
        let others = all.clone();
        // Candidates that cannot be printed or tested are rejected.
        let mut fails = |function: Function| {
            let mut all = others.clone();
            all[at] = function;
            print(cx, &all).and_then(|text| test.fails(&text)).unwrap_or(false)
        };
        match &mut all[at] {
            Function::Values(g) => {
                let mut holds = |g: &_| fails(Function::Values(Clone::clone(g)));
                let mut search = Search::new(&mut holds);
                graph::reduce(g, &mut search, hints);
                n_tests += search.n_tests;
            }
            Function::Kernels(p) => {
                let mut holds = |p: &_| fails(Function::Kernels(Clone::clone(p)));
                let mut search = Search::new(&mut holds);
                program::reduce(p, &mut search, hints);
                n_tests += search.n_tests;
            }
        }
    }
    Ok(Reduced { text: printed(&all)?, n_tests })
}

/// Small functions cut out around the hinted nodes.
fn near(all: &[Function], hints: &[String]) -> impl Iterator<Item = Vec<Function>> {
    let values = |f: &Function| match f {
        Function::Values(g) => Some(g.clone()),
        Function::Kernels(_) => None,
    };
    let graphs: Vec<_> = all.iter().filter_map(values).collect();
    graphs.into_iter().flat_map(move |g| graph::near(&g, hints).collect::<Vec<_>>()).map(|g| vec![Function::Values(g)])
}

/// Unused names for new inputs.
fn fresh(taken: BTreeSet<String>) -> impl Iterator<Item = String> {
    (0..).map(|n| format!("x{n}")).filter(move |name| !taken.contains(name))
}

/// The functions as text. Errors: E0901 if one does not verify.
fn print(cx: Context, all: &[Function]) -> Result<String> {
    let mut text = String::new();
    for function in all {
        let op = function.write(cx)?;
        if !op.operation().verify() {
            return Err(Error::defect("a candidate breaks a rule of its level"));
        }
        text += &plain(&op.operation().to_string());
    }
    Ok(text)
}

/// Drops the attributes `sdx.checks` and `sdx.symbols` from the text where they are empty.
fn plain(text: &str) -> String {
    let mut text = text.to_string();
    for empty in ["sdx.checks = []", "sdx.symbols = []"] {
        text = text.replace(&format!("{empty}, "), "").replace(&format!(", {empty}"), "");
    }
    text.trim_end().to_string() + "\n"
}
