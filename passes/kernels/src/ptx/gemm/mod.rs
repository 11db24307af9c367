//! c[b, m, n] = g(Σk a[b, m, k] · b[b, k, n])  =>  tiles on tensor cores, fed by a pipeline of asynchronous copies
//!
//! A block of threads computes one tile of one batch element. While it computes with one piece of k in shared memory,
//! the next ones are being copied. f32 is computed as three products of tf32, 16-bit elements by one product; both are
//! accumulated in f32, and bytes in i32. Each element is accumulated over ascending k, whatever tile a launch takes;
//! only contractions of bytes, which are exact in any order, divide k among warps. If two contractions share A, a warp
//! computes the same columns of both; its fragments of B are those of the first, then those of the second.

mod chunks;
pub(super) mod copy;
mod epilogue;
pub(super) mod exact;
mod fold;
mod groups;
pub(super) mod mma;
pub(super) mod movement;
pub(super) mod operand;
mod plan;
pub mod two_of_four;
pub mod warpgroups;
pub mod windows;

pub use mma::Factors;
pub(super) use plan::{BLOCKS_MIN, choice, reaches};
pub use plan::{FEW, Gemm, SHAPES, SLICED, SMALL, Shape};

use super::movement::{Launch, Traffic};
use super::{Form, GpuLaunch, GpuPlan, Version};
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::{Cx, decode};
use crate::def::{KernelDef, Size};
use crate::eval::Point;
use crate::target::Target;
use copy::{Stream, log2, shift};
use fold::Folded;
use mma::{Reader, Sums};
use sardonyx_base::Dim;
use two_of_four::{PositionStream, Words};

/// Number of rows of tiles that visit all columns together, while their A and a column of B stay in the second-level
/// cache.
const GROUP: i64 = 8;

/// Number of f32 products that tensor cores accumulate before ordinary arithmetic adds the partial sums: tensor cores
/// truncate, ordinary additions round.
const TERMS: i64 = 128;

/// Context shared by the parts of a block's code.
pub struct Block<'a> {
    cx: &'a Cx<'a, Ptx>,
    gemm: &'a Gemm,
    /// Bytes of shared memory of the entry, which may contain plans with other tiles.
    shared_bytes: i64,
}

/// Plans a product of warpgroups if the device and the kernel allow it, otherwise of single warps.
pub fn planned(def: &KernelDef, target: Target) -> Option<Box<dyn GpuPlan>> {
    warpgroups::planned(def, target).or_else(|| Some(Box::new(Gemm::from_def(def)?)))
}

/// Plans a product with a 2:4 matrix, of warpgroups if the device and the kernel allow it; `None` for any other kernel.
pub fn planned_two_of_four(def: &KernelDef, target: Target) -> Option<Box<dyn GpuPlan>> {
    let product = two_of_four::Matched::find(def)?;
    let has_warpgroups = target.gpu().is_some_and(|gpu| gpu.warpgroup_products);
    match warpgroups::Warpgroups::two_of_four(def, &product).filter(|_| has_warpgroups) {
        Some(plan) => Some(Box::new(plan)),
        None => Some(Box::new(product.of_warps(def)?)),
    }
}

impl GpuPlan for Gemm {
    fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        movement::requests(self, launch)
    }

    fn emit(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Form {
        emit(cx, asm, self)
    }

    fn is_on_tensor_cores(&self) -> bool {
        true
    }

    fn version(&self) -> Option<Version> {
        self.positions.is_some().then_some(two_of_four::VERSION)
    }

    fn tile(&self) -> Option<String> {
        Some(format!("warps-{}", self.shape.name()))
    }

    fn others(&self, def: &KernelDef) -> Vec<Box<dyn GpuPlan>> {
        boxed(self.with_other_shapes(def))
    }
}

fn boxed<P: GpuPlan + 'static>(plans: impl IntoIterator<Item = P>) -> Vec<Box<dyn GpuPlan>> {
    plans.into_iter().map(|plan| Box::new(plan) as Box<dyn GpuPlan>).collect()
}

fn emit(cx: &Cx<Ptx>, asm: &mut Ptx, gemm: &Gemm) -> Form {
    let bytes = gemm.shared_bytes();
    let own = |asm: &mut Ptx| tile(cx, asm, gemm, bytes);
    let many = |asm: &mut Ptx| match &gemm.small {
        None => own(asm),
        Some(small) => either(cx, asm, &gemm.has_blocks(cx.def), own, |asm| tile(cx, asm, small, bytes)),
    };
    match &gemm.few {
        None => many(asm),
        Some(few) => either(cx, asm, &gemm.has_rows(cx.def), many, |asm| tile(cx, asm, few, bytes)),
    }
    let (_, variables, shared_bytes) = Form::shared(bytes);
    let launch = GpuLaunch { shared_bytes, ..GpuLaunch::plain(gemm.grid(cx.def), gemm.shape.threads() as u32) };
    Form { launch, variables, wide: true }
}

/// Emits two variants of code; the launch takes the first if `which` is 1, and the second if it is 0.
pub(super) fn either(
    cx: &Cx<Ptx>,
    asm: &mut Ptx,
    which: &Dim,
    first: impl FnOnce(&mut Ptx),
    second: impl FnOnce(&mut Ptx),
) {
    let (which, zero) = (cx.dim(asm, which), asm.i64(0));
    let is_second = asm.cmpi(CmpI::Eq, which, zero);
    asm.if_else(
        is_second,
        &[],
        |asm| {
            second(asm);
            vec![]
        },
        |asm| {
            first(asm);
            vec![]
        },
    );
}

/// Emits the code of one block.
fn tile(cx: &Cx<Ptx>, asm: &mut Ptx, gemm: &Gemm, shared_bytes: i64) {
    let block = Block { cx, gemm, shared_bytes };
    let (m_tile, n_tile, mut point) = block.place(asm);
    let (m0, n0) = (times(asm, m_tile, gemm.shape.m), times(asm, n_tile, gemm.columns()));
    let zero = asm.i64(0);
    (point.vars[gemm.m], point.vars[gemm.n], point.vars[gemm.k]) = (Some(m0), Some(n0), Some(zero));
    if let Some(groups) = &gemm.groups {
        point.vars[groups.var] = Some(zero);
    }
    let rows = block.rows_left(asm, gemm.m, m0, gemm.shape.m);
    let columns = block.rows_left(asm, gemm.n, n0, gemm.columns());
    let thread = asm.special("%tid.x");
    let warp = shift(asm, Bin::ShRUI, thread, 5);
    let across = asm.int(gemm.shape.warps_n - 1, Ty::I32);
    let warp_n = asm.bin(Bin::AndI, warp, across);
    let warp_m = shift(asm, Bin::ShRUI, warp, log2(gemm.shape.warps_n));
    let (warp_m, slice) = match gemm.shape.slices {
        1 => (warp_m, None),
        _ => {
            let slice = shift(asm, Bin::ShRUI, warp_m, log2(gemm.shape.warps_m));
            let down = asm.int(gemm.shape.warps_m - 1, Ty::I32);
            (asm.bin(Bin::AndI, warp_m, down), Some(slice))
        }
    };
    let threads = gemm.shape.threads();
    let mut streams = vec![Stream::new(cx, asm, &gemm.a, &mut point, rows, threads)];
    streams.extend(gemm.b.iter().map(|b| Stream::new(cx, asm, b, &mut point, columns, threads)));
    let part = slice.map(|slice| (slice, gemm.steps()));
    let mut readers = vec![Reader::new(asm, gemm.factors, &gemm.a, gemm.shape.warp_m(), warp_m).part(asm, part)];
    for b in &gemm.b {
        readers.push(Reader::new(asm, gemm.factors, b, gemm.warp_columns(), warp_n).part(asm, part));
    }
    let folded = gemm.groups.as_ref().map(|groups| {
        let at = block.first_of_thread(asm, (m0, n0), (warp_m, warp_n));
        Folded::new(asm, gemm, groups, &point, at)
    });
    let lines = shift(asm, Bin::ShLI, warp_m, log2(gemm.shape.warp_m() / 16));
    let positions = block.positions(asm, thread, m0, rows).map(|stream| (stream, lines));
    let sums = block.pipeline(asm, &streams, &readers, folded.as_ref(), positions.as_ref());
    let finish = |asm: &mut Ptx| block.epilogue(asm, &point, &sums, (m0, n0), (warp_m, warp_n));
    match slice {
        None => finish(asm),
        Some(slice) => {
            let zero = asm.int(0, Ty::I32);
            let is_first = asm.cmpi(CmpI::Eq, slice, zero);
            let (tiles, _, _) = Form::shared(shared_bytes);
            let tiles = asm.instruction(Ty::I32, "mov.u32", &[tiles.to_string()]);
            sums.gather(asm, gemm, (warp, is_first), tiles);
            asm.if_then(is_first, finish);
        }
    }
}

impl Block<'_> {
    /// Row and column of the block's tile, and the point with its batch variables.
    fn place(&self, asm: &mut Ptx) -> (Val, Val, Point) {
        let (cx, gemm) = (self.cx, self.gemm);
        let number = asm.special("%ctaid.x");
        let [tiles_m, tiles_n] = [(gemm.m, gemm.shape.m), (gemm.n, gemm.columns())]
            .map(|(var, size)| self.tiles(asm, cx.def.extent(var), size));
        let per_batch = asm.bin(Bin::MulI, tiles_m, tiles_n);
        let batch = asm.bin(Bin::DivUI, number, per_batch);
        let at = if gemm.batch.is_empty() { number } else { asm.bin(Bin::RemUI, number, per_batch) };
        let extents: Vec<Val> = gemm.batch.iter().map(|v| narrow_extent(cx, asm, *v)).collect();
        let mut point = Point::new(cx);
        for (v, value) in gemm.batch.iter().zip(decode(asm, batch, &extents)) {
            point.vars[*v] = Some(asm.cast(Cast::ExtUI, value, Elem::I64));
        }
        // All groups but the last are full.
        let full = asm.int(GROUP, Ty::I32);
        let per_group = asm.bin(Bin::MulI, tiles_n, full);
        let group = asm.bin(Bin::DivUI, at, per_group);
        let within = asm.bin(Bin::RemUI, at, per_group);
        let first = asm.bin(Bin::MulI, group, full);
        let left = asm.bin(Bin::SubI, tiles_m, first);
        let rows = asm.bin(Bin::MinUI, left, full);
        let n = asm.bin(Bin::DivUI, within, rows);
        let m = asm.bin(Bin::RemUI, within, rows);
        (asm.bin(Bin::AddI, first, m), n, point)
    }

    /// Number of tiles that cover an extent. A grid has fewer than 2^31 blocks.
    fn tiles(&self, asm: &mut Ptx, extent: Size, size: i64) -> Val {
        match extent {
            Size::Const(extent) => asm.int((extent + size - 1).div_euclid(size), Ty::I32),
            Size::Param(_) => {
                let (extent, more) = (self.cx.size(asm, extent), asm.i64(size - 1));
                let up = asm.bin(Bin::AddI, extent, more);
                let tiles = shift(asm, Bin::ShRUI, up, log2(size));
                asm.cast(Cast::TruncI, tiles, Elem::I32)
            }
        }
    }

    /// Number of rows of the tile that exist; `None` if all do.
    fn rows_left(&self, asm: &mut Ptx, var: usize, first: Val, size: i64) -> Option<Val> {
        if Gemm::is_whole(self.cx.def, var, size) {
            return None;
        }
        let (extent, all) = (self.cx.extent(asm, var), asm.i64(size));
        let left = asm.bin(Bin::SubI, extent, first);
        let left = asm.bin(Bin::MinSI, left, all);
        Some(asm.cast(Cast::TruncI, left, Elem::I32))
    }

    /// Accumulates over all of k; the streams and readers are those of A and then of each B. If A is sparse, `positions`
    /// are the copies of its positions, and the first line of the warp's positions.
    fn pipeline(
        &self,
        asm: &mut Ptx,
        streams: &[Stream],
        readers: &[Reader],
        folded: Option<&Folded>,
        positions: Option<&(PositionStream, Val)>,
    ) -> Sums {
        let (cx, gemm, shape) = (self.cx, self.gemm, self.gemm.shape);
        let pieces = self.tiles(asm, gemm.k_extent(), gemm.k_tile());
        // Number of elements of the last k tile.
        let last = {
            let wide = asm.cast(Cast::ExtUI, pieces, Elem::I64);
            let (one, size, k) = (asm.i64(1), asm.i64(gemm.k_tile()), cx.size(asm, gemm.k_extent()));
            let before = asm.bin(Bin::SubI, wide, one);
            let before = asm.bin(Bin::MulI, before, size);
            let left = asm.bin(Bin::SubI, k, before);
            asm.cast(Cast::TruncI, left, Elem::I32)
        };
        let (tiles, _, _) = Form::shared(self.shared_bytes);
        let base = asm.instruction(Ty::I32, "mov.u32", &[tiles.to_string()]);
        let stage_bytes = gemm.stage_bytes();
        // Distances from each tile of a stage to the next one.
        let behind: Vec<Val> = [&gemm.a].into_iter().chain(&gemm.b).map(|o| asm.int(o.tile_bytes(), Ty::I32)).collect();
        let copy = |asm: &mut Ptx, piece: Val, stage: Val| {
            let one = asm.int(1, Ty::I32);
            let next = asm.bin(Bin::AddI, piece, one);
            let is_last = asm.cmpi(CmpI::Eq, next, pieces);
            let whole = asm.int(gemm.k_tile(), Ty::I32);
            let k_left = asm.select(is_last, last, whole);
            let mut tile = stage;
            for (i, stream) in streams.iter().enumerate() {
                tile = if i == 0 { tile } else { asm.bin(Bin::AddI, tile, behind[i - 1]) };
                stream.copy(asm, tile, k_left);
            }
            if let Some((positions, _)) = positions {
                let tile = asm.bin(Bin::AddI, tile, behind[behind.len() - 1]);
                positions.copy(asm, tile);
            }
        };
        let variable = |asm: &mut Ptx, value: Val| {
            let v = asm.register(value.ty);
            asm.set(v, value);
            v
        };
        for stage in 0..shape.stages - 1 {
            let piece = asm.int(stage, Ty::I32);
            let there = asm.cmpi(CmpI::Ult, piece, pieces);
            let at = asm.int(stage * stage_bytes, Ty::I32);
            let at = asm.bin(Bin::AddI, base, at);
            asm.if_then(there, |asm| copy(asm, piece, at));
            asm.line("cp.async.commit_group;");
        }
        let elem = if folded.is_some() { Elem::F32 } else { gemm.factors.sum() };
        let sums = Sums::zeros(asm, gemm, elem);
        let is_long = gemm.k_extent().as_const().is_none_or(|k| k > TERMS);
        let parts = (gemm.factors.is_split() && folded.is_none() && is_long).then(|| Sums::zeros(asm, gemm, elem));
        let end = asm.int(shape.stages * stage_bytes, Ty::I32);
        let end = asm.bin(Bin::AddI, base, end);
        let step = asm.int(stage_bytes, Ty::I32);
        let next_stage = |asm: &mut Ptx, stage: Val| {
            let next = asm.bin(Bin::AddI, stage, step);
            let wraps = asm.cmpi(CmpI::Eq, next, end);
            let next = asm.select(wraps, base, next);
            asm.set(stage, next);
        };
        let (zero, one) = (asm.int(0, Ty::I32), asm.int(1, Ty::I32));
        let read = variable(asm, base);
        let write = asm.int((shape.stages - 1) * stage_bytes, Ty::I32);
        let write = asm.bin(Bin::AddI, base, write);
        let write = variable(asm, write);
        let piece = variable(asm, zero);
        let ahead = asm.int(shape.stages - 1, Ty::I32);
        let (head, done) = (asm.label(), asm.label());
        let none = asm.cmpi(CmpI::Eq, pieces, zero);
        let none = asm.name(none, 0);
        asm.line(&format!("@{none} bra {done};"));
        asm.place_label(&head);
        asm.line(&format!("cp.async.wait_group {};", shape.stages - 2));
        // All threads' parts of this k tile have arrived, and no thread reads the stage that is written next.
        asm.line("bar.sync 0;");
        let coming = asm.bin(Bin::AddI, piece, ahead);
        let there = asm.cmpi(CmpI::Ult, coming, pieces);
        asm.if_then(there, |asm| copy(asm, coming, write));
        asm.line("cp.async.commit_group;");
        let mut tiles = vec![read];
        for behind in &behind[..readers.len() - 1] {
            tiles.push(asm.bin(Bin::AddI, tiles[tiles.len() - 1], *behind));
        }
        match (folded, readers, positions) {
            (None, [a, b], Some((_, line))) => {
                let last = asm.bin(Bin::AddI, tiles[1], behind[1]);
                let words = Words::new(asm, gemm, last, *line);
                sums.add_stored(asm, &words, [a, b], [tiles[0], tiles[1]]);
            }
            (None, ..) => {
                let sums = parts.as_ref().unwrap_or(&sums);
                sums.add(asm, gemm.factors, readers, &tiles, 0..gemm.steps());
            }
            (Some(folded), ..) => self.add_groups(asm, folded, (readers, &tiles), piece, &sums),
        }
        next_stage(asm, read);
        next_stage(asm, write);
        let next = asm.bin(Bin::AddI, piece, one);
        asm.set(piece, next);
        if let Some(parts) = &parts {
            let others = asm.int(TERMS / gemm.k_tile() - 1, Ty::I32);
            let others = asm.bin(Bin::AndI, piece, others);
            let is_whole = asm.cmpi(CmpI::Eq, others, zero);
            asm.if_then(is_whole, |asm| sums.take(asm, parts));
        }
        let more = asm.cmpi(CmpI::Ult, piece, pieces);
        let more = asm.name(more, 0);
        asm.line(&format!("@{more} bra {head};"));
        asm.place_label(&done);
        if let Some(parts) = &parts {
            sums.take(asm, parts);
        }
        sums
    }
}

fn narrow_extent(cx: &Cx<Ptx>, asm: &mut Ptx, var: usize) -> Val {
    match cx.def.extent(var).as_const() {
        Some(extent) => asm.int(extent, Ty::I32),
        None => {
            let extent = cx.extent(asm, var);
            asm.cast(Cast::TruncI, extent, Elem::I32)
        }
    }
}

/// Index of a tile's first element: tile · size.
fn times(asm: &mut Ptx, tile: Val, size: i64) -> Val {
    let wide = asm.cast(Cast::ExtUI, tile, Elem::I64);
    shift(asm, Bin::ShLI, wide, log2(size))
}
