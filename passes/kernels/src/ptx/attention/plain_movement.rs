//! plain attention, the parameters of a launch  =>  memory requests of its warps

use super::super::movement::{Launch, Steps, Touch, Traffic};
use super::movement::cone;
use super::plain::{Plain, THREADS, of_store};
use crate::def::*;
use std::cell::RefCell;

const WARP: i64 = 32;
const WARPS: i64 = THREADS / WARP;

impl Plain {
    pub fn traffic(&self, launch: &Launch) -> Vec<Traffic> {
        let mut count = Count::new(launch, self);
        for walk in &self.together {
            let roots = walk.roots(launch.def);
            count.evaluated(&roots, Lanes::Points { chunk: count.points });
            walk.stores.iter().for_each(|w| count.stored(*w, Lanes::Points { chunk: count.points }));
        }
        let values =
            |stores: &[usize]| -> Vec<usize> { stores.iter().flat_map(|w| of_store(&launch.def.stores[*w])).collect() };
        count.evaluated(&values(&self.block_stores), Lanes::One);
        self.block_stores.iter().for_each(|w| count.stored(*w, Lanes::One));
        for walk in &self.alone {
            count.evaluated(&walk.handed, Lanes::Points { chunk: self.points });
            walk.handed.iter().for_each(|k| count.known[*k] = true);
            count.evaluated(&walk.roots(launch.def), Lanes::Own { clamped: true });
            walk.handed.iter().for_each(|k| count.known[*k] = false);
            walk.stores.iter().for_each(|w| count.stored(*w, Lanes::Own { clamped: false }));
        }
        count.evaluated(&values(&self.own_stores), Lanes::Own { clamped: false });
        self.own_stores.iter().for_each(|w| count.stored(*w, Lanes::Own { clamped: false }));
        count.traffic.into_inner()
    }
}

/// Meaning of the lanes of a warp.
#[derive(Clone, Copy)]
enum Lanes {
    /// Lanes take inner points, `chunk` at a time.
    Points { chunk: i64 },
    /// Lanes take points of `Plain::own`, the outer variables that are divided among threads, for one inner point after
    /// another. Lanes beyond the last point repeat it if `clamped`, and are idle otherwise.
    Own { clamped: bool },
    /// The first thread only.
    One,
}

struct Count<'a> {
    launch: &'a Launch<'a>,
    plain: &'a Plain,
    deps: Vec<VarSet>,
    own: VarSet,
    /// For each statement, whether its value is known, so that its loads are not counted again.
    known: Vec<bool>,
    traffic: RefCell<Vec<Traffic>>,
    blocks: i64,
    /// Number of inner points, and number of points of `Plain::own`.
    points: i64,
    owns: i64,
}

impl<'a> Count<'a> {
    fn new(launch: &'a Launch, plain: &'a Plain) -> Count<'a> {
        let def = launch.def;
        let product = |vars: &[usize]| vars.iter().map(|v| launch.extent(*v)).product::<i64>();
        let inner: Vec<usize> = (def.outer.len()..def.outer.len() + def.inner.len()).collect();
        Count {
            launch,
            plain,
            deps: def.dependences(),
            own: plain.own.iter().fold(0, |set, v| set | 1 << v),
            known: vec![false; def.body.len()],
            traffic: RefCell::new(vec![Traffic::default(); launch.buffers()]),
            blocks: product(&plain.shared),
            points: product(&inner),
            owns: product(&plain.own),
        }
    }

    /// Counts the loads that the statements `roots` depend on. The variables that a load depends on and the meaning of
    /// the lanes determine how often it is executed.
    fn evaluated(&mut self, roots: &[usize], lanes: Lanes) {
        let known: Vec<usize> = (0..self.known.len()).filter(|k| self.known[*k]).collect();
        // Reductions over the deep space are evaluated here too.
        let (mut open, mut seen) = (roots.to_vec(), vec![]);
        while let Some(root) = open.pop() {
            for k in cone(self.launch.def, &[root], &known) {
                if !seen.contains(&k) {
                    seen.push(k);
                    let sums = self.launch.def.operands(k).into_iter().chain([root]);
                    open.extend(sums.filter_map(|a| self.deep_argument(a)));
                }
            }
            open.extend(self.deep_argument(root).filter(|a| !seen.contains(a)));
        }
        for touch in self.launch.touches() {
            let Some(k) = touch.statement.filter(|k| seen.contains(k)) else { continue };
            let block = self.deps[k] & (self.launch.def.inner_vars() | self.own) == 0;
            let lanes = if block && !matches!(lanes, Lanes::One) { None } else { Some(lanes) };
            self.count(touch, lanes);
            let by_point = self.deps[k] & self.launch.def.inner_vars() != 0;
            self.known[k] |= !by_point && !matches!(lanes, Some(Lanes::One));
        }
    }

    fn stored(&self, w: usize, lanes: Lanes) {
        let touch = self.launch.touches().into_iter().filter(|t| t.statement.is_none()).nth(w);
        self.count(touch.expect("a store"), Some(lanes));
    }

    fn deep_argument(&self, k: usize) -> Option<usize> {
        match self.launch.def.body[k].op {
            Op::Reduce { arg, .. } if self.deps[arg] & self.launch.def.deep_vars() != 0 => Some(arg),
            Op::Reduce { .. }
            | Op::Load { .. }
            | Op::Const(_)
            | Op::Index(_)
            | Op::Apply { .. }
            | Op::Convert(_, _) => None,
        }
    }

    /// Counts one access. If `lanes` is `None`, every thread of a block executes it once.
    fn count(&self, touch: Touch, lanes: Option<Lanes>) {
        let (launch, def) = (self.launch, self.launch.def);
        let vars = touch.statement.map_or_else(|| launch.vars(touch), |k| self.deps[k]);
        let ceil = |a: i64, b: i64| (a + b - 1) / b;
        let inner = def.inner_vars() & !def.deep_vars();
        let product = |set: VarSet| {
            let of = (0..def.n_vars()).filter(|v| set >> v & 1 == 1);
            of.map(|v| launch.extent(v)).product::<i64>()
        };
        let deep = if vars & def.deep_vars() != 0 { product(def.deep_vars()) } else { 1 };
        // Rounds over the points of `Plain::own`, steps over the inner points, and warps that take part.
        let rounds = ceil(self.owns, THREADS);
        let (rounds, walked, slots) = match lanes {
            None => (1, 1, WARPS),
            Some(Lanes::One) => (1, 1, 1),
            Some(Lanes::Points { chunk }) if chunk == self.points => (1, 1, ceil(chunk, WARP)),
            Some(Lanes::Points { chunk }) => (rounds, ceil(self.points, chunk), ceil(chunk, WARP)),
            Some(Lanes::Own { .. }) => (rounds, if vars & inner != 0 { self.points } else { 1 }, WARPS),
        };
        // The warp is the slowest index, so that sampled steps include all warps, which differ most.
        let per_block = walked * deep;
        let per_warp = self.blocks * per_block;
        let point = |step: i64, lane: usize| {
            let (warp, rest) = (step / per_warp, step % per_warp);
            let (round, slot) = (warp / slots, warp % slots);
            let (block, rest) = (rest / per_block, rest % per_block);
            let (at, d) = (rest / deep, rest % deep);
            let mut point = vec![0; def.n_vars()];
            self.set(&mut point, &self.plain.shared, block);
            let deep_vars: Vec<usize> = (def.outer.len() + def.inner.len()..def.n_vars()).collect();
            self.set(&mut point, &deep_vars, d);
            let inner_vars: Vec<usize> = (def.outer.len()..def.outer.len() + def.inner.len()).collect();
            let within = slot * WARP + lane as i64;
            let there = match lanes {
                None => true,
                Some(Lanes::One) => lane == 0,
                Some(Lanes::Points { chunk }) => {
                    self.set(&mut point, &inner_vars, at * chunk + within);
                    within < chunk && at * chunk + within < self.points
                }
                Some(Lanes::Own { clamped }) => {
                    self.set(&mut point, &inner_vars, at);
                    let own = round * THREADS + within;
                    self.set(&mut point, &self.plain.own, own.min(self.owns - 1));
                    clamped || own < self.owns
                }
            };
            there.then_some(point)
        };
        let n = if self.points == 0 && vars & inner != 0 { 0 } else { rounds * slots * per_warp };
        let steps = Steps { n, point: &point, along: def.n_vars() - 1, width: 1, whole: false };
        let mut traffic = self.traffic.borrow_mut();
        launch.count(&mut traffic, touch, &steps);
    }

    /// Sets variables to the point of this number, with the last one as the fastest index.
    fn set(&self, point: &mut [i64], vars: &[usize], mut number: i64) {
        for v in vars.iter().rev() {
            let extent = self.launch.extent(*v).max(1);
            (point[*v], number) = (number % extent, number / extent);
        }
    }
}
