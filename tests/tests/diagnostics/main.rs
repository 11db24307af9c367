//! bad input  =>  one diagnostic (code, file, node, remedy), exit code 2, and no output
//!
//! Each row is one mistake of a user, made in a folder of its own, in which the program is run.

mod artifacts;
mod calls;
mod disk;
mod external;
mod files;
mod folder;
mod fuzz;
mod graphs;
mod shapes;

use folder::Folder;
use sardonyx_tests::programs::{Outcome, program};
use std::process::Command;

/// One mistake and the diagnostic that it must cause.
struct Row {
    name: &'static str,
    code: &'static str,
    /// File that the diagnostic names; empty if the command line is at fault.
    file: &'static str,
    /// Node that the diagnostic names; empty if the mistake is not in a node.
    node: &'static str,
    /// Texts that must occur in the message, in this order.
    words: &'static [&'static str],
    /// Makes the mistake and returns the command line.
    make: fn(&Folder) -> Vec<String>,
}

/// Runs all rows and reports each one that fails.
fn check(rows: &[Row]) {
    let wrong: Vec<String> = rows.iter().filter_map(|row| row.check().err()).collect();
    assert!(wrong.is_empty(), "{} of {} rows:\n\n{}", wrong.len(), rows.len(), wrong.join("\n\n"));
}

impl Row {
    fn check(&self) -> Result<(), String> {
        let folder = Folder::new();
        let line = (self.make)(&folder);
        let mut command = Command::new(program(&line[0]));
        let outcome = Outcome::run(command.args(&line[1..]).current_dir(folder.path()));
        let wrong = |what: String| format!("{}: {what}\n$ {}\n{}", self.name, line.join(" "), outcome.stderr);
        if outcome.code != 2 {
            return Err(wrong(format!("exit code {}", outcome.code)));
        }
        self.check_text(&outcome.stderr).map_err(wrong)?;
        match folder.written() {
            left if left.is_empty() => Ok(()),
            left => Err(wrong(format!("left behind: {left:?}"))),
        }
    }

    /// Checks that the text is `error[CODE]: message`, `  --> file, node N` if the row has a file or node, `  help: …`,
    /// and nothing else.
    fn check_text(&self, text: &str) -> Result<(), String> {
        let Some(rest) = text.strip_prefix(&format!("error[{}]: ", self.code)) else {
            return Err(format!("does not begin with error[{}]", self.code));
        };
        if text.matches("error[").count() != 1 || text.contains("panicked") {
            return Err("more than one diagnostic".into());
        }
        let (body, help) = rest.split_once("\n  help: ").ok_or("no remedy")?;
        if help.trim().is_empty() || help.contains("\n\n") {
            return Err("an empty remedy, or text after it".into());
        }
        let (message, place) = body.split_once("\n  --> ").unwrap_or((body, ""));
        let wanted = match (self.file, self.node) {
            (file, "") => file.to_string(),
            (file, node) => format!("{file}, node {node}"),
        };
        if place != wanted {
            return Err(format!("the place is `{place}`, not `{wanted}`"));
        }
        let mut at = 0;
        for word in self.words {
            let found = message[at..].find(word).ok_or_else(|| format!("`{word}` is not in the message"))?;
            at += found + word.len();
        }
        Ok(())
    }
}
