//! sardonyx.proto, dialects/td, operators, models  =>  messages.rs, dialects/docs/*.md, OPERATORS.md, table of launches

use crate::context::{Context, Failure, PROGRAMS_ARE_BUILT, Result};
use crate::{messages, tables};
use std::path::{Path, PathBuf};
use std::process::Command;

static LEVELS: &[&str] = &["Onnx", "Sdx", "Flow", "Plan"];

/// `cargo xtask docs [--check]`: writes the generated pages, or fails if one is out of date.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err(Failure::user("usage: cargo xtask docs [--check]")),
    };
    let mut stale = vec![];
    // The messages come first: the compiler, which writes some of the pages, is built from them.
    let messages = (PathBuf::from("runtime/base/src/plan/messages.rs"), messages::rust(context)?);
    stale.extend(update(context, vec![messages], check)?);
    stale.extend(update(context, pages(context)?, check)?);
    match stale.is_empty() {
        true => Ok(()),
        false => Err(Failure::user(format!("not up to date: {}", stale.join(", "))).help("run `cargo xtask docs`")),
    }
}

/// Writes the files whose content differs from the given text. With `check`, returns their names instead.
fn update(context: &Context, files: Vec<(PathBuf, String)>, check: bool) -> Result<Vec<String>> {
    let mut stale = vec![];
    for (path, text) in files {
        let at = context.root.join(&path);
        if std::fs::read_to_string(&at).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            stale.push(path.display().to_string());
            continue;
        }
        let folder = at.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&at, text))
            .map_err(|e| Failure::user(format!("cannot write {}: {e}", at.display())))?;
        println!("docs: wrote {}", path.display());
    }
    Ok(stale)
}

fn pages(context: &Context) -> Result<Vec<(PathBuf, String)>> {
    let prefix = std::env::var("MLIR_SYS_220_PREFIX").unwrap_or_else(|_| "/usr/lib/llvm-22".into());
    let mut pages = vec![];
    for level in LEVELS {
        let lower = level.to_lowercase();
        let text = output(
            Command::new(format!("{prefix}/bin/mlir-tblgen"))
                .current_dir(context.root.join("dialects"))
                .args(["-gen-dialect-doc", &format!("-dialect={lower}"), "-I", "td", "-I"])
                .args([format!("{prefix}/include"), format!("td/{level}.td")]),
        )?;
        pages.push((PathBuf::from(format!("dialects/docs/{lower}.md")), text));
    }
    let table = output(sardonyx(context, "ops").arg("--markdown"))?;
    let head = "<!-- Written by `cargo xtask docs` from the operator table. -->\n\n# Supported ONNX operators\n\n\
                Operators that need what no kernel can do run on the host: sizes that data decide, sequences, strings, files.\n\
                So do those that would take quadratic time in kernels, where the dimensions concerned are long (more than 64 places, 512 samples) or open.\n\n\
                An index, an axis or a length that comes from data and is out of range is error E0303, on every device. Out of range has a \
                meaning for these:\n\n\
                * starts and ends of Slice are clamped to the dimension;\n\
                * a diagonal of Trilu or EyeLike may lie beside the matrix;\n\
                * an index of OneHot that is outside the depth gives no 1;\n\
                * a number of keys that attention is to look at (`nonpad_kv_seqlen`, lengths in place of a mask) may be larger than that of the keys: \
                none is hidden.\n\n";
    pages.push((PathBuf::from("compiler/OPERATORS.md"), format!("{head}{table}")));
    let page = tables::page_with_launches(context, &mut sardonyx(context, "explain"))?;
    pages.push((PathBuf::from(tables::PAGE), page));
    Ok(pages)
}

/// Returns a call of the compiler with this subcommand. Uses the debug build if a test run has built the programs;
/// otherwise cargo builds the compiler first.
fn sardonyx(context: &Context, command: &str) -> Command {
    if std::env::var_os(PROGRAMS_ARE_BUILT).is_some() {
        let mut built = Command::new(context.target.join("debug/sardonyx"));
        built.arg(command).current_dir(&context.root);
        return built;
    }
    context.cargo(["run", "--quiet", "-p", "sardonyx", "--bin", "sardonyx", "--", command])
}

fn output(command: &mut Command) -> Result<String> {
    let run = command.output().map_err(|e| {
        Failure::user(format!("{command:?} cannot be started: {e}"))
            .help("`cargo xtask setup` installs what is missing")
    })?;
    if !run.status.success() {
        return Err(Failure::user(format!("{command:?} failed:\n{}", String::from_utf8_lossy(&run.stderr))));
    }
    String::from_utf8(run.stdout).map_err(|e| Failure::user(format!("{command:?} printed no text: {e}")))
}
