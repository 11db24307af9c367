//! entry points with states  =>  the same results whether states are copied or kept in a cache

mod common;

use common::{Builder, decoder, edit, joining_decoder, two_layers};
use sardonyx_base::plan::messages::{State, SymbolKind};
use sardonyx_base::{DType, Result, Tensor, TensorBuffer};
use sardonyx_runtime::{Cache, RunOptions, Session, SessionOptions};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn session(threads: usize) -> Session {
    decoder().load().unwrap().session(&SessionOptions::default().threads(threads)).unwrap()
}

/// Returns x[b, s, d] for the positions `at..at + seq`.
fn x(batch: usize, at: usize, seq: usize) -> Tensor {
    let value = |i: usize| {
        let (b, s, d) = (i / (seq * 4), i / 4 % seq, i % 4);
        (b * 100 + (at + s) * 4 + d) as f32 * 0.125
    };
    Tensor::from_vec(vec![batch, seq, 4], (0..batch * seq * 4).map(value).collect())
}

/// Returns the expected outputs `present` and `y` after `n` positions.
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
                let past = out["present"].clone();
                out = session.run_entry("decode", &[("x", x(batch, step, 1)), ("past", past)]).unwrap();
            }
        }
    }
}

fn run(session: &Session, entry: &str, x: &Tensor, cache: &mut Cache) -> Result<Vec<f32>> {
    let out = session.run_cached(entry, &[("x", x.into())], &mut [], cache, &RunOptions::default())?;
    assert_eq!((out.len(), out[0].0.as_str()), (1, "y"));
    Ok(out[0].1.to_vec().unwrap())
}

fn contents(cache: &Cache) -> Vec<f32> {
    cache.tensor("past").unwrap().to_vec().unwrap()
}

#[test]
fn prefill_and_decode_append_to_one_cache() {
    for threads in [1, 3] {
        let session = session(threads);
        for batch in [1, 3] {
            let mut cache = session.cache("decode", 9).unwrap();
            assert_eq!((cache.len(), cache.capacity(), cache.bytes(), cache.is_empty()), (0, 9, 0, true));
            let mut n = 0;
            for (entry, seq) in [("prefill", 3), ("decode", 1), ("decode", 2), ("decode", 0), ("decode", 3)] {
                let y = run(&session, entry, &x(batch, n, seq), &mut cache).unwrap();
                n += seq;
                let (present, sums) = expected(batch, n);
                assert_eq!((cache.len(), contents(&cache), y), (n, present, sums));
            }
            assert_eq!(cache.tensor("present").unwrap().dims(), [batch, 9, 4]);
            assert_eq!(cache.bytes(), (batch * 9 * 16).max(64));
            // A different continuation: the truncated positions are computed again.
            cache.truncate(4);
            cache.truncate(7);
            assert_eq!((cache.len(), contents(&cache)), (4, expected(batch, 4).0));
            let y = run(&session, "decode", &x(batch, 4, 2), &mut cache).unwrap();
            assert_eq!((contents(&cache), y), expected(batch, 6));
        }
    }
}

#[test]
fn a_call_that_does_not_fit_the_cache_gets_a_sentence_and_changes_nothing() {
    let session = session(1);
    let mut cache = session.cache("prefill", 6).unwrap();
    let empty = cache.tensor("past").unwrap_err();
    assert_eq!((empty.code, &*empty.message), ("E0301", "no call has given the cache its dimensions yet"));
    run(&session, "prefill", &x(2, 0, 5), &mut cache).unwrap();
    let mut refuse = |entry: &str, x: Tensor| {
        let e = run(&session, entry, &x, &mut cache).unwrap_err();
        assert_eq!((cache.len(), contents(&cache)), (5, expected(2, 5).0));
        assert!(e.remedy().is_some());
        (e.code, e.message)
    };
    let full = "7 positions are needed, the cache has room for 6".to_string();
    assert_eq!(refuse("decode", x(2, 5, 2)), ("E0307", full));
    let batch = "dimension 0 of the state `past` is 2 in the cache, but `batch` = 3".to_string();
    assert_eq!(refuse("decode", x(3, 5, 1)), ("E0301", batch));
    let past = "`prefill` continues 0 positions (`0`), but the cache has 5".to_string();
    assert_eq!(refuse("prefill", x(2, 5, 1)), ("E0301", past));
    assert_eq!(cache.tensor("y").unwrap_err().message, "the cache holds no `y`");

    // After `clear`, the cache takes another batch size and allocates other memory for it.
    cache.clear();
    let y = run(&session, "prefill", &x(3, 0, 6), &mut cache).unwrap();
    assert_eq!((contents(&cache), y), expected(3, 6));
    assert_eq!(cache.bytes(), 3 * 6 * 16);
}

#[test]
fn states_are_given_once_and_to_their_model_only() {
    let session = session(1);
    let mut cache = session.cache("decode", 6).unwrap();
    let (x, past) = (x(1, 0, 1), Tensor::from_vec(vec![1, 0, 4], Vec::<f32>::new()));
    let options = RunOptions::default();
    let both = [("x", (&x).into()), ("past", (&past).into())];
    let e = session.run_cached("decode", &both, &mut [], &mut cache, &options).unwrap_err();
    assert_eq!(e.message, "the input `past` is in the cache, but is given too");
    let mut memory = [0f32; 64];
    let mut outputs = [("present", TensorBuffer::from_slice(&mut memory).unwrap())];
    let e = session.run_cached("decode", &both[..1], &mut outputs, &mut cache, &options).unwrap_err();
    assert_eq!(e.message, "the output `present` stays in the cache, it takes no buffer");
    let mut sums = [0f32; 4];
    let mut outputs = [("y", TensorBuffer::from_slice(&mut sums).unwrap())];
    assert!(session.run_cached("decode", &both[..1], &mut outputs, &mut cache, &options).unwrap().is_empty());
    assert_eq!(sums.to_vec(), expected(1, 1).1);

    let other = decoder().load().unwrap().session(&SessionOptions::default()).unwrap();
    assert_eq!(run(&other, "decode", &x, &mut cache).unwrap_err().message, "the cache was made for another model");
    // Any session of the model can use the cache, on any thread.
    let same = session.model().session(&SessionOptions::default()).unwrap();
    std::thread::scope(|s| s.spawn(|| run(&same, "decode", &x, &mut cache).map(drop)).join().unwrap()).unwrap();
    assert_eq!(cache.len(), 2);

    let stateless = two_layers().load().unwrap().session(&SessionOptions::default()).unwrap();
    let e = stateless.cache("main", 4).unwrap_err();
    assert_eq!((e.code, &*e.message), ("E0301", "the entry point `main` has no states to keep"));
    assert_eq!(session.cache("train", 4).unwrap_err().message, "the model has no entry point `train`");
}

/// `decode` with a last step that fails if `pick` is not an index into three values.
fn picky() -> Builder {
    let mut b = decoder();
    let table = b.constant(&[10.0, 20.0, 30.0]);
    let pick = b.input("pick", DType::I64, &["1"], "8");
    let z = b.output("z", DType::F32, &["1"], "4");
    let gather = b.kernel("gather", &[false, false, true], 1, "0");
    b.launch(gather, &[table, pick, z], &["3"], "1");
    b
}

#[test]
fn a_call_that_fails_appends_nothing() {
    let session = picky().load().unwrap().session(&SessionOptions::default()).unwrap();
    let mut cache = session.cache("decode", 6).unwrap();
    let call = |cache: &mut Cache, n: usize, pick: i64, options: &RunOptions| {
        let (x, pick) = (x(2, n, 1), Tensor::from_vec(vec![1], vec![pick]));
        let inputs = [("x", (&x).into()), ("pick", (&pick).into())];
        session.run_cached("decode", &inputs, &mut [], cache, options).map(|out| out[0].1.to_vec().unwrap())
    };
    let late = RunOptions::default().deadline(Instant::now());
    let cancelled = RunOptions::default().cancel(Arc::new(AtomicBool::new(true)));
    for n in 0..6 {
        assert_eq!(call(&mut cache, n + 40, 3, &RunOptions::default()).unwrap_err().code, "E0303");
        assert_eq!(call(&mut cache, n + 40, 0, &late).unwrap_err().code, "E0305");
        assert_eq!(call(&mut cache, n + 40, 0, &cancelled).unwrap_err().code, "E0306");
        assert_eq!(cache.len(), n);
        let y = call(&mut cache, n, 2, &RunOptions::default()).unwrap();
        assert_eq!((contents(&cache), y), expected(2, n + 1));
    }
}

#[test]
fn the_memory_limit_counts_the_cache() {
    let model = decoder().load().unwrap();
    let try_with = |limit| {
        let options = SessionOptions::default().memory_bytes_max(limit);
        let session = model.session(&options).unwrap();
        let mut cache = session.cache("decode", 100).unwrap();
        let result = run(&session, "decode", &x(2, 0, 1), &mut cache).map(drop).map_err(|e| (e.code, e.message));
        (result, cache.bytes())
    };
    // The call needs 2 · 100 · 16 bytes for the cache and 2 · 16 for y.
    assert_eq!(try_with(3232), (Ok(()), 3200));
    assert_eq!(try_with(3231), (Err(("E0304", "the call needs 3232 bytes, the limit is 3231".into())), 0));

    let session = model.session(&SessionOptions::default()).unwrap();
    let mut huge = session.cache("decode", 1 << 58).unwrap();
    assert_eq!(run(&session, "decode", &x(2, 0, 1), &mut huge).unwrap_err().code, "E0202");
    let mut large = session.cache("decode", 1 << 55).unwrap();
    assert_eq!(run(&session, "decode", &x(1, 0, 1), &mut large).unwrap_err().code, "E0304");
    assert_eq!(session.cache("decode", usize::MAX).unwrap_err().code, "E0301");
}

#[test]
fn entry_points_with_other_states_do_not_share_a_cache() {
    let mut b = decoder();
    b.before[0].inputs[1].name = "older".into();
    let session = b.load().unwrap().session(&SessionOptions::default()).unwrap();
    let mut cache = session.cache("decode", 6).unwrap();
    let e = run(&session, "prefill", &x(1, 0, 1), &mut cache).unwrap_err();
    assert_eq!(e.message, "the cache is not one of the states of the entry point `prefill`");
}

/// `decode` with two states that share capacity symbols, but have separate symbols for their lengths.
fn two_lengths() -> Builder {
    let mut b = decoder();
    b.symbol("others", SymbolKind::Input, 0, None);
    let z = b.input("z", DType::F32, &["batch", "seq", "4"], "16*batch*seq");
    let old = b.input("others", DType::F32, &["batch", "others", "4"], "16*batch*room_in");
    let new = b.output("more", DType::F32, &["batch", "others + 2*seq", "4"], "16*batch*room_out");
    b.launch(0, &[old, new], &["others", "4", "room_in", "room_out"], "batch*others");
    edit(&mut b, 3, |l| l.carries = Some(1));
    b.launch(1, &[z, new], &["seq", "4", "others", "room_out"], "batch*seq");
    let (input_capacity, output_capacity) = ("room_in".into(), "room_out".into());
    let kept = String::new();
    b.entry.states.push(State { input: 3, output: 2, axis: 1, input_capacity, output_capacity, kept, units: vec![] });
    b
}

#[test]
fn states_that_share_a_capacity_have_as_many_positions() {
    let session = two_lengths().load().unwrap().session(&SessionOptions::default()).unwrap();
    let call = |past: usize, others: usize, seq: usize| {
        let inputs = [("x", x(1, 0, seq)), ("past", x(1, 0, past)), ("z", x(1, 0, seq)), ("others", x(1, 0, others))];
        session.run_entry("decode", &inputs).map(|out| out[2].1.dims().to_vec())
    };
    assert_eq!(call(3, 3, 0).unwrap(), [1, 3, 4]);
    let e = call(3, 2, 0).unwrap_err();
    assert_eq!((e.code, &*e.message), ("E0301", "the memory of `others` has 2 positions, that of another state 3"));
    let e = call(3, 3, 1).unwrap_err();
    assert_eq!((e.code, &*e.message), ("E0301", "the memory of `more` has 5 positions, that of another state 4"));

    let mut cache = session.cache("decode", 20).unwrap();
    let (x, options) = (x(1, 0, 1), RunOptions::default());
    let inputs = [("x", (&x).into()), ("z", (&x).into())];
    let e = session.run_cached("decode", &inputs, &mut [], &mut cache, &options).unwrap_err();
    assert_eq!((e.code, cache.len(), cache.bytes()), ("E0401", 0, 0));
    assert!(e.message.ends_with("the states do not all grow by as many positions"), "{e}");
}

#[test]
fn a_capacity_outside_its_range_is_refused() {
    let mut b = decoder();
    b.manifest.symbols[4].hi = Some(8);
    let session = b.load().unwrap().session(&SessionOptions::default()).unwrap();
    assert_eq!(session.cache("decode", 9).unwrap_err().message, "a cache with room for 9 positions is outside 0..8");
    let inputs = [("x", x(1, 8, 1)), ("past", x(1, 0, 8))];
    let e = session.run_entry("decode", &inputs).unwrap_err();
    assert_eq!((e.code, &*e.message), ("E0301", "room for 9 positions in `present` is outside 0..8"));
    assert!(run(&session, "decode", &x(1, 0, 8), &mut session.cache("decode", 8).unwrap()).is_ok());
}

#[test]
fn a_cache_may_lie_in_the_callers_memory() {
    let model = decoder().load().unwrap();
    let options = SessionOptions::default().memory_bytes_max(200);
    let session = model.session(&options).unwrap();
    let mut memory = vec![f32::NAN; 2 * 6 * 4 + 3];
    let mut cache =
        session.cache_over("decode", 6, vec![("present", TensorBuffer::from_slice(&mut memory).unwrap())]).unwrap();
    for (n, seq) in [(0, 2), (2, 1), (3, 3)] {
        let y = run(&session, "decode", &x(2, n, seq), &mut cache).unwrap();
        assert_eq!((contents(&cache), y), expected(2, n + seq));
    }
    assert_eq!(cache.bytes(), 0);
    cache.clear();
    let e = run(&session, "decode", &x(3, 0, 1), &mut cache).unwrap_err();
    assert_eq!(
        (e.code, &*e.message),
        ("E0301", "the state `present` of [3, 6, 4] needs 288 bytes, its memory has 204")
    );
    run(&session, "prefill", &x(1, 0, 4), &mut cache).unwrap();
    assert_eq!(contents(&cache), expected(1, 4).0);
    drop(cache);
    assert_eq!(memory[..16], expected(1, 4).0);
    assert!(memory[48..].iter().all(|v| v.is_nan()));
}

#[test]
fn memory_that_is_no_cache_is_refused() {
    let session = session(1);
    let refuse = |memory: Vec<(&str, TensorBuffer)>| {
        let e = session.cache_over("decode", 6, memory).unwrap_err();
        assert_eq!(e.code, "E0301");
        e.message
    };
    let (mut a, mut b) = ([0f32; 24], [0f32; 24]);
    assert_eq!(refuse(vec![]), "the state `present` is given no memory");
    let twice = vec![
        ("past", TensorBuffer::from_slice(&mut a).unwrap()),
        ("present", TensorBuffer::from_slice(&mut b).unwrap()),
    ];
    assert_eq!(refuse(twice), "the state `present` is given memory twice");
    assert_eq!(refuse(vec![("x", TensorBuffer::from_slice(&mut a).unwrap())]), "the cache holds no `x`");
    let mut ints = [0i32; 24];
    let ints = vec![("past", TensorBuffer::from_slice(&mut ints).unwrap())];
    assert_eq!(refuse(ints), "the state `past` has type f32, its memory is of i32");
    let mut bytes = [0u8; 101];
    let odd = bytes.as_ptr().align_offset(4) + 1;
    let shifted = vec![("past", TensorBuffer::new(DType::F32, &mut bytes[odd..odd + 96]))];
    assert_eq!(refuse(shifted), "the memory of the state `past` is not aligned to f32");
}

#[test]
fn one_launch_carries_and_appends() {
    for threads in [1, 3] {
        let options = SessionOptions::default().threads(threads);
        let session = joining_decoder().load().unwrap().session(&options).unwrap();
        for batch in [1, 3] {
            let mut cache = session.cache("decode", 9).unwrap();
            let mut n = 0;
            for seq in [3, 1, 0, 2] {
                let past = Tensor::from_vec(vec![batch, n, 4], expected(batch, n).0);
                let y = run(&session, "decode", &x(batch, n, seq), &mut cache).unwrap();
                let copied = session.run_entry("decode", &[("x", x(batch, n, seq)), ("past", past)]).unwrap();
                n += seq;
                let (present, sums) = expected(batch, n);
                assert_eq!(
                    (copied[0].1.to_vec().unwrap(), copied[1].1.to_vec().unwrap()),
                    (present.clone(), sums.clone())
                );
                assert_eq!((contents(&cache), y), (present, sums));
            }
        }
    }
}

#[test]
fn what_is_kept_is_not_carried_in_place() {
    // If old positions were carried, all rows of the batch would get those of the first row.
    let mut b = joining_decoder();
    edit(&mut b, 0, |l| l.params[5] = "0".into());
    let session = b.load().unwrap().session(&SessionOptions::default()).unwrap();
    let mut cache = session.cache("decode", 9).unwrap();
    for n in [0, 2, 4] {
        let y = run(&session, "decode", &x(2, n, 2), &mut cache).unwrap();
        assert_eq!((contents(&cache), y), expected(2, n + 2));
    }
    let past = cache.tensor("past").unwrap();
    let copied = session.run_entry("decode", &[("x", x(2, 6, 1)), ("past", past)]).unwrap();
    assert_ne!(copied[0].1.to_vec::<f32>().unwrap(), expected(2, 7).0);
}

#[test]
fn what_carries_a_state_over_is_left_out_in_place() {
    // The step that should carry the old positions over computes 2x + 1 of them instead; if it ran, it would change the
    // cache.
    let mut b = decoder();
    b.kernels[0].symbol = "affine".into();
    let session = b.load().unwrap().session(&SessionOptions::default()).unwrap();
    let mut cache = session.cache("decode", 9).unwrap();
    for n in 0..9 {
        let y = run(&session, "decode", &x(2, n, 1), &mut cache).unwrap();
        assert_eq!((contents(&cache), y), expected(2, n + 1));
    }
    let past = cache.tensor("past").unwrap();
    let copied = session.run_entry("decode", &[("x", x(2, 9, 1)), ("past", past)]).unwrap();
    assert_ne!(copied[0].1.to_vec::<f32>().unwrap(), expected(2, 10).0);
}
