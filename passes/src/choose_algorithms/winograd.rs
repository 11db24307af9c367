//! y = conv(x, w), 3x3, stride 1  =>  v = transform(x); m = v u; y = transform(m): 16 products where there were 36
//!
//! Winograd's F(2x2, 3x3) by tiles of 2 x 2 results: x is read in overlapping pieces of 4 x 4, whose 16 combinations lie
//! in 16 matrices [tiles, channels]; each is multiplied with one of the 16 matrices that the filters were made to when
//! the artifact was written; of the 16 products of a tile its four results are made, and what followed the sum follows.
//! Where a side is odd the results get a line more, which nobody reads.

use super::Part;
use crate::draft::Draft;
use crate::fusion::{bare_var, kernel, own_vars, tidy};
use crate::kernel::{plain_load, products};
use crate::schedule;
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::{Id, Transform, filter_block};
use sardonyx_dialects::flow::{
    Body, Class, Container, FlowOp, Kernel, Layout, Level, Memlet, Program, Source, Statement, Step, Store,
};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_runtime::{DType, Dim};
use std::array::from_fn;

/// Results of a tile along a side, and what they are computed from.
const TILE: i64 = 2;
const PIECE: i64 = 4;
const POSITIONS: i64 = PIECE * PIECE;
/// Offsets of a filter along a side.
const FILTER: i64 = 3;

/// A convolution that can be computed so. Variables by their numbers.
pub struct Site {
    pub kernel: Kernel,
    pub args: Vec<Id>,
    source: Source,
    /// Operand and index of the image.
    image: Memlet,
    reduce: usize,
    /// Line and column of the result, its channel.
    p: usize,
    q: usize,
    o: usize,
    /// Channel of the image, and the offsets.
    c: usize,
    i: usize,
    j: usize,
}

impl Site {
    /// `None` where a step is no such convolution; sides of the result must be even, or what reads it must be able to
    /// leave a line of it out.
    pub fn of(program: &Program, step: &Step, producers: &[Option<usize>]) -> Option<Site> {
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
        let (image, filters) = (plain_load(k, image)?, plain_load(k, filters)?);
        let source = match &program.steps[producers[step.args[filters.container]]?].op {
            FlowOp::Param { source, window: None } if source.transform.is_none() => source.clone(),
            _ => return None,
        };
        let vars: Option<Vec<usize>> = filters.index.iter().map(bare_var).collect();
        let &[o, c, i, j] = &vars?[..] else { return None };
        let n_outer = k.outer.len();
        let extent = |v: usize| k.extents().nth(v).and_then(Dim::as_const);
        let summed = [c, i, j].iter().all(|v| *v >= n_outer) && k.inner.len() == 3;
        if o >= n_outer || !summed || extent(i)? != FILTER || extent(j)? != FILTER || extent(c).is_none() {
            return None;
        }
        // One index moves with a variable of the result and with an offset, by one each.
        let beside = |offset: usize| {
            let index = image.index.iter().find(|d| own_vars(d).contains(&offset))?;
            let &[v, w] = &own_vars(index)[..] else { return None };
            let at = if v == offset { w } else { v };
            let steps = |d: &Dim, v: usize| d.linear_in(&format!("%{v}")).filter(|(step, _)| step.is_const(1));
            let (_, rest) = steps(index, offset)?;
            let (_, rest) = steps(&rest, at)?;
            (at < n_outer && at != o && own_vars(&rest).is_empty()).then_some(at)
        };
        let (p, q) = (beside(i)?, beside(j)?);
        let alone = |d: &&Dim| bare_var(d) == Some(c);
        let covered = |v: usize| extent(v).is_some_and(|n| n % TILE == 0 || n > 1 && can_grow(program, step, v));
        extent(p)?.checked_mul(extent(q)?)?;
        let others = image.index.iter().filter(|d| !alone(d) && own_vars(d).iter().any(|v| *v != p && *v != q));
        let independent = others.filter(|d| !own_vars(d).contains(&i) && !own_vars(d).contains(&j));
        let whole = independent.flat_map(own_vars).all(|v| v < n_outer && ![p, q, o].contains(&v));
        let once = image.index.iter().filter(alone).count() == 1;
        let lies_well = matches!(k.reads[image.container].layout, Layout::RowMajor | Layout::Order(_));
        let levels = k.levels();
        let f32s = k.reads[image.container].dtype == DType::F32 && k.body[reduce].dtype == DType::F32;
        let stored = k.stores.iter().all(|s| levels[s.value] == Level::Row);
        (p != q && covered(p) && covered(q) && extent(o).is_some() && whole && once && lies_well && f32s && stored)
            .then(|| Site {
                kernel: k.clone(),
                args: step.args.clone(),
                source,
                image: image.clone(),
                reduce,
                p,
                q,
                o,
                c,
                i,
                j,
            })
    }

    /// The variable that counts images, where they are independent and many.
    pub fn batch(&self) -> Option<(usize, i64)> {
        let v = bare_var(self.image.index.first()?)?;
        let n = self.kernel.outer.get(v)?.as_const()?;
        let free = v != self.p && v != self.q && v != self.o && n > 1;
        let stored = self.kernel.stores.iter().all(|s| s.memlet.index.first().and_then(bare_var) == Some(v));
        (free && stored).then_some((v, n))
    }

    fn extent(&self, v: usize) -> Dim {
        self.kernel.extents().nth(v).cloned().unwrap_or(Dim::constant(1))
    }

    fn points(&self, v: usize) -> i64 {
        self.extent(v).as_const().unwrap_or(0)
    }

    /// Tiles along a line or a column; the last one may stick out.
    fn side(&self, v: usize) -> i64 {
        self.points(v).saturating_add(TILE - 1).div_euclid(TILE)
    }

    /// Variables of the result beside line, column and channel, and how many of each there are in a part.
    fn others(&self, part: Option<&Part>) -> Vec<(usize, Dim)> {
        let own = |v: &usize| ![self.p, self.q, self.o].contains(v);
        let extent = |v: usize| match part.filter(|part| part.var == v) {
            Some(part) => Dim::constant(part.size),
            None => self.extent(v),
        };
        (0..self.kernel.outer.len()).filter(own).map(|v| (v, extent(v))).collect()
    }

    /// The dimensions of the 16 matrices with as many columns as a variable has points.
    fn matrices(&self, part: Option<&Part>, columns: usize) -> Container {
        let others = self.others(part).into_iter().map(|(_, extent)| extent);
        let tiles = Dim::constant(self.side(self.p) * self.side(self.q));
        let dims = [Dim::constant(POSITIONS)].into_iter().chain(others).chain([tiles, self.extent(columns)]).collect();
        Container { dtype: DType::F32, dims, layout: Layout::RowMajor }
    }

    /// Bytes of what lies between the kernels; `size` gives the values of symbols.
    pub fn workspace(&self, part: Option<&Part>, size: &dyn Fn(&str) -> Option<i64>) -> Option<u64> {
        let bytes = |columns: usize| schedule::bytes(&self.matrices(part, columns)).ok()?.eval(size).ok();
        u64::try_from(bytes(self.c)?.checked_add(bytes(self.o)?)?).ok()
    }

    /// Bytes by which the filters become more.
    pub fn growth(&self) -> u64 {
        let [c, o] =
            [self.c, self.o].map(|v| self.extent(v).as_const().and_then(|n| u64::try_from(n).ok()).unwrap_or(0));
        c.saturating_mul(o).saturating_mul(4 * (POSITIONS - FILTER * FILTER) as u64)
    }

    /// The three kernels in place of the one, for a part or for all; the results are those of the one.
    pub fn apply(&self, program: &mut Program, part: Option<&Part>, results: &[Id], origins: &[String]) {
        let written = self.grown(program, results);
        let mut step = |op: FlowOp, args: Vec<Id>, results: Vec<Id>| {
            program.steps.push(Step { op, args, results, origins: origins.to_vec() });
        };
        let containers = &mut program.containers;
        let mut container = |c: Container| {
            containers.push(c);
            containers.len() - 1
        };
        let [c, o] = [self.c, self.o].map(|v| self.extent(v).as_const().unwrap_or(0));
        let block = filter_block(o);
        let blocks = o.checked_div(block).unwrap_or(0);
        let filters = Container {
            dtype: DType::F32,
            dims: [POSITIONS, blocks, c, block].map(Dim::constant).to_vec(),
            layout: Layout::RowMajor,
        };
        let source = Source { transform: Some(Transform::Winograd), ..self.source.clone() };
        let (v, m) = (self.matrices(part, self.c), self.matrices(part, self.o));
        let [v_id, m_id, u_id] = [v.clone(), m.clone(), filters.clone()].map(&mut container);
        step(FlowOp::Param { source, window: None }, vec![], vec![u_id]);
        let image = self.args[self.image.container];
        step(FlowOp::Kernel(Box::new(self.pieces(part, v.clone()))), vec![image], vec![v_id]);
        step(FlowOp::Kernel(Box::new(self.multiply(part, (v, filters), m.clone()))), vec![v_id, u_id], vec![m_id]);
        let args = [self.args.clone(), vec![m_id]].concat();
        let (last, args) = tidy(self.results(part, m, written), args);
        step(FlowOp::Kernel(Box::new(last)), args, results.to_vec());
    }

    /// What the results become where tiles stick out: one line or column more, in all that reads them too.
    fn grown(&self, program: &mut Program, results: &[Id]) -> Vec<Container> {
        let odd: Vec<usize> = [self.p, self.q].into_iter().filter(|v| self.points(*v) % TILE != 0).collect();
        for store in &self.kernel.stores {
            let id = results[store.memlet.container];
            for (at, index) in store.memlet.index.iter().enumerate() {
                if let Some(v) = bare_var(index).filter(|v| odd.contains(v)) {
                    program.containers[id].dims[at] = Dim::constant(TILE * self.side(v));
                }
            }
        }
        let containers: Vec<Container> = results.iter().map(|id| program.containers[*id].clone()).collect();
        for step in program.steps.iter_mut().filter(|_| !odd.is_empty()) {
            let FlowOp::Kernel(kernel) = &mut step.op else { continue };
            for (read, id) in kernel.reads.iter_mut().zip(&step.args) {
                if let Some(at) = results.iter().position(|result| result == id) {
                    *read = containers[at].clone();
                }
            }
        }
        containers
    }

    /// Where a variable of the kernel is in one that has those of a part, tiles in place of points.
    fn place(&self, part: Option<&Part>, v: usize, new: usize) -> Dim {
        let first = part.filter(|part| part.var == v).map_or(0, |part| part.first);
        Kernel::var(new) + Dim::constant(first)
    }

    /// The number of a tile by its line and column.
    fn tile(&self, line: usize, column: usize) -> Dim {
        Kernel::var(line) * Dim::constant(self.side(self.q)) + Kernel::var(column)
    }

    /// Pieces of the image  =>  the 16 matrices of tiles by channels.
    fn pieces(&self, part: Option<&Part>, matrices: Container) -> Kernel {
        let others = self.others(part);
        let (line, column, channel) = (others.len(), others.len() + 1, others.len() + 2);
        let mut outer: Vec<Dim> = others.iter().map(|(_, extent)| extent.clone()).collect();
        outer.extend([Dim::constant(self.side(self.p)), Dim::constant(self.side(self.q)), self.extent(self.c)]);
        let two = || Dim::constant(TILE);
        let mut body = Draft { reads: vec![self.kernel.reads[self.image.container].clone()], ..Draft::default() };
        let load = |body: &mut Draft, a: i64, b: i64| {
            let var = |v: usize| match v {
                v if v == self.p => Some(two() * Kernel::var(line)),
                v if v == self.q => Some(two() * Kernel::var(column)),
                v if v == self.c => Some(Kernel::var(channel)),
                v if v == self.i => Some(Dim::constant(a)),
                v if v == self.j => Some(Dim::constant(b)),
                v => others.iter().position(|(other, _)| *other == v).map(|new| self.place(part, v, new)),
            };
            let image = &self.kernel.reads[self.image.container];
            // The last tile's, where others have variables.
            let last = |v: usize| match v {
                v if v == self.p || v == self.q => Some(Dim::constant(TILE * (self.side(v) - 1))),
                v => var(v),
            };
            let inside = |(d, n): (&Dim, &Dim)| {
                let (index, end) = (rename(d, &var, &|k| k), n.clone() - Dim::constant(1));
                let over = (rename(d, &last, &|k| k) - end.clone()).as_const().is_some_and(|over| over > 0);
                // What a tile that sticks out would read is replaced by what is near.
                if over { index.minimum(&end) } else { index }
            };
            let index = self.image.index.iter().zip(&image.dims).map(inside).collect();
            body.push(Body::Load { memlet: Memlet { container: 0, index }, guard: None }, DType::F32)
        };
        let sum = |body: &mut Draft, f, a, b| body.apply(f, &[a, b], DType::F32);
        let combined = |body: &mut Draft, d: [usize; 4]| {
            use ScalarFn::{Add, Sub};
            [
                sum(body, Sub, d[0], d[2]),
                sum(body, Add, d[1], d[2]),
                sum(body, Sub, d[2], d[1]),
                sum(body, Sub, d[1], d[3]),
            ]
        };
        let mut stores = vec![];
        for (a, row) in both_ways(&mut body, load, combined).into_iter().enumerate() {
            for (b, value) in row.into_iter().enumerate() {
                let position = Dim::constant(PIECE * a as i64 + b as i64);
                let index = [position].into_iter().chain((0..others.len()).map(Kernel::var));
                let index = index.chain([self.tile(line, column), Kernel::var(channel)]).collect();
                stores.push(Store { memlet: Memlet { container: 0, index }, value });
            }
        }
        Kernel {
            outer,
            inner: vec![],
            deep: vec![],
            reads: body.reads,
            writes: vec![matrices],
            body: body.body,
            stores,
        }
    }

    /// Each of the 16 matrices by that of the filters.
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

    /// The 16 products of a tile  =>  its four results, each as it was computed from the sum.
    fn results(&self, part: Option<&Part>, m: Container, writes: Vec<Container>) -> Kernel {
        let k = &self.kernel;
        let others = self.others(part);
        let extent = |v: usize| match v {
            v if v == self.p || v == self.q => Dim::constant(self.side(v)),
            v => others.iter().find(|(other, _)| *other == v).map_or(self.extent(v), |(_, extent)| extent.clone()),
        };
        let outer = (0..k.outer.len()).map(extent).collect();
        let n_reads = k.reads.len();
        let mut body = Draft { reads: [k.reads.clone(), vec![m]].concat(), ..Draft::default() };
        let load = |body: &mut Draft, a: i64, b: i64| {
            let lead = [Dim::constant(PIECE * a + b)].into_iter().chain(others.iter().map(|(v, _)| Kernel::var(*v)));
            let index = lead.chain([self.tile(self.p, self.q), Kernel::var(self.o)]).collect();
            body.push(Body::Load { memlet: Memlet { container: n_reads, index }, guard: None }, DType::F32)
        };
        let combined = |body: &mut Draft, m: [usize; 4]| {
            let mut sum = |f, a, b| body.apply(f, &[a, b], DType::F32);
            let (plus, minus) = (sum(ScalarFn::Add, m[1], m[2]), sum(ScalarFn::Sub, m[1], m[2]));
            [sum(ScalarFn::Add, m[0], plus), sum(ScalarFn::Sub, minus, m[3])]
        };
        let mut stores = vec![];
        for (r, row) in both_ways(&mut body, load, combined).into_iter().enumerate() {
            for (s, sum) in row.into_iter().enumerate() {
                let two = || Dim::constant(TILE);
                let var = |v: usize| match v {
                    v if v == self.p => Some(two() * Kernel::var(v) + Dim::constant(r as i64)),
                    v if v == self.q => Some(two() * Kernel::var(v) + Dim::constant(s as i64)),
                    v => Some(self.place(part, v, v)),
                };
                let out = |v: usize| self.points(v) % TILE != 0 && (v == self.p && r > 0 || v == self.q && s > 0);
                let inside = |v: usize| match var(v) {
                    Some(at) if out(v) => Some(at.minimum(&Dim::constant(self.points(v) - 1))),
                    at => at,
                };
                let map = self.follow(&mut body, sum, &inside);
                let renamed = |d: &Dim, var: &dyn Fn(usize) -> Option<Dim>| rename(d, var, &|k| map[k]);
                // A part has results of its own.
                let own = |v: usize| if part.is_some_and(|part| part.var == v) { None } else { var(v) };
                stores.extend(k.stores.iter().map(|store| {
                    let index = store.memlet.index.iter().map(|d| renamed(d, &own)).collect();
                    Store { memlet: Memlet { container: store.memlet.container, index }, value: map[store.value] }
                }));
            }
        }
        Kernel { outer, inner: vec![], deep: vec![], reads: body.reads, writes, body: body.body, stores }
    }

    /// What follows the sum, with another value for it. Gives each statement's new number.
    fn follow(&self, body: &mut Draft, sum: usize, var: &dyn Fn(usize) -> Option<Dim>) -> Vec<usize> {
        let (k, levels) = (&self.kernel, self.kernel.levels());
        let mut map: Vec<usize> = vec![];
        for (at, statement) in k.body.iter().enumerate() {
            map.push(match levels[at] {
                _ if at == self.reduce => sum,
                Level::Row => {
                    let new = statement.body.renumbered(&|k| map[k], &|d| rename(d, var, &|k| map[k]));
                    body.push(new, statement.dtype)
                }
                // Only the sum needs it.
                Level::Point | Level::Deep => sum,
            });
        }
        map
    }
}

/// Whether every result of a step may have a line more along a variable: its stores step with that alone, and only
/// kernels read it.
fn can_grow(program: &Program, step: &Step, v: usize) -> bool {
    let steps_alone = |store: &Store| {
        let moved: Vec<&Dim> = store.memlet.index.iter().filter(|d| own_vars(d).contains(&v)).collect();
        moved.len() == 1 && bare_var(moved[0]) == Some(v)
    };
    let own = |ids: &[Id]| ids.iter().any(|id| step.results.contains(id));
    let read = program.steps.iter().filter(|s| own(&s.args)).all(|s| matches!(s.op, FlowOp::Kernel(_)));
    let kept = program.outputs.iter().any(|(_, id)| step.results.contains(id));
    kernel(step).is_some_and(|k| k.stores.iter().all(steps_alone)) && read && !kept
}

/// What 16 values come to, combined along the columns of their square and then along its rows.
fn both_ways<const N: usize>(
    body: &mut Draft,
    load: impl Fn(&mut Draft, i64, i64) -> usize,
    combined: impl Fn(&mut Draft, [usize; 4]) -> [usize; N],
) -> [[usize; N]; N] {
    let columns: [[usize; N]; 4] = from_fn(|b| {
        let column = from_fn(|a| load(body, a as i64, b as i64));
        combined(body, column)
    });
    from_fn(|a| combined(body, from_fn(|b| columns[b][a])))
}
