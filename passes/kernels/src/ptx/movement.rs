//! a form, the parameters of a launch  =>  sectors of 32 bytes per buffer: what is requested, and what must be moved
//!
//! *Scheduled* traffic is what the threads' instructions request: the distinct sectors that the lanes of each warp
//! instruction touch, summed over the launch. *Algebraic* traffic is the number of distinct sectors of a buffer that
//! the kernel touches at all, a lower bound for every form. Both assume that buffers are aligned to sectors.

use crate::def::*;
use crate::scalar;
use sardonyx_base::Dim;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};

/// Bytes of a sector, in which traffic is counted.
pub const SECTOR_BYTES: i64 = 32;

/// Number of threads of a warp.
const WARP: usize = 32;

/// Traffic of one buffer, in sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sectors that warp instructions request, summed over the launch.
    pub scheduled: i64,
    /// Distinct sectors that the kernel touches; 0 until `GpuKernel::movement` sets it.
    pub algebraic: i64,
    /// Whether data determine which elements are touched (an index or a guard is read from memory): both numbers are
    /// then estimates.
    pub from_data: bool,
}

/// A kernel with the parameters of one launch.
pub struct Launch<'a> {
    /// Kernel over formal parameters.
    pub def: &'a KernelDef,
    deps: Vec<VarSet>,
    params: &'a [i64],
}

/// Warp instructions that access memory in the same pattern: `n` steps, each with a point per lane.
pub struct Steps<'a> {
    /// Number of steps.
    pub n: i64,
    /// Iteration variables of a lane's first element at a step; `None` if the lane is idle.
    pub point: &'a dyn Fn(i64, usize) -> Option<Vec<i64>>,
    /// Variable that a lane's elements run along.
    pub along: usize,
    /// Number of consecutive elements of a lane.
    pub width: i64,
    /// Whether one instruction moves all consecutive elements of a lane.
    pub whole: bool,
}

/// Maximum number of steps examined; more are sampled evenly.
const STEPS_MAX: i64 = 1024;

/// Maximum number of points at which a guard is evaluated; more are sampled evenly.
const POINTS_MAX: i64 = 1 << 16;

impl<'a> Launch<'a> {
    /// Combines a kernel with the values of `p0`, `p1`, …
    pub fn new(def: &'a KernelDef, params: &'a [i64]) -> Launch<'a> {
        Launch { def, deps: def.dependences(), params }
    }

    /// Returns the value of a size in this launch.
    pub fn size(&self, s: Size) -> i64 {
        match s {
            Size::Const(c) => c,
            Size::Param(p) => self.params[p],
        }
    }

    /// Returns the value of an expression over the parameters; 0 if it cannot be evaluated.
    pub fn dim(&self, d: &Dim) -> i64 {
        self.eval(d, &[]).unwrap_or(0)
    }

    /// Returns the extent of an iteration variable in this launch.
    pub fn extent(&self, var: usize) -> i64 {
        self.size(self.def.extent(var))
    }

    /// Returns the number of buffers that the kernel reads or writes.
    pub fn buffers(&self) -> usize {
        self.def.reads.len() + self.def.writes.len()
    }

    /// Adds the sectors that one access requests over all steps.
    pub fn count(&self, traffic: &mut [Traffic], access: Touch, steps: &Steps) {
        let t = &mut traffic[access.buffer(self.def)];
        t.from_data |= access.depends_on_data(self);
        let (n, unit) = (steps.n.min(STEPS_MAX), access.bytes(self.def));
        let moves = self.def.access_vars(access.access, &self.deps) >> steps.along & 1 == 1;
        let stride = if moves { self.stride(access.access, steps.along) } else { Some(0) };
        // Elements per instruction, and number of instructions.
        let (together, times) = match stride {
            Some(0) => (1, 1),
            Some(1) if steps.whole => (steps.width, 1),
            Some(_) | None => (1, steps.width),
        };
        let mut sum = 0;
        for i in 0..n {
            let step = (i as i128 * steps.n as i128 / n as i128) as i64;
            let points: Vec<Vec<i64>> = (0..WARP).filter_map(|lane| (steps.point)(step, lane)).collect();
            for time in 0..times {
                let mut sectors = vec![];
                for mut point in points.iter().cloned() {
                    // A kernel of a single point has no variables.
                    if let Some(along) = point.get_mut(steps.along) {
                        *along += time;
                    }
                    if access.guard.is_some_and(|g| self.holds(g, &point) == Some(false)) {
                        continue;
                    }
                    let first = self.element(access.access, access.storage(self.def), &point) * unit;
                    let last = first + unit * together - 1;
                    sectors.extend(first.div_euclid(SECTOR_BYTES)..=last.div_euclid(SECTOR_BYTES));
                }
                sectors.sort();
                sectors.dedup();
                sum += sectors.len() as i128;
            }
        }
        if n > 0 {
            t.scheduled += (sum * steps.n as i128 / n as i128) as i64;
        }
    }

    /// Set of variables that an access depends on.
    pub fn vars(&self, touch: Touch) -> VarSet {
        self.def.access_vars(touch.access, &self.deps)
    }

    /// Stride of an access along a variable, if it is linear in it.
    fn stride(&self, access: &Access, var: usize) -> Option<i64> {
        let computed = access.computed.iter().any(|c| self.expr_vars(&c.expr) >> var & 1 == 1);
        (!computed && access.coords.len() == 1).then(|| self.size(access.stride(var)))
    }

    fn expr_vars(&self, d: &Dim) -> VarSet {
        dim_vars(d, &self.deps)
    }

    /// Index of the element that is accessed at a point. A data-dependent index is replaced by an arbitrary one below
    /// its limit.
    pub fn element(&self, access: &Access, storage: &Storage, point: &[i64]) -> i64 {
        let line = |l: &Linear| {
            let terms = l.strides.iter().zip(point).map(|(s, v)| self.size(*s) * v);
            self.size(l.offset) + terms.sum::<i64>()
        };
        let computed = |c: &Computed| {
            let limit = c.limit.map(|l| self.size(l).max(1));
            let value = self.eval(&c.expr, point).unwrap_or_else(|| {
                let vars = self.expr_vars(&c.expr);
                let mixed = point.iter().enumerate().filter(|(v, _)| vars >> v & 1 == 1);
                mixed.fold(0x9E37_79B9, |h: i64, (_, v)| (h ^ v).wrapping_mul(0x5851_F42D_4C95_7F2D) >> 7 & i64::MAX)
            });
            limit.map_or(value, |l| value.rem_euclid(l)) * self.size(c.stride)
        };
        let coordinate = |coord: usize| {
            let parts = access.computed.iter().filter(|c| c.coord == coord);
            line(&access.coords[coord]) + parts.map(computed).sum::<i64>()
        };
        match (storage.panels, &access.coords[..]) {
            (Some(p), [_, _]) => {
                let [k, n] = [0, 1].map(coordinate);
                let group = n / p.width * p.groups() + k / p.depth;
                (group * p.width + n % p.width) * p.places() + k % p.depth % p.places()
            }
            (Some(_) | None, _) => coordinate(0),
        }
    }

    fn eval(&self, d: &Dim, point: &[i64]) -> Option<i64> {
        let value = |symbol: &Symbol| match symbol {
            Symbol::Variable(v) => point.get(*v).copied(),
            Symbol::Statement(k) => self.whole_number(*k, point),
            Symbol::Param(n) => self.params.get(*n).copied(),
            Symbol::BufferBytes(_) | Symbol::Grid | Symbol::Named(_) => None,
        };
        d.eval(&value).ok()
    }

    /// Value of an integer statement, if it does not depend on data.
    fn whole_number(&self, k: usize, point: &[i64]) -> Option<i64> {
        match &self.def.body[k].op {
            Op::Const(bits) => Some(f64::from_bits(*bits) as i64),
            Op::Index(d) => self.eval(d, point),
            Op::Convert(a, Conversion::Value) => self.whole_number(*a, point),
            Op::Convert(_, Conversion::Bits) => None,
            Op::Load { .. } | Op::Apply { .. } | Op::Reduce { .. } => None,
        }
    }

    /// Truth of a guard, if it does not depend on data.
    fn holds(&self, k: usize, point: &[i64]) -> Option<bool> {
        let Op::Apply { f, args } = &self.def.body[k].op else { return None };
        let number = |k: &usize| self.whole_number(*k, point);
        let truth = |k: &usize| self.holds(*k, point);
        match (f, &args[..]) {
            (ScalarFn::Lt, [a, b]) => Some(number(a)? < number(b)?),
            (ScalarFn::Le, [a, b]) => Some(number(a)? <= number(b)?),
            (ScalarFn::Eq, [a, b]) => Some(number(a)? == number(b)?),
            (ScalarFn::And, [a, b]) => Some(truth(a)? && truth(b)?),
            (ScalarFn::Or, [a, b]) => Some(truth(a)? || truth(b)?),
            (ScalarFn::Not, [a]) => Some(!truth(a)?),
            _ => None,
        }
    }

    /// Number of distinct sectors of a buffer, assuming that accesses overlap only if they are equal.
    pub fn algebraic(&self, buffer: usize) -> i64 {
        let mut seen: Vec<&Access> = vec![];
        let (mut elements, mut end) = (0, 0);
        // Conditions of accesses do not depend on the number of work items.
        let footprint = self.def.footprint(Symbol::Grid.into());
        let touches = self.touches();
        for (touch, ways) in touches.iter().zip(&footprint.accesses) {
            if touch.buffer(self.def) != buffer || seen.contains(&touch.access) {
                continue;
            }
            seen.push(touch.access);
            let moved = self.def.access_vars(touch.access, &self.deps);
            let points = self.points(moved, touch.guard);
            // One of the conditions is that the buffer is long enough; `demand` is the number of bytes required.
            let size = Symbol::BufferBytes(buffer);
            let demand = |d: &Dim| d.linear_in(&size).filter(|(c, _)| c.is_const(1)).map(|(_, rest)| -self.dim(&rest));
            let long = ways.iter().filter_map(|w| w.iter().find_map(demand)).min();
            let below = long.map_or(i64::MAX, |bytes| bytes / touch.bytes(self.def));
            elements += points.min(below).max(0);
            end = end.max(below);
        }
        let empty = (0..self.def.outer.len()).any(|v| self.extent(v) == 0);
        let bytes = touches.iter().find(|t| t.buffer(self.def) == buffer).map_or(0, |t| t.bytes(self.def));
        if empty { 0 } else { (elements.min(end) * bytes + SECTOR_BYTES - 1) / SECTOR_BYTES }
    }

    /// Number of combinations of values of these variables for which a guard is true or unknown; an estimate from
    /// samples if there are more than `POINTS_MAX`.
    fn points(&self, vars: VarSet, guard: Option<usize>) -> i64 {
        let within = guard.map_or(0, |g| self.deps[g]) & vars;
        let extents: Vec<i64> = (0..self.def.n_vars()).map(|v| self.extent(v)).collect();
        let product = |set: VarSet| {
            let of = extents.iter().enumerate().filter(|(v, _)| set >> v & 1 == 1);
            of.fold(1i64, |p, (_, n)| p.saturating_mul(*n))
        };
        let all = product(within);
        let looked_at = all.min(POINTS_MAX);
        let passes = |i: i64| {
            let mut rest = (i as i128 * all as i128 / looked_at as i128) as i64;
            let mut point = vec![0; extents.len()];
            for v in (0..extents.len()).filter(|v| within >> v & 1 == 1) {
                (point[v], rest) = (rest % extents[v], rest / extents[v]);
            }
            guard.is_none_or(|g| self.holds(g, &point) != Some(false))
        };
        let passing = (0..looked_at).filter(|i| passes(*i)).count() as i128;
        let passing = passing * all as i128 / looked_at.max(1) as i128;
        product(vars & !within).saturating_mul(passing as i64)
    }

    /// All loads in the order of the body, then all stores.
    pub fn touches(&self) -> Vec<Touch<'_>> {
        let loads = self.def.body.iter().enumerate().filter_map(|(k, s)| match &s.op {
            Op::Load { access, guard } => Some(Touch { access, guard: *guard, statement: Some(k) }),
            Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) | Op::Reduce { .. } => None,
        });
        let stores = self.def.stores.iter().map(|w| Touch { access: &w.access, guard: None, statement: None });
        loads.chain(stores).collect()
    }
}

/// One load (of a statement) or one store.
#[derive(Clone, Copy)]
pub struct Touch<'a> {
    /// Element that is accessed.
    pub access: &'a Access,
    /// Statement that must be true for a load to read; `None` for unguarded loads and for stores.
    pub guard: Option<usize>,
    /// Statement of the load; `None` for a store.
    pub statement: Option<usize>,
}

impl Touch<'_> {
    fn buffer(&self, def: &KernelDef) -> usize {
        self.access.buffer + if self.statement.is_some() { 0 } else { def.reads.len() }
    }

    fn bytes(&self, def: &KernelDef) -> i64 {
        scalar::stored(self.storage(def).dtype).bits() as i64 / 8
    }

    fn storage<'d>(&self, def: &'d KernelDef) -> &'d Storage {
        let all = if self.statement.is_some() { &def.reads } else { &def.writes };
        &all[self.access.buffer]
    }

    fn depends_on_data(&self, launch: &Launch) -> bool {
        let point = vec![0; launch.def.n_vars()];
        let index = self.access.computed.iter().any(|c| launch.eval(&c.expr, &point).is_none());
        index || self.guard.is_some_and(|g| launch.holds(g, &point).is_none())
    }
}
