//! Scores of a tile of keys  =>  exponentials relative to the largest score so far; earlier accumulators are rescaled
//! to it
//!
//! A thread has two of a warp's 16 rows, each shared by four threads; of every eight keys it has two scores per row.

use super::super::gemm::copy::shift;
use super::super::gemm::mma::Sums;
use super::plan::{Flash, ROWS};
use super::sums::open_cone;
use crate::asm::{Asm, Bin, Cast, CmpF, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;
use crate::scalar;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::ScalarFn;

/// One of the two rows of a thread.
pub struct Row {
    /// Point with the values of all statements that scores need and that do not depend on the key. Rows that do not
    /// exist repeat the last one.
    pub point: Point,
    /// Whether the row exists; `None` if all rows do.
    pub there: Option<Val>,
    /// Registers: the largest score so far, the number subtracted from scores, the thread's part of the sum of the
    /// exponentials.
    pub max: Val,
    pub shift: Val,
    pub total: Val,
}

/// Context shared by the parts of a block's code.
pub struct Block<'a> {
    pub cx: &'a Cx<'a, Ptx>,
    pub flash: &'a Flash,
    /// Point with the batch variables and the values of all statements that scores need and that depend on these only.
    pub point: Point,
    /// `%laneid`, its quotient by 4 (`group`), and the remainder (`quarter`).
    lane: Val,
    group: Val,
    pub quarter: Val,
    /// Index of the warp among those that share its rows.
    warp_n: Val,
    /// Address in shared memory at which these warps exchange data.
    exchange: Val,
}

impl<'a> Block<'a> {
    /// Evaluates the statements that depend on batch variables only. `tiles` is the address of the block's shared
    /// memory.
    pub fn new(
        cx: &'a Cx<'a, Ptx>,
        asm: &mut Ptx,
        flash: &'a Flash,
        mut point: Point,
        (warp_n, tiles): (Val, Val),
    ) -> Block<'a> {
        let lane = asm.special("%laneid");
        let (two, three) = (asm.int(2, Ty::I32), asm.int(3, Ty::I32));
        let (group, quarter) = (asm.bin(Bin::ShRUI, lane, two), asm.bin(Bin::AndI, lane, three));
        let behind = asm.int(flash.exchange_at(), Ty::I32);
        let exchange = asm.bin(Bin::AddI, tiles, behind);
        let mut block = Block { cx, flash, point: point.clone(), lane, group, quarter, warp_n, exchange };
        let row = flash.roles.i.map_or(0, |i| 1 << i);
        block.hoist(asm, &mut point, cx.def.inner_vars() | row);
        block.point = point;
        block
    }

    /// Evaluates the statements that scores need and that do not depend on the variables in `coming`, which get their
    /// values later.
    fn hoist(&self, asm: &mut Ptx, point: &mut Point, coming: VarSet) {
        let (cx, roles) = (self.cx, &self.flash.roles);
        let ready = |k: &usize| cx.deps[*k] & coming == 0 && !matches!(cx.def.body[*k].op, Op::Const(_));
        let mut of_scores = point.clone();
        // A placeholder value for the reduction keeps the statements that compute its operands out of the cone.
        of_scores.values[roles.sum] = Some(asm.zero(Ty::F32));
        for k in open_cone(cx.def, &of_scores, &[roles.score]).into_iter().filter(ready) {
            point.eval(cx, asm, k);
        }
    }

    /// Returns the thread's two rows of the warp whose rows begin at `first`.
    pub fn rows(&self, asm: &mut Ptx, first: Val) -> [Row; 2] {
        let (cx, roles) = (self.cx, &self.flash.roles);
        [0, 8].map(|below| {
            let mut point = self.point.clone();
            let below = asm.int(below, Ty::I32);
            let at = asm.bin(Bin::AddI, self.group, below);
            let at = asm.cast(Cast::ExtUI, at, Elem::I64);
            let at = asm.bin(Bin::AddI, first, at);
            // Without a query variable all rows are the same query; only the first is stored.
            let size = roles.i.map_or(Size::Const(1), |i| cx.def.extent(i));
            let whole = size.as_const().is_some_and(|n| n % self.flash.rows() == 0);
            let n = cx.size(asm, size);
            let there = (!whole).then(|| asm.cmpi(CmpI::Slt, at, n));
            if let Some(i) = roles.i {
                let one = asm.i64(1);
                let last = asm.bin(Bin::SubI, n, one);
                point.vars[i] = Some(if whole { at } else { asm.bin(Bin::MinSI, at, last) });
            }
            self.hoist(asm, &mut point, cx.def.inner_vars());
            let (least, zero) = (asm.float(f64::NEG_INFINITY, Ty::F32), asm.zero(Ty::F32));
            let shift = self.shift(asm, &point, least);
            let state = asm.variables(&[least, shift, zero]);
            Row { point, there, max: state[0], shift: state[1], total: state[2] }
        })
    }

    /// Number that is subtracted from scores whose maximum is `max`.
    fn shift(&self, asm: &mut Ptx, point: &Point, max: Val) -> Val {
        let mut point = point.clone();
        point.values[self.flash.roles.max] = Some(max);
        point.eval(self.cx, asm, self.flash.roles.shift)
    }

    /// Returns the point of the thread's two keys among the eight keys from `first + 8·n` on, with the values of all
    /// statements that scores need and that do not depend on the row.
    fn keys(&self, asm: &mut Ptx, first: Val, n: i64) -> Point {
        let (cx, roles) = (self.cx, &self.flash.roles);
        let mut point = self.point.clone();
        let (two, before) = (asm.int(2, Ty::I32), asm.int(8 * n, Ty::I32));
        let at = asm.bin(Bin::MulI, self.quarter, two);
        let at = asm.bin(Bin::AddI, at, before);
        let at = asm.cast(Cast::ExtUI, at, Elem::I64);
        let at = asm.bin(Bin::AddI, first, at);
        point.vars[roles.j] = Some(at);
        (point.along, point.lanes, point.multiple) = (roles.j, 2, 2);
        if cx.def.extent(roles.j).as_const().is_none_or(|n| n % self.flash.keys != 0) {
            let (end, iota) = (cx.extent(asm, roles.j), asm.iota(2));
            let (at, end) = (asm.widen(at, 2), asm.widen(end, 2));
            let at = asm.bin(Bin::AddI, at, iota);
            point.mask = Some(asm.cmpi(CmpI::Slt, at, end));
        }
        let row = roles.i.map_or(0, |i| 1 << i);
        self.hoist_keys(asm, &mut point, row);
        point
    }

    fn hoist_keys(&self, asm: &mut Ptx, point: &mut Point, row: VarSet) {
        let (cx, roles) = (self.cx, &self.flash.roles);
        let mut of_scores = point.clone();
        of_scores.values[roles.sum] = Some(asm.zero(Ty::F32));
        let cone = open_cone(cx.def, &of_scores, &[roles.score]);
        let mut after = vec![false; cx.def.body.len()];
        after[roles.sum] = true;
        for k in cone {
            after[k] = cx.def.operands(k).iter().any(|a| after[*a]);
            if !after[k] && cx.deps[k] & row == 0 && !matches!(cx.def.body[k].op, Op::Const(_)) {
                point.eval(cx, asm, k);
            }
        }
    }

    /// A row's two scores for these keys.
    fn score(&self, asm: &mut Ptx, row: &Row, keys: &Point, sums: Val) -> Val {
        let (cx, roles) = (self.cx, &self.flash.roles);
        let mut point = keys.clone();
        if let Some(i) = roles.i {
            point.vars[i] = row.point.vars[i];
        }
        for (to, from) in point.values.iter_mut().zip(&row.point.values) {
            *to = to.or(*from);
        }
        point.values[roles.sum] = Some(scalar::rounded(asm, sums, roles.score_type(cx.def)));
        let x = point.eval(cx, asm, roles.score);
        let x = asm.widen(x, 2);
        match point.mask {
            None => x,
            Some(mask) => {
                let least = asm.float(f64::NEG_INFINITY, x.ty);
                asm.select(mask, x, least)
            }
        }
    }

    /// First key of the warp in a tile that begins at `first`.
    pub fn own_keys(&self, asm: &mut Ptx, first: Val) -> Val {
        self.own(asm, first, self.flash.warp_keys())
    }

    /// First column of the warp in a block of columns of the result that begins at `first`.
    pub fn own_columns(&self, asm: &mut Ptx, first: Val) -> Val {
        self.own(asm, first, 8 * self.flash.warp_columns())
    }

    fn own(&self, asm: &mut Ptx, first: Val, each: i64) -> Val {
        if self.flash.warps_n == 1 {
            return first;
        }
        let each = asm.int(each, Ty::I32);
        let by = asm.bin(Bin::MulI, self.warp_n, each);
        let by = asm.cast(Cast::ExtUI, by, Elem::I64);
        asm.bin(Bin::AddI, first, by)
    }

    /// Returns the exponentials of a tile of keys, for every eight keys those of both rows, and rescales the
    /// accumulators `sums`. `scores` are those of the warp's own keys, which begin at `first`.
    pub fn weigh(&self, asm: &mut Ptx, rows: &[Row; 2], scores: &Sums, first: Val, sums: &Sums) -> Vec<[Val; 2]> {
        let keys: Vec<Point> = (0..scores.of[0].len()).map(|n| self.keys(asm, first, n as i64)).collect();
        let xs = [0, 1].map(|half| {
            let mut xs = vec![];
            for (keys, sum) in keys.iter().zip(&scores.of[0]) {
                let two = 2 * half as u32;
                let pair = asm.shuffle(*sum, *sum, &[two, two + 1]);
                xs.push(self.score(asm, &rows[half], keys, pair));
            }
            xs
        });
        let own = [0, 1].map(|half| largest(asm, rows[half].max, &xs[half]));
        let max = if self.flash.warps_n == 1 { own } else { self.exchange_largest(asm, own) };
        let mut scales = vec![];
        let mut powers = vec![];
        for half in 0..2 {
            let (scale, of_row) = self.weigh_row(asm, &rows[half], max[half], &xs[half]);
            scales.push(scale);
            powers.push(of_row);
        }
        let own: Vec<[Val; 2]> = powers[0].iter().zip(&powers[1]).map(|(a, b)| [*a, *b]).collect();
        let all = if self.flash.warps_n == 1 { own } else { self.exchange_powers(asm, &own) };
        for half in 0..2 {
            self.add_row(asm, &rows[half], scales[half], &all, half, sums);
        }
        all
    }

    /// Returns the factor that rescales a row's accumulators so far, and the exponentials of its scores.
    fn weigh_row(&self, asm: &mut Ptx, row: &Row, max: Val, xs: &[Val]) -> (Val, Vec<Val>) {
        let roles = &self.flash.roles;
        let shift = self.shift(asm, &row.point, max);
        // If all keys so far are masked, any finite shift works: the exponentials are 0.
        let finite = match roles.is_unbounded(self.cx.def) {
            true => {
                let (least, zero) = (asm.float(f64::NEG_INFINITY, Ty::F32), asm.zero(Ty::F32));
                let none = asm.cmpf(CmpF::Oeq, shift, least);
                asm.select(none, zero, shift)
            }
            false => shift,
        };
        let by = asm.bin(Bin::SubF, row.shift, finite);
        let scale = scalar::apply(asm, ScalarFn::Exp, &[by], DType::F32);
        let t = self.cx.def.body[roles.power].dtype;
        let mut powers = vec![];
        for x in xs {
            let finite = asm.widen(finite, 2);
            let below = scalar::apply(asm, ScalarFn::Sub, &[*x, finite], t);
            powers.push(scalar::apply(asm, ScalarFn::Exp, &[below], t));
        }
        asm.set(row.max, max);
        asm.set(row.shift, shift);
        (scale, powers)
    }

    /// Adds a row's exponentials to its total, and rescales its earlier accumulators.
    fn add_row(&self, asm: &mut Ptx, row: &Row, scale: Val, powers: &[[Val; 2]], half: usize, sums: &Sums) {
        let mut total: Option<Val> = None;
        for p in powers {
            for lane in 0..2 {
                let p = asm.extract(p[half], lane);
                total = Some(total.map_or(p, |total| asm.bin(Bin::AddF, total, p)));
            }
        }
        let total = asm.fma(row.total, scale, total.expect("a piece has keys"));
        asm.set(row.total, total);
        let first = 2 * half as u32;
        for sum in &sums.of[0] {
            for lane in first..first + 2 {
                let (sum, scale) = (asm.name(*sum, lane), asm.name(scale, 0));
                asm.line(&format!("mul.rn.f32 {sum}, {sum}, {scale};"));
            }
        }
    }

    /// Returns the largest scores of both rows over all warps that share these rows; `own` are those of this warp.
    fn exchange_largest(&self, asm: &mut Ptx, own: [Val; 2]) -> [Val; 2] {
        let place = |asm: &mut Ptx, warp: Val| {
            let sixteen = asm.int(ROWS, Ty::I32);
            let at = asm.bin(Bin::MulI, warp, sixteen);
            let at = asm.bin(Bin::AddI, at, self.group);
            let bytes = shift(asm, Bin::ShLI, at, 2);
            asm.bin(Bin::AddI, self.exchange, bytes)
        };
        let (at, zero) = (place(asm, self.warp_n), asm.int(0, Ty::I32));
        let speaks = asm.cmpi(CmpI::Eq, self.quarter, zero);
        asm.if_then(speaks, |asm| {
            let at = asm.name(at, 0);
            for (half, v) in own.iter().enumerate() {
                let v = asm.name(*v, 0);
                asm.line(&format!("st.shared.f32 [{at}+{}], {v};", 32 * half));
            }
        });
        asm.line("bar.sync 0;");
        let first = place(asm, zero);
        let first = asm.name(first, 0);
        [0, 1].map(|half| {
            let parts: Vec<Val> = (0..self.flash.warps_n)
                .map(|warp| {
                    let offset = warp * ROWS * 4 + 32 * half;
                    asm.instruction(Ty::F32, "ld.shared.f32", &[format!("[{first}+{offset}]")])
                })
                .collect();
            parts.into_iter().reduce(|a, b| larger(asm, a, b)).expect("there are warps")
        })
    }

    /// Returns the exponentials of all keys of a tile, in order, from all warps that share the rows.
    fn exchange_powers(&self, asm: &mut Ptx, own: &[[Val; 2]]) -> Vec<[Val; 2]> {
        // Bytes of the exponentials of eight keys: each of a warp's 32 threads has four of 4 bytes.
        const OF_EIGHT: i64 = 4 * 32 * 4;
        let before = asm.int(self.flash.warps_n * ROWS * 4, Ty::I32);
        let bytes = shift(asm, Bin::ShLI, self.lane, 2);
        let first = asm.bin(Bin::AddI, self.exchange, before);
        let first = asm.bin(Bin::AddI, first, bytes);
        let each = asm.int(own.len() as i64 * OF_EIGHT, Ty::I32);
        let at = asm.bin(Bin::MulI, self.warp_n, each);
        let at = asm.bin(Bin::AddI, first, at);
        let at = asm.name(at, 0);
        let offset = |n: usize, i: usize| n as i64 * OF_EIGHT + i as i64 * 128;
        for (n, powers) in own.iter().enumerate() {
            for i in 0..4 {
                let v = asm.name(powers[i / 2], i as u32 % 2);
                asm.line(&format!("st.shared.f32 [{at}+{}], {v};", offset(n, i)));
            }
        }
        asm.line("bar.sync 0;");
        let first = asm.name(first, 0);
        let n_all = (self.flash.keys / 8) as usize;
        (0..n_all)
            .map(|n| {
                [0, 1].map(|half| {
                    let pair = asm.register(Ty::new(Elem::F32, 2));
                    for lane in 0..2 {
                        let (d, at) = (asm.name(pair, lane), offset(n, 2 * half + lane as usize));
                        asm.line(&format!("ld.shared.f32 {d}, [{first}+{at}];"));
                    }
                    pair
                })
            })
            .collect()
    }
}

/// Returns the maximum of `max` and the scores `xs` of a row over the four threads that share it.
fn largest(asm: &mut Ptx, mut max: Val, xs: &[Val]) -> Val {
    for x in xs {
        for lane in 0..2 {
            let x = asm.extract(*x, lane);
            max = larger(asm, max, x);
        }
    }
    for away in [1, 2] {
        let other = asm.exchanged_with(max, away);
        max = larger(asm, max, other);
    }
    max
}

/// Maximum of two numbers; NaN if either is NaN.
fn larger(asm: &mut Ptx, a: Val, b: Val) -> Val {
    let operands = [asm.name(a, 0), asm.name(b, 0)];
    asm.instruction(Ty::F32, "max.NaN.f32", &operands)
}
