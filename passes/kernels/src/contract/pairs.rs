//! sums + a[2k] · b[2k] + a[2k + 1] · b[2k + 1], bf16 times bf16, accumulated in f32: by one instruction, or by two
//! after shifts

use crate::asm::{Asm, Bin, Cast, Elem, Mlir, Ty, Val};
use sardonyx_base::cpu::{Extension, Level};

/// Adds a pair of products to the accumulators of some rows (row-major: all columns of one row after another).
/// `addresses` point to each row's pair; `words` hold one word per column. If `half`, only the first element of the
/// pair exists.
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

/// Loads a pair of A from an address aligned to 2 bytes.
fn word(asm: &mut Mlir, address: Val, half: bool) -> Val {
    if !half {
        return asm.load(address, Ty::new(Elem::F32, 1), 2);
    }
    let first = asm.load(address, Ty::new(Elem::I16, 1), 2);
    let word = asm.cast(Cast::ExtUI, first, Elem::I32);
    asm.cast(Cast::Bitcast, word, Elem::F32)
}

/// Converts the two bf16 of each word to f32.
fn both(asm: &mut Mlir, words: Val) -> [Val; 2] {
    let bits = asm.cast(Cast::Bitcast, words, Elem::I32);
    let (sixteen, high) = (asm.int(16, bits.ty), asm.int(-65536, bits.ty));
    let (first, second) = (asm.bin(Bin::ShLI, bits, sixteen), asm.bin(Bin::AndI, bits, high));
    [first, second].map(|v| asm.cast(Cast::Bitcast, v, Elem::F32))
}
