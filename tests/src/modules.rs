//! The sources of a crate  =>  which of its modules use which, and the cycles among them

use crate::sources::files;
use std::collections::{BTreeMap, BTreeSet};

/// Maps each module to the modules that it uses. A name is a path from the crate's root, such as `contract::plan`; the
/// name of the root is empty.
pub struct Modules(BTreeMap<String, BTreeSet<String>>);

impl Modules {
    /// Reads the crate with its sources in a folder such as `passes/kernels/src`, without its tests.
    pub fn of_crate(folder: &str) -> Modules {
        let all = files("rs");
        let own = all.iter().filter_map(|(file, text)| Some((file.strip_prefix(folder)?.strip_prefix('/')?, text)));
        Modules::of_files(own.map(|(file, text)| (file, text.as_str())))
    }

    fn of_files<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Modules {
        let is_test = |module: &str| module.split("::").any(|part| part == "tests");
        let named = files.map(|(file, text)| (name(file), text)).filter(|(module, _)| !is_test(module));
        let texts: BTreeMap<String, &str> = named.collect();
        let known: BTreeSet<String> = texts.keys().cloned().collect();
        Modules(texts.iter().map(|(module, text)| (module.clone(), used(module, text, &known))).collect())
    }

    /// Returns the uses among the files and folders at the top level of the crate.
    pub fn rooms(&self) -> Modules {
        let room = |module: &String| module.split("::").next().unwrap_or_default().to_string();
        let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, uses) in &self.0 {
            let from = room(module);
            let used = uses.iter().map(room).filter(|other| *other != from).collect::<Vec<_>>();
            rooms.entry(from).or_default().extend(used);
        }
        Modules(rooms)
    }

    /// Returns the modules that a module uses, in alphabetical order; panics if it does not exist.
    pub fn uses(&self, module: &str) -> impl Iterator<Item = &String> {
        self.0[module].iter()
    }

    /// Returns the cycles of modules that use each other, directly or indirectly, the largest first.
    pub fn circles(&self) -> Vec<Vec<&String>> {
        let reach: BTreeMap<&String, BTreeSet<&String>> = self.0.keys().map(|m| (m, self.reached(m))).collect();
        let circle = |m| -> Vec<&String> { reach[m].iter().copied().filter(|n| reach[n].contains(m)).collect() };
        let found: BTreeSet<Vec<&String>> = self.0.keys().map(circle).filter(|c| c.len() > 1).collect();
        let mut circles: Vec<Vec<&String>> = found.into_iter().collect();
        circles.sort_by_key(|c| std::cmp::Reverse(c.len()));
        circles
    }

    fn reached(&self, from: &str) -> BTreeSet<&String> {
        let (mut open, mut seen): (Vec<&String>, BTreeSet<&String>) = (self.uses(from).collect(), BTreeSet::new());
        while let Some(module) = open.pop() {
            if seen.insert(module) {
                open.extend(self.uses(module));
            }
        }
        seen
    }
}

/// `contract/plan.rs`, `contract/mod.rs`, `lib.rs`  =>  `contract::plan`, `contract` and the root
fn name(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { String::new() } else { path.replace('/', "::") }
}

fn is_path(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == ':'
}

/// Returns the modules that a module's text names in `use` lines and paths.
fn used(module: &str, text: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    let lines = text.lines().take_while(|l| !l.starts_with("#[cfg(test)]"));
    let code: String = lines.map(|l| l.split("//").next().unwrap_or("").to_string() + "\n").collect();
    let mut paths = vec![];
    for statement in code.split(';') {
        let start = statement.rfind("\nuse ").or(statement.rfind(" use ")).map(|at| at + 5);
        if let Some(tree) = start.or(statement.strip_prefix("use ").map(|_| 4)).map(|at| &statement[at..]) {
            expand("", tree, &mut paths);
        }
    }
    // Adds the paths that begin with `crate`, `super`, or a name that a `use` line imports.
    let roots = ["crate", "super"].map(String::from);
    let brought: Vec<String> = paths.iter().map(|path| path.trim_end_matches("::self").to_string()).collect();
    for root in roots.into_iter().chain(brought) {
        let last = format!("{}::", root.rsplit("::").next().unwrap_or(&root));
        let starts = code.match_indices(&last).filter(|(at, _)| !code[..*at].ends_with(is_path));
        let rest = starts.map(|(at, _)| code[at + last.len()..].split(|c| !is_path(c)).next().unwrap_or(""));
        paths
            .extend(rest.filter(|rest| !rest.is_empty() && !rest.ends_with(':')).map(|rest| format!("{root}::{rest}")));
    }
    let found = paths.iter().filter_map(|path| resolved(module, path, known));
    found.filter(|other| other != module).collect()
}

/// `a::{b, c::{d, e}}`  =>  `a::b`, `a::c::d`, `a::c::e`
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        paths.push(format!("{before}{}", tree.split(" as ").next().unwrap_or(tree)));
        return;
    };
    let (before, mut depth, mut from) = (format!("{before}{}", head.trim()), 0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                let part = inner[from..at].trim();
                if !part.is_empty() {
                    expand(&before, part, paths);
                }
                from = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// Returns the innermost module of a path; `None` if it is outside the crate.
fn resolved(module: &str, path: &str, known: &BTreeSet<String>) -> Option<String> {
    let mut base: Vec<&str> = module.split("::").filter(|m| !m.is_empty()).collect();
    let mut rest: Vec<&str> = path.split("::").map(str::trim).collect();
    let child = [&base[..], &rest[..1]].concat().join("::");
    match rest[0] {
        "crate" => base.clear(),
        "super" => {
            let up = rest.iter().take_while(|part| **part == "super").count();
            base.truncate(base.len().saturating_sub(up));
            rest.drain(1..up);
        }
        "self" => {}
        _ if known.contains(&child) => rest.insert(0, "self"),
        _ => return None,
    }
    base.extend(&rest[1..]);
    (0..=base.len()).rev().map(|n| base[..n].join("::")).find(|name| known.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_through_every_kind_of_path() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::c::{D,\n E};\n"),
            ("a/mod.rs", "use std::fmt;\nuse crate::b::{self, f};\n// use crate::unknown;\nfn g() {}\n"),
            ("a/c.rs", "fn h() { super::super::b::f() }\n#[cfg(test)]\nuse crate::d;\n"),
            ("b.rs", "pub(crate) use super::a::{c::D as F, g};\n"),
            ("e.rs", "use super::a;\nfn i() { a::c::h() }\n"),
            ("d.rs", "use crate::Top;\n"),
        ];
        let modules = Modules::of_files(files.into_iter());
        let uses = |m: &str| modules.uses(m).cloned().collect::<Vec<_>>();
        assert_eq!(uses(""), ["a::c"]);
        assert_eq!(uses("a"), ["b"]);
        assert_eq!(uses("a::c"), ["b"]);
        assert_eq!(uses("b"), ["a", "a::c"]);
        assert_eq!(uses("d"), [""]);
        assert_eq!(uses("e"), ["a", "a::c"]);
        assert_eq!(modules.circles(), [["a", "a::c", "b"]]);
        assert_eq!(modules.rooms().circles(), [["a", "b"]]);
    }
}
