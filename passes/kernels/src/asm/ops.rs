//! Operations of kernel code that each of the two languages spells in its own syntax

/// A binary operation on two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bin {
    AddF,
    SubF,
    MulF,
    DivF,
    /// Magnitude of the first operand with the sign of the second.
    CopySign,
    AddI,
    SubI,
    MulI,
    AndI,
    OrI,
    XorI,
    DivSI,
    DivUI,
    RemSI,
    RemUI,
    MaxSI,
    MaxUI,
    MinSI,
    MinUI,
    ShLI,
    ShRSI,
    ShRUI,
}

/// A unary operation on floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Un {
    AbsF,
    NegF,
    Sqrt,
    Ceil,
    Floor,
    RoundEven,
}

/// A conversion from one element type to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    ExtF,
    TruncF,
    Bitcast,
    TruncI,
    ExtSI,
    ExtUI,
    SIToFP,
    UIToFP,
}

/// A comparison of floats: ordered ones (`O`) are false where an operand is NaN, unordered ones (`U`) true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpF {
    Oeq,
    One,
    Olt,
    Ole,
    Ogt,
    Oge,
    Ult,
    Une,
    Uno,
}

/// A comparison of integers, signed (`S`) or unsigned (`U`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpI {
    Eq,
    Ne,
    Slt,
    Sle,
    Sgt,
    Sge,
    Ult,
    Ule,
    Ugt,
    Uge,
}
