//! a plan's words: what ranks are to have of an operand, the stages of a pipeline, what is computed during exchanges

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

/// What is computed while something else is exchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Contractions whose result is exchanged are computed in so many parts, each while the one before it is on its way.
    pub chunks: usize,
    /// The batch is cut into so many, which take turns: one computes while another one exchanges.
    pub micro_batches: usize,
    /// ONNX nodes that are computed in chunks; all where none is named.
    pub nodes: Vec<String>,
}

impl Overlap {
    pub fn is_for(&self, origins: &[String]) -> bool {
        self.nodes.is_empty() || origins.iter().any(|origin| self.nodes.contains(origin))
    }
}

impl FromStr for Overlap {
    type Err = ();

    /// `4:/layer.1/MatMul,/layer.2/MatMul`: in 4 chunks; `1x2`: in 2 micro-batches.
    fn from_str(text: &str) -> std::result::Result<Overlap, ()> {
        let (how, nodes) = text.split_once(':').unwrap_or((text, ""));
        let (chunks, micro_batches) = how.split_once('x').unwrap_or((how, "1"));
        let number = |text: &str, max: usize| text.parse().ok().filter(|n| (1..=max).contains(n)).ok_or(());
        let nodes = nodes.split(',').filter(|name| !name.is_empty()).map(str::to_string).collect();
        let micro_batches = number(micro_batches, MICRO_BATCHES_MAX)?;
        Ok(Overlap { chunks: number(chunks, CHUNKS_MAX)?, micro_batches, nodes })
    }
}

/// More chunks than any contraction gains by.
pub const CHUNKS_MAX: usize = 64;
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
