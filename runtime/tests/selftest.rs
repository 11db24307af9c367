//! an artifact with a self-test (inputs and expected outputs)  =>  loaded if it passes, otherwise refused with E0404

mod common;

use common::{Builder, two_layers};
use sardonyx_base::plan::{Canary, ExpectedOutput, SelfTest};
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_format::Verify;

/// A model with a self-test that expects the output `y`; its input x = 0.5 everywhere really gives 20.
fn with_test(y: &[f32]) -> Builder {
    let mut b = two_layers();
    let x = Tensor::from_vec(vec![2, 8], vec![0.5f32; 16]);
    let y = Tensor::from_vec(vec![y.len()], y.to_vec());
    b.selftest = Some(SelfTest {
        inputs: vec![Canary::new("x", &x)],
        outputs: vec![ExpectedOutput { tensor: Some(Canary::new("y", &y)), rtol: 1e-3, atol: 1e-4, relative: 0.0 }],
    });
    b
}

fn refused(b: &Builder) -> Box<Error> {
    let e = b.load().err().expect("the artifact is refused");
    assert_eq!(e.code, "E0404");
    assert!(e.file.as_deref().is_some_and(|f| f.ends_with("m.sdx")));
    e
}

fn without(b: &Builder) -> Result<sardonyx_runtime::Model> {
    b.load_with(&common::trusted().selftest(false))
}

#[test]
fn right_results_within_the_tolerance_load() {
    assert!(with_test(&[20.0, 20.0]).load().is_ok());
    assert!(with_test(&[20.0, 20.015]).load().is_ok());
}

#[test]
fn wrong_results_are_a_refusal_unless_the_test_is_left_out() {
    let b = with_test(&[20.0, 20.5]);
    let start = "the self-test failed: the output `y` at [1] is 20, but must be 20.5; 1 of 2 differ. The artifact";
    let e = refused(&b);
    assert!(e.message.starts_with(start), "{}", e.message);
    assert!(e.help.is_some_and(|h| h.contains("--no-selftest")));
    assert!(without(&b).is_ok());
    let message = refused(&with_test(&[20.0])).message;
    assert!(message.contains("the output `y` cannot be compared: the shape is [2], expected [1]"), "{message}");
}

#[test]
fn a_weight_that_changed_is_found_where_no_hash_is_checked() {
    let mut b = with_test(&[20.0, 20.0]);
    b.weights[3] ^= 0x40;
    let off = common::trusted().verify(Verify::Off);
    assert_eq!(b.load_with(&off).err().unwrap().code, "E0404");
}

#[test]
fn a_test_that_cannot_be_made_is_a_refusal() {
    let edit = |f: &dyn Fn(&mut SelfTest)| {
        let mut b = with_test(&[20.0, 20.0]);
        f(b.selftest.as_mut().unwrap());
        let message = refused(&b).message;
        assert!(without(&b).is_ok());
        message
    };
    let message = edit(&|t| t.inputs[0].name = "z".into());
    assert!(message.contains("its call ended with E0301: the model has no input `z`"), "{message}");
    let message = edit(&|t| t.inputs[0].dims = vec![u64::MAX, 2]);
    assert!(message.contains("E0202"), "{message}");
    let message = edit(&|t| t.inputs[0].dims = vec![3, 8]);
    assert!(message.contains("a f32 tensor of [3, 8] has 96 bytes, but 64 are given"), "{message}");
    let message = edit(&|t| t.inputs[0].dtype = 77);
    assert!(message.contains("77 is no element type"), "{message}");
    let message = edit(&|t| t.outputs[0].tensor = None);
    assert!(message.contains("expected output 0 has no tensor"), "{message}");
    let message = edit(&|t| t.outputs[0].tensor.as_mut().unwrap().name = "q".into());
    assert!(message.contains("the model has no output `q`"), "{message}");
}
