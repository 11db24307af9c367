//! branch and bound: tries every choice that may be cheaper than the best one so far

use super::{Choice, Problem, total};

struct Search<'a> {
    problem: &'a Problem,
    /// For each class, the cost of its cheapest alternative, excluding the classes that the alternative needs.
    least: Vec<u64>,
    choice: Vec<Option<usize>>,
    best: Choice,
    best_cost: u64,
    steps_left: usize,
}

/// Returns the cheapest choice; `None` if `steps_max` steps do not suffice to prove it.
pub fn exact(problem: &Problem, start: &Choice, steps_max: usize) -> Option<Choice> {
    let least = problem.classes.iter().map(|c| c.iter().map(|a| a.cost).min().unwrap_or(0)).collect();
    let n = problem.classes.len();
    let mut search = Search {
        problem,
        least,
        choice: vec![None; n],
        best: start.clone(),
        best_cost: total(problem, start)?,
        steps_left: steps_max,
    };
    let mut pending: Vec<usize> = vec![];
    let mut waiting = vec![false; n];
    for &r in &problem.roots {
        if !std::mem::replace(&mut waiting[r], true) {
            pending.push(r);
        }
    }
    let bound = pending.iter().map(|&c| search.least[c]).sum();
    search.branch(pending, waiting, bound).then_some(search.best)
}

impl Search<'_> {
    /// Tries all alternatives of the pending classes. `bound` is the cost of the alternatives chosen so far plus a
    /// lower bound for the pending classes. Returns false if the steps ran out.
    fn branch(&mut self, mut pending: Vec<usize>, waiting: Vec<bool>, bound: u64) -> bool {
        if bound >= self.best_cost {
            return true;
        }
        let Some(class) = pending.pop() else {
            self.best_cost = bound;
            self.best = self.choice.iter().map(|c| c.unwrap_or(0)).collect();
            return true;
        };
        let problem = self.problem;
        let mut by_cost: Vec<usize> = (0..problem.classes[class].len()).collect();
        by_cost.sort_by_key(|&a| problem.classes[class][a].cost);
        for a in by_cost {
            if self.steps_left == 0 {
                return false;
            }
            self.steps_left -= 1;
            let alternative = &problem.classes[class][a];
            if alternative.needs.iter().any(|&need| self.reaches(need, class)) {
                continue;
            }
            let (mut pending, mut waiting) = (pending.clone(), waiting.clone());
            let mut bound = bound - self.least[class] + alternative.cost;
            for &need in &alternative.needs {
                if !std::mem::replace(&mut waiting[need], true) {
                    pending.push(need);
                    bound += self.least[need];
                }
            }
            self.choice[class] = Some(a);
            let finished = self.branch(pending, waiting, bound);
            self.choice[class] = None;
            if !finished {
                return false;
            }
        }
        true
    }

    /// Whether the class `from` needs the class `to`, directly or not, by the alternatives chosen so far.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.choice.len()];
        let mut stack = vec![from];
        while let Some(c) = stack.pop() {
            if c == to {
                return true;
            }
            if !std::mem::replace(&mut seen[c], true)
                && let Some(a) = self.choice[c]
            {
                stack.extend(&self.problem.classes[c][a].needs);
            }
        }
        false
    }
}
