//! Cast(x, to)  =>  sdx.convert

use super::builder::Builder;
use super::node::Node;
use sardonyx_dialects::sdx::Value;
use sardonyx_runtime::{DType, Result};

type Outputs = Result<Vec<Value>>;

pub fn cast(b: &mut Builder, node: &Node) -> Outputs {
    let to = node.require("to", node.dtype("to")?)?;
    cast_to(b, node, to)
}

/// To the type of the second input, whose values do not matter.
pub fn cast_like(b: &mut Builder, node: &Node) -> Outputs {
    let to = b.dtype(node.input(1)?);
    cast_to(b, node, to)
}

fn cast_to(b: &mut Builder, node: &Node, to: DType) -> Outputs {
    let x = node.input(0)?;
    let plain = |t: DType| t.is_int() || t.is_float() || t == DType::Bool;
    if !plain(to) || !plain(b.dtype(x)) {
        return Err(node.error("E0107", format!("a cast from {} to {to} is not supported", b.dtype(x))));
    }
    Ok(vec![b.convert(x, to)?])
}
