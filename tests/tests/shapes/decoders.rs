//! tiny decoders with caches  =>  results for any past, an empty past and an empty batch; lengths that do not fit are
//! refused, naming both inputs

use crate::compiled::{Compiled, Inputs};
use sardonyx_base::{DType, Tensor};
use sardonyx_tests::damage::Random;
use sardonyx_tests::prepared::model;

/// The lengths of a call.
#[derive(Clone, Copy)]
struct Lengths {
    batch: usize,
    past: usize,
    seq: usize,
    /// Number of rows of the mask.
    rows: usize,
    total: usize,
}

impl Lengths {
    fn new(batch: usize, past: usize, seq: usize) -> Lengths {
        Lengths { batch, past, seq, rows: batch, total: past + seq }
    }
}

/// Inputs of these lengths, by the names that all exporters use.
fn inputs(c: &Compiled, n: Lengths) -> Inputs {
    let mut random = Random(7);
    let ports = &c.model.entry("main").unwrap().inputs;
    let one = |port: &sardonyx_runtime::program::Port| {
        let fixed = |axis: usize| port.dims[axis].as_const().unwrap() as usize;
        let tensor = match port.name.as_str() {
            "input_ids" => {
                let ids = (0..n.batch * n.seq).map(|_| random.below(4096) as i64).collect();
                Tensor::from_vec(vec![n.batch, n.seq], ids)
            }
            "attention_mask" => Tensor::from_vec(vec![n.rows, n.total], vec![1i64; n.rows * n.total]),
            "position_ids" => {
                let at = (0..n.batch).flat_map(|_| n.past..n.past + n.seq).map(|i| i as i64).collect();
                Tensor::from_vec(vec![n.batch, n.seq], at)
            }
            _ => {
                let dims = vec![n.batch, fixed(1), n.past, fixed(3)];
                let len = dims.iter().product::<usize>();
                let values = (0..len).map(|_| random.below(2000) as f32 / 1000.0 - 1.0).collect();
                assert_eq!(port.dtype, DType::F32);
                Tensor::from_vec(dims, values)
            }
        };
        (port.name.clone(), tensor)
    };
    ports.iter().map(one).collect()
}

fn check(name: &str) -> Compiled {
    let c = Compiled::compile(&model(name), &[]).unwrap_or_else(|e| panic!("{e}"));
    for (batch, past, seq) in [(2, 5, 3), (1, 0, 4), (2, 0, 1), (1, 7, 1), (0, 3, 2), (0, 0, 0), (1, 4, 0)] {
        let outputs = c.run(&inputs(&c, Lengths::new(batch, past, seq))).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(outputs[0].1.dims(), [batch, seq, 4096], "{name}");
        assert!(outputs[1..].iter().all(|(_, t)| t.dims()[0] == batch && t.dims()[2] == past + seq), "{name}");
    }
    c
}

fn refusal(c: &Compiled, change: fn(&mut Lengths)) -> String {
    let mut lengths = Lengths::new(2, 5, 3);
    change(&mut lengths);
    let error = c.refusal(&inputs(c, lengths));
    assert_eq!(error.code, "E0301", "{error}");
    error.message.clone()
}

#[test]
fn llama_runs_with_any_past() {
    let c = check("skel_llama_tiny_kv_dyn18");
    // The mask's dimensions are symbols of their own, which must be at least as large as the graph needs.
    let words = "`s53` must be at least `s15 + s70`, but is 7, where `s15` = 5 (input `past_key_values.0.key`, \
                 dimension 2), `s53` = 7 (input `attention_mask`, dimension 1), `s70` = 3 (input `input_ids`, dimension 1)";
    assert_eq!(refusal(&c, |n| n.total = 7), words);
    let words = "`s43` must be at least `s10`, but is 1, where `s10` = 2 (input `input_ids`, dimension 0), `s43` = 1 \
                 (input `attention_mask`, dimension 0)";
    assert_eq!(refusal(&c, |n| n.rows = 1), words);
}

#[test]
fn gpt2_runs_with_any_past() {
    let c = check("skel_gpt2_tiny_kv_dyn18");
    let words = "`s10` = 2 (input `input_ids`, dimension 0), but also 1 (input `attention_mask`, dimension 0)";
    assert_eq!(refusal(&c, |n| n.rows = 1), words);
}

#[test]
fn other_exporters_decoders_run_with_any_past() {
    for name in ["skel_llama_tiny_kv_ts17", "skel_llama_tiny_kv_dyn23", "skel_gpt2_tiny_kv_ts17"] {
        let message = refusal(&check(name), |n| n.total = 7);
        let said = ["past_key_values.0.key`, dimension 2", "attention_mask`, dimension 1", "input_ids`, dimension 1"];
        assert!(said.iter().all(|words| message.contains(words)), "{name}: {message}");
    }
}
