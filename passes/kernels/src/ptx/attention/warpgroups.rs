//! q, k, v of f16 or bf16  =>  o: the products of a tile of keys on warpgroups (`wgmma`), fed by a warp that only copies
//!
//! A warpgroup has 64 queries, and each of its warps 16 of them, in the registers that `mma.sync` would use, so that the
//! exponentials and the results are computed by the same code. Queries, keys and values are read from shared memory;
//! the exponentials remain in registers. The tiles of keys and values pass through a ring, so that one warpgroup can
//! compute exponentials while the other multiplies.

use super::super::descriptor::{STEP, STEP_BYTES, Tile, multiply};
use super::super::gemm::copy::{log2, shift};
use super::super::gemm::mma::{Factors, Sums};
use super::super::ring::{self, Ring};
use super::fill::Source;
use super::flash::{Pipe, place, queries_left, start};
use super::fragments::{fragments_of, zeros};
use super::plan::{COPYING, Flash, ROWS};
use super::softmax::Block;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::eval::Point;

/// Emits the code of one block, in an entry with `bytes` bytes of shared memory.
pub fn block(cx: &Cx<Ptx>, asm: &mut Ptx, flash: &Flash, bytes: i64) {
    let (point, [i0, e0]) = place(cx, asm, flash);
    let start = start(asm, flash, point.clone(), [i0, e0]);
    let thread = asm.special("%tid.x");
    let queries = ring::pattern_start(asm, bytes);
    let behind = asm.int(flash.q.bytes(), Ty::I32);
    let first_stage = asm.bin(Bin::AddI, queries, behind);
    let (n_keys, more) = (cx.extent(asm, flash.roles.j), asm.i64(flash.keys - 1));
    let up = asm.bin(Bin::AddI, n_keys, more);
    let pieces = shift(asm, Bin::ShRUI, up, log2(flash.keys));
    let pieces = asm.cast(Cast::TruncI, pieces, Elem::I32);
    let ring = Ring::new(asm, (flash.stages, flash.stage_bytes()), first_stage, pieces);
    ring.init(asm, thread, (COPYING, flash.threads() / 32));
    let multiplying = asm.int(flash.threads(), Ty::I32);
    let multiplies = asm.cmpi(CmpI::Ult, thread, multiplying);
    let multiply = |asm: &mut Ptx| {
        let who = (thread, flash.threads());
        let source = Source::new(cx, asm, &flash.q, &start, who);
        let left = queries_left(cx, asm, flash, i0);
        source.fill(asm, queries, Some(i0), left);
        asm.line("cp.async.commit_group;");
        asm.line("cp.async.wait_group 0;");
        asm.line("fence.proxy.async.shared::cta;");
        asm.line(&format!("bar.sync 1, {};", flash.threads()));
        multiply_all(cx, asm, (flash, &ring), (point.clone(), [i0, e0]), (thread, queries));
        vec![]
    };
    let copy = |asm: &mut Ptx| {
        let number = asm.bin(Bin::SubI, thread, multiplying);
        let pipe = Pipe::new(cx, asm, flash, &start, (number, COPYING));
        ring.fill(asm, |asm, piece, stage, _| {
            let first = first_key(asm, flash, piece);
            pipe.copy(asm, stage, first);
        });
        vec![]
    };
    asm.if_else(multiplies, &[], multiply, copy);
}

/// Code of a multiplying warp, whose block has its queries at the address `queries`: all tiles of keys, then the results.
fn multiply_all(
    cx: &Cx<Ptx>,
    asm: &mut Ptx,
    (flash, ring): (&Flash, &Ring),
    (point, [i0, e0]): (Point, [Val; 2]),
    (thread, queries): (Val, Val),
) {
    let warp = shift(asm, Bin::ShRUI, thread, 5);
    let (zero, lane) = (asm.int(0, Ty::I32), asm.special("%laneid"));
    let is_first = asm.cmpi(CmpI::Eq, lane, zero);
    let block = Block::new(cx, asm, flash, point, (zero, queries));
    let own = shift(asm, Bin::ShLI, warp, log2(ROWS));
    let own = asm.cast(Cast::ExtUI, own, Elem::I64);
    let first_row = asm.bin(Bin::AddI, i0, own);
    let rows = block.rows(asm, first_row);
    let sums = zeros(asm, flash.warp_columns());
    let products = Products::new(cx, asm, flash, (warp, queries));
    let read = ring.turn(asm);
    ring.drain(asm, |asm, piece| {
        let stage = ring.wait_full(asm, &read);
        let scores = products.scores(asm, stage);
        let first = first_key(asm, flash, piece);
        let powers = block.weigh(asm, &rows, &scores, first, &sums);
        products.add_values(asm, stage, &powers, &sums);
        ring.release(asm, &read, is_first);
    });
    block.finish(asm, rows, &sums, e0);
}

/// First key of a tile.
fn first_key(asm: &mut Ptx, flash: &Flash, piece: Val) -> Val {
    let piece = asm.cast(Cast::ExtUI, piece, Elem::I64);
    shift(asm, Bin::ShLI, piece, log2(flash.keys))
}

/// The products of a warpgroup.
struct Products<'a> {
    flash: &'a Flash,
    /// Types of the factors of the scores and of the weighted sums.
    factors: [Factors; 2],
    /// Number of instructions along d.
    steps: i64,
    q: Tile,
    k: Tile,
    v: Tile,
    /// Descriptor of the warpgroup's queries.
    queries: Val,
}

impl<'a> Products<'a> {
    fn new(cx: &Cx<Ptx>, asm: &mut Ptx, flash: &'a Flash, (warp, queries): (Val, Val)) -> Products<'a> {
        let [q, k] = [&flash.q, &flash.k].map(|tile| Tile::along_k(tile.lines, STEP_BYTES));
        let group = shift(asm, Bin::ShRUI, warp, 2);
        let bytes = asm.int(q.warpgroup_bytes, Ty::I32);
        let before = asm.bin(Bin::MulI, group, bytes);
        let at = asm.bin(Bin::AddI, queries, before);
        let queries = q.descriptor(asm, at);
        let (factors, steps) = (flash.factors(cx.def), flash.score_steps(cx.def));
        Products { flash, factors, steps, q, k, v: Tile::along_rows(flash.keys), queries }
    }

    /// Returns the scores of the warp's queries and of the keys of a stage: for every eight keys, a thread has four.
    fn scores(&self, asm: &mut Ptx, stage: Val) -> Sums {
        let of = (0..self.flash.keys / 8).map(|_| asm.register(Ty::new(Elem::F32, 4))).collect();
        let sums = Sums { of: vec![of] };
        let keys = self.k.descriptor(asm, stage);
        asm.line("wgmma.fence.sync.aligned;");
        for step in 0..self.steps {
            let a = self.q.of_step(asm, self.queries, step);
            let b = self.k.of_step(asm, keys, step);
            let a = asm.name(a, 0);
            multiply(asm, self.factors[0], &sums.of[0], (&a, b), (step > 0, "0, 0"), None);
        }
        wait(asm);
        sums
    }

    /// Adds the products of the exponentials `powers` with the values of a stage to `sums`.
    fn add_values(&self, asm: &mut Ptx, stage: Val, powers: &[[Val; 2]], sums: &Sums) {
        let behind = asm.int(self.flash.k.bytes(), Ty::I32);
        let at = asm.bin(Bin::AddI, stage, behind);
        let values = self.v.descriptor(asm, at);
        let fragments: Vec<String> = powers
            .chunks(STEP as usize / 8)
            .map(|powers| {
                let rows = fragments_of(asm, self.factors[1], powers);
                // The first eight keys of both rows, then the other eight.
                let words = [rows[0][0], rows[1][0], rows[0][1], rows[1][1]].map(|v| asm.name(v, 0));
                format!("{{{}}}", words.join(", "))
            })
            .collect();
        asm.line("wgmma.fence.sync.aligned;");
        for (step, a) in fragments.iter().enumerate() {
            let b = self.v.of_step(asm, values, step as i64);
            multiply(asm, self.factors[1], &sums.of[0], (a, b), (true, "1"), None);
        }
        wait(asm);
    }
}

/// Waits until the products have been computed.
fn wait(asm: &mut Ptx) {
    asm.line("wgmma.commit_group.sync.aligned;");
    asm.line("wgmma.wait_group.sync.aligned 0;");
}
