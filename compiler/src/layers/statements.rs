//! a kernel, its inputs  =>  the values of its statements, without the dimensions that they do not depend on
//!
//! In the iteration space of a kernel, the result of a reduction over a row is repeated at every column; the tensor of
//! the ONNX model has one element per row. To be compared with the model's tensors, a value must not be repeated.

use sardonyx_base::dim::Symbol;
use sardonyx_base::{Dim, Result, Tensor};
use sardonyx_dialects::flow::kernel::Level;
use sardonyx_dialects::flow::{Body, Class, Kernel};
use sardonyx_dialects::interp::{KernelCall, run_statements};

/// Values of statements with more elements than this over the iteration space are not returned.
const ELEMENTS_MAX: usize = 1 << 24;

/// Returns the values of the kernel's statements, except those for which `skip` returns true, those at deep level, and
/// those with too many elements.
pub fn values(call: &KernelCall, skip: &dyn Fn(usize) -> bool) -> Result<Vec<Tensor>> {
    let kernel = call.kernel;
    let extent = |dims: &[Dim]| -> Result<usize> {
        dims.iter().try_fold(1usize, |n, d| Ok(n.saturating_mul(size(d, call.symbols)?)))
    };
    let (rows, points) = (extent(&kernel.outer)?, extent(&kernel.inner)?);
    let contract = kernel.class() == Class::Contract;
    let wanted = |k: usize, level: Level| {
        let fits = match level {
            Level::Row => rows <= ELEMENTS_MAX,
            // The individual products of a contraction correspond to no value of the model.
            Level::Point => !contract && rows.saturating_mul(points) <= ELEMENTS_MAX,
            Level::Deep => false,
        };
        fits && !skip(k)
    };
    let all = run_statements(kernel, call.symbols, call.args, &wanted)?;
    let uses = variables(kernel);
    let mut out = vec![];
    for (tensor, used) in all.into_iter().zip(&uses) {
        let Some(whole) = tensor else { continue };
        let once = distinct(&whole, used)?;
        // The model contains the repeated value as well if it has an `Expand` node.
        if once.len() < whole.len() && whole.len() <= ELEMENTS_MAX / 64 {
            out.push(whole);
        }
        out.push(once);
    }
    Ok(out)
}

pub fn size(d: &Dim, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<usize> {
    Ok(usize::try_from(d.eval_named(symbols)?).unwrap_or(0))
}

/// Returns, for each statement, whether it depends on each variable of the iteration space.
fn variables(kernel: &Kernel) -> Vec<Vec<bool>> {
    let mut all: Vec<Vec<bool>> = vec![];
    for statement in &kernel.body {
        let mut used = vec![false; kernel.n_vars()];
        let mut join = |other: &Vec<bool>| used.iter_mut().zip(other).for_each(|(a, b)| *a |= b);
        let index = |d: &Dim| {
            let mut of = vec![false; kernel.n_vars()];
            for symbol in d.symbols() {
                match symbol {
                    Symbol::Variable(i) => of.get_mut(i).into_iter().for_each(|u| *u = true),
                    Symbol::Statement(k) => {
                        all.get(k).into_iter().for_each(|r| of.iter_mut().zip(r).for_each(|(a, b)| *a |= b))
                    }
                    _ => {}
                }
            }
            of
        };
        match &statement.body {
            Body::Load { memlet, guard } => {
                memlet.index.iter().for_each(|d| join(&index(d)));
                guard.iter().for_each(|g| join(&all[*g]));
            }
            Body::Const(_) => {}
            Body::Index(d) => join(&index(d)),
            Body::Apply { args, .. } => args.iter().for_each(|a| join(&all[*a])),
            Body::Convert(a, _) | Body::Reduce { arg: a, .. } => join(&all[*a]),
        }
        all.push(used);
    }
    all
}

/// Removes every dimension that the values do not depend on, by keeping only the first element along it.
fn distinct(whole: &Tensor, used: &[bool]) -> Result<Tensor> {
    let kept: Vec<usize> = (0..whole.rank()).filter(|&d| used.get(d).copied().unwrap_or(true)).collect();
    if kept.len() == whole.rank() || whole.is_empty() {
        return Ok(whole.clone());
    }
    let mut strides = vec![1; whole.rank()];
    for d in (0..whole.rank().saturating_sub(1)).rev() {
        strides[d] = strides[d + 1] * whole.dims()[d + 1];
    }
    let dims: Vec<usize> = kept.iter().map(|&d| whole.dims()[d]).collect();
    let width = whole.dtype().bytes();
    let mut bytes = vec![];
    for i in 0..dims.iter().product() {
        let (mut rest, mut at) = (i, 0);
        for (&d, &n) in kept.iter().zip(&dims).rev() {
            at += rest % n * strides[d];
            rest /= n;
        }
        bytes.extend_from_slice(&whole.bytes()[at * width..(at + 1) * width]);
    }
    Tensor::new(whole.dtype(), dims, bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_without_influence_are_gone() {
        let t = Tensor::from_vec(vec![2, 2, 3], (0..12).map(|i| i as f32).collect());
        let first = distinct(&t, &[true, false, true, false]).unwrap();
        assert_eq!((first.dims(), first.to_vec::<f32>().unwrap()), (&[2, 3][..], vec![0., 1., 2., 6., 7., 8.]));
        assert_eq!(distinct(&t, &[false; 3]).unwrap().to_vec::<f32>().unwrap(), [0.0]);
        assert_eq!(distinct(&t, &[true; 3]).unwrap().dims(), [2, 2, 3]);
    }
}
