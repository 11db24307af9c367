//! Loops that a CPU executes for a kernel, outermost first, from which cache reuse is estimated

/// Loop over a variable in steps, or repeated passes over the inner space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Loop over one variable.
    Var {
        /// Number of the iteration variable.
        var: usize,
        /// Number of values of the variable that one iteration covers.
        step: i64,
    },
    /// Repeated passes over the inner space.
    Passes,
}

impl Loop {
    /// One loop with step 1 per variable.
    pub fn each(vars: impl IntoIterator<Item = usize>) -> Vec<Loop> {
        vars.into_iter().map(|var| Loop::Var { var, step: 1 }).collect()
    }
}

/// Loops of a launch, and the number of passes over the inner space in which each statement is evaluated.
pub struct Nest {
    /// Loops around the evaluation of the statements, outermost first.
    pub loops: Vec<Loop>,
    /// Number of passes that evaluate each statement, by statement.
    pub passes: Vec<i64>,
}
