//! the onnx wheel  =>  the cases of its backend suite, each with a model, data sets and a tolerance

use sardonyx_base::compare::Tolerance;
use sardonyx_tests::prepared::{fetched, workspace};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The release whose suite is run; its wheel is fetched by version and hash.
pub const PACKAGE: &str = "onnx-1.22.0";

/// Folder of the suite inside the wheel.
const DATA: &str = "onnx/backend/test/data/";

/// Folders of the suite, in the order of the report, with the number of cases in each.
pub static KINDS: &[(&str, usize)] =
    &[("node", 1765), ("simple", 23), ("pytorch-operator", 35), ("pytorch-converted", 82), ("real", 9)];

#[derive(Clone, Debug)]
pub struct Case {
    pub kind: &'static str,
    pub name: String,
    pub model: PathBuf,
    pub data: Data,
    pub rtol: f64,
    pub atol: f64,
}

#[derive(Clone, Debug)]
pub enum Data {
    Sets(Vec<PathBuf>),
    /// Inputs count up from 0 to 1; the expected output is a file.
    Counted {
        output: PathBuf,
    },
}

impl Case {
    pub fn tolerance(&self) -> Tolerance {
        Tolerance { rtol: self.rtol, atol: self.atol, instead: None }
    }

    /// Whether the case tests a single operator; only such cases are run in all variants.
    pub fn is_node(&self) -> bool {
        self.kind == "node"
    }
}

/// All cases, sorted by kind (in the order of [`KINDS`]) and name. Panics if their number is not that of this release,
/// because a case that is not run must not go unnoticed.
pub fn cases() -> Vec<Case> {
    let root = unpacked();
    let mut all = vec![];
    for &(kind, count) in KINDS {
        let mut names: Vec<String> =
            entries(&root.join(kind)).iter().filter(|p| p.is_dir()).map(|p| file_name(p)).collect();
        names.sort();
        assert_eq!(names.len(), count, "cases in {kind}");
        all.extend(names.into_iter().map(|name| case(&root, kind, name)));
    }
    all
}

fn case(root: &Path, kind: &'static str, name: String) -> Case {
    let folder = root.join(kind).join(&name);
    if kind == "real" {
        return light(root, kind, name, &folder);
    }
    let mut sets: Vec<PathBuf> =
        entries(&folder).into_iter().filter(|p| file_name(p).starts_with("test_data_set_")).collect();
    sets.sort();
    assert!(!sets.is_empty(), "{name} has no data");
    Case { kind, name, model: folder.join("model.onnx"), data: Data::Sets(sets), rtol: 1e-3, atol: 1e-7 }
}

/// A case of the kind `real`: its `data.json` names a model of the folder `light`, which comes without its weights.
fn light(root: &Path, kind: &'static str, name: String, folder: &Path) -> Case {
    let text = fs::read_to_string(folder.join("data.json")).expect("data.json");
    let json: serde_json::Value = serde_json::from_str(&text).expect("json");
    let number = |key: &str| json[key].as_f64().unwrap_or_else(|| panic!("{name}: {key}"));
    let url = json["url"].as_str().unwrap_or_else(|| panic!("{name}: url"));
    let model = root.join(url.strip_prefix(DATA).unwrap_or_else(|| panic!("{name}: {url}")));
    let output = model.with_file_name(format!("{}_output_0.pb", model.file_stem().expect("a name").to_string_lossy()));
    let (rtol, atol) = (number("rtol"), number("atol"));
    Case { kind, name, model, data: Data::Counted { output }, rtol, atol }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|e| e.expect("an entry").path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Folder of the suite, which the first call unpacks.
fn unpacked() -> PathBuf {
    let wheel = fetched(PACKAGE, "onnx.whl");
    let root = workspace().join("target/backend").join(PACKAGE);
    if root.is_dir() {
        return root;
    }
    // Another process may be doing the same: each unpacks into its own folder, and the first rename wins.
    fs::create_dir_all(root.parent().expect("a parent")).expect("target can be written");
    let scratch = tempfile::tempdir_in(root.parent().expect("a parent")).expect("target can be written");
    let mut archive = zip::ZipArchive::new(fs::File::open(wheel).expect("the wheel")).expect("a wheel is a zip file");
    for i in 0..archive.len() {
        let mut file = archive.by_index(i).expect("an entry");
        let name = file.enclosed_name().expect("a name inside the archive");
        let Ok(inside) = name.strip_prefix(DATA) else { continue };
        if file.is_file() {
            let path = scratch.path().join(inside);
            fs::create_dir_all(path.parent().expect("a parent")).expect("target can be written");
            let mut bytes = vec![];
            file.read_to_end(&mut bytes).expect("an entry can be read");
            fs::write(path, bytes).expect("target can be written");
        }
    }
    let _ = fs::rename(scratch.path(), &root);
    assert!(root.is_dir(), "the suite could not be unpacked to {}", root.display());
    root
}
