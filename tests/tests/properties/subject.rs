//! basis operations × their element types  =>  the subjects of test programs; coverage is counted by subject

use super::models::Form;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::{Conversion, ROWS, ReduceFn, ResultType, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Node, Op};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Map(ScalarFn, DType),
    /// The conversion, the type of the operand, and the type of the result.
    Convert(Conversion, DType, DType),
    Reduce(ReduceFn, DType),
    Contract(DType),
    Move(Move, DType),
    Iota,
    Dims,
    /// An ONNX node, for features that only the front end has: negative axes, indices from the end.
    Model(Form),
}

/// Operations that only store or rearrange elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    Append,
    Broadcast,
    Concat,
    Const,
    Gather,
    Pad,
    Param,
    Reshape,
    Slice,
    Transpose,
    Window,
}

impl Move {
    pub const ALL: [Move; 11] = [
        Move::Append,
        Move::Broadcast,
        Move::Concat,
        Move::Const,
        Move::Gather,
        Move::Pad,
        Move::Param,
        Move::Reshape,
        Move::Slice,
        Move::Transpose,
        Move::Window,
    ];
}

/// Returns the float, integer and boolean element types.
pub fn dtypes() -> impl Iterator<Item = DType> {
    DType::all().filter(|t| t.is_float() || t.is_int() || *t == DType::Bool)
}

/// Returns lists of subjects, each with the number of seeds out of 20 that take a subject of the list.
fn classes() -> [(usize, Vec<Subject>); 6] {
    let maps =
        ROWS.iter().flat_map(|row| dtypes().filter(|t| row.domain.contains(*t)).map(|t| Subject::Map(row.function, t)));
    let pairs = dtypes().flat_map(|from| dtypes().map(move |to| (from, to)));
    let converts = pairs.flat_map(|(from, to)| {
        let hows = [Conversion::Value, Conversion::Bits].into_iter().filter(move |how| how.check(from, to).is_ok());
        hows.map(move |how| Subject::Convert(how, from, to))
    });
    let numbers = || dtypes().filter(|t| *t != DType::Bool);
    let reduces = ReduceFn::ALL.into_iter().flat_map(|f| numbers().map(move |t| Subject::Reduce(f, t)));
    let moves = Move::ALL.into_iter().flat_map(|m| dtypes().map(move |t| Subject::Move(m, t)));
    let moves = moves.chain([Subject::Iota, Subject::Dims]);
    [
        (7, maps.collect()),
        (3, converts.collect()),
        (2, reduces.collect()),
        (4, moves.collect()),
        (1, numbers().map(Subject::Contract).collect()),
        (3, Form::ALL.into_iter().map(Subject::Model).collect()),
    ]
}

pub struct Schedule {
    classes: [(usize, Vec<Subject>); 6],
}

impl Schedule {
    pub fn new() -> Schedule {
        Schedule { classes: classes() }
    }

    /// Returns the subject for a seed. Of every 20 consecutive seeds, each class gets its share. Successive seeds of a
    /// class advance in its list by a step that is coprime to the length of the list, so that every subject is reached.
    pub fn subject(&self, seed: u64) -> Subject {
        let (round, mut place) = (seed as usize / 20, seed as usize % 20);
        for (share, subjects) in &self.classes {
            if place < *share {
                let n = subjects.len();
                let step = (1 + n * 5 / 8..).find(|s| gcd(*s, n) == 1).expect("a prime above");
                return subjects[(round * share + place) * step % n];
            }
            place -= share;
        }
        unreachable!("the shares make 20")
    }

    pub fn all(&self) -> impl Iterator<Item = Subject> {
        self.classes.iter().flat_map(|(_, subjects)| subjects.iter().copied())
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the subject that a node exercises; `None` for inputs, placements, bindings of symbols and host operations.
pub fn subject_of(graph: &Graph, node: &Node) -> Option<Subject> {
    let from = |i: usize| graph.ty(node.args[i]).dtype;
    let dtype = node.ty.dtype;
    Some(match &node.op {
        Op::Input { .. } | Op::Bind { .. } | Op::Place(_) | Op::Host(_) => return None,
        Op::Map(f) => match f.row().result {
            ResultType::Same => Subject::Map(*f, dtype),
            ResultType::Bool => Subject::Map(*f, from(0)),
        },
        Op::Convert(how) => Subject::Convert(*how, from(0), dtype),
        Op::Reduce { f, .. } => Subject::Reduce(*f, dtype),
        Op::Contract(_) => Subject::Contract(dtype),
        Op::Dims(_) => Subject::Dims,
        Op::Iota { .. } => Subject::Iota,
        Op::Append { .. } => Subject::Move(Move::Append, dtype),
        Op::Broadcast { .. } => Subject::Move(Move::Broadcast, dtype),
        Op::Concat { .. } => Subject::Move(Move::Concat, dtype),
        Op::Const(_) => Subject::Move(Move::Const, dtype),
        Op::Gather { .. } => Subject::Move(Move::Gather, dtype),
        Op::Pad { .. } => Subject::Move(Move::Pad, dtype),
        Op::Param { .. } => Subject::Move(Move::Param, dtype),
        Op::Reshape => Subject::Move(Move::Reshape, dtype),
        Op::Slice { .. } => Subject::Move(Move::Slice, dtype),
        Op::Transpose { .. } => Subject::Move(Move::Transpose, dtype),
        Op::Window(_) => Subject::Move(Move::Window, dtype),
    })
}

impl Subject {
    /// Returns the name of the operation, such as `map add`, `reduce max`, `convert`, `slice` or `onnx Split`.
    pub fn operation(self) -> String {
        match self {
            Subject::Map(f, _) => format!("map {}", f.name()),
            Subject::Convert(Conversion::Value, ..) => "convert".into(),
            Subject::Convert(Conversion::Bits, ..) => "convert bits".into(),
            Subject::Reduce(f, _) => format!("reduce {}", f.name()),
            Subject::Contract(_) => "contract".into(),
            Subject::Move(m, _) => format!("{m:?}").to_lowercase(),
            Subject::Iota => "iota".into(),
            Subject::Dims => "dims".into(),
            Subject::Model(form) => format!("onnx {form:?}"),
        }
    }

    pub fn dtype(self) -> Option<DType> {
        match self {
            Subject::Map(_, t) | Subject::Reduce(_, t) | Subject::Contract(t) | Subject::Move(_, t) => Some(t),
            Subject::Convert(_, from, _) => Some(from),
            Subject::Iota | Subject::Dims | Subject::Model(_) => None,
        }
    }
}
