//! a row's access strategy, the parameters of a launch  =>  memory requests of its warps

use super::{Plan, Way, ceil, is_kept};
use crate::ptx::movement::{Launch, Steps, Touch, Traffic};
use crate::ptx::team::WARP;

pub fn requests(launch: &Launch, plan: &Plan) -> Vec<Traffic> {
    let mut traffic = vec![Traffic::default(); launch.buffers()];
    let walk = Walk::new(launch, plan);
    let kept = |k: usize| match walk.way {
        Way::Kept { .. } => !plan.stages.point[k] || is_kept(launch.def, &plan.stages, k),
        Way::Again { .. } => !plan.stages.point[k],
    };
    let stages = plan.stages.evaluated(launch.def, kept);
    for touch in launch.touches() {
        let Some(k) = touch.statement else {
            let inner = launch.def.inner_vars();
            walk.count(&mut traffic, touch, launch.vars(touch) & inner != 0, true);
            continue;
        };
        for _ in stages.iter().filter(|s| s.contains(&k)) {
            walk.count(&mut traffic, touch, plan.stages.point[k], false);
        }
    }
    traffic
}

/// Describes which thread accesses which element, and when.
struct Walk<'a> {
    launch: &'a Launch<'a>,
    threads: i64,
    columns: bool,
    way: Way,
    outer: Vec<i64>,
    inner: Vec<i64>,
}

impl<'a> Walk<'a> {
    fn new(launch: &'a Launch, plan: &Plan) -> Walk<'a> {
        let last = launch.extent(launch.def.n_point_vars() - 1);
        let takes = |(_, longest, whole): &&(Way, i64, bool)| {
            last <= *longest && (!whole || plan.vectors.as_ref().is_some_and(|v| v.holds(launch)))
        };
        let way = plan.ways.iter().find(takes).expect("the last way takes every row").0;
        let extents = |vars: std::ops::Range<usize>| vars.map(|v| launch.extent(v)).collect();
        let n = launch.def.outer.len();
        Walk {
            launch,
            threads: plan.threads,
            columns: plan.columns,
            way,
            outer: extents(0..n),
            inner: extents(n..launch.def.n_point_vars()),
        }
    }

    /// Counts one access of every element, or of every row.
    fn count(&self, traffic: &mut [Traffic], touch: Touch, per_element: bool, is_store: bool) {
        let (Way::Kept { width, .. } | Way::Again { width }) = self.way;
        let (rows, last) = (self.outer.iter().product::<i64>(), *self.inner.last().expect("a reduction walks"));
        let others: i64 = self.inner[..self.inner.len() - 1].iter().product();
        let along = self.launch.def.n_point_vars() - 1;
        if self.columns {
            let times = match (per_element, is_store) {
                (true, _) => others * last,
                (false, true) => 1,
                (false, false) => self.threads,
            };
            let point = |step: i64, lane: usize| {
                let row = WARP * (step / times) + lane as i64;
                (row < rows).then(|| self.point(row, if per_element { step % times } else { 0 }))
            };
            let steps = Steps { n: ceil(rows, WARP) * times, point: &point, along, width: 1, whole: false };
            return self.launch.count(traffic, touch, &steps);
        }
        let warps = self.threads / WARP;
        if !per_element {
            let n = if is_store { rows } else { rows * warps };
            let point = |step: i64, lane: usize| (!is_store || lane == 0).then(|| self.point(step * rows / n, 0));
            let steps = Steps { n, point: &point, along, width: 1, whole: false };
            return self.launch.count(traffic, touch, &steps);
        }
        let per_line = ceil(last, self.threads * width) * warps;
        let point = |step: i64, lane: usize| {
            let (line, within) = (step / per_line, step % per_line * WARP + lane as i64);
            (within * width < last).then(|| self.point(line / others, line % others * last + within * width))
        };
        let steps = Steps { n: rows * others * per_line, point: &point, along, width, whole: width > 1 };
        self.launch.count(traffic, touch, &steps);
    }

    fn point(&self, row: i64, element: i64) -> Vec<i64> {
        let mut at = vec![0; self.launch.def.n_vars()];
        for (extents, first, mut rest) in [(&self.outer, 0, row), (&self.inner, self.outer.len(), element)] {
            for (v, extent) in extents.iter().enumerate().rev() {
                (at[first + v], rest) = (rest % extent, rest / extent);
            }
        }
        at
    }
}
