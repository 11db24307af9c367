//! random | zeros | range:LO..HI  =>  a tensor, the same on every machine

use sardonyx_base::{DType, Error, Result, Tensor, packed, tensor};

/// Synthetic values for a benchmark or a trial run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Synthetic {
    /// Floats uniform in -1..1; integers 0 or 1 (valid as mask, type and index); random bools. 8-bit floats and all
    /// types of 2 and 4 bits have random bit patterns.
    Random,
    /// All bytes are 0, so elements are 0 or false (F8E8M0 has no 0).
    Zeros,
    /// Floats uniform in lo..hi; integers from lo to hi, both included. Bools, 8-bit floats and types of 2 and 4 bits
    /// are as with `Random`.
    Range {
        /// Lower bound, at most `hi`.
        lo: f64,
        /// Upper bound.
        hi: f64,
    },
}

impl Synthetic {
    /// Parses `random`, `zeros` or `range:LO..HI`. Returns `None` for any other text, such as a file name.
    pub fn parse(text: &str) -> Option<Result<Synthetic>> {
        match text {
            "random" => Some(Ok(Synthetic::Random)),
            "zeros" => Some(Ok(Synthetic::Zeros)),
            _ => text.strip_prefix("range:").map(|range| {
                let number = |s: &str| s.trim().parse::<f64>().ok().filter(|v| v.is_finite());
                let bounds = range.split_once("..").and_then(|(lo, hi)| Some((number(lo)?, number(hi)?)));
                match bounds {
                    Some((lo, hi)) if lo <= hi => Ok(Synthetic::Range { lo, hi }),
                    Some(_) | None => Err(Error::user("E0001", format!("`{text}` is not a range of numbers"))
                        .help("write `range:LO..HI`, for example `range:0..30521`")),
                }
            }),
        }
    }

    /// Returns a tensor of these values. Equal arguments give equal values. Errors: E0202 if the size overflows or the
    /// type has no fixed size, E0304 without enough memory.
    pub fn tensor(self, dtype: DType, dims: Vec<usize>, seed: u64) -> Result<Tensor> {
        let overflow = || Error::user("E0202", format!("a tensor of {dims:?} {dtype} has no representable size"));
        let n = tensor::element_count(&dims).ok_or_else(overflow)?;
        let bytes = dtype.bytes_for(n).ok_or_else(overflow)?;
        let mut data = Vec::new();
        data.try_reserve_exact(bytes)
            .map_err(|_| Error::user("E0304", format!("no memory for a tensor of {dims:?} {dtype}")))?;
        let (lo, hi) = match self {
            Synthetic::Zeros => {
                data.resize(bytes, 0);
                return Tensor::new(dtype, dims, data.into());
            }
            Synthetic::Random if dtype.is_float() || matches!(dtype, DType::C64 | DType::C128) => (-1.0, 1.0),
            Synthetic::Random => (0.0, 1.0),
            Synthetic::Range { lo, hi } => (lo, hi),
        };
        let mut rng = SplitMix64(seed.wrapping_mul(0xD1B5_4A32_D192_ED03) ^ 0x5A4D_0DD5);
        let parts = if matches!(dtype, DType::C64 | DType::C128) { 2 * n } else { n };
        for _ in 0..parts {
            push(dtype, lo, hi, &mut rng, &mut data)?;
        }
        Tensor::new(dtype, dims, data.into())
    }
}

fn push(dtype: DType, lo: f64, hi: f64, rng: &mut SplitMix64, out: &mut Vec<u8>) -> Result<()> {
    use DType::*;
    let float = |rng: &mut SplitMix64| lo + (hi - lo) * rng.unit();
    let int = |rng: &mut SplitMix64| {
        let (lo, hi) = (lo.ceil() as i64, hi.floor() as i64);
        let span = (hi as i128 - lo as i128 + 1).clamp(1, u64::MAX as i128) as u64;
        (lo as i128 + (rng.next() % span) as i128) as i64
    };
    match dtype {
        F32 | C64 => out.extend((float(rng) as f32).to_le_bytes()),
        F64 | C128 => out.extend(float(rng).to_le_bytes()),
        F16 => out.extend(half::f16::from_f64(float(rng)).to_le_bytes()),
        BF16 => out.extend(half::bf16::from_f64(float(rng)).to_le_bytes()),
        Bool => out.push((rng.next() & 1) as u8),
        U8 | I8 => out.push(int(rng) as u8),
        U16 | I16 => out.extend((int(rng) as u16).to_le_bytes()),
        U32 | I32 => out.extend((int(rng) as u32).to_le_bytes()),
        U64 | I64 => out.extend(int(rng).to_le_bytes()),
        // These bit patterns are below the exponents that encode NaN and infinity.
        F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 => out.push((rng.next() % 0x40) as u8),
        // All bit patterns are numbers.
        U4 | I4 | F4E2M1 | U2 | I2 => out.push(packed::held(dtype, rng.next() as u8)),
        String | Value => return Err(Error::user("E0107", format!("tensors of type {dtype} cannot be made up"))),
    }
    Ok(())
}

/// The generator of Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a multiple of 2^-53, uniform in 0..1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        let mut rng = SplitMix64(1234567);
        assert_eq!((rng.next(), rng.next()), (6457827717110365317, 3203168211198807973));
    }

    #[test]
    fn ranges_hold_and_seeds_differ() {
        let spec = Synthetic::parse("range:-3..4").unwrap().unwrap();
        let t = spec.tensor(DType::I64, vec![1000], 1).unwrap().to_vec::<i64>().unwrap();
        assert_eq!((t.iter().min(), t.iter().max()), (Some(&-3), Some(&4)));
        let random = |seed| Synthetic::Random.tensor(DType::F32, vec![100], seed).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(random(3), random(3));
        assert_ne!(random(3), random(4));
        assert!(random(3).iter().all(|v| (-1.0..1.0).contains(v)));
        let ints = Synthetic::Random.tensor(DType::I32, vec![100], 0).unwrap().to_vec::<i32>().unwrap();
        assert!(ints.contains(&0) && ints.contains(&1) && ints.iter().all(|&v| v == 0 || v == 1));
    }

    #[test]
    fn every_fixed_width_type_can_be_made() {
        for dtype in DType::all().filter(|d| d.bits() > 0) {
            for spec in [Synthetic::Random, Synthetic::Zeros] {
                assert_eq!(spec.tensor(dtype, vec![3, 5], 7).unwrap().len(), 15);
            }
        }
        assert_eq!(Synthetic::Zeros.tensor(DType::String, vec![1], 0).unwrap_err().code, "E0202");
    }

    #[test]
    fn texts_are_told_apart() {
        assert!(Synthetic::parse("x.npy").is_none());
        assert_eq!(Synthetic::parse("range:5..1").unwrap().unwrap_err().code, "E0001");
        assert_eq!(Synthetic::parse("range:a..b").unwrap().unwrap_err().code, "E0001");
    }
}
