//! a choice  =>  a cheaper one, by changing one class, or all classes that could start or stop using another one

use super::{Choice, Problem, order};
use std::collections::{BTreeMap, BTreeSet};

/// A choice, the number of uses of each class in it, and its cost.
struct State<'a> {
    problem: &'a Problem,
    choice: Choice,
    uses: Vec<u32>,
    cost: u64,
    steps_left: usize,
    /// By class: twice the round of the last walk that visited it, plus 1 once the walk has finished with it.
    marks: Vec<usize>,
    round: usize,
    /// By class: the cost and index of the alternative that is cheapest by itself and does not need its own class.
    alone: Vec<Option<(u64, usize)>>,
}

/// Cost of each class without using the class `part`, and the alternative that achieves it.
struct Without<'a> {
    part: usize,
    /// Classes that currently need the part.
    above: &'a BTreeSet<usize>,
    least: BTreeMap<usize, Option<(u64, usize)>>,
}

/// How many levels of unused classes are examined below a class, and how many levels of users above it are followed.
const DEPTH_MAX: usize = 6;

/// If more classes than this need a class, directly or not, they do not give it up together.
const ABOVE_MAX: usize = 64;

/// Cost and index of the alternative that costs least, excluding the classes that it needs; ties go to the first.
fn cheapest(problem: &Problem, c: usize) -> Option<(u64, usize)> {
    let alternatives = problem.classes[c].iter().enumerate().filter(|(_, a)| !a.needs.contains(&c));
    alternatives.map(|(at, a)| (a.cost, at)).filter(|(cost, _)| *cost < u64::MAX).min()
}

/// Improves `start` until nothing helps or `steps_max` classes were visited; `None` if `start` has a cycle.
pub fn refine(problem: &Problem, start: Choice, steps_max: usize) -> Option<Choice> {
    order(problem, &start)?;
    let n = problem.classes.len();
    let (uses, marks) = (vec![0; n], vec![0; n]);
    let alone = (0..n).map(|c| cheapest(problem, c)).collect();
    let mut state = State { problem, choice: start, uses, cost: 0, steps_left: steps_max, marks, round: 0, alone };
    problem.roots.iter().for_each(|&r| state.need(r));
    let mut users: Vec<Vec<(usize, usize)>> = vec![vec![]; n];
    for (c, alternatives) in problem.classes.iter().enumerate() {
        for (a, alternative) in alternatives.iter().enumerate() {
            alternative.needs.iter().for_each(|&need| users[need].push((c, a)));
        }
    }
    loop {
        let before = state.cost;
        for c in 0..n {
            for a in 0..problem.classes[c].len() {
                if state.uses[c] > 0 && state.choice[c] != a {
                    state.attempt(&[(c, a)], false);
                }
            }
        }
        for part in 0..n {
            state.share(part, &users[part]);
            state.take_up(part, &users);
            state.give_up(part, &users);
        }
        if state.cost == before || state.steps_left == 0 {
            return Some(state.choice);
        }
    }
}

impl State<'_> {
    fn alternative(&self, c: usize) -> &super::Alternative {
        &self.problem.classes[c][self.choice[c]]
    }

    /// Adds a use of a class; if this is its first use, also uses of the classes that it needs.
    fn need(&mut self, class: usize) {
        let mut stack = vec![class];
        while let Some(c) = stack.pop() {
            self.uses[c] += 1;
            if self.uses[c] == 1 {
                self.cost += self.alternative(c).cost;
                stack.extend(&self.alternative(c).needs);
                self.steps_left = self.steps_left.saturating_sub(1);
            }
        }
    }

    fn release(&mut self, class: usize) {
        let mut stack = vec![class];
        while let Some(c) = stack.pop() {
            self.uses[c] -= 1;
            if self.uses[c] == 0 {
                self.cost -= self.alternative(c).cost;
                stack.extend(&self.alternative(c).needs);
            }
        }
    }

    /// Lower bound on the cost of adding an unused class, from `depth` levels of the classes that it needs; chooses the
    /// alternatives that achieve the bound.
    fn prepare(&mut self, c: usize, depth: usize) -> u64 {
        if self.uses[c] > 0 || depth == 0 || self.steps_left == 0 {
            return 0;
        }
        self.steps_left -= 1;
        // At the last level, the classes that this class needs are not examined.
        if depth == 1 {
            let (cost, chosen) = self.alone[c].unwrap_or((u64::MAX, self.choice[c]));
            self.choice[c] = chosen;
            return cost;
        }
        let mut best = u64::MAX;
        let mut chosen = self.choice[c];
        for (a, alternative) in self.problem.classes[c].iter().enumerate() {
            if alternative.needs.contains(&c) {
                continue;
            }
            let below = |s: &mut Self| {
                alternative.needs.iter().fold(0, |sum: u64, &n| sum.saturating_add(s.prepare(n, depth - 1)))
            };
            let cost = below(self).saturating_add(alternative.cost);
            if cost < best {
                (best, chosen) = (cost, a);
            }
        }
        self.choice[c] = chosen;
        best
    }

    /// Changes several classes together if that lowers the total cost and closes no cycle. If `prepared`, the
    /// alternatives of unused classes are chosen already.
    fn attempt(&mut self, changes: &[(usize, usize)], prepared: bool) -> bool {
        if self.steps_left == 0 {
            return false;
        }
        let before = self.cost;
        for &(c, a) in changes.iter().filter(|_| !prepared) {
            for &need in &self.problem.classes[c][a].needs {
                if self.uses[need] == 0 && need != c {
                    self.prepare(need, DEPTH_MAX);
                }
            }
        }
        // A cycle among newly used classes would never be released.
        if self.closes_cycle(changes, false) {
            return false;
        }
        let old: Vec<(usize, usize)> = changes.iter().rev().map(|&(c, _)| (c, self.choice[c])).collect();
        self.change(changes);
        if self.cost < before && !self.closes_cycle(changes, true) {
            return true;
        }
        // Undone in reverse order, as a change may have left the class of an earlier change unused.
        self.change(&old);
        false
    }

    fn change(&mut self, changes: &[(usize, usize)]) {
        let problem = self.problem;
        for &(c, a) in changes {
            if self.uses[c] == 0 {
                continue;
            }
            let (old, new) = (&problem.classes[c][self.choice[c]], &problem.classes[c][a]);
            // The uses of the class itself do not change, but those of the classes that it needs do.
            new.needs.iter().for_each(|&n| self.need(n));
            self.cost = self.cost + new.cost - old.cost;
            self.choice[c] = a;
            old.needs.iter().for_each(|&n| self.release(n));
        }
    }

    /// Whether a changed class would reach itself through unused classes or, if `through`, through any classes.
    fn closes_cycle(&mut self, changes: &[(usize, usize)], through: bool) -> bool {
        self.round += 1;
        let (open, done) = (2 * self.round, 2 * self.round + 1);
        for &(root, _) in changes {
            let mut stack = vec![(root, 0)];
            while let Some((c, next)) = stack.pop() {
                let changed = changes.iter().find(|(d, _)| *d == c).map(|(_, a)| *a);
                if next == 0 {
                    if self.marks[c] == done {
                        continue;
                    }
                    self.steps_left = self.steps_left.saturating_sub(1);
                    self.marks[c] = open;
                    if self.uses[c] > 0 && changed.is_none() && !through {
                        self.marks[c] = done;
                        continue;
                    }
                }
                match self.problem.classes[c][changed.unwrap_or(self.choice[c])].needs.get(next) {
                    None => self.marks[c] = done,
                    Some(&need) => {
                        stack.push((c, next + 1));
                        match self.marks[need] {
                            m if m == open => return true,
                            m if m == done => {}
                            _ => stack.push((need, 0)),
                        }
                    }
                }
            }
        }
        false
    }

    /// Lets all classes that could use a currently unused class `part` use it together: for instance, one merged linear
    /// map then replaces three.
    fn share(&mut self, part: usize, users: &[(usize, usize)]) {
        if self.uses[part] > 0 {
            return;
        }
        let mut changes: Vec<(usize, usize)> = vec![];
        for &(c, a) in users {
            if self.uses[c] > 0 && self.choice[c] != a && !changes.iter().any(|(d, _)| *d == c) {
                changes.push((c, a));
            }
        }
        if changes.len() > 1 {
            self.attempt(&changes, false);
        }
    }

    /// Pretends that the class `part` is in use, so that classes above it switch to alternatives that need it where
    /// this is cheaper. Helps if the results of linear maps are moved before they are read. Undone unless the total
    /// cost falls.
    fn take_up(&mut self, part: usize, users: &[Vec<(usize, usize)>]) {
        if self.uses[part] > 0 || users[part].len() < 2 || self.steps_left == 0 {
            return;
        }
        let (before, mut above) = (self.cost, vec![part]);
        let mut seen = BTreeSet::from([part]);
        let mut first = 0;
        for _ in 0..DEPTH_MAX {
            let next: Vec<usize> = above[first..].iter().flat_map(|&c| &users[c]).map(|(u, _)| *u).collect();
            first = above.len();
            above.extend(next.into_iter().filter(|u| seen.insert(*u)));
            if above.len() > ABOVE_MAX {
                break;
            }
        }
        self.prepare(part, DEPTH_MAX);
        if self.closes_cycle(&[(part, self.choice[part])], true) {
            return;
        }
        self.need(part);
        let mut old: Option<Choice> = None;
        for &c in &above[1..] {
            for a in 0..self.problem.classes[c].len() {
                let now = self.choice[c];
                if self.uses[c] > 0 && now != a && self.attempt(&[(c, a)], false) && old.is_none() {
                    let mut choice = self.choice.clone();
                    choice[c] = now;
                    old = Some(choice);
                }
            }
        }
        self.release(part);
        // The first change may have altered alternatives of released classes, so only the copy still has the old state.
        if let Some(choice) = old.filter(|_| self.cost >= before) {
            (self.choice, self.cost) = (choice, 0);
            self.uses.fill(0);
            self.problem.roots.iter().for_each(|&r| self.need(r));
        }
    }

    /// Lets all classes that need the class `part`, directly or not, stop needing it: for instance, three linear maps
    /// replace a merged map and its slices.
    fn give_up(&mut self, part: usize, users: &[Vec<(usize, usize)>]) {
        if self.uses[part] == 0
            || self.problem.roots.contains(&part)
            || self.problem.classes[part][self.choice[part]].cost < 2
        {
            return;
        }
        let mut above = BTreeSet::new();
        let mut front = vec![part];
        for _ in 0..DEPTH_MAX {
            let current = |c: &usize| users[*c].iter().filter(|(u, a)| self.uses[*u] > 0 && self.choice[*u] == *a);
            let next: Vec<usize> = front.iter().flat_map(current).map(|(u, _)| *u).collect();
            front = next.into_iter().filter(|u| above.insert(*u)).collect();
            if above.len() > ABOVE_MAX {
                return;
            }
        }
        let mut without = Without { part, above: &above, least: BTreeMap::new() };
        let mut changes = vec![];
        for &c in &above {
            if self.avoid(c, &mut without, DEPTH_MAX).is_some()
                && let Some(Some((_, a))) = without.least.get(&c).copied()
            {
                changes.push((c, a));
            }
        }
        changes.retain(|&(c, a)| self.choice[c] != a);
        if !changes.is_empty() {
            self.attempt(&changes, true);
        }
    }

    /// Lower bound, from `depth` levels of needed classes, on the cost of class `c` without the class `without.part`;
    /// `None` if `c` cannot do without it.
    fn avoid(&mut self, c: usize, without: &mut Without, depth: usize) -> Option<u64> {
        if c == without.part || (depth == 0 && without.above.contains(&c)) {
            return None;
        }
        if let Some(known) = without.least.get(&c) {
            return known.map(|(cost, _)| cost);
        }
        if depth == 0 || self.steps_left == 0 || (self.uses[c] > 0 && !without.above.contains(&c)) {
            return Some(0);
        }
        self.steps_left -= 1;
        // Reaching this class again would be a cycle.
        without.least.insert(c, None);
        let mut best: Option<(u64, usize)> = None;
        let (now, used) = (self.choice[c], self.uses[c] > 0);
        let others = (0..self.problem.classes[c].len()).filter(|&a| a != now);
        for a in std::iter::once(now).chain(others) {
            let alternative = &self.problem.classes[c][a];
            let add = |sum: Option<u64>, n: &usize| Some(sum?.saturating_add(self.avoid(*n, without, depth - 1)?));
            let below = alternative.needs.iter().fold(Some(0), add);
            if let Some(cost) = below.map(|b| b.saturating_add(alternative.cost))
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, a));
                // A chosen alternative that remains possible is kept.
                if used && a == now {
                    break;
                }
            }
        }
        if let Some((_, a)) = best.filter(|_| self.uses[c] == 0) {
            self.choice[c] = a;
        }
        without.least.insert(c, best);
        best.map(|(cost, _)| cost)
    }
}
