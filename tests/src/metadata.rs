//! cargo metadata, cargo tree  =>  which crates a crate of the workspace depends on

use crate::prepared::workspace;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The packages that the workspace is built from on x86-64 Linux, and their dependencies.
pub struct Metadata {
    /// Package names by id.
    names: BTreeMap<String, String>,
    members: BTreeSet<String>,
    nodes: BTreeMap<String, Value>,
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_string()
}

fn list(v: &Value) -> Vec<Value> {
    v.as_array().cloned().unwrap_or_default()
}

impl Metadata {
    /// Runs `cargo metadata` in the workspace; panics if it fails.
    pub fn read() -> Metadata {
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        // Only crates for this platform are listed: a machine that has only built and tested the project has not
        // downloaded the crates for other platforms.
        cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(workspace());
        cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
        let output = cargo.output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON");
        let names = list(&all["packages"]).iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
        let members = list(&all["workspace_members"]).iter().map(text).collect();
        let nodes = list(&all["resolve"]["nodes"]).into_iter().map(|n| (text(&n["id"]), n)).collect();
        Metadata { names, members, nodes }
    }

    /// Returns the ids of the direct dependencies of a package, including those of its build script, but not those of
    /// its tests.
    fn direct(&self, id: &str) -> Vec<String> {
        let built = |d: &Value| list(&d["dep_kinds"]).iter().any(|k| k["kind"] != "dev");
        list(&self.nodes[id]["deps"]).iter().filter(|d| built(d)).map(|d| text(&d["pkg"])).collect()
    }

    fn id(&self, name: &str) -> &str {
        let id = self.members.iter().find(|id| self.names[*id] == name);
        id.unwrap_or_else(|| panic!("the workspace has no crate {name}"))
    }

    /// Returns the names of the crates of the workspace.
    pub fn members(&self) -> Vec<&str> {
        self.members.iter().map(|id| self.names[id].as_str()).collect()
    }

    /// Returns the crates of the workspace that a crate depends on directly.
    pub fn rooms_of(&self, name: &str) -> BTreeSet<&str> {
        let direct = self.direct(self.id(name));
        direct.iter().filter_map(|id| self.members.get(id)).map(|id| self.names[id].as_str()).collect()
    }
}

/// Returns the names of the libraries that are linked into a crate when it is built alone with these options, directly
/// or indirectly. Dependencies of tests and build scripts, procedural macros, and features that only other crates of
/// the workspace turn on are left out.
pub fn tree(name: &str, options: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo.args(["tree", "--package", name, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{lib}"]);
    cargo.args(["--target", "x86_64-unknown-linux-gnu", "--locked", "--offline"]).args(options);
    let output = cargo.current_dir(workspace()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(|l| l.trim_end_matches(" (*)").replace('_', "-")).collect()
}
