//! Loops and branches  =>  labels, branches, and mutable registers

use super::super::{Asm, CmpI, Elem, Ty, Val};
use super::{Ptx, typed};

pub(super) fn for_loop(
    asm: &mut Ptx,
    (lo, hi, step): (Val, Val, Val),
    inits: &[Val],
    body: impl FnOnce(&mut Ptx, Val, &[Val]) -> Vec<Val>,
) -> Vec<Val> {
    let iv = asm.variables(&[lo])[0];
    let carried = asm.variables(inits);
    let (head, end) = (asm.label(), asm.label());
    asm.place_label(&head);
    let done = asm.cmpi(CmpI::Sge, iv, hi);
    let done = asm.name(done, 0);
    asm.line(&format!("@{done} bra {end};"));
    asm.text.depth += 1;
    let next = body(asm, iv, &carried);
    asm.set_all(&carried, &next);
    let (i, step) = (asm.name(iv, 0), asm.operand(step, 0));
    asm.line(&format!("add.{} {i}, {i}, {step};", typed('s', iv.ty.elem)));
    asm.text.depth -= 1;
    asm.line(&format!("bra {head};"));
    asm.place_label(&end);
    carried
}

pub(super) fn if_else(
    asm: &mut Ptx,
    condition: Val,
    tys: &[Ty],
    then: impl FnOnce(&mut Ptx) -> Vec<Val>,
    other: impl FnOnce(&mut Ptx) -> Vec<Val>,
) -> Vec<Val> {
    let results: Vec<Val> = tys.iter().map(|ty| asm.fresh(*ty)).collect();
    let (otherwise, end) = (asm.label(), asm.label());
    let c = asm.name(condition, 0);
    asm.line(&format!("@!{c} bra {otherwise};"));
    asm.text.depth += 1;
    let values = then(asm);
    asm.set_all(&results, &values);
    asm.line(&format!("bra {end};"));
    asm.text.depth -= 1;
    asm.place_label(&otherwise);
    asm.text.depth += 1;
    let values = other(asm);
    asm.set_all(&results, &values);
    asm.text.depth -= 1;
    asm.place_label(&end);
    results
}

pub(super) fn if_then(asm: &mut Ptx, condition: Val, then: impl FnOnce(&mut Ptx)) {
    let end = asm.label();
    let c = asm.name(condition, 0);
    asm.line(&format!("@!{c} bra {end};"));
    asm.text.depth += 1;
    then(asm);
    asm.text.depth -= 1;
    asm.place_label(&end);
}

pub(super) fn do_while(
    asm: &mut Ptx,
    inits: &[Val],
    body: impl FnOnce(&mut Ptx, &[Val]) -> (Val, Vec<Val>),
) -> Vec<Val> {
    let carried = asm.variables(inits);
    let head = asm.label();
    asm.place_label(&head);
    asm.text.depth += 1;
    let (more, next) = body(asm, &carried);
    // The condition may depend on the variables that are updated next.
    let more = asm.variables(&[more])[0];
    asm.set_all(&carried, &next);
    asm.text.depth -= 1;
    let more = asm.name(more, 0);
    asm.line(&format!("@{more} bra {head};"));
    carried
}

impl Ptx {
    /// Copies values to new registers, which a loop then updates.
    pub fn variables(&mut self, inits: &[Val]) -> Vec<Val> {
        let variables: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        variables.iter().zip(inits).for_each(|(v, init)| self.set(*v, *init));
        variables
    }

    /// Overwrites a variable's registers.
    pub fn set(&mut self, variable: Val, value: Val) {
        debug_assert_eq!(variable.ty, value.ty);
        let t = match variable.ty.elem {
            Elem::I1 => "pred".to_string(),
            Elem::F16 => "b16".to_string(),
            elem => typed(if elem.is_float() { 'f' } else { 'b' }, elem),
        };
        for lane in 0..variable.ty.lanes {
            let (d, s) = (self.name(variable, lane), self.name(value, lane));
            if d != s {
                self.line(&format!("mov.{t} {d}, {s};"));
            }
        }
    }

    /// Assigns all variables in parallel: a value may itself be one of the variables.
    fn set_all(&mut self, variables: &[Val], values: &[Val]) {
        let own: Vec<String> = variables.iter().flat_map(|v| (0..v.ty.lanes).map(|l| self.name(*v, l))).collect();
        let mut at = 0;
        let mut copies = vec![];
        for (variable, value) in variables.iter().zip(values) {
            let taken = (0..value.ty.lanes).any(|lane| {
                let name = self.name(*value, lane);
                own.iter().enumerate().any(|(i, o)| *o == name && i != at + lane as usize)
            });
            at += variable.ty.lanes as usize;
            copies.push(if taken { self.variables(&[*value])[0] } else { *value });
        }
        variables.iter().zip(copies).for_each(|(variable, value)| self.set(*variable, value));
    }
}
