//! Random bits with special floats among them, and exact sums of products as a reference for rounding

use super::Lanes;
use super::format::Rounding;
use std::cmp::Ordering;

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
pub struct Random(pub u64);

impl Random {
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.u64() % n
    }

    pub fn lanes(&mut self) -> Lanes {
        std::array::from_fn(|_| self.u32())
    }

    /// Returns any bit pattern, a number of moderate size, a number with few mantissa bits, or a special value.
    pub fn f32(&mut self) -> f32 {
        let sign = self.u32() & 0x8000_0000;
        let near_one = |r: &mut Self| (117 + r.below(20) as u32) << 23;
        f32::from_bits(match self.below(8) {
            0..=2 => self.u32(),
            3..=4 => sign | near_one(self) | self.u32() & 0x7f_ffff,
            5..=6 => sign | near_one(self) | self.u32() & 0x7c_0000,
            _ => {
                sign | [0, 1, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7fc0_0001]
                    [self.below(8) as usize]
            }
        })
    }

    pub fn f64(&mut self) -> f64 {
        let sign = self.u64() & 1 << 63;
        let fraction = self.u64() & ((1 << 52) - 1);
        let near_one = |r: &mut Self| (1013 + r.below(20)) << 52;
        f64::from_bits(match self.below(8) {
            0..=2 => self.u64(),
            3..=4 => sign | near_one(self) | fraction,
            5..=6 => sign | near_one(self) | fraction & !((1 << 45) - 1),
            _ => {
                let special = [0, 1, (1 << 52) - 1, 1 << 52, 0x3ff << 52, (0x7ff << 52) - 1, 0x7ff << 52, 0x7ff8 << 48];
                sign | special[self.below(8) as usize]
            }
        })
    }
}

/// An exact sum of products of two finite f64: a two's-complement number in units of 2^-2148.
pub struct Sum([u32; 138]);

impl Sum {
    pub fn new(products: &[(f64, f64)]) -> Sum {
        let mut sum = Sum([0; 138]);
        products.iter().for_each(|&(x, y)| sum.add(x, y));
        sum
    }

    fn add(&mut self, x: f64, y: f64) {
        let parts = |x: f64| {
            let (field, fraction) = (x.to_bits() >> 52 & 0x7ff, x.to_bits() & ((1 << 52) - 1));
            assert!(field < 0x7ff, "{x} is not finite");
            if field == 0 { (fraction, 0) } else { (fraction | 1 << 52, field as usize - 1) }
        };
        let ((x_mantissa, x_shift), (y_mantissa, y_shift)) = (parts(x), parts(y));
        let (mut mantissa, shift) = (u128::from(x_mantissa) * u128::from(y_mantissa), x_shift + y_shift);
        let negative = x.is_sign_negative() != y.is_sign_negative();
        // Each iteration adds 32 bits of the product, starting at one limb, and propagates carries to the limbs above.
        let mut limb = shift / 32;
        while mantissa != 0 {
            let mut value = (mantissa as u32 as u64) << (shift % 32);
            let mut at = limb;
            while value != 0 && at < self.0.len() {
                let (old, low) = (u64::from(self.0[at]), value & 0xffff_ffff);
                let new = if negative { old.wrapping_sub(low) } else { old + low };
                self.0[at] = new as u32;
                let carry = if negative { u64::from(old < low) } else { new >> 32 };
                value = (value >> 32) + carry;
                at += 1;
            }
            mantissa >>= 32;
            limb += 1;
        }
    }

    /// Compares the sum with zero.
    pub fn sign(&self) -> Ordering {
        if self.0[137] >> 31 == 1 {
            Ordering::Less
        } else if self.0.iter().all(|&limb| limb == 0) {
            Ordering::Equal
        } else {
            Ordering::Greater
        }
    }
}

/// Asserts that `result` is correctly rounded. `compare(x)` orders the exact value relative to `x`, and
/// `compare_middle(x, y)` orders it relative to `(x + y) / 2`, for finite numbers. `next_down` and `next_up` step in
/// the format of the result.
pub fn assert_rounded(
    what: &str,
    result: f64,
    rounding: Rounding,
    (next_down, next_up): (impl Fn(f64) -> f64, impl Fn(f64) -> f64),
    compare: impl Fn(f64) -> Ordering,
    compare_middle: impl Fn(f64, f64) -> Ordering,
) {
    assert!(!result.is_nan(), "{what}: NaN");
    let largest = next_down(f64::INFINITY);
    let order = match result {
        f64::INFINITY => {
            if compare(largest).is_gt() {
                Ordering::Less
            } else {
                panic!("{what}: overflow")
            }
        }
        f64::NEG_INFINITY => {
            if compare(-largest).is_lt() {
                Ordering::Greater
            } else {
                panic!("{what}: overflow")
            }
        }
        _ => compare(result),
    };
    if order.is_eq() {
        return;
    }
    // The neighbour on the other side of the exact value.
    let other = if order.is_gt() { next_up(result) } else { next_down(result) };
    if other.is_finite() {
        let across = compare(other);
        assert!(across.is_eq() || across != order, "{what}: {result:e} is off by more than one step");
        assert!(!across.is_eq(), "{what}: exact {other:e}, got {result:e}");
    }
    let right = match rounding {
        Rounding::Rm => order.is_gt(),
        Rounding::Rp => order.is_lt(),
        Rounding::Rz => {
            if compare(0.0).is_gt() {
                order.is_gt()
            } else {
                order.is_lt()
            }
        }
        // Overflow to nearest is tested separately.
        Rounding::Rn | Rounding::Rna if result.is_infinite() || other.is_infinite() => true,
        Rounding::Rn | Rounding::Rna => match compare_middle(result, other) {
            Ordering::Equal => true,
            side => side != order,
        },
    };
    assert!(right, "{what}: {result:e} in mode {rounding:?}, the exact value is {order:?}");
}

/// Returns the steps to the neighbouring f32 below and above an f64, for [`assert_rounded`].
pub fn f32_steps() -> (impl Fn(f64) -> f64, impl Fn(f64) -> f64) {
    (|x: f64| f64::from((x as f32).next_down()), |x: f64| f64::from((x as f32).next_up()))
}

pub const DIRECTED: [Rounding; 4] = [Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp];
