//! --specialize batch=1,seq=16  =>  a call of `main` with exactly these sizes runs code specialised for them, any other
//! call general code

use sardonyx::compile::{Request, compile};
use sardonyx::entries::parse_specialized;
use sardonyx_base::Tensor;
use sardonyx_runtime::{Model, Session, SessionOptions};
use sardonyx_tests::prepared::model;
use sardonyx_tests::trust::trusted;

/// Kernels that a call launches, and its result.
fn call(session: &Session, batch: usize, seq: usize) -> (Vec<String>, Vec<f32>) {
    let ids = (0..batch * seq).map(|i| (i as i64 * 37) % 9000 + 1000).collect();
    let tensor = |values: Vec<i64>| Tensor::from_vec(vec![batch, seq], values);
    let inputs = [
        ("input_ids", tensor(ids)),
        ("attention_mask", tensor(vec![1; batch * seq])),
        ("token_type_ids", tensor(vec![0; batch * seq])),
    ];
    let mut kernels = vec![];
    let outputs = session.run_timed("main", &inputs, &mut |launched| {
        kernels.push(launched.kernel.to_string());
        Ok(())
    });
    (kernels, outputs.unwrap()[0].1.to_vec::<f32>().unwrap())
}

#[test]
fn the_tightest_sizes_that_fit_are_run() {
    let folder = tempfile::tempdir().unwrap();
    let (source, path) = (model("skel_minilm_l6_dyn18"), folder.path().join("model.sdx"));
    let specialized = parse_specialized(&["batch=1".into(), "batch=1,seq=16".into()]).unwrap();
    compile(&Request { specialized, selftest: false, ..Request::new(&source, &path) }).unwrap();
    let model = Model::load(&path, &trusted()).unwrap();
    let session = model.session(&SessionOptions::default().threads(2)).unwrap();
    let (general, _) = call(&session, 2, 16);
    let (by_batch, _) = call(&session, 1, 17);
    let (exact, values) = call(&session, 1, 16);
    assert!(general != by_batch && by_batch != exact && general != exact, "each has kernels of its own");
    assert_eq!(call(&session, 2, 17).0, general);
    // The results must agree with those of a batch of two, which runs the general code.
    let both = call(&session, 2, 16).1;
    let apart = values.iter().zip(&both).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(apart <= 1e-5, "{apart}");
}

#[test]
fn sizes_that_make_no_sense_are_told() {
    for (text, says) in
        [("batch", "no DIM=N"), ("batch=-1", "no number of at least 0"), ("batch=1,batch=2", "one that has a value")]
    {
        let error = parse_specialized(&[text.into()]).unwrap_err();
        assert!(error.message.contains(says), "{}", error.message);
        assert_eq!(error.fault.exit_code(), 2);
    }
    let twice = parse_specialized(&["a=1,b=2".into(), "b=2,a=1".into()]).unwrap_err();
    assert!(twice.message.contains("twice"), "{}", twice.message);
}
