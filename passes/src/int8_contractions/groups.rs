//! contract(x, codes · s[k / G])  =>  Σg s[g] · Σj x[g·G + j] · codes[g·G + j]: codes are multiplied before they are
//! scaled, in groups g of G
//!
//! A group is a range of the K dimension whose weights share a scale and an offset. The offset is a minimum weight, or
//! the zero point that remains once codes are signed. The offset is multiplied by the sum of operand A over the group,
//! which a separate kernel computes. Operand A is read as bytes if its producer computes bytes with one scale per row,
//! or one per row and group; otherwise as f32. The zero point of A is multiplied by the sum of a column's weights, or of
//! those of a group, which is computed when the artifact is written.

use super::bytes::constant;
use super::rewritten::{Zero, bytes_of, computed, row_value, spliced, subtracted, write_rows, zero_of};
use super::{Factor, Written, made_of};
use crate::draft::Draft;
use crate::splice::{from_data, renumber_stores, tidy};
use crate::steps::{Uses, kernel, parameter};
use sardonyx_base::minifloat::decode;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, Class, FlowOp, Kernel, Memlet, Program, Source, Transform};
use sardonyx_dialects::interp::joined;
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_kernels::contract::rows_of_cell;
use sardonyx_kernels::device_spec::BYTE_SHIFT;
use sardonyx_kernels::products;
use std::sync::Arc;

/// Maximum number of products that an i32 accumulates without overflow: the factors of a product are a byte and a 4-bit
/// code, which registers hold multiplied by 16.
const PRODUCTS_MAX: i64 = 1 << 16;

/// A contraction with codes that have a scale for each group.
pub struct Site {
    left: Left,
    /// The load of operand A.
    load: usize,
    /// Operands B with their codes, one for each accumulator.
    rights: Vec<Right>,
    groups: i64,
    size: i64,
}

enum Left {
    /// Operand A in f32.
    Floats,
    /// Bytes with one scale for each row.
    Bytes(Box<Factor>),
    /// Bytes with one scale for each row and group, in a container with a dimension for groups and one for the elements
    /// of a group.
    Groups(Box<Factor>),
}

impl Left {
    fn factor(&self) -> Option<&Factor> {
        match self {
            Left::Floats => None,
            Left::Bytes(factor) | Left::Groups(factor) => Some(factor),
        }
    }
}

/// A parameter of codes, and the kernel that dequantises them.
struct Right {
    load: usize,
    param: Id,
    source: Source,
    /// Index at which the new kernel reads the parameter.
    index: Vec<Dim>,
    /// The dequantising kernel's variables in terms of the new kernel's.
    vars: Vec<Dim>,
    maker: usize,
    code: Code,
}

/// The dequantised value (convert(code) - zero) · scale + more; the fields are numbers of statements of the
/// dequantising kernel.
#[derive(Clone, Copy)]
struct Code {
    value: usize,
    code: usize,
    zero: Option<usize>,
    scale: usize,
    more: Option<usize>,
    /// The amount subtracted from unsigned codes to make them signed.
    shift: f64,
}

impl Site {
    pub fn has_floats(&self, program: &Program) -> bool {
        has_floats(&self.rights, program)
    }

    fn is_left_in_groups(&self) -> bool {
        matches!(self.left, Left::Groups(_))
    }

    /// Returns the last indices with which operand A is read at element `element` of group `group`.
    fn in_group(&self, group: usize, element: usize) -> Vec<Dim> {
        let (group, element) = (Kernel::var(group), Kernel::var(element));
        match self.is_left_in_groups() {
            true => vec![group, element],
            false => vec![group * Dim::constant(self.size) + element],
        }
    }
}

/// Whether the codes of any operand are floats.
fn has_floats(rights: &[Right], program: &Program) -> bool {
    rights.iter().any(|r| program.containers[r.param].dtype.is_float())
}

impl Code {
    fn matching(m: &Kernel, value: usize) -> Option<Code> {
        let of_function = |k: usize, wanted: ScalarFn| match &m.body[k].body {
            Body::Apply { f, args } if *f == wanted => Some([args[0], args[1]]),
            _ => None,
        };
        if let Some(args) = of_function(value, ScalarFn::Add) {
            let with = |k: usize, more: usize| Some(Code { more: Some(more), value, ..Code::matching(m, k)? });
            let fixed = |k: usize| Code::matching(m, k).is_none();
            return with(args[0], args[1]).filter(|_| fixed(args[1])).or_else(|| with(args[1], args[0]));
        }
        let converted = |k: usize| match m.body[k].body {
            Body::Convert(from, Conversion::Value) => Some(from),
            _ => None,
        };
        let code = |k: usize, scale: usize| {
            // The difference code - zero is computed in f32 or in i32.
            let whole = converted(k).filter(|from| m.body[*from].dtype == DType::I32).unwrap_or(k);
            let difference = of_function(whole, ScalarFn::Sub);
            let code = converted(difference.map_or(whole, |args| args[0]))?;
            let shift = match m.body[code].dtype {
                DType::I4 | DType::I8 => 0.0,
                DType::U4 => 8.0,
                DType::U8 => BYTE_SHIFT,
                float if float.is_float() && rows_of_cell(float).is_some() => 0.0,
                _ => return None,
            };
            Some(Code { value, code, zero: difference.map(|args| args[1]), scale, more: None, shift })
        };
        let [a, b] = of_function(value, ScalarFn::Mul)?;
        code(a, b).or_else(|| code(b, a))
    }

    /// Whether the weights are the signed codes times the scale, with no offset.
    fn is_symmetric(&self, m: &Kernel) -> bool {
        let zero = self.zero.map_or(Some(0.0), |z| constant(m, z));
        self.more.is_none() && zero == Some(self.shift)
    }
}

/// Matches a contraction with codes that have a scale for each group. Returns `None` for any other step; the error is
/// the reason why a similar contraction is not rewritten.
pub fn matches(program: &Program, at: usize, params: &dyn ParamValues) -> Result<Option<Site>, &'static str> {
    let step = &program.steps[at];
    let Some(k) = kernel(step).filter(|k| k.class() == Class::Contract) else { return Ok(None) };
    let (Some(products), [sum]) = (products(k), &k.inner[..]) else { return Ok(None) };
    let (Some(length), true) = (sum.as_const(), k.body[products[0][0]].dtype == DType::F32) else { return Ok(None) };
    let uses = Uses::new(program);
    let grouped = |load: usize| right(program, &uses, at, load);
    let left = match products[0].map(|load| grouped(load).is_some()) {
        [false, true] => products[0][0],
        [true, false] => products[0][1],
        [true, true] | [false, false] => return Ok(None),
    };
    let mut rights = vec![];
    let mut shape = None;
    for [a, b] in products {
        let other = if a == left { b } else { a };
        let Some((right, groups, size)) = grouped(other).filter(|_| a == left || b == left) else { return Ok(None) };
        if *shape.get_or_insert((groups, size)) != (groups, size) {
            return Err("its right factors have groups of several sizes");
        }
        rights.push(right);
    }
    let Some((groups, size)) = shape else { return Ok(None) };
    let Body::Load { memlet, guard: None } = &k.body[left].body else { return Ok(None) };
    let Some((last, rest)) = memlet.index.split_last() else { return Ok(None) };
    let in_rows =
        last.as_variable() == Some(k.outer.len()) && rest.iter().all(|d| !d.variables().contains(&k.outer.len()));
    if !in_rows || groups.checked_mul(size) != Some(length) {
        return Err("neighbours of its left factor along the sum are none in memory");
    }
    // The variable of the groups follows the outer variables.
    let usable = |n_fixed: usize| {
        let uses = &uses;
        move |f: &Factor| f.bytes.scale.is_some() && f.is_fixed(program, n_fixed) && f.is_padded_well(program, uses)
    };
    let whole = Factor::find(program, &uses, at, left).filter(usable(k.outer.len()));
    let grouped = left_in_groups(program, &uses, (at, left), size).filter(usable(k.outer.len() + 1));
    let floats = has_floats(&rights, program);
    if floats && !rights.iter().all(|r| are_numbers(&r.source, params)) {
        return Err("some of its codes are no numbers");
    }
    let fits = |f: &Factor| f.is_near(program, &uses) && size <= PRODUCTS_MAX && !floats;
    let halves = rights.iter().all(|r| program.containers[r.param].dtype.bits() == 4);
    let left_of = match (whole.filter(fits), grouped.filter(fits)) {
        // With a single scale per column, the plain byte contraction is faster, as it has no groups.
        (Some(_), _) if groups == 1 && !halves => return Ok(None),
        (Some(factor), _) => Left::Bytes(Box::new(factor)),
        (None, Some(factor)) => Left::Groups(Box::new(factor)),
        (None, None) => Left::Floats,
    };
    Ok(Some(Site { left: left_of, load: left, rights, groups, size }))
}

/// Returns operand A if it is a view of a container with one dimension for groups and one for the `size` elements of a
/// group, which a kernel dequantises from bytes. The variables are those of the new kernel.
fn left_in_groups(program: &Program, uses: &Uses, (at, load): (usize, usize), size: i64) -> Option<Factor> {
    let (step, k) = (&program.steps[at], kernel(&program.steps[at])?);
    let Body::Load { memlet, guard: None } = &k.body[load].body else { return None };
    let id = step.args[memlet.container];
    let view = uses.producers[id].filter(|s| matches!(program.steps[*s].op, FlowOp::View))?;
    let made = program.steps[view].args[0];
    let (whole, dims) = (&program.containers[id].dims, &program.containers[made].dims);
    let (_, rest) = memlet.index.split_last()?;
    let n = rest.len();
    if dims.len() != n + 2 || dims[..n] != whole[..n] || !dims[n + 1].is_const(size) || rest.iter().any(from_data) {
        return None;
    }
    let k_var = k.outer.len();
    let index: Vec<Dim> = rest.iter().cloned().chain([Kernel::var(k_var), Kernel::var(k_var + 1)]).collect();
    Factor::at_index(program, uses, (load, made), &index)
}

/// Returns the codes that a load reads through the kernel that dequantises them, the number of groups along K, and the
/// number of weights in a group.
fn right(program: &Program, uses: &Uses, at: usize, load: usize) -> Option<(Right, i64, i64)> {
    let (step, k) = (&program.steps[at], kernel(&program.steps[at])?);
    let Body::Load { memlet, guard: None } = &k.body[load].body else { return None };
    let k_var = k.outer.len();
    let id = step.args[memlet.container];
    let axis = memlet.index.iter().position(|d| d.as_variable() == Some(k_var))?;
    let whole = &program.containers[id].dims;
    let alone = |(i, d): (usize, &Dim)| i == axis || !d.variables().contains(&k_var);
    if !memlet.index.iter().enumerate().all(alone) {
        return None;
    }
    let mut vars = memlet.index.clone();
    let producer = uses.producers[id]?;
    let (made, groups, size) = match program.steps[producer].op {
        // A view has merged the axes [groups, size] into K.
        FlowOp::View => {
            let made = program.steps[producer].args[0];
            let dims = &program.containers[made].dims;
            let apart =
                dims.len() == whole.len() + 1 && dims[..axis] == whole[..axis] && dims[axis + 2..] == whole[axis + 1..];
            vars.splice(axis..=axis, [Kernel::var(k_var), Kernel::var(k_var + 1)]);
            apart.then_some(())?;
            (made, dims[axis].as_const()?, dims[axis + 1].as_const()?)
        }
        _ => {
            vars[axis] = Kernel::var(k_var) * whole[axis].clone() + Kernel::var(k_var + 1);
            (id, 1, whole[axis].as_const()?)
        }
    };
    let dims = &program.containers[made].dims;
    let within = if groups == 1 && made == id { axis } else { axis + 1 };
    let maker = uses.producers[made]?;
    let m = kernel(&program.steps[maker]).filter(|m| m.class() == Class::Map)?;
    let [store] = &m.stores[..] else { return None };
    let in_place = |(v, d): (usize, &Dim)| d.as_variable() == Some(v);
    if !store.memlet.index.iter().enumerate().all(in_place) || m.outer.len() != dims.len() {
        return None;
    }
    let code = Code::matching(m, store.value)?;
    let Body::Load { memlet, guard: None } = &m.body[code.code].body else { return None };
    let fixed = |k: usize| super::bytes::moves_with(m, k).is_some_and(|vars| !vars.contains(&within));
    if ![Some(code.scale), code.zero, code.more].into_iter().flatten().all(fixed) {
        return None;
    }
    let param = program.steps[maker].args[memlet.container];
    let source = parameter(program, &uses.producers, param)?;
    let index = memlet.index.iter().map(|d| rename(d, &|v| vars.get(v).cloned(), &|k| k)).collect();
    Some((Right { load, param, source, index, vars, maker, code }, groups, size))
}

/// Whether all codes of a float type are finite numbers. Codes that are prepared later are not known yet and count as
/// finite: where `quantize` produces a code that is not finite, the scale of the code is not finite either.
pub fn are_numbers(source: &Source, params: &dyn ParamValues) -> bool {
    let Ok(codes) = joined(source, params) else { return true };
    let numbers = (0..=u8::MAX).map(|code| decode(codes.dtype(), code.into()).is_none_or(f64::is_finite));
    let numbers: Vec<bool> = numbers.collect();
    codes.bytes().iter().all(|code| numbers[usize::from(*code)])
}

pub fn apply(program: &mut Program, at: usize, site: &Site, written: &mut Written) {
    let Some(k_var) = kernel(&program.steps[at]).map(|k| k.outer.len()) else { return };
    let taken = written.taken;
    let left_type = |byte| taken.left(byte);
    let left = site.left.factor().map(|factor| {
        let bytes = bytes_of(program, at, factor, written);
        (factor, bytes, write_rows(program, factor, written))
    });
    let params: Vec<Id> = site.rights.iter().map(|r| signed(program, r)).collect();
    let wanted = left.as_ref().is_some_and(|(f, _, _)| zero_of(program, f, left_type) != Zero::Known(0.0));
    let sums: Vec<Option<(Id, Vec<Dim>)>> =
        site.rights.iter().map(|right| wanted.then(|| column_sums(program, at, site, right)).flatten()).collect();
    let bytes = left.as_ref().map(|(_, bytes, _)| *bytes);
    let symmetric = site.rights.iter().all(|right| right.is_symmetric(program));
    let rows = (!symmetric).then(|| row_sums(program, at, site, bytes, written)).flatten();
    let Some(old) = kernel(&program.steps[at]) else { return };
    let mut draft = Draft { reads: old.reads.clone(), args: program.steps[at].args.clone(), body: vec![] };
    let left_scale =
        left.as_ref().and_then(|(factor, _, rows)| row_value(&mut draft, program, factor, factor.bytes.scale?, rows));
    let zero = left.as_ref().and_then(|(factor, _, rows)| {
        let zero = zero_of(program, factor, left_type);
        subtracted(&mut draft, program, factor, zero, rows)
    });
    let wide = if left.is_some() { DType::I32 } else { DType::F32 };
    let (mut map, mut sum) = (vec![], 0);
    let Some(factors) = products(old) else { return };
    for (i, statement) in old.body.iter().enumerate() {
        let right = site.rights.iter().position(|r| r.load == i);
        let value = match (&statement.body, right) {
            (Body::Load { memlet, .. }, None) if i == site.load => {
                let rows = memlet.index.split_last().map_or(&[][..], |(_, rows)| rows);
                let index = rows.iter().cloned().chain(site.in_group(k_var, k_var + 1)).collect();
                match &left {
                    Some((_, bytes, _)) => {
                        let byte = draft.load(program, *bytes, index, None);
                        draft.push(Body::Convert(byte, Conversion::Value), wide)
                    }
                    None => {
                        let memlet = Memlet { container: memlet.container, index };
                        draft.push(Body::Load { memlet, guard: None }, DType::F32)
                    }
                }
            }
            (Body::Load { .. }, Some(right)) => {
                let code = draft.load(program, params[right], site.rights[right].index.clone(), None);
                draft.push(Body::Convert(code, Conversion::Value), wide)
            }
            (Body::Reduce { .. }, _) => {
                let right = &site.rights[sum];
                let mut part = draft.push(statement.body.renumbered(&|k| map[k], &|d| d.clone()), wide);
                if wide == DType::I32 {
                    part = draft.push(Body::Convert(part, Conversion::Value), DType::F32);
                }
                let scale = spliced(&mut draft, program, right.maker, &right.vars, right.code.scale);
                let Some(scale) = scale else { return };
                let rows = rows.as_ref().filter(|_| !right.is_symmetric(program));
                let more = rows.and_then(|_| added(&mut draft, program, right, scale));
                let mut part = draft.apply(ScalarFn::Mul, &[part, scale], DType::F32);
                if let (Some(more), Some((rows, index))) = (more, rows) {
                    let mut row = draft.load(program, *rows, index.clone(), None);
                    if wide == DType::I32 {
                        row = draft.push(Body::Convert(row, Conversion::Value), DType::F32);
                    }
                    let more = draft.apply(ScalarFn::Mul, &[more, row], DType::F32);
                    part = draft.apply(ScalarFn::Add, &[part, more], DType::F32);
                }
                let zero = zero.zip(sums[sum].as_ref());
                sum += 1;
                // The value of a group, or of all groups, with the zero point and the scale of A.
                let scaled = |draft: &mut Draft, mut value: usize| {
                    if let Some((zero, (id, index))) = zero {
                        let zero = draft.push(Body::Convert(zero, Conversion::Value), DType::F32);
                        let column = draft.load(program, *id, index.clone(), None);
                        let more = draft.apply(ScalarFn::Mul, &[zero, column], DType::F32);
                        value = draft.apply(ScalarFn::Sub, &[value, more], DType::F32);
                    }
                    left_scale.map_or(value, |s| draft.apply(ScalarFn::Mul, &[value, s], DType::F32))
                };
                let in_groups = site.is_left_in_groups();
                if in_groups {
                    part = scaled(&mut draft, part);
                }
                let value = draft.push(Body::Reduce { f: ReduceFn::Add, arg: part }, DType::F32);
                if in_groups { value } else { scaled(&mut draft, value) }
            }
            (body, _) => {
                let is_product = |p: &[usize; 2]| matches!(body, Body::Apply { args, .. } if args[..] == p[..]);
                let dtype = if factors.iter().any(is_product) { wide } else { statement.dtype };
                draft.push(body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k])), dtype)
            }
        };
        map.push(value);
    }
    let (inner, deep) = (vec![Dim::constant(site.groups)], vec![Dim::constant(site.size)]);
    let mut new = Kernel { inner, deep, reads: draft.reads, body: draft.body, ..old.clone() };
    renumber_stores(&mut new, &map);
    let (kernel, args) = tidy(new, draft.args);
    program.steps[at].op = FlowOp::Kernel(Arc::new(kernel));
    program.steps[at].args = args;
}

impl Right {
    fn is_symmetric(&self, program: &Program) -> bool {
        kernel(&program.steps[self.maker]).is_some_and(|m| self.code.is_symmetric(m))
    }
}

/// Returns the offset of a group's weights, computed in the new kernel.
fn added(draft: &mut Draft, program: &Program, right: &Right, scale: usize) -> Option<usize> {
    let code = right.code;
    let shift = draft.push(Body::Const(code.shift), DType::F32);
    let mut value = shift;
    if let Some(zero) = code.zero {
        let mut zero = spliced(draft, program, right.maker, &right.vars, zero)?;
        if draft.body[zero].dtype != DType::F32 {
            zero = draft.push(Body::Convert(zero, Conversion::Value), DType::F32);
        }
        value = draft.apply(ScalarFn::Sub, &[shift, zero], DType::F32);
    }
    value = draft.apply(ScalarFn::Mul, &[value, scale], DType::F32);
    let Some(more) = code.more else { return Some(value) };
    let more = spliced(draft, program, right.maker, &right.vars, more)?;
    Some(if code.shift == 0.0 && code.zero.is_none() {
        more
    } else {
        draft.apply(ScalarFn::Add, &[value, more], DType::F32)
    })
}

/// Returns the sums of operand A over each group, which a separate kernel computes, and the index at which the
/// contraction reads them.
fn row_sums(
    program: &mut Program,
    at: usize,
    site: &Site,
    bytes: Option<Id>,
    written: &mut Written,
) -> Option<(Id, Vec<Dim>)> {
    let step = &program.steps[at];
    let old = kernel(step)?;
    let Body::Load { memlet, .. } = &old.body[site.load].body else { return None };
    let (id, origins) = (bytes.unwrap_or(step.args[memlet.container]), step.origins.clone());
    let (_, rest) = memlet.index.split_last()?;
    let read: Vec<Dim> = rest.iter().cloned().chain([Kernel::var(old.outer.len())]).collect();
    let key = (id, [vec![], vec![Dim::constant(site.size)], vec![]]);
    if let Some(sums) = written.sums.get(&key) {
        return Some((*sums, read));
    }
    let mut outer = program.containers[id].dims[..rest.len()].to_vec();
    outer.push(Dim::constant(site.groups));
    let n = outer.len();
    let mut index: Vec<Dim> = (0..rest.len()).map(Kernel::var).collect();
    index.extend(site.in_group(n - 1, n));
    let mut draft = Draft::default();
    let mut value = draft.load(program, id, index, None);
    if bytes.is_some() {
        value = draft.push(Body::Convert(value, Conversion::Value), DType::I32);
    }
    let dtype = draft.body[value].dtype;
    let value = draft.push(Body::Reduce { f: ReduceFn::Add, arg: value }, dtype);
    let sums = computed(program, draft, outer, vec![Dim::constant(site.size)], value, origins);
    written.sums.insert(key, sums);
    Some((sums, read))
}

/// Returns the parameter as signed codes.
fn signed(program: &mut Program, right: &Right) -> Id {
    let stored = &program.containers[right.param];
    let unsigned = stored.dtype.is_unsigned_int();
    let container = unsigned.then(|| Transform::Signed.gives(stored)).flatten();
    container.map_or(right.param, |container| made_of(program, &right.source, Transform::Signed, container))
}

/// Returns the sum of each column's weights, or of those of a group if operand A has a scale for each group. A kernel
/// computes the sums from parameters only. The index is the one at which the contraction reads the sums.
fn column_sums(program: &mut Program, at: usize, site: &Site, right: &Right) -> Option<(Id, Vec<Dim>)> {
    let step = &program.steps[at];
    let (old, origins) = (kernel(step)?, step.origins.clone());
    let k_var = old.outer.len();
    let mut columns: Vec<usize> = right.vars.iter().flat_map(Dim::variables).filter(|v| *v < k_var).collect();
    columns.sort_unstable();
    columns.dedup();
    let place = |v: usize| match v.checked_sub(k_var) {
        Some(summed) => Some(Kernel::var(columns.len() + summed)),
        None => columns.iter().position(|c| *c == v).map(Kernel::var),
    };
    let mut outer: Vec<Dim> = columns.iter().map(|c| old.outer[*c].clone()).collect();
    let mut inner = vec![Dim::constant(site.groups), Dim::constant(site.size)];
    let mut index: Vec<Dim> = columns.iter().map(|c| Kernel::var(*c)).collect();
    if site.is_left_in_groups() {
        outer.push(inner.remove(0));
        index.push(Kernel::var(k_var));
    }
    let vars: Vec<Dim> = right.vars.iter().map(|d| rename(d, &place, &|k| k)).collect();
    let mut draft = Draft::default();
    let weight = spliced(&mut draft, program, right.maker, &vars, right.code.value)?;
    let value = draft.push(Body::Reduce { f: ReduceFn::Add, arg: weight }, DType::F32);
    let id = computed(program, draft, outer, inner, value, origins);
    Some((id, index))
}
