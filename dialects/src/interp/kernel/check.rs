//! kernel  =>  E0901 if a reference, rank, constant, type or level in it is invalid, E0107 if a type is unsupported

use super::super::numbers::{check_dtype, int_range};
use crate::flow::kernel::{Body, Kernel, Level, Memlet, Statement, Store};
use crate::scalar::ReduceFn;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Error, Result};

/// Checks what `Kernel::levels` and the evaluation assume: references to statements, containers and variables, ranks,
/// constants, types, and the levels of stored values. The evaluation itself checks operands and the values of indices.
pub fn check_form(kernel: &Kernel) -> Result<()> {
    for (k, statement) in kernel.body.iter().enumerate() {
        check_statement(kernel, k, statement).map_err(|e| e.node(format!("statement ${k}")))?;
    }
    let n = kernel.body.len();
    for (i, store) in kernel.stores.iter().enumerate() {
        check_store(kernel, store, n).map_err(|e| e.node(format!("store {i}")))?;
    }
    let levels = kernel.levels();
    for (i, store) in kernel.stores.iter().enumerate() {
        let place = store.memlet.index.iter().map(|d| kernel.level_of(d, &levels)).max().unwrap_or(Level::Row);
        if place > levels[store.value] || levels[store.value] == Level::Deep {
            return Err(Error::defect("a row value is stored at an inner index").node(format!("store {i}")));
        }
    }
    Ok(())
}

fn check_statement(kernel: &Kernel, k: usize, Statement { body, dtype }: &Statement) -> Result<()> {
    check_dtype(*dtype)?;
    let dtype = *dtype;
    match body {
        Body::Load { memlet, guard } => {
            let container = kernel.reads.get(memlet.container);
            let container = container.ok_or_else(|| Error::defect("a load from an operand that is not there"))?;
            check_memlet(kernel, memlet, container.dims.len(), k)?;
            same(container.dtype, dtype)?;
            guard.map_or(Ok(()), |g| same(earlier(kernel, g, k)?, DType::Bool))
        }
        Body::Const(c) => match int_range(dtype) {
            None => Ok(()),
            Some((lo, hi)) if c.fract() == 0.0 && (lo..=hi).contains(&(*c as i128)) => Ok(()),
            Some(_) => Err(Error::defect(format!("{c} is no {dtype}"))),
        },
        Body::Index(d) => check_symbols(kernel, d, k).and_then(|()| same(dtype, DType::I64)),
        Body::Apply { f, args } => {
            let types = args.iter().map(|&a| earlier(kernel, a, k)).collect::<Result<Vec<_>>>()?;
            same(f.result(&types).map_err(Error::defect)?, dtype)
        }
        Body::Convert(a, _) => earlier(kernel, *a, k).map(drop),
        Body::Reduce { f, arg } => check_reduce(*f, earlier(kernel, *arg, k)?, dtype),
    }
}

fn check_reduce(f: ReduceFn, arg: DType, dtype: DType) -> Result<()> {
    same(f.scalar().result(&[arg, arg]).map_err(Error::defect)?, dtype)
}

fn check_store(kernel: &Kernel, store: &Store, n: usize) -> Result<()> {
    let container = kernel.writes.get(store.memlet.container);
    let container = container.ok_or_else(|| Error::defect("a store to a result that is not there"))?;
    check_memlet(kernel, &store.memlet, container.dims.len(), n)?;
    same(earlier(kernel, store.value, n)?, container.dtype)
}

fn check_memlet(kernel: &Kernel, memlet: &Memlet, rank: usize, k: usize) -> Result<()> {
    if memlet.index.len() != rank {
        return Err(Error::defect(format!("{} indices into a container of rank {rank}", memlet.index.len())));
    }
    memlet.index.iter().try_for_each(|d| check_symbols(kernel, d, k))
}

/// Checks the symbols of an index expression of statement `k`: each iteration variable (`%i`) must exist, and each
/// statement (`$v`) must precede statement `k` and be an integer or a bool.
fn check_symbols(kernel: &Kernel, dim: &Dim, k: usize) -> Result<()> {
    for symbol in dim.symbols() {
        let ok = match symbol {
            Symbol::Variable(i) => i < kernel.n_vars(),
            Symbol::Statement(v) => int_range(earlier(kernel, v, k)?).is_some(),
            _ => true,
        };
        if !ok {
            return Err(Error::defect(format!("`{symbol}` is no index here")));
        }
    }
    Ok(())
}

/// Returns the type of a statement, which must precede statement `k`. Errors: E0901 if it does not.
fn earlier(kernel: &Kernel, statement: usize, k: usize) -> Result<DType> {
    if statement >= k {
        return Err(Error::defect(format!("${statement} is used before it has a value")));
    }
    Ok(kernel.body[statement].dtype)
}

fn same(is: DType, wanted: DType) -> Result<()> {
    if is == wanted { Ok(()) } else { Err(Error::defect(format!("the type is {is} where {wanted} is needed"))) }
}
