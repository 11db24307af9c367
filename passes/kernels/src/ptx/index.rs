//! the number of a point  =>  its iteration variables, in 32 bits if all numbers fit

use super::outer_points;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::{Cx, decode};

/// Returns `%ctaid.x · per_block`, the first item of the block.
pub fn first_item(asm: &mut Ptx, per_block: i64) -> Val {
    let block = asm.special("%ctaid.x");
    let operands = [asm.name(block, 0), per_block.to_string()];
    asm.instruction(Ty::I64, "mul.wide.u32", &operands)
}

/// Extends `%tid.x`, or another 32-bit number, to an index.
pub fn index(asm: &mut Ptx, number: Val) -> Val {
    asm.cast(Cast::ExtUI, number, Elem::I64)
}

/// Outer variables of point `number`, with the last one as the fastest index. On a GPU, a 64-bit division costs about
/// four times as much as a 32-bit division. All threads use 32-bit divisions if the number of points is at most 2^32.
pub fn outer_point(cx: &Cx<Ptx>, asm: &mut Ptx, number: Val) -> Vec<Option<Val>> {
    let extents: Vec<Val> = (0..cx.def.outer.len()).map(|v| cx.extent(asm, v)).collect();
    let points = outer_points(cx.def);
    let limit = 1i64 << 32;
    let vars = match points.as_const() {
        _ if extents.len() < 2 => decode(asm, number, &extents),
        Some(n) if n <= limit => decode_32(asm, number, &extents),
        Some(_) => decode(asm, number, &extents),
        None => {
            let (n, limit) = (cx.dim(asm, &points), asm.i64(limit));
            let fits = asm.cmpi(CmpI::Sle, n, limit);
            let tys = vec![Ty::I64; extents.len()];
            let narrow = |asm: &mut Ptx| decode_32(asm, number, &extents);
            asm.if_else(fits, &tys, narrow, |asm| decode(asm, number, &extents))
        }
    };
    let mut vars: Vec<Option<Val>> = vars.into_iter().map(Some).collect();
    vars.resize(cx.def.n_vars(), None);
    vars
}

fn decode_32(asm: &mut Ptx, number: Val, extents: &[Val]) -> Vec<Val> {
    let mut rest = narrow(asm, number);
    let mut out = vec![];
    for (i, extent) in extents.iter().enumerate().rev() {
        if i == 0 {
            out.push(index(asm, rest));
            continue;
        }
        let extent = narrow(asm, *extent);
        let (quotient, left) = divide(asm, rest, extent);
        out.push(index(asm, left));
        rest = quotient;
    }
    out.reverse();
    out
}

/// Quotient and remainder of unsigned integers.
pub fn divide(asm: &mut Ptx, a: Val, b: Val) -> (Val, Val) {
    let quotient = asm.bin(Bin::DivUI, a, b);
    let product = asm.bin(Bin::MulI, quotient, b);
    (quotient, asm.bin(Bin::SubI, a, product))
}

/// Low 32 bits of a value.
pub fn narrow(asm: &mut Ptx, v: Val) -> Val {
    match asm.known_int(v) {
        Some(n) => asm.int(n, Ty::I32),
        None => asm.cast(Cast::TruncI, v, Elem::I32),
    }
}
