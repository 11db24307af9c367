//! accesses along a variable  =>  whether adjacent pairs exist together, and are aligned in memory

use super::movement::Launch;
use crate::asm::{Asm, Bin, CmpI, Ptx, Ty};
use crate::cx::Cx;
use crate::def::*;

/// Whether two adjacent columns exist together, and are aligned in memory as a unit.
pub enum Pairs {
    /// Pairs always exist together; alignment is known per access.
    Always,
    Never,
    /// Pairs exist together and are aligned if these parameters are even.
    When(Vec<usize>),
}

impl Pairs {
    pub fn from_accesses(def: &KernelDef, accesses: &[&Access], n: usize) -> Pairs {
        let neighbours = accesses.iter().filter(|a| a.coords.len() == 1 && a.stride(n).is(1));
        let sizes: Vec<Size> = neighbours.flat_map(|a| a.others(n).collect::<Vec<_>>()).collect();
        let columns = def.extent(n);
        let odd = |s: &Size| s.as_const().is_some_and(|c| c % 2 != 0);
        let mut params: Vec<usize> = sizes.iter().chain([&columns]).filter_map(|s| s.as_param()).collect();
        params.sort();
        params.dedup();
        match params.is_empty() || odd(&columns) || sizes.iter().any(odd) {
            false => Pairs::When(params),
            true if columns.as_const().is_some_and(|n| n % 2 == 0) => Pairs::Always,
            true => Pairs::Never,
        }
    }

    /// Whether a launch accesses pairs as a unit; `None` if that is known per access.
    pub fn are_even(&self, launch: &Launch) -> Option<bool> {
        match self {
            Pairs::Always => None,
            Pairs::Never => Some(false),
            Pairs::When(params) => Some(params.iter().all(|p| launch.size(Size::Param(*p)) % 2 == 0)),
        }
    }

    /// Emits the code for each case, one of which the launch takes. `each` gets whether no pair is cut off, and whether
    /// all pairs are aligned in memory.
    pub fn choose(&self, cx: &Cx<Ptx>, asm: &mut Ptx, each: &dyn Fn(&mut Ptx, (bool, bool))) {
        match self {
            Pairs::Always => each(asm, (true, false)),
            Pairs::Never => each(asm, (false, false)),
            Pairs::When(params) => {
                let all = params.iter().fold(asm.zero(Ty::I64), |all, p| asm.bin(Bin::OrI, cx.params[*p], all));
                let (one, zero) = (asm.i64(1), asm.i64(0));
                let odd = asm.bin(Bin::AndI, all, one);
                let even = asm.cmpi(CmpI::Eq, odd, zero);
                let one_of = |asm: &mut Ptx, even: bool| {
                    each(asm, (even, even));
                    vec![]
                };
                asm.if_else(even, &[], |asm| one_of(asm, true), |asm| one_of(asm, false));
            }
        }
    }
}
