//! a case's model  =>  the same model with every dimension symbolic, or with every input but the first a constant

use sardonyx::onnx::{DimSpec, Initializer, Model, ValueType};
use sardonyx_base::Tensor;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// The model as published.
    Static,
    /// Every dimension of every input is a symbol of its own.
    Dynamic,
    /// Every input but the first is an initializer, and constant folding is off.
    Constant,
}

impl Variant {
    pub const ALL: [Variant; 3] = [Variant::Static, Variant::Dynamic, Variant::Constant];

    pub fn name(self) -> &'static str {
        match self {
            Variant::Static => "static",
            Variant::Dynamic => "dynamic",
            Variant::Constant => "constant",
        }
    }

    pub fn from_name(name: &str) -> Option<Variant> {
        Variant::ALL.into_iter().find(|v| v.name() == name)
    }

    /// Stages of the pipeline that are disabled.
    pub fn without(self) -> Vec<&'static str> {
        match self {
            Variant::Static | Variant::Dynamic => vec![],
            Variant::Constant => vec!["fold-constants"],
        }
    }

    /// Changes the model, and removes from `inputs` those that became constants of the model.
    pub fn apply(self, model: &mut Model, inputs: &mut Vec<(String, Tensor)>) {
        match self {
            Variant::Static => {}
            Variant::Dynamic => {
                for (i, input) in model.graph.inputs.iter_mut().enumerate() {
                    if let Some(ty) = &mut input.ty {
                        open(ty, i);
                    }
                }
            }
            Variant::Constant => {
                let first = model.graph.inputs.first().map(|i| i.name.clone());
                let is_constant = |name: &str| first.as_deref() != Some(name);
                for (name, tensor) in inputs.iter().filter(|(n, _)| is_constant(n)) {
                    model.graph.inputs.retain(|i| i.name != *name);
                    let data = tensor.clone();
                    model.graph.initializers.push(Initializer { name: name.clone(), data });
                }
                inputs.retain(|(n, _)| !is_constant(n));
            }
        }
    }
}

fn open(ty: &mut ValueType, input: usize) {
    match ty {
        ValueType::Tensor { dims: Some(dims), .. } => {
            for (axis, dim) in dims.iter_mut().enumerate() {
                *dim = DimSpec::Named(format!("i{input}d{axis}"));
            }
        }
        ValueType::Tensor { dims: None, .. } | ValueType::SparseTensor { .. } => {}
        ValueType::Sequence(of) | ValueType::Optional(of) => open(of, input),
        ValueType::Map { .. } | ValueType::Opaque { .. } => {}
    }
}
