//! Words: how many neighbours along K one multiplication of a contraction takes, and of what type

use super::asm::Elem;
use sardonyx_base::DType;
use sardonyx_base::cpu::Extension;

/// What one step of a sum takes of a column: the rows of a panel that lie side by side, and as many neighbours of A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Words {
    /// One f32.
    Singles,
    /// Two bf16, whose sums are f32.
    Pairs,
    /// Four bytes, with a sign those of panels, without those of A, whose sums are i32.
    Quads,
}

impl Words {
    pub const ALL: [Words; 3] = [Words::Singles, Words::Pairs, Words::Quads];

    /// How many elements there are in one.
    pub fn depth(self) -> i64 {
        match self {
            Words::Singles => 1,
            Words::Pairs => 2,
            Words::Quads => 4,
        }
    }

    /// What CPUs multiply words of more than one element by, where they can.
    pub fn extension(self) -> Option<Extension> {
        match self {
            Words::Singles => None,
            Words::Pairs => Some(Extension::Pairs),
            Words::Quads => Some(Extension::Quads),
        }
    }

    /// The element of A.
    pub fn element(self) -> Elem {
        match self {
            Words::Singles => Elem::F32,
            Words::Pairs => Elem::I16,
            Words::Quads => Elem::I8,
        }
    }

    pub fn sum(self) -> Elem {
        match self {
            Words::Singles | Words::Pairs => Elem::F32,
            Words::Quads => Elem::I32,
        }
    }

    /// The types of the sums, of A and of B.
    pub fn dtypes(self) -> [DType; 3] {
        match self {
            Words::Singles => [DType::F32; 3],
            Words::Pairs => [DType::F32, DType::BF16, DType::BF16],
            Words::Quads => [DType::I32, DType::U8, DType::I8],
        }
    }
}
