//! the table of launches in docs/benchmarks.md  =>  all exports of one net have the same number of launches per layer,
//! and numbers of words per layer that differ by at most 1 %
//!
//! Another test checks that the table is up to date.

use crate::program::Program;
use sardonyx_dialects::flow::Class;
use sardonyx_kernels::lower;
use sardonyx_passes::MaskedRows;
use sardonyx_tests::prepared::{model, workspace};

/// Prefix of the models' names, number of exports, and maximum number of launches per layer.
static NETS: &[(&str, usize, i64)] =
    &[("skel_minilm_l6_", 5, 7), ("skel_bert_base_", 3, 7), ("skel_llama_tiny_", 4, 8), ("skel_gpt2_tiny_", 2, 8)];

/// Largest permitted relative difference between the words of two exports.
const WORDS_APART: f64 = 0.01;

/// Returns the name, the launches per layer and the words per layer of every model whose name begins with `net`.
fn rows(net: &str) -> Vec<(String, i64, i64)> {
    let page = std::fs::read_to_string(workspace().join("docs/benchmarks.md")).expect("the page can be read");
    let begin = page.find("<!-- launches: ").expect("the page has the table");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let number = |i: usize| cells.get(i).and_then(|c| c.parse().ok());
        Some((cells.get(1)?.to_string(), number(2)?, number(3)?))
    };
    page[begin..]
        .lines()
        .take_while(|l| !l.contains("end of launches"))
        .filter_map(row)
        .filter(|r| r.0.starts_with(net))
        .collect()
}

#[test]
fn forms_of_one_net_cost_the_same() {
    for (net, forms, launches_max) in NETS {
        let rows = rows(net);
        assert_eq!(rows.len(), *forms, "{net}");
        let launches = rows[0].1;
        assert!(launches <= *launches_max && rows.iter().all(|r| r.1 == launches), "{rows:?}");
        let (least, most) = (rows.iter().map(|r| r.2).min().unwrap(), rows.iter().map(|r| r.2).max().unwrap());
        let apart = (most - least) as f64 / least as f64;
        println!("{net}: {launches} launches, words {:.2} % apart", 100.0 * apart);
        assert!(apart <= WORDS_APART, "{rows:?}");
    }
}

/// Contractions and attention get register-blocked code, however an exporter wrote mask and softmax, and whether or not
/// masked rows are computed.
#[test]
fn no_form_falls_back_to_plain_loops() {
    for (net, ..) in NETS.iter().filter(|(net, ..)| !net.contains("bert_base")) {
        let both = [MaskedRows::Compute, MaskedRows::Zero];
        for (name, masked_rows) in
            rows(net).into_iter().flat_map(|(name, ..)| both.map(|masked_rows| (name.clone(), masked_rows)))
        {
            let program = Program::of_model_with(&model(&name), masked_rows).unwrap_or_else(|e| panic!("{name}: {e}"));
            let mut attentions = 0;
            for (symbol, kernel) in &program.plan.kernels {
                let lowered = lower(kernel).unwrap_or_else(|e| panic!("{name}: {e}"));
                attentions += (lowered.class == Class::Attention) as usize;
                let fast = !lowered.class.multiplies() || lowered.words().is_some();
                assert!(fast, "{name}: {symbol} {:?}", lowered.class);
            }
            assert!(attentions > 0, "{name} has no attention");
        }
    }
}
