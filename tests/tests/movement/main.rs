//! models, sizes  =>  the interpreter's counts during execution equal the formulas, kernel by kernel
//!
//! The sizes are small, because the interpreter is slow; the formulas hold for all sizes.

mod forms;
mod layer;
mod program;
mod random;
mod report;

use program::{Program, check};
use sardonyx_tests::prepared::model;

/// Compares counts at several (batch, seq, past). Exactly `bounds` operands have only an upper bound in place of an
/// exact formula.
fn agrees(name: &str, program: &Program, sizes: &[[i64; 3]], bounds: usize) {
    for size in sizes {
        let found = check(program, *size).unwrap_or_else(|e| panic!("{name} at {size:?}:\n{e}"));
        let operators = program.levels.graph.operators().len();
        println!("{name} at {size:?}: {} kernels, {operators} operators agree", found.kernels);
        assert_eq!(found.bounds, bounds, "{name} at {size:?}");
    }
}

fn model_agrees(name: &str, sizes: &[[i64; 3]], bounds: usize) {
    let program = Program::of_model(&model(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    agrees(name, &program, sizes, bounds);
}

#[test]
fn gpt2() {
    for form in ["ts17", "dyn18"] {
        model_agrees(&format!("skel_gpt2_tiny_kv_{form}"), &[[1, 1, 3], [2, 3, 1], [1, 4, 2]], 0);
    }
}

/// Rotated halves of keys and of queries are read as slices of one container. For the union of such slices, two per
/// layer, there is only an upper bound.
#[test]
fn llama() {
    for form in ["ts17", "dyn18", "dyn23", "ortopt"] {
        model_agrees(&format!("skel_llama_tiny_kv_{form}"), &[[1, 1, 3], [2, 3, 1], [1, 4, 2]], 8);
    }
}

#[test]
fn minilm() {
    for form in ["ts11", "ts14", "safetensors", "dyn18", "dyn23"] {
        model_agrees(&format!("skel_minilm_l6_{form}"), &[[1, 2, 0], [2, 3, 0]], 0);
    }
}
