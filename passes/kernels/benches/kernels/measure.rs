//! One kernel on one core  =>  its rate, as a share of a multiply-add loop and of a plain read

use crate::harness::{Case, Guarded};
use crate::shapes::Shape;
use sardonyx_base::Tensor;
use sardonyx_base::plan::{KERNEL_ABI_VERSION, KernelArgs, KernelFn};
use sardonyx_dialects::flow::kernel::Container;
use sardonyx_kernels::Words;
use sardonyx_kernels::{Extension, Level, Lowered};
use std::arch::x86_64::*;

/// Medians over the samples of one kernel.
pub struct Figures {
    /// Work per nanosecond: floating-point operations (GFLOP/s) or elements.
    pub rate: f64,
    /// `Shape::weight_bytes` bytes per nanosecond.
    pub bytes_rate: f64,
    /// `rate` relative to the rate of a loop of multiply-adds.
    pub of_peak: f64,
    /// `bytes_rate` relative to the rate of a plain read of as many bytes; 0 if there are no bytes.
    pub of_read: f64,
}

const SAMPLES: usize = 31;
/// Minimum work of one sample, in the unit of `Shape::work`; at most 4000 runs of the kernel are timed together.
const WORK: f64 = 2e7;

pub fn measure(f: KernelFn, lowered: &Lowered, shape: &Shape, level: Level) -> Figures {
    let case = Case::new(&shape.name, shape.kernel.clone(), &shape.symbols);
    let value = |name: &str| shape.symbols.iter().find(|s| s.0 == name).map(|s| s.1);
    let stored = |(t, c): (&Tensor, &Container)| Guarded::with(&c.encoding.encoded(t).unwrap(), 64);
    let mut memory: Vec<Guarded> = case.reads.iter().zip(&case.kernel.reads).map(stored).collect();
    for container in &case.kernel.writes {
        let n: i64 = container.dims.iter().map(|d| d.eval_named(&value).unwrap()).product();
        memory.push(Guarded::new(n as usize * 4, 64));
    }
    let params: Vec<i64> = lowered.params.iter().map(|d| d.eval_named(&value).unwrap()).collect();
    let scratch = Guarded::new(lowered.scratch_bytes.eval_params(&params).unwrap() as usize, 64);
    let buffers: Vec<*mut u8> = memory.iter().map(|m| m.start).collect();
    let mut status = 0;
    let args = KernelArgs {
        version: KERNEL_ABI_VERSION,
        n_buffers: buffers.len() as u32,
        buffers: buffers.as_ptr(),
        params: params.as_ptr(),
        scratch: scratch.start,
        begin: 0,
        end: lowered.grid.eval_named(&value).unwrap(),
        status: &mut status,
    };
    let words = lowered.words().unwrap_or(Words::Singles);
    let other = vec![1f32; shape.weight_bytes / 4];
    let repeats = (WORK / shape.work).ceil().clamp(1.0, 4000.0) as usize;
    // An untimed warm-up run maps the pages and fills the caches.
    // SAFETY: the buffers have the sizes of the kernel's containers.
    unsafe { f(&args) };
    let samples: Vec<[f64; 4]> = (0..SAMPLES)
        .map(|_| {
            let (peak_before, read_before) = (peak(level, words), read(level, &other, repeats));
            let start = cpu_seconds();
            for _ in 0..repeats {
                // SAFETY: as above.
                unsafe { f(&args) };
            }
            let seconds = (cpu_seconds() - start) / repeats as f64;
            let (peak, read) =
                ((peak_before + peak(level, words)) / 2.0, (read_before + read(level, &other, repeats)) / 2.0);
            let (rate, bytes) = (shape.work / seconds / 1e9, shape.weight_bytes as f64 / seconds / 1e9);
            [rate, bytes, rate / peak, if read > 0.0 { bytes / read } else { 0.0 }]
        })
        .collect();
    let median = |i: usize| {
        let mut v: Vec<f64> = samples.iter().map(|s| s[i]).collect();
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    Figures { rate: median(0), bytes_rate: median(1), of_peak: median(2), of_read: median(3) }
}

/// Returns the rate, in 10^9 operations/s, of independent multiply-adds in registers, with the instruction that the
/// level has for operand words of the given kind, else with the f32 multiply-add.
fn peak(level: Level, words: Words) -> f64 {
    let start = cpu_seconds();
    // SAFETY: `levels` returns only levels that this CPU supports.
    let flops = unsafe {
        match (level.vector_bits(), words) {
            (256, _) => fma_256(),
            (_, Words::Pairs) if level.has(Extension::Tiles) => tiles_of_pairs(),
            (_, Words::Quads) if level.has(Extension::Tiles) => tiles_of_bytes(),
            (_, Words::Pairs) if level.has(Extension::Pairs) => dot_pairs(),
            (_, Words::Quads) if level.has(Extension::Quads) => dot_quads(),
            (_, Words::Singles | Words::Pairs | Words::Quads) => fma_512(),
        }
    };
    flops / (cpu_seconds() - start) / 1e9
}

/// Returns the rate in GB/s of reading `memory` `repeats` times; 0 if `memory` is empty.
fn read(level: Level, memory: &[f32], repeats: usize) -> f64 {
    if memory.is_empty() {
        return 0.0;
    }
    let start = cpu_seconds();
    for _ in 0..repeats {
        // SAFETY: `levels` returns only levels that this CPU supports.
        std::hint::black_box(unsafe {
            match level.vector_bits() {
                256 => sum_256(std::hint::black_box(memory)),
                _ => sum_512(std::hint::black_box(memory)),
            }
        });
    }
    (memory.len() * 4 * repeats) as f64 / (cpu_seconds() - start) / 1e9
}

/// Returns the CPU time of this thread in seconds, which excludes the time in which other programs run.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec.
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

#[target_feature(enable = "avx512f,avx512bf16")]
fn dot_pairs() -> f64 {
    // SAFETY: both are vectors of 512 bits, and every bit pattern is a valid bf16.
    let factor: __m512bh = unsafe { std::mem::transmute(_mm512_set1_epi32(std::hint::black_box(0x3F003F00))) };
    let mut sums = [_mm512_setzero_ps(); 24];
    for _ in 0..ROUNDS {
        for s in &mut sums {
            *s = _mm512_dpbf16_ps(*s, factor, factor);
        }
    }
    let total = sums.iter().fold(_mm512_setzero_ps(), |a, b| _mm512_add_ps(a, *b));
    std::hint::black_box(_mm512_reduce_add_ps(total));
    (ROUNDS * 24 * 64) as f64
}

#[target_feature(enable = "avx512f,avx512vnni")]
fn dot_quads() -> f64 {
    let factor = _mm512_set1_epi32(std::hint::black_box(0x01020304));
    let mut sums = [_mm512_setzero_si512(); 24];
    for _ in 0..ROUNDS {
        for s in &mut sums {
            *s = _mm512_dpbusd_epi32(*s, factor, factor);
        }
    }
    let total = sums.iter().fold(_mm512_setzero_si512(), |a, b| _mm512_add_epi32(a, *b));
    std::hint::black_box(_mm512_reduce_add_epi32(total));
    (ROUNDS * 24 * 128) as f64
}

/// Tile configuration of eight full tiles, in the layout that `ldtilecfg` reads.
static SHAPES: [u8; 64] = {
    let mut shapes = [0; 64];
    shapes[0] = 1;
    let mut i = 0;
    while i < 8 {
        (shapes[16 + 2 * i], shapes[48 + i]) = (64, 16);
        i += 1;
    }
    shapes
};

/// Defines a function that multiplies tiles of zeros into four accumulator tiles, as a kernel does, and returns the
/// number of operations.
macro_rules! tiles {
    ($name:ident, $multiply:literal, $operations:literal) => {
        fn $name() -> f64 {
            const TURNS: usize = ROUNDS / 16;
            // SAFETY: the CPU has tiles, the system has granted them to this process, and no other code uses them.
            unsafe {
                std::arch::asm!("ldtilecfg [{}]", in(reg) &SHAPES);
                for _ in 0..TURNS {
                    std::arch::asm!(
                        concat!($multiply, " tmm0, tmm4, tmm6"),
                        concat!($multiply, " tmm1, tmm4, tmm7"),
                        concat!($multiply, " tmm2, tmm5, tmm6"),
                        concat!($multiply, " tmm3, tmm5, tmm7"),
                    );
                }
                std::arch::asm!("tilerelease");
            }
            (TURNS * 4 * $operations) as f64
        }
    };
}

tiles!(tiles_of_pairs, "tdpbf16ps", 16384);
tiles!(tiles_of_bytes, "tdpbusd", 32768);

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

#[target_feature(enable = "avx512f")]
fn sum_512(memory: &[f32]) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 8];
    for block in memory.chunks_exact(8 * 16) {
        for (j, s) in sums.iter_mut().enumerate() {
            // SAFETY: the block has eight vectors.
            *s = _mm512_add_ps(*s, unsafe { _mm512_loadu_ps(block.as_ptr().add(j * 16)) });
        }
    }
    _mm512_reduce_add_ps(sums.iter().fold(_mm512_setzero_ps(), |a, b| _mm512_add_ps(a, *b)))
}

#[target_feature(enable = "avx2")]
fn sum_256(memory: &[f32]) -> f32 {
    let mut sums = [_mm256_setzero_ps(); 8];
    for block in memory.chunks_exact(8 * 8) {
        for (j, s) in sums.iter_mut().enumerate() {
            // SAFETY: the block has eight vectors.
            *s = _mm256_add_ps(*s, unsafe { _mm256_loadu_ps(block.as_ptr().add(j * 8)) });
        }
    }
    _mm256_cvtss_f32(sums.iter().fold(_mm256_setzero_ps(), |a, b| _mm256_add_ps(a, *b)))
}
