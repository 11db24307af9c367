//! what weights are  =>  what calibration made of them

use sardonyx_base::DType;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Which weights, and the axis of them that is summed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Meaning {
    pub value: u64,
    pub axis: usize,
}

/// What the code of a weight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeType {
    /// A whole number of so many bits, with a sign.
    Int(u32),
    /// A float of 8 bits.
    Float(DType),
}

impl CodeType {
    pub const BYTES: CodeType = CodeType::Int(8);

    /// Of codes in containers.
    pub fn dtype(self) -> DType {
        match self {
            CodeType::Int(..=4) => DType::I4,
            CodeType::Int(_) => DType::I8,
            CodeType::Float(dtype) => dtype,
        }
    }

    /// Of codes that calibration gives.
    pub fn parameter(self) -> DType {
        match self {
            CodeType::Int(_) => DType::I8,
            CodeType::Float(dtype) => dtype,
        }
    }

    /// Of the scales of groups.
    pub fn scale(self) -> DType {
        match self {
            CodeType::Int(_) => DType::BF16,
            CodeType::Float(_) => DType::F32,
        }
    }
}

/// As reports call it: `int4`, `f8e4m3fn`.
impl fmt::Display for CodeType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            CodeType::Int(bits) => write!(f, "int{bits}"),
            CodeType::Float(dtype) => write!(f, "{dtype}"),
        }
    }
}

/// The names of parameters: codes, whole numbers as bytes, and a scale for each group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes {
    pub codes: String,
    pub scale: String,
    pub code: CodeType,
    /// Weights of a group.
    pub size: i64,
}

/// How weights are rounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest of 8 bits, with one scale along the sum.
    Nearest,
    /// As they were.
    Codes(Codes),
}

/// The least and the largest of a value's elements.
pub type Range = [f32; 2];

/// The weights that are rounded as data says: those that were calibrated, or all that a choice by layer rounds. And the ranges of
/// values that have one scale.
#[derive(Clone, Debug, Default)]
pub struct Calibrated {
    found: Arc<HashMap<Meaning, Rounding>>,
    /// By what the value is.
    ranges: Arc<HashMap<u64, Range>>,
    /// Whether the data was made up.
    is_random: bool,
}

impl Calibrated {
    pub fn new(found: HashMap<Meaning, Rounding>, is_random: bool) -> Calibrated {
        Calibrated { found: Arc::new(found), ranges: Arc::default(), is_random }
    }

    pub fn with_ranges(self, ranges: HashMap<u64, Range>) -> Calibrated {
        Calibrated { ranges: Arc::new(ranges), ..self }
    }

    /// As manifests and reports call it; none where nothing was calibrated.
    pub fn name(&self) -> Option<&'static str> {
        (!self.found.is_empty() || !self.ranges.is_empty()).then_some(if self.is_random {
            "calibrated=random"
        } else {
            "calibrated"
        })
    }

    pub fn rounding(&self, weights: Meaning) -> Option<&Rounding> {
        self.found.get(&weights)
    }

    pub fn range(&self, value: u64) -> Option<Range> {
        self.ranges.get(&value).copied()
    }
}
