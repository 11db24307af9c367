//! Threads that share a row: a warp, or all threads of a block; or the warps of a block, each of whose lanes has a row
//!
//! After a reduction, each thread has the result of its row.

use crate::asm::{Asm, Bin, CmpI, Elem, Ptx, Ty, Val};
use crate::reduce::combine;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::ReduceFn;

pub const WARP: i64 = 32;

/// Threads that work on one row.
#[derive(Clone, Copy)]
pub struct Team {
    /// Number of threads of one row.
    pub threads: i64,
    /// Index of this thread among the threads of its row.
    pub thread: Val,
    /// Whether this lane has a row, if each lane of a warp has its own row; else `None`.
    pub has_row: Option<Val>,
}

/// Partial result of a thread for the reduction `k`.
pub struct Partial {
    pub k: usize,
    pub f: ReduceFn,
    pub t: DType,
    pub value: Val,
}

impl Team {
    /// Returns the results of the reductions, equal in all threads of a row; declarations of shared variables are
    /// appended to `variables`.
    pub fn reduce(&self, asm: &mut Ptx, partials: Vec<Partial>, variables: &mut String) -> Vec<Val> {
        if self.has_row.is_some() {
            return self.reduce_columns(asm, &partials, variables);
        }
        let within: Vec<Val> = partials.iter().map(|p| exchange(asm, p, p.value, WARP)).collect();
        if self.threads == WARP || partials.is_empty() {
            return within;
        }
        let warps = self.threads / WARP;
        let places: Vec<Place> = partials.iter().map(|p| Place::declare(p, warps, variables)).collect();
        let (warp, lane) = warp_and_lane(asm);
        let zero = asm.int(0, Ty::I32);
        let speaks = asm.cmpi(CmpI::Eq, lane, zero);
        asm.if_then(speaks, |asm| {
            for (place, v) in places.iter().zip(&within) {
                place.store(asm, warp, *v);
            }
        });
        asm.line("bar.sync 0;");
        let all_but_one = asm.int(warps - 1, Ty::I32);
        let one_of_them = asm.bin(Bin::AndI, lane, all_but_one);
        let parts: Vec<Val> = places.iter().map(|place| place.load(asm, one_of_them)).collect();
        partials.iter().zip(parts).map(|(p, v)| exchange(asm, p, v, warps)).collect()
    }

    /// Like `reduce`, for 32 rows of which each warp has a part of the elements.
    fn reduce_columns(&self, asm: &mut Ptx, partials: &[Partial], variables: &mut String) -> Vec<Val> {
        if partials.is_empty() {
            return vec![];
        }
        let places: Vec<Place> = partials.iter().map(|p| Place::declare(p, self.threads * WARP, variables)).collect();
        let (own, (_, lane)) = (asm.special("%tid.x"), warp_and_lane(asm));
        for (place, p) in places.iter().zip(partials) {
            place.store(asm, own, p.value);
        }
        asm.line("bar.sync 0;");
        let mut results = vec![];
        for (place, p) in places.iter().zip(partials) {
            let mut sum = place.load(asm, lane);
            for warp in 1..self.threads {
                let before = asm.int(warp * WARP, Ty::I32);
                let at = asm.bin(Bin::AddI, lane, before);
                let part = place.load(asm, at);
                sum = combine(asm, p.f, p.t, sum, part);
            }
            results.push(sum);
        }
        results
    }

    /// Whether this is the thread that writes the stores of its row.
    pub fn is_first(&self, asm: &mut Ptx) -> Val {
        let zero = asm.i64(0);
        let first = asm.cmpi(CmpI::Eq, self.thread, zero);
        self.has_row.map_or(first, |has| asm.bin(Bin::AndI, first, has))
    }

    /// Returns the end of a thread's range along a row; 0 if the thread has no row.
    pub fn length(&self, asm: &mut Ptx, extent: Val) -> Val {
        let zero = asm.i64(0);
        self.has_row.map_or(extent, |has| asm.select(has, extent, zero))
    }
}

/// Index of the warp in the block, and of the thread in the warp.
pub fn warp_and_lane(asm: &mut Ptx) -> (Val, Val) {
    let (thread, five) = (asm.special("%tid.x"), asm.int(5, Ty::I32));
    (asm.bin(Bin::ShRUI, thread, five), asm.special("%laneid"))
}

/// Combines the values of `n` threads by exchanges at distances n/2, n/4, …, 1. All of them get the same result, up to
/// the sign of 0.
fn exchange(asm: &mut Ptx, p: &Partial, mut v: Val, n: i64) -> Val {
    let mut away = n / 2;
    while away > 0 {
        let other = asm.exchanged_with(v, away as u32);
        v = combine(asm, p.f, p.t, v, other);
        away /= 2;
    }
    v
}

/// Shared array of partial results. Each reduction has its own array, so that one barrier is enough.
struct Place {
    name: String,
    elem: Elem,
}

impl Place {
    fn declare(p: &Partial, elements: i64, variables: &mut String) -> Place {
        let (name, elem) = (format!("reduced{}", p.k), p.value.ty.elem);
        let bytes = elem.bits().max(32) as i64 / 8;
        variables.push_str(&format!("  .shared .align 8 .b8 {name}[{}];\n", elements * bytes));
        Place { name, elem }
    }

    fn at(&self, asm: &mut Ptx, index: Val) -> Val {
        let base = asm.instruction(Ty::I32, "mov.u32", std::slice::from_ref(&self.name));
        let bytes = asm.int(self.elem.bits().max(32) as i64 / 8, Ty::I32);
        let offset = asm.bin(Bin::MulI, index, bytes);
        asm.bin(Bin::AddI, base, offset)
    }

    fn store(&self, asm: &mut Ptx, index: Val, v: Val) {
        let at = self.at(asm, index);
        asm.store_shared(v, at);
    }

    fn load(&self, asm: &mut Ptx, index: Val) -> Val {
        let at = self.at(asm, index);
        asm.load_shared(at, self.elem)
    }
}
