//! compile, ops, completions: reports, self-tests, versions of saved IR, refusals

use super::*;

#[test]
fn a_compilation_is_reported_and_reproduces() {
    let f = Folder::with(layer());
    let report = f.json(&["compile", "m.onnx", "-o", "a.sdx", "--json"]);
    assert_eq!((&report["output"], &report["selftest"]), (&"a.sdx".into(), &true.into()));
    assert!(report["kernels"].as_u64() >= Some(1) && report["launches"].as_u64() >= report["kernels"].as_u64());
    assert!(report["code_bytes"].as_u64() > Some(0) && report["weights_bytes"].as_u64() > Some(0));
    assert!(report["arena_bytes"].as_str().unwrap().parse::<u64>().is_ok());
    let stages: Vec<&str> = report["stages"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    for stage in ["read", "simplify", "self-test", "codegen"] {
        assert!(stages.contains(&stage), "{stages:?}");
    }
    f.good(&["compile", "m.onnx", "-o", "b.sdx"]);
    assert_eq!(std::fs::read(f.path("a.sdx")).unwrap(), std::fs::read(f.path("b.sdx")).unwrap());
}

#[test]
fn an_artifact_carries_its_self_test_unless_told_otherwise() {
    let f = Folder::with(layer());
    assert!(!f.good(&["compile", "m.onnx"]).contains("self-test"));
    assert_eq!(f.json(&["inspect", "m.sdx", "--json"])["selftest"]["inputs"][0]["dims"], serde_json::json!([2, 3]));
    assert!(f.good(&["inspect", "m.sdx"]).contains("\nself-test   x [2, 3]\n"));
    assert!(f.good(&["run", "m.sdx", "--input", "x=zeros"]).starts_with("y f32 [2, 3]: 0 0"));
    let out = f.good(&["compile", "m.onnx", "--no-selftest"]);
    assert!(out.ends_with("\nself-test: none, it was not asked for\n"), "{out}");
    let report = f.json(&["compile", "m.onnx", "--no-selftest", "--json"]);
    assert_eq!((&report["selftest"], &report["selftest_skipped"]), (&false.into(), &"it was not asked for".into()));
    assert_eq!(f.json(&["inspect", "m.sdx", "--json"])["selftest"], serde_json::Value::Null);
}

#[test]
fn all_unsupported_operators_are_named_at_once_with_their_nodes() {
    let branch = graph("", "p", vec![node("Neg", "x", "p")]);
    let conditional = with(named("choose", node("Unless", "x", "c")), graph_attribute("then_branch", branch));
    let foo = |i: usize| named(&format!("/layer.{i}/Foo"), node("Foo", "x", &format!("f{i}")));
    let nodes = (0..5).map(foo).chain([conditional, node("Relu", "x", "y")]).collect();
    let f = Folder::with(graph("x", "y f0 f1 f2 f3 f4 c", nodes));
    let wanted = "error[E0101]: unsupported operators `Foo` (/layer.0/Foo, /layer.1/Foo, /layer.2/Foo and 2 more), \
                  `Unless` (choose)\n  --> m.onnx, node /layer.0/Foo\n  \
                  help: `sardonyx ops` lists the supported operators\n";
    assert_eq!(f.bad(&["compile", "m.onnx"]), (2, wanted.into()));
    assert!(!exists(&f.path("m.sdx")));
    let f = Folder::with(graph("x", "y", vec![named("/a", node("Bar", "x", "y"))]));
    let (_, message) = f.bad(&["compile", "m.onnx"]);
    assert!(message.starts_with("error[E0101]: unsupported operator `Bar` (/a)\n  --> m.onnx"), "{message}");
}

#[test]
fn saved_ir_says_its_version_and_a_newer_one_is_refused() {
    let f = Folder::with(layer());
    let report = f.json(&["compile", "m.onnx", "--stop-after", "simplify", "-o", "m.mlir", "--json"]);
    assert_eq!((&report["stopped_after"], &report["output"]), (&"simplify".into(), &"m.mlir".into()));
    let ir = std::fs::read_to_string(f.path("m.mlir")).unwrap();
    assert!(ir.contains("module attributes {sardonyx.version = 1 : i64}"), "{ir}");
    let opt = |file: &str| {
        let done = f.program(
            env!("CARGO_BIN_EXE_sardonyx-opt"),
            &[file, "--pass-pipeline=builtin.module(sdx-to-flow,inline-maps)"],
        );
        (done.status.code().unwrap(), text(&done.stdout), text(&done.stderr))
    };
    let (code, out, err) = opt("m.mlir");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("flow.") && out.contains("sardonyx.version = 1"), "{out}");
    std::fs::write(f.path("new.mlir"), ir.replace("version = 1", "version = 9")).unwrap();
    let (code, _, err) = opt("new.mlir");
    let sentence = "error[E0402]: the module is of IR version 9; this compiler reads versions up to 1";
    assert!(code == 2 && err.starts_with(sentence), "{code} {err}");

    f.good(&["compile", "m.onnx", "--dump-dir", "stages"]);
    let mut n_stages = 0;
    for entry in std::fs::read_dir(f.path("stages")).unwrap() {
        let ir = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(ir.contains("sardonyx.version = 1 : i64"), "{ir}");
        n_stages += 1;
    }
    assert_eq!(n_stages, sardonyx::pipeline::STAGES.len());
    let (code, message) = f.bad(&["compile", "m.onnx", "--stop-after", "import", "--json"]);
    assert!(code == 2 && message.starts_with("error[E0001]: `--json` and `--stop-after` would both"), "{message}");
}

#[test]
fn operators_are_listed_as_text_and_as_json() {
    let f = Folder::new();
    let lines = f.good(&["ops"]).lines().count();
    let report = f.json(&["ops", "--json"]);
    let all = report["operators"].as_array().unwrap();
    assert_eq!(all.len(), lines);
    let gelu = serde_json::json!({"domain": "ai.onnx", "name": "Gelu", "first_opset": 20, "last_opset": 28,
        "runs": "compiled"});
    assert!(all.contains(&gelu));
}

#[test]
fn the_examples_of_the_help_are_command_lines_of_this_program() {
    let f = Folder::new();
    for command in ["compile", "check", "run", "bench", "inspect", "ops", "completions"] {
        let help = f.good(&[command, "--help"]);
        let examples: Vec<&str> = help.split("Examples:\n").nth(1).unwrap().lines().collect();
        assert!(examples.len() >= 2, "{help}");
        for example in examples {
            let words: Vec<&str> = example.split('>').next().unwrap().split_whitespace().collect();
            assert_eq!((words[0], words[1]), ("sardonyx", command));
            // The files are not there; everything else must be right.
            let error = text(&f.run(&words[1..]).stderr);
            assert!(error.is_empty() || error.starts_with("error[E0002]"), "{example}: {error}");
        }
    }
    assert!(f.good(&["completions", "bash"]).contains("no-interpreter"));
}
