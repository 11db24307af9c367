//! `plan`, and `compile --plan` with its output: which plans are found, what they compute, and refusals

#[expect(dead_code, reason = "the example's `main` is not called")]
#[path = "../../examples/skeleton.rs"]
mod skeleton;

use super::*;

/// y = max(x · w, 0) · v for x [512, 256]; w and v [256, 256] are in the external file `w.bin`, which may be missing.
fn two_products() -> GraphProto {
    let entry = |key: &str, value: String| reference_entry(key, &value);
    let matrix = |name: &str, at: usize| TensorProto {
        name: name.into(),
        data_type: 1,
        dims: vec![256, 256],
        data_location: 1,
        external_data: vec![entry("location", "w.bin".into()), entry("offset", (at * 4 * 256 * 256).to_string())],
        ..Default::default()
    };
    let nodes = vec![
        named("up", node("MatMul", "x w", "t")),
        node("Relu", "t", "r"),
        named("down", node("MatMul", "r v", "y")),
    ];
    GraphProto {
        initializer: vec![matrix("w", 0), matrix("v", 1)],
        input: vec![f32_value("x", &[512, 256])],
        output: vec![f32_value("y", &[512, 256])],
        ..graph("", "", nodes)
    }
}

fn reference_entry(key: &str, value: &str) -> sardonyx::onnx::proto::StringStringEntryProto {
    sardonyx::onnx::proto::StringStringEntryProto { key: key.into(), value: value.into() }
}

const PLAN: [&str; 6] = ["plan", "m.onnx", "--ranks", "2", "--topology", "one-host"];

#[test]
fn a_plan_needs_no_weights_and_computes_what_one_rank_does() {
    let f = Folder::with(two_products());
    let told = f.good(&[&PLAN[..], &["-o", "plan.toml"]].concat());
    assert!(
        told.contains("predicted, not measured") && told.contains("chosen") && told.contains("2 by rules"),
        "{told}"
    );
    assert!(told.ends_with("wrote plan.toml\n"), "{told}");
    let json = f.json(&[&PLAN[..], &["--json"]].concat());
    let candidates = json["candidates"].as_array().unwrap();
    let times: Vec<f64> = candidates.iter().map(|c| c["time_us"].as_f64().unwrap()).collect();
    assert!(times.len() >= 2 && times[0] <= times[1], "{times:?}");
    assert_eq!(candidates[0]["exchanges"].as_array().unwrap().len(), 1, "{json}");
    // The rows are split, so no reduction changes and the results are identical.
    let plan = std::fs::read_to_string(f.path("plan.toml")).unwrap();
    assert!(
        plan.contains("mesh = [2]\nseeds = false\n") && plan.contains("node = \"up\"\nop = 0\ninput = 0\ndim = 0\n"),
        "{plan}"
    );

    let numbers = (0..2 * 256 * 256).flat_map(|i| (((i * 7) % 101) as f32 / 101.0 - 0.5).to_le_bytes());
    std::fs::write(f.path("w.bin"), numbers.collect::<Vec<u8>>()).unwrap();
    f.good(&["compile", "m.onnx", "-o", "one.sdx"]);
    f.good(&["compile", "m.onnx", "--plan", "plan.toml", "-o", "two.sdx"]);
    let run = |name: &str| f.good(&["run", name, "--input", "x=random"]);
    assert!(run("one.sdx").contains("y f32 [512, 256]"));
    assert_eq!(run("one.sdx"), run("two.sdx"));
}

/// The search finds the usual way to split a Transformer: columns of one weight matrix, rows of the next.
#[test]
fn a_layer_with_one_token_has_two_all_reduces() {
    const LAYERS: i64 = 2;
    let f = Folder::new();
    std::fs::write(f.path("gpt.onnx"), skeleton::transformer(LAYERS, 12288, 96).0.encode_to_vec()).unwrap();
    let json = f.json(&["plan", "gpt.onnx", "--ranks", "8", "--topology", "dgx-h100", "--at", "seq=1", "--json"]);
    let best = &json["candidates"][0];
    assert_eq!((best["found_by"].as_str(), best["mesh"].to_string().as_str()), (Some("search"), "[8]"), "{json}");
    let sums = best["exchanges"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["collective"].as_str().unwrap().starts_with("AllReduce"));
    assert_eq!(sums.map(|e| e["count"].as_i64().unwrap()).sum::<i64>(), 2 * LAYERS, "{best}");
}

#[test]
fn throughput_is_found_with_larger_batches() {
    let mut graph = two_products();
    (graph.input, graph.output) = (vec![f32_value("x", &[-1, 256])], vec![f32_value("y", &[-1, 256])]);
    let f = Folder::with(graph);
    let plan = |more: &[&str]| f.json(&[&PLAN[..], &["--at", "n=2", "--json"], more].concat());
    let (soonest, most) = (plan(&[]), plan(&["--goal", "throughput"]));
    let rate = |json: &serde_json::Value| json["per_second"].as_f64().unwrap();
    assert_eq!(soonest["at"], "at n=2");
    assert_ne!(most["at"], "at n=2");
    assert!(rate(&most) > 1.5 * rate(&soonest), "{most}");
    let time_us = most["candidates"][0]["time_us"].as_f64().unwrap();
    let n: f64 = most["at"].as_str().unwrap().strip_prefix("at n=").unwrap().parse().unwrap();
    assert!((rate(&most) * time_us / 1e6 / n - 1.0).abs() < 1e-3, "{most}");
    // With less memory, a smaller batch is chosen.
    let narrow = plan(&["--goal", "throughput", "--memory", "300000"]);
    let narrow: f64 = narrow["at"].as_str().unwrap().strip_prefix("at n=").unwrap().parse().unwrap();
    assert!(narrow < n, "{narrow} of {n}");
    // If no plan fits in memory at n = 2, none fits with a larger batch.
    let refused = |goal: &str| f.bad(&[&PLAN[..], &["--at", "n=2", "--memory", "1K", "--goal", goal]].concat());
    assert_eq!(refused("throughput").0, 2);
    assert_eq!(refused("throughput"), refused("latency"));
    let told = f.good(&[&PLAN[..], &["--goal", "throughput", "-o", "plan.toml"]].concat());
    assert!(told.contains(" per second in batches of this size\n"), "{told}");
}

/// The drawing shows the times of the report (`--json`), and the links and their traffic in a simulation of the plan.
#[test]
fn candidates_are_drawn_beside_what_links_carry() {
    let f = Folder::with(two_products());
    let json = f.json(&[&PLAN[..], &["--json", "--svg", "p.svg", "--memory", "1G", "-o", "p.toml"]].concat());
    let drawn = std::fs::read_to_string(f.path("p.svg")).unwrap();
    assert!(drawn.starts_with("<svg xmlns=") && drawn.ends_with("</svg>\n"), "{drawn}");
    // Every element is closed, and nothing is loaded from elsewhere.
    let n = |what: &str| drawn.matches(what).count();
    assert_eq!((n("<text"), n("<rect"), n("http")), (n("</text>"), n("/>") - n("<path"), 1), "{drawn}");
    let candidates = json["candidates"].as_array().unwrap();
    for c in candidates {
        let ms = format!(">{:.3} ms", c["time_us"].as_f64().unwrap() / 1e3);
        assert!(drawn.contains(&ms), "{ms} of {c}: {drawn}");
        let bubble = c["bubble"].as_f64().map(|part| format!("{ms}, {:.0} % idle<", 100.0 * part));
        assert!(bubble.is_none_or(|words| drawn.contains(&words)), "{c}: {drawn}");
    }
    assert_eq!((n(">chosen<"), n("class=\"compute\"")), (1, candidates.len() + 1), "{drawn}");
    let simulated = f.json(&["simulate", "m.onnx", "--plan", "p.toml", "--topology", "one-host", "--json"]);
    let noisy = f.good(&["simulate", "m.onnx", "--plan", "p.toml", "--topology", "one-host", "--noise", "10%"]);
    assert!(noisy.contains("\nwith 10 % of noise, 20 calls: median "), "{noisy}");
    let noisy = ["simulate", "m.onnx", "--plan", "p.toml", "--topology", "one-host", "--json", "--noise", "0.5"];
    let times: Vec<f64> =
        f.json(&noisy)["noisy_us"].as_array().unwrap().iter().map(|us| us.as_f64().unwrap()).collect();
    let quiet = simulated["time_us"].as_f64().unwrap();
    assert!(times.len() == 20 && times.is_sorted() && times[0] > quiet && times[19] > times[0], "{times:?}, {quiet}");
    let links = simulated["links"].as_array().unwrap();
    assert!(!links.is_empty() && n("class=\"link\"") == links.len(), "{simulated}: {drawn}");
    for link in links {
        let name = format!(">{}<", link["link"].as_str().unwrap().replace('>', "&gt;"));
        assert!(drawn.contains(&name) && drawn.contains(&format!(">{}<", link["bytes"])), "{link}: {drawn}");
    }

    let (code, message) = f.bad(&[&PLAN[..], &["--svg", "m.onnx"]].concat());
    assert!(code == 2 && message.contains("m.onnx"), "{message}");
    let (code, message) = f.bad(&[&PLAN[..], &["--svg", "same", "-o", "same"]].concat());
    assert!(code == 2 && message.contains("are the same file") && !exists(&f.path("same")), "{message}");
}

#[test]
fn what_cannot_be_planned_is_said_and_nothing_is_written() {
    let f = Folder::with(two_products());
    let bad = |more: &[&str]| {
        let (code, message) = f.bad(&[&["plan", "m.onnx", "-o", "no.toml"], more].concat());
        assert!(code == 2 && !exists(&f.path("no.toml")), "{message}");
        message
    };
    let host = ["--topology", "one-host", "--ranks"];
    assert!(bad(&[&host[..], &["9"]].concat()).contains("9 ranks on the 8 devices of `one-host`"));
    let narrow = bad(&[&host[..], &["2", "--memory", "1K"]].concat());
    assert!(narrow.contains("E0108") && narrow.contains("no plan within 1024 B a rank was found"), "{narrow}");
    assert!(bad(&["--ranks", "2", "--topology", "nowhere"]).contains("E0002"));
    assert!(bad(&[&host[..], &["2", "--device", "sm_75"]].concat()).contains("no device `sm_75` is described"));
    assert!(bad(&[&host[..], &["2", "--at", "q=3"]].concat()).contains("E0204"));

    // The plan belongs to another model.
    let numbers = vec![0u8; 2 * 4 * 256 * 256];
    std::fs::write(f.path("w.bin"), numbers).unwrap();
    std::fs::write(f.path("p.toml"), "mesh = [2]\n[[place]]\nnode = 'up'\nop = 7\ninput = 0\ndim = 0\n").unwrap();
    let (code, message) = f.bad(&["compile", "m.onnx", "--plan", "p.toml", "-o", "no.sdx"]);
    let wanted = ["E0108", "up", "operation 7 of the node has no operand 0", "make it again with `sardonyx plan`"];
    assert!(code == 2 && wanted.iter().all(|w| message.contains(w)) && !exists(&f.path("no.sdx")), "{message}");
}

#[test]
fn a_pipeline_is_planned_where_weights_are_too_many_and_simulated_as_it_runs() {
    let f = Folder::with(two_products());
    let numbers = (0..2 * 256 * 256).flat_map(|i| (((i * 7) % 101) as f32 / 101.0 - 0.5).to_le_bytes());
    std::fs::write(f.path("w.bin"), numbers.collect::<Vec<u8>>()).unwrap();
    let json = f.json(&[&PLAN[..], &["--json"]].concat());
    let candidates = json["candidates"].as_array().unwrap();
    let pipeline = candidates.iter().find(|c| c["stages"].as_array().is_some()).expect("a pipeline");
    assert_eq!(pipeline["stages"].as_array().unwrap().len(), 1, "{pipeline}");
    // Each stage holds one of the two matrices.
    assert_eq!(pipeline["weight_bytes"].as_f64(), Some(4.0 * 256.0 * 256.0));
    assert!((0.0..1.0).contains(&pipeline["bubble"].as_f64().unwrap()), "{pipeline}");

    f.good(&["compile", "m.onnx", "-o", "one.sdx"]);
    for micro_batches in [1, 4] {
        let pipeline =
            format!("mesh = [2]\nseeds = false\n[pipeline]\nbegins = ['down']\nmicro_batches = {micro_batches}\n");
        std::fs::write(f.path("p.toml"), pipeline).unwrap();
        f.good(&["compile", "m.onnx", "--plan", "p.toml", "-o", "two.sdx"]);
        let run = |name: &str| f.good(&["run", name, "--input", "x=random"]);
        assert_eq!(run("one.sdx"), run("two.sdx"));
        let simulate =
            ["simulate", "m.onnx", "--plan", "p.toml", "--topology", "one-host", "--json", "--trace", "t.json"];
        let simulated = f.json(&simulate);
        let inspected = f.json(&["inspect", "two.sdx", "--json"]);
        let exchanged = &inspected["entry_points"][0]["call"]["exchanged_bytes"];
        assert_eq!(simulated["ranks"][0]["taken_bytes"], *exchanged, "{inspected}");
        assert_eq!(simulated["bytes"].as_u64(), Some(2 * 4 * 512 * 256), "{simulated}");
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(f.path("t.json")).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert!(events.iter().any(|e| e["tid"] == 1 && e["args"]["node"] == "down"), "{trace}");
        assert!(!events.iter().any(|e| e["tid"] == 0 && e["name"] == "sdx.contract" && e["args"]["node"] == "down"));
    }
}

#[test]
fn a_schedule_is_laid_out_or_refused() {
    let f = Folder::with(two_products());
    let schedule = ["simulate", "--stages", "8", "--micro-batches", "16", "--times", "1,2", "--schedule"];
    let told = f.json(&[&schedule[..], &["1f1b", "--json"]].concat());
    assert_eq!((told["time_us"].as_f64(), told["activations"][0].as_u64()), (Some(69.0), Some(8)), "{told}");
    assert!(f.good(&[&schedule[..], &["chimera"]].concat()).contains("66 us, 27.3 % of it idle"));
    let (_, said) = f.bad(&[&schedule[..], &["zigzag"]].concat());
    assert!(said.contains("E0001") && said.contains("there is no schedule `zigzag`"), "{said}");
    let (code, said) = f.bad(&["simulate", "--schedule", "chimera", "--stages", "5", "--micro-batches", "5"]);
    assert!(code == 2 && said.contains("Chimera needs an even number of stages"), "{said}");
    assert_eq!(f.bad(&["simulate", "m.onnx", "--topology", "one-host"]).0, 2);
    std::fs::write(f.path("p.toml"), "mesh = [2]\n").unwrap();
    let simulate = ["simulate", "m.onnx", "--plan", "p.toml", "--topology", "one-host", "--trace", "p.toml"];
    let (code, said) = f.bad(&simulate);
    assert!(code == 2 && said.contains("the output p.toml is the plan of the ranks"), "{said}");
}
