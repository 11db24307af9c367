//! Classes of rewrites: exact, reassociating, narrowing, finite-only

/// How equal two programs are, one of which is a rewrite of the other: FLOATING_POINT.md, "Classes of rewrites".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Equal bits for all inputs; of a NaN only that it is one.
    #[default]
    Exact,
    /// Equal up to roundings, while nothing overflows or underflows; NaN and infinities in the same places.
    Reassociating,
    /// Equal up to the rounding of factors to the precision that was asked for.
    Narrowing,
    /// As reassociating, for finite inputs and results alone.
    FiniteOnly,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Reassociating => "reassociating",
            Class::Narrowing => "narrowing",
            Class::FiniteOnly => "finite-only",
        }
    }
}
