//! The kernels that are mutated: flow kernels lowered to PTX, with inputs and the results that they must give

use crate::build::{
    Builder, Groups, byte_products, grouped, layer_norm, mixed, product, scores, softmax, softmax_of, two_of_four,
};
use sardonyx_base::{DType, Dim, Encoding, Tensor};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::flow::sparse::{Grid, TwoOfFour};
use sardonyx_dialects::interp::run_kernel;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_kernels::Target;
use sardonyx_kernels::ptx::attention::Flash;
use sardonyx_kernels::ptx::{self, GpuKernel, PtxKernel};
use sardonyx_kernels::{Lowered, lower};

/// A kernel, and calls that must reveal it when it is broken.
pub struct Subject {
    pub name: &'static str,
    pub lowered: Lowered,
    pub ptx: PtxKernel,
    /// Text of the PTX module.
    pub text: String,
    pub calls: Vec<Call>,
    /// Largest |difference| allowed, as `bound · (1 + |expected|)`.
    pub bound: f64,
}

pub struct Call {
    pub symbols: Vec<(&'static str, i64)>,
    /// Encoded bytes of the operands, as the kernel reads them.
    pub reads: Vec<Vec<u8>>,
    /// Offset of the buffers from a boundary of 256 bytes.
    pub offset: u64,
    pub expected: Vec<Tensor>,
}

impl Call {
    pub fn value(&self, symbol: &str) -> Option<i64> {
        self.symbols.iter().find(|(name, _)| *name == symbol).map(|(_, value)| *value)
    }
}

/// Sizes of one call. `offset` is the byte offset of its buffers, `spike` the index of the large element of each row.
type Sizes = &'static [(&'static str, i64)];

pub fn subjects() -> Vec<Subject> {
    // Rows whose length is a multiple of 16 bytes, of 4 bytes, or neither; along K, fewer and more steps than the
    // software pipeline has stages.
    const FEW_BLOCKS: &[Sizes] = &[
        &[("m", 40), ("n", 64), ("k", 272)],
        &[("m", 33), ("n", 37), ("k", 67)],
        &[("m", 70), ("n", 42), ("k", 134)],
        &[("m", 20), ("n", 42), ("k", 32)],
        &[("m", 24), ("n", 40), ("k", 48), ("offset", 8)],
        &[("m", 600), ("n", 72), ("k", 8)],
    ];
    // A product with many blocks is computed with other tile sizes.
    let gemm_sizes = [FEW_BLOCKS, &[&[("m", 330), ("n", 520), ("k", 264)]]].concat();
    // Rows that one warp holds in registers, rows that several warps hold, and rows too long to be held.
    const ROWS: &[Sizes] = &[
        &[("b", 3), ("n", 70)],
        &[("b", 9), ("n", 132)],
        &[("b", 2), ("n", 500)],
        &[("b", 2), ("n", 600)],
        &[("b", 2), ("n", 3001)],
        &[("b", 4), ("n", 132), ("offset", 8)],
        &[("b", 2), ("n", 70), ("spike", 69)],
        &[("b", 2), ("n", 3001), ("spike", 2999)],
    ];
    const HEADS: &[Sizes] =
        &[&[("b", 2), ("s", 17), ("t", 21)], &[("b", 1), ("s", 70), ("t", 300)], &[("b", 1), ("s", 1010), ("t", 262)]];
    // Along K, each stage is used more than twice.
    const PRODUCTS: &[Sizes] = &[&[("m", 70), ("n", 136), ("k", 712)], &[("m", 200), ("n", 72), ("k", 72)]];
    const ROWS_OF_PACKED: &[Sizes] = &[&[("m", 70)], &[("m", 200)]];
    const TOKENS: &[Sizes] = &[&[("b", 1), ("t", 40)], &[("b", 2), ("t", 33)], &[("b", 1), ("t", 130)]];
    const MAP: &[Sizes] =
        &[&[("n", 2000)], &[("n", 256)], &[("n", 1003)], &[("n", 502)], &[("n", 1200), ("offset", 8)]];
    const TABLE: &[Sizes] = &[
        &[("m", 31), ("n", 67)],
        &[("m", 18), ("n", 64)],
        &[("m", 7), ("n", 90)],
        &[("m", 24), ("n", 64), ("offset", 8)],
    ];
    vec![
        subject("gelu", gelu("n"), MAP, 1e-5),
        subject("bias", bias(), TABLE, 1e-6),
        subject("transpose", transpose(), &[&[("m", 33), ("n", 65)], &[("m", 64), ("n", 32)]], 0.0),
        subject("gather", gather(), TABLE, 0.0),
        subject("softmax", softmax(&["b"], "n"), ROWS, 2e-5),
        subject(
            "layer-norm",
            layer_norm("100", 100.0),
            &[&[("b", 2), ("s", 5)], &[("b", 1), ("s", 9), ("offset", 8)]],
            2e-5,
        ),
        subject("columns", columns(), &[&[("m", 45), ("n", 70)]], 2e-5),
        subject("sum", sum(), &[&[("n", 3000)], &[("n", 3001)], &[("n", 2002)], &[("n", 1200), ("offset", 8)]], 2e-4),
        subject("gemm-f32", gemm(DType::F32), &gemm_sizes, 4e-5),
        subject("gemm-bf16", gemm(DType::BF16), FEW_BLOCKS, 4e-3),
        subject("gemm-f16", gemm(DType::F16), FEW_BLOCKS, 1e-3),
        subject("gemm-constant", full("128", "96"), &[&[("m", 70)], &[("m", 5)], &[("m", 600)]], 6e-5),
        subject("gemm-bytes", bytes("70", "134"), &[&[("m", 40)], &[("m", 7)], &[("m", 300)]], 0.0),
        subject("gemm-codes", codes([DType::I8, DType::I4], 33, 128), &[&[("m", 40)], &[("m", 3)]], 1e-3),
        subject("gemm-codes-f32", codes([DType::F32, DType::I4], 70, 32), &[&[("m", 40)], &[("m", 3)]], 2e-4),
        subject("gemm-2-of-4", sparse(DType::BF16, 640), TOKENS, 4e-3),
        subject("gemm-2-of-4-bytes", sparse(DType::I8, 640), TOKENS, 0.0),
        subject("scores", scores(3, 32), HEADS, 2e-5),
        subject("mixed", mixed(3, 32), HEADS, 2e-5),
        on_warpgroups("gemm-warpgroups", gemm(DType::BF16), PRODUCTS, 4e-3),
        on_warpgroups("packed-warpgroups", packed(), ROWS_OF_PACKED, 4e-3),
        on_warpgroups("2-of-4-warpgroups", sparse(DType::BF16, 1280), TOKENS, 4e-3),
        attention_on_warpgroups(),
    ]
}

/// A product of constants packed as bulk copies and `wgmma` read them.
fn packed() -> Kernel {
    let (n, k) = ("128", "704");
    let mut b = Builder::new(&["m", n], &[k]);
    let x = b.load(DType::BF16, &["m", k], &["%0", "%2"]);
    let y = b.load(DType::BF16, &[k, n], &["%2", "%1"]);
    let [x, y] = [x, y].map(|v| b.convert(v, DType::F32));
    let sum = b.dot(x, y);
    b.store(sum, &["m", n], &["%0", "%1"]);
    b.0.reads[1].encoding = Encoding::Panels { width: 128, depth: 8 };
    b.0
}

/// A kernel whose products warpgroups compute.
fn on_warpgroups(name: &'static str, kernel: Kernel, sizes: &[Sizes], bound: f64) -> Subject {
    let lowered = lower(&kernel).unwrap_or_else(|e| panic!("{name}: {e}"));
    let ptx = lowered.for_gpu(hopper()).emit("kernel").unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(ptx.text.contains("wgmma.mma_async"), "{name}");
    subject_for(name, (kernel, lowered), (hopper(), ptx), sizes, bound)
}

/// Attention of warpgroups, in a launch for which it would be too large otherwise.
fn attention_on_warpgroups() -> Subject {
    let (name, f) = ("attention-warpgroups", DType::F16);
    let mut b = Builder::new(&["s", "64"], &["t"]).deep(&["64"]);
    let q = b.load(f, &["s", "64"], &["%0", "%3"]);
    let k = b.load(f, &["t", "64"], &["%2", "%3"]);
    let sum = b.dot(q, k);
    let p = softmax_of(&mut b, sum);
    let v = b.load(f, &["t", "64"], &["%2", "%1"]);
    let sum = b.dot(p, v);
    b.store(sum, &["s", "64"], &["%0", "%1"]);
    let lowered = lower(&b.0).unwrap_or_else(|e| panic!("{name}: {e}"));
    let plan = Flash::of_warpgroups(&lowered.def).unwrap_or_else(|| panic!("{name}: no plan"));
    let ptx = GpuKernel { def: &lowered.def, target: hopper(), plan: Box::new(plan) }.emit("kernel");
    let ptx = ptx.unwrap_or_else(|e| panic!("{name}: {e}"));
    let sizes: &[Sizes] = &[&[("s", 128), ("t", 600)], &[("s", 70), ("t", 50)]];
    subject_for(name, (b.0, lowered), (hopper(), ptx), sizes, 1e-2)
}

fn hopper() -> Target {
    Target::from_ptx("sm_90a").unwrap()
}

fn subject(name: &'static str, kernel: Kernel, sizes: &[Sizes], bound: f64) -> Subject {
    let lowered = lower(&kernel).unwrap_or_else(|e| panic!("{name}: {e}"));
    let target = Target::from_ptx("sm_80").unwrap();
    let ptx = lowered.for_gpu(target).emit("kernel").unwrap_or_else(|e| panic!("{name}: {e}"));
    subject_for(name, (kernel, lowered), (target, ptx), sizes, bound)
}

/// The subject of a kernel, given its code for a target.
fn subject_for(
    name: &'static str,
    (kernel, lowered): (Kernel, Lowered),
    (target, ptx): (Target, PtxKernel),
    sizes: &[Sizes],
    bound: f64,
) -> Subject {
    let text = ptx::module(target, std::slice::from_ref(&ptx));
    let calls = sizes.iter().enumerate().map(|(i, sizes)| call(&kernel, sizes, 7 + i as u64)).collect();
    Subject { name, lowered, ptx, text, calls, bound }
}

fn call(kernel: &Kernel, symbols: Sizes, seed: u64) -> Call {
    let mut random = Random(seed);
    let value = |s: &str| symbols.iter().find(|(name, _)| *name == s).map(|(_, v)| *v);
    let sizes = |dims: &[Dim]| -> Vec<usize> { dims.iter().map(|d| d.eval_named(&value).unwrap() as usize).collect() };
    let mut reads: Vec<Tensor> = kernel.reads.iter().map(|c| random.tensor(c.dtype, sizes(&c.dims))).collect();
    if let (Some(at), Some(n)) = (value("spike"), value("n")) {
        // One element of each row is far larger than the rest: exponentials overflow unless it is found as the maximum.
        let mut x = reads[0].to_vec::<f32>().unwrap();
        x.chunks_mut(n as usize).for_each(|row| row[at as usize] = 300.0);
        reads[0] = Tensor::from_vec(reads[0].dims().to_vec(), x);
    }
    let expected = run_kernel(kernel, &value, &reads).unwrap();
    let offset = value("offset").map_or(0, |offset| offset as u64);
    let encoded = kernel.reads.iter().zip(&reads).map(|(c, read)| c.encoding.encoded(read).unwrap()).collect();
    Call { symbols: symbols.to_vec(), reads: encoded, offset, expected }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// Eight pairs of ascending positions among four columns.
    fn positions(&mut self) -> u32 {
        const PAIRS: [u32; 6] = [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110];
        (0..8).fold(0, |word, _| word << 4 | PAIRS[self.next() as usize % PAIRS.len()])
    }

    /// Random floats in -1..1, the 16-bit ones multiples of 1/8 so that products are exact; codes over their whole
    /// range; words of positions; i64 indices of a table with eleven rows.
    fn tensor(&mut self, dtype: DType, dims: Vec<usize>) -> Tensor {
        let n: usize = dims.iter().product();
        let mut unit = |_| self.next() as f64 / (1u64 << 30) as f64 - 1.0;
        let eighths = |x: f64| (x * 8.0).round() / 8.0;
        match dtype {
            DType::F32 => Tensor::from_vec(dims, (0..n).map(|i| unit(i) as f32).collect()),
            DType::F16 => Tensor::from_vec(dims, (0..n).map(|i| half::f16::from_f64(eighths(unit(i)))).collect()),
            DType::BF16 => Tensor::from_vec(dims, (0..n).map(|i| half::bf16::from_f64(eighths(unit(i)))).collect()),
            DType::I64 => Tensor::from_vec(dims, (0..n).map(|_| self.next() as i64 % 11).collect()),
            DType::I32 => Tensor::from_vec(dims, (0..n).map(|_| self.next() as i32 % 1000).collect()),
            DType::I8 => Tensor::from_vec(dims, (0..n).map(|_| self.next() as i8).collect()),
            DType::U8 => Tensor::from_vec(dims, (0..n).map(|_| self.next() as u8).collect()),
            DType::U32 => Tensor::from_vec(dims, (0..n).map(|_| self.positions()).collect()),
            DType::I4 => {
                let codes: Vec<u8> = (0..n).map(|_| (((self.next() << 4) as i8) >> 4) as u8).collect();
                Tensor::new(dtype, dims, codes.into()).unwrap()
            }
            other => panic!("no operands of {other}"),
        }
    }
}

/// A product with a 2:4 matrix that takes more than eight tiles of rows, and more k tiles than there are stages.
fn sparse(dtype: DType, columns: i64) -> Kernel {
    let rows = 592;
    two_of_four(&TwoOfFour { grid: Grid { rows, columns, row_stride: columns, column_stride: 1 }, dtype })
}

fn gelu(n: &str) -> Kernel {
    let mut b = Builder::new(&[n], &[]);
    let x = b.load(DType::F32, &[n], &["%0"]);
    let y = b.gelu(x);
    b.store(y, &[n], &["%0"]);
    b.0
}

fn bias() -> Kernel {
    let mut b = Builder::new(&["m", "n"], &[]);
    let x = b.load(DType::F32, &["m", "n"], &["%0", "%1"]);
    let bias = b.load(DType::F32, &["n"], &["%1"]);
    let y = b.apply(ScalarFn::Add, &[x, bias]);
    b.store(y, &["m", "n"], &["%0", "%1"]);
    b.0
}

fn transpose() -> Kernel {
    let mut b = Builder::new(&["n", "m"], &[]);
    let x = b.load(DType::F32, &["m", "n"], &["%1", "%0"]);
    b.store(x, &["n", "m"], &["%0", "%1"]);
    b.0
}

/// Gathers rows of a table with eleven rows.
fn gather() -> Kernel {
    let mut b = Builder::new(&["m", "n"], &[]);
    let row = b.load(DType::I64, &["m"], &["%0"]);
    let x = b.load(DType::F32, &["11", "n"], &[&format!("${row}"), "%1"]);
    b.store(x, &["m", "n"], &["%0", "%1"]);
    b.0
}

fn columns() -> Kernel {
    let mut b = Builder::new(&["n"], &["m"]);
    let x = b.load(DType::F32, &["m", "n"], &["%1", "%0"]);
    let sum = b.reduce(ReduceFn::Add, x);
    b.store(sum, &["n"], &["%0"]);
    b.0
}

fn sum() -> Kernel {
    let mut b = Builder::new(&[], &["n"]);
    let x = b.load(DType::F32, &["n"], &["%0"]);
    let sum = b.reduce(ReduceFn::Add, x);
    b.store(sum, &[], &[]);
    b.0
}

fn gemm(dtype: DType) -> Kernel {
    let mut b = Builder::new(&["m", "n"], &["k"]);
    let x = b.load(dtype, &["m", "k"], &["%0", "%2"]);
    let y = b.load(dtype, &["k", "n"], &["%2", "%1"]);
    let sum = b.dot(x, y);
    b.store(sum, &["m", "n"], &["%0", "%1"]);
    b.0
}

/// gelu(x · w + bias) + residual
fn full(n: &str, k: &str) -> Kernel {
    let mut b = product("m", n, k);
    let sum = b.0.body.len() - 1;
    let bias = b.load(DType::F32, &[n], &["%1"]);
    let y = b.apply(ScalarFn::Add, &[sum, bias]);
    let y = b.gelu(y);
    let residual = b.load(DType::F32, &["m", n], &["%0", "%1"]);
    let y = b.apply(ScalarFn::Add, &[y, residual]);
    b.store(y, &["m", n], &["%0", "%1"]);
    b.0
}

/// Product of i8 matrices, accumulated in i32.
fn bytes(n: &str, k: &str) -> Kernel {
    let (mut b, sums) = byte_products([DType::I8, DType::I8], "m", n, k, 1);
    b.store(sums[0], &["m", n], &["%0", "%1"]);
    b.0
}

/// Product with weights as 4-bit codes, in two groups along K.
fn codes(types: [DType; 2], n: i64, size: i64) -> Kernel {
    grouped(types, &Groups { m: "m", n, groups: 2, size }, true)
}
