//! prepared("skel_minilm_l6_safetensors")  =>  the folder that `cargo xtask models` made

use std::path::{Path, PathBuf};

/// Models of gigabytes: `cargo xtask test --suite large-models` makes and checks them, the default suite does neither.
pub static LARGE: &[&str] = &[
    "skel_bert_base_rand_dyn18",
    "skel_bert_base_rand_ortopt",
    "skel_bert_base_rand_ts17",
    "skel_bert_large_rand_ts17",
];

pub fn workspace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("tests is a folder of the workspace").to_path_buf()
}

/// Holds `model.onnx` and `test_data_set_N` folders.
pub fn prepared(name: &str) -> PathBuf {
    let folder = workspace().join("target/models").join(name);
    assert!(folder.join("model.onnx").is_file(), "{name} is not prepared: run `cargo xtask models`");
    folder
}

pub fn model(name: &str) -> PathBuf {
    prepared(name).join("model.onnx")
}

/// `test_data_set_0`, `test_data_set_1`, …
pub fn data_sets(name: &str) -> Vec<PathBuf> {
    let folder = prepared(name);
    (0..).map(|i| folder.join(format!("test_data_set_{i}"))).take_while(|set| set.is_dir()).collect()
}
