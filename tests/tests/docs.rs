//! The generated pages are what `cargo xtask docs` would write

use std::process::Command;

#[test]
fn generated_pages_are_up_to_date() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the project");
    let run = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["run", "--quiet", "-p", "xtask", "--", "docs", "--check"])
        .output()
        .expect("cargo is there");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
