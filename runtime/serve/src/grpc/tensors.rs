//! ModelInferRequest  =>  the inputs and outputs of a job;  outputs  =>  ModelInferResponse

use super::messages::*;
use crate::kserve::data;
use crate::kserve::dtypes::name_of_dtype;
use crate::kserve::infer::{check_input, complete};
use crate::ports::Ports;
use crate::refusal::{Answer, Refusal};
use crate::served::{Asked, Served};
use sardonyx_base::{DType, Tensor};
use std::time::Duration;

pub fn parse_request(request: &ModelInferRequest, ports: &Ports) -> Answer<Asked> {
    let raw = &request.raw_input_contents;
    if !raw.is_empty() && raw.len() != request.inputs.len() {
        let message = format!("{} `raw_input_contents` are given for {} inputs", raw.len(), request.inputs.len());
        return Err(Refusal::bad_request(message, "send one for each input, in their order, or none"));
    }
    let mut tensors: Vec<Option<Tensor>> = vec![None; ports.inputs().len()];
    for (i, input) in request.inputs.iter().enumerate() {
        let tensor = tensor(input, raw.get(i), ports)?;
        let at = ports.inputs().iter().position(|port| port.name == input.name);
        let slot = at.and_then(|at| tensors.get_mut(at));
        if slot.and_then(|slot| slot.replace(tensor)).is_some() {
            let message = format!("the input `{}` is given twice", input.name);
            return Err(Refusal::input(message, "send each input once"));
        }
    }
    let inputs = complete(ports, tensors)?;
    let mut outputs: Vec<String> = vec![];
    for InferRequestedOutputTensor { name, .. } in &request.outputs {
        ports.check_output(name)?;
        if outputs.contains(name) {
            return Err(Refusal::input(format!("the output `{name}` is asked for twice"), "ask for each output once"));
        }
        outputs.push(name.clone());
    }
    Ok(Asked { inputs, outputs })
}

/// Returns the value of the parameter `timeout`, which is in microseconds.
pub fn timeout(request: &ModelInferRequest) -> Option<Duration> {
    let micros = match request.parameters.get("timeout")?.parameter_choice.as_ref()? {
        ParameterChoice::Int64(micros) => u64::try_from(*micros).ok()?,
        ParameterChoice::Uint64(micros) => *micros,
        ParameterChoice::String(text) => text.parse().ok()?,
        ParameterChoice::Bool(_) | ParameterChoice::Double(_) => return None,
    };
    (micros > 0).then(|| Duration::from_micros(micros))
}

fn tensor(input: &InferInputTensor, raw: Option<&bytes::Bytes>, ports: &Ports) -> Answer<Tensor> {
    let InferInputTensor { name, datatype, shape, contents, .. } = input;
    let shape: Option<Vec<usize>> = shape.iter().map(|size| usize::try_from(*size).ok()).collect();
    let shape = shape
        .ok_or_else(|| Refusal::input(format!("the input `{name}` has a negative size"), "send sizes of 0 and more"))?;
    let (dtype, count) = check_input(ports, name, datatype, &shape)?;
    let tensor = match (raw, contents) {
        (Some(raw), None) => data::from_bytes(dtype, &shape, count, raw.clone()),
        (None, Some(contents)) => typed(dtype, &shape, count, contents),
        (None, None) if count == 0 => data::from_bytes(dtype, &shape, count, bytes::Bytes::new()),
        (None, None) => Err("neither `contents` nor `raw_input_contents` is given".into()),
        (Some(_), Some(_)) => Err("`contents` and `raw_input_contents` are both given".into()),
    };
    tensor.map_err(|what| {
        let help = format!("send {count} elements of {datatype} for the shape {shape:?}");
        Refusal::input(format!("the input `{name}`: {what}"), help)
    })
}

fn typed(dtype: DType, dims: &[usize], count: usize, contents: &InferTensorContents) -> Result<Tensor, String> {
    macro_rules! list {
        ($field:ident as $ty:ty) => {{
            check_count(contents.$field.len(), count)?;
            let narrow = |v: &_| <$ty>::try_from(*v).map_err(|_| format!("{v} is no {dtype}"));
            let values: Vec<$ty> = contents.$field.iter().map(narrow).collect::<Result<_, String>>()?;
            Ok(Tensor::from_vec(dims.to_vec(), values))
        }};
    }
    match dtype {
        DType::F32 => list!(fp32_contents as f32),
        DType::F64 => list!(fp64_contents as f64),
        DType::I8 => list!(int_contents as i8),
        DType::I16 => list!(int_contents as i16),
        DType::I32 => list!(int_contents as i32),
        DType::I64 => list!(int64_contents as i64),
        DType::U8 => list!(uint_contents as u8),
        DType::U16 => list!(uint_contents as u16),
        DType::U32 => list!(uint_contents as u32),
        DType::U64 => list!(uint64_contents as u64),
        DType::Bool => list!(bool_contents as bool),
        DType::String => {
            check_count(contents.bytes_contents.len(), count)?;
            Ok(Tensor::from_strings(dims.to_vec(), &contents.bytes_contents))
        }
        other => Err(format!("{other} is only sent as `raw_input_contents`")),
    }
}

fn check_count(given: usize, count: usize) -> Result<(), String> {
    if given == count { Ok(()) } else { Err(format!("there are {given} elements instead of {count}")) }
}

/// Builds the response; outputs are always sent as raw bytes.
pub fn response(served: &Served, id: String, outputs: &[(String, Tensor)]) -> Answer<ModelInferResponse> {
    let head = |(name, tensor): &(String, Tensor)| {
        let datatype = name_of_dtype(tensor.dtype()).ok_or_else(|| {
            let message = format!("the output `{name}` is of {}, which the protocol does not have", tensor.dtype());
            Refusal::input(message, "ask for other outputs")
        })?;
        let shape = tensor.dims().iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
        Ok(InferOutputTensor { name: name.clone(), datatype: datatype.into(), shape })
    };
    Ok(ModelInferResponse {
        model_name: served.name.clone(),
        model_version: served.version.to_string(),
        id,
        outputs: outputs.iter().map(head).collect::<Answer<_>>()?,
        raw_output_contents: outputs.iter().map(|(_, tensor)| data::to_bytes(tensor)).collect(),
    })
}
