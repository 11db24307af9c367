//! runtime/base/proto/sardonyx.proto  =>  runtime/base/src/plan/messages.rs, the prost types of its messages

use crate::context::{Context, Failure, Result};
use prost_build::{Config, Module};

const PROTO: &str = "sardonyx.proto";
const HEAD: &str =
    "//! The messages of a `.sdx` file, written by `cargo xtask docs` from `runtime/base/proto/sardonyx.proto`\n\n";

/// Returns the text of `messages.rs`. Nothing is generated at build time, so builds need no protobuf compiler.
pub fn rust(context: &Context) -> Result<String> {
    let wrong = |e: &dyn std::fmt::Display| Failure::user(format!("{PROTO} cannot be translated: {e}"));
    let files = protox::compile([PROTO], [context.root.join("runtime/base/proto")]).map_err(|e| wrong(&e))?;
    let module = |package: &str| Module::from_protobuf_package_name(package);
    let requests = files.file.into_iter().map(|file| (module(file.package()), file)).collect();
    // The data of a self-test are views of the mapped file.
    let generated = Config::new().bytes([".sardonyx.v1.Canary.data"]).generate(requests).map_err(|e| wrong(&e))?;
    Ok(HEAD.to_string() + &generated.into_values().collect::<String>())
}
