//! Pages: generated ones are up to date, links lead to files and headings, commands have the options that are shown

use sardonyx_tests::prepared::workspace;
use sardonyx_tests::programs::{Outcome, program};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

#[test]
fn generated_pages_are_up_to_date() {
    let run = Command::new(env!("CARGO"))
        .current_dir(workspace())
        .args(["run", "--quiet", "-p", "xtask", "--", "docs", "--check"])
        .output()
        .expect("cargo is there");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// Returns every page that a user reads, with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> = ["README.md", "SECURITY.md", "testdata/README.md", "dialects/FLOATING_POINT.md"]
        .map(|name| workspace().join(name))
        .into();
    let docs = std::fs::read_dir(workspace().join("docs")).expect("the folder of pages");
    paths.extend(docs.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md")));
    paths.sort();
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    paths.iter().map(|path| (path.clone(), text(path))).collect()
}

/// Returns the anchors of a page's headings, as GitHub forms them.
fn anchors(text: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let plain: String = heading.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect();
        plain.replace(' ', "-")
    };
    text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

/// Returns the targets of links, `](…)`, outside of code.
fn links(text: &str) -> Vec<&str> {
    // The parts with an even index are outside of fences.
    let prose = text.split("```").step_by(2).flat_map(str::lines).filter(|line| !line.starts_with("    "));
    let targets = prose.flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut seen = 0;
    for (path, text) in pages() {
        for link in links(&text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", path.display());
            let found = || anchors(&std::fs::read_to_string(&target).unwrap()).contains(anchor);
            assert!(anchor.is_empty() || found(), "{}: {link} is no heading", path.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} links");
}

const PROGRAMS: [&str; 3] = ["sardonyx", "sardonyx-run", "sardonyx-opt"];

/// Parses a command line of a page into program, subcommand and options.
fn command(line: &str) -> Option<(&'static str, String, Vec<String>)> {
    let line = line.trim().trim_start_matches("$ ").split(" #").next()?.split("   ").next()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| PROGRAMS.contains(word))?;
    let launched = at == 0 || ["mpirun", "srun", "PATH=$PWD"].iter().any(|launcher| words[0].starts_with(launcher));
    let program = PROGRAMS.into_iter().find(|name| *name == words[at])?;
    let rest = &words[at + 1..];
    let subcommand = if program == "sardonyx-opt" { "" } else { rest.first()? };
    let options = rest.iter().filter(|word| word.starts_with("--"));
    let name = |word: &&str| word.split(['=', ',', ')', '`']).next().unwrap_or(word).to_string();
    (launched && !subcommand.starts_with('|')).then(|| (program, subcommand.into(), options.map(name).collect()))
}

#[test]
fn command_lines_are_recognised() {
    let shown = "    mpirun -n 2 sardonyx-run check minilm.sdx --data test_data_set_0   # under --mpi";
    let expected = ("sardonyx-run", "check".to_string(), vec!["--data".to_string()]);
    assert_eq!(command(shown), Some(expected));
    assert_eq!(command("    cargo build --release -p sardonyx"), None);
}

/// The commands in code blocks exist and have the options that are shown.
#[test]
fn commands_have_the_options_that_pages_show() {
    let mut helps: BTreeMap<(&str, String), String> = BTreeMap::new();
    let mut seen = 0;
    for (path, text) in pages() {
        for line in text.lines().filter(|line| line.starts_with("    ")) {
            let Some((name, subcommand, options)) = command(line) else { continue };
            let help = helps.entry((name, subcommand.clone())).or_insert_with(|| {
                let given = [subcommand.as_str(), "--help"].into_iter().filter(|argument| !argument.is_empty());
                let outcome = Outcome::from(Command::new(program(name)).args(given).output().unwrap());
                assert_eq!(outcome.code, 0, "{}: {line}", path.display());
                outcome.stdout
            });
            for option in options {
                let has = help.split([' ', ',', '\n', '[']).any(|word| word == option);
                assert!(has, "{}: `{name} {subcommand}` has no {option}: {line}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen} commands");
}
