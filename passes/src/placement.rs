//! Parts of a distribution plan: placement of operands on ranks, stages of a pipeline, computation during exchanges

use sardonyx_dialects::sdx::Place;
use std::str::FromStr;

/// How an operand of an operation is distributed over ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandPlace {
    /// Name of the ONNX node.
    pub node: String,
    /// Index among the operations that implement the node.
    pub op: usize,
    /// Index of the operand among the operation's arguments.
    pub operand: usize,
    /// Distribution of the operand over the ranks of one axis.
    pub place: Place,
}

impl OperandPlace {
    /// Returns the message for a program without such an operand.
    pub fn absence(&self) -> String {
        format!("operation {} of the node has no operand {} that can be placed so", self.op, self.operand)
    }
}

/// A pipeline along an axis of the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Index of the mesh axis whose ranks hold the stages.
    pub axis: usize,
    /// Names of ONNX nodes; the first operation of each node begins the next stage.
    pub begins: Vec<String>,
    /// Number of micro-batches, which pass through the stages one after the other.
    pub micro_batches: usize,
}

/// How computation overlaps with exchanges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Number of chunks in which contractions with exchanged results are computed; each chunk is computed while the
    /// previous chunk is being exchanged.
    pub chunks: usize,
    /// Number of micro-batches; one micro-batch is computed while the results of another are being exchanged.
    pub micro_batches: usize,
    /// Names of the ONNX nodes whose contractions are computed in chunks; all contractions if empty.
    pub nodes: Vec<String>,
}

impl Overlap {
    /// Whether contractions that come from these ONNX nodes are computed in chunks.
    pub fn is_for(&self, origins: &[String]) -> bool {
        self.nodes.is_empty() || origins.iter().any(|origin| self.nodes.contains(origin))
    }
}

impl FromStr for Overlap {
    type Err = ();

    /// Parses `4:/layer.1/MatMul,/layer.2/MatMul` (4 chunks) or `1x2` (2 micro-batches).
    fn from_str(text: &str) -> std::result::Result<Overlap, ()> {
        let (how, nodes) = text.split_once(':').unwrap_or((text, ""));
        let (chunks, micro_batches) = how.split_once('x').unwrap_or((how, "1"));
        let number = |text: &str, max: usize| text.parse().ok().filter(|n| (1..=max).contains(n)).ok_or(());
        let nodes = nodes.split(',').filter(|name| !name.is_empty()).map(str::to_string).collect();
        let micro_batches = number(micro_batches, MICRO_BATCHES_MAX)?;
        Ok(Overlap { chunks: number(chunks, CHUNKS_MAX)?, micro_batches, nodes })
    }
}

/// Maximum number of chunks; no contraction gains from more.
pub const CHUNKS_MAX: usize = 64;
/// Maximum number of micro-batches; no pipeline gains from more.
pub const MICRO_BATCHES_MAX: usize = 64;

impl FromStr for Stages {
    type Err = ();

    /// Parses `0x4:/layer.1/MatMul,/layer.2/MatMul` (along axis 0, with 4 micro-batches).
    fn from_str(text: &str) -> std::result::Result<Stages, ()> {
        let (how, begins) = text.split_once(':').ok_or(())?;
        let (axis, micro_batches) = how.split_once('x').unwrap_or((how, "1"));
        let [axis, micro_batches] = [axis, micro_batches].map(|n| n.parse::<usize>().map_err(|_| ()));
        let micro_batches = Some(micro_batches?).filter(|n| (1..=MICRO_BATCHES_MAX).contains(n)).ok_or(())?;
        Ok(Stages { axis: axis?, begins: begins.split(',').map(str::to_string).collect(), micro_batches })
    }
}
