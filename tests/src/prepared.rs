//! prepared("skel_minilm_l6_safetensors")  =>  the folder that `cargo xtask models` has made

use std::path::{Path, PathBuf};

/// Models of gigabytes: only `cargo xtask test --suite large-models` makes and checks them, not the default suite.
pub static LARGE: &[&str] = &[
    "skel_bert_base_rand_dyn18",
    "skel_bert_base_rand_ortopt",
    "skel_bert_base_rand_ts17",
    "skel_bert_large_rand_ts17",
];

/// Returns the root folder of the workspace, which contains `tests`.
pub fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("tests is a folder of the workspace").to_path_buf()
}

/// Returns the folder with `model.onnx` and `test_data_set_N` of a model.
pub fn prepared(name: &str) -> PathBuf {
    let folder = workspace().join("target/models").join(name);
    assert!(folder.join("model.onnx").is_file(), "{name} is not prepared: run `cargo xtask models`");
    folder
}

/// Returns the path of `model.onnx` of a model; panics if it is not prepared.
pub fn model(name: &str) -> PathBuf {
    prepared(name).join("model.onnx")
}

/// Returns the folders `test_data_set_0`, `test_data_set_1`, … of a model.
pub fn data_sets(name: &str) -> Vec<PathBuf> {
    let folder = prepared(name);
    (0..).map(|i| folder.join(format!("test_data_set_{i}"))).take_while(|set| set.is_dir()).collect()
}

/// Returns a file of a package that a suite needs; `package` is `NAME-VERSION`.
pub fn fetched(package: &str, file: &str) -> PathBuf {
    let path = workspace().join("target/fetch").join(package).join(file);
    assert!(path.is_file(), "{package} is not fetched: run the suite with `cargo xtask test --suite NAME`");
    path
}

/// Returns the sorted names of the models that every run of the tests prepares.
pub fn names() -> Vec<String> {
    let folders =
        std::fs::read_dir(workspace().join("target/models")).expect("models are prepared: `cargo xtask models`");
    let mut names: Vec<String> = folders
        .flatten()
        .filter(|e| e.path().join("model.onnx").is_file())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| !LARGE.contains(&name.as_str()))
        .collect();
    names.sort();
    names
}
