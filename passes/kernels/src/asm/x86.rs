//! `Isa` for x86-64: LLVM intrinsics of AVX2, of AVX-512 with its extensions VNNI and BF16, and of AMX

use super::isa::Isa;
use super::{Asm, Bin, Elem, Mlir, Ty, Val};

pub struct X86;

impl Isa for X86 {
    fn scales(&self, ty: Ty) -> bool {
        ty == Ty::new(Elem::F32, 16)
    }

    fn scale(&self, asm: &mut Mlir, y: Val, t: Val, none: Option<Val>) -> Val {
        let (all, nearest) = (asm.int(-1, Ty::new(Elem::I16, 1)), asm.int(4, Ty::I32));
        let (other, some) = match none {
            None => (y, all),
            Some(none) => {
                let (bits, zero) = (asm.bits(none), asm.zero(y.ty));
                (zero, asm.bin(Bin::XorI, bits, all))
            }
        };
        asm.intrinsic("llvm.x86.avx512.mask.scalef.ps.512", &[y, t, other, some, nearest], y.ty)
    }

    fn nearest(&self, asm: &mut Mlir, a: Val) -> Option<Val> {
        let ty = a.ty.with_elem(Elem::I32);
        match a.ty.lanes {
            8 => Some(asm.intrinsic("llvm.x86.avx.cvt.ps2dq.256", &[a], ty)),
            16 => {
                let (other, all, nearest) = (asm.zero(ty), asm.int(-1, Ty::new(Elem::I16, 1)), asm.int(8, Ty::I32));
                Some(asm.intrinsic("llvm.x86.avx512.mask.cvtps2dq.512", &[a, other, all, nearest], ty))
            }
            _ => None,
        }
    }

    fn dot_pairs(&self, asm: &mut Mlir, sums: Val, a: Val, b: Val) -> Val {
        let ((a, t), (b, _)) = (asm.bf16_words(a), asm.bf16_words(b));
        let (name, ty) = (format!("llvm.x86.avx512bf16.dpbf16ps.{}", 32 * sums.ty.lanes), sums.ty.name());
        asm.def(sums.ty, &format!("llvm.call_intrinsic \"{name}\"({sums}, {a}, {b}) : ({ty}, {t}, {t}) -> {ty}"))
    }

    fn dot_quads(&self, asm: &mut Mlir, sums: Val, a: Val, b: Val) -> Val {
        let [a, b] = [a, b].map(|v| asm.split(v, Elem::I8));
        asm.intrinsic(&format!("llvm.x86.avx512.vpdpbusd.{}", 32 * sums.ty.lanes), &[sums, a, b], sums.ty)
    }

    fn dot_words(&self, asm: &mut Mlir, a: Val, b: Val) -> Val {
        let name = if a.ty.lanes == 16 { "llvm.x86.avx2.pmadd.wd" } else { "llvm.x86.avx512.pmaddw.d.512" };
        asm.intrinsic(name, &[a, b], Ty::new(Elem::I32, a.ty.lanes / 2))
    }

    fn looked_up(&self, asm: &mut Mlir, table: &[f32; 16], index: Val) -> Option<Val> {
        let ty = Ty::new(Elem::F32, 16);
        if index.ty.lanes != ty.lanes {
            return None;
        }
        let numbers: Vec<String> = table.iter().map(|x| format!("{x:.1}")).collect();
        let table = asm.constant(format!("[{}]", numbers.join(", ")), ty);
        Some(asm.intrinsic("llvm.x86.avx512.permvar.sf.512", &[table, index], ty))
    }

    fn configure_tiles(&self, asm: &mut Mlir, memory: Val) {
        asm.effect("llvm.x86.ldtilecfg", &[memory]);
    }

    fn release_tiles(&self, asm: &mut Mlir) {
        asm.effect("llvm.x86.tilerelease", &[]);
    }

    fn clear_tile(&self, asm: &mut Mlir, tile: u8) {
        on_tiles(asm, "llvm.x86.tilezero", &[tile], &[]);
    }

    fn load_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val) {
        on_tiles(asm, "llvm.x86.tileloadd64", &[tile], &[address, stride]);
    }

    fn stream_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val) {
        on_tiles(asm, "llvm.x86.tileloaddt164", &[tile], &[address, stride]);
    }

    fn store_tile(&self, asm: &mut Mlir, tile: u8, address: Val, stride: Val) {
        on_tiles(asm, "llvm.x86.tilestored64", &[tile], &[address, stride]);
    }

    fn multiply_pairs(&self, asm: &mut Mlir, sums: u8, a: u8, b: u8) {
        on_tiles(asm, "llvm.x86.tdpbf16ps", &[sums, a, b], &[]);
    }

    fn multiply_quads(&self, asm: &mut Mlir, sums: u8, a: u8, b: u8) {
        on_tiles(asm, "llvm.x86.tdpbusd", &[sums, a, b], &[]);
    }
}

/// Calls an intrinsic on tiles: the tile numbers come before the other operands.
fn on_tiles(asm: &mut Mlir, name: &str, tiles: &[u8], args: &[Val]) {
    let tiles: Vec<Val> = tiles.iter().map(|t| asm.int(*t as i64, Ty::new(Elem::I8, 1))).collect();
    asm.effect(name, &[&tiles, args].concat());
}
