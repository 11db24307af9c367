//! check --layers MODEL.onnx --data DIR…  =>  a row for each node, the first that differs, the first non-finite one

use super::{CheckArgs, say};
use crate::layers::{Apart, Bound, Fault, Finding, Layers, Report, Row, State};
use sardonyx_base::json::Json;
use sardonyx_base::{Result, Tensor};
use sardonyx_run::{CheckSummary, DataSet, find_sets};
use sardonyx_runtime::Session;
use std::io::Write;
use std::path::Path;

pub fn check_layers(layers: &Layers, session: &Session, args: &CheckArgs, out: &mut dyn Write) -> Result<CheckSummary> {
    let bound = Bound { rtol: args.data.rtol(), atol: args.data.atol() };
    let given = args.values.as_deref().map(|folder| layers.values.given(folder)).transpose()?;
    let mut sets = vec![];
    for dir in &args.data.data {
        sets.extend(find_sets(dir)?);
    }
    let (mut summary, mut reports) = (CheckSummary::default(), vec![]);
    for set in &sets {
        let data = DataSet::read(set, session.model().entry("main")?)?;
        let wanted = match &given {
            Some(given) => with_outputs(layers, given, &data.expected),
            None => layers.values.interpret(&data.inputs)?,
        };
        let report = layers.compare(session, &data.inputs, &wanted, bound)?;
        (summary.passed, summary.failed) =
            (summary.passed + report.passed() as usize, summary.failed + !report.passed() as usize);
        match args.data.json {
            true => reports.push(json(set, &report)),
            false => print(set, &report, out)?,
        }
    }
    let CheckSummary { passed, failed, .. } = summary;
    if args.data.json {
        let members = vec![("passed", passed.into()), ("failed", failed.into()), ("sets", Json::List(reports))];
        say(out, &Json::Object(members).to_string())?;
    } else {
        say(out, &format!("{passed} passed, {failed} failed"))?;
    }
    Ok(summary)
}

/// The given values, completed by the data set's expected outputs where no value is given.
fn with_outputs(layers: &Layers, given: &[Option<Tensor>], expected: &[(String, Tensor)]) -> Vec<Option<Tensor>> {
    let mut wanted = given.to_vec();
    for (name, value) in &layers.values.outputs {
        let expected = expected.iter().find(|(n, _)| n == name);
        if let (Some(at), Some((_, tensor))) = (*value, expected) {
            wanted[at].get_or_insert_with(|| tensor.clone());
        }
    }
    wanted
}

fn print(set: &Path, report: &Report, out: &mut dyn Write) -> Result<()> {
    say(out, &format!("{}:", set.display()))?;
    say(out, &format!("{:<9}  {:<9}  {:<16}  node", "max abs", "max rel", "where"))?;
    let width = report.rows.iter().map(|r| r.op.len()).max().unwrap_or(0);
    for row in &report.rows {
        let [abs, rel] = numbers(row).map(|e| e.map_or("-".into(), |e| format!("{e:.3e}")));
        say(out, &format!("{abs:<9}  {rel:<9}  {:<16}  {:<width$}  {}", place(report, row), row.op, row.node))?;
    }
    say(out, &counts(report))?;
    for (name, apart) in &report.wrong {
        let by = apart.map_or("its shape is another".into(), |a| describe(&a));
        say(out, &format!("the output {name} is wrong: {by}"))?;
    }
    match &report.first {
        Some(first) => say(out, &format!("the first node that diverges: {}", sentence(report, first)))?,
        None if report.passed() => {}
        None => say(out, "every node's value is there: the outputs are wrong only where they are handed over")?,
    }
    match &report.first_nonfinite {
        Some(first) => say(out, &format!("the first NaN or infinity: {}", sentence(report, first))),
        None => Ok(()),
    }
}

fn numbers(row: &Row) -> [Option<f64>; 2] {
    match &row.state {
        State::Agrees { apart, .. } => [Some(apart.abs_max), Some(apart.rel_max)],
        State::Absent | State::Suspect => [None, None],
    }
}

fn place(report: &Report, row: &Row) -> String {
    match &row.state {
        State::Agrees { launch, inside, .. } => {
            format!("{} {} {launch}", if *inside { "inside" } else { "from" }, report.launches[*launch].0)
        }
        State::Absent => "absent".into(),
        State::Suspect => "wrong or absent".into(),
    }
}

fn counts(report: &Report) -> String {
    let of = |is: &dyn Fn(&State) -> bool| report.rows.iter().filter(|r| is(&r.state)).count();
    let results = of(&|s| matches!(s, State::Agrees { inside: false, .. }));
    let inside = of(&|s| matches!(s, State::Agrees { inside: true, .. }));
    let (suspect, absent) = (of(&|s| matches!(s, State::Suspect)), of(&|s| matches!(s, State::Absent)));
    let n = report.rows.len();
    let mut text =
        format!("{} of {n} nodes agree: {results} as results of launches, {inside} inside", results + inside);
    if absent > 0 {
        text += &format!("; {absent} are no values of the program");
    }
    if suspect > 0 {
        text += &format!("; {suspect} lead to a wrong output");
    }
    text
}

fn sentence(report: &Report, finding: &Finding) -> String {
    let mut text = format!("{} ({}), value {}", finding.node, finding.op, finding.value);
    if let Some((launch, apart)) = &finding.nearest {
        let (kernel, origins) = &report.launches[*launch];
        text += &format!(": {}; launch {launch} of {kernel} computes {}", describe(apart), origins.join(" "));
    }
    text + match finding.fault {
        Fault::Meaning => "",
        Fault::Code => "; the code is at fault: the kernel means something else",
    }
}

fn describe(apart: &Apart) -> String {
    let mut text = format!("max abs error {:.3e}, max rel error {:.3e}", apart.abs_max, apart.rel_max);
    if apart.n_nonfinite > 0 {
        text += &format!(", {} elements are not finite", apart.n_nonfinite);
    }
    text
}

fn json(set: &Path, report: &Report) -> Json {
    let row = |row: &Row| {
        let mut members = vec![
            ("node", row.node.as_str().into()),
            ("op", row.op.as_str().into()),
            ("value", row.value.as_str().into()),
        ];
        members.extend(match &row.state {
            State::Agrees { launch, inside, apart } => {
                let mut of =
                    vec![("state", "agrees".into()), ("launch", (*launch).into()), ("inside", (*inside).into())];
                of.extend(errors(apart));
                of
            }
            State::Absent => vec![("state", "absent".into())],
            State::Suspect => vec![("state", "suspect".into())],
        });
        Json::Object(members)
    };
    let wrong = |(name, apart): &(String, Option<Apart>)| {
        let mut members = vec![("name", name.as_str().into())];
        members.extend(apart.iter().flat_map(errors));
        Json::Object(members)
    };
    let finding = |f: &Option<Finding>| f.as_ref().map_or(Json::Null, |f| finding_json(report, f));
    Json::Object(vec![
        ("set", set.display().to_string().into()),
        ("passed", report.passed().into()),
        ("nodes", Json::List(report.rows.iter().map(row).collect())),
        ("wrong_outputs", Json::List(report.wrong.iter().map(wrong).collect())),
        ("first_divergence", finding(&report.first)),
        ("first_nonfinite", finding(&report.first_nonfinite)),
    ])
}

fn finding_json(report: &Report, f: &Finding) -> Json {
    let mut members =
        vec![("node", f.node.as_str().into()), ("op", f.op.as_str().into()), ("value", f.value.as_str().into())];
    if let Some((launch, apart)) = &f.nearest {
        let (kernel, origins) = &report.launches[*launch];
        members.extend([("launch", (*launch).into()), ("kernel", kernel.as_str().into())]);
        members.push(("origins", Json::list(origins.iter().map(String::as_str))));
        members.extend(errors(apart));
    }
    let fault = match f.fault {
        Fault::Meaning => "meaning",
        Fault::Code => "code",
    };
    members.push(("fault", fault.into()));
    Json::Object(members)
}

fn errors(apart: &Apart) -> Vec<(&'static str, Json)> {
    vec![
        ("max_abs_error", apart.abs_max.into()),
        ("max_rel_error", apart.rel_max.into()),
        ("n_nonfinite", apart.n_nonfinite.into()),
    ]
}
