//! b[k, n] constant, read as [%k, %n]  =>  the same constant in panels of 32 columns, and the kernel that reads it so

use super::contract::WIDTH;
use super::linear::lower;
use sardonyx_dialects::flow::kernel::{Body, Class, Container, Kernel, Layout, Memlet};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_runtime::{DType, Dim};

/// How to pack an operand: `dst[p][k][j] = src[offset + k·stride_k + (32p + j)·stride_n]`, zero where 32p + j ≥ n.
#[derive(Clone, Debug)]
pub struct Packable {
    /// Index into the kernel's reads.
    pub operand: usize,
    pub offset: i64,
    pub stride_k: i64,
    pub stride_n: i64,
    pub k: i64,
    pub n: i64,
    pub width: i64,
    /// Reads the packed container, of dims [k, n], in the operand's place.
    pub kernel: Kernel,
}

/// The operand of a contraction that would be read faster in panels, if it were constant; whether it is, the caller
/// knows. It is read by one load, at an index that moves with all inner variables and with outer ones that the other
/// factor does not have; all sizes are constant. `None` also where the packed kernel would get no fast path.
pub fn packable(kernel: &Kernel) -> Option<Packable> {
    if kernel.class() != Class::Contract {
        return None;
    }
    let factors = kernel.body.iter().find_map(|s| match &s.body {
        Body::Apply { f: ScalarFn::Mul, args } => Some([plain_load(kernel, args[0])?, plain_load(kernel, args[1])?]),
        Body::Load { .. }
        | Body::Const(_)
        | Body::Index(_)
        | Body::Apply { .. }
        | Body::Convert(_)
        | Body::Reduce { .. } => None,
    })?;
    let last_index = kernel.stores.first()?.memlet.index.last().cloned().unwrap_or(Dim::constant(0));
    let [left, right] = factors;
    let found = [(left, right), (right, left)].into_iter().filter_map(|(b, a)| pack(kernel, b, a));
    let blocked = |p: &Packable| lower(&p.kernel).is_ok_and(|l| l.def.is_blocked_contraction());
    // Lanes run along the columns of the result; where both factors qualify, that decides.
    let along_lanes = |p: &Packable| {
        let Body::Load { memlet, .. } = &p.kernel.body[load_of(&p.kernel, p.operand)].body else { return false };
        memlet.index[1].symbols().iter().any(|s| last_index.symbols().contains(s))
    };
    found.filter(blocked).max_by_key(along_lanes)
}

/// The index of a load and its memlet, where it is an f32 load without a guard.
fn plain_load(kernel: &Kernel, k: usize) -> Option<(usize, &Memlet)> {
    match &kernel.body[k].body {
        Body::Load { memlet, guard: None } if kernel.body[k].dtype == DType::F32 => Some((k, memlet)),
        _ => None,
    }
}

/// The first load of a container.
fn load_of(kernel: &Kernel, container: usize) -> usize {
    let reads = |s: &sardonyx_dialects::flow::Statement| matches!(&s.body, Body::Load { memlet, .. } if memlet.container == container);
    kernel.body.iter().position(reads).unwrap_or(0)
}

fn pack(kernel: &Kernel, (b, memlet): (usize, &Memlet), (_, other): (usize, &Memlet)) -> Option<Packable> {
    let container = &kernel.reads[memlet.container];
    let n_loads = kernel
        .body
        .iter()
        .filter(|s| matches!(&s.body, Body::Load { memlet: m, .. } if m.container == memlet.container));
    if n_loads.count() != 1 || container.layout != Layout::RowMajor {
        return None;
    }
    let mut flat = Dim::constant(0);
    let mut stride = Dim::constant(1);
    for (index, dim) in memlet.index.iter().zip(&container.dims).rev() {
        flat = flat + index.clone() * stride.clone();
        stride = stride * Dim::constant(dim.as_const()?);
    }
    let n_outer = kernel.outer.len();
    let (mut rows, mut columns) = (vec![], vec![]);
    for (v, extent) in kernel.outer.iter().chain(&kernel.inner).enumerate() {
        let symbol = format!("%{v}");
        let (stride, rest) = flat.linear_in(&symbol)?;
        flat = rest;
        let digit = Digit { var: v, stride: stride.as_const()?, extent: extent.as_const() };
        if digit.extent == Some(1) {
            // Always 0.
            continue;
        }
        if v >= n_outer {
            rows.push(digit);
        } else if digit.stride != 0 {
            // A variable of both factors is a batch: its matrices differ.
            if other.index.iter().any(|d| d.symbols().iter().any(|s| **s == *symbol)) {
                return None;
            }
            columns.push(digit);
        }
    }
    let (stride_k, k, k_index) = one_number(rows)?;
    let (stride_n, n, n_index) = one_number(columns)?;
    let offset = flat.as_const()?;
    let mut packed = kernel.clone();
    let dims = vec![Dim::constant(k), Dim::constant(n)];
    let layout = Layout::Panels { width: WIDTH as usize };
    packed.reads[memlet.container] = Container { dtype: DType::F32, dims, layout };
    let place = Memlet { container: memlet.container, index: vec![k_index, n_index] };
    packed.body[b].body = Body::Load { memlet: place, guard: None };
    Some(Packable { operand: memlet.container, offset, stride_k, stride_n, k, n, width: WIDTH, kernel: packed })
}

/// A variable that an address moves with.
struct Digit {
    var: usize,
    stride: i64,
    extent: Option<i64>,
}

/// Variables whose strides are those of the digits of one number  =>  (stride of 1, how many numbers, the number)
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
