//! kernel  =>  the words that it moves: each distinct element of each operand, and each element of each result, once
//!
//! A *word* is one element, whatever its type. The *algebraic* words of a kernel are the words that it must move even
//! if it keeps everything it has read, whatever its code. They are counted as follows:
//!
//! * Elements that several loads read from one operand count once.
//! * A guarded load reads where its guard holds. A data-dependent guard is assumed to hold.
//! * A gather reads its indices, and as many elements of the container as there are different positions to access, at
//!   most the whole container.
//! * A packed constant counts as the matrix that it holds; a result that extends another tensor counts its new elements
//!   only.
//!
//! Counts are expressions over the model's symbols, and are valid if all extents are positive.

mod facts;
mod image;
pub mod scheduled;
#[cfg(test)]
mod tests;
mod values;
pub mod work;

pub use image::{Count, Sure};
pub use scheduled::FastMemory;
pub use values::operator_words;
pub use work::{Kind, operator_flops};

use facts::Facts;
use image::{Access, reached};
use sardonyx_base::Dim;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::flow::kernel::{Body, Kernel, Memlet};

/// Algebraic words of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// One count for each operand: its elements that the kernel reads.
    pub reads: Vec<Count>,
    /// One count for each result: its elements that the kernel writes.
    pub writes: Vec<Count>,
}

impl Words {
    /// Counts the algebraic words of a kernel; `lo` returns the lower bounds of symbols.
    pub fn count(kernel: &Kernel, lo: &dyn Fn(&Symbol) -> i64) -> Words {
        let facts = Facts::from_kernel(kernel, lo);
        let load = |body: &'_ Body| match body {
            Body::Load { memlet, guard } => Some((memlet.clone(), *guard)),
            Body::Const(_) | Body::Index(_) | Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => None,
        };
        let loads: Vec<(Memlet, Option<usize>)> = kernel.body.iter().filter_map(|s| load(&s.body)).collect();
        let stores: Vec<(Memlet, Option<usize>)> = kernel.stores.iter().map(|s| (s.memlet.clone(), None)).collect();
        let count = |all: &[(Memlet, Option<usize>)], container: usize, dims: &[Dim]| {
            let of = all.iter().filter(|(m, _)| m.container == container);
            let access = |(memlet, guard): &'_ (Memlet, Option<usize>)| {
                let (ranges, sure) = facts.ranges(*guard);
                (memlet.index.clone(), ranges, sure)
            };
            let parts: Vec<_> = of.map(access).collect();
            let accesses: Vec<Access> = parts
                .iter()
                .map(|(index, ranges, sure)| Access { index, ranges: ranges.clone(), sure: *sure })
                .collect();
            reached(&facts, dims, &accesses)
        };
        Words {
            reads: kernel.reads.iter().enumerate().map(|(c, of)| count(&loads, c, &of.dims)).collect(),
            writes: kernel.writes.iter().enumerate().map(|(c, of)| count(&stores, c, &of.dims)).collect(),
        }
    }

    /// Returns the sum over all operands and results.
    pub fn total(&self) -> Count {
        let all = self.reads.iter().chain(&self.writes);
        Count {
            words: all.clone().fold(Dim::constant(0), |sum, c| sum + c.words.clone()),
            sure: all.map(|c| c.sure).max().unwrap_or(Sure::Exact),
        }
    }
}
