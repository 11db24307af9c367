//! Fourier: Cooley and Tukey's transform for powers of two; Bluestein's convolution, based on it, for other lengths
//!
//! Bluestein: since jk = (j² + k² - (k - j)²) / 2, the transform of x is the convolution
//! y[k] = c[k] Σ (x[j] c[j]) c̄[k - j] over j, with c[j] = exp(-πi j² / n); c̄ is the conjugate of c.

use super::budget::PIECE;
use super::{Budget, unfit};
use crate::tensor::element_count;
use crate::{Result, Tensor};
use std::f64::consts::PI;

/// Transforms f64 [.., n, 2] along n, without scaling; the last dimension holds the real and the imaginary part.
pub fn transform(x: &Tensor, inverse: bool, budget: &Budget) -> Result<Tensor> {
    let wrong = || unfit(format!("{} {:?} has no complex f64 signal", x.dtype(), x.dims()));
    let values = budget.values::<f64>(x)?.ok_or_else(wrong)?;
    let [lead @ .., n, 2] = x.dims() else { return Err(wrong()) };
    let rows = element_count(lead).unwrap_or(0);
    if rows * n == 0 {
        return Ok(x.clone());
    }
    let plan = Plan::new(*n, budget)?;
    // Σ x exp(+…) is the conjugate of Σ x̄ exp(-…).
    let sign = if inverse { -1.0 } else { 1.0 };
    let mut out = budget.room(values.len())?;
    let (mut row, mut wide) = (budget.filled(Complex::default(), *n)?, budget.filled(Complex::default(), plan.wide())?);
    for signal in values.chunks_exact(2 * n) {
        let (signal, _) = signal.as_chunks::<2>();
        for piece in budget.pieces(*n) {
            let piece = piece?;
            let given = signal[piece.clone()].iter().map(|[re, im]| Complex { re: *re, im: sign * im });
            row[piece].iter_mut().zip(given).for_each(|(x, given)| *x = given);
        }
        plan.run(&mut row, &mut wide, budget)?;
        for piece in budget.pieces(*n) {
            out.extend(row[piece?].iter().flat_map(|y| [y.re, sign * y.im]));
        }
    }
    Ok(Tensor::from_vec(x.dims().to_vec(), out))
}

#[derive(Clone, Copy, Debug, Default)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    /// exp(-2πi k / n)
    fn root(k: usize, n: usize) -> Complex {
        let angle = -2.0 * PI * (k as f64 / n as f64);
        Complex { re: angle.cos(), im: angle.sin() }
    }

    fn times(self, other: Complex) -> Complex {
        let re = self.re * other.re - self.im * other.im;
        Complex { re, im: self.re * other.im + self.im * other.re }
    }

    fn conjugate(self) -> Complex {
        Complex { im: -self.im, ..self }
    }
}

/// Tables that all signals of one length share.
enum Plan {
    Power(Power),
    Bluestein { power: Power, chirp: Vec<Complex>, spectrum: Vec<Complex> },
}

impl Plan {
    fn new(n: usize, budget: &Budget) -> Result<Plan> {
        if n.is_power_of_two() {
            return Ok(Plan::Power(Power::new(n, budget)?));
        }
        let power = Power::new((2 * n - 1).next_power_of_two(), budget)?;
        // j² is reduced as an integer, so that large values lose no precision.
        let square = |j: usize| (j as u128 * j as u128 % (2 * n as u128)) as usize;
        let chirp = budget.collect(n, |j| Ok(Complex::root(square(j), 2 * n)))?;
        let mut spectrum = budget.filled(Complex::default(), power.n)?;
        for piece in budget.pieces(n) {
            for j in piece? {
                spectrum[j] = chirp[j].conjugate();
                spectrum[(power.n - j) % power.n] = chirp[j].conjugate();
            }
        }
        power.run(&mut spectrum, budget)?;
        Ok(Plan::Bluestein { power, chirp, spectrum })
    }

    /// Number of complex elements of the scratch signal that `run` needs.
    fn wide(&self) -> usize {
        match self {
            Plan::Power(_) => 0,
            Plan::Bluestein { power, .. } => power.n,
        }
    }

    fn run(&self, x: &mut [Complex], wide: &mut [Complex], budget: &Budget) -> Result<()> {
        let (power, chirp, spectrum) = match self {
            Plan::Power(power) => return power.run(x, budget),
            Plan::Bluestein { power, chirp, spectrum } => (power, chirp, spectrum),
        };
        for piece in budget.pieces(wide.len()) {
            let piece = piece?;
            let used = piece.start.min(x.len())..piece.end.min(x.len());
            wide[piece.clone()].fill(Complex::default());
            let products = x[used.clone()].iter().zip(&chirp[used]).map(|(x, c)| x.times(*c));
            wide[piece].iter_mut().zip(products).for_each(|(w, product)| *w = product);
        }
        power.run(wide, budget)?;
        for piece in budget.pieces(wide.len()) {
            let piece = piece?;
            let spectrum = &spectrum[piece.clone()];
            wide[piece].iter_mut().zip(spectrum).for_each(|(w, s)| *w = w.times(*s).conjugate());
        }
        power.run(wide, budget)?;
        let scale = 1.0 / power.n as f64;
        for piece in budget.pieces(x.len()) {
            let piece = piece?;
            let convolved = wide[piece.clone()].iter().zip(&chirp[piece.clone()]);
            for (x, (w, c)) in x[piece].iter_mut().zip(convolved) {
                let y = w.conjugate().times(*c);
                *x = Complex { re: y.re * scale, im: y.im * scale };
            }
        }
        Ok(())
    }
}

struct Power {
    n: usize,
    /// exp(-2πi k / n) for k < n / 2
    roots: Vec<Complex>,
}

impl Power {
    fn new(n: usize, budget: &Budget) -> Result<Power> {
        Ok(Power { n, roots: budget.collect(n / 2, |k| Ok(Complex::root(k, n)))? })
    }

    fn run(&self, x: &mut [Complex], budget: &Budget) -> Result<()> {
        let n_bits = self.n.trailing_zeros();
        for piece in budget.pieces(self.n) {
            for i in piece? {
                let mirrored = i.reverse_bits().checked_shr(usize::BITS - n_bits).unwrap_or(0);
                if i < mirrored {
                    x.swap(i, mirrored);
                }
            }
        }
        for bit in 0..n_bits {
            let (half, stride) = (1 << bit, self.n >> (bit + 1));
            if half < PIECE {
                // Each group consists of whole blocks, because the sizes of groups and blocks are powers of two.
                for group in x.chunks_mut(PIECE) {
                    for block in group.chunks_exact_mut(2 * half) {
                        let (low, high) = block.split_at_mut(half);
                        butterflies(low, high, self.roots.iter().step_by(stride));
                    }
                    budget.work(group.len())?;
                }
                continue;
            }
            for block in x.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for (i, (low, high)) in low.chunks_mut(PIECE).zip(high.chunks_mut(PIECE)).enumerate() {
                    butterflies(low, high, self.roots[i * PIECE * stride..].iter().step_by(stride));
                    budget.work(2 * PIECE)?;
                }
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn butterflies<'a>(low: &mut [Complex], high: &mut [Complex], roots: impl Iterator<Item = &'a Complex>) {
    for ((a, b), w) in low.iter_mut().zip(high).zip(roots) {
        let turned = b.times(*w);
        *b = Complex { re: a.re - turned.re, im: a.im - turned.im };
        *a = Complex { re: a.re + turned.re, im: a.im + turned.im };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn transform(x: &Tensor, inverse: bool) -> Result<Tensor> {
        super::transform(x, inverse, &Budget::unlimited())
    }

    /// The Fourier transform, computed by its definition.
    fn sums(x: &[f64], inverse: bool) -> Vec<f64> {
        let n = x.len() / 2;
        let value = |k: usize| {
            let terms = (0..n).map(|j| {
                let root = Complex::root(j * k % n, n);
                Complex { re: x[2 * j], im: x[2 * j + 1] }.times(if inverse { root.conjugate() } else { root })
            });
            terms.fold([0.0, 0.0], |sum, y| [sum[0] + y.re, sum[1] + y.im])
        };
        (0..n).flat_map(value).collect()
    }

    #[test]
    fn lengths_of_every_kind_give_the_sums() {
        for n in [1usize, 2, 3, 5, 8, 12, 31, 64, 100, 4096] {
            let x: Vec<f64> = (0..4 * n).map(|i| ((i * i * 7 + i) % 23) as f64 - 11.0).collect();
            for inverse in [false, true] {
                let signal = Tensor::from_vec(vec![2, n, 2], x.clone());
                let y = transform(&signal, inverse).unwrap().to_vec::<f64>().unwrap();
                let wanted: Vec<f64> = x.chunks(2 * n).flat_map(|row| sums(row, inverse)).collect();
                let worst = y.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst < 1e-12 * 23.0 * n as f64, "{n}: {worst}");
            }
        }
    }

    #[test]
    fn nothing_is_transformed_to_nothing() {
        let empty = Tensor::zeros(DType::F64, vec![3, 0, 2]);
        assert_eq!(transform(&empty, false).unwrap(), empty);
        assert_eq!(transform(&Tensor::scalar(1.0f64), false).unwrap_err().code, "E0303");
        assert!(transform(&Tensor::zeros(DType::F32, vec![3, 2]), false).is_err());
    }
}
