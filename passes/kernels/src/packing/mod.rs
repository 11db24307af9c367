//! b[k, n] constant, read as [%k, %n]  =>  the constant in panels of 32 columns, and the kernel that reads them

mod groups;

use super::contract::WIDTH;
use super::linear::lower;
use super::target::Target;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Encoding};
use sardonyx_dialects::flow::Window;
use sardonyx_dialects::flow::kernel::{Body, Class, Container, Kernel, Memlet, Statement};
use sardonyx_dialects::scalar::ScalarFn;
use std::ops::Range;

/// How to pack operands of k by n each: `dst[p][k][j] = src[offset + k·stride_k + (32p + j)·stride_n]`, and zero where
/// 32p + j ≥ n. The row index of a convolution's weights combines several variables as digits, in the order that suits
/// the other operand's layout.
#[derive(Clone, Debug)]
pub struct Packable {
    /// One per accumulator; two of them may be parts of the same operand.
    pub factors: Vec<PackedFactor>,
    /// Kernel that reads the packed containers, with the dimensions [k, n], instead of the operands.
    pub kernel: Kernel,
}

/// Matrix within an operand.
#[derive(Clone, Debug)]
pub struct PackedFactor {
    /// Index into the kernel's reads.
    pub operand: usize,
    /// Index of the packed container in the new kernel: `operand` itself, or a new index after all other containers.
    pub packed: usize,
    /// Rows and columns of the matrix.
    pub size: [i64; 2],
    /// Position of the matrix's elements within the operand.
    pub window: Window,
}

/// The two operands of each product that a contraction sums; `None` if it sums anything else.
pub fn products(kernel: &Kernel) -> Option<Vec<[usize; 2]>> {
    let summed = kernel.body.iter().filter_map(|s| match &s.body {
        Body::Reduce { arg, .. } => Some(*arg),
        Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Apply { .. } | Body::Convert(_, _) => None,
    });
    let factors = |k: usize| match &kernel.body[k].body {
        Body::Apply { f: ScalarFn::Mul, args } => Some([args[0], args[1]]),
        Body::Load { .. }
        | Body::Const(_)
        | Body::Index(_)
        | Body::Apply { .. }
        | Body::Convert(_, _)
        | Body::Reduce { .. } => None,
    };
    summed.map(factors).collect()
}

/// Returns how to pack the operands of a contraction that are read faster in panels; the caller checks that they are
/// constant. An operand may be read only by loads that are multiplied by the common operand, at indices that depend on
/// the inner variables and on outer variables that the common operand does not depend on; all sizes must be constant.
/// `None` for other kernels, and if the packed kernel has no fast path on the target.
pub fn packable(kernel: &Kernel, target: Target) -> Option<Packable> {
    match kernel.class() {
        Class::Contract => {}
        Class::Groups => return groups::packable(kernel, target),
        Class::Map | Class::Normalise | Class::Attention => return None,
    }
    let products = products(kernel)?;
    let last_index = kernel.stores.first()?.memlet.index.last().cloned().unwrap_or(Dim::constant(0));
    let with = |common: usize| {
        let of = |[left, right]: &[usize; 2]| if *left == common { *right } else { *left };
        products.iter().all(|p| p.contains(&common)).then(|| pack(kernel, common, products.iter().map(of)))?
    };
    let [left, right] = products[0];
    let found = [right, left].into_iter().filter_map(with);
    // If both operands qualify, the one that has the columns of the result is packed, because lanes run along these
    // columns.
    let along_lanes = |p: &Packable| {
        let load = &p.kernel.body[load_of(&p.kernel, p.factors[0].packed)].body;
        let Body::Load { memlet, .. } = load else { return false };
        memlet.index[1].symbols().iter().any(|s| last_index.symbols().contains(s))
    };
    let best = found.filter(|p| is_blocked(p, target)).max_by_key(along_lanes)?;
    let packed = lower(&best.kernel).ok()?;
    // A packed kernel without a blocked plan for CPUs is packed for a GPU, so the estimates for CPUs do not apply.
    (packed.words().is_none() || packed.pace().worth() >= worth(kernel)).then_some(best)
}

/// Whether the packed kernel has a fast path on the target.
fn is_blocked(packable: &Packable, target: Target) -> bool {
    lower(&packable.kernel).is_ok_and(|l| l.is_blocked(target))
}

/// Estimated speed of a kernel's code. The estimate is lower if columns are not contiguous in the result, because they
/// are then written one by one.
fn worth(kernel: &Kernel) -> f64 {
    lower(kernel).map_or(0.0, |lowered| lowered.pace().worth())
}

/// Memlet of an unguarded f32 load.
pub fn plain_load(kernel: &Kernel, k: usize) -> Option<&Memlet> {
    load_as(kernel, k, DType::F32)
}

fn load_as(kernel: &Kernel, k: usize, dtype: DType) -> Option<&Memlet> {
    match &kernel.body[k].body {
        Body::Load { memlet, guard: None } if kernel.body[k].dtype == dtype => Some(memlet),
        _ => None,
    }
}

/// Statement of the first load of a container.
fn load_of(kernel: &Kernel, container: usize) -> usize {
    let reads = |s: &Statement| matches!(&s.body, Body::Load { memlet, .. } if memlet.container == container);
    kernel.body.iter().position(reads).unwrap_or(0)
}

/// Whether the load is multiplied as f32, whatever its own type.
fn is_widened(kernel: &Kernel, load: usize) -> bool {
    let widens = |s: &Statement| matches!(s.body, Body::Convert(from, _) if from == load) && s.dtype == DType::F32;
    kernel.body[load].dtype == DType::F32 || kernel.body.iter().any(widens)
}

/// Returns the kernel in which `loads`, the B operands of the accumulators, read from panels.
fn pack(kernel: &Kernel, common: usize, loads: impl Iterator<Item = usize>) -> Option<Packable> {
    let common = kernel.narrow(common);
    let (dtypes, depth): (&[DType], usize) = match kernel.body[common].dtype {
        // Narrow floats are widened one by one.
        DType::F32 | DType::F16 if is_widened(kernel, common) => (&[DType::F32, DType::F16], 1),
        // Bytes are multiplied four at a time.
        DType::U8 | DType::I8 => (&[DType::U8, DType::I8], 4),
        _ => return None,
    };
    let left = |kernel: &Kernel| load_as(kernel, common, kernel.body[common].dtype).cloned();
    let kernel = &sorted_sums(kernel, &left(kernel)?);
    let other = &left(kernel)?;
    let loads: Vec<usize> = loads.map(|load| kernel.narrow(load)).collect();
    let mut packed = kernel.clone();
    let mut factors: Vec<PackedFactor> = vec![];
    for &load in &loads {
        let dtype = kernel.body[load].dtype;
        let memlet = load_as(kernel, load, dtype).filter(|_| dtypes.contains(&dtype))?;
        let reads = |(k, s): (usize, &Statement)| {
            matches!(&s.body, Body::Load { memlet: m, .. } if m.container == memlet.container).then_some(k)
        };
        let mut readers = kernel.body.iter().enumerate().filter_map(reads);
        if !readers.all(|k| loads.contains(&k)) {
            return None;
        }
        let matrix = matrix(kernel, memlet, other, kernel.outer.len()..kernel.n_vars())?;
        let dims = matrix.size.map(Dim::constant).to_vec();
        let encoding = Encoding::Panels { width: WIDTH as usize, depth };
        let container = Container { encoding, ..Container::plain(dtype, dims) };
        let taken = factors.iter().any(|f| f.operand == memlet.container);
        let at = if taken { packed.reads.len() } else { memlet.container };
        match taken {
            true => packed.reads.push(container),
            false => packed.reads[at] = container,
        }
        packed.body[load].body =
            Body::Load { memlet: Memlet { container: at, index: matrix.index.to_vec() }, guard: None };
        factors.push(PackedFactor { operand: memlet.container, packed: at, size: matrix.size, window: matrix.window });
    }
    factors.iter().all(|f| f.size == factors[0].size).then_some(Packable { factors, kernel: packed })
}

/// Orders the reduction variables by the operand's strides, smallest innermost; unknown strides count as large.
fn sorted_sums(kernel: &Kernel, operand: &Memlet) -> Kernel {
    let flat = flat(kernel, operand);
    let (n_outer, n_inner) = (kernel.outer.len(), kernel.inner.len());
    let stride = |i: &usize| flat.linear_in(&Symbol::Variable(n_outer + i)).and_then(|(stride, _)| stride.as_const());
    let mut order: Vec<usize> = (0..n_inner).collect();
    order.sort_by_key(|i| std::cmp::Reverse(stride(i).unwrap_or(i64::MAX)));
    let mut sorted = kernel.clone();
    sorted.inner = order.iter().map(|i| kernel.inner[*i].clone()).collect();
    let place = |v: usize| match v.checked_sub(n_outer).filter(|i| *i < n_inner) {
        Some(i) => order.iter().position(|o| *o == i).map(|at| Kernel::var(n_outer + at)),
        None => None,
    };
    sorted.rename_vars(&place);
    sorted
}

/// Index of the element that is read, over the iteration variables.
fn flat(kernel: &Kernel, memlet: &Memlet) -> Dim {
    let strides = kernel.reads[memlet.container].strides();
    memlet.index.iter().zip(strides).fold(Dim::constant(0), |sum, (index, stride)| sum + index.clone() * stride)
}

/// A load as an element of a matrix of k rows and n columns.
struct Matrix {
    window: Window,
    size: [i64; 2],
    index: [Dim; 2],
}

/// Recognises a matrix. `summed` are the variables of its rows; its columns must not depend on variables of `other`,
/// the common operand.
fn matrix(kernel: &Kernel, memlet: &Memlet, other: &Memlet, summed: Range<usize>) -> Option<Matrix> {
    let container = &kernel.reads[memlet.container];
    if !container.is_plain() {
        return None;
    }
    let mut flat = flat(kernel, memlet);
    let n_outer = kernel.outer.len();
    let (mut rows, mut columns) = (vec![], vec![]);
    for (v, extent) in kernel.extents().enumerate() {
        let (stride, rest) = flat.linear_in(&Symbol::Variable(v))?;
        flat = rest;
        let digit = Digit { var: v, stride: stride.as_const()?, extent: extent.as_const() };
        if digit.extent == Some(1) {
            // A variable of extent 1 is always 0.
            continue;
        }
        if summed.contains(&v) {
            rows.push(digit);
        } else if v >= n_outer && digit.stride != 0 {
            return None;
        } else if digit.stride != 0 {
            // A variable of both operands enumerates a batch of matrices.
            if other.index.iter().any(|d| d.variables().contains(&v)) {
                return None;
            }
            columns.push(digit);
        }
    }
    let (digits, k, k_index) = digits(rows)?;
    let (stride_n, n, n_index) = one_number(columns)?;
    let (&(_, stride_k), digits) = digits.split_first()?;
    let window = Window { offset: flat.as_const()?, stride_k, stride_n, digits: digits.to_vec() };
    Some(Matrix { window, size: [k, n], index: [k_index, n_index] })
}

/// (extent, stride) of each digit; the number of values, and the value.
type Digits = (Vec<(i64, i64)>, i64, Dim);

/// Treats variables, in their order, as the digits of a number; adjacent ones that step like a single one form one
/// digit.
fn digits(vars: Vec<Digit>) -> Option<Digits> {
    let mut digits: Vec<(i64, i64)> = vec![];
    let (mut count, mut number) = (1i64, Dim::constant(0));
    for d in vars {
        let extent = d.extent?;
        number = number * Dim::constant(extent) + Kernel::var(d.var);
        count = count.checked_mul(extent)?;
        match digits.last_mut() {
            Some(last) if d.stride.checked_mul(extent) == Some(last.1) => {
                *last = (last.0.checked_mul(extent)?, d.stride);
            }
            Some(_) | None => digits.push((extent, d.stride)),
        }
    }
    let whole = digits.iter().all(|(extent, stride)| *extent > 0 && *stride > 0);
    (whole && !digits.is_empty()).then_some((digits, count, number))
}

/// Variable that an address depends on.
struct Digit {
    var: usize,
    stride: i64,
    extent: Option<i64>,
}

/// Variables whose strides are those of the digits of one number  =>  (stride of its unit, number of values, the value)
fn one_number(mut digits: Vec<Digit>) -> Option<(i64, i64, Dim)> {
    digits.sort_by_key(|d| d.stride);
    let unit = digits.first()?.stride;
    let mut count = 1i64;
    let mut number = Dim::constant(0);
    for d in digits {
        let extent = d.extent?;
        if unit <= 0 || d.stride != unit.checked_mul(count)? {
            return None;
        }
        number = number + Dim::constant(count) * Kernel::var(d.var);
        count = count.checked_mul(extent)?;
    }
    Some((unit, count, number))
}
