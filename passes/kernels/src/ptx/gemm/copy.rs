//! A tile of an operand in global memory  =>  a stage in shared memory, by asynchronous copies with exact bounds
//!
//! A unit is the amount that one copy instruction moves: 16 bytes if addresses allow it, which for some operands is
//! known only at the launch, otherwise 4. The threads of a block take consecutive units of a line, and then further
//! lines. A unit that is partly out of bounds is copied in part and filled with zeros. Elements of 1 and 2 bytes at
//! unaligned addresses pass through registers.

use super::operand::{Aligned, Inner, Lines, Operand};
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;

/// A thread's copies of its part of every tile of one operand.
pub struct Stream<'a> {
    operand: &'a Operand,
    threads: i64,
    /// Sizes of units in bytes and their conditions: the first whose condition holds is used, or else the last.
    units: Vec<(i64, Option<Val>)>,
    /// Address of the thread's first unit in memory, and its offset in a tile.
    source: Val,
    target: Val,
    /// Line of the thread's first unit, and its element within the line.
    line: Val,
    column: Val,
    /// Bytes between lines, and between tiles.
    line_step: Val,
    tile_step: Val,
    /// Bytes between consecutive elements of a line, within one panel.
    inner_step: Val,
    /// Number of rows of this block's tile that exist; `None` if all do.
    rows: Option<Val>,
    k_is_whole: bool,
    /// Whether units of any size but the first are copied by loops instead of unrolled code, because such sizes are
    /// the exception.
    rolled: bool,
}

/// Number of units that one iteration of a loop over units copies.
const TOGETHER: i64 = 4;

impl<'a> Stream<'a> {
    /// Prepares the copies of an operand's tiles. `point` is at the first row and the first k; `rows` is the number of
    /// rows in this block's tile; all `threads` copy.
    pub fn new(
        cx: &Cx<Ptx>,
        asm: &mut Ptx,
        operand: &'a Operand,
        point: &mut Point,
        rows: Option<Val>,
        threads: i64,
    ) -> Self {
        let thread = asm.special("%tid.x");
        Stream::of_threads(cx, asm, operand, point, rows, (thread, threads))
    }

    /// Like [`Stream::new`], but only `threads` of the block's threads copy; `thread` is a thread's index among these.
    pub fn of_threads(
        cx: &Cx<Ptx>,
        asm: &mut Ptx,
        operand: &'a Operand,
        point: &mut Point,
        rows: Option<Val>,
        (thread, threads): (Val, i64),
    ) -> Self {
        let (start, rows) = match operand.panels {
            None => (point.start(cx, asm, &operand.access, None), rows),
            Some(panels) => {
                let column = point.line(cx, asm, &operand.access.coords[1]);
                // Columns that pad the last panel are in memory too, so they count as existing.
                let rows = rows.map(|r| {
                    let (more, whole) = (asm.int(panels.width - 1, Ty::I32), asm.int(-panels.width, Ty::I32));
                    let up = asm.bin(Bin::AddI, r, more);
                    asm.bin(Bin::AndI, up, whole)
                });
                (in_panels(asm, panels, column, operand.rows % panels.width == 0), rows)
            }
        };
        let (elem, each) = match operand.element_bytes {
            1 => (Elem::I8, 1),
            2 => (Elem::I16, 1),
            bytes => (Elem::I32, bytes.div_euclid(4)),
        };
        let words = shift(asm, Bin::ShLI, start, log2(each));
        let base = asm.element(cx.reads[operand.access.buffer], words, elem);
        let line_step = bytes_of(cx, asm, operand.line_stride(), operand.element_bytes);
        let inner_step = bytes_of(cx, asm, operand.inner_stride(), operand.element_bytes);
        let tile_step = bytes_of(cx, asm, operand.k_stride(), operand.element_bytes * operand.k_tile);
        let units = conditions(asm, operand, base, line_step);
        let mut stream = Stream {
            operand,
            threads,
            units,
            source: base,
            target: base,
            line: base,
            column: base,
            line_step,
            tile_step,
            inner_step,
            rows,
            k_is_whole: operand.k_extent.as_const().is_some_and(|k| k % (operand.k_tile * operand.depth) == 0),
            rolled: false,
        };
        let tys = [Ty::PTR, Ty::I32, Ty::I32, Ty::I32];
        let first = choose(&stream.units, asm, &tys, &|asm, unit| stream.first(asm, thread, base, unit));
        (stream.target, stream.line, stream.column) = (first[1], first[2], first[3]);
        stream.source = asm.register(Ty::PTR);
        asm.set(stream.source, first[0]);
        stream
    }

    pub fn rolled(self) -> Self {
        Stream { rolled: true, ..self }
    }

    /// Returns source, target, line and column of a thread's first unit.
    fn first(&self, asm: &mut Ptx, thread: Val, base: Val, unit: i64) -> Vec<Val> {
        let operand = self.operand;
        let (per_line, elements) = (operand.pitch() / unit, unit / operand.element_bytes);
        let line = shift(asm, Bin::ShRUI, thread, log2(per_line));
        let within = asm.int(per_line - 1, Ty::I32);
        let number = asm.bin(Bin::AndI, thread, within);
        let column = shift(asm, Bin::ShLI, number, log2(elements));
        let wide_line = asm.cast(Cast::ExtUI, line, Elem::I64);
        let at = asm.bin(Bin::MulI, wide_line, self.line_step);
        let source = asm.element(base, at, Elem::I8);
        let wide_column = asm.cast(Cast::ExtUI, column, Elem::I64);
        let at = match operand.panels {
            None => asm.bin(Bin::MulI, wide_column, self.inner_step),
            Some(panels) => {
                let elements = in_panels(asm, panels, wide_column, false);
                let size = asm.i64(operand.element_bytes);
                asm.bin(Bin::MulI, elements, size)
            }
        };
        let source = asm.element(source, at, Elem::I8);
        let target = place(asm, operand.layout(), line, column);
        vec![source, target, line, column]
    }

    /// Copies the next tile to the stage at `stage`; `k_left` elements of k remain from this tile on.
    pub fn copy(&self, asm: &mut Ptx, stage: Val, k_left: Val) {
        let k_left = self.elements(asm, k_left);
        let target = asm.bin(Bin::AddI, stage, self.target);
        let preferred = self.units[0].0;
        choose(&self.units, asm, &[], &|asm, unit| {
            match (self.rolled && unit != preferred || unit == 1) && self.passes(unit) > TOGETHER {
                true => self.lines(asm, unit, stage, k_left),
                false => self.units(asm, unit, target, k_left),
            }
            vec![]
        });
        let source = asm.element(self.source, self.tile_step, Elem::I8);
        asm.set(self.source, source);
    }

    /// Number of passes over a tile: in each, the threads together copy a group of lines.
    fn passes(&self, unit: i64) -> i64 {
        let per_pass = (self.threads / (self.operand.pitch() / unit)).max(1);
        self.operand.lines() / per_pass
    }

    /// Number of stored elements that hold `of_k` elements of k.
    fn elements(&self, asm: &mut Ptx, of_k: Val) -> Val {
        if self.operand.depth == 1 {
            return of_k;
        }
        let more = asm.int(self.operand.depth - 1, Ty::I32);
        let up = asm.bin(Bin::AddI, of_k, more);
        shift(asm, Bin::ShRUI, up, log2(self.operand.depth))
    }

    /// Copies the thread's units of one tile in a loop over its lines, because small units are numerous.
    fn lines(&self, asm: &mut Ptx, unit: i64, stage: Val, k_left: Val) {
        let operand = self.operand;
        let per_line = operand.pitch() / unit;
        let (per_pass, parts) = ((self.threads / per_line).max(1), (per_line / self.threads).max(1));
        let elements = unit / operand.element_bytes;
        let (along, across) = match operand.inner {
            Inner::K => ((!self.k_is_whole).then_some(k_left), self.rows),
            Inner::Rows => (self.rows, (!self.k_is_whole).then_some(k_left)),
        };
        let (zero, end, step) =
            (asm.int(0, Ty::I32), asm.int(operand.lines(), Ty::I32), asm.int(TOGETHER * per_pass, Ty::I32));
        for part in 0..parts {
            let before = asm.int(part * self.threads * elements, Ty::I32);
            let column = asm.bin(Bin::AddI, self.column, before);
            let wide = asm.cast(Cast::ExtUI, before, Elem::I64);
            let by = asm.bin(Bin::MulI, wide, self.inner_step);
            let first = asm.element(self.source, by, Elem::I8);
            let bytes = along.map(|left| self.bytes_left(asm, left, column, elements));
            asm.for_loop((zero, end, step), &[], |asm, passed, _| {
                let mut staged = vec![];
                for i in 0..TOGETHER {
                    let more = asm.int(i * per_pass, Ty::I32);
                    let passed = asm.bin(Bin::AddI, passed, more);
                    let line = asm.bin(Bin::AddI, self.line, passed);
                    let target = place(asm, operand.layout(), line, column);
                    let target = asm.bin(Bin::AddI, stage, target);
                    let wide = asm.cast(Cast::ExtUI, passed, Elem::I64);
                    let by = asm.bin(Bin::MulI, wide, self.line_step);
                    let source = asm.element(first, by, Elem::I8);
                    let size = match (bytes, across) {
                        (bytes, None) => bytes,
                        (bytes, Some(left)) => {
                            let full = asm.int(unit, Ty::I32);
                            let there = asm.cmpi(CmpI::Slt, line, left);
                            Some(asm.select(there, bytes.unwrap_or(full), zero))
                        }
                    };
                    let at = (asm.name(target, 0), asm.name(source, 0));
                    staged.extend(unit_copy(asm, unit, "", at, size));
                }
                for (target, value) in staged {
                    let value = asm.name(value, 0);
                    asm.line(&format!("st.shared.b{} [{target}], {value};", 8 * unit));
                }
                vec![]
            });
        }
    }

    /// Bytes in bounds of a unit of `elements` elements that begins at a column.
    fn bytes_left(&self, asm: &mut Ptx, left: Val, column: Val, elements: i64) -> Val {
        // Not max(left - column, 0): if ptxas 12.9 to 13.5 finds out late that `left` is a constant, it turns that into
        // max(column - left, 0) for sm_90.
        let (end, most) = (asm.bin(Bin::MaxSI, left, column), asm.int(elements, Ty::I32));
        let rest = asm.bin(Bin::SubI, end, column);
        let rest = asm.bin(Bin::MinSI, rest, most);
        shift(asm, Bin::ShLI, rest, log2(self.operand.element_bytes))
    }

    /// Copies the thread's units of one tile.
    fn units(&self, asm: &mut Ptx, unit: i64, target: Val, k_left: Val) {
        let operand = self.operand;
        let per_line = operand.pitch() / unit;
        // Lines per pass; a line with more units than threads takes several passes.
        let per_pass = (self.threads / per_line).max(1);
        let (passes, parts) = ((operand.lines() / per_pass).max(1), (per_line / self.threads).max(1));
        // For a small tile, some threads copy nothing.
        let takes_part = (per_pass > operand.lines()).then(|| {
            let lines = asm.int(operand.lines(), Ty::I32);
            let there = asm.cmpi(CmpI::Slt, self.line, lines);
            format!("@{} ", asm.name(there, 0))
        });
        let guard = takes_part.unwrap_or_default();
        let elements = unit / operand.element_bytes;
        // Number of elements of this operand that remain in the line, and number of lines that remain.
        let (along, across) = match operand.inner {
            Inner::K => ((!self.k_is_whole).then_some(k_left), self.rows),
            Inner::Rows => (self.rows, (!self.k_is_whole).then_some(k_left)),
        };
        let lines_left = across.map(|left| asm.bin(Bin::SubI, left, self.line));
        let step = match operand.line_stride() {
            Size::Const(c) => Err(c * operand.element_bytes * per_pass),
            Size::Param(_) if passes == 1 => Err(0),
            Size::Param(_) => {
                let n = asm.i64(per_pass);
                Ok(asm.bin(Bin::MulI, self.line_step, n))
            }
        };
        let mut first = self.source;
        for part in 0..parts {
            let mut staged = vec![];
            let before = part * self.threads * elements;
            if part > 0 {
                let (n, step) = (asm.i64(self.threads * elements), self.inner_step);
                let by = asm.bin(Bin::MulI, n, step);
                first = asm.element(first, by, Elem::I8);
            }
            let bytes = along.map(|left| {
                let before = asm.int(before, Ty::I32);
                let column = if part > 0 { asm.bin(Bin::AddI, self.column, before) } else { self.column };
                self.bytes_left(asm, left, column, elements)
            });
            let mut source = first;
            for pass in 0..passes {
                let line = pass * per_pass;
                let mut offset = 0;
                match step {
                    Err(step) => {
                        offset = pass * step;
                        if offset >= 1 << 23 {
                            let by = asm.i64(offset);
                            source = asm.element(first, by, Elem::I8);
                            offset = 0;
                        }
                    }
                    Ok(step) if pass > 0 => source = asm.element(source, step, Elem::I8),
                    Ok(_) => {}
                }
                let size = match (bytes, lines_left) {
                    (bytes, None) => bytes,
                    (bytes, Some(left)) => {
                        let (line, zero, full) = (asm.int(line, Ty::I32), asm.int(0, Ty::I32), asm.int(unit, Ty::I32));
                        let there = asm.cmpi(CmpI::Sgt, left, line);
                        Some(asm.select(there, bytes.unwrap_or(full), zero))
                    }
                };
                let target = moved(asm, operand.layout(), target, line);
                let within = line * operand.layout().pitch + before * operand.element_bytes;
                let at = (format!("{}+{within}", asm.name(target, 0)), format!("{}+{offset}", asm.name(source, 0)));
                staged.extend(unit_copy(asm, unit, &guard, at, size));
            }
            for (target, value) in staged {
                let value = asm.name(value, 0);
                asm.line(&format!("{guard}st.shared.b{} [{target}], {value};", 8 * unit));
            }
        }
    }
}

/// Copies one unit. A unit too small for an asynchronous copy goes through a register, which is returned for a later
/// store.
fn unit_copy(
    asm: &mut Ptx,
    unit: i64,
    guard: &str,
    (target, source): (String, String),
    size: Option<Val>,
) -> Option<(String, Val)> {
    if unit <= 2 {
        debug_assert!(guard.is_empty(), "units of 2 bytes are more than threads");
        let value = asm.register(Ty::new(Elem::F16, 1));
        let name = asm.name(value, 0);
        let guard = size.map(|size| {
            let zero = asm.int(0, Ty::I32);
            let there = asm.cmpi(CmpI::Ne, size, zero);
            asm.line(&format!("mov.b16 {name}, 0;"));
            format!("@{} ", asm.name(there, 0))
        });
        asm.line(&format!("{}ld.global.nc.b{} {name}, [{source}];", guard.unwrap_or_default(), 8 * unit));
        return Some((target, value));
    }
    // 16-byte copies bypass the first-level cache, because a block reads a sector only once.
    let cache = if unit == 16 { "cg" } else { "ca" };
    let size = size.map(|size| format!(", {}", asm.name(size, 0))).unwrap_or_default();
    asm.line(&format!("{guard}cp.async.{cache}.shared.global [{target}], [{source}], {unit}{size};"));
    None
}

/// Index of the element at which a column of a packed matrix begins; `whole` if the column is the first of a panel.
pub fn in_panels(asm: &mut Ptx, panels: Panels, column: Val, whole: bool) -> Val {
    let height = asm.i64(panels.groups());
    if whole {
        return asm.bin(Bin::MulI, column, height);
    }
    let (width, high) = (asm.i64(panels.width - 1), asm.i64(-panels.width));
    let inside = asm.bin(Bin::AndI, column, width);
    let before = asm.bin(Bin::AndI, column, high);
    let before = asm.bin(Bin::MulI, before, height);
    asm.bin(Bin::AddI, before, inside)
}

/// Offset in bytes of an element in a tile.
pub fn place(asm: &mut Ptx, lines: Lines, line: Val, column: Val) -> Val {
    let start = shift(asm, Bin::ShLI, line, log2(lines.pitch));
    let mut bytes = shift(asm, Bin::ShLI, column, log2(lines.element_bytes));
    let mut start = start;
    if let Some(block_bytes) = lines.block_bytes {
        let block = shift(asm, Bin::ShRUI, bytes, log2(lines.pitch));
        let before = asm.int(block_bytes, Ty::I32);
        let before = asm.bin(Bin::MulI, block, before);
        start = asm.bin(Bin::AddI, start, before);
        let within = asm.int(lines.pitch - 1, Ty::I32);
        bytes = asm.bin(Bin::AndI, bytes, within);
    }
    let by = swizzle(asm, lines, line);
    let bytes = asm.bin(Bin::XorI, bytes, by);
    asm.bin(Bin::AddI, start, bytes)
}

/// Value that the byte offsets within a line are xor'ed with.
pub fn swizzle(asm: &mut Ptx, lines: Lines, line: Val) -> Val {
    let (right, mask, left) = lines.swizzle;
    let bits = shift(asm, Bin::ShRUI, line, right);
    let mask = asm.int(mask, Ty::I32);
    let bits = asm.bin(Bin::AndI, bits, mask);
    shift(asm, Bin::ShLI, bits, left + 4)
}

/// Changes the swizzle of an offset to that of the line `line` lines further down; the caller adds the distance. One
/// xor is enough, because the bits that are set in `line` are 0 in the number of the thread's first line.
fn moved(asm: &mut Ptx, lines: Lines, target: Val, line: i64) -> Val {
    match lines.swizzle_of(line) {
        0 => target,
        by => {
            let by = asm.int(by << 4, Ty::I32);
            asm.bin(Bin::XorI, target, by)
        }
    }
}

fn conditions(asm: &mut Ptx, operand: &Operand, base: Val, line_step: Val) -> Vec<(i64, Option<Val>)> {
    let units = operand.units();
    let operands = [asm.name(base, 0), asm.operand(line_step, 0)];
    let both = asm.instruction(Ty::I64, "or.b64", &operands);
    let test = |asm: &mut Ptx, unit: i64| {
        let (low, zero) = (asm.i64(unit - 1), asm.i64(0));
        let rest = asm.bin(Bin::AndI, both, low);
        asm.cmpi(CmpI::Eq, rest, zero)
    };
    units.iter().map(|(unit, aligned)| (*unit, (*aligned == Aligned::Perhaps).then(|| test(asm, *unit)))).collect()
}

/// Emits the code for each possible size of units, one of which is chosen at run time.
fn choose(
    units: &[(i64, Option<Val>)],
    asm: &mut Ptx,
    tys: &[Ty],
    each: &dyn Fn(&mut Ptx, i64) -> Vec<Val>,
) -> Vec<Val> {
    match units {
        [(unit, None), ..] | [(unit, _)] => each(asm, *unit),
        [(unit, Some(condition)), others @ ..] => {
            asm.if_else(*condition, tys, |asm| each(asm, *unit), |asm| choose(others, asm, tys, each))
        }
        [] => unreachable!("elements are copied one by one where nothing else is possible"),
    }
}

/// Converts a size in elements to bytes.
fn bytes_of(cx: &Cx<Ptx>, asm: &mut Ptx, size: Size, element_bytes: i64) -> Val {
    match size {
        Size::Const(c) => asm.i64(c * element_bytes),
        Size::Param(_) => {
            let (size, bytes) = (cx.size(asm, size), asm.i64(element_bytes));
            asm.bin(Bin::MulI, size, bytes)
        }
    }
}

pub fn shift(asm: &mut Ptx, op: Bin, v: Val, by: i64) -> Val {
    if by == 0 {
        return v;
    }
    let by = asm.int(by, v.ty);
    asm.bin(op, v, by)
}

pub fn log2(n: i64) -> i64 {
    debug_assert!(n.count_ones() == 1, "{n} is not a power of two");
    n.trailing_zeros() as i64
}
