//! `collectives --topology F`  =>  the predicted time of each algorithm on the described cluster

use crate::collectives::CollectivesArgs;
use crate::put;
use sardonyx_base::Result;
use sardonyx_base::host::Collective;
use sardonyx_base::json::Json;
use sardonyx_base::schedule::operands_for;
use sardonyx_cluster::{Candidate, Comparison, Link, PRESETS, Topology, compare};
use std::io::Write;

/// Returns the help text of `--topology`, with the names of the built-in topologies.
pub fn help() -> String {
    let names = PRESETS.map(|(name, _)| name).join(", ");
    format!("Measure nothing: what each algorithm takes on this cluster, the fastest first. A TOML file, or {names}")
}

/// Prints predictions for the topology `name`, which is built in or a file. Errors: E0001 for an unknown collective,
/// E0002 or E0108 for the file, E0108 for more ranks than devices, E0202 for operands that are too large, E0303 for
/// operands that do not fit the collective.
pub fn predicted(args: &CollectivesArgs, name: &str, out: &mut dyn Write) -> Result<()> {
    let topology = Topology::named(name)?;
    let ranks = args.meeting.ranks.get();
    let mut rows = vec![];
    for text in &args.op {
        let op = Collective::from_user(text)?;
        for &bytes in &args.bytes {
            rows.push((text, bytes, compare(&topology, &op, &operands_for(&op, ranks, bytes))?));
        }
    }
    if args.json {
        let rows = rows.iter().map(|(op, bytes, all)| row(op, *bytes, all));
        let report = Json::Object(vec![
            ("topology", topology.name.as_str().into()),
            ("ranks", ranks.into()),
            ("collectives", Json::list(rows)),
        ]);
        return put!(out, "{report}");
    }
    put!(out, "predicted on `{}`: {}", topology.name, topology.about)?;
    for (op, bytes, Comparison { candidates, left_out }) in rows {
        put!(out, "{op}, {bytes} bytes")?;
        for Candidate { means, outcome } in candidates {
            let busiest = outcome.links.iter().max_by_key(|(_, bytes)| **bytes);
            let busiest = busiest.map_or(String::new(), |(link, bytes)| format!("  {bytes} bytes on {link}"));
            let (name, time, messages) = (means.name(), outcome.time_us, outcome.messages);
            put!(out, "  {name:<19} {time:>14.3} us {messages:>10} messages{busiest}")?;
        }
        for means in left_out {
            put!(out, "  {:<19} too many messages to be simulated", means.name())?;
        }
    }
    Ok(())
}

/// The predictions for one collective and size, as JSON.
fn row(op: &str, bytes: usize, all: &Comparison) -> Json {
    let candidate = |Candidate { means, outcome }: &Candidate| {
        let link = |(link, bytes): (&Link, &u64)| {
            Json::Object(vec![("link", link.to_string().into()), ("bytes", (*bytes).into())])
        };
        Json::Object(vec![
            ("algorithm", means.name().into()),
            ("time_us", outcome.time_us.into()),
            ("messages", outcome.messages.into()),
            ("bytes", outcome.bytes.into()),
            ("links", Json::list(outcome.links.iter().map(link))),
        ])
    };
    let candidates = Json::list(all.candidates.iter().map(candidate));
    Json::Object(vec![
        ("collective", op.into()),
        ("bytes", bytes.into()),
        ("candidates", candidates),
        ("left_out", Json::list(all.left_out.iter().map(|means| means.name()))),
    ])
}
