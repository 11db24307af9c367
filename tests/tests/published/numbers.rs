//! seeded random numbers, also in narrow formats, and comparison of results with a reference

use half::bf16;

/// A generator that gives the same numbers on every machine.
pub struct Random(sardonyx_base::random::Random);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(sardonyx_base::random::Random::new(seed))
    }

    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Returns a number that is at least -1 and less than 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.unit() * scale).collect()
    }

    /// Returns values that bf16 represents exactly.
    pub fn bfloats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| bf16::from_f32(self.unit() * scale).to_f32()).collect()
    }

    pub fn bytes(&mut self, n: usize, low: i8, high: i8) -> Vec<i8> {
        let span = (i16::from(high) - i16::from(low) + 1) as u64;
        (0..n).map(|_| (i16::from(low) + (self.bits() % span) as i16) as i8).collect()
    }
}

/// Asserts that element `i` of `found` differs from that of `wanted` by at most `bound(i)`.
pub fn close(what: &str, found: &[f32], wanted: &[f64], bound: impl Fn(usize) -> f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
        let error = (f64::from(*f) - w).abs();
        assert!(error <= bound(i), "{what}: element {i} is {f}, not {w}: error {error:e}, bound {:e}", bound(i));
    }
}

/// Returns the product a[m,k] · b[n,k]ᵀ and, for each of its elements, Σ|a·b|; bounds of the rounding error are
/// multiples of this sum.
pub fn product(a: &[f32], b: &[f32], k: usize) -> (Vec<f64>, Vec<f64>) {
    let rows = |x: &[f32]| x.chunks(k).map(<[f32]>::to_vec).collect::<Vec<_>>();
    let (a, b) = (rows(a), rows(b));
    let dot = |x: &[f32], y: &[f32], f: fn(f64) -> f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| f(f64::from(*x) * f64::from(*y))).sum()
    };
    let each = |f: fn(f64) -> f64| a.iter().flat_map(|x| b.iter().map(move |y| dot(x, y, f))).collect();
    (each(|v| v), each(f64::abs))
}
