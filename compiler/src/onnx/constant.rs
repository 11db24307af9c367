//! Constant {value_ints = [2, 3]}  =>  initializer [2, 3]

use super::model::{Attribute, Node};
use sardonyx_base::{Error, Result, Tensor};

pub fn is_constant(node: &Node) -> bool {
    node.op_type == "Constant" && node.domain.is_empty()
}

/// The value of a `Constant` node (ai.onnx 1 and later), which must have exactly one attribute that holds it.
pub fn value(node: &Node) -> Result<Tensor> {
    let mut held = node.attributes.iter();
    let (Some((name, attribute)), None) = (held.next(), held.next()) else {
        let message = format!("a `Constant` needs exactly one value, but has {} attributes", node.attributes.len());
        return Err(Error::user("E0106", message).help(FORMS));
    };
    Ok(match (name.as_str(), attribute) {
        ("value", Attribute::Tensor(data)) | ("sparse_value", Attribute::SparseTensor(data)) => data.clone(),
        ("value_float", Attribute::Float(v)) => Tensor::scalar(*v),
        ("value_int", Attribute::Int(v)) => Tensor::scalar(*v),
        ("value_floats", Attribute::Floats(v)) => Tensor::from_vec(vec![v.len()], v.clone()),
        ("value_ints", Attribute::Ints(v)) => Tensor::from_vec(vec![v.len()], v.clone()),
        ("value_string", Attribute::String(v)) => Tensor::from_strings(vec![], std::slice::from_ref(v)),
        ("value_strings", Attribute::Strings(v)) => Tensor::from_strings(vec![v.len()], v),
        (name, attribute) => {
            let message = format!("a `Constant` cannot hold a {} in attribute `{name}`", attribute.kind());
            return Err(Error::user("E0106", message).help(FORMS));
        }
    })
}

const FORMS: &str =
    "it takes value, sparse_value, value_int, value_ints, value_float, value_floats, value_string or value_strings";
