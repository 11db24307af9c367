//! contract(s · (q - z), t · (w - y))  =>  s · t · (contract(q, w) - z · Σ w - y · (Σ q - n · z)): dequantised bytes
//! are multiplied as bytes (n is the number of products)
//!
//! Bytes are multiplied in the types given by the target's description. CPUs multiply unsigned by signed bytes: i8 in
//! operand A becomes u8 by adding 128, and u8 in B, which is constant, becomes i8 by subtracting 128. GPUs take bytes
//! as they are. The producer of A stores the byte q as an additional result; if the original, dequantised result then
//! has no consumer, it is removed. Σ w is computed when the artifact is written, and Σ q by a separate kernel if y is
//! not 0. Accumulation in i32 is exact, whereas the replaced accumulation in f32 rounds.

mod bytes;
mod groups;
mod rewritten;
#[cfg(test)]
mod tests;

use crate::class::Class as Equality;
use crate::options::Params;
use crate::remark::Missed;
use crate::rewrite::{Found, Rewrites, Rule};
use crate::splice::from_data;
use crate::steps::{Uses, kernel, parameter};
use bytes::{Bytes, bytes, constant, is_of_row, moves_with, widened};
use rewritten::Zero;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::transform::WORD_BYTES;
use sardonyx_dialects::flow::{Body, Class, Container, FlowOp, Kernel, Program, Source, Step, Transform};
use sardonyx_dialects::mlir::Module;
use sardonyx_kernels::device_spec::ByteProducts;
use sardonyx_kernels::{Target, products, target};
use std::collections::BTreeMap;

/// Maximum number of products that an i32 can accumulate; a factor is a byte minus its zero point, less than 384 in
/// magnitude.
const PRODUCTS_MAX: i64 = (1 << 31) / (384 * 384);

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let (device, params) = (rewrites.options().target, rewrites.options().params.clone());
    let products = device.spec().byte_products;
    rewrites.programs(module, |rewrites, program| {
        let mut written = Written::new(products);
        let find = |program: &Program, at| find(program, at, device, &params);
        let apply = |program: &mut Program, at, site| match site {
            Either::Whole(site) => rewritten::apply(program, at, &site, &mut written),
            Either::Groups(site) => groups::apply(program, at, &site, &mut written),
        };
        rewrites.each_step(program, find, apply)
    })
}

/// A contraction of bytes with one scale along K, or with one scale for each group.
enum Either {
    Whole(Site),
    Groups(groups::Site),
}

fn find(program: &Program, at: usize, device: Target, params: &Params) -> Found<Either> {
    let class = |site: &Site| if site.dtype == DType::F32 { Equality::FiniteOnly } else { Equality::Exact };
    let missed = match groups::matches(program, at, params) {
        Ok(Some(site)) if site.has_floats(program) && device.class() != target::Class::Cpu => {
            Some(Missed::because("floats of 8 bits are f32 in the file", "no kernel of GPUs decodes them"))
        }
        Ok(Some(site)) => return Ok(Some((Rule::of_class(Equality::FiniteOnly, "groups"), Either::Groups(site)))),
        Ok(None) => None,
        Err(why) => Some(Missed::because("a contraction of codes in groups stays wide", why)),
    };
    match matches(program, at, device.spec().byte_products) {
        Ok(Some(site)) => Ok(Some((Rule::of_class(class(&site), "bytes"), Either::Whole(site)))),
        Ok(None) => missed.map_or(Ok(None), Err),
        Err(why) => Err(Missed::because("a contraction of bytes stays wide", why)),
    }
}

/// Containers that rewrites have added, shared by several contractions.
struct Written {
    /// The byte types that the target multiplies.
    taken: ByteProducts,
    /// Containers of bytes that producers store as additional results; the key is the container of the dequantised
    /// values.
    bytes: BTreeMap<Id, Id>,
    /// Containers of values of rows that producers store as additional results; the key is the container of the
    /// dequantised values and the value's statement in the producer.
    rows: BTreeMap<(Id, usize), Id>,
    /// Bytes with padded channels; the key is the container of bytes, the axis of its channels, and their number with
    /// the added ones.
    padded: BTreeMap<(Id, usize, i64), Id>,
    /// Sums of bytes along K; the key is the container of bytes, the extents of its rows and of K, and the index with
    /// which the contraction reads it.
    sums: BTreeMap<(Id, [Vec<Dim>; 3]), Id>,
}

impl Written {
    fn new(taken: ByteProducts) -> Written {
        Written { taken, bytes: BTreeMap::new(), rows: BTreeMap::new(), padded: BTreeMap::new(), sums: BTreeMap::new() }
    }
}

/// A contraction that can multiply bytes.
struct Site {
    /// Original type of operands and accumulators: f32 or i32.
    dtype: DType,
    /// Number of products per accumulator.
    count: i64,
    left: Factor,
    /// The constant operands, one for each accumulator.
    rights: Vec<Right>,
    /// How channels are padded to whole words; `None` if words lie side by side anyway.
    padding: Option<Padding>,
}

/// Zeros behind the channels of both operands: CPUs multiply four bytes that lie side by side at once.
#[derive(Clone, Copy)]
struct Padding {
    /// Variable of the channels, along which the contraction adds up.
    var: usize,
    /// Axis of the channels in operand A.
    axis: usize,
    /// Number of channels with the added ones.
    channels: i64,
}

/// An operand of a contraction that a kernel dequantises from bytes.
struct Factor {
    /// The load in the contraction.
    load: usize,
    /// The container that is loaded.
    id: Id,
    maker: usize,
    /// Index of the producer's store that writes the loaded container.
    store: usize,
    bytes: Bytes,
    /// The producer's variables at the point that the contraction reads.
    vars: Vec<Dim>,
}

/// A constant operand.
struct Right {
    factor: Factor,
    /// The parameter, and the index at which the new contraction reads it.
    param: Id,
    index: Vec<Dim>,
    source: Source,
    /// The sums of the parameter's columns; `None` if they cannot be computed when the artifact is written.
    sums: Option<Sums>,
}

/// Sums of a parameter over K, one for each column.
struct Sums {
    transform: Transform,
    container: Container,
    /// The index at which the contraction reads the sum of its current column.
    index: Dim,
}

impl Factor {
    fn find(program: &Program, uses: &Uses, at: usize, load: usize) -> Option<Factor> {
        let (step, k) = (&program.steps[at], kernel(&program.steps[at])?);
        let Body::Load { memlet, guard: None } = &k.body[load].body else { return None };
        if memlet.index.iter().any(from_data) {
            return None;
        }
        Factor::at_index(program, uses, (load, step.args[memlet.container]), &memlet.index)
    }

    /// Returns the operand that is `load` in the contraction and the element at `index` of container `id`.
    fn at_index(program: &Program, uses: &Uses, (load, id): (usize, Id), index: &[Dim]) -> Option<Factor> {
        let maker = uses.producers[id]?;
        let (result, made) =
            (program.steps[maker].results.iter().position(|r| *r == id)?, kernel(&program.steps[maker])?);
        let mut stores = (0..made.stores.len()).filter(|s| made.stores[*s].memlet.container == result);
        let (Some(store), None) = (stores.next(), stores.next()) else { return None };
        // The container must be indexed by variables of the producer.
        let places: Vec<Option<usize>> = made.stores[store].memlet.index.iter().map(Dim::as_variable).collect();
        let value = |(v, extent): (usize, &Dim)| match places.iter().position(|p| *p == Some(v)) {
            Some(axis) => Some(index[axis].clone()),
            // The stored value must not depend on a variable of the reduction.
            None => (v >= made.outer.len() || extent.is_const(1)).then(|| Dim::constant(0)),
        };
        let vars = made.extents().enumerate().map(value).collect::<Option<Vec<Dim>>>()?;
        let bytes = bytes(made, made.stores[store].value)?;
        Some(Factor { load, id, maker, store, bytes, vars })
    }

    /// Returns whether zero point and scale are constant along the reduction, and can be recomputed in the contraction
    /// or, if there is one for each row, stored by the producer.
    fn is_fixed(&self, program: &Program, n_outer: usize) -> bool {
        let Some(made) = kernel(&program.steps[self.maker]) else { return false };
        let fixed = |v: &usize| self.vars.get(*v).is_some_and(|d| d.variables().iter().all(|w| *w < n_outer));
        let is_fixed = |s| match moves_with(made, s) {
            Some(vars) => vars.iter().all(fixed),
            None => is_of_row(made, s) && (0..made.outer.len()).all(|v| fixed(&v)),
        };
        self.bytes.zero.is_none_or(is_fixed) && self.bytes.scale.is_none_or(is_fixed)
    }

    /// Whether the zero point, if any, is within the range of a byte.
    fn is_near(&self, program: &Program, uses: &Uses) -> bool {
        let Some(made) = kernel(&program.steps[self.maker]) else { return false };
        self.bytes.zero.is_none_or(|z| match constant(made, z) {
            Some(z) => (-128.0..=255.0).contains(&z),
            None => byte_behind(program, uses, self.maker, z).is_some(),
        })
    }

    /// Whether padding with 0, if any, can be expressed as a byte: the zero point, which represents 0.
    fn is_padded_well(&self, program: &Program, uses: &Uses) -> bool {
        let Some(made) = kernel(&program.steps[self.maker]) else { return false };
        let (dtype, zero) = (made.body[self.bytes.byte].dtype, self.bytes.zero);
        let range = if dtype == DType::I8 { -128.0..=127.0 } else { 0.0..=255.0 };
        let is_known = || zero.map_or(Some(0.0), |z| constant(made, z)).is_some_and(|z| range.contains(&z));
        let is_byte = || zero.and_then(|z| byte_behind(program, uses, self.maker, z)) == Some(dtype);
        self.bytes.guard.is_none() || is_known() || is_byte()
    }

    /// Returns the container from which the producer loads the bytes unchanged and without padding, and the index in
    /// the contraction's variables.
    fn read(&self, program: &Program) -> Option<(Id, Vec<Dim>)> {
        let step = &program.steps[self.maker];
        let Body::Load { memlet, guard: None } = &kernel(step)?.body[self.bytes.byte].body else { return None };
        if self.bytes.guard.is_some() || memlet.index.iter().any(from_data) {
            return None;
        }
        let index = memlet.index.iter().map(|d| rename(d, &|v| self.vars.get(v).cloned(), &|k| k)).collect();
        Some((step.args[memlet.container], index))
    }
}

/// Returns the type of the byte that a value is, if its kernel, or the kernel that it is loaded from, widens a byte.
fn byte_behind(program: &Program, uses: &Uses, at: usize, value: usize) -> Option<DType> {
    let of = |k: &Kernel, value: usize| widened(k, value).map(|found| k.body[found.byte].dtype);
    let (step, k) = (&program.steps[at], kernel(&program.steps[at])?);
    let Body::Load { memlet, guard: None } = &k.body[value].body else { return of(k, value) };
    let id = step.args[memlet.container];
    let (step, made) = uses.producers[id].and_then(|s| Some((&program.steps[s], kernel(&program.steps[s])?)))?;
    let mut stores = made.stores.iter().filter(|store| step.results[store.memlet.container] == id);
    let (Some(store), None) = (stores.next(), stores.next()) else { return None };
    of(made, store.value)
}

/// Matches a contraction of bytes with one scale along K. Returns `None` for any other step; the error is the reason
/// why a similar contraction is not rewritten.
fn matches(program: &Program, at: usize, taken: ByteProducts) -> std::result::Result<Option<Site>, &'static str> {
    let step = &program.steps[at];
    let Some(k) = kernel(step).filter(|k| k.class() == Class::Contract) else { return Ok(None) };
    let Some(products) = products(k) else { return Ok(None) };
    let dtype = k.body[products[0][0]].dtype;
    if !matches!(dtype, DType::F32 | DType::I32) {
        return Ok(None);
    }
    let uses = Uses::new(program);
    let of = |load: usize| Factor::find(program, &uses, at, load);
    let is_constant = |load: usize| {
        let read = of(load).and_then(|f| f.read(program));
        read.is_some_and(|(id, _)| parameter(program, &uses.producers, id).is_some())
    };
    let left = match products[0].map(is_constant) {
        [false, true] => products[0][0],
        [true, false] => products[0][1],
        [true, true] | [false, false] => return Ok(None),
    };
    let mut rights = vec![];
    for [a, b] in products {
        let other = if a == left { b } else { a };
        let Some(factor) = of(other).filter(|_| a == left || b == left) else { return Ok(None) };
        rights.push(right_of(program, &uses, k, factor, taken)?);
    }
    let Some(left) = of(left) else { return Ok(None) };
    let is_off = rewritten::zero_of(program, &left, |byte| taken.left(byte)) != Zero::Known(0.0);
    if is_off && rights.iter().any(|r| r.sums.is_none()) {
        return Err("the sums of its right factor's columns are not known");
    }
    if !left.is_fixed(program, k.outer.len()) {
        return Err("its left factor's zero point or scale is another one along the sum");
    }
    if !left.is_padded_well(program, &uses) {
        return Err("what its left factor is padded with is not known");
    }
    let near = left.is_near(program, &uses) && rights.iter().all(|r| r.factor.is_near(program, &uses));
    let count = k.inner.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?));
    let Some(count) = count.filter(|n| *n <= PRODUCTS_MAX && near) else {
        return Err("its sums may be larger than i32 holds");
    };
    let mut padding = None;
    if !k.inner.iter().any(|d| d.as_const().is_some_and(|n| n % WORD_BYTES == 0)) && k.inner.len() > 1 {
        let found = Padding::find(program, &uses, k, (left.load, &rights), taken);
        padding = Some(found.ok_or("no four products lie side by side")?);
    }
    Ok(Some(Site { dtype, count, left, rights, padding }))
}

impl Padding {
    /// Finds channels that can be padded: a variable of the reduction that alone is an axis of operand A, and the second
    /// axis of all parameters, which are not views. `None` also if more than a quarter of the padded channels would be
    /// zeros, and on GPUs, whose kernels take any number of channels.
    fn find(
        program: &Program,
        uses: &Uses,
        k: &Kernel,
        (left, rights): (usize, &[Right]),
        taken: ByteProducts,
    ) -> Option<Padding> {
        let Body::Load { memlet, guard: None } = &k.body[left].body else { return None };
        if taken != ByteProducts::UnsignedBySigned {
            return None;
        }
        let axis_of = |index: &[Dim], var: usize| {
            let mut using = (0..index.len()).filter(|axis| index[*axis].variables().contains(&var));
            let axis = using.next().filter(|axis| index[*axis].as_variable() == Some(var))?;
            using.next().is_none().then_some(axis)
        };
        (k.outer.len()..k.outer.len() + k.inner.len()).find_map(|var| {
            let extent = k.inner[var - k.outer.len()].as_const()?;
            let channels = extent.checked_add(WORD_BYTES - 1)? / WORD_BYTES * WORD_BYTES;
            let is_channel = |right: &Right| {
                let param = &program.containers[right.param];
                let becomes = Transform::Padded.gives(param).filter(|_| axis_of(&right.index, var) == Some(1));
                let is_whole = becomes.is_some_and(|padded| padded.dims[1].is_const(channels));
                let is_view =
                    uses.producers[right.param].is_none_or(|s| !matches!(program.steps[s].op, FlowOp::Param { .. }));
                is_whole && param.dims[1].is_const(extent) && !is_view
            };
            let axis = axis_of(&memlet.index, var)?;
            (4 * (channels - extent) <= channels && rights.iter().all(is_channel)).then_some(Padding {
                var,
                axis,
                channels,
            })
        })
    }
}

fn right_of(
    program: &Program,
    uses: &Uses,
    k: &Kernel,
    factor: Factor,
    taken: ByteProducts,
) -> std::result::Result<Right, &'static str> {
    let read = factor.read(program).and_then(|(id, index)| Some((id, parameter(program, &uses.producers, id)?, index)));
    let (param, source, index) = read.ok_or("its right factors are not all constants")?;
    let viewed = uses.producers[param].is_some_and(|s| matches!(program.steps[s].op, FlowOp::View));
    let dtype = program.containers[param].dtype;
    if viewed && taken.right(dtype).0 != dtype {
        return Err("its right factor is a view of bytes without a sign");
    }
    // What depends on a reduction would be reduced over the space of the contraction.
    let made = kernel(&program.steps[factor.maker]);
    let by_reduction = |value: usize| made.is_none_or(|made| moves_with(made, value).is_none());
    let computed = [factor.bytes.zero, factor.bytes.scale].into_iter().flatten().any(by_reduction);
    if computed || !factor.is_fixed(program, k.outer.len()) {
        return Err("its right factor's zero point or scale is another one along the sum");
    }
    if source.transform.is_some() || !program.containers[param].is_plain() {
        return Err("its right factor is made of a parameter, or lies in another order");
    }
    let sums = sums(k, &program.containers[param], &index);
    Ok(Right { factor, param, index, source, sums })
}

/// Returns the column sums of a parameter if one of its axes is indexed by the columns, and the contraction reduces
/// over each other axis once.
fn sums(k: &Kernel, param: &Container, index: &[Dim]) -> Option<Sums> {
    let n_outer = k.outer.len();
    let column = |d: &Dim| d.variables().iter().any(|v| *v < n_outer);
    let axis = index.iter().position(column)?;
    let mut open: Vec<usize> = (n_outer..k.n_vars()).collect();
    for (at, d) in index.iter().enumerate().filter(|(at, _)| *at != axis) {
        let dim = &param.dims[at];
        match d.as_variable().and_then(|v| open.iter().position(|o| *o == v)) {
            Some(found) if k.extents().nth(open[found]) == Some(dim) => drop(open.remove(found)),
            _ if dim.is_const(1) && d.is_const(0) => {}
            _ => return None,
        }
    }
    open.retain(|v| !k.extents().nth(*v).is_some_and(|n| n.is_const(1)));
    let transform = match axis {
        0 => Transform::RowSums,
        _ if axis + 1 == index.len() => Transform::ColumnSums,
        _ => return None,
    };
    let alone = index[axis].variables().iter().all(|v| *v < n_outer) && open.is_empty();
    let container = transform.gives(param).filter(|_| alone)?;
    Some(Sums { transform, container, index: index[axis].clone() })
}

/// Adds a parameter that is transformed when the artifact is written.
fn made_of(program: &mut Program, source: &Source, transform: Transform, container: Container) -> Id {
    let id = program.container(container);
    let source = Source { transform: Some(transform), ..source.clone() };
    let op = FlowOp::Param { source, window: None };
    program.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
    id
}
