//! Instructions of an architecture beyond the operations of the upstream dialects: one file per architecture
//!
//! The extensions in a level's row of `sardonyx_base::cpu` determine which of these instructions the level has.

use super::x86::X86;
use super::{Mlir, Ty, Val};
use sardonyx_base::cpu::Arch;

/// Architecture-specific instructions. A tile is a register that is named by its number, not an SSA value.
pub trait Isa: Sync {
    /// Returns whether the architecture has an instruction that scales floats of type `ty` by powers of two.
    fn scales(&self, ty: Ty) -> bool;

    /// Returns y · 2^t for integral t, rounded once; 0 in the lanes set in `none`.
    fn scale(&self, asm: &mut Mlir, y: Val, t: Val, none: Option<Val>) -> Val;

    /// Rounds each lane to the nearest integer, halves to even, as i32; `None` if no instruction takes so many lanes.
    /// Numbers outside the range of i32 give an arbitrary integer.
    fn nearest(&self, asm: &mut Mlir, a: Val) -> Option<Val>;

    /// Returns sums + Σ a · b over the two bf16 in each word of `a` and `b`, whose lanes are typed f32.
    fn dot_pairs(&self, asm: &mut Mlir, sums: Val, a: Val, b: Val) -> Val;

    /// Returns sums + Σ a · b over the four bytes in each word, unsigned in `a` and signed in `b`.
    fn dot_quads(&self, asm: &mut Mlir, sums: Val, a: Val, b: Val) -> Val;

    /// Returns Σ a · b over the two 16-bit integers in each 32-bit word, as 32-bit integers. Every CPU level has an
    /// instruction for it.
    fn dot_words(&self, asm: &mut Mlir, a: Val, b: Val) -> Val;

    /// Returns the table entries indexed by the lowest four bits of each lane; `None` if no single instruction looks up
    /// so many lanes.
    fn looked_up(&self, asm: &mut Mlir, table: &[f32; 16], index: Val) -> Option<Val>;

    /// Configures the shapes of the tiles from 64 bytes of memory.
    fn configure_tiles(&self, asm: &mut Mlir, memory: Val);

    fn release_tiles(&self, asm: &mut Mlir);

    fn clear_tile(&self, asm: &mut Mlir, tile: u8);

    /// Loads a tile whose rows are `stride` bytes apart.
    fn load_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val);

    /// Loads a tile like `load_tile` from memory that is read only once and need not stay in the cache.
    fn stream_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val);

    fn store_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val);

    /// Adds a · b to the tile `sums`, where each word holds two bf16.
    fn multiply_pairs(&self, asm: &mut Mlir, sums: u8, a: u8, b: u8);

    /// Adds a · b to the tile `sums`, where each word holds four bytes, unsigned in `a` and signed in `b`.
    fn multiply_quads(&self, asm: &mut Mlir, sums: u8, a: u8, b: u8);
}

/// Instruction sets by the architecture's name.
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
