//! Copies of operands: q[i, d]  =>  scratch[i][d]; k[j, d]  =>  panels [d][32 keys]; v[j, e]  =>  scratch[j][e]

use super::plan::WIDTH;
use super::{Item, Keys, State, along, at, ceildiv, has_masks, hoist, plus};
use crate::asm::{Asm, Mlir};
use crate::asm::{Bin, Cast, CmpI, Elem, Ty, Val};
use crate::contract::transpose;
use crate::eval::Point;

impl Item<'_> {
    /// Initialises the softmax state of the rows; copies the item's queries to scratch if they cannot be read in place.
    pub fn begin(&self, asm: &mut Mlir) {
        let (cx, plan) = (self.cx, self.plan);
        if plan.queries.is_none() {
            self.stage(asm, plan.left, self.rows, self.queries, |asm, row| self.row_point(asm, row));
        }
        let (zero, one, least) = (asm.i64(0), asm.i64(1), asm.float(f64::NEG_INFINITY, Ty::F32));
        let (none, ty) = (asm.zero(Ty::F32), Ty::new(Elem::F32, cx.lanes()));
        let (zeros, step, end) = (asm.zero(ty), asm.i64(ty.lanes as i64), asm.i64(plan.mixed_step()));
        asm.for_loop((zero, self.rows, one), &[], |asm, row, _| {
            for (what, value) in [(State::Max, least), (State::Shift, none), (State::Total, none)] {
                let address = self.state(asm, what, row);
                asm.store(value, address, 4);
            }
            vec![]
        });
        // The first block of keys overwrites the mixtures (weighted sums of values); without keys, they become 0 here.
        let no_keys = asm.cmpi(CmpI::Sle, self.n_keys, zero);
        asm.if_then(no_keys, |asm| {
            asm.for_loop((zero, self.rows, one), &[], |asm, row, _| {
                asm.for_loop((zero, end, step), &[], |asm, e, _| {
                    let address = at(asm, self.mixed, row, plan.mixed_step(), e);
                    asm.store(zeros, address, 64);
                    vec![]
                });
                vec![]
            });
        });
    }

    /// Stores to[row][d] = the value of `statement` at d and the point that `point` returns for the row.
    fn stage(&self, asm: &mut Mlir, statement: usize, rows: Val, to: Val, point: impl Fn(&mut Mlir, Val) -> Point) {
        let (cx, plan) = (self.cx, self.plan);
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let masks = has_masks(cx, vec![statement]);
        asm.for_loop((zero, rows, one), &[], |asm, row, _| {
            let mut point = point(asm, row);
            hoist(cx, asm, &mut point, statement, 1 << plan.d);
            along(cx, asm, &point, (plan.d, plan.n_d), masks, |asm, mut point| {
                let v = point.eval(cx, asm, statement);
                // The store is not masked: lanes beyond the last d are stored to the padding at the end of the row.
                let v = asm.widen(v, point.lanes);
                let d = point.vars[plan.d].expect("inside the loop");
                let step = asm.i64(plan.row_step());
                let start = asm.bin(Bin::MulI, row, step);
                let start = asm.bin(Bin::AddI, start, d);
                self.store(asm, v, (to, start));
            });
            vec![]
        });
    }

    /// Stores elements from index `at` on: as bf16 if a word holds a pair (`self.pairs`), else as f32.
    pub fn store(&self, asm: &mut Mlir, v: Val, (to, at): (Val, Val)) {
        let (v, elem, align) = match self.pairs {
            true => (asm.bf16_bits(v), Elem::I16, 2),
            false => (v, Elem::F32, 4),
        };
        let address = asm.element(to, at, elem);
        asm.store(v, address, align);
    }

    /// Copies values[j][e] of a block of keys to scratch. If a word holds a pair, it holds the values of two adjacent
    /// keys at the same e.
    pub fn copy_values(&self, asm: &mut Mlir, keys: Keys) {
        let (cx, plan) = (self.cx, self.plan);
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let masks = has_masks(cx, vec![plan.value]);
        let n = if self.pairs { ceildiv(asm, keys.n, 2) } else { keys.n };
        let last = asm.bin(Bin::SubI, keys.n, one);
        asm.for_loop((zero, n, one), &[], |asm, row, _| {
            let of_key = |asm: &mut Mlir, j: Val| {
                let mut point = self.point.clone();
                let j = asm.bin(Bin::MinSI, j, last);
                point.vars[plan.j] = Some(asm.bin(Bin::AddI, keys.j0, j));
                hoist(cx, asm, &mut point, plan.value, 1 << plan.e);
                point
            };
            let first = if self.pairs { asm.bin(Bin::AddI, row, row) } else { row };
            let second = self.pairs.then(|| {
                let j = plus(asm, first, 1);
                let there = asm.cmpi(CmpI::Sle, j, last);
                (of_key(asm, j), there)
            });
            let first = of_key(asm, first);
            along(cx, asm, &first, (plan.e, plan.n_e), masks, |asm, mut point| {
                let e = point.vars[plan.e].expect("inside the loop");
                let mut v = point.eval(cx, asm, plan.value);
                if let Some((second, there)) = &second {
                    let mut other = Point { values: second.values.clone(), ..point.clone() };
                    other.vars[plan.j] = second.vars[plan.j];
                    let upper = other.eval(cx, asm, plan.value);
                    // The last pair may lack its second key. Then the weight is 0, and the value must be finite.
                    let none = asm.zero(upper.ty);
                    let there = asm.widen(*there, upper.ty.lanes);
                    let upper = asm.select(there, upper, none);
                    v = word(asm, v, upper);
                }
                let v = asm.widen(v, point.lanes);
                let address = at(asm, self.values, row, plan.mixed_step(), e);
                asm.store(v, address, 4);
            });
            vec![]
        });
        if self.tiles {
            self.clear_values(asm, keys, n);
        }
    }

    /// Transposes up to 32 keys, from key `first` of the block on, into `panel`.
    pub fn transpose_keys(&self, asm: &mut Mlir, keys: Keys, first: Val, panel: Val) {
        let (cx, plan) = (self.cx, self.plan);
        let (zero, width) = (asm.i64(0), asm.i64(WIDTH));
        let left = asm.bin(Bin::SubI, keys.n, first);
        let n = asm.bin(Bin::MinSI, left, width);
        let j = asm.bin(Bin::AddI, keys.j0, first);
        let (source, step) = match &plan.keys {
            Some(access) => {
                let mut point = self.point.clone();
                (point.vars[plan.j], point.vars[plan.d]) = (Some(j), Some(zero));
                let start = point.start(cx, asm, access, None);
                let step = cx.size(asm, access.stride(plan.j));
                (asm.element(cx.reads[access.buffer], start, Elem::F32), step)
            }
            None => {
                let point = |asm: &mut Mlir, row: Val| {
                    let mut point = self.point.clone();
                    point.vars[plan.j] = Some(asm.bin(Bin::AddI, j, row));
                    point
                };
                self.stage(asm, plan.right, n, self.staged, point);
                (self.staged, asm.i64(self.word_step()))
            }
        };
        self.transpose_panel(asm, (source, step), n, panel);
    }

    /// Stores to[d][j] = source[j · step + d] for `n` keys; the columns after the last key repeat that key.
    fn transpose_panel(&self, asm: &mut Mlir, (source, step): (Val, Val), n: Val, to: Val) {
        let (n_words, lanes) = (self.n_words(), self.cx.lanes() as i64);
        let (zero, one, width, by) = (asm.i64(0), asm.i64(1), asm.i64(WIDTH), asm.i64(lanes));
        let last = asm.bin(Bin::SubI, n, one);
        asm.for_loop((zero, width, by), &[], |asm, first, _| {
            let column = |asm: &mut Mlir, j: i64| {
                let column = plus(asm, first, j);
                let column = asm.bin(Bin::MinSI, column, last);
                let start = asm.bin(Bin::MulI, column, step);
                asm.element(source, start, Elem::F32)
            };
            let columns: Vec<Val> = (0..lanes).map(|j| column(asm, j)).collect();
            let whole = n_words / lanes * lanes;
            let end = asm.i64(whole);
            let square = |asm: &mut Mlir, d: Val, mask: Option<Val>| {
                let ty = Ty::new(Elem::F32, lanes as u32);
                let load = |asm: &mut Mlir, column: &Val| {
                    let address = asm.element(*column, d, Elem::F32);
                    match mask {
                        Some(mask) => asm.masked_load(address, mask, ty),
                        None => asm.load(address, ty, 4),
                    }
                };
                let mut rows: Vec<Val> = columns.iter().map(|c| load(asm, c)).collect();
                transpose(asm, &mut rows);
                for (i, row) in rows.into_iter().enumerate() {
                    let d = plus(asm, d, i as i64);
                    let address = at(asm, to, d, WIDTH, first);
                    asm.store(row, address, 32);
                }
            };
            asm.for_loop((zero, end, by), &[], |asm, d, _| {
                square(asm, d, None);
                vec![]
            });
            if whole < n_words {
                let (rest, iota) = (asm.i64(n_words - whole), asm.iota(lanes as u32));
                let rest = asm.widen(rest, lanes as u32);
                let mask = asm.cmpi(CmpI::Slt, iota, rest);
                square(asm, end, Some(mask));
            }
            vec![]
        });
    }
}

/// Packs two f32 that bf16 represents exactly into one word of two bf16, the first in the lower half.
fn word(asm: &mut Mlir, first: Val, second: Val) -> Val {
    let [first, second] = [first, second].map(|v| asm.cast(Cast::Bitcast, v, Elem::I32));
    let sixteen = asm.int(16, first.ty);
    let first = asm.bin(Bin::ShRUI, first, sixteen);
    let word = asm.bin(Bin::OrI, first, second);
    asm.cast(Cast::Bitcast, word, Elem::F32)
}
