//! the tensors that a call returns: by name, in the model's order

use sardonyx_base::Tensor;
use std::ops::{Deref, Index};

/// The outputs that a call returns: those that were requested, and for which the caller gave no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs(Vec<(String, Tensor)>);

impl Outputs {
    pub(crate) fn push(&mut self, name: &str, tensor: Tensor) {
        self.0.push((name.to_string(), tensor));
    }

    /// Returns an output by name: `outputs.get("logits").and_then(|t| t.as_slice::<f32>())`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor)
    }
}

/// Indexes by name; panics if the call has not returned the output.
impl Index<&str> for Outputs {
    type Output = Tensor;

    fn index(&self, name: &str) -> &Tensor {
        self.get(name).unwrap_or_else(|| panic!("the call has not returned `{name}`"))
    }
}

/// Indexes in the order of the model's outputs.
impl Index<usize> for Outputs {
    type Output = (String, Tensor);

    fn index(&self, at: usize) -> &(String, Tensor) {
        &self.0[at]
    }
}

impl From<Outputs> for Vec<(String, Tensor)> {
    fn from(outputs: Outputs) -> Vec<(String, Tensor)> {
        outputs.0
    }
}

/// A slice of names and tensors, in the model's order.
impl Deref for Outputs {
    type Target = [(String, Tensor)];

    fn deref(&self) -> &[(String, Tensor)] {
        &self.0
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Outputs {
    type Item = &'a (String, Tensor);
    type IntoIter = std::slice::Iter<'a, (String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
