//! attention, the parameters of a launch  =>  sectors per buffer: keys and values once per tile of queries, and all
//! other accesses
//!
//! Q, K and V tiles are copied like those of contractions, or evaluated. In the statements after the scores and after
//! the weighted sums of values, a warp covers eight rows by eight keys or columns, two per thread.

use super::super::gemm::movement::{batch_point, sectors};
use super::super::movement::{Launch, Steps, Touch, Traffic};
use super::plan::{Flash, ROWS, Tile};
use crate::def::*;

/// Number of threads of a warp.
const WARP: i64 = 32;

/// Granularity of a statement: it depends on keys or columns only, or on rows too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Per {
    Column,
    Element,
}

impl Flash {
    /// Returns the scheduled traffic of each buffer, reads first.
    pub fn traffic(&self, launch: &Launch) -> Vec<Traffic> {
        if let Some(few) = &self.few
            && launch.dim(&self.is_chosen(launch.def)) == 0
        {
            return few.traffic(launch);
        }
        let mut traffic = vec![Traffic::default(); launch.buffers()];
        let walk = Walk::new(launch, self);
        if launch.extent(self.roles.j) > 0 {
            let (tiles_i, tiles_e) = (walk.tiles_i, walk.tiles_e);
            for (tile, times) in [(&self.q, tiles_e), (&self.k, tiles_i * tiles_e), (&self.v, tiles_i)] {
                match &tile.operand {
                    Some(operand) => {
                        let sectors = sectors(launch, &self.roles.batch, operand);
                        traffic[operand.access.buffer].scheduled += times * sectors;
                    }
                    None => walk.evaluated(&mut traffic, tile, times),
                }
            }
        }
        for touch in launch.touches() {
            let Some(k) = touch.statement else {
                walk.columns(&mut traffic, touch, Per::Element);
                continue;
            };
            let row = launch.vars(touch) >> self.roles.e & 1 == 0;
            if walk.scores.contains(&k) {
                walk.scores(&mut traffic, touch);
            }
            match walk.ends.contains(&k) {
                true if row => walk.rows(&mut traffic, touch),
                true if walk.per_column.contains(&k) => walk.columns(&mut traffic, touch, Per::Column),
                true => walk.columns(&mut traffic, touch, Per::Element),
                false => {}
            }
        }
        traffic
    }
}

/// Describes which thread accesses which element, and when.
struct Walk<'a> {
    launch: &'a Launch<'a>,
    flash: &'a Flash,
    /// Statements after the reduction that computes the scores, and statements after all reductions.
    scores: Vec<usize>,
    ends: Vec<usize>,
    per_column: Vec<usize>,
    batches: i64,
    tiles_i: i64,
    tiles_e: i64,
    /// Whether a launch accesses pairs of columns as a unit; `None` if that is decided per access.
    even: Option<bool>,
}

impl<'a> Walk<'a> {
    fn new(launch: &'a Launch, flash: &'a Flash) -> Walk<'a> {
        let (def, roles) = (launch.def, &flash.roles);
        let deps = def.dependences();
        let ends = [flash.per_row(def, &deps), flash.epilogue(def)].concat();
        Walk {
            launch,
            flash,
            scores: cone(def, &[roles.score], &[roles.sum]),
            ends: cone(def, &ends, &[]),
            per_column: flash.per_column(def, &deps),
            batches: roles.batch.iter().map(|v| launch.extent(*v)).product(),
            tiles_i: launch.dim(&flash.tiles_i(def)),
            tiles_e: flash.tiles_e(def),
            even: flash.pairs(def).are_even(launch),
        }
    }

    fn blocks(&self) -> i64 {
        self.batches * self.tiles_e * self.tiles_i
    }

    /// Batch variables of a block, its first row and its first column.
    fn block(&self, number: i64) -> (Vec<i64>, i64, i64) {
        let (number, tile_i) = (number / self.tiles_i, number % self.tiles_i);
        let (batch, tile_e) = (number / self.tiles_e, number % self.tiles_e);
        let point = batch_point(self.launch, &self.flash.roles.batch, batch);
        (point, tile_i * self.flash.rows(), tile_e * self.flash.columns)
    }

    fn queries(&self) -> i64 {
        self.flash.roles.i.map_or(1, |i| self.launch.extent(i))
    }

    /// Counts a tile whose elements are evaluated by threads: a warp takes 32 consecutive elements of a line.
    fn evaluated(&self, traffic: &mut [Traffic], tile: &Tile, times: i64) {
        let lines = tile.across.map_or(1, |v| self.launch.extent(v));
        let length = self.launch.extent(tile.along);
        let parts = (length + WARP - 1) / WARP;
        let point = |step: i64, lane: usize| {
            let (step, column) = (step / parts, step % parts * WARP + lane as i64);
            let mut point = batch_point(self.launch, &self.flash.roles.batch, step / lines % self.batches);
            if let Some(v) = tile.across {
                point[v] = step % lines;
            }
            point[tile.along] = column;
            (column < length).then_some(point)
        };
        let n = times * self.batches * lines * parts;
        let steps = Steps { n, point: &point, along: tile.along, width: 1, whole: false };
        let statements = cone(self.launch.def, &[tile.statement], &[]);
        let touches = self.launch.touches().into_iter();
        for touch in touches.filter(|t| t.statement.is_some_and(|k| statements.contains(&k))) {
            self.launch.count(traffic, touch, &steps);
        }
    }

    /// Counts accesses of statements after the reduction that computes the scores: per key, per row, or per both.
    fn scores(&self, traffic: &mut [Traffic], touch: Touch) {
        let (launch, flash, roles) = (self.launch, self.flash, &self.flash.roles);
        let vars = launch.vars(touch);
        if vars >> roles.j & 1 == 0 {
            let moves = roles.i.is_some_and(|i| vars >> i & 1 == 1);
            return if moves { self.rows(traffic, touch) } else { self.blocks_once(traffic, touch) };
        }
        let per = if roles.i.is_some_and(|i| vars >> i & 1 == 1) { Per::Element } else { Per::Column };
        let keys = launch.extent(roles.j);
        let pieces = (keys + flash.keys - 1) / flash.keys;
        let masked = launch.def.extent(roles.j).as_const().is_none_or(|n| n % flash.keys != 0);
        // Eight keys of one warp, and both halves of its rows.
        let (halves, eights) = (if per == Per::Element { 2 } else { 1 }, flash.keys / 8);
        let per_block = pieces * eights * flash.warps_m * halves;
        let point = |step: i64, lane: usize| {
            let (number, within) = (step / per_block, step % per_block);
            let (mut point, i0, _) = self.block(number);
            let (half, within) = (within % halves, within / halves);
            let (warp, eight) = (within % flash.warps_m, within / flash.warps_m);
            if let Some(i) = roles.i {
                let row = i0 + warp * ROWS + half * 8 + lane as i64 / 4;
                point[i] = row.min(self.queries() - 1);
            }
            point[roles.j] = eight * 8 + lane as i64 % 4 * 2;
            (point[roles.j] < keys).then_some(point)
        };
        let whole = !masked && touch.access.is_aligned(roles.j, 2);
        let n = self.blocks() * per_block;
        launch.count(traffic, touch, &Steps { n, point: &point, along: roles.j, width: 2, whole });
    }

    /// Counts an access that every thread makes once per block.
    fn blocks_once(&self, traffic: &mut [Traffic], touch: Touch) {
        let warps = self.flash.threads() / WARP;
        let point = |step: i64, _: usize| Some(self.block(step / warps).0);
        let n = self.blocks() * warps;
        self.launch.count(
            traffic,
            touch,
            &Steps { n, point: &point, along: self.flash.roles.e, width: 1, whole: false },
        );
    }

    /// Counts an access that every thread makes for both of its rows.
    fn rows(&self, traffic: &mut [Traffic], touch: Touch) {
        let flash = self.flash;
        let per_block = flash.threads() / WARP * 2;
        let point = |step: i64, lane: usize| {
            let (mut point, i0, _) = self.block(step / per_block);
            let (warp, half) = (step % per_block / 2 / flash.warps_n, step % 2);
            if let Some(i) = flash.roles.i {
                let row = i0 + warp * ROWS + half * 8 + lane as i64 / 4;
                point[i] = row.min(self.queries() - 1);
            }
            Some(point)
        };
        let n = self.blocks() * per_block;
        self.launch.count(traffic, touch, &Steps { n, point: &point, along: flash.roles.e, width: 1, whole: false });
    }

    /// Counts accesses of statements after the weighted sums of values.
    fn columns(&self, traffic: &mut [Traffic], touch: Touch, per: Per) {
        let (launch, flash, roles) = (self.launch, self.flash, &self.flash.roles);
        let width = launch.extent(roles.e);
        let eights = (flash.columns + 7) / 8;
        let halves = if per == Per::Element { 2 } else { 1 };
        let per_block = eights * flash.warps_m * halves;
        let point = |step: i64, lane: usize| {
            let (number, within) = (step / per_block, step % per_block);
            let (mut point, i0, e0) = self.block(number);
            let (half, within) = (within % halves, within / halves);
            let (warp, eight) = (within % flash.warps_m, within / flash.warps_m);
            let row = i0 + warp * ROWS + half * 8 + lane as i64 / 4;
            if let (Some(i), Per::Element) = (roles.i, per) {
                point[i] = row;
            }
            point[roles.e] = e0 + eight * 8 + lane as i64 % 4 * 2;
            let there = per != Per::Element || row < self.queries();
            (there && point[roles.e] < width).then_some(point)
        };
        let whole = self.even == Some(true) || self.even.is_none() && touch.access.is_aligned(roles.e, 2);
        let n = self.blocks() * per_block;
        launch.count(traffic, touch, &Steps { n, point: &point, along: roles.e, width: 2, whole });
    }
}

/// The statements that `roots` depend on, including themselves, up to those in `end` and to reductions.
pub fn cone(def: &KernelDef, roots: &[usize], end: &[usize]) -> Vec<usize> {
    let (mut open, mut seen) = (roots.to_vec(), vec![]);
    while let Some(k) = open.pop() {
        let is_end = end.contains(&k) || matches!(def.body[k].op, Op::Reduce { .. });
        if !is_end && !seen.contains(&k) {
            seen.push(k);
            open.extend(def.operands(k));
        }
    }
    seen
}
