//! bytes, random numbers  =>  the bytes with some damage, the same in every run

/// The splitmix64 generator.
pub struct Random(pub u64);

impl Random {
    /// Returns the next number; all 64 bits are random.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.u64() % n.max(1) as u64) as usize
    }
}

/// Flips, overwrites, cuts, inserts, removes or repeats bytes. Half of the results keep their length; all differ from
/// `good`.
pub fn damaged(good: &[u8], random: &mut Random) -> Vec<u8> {
    loop {
        let bytes = touched(good, random);
        if bytes != good {
            return bytes;
        }
    }
}

fn touched(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = good.to_vec();
    if random.below(2) == 0 {
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = if random.below(4) == 0 { random.u64() as u8 } else { bytes[at] ^ 1 << random.below(8) };
        }
        return bytes;
    }
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len());
        let until = (at + 1 + random.below(32)).min(bytes.len());
        match random.below(4) {
            0 => bytes.truncate(at),
            // The largest values of a varint make lengths and dimensions enormous.
            1 => drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([0x01]).take(1 + random.below(10)))),
            2 => drop(bytes.drain(at..until)),
            _ => {
                let piece = bytes[at..until].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}
