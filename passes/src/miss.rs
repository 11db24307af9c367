//! Reasons why a fusion of two kernels fails, in words

use crate::rewrite::Rewrites;
use sardonyx_dialects::flow::Program;

/// Why a rule does not fuse a producer with a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The rule does not apply to kernels of these classes; nothing is reported.
    Unlike,
    /// The step with this index also reads the result, which would have to be computed once for each consumer.
    ReadElsewhere(usize),
    Output,
    Statements,
    /// The consumer is a contraction, which reads each element of its operands many times.
    IntoContraction,
    /// The consumer reads a point of the result more than once.
    Repeated,
    FromData,
    Guarded,
    /// The consumer reads the result at other indices than those at which the producer stores it, as for a slice or a
    /// reversal.
    OtherPlaces,
    OtherSpace,
    /// Both kernels reduce, but along different dimensions: an outer variable of one is an inner variable of the other.
    Crosswise,
    /// The kernels iterate over the same points, but the consumer reads no element that the producer computes or reads
    /// at a point.
    NothingShared,
    /// The consumer reads a view of the result with other dimensions; the step with this index creates the view.
    Reshaped(usize),
    /// The step with this index depends on the producer, and the consumer depends on that step.
    Between(usize),
}

impl Miss {
    /// Returns a stable description of the reason, or `None` if there is nothing to report.
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

    /// Returns how the model's author could change the model to make the fusion possible, if that is known.
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

    /// Returns the ONNX node that prevents fusion: a node of the third step if the reason has the index of one,
    /// otherwise a node of the producer or of the consumer.
    pub fn in_the_way(
        self,
        program: &Program,
        rewrites: &Rewrites,
        producer: usize,
        consumer: usize,
    ) -> Option<String> {
        let (p, c) = (&program.steps[producer].origins, &program.steps[consumer].origins);
        // Among the nodes that only this step implements, the first one is the closest to the step's operands.
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
