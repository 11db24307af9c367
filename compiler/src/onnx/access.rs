//! node.int("axis")  =>  the attribute with the type that the operator needs, `None` if absent, or a diagnostic

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
    /// The name of input `i`, or `None` if it is absent.
    pub fn input(&self, i: usize) -> Option<&str> {
        self.inputs.get(i)?.as_deref()
    }

    /// The name of output `i`, or `None` if it is not requested.
    pub fn output(&self, i: usize) -> Option<&str> {
        self.outputs.get(i)?.as_deref()
    }

    /// The node's subgraphs, in the order of their attributes' names.
    pub fn subgraphs(&self) -> impl Iterator<Item = &Graph> {
        self.attributes.values().flat_map(|a| a.graphs())
    }

    typed! {
        int: Int(v) -> i64 = *v, "int";
        float: Float(v) -> f32 = *v, "float";
        ints: Ints(v) -> &[i64] = v, "list of ints";
        floats: Floats(v) -> &[f32] = v, "list of floats";
        strings: Strings(v) -> &[Vec<u8>] = v, "list of strings";
        tensor: Tensor(v) -> &Tensor = v, "tensor";
        graph: Graph(v) -> &Graph = v, "graph";
        bytes: String(v) -> &[u8] = v, "string";
    }

    /// A string attribute, which has to be valid UTF-8.
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
    /// Element type and shape, if the value is declared as a dense tensor.
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
