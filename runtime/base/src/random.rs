//! seed  =>  sequence of pseudorandom numbers, the same on every machine (SplitMix64)

/// State of a generator of pseudorandom numbers; equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator that starts with a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits, uniformly distributed.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `n`, or 0 if `n` is 0. It is a remainder of `bits`, so small numbers are slightly
    /// likelier.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// Returns a number that is at least 0 and less than 1: a multiple of 2⁻⁵³, uniformly distributed.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_algorithm() {
        let mut random = Random::new(1234567);
        assert_eq!([(); 3].map(|()| random.bits()), [6457827717110365317, 3203168211198807973, 9817491932198370423]);
        assert!((0..1000).all(|_| random.below(7) < 7 && (0.0..1.0).contains(&random.fraction())));
    }
}
