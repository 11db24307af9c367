//! Σ a·b + c as tensor cores take it: every term a multiple of one unit, what is below it cut off, and so is the result
//!
//! Measured on an H100 (`testdata/goldens`), bit for bit: the products of one instruction and the sum before are aligned to the
//! largest of their exponents, of which a product has the sum of its factors', and keep two bits below the last one of an f32.

use super::float::f64_to_f32;
use super::format::Rounding;
use super::fragments::N;

/// Bits below the largest exponent that a term keeps.
const BITS: i32 = 23 + 2;

/// Less than what any product of two numbers of f32 has, but for 0.
const LEAST: i32 = -400;

/// Of a number; what 0 gives is below all others.
#[inline]
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// c[m,n] + a[m,k] · b[k,n], numbers of f32 before and after.
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
                // Less than 2^27.
                whole[n] += i64::from((a * b[n] * units[n]) as i32);
            }
        }
        for n in 0..N {
            sums[n] = f64::from(rounded(whole[n] as f64 / units[n]));
        }
    }
}

/// How many units there are in 1, for a largest exponent.
#[inline]
fn power(largest: i32) -> f64 {
    f64::from_bits(((1023 + BITS - largest) as u64) << 52)
}

/// Towards zero; what is larger than every number is infinite.
#[inline]
fn rounded(x: f64) -> f32 {
    let nearest = x as f32;
    if nearest.is_infinite() && x.abs() >= 2f64.powi(128) { nearest } else { f64_to_f32(x, Rounding::Rz) }
}

/// Of rows that have an infinity or NaN.
fn plain<const K: usize>(a: &[f64; K], b: &[[f64; N]; K], sums: &mut [f64; N]) {
    for (a, b) in a.iter().zip(b) {
        for (sum, b) in sums.iter_mut().zip(b) {
            *sum += a * b;
        }
    }
    *sums = sums.map(|sum| f64::from(sum as f32));
}
