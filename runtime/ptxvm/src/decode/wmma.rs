//! wmma.load, wmma.mma, wmma.store  =>  loads, stores and mma.sync of the shape m16n16k16
//!
//! The ISA leaves open which lane holds which element of a fragment, so each half of eight columns is laid out as
//! `mma.sync.m16n8k16` has it: register r of a factor covers line g + 8·(r mod 2) and bytes 16·(r div 2) + 4t of K.
//! Fragments of f16 have eight registers, of which the last four repeat the first.

use super::classes;
use super::mods::Mods;
use super::ops::{Address, Load, Multiply, Store, WEAK};
use super::program::{Constant, Lane, Op, Reg, Regs, Special};
use super::statements::Decoder;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::types::{Space, Ty};
use crate::units::mma::Mma;

type Done = Result<(), Error>;

/// What a fragment holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A with rows, B with columns as lines; elements of K lie in a line.
    Factor,
    Accumulator,
}

/// Element type of the factors, its bytes, registers of a factor, and the types of `mma.sync`.
static FACTORS: &[(&str, u32, usize, &str)] = &[
    ("bf16", 2, 4, "f32.bf16.bf16.f32"),
    ("f16", 2, 8, "f32.f16.f16.f32"),
    ("s8", 1, 2, "s32.s8.s8.s32"),
    ("u8", 1, 2, "s32.u8.u8.s32"),
];

pub fn wmma(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    match mods.required(&["load", "mma", "store"])? {
        "mma" => multiply(d, mods, ops),
        which => transfer(d, mods, ops, which == "store"),
    }
}

fn sync_aligned(d: &Decoder, mods: &mut Mods) -> Done {
    if mods.take("sync") && mods.take("aligned") { Ok(()) } else { d.error("expected .sync.aligned") }
}

/// `load.a.sync.aligned.row.m16n16k16{.space}.type {registers}, [address]{, stride}`, and `store.d` the other way round.
fn transfer(d: &mut Decoder, mods: &mut Mods, ops: &[Operand], store: bool) -> Done {
    let matrix = mods.required(if store { &["d"] } else { &["a", "b", "c"] })?;
    sync_aligned(d, mods)?;
    let layout = mods.required(&["row", "col"])?;
    mods.required(&["m16n16k16"])?;
    let space = mods.space();
    let ty = mods.rest();
    let role = if matches!(matrix, "a" | "b") { Role::Factor } else { Role::Accumulator };
    let factor = FACTORS.iter().find(|row| ty == [row.0]);
    let (bytes, count) = match (role, factor, ty.as_slice()) {
        (Role::Factor, Some(row), _) => (row.1, row.2),
        (Role::Accumulator, _, ["f32" | "s32"]) => (4, 8),
        _ => return d.error(format!("`wmma` of `.{}` is not supported", ty.join("."))),
    };
    let (ops, stride) = match ops {
        [a, b] => ([a, b], d.constant(Constant::Number(16), 32)),
        [a, b, stride] => ([a, b], d.any_source(stride, Ty::U32)?),
        _ => return d.error("takes registers, an address and a stride"),
    };
    let (registers, place) = if store { (ops[1], ops[0]) } else { (ops[0], ops[1]) };
    let address = d.address(place)?.0;
    let elements = d.vector(registers)?;
    if elements.len() != count {
        return d.error(format!("a fragment has {count} registers here"));
    }
    let regs = elements.iter().map(|e| if store { d.any_source(e, Ty::B32) } else { d.any_target(e, Ty::B32) });
    let regs = regs.collect::<Result<Vec<Reg>, Error>>()?;
    // What was looked up is read and written by the instructions below, one by one.
    (d.reads, d.writes) = (vec![], vec![]);
    d.class = if store { classes::store(space) } else { classes::load(space) };
    let within_lines = (layout == "row") == (matrix != "b");
    let at = Place { space, address, stride };
    for (r, reg) in regs.into_iter().enumerate() {
        match (role, within_lines) {
            (Role::Factor, true) => {
                let from = at.element(d, move |g, t, stride| {
                    (g + 8 * (r % 2)) * stride * bytes as usize + 16 * (r / 2 % 2) + 4 * t
                });
                at.move_word(d, from, reg, false);
            }
            (Role::Factor, false) => at.gather(d, r, bytes as usize, reg),
            (Role::Accumulator, _) => {
                let from = at.element(d, move |g, t, stride| {
                    let (row, column) = (g + 8 * (r / 2 % 2), 8 * (r / 4) + 2 * t + r % 2);
                    4 * if within_lines { row * stride + column } else { column * stride + row }
                });
                at.move_word(d, from, reg, store);
            }
        }
    }
    Ok(())
}

struct Place {
    space: Space,
    address: Address,
    /// Elements from one line to the next.
    stride: Reg,
}

impl Place {
    /// A register with each lane's own address: `offset(g, t, stride)` bytes from the matrix's.
    fn element(&self, d: &mut Decoder, offset: impl Fn(usize, usize, usize) -> usize + Send + Sync + 'static) -> Reg {
        let lane_id = d.constant(Constant::Special(Special::Laneid), 32);
        let to = d.scopes.banks.fresh(64);
        let (base, stride, plus) = (self.address.base, self.stride, self.address.offset);
        let op = move |regs: &mut Regs, mask: u32| {
            let mut out = [0_u64; 32];
            for (lane, slot) in out.iter_mut().enumerate() {
                let start = if base.bits == 64 {
                    u64::get(regs, base.index)[lane]
                } else {
                    u64::from(u32::get(regs, base.index)[lane])
                };
                let id = u32::get(regs, lane_id.index)[lane] as usize;
                let bytes = offset(id / 4, id % 4, u32::get(regs, stride.index)[lane] as usize);
                *slot = start.wrapping_add(plus as u64).wrapping_add(bytes as u64);
            }
            regs.set(to.index, mask, &out);
        };
        emit(d, Op::Lanes(Box::new(op)), vec![base, stride], vec![to]);
        to
    }

    fn move_word(&self, d: &mut Decoder, from: Reg, reg: Reg, store: bool) {
        let (space, address, ty) = (self.space, Address { base: from, offset: 0 }, Ty::B32);
        if store {
            let op = Store { space, address, ty, n: 1, from: [reg; 4], order: WEAK };
            emit(d, Op::Store(Box::new(op)), vec![from, reg], vec![]);
        } else {
            let op = Load { space, address, ty, n: 1, to: [Some(reg), None, None, None], order: WEAK };
            emit(d, Op::Load(Box::new(op)), vec![from], vec![reg]);
        }
    }

    /// The elements of one register, each from a line of its own, and then together.
    fn gather(&self, d: &mut Decoder, r: usize, bytes: usize, reg: Reg) {
        let ty = if bytes == 1 { Ty::U8 } else { Ty::U16 };
        let mut parts = vec![];
        for i in 0..4 / bytes {
            let from = self.element(d, move |g, t, stride| {
                let k = (16 * (r / 2 % 2) + 4 * t) / bytes + i;
                (k * stride + g + 8 * (r % 2)) * bytes
            });
            let part = d.scopes.banks.fresh(32);
            let op = Load {
                space: self.space,
                address: Address { base: from, offset: 0 },
                ty,
                n: 1,
                to: [Some(part), None, None, None],
                order: WEAK,
            };
            emit(d, Op::Load(Box::new(op)), vec![from], vec![part]);
            parts.push(part);
        }
        let sources = parts.clone();
        let op = move |regs: &mut Regs, mask: u32| {
            let mut out = [0_u32; 32];
            for (i, part) in sources.iter().enumerate() {
                let values = u32::get(regs, part.index);
                out.iter_mut().zip(values).for_each(|(word, value)| *word |= value << (8 * bytes * i));
            }
            regs.set(reg.index, mask, &out);
        };
        emit(d, Op::Lanes(Box::new(op)), parts, vec![reg]);
    }
}

/// `mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32 d, a, b, c`; f16 factors are not named: `.f32.f32`.
fn multiply(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    sync_aligned(d, mods)?;
    mods.required(&["row", "col"])?;
    mods.required(&["row", "col"])?;
    mods.required(&["m16n16k16"])?;
    let written = mods.rest().join(".");
    let types = if written == "f32.f32" { "f32.f16.f16.f32" } else { written.as_str() };
    let Some(&(_, _, count, types)) = FACTORS.iter().find(|row| row.3 == types) else {
        return d.error(format!("`wmma` of `.{written}` is not supported"));
    };
    d.count::<4>(ops)?;
    let mut shape = vec!["m16n8k16", "row", "col"];
    shape.extend(types.split('.'));
    let mma = match Mma::parse(&shape) {
        Ok(mma) => mma,
        Err(what) => return d.error(what),
    };
    let mut fragment = |operand: &Operand, count: usize, target: bool| -> Result<Vec<Reg>, Error> {
        let elements = d.vector(operand)?;
        if elements.len() != count {
            return d.error(format!("a fragment has {count} registers here"));
        }
        elements.iter().map(|e| if target { d.any_target(e, Ty::B32) } else { d.any_source(e, Ty::B32) }).collect()
    };
    let (to, a, b, c) = (
        fragment(&ops[0], 8, true)?,
        fragment(&ops[1], count, false)?,
        fragment(&ops[2], count, false)?,
        fragment(&ops[3], 8, false)?,
    );
    (d.reads, d.writes) = (vec![], vec![]);
    let a = a[..mma.n_a].to_vec();
    let mut sums = vec![];
    for half in 0..2 {
        let b: Vec<Reg> = (0..mma.n_b).map(|block| b[2 * block + half]).collect();
        let c = c[4 * half..][..4].to_vec();
        let sum: Vec<Reg> = (0..4).map(|_| d.scopes.banks.fresh(32)).collect();
        let reads = a.iter().chain(&b).chain(&c).copied().collect();
        let op = Multiply { mma: mma.clone(), a: a.clone(), b, c, d: sum.clone(), sparse: None };
        emit(d, Op::Multiply(Box::new(op)), reads, sum.clone());
        sums.extend(sum);
    }
    // Both halves read before anything is written: the result may lie in a factor's registers.
    for (to, sum) in to.into_iter().zip(sums) {
        emit(d, Op::Lanes(super::operands::lanes1::<u32, u32>(to.index, sum.index, |v| v)), vec![sum], vec![to]);
    }
    Ok(())
}

fn emit(d: &mut Decoder, op: Op, reads: Vec<Reg>, writes: Vec<Reg>) {
    (d.reads, d.writes) = (reads, writes);
    d.emit(op);
}
