//! Sectors and wavefronts, compared with counts computed from sets of bytes and words

use super::*;
use crate::units::testing::Random;
use std::collections::{BTreeMap, BTreeSet};

fn brute_sectors(addresses: &Addresses, active: u32, bytes: u32) -> Vec<u64> {
    let lanes = (0..32).filter(|lane| active >> lane & 1 == 1);
    let touched = lanes.flat_map(|lane| (0..u64::from(bytes)).map(move |i| (addresses[lane] + i) / 32));
    touched.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the number of wavefronts of one phase: the largest number of distinct words in one bank.
fn brute_phase(addresses: &[u64], bytes: u32) -> u32 {
    let words: BTreeSet<u64> = addresses.iter().flat_map(|a| (0..u64::from(bytes)).map(move |i| (a + i) / 4)).collect();
    let mut banks = BTreeMap::new();
    words.iter().for_each(|word| *banks.entry(word % 32).or_insert(0) += 1);
    banks.values().copied().max().unwrap_or(0)
}

fn random_addresses(r: &mut Random, bytes: u64, aligned: bool) -> Addresses {
    let base = r.below(1 << 20) * 16;
    let stride = [1, bytes, 2 * bytes, 32, 128, 132, 144, 512][r.below(8) as usize];
    let scattered = r.below(3) == 0;
    std::array::from_fn(|lane| {
        let address = if scattered { base + r.below(2048) } else { base + lane as u64 * stride };
        if aligned { address / bytes * bytes } else { address }
    })
}

#[test]
fn sectors_are_the_distinct_ones() {
    let mut r = Random(41);
    for trial in 0..5000 {
        let bytes = 1 << r.below(5);
        let addresses = random_addresses(&mut r, bytes, trial % 4 != 0);
        let active = if trial % 2 == 0 { u32::MAX } else { r.u32() & r.u32() };
        let expected = brute_sectors(&addresses, active, bytes as u32);
        assert_eq!(sectors(&addresses, active, bytes as u32).as_slice(), expected);
    }
    let row: Addresses = std::array::from_fn(|lane| 4096 + 4 * lane as u64);
    assert_eq!(sectors(&row, u32::MAX, 4).as_slice(), [128, 129, 130, 131]);
    let column: Addresses = std::array::from_fn(|lane| 4096 * lane as u64);
    assert_eq!(sectors(&column, u32::MAX, 4).as_slice().len(), 32);
    assert_eq!(sectors(&column, 0, 4).as_slice(), [0; 0]);
}

#[test]
fn wavefronts_are_the_worst_bank_of_each_phase() {
    let mut r = Random(42);
    for trial in 0..5000 {
        let bytes = 1 << r.below(5);
        let addresses = random_addresses(&mut r, bytes, trial % 8 != 0);
        let active = if trial % 2 == 0 { u32::MAX } else { r.u32() & r.u32() };
        let lanes = if bytes <= 4 {
            32
        } else if bytes == 8 {
            16
        } else {
            8
        };
        let mut expected = Wavefronts::default();
        for first in (0..32).step_by(lanes) {
            let on = (first..first + lanes).filter(|lane| active >> lane & 1 == 1);
            let phase: Vec<u64> = on.map(|lane| addresses[lane]).collect();
            expected.actual += brute_phase(&phase, bytes as u32);
            expected.ideal += u32::from(!phase.is_empty());
        }
        assert_eq!(shared_wavefronts(&addresses, active, bytes as u32), expected, "{addresses:?} {active:#x} {bytes}");
        for count in [1, 2, 4] {
            let expected = addresses.chunks(8).take(count).map(|tile| brute_phase(tile, 16)).sum();
            assert_eq!(matrix_wavefronts(&addresses, count), Wavefronts { actual: expected, ideal: count as u32 });
        }
    }
}

#[test]
fn textbook_conflicts() {
    let of = |stride: u64| -> Addresses { std::array::from_fn(|lane| lane as u64 * stride) };
    let cost = |stride, bytes| {
        let w = shared_wavefronts(&of(stride), u32::MAX, bytes);
        (w.actual, w.ideal)
    };
    // Consecutive words, a broadcast, a stride of two words, a column of rows of 32 words, and a column of rows of 32
    // words that are padded by one word.
    assert_eq!(
        [cost(4, 4), cost(0, 4), cost(8, 4), cost(128, 4), cost(132, 4)],
        [(1, 1), (1, 1), (2, 1), (32, 1), (1, 1)]
    );
    assert_eq!([cost(8, 8), cost(16, 16), cost(128, 16)], [(2, 2), (4, 4), (32, 4)]);
    // Rows of 64 bytes conflict; rows of 80 bytes (16 of padding) do not.
    let w = |stride| matrix_wavefronts(&of(stride), 4).actual;
    assert_eq!([w(16), w(64), w(80), w(128), w(144)], [4, 16, 4, 32, 4]);
}
