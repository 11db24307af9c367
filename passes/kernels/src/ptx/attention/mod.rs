//! o[b, i, e] = Σj softmax(Σd q[b, i, d] · k[b, j, d])·v[b, j, e]  =>  one launch, no scores in memory

mod fill;
mod finish;
mod flash;
mod fragments;
mod movement;
mod plain;
mod plain_movement;
mod plan;
mod roles;
mod softmax;
mod sums;

use super::Form;
use super::movement::{Launch, Traffic};
use crate::asm::Ptx;
use crate::cx::Cx;
use crate::def::KernelDef;
use plain::Plain;
use plan::Flash;

/// How a kernel with a deep space is computed.
pub enum Plan {
    /// On tensor cores.
    Flash(Box<Flash>),
    Plain(Plain),
}

impl Plan {
    pub fn of(def: &KernelDef) -> Plan {
        Flash::of(def).map_or_else(|| Plan::Plain(Plain::of(def)), |flash| Plan::Flash(Box::new(flash)))
    }

    pub(super) fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        match self {
            Plan::Flash(flash) => flash.requests(launch),
            Plan::Plain(plain) => plain.requests(launch),
        }
    }
}

pub(super) fn emit(cx: &Cx<Ptx>, asm: &mut Ptx, plan: &Plan) -> Form {
    match plan {
        Plan::Flash(flash) => flash::emit(cx, asm, flash),
        Plan::Plain(plain) => plain::emit(cx, asm, plain),
    }
}

impl KernelDef {
    /// Whether attention runs on tensor cores.
    pub fn is_flash(&self) -> bool {
        Flash::of(self).is_some()
    }
}
