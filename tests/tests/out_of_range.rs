//! an index, an axis or a length from data that is out of range  =>  E0303, on the CPU and on a simulated GPU

use sardonyx::compile::{Request, compile};
use sardonyx::onnx::proto::{AttributeProto, NodeProto, OperatorSetIdProto, TensorProto, attribute_type};
use sardonyx_base::{DType, Error, Tensor};
use sardonyx_kernels::Target;
use sardonyx_runtime::{DeviceName, Model, Session, SessionOptions};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::trust::trusted;

/// A model with one node. One operand of the node is given values within the valid range and outside of it.
struct Row {
    op: &'static str,
    domain: &'static str,
    opset: i64,
    /// Names of the node's operands; an underscore stands for an absent one.
    operands: &'static str,
    /// Lines of `name type dimensions`. All inputs but the varied one are zeros.
    inputs: &'static str,
    /// Operands that are i64 constants of the model.
    constants: &'static [(&'static str, &'static [i64])],
    weights: &'static [(&'static str, &'static [i64])],
    zeros: &'static [(&'static str, &'static [i64])],
    ints: &'static [(&'static str, i64)],
    lists: &'static [(&'static str, &'static [i64])],
    texts: &'static [(&'static str, &'static str)],
    /// The operand whose last element takes each value of `good` and `bad`; its other elements are `fill`.
    varied: &'static str,
    fill: i64,
    good: &'static [i64],
    bad: &'static [i64],
}

/// Value of every symbol in a call.
static SIZES: &[(&str, usize)] = &[("b", 1), ("n", 3), ("m", 4), ("k", 2)];

const BASE: Row = Row {
    op: "",
    domain: "",
    opset: 18,
    operands: "",
    inputs: "",
    constants: &[],
    weights: &[],
    zeros: &[],
    ints: &[],
    lists: &[],
    texts: &[],
    varied: "i",
    fill: 0,
    good: &[],
    bad: &[],
};

const MIN: i64 = i64::MIN;
const MAX: i64 = i64::MAX;

const fn row(op: &'static str, operands: &'static str, inputs: &'static str) -> Row {
    Row { op, operands, inputs, ..BASE }
}

static INDICES: &[Row] = &[
    Row { good: &[2, -3], bad: &[3, -4, MIN, MAX], ..row("Gather", "x i", "x f32 3 4\ni i64 2") },
    Row { ints: &[("axis", 1)], good: &[3, -4], bad: &[4, -5], ..row("Gather", "x i", "x f32 n m\ni i64 2") },
    // Even if the table has the same number everywhere, it must be looked up, because that checks the index.
    Row { zeros: &[("x", &[3, 4])], good: &[2, -3], bad: &[3, -4], ..row("Gather", "x i", "i i64 k") },
    Row { zeros: &[("x", &[1, 4])], good: &[0, -1], bad: &[1, -2], ..row("Gather", "x i", "i i64 2") },
    Row { good: &[2, -3], bad: &[3, -4, MIN, MAX], ..row("GatherElements", "x i", "x f32 3 4\ni i64 2 4") },
    Row { good: &[3, -4], bad: &[4, -5], ..row("GatherND", "x i", "x f32 n 4\ni i64 k 2") },
    Row {
        good: &[2, -3],
        bad: &[3, -4, 99, MIN, MAX],
        ..row("ScatterElements", "x i u", "x f32 3 4\ni i64 1 4\nu f32 1 4")
    },
    Row {
        good: &[2, -3],
        bad: &[3, -4, MIN, MAX],
        ..row("ScatterElements", "x i u", "x f32 n m\ni i64 k m\nu f32 k m")
    },
    Row {
        texts: &[("reduction", "add")],
        good: &[2, -3],
        bad: &[3, -4],
        ..row("ScatterElements", "x i u", "x f32 n m\ni i32 k m\nu f32 k m")
    },
    Row { opset: 10, good: &[2], bad: &[3, MAX], ..row("Scatter", "x i u", "x f32 3 4\ni i64 2 4\nu f32 2 4") },
    Row { good: &[2, -3], bad: &[3, -4, MIN, MAX], ..row("ScatterND", "x i u", "x f32 3 4\ni i64 2 1\nu f32 2 4") },
    Row { good: &[3, -4], bad: &[4, -5, MIN, MAX], ..row("ScatterND", "x i u", "x f32 n m\ni i64 k 2\nu f32 k") },
    Row {
        texts: &[("reduction", "max")],
        good: &[2, -3],
        bad: &[3, -4],
        ..row("ScatterND", "x i u", "x f32 3 4\ni i64 2 1\nu f32 2 4")
    },
    Row {
        opset: 24,
        good: &[0, 4],
        bad: &[-1, 5, MIN, MAX],
        ..row("TensorScatter", "x u i", "x f32 2 6 4\nu f32 2 2 4\ni i64 2")
    },
    Row {
        opset: 24,
        texts: &[("mode", "circular")],
        good: &[0, 5, 6, -1, MIN, MAX],
        ..row("TensorScatter", "x u i", "x f32 k 6 4\nu f32 k 2 4\ni i64 k")
    },
    Row {
        lists: &[("kernel_shape", &[2, 2]), ("strides", &[2, 2])],
        good: &[0, 15],
        bad: &[-1, 16, MIN, MAX],
        ..row("MaxUnpool", "x i", "x f32 1 1 2 2\ni i64 1 1 2 2")
    },
    Row {
        lists: &[("kernel_shape", &[2, 2]), ("strides", &[2, 2])],
        good: &[0, 47],
        bad: &[-1, 48],
        ..row("MaxUnpool", "x i", "x f32 1 1 n m\ni i64 1 1 n m")
    },
    Row { good: &[2, -3], bad: &[3, -4], ..row("NegativeLogLikelihoodLoss", "x i", "x f32 2 3\ni i64 2") },
    Row { good: &[2], bad: &[3, -4], ..row("SoftmaxCrossEntropyLoss", "x i", "x f32 k n\ni i64 k") },
    Row { good: &[0], bad: &[1, -1], ..row("RoiAlign", "x r i", "x f32 1 1 4 4\nr f32 2 4\ni i64 2") },
    Row {
        domain: "ai.onnx.ml",
        good: &[2],
        bad: &[3, -1],
        ..row("ArrayFeatureExtractor", "x i", "x f32 2 3\ni i64 1 2")
    },
    Row {
        domain: "ai.onnx.ml",
        lists: &[("cats_int64s", &[5])],
        ints: &[("zeros", 0)],
        fill: 5,
        good: &[5],
        bad: &[4, MAX],
        ..row("OneHotEncoder", "i", "i i64 2")
    },
    Row {
        domain: "com.microsoft",
        good: &[4],
        bad: &[5, -1],
        ..row("RotaryEmbedding", "x i c s", "x f32 1 2 3 4\ni i64 1 3\nc f32 5 2\ns f32 5 2")
    },
    Row {
        domain: "com.microsoft",
        good: &[2],
        bad: &[3, -1, 1_000_000_000],
        ..row("RestorePadding", "x i", "x f32 k 4\ni i32 1 n")
    },
    Row {
        domain: "com.microsoft",
        ints: &[("num_heads", 1), ("kv_num_heads", 1)],
        good: &[0, 2],
        bad: &[-1, 3, 1_000_000_000],
        ..row(
            "GroupQueryAttention",
            "x y z p q i t",
            "x f32 1 1 8\ny f32 1 1 8\nz f32 1 1 8\np f32 1 1 2 8\nq f32 1 1 2 8\ni i32 1\nt i32 1",
        )
    },
];

static AXES: &[Row] = &[
    Row {
        constants: &[("s", &[0]), ("e", &[1])],
        good: &[0, 1, -2],
        bad: &[2, -3, 99, MIN, MAX],
        ..row("Slice", "x s e i", "x f32 n m\ni i64 1")
    },
    Row { opset: 13, good: &[0, -2], bad: &[2, -3, MIN, MAX], ..row("Squeeze", "x i", "x f32 b 1\ni i64 1") },
    Row { opset: 13, good: &[0, 1, -2], bad: &[2, -3, 99, MIN, MAX], ..row("Unsqueeze", "x i", "x f32 n\ni i64 1") },
    Row { opset: 13, good: &[1, -2], bad: &[2, -3, MIN, MAX], ..row("ReduceSum", "x i", "x f32 3 4\ni i64 1") },
    Row { ints: &[("keepdims", 0)], good: &[1, -2], bad: &[2, -3], ..row("ReduceMean", "x i", "x f32 n m\ni i64 1") },
    Row { good: &[1, -2], bad: &[2, -3], ..row("ReduceMax", "x i", "x i32 3 4\ni i64 k") },
    Row { good: &[1, -2], bad: &[2, -3, MIN, MAX], ..row("CumSum", "x i", "x f32 3 4\ni i64") },
    Row { good: &[0, -1], bad: &[1, -2], ..row("CumSum", "x i", "x f32 n\ni i32") },
];

static LENGTHS: &[Row] = &[
    Row { good: &[0, 4], bad: &[5, -1, MIN, MAX], ..row("TopK", "x i", "x f32 3 4\ni i64 1") },
    Row { good: &[0, 3], bad: &[4, -1], ..row("TopK", "x i", "x f32 m n\ni i64 1") },
    Row { weights: &[("v", &[2])], good: &[3], bad: &[-1, MIN], ..row("OneHot", "x i v", "x i64 3\ni i64") },
    Row { fill: 1, good: &[2, 0], bad: &[-1, MIN], ..row("Tile", "x i", "x f32 n m\ni i64 2") },
    Row { fill: 3, good: &[4, 1], bad: &[5, -1, MIN], ..row("Expand", "x i", "x f32 n m\ni i64 2") },
    Row { fill: 3, good: &[4, -1], bad: &[5, -2, MIN], ..row("Reshape", "x i", "x f32 n m\ni i64 2") },
    Row { fill: 1, good: &[4, 0], bad: &[-1, MIN], ..row("ConstantOfShape", "i", "i i64 2") },
    Row {
        constants: &[("s", &[0]), ("e", &[5])],
        good: &[1, -1, MAX],
        bad: &[0],
        ..row("Range", "a z i", "a i64\nz i64\ni i64")
    },
    Row { good: &[1, -1], bad: &[0], ..row("Range", "a z i", "a f32\nz f32\ni f32") },
    Row { fill: 2, good: &[4], bad: &[5, -1], ..row("Split", "x i", "x f32 6\ni i64 2") },
    Row { good: &[0, 1], bad: &[-4, MIN], ..row("Pad", "x i", "x f32 n\ni i64 2") },
    Row { fill: 1, good: &[3], bad: &[-1], ..row("Resize", "x _ _ i", "x f32 1 1 4 4\ni i64 4") },
    Row { fill: 1, good: &[4, 0], bad: &[5, -1, MAX], ..row("ReverseSequence", "x i", "x f32 4 2\ni i64 2") },
    Row { fill: 1, good: &[3], bad: &[-1], ..row("CenterCropPad", "x i", "x f32 n m\ni i64 2") },
    Row { opset: 20, fill: 1, good: &[3], bad: &[-1], ..row("AffineGrid", "x i", "x f32 1 2 3\ni i64 4") },
    Row { good: &[3], bad: &[-1, MIN], ..row("HannWindow", "i", "i i64") },
    Row {
        constants: &[("s", &[0]), ("e", &[3]), ("a", &[0])],
        good: &[1, -1],
        bad: &[0],
        ..row("Slice", "x s e a i", "x f32 n m\ni i64 1")
    },
    Row {
        weights: &[("w", &[1, 8, 4]), ("r", &[1, 8, 2])],
        ints: &[("hidden_size", 2)],
        good: &[3, 0],
        bad: &[4, -1],
        ..row("LSTM", "x w r _ i", "x f32 3 2 4\ni i32 2")
    },
    Row {
        weights: &[("w", &[1, 2, 4]), ("r", &[1, 2, 2])],
        ints: &[("hidden_size", 2)],
        good: &[3],
        bad: &[4, -1],
        ..row("RNN", "x w r _ i", "x f32 n k 4\ni i32 k")
    },
    Row {
        domain: "com.microsoft",
        good: &[3, 0],
        bad: &[4, -1],
        ..row("RemovePadding", "x i", "x f32 1 n 4\ni i32 1")
    },
];

impl Row {
    fn name(&self) -> String {
        format!("{} ({})", self.op, self.inputs.replace('\n', ", "))
    }

    fn net(&self) -> Net {
        let mut net = Net::new();
        for (name, dtype, dims) in self.inputs.lines().map(parsed) {
            net = net.input(name, dtype, dims);
        }
        for (name, values) in self.constants {
            net = net.i64s(name, values);
        }
        for (name, dims) in self.weights {
            net = net.f32s(name, dims);
        }
        for (name, dims) in self.zeros {
            let float_data = vec![0.0; dims.iter().product::<i64>() as usize];
            let (name, dims, data_type) = ((*name).into(), dims.to_vec(), DType::F32.onnx_code());
            net = net.tensor(TensorProto { name, dims, data_type, float_data, ..TensorProto::default() });
        }
        let outputs = match self.op {
            "Split" | "TopK" => "y z",
            "GroupQueryAttention" => "out keys values",
            "RemovePadding" => "y o c l",
            _ => "y",
        };
        net = net.node("/node", self.op, self.operands, outputs);
        for (name, value) in self.ints {
            net = net.int(name, *value);
        }
        for (name, values) in self.lists {
            net = net.ints(name, values);
        }
        let node = last(&mut net);
        node.domain = self.domain.into();
        for (name, text) in self.texts {
            let (s, r#type) = (text.as_bytes().to_vec().into(), attribute_type::STRING);
            node.attribute.push(AttributeProto { name: (*name).into(), s, r#type, ..Default::default() });
        }
        net.model.opset_import[0].version = self.opset;
        if !self.domain.is_empty() {
            let version = if self.domain == "ai.onnx.ml" { 3 } else { 1 };
            net.model.opset_import.push(OperatorSetIdProto { domain: self.domain.into(), version });
        }
        outputs.split_whitespace().fold(net, |net, name| net.output(name))
    }

    fn call(&self, value: i64) -> Vec<(&'static str, Tensor)> {
        let one = |(name, dtype, dims): (&'static str, DType, &str)| {
            let size = |word: &str| match SIZES.iter().find(|(symbol, _)| *symbol == word) {
                Some((_, size)) => *size,
                None => word.parse().expect("a size or a symbol"),
            };
            let dims: Vec<usize> = dims.split_whitespace().map(size).collect();
            if name != self.varied {
                return (name, Tensor::zeros(dtype, dims));
            }
            let mut values = vec![self.fill; dims.iter().product()];
            *values.last_mut().expect("an operand has elements") = value;
            let tensor = match dtype {
                DType::I64 => Tensor::from_vec(dims, values),
                DType::I32 => Tensor::from_vec(dims, values.into_iter().map(|v| v as i32).collect()),
                _ => Tensor::from_vec(dims, values.into_iter().map(|v| v as f32).collect()),
            };
            (name, tensor)
        };
        self.inputs.lines().map(parsed).map(one).collect()
    }
}

fn last(net: &mut Net) -> &mut NodeProto {
    net.graph().node.last_mut().expect("a model has a node")
}

fn parsed(line: &'static str) -> (&'static str, DType, &'static str) {
    let (name, rest) = line.split_once(' ').expect("a name and a type");
    let (dtype, dims) = rest.split_once(' ').unwrap_or((rest, ""));
    let dtype = match dtype {
        "f32" => DType::F32,
        "i32" => DType::I32,
        _ => DType::I64,
    };
    (name, dtype, dims)
}

/// Sessions of the model on the CPU and on a simulated GPU.
fn sessions(net: &Net) -> Result<[Session; 2], Box<Error>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (model, artifact) = (folder.path().join("m.onnx"), folder.path().join("m.sdx"));
    std::fs::write(&model, net.bytes()).expect("a temporary folder takes a model");
    let targets = vec![Target::cpu(), Target::from_name("cuda:sm_80").expect("a known target")];
    compile(&Request { targets, selftest: false, ..Request::new(&model, &artifact) })?;
    let session = |device| -> Result<Session, Box<Error>> {
        let model = Model::load(&artifact, &trusted().selftest(false).device(device))?;
        model.session(&SessionOptions::default().threads(1))
    };
    Ok([session(DeviceName::Cpu)?, session(DeviceName::Sim("sm_80".into()))?])
}

/// Messages about calls with a bad value that did not end with E0303, and calls with a good value that failed.
fn wrong(row: &Row) -> Vec<String> {
    let sessions = match sessions(&row.net()) {
        Ok(sessions) => sessions,
        Err(e) => return vec![format!("{}: {e}", row.name())],
    };
    let mut found = vec![];
    for (session, device) in sessions.iter().zip(["cpu", "sim"]) {
        for (values, code) in [(row.good, None), (row.bad, Some("E0303"))] {
            for &value in values {
                let got = session.run(&row.call(value)).err();
                if got.as_ref().map(|e| e.code) != code {
                    let got = got.map_or("no error".into(), |e| e.to_string());
                    found.push(format!("{}, {value} on {device}: {got}", row.name()));
                }
            }
        }
    }
    found
}

fn check(rows: &[Row]) {
    let found: Vec<String> = rows.iter().flat_map(wrong).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn indices_out_of_range_are_refused() {
    check(INDICES);
}

#[test]
fn axes_out_of_range_are_refused() {
    check(AXES);
}

#[test]
fn lengths_out_of_range_are_refused() {
    check(LENGTHS);
}

#[test]
fn the_extreme_of_nothing_is_refused() {
    for op in ["ArgMax", "ArgMin"] {
        for last in [0, 1] {
            let net = Net::new().input("x", DType::F32, "n m").node("/node", op, "x", "y").int("axis", 1);
            let sessions = sessions(&net.int("select_last_index", last).output("y")).unwrap();
            for session in &sessions {
                let call = |n, m| session.run(&[("x", Tensor::zeros(DType::F32, vec![n, m]))]);
                assert_eq!(call(3, 0).unwrap_err().code, "E0303", "{op}");
                assert_eq!(call(0, 3).unwrap()[0].1.dims(), [0, 1]);
                let expected = if last == 1 { 3i64 } else { 0 };
                assert_eq!(call(2, 4).unwrap()[0].1.to_vec::<i64>().unwrap(), [expected; 2]);
            }
        }
    }
}

#[test]
fn diagonals_outside_every_matrix_leave_nothing_or_all() {
    let net = Net::new().input("x", DType::I64, "n n").input("k", DType::I64, "");
    let upper = net.node("/upper", "Trilu", "x k", "u").int("upper", 1);
    let both = upper.node("/lower", "Trilu", "x k", "l").int("upper", 0).output("u").output("l");
    for session in sessions(&both).unwrap() {
        let x = Tensor::from_vec(vec![2, 2], vec![1i64, 2, 3, 4]);
        for (k, expected) in [
            (MAX, [[0; 4], [1, 2, 3, 4]]),
            (MAX - 1, [[0; 4], [1, 2, 3, 4]]),
            (MIN, [[1, 2, 3, 4], [0; 4]]),
            (1, [[0, 2, 0, 0], [1, 2, 3, 4]]),
            (0, [[1, 2, 0, 4], [1, 0, 3, 4]]),
        ] {
            let out = session.run(&[("x", x.clone()), ("k", Tensor::scalar(k))]).unwrap();
            let found = [0, 1].map(|i| out[i].1.to_vec::<i64>().unwrap());
            assert_eq!(found, expected.map(Vec::from), "{k}");
        }
    }
    for (k, expected) in [(MAX, [0i64; 4]), (MIN, [0; 4]), (-1, [0, 0, 1, 0])] {
        let net = Net::new().input("x", DType::I64, "n n").node("/node", "EyeLike", "x", "y").int("k", k).output("y");
        for session in sessions(&net).unwrap() {
            let out = session.run(&[("x", Tensor::zeros(DType::I64, vec![2, 2]))]).unwrap();
            assert_eq!(out[0].1.to_vec::<i64>().unwrap(), expected, "{k}");
        }
    }
}

/// Tests ranges whose ends are inputs of the call, and ranges whose ends are constants of the model.
#[test]
fn ranges_over_all_of_i64_have_the_right_length() {
    let rows: &[([i64; 3], &[i64])] = &[
        ([0, 5, MAX], &[0]),
        ([5, 0, 1], &[]),
        ([0, 5, -1], &[]),
        ([0, 5, 2], &[0, 2, 4]),
        ([5, 0, -2], &[5, 3, 1]),
        ([0, 0, 7], &[]),
        ([MIN, MAX, MAX], &[MIN, -1, MAX - 1]),
        ([MAX, MIN, MIN], &[MAX, -1]),
        ([MAX - 1, MAX, 3], &[MAX - 1]),
    ];
    let names = ["a", "z", "d"];
    let open = names.into_iter().fold(Net::new(), |net, name| net.input(name, DType::I64, ""));
    let sessions_of_call = sessions(&open.node("/node", "Range", "a z d", "y").output("y")).unwrap();
    for (ends, expected) in rows {
        let inputs: Vec<_> = names.into_iter().zip(ends.map(Tensor::scalar)).collect();
        let known = names.into_iter().zip(ends).fold(Net::new(), |net, (name, end)| net.i64s(name, &[*end]));
        let known = known.input("x", DType::F32, "1").node("/node", "Range", "a z d", "y").output("y");
        let of_file = sessions(&known).unwrap();
        let x = [("x", Tensor::zeros(DType::F32, vec![1]))];
        for (session, inputs) in
            sessions_of_call.iter().map(|s| (s, &inputs[..])).chain(of_file.iter().map(|s| (s, &x[..])))
        {
            assert_eq!(session.run(inputs).unwrap()[0].1.to_vec::<i64>().unwrap(), *expected, "{ends:?}");
        }
    }
}
