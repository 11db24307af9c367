//! carried values and a body  =>  a loop that the host runs, or copies of the body if the iterations are few
//!
//! ```text
//! let (last, all) = b.scan(&n, &[h], &[(x, 1)], &[w], &mut |b, turn| {
//!     let h = cell(b, turn.slices[0], turn.carried[0], turn.captured[0])?;
//!     Ok((vec![h], vec![h]))
//! })?;
//! ```

use super::builder::Builder;
use super::held::Held;
use super::outline::{Outlined, Param, merged};
use sardonyx_base::{DType, Dim, Error, HostOp, Result, Tensor};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

/// Loops of at most this many iterations are unrolled, as long as the copies have at most `COPIED_NODES_MAX` nodes.
const COPIES_MAX: i64 = 8;
const COPIED_NODES_MAX: usize = 512;

/// The state at the start of an iteration, as values of the function that contains the iteration.
pub struct Turn<'a> {
    /// i64, from 0
    pub index: Value,
    /// bool: the condition that the previous iteration computed, or the initial one
    pub goes_on: Value,
    pub carried: &'a [Value],
    /// Set by [`Builder::scan`]: the slices for this iteration, without the axis.
    pub slices: &'a [Value],
    pub captured: &'a [Value],
}

/// The results of an iteration.
pub struct Turned {
    /// bool: whether there is another iteration.
    pub goes_on: Value,
    pub carried: Vec<Value>,
    pub stacked: Vec<Value>,
}

/// A loop of at most `trips` iterations, which ends when the condition becomes false.
pub struct Loop<'a> {
    /// i64 scalar
    pub trips: Value,
    /// bool scalar
    pub start: Value,
    pub carried: &'a [Value],
    pub captured: &'a [Value],
}

pub type Body<'a> = &'a mut dyn FnMut(&mut Builder, Turn) -> Result<Turned>;
pub type ScanBody<'a> = &'a mut dyn FnMut(&mut Builder, Turn) -> Result<(Vec<Value>, Vec<Value>)>;

impl Builder {
    /// Runs an iteration for each position i < n: `body` gets the carried values, slice i of each scanned value along
    /// its axis, and the captured values, all as values of the function that it builds into (which need not be this
    /// one); it returns the next carried values and those to stack. Results: the values that the last iteration carried
    /// (the initial ones if n is 0), and the stacked values along a new first axis of n. The body may use values of the
    /// caller only as captured ones; constants are best created in it. Carried values keep their element type and rank.
    pub fn scan(
        &mut self,
        n: &Dim,
        carried: &[Value],
        scanned: &[(Value, usize)],
        captured: &[Value],
        body: ScanBody,
    ) -> Result<(Vec<Value>, Vec<Value>)> {
        let (trips, start) = (self.dims_scalar(n.clone())?, self.constant(truth())?);
        let captured: Vec<Value> = scanned.iter().map(|(v, _)| *v).chain(captured.iter().copied()).collect();
        let turns = Loop { trips, start, carried, captured: &captured };
        self.iterate(&turns, &mut |b, turn| {
            let (whole, captured) = turn.captured.split_at(scanned.len());
            let mut slices = vec![];
            for (&v, &(_, axis)) in whole.iter().zip(scanned) {
                slices.push(b.add(Op::Gather { axis }, &[v, turn.index])?);
            }
            let goes_on = b.constant(truth())?;
            let (carried, stacked) = body(b, Turn { slices: &slices, captured, ..turn })?;
            Ok(Turned { goes_on, carried, stacked })
        })
    }

    /// Runs a loop. Returns the carried values after the last iteration, and the stacked ones.
    pub fn iterate(&mut self, turns: &Loop, body: Body) -> Result<(Vec<Value>, Vec<Value>)> {
        let trips = self.contents(turns.trips).and_then(|c| c.first().cloned());
        let starts = self.constants(turns.start) == Some(vec![1]);
        if let Some(n) = trips.as_ref().and_then(Dim::as_const).filter(|n| starts && (1..=COPIES_MAX).contains(n))
            && let Some(done) = self.copies(n, turns, body)?
        {
            return Ok(done);
        }
        let name = self.body_name();
        let outlined = self.settle(&name, turns, body)?;
        self.call(turns, outlined, trips.filter(|_| starts))
    }

    /// Unrolls the loop; returns `None`, and changes nothing, if the body must be a function.
    fn copies(&mut self, n: i64, turns: &Loop, body: Body) -> Result<Option<(Vec<Value>, Vec<Value>)>> {
        let before = self.clone();
        let (mut carried, mut stacks) = (turns.carried.to_vec(), vec![]);
        for i in 0..n {
            let (index, goes_on) = (self.dims_scalar(Dim::constant(i))?, self.constant(truth())?);
            let turn = Turn { index, goes_on, carried: &carried, slices: &[], captured: turns.captured };
            let done = body(self, turn)?;
            let n_new = self.graph.nodes.len() - before.graph.nodes.len();
            let more = self.constants(done.goes_on);
            let few = n_new.saturating_mul(n as usize) <= COPIED_NODES_MAX * (i as usize + 1);
            if !few || more.is_none() {
                *self = before;
                return Ok(None);
            }
            carried = done.carried;
            stacks.resize(done.stacked.len(), vec![]);
            for (stack, v) in stacks.iter_mut().zip(done.stacked) {
                let dims: Vec<Dim> = [Dim::constant(1)].into_iter().chain(self.dims(v)).collect();
                stack.push(self.reshape(v, &dims)?);
            }
            if more == Some(vec![0]) {
                break;
            }
        }
        let mut stacked = vec![];
        for parts in stacks {
            // Shapes that change between iterations are an error in the model, reported as for a loop.
            let first = self.dims(parts[0])[1..].to_vec();
            for &part in &parts[1..] {
                for (i, d) in first.iter().enumerate() {
                    let own = self.dims(part)[i + 1].clone();
                    self.unify(d, &own)?;
                }
            }
            stacked.push(self.concat(0, &parts)?);
        }
        Ok(Some((carried, stacked)))
    }

    /// Outlines the body with dimensions that hold in every iteration: a dimension that an iteration changes becomes
    /// unknown (open).
    fn settle(&mut self, name: &str, turns: &Loop, body: Body) -> Result<Outlined> {
        let carried: Vec<TensorType> = turns.carried.iter().map(|v| self.ty(*v).clone()).collect();
        let mut open: Vec<Vec<bool>> = carried.iter().map(|ty| vec![false; ty.rank()]).collect();
        let mut held: Vec<Held> = turns.carried.iter().map(|v| self.held(*v)).collect();
        loop {
            let mut params = vec![Param::scalar(DType::I64), Param::scalar(DType::Bool)];
            params.extend(carried.iter().zip(&open).zip(&held).map(|((ty, open), held)| Param {
                ty: ty.clone(),
                open: open.clone(),
                held: held.clone(),
            }));
            let outlined = self.outline(name, &params, turns.captured, &mut |b, given, captured| {
                let carried = &given[2..];
                let turn = Turn { index: given[0], goes_on: given[1], carried, slices: &[], captured };
                let done = body(b, turn)?;
                if done.carried.len() != carried.len() {
                    return Err(b.error("E0201", format!("a turn carries on {} values", done.carried.len())));
                }
                let goes_on = b.reshape(done.goes_on, &[])?;
                Ok([vec![goes_on], done.carried, done.stacked].concat())
            });
            let outlined = match outlined {
                Ok(outlined) => outlined,
                // A size that only the first iteration has may have been assumed for all.
                Err(_) if open.iter().flatten().any(|o| !o) => {
                    open.iter_mut().flatten().for_each(|o| *o = true);
                    continue;
                }
                Err(e) => return Err(e),
            };
            let mut changed = false;
            for (held, new) in held.iter_mut().zip(&outlined.held[1..]).filter(|(held, _)| !held.is_tensor()) {
                let both = held.grown(new);
                changed |= both != *held;
                *held = both;
            }
            for (i, open) in open.iter_mut().enumerate() {
                let (was, is) = (outlined.ty(outlined.params[i + 2]), outlined.ty(outlined.outputs[i + 1]));
                if was.dtype != is.dtype || was.rank() != is.rank() {
                    let message = format!("a turn makes {is} of {was}, but carries on type and rank");
                    return Err(self.error("E0203", message));
                }
                for (axis, open) in open.iter_mut().enumerate().filter(|(_, open)| !**open) {
                    *open = was.dims[axis] != is.dims[axis];
                    changed |= *open;
                }
            }
            if !changed {
                return Ok(outlined);
            }
        }
    }

    fn call(&mut self, turns: &Loop, body: Outlined, trips: Option<Dim>) -> Result<(Vec<Value>, Vec<Value>)> {
        let n = turns.carried.len();
        let never_ends = body.constants[0] == Some(vec![1]) || body.outputs[0] == body.params[1];
        let mut fresh = vec![];
        let mut types = vec![];
        for (i, &v) in turns.carried.iter().enumerate() {
            let ty = self.ty(v).clone();
            let (was, is) = (body.ty(body.params[i + 2]).clone(), body.ty(body.outputs[i + 1]).clone());
            let mut dims = vec![];
            for (axis, own) in ty.dims.iter().enumerate() {
                let kept = was.dims[axis] == is.dims[axis] && body.outside(&was.dims[axis]).is_some();
                dims.push(merged(self, vec![kept.then(|| own.clone())], &mut fresh));
            }
            types.push(TensorType::new(ty.dtype, dims));
        }
        let count = trips.filter(|_| never_ends).map(|n| match n.lower_bound(&|s| self.graph.symbol_lo(s)) {
            Some(0..) => n,
            Some(_) | None => n.maximum(&Dim::constant(0)),
        });
        let stacked = &body.outputs[n + 1..];
        let count = if stacked.is_empty() { None } else { Some(merged(self, vec![count], &mut fresh)) };
        for &v in stacked {
            let mut dims: Vec<Dim> = count.iter().cloned().collect();
            for d in &body.ty(v).dims {
                dims.push(merged(self, vec![body.outside(d)], &mut fresh));
            }
            types.push(TensorType::new(body.ty(v).dtype, dims));
        }
        let args = [vec![turns.trips, turns.start], turns.carried.to_vec(), body.captured.clone()].concat();
        let held = body.held[1..].to_vec();
        let body = self.adopt(body);
        let mut results = self.host_calling(HostOp::Loop { n_carried: n }, vec![body], &args, &types, &fresh)?;
        results.iter().zip(held).for_each(|(v, held)| self.hold(*v, held));
        match results.len() >= n {
            true => Ok((results.drain(..n).collect(), results)),
            false => Err(Error::defect("a loop has too few results")),
        }
    }
}

pub fn truth() -> Tensor {
    Tensor::from_vec(vec![], vec![true])
}
