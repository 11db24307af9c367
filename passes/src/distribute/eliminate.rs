//! variables with small domains, costs of the values of one or two variables  =>  the assignment of least total cost
//!
//! Variable elimination: a variable is replaced by a table of its least cost for each choice of its neighbours, the
//! variables with which it shares a cost. This is exact, and takes time linear in the length of a program that is a
//! chain, a tree or a sequence of layers. Where a table would be too large, a neighbour is fixed to its value in the
//! best assignment so far; the next round starts from the improved assignment.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// The number of values of each variable.
    pub domains: Vec<usize>,
    pub factors: Vec<Factor>,
}

/// The cost of each assignment of a few variables.
#[derive(Clone, Debug)]
pub struct Factor {
    /// The variables, in increasing order.
    pub variables: Vec<usize>,
    /// Cost of each assignment, indexed by the values of the variables; the last one varies fastest.
    pub costs: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    pub values: Vec<usize>,
    pub cost: f64,
    /// Whether the solution is proven optimal.
    pub is_exact: bool,
}

/// Maximum number of assignments of a variable and its neighbours that are examined to eliminate the variable.
pub const TABLE_MAX: usize = 1 << 20;
const ROUNDS_MAX: usize = 8;

/// Returns the linear index of coordinates in a table of these sizes.
fn position(coordinates: impl Iterator<Item = usize>, sizes: impl Iterator<Item = usize>) -> usize {
    coordinates.zip(sizes).fold(0, |at, (c, size)| at * size + c)
}

impl Problem {
    pub fn variable(&mut self, values: usize) -> usize {
        self.domains.push(values);
        self.domains.len() - 1
    }

    /// Adds the joint cost of the values of two variables, or the cost of one.
    pub fn add(&mut self, variables: &[usize], cost: impl Fn(&[usize]) -> f64) {
        let mut sorted = variables.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let sizes: Vec<usize> = sorted.iter().map(|v| self.domains[*v]).collect();
        let costs = assignments(&sizes).map(|values| {
            let given: Vec<usize> =
                variables.iter().map(|v| values[sorted.iter().position(|s| s == v).unwrap_or_default()]).collect();
            cost(&given)
        });
        self.factors.push(Factor { costs: costs.collect(), variables: sorted });
    }

    pub fn cost(&self, values: &[usize]) -> f64 {
        let one = |f: &Factor| {
            f.costs[position(f.variables.iter().map(|v| values[*v]), f.variables.iter().map(|v| self.domains[*v]))]
        };
        self.factors.iter().map(one).sum()
    }

    /// Returns the best assignment found; `start` is a feasible one.
    pub fn minimum(&self, start: &[usize], table_max: usize) -> Solution {
        let mut best = Solution { values: start.to_vec(), cost: self.cost(start), is_exact: false };
        for _ in 0..ROUNDS_MAX {
            let (values, kept) = self.eliminate(&best.values, table_max);
            let cost = self.cost(&values);
            let is_better = cost < best.cost;
            if is_better {
                best = Solution { values, cost, is_exact: false };
            }
            if kept == 0 {
                return Solution { is_exact: true, ..best };
            }
            if !is_better {
                break;
            }
        }
        best
    }

    /// Returns the best assignment in which some variables keep their `start` values, and the number of these. A
    /// variable is fixed only where the elimination of a neighbour would exceed `table_max`.
    fn eliminate(&self, start: &[usize], table_max: usize) -> (Vec<usize>, usize) {
        let mut values: Vec<usize> = start.to_vec();
        let mut left = Left::new(self);
        // Eliminated variables, each with its neighbours and its best value for each assignment of the neighbours.
        let mut order: Vec<(usize, Vec<usize>, Vec<u16>)> = vec![];
        let mut kept = 0;
        while let Some((size, v)) = left.next() {
            let near = left.neighbours(v);
            if size > table_max {
                // The neighbour with the most values is fixed.
                let widest = near.iter().copied().max_by_key(|u| (self.domains[*u], *u)).unwrap_or(v);
                kept += 1;
                let of_widest = left.neighbours(widest);
                for i in std::mem::take(&mut left.factors_of[widest]) {
                    left.factors[i] = left.factors[i].take().map(|f| self.conditioned(&f, widest, values[widest]));
                }
                left.take_out(widest);
                if widest != v {
                    left.enter(v);
                }
                of_widest.into_iter().for_each(|u| left.measure(u));
                continue;
            }
            let joined: Vec<Factor> =
                left.factors_of[v].clone().iter().filter_map(|i| left.factors[*i].take()).collect();
            let near: Vec<usize> = near.into_iter().collect();
            let (costs, choice) = self.best_of(v, &near, &joined);
            left.add(Factor { variables: near.clone(), costs });
            near.iter().for_each(|u| left.measure(*u));
            order.push((v, near, choice));
        }
        for (v, near, choice) in order.into_iter().rev() {
            let at = position(near.iter().map(|u| values[*u]), near.iter().map(|u| self.domains[*u]));
            values[v] = usize::from(choice[at]);
        }
        (values, kept)
    }

    /// Returns, for all values of the neighbours, the least cost of a variable and the value that attains it; ties go
    /// to the first.
    fn best_of(&self, v: usize, near: &[usize], joined: &[Factor]) -> (Vec<f64>, Vec<u16>) {
        let sizes: Vec<usize> = near.iter().map(|u| self.domains[*u]).collect();
        // Strides of each factor's table for each neighbour, and for the variable.
        let strides: Vec<(Vec<usize>, usize)> = (joined.iter())
            .map(|f| {
                let stride = |u: usize| match f.variables.iter().position(|w| *w == u) {
                    Some(at) => f.variables[at + 1..].iter().map(|w| self.domains[*w]).product(),
                    None => 0,
                };
                (near.iter().map(|u| stride(*u)).collect(), stride(v))
            })
            .collect();
        let entries = sizes.iter().product::<usize>();
        let mut all = (Vec::with_capacity(entries), Vec::with_capacity(entries));
        // The values of the neighbours, the last one varying fastest, and each factor's table index for them.
        let (mut values, mut bases) = (vec![0; sizes.len()], vec![0; joined.len()]);
        for _ in 0..entries {
            let mut best = (f64::INFINITY, 0);
            for x in 0..self.domains[v] {
                let mut cost = 0.0;
                for ((f, (_, stride)), base) in joined.iter().zip(&strides).zip(&bases) {
                    cost += f.costs[base + x * stride];
                    if cost >= best.0 {
                        break;
                    }
                }
                if cost < best.0 {
                    best = (cost, x);
                }
            }
            all.0.push(best.0);
            all.1.push(best.1 as u16);
            for at in (0..sizes.len()).rev() {
                let turns = values[at] + 1 == sizes[at];
                values[at] = if turns { 0 } else { values[at] + 1 };
                for (base, (near, _)) in bases.iter_mut().zip(&strides) {
                    *base = if turns { *base - near[at] * (sizes[at] - 1) } else { *base + near[at] };
                }
                if !turns {
                    break;
                }
            }
        }
        all
    }

    /// Returns a factor with one of its variables fixed to a value.
    fn conditioned(&self, f: &Factor, v: usize, value: usize) -> Factor {
        let rest: Vec<usize> = f.variables.iter().copied().filter(|u| *u != v).collect();
        let sizes: Vec<usize> = rest.iter().map(|u| self.domains[*u]).collect();
        let costs = assignments(&sizes).map(|values| {
            let by: BTreeMap<usize, usize> = rest.iter().copied().zip(values).chain([(v, value)]).collect();
            f.costs[position(f.variables.iter().map(|u| by[u]), f.variables.iter().map(|u| self.domains[*u]))]
        });
        Factor { costs: costs.collect(), variables: rest }
    }
}

/// The variables that are not eliminated yet, and their remaining factors.
struct Left<'p> {
    domains: &'p [usize],
    factors: Vec<Option<Factor>>,
    /// Indices of the factors of each variable.
    factors_of: Vec<BTreeSet<usize>>,
    /// Variables by the number of assignments of the variable and its neighbours, the smallest first.
    queue: BTreeSet<(usize, usize)>,
    /// By variable: its number of assignments in the queue, if it is queued.
    sizes: Vec<Option<usize>>,
}

impl<'p> Left<'p> {
    fn new(problem: &'p Problem) -> Left<'p> {
        let n = problem.domains.len();
        let (factors_of, sizes) = (vec![BTreeSet::new(); n], vec![None; n]);
        let mut left = Left { domains: &problem.domains, factors: vec![], factors_of, queue: BTreeSet::new(), sizes };
        problem.factors.iter().for_each(|f| left.add(f.clone()));
        (0..n).for_each(|v| left.enter(v));
        left
    }

    fn add(&mut self, factor: Factor) {
        for v in &factor.variables {
            self.factors_of[*v].insert(self.factors.len());
        }
        self.factors.push(Some(factor));
    }

    /// Removes and returns the first entry of the queue, as (number of assignments, variable).
    fn next(&mut self) -> Option<(usize, usize)> {
        let (size, v) = self.queue.pop_first()?;
        self.sizes[v] = None;
        Some((size, v))
    }

    fn neighbours(&self, v: usize) -> BTreeSet<usize> {
        let all = self.factors_of[v].iter().filter_map(|i| self.factors[*i].as_ref());
        all.flat_map(|f| f.variables.iter().copied()).filter(|u| *u != v).collect()
    }

    fn take_out(&mut self, v: usize) {
        if let Some(size) = self.sizes[v].take() {
            self.queue.remove(&(size, v));
        }
    }

    fn enter(&mut self, v: usize) {
        let near = self.neighbours(v);
        let size = near.iter().fold(self.domains[v], |all, u| all.saturating_mul(self.domains[*u]));
        self.sizes[v] = Some(size);
        self.queue.insert((size, v));
    }

    /// Updates the number of assignments of a variable, if it is still queued.
    fn measure(&mut self, v: usize) {
        if self.sizes[v].is_some() {
            self.take_out(v);
            self.enter(v);
        }
    }
}

/// Returns all coordinates within these sizes; the last one varies fastest.
fn assignments(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let n: usize = sizes.iter().product();
    (0..n).map(move |mut at| {
        let mut values = vec![0; sizes.len()];
        for (value, size) in values.iter_mut().zip(sizes).rev() {
            (*value, at) = (at % size, at / size);
        }
        values
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Builds a problem shaped like a program whose values read up to two earlier ones.
    fn problem(random: &mut Random, n: usize) -> Problem {
        let mut problem = Problem::default();
        for v in 0..n {
            problem.variable(1 + random.below(3));
            let mut costs: Vec<usize> = (0..9).map(|_| random.below(50)).collect();
            problem.add(&[v], |x| costs[x[0]] as f64);
            for _ in 0..random.below(3).min(v) {
                costs.iter_mut().for_each(|c| *c = random.below(50));
                problem.add(&[random.below(v), v], |x| costs[x[0] * 3 + x[1]] as f64);
            }
        }
        problem
    }

    #[test]
    fn the_choice_is_that_of_a_search_through_all() {
        let mut random = Random::new(7);
        for _ in 0..300 {
            let problem = problem(&mut random, 8);
            let all = assignments(&problem.domains).map(|values| problem.cost(&values));
            let least = all.fold(f64::INFINITY, f64::min);
            let start = vec![0; 8];
            let found = problem.minimum(&start, TABLE_MAX);
            assert!(found.is_exact && found.cost == least && problem.cost(&found.values) == least);
            // Small tables: the result is no worse than the start, and never wrongly reported as exact.
            let near = problem.minimum(&start, 4);
            assert!(near.cost >= least && near.cost <= problem.cost(&start));
            assert!(!near.is_exact || near.cost == least);
        }
    }
}
