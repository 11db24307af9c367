//! bytes  =>  64-bit FNV-1a hash, the same in every build and on every machine; for names and seeds, not hash tables

/// The hash of an empty slice (FNV's offset basis).
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Returns the hash of `bytes`.
pub fn hash(bytes: &[u8]) -> u64 {
    extended(EMPTY, bytes)
}

/// Returns the hash of a longer slice: `hash` is the hash of its beginning, and `bytes` are the rest.
pub fn extended(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_are_those_of_fnv_1a() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(extended(hash(b"foo"), b"bar"), hash(b"foobar"));
    }
}
