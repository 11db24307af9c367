//! `weights.json` (name, shape, offset, seed, mean, std)  =>  `weights.bin`, the same float32 bytes everywhere

use crate::context::{Failure, Result};
use serde_json::Value;
use std::io::{self, Write};

/// The content of `weights.json`: tensors that follow each other without gaps.
pub struct Weights {
    pub total_bytes: u64,
    tensors: Vec<Recipe>,
}

/// The recipe of a tensor: `n` uniformly distributed floats with mean `mean` and standard deviation `std`.
struct Recipe {
    n: u64,
    seed: u64,
    mean: f64,
    std: f64,
}

impl Weights {
    /// Reads `weights.json`; refuses tensors that leave gaps or do not add up to `total_bytes`.
    pub fn parse(json: &[u8]) -> Result<Weights> {
        let wrong = |what: String| Failure::user(format!("weights.json is malformed: {what}"));
        let json: Value = serde_json::from_slice(json).map_err(|e| wrong(e.to_string()))?;
        let total_bytes = json["total_bytes"].as_u64().ok_or_else(|| wrong("it has no total_bytes".into()))?;
        let rows = json["tensors"].as_array().ok_or_else(|| wrong("it has no tensors".into()))?;
        let mut tensors = Vec::with_capacity(rows.len());
        let mut end = 0u64;
        for row in rows {
            let (offset, recipe) = parse_row(row).ok_or_else(|| wrong(format!("this row is not complete: {row}")))?;
            if offset != end {
                return Err(wrong(format!("the tensor before {row} ends at {end}")));
            }
            let after = recipe.n.checked_mul(4).and_then(|bytes| end.checked_add(bytes));
            end = after.ok_or_else(|| wrong(format!("this row overflows: {row}")))?;
            tensors.push(recipe);
        }
        if end != total_bytes {
            return Err(wrong(format!("the tensors end at {end}, but total_bytes is {total_bytes}")));
        }
        Ok(Weights { total_bytes, tensors })
    }

    /// Writes the values of all tensors, as little-endian floats.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut out = io::BufWriter::with_capacity(1 << 20, out);
        for recipe in &self.tensors {
            for value in recipe.values() {
                out.write_all(&value.to_le_bytes())?;
            }
        }
        out.flush()
    }
}

impl Recipe {
    fn values(&self) -> impl Iterator<Item = f32> {
        // The order of operations is part of the format: another order rounds differently.
        let scale = self.std * 12f64.sqrt();
        (1..=self.n).map(move |i| (self.mean + scale * (uniform(self.seed, i) - 0.5)) as f32)
    }
}

/// Returns the `i`-th pseudo-random number, counted from 1: a number in [0, 1) of 24 bits, computed by splitmix64
/// (Steele, Lea and Flood, 2014) from an initial state that the seed determines.
fn uniform(seed: u64, i: u64) -> f64 {
    let z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed.wrapping_mul(0xD1B5_4A32_D192_ED03));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f64 / (1u64 << 24) as f64
}

/// Returns the offset of a tensor in bytes, and its recipe.
fn parse_row(row: &Value) -> Option<(u64, Recipe)> {
    let dims = row["shape"].as_array()?;
    let n = dims.iter().try_fold(1u64, |n, d| n.checked_mul(d.as_u64()?))?;
    let recipe = Recipe { n, seed: row["seed"].as_u64()?, mean: row["mean"].as_f64()?, std: row["std"].as_f64()? };
    Some((row["offset"].as_u64()?, recipe))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Context, read, sha256};

    fn bits(n: u64, seed: u64, mean: f64, std: f64) -> Vec<u32> {
        Recipe { n, seed, mean, std }.values().map(f32::to_bits).collect()
    }

    // The expected values of these tests were computed with NumPy from the same definition.

    #[test]
    fn values_equal_numpys() {
        let first = [0xbf8fa85d, 0xbe1132bb, 0x3db2e9cf, 0xbef89f6d, 0x3e331bfc, 0x3f68e524];
        assert_eq!(bits(6, 1, 0.0, 1.0), first);
        let second = [0xbcf682c2, 0x3bdb71a4, 0x3bd0d03f, 0xbbe235e0];
        assert_eq!(bits(4, 7, 4.403978437039768e-06, 0.020002003759145737), second);
    }

    #[test]
    fn a_long_tensor_equals_numpys() {
        let tensor = Recipe { n: 100_000, seed: 150, mean: -0.0003195181197952479, std: 0.02 };
        let weights = Weights { total_bytes: 400_000, tensors: vec![tensor] };
        let mut bytes = vec![];
        weights.write(&mut bytes).unwrap();
        assert_eq!(sha256(&bytes), "d7e92a4bcff8fd980a2cffc30cb88a74349bb5223e25c5c845f3abbb826a1cc3");
    }

    #[test]
    fn the_weights_of_a_committed_model_equal_numpys() {
        let folder = Context::new().root.join("testdata/models/light_squeezenet_seeded");
        let weights = Weights::parse(&read(&folder.join("weights.json")).unwrap()).unwrap();
        let mut bytes = vec![];
        weights.write(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, weights.total_bytes);
        assert_eq!(sha256(&bytes), "91051cfc3ddb00e77e7e7580c15f43fd40b5c6d1e609aa7e47c2fb5f8955f015");
    }

    #[test]
    fn gaps_and_wrong_totals_are_refused() {
        let row = r#"{"name": "a", "shape": [2, 3], "offset": 0, "seed": 1, "mean": 0.0, "std": 1.0}"#;
        let parse = |total: u64, rows: &str| {
            Weights::parse(format!(r#"{{"total_bytes": {total}, "tensors": [{rows}]}}"#).as_bytes())
        };
        assert_eq!(parse(24, row).unwrap().total_bytes, 24);
        assert!(parse(20, row).err().unwrap().to_string().contains("end at 24, but total_bytes is 20"));
        let gap = parse(48, &format!("{row}, {}", row.replace("\"offset\": 0", "\"offset\": 28")));
        assert!(gap.err().unwrap().to_string().contains("ends at 24"));
        assert!(parse(24, &row.replace("[2, 3]", "[-1]")).err().unwrap().to_string().contains("not complete"));
        assert!(Weights::parse(b"[").is_err());
    }
}
