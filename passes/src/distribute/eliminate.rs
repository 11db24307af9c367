//! variables with few values each, costs of what neighbours choose together  =>  the choice of least cost
//!
//! A variable is eliminated by a table of what it does best for each choice of its neighbours: exact, and as long as the
//! program where that is a chain, a tree or a row of layers. Where a table would be too large, a neighbour keeps the value
//! that it has in the best choice so far; what it has then improves in the next round.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub struct Problem {
    /// How many values each variable has.
    pub domains: Vec<usize>,
    pub factors: Vec<Factor>,
}

/// What the values of some variables cost together.
#[derive(Clone, Debug)]
pub struct Factor {
    /// In increasing order.
    pub variables: Vec<usize>,
    /// By the values of the variables, that of the last one changes first.
    pub costs: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    pub values: Vec<usize>,
    pub cost: f64,
    /// Nothing is better.
    pub is_exact: bool,
}

/// Entries of a table.
pub const TABLE_MAX: usize = 1 << 20;
const ROUNDS_MAX: usize = 8;

/// The position that the coordinates have in a table of these sizes.
fn position(coordinates: impl Iterator<Item = usize>, sizes: impl Iterator<Item = usize>) -> usize {
    coordinates.zip(sizes).fold(0, |at, (c, size)| at * size + c)
}

impl Problem {
    pub fn variable(&mut self, values: usize) -> usize {
        self.domains.push(values);
        self.domains.len() - 1
    }

    /// Adds what the values of two variables, or of one, cost.
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

    /// `start` is a choice that is allowed.
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

    /// The best choice where as few variables as possible keep what they have, and how many do.
    fn eliminate(&self, start: &[usize], table_max: usize) -> (Vec<usize>, usize) {
        let n = self.domains.len();
        let mut values: Vec<usize> = start.to_vec();
        let mut factors: Vec<Option<Factor>> = self.factors.iter().cloned().map(Some).collect();
        let mut of: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); n];
        for (i, f) in self.factors.iter().enumerate() {
            for v in &f.variables {
                of[*v].insert(i);
            }
        }
        let neighbours = |v: usize, of: &[BTreeSet<usize>], factors: &[Option<Factor>]| -> BTreeSet<usize> {
            let all = of[v].iter().filter_map(|i| factors[*i].as_ref());
            all.flat_map(|f| f.variables.iter().copied()).filter(|u| *u != v).collect()
        };
        let size = |near: &BTreeSet<usize>| near.iter().fold(1usize, |all, u| all.saturating_mul(self.domains[*u]));
        let mut queue: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut keys: Vec<Option<usize>> = vec![None; n];
        for (v, own) in keys.iter_mut().enumerate() {
            let key = size(&neighbours(v, &of, &factors)).saturating_mul(self.domains[v]);
            queue.insert((key, v));
            *own = Some(key);
        }
        // What each eliminated variable does for the values of its neighbours.
        let mut order: Vec<(usize, Vec<usize>, Vec<u16>)> = vec![];
        let mut kept = 0;
        while let Some((key, v)) = queue.pop_first() {
            keys[v] = None;
            let near = neighbours(v, &of, &factors);
            if key > table_max {
                // The neighbour with most values keeps its own.
                let widest = near.iter().copied().max_by_key(|u| (self.domains[*u], *u)).unwrap_or(v);
                kept += 1;
                for i in std::mem::take(&mut of[widest]) {
                    let Some(f) = factors[i].take() else { continue };
                    let f = self.conditioned(&f, widest, values[widest]);
                    factors[i] = Some(f);
                }
                let mut changed = if widest == v { near } else { near.into_iter().chain([v]).collect() };
                changed.remove(&widest);
                if let Some(key) = keys[widest].take() {
                    queue.remove(&(key, widest));
                }
                for u in changed {
                    if u == v || keys[u].is_some() {
                        if let Some(key) = keys[u].take() {
                            queue.remove(&(key, u));
                        }
                        let key = size(&neighbours(u, &of, &factors)).saturating_mul(self.domains[u]);
                        keys[u] = Some(key);
                        queue.insert((key, u));
                    }
                }
                continue;
            }
            let joined: Vec<Factor> = of[v].iter().filter_map(|i| factors[*i].take()).collect();
            let near: Vec<usize> = near.into_iter().collect();
            let (costs, choice) = self.best_of(v, &near, &joined);
            for f in &joined {
                for u in &f.variables {
                    of[*u].retain(|i| factors[*i].is_some());
                }
            }
            if !near.is_empty() {
                for u in &near {
                    of[*u].insert(factors.len());
                }
                factors.push(Some(Factor { variables: near.clone(), costs }));
            }
            for &u in &near {
                if let Some(key) = keys[u].take() {
                    queue.remove(&(key, u));
                    let key = size(&neighbours(u, &of, &factors)).saturating_mul(self.domains[u]);
                    keys[u] = Some(key);
                    queue.insert((key, u));
                }
            }
            order.push((v, near, choice));
        }
        for (v, near, choice) in order.into_iter().rev() {
            let at = position(near.iter().map(|u| values[*u]), near.iter().map(|u| self.domains[*u]));
            values[v] = usize::from(choice[at]);
        }
        (values, kept)
    }

    /// For all values of its neighbours the least cost of a variable, and the value that has it: the first of several.
    fn best_of(&self, v: usize, near: &[usize], joined: &[Factor]) -> (Vec<f64>, Vec<u16>) {
        let sizes: Vec<usize> = near.iter().map(|u| self.domains[*u]).collect();
        // How far each factor's position moves with each neighbour, and with the variable.
        let strides: Vec<(Vec<usize>, usize)> = (joined.iter())
            .map(|f| {
                let stride = |u: usize| match f.variables.iter().position(|w| *w == u) {
                    Some(at) => f.variables[at + 1..].iter().map(|w| self.domains[*w]).product(),
                    None => 0,
                };
                (near.iter().map(|u| stride(*u)).collect(), stride(v))
            })
            .collect();
        let mut all = (vec![], vec![]);
        for values in assignments(&sizes) {
            let bases: Vec<usize> =
                strides.iter().map(|(near, _)| near.iter().zip(&values).map(|(s, c)| s * c).sum()).collect();
            let mut best = (f64::INFINITY, 0);
            for x in 0..self.domains[v] {
                let rows = joined.iter().zip(&strides).zip(&bases);
                let cost: f64 = rows.map(|((f, (_, stride)), base)| f.costs[base + x * stride]).sum();
                if cost < best.0 {
                    best = (cost, x);
                }
            }
            all.0.push(best.0);
            all.1.push(best.1 as u16);
        }
        all
    }

    /// A factor where one of its variables has a value.
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

/// All coordinates within these sizes, the last changes first.
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

    /// A program of values that read one or two of those before.
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
            // Small tables: no worse than the start, and said not to be exact.
            let near = problem.minimum(&start, 4);
            assert!(near.cost >= least && near.cost <= problem.cost(&start));
            assert!(!near.is_exact || near.cost == least);
        }
    }
}
