//! collective, algorithm  =>  its rounds: which rank takes which bytes from which other rank
//!
//! [`direct`](super::direct) has the fewest rounds, but every rank communicates with every other one; ranks that share
//! memory use it. Over a network, other algorithms send fewer messages (doubling, trees, Bruck) or communicate with
//! neighbours only (rings). The schedule of an algorithm fixes the order of reductions, so this order is the same on
//! all transports.

use super::{Move, Operand, Rounds, Source, direct, joined, reduced, wholes};
use crate::host::{Collective, part};
use crate::reduction::Reduction;
use std::ops::Range;

/// An algorithm by which ranks perform a collective; each supports only some collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Every rank takes what it needs from all other ranks in the same round; an all-reduce of more than
    /// [`SMALL_MAX`](super::SMALL_MAX) bytes has two rounds.
    Direct,
    /// One-way ring: each rank receives from its predecessor, for n - 1 rounds per phase.
    Ring,
    /// Two-way ring: half of the data travels in each direction.
    TwoWayRing,
    /// Each rank exchanges all of its data with ranks at doubling distances.
    RecursiveDoubling,
    /// Recursive halving, then doubling: a logarithmic number of rounds, which move as many bytes as a ring if the
    /// number of ranks is a power of two.
    Rabenseifner,
    /// Reduces towards the root, from ranks at doubling distances, and broadcasts from the root in reverse.
    BinomialTree,
    /// Two trees, each for half of the data; the second one numbers the ranks in reverse, so its root is the last rank.
    DoubleTree,
    /// Like `Direct`, but each rank takes data from only one other rank per round.
    Pairwise,
    /// A logarithmic number of rounds, for any number of ranks. In an all-gather, the number of blocks that a rank
    /// receives doubles with each round; in an all-to-all of n ranks, a rank receives about n / 2 blocks in each round.
    Bruck,
    /// Reduces within groups of neighbours, then between groups, then distributes the result within groups.
    Hierarchical {
        /// Number of ranks of a group, which divides the number of all ranks.
        group: usize,
    },
}

impl Algorithm {
    /// All algorithms; the hierarchical one has groups of two ranks.
    pub const ALL: [Algorithm; 10] = [
        Algorithm::Direct,
        Algorithm::Ring,
        Algorithm::TwoWayRing,
        Algorithm::RecursiveDoubling,
        Algorithm::Rabenseifner,
        Algorithm::BinomialTree,
        Algorithm::DoubleTree,
        Algorithm::Pairwise,
        Algorithm::Bruck,
        Algorithm::Hierarchical { group: 2 },
    ];

    /// Returns the name without the size of groups, such as `two-way-ring`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Direct => "direct",
            Algorithm::Ring => "ring",
            Algorithm::TwoWayRing => "two-way-ring",
            Algorithm::RecursiveDoubling => "recursive-doubling",
            Algorithm::Rabenseifner => "rabenseifner",
            Algorithm::BinomialTree => "binomial-tree",
            Algorithm::DoubleTree => "double-tree",
            Algorithm::Pairwise => "pairwise",
            Algorithm::Bruck => "bruck",
            Algorithm::Hierarchical { .. } => "hierarchical",
        }
    }

    /// Returns the algorithm of [`ALL`](Algorithm::ALL) with this name; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns the rounds of a rank; `None` if the algorithm does not support the collective with these operands. The
    /// operands must fit each other (see [`result`](super::result)).
    pub fn rounds(self, op: &Collective, operands: &[Operand], rank: usize) -> Option<Rounds> {
        let own = Own { operands, n: operands.len(), rank };
        match (self, *op) {
            (Algorithm::Direct, _) => Some(direct(op, operands, rank)),
            (Algorithm::Ring, Collective::AllReduce { f, .. }) => Some(own.ring(f, own.all(), Way::Forward)),
            (Algorithm::Ring, Collective::AllGather { dim, .. }) => Some(own.ring_gather(dim, own.n)),
            (Algorithm::TwoWayRing, Collective::AllReduce { f, .. }) => {
                let [left, right] = own.halves();
                Some(together(own.ring(f, left, Way::Forward), own.ring(f, right, Way::Backward)))
            }
            (Algorithm::TwoWayRing, Collective::AllGather { dim, .. }) => Some(own.ring_gather(dim, own.n.div_ceil(2))),
            (Algorithm::RecursiveDoubling, Collective::AllReduce { f, .. }) => Some(own.doubling(f)),
            (Algorithm::Rabenseifner, Collective::AllReduce { f, .. }) => Some(own.halving(f)),
            (Algorithm::BinomialTree, Collective::AllReduce { f, .. }) => Some(own.tree(f, own.all(), rank)),
            (Algorithm::BinomialTree, Collective::Reduce { f, root, .. }) => {
                Some(own.up(f, own.all(), own.number(root), root))
            }
            (Algorithm::BinomialTree, Collective::Broadcast { root, .. }) => {
                Some(own.down(own.all(), own.number(root), root, Source::Operand))
            }
            (Algorithm::DoubleTree, Collective::AllReduce { f, .. }) => {
                let [left, right] = own.halves();
                let mirrored = own.n - 1 - rank;
                Some(together(own.tree(f, left, rank), own.mirrored(own.tree_of(f, right, mirrored))))
            }
            (Algorithm::Pairwise, Collective::AllToAll { .. }) => Some(own.one_by_one(direct(op, operands, rank))),
            (Algorithm::Pairwise, Collective::AllGather { .. }) => Some(own.one_by_one(direct(op, operands, rank))),
            (Algorithm::Bruck, Collective::AllGather { dim, .. }) => Some(own.bruck(dim)),
            (Algorithm::Bruck, Collective::AllToAll { split, .. }) => own.bruck_to_all(op, split),
            (Algorithm::Hierarchical { group }, Collective::AllReduce { f, .. }) => own.hierarchical(f, group),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Way {
    Forward,
    Backward,
}

/// One rank, and the operands of all `n` ranks.
#[derive(Clone, Copy)]
struct Own<'a> {
    operands: &'a [Operand],
    n: usize,
    rank: usize,
}

/// Merges two schedules: each round has the moves of both.
fn together(mut one: Rounds, other: Rounds) -> Rounds {
    one.resize_with(one.len().max(other.len()), Vec::new);
    one.iter_mut().zip(other).for_each(|(round, more)| round.extend(more));
    one
}

fn take(from: Source, range: &Range<usize>, combine: Option<Reduction>) -> Option<Move> {
    let (at, bytes) = (range.start, range.len());
    (bytes > 0).then_some(Move { from, at, to: at, bytes, combine })
}

impl Own<'_> {
    /// The byte range of a whole operand.
    fn all(&self) -> Range<usize> {
        0..self.operands[0].bytes()
    }

    fn halves(&self) -> [Range<usize>; 2] {
        [0, 1].map(|half| self.share(&self.all(), 2, half))
    }

    /// Slice `at` of `n` of a byte range, in whole elements.
    fn share(&self, range: &Range<usize>, n: usize, at: usize) -> Range<usize> {
        let width = self.operands[0].dtype.bytes().max(1);
        let part = part(range.len() / width, n, at);
        range.start + part.start * width..range.start + part.end * width
    }

    /// The rank's number if the ranks are counted from a root, which has number 0.
    fn number(&self, root: usize) -> usize {
        (self.rank + self.n - root) % self.n
    }

    /// The largest power of two that is not above the number of ranks.
    fn power(&self) -> usize {
        1 << self.n.ilog2()
    }

    /// All-reduce: each share passes around the ring once while each rank combines its own operand with it, and the
    /// combined share then passes around the ring once more.
    fn ring(&self, f: Reduction, range: Range<usize>, way: Way) -> Rounds {
        let (n, r) = (self.n, self.rank);
        let back = |k: usize| match way {
            Way::Forward => (r + n * 2 - k) % n,
            Way::Backward => (r + k) % n,
        };
        let share = |k: usize| self.share(&range, n, back(k));
        let before = back(1);
        if n == 1 {
            return vec![take(Source::Operand(r), &range, None).into_iter().collect()];
        }
        let mut rounds = vec![];
        for k in 1..n {
            let from = if k == 1 { Source::Operand(before) } else { Source::Result(before) };
            let moves = [take(from, &share(k), None), take(Source::Operand(r), &share(k), Some(f))];
            rounds.push(moves.into_iter().flatten().collect());
        }
        for k in 0..n - 1 {
            rounds.push(take(Source::Result(before), &share(k), None).into_iter().collect());
        }
        rounds
    }

    /// For each source, the moves of its operand to its location in the gathered result.
    fn blocks(&self, dim: usize) -> Vec<Vec<Move>> {
        self.by_source(joined(self.operands, dim, wholes(self.operands, dim)))
    }

    fn by_source(&self, moves: impl IntoIterator<Item = Move>) -> Vec<Vec<Move>> {
        let mut blocks = vec![vec![]; self.n];
        moves.into_iter().for_each(|m| blocks[m.from.rank()].push(m));
        blocks
    }

    /// Moves of the block of rank `of`, taken from rank `from`: from the operand of `from` if the two ranks are equal,
    /// else from its result.
    fn block(&self, block: &[Move], of: usize, from: usize) -> Vec<Move> {
        let one = |m: &Move| match of == from {
            true => Move { from: Source::Operand(from), ..*m },
            false => Move { from: Source::Result(from), at: m.to, ..*m },
        };
        block.iter().map(one).collect()
    }

    /// Takes `forward - 1` blocks from the predecessor, one per round, and in the same rounds the remaining blocks from
    /// the successor.
    fn ring_gather(&self, dim: usize, forward: usize) -> Rounds {
        let (n, r, blocks) = (self.n, self.rank, self.blocks(dim));
        let mut rounds = vec![self.block(&blocks[r], r, r)];
        let backward = n - forward;
        rounds.resize_with((forward - 1).max(backward).max(1), Vec::new);
        for k in 1..forward {
            let of = (r + n - k) % n;
            rounds[k - 1].extend(self.block(&blocks[of], of, (r + n - 1) % n));
        }
        for k in 1..=backward {
            let of = (r + k) % n;
            rounds[k - 1].extend(self.block(&blocks[of], of, (r + 1) % n));
        }
        rounds
    }

    /// Runs `inner` on the first [`power`](Own::power) ranks. In the first round, these ranks combine the operands of
    /// the remaining ranks with their own; in the last round, the remaining ranks receive the result.
    fn folded(&self, f: Reduction, inner: impl FnOnce(&mut Rounds)) -> Rounds {
        let (power, r, all) = (self.power(), self.rank, self.all());
        let mut first: Vec<Move> = take(Source::Operand(r), &all, None).into_iter().collect();
        if r + power < self.n {
            first.extend(take(Source::Operand(r + power), &all, Some(f)));
        }
        let mut rounds = vec![if r < power { first } else { vec![] }];
        if r < power {
            inner(&mut rounds);
        }
        if self.n > power {
            let n_inner = self.rounds_inside();
            rounds.resize_with(1 + n_inner, Vec::new);
            let back = (r >= power).then(|| take(Source::Result(r - power), &all, None)).flatten();
            rounds.push(back.into_iter().collect());
        }
        rounds
    }

    /// Maximum number of rounds that `inner` adds in `folded`.
    fn rounds_inside(&self) -> usize {
        2 * self.n.ilog2() as usize
    }

    fn doubling(&self, f: Reduction) -> Rounds {
        self.folded(f, |rounds| {
            let distances = (0..self.n.ilog2()).map(|bit| 1 << bit);
            rounds.extend(distances.map(|d: usize| {
                take(Source::Result(self.rank ^ d), &self.all(), Some(f)).into_iter().collect::<Vec<Move>>()
            }));
        })
    }

    fn halving(&self, f: Reduction) -> Rounds {
        let (power, all) = (self.power(), self.all());
        let shares = |range: &Range<usize>| {
            self.share(&all, power, range.start).start..self.share(&all, power, range.end - 1).end
        };
        self.folded(f, |rounds| {
            let mut kept = 0..power;
            let mut held = vec![];
            while kept.len() > 1 {
                let (d, middle) = (kept.len() / 2, kept.start + kept.len() / 2);
                held.push((self.rank ^ d, kept.clone()));
                kept = if self.rank < middle { kept.start..middle } else { middle..kept.end };
                rounds.push(take(Source::Result(self.rank ^ d), &shares(&kept), Some(f)).into_iter().collect());
            }
            for (peer, whole) in held.into_iter().rev() {
                let middle = whole.start + whole.len() / 2;
                let other = if self.rank < middle { middle..whole.end } else { whole.start..middle };
                rounds.push(take(Source::Result(peer), &shares(&other), None).into_iter().collect());
            }
        })
    }

    /// Reduces to rank 0, and broadcasts from it.
    fn tree(&self, f: Reduction, range: Range<usize>, number: usize) -> Rounds {
        let mut rounds = self.up(f, range.clone(), number, 0);
        rounds.extend(self.down(range, number, 0, Source::Result).into_iter().skip(1));
        rounds
    }

    fn tree_of(&self, f: Reduction, range: Range<usize>, rank: usize) -> Rounds {
        Own { rank, ..*self }.tree(f, range, rank)
    }

    /// The same rounds with the ranks numbered in reverse order.
    fn mirrored(&self, mut rounds: Rounds) -> Rounds {
        let mirror = |rank: usize| self.n - 1 - rank;
        for m in rounds.iter_mut().flatten() {
            m.from = match m.from {
                Source::Operand(rank) => Source::Operand(mirror(rank)),
                Source::Result(rank) => Source::Result(mirror(rank)),
            };
        }
        rounds
    }

    fn distances(&self) -> Vec<usize> {
        (0..).map(|bit| 1 << bit).take_while(|d| *d < self.n).collect()
    }

    /// Reduces towards the root, from ranks at doubling distances. `number` is the rank's number counted from the root.
    fn up(&self, f: Reduction, range: Range<usize>, number: usize, root: usize) -> Rounds {
        let mut rounds = vec![take(Source::Operand(self.rank), &range, None).into_iter().collect::<Vec<Move>>()];
        for d in self.distances() {
            let takes = number.is_multiple_of(2 * d) && number + d < self.n;
            let from = Source::Result((number + d + root) % self.n);
            rounds.push(takes.then(|| take(from, &range, Some(f))).flatten().into_iter().collect());
        }
        // As `Collective::Reduce` requires, ranks other than the root end with their own operand, not with a partial
        // result.
        if number > 0 {
            rounds.last_mut().into_iter().for_each(|last| last.extend(take(Source::Operand(self.rank), &range, None)));
        }
        rounds
    }

    /// Broadcasts from the root, at halving distances. `of_root` returns whether the data is in the root's operand or
    /// in its result.
    fn down(&self, range: Range<usize>, number: usize, root: usize, of_root: impl Fn(usize) -> Source) -> Rounds {
        let mut rounds = vec![vec![]];
        if number == 0 && of_root(root) == Source::Operand(root) {
            rounds[0].extend(take(Source::Operand(root), &range, None));
        }
        for d in self.distances().into_iter().rev() {
            let from = number.checked_sub(d).filter(|_| number % (2 * d) == d);
            let from = from.map(|from| if from == 0 { of_root(root) } else { Source::Result((from + root) % self.n) });
            rounds.push(from.and_then(|from| take(from, &range, None)).into_iter().collect());
        }
        rounds
    }

    /// Spreads the moves over n rounds: in round k, a rank takes data only from the rank k positions before it, so no
    /// two ranks take data from the same rank.
    fn one_by_one(&self, rounds: Rounds) -> Rounds {
        let mut out = vec![vec![]; self.n];
        for m in rounds.into_iter().flatten() {
            out[(self.rank + self.n - m.from.rank()) % self.n].push(m);
        }
        out
    }

    fn bruck(&self, dim: usize) -> Rounds {
        let (n, r, blocks) = (self.n, self.rank, self.blocks(dim));
        let mut rounds = vec![self.block(&blocks[r], r, r)];
        for d in self.distances() {
            let from = (r + d) % n;
            let of = (0..d.min(n - d)).map(|k| (from + k) % n);
            rounds.push(of.flat_map(|of| self.block(&blocks[of], of, from)).collect());
        }
        rounds
    }

    /// Bruck's all-to-all: a block for the rank `k` positions ahead advances once by each power of two in the binary
    /// form of `k`. A rank on the way stores the block where its result will hold the block from the rank `k` positions
    /// behind it. So all blocks must have the same size; otherwise the result is `None`.
    fn bruck_to_all(&self, op: &Collective, split: usize) -> Option<Rounds> {
        let (n, r, operands) = (self.n, self.rank, self.operands);
        if !operands[0].dims[split].is_multiple_of(n) || operands.iter().any(|o| *o != operands[0]) {
            return None;
        }
        // The moves of the direct algorithm, by destination rank and source rank.
        let blocks: Vec<Vec<Vec<Move>>> =
            (0..n).map(|to| self.by_source(direct(op, operands, to).into_iter().flatten())).collect();
        let mut rounds = vec![blocks[r][r].clone()];
        for d in self.distances() {
            let s = (r + n - d) % n;
            let moved = |k: usize| {
                let own = &blocks[r][(r + n - k) % n];
                let lies: Vec<(Source, usize)> = match k.is_multiple_of(d) {
                    true => blocks[(s + k) % n][s].iter().map(|m| (m.from, m.at)).collect(),
                    false => blocks[s][(s + n - k) % n].iter().map(|m| (Source::Result(s), m.to)).collect(),
                };
                own.iter().zip(lies).map(|(m, (from, at))| Move { from, at, ..*m }).collect::<Vec<Move>>()
            };
            rounds.push((1..n).filter(|k| k & d != 0).flat_map(moved).collect());
        }
        Some(rounds)
    }

    /// Each rank of a group reduces a share of the group's data, and combines it with the ranks at the same position of
    /// the other groups; then the ranks of a group exchange their shares. `None` if the groups are not equally large.
    fn hierarchical(&self, f: Reduction, group: usize) -> Option<Rounds> {
        if group == 0 || !self.n.is_multiple_of(group) {
            return None;
        }
        let (first, place, n_groups) = (self.rank / group * group, self.rank % group, self.n / group);
        let share = |place: usize| self.share(&self.all(), group, place);
        let within: Vec<Move> = reduced(f, group, share(place), share(place).start)
            .into_iter()
            .map(|m| Move { from: Source::Operand(first + m.from.rank()), ..m })
            .collect();
        let alike = |at: usize| at * group + place;
        let own_group = self.rank / group;
        let part = |at: usize| self.share(&share(place), n_groups, at);
        let others = || (1..n_groups).map(|k| (own_group + k) % n_groups);
        let combined = others().filter_map(|at| take(Source::Result(alike(at)), &part(own_group), Some(f)));
        let spread = others().filter_map(|at| take(Source::Result(alike(at)), &part(at), None));
        let last = (0..group).filter(|at| *at != place);
        let last = last.filter_map(|at| take(Source::Result(first + at), &share(at), None));
        Some(vec![within, combined.collect(), spread.collect(), last.collect()])
    }
}
