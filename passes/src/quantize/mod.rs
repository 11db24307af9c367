//! contract(x, w)  =>  contract(s · q(x), t · q(w)): on request, operands become quantised codes times a scale
//!
//! Weights have a scale for each column, or for each group of weights in a column, which is computed when the artifact
//! is written. The operand that they are multiplied by has a scale for each row, computed at run time from the row, or
//! is not quantised. A table whose rows are looked up has a scale for each row and 8-bit codes; the last contraction of
//! a model keeps 8 bits, too. Weights and rows have no zero point: 0 stays 0, and a row of zeros has a valid scale.
//! Images with a calibrated range have one scale and a zero point. Sums of integer products are exact, so precision is
//! lost only where operands are rounded. This pass changes values only; later passes multiply bytes as bytes, and store
//! the codes in the artifact.

mod builder;
mod codes;
mod grid;
mod products;
pub(crate) mod sites;

pub use codes::SHARES;
use products::Meanings;
pub use products::{Product, Table, images, products, tables};

use crate::calibrated::{CodeType, Rounding};
use crate::options::{Activations, Group, Options, Quantize};
use crate::remark::Missed;
use crate::rewrite::Rewrites;
pub(crate) use builder::Builder;
pub(crate) use codes::Coded;
use codes::{Form, from_parameters, in_groups, in_range};
use grid::grid;
use sardonyx_base::{Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::sdx::{Graph, Node, Op, Value};
use sites::{Other, Site, constants, last_products, site, source};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Number of 4-bit codes in four bytes; group sizes must be multiples of this number.
const CODES_MIN: i64 = 8;

/// Quantises the functions of a module as the options request; does nothing if `quantize` is `None`.
pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    if rewrites.options().quantize == Quantize::None {
        return Ok(());
    }
    rewrites.graphs(module, |rewrites, graph| {
        *graph = quantized(graph, rewrites)?;
        Ok(())
    })
}

/// Quantises a value to bytes with one scale along an axis, and dequantises it again.
pub fn as_bytes(graph: &mut Graph, x: Value, axis: usize) -> Result<Value> {
    Coded::new(graph, x, &[axis], CodeType::BYTES, &[])?.value(graph, &[])
}

fn quantized(graph: &Graph, rewrites: &mut Rewrites) -> Result<Graph> {
    let (constant, last) = (constants(graph), last_products(graph));
    let (meanings, calibrated) = (Meanings::new(graph), rewrites.options().calibrated.clone());
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut map: Vec<Value> = vec![];
    // Dequantised values; the key is the original value and its reduction axes.
    let mut made: HashMap<(Value, Vec<usize>), Value> = HashMap::new();
    for (_, node) in graph.values() {
        let mut new = Node { args: node.args.iter().map(|a| map[a.index()]).collect(), ..node.clone() };
        let kept = rewrites.options().keeps(&node.origins);
        let found = match site(graph, node, &constant) {
            Ok(Some(_)) if kept => Err("it was asked for"),
            found => found,
        };
        let range = |operand: usize| {
            let from = source(graph, node.args[operand]);
            calibrated.range(meanings.value(from)).map(|range| (from, range))
        };
        let found = match found {
            Ok(Some(Site::Product { weights, other: Other::Window, .. })) if range(1 - weights).is_none() => {
                Err("what a convolution reads has no rows: it needs one scale, from `--calibrate`")
            }
            found => found,
        };
        match found {
            Ok(Some(Site::Product { summed, weights, other })) if rewrites.allow("codes", &node.origins) => {
                let options = rewrites.options();
                let form = match options.quantize {
                    Quantize::Lossless => exact(&out, new.args[weights], &summed[weights], &options.params)?,
                    Quantize::Auto => chosen(options, (graph, &meanings), node.args[weights], &summed[weights]),
                    _ => Some(form(options, (&out, new.args[weights]), &summed[weights], last[map.len()])),
                };
                let Some(form) = form else {
                    let why = match options.quantize {
                        Quantize::Auto => "codes would lose more than the error budget has for them",
                        _ => "they lie on no grid",
                    };
                    let node = node.origins.first().cloned();
                    rewrites.missed(Missed { node, ..Missed::because("weights stay in f32", why) });
                    map.push(out.push(new));
                    continue;
                };
                for (at, (arg, axes)) in new.args.iter_mut().zip(summed).enumerate() {
                    let form = match (at == weights, rewrites.options().activations()) {
                        (true, _) => form,
                        (false, Activations::Int8) => Form::Whole(CodeType::BYTES),
                        (false, Activations::F32) => continue,
                    };
                    let found = range(at).filter(|_| at != weights && other != Other::Rows);
                    // A value with a calibrated range has a single scale, whatever the reduction axes.
                    let key = match found {
                        Some((from, _)) => (map[from.index()], vec![]),
                        None => (*arg, axes),
                    };
                    let value = match (made.get(&key), found) {
                        (Some(value), _) => *value,
                        (None, Some((_, range))) => in_range(&mut out, key.0, range, &node.origins)?,
                        (None, None) => {
                            let rounding = calibrated.rounding(meanings.weights(node.args[at], key.1[0]));
                            let rounding = rounding.filter(|_| at == weights);
                            rounded(&mut out, (*arg, &key.1), (form, rounding), &node.origins)?
                        }
                    };
                    made.insert(key, value);
                    *arg = match found {
                        Some((from, _)) => moved_alike(graph, &mut out, (node.args[at], from), &map, value)?,
                        None => value,
                    };
                }
            }
            Ok(Some(Site::Rows)) if rewrites.options().quantize == Quantize::Lossless => {
                let (table, indices) = (new.args[0], new.args[1]);
                let form = exact(&out, table, &[1], &rewrites.options().params)?;
                if let Some(form) = form.filter(|_| rewrites.allow("rows", &node.origins)) {
                    let coded = in_groups(&mut out, (table, 1), form, &node.origins)?;
                    map.push(coded.rows(&mut out, indices, &node.origins)?);
                    continue;
                }
            }
            Ok(Some(Site::Rows)) if !is_rounded(rewrites.options(), &meanings, node.args[0]) => {}
            Ok(Some(Site::Rows)) if rewrites.allow("rows", &node.origins) => {
                let (table, indices) = (new.args[0], new.args[1]);
                let coded = Coded::new(&mut out, table, &[1], code_of_rows(rewrites.options()), &node.origins)?;
                map.push(coded.rows(&mut out, indices, &node.origins)?);
                continue;
            }
            Ok(_) => {}
            Err(why) => {
                let node = node.origins.first().cloned();
                rewrites.missed(Missed { node, ..Missed::because("weights stay in f32", why) });
            }
        }
        map.push(out.push(new));
    }
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), map[v.index()])).collect();
    Ok(out)
}

/// Quantises an operand that is reduced over some axes, to codes of the given form or to the codes that calibration
/// stored, and dequantises it again.
fn rounded(
    out: &mut Graph,
    (x, axes): (Value, &[usize]),
    (form, rounding): (Form, Option<&Rounding>),
    origins: &[String],
) -> Result<Value> {
    let in_groups = match (rounding, form) {
        (Some(Rounding::Codes(found)), _) => from_parameters(out, (x, axes[0]), found, origins)?,
        (_, Form::Whole(code)) => return Coded::new(out, x, axes, code, origins)?.value(out, origins),
        (_, Form::Groups { .. } | Form::Grid(_)) => in_groups(out, (x, axes[0]), form, origins)?,
    };
    in_groups.value(out, origins)
}

/// Repeats on `value` the data movement that leads from `from` to `v` in the old graph; `map` gives the new value of
/// each old value.
fn moved_alike(
    graph: &Graph,
    out: &mut Graph,
    (v, from): (Value, Value),
    map: &[Value],
    value: Value,
) -> Result<Value> {
    if v == from {
        return Ok(value);
    }
    let node = graph.node(v);
    let mut args: Vec<Value> = node.args.iter().map(|arg| map[arg.index()]).collect();
    args[0] = moved_alike(graph, out, (node.args[0], from), map, value)?;
    Ok(out.push(Node { args, ..node.clone() }))
}

/// Returns the form that calibration chose for weights, or `None` if they stay in f32.
fn chosen(options: &Options, (graph, meanings): (&Graph, &Meanings), weights: Value, summed: &[usize]) -> Option<Form> {
    let &[axis] = summed else { return None };
    let whole = graph.ty(weights).dims[axis].as_const()?;
    match options.calibrated.rounding(meanings.weights(weights, axis))? {
        Rounding::Codes(codes) => Some(Form::Groups { code: codes.code, size: codes.size }),
        Rounding::Nearest if options.activations() == Activations::Int8 || whole % CODES_MIN != 0 => {
            Some(Form::Whole(CodeType::BYTES))
        }
        Rounding::Nearest => Some(Form::Groups { code: CodeType::BYTES, size: whole }),
    }
}

/// Returns the code type of tables whose rows are looked up.
fn code_of_rows(options: &Options) -> CodeType {
    options.quantize.code().filter(|code| matches!(code, CodeType::Float(_))).unwrap_or(CodeType::BYTES)
}

/// Whether the rows of a table are quantised.
fn is_rounded(options: &Options, meanings: &Meanings, table: Value) -> bool {
    options.quantize != Quantize::Auto || options.calibrated.rounding(meanings.weights(table, 1)).is_some()
}

/// Returns the form of weights that are reduced over these axes. The last contraction of a model keeps 8 bits, because
/// no later operation can compensate its error.
fn form(options: &Options, (graph, weights): (&Graph, Value), summed: &[usize], last: bool) -> Form {
    let code =
        options.quantize.code().filter(|code| !last || matches!(code, CodeType::Float(_))).unwrap_or(CodeType::BYTES);
    let (&[axis], Some(dims)) = (summed, graph.ty(weights).static_dims()) else { return Form::Whole(wide(code)) };
    let length = dims[axis] as i64;
    let size = match options.group() {
        Group::Of(size) if wide(code) != code || options.group.is_some() => size,
        Group::Of(_) | Group::Channel => length,
    };
    let size = if length % size == 0 { size } else { length };
    match options.activations() {
        _ if matches!(code, CodeType::Float(_)) && size == length => Form::Whole(code),
        Activations::Int8 if code == CodeType::BYTES && size == length => Form::Whole(code),
        _ if size % CODES_MIN != 0 => Form::Whole(wide(code)),
        Activations::Int8 | Activations::F32 => Form::Groups { code, size },
    }
}

/// Returns the 8-bit code type of the same kind (integer or float).
fn wide(code: CodeType) -> CodeType {
    match code {
        CodeType::Int(_) => CodeType::BYTES,
        CodeType::Float(_) => code,
    }
}

/// Returns the grid of weights that are reduced over these axes, as a form, or `None` if they are on no grid.
fn exact(graph: &Graph, weights: Value, summed: &[usize], params: &dyn ParamValues) -> Result<Option<Form>> {
    let &[axis] = summed else { return Ok(None) };
    let Some(values) = moved(graph, weights, params)?.and_then(|t| t.to_vec::<f32>().map(|v| (v, t.dims().to_vec())))
    else {
        return Ok(None);
    };
    let (values, dims) = values;
    let parts = [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()];
    let found = grid(&values, parts).filter(|grid| grid.size as i64 % CODES_MIN == 0);
    Ok(found.map(Form::Grid))
}

/// Returns the value of a parameter, or of a value computed from parameters by data movement only.
fn moved(graph: &Graph, v: Value, params: &dyn ParamValues) -> Result<Option<Tensor>> {
    let (mut part, mut open) = (BTreeSet::new(), vec![v]);
    while let Some(v) = open.pop() {
        let node = graph.node(v);
        match &node.op {
            Op::Param { parts, .. } if parts.is_empty() => {}
            Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Concat { .. } => {}
            _ => return Ok(None),
        }
        if part.insert(v) {
            open.extend(&node.args);
        }
    }
    let mut known: BTreeMap<Value, Tensor> = BTreeMap::new();
    for v in part {
        let node = graph.node(v);
        let args: Vec<Tensor> = node.args.iter().filter_map(|arg| known.get(arg).cloned()).collect();
        let value = match &node.op {
            Op::Param { name, .. } => params.value(name)?,
            _ => interp::evaluate(node, &args, &|_| None)?,
        };
        known.insert(v, value);
    }
    Ok(known.remove(&v))
}
