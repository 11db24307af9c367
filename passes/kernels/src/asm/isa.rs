//! What an architecture's instructions do beyond the operations of the upstream dialects: one file per architecture
//!
//! Which of them a level has is said by the extensions of its row in `sardonyx_base::cpu`.

use super::x86::X86;
use super::{Mlir, Ty, Val};
use sardonyx_base::cpu::Arch;

/// Tiles are no values: code names them by number.
pub trait Isa: Sync {
    /// Whether one instruction scales such floats by powers of two.
    fn scales(&self, ty: Ty) -> bool;

    /// y · 2^t for whole t, rounded once; 0 in the lanes of `none`.
    fn scale(&self, asm: &mut Mlir, y: Val, t: Val, none: Option<Val>) -> Val;

    /// sums + Σ a · b over the two bf16 in each word of `a` and `b`, which are given as f32.
    fn dot_pairs(&self, asm: &mut Mlir, sums: Val, a: Val, b: Val) -> Val;

    /// sums + Σ a · b over the four bytes in each word, without a sign in `a` and with one in `b`.
    fn dot_quads(&self, asm: &mut Mlir, sums: Val, a: Val, b: Val) -> Val;

    /// Σ a · b over the two integers of 16 bits in each word of 32, which is the result: every level has it.
    fn dot_words(&self, asm: &mut Mlir, a: Val, b: Val) -> Val;

    /// The number that the lowest four bits of each lane name, where one instruction finds it.
    fn looked_up(&self, asm: &mut Mlir, table: &[f32; 16], index: Val) -> Option<Val>;

    /// Sets the shapes of tiles from 64 bytes of memory.
    fn configure_tiles(&self, asm: &mut Mlir, memory: Val);

    fn release_tiles(&self, asm: &mut Mlir);

    fn clear_tile(&self, asm: &mut Mlir, tile: u8);

    /// Reads rows that lie `stride` bytes apart.
    fn load_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val);

    /// The same of memory that is read once: it need not stay near.
    fn stream_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val);

    fn store_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val);

    /// sums + a · b of words of two bf16.
    fn multiply_pairs(&self, asm: &mut Mlir, sums: u8, a: u8, b: u8);

    /// sums + a · b of words of four bytes, without a sign in `a` and with one in `b`.
    fn multiply_quads(&self, asm: &mut Mlir, sums: u8, a: u8, b: u8);
}

/// By the architectures' names.
static ISAS: [(&str, &dyn Isa); 1] = [("x86_64", &X86)];

pub fn isa_of(arch: &Arch) -> &'static dyn Isa {
    let row = ISAS.iter().find(|(name, _)| *name == arch.name);
    row.expect("every architecture that kernels are compiled for has instructions").1
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::cpu::ARCHES;
    use std::path::Path;

    #[test]
    fn every_architecture_has_instructions() {
        ARCHES.iter().for_each(|arch| assert!(ISAS.iter().any(|(name, _)| *name == arch.name), "{}", arch.name));
    }

    fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { sources(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn one_file_spells_the_instructions_of_an_architecture() {
        let (mut found, prefix) = (vec![], concat!("llvm.", "x86"));
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        found.retain(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(prefix)));
        assert!(matches!(&found[..], [only] if only.ends_with("asm/x86.rs")), "{found:?}");
    }
}
