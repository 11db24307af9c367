//! The sizes of a call that nobody has said anything of: what every estimate takes where a dimension is open

/// What is not said of a call.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// What stands first in an input's dimensions: the batch.
    pub first: i64,
    pub other: i64,
}

/// A usual call, and what calls are usual beside it: a short one, and a large one.
pub const USUAL: Usual = Usual { first: 1, other: 128 };
pub const LARGE: Usual = Usual { first: 8, other: 512 };
pub const CALLS: [Usual; 3] = [USUAL, Usual { other: 16, ..USUAL }, LARGE];
