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
    /// The batch is cut into so many, which go through the stages one behind the other.
    pub micro_batches: usize,
}

/// More micro-batches than any pipeline gains by.
pub const MICRO_BATCHES_MAX: usize = 64;

impl FromStr for Stages {
    type Err = ();

    /// `0x4:/layer.1/MatMul,/layer.2/MatMul`: along axis 0, in 4 micro-batches.
    fn from_str(text: &str) -> std::result::Result<Stages, ()> {
        let (how, begins) = text.split_once(':').ok_or(())?;
        let (axis, micro_batches) = how.split_once('x').unwrap_or((how, "1"));
        let [axis, micro_batches] = [axis, micro_batches].map(|n| n.parse::<usize>().map_err(|_| ()));
        let micro_batches = Some(micro_batches?).filter(|n| (1..=MICRO_BATCHES_MAX).contains(n)).ok_or(())?;
        Ok(Stages { axis: axis?, begins: begins.split(',').map(str::to_string).collect(), micro_batches })
    }
}
