//! GFLOP/s of contraction kernels on one core, and their share of an FMA loop measured between their runs

#[path = "../tests/kernels/build.rs"]
#[allow(dead_code)]
mod build;
#[path = "../tests/kernels/harness.rs"]
#[allow(dead_code)]
mod harness;
#[path = "../tests/kernels/normalise.rs"]
#[allow(dead_code)]
mod normalise;

use build::Builder;
use harness::{Case, Guarded, Library, variants};
use sardonyx::codegen::build_shared_object;
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_passes::kernel::{Lowered, Variant, lower, packable};
use sardonyx_runtime::plan::{KERNEL_ABI_VERSION, KernelArgs, KernelFn};
use sardonyx_runtime::{DType, Dim};
use std::arch::x86_64::*;
use std::time::Instant;

struct Shape {
    name: String,
    kernel: Kernel,
    /// The value of the symbol `s`.
    s: i64,
    flops: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Epilogue {
    None,
    Bias,
    Gelu,
}

fn gemm(m: i64, n: i64, k: i64, symbolic: bool, epilogue: Epilogue) -> Shape {
    let ms = if symbolic { "s".to_string() } else { m.to_string() };
    let (ns, ks) = (n.to_string(), k.to_string());
    let mut b = Builder::new(&[&ms, &ns], &[&ks]);
    let x = b.load(DType::F32, &[&ms, &ks], &["%0", "%2"]);
    let w = b.load(DType::F32, &[&ks, &ns], &["%2", "%1"]);
    let mut y = b.dot(x, w);
    let mut name = format!("gemm {m}x{n}x{k}");
    if symbolic {
        name += " symbolic";
    }
    if epilogue != Epilogue::None {
        let bias = b.load(DType::F32, &[&ns], &["%1"]);
        y = b.apply(ScalarFn::Add, &[y, bias]);
        name += " bias";
    }
    if epilogue == Epilogue::Gelu {
        y = b.gelu(y);
        name += " gelu";
    }
    b.store(y, &[&ms, &ns], &["%0", "%1"]);
    let kernel = packable(&b.0).expect("a constant right operand").kernel;
    Shape { name, kernel, s: m, flops: 2.0 * m as f64 * n as f64 * k as f64 }
}

fn attention(scores: bool) -> Shape {
    let mut b = if scores {
        Builder::new(&["1", "12", "s", "s"], &["32"])
    } else {
        Builder::new(&["1", "12", "s", "32"], &["s"])
    };
    let width = ["1", "s", "384"];
    let p = ["1", "12", "s", "s"];
    if scores {
        let q = b.load(DType::F32, &width, &["%0", "%2", "32*%1 + %4"]);
        let k = b.load(DType::F32, &width, &["%0", "%3", "32*%1 + %4"]);
        let sum = b.dot(q, k);
        let scale = b.constant(0.17677669, DType::F32);
        let sum = b.apply(ScalarFn::Mul, &[sum, scale]);
        b.store(sum, &p, &["%0", "%1", "%2", "%3"]);
    } else {
        let x = b.load(DType::F32, &p, &["%0", "%1", "%2", "%4"]);
        let v = b.load(DType::F32, &width, &["%0", "%4", "32*%1 + %3"]);
        let sum = b.dot(x, v);
        b.store(sum, &width, &["%0", "%2", "32*%1 + %3"]);
    }
    let name = if scores { "q·k 12 heads s128 d32" } else { "p·v 12 heads s128 d32" };
    Shape { name: name.into(), kernel: b.0, s: 128, flops: 2.0 * 12.0 * 128.0 * 128.0 * 32.0 }
}

fn main() {
    let mut shapes = vec![];
    for (m, n, k) in [(128, 384, 384), (128, 1536, 384), (128, 384, 1536)] {
        shapes.push(gemm(m, n, k, false, Epilogue::None));
    }
    shapes.push(gemm(128, 384, 384, true, Epilogue::Bias));
    shapes.push(gemm(128, 1536, 384, true, Epilogue::Gelu));
    shapes.push(gemm(100, 384, 1536, true, Epilogue::Bias));
    shapes.push(gemm(1, 384, 384, true, Epilogue::Bias));
    shapes.push(gemm(1, 4096, 4096, true, Epilogue::None));
    shapes.push(gemm(4, 4096, 4096, true, Epilogue::None));
    shapes.push(attention(true));
    shapes.push(attention(false));
    let points = (12 * 128 * 128) as f64;
    shapes.push(Shape {
        name: "softmax 1536x128".into(),
        kernel: normalise::softmax(&["12", "s"], "s"),
        s: 128,
        flops: points,
    });
    let (points, kernel) = ((128 * 384) as f64, normalise::layer_norm("384", 384.0));
    let kernel = Kernel { outer: vec![Dim::constant(1), Dim::symbol("s")], ..kernel };
    let one = |d: &Dim| d.substitute(&|n| (n == "b").then(|| Dim::constant(1)));
    let mut kernel = kernel;
    for c in kernel.reads.iter_mut().chain(&mut kernel.writes) {
        c.dims = c.dims.iter().map(one).collect();
    }
    shapes.push(Shape { name: "layer norm + residual 128x384".into(), kernel, s: 128, flops: points });
    for columns in ["384", "8"] {
        let mut b = Builder::new(&["s", columns], &[]);
        let x = b.load(DType::F32, &["s", columns], &["%0", "%1"]);
        let bias = b.load(DType::F32, &[columns], &["%1"]);
        let y = b.apply(ScalarFn::Add, &[x, bias]);
        b.store(y, &["s", columns], &["%0", "%1"]);
        shapes.push(Shape {
            name: format!("bias 128x{columns}"),
            kernel: b.0,
            s: 128,
            flops: 128.0 * columns.parse::<f64>().unwrap(),
        });
    }
    let lowered: Vec<Lowered> = shapes.iter().map(|s| lower(&s.kernel).unwrap()).collect();
    let named: Vec<_> = lowered.iter().enumerate().map(|(i, l)| (format!("k{i}"), &l.def)).collect();
    let start = Instant::now();
    let object = build_shared_object(&named).unwrap();
    println!(
        "{} kernels, two variants: {:.0} ms, {} KB",
        shapes.len(),
        start.elapsed().as_secs_f64() * 1e3,
        object.len() / 1024
    );
    let library = Library::new(&object);
    for variant in variants() {
        println!("{}: GFLOP/s, share of the FMA loop", variant.name());
        for (i, shape) in shapes.iter().enumerate() {
            let (rate, share) = measure(library.kernel(&format!("k{i}"), variant), &lowered[i], shape, variant);
            println!("  {:<32} {rate:>7.1} {:>5.0} %", shape.name, share * 100.0);
        }
    }
}

/// Medians of the kernel's rate and of its share of the peak loops run directly before and after.
fn measure(f: KernelFn, lowered: &Lowered, shape: &Shape, variant: Variant) -> (f64, f64) {
    let case = Case::new(&shape.name, shape.kernel.clone(), &[("s", shape.s)]);
    let value = |name: &str| (name == "s").then_some(shape.s);
    let mut memory: Vec<Guarded> = case.reads.iter().map(|t| Guarded::with(t.bytes(), 64)).collect();
    for (i, container) in case.kernel.reads.iter().enumerate() {
        if let sardonyx_dialects::flow::kernel::Layout::Panels { width } = container.layout {
            let packed = sardonyx_dialects::interp::pack_panels(&case.reads[i], width).unwrap();
            memory[i] = Guarded::with(&packed, 64);
        }
    }
    for container in &case.kernel.writes {
        let n: i64 = container.dims.iter().map(|d| d.eval(&value).unwrap()).product();
        memory.push(Guarded::new(n as usize * 4, 64));
    }
    let params: Vec<i64> = lowered.params.iter().map(|d| d.eval(&value).unwrap()).collect();
    let by_param = |s: &str| params.get(s.strip_prefix('p')?.parse::<usize>().ok()?).copied();
    let scratch = Guarded::new(Dim::parse(&lowered.scratch_bytes).unwrap().eval(&by_param).unwrap() as usize, 64);
    let buffers: Vec<*mut u8> = memory.iter().map(|m| m.start).collect();
    let mut status = 0;
    let args = KernelArgs {
        version: KERNEL_ABI_VERSION,
        n_buffers: buffers.len() as u32,
        buffers: buffers.as_ptr(),
        params: params.as_ptr(),
        scratch: scratch.start,
        begin: 0,
        end: lowered.grid.eval(&value).unwrap(),
        status: &mut status,
    };
    let repeats = (2e7 / shape.flops).ceil().clamp(1.0, 2000.0) as usize;
    let mut samples: Vec<(f64, f64)> = vec![];
    for _ in 0..41 {
        let before = peak(variant);
        let start = Instant::now();
        for _ in 0..repeats {
            // SAFETY: the buffers have the sizes of the kernel's containers.
            unsafe { f(&args) };
        }
        let rate = shape.flops * repeats as f64 / start.elapsed().as_secs_f64() / 1e9;
        samples.push((rate, rate / ((before + peak(variant)) / 2.0)));
    }
    let median = |mut v: Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    (median(samples.iter().map(|s| s.0).collect()), median(samples.iter().map(|s| s.1).collect()))
}

/// GFLOP/s of independent multiply-adds in registers.
fn peak(variant: Variant) -> f64 {
    let start = Instant::now();
    // SAFETY: `variants` gave only what this CPU has.
    let flops = unsafe {
        match variant {
            Variant::V3 => fma_256(),
            Variant::V4 => fma_512(),
        }
    };
    flops / start.elapsed().as_secs_f64() / 1e9
}

const ROUNDS: usize = 4000;

#[target_feature(enable = "avx512f")]
fn fma_512() -> f64 {
    let (x, y) = (_mm512_set1_ps(std::hint::black_box(0.999)), _mm512_set1_ps(std::hint::black_box(1e-3)));
    let mut sums = [_mm512_setzero_ps(); 24];
    for _ in 0..ROUNDS {
        for s in &mut sums {
            *s = _mm512_fmadd_ps(*s, x, y);
        }
    }
    let total = sums.iter().fold(_mm512_setzero_ps(), |a, b| _mm512_add_ps(a, *b));
    std::hint::black_box(_mm512_reduce_add_ps(total));
    (ROUNDS * 24 * 32) as f64
}

#[target_feature(enable = "avx2,fma")]
fn fma_256() -> f64 {
    let (x, y) = (_mm256_set1_ps(std::hint::black_box(0.999)), _mm256_set1_ps(std::hint::black_box(1e-3)));
    let mut sums = [_mm256_setzero_ps(); 12];
    for _ in 0..2 * ROUNDS {
        for s in &mut sums {
            *s = _mm256_fmadd_ps(*s, x, y);
        }
    }
    let total = sums.iter().fold(_mm256_setzero_ps(), |a, b| _mm256_add_ps(a, *b));
    std::hint::black_box(_mm256_cvtss_f32(total));
    (2 * ROUNDS * 12 * 16) as f64
}
