//! an artifact that a test has made  =>  how it is loaded

use sardonyx_runtime::{LoadOptions, Trust};

pub fn trusted() -> LoadOptions {
    // SAFETY: the code in the artifacts of tests is what our compiler has generated.
    LoadOptions::new(unsafe { Trust::file() })
}
