//! Σj < length[w] value[8 · (first[w] + j) + n % 8] · x[column[first[w] + j], m] for windows w = n / 8  =>  `mma.sync` on
//! vectors of eight rows (FlashSparse)
//!
//! The sparse matrix is operand B, whose tiles have eight columns, so eight adjacent rows of the matrix (a window)
//! share a list of columns. The dense operand is A. Its elements for one column of the matrix, one per token m, are a
//! line. A block copies the part of every line that belongs to its tokens to shared memory, from which `ldmatrix` takes
//! the lines of any sixteen columns, transposed. Each warp multiplies several windows, one after the other; the values
//! of a window are loaded from memory into registers directly.

use super::copy::{Stream, log2, shift, swizzle};
use super::mma::{Factors, Sums};
use super::movement::sectors;
use super::operand::Operand;
use super::plan::{Gemm, Shape, shape};
use super::{Block, narrow_extent, times};
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::{Cx, decode};
use crate::def::*;
use crate::eval::Point;
use crate::ptx::movement::{Launch, SECTOR_BYTES, Traffic};
use crate::ptx::{Form, GpuLaunch, GpuPlan};
use crate::target::Target;
use sardonyx_base::usual::LARGE;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::sparse::WINDOW_ROWS;
use sardonyx_dialects::scalar::ScalarFn;

/// Tokens of a block by the eight columns of the result that one warp computes at a time.
static TILES: &[Shape] = &[shape(64, 8, 32, (1, 1), 1), shape(32, 8, 32, (1, 1), 1), shape(16, 8, 32, (1, 1), 1)];

/// Maximum bytes of the dense operand's lines in shared memory.
const BYTES_MAX: i64 = 96 << 10;
/// Number of warps of a block.
const WARPS: i64 = 8;
/// Number of windows of a warp.
const EACH: i64 = 4;
/// Number of vectors that one instruction multiplies.
const STEP: i64 = 16;

/// A product with a matrix in vectors of eight rows.
#[derive(Debug)]
pub struct Windows {
    /// The tile and the epilogue: rows are tokens, columns are rows of the matrix; operand A is the dense one.
    gemm: Gemm,
    /// The operands with the first vector of each window, the column of each vector, and the values of the vectors.
    starts: usize,
    columns: usize,
    values: usize,
    /// Number of windows, and number of vectors of all windows together.
    n_windows: i64,
    n_vectors: Size,
}

/// Plans a product with a matrix in vectors of eight rows; `None` for any other kernel.
pub fn planned(def: &KernelDef, _: Target) -> Option<Box<dyn GpuPlan>> {
    Some(Box::new(Windows::find(def)?))
}

impl Windows {
    fn find(def: &KernelDef) -> Option<Windows> {
        let (sum, chosen) = def.only_sum().filter(|(sum, _)| def.body[*sum].dtype == DType::F32)?;
        let Op::Apply { f: ScalarFn::Select, args } = &def.body[chosen].op else { return None };
        let &[inside, product, zero] = &args[..] else { return None };
        let Op::Apply { f: ScalarFn::Mul, args } = &def.body[product].op else { return None };
        let &[value, x] = &args[..] else { return None };
        let Op::Apply { f: ScalarFn::Lt, args } = &def.body[inside].op else { return None };
        let &[place, length] = &args[..] else { return None };
        let Op::Apply { f: ScalarFn::Sub, args } = &def.body[length].op else { return None };
        let &[end, first] = &args[..] else { return None };
        let ((value, Some(guarded)), (x, Some(read))) = (def.converted_load(value)?, def.converted_load(x)?) else {
            return None;
        };
        let ((starts, None), (ends, None)) = (def.converted_load(first)?, def.converted_load(end)?) else {
            return None;
        };
        let [column] = &x.computed[..] else { return None };
        let number = column.expr.statements().first().copied()?;
        let (numbers, Some(under)) = def.converted_load(number)? else { return None };
        let ([window], [after], [at], [of_value]) =
            (&starts.computed[..], &ends.computed[..], &numbers.computed[..], &value.computed[..])
        else {
            return None;
        };
        let n = window.expr.variables().first().copied()?;
        let (j, n_outer) = (def.outer.len(), def.outer.len());
        let height = Dim::constant(WINDOW_ROWS);
        let vector = Dim::statement(first) + Dim::variable(j);
        let is_still = |access: &Access| (0..def.n_vars()).all(|v| access.stride(v).is(0));
        // Returns the number of the window whose start an access reads.
        let of_window = |access: &Access, part: &Computed| {
            Some(part.expr.clone() + Dim::constant(access.coords[0].offset.as_const()?))
        };
        let rows = def.extent(n).as_const()?;
        let k = column.limit?.as_const()?;
        let types = [value, x].map(|access| def.reads[access.buffer].dtype);
        let ok = def.inner.len() == 1
            && def.deep.is_empty()
            && n < n_outer
            && rows % WINDOW_ROWS == 0
            && k % 128 == 0
            && types == [DType::BF16; 2]
            && matches!(def.body[zero].op, Op::Const(0))
            && matches!(&def.body[place].op, Op::Index(d) if *d == Dim::variable(j))
            && of_window(starts, window)? == Dim::variable(n).floordiv(&height)
            && of_window(ends, after)? == Dim::variable(n).floordiv(&height) + Dim::constant(1)
            && [starts, ends].iter().all(|a| def.reads[a.buffer].dtype == DType::I32 && is_still(a))
            && matches!(def.reads[numbers.buffer].dtype, DType::U16 | DType::I32)
            && at.expr == vector.clone()
            && at.stride.is(1)
            && of_value.expr == vector * height.clone() + Dim::variable(n).modulo(&height)
            && of_value.stride.is(1)
            && [numbers, value].iter().all(|a| is_still(a) && a.coords[0].offset.is(0))
            && [guarded, read, under] == [inside; 3]
            && column.expr == Dim::statement(number)
            && x.stride(n).is(0)
            && x.stride(j).is(0)
            && def.reads.iter().all(|storage| storage.panels.is_none())
            && def.stores_outer_points();
        // Tokens are contiguous in memory.
        let m = (0..n_outer).rev().find(|v| *v != n && x.stride(*v).is(1)).filter(|_| ok)?;
        let tokens = def.extent(m).as_const().unwrap_or(LARGE.other);
        let fits = |s: &&Shape| k * DType::BF16.bytes() as i64 * s.m <= BYTES_MAX && (s.m < 2 * tokens || s.m == 16);
        let shape = TILES.iter().find(fits)?;
        let mut line = x.coords[0].clone();
        line.strides[j] = column.stride;
        let access = Access { coords: vec![line], computed: vec![], ..x.clone() };
        let gemm = Gemm {
            sums: vec![sum],
            factors: Factors::BF16,
            batch: (0..n_outer).filter(|v| ![m, n].contains(v)).collect(),
            m,
            n,
            k: j,
            a: Operand::new(def, access, (m, shape.m), (j, Size::Const(k), k)),
            b: vec![],
            groups: None,
            positions: None,
            shape,
            few: None,
            small: None,
        };
        let (starts, columns) = (starts.buffer, numbers.buffer);
        let n_vectors = at.limit?;
        Some(Windows { gemm, starts, columns, values: value.buffer, n_windows: rows / WINDOW_ROWS, n_vectors })
    }

    /// Returns the number of blocks among which the windows are divided, for each tile of tokens.
    fn groups(&self) -> i64 {
        (self.n_windows + WARPS * EACH - 1).div_euclid(WARPS * EACH)
    }

    fn grid(&self, def: &KernelDef) -> Dim {
        let batch = self.gemm.batch.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        batch * self.gemm.tiles_m(def) * Dim::constant(self.groups())
    }

    /// Emits the code of one window: the products with its vectors, sixteen at a time, then the epilogue.
    fn window(&self, asm: &mut Ptx, block: &Block, point: &Point, m0: Val, window: Val) {
        let (gemm, reads) = (&self.gemm, &block.cx.reads);
        let wide = asm.cast(Cast::ExtUI, window, Elem::I64);
        let at = asm.element(reads[self.starts], wide, Elem::I32);
        let at = asm.name(at, 0);
        let given = [0, 4].map(|by| asm.instruction(Ty::I32, "ld.global.nc.b32", &[format!("[{at}+{by}]")]));
        // Indices of vectors and columns that are out of range set the status, and are clamped.
        let n_vectors = block.cx.size(asm, self.n_vectors);
        let (none, all) = (asm.int(0, Ty::I32), asm.cast(Cast::TruncI, n_vectors, Elem::I32));
        let (first, end) = (asm.bin(Bin::MaxSI, given[0], none), asm.bin(Bin::MinSI, given[1], all));
        let wrong = [(given[0], first), (given[1], end)].map(|(given, used)| asm.cmpi(CmpI::Ne, given, used));
        let wrong = asm.bin(Bin::OrI, wrong[0], wrong[1]);
        asm.if_then(wrong, |asm| asm.raise(block.cx.status));
        let (last, most) = (asm.int(gemm.k_tile() - 1, Ty::I32), asm.register(Ty::I32));
        asm.set(most, none);
        let sums = Sums::zeros(asm, gemm, Elem::F32);
        let lane = asm.special("%laneid");
        let bits = |asm: &mut Ptx, right: i64, mask: i64| {
            let (v, mask) = (shift(asm, Bin::ShRUI, lane, right), asm.int(mask, Ty::I32));
            asm.bin(Bin::AndI, v, mask)
        };
        // Lanes 0 to 15 address the lines of vectors 0 to 7, and lanes 16 to 31 those of vectors 8 to 15. Of each
        // sixteen lanes, the first eight address the first eight tokens, and the others the next eight tokens.
        let (low, high, second) = (bits(asm, 0, 7), bits(asm, 4, 1), bits(asm, 3, 1));
        let high = shift(asm, Bin::ShLI, high, 3);
        let (own, tokens) = (asm.bin(Bin::AddI, low, high), shift(asm, Bin::ShLI, second, 4));
        // A lane loads the values in row `lane / 4` of two pairs of adjacent vectors, which are eight vectors apart.
        let (row, pair) = (bits(asm, 2, 7), bits(asm, 0, 3));
        let pair = shift(asm, Bin::ShLI, pair, 1);
        let tiles = asm.instruction(Ty::I32, "mov.u32", &[Form::shared(gemm.a.tile_bytes()).0.to_string()]);
        let step = asm.int(STEP, Ty::I32);
        asm.for_loop((first, end, step), &[], |asm, vector, _| {
            let column = self.guarded(asm, (reads[self.columns], self.columns), block, (vector, own, end), None);
            let larger = asm.bin(Bin::MaxUI, most, column);
            asm.set(most, larger);
            let column = asm.bin(Bin::MinUI, column, last);
            let start = shift(asm, Bin::ShLI, column, log2(gemm.a.pitch()));
            let by = swizzle(asm, gemm.a.layout(), column);
            let line = asm.bin(Bin::AddI, tiles, start);
            let value = |asm: &mut Ptx, k: i64| {
                let k = asm.int(k, Ty::I32);
                let k = asm.bin(Bin::AddI, pair, k);
                self.guarded(asm, (reads[self.values], self.values), block, (vector, k, end), Some(row))
            };
            let values = [0, 1, 8, 9].map(|k| value(asm, k));
            let packed = [0, 2].map(|i| {
                let names = [asm.name(values[i], 0), asm.name(values[i + 1], 0), "0x5410".into()];
                asm.instruction(Ty::I32, "prmt.b32", &names)
            });
            for (i, sums) in sums.of.iter().enumerate() {
                let offset = asm.int(i as i64 * 32, Ty::I32);
                let within = asm.bin(Bin::AddI, tokens, offset);
                let within = asm.bin(Bin::XorI, within, by);
                let at = asm.bin(Bin::AddI, line, within);
                let at = asm.name(at, 0);
                let v = asm.register(Ty::new(Elem::I32, 4));
                let a = [0, 1, 2, 3].map(|i| asm.name(v, i)).join(", ");
                asm.line(&format!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{a}}}, [{at}];"));
                let sum = [0, 1, 2, 3].map(|i| asm.name(sums[0], i)).join(", ");
                let b = packed.map(|v| asm.name(v, 0)).join(", ");
                let kind = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";
                asm.line(&format!("{kind} {{{sum}}}, {{{a}}}, {{{b}}}, {{{sum}}};"));
            }
            vec![]
        });
        let wrong = asm.cmpi(CmpI::Ugt, most, last);
        asm.if_then(wrong, |asm| asm.raise(block.cx.status));
        let n0 = times(asm, wide, WINDOW_ROWS);
        block.epilogue(asm, point, &sums, (m0, n0), (none, none));
    }

    /// Emits the load of the column of vector `vector + by`, or of its value in row `row` of the window if there is
    /// one. The result is 0 from vector `end` on.
    fn guarded(
        &self,
        asm: &mut Ptx,
        (base, buffer): (Val, usize),
        block: &Block,
        (vector, by, end): (Val, Val, Val),
        row: Option<Val>,
    ) -> Val {
        let number = asm.bin(Bin::AddI, vector, by);
        let there = asm.cmpi(CmpI::Slt, number, end);
        let at = match row {
            None => number,
            Some(row) => {
                let first = shift(asm, Bin::ShLI, number, log2(WINDOW_ROWS));
                asm.bin(Bin::AddI, first, row)
            }
        };
        let at = asm.cast(Cast::ExtUI, at, Elem::I64);
        let (elem, kind) = match block.cx.def.reads[buffer].dtype.bytes() {
            2 => (Elem::I16, "u16"),
            _ => (Elem::I32, "b32"),
        };
        let address = asm.element(base, at, elem);
        let v = asm.register(Ty::I32);
        let zero = asm.int(0, Ty::I32);
        asm.set(v, zero);
        let [there, v_name, address] = [there, v, address].map(|v| asm.name(v, 0));
        asm.line(&format!("@{there} ld.global.nc.{kind} {v_name}, [{address}];"));
        v
    }
}

impl GpuPlan for Windows {
    fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        let gemm = &self.gemm;
        let mut traffic = vec![Traffic::default(); launch.buffers()];
        let tiles_m = (launch.extent(gemm.m) + gemm.shape.m - 1).div_euclid(gemm.shape.m);
        let batches: i64 = gemm.batch.iter().map(|v| launch.extent(*v)).product();
        traffic[gemm.a.access.buffer].scheduled += self.groups() * sectors(launch, &gemm.batch, &gemm.a);
        let n_vectors = launch.size(self.n_vectors);
        for (buffer, bytes) in [
            (self.values, n_vectors * WINDOW_ROWS * DType::BF16.bytes() as i64),
            (self.columns, n_vectors * launch.def.reads[self.columns].dtype.bytes() as i64),
            (self.starts, (self.n_windows + 1) * DType::I32.bytes() as i64),
        ] {
            // A step of 16 vectors can begin at any vector, so the number of sectors that it touches depends on data.
            traffic[buffer].from_data = true;
            traffic[buffer].scheduled += batches * tiles_m * (bytes + SECTOR_BYTES - 1).div_euclid(SECTOR_BYTES);
        }
        gemm.epilogue_requests(launch, &mut traffic, (tiles_m, self.n_windows));
        traffic
    }

    fn emit(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Form {
        let (gemm, bytes, threads) = (&self.gemm, self.gemm.a.tile_bytes(), WARPS * 32);
        let block = Block { cx, gemm, shared_bytes: bytes };
        let number = asm.special("%ctaid.x");
        let groups = asm.int(self.groups(), Ty::I32);
        let group = asm.bin(Bin::RemUI, number, groups);
        let tile = asm.bin(Bin::DivUI, number, groups);
        let tiles_m = block.tiles(asm, cx.def.extent(gemm.m), gemm.shape.m);
        let (batch, tile) = (asm.bin(Bin::DivUI, tile, tiles_m), asm.bin(Bin::RemUI, tile, tiles_m));
        let extents: Vec<Val> = gemm.batch.iter().map(|v| narrow_extent(cx, asm, *v)).collect();
        let mut point = Point::new(cx);
        for (v, value) in gemm.batch.iter().zip(decode(asm, batch, &extents)) {
            point.vars[*v] = Some(asm.cast(Cast::ExtUI, value, Elem::I64));
        }
        let (m0, zero) = (times(asm, tile, gemm.shape.m), asm.i64(0));
        (point.vars[gemm.m], point.vars[gemm.k]) = (Some(m0), Some(zero));
        let rows = block.rows_left(asm, gemm.m, m0, gemm.shape.m);
        let stream = Stream::new(cx, asm, &gemm.a, &mut point, rows, threads).rolled();
        let (name, variables, shared_bytes) = Form::shared(bytes);
        let tiles = asm.instruction(Ty::I32, "mov.u32", &[name.to_string()]);
        let all = asm.int(gemm.k_tile(), Ty::I32);
        stream.copy(asm, tiles, all);
        asm.line("cp.async.commit_group;");
        asm.line("cp.async.wait_group 0;");
        asm.line("bar.sync 0;");
        let thread = asm.special("%tid.x");
        let warp = shift(asm, Bin::ShRUI, thread, 5);
        let (warps, each, windows) =
            (asm.int(WARPS, Ty::I32), asm.int(EACH, Ty::I32), asm.int(self.n_windows, Ty::I32));
        let first = asm.bin(Bin::MulI, group, warps);
        let first = asm.bin(Bin::AddI, first, warp);
        let first = asm.bin(Bin::MulI, first, each);
        let end = asm.bin(Bin::AddI, first, each);
        let end = asm.bin(Bin::MinSI, end, windows);
        let one = asm.int(1, Ty::I32);
        asm.for_loop((first, end, one), &[], |asm, window, _| {
            self.window(asm, &block, &point, m0, window);
            vec![]
        });
        let launch = GpuLaunch { shared_bytes, ..GpuLaunch::plain(self.grid(cx.def), threads as u32) };
        Form { launch, variables, wide: true }
    }

    fn is_on_tensor_cores(&self) -> bool {
        true
    }
}
