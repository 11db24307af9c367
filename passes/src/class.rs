//! Classes of rewrites: exact, reassociating, narrowing, finite-only

/// How closely a rewritten program must agree with the original (dialects/FLOATING_POINT.md, "Classes of rewrites").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Bitwise equal for all inputs, except that a NaN may have another sign and payload.
    #[default]
    Exact,
    /// Equal up to rounding and the sign of zeros, as long as nothing overflows or underflows; NaN and infinities occur
    /// at the same positions.
    Reassociating,
    /// Equal up to the rounding of operands to the requested precision.
    Narrowing,
    /// As `Reassociating`, but only for finite inputs and results.
    FiniteOnly,
}

impl Class {
    /// Returns the class in lower case with hyphens, such as `finite-only`.
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Reassociating => "reassociating",
            Class::Narrowing => "narrowing",
            Class::FiniteOnly => "finite-only",
        }
    }
}
