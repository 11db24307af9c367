//! this machine  =>  its peak rates: f32 multiply-adds in registers, and a plain read of 128 MiB per thread

use sardonyx_base::cpu::Level;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Peak rates of all threads together, on as many threads as the session has. A multiply-add is two operations.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    pub gflops: f64,
    pub gb_s: f64,
}

impl Peak {
    pub fn mean(self, other: Peak) -> Peak {
        Peak { gflops: (self.gflops + other.gflops) / 2.0, gb_s: (self.gb_s + other.gb_s) / 2.0 }
    }
}

/// Minimum duration of each measurement.
const TIME: Duration = Duration::from_millis(40);
/// Number of bytes that each thread reads repeatedly.
const BYTES: usize = 128 << 20;

pub fn measure(level: Level, threads: usize) -> Peak {
    let flops = on_threads(threads, &|| multiply(level));
    let bytes = on_threads(threads, &|| read(level));
    Peak { gflops: flops / 1e9, gb_s: bytes / 1e9 }
}

/// Runs `f` on `threads` threads at once and returns the sum of their rates.
fn on_threads(threads: usize, f: &(dyn Fn() -> f64 + Sync)) -> f64 {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(f)).collect();
        others.into_iter().fold(f(), |sum, t| sum + t.join().unwrap_or(0.0))
    })
}

/// Units of work per second, if one `step` does `each` units.
fn rate(each: f64, mut step: impl FnMut()) -> f64 {
    step();
    let (start, mut steps) = (Instant::now(), 0.0);
    while start.elapsed() < TIME {
        step();
        steps += 1.0;
    }
    steps * each / start.elapsed().as_secs_f64()
}

const TURNS: usize = 4096;

fn multiply(level: Level) -> f64 {
    match level.vector_bits() >= 512 {
        // SAFETY: the level was chosen because this CPU has it, so the CPU has AVX-512F.
        true => rate((TURNS * 16 * 16 * 2) as f64, || unsafe { x86::multiply_512(TURNS) }),
        // SAFETY: the level was chosen because this CPU has it, so the CPU has AVX2 and FMA.
        false => rate((TURNS * 12 * 8 * 2) as f64, || unsafe { x86::multiply_256(TURNS) }),
    }
}

fn read(level: Level) -> f64 {
    let data = vec![1.0f32; BYTES / 4];
    match level.vector_bits() >= 512 {
        // SAFETY: the level was chosen because this CPU has it, so the CPU has AVX-512F.
        true => rate(BYTES as f64, || unsafe { x86::read_512(black_box(&data)) }),
        // SAFETY: the level was chosen because this CPU has it, so the CPU has AVX2.
        false => rate(BYTES as f64, || unsafe { x86::read_256(black_box(&data)) }),
    }
}

mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx512f")]
    pub fn multiply_512(turns: usize) {
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
        let mut sums = [b; 16];
        for _ in 0..turns {
            sums.iter_mut().for_each(|s| *s = _mm512_fmadd_ps(*s, a, b));
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn multiply_256(turns: usize) {
        let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [b; 12];
        for _ in 0..turns {
            sums.iter_mut().for_each(|s| *s = _mm256_fmadd_ps(*s, a, b));
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub fn read_512(data: &[f32]) {
        let mut sums = [_mm512_setzero_ps(); 8];
        for chunk in data.as_chunks::<128>().0 {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: 16 elements from here on are part of the chunk.
                *sum = _mm512_add_ps(*sum, unsafe { _mm512_loadu_ps(chunk.as_ptr().add(16 * i)) });
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2")]
    pub fn read_256(data: &[f32]) {
        let mut sums = [_mm256_setzero_ps(); 8];
        for chunk in data.as_chunks::<64>().0 {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: 8 elements from here on are part of the chunk.
                *sum = _mm256_add_ps(*sum, unsafe { _mm256_loadu_ps(chunk.as_ptr().add(8 * i)) });
            }
        }
        black_box(sums);
    }
}
