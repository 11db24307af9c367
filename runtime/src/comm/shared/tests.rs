//! ranks that share memory, each on a thread, compared with the definitions of collectives

use super::*;
use crate::stop::RunOptions;
use sardonyx_base::Tensor;
use std::time::Instant;

fn tensor(dtype: DType, dims: &[usize], seed: usize) -> Tensor {
    let n = dims.iter().product::<usize>() * dtype.bytes();
    let mut state = seed as u64 + 1;
    let bytes: Vec<u8> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Small digits avoid NaN, whose bits are unspecified.
            (state >> 61) as u8
        })
        .collect();
    Tensor::new(dtype, dims.to_vec(), bytes.into()).unwrap()
}

/// Returns the results of several collectives on every rank, each on a thread; `brings(rank, step)` is an operand.
fn exchanged(
    mesh: &[usize],
    ops: &[Collective],
    brings: &(dyn Fn(usize, usize) -> Tensor + Sync),
    options: &RunOptions,
    absent: Option<usize>,
) -> Vec<Result<Vec<Tensor>>> {
    let segment = Arc::new(Segment::private(mesh.iter().product()).unwrap());
    let run = |at: usize| {
        let rank = Shared::new(segment.clone(), at);
        rank.begin(1, &[7; LANES]);
        let mut all = vec![];
        for (step, op) in ops.iter().enumerate() {
            let operand = brings(at, step);
            let described = |t: &Tensor| Operand { dtype: t.dtype(), dims: t.dims().to_vec() };
            let stride: usize = mesh[op.mesh() + 1..].iter().product();
            let (n, own) = (mesh[op.mesh()], at / stride % mesh[op.mesh()]);
            let ranks: Vec<usize> = (0..n).map(|i| at - own * stride + i * stride).collect();
            let group: Vec<Tensor> = ranks.iter().map(|rank| brings(*rank, step)).collect();
            let wanted = described(&op.result(&group, own).unwrap());
            let mut bytes = vec![0; wanted.bytes()];
            let operands: Vec<Operand> = group.iter().map(described).collect();
            let what = Exchange {
                op,
                step,
                ranks: &ranks,
                operands: &operands,
                own,
                result: &wanted,
                algorithm: Algorithm::Direct,
            };
            let stop = Stop::new(options);
            // SAFETY: both have the bytes of their dimensions.
            unsafe { rank.exchange(&what, operand.bytes().as_ptr(), bytes.as_mut_ptr(), &stop) }?;
            all.push(Tensor::new(wanted.dtype, wanted.dims, bytes.into())?);
        }
        Ok(all)
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..segment.n_ranks)
            .map(|at| scope.spawn(move || if absent == Some(at) { Ok(vec![]) } else { run(at) }))
            .collect();
        started.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn ranks_get_what_collectives_mean() {
    let texts = [
        "AllReduce mesh=0 by=add",
        "AllReduce mesh=0 by=max",
        "AllGather mesh=0 dim=1",
        "ReduceScatter mesh=0 by=add dim=0",
        "AllToAll mesh=0 split=0 join=1",
        "Broadcast mesh=0 root=0",
        "Reduce mesh=0 by=add root=0",
        "Gather mesh=0 dim=1 root=0",
        "Scatter mesh=0 dim=0 root=0",
        "Halo mesh=0 dim=1 before=1 after=1",
        "Barrier mesh=0",
    ];
    let ops: Vec<Collective> = texts.iter().map(|t| Collective::parse(t).unwrap()).collect();
    for n in [1, 2, 3, 4, 5, 6, 7, 8, 12, 16] {
        for (dtype, dims) in [
            (DType::F32, vec![3, 5]),
            (DType::I64, vec![1, 1]),
            (DType::F64, vec![0, 4]),
            (DType::BF16, vec![17, 333]),
            (DType::I8, vec![64, 256]),
        ] {
            let brings = |rank: usize, step: usize| {
                let mut dims = dims.clone();
                if let Collective::AllGather { dim, .. } | Collective::Gather { dim, .. } = ops[step] {
                    dims[dim] = sardonyx_base::host::part(dims[dim], n, rank).len();
                }
                tensor(dtype, &dims, rank * 31 + step)
            };
            let all = exchanged(&[n], &ops, &brings, &RunOptions::default(), None);
            for (step, op) in ops.iter().enumerate() {
                let operands: Vec<Tensor> = (0..n).map(|rank| brings(rank, step)).collect();
                for (rank, got) in all.iter().enumerate() {
                    let (got, wanted) = (&got.as_ref().unwrap()[step], op.result(&operands, rank).unwrap());
                    assert_eq!((got.dims(), got.bytes()), (wanted.dims(), wanted.bytes()), "{op} {n} {dtype}");
                }
            }
        }
    }
}

/// A result that is too small is refused although the schedule of its operands is known.
#[test]
fn a_known_schedule_has_its_result() {
    let rank = Shared::new(Arc::new(Segment::private(2).unwrap()), 0);
    let (op, of) =
        (Collective::parse("AllReduce mesh=0 by=add").unwrap(), |n| Operand { dtype: DType::F32, dims: vec![n] });
    let (operands, whole, part) = ([of(8), of(8)], of(8), of(4));
    let what = |result| Exchange {
        op: &op,
        step: 0,
        ranks: &[0, 1],
        operands: &operands,
        own: 0,
        result,
        algorithm: Algorithm::Direct,
    };
    assert!(rank.schedule(&what(&whole)).is_ok());
    assert_eq!(rank.schedule(&what(&part)).map(drop).unwrap_err().code, "E0303");
}

#[test]
fn groups_of_a_grid_meet_by_themselves() {
    let ops = ["AllReduce mesh=1 by=add", "AllGather mesh=0 dim=0"].map(|t| Collective::parse(t).unwrap());
    let brings = |rank: usize, _: usize| Tensor::from_vec(vec![1], vec![rank as i64]);
    let all = exchanged(&[2, 3], &ops, &brings, &RunOptions::default(), None);
    let got = all[4].as_ref().unwrap();
    assert_eq!(got[0].to_vec::<i64>(), Some(vec![3 + 4 + 5]));
    assert_eq!(got[1].to_vec::<i64>(), Some(vec![1, 4]));
}

#[test]
fn who_does_not_come_is_named_at_the_deadline() {
    let ops = [Collective::parse("AllReduce mesh=0 by=add").unwrap()];
    let brings = |rank: usize, _: usize| Tensor::from_vec(vec![1], vec![rank as i64]);
    let options = RunOptions::default().deadline(Instant::now() + Duration::from_millis(50));
    let all = exchanged(&[3], &ops, &brings, &options, Some(1));
    let error = all[0].as_ref().unwrap_err();
    assert_eq!(error.code, "E0305");
    assert!(error.message.ends_with("rank 1 had not come to `AllReduce mesh=0 by=add`"), "{error}");
}

#[test]
fn ranks_at_different_collectives_find_out() {
    let ops = ["AllReduce mesh=0 by=add", "AllReduce mesh=0 by=max"].map(|t| Collective::parse(t).unwrap());
    let segment = Arc::new(Segment::private(2).unwrap());
    let run = |at: usize| {
        let rank = Shared::new(segment.clone(), at);
        rank.begin(1, &[0; LANES]);
        let operands = [(); 2].map(|()| Operand { dtype: DType::I64, dims: vec![1] });
        let what = Exchange {
            op: &ops[at],
            step: 0,
            ranks: &[0, 1],
            operands: &operands,
            own: at,
            result: &operands[0],
            algorithm: Algorithm::Direct,
        };
        let (from, mut to) = ([0u8; 8], [0u8; 8]);
        // SAFETY: both have 8 bytes.
        unsafe { rank.exchange(&what, from.as_ptr(), to.as_mut_ptr(), &Stop::new(&RunOptions::default())) }
    };
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        assert_eq!(run(0).unwrap_err().code, "E0408");
        other.join().unwrap()
    });
    assert_eq!(other.unwrap_err().message, "rank 0 of 2 is at another collective than `AllReduce mesh=0 by=max`");
}

#[test]
fn a_send_waits_for_nobody_else() {
    let sends = ["Send mesh=0 from=0 to=2", "Send mesh=0 from=2 to=0"].map(|t| Collective::parse(t).unwrap());
    let brings = |rank: usize, step: usize| tensor(DType::F32, &[5000], rank + 3 * step);
    let all = exchanged(&[3], &sends, &brings, &RunOptions::default(), Some(1));
    let got = |rank: usize, step: usize| all[rank].as_ref().unwrap()[step].bytes().to_vec();
    assert_eq!([got(2, 0), got(0, 1)], [brings(0, 0), brings(2, 1)].map(|t| t.bytes().to_vec()));
    assert_eq!([got(0, 0), got(2, 1)], [brings(0, 0), brings(2, 1)].map(|t| t.bytes().to_vec()));
}

/// Small operands, which alternate between two slots, must not be overwritten while other ranks skip sends.
#[test]
fn sends_between_collectives_leave_their_slots_alone() {
    let texts = ["AllGather mesh=0 dim=0", "Send mesh=0 from=0 to=1", "AllReduce mesh=0 by=add"];
    let ops: Vec<Collective> = texts.iter().cycle().take(300).map(|t| Collective::parse(t).unwrap()).collect();
    let brings = |rank: usize, step: usize| Tensor::from_vec(vec![2], vec![rank as i64, step as i64]);
    let all = exchanged(&[4], &ops, &brings, &RunOptions::default(), None);
    for (step, op) in ops.iter().enumerate() {
        let operands: Vec<Tensor> = (0..4).map(|rank| brings(rank, step)).collect();
        for (rank, got) in all.iter().enumerate() {
            assert_eq!(
                got.as_ref().unwrap()[step].bytes(),
                op.result(&operands, rank).unwrap().bytes(),
                "{step} {rank}"
            );
        }
    }
}
