//! models, sizes  =>  what the interpreter counts while it executes is what the formulas say, kernel by kernel
//!
//! Sizes are small, because the interpreter is; formulas hold for all.

mod layer;
mod program;
mod random;

use program::{Program, check};
use sardonyx_tests::prepared::model;

/// Counts at several (batch, seq, past).
fn agrees(name: &str, program: &Program, sizes: &[[i64; 3]]) {
    for size in sizes {
        let kernels = check(program, *size).unwrap_or_else(|e| panic!("{name} at {size:?}:\n{e}"));
        println!("{name} at {size:?}: {kernels} kernels, {} operators agree", program.levels.graph.operators().len());
    }
}

fn model_agrees(name: &str, sizes: &[[i64; 3]]) {
    let program = Program::of_model(&model(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    agrees(name, &program, sizes);
}

#[test]
fn gpt2() {
    for form in ["ts17", "dyn18"] {
        model_agrees(&format!("skel_gpt2_tiny_kv_{form}"), &[[1, 1, 3], [2, 3, 1], [1, 4, 2]]);
    }
}

#[test]
fn llama() {
    for form in ["ts17", "dyn18", "dyn23", "ortopt"] {
        model_agrees(&format!("skel_llama_tiny_kv_{form}"), &[[1, 1, 3], [2, 3, 1], [1, 4, 2]]);
    }
}

#[test]
fn minilm() {
    for form in ["ts11", "ts14", "safetensors", "dyn18", "dyn23"] {
        model_agrees(&format!("skel_minilm_l6_{form}"), &[[1, 2, 0], [2, 3, 0]]);
    }
}
