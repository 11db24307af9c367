//! pyptx 0.1.1, kernels written by hand in PTX for sm_80: matrix products, layer normalisation, softmax

use super::numbers::{Random, close, product};
use super::vm::{Arg, Kernel, SEEDS, Vm, explained};
use ptxvm::Module;
use sardonyx_tests::prepared::{fetched, workspace};
use std::process::Command;

/// The kernel that a builder of the package's examples generates for these sizes, with the launch that it declares.
fn generated(example: &str, builder: &str, sizes: &[usize]) -> Kernel {
    let mut python = Command::new("python3");
    python.arg(workspace().join("tests/tests/published/generate.py"));
    python.arg(fetched("pyptx-0.1.1", "pyptx.whl")).arg(format!("pyptx.examples.ampere.{example}")).arg(builder);
    let run = python.args(sizes.iter().map(ToString::to_string)).output().expect("python3 is there");
    assert!(run.status.success(), "{example}: {}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).expect("PTX is text");
    let launch = text.lines().next().and_then(|l| l.strip_prefix("// launch ")).expect("the first line is the launch");
    let n: Vec<u32> = launch.split(' ').map(|w| w.parse().expect("a number")).collect();
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{example}: {e}"));
    let entry = module.entries().next().expect("it has a kernel").to_string();
    Kernel { module, entry, grid: [n[0], n[1], n[2]], block: [n[3], n[4], n[5]], shared_bytes: n[6] }
}

/// Checks a[m,k] · b[n,k] → d[m,n], bf16 with f32 accumulators.
fn matrix_product(example: &str, builder: &str, [m, n, k]: [usize; 3]) {
    let kernel = generated(example, builder, &[m, n, k]);
    let mut random = Random::new(7);
    let (a, b) = (random.bfloats(m * k, 1.0), random.bfloats(n * k, 1.0));
    let (wanted, size) = product(&a, &b, k);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let (a, b) = (vm.bfloats("a", &a), vm.bfloats("b", &b));
        let d = vm.room("d", m * n * 4);
        let report = vm.launch(&kernel, &[Arg::Address(a), Arg::Address(b), Arg::Address(d)], seed);
        explained(example, &report, &[]);
        // Each of the k additions rounds, or truncates, once.
        let bound = |i: usize| k as f64 * f64::from(f32::EPSILON) * size[i];
        close(example, &vm.read_floats(d, m * n), &wanted, bound);
    }
}

/// A ring of four buffers filled by cp.async.cg, ldmatrix from swizzled rows, mma of bf16.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn matrix_product_of_cp_async_ldmatrix_and_mma() {
    matrix_product("gemm_highperf_ampere", "build_gemm_highperf", [256, 128, 192]);
}

/// Two buffers filled by cp.async, fragments loaded word by word, mma of bf16.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn matrix_product_of_double_buffered_cp_async_and_mma() {
    matrix_product("gemm_pipelined", "build_gemm_pipelined", [128, 64, 80]);
}

/// Moments in one pass, with shuffles within warps and shared memory between them.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn layer_normalisation() {
    let (rows, n) = (16, 256);
    let kernel = generated("layer_norm", "build_layer_norm", &[rows, n]);
    let mut random = Random::new(8);
    let (x, w, b) = (random.floats(rows * n, 2.0), random.floats(n, 1.0), random.floats(n, 1.0));
    let mut wanted = vec![];
    for row in x.chunks(n) {
        let of = |f: &dyn Fn(f64) -> f64| row.iter().map(|v| f(f64::from(*v))).sum::<f64>() / n as f64;
        let mean = of(&|v| v);
        let scale = 1.0 / (of(&|v| (v - mean).powi(2)) + 1e-5).sqrt();
        wanted.extend((0..n).map(|i| (f64::from(row[i]) - mean) * scale * f64::from(w[i]) + f64::from(b[i])));
    }
    for seed in SEEDS {
        let mut vm = Vm::new();
        let inputs = [vm.floats("x", &x), vm.floats("w", &w), vm.floats("b", &b)];
        let y = vm.room("y", rows * n * 4);
        let args: Vec<Arg> = inputs.into_iter().chain([y]).map(Arg::Address).collect();
        let report = vm.launch(&kernel, &args, seed);
        explained("layer_norm", &report, &[]);
        // The variance is a difference of two sums of 256 terms of up to 4; rsqrt.approx adds an error of 2⁻²².
        close("layer_norm", &vm.read_floats(y, rows * n), &wanted, |_| 64.0 * f64::from(f32::EPSILON));
    }
}

#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn softmax_of_rows() {
    let (rows, n) = (16, 256);
    let kernel = generated("softmax", "build_softmax", &[rows, n]);
    let x = Random::new(9).floats(rows * n, 8.0);
    let wanted = super::fusedtok::softmax(&x, n);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let (x, y) = (vm.floats("x", &x), vm.room("y", rows * n * 4));
        let report = vm.launch(&kernel, &[Arg::Address(x), Arg::Address(y)], seed);
        explained("softmax", &report, &[]);
        // ex2.approx has an error of 2⁻²², and its argument, up to 24, is rounded before.
        let bound = |i: usize| wanted[i] * 48.0 * f64::from(f32::EPSILON);
        close("softmax", &vm.read_floats(y, rows * n), &wanted, bound);
    }
}
