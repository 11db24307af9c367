//! Words: the number and type of elements along K that one multiplication of a contraction takes

use super::asm::Elem;
use sardonyx_base::DType;
use sardonyx_base::cpu::Extension;

/// Elements of a column that one step of a contraction multiplies: the rows of a panel that are stored side by side,
/// and as many consecutive elements of A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Words {
    /// One f32.
    Singles,
    /// Two bf16, accumulated in f32.
    Pairs,
    /// Four bytes, signed in panels and unsigned in A, accumulated in i32.
    Quads,
}

impl Words {
    /// All words, by ascending number of elements.
    pub const ALL: [Words; 3] = [Words::Singles, Words::Pairs, Words::Quads];

    /// Number of elements of a word.
    pub fn depth(self) -> i64 {
        match self {
            Words::Singles => 1,
            Words::Pairs => 2,
            Words::Quads => 4,
        }
    }

    /// Extension with which CPUs multiply words of more than one element.
    pub fn extension(self) -> Option<Extension> {
        match self {
            Words::Singles => None,
            Words::Pairs => Some(Extension::Pairs),
            Words::Quads => Some(Extension::Quads),
        }
    }

    /// Type as which code loads an element of A; bf16 is loaded as a 16-bit integer.
    pub fn element(self) -> Elem {
        match self {
            Words::Singles => Elem::F32,
            Words::Pairs => Elem::I16,
            Words::Quads => Elem::I8,
        }
    }

    /// Returns the element type of the accumulators.
    pub fn sum(self) -> Elem {
        match self {
            Words::Singles | Words::Pairs => Elem::F32,
            Words::Quads => Elem::I32,
        }
    }

    /// Returns the element types of the accumulators, of A and of B.
    pub fn dtypes(self) -> [DType; 3] {
        match self {
            Words::Singles => [DType::F32; 3],
            Words::Pairs => [DType::F32, DType::BF16, DType::BF16],
            Words::Quads => [DType::I32, DType::U8, DType::I8],
        }
    }
}
