//! outcomes on a simulated GPU  =>  listed cases that no longer pass, and passing cases that are not listed yet
//!
//! The list holds the static node cases that pass without an operation on the host. `BLESS=1` adds newly passing cases
//! to the list.

use super::report::{Attempt, one_line};
use super::variant::Variant;
use sardonyx_tests::prepared::workspace;
use std::collections::BTreeSet;

pub fn unexpected(attempts: &[Attempt]) -> Vec<String> {
    let path = workspace().join("testdata/backend/sim_sm_80.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut listed: BTreeSet<String> = text.lines().map(str::to_string).collect();
    let counted = |a: &&Attempt| a.variant == Variant::Static && a.case.is_node();
    let passes = |a: &Attempt| a.outcome.verdict.is_ok() && a.outcome.host.is_empty();
    let lost = |a: &&Attempt| listed.contains(&a.case.name) && !passes(a);
    let why = |a: &Attempt| match &a.outcome.verdict {
        Ok(()) => format!("on the host: {}", a.outcome.host.join(" ")),
        Err(why) => one_line(why),
    };
    let mut lines: Vec<String> =
        attempts.iter().filter(counted).filter(lost).map(|a| format!("{}: {}", a.case.name, why(a))).collect();
    let new: Vec<&Attempt> =
        attempts.iter().filter(counted).filter(|a| passes(a) && !listed.contains(&a.case.name)).collect();
    if std::env::var_os("BLESS").is_some() {
        listed.extend(new.iter().map(|a| a.case.name.clone()));
        let text: String = listed.iter().map(|name| format!("{name}\n")).collect();
        std::fs::write(&path, text).expect("testdata can be written");
    } else {
        lines.extend(new.iter().map(|a| format!("{}: passes now; BLESS=1 adds it to the list", a.case.name)));
    }
    lines
}
