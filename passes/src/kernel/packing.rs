//! b[k, n] constant, read as [%k, %n]  =>  the same constant in panels of 32 columns, and the kernel that reads it so

use super::contract::WIDTH;
use sardonyx_dialects::flow::kernel::{Body, Class, Container, Kernel, Layout};
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
/// knows. At most one operand qualifies: one that moves with one inner and one outer variable of constant extent,
/// and is read nowhere else.
pub fn packable(kernel: &Kernel) -> Option<Packable> {
    if kernel.class() != Class::Contract || kernel.inner.len() != 1 {
        return None;
    }
    let factors = kernel.body.iter().find_map(|s| match &s.body {
        Body::Apply { f: ScalarFn::Mul, args } if args.iter().all(|a| is_load(kernel, *a)) => Some(args.clone()),
        _ => None,
    })?;
    let store = kernel.stores.first()?;
    let mut found: Vec<(bool, Packable)> = vec![];
    for (&b, &a) in factors.iter().zip(factors.iter().rev()) {
        if let Some((n, packed)) = pack(kernel, b, a) {
            // The columns of the result are what lanes run along.
            let last = store.memlet.index.last().is_some_and(|d| d.symbols().iter().any(|s| **s == *format!("%{n}")));
            found.push((last, packed));
        }
    }
    found.into_iter().max_by_key(|(last, _)| *last).map(|(_, p)| p)
}

fn is_load(kernel: &Kernel, k: usize) -> bool {
    matches!(
        kernel.body[k],
        sardonyx_dialects::flow::Statement { body: Body::Load { guard: None, .. }, dtype: DType::F32 }
    )
}

/// Operand of load `b` packed, where it is a matrix over one outer variable that the other load does not have.
fn pack(kernel: &Kernel, b: usize, a: usize) -> Option<(usize, Packable)> {
    let (Body::Load { memlet, .. }, Body::Load { memlet: other, .. }) = (&kernel.body[b].body, &kernel.body[a].body)
    else {
        return None;
    };
    let reads_it = |s: &sardonyx_dialects::flow::Statement| matches!(&s.body, Body::Load { memlet: m, .. } if m.container == memlet.container);
    if kernel.body.iter().filter(|s| reads_it(s)).count() != 1 {
        return None;
    }
    let container = &kernel.reads[memlet.container];
    if container.layout != Layout::RowMajor {
        return None;
    }
    let mut flat = Dim::constant(0);
    let mut stride = Dim::constant(1);
    for (index, dim) in memlet.index.iter().zip(&container.dims).rev() {
        flat = flat + index.clone() * stride.clone();
        stride = stride * Dim::constant(dim.as_const()?);
    }
    let k_var = kernel.outer.len();
    let (stride_k, rest) = flat.linear_in(&format!("%{k_var}"))?;
    let symbols = rest.symbols();
    let [n_symbol] = symbols.iter().collect::<Vec<_>>()[..] else { return None };
    let n_var: usize = n_symbol.strip_prefix('%')?.parse().ok()?;
    let (stride_n, offset) = rest.linear_in(n_symbol)?;
    if other.index.iter().any(|d| d.symbols().contains(n_symbol)) {
        return None;
    }
    let (k, n) = (kernel.inner[0].as_const()?, kernel.outer.get(n_var)?.as_const()?);
    let mut packed = kernel.clone();
    packed.reads[memlet.container] = Container {
        dtype: DType::F32,
        dims: vec![Dim::constant(k), Dim::constant(n)],
        layout: Layout::Panels { width: WIDTH as usize },
    };
    if let Body::Load { memlet, .. } = &mut packed.body[b].body {
        memlet.index = vec![Kernel::var(k_var), Kernel::var(n_var)];
    }
    Some((
        n_var,
        Packable {
            operand: memlet.container,
            offset: offset.as_const()?,
            stride_k: stride_k.as_const()?,
            stride_n: stride_n.as_const()?,
            k,
            n,
            width: WIDTH,
            kernel: packed,
        },
    ))
}
