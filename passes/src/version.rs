//! sardonyx.version = 1 : i64: the version of the IR in which a module is saved

use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::Operation;

/// Version of the IR, incremented when a change of the IR makes modules that an older compiler would misread.
pub const IR_VERSION: i64 = 1;

const ATTRIBUTE: &str = "sardonyx.version";

/// Stores the IR version of this compiler in a new module.
pub fn set_version(module: Operation) {
    module.set_attr(ATTRIBUTE, module.context().i64(IR_VERSION));
}

/// Rejects modules of a newer IR version. A module without a version is taken to be written by hand, in the current
/// version.
pub(crate) fn check_version(module: Operation) -> Result<()> {
    let Some(attr) = module.attr(ATTRIBUTE) else { return Ok(()) };
    match attr.as_i64() {
        Some(version) if version <= IR_VERSION => Ok(()),
        Some(version) => {
            let message =
                format!("the module is of IR version {version}; this compiler reads versions up to {IR_VERSION}");
            Err(Error::user("E0402", message).help("use the compiler that wrote it, or a newer one"))
        }
        None => {
            let message = format!("the module's attribute `{ATTRIBUTE}` is no integer");
            Err(Error::user("E0402", message).help(format!("write `{ATTRIBUTE} = {IR_VERSION} : i64`")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{context, run_pipeline};
    use melior::ir::Module;
    use sardonyx_dialects::mlir::Attr;

    fn run(text: &str) -> Result<String> {
        let context = context();
        let mut module = Module::parse(&context, text).expect("the text parses");
        run_pipeline(&context, &mut module, "builtin.module(simplify)")?;
        Ok(module.as_operation().to_string())
    }

    #[test]
    fn a_newer_version_is_refused_with_a_sentence() {
        let e = run("module attributes {sardonyx.version = 2 : i64} {}").unwrap_err();
        assert_eq!(e.code, "E0402");
        assert_eq!(e.message, "the module is of IR version 2; this compiler reads versions up to 1");
        let e = run("module attributes {sardonyx.version = \"two\"} {}").unwrap_err();
        assert_eq!(e.message, "the module's attribute `sardonyx.version` is no integer");
    }

    #[test]
    fn this_version_stays_and_none_is_accepted() {
        let out = run("module attributes {sardonyx.version = 1 : i64} {}").unwrap();
        assert!(out.contains("sardonyx.version = 1 : i64"), "{out}");
        assert!(!run("module {}").unwrap().contains("sardonyx.version"));
    }

    #[test]
    fn what_this_compiler_marks_it_reads() {
        let context = context();
        let module = Module::parse(&context, "module {}").unwrap();
        let raw = Operation::of_module(&module);
        set_version(raw);
        assert!(check_version(raw).is_ok());
        assert_eq!(raw.attr(ATTRIBUTE).and_then(Attr::as_i64), Some(IR_VERSION));
    }
}
