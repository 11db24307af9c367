//! Why a fusion does not make one kernel of two, in words

use crate::rewrite::Rewrites;
use sardonyx_dialects::flow::Program;

/// Why a rule does not make one kernel of a producer and a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The rule is about others: nothing to tell.
    Unlike,
    /// Another step reads the result too, which would be computed for each.
    ReadElsewhere(usize),
    Output,
    Statements,
    /// A contraction reads its operands many times.
    IntoContraction,
    /// The reader needs a point more than once.
    Repeated,
    FromData,
    Guarded,
    /// A slice, a reversal, a reshape.
    OtherPlaces,
    OtherSpace,
    /// The reader has a reduction where the producer has rows.
    Crosswise,
    /// They walk the same rows and share no point of them.
    NothingShared,
    /// A view of the result, which changes its dimensions, is what the reader reads.
    Reshaped(usize),
    /// A third step needs the one and is needed by the other.
    Between(usize),
}

impl Miss {
    /// Stable words; none where there is nothing to tell.
    pub fn reason(self) -> Option<&'static str> {
        Some(match self {
            Miss::Unlike => return None,
            Miss::ReadElsewhere(_) => "another kernel reads the result too",
            Miss::Output => "the result is an output of the model",
            Miss::Statements => "one kernel would have too many statements",
            Miss::IntoContraction => "a contraction computes nothing on its operands",
            Miss::Repeated => "the reader needs a point more than once",
            Miss::FromData => "the reader looks at places that are read from data",
            Miss::Guarded => "the reader looks beyond the edge",
            Miss::OtherPlaces => "the reader looks at other places",
            Miss::OtherSpace => "the iteration spaces differ",
            Miss::Crosswise => "the reader reduces across the rows",
            Miss::NothingShared => "the kernels share rows but no point of them",
            Miss::Reshaped(_) => "the result is reshaped in between",
            Miss::Between(_) => "another kernel lies between",
        })
    }

    /// What the model's author could do, where that is plain.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Miss::Output => Some("leave the output out, if nobody needs it"),
            Miss::IntoContraction => Some("store the operand as it is multiplied, or compute it before it is stored"),
            Miss::OtherPlaces | Miss::Guarded | Miss::Reshaped(_) => {
                Some("slice, pad or reshape before or after the whole chain")
            }
            Miss::Repeated => Some("compute before what repeats, not after it"),
            Miss::Unlike | Miss::ReadElsewhere(_) | Miss::Statements | Miss::FromData => None,
            Miss::OtherSpace | Miss::Crosswise | Miss::NothingShared | Miss::Between(_) => None,
        }
    }

    /// The node that is in the way: a third step's, or else one of the two.
    pub fn in_the_way(
        self,
        program: &Program,
        rewrites: &Rewrites,
        producer: usize,
        consumer: usize,
    ) -> Option<String> {
        let (p, c) = (&program.steps[producer].origins, &program.steps[consumer].origins);
        // What comes first of a step's own nodes is next to what it reads.
        let first = |step: usize, others: &[&Vec<String>]| {
            let origins = &program.steps[step].origins;
            origins.iter().find(|o| others.iter().all(|other| !other.contains(o))).or(origins.first()).cloned()
        };
        let reducer = |step: usize, others: &[&Vec<String>]| {
            let origins = &program.steps[step].origins;
            let own = origins.iter().filter(|o| others.iter().all(|other| !other.contains(o)));
            own.into_iter().find(|o| rewrites.is_reducer(o)).cloned().or_else(|| first(step, others))
        };
        match self {
            Miss::Between(third) | Miss::ReadElsewhere(third) => reducer(third, &[p, c]),
            Miss::Reshaped(view) => first(view, &[p, c]),
            Miss::Output | Miss::IntoContraction => p.last().cloned(),
            Miss::Crosswise => reducer(consumer, &[p]),
            Miss::Unlike | Miss::Statements | Miss::Repeated | Miss::FromData | Miss::Guarded => first(consumer, &[p]),
            Miss::OtherPlaces | Miss::OtherSpace | Miss::NothingShared => first(consumer, &[p]),
        }
    }
}
