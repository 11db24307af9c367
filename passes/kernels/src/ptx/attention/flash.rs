//! q, k, v  =>  o, one tile of keys after another: products on tensor cores, exponentials in registers
//!
//! A block copies its queries to shared memory once, and keys and values tile by tile, copying the next tile while it
//! computes with the current one. Each warp has 16 queries. The largest score of a row is only known for the keys so
//! far; if a later tile has a larger score, the accumulators are rescaled to this score (Milakov and Gimelshein, 2018;
//! Dao et al., 2022). The first tile begins at the first key for every row, so that the result of a row depends on its
//! own query and on the keys and values, and on no other row.

use super::super::gemm::copy::{log2, shift};
use super::super::gemm::either;
use super::super::gemm::mma::Factors;
use super::super::index::narrow;
use super::super::{Form, GpuLaunch};
use super::fill::Source;
use super::fragments::{Readers, zeros};
use super::plan::{Flash, ROWS, Team};
use super::softmax::Block;
use super::warpgroups;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::{Cx, decode};
use crate::eval::Point;
use sardonyx_base::Dim;

pub fn emit(cx: &Cx<Ptx>, asm: &mut Ptx, flash: &Flash) -> Form {
    let (bytes, threads) = (flash.shared_bytes(), flash.launched_threads());
    variants(cx, asm, flash, (bytes, threads));
    let (_, variables, shared_bytes) = Form::shared(bytes);
    let launch = GpuLaunch { shared_bytes, ..GpuLaunch::plain(flash.grid(cx.def), threads as u32) };
    Form { launch, variables, wide: true }
}

/// Emits the code of one block for this plan and, if there is one, for the plan of smaller blocks. `bytes` is the size
/// of the entry's shared memory, and `threads` the number of threads of its blocks; those that a plan does not need, which are
/// whole warps, do nothing.
fn variants(cx: &Cx<Ptx>, asm: &mut Ptx, flash: &Flash, (bytes, threads): (i64, i64)) {
    let team = |asm: &mut Ptx| match flash.team {
        Team::FewRows | Team::Warps => block(cx, asm, flash, bytes),
        Team::Warpgroups => warpgroups::block(cx, asm, flash, bytes),
    };
    let own = |asm: &mut Ptx| {
        if flash.all_threads() == threads {
            return team(asm);
        }
        let (thread, n) = (asm.special("%tid.x"), asm.int(flash.all_threads(), Ty::I32));
        let takes_part = asm.cmpi(CmpI::Ult, thread, n);
        asm.if_then(takes_part, team);
    };
    match &flash.few {
        None => own(asm),
        Some(few) => {
            let smaller = |asm: &mut Ptx| variants(cx, asm, few, (bytes, threads));
            either(cx, asm, &flash.is_chosen(cx.def), own, smaller);
        }
    }
}

/// Emits the code of one block of warps.
fn block(cx: &Cx<Ptx>, asm: &mut Ptx, flash: &Flash, bytes: i64) {
    let (tiles, _, _) = Form::shared(bytes);
    let tiles = asm.instruction(Ty::I32, "mov.u32", &[tiles.to_string()]);
    let (point, [i0, e0]) = place(cx, asm, flash);
    let thread = asm.special("%tid.x");
    let warp = shift(asm, Bin::ShRUI, thread, 5);
    let across = asm.int(flash.warps_n - 1, Ty::I32);
    let warp_n = asm.bin(Bin::AndI, warp, across);
    let warp_m = shift(asm, Bin::ShRUI, warp, log2(flash.warps_n));
    let block = Block::new(cx, asm, flash, point.clone(), (warp_n, tiles));
    let own = shift(asm, Bin::ShLI, warp_m, log2(ROWS));
    let own = asm.cast(Cast::ExtUI, own, Elem::I64);
    let first_row = asm.bin(Bin::AddI, i0, own);
    let rows = block.rows(asm, first_row);
    let sums = zeros(asm, flash.warp_columns());
    let readers = Readers::new(asm, flash, tiles, (warp_m, warp_n));
    let start = start(asm, flash, point, [i0, e0]);
    let who = (thread, flash.threads());
    let (zero, n_keys) = (asm.i64(0), cx.extent(asm, flash.roles.j));
    let some = asm.cmpi(CmpI::Ne, n_keys, zero);
    asm.if_then(some, |asm| {
        let queries = Source::new(cx, asm, &flash.q, &start, who);
        let left = queries_left(cx, asm, flash, i0);
        queries.fill(asm, tiles, Some(i0), left);
        Pipe::new(cx, asm, flash, &start, who).run(asm, tiles, |asm, stage, first| {
            let [of_scores, of_values] = flash.factors(cx.def);
            let scores = readers.scores(asm, of_scores, stage, flash.score_steps(cx.def));
            let first = block.own_keys(asm, first);
            if of_scores == Factors::F32 {
                block.repair_scores(asm, &rows, &scores, first);
            }
            let powers = block.weigh(asm, &rows, &scores, first, &sums);
            let behind = asm.int(flash.k.bytes(), Ty::I32);
            let values = asm.bin(Bin::AddI, stage, behind);
            readers.add_values(asm, of_values, values, &powers, &sums);
        });
    });
    block.finish(asm, rows, &sums, e0);
}

/// Returns the point with the block's batch variables, and the block's first row and first column. The blocks of one
/// batch point are consecutive, so that their keys stay in the second-level cache.
pub fn place(cx: &Cx<Ptx>, asm: &mut Ptx, flash: &Flash) -> (Point, [Val; 2]) {
    let roles = &flash.roles;
    let mut extents: Vec<Dim> = roles.batch.iter().map(|v| cx.def.extent(*v).dim()).collect();
    extents.extend([Dim::constant(flash.tiles_e(cx.def)), flash.tiles_i(cx.def)]);
    let extents: Vec<Val> = extents
        .iter()
        .map(|d| {
            let n = cx.dim(asm, d);
            narrow(asm, n)
        })
        .collect();
    let number = asm.special("%ctaid.x");
    let mut point = Point::new(cx);
    let at: Vec<Val> = decode(asm, number, &extents).into_iter().map(|v| asm.cast(Cast::ExtUI, v, Elem::I64)).collect();
    for (v, at) in roles.batch.iter().zip(&at) {
        point.vars[*v] = Some(*at);
    }
    let (columns, rows) = (asm.i64(flash.columns), asm.i64(flash.rows()));
    let n = roles.batch.len();
    let (e0, i0) = (asm.bin(Bin::MulI, at[n], columns), asm.bin(Bin::MulI, at[n + 1], rows));
    (point, [i0, e0])
}

/// The point at which the block's tiles begin, given its batch variables, its first row and its first column.
pub fn start(asm: &mut Ptx, flash: &Flash, mut point: Point, [i0, e0]: [Val; 2]) -> Point {
    let (zero, roles) = (asm.i64(0), &flash.roles);
    (point.vars[roles.j], point.vars[roles.d], point.vars[roles.e]) = (Some(zero), Some(zero), Some(e0));
    if let Some(i) = roles.i {
        point.vars[i] = Some(i0);
    }
    point
}

/// Number of queries of the block whose first row is `i0`.
pub fn queries_left(cx: &Cx<Ptx>, asm: &mut Ptx, flash: &Flash, i0: Val) -> Val {
    match flash.roles.i {
        None => asm.int(1, Ty::I32),
        Some(i) => {
            let n = cx.extent(asm, i);
            left_of(asm, n, i0, flash.rows())
        }
    }
}

/// Number of elements that remain from `first` on, at most `size`.
fn left_of(asm: &mut Ptx, n: Val, first: Val, size: i64) -> Val {
    let left = asm.bin(Bin::SubI, n, first);
    let all = asm.i64(size);
    let left = asm.bin(Bin::MinSI, left, all);
    asm.cast(Cast::TruncI, left, Elem::I32)
}

/// Tiles of keys and values, which are copied one after another.
pub struct Pipe<'a> {
    flash: &'a Flash,
    keys: Source<'a>,
    values: Source<'a>,
    n_keys: Val,
}

impl<'a> Pipe<'a> {
    /// The tiles of the block that begins at `start`, copied by the threads `who`.
    pub fn new(cx: &'a Cx<'a, Ptx>, asm: &mut Ptx, flash: &'a Flash, start: &Point, who: (Val, i64)) -> Pipe<'a> {
        let n_keys = cx.extent(asm, flash.roles.j);
        let [keys, values] = [&flash.k, &flash.v].map(|tile| Source::new(cx, asm, tile, start, who));
        Pipe { flash, keys, values, n_keys }
    }

    /// Copies the next tiles of keys and values, which begin with key `first`, to a stage.
    pub fn copy(&self, asm: &mut Ptx, stage: Val, first: Val) {
        let left = left_of(asm, self.n_keys, first, self.flash.keys);
        self.keys.fill(asm, stage, Some(first), left);
        let behind = asm.int(self.flash.k.bytes(), Ty::I32);
        let values = asm.bin(Bin::AddI, stage, behind);
        self.values.fill(asm, values, Some(first), left);
    }

    /// Calls `each` with the stage and the first key of every tile, while the next one is copied; there must be at least
    /// one key.
    fn run(&self, asm: &mut Ptx, tiles: Val, each: impl FnOnce(&mut Ptx, Val, Val)) {
        let (flash, zero) = (self.flash, asm.i64(0));
        let place = |asm: &mut Ptx, stage: i64| {
            let before = asm.int(flash.q.bytes() + stage * flash.stage_bytes(), Ty::I32);
            asm.bin(Bin::AddI, tiles, before)
        };
        let (base, end) = (place(asm, 0), place(asm, flash.stages));
        for stage in 0..flash.stages - 1 {
            let (target, first) = (place(asm, stage), asm.i64(stage * flash.keys));
            let there = asm.cmpi(CmpI::Slt, first, self.n_keys);
            asm.if_then(there, |asm| self.copy(asm, target, first));
            asm.line("cp.async.commit_group;");
        }
        let last = place(asm, flash.stages - 1);
        let state = asm.variables(&[base, last, zero]);
        let [read, write, first] = state[..] else { unreachable!("three variables") };
        let head = asm.label();
        asm.place_label(&head);
        asm.line(&format!("cp.async.wait_group {};", flash.stages - 2));
        // All threads' parts of this tile have arrived, and no thread reads the stage that is written next.
        asm.line("bar.sync 0;");
        let ahead = asm.i64((flash.stages - 1) * flash.keys);
        let coming = asm.bin(Bin::AddI, first, ahead);
        let there = asm.cmpi(CmpI::Slt, coming, self.n_keys);
        asm.if_then(there, |asm| self.copy(asm, write, coming));
        asm.line("cp.async.commit_group;");
        each(asm, read, first);
        let size = asm.int(flash.stage_bytes(), Ty::I32);
        for stage in [read, write] {
            let next = asm.bin(Bin::AddI, stage, size);
            let wraps = asm.cmpi(CmpI::Eq, next, end);
            let next = asm.select(wraps, base, next);
            asm.set(stage, next);
        }
        let keys = asm.i64(flash.keys);
        let next = asm.bin(Bin::AddI, first, keys);
        asm.set(first, next);
        let more = asm.cmpi(CmpI::Slt, first, self.n_keys);
        let more = asm.name(more, 0);
        asm.line(&format!("@{more} bra {head};"));
    }
}
