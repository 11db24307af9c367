//! opset_import  =>  version for each domain; unsupported versions are refused

use super::proto::OperatorSetIdProto;
use sardonyx_base::{Error, Result};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Supported versions of the ONNX IR.
pub const IR_VERSIONS: RangeInclusive<i64> = 3..=14;
/// Supported opsets of the default domain. Other domains may have any version, which their operators check themselves.
pub const OPSETS: RangeInclusive<i64> = 1..=28;

pub fn check_ir_version(version: i64) -> Result<()> {
    if IR_VERSIONS.contains(&version) {
        return Ok(());
    }
    let (low, high) = (IR_VERSIONS.start(), IR_VERSIONS.end());
    Err(Error::user("E0102", format!("IR version {version} is not supported; versions {low} to {high} are"))
        .help("set the ir_version when saving the model with the onnx package, or export it again"))
}

/// The canonical name of a domain; the default domain has two spellings.
pub fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// The versions that a model, or a function in it, imports.
#[derive(Clone, Debug, Default)]
pub struct Opsets {
    versions: BTreeMap<String, i64>,
    /// Domains that are imported with two different versions. A node of such a domain is refused.
    contradictory: BTreeMap<String, [i64; 2]>,
}

/// Returns the version of each domain. Errors: E0102 for a version that is not supported.
pub fn resolve(imports: &[OperatorSetIdProto]) -> Result<Opsets> {
    let mut opsets = Opsets::default();
    for import in imports {
        let (domain, version) = (domain(&import.domain), import.version);
        if domain.is_empty() && !OPSETS.contains(&version) {
            let (low, high) = (OPSETS.start(), OPSETS.end());
            let message = format!("opset {version} of `ai.onnx` is not supported; opsets {low} to {high} are");
            return Err(
                Error::user("E0102", message).help("convert the model with onnx.version_converter, or export it again")
            );
        }
        if let Some(other) = opsets.versions.insert(domain.to_string(), version).filter(|&other| other != version) {
            opsets.contradictory.insert(domain.to_string(), [other, version]);
        }
    }
    Ok(opsets)
}

impl Opsets {
    /// Returns the version of each domain; if a domain has several versions, the one that is imported last.
    pub fn versions(&self) -> &BTreeMap<String, i64> {
        &self.versions
    }

    /// Returns the version of an operator's domain. Errors: E0102 if the domain is not imported, or is imported with
    /// different versions.
    pub fn version_of(&self, domain: &str, op_type: &str) -> Result<i64> {
        if let Some([one, other]) = self.contradictory.get(domain) {
            let domain = shown(domain);
            let message = format!(
                "operator `{op_type}` is of the domain `{domain}`, of which opsets {one} and {other} are both imported"
            );
            return Err(Error::user("E0102", message).help("keep one opset_import per domain"));
        }
        self.versions.get(domain).copied().ok_or_else(|| {
            let domain = shown(domain);
            let message = format!("operator `{op_type}` is of the domain `{domain}`, of which no opset is imported");
            let help =
                format!("add an opset_import for `{domain}` to the model, or to the function that the node is in");
            Error::user("E0102", message).help(help)
        })
    }
}

fn shown(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(domain: &str, version: i64) -> OperatorSetIdProto {
        OperatorSetIdProto { domain: domain.into(), version }
    }

    #[test]
    fn both_spellings_are_one_domain() {
        let opsets = resolve(&[import("ai.onnx", 17), import("", 17), import("com.microsoft", 1)]).unwrap();
        assert_eq!(opsets.version_of("", "Add").unwrap(), 17);
        assert_eq!(opsets.version_of("com.microsoft", "Gelu").unwrap(), 1);
        assert_eq!(opsets.version_of("x", "Y").unwrap_err().code, "E0102");
    }

    /// The version converter leaves an old import beside the new one; it matters only to nodes of that domain.
    #[test]
    fn two_versions_are_refused_where_a_node_needs_one() {
        let opsets = resolve(&[import("ai.onnx.ml", 3), import("", 17), import("ai.onnx", 18)]).unwrap();
        assert_eq!(opsets.version_of("ai.onnx.ml", "Scaler").unwrap(), 3);
        let e = opsets.version_of("", "Cast").unwrap_err();
        let wanted = "operator `Cast` is of the domain `ai.onnx`, of which opsets 17 and 18 are both imported";
        assert_eq!((e.code, e.message.as_str()), ("E0102", wanted));
    }

    #[test]
    fn versions_outside_the_range_are_named() {
        for version in [0, 29] {
            let e = resolve(&[import("", version)]).unwrap_err();
            assert_eq!(e.message, format!("opset {version} of `ai.onnx` is not supported; opsets 1 to 28 are"));
        }
        assert!(check_ir_version(3).is_ok() && check_ir_version(14).is_ok());
        let e = check_ir_version(15).unwrap_err();
        assert_eq!(e.message, "IR version 15 is not supported; versions 3 to 14 are");
    }
}
