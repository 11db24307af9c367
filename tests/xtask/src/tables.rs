//! models  =>  the tables of launches and of errors in docs/benchmarks.md
//!
//! A table lies between the comments `<!-- NAME: … -->` and `<!-- end of NAME -->`.

use crate::context::{Context, Failure, Result, create_dir, read, run, write};
use crate::models;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prefixes of the names of models whose launches are counted. All exports of one net should need the same number of
/// launches per layer.
static COUNTED: &[&str] = &["skel_minilm_l6_", "skel_bert_base_", "skel_llama_tiny_", "skel_gpt2_tiny_"];

/// The models whose errors are measured.
static MEASURED: &[&str] = &[
    "skel_minilm_l6_ts11",
    "skel_minilm_l6_ts14",
    "skel_minilm_l6_safetensors",
    "skel_minilm_l6_dyn18",
    "skel_minilm_l6_dyn23",
    "rxnmapper_albert_ts17",
    "skel_llama_tiny_kv_ts17",
    "skel_llama_tiny_kv_dyn18",
    "skel_llama_tiny_kv_dyn23",
    "skel_llama_tiny_kv_ortopt",
    "skel_gpt2_tiny_kv_ts17",
    "skel_gpt2_tiny_kv_dyn18",
    "skel_vit_small_rand_ts17",
];

/// `cargo xtask accuracy`: measures with a release build, and writes the table of errors.
pub fn accuracy(context: &Context, args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return Err(Failure::user("usage: cargo xtask accuracy"));
    }
    run(&mut context.cargo(["build", "--release", "-p", "sardonyx", "--bin", "sardonyx"]))?;
    let mut table = String::from("| model | Sardonyx to interpreter | ONNX Runtime to interpreter |\n|---|---|---|\n");
    for name in MEASURED {
        let folder = models::ensure(context, name)?;
        let mut command = Command::new(context.target.join("release/sardonyx"));
        command.arg("check").arg(folder.join("model.onnx")).arg("--data").arg(&folder).arg("--json");
        let (ours, theirs) = errors(&json(&mut command)?)
            .ok_or_else(|| Failure::check(format!("`sardonyx check` does not tell the errors of {name}")))?;
        println!("accuracy: {name}: {ours:.1e}, ONNX Runtime {theirs:.1e}");
        table += &format!("| {name} | {ours:.1e} | {theirs:.1e} |\n");
    }
    fill(context, "accuracy", &table)
}

/// The page with measured tables.
pub const PAGE: &str = "docs/benchmarks.md";

/// Writes a section of the page.
pub fn fill(context: &Context, section: &str, body: &str) -> Result<()> {
    let path = context.root.join(PAGE);
    let page = filled(&text(&path)?, section, body)?;
    write(&path, |out| std::io::Write::write_all(out, page.as_bytes()))
}

/// Returns the largest absolute differences over all data sets and outputs: (compiled to interpreter, expected to
/// interpreter).
fn errors(report: &Value) -> Option<(f64, f64)> {
    if report["failed"].as_u64()? > 0 {
        return None;
    }
    let (mut ours, mut theirs) = (0f64, 0f64);
    for output in report["sets"].as_array()?.iter().map(|set| set["outputs"].as_array()).collect::<Option<Vec<_>>>()? {
        for output in output {
            ours = ours.max(output["interpreter"]["compiled"]["max_abs_error"].as_f64()?);
            theirs = theirs.max(output["interpreter"]["max_abs_error"].as_f64()?);
        }
    }
    Some((ours, theirs))
}

/// Returns the page with an updated table of launches. `explain` is the command `sardonyx explain`, to which the models
/// are added as arguments.
pub fn page_with_launches(context: &Context, explain: &mut Command) -> Result<String> {
    let names: Vec<String> = models::names(context)?.into_iter().filter(|n| counted(n).is_some()).collect();
    for name in &names {
        explain.arg(graph_alone(context, name)?);
    }
    let report = json(explain.arg("--json"))?;
    let mut rows: Vec<(Option<usize>, String)> = vec![];
    for (name, model) in names.iter().zip(report["models"].as_array().into_iter().flatten()) {
        let row = row(name, model);
        rows.push((
            counted(name),
            row.ok_or_else(|| Failure::check(format!("`sardonyx explain` finds no layers in {name}")))?,
        ));
    }
    rows.sort();
    let head = "| model | launches per layer | words per layer | launches in all | before + layers + after |\n|---|--:|--:|--:|---|\n";
    let table: String = rows.into_iter().map(|(_, row)| row).collect();
    filled(&text(&context.root.join(PAGE))?, "launches", &format!("{head}{table}"))
}

fn counted(name: &str) -> Option<usize> {
    COUNTED.iter().position(|prefix| name.starts_with(prefix))
}

fn row(name: &str, model: &Value) -> Option<String> {
    let n = model["launches"].as_array()?.len() as u64;
    let of = |key: &str| model["layers"][key].as_u64();
    let (first, length, times, words) = (of("first")?, of("length")?, of("times")?, of("words")?);
    let after = n.checked_sub(first + length * times)?;
    Some(format!("| {name} | {length} | {words} | {n} | {first} + {times} × {length} + {after} |\n"))
}

/// Makes a model's graph with sparse files of zeros as weights; the number of launches does not depend on weight
/// values.
fn graph_alone(context: &Context, name: &str) -> Result<PathBuf> {
    let (from, to) = (models::committed(context, name), context.target.join("graphs").join(name));
    create_dir(&to)?;
    let graph = read(&from.join("model.onnx"))?;
    write(&to.join("model.onnx"), |out| std::io::Write::write_all(out, &graph))?;
    for (file, bytes) in models::external_files(&from)? {
        let path = to.join(file);
        let hole = fs::File::create(&path).and_then(|hole| hole.set_len(bytes));
        hole.map_err(|e| Failure::io(&path, "write", e))?;
    }
    Ok(to.join("model.onnx"))
}

/// Returns the page with `body` between the section's two comments.
pub fn filled(page: &str, section: &str, body: &str) -> Result<String> {
    let wrong =
        || Failure::user(format!("{PAGE} has no section between comments `{section}: …` and `end of {section}`"));
    let begin = page.find(&format!("<!-- {section}: ")).ok_or_else(wrong)?;
    let begin = begin + page[begin..].find("-->\n").ok_or_else(wrong)? + "-->\n".len();
    let end = begin + page[begin..].find(&format!("<!-- end of {section} -->")).ok_or_else(wrong)?;
    Ok(format!("{}\n{body}\n{}", &page[..begin], &page[end..]))
}

pub fn text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|e| Failure::io(path, "understand", e))
}

fn json(command: &mut Command) -> Result<Value> {
    let shown = format!("{command:?}");
    let done = command.output().map_err(|e| Failure::user(format!("cannot start {shown}: {e}")))?;
    let wrong = |e: &dyn std::fmt::Display| {
        Failure::check(format!("{shown} failed: {e}\n{}", String::from_utf8_lossy(&done.stderr)))
    };
    match done.status.success() {
        true => serde_json::from_slice(&done.stdout).map_err(|e| wrong(&e)),
        false => Err(wrong(&done.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_section_is_replaced_and_the_rest_stays() {
        let page = "a\n<!-- launches: by xtask -->\nold\n<!-- end of launches -->\nb\n";
        let new = filled(page, "launches", "| x |\n").unwrap();
        assert_eq!(new, "a\n<!-- launches: by xtask -->\n\n| x |\n\n<!-- end of launches -->\nb\n");
        assert_eq!(filled(&new, "launches", "| x |\n").unwrap(), new);
        let none = filled(page, "accuracy", "").unwrap_err();
        assert!(none.to_string().contains("no section between comments `accuracy: …` and `end of accuracy`"));
    }

    #[test]
    fn the_errors_are_the_largest_and_none_where_a_set_failed() {
        let output = |c: f64, e: f64| json!({"interpreter": {"max_abs_error": e, "compiled": {"max_abs_error": c}}});
        let sets = json!([{"outputs": [output(1.0, 2.0), output(3.0, 0.5)]}, {"outputs": [output(0.0, 4.0)]}]);
        assert_eq!(errors(&json!({"failed": 0, "sets": sets})), Some((3.0, 4.0)));
        assert_eq!(errors(&json!({"failed": 1, "sets": sets})), None);
        assert_eq!(errors(&json!({"failed": 0, "sets": [{"outputs": [{}]}]})), None);
    }

    #[test]
    fn a_row_adds_up() {
        let layers = json!({"first": 2, "length": 3, "times": 2, "words": 40});
        let model = json!({"launches": [0, 0, 0, 0, 0, 0, 0, 0, 0], "layers": layers});
        assert_eq!(row("m", &model).unwrap(), "| m | 3 | 40 | 9 | 2 + 2 × 3 + 1 |\n");
        assert_eq!(row("m", &json!({"launches": [], "layers": null})), None);
    }
}
