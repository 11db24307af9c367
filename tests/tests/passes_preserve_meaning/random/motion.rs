//! random operands  =>  a reshape, slice, gather, concat or pad of them

use super::Builder;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};

impl Builder {
    pub(super) fn reshape(&mut self) -> Option<Value> {
        let x = self.any();
        let mut ty = self.ty(x);
        match self.r.below(4) {
            0 => ty.dims = vec![product(&ty.dims)],
            1 => {
                let at = self.r.below(ty.rank() + 1);
                ty.dims.insert(at, Dim::constant(1));
            }
            2 => ty.dims.retain(|d| !d.is_const(1)),
            _ => {
                let at = ty.dims.iter().position(|d| d.is_const(6))?;
                ty.dims.splice(at..=at, [Dim::constant(2), Dim::constant(3)]);
            }
        }
        self.add(Op::Reshape, &[x], Some(ty))
    }

    pub(super) fn slice(&mut self) -> Option<Value> {
        let x = self.any();
        let mut ty = self.ty(x);
        let axis = self.r.below(ty.rank().max(1));
        let extent = ty.dims.get(axis)?.clone();
        let mut starts = vec![Dim::constant(0); ty.rank()];
        let mut steps = vec![1; ty.rank()];
        match extent.as_const() {
            Some(n) if n > 0 => {
                let start = self.r.below(n as usize) as i64;
                starts[axis] = Dim::constant(start);
                ty.dims[axis] = Dim::constant(self.r.below((n - start) as usize + 1) as i64);
            }
            _ if extent == Dim::parse("b + s").ok()? => {
                starts[axis] = Dim::symbol("b");
                ty.dims[axis] = Dim::symbol("s");
            }
            _ => {
                starts[axis] = extent.clone() - Dim::constant(1);
                steps[axis] = -1;
            }
        }
        self.add(Op::Slice { starts, steps }, &[x], Some(ty))
    }

    /// Adds a gather with indices in range: constants, or integers of an existing value modulo the extent. Unless the
    /// extent is a positive constant, the tensor of indices has a dimension of that extent, so that it is empty if the
    /// extent is 0.
    pub(super) fn gather(&mut self) -> Option<Value> {
        let x = self.any();
        let ty = self.ty(x);
        let axis = self.r.below(ty.rank().max(1));
        let extent = ty.dims.get(axis)?.clone();
        let fixed = extent.as_const().filter(|n| *n > 0);
        if let (Some(n), true) = (fixed, self.r.chance(30)) {
            let picks = (0..2).map(|_| self.r.below(n as usize) as i64).collect();
            let indices = self.add(Op::Const(Tensor::from_vec(vec![2], picks)), &[], None)?;
            return self.add(Op::Gather { axis }, &[x, indices], None);
        }
        let fits = |t: &TensorType| t.dtype == DType::I64 && (fixed.is_some() || t.dims.contains(&extent));
        let raw = match self.any_where(fits) {
            Some(v) => v,
            None => {
                let ty = TensorType::new(DType::I64, vec![extent.clone()]);
                self.add(Op::Iota { axis: 0 }, &[], Some(ty))?
            }
        };
        let n = self.add(Op::Dims(vec![extent]), &[], Some(TensorType::new(DType::I64, vec![])))?;
        let n = self.add(Op::Broadcast { dims: vec![] }, &[n], Some(self.ty(raw)))?;
        let indices = self.add(Op::Map(ScalarFn::Rem), &[raw, n], None)?;
        self.add(Op::Gather { axis }, &[x, indices], None)
    }

    pub(super) fn concat(&mut self) -> Option<Value> {
        let x = self.any();
        let ty = self.ty(x);
        let axis = self.r.below(ty.rank().max(1));
        let others = |t: &TensorType| {
            let differs = |i: usize| i != axis && t.dims[i] != ty.dims[i];
            t.dtype == ty.dtype && t.rank() == ty.rank() && !(0..t.rank()).any(differs)
        };
        let mut args = vec![x];
        for _ in 0..self.r.below(3) {
            args.push(self.any_where(others)?);
        }
        self.add(Op::Concat { axis }, &args, None)
    }

    pub(super) fn pad(&mut self) -> Option<Value> {
        let x = self.any();
        let mut ty = self.ty(x);
        let axis = self.r.below(ty.rank().max(1));
        ty.dims.get(axis)?;
        let mut low = vec![Dim::constant(0); ty.rank()];
        let (before, after) = (self.r.below(4) as i64 - 1, self.r.below(3) as i64);
        let total = ty.dims[axis].clone() + Dim::constant(before + after);
        // A negative `before` cuts off elements; the extent of the result must not become negative.
        if before < 0 && total.lower_bound(&|_| 0).is_none_or(|n| n < 0) {
            return None;
        }
        (low[axis], ty.dims[axis]) = (Dim::constant(before), total);
        let value = self.any_where(|t| t.dtype == ty.dtype && t.rank() == 0);
        let value = match value.filter(|_| self.r.chance(50)) {
            Some(v) => v,
            None => {
                let t = super::tensor(&mut self.r, ty.dtype, vec![]);
                self.add(Op::Const(t), &[], None)?
            }
        };
        self.add(Op::Pad { low }, &[x, value], Some(ty))
    }
}
