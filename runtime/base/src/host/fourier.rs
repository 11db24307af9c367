//! Fourier: Cooley and Tukey's transform for powers of two; Bluestein's convolution, which is made of it, for others
//!
//! Bluestein: jk = (j² + k² - (k - j)²) / 2, which makes y[k] = c[k] Σ (x[j] c[j]) c̄[k - j] with c[j] = exp(-πi j² / n).

use super::unfit;
use crate::tensor::element_count;
use crate::{Result, Tensor};
use std::f64::consts::PI;

/// Along the last dimension but one; the last holds the real and the imaginary part.
pub fn transform(x: &Tensor, inverse: bool) -> Result<Tensor> {
    let wrong = || unfit(format!("{} {:?} has no complex f64 signal", x.dtype(), x.dims()));
    let Some(values) = x.to_vec::<f64>() else { return Err(wrong()) };
    let [lead @ .., n, 2] = x.dims() else { return Err(wrong()) };
    let rows = element_count(lead).unwrap_or(0);
    if rows * n == 0 {
        return Ok(x.clone());
    }
    let plan = Plan::new(*n);
    // Σ x exp(+…) is the conjugate of Σ x̄ exp(-…).
    let sign = if inverse { -1.0 } else { 1.0 };
    let mut out = Vec::with_capacity(values.len());
    let mut row: Vec<Complex> = vec![];
    for signal in values.chunks_exact(2 * n) {
        row.clear();
        row.extend(signal.as_chunks::<2>().0.iter().map(|[re, im]| Complex { re: *re, im: sign * im }));
        plan.run(&mut row);
        out.extend(row.iter().flat_map(|y| [y.re, sign * y.im]));
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

/// What all signals of one length share.
enum Plan {
    Power(Power),
    Bluestein { power: Power, chirp: Vec<Complex>, spectrum: Vec<Complex> },
}

impl Plan {
    fn new(n: usize) -> Plan {
        if n.is_power_of_two() {
            return Plan::Power(Power::new(n));
        }
        let power = Power::new((2 * n - 1).next_power_of_two());
        // j² is reduced as an integer, so that large ones lose nothing.
        let square = |j: usize| (j as u128 * j as u128 % (2 * n as u128)) as usize;
        let chirp: Vec<Complex> = (0..n).map(|j| Complex::root(square(j), 2 * n)).collect();
        let mut spectrum = vec![Complex::default(); power.n];
        for (j, c) in chirp.iter().enumerate() {
            spectrum[j] = c.conjugate();
            spectrum[(power.n - j) % power.n] = c.conjugate();
        }
        power.run(&mut spectrum);
        Plan::Bluestein { power, chirp, spectrum }
    }

    fn run(&self, x: &mut [Complex]) {
        let (power, chirp, spectrum) = match self {
            Plan::Power(power) => return power.run(x),
            Plan::Bluestein { power, chirp, spectrum } => (power, chirp, spectrum),
        };
        let mut wide = vec![Complex::default(); power.n];
        wide.iter_mut().zip(x.iter().zip(chirp)).for_each(|(w, (x, c))| *w = x.times(*c));
        power.run(&mut wide);
        wide.iter_mut().zip(spectrum).for_each(|(w, s)| *w = w.times(*s).conjugate());
        power.run(&mut wide);
        let scale = 1.0 / power.n as f64;
        for (x, (w, c)) in x.iter_mut().zip(wide.iter().zip(chirp)) {
            let y = w.conjugate().times(*c);
            *x = Complex { re: y.re * scale, im: y.im * scale };
        }
    }
}

struct Power {
    n: usize,
    /// exp(-2πi k / n) for k < n / 2
    roots: Vec<Complex>,
}

impl Power {
    fn new(n: usize) -> Power {
        Power { n, roots: (0..n / 2).map(|k| Complex::root(k, n)).collect() }
    }

    fn run(&self, x: &mut [Complex]) {
        let n_bits = self.n.trailing_zeros();
        for i in 0..self.n {
            let mirrored = i.reverse_bits().checked_shr(usize::BITS - n_bits).unwrap_or(0);
            if i < mirrored {
                x.swap(i, mirrored);
            }
        }
        for bit in 0..n_bits {
            let (half, stride) = (1 << bit, self.n >> (bit + 1));
            for block in x.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((a, b), w) in low.iter_mut().zip(high).zip(self.roots.iter().step_by(stride)) {
                    let turned = b.times(*w);
                    *b = Complex { re: a.re - turned.re, im: a.im - turned.im };
                    *a = Complex { re: a.re + turned.re, im: a.im + turned.im };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    /// The sums as they are defined.
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
        for n in [1usize, 2, 3, 5, 8, 12, 31, 64, 100] {
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
