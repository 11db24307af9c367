//! g(f(q)) of a byte q  =>  q if g(f(q)) is q for every byte, else table[q]
//!
//! Quantised models round values to bytes between nodes: an activation function of bytes becomes a chain of
//! conversions, scalings, roundings and clampings around the function. A value that depends on one byte alone has at
//! most 256 values, which the interpreter computes here. The results are therefore exact.

use crate::rewrite::Rewrites;
use crate::splice::{renumber_stores, tidy};
use crate::steps::{kernel, sort_steps};
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::flow::kernel::{Level, Memlet, Store, rename, statements_in};
use sardonyx_dialects::flow::{Body, Container, FlowOp, Kernel, Program, Statement, Step, TensorValue};
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::sync::Arc;

/// Number of values of a byte, and so of elements of a table.
const VALUES: i64 = 256;

/// Estimated cost of a lookup, in additions.
const LOOKUP: i64 = 16;

/// Minimum ratio of the cost of the replaced statements to the cost of the lookups.
const GAIN: i64 = 2;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| {
        let find = |program: &Program, step: usize| {
            Ok(kernel(&program.steps[step]).and_then(tabulated).map(|found| ("table".into(), found)))
        };
        rewrites.each_step(program, find, |program, at, Tabulated { kernel, tables }| {
            let mut args = program.steps[at].args.clone();
            for table in tables {
                let id = program.container(table_container(table.dtype()));
                let origins = program.steps[at].origins.clone();
                let op = FlowOp::Const(TensorValue(table));
                program.steps.push(Step { op, args: vec![], results: vec![id], origins });
                args.push(id);
            }
            let (kernel, args) = tidy(kernel, args);
            (program.steps[at].op, program.steps[at].args) = (FlowOp::Kernel(Arc::new(kernel)), args);
        })?;
        sort_steps(program);
        Ok(())
    })
}

/// A kernel with lookups.
struct Tabulated {
    kernel: Kernel,
    /// The tables, which are read after the operands that the kernel had before.
    tables: Vec<Tensor>,
}

/// The replacement of a statement.
enum Found {
    /// The byte itself.
    Byte(usize),
    /// The element of a table at the byte.
    Lookup { byte: usize, table: Tensor },
}

/// Returns the kernel with functions of bytes looked up, or `None` if nothing is gained. Dead statements may remain.
fn tabulated(k: &Kernel) -> Option<Tabulated> {
    let bytes = sources(k);
    let is_used = used_outside(k, &bytes);
    let mut found: Vec<Option<Found>> = (0..k.body.len()).map(|_| None).collect();
    for byte in 0..k.body.len() {
        let ends: Vec<usize> = (byte + 1..k.body.len()).filter(|at| bytes[*at] == Some(byte) && is_used[*at]).collect();
        if bytes[byte] != Some(byte) || ends.is_empty() {
            continue;
        }
        let parts = parts(k, byte, &ends);
        let Some(values) = values(k, byte, &parts, &ends) else { continue };
        let is_same = |table: &Tensor| k.body[byte].dtype == table.dtype() && *table == all_bytes(table.dtype());
        let n_lookups = values.iter().filter(|table| !is_same(table)).count() as i64;
        if cost(k, &parts) >= (LOOKUP * n_lookups * GAIN).max(1) {
            for (at, table) in ends.into_iter().zip(values) {
                found[at] = Some(if is_same(&table) { Found::Byte(byte) } else { Found::Lookup { byte, table } });
            }
        }
    }
    found.iter().flatten().next()?;
    Some(replaced(k, found))
}

/// Returns, for each statement, the earliest statement with a byte that determines its value; a byte that no other byte
/// determines is its own source. Only bytes that are computed once per outer point are sources, so that operands of
/// sums stay as they are.
fn sources(k: &Kernel) -> Vec<Option<usize>> {
    let levels = k.levels();
    let mut sources: Vec<Option<usize>> = vec![];
    for (at, Statement { body, dtype }) in k.body.iter().enumerate() {
        let is_function = matches!(body, Body::Apply { .. } | Body::Convert(..));
        let mut from = body.operands().into_iter().filter(|arg| !matches!(k.body[*arg].body, Body::Const(_)));
        let first = from.next().and_then(|arg| sources[arg]);
        let common = first.filter(|_| is_function).filter(|first| from.all(|arg| sources[arg] == Some(*first)));
        let is_byte = matches!(dtype, DType::U8 | DType::I8) && !matches!(body, Body::Const(_));
        let own = (is_byte && levels[at] == Level::Row).then_some(at);
        sources.push(common.or(own));
    }
    sources
}

/// Returns, for each statement, whether its value is stored, is an index, or is an operand of a statement with another
/// source.
fn used_outside(k: &Kernel, bytes: &[Option<usize>]) -> Vec<bool> {
    let mut is_used = vec![false; k.body.len()];
    for Store { memlet, value } in &k.stores {
        is_used[*value] = true;
        statements_in(&memlet.index).into_iter().for_each(|at| is_used[at] = true);
    }
    for (at, statement) in k.body.iter().enumerate() {
        for arg in statement.body.operands().into_iter().filter(|arg| bytes[at] == Some(at) || bytes[at] != bytes[*arg])
        {
            is_used[arg] = true;
        }
    }
    is_used
}

/// All bytes of a type, in the order of the table.
fn all_bytes(dtype: DType) -> Tensor {
    match dtype {
        DType::I8 => Tensor::from_vec(vec![VALUES as usize], (i8::MIN..=i8::MAX).collect::<Vec<i8>>()),
        _ => Tensor::from_vec(vec![VALUES as usize], (u8::MIN..=u8::MAX).collect::<Vec<u8>>()),
    }
}

fn table_container(dtype: DType) -> Container {
    Container::plain(dtype, vec![Dim::constant(VALUES)])
}

/// Returns the statements that compute these functions of a byte, without the byte itself.
fn parts(k: &Kernel, byte: usize, ends: &[usize]) -> Vec<usize> {
    let mut is_part = vec![false; k.body.len()];
    ends.iter().for_each(|end| is_part[*end] = true);
    for at in (byte + 1..k.body.len()).rev() {
        if is_part[at] {
            k.body[at].body.operands().into_iter().for_each(|arg| is_part[arg] = true);
        }
    }
    (0..k.body.len()).filter(|at| is_part[*at] && *at != byte).collect()
}

/// Returns one table for each of these functions of a byte; `None` if the interpreter cannot compute them.
fn values(k: &Kernel, byte: usize, parts: &[usize], ends: &[usize]) -> Option<Vec<Tensor>> {
    let load = Body::Load { memlet: Memlet { container: 0, index: vec![Kernel::var(0)] }, guard: None };
    let mut body = vec![Statement { body: load, dtype: k.body[byte].dtype }];
    let mut map = vec![0; k.body.len()];
    for &at in parts {
        let Statement { body: old, dtype } = &k.body[at];
        map[at] = body.len();
        let new = old.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k]));
        body.push(Statement { body: new, dtype: *dtype });
    }
    let stored = |(container, end): (usize, &usize)| Store {
        memlet: Memlet { container, index: vec![Kernel::var(0)] },
        value: map[*end],
    };
    let function = Kernel {
        outer: vec![Dim::constant(VALUES)],
        inner: vec![],
        deep: vec![],
        reads: vec![table_container(k.body[byte].dtype)],
        writes: ends.iter().map(|end| table_container(k.body[*end].dtype)).collect(),
        body,
        stores: ends.iter().enumerate().map(stored).collect(),
    };
    interp::kernel::run_kernel(&function, &|_| None, &[all_bytes(k.body[byte].dtype)]).ok()
}

/// Estimated cost of these statements, in additions.
fn cost(k: &Kernel, parts: &[usize]) -> i64 {
    let one = |at: &usize| match &k.body[*at].body {
        Body::Apply { f, .. } => match f {
            ScalarFn::Pow => 40,
            ScalarFn::Erf | ScalarFn::Tanh | ScalarFn::Sin | ScalarFn::Cos | ScalarFn::Atan => 25,
            ScalarFn::Exp | ScalarFn::Log => 15,
            ScalarFn::Div | ScalarFn::Rem | ScalarFn::Sqrt => 4,
            _ => 1,
        },
        Body::Convert(..) => 1,
        Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Reduce { .. } => 0,
    };
    parts.iter().map(one).sum()
}

fn replaced(k: &Kernel, mut found: Vec<Option<Found>>) -> Tabulated {
    let (mut map, mut body, mut tables): (Vec<usize>, Vec<Statement>, Vec<Tensor>) = (vec![], vec![], vec![]);
    let mut reads = k.reads.clone();
    for (at, statement) in k.body.iter().enumerate() {
        match found[at].take() {
            Some(Found::Byte(byte)) => map.push(map[byte]),
            Some(Found::Lookup { byte, table }) => {
                body.push(Statement { body: Body::Convert(map[byte], Conversion::Value), dtype: DType::I64 });
                let least = if k.body[byte].dtype == DType::I8 { i64::from(i8::MIN) } else { 0 };
                let index = vec![Kernel::value(body.len() - 1) - Dim::constant(least)];
                let load = Body::Load { memlet: Memlet { container: reads.len(), index }, guard: None };
                reads.push(table_container(table.dtype()));
                tables.push(table);
                body.push(Statement { body: load, dtype: statement.dtype });
                map.push(body.len() - 1);
            }
            None => {
                let new = statement.body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k]));
                body.push(Statement { body: new, dtype: statement.dtype });
                map.push(body.len() - 1);
            }
        }
    }
    let mut kernel = Kernel { body, reads, ..k.clone() };
    renumber_stores(&mut kernel, &map);
    Tabulated { kernel, tables }
}
