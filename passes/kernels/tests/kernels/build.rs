//! A builder for flow kernels, and kernels of transformers written with it

use sardonyx_base::{DType, Dim, Encoding};
use sardonyx_dialects::flow::kernel::{Body, Container, Kernel, Layout, Memlet, Statement, Store};
use sardonyx_dialects::flow::sparse::TwoOfFour;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_kernels::Words;

pub struct Builder(pub Kernel);

fn dims(texts: &[&str]) -> Vec<Dim> {
    texts.iter().map(|t| Dim::parse(t).unwrap()).collect()
}

impl Builder {
    pub fn new(outer: &[&str], inner: &[&str]) -> Builder {
        let (outer, inner) = (dims(outer), dims(inner));
        Builder(Kernel { outer, inner, deep: vec![], reads: vec![], writes: vec![], body: vec![], stores: vec![] })
    }

    /// Sets the deep space, over which values are reduced at each inner point.
    pub fn deep(mut self, deep: &[&str]) -> Builder {
        self.0.deep = dims(deep);
        self
    }

    fn push(&mut self, body: Body, dtype: DType) -> usize {
        self.0.body.push(Statement { body, dtype });
        self.0.body.len() - 1
    }

    /// Adds an operand and a load of it.
    pub fn load(&mut self, dtype: DType, shape: &[&str], index: &[&str]) -> usize {
        self.guarded(dtype, shape, index, None)
    }

    pub fn guarded(&mut self, dtype: DType, shape: &[&str], index: &[&str], guard: Option<usize>) -> usize {
        self.0.reads.push(Container::plain(dtype, dims(shape)));
        let memlet = Memlet { container: self.0.reads.len() - 1, index: dims(index) };
        self.push(Body::Load { memlet, guard }, dtype)
    }

    /// Gives operand `container` a capacity of `size` along `axis`.
    pub fn room(mut self, container: usize, axis: usize, size: &str) -> Builder {
        self.give_room(container, axis, size);
        self
    }

    pub fn give_room(&mut self, container: usize, axis: usize, size: &str) {
        self.0.reads[container].layout = Layout::Capacity { axis, size: Dim::parse(size).unwrap() };
    }

    /// Adds another load of operand `container`, which already exists.
    pub fn again(&mut self, container: usize, index: &[&str]) -> usize {
        let dtype = self.0.reads[container].dtype;
        self.push(Body::Load { memlet: Memlet { container, index: dims(index) }, guard: None }, dtype)
    }

    pub fn constant(&mut self, value: f64, dtype: DType) -> usize {
        self.push(Body::Const(value), dtype)
    }

    pub fn index(&mut self, d: &str) -> usize {
        self.push(Body::Index(Dim::parse(d).unwrap()), DType::I64)
    }

    pub fn apply(&mut self, f: ScalarFn, args: &[usize]) -> usize {
        let types: Vec<DType> = args.iter().map(|a| self.0.body[*a].dtype).collect();
        let dtype = f.result(&types).unwrap();
        self.push(Body::Apply { f, args: args.to_vec() }, dtype)
    }

    pub fn convert(&mut self, value: usize, dtype: DType) -> usize {
        self.push(Body::Convert(value, Conversion::Value), dtype)
    }

    pub fn reinterpret(&mut self, value: usize, dtype: DType) -> usize {
        self.push(Body::Convert(value, Conversion::Bits), dtype)
    }

    pub fn reduce(&mut self, f: ReduceFn, arg: usize) -> usize {
        let dtype = self.0.body[arg].dtype;
        self.push(Body::Reduce { f, arg }, dtype)
    }

    /// Adds a result, and a store of `value` to it.
    pub fn store(&mut self, value: usize, shape: &[&str], index: &[&str]) {
        let dtype = self.0.body[value].dtype;
        self.0.writes.push(Container::plain(dtype, dims(shape)));
        let memlet = Memlet { container: self.0.writes.len() - 1, index: dims(index) };
        self.0.stores.push(Store { memlet, value });
    }

    /// x · (1 + erf(x / √2)) / 2
    pub fn gelu(&mut self, x: usize) -> usize {
        let (half, one, root) = (
            self.constant(0.5, DType::F32),
            self.constant(1.0, DType::F32),
            self.constant(std::f64::consts::FRAC_1_SQRT_2, DType::F32),
        );
        let scaled = self.apply(ScalarFn::Mul, &[x, root]);
        let erf = self.apply(ScalarFn::Erf, &[scaled]);
        let sum = self.apply(ScalarFn::Add, &[erf, one]);
        let x = self.apply(ScalarFn::Mul, &[x, half]);
        self.apply(ScalarFn::Mul, &[x, sum])
    }

    /// x / (1 + exp(-x))
    pub fn silu(&mut self, x: usize) -> usize {
        let one = self.constant(1.0, DType::F32);
        let minus = self.apply(ScalarFn::Neg, &[x]);
        let e = self.apply(ScalarFn::Exp, &[minus]);
        let sum = self.apply(ScalarFn::Add, &[e, one]);
        self.apply(ScalarFn::Div, &[x, sum])
    }

    /// Σ a · b
    pub fn dot(&mut self, a: usize, b: usize) -> usize {
        let product = self.apply(ScalarFn::Mul, &[a, b]);
        self.reduce(ReduceFn::Add, product)
    }
}

/// y[b, t, n] = Σ value · x[b, t, column] + bias[n], with a 2:4 matrix
pub fn two_of_four(form: &TwoOfFour) -> Kernel {
    let is_bytes = form.dtype == DType::I8;
    let (x_dtype, sum) = if is_bytes { (DType::U8, DType::I32) } else { (DType::BF16, DType::F32) };
    let (width, text) = (form.word_columns(), |n: i64| n.to_string());
    let [rows, columns] = [form.grid.rows, form.grid.columns];
    let [n, k, kept, blocks, tiles] = [rows, columns, columns / 2, rows / 16, columns / 64].map(text);
    let mut b = Builder::new(&["b", "t", &n], &[&tiles, &text(64 / width), &text(width / 4), "2"]);
    let column = |part: i64| format!("{} * %3 + {} * %4 + {} * %5", 64 / part, width / part, 4 / part);
    let value = b.load(form.dtype, &[&n, &kept], &["%2", &format!("{} + %6", column(2))]);
    let value = b.convert(value, sum);
    let half = "(%2 mod 16) floordiv 8";
    let (bit, word) = match is_bytes {
        true => {
            let dims = [&blocks[..], &tiles, "8", "2", "2"];
            let index = ["%2 floordiv 16", "%3", "%2 mod 8", "%4", half];
            ("4 * %5 + 2 * %6".to_string(), b.load(DType::U32, &dims, &index))
        }
        false => {
            let index = ["%2 floordiv 16", "%3", "%2 mod 8", "%4"];
            (format!("16 * ({half}) + 4 * %5 + 2 * %6"), b.load(DType::U32, &[&blocks, &tiles, "8", "4"], &index))
        }
    };
    let (word, bit, mask) = (b.convert(word, DType::I64), b.index(&bit), b.index("3"));
    let shifted = b.apply(ScalarFn::Shr, &[word, bit]);
    let position = b.apply(ScalarFn::BitAnd, &[shifted, mask]);
    let column = format!("{} + ${position}", column(1));
    let x = b.load(x_dtype, &["b", "t", &k], &["%0", "%1", &column]);
    let x = b.convert(x, sum);
    let sum = b.dot(value, x);
    let bias = b.load(b.0.body[sum].dtype, &[&n], &["%2"]);
    let sum = b.apply(ScalarFn::Add, &[sum, bias]);
    b.store(sum, &["b", "t", &n], &["%0", "%1", "%2"]);
    b.0
}

/// a[m, k] · b[k, n] → c[m, n]
pub fn product(m: &str, n: &str, k: &str) -> Builder {
    let mut b = Builder::new(&[m, n], &[k]);
    let x = b.load(DType::F32, &[m, k], &["%0", "%2"]);
    let y = b.load(DType::F32, &[k, n], &["%2", "%1"]);
    b.dot(x, y);
    b
}

pub fn plain(m: &str, n: &str, k: &str) -> Kernel {
    let mut b = product(m, n, k);
    let sum = b.0.body.len() - 1;
    b.store(sum, &[m, n], &["%0", "%1"]);
    b.0
}

/// silu(x[m, k] · g[k, n]) · (x · u[k, n])
pub fn gated(m: &str, n: &str, k: &str) -> Kernel {
    let mut b = Builder::new(&[m, n], &[k]);
    let x = b.load(DType::F32, &[m, k], &["%0", "%2"]);
    let [gate, up] = [0, 1].map(|_| {
        let w = b.load(DType::F32, &[k, n], &["%2", "%1"]);
        b.dot(x, w)
    });
    let silu = b.silu(gate);
    let y = b.apply(ScalarFn::Mul, &[silu, up]);
    b.store(y, &[m, n], &["%0", "%1"]);
    b.0
}

/// q[b, s, h·d] · k[b, t, h·d] → p[b, h, s, t], scaled and masked
pub fn scores(h: i64, d: i64) -> Kernel {
    let (hs, ds, width) = (h.to_string(), d.to_string(), (h * d).to_string());
    let column = format!("{d}*%1 + %4");
    let mut b = Builder::new(&["b", &hs, "s", "t"], &[&ds]);
    let q = b.load(DType::F32, &["b", "s", &width], &["%0", "%2", &column]);
    let k = b.load(DType::F32, &["b", "t", &width], &["%0", "%3", &column]);
    let sum = b.dot(q, k);
    let scale = b.constant(1.0 / (d as f64).sqrt(), DType::F32);
    let p = b.apply(ScalarFn::Mul, &[sum, scale]);
    let mask = b.load(DType::F32, &["b", "t"], &["%0", "%3"]);
    let p = b.apply(ScalarFn::Add, &[p, mask]);
    b.store(p, &["b", &hs, "s", "t"], &["%0", "%1", "%2", "%3"]);
    b.0
}

/// p[b, h, s, t] · v[b, t, h·d] → y[b, s, h·d]
pub fn mixed(h: i64, d: i64) -> Kernel {
    let (hs, ds, width) = (h.to_string(), d.to_string(), (h * d).to_string());
    let mut b = Builder::new(&["b", &hs, "s", &ds], &["t"]);
    let p = b.load(DType::F32, &["b", &hs, "s", "t"], &["%0", "%1", "%2", "%4"]);
    let v = b.load(DType::F32, &["b", "t", &width], &["%0", "%4", &format!("{d}*%1 + %3")]);
    let sum = b.dot(p, v);
    b.store(sum, &["b", "s", &width], &["%0", "%2", &format!("{d}*%1 + %3")]);
    b.0
}

/// q[b, s, h·d] · k[b, t, h·d], scaled and masked → softmax → · v[b, t, h·d] → y[b, s, h·d]
pub fn attended(h: i64, d: i64) -> Kernel {
    let (hs, ds, width) = (h.to_string(), d.to_string(), (h * d).to_string());
    let mut b = Builder::new(&["b", &hs, "s", &ds], &["t"]).deep(&[&ds]);
    let column = format!("{d}*%1 + %5");
    let q = b.load(DType::F32, &["b", "s", &width], &["%0", "%2", &column]);
    let k = b.load(DType::F32, &["b", "t", &width], &["%0", "%4", &column]);
    let sum = b.dot(q, k);
    let scale = b.constant(1.0 / (d as f64).sqrt(), DType::F32);
    let x = b.apply(ScalarFn::Mul, &[sum, scale]);
    let mask = b.load(DType::F32, &["b", "t"], &["%0", "%4"]);
    let x = b.apply(ScalarFn::Add, &[x, mask]);
    let p = softmax_of(&mut b, x);
    let v = b.load(DType::F32, &["b", "t", &width], &["%0", "%4", &format!("{d}*%1 + %3")]);
    let sum = b.dot(p, v);
    b.store(sum, &["b", "s", &width], &["%0", "%2", &format!("{d}*%1 + %3")]);
    b.0
}

/// A convolution of 3 by 3 pixels, channels last, with weights in panels: 40 results for each pixel.
pub fn window(words: Words, [h, w]: [i64; 2], channels: i64) -> Kernel {
    let (left, right, sum) = match words {
        Words::Singles => (DType::F32, DType::F32, DType::F32),
        Words::Pairs => (DType::BF16, DType::BF16, DType::F32),
        Words::Quads => (DType::U8, DType::I8, DType::I32),
    };
    let text = |n: i64| n.to_string();
    let mut b = Builder::new(&[&text(h), &text(w), "40"], &["3", "3", &text(channels)]);
    let x = b.load(left, &[&text(h + 2), &text(w + 2), &text(channels)], &["%0 + %3", "%1 + %4", "%5"]);
    let x = b.convert(x, sum);
    let y = b.load(right, &[&text(9 * channels), "40"], &[&format!("{channels} * (3 * %3 + %4) + %5"), "%2"]);
    b.0.reads[1].encoding = Encoding::Panels { width: 32, depth: words.depth() as usize };
    let y = b.convert(y, sum);
    let sum = b.dot(x, y);
    b.store(sum, &[&text(h), &text(w), "40"], &["%0", "%1", "%2"]);
    b.0
}

/// Builds Σ x[m, k] · w[k, n] for each of `sums` matrices w; returns the builder and the statements of the i32 sums.
pub fn byte_products(types: [DType; 2], m: &str, n: &str, k: &str, sums: usize) -> (Builder, Vec<usize>) {
    let mut b = Builder::new(&[m, n], &[k]);
    let x = b.load(types[0], &[m, k], &["%0", "%2"]);
    let x = b.convert(x, DType::I32);
    let found = (0..sums).map(|_| {
        let w = panels_of_bytes(&mut b, types[1], &[k, n], &["%2", "%1"]);
        b.dot(x, w)
    });
    let found = found.collect();
    (b, found)
}

pub fn panels_of_bytes(b: &mut Builder, dtype: DType, shape: &[&str], index: &[&str]) -> usize {
    let w = b.load(dtype, shape, index);
    b.0.reads.last_mut().unwrap().encoding = Encoding::Panels { width: 32, depth: 4 };
    b.convert(w, DType::I32)
}

/// Sizes of a product whose K is divided into groups.
pub struct Groups {
    pub m: &'static str,
    pub n: i64,
    pub groups: i64,
    pub size: i64,
}

fn panels(b: &mut Builder, dtype: DType, shape: [i64; 2], index: &[&str], depth: usize) -> usize {
    let shape = shape.map(|d| d.to_string());
    let w = b.load(dtype, &[&shape[0], &shape[1]], index);
    b.0.reads.last_mut().unwrap().encoding = Encoding::Panels { width: 32, depth };
    w
}

/// Builds Σg s[g, n] · Σj x[m, g·G + j] · w[g·G + j, n] over groups g of G elements; if `added`, each group also adds
/// t[g, n] · r[m, g].
pub fn sum_of_groups(b: &mut Builder, x: usize, types: [DType; 2], s: &Groups, added: bool) -> usize {
    let wide = if types[0] == DType::F32 { DType::F32 } else { DType::I32 };
    let depth = if types[1] == DType::I4 { 8 } else { 4 };
    let k = format!("{}*%2 + %3", s.size);
    let w = panels(b, types[1], [s.groups * s.size, s.n], &[&k, "%1"], depth);
    let w = b.convert(w, wide);
    let part = b.dot(x, w);
    let part = if wide == DType::I32 { b.convert(part, DType::F32) } else { part };
    let scale = panels(b, DType::F32, [s.groups, s.n], &["%2", "%1"], 1);
    let mut part = b.apply(ScalarFn::Mul, &[part, scale]);
    if added {
        let least = panels(b, DType::F32, [s.groups, s.n], &["%2", "%1"], 1);
        let row = b.load(wide, &[s.m, &s.groups.to_string()], &["%0", "%2"]);
        let row = if wide == DType::I32 { b.convert(row, DType::F32) } else { row };
        let more = b.apply(ScalarFn::Mul, &[least, row]);
        part = b.apply(ScalarFn::Add, &[part, more]);
    }
    b.reduce(ReduceFn::Add, part)
}

pub fn builder_of_groups(types: [DType; 2], s: &Groups) -> (Builder, usize) {
    let [n, groups, size, k] = [s.n, s.groups, s.size, s.groups * s.size].map(|d| d.to_string());
    let mut b = Builder::new(&[s.m, &n], &[&groups]).deep(&[&size]);
    let x = b.load(types[0], &[s.m, &k], &["%0", &format!("{size}*%2 + %3")]);
    let x = if types[0] == DType::F32 { x } else { b.convert(x, DType::I32) };
    (b, x)
}

pub fn grouped(types: [DType; 2], s: &Groups, added: bool) -> Kernel {
    let (mut b, x) = builder_of_groups(types, s);
    let y = sum_of_groups(&mut b, x, types, s, added);
    b.store(y, &[s.m, &s.n.to_string()], &["%0", "%1"]);
    b.0
}

pub fn softmax(rows: &[&str], n: &str) -> Kernel {
    let mut b = Builder::new(rows, &[n]);
    let shape: Vec<&str> = rows.iter().copied().chain([n]).collect();
    let vars: Vec<String> = (0..shape.len()).map(|i| format!("%{i}")).collect();
    let index: Vec<&str> = vars.iter().map(String::as_str).collect();
    let x = b.load(DType::F32, &shape, &index);
    let y = softmax_of(&mut b, x);
    b.store(y, &shape, &index);
    b.0
}

pub fn softmax_of(b: &mut Builder, x: usize) -> usize {
    let max = b.reduce(ReduceFn::Max, x);
    let below = b.apply(ScalarFn::Sub, &[x, max]);
    let e = b.apply(ScalarFn::Exp, &[below]);
    let sum = b.reduce(ReduceFn::Add, e);
    b.apply(ScalarFn::Div, &[e, sum])
}

/// (x - mean) / sqrt(variance + ε) · γ + β of x = a + residual
pub fn layer_norm(n: &str, count: f64) -> Kernel {
    let mut b = Builder::new(&["b", "s"], &[n]);
    let (shape, index) = (["b", "s", n], ["%0", "%1", "%2"]);
    let a = b.load(DType::F32, &shape, &index);
    let residual = b.load(DType::F32, &shape, &index);
    let x = b.apply(ScalarFn::Add, &[a, residual]);
    let sum = b.reduce(ReduceFn::Add, x);
    let n_value = b.constant(count, DType::F32);
    let mean = b.apply(ScalarFn::Div, &[sum, n_value]);
    let d = b.apply(ScalarFn::Sub, &[x, mean]);
    let square = b.apply(ScalarFn::Mul, &[d, d]);
    let squares = b.reduce(ReduceFn::Add, square);
    let variance = b.apply(ScalarFn::Div, &[squares, n_value]);
    let epsilon = b.constant(1e-5, DType::F32);
    let sum = b.apply(ScalarFn::Add, &[variance, epsilon]);
    let root = b.apply(ScalarFn::Sqrt, &[sum]);
    let y = b.apply(ScalarFn::Div, &[d, root]);
    let gamma = b.load(DType::F32, &[n], &["%2"]);
    let beta = b.load(DType::F32, &[n], &["%2"]);
    let y = b.apply(ScalarFn::Mul, &[y, gamma]);
    let y = b.apply(ScalarFn::Add, &[y, beta]);
    b.store(y, &shape, &index);
    b.0
}
