//! Loops and branches  =>  labels, branches, and registers that are written again

use super::super::{Asm, CmpI, Elem, Ty, Val};
use super::typed;

impl Asm {
    /// Copies values to registers of their own, which a loop then changes.
    pub fn variables(&mut self, inits: &[Val]) -> Vec<Val> {
        let variables: Vec<Val> = inits.iter().map(|v| self.fresh(v.ty)).collect();
        variables.iter().zip(inits).for_each(|(v, init)| self.set(*v, *init));
        variables
    }

    /// Writes a register again.
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

    /// All at once: a value may be one of the variables.
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

    pub(in crate::asm) fn ptx_for(
        &mut self,
        (lo, hi, step): (Val, Val, Val),
        inits: &[Val],
        body: impl FnOnce(&mut Asm, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let iv = self.variables(&[lo])[0];
        let carried = self.variables(inits);
        let (head, end) = (self.label(), self.label());
        self.place_label(&head);
        let done = self.ptx_cmpi(CmpI::Sge, iv, hi);
        let done = self.name(done, 0);
        self.line(&format!("@{done} bra {end};"));
        self.depth += 1;
        let next = body(self, iv, &carried);
        self.set_all(&carried, &next);
        let (i, step) = (self.name(iv, 0), self.operand(step, 0));
        self.line(&format!("add.{} {i}, {i}, {step};", typed('s', iv.ty.elem)));
        self.depth -= 1;
        self.line(&format!("bra {head};"));
        self.place_label(&end);
        carried
    }

    pub(in crate::asm) fn ptx_if_else(
        &mut self,
        condition: Val,
        tys: &[Ty],
        then: impl FnOnce(&mut Asm) -> Vec<Val>,
        other: impl FnOnce(&mut Asm) -> Vec<Val>,
    ) -> Vec<Val> {
        let results: Vec<Val> = tys.iter().map(|ty| self.fresh(*ty)).collect();
        let (otherwise, end) = (self.label(), self.label());
        let c = self.name(condition, 0);
        self.line(&format!("@!{c} bra {otherwise};"));
        self.depth += 1;
        let values = then(self);
        self.set_all(&results, &values);
        self.line(&format!("bra {end};"));
        self.depth -= 1;
        self.place_label(&otherwise);
        self.depth += 1;
        let values = other(self);
        self.set_all(&results, &values);
        self.depth -= 1;
        self.place_label(&end);
        results
    }

    pub(in crate::asm) fn ptx_if_then(&mut self, condition: Val, then: impl FnOnce(&mut Asm)) {
        let end = self.label();
        let c = self.name(condition, 0);
        self.line(&format!("@!{c} bra {end};"));
        self.depth += 1;
        then(self);
        self.depth -= 1;
        self.place_label(&end);
    }

    pub(in crate::asm) fn ptx_do_while(
        &mut self,
        inits: &[Val],
        body: impl FnOnce(&mut Asm, &[Val]) -> (Val, Vec<Val>),
    ) -> Vec<Val> {
        let carried = self.variables(inits);
        let head = self.label();
        self.place_label(&head);
        self.depth += 1;
        let (more, next) = body(self, &carried);
        // The condition may be computed from what changes now.
        let more = self.variables(&[more])[0];
        self.set_all(&carried, &next);
        self.depth -= 1;
        let more = self.name(more, 0);
        self.line(&format!("@{more} bra {head};"));
        carried
    }
}
