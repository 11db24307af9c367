//! the name of a case  =>  whether this run checks it: one in five, or every one if `SARDONYX_EVERY_CASE` is set
//!
//! The same cases are drawn in every run. The suite `every-case` checks all cases.

use sardonyx_base::hash::hash;

/// One case in this many is drawn.
const ONE_IN: u64 = 5;

/// Returns whether this run checks the case.
pub fn is_drawn(name: &str) -> bool {
    std::env::var_os("SARDONYX_EVERY_CASE").is_some() || folded(name).is_multiple_of(ONE_IN)
}

/// Returns a hash of the name whose lower 32 bits are combined with its upper 32 bits by XOR.
fn folded(name: &str) -> u64 {
    let h = hash(name.as_bytes());
    h ^ h >> 32
}
