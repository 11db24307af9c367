//! compile, ops, completions: reports, self-tests, version of saved IR, refusals

use super::*;
use sardonyx::onnx::proto::OperatorSetIdProto;

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
            // The files do not exist; everything else in the command line must be valid.
            let error = text(&f.run(&words[1..]).stderr);
            assert!(error.is_empty() || error.starts_with("error[E0002]"), "{example}: {error}");
        }
    }
    assert!(f.good(&["completions", "bash"]).contains("no-interpreter"));
}

/// A matrix [24, 24] as an initializer.
fn square(name: &str, value: impl Fn(usize, usize) -> f32) -> TensorProto {
    let values = (0..24 * 24).map(|i| value(i / 24, i % 24)).collect();
    TensorProto { name: name.into(), data_type: 1, dims: vec![24, 24], float_data: values, ..Default::default() }
}

/// y = relu(x · w) · v, x and y of [2, 24].
fn two_layers() -> GraphProto {
    let (w, v) =
        (|i, j| ((i * 7 + j * 5) % 11) as f32 / 30.0 - 0.15, |i, j| ((i * 3 + j * 8) % 13) as f32 / 30.0 - 0.2);
    let nodes = vec![node("MatMul", "x w", "t"), node("Relu", "t", "r"), node("MatMul", "r v", "y")];
    let mut graph = GraphProto { initializer: vec![square("w", w), square("v", v)], ..graph("", "", nodes) };
    graph.input.push(f32_value("x", &[2, 24]));
    graph.output.push(f32_value("y", &[2, 24]));
    graph
}

#[test]
fn a_lower_precision_is_measured_and_named() {
    let f = Folder::with(two_layers());
    let out = f.good(&["compile", "m.onnx", "--precision", "bf16", "-o", "b.sdx"]);
    assert!(out.contains("\nprecision: bf16 factors in 2 launches"), "{out}");
    assert!(out.contains("\nprecision: y on canary inputs: max abs error "), "{out}");
    let report =
        f.json(&["compile", "m.onnx", "--precision", "bf16", "-o", "again.sdx", "--report", "movement.json", "--json"]);
    let error = &report["precision"]["errors"][0];
    assert_eq!((&report["precision"]["name"], &error["output"]), (&"bf16".into(), &"y".into()));
    // Operands have 8 significant bits: there is an error, but only of a few units in their last place.
    let relative = error["relative_l2"].as_f64().unwrap();
    assert!(relative > 1e-4 && relative < 2f64.powi(-6), "{relative}");
    assert_eq!(std::fs::read(f.path("b.sdx")).unwrap(), std::fs::read(f.path("again.sdx")).unwrap());
    assert!(f.good(&["inspect", "b.sdx"]).contains("\nprecision   bf16\n"));
    let variants = f.json(&["inspect", "b.sdx", "--json"])["variants"].clone();
    assert_eq!(variants, serde_json::json!(["v3", "v4", "v4bf16"]));
    // With the default precision, f32, nothing about precision is printed.
    assert!(!f.good(&["compile", "m.onnx"]).contains("precision"));
    assert_eq!(f.json(&["inspect", "m.sdx", "--json"])["variants"], serde_json::json!(["v3", "v4"]));
    let bytes = |name: &str| f.json(&["inspect", name, "--json"])["constants_bytes"].as_u64().unwrap();
    assert!(bytes("b.sdx") * 2 <= bytes("m.sdx"), "{} {}", bytes("b.sdx"), bytes("m.sdx"));
}

#[test]
fn every_variant_of_a_lower_precision_gives_the_same_within_its_sums() {
    let f = Folder::with(two_layers());
    f.good(&["compile", "m.onnx", "--precision", "bf16"]);
    let runs = |name: &&str| sardonyx_base::cpu::Level::from_name(name).is_some_and(|l| l.missing().is_empty());
    let levels: Vec<&str> = ["v3", "v4", "v4bf16"].into_iter().filter(runs).collect();
    let sets = levels.iter().map(|level| {
        f.good(&["run", "m.sdx", "--input", "x=random", "--cpu", level, "--output-dir", level]);
        let file = std::fs::read(f.path(level).join("y.npy")).unwrap();
        let data = &file[file.len() - 2 * 24 * 4..];
        data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<f32>>()
    });
    let sets: Vec<Vec<f32>> = sets.collect();
    assert!(sets[0].iter().any(|v| *v != 0.0));
    for (level, other) in levels.iter().zip(&sets) {
        // A value halfway between two bf16 numbers may be rounded in the other direction after a different summation
        // order.
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-3;
        assert!(sets[0].iter().zip(other).all(near), "{level}: {:?} {other:?}", sets[0]);
    }
}

#[test]
fn a_precision_that_is_too_low_is_refused_and_leaves_nothing() {
    // y = 1.001 x - x: rounding 1.001 to bf16 loses the difference.
    let scale = |i, j| if i == j { 1.001 } else { 0.0 };
    let nodes = vec![node("MatMul", "x w", "t"), node("Sub", "t x", "y")];
    let mut graph = GraphProto { initializer: vec![square("w", scale)], ..graph("", "", nodes) };
    graph.input.push(f32_value("x", &[2, 24]));
    graph.output.push(f32_value("y", &[2, 24]));
    let f = Folder::with(graph);
    let (code, message) = f.bad(&["compile", "m.onnx", "--precision", "bf16"]);
    assert!(code == 2 && message.starts_with("error[E0501]: the output `y` is too far from that of f32"), "{message}");
    assert!(message.contains("help: leave out `--precision`"), "{message}");
    let left: Vec<_> = std::fs::read_dir(&f.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["m.onnx"]);
    let out = f.good(&["compile", "m.onnx", "--precision", "bf16", "--no-selftest"]);
    assert!(out.contains("precision: y on canary inputs: max abs error"), "{out}");
    assert!(f.good(&["run", "m.sdx", "--input", "x=zeros"]).contains("y f32 [2, 24]"));
}

/// Rows and columns of each matrix: large enough that quantisation pays off.
pub const N: usize = 80;

/// Same graph as `two_layers`, with larger matrices.
pub fn two_wide_layers() -> GraphProto {
    let matrix = |name: &str, step: usize| {
        let values = (0..N * N).map(|i| ((i * step) % 101) as f32 / 500.0 - 0.1).collect();
        TensorProto {
            name: name.into(),
            data_type: 1,
            dims: vec![N as i64; 2],
            float_data: values,
            ..Default::default()
        }
    };
    let graph = two_layers();
    let (input, output) = (f32_value("x", &[2, N as i64]), f32_value("y", &[2, N as i64]));
    GraphProto { initializer: vec![matrix("w", 7), matrix("v", 13)], input: vec![input], output: vec![output], ..graph }
}

/// Checks that a quantisation to one byte per weight reports an error within the bounds, shrinks the constants, and
/// records its name in the artifact.
fn bytes_are_measured(f: &Folder, name: &'static str, [least, most]: [f64; 2]) {
    let with = |more: &[&'static str]| [&["compile", "m.onnx", "--quantize", name], more].concat();
    let out = f.good(&with(&["-o", "q.sdx"]));
    let launches = format!("\nprecision: {name} factors in 2 launches\n");
    assert!(out.contains(&launches) && !out.contains("self-test: none"), "{out}");
    let report = f.json(&with(&["-o", "again.sdx", "--json"]));
    let relative = report["precision"]["errors"][0]["relative_l2"].as_f64().unwrap();
    assert!(relative > least && relative < most, "{relative}");
    assert_eq!(std::fs::read(f.path("q.sdx")).unwrap(), std::fs::read(f.path("again.sdx")).unwrap());
    f.good(&["compile", "m.onnx"]);
    let bytes = |name: &str| f.json(&["inspect", name, "--json"])["constants_bytes"].as_u64().unwrap();
    assert!(bytes("q.sdx") * 3 < bytes("m.sdx"), "{} {}", bytes("q.sdx"), bytes("m.sdx"));
    assert!(f.good(&["inspect", "q.sdx"]).contains(&format!("\nprecision   {name}\n")));
    // Loading the artifact runs its self-test.
    assert!(f.good(&["run", "q.sdx", "--input", "x=random"]).contains("y f32 [2, 80]"));
}

#[test]
fn codes_are_measured_and_judged_by_their_relative_error() {
    let f = Folder::with(two_wide_layers());
    bytes_are_measured(&f, "int8", [1e-4, 0.02]);
    let int8 = ["compile", "m.onnx", "--quantize", "int8"];
    let with = |more: &[&'static str]| [&int8[..], more].concat();
    let kept = f.good(&with(&["--keep", ".*=f32", "-o", "kept.sdx"]));
    assert!(kept.contains("precision: int8 factors in 0 launches; `--remarks"), "{kept}");
    let both = f.good(&with(&["--target", "cpu", "--target", "cuda:sm_80", "-o", "both.sdx"]));
    assert!(both.contains("plan for gpu: "), "{both}");
    assert!(f.good(&["run", "both.sdx", "--device", "sim:sm_80", "--input", "x=zeros"]).contains("y f32"));
}

#[test]
fn floats_of_8_bits_are_codes_too() {
    let f = Folder::with(two_wide_layers());
    // Each operand is rounded to 4 significant bits, and sums that cancel magnify the error.
    bytes_are_measured(&f, "fp8", [1e-3, 0.2]);
    let fp8 = ["compile", "m.onnx", "--quantize", "fp8"];
    let with = |more: &[&'static str]| [&fp8[..], more].concat();
    // On this GPU the products are computed in f32.
    f.good(&with(&["--target", "cuda:sm_80", "-o", "gpu.sdx"]));
    assert!(f.good(&["run", "gpu.sdx", "--device", "sim:sm_80", "--input", "x=zeros"]).contains("y f32"));
    f.good(&with(&["--calibrate", "random", "--group", "32"]));
    let (code, message) = f.bad(&with(&["--activations", "int8", "-o", "no.sdx"]));
    assert!(code == 2 && message.starts_with("error[E0001]: `--activations int8` is not for fp8"), "{message}");
    assert!(message.contains("help: leave out `--activations`") && !exists(&f.path("no.sdx")), "{message}");
}

/// y = x · w, where DequantizeLinear computes w from 80 x 80 codes and scales; `code` and `scale` are their ONNX types.
/// A scale is for `block` rows of a column, or for a whole column.
fn floats_of_the_model(code: i32, scale: i32, block: Option<i64>) -> ModelProto {
    let tensor = |name: &str, data_type: i32, dims: Vec<i64>, raw: Vec<u8>| TensorProto {
        name: name.into(),
        data_type,
        dims,
        raw_data: raw.into(),
        ..Default::default()
    };
    // Avoids -0 and the largest exponents, since some of those codes are NaN.
    let codes = (0..N * N).map(|i| (1 + i * 37 % 0x6f) as u8 | ((i % 3 == 0) as u8) << 7).collect();
    let dims = block.map_or(vec![N as i64], |block| vec![N as i64 / block, N as i64]);
    let n = dims.iter().product::<i64>() as usize;
    let scales = (0..n).flat_map(|i| match scale {
        1 => (0.001 * (1 + i % 5) as f32).to_le_bytes().to_vec(),
        _ => vec![117 + (i % 5) as u8],
    });
    let dequantize = with(node("DequantizeLinear", "q s", "w"), int("axis", i64::from(block.is_none())));
    let dequantize = block.map_or(dequantize.clone(), |block| with(dequantize, int("block_size", block)));
    let dequantize = with(dequantize, int("output_dtype", 1));
    let graph = GraphProto {
        initializer: vec![tensor("q", code, vec![N as i64; 2], codes), tensor("s", scale, dims, scales.collect())],
        input: vec![f32_value("x", &[2, N as i64])],
        output: vec![f32_value("y", &[2, N as i64])],
        ..graph("", "", vec![dequantize, node("MatMul", "x w", "y")])
    };
    let mut model = model(graph);
    model.ir_version = 11;
    model.opset_import[0].version = 25;
    model
}

#[test]
fn floats_of_8_bits_that_a_model_has_stay_bytes() {
    let f = Folder::new();
    let (f32, e8m0) = (1, 24);
    for (code, scale, block) in
        [(17, f32, None), (18, f32, Some(16)), (19, e8m0, Some(16)), (20, f32, None), (17, e8m0, Some(8))]
    {
        std::fs::write(f.path("m.onnx"), floats_of_the_model(code, scale, block).encode_to_vec()).unwrap();
        f.good(&["compile", "m.onnx", "-o", "m.sdx"]);
        let bytes = f.json(&["inspect", "m.sdx", "--json"])["constants_bytes"].as_u64().unwrap();
        let codes = (N * N.next_multiple_of(32)) as u64;
        assert!(bytes >= codes && bytes < 2 * codes, "{code} {scale} {block:?}: {bytes}");
        // Loading the artifact runs its self-test.
        assert!(f.good(&["run", "m.sdx", "--input", "x=random"]).contains("y f32 [2, 80]"));
    }
}

#[test]
fn blocks_of_channels_are_as_large_as_the_caller_says() {
    let mut conv = node("Conv", "x w", "y");
    conv.domain = "com.microsoft.nchwc".into();
    let weights = (0..64).map(|i| i as f32).collect();
    let graph = GraphProto {
        initializer: vec![crate::calibrate::tensor("w", &[8, 8, 1, 1], weights)],
        input: vec![f32_value("x", &[1, 8, 1, 1])],
        output: vec![f32_value("y", &[1, 8, 1, 1])],
        ..graph("", "", vec![conv])
    };
    let (f, mut model) = (Folder::new(), model(graph));
    model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft.nchwc".into(), version: 1 });
    std::fs::write(f.path("m.onnx"), model.encode_to_vec()).unwrap();
    let (code, message) = f.bad(&["compile", "m.onnx"]);
    assert!(code == 2 && message.starts_with("error[E0101]") && message.contains("--nchwc-block 16"), "{message}");
    let (code, message) = f.bad(&["compile", "m.onnx", "--nchwc-block", "16"]);
    assert!(code == 2 && message.contains("is not in blocks of 16 channels"), "{message}");
    f.good(&["compile", "m.onnx", "--nchwc-block", "8", "-o", "m.sdx"]);
    // In a block, the weights of one input channel for all eight output channels are adjacent.
    let x = "x=[[[[0]],[[1]],[[0]],[[0]],[[0]],[[0]],[[0]],[[0]]]]";
    let out = f.good(&["run", "m.sdx", "--input", x]);
    assert!(out.starts_with("y f32 [1, 8, 1, 1]: 8 9 10 11"), "{out}");
}

#[test]
fn codes_that_are_too_far_off_leave_nothing() {
    let f = Folder::with(two_wide_layers());
    let refused = |more: &[&str]| f.bad(&[&["compile", "m.onnx", "--quantize", "int8"], more].concat());
    let (code, message) = refused(&["--error-budget", "1e-6"]);
    assert!(code == 2 && message.starts_with("error[E0501]: the output `y` is too far from that of f32"), "{message}");
    assert!(message.contains("help: allow more with `--error-budget`"), "{message}");
    let (code, message) = refused(&["--ranks", "2"]);
    assert!(code == 2 && message.starts_with("error[E0001]: `--quantize` is not for several ranks"), "{message}");
    for wrong in [["--error-budget", "0"], ["--error-budget", "nan"], ["--keep", "a=int4"], ["--keep", "(=f32"]] {
        assert_eq!(refused(&wrong).0, 2, "{wrong:?}");
    }
    let left: Vec<_> = std::fs::read_dir(&f.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["m.onnx"]);
}

#[test]
fn only_caches_have_a_format() {
    let f = Folder::with(two_layers());
    let (code, message) = f.bad(&["compile", "m.onnx", "--kv-cache", "bfp8"]);
    assert!(
        code == 2
            && message.contains(
                "error[E0001]: `--kv-cache bfp8` is for models with caches that can have it: this one has none"
            ),
        "{message}"
    );
    assert!(message.contains("help: a cache is an input of f32 that is an output again"), "{message}");
    assert_eq!(f.bad(&["compile", "m.onnx", "--kv-cache", "int4"]).0, 2);
    assert!(!f.path("m.sdx").exists());
    f.good(&["compile", "m.onnx", "--kv-cache", "f32"]);
}

#[test]
fn a_lower_precision_is_for_gpus_too() {
    let f = Folder::with(two_layers());
    let both = ["--target", "cpu", "--target", "cuda:sm_80"];
    let told = f.good(&[&["compile", "m.onnx", "--precision", "bf16"], &both[..]].concat());
    assert!(told.contains("precision: bf16 factors in 2 launches") && told.contains("plan for gpu: "), "{told}");
    for device in ["cpu", "sim:sm_80"] {
        let ran = f.good(&["run", "m.sdx", "--device", device, "--input", "x=zeros"]);
        assert!(ran.contains("y f32"), "{ran}");
    }
}
