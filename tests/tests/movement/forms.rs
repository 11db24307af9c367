//! README's table of launches  =>  the forms in which exporters write one net are as many launches and words per layer
//!
//! That the table is what the compiler does today, another test checks.

use sardonyx_tests::prepared::workspace;

/// Beginning of the models' names, how many forms there are, and how far they may be from each other: launches, and
/// words as a share.
static NETS: &[(&str, usize, i64, f64)] = &[
    ("skel_minilm_l6_", 5, 0, 0.01),
    ("skel_bert_base_", 3, 1, 0.04),
    ("skel_llama_tiny_", 4, 2, 0.10),
    ("skel_gpt2_tiny_", 2, 1, 0.05),
];

/// Launches and words per layer of every model whose name begins so.
fn rows(net: &str) -> Vec<(String, i64, i64)> {
    let page = std::fs::read_to_string(workspace().join("README.md")).expect("README.md can be read");
    let begin = page.find("<!-- launches: ").expect("README has the table");
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
    for (net, forms, launches_apart, words_apart) in NETS {
        let rows = rows(net);
        assert_eq!(rows.len(), *forms, "{net}");
        let spread = |of: &dyn Fn(&(String, i64, i64)) -> i64| {
            let (least, most) = (rows.iter().map(of).min().unwrap(), rows.iter().map(of).max().unwrap());
            (most - least, (most - least) as f64 / least as f64)
        };
        let (launches, words) = (spread(&|r| r.1), spread(&|r| r.2));
        println!("{net}: launches {} apart, words {:.2} %", launches.0, 100.0 * words.1);
        assert!(launches.0 <= *launches_apart, "{rows:?}");
        assert!(words.1 <= *words_apart, "{rows:?}");
    }
}
