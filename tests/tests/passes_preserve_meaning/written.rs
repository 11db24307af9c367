//! Handwritten sdx graphs: softmax, layer normalization, several forms of attention, an MLP with GELU

use super::Case;
use super::random::{Random, tensor};
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Op, Symbol, SymbolKind, TensorType, Value};
use std::collections::BTreeMap;

pub fn cases() -> Vec<Case> {
    let mut out = vec![];
    for dtype in [DType::F32, DType::F64] {
        out.push(finish("softmax", dtype, |w| {
            let x = w.input("x", &["b", "s", "t"]);
            w.softmax(x)
        }));
        out.push(finish("layer_norm", dtype, |w| {
            let x = w.input("x", &["b", "s", "8"]);
            w.layer_norm(x)
        }));
        out.push(finish("attention", dtype, attention));
        out.push(finish("masked encoder", dtype, |w| masked_encoder(w, false)));
        out.push(finish("masked encoder, causal", dtype, |w| masked_encoder(w, true)));
        out.push(finish("scaled_apart", dtype, scaled_apart));
        out.push(finish("mlp", dtype, mlp));
        out.push(finish("cached attention", dtype, cached_attention));
        out.push(finish("grouped heads", dtype, grouped_heads));
        out.push(finish("rows appended and reshaped", dtype, appended_rows));
    }
    out
}

/// Values of (b, s, t) in the calls.
static SIZES: [(i64, i64, i64); 5] = [(2, 3, 4), (1, 1, 1), (0, 2, 3), (2, 0, 3), (1, 2, 0)];

struct Writer {
    graph: Graph,
    params: BTreeMap<String, Tensor>,
    dtype: DType,
}

fn finish(name: &str, dtype: DType, write: impl Fn(&mut Writer) -> Value) -> Case {
    let mut w = Writer { graph: Graph { name: name.into(), ..Graph::default() }, params: BTreeMap::new(), dtype };
    for symbol in ["b", "s", "t"] {
        w.graph.symbols.insert(symbol.into(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
    }
    let y = write(&mut w);
    w.graph.outputs.push(("y".into(), y));
    let mut r = Random::new(7);
    let call = |&(b, s, t): &(i64, i64, i64)| {
        let value = |name: &str| Some(BTreeMap::from([("b", b), ("s", s), ("t", t)])[name]);
        let size = |d: &Dim| d.eval_named(&value).expect("a size") as usize;
        let input = |(_, name, ty): (Value, &str, &TensorType)| {
            (name.to_string(), tensor(&mut r, ty.dtype, ty.dims.iter().map(size).collect()))
        };
        w.graph.inputs().map(input).collect()
    };
    let calls = SIZES.iter().map(call).collect();
    Case { name: format!("{name} {dtype}"), calls, graph: w.graph, params: w.params }
}

impl Writer {
    fn add(&mut self, op: Op, args: &[Value], ty: Option<TensorType>) -> Value {
        let origins = [format!("/n{}", self.graph.nodes.len())];
        self.graph.add_as(op, args, ty, &origins).expect("a node in order")
    }

    fn shape(&self, dims: &[&str]) -> TensorType {
        TensorType::new(self.dtype, dims.iter().map(|d| Dim::parse(d).expect("a dimension")).collect::<Vec<_>>())
    }

    fn input(&mut self, name: &str, dims: &[&str]) -> Value {
        let ty = self.shape(dims);
        self.add(Op::Input { name: name.into(), parts: vec![] }, &[], Some(ty))
    }

    fn param(&mut self, name: &str, dims: &[usize]) -> Value {
        let t = tensor(&mut Random::new(self.params.len() as u64), self.dtype, dims.to_vec());
        self.params.insert(name.into(), t);
        let ty = super::random::static_type(self.dtype, dims);
        self.add(Op::Param { name: name.into(), parts: vec![], bounded: false }, &[], Some(ty))
    }

    fn map(&mut self, f: ScalarFn, args: &[Value]) -> Value {
        self.add(Op::Map(f), args, None)
    }

    fn map_const(&mut self, f: ScalarFn, x: Value, c: f64) -> Value {
        let t = if self.dtype == DType::F32 { Tensor::scalar(c as f32) } else { Tensor::scalar(c) };
        let c = self.add(Op::Const(t), &[], None);
        let ty = self.graph.ty(x).clone();
        let c = self.add(Op::Broadcast { dims: vec![] }, &[c], Some(ty));
        self.map(f, &[x, c])
    }

    fn contract(&mut self, spec: &str, x: Value, y: Value) -> Value {
        self.add(Op::Contract(ContractSpec::parse(spec).expect("a contraction")), &[x, y], None)
    }

    /// Applies `f` to `x` and a vector that is broadcast along the last dimension.
    fn along(&mut self, f: ScalarFn, x: Value, vector: Value) -> Value {
        let ty = self.graph.ty(x).clone();
        let spread = self.add(Op::Broadcast { dims: vec![ty.rank() - 1] }, &[vector], Some(ty));
        self.map(f, &[x, spread])
    }

    fn reduce_last(&mut self, f: ReduceFn, x: Value) -> Value {
        let axis = self.graph.ty(x).rank() - 1;
        self.add(Op::Reduce { f, axes: vec![axis] }, &[x], None)
    }

    fn spread_last(&mut self, row: Value, like: Value) -> Value {
        let ty = self.graph.ty(like).clone();
        self.add(Op::Broadcast { dims: (0..ty.rank() - 1).collect() }, &[row], Some(ty))
    }

    fn softmax(&mut self, x: Value) -> Value {
        let max = self.reduce_last(ReduceFn::Max, x);
        let max = self.spread_last(max, x);
        let shifted = self.map(ScalarFn::Sub, &[x, max]);
        let power = self.map(ScalarFn::Exp, &[shifted]);
        let sum = self.reduce_last(ReduceFn::Add, power);
        let sum = self.spread_last(sum, x);
        self.map(ScalarFn::Div, &[power, sum])
    }

    fn mean_last(&mut self, x: Value) -> Value {
        let n = self.graph.ty(x).dims.last().and_then(Dim::as_const).expect("a constant width");
        let sum = self.reduce_last(ReduceFn::Add, x);
        self.map_const(ScalarFn::Div, sum, n as f64)
    }

    fn layer_norm(&mut self, x: Value) -> Value {
        let mean = self.mean_last(x);
        let mean = self.spread_last(mean, x);
        let centred = self.map(ScalarFn::Sub, &[x, mean]);
        let squares = self.map(ScalarFn::Mul, &[centred, centred]);
        let variance = self.mean_last(squares);
        let padded = self.map_const(ScalarFn::Add, variance, 1e-5);
        let deviation = self.map(ScalarFn::Sqrt, &[padded]);
        let deviation = self.spread_last(deviation, x);
        let normal = self.map(ScalarFn::Div, &[centred, deviation]);
        let (scale, shift) = (self.param("scale", &[8]), self.param("shift", &[8]));
        let scaled = self.along(ScalarFn::Mul, normal, scale);
        self.along(ScalarFn::Add, scaled, shift)
    }

    fn gelu(&mut self, x: Value) -> Value {
        let scaled = self.map_const(ScalarFn::Mul, x, std::f64::consts::FRAC_1_SQRT_2);
        let erf = self.map(ScalarFn::Erf, &[scaled]);
        let sum = self.map_const(ScalarFn::Add, erf, 1.0);
        let half = self.map_const(ScalarFn::Mul, x, 0.5);
        self.map(ScalarFn::Mul, &[half, sum])
    }

    /// [b, s, 8] => [b, 2, s, 4]
    fn heads(&mut self, x: Value, rows: &str) -> Value {
        let split = self.shape(&["b", rows, "2", "4"]);
        let split = self.add(Op::Reshape, &[x], Some(split));
        self.add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[split], None)
    }

    /// p · v with the heads concatenated, followed by a linear map
    fn mixture(&mut self, p: Value, v: Value) -> Value {
        let mixed = self.contract("bhst,bhtd->bhsd", p, v);
        let back = self.add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[mixed], None);
        let ty = self.shape(&["b", "s", "8"]);
        let joined = self.add(Op::Reshape, &[back], Some(ty));
        self.linear(joined, "o", 8, 8)
    }

    fn linear(&mut self, x: Value, name: &str, k: usize, n: usize) -> Value {
        let weights = self.param(name, &[k, n]);
        let product = self.contract("bsk,kn->bsn", x, weights);
        let bias = self.param(&format!("{name}.bias"), &[n]);
        self.along(ScalarFn::Add, product, bias)
    }
}

/// layer_norm(x + softmax(q · kᵀ / 2 + mask) · v), with the heads concatenated and a linear map before the addition
fn attention(w: &mut Writer) -> Value {
    let x = w.input("x", &["b", "s", "8"]);
    let memory = w.input("memory", &["b", "t", "8"]);
    let mask = w.input("mask", &["b", "t"]);
    let (q, k, v) = (w.linear(x, "q", 8, 8), w.linear(memory, "k", 8, 8), w.linear(memory, "v", 8, 8));
    let (q, k, v) = (w.heads(q, "s"), w.heads(k, "t"), w.heads(v, "t"));
    let kt = w.add(Op::Transpose { perm: vec![0, 1, 3, 2] }, &[k], None);
    let scores = w.contract("bhsd,bhdt->bhst", q, kt);
    let scaled = w.map_const(ScalarFn::Mul, scores, 0.5);
    let ty = w.graph.ty(scaled).clone();
    let mask = w.add(Op::Broadcast { dims: vec![0, 3] }, &[mask], Some(ty));
    let masked = w.map(ScalarFn::Add, &[scaled, mask]);
    let p = w.softmax(masked);
    let out = w.mixture(p, v);
    let sum = w.map(ScalarFn::Add, &[x, out]);
    w.layer_norm(sum)
}

/// A layer of an encoder with the mask `seen` of shape [b, s]. The output is the sum over the unmasked positions, so it
/// does not depend on masked rows. If `causal`, the keys after a query are masked too.
fn masked_encoder(w: &mut Writer, causal: bool) -> Value {
    let x = w.input("x", &["b", "s", "8"]);
    let dims = ["b", "s"].map(|d| Dim::parse(d).expect("a dimension"));
    let ty = TensorType::new(DType::Bool, dims.to_vec());
    let seen = w.add(Op::Input { name: "seen".into(), parts: vec![] }, &[], Some(ty));
    let dtype = w.shape(&["b", "s"]);
    let counts = w.add(Op::Convert(Conversion::Value), &[seen], Some(dtype));
    let hidden = w.map_const(ScalarFn::Sub, counts, 1.0);
    let bias = w.map_const(ScalarFn::Mul, hidden, 20000.0);
    let normal = w.layer_norm(x);
    let (q, k, v) = (w.linear(normal, "q", 8, 8), w.linear(normal, "k", 8, 8), w.linear(normal, "v", 8, 8));
    let (q, k, v) = (w.heads(q, "s"), w.heads(k, "s"), w.heads(v, "s"));
    let scores = w.contract("bhsd,bhtd->bhst", q, k);
    let ty = w.graph.ty(scores).clone();
    let bias = w.add(Op::Broadcast { dims: vec![0, 3] }, &[bias], Some(ty.clone()));
    let mut masked = w.map(ScalarFn::Add, &[scores, bias]);
    if causal {
        let numbers = TensorType::new(DType::I64, ty.dims.clone());
        let [i, j] = [2, 3].map(|axis| w.add(Op::Iota { axis }, &[], Some(numbers.clone())));
        let ahead = w.map(ScalarFn::Lt, &[i, j]);
        let lower = w.map_const(ScalarFn::Sub, masked, 20000.0);
        masked = w.map(ScalarFn::Select, &[ahead, lower, masked]);
    }
    let p = w.softmax(masked);
    let out = w.mixture(p, v);
    let rows = w.map(ScalarFn::Add, &[x, out]);
    let ty = w.graph.ty(rows).clone();
    let counts = w.add(Op::Broadcast { dims: vec![0, 1] }, &[counts], Some(ty));
    let counted = w.map(ScalarFn::Mul, &[rows, counts]);
    w.add(Op::Reduce { f: ReduceFn::Add, axes: vec![1] }, &[counted], None)
}

/// Attention over the keys and values of `t` earlier and `s` new positions. Those of the earlier positions are inputs;
/// those of all positions are outputs.
fn cached_attention(w: &mut Writer) -> Value {
    let x = w.input("x", &["b", "s", "8"]);
    let pasts = ["past_k", "past_v"].map(|name| w.input(name, &["b", "2", "t", "4"]));
    let (q, k, v) = (w.linear(x, "q", 8, 8), w.linear(x, "k", 8, 8), w.linear(x, "v", 8, 8));
    let (q, k, v) = (w.heads(q, "s"), w.heads(k, "s"), w.heads(v, "s"));
    let turned = w.map(ScalarFn::Sin, &[k]);
    let [k, v] =
        [(pasts[0], turned), (pasts[1], v)].map(|(past, new)| w.add(Op::Append { axis: 2 }, &[past, new], None));
    w.graph.outputs = vec![("k".into(), k), ("v".into(), v)];
    let kt = w.add(Op::Transpose { perm: vec![0, 1, 3, 2] }, &[k], None);
    let scores = w.contract("bhsd,bhdt->bhst", q, kt);
    let p = w.softmax(scores);
    w.contract("bhst,bhtd->bhsd", p, v)
}

/// Four query heads and two key heads, each of which serves two query heads.
fn grouped_heads(w: &mut Writer) -> Value {
    let (q, past) = (w.input("q", &["b", "4", "s", "4"]), w.input("past", &["b", "2", "t", "4"]));
    let new = w.input("new", &["b", "2", "s", "4"]);
    let all = w.add(Op::Append { axis: 2 }, &[past, new], None);
    w.graph.outputs = vec![("all".into(), all)];
    let ty = w.shape(&["b", "2", "1", "t + s", "4"]);
    let one = w.add(Op::Reshape, &[all], Some(ty));
    let ty = w.shape(&["b", "2", "2", "t + s", "4"]);
    let both = w.add(Op::Broadcast { dims: vec![0, 1, 2, 3, 4] }, &[one], Some(ty));
    let ty = w.shape(&["b", "4", "t + s", "4"]);
    let repeated = w.add(Op::Reshape, &[both], Some(ty));
    let scores = w.contract("bhsd,bhtd->bhst", q, repeated);
    let p = w.softmax(scores);
    w.contract("bhst,bhtd->bhsd", p, repeated)
}

/// The appended state is reshaped to rows of half the length, and multiplied with its normalized values.
fn appended_rows(w: &mut Writer) -> Value {
    let (past, new) = (w.input("past", &["t", "b", "8"]), w.input("new", &["s", "b", "8"]));
    let doubled = w.map(ScalarFn::Add, &[new, new]);
    let all = w.add(Op::Append { axis: 0 }, &[past, doubled], None);
    w.graph.outputs = vec![("all".into(), all)];
    let ty = w.shape(&["t + s", "2*b", "4"]);
    let rows = w.add(Op::Reshape, &[all], Some(ty));
    let normal = w.layer_norm(all);
    let back = w.shape(&["t + s", "2*b", "4"]);
    let normal = w.add(Op::Reshape, &[normal], Some(back));
    w.map(ScalarFn::Mul, &[rows, normal])
}

/// (q · c) · (k · c)ᵀ, scaled after the transposes; k is transposed with batch and heads merged
fn scaled_apart(w: &mut Writer) -> Value {
    let x = w.input("x", &["b", "s", "8"]);
    let memory = w.input("memory", &["b", "t", "8"]);
    let (q, k) = (w.linear(x, "q", 8, 8), w.linear(memory, "k", 8, 8));
    let (q, k) = (w.heads(q, "s"), w.heads(k, "t"));
    let ty = w.shape(&["2*b", "t", "4"]);
    let merged = w.add(Op::Reshape, &[k], Some(ty));
    let turned = w.add(Op::Transpose { perm: vec![0, 2, 1] }, &[merged], None);
    let ty = w.shape(&["b", "2", "4", "t"]);
    let kt = w.add(Op::Reshape, &[turned], Some(ty));
    let (q, kt) = (w.map_const(ScalarFn::Mul, q, 0.7), w.map_const(ScalarFn::Mul, kt, 0.7));
    w.contract("bhsd,bhdt->bhst", q, kt)
}

fn mlp(w: &mut Writer) -> Value {
    let x = w.input("x", &["b", "s", "8"]);
    let normal = w.layer_norm(x);
    let wide = w.linear(normal, "up", 8, 16);
    let active = w.gelu(wide);
    let narrow = w.linear(active, "down", 16, 8);
    w.map(ScalarFn::Add, &[x, narrow])
}
