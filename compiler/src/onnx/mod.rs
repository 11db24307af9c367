//! model.onnx  =>  a resolved, inlined and checked model; tensor payloads stay in the mapped files

mod access;
mod budget;
mod constant;
mod devices;
mod external;
mod inline;
mod model;
mod names;
mod opsets;
mod order;
pub mod proto;
mod reader;
mod sparse;
mod tensor;
mod types;

pub use model::{Attribute, DimSpec, Graph, Initializer, Model, Node, Placed, ValueInfo, ValueType};
pub use opsets::{IR_VERSIONS, OPSETS};

use budget::Budget;
use bytes::Bytes;
use external::External;
use prost::Message;
use proto::ModelProto;
use reader::Reader;
use sardonyx_base::{Error, Result};
use std::path::Path;

/// Reads a model file. Errors name the file and, if possible, the node: E0002 unreadable file, E0102 versions, E0103
/// not a model, E0104 malformed graph, E0105 external data, E0106 attributes, E0107 element types, E0202 sizes, E0302
/// tensor payloads.
pub fn read_model(path: &Path) -> Result<Model> {
    read_beside(path, External::in_folder)
}

/// Like [`read_model`], but external data may be missing; for callers that use no weight values.
pub fn read_model_without_data(path: &Path) -> Result<Model> {
    read_beside(path, External::perhaps_in_folder)
}

fn read_beside(path: &Path, open: fn(&Path) -> Result<External>) -> Result<Model> {
    // Checked before opening, because opening a pipe would wait for a writer.
    let metadata = path.metadata().map_err(|e| Error::io(path, "read", &e).help("check the path of the model"))?;
    if !metadata.is_file() {
        let message = format!("{} is not a regular file", path.display());
        return Err(Error::user("E0002", message)
            .file(path.display().to_string())
            .help("give the path of a model.onnx"));
    }
    let bytes =
        external::map_file(path).map_err(|e| Error::io(path, "read", &e).help("check the file's permissions"))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let model = open(folder).and_then(|external| parse(bytes, external));
    model.map_err(|e| e.file(path.display().to_string()))
}

/// Reads a model that is not a file, and so cannot have external data.
pub fn parse_model(bytes: Bytes) -> Result<Model> {
    parse(bytes, External::absent())
}

fn parse(bytes: Bytes, external: External) -> Result<Model> {
    let mut proto =
        ModelProto::decode(bytes.clone()).map_err(|e| not_a_model(&bytes, &format!("it cannot be decoded: {e}")))?;
    let Some(graph) = &mut proto.graph else { return Err(not_a_model(&bytes, "it has no graph")) };
    let initializers = std::mem::take(&mut graph.initializer);
    opsets::check_ir_version(proto.ir_version)?;
    let opsets = opsets::resolve(&proto.opset_import)?;
    let mut reader = Reader::new(&proto, external, Budget::for_file(bytes.len()))?;
    let Some(graph) = &proto.graph else { return Err(Error::defect("the graph was there a moment ago")) };
    let mut graph = reader.model_graph(graph, initializers, opsets.clone())?;
    order::check(&mut graph)?;
    if let Some(input) = graph.inputs.iter().find(|input| input.ty.is_none()) {
        return Err(Error::user("E0107", format!("input `{}` of the model has no element type", input.name))
            .node(&input.name)
            .help("run onnx.shape_inference on the model, or export it again"));
    }
    let producer = [proto.producer_name.as_str(), &proto.producer_version].join(" ").trim().to_string();
    let hash = blake3::hash(&bytes).to_hex().to_string();
    let devices = devices::devices(&proto)?;
    let External { files, lacking, .. } = reader.external;
    Ok(Model {
        ir_version: proto.ir_version,
        opsets: opsets.versions().clone(),
        graph,
        producer,
        hash,
        devices,
        lacking,
        files,
    })
}

fn not_a_model(bytes: &Bytes, why: &str) -> Box<Error> {
    let (message, help) = if bytes.is_empty() {
        ("the file is empty".to_string(), "export or download the model again")
    } else if bytes.starts_with(b"version https://git-lfs") {
        ("the file is a Git LFS pointer, not the model itself".to_string(), "fetch the model with `git lfs pull`")
    } else if looks_like_text(bytes) {
        let message = "the file is not an ONNX model: it looks like text".to_string();
        (message, "give the binary model.onnx; a text form of a model has to be converted with the onnx package first")
    } else {
        (
            format!("the file is not an ONNX model: {why}"),
            "it may be cut off or of another kind; export or download it again",
        )
    };
    Error::user("E0103", message).help(help)
}

fn looks_like_text(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The cut at 4096 bytes may have split a character.
        Err(e) if e.valid_up_to() + 4 > head.len() => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or(""),
        Err(_) => return false,
    };
    !valid.is_empty() && valid.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c'))
}
