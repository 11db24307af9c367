//! store f(load …) at %0..: a thread computes one point

use super::{Form, THREADS, item, outer_point, outer_points};
use crate::kernel::asm::Asm;
use crate::kernel::eval::{Cx, Point};

pub fn emit(cx: &Cx, asm: &mut Asm) -> Form {
    let points = outer_points(cx.def);
    let (thread, n) = (asm.special("%tid.x"), cx.dim(asm, &points));
    let item = item(asm, THREADS, thread);
    let inside = asm.cmpi("slt", item, n);
    asm.if_then(inside, |asm| {
        let mut point = Point::new(cx);
        point.vars = outer_point(cx, asm, item);
        for write in &cx.def.stores {
            point.store(cx, asm, write);
        }
    });
    Form::per_thread(points)
}
