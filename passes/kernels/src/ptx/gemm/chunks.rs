//! a constant packed in chunks of 16 bytes along K  =>  bulk copies of its tiles, in the layout that `wgmma` reads
//!
//! A panel of `width` columns stores, for each group of eight consecutive k, a chunk of 16 bytes of every column. A
//! tile in shared memory has the same order, for its own columns. Therefore the chunks of one panel and one group of k
//! that belong to a tile are contiguous (a run of bytes) both in memory and in the tile, and one bulk copy fetches
//! them. If the tile is as wide as the panels, the whole tile is one run.

use super::copy::{in_panels, log2, shift};
use super::operand::Operand;
use super::plan::Gemm;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;

/// Bytes of a chunk: eight consecutive 16-bit elements of one column.
const CHUNK_BYTES: i64 = 16;

/// The bulk copies of one operand: the i-th of the copying threads copies the i-th run of each tile.
pub struct Chunks {
    /// Whether this thread copies a run.
    takes_part: Val,
    /// Address in memory of the thread's run of the next tile.
    source: Val,
    /// Offset of the thread's run in the tile in shared memory.
    target: Val,
    run_bytes: i64,
    /// Distance in memory from a tile to the next one along k, in bytes.
    tile_step: i64,
}

impl Chunks {
    /// Returns whether bulk copies can fetch an operand's tiles. The panels must store chunks of `CHUNK_DEPTH` k, and
    /// the extent of K must be a constant multiple of the k tile. The width of a tile must divide that of a panel, or
    /// be a multiple of it that divides the constant extent of N.
    pub fn fit(def: &KernelDef, operand: &Operand, gemm: &Gemm) -> bool {
        let Some(panels) = operand.panels.filter(|panels| panels.depth == CHUNK_DEPTH) else { return false };
        let (width, rows) = (panels.width, operand.rows);
        let k_is_whole = gemm.k_extent().as_const().is_some_and(|k| k > 0 && k % gemm.k_tile() == 0);
        k_is_whole && (width % rows == 0 || rows % width == 0 && Gemm::is_whole(def, gemm.n, rows))
    }

    /// Prepares the copies; `point` is at the tile's first column and the first k, and `number` is the index of the
    /// thread among those that copy.
    pub fn new(
        cx: &Cx<Ptx>,
        asm: &mut Ptx,
        (operand, panels): (&Operand, Panels),
        point: &Point,
        number: Val,
    ) -> Chunks {
        let column = point.line(cx, asm, &operand.access.coords[1]);
        let first = in_panels(asm, panels, column, operand.rows % panels.width == 0);
        // Number of columns of a panel that belong to the tile.
        let columns = panels.width.min(operand.rows);
        let n_chunks = operand.lines();
        let (run_bytes, n_runs) = match operand.rows == panels.width {
            true => (operand.tile_bytes(), 1),
            false => (columns * CHUNK_BYTES, n_chunks * operand.rows.div_euclid(columns)),
        };
        let runs = asm.int(n_runs, Ty::I32);
        let takes_part = asm.cmpi(CmpI::Ult, number, runs);
        // Indices, within the tile, of the run's group of k and of its panel.
        let within = asm.int(n_chunks - 1, Ty::I32);
        let chunk = asm.bin(Bin::AndI, number, within);
        let panel = shift(asm, Bin::ShRUI, number, log2(n_chunks));
        let times = |asm: &mut Ptx, v: Val, by: i64| {
            let by = asm.int(by, Ty::I32);
            asm.bin(Bin::MulI, v, by)
        };
        let (down, across) = (times(asm, chunk, operand.pitch()), times(asm, panel, columns * CHUNK_BYTES));
        let target = asm.bin(Bin::AddI, down, across);
        let wide = |asm: &mut Ptx, v: Val, by: i64| {
            let (v, by) = (asm.cast(Cast::ExtUI, v, Elem::I64), asm.i64(by));
            asm.bin(Bin::MulI, v, by)
        };
        let chunk_bytes = panels.width * CHUNK_BYTES;
        let (down, across) = (wide(asm, chunk, chunk_bytes), wide(asm, panel, panels.groups() * chunk_bytes));
        let first = shift(asm, Bin::ShLI, first, log2(CHUNK_BYTES));
        let at = asm.bin(Bin::AddI, first, down);
        let at = asm.bin(Bin::AddI, at, across);
        let start = asm.element(cx.reads[operand.access.buffer], at, Elem::I8);
        let source = asm.register(Ty::PTR);
        asm.set(source, start);
        Chunks { takes_part, source, target, run_bytes, tile_step: n_chunks * chunk_bytes }
    }

    /// Starts the copies of the next tile to shared memory at `tile`. The mbarrier counts the bytes that arrive.
    pub fn copy(&self, asm: &mut Ptx, tile: Val, barrier: &str) {
        let to = asm.bin(Bin::AddI, tile, self.target);
        let [guard, to, from] = [self.takes_part, to, self.source].map(|v| asm.name(v, 0));
        let kind = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
        asm.line(&format!("@{guard} {kind} [{to}], [{from}], {}, [{barrier}];", self.run_bytes));
        let step = asm.i64(self.tile_step);
        let source = asm.element(self.source, step, Elem::I8);
        asm.set(self.source, source);
    }
}
