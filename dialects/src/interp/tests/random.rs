//! Random graphs of elementwise and movement operations agree, element by element, with a direct evaluation of their
//! definitions

use super::*;
use crate::scalar::ScalarFn;
use crate::sdx::WindowSpec;
use std::rc::Rc;

/// A small linear congruential generator, so that the cases are the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }
}

type Element = Rc<dyn Fn(&[usize]) -> i64>;

/// A tensor whose elements are a function of the index: no strides, no buffers.
#[derive(Clone)]
struct Lazy {
    dims: Vec<usize>,
    at: Element,
}

impl Lazy {
    fn new(dims: Vec<usize>, at: impl Fn(&[usize]) -> i64 + 'static) -> Lazy {
        Lazy { dims, at: Rc::new(at) }
    }

    fn flat(&self) -> Vec<i64> {
        let mut out = vec![];
        let n: usize = self.dims.iter().product();
        for i in 0..n {
            out.push((self.at)(&unflatten(i, &self.dims)));
        }
        out
    }
}

fn unflatten(mut i: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for d in (0..dims.len()).rev() {
        index[d] = i % dims[d];
        i /= dims[d];
    }
    index
}

/// One random operation on `x`: the operation, its operands beyond `x`, and its result by definition.
fn grow(r: &mut Random, x: &Lazy) -> (Op, Vec<Tensor>, Lazy) {
    let (dims, rank, of) = (x.dims.clone(), x.dims.len(), x.at.clone());
    let axis = if rank > 0 { r.below(rank) } else { 0 };
    match r.below(if rank == 0 { 2 } else { 8 }) {
        0 => (Op::Map(ScalarFn::Neg), vec![], Lazy::new(dims, move |i| -of(i))),
        1 => {
            let mut to = vec![2];
            to.extend(&dims);
            (Op::Broadcast { dims: (1..=rank).collect() }, vec![], Lazy::new(to, move |i| of(&i[1..])))
        }
        2 => {
            let perm: Vec<usize> = (0..rank).map(|d| (d + axis) % rank).collect();
            let to = perm.iter().map(|&p| dims[p]).collect();
            let inverse = perm.clone();
            let at = move |i: &[usize]| {
                let mut from = vec![0; i.len()];
                inverse.iter().zip(i).for_each(|(&p, &i)| from[p] = i);
                of(&from)
            };
            (Op::Transpose { perm }, vec![], Lazy::new(to, at))
        }
        3 => {
            // Every second element backwards along one axis.
            let (mut starts, mut steps, mut to) = (vec![Dim::constant(0); rank], vec![1; rank], dims.clone());
            let last = dims[axis].saturating_sub(1);
            (starts[axis], steps[axis], to[axis]) = (Dim::constant(last as i64), -2, dims[axis].div_ceil(2));
            let at = move |i: &[usize]| {
                let mut from = i.to_vec();
                from[axis] = last - 2 * i[axis];
                of(&from)
            };
            (Op::Slice { starts, steps }, vec![], Lazy::new(to, at))
        }
        4 => {
            let low = r.below(4) as i64 - 2;
            let (mut lows, mut to) = (vec![Dim::constant(0); rank], dims.clone());
            (lows[axis], to[axis]) = (Dim::constant(low), dims[axis] + 1);
            let at = move |i: &[usize]| {
                let mut from = i.to_vec();
                let k = i[axis] as i64 - low;
                from[axis] = k as usize;
                if (0..dims[axis] as i64).contains(&k) { of(&from) } else { 99 }
            };
            (Op::Pad { low: lows }, vec![Tensor::scalar(99i64)], Lazy::new(to, at))
        }
        5 => {
            let mut to = dims.clone();
            to.splice(axis..=axis, if dims[axis] == 0 { vec![] } else { vec![3] });
            if dims[axis] == 0 {
                return grow(r, x);
            }
            let picks: Vec<i64> = (0..3).map(|_| r.below(dims[axis]) as i64).collect();
            let indices = i64s(&[3], &picks);
            let at = move |i: &[usize]| {
                let mut from = i.to_vec();
                from[axis] = picks[i[axis]] as usize;
                of(&from)
            };
            (Op::Gather { axis }, vec![indices], Lazy::new(to, at))
        }
        6 if dims[axis] > 1 => {
            // Windows of size 2 with stride 2.
            let mut to = dims.clone();
            (to[axis], _) = (dims[axis] / 2, to.push(2));
            let at = move |i: &[usize]| {
                let (offset, place) = i.split_last().unwrap();
                let mut from = place.to_vec();
                from[axis] = 2 * place[axis] + offset;
                of(&from)
            };
            (Op::Window(WindowSpec { axis, size: 2.into(), stride: 2, dilation: 1 }), vec![], Lazy::new(to, at))
        }
        _ => {
            let to = vec![dims.iter().product()];
            (Op::Reshape, vec![], Lazy::new(to, move |i| of(&unflatten(i[0], &dims))))
        }
    }
}

#[test]
fn random_graphs_agree_with_the_definitions() {
    let mut r = Random(3);
    for case in 0..300 {
        let dims: Vec<usize> = (0..r.below(4)).map(|_| r.below(4)).collect();
        let n: usize = dims.iter().product();
        let values: Vec<i64> = (0..n as i64).map(|i| 10 + i).collect();
        let mut g = Graph::default();
        let as_type =
            |dims: &[usize]| TensorType::new(DType::I64, dims.iter().map(|&d| (d as i64).into()).collect::<Vec<_>>());
        let mut v = add(&mut g, Op::Const(i64s(&dims, &values)), &[], as_type(&dims));
        let from = dims.clone();
        let mut x = Lazy::new(dims, move |i| 10 + i.iter().zip(&from).fold(0, |at, (&i, &n)| at * n as i64 + i as i64));
        let mut what = vec![];
        for _ in 0..1 + r.below(5) {
            let (op, rest, next) = grow(&mut r, &x);
            if next.dims.iter().product::<usize>() > 4096 {
                break;
            }
            what.push(format!("{op:?} {:?}", next.dims));
            let mut args = vec![v];
            for t in rest {
                let ty = as_type(t.dims());
                args.push(add(&mut g, Op::Const(t), &[], ty));
            }
            v = add(&mut g, op, &args, as_type(&next.dims));
            x = next;
        }
        g.outputs = vec![("y".to_string(), v)];
        let out = run(&g, &no_params, &[]).unwrap_or_else(|e| panic!("case {case} {what:?}: {e}"));
        assert_eq!(out[0].1.to_vec::<i64>().unwrap(), x.flat(), "case {case}: {what:?}");
    }
}
