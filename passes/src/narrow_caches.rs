//! append(past, x)  =>  decode(append(codes, encode(x))): the rows of a cache are stored in fewer bits, on request
//!
//! New rows are rounded when they are written, and consumers of the cache read the rounded values, also in the call
//! that writes them. So one call over all positions gives the same results as one call per position. A cache is
//! replaced by one or two caches that grow along the same axis: a cache of codes and, for some formats, a cache of
//! scales or exponents. The caches of different entry points stay compatible, because all entry points are rewritten in
//! the same way.
//!
//! The format int8 has a scale for each row, that is, for the elements of one head at one position. Block floating
//! point (arXiv 2403.20137) divides a row into blocks. A code of 8 or 4 bits is an element divided by the unit of its
//! block: the power of two with which the code of the block's largest element uses all bits. The exponent of the unit
//! is stored. Two 4-bit codes form a byte: the code of an element of the block's first half is in the low bits, the
//! code of the corresponding element of the second half in the high bits.

use crate::calibrated::CodeType;
use crate::find_caches::{is_state, uses};
use crate::options::{KvCache, Named};
use crate::quantize::{Builder, Coded};
use crate::remark::Missed;
use crate::rewrite::Rewrites;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of elements of a block, unless a whole row is one block.
const BLOCK: i64 = 32;

/// Rows that cannot be divided into blocks whose size is a power of two and at least this number form a single block.
const BLOCK_MIN: i64 = 8;

/// Number of fraction bits of an f32.
const FRACTION_BITS: i32 = 23;

/// The biased exponent of infinity and NaN.
const EXPONENT_MAX: i32 = 255;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let format = rewrites.options().kv_cache;
    if format == KvCache::F32 {
        return Ok(());
    }
    let (mut found, mut reason) = (0, "this one has none");
    rewrites.graphs(module, |rewrites, graph| {
        if graph.internal {
            return Ok(());
        }
        let mut caches = BTreeMap::new();
        let uses = uses(graph);
        for v in graph.values().map(|(v, _)| v).filter(|v| is_state(graph, &uses, *v)) {
            match Rows::for_state(graph, v, format) {
                Ok(rows) => drop(caches.insert(v, rows)),
                Err(why) => {
                    reason = why;
                    let node = graph.node(v).origins.first().cloned();
                    rewrites.missed(Missed { node, ..Missed::because("a cache stays as it is", why) });
                }
            }
        }
        found += caches.len();
        *graph = narrowed(graph, &caches)?;
        Ok(())
    })?;
    if found > 0 {
        return Ok(());
    }
    let message = format!("`--kv-cache {}` is for models with caches that can have it: {reason}", format.name());
    let help = "a cache is an input of f32 that is an output again, with new rows behind it; leave out `--kv-cache`, or export the \
                model with its past keys and values";
    Err(Error::user("E0001", message).help(help))
}

fn narrowed(graph: &Graph, caches: &BTreeMap<Value, Rows>) -> Result<Graph> {
    let by_past: BTreeMap<Value, &Rows> = caches.iter().map(|(v, rows)| (graph.node(*v).args[0], rows)).collect();
    let names = |ports: Vec<&str>| ports.into_iter().map(str::to_string).collect::<BTreeSet<String>>();
    let mut inputs = names(graph.inputs().map(|(_, name, _)| name).collect());
    let mut outputs = names(graph.outputs.iter().map(|(name, _)| name.as_str()).collect());
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    // `map` gives the new value of each old value. `parts` gives the new values that replace each past (an input) and
    // each cache (the result of an append): the codes, and the scales or exponents if any.
    let (mut map, mut parts): (Vec<Value>, BTreeMap<Value, Vec<Value>>) = (vec![], BTreeMap::new());
    for (v, node) in graph.values() {
        let args: Vec<Value> = node.args.iter().map(|a| map[a.index()]).collect();
        let value = match (&node.op, by_past.get(&v), caches.get(&v)) {
            (Op::Input { name, parts: of_rank }, Some(rows), _) => {
                let mut own = vec![];
                for (i, ty) in rows.types(&node.ty).into_iter().enumerate() {
                    let op = Op::Input { name: rows.port(i, name, &mut inputs), parts: of_rank.clone() };
                    own.push(out.push(Node { op, args: vec![], ty, origins: node.origins.clone() }));
                }
                let first = own[0];
                parts.insert(v, own);
                first
            }
            (Op::Append { .. }, _, Some(rows)) => {
                let mut b = Builder { graph: &mut out, origins: &node.origins };
                let new = rows.encoded(&mut b, args[1])?;
                let past = &parts[&node.args[0]];
                let all = past.iter().zip(new).map(|(past, new)| b.add(node.op.clone(), &[*past, new], None));
                let all = all.collect::<Result<Vec<Value>>>()?;
                let value = rows.decoded(&mut b, &all)?;
                parts.insert(v, all);
                value
            }
            _ => out.push(Node { args, ..node.clone() }),
        };
        map.push(value);
    }
    for (name, v) in &graph.outputs {
        match (parts.get(v), caches.get(v)) {
            (Some(all), Some(rows)) => {
                let named = all.iter().enumerate().map(|(i, part)| (rows.port(i, name, &mut outputs), *part));
                out.outputs.extend(named.collect::<Vec<_>>());
            }
            _ => out.outputs.push((name.clone(), map[v.index()])),
        }
    }
    Ok(out)
}

/// The storage format of a cache's rows.
#[derive(Clone, Copy)]
struct Rows {
    format: KvCache,
    /// The axis of a row's elements.
    along: usize,
    /// Number of elements of a row; 0 for bf16.
    length: i64,
    /// Number of elements of a block, which share an exponent.
    block: i64,
}

impl Rows {
    /// Returns how the rows of cache `v` are stored in the requested format, or an error with the reason why the format
    /// does not apply.
    fn for_state(graph: &Graph, v: Value, format: KvCache) -> std::result::Result<Rows, &'static str> {
        let (node, ty) = (graph.node(v), graph.ty(v));
        let Op::Append { axis } = node.op else { return Err("nothing is appended") };
        if ty.dtype != DType::F32 {
            return Err("its caches are not of f32");
        }
        if format == KvCache::Bf16 {
            return Ok(Rows { format, along: axis, length: 0, block: 1 });
        }
        // The elements of a head are along the last axis, or along the axis before the last if the positions are along
        // the last axis.
        let along = if axis + 1 == ty.rank() { axis.checked_sub(1) } else { Some(ty.rank() - 1) };
        let along = along.ok_or("the rows of a cache are single elements")?;
        let length =
            ty.dims[along].as_const().filter(|n| *n > 0).ok_or("the length of the rows of a cache is not known")?;
        let common = (1..=BLOCK.min(length)).rev().find(|n| length % n == 0 && n.count_ones() == 1).unwrap_or(1);
        let block = if common < BLOCK_MIN { length } else { common };
        match format == KvCache::Bfp4 && block % 2 != 0 {
            true => Err("the rows of a cache are odd, and two codes of 4 bits are one byte"),
            false => Ok(Rows { format, along, length, block }),
        }
    }

    /// Returns the name of a part's input or output; the codes keep the cache's own name.
    fn port(&self, part: usize, name: &str, taken: &mut BTreeSet<String>) -> String {
        if part == 0 {
            return name.to_string();
        }
        let mut new = format!("{name}.{}", if self.format == KvCache::Int8 { "scale" } else { "exponent" });
        while !taken.insert(new.clone()) {
            new.push('_');
        }
        new
    }

    /// Returns the types of the parts (codes, and scales or exponents) of a tensor of type `whole`.
    fn types(&self, whole: &TensorType) -> Vec<TensorType> {
        let part = |dtype: DType, length: i64| {
            let mut dims = whole.dims.clone();
            dims[self.along] = Dim::constant(length);
            TensorType::new(dtype, dims)
        };
        let exponents = part(DType::U8, self.length / self.block);
        match self.format {
            KvCache::F32 => vec![whole.clone()],
            KvCache::Bf16 => vec![TensorType::new(DType::BF16, whole.dims.clone())],
            KvCache::Int8 => vec![part(DType::I8, self.length), part(DType::F32, 1)],
            KvCache::Bfp8 => vec![part(DType::I8, self.length), exponents],
            KvCache::Bfp4 => vec![part(DType::U8, self.length / 2), exponents],
        }
    }

    /// Encodes rows as parts.
    fn encoded(&self, b: &mut Builder, x: Value) -> Result<Vec<Value>> {
        let types = self.types(&b.graph.ty(x).clone());
        match self.format {
            KvCache::F32 => Ok(vec![x]),
            KvCache::Bf16 => Ok(vec![b.convert(x, DType::BF16)?]),
            KvCache::Int8 => {
                let coded = Coded::new(b.graph, x, &[self.along], CodeType::BYTES, b.origins)?;
                let scale = b.add(Op::Reshape, &[coded.scale], Some(types[1].clone()))?;
                Ok(vec![coded.codes, scale])
            }
            KvCache::Bfp8 | KvCache::Bfp4 => self.encoded_blocks(b, x, &types),
        }
    }

    /// Number of bits of a code, including its sign.
    fn bits(&self) -> i32 {
        if self.format == KvCache::Bfp4 { 4 } else { 8 }
    }

    /// Returns the codes, and the exponent of each block's unit: the power of two with which the code of the block's
    /// largest element uses all bits.
    fn encoded_blocks(&self, b: &mut Builder, x: Value, types: &[TensorType]) -> Result<Vec<Value>> {
        let blocks = self.split(b.graph.ty(x), &[self.length / self.block, self.block]);
        let x = b.add(Op::Reshape, &[x], Some(blocks.clone()))?;
        let size = b.map(ScalarFn::Abs, &[x])?;
        let largest = b.add(Op::Reduce { f: ReduceFn::Max, axes: vec![self.along + 1] }, &[size], None)?;
        let bits = b.bits(largest, DType::I32)?;
        let fraction = b.integer(FRACTION_BITS, bits)?;
        let exponent = b.map(ScalarFn::Shr, &[bits, fraction])?;
        // The unit of a block with a NaN or an infinity is infinity, so that all its elements decode as NaN.
        let (most, one) = (b.integer(EXPONENT_MAX, exponent)?, b.integer(1, exponent)?);
        let odd = b.map(ScalarFn::Eq, &[exponent, most])?;
        let below = b.integer(self.bits() - 2, exponent)?;
        let lowered = b.map(ScalarFn::Sub, &[exponent, below])?;
        let lowered = b.map(ScalarFn::Max, &[lowered, one])?;
        let exponent = b.map(ScalarFn::Select, &[odd, most, lowered])?;
        let narrow = b.convert(exponent, DType::U8)?;
        let unit = unit(b, exponent)?;
        let kept: Vec<usize> = (0..blocks.rank()).filter(|i| *i != self.along + 1).collect();
        let unit = b.add(Op::Broadcast { dims: kept }, &[unit], Some(blocks))?;
        let codes = b.map(ScalarFn::Div, &[x, unit])?;
        let codes = b.map(ScalarFn::Round, &[codes])?;
        let limit = (1 << (self.bits() - 1)) - 1;
        let (high, low) = (b.number(limit as f32, codes)?, b.number(-limit as f32, codes)?);
        let codes = b.map(ScalarFn::Min, &[codes, high])?;
        let codes = b.map(ScalarFn::Max, &[codes, low])?;
        let codes = b.convert(codes, DType::I8)?;
        let codes = if self.format == KvCache::Bfp4 { self.paired(b, codes)? } else { codes };
        let codes = b.add(Op::Reshape, &[codes], Some(types[0].clone()))?;
        let exponent = b.add(Op::Reshape, &[narrow], Some(types[1].clone()))?;
        Ok(vec![codes, exponent])
    }

    /// Packs the 4-bit codes of the two halves of each block into bytes.
    fn paired(&self, b: &mut Builder, codes: Value) -> Result<Value> {
        let ty = b.graph.ty(codes).clone();
        let mut half = ty.clone();
        half.dims[self.along + 1] = Dim::constant(self.block / 2);
        let mut halves = vec![];
        for start in [0, self.block / 2] {
            let mut starts = vec![Dim::constant(0); ty.rank()];
            starts[self.along + 1] = Dim::constant(start);
            let op = Op::Slice { starts, steps: vec![1; ty.rank()] };
            let codes = b.add(op, &[codes], Some(half.clone()))?;
            halves.push(b.convert(codes, DType::I32)?);
        }
        let (low, four) = (b.integer(15, halves[0])?, b.integer(4, halves[1])?);
        let low = b.map(ScalarFn::BitAnd, &[halves[0], low])?;
        let high = b.map(ScalarFn::Shl, &[halves[1], four])?;
        let both = b.map(ScalarFn::BitOr, &[low, high])?;
        b.convert(both, DType::U8)
    }

    /// Decodes the parts.
    fn decoded(&self, b: &mut Builder, parts: &[Value]) -> Result<Value> {
        if let KvCache::F32 | KvCache::Bf16 = self.format {
            return b.convert(parts[0], DType::F32);
        }
        let codes = match self.format {
            KvCache::Bfp4 => self.apart(b, parts[0])?,
            _ => parts[0],
        };
        let wide = b.convert(codes, DType::F32)?;
        let unit = match self.format {
            KvCache::Int8 => parts[1],
            _ => {
                let wide = b.convert(parts[1], DType::I32)?;
                unit(b, wide)?
            }
        };
        let unit = self.repeated(b, unit, 1)?;
        b.map(ScalarFn::Mul, &[wide, unit])
    }

    /// Unpacks bytes into codes, one per element.
    fn apart(&self, b: &mut Builder, bytes: Value) -> Result<Value> {
        let bytes = self.repeated(b, bytes, self.block / 2)?;
        let bytes = b.convert(bytes, DType::I32)?;
        // The code is shifted to the highest bits of a word, then back to the lowest ones with sign extension.
        let up = |i: i64| if i % self.block < self.block / 2 { 28 } else { 24 };
        let up = Tensor::from_vec(vec![self.length as usize], (0..self.length).map(up).collect::<Vec<i32>>());
        let up = b.add(Op::Const(up), &[], None)?;
        let ty = b.graph.ty(bytes).clone();
        let up = b.add(Op::Broadcast { dims: vec![self.along] }, &[up], Some(ty))?;
        let (high, down) = (b.map(ScalarFn::Shl, &[bytes, up])?, b.integer(28, bytes)?);
        b.map(ScalarFn::Shr, &[high, down])
    }

    /// Repeats each run of `n` neighbouring elements until the rows have full length.
    fn repeated(&self, b: &mut Builder, x: Value, n: i64) -> Result<Value> {
        let ty = b.graph.ty(x).clone();
        let extent = ty.dims[self.along].as_const().unwrap_or(n);
        let (runs, times, whole) = (extent / n, self.length / extent, self.split(&ty, &[self.length]));
        if extent == 1 {
            return b.add(Op::Broadcast { dims: (0..ty.rank()).collect() }, &[x], Some(whole));
        }
        let sizes = if n == 1 { vec![runs, times] } else { vec![runs, times, n] };
        let x = match n {
            1 => x,
            _ => b.add(Op::Reshape, &[x], Some(self.split(&ty, &[runs, n])))?,
        };
        let dims = (0..b.graph.ty(x).rank()).map(|i| if i <= self.along { i } else { i + 1 }).collect();
        let x = b.add(Op::Broadcast { dims }, &[x], Some(self.split(&ty, &sizes)))?;
        b.add(Op::Reshape, &[x], Some(whole))
    }

    /// Returns the type with the axis of a row's elements split into several axes.
    fn split(&self, ty: &TensorType, sizes: &[i64]) -> TensorType {
        let mut dims = ty.dims.clone();
        dims.splice(self.along..=self.along, sizes.iter().map(|n| Dim::constant(*n)));
        TensorType::new(ty.dtype, dims)
    }
}

/// Returns 2^(exponent - 127).
fn unit(b: &mut Builder, exponent: Value) -> Result<Value> {
    let fraction = b.integer(FRACTION_BITS, exponent)?;
    let bits = b.map(ScalarFn::Shl, &[exponent, fraction])?;
    b.bits(bits, DType::F32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_dialects::interp;

    /// Appends rows to an empty cache of the given format; returns the parts of the cache, then the decoded rows,
    /// negated.
    fn held(format: KvCache, rows: &[&[f32]]) -> Vec<Tensor> {
        let (n, length) = (rows.len(), rows[0].len());
        let ty = |n: usize| TensorType::new(DType::F32, [n, length].map(|n| Dim::constant(n as i64)));
        let mut graph = Graph::default();
        let input = |graph: &mut Graph, name: &str, n: usize| {
            graph.add_as(Op::Input { name: name.into(), parts: vec![] }, &[], Some(ty(n)), &[]).unwrap()
        };
        let (past, new) = (input(&mut graph, "past", 0), input(&mut graph, "new", n));
        let all = graph.add(Op::Append { axis: 0 }, &[past, new], &[]).unwrap();
        let twice = graph.add(Op::Map(ScalarFn::Neg), &[all], &[]).unwrap();
        graph.outputs = vec![("all".into(), all), ("negated".into(), twice)];
        let caches = BTreeMap::from([(all, Rows::for_state(&graph, all, format).unwrap())]);
        let graph = narrowed(&graph, &caches).unwrap();
        let mut inputs = vec![];
        for (_, name, ty) in graph.inputs() {
            let tensor = match name {
                "new" => Tensor::from_vec(vec![n, length], rows.concat()),
                _ => Tensor::zeros(ty.dtype, ty.static_dims().unwrap()),
            };
            inputs.push((name.to_string(), tensor));
        }
        let outputs = interp::run(&graph, &BTreeMap::<String, Tensor>::new(), &inputs).unwrap();
        let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names[0], names[names.len() - 1]), ("all", "negated"));
        outputs.into_iter().map(|(_, t)| t).collect()
    }

    fn numbers(t: &Tensor) -> Vec<f64> {
        (0..t.len()).map(|i| t.get_f64(i).unwrap()).collect()
    }

    fn padded(start: &[f32]) -> Vec<f32> {
        [start, &vec![0.0; 32 - start.len()]].concat()
    }

    #[test]
    fn codes_are_in_units_of_the_largest_ones_lowest_bit() {
        let rows = [
            padded(&[1.5, -0.75, 0.01, 1.0 / 128.0]),
            // The first element is just below a power of two; its code is clamped to the limit.
            padded(&[-3.9999, 4e-3]),
            padded(&[f32::MAX, -1e38]),
            padded(&[]),
            padded(&[1.0, f32::NAN]),
        ];
        let parts = held(KvCache::Bfp8, &rows.each_ref().map(Vec::as_slice));
        let codes = numbers(&parts[0]);
        // Ties round to even.
        assert_eq!(codes[..4], [96.0, -48.0, 1.0, 0.0]);
        assert_eq!(codes[32..34], [-127.0, 0.0]);
        assert_eq!(codes[64..66], [127.0, -38.0]);
        assert_eq!(codes[96..128], [0.0; 32]);
        assert_eq!(numbers(&parts[1]), [121.0, 122.0, 248.0, 1.0, 255.0]);
        let values = numbers(&parts[2]);
        assert_eq!(values[..3], [-1.5, 0.75, -1.0 / 64.0]);
        assert_eq!(values[32], 127.0 / 32.0);
        assert_eq!(values[96], 0.0);
        assert!(values[128..].iter().all(|v| v.is_nan()), "a block with a NaN has no numbers");
    }

    #[test]
    fn each_block_has_an_exponent_of_its_own() {
        let row: Vec<f32> = (0..96).map(|i| [1.0, 100.0, 1e-3][i / 32] * (i % 32) as f32 / 31.0).collect();
        for (format, bits) in [(KvCache::Bfp8, 8), (KvCache::Bfp4, 4)] {
            let parts = held(format, &[&row]);
            assert_eq!(parts[0].len(), if bits == 8 { 96 } else { 48 });
            let (exponents, values) = (numbers(&parts[1]), numbers(&parts[2]));
            for (i, (x, v)) in row.iter().zip(values).enumerate() {
                // The error is at most half a unit, or a whole unit at the largest code.
                let unit = 2f64.powf(exponents[i / 32] - 127.0);
                assert!((f64::from(*x) + v).abs() <= unit * if i % 32 > 30 { 1.0 } else { 0.5 }, "{i}: {x} {v}");
                assert_eq!(exponents[i / 32], [127.0, 127.0 + 6.0, 127.0 - 10.0][i / 32] - f64::from(bits - 2));
            }
        }
    }

    #[test]
    fn two_codes_of_four_bits_are_a_byte() {
        let mut row = padded(&[1.5, -0.75]);
        (row[16], row[17]) = (-1.75, 0.25);
        let parts = held(KvCache::Bfp4, &[&row]);
        // The codes 6 and -7, -3 and 1.
        assert_eq!(numbers(&parts[0])[..3], [0x96 as f64, 0x1d as f64, 0.0]);
        let values = numbers(&parts[2]);
        assert_eq!((&values[..2], &values[16..18]), (&[-1.5, 0.75][..], &[1.75, -0.25][..]));
    }

    #[test]
    fn bytes_have_a_scale_for_each_row() {
        let parts = held(KvCache::Int8, &[&[2.0, -1.0, 0.5], &[0.0; 3]]);
        assert_eq!(numbers(&parts[0]), [127.0, -64.0, 32.0, 0.0, 0.0, 0.0]);
        assert_eq!(parts[1].dims(), [2, 1]);
        assert!((numbers(&parts[1])[0] - 2.0 / 127.0).abs() < 1e-9);
        let parts = held(KvCache::Bf16, &[&[1.0 + 1.0 / 512.0, 3.0]]);
        assert_eq!((parts.len(), parts[0].dtype(), numbers(&parts[1])), (2, DType::BF16, vec![-1.0, -3.0]));
    }

    #[test]
    fn rows_of_odd_lengths_are_one_block() {
        let parts = held(KvCache::Bfp8, &[&[1.0, 2.0, 3.0, 4.0, 5.0]]);
        assert_eq!((numbers(&parts[1]), numbers(&parts[0])), (vec![123.0], vec![16.0, 32.0, 48.0, 64.0, 80.0]));
        let mut graph = Graph::default();
        let input = |graph: &mut Graph, n: &str| {
            let ty = TensorType::new(DType::F32, [Dim::parse(n).unwrap(), Dim::constant(5)]);
            graph.add_as(Op::Input { name: n.into(), parts: vec![] }, &[], Some(ty), &[]).unwrap()
        };
        let (past, new) = (input(&mut graph, "p"), input(&mut graph, "s"));
        let all = graph.add(Op::Append { axis: 0 }, &[past, new], &[]).unwrap();
        assert!(Rows::for_state(&graph, all, KvCache::Bfp4).is_err_and(|why| why.contains("odd")));
    }
}
