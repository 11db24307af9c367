//! alternatives per class, with costs and needed classes  =>  the cheapest choice, shared classes paid once
//!
//! Small problems are solved exactly. For larger ones, the choice of the original graph and a greedy choice are both
//! improved step by step, and the cheaper result is kept. Steps are counted, never timed, so that equal problems have
//! equal answers.

mod exact;
mod refine;

pub use exact::exact;
pub use refine::refine;

#[derive(Clone, Debug)]
pub struct Alternative {
    pub cost: u64,
    pub needs: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct Problem {
    pub classes: Vec<Vec<Alternative>>,
    pub roots: Vec<usize>,
}

/// Index of an alternative for each class; those of classes that the roots do not need are ignored.
pub type Choice = Vec<usize>;

#[derive(Clone, Debug)]
pub struct Budget {
    /// Problems with at most this many classes with several alternatives are solved exactly.
    pub choices_max: usize,
    pub exact_steps_max: usize,
    pub refine_steps_max: usize,
}

pub struct Extracted {
    pub choice: Choice,
    pub cost: u64,
    /// Whether the exact search proved that no choice is cheaper.
    pub proved: bool,
}

/// Returns a choice at most as expensive as `start`; `None` if `start` has a cycle.
pub fn extract(problem: &Problem, start: Choice, budget: &Budget) -> Option<Extracted> {
    let cost = total(problem, &start)?;
    let mut best = Extracted { choice: start, cost, proved: false };
    if choices(problem) <= budget.choices_max
        && let Some(choice) = exact(problem, &best.choice, budget.exact_steps_max)
    {
        let cost = total(problem, &choice)?;
        return Some(Extracted { choice, cost, proved: true });
    }
    let starts = [best.choice.clone(), greedy(problem)];
    for start in starts {
        let choice = refine(problem, start, budget.refine_steps_max);
        if let Some(cost) = choice.as_ref().and_then(|c| total(problem, c)).filter(|c| *c < best.cost) {
            best = Extracted { choice: choice.unwrap_or_default(), cost, proved: false };
        }
    }
    Some(best)
}

/// Number of classes that have more than one alternative and are needed by some choice.
fn choices(problem: &Problem) -> usize {
    let mut seen = vec![false; problem.classes.len()];
    let mut stack = problem.roots.clone();
    while let Some(c) = stack.pop() {
        if !std::mem::replace(&mut seen[c], true) {
            stack.extend(problem.classes[c].iter().flat_map(|a| &a.needs));
        }
    }
    (0..seen.len()).filter(|&c| seen[c] && problem.classes[c].len() > 1).count()
}

/// Total cost of all classes that the roots need; `None` if a class needs itself, directly or not.
pub fn total(problem: &Problem, choice: &Choice) -> Option<u64> {
    let order = order(problem, choice)?;
    Some(order.iter().map(|&c| problem.classes[c][choice[c]].cost).sum())
}

/// The classes that the roots need, each after the classes that it needs itself; `None` if there is a cycle.
pub fn order(problem: &Problem, choice: &Choice) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; problem.classes.len()];
    let mut out = vec![];
    for &root in &problem.roots {
        let mut stack = vec![(root, 0)];
        while let Some((c, next)) = stack.pop() {
            if next == 0 {
                match marks[c] {
                    Mark::Done => continue,
                    Mark::Open => return None,
                    Mark::New => marks[c] = Mark::Open,
                }
            }
            let needs = &problem.classes[c].get(choice[c])?.needs;
            match needs.get(next) {
                Some(&need) => {
                    stack.push((c, next + 1));
                    match marks[need] {
                        Mark::Open => return None,
                        Mark::New => stack.push((need, 0)),
                        Mark::Done => {}
                    }
                }
                None => {
                    marks[c] = Mark::Done;
                    out.push(c);
                }
            }
        }
    }
    Some(out)
}

/// Chooses the alternative of each class that would be cheapest if nothing were shared.
pub fn greedy(problem: &Problem) -> Choice {
    let n = problem.classes.len();
    let (mut cost, mut choice) = (vec![f64::INFINITY; n], vec![0; n]);
    let mut users: Vec<Vec<usize>> = vec![vec![]; n];
    for (c, alternatives) in problem.classes.iter().enumerate() {
        alternatives.iter().flat_map(|a| &a.needs).for_each(|&need| users[need].push(c));
    }
    users.iter_mut().for_each(|u| {
        u.sort();
        u.dedup();
    });
    let mut queue: std::collections::VecDeque<usize> = (0..n).collect();
    let mut queued = vec![true; n];
    while let Some(c) = queue.pop_front() {
        queued[c] = false;
        let mut better = false;
        for (a, alternative) in problem.classes[c].iter().enumerate() {
            // The added 1 prevents cycles among alternatives that are free.
            let sum = alternative.needs.iter().map(|&n| cost[n]).sum::<f64>() + alternative.cost as f64 + 1.0;
            // Improvements below the precision of f64 do not count: choosing one could close a cycle.
            if sum < cost[c] * (1.0 - 1e-12) || (cost[c].is_infinite() && sum.is_finite()) {
                (cost[c], choice[c], better) = (sum, a, true);
            }
        }
        if better {
            for &u in &users[c] {
                if !std::mem::replace(&mut queued[u], true) {
                    queue.push_back(u);
                }
            }
        }
    }
    choice
}
