//! x[batch, position, ..]  =>  x[row, ..]: adds tables of rows, kernels over packed rows, and unpacking
//!
//! Rows are in the order of the mask's elements, so the rows of a sequence are adjacent. Attention indexes keys by
//! their number j in the sequence: `first + j`, where `j < length`.

use super::proof::{Fact, Proof, Role, Rows, rows_of};
use crate::draft::Draft;
use crate::splice::tidy;
use crate::steps::{drop_dead, kernel};
use sardonyx_base::{DType, Dim, HostOp};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{
    Body, Class, Container, FlowOp, HostCall, HostResult, Kernel, Level, Memlet, Program, Step, Store,
};
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Symbol, SymbolKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the program over packed rows, or `None` if a kernel would change its class.
pub fn apply(program: &Program, proof: &Proof, origins: &[String]) -> Option<Program> {
    let mut new = Packing::begin(program, proof, origins);
    for (step, role) in program.steps.iter().zip(&proof.roles) {
        match role {
            Role::AsItIs => new.program.steps.push(step.clone()),
            Role::View => new.view(step),
            Role::Rows(rows) => new.kernel(step, rows)?,
        }
        for id in step.results.iter().filter(|id| proof.unpacked.contains(id)) {
            new.unpack(*id, &step.origins);
        }
    }
    let mut program = new.program;
    drop_dead(&mut program);
    Some(program)
}

struct Packing<'a> {
    proof: &'a Proof,
    origins: &'a [String],
    program: Program,
    /// Number of rows that are kept: the positions of all sequences that `keep` selects.
    rows: Dim,
    /// bool [batch, positions]: whether each position is kept.
    keep: Id,
    /// i64 [2, rows]: batch and position of each row.
    places: Id,
    /// i64 [rows]: the first row of each row's sequence, and the number of rows of that sequence.
    first: Id,
    length: Id,
    /// i64 [batch]: the first row of each sequence.
    starts: Id,
    /// i64 [batch, positions]: the row of each kept position; `None` until it is needed.
    row_of: Option<Id>,
    packed: BTreeMap<Id, Id>,
}

impl<'a> Packing<'a> {
    /// Adds the tables of rows, which are computed from the mask.
    fn begin(program: &Program, proof: &'a Proof, origins: &'a [String]) -> Packing<'a> {
        let mut own = Program { steps: vec![], ..program.clone() };
        let mut name = "rows".to_string();
        while own.symbols.contains_key(&name) {
            name.push('_');
        }
        own.symbols.insert(name.clone(), Symbol { kind: SymbolKind::Data, lo: 0, hi: None });
        let rows = Dim::symbol(&name);
        let (b, s) = (proof.batch.clone(), proof.positions.clone());
        let (packed, row_of) = (BTreeMap::new(), None);
        let (keep, places, first, length, starts) = (0, 0, 0, 0, 0);
        let mut new =
            Packing { proof, origins, program: own, rows, keep, places, first, length, starts, row_of, packed };
        // If a mask excludes a whole sequence, all its positions are kept, so that its results, which are arbitrary but
        // may be read, are the same as in the original program.
        let mut d = Draft::default();
        let seen = new.seen(&mut d, 0, 1);
        let n_seen = d.count(seen);
        let n_seen = new.push(d, vec![b.clone()], vec![s.clone()], &[(n_seen, vec![b.clone()], vec![0])])[0];
        let mut d = Draft::default();
        let mut keep = new.seen(&mut d, 0, 1);
        let n = d.load(&new.program, n_seen, vec![Kernel::var(0)], None);
        let zero = d.number(0);
        let none = d.apply(ScalarFn::Eq, &[n, zero], DType::Bool);
        keep = d.apply(ScalarFn::Or, &[keep, none], DType::Bool);
        for position in &proof.kept {
            let (at, number) = (d.var(1), d.number(*position));
            let here = d.apply(ScalarFn::Eq, &[at, number], DType::Bool);
            keep = d.apply(ScalarFn::Or, &[keep, here], DType::Bool);
        }
        new.keep =
            new.push(d, vec![b.clone(), s.clone()], vec![], &[(keep, vec![b.clone(), s.clone()], vec![0, 1])])[0];
        let mut d = Draft::default();
        let kept = d.load(&new.program, new.keep, vec![Kernel::var(0), Kernel::var(1)], None);
        let count = d.count(kept);
        let counts = new.push(d, vec![b.clone()], vec![s], &[(count, vec![b.clone()], vec![0])])[0];
        let mut d = Draft::default();
        let count = d.load(&new.program, counts, vec![Kernel::var(1)], None);
        let (other, own) = (d.var(1), d.var(0));
        let before = d.apply(ScalarFn::Lt, &[other, own], DType::Bool);
        let zero = d.number(0);
        let count = d.apply(ScalarFn::Select, &[before, count, zero], DType::I64);
        let start = d.sum(count);
        new.starts = new.push(d, vec![b.clone()], vec![b.clone()], &[(start, vec![b], vec![0])])[0];
        new.places = new.container(DType::I64, vec![Dim::constant(2), new.rows.clone()]);
        let op = HostCall {
            op: HostOp::NonZero,
            bodies: vec![],
            results: vec![HostResult { index: 0, binds: vec![(1, name)] }],
        };
        let (args, results) = (vec![new.keep], vec![new.places]);
        new.program.steps.push(Step { op: FlowOp::Host(op), args, results, origins: origins.to_vec() });
        let mut d = Draft::default();
        let batch = d.load(&new.program, new.places, vec![Dim::constant(0), Kernel::var(0)], None);
        let first = d.load(&new.program, new.starts, vec![Kernel::value(batch)], None);
        let length = d.load(&new.program, counts, vec![Kernel::value(batch)], None);
        let dims = vec![new.rows.clone()];
        let stores = [(first, dims.clone(), vec![0]), (length, dims.clone(), vec![0])];
        let made = new.push(d, dims.clone(), vec![], &stores);
        (new.first, new.length) = (made[0], made[1]);
        new
    }

    fn container(&mut self, dtype: DType, dims: Vec<Dim>) -> Id {
        self.program.container(Container::plain(dtype, dims))
    }

    /// Appends a bool statement: whether the mask is nonzero at the given variables for batch and position.
    fn seen(&self, d: &mut Draft, batch: usize, position: usize) -> usize {
        let index = vec![Kernel::var(batch), Kernel::var(position)];
        let mask = d.load(&self.program, self.proof.mask, index, None);
        match self.program.containers[self.proof.mask].dtype {
            DType::Bool => mask,
            _ => d.push(Body::Convert(mask, Conversion::Value), DType::Bool),
        }
    }

    /// Adds a kernel; each of its results is given by a statement, its dimensions and the variables that index it.
    fn push(
        &mut self,
        d: Draft,
        outer: Vec<Dim>,
        inner: Vec<Dim>,
        stores: &[(usize, Vec<Dim>, Vec<usize>)],
    ) -> Vec<Id> {
        let mut results = vec![];
        let mut written = vec![];
        for (w, (value, dims, vars)) in stores.iter().enumerate() {
            results.push(self.container(d.body[*value].dtype, dims.clone()));
            let index = vars.iter().map(|v| Kernel::var(*v)).collect();
            written.push(Store { memlet: Memlet { container: w, index }, value: *value });
        }
        let writes = results.iter().map(|id| self.program.containers[*id].clone()).collect();
        let kernel = Kernel { outer, inner, deep: vec![], reads: d.reads, writes, body: d.body, stores: written };
        self.step(kernel, d.args, results.clone(), self.origins.to_vec());
        results
    }

    fn step(&mut self, kernel: Kernel, args: Vec<Id>, results: Vec<Id>, origins: Vec<String>) {
        let (kernel, args) = tidy(kernel, args);
        self.program.steps.push(Step { op: FlowOp::Kernel(Arc::new(kernel)), args, results, origins });
    }

    /// Returns the packed container that corresponds to a container of all positions, and creates it if there is none
    /// yet.
    fn packed(&mut self, id: Id, axes: (usize, usize)) -> Id {
        if let Some(packed) = self.packed.get(&id) {
            return *packed;
        }
        let Container { dtype, mut dims, .. } = self.program.containers[id].clone();
        dims[axes.0] = self.rows.clone();
        dims.remove(axes.1);
        let packed = self.container(dtype, dims);
        self.packed.insert(id, packed);
        packed
    }

    fn view(&mut self, step: &Step) {
        let (from, to) = (self.packed(step.args[0], (0, 1)), self.packed(step.results[0], (0, 1)));
        self.program.steps.push(Step { args: vec![from], results: vec![to], ..step.clone() });
    }

    /// Adds a kernel that packs container `id` into rows, for consumers that cannot look up rows themselves.
    fn pack(&mut self, id: Id, (b, s): (usize, usize), origins: &[String]) -> Id {
        if let Some(packed) = self.packed.get(&id) {
            return *packed;
        }
        let to = self.packed(id, (b, s));
        let dims = self.program.containers[to].dims.clone();
        // The row takes the position of the batch dimension; the other dimensions keep their order.
        let row = b - usize::from(s < b);
        let mut d = Draft::default();
        let [batch, position] =
            [0, 1].map(|which| d.load(&self.program, self.places, vec![Dim::constant(which), Kernel::var(row)], None));
        let mut index: Vec<Dim> = (0..dims.len()).map(Kernel::var).collect();
        index[row] = Kernel::value(batch);
        index.insert(s, Kernel::value(position));
        let value = d.load(&self.program, id, index, None);
        let memlet = Memlet { container: 0, index: (0..dims.len()).map(Kernel::var).collect() };
        let writes = vec![self.program.containers[to].clone()];
        let stores = vec![Store { memlet, value }];
        let kernel = Kernel { outer: dims, inner: vec![], deep: vec![], reads: d.reads, writes, body: d.body, stores };
        self.step(kernel, d.args, vec![to], origins.to_vec());
        to
    }

    /// Unpacks a container. Positions that have no row get the number that the original program would store there, if
    /// it is known, otherwise 0. In an output, all positions where the mask is 0 get 0.
    fn unpack(&mut self, id: Id, origins: &[String]) {
        let axes = self.proof.facts[id].map_or((0, 1), |f| f.axes);
        let row_of = self.row_of();
        let packed = self.packed[&id];
        let outputs = self.program.outputs.iter().filter(|(_, o)| *o == id).count();
        let mut copies = vec![(id, false)];
        if outputs > 0 && !self.proof.kept.is_empty() {
            let copy = self.program.container(self.program.containers[id].clone());
            self.program.outputs.iter_mut().filter(|(_, o)| *o == id).for_each(|(_, o)| *o = copy);
            copies.push((copy, true));
        } else if outputs > 0 {
            copies = vec![(id, true)];
        }
        for (to, by_mask) in copies {
            let container = self.program.containers[to].clone();
            let rank = container.dims.len();
            let mut d = Draft::default();
            let place = vec![Kernel::var(axes.0), Kernel::var(axes.1)];
            let kept = match by_mask {
                true => self.seen(&mut d, axes.0, axes.1),
                false => d.load(&self.program, self.keep, place.clone(), None),
            };
            let row = d.load(&self.program, row_of, place, None);
            let mut index: Vec<Dim> = (0..rank).map(Kernel::var).collect();
            index[axes.0] = Kernel::value(row);
            index.remove(axes.1);
            let mut value = d.load(&self.program, packed, index, Some(kept));
            let left = self.proof.facts[id].and_then(|f| f.at_masked).filter(|v| *v != 0.0 && !by_mask);
            if let Some(left) = left {
                let left = d.push(Body::Const(left), container.dtype);
                value = d.apply(ScalarFn::Select, &[kept, value, left], container.dtype);
            }
            let memlet = Memlet { container: 0, index: (0..rank).map(Kernel::var).collect() };
            let (outer, stores) = (container.dims.clone(), vec![Store { memlet, value }]);
            let (inner, deep) = (vec![], vec![]);
            let kernel = Kernel { outer, inner, deep, reads: d.reads, writes: vec![container], body: d.body, stores };
            self.step(kernel, d.args, vec![to], origins.to_vec());
        }
    }

    /// Returns the container `row_of`, whose elements are the start of the sequence plus the number of kept positions
    /// before the position.
    fn row_of(&mut self) -> Id {
        if let Some(id) = self.row_of {
            return id;
        }
        let (b, s) = (self.proof.batch.clone(), self.proof.positions.clone());
        let mut d = Draft::default();
        let kept = d.load(&self.program, self.keep, vec![Kernel::var(0), Kernel::var(2)], None);
        let (other, own) = (d.var(2), d.var(1));
        let before = d.apply(ScalarFn::Lt, &[other, own], DType::Bool);
        let counts = d.apply(ScalarFn::And, &[kept, before], DType::Bool);
        let sum = d.count(counts);
        let start = d.load(&self.program, self.starts, vec![Kernel::var(0)], None);
        let row = d.apply(ScalarFn::Add, &[start, sum], DType::I64);
        let dims = vec![b, s.clone()];
        let id = self.push(d, dims.clone(), vec![s], &[(row, dims, vec![0, 1])])[0];
        self.row_of = Some(id);
        id
    }

    fn kernel(&mut self, step: &Step, rows: &Rows) -> Option<()> {
        let k = kernel(step)?;
        let packs = matches!(k.class(), Class::Contract | Class::Attention);
        // Operands are packed first, so that the kernels that pack them precede this kernel.
        let mut places: Vec<Option<Place>> = vec![];
        for statement in &k.body {
            let Body::Load { memlet, .. } = &statement.body else {
                places.push(None);
                continue;
            };
            let id = step.args[memlet.container];
            let at = match self.proof.facts[id].filter(|f| f.packed) {
                Some(Fact { axes, .. }) => Some((self.packed(id, axes), axes, memlet.index[axes.1].as_variable()?)),
                None if packs => {
                    let rows = rows_of(memlet, k, &self.proof.batch, &self.proof.positions, rows.batch);
                    rows.map(|(b, s, at)| (self.pack(id, (b, s), &step.origins), (b, s), at))
                }
                None => None,
            };
            places.push(at.map(|(id, axes, at)| Place { id, axes, by_key: at != rows.position }));
        }
        let axes = |id: &Id| self.proof.facts[*id].map(|f| f.axes);
        let axes: Vec<(usize, usize)> = step.results.iter().map(axes).collect::<Option<_>>()?;
        let results: Vec<Id> = step.results.iter().zip(&axes).map(|(id, axes)| self.packed(*id, *axes)).collect();
        let (mut new, args) = self.by_rows(step, k, rows, &places)?;
        new.writes = results.iter().map(|id| self.program.containers[*id].clone()).collect();
        for store in &mut new.stores {
            let (b, s) = axes[store.memlet.container];
            store.memlet.index[b] = Kernel::var(rows.row());
            store.memlet.index.remove(s);
        }
        let (new, args) = tidy(new, args);
        let fits = new.class() == k.class() && new.check().is_ok();
        self.program.steps.push(Step {
            op: FlowOp::Kernel(Arc::new(new)),
            args,
            results,
            origins: step.origins.clone(),
        });
        fits.then_some(())
    }

    /// Builds the kernel that iterates over rows; its stores are still indexed by batch and position.
    fn by_rows(&self, step: &Step, k: &Kernel, rows: &Rows, places: &[Option<Place>]) -> Option<(Kernel, Vec<Id>)> {
        let number = |v: usize| rows.number(v);
        let row = Kernel::var(rows.row());
        let mut d = Draft::default();
        let [batch, position] =
            [0, 1].map(|which| d.load(&self.program, self.places, vec![Dim::constant(which), row.clone()], None));
        let keys = rows.key.map(|key| {
            let first = d.load(&self.program, self.first, vec![row.clone()], None);
            let length = d.load(&self.program, self.length, vec![row.clone()], None);
            let at = d.var(number(key));
            let inside = d.apply(ScalarFn::Lt, &[at, length], DType::Bool);
            let index = Kernel::value(first) + Kernel::var(number(key));
            let place = d.load(&self.program, self.places, vec![Dim::constant(1), index.clone()], Some(inside));
            Keys { inside, index, place }
        });
        let values = |v: usize| match (v, &keys) {
            (v, _) if v == rows.batch => Some(batch),
            (v, _) if v == rows.position => Some(position),
            (v, Some(keys)) if Some(v) == rows.key => Some(keys.place),
            (_, _) => None,
        };
        let levels = k.levels();
        let mut map: Vec<usize> = vec![];
        for (at, statement) in k.body.iter().enumerate() {
            let index = |d: &Dim, map: &[usize]| {
                let var = |v: usize| Some(values(v).map_or_else(|| Kernel::var(number(v)), Kernel::value));
                rename(d, &var, &|k| map[k])
            };
            let new = match &statement.body {
                Body::Load { memlet, guard } => {
                    let mut guard = guard.map(|g| map[g]);
                    let mut to: Vec<Dim> = memlet.index.iter().map(|d| index(d, &map)).collect();
                    match &places[at] {
                        None => d.load(&self.program, step.args[memlet.container], to, guard),
                        Some(Place { id, axes, by_key }) => {
                            to[axes.0] = row.clone();
                            if *by_key {
                                let keys = keys.as_ref()?;
                                to[axes.0] = keys.index.clone();
                                guard = Some(match guard {
                                    None => keys.inside,
                                    Some(g) => d.apply(ScalarFn::And, &[keys.inside, g], DType::Bool),
                                });
                            }
                            to.remove(axes.1);
                            d.load(&self.program, *id, to, guard)
                        }
                    }
                }
                Body::Index(dim) => match dim.as_variable().and_then(values) {
                    Some(value) => value,
                    None => d.push(Body::Index(index(dim, &map)), statement.dtype),
                },
                Body::Reduce { f, arg } if levels[*arg] == Level::Point && keys.is_some() => {
                    let inside = keys.as_ref()?.inside;
                    let nothing = match f {
                        ReduceFn::Add => 0.0,
                        ReduceFn::Max => f64::NEG_INFINITY,
                        ReduceFn::Min | ReduceFn::Mul => return None,
                    };
                    let nothing = d.push(Body::Const(nothing), statement.dtype);
                    let arg = d.apply(ScalarFn::Select, &[inside, map[*arg], nothing], statement.dtype);
                    d.push(Body::Reduce { f: *f, arg }, statement.dtype)
                }
                other => d.push(other.renumbered(&|k| map[k], &|d| index(d, &map)), statement.dtype),
            };
            map.push(new);
        }
        let mut outer = k.outer.clone();
        outer[rows.batch] = self.rows.clone();
        outer.remove(rows.position);
        let var = |v: usize| Some(Kernel::var(rows.number(v)));
        let stored = |store: &Store| {
            let index = store.memlet.index.iter().map(|d| rename(d, &var, &|k| map[k])).collect();
            Store { memlet: Memlet { container: store.memlet.container, index }, value: map[store.value] }
        };
        let stores = k.stores.iter().map(stored).collect();
        let writes = k.writes.clone();
        let (inner, deep) = (k.inner.clone(), k.deep.clone());
        Some((Kernel { outer, inner, deep, reads: d.reads, writes, body: d.body, stores }, d.args))
    }
}

/// The packed container for a load.
struct Place {
    id: Id,
    axes: (usize, usize),
    /// Whether the load reads the row of a key rather than the row that the kernel computes.
    by_key: bool,
}

/// Statements and index for a key of the row's sequence, computed from the key's number.
struct Keys {
    /// The statement that tells whether a key with this number exists.
    inside: usize,
    /// Index of the key's row.
    index: Dim,
    /// The statement that gives the key's position in the sequence.
    place: usize,
}
