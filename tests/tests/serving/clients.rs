//! published third-party clients  =>  the numbers of a plain request, from each of them

use crate::{minilm_with_texts, serve};
use sardonyx::compile::{Request, compile};
use sardonyx_tests::prepared::{model, workspace};
use std::process::Command;

static PACKAGES: &[&str] =
    &["kserve==0.21.0", "numpy", "openai==3.51.0", "tei-client==0.2.4", "tritonclient[all]==2.73.0"];

fn run(command: &mut Command) {
    let done = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.success(), "{command:?}: {done}");
}

#[test]
#[ignore = "the suite `serving`"]
fn clients_of_others_get_the_numbers_of_a_plain_request() {
    let home = workspace().join("target/serving-clients");
    let python = home.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&home));
    }
    run(Command::new(&python).args(["-m", "pip", "install", "-q", "--disable-pip-version-check"]).args(PACKAGES));
    let folder = tempfile::tempdir().unwrap();
    minilm_with_texts(folder.path());
    let decoder = folder.path().join("llama.sdx");
    compile(&Request::new(&model("skel_llama_tiny_kv_dyn18"), &decoder)).unwrap_or_else(|e| panic!("{e}"));
    let server = serve(folder.path(), &[]);
    for client in ["openai", "tei", "triton", "kserve"] {
        let mut ask = Command::new(&python);
        ask.arg(workspace().join("tests/tests/serving/clients.py"));
        run(ask.args([client, &server.address, "minilm", "llama"]));
    }
}
