//! `%r7`, `tile`, `$L_3`  =>  the register, variable or label of this name in the innermost block that declares it

use std::collections::HashMap;

use super::program::{Bank, Reg};
use crate::text::types::{Space, Ty};

/// A variable in a space other than registers.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub space: Space,
    /// Offset from the start of the space; for global and constant variables, the index of the module variable.
    pub offset: u32,
    pub bytes: u64,
    pub dynamic: bool,
}

#[derive(Default)]
pub struct Scope {
    pub single: HashMap<String, Ty>,
    /// Types and counts of numbered declarations such as `%r<10>`, by prefix.
    pub numbered: HashMap<String, (Ty, u32)>,
    /// Registers in use. An index is allocated at first use, so that large declarations cost nothing.
    pub regs: HashMap<String, Reg>,
    pub places: HashMap<String, Place>,
    pub labels: HashMap<String, u32>,
    pub targets: HashMap<String, Vec<String>>,
    /// Whether this is the outermost block of a function, in which the caller's names are not visible.
    pub outermost: bool,
}

/// Number of registers of one entry in each bank.
#[derive(Default)]
pub struct Banks {
    pub words: u32,
    pub doubles: u32,
    pub preds: u32,
}

impl Banks {
    pub fn fresh(&mut self, bits: u32) -> Reg {
        let (bank, count) = match bits {
            1 => (Bank::Pred, &mut self.preds),
            64 => (Bank::Double, &mut self.doubles),
            _ => (Bank::Word, &mut self.words),
        };
        *count += 1;
        Reg { bank, index: *count - 1, bits }
    }
}

impl Scope {
    fn declared(&self, name: &str) -> Option<Ty> {
        if let Some(ty) = self.single.get(name) {
            return Some(*ty);
        }
        // `%p10` may be declared by `%p<11>` or by `%p1<1>`.
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        (name.len() - digits..name.len()).find_map(|cut| {
            let (ty, count) = self.numbered.get(&name[..cut])?;
            let canonical = name.len() - cut == 1 || name.as_bytes()[cut] != b'0';
            (canonical && name[cut..].parse::<u32>().is_ok_and(|number| number < *count)).then_some(*ty)
        })
    }
}

/// The stack of open scopes; the innermost is last.
#[derive(Default)]
pub struct Scopes {
    pub stack: Vec<Scope>,
    pub banks: Banks,
}

impl Scopes {
    pub fn register(&mut self, name: &str) -> Option<Reg> {
        for scope in self.stack.iter_mut().rev() {
            if let Some(reg) = scope.regs.get(name) {
                return Some(*reg);
            }
            if let Some(ty) = scope.declared(name) {
                let reg = self.banks.fresh(ty.bits());
                scope.regs.insert(name.to_owned(), reg);
                return Some(reg);
            }
            if scope.outermost {
                break;
            }
        }
        None
    }

    pub fn find<T>(&self, get: impl Fn(&Scope) -> Option<T>) -> Option<T> {
        for scope in self.stack.iter().rev() {
            if let Some(found) = get(scope) {
                return Some(found);
            }
            if scope.outermost {
                break;
            }
        }
        None
    }

    pub fn place(&self, name: &str) -> Option<Place> {
        self.find(|scope| scope.places.get(name).copied())
    }

    pub fn label(&self, name: &str) -> Option<u32> {
        self.find(|scope| scope.labels.get(name).copied())
    }

    pub fn top(&mut self) -> &mut Scope {
        if self.stack.is_empty() {
            self.stack.push(Scope::default());
        }
        let last = self.stack.len() - 1;
        &mut self.stack[last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_end_where_they_were_declared_to() {
        let mut scopes = Scopes::default();
        let scope = scopes.top();
        scope.numbered.insert("%r".into(), (Ty::B32, 12));
        scope.numbered.insert("%r1_".into(), (Ty::B64, 3));
        assert_eq!(scopes.register("%r11").map(|reg| reg.bank), Some(Bank::Word));
        assert_eq!(scopes.register("%r1_2").map(|reg| reg.bank), Some(Bank::Double));
        assert_eq!(scopes.register("%r11").map(|reg| reg.index), Some(0));
        for missing in ["%r12", "%r01", "%r", "%r1_3", "%q1"] {
            assert!(scopes.register(missing).is_none(), "{missing}");
        }
    }
}
