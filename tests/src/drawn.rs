//! the name of a case  =>  whether this run checks it: one in three, or every one if `SARDONYX_EVERY_CASE` is set
//!
//! The draw is the same in every run. The suite `every-case` checks them all.

/// One case in this many is drawn.
const ONE_IN: u64 = 3;

/// Whether this run checks the case.
pub fn is_drawn(name: &str) -> bool {
    std::env::var_os("SARDONYX_EVERY_CASE").is_some() || hash(name).is_multiple_of(ONE_IN)
}

/// FNV-1a, with its upper bits folded into the lower ones.
fn hash(name: &str) -> u64 {
    let h = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    h ^ h >> 32
}
