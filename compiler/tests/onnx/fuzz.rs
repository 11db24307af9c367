//! Thousands of corrupted models: each is read or refused, quickly and in bounded memory

use crate::build::*;
use crate::largest_request_bytes;
use prost::Message;
use sardonyx::onnx::parse_model;
use sardonyx::onnx::proto::*;
use std::time::{Duration, Instant};

const ROUNDS: usize = 6000;
const TIME_MAX: Duration = Duration::from_secs(1);
/// A file may expand to 256 MiB and 64 bytes more for each of its own bytes, for which 4 MiB are enough here.
const REQUEST_BYTES_MAX: usize = 260 << 20;

/// splitmix64 with a fixed seed, so that every run corrupts the same bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let relu = || vec![node("Relu", "x", "y")];
    let sparse = SparseTensorProto {
        values: Some(i64_tensor("s", &[9])),
        indices: Some(i64_tensor("", &[1])),
        dims: vec![300, 400],
    };
    let raw = TensorProto {
        name: "r".into(),
        data_type: 1,
        dims: vec![2, 3],
        raw_data: vec![7; 24].into(),
        ..Default::default()
    };
    let packed =
        TensorProto { name: "p".into(), data_type: 22, dims: vec![5], int32_data: vec![1, 2, 3], ..Default::default() };
    let weights = GraphProto {
        initializer: vec![i64_tensor("w", &[1, 2, 3]), raw, packed],
        sparse_initializer: vec![sparse],
        ..graph("x", "y", relu())
    };
    let branch =
        |out: &str| graph("", out, vec![with(node("Op", "x w", out), int("axis", 1)), node("Neg", out, "unused")]);
    let control = with(node("If", "x", "y"), graph_attribute("then_branch", branch("p")));
    let control = with(control, graph_attribute("else_branch", branch("q")));
    let constant = with(node("Constant", "", "w"), ints("value_ints", &[1, 2, 3]));
    let inner = function("g", "a", "b", vec![with(node("Op", "a", "b"), reference("axis", "k", 2))]);
    let outer = function("f", "a b", "c", vec![call("g", "a", "t"), node("Add", "t b", "c")]);
    let calls = vec![with(call("f", "x x", "t"), int("k", 2)), call("f", "t x", "y")];
    let calls = ModelProto { functions: vec![inner, outer], ..model(graph("x", "y", calls)) };
    [model(weights), model(graph("x", "y", vec![constant, control])), calls].iter().map(|m| m.encode_to_vec()).collect()
}

fn damaged(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    // Half of the cases keep the length; otherwise hardly any model would get past the decoder to the later checks.
    if random.below(2) == 0 {
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = if random.below(4) == 0 { random.next() as u8 } else { bytes[at] ^ 1 << random.below(8) };
        }
        return bytes;
    }
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at.max(1)),
            // Inserts the first bytes of the largest varint, so that lengths and dimensions become enormous.
            3 => drop(bytes.splice(at..at, [0xff; 9].into_iter().chain([0x01]).take(1 + random.below(10)))),
            4 => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let piece = other[from..(from + random.below(64)).min(other.len())].to_vec();
                bytes.splice(at..(at + random.below(64)).min(bytes.len()), piece);
            }
            _ => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

#[test]
fn damaged_models_are_read_or_refused() {
    let seeds = seeds();
    for seed in &seeds {
        parse_model(seed.clone().into()).unwrap();
    }
    let mut random = Random(17);
    let (mut n_read, mut n_refused) = (0, 0);
    for round in 0..ROUNDS {
        let bytes = damaged(&seeds, &mut random);
        let start = Instant::now();
        match parse_model(bytes.into()) {
            Ok(_) => n_read += 1,
            Err(e) => {
                assert_ne!(e.code, "E0901", "round {round}: {e}");
                assert!(e.help.is_some(), "round {round}: {e}");
                n_refused += 1;
            }
        }
        assert!(start.elapsed() < TIME_MAX, "round {round} took {:?}", start.elapsed());
    }
    assert!(largest_request_bytes() < REQUEST_BYTES_MAX, "{} bytes were asked for at once", largest_request_bytes());
    // Both outcomes must be common, otherwise only one of them is tested.
    assert!(n_read > ROUNDS / 20 && n_refused > ROUNDS / 4, "{n_read} read, {n_refused} refused");
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random(4);
    for length in 0..1500 {
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let e = parse_model(bytes.into()).unwrap_err();
        assert_eq!(e.code, "E0103", "{e}");
    }
}
