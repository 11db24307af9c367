//! models, sizes  =>  what the interpreter counts while it executes is what the formulas say, kernel by kernel

mod program;

use program::{Levels, check};
use sardonyx_tests::prepared::model;

/// Counts at these sizes; `layers` names models whose layers are all alike.
fn agrees(name: &str, sizes: &[&[(&str, i64)]]) {
    let levels = Levels::of_model(&model(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    for size in sizes {
        check(&levels, size).unwrap_or_else(|e| panic!("{name} at {size:?}:\n{e}"));
    }
}

#[test]
fn gpt2() {
    agrees("skel_gpt2_tiny_kv_ts17", &[&[]]);
}
