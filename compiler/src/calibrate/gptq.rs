//! weights, Σ xᵀx of the activations x  =>  quantised codes that minimise the error of the product x·w
//!
//! GPTQ rounds the weights of a column one position along K at a time. The weights at later positions compensate for
//! the error, as far as the activations at the two positions are correlated. Groups and their scales are fixed
//! beforehand; positions are taken by decreasing Σ x².

use super::hessian::{COLUMNS, Seen, in_parallel, relative, squares};
use half::bf16;
use sardonyx_base::minifloat;
use sardonyx_passes::CodeType;
use sardonyx_passes::quantize::SHARES;

/// Number of scales tried for a group with integer codes. The first maps the weight of largest magnitude to the lowest
/// code; each next one is smaller by `SHRINK` times the first.
const SHRINK_STEPS: usize = 24;
const SHRINK: f32 = 0.0125;

#[derive(Clone, Debug, PartialEq)]
pub struct Rounded {
    /// One byte for each weight, in the layout of the weights.
    pub codes: Vec<u8>,
    /// One scale for each group: `[outer, k / size, inner]`.
    pub scales: Vec<f32>,
    /// The dequantised weights.
    pub weights: Vec<f32>,
    /// Relative errors (L2) of the weights, and of the product with the calibration data.
    pub weight_error: f64,
    pub product_error: f64,
    /// Damping that the Cholesky factorisation needed, as a share of the diagonal's mean.
    pub damping: f64,
}

/// The codes that a weight of 0 may get.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Zeros {
    /// Any code, so that the weight can compensate for the errors of other weights.
    Change,
    /// Only code 0, because the weight was pruned.
    Stay,
}

/// Rounds weights `[outer, k, inner]` to codes, with one scale for each `size` consecutive weights along K.
pub fn rounded(
    seen: &Seen,
    weights: &[f32],
    parts: [usize; 3],
    (code, size): (CodeType, usize),
    zeros: Zeros,
) -> Rounded {
    let [outer, k, inner] = parts;
    let columns: Vec<usize> = (0..outer * inner).collect();
    let start = |c: usize| c / inner * k * inner + c % inner;
    let chunks: Vec<&[usize]> = columns.chunks(COLUMNS).collect();
    let done: Vec<Chunk> = in_parallel(&chunks, |chunk| {
        let mut x = vec![[0f64; COLUMNS]; k];
        for (lane, c) in chunk.iter().enumerate() {
            (0..k).for_each(|i| x[i][lane] = f64::from(weights[start(*c) + i * inner]));
        }
        Chunk::new(seen, x, (code, size), zeros)
    });
    let groups = k / size;
    let mut out = Rounded {
        codes: vec![0; weights.len()],
        scales: vec![0.0; outer * groups * inner],
        weights: vec![0.0; weights.len()],
        weight_error: 0.0,
        product_error: 0.0,
        damping: seen.damping,
    };
    let mut sums = [0f64; 4];
    for (chunk, found) in chunks.iter().zip(&done) {
        for (lane, &c) in chunk.iter().enumerate() {
            for g in 0..groups {
                out.scales[c / inner * groups * inner + g * inner + c % inner] = found.scales[g][lane];
            }
            for i in 0..k {
                let at = start(c) + i * inner;
                out.codes[at] = byte(found.codes[i][lane], code);
                out.weights[at] = found.codes[i][lane] * found.scales[i / size][lane];
                let lost = f64::from(weights[at]) - f64::from(out.weights[at]);
                sums[0] += lost * lost;
                sums[1] += f64::from(weights[at]).powi(2);
            }
            sums[2] += found.lost[lane];
            sums[3] += found.whole[lane];
        }
    }
    (out.weight_error, out.product_error) = (relative(sums[0], sums[1]), relative(sums[2], sums[3]));
    out
}

/// Relative errors (L2) of the product and of the weights if each column is rounded to the nearest 8-bit codes.
pub fn errors_of_bytes(seen: &Seen, weights: &[f32], parts: [usize; 3]) -> [f64; 2] {
    let [outer, k, inner] = parts;
    let columns: Vec<usize> = (0..outer * inner).collect();
    let chunks: Vec<&[usize]> = columns.chunks(COLUMNS).collect();
    let sums = in_parallel(&chunks, |chunk| {
        let (mut lost, mut whole) = (vec![[0f64; COLUMNS]; k], vec![[0f64; COLUMNS]; k]);
        for (lane, c) in chunk.iter().enumerate() {
            let column = || (0..k).map(|i| weights[c / inner * k * inner + c % inner + i * inner]);
            let step = step_of_bytes(column());
            for (i, w) in column().enumerate() {
                whole[i][lane] = f64::from(w);
                lost[i][lane] = f64::from(w) - f64::from((w / step).round_ties_even() * step);
            }
        }
        let own = |x: &[[f64; COLUMNS]]| x.iter().flatten().map(|w| w * w).sum::<f64>();
        let products = [squares(&seen.products, &lost), squares(&seen.products, &whole)].map(|s| s.iter().sum::<f64>());
        [products, [own(&lost), own(&whole)]]
    });
    [0, 1].map(|what| {
        let [lost, whole] = [0, 1].map(|i| sums.iter().map(|s| s[what][i]).sum::<f64>());
        relative(lost, whole)
    })
}

/// Relative error (L2) of a table if each row is rounded to the nearest 8-bit codes.
pub fn error_of_rows(table: &[f32], length: usize) -> f64 {
    let (mut lost, mut whole) = (0f64, 0f64);
    for row in table.chunks(length.max(1)) {
        let step = step_of_bytes(row.iter().copied());
        for w in row {
            lost += f64::from(w - (w / step).round_ties_even() * step).powi(2);
            whole += f64::from(*w).powi(2);
        }
    }
    relative(lost, whole)
}

/// The scale that maps the largest magnitude to the largest 8-bit code, 127.
fn step_of_bytes(weights: impl Iterator<Item = f32>) -> f32 {
    let largest = weights.fold(0f32, |m, w| m.max(w.abs()));
    if largest > 0.0 { largest / 127.0 } else { 1.0 }
}

/// Result for up to `COLUMNS` columns.
struct Chunk {
    /// Values of the codes, one row for each position along K.
    codes: Vec<[f32; COLUMNS]>,
    /// One row for each group.
    scales: Vec<[f32; COLUMNS]>,
    /// Squared norm of the product's error.
    lost: [f64; COLUMNS],
    /// Squared norm of the product.
    whole: [f64; COLUMNS],
}

impl Chunk {
    fn new(seen: &Seen, mut x: Vec<[f64; COLUMNS]>, (code, size): (CodeType, usize), zeros: Zeros) -> Chunk {
        let k = x.len();
        let whole = squares(&seen.products, &x);
        let scales: Vec<[f32; COLUMNS]> = (0..k / size)
            .map(|g| {
                let places = g * size..(g + 1) * size;
                std::array::from_fn(|lane| {
                    let group: Vec<f32> = places.clone().map(|i| x[i][lane] as f32).collect();
                    scale(&group, &seen.diagonal[places.clone()], code)
                })
            })
            .collect();
        let stays: Vec<[bool; COLUMNS]> = x.iter().map(|w| w.map(|w| w == 0.0 && zeros == Zeros::Stay)).collect();
        let mut found = vec![[0f32; COLUMNS]; k];
        let mut lost = [0f64; COLUMNS];
        seen.sweep(&mut x, 0..k, &mut lost, |place, weights| {
            std::array::from_fn(|lane| {
                let s = f64::from(scales[place / size][lane]);
                let is_zero = s == 0.0 || stays[place][lane];
                let code = if is_zero { 0.0 } else { nearest(weights[lane] / s, code) };
                found[place][lane] = code as f32;
                code * s
            })
        });
        Chunk { codes: found, scales, lost, whole }
    }
}

/// The values of the least and the largest code.
fn limits(code: CodeType) -> (f64, f64) {
    match code {
        CodeType::Int(bits) => {
            let least = -f64::from(1u32 << (bits - 1));
            (least, -least - 1.0)
        }
        CodeType::Float(dtype) => {
            let most = minifloat::format(dtype).map_or(0.0, |format| format.max());
            (-most, most)
        }
    }
}

/// The value of the code nearest to `x`.
fn nearest(x: f64, code: CodeType) -> f64 {
    let (least, most) = limits(code);
    match code {
        CodeType::Int(_) => x.round_ties_even().clamp(least, most),
        CodeType::Float(dtype) => minifloat::round(dtype, x.clamp(least, most)),
    }
}

/// The stored byte of the code with this value.
fn byte(number: f32, code: CodeType) -> u8 {
    match code {
        CodeType::Int(_) => (number as i8).cast_unsigned(),
        CodeType::Float(dtype) => minifloat::encode(dtype, number.into()).unwrap_or(0) as u8,
    }
}

/// Returns, of the scales tried, the one with the least sum of squared errors over a group, each weighted by `matters`.
/// For integer codes a scale is a bf16 that maps a share of the weight of largest magnitude to the lowest code, such as
/// -8, which has no positive counterpart. For float codes a scale is an f32 that maps the largest magnitude to a share
/// of the largest code.
fn scale(group: &[f32], matters: &[f64], code: CodeType) -> f32 {
    let high = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let low = group.iter().copied().fold(f32::INFINITY, f32::min);
    let largest = if high >= -low { high } else { low };
    let (least, most) = limits(code);
    let lost = |scale: f32| {
        let s = f64::from(scale);
        let one = |(w, m): (&f32, &f64)| {
            let w = f64::from(*w);
            let code = if s == 0.0 { 0.0 } else { nearest(w / s, code) };
            m * (w - code * s).powi(2)
        };
        group.iter().zip(matters).map(one).sum::<f64>()
    };
    let tried: Vec<f32> = match code {
        CodeType::Int(_) => {
            let share = |step: usize| 1.0 - SHRINK * step as f32;
            (0..SHRINK_STEPS).map(|step| bf16::from_f32(largest * share(step) / least as f32).to_f32()).collect()
        }
        CodeType::Float(_) => SHARES.map(|share| largest.abs() / (most as f32 * share)).to_vec(),
    };
    let best = tried.into_iter().map(|s| (lost(s), s)).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(0.0, |(_, s)| s)
}

#[cfg(test)]
mod tests {
    use super::super::hessian::tests::{numbers, products};
    use super::super::hessian::{cholesky, inverse};
    use super::*;
    use sardonyx_base::DType;

    fn round(products: &[f64], weights: &[f32], parts: [usize; 3], bits: u32, size: usize) -> Rounded {
        rounded(
            &Seen::new(products.to_vec(), parts[1]).unwrap(),
            weights,
            parts,
            (CodeType::Int(bits), size),
            Zeros::Change,
        )
    }

    fn weights(n: usize) -> Vec<f32> {
        numbers(n, 9).into_iter().map(|x| x as f32).collect()
    }

    /// Reference implementation by elimination: each finished position is eliminated from the inverse.
    fn by_elimination(h: &[f64], w: &[f32], k: usize, scales: &[f32], order: &[usize], code: CodeType) -> Vec<u8> {
        let mean = (0..k).map(|i| h[i * k + i]).sum::<f64>() / k as f64;
        let damped: Vec<f64> = (0..k * k).map(|n| h[n] + if n / k == n % k { 0.01 * mean } else { 0.0 }).collect();
        let lower = cholesky(damped, k).unwrap();
        let l = inverse(&lower, k);
        let mut inv: Vec<f64> = (0..k * k).map(|n| (0..k).map(|m| l[m * k + n / k] * l[m * k + n % k]).sum()).collect();
        let mut w: Vec<f64> = w.iter().map(|w| f64::from(*w)).collect();
        let mut out = vec![0; k];
        for &q in order {
            let s = f64::from(scales[q / 16]);
            let number = nearest(w[q] / s, code);
            out[q] = byte(number as f32, code);
            let error = (w[q] - number * s) / inv[q * k + q];
            (0..k).for_each(|j| w[j] -= error * inv[j * k + q]);
            let row: Vec<f64> = (0..k).map(|j| inv[q * k + j]).collect();
            let pivot = row[q];
            (0..k * k).for_each(|n| inv[n] -= row[n / k] * row[n % k] / pivot);
        }
        out
    }

    #[test]
    fn codes_are_those_of_elimination() {
        let k = 96;
        let h = products(k, 300);
        for seed in 0..4 {
            let w: Vec<f32> = numbers(k, 20 + seed).into_iter().map(|x| x as f32).collect();
            for code in [CodeType::Int(4), CodeType::Float(DType::F8E4M3FN)] {
                let seen = Seen::new(h.clone(), k).unwrap();
                let found = rounded(&seen, &w, [1, k, 1], (code, 16), Zeros::Change);
                assert_eq!(found.codes, by_elimination(&h, &w, k, &found.scales, &seen.order, code));
            }
        }
    }

    #[test]
    fn places_that_move_apart_are_rounded_to_the_nearest() {
        let (k, n) = (64, 40);
        let h: Vec<f64> = (0..k * k).map(|at| f64::from(u8::from(at / k == at % k))).collect();
        let w = weights(k * n);
        let found = round(&h, &w, [1, k, n], 4, 32);
        for (at, w) in w.iter().enumerate() {
            let s = found.scales[at / n / 32 * n + at % n];
            assert_eq!(f32::from(found.codes[at].cast_signed()), (w / s).round_ties_even().clamp(-8.0, 7.0));
        }
        assert!((found.weight_error - found.product_error).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn what_moves_together_loses_less() {
        let (k, n) = (128, 48);
        let h = products(k, 500);
        let w = weights(k * n);
        let found = round(&h, &w, [1, k, n], 4, 32);
        let apart: Vec<f64> = (0..k * k).map(|at| if at / k == at % k { h[at] } else { 0.0 }).collect();
        let nearest = round(&apart, &w, [1, k, n], 4, 32);
        let error = |q: &Rounded| {
            let lost: Vec<[f64; COLUMNS]> =
                (0..k).map(|i| std::array::from_fn(|l| f64::from(w[i * n + l] - q.weights[i * n + l]))).collect();
            squares(&h, &lost).iter().sum::<f64>()
        };
        assert!(error(&found) < 0.3 * error(&nearest), "{} {}", error(&found), error(&nearest));
        assert!(found.product_error < 0.05 && found.weight_error > nearest.weight_error);
        let transposed: Vec<f32> = (0..k * n).map(|at| w[at % k * n + at / k]).collect();
        let other = round(&h, &transposed, [n, k, 1], 4, 32);
        assert_eq!(other.codes[5 * k + 7], found.codes[7 * n + 5]);
    }

    #[test]
    fn pruned_weights_stay_0_and_the_others_make_good_what_rounding_loses() {
        let (k, n) = (64, 24);
        let h = products(k, 200);
        let w: Vec<f32> =
            weights(k * n).into_iter().enumerate().map(|(at, w)| if at / n % 2 == 0 { 0.0 } else { w }).collect();
        let seen = Seen::new(h.clone(), k).unwrap();
        let found = rounded(&seen, &w, [1, k, n], (CodeType::Int(4), 32), Zeros::Stay);
        assert!(w.iter().zip(&found.codes).all(|(w, code)| *w != 0.0 || *code == 0));
        let changed = rounded(&seen, &w, [1, k, n], (CodeType::Int(4), 32), Zeros::Change);
        assert!(w.iter().zip(&changed.codes).any(|(w, code)| *w == 0.0 && *code != 0));
        let apart: Vec<f64> = (0..k * k).map(|at| if at / k == at % k { h[at] } else { 0.0 }).collect();
        let nearest = rounded(&Seen::new(apart, k).unwrap(), &w, [1, k, n], (CodeType::Int(4), 32), Zeros::Stay);
        let lost = |q: &Rounded| -> f64 {
            let lost: Vec<[f64; COLUMNS]> =
                (0..k).map(|i| std::array::from_fn(|l| f64::from(w[i * n + l] - q.weights[i * n + l]))).collect();
            squares(&h, &lost).iter().sum()
        };
        assert!(lost(&found) < lost(&nearest), "{} {}", lost(&found), lost(&nearest));
    }

    #[test]
    fn zeros_and_rows_that_say_nothing_are_rounded_too() {
        let k = 32;
        let found = round(&vec![0.0; k * k], &weights(k), [1, k, 1], 3, 32);
        assert!(found.codes.iter().all(|c| (-4..=3).contains(&c.cast_signed())));
        let found = round(&products(k, 2), &vec![0.0; k], [1, k, 1], 4, 32);
        assert_eq!((found.codes, found.scales[0]), (vec![0; k], 0.0));
        let nan = vec![f64::NAN; k * k];
        assert_eq!(Seen::new(nan, k).err().unwrap().code, "E0501");
    }
}
