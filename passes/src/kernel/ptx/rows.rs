//! r = reduce f(load …); store g(r, load …): a warp computes one outer point, or a thread does
//!
//! Threads of a warp take neighbouring elements of a row and combine their results by shuffles. Where rows are
//! neighbours in memory and the elements of a row are not, each thread takes a row.

use super::{Form, THREADS, item, outer_point, outer_points};
use crate::kernel::asm::{Asm, Elem, Ty};
use crate::kernel::eval::{Cx, Point};
use crate::kernel::normalise::{Stages, row};

const WARP: i64 = 32;

pub fn emit(cx: &Cx, asm: &mut Asm) -> Form {
    let stages = Stages::of_threads(cx.def);
    let rows = outer_points(cx.def);
    let (thread, n) = (asm.special("%tid.x"), cx.dim(asm, &rows));
    if !stages.is_across_threads() {
        let item = item(asm, THREADS, thread);
        let inside = asm.cmpi("slt", item, n);
        asm.if_then(inside, |asm| {
            let mut point = Point::new(cx);
            point.vars = outer_point(cx, asm, item);
            row(cx, asm, &stages, point);
        });
        return Form::per_thread(rows);
    }
    let per_block = THREADS / WARP;
    let five = asm.int(5, Ty::I32);
    let warp = asm.bin("arith.shrui", thread, five);
    let item = item(asm, per_block, warp);
    let inside = asm.cmpi("slt", item, n);
    asm.if_then(inside, |asm| {
        let lane = asm.special("%laneid");
        let mut point = Point::new(cx);
        point.vars = outer_point(cx, asm, item);
        point.thread = Some(asm.cast("arith.extui", lane, Elem::I64));
        row(cx, asm, &stages, point);
    });
    Form::of_items(rows, per_block)
}
