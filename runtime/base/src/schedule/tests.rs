//! executes schedules and compares the results with those of `Collective::result`; counts the bytes that schedules move

use super::algorithms::Algorithm;
use super::*;
use crate::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a rank takes from each other rank in all rounds.
fn carried(rounds: &Rounds, rank: usize, n: usize) -> Vec<usize> {
    let mut bytes = vec![0; n];
    for moved in rounds.iter().flatten().filter(|m| m.from.rank() != rank) {
        bytes[moved.from.rank()] += moved.bytes;
    }
    bytes
}

/// Number of messages that a rank receives: in each round, one from each other rank from which it takes bytes.
fn messages(rounds: &Rounds, rank: usize) -> usize {
    let of = |round: &Vec<Move>| {
        let others: BTreeSet<usize> = round.iter().map(|m| m.from.rank()).filter(|other| *other != rank).collect();
        others.len()
    };
    rounds.iter().map(of).sum()
}

/// Returns the results of the schedules of all ranks; `None` if the algorithm does not support the collective.
fn executed(op: &Collective, operands: &[Tensor], algorithm: Algorithm) -> Option<Vec<Tensor>> {
    let described: Vec<Operand> =
        operands.iter().map(|t| Operand { dtype: t.dtype(), dims: t.dims().to_vec() }).collect();
    let n = operands.len();
    let results: Vec<Operand> = (0..n).map(|r| result(op, &described, r).unwrap()).collect();
    let rounds: Vec<Rounds> = (0..n).map(|r| algorithm.rounds(op, &described, r)).collect::<Option<_>>()?;
    let mut buffers: Vec<Vec<u8>> = results.iter().map(|r| vec![0; r.bytes()]).collect();
    for round in 0..rounds.iter().map(Vec::len).max().unwrap() {
        let before = buffers.clone();
        for (rank, own) in buffers.iter_mut().enumerate() {
            for m in rounds[rank].get(round).into_iter().flatten() {
                let bytes = match m.from {
                    Source::Operand(r) => &operands[r].bytes()[m.at..m.at + m.bytes],
                    Source::Result(r) => &before[r][m.at..m.at + m.bytes],
                };
                let to = &mut own[m.to..m.to + m.bytes];
                match m.combine {
                    None => to.copy_from_slice(bytes),
                    Some(f) => f.combine(operands[0].dtype(), to, bytes),
                }
            }
        }
    }
    buffers.iter_mut().enumerate().for_each(|(rank, own)| op.finish(operands[0].dtype(), own, n, rank));
    let tensor = |(r, bytes): (Operand, Vec<u8>)| Tensor::new(r.dtype, r.dims, bytes.into()).unwrap();
    Some(results.into_iter().zip(buffers).map(tensor).collect())
}

fn tensors(dims: &[Vec<usize>], dtype: DType) -> Vec<Tensor> {
    let mut seed = 1u64;
    let one = |dims: &Vec<usize>| {
        let n = dims.iter().product::<usize>() * dtype.bytes();
        let bytes: Vec<u8> = (0..n)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 60) as u8
            })
            .collect();
        Tensor::new(dtype, dims.clone(), bytes.into()).unwrap()
    };
    dims.iter().map(one).collect()
}

#[test]
fn every_rank_gets_what_the_operation_means() {
    for n in [1, 2, 3, 4, 5, 8] {
        for text in [
            "AllReduce mesh=0 by=add",
            "AllReduce mesh=0 by=max",
            "AllGather mesh=0 dim=0",
            "AllGather mesh=0 dim=1",
            "ReduceScatter mesh=0 by=mul dim=1",
            "ReduceScatter mesh=0 by=add dim=0",
            "AllToAll mesh=0 split=0 join=1",
            "AllToAll mesh=0 split=2 join=0",
            "Broadcast mesh=0 root=0",
            "Reduce mesh=0 by=min root=0",
            "Gather mesh=0 dim=1 root=0",
            "Scatter mesh=0 dim=2 root=0",
            "Halo mesh=0 dim=1 before=1 after=0",
            "Halo mesh=0 dim=2 before=2 after=3",
            "Barrier mesh=0",
        ] {
            for dims in [vec![4, 6, 5], vec![3, 1, 7], vec![0, 2, 3], vec![64, 3, 33]] {
                let op = Collective::parse(text).unwrap();
                let of_rank = |r: usize| {
                    let mut dims = dims.clone();
                    if let Collective::AllGather { dim, .. } | Collective::Gather { dim, .. } = op {
                        dims[dim] = part(dims[dim], n, r).len();
                    }
                    if let Collective::Halo { dim, .. } = op {
                        dims[dim] += r % 2;
                    }
                    dims
                };
                let all: Vec<Vec<usize>> = (0..n).map(of_rank).collect();
                for dtype in [DType::F32, DType::I8, DType::F64, DType::BF16] {
                    let operands = tensors(&all, dtype);
                    for (rank, got) in executed(&op, &operands, Algorithm::Direct).unwrap().into_iter().enumerate() {
                        let wanted = op.result(&operands, rank).unwrap();
                        assert_eq!((got.dims(), got.bytes()), (wanted.dims(), wanted.bytes()), "{text} {all:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_rank_takes_as_much_as_it_must() {
    let operand = Operand { dtype: DType::F32, dims: vec![8, 1024] };
    for n in [2, 3, 4, 8] {
        let operands = vec![operand.clone(); n];
        let taken = |text: &str| {
            let rounds = direct(&Collective::parse(text).unwrap(), &operands, 1);
            carried(&rounds, 1, n).iter().sum::<usize>()
        };
        let bytes = operand.bytes();
        let share = part(bytes / 64, n, 1).len() * 64;
        // A rank takes its share of the other operands, then the shares that the other ranks have combined.
        assert_eq!(taken("AllReduce mesh=0 by=add"), (n - 1) * share + bytes - share);
        assert_eq!(taken("AllGather mesh=0 dim=0"), (n - 1) * bytes);
        assert_eq!(taken("Halo mesh=0 dim=0 before=1 after=2"), 4096 * if n > 2 { 3 } else { 1 });
        assert_eq!(taken("ReduceScatter mesh=0 by=add dim=0"), (n - 1) * part(8, n, 1).len() * 4096);
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let of = |dims: &[usize]| Operand { dtype: DType::F32, dims: dims.to_vec() };
    let op = Collective::parse("AllReduce mesh=0 by=add").unwrap();
    let error = result(&op, &[of(&[2]), of(&[3])], 0).unwrap_err();
    assert_eq!((error.code, error.message.contains("f32 [2], f32 [3]")), ("E0303", true), "{error}");
}

static RANKS: [usize; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16];

/// Tensors of -1, 0 and 1, whose sums are exact in every type but u8, in which -1 is 255 and sums wrap.
fn numbers(dims: &[Vec<usize>], dtype: DType) -> Vec<Tensor> {
    let one = |(rank, dims): (usize, &Vec<usize>)| {
        let values = (0..dims.iter().product()).map(|i: usize| ((i * 7 + rank * 5) % 3) as i8 - 1);
        let bytes: Vec<u8> = match dtype {
            DType::F32 => values.flat_map(|x| f32::from(x).to_le_bytes()).collect(),
            DType::F64 => values.flat_map(|x| f64::from(x).to_le_bytes()).collect(),
            DType::F16 => values.flat_map(|x| half::f16::from(x).to_le_bytes()).collect(),
            DType::BF16 => values.flat_map(|x| half::bf16::from(x).to_le_bytes()).collect(),
            DType::I16 => values.flat_map(|x| i16::from(x).to_le_bytes()).collect(),
            DType::I32 => values.flat_map(|x| i32::from(x).to_le_bytes()).collect(),
            DType::I64 => values.flat_map(|x| i64::from(x).to_le_bytes()).collect(),
            _ => values.map(|x| x as u8).collect(),
        };
        Tensor::new(dtype, dims.clone(), bytes.into()).unwrap()
    };
    dims.iter().enumerate().map(one).collect()
}

#[test]
fn every_algorithm_gives_what_the_collective_means() {
    let ops = |n: usize| {
        let last = n - 1;
        let all = ["add", "mul", "max", "min", "avg"].map(|by| format!("AllReduce mesh=0 by={by}"));
        let more =
            ["AllGather mesh=0 dim=0", "AllGather mesh=0 dim=1", "AllToAll mesh=0 split=0 join=1"].map(String::from);
        let rooted = [format!("Broadcast mesh=0 root={last}"), format!("Reduce mesh=0 by=add root={}", n / 2)];
        let pairs = if n > 1 { vec![format!("Send mesh=0 from={last} to=0")] } else { vec![] };
        all.into_iter().chain(more).chain(rooted).chain(pairs).collect::<Vec<String>>()
    };
    let dtypes =
        [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8, DType::U8, DType::I16, DType::I32, DType::I64];
    let mut tried = BTreeMap::new();
    for n in RANKS {
        for text in ops(n) {
            let op = Collective::parse(&text).unwrap();
            for dims in [vec![0, 3], vec![1, 1], vec![7, 5], vec![16, 33], vec![48, 2]] {
                let of_rank = |r: usize| match op {
                    Collective::AllGather { dim, .. } => {
                        let mut dims = dims.clone();
                        dims[dim] = part(dims[dim], n, r).len();
                        dims
                    }
                    _ => dims.clone(),
                };
                let all: Vec<Vec<usize>> = (0..n).map(of_rank).collect();
                for dtype in dtypes.into_iter().take(if dims[0] == 7 { 9 } else { 2 }) {
                    let operands = numbers(&all, dtype);
                    for algorithm in Algorithm::ALL {
                        let Some(results) = executed(&op, &operands, algorithm) else { continue };
                        *tried.entry((algorithm.name(), op.name())).or_insert(0) += 1;
                        for (rank, got) in results.into_iter().enumerate() {
                            let wanted = op.result(&operands, rank).unwrap();
                            let told = || format!("{text} of {all:?} {dtype} by {algorithm:?}: rank {rank}");
                            assert_eq!((got.dims(), got.bytes()), (wanted.dims(), wanted.bytes()), "{}", told());
                        }
                    }
                }
            }
        }
    }
    assert!(tried.len() >= 20 && tried.values().all(|times| *times > 50), "{tried:?}");
}

/// Bytes and messages of each rank, for operands of 768 KiB.
#[test]
fn algorithms_carry_what_their_formulas_say() {
    let bytes = 3 << 18;
    for n in [2usize, 3, 4, 6, 8, 12, 16] {
        let log = n.ilog2() as usize;
        let steps = log + usize::from(!n.is_power_of_two());
        let two = n.is_power_of_two();
        let operand = Operand { dtype: DType::F32, dims: vec![bytes / 4] };
        let tall = Operand { dtype: DType::F32, dims: vec![48, bytes / 4 / 48] };
        let taken = |algorithm: Algorithm, text: &str, operands: &[Operand], rank: usize| {
            let rounds = algorithm.rounds(&Collective::parse(text).unwrap(), operands, rank).unwrap();
            (carried(&rounds, rank, n).iter().sum::<usize>(), messages(&rounds, rank))
        };
        for rank in 0..n {
            let sum = |algorithm| taken(algorithm, "AllReduce mesh=0 by=add", &vec![operand.clone(); n], rank);
            let optimal = 2 * (n - 1) * bytes / n;
            assert_eq!(sum(Algorithm::Direct), (optimal, 2 * (n - 1)), "direct, {n}");
            assert_eq!(sum(Algorithm::Ring), (optimal, 2 * (n - 1)), "ring, {n}");
            let (both_ways, its_messages) = sum(Algorithm::TwoWayRing);
            assert_eq!(both_ways, optimal, "two-way ring, {n}");
            // With two ranks, both neighbours are the same rank.
            assert_eq!(its_messages, if n == 2 { 2 } else { 4 * (n - 1) }, "two-way ring, {n}");
            if two {
                assert_eq!(sum(Algorithm::RecursiveDoubling), (log * bytes, log), "recursive doubling, {n}");
                assert_eq!(sum(Algorithm::Rabenseifner), (optimal, 2 * log), "Rabenseifner, {n}");
            }
            if n.is_multiple_of(2) {
                let (between, groups) = (2 * (n / 2 - 1) * (bytes / 2) / (n / 2), n / 2);
                let hierarchical = sum(Algorithm::Hierarchical { group: 2 });
                assert_eq!(hierarchical, (bytes + between, 2 + 2 * (groups - 1)), "hierarchical, {n}");
            }
            let block = Operand { dtype: DType::F32, dims: vec![bytes / 4 / n] };
            let gathered = |algorithm| taken(algorithm, "AllGather mesh=0 dim=0", &vec![block.clone(); n], rank);
            let all_others = (n - 1) * bytes / n;
            assert_eq!(gathered(Algorithm::Direct), (all_others, n - 1));
            assert_eq!(gathered(Algorithm::Pairwise), (all_others, n - 1));
            assert_eq!(gathered(Algorithm::Ring), (all_others, n - 1));
            assert_eq!(gathered(Algorithm::TwoWayRing), (all_others, n - 1));
            assert_eq!(gathered(Algorithm::Bruck), (all_others, steps), "Bruck, {n}");
            let exchanged =
                |algorithm| taken(algorithm, "AllToAll mesh=0 split=0 join=1", &vec![tall.clone(); n], rank);
            assert_eq!(exchanged(Algorithm::Pairwise), (all_others, n - 1));
            let steps_of_blocks: u32 = (1..n).map(usize::count_ones).sum();
            let carried = steps_of_blocks as usize * bytes / n;
            assert_eq!(exchanged(Algorithm::Bruck), (carried, steps), "Bruck to all, {n}");
            let receives = usize::from(rank != 1);
            let spread = taken(Algorithm::BinomialTree, "Broadcast mesh=0 root=1", &vec![operand.clone(); n], rank);
            assert_eq!(spread, (receives * bytes, receives));
        }
        // For trees, the bytes that all ranks take together are compared: the data of each rank but the root is taken
        // once on the way up, and each rank but the root takes the result once on the way down.
        let total = |algorithm: Algorithm| {
            let all = (0..n).map(|rank| taken(algorithm, "AllReduce mesh=0 by=add", &vec![operand.clone(); n], rank).0);
            all.sum::<usize>()
        };
        assert_eq!(total(Algorithm::BinomialTree), 2 * (n - 1) * bytes);
        assert_eq!(total(Algorithm::DoubleTree), 2 * (n - 1) * bytes);
    }
}

/// The actions of a rank on a transport of messages: for each round, the ranks that it sends to and receives from. A
/// rank starts all messages of a round at once, and continues when these messages have completed.
type Script = Vec<[BTreeSet<usize>; 2]>;

/// Returns the script of each rank for a sequence of collectives, each performed within groups of ranks.
fn scripts(n: usize, plan: &[(Collective, Vec<Vec<usize>>, Algorithm)]) -> Vec<Script> {
    let mut all: Vec<Script> = vec![vec![]; n];
    for (op, groups, algorithm) in plan {
        for group in groups {
            let operands = vec![Operand { dtype: DType::F32, dims: vec![48] }; group.len()];
            let rounds: Vec<Rounds> = (0..group.len()).map(|at| algorithm.rounds(op, &operands, at).unwrap()).collect();
            for i in 0..rounds.iter().map(Vec::len).max().unwrap() {
                let takes = |of: usize, from: usize| {
                    let round = rounds[of].get(i);
                    of != from && round.into_iter().flatten().any(|m| m.from.rank() == from && m.bytes > 0)
                };
                for (at, rank) in group.iter().enumerate() {
                    let to = (0..group.len()).filter(|other| takes(*other, at)).map(|other| group[other]);
                    let from = (0..group.len()).filter(|other| takes(at, *other)).map(|other| group[other]);
                    all[*rank].push([to.collect(), from.collect()]);
                }
            }
        }
    }
    all
}

/// Explores every order in which ranks can continue if messages are not buffered: a send completes only when its
/// receiver has begun to receive. Returns the unfinished states in which no rank can continue. A state is the number of
/// rounds that each rank has begun.
fn stuck(scripts: &[Script]) -> BTreeSet<Vec<usize>> {
    let n = scripts.len();
    // Number of messages that a rank has begun to send to another rank, or to receive from it.
    let begun = |rank: usize, way: usize, other: usize, rounds: usize| {
        scripts[rank][..rounds].iter().filter(|round| round[way].contains(&other)).count()
    };
    let goes_on = |state: &[usize], rank: usize| {
        let rounds = state[rank];
        let met =
            |way: usize, other: usize| begun(other, 1 - way, rank, state[other]) >= begun(rank, way, other, rounds);
        let ended =
            rounds == 0 || [0, 1].iter().all(|way| scripts[rank][rounds - 1][*way].iter().all(|o| met(*way, *o)));
        rounds <= scripts[rank].len() && ended
    };
    let is_done = |state: &[usize]| (0..n).all(|rank| state[rank] == scripts[rank].len() && goes_on(state, rank));
    let (mut seen, mut open, mut out) = (BTreeSet::new(), vec![vec![0; n]], BTreeSet::new());
    while let Some(state) = open.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        let next = (0..n).filter(|rank| state[*rank] < scripts[*rank].len() && goes_on(&state, *rank));
        let next: Vec<Vec<usize>> = next
            .map(|rank| {
                let mut next = state.clone();
                next[rank] += 1;
                next
            })
            .collect();
        if next.is_empty() && !is_done(&state) {
            out.insert(state);
        }
        open.extend(next);
    }
    out
}

#[test]
fn no_order_of_arrival_leaves_ranks_waiting() {
    let sum = Collective::parse("AllReduce mesh=0 by=add").unwrap();
    let gather = Collective::parse("AllGather mesh=0 dim=0").unwrap();
    let of = |op: Collective| {
        Algorithm::ALL.into_iter().filter(move |algorithm| {
            let operands = vec![Operand { dtype: DType::F32, dims: vec![48] }; 4];
            algorithm.rounds(&op, &operands, 0).is_some()
        })
    };
    for n in [2, 3, 4] {
        let whole = vec![(0..n).collect::<Vec<usize>>()];
        for first in of(sum).filter(|a| n != 3 || *a != Algorithm::Hierarchical { group: 2 }) {
            for second in of(gather) {
                let plan = [(sum, whole.clone(), first), (gather, whole.clone(), second)];
                assert_eq!(stuck(&scripts(n, &plan)), BTreeSet::new(), "{first:?}, {second:?} among {n}");
            }
        }
    }
    // The groups are the rows and the columns of a 2 × 2 grid of ranks.
    let (rows, columns) = (vec![vec![0, 1], vec![2, 3]], vec![vec![0, 2], vec![1, 3]]);
    let plan = [(sum, rows.clone(), Algorithm::Ring), (gather, columns.clone(), Algorithm::Direct)];
    let mut scripts = scripts(4, &plan);
    assert_eq!(stuck(&scripts), BTreeSet::new());
    // If rank 0 alone reaches the two collectives in the opposite order, all ranks still finish; if rank 3 does, too,
    // the ranks deadlock.
    let swapped = self::scripts(4, &[plan[1].clone(), plan[0].clone()]);
    scripts[0] = swapped[0].clone();
    assert_eq!(stuck(&scripts), BTreeSet::new());
    scripts[3] = swapped[3].clone();
    assert_ne!(stuck(&scripts), BTreeSet::new());
}
