//! map, convert, reduce …  =>  new nodes of a graph, all with the same ONNX origins

use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Op, TensorType, Value};

pub struct Builder<'a> {
    pub graph: &'a mut Graph,
    pub origins: &'a [String],
}

impl Builder<'_> {
    pub fn add(&mut self, op: Op, args: &[Value], ty: Option<TensorType>) -> Result<Value> {
        self.graph.add_as(op, args, ty, self.origins)
    }

    pub fn map(&mut self, f: ScalarFn, args: &[Value]) -> Result<Value> {
        self.add(Op::Map(f), args, None)
    }

    /// Converts by value, with rounding; returns `x` itself if `x` has this type already.
    pub fn convert(&mut self, x: Value, dtype: DType) -> Result<Value> {
        if self.graph.ty(x).dtype == dtype {
            return Ok(x);
        }
        self.converted(x, dtype, Conversion::Value)
    }

    /// Reinterprets the bits as another type.
    pub fn bits(&mut self, x: Value, dtype: DType) -> Result<Value> {
        self.converted(x, dtype, Conversion::Bits)
    }

    fn converted(&mut self, x: Value, dtype: DType, how: Conversion) -> Result<Value> {
        let ty = TensorType::new(dtype, self.graph.ty(x).dims.clone());
        self.add(Op::Convert(how), &[x], Some(ty))
    }

    /// Broadcasts a number to the shape of `like`.
    pub fn number(&mut self, x: f32, like: Value) -> Result<Value> {
        self.everywhere(Tensor::scalar(x), like)
    }

    pub fn integer(&mut self, x: i32, like: Value) -> Result<Value> {
        self.everywhere(Tensor::scalar(x), like)
    }

    fn everywhere(&mut self, x: Tensor, like: Value) -> Result<Value> {
        let dtype = x.dtype();
        let scalar = self.add(Op::Const(x), &[], None)?;
        let dims: Vec<Dim> = self.graph.ty(like).dims.clone();
        match dims.is_empty() {
            true => Ok(scalar),
            false => self.add(Op::Broadcast { dims: vec![] }, &[scalar], Some(TensorType::new(dtype, dims))),
        }
    }
}
