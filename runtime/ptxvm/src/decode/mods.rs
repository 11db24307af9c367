//! `add.rn.ftz.f32`  =>  a name, and modifiers that a decoder takes one by one; those left over are an error

use crate::Error;
use crate::text::types::{Space, Ty};

pub struct Mods<'a> {
    pub opcode: &'a str,
    pub line: u32,
    parts: Vec<Option<&'a str>>,
}

impl<'a> Mods<'a> {
    /// Splits an opcode into its name and its modifiers.
    pub fn split(opcode: &'a str, line: u32) -> (&'a str, Mods<'a>) {
        let mut parts = opcode.split('.');
        let name = parts.next().unwrap_or("");
        (name, Mods { opcode, line, parts: parts.map(Some).collect() })
    }

    /// Takes the modifier `name` if it is present, and returns whether it was.
    pub fn take(&mut self, name: &str) -> bool {
        self.take_where(|part| (part == name).then_some(())).is_some()
    }

    /// Takes the first modifier for which `known` returns a value.
    pub fn take_where<T>(&mut self, mut known: impl FnMut(&str) -> Option<T>) -> Option<T> {
        for slot in &mut self.parts {
            if let Some(found) = slot.as_deref().and_then(&mut known) {
                *slot = None;
                return Some(found);
            }
        }
        None
    }

    pub fn one_of(&mut self, names: &[&str]) -> Option<&'a str> {
        for slot in &mut self.parts {
            if slot.is_some_and(|part| names.contains(&part)) {
                return slot.take();
            }
        }
        None
    }

    pub fn required(&mut self, names: &[&str]) -> Result<&'a str, Error> {
        self.one_of(names).ok_or_else(|| self.error(format!("expected one of .{}", names.join(" ."))))
    }

    /// Takes the next type, in the order in which types are written.
    pub fn ty(&mut self) -> Result<Ty, Error> {
        self.take_where(Ty::named).ok_or_else(|| self.error("a type is missing".into()))
    }

    pub fn space(&mut self) -> Space {
        self.take_where(Space::named).unwrap_or(Space::Generic)
    }

    /// Takes and returns all remaining modifiers, in order.
    pub fn rest(&mut self) -> Vec<&'a str> {
        self.parts.iter_mut().filter_map(Option::take).collect()
    }

    /// Returns the first modifier that has not been taken.
    pub fn unknown(&self) -> Option<&'a str> {
        self.parts.iter().copied().flatten().next()
    }

    pub fn error(&self, what: String) -> Error {
        Error::new(self.line, format!("`{}`: {what}", self.opcode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_are_taken_once() {
        let (name, mut mods) = Mods::split("cvt.rn.f16.f32", 1);
        assert_eq!(name, "cvt");
        assert!(mods.take("rn") && !mods.take("rn"));
        assert_eq!((mods.ty().unwrap(), mods.ty().unwrap()), (Ty::F16, Ty::F32));
        assert_eq!(mods.unknown(), None);
        assert!(mods.ty().is_err());
    }
}
