//! c[b, m, n] = g(Σk a[b, m, k] · b[b, k, n]) with 16-bit operands  =>  wgmma, fed by warps that only copy
//!
//! A ring of stages in shared memory connects one warpgroup that copies (`cp.async`) with one or two that multiply.
//! Constants packed in chunks of 16 bytes along K lie in memory as `wgmma` expects them without a swizzle, so that bulk
//! copies move them: a few lanes start these, and the `full` barrier of a stage also waits for their bytes.
//!
//! The accumulators of one warp are sixteen rows by all columns, in the registers that `mma.sync` would use, so the
//! epilogue is the same as for tiles that single warps multiply. Launches with few rows use such tiles, in the same
//! entry.

use super::chunks::Chunks;
use super::copy::{Stream, log2, shift};
use super::mma::{Factors, Sums};
use super::operand::{Inner, Operand};
use super::plan::{BLOCKS_MIN, FEW, Gemm, SHAPES, Shape, shape};
use super::two_of_four::{Matched, PositionStream, Words};
use super::{Block, boxed, either, movement, tile, times};
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::contract::Roles;
use crate::cx::Cx;
use crate::def::*;
use crate::ptx::descriptor::{STEP_BYTES, Tile, multiply};
use crate::ptx::movement::{Launch, Traffic};
use crate::ptx::ring::{self, LINE_BYTES, Ring};
use crate::ptx::{Form, GpuLaunch, GpuPlan, Version};
use crate::target::Target;
use sardonyx_base::usual::{LARGE, USUAL};

/// Number of threads that copy.
const COPYING: i64 = 128;

/// Version of PTX that has `wgmma.sp` of floats.
const SPARSE_VERSION: Version = (8, 2);

/// Shapes of tiles, the largest first, with sixteen rows for each multiplying warp.
pub static TILES: &[Shape] =
    &[shape(128, 128, 128, (8, 1), 4), shape(128, 64, 128, (8, 1), 4), shape(64, 64, 128, (4, 1), 4)];

/// Product whose tiles are multiplied by warpgroups.
#[derive(Clone, Debug)]
pub struct Warpgroups {
    /// Plan of the product, with at most 128 bytes of a line stored together.
    pub gemm: Gemm,
}

/// Plans a product of warpgroups; `None` if the device or the kernel does not support it.
pub fn planned(def: &KernelDef, target: Target) -> Option<Box<dyn GpuPlan>> {
    let has_them = target.gpu().is_some_and(|gpu| gpu.warpgroup_products);
    Some(Box::new(Warpgroups::from_def(def).filter(|_| has_them)?))
}

impl Warpgroups {
    /// Plans the product; `None` for unsupported kernels: other types, groups along K, few rows or columns, operands
    /// that cannot be copied in units of 16 bytes.
    pub fn from_def(def: &KernelDef) -> Option<Warpgroups> {
        let (roles, _) = Gemm::roles(def)?;
        if roles.m.is_some_and(|m| def.extent(m).as_const().is_some()) {
            return Warpgroups::with_shape(def, Warpgroups::select(def)?);
        }
        TILES.iter().find_map(|shape| Warpgroups::for_launches(def, &roles, shape))
    }

    /// The plan with a given shape, and with the smallest one for launches that would have few blocks of it; `None` if
    /// the tile wastes half of its rows or columns, or is not supported.
    fn for_launches(def: &KernelDef, roles: &Roles, shape: &'static Shape) -> Option<Warpgroups> {
        let n = def.extent(roles.n).as_const().unwrap_or(LARGE.other).saturating_mul(roles.sums.len() as i64);
        let rows = def.extent(roles.m?).as_const();
        if shape.n >= 2 * n || rows.is_some_and(|m| shape.m >= 2 * m) {
            return None;
        }
        let plan = Warpgroups::with_shape(def, shape)?;
        let small = TILES.last().filter(|small| rows.is_none() && *small != shape);
        let small = small.and_then(|small| Warpgroups::tiled(def, roles, small)).map(Box::new);
        Some(Warpgroups { gemm: Gemm { small, ..plan.gemm } })
    }

    /// The plan with a given shape.
    pub fn with_shape(def: &KernelDef, shape: &'static Shape) -> Option<Warpgroups> {
        let (roles, groups) = Gemm::roles(def)?;
        if groups.is_some() {
            return None;
        }
        let is_open = roles.m.is_some_and(|m| def.extent(m).as_const().is_none());
        let mut gemm = Warpgroups::tiled(def, &roles, shape)?;
        let few = SHAPES.iter().find(|few| few.m == FEW && few.threads() <= shape.threads() + COPYING);
        gemm.few = few.filter(|_| is_open).map(|few| Box::new(Gemm::with(def, (roles, None), few)));
        Some(Warpgroups { gemm })
    }

    /// The plan of a product with a 2:4 matrix of bf16, which `wgmma.sp` multiplies; `None` for bytes.
    pub fn two_of_four(def: &KernelDef, product: &Matched) -> Option<Warpgroups> {
        let with = |shape| {
            let mut gemm = product.with_shape(def, shape)?;
            for operand in [&mut gemm.a].into_iter().chain(&mut gemm.b) {
                operand.units().first().filter(|(bytes, _)| *bytes == 16)?;
                operand.part_bytes = Some(LINE_BYTES);
            }
            (gemm.factors == Factors::BF16).then_some(gemm)
        };
        Some(Warpgroups { gemm: product.planned(def, TILES, &with)? })
    }

    /// The plan of one tile shape for all launches; `None` if it is not supported.
    fn tiled(def: &KernelDef, roles: &Roles, shape: &'static Shape) -> Option<Gemm> {
        let mut gemm = Gemm::with(def, (roles.clone(), None), shape);
        let is_taken = |operand: &Operand| {
            // The preferred unit; some launches may not be aligned to it and then copy smaller ones.
            let whole = operand.units().first().is_some_and(|(bytes, _)| *bytes == 16);
            whole && operand.panels.is_none() && operand.depth == 1
        };
        let is_right = |operand: &Operand| is_taken(operand) || Chunks::fit(def, operand, &gemm);
        if !matches!(gemm.factors, Factors::F16 | Factors::BF16) || !is_taken(&gemm.a) || !gemm.b.iter().all(is_right) {
            return None;
        }
        gemm.a.part_bytes = Some(LINE_BYTES);
        gemm.b.iter_mut().filter(|b| b.panels.is_none()).for_each(|b| b.part_bytes = Some(LINE_BYTES));
        Some(gemm)
    }

    /// Returns the largest tile that gives enough blocks, or else the smallest, of those that waste less than half.
    fn select(def: &KernelDef) -> Option<&'static Shape> {
        let (roles, _) = Gemm::roles(def)?;
        let size = |v: usize, typical: i64| def.extent(v).as_const().unwrap_or(typical);
        let n_sums = roles.sums.len() as i64;
        let (m, n) = (size(roles.m?, LARGE.other), size(roles.n, LARGE.other).saturating_mul(n_sums));
        let batch: i64 = roles.batch.iter().map(|v| size(*v, USUAL.first)).fold(1, i64::saturating_mul);
        let mut fitting = TILES.iter().filter(|s| s.m < 2 * m && s.n < 2 * n);
        let enough = |s: &&Shape| s.blocks(m, n).saturating_mul(batch) >= BLOCKS_MIN;
        fitting.clone().find(enough).or_else(|| fitting.next_back())
    }

    fn threads(&self) -> i64 {
        self.gemm.shape.threads() + COPYING
    }

    /// Bytes of the ring, its barriers, and the padding before it, for the shape that needs most.
    fn shared_bytes(&self) -> i64 {
        let ring = |gemm: &Gemm| ring::shared_bytes(0, (gemm.shape.stages, gemm.stage_bytes()));
        let small = self.gemm.small.as_ref().map_or(0, |small| ring(small));
        ring(&self.gemm).max(small).max(self.gemm.few.as_ref().map_or(0, |few| few.shared_bytes()))
    }
}

impl GpuPlan for Warpgroups {
    fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        movement::requests(&self.gemm, launch)
    }

    fn emit(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Form {
        let bytes = self.shared_bytes();
        let block = |gemm, asm: &mut Ptx| Tiles { gemm }.block(cx, asm, bytes);
        let own = |asm: &mut Ptx| {
            match &self.gemm.small {
                None => block(&self.gemm, asm),
                Some(small) => {
                    let has_blocks = self.gemm.has_blocks(cx.def);
                    either(cx, asm, &has_blocks, |asm| block(&self.gemm, asm), |asm| block(small, asm))
                }
            }
            vec![]
        };
        match &self.gemm.few {
            None => drop(own(asm)),
            Some(few) => {
                let (rows, most) = (cx.extent(asm, self.gemm.m), asm.i64(FEW));
                let is_few = asm.cmpi(CmpI::Sle, rows, most);
                let of_few = |asm: &mut Ptx| {
                    let (thread, n) = (asm.special("%tid.x"), asm.int(few.shape.threads(), Ty::I32));
                    let takes_part = asm.cmpi(CmpI::Ult, thread, n);
                    asm.if_then(takes_part, |asm| tile(cx, asm, few, bytes));
                    vec![]
                };
                asm.if_else(is_few, &[], of_few, own);
            }
        }
        let (_, variables, shared_bytes) = Form::shared(bytes);
        let launch = GpuLaunch { shared_bytes, ..GpuLaunch::plain(self.gemm.grid(cx.def), self.threads() as u32) };
        Form { launch, variables, wide: true }
    }

    fn is_on_tensor_cores(&self) -> bool {
        true
    }

    fn version(&self) -> Option<Version> {
        self.gemm.positions.is_some().then_some(SPARSE_VERSION)
    }

    fn tile(&self) -> Option<String> {
        Some(format!("warpgroups-{}", self.gemm.shape.name()))
    }

    fn others(&self, def: &KernelDef) -> Vec<Box<dyn GpuPlan>> {
        let roles = Gemm::roles(def).filter(|_| self.gemm.positions.is_none());
        let Some((roles, _)) = roles else { return vec![] };
        let others = TILES.iter().filter(|shape| *shape != self.gemm.shape);
        let mut all = boxed(others.filter_map(|shape| Warpgroups::for_launches(def, &roles, shape)));
        // Single warps multiply any product that warpgroups do.
        if let Some(warps) = Gemm::from_def(def) {
            all.extend(boxed(warps.with_other_shapes(def)));
            all.push(Box::new(warps));
        }
        all
    }
}

/// Form in which an operand's tiles are copied.
enum Feed<'a> {
    /// By all copying threads.
    Threads(Stream<'a>),
    /// By bulk copies.
    Bulk(Chunks),
}

/// A plan whose tiles warpgroups multiply.
struct Tiles<'a> {
    gemm: &'a Gemm,
}

impl Tiles<'_> {
    /// Emits the code of one block. Threads beyond those that multiply and copy do nothing.
    fn block(&self, cx: &Cx<Ptx>, asm: &mut Ptx, bytes: i64) {
        let gemm = self.gemm;
        let block = Block { cx, gemm, shared_bytes: bytes };
        let (m_tile, n_tile, mut point) = block.place(asm);
        let (m0, n0) = (times(asm, m_tile, gemm.shape.m), times(asm, n_tile, gemm.columns()));
        let zero = asm.i64(0);
        (point.vars[gemm.m], point.vars[gemm.n], point.vars[gemm.k]) = (Some(m0), Some(n0), Some(zero));
        let (ring, last) = self.ring(cx, asm, bytes);
        let thread = asm.special("%tid.x");
        // The thread that announces the bytes of bulk copies arrives once more.
        let in_chunks = gemm.b.iter().any(|b| b.panels.is_some());
        ring.init(asm, thread, (COPYING + i64::from(in_chunks), gemm.shape.threads() / 32));
        let multiplying = asm.int(gemm.shape.threads(), Ty::I32);
        let multiplies = asm.cmpi(CmpI::Ult, thread, multiplying);
        let copy = |asm: &mut Ptx| {
            let rows = block.rows_left(asm, gemm.m, m0, gemm.shape.m);
            let columns = block.rows_left(asm, gemm.n, n0, gemm.columns());
            let mut point = point.clone();
            let number = asm.bin(Bin::SubI, thread, multiplying);
            let who = (number, COPYING);
            let mut feeds = vec![Feed::Threads(Stream::of_threads(cx, asm, &gemm.a, &mut point, rows, who).rolled())];
            feeds.extend(gemm.b.iter().map(|b| match b.panels {
                Some(panels) => Feed::Bulk(Chunks::new(cx, asm, (b, panels), &point, number)),
                None => Feed::Threads(Stream::of_threads(cx, asm, b, &mut point, columns, who).rolled()),
            }));
            let positions = block.positions(asm, number, m0, rows);
            self.copy_all(asm, (&ring, last), (&feeds, positions.as_ref()), number);
        };
        let multiply = |asm: &mut Ptx| {
            let warp = shift(asm, Bin::ShRUI, thread, 5);
            let sums = self.multiply_all(asm, &ring, warp);
            let none = asm.int(0, Ty::I32);
            block.epilogue(asm, &point, &sums, (m0, n0), (warp, none));
            vec![]
        };
        let copies = |asm: &mut Ptx| {
            let end = asm.int(gemm.shape.threads() + COPYING, Ty::I32);
            let takes_part = asm.cmpi(CmpI::Ult, thread, end);
            asm.if_then(takes_part, copy);
            vec![]
        };
        asm.if_else(multiplies, &[], multiply, copies);
    }

    /// The ring of the block, and the number of elements of the last k tile.
    fn ring(&self, cx: &Cx<Ptx>, asm: &mut Ptx, bytes: i64) -> (Ring, Val) {
        let gemm = self.gemm;
        let base = ring::pattern_start(asm, bytes);
        let k = cx.size(asm, gemm.k_extent());
        let k = asm.cast(Cast::TruncI, k, Elem::I32);
        let more = asm.int(gemm.k_tile() - 1, Ty::I32);
        let up = asm.bin(Bin::AddI, k, more);
        let pieces = shift(asm, Bin::ShRUI, up, log2(gemm.k_tile()));
        let one = asm.int(1, Ty::I32);
        let within = asm.bin(Bin::SubI, k, one);
        let within = asm.bin(Bin::AndI, within, more);
        let last = asm.bin(Bin::AddI, within, one);
        (Ring::new(asm, (gemm.shape.stages, gemm.stage_bytes()), base, pieces), last)
    }

    /// Code of the copying threads: copies every k tile into its stage. `last` is the number of elements of the last one.
    fn copy_all(
        &self,
        asm: &mut Ptx,
        (ring, last): (&Ring, Val),
        (feeds, positions): (&[Feed], Option<&PositionStream>),
        number: Val,
    ) {
        let gemm = self.gemm;
        let (zero, one) = (asm.int(0, Ty::I32), asm.int(1, Ty::I32));
        let behind: Vec<i64> = [&gemm.a].into_iter().chain(&gemm.b).map(Operand::tile_bytes).collect();
        let bulk_bytes: i64 = gemm.b.iter().filter(|b| b.panels.is_some()).map(Operand::tile_bytes).sum();
        let announces = asm.cmpi(CmpI::Eq, number, zero);
        ring.fill(asm, |asm, piece, stage, barrier| {
            let next = asm.bin(Bin::AddI, piece, one);
            let is_last = asm.cmpi(CmpI::Eq, next, ring.pieces);
            let whole = asm.int(gemm.k_tile(), Ty::I32);
            let k_left = asm.select(is_last, last, whole);
            if bulk_bytes > 0 {
                let announces = asm.name(announces, 0);
                asm.line(&format!(
                    "@{announces} mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bulk_bytes};"
                ));
            }
            let mut at = stage;
            for (feed, bytes) in feeds.iter().zip(&behind) {
                match feed {
                    Feed::Threads(stream) => stream.copy(asm, at, k_left),
                    Feed::Bulk(chunks) => chunks.copy(asm, at, barrier),
                }
                let bytes = asm.int(*bytes, Ty::I32);
                at = asm.bin(Bin::AddI, at, bytes);
            }
            if let Some(positions) = positions {
                positions.copy(asm, at);
            }
        });
    }

    /// Code of a multiplying warp: the products of every k tile, with those of one tile in flight while it waits for
    /// the next.
    fn multiply_all(&self, asm: &mut Ptx, ring: &Ring, warp: Val) -> Sums {
        let sums = Sums::zeros(asm, self.gemm, Elem::F32);
        let zero = asm.int(0, Ty::I32);
        let lane = asm.special("%laneid");
        let is_first = asm.cmpi(CmpI::Eq, lane, zero);
        let is_sparse = self.gemm.positions.is_some();
        let mut factors = vec![tile_of(&self.gemm.a, STEP_BYTES)];
        let of_b = if is_sparse { 2 * STEP_BYTES } else { STEP_BYTES };
        factors.extend(self.gemm.b.iter().map(|b| tile_of(b, of_b)));
        // Offset of the warpgroup's rows of A.
        let group = shift(asm, Bin::ShRUI, warp, 2);
        let rows_bytes = asm.int(factors[0].warpgroup_bytes, Ty::I32);
        let before = asm.bin(Bin::MulI, group, rows_bytes);
        let (read, free) = (ring.turn(asm), ring.turn(asm));
        ring.drain(asm, |asm, piece| {
            let stage = ring.wait_full(asm, &read);
            let a = asm.bin(Bin::AddI, stage, before);
            let a_bytes = asm.int(self.gemm.a.tile_bytes(), Ty::I32);
            let b = asm.bin(Bin::AddI, stage, a_bytes);
            let mut starts = vec![factors[0].descriptor(asm, a)];
            let mut at = b;
            for (operand, tile) in self.gemm.b.iter().zip(&factors[1..]) {
                starts.push(tile.descriptor(asm, at));
                let bytes = asm.int(operand.tile_bytes(), Ty::I32);
                at = asm.bin(Bin::AddI, at, bytes);
            }
            // The lane's positions are in registers before the products are issued.
            let words = if is_sparse { Words::new(asm, self.gemm, at, warp).of_line(asm) } else { vec![] };
            asm.line("wgmma.fence.sync.aligned;");
            for step in 0..self.gemm.shape.k_bytes / STEP_BYTES {
                let left = factors[0].of_step(asm, starts[0], step);
                let positions = words.get(step as usize).copied();
                for right in 1..factors.len() {
                    let descriptors = [left, factors[right].of_step(asm, starts[right], step)];
                    self.product(asm, &sums, right - 1, descriptors, [&factors[0], &factors[right]], positions);
                }
            }
            asm.line("wgmma.commit_group.sync.aligned;");
            asm.line("wgmma.wait_group.sync.aligned 1;");
            // The products with the previous k tile are done.
            let not_first = asm.cmpi(CmpI::Ne, piece, zero);
            asm.if_then(not_first, |asm| ring.release(asm, &free, is_first));
            read.advance(asm, ring);
        });
        asm.line("wgmma.wait_group.sync.aligned 0;");
        sums
    }

    /// The products of one step along k with one operand B; if A is sparse, with its positions and their selector.
    fn product(
        &self,
        asm: &mut Ptx,
        sums: &Sums,
        which: usize,
        descriptors: [Val; 2],
        tiles: [&Tile; 2],
        positions: Option<(Val, i64)>,
    ) {
        let per_sum = sums.of[0].len() / self.gemm.b.len();
        let own = &sums.of[0][which * per_sum..(which + 1) * per_sum];
        let a = asm.name(descriptors[0], 0);
        let [a_inside, b_inside] = tiles.map(|tile| i32::from(tile.rows_inside));
        let turned = format!("{a_inside}, {b_inside}");
        multiply(asm, self.gemm.factors, own, (&a, descriptors[1]), (true, &turned), positions);
    }
}

/// Returns how `wgmma` reads the tiles of an operand. `of_step` is the number of bytes along k that one instruction multiplies.
fn tile_of(operand: &Operand, of_step: i64) -> Tile {
    match (operand.panels, operand.inner) {
        (Some(_), _) => Tile::of_chunks(operand.pitch()),
        (None, Inner::Rows) => Tile::along_rows(operand.k_tile),
        (None, Inner::K) => Tile::along_k(operand.layout(), of_step),
    }
}
