//! The loops that a CPU runs for a kernel, from the outermost in: what may still be in a cache when

/// A loop: over a variable in steps, or over the whole inner space again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    Var { var: usize, step: i64 },
    Passes,
}

impl Loop {
    /// One loop per variable, each over single points.
    pub fn each(vars: impl IntoIterator<Item = usize>) -> Vec<Loop> {
        vars.into_iter().map(|var| Loop::Var { var, step: 1 }).collect()
    }
}

/// The loops of a launch, and in how many passes over the inner space each statement is evaluated.
pub struct Nest {
    pub loops: Vec<Loop>,
    pub passes: Vec<i64>,
}
