//! One `onnx.node` as its lowering sees it: operands, attributes, version

use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_dialects::mlir::{Attr, Block, Operation};
use sardonyx_dialects::sdx::Value;
use std::collections::BTreeMap;

pub struct Node<'m> {
    pub name: String,
    pub op_type: String,
    pub domain: String,
    /// Version of the operator set of `domain` that applies to this node.
    pub opset: i64,
    /// Absent optional inputs are `None`.
    pub inputs: Vec<Option<Value>>,
    pub n_outputs: usize,
    attributes: BTreeMap<String, Attr<'m>>,
    /// The rank that the file declares for the first output; only for operators whose output rank depends on the length
    /// of an operand (`has_open_rank`).
    pub declared_rank: Option<usize>,
    /// The attributes that are graphs, such as the branches of `If`, by name.
    bodies: Vec<(String, Block<'m>)>,
}

impl<'m> Node<'m> {
    pub fn read(op: Operation<'m>, inputs: Vec<Option<Value>>) -> Result<Node<'m>> {
        let text = |name: &str| op.attr(name).and_then(Attr::as_str).unwrap_or_default();
        let op_type = text("op_type");
        let names = op.attr("body_names").and_then(Attr::as_strs).unwrap_or_default();
        Ok(Node {
            name: op.origins().into_iter().next().unwrap_or_else(|| op_type.clone()),
            domain: text("op_domain"),
            opset: op.attr("opset").and_then(Attr::as_i64).unwrap_or(0),
            inputs,
            n_outputs: op.results().len(),
            attributes: op.attr("node_attributes").and_then(Attr::as_dict).unwrap_or_default().into_iter().collect(),
            declared_rank: op.attr("rank").and_then(Attr::as_i64).and_then(|n| usize::try_from(n).ok()),
            bodies: names.into_iter().enumerate().filter_map(|(i, name)| Some((name, op.block(i)?))).collect(),
            op_type,
        })
    }

    /// Returns a diagnostic that names this node and its operator.
    pub fn error(&self, code: &'static str, message: impl Into<String>) -> Box<Error> {
        Error::user(code, format!("{}: {}", self.op_type, message.into())).node(&self.name)
    }

    pub fn input(&self, i: usize) -> Result<Value> {
        self.optional(i).ok_or_else(|| self.error("E0103", format!("input {i} is missing")))
    }

    pub fn optional(&self, i: usize) -> Option<Value> {
        self.inputs.get(i).copied().flatten()
    }

    /// Returns all inputs. Errors: E0103 if one is absent.
    pub fn all_inputs(&self) -> Result<Vec<Value>> {
        (0..self.inputs.len()).map(|i| self.input(i)).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        self.attributes.contains_key(name)
    }

    fn get<T>(&self, name: &str, kind: &str, read: impl Fn(Attr<'m>) -> Option<T>) -> Result<Option<T>> {
        let Some(attr) = self.attributes.get(name) else { return Ok(None) };
        let value = read(*attr).ok_or_else(|| self.error("E0106", format!("the attribute `{name}` is not {kind}")))?;
        Ok(Some(value))
    }

    pub fn int(&self, name: &str) -> Result<Option<i64>> {
        self.get(name, "an integer", Attr::as_i64)
    }

    pub fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    pub fn float_or(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.get(name, "a float", Attr::as_f64)?.unwrap_or(default))
    }

    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        self.get(name, "a list of integers", |a| a.as_array()?.into_iter().map(Attr::as_i64).collect())
    }

    pub fn floats(&self, name: &str) -> Result<Option<Vec<f64>>> {
        self.get(name, "a list of floats", |a| a.as_array()?.into_iter().map(Attr::as_f64).collect())
    }

    pub fn strs(&self, name: &str) -> Result<Option<Vec<String>>> {
        self.get(name, "a list of strings", Attr::as_strs)
    }

    pub fn str_or(&self, name: &str, default: &str) -> Result<String> {
        Ok(self.get(name, "a string", Attr::as_str)?.unwrap_or_else(|| default.into()))
    }

    /// Returns an attribute that is a tensor. A tensor of strings becomes a vector, whatever its dimensions in the
    /// file.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor>> {
        let strings = |attr: Attr| attr.as_strs().map(|s| Tensor::from_strings(vec![s.len()], &s));
        self.get(name, "a dense tensor", |attr| attr.as_dense().or_else(|| strings(attr)))
    }

    /// Returns the element type whose ONNX code is the value of an attribute. Errors: E0107 for an unknown code.
    pub fn dtype(&self, name: &str) -> Result<Option<DType>> {
        let Some(code) = self.int(name)? else { return Ok(None) };
        let dtype = i32::try_from(code).ok().and_then(DType::from_onnx);
        dtype.map(Some).ok_or_else(|| self.error("E0107", format!("`{name}` = {code} is no element type")))
    }

    pub fn has_body(&self, name: &str) -> bool {
        self.bodies.iter().any(|(own, _)| own == name)
    }

    pub fn body(&self, name: &str) -> Result<Block<'m>> {
        let found = self.bodies.iter().find(|(own, _)| own == name).map(|(_, block)| *block);
        self.require(name, found)
    }

    pub fn require<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.error("E0106", format!("the attribute `{name}` is missing")))
    }

    /// Returns the axis as a number in 0..rank; a negative `axis` counts from the end. Errors: E0106 if it is out of
    /// range.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let at = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        at.and_then(|a| usize::try_from(a).ok())
            .filter(|a| *a < rank)
            .ok_or_else(|| self.error("E0106", format!("the axis {axis} is outside a tensor of rank {rank}")))
    }
}
