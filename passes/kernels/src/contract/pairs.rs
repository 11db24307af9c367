//! sums + a[2k] · b[2k] + a[2k + 1] · b[2k + 1], bf16 times bf16 in f32: by one instruction, or by two after shifts

use crate::asm::{Asm, Bin, Cast, Elem, Mlir, Ty, Val};
use sardonyx_base::cpu::{Extension, Level};

/// The sums of some rows (all columns of one after the other) with a pair of products more: where each row's pair lies,
/// one word per column. Of half a pair there is only the first element to read.
pub fn pair_products(
    asm: &mut Mlir,
    level: Level,
    addresses: &[Val],
    words: &[Val],
    sums: &[Val],
    half: bool,
) -> Vec<Val> {
    let mut next = vec![];
    let apart: Vec<[Val; 2]> =
        if level.has(Extension::Pairs) { vec![] } else { words.iter().map(|w| both(asm, *w)).collect() };
    for (address, sums) in addresses.iter().zip(sums.chunks(words.len())) {
        let word = word(asm, *address, half);
        let a = asm.widen(word, words[0].ty.lanes);
        if level.has(Extension::Pairs) {
            next.extend(sums.iter().zip(words).map(|(sum, b)| asm.isa.dot_pairs(asm, *sum, a, *b)));
            continue;
        }
        let [first, second] = both(asm, a);
        for (sum, b) in sums.iter().zip(&apart) {
            let sum = asm.fma(first, b[0], *sum);
            next.push(if half { sum } else { asm.fma(second, b[1], sum) });
        }
    }
    next
}

/// A pair of A, which lies at any even address.
fn word(asm: &mut Mlir, address: Val, half: bool) -> Val {
    if !half {
        return asm.load(address, Ty::new(Elem::F32, 1), 2);
    }
    let first = asm.load(address, Ty::new(Elem::I16, 1), 2);
    let word = asm.cast(Cast::ExtUI, first, Elem::I32);
    asm.cast(Cast::Bitcast, word, Elem::F32)
}

/// The two bf16 of each word as f32.
fn both(asm: &mut Mlir, words: Val) -> [Val; 2] {
    let bits = asm.cast(Cast::Bitcast, words, Elem::I32);
    let (sixteen, high) = (asm.int(16, bits.ty), asm.int(-65536, bits.ty));
    let (first, second) = (asm.bin(Bin::ShLI, bits, sixteen), asm.bin(Bin::AndI, bits, high));
    [first, second].map(|v| asm.cast(Cast::Bitcast, v, Elem::F32))
}
