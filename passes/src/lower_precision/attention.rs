//! softmax(q · k) · v  =>  the same with bf16(q), bf16(k), bf16(v) and bf16 exponentials, accumulated in f32
//!
//! On CPUs the containers between kernels do not change: attention rounds its operands after loading them, once for all
//! rows that use them. On GPUs it reads bf16 copies of operands that it would only load and round. Softmax stays f32,
//! including its divisor, which is the sum of the exponentials before they are rounded.

use crate::splice::renumber_stores;
use sardonyx_base::DType;
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::kernel::{Container, Layout, Memlet};
use sardonyx_dialects::flow::{Body, Kernel, Statement};
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_kernels::ptx::attention::Flash;
use sardonyx_kernels::ptx::gemm::Factors;
use sardonyx_kernels::{KernelDef, Words, lower};
use std::collections::BTreeMap;

/// Minimum number of query rows that share keys and values; with fewer rows, rounding the keys and values costs more
/// than it saves.
const ROWS_MIN: i64 = 8;

/// Returns the kernel with rounded operands; the error is the reason why the kernel is not changed.
pub fn narrowed(k: &Kernel) -> Result<Kernel, &'static str> {
    let lowered = lower(k).map_err(|_| "it has no code")?;
    let rows = lowered.attention_rows().ok_or("its parts are not those of attention")?;
    if rows.as_const().is_some_and(|n| n < ROWS_MIN) {
        return Err("too few rows share what would be rounded");
    }
    let new = with_factors(k, &lowered.def).ok_or("its factors are not found")?;
    let narrow = lower(&new).is_ok_and(|l| l.words() == Some(Words::Pairs));
    if narrow { Ok(new) } else { Err("its factors are not read where they lie") }
}

/// Returns the kernel for GPUs, and the operands of which it reads rounded copies, because a GPU can copy tiles of bf16
/// to shared memory unchanged. The copies are the kernel's last operands, in the same order. Factors that the kernel
/// computes from loaded values are rounded in the kernel. The error is the reason why the kernel is not changed.
pub fn narrowed_for_gpu(k: &Kernel) -> Result<(Kernel, Vec<usize>), &'static str> {
    let def = lower(k).map_err(|_| "it has no code")?.def;
    let flash = Flash::from_def(&def).ok_or("its parts are not those of attention")?;
    let rows = flash.roles.i.map_or(Some(1), |i| def.extent(i).as_const());
    if rows.is_some_and(|n| n < ROWS_MIN) {
        return Err("too few rows share what would be rounded");
    }
    let mut new = with_factors(k, &def).ok_or("its factors are not found")?;
    let mut rounded: Vec<usize> = vec![];
    for at in 0..new.body.len() {
        let Body::Convert(from, Conversion::Value) = new.body[at].body else { continue };
        let Body::Load { memlet, guard: None } = &new.body[from].body else { continue };
        if new.body[at].dtype != DType::BF16 || new.body[from].dtype != DType::F32 {
            continue;
        }
        let operand = memlet.container;
        if matches!(k.reads[operand].layout, Layout::Capacity { .. }) {
            return Err("its keys and values grow in place");
        }
        let place = rounded.iter().position(|known| *known == operand).unwrap_or_else(|| {
            rounded.push(operand);
            new.reads.push(Container { dtype: DType::BF16, ..k.reads[operand].clone() });
            rounded.len() - 1
        });
        let memlet = Memlet { container: k.reads.len() + place, index: memlet.index.clone() };
        new.body[at].body = Body::Load { memlet, guard: None };
    }
    let is_narrow =
        |def: &KernelDef| Flash::from_def(def).is_some_and(|flash| flash.factors(def) == [Factors::BF16; 2]);
    match lower(&new).is_ok_and(|lowered| is_narrow(&lowered.def)) {
        true => Ok((new, rounded)),
        false => Err("its factors are not read where they lie"),
    }
}

/// Rounds both operands of the score, and the value and the weight of the weighted sum. If the weight is a quotient,
/// its dividend is rounded instead.
fn with_factors(k: &Kernel, def: &KernelDef) -> Option<Kernel> {
    let product = |f: ReduceFn, mut arg: usize| {
        // A select replaces the product by 0 for keys that do not exist.
        while let Body::Apply { f: ScalarFn::Select, args } = &k.body[arg].body {
            arg = args[1];
        }
        match &k.body[arg].body {
            Body::Apply { f: ScalarFn::Mul, args } if f == ReduceFn::Add => Some((arg, [args[0], args[1]])),
            _ => None,
        }
    };
    let found: Vec<(usize, (usize, [usize; 2]))> = k
        .body
        .iter()
        .enumerate()
        .filter_map(|(at, s)| match &s.body {
            Body::Reduce { f, arg } => Some((at, product(*f, *arg)?)),
            _ => None,
        })
        .collect();
    let &[(score, (scored, factors)), (_, (mixed, [a, b]))] = &found[..] else { return None };
    let (weight, value) = match (is_made_of(def, a, score), is_made_of(def, b, score)) {
        (true, false) => (a, b),
        (false, true) => (b, a),
        (true, true) | (false, false) => return None,
    };
    // Maps a statement to those of its arguments that it reads in rounded form.
    let mut rounded: BTreeMap<usize, Vec<usize>> = BTreeMap::from([(scored, factors.to_vec())]);
    match &k.body[weight].body {
        Body::Apply { f: ScalarFn::Div, args } => {
            rounded.insert(mixed, vec![value]);
            rounded.insert(weight, vec![args[0]]);
        }
        _ => {
            rounded.insert(mixed, vec![value, weight]);
        }
    }
    let (mut body, mut map): (Vec<Statement>, Vec<usize>) = (vec![], vec![]);
    let mut narrow: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, statement) in k.body.iter().enumerate() {
        let own = rounded.get(&at).map_or(&[][..], Vec::as_slice);
        let place = |arg: usize| if own.contains(&arg) { narrow[&arg] } else { map[arg] };
        let moved = statement.body.renumbered(&place, &|d| rename(d, &|_| None, &|k| map[k]));
        body.push(Statement { body: moved, dtype: statement.dtype });
        map.push(body.len() - 1);
        if rounded.values().flatten().any(|arg| *arg == at) {
            for dtype in [DType::BF16, DType::F32] {
                body.push(Statement { body: Body::Convert(body.len() - 1, Conversion::Value), dtype });
            }
            narrow.insert(at, body.len() - 1);
        }
    }
    let mut new = Kernel { body, ..k.clone() };
    renumber_stores(&mut new, &map);
    Some(new)
}

/// Returns whether statement `statement` is, or is computed from, statement `of`.
fn is_made_of(def: &KernelDef, statement: usize, of: usize) -> bool {
    let (mut open, mut seen) = (vec![statement], vec![false; def.body.len()]);
    while let Some(k) = open.pop() {
        if !std::mem::replace(&mut seen[k], true) {
            open.extend(def.operands(k));
        }
    }
    seen[of]
}
