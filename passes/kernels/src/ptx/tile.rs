//! store f(load a[…, %y, %x]) at […, %x, %y]: a block transposes a tile of 32 × 32 points in shared memory
//!
//! Values that are read in one order and written in another go through a tile whose rows are 33 elements apart: the
//! threads of a warp access contiguous memory on both sides, and never the same bank. All other values are evaluated
//! when the results are written.

use super::Form;
use super::index::{divide, index, narrow};
use super::movement::{Launch, Steps, Traffic};
use crate::asm::{Asm, Bin, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;
use crate::scalar;
use sardonyx_base::Dim;

const SIDE: i64 = 32;

/// Number of threads of a block; each has four points.
const THREADS: i64 = 256;
const ROWS: i64 = THREADS / SIDE;

/// Maximum number of tiles that a block has in shared memory, of at most 8 · 33 · 32 bytes each.
const TILES_MAX: usize = 4;

/// Minimum extent of both variables; below it, a tile would be mostly empty.
const EXTENT_MIN: i64 = 8;

/// Two variables, and the loads that are contiguous along `x` while the stores are contiguous along `y`.
pub struct Tile {
    x: usize,
    y: usize,
    loads: Vec<usize>,
}

pub fn plan(def: &KernelDef) -> Option<Tile> {
    let deps = def.dependences();
    let stride = |access: &Access, storage: &Storage, var: usize| {
        let computed = def.access_vars(&Access { coords: vec![], ..access.clone() }, &deps);
        (storage.panels.is_none() && computed >> var & 1 == 0).then(|| access.stride(var))
    };
    let along = |access: &Access, storage: &Storage, var: usize| stride(access, storage, var) == Some(Size::Const(1));
    let stored = |var: usize| def.stores.iter().all(|w| along(&w.access, &def.writes[w.access.buffer], var));
    let y = (0..def.n_vars()).rev().find(|v| stored(*v))?;
    let loads: Vec<(usize, &Access)> = def.body.iter().enumerate().filter_map(|(k, s)| load(k, s)).collect();
    let turned = |access: &Access, x: usize| {
        let storage = &def.reads[access.buffer];
        let apart = stride(access, storage, y).is_some_and(|s| !s.is(0) && !s.is(1));
        x != y && along(access, storage, x) && apart
    };
    let x = (0..def.n_vars()).find(|x| loads.iter().any(|(_, access)| turned(access, *x)))?;
    let loads: Vec<usize> = loads.into_iter().filter(|(_, access)| turned(access, x)).map(|(k, _)| k).collect();
    let large = |v: usize| def.extent(v).as_const().is_none_or(|n| n >= EXTENT_MIN);
    (large(x) && large(y) && loads.len() <= TILES_MAX).then_some(Tile { x, y, loads })
}

fn load(k: usize, step: &Step) -> Option<(usize, &Access)> {
    match &step.op {
        Op::Load { access, .. } => Some((k, access)),
        Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) | Op::Reduce { .. } => None,
    }
}

impl Tile {
    /// Extents that blocks are numbered by, with the last one as the fastest index: the other variables, tiles along x,
    /// tiles along y.
    fn blocks(&self, def: &KernelDef) -> Vec<Dim> {
        let others = (0..def.n_vars()).filter(|v| *v != self.x && *v != self.y).map(|v| def.extent(v).dim());
        let tiles = [self.x, self.y].map(|v| def.extent(v).dim().ceildiv(&Dim::constant(SIDE)));
        others.chain(tiles).collect()
    }
}

pub fn emit(cx: &Cx<Ptx>, asm: &mut Ptx, tile: &Tile) -> Form {
    let blocks = tile.blocks(cx.def);
    let mut point = Point::new(cx);
    let corner = corner(cx, asm, tile, &mut point);
    let (thread, five, mask) = (asm.special("%tid.x"), asm.int(5, Ty::I32), asm.int(SIDE - 1, Ty::I32));
    let (row, lane) = (asm.bin(Bin::ShRUI, thread, five), asm.bin(Bin::AndI, thread, mask));
    let mut variables = String::new();
    let places: Vec<(Val, Elem)> = tile.loads.iter().map(|k| place(cx, asm, *k, &mut variables)).collect();
    let own = Own { tile, corner, row, lane };
    for time in 0..SIDE / ROWS {
        own.at(cx, asm, &point, time, false, |asm, mut point, within| {
            for (k, place) in tile.loads.iter().zip(&places) {
                let v = point.eval(cx, asm, *k);
                let address = element(asm, *place, within);
                asm.store_shared(v, address);
            }
        });
    }
    asm.line("bar.sync 0;");
    for time in 0..SIDE / ROWS {
        own.at(cx, asm, &point, time, true, |asm, mut point, within| {
            for (k, place) in tile.loads.iter().zip(&places) {
                let address = element(asm, *place, within);
                point.values[*k] = Some(asm.load_shared(address, place.1));
            }
            for write in &cx.def.stores {
                point.store(cx, asm, write);
            }
        });
    }
    let grid = blocks.iter().fold(Dim::constant(1), |p, b| p * b.clone());
    Form { variables, ..Form::of_items(&grid, 1, THREADS) }
}

/// Sets the variables other than x and y, and returns the tile's first x and y. A launch has fewer than 2^31 blocks,
/// so 32 bits suffice.
fn corner(cx: &Cx<Ptx>, asm: &mut Ptx, tile: &Tile, point: &mut Point) -> [Val; 2] {
    let blocks = tile.blocks(cx.def);
    let others: Vec<usize> = (0..cx.def.n_vars()).filter(|v| *v != tile.x && *v != tile.y).collect();
    let mut rest = asm.special("%ctaid.x");
    let mut numbers = vec![];
    for (i, n) in blocks.iter().enumerate().rev() {
        if i == 0 {
            numbers.push(index(asm, rest));
            continue;
        }
        let n = cx.dim(asm, n);
        let n = narrow(asm, n);
        let (quotient, left) = divide(asm, rest, n);
        numbers.push(index(asm, left));
        rest = quotient;
    }
    numbers.reverse();
    others.iter().zip(&numbers).for_each(|(v, number)| point.vars[*v] = Some(*number));
    let side = asm.i64(SIDE);
    [numbers[others.len()], numbers[others.len() + 1]].map(|n| asm.bin(Bin::MulI, n, side))
}

/// Points of one thread.
struct Own<'a> {
    tile: &'a Tile,
    corner: [Val; 2],
    row: Val,
    lane: Val,
}

impl Own<'_> {
    /// Calls `body` at the thread's point number `time`, if this point exists. The threads of a warp have consecutive
    /// points along y if `along_y`, else along x. `body` also gets the index of the point in the tile.
    fn at(
        &self,
        cx: &Cx<Ptx>,
        asm: &mut Ptx,
        point: &Point,
        time: i64,
        along_y: bool,
        body: impl FnOnce(&mut Ptx, Point, Val),
    ) {
        let before = asm.int(time * ROWS, Ty::I32);
        let row = asm.bin(Bin::AddI, self.row, before);
        let (x, y) = if along_y { (row, self.lane) } else { (self.lane, row) };
        let apart = asm.int(SIDE + 1, Ty::I32);
        let within = asm.bin(Bin::MulI, y, apart);
        let within = asm.bin(Bin::AddI, within, x);
        let mut point = point.clone();
        let mut inside = vec![];
        for (v, local, corner) in [(self.tile.x, x, self.corner[0]), (self.tile.y, y, self.corner[1])] {
            let local = index(asm, local);
            let at = asm.bin(Bin::AddI, corner, local);
            let extent = cx.extent(asm, v);
            inside.push(asm.cmpi(CmpI::Slt, at, extent));
            point.vars[v] = Some(at);
        }
        let inside = asm.bin(Bin::AndI, inside[0], inside[1]);
        asm.if_then(inside, |asm| body(asm, point, within));
    }
}

/// Shared tile for the values of a load: its address and element type.
fn place(cx: &Cx<Ptx>, asm: &mut Ptx, k: usize, variables: &mut String) -> (Val, Elem) {
    let elem = scalar::register(cx.def.body[k].dtype);
    let bytes = SIDE * (SIDE + 1) * bytes(elem);
    variables.push_str(&format!("  .shared .align 8 .b8 tile{k}[{bytes}];\n"));
    (asm.instruction(Ty::I32, "mov.u32", &[format!("tile{k}")]), elem)
}

fn bytes(elem: Elem) -> i64 {
    elem.bits().max(32) as i64 / 8
}

fn element(asm: &mut Ptx, (base, elem): (Val, Elem), within: Val) -> Val {
    let bytes = asm.int(bytes(elem), Ty::I32);
    let offset = asm.bin(Bin::MulI, within, bytes);
    asm.bin(Bin::AddI, base, offset)
}

/// Returns the memory requests of a launch's warps.
pub fn requests(launch: &Launch, tile: &Tile) -> Vec<Traffic> {
    let mut traffic = vec![Traffic::default(); launch.buffers()];
    let blocks: Vec<i64> = tile.blocks(launch.def).iter().map(|d| launch.dim(d)).collect();
    let others: Vec<usize> = (0..launch.def.n_vars()).filter(|v| *v != tile.x && *v != tile.y).collect();
    for touch in launch.touches() {
        let along_x = touch.statement.is_some_and(|k| tile.loads.contains(&k));
        let point = |step: i64, lane: usize| {
            let (mut rest, row) = (step / SIDE, step % SIDE);
            let mut numbers = vec![0; blocks.len()];
            for (i, n) in blocks.iter().enumerate().rev() {
                (numbers[i], rest) = (rest % n, rest / n);
            }
            let mut at = vec![0; launch.def.n_vars()];
            others.iter().zip(&numbers).for_each(|(v, number)| at[*v] = *number);
            let (x, y) = if along_x { (lane as i64, row) } else { (row, lane as i64) };
            at[tile.x] = numbers[others.len()] * SIDE + x;
            at[tile.y] = numbers[others.len() + 1] * SIDE + y;
            (at[tile.x] < launch.extent(tile.x) && at[tile.y] < launch.extent(tile.y)).then_some(at)
        };
        let along = if along_x { tile.x } else { tile.y };
        let n = blocks.iter().product::<i64>() * SIDE;
        launch.count(&mut traffic, touch, &Steps { n, point: &point, along, width: 1, whole: false });
    }
    traffic
}
