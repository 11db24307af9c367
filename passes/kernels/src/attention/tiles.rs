//! queries by a panel of keys => scores; powers by values => mixtures: both products of bf16 pairs, in AMX tiles
//!
//! Tiles always have 16 rows. If a group has fewer, the remaining rows in scratch hold arbitrary numbers, and their
//! results are not read. Words after the last key are 0 in both operands.

use super::plan::{Plan, SCORE_STEP, TILE, WIDTH};
use super::{Group, Item, Keys, State, at, ceildiv};
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};
use crate::contract::tiles::{between, shapes};
use crate::cx::Cx;

/// Numbers of the tiles: two accumulators of 16 columns each, operand A, and the two halves of operand B.
const SUMS: [u8; 2] = [0, 1];
const LEFT: u8 = 2;
const RIGHT: [u8; 2] = [3, 4];

/// Operand or accumulator in memory: its address, and the number of floats from one row to the next.
#[derive(Clone, Copy)]
struct Factor {
    at: Val,
    step: i64,
}

/// Configures the tiles only during a kernel's work, because live tiles make thread switches slower.
pub fn with_tile_config(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, work: impl FnOnce(&mut Mlir)) {
    if !plan.uses_tiles(cx.launch.level) {
        return work(asm);
    }
    // Scratch is unused at this point, so it can hold the configuration.
    let rows = asm.i64(i64::from_ne_bytes([TILE as u8; 8]));
    between(cx, asm, |asm| shapes(asm, cx.launch.scratch, rows), work);
}

impl Item<'_> {
    /// scores[row][first + j] = Σd queries[row][d] · panel[d][j]
    pub fn score_in_tiles(&self, asm: &mut Mlir, group: Group, first: Val, panel: Val) {
        let zero = asm.i64(0);
        let step = self.word_step();
        let left = Factor { at: at(asm, self.queries, group.row, step, zero), step };
        let n = asm.i64(self.n_words() / TILE);
        SUMS.iter().for_each(|sum| asm.isa.clear_tile(asm, *sum));
        products(asm, n, left, Factor { at: panel, step: WIDTH });
        let to = asm.element(self.scores, first, Elem::F32);
        each_sum(asm, |asm, sum, at, step| asm.isa.store_tile(asm, sum, at, step), Factor { at: to, step: SCORE_STEP });
    }

    /// mixed[row][e] = mixed[row][e] · fade[row] + Σj powers[row][j] · values[j][e]
    pub fn mix_in_tiles(&self, asm: &mut Mlir, group: Group, keys: Keys) {
        let step = self.plan.mixed_step();
        let ty = Ty::new(Elem::F32, self.cx.lanes());
        let (zero, one, lanes) = (asm.i64(0), asm.i64(1), asm.i64(ty.lanes as i64));
        let (width, end) = (asm.i64(WIDTH), asm.i64(step));
        // Before the first block the mixtures are 0.
        let faded = asm.select(keys.fresh, zero, group.n);
        let others = asm.cmpi(CmpI::Sgt, faded, zero);
        asm.for_loop((zero, faded, one), &[], |asm, i, _| {
            let row = asm.bin(Bin::AddI, group.row, i);
            let fade = self.state(asm, State::Fade, row);
            let fade = asm.load(fade, Ty::F32, 4);
            let fade = asm.widen(fade, ty.lanes);
            asm.for_loop((zero, end, lanes), &[], |asm, e, _| {
                let address = at(asm, self.mixed, row, step, e);
                let mixed = asm.load(address, ty, 64);
                let mixed = asm.bin(Bin::MulF, mixed, fade);
                asm.store(mixed, address, 64);
                vec![]
            });
            vec![]
        });
        let n = ceildiv(asm, keys.n, WIDTH);
        asm.for_loop((zero, end, width), &[], |asm, e, _| {
            let mixed = Factor { at: at(asm, self.mixed, group.row, step, e), step };
            SUMS.iter().for_each(|sum| asm.isa.clear_tile(asm, *sum));
            asm.if_then(others, |asm| each_sum(asm, |asm, sum, at, step| asm.isa.load_tile(asm, sum, at, step), mixed));
            let values = asm.element(self.values, e, Elem::F32);
            let powers = Factor { at: self.scores, step: SCORE_STEP };
            products(asm, n, powers, Factor { at: values, step });
            each_sum(asm, |asm, sum, at, step| asm.isa.store_tile(asm, sum, at, step), mixed);
            vec![]
        });
    }

    /// Clears the rows of values after the last key, up to a full tile of words.
    pub fn clear_values(&self, asm: &mut Mlir, keys: Keys, first: Val) {
        let ty = Ty::new(Elem::F32, self.cx.lanes());
        let (zero, one, lanes) = (asm.i64(0), asm.i64(1), asm.i64(ty.lanes as i64));
        let (n, tile, step) = (ceildiv(asm, keys.n, WIDTH), asm.i64(TILE), asm.i64(self.plan.mixed_step()));
        let end = asm.bin(Bin::MulI, n, tile);
        let none = asm.zero(ty);
        asm.for_loop((first, end, one), &[], |asm, row, _| {
            asm.for_loop((zero, step, lanes), &[], |asm, e, _| {
                let address = at(asm, self.values, row, self.plan.mixed_step(), e);
                asm.store(none, address, 64);
                vec![]
            });
            vec![]
        });
    }
}

/// Loads or stores both accumulator tiles.
fn each_sum(asm: &mut Mlir, how: impl Fn(&mut Mlir, u8, Val, Val), place: Factor) {
    let stride = asm.i64(4 * place.step);
    for (i, sum) in SUMS.iter().enumerate() {
        let at = asm.i64(i as i64 * TILE);
        let address = asm.element(place.at, at, Elem::F32);
        how(asm, *sum, address, stride);
    }
}

/// Adds left · right to the accumulators, over `n` tiles of words along the reduction.
fn products(asm: &mut Mlir, n: Val, left: Factor, right: Factor) {
    let (zero, one) = (asm.i64(0), asm.i64(1));
    let strides = [left, right].map(|f| asm.i64(4 * f.step));
    asm.for_loop((zero, n, one), &[], |asm, k, _| {
        let part = |asm: &mut Mlir, from: Val, floats: i64| {
            let floats = asm.i64(floats);
            let start = asm.bin(Bin::MulI, k, floats);
            asm.element(from, start, Elem::F32)
        };
        let a = part(asm, left.at, TILE);
        asm.isa.load_tile(asm, LEFT, a, strides[0]);
        let b = part(asm, right.at, TILE * right.step);
        for (i, (sum, half)) in SUMS.iter().zip(RIGHT).enumerate() {
            let at = asm.i64(i as i64 * TILE);
            let address = asm.element(b, at, Elem::F32);
            asm.isa.load_tile(asm, half, address, strides[1]);
            asm.isa.multiply_pairs(asm, *sum, LEFT, half);
        }
        vec![]
    });
}
