//! queries · a panel of keys => scores; weights · values => mixtures (weighted sums of values): both products are
//! accumulated in registers

use super::plan::{SCORE_STEP, WIDTH};
use super::{Group, Item, Keys, State, at, ceildiv, hoist, plus};
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};

/// Values that the weights are multiplied with.
#[derive(Clone, Copy)]
enum Values {
    /// Values in memory: their address, and the number of elements from row to row.
    At(Val, Val),
    /// Computed from the loads of the value's statement at each use.
    Computed,
}

impl Item<'_> {
    /// scores[row][first + j] = Σd queries[row][d] · panel[d][j], over ascending d; with `at_once`, x = g(score) is
    /// stored instead if the panel is full.
    pub fn score(&self, asm: &mut Mlir, group: Group, size: i64, keys: Keys, first: Val, panel: Val) {
        let plan = self.plan;
        let ty = Ty::new(Elem::F32, self.cx.lanes());
        let lanes = ty.lanes as i64;
        let vectors = if size <= 2 { WIDTH / lanes } else { 2 };
        let (zero, one, width, by) = (asm.i64(0), asm.i64(1), asm.i64(WIDTH), asm.i64(vectors * lanes));
        let n_words = asm.i64(self.n_words());
        let scores = asm.element(self.scores, first, Elem::F32);
        let (queries, query_step) = match &plan.queries {
            Some((access, step)) => {
                let mut point = self.row_point(asm, group.row);
                point.vars[plan.d] = Some(zero);
                let start = point.start(self.cx, asm, access, None);
                (asm.element(self.cx.reads[access.buffer], start, Elem::F32), *step)
            }
            None => (at(asm, self.queries, group.row, self.word_step(), zero), self.word_step()),
        };
        asm.for_loop((zero, width, by), &[], |asm, column, _| {
            let panel = asm.element(panel, column, Elem::F32);
            let none = vec![asm.zero(ty); (size * vectors) as usize];
            let sums = asm.for_loop((zero, n_words, one), &none, |asm, d, sums| {
                let row = at(asm, panel, d, WIDTH, zero);
                let keys: Vec<Val> = (0..vectors).map(|v| load(asm, row, v * lanes, ty, 32)).collect();
                let query = asm.element(queries, d, Elem::F32);
                let numbers = |asm: &mut Mlir, i: i64| {
                    let number = load(asm, query, i * query_step, Ty::F32, 4);
                    asm.widen(number, ty.lanes)
                };
                self.products(asm, size, &numbers, &keys, sums)
            });
            let to = asm.element(scores, column, Elem::F32);
            if !self.at_once {
                store_scores(asm, to, vectors, &sums);
                return vec![];
            }
            let behind = plus(asm, first, WIDTH);
            let whole = asm.cmpi(CmpI::Sle, behind, keys.n);
            let column = asm.bin(Bin::AddI, first, column);
            asm.if_else(
                whole,
                &[],
                |asm| {
                    let sums = self.apply_at_once(asm, keys, column, vectors, sums.clone());
                    store_scores(asm, to, vectors, &sums);
                    vec![]
                },
                |asm| {
                    store_scores(asm, to, vectors, &sums);
                    vec![]
                },
            );
            vec![]
        });
    }

    /// mixed[row][e] = mixed[row][e] · fade[row] + Σj weights[row][j] · values[j][e], over ascending j.
    pub fn mix(&self, asm: &mut Mlir, group: Group, size: i64, keys: Keys) {
        let (cx, plan) = (self.cx, self.plan);
        let lanes = cx.lanes() as i64;
        let most = if size <= 2 { WIDTH / lanes } else { 2 };
        let zero = asm.i64(0);
        let values = match &plan.values {
            _ if plan.copies_values() => Values::At(self.values, asm.i64(plan.mixed_step())),
            None => Values::Computed,
            Some(access) => {
                let mut point = self.point.clone();
                (point.vars[plan.j], point.vars[plan.e]) = (Some(keys.j0), Some(zero));
                let start = point.start(cx, asm, access, None);
                let step = cx.size(asm, access.stride(plan.j));
                Values::At(asm.element(cx.reads[access.buffer], start, Elem::F32), step)
            }
        };
        let whole = plan.n_e / (most * lanes) * most * lanes;
        let (end, by) = (asm.i64(whole), asm.i64(most * lanes));
        asm.for_loop((zero, end, by), &[], |asm, e, _| {
            self.mix_columns(asm, group, size, keys, values, e, &vec![None; most as usize]);
            vec![]
        });
        if whole < plan.n_e {
            let vectors = (plan.n_e - whole + lanes - 1) / lanes;
            let masks: Vec<Option<Val>> = (0..vectors).map(|v| self.column_mask(asm, whole + v * lanes)).collect();
            self.mix_columns(asm, group, size, keys, values, end, &masks);
        }
    }

    /// Mask of the columns that exist in the vector from `first` on, or `None` if all do. Rows of copied values are
    /// padded, so they need no mask.
    fn column_mask(&self, asm: &mut Mlir, first: i64) -> Option<Val> {
        let lanes = self.cx.lanes();
        let left = self.plan.n_e - first;
        (left < lanes as i64 && !self.plan.copies_values()).then(|| {
            let (left, iota) = (asm.i64(left), asm.iota(lanes));
            let left = asm.widen(left, lanes);
            asm.cmpi(CmpI::Slt, iota, left)
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn mix_columns(
        &self,
        asm: &mut Mlir,
        group: Group,
        size: i64,
        keys: Keys,
        values: Values,
        e: Val,
        masks: &[Option<Val>],
    ) {
        let (cx, plan) = (self.cx, self.plan);
        let ty = Ty::new(Elem::F32, cx.lanes());
        let lanes = ty.lanes as i64;
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let n_words = if self.pairs { ceildiv(asm, keys.n, 2) } else { keys.n };
        let place = |asm: &mut Mlir, i: i64, v: usize| {
            let (row, e) = (plus(asm, group.row, i), plus(asm, e, v as i64 * lanes));
            at(asm, self.mixed, row, plan.mixed_step(), e)
        };
        let faded = |asm: &mut Mlir| {
            let mut before = vec![];
            for i in 0..size {
                let row = plus(asm, group.row, i);
                let fade = self.state(asm, State::Fade, row);
                let fade = asm.load(fade, Ty::F32, 4);
                let fade = asm.widen(fade, ty.lanes);
                for v in 0..masks.len() {
                    let address = place(asm, i, v);
                    let mixed = asm.load(address, ty, 64);
                    before.push(asm.bin(Bin::MulF, mixed, fade));
                }
            }
            before
        };
        // Before the first block the mixtures are 0.
        let none = asm.zero(ty);
        let count = size as usize * masks.len();
        let before = asm.if_else(keys.fresh, &vec![ty; count], |_| vec![none; count], faded);
        let sums = asm.for_loop((zero, n_words, one), &before, |asm, j, sums| {
            let columns = match values {
                Values::At(values, step) => {
                    let row = asm.bin(Bin::MulI, j, step);
                    let row = asm.bin(Bin::AddI, row, e);
                    let row = asm.element(values, row, Elem::F32);
                    let column = |(v, mask): (usize, &Option<Val>)| match mask {
                        None => load(asm, row, v as i64 * lanes, ty, 4),
                        Some(mask) => {
                            let at = asm.i64(v as i64 * lanes);
                            let address = asm.element(row, at, Elem::F32);
                            asm.masked_load(address, *mask, ty)
                        }
                    };
                    masks.iter().enumerate().map(column).collect()
                }
                Values::Computed => {
                    let mut point = self.point.clone();
                    point.vars[plan.j] = Some(asm.bin(Bin::AddI, keys.j0, j));
                    hoist(cx, asm, &mut point, plan.value, 1 << plan.e);
                    (point.along, point.lanes, point.in_steps) = (plan.e, cx.lanes(), true);
                    let mut columns = vec![];
                    for v in 0..masks.len() {
                        let mut point = point.clone();
                        point.vars[plan.e] = Some(plus(asm, e, v as i64 * lanes));
                        let column = point.eval(cx, asm, plan.value);
                        columns.push(asm.widen(column, cx.lanes()));
                    }
                    columns
                }
            };
            let weights = asm.element(self.scores, j, Elem::F32);
            let numbers = |asm: &mut Mlir, i: i64| {
                let number = load(asm, weights, i * SCORE_STEP, Ty::F32, 4);
                asm.widen(number, ty.lanes)
            };
            self.products(asm, size, &numbers, &columns, sums)
        });
        for (n, sum) in sums.into_iter().enumerate() {
            let address = place(asm, (n / masks.len()) as i64, n % masks.len());
            asm.store(sum, address, 64);
        }
    }

    /// Adds products to accumulators: returns sums[i][v] + number(i) · vectors[v] for `size` rows i. If operands are
    /// pairs of bf16, each lane adds the products of both elements.
    fn products(
        &self,
        asm: &mut Mlir,
        size: i64,
        number: &dyn Fn(&mut Mlir, i64) -> Val,
        vectors: &[Val],
        sums: &[Val],
    ) -> Vec<Val> {
        let mut next = vec![];
        for i in 0..size {
            let number = number(asm, i);
            for (v, vector) in vectors.iter().enumerate() {
                let sum = sums[i as usize * vectors.len() + v];
                next.push(match self.pairs {
                    true => asm.isa.dot_pairs(asm, sum, number, *vector),
                    false => asm.fma(number, *vector, sum),
                });
            }
        }
        next
    }
}

/// Stores scores[i][v] = vector v of row i, for `vectors` vectors per row.
fn store_scores(asm: &mut Mlir, to: Val, vectors: i64, scores: &[Val]) {
    for (n, score) in scores.iter().enumerate() {
        let (i, v) = (n as i64 / vectors, n as i64 % vectors);
        let at = asm.i64(i * SCORE_STEP + v * score.ty.lanes as i64);
        let address = asm.element(to, at, Elem::F32);
        asm.store(*score, address, 32);
    }
}

fn load(asm: &mut Mlir, base: Val, at: i64, ty: Ty, align: u32) -> Val {
    let at = asm.i64(at);
    let address = asm.element(base, at, Elem::F32);
    asm.load(address, ty, align)
}
