//! operation with its attributes, result type  <=>  an index, which keeps the nodes of an e-graph small and comparable

use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Op, TensorType};
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(u32);

/// Operations and types by index. Indices follow the order of first use, so they depend only on the graph.
#[derive(Default)]
pub struct Table {
    ops: Vec<(Op, TypeId)>,
    op_ids: HashMap<(Op, TypeId), OpId>,
    types: Vec<TensorType>,
    type_ids: HashMap<TensorType, TypeId>,
}

impl Table {
    pub fn type_id(&mut self, ty: &TensorType) -> TypeId {
        if let Some(id) = self.type_ids.get(ty) {
            return *id;
        }
        let id = TypeId(self.types.len() as u32);
        self.types.push(ty.clone());
        self.type_ids.insert(ty.clone(), id);
        id
    }

    pub fn op_id(&mut self, op: Op, ty: TypeId) -> OpId {
        let key = (op, ty);
        if let Some(id) = self.op_ids.get(&key) {
            return *id;
        }
        let id = OpId(self.ops.len() as u32);
        self.ops.push(key.clone());
        self.op_ids.insert(key, id);
        id
    }

    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.0 as usize].0
    }

    pub fn ty_of(&self, id: OpId) -> TypeId {
        self.ops[id.0 as usize].1
    }

    pub fn ty(&self, id: TypeId) -> &TensorType {
        &self.types[id.0 as usize]
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = OpId> + use<> {
        (0..self.ops.len() as u32).map(OpId)
    }
}

impl OpId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Renames the letters of a contraction in order of occurrence, so that equal contractions have one spelling.
pub fn spelled_alike(spec: &ContractSpec) -> ContractSpec {
    let mut seen: Vec<char> = vec![];
    let occurring = spec.left.iter().chain(&spec.right);
    occurring.for_each(|c| {
        if !seen.contains(c) {
            seen.push(*c)
        }
    });
    let rename = |letters: &[char]| -> Vec<char> {
        let place = |c: &char| seen.iter().position(|s| s == c).and_then(letter);
        letters.iter().map(|c| place(c).unwrap_or(*c)).collect()
    };
    match seen.len() <= LETTERS {
        true => ContractSpec { left: rename(&spec.left), right: rename(&spec.right), result: rename(&spec.result) },
        false => spec.clone(),
    }
}

pub const LETTERS: usize = 52;

/// Letter i of a … z, A … Z.
pub fn letter(i: usize) -> Option<char> {
    ('a'..='z').chain('A'..='Z').nth(i)
}

/// Names under which rules find an operation: its own and, for a map, the name of its function, or `sum` for a sum.
pub fn names(op: &Op) -> Vec<&'static str> {
    match op {
        Op::Map(f) => vec!["map", f.name()],
        Op::Reduce { f, .. } if f.scalar() == ScalarFn::Add => vec!["reduce", "sum"],
        // Rules about `convert` apply only to conversions of values.
        Op::Convert(Conversion::Bits) => vec!["bitcast"],
        other => vec![other.name().trim_start_matches("sdx.")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_dialects::scalar::ReduceFn;

    #[test]
    fn one_contraction_has_one_spelling() {
        let spelled = |text: &str| spelled_alike(&ContractSpec::parse(text).unwrap()).to_string();
        assert_eq!(spelled("bsi,io->bso"), "abc,cd->abd");
        assert_eq!(spelled("amk,kn->amn"), "abc,cd->abd");
        assert_eq!(spelled("bthd,bshd->bhst"), "abcd,aecd->aceb");
    }

    #[test]
    fn rules_find_operations_by_name() {
        assert_eq!(names(&Op::Map(ScalarFn::Erf)), ["map", "erf"]);
        assert_eq!(names(&Op::Reduce { f: ReduceFn::Add, axes: vec![] }), ["reduce", "sum"]);
        assert_eq!(names(&Op::Reduce { f: ReduceFn::Max, axes: vec![] }), ["reduce"]);
        assert_eq!(names(&Op::Reshape), ["reshape"]);
    }
}
