//! Kernels that the benchmark measures, one per table row

use crate::build::{Builder, attended, gated, layer_norm, mixed, scores, softmax, softmax_of};
use sardonyx_base::{DType, Encoding};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Target, packable};
use sardonyx_passes::narrowed_attention;

/// The reference with which the rate of a row's kernel is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// The FMA peak.
    Product,
    /// For a product of few rows: the FMA peak or a plain read of the weights, whichever limits its rate more.
    Stream,
    /// The peak of the instruction that multiplies the kernel's operand words, and a plain read of the weights, at the
    /// highest CPU level for which the kernel has code and that this CPU executes.
    Words,
    /// The FMA peak, and separate kernels that compute the same result one after another.
    Whole,
    /// A plain read of the same number of bytes as the kernel reads and writes together.
    Moved,
    /// No reference: the row shows elements per nanosecond.
    Elements,
}

impl Kind {
    pub const TABLES: &[(Kind, &str)] = &[
        (Kind::Product, "contraction, m x n x k"),
        (Kind::Stream, "few rows, m x n x k"),
        (Kind::Words, "narrow factors, m x n x k"),
        (Kind::Whole, "as one kernel"),
        (Kind::Moved, "large rows"),
        (Kind::Elements, "row-wise and elementwise"),
    ];
}

#[derive(Clone)]
pub struct Shape {
    pub name: String,
    pub kernel: Kernel,
    pub symbols: Vec<(&'static str, i64)>,
    pub kind: Kind,
    /// Floating-point operations or elements of one run.
    pub work: f64,
    /// Bytes of the constant operand, or all bytes moved; 0 if the row is not compared with a plain read.
    pub weight_bytes: usize,
    /// Separate kernels that together compute the same result; empty if the row is not compared with them.
    pub parts: Vec<Shape>,
}

#[derive(Clone, Copy, PartialEq)]
enum Epilogue {
    None,
    Bias,
    Gelu,
}

/// a[m, k] · b[k, n] with packed b. `m` is symbolic in the kernel.
fn gemm(kind: Kind, (m, n, k): (i64, i64, i64), epilogue: Epilogue) -> Shape {
    let (ns, ks) = (n.to_string(), k.to_string());
    let mut b = Builder::new(&["s", &ns], &[&ks]);
    let x = b.load(DType::F32, &["s", &ks], &["%0", "%2"]);
    let w = b.load(DType::F32, &[&ks, &ns], &["%2", "%1"]);
    let mut y = b.dot(x, w);
    let mut name = format!("{m} x {n} x {k}");
    if epilogue != Epilogue::None {
        let bias = b.load(DType::F32, &[&ns], &["%1"]);
        y = b.apply(ScalarFn::Add, &[y, bias]);
        name += " + bias";
    }
    if epilogue == Epilogue::Gelu {
        y = b.gelu(y);
        name += ", gelu";
    }
    b.store(y, &["s", &ns], &["%0", "%1"]);
    let kernel = packable(&b.0, Target::cpu()).expect("a constant right operand").kernel;
    let (work, weight_bytes) = (2.0 * m as f64 * n as f64 * k as f64, 4 * (n * k) as usize);
    Shape { name, kernel, symbols: vec![("s", m)], kind, work, weight_bytes, parts: vec![] }
}

/// a[m, k] · b[k, n] with operands of types `left` and `right`, accumulated in type `sum`, with `depth` rows of b
/// interleaved.
fn narrow((m, n, k): (i64, i64, i64), [left, right, sum]: [DType; 3], depth: usize) -> Shape {
    let (ns, ks) = (n.to_string(), k.to_string());
    let mut b = Builder::new(&["s", &ns], &[&ks]);
    let x = b.load(left, &["s", &ks], &["%0", "%2"]);
    let w = b.load(right, &[&ks, &ns], &["%2", "%1"]);
    b.0.reads[1].encoding = Encoding::Panels { width: 32, depth };
    let (x, w) = (b.convert(x, sum), b.convert(w, sum));
    let y = b.dot(x, w);
    b.store(y, &["s", &ns], &["%0", "%1"]);
    let (work, weight_bytes) = (2.0 * m as f64 * n as f64 * k as f64, right.bytes() * (n * k) as usize);
    let name = format!("{m} x {n} x {k}, {left} by {right}");
    Shape { name, kernel: b.0, symbols: vec![("s", m)], kind: Kind::Words, work, weight_bytes, parts: vec![] }
}

/// One of the separate kernels of attention, with twelve heads, `s` queries, `s` keys and head width `d`.
fn attention(what: &str, kernel: Kernel, s: i64, d: i64) -> Shape {
    let work = 2.0 * 12.0 * (s * s * d) as f64;
    let name = format!("attention {what}, 12 heads, s {s}, d {d}");
    let symbols = vec![("b", 1), ("s", s), ("t", s)];
    Shape { name, kernel, symbols, kind: Kind::Product, work, weight_bytes: 0, parts: vec![] }
}

/// Attention of `h` heads with `s` queries and `t` keys, as one kernel and as three kernels.
fn whole_attention(h: i64, (s, t, d): (i64, i64, i64)) -> Shape {
    let symbols = vec![("b", 1), ("s", s), ("t", t)];
    let part = |kernel: Kernel, work: f64| {
        let (name, symbols) = (format!("attention part {h} {s} {t} {d}"), symbols.clone());
        Shape { name, kernel, symbols, kind: Kind::Whole, work, weight_bytes: 0, parts: vec![] }
    };
    let work = 2.0 * (h * s * t * d) as f64;
    let rows = h.to_string();
    let parts = vec![
        part(scores(h, d), work),
        part(softmax(&["b", &rows, "s"], "t"), (h * s * t) as f64),
        part(mixed(h, d), work),
    ];
    let name = format!("attention whole, {h} heads, s {s}, t {t}, d {d}");
    Shape { name, kernel: attended(h, d), symbols, kind: Kind::Whole, work: 2.0 * work, weight_bytes: 0, parts }
}

/// Attention as in `whole_attention`, as one kernel, with operands rounded to bf16.
fn narrow_attention(h: i64, size: (i64, i64, i64)) -> Shape {
    let Shape { name, kernel, symbols, work, .. } = whole_attention(h, size);
    let kernel = narrowed_attention(&kernel).expect("its factors can be rounded");
    let (s, t, d) = size;
    let (name, weight_bytes) = (name.replace("whole", "bf16"), 8 * (h * (s + t) * d) as usize);
    Shape { name, kernel, symbols, kind: Kind::Words, work, weight_bytes, parts: vec![] }
}

/// silu(x · g) * (x · u) over packed g and u, as one kernel and as two consecutive contractions.
fn whole_gate((m, n, k): (i64, i64, i64)) -> Shape {
    let (ns, ks) = (n.to_string(), k.to_string());
    let (work, weight_bytes) = (2.0 * (m * n * k) as f64, 4 * (n * k) as usize);
    let first = Shape { kind: Kind::Whole, ..gemm(Kind::Whole, (m, n, k), Epilogue::None) };
    let mut b = Builder::new(&["s", &ns], &[&ks]);
    let x = b.load(DType::F32, &["s", &ks], &["%0", "%2"]);
    let w = b.load(DType::F32, &[&ks, &ns], &["%2", "%1"]);
    let up = b.dot(x, w);
    let gate = b.load(DType::F32, &["s", &ns], &["%0", "%1"]);
    let silu = b.silu(gate);
    let y = b.apply(ScalarFn::Mul, &[silu, up]);
    b.store(y, &["s", &ns], &["%0", "%1"]);
    let kernel = packable(&b.0, Target::cpu()).expect("a constant right operand").kernel;
    let parts = vec![first.clone(), Shape { kernel, ..first }];
    let kernel = packable(&gated("s", &ns, &ks), Target::cpu()).expect("constant right operands").kernel;
    let (name, symbols) = (format!("gate and up, {m} x {n} x {k}"), vec![("s", m)]);
    Shape { name, kernel, symbols, kind: Kind::Whole, work: 2.0 * work, weight_bytes: 2 * weight_bytes, parts }
}

fn elements(name: &str, kernel: Kernel, n: usize) -> Shape {
    let symbols = vec![("b", 1), ("s", 128)];
    Shape { name: name.into(), kernel, symbols, kind: Kind::Elements, work: n as f64, weight_bytes: 0, parts: vec![] }
}

/// A kernel over 4096 rows of 1024 elements that reads and writes `n` matrices of this size in total.
fn moved(name: &str, kernel: Kernel, n: usize) -> Shape {
    let elements = 4096 * 1024;
    let symbols = vec![("b", 32), ("s", 128)];
    let (name, work, weight_bytes) = (name.into(), elements as f64, n * elements * 4);
    Shape { name, kernel, symbols, kind: Kind::Moved, work, weight_bytes, parts: vec![] }
}

/// Softmax in which a mask puts every other element far below the maximum.
fn hidden_softmax() -> Kernel {
    let mut b = Builder::new(&["12", "s"], &["s"]);
    let x = b.load(DType::F32, &["12", "s", "s"], &["%0", "%1", "%2"]);
    let (column, two, one) = (b.index("%2"), b.constant(2.0, DType::I64), b.constant(1.0, DType::I64));
    let odd = b.apply(ScalarFn::Rem, &[column, two]);
    let odd = b.apply(ScalarFn::Eq, &[odd, one]);
    let hidden = b.constant(-3e38, DType::F32);
    let x = b.apply(ScalarFn::Select, &[odd, hidden, x]);
    let e = softmax_of(&mut b, x);
    b.store(e, &["12", "s", "s"], &["%0", "%1", "%2"]);
    b.0
}

fn bias(columns: &str) -> Kernel {
    let mut b = Builder::new(&["s", columns], &[]);
    let x = b.load(DType::F32, &["s", columns], &["%0", "%1"]);
    let bias = b.load(DType::F32, &[columns], &["%1"]);
    let y = b.apply(ScalarFn::Add, &[x, bias]);
    b.store(y, &["s", columns], &["%0", "%1"]);
    b.0
}

pub fn shapes() -> Vec<Shape> {
    let mut shapes = vec![];
    // Shapes of MiniLM and BERT base, and a square shape; then shapes whose rows or columns leave a remainder.
    for size in [
        (128, 384, 384),
        (128, 1536, 384),
        (128, 384, 1536),
        (128, 768, 768),
        (128, 3072, 768),
        (128, 768, 3072),
        (1024, 1024, 1024),
        (13, 768, 768),
        (127, 768, 768),
        (128, 33, 768),
        (127, 33, 768),
    ] {
        shapes.push(gemm(Kind::Product, size, Epilogue::None));
    }
    shapes.push(gemm(Kind::Product, (128, 768, 768), Epilogue::Bias));
    shapes.push(gemm(Kind::Product, (128, 3072, 768), Epilogue::Gelu));
    for (s, d) in [(128, 64), (128, 32), (100, 64), (16, 64)] {
        shapes.push(attention("q·k", scores(12, d), s, d));
        shapes.push(attention("p·v", mixed(12, d), s, d));
    }
    for (h, size) in [
        (12, (128, 128, 64)),
        (12, (128, 128, 32)),
        (12, (197, 197, 64)),
        (12, (512, 512, 64)),
        (8, (2048, 2048, 128)),
        (12, (16, 16, 64)),
        (12, (4, 512, 64)),
        (12, (1, 128, 64)),
        (12, (1, 1024, 64)),
        (8, (1, 4096, 128)),
    ] {
        shapes.push(whole_attention(h, size));
    }
    for size in [(128, 128, 64), (128, 128, 32), (512, 512, 64)] {
        shapes.push(narrow_attention(12, size));
    }
    for size in [(128, 3072, 768), (128, 5504, 2048), (48, 704, 256), (13, 3072, 768), (8, 3072, 768), (2, 3072, 768)] {
        shapes.push(whole_gate(size));
    }
    for size in [(1, 704, 256), (1, 3072, 768), (1, 5504, 2048)] {
        shapes.push(whole_gate(size));
    }
    for (n, k) in [(384, 384), (768, 768), (3072, 768), (4096, 4096)] {
        for m in [1, 2, 4, 8] {
            shapes.push(gemm(Kind::Stream, (m, n, k), Epilogue::Bias));
        }
    }
    // 192 MB of weights.
    shapes.push(gemm(Kind::Stream, (1, 12288, 4096), Epilogue::None));
    for (types, depth) in [([DType::U8, DType::I8, DType::I32], 4), ([DType::BF16, DType::BF16, DType::F32], 2)] {
        for size in [(128, 768, 768), (128, 3072, 768), (128, 768, 3072), (512, 512, 512), (1024, 1024, 1024)] {
            shapes.push(narrow(size, types, depth));
        }
        // 192 MB of weights.
        shapes.push(narrow((1, (192 << 20) / 4096 / types[1].bytes() as i64, 4096), types, depth));
    }
    shapes.push(moved("softmax 4096 x 1024", softmax(&["b", "s"], "1024"), 2));
    shapes.push(moved("layer norm of a sum 4096 x 1024", layer_norm("1024", 1024.0), 3));
    shapes.push(elements("softmax 1536 x 128", softmax(&["12", "s"], "s"), 12 * 128 * 128));
    shapes.push(elements("softmax 1536 x 128, half hidden by a mask", hidden_softmax(), 12 * 128 * 128));
    shapes.push(elements("layer norm of a sum 128 x 384", layer_norm("384", 384.0), 128 * 384));
    shapes.push(elements("bias 128 x 384", bias("384"), 128 * 384));
    shapes.push(elements("bias 128 x 8", bias("8"), 128 * 8));
    shapes
}
