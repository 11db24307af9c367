//! the values that were found, the wrong outputs  =>  a row for each value, and the first value at fault

use super::alike::{Apart, Bound, Numbers};
use super::held::{Held, Launch, Place};
use super::values::Values;
use sardonyx_base::Tensor;

/// A value of the ONNX graph that depends on the contents of inputs.
pub struct Row {
    /// Name of the ONNX value.
    pub value: String,
    /// Name of the node that produces it.
    pub node: String,
    /// Operator of that node, such as `MatMul`.
    pub op: String,
    /// Where the program holds the value, if it does.
    pub state: State,
}

/// Where a value was found in the program, or why it was not found.
pub enum State {
    /// The value was found, within the tolerance.
    Agrees {
        /// Index into `Report::launches`.
        launch: usize,
        /// Whether the value is only computed inside the kernel and not stored in memory.
        inside: bool,
        /// Differences from the expected value.
        apart: Apart,
    },
    /// The value was not found in the program, but it cannot explain a wrong output: a rewrite may have made it
    /// unnecessary.
    Absent,
    /// The value was not found in the program, and a wrong output depends on it.
    Suspect,
}

/// The cause of a wrong value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program differs from the model, by a rewrite or by the import.
    Meaning,
    /// The device computed something else than the kernel means.
    Code,
}

/// A value that was not found in the program, and on which a wrong output depends.
pub struct Finding {
    /// Name of the ONNX value.
    pub value: String,
    /// Name of the node that produces it.
    pub node: String,
    /// Operator of that node, such as `MatMul`.
    pub op: String,
    /// The launch for the value's node with the tensor nearest to the value, and their differences; `None` if no such
    /// launch has a tensor of the value's size in which no value was found.
    pub nearest: Option<(usize, Apart)>,
    /// Whether the program or its code is at fault.
    pub fault: Fault,
}

/// Result of comparing one call.
pub struct Report {
    /// One row for each value that was compared, in topological order.
    pub rows: Vec<Row>,
    /// Kernel symbol and ONNX nodes of each launch.
    pub launches: Vec<(String, Vec<String>)>,
    /// Outputs that are wrong, with their differences.
    pub wrong: Vec<(String, Option<Apart>)>,
    /// The first suspect value with a nearest tensor, or else the first suspect value; `None` if no value is suspect.
    pub first: Option<Finding>,
    /// The first suspect value whose nearest tensor has infinities or NaNs although none are expected.
    pub first_nonfinite: Option<Finding>,
}

pub struct WrongOutput {
    name: String,
    value: Option<usize>,
    apart: Option<Apart>,
}

/// The outputs that differ from the expected ones. Outputs that no node produces, or that have no expected or no
/// computed value, are skipped.
pub fn wrong_outputs(
    values: &Values,
    wanted: &[Option<Tensor>],
    outputs: &[(String, Tensor)],
    bound: Bound,
) -> Vec<WrongOutput> {
    let mut wrong = vec![];
    for (name, value) in &values.outputs {
        let Some(want) = value.and_then(|at| wanted[at].as_ref()) else { continue };
        let Some((_, got)) = outputs.iter().find(|(n, _)| n == name) else { continue };
        // Strings cannot be read as numbers; equal bits are right for every type.
        if got == want {
            continue;
        }
        let apart = match (Numbers::read(want), Numbers::read(got)) {
            (Some(w), Some(g)) if want.dims() == got.dims() => w.apart_in_place(&g, bound),
            _ => None,
        };
        if apart.is_none_or(|a| a.n_outside > 0) {
            wrong.push(WrongOutput { name: name.clone(), value: *value, apart });
        }
    }
    wrong
}

/// Values that were not found, and on which a wrong output depends through values that were not found either, in
/// topological order.
pub fn suspects(values: &Values, held: &Held, wrong: &[WrongOutput]) -> Vec<usize> {
    let mut reached = vec![false; values.all.len()];
    let mut stack: Vec<usize> = wrong.iter().filter_map(|w| w.value).collect();
    while let Some(at) = stack.pop() {
        let nowhere = values.all[at].varies && held.found(at).is_none();
        if nowhere && !std::mem::replace(&mut reached[at], true) {
            stack.extend(&values.all[at].reads);
        }
    }
    (0..reached.len()).filter(|&at| reached[at] && held.wanted(at).is_some()).collect()
}

pub fn report(values: &Values, held: &Held, launches: &[Launch], wrong: Vec<WrongOutput>) -> Report {
    let suspects = suspects(values, held, &wrong);
    let compared = (0..values.all.len()).filter(|&at| held.wanted(at).is_some());
    let row = |at: usize| {
        let state = match held.found(at) {
            Some((Place { launch, inside }, apart)) => State::Agrees { launch, inside, apart },
            None if suspects.contains(&at) => State::Suspect,
            None => State::Absent,
        };
        let v = &values.all[at];
        Row { value: v.name.clone(), node: v.node.clone(), op: v.op.clone(), state }
    };
    let rows = compared.map(row).collect();
    let finding = |at: usize, nearest: Option<(Place, Apart)>| {
        let v = &values.all[at];
        let code = nearest.is_some_and(|(place, _)| held.is_wrong_code(place.launch) && !place.inside);
        let (value, node, op) = (v.name.clone(), v.node.clone(), v.op.clone());
        let fault = if code { Fault::Code } else { Fault::Meaning };
        Finding { value, node, op, nearest: nearest.map(|(place, apart)| (place.launch, apart)), fault }
    };
    let near: Vec<(usize, Option<(Place, Apart)>)> =
        suspects.iter().map(|&at| (at, held.nearest(at, launches, &|_| true))).collect();
    // Prefers a value with a nearest tensor over one that a rewrite may have made unnecessary.
    let first = near.iter().find(|(_, nearest)| nearest.is_some()).or(near.first());
    let was_finite = |at: usize| held.wanted(at).is_some_and(Numbers::is_finite);
    // Only non-finite tensors count here, even if a finite one is nearer.
    let nonfinite = |at: usize| held.nearest(at, launches, &|n| !n.is_finite()).filter(|_| was_finite(at));
    let nonfinite = suspects.iter().find_map(|&at| Some((at, nonfinite(at)?)));
    Report {
        rows,
        launches: launches.iter().map(|l| (l.kernel.clone(), l.origins.clone())).collect(),
        first: first.map(|(at, nearest)| finding(*at, *nearest)),
        first_nonfinite: nonfinite.map(|(at, nearest)| finding(at, Some(nearest))),
        wrong: wrong.into_iter().map(|w| (w.name, w.apart)).collect(),
    }
}

impl Report {
    /// Returns whether no output is wrong.
    pub fn passed(&self) -> bool {
        self.wrong.is_empty()
    }
}
