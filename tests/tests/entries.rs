//! The entry points of `--entry`, and those that a model with caches gets by default: names, shared weights, refusals

use sardonyx::compile::{Report, Request, compile};
use sardonyx::entries::{Entries, parse_entries};
use sardonyx_base::DType::F32;
use sardonyx_base::Tensor;
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::trust::trusted;
use std::path::PathBuf;

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(net: Net) -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        std::fs::write(folder.path("m.onnx"), net.bytes()).expect("a model is written");
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn compile(&self, change: impl FnOnce(&mut Request)) -> Result<Report, String> {
        let model = self.path("m.onnx");
        let mut request = Request::new(&model, self.path("m.sdx"));
        change(&mut request);
        compile(&request).map_err(|e| format!("{} {} / {}", e.code, e.message, e.help.unwrap_or_default()))
    }

    fn load(&self) -> Model {
        Model::load(self.path("m.sdx"), &trusted()).expect("the artifact loads")
    }
}

fn names(report: &Report) -> Vec<&str> {
    report.summary.as_ref().expect("a summary").first.entries.iter().map(|e| e.name.as_str()).collect()
}

/// y = concat(past, x) · w; the concatenation is the second output.
fn decoder() -> Net {
    Net::new()
        .input("past", F32, "b p 64")
        .input("x", F32, "b s 64")
        .f32s("w", &[64, 64])
        .node("/cat", "Concat", "past x", "present")
        .int("axis", 1)
        .node("/mul", "MatMul", "present w", "y")
        .output("y")
        .output("present")
}

fn floats(dims: &[usize], first: f32) -> Tensor {
    let n = dims.iter().product::<usize>();
    Tensor::from_vec(dims.to_vec(), (0..n).map(|i| first + i as f32).collect())
}

#[test]
fn a_model_with_caches_gets_prefill_and_decode() {
    let f = Folder::with(decoder());
    let alone = f.compile(|r| r.entries = Entries::NONE).unwrap();
    assert_eq!(names(&alone), ["main"]);
    let report = f.compile(|_| {}).unwrap();
    assert_eq!(names(&report), ["main", "prefill", "decode"]);
    assert_eq!(report.entries_skipped, []);
    // The entry points share one copy of the weights.
    let bytes = |r: &Report| r.summary.as_ref().unwrap().weights_bytes;
    assert_eq!(bytes(&report), bytes(&alone));
    let model = f.load();
    let session = model.session(&SessionOptions::default()).unwrap();
    let (past, x) = (floats(&[2, 3, 64], 0.0), floats(&[2, 1, 64], 7.0));
    let main = session.run(&[("past", past.clone()), ("x", x.clone())]).unwrap();
    let decode = session.run_entry("decode", &[("past", past.clone()), ("x", x)]).unwrap();
    assert!(main.iter().zip(&decode).all(|((_, a), (_, b))| a.dims() == b.dims() && a.bytes() == b.bytes()));
    let two = session.run_entry("decode", &[("past", past), ("x", floats(&[2, 2, 64], 0.0))]).unwrap_err();
    assert!(two.message.contains("dimension 1 of the input `x` is 2, but 1 is expected"), "{two}");
}

#[test]
fn a_name_for_each_dimension_is_fixed_where_they_are_equal() {
    let net = Net::new()
        .input("k", F32, "b p1 4")
        .input("v", F32, "b p2 4")
        .input("x", F32, "b s 4")
        .input("mask", F32, "b total 1")
        .node("/k", "Concat", "k x", "k_out")
        .int("axis", 1)
        .node("/v", "Concat", "v x", "v_out")
        .int("axis", 1)
        .node("/sum", "Add", "k_out v_out", "sum")
        .node("/masked", "Mul", "sum mask", "y")
        .output("y")
        .output("k_out")
        .output("v_out");
    let f = Folder::with(net);
    assert_eq!(names(&f.compile(|_| {}).unwrap()), ["main", "prefill", "decode"]);
    let model = f.load();
    let dims = |entry: &str, i: usize| -> Vec<String> {
        model.entry(entry).unwrap().inputs[i].dims.iter().map(|d| d.to_string()).collect()
    };
    assert_eq!(
        (dims("prefill", 0), dims("prefill", 1)),
        (dims("prefill", 1), vec!["b".into(), "0".into(), "4".into()])
    );
    assert_eq!((&dims("decode", 2)[1], dims("decode", 0)), (&"1".to_string(), dims("decode", 1)));
}

#[test]
fn entries_that_are_given_are_those_that_are_there() {
    let f = Folder::with(decoder());
    let given = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|t| t.to_string()).collect();
        f.compile(|r| r.entries = Entries::Given(parse_entries(&texts).unwrap()))
    };
    assert_eq!(names(&given(&["few:s=4", "one:s=1,p=8"]).unwrap()), ["main", "few", "one"]);
    assert_eq!(
        given(&["few:t=4"]).err().unwrap(),
        "E0204 in the entry point `few`: the model has no dimension symbol `t` / its symbols are b, p, s"
    );
    let narrow = f.compile(|r| {
        r.dims = sardonyx::compile::parse_dims(&["s=2..8".into()]).unwrap();
        r.entries = Entries::Given(parse_entries(&["one:s=1".into()]).unwrap());
    });
    assert_eq!(
        narrow.err().unwrap(),
        "E0204 in the entry point `one`: the entry `one` fixes `s` to 1, outside 2..8 / give a wider `--dim`, or another value"
    );
}

#[test]
fn what_cannot_be_an_entry_point_is_said() {
    // There is no `decode` if the cache grows by twice the positions of `x`, or if the range of `s` does not contain 1.
    let net = Net::new()
        .input("past", F32, "p 4")
        .input("x", F32, "s 4")
        .node("/twice", "Concat", "x x", "xx")
        .int("axis", 0)
        .node("/cat", "Concat", "past xx", "present")
        .int("axis", 0)
        .output("present");
    let f = Folder::with(net);
    let report = f.compile(|_| {}).unwrap();
    assert_eq!(names(&report), ["main", "prefill"]);
    assert_eq!(report.entries_skipped, [("decode".into(), "`2*s` is no dimension symbol of an input".into())]);
    let f = Folder::with(decoder());
    let report = f.compile(|r| r.dims = sardonyx::compile::parse_dims(&["s=2..8".into()]).unwrap()).unwrap();
    assert_eq!(names(&report), ["main", "prefill"]);
    let why = "the entry `decode` fixes `s` to 1, outside 2..8";
    assert_eq!(report.entries_skipped, [("decode".into(), why.into())]);
    // `--dim p=0` fixes `p` in `main` too, so there is no separate `prefill`.
    let report = f.compile(|r| r.dims = sardonyx::compile::parse_dims(&["p=0".into()]).unwrap()).unwrap();
    assert_eq!(names(&report), ["main", "decode"]);
}

#[test]
fn a_model_without_caches_has_one() {
    let net = Net::new().input("x", F32, "b 4").node("/relu", "Relu", "x", "y").output("y");
    let report = Folder::with(net).compile(|_| {}).unwrap();
    assert_eq!((names(&report), report.entries_skipped.len()), (vec!["main"], 0));
}
