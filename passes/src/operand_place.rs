//! a plan's words for what ranks are to have of an operand

use sardonyx_dialects::sdx::Place;

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
