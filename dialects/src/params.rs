//! the name of a parameter  =>  its value: whoever computes with parameters asks here

use sardonyx_base::{Error, Result, Tensor};
use std::collections::BTreeMap;

/// The values of a model's parameters. The functions of one name are values too, such as those that a test makes up.
pub trait ParamValues {
    /// Errors: E0901 for a name that is no parameter's.
    fn value(&self, name: &str) -> Result<Tensor>;
}

impl ParamValues for BTreeMap<String, Tensor> {
    fn value(&self, name: &str) -> Result<Tensor> {
        self.get(name).cloned().ok_or_else(|| Error::defect(format!("the parameter `{name}` is gone")))
    }
}

impl<F: Fn(&str) -> Result<Tensor>> ParamValues for F {
    fn value(&self, name: &str) -> Result<Tensor> {
        self(name)
    }
}
