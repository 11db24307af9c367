//! Emulation of AMX tiles on CPUs without AMX: a signal handler executes the trapped instructions
//!
//! The emulation tests the results of the code, the addresses that it accesses, and whether the tile shapes that it
//! configures fit one another; it does not show the speed. A CPU with AMX executes the instructions itself.

use crate::harness;
use half::bf16;
use sardonyx_kernels::{Extension, Level};
use std::cell::UnsafeCell;
use std::sync::Once;

/// Returns those of `levels` that this CPU executes. If the first level with tiles lacks nothing but tiles here,
/// installs the emulation and adds that level.
pub fn executed(levels: &[Level]) -> Vec<Level> {
    let rest: Vec<Level> = levels.iter().copied().filter(|v| !v.has(Extension::Tiles)).collect();
    let mut executed = harness::executed(levels);
    let some = levels.iter().find(|v| v.has(Extension::Tiles) && !executed.contains(v));
    if let Some(tiles) = some.filter(|tiles| tiles.included().skip(1).all(Level::is_here)) {
        println!("{}: tiles are emulated", tiles.name());
        assert!(executed.iter().eq(&rest), "what has tiles has all else");
        install();
        executed.push(*tiles);
    }
    executed
}

const MAX_ROWS: usize = 16;
const MAX_BYTES: usize = 64;

#[derive(Clone, Copy)]
struct Tile {
    rows: usize,
    bytes: usize,
    data: [[u8; MAX_BYTES]; MAX_ROWS],
}

const NONE: Tile = Tile { rows: 0, bytes: 0, data: [[0; MAX_BYTES]; MAX_ROWS] };

thread_local! {
    /// The tiles of this thread, without rows until the thread configures them.
    static TILES: UnsafeCell<[Tile; 8]> = const { UnsafeCell::new([NONE; 8]) };
}

/// Installs the signal handler, once.
fn install() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler has the signature that `SA_SIGINFO` requires, and the structure is initialised.
    ONCE.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()), 0);
    });
}

/// Executes the instruction that trapped and lets the thread continue after it; aborts the process if it cannot.
unsafe extern "C" fn handle(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the registers of this thread, and the instruction that trapped is readable.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as *const u8;
        let done = TILES.with(|tiles| Trapped { code: at, registers }.carry_out(&mut *tiles.get()));
        match done {
            Ok(length) => registers[libc::REG_RIP as usize] += length as i64,
            Err(what) => {
                libc::write(2, what.as_ptr().cast(), what.len());
                libc::abort();
            }
        }
    }
}

/// A trapped instruction, and the registers at that point.
struct Trapped<'a> {
    code: *const u8,
    registers: &'a [i64],
}

/// A tile operand in memory: the address of its first byte, and the distance between its rows in bytes.
struct Place {
    address: *mut u8,
    stride: i64,
}

impl Trapped<'_> {
    unsafe fn byte(&self, at: usize) -> u8 {
        // SAFETY: the caller reads no byte beyond the instruction.
        unsafe { *self.code.add(at) }
    }

    fn register(&self, number: u8) -> i64 {
        use libc::*;
        let order = [
            REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11,
            REG_R12, REG_R13, REG_R14, REG_R15,
        ];
        self.registers[order[number as usize] as usize]
    }

    /// Executes the instruction and returns its length in bytes. Errors: the instruction is not emulated, or would trap
    /// on CPUs with tiles as well.
    unsafe fn carry_out(&self, tiles: &mut [Tile; 8]) -> Result<usize, &'static str> {
        // SAFETY: only bytes of one instruction are read, and its memory operand is one of the code under test.
        unsafe {
            if self.byte(0) != 0xC4 || self.byte(1) & 0x1F != 2 || self.byte(2) & 0x84 != 0 {
                return Err("a trapped instruction has nothing to do with tiles\n");
            }
            let (prefix, operation, modes) = (self.byte(2) & 3, self.byte(3), self.byte(4));
            let (first, second) = ((modes >> 3 & 7) as usize, (modes & 7) as usize);
            let third = (!self.byte(2) >> 3 & 15) as usize;
            let in_memory = modes >> 6 != 3;
            match (operation, prefix, in_memory) {
                (0x49, 0, true) => {
                    let (place, length) = self.place()?;
                    configure(tiles, &*place.address.cast::<[u8; 64]>())?;
                    return Ok(length);
                }
                (0x49, 0, false) => *tiles = [NONE; 8],
                (0x49, 3, false) => clear(&mut tiles[first]),
                (0x4B, 1 | 3, true) => {
                    let (place, length) = self.place()?;
                    load(&mut tiles[first], &place)?;
                    return Ok(length);
                }
                (0x4B, 2, true) => {
                    let (place, length) = self.place()?;
                    store(&tiles[first], &place)?;
                    return Ok(length);
                }
                (0x5C, 2, false) => multiply(tiles, [first, second, third], pairs)?,
                (0x5E, 1, false) => multiply(tiles, [first, second, third], bytes)?,
                _ => return Err("an instruction of tiles is not known here\n"),
            }
            Ok(5)
        }
    }

    /// Decodes the operand in memory. Returns it with the length of the instruction.
    unsafe fn place(&self) -> Result<(Place, usize), &'static str> {
        // SAFETY: only bytes of one instruction are read.
        unsafe {
            let high = |bit: u8| (!self.byte(1) >> bit & 1) << 3;
            let (mode, base) = (self.byte(4) >> 6, self.byte(4) & 7);
            let indexed = base == 4;
            let mut length = 5 + indexed as usize;
            let (mut address, mut stride) = (0, 0);
            let base = if indexed { self.byte(5) & 7 } else { base };
            if indexed {
                let index = self.byte(5) >> 3 & 7 | high(6);
                stride = if index == 4 { 0 } else { self.register(index) << (self.byte(5) >> 6) };
            }
            let displaced = match (mode, base) {
                (0, 5) => 4,
                (0, _) => 0,
                (1, _) => 1,
                _ => 4,
            };
            if mode != 0 || base != 5 {
                address = self.register(base | high(5));
            } else if !indexed {
                address = self.code as i64 + length as i64 + 4;
            }
            let read = |i: usize| (self.byte(length + i) as u32) << (8 * i);
            address += match displaced {
                0 => 0,
                1 => self.byte(length) as i8 as i64,
                _ => (0..4).fold(0, |n, i| n | read(i)) as i32 as i64,
            };
            length += displaced;
            Ok((Place { address: address as *mut u8, stride }, length))
        }
    }
}

/// Executes `ldtilecfg`: sets the shapes of all tiles and clears them.
fn configure(tiles: &mut [Tile; 8], shapes: &[u8; 64]) -> Result<(), &'static str> {
    let reserved = || shapes[2..16].iter().chain(&shapes[32..48]).chain(&shapes[56..]);
    if shapes[0] != 1 || reserved().any(|b| *b != 0) {
        return Err("shapes of tiles begin with 1, and what is reserved is 0\n");
    }
    for (i, tile) in tiles.iter_mut().enumerate() {
        let bytes = u16::from_le_bytes([shapes[16 + 2 * i], shapes[17 + 2 * i]]) as usize;
        let rows = shapes[48 + i] as usize;
        if rows > MAX_ROWS || bytes > MAX_BYTES || (rows == 0) != (bytes == 0) {
            return Err("a tile has 1 to 16 rows of 1 to 64 bytes, or none of none\n");
        }
        *tile = Tile { rows, bytes, ..NONE };
    }
    Ok(())
}

fn clear(tile: &mut Tile) {
    tile.data = NONE.data;
}

unsafe fn load(tile: &mut Tile, place: &Place) -> Result<(), &'static str> {
    if tile.rows == 0 {
        return Err("a tile without a shape is loaded\n");
    }
    clear(tile);
    for row in 0..tile.rows {
        // SAFETY: the code under test loads from this memory.
        unsafe {
            let from = place.address.offset(row as isize * place.stride as isize);
            std::ptr::copy_nonoverlapping(from, tile.data[row].as_mut_ptr(), tile.bytes);
        }
    }
    Ok(())
}

unsafe fn store(tile: &Tile, place: &Place) -> Result<(), &'static str> {
    if tile.rows == 0 {
        return Err("a tile without a shape is stored\n");
    }
    for row in 0..tile.rows {
        // SAFETY: the code under test stores to this memory.
        unsafe {
            let to = place.address.offset(row as isize * place.stride as isize);
            std::ptr::copy_nonoverlapping(tile.data[row].as_ptr(), to, tile.bytes);
        }
    }
    Ok(())
}

/// Computes sums[n] += Σk a[k] · b[k][n] for one row of `sums` and of `a`; an element is a word of 32 bits.
type Row = fn(&mut [u8; MAX_BYTES], &[u8], &Tile);

/// Computes sums[m][n] += Σk a[m][k] · b[k][n]; `row` computes one row.
fn multiply(tiles: &mut [Tile; 8], [sums, a, b]: [usize; 3], row: Row) -> Result<(), &'static str> {
    let [s, x, y] = [sums, a, b].map(|i| tiles[i]);
    if sums == a || sums == b || a == b {
        return Err("tiles that are multiplied and added are three\n");
    }
    if s.rows == 0 || s.rows != x.rows || s.bytes != y.bytes || x.bytes != 4 * y.rows || s.bytes % 4 != 0 {
        return Err("shapes of tiles that are multiplied do not fit\n");
    }
    for m in 0..s.rows {
        row(&mut tiles[sums].data[m], &x.data[m][..x.bytes], &y);
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    [bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]]
}

/// Multiplies words of two bf16 as `tdpbf16ps` does. Even and odd elements have separate f32 accumulators, whose sum is
/// added to `sums` at the end. Each operation rounds to nearest; subnormals are flushed to 0.
fn pairs(sums: &mut [u8; MAX_BYTES], a: &[u8], b: &Tile) {
    let flushed = |v: f32| if v.is_subnormal() { 0f32.copysign(v) } else { v };
    let both = |w: [u8; 4]| [[w[0], w[1]], [w[2], w[3]]].map(|e| flushed(bf16::from_le_bytes(e).to_f32()));
    for n in 0..b.bytes / 4 {
        let mut halves = [0f32; 2];
        for k in 0..b.rows {
            let (x, y) = (both(word(a, k)), both(word(&b.data[k], n)));
            for i in 0..2 {
                halves[i] = flushed(x[i].mul_add(y[i], halves[i]));
            }
        }
        let before = flushed(f32::from_le_bytes(word(sums, n)));
        let sum = flushed(before + flushed(halves[0] + halves[1]));
        sums[4 * n..][..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Multiplies words of four unsigned bytes by words of four signed bytes, accumulated in wrapping i32 (`tdpbusd`).
fn bytes(sums: &mut [u8; MAX_BYTES], a: &[u8], b: &Tile) {
    for n in 0..b.bytes / 4 {
        let mut sum = i32::from_le_bytes(word(sums, n));
        for k in 0..b.rows {
            let (x, y) = (word(a, k), word(&b.data[k], n));
            (0..4).for_each(|i| sum = sum.wrapping_add(x[i] as i32 * y[i] as i8 as i32));
        }
        sums[4 * n..][..4].copy_from_slice(&sum.to_le_bytes());
    }
}
