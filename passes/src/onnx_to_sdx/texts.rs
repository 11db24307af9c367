//! StringSplit, LabelEncoder, TfIdfVectorizer, ImageDecoder  =>  host operations; numbers are looked up by kernels

use super::builder::Builder;
use super::node::Node;
use sardonyx_base::host::{Case, DataOp, Ngrams, Pixels, Weighing};
use sardonyx_base::{DType, Dim, HostOp, Result, Tensor};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

fn host(b: &mut Builder, op: DataOp, args: &[Value], ty: TensorType, fresh: &[String]) -> Result<Value> {
    Ok(b.host(HostOp::Data(op), args, &[ty], fresh)?.remove(0))
}

fn strings(b: &mut Builder, values: &[String]) -> Result<Value> {
    b.constant(Tensor::from_strings(vec![values.len()], values))
}

fn check(b: &Builder, node: &Node, v: Value, dtype: DType) -> Result<()> {
    match b.dtype(v) == dtype {
        true => Ok(()),
        false => Err(node.error("E0107", format!("takes {dtype}, not {}", b.dtype(v)))),
    }
}

/// Returns the dimensions to which two operands broadcast.
fn common(b: &mut Builder, x: Value, y: Value) -> Result<Vec<Dim>> {
    // Only the shapes matter, so integer tensors of the same shapes take the place of the operands.
    let stand = |b: &mut Builder, v: Value| {
        let dims = b.dims(v);
        b.splat(DType::I64, 0.0, &dims)
    };
    let (x, y) = (stand(b, x)?, stand(b, y)?);
    let both = b.broadcast_all(&[x, y])?;
    Ok(b.dims(both[0]))
}

pub fn concat(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(1)?);
    check(b, node, x, DType::String)?;
    check(b, node, y, DType::String)?;
    let dims = common(b, x, y)?;
    Ok(vec![host(b, DataOp::StringConcat, &[x, y], TensorType::new(DType::String, dims), &[])?])
}

pub fn equal(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(1)?);
    if b.dtype(x) != DType::String {
        return super::elementwise::map(b, node, ScalarFn::Eq, false);
    }
    check(b, node, y, DType::String)?;
    let dims = common(b, x, y)?;
    Ok(vec![host(b, DataOp::StringEqual, &[x, y], TensorType::new(DType::Bool, dims), &[])?])
}

pub fn split(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check(b, node, x, DType::String)?;
    let delimiter = strings(b, &[node.str_or("delimiter", "")?])?;
    let limit = node.int_or("maxsplit", -1)?;
    let (widest, dims) = (b.data_symbol(), b.dims(x));
    let wide = dims.iter().cloned().chain([Dim::symbol(&widest)]).collect::<Vec<_>>();
    let types = [TensorType::new(DType::String, wide), TensorType::new(DType::I64, dims)];
    b.host(HostOp::Data(DataOp::StringSplit { limit }), &[x, delimiter], &types, &[widest])
}

pub fn normalize(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check(b, node, x, DType::String)?;
    let case = match node.str_or("case_change_action", "NONE")?.as_str() {
        "NONE" => Case::None,
        "LOWER" => Case::Lower,
        "UPPER" => Case::Upper,
        other => return Err(node.error("E0106", format!("`case_change_action` = {other} is not known"))),
    };
    let sensitive = node.int_or("is_case_sensitive", 0)? != 0;
    let stop = strings(b, &node.strs("stopwords")?.unwrap_or_default())?;
    let symbol = b.data_symbol();
    let mut dims = b.dims(x);
    match dims.last_mut() {
        Some(last) => *last = Dim::symbol(&symbol),
        None => return Err(node.error("E0201", "takes [n] or [1, n] strings, not one alone")),
    }
    let op = DataOp::StringNormalizer { case, sensitive };
    Ok(vec![host(b, op, &[x, stop], TensorType::new(DType::String, dims), &[symbol])?])
}

pub fn full_match(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check(b, node, x, DType::String)?;
    let pattern = strings(b, &[node.str_or("pattern", "")?])?;
    let ty = TensorType::new(DType::Bool, b.dims(x));
    Ok(vec![host(b, DataOp::RegexFullMatch, &[x, pattern], ty, &[])?])
}

/// Converts numbers to strings, or strings to numbers.
pub fn cast(b: &mut Builder, x: Value, to: DType) -> Result<Value> {
    if b.dtype(x) == to {
        return Ok(x);
    }
    let dims = b.dims(x);
    if to == DType::String {
        return host(b, DataOp::StringFromNumbers, &[x], TensorType::new(to, dims), &[]);
    }
    let float = to.is_float();
    let read = if float { DType::F64 } else { DType::I64 };
    let number = host(b, DataOp::StringToNumbers { float }, &[x], TensorType::new(read, dims), &[])?;
    b.convert(number, to)
}

/// A list given by attributes: strings, i64, floats, or a tensor.
fn list(node: &Node, stem: &str) -> Result<Option<Tensor>> {
    if let Some(strings) = node.strs(&format!("{stem}_strings"))? {
        return Ok(Some(Tensor::from_strings(vec![strings.len()], &strings)));
    }
    if let Some(numbers) = node.ints(&format!("{stem}_int64s"))? {
        return Ok(Some(Tensor::from_vec(vec![numbers.len()], numbers)));
    }
    if let Some(numbers) = node.floats(&format!("{stem}_floats"))? {
        let numbers: Vec<f32> = numbers.into_iter().map(|v| v as f32).collect();
        return Ok(Some(Tensor::from_vec(vec![numbers.len()], numbers)));
    }
    node.tensor(&format!("{stem}_tensor"))
}

/// Returns the index of each element among the keys, or the number of keys if the element is none of them. A kernel
/// compares numbers; the host compares strings.
fn look_up(b: &mut Builder, x: Value, keys: Tensor) -> Result<Value> {
    let (n, dims) = (keys.len(), b.dims(x));
    let floats = keys.dtype().is_float();
    if keys.dtype() == DType::String {
        let keys = b.constant(keys)?;
        return host(b, DataOp::LookUp, &[x, keys], TensorType::new(DType::I64, dims), &[]);
    }
    let wide: Vec<Dim> = dims.iter().cloned().chain([Dim::constant(n as i64)]).collect();
    let rank = dims.len();
    let keys = b.constant(keys)?;
    let keys = b.broadcast_at(keys, vec![rank], &wide)?;
    let each = b.broadcast_at(x, (0..rank).collect(), &wide)?;
    let mut found = b.map2(ScalarFn::Eq, each, keys)?;
    if floats {
        // A NaN matches a key that is NaN.
        let (a, c) = (b.map1(ScalarFn::IsNan, each)?, b.map1(ScalarFn::IsNan, keys)?);
        let both = b.map2(ScalarFn::And, a, c)?;
        found = b.map2(ScalarFn::Or, found, both)?;
    }
    let at = b.add_typed(Op::Iota { axis: rank }, &[], Some(TensorType::new(DType::I64, wide.clone())))?;
    let none = b.splat(DType::I64, n as f64, &wide)?;
    let place = b.select(found, at, none)?;
    // Without keys the reduction has no elements.
    let most = b.splat(DType::I64, n as f64, &dims)?;
    let least = b.reduce(ReduceFn::Min, place, &[rank], false)?;
    b.map2(ScalarFn::Min, least, most)
}

pub fn label_encoder(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let (keys, values) = match node.strs("classes_strings")? {
        // CategoryMapper maps names to numbers or numbers to names.
        _ if node.op_type == "CategoryMapper" => {
            let (names, numbers) = (list(node, "cats")?, node.ints("cats_int64s")?);
            let names = node.require("cats_strings", names.filter(|n| n.dtype() == DType::String))?;
            let numbers = node.require("cats_int64s", numbers)?;
            let numbers = Tensor::from_vec(vec![numbers.len()], numbers);
            if b.dtype(x) == DType::String { (names, numbers) } else { (numbers, names) }
        }
        // The first version of the operator maps names to their indices, or indices to names.
        Some(classes) => {
            let names = Tensor::from_strings(vec![classes.len()], &classes);
            let numbers = Tensor::from_vec(vec![classes.len()], (0..classes.len() as i64).collect::<Vec<_>>());
            if b.dtype(x) == DType::String { (names, numbers) } else { (numbers, names) }
        }
        None => {
            let keys = node.require("keys_*", list(node, "keys")?)?;
            (keys, node.require("values_*", list(node, "values")?)?)
        }
    };
    if keys.len() != values.len() {
        return Err(node.error("E0106", format!("{} keys have {} values", keys.len(), values.len())));
    }
    check(b, node, x, keys.dtype())?;
    let default = match (node.tensor("default_tensor")?, values.dtype()) {
        (Some(t), _) => t,
        (None, DType::String) => Tensor::from_strings(vec![1], &[node.str_or("default_string", "_Unused")?]),
        (None, DType::I64) => Tensor::from_vec(vec![1], vec![node.int_or("default_int64", -1)?]),
        (None, DType::F32) => Tensor::from_vec(vec![1], vec![node.float_or("default_float", -0.0)? as f32]),
        (None, other) => return Err(node.error("E0106", format!("`default_tensor` of type {other} is missing"))),
    };
    if default.dtype() != values.dtype() || default.len() != 1 {
        return Err(node.error("E0106", "the default is not one value of the values' type"));
    }
    let place = look_up(b, x, keys)?;
    let n = values.len();
    if values.dtype() == DType::String {
        let all: Vec<&[u8]> = values.strings().into_iter().chain(default.strings()).flatten().collect();
        let all = b.constant(Tensor::from_strings(vec![n + 1], &all))?;
        let ty = TensorType::new(DType::String, b.dims(place));
        return Ok(vec![host(b, DataOp::Pick, &[all, place], ty, &[])?]);
    }
    let bytes = [&values.bytes()[..], &default.bytes()[..]].concat();
    let all = b.constant(Tensor::new(values.dtype(), vec![n + 1], bytes.into())?)?;
    Ok(vec![b.add(Op::Gather { axis: 0 }, &[all, place])?])
}

pub fn tf_idf(b: &mut Builder, node: &Node) -> Outputs {
    let mut x = node.input(0)?;
    let size = |name: &str| -> Result<usize> {
        let v = node.require(name, node.int(name)?)?;
        usize::try_from(v).map_err(|_| node.error("E0106", format!("`{name}` = {v} is negative")))
    };
    let weighing = match node.str_or("mode", "")?.as_str() {
        "TF" => Weighing::Tf,
        "IDF" => Weighing::Idf,
        "TFIDF" => Weighing::TfIdf,
        other => return Err(node.error("E0106", format!("`mode` = {other} is not TF, IDF or TFIDF"))),
    };
    let lengths = (size("min_gram_length")?, size("max_gram_length")?);
    let ngrams = Ngrams { lengths, skip_max: size("max_skip_count")?, weighing };
    let pool = match (node.strs("pool_strings")?, node.ints("pool_int64s")?) {
        (Some(pool), _) => Tensor::from_strings(vec![pool.len()], &pool),
        (None, Some(pool)) => {
            x = b.convert(x, DType::I64)?;
            Tensor::from_vec(vec![pool.len()], pool)
        }
        (None, None) => return Err(node.error("E0106", "neither `pool_strings` nor `pool_int64s` is given")),
    };
    check(b, node, x, pool.dtype())?;
    let numbers = |name: &str| node.require(name, node.ints(name)?);
    let (starts, columns) = (numbers("ngram_counts")?, numbers("ngram_indexes")?);
    let width = columns.iter().max().map_or(0, |m| m.saturating_add(1));
    let weights = node.floats("weights")?.unwrap_or_else(|| vec![1.0; columns.len()]);
    let weights: Vec<f32> = weights.into_iter().map(|w| w as f32).collect();
    let mut dims = b.dims(x);
    match dims.last_mut() {
        Some(last) if width >= 0 => *last = Dim::constant(width),
        Some(_) | None => return Err(node.error("E0201", format!("{} is neither a row nor rows", b.ty(x)))),
    }
    let vector = |b: &mut Builder, v: Vec<i64>| b.constant(Tensor::from_vec(vec![v.len()], v));
    let (starts, columns) = (vector(b, starts)?, vector(b, columns)?);
    let (pool, weights) = (b.constant(pool)?, b.constant(Tensor::from_vec(vec![weights.len()], weights))?);
    let ty = TensorType::new(DType::F32, dims);
    Ok(vec![host(b, DataOp::TfIdf(ngrams), &[x, pool, starts, columns, weights], ty, &[])?])
}

pub fn image_decoder(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check(b, node, x, DType::U8)?;
    let (pixels, channels) = match node.str_or("pixel_format", "RGB")?.as_str() {
        "RGB" => (Pixels::Rgb, 3),
        "BGR" => (Pixels::Bgr, 3),
        "Grayscale" => (Pixels::Grayscale, 1),
        other => return Err(node.error("E0106", format!("`pixel_format` = {other} is not RGB, BGR or Grayscale"))),
    };
    let fresh = [b.data_symbol(), b.data_symbol()];
    let dims = vec![Dim::symbol(&fresh[0]), Dim::symbol(&fresh[1]), Dim::constant(channels)];
    Ok(vec![host(b, DataOp::ImageDecoder { pixels }, &[x], TensorType::new(DType::U8, dims), &fresh)?])
}
