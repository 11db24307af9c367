//! sizes and live ranges of buffers  =>  the order in which the buffers are stacked
//!
//! A buffer is placed directly above the highest end of the buffers earlier in the order that are live at the same
//! time. Then no buffers overlap, whatever their sizes. The best order has the smallest arena at the given points (sets
//! of sizes, one per typical call). No other placement needs a smaller arena at a point: if its buffers are stacked in
//! the order of their offsets, no buffer ends up higher.

/// A placement problem in plain numbers.
#[derive(Default)]
pub struct Problem {
    /// Size of each buffer at each point, as `sizes[point][buffer]`.
    pub sizes: Vec<Vec<u64>>,
    /// First and last step that touch each buffer.
    pub lives: Vec<(usize, usize)>,
    /// Stage of each buffer. A buffer of a later stage is placed above all buffers of earlier stages that are live with
    /// it.
    pub stages: Vec<usize>,
    /// For each buffer, the other buffers that are live at the same time.
    pub beside: Vec<Vec<usize>>,
}

/// What is known about how good an order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Optimal: the arena is as small as the peak of live bytes, at every point.
    Bound,
    /// Optimal: all orders were examined or ruled out.
    Search,
    /// The best of the orders that were tried.
    Tried,
}

pub struct Order {
    pub order: Vec<usize>,
    pub cost: Cost,
    pub proof: Proof,
}

/// The largest ratio of an arena to the peak of live bytes over all points, and the sum of these ratios, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(pub u64, pub u64);

/// Maximum number of buffers for which every order is examined or ruled out.
const SEARCHED_MAX: usize = 16;
/// Maximum number of partial orders that a search examines.
const NODES_MAX: usize = 200_000;
/// Limit on visited pairs of buffers for the heuristics; a plan of hundreds of buffers then tries some thousand orders.
const TRYING_MAX: usize = 20_000_000;

impl Problem {
    pub fn new(sizes: Vec<Vec<u64>>, lives: Vec<(usize, usize)>, stages: Vec<usize>) -> Problem {
        let mut by_start: Vec<usize> = (0..lives.len()).collect();
        by_start.sort_by_key(|&b| lives[b]);
        let mut beside = vec![vec![]; lives.len()];
        let mut alive: Vec<usize> = vec![];
        for b in by_start {
            alive.retain(|&a| lives[a].1 >= lives[b].0);
            for &a in &alive {
                beside[a].push(b);
                beside[b].push(a);
            }
            alive.push(b);
        }
        beside.iter_mut().for_each(|all| all.sort_unstable());
        Problem { sizes, lives, stages, beside }
    }

    /// Returns, for each point, the peak of live bytes.
    pub fn bounds(&self) -> Vec<u64> {
        let steps = self.lives.iter().map(|l| l.1 + 1).max().unwrap_or(0);
        let at = |sizes: &Vec<u64>| {
            let mut change = vec![0i128; steps + 1];
            for (size, (first, last)) in sizes.iter().zip(&self.lives) {
                change[*first] += i128::from(*size);
                change[*last + 1] -= i128::from(*size);
            }
            let mut live = 0;
            let most = change.iter().map(|c| {
                live += c;
                live
            });
            most.max().and_then(|most| u64::try_from(most).ok()).unwrap_or(0)
        };
        self.sizes.iter().map(at).collect()
    }

    /// Returns, for each point, the size of the arena if buffers are stacked in this order.
    pub fn peaks(&self, order: &[usize]) -> Vec<u64> {
        let at = |sizes: &Vec<u64>| {
            let mut ends: Vec<Option<u64>> = vec![None; sizes.len()];
            for &b in order {
                let below = self.beside[b].iter().filter_map(|&a| ends[a]).max().unwrap_or(0);
                ends[b] = Some(below.saturating_add(sizes[b]));
            }
            ends.into_iter().flatten().max().unwrap_or(0)
        };
        self.sizes.iter().map(at).collect()
    }

    /// Returns, for each point and each buffer, the highest offset that does not enlarge the arena.
    pub fn rooms(&self, order: &[usize]) -> Vec<Vec<u64>> {
        let at = |(sizes, peak): (&Vec<u64>, u64)| {
            let mut tails = vec![0u64; sizes.len()];
            for &b in order.iter().rev() {
                let above = self.beside[b].iter().map(|&a| tails[a]).max().unwrap_or(0);
                tails[b] = above.saturating_add(sizes[b]);
            }
            tails.into_iter().map(|tail| peak.saturating_sub(tail)).collect()
        };
        self.sizes.iter().zip(self.peaks(order)).map(at).collect()
    }

    pub fn cost(&self, peaks: &[u64], bounds: &[u64]) -> Cost {
        let ratio = |(peak, bound): (&u64, &u64)| {
            let millionths = u128::from(*peak) * 1_000_000 / u128::from((*bound).max(1));
            u64::try_from(millionths).unwrap_or(u64::MAX)
        };
        let ratios = || peaks.iter().zip(bounds).map(ratio);
        Cost(ratios().max().unwrap_or(0), ratios().fold(0, u64::saturating_add))
    }

    /// Returns the best order found; with at most `SEARCHED_MAX` buffers it is optimal, unless the search reaches
    /// `NODES_MAX`.
    pub fn solve(&self) -> Order {
        let bounds = self.bounds();
        let mut best = self.by_life();
        if best.cost > self.cost(&bounds, &bounds) {
            self.attempt(&bounds, &mut best);
        }
        if best.cost == self.cost(&bounds, &bounds) {
            best.proof = Proof::Bound;
        } else if self.lives.len() <= SEARCHED_MAX {
            Search::new(self, bounds).run(&mut best);
        }
        best
    }

    fn judged(&self, order: Vec<usize>, bounds: &[u64]) -> Order {
        let cost = self.cost(&self.peaks(&order), bounds);
        Order { order, cost, proof: Proof::Tried }
    }

    /// Orders the buffers by their live ranges.
    fn by_life(&self) -> Order {
        let mut order: Vec<usize> = (0..self.lives.len()).collect();
        order.sort_by_key(|&b| (self.stages[b], self.lives[b], b));
        self.judged(order, &self.bounds())
    }

    /// For each point, places large and long-lived buffers first, each in the lowest gap that fits; then, until
    /// `TRYING_MAX` is reached, moves the topmost buffers to earlier positions in the order.
    fn attempt(&self, bounds: &[u64], best: &mut Order) {
        let looks = self.beside.iter().map(|b| b.len() + 1).sum::<usize>() * 2;
        let rounds = TRYING_MAX / looks.max(1) / self.sizes.len().max(1);
        for (point, sizes) in self.sizes.iter().enumerate() {
            let life = |b: usize| (self.lives[b].1 - self.lives[b].0 + 1) as u64;
            let keys: [&dyn Fn(usize) -> u64; 3] =
                [&|b| sizes[b], &|b| sizes[b].saturating_mul(life(b)), &|b| self.breadth(sizes, b)];
            for key in keys {
                let mut turn: Vec<usize> = (0..sizes.len()).collect();
                turn.sort_by_key(|&b| (std::cmp::Reverse(key(b)), std::cmp::Reverse(life(b)), b));
                self.improve(point, turn, rounds / keys.len(), bounds, best);
            }
        }
    }

    /// Returns the total size of a buffer and all buffers that are live with it.
    fn breadth(&self, sizes: &[u64], b: usize) -> u64 {
        self.beside[b].iter().map(|&a| sizes[a]).fold(sizes[b], u64::saturating_add)
    }

    fn improve(&self, point: usize, mut turn: Vec<usize>, rounds: usize, bounds: &[u64], best: &mut Order) {
        let least = self.cost(bounds, bounds);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ point as u64;
        let mut draw = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 16) as usize % below.max(1)
        };
        let mut current = u64::MAX;
        let mut from = turn.clone();
        for _ in 0..rounds.max(1) {
            let offsets = self.gaps(point, &turn);
            let end = |b: usize| offsets[b].saturating_add(self.sizes[point][b]);
            let peak = (0..turn.len()).map(end).max().unwrap_or(0);
            if peak <= current {
                let mut order: Vec<usize> = (0..turn.len()).collect();
                order.sort_by_key(|&b| (self.stages[b], offsets[b], b));
                let found = self.judged(order, bounds);
                if found.cost < best.cost {
                    *best = found;
                }
                (current, from) = (peak, turn.clone());
            } else {
                turn.clone_from(&from);
            }
            if best.cost == least || turn.len() < 2 {
                return;
            }
            // Moves a topmost buffer, or a random one, to an earlier position.
            let tops: Vec<usize> = (0..turn.len()).filter(|&i| end(turn[i]) == peak).collect();
            let at = match tops.get(draw(tops.len() * 2)) {
                Some(&top) => top,
                None => draw(turn.len()),
            };
            let earlier = draw(at.max(1));
            let b = turn.remove(at);
            turn.insert(earlier, b);
        }
    }

    /// Places each buffer in turn at the lowest offset with enough space, stage by stage.
    fn gaps(&self, point: usize, turn: &[usize]) -> Vec<u64> {
        let sizes = &self.sizes[point];
        let mut offsets: Vec<Option<u64>> = vec![None; sizes.len()];
        let last = self.stages.iter().max().copied().unwrap_or(0);
        let mut taken: Vec<(u64, u64)> = vec![];
        for stage in 0..=last {
            for &b in turn.iter().filter(|&&b| self.stages[b] == stage) {
                taken.clear();
                let mut at = 0;
                for &a in &self.beside[b] {
                    let Some(offset) = offsets[a] else { continue };
                    let end = offset.saturating_add(sizes[a]);
                    match self.stages[a] < stage {
                        true => at = end.max(at),
                        false => taken.push((offset, end)),
                    }
                }
                taken.sort_unstable();
                for (from, to) in &taken {
                    if from.saturating_sub(at) >= sizes[b] && *from >= at {
                        break;
                    }
                    at = at.max(*to);
                }
                offsets[b] = Some(at);
            }
        }
        offsets.into_iter().map(|o| o.unwrap_or(0)).collect()
    }
}

/// A branch-and-bound search over orders, which extends a partial order by one buffer at a time.
struct Search<'p> {
    problem: &'p Problem,
    bounds: Vec<u64>,
    nodes: usize,
    order: Vec<usize>,
    /// For each point and each buffer: the end of the buffer, if it is placed.
    ends: Vec<Vec<Option<u64>>>,
}

impl Search<'_> {
    fn new(problem: &Problem, bounds: Vec<u64>) -> Search<'_> {
        let ends = problem.sizes.iter().map(|s| vec![None; s.len()]).collect();
        Search { problem, bounds, nodes: 0, order: vec![], ends }
    }

    fn run(mut self, best: &mut Order) {
        self.extend(best);
        if self.nodes < NODES_MAX {
            best.proof = Proof::Search;
        }
    }

    fn extend(&mut self, best: &mut Order) {
        self.nodes += 1;
        if self.nodes >= NODES_MAX {
            return;
        }
        let p = self.problem;
        let left: Vec<usize> = (0..p.lives.len()).filter(|b| !self.order.contains(b)).collect();
        if left.is_empty() {
            let found = p.judged(self.order.clone(), &self.bounds);
            if found.cost < best.cost {
                *best = found;
            }
            return;
        }
        let stage = left.iter().map(|&b| p.stages[b]).min();
        let mut next: Vec<usize> = left.into_iter().filter(|&b| Some(p.stages[b]) == stage).collect();
        // Two adjacent buffers that are never live together may be swapped, so only one of the two orders is examined.
        if let Some(&last) = self.order.last() {
            next.retain(|&b| b > last || p.stages[b] > p.stages[last] || p.beside[b].contains(&last));
        }
        next.sort_by_key(|&b| (self.below(0, b), b));
        for b in next {
            for point in 0..self.ends.len() {
                self.ends[point][b] = Some(self.below(point, b).saturating_add(p.sizes[point][b]));
            }
            self.order.push(b);
            if self.least() < best.cost {
                self.extend(best);
            }
            self.order.pop();
            self.ends.iter_mut().for_each(|ends| ends[b] = None);
        }
    }

    fn below(&self, point: usize, b: usize) -> u64 {
        let Some(ends) = self.ends.get(point) else { return 0 };
        self.problem.beside[b].iter().filter_map(|&a| ends[a]).max().unwrap_or(0)
    }

    /// Returns a lower bound on the cost of the orders with this prefix: at every step, all live buffers that are not
    /// placed yet come above the live buffers that are placed.
    fn least(&self) -> Cost {
        let p = self.problem;
        let at = |(ends, sizes): (&Vec<Option<u64>>, &Vec<u64>)| {
            let over = |b: usize| {
                let (first, _) = p.lives[b];
                let then =
                    p.beside[b].iter().copied().chain([b]).filter(|&a| p.lives[a].0 <= first && p.lives[a].1 >= first);
                let (mut top, mut rest) = (0, 0u64);
                for a in then {
                    match ends[a] {
                        Some(end) => top = end.max(top),
                        None => rest = rest.saturating_add(sizes[a]),
                    }
                }
                rest.saturating_add(top)
            };
            (0..sizes.len()).map(over).max().unwrap_or(0)
        };
        let peaks: Vec<u64> = self.ends.iter().zip(&p.sizes).map(at).collect();
        p.cost(&peaks, &self.bounds)
    }
}
