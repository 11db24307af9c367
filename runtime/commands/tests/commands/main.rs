//! sardonyx-run as users run it: output, files, exit codes

mod bench;
#[path = "../../../tests/common/mod.rs"]
mod common;
mod tune;

use common::{decoder, two_layers};
use sardonyx_base::plan::messages::Check;
use sardonyx_base::{DType, Tensor};
use sardonyx_format::tensor_io::{TensorProto, load_tensor, save_npy};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    fn new() -> Folder {
        let folder = Folder { dir: tempfile::tempdir().unwrap() };
        let mut b = two_layers();
        b.derive("twice", "2*batch", None);
        b.entry.checks.push(Check { left: "max(batch, 500)".into(), right: "500".into(), why: "/node".into() });
        b.write(&folder.path("m.sdx"));
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let command = Command::new(env!("CARGO_BIN_EXE_sardonyx-run")).args(args).current_dir(&self.dir).output();
        command.unwrap()
    }

    fn good(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        text(&done.stdout)
    }

    /// Returns the exit code and the text on standard error.
    fn bad(&self, args: &[&str]) -> (i32, String) {
        let done = self.run(args);
        (done.status.code().unwrap(), text(&done.stderr))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An input `x` of 0.5 everywhere, for which each element of `y` is (4·0.5 + 3)·0.5·8 = 20.
fn half(batch: usize) -> Tensor {
    Tensor::from_vec(vec![batch, 8], vec![0.5f32; batch * 8])
}

#[test]
fn run_prints_and_saves() {
    let f = Folder::new();
    save_npy(f.path("x.npy"), &half(2)).unwrap();
    let out = f.good(&["run", "m.sdx", "--input", "x=x.npy", "--output-dir", "out/deep", "--threads", "2"]);
    assert_eq!(out, "y f32 [2]: 20 20\nwrote out/deep/y.npy\n");
    assert_eq!(load_tensor(f.path("out/deep/y.npy")).unwrap().to_vec::<f32>().unwrap(), [20.0, 20.0]);
    assert_eq!(f.good(&["run", "m.sdx", "--input", "x=zeros", "--dim", "batch=1"]), "y f32 [1]: 12\n");
    let random = || f.good(&["run", "m.sdx", "--input", "x=random", "--dim", "batch=3", "--verify", "lazy"]);
    assert_eq!(random(), random());
    assert_eq!(f.good(&["run", "m.sdx", "--input", "x=range:0.5..0.5", "--dim", "batch=1"]), "y f32 [1]: 20\n");
}

#[test]
fn mistakes_have_a_code_and_exit_2() {
    let f = Folder::new();
    std::fs::write(f.path("junk.sdx"), b"PK junk").unwrap();
    std::fs::write(f.path("x.npy"), b"junk").unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["run", "none.sdx"], "error[E0002]: cannot read none.sdx"),
        (&["run", "junk.sdx"], "error[E0401]: "),
        (&["run", "m.sdx"], "error[E0301]: the input `x` is missing"),
        (&["run", "m.sdx", "--input", "x"], "error[E0001]: `--input x` has no `=`"),
        (&["run", "m.sdx", "--input", "z=zeros"], "error[E0301]: the model has no input `z`"),
        (&["run", "m.sdx", "--input", "x=x.npy"], "error[E0302]: not a .npy file"),
        (&["run", "m.sdx", "--input", "x=zeros"], "error[E0204]: the input `x` needs a size for `batch`"),
        (
            &["run", "m.sdx", "--input", "x=zeros", "--dim", "seq=1"],
            "error[E0204]: the model has no dimension named `seq`",
        ),
        (
            &["run", "m.sdx", "--input", "x=zeros", "--dim", "batch"],
            "error[E0001]: `--dim batch` is not a name and a size",
        ),
        (
            &["run", "m.sdx", "--input", "x=zeros", "--dim", "batch=1001"],
            "error[E0301]: `batch` = 1001 (input `x`, dimension 0) is outside 0..1000\n  --> m.sdx, node /node\n",
        ),
        (&["run", "m.sdx", "--input", "x=zeros", "--dim", "batch=9223372036854775807"], "error[E0202]: "),
        (&["run", "m.sdx", "--threads", "0"], "error[E0001]: invalid value '0' for '--threads <N>'"),
        (
            &["run", "m.sdx", "--input", "x=zeros", "--dim", "batch=1", "--threads", "100000"],
            "error[E0001]: a session of 100000 threads; at most 1024 are supported",
        ),
        (
            &["bench", "m.sdx", "--dim", "batch=1", "--threads", "1025"],
            "error[E0001]: a session of 1025 threads; at most 1024 are supported",
        ),
        (&["run", "m.sdx", "--input", "x=zeros", "--dim", "batch=400", "--memory-limit", "1K"], "error[E0304]: "),
        (
            &["bench", "m.sdx", "--dim", "batch=1", "--deadline", "0.000001ms"],
            "error[E0305]: the deadline of the call has passed",
        ),
        (
            &["run", "m.sdx", "--deadline", "5"],
            "error[E0001]: invalid value '5' for '--deadline <TIME>': a time has a unit: us, ms, s or min",
        ),
        (
            &["run", "m.sdx", "--links", "1ms"],
            "error[E0001]: invalid value '1ms' for '--links <LATENCY,BYTES>': a link is a latency and bytes a second: 50us,1G",
        ),
        (
            &["run", "m.sdx", "--links", "1ms,0"],
            "error[E0001]: invalid value '1ms,0' for '--links <LATENCY,BYTES>': a link carries something",
        ),
        (&["run", "m.sdx", "--verify", "maybe"], "error[E0001]: invalid value 'maybe'"),
        (&["frobnicate"], "error[E0001]: unrecognized subcommand 'frobnicate'"),
        (&["bench"], "error[E0001]: the following required arguments were not provided:"),
        (&["check", "m.sdx", "--data", "."], "error[E0002]: . holds no `output_0.pb`"),
    ];
    for (args, wanted) in cases {
        let (code, message) = f.bad(args);
        assert_eq!(code, 2, "{args:?}: {message}");
        assert!(message.starts_with(wanted), "{args:?}: {message}");
    }
    assert_eq!(f.run(&["--help"]).status.code(), Some(0));
    assert!(f.good(&["--version"]).starts_with("sardonyx-run "));
}

#[test]
fn an_output_folder_that_cannot_be_written_leaves_nothing() {
    let f = Folder::new();
    std::fs::write(f.path("file"), b"").unwrap();
    let (code, message) = f.bad(&["run", "m.sdx", "--input", "x=zeros", "--dim", "batch=1", "--output-dir", "file/x"]);
    assert_eq!(code, 2);
    assert!(message.starts_with("error[E0002]: cannot create the folder file/x"), "{message}");
}

fn write_set(dir: &Path, name: &str, x: &Tensor, y: &Tensor) {
    std::fs::create_dir_all(dir).unwrap();
    let save = |file: &str, name: &str, t| {
        std::fs::write(dir.join(file), TensorProto::from_tensor(name, t).to_bytes()).unwrap();
    };
    save("input_0.pb", name, x);
    save("output_0.pb", "y", y);
}

#[test]
fn check_counts_what_passed_and_what_failed() {
    let f = Folder::new();
    let y = |v: Vec<f32>| Tensor::from_vec(vec![v.len()], v);
    write_set(&f.path("data/test_data_set_0"), "x", &half(2), &y(vec![20.0, 20.001]));
    write_set(&f.path("data/test_data_set_2"), "", &half(1), &y(vec![20.0]));
    let out = f.good(&["check", "m.sdx", "--data", "data"]);
    let first = "data/test_data_set_0: y: ok, max abs error 9.995e-4, max rel error 4.997e-5, worst at [1]: \
                 20 instead of 20.001";
    assert!(out.starts_with(first), "{out}");
    assert!(out.ends_with("2 passed, 0 failed\n"), "{out}");

    write_set(&f.path("data/test_data_set_10"), "x", &half(2), &y(vec![20.0, 21.0]));
    write_set(&f.path("data/test_data_set_11"), "other", &half(2), &y(vec![20.0]));
    write_set(&f.path("data/test_data_set_12"), "x", &half(2), &y(vec![20.0]));
    let done = f.run(&["check", "m.sdx", "--data", "data", "--threads", "1"]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{out}");
    let order: Vec<usize> =
        ["set_0:", "set_2:", "set_10:", "set_11:", "set_12:"].iter().map(|s| out.find(s).unwrap()).collect();
    assert!(order.is_sorted());
    assert!(out.contains("worst at [1]: 20 instead of 21, 1 of 2 outside the tolerance"), "{out}");
    assert!(out.contains("the data set's input 0 is named `other`, but the model has no such input"), "{out}");
    assert!(out.contains("y: failed, the shape is [2], expected [1]"), "{out}");
    assert!(out.ends_with("2 passed, 3 failed\n"), "{out}");

    let strict = ["check", "m.sdx", "--data", "data/test_data_set_0", "data/test_data_set_2", "--max-ulp", "2"];
    let done = f.run(&strict);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stdout).ends_with("1 passed, 1 failed\n"));
}

#[test]
fn collectives_are_predicted_on_described_clusters() {
    let f = Folder::new();
    let arguments =
        |topology: &'static str| ["collectives", "--ranks", "16", "--bytes", "65536", "--topology", topology];
    let table = f.good(&arguments("torus-2d"));
    assert!(
        table.starts_with("predicted on `torus-2d`: A torus of 8 x 8\nAllReduce mesh=0 by=add, 65536 bytes\n"),
        "{table}"
    );
    let json = f.good(&[&arguments("dgx-h100")[..], &["--json", "--op", "AllReduce mesh=0 by=add"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let candidates = json["collectives"][0]["candidates"].as_array().unwrap();
    let times: Vec<f64> = candidates.iter().map(|c| c["time_us"].as_f64().unwrap()).collect();
    assert!(times.len() > 5 && times.is_sorted(), "{times:?}");
    let ring = candidates.iter().find(|c| c["algorithm"] == "ring").unwrap();
    // 30 rounds of 16 messages, each a sixteenth of the bytes.
    assert_eq!((&ring["messages"], &ring["bytes"]), (&480.into(), &(30 * 65536).into()));
    std::fs::write(f.path("t.toml"), "name = 1").unwrap();
    let (code, message) = f.bad(&arguments("t.toml"));
    assert!(code == 2 && message.contains("E0108") && message.contains("line 1"), "{message}");
    assert_eq!(f.bad(&arguments("absent.toml")).0, 2);
    let (code, message) = f.bad(&["collectives", "--ranks", "65", "--topology", "torus-2d"]);
    assert!(code == 2 && message.contains("65 ranks on the 64 devices of `torus-2d`"), "{message}");
}

/// The links are emulated, so that their latency and bandwidth are known.
#[test]
fn links_between_ranks_are_measured() {
    let f = Folder::new();
    let calibrate = |ranks| ["calibrate", "--ranks", ranks, "--links", "3ms,1G", "-o", "links.toml"];
    let table = f.good(&calibrate("2"));
    assert_eq!(table.lines().count(), 7, "{table}");
    let text = std::fs::read_to_string(f.path("links.toml")).unwrap();
    let figure = |name: &str| -> f64 {
        let rest = text.split(&format!("\n{name} = {{ value = ")).nth(1).unwrap();
        rest[..rest.find(',').unwrap()].parse().unwrap()
    };
    // A message passes two links, each with half of the 3 ms. On a machine with other work the measured latency is
    // larger, never smaller.
    assert!((1500.0..3500.0).contains(&figure("latency_us")) && (0.4..1.5).contains(&figure("gb_s")), "{text}");
    let predicted = f.good(&["collectives", "--ranks", "2", "--bytes", "8", "--topology", "links.toml"]);
    assert!(predicted.starts_with("predicted on `calibrated`"), "{predicted}");
    let (code, message) = f.bad(&calibrate("1"));
    assert!(code == 2 && message.contains("one rank has no links"), "{message}");
    assert_eq!(f.bad(&["calibrate", "--ranks", "2", "-o", "absent/links.toml"]).0, 2);
}

#[test]
fn inspect_evaluates_the_memory_of_a_call() {
    let f = Folder::new();
    let formula = "  arena     128 bytes at batch=1 (128*((32*batch + 63) floordiv (64)) bytes)\n";
    let out = f.good(&["inspect", "m.sdx"]);
    assert!(out.contains(formula) && !out.contains("  peak "), "{out}");
    let peak = "  peak      256 bytes at batch=3, 256 live at one time; outputs 12, scratch 64 per thread\n";
    let out = f.good(&["inspect", "m.sdx", "--dim", "batch=3"]);
    assert!(out.contains(&format!("{formula}{peak}")), "{out}");
    let report: serde_json::Value =
        serde_json::from_str(&f.good(&["inspect", "m.sdx", "--dim", "twice=6", "--json"])).unwrap();
    let call = &report["entry_points"][0]["call"];
    assert_eq!((&call["at"][0]["value"], &call["arena_bytes"]), (&3.into(), &256.into()), "{call}");

    // The peak is shown for each entry point whose sizes are all known.
    decoder().write(&f.path("d.sdx"));
    let peaks = |dims: &[&str]| {
        let dims: Vec<&str> = dims.iter().flat_map(|d| ["--dim", d]).collect();
        f.good(&[&["inspect", "d.sdx"], &dims[..]].concat()).matches("  peak ").count()
    };
    assert_eq!((peaks(&["batch=2", "seq=3"]), peaks(&["batch=2", "seq=3", "past=4"])), (1, 2));

    for (dims, wanted) in [
        (&["nope=1"][..], "error[E0204]: the model has no dimension named `nope`"),
        (&["batch"], "error[E0001]: `--dim batch` is not a name and a size"),
        (&["batch=1001"], "error[E0301]: `batch` = 1001 is outside 0..1000"),
        (&["batch=3", "twice=8"], "error[E0301]: "),
    ] {
        let dims: Vec<&str> = dims.iter().flat_map(|d| ["--dim", d]).collect();
        let (code, shown) = f.bad(&[&["inspect", "m.sdx"], &dims[..]].concat());
        assert!(code == 2 && shown.starts_with(wanted), "{code} {shown}");
    }
}

/// The page has the steps of one entry point and the memory of a call. It is not for a particular device, so it has no
/// roofline.
#[test]
fn inspect_writes_a_page_of_an_entry_point() {
    let f = Folder::new();
    let shown = f.good(&["inspect", "m.sdx", "--dim", "batch=3", "--html", "m.html"]);
    assert_eq!(shown, "m.html: entry point main, 3 steps\n");
    let page = std::fs::read_to_string(f.path("m.html")).unwrap();
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    // The last step reads an intermediate value of 3 x 8 f32 and 8 weights, and writes a number for each row.
    let figures = |step: usize| ["items", "read", "constants", "written"].map(|key| data["steps"][step][key].as_i64());
    assert_eq!(figures(2), [3, 96, 32, 12].map(Some));
    assert_eq!((&data["steps"][2]["name"], &data["steps"][2]["origins"][0]), (&"rowdot".into(), &"/node_2".into()));
    assert_eq!((page.matches("class=\"node").count(), page.matches("class=\"edge").count()), (2, 1));
    // Steps 0 and 1 launch the same kernel: they are a repeated layer, which is drawn once.
    assert!(page.contains("Step 0 is drawn once: it repeats 2 times."), "{page}");
    assert!(page.contains("<dt>sizes</dt><dd>batch = 3</dd>") && page.contains("<rect class=\"block\""), "{page}");
    assert!(!page.contains("{{") && !page.contains("<h2>Roofline"), "{page}");
    for elsewhere in ["http:", "https:", "src=", "url(", "@import", "fetch("] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    decoder().write(&f.path("d.sdx"));
    assert!(f.good(&["inspect", "d.sdx", "--entry", "decode", "--html", "d.html"]).contains("entry point decode"));
    // One size is given, the others are the default ones.
    assert!(f.good(&["inspect", "d.sdx", "--dim", "batch=4", "--html", "d.html"]).contains("entry point prefill"));
    let page = std::fs::read_to_string(f.path("d.html")).unwrap();
    assert!(page.contains("batch = 4") && page.contains("seq = 128") && !data.to_string().contains('<'), "{page}");
    let (code, shown) = f.bad(&["inspect", "m.sdx", "--html", "m.sdx"]);
    assert!(code == 2 && shown.starts_with("error[E0001]: the output m.sdx is the artifact"), "{shown}");
    assert_eq!(f.bad(&["inspect", "m.sdx", "--html", "n.html", "--json"]).0, 2);
}

#[test]
fn inspect_shows_the_plan_without_loading_the_code() {
    let f = Folder::new();
    let mut b = two_layers();
    b.derive("twice", "2*batch", None);
    b.entry.checks.push(Check { left: "max(batch, 500)".into(), right: "500".into(), why: "/node".into() });
    b.manifest.arch = "aarch64".into();
    b.write(&f.path("other.sdx"));
    for name in ["m.sdx", "other.sdx"] {
        let (out, all) = (f.good(&["inspect", name]), f.good(&["inspect", name, "--steps"]));
        for line in [
            "32 bytes of weights",
            "producer    test",
            "symbol      batch in 0..1000: input `x`, dimension 0",
            "derived     twice = 2*batch in 0.., by /node",
            "  check     batch <= 500 (/node)",
            "entry point main: 2 kernels in 3 launches",
            "  input     x f32 [batch, 8]",
            "  output    y f32 [batch]",
        ] {
            assert!(out.contains(line) && all.contains(line), "{line} in\n{out}");
        }
        for line in [
            "constants   1, 32 bytes",
            "file        weights 32 bytes, blake3 ",
            "  step 2    rowdot grid batch buffers [4, 2, 1] params [8] /node_2",
            "rowdot map, 3 buffers (1 written), 1 parameters, scratch 4*p0, 1 launches",
        ] {
            assert!(!out.contains(line) && all.contains(line), "{line} in\n{all}");
        }
    }
}

#[test]
fn json_reports_are_json_and_say_what_the_text_says() {
    let f = Folder::new();
    let json = |args: &[&str]| serde_json::from_slice::<serde_json::Value>(&f.run(args).stdout).unwrap();
    let report = json(&["run", "m.sdx", "--input", "x=zeros", "--dim", "batch=2", "--output-dir", "out", "--json"]);
    let y = serde_json::json!({"name": "y", "dtype": "f32", "dims": [2], "file": "out/y.npy"});
    assert_eq!(report, serde_json::json!({"outputs": [y]}));
    assert!(f.path("out/y.npy").is_file());
    let report = json(&["run", "m.sdx", "--input", "x=zeros", "--dim", "batch=2", "--json"]);
    assert_eq!(report["outputs"][0]["file"], serde_json::Value::Null);

    let report = json(&["inspect", "m.sdx", "--json"]);
    assert_eq!(report["format"], "1.8");
    assert_eq!(report["symbols"][0], serde_json::json!({"name": "batch", "kind": "input", "lo": 0, "hi": 1000}));
    let derived = serde_json::json!({"name": "twice", "equals": "2*batch", "lo": 0, "hi": null, "why": "/node"});
    assert_eq!(report["derived"], serde_json::json!([derived]));
    assert_eq!(report["files"][0]["name"], "weights");
    assert_eq!(report["files"][0]["blake3"].as_str().unwrap().len(), 64);
    assert_eq!(report["selftest"], serde_json::Value::Null);
    assert_eq!(report["kernels"][0]["launches"], 2);
    let main = &report["entry_points"][0];
    assert_eq!(main["sources"], serde_json::json!([{"symbol": "batch", "input": "x", "axis": 0}]));
    assert_eq!(main["inputs"][0], serde_json::json!({"name": "x", "dtype": "f32", "dims": ["batch", "8"]}));
    assert_eq!(main["steps"][2]["buffers"], serde_json::json!([4, 2, 1]));

    let y = |v: Vec<f32>| Tensor::from_vec(vec![v.len()], v);
    write_set(&f.path("data/a"), "x", &half(2), &y(vec![20.0, 21.0]));
    write_set(&f.path("data/b"), "x", &half(1), &y(vec![20.0]));
    write_set(&f.path("data/c"), "z", &half(1), &y(vec![20.0]));
    let report = json(&["check", "m.sdx", "--data", "data", "--json"]);
    assert_eq!((&report["passed"], &report["failed"]), (&1.into(), &2.into()));
    let bad = &report["sets"][0];
    assert_eq!((&bad["set"], &bad["passed"], &bad["error"]), (&"data/a".into(), &false.into(), &().into()));
    assert_eq!((&bad["outputs"][0]["max_abs_error"], &bad["outputs"][0]["n_failed"]), (&1.0.into(), &1.into()));
    assert_eq!(report["sets"][1]["outputs"][0]["passed"], true);
    assert!(report["sets"][2]["error"].as_str().unwrap().starts_with("error[E0301]: "));
}

#[test]
fn entry_points_are_named_and_their_states_shown() {
    let f = Folder::new();
    decoder().write(&f.path("d.sdx"));
    let call = ["--entry", "decode", "--input", "x=range:1..1", "--input", "past=zeros"];
    let dims = ["--dim", "batch=1", "--dim", "seq=1", "--dim", "past=2"];
    let out = f.good(&[&["run", "d.sdx"][..], &call, &dims].concat());
    assert_eq!(out, "present f32 [1, 3, 4]: 0 0 0 0 0 0 0 0 …\ny f32 [1, 4]: 9 9 9 9\n");
    let (code, message) = f.bad(&["run", "d.sdx"]);
    assert_eq!(code, 2);
    let wanted = "error[E0301]: the model has no entry point `main`\n  --> d.sdx\n  help: it has prefill, decode\n";
    assert_eq!(message, wanted);

    let all = f.good(&["inspect", "d.sdx"]);
    assert!(all.contains("\nentry point prefill: ") && all.contains("\nentry point decode: "), "{all}");
    assert!(all.contains("symbol      room_in in 0..: capacity of a cache\n"), "{all}");
    let one = f.good(&["inspect", "d.sdx", "--entry", "decode", "--steps"]);
    assert!(!one.contains("entry point prefill"), "{one}");
    for line in ["  state     past -> present, axis 1, room for room_in -> room_out\n", " /node_0 carries state 0\n"] {
        assert!(one.contains(line), "{line} in\n{one}");
    }
    assert_eq!(f.bad(&["inspect", "d.sdx", "--entry", "main"]).1, wanted);
    let report: serde_json::Value =
        serde_json::from_str(&f.good(&["inspect", "d.sdx", "--entry", "decode", "--json"])).unwrap();
    let (entries, room) = (report["entry_points"].as_array().unwrap(), ["room_in", "room_out"]);
    assert_eq!((entries.len(), &entries[0]["name"]), (1, &"decode".into()));
    let state = serde_json::json!({"input": "past", "output": "present", "axis": 1, "input_capacity": room[0],
                                   "output_capacity": room[1], "kept": null});
    assert_eq!(entries[0]["states"], serde_json::json!([state]));
    assert_eq!(entries[0]["steps"][0]["carries"], 0);
    assert_eq!(entries[0]["steps"][1]["carries"], serde_json::Value::Null);
}

#[test]
fn the_examples_of_the_help_are_command_lines_of_this_program() {
    let f = Folder::new();
    for command in ["run", "check", "bench", "inspect", "completions"] {
        let help = f.good(&[command, "--help"]);
        let examples: Vec<&str> = help.split("Examples:\n").nth(1).unwrap().lines().collect();
        assert!(examples.len() >= 2, "{help}");
        for example in examples {
            let words: Vec<&str> = example.split('>').next().unwrap().split_whitespace().collect();
            assert_eq!((words[0], words[1]), ("sardonyx-run", command));
            // The files do not exist; everything else in the command line must be valid.
            let error = text(&f.run(&words[1..]).stderr);
            assert!(error.is_empty() || error.starts_with("error[E0002]"), "{example}: {error}");
        }
    }
    assert!(f.bad(&[]).1.starts_with("error[E0001]: no command is given\n  help: `sardonyx-run --help`"));
}

#[test]
fn shells_accept_their_completions() {
    let f = Folder::new();
    let script = f.good(&["completions", "bash"]);
    std::fs::write(f.path("c.bash"), &script).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-c", "source ./c.bash && complete -p sardonyx-run"]).current_dir(&f.dir);
    let shown = text(&bash.output().unwrap().stdout);
    assert!(shown.contains("_sardonyx"), "{shown}");
    for shell in ["bash", "zsh", "fish"] {
        let script = f.good(&["completions", shell]);
        for word in ["sardonyx-run", "inspect", "verify", "no-selftest"] {
            assert!(script.contains(word), "{word} for {shell}");
        }
    }
    assert_eq!(f.bad(&["completions", "powershell"]).0, 2);
}

#[test]
fn npz_files_hold_several_inputs() {
    use std::io::Write;
    let f = Folder::new();
    save_npy(f.path("x.npy"), &half(2)).unwrap();
    let mut zip = zip::ZipWriter::new(std::fs::File::create(f.path("in.npz")).unwrap());
    zip.start_file("x.npy", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(&std::fs::read(f.path("x.npy")).unwrap()).unwrap();
    zip.finish().unwrap();
    assert_eq!(f.good(&["run", "m.sdx", "--inputs", "in.npz"]), "y f32 [2]: 20 20\n");
    let (code, message) = f.bad(&["run", "m.sdx", "--inputs", "in.npz", "--input", "x=zeros"]);
    assert_eq!((code, message.starts_with("error[E0301]: the input `x` is given twice")), (2, true));
    let (code, _) = f.bad(&["run", "m.sdx", "--inputs", "in.npz", "--dim", "batch=3"]);
    assert_eq!(code, 2);
    assert_eq!(half(1).dtype(), DType::F32);
}

/// Errors name the likely intention: a model instead of an artifact, a folder, a misspelt command.
#[test]
fn mistakes_are_met_with_what_was_meant() {
    let f = Folder::new();
    std::fs::write(f.path("m.onnx"), b"\x08\x09").unwrap();
    std::fs::create_dir(f.path("folder")).unwrap();
    for (file, what) in [("m.onnx", "is an ONNX model"), ("folder", "is a folder")] {
        for command in ["run", "bench", "inspect"] {
            let (code, shown) = f.bad(&[command, file]);
            assert!(code == 2 && shown.contains(&format!("{file} {what}, not an artifact")), "{shown}");
            assert!(
                shown.contains(&format!("help: compile it first: `sardonyx compile {file} -o MODEL.sdx`")),
                "{shown}"
            );
        }
    }
    let (code, shown) = f.bad(&["insect", "m.sdx"]);
    assert!(code == 2 && shown.contains("a similar subcommand exists: 'inspect'"), "{shown}");
    let (_, shown) = f.bad(&["inspect", "m.sdx", "--stesp"]);
    assert!(shown.contains("a similar argument exists: '--steps'") && !shown.contains("as a value"), "{shown}");
}

#[test]
fn inputs_are_listed_on_the_command_line() {
    let f = Folder::new();
    let out = f.good(&["run", "m.sdx", "--input", "x=[[0.5, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 0]]"]);
    assert!(out.starts_with("y f32 [2]: "), "{out}");
    let (code, shown) = f.bad(&["run", "m.sdx", "--input", "x=[[0.5, 1], [2]]"]);
    assert!(code == 2 && shown.contains("unequal lengths") && shown.contains("input `x`"), "{shown}");
    // The list is well-formed, but its shape is not that of the input.
    let (code, shown) = f.bad(&["run", "m.sdx", "--input", "x=[[0.5, 1]]"]);
    assert!(code == 2 && shown.starts_with("error[E0301]"), "{shown}");
}

/// With `--json` an error is an object on standard output, beside the text on standard error.
#[test]
fn errors_are_json_where_json_was_asked_for() {
    let f = Folder::new();
    for args in
        [&["run", "m.sdx", "--json"][..], &["run", "m.sdx", "--nope", "--json"], &["inspect", "none.sdx", "--json"]]
    {
        let output = f.run(args);
        let error = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["error"].clone();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let head = format!("error[{}]: {}", error["code"].as_str().unwrap(), error["message"].as_str().unwrap());
        assert!(text.starts_with(&head) && text.contains(error["help"].as_str().unwrap()), "{text}\n{error}");
        assert_eq!((output.status.code(), &error["exit_code"]), (Some(2), &2.into()));
    }
    let error = serde_json::from_slice::<serde_json::Value>(&f.run(&["run", "m.sdx", "--json"]).stdout).unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["kind"]), (&"E0301".into(), &"input".into()));
    assert!(f.run(&["run", "m.sdx"]).stdout.is_empty());
}
