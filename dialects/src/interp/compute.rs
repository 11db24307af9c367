//! map, convert, reduce, contract: elements are read as f64 or i128, computed in this type, and rounded once at the end

use super::Expected;
use super::movement::{strides, walk};
use super::numbers::Numbers;
use super::scalar::{apply, combine_float, combine_int, neutral_float, neutral_int};
use crate::scalar::{Conversion, Domain, ReduceFn, ScalarFn};
use crate::sdx::ContractSpec;
use sardonyx_base::tensor::element_count;
use sardonyx_base::{DType, Error, Result, Tensor};
use std::collections::BTreeMap;

pub fn map(f: ScalarFn, args: &[Tensor], expected: &Expected) -> Result<Tensor> {
    let types: Vec<DType> = args.iter().map(Tensor::dtype).collect();
    let result = f.result(&types).map_err(Error::defect)?;
    for arg in args {
        expected.agree(arg.dims())?;
    }
    let operands = args.iter().map(Numbers::read).collect::<Result<Vec<_>>>()?;
    let operands: Vec<&Numbers> = operands.iter().collect();
    apply(f, &operands, expected.len())?.rounded(result).write(result, expected.dims.clone())
}

pub fn convert(how: Conversion, arg: &Tensor, expected: &Expected) -> Result<Tensor> {
    expected.agree(arg.dims())?;
    let to = expected.dtype;
    Numbers::read(arg)?.converted_as(how, arg.dtype(), to)?.write(to, expected.dims.clone())
}

pub fn reduce(f: ReduceFn, axes: &[usize], arg: &Tensor, expected: &Expected) -> Result<Tensor> {
    if !axes.windows(2).all(|w| w[0] < w[1]) || axes.iter().any(|&a| a >= arg.rank()) {
        return Err(Error::defect(format!("{axes:?} are not axes of a tensor of rank {}", arg.rank())));
    }
    f.scalar().result(&[arg.dtype(), arg.dtype()]).map_err(Error::defect)?;
    let kept: Vec<usize> = (0..arg.rank()).filter(|d| !axes.contains(d)).collect();
    let computed: Vec<usize> = kept.iter().map(|&d| arg.dims()[d]).collect();
    expected.agree(&computed)?;
    let mut to = vec![0; arg.rank()];
    for (d, stride) in kept.iter().zip(strides(&computed)) {
        to[*d] = stride;
    }
    let sums = match Numbers::read(arg)? {
        Numbers::Float(x) => {
            Numbers::Float(accumulate(&x, arg.dims(), &to, vec![neutral_float(f); expected.len()], combine_float(f)))
        }
        Numbers::Int(x) => {
            let neutral = neutral_int(f, arg.dtype())?;
            Numbers::Int(accumulate(&x, arg.dims(), &to, vec![neutral; expected.len()], combine_int(f)))
        }
    };
    sums.rounded(arg.dtype()).write(arg.dtype(), computed)
}

/// Combines the elements of `x`, in row-major order, into elements of `sums`. `to` has the strides that turn the index
/// of an element of `x` into an offset in `sums`.
fn accumulate<T: Copy>(x: &[T], dims: &[usize], to: &[i64], mut sums: Vec<T>, combine: fn(T, T) -> T) -> Vec<T> {
    let mut values = x.iter();
    walk(dims, 0, to, |at| {
        if let Some(&x) = values.next() {
            sums[at] = combine(sums[at], x);
        }
    });
    sums
}

/// Computes an einsum of two operands as c[b, m, n] = Σ_k a[b, m, k] · b[b, k, n].
pub fn contract(spec: &ContractSpec, left: &Tensor, right: &Tensor, expected: &Expected) -> Result<Tensor> {
    if ![left, right].iter().all(|t| Domain::Numbers.contains(t.dtype())) {
        return Err(Error::defect(format!("a contraction of {} and {}", left.dtype(), right.dtype())));
    }
    let extents = letter_extents(spec, left, right)?;
    let extent = |letters: &[char]| -> Vec<usize> { letters.iter().map(|c| extents[c]).collect() };
    expected.agree(&extent(&spec.result))?;
    let groups = Groups::new(spec);
    let size = |letters: &[char]| element_count(&extent(letters)).unwrap_or(0);
    let sizes = [size(&groups.b), size(&groups.m), size(&groups.k), size(&groups.n)];
    let order_left = [&groups.b[..], &groups.m, &groups.k].concat();
    let order_right = [&groups.b[..], &groups.k, &groups.n].concat();
    let order_result = [&groups.b[..], &groups.m, &groups.n].concat();
    // An empty sum is 0. Without this case, its 0 times an infinity of the other operand would be NaN.
    if spec.summed().iter().any(|c| extents[c] == 0) {
        return Numbers::zeros(expected.dtype, expected.len()).write(expected.dtype, expected.dims.clone());
    }
    let product = match (Numbers::read(left)?, Numbers::read(right)?) {
        (Numbers::Float(a), Numbers::Float(b)) => {
            let a = arranged(&a, &spec.left, &order_left, &extents, 0.0, |x, y| x + y);
            let b = arranged(&b, &spec.right, &order_right, &extents, 0.0, |x, y| x + y);
            let c = multiply(&a, &b, sizes, 0.0, |c, a, b| c + a * b);
            Numbers::Float(arranged(&c, &order_result, &spec.result, &extents, 0.0, |_, y| y))
        }
        (Numbers::Int(a), Numbers::Int(b)) => {
            let a = arranged(&a, &spec.left, &order_left, &extents, 0, i128::wrapping_add);
            let b = arranged(&b, &spec.right, &order_right, &extents, 0, i128::wrapping_add);
            let c = multiply(&a, &b, sizes, 0, |c, a: i128, b| c.wrapping_add(a.wrapping_mul(b)));
            Numbers::Int(arranged(&c, &order_result, &spec.result, &extents, 0, |_, y| y))
        }
        _ => return Err(Error::defect(format!("a contraction of {} and {}", left.dtype(), right.dtype()))),
    };
    product.rounded(expected.dtype).write(expected.dtype, expected.dims.clone())
}

/// Returns the extent of each letter. Errors: E0201 if the operands give a letter different extents.
fn letter_extents(spec: &ContractSpec, left: &Tensor, right: &Tensor) -> Result<BTreeMap<char, usize>> {
    let mut extents = BTreeMap::new();
    for (letters, operand) in [(&spec.left, left), (&spec.right, right)] {
        if letters.len() != operand.rank() {
            return Err(Error::defect(format!("`{spec}` does not fit an operand of rank {}", operand.rank())));
        }
        for (&c, &n) in letters.iter().zip(operand.dims()) {
            if *extents.entry(c).or_insert(n) != n {
                let message = format!("in `{spec}`, `{c}` is {} on the left and {n} on the right", extents[&c]);
                return Err(Error::user("E0201", message));
            }
        }
    }
    match spec.result.iter().find(|c| !extents.contains_key(c)) {
        Some(c) => Err(Error::defect(format!("in `{spec}`, `{c}` is in no operand"))),
        None => Ok(extents),
    }
}

/// The letters of an einsum by role, named as in [`contract`]. A letter that is summed and occurs in one operand only
/// has no role, because `arranged` sums over it first.
struct Groups {
    b: Vec<char>,
    m: Vec<char>,
    k: Vec<char>,
    n: Vec<char>,
}

impl Groups {
    fn new(spec: &ContractSpec) -> Groups {
        let (l, r) = (|c: &char| spec.left.contains(c), |c: &char| spec.right.contains(c));
        let results = |keep: &dyn Fn(&char) -> bool| spec.result.iter().copied().filter(|c| keep(c)).collect();
        Groups {
            b: results(&|c| l(c) && r(c)),
            m: results(&|c| l(c) && !r(c)),
            n: results(&|c| !l(c) && r(c)),
            k: spec.summed().into_iter().filter(|c| l(c) && r(c)).collect(),
        }
    }
}

/// Reorders elements from the dimensions `from` to the dimensions `to`; `combine` reduces those that `to` lacks.
fn arranged<T: Copy>(
    x: &[T],
    from: &[char],
    to: &[char],
    extents: &BTreeMap<char, usize>,
    zero: T,
    combine: fn(T, T) -> T,
) -> Vec<T> {
    if from == to {
        return x.to_vec();
    }
    let dims: Vec<usize> = to.iter().map(|c| extents[c]).collect();
    let strides = strides(&dims);
    let by: Vec<i64> = from.iter().map(|c| to.iter().position(|t| t == c).map_or(0, |at| strides[at])).collect();
    let source: Vec<usize> = from.iter().map(|c| extents[c]).collect();
    accumulate(x, &source, &by, vec![zero; element_count(&dims).unwrap_or(0)], combine)
}

/// a[b, m, k] · b[b, k, n] → c[b, m, n]. The compiler can vectorise the innermost loop, over n. Four rows of c are
/// accumulated at a time, so that each row of b is read from memory a quarter as often.
fn multiply<T: Copy>(a: &[T], b: &[T], [bs, m, k, n]: [usize; 4], zero: T, add: impl Fn(T, T, T) -> T) -> Vec<T> {
    const ROWS: usize = 4;
    let mut c = vec![zero; bs * m * n];
    if c.is_empty() || k == 0 {
        return c;
    }
    for batch in 0..bs {
        let (a, b) = (&a[batch * m * k..][..m * k], &b[batch * k * n..][..k * n]);
        let c = &mut c[batch * m * n..][..m * n];
        for (rows_a, rows_c) in a.chunks(ROWS * k).zip(c.chunks_mut(ROWS * n)) {
            for (kk, row_b) in b.chunks_exact(n).enumerate() {
                for (row_a, row_c) in rows_a.chunks_exact(k).zip(rows_c.chunks_exact_mut(n)) {
                    let x = row_a[kk];
                    for (c, &y) in row_c.iter_mut().zip(row_b) {
                        *c = add(*c, x, y);
                    }
                }
            }
        }
    }
    c
}
