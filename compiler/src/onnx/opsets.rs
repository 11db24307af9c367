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

pub fn resolve(imports: &[OperatorSetIdProto]) -> Result<BTreeMap<String, i64>> {
    let mut versions = BTreeMap::new();
    for import in imports {
        let (domain, version) = (domain(&import.domain), import.version);
        if domain.is_empty() && !OPSETS.contains(&version) {
            let (low, high) = (OPSETS.start(), OPSETS.end());
            let message = format!("opset {version} of `ai.onnx` is not supported; opsets {low} to {high} are");
            return Err(
                Error::user("E0102", message).help("convert the model with onnx.version_converter, or export it again")
            );
        }
        if let Some(other) = versions.insert(domain.to_string(), version).filter(|&other| other != version) {
            let message = format!("opsets {other} and {version} of `{}` are both imported", shown(domain));
            return Err(Error::user("E0102", message).help("keep one opset_import per domain"));
        }
    }
    Ok(versions)
}

pub fn version_of(versions: &BTreeMap<String, i64>, domain: &str, op_type: &str) -> Result<i64> {
    versions.get(domain).copied().ok_or_else(|| {
        let domain = shown(domain);
        Error::user("E0102", format!("operator `{op_type}` is of the domain `{domain}`, of which no opset is imported"))
            .help(format!("add an opset_import for `{domain}` to the model, or to the function that the node is in"))
    })
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
        let versions = resolve(&[import("ai.onnx", 17), import("", 17), import("com.microsoft", 1)]).unwrap();
        assert_eq!(version_of(&versions, "", "Add").unwrap(), 17);
        assert_eq!(version_of(&versions, "com.microsoft", "Gelu").unwrap(), 1);
        assert_eq!(version_of(&versions, "x", "Y").unwrap_err().code, "E0102");
    }

    #[test]
    fn versions_outside_the_range_are_named() {
        for version in [0, 29] {
            let e = resolve(&[import("", version)]).unwrap_err();
            assert_eq!(e.message, format!("opset {version} of `ai.onnx` is not supported; opsets 1 to 28 are"));
        }
        assert_eq!(resolve(&[import("", 17), import("ai.onnx", 18)]).unwrap_err().code, "E0102");
        assert!(check_ir_version(3).is_ok() && check_ir_version(14).is_ok());
        let e = check_ir_version(15).unwrap_err();
        assert_eq!(e.message, "IR version 15 is not supported; versions 3 to 14 are");
    }
}
