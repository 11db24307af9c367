//! `.f32`, `.global`: the type and space names of PTX

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    B8,
    B16,
    B32,
    B64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    E4m3x2,
    E5m2x2,
    F32,
    F64,
    Pred,
}

const TYPES: [(&str, Ty); 22] = [
    ("b16", Ty::B16),
    ("b32", Ty::B32),
    ("b64", Ty::B64),
    ("b8", Ty::B8),
    ("bf16", Ty::Bf16),
    ("bf16x2", Ty::Bf16x2),
    ("e4m3x2", Ty::E4m3x2),
    ("e5m2x2", Ty::E5m2x2),
    ("f16", Ty::F16),
    ("f16x2", Ty::F16x2),
    ("f32", Ty::F32),
    ("f64", Ty::F64),
    ("pred", Ty::Pred),
    ("s16", Ty::S16),
    ("s32", Ty::S32),
    ("s64", Ty::S64),
    ("s8", Ty::S8),
    ("tf32", Ty::Tf32),
    ("u16", Ty::U16),
    ("u32", Ty::U32),
    ("u64", Ty::U64),
    ("u8", Ty::U8),
];

impl Ty {
    pub fn named(name: &str) -> Option<Ty> {
        let at = TYPES.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
        Some(TYPES[at].1)
    }

    pub fn name(self) -> &'static str {
        TYPES.iter().find(|(_, ty)| *ty == self).map_or("", |(name, _)| *name)
    }

    /// Returns the width in bits, which is 1 for a predicate.
    pub fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::U8 | Ty::S8 | Ty::B8 => 8,
            Ty::U16 | Ty::S16 | Ty::B16 | Ty::F16 | Ty::Bf16 | Ty::E4m3x2 | Ty::E5m2x2 => 16,
            Ty::U32 | Ty::S32 | Ty::B32 | Ty::F32 | Ty::F16x2 | Ty::Bf16x2 | Ty::Tf32 => 32,
            Ty::U64 | Ty::S64 | Ty::B64 | Ty::F64 => 64,
        }
    }

    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    pub fn is_unsigned(self) -> bool {
        matches!(self, Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64)
    }

    pub fn is_int(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }

    pub fn is_untyped(self) -> bool {
        matches!(self, Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

impl Space {
    pub fn named(name: &str) -> Option<Space> {
        Some(match name {
            "global" => Space::Global,
            "shared" | "shared::cta" => Space::Shared,
            "local" => Space::Local,
            "param" | "param::entry" | "param::func" => Space::Param,
            "const" => Space::Const,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_name_returns() {
        assert!(TYPES.is_sorted_by_key(|(name, _)| *name));
        for (name, ty) in TYPES {
            assert_eq!(Ty::named(name), Some(ty));
            assert_eq!(ty.name(), name);
        }
    }
}
