//! the name of a parameter, possibly a prepared one  =>  its value, and a cheap test whether it may be mostly 0

use super::ZEROS_MIN;
use crate::options::Params;
use sardonyx_base::{Result, Tensor};
use sardonyx_dialects::flow::prepared::Prepared;
use sardonyx_dialects::flow::sparse;
use sardonyx_dialects::interp::Values;
use sardonyx_dialects::params::ParamValues;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// The parameters of a module. The prepared parameters are all computed together, when the first of them is requested.
pub struct Known {
    params: Params,
    prepared: Prepared,
    made: OnceCell<BTreeMap<String, Tensor>>,
}

impl Known {
    pub fn new(prepared: Prepared, params: &Params) -> Known {
        Known { params: params.clone(), prepared, made: OnceCell::new() }
    }

    /// Returns false for a prepared parameter if none of the parameters that it depends on is mostly 0; then the
    /// prepared parameter itself need not be computed.
    pub fn may_be_sparse(&self, name: &str) -> bool {
        match self.prepared.get(name) {
            Some(program) => {
                program.made_of().iter().any(|name| self.prepared.contains_key(name) || self.is_sparse(name))
            }
            None => true,
        }
    }

    fn is_sparse(&self, name: &str) -> bool {
        let elements = self.params.value(name).ok().and_then(|value| sparse::elements(&value)).unwrap_or_default();
        let zeros = elements.iter().filter(|value| **value == 0.0).count();
        zeros as f64 >= ZEROS_MIN * elements.len().max(1) as f64
    }
}

impl ParamValues for Known {
    fn value(&self, name: &str) -> Result<Tensor> {
        if !self.prepared.contains_key(name) {
            return self.params.value(name);
        }
        let made = match self.made.get() {
            Some(made) => made,
            None => {
                let made = self.params.prepare(&self.prepared)?;
                self.made.get_or_init(|| made)
            }
        };
        match made.get(name) {
            Some(value) => Ok(value.clone()),
            None => Values { params: &self.params, prepared: &self.prepared }.value(name),
        }
    }
}
