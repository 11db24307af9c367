//! o[b, i, e] = Σj softmax(Σd q[b, i, d] · k[b, j, d])·v[b, j, e]  =>  one launch, no scores in memory

mod plain;
mod sums;

use super::Form;
use super::movement::{Launch, Traffic};
use crate::kernel::asm::Asm;
use crate::kernel::def::KernelDef;
use crate::kernel::eval::Cx;
use plain::Plain;

/// How a kernel with a deep space is computed.
pub enum Plan {
    Plain(Plain),
}

impl Plan {
    pub fn of(def: &KernelDef) -> Plan {
        Plan::Plain(Plain::of(def))
    }

    pub(super) fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        match self {
            Plan::Plain(_) => vec![Traffic::default(); launch.buffers()],
        }
    }
}

pub(super) fn emit(cx: &Cx, asm: &mut Asm, plan: &Plan) -> Form {
    match plan {
        Plan::Plain(plain) => plain::emit(cx, asm, plain),
    }
}
