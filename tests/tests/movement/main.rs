//! models, sizes  =>  what the interpreter counts while it executes is what the formulas say, kernel by kernel

mod program;

use program::{Levels, check};
use sardonyx_tests::prepared::model;

/// Counts at several (batch, seq, past).
fn agrees(name: &str, sizes: &[[i64; 3]]) {
    let levels = Levels::of_model(&model(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    for size in sizes {
        let kernels = check(&levels, *size).unwrap_or_else(|e| panic!("{name} at {size:?}:\n{e}"));
        println!("{name} at {size:?}: {kernels} kernels, {} operators agree", levels.graph.operators().len());
    }
}

#[test]
fn gpt2() {
    agrees("skel_gpt2_tiny_kv_ts17", &[[1, 1, 3], [2, 3, 1], [1, 4, 2]]);
    agrees("skel_gpt2_tiny_kv_dyn18", &[[1, 1, 3], [2, 3, 1], [1, 4, 2]]);
}

#[test]
fn llama() {
    for form in ["ts17", "dyn18", "dyn23", "ortopt"] {
        agrees(&format!("skel_llama_tiny_kv_{form}"), &[[1, 1, 3], [2, 3, 1], [1, 4, 2]]);
    }
}

#[test]
fn minilm() {
    agrees("skel_minilm_l6_safetensors", &[[1, 2, 0], [2, 3, 0]]);
}
