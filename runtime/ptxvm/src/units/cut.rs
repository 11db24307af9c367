//! Σ a·b + c as on tensor cores: terms and result are truncated to multiples of a power of two
//!
//! The rule below agrees bit for bit with results of an H100 (`testdata/goldens`). The products of one instruction and
//! the accumulator are aligned to the largest of their exponents, where the exponent of a product is the sum of its
//! operands' exponents. Terms keep two bits more than the mantissa of an f32 has; lower bits are dropped. In the code
//! below, the unit of a sum is the value of the lowest bit that its terms keep.

use super::float::f64_to_f32;
use super::format::Rounding;
use super::fragments::N;

/// Number of bits below the largest exponent that a term keeps.
const BITS: i32 = 23 + 2;

/// Less than the exponent of any nonzero product of two f32.
const LEAST: i32 = -400;

/// Returns the exponent of an f32 value; the exponent of 0 is below those of all nonzero f32.
#[inline]
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// Adds a[m,k] · b[k,n] to c[m,n]. All numbers, including the results, are f32 values.
#[inline]
pub fn multiply<const K: usize>(a: &[[f64; K]], b: &[[f64; N]; K], c: &mut [[f64; N]]) {
    let of_b = b.map(|row| row.map(exponent));
    let is_number = |e: &i32| *e < 1024;
    let is_finite = of_b.iter().flatten().all(is_number);
    for (a, sums) in a.iter().zip(c) {
        let of_a = a.map(exponent);
        let mut largest = sums.map(|c| exponent(c).max(LEAST));
        for (a, b) in of_a.iter().zip(&of_b) {
            for (largest, b) in largest.iter_mut().zip(b) {
                *largest = (*largest).max(a + b);
            }
        }
        if !(is_finite && of_a.iter().all(is_number) && sums.iter().all(|c| c.is_finite())) {
            plain(a, b, sums);
            continue;
        }
        let units = largest.map(power);
        let mut whole = [0i64; N];
        for n in 0..N {
            whole[n] = (sums[n] * units[n]) as i64;
        }
        for (a, b) in a.iter().zip(b) {
            for n in 0..N {
                // Each term is less than 2^27.
                whole[n] += i64::from((a * b[n] * units[n]) as i32);
            }
        }
        for n in 0..N {
            sums[n] = f64::from(rounded(whole[n] as f64 / units[n]));
        }
    }
}

/// Returns 1 divided by the unit of a sum whose terms have this largest exponent.
#[inline]
fn power(largest: i32) -> f64 {
    f64::from_bits(((1023 + BITS - largest) as u64) << 52)
}

/// Rounds toward zero; magnitudes of 2^128 and more become infinite.
#[inline]
fn rounded(x: f64) -> f32 {
    let nearest = x as f32;
    if nearest.is_infinite() && x.abs() >= 2f64.powi(128) { nearest } else { f64_to_f32(x, Rounding::Rz) }
}

/// Multiplies a row of A by B where an operand or accumulator is infinite or NaN.
fn plain<const K: usize>(a: &[f64; K], b: &[[f64; N]; K], sums: &mut [f64; N]) {
    for (a, b) in a.iter().zip(b) {
        for (sum, b) in sums.iter_mut().zip(b) {
            *sum += a * b;
        }
    }
    *sums = sums.map(|sum| f64::from(sum as f32));
}
