//! explain MODEL.onnx: launches, their nodes, the repeated layer

use super::*;

/// relu(x · w) three times, then a softmax that is not part of the repeated layer.
fn stack() -> GraphProto {
    let w = layer().initializer;
    let layers = ["x t0 y0", "y0 t1 y1", "y1 t2 y2"].map(|names| {
        let [x, t, y] = names.split(' ').collect::<Vec<_>>()[..] else { panic!("three names") };
        let multiply = NodeProto { name: format!("mul_{t}"), ..node("MatMul", &format!("{x} w"), t) };
        [multiply, NodeProto { name: format!("relu_{y}"), ..node("Relu", t, y) }]
    });
    let mut nodes = layers.concat();
    nodes.push(NodeProto { name: "soft".into(), ..node("Softmax", "y2", "y") });
    GraphProto { initializer: w, ..graph("x", "y", nodes) }
}

#[test]
fn a_layer_is_shown_once() {
    let f = Folder::with(stack());
    let out = f.good(&["explain", "m.onnx"]);
    let lines: Vec<&str> = out.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], "m.onnx: 4 launches of 2 kernels = 0 + 3 × 1 + 1");
    assert_eq!(lines[1], "3 times, here the first:");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["0", "k0", "contract", "21", "mul_t0", "relu_y0"]);
    assert_eq!(lines[3], "then:");
    assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>(), ["3", "k1", "normalise", "12", "soft"]);
    assert_eq!(lines[5], "stored  1 × f32 panels32", "one matrix, which all three read");
    assert!(lines[6].starts_with("movement in words"), "{out}");
    assert_eq!(std::fs::read_dir(f.dir.path()).unwrap().count(), 1, "nothing was written");
}

#[test]
fn a_node_is_explained_by_its_rules() {
    let f = Folder::with(stack());
    let out = f.good(&["explain", "m.onnx", "--explain-node", "relu_y1"]);
    assert!(out.starts_with("relu_y1: sdx.map \"max\""), "{out}");
    let (code, said) = f.bad(&["explain", "m.onnx", "--explain-node", "nowhere"]);
    assert!(code == 2 && said.contains("no operation comes from a node `nowhere`"), "{said}");
}

#[test]
fn the_json_holds_every_launch_of_every_model() {
    let f = Folder::with(stack());
    std::fs::write(f.path("one.onnx"), model(layer()).encode_to_vec()).unwrap();
    let report = f.json(&["explain", "m.onnx", "one.onnx", "--json"]);
    let [stack, one] = &report["models"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(stack["layers"], serde_json::json!({"first": 0, "length": 1, "times": 3, "words": 21}));
    assert_eq!(stack["launches"].as_array().unwrap().len(), 4);
    assert_eq!(stack["launches"][1]["origins"], serde_json::json!(["mul_t1", "relu_y1"]));
    assert_eq!((&one["model"], &one["kernels"], &one["layers"]), (&"one.onnx".into(), &1.into(), &().into()));
}

#[test]
fn a_model_that_cannot_be_compiled_is_named() {
    let f = Folder::with(layer());
    let (code, message) = f.bad(&["explain", "m.onnx", "none.onnx"]);
    assert!(code == 2 && message.starts_with("error[E0002]: cannot read none.onnx"), "{message}");
    let (code, message) = f.bad(&["explain", "m.onnx", "--dim", "b=1"]);
    assert!(code == 2 && message.starts_with("error[E0204]: the model has no dimension symbol `b`"), "{message}");
}

/// The page agrees with `--json`, loads nothing from elsewhere, and escapes node names that contain tags.
#[test]
fn the_page_has_every_launch_and_nothing_from_elsewhere() {
    let mut stack = stack();
    stack.node[0].name = "</script><b>mm".into();
    let folder = Folder::with(stack);
    assert!(folder.good(&["explain", "m.onnx", "--html", "m.html"]).starts_with("m.html: "));
    let page = std::fs::read_to_string(folder.path("m.html")).unwrap();
    let data = page.split("<script type=\"application/json\" id=\"data\">").nth(1).unwrap();
    let data: serde_json::Value = serde_json::from_str(data.split("</script>").next().unwrap()).unwrap();
    let json = folder.json(&["explain", "m.onnx", "--json"]);
    let launches = json["models"][0]["launches"].as_array().unwrap();
    let steps = data["steps"].as_array().unwrap();
    assert_eq!(steps.len(), launches.len());
    for (shown, told) in steps.iter().zip(launches) {
        assert_eq!(shown["name"], told["kernel"]);
        for key in ["class", "origins", "words", "scheduled"] {
            assert_eq!(shown[key], told[key], "{key}");
        }
    }
    assert!(data.to_string().contains("</script><b>mm"));
    // The three layers are drawn as one node.
    assert_eq!((page.matches("class=\"node").count(), page.matches("×3</text>").count()), (2, 1));
    for elsewhere in ["http:", "https:", "src=", "url(", "@import", "fetch(", "<b>mm"] {
        assert!(!page.replace("<\\/script><b>mm", "").contains(elsewhere), "{elsewhere}");
    }
    assert!(!page.contains("{{"), "a part of the page is missing");
    let (code, said) = folder.bad(&["explain", "m.onnx", "m.onnx", "--html", "n.html"]);
    assert!(code == 2 && said.contains("`--html` is for one model"), "{said}");
    let (code, said) = folder.bad(&["explain", "m.onnx", "--html", "m.onnx"]);
    assert!(code == 2 && said.contains("error[E0001]"), "{said}");
}

/// Measured times are shown beside predicted ones, in their own table column and plot points.
#[test]
fn a_measured_page_has_a_time_for_each_launch() {
    let folder = Folder::with(stack());
    folder.good(&["explain", "m.onnx", "--html", "p.html"]);
    folder.good(&["explain", "m.onnx", "--html", "m.html", "--measure"]);
    let [predicted, measured] = ["p.html", "m.html"].map(|name| std::fs::read_to_string(folder.path(name)).unwrap());
    let times = |page: &str| -> Vec<Option<f64>> {
        let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        data["steps"].as_array().unwrap().iter().map(|launch| launch["measured"].as_f64()).collect()
    };
    assert_eq!(times(&predicted), [None; 4]);
    assert!(times(&measured).iter().all(|us| us.is_some_and(|us| us > 0.0 && us < 1e6)));
    assert!(!predicted.contains("measured µs") && predicted.contains("nothing here was measured"));
    assert!(measured.contains("measured µs</th>") && measured.contains("<dt>measured</dt>"));
    let circles = |page: &str| (page.matches("<circle").count(), page.matches(" measured\" data-step").count());
    assert_eq!((circles(&predicted), circles(&measured)), ((2, 0), (4, 2)));
    let (code, said) = folder.bad(&["explain", "m.onnx", "--html", "m.html", "--measure", "--device", "sm_80"]);
    assert!(code == 2 && said.contains("--device"), "{said}");
    assert_eq!(folder.bad(&["explain", "m.onnx", "--measure"]).0, 2);
}
