//! An operand  =>  a tile of it in shared memory: copied asynchronously, or evaluated element by element
//!
//! Lines and elements that do not exist are filled with zeros.

use super::super::gemm::copy::{Stream, log2, place, shift};
use super::plan::Tile;
use super::sums::deep_sums;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::eval::Point;
use crate::scalar;
use sardonyx_base::DType;

/// Source of a tile that is filled repeatedly, with one chunk of lines after another.
pub struct Source<'a> {
    cx: &'a Cx<'a, Ptx>,
    tile: &'a Tile,
    stream: Option<Stream<'a>>,
    /// Point of the block's first line and first element.
    point: Point,
    /// The thread's index among those that fill the tile, and the number of these.
    who: (Val, i64),
    /// Number of elements of a line that exist; `None` if all do.
    there: Option<Val>,
}

impl<'a> Source<'a> {
    /// Creates the source of a tile. `point` has the values of the batch variables, and the values of the tile's
    /// variables at the block's first line and first element. `who` is the thread's index among those that fill the
    /// tile, and the number of these.
    pub fn new(cx: &'a Cx<'a, Ptx>, asm: &mut Ptx, tile: &'a Tile, point: &Point, who: (Val, i64)) -> Source<'a> {
        let extent = cx.def.extent(tile.along).as_const().unwrap_or(0);
        let there = (extent % tile.length != 0).then(|| {
            let (all, first) = (asm.i64(extent), point.vars[tile.along].expect("set by the block"));
            let left = asm.bin(Bin::SubI, all, first);
            let most = asm.i64(tile.length);
            let left = asm.bin(Bin::MinSI, left, most);
            asm.cast(Cast::TruncI, left, Elem::I32)
        });
        let mut start = point.clone();
        let stream = tile.operand.as_ref().map(|o| Stream::of_threads(cx, asm, o, &mut start, there, who).rolled());
        Source { cx, tile, stream, point: point.clone(), who, there }
    }

    /// Fills the tile at `target` with the next chunk: lines from `first` on, of which `left` exist.
    pub fn fill(&self, asm: &mut Ptx, target: Val, first: Option<Val>, left: Val) {
        match &self.stream {
            Some(stream) => stream.copy(asm, target, left),
            None => self.evaluate(asm, target, first, left),
        }
    }

    fn evaluate(&self, asm: &mut Ptx, target: Val, first: Option<Val>, left: Val) {
        let (cx, tile) = (self.cx, self.tile);
        let n = asm.int(tile.n_lines * tile.length, Ty::I32);
        let (thread, threads) = self.who;
        let step = asm.int(threads, Ty::I32);
        asm.for_loop((thread, n, step), &[], |asm, number, _| {
            let line = shift(asm, Bin::ShRUI, number, log2(tile.length));
            let within = asm.int(tile.length - 1, Ty::I32);
            let column = asm.bin(Bin::AndI, number, within);
            let mut inside = asm.cmpi(CmpI::Slt, line, left);
            if let Some(there) = self.there {
                let beside = asm.cmpi(CmpI::Slt, column, there);
                inside = asm.bin(Bin::AndI, inside, beside);
            }
            let elem = scalar::register(cx.def.body[tile.statement].dtype);
            let value = asm.if_else(
                inside,
                &[Ty::new(elem, 1)],
                |asm| {
                    let mut point = self.point.clone();
                    if let (Some(v), Some(first)) = (tile.across, first) {
                        point.vars[v] = Some(plus(asm, first, line));
                    }
                    let start = point.vars[tile.along].expect("set by the block");
                    point.vars[tile.along] = Some(plus(asm, start, column));
                    deep_sums(cx, asm, &mut point, &[tile.statement]);
                    vec![point.eval(cx, asm, tile.statement)]
                },
                |asm| vec![asm.zero(Ty::new(elem, 1))],
            )[0];
            let at = place(asm, tile.lines, line, column);
            let at = asm.bin(Bin::AddI, target, at);
            store(asm, value, at, cx.def.body[tile.statement].dtype);
            vec![]
        });
    }
}

fn plus(asm: &mut Ptx, first: Val, by: Val) -> Val {
    let by = asm.cast(Cast::ExtUI, by, Elem::I64);
    asm.bin(Bin::AddI, first, by)
}

/// Stores an element in the format that it has in memory.
fn store(asm: &mut Ptx, v: Val, at: Val, t: DType) {
    if !matches!(t, DType::F16 | DType::BF16) {
        return asm.store_shared(v, at);
    }
    let v = scalar::before_store(asm, v, t);
    let line = format!("st.shared.b16 [{}], {};", asm.name(at, 0), asm.name(v, 0));
    asm.line(&line);
}
