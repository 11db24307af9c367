//! data movement of a program  =>  the table on the terminal, the JSON objects of a report

use super::say;
use crate::movement::{Movement, Question, Row, Sum, formula, of_kind, sum};
use crate::sizes::parse_sizes;
use sardonyx_base::Result;
use sardonyx_base::json::Json;
use sardonyx_passes::movement::{Kind, Sure};
use std::io::Write;

/// Sizes and device for which data movement is counted.
#[derive(Clone, Debug, clap::Args)]
pub struct MovementArgs {
    /// Sizes at which data movement is counted: NAME=N[,NAME=N] [default: 1 for the first dimension of inputs, 128 for
    /// others]
    #[arg(long, value_name = "NAME=N,…")]
    pub at: Vec<String>,
    /// The device whose caches the counts assume: a name that `sardonyx devices` lists, or a TOML file
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub device: Option<String>,
}

impl MovementArgs {
    /// Parses the sizes and the device. Errors: E0204, E0001, E0406.
    pub fn question(&self, default_device: &str) -> Result<Question> {
        let device = self.device.as_deref().unwrap_or(default_device);
        Ok(Question { at: parse_sizes(&self.at)?, device: super::devices::spec(device)? })
    }
}

/// 448803840  =>  `448.8 M`
pub fn short(n: i64) -> String {
    match n.abs() {
        0..10_000 => n.to_string(),
        10_000..10_000_000 => format!("{:.1} K", n as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.1} G", n as f64 / 1e9),
    }
}

/// Prints a table of words and operations for each class, before and after optimisation.
pub fn print(m: &Movement, out: &mut dyn Write) -> Result<()> {
    let at: Vec<String> = m.sizes.iter().map(|(name, n)| format!("{name}={n}")).collect();
    say(out, &format!("movement in words at {} on {}:", at.join(" "), m.device))?;
    let head =
        ["class", "operators", "words", "share", "launches", "words", "share", "scheduled", "bound", "operations"];
    say(out, &line(&head.map(String::from)))?;
    let (before, after) = (sum(&m.before), sum(&m.after));
    for kind in Kind::ALL {
        let of = (sum(of_kind(&m.before, kind)), sum(of_kind(&m.after, kind)));
        if of.0.rows + of.1.rows > 0 {
            say(out, &line(&cells(kind.name(), of, (before, after))))?;
        }
    }
    say(out, &line(&cells("all", (before, after), (before, after))))?;
    let (change, ratio) = (share(after.words, before.words) - 1.0, share(after.lower_bound, after.scheduled));
    let text = format!(
        "algebraic {} => {} ({:+.1} %), scheduled {}, lower bound {} ({:.1} % of scheduled)",
        short(before.words),
        short(after.words),
        100.0 * change,
        short(after.scheduled),
        short(after.lower_bound),
        100.0 * ratio
    );
    say(out, &text)
}

fn share(part: i64, of: i64) -> f64 {
    if of == 0 { 1.0 } else { part as f64 / of as f64 }
}

fn cells(name: &str, (before, after): (Sum, Sum), (all_before, all_after): (Sum, Sum)) -> [String; 10] {
    let percent = |part, of| format!("{:.1} %", 100.0 * share(part, of));
    [
        name.into(),
        before.rows.to_string(),
        short(before.words),
        percent(before.words, all_before.words),
        after.rows.to_string(),
        short(after.words),
        percent(after.words, all_after.words),
        short(after.scheduled),
        short(after.lower_bound),
        short(after.flops),
    ]
}

fn line(cells: &[String; 10]) -> String {
    let [name, others @ ..] = cells;
    others.iter().fold(format!("  {name:<13}"), |line, cell| format!("{line} {cell:>10}"))
}

/// The member `movement` of a report.
pub fn movement_json(m: &Movement) -> Json {
    let (before, after) = (sum(&m.before), sum(&m.after));
    let classes = Kind::ALL.into_iter().map(|kind| {
        let (before, after) = (sum(of_kind(&m.before, kind)), sum(of_kind(&m.after, kind)));
        Json::Object(vec![
            ("class", kind.name().into()),
            ("before", sum_json("operators", before, false)),
            ("after", sum_json("launches", after, true)),
        ])
    });
    let formulas = Json::Object(vec![
        ("before", formula(&m.before).to_string().into()),
        ("after", formula(&m.after).to_string().into()),
    ]);
    Json::Object(vec![
        ("device", m.device.as_str().into()),
        ("at", at_json(m)),
        (
            "algebraic",
            Json::Object(vec![("before", before.words.into()), ("after", after.words.into()), ("formulas", formulas)]),
        ),
        ("scheduled", Json::Object(vec![("after", after.scheduled.into())])),
        ("lower_bound", after.lower_bound.into()),
        ("lower_bound_of_scheduled", share(after.lower_bound, after.scheduled).into()),
        ("operations", Json::Object(vec![("before", before.flops.into()), ("after", after.flops.into())])),
        ("classes", Json::List(classes.collect())),
    ])
}

fn at_json(m: &Movement) -> Json {
    let symbol =
        |(name, n): (&String, &i64)| Json::Object(vec![("symbol", name.as_str().into()), ("size", (*n).into())]);
    Json::List(m.sizes.iter().map(symbol).collect())
}

fn sum_json(rows: &'static str, s: Sum, emitted: bool) -> Json {
    let mut members = vec![(rows, s.rows.into()), ("words", s.words.into()), ("operations", s.flops.into())];
    if emitted {
        members.extend([("scheduled", s.scheduled.into()), ("lower_bound", s.lower_bound.into())]);
    }
    Json::Object(members)
}

/// The member `kernels` of a report. Launches of one kernel with the same formula share an entry, which states the
/// number of launches.
pub fn kernels_json(m: &Movement) -> Json {
    let mut groups: Vec<Vec<&Row>> = vec![];
    for row in &m.after {
        let same = |g: &&mut Vec<&Row>| g[0].name == row.name && g[0].formula == row.formula;
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    Json::List(groups.iter().map(|group| row_json(group)).collect())
}

/// The member `operators` of a report: what each operator would move on its own.
pub fn operators_json(m: &Movement) -> Json {
    Json::List(m.before.iter().map(|row| row_json(&[row])).collect())
}

fn row_json(rows: &[&Row]) -> Json {
    let first = rows[0];
    let origins = rows.iter().flat_map(|r| &r.origins).map(|o| o.as_str().into());
    let mut members = vec![
        ("name", first.name.as_str().into()),
        ("class", first.kind.name().into()),
        ("origins", Json::List(origins.collect())),
        ("words", first.words.into()),
        ("formula", first.formula.words.to_string().into()),
        ("exact", Json::from(sure(first.formula.sure))),
        ("operations", first.flops.into()),
    ];
    if let (Some(scheduled), Some(bound)) = (first.scheduled, first.lower_bound) {
        members.extend([
            ("scheduled", scheduled.into()),
            ("lower_bound", bound.into()),
            ("launches", rows.len().into()),
        ]);
    }
    Json::Object(members)
}

/// The text that says how exact a formula is.
fn sure(sure: Sure) -> &'static str {
    match sure {
        Sure::Exact => "exact",
        Sure::ByData => "at most, by data",
        Sure::AtMost => "at most",
    }
}
