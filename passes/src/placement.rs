//! a plan's words: what ranks are to have of an operand, and the stages of a pipeline

use sardonyx_dialects::sdx::Place;
use std::str::FromStr;

/// What ranks are to have of what an operation reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandPlace {
    pub node: String,
    /// Which of the operations that stand for the node, from 0 on.
    pub op: usize,
    pub operand: usize,
    pub place: Place,
}

impl OperandPlace {
    /// The message where the program has no such operand.
    pub fn absence(&self) -> String {
        format!("operation {} of the node has no operand {} that can be placed so", self.op, self.operand)
    }
}

/// A pipeline along an axis of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages {
    pub axis: usize,
    /// ONNX nodes: the first operation of each begins the next stage.
    pub begins: Vec<String>,
}

impl FromStr for Stages {
    type Err = ();

    /// `0:/layer.1/MatMul,/layer.2/MatMul`
    fn from_str(text: &str) -> std::result::Result<Stages, ()> {
        let (axis, begins) = text.split_once(':').ok_or(())?;
        let begins = begins.split(',').map(str::to_string).collect();
        Ok(Stages { axis: axis.parse().map_err(|_| ())?, begins })
    }
}
