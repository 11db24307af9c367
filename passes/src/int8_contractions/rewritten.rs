//! a matched contraction  =>  the program with a contraction of bytes in its place

use super::bytes::{constant, is_of_row};
use super::{Factor, Padding, Right, Site, Sums, Written, made_of};
use crate::draft::Draft;
use crate::splice::{Splice, renumber_stores, tidy};
use crate::steps::kernel;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{
    Body, Container, FlowOp, Kernel, Memlet, Program, Source, Statement, Step, Store, Transform,
};
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_kernels::device_spec::{BYTE_SHIFT, ByteProducts};
use sardonyx_kernels::products;
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn apply(program: &mut Program, at: usize, site: &Site, written: &mut Written) {
    let bytes = bytes_of(program, at, &site.left, written);
    let taken = written.taken;
    let is_off = |r: &Right| zero_of(program, &r.factor, |byte| taken.right(byte)) != Zero::Known(0.0);
    let row_sums = site.rights.iter().any(is_off).then(|| row_sums(program, at, site, bytes, written)).flatten();
    let mut parameters = vec![];
    for right in &site.rights {
        let sums = right.sums.as_ref().map(|sums| column_sums(program, &right.source, sums));
        parameters.push((parameter(program, right, (taken, site.padding)), sums));
    }
    let rows = write_rows(program, &site.left, written);
    let bytes = site.padding.map_or(bytes, |padding| padded(program, at, (bytes, padding), written));
    let found = contraction(program, (at, taken), site, (bytes, &rows), &parameters, row_sums);
    let Some((kernel, args)) = found else { return };
    program.steps[at].op = FlowOp::Kernel(Arc::new(kernel));
    program.steps[at].args = args;
}

/// Returns the container of operand A's bytes; if no container holds these bytes yet, A's producer is made to store
/// them.
pub fn bytes_of(program: &mut Program, at: usize, left: &Factor, written: &mut Written) -> Id {
    if let Some(id) = as_they_are(program, at, left, written.taken).or_else(|| written.bytes.get(&left.id).copied()) {
        return id;
    }
    let id = write_bytes(program, left, written.taken);
    written.bytes.insert(left.id, id);
    id
}

/// If operand A only widens the elements of a container of bytes, returns that container, provided that it is
/// contiguous along K, or that a kernel writes it, as its layout can then still be chosen.
fn as_they_are(program: &Program, at: usize, left: &Factor, taken: ByteProducts) -> Option<Id> {
    let (id, index) = left.read(program)?;
    let k = kernel(&program.steps[at])?;
    let Body::Load { memlet, .. } = &k.body[left.load].body else { return None };
    let along = index.last().and_then(Dim::as_variable).is_some_and(|v| v >= k.outer.len());
    let made = program.producers()[id].is_some_and(|s| kernel(&program.steps[s]).is_some());
    let dtype = program.containers[id].dtype;
    (taken.left(dtype).0 == dtype && index == memlet.index && (along || made)).then_some(id)
}

/// The zero point that is subtracted from bytes when they are multiplied.
#[derive(Clone, Copy, PartialEq)]
pub enum Zero {
    Known(f64),
    /// The value of a statement of the operand's producer, plus a number.
    Computed(usize, f64),
}

/// Returns the zero point of an operand in the type in which its bytes are multiplied; `taken` returns this type for
/// the type of the stored bytes, and the number that conversion to it adds.
pub fn zero_of(program: &Program, factor: &Factor, taken: impl Fn(DType) -> (DType, f64)) -> Zero {
    let Some(maker) = kernel(&program.steps[factor.maker]) else { return Zero::Known(0.0) };
    let (_, shift) = taken(maker.body[factor.bytes.byte].dtype);
    let known = factor.bytes.zero.map_or(Some(0.0), |z| constant(maker, z));
    match (known, factor.bytes.zero) {
        (Some(zero), _) => Zero::Known(zero + shift),
        (None, Some(zero)) => Zero::Computed(zero, shift),
        (None, None) => Zero::Known(shift),
    }
}

/// Makes the producer store the bytes as an additional result, in the type that the target multiplies.
fn write_bytes(program: &mut Program, left: &Factor, taken: ByteProducts) -> Id {
    let plain = program.containers[left.id].clone();
    let FlowOp::Kernel(maker) = &mut program.steps[left.maker].op else { return left.id };
    let maker = Arc::make_mut(maker);
    let (dtype, shift) = taken.left(maker.body[left.bytes.byte].dtype);
    let container = Container { dtype, ..plain };
    // Padding with 0 becomes padding with the zero point.
    let zero = left.bytes.zero.filter(|z| constant(maker, *z).is_none());
    let known = left.bytes.zero.and_then(|z| constant(maker, z)).unwrap_or(0.0);
    let body = &mut maker.body;
    let push = |body: &mut Vec<Statement>, value: Body, dtype: DType| {
        body.push(Statement { body: value, dtype });
        body.len() - 1
    };
    let shifted = |body: &mut Vec<Statement>, mut wide: usize| {
        if shift != 0.0 {
            let added = push(body, Body::Const(shift), DType::I32);
            wide = push(body, Body::Apply { f: ScalarFn::Add, args: vec![wide, added] }, DType::I32);
        }
        push(body, Body::Convert(wide, Conversion::Value), dtype)
    };
    let mut byte = left.bytes.byte;
    if shift != 0.0 {
        let wide = push(body, Body::Convert(byte, Conversion::Value), DType::I32);
        byte = shifted(body, wide);
    }
    if let Some(guard) = left.bytes.guard {
        let zero = match zero {
            None => push(body, Body::Const(known + shift), dtype),
            Some(zero) => shifted(body, zero),
        };
        byte = push(body, Body::Apply { f: ScalarFn::Select, args: vec![guard, byte, zero] }, dtype);
    }
    let index = maker.stores[left.store].memlet.index.clone();
    write_beside(program, left.maker, container, index, byte)
}

/// Makes a kernel store one of its values as an additional result.
fn write_beside(program: &mut Program, maker: usize, container: Container, index: Vec<Dim>, value: usize) -> Id {
    let id = program.container(container.clone());
    let step = &mut program.steps[maker];
    if let FlowOp::Kernel(kernel) = &mut step.op {
        let kernel = Arc::make_mut(kernel);
        kernel.stores.push(Store { memlet: Memlet { container: kernel.writes.len(), index }, value });
        kernel.writes.push(container);
        step.results.push(id);
    }
    id
}

/// Containers of values of an operand's producer, by statement: those that have one value for each row.
pub type Rows = BTreeMap<usize, Id>;

/// Makes the producer store the scale and the zero point of each row as additional results, as far as the contraction
/// cannot compute them itself.
pub fn write_rows(program: &mut Program, left: &Factor, written: &mut Written) -> Rows {
    let mut rows = Rows::new();
    for value in [left.bytes.scale, left.bytes.zero].into_iter().flatten() {
        let Some(made) = kernel(&program.steps[left.maker]).filter(|made| is_of_row(made, value)) else { continue };
        let (outer, dtype) = (made.outer.clone(), made.body[value].dtype);
        let id = written.rows.get(&(left.id, value)).copied().unwrap_or_else(|| {
            let index = (0..outer.len()).map(Kernel::var).collect();
            write_beside(program, left.maker, Container::plain(dtype, outer), index, value)
        });
        written.rows.insert((left.id, value), id);
        rows.insert(value, id);
    }
    rows
}

/// Returns a value of an operand's producer for the current row: loaded from the container that the producer stores,
/// or recomputed.
pub fn row_value(draft: &mut Draft, program: &Program, factor: &Factor, value: usize, rows: &Rows) -> Option<usize> {
    let Some(stored) = rows.get(&value) else { return copied(draft, program, factor, value) };
    let index = factor.vars[..program.containers[*stored].dims.len()].to_vec();
    Some(draft.load(program, *stored, index, None))
}

/// Appends statements of an operand's producer, at the point at which the operand is read.
fn copied(draft: &mut Draft, program: &Program, factor: &Factor, wanted: usize) -> Option<usize> {
    spliced(draft, program, factor.maker, &factor.vars, wanted)
}

/// Appends statements of a kernel with `vars` in place of its variables.
pub fn spliced(draft: &mut Draft, program: &Program, maker: usize, vars: &[Dim], wanted: usize) -> Option<usize> {
    let step = &program.steps[maker];
    let (maker, first) = (kernel(step)?, draft.reads.len());
    draft.reads.extend(maker.reads.clone());
    draft.args.extend(&step.args);
    let mut splice = Splice::new(std::mem::take(&mut draft.body), maker);
    splice.run(vars, &mut |splice, memlet, guard, dtype| {
        let memlet = Memlet { container: first + memlet.container, ..memlet };
        splice.push(Body::Load { memlet, guard }, dtype)
    });
    let found = splice.statement(wanted);
    draft.body = splice.body;
    Some(found)
}

/// Builds the kernel that multiplies `bytes` by the given parameters; each parameter is passed with its column sums.
fn contraction(
    program: &Program,
    (at, taken): (usize, ByteProducts),
    site: &Site,
    (bytes, rows_of): (Id, &Rows),
    parameters: &[(Id, Option<Id>)],
    row_sums: Option<(Id, Vec<Dim>)>,
) -> Option<(Kernel, Vec<Id>)> {
    let old = kernel(&program.steps[at])?;
    let mut draft = Draft { reads: old.reads.clone(), args: program.steps[at].args.clone(), body: vec![] };
    let scale = |draft: &mut Draft, factor: &Factor| copied(draft, program, factor, factor.bytes.scale?);
    let left = &site.left;
    let left_scale = left.bytes.scale.and_then(|scale| row_value(&mut draft, program, left, scale, rows_of));
    let zero = subtracted(&mut draft, program, left, zero_of(program, left, |byte| taken.left(byte)), rows_of);
    // Σ q - n · z
    let rows = row_sums.map(|(id, index)| {
        let sum = draft.load(program, id, index, None);
        let Some(zero) = zero else { return sum };
        let count = draft.push(Body::Const(site.count as f64), DType::I32);
        let more = draft.apply(ScalarFn::Mul, &[zero, count], DType::I32);
        draft.apply(ScalarFn::Sub, &[sum, more], DType::I32)
    });
    let products = products(old)?;
    let (mut map, mut sum) = (vec![], 0);
    for (i, statement) in old.body.iter().enumerate() {
        let right = site.rights.iter().position(|r| r.factor.load == i);
        let value = match (&statement.body, right) {
            (Body::Load { memlet, .. }, None) if i == site.left.load => {
                let byte = draft.load(program, bytes, memlet.index.clone(), None);
                draft.push(Body::Convert(byte, Conversion::Value), DType::I32)
            }
            (Body::Load { .. }, Some(right)) => {
                let byte = draft.load(program, parameters[right].0, site.rights[right].index.clone(), None);
                draft.push(Body::Convert(byte, Conversion::Value), DType::I32)
            }
            (Body::Reduce { .. }, _) => {
                let (right, (param, columns)) = (&site.rights[sum], parameters[sum]);
                let mut value = draft.push(statement.body.renumbered(&|k| map[k], &|d| d.clone()), DType::I32);
                if let (Some(zero), Some(columns), Some(sums)) = (zero, columns, &right.sums) {
                    let mut columns = draft.load(program, columns, vec![sums.index.clone()], None);
                    if program.containers[param].dtype == DType::U8 {
                        // The artifact stores the sums of signed bytes.
                        let more = draft.push(Body::Const(BYTE_SHIFT * site.count as f64), DType::I32);
                        columns = draft.apply(ScalarFn::Add, &[columns, more], DType::I32);
                    }
                    let more = draft.apply(ScalarFn::Mul, &[zero, columns], DType::I32);
                    value = draft.apply(ScalarFn::Sub, &[value, more], DType::I32);
                }
                let own = zero_of(program, &right.factor, |byte| taken.right(byte));
                let own = subtracted(&mut draft, program, &right.factor, own, &Rows::new());
                if let (Some(zero), Some(rows)) = (own, rows) {
                    let more = draft.apply(ScalarFn::Mul, &[zero, rows], DType::I32);
                    value = draft.apply(ScalarFn::Sub, &[value, more], DType::I32);
                }
                sum += 1;
                if site.dtype == DType::F32 {
                    value = draft.push(Body::Convert(value, Conversion::Value), DType::F32);
                    let both = match (left_scale, scale(&mut draft, &right.factor)) {
                        (Some(l), Some(r)) => Some(draft.apply(ScalarFn::Mul, &[l, r], DType::F32)),
                        (one, other) => one.or(other),
                    };
                    value = both.map_or(value, |s| draft.apply(ScalarFn::Mul, &[value, s], DType::F32));
                }
                value
            }
            (body, _) => {
                let is_product = |p: &[usize; 2]| matches!(body, Body::Apply { args, .. } if args[..] == p[..]);
                let dtype = if products.iter().any(is_product) { DType::I32 } else { statement.dtype };
                draft.push(body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k])), dtype)
            }
        };
        map.push(value);
    }
    let mut new = Kernel { reads: draft.reads, body: draft.body, ..old.clone() };
    if let Some(padding) = site.padding {
        new.inner[padding.var - old.outer.len()] = Dim::constant(padding.channels);
    }
    renumber_stores(&mut new, &map);
    Some(tidy(new, draft.args))
}

/// Appends the zero point, unless it is 0.
pub fn subtracted(draft: &mut Draft, program: &Program, factor: &Factor, zero: Zero, rows: &Rows) -> Option<usize> {
    match zero {
        Zero::Known(0.0) => None,
        Zero::Known(zero) => Some(draft.push(Body::Const(zero), DType::I32)),
        Zero::Computed(zero, shift) => {
            let zero = row_value(draft, program, factor, zero, rows)?;
            if shift == 0.0 {
                return Some(zero);
            }
            let shift = draft.push(Body::Const(shift), DType::I32);
            Some(draft.apply(ScalarFn::Add, &[zero, shift], DType::I32))
        }
    }
}

/// Returns the sums of operand A's bytes, which a separate kernel computes, and the index at which the contraction
/// reads them.
fn row_sums(program: &mut Program, at: usize, site: &Site, bytes: Id, written: &mut Written) -> Option<(Id, Vec<Dim>)> {
    let step = &program.steps[at];
    let old = kernel(step)?;
    let Body::Load { memlet, .. } = &old.body[site.left.load].body else { return None };
    let moving: Vec<usize> = memlet.index.iter().flat_map(Dim::variables).collect();
    let rows: Vec<usize> = (0..old.outer.len()).filter(|v| moving.contains(v)).collect();
    let place = |v: usize| match v.checked_sub(old.outer.len()) {
        Some(inner) => Some(Kernel::var(rows.len() + inner)),
        None => rows.iter().position(|r| *r == v).map(Kernel::var),
    };
    let index: Vec<Dim> = memlet.index.iter().map(|d| rename(d, &place, &|k| k)).collect();
    let outer: Vec<Dim> = rows.iter().map(|r| old.outer[*r].clone()).collect();
    let read = rows.iter().map(|r| Kernel::var(*r)).collect();
    let key = (bytes, [outer.clone(), old.inner.clone(), index.clone()]);
    if let Some(id) = written.sums.get(&key) {
        return Some((*id, read));
    }
    let mut draft = Draft::default();
    let byte = draft.load(program, bytes, index, None);
    let wide = draft.push(Body::Convert(byte, Conversion::Value), DType::I32);
    let value = draft.push(Body::Reduce { f: ReduceFn::Add, arg: wide }, DType::I32);
    let (inner, origins) = (old.inner.clone(), step.origins.clone());
    let id = computed(program, draft, outer, inner, value, origins);
    written.sums.insert(key, id);
    Some((id, read))
}

/// x[…, c, …]  =>  the same with zeros behind the last channel; a separate kernel computes it.
fn padded(program: &mut Program, at: usize, (bytes, padding): (Id, Padding), written: &mut Written) -> Id {
    let key = (bytes, padding.axis, padding.channels);
    if let Some(id) = written.padded.get(&key) {
        return *id;
    }
    let (container, origins) = (program.containers[bytes].clone(), program.steps[at].origins.clone());
    let mut outer = container.dims.clone();
    let end = std::mem::replace(&mut outer[padding.axis], Dim::constant(padding.channels));
    let mut draft = Draft::default();
    let (channel, end) = (draft.var(padding.axis), draft.push(Body::Index(end), DType::I64));
    let inside = draft.apply(ScalarFn::Lt, &[channel, end], DType::Bool);
    let byte = draft.load(program, bytes, (0..outer.len()).map(Kernel::var).collect(), Some(inside));
    let zero = draft.push(Body::Const(0.0), container.dtype);
    let value = draft.apply(ScalarFn::Select, &[inside, byte, zero], container.dtype);
    let id = computed(program, draft, outer, vec![], value, origins);
    written.padded.insert(key, id);
    id
}

/// Adds a kernel that stores one value at each outer point, and returns its result.
pub fn computed(
    program: &mut Program,
    draft: Draft,
    outer: Vec<Dim>,
    inner: Vec<Dim>,
    value: usize,
    origins: Vec<String>,
) -> Id {
    let container = Container::plain(draft.body[value].dtype, outer.clone());
    let index = (0..outer.len()).map(Kernel::var).collect();
    let kernel = Kernel {
        outer,
        inner,
        deep: vec![],
        reads: draft.reads,
        writes: vec![container.clone()],
        body: draft.body,
        stores: vec![Store { memlet: Memlet { container: 0, index }, value }],
    };
    let (kernel, args) = tidy(kernel, draft.args);
    let id = program.container(container);
    program.steps.push(Step { op: FlowOp::Kernel(Arc::new(kernel)), args, results: vec![id], origins });
    id
}

/// Returns the parameter in the type that the target multiplies, with padded channels if there is a padding.
fn parameter(program: &mut Program, right: &Right, (taken, padding): (ByteProducts, Option<Padding>)) -> Id {
    let stored = &program.containers[right.param];
    let transform = match padding {
        Some(_) => Some(Transform::Padded),
        None => (taken.right(stored.dtype).0 != stored.dtype).then_some(Transform::Signed),
    };
    let made = transform.and_then(|transform| Some((transform, transform.gives(stored)?)));
    made.map_or(right.param, |(transform, container)| made_of(program, &right.source, transform, container))
}

fn column_sums(program: &mut Program, source: &Source, sums: &Sums) -> Id {
    made_of(program, source, sums.transform, sums.container.clone())
}
