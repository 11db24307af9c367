//! Kernels on one core: GFLOP/s of contractions and their share of an FMA loop measured between their runs; elements
//! per nanosecond of the others

#[path = "../tests/kernels/build.rs"]
#[allow(dead_code)]
mod build;
#[path = "../tests/kernels/harness.rs"]
#[allow(dead_code)]
mod harness;

use build::Builder;
use harness::{Case, Guarded, Library, variants};
use sardonyx::codegen::build_shared_object;
use sardonyx_dialects::flow::kernel::{Kernel, Layout};
use sardonyx_dialects::interp::pack_panels;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_passes::kernel::{Lowered, Variant, lower, packable};
use sardonyx_runtime::plan::{KERNEL_ABI_VERSION, KernelArgs, KernelFn};
use sardonyx_runtime::{DType, Dim};
use std::arch::x86_64::*;
use std::time::Instant;

struct Shape {
    name: String,
    kernel: Kernel,
    symbols: Vec<(&'static str, i64)>,
    /// Of one run: floating-point operations, or elements where `per_element`.
    work: f64,
    per_element: bool,
}

impl Shape {
    fn contraction(name: String, kernel: Kernel, symbols: &[(&'static str, i64)], flops: f64) -> Shape {
        Shape { name, kernel, symbols: symbols.to_vec(), work: flops, per_element: false }
    }

    fn elements(name: &str, kernel: Kernel, symbols: &[(&'static str, i64)], n: usize) -> Shape {
        Shape { name: name.into(), kernel, symbols: symbols.to_vec(), work: n as f64, per_element: true }
    }
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
    Shape::contraction(name, kernel, &[("s", m)], 2.0 * m as f64 * n as f64 * k as f64)
}

fn attention(name: &str, kernel: Kernel) -> Shape {
    let symbols = [("b", 1), ("s", 128), ("t", 128)];
    Shape::contraction(format!("{name} 12 heads s128 d32"), kernel, &symbols, 2.0 * 12.0 * 128.0 * 128.0 * 32.0)
}

fn bias(columns: &str) -> Kernel {
    let mut b = Builder::new(&["s", columns], &[]);
    let x = b.load(DType::F32, &["s", columns], &["%0", "%1"]);
    let bias = b.load(DType::F32, &[columns], &["%1"]);
    let y = b.apply(ScalarFn::Add, &[x, bias]);
    b.store(y, &["s", columns], &["%0", "%1"]);
    b.0
}

fn main() {
    let mut shapes = vec![];
    for (m, n, k) in
        [(128, 384, 384), (128, 1536, 384), (128, 384, 1536), (128, 3072, 768), (128, 768, 3072), (1024, 1024, 1024)]
    {
        shapes.push(gemm(m, n, k, false, Epilogue::None));
    }
    shapes.push(gemm(128, 384, 384, true, Epilogue::Bias));
    shapes.push(gemm(128, 1536, 384, true, Epilogue::Gelu));
    shapes.push(gemm(100, 384, 1536, true, Epilogue::Bias));
    shapes.push(gemm(1, 384, 384, true, Epilogue::Bias));
    shapes.push(gemm(1, 4096, 4096, true, Epilogue::None));
    shapes.push(gemm(4, 4096, 4096, true, Epilogue::None));
    shapes.push(attention("q·k", build::scores(12, 32)));
    shapes.push(attention("p·v", build::mixed(12, 32)));
    let symbols = [("b", 1), ("s", 128)];
    shapes.push(Shape::elements("softmax 1536x128", build::softmax(&["12", "s"], "s"), &symbols, 12 * 128 * 128));
    let norm = build::layer_norm("384", 384.0);
    shapes.push(Shape::elements("layer norm of a sum 128x384", norm, &symbols, 128 * 384));
    shapes.push(Shape::elements("bias 128x384", bias("384"), &symbols, 128 * 384));
    shapes.push(Shape::elements("bias 128x8", bias("8"), &symbols, 128 * 8));
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
        println!("{}: GFLOP/s and share of the FMA loop, or elements/ns", variant.name());
        for (i, shape) in shapes.iter().enumerate() {
            let (rate, share) = measure(library.kernel(&format!("k{i}"), variant), &lowered[i], shape, variant);
            let share = if shape.per_element { String::new() } else { format!("{:>5.0} %", share * 100.0) };
            println!("  {:<40} {rate:>7.1} {share}", shape.name);
        }
    }
}

/// Medians of the kernel's rate and of its share of the peak loops run directly before and after.
fn measure(f: KernelFn, lowered: &Lowered, shape: &Shape, variant: Variant) -> (f64, f64) {
    let case = Case::new(&shape.name, shape.kernel.clone(), &shape.symbols);
    let value = |name: &str| shape.symbols.iter().find(|s| s.0 == name).map(|s| s.1);
    let mut memory: Vec<Guarded> = case.reads.iter().map(|t| Guarded::with(t.bytes(), 64)).collect();
    for (i, container) in case.kernel.reads.iter().enumerate() {
        if let Layout::Panels { width } = container.layout {
            let packed = pack_panels(&case.reads[i], width).unwrap();
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
    let repeats = (2e7 / shape.work).ceil().clamp(1.0, 2000.0) as usize;
    let mut samples: Vec<(f64, f64)> = vec![];
    for _ in 0..41 {
        let before = peak(variant);
        let start = cpu_seconds();
        for _ in 0..repeats {
            // SAFETY: the buffers have the sizes of the kernel's containers.
            unsafe { f(&args) };
        }
        let rate = shape.work * repeats as f64 / (cpu_seconds() - start) / 1e9;
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
    let start = cpu_seconds();
    // SAFETY: `variants` gave only what this CPU has.
    let flops = unsafe {
        match variant {
            Variant::V3 => fma_256(),
            Variant::V4 => fma_512(),
        }
    };
    flops / (cpu_seconds() - start) / 1e9
}

/// Time that this thread has run, so that other programs on the machine do not count.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

const ROUNDS: usize = 16000;

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
