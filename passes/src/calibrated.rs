//! what weights are  =>  the parameters that hold the codes which calibration found for them

use std::collections::HashMap;
use std::sync::Arc;

/// Which weights, and the axis of them that is summed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Meaning {
    pub value: u64,
    pub axis: usize,
}

/// The names of parameters: codes as bytes, and a scale for each group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes {
    pub codes: String,
    pub scale: String,
    pub bits: u32,
    /// Weights of a group.
    pub size: i64,
}

/// The codes of all weights that were calibrated.
#[derive(Clone, Debug, Default)]
pub struct Calibrated {
    found: Arc<HashMap<Meaning, Codes>>,
    /// Whether the data was made up.
    is_random: bool,
}

impl Calibrated {
    pub fn new(found: HashMap<Meaning, Codes>, is_random: bool) -> Calibrated {
        Calibrated { found: Arc::new(found), is_random }
    }

    /// As manifests and reports call it; none where nothing was calibrated.
    pub fn name(&self) -> Option<&'static str> {
        (!self.found.is_empty()).then_some(if self.is_random { "calibrated=random" } else { "calibrated" })
    }

    pub fn codes(&self, weights: Meaning) -> Option<&Codes> {
        self.found.get(&weights)
    }
}
