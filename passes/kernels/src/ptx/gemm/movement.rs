//! tiles, the parameters of a launch  =>  sectors per buffer: A once per tile of columns, B once per tile of rows, and
//! the epilogue
//!
//! A line of a tile is copied by one warp instruction, or by several that copy 32 units each.

use super::operand::{Inner, Operand};
use super::plan::Gemm;
use crate::ptx::movement::{Launch, SECTOR_BYTES, Steps, Traffic};
use sardonyx_base::Dim;

/// Maximum number of batch points whose first elements are examined; the others are assumed to have the same alignment.
const BATCHES_MAX: i64 = 1024;

pub fn requests(gemm: &Gemm, launch: &Launch) -> Vec<Traffic> {
    let is = |which: &Dim| launch.dim(which) == 1;
    if let Some(few) = gemm.few.as_ref().filter(|_| !is(&gemm.has_rows(launch.def))) {
        return requests(few, launch);
    }
    if let Some(small) = gemm.small.as_ref().filter(|_| !is(&gemm.has_blocks(launch.def))) {
        return requests(small, launch);
    }
    let mut traffic = vec![Traffic::default(); launch.buffers()];
    let tiles = |var: usize, size: i64| (launch.extent(var) + size - 1).div_euclid(size);
    let (tiles_m, tiles_n) = (tiles(gemm.m, gemm.shape.m), tiles(gemm.n, gemm.columns()));
    for (operand, times) in [(&gemm.a, tiles_n)].into_iter().chain(gemm.b.iter().map(|b| (b, tiles_m))) {
        traffic[operand.access.buffer].scheduled += times * sectors(launch, &gemm.batch, operand);
    }
    if let Some(positions) = &gemm.positions {
        let batches: i64 = gemm.batch.iter().map(|v| launch.extent(*v)).product();
        let once = positions.bytes(launch.extent(gemm.m)) / SECTOR_BYTES;
        traffic[positions.buffer].scheduled += batches * tiles_n * once;
    }
    gemm.epilogue_requests(launch, &mut traffic, (tiles_m, tiles_n));
    traffic
}

impl Gemm {
    fn batches(&self, launch: &Launch) -> i64 {
        self.batch.iter().map(|v| launch.extent(*v)).product()
    }

    /// Adds the sectors that the statements after the reduction request, for each block of eight rows and eight
    /// columns.
    pub(super) fn epilogue_requests(&self, launch: &Launch, traffic: &mut [Traffic], (tiles_m, tiles_n): (i64, i64)) {
        let (shape, columns, def) = (self.shape, self.columns(), launch.def);
        let shared = self.per_column(def, &def.dependences());
        let needed = self.accesses(def);
        let even = self.pairs_are_even(launch);
        let (folded, groups) = self.groups.as_ref().map_or((vec![], 1), |g| (g.statements(def), g.count));
        for touch in launch.touches() {
            let of_group = touch.statement.is_some_and(|k| folded.contains(&k));
            if !of_group && !needed.iter().any(|a| std::ptr::eq(*a, touch.access)) {
                continue;
            }
            // One load of eight columns serves all rows of a warp.
            let moves = launch.vars(touch) >> self.m & 1 == 1;
            let once = if of_group { !moves } else { touch.statement.is_some_and(|k| shared.contains(&k)) };
            let rows = if once { shape.warps_m } else { shape.m / 8 };
            let row_step = if once { shape.warp_m() } else { 8 };
            let per_tile = rows * (columns / 8);
            let once_each = self.batches(launch) * tiles_m * tiles_n * per_tile;
            let n = once_each * if of_group { groups } else { 1 };
            let point = |step: i64, lane: usize| {
                let (group, step) = (step / once_each, step % once_each);
                let (tile, within) = (step / per_tile, step % per_tile);
                let (batch, tile) = (tile / (tiles_m * tiles_n), tile % (tiles_m * tiles_n));
                let first = tile / tiles_n * shape.m + within / (columns / 8) * row_step;
                let row = first + if once { 0 } else { lane as i64 / 4 };
                let column = tile % tiles_n * columns + within % (columns / 8) * 8 + lane as i64 % 4 * 2;
                let mut point = batch_point(launch, &self.batch, batch);
                (point[self.m], point[self.n]) = (row, column);
                if let Some(groups) = &self.groups {
                    point[groups.var] = group;
                }
                let there = once || row < launch.extent(self.m);
                (there && column < launch.extent(self.n)).then_some(point)
            };
            let whole = !of_group && even == Some(true) || even.is_none() && touch.access.is_aligned(self.n, 2);
            launch.count(traffic, touch, &Steps { n, point: &point, along: self.n, width: 2, whole });
        }
    }
}

/// Values of the batch variables for a batch number.
pub fn batch_point(launch: &Launch, batch: &[usize], mut number: i64) -> Vec<i64> {
    let mut point = vec![0; launch.def.n_vars()];
    for v in batch.iter().rev() {
        point[*v] = number % launch.extent(*v);
        number /= launch.extent(*v);
    }
    point
}

/// Number of sectors that the copies of all lines of an operand request, with each line copied once.
pub fn sectors(launch: &Launch, batch: &[usize], operand: &Operand) -> i64 {
    let batches: i64 = batch.iter().map(|v| launch.extent(*v)).product();
    let looked = batches.min(BATCHES_MAX);
    let storage = &launch.def.reads[operand.access.buffer];
    let of_batch = |i: i64| {
        let point = batch_point(launch, batch, i * batches / looked);
        operand.sectors(launch, launch.element(&operand.access, storage, &point))
    };
    let sum: i128 = (0..looked).map(|i| of_batch(i) as i128).sum();
    if looked == 0 { 0 } else { (sum * batches as i128 / looked as i128) as i64 }
}

impl Operand {
    /// Number of sectors of all lines and chunks of one batch element whose first element is `first`.
    fn sectors(&self, launch: &Launch, first: i64) -> i64 {
        let bytes = self.element_bytes;
        let (rows, k) = (launch.extent(self.var), launch.size(self.k_extent));
        let k = (k + self.depth - 1).div_euclid(self.depth);
        let (lines, length) = match self.inner {
            Inner::K => (rows, k),
            Inner::Rows => (k, rows),
        };
        let (line, inner) = (launch.size(self.line_stride()) * bytes, launch.size(self.inner_stride()) * bytes);
        let start = first * bytes;
        let unit = self.unit(start, line);
        // Number of elements of a line that one instruction copies; no copy crosses the end of a panel.
        let together = (32 * unit / bytes).min(self.length());
        if let Some(panels) = self.panels {
            // The padding of the last panel is copied, up to the tile's size.
            let (together, width) = (together.min(panels.width), panels.width.min(self.rows));
            let pieces = (length + width - 1).div_euclid(width) * (width / together);
            return lines * pieces * (together * bytes / SECTOR_BYTES);
        }
        let mut sum = 0;
        for (elements, pieces) in [(together, length / together), (length % together, 1)] {
            if elements > 0 && pieces > 0 {
                // If a chunk is a whole number of sectors, all full chunks begin at the same offset within a sector.
                let distance = (together * inner).rem_euclid(SECTOR_BYTES);
                let of_piece = |p: i64| {
                    let before = if elements == together { p } else { length / together };
                    sectors_of_lines(start + before * distance, line, lines, elements, inner)
                };
                sum += if distance == 0 { pieces * of_piece(0) } else { (0..pieces).map(of_piece).sum() };
            }
        }
        sum
    }

    /// Number of bytes that a lane copies at once, given the alignment of the operand at this launch.
    fn unit(&self, start: i64, line: i64) -> i64 {
        let units = self.units();
        let fits = units.iter().find(|(unit, _)| start % unit == 0 && line % unit == 0);
        fits.or(units.last()).map_or(self.element_bytes, |(unit, _)| *unit)
    }
}

/// Number of sectors that contain `elements` elements, `inner` bytes apart, of each of the lines.
fn sectors_of_lines(start: i64, line: i64, lines: i64, elements: i64, inner: i64) -> i64 {
    let span = |at: i64| {
        if inner >= SECTOR_BYTES {
            return elements;
        }
        let last = at + elements * inner - 1;
        last.div_euclid(SECTOR_BYTES) - at.div_euclid(SECTOR_BYTES) + 1
    };
    // The offset within a sector repeats after 32 lines at the latest.
    let (rounds, rest) = (lines / SECTOR_BYTES, lines % SECTOR_BYTES);
    let sum = |n: i64| -> i64 { (0..n).map(|l| span((start + l * line).rem_euclid(SECTOR_BYTES))).sum() };
    rounds * sum(SECTOR_BYTES) + sum(rest)
}
