//! weights, identified by their definition  =>  the rounding that calibration chose for them

use sardonyx_base::DType;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Identifies weights by a hash of the operations that define them, and by the axis over which they are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Meaning {
    /// Hash of the operations that define the weights, down to the names of parameters.
    pub value: u64,
    /// Axis of the weights over which they are reduced.
    pub axis: usize,
}

/// Type of the codes that replace quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeType {
    /// A signed integer of this many bits.
    Int(u32),
    /// An 8-bit float.
    Float(DType),
}

impl CodeType {
    /// 8-bit signed integers.
    pub const BYTES: CodeType = CodeType::Int(8);

    /// Returns the element type of containers of codes.
    pub fn dtype(self) -> DType {
        match self {
            CodeType::Int(..=4) => DType::I4,
            CodeType::Int(_) => DType::I8,
            CodeType::Float(dtype) => dtype,
        }
    }

    /// Returns the element type of the codes that calibration stores as parameters.
    pub fn parameter(self) -> DType {
        match self {
            CodeType::Int(_) => DType::I8,
            CodeType::Float(dtype) => dtype,
        }
    }

    /// Returns the element type of the scales, one per group of weights.
    pub fn scale(self) -> DType {
        match self {
            CodeType::Int(_) => DType::BF16,
            CodeType::Float(_) => DType::F32,
        }
    }
}

/// The name used in reports: `int4`, `f8e4m3fn`.
impl fmt::Display for CodeType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            CodeType::Int(bits) => write!(f, "int{bits}"),
            CodeType::Float(dtype) => write!(f, "{dtype}"),
        }
    }
}

/// Names of the parameters that hold codes (integers are stored as bytes) and the scale of each group of codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes {
    /// Name of the parameter with the codes, whose element type is [`CodeType::parameter`].
    pub codes: String,
    /// Name of the parameter with one scale per group.
    pub scale: String,
    /// Type of the codes.
    pub code: CodeType,
    /// Number of weights in a group.
    pub size: i64,
}

/// How weights are rounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Rounds to the nearest 8-bit code, with one scale along the reduction axis.
    Nearest,
    /// Uses codes and scales that calibration stored as parameters.
    Codes(Codes),
}

/// The minimum and maximum of a value's elements.
pub type Range = [f32; 2];

/// Results of calibration: the rounding of each weight whose rounding was chosen by running data, and the ranges of the
/// values that are quantised with a single scale.
#[derive(Clone, Debug, Default)]
pub struct Calibrated {
    found: Arc<HashMap<Meaning, Rounding>>,
    /// Ranges by the hash of the operations that define a value.
    ranges: Arc<HashMap<u64, Range>>,
    /// Whether the calibration data was random.
    is_random: bool,
}

impl Calibrated {
    /// Creates results without ranges; `is_random` tells whether the calibration data was random.
    pub fn new(found: HashMap<Meaning, Rounding>, is_random: bool) -> Calibrated {
        Calibrated { found: Arc::new(found), ranges: Arc::default(), is_random }
    }

    /// Replaces the ranges, whose keys are hashes of the operations that define a value.
    pub fn with_ranges(self, ranges: HashMap<u64, Range>) -> Calibrated {
        Calibrated { ranges: Arc::new(ranges), ..self }
    }

    /// Returns the name used in manifests and reports, or `None` if nothing was calibrated.
    pub fn name(&self) -> Option<&'static str> {
        (!self.found.is_empty() || !self.ranges.is_empty()).then_some(if self.is_random {
            "calibrated=random"
        } else {
            "calibrated"
        })
    }

    /// Returns the rounding that calibration chose; `None` if it chose none for these weights.
    pub fn rounding(&self, weights: Meaning) -> Option<&Rounding> {
        self.found.get(&weights)
    }

    /// Returns the range of a value, given by its hash; `None` if calibration found none.
    pub fn range(&self, value: u64) -> Option<Range> {
        self.ranges.get(&value).copied()
    }
}
