//! `bench`: times, comparisons, kernels, caches

use super::common::Builder;
use super::*;
use sardonyx_base::plan::messages::SymbolKind;

#[test]
fn bench_prints_json_with_the_median() {
    let f = Folder::new();
    save_npy(f.path("0.npy"), &half(2)).unwrap();
    let line = f.good(&["bench", "m.sdx", "--threads", "2", "--input", "x=0.npy", "--json", "--min-time", "0.05"]);
    let number = |key: &str| {
        let at = line.find(&format!("\"{key}\": ")).unwrap_or_else(|| panic!("{key} in {line}")) + key.len() + 4;
        let rest = &line[at..];
        rest[..rest.find([',', '}']).unwrap()].parse::<f64>().unwrap()
    };
    assert!(0.0 < number("min_ms") && number("min_ms") <= number("q1_ms"));
    assert!(number("q1_ms") <= number("median_ms") && number("median_ms") <= number("q3_ms"));
    assert!(number("q3_ms") <= number("p95_ms") && number("p95_ms") <= number("p99_ms"));
    assert!(number("iterations") >= 5.0);
    assert_eq!(number("threads"), 2.0);
    assert!((number("per_second") * number("median_ms") / 1e3 - 1.0).abs() < 1e-2);
    let made_up = f.good(&["bench", "m.sdx", "--min-time", "0.01"]);
    assert!(made_up.starts_with("inputs      x f32 [1, 8]\n"), "{made_up}");
    assert!(made_up.contains("\nassumed     batch=1, as no size was given: --dim NAME=N\n"), "{made_up}");
    let sized = f.good(&["bench", "m.sdx", "--min-time", "0.01", "--dim", "batch=7"]);
    assert!(!sized.contains("assumed"), "{sized}");
    assert!(sized.starts_with("inputs      x f32 [7, 8]\n"), "{sized}");
    assert_eq!(f.bad(&["bench", "m.sdx", "--min-time", "NaN"]).0, 2);
}

#[test]
fn bench_shows_kernels_and_compares_with_what_it_is_told_to() {
    let f = Folder::new();
    let bench =
        |more: &[&str]| f.good(&[&["bench", "m.sdx", "--min-time", "0.01", "--threads", "2"][..], more].concat());
    let json =
        |more: &[&str]| serde_json::from_str::<serde_json::Value>(&bench(&[more, &["--json"]].concat())).unwrap();
    let plain = json(&[]);
    assert_eq!((&plain["baseline"], &plain["kernels"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    let report = json(&["--per-kernel", "--dim", "batch=3"]);
    let kernels = &report["kernels"];
    assert!(kernels["peak_gflops"].as_f64().unwrap() > 0.0 && kernels["peak_gb_s"].as_f64().unwrap() > 0.0);
    let rows = kernels["rows"].as_array().unwrap();
    let launches = |r: &serde_json::Value| r["launches"].as_u64().unwrap();
    assert_eq!(rows.iter().map(launches).sum::<u64>(), 3, "{rows:?}");
    assert!(rows.iter().all(|r| r["ms"].as_f64().unwrap() >= 0.0 && r["class"] == "map"), "{rows:?}");
    let text = bench(&["--per-kernel"]);
    assert!(text.contains("\nkernels     3 launches") && text.contains("rowdot   map "), "{text}");

    let text = bench(&["--baseline", "m.sdx"]);
    assert!(text.contains("\nbaseline    ") && text.contains("\nratio       "), "{text}");
    let report = json(&["--baseline", "m.sdx"]);
    assert!(report["baseline"]["ratio"].as_f64().unwrap() > 0.0 && report["baseline"]["model"] == "m.sdx");
    assert_eq!(f.bad(&["bench", "m.sdx", "--min-time", "0.01", "--baseline", "none.sdx"]).0, 2);

    bench(&["--trace", "call.json"]);
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(f.path("call.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|e| e["cat"] == "map").count(), 3, "{events:?}");
    let call = events.iter().find(|e| e["cat"] == "call").unwrap();
    assert!(events.iter().all(|e| e["dur"].as_f64() <= call["dur"].as_f64()), "{events:?}");
}

#[test]
fn bench_times_calls_in_place_with_so_many_positions_in_the_cache() {
    let f = Folder::new();
    decoder().write(&f.path("d.sdx"));
    let bench = ["bench", "d.sdx", "--entry", "decode", "--min-time", "0.01"];
    let out = f.good(&[&bench[..], &["--cache-len", "5", "--capacity", "8", "--dim", "batch=2"]].concat());
    assert!(out.starts_with("inputs      x f32 [2, 1, 4]\nassumed     seq=1, "), "{out}");
    assert!(out.contains("\ncache       5 of 8 positions, 256 bytes\n"), "{out}");
    let out = f.good(&[&bench[..], &["--cache-len", "5", "--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["cache"], serde_json::json!({"len": 5, "capacity": 69, "bytes": 69 * 16}));
    assert_eq!((&report["entry"], &report["inputs"]["past"]), (&"decode".into(), &serde_json::Value::Null));
    let out = f.good(&[&bench[..], &["--dim", "past=5"]].concat());
    assert!(
        out.starts_with("inputs      x f32 [1, 128, 4], past f32 [1, 5, 4]\nassumed     batch=1 seq=128, "),
        "{out}"
    );

    let bad = |args: &[&str]| f.bad(&[&bench[..], args].concat());
    let full = "error[E0307]: 9 positions are needed, the cache has room for 8\n  --> d.sdx, node entry point `decode`";
    assert!(bad(&["--cache-len", "8", "--capacity", "8"]).1.starts_with(full));
    let full = "error[E0307]: 9 positions are needed, the cache has room for 8\n";
    assert!(bad(&["--cache-len", "9", "--capacity", "8"]).1.starts_with(full));
    assert!(
        bad(&["--cache-len", "8", "--dim", "past=7"])
            .1
            .starts_with("error[E0301]: `--dim past=7`, but what else is given makes `past` = 8")
    );
    let given = "error[E0301]: the input `past` is in the cache";
    assert!(bad(&["--cache-len", "8", "--input", "past=zeros"]).1.starts_with(given));
    assert!(bad(&["--capacity", "8"]).1.starts_with("error[E0001]: "));
    let (code, message) = f.bad(&["bench", "m.sdx", "--cache-len", "8"]);
    assert_eq!((code, message.starts_with("error[E0301]: the entry point `main` has no states to keep")), (2, true));
}

/// On a GPU the driver records the times.
#[test]
fn bench_shows_the_kernels_of_a_gpu() {
    let f = Folder::new();
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 0, Some(1000));
    let x = b.input("x", DType::F32, &["batch", "8"], "batch*32");
    let y = b.output("y", DType::F32, &["batch"], "batch*4");
    let rowdot = b.kernel("rowdot", &[false, false, true], 2, "4*p0");
    let weights = b.constant(&[0.5; 8]);
    b.launch(rowdot, &[x, weights, y], &["8", "batch"], "batch");
    b.for_gpus();
    b.write(&f.path("gpu.sdx"));
    let driver = common::driver();
    let bench = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx-run"));
        let args =
            ["bench", "gpu.sdx", "--device", "cuda:0", "--dim", "batch=40", "--min-time", "0.01", "--per-kernel"];
        command.args(args).args(more).current_dir(&f.dir).env("LD_LIBRARY_PATH", driver.path());
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    let out = bench(&["--trace", "call.json"]);
    assert!(out.contains("not measured on a GPU") && out.contains("rowdot"), "{out}");
    let trace = std::fs::read_to_string(f.path("call.json")).unwrap();
    assert!(trace.contains("\"rowdot\""), "{trace}");
    let json: serde_json::Value = serde_json::from_str(&bench(&["--json"])).unwrap();
    let kernels = &json["kernels"];
    assert!(kernels["peak_gflops"].is_null() && kernels["rows"][0]["roofline"].is_null(), "{json}");
    assert!(kernels["rows"][0]["ms"].as_f64().is_some_and(|ms| ms >= 0.0), "{json}");
}
