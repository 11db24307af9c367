//! what was found where, the outputs that are wrong  =>  a row for each value, and the first that is at fault

use super::alike::{Apart, Bound, Numbers};
use super::held::{Held, Launch, Place};
use super::values::Values;
use sardonyx_base::Tensor;

/// A value of the ONNX graph that varies with the inputs' contents.
pub struct Row {
    pub value: String,
    pub node: String,
    pub op: String,
    pub state: State,
}

pub enum State {
    Agrees {
        launch: usize,
        inside: bool,
        apart: Apart,
    },
    /// Nowhere in the program: a rewrite made do without it.
    Absent,
    /// Nowhere either, and a wrong output follows from it.
    Suspect,
}

/// Whose doing a wrong value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program means something else than the model: a rewrite, or the import.
    Meaning,
    /// The device did something else than the kernel means.
    Code,
}

/// A value that is not what it should be, while all that it follows from is.
pub struct Finding {
    pub value: String,
    pub node: String,
    pub op: String,
    /// The launch, and how far what is nearest to the value there is from it; absent where nothing has its size.
    pub nearest: Option<(usize, Apart)>,
    pub fault: Fault,
}

pub struct Report {
    pub rows: Vec<Row>,
    /// Symbol and nodes of each launch.
    pub launches: Vec<(String, Vec<String>)>,
    /// Outputs that differ, by how much.
    pub wrong: Vec<(String, Option<Apart>)>,
    pub first: Option<Finding>,
    /// The first value that is not finite where it should be.
    pub first_nonfinite: Option<Finding>,
}

pub struct WrongOutput {
    name: String,
    value: Option<usize>,
    apart: Option<Apart>,
}

/// The outputs that are not as wanted. One that no node gives, or for which nothing is known, is not judged.
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

/// Values that are nowhere and from which a wrong output follows through such values, in topological order.
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
    // One that is there, but different, rather than one that a rewrite may have made do without.
    let first = near.iter().find(|(_, nearest)| nearest.is_some()).or(near.first());
    let was_finite = |at: usize| held.wanted(at).is_some_and(Numbers::is_finite);
    // Something finite may be nearer to what should be there.
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
    pub fn passed(&self) -> bool {
        self.wrong.is_empty()
    }
}
