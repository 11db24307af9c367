//! node.int("axis")  =>  the attribute's value as an int, `None` if the node lacks it, or E0106 if it has another type

use super::model::{Attribute, DimSpec, Graph, Node, ValueInfo, ValueType};
use sardonyx_base::{DType, Error, Result, Tensor};

macro_rules! typed {
    ($($(#[$doc:meta])* $name:ident: $variant:ident($value:ident) -> $ty:ty = $out:expr, $kind:literal;)*) => { $(
        $(#[$doc])*
        pub fn $name(&self, name: &str) -> Result<Option<$ty>> {
            match self.attributes.get(name) {
                None => Ok(None),
                Some(Attribute::$variant($value)) => Ok(Some($out)),
                Some(other) => Err(self.wrong_kind(name, other, $kind)),
            }
        }
    )* };
}

impl Node {
    /// Returns the name of input `i`; `None` if the node leaves this input out.
    pub fn input(&self, i: usize) -> Option<&str> {
        self.inputs.get(i)?.as_deref()
    }

    /// Returns the name of output `i`; `None` if the node leaves this output out.
    pub fn output(&self, i: usize) -> Option<&str> {
        self.outputs.get(i)?.as_deref()
    }

    /// Returns the graphs in the node's attributes, in the order of the attributes' names.
    pub fn subgraphs(&self) -> impl Iterator<Item = &Graph> {
        self.attributes.values().flat_map(|a| a.graphs())
    }

    typed! {
        /// Returns the attribute `name`, an `int`. Errors: E0106 if it has another type.
        int: Int(v) -> i64 = *v, "int";
        /// Returns the attribute `name`, a `float`. Errors: E0106 if it has another type.
        float: Float(v) -> f32 = *v, "float";
        /// Returns the attribute `name`, a list of ints. Errors: E0106 if it has another type.
        ints: Ints(v) -> &[i64] = v, "list of ints";
        /// Returns the attribute `name`, a list of floats. Errors: E0106 if it has another type.
        floats: Floats(v) -> &[f32] = v, "list of floats";
        /// Returns the attribute `name`, a list of strings, as bytes. Errors: E0106 if it has another type.
        strings: Strings(v) -> &[Vec<u8>] = v, "list of strings";
        /// Returns the attribute `name`, a tensor. Errors: E0106 if it has another type.
        tensor: Tensor(v) -> &Tensor = v, "tensor";
        /// Returns the attribute `name`, a graph. Errors: E0106 if it has another type.
        graph: Graph(v) -> &Graph = v, "graph";
        /// Returns the attribute `name`, a string, as bytes. Errors: E0106 if it has another type.
        bytes: String(v) -> &[u8] = v, "string";
    }

    /// Returns the attribute `name`, a string. Errors: E0106 if it has another type or is not valid UTF-8.
    pub fn string(&self, name: &str) -> Result<Option<&str>> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        let text = std::str::from_utf8(bytes);
        text.map(Some).map_err(|_| {
            Error::user("E0106", format!("attribute `{name}` of `{}` is not valid UTF-8", self.op_type))
                .node(&self.name)
        })
    }

    fn wrong_kind(&self, name: &str, found: &Attribute, wanted: &str) -> Box<Error> {
        let message = format!("attribute `{name}` of `{}` has the type {}, not {wanted}", self.op_type, found.kind());
        Error::user("E0106", message).node(&self.name).help(format!(
            "the definition of `{}` in opset {} says which type the attribute has",
            self.op_type, self.opset
        ))
    }
}

impl ValueInfo {
    /// Returns the element type and, if declared, the shape; `None` unless the value is declared as a dense tensor.
    pub fn tensor(&self) -> Option<(DType, Option<&[DimSpec]>)> {
        match self.ty.as_ref()? {
            ValueType::Tensor { dtype, dims } => Some((*dtype, dims.as_deref())),
            ValueType::SparseTensor { .. }
            | ValueType::Sequence(_)
            | ValueType::Optional(_)
            | ValueType::Map { .. }
            | ValueType::Opaque { .. } => None,
        }
    }
}
