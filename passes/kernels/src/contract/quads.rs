//! accumulators + Σ a[4k + i] · b[4k + i], unsigned by signed bytes in i32: with one instruction, or widened to 16 bits

use crate::asm::{Asm, Bin, Cast, Elem, Mlir, Ty, Val};
use sardonyx_base::cpu::{Extension, Level};

/// Adds four products to the accumulators of some rows (row-major: all columns of one row after another). `addresses`
/// point to each row's bytes; `words` hold one word per column. If `rest` is given, only that many bytes of the word
/// exist in A.
pub fn quad_products(
    asm: &mut Mlir,
    level: Level,
    addresses: &[Val],
    words: &[Val],
    sums: &[Val],
    rest: Option<i64>,
) -> Vec<Val> {
    let whole = level.has(Extension::Quads);
    let apart: Vec<[Val; 2]> = if whole { vec![] } else { words.iter().map(|w| halves(asm, *w, Bin::ShRSI)).collect() };
    let lanes: Vec<u32> = words.iter().map(|w| w.ty.lanes).collect();
    let mut next = vec![];
    for (address, sums) in addresses.iter().zip(sums.chunks(words.len())) {
        let word = word(asm, *address, rest);
        let a = asm.broadcast(word, &lanes);
        if whole {
            let factors = sums.iter().zip(a).zip(words);
            next.extend(factors.map(|((sum, a), b)| asm.isa.dot_quads(asm, *sum, a, *b)));
            continue;
        }
        for ((sum, a), b) in sums.iter().zip(a).zip(&apart) {
            let a = halves(asm, a, Bin::ShRUI);
            let [first, second] = [0, 1].map(|i| asm.isa.dot_words(asm, a[i], b[i]));
            let both = asm.bin(Bin::AddI, first, second);
            next.push(asm.bin(Bin::AddI, *sum, both));
        }
    }
    next
}

/// Returns sums + Σ a · b over the four bytes in each word, unsigned in `a` and signed in `b`.
pub fn quad_product(asm: &mut Mlir, level: Level, sums: Val, a: Val, b: Val) -> Val {
    if level.has(Extension::Quads) {
        return asm.isa.dot_quads(asm, sums, a, b);
    }
    let (a, b) = (halves(asm, a, Bin::ShRUI), halves(asm, b, Bin::ShRSI));
    let [first, second] = [0, 1].map(|i| asm.isa.dot_words(asm, a[i], b[i]));
    let both = asm.bin(Bin::AddI, first, second);
    asm.bin(Bin::AddI, sums, both)
}

/// Loads four bytes of A from any address; missing bytes are 0.
fn word(asm: &mut Mlir, address: Val, rest: Option<i64>) -> Val {
    let Some(rest) = rest else { return asm.load(address, Ty::I32, 1) };
    let mut word = asm.zero(Ty::I32);
    for i in 0..rest {
        let at = asm.i64(i);
        let at = asm.element(address, at, Elem::I8);
        let byte = asm.load(at, Ty::new(Elem::I8, 1), 1);
        let byte = asm.cast(Cast::ExtUI, byte, Elem::I32);
        let shift = asm.int(8 * i, Ty::I32);
        let byte = asm.bin(Bin::ShLI, byte, shift);
        word = asm.bin(Bin::OrI, word, byte);
    }
    word
}

/// Even and odd bytes of each word, widened to 16 bits; the right shift `shift` determines the signedness.
fn halves(asm: &mut Mlir, words: Val, shift: Bin) -> [Val; 2] {
    let all = asm.split(words, Elem::I16);
    let eight = asm.int(8, all.ty);
    let high = asm.bin(Bin::ShLI, all, eight);
    [high, all].map(|v| asm.bin(shift, v, eight))
}
