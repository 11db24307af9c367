//! SequenceAt(SequenceConstruct(x, y), 1)  =>  y; operations on elements unknown at compile time become host operations

use super::builder::Builder;
use super::held::Held;
use super::node::Node;
use super::recur::{Loop, Turned, truth};
use super::texts;
use sardonyx_base::host::DataOp;
use sardonyx_base::{DType, Dim, HostOp, Result, Tensor};
use sardonyx_dialects::sdx::{TensorType, Value};

type Outputs = Result<Vec<Value>>;

/// Maximum number of elements of a sequence that is tracked at compile time.
const KNOWN_MAX: usize = 1024;

/// Maximum number of columns of a sparse map.
const COLUMNS_MAX: i64 = 1 << 20;

fn host(b: &mut Builder, op: DataOp, args: &[Value], ty: TensorType, fresh: &[String]) -> Result<Value> {
    Ok(b.host(HostOp::Data(op), args, &[ty], fresh)?.remove(0))
}

/// Returns a new opaque value that the host computes; `elements` are its elements, if they are known at compile time.
fn value(b: &mut Builder, op: DataOp, args: &[Value], held: Held, elements: Option<Vec<Value>>) -> Outputs {
    let v = host(b, op, args, TensorType::new(DType::Value, vec![]), &[])?;
    b.hold(v, held);
    if let Some(elements) = elements.filter(|e| e.len() <= KNOWN_MAX) {
        b.elements.insert(v, elements);
    }
    Ok(vec![v])
}

fn sequence_of(b: &Builder, node: &Node, v: Value) -> Result<Held> {
    match b.held(v) {
        Held::Sequence(of) => Ok(*of),
        Held::Unknown => Ok(Held::Unknown),
        other @ (Held::Tensor { .. } | Held::Optional(_) | Held::Map(_)) => {
            Err(node.error("E0107", format!("takes a sequence, not {other}")))
        }
    }
}

/// Returns the position `at` if it is a constant from 0 to n - 1 or, if `inclusive`, n; a negative one counts from the
/// end. Without `at`, returns the last of these positions.
fn known_position(b: &Builder, at: Option<Value>, n: usize, inclusive: bool) -> Option<usize> {
    let Some(at) = at else { return if inclusive { Some(n) } else { n.checked_sub(1) } };
    let [at] = b.constants(at)?[..] else { return None };
    let at = usize::try_from(if at < 0 { at.checked_add(n as i64)? } else { at }).ok()?;
    (at < n || (inclusive && at == n)).then_some(at)
}

pub fn construct(b: &mut Builder, node: &Node) -> Outputs {
    let all = node.all_inputs()?;
    let of = all.iter().map(|v| b.held(*v)).reduce(|a, c| a.joined(&c)).unwrap_or(Held::Unknown);
    value(b, DataOp::SequenceConstruct, &all, Held::Sequence(Box::new(of)), Some(all.clone()))
}

pub fn empty(b: &mut Builder, node: &Node) -> Outputs {
    let dtype = node.dtype("dtype")?.unwrap_or(DType::F32);
    value(b, DataOp::SequenceConstruct, &[], Held::Sequence(Box::new(Held::Tensor { dtype, rank: None })), Some(vec![]))
}

pub fn at(b: &mut Builder, node: &Node) -> Outputs {
    let (s, at) = (node.input(0)?, node.input(1)?);
    Ok(vec![element(b, node, s, at)?])
}

fn element(b: &mut Builder, node: &Node, s: Value, at: Value) -> Result<Value> {
    let of = sequence_of(b, node, s)?;
    if let Some(elements) = b.elements.get(&s)
        && let Some(at) = known_position(b, Some(at), elements.len(), false)
    {
        return Ok(elements[at]);
    }
    let (ty, fresh) = b.type_of(&of)?;
    let v = host(b, DataOp::SequenceAt, &[s, at], ty, &fresh)?;
    b.hold(v, of);
    Ok(v)
}

pub fn insert(b: &mut Builder, node: &Node) -> Outputs {
    let (s, v, at) = (node.input(0)?, node.input(1)?, node.optional(2));
    let of = sequence_of(b, node, s)?;
    // An empty sequence does not determine a rank.
    let of = if b.elements.get(&s).is_some_and(Vec::is_empty) { b.held(v) } else { of.grown(&b.held(v)) };
    let elements = b.elements.get(&s).cloned().and_then(|mut all| {
        all.insert(known_position(b, at, all.len(), true)?, v);
        Some(all)
    });
    let args: Vec<Value> = [s, v].into_iter().chain(at).collect();
    value(b, DataOp::SequenceInsert, &args, Held::Sequence(Box::new(of)), elements)
}

pub fn erase(b: &mut Builder, node: &Node) -> Outputs {
    let (s, at) = (node.input(0)?, node.optional(1));
    let of = sequence_of(b, node, s)?;
    let elements = b.elements.get(&s).cloned().and_then(|mut all| {
        all.remove(known_position(b, at, all.len(), false)?);
        Some(all)
    });
    let args: Vec<Value> = [s].into_iter().chain(at).collect();
    value(b, DataOp::SequenceErase, &args, Held::Sequence(Box::new(of)), elements)
}

pub fn length(b: &mut Builder, node: &Node) -> Outputs {
    let s = node.input(0)?;
    sequence_of(b, node, s)?;
    if let Some(elements) = b.elements.get(&s) {
        let n = Dim::constant(elements.len() as i64);
        return Ok(vec![b.dims_scalar(n)?]);
    }
    Ok(vec![host(b, DataOp::SequenceLength, &[s], TensorType::new(DType::I64, vec![]), &[])?])
}

/// Keys of maps, from one of two attributes.
fn keys(node: &Node, strings: &str, integers: &str) -> Result<Tensor> {
    match (node.strs(strings)?, node.ints(integers)?) {
        (Some(names), None) => Ok(Tensor::from_strings(vec![names.len()], &names)),
        (None, Some(numbers)) => Ok(Tensor::from_vec(vec![numbers.len()], numbers)),
        _ => Err(node.error("E0106", format!("takes `{strings}` or `{integers}`, one of them"))),
    }
}

/// ai.onnx.ml ZipMap: one map from class to probability per row, in the form that the classifiers of scikit-learn
/// return.
pub fn zip_map(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let keys = keys(node, "classlabels_strings", "classlabels_int64s")?;
    let (1 | 2, Some(last)) = (b.rank(x), b.dims(x).last().cloned()) else {
        return Err(node.error("E0201", format!("takes rows, not {}", b.ty(x))));
    };
    b.unify(&last, &Dim::constant(keys.len() as i64))?;
    let keys = b.constant(keys)?;
    let of = Held::Map(Box::new(Held::Tensor { dtype: b.dtype(x), rank: Some(0) }));
    value(b, DataOp::ZipMap, &[x, keys], Held::Sequence(Box::new(of)), None)
}

/// ai.onnx.ml DictVectorizer: the map's value for each word of the vocabulary, 0 (or "") for missing words.
pub fn dict_vectorizer(b: &mut Builder, node: &Node) -> Outputs {
    let words = keys(node, "string_vocabulary", "int64_vocabulary")?;
    let (words, dtype) = (b.constant(words)?, map_values(b, node)?);
    let absent = match dtype {
        DType::String => b.constant(Tensor::from_strings(vec![], &[""]))?,
        _ => b.splat(dtype, 0.0, &[])?,
    };
    Ok(vec![values_of_keys(b, node, words, absent)?])
}

/// Element type of the values of the map that the node takes.
fn map_values(b: &Builder, node: &Node) -> Result<DType> {
    let map = node.input(0)?;
    let Held::Map(of) = b.held(map) else {
        return Err(node.error("E0107", format!("takes a map, not {}", b.held(map))));
    };
    match *of {
        Held::Tensor { dtype, .. } => Ok(dtype),
        of => Err(node.error("E0107", format!("takes a map of numbers, not of {of}"))),
    }
}

/// Returns, as [1, k], the map's values for `k` keys, and `absent` for keys that it lacks.
fn values_of_keys(b: &mut Builder, node: &Node, keys: Value, absent: Value) -> Result<Value> {
    let ty = TensorType::new(b.dtype(absent), vec![Dim::constant(1), b.dims(keys)[0].clone()]);
    host(b, DataOp::DictVectorizer, &[node.input(0)?, keys, absent], ty, &[])
}

/// CastMap with `map_form` SPARSE: values at the positions that their keys give, zeros elsewhere.
pub fn cast_map(b: &mut Builder, node: &Node) -> Outputs {
    let (form, n) = (node.str_or("map_form", "DENSE")?, node.int_or("max_map", 1)?);
    if form != "SPARSE" {
        let reason = format!("the form {form} has as many columns as the map of a call has keys");
        return Err(node.error("E0101", reason).help("convert the model with map_form=SPARSE and max_map"));
    }
    if !(1..=COLUMNS_MAX).contains(&n) {
        return Err(node.error("E0106", format!("`max_map` = {n} is not in 1 to {COLUMNS_MAX}")));
    }
    let to = match node.str_or("cast_to", "TO_FLOAT")?.as_str() {
        "TO_FLOAT" => DType::F32,
        "TO_INT64" => DType::I64,
        "TO_STRING" => DType::String,
        other => return Err(node.error("E0106", format!("`cast_to` = {other} is not known"))),
    };
    let keys = b.constant(Tensor::from_vec(vec![n as usize], (0..n).collect::<Vec<_>>()))?;
    let absent = match map_values(b, node)? {
        DType::String => b.constant(Tensor::from_strings(vec![], &["0"]))?,
        dtype => b.splat(dtype, 0.0, &[])?,
    };
    let values = values_of_keys(b, node, keys, absent)?;
    let number = b.dtype(values) != DType::String && to != DType::String;
    Ok(vec![if number { b.convert(values, to)? } else { texts::cast(b, values, to)? }])
}

pub fn split(b: &mut Builder, node: &Node) -> Outputs {
    let (x, by) = (node.input(0)?, node.optional(1));
    let axis = node.axis(node.int_or("axis", 0)?, b.rank(x))?;
    let keep = by.is_some() || node.int_or("keepdims", 1)? != 0;
    let rank = b.rank(x) - usize::from(!keep);
    let of = Held::Tensor { dtype: b.dtype(x), rank: Some(rank) };
    let elements = parts(b, x, by, axis, keep)?;
    let args: Vec<Value> = [x].into_iter().chain(by).collect();
    let op = DataOp::SplitToSequence { axis: axis as i64, keep };
    value(b, op, &args, Held::Sequence(Box::new(of)), elements)
}

/// Returns the parts, if their number and lengths are constant and there are at most `KNOWN_MAX` of them.
fn parts(b: &mut Builder, x: Value, by: Option<Value>, axis: usize, keep: bool) -> Result<Option<Vec<Value>>> {
    let Some(n) = b.dims(x)[axis].as_const() else { return Ok(None) };
    let lengths = match by {
        None => vec![1; usize::try_from(n).unwrap_or(0).min(KNOWN_MAX + 1)],
        Some(by) => match (b.rank(by), b.constants(by)) {
            (0, Some(each)) if each[0] > 0 && n / each[0] <= KNOWN_MAX as i64 => {
                let full = vec![each[0]; (n / each[0]) as usize];
                full.into_iter().chain((n % each[0] > 0).then_some(n % each[0])).collect()
            }
            (1, Some(lengths)) => lengths,
            (_, _) => return Ok(None),
        },
    };
    let sum = lengths.iter().try_fold(0i64, |sum, l| if *l < 0 { None } else { sum.checked_add(*l) });
    if lengths.len() > KNOWN_MAX || sum != Some(n) || b.dtype(x).is_opaque() {
        return Ok(None);
    }
    let (mut start, mut out) = (0, vec![]);
    for length in lengths {
        let part = b.slice_axis(x, axis, Dim::constant(start), 1, Dim::constant(length))?;
        let mut dims = b.dims(part);
        if !keep {
            dims.remove(axis);
        }
        out.push(b.reshape(part, &dims)?);
        start += length;
    }
    Ok(Some(out))
}

pub fn concat(b: &mut Builder, node: &Node) -> Outputs {
    let s = node.input(0)?;
    let of = sequence_of(b, node, s)?;
    let given = node.require("axis", node.int("axis")?)?;
    let new_axis = node.int_or("new_axis", 0)? != 0;
    if let Some(elements) = b.elements.get(&s).cloned().filter(|e| !e.is_empty() && !b.dtype(e[0]).is_opaque()) {
        let axis = node.axis(given, b.rank(elements[0]) + usize::from(new_axis))?;
        let mut shaped = vec![];
        for v in elements {
            let mut dims = b.dims(v);
            if new_axis && axis <= dims.len() {
                dims.insert(axis, Dim::constant(1));
            }
            shaped.push(b.reshape(v, &dims)?);
        }
        return Ok(vec![b.concat(axis, &shaped)?]);
    }
    let of = match of {
        Held::Tensor { dtype, rank } => Held::Tensor { dtype, rank: rank.map(|r| r + usize::from(new_axis)) },
        other @ (Held::Sequence(_) | Held::Optional(_) | Held::Map(_) | Held::Unknown) => other,
    };
    let (ty, fresh) = b.type_of(&of)?;
    Ok(vec![host(b, DataOp::ConcatFromSequence { axis: given, new_axis }, &[s], ty, &fresh)?])
}

pub fn optional(b: &mut Builder, node: &Node) -> Outputs {
    let inside = node.optional(0);
    let held = match inside {
        Some(v) => b.held(v),
        None => Held::parse(&node.str_or("type", "?")?),
    };
    let args: Vec<Value> = inside.into_iter().collect();
    value(b, DataOp::Optional, &args, Held::Optional(Box::new(held)), Some(args.clone()))
}

/// Whether an optional has an element; any other value is always present.
pub fn has_element(b: &mut Builder, node: &Node) -> Outputs {
    let given = node.optional(0);
    let known = match given {
        None => Some(false),
        Some(v) => match b.held(v) {
            Held::Optional(_) | Held::Unknown => b.elements.get(&v).map(|e| !e.is_empty()),
            Held::Tensor { .. } | Held::Sequence(_) | Held::Map(_) => Some(true),
        },
    };
    if let Some(known) = known {
        return Ok(vec![b.constant(Tensor::from_vec(vec![], vec![known]))?]);
    }
    let args: Vec<Value> = given.into_iter().collect();
    Ok(vec![host(b, DataOp::OptionalHasElement, &args, TensorType::new(DType::Bool, vec![]), &[])?])
}

pub fn get_element(b: &mut Builder, node: &Node) -> Outputs {
    let v = node.input(0)?;
    let of = match b.held(v) {
        Held::Optional(of) => *of,
        Held::Unknown => Held::Unknown,
        Held::Tensor { .. } | Held::Sequence(_) | Held::Map(_) => return Ok(vec![v]),
    };
    if let Some([only]) = b.elements.get(&v).map(Vec::as_slice) {
        return Ok(vec![*only]);
    }
    let (ty, fresh) = b.type_of(&of)?;
    let out = host(b, DataOp::OptionalGetElement, &[v], ty, &fresh)?;
    b.hold(out, of);
    Ok(vec![out])
}

/// Runs the body for each element of the first sequence. The other inputs are sequences of the same length, or values
/// that are the same for all elements.
pub fn map(b: &mut Builder, node: &Node) -> Outputs {
    let block = node.body("body")?;
    let inputs = node.all_inputs()?;
    let first = *inputs.first().ok_or_else(|| node.error("E0103", "input 0 is missing"))?;
    let n = match b.elements.get(&first) {
        Some(elements) => b.dims_scalar(Dim::constant(elements.len() as i64))?,
        None => host(b, DataOp::SequenceLength, &[first], TensorType::new(DType::I64, vec![]), &[])?,
    };
    let is_sequence: Vec<bool> = inputs.iter().map(|v| matches!(b.held(*v), Held::Sequence(_))).collect();
    let outer = super::control::captures(b, block);
    let captured: Vec<Value> = inputs.iter().copied().chain(outer.iter().map(|(_, v)| *v)).collect();
    let n_outputs = node.n_outputs;
    let mut empties = vec![];
    for _ in 0..n_outputs {
        let held = Held::Sequence(Box::new(Held::Unknown));
        empties.extend(value(b, DataOp::SequenceConstruct, &[], held, Some(vec![]))?);
    }
    let start = b.constant(truth())?;
    let turns = Loop { trips: n, start, carried: &empties, captured: &captured };
    let (out, _) = b.iterate(&turns, &mut |b, turn| {
        let (own, around) = turn.captured.split_at(inputs.len());
        super::control::enter(b, &outer, around);
        let mut given = vec![];
        for (&v, sequence) in own.iter().zip(&is_sequence) {
            given.push(if *sequence { element(b, node, v, turn.index)? } else { v });
        }
        let done = super::lower_block(b, block, &given)?;
        let mut carried = vec![];
        for (&s, &v) in turn.carried.iter().zip(&done) {
            let of = Held::Sequence(Box::new(b.held(v)));
            let elements = b.elements.get(&s).cloned().map(|all| [all, vec![v]].concat());
            carried.extend(value(b, DataOp::SequenceInsert, &[s, v], of, elements)?);
        }
        let goes_on = b.constant(truth())?;
        Ok(Turned { goes_on, carried, stacked: vec![] })
    })?;
    Ok(out)
}
