//! the strategies of each operation along an axis, those chosen along the other axes  =>  the fastest choice
//!
//! The variables are how each value is produced and, for a value with several consumers, the set of forms (whole, split
//! or partial) in which they read it, because a value is exchanged only once for each form. How much is exchanged along
//! one axis follows from the states in which the value is produced along the other axes.

use super::eliminate::{Problem, TABLE_MAX};
use super::machine::{Machine, Work, bytes};
use super::space::Space;
use crate::shard::{Signature, State};
use sardonyx_base::host::Collective;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::sdx::{Graph, Node, Op, Role, TensorType, Value};

/// Index of the strategy of each value, by axis and then by value.
pub type Choice = Vec<Vec<usize>>;

/// Limits for a value with several consumers: the number of forms in which it may be supplied to them, and the number
/// of forms that are considered.
const FORMS_MAX: usize = 3;
const CANDIDATES_MAX: usize = 10;

pub struct Search<'s, 't, 'g> {
    pub machine: &'s Machine<'s, 't>,
    /// Strategies of each operation, by axis.
    pub spaces: &'s [Space<'g>],
    /// Price of a byte of weights on each rank, in microseconds; 0 if memory is sufficient.
    pub us_per_byte: f64,
}

impl<'g> Search<'_, '_, 'g> {
    fn graph(&self) -> &'g Graph {
        self.spaces[0].graph
    }

    /// Returns the choice in which every rank computes everything.
    pub fn replicated(&self) -> Choice {
        vec![vec![0; self.graph().nodes.len()]; self.spaces.len()]
    }

    /// Improves the choice along one axis while the choices along the others stay fixed, and returns the total cost.
    pub fn improve(&self, axis: usize, choice: &mut Choice) -> Result<f64> {
        let space = &self.spaces[axis];
        let n = self.graph().nodes.len();
        let mut problem = Problem::default();
        let mut variables = vec![usize::MAX; n];
        let mut start = vec![];
        for (v, _) in self.graph().values() {
            if !space.ways[v.index()].is_empty() {
                variables[v.index()] = problem.variable(space.ways[v.index()].len());
                start.push(choice[axis][v.index()]);
            }
        }
        for (v, _) in self.graph().values().filter(|(v, _)| variables[v.index()] != usize::MAX) {
            let costs: Vec<f64> = (0..space.ways[v.index()].len()).map(|w| self.own_us(v, axis, w, choice)).collect();
            problem.add(&[variables[v.index()]], |x| costs[x[0]]);
            self.add_supply(v, axis, choice, (&variables, &mut problem, &mut start))?;
        }
        let solution = problem.minimum(&start, TABLE_MAX);
        if !solution.cost.is_finite() {
            return Err(Error::defect("no way to distribute a program is allowed, not even to do all everywhere"));
        }
        for (v, variable) in variables.iter().enumerate().filter(|(_, x)| **x != usize::MAX) {
            choice[axis][v] = solution.values[*variable];
        }
        Ok(solution.cost)
    }

    /// Returns the cost of a choice, summed value by value.
    #[cfg(test)]
    pub fn cost(&self, axis: usize, choice: &Choice) -> Result<f64> {
        let mut all = 0.0;
        for (v, _) in self.graph().values() {
            let Some(way) = self.signature_for(v, axis, choice) else { continue };
            let forms = self.forms_wanted(v, axis, choice);
            all += self.own_us(v, axis, choice[axis][v.index()], choice);
            if !forms.is_empty() {
                all += self.supply_us(&way.result, &forms, axis, v, self.size_along(v, axis, choice))?;
            }
        }
        Ok(all)
    }

    /// Returns the forms in which a value is read under a choice.
    fn forms_wanted(&self, v: Value, axis: usize, choice: &Choice) -> Vec<State> {
        let space = &self.spaces[axis];
        let mut forms = if space.is_wanted_whole(v) { vec![State::Whole] } else { vec![] };
        for reader in &space.readers[v.index()] {
            let Some(theirs) = self.signature_for(*reader, axis, choice) else { continue };
            for need in space.needs(*reader, theirs, v) {
                if !forms.contains(need) {
                    forms.push(need.clone());
                }
            }
        }
        forms
    }

    /// Adds the cost of producing a value in the forms in which it is read.
    fn add_supply(
        &self,
        v: Value,
        axis: usize,
        choice: &Choice,
        (variables, problem, start): (&[usize], &mut Problem, &mut Vec<usize>),
    ) -> Result<()> {
        let space = &self.spaces[axis];
        let (own, ways, readers) = (variables[v.index()], &space.ways[v.index()], &space.readers[v.index()]);
        let size = self.size_along(v, axis, choice);
        let supply = |way: usize, forms: &[State]| self.supply_us(&ways[way].result, forms, axis, v, size);
        match (readers.as_slice(), space.is_wanted_whole(v)) {
            ([], false) => {}
            ([], true) => {
                let costs = (0..ways.len()).map(|w| supply(w, &[State::Whole])).collect::<Result<Vec<f64>>>()?;
                problem.add(&[own], |x| costs[x[0]]);
            }
            ([reader], false) => {
                let theirs = &space.ways[reader.index()];
                let mut costs = vec![];
                for way in 0..ways.len() {
                    for their in theirs {
                        let forms: Vec<State> = space.needs(*reader, their, v).cloned().collect();
                        costs.push(supply(way, &forms)?);
                    }
                }
                problem.add(&[own, variables[reader.index()]], |x| costs[x[0] * theirs.len() + x[1]]);
            }
            (readers, wanted) => {
                let mut forms = vec![State::Whole];
                for reader in readers {
                    for their in &space.ways[reader.index()] {
                        for form in space.needs(*reader, their, v) {
                            if !forms.contains(form) && forms.len() < CANDIDATES_MAX {
                                forms.push(form.clone());
                            }
                        }
                    }
                }
                let sets = subsets(&forms, wanted);
                let set = problem.variable(sets.len());
                let mut costs = vec![];
                for way in 0..ways.len() {
                    for forms in &sets {
                        costs.push(supply(way, forms)?);
                    }
                }
                problem.add(&[own, set], |x| costs[x[0] * sets.len() + x[1]]);
                for reader in readers {
                    let theirs = &space.ways[reader.index()];
                    let has_all = |forms: &Vec<State>, way: &Signature| {
                        space.needs(*reader, way, v).all(|need| forms.contains(need))
                    };
                    problem.add(&[set, variables[reader.index()]], |x| {
                        if has_all(&sets[x[0]], &theirs[x[1]]) { 0.0 } else { f64::INFINITY }
                    });
                }
                let now = self.forms_wanted(v, axis, choice);
                let same = |forms: &Vec<State>| forms.len() == now.len() && now.iter().all(|form| forms.contains(form));
                start.push(sets.iter().position(same).unwrap_or(0));
            }
        }
        Ok(())
    }

    /// Returns the bytes of a value that the ranks along an axis hold together, given how the other axes divide it.
    fn size_along(&self, v: Value, axis: usize, choice: &Choice) -> f64 {
        let share: f64 = self.others(axis).map(|a| self.result_share(v, a, choice)).product();
        bytes(self.spaces[axis].elements[v.index()], self.graph().ty(v).dtype) * share
    }

    fn others(&self, axis: usize) -> impl Iterator<Item = usize> {
        (0..self.spaces.len()).filter(move |a| *a != axis)
    }

    fn signature_for<'w>(&'w self, v: Value, axis: usize, choice: &Choice) -> Option<&'w Signature> {
        self.spaces[axis].ways[v.index()].get(choice[axis][v.index()])
    }

    fn result_share(&self, v: Value, axis: usize, choice: &Choice) -> f64 {
        self.signature_for(v, axis, choice).map_or(1.0, |way| self.spaces[axis].share(&way.result))
    }

    fn supply_us(&self, has: &State, forms: &[State], axis: usize, v: Value, size: f64) -> Result<f64> {
        let exchange = |op: Collective| self.machine.exchange_us(&op, size);
        let is_made = |f: &State| matches!(f, State::Partial(_) | State::Halo(_));
        Ok(match has {
            State::Whole if forms.iter().any(is_made) => f64::INFINITY,
            State::Whole => 0.0,
            State::Halo(_) if forms.iter().all(|f| f == has) => 0.0,
            State::Halo(_) => f64::INFINITY,
            State::Split(_) if forms.iter().any(is_made) => f64::INFINITY,
            State::Split(_) if forms.iter().all(|f| f == has) => 0.0,
            State::Split(_) => exchange(Collective::AllGather { mesh: axis, dim: 0 })?,
            State::Partial(f) => {
                if !f.admits(self.graph().ty(v).dtype) {
                    return Ok(f64::INFINITY);
                }
                let one = |form: &State| match form {
                    State::Whole => exchange(Collective::AllReduce { mesh: axis, f: *f }),
                    State::Split(_) => exchange(Collective::ReduceScatter { mesh: axis, f: *f, dim: 0 }),
                    State::Partial(by) => Ok(if by == f { 0.0 } else { f64::INFINITY }),
                    State::Halo(_) => Ok(f64::INFINITY),
                };
                forms.iter().map(one).sum::<Result<f64>>()?
            }
        })
    }

    /// Returns the cost of an operation under one strategy, including the price of the weights that it reads.
    fn own_us(&self, v: Value, axis: usize, way: usize, choice: &Choice) -> f64 {
        let node = self.graph().node(v);
        let mut ways: Vec<&Signature> = vec![];
        for (a, (space, chosen)) in self.spaces.iter().zip(choice).enumerate() {
            let number = if a == axis { way } else { chosen[v.index()] };
            ways.push(&space.ways[v.index()][number]);
        }
        // A dimension may be split along one axis only.
        let states = |way: &'_ Signature| way.operands.iter().chain([&way.result]).cloned().collect::<Vec<State>>();
        let clashes = |a: usize| {
            states(ways[a]).iter().zip(states(ways[axis])).any(|pair| match pair {
                (State::Split(x), State::Split(y)) => x.dim == y.dim,
                _ => false,
            })
        };
        if self.others(axis).any(clashes) {
            return f64::INFINITY;
        }
        let share = |pick: &dyn Fn(&Signature) -> State| -> f64 {
            ways.iter().zip(self.spaces).map(|(way, space)| space.share(&pick(way))).product()
        };
        let work_share: f64 = ways.iter().zip(self.spaces).map(|(way, space)| space.work_share(way)).product();
        let elements = &self.spaces[0].elements;
        let operands: Vec<f64> = (node.args.iter().enumerate())
            .map(|(i, arg)| elements[arg.index()] * share(&|way| way.operands[i].clone()))
            .collect();
        let result = elements[v.index()] * share(&|way| way.result.clone());
        let types: Vec<&TensorType> = node.args.iter().map(|arg| self.graph().ty(*arg)).collect();
        let work = work(node, &types, (&operands, result), self.spaces[0].products[v.index()] * work_share);
        let fixed = &self.spaces[0].fixed;
        let weights: f64 = (node.args.iter().zip(&operands))
            .filter(|(arg, _)| fixed[arg.index()])
            .map(|(arg, n)| bytes(*n, self.graph().ty(*arg).dtype))
            .sum();
        self.machine.compute_us(work) + weights * self.us_per_byte + self.halos_us(node, &ways, &operands)
    }

    /// Returns the cost of the halos that an operation takes from neighbouring ranks. `operands` are the elements of a
    /// rank's operands.
    fn halos_us(&self, node: &Node, ways: &[&Signature], operands: &[f64]) -> f64 {
        let mut all = 0.0;
        for (axis, (way, space)) in ways.iter().zip(self.spaces).enumerate() {
            let (Some(State::Split(has)), State::Halo(halo)) = (way.operands.first(), &way.result) else { continue };
            let Some(n) = has.extent().as_const().filter(|_| halo.taken() > 0) else { continue };
            let indices = (n as f64 * space.share(&way.operands[0])).max(1.0);
            let taken = operands[0] / indices * halo.taken() as f64;
            let op = Collective::Halo { mesh: axis, dim: 0, before: 1, after: 1 };
            all += self
                .machine
                .exchange_us(&op, bytes(taken, self.graph().ty(node.args[0]).dtype))
                .unwrap_or(f64::INFINITY);
        }
        all
    }
}

/// Returns the work of a node, given the element counts of its operands and result and its number of multiplications.
pub fn work(node: &Node, types: &[&TensorType], (operands, result): (&[f64], f64), products: f64) -> Work {
    let read = || operands.iter().zip(types).map(|(n, ty)| bytes(*n, ty.dtype)).sum::<f64>();
    let written = bytes(result, node.ty.dtype);
    match node.op.role() {
        // The past is not copied.
        _ if matches!(node.op, Op::Append { .. }) => Work::default(),
        Role::Product => Work { products: 2.0 * products, bytes: read() + written, launches: 1 },
        Role::Reduction => Work { bytes: read() + written, launches: 1, ..Work::default() },
        Role::Copy | Role::Host => Work { bytes: 2.0 * written, launches: 1, ..Work::default() },
        // A map is assumed to be fused with the operand's producer or the result's consumer: it only writes its result.
        Role::Elementwise => Work { bytes: written, ..Work::default() },
        Role::Given | Role::View | Role::Marker => Work::default(),
    }
}

/// Returns all non-empty sets of at most `FORMS_MAX` forms, those with the first form (the whole value) only if
/// `with_whole`.
fn subsets(forms: &[State], with_whole: bool) -> Vec<Vec<State>> {
    let mut all: Vec<Vec<State>> = vec![];
    for bits in 1u32..1 << forms.len() {
        if bits.count_ones() as usize <= FORMS_MAX && (!with_whole || bits & 1 == 1) {
            all.push(forms.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, f)| f.clone()).collect());
        }
    }
    all
}
