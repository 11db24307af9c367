//! PTX text  =>  lines with guard, operation and operands, and the text with an edit applied

/// A kernel's text, line by line.
pub struct Source {
    pub lines: Vec<Line>,
}

/// One line; `op` is empty if the line is not an instruction.
#[derive(Clone)]
pub struct Line {
    pub text: String,
    /// Predicate under which the instruction is executed, such as `@%p1` or `@!%p1`.
    pub guard: Option<String>,
    pub op: String,
    pub args: Vec<String>,
}

/// The change that makes a mutant.
#[derive(Clone)]
pub enum Edit {
    Delete(usize),
    Replace(usize, Line),
    /// Moves the line `.0` to just after the line `.1`.
    MoveAfter(usize, usize),
    /// Moves the line `.0` to just before the line `.1`.
    MoveBefore(usize, usize),
}

impl Edit {
    /// Returns the index of the line that is changed or moved.
    pub fn line(&self) -> usize {
        match self {
            Edit::Delete(i) | Edit::Replace(i, _) | Edit::MoveAfter(i, _) | Edit::MoveBefore(i, _) => *i,
        }
    }
}

impl Source {
    pub fn read(text: &str) -> Source {
        Source { lines: text.lines().map(Line::read).collect() }
    }

    /// Indices of the lines whose operation begins with one of the prefixes.
    pub fn with_op(&self, prefixes: &[&str]) -> Vec<usize> {
        let begins = |line: &Line| prefixes.iter().any(|prefix| line.op.starts_with(prefix));
        (0..self.lines.len()).filter(|i| begins(&self.lines[*i])).collect()
    }

    /// Returns the indices of the lines after line `i` in its basic block: up to a label, a branch or the end of the
    /// kernel.
    pub fn following(&self, i: usize) -> impl Iterator<Item = usize> {
        (i + 1..self.lines.len()).take_while(|i| !self.lines[*i].leaves_block())
    }

    pub fn preceding(&self, i: usize) -> impl Iterator<Item = usize> {
        (0..i).rev().take_while(|i| !self.lines[*i].leaves_block())
    }

    pub fn edited(&self, edit: &Edit) -> String {
        let mut lines: Vec<String> = self.lines.iter().map(|line| line.text.clone()).collect();
        match edit {
            Edit::Delete(i) => drop(lines.remove(*i)),
            Edit::Replace(i, line) => lines[*i] = line.write(),
            Edit::MoveAfter(from, to) => {
                let line = lines.remove(*from);
                lines.insert(if from < to { *to } else { to + 1 }, line);
            }
            Edit::MoveBefore(from, to) => {
                let line = lines.remove(*from);
                lines.insert(if from < to { to - 1 } else { *to }, line);
            }
        }
        lines.join("\n") + "\n"
    }

    /// The text with a line inserted before line `i`.
    pub fn with_before(&self, i: usize, text: &str) -> String {
        let mut lines: Vec<&str> = self.lines.iter().map(|line| line.text.as_str()).collect();
        lines.insert(i, text);
        lines.join("\n") + "\n"
    }

    /// Describes an edit in one line.
    pub fn describe(&self, edit: &Edit) -> String {
        let text = |i: usize| self.lines[i].text.trim().to_string();
        match edit {
            Edit::Delete(i) => format!("without `{}`", text(*i)),
            Edit::Replace(i, line) => format!("`{}` => `{}`", text(*i), line.write().trim()),
            Edit::MoveAfter(i, to) => format!("`{}` after `{}`", text(*i), text(*to)),
            Edit::MoveBefore(i, to) => format!("`{}` before `{}`", text(*i), text(*to)),
        }
    }
}

impl Line {
    fn read(text: &str) -> Line {
        let plain = Line { text: text.to_string(), guard: None, op: String::new(), args: Vec::new() };
        let code = text.split("//").next().unwrap_or("").trim();
        let Some(code) = code.strip_suffix(';') else { return plain };
        if code.starts_with('.') || code.contains(':') && !code.contains("::") {
            return plain;
        }
        let (guard, code) = match code.strip_prefix('@').and_then(|rest| rest.split_once(char::is_whitespace)) {
            Some((guard, rest)) => (Some(format!("@{guard}")), rest.trim()),
            None => (None, code),
        };
        let (op, operands) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
        Line { guard, op: op.to_string(), args: split(operands), ..plain }
    }

    pub fn write(&self) -> String {
        let guard = self.guard.as_ref().map_or(String::new(), |guard| format!("{guard} "));
        format!("  {guard}{} {};", self.op, self.args.join(", "))
    }

    fn leaves_block(&self) -> bool {
        let op = self.op.as_str();
        let label = op.is_empty() && self.text.trim_end().ends_with(':');
        label || op.starts_with("bra") || op == "ret" || op == "exit" || self.text.trim() == "}"
    }

    pub fn with_args(&self, args: Vec<String>) -> Line {
        Line { args, ..self.clone() }
    }

    pub fn with_arg(&self, i: usize, arg: String) -> Line {
        let mut line = self.clone();
        line.args[i] = arg;
        line
    }

    pub fn with_op(&self, op: String) -> Line {
        Line { op, ..self.clone() }
    }

    /// Returns whether one of the dot-separated parts of the operation is `part`.
    pub fn has_part(&self, part: &str) -> bool {
        self.op.split('.').any(|p| p == part)
    }
}

/// Splits operands at commas outside of brackets and braces.
fn split(operands: &str) -> Vec<String> {
    let (mut args, mut depth) = (vec![String::new()], 0);
    for c in operands.chars() {
        depth += i32::from(matches!(c, '[' | '{')) - i32::from(matches!(c, ']' | '}'));
        match args.last_mut() {
            Some(_) if c == ',' && depth == 0 => args.push(String::new()),
            Some(arg) => arg.push(c),
            None => {}
        }
    }
    args.iter().map(|arg| arg.trim().to_string()).filter(|arg| !arg.is_empty()).collect()
}

/// Splits a vector operand: `{a, b}` => a, b
pub fn elements(list: &str) -> Option<Vec<String>> {
    let inner = list.strip_prefix('{')?.strip_suffix('}')?;
    Some(inner.split(',').map(|e| e.trim().to_string()).collect())
}

/// Adds a number of bytes to an address: `[a+4]` => `[a+20]` for 16 bytes
pub fn shifted(address: &str, bytes: i64) -> Option<String> {
    let inner = address.strip_prefix('[')?.strip_suffix(']')?;
    let split = inner.rfind(['+', '-']).filter(|at| inner[at + 1..].trim().parse::<i64>().is_ok());
    let (base, offset) = match split {
        Some(at) => {
            let value: i64 = inner[at + 1..].trim().parse().ok()?;
            (inner[..at].trim(), if inner[at..].starts_with('-') { -value } else { value })
        }
        None => (inner, 0),
    };
    let offset = offset + bytes;
    Some(if offset < 0 { format!("[{base}-{}]", -offset) } else { format!("[{base}+{offset}]") })
}

#[test]
fn lines_are_read_and_written() {
    let line = Line::read("  @!%p1 ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r3+16]; // a tile");
    assert_eq!(line.guard.as_deref(), Some("@!%p1"));
    assert_eq!((line.op.as_str(), line.args.len()), ("ld.shared.v4.f32", 2));
    assert_eq!(line.write(), "  @!%p1 ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r3+16];");
    assert_eq!(Line::read(".reg .b32 %r<4>;").op, "");
    assert_eq!(Line::read("L1:").op, "");
    assert_eq!(shifted("[%r3]", 4).as_deref(), Some("[%r3+4]"));
    assert_eq!(shifted("[tile+%r]", 4).as_deref(), Some("[tile+%r+4]"));
    assert_eq!(shifted("[%r3 + 16]", -32).as_deref(), Some("[%r3-16]"));
    let source = Source::read("a 1;\nb 2;\nc 3;\n");
    assert_eq!(source.edited(&Edit::MoveAfter(0, 1)), "b 2;\na 1;\nc 3;\n");
    assert_eq!(source.edited(&Edit::MoveBefore(2, 0)), "c 3;\na 1;\nb 2;\n");
}
