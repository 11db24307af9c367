//! {"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": […]}]}  =>  tensors;  outputs  =>  such JSON
//!
//! The header `Inference-Header-Content-Length` is the length of the JSON; tensors with a `binary_data_size` follow it.

use super::{data, dtypes};
use crate::ports::Ports;
use crate::refusal::{Answer, Refusal};
use crate::served::Asked;
use bytes::Bytes;
use sardonyx_base::tensor::element_count;
use sardonyx_base::{DType, Tensor};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(borrow)]
    inputs: Vec<Input<'a>>,
    #[serde(borrow, default)]
    outputs: Vec<Output<'a>>,
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    shape: Vec<usize>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    parameters: Parameters,
}

/// The supported parameters; unknown ones are ignored.
#[derive(Deserialize, Default)]
struct Parameters {
    binary_data_size: Option<usize>,
    binary_data: Option<bool>,
    binary_data_output: Option<bool>,
    /// Time limit of the request in microseconds.
    timeout: Option<u64>,
    #[serde(default)]
    sequence_id: Given,
    #[serde(default)]
    shared_memory_region: Given,
    #[serde(default)]
    classification: Given,
}

/// Whether a field is present, whatever its value.
#[derive(Default)]
struct Given(bool);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Given, D::Error> {
        serde::de::IgnoredAny::deserialize(from).map(|_| Given(true))
    }
}

impl Parameters {
    fn check(&self) -> Answer<()> {
        let extensions = [
            ("sequence_id", &self.sequence_id),
            ("shared_memory_region", &self.shared_memory_region),
            ("classification", &self.classification),
        ];
        match extensions.iter().find(|(_, given)| given.0) {
            Some((name, _)) => {
                let message = format!("the parameter `{name}` belongs to an extension that this server does not have");
                Err(Refusal::bad_request(message, "`/v2` lists the extensions"))
            }
            None => Ok(()),
        }
    }
}

/// A request that has been checked against the ports of the model.
pub struct InferRequest {
    pub id: Option<String>,
    pub asked: Asked,
    pub timeout: Option<Duration>,
    pub form: Form,
}

/// Which outputs are sent as binary tensors: all or none, or those with `true` beside their name.
pub enum Form {
    All { binary: bool },
    Named(Vec<(String, bool)>),
}

impl Form {
    fn is_binary(&self, name: &str) -> bool {
        match self {
            Form::All { binary } => *binary,
            Form::Named(names) => names.iter().any(|(n, binary)| n == name && *binary),
        }
    }
}

/// Parses a request. `header` is the length of its JSON if binary tensors follow.
pub fn read(body: &Bytes, header: Option<usize>, ports: &Ports) -> Answer<InferRequest> {
    let length = header.unwrap_or(body.len());
    if length > body.len() {
        let message = format!("`Inference-Header-Content-Length` is {length}, and the body has {} bytes", body.len());
        return Err(Refusal::bad_request(message, "send the length of the JSON before the binary tensors"));
    }
    let json: Body = serde_json::from_slice(&body[..length]).map_err(|e| {
        let help = "send an object with `inputs`, a list of objects with `name`, `shape`, `datatype` and `data`";
        Refusal::bad_request(format!("the request is no inference request: {e}"), help)
    })?;
    json.parameters.check()?;
    let mut binary = Binary { body: body.slice(length..), at: 0 };
    let mut tensors: Vec<Option<Tensor>> = vec![None; ports.inputs().len()];
    for input in &json.inputs {
        let at = ports.inputs().iter().position(|port| port.name == input.name);
        let tensor = read_input(input, ports, &mut binary)?;
        let slot = at.and_then(|at| tensors.get_mut(at));
        if slot.and_then(|slot| slot.replace(tensor)).is_some() {
            let message = format!("the input `{}` is given twice", input.name);
            return Err(Refusal::input(message, "send each input once"));
        }
    }
    if binary.at != binary.body.len() {
        let message = format!("{} bytes follow the binary tensors", binary.body.len() - binary.at);
        return Err(Refusal::bad_request(message, "give each binary tensor its `binary_data_size`"));
    }
    let inputs = complete(ports, tensors)?;
    let form = form(&json, ports)?;
    let outputs = match &form {
        Form::All { .. } => vec![],
        Form::Named(names) => names.iter().map(|(name, _)| name.clone()).collect(),
    };
    let timeout = json.parameters.timeout.filter(|micros| *micros > 0).map(Duration::from_micros);
    Ok(InferRequest { id: json.id.map(Cow::into_owned), asked: Asked { inputs, outputs }, timeout, form })
}

/// Returns every input, in the order of the ports. Refuses missing inputs, and sizes that contradict each other.
pub fn complete(ports: &Ports, tensors: Vec<Option<Tensor>>) -> Answer<Vec<Tensor>> {
    let missing = tensors.iter().position(Option::is_none).and_then(|at| ports.inputs().get(at));
    if let Some(port) = missing {
        let message = format!("the input `{}` is missing", port.name);
        return Err(Refusal::input(message, format!("add it to `inputs`: {} [{}]", port.dtype, join(&port.dims))));
    }
    let inputs = tensors.into_iter().flatten().collect::<Vec<_>>();
    ports.positions(&inputs)?;
    Ok(inputs)
}

fn join(dims: &[sardonyx_base::Dim]) -> String {
    dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn form(json: &Body, ports: &Ports) -> Answer<Form> {
    if json.outputs.is_empty() {
        return Ok(Form::All { binary: json.parameters.binary_data_output.unwrap_or(false) });
    }
    let all = json.parameters.binary_data_output.unwrap_or(false);
    let mut names: Vec<(String, bool)> = vec![];
    for output in &json.outputs {
        ports.check_output(&output.name)?;
        output.parameters.check()?;
        if names.iter().any(|(name, _)| *name == output.name) {
            let message = format!("the output `{}` is asked for twice", output.name);
            return Err(Refusal::input(message, "ask for each output once"));
        }
        names.push((output.name.to_string(), output.parameters.binary_data.unwrap_or(all)));
    }
    Ok(Form::Named(names))
}

/// The bytes after the JSON; each binary tensor takes its bytes from offset `at` on.
struct Binary {
    body: Bytes,
    at: usize,
}

impl Binary {
    fn next(&mut self, bytes: usize, name: &str) -> Answer<Bytes> {
        let left = self.body.len() - self.at;
        if bytes > left {
            let message = format!("`binary_data_size` of the input `{name}` is {bytes}, but only {left} bytes follow");
            return Err(Refusal::bad_request(message, "send as many bytes as are announced, behind the JSON"));
        }
        self.at += bytes;
        Ok(self.body.slice(self.at - bytes..self.at))
    }
}

fn read_input(input: &Input, ports: &Ports, binary: &mut Binary) -> Answer<Tensor> {
    let name = &*input.name;
    let (dtype, count) = check_input(ports, name, &input.datatype, &input.shape)?;
    input.parameters.check()?;
    let tensor = match (input.data, input.parameters.binary_data_size) {
        (Some(text), None) => data::from_json(dtype, &input.shape, count, text.get()),
        (None, Some(bytes)) => data::from_bytes(dtype, &input.shape, count, binary.next(bytes, name)?),
        (Some(_), Some(_)) => Err("`data` and `binary_data_size` are both given".into()),
        (None, None) => Err("neither `data` nor `binary_data_size` is given".into()),
    };
    tensor.map_err(|what| {
        let help = format!("send {count} elements of {} for the shape {:?}", input.datatype, input.shape);
        Refusal::input(format!("the input `{name}`: {what}"), help)
    })
}

/// Checks the type and shape of an input against its port. Returns the element type and the number of elements.
pub fn check_input(ports: &Ports, name: &str, datatype: &str, shape: &[usize]) -> Answer<(DType, usize)> {
    let port = ports.input(name)?;
    let wanted = dtypes::name_of_dtype(port.dtype);
    if wanted.is_none() || wanted != Some(datatype) {
        let given: String = datatype.chars().take(20).collect();
        let wanted = wanted.unwrap_or("a type that the protocol does not have");
        let help = match dtypes::dtype_from_name(datatype) {
            Some(_) => format!("convert it to {wanted} before it is sent"),
            None => format!("write `\"datatype\": \"{wanted}\"`"),
        };
        return Err(Refusal::input(format!("the input `{name}` has the type {given} instead of {wanted}"), help));
    }
    ports.check_dims(port, shape)?;
    let count = element_count(shape).filter(|count| port.dtype.is_opaque() || port.dtype.bytes_for(*count).is_some());
    let count = count.ok_or_else(|| {
        Refusal::input(format!("the input `{name}` has more elements than there can be"), "send a smaller batch")
    })?;
    Ok((port.dtype, count))
}

/// Returns the body of a response, and the length of its JSON if binary tensors follow.
pub fn write(
    (model, version): (&str, u64),
    id: Option<&str>,
    outputs: &[(String, Tensor)],
    form: &Form,
) -> Answer<(Vec<u8>, Option<usize>)> {
    let mut head = json!({ "model_name": model, "model_version": version.to_string() });
    if let Some(id) = id {
        head["id"] = id.into();
    }
    let mut text = head.to_string().into_bytes();
    text.pop();
    text.extend(b",\"outputs\":[");
    let mut binary: Vec<Bytes> = vec![];
    for (i, (name, tensor)) in outputs.iter().enumerate() {
        if i > 0 {
            text.push(b',');
        }
        let datatype = dtypes::name_of_dtype(tensor.dtype()).ok_or_else(|| {
            let message = format!("the output `{name}` is of {}, which the protocol does not have", tensor.dtype());
            Refusal::input(message, "ask for other outputs")
        })?;
        let mut tensor_head = json!({ "name": name, "shape": tensor.dims(), "datatype": datatype });
        if form.is_binary(name) {
            let bytes = data::to_bytes(tensor);
            tensor_head["parameters"] = json!({ "binary_data_size": bytes.len() });
            text.extend(tensor_head.to_string().into_bytes());
            binary.push(bytes);
            continue;
        }
        text.extend(tensor_head.to_string().into_bytes());
        text.pop();
        text.extend(b",\"data\":");
        data::write_json(tensor, &mut text).map_err(|what| Refusal::input(what, "ask for binary outputs"))?;
        text.push(b'}');
    }
    text.extend(b"]}");
    let length = (!binary.is_empty()).then_some(text.len());
    binary.iter().for_each(|bytes| text.extend_from_slice(bytes));
    Ok((text, length))
}
