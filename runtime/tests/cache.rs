//! entry points with states  =>  the same numbers with copied states and in place

mod common;

use common::decoder;
use sardonyx_runtime::{Session, SessionOptions, Tensor};

fn session(threads: usize) -> Session {
    decoder().load().unwrap().session(&SessionOptions { threads, ..SessionOptions::default() }).unwrap()
}

/// x[b, s, d] for the positions `at..at + seq`.
fn x(batch: usize, at: usize, seq: usize) -> Tensor {
    let value = |i: usize| {
        let (b, s, d) = (i / (seq * 4), i / 4 % seq, i % 4);
        (b * 100 + (at + s) * 4 + d) as f32 * 0.125
    };
    Tensor::from_vec(vec![batch, seq, 4], (0..batch * seq * 4).map(value).collect())
}

/// present and y after `n` positions.
fn expected(batch: usize, n: usize) -> (Vec<f32>, Vec<f32>) {
    let value = |b: usize, t: usize, d: usize| (b * 100 + t * 4 + d) as f32 * 0.25 + 1.0;
    let present = (0..batch * n * 4).map(|i| value(i / (n * 4), i / 4 % n, i % 4)).collect();
    let y = |i: usize| (0..n).map(|t| (t + 1) as f32 * value(i / 4, t, i % 4)).sum();
    (present, (0..batch * 4).map(y).collect())
}

#[test]
fn a_state_may_be_handed_on_as_a_tensor() {
    for threads in [1, 3] {
        let session = session(threads);
        for batch in [1, 3] {
            let none = Tensor::from_vec(vec![batch, 0, 4], Vec::<f32>::new());
            let mut out = session.run_entry("prefill", &[("x", x(batch, 0, 5)), ("past", none)]).unwrap();
            for step in 5..12 {
                let (present, y) = expected(batch, step);
                assert_eq!(out[0].1.dims(), [batch, step, 4]);
                assert_eq!((out[0].1.to_vec().unwrap(), out[1].1.to_vec().unwrap()), (present, y), "{step}");
                let past = out.swap_remove(0).1;
                out = session.run_entry("decode", &[("x", x(batch, step, 1)), ("past", past)]).unwrap();
            }
        }
    }
}
