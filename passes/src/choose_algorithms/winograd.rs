//! y = conv(x, w), stride 1  =>  v = transform(x); m = v u; y = transform(m): 16 multiplications per tile instead of 36
//!
//! Winograd's F(2x2, 3x3) with tiles of 2 x 2 results: x is read in overlapping pieces of 4 x 4 elements. A piece is
//! transformed into 16 linear combinations, which are stored in 16 matrices [tiles, channels]. Each matrix is
//! multiplied by one of the 16 matrices of transformed filters; the 16 products of a tile give its four results, to
//! which the epilogue of the convolution is applied. In a 1D convolution, F(2, 3) needs 4 multiplications instead of 6,
//! and F(2, 5) needs 6 instead of 10. If a side of the result has odd length, the result gets an extra line that no
//! consumer reads.

use super::Part;
use super::tiles::{Scheme, TILE, every_way, number, places};
use crate::draft::Draft;
use crate::schedule;
use crate::splice::tidy;
use crate::steps::kernel;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Encoding};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::transform::{Transform, filter_block};
use sardonyx_dialects::flow::{
    Body, Class, Container, FlowOp, Kernel, Layout, Level, Memlet, Program, Source, Statement, Step, Store, Window,
};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{plain_load, products};
use std::sync::Arc;

/// A convolution that Winograd's algorithm can compute. Variables are given by their numbers.
pub struct Site {
    pub kernel: Kernel,
    pub args: Vec<Id>,
    source: Source,
    /// Whether the filters are f16.
    of_halves: bool,
    /// Operand and index of the image load.
    image: Memlet,
    reduce: usize,
    scheme: Scheme,
    sides: Vec<Side>,
    /// Variables of the output channel and of the input channel.
    o: usize,
    c: usize,
}

/// A side of the result: the variable that numbers its lines (or columns), and the variable of the filter offset that
/// is added to it.
#[derive(Clone, Copy, PartialEq)]
struct Side {
    at: usize,
    offset: usize,
}

/// Where the transformed filters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filters {
    /// The transformed filters are stored in the artifact in place of the filters.
    Stored,
    /// Each call transforms the filters.
    Made,
}

impl Site {
    /// Matches a convolution; `None` if Winograd's algorithm cannot compute the step. Sides of the result must be even,
    /// unless its consumers can ignore an extra line.
    pub fn find(program: &Program, step: &Step, producers: &[Option<usize>]) -> Option<Site> {
        let k = kernel(step).filter(|k| k.class() == Class::Contract)?;
        let products = products(k)?;
        let [[a, b]] = products[..] else { return None };
        let reduce = k.body.iter().position(|s| matches!(s.body, Body::Reduce { .. }))?;
        [[a, b], [b, a]]
            .into_iter()
            .find_map(|[image, filters]| Site::with(program, step, producers, k, (image, filters), reduce))
    }

    fn with(
        program: &Program,
        step: &Step,
        producers: &[Option<usize>],
        k: &Kernel,
        (image, filters): (usize, usize),
        reduce: usize,
    ) -> Option<Site> {
        let (image, filters) = (plain_load(k, image)?, k.plain_load(k.narrow(filters))?);
        let of_halves = match k.reads[filters.container].dtype {
            DType::F32 => false,
            DType::F16 => true,
            _ => return None,
        };
        let source = match &program.steps[producers[step.args[filters.container]]?].op {
            FlowOp::Param { source, window: None } if source.transform.is_none() => source.clone(),
            _ => return None,
        };
        let n_outer = k.outer.len();
        let extent = |v: usize| k.extents().nth(v).and_then(Dim::as_const);
        let &[o, c] = &filters.index.iter().take(2).map(Dim::as_variable).collect::<Option<Vec<usize>>>()?[..] else {
            return None;
        };
        // The offset variable of a side with a single filter tap is always 0.
        let still = |v: usize| v >= n_outer && v != c && extent(v) == Some(1);
        let moved = |d: &Dim| rename(d, &|v| still(v).then(|| Dim::constant(0)), &|k| k);
        let image = Memlet { index: image.index.iter().map(moved).collect(), ..image.clone() };
        let offsets = filters.index[2..].iter().map(moved).filter(|d| !d.is_const(0)).map(|d| d.as_variable());
        let offsets: Vec<usize> = offsets.collect::<Option<_>>()?;
        let scheme = Scheme::for_filter(extent(*offsets.first()?)?)?;
        let known = offsets.len() == 1 || offsets.len() == 2 && scheme == Scheme::Three;
        let square = known && offsets.iter().all(|v| extent(*v) == Some(scheme.filter()));
        let n_still = (n_outer..n_outer + k.inner.len()).filter(|v| still(*v)).count();
        let inner = [c].iter().chain(&offsets).all(|v| *v >= n_outer);
        let summed = inner && o < n_outer && k.inner.len() == 1 + offsets.len() + n_still;
        let container = &k.reads[filters.container];
        let whole = |(d, n): (&Dim, &Dim)| n.as_const() == moved(d).as_variable().map_or(Some(1), extent);
        let lies_flat = container.is_plain() && filters.index.iter().zip(&container.dims).all(whole);
        if !(square && summed && lies_flat && extent(o).is_some() && extent(c).is_some()) {
            return None;
        }
        // One index of the image must be the sum of a variable of the result and a filter offset, each with coefficient
        // 1.
        let beside = |offset: usize| {
            let index = image.index.iter().find(|d| d.variables().contains(&offset))?;
            let &[v, w] = &index.variables()[..] else { return None };
            let at = if v == offset { w } else { v };
            let steps = |d: &Dim, v: usize| d.linear_in(&Symbol::Variable(v)).filter(|(step, _)| step.is_const(1));
            let (_, rest) = steps(index, offset)?;
            let (_, rest) = steps(&rest, at)?;
            let once = image.index.iter().filter(|d| d.variables().contains(&offset)).count() == 1;
            (once && at < n_outer && at != o && rest.variables().is_empty()).then_some(Side { at, offset })
        };
        let sides: Vec<Side> = offsets.iter().map(|offset| beside(*offset)).collect::<Option<_>>()?;
        let alone = |d: &&Dim| d.as_variable() == Some(c);
        let covered = |v: usize| extent(v).is_some_and(|n| n % TILE == 0 || n > 1 && can_grow(program, step, v));
        sides.iter().try_fold(1i64, |n, side| n.checked_mul(extent(side.at)?))?;
        let of_side = |v: usize| sides.iter().any(|s| v == s.at || v == s.offset);
        let others = image.index.iter().filter(|d| !alone(d) && !d.variables().iter().any(|v| offsets.contains(v)));
        let independent = others.flat_map(Dim::variables).all(|v| v < n_outer && v != o && !of_side(v));
        let once = image.index.iter().filter(alone).count() == 1;
        let read = &k.reads[image.container];
        let lies_well = read.encoding == Encoding::Plain && !matches!(read.layout, Layout::Capacity { .. });
        let levels = k.levels();
        let f32s = k.reads[image.container].dtype == DType::F32 && k.body[reduce].dtype == DType::F32;
        let stored = k.stores.iter().all(|s| levels[s.value] == Level::Row);
        let distinct = sides.iter().all(|side| sides.iter().filter(|other| other.at == side.at).count() == 1);
        let fits = distinct && sides.iter().all(|side| covered(side.at)) && independent && once;
        (fits && lies_well && f32s && stored).then(|| Site {
            kernel: k.clone(),
            args: step.args.clone(),
            source,
            of_halves,
            image,
            reduce,
            scheme,
            sides,
            o,
            c,
        })
    }

    /// Returns the variable that counts images and its extent, if images are independent and there are several.
    pub fn batch(&self) -> Option<(usize, i64)> {
        let v = self.image.index.first()?.as_variable()?;
        let n = self.kernel.outer.get(v)?.as_const()?;
        let free = !self.is_side(v) && v != self.o && n > 1;
        let stored = self.kernel.stores.iter().all(|s| s.memlet.index.first().and_then(Dim::as_variable) == Some(v));
        (free && stored).then_some((v, n))
    }

    fn extent(&self, v: usize) -> Dim {
        self.kernel.extents().nth(v).cloned().unwrap_or(Dim::constant(1))
    }

    fn points(&self, v: usize) -> i64 {
        self.extent(v).as_const().unwrap_or(0)
    }

    fn is_side(&self, v: usize) -> bool {
        self.sides.iter().any(|side| side.at == v)
    }

    /// Returns the number of multiplications for a tile; the direct algorithm needs `taps` multiplications for each
    /// result.
    fn positions(&self) -> i64 {
        self.scheme.piece().pow(self.sides.len() as u32)
    }

    fn taps(&self) -> i64 {
        self.scheme.filter().pow(self.sides.len() as u32)
    }

    /// Returns the number of tiles along a line or a column; the last tile may extend past the edge.
    fn tiles(&self, v: usize) -> i64 {
        self.points(v).saturating_add(TILE - 1).div_euclid(TILE)
    }

    /// Returns the variables of the result other than its sides and its channel, with their extents in the part (or in
    /// the whole batch if `part` is `None`).
    fn others(&self, part: Option<&Part>) -> Vec<(usize, Dim)> {
        let own = |v: &usize| !self.is_side(*v) && *v != self.o;
        let extent = |v: usize| match part.filter(|part| part.var == v) {
            Some(part) => Dim::constant(part.size),
            None => self.extent(v),
        };
        (0..self.kernel.outer.len()).filter(own).map(|v| (v, extent(v))).collect()
    }

    /// Returns a container of the transformed matrices; `columns` is the variable whose extent is their number of
    /// columns.
    fn matrices(&self, part: Option<&Part>, columns: usize) -> Container {
        let others = self.others(part).into_iter().map(|(_, extent)| extent);
        let tiles = Dim::constant(self.sides.iter().map(|side| self.tiles(side.at)).product());
        let dims =
            [Dim::constant(self.positions())].into_iter().chain(others).chain([tiles, self.extent(columns)]).collect();
        Container::plain(DType::F32, dims)
    }

    /// Returns the bytes passed between the kernels; `size` gives the values of symbols.
    pub fn workspace(&self, part: Option<&Part>, size: &dyn Fn(&str) -> Option<i64>) -> Option<u64> {
        let bytes = |columns: usize| schedule::bytes(&self.matrices(part, columns)).ok()?.eval_named(size).ok();
        u64::try_from(bytes(self.c)?.checked_add(bytes(self.o)?)?).ok()
    }

    /// Returns how many more bytes the transformed matrices take than the filters, or `None` if they cannot be stored
    /// in the artifact. Filters of f16 count as f32, the type of the matrices.
    pub fn growth(&self) -> Option<u64> {
        let [c, o] = [self.c, self.o].map(|v| u64::try_from(self.points(v)).unwrap_or(0));
        let more = u64::try_from(4 * (self.positions() - self.taps())).unwrap_or(0);
        (self.sides.len() == 2).then(|| c.saturating_mul(o).saturating_mul(more))
    }

    /// Adds the steps that produce the transformed filters [positions, blocks, channels, block], and returns their
    /// container.
    pub fn filters(&self, program: &mut Program, from: Filters, origins: &[String]) -> Id {
        let [c, o] = [self.c, self.o].map(|v| self.points(v));
        let block = filter_block(o);
        let blocks = o.checked_div(block).unwrap_or(0);
        let dims = [self.positions(), blocks, c, block].map(Dim::constant).to_vec();
        let matrices = Container::plain(DType::F32, dims);
        let taps = self.taps();
        let rows = Container { dims: [taps * c, o].map(Dim::constant).to_vec(), ..matrices.clone() };
        let (rows_id, result) = (program.container(rows.clone()), program.container(matrices.clone()));
        let mut param = |source: &Source, transform: Option<Transform>, window: Option<Window>, id: Id| {
            let op = FlowOp::Param { source: Source { transform, ..source.clone() }, window };
            program.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
        };
        if from == Filters::Stored {
            let transform = if self.of_halves { Transform::WinogradF16 } else { Transform::Winograd };
            param(&self.source, Some(transform), None, result);
            return result;
        }
        // The window has one row for each tap and input channel, so that the output channels are contiguous along a
        // row.
        let window = Window { offset: 0, stride_k: 1, stride_n: c * taps, digits: vec![(c, taps)] };
        param(&self.source, None, Some(window), rows_id);
        let mut body = Draft { reads: vec![rows.clone()], ..Draft::default() };
        let load = |body: &mut Draft, place: &[i64]| {
            let tap = number(place, self.scheme.filter());
            let row = Dim::constant(tap * c) + Kernel::var(1);
            let column = Dim::constant(block) * Kernel::var(0) + Kernel::var(2);
            body.push(Body::Load { memlet: Memlet { container: 0, index: vec![row, column] }, guard: None }, DType::F32)
        };
        let square = (self.sides.len(), self.scheme.filter());
        let values = every_way(&mut body, square, load, |body, w| self.scheme.filters(body, w));
        let store = |(position, value): (usize, usize)| {
            let index = [Dim::constant(position as i64)].into_iter().chain((0..3).map(Kernel::var)).collect();
            Store { memlet: Memlet { container: 0, index }, value }
        };
        let stores = values.into_iter().enumerate().map(store).collect();
        let kernel = body.map(matrices.dims[1..].to_vec(), vec![matrices], stores);
        let (op, origins) = (FlowOp::Kernel(Arc::new(kernel)), origins.to_vec());
        program.steps.push(Step { op, args: vec![rows_id], results: vec![result], origins });
        result
    }

    /// Adds the three kernels that replace the convolution, for a part or the whole batch, given the transformed
    /// filters `u_id`; the kernels write `results`.
    pub fn apply(&self, program: &mut Program, part: Option<&Part>, u_id: Id, results: &[Id], origins: &[String]) {
        let written = self.grown(program, results);
        let (v, m) = (self.matrices(part, self.c), self.matrices(part, self.o));
        let u = program.containers[u_id].clone();
        let [v_id, m_id] = [v.clone(), m.clone()].map(|c| program.container(c));
        let mut step = |kernel: Kernel, args: Vec<Id>, results: Vec<Id>| {
            let op = FlowOp::Kernel(Arc::new(kernel));
            program.steps.push(Step { op, args, results, origins: origins.to_vec() });
        };
        step(self.pieces(part, v.clone()), vec![self.args[self.image.container]], vec![v_id]);
        step(self.multiply(part, (v, u), m.clone()), vec![v_id, u_id], vec![m_id]);
        let args = [self.args.clone(), vec![m_id]].concat();
        let (last, args) = tidy(self.results(part, m, written), args);
        step(last, args, results.to_vec());
    }

    /// Adds the extra line or column to the results where tiles extend past the edge, also to the operands of all
    /// kernels that read these results.
    fn grown(&self, program: &mut Program, results: &[Id]) -> Vec<Container> {
        let odd: Vec<usize> = self.sides.iter().map(|s| s.at).filter(|v| self.points(*v) % TILE != 0).collect();
        for store in &self.kernel.stores {
            let id = results[store.memlet.container];
            for (at, index) in store.memlet.index.iter().enumerate() {
                if let Some(v) = index.as_variable().filter(|v| odd.contains(v)) {
                    program.containers[id].dims[at] = Dim::constant(TILE * self.tiles(v));
                }
            }
        }
        let containers: Vec<Container> = results.iter().map(|id| program.containers[*id].clone()).collect();
        for step in program.steps.iter_mut().filter(|_| !odd.is_empty()) {
            let FlowOp::Kernel(kernel) = &mut step.op else { continue };
            let kernel = Arc::make_mut(kernel);
            for (read, id) in kernel.reads.iter_mut().zip(&step.args) {
                if let Some(at) = results.iter().position(|result| result == id) {
                    *read = containers[at].clone();
                }
            }
        }
        containers
    }

    /// Returns variable `v` of the convolution in terms of variable `new` of a kernel that computes a part, shifted by
    /// the part's start if `v` numbers the batch.
    fn place(&self, part: Option<&Part>, v: usize, new: usize) -> Dim {
        let first = part.filter(|part| part.var == v).map_or(0, |part| part.first);
        Kernel::var(new) + Dim::constant(first)
    }

    /// Returns the linear index of a tile, given the variables that number the tiles along each side.
    fn tile(&self, places: impl Iterator<Item = usize>) -> Dim {
        let with =
            |number, (side, place): (&Side, usize)| number * Dim::constant(self.tiles(side.at)) + Kernel::var(place);
        self.sides.iter().zip(places).fold(Dim::constant(0), with)
    }

    /// Builds the kernel: pieces of the image  =>  matrices [tiles, channels].
    fn pieces(&self, part: Option<&Part>, matrices: Container) -> Kernel {
        let others = self.others(part);
        let (first, channel) = (others.len(), others.len() + self.sides.len());
        let mut outer: Vec<Dim> = others.iter().map(|(_, extent)| extent.clone()).collect();
        outer.extend(self.sides.iter().map(|side| Dim::constant(self.tiles(side.at))));
        outer.push(self.extent(self.c));
        let mut body = Draft { reads: vec![self.kernel.reads[self.image.container].clone()], ..Draft::default() };
        let load = |body: &mut Draft, place: &[i64]| {
            let side = |v: usize| self.sides.iter().position(|side| side.at == v);
            let offset = |v: usize| self.sides.iter().position(|side| side.offset == v);
            let var = |v: usize| match (side(v), offset(v)) {
                (Some(side), _) => Some(Dim::constant(TILE) * Kernel::var(first + side)),
                (_, Some(side)) => Some(Dim::constant(place[side])),
                _ if v == self.c => Some(Kernel::var(channel)),
                _ => others.iter().position(|(other, _)| *other == v).map(|new| self.place(part, v, new)),
            };
            let image = &self.kernel.reads[self.image.container];
            // As `var`, but with the position of the last tile in place of the variables that number tiles.
            let last = |v: usize| match side(v) {
                Some(_) => Some(Dim::constant(TILE * (self.tiles(v) - 1))),
                None => var(v),
            };
            let inside = |(d, n): (&Dim, &Dim)| {
                let (index, end) = (rename(d, &var, &|k| k), n.clone() - Dim::constant(1));
                let over = (rename(d, &last, &|k| k) - end.clone()).as_const().is_some_and(|over| over > 0);
                // Positions past the edge are clamped to the last element; the results computed from them are not read.
                if over { index.minimum(&end) } else { index }
            };
            let index = self.image.index.iter().zip(&image.dims).map(inside).collect();
            body.push(Body::Load { memlet: Memlet { container: 0, index }, guard: None }, DType::F32)
        };
        let square = (self.sides.len(), self.scheme.piece());
        let values = every_way(&mut body, square, load, |body, d| self.scheme.image(body, d));
        let store = |(position, value): (usize, usize)| {
            let index = [Dim::constant(position as i64)].into_iter().chain((0..first).map(Kernel::var));
            let index = index.chain([self.tile(first..channel), Kernel::var(channel)]).collect();
            Store { memlet: Memlet { container: 0, index }, value }
        };
        body.map(outer, vec![matrices], values.into_iter().enumerate().map(store).collect())
    }

    /// Builds the kernel that multiplies each matrix by the matrix of transformed filters with the same position.
    fn multiply(&self, part: Option<&Part>, (v, u): (Container, Container), m: Container) -> Kernel {
        let n = self.others(part).len();
        let (tile, block, out, channel) = (n + 1, n + 2, n + 3, n + 4);
        let lead = || (0..=tile).map(Kernel::var);
        let load = |container: usize, index: Vec<Dim>| Statement {
            body: Body::Load { memlet: Memlet { container, index }, guard: None },
            dtype: DType::F32,
        };
        let product = Body::Apply { f: ScalarFn::Mul, args: vec![0, 1] };
        let sum = Body::Reduce { f: sardonyx_dialects::scalar::ReduceFn::Add, arg: 2 };
        let body = vec![
            load(0, lead().chain([Kernel::var(channel)]).collect()),
            load(1, [0, block, channel, out].map(Kernel::var).to_vec()),
            Statement { body: product, dtype: DType::F32 },
            Statement { body: sum, dtype: DType::F32 },
        ];
        let column = Kernel::var(block) * u.dims[3].clone() + Kernel::var(out);
        let stores = vec![Store { memlet: Memlet { container: 0, index: lead().chain([column]).collect() }, value: 3 }];
        let outer = m.dims[..m.dims.len() - 1].iter().chain([&u.dims[1], &u.dims[3]]).cloned().collect();
        let (inner, deep) = (vec![self.extent(self.c)], vec![]);
        Kernel { outer, inner, deep, reads: vec![v, u], writes: vec![m], body, stores }
    }

    /// Builds the kernel: products of a tile  =>  its results, each followed by the convolution's epilogue.
    fn results(&self, part: Option<&Part>, m: Container, writes: Vec<Container>) -> Kernel {
        let k = &self.kernel;
        let others = self.others(part);
        let extent = |v: usize| match others.iter().find(|(other, _)| *other == v) {
            _ if self.is_side(v) => Dim::constant(self.tiles(v)),
            Some((_, extent)) => extent.clone(),
            None => self.extent(v),
        };
        let outer = (0..k.outer.len()).map(extent).collect();
        let n_reads = k.reads.len();
        let mut body = Draft { reads: [k.reads.clone(), vec![m]].concat(), ..Draft::default() };
        let load = |body: &mut Draft, place: &[i64]| {
            let position = Dim::constant(number(place, self.scheme.piece()));
            let lead = [position].into_iter().chain(others.iter().map(|(v, _)| Kernel::var(*v)));
            let tile = self.tile(self.sides.iter().map(|side| side.at));
            let index = lead.chain([tile, Kernel::var(self.o)]).collect();
            body.push(Body::Load { memlet: Memlet { container: n_reads, index }, guard: None }, DType::F32)
        };
        let square = (self.sides.len(), self.scheme.piece());
        let sums = every_way(&mut body, square, load, |body, m| self.scheme.results(body, m));
        let mut stores = vec![];
        for (place, sum) in places(self.sides.len(), TILE).into_iter().zip(sums) {
            let digit = |v: usize| self.sides.iter().position(|side| side.at == v).map(|side| place[side]);
            let var = |v: usize| match digit(v) {
                Some(digit) => Some(Dim::constant(TILE) * Kernel::var(v) + Dim::constant(digit)),
                None => Some(self.place(part, v, v)),
            };
            let out = |v: usize| self.points(v) % TILE != 0 && digit(v).is_some_and(|digit| digit > 0);
            let inside = |v: usize| match var(v) {
                Some(at) if out(v) => Some(at.minimum(&Dim::constant(self.points(v) - 1))),
                at => at,
            };
            let map = body.follow(&self.kernel, (self.reduce, sum), &inside);
            let renamed = |d: &Dim, var: &dyn Fn(usize) -> Option<Dim>| rename(d, var, &|k| map[k]);
            // A part is written to a separate container, so its batch variable is not shifted.
            let own = |v: usize| if part.is_some_and(|part| part.var == v) { None } else { var(v) };
            stores.extend(k.stores.iter().map(|store| {
                let index = store.memlet.index.iter().map(|d| renamed(d, &own)).collect();
                Store { memlet: Memlet { container: store.memlet.container, index }, value: map[store.value] }
            }));
        }
        body.map(outer, writes, stores)
    }
}

/// Whether every result of a step may have an extra line along a variable: its stores index one dimension by that
/// variable alone, only kernels read the results, and none is an output.
fn can_grow(program: &Program, step: &Step, v: usize) -> bool {
    let steps_alone = |store: &Store| {
        let moved: Vec<&Dim> = store.memlet.index.iter().filter(|d| d.variables().contains(&v)).collect();
        moved.len() == 1 && moved[0].as_variable() == Some(v)
    };
    let own = |ids: &[Id]| ids.iter().any(|id| step.results.contains(id));
    let read = program.steps.iter().filter(|s| own(&s.args)).all(|s| matches!(s.op, FlowOp::Kernel(_)));
    let kept = program.outputs.iter().any(|(_, id)| step.results.contains(id));
    kernel(step).is_some_and(|k| k.stores.iter().all(steps_alone)) && read && !kept
}
