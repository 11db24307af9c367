//! a folder in the layout of sentence-transformers  =>  one artifact that computes the folder's steps, with the same
//! embedding for a text alone and in a padded batch

use sardonyx::compile::{Report, Request, compile};
use sardonyx::embedder::{Embedder, Flags, Pooling, model_file};
use sardonyx_base::{DType, Tensor};
use sardonyx_passes::{Named, Options};
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::trust::trusted;
use std::path::Path;

const WIDTH: usize = 8;
const LENGTHS: [usize; 4] = [5, 1, 9, 3];
const POSITIONS: usize = 9;

/// An encoder layer with one attention head; keys whose mask is 0 are masked out.
fn encoder() -> Net {
    Net::new()
        .input("input_ids", DType::I64, "batch seq")
        .input("attention_mask", DType::I64, "batch seq")
        .f32s("table", &[30, WIDTH as i64])
        .f32s("wq", &[WIDTH as i64, WIDTH as i64])
        .f32s("wk", &[WIDTH as i64, WIDTH as i64])
        .f32s("wo", &[WIDTH as i64, WIDTH as i64])
        .i64s("middle", &[1])
        .tensor(number("one", 1.0))
        .tensor(number("hidden", -1e9))
        .node("/lookup", "Gather", "table input_ids", "e")
        .node("/query", "MatMul", "e wq", "q")
        .node("/key", "MatMul", "e wk", "keys")
        .node("/turn", "Transpose", "keys", "k")
        .ints("perm", &[0, 2, 1])
        .node("/scores", "MatMul", "q k", "s")
        .node("/cast", "Cast", "attention_mask", "m")
        .int("to", 1)
        .node("/left", "Sub", "one m", "left")
        .node("/bias", "Mul", "left hidden", "bias")
        .node("/wide", "Unsqueeze", "bias middle", "wide")
        .node("/masked", "Add", "s wide", "sm")
        .node("/softmax", "Softmax", "sm", "p")
        .int("axis", -1)
        .node("/mix", "MatMul", "p keys", "o")
        .node("/out", "MatMul", "o wo", "x")
        .node("/add", "Add", "x e", "last_hidden_state")
        .output("last_hidden_state")
}

fn number(name: &str, value: f32) -> sardonyx::onnx::proto::TensorProto {
    let (name, data_type) = (name.to_string(), DType::F32.onnx_code());
    sardonyx::onnx::proto::TensorProto { name, data_type, float_data: vec![value], ..Default::default() }
}

fn compiled(model: &Path, embedder: Option<Embedder>) -> (Model, Report) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sdx");
    let options = Options { remarks: true, ..Options::default() };
    let report =
        compile(&Request { embedder, options, ..Request::new(model, &path) }).unwrap_or_else(|e| panic!("{e}"));
    (Model::load(&path, &trusted()).unwrap_or_else(|e| panic!("{e}")), report)
}

fn ids(text: usize) -> Vec<i64> {
    (0..LENGTHS[text]).map(|i| (7 * text + 3 * i + 1) as i64 % 30).collect()
}

/// Returns the first output for a batch of these texts.
fn run(model: &Model, texts: &[usize]) -> Vec<f32> {
    let positions = texts.iter().map(|t| LENGTHS[*t]).max().unwrap();
    let padded = |of: &dyn Fn(usize) -> Vec<i64>| {
        let rows = texts.iter().flat_map(|t| {
            let mut row = of(*t);
            row.resize(positions, 0);
            row
        });
        Tensor::from_vec(vec![texts.len(), positions], rows.collect())
    };
    let inputs = [("input_ids", padded(&ids)), ("attention_mask", padded(&|t| vec![1; LENGTHS[t]]))];
    let session = model.session(&SessionOptions::default()).unwrap();
    let outputs = session.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
    outputs.iter().next().unwrap().1.to_vec().unwrap()
}

/// Pools the vectors of a text's tokens in f64, by the definition of the pooling.
fn pooled(pooling: Pooling, tokens: &[Vec<f64>]) -> Vec<f64> {
    let n = tokens.len() as f64;
    let sum = |weight: &dyn Fn(usize) -> f64| -> Vec<f64> {
        (0..WIDTH).map(|d| tokens.iter().enumerate().map(|(i, t)| t[d] * weight(i)).sum()).collect()
    };
    match pooling {
        Pooling::Cls => tokens[0].clone(),
        Pooling::LastToken => tokens[tokens.len() - 1].clone(),
        Pooling::Max => (0..WIDTH).map(|d| tokens.iter().map(|t| t[d]).fold(f64::MIN, f64::max)).collect(),
        Pooling::Mean => sum(&|_| 1.0 / n),
        Pooling::MeanSqrtLen => sum(&|_| 1.0 / n.sqrt()),
        Pooling::WeightedMean => sum(&|i| (i + 1) as f64 / (n * (n + 1.0) / 2.0)),
    }
}

fn close(ours: &[f32], expected: &[f64], what: &str) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (i, (a, b)) in ours.iter().zip(expected).enumerate() {
        assert!((f64::from(*a) - b).abs() <= 2e-5 * b.abs().max(1.0), "{what}, {i}: {a}, expected {b}");
    }
}

fn tokens(hidden: &[f32], text: usize) -> Vec<Vec<f64>> {
    let row = |i: usize| &hidden[(text * POSITIONS + i) * WIDTH..][..WIDTH];
    (0..LENGTHS[text]).map(|i| row(i).iter().map(|x| f64::from(*x)).collect()).collect()
}

#[test]
fn every_pooling_is_its_definition_without_padding_and_alone_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m.onnx");
    std::fs::write(&model, encoder().bytes()).unwrap();
    let all: Vec<usize> = (0..LENGTHS.len()).collect();
    let hidden = run(&compiled(&model, None).0, &all);
    for (name, pooling) in Pooling::NAMES {
        let flags = Flags { poolings: vec![*pooling], ..Flags::default() };
        let (embedder, report) = compiled(&model, Embedder::new(None, &flags).unwrap());
        let packed = report.rewrites.applied().iter().filter(|r| r.pass == "remove-padding").count();
        assert_eq!(packed, 1, "{name}: padding is computed, {:?}", report.rewrites.remarks());
        let batch = run(&embedder, &all);
        for text in all.iter().copied() {
            let ours = &batch[text * WIDTH..][..WIDTH];
            close(ours, &pooled(*pooling, &tokens(&hidden, text)), &format!("{name}, text {text}"));
            assert_eq!(run(&embedder, &[text]), ours, "{name}, text {text} alone");
        }
    }
}

/// Writes a folder whose steps are `encoder`, two concatenated poolings, a dense layer with tanh, and a normalization.
/// Returns the dense layer's weight and bias.
fn write_folder(folder: &Path) -> (Vec<f32>, Vec<f32>) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    std::fs::create_dir_all(folder.join("onnx")).unwrap();
    std::fs::write(folder.join("onnx/model.onnx"), encoder().bytes()).unwrap();
    let step =
        |path: &str, kind: &str| format!(r#"{{"path": "{path}", "type": "sentence_transformers.models.{kind}"}}"#);
    let steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")];
    write("modules.json", &format!("[{}]", steps.map(|(path, kind)| step(path, kind)).join(", ")));
    write("1_Pooling/config.json", r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#);
    write(
        "2_Dense/config.json",
        r#"{"in_features": 16, "out_features": 4, "activation_function": "torch.nn.modules.activation.Tanh"}"#,
    );
    write("sentence_bert_config.json", r#"{"max_seq_length": 12, "do_lower_case": true}"#);
    write(
        "config_sentence_transformers.json",
        r#"{"prompts": {"query": "query: ", "passage": ""}, "default_prompt_name": "query"}"#,
    );
    write("config.json", r#"{"eos_token_id": 3}"#);
    write("generation_config.json", r#"{"eos_token_id": [7, 2]}"#);
    write("tokenizer.json", r#"{"version": "1.0", "model": {"type": "WordLevel", "vocab": {}}}"#);
    let weight: Vec<f32> = (0..4 * 16).map(|i| ((i * 5) % 11) as f32 * 0.03 - 0.15).collect();
    let bias: Vec<f32> = (0..4).map(|i| i as f32 * 0.1).collect();
    std::fs::write(folder.join("2_Dense/model.safetensors"), safetensors(&weight, &bias)).unwrap();
    (weight, bias)
}

/// Returns the bytes of a safetensors file with the two tensors of a dense layer.
fn safetensors(weight: &[f32], bias: &[f32]) -> Vec<u8> {
    let header = format!(
        r#"{{"linear.weight":{{"dtype":"F32","shape":[4,16],"data_offsets":[0,{0}]}},"linear.bias":{{"dtype":"F32","shape":[4],"data_offsets":[{0},{1}]}}}}"#,
        4 * weight.len(),
        4 * (weight.len() + bias.len()),
    );
    let data = weight.iter().chain(bias).flat_map(|x| x.to_le_bytes());
    (header.len() as u64).to_le_bytes().into_iter().chain(header.bytes()).chain(data).collect()
}

#[test]
fn a_folder_becomes_its_steps_and_takes_its_tokenizer_along() {
    let folder = tempfile::tempdir().unwrap();
    let (weight, bias) = write_folder(folder.path());
    let model = model_file(folder.path()).unwrap();
    let (embedder, _) = compiled(&model, Embedder::new(Some(folder.path()), &Flags::default()).unwrap());
    let all: Vec<usize> = (0..LENGTHS.len()).collect();
    let hidden = run(&compiled(&model, None).0, &all);
    let batch = run(&embedder, &all);
    for text in all {
        let tokens = tokens(&hidden, text);
        let both = [pooled(Pooling::Cls, &tokens), pooled(Pooling::Mean, &tokens)].concat();
        let dense = |o: usize| {
            let products = both.iter().enumerate().map(|(i, x)| x * f64::from(weight[o * 16 + i]));
            (products.sum::<f64>() + f64::from(bias[o])).tanh()
        };
        let dense: Vec<f64> = (0..4).map(dense).collect();
        let norm = dense.iter().map(|x| x * x).sum::<f64>().sqrt();
        let expected: Vec<f64> = dense.iter().map(|x| x / norm).collect();
        close(&batch[4 * text..][..4], &expected, &format!("text {text}"));
    }
    let main = &embedder.entry_points()[0];
    assert_eq!(main.outputs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["sentence_embedding"]);
    assert_eq!(embedder.attached_names().collect::<Vec<_>>(), ["embedder.json", "tokenizer.json"]);
    let tokenizer = std::fs::read(folder.path().join("tokenizer.json")).unwrap();
    assert_eq!(embedder.attached("tokenizer.json"), Some(&tokenizer[..]));
    let settings: serde_json::Value = serde_json::from_slice(embedder.attached("embedder.json").unwrap()).unwrap();
    assert_eq!(
        settings,
        serde_json::json!({
            "version": 1, "output": "sentence_embedding", "pooling": ["cls", "mean"], "normalized": true,
            "max_tokens": 12, "lower_case": true, "default_prompt": "query", "eos_token_ids": [7, 2],
            "prompts": [{"name": "passage", "text": ""}, {"name": "query", "text": "query: "}],
        })
    );
    // `max_seq_length` is the upper bound of the symbol `seq`, so that longer texts are refused.
    let seq = embedder.program().symbols.iter().find(|s| &*s.name == "seq").unwrap();
    assert_eq!((seq.lo, seq.hi), (1, Some(12)));
}

#[test]
fn what_a_folder_lacks_is_said_with_the_file() {
    let spoiled = |spoil: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path());
        spoil(folder.path());
        let made = model_file(folder.path())
            .and_then(|model| Ok((model, Embedder::new(Some(folder.path()), &Flags::default())?)))
            .and_then(|(model, embedder)| {
                compile(&Request { embedder, ..Request::new(&model, folder.path().join("m.sdx")) })
            });
        let error = made.err().unwrap_or_else(|| panic!("it was compiled")).to_string();
        assert!(!folder.path().join("m.sdx").exists());
        error
    };
    let write = |name: &'static str, text: &'static str| move |f: &Path| std::fs::write(f.join(name), text).unwrap();
    let remove = |name: &'static str| move |f: &Path| std::fs::remove_file(f.join(name)).unwrap();
    type Spoil = Box<dyn Fn(&Path)>;
    let cases: Vec<(Spoil, &str)> = vec![
        (Box::new(remove("onnx/model.onnx")), "the folder has no model.onnx"),
        (Box::new(write("modules.json", "[{")), "modules.json"),
        (Box::new(write("modules.json", r#"[{"type": "a.WordWeights"}]"#)), "the step `WordWeights` is not supported"),
        (Box::new(remove("1_Pooling/config.json")), "`modules.json` names it"),
        (Box::new(write("1_Pooling/config.json", "{}")), "no way of pooling is set"),
        (Box::new(write("1_Pooling/config.json", r#"{"pooling_mode": "median"}"#)), "the pooling `median`"),
        (Box::new(write("2_Dense/config.json", r#"{"activation_function": "a.Mish"}"#)), "the activation `a.Mish`"),
        (Box::new(write("2_Dense/model.safetensors", "not one")), "it is not a file of safetensors"),
        (Box::new(write("tokenizer.json", "{}")), "the file is not a tokenizer.json"),
        (Box::new(write("config_sentence_transformers.json", r#"{"default_prompt_name": "q"}"#)), "names no prompt"),
    ];
    for (spoil, expected) in cases {
        let error = spoiled(&spoil);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let refused = |flags: &Flags| Embedder::new(None, flags).err().unwrap().to_string();
    assert!(refused(&Flags { normalize: true, ..Flags::default() }).contains("nothing makes any"));
    assert!(refused(&Flags { max_tokens: Some(4), ..Flags::default() }).contains("there is no tokenizer"));
}
