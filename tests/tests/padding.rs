//! a padded batch  =>  the rows that its mask keeps are close to those of the padded computation, and the other rows
//! are 0

use sardonyx::compile::{Report, Request, compile};
use sardonyx_base::Tensor;
use sardonyx_passes::{MaskedRows, Options};
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::prepared::model;
use sardonyx_tests::trust::trusted;
use std::path::Path;

/// Exports with different masks: an added bias, a select, and the mask of an attention operator.
static NETS: [&str; 3] = ["skel_minilm_l6_ts14", "skel_minilm_l6_dyn18", "skel_minilm_l6_dyn23"];

fn compiled(name: &str, masked_rows: MaskedRows, path: &Path) -> (Model, Report) {
    let source = model(name);
    let options = Options { masked_rows, remarks: true, ..Options::default() };
    let request = Request { selftest: false, options, ..Request::new(&source, path) };
    let report = compile(&request).unwrap_or_else(|e| panic!("{name}: {e}"));
    (Model::load(path, &trusted()).unwrap_or_else(|e| panic!("{name}: {e}")), report)
}

fn of_pass(report: &Report) -> usize {
    report.rewrites.applied().iter().filter(|r| r.pass == "remove-padding").count()
}

/// Returns masks of shape [4, 150]: sequences of different lengths, padding in front, holes, a fully masked sequence,
/// only zeros, only ones.
fn masks() -> Vec<(&'static str, Vec<i64>)> {
    let mask =
        |keep: &dyn Fn(usize, usize) -> bool| (0..4 * 150).map(|i| keep(i / 150, i % 150) as i64).collect::<Vec<i64>>();
    vec![
        ("lengths", mask(&|b, s| s < [150, 1, 97, 13][b])),
        ("padding in front", mask(&|b, s| s >= [0, 149, 20, 100][b])),
        ("holes", mask(&|b, s| (s * 7 + b) % 3 != 0)),
        ("a sequence without any", mask(&|b, s| b != 2 && s < 40 * (b + 1))),
        ("none", mask(&|_, _| false)),
        ("all", mask(&|_, _| true)),
    ]
}

#[test]
fn rows_that_are_kept_are_those_of_the_padded_run() {
    let folder = tempfile::tempdir().unwrap();
    for name in NETS {
        let (padded, report) = compiled(name, MaskedRows::Compute, &folder.path().join("padded.sdx"));
        // The model's output contains the hidden states of all positions, so padding cannot be removed.
        assert_eq!(of_pass(&report), 0, "{name}");
        let said = report.rewrites.remarks().iter().find(|r| r.pass == "remove-padding");
        let said = said.unwrap_or_else(|| panic!("{name}: no remark")).to_string();
        assert!(said.contains("rows of `attention_mask`") && said.contains("--masked-rows zero"), "{name}: {said}");
        let (packed, report) = compiled(name, MaskedRows::Zero, &folder.path().join("packed.sdx"));
        assert_eq!(of_pass(&report), 1, "{name}");
        for (what, mask) in masks() {
            let ids: Vec<i64> = mask.iter().enumerate().map(|(i, m)| m * (1000 + (i as i64 * 37) % 9000)).collect();
            let tensor = |values: Vec<i64>| Tensor::from_vec(vec![4, 150], values);
            let inputs = [
                ("input_ids", tensor(ids)),
                ("attention_mask", tensor(mask.clone())),
                ("token_type_ids", tensor(vec![0; 4 * 150])),
            ];
            let run = |model: &Model, threads: usize| {
                let session = model.session(&SessionOptions::default().threads(threads)).unwrap();
                let outputs = session.run(&inputs).unwrap_or_else(|e| panic!("{name}, {what}: {e}"));
                outputs[0].1.to_vec::<f32>().unwrap()
            };
            let (wanted, got) = (run(&padded, 2), run(&packed, 1));
            assert_eq!(got, run(&packed, 2), "{name}, {what}: the number of threads changes bits");
            let width = got.len() / mask.len();
            for (at, (a, b)) in wanted.iter().zip(&got).enumerate() {
                match mask[at / width] {
                    0 => assert_eq!(*b, 0.0, "{name}, {what}: element {at} is masked"),
                    _ => assert!((a - b).abs() <= 1e-4, "{name}, {what}: element {at}: {a} and {b}"),
                }
            }
        }
    }
}
