//! Threads that share a row: a warp, or all threads of a block. Each has the result of a reduction at its end

use crate::kernel::asm::{Asm, Elem, Ty, Val};
use crate::kernel::normalise::combine;
use sardonyx_dialects::scalar::ReduceFn;
use sardonyx_runtime::DType;

pub const WARP: i64 = 32;

/// Who works on one row.
#[derive(Clone, Copy)]
pub struct Team {
    pub threads: i64,
    /// This thread's number among them, an index.
    pub thread: Val,
}

/// A partial result of each thread: of statement `k`.
pub struct Partial {
    pub k: usize,
    pub f: ReduceFn,
    pub t: DType,
    pub value: Val,
}

impl Team {
    /// The results, the same in each thread; the shared variables that were needed go into `variables`.
    pub fn reduce(&self, asm: &mut Asm, partials: Vec<Partial>, variables: &mut String) -> Vec<Val> {
        let within: Vec<Val> = partials.iter().map(|p| exchange(asm, p, p.value, WARP)).collect();
        if self.threads == WARP || partials.is_empty() {
            return within;
        }
        let warps = self.threads / WARP;
        let places: Vec<Place> = partials.iter().map(|p| Place::of(p, warps, variables)).collect();
        let thread = asm.special("%tid.x");
        let (five, first) = (asm.int(5, Ty::I32), asm.special("%laneid"));
        let warp = asm.bin("arith.shrui", thread, five);
        let zero = asm.int(0, Ty::I32);
        let speaks = asm.cmpi("eq", first, zero);
        asm.if_then(speaks, |asm| {
            for (place, v) in places.iter().zip(&within) {
                place.store(asm, warp, *v);
            }
        });
        asm.line("bar.sync 0;");
        let all_but_one = asm.int(warps - 1, Ty::I32);
        let one_of_them = asm.bin("arith.andi", first, all_but_one);
        let parts: Vec<Val> = places.iter().map(|place| place.load(asm, one_of_them)).collect();
        partials.iter().zip(parts).map(|(p, v)| exchange(asm, p, v, warps)).collect()
    }

    pub fn is_first(&self, asm: &mut Asm) -> Val {
        let zero = asm.i64(0);
        asm.cmpi("eq", self.thread, zero)
    }
}

/// Combines with the threads n/2, n/4, … away: each of `n` has the whole result, the same but for the sign of 0.
fn exchange(asm: &mut Asm, p: &Partial, mut v: Val, n: i64) -> Val {
    let mut away = n / 2;
    while away > 0 {
        let other = asm.exchanged_with(v, away as u32);
        v = combine(asm, p.f, p.t, v, other);
        away /= 2;
    }
    v
}

/// A shared array with an element per warp. Each reduction has its own: one barrier is enough for it.
struct Place {
    name: String,
    elem: Elem,
}

impl Place {
    fn of(p: &Partial, warps: i64, variables: &mut String) -> Place {
        let (name, elem) = (format!("reduced{}", p.k), p.value.ty.elem);
        let bytes = elem.bits().max(32) as i64 / 8;
        variables.push_str(&format!("  .shared .align 8 .b8 {name}[{}];\n", warps * bytes));
        Place { name, elem }
    }

    fn at(&self, asm: &mut Asm, warp: Val) -> Val {
        let base = asm.instruction(Ty::I32, "mov.u32", &[self.name.clone()]);
        let bytes = asm.int(self.elem.bits().max(32) as i64 / 8, Ty::I32);
        let offset = asm.bin("arith.muli", warp, bytes);
        asm.bin("arith.addi", base, offset)
    }

    fn store(&self, asm: &mut Asm, warp: Val, v: Val) {
        let at = self.at(asm, warp);
        asm.store_shared(v, at);
    }

    fn load(&self, asm: &mut Asm, warp: Val) -> Val {
        let at = self.at(asm, warp);
        asm.load_shared(at, self.elem)
    }
}
