//! The builder that all lowerings use: typed nodes, broadcasting, unification of dimensions, contents of small tensors

use super::held::Held;
use crate::options::Activations;
use sardonyx_base::{DType, Dim, Error, HostOp, Result, Tensor, minifloat, packed};
use sardonyx_dialects::interp::symbolic;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Host, Op, Symbol, SymbolKind, TensorType, Value, WindowSpec};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Maximum number of operands of one concat.
const CONCAT_MAX: usize = 64;

/// A graph under construction. The type of each added node is inferred at once, and so are its contents if it is a
/// small integer tensor whose elements are expressions over the symbols.
#[derive(Clone, Default)]
pub struct Builder {
    pub graph: Graph,
    pub(super) contents: Vec<Option<Vec<Dim>>>,
    /// The ONNX node being lowered.
    pub origin: String,
    /// The rank that the model declares for the node's first result.
    pub declared_rank: Option<usize>,
    data_symbols: usize,
    host_groups: usize,
    /// The value in this graph of each ONNX value, by key; `None` for an absent optional value.
    pub scope: HashMap<usize, Option<Value>>,
    /// Functions that are called by host operations of this function, directly or not; each comes before the functions
    /// that it calls.
    pub bodies: Vec<Graph>,
    /// Names of the module's functions.
    pub functions: Rc<RefCell<BTreeSet<String>>>,
    /// Types of the contents of opaque values.
    pub values_held: BTreeMap<Value, Held>,
    /// The elements of those sequences and optionals whose elements are known at compile time.
    pub elements: BTreeMap<Value, Vec<Value>>,
    /// Number of channels of a block in com.microsoft.nchwc, if the caller says.
    pub nchwc_block: Option<i64>,
    /// Type of the operand that codes of weights are multiplied by; if absent, each node says it.
    pub activations: Option<Activations>,
    /// Number of functions inside which this function is nested as a body.
    pub depth: usize,
}

impl Builder {
    /// A builder for a function of a module that has these function names; `depth` as in the field.
    pub fn within(functions: Rc<RefCell<BTreeSet<String>>>, depth: usize) -> Builder {
        Builder { functions, depth, ..Builder::default() }
    }

    pub fn ty(&self, v: Value) -> &TensorType {
        self.graph.ty(v)
    }

    pub fn dims(&self, v: Value) -> Vec<Dim> {
        self.ty(v).dims.clone()
    }

    pub fn rank(&self, v: Value) -> usize {
        self.ty(v).rank()
    }

    pub fn dtype(&self, v: Value) -> DType {
        self.ty(v).dtype
    }

    pub fn error(&self, code: &'static str, message: impl Into<String>) -> Box<Error> {
        Error::user(code, message).node(&self.origin)
    }

    /// The elements as expressions over the symbols, if they are known.
    pub fn contents(&self, v: Value) -> Option<&[Dim]> {
        self.contents[v.index()].as_deref()
    }

    /// The elements as numbers, if all are constant.
    pub fn constants(&self, v: Value) -> Option<Vec<i64>> {
        self.contents(v)?.iter().map(Dim::as_const).collect()
    }

    pub fn add(&mut self, op: Op, args: &[Value]) -> Result<Value> {
        self.add_typed(op, args, None)
    }

    pub fn add_typed(&mut self, op: Op, args: &[Value], ty: Option<TensorType>) -> Result<Value> {
        let origins = if self.origin.is_empty() { vec![] } else { vec![self.origin.clone()] };
        let v = self.graph.add_as(op, args, ty, &origins)?;
        let node = self.graph.node(v);
        let operands: Vec<(&TensorType, Option<&[Dim]>)> =
            args.iter().map(|a| (self.graph.ty(*a), self.contents[a.index()].as_deref())).collect();
        let known = symbolic::contents(&node.op, &node.ty, &operands, &|s| self.graph.symbol_lo(s));
        self.contents.push(known);
        Ok(v)
    }

    // -- constants

    pub fn constant(&mut self, t: Tensor) -> Result<Value> {
        self.add(Op::Const(t), &[])
    }

    /// A constant of the given type and value, repeated over `dims`.
    pub fn splat(&mut self, dtype: DType, value: f64, dims: &[Dim]) -> Result<Value> {
        let scalar = scalar_tensor(dtype, value)
            .ok_or_else(|| self.error("E0107", format!("constants of type {dtype} are not supported")))?;
        let v = self.constant(scalar)?;
        self.broadcast(v, dims)
    }

    /// An i64 vector of expressions.
    pub fn dims_vector(&mut self, values: Vec<Dim>) -> Result<Value> {
        let ty = TensorType::new(DType::I64, vec![Dim::constant(values.len() as i64)]);
        self.add_typed(Op::Dims(values), &[], Some(ty))
    }

    pub fn dims_scalar(&mut self, value: Dim) -> Result<Value> {
        self.add_typed(Op::Dims(vec![value]), &[], Some(TensorType::new(DType::I64, vec![])))
    }

    // -- elementwise

    pub fn map1(&mut self, f: ScalarFn, a: Value) -> Result<Value> {
        self.add(Op::Map(f), &[a])
    }

    /// A scalar function of two values that are broadcast against each other.
    pub fn map2(&mut self, f: ScalarFn, a: Value, b: Value) -> Result<Value> {
        let args = self.broadcast_all(&[a, b])?;
        self.add(Op::Map(f), &args)
    }

    /// A scalar function of a value and a number.
    pub fn map_const(&mut self, f: ScalarFn, a: Value, b: f64) -> Result<Value> {
        let (dtype, dims) = (self.dtype(a), self.dims(a));
        let b = self.splat(dtype, b, &dims)?;
        self.add(Op::Map(f), &[a, b])
    }

    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Result<Value> {
        let args = self.broadcast_all(&[condition, a, b])?;
        self.add(Op::Map(ScalarFn::Select), &args)
    }

    pub fn convert(&mut self, a: Value, dtype: DType) -> Result<Value> {
        if self.dtype(a) == dtype {
            return Ok(a);
        }
        let ty = TensorType::new(dtype, self.dims(a));
        self.add_typed(Op::Convert(Conversion::Value), &[a], Some(ty))
    }

    /// Reinterprets the bits as another type of the same width.
    pub fn reinterpret(&mut self, a: Value, dtype: DType) -> Result<Value> {
        if self.dtype(a) == dtype {
            return Ok(a);
        }
        let ty = TensorType::new(dtype, self.dims(a));
        self.add_typed(Op::Convert(Conversion::Bits), &[a], Some(ty))
    }

    // -- shape motion

    pub fn reshape(&mut self, a: Value, dims: &[Dim]) -> Result<Value> {
        if self.ty(a).dims == dims {
            return Ok(a);
        }
        let ty = TensorType::new(self.dtype(a), dims);
        self.add_typed(Op::Reshape, &[a], Some(ty))
    }

    pub fn transpose(&mut self, a: Value, perm: Vec<usize>) -> Result<Value> {
        if perm.iter().enumerate().all(|(i, &p)| i == p) && perm.len() == self.rank(a) {
            return Ok(a);
        }
        self.add(Op::Transpose { perm }, &[a])
    }

    /// Numpy broadcasting of one value to given dimensions (aligned at the end).
    pub fn broadcast(&mut self, a: Value, dims: &[Dim]) -> Result<Value> {
        let lead = dims.len().checked_sub(self.rank(a)).ok_or_else(|| {
            self.error("E0201", format!("{} has more dimensions than it is broadcast to", self.ty(a)))
        })?;
        let at = (lead..dims.len()).collect();
        self.broadcast_at(a, at, dims)
    }

    /// Dimension i of the operand becomes dimension at[i] of the result.
    pub fn broadcast_at(&mut self, a: Value, at: Vec<usize>, dims: &[Dim]) -> Result<Value> {
        if self.ty(a).dims == dims {
            return Ok(a);
        }
        let ty = TensorType::new(self.dtype(a), dims);
        self.add_typed(Op::Broadcast { dims: at }, &[a], Some(ty))
    }

    /// Numpy broadcasting of several values against each other.
    pub fn broadcast_all(&mut self, values: &[Value]) -> Result<Vec<Value>> {
        let mut values = values.to_vec();
        let rank = values.iter().map(|v| self.rank(*v)).max().unwrap_or(0);
        let mut dims = vec![Dim::constant(1); rank];
        for v in &mut values {
            let lead = rank - self.rank(*v);
            for i in 0..self.rank(*v) {
                // Unification rewrites types, so they are read again each time.
                let (d, so_far) = (self.ty(*v).dims[i].clone(), dims[lead + i].clone());
                if d.is_const(1) || d == so_far {
                    continue;
                }
                if !so_far.is_const(1) {
                    *v = self.agree(*v, i, &so_far)?;
                }
                dims[lead + i] = self.ty(*v).dims[i].clone();
            }
        }
        // A unification may have rewritten what an earlier operand contributed.
        for &v in &values {
            let lead = rank - self.rank(v);
            for (i, d) in self.dims(v).into_iter().enumerate().filter(|(_, d)| !d.is_const(1)) {
                dims[lead + i] = d;
            }
        }
        values.into_iter().map(|v| self.broadcast(v, &dims)).collect()
    }

    // -- other operations of the basis

    /// Reduces over sorted axes; if `keep`, they stay as dimensions of 1.
    pub fn reduce(&mut self, f: ReduceFn, a: Value, axes: &[usize], keep: bool) -> Result<Value> {
        let mut dims = self.dims(a);
        let reduced = match axes {
            [] => a,
            axes => self.add(Op::Reduce { f, axes: axes.to_vec() }, &[a])?,
        };
        axes.iter().for_each(|&i| dims[i] = Dim::constant(1));
        if keep { self.reshape(reduced, &dims) } else { Ok(reduced) }
    }

    pub fn contract(&mut self, spec: &str, mut a: Value, mut b: Value) -> Result<Value> {
        let spec = ContractSpec::parse(spec).ok_or_else(|| Error::defect(format!("`{spec}` is no contraction")))?;
        if (spec.left.len(), spec.right.len()) != (self.rank(a), self.rank(b)) {
            let (a, b) = (self.ty(a), self.ty(b));
            return Err(self.error("E0201", format!("{a} and {b} do not have the ranks of a product {spec}")));
        }
        for (i, c) in spec.left.iter().enumerate() {
            if let Some(j) = spec.right.iter().position(|d| d == c) {
                (a, b) = self.agree_both((a, i), (b, j))?;
            }
        }
        self.add(Op::Contract(spec), &[a, b])
    }

    /// The sub-range of one axis, `count` elements from `start` by `step`.
    pub fn slice_axis(&mut self, a: Value, axis: usize, start: Dim, step: i64, count: Dim) -> Result<Value> {
        let mut ty = self.ty(a).clone();
        let mut starts = vec![Dim::constant(0); ty.rank()];
        let mut steps = vec![1; ty.rank()];
        (starts[axis], steps[axis], ty.dims[axis]) = (start, step, count);
        if ty == *self.ty(a) && step == 1 {
            return Ok(a);
        }
        self.add_typed(Op::Slice { starts, steps }, &[a], Some(ty))
    }

    /// Concatenates one or more values along an axis. More than `CONCAT_MAX` values are concatenated in groups, each in
    /// a kernel of its own: a kernel tests for each element which operand has it, and a device limits the number of
    /// operands.
    pub fn concat(&mut self, axis: usize, values: &[Value]) -> Result<Value> {
        if let [one] = values {
            return Ok(*one);
        }
        if values.len() <= CONCAT_MAX {
            return self.add(Op::Concat { axis }, values);
        }
        let parts = values.chunks(CONCAT_MAX).map(|part| self.concat(axis, part));
        let parts = parts.collect::<Result<Vec<Value>>>()?;
        self.concat(axis, &parts)
    }

    /// The windows of one axis at `places` positions; the offsets within a window are a new last dimension.
    pub fn window(&mut self, a: Value, window: WindowSpec, places: Dim) -> Result<Value> {
        let mut ty = self.ty(a).clone();
        ty.dims[window.axis] = places;
        ty.dims.push(window.size.clone());
        self.add_typed(Op::Window(window), &[a], Some(ty))
    }

    /// [.., n, ..]  =>  [.., parts, n / parts, ..]; the call must provide an n that `parts` divides.
    pub fn split_axis(&mut self, a: Value, axis: usize, parts: Dim) -> Result<Value> {
        let each = self.dims(a)[axis].floordiv(&parts);
        self.split(a, axis, parts, each)
    }

    /// [.., n, ..]  =>  [.., n / each, each, ..]; the call must provide an n that `each` divides.
    pub fn split_inner(&mut self, a: Value, axis: usize, each: Dim) -> Result<Value> {
        let parts = self.dims(a)[axis].floordiv(&each);
        self.split(a, axis, parts, each)
    }

    fn split(&mut self, a: Value, axis: usize, parts: Dim, each: Dim) -> Result<Value> {
        let mut dims = self.dims(a);
        let n = dims[axis].clone();
        let whole = each.clone() * parts.clone();
        let mut a = a;
        if whole != n {
            if n.as_const().is_some() && whole.as_const().is_some() {
                return Err(self.error("E0201", format!("{n} cannot be divided evenly into {parts} times {each}")));
            }
            // The type of `a` then states that the axis divides evenly.
            a = self.take_as(a, axis, &whole)?;
        }
        dims[axis] = parts;
        dims.insert(axis + 1, each);
        self.reshape(a, &dims)
    }

    /// Makes the length of an axis equal to `n`: everywhere if that is possible, else only of this value. The latter
    /// happens for 2 * (n ceildiv 4) and n ceildiv 2, for example: no substitution of n expresses when they are equal.
    pub fn agree(&mut self, v: Value, axis: usize, n: &Dim) -> Result<Value> {
        let own = self.dims(v)[axis].clone();
        match self.decide(&own, n)? {
            true => Ok(v),
            false => self.take_as(v, axis, n),
        }
    }

    /// Makes the lengths of two axes equal as [`agree`](Builder::agree) does; a constant length is kept.
    pub fn agree_both(&mut self, (a, i): (Value, usize), (b, j): (Value, usize)) -> Result<(Value, Value)> {
        let (own, other) = (self.dims(a)[i].clone(), self.dims(b)[j].clone());
        match (self.decide(&own, &other)?, own.as_const()) {
            (true, _) => Ok((a, b)),
            (false, Some(_)) => Ok((a, self.take_as(b, j, &own)?)),
            (false, None) => Ok((self.take_as(a, i, &other)?, b)),
        }
    }

    /// The same value with the length of an axis written as `n`; the call checks that they are equal.
    pub fn take_as(&mut self, a: Value, axis: usize, n: &Dim) -> Result<Value> {
        let own = self.dims(a)[axis].clone();
        if own == *n {
            return Ok(a);
        }
        self.add_check(own, n.clone());
        self.slice_axis(a, axis, Dim::constant(0), 1, n.clone())
    }

    /// Surrounds a tensor with elements of one value (of rank 0); a negative count removes elements.
    pub fn pad(&mut self, a: Value, value: Value, low: &[Dim], high: &[Dim]) -> Result<Value> {
        if low.iter().chain(high).all(|n| n.is_const(0)) {
            return Ok(a);
        }
        let mut ty = self.ty(a).clone();
        for (d, (low, high)) in ty.dims.iter_mut().zip(low.iter().zip(high)) {
            *d = d.clone() + low.clone() + high.clone();
        }
        self.add_typed(Op::Pad { low: low.to_vec() }, &[a, value], Some(ty))
    }

    /// The elements of a vector as dimensions. Its length, which may not be known, must be `count`.
    pub fn read_count(&mut self, vector: Value, count: usize) -> Result<Vec<Dim>> {
        let (own, count) = (self.ty(vector).elements(), Dim::constant(count as i64));
        self.unify(&own, &count)?;
        self.read_dims(vector)
    }

    /// Expands an axis with 1 or `n` elements to `n`. If the length is not known at compile time, the elements are
    /// gathered.
    pub fn one_or_all(&mut self, x: Value, axis: usize, n: &Dim) -> Result<Value> {
        let mut dims = self.dims(x);
        let own = std::mem::replace(&mut dims[axis], n.clone());
        if own.is_const(1) || own == *n {
            return self.broadcast(x, &dims);
        }
        if own.as_const().is_some() {
            self.unify(&own, n)?;
            return Ok(x);
        }
        let one = Dim::constant(1);
        self.add_check((own.clone() - one.clone()) * (own.clone() - n.clone()), Dim::constant(0));
        let ty = TensorType::new(DType::I64, vec![n.clone()]);
        let at = self.add_typed(Op::Iota { axis: 0 }, &[], Some(ty))?;
        let last = self.dims_scalar(own - one)?;
        let at = self.map2(ScalarFn::Min, at, last)?;
        self.add(Op::Gather { axis }, &[x, at])
    }

    /// A vector, which must have one element, as a scalar; other values are returned as they are.
    pub fn single(&mut self, v: Value) -> Result<Value> {
        if self.rank(v) != 1 {
            return Ok(v);
        }
        let own = self.dims(v)[0].clone();
        self.unify(&own, &Dim::constant(1))?;
        self.reshape(v, &[])
    }

    /// A vector's elements as dimensions; unknown ones become data-dependent symbols.
    pub fn read_dims(&mut self, vector: Value) -> Result<Vec<Dim>> {
        if let Some(known) = self.contents(vector) {
            return Ok(known.to_vec());
        }
        let elements = self.ty(vector).elements();
        let count = match (elements.as_const(), self.declared_rank) {
            (Some(count), _) => count,
            // The call has to match the rank that the model declares for the result.
            (None, Some(rank)) => return self.read_count(vector, rank),
            (None, None) => {
                let message = "a shape has a rank that is not known when the model is compiled";
                return Err(self.error("E0203", message).help("declare the shape of the model's output"));
            }
        };
        let flat = self.reshape(vector, &[Dim::constant(count)])?;
        (0..count).map(|i| self.read_dim(flat, i)).collect()
    }

    fn read_dim(&mut self, vector: Value, i: i64) -> Result<Dim> {
        let one = self.slice_axis(vector, 0, Dim::constant(i), 1, Dim::constant(1))?;
        let one = self.convert(one, DType::I64)?;
        if let Some([known]) = self.contents(one) {
            return Ok(known.clone());
        }
        let symbol = self.data_symbol();
        self.add(Op::Bind { symbol: symbol.clone() }, &[one])?;
        Ok(Dim::symbol(&symbol))
    }

    // -- host operations

    /// A new symbol whose value is read from data.
    pub fn data_symbol(&mut self) -> String {
        let mut symbol = format!("data{}", self.data_symbols);
        while self.graph.symbols.contains_key(&symbol) {
            self.data_symbols += 1;
            symbol = format!("data{}", self.data_symbols);
        }
        self.data_symbols += 1;
        self.graph.symbols.insert(symbol.clone(), Symbol { kind: SymbolKind::Data, lo: 0, hi: None });
        symbol
    }

    /// The results of a host operation, with the given types. Each symbol in `fresh` (from [`data_symbol`]) is bound by
    /// the first dimension that consists of it. All other dimensions are requirements on the operation's results.
    ///
    /// [`data_symbol`]: Builder::data_symbol
    pub fn host(&mut self, op: HostOp, args: &[Value], types: &[TensorType], fresh: &[String]) -> Result<Vec<Value>> {
        self.host_calling(op, vec![], args, types, fresh)
    }

    /// As [`host`](Builder::host), for an operation that calls functions.
    pub fn host_calling(
        &mut self,
        op: HostOp,
        bodies: Vec<String>,
        args: &[Value],
        types: &[TensorType],
        fresh: &[String],
    ) -> Result<Vec<Value>> {
        let group = self.host_groups;
        self.host_groups += 1;
        let mut open: Vec<&String> = fresh.iter().collect();
        let mut out = vec![];
        for (result, ty) in types.iter().enumerate() {
            let mut binds = vec![];
            for (axis, dim) in ty.dims.iter().enumerate() {
                if let Some(at) = open.iter().position(|s| dim.as_name() == Some(s.as_str())) {
                    binds.push((axis, open.remove(at).clone()));
                }
            }
            let host = Host { op: op.clone(), bodies: bodies.clone(), group, result, binds };
            out.push(self.add_typed(Op::Host(Box::new(host)), args, Some(ty.clone()))?);
        }
        match open.first() {
            Some(symbol) => Err(Error::defect(format!("`{symbol}` is no dimension of any result of `{op}`"))),
            None => Ok(out),
        }
    }
}

/// A rank-0 tensor; `None` for strings, opaque values and complex numbers.
pub fn scalar_tensor(dtype: DType, value: f64) -> Option<Tensor> {
    Some(match dtype {
        DType::F32 => Tensor::scalar(value as f32),
        DType::F64 => Tensor::scalar(value),
        DType::I64 => Tensor::scalar(value as i64),
        DType::I32 => Tensor::scalar(value as i32),
        DType::I16 => Tensor::scalar(value as i16),
        DType::I8 => Tensor::scalar(value as i8),
        DType::U64 => Tensor::scalar(value as u64),
        DType::U32 => Tensor::scalar(value as u32),
        DType::U16 => Tensor::scalar(value as u16),
        DType::U8 => Tensor::scalar(value as u8),
        DType::Bool => Tensor::scalar(value != 0.0),
        DType::F16 => Tensor::scalar(half::f16::from_f64(value)),
        DType::BF16 => Tensor::scalar(half::bf16::from_f64(value)),
        DType::String | DType::Value | DType::C64 | DType::C128 => return None,
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 | DType::F4E2M1 => {
            let code = minifloat::encode(dtype, minifloat::round(dtype, value))?;
            Tensor::new(dtype, vec![], vec![code as u8].into()).ok()?
        }
        DType::U4 | DType::I4 | DType::U2 | DType::I2 => {
            Tensor::new(dtype, vec![], vec![packed::held(dtype, value as i64 as u8)].into()).ok()?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(t: &str) -> Dim {
        Dim::parse(t).unwrap()
    }

    #[test]
    fn broadcasting_unifies_symbols_but_not_ones() {
        let mut b = Builder::default();
        for (name, dims) in [("x", ["s10", "1", "64"]), ("y", ["s11", "s12", "64"])] {
            let ty = TensorType::new(DType::F32, dims.map(dim).to_vec());
            b.add_typed(Op::Input { name: name.into(), parts: vec![] }, &[], Some(ty)).unwrap();
        }
        let sum = b.map2(ScalarFn::Add, Value(0), Value(1)).unwrap();
        let batch = b.dims(Value(0))[0].clone();
        assert_eq!(b.dims(sum), [batch.clone(), dim("s12"), dim("64")]);
        assert_eq!(b.dims(Value(1))[0], batch);
    }
}
