//! host operations: Rust code that a plan calls, because result sizes depend on data, or a kernel would be quadratic
//!
//! The interpreter calls the same code, so there is one implementation of the semantics. To add an operation, add a
//! variant with its name and text format, and its arm in [`HostOp::run_within`]; the lowering determines the types of
//! the results and which symbols they bind (`Builder::host`).
//!
//! If and Loop are host operations, too: instead of computing, they call other entry points of the plan. Collectives
//! are host operations whose results depend on the operands of all ranks.

mod array;
mod budget;
mod collective;
mod control;
mod couple;
mod data;
mod fourier;
mod image;
#[cfg(test)]
mod limits_tests;
mod order;
mod pattern;
mod scatter;
mod select;
mod sequence;
mod text;
mod tfidf;
mod unique;

pub use array::ArrayOp;
pub use budget::{Budget, Limits};
pub use collective::{Collective, cut, halo, part, part_dims};
pub use control::{Bodies, Wanted};
pub use data::DataOp;
pub use image::Pixels;
pub use text::Case;
pub use tfidf::{Ngrams, Weighing};

use crate::{DType, Error, Result, Tensor};
use std::fmt;

/// An operation that the host performs as a step of a plan, with its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostOp {
    /// x  =>  the indices [rank, n] of the elements that are not 0, in row-major order, i64
    NonZero,
    /// x  =>  three i64 vectors: the position of the first occurrence of each distinct element; for each element, the
    /// number of the distinct element that equals it; the count of each distinct element. With an axis, an element is
    /// the slice of x at one index of this axis.
    Unique {
        /// Axis whose slices are compared; `None` compares single elements.
        axis: Option<usize>,
        /// Whether distinct elements are sorted; otherwise they are in the order of first appearance.
        sorted: bool,
    },
    /// boxes [b, m, 4], scores [b, c, m], maximum i64, overlap f32, score f32  =>  [n, 3] of (batch, class, box), i64
    NonMaxSuppression {
        /// Whether a box is (center, center, size, size); otherwise it is two opposite corners.
        center: bool,
    },
    /// condition, operands of the first body, operands of the second  =>  the results of the body that runs
    If {
        /// Number of operands of the first body.
        n_then: usize,
    },
    /// trip count, condition, carried, captured  =>  carried, stacked
    ///
    /// The body: index, condition, carried, captured  =>  condition, carried, values to be stacked.
    Loop {
        /// Number of carried values.
        n_carried: usize,
    },
    /// Operations on arrays for which kernels would take quadratic time.
    Array(ArrayOp),
    /// Operations on values that kernels cannot process, such as strings and sequences.
    Data(DataOp),
    /// Exchanges between ranks.
    Collective(Collective),
    /// The first step of a collective in two steps, between which a rank can compute: it does not wait, and the result
    /// is available only after the second step.
    Begin(Collective),
    /// The second step of [`Begin`](HostOp::Begin): waits until the result is available.
    Wait(Collective),
}

impl fmt::Display for HostOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostOp::Array(op) => return op.fmt(f),
            HostOp::Data(op) => return op.fmt(f),
            HostOp::Collective(op) => return op.fmt(f),
            HostOp::Begin(op) => return write!(f, "{BEGIN}{op}"),
            HostOp::Wait(op) => return write!(f, "{WAIT}{op}"),
            _ => {}
        }
        f.write_str(self.name())?;
        match self {
            HostOp::NonZero => Ok(()),
            HostOp::Unique { axis, sorted } => {
                axis.map_or(Ok(()), |axis| write!(f, " axis={axis}"))?;
                write!(f, " sorted={}", u8::from(*sorted))
            }
            HostOp::NonMaxSuppression { center } => write!(f, " center={}", u8::from(*center)),
            HostOp::If { n_then } => write!(f, " then={n_then}"),
            HostOp::Loop { n_carried } => write!(f, " carried={n_carried}"),
            HostOp::Array(_) | HostOp::Data(_) => Ok(()),
            HostOp::Collective(_) | HostOp::Begin(_) | HostOp::Wait(_) => Ok(()),
        }
    }
}

impl HostOp {
    /// Returns the name without attributes; both steps of a collective have the name of the collective.
    pub fn name(&self) -> &'static str {
        match self {
            HostOp::NonZero => "NonZero",
            HostOp::Unique { .. } => "Unique",
            HostOp::NonMaxSuppression { .. } => "NonMaxSuppression",
            HostOp::If { .. } => "If",
            HostOp::Loop { .. } => "Loop",
            HostOp::Array(op) => op.name(),
            HostOp::Data(op) => op.name(),
            HostOp::Collective(op) | HostOp::Begin(op) | HostOp::Wait(op) => op.name(),
        }
    }

    /// Parses text that `Display` has written, such as `Unique axis=0 sorted=1`.
    pub fn parse(text: &str) -> Option<HostOp> {
        if let Some(op) = ArrayOp::parse(text) {
            return Some(HostOp::Array(op));
        }
        if let Some(op) = DataOp::parse(text) {
            return Some(HostOp::Data(op));
        }
        let (make, collective): (fn(Collective) -> HostOp, &str) =
            match (text.strip_prefix(BEGIN), text.strip_prefix(WAIT)) {
                (Some(rest), _) => (HostOp::Begin, rest),
                (None, Some(rest)) => (HostOp::Wait, rest),
                (None, None) => (HostOp::Collective, text),
            };
        if let Some(op) = Collective::parse(collective) {
            return Some(make(op));
        }
        let mut words = text.split(' ');
        let name = words.next()?;
        let mut given: Vec<(&str, usize)> = vec![];
        for word in words {
            let (key, value) = word.split_once('=')?;
            given.push((key, value.parse().ok()?));
        }
        let mut take = |key: &str| {
            let at = given.iter().position(|(k, _)| *k == key)?;
            Some(given.remove(at).1)
        };
        let flag = |value: usize| (value < 2).then_some(value == 1);
        let op = match name {
            "NonZero" => HostOp::NonZero,
            "Unique" => HostOp::Unique { axis: take("axis"), sorted: flag(take("sorted")?)? },
            "NonMaxSuppression" => HostOp::NonMaxSuppression { center: flag(take("center")?)? },
            "If" => HostOp::If { n_then: take("then")? },
            "Loop" => HostOp::Loop { n_carried: take("carried")? },
            _ => return None,
        };
        given.is_empty().then_some(op)
    }

    /// Returns the collective that the operation performs, begins or awaits, if any. The dimensions of its result are
    /// known in advance, so the plan assigns memory to the result as it does for kernels.
    pub fn exchange(&self) -> Option<&Collective> {
        if let HostOp::Collective(op) | HostOp::Begin(op) | HostOp::Wait(op) = self { Some(op) } else { None }
    }

    /// Number of entry points that the operation calls.
    pub fn n_bodies(&self) -> usize {
        match self {
            HostOp::NonZero | HostOp::Unique { .. } | HostOp::NonMaxSuppression { .. } => 0,
            HostOp::Array(_) | HostOp::Data(_) => 0,
            HostOp::Collective(_) | HostOp::Begin(_) | HostOp::Wait(_) => 0,
            HostOp::If { .. } => 2,
            HostOp::Loop { .. } => 1,
        }
    }

    /// The largest possible value of the data-dependent dimension of a result, for operands of these dimensions; `None`
    /// if no bound is known.
    pub fn size_max(&self, args: &[Vec<i64>]) -> Option<i64> {
        let product = |dims: &[i64]| dims.iter().try_fold(1i64, |n, d| n.checked_mul(*d));
        match self {
            HostOp::NonZero | HostOp::Unique { axis: None, .. } => product(args.first()?),
            HostOp::Unique { axis: Some(axis), .. } => args.first()?.get(*axis).copied(),
            // Each box is selected at most once per class and batch.
            HostOp::NonMaxSuppression { .. } => product(args.get(1)?),
            HostOp::If { .. } | HostOp::Loop { .. } => None,
            HostOp::Array(_) | HostOp::Data(_) => None,
            HostOp::Collective(_) | HostOp::Begin(_) | HostOp::Wait(_) => None,
        }
    }

    /// Whether the operation only calls entry points and computes nothing itself.
    pub fn is_call(&self) -> bool {
        self.n_bodies() > 0
    }

    /// The feature of this crate that the operation needs, if this build was made without that feature.
    pub fn lacks(&self) -> Option<&'static str> {
        match self {
            HostOp::Data(DataOp::ImageDecoder { .. }) => (!cfg!(feature = "image")).then_some("image"),
            HostOp::Data(DataOp::RegexFullMatch) => (!cfg!(feature = "regex")).then_some("regex"),
            HostOp::Data(_) | HostOp::NonZero | HostOp::Unique { .. } | HostOp::NonMaxSuppression { .. } => None,
            HostOp::If { .. } | HostOp::Loop { .. } | HostOp::Array(_) => None,
            HostOp::Collective(_) | HostOp::Begin(_) | HostOp::Wait(_) => None,
        }
    }

    /// Number of operands; `None` if it varies.
    pub fn n_args(&self) -> Option<usize> {
        match self {
            HostOp::NonZero | HostOp::Unique { .. } => Some(1),
            HostOp::Collective(_) | HostOp::Begin(_) | HostOp::Wait(_) => Some(1),
            HostOp::NonMaxSuppression { .. } => Some(5),
            HostOp::If { .. } | HostOp::Loop { .. } => None,
            HostOp::Array(op) => Some(op.n_args()),
            HostOp::Data(op) => op.n_args(),
        }
    }

    /// The type and rank of result `i`, for operands of these ranks; `None` if the operation does not determine them.
    pub fn result(&self, i: usize, ranks: &[usize]) -> Option<(DType, usize)> {
        let rank = match (self, i) {
            (HostOp::NonZero, 0) | (HostOp::NonMaxSuppression { .. }, 0) => 2,
            (HostOp::Unique { .. }, 0..3) => 1,
            (HostOp::NonZero | HostOp::NonMaxSuppression { .. } | HostOp::Unique { .. }, _) => return None,
            (HostOp::If { .. } | HostOp::Loop { .. }, _) => return None,
            (HostOp::Array(_) | HostOp::Data(_), _) => return None,
            (HostOp::Collective(_) | HostOp::Begin(_) | HostOp::Wait(_), _) => return None,
        };
        (self.n_args() == Some(ranks.len())).then_some((DType::I64, rank))
    }

    /// Whether result `i` may have this type and rank. The results of a call may have any type and rank, because its
    /// bodies determine both.
    pub fn admits(&self, i: usize, ranks: &[usize], dtype: DType, rank: usize) -> bool {
        match self {
            HostOp::Array(op) => i == 0 && op.admits(ranks, dtype, rank),
            HostOp::Data(op) => op.admits(i, ranks, dtype, rank),
            HostOp::Collective(op) | HostOp::Begin(op) | HostOp::Wait(op) => {
                i == 0 && ranks == [rank] && op.admits(dtype, rank)
            }
            _ => self.is_call() || self.result(i, ranks) == Some((dtype, rank)),
        }
    }

    /// Computes all results of an operation that is neither a call nor a collective, without limits. Errors: E0303 if
    /// the operands do not fit.
    pub fn run(&self, args: &[Tensor]) -> Result<Vec<Tensor>> {
        self.run_within(args, &Budget::unlimited())
    }

    /// Like [`run`](HostOp::run), within the limits of a call. Further errors: E0304, E0305 or E0306 at a limit.
    pub fn run_within(&self, args: &[Tensor], budget: &Budget) -> Result<Vec<Tensor>> {
        budget.work(1)?;
        let results = match (self, args) {
            (HostOp::Array(op), args) => vec![op.run(args, budget)?],
            (HostOp::Data(op), args) => op.run(args, budget)?,
            (HostOp::NonZero, [x]) => select::nonzero(x, budget)?,
            (HostOp::Unique { axis, sorted }, [x]) => unique::unique(x, *axis, *sorted, budget)?,
            (HostOp::NonMaxSuppression { center }, [boxes, scores, most, overlap, score]) => {
                select::non_max_suppression(boxes, scores, [most, overlap, score], *center, budget)?
            }
            (HostOp::NonZero | HostOp::Unique { .. } | HostOp::NonMaxSuppression { .. }, _) => {
                return Err(unfit(format!("{} takes {:?} operands, not {}", self.name(), self.n_args(), args.len())));
            }
            (HostOp::If { .. } | HostOp::Loop { .. }, _) => {
                return Err(Error::defect(format!("`{self}` calls entry points, and was given none")));
            }
            (HostOp::Collective(op) | HostOp::Begin(op) | HostOp::Wait(op), _) => return Err(alone(op)),
        };
        Ok(results)
    }

    /// Computes the results of any operation: a call runs its bodies, and a collective exchanges data with the other
    /// ranks.
    pub fn run_with(
        &self,
        args: &[Tensor],
        wanted: &[Wanted],
        bodies: &mut dyn Bodies,
        budget: &Budget,
    ) -> Result<Vec<Tensor>> {
        match self {
            HostOp::If { n_then } => control::run_if(*n_then, args, bodies),
            HostOp::Loop { n_carried } => control::run_loop(*n_carried, args, wanted, bodies, budget),
            HostOp::Collective(op) | HostOp::Begin(op) | HostOp::Wait(op) => match args {
                [operand] => Ok(vec![bodies.exchange(op, operand)?]),
                _ => Err(unfit(format!("`{op}` takes one operand, not {}", args.len()))),
            },
            HostOp::NonZero | HostOp::Unique { .. } | HostOp::NonMaxSuppression { .. } => self.run_within(args, budget),
            HostOp::Array(_) | HostOp::Data(_) => self.run_within(args, budget),
        }
    }
}

/// Prefixes of the texts of [`HostOp::Begin`] and [`HostOp::Wait`].
const BEGIN: &str = "begin ";
const WAIT: &str = "wait ";

fn unfit(message: String) -> Box<Error> {
    Error::user("E0303", message)
}

/// The error of running a program for several ranks on a single rank: E0407.
pub fn alone(op: &Collective) -> Box<Error> {
    Error::user("E0407", format!("`{op}` needs the other ranks of the mesh"))
        .help("run the model with as many ranks as it was compiled for")
}

/// The error of an operation that was left out of this build: E0405. A plan's loader checks [`HostOp::lacks`] first.
pub fn left_out(op: &str, feature: &str) -> Box<Error> {
    Error::user("E0405", format!("this program was built without the host operation `{op}`"))
        .help(format!("build sardonyx-runtime with the feature `{feature}`"))
}

/// Returns an i64 tensor.
fn numbers(dims: Vec<usize>, values: Vec<i64>) -> Tensor {
    Tensor::from_vec(dims, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_parsed_back() {
        for op in [
            HostOp::NonZero,
            HostOp::Unique { axis: None, sorted: true },
            HostOp::Unique { axis: Some(2), sorted: false },
            HostOp::NonMaxSuppression { center: true },
            HostOp::If { n_then: 3 },
            HostOp::Loop { n_carried: 2 },
            HostOp::Begin(Collective::AllGather { mesh: 0, dim: 1 }),
            HostOp::Wait(Collective::AllGather { mesh: 0, dim: 1 }),
        ] {
            assert_eq!(HostOp::parse(&op.to_string()), Some(op));
        }
        for wrong in ["", "Unique", "NonZero x=1", "Unique sorted=2", "If then=-1", "If", "Nothing", "begin NonZero"] {
            assert_eq!(HostOp::parse(wrong), None, "{wrong}");
        }
    }
}
