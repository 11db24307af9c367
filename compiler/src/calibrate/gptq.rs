//! weights, the products of what they are multiplied with  =>  codes that lose the least of the product
//!
//! GPTQ: codes are found one place along the sum after the other, and what each loses the places behind it make good, as far
//! as what they are multiplied with moves together. Groups and their scales are fixed before; places go by how much they
//! matter.

use half::bf16;
use sardonyx_base::{Error, Result, minifloat};
use sardonyx_passes::CodeType;
use sardonyx_passes::quantize::SHARES;

/// Columns that are rounded together.
const COLUMNS: usize = 16;
/// Places along the sum whose losses are handed on together.
const BLOCK: usize = 64;
/// The damping is this share of the diagonal's mean at first, and ten times more each time that there is no factor.
const DAMPING: f64 = 0.01;
const DAMPING_STEPS: usize = 6;
/// Shares of a group's range that its scale is tried with.
const SHRINK_STEPS: usize = 24;
const SHRINK: f32 = 0.0125;

#[derive(Clone, Debug, PartialEq)]
pub struct Rounded {
    /// As the weights lie, a byte for each.
    pub codes: Vec<u8>,
    /// Each group has one, in the place of the sum.
    pub scales: Vec<f32>,
    /// The weights that the codes stand for.
    pub weights: Vec<f32>,
    /// Relative errors (L2) of the weights, and of the product with what was seen.
    pub weight_error: f64,
    pub product_error: f64,
    /// The damping that a factor was found with.
    pub damping: f64,
}

/// Weights[outer, k, inner] as codes, with a scale for each `size` of them along k.
pub fn rounded(seen: &Seen, weights: &[f32], parts: [usize; 3], code: CodeType, size: usize) -> Rounded {
    let [outer, k, inner] = parts;
    let columns: Vec<usize> = (0..outer * inner).collect();
    let start = |c: usize| c / inner * k * inner + c % inner;
    let chunks: Vec<&[usize]> = columns.chunks(COLUMNS).collect();
    let done: Vec<Chunk> = in_parallel(&chunks, |chunk| {
        let mut x = vec![[0f64; COLUMNS]; k];
        for (lane, c) in chunk.iter().enumerate() {
            (0..k).for_each(|i| x[i][lane] = f64::from(weights[start(*c) + i * inner]));
        }
        Chunk::new(seen, x, code, size)
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

/// The relative errors (L2) of the product and of the weights, each column of which is rounded to the nearest of 8 bits.
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

/// The relative error (L2) of a table each row of which is rounded to the nearest of 8 bits.
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

/// The scale with which the largest weight is the largest code of 8 bits.
fn step_of_bytes(weights: impl Iterator<Item = f32>) -> f32 {
    let largest = weights.fold(0f32, |m, w| m.max(w.abs()));
    if largest > 0.0 { largest / 127.0 } else { 1.0 }
}

/// The relative error (L2), of the squares of what is lost and of the whole.
pub fn relative(lost: f64, whole: f64) -> f64 {
    if whole > 0.0 { (lost / whole).sqrt() } else { 0.0 }
}

/// The other factor of products, as far as the data shows it.
pub struct Seen {
    /// [k, k]: the sums of the products of its places.
    products: Vec<f64>,
    /// The places, those that matter most first.
    order: Vec<usize>,
    /// U, upper, by rows, with UᵀU the inverse of the products in that order.
    factor: Vec<f64>,
    diagonal: Vec<f64>,
    damping: f64,
}

impl Seen {
    /// Errors: E0501 where the products have no factor.
    pub fn new(products: Vec<f64>, k: usize) -> Result<Seen> {
        // A place that was always 0 may have any code.
        let diagonal: Vec<f64> = (0..k).map(|i| products[i * k + i]).collect();
        let mean = diagonal.iter().sum::<f64>() / k.max(1) as f64;
        if !mean.is_finite() {
            return Err(Error::user("E0501", "what the weights are multiplied with is no number"));
        }
        let mut order: Vec<usize> = (0..k).collect();
        order.sort_by(|a, b| diagonal[*b].total_cmp(&diagonal[*a]));
        for step in 0..DAMPING_STEPS {
            let damping = DAMPING * 10f64.powi(step as i32);
            let more = if mean > 0.0 { damping * mean } else { 1.0 };
            // Backwards, the lower factor is an upper one.
            let at = |i: usize, j: usize| {
                let (a, b) = (order[k - 1 - i], order[k - 1 - j]);
                products[a * k + b] + if i == j { more } else { 0.0 }
            };
            if let Some(lower) = cholesky((0..k * k).map(|n| at(n / k, n % k)).collect(), k) {
                let inverse = inverse(&lower, k);
                let factor = (0..k * k).map(|n| inverse[k * k - 1 - n]).collect();
                return Ok(Seen { products, order, factor, diagonal, damping });
            }
        }
        Err(Error::user("E0501", "the products of what the weights are multiplied with have no Cholesky factor"))
    }
}

/// Some columns: the numbers of codes[k] and scales[group] of each, and the square of what their products lose, and of what they were.
struct Chunk {
    codes: Vec<[f32; COLUMNS]>,
    scales: Vec<[f32; COLUMNS]>,
    lost: [f64; COLUMNS],
    whole: [f64; COLUMNS],
}

impl Chunk {
    fn new(seen: &Seen, mut x: Vec<[f64; COLUMNS]>, code: CodeType, size: usize) -> Chunk {
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
        let mut found = vec![[0f32; COLUMNS]; k];
        let mut lost = [0f64; COLUMNS];
        let mut handed = vec![[0f64; COLUMNS]; BLOCK];
        for first in (0..k).step_by(BLOCK) {
            let end = (first + BLOCK).min(k);
            for i in first..end {
                let place = seen.order[i];
                let factor = &seen.factor[i * k..][..k];
                for lane in 0..COLUMNS {
                    let (w, s) = (x[place][lane], f64::from(scales[place / size][lane]));
                    let code = if s == 0.0 { 0.0 } else { nearest(w / s, code) };
                    found[place][lane] = code as f32;
                    let error = (w - code * s) / factor[i];
                    lost[lane] += error * error;
                    handed[i - first][lane] = error;
                }
                for j in i + 1..end {
                    let later = &mut x[seen.order[j]];
                    (0..COLUMNS).for_each(|lane| later[lane] -= factor[j] * handed[i - first][lane]);
                }
            }
            for j in end..k {
                let later = &mut x[seen.order[j]];
                for i in first..end {
                    let by = seen.factor[i * k + j];
                    (0..COLUMNS).for_each(|lane| later[lane] -= by * handed[i - first][lane]);
                }
            }
        }
        Chunk { codes: found, scales, lost, whole }
    }
}

/// wᵀ · products · w of each column.
fn squares(products: &[f64], x: &[[f64; COLUMNS]]) -> [f64; COLUMNS] {
    let k = x.len();
    let mut sums = [0f64; COLUMNS];
    for i in 0..k {
        let mut row = [0f64; COLUMNS];
        for (j, w) in x.iter().enumerate() {
            let by = products[i * k + j];
            (0..COLUMNS).for_each(|lane| row[lane] += by * w[lane]);
        }
        (0..COLUMNS).for_each(|lane| sums[lane] += row[lane] * x[i][lane]);
    }
    sums
}

/// The least code and the largest, as numbers.
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

/// The number of the code that is nearest.
fn nearest(x: f64, code: CodeType) -> f64 {
    let (least, most) = limits(code);
    match code {
        CodeType::Int(_) => x.round_ties_even().clamp(least, most),
        CodeType::Float(dtype) => minifloat::round(dtype, x.clamp(least, most)),
    }
}

/// The code of a number, as memory has it.
fn byte(number: f32, code: CodeType) -> u8 {
    match code {
        CodeType::Int(_) => (number as i8).cast_unsigned(),
        CodeType::Float(dtype) => minifloat::encode(dtype, number.into()).unwrap_or(0) as u8,
    }
}

/// The scale with which a group loses the least, each place as it matters. Of whole numbers the largest weight, with its sign, or
/// a share of it, is the code that has no other sign; the scale is a bf16.
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

/// The lower factor L, by rows, with LLᵀ the matrix; none where it is not positive definite.
fn cholesky(mut a: Vec<f64>, k: usize) -> Option<Vec<f64>> {
    for first in (0..k).step_by(BLOCK) {
        let end = (first + BLOCK).min(k);
        for i in first..end {
            for j in first..=i {
                let sum = a[i * k + j] - dot(&a[i * k + first..i * k + j], &a[j * k + first..j * k + j]);
                match i == j {
                    true if sum > 0.0 && sum.is_finite() => a[i * k + i] = sum.sqrt(),
                    true => return None,
                    false => a[i * k + j] = sum / a[j * k + j],
                }
            }
        }
        let (done, rest) = a.split_at_mut(end * k);
        let mut rows: Vec<&mut [f64]> = rest.chunks_mut(k).collect();
        each_in_parallel(&mut rows, |_, row| {
            for j in first..end {
                let sum = row[j] - dot(&row[first..j], &done[j * k + first..j * k + j]);
                row[j] = sum / done[j * k + j];
            }
        });
        let panel: Vec<f64> = rows.iter().flat_map(|row| row[first..end].iter().copied()).collect();
        let width = end - first;
        each_in_parallel(&mut rows, |i, row| {
            let own: Vec<f64> = row[first..end].to_vec();
            (0..=i).for_each(|j| row[end + j] -= dot(&own, &panel[j * width..][..width]));
        });
    }
    (0..k).for_each(|i| a[i * k + i + 1..(i + 1) * k].fill(0.0));
    Some(a)
}

/// The inverse of a lower matrix.
fn inverse(lower: &[f64], k: usize) -> Vec<f64> {
    let starts: Vec<usize> = (0..k).step_by(COLUMNS).collect();
    let columns = in_parallel(&starts, |&first| {
        let mut x = vec![[0f64; COLUMNS]; k];
        for i in first..k {
            let mut sum = [0f64; COLUMNS];
            if i - first < COLUMNS {
                sum[i - first] = 1.0;
            }
            for j in first..i {
                let by = lower[i * k + j];
                (0..COLUMNS).for_each(|lane| sum[lane] -= by * x[j][lane]);
            }
            x[i] = sum.map(|s| s / lower[i * k + i]);
        }
        x
    });
    let mut out = vec![0.0; k * k];
    for (first, x) in starts.iter().zip(columns) {
        for (i, row) in x.iter().enumerate() {
            let width = COLUMNS.min(k - first);
            out[i * k + first..][..width].copy_from_slice(&row[..width]);
        }
    }
    out
}

/// In eight sums, which are added in order.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0f64; 8];
    let ((a8, a), (b8, b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (x, y) in a8.iter().zip(b8) {
        (0..8).for_each(|i| sums[i] += x[i] * y[i]);
    }
    sums.iter().sum::<f64>() + a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>()
}

fn threads(n: usize) -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(n.max(1))
}

/// The results in order, whatever the threads do.
fn in_parallel<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut out: Vec<Option<R>> = items.iter().map(|_| None).collect();
    each_in_parallel(&mut out.iter_mut().collect::<Vec<_>>(), |i, place| **place = Some(f(&items[i])));
    out.into_iter().flatten().collect()
}

fn each_in_parallel<T: Send>(items: &mut [T], f: impl Fn(usize, &mut T) + Sync) {
    let n = threads(items.len());
    let mut shares: Vec<Vec<(usize, &mut T)>> = (0..n).map(|_| vec![]).collect();
    items.iter_mut().enumerate().for_each(|(i, item)| shares[i % n].push((i, item)));
    std::thread::scope(|scope| {
        for share in shares {
            scope.spawn(|| share.into_iter().for_each(|(i, item)| f(i, item)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::DType;

    fn numbers(n: usize, seed: u32) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 24) - 0.5
        };
        (0..n).map(|_| next()).collect()
    }

    /// XᵀX of rows whose places move together.
    fn products(k: usize, rows: usize) -> Vec<f64> {
        let (base, mix) = (numbers(rows * 8, 1), numbers(8 * k, 2));
        let own = numbers(rows * k, 3);
        let x =
            |r: usize, i: usize| (0..8).map(|m| base[r * 8 + m] * mix[m * k + i]).sum::<f64>() + 0.1 * own[r * k + i];
        (0..k * k).map(|n| (0..rows).map(|r| x(r, n / k) * x(r, n % k)).sum()).collect()
    }

    fn round(products: &[f64], weights: &[f32], parts: [usize; 3], bits: u32, size: usize) -> Rounded {
        rounded(&Seen::new(products.to_vec(), parts[1]).unwrap(), weights, parts, CodeType::Int(bits), size)
    }

    fn weights(n: usize) -> Vec<f32> {
        numbers(n, 9).into_iter().map(|x| x as f32).collect()
    }

    #[test]
    fn the_factor_is_that_of_the_inverse() {
        let k = 150;
        let h = products(k, 400);
        let seen = Seen::new(h.clone(), k).unwrap();
        let mean = (0..k).map(|i| h[i * k + i]).sum::<f64>() / k as f64;
        // UᵀU · (H + damping) = 1
        for i in [0, 3, 77, 149] {
            for j in [0, 77, 149] {
                let inverse = |a: usize, b: usize| {
                    (0..=a.min(b)).map(|m| seen.factor[m * k + a] * seen.factor[m * k + b]).sum::<f64>()
                };
                let damped =
                    |a: usize, b: usize| h[seen.order[a] * k + seen.order[b]] + if a == b { 0.01 * mean } else { 0.0 };
                let one: f64 = (0..k).map(|m| inverse(i, m) * damped(m, j)).sum();
                assert!((one - f64::from(u8::from(i == j))).abs() < 1e-8, "{i} {j} {one}");
            }
        }
    }

    /// The same by elimination: each place that is done leaves the inverse.
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
                let found = rounded(&seen, &w, [1, k, 1], code, 16);
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
