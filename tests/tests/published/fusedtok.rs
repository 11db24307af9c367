//! fusedtok 2.5.0, CUDA compiled by nvcc 12.4: int8 products, attention, normalisations, selection and sorting
//!
//! The package contains PTX for sm_86. This PTX uses nothing beyond sm_80, as NVIDIA's assembler confirms in the suite
//! `ptxas`, so it runs here with the target sm_80.

use super::numbers::{Random, close};
use super::vm::{Arg, Expected, Kernel, SEEDS, Vm, explained};
use half::bf16;
use ptxvm::{Kind, Module};
use sardonyx_tests::fatbin;
use sardonyx_tests::prepared::fetched;
use std::sync::OnceLock;

/// Returns the texts of the modules, with the target sm_80.
fn modules() -> &'static [String] {
    static TEXTS: OnceLock<Vec<String>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let library = std::fs::read(fetched("fusedtok-2.5.0", "kernels.so")).expect("the file is there");
        let texts = fatbin::modules(&library);
        assert_eq!(texts.len(), 11);
        texts.iter().map(|t| t.replace(".target sm_86", ".target sm_80")).collect()
    })
}

/// Returns the kernel whose mangled name contains `part`, with its module.
fn kernel(part: &str, grid: u32, block: u32, shared_bytes: u32) -> Kernel {
    let text = modules().iter().find(|t| t.lines().any(|l| l.contains(".entry") && l.contains(part)));
    let text = text.unwrap_or_else(|| panic!("no module has {part}"));
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{part}: {e}"));
    let entry = module.entries().find(|e| e.contains(part)).expect("the text has it").to_string();
    Kernel { module, entry, grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes }
}

/// Returns exp(x - max) divided by its sum, in each row of `n` elements.
pub fn softmax(x: &[f32], n: usize) -> Vec<f64> {
    let row = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let e: Vec<f64> = row.iter().map(|v| (f64::from(*v) - f64::from(max)).exp()).collect();
        let sum: f64 = e.iter().sum();
        e.into_iter().map(move |v| v / sum).collect::<Vec<_>>()
    };
    x.chunks(n).flat_map(row).collect()
}

/// `softmax_online_kernel<float, 256>(x, y, n)`: a running maximum and sum, combined pairwise by shuffles.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn online_softmax_of_rows() {
    let (rows, n) = (3, 1000);
    let kernel = kernel("softmax_online_kernelIfLi256E", rows, 256, 0);
    let x = Random::new(1).floats(rows as usize * n, 8.0);
    let wanted = softmax(&x, n);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let (x, y) = (vm.floats("x", &x), vm.room("y", wanted.len() * 4));
        let report = vm.launch(&kernel, &[Arg::Address(x), Arg::Address(y), Arg::I32(n as i32)], seed);
        explained("softmax", &report, &[]);
        // ex2.approx has an error of 2⁻²², its argument, up to 24, has been rounded, and the sum is rescaled
        // repeatedly.
        let bound = |i: usize| wanted[i] * 64.0 * f64::from(f32::EPSILON);
        close("softmax", &vm.read_floats(y, wanted.len()), &wanted, bound);
    }
}

/// `layernorm_kernel<__nv_bfloat16, 256>(x, gamma, beta, y, n, eps)`: the kernel has a race, and some orders of the
/// warps give wrong results.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn layer_normalisation_of_bf16_that_races() {
    let n = 770;
    let kernel = kernel("layernorm_kernelI13__nv_bfloat16Li256E", 1, 256, 0);
    let mut random = Random::new(2);
    let (x, g, b) = (random.bfloats(n, 2.0), random.floats(n, 1.0), random.floats(n, 1.0));
    let of = |f: &dyn Fn(f64) -> f64| x.iter().map(|v| f(f64::from(*v))).sum::<f64>() / n as f64;
    let mean = of(&|v| v);
    let scale = 1.0 / (of(&|v| (v - mean).powi(2)) + 1e-5).sqrt();
    let value = |i: usize| (f64::from(x[i]) - mean) * scale * f64::from(g[i]) + f64::from(b[i]);
    let wanted: Vec<f64> = (0..n).map(value).collect();
    let right = (0..32).filter(|seed| {
        let mut vm = Vm::new();
        let inputs = [vm.bfloats("x", &x), vm.floats("g", &g), vm.floats("b", &b)];
        let y = vm.room("y", n * 2);
        let addresses = inputs.into_iter().chain([y]).map(Arg::Address);
        let args: Vec<Arg> = addresses.chain([Arg::I32(n as i32), Arg::F32(1e-5)]).collect();
        let report = vm.launch(&kernel, &args, *seed);
        explained("layernorm", &report, MEAN_OVERWRITTEN);
        // Half a unit in the last place of bf16, and a little for the sums in f32.
        let near = |(y, w): (&f32, &f64)| (f64::from(*y) - w).abs() <= w.abs() * 0.501 / 128.0 + 1e-5;
        vm.read_bfloats(y, n).iter().zip(&wanted).all(near)
    });
    let right = right.count();
    println!("layernorm: right under {right} of 32 schedules");
    assert!((1..32).contains(&right), "{right} of 32 schedules give the right numbers");
}

/// This race is a bug in the kernel. On a real GPU, the long loop between the two accesses usually hides it.
static MEAN_OVERWRITTEN: &[Expected] = &[Expected {
    kind: Kind::Race,
    why: "all threads read the mean from the first word of shared memory, and then the leader of the first warp puts its \
          part of the variance there; no barrier keeps it from doing so before the others have read",
}];

/// Returns a[m,k] · w[n,k]ᵀ, computed in exact integers and then scaled in f32.
fn scaled_product(a: &[i8], w: &[i8], k: usize, scales: &[f32], scale: f32) -> Vec<f32> {
    let dot = |x: &[i8], y: &[i8]| -> i32 { x.iter().zip(y).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum() };
    let row = |x: &[i8]| -> Vec<f32> { w.chunks(k).zip(scales).map(|(y, s)| *s * scale * dot(x, y) as f32).collect() };
    a.chunks(k).flat_map(row).collect()
}

fn signed(values: &[i8]) -> Vec<u8> {
    values.iter().map(|v| *v as u8).collect()
}

/// `qgemm_pipe_kernel<64, 64, 64, 2, 1, 256, true>(a, w, scales, y, m, n, k, scale)`: two buffers filled by cp.async,
/// and tensor cores through wmma; the last tiles along m, n and k are partial.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn product_of_int8_by_cp_async_and_wmma() {
    let (m, n, k) = (80, 72, 208);
    let mut kernel = kernel("qgemm_pipe_kernelILi64ELi64ELi64ELi2ELi1ELi256ELb1E", 2, 256, 16384 + 64 * 64 * 4);
    kernel.grid[1] = 2;
    let mut random = Random::new(3);
    let (a, w) = (random.bytes(m * k, -128, 127), random.bytes(n * k, -128, 127));
    let scales = random.floats(n, 0.01);
    let wanted = scaled_product(&a, &w, k, &scales, 0.25);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let inputs = [vm.bytes("a", &signed(&a)), vm.bytes("w", &signed(&w)), vm.floats("scales", &scales)];
        let y = vm.room("y", m * n * 4);
        let addresses = inputs.into_iter().chain([y]).map(Arg::Address);
        let sizes = [m, n, k].map(|v| Arg::I32(v as i32));
        let args: Vec<Arg> = addresses.chain(sizes).chain([Arg::F32(0.25)]).collect();
        let report = vm.launch(&kernel, &args, seed);
        explained("qgemm", &report, &[]);
        assert_eq!(vm.read_floats(y, m * n), wanted, "sums of integers, scaled in the same order");
    }
}

/// `qgemv_kernel<true>(x, w, scales, y, n, k, scale)`: a warp per row, dp4a, shuffles.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn product_of_an_int8_vector_by_dp4a() {
    let (n, k) = (37, 1111);
    let kernel = kernel("qgemv_kernelILb1E", 5, 256, 0);
    let mut random = Random::new(4);
    let (x, w) = (random.bytes(k, -128, 127), random.bytes(n * k, -128, 127));
    let scales = random.floats(n, 0.01);
    let wanted = scaled_product(&x, &w, k, &scales, 0.5);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let inputs = [vm.bytes("x", &signed(&x)), vm.bytes("w", &signed(&w)), vm.floats("scales", &scales)];
        let y = vm.room("y", n * 4);
        let addresses = inputs.into_iter().chain([y]).map(Arg::Address);
        let args: Vec<Arg> = addresses.chain([Arg::I32(n as i32), Arg::I32(k as i32), Arg::F32(0.5)]).collect();
        let report = vm.launch(&kernel, &args, seed);
        explained("qgemv", &report, &[]);
        assert_eq!(vm.read_floats(y, n), wanted, "sums of integers, scaled in the same order");
    }
}

/// `attn_prefill_wmma_kernel<64, 32, true, __nv_bfloat16>(q, k, v, o, heads, kv_heads, s, causal)`: flash attention
/// with mma for both products; here q is [h,s,d], k and v are [h/2,s,d].
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn flash_attention_of_bf16() {
    for causal in [true, false] {
        flash_attention(causal);
    }
}

fn flash_attention(causal: bool) {
    let (h, shared_heads, s, d) = (4, 2, 90_usize, 64);
    let kernel = kernel("attn_prefill_wmma_kernelILi64ELi32ELb1E", (h * s.div_ceil(64)) as u32, 128, 22528);
    let mut random = Random::new(5);
    let q = random.bfloats(h * s * d, 1.0);
    let (k, v) = (random.bfloats(shared_heads * s * d, 1.0), random.bfloats(shared_heads * s * d, 1.0));
    let wanted = attention(&q, &k, &v, [h, shared_heads, s, d], causal);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let inputs = [vm.bfloats("q", &q), vm.bfloats("k", &k), vm.bfloats("v", &v)];
        let o = vm.room("o", wanted.len() * 2);
        let addresses = inputs.into_iter().chain([o]).map(Arg::Address);
        let sizes = [h, shared_heads, s, usize::from(causal)].map(|v| Arg::I32(v as i32));
        let args: Vec<Arg> = addresses.chain(sizes).collect();
        let report = vm.launch(&kernel, &args, seed);
        explained("attention", &report, &[]);
        // The result is rounded to bf16, with a relative error of at most 2⁻⁸. The weights are rounded to bf16 before
        // the second product; 2⁻⁹ is allowed for that, as values are at most 1.
        close("attention", &vm.read_bfloats(o, wanted.len()), &wanted, |i| wanted[i].abs() / 256.0 + 1.0 / 512.0);
    }
}

/// Returns softmax(q · k / √d) · v; each key and value head serves `h / shared` query heads.
fn attention(q: &[f32], k: &[f32], v: &[f32], [h, shared, s, d]: [usize; 4], causal: bool) -> Vec<f64> {
    let row = |x: &[f32], head: usize, i: usize| x[(head * s + i) * d..][..d].to_vec();
    let mut out = vec![];
    for (head, i) in (0..h).flat_map(|head| (0..s).map(move |i| (head, i))) {
        let other = head / (h / shared);
        let keys = if causal { i + 1 } else { s };
        let q = row(q, head, i);
        let dot = |j: usize| -> f64 {
            row(k, other, j).iter().zip(&q).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum::<f64>() / (d as f64).sqrt()
        };
        let scores: Vec<f64> = (0..keys).map(dot).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let e: Vec<f64> = scores.iter().map(|x| (x - max).exp()).collect();
        let sum: f64 = e.iter().sum();
        let values: Vec<Vec<f32>> = (0..keys).map(|j| row(v, other, j)).collect();
        out.extend((0..d).map(|c| (0..keys).map(|j| e[j] * f64::from(values[j][c])).sum::<f64>() / sum));
    }
    out
}

/// `argmax_kernel(x, best, arrived, n, result)`: atomics across CTAs; the last CTA to arrive writes the result.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn argmax_by_the_last_cta() {
    let n = 3000;
    let kernel = kernel("13argmax_kernelE", 4, 256, 0);
    let mut x = Random::new(6).floats(n, 8.0);
    (x[700], x[2100]) = (9.0, 9.0);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let (x, best) = (vm.floats("x", &x), vm.longs("best", &[0]));
        let (arrived, result) = (vm.ints("arrived", &[0]), vm.room("result", 4));
        let args =
            [Arg::Address(x), Arg::Address(best), Arg::Address(arrived), Arg::I32(n as i32), Arg::Address(result)];
        let report = vm.launch(&kernel, &args, seed);
        explained("argmax", &report, LAST_CTA);
        assert_eq!(vm.read(result, 1, i32::from_le_bytes), [700], "the first of two equal ones");
        assert_eq!(vm.read(arrived, 1, i32::from_le_bytes), [0], "ready for the next launch");
    }
}

/// This race is harmless, but it is one by the definition of the PTX memory model.
static LAST_CTA: &[Expected] = &[Expected {
    kind: Kind::Race,
    why: "the last CTA sets the counter back with a plain store. The other CTAs' additions to it come after their \
          membar.gl, so no fence orders them before the store; only the value that the last one read does, which says that \
          all have been counted",
}];

/// `chunk_sort_kernel(keys, n, n_padded)`: a bitonic network in shared memory for each chunk of 1024 keys, descending.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn bitonic_sort_of_chunks() {
    let (n, padded) = (1500, 2048);
    let kernel = kernel("17chunk_sort_kernelE", 2, 256, 0);
    let mut random = Random::new(10);
    let keys: Vec<u64> = (0..padded).map(|_| random.bits() >> 1 | 1).collect();
    let mut wanted: Vec<u64> = keys.iter().enumerate().map(|(i, k)| if i < n { *k } else { 0 }).collect();
    wanted.chunks_mut(1024).for_each(|chunk| chunk.sort_by(|a, b| b.cmp(a)));
    for seed in SEEDS {
        let mut vm = Vm::new();
        let at = vm.longs("keys", &keys);
        let report = vm.launch(&kernel, &[Arg::Address(at), Arg::I32(n as i32), Arg::I32(padded as i32)], seed);
        explained("chunk_sort", &report, &[]);
        assert_eq!(vm.read(at, padded, u64::from_le_bytes), wanted);
    }
}

#[test]
fn a_reference_attention_of_one_key_is_its_value() {
    let v: Vec<f32> = (0..4).map(|i| bf16::from_f32(i as f32).to_f32()).collect();
    let out = attention(&[1.0; 4], &[1.0; 4], &v, [1, 1, 1, 4], true);
    assert_eq!(out, [0.0, 1.0, 2.0, 3.0]);
}
