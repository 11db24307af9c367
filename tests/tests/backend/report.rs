//! outcomes  =>  a table by operator, the scoreboard's JSON, the unexpected outcomes

use super::attempt::Outcome;
use super::case::Case;
use super::variant::Variant;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of slowest attempts that the summary lists.
const SLOWEST: usize = 8;

pub struct Attempt<'a> {
    pub case: &'a Case,
    pub variant: Variant,
    pub outcome: Outcome,
}

impl Attempt<'_> {
    fn passed(&self) -> bool {
        self.outcome.verdict.is_ok()
    }
}

/// Known failures and their reasons by (variant, case), read from a file with sorted lines `VARIANT CASE: REASON`.
pub struct Expected(BTreeMap<(String, String), String>);

impl Expected {
    pub fn read(path: &Path) -> Expected {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).collect();
        assert!(lines.is_sorted(), "{} is not sorted", path.display());
        let parsed = |line: &str| {
            let (at, reason) = line.split_once(": ").filter(|(_, r)| !r.trim().is_empty())?;
            let (variant, case) = at.split_once(' ')?;
            Variant::from_name(variant)?;
            Some(((variant.to_string(), case.to_string()), reason.to_string()))
        };
        let parse = |line: &&str| parsed(line).unwrap_or_else(|| panic!("`{line}` is not VARIANT CASE: REASON"));
        Expected(lines.iter().map(parse).collect())
    }

    pub fn reason(&self, variant: Variant, case: &str) -> Option<&str> {
        self.0.get(&(variant.name().to_string(), case.to_string())).map(String::as_str)
    }

    /// Panics if a line names a case that is not in the suite; such a line would otherwise never be noticed.
    pub fn check_names(&self, cases: &[Case]) {
        let names: BTreeSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
        for (_, case) in self.0.keys() {
            assert!(names.contains(case.as_str()), "no case `{case}` is in the suite");
        }
    }
}

/// Returns a line for the report; `None` if the outcome is the expected one.
pub fn unexpected(case: &Case, variant: Variant, outcome: &Outcome, expected: &Expected) -> Option<String> {
    let name = format!("{} {}", variant.name(), case.name);
    match (&outcome.verdict, expected.reason(variant, &case.name)) {
        (Ok(()), None) | (Err(_), Some(_)) => None,
        (Ok(()), Some(reason)) => Some(format!("{name}: passes, though it is expected to fail: {reason}")),
        (Err(why), None) => Some(format!("{name}: {}", one_line(why))),
    }
}

pub fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" | ")
}

/// Returns the operator that a case tests: that of the only node in its graph or, for a case `NAME_expanded…`, of the
/// only node in the graph of the case NAME. If there is no such node, returns the kind of the case in parentheses.
fn operator(case: &Case, single: &BTreeMap<PathBuf, String>) -> String {
    let of = |path: &Path| single.get(path).cloned();
    let base = case.name.split("_expanded").next().unwrap_or(&case.name);
    let original = case.model.parent().and_then(Path::parent).map(|p| p.join(base).join("model.onnx"));
    let found = of(&case.model).or_else(|| original.and_then(|p| of(&p)));
    found.unwrap_or_else(|| format!("({})", case.kind))
}

/// Returns a table with the columns `operator  static  dynamic  constant`; a cell of a variant is `passed/all`, in
/// attempts.
pub fn table(attempts: &[Attempt], single: &BTreeMap<PathBuf, String>) -> String {
    let mut rows: BTreeMap<String, BTreeMap<Variant, (usize, usize)>> = BTreeMap::new();
    for a in attempts {
        let cell = rows.entry(operator(a.case, single)).or_default().entry(a.variant).or_default();
        cell.0 += a.passed() as usize;
        cell.1 += 1;
    }
    let mut text = format!("{:<32}{:>12}{:>12}{:>12}\n", "operator", "static", "dynamic", "constant");
    for (operator, cells) in rows {
        let cell = |v| cells.get(&v).map_or(String::new(), |(passed, all)| format!("{passed}/{all}"));
        let [s, d, c] = Variant::ALL.map(cell);
        text += &format!("{operator:<32}{s:>12}{d:>12}{c:>12}\n");
    }
    text
}

/// Returns the summary: a line `static: 1900 of 1914 (99.3 %)` for each variant, times, host operators, and a last line
/// `N passed, N failed` for the static variant, which is the suite as published.
pub fn summary(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for variant in Variant::ALL {
        let of = |a: &&Attempt| a.variant == variant;
        let (all, passed) =
            (attempts.iter().filter(of).count(), attempts.iter().filter(of).filter(|a| a.passed()).count());
        if all > 0 {
            text += &format!("{}: {passed} of {all} ({:.1} %)\n", variant.name(), 100.0 * passed as f64 / all as f64);
        }
    }
    let nodes = || attempts.iter().filter(|a| a.case.is_node() && a.variant == Variant::Static);
    let mut times: Vec<Duration> = nodes().filter_map(|a| a.outcome.compile).collect();
    times.sort();
    if let Some(median) = times.get(times.len() / 2) {
        text += &format!("median compile time of a node case: {:.0} ms\n", median.as_secs_f64() * 1e3);
    }
    let mut slow: Vec<&Attempt> = attempts.iter().collect();
    slow.sort_by_key(|a| std::cmp::Reverse(a.outcome.whole));
    for a in slow.iter().take(SLOWEST).filter(|_| attempts.len() > SLOWEST) {
        text += &format!("slow: {:.1} s {} {}\n", a.outcome.whole.as_secs_f64(), a.variant.name(), a.case.name);
    }
    let compiled = nodes().filter(|a| a.passed() && a.outcome.host.is_empty()).count();
    let on_host: BTreeSet<&str> = nodes().flat_map(|a| &a.outcome.host).map(String::as_str).collect();
    text += &format!("node cases without a host operation: {compiled} of {}\n", nodes().count());
    text += &format!("operators on the host: {}\n", on_host.into_iter().collect::<Vec<_>>().join(" "));
    let whole: Vec<&Attempt> = attempts.iter().filter(|a| a.variant == Variant::Static).collect();
    let passed = whole.iter().filter(|a| a.passed()).count();
    text + &format!("{passed} passed, {} failed", whole.len() - passed)
}

/// Returns the report in the JSON format of the ONNX backend scoreboard: the names of the test methods, grouped by
/// outcome.
pub fn scoreboard(attempts: &[Attempt]) -> String {
    let named = |passed: bool| -> Vec<String> {
        let of = attempts.iter().filter(|a| a.variant == Variant::Static && a.passed() == passed);
        of.map(|a| format!("{}_cpu", a.case.name)).collect()
    };
    let report = json!({
        "name": "sardonyx",
        "versions": [{"name": "sardonyx", "version": env!("CARGO_PKG_VERSION")}, {"name": "onnx", "version": "1.22.0"}],
        "passed": named(true),
        "failed": named(false),
        "skipped": [],
    });
    serde_json::to_string_pretty(&report).expect("json")
}
