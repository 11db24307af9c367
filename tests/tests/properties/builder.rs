//! element type, dimensions  =>  a value with them: an input, a parameter, a constant, or a movement of other values
//!
//! Programs are built backward from their result, so that every operation fits its consumer.

use super::random::{Random, Values, tensor};
use super::subject::{Move, Subject};
use sardonyx::import::ParamStore;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Op, Symbol, SymbolKind, TensorType, Value, WindowSpec};
use std::collections::BTreeMap;

/// Maximum number of elements of a value.
const ELEMENTS_MAX: i64 = 2000;
const RANK_MAX: usize = 6;

/// The role of a value that is yet to be built, with the number of operations left to add.
#[derive(Clone, Copy)]
pub enum Rest {
    /// This many operations lie between this value and the operation under test.
    Subject(usize),
    /// At most this many movements may produce it.
    Operand(usize),
}

pub struct Builder {
    pub r: Random,
    pub graph: Graph,
    pub params: ParamStore,
    pub inputs: Vec<(String, Tensor)>,
    pub subject: Subject,
    /// Kind of the values in inputs, parameters and constants.
    pub values: Values,
    sizes: BTreeMap<String, i64>,
    /// Whether dimensions may be 0, and whether they may be symbols.
    zeros: bool,
    symbols: bool,
}

pub fn c(n: i64) -> Dim {
    Dim::constant(n)
}

impl Builder {
    pub fn new(mut r: Random, name: &str, subject: Subject, values: Values) -> Builder {
        let graph = Graph { name: name.into(), ..Graph::default() };
        let (zeros, symbols) = (r.chance(15), r.chance(35));
        let (params, inputs, sizes) = (ParamStore::new(), vec![], BTreeMap::new());
        Builder { r, graph, params, inputs, subject, values, sizes, zeros, symbols }
    }

    pub fn size(&self, d: &Dim) -> i64 {
        d.eval_named(&|name| self.sizes.get(name).copied()).expect("every symbol has a size")
    }

    fn sizes(&self, dims: &[Dim]) -> Vec<usize> {
        dims.iter().map(|d| self.size(d) as usize).collect()
    }

    /// A new symbol that has this size in the call. Its range starts at 0 and has no upper end.
    pub fn symbol(&mut self, name: &str, size: i64) -> Dim {
        self.sizes.insert(name.into(), size);
        self.graph.symbols.insert(name.into(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
        Dim::symbol(name)
    }

    pub fn extent(&mut self) -> Dim {
        let n = match self.r.below(10) {
            _ if self.zeros && self.r.chance(30) => 0,
            0..3 => 1,
            3..8 => self.r.between(2, 5),
            8 => self.r.between(6, 9),
            _ => self.r.between(15, 35),
        };
        if !self.symbols || self.r.chance(50) {
            return c(n);
        }
        let name = self.r.pick(&["a", "b", "c"]);
        if self.sizes.contains_key(name) { Dim::symbol(name) } else { self.symbol(name, n) }
    }

    pub fn dims(&mut self, rank: usize) -> Vec<Dim> {
        (0..rank).map(|_| self.extent()).collect()
    }

    /// Adds a node. Returns `None` if the node is invalid or too large; a new program is then drawn.
    pub fn add(&mut self, op: Op, args: &[Value], ty: Option<TensorType>) -> Option<Value> {
        let origins = [format!("/n{}", self.graph.nodes.len())];
        let v = self.graph.add_as(op, args, ty, &origins).ok()?;
        let ty = self.graph.ty(v);
        let fits = ty.dims.iter().all(|d| self.size(d) >= 0) && self.size(&ty.elements()) <= ELEMENTS_MAX;
        (fits && ty.rank() <= RANK_MAX).then_some(v)
    }

    pub fn input(&mut self, dtype: DType, dims: Vec<Dim>, values: Values) -> Option<Value> {
        let sizes = self.checked(&dims)?;
        let name = format!("x{}", self.inputs.len());
        let data = tensor(&mut self.r, dtype, sizes, values);
        self.inputs.push((name.clone(), data));
        self.add(Op::Input { name, parts: vec![] }, &[], Some(TensorType::new(dtype, dims)))
    }

    /// Sizes of the dimensions; `None` if one is negative or a tensor of them would be too large.
    fn checked(&self, dims: &[Dim]) -> Option<Vec<usize>> {
        let sizes: Vec<i64> = dims.iter().map(|d| self.size(d)).collect();
        let fits = sizes.iter().all(|n| *n >= 0) && sizes.iter().product::<i64>() <= ELEMENTS_MAX;
        fits.then(|| self.sizes(dims))
    }

    fn leaf(&mut self, dtype: DType, dims: Vec<Dim>) -> Option<Value> {
        let fixed = dims.iter().all(|d| d.as_const().is_some());
        match self.r.below(10) {
            0 if fixed => self.stored(Move::Param, dtype, dims),
            1 if fixed => self.stored(Move::Const, dtype, dims),
            2 => {
                let one = self.stored(Move::Const, dtype, vec![])?;
                self.add(Op::Broadcast { dims: vec![] }, &[one], Some(TensorType::new(dtype, dims)))
            }
            3 => {
                // Reuses an input of the same type, because rewrite rules look for equal operands.
                let ty = TensorType::new(dtype, dims.clone());
                let values = self.values;
                let same = self.graph.values().find(|(_, n)| n.ty == ty && matches!(n.op, Op::Input { .. }));
                match same.map(|(v, _)| v) {
                    Some(v) => Some(v),
                    None => self.input(dtype, dims, values),
                }
            }
            _ => {
                let values = self.values;
                self.input(dtype, dims, values)
            }
        }
    }

    fn stored(&mut self, how: Move, dtype: DType, dims: Vec<Dim>) -> Option<Value> {
        let sizes = self.checked(&dims)?;
        let (n, values) = (sizes.iter().product::<usize>(), self.values);
        let data = tensor(&mut self.r, dtype, sizes, values);
        if how == Move::Const && n <= 64 {
            return self.add(Op::Const(data), &[], None);
        }
        let name = format!("{}.w{}", self.graph.name, self.params.len());
        self.params.insert(name.clone(), data);
        self.add(Op::Param { name, parts: vec![], bounded: false }, &[], Some(TensorType::new(dtype, dims)))
    }

    pub fn operand(&mut self, dtype: DType, dims: Vec<Dim>, moves: usize) -> Option<Value> {
        if moves == 0 || self.r.chance(60) {
            return self.leaf(dtype, dims);
        }
        let how = self.some_move();
        self.moved(how, dtype, dims, Rest::Operand(moves - 1))
    }

    /// A random movement that has an operand and may occur anywhere.
    pub fn some_move(&mut self) -> Move {
        use Move::*;
        self.r.pick(&[Broadcast, Concat, Gather, Pad, Reshape, Slice, Slice, Transpose, Transpose, Window])
    }

    pub fn made(&mut self, rest: Rest, dtype: DType, dims: Vec<Dim>) -> Option<Value> {
        match rest {
            Rest::Subject(0) => self.subject(dims),
            Rest::Subject(n) => self.wrapped(n, dtype, dims),
            Rest::Operand(moves) => self.operand(dtype, dims, moves),
        }
    }

    /// A movement whose result has these dimensions.
    pub fn moved(&mut self, how: Move, dtype: DType, dims: Vec<Dim>, rest: Rest) -> Option<Value> {
        let ty = TensorType::new(dtype, dims);
        match how {
            Move::Append => self.append(ty),
            Move::Const | Move::Param => self.stored(how, dtype, ty.dims),
            Move::Broadcast => self.broadcast(ty, rest),
            Move::Concat => self.concat(ty, rest),
            Move::Gather => self.gather(ty, rest),
            Move::Pad => self.pad(ty, rest),
            Move::Reshape => self.reshape(ty, rest),
            Move::Slice => self.slice(ty, rest),
            Move::Window => self.window(ty, rest),
            Move::Transpose => {
                let perm = self.r.permutation(ty.rank());
                let mut from = ty.dims.clone();
                perm.iter().zip(&ty.dims).for_each(|(p, d)| from[*p] = d.clone());
                let x = self.made(rest, dtype, from)?;
                self.add(Op::Transpose { perm }, &[x], None)
            }
        }
    }

    fn broadcast(&mut self, ty: TensorType, rest: Rest) -> Option<Value> {
        let dims: Vec<usize> = (0..ty.rank()).filter(|_| self.r.chance(60)).collect();
        let from = dims.iter().map(|&i| if self.r.chance(25) { c(1) } else { ty.dims[i].clone() }).collect();
        let x = self.made(rest, ty.dtype, from)?;
        self.add(Op::Broadcast { dims }, &[x], Some(ty))
    }

    fn reshape(&mut self, ty: TensorType, rest: Rest) -> Option<Value> {
        let (mut from, rank) = (ty.dims.clone(), ty.rank());
        match self.r.below(6) {
            0 => from = vec![product(&ty.dims)],
            1 => from.insert(self.r.below(rank + 1), c(1)),
            2 => from.retain(|d| !d.is_const(1)),
            3 if rank > 1 => {
                let at = self.r.below(rank - 1);
                let next = from.remove(at + 1);
                from[at] = from[at].clone() * next;
            }
            4 => from = self.r.permutation(rank).into_iter().map(|i| ty.dims[i].clone()).collect(),
            _ => {
                let splits = |d: &Dim| d.as_const().and_then(|n| Some((n, (2..n).find(|k| n % k == 0)?)));
                let (at, (n, k)) = from.iter().enumerate().find_map(|(i, d)| Some((i, splits(d)?)))?;
                from.splice(at..=at, [c(k), c(n / k)]);
            }
        }
        let x = self.made(rest, ty.dtype, from)?;
        self.add(Op::Reshape, &[x], Some(ty))
    }

    /// Adds a slice with a random start and step along each dimension, which leaves out elements at the ends of its
    /// operand.
    fn slice(&mut self, ty: TensorType, rest: Rest) -> Option<Value> {
        let (mut starts, mut steps, mut from) = (vec![], vec![], vec![]);
        for d in &ty.dims {
            let step = self.r.pick(&[1, 1, 1, 1, 2, 3, -1, -1, -2, -3]);
            let by: i64 = i64::abs(step);
            // If the dimension is 0, `reach` is -by: the operand gets by - 1 more elements, so that
            // its extent is not negative.
            let least = if d.as_const().is_some_and(|n| n > 0) { 0 } else { by - 1 };
            let (before, after) = (self.r.pick(&[0, 0, 0, 1, 2]), least + self.r.pick(&[0, 0, 0, 1, 2]));
            let reach = (d.clone() - c(1)) * c(by);
            starts.push(if step > 0 { c(before) } else { reach.clone() + c(before) });
            from.push(reach + c(1 + before + after));
            steps.push(step);
        }
        let x = self.made(rest, ty.dtype, from)?;
        self.add(Op::Slice { starts, steps }, &[x], Some(ty))
    }

    fn pad(&mut self, ty: TensorType, rest: Rest) -> Option<Value> {
        let (mut lows, mut from) = (vec![], vec![]);
        for d in &ty.dims {
            let (low, high) = (self.r.pick(&[0, 0, 1, 2, -1, -2]), self.r.pick(&[0, 0, 1, 2, -1, -2]));
            let more = d.as_const().map_or(-(low + high), |n| n - low - high);
            let (low, high) = if more < 0 { (0, 0) } else { (low, high) };
            lows.push(c(low));
            from.push(d.clone() - c(low + high));
        }
        let x = self.made(rest, ty.dtype, from)?;
        let value = self.leaf(ty.dtype, vec![])?;
        self.add(Op::Pad { low: lows }, &[x, value], Some(ty))
    }

    fn window(&mut self, ty: TensorType, rest: Rest) -> Option<Value> {
        let (size, others) = ty.dims.split_last()?;
        let n = size.as_const().filter(|n| *n > 0)?;
        let axis = if others.is_empty() { None } else { Some(self.r.below(others.len())) }?;
        let (stride, dilation) = (self.r.pick(&[1, 1, 2, 3]), self.r.pick(&[1, 1, 2]));
        // If the number of windows may be 0, the operand gets `stride` more elements, so that its extent is not
        // negative.
        let least = if others[axis].as_const().is_some_and(|n| n > 0) { 0 } else { stride };
        let mut from = others.to_vec();
        let over = least + self.r.pick(&[0, 0, 1]);
        from[axis] = (from[axis].clone() - c(1)) * c(stride) + c((n - 1) * dilation + 1 + over);
        let x = self.made(rest, ty.dtype, from)?;
        self.add(Op::Window(WindowSpec { axis, size: size.clone(), stride, dilation }), &[x], Some(ty))
    }

    fn concat(&mut self, ty: TensorType, rest: Rest) -> Option<Value> {
        let axis = if ty.rank() == 0 { None } else { Some(self.r.below(ty.rank())) }?;
        let mut parts = vec![ty.dims[axis].clone()];
        for _ in 0..self.r.below(3) {
            let last = parts.pop()?;
            let first = last.as_const().map_or(0, |n| self.r.between(0, n));
            parts.extend([c(first), last - c(first)]);
        }
        let main = self.r.below(parts.len());
        let mut args = vec![];
        for (i, part) in parts.into_iter().enumerate() {
            let mut dims = ty.dims.clone();
            dims[axis] = part;
            args.push(self.made(if i == main { rest } else { Rest::Operand(1) }, ty.dtype, dims)?);
        }
        self.add(Op::Concat { axis }, &args, None)
    }

    /// Appends a value to an input (the past), whose length along the axis is a new symbol or a number.
    fn append(&mut self, mut ty: TensorType) -> Option<Value> {
        let axis = if ty.rank() == 0 { None } else { Some(self.r.below(ty.rank())) }?;
        let (n, added) = (self.r.between(0, 4), self.extent());
        let past = if self.r.chance(60) { self.symbol("past", n) } else { c(n) };
        ty.dims[axis] = past;
        let values = self.values;
        let past = self.input(ty.dtype, ty.dims.clone(), values)?;
        ty.dims[axis] = added;
        let mut added = self.input(ty.dtype, ty.dims.clone(), values)?;
        if self.r.chance(50) {
            let perm = (0..ty.rank()).rev().collect::<Vec<_>>();
            added = self.add(Op::Transpose { perm: perm.clone() }, &[added], None)?;
            added = self.add(Op::Transpose { perm }, &[added], None)?;
        }
        self.add(Op::Append { axis }, &[past, added], None)
    }

    /// Adds a gather: up to two neighbouring dimensions of the result are the dimensions of the indices.
    fn gather(&mut self, ty: TensorType, rest: Rest) -> Option<Value> {
        let axis = self.r.below(ty.rank() + 1);
        let until = axis + self.r.below((ty.rank() - axis + 1).min(3));
        let picks = ty.dims[axis..until].to_vec();
        let none = self.sizes(&picks).contains(&0);
        let extent = self.extent();
        if self.size(&extent) == 0 && !none {
            return None;
        }
        let mut from = ty.dims.clone();
        from.splice(axis..until, [extent.clone()]);
        let data = self.made(rest, ty.dtype, from)?;
        let indices = self.indices(picks, &extent)?;
        self.add(Op::Gather { axis }, &[data, indices], None)
    }

    fn indices(&mut self, dims: Vec<Dim>, extent: &Dim) -> Option<Value> {
        let (n, ty) = (self.size(extent), TensorType::new(DType::I64, dims));
        match self.r.below(4) {
            0 if ty.dims.iter().all(|d| d.as_const().is_some()) => {
                let sizes = self.checked(&ty.dims)?;
                let data = tensor(&mut self.r, DType::I64, sizes, Values::Below(n));
                self.add(Op::Const(data), &[], None)
            }
            1 if ty.rank() > 0 => {
                let axis = self.r.below(ty.rank());
                let places = self.add(Op::Iota { axis }, &[], Some(ty.clone()))?;
                let n = self.add(Op::Dims(vec![extent.clone()]), &[], Some(TensorType::new(DType::I64, vec![])))?;
                let n = self.add(Op::Broadcast { dims: vec![] }, &[n], Some(ty))?;
                self.add(Op::Map(ScalarFn::Rem), &[places, n], None)
            }
            2 => {
                let narrow = self.input(DType::U8, ty.dims.clone(), Values::Below(n))?;
                self.add(Op::Convert(Conversion::Value), &[narrow], Some(ty))
            }
            _ => self.input(DType::I64, ty.dims, Values::Below(n)),
        }
    }
}
