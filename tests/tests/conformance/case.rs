//! a section of a .mlir file  =>  an sdx program, and the calls to make
//!
//! Directives of a section, before its function:
//!
//!     // CALLS b s: 2 3, 1 1, 0 4         the sizes of the symbols in each call
//!     // INDEX i: n                       the input `i` holds integers from 0 to n - 1
//!     // ONLY fused                       it is not compiled with every operation a kernel of its own

use super::compiled::Route;
use sardonyx_base::Dim;
use sardonyx_dialects::flow::Class;
use std::collections::BTreeMap;
use std::path::Path;

pub type Sizes = BTreeMap<String, i64>;

#[derive(Clone)]
pub struct Case {
    /// File stem and function, for example `contract:linear`.
    pub name: String,
    /// The section, with its directives and function.
    pub text: String,
    pub calls: Vec<Sizes>,
    /// Inputs that hold indices, with the exclusive upper limit of each.
    pub indexes: BTreeMap<String, Dim>,
    pub bound: Bound,
    /// If set, the plan of the fused program must contain at least one kernel of this class.
    pub class: Option<Class>,
    only_fused: bool,
}

/// Permitted distance of the results from the interpreter's.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// An absolute bound, computed from the longest reduction and the largest value that occurs.
    Sums,
    /// The bound of one function in the floating-point contract: units in the last place, plus an absolute part.
    Function { ulps: f64, absolute: f64 },
}

impl Case {
    pub fn read_file(file: &Path) -> Vec<Case> {
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let stem = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        text.split("// -----\n").map(|section| Case::read(&stem, section)).collect()
    }

    pub fn read(stem: &str, section: &str) -> Case {
        let function = section.split("func.func @").nth(1).and_then(|rest| rest.split('(').next());
        let function = function.unwrap_or_else(|| panic!("{stem}: a section without a function"));
        let name = format!("{stem}:{function}");
        let lines = |word: &str| {
            let found =
                section.lines().filter_map(move |l| l.strip_prefix("// ")?.strip_prefix(word.to_string().as_str()));
            found.map(|l| l.split_once(':').map_or((l.trim(), ""), |(a, b)| (a.trim(), b.trim()))).collect::<Vec<_>>()
        };
        let calls: Vec<Sizes> = lines("CALLS").iter().flat_map(|(names, rows)| sizes(names, rows)).collect();
        assert!(!calls.is_empty(), "{name}: no CALLS");
        let index = |(input, limit): &(&str, &str)| (input.to_string(), Dim::parse(limit).expect("a dimension"));
        let indexes = lines("INDEX").iter().map(index).collect();
        let only_fused = !lines("ONLY fused").is_empty();
        Case { text: section.to_string(), calls, indexes, bound: Bound::Sums, class: None, only_fused, name }
    }

    pub fn routes(&self) -> Vec<Route> {
        if self.only_fused { vec![Route::Fused] } else { vec![Route::Fused, Route::Apart] }
    }
}

/// Parses `b s` and `2 3, 1 1` into one table of sizes for each comma-separated group.
fn sizes(names: &str, rows: &str) -> Vec<Sizes> {
    let row = |row: &str| {
        let numbers: Vec<i64> = row.split_whitespace().map(|n| n.parse().expect("a size")).collect();
        let names: Vec<&str> = names.split_whitespace().collect();
        assert_eq!(names.len(), numbers.len(), "{names:?} are {row}");
        names.iter().map(|n| n.to_string()).zip(numbers).collect()
    };
    rows.split(',').map(row).collect()
}
