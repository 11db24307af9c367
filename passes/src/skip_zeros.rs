//! Σk x[t, k] · w[n, k], w mostly 0  =>  Σj < length[n] value[first[n] + j] · x[t, column[first[n] + j]]
//!
//! Zeros that are in the file are left out of what is multiplied, where that is estimated faster: nothing is pruned here. A
//! product with 0 is 0 for finite numbers alone, so somebody has to say that the others are (`assume-finite`). Lanes run along
//! a variable that only the other factor has, whose elements must be neighbours in memory: where they are not, the other
//! factor is copied first.

use crate::class::Class as Equality;
use crate::draft::Draft;
use crate::fuse::Costs;
use crate::layout::Pricer;
use crate::options::Sparsity;
use crate::remark::Missed;
use crate::rewrite::{Rewrites, Rule};
use crate::splice::{bare_var, own_vars, tidy};
use crate::steps::kernel;
use sardonyx_base::{DType, Dim, Encoding, Result};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::sparse::{Matrix, Part};
use sardonyx_dialects::flow::{
    Body, Class, Container, FlowOp, Kernel, Layout, Memlet, Program, Source, Step, Store, Transform,
};
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_kernels::{Pace, lower, products};
use std::fmt;
use std::sync::Arc;

/// A matrix with fewer zeros is not looked at: its words would cost more than all of it.
const ZEROS_MIN: f64 = 0.5;
/// The most words that a row may have is a multiple of these.
const LENGTHS: i64 = 32;
/// Words that a row costs beside its own.
const ROW_WORDS: f64 = 6.0;

const RULE: Rule = Rule::of_class(Equality::FiniteOnly, "words");

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    if rewrites.options().sparsity == Sparsity::Off {
        return Ok(());
    }
    let costs = Costs::new(rewrites.options().target);
    rewrites.programs(module, |rewrites, program| {
        let mut held = Held::default();
        let mut next = 0;
        // Steps that a rewrite adds come before the one that reads them.
        while next < program.steps.len() {
            let at = next;
            next += 1;
            let Some(site) = Site::matched(program, at, &rewrites.options().params) else { continue };
            let prices = site.prices(program, at, &costs);
            let origins = &program.steps[at].origins;
            if prices.sparse >= prices.dense {
                rewrites.missed(Missed { node: origins.first().cloned(), ..site.missed(&prices) });
            } else if !rewrites.options().assume_finite {
                held.add(origins, &prices);
            } else {
                rewrites.apply(program, RULE, &[at], |program| site.apply(program, at))?;
            }
        }
        held.tell(rewrites);
        Ok(())
    })
}

/// A product with a matrix of which most is 0.
struct Site {
    source: Source,
    matrix: Matrix,
    /// The variable of its rows.
    n: usize,
    /// The other factor, and which of its dimensions the sum goes along.
    x: Memlet,
    axis: usize,
    sum: usize,
    /// The layout that the other factor needs, where it has another one.
    turned: Option<Turned>,
}

/// A layout for a factor, and who makes it.
struct Turned {
    layout: Layout,
    /// The step that writes it so, where nobody else reads it; else it is copied.
    by: Option<usize>,
}

/// Estimated times of both ways, in picoseconds.
#[derive(Default)]
struct Prices {
    dense: u64,
    sparse: u64,
}

impl Prices {
    fn sum(&self, other: &Prices) -> Prices {
        Prices { dense: self.dense.saturating_add(other.dense), sparse: self.sparse.saturating_add(other.sparse) }
    }
}

impl fmt::Display for Prices {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let us = |ps: u64| ps as f64 / 1e6;
        write!(f, "estimated {:.1} us with them, {:.1} us without", us(self.dense), us(self.sparse))
    }
}

/// Products whose zeros would be left out, if their other factors were known to be finite.
#[derive(Default)]
struct Held {
    origins: Vec<String>,
    count: usize,
    prices: Prices,
}

impl Held {
    fn add(&mut self, origins: &[String], prices: &Prices) {
        self.origins.extend(origins.first().cloned());
        (self.count, self.prices) = (self.count + 1, self.prices.sum(prices));
    }

    /// One remark for all of them, which `compile` prints by itself.
    fn tell(self, rewrites: &mut Rewrites) {
        let Held { origins, count, prices } = self;
        if count == 0 {
            return;
        }
        let detail = format!("{count} products with weights that are mostly 0, {prices}");
        rewrites.told_unasked(
            "skip-zeros",
            Missed {
                node: origins.first().cloned(),
                origins,
                remedy: Some("`--assume-finite`, if no infinity and no NaN comes that far"),
                ..Missed::because("zeros are multiplied: 0 times infinity is no 0", &detail)
            },
        );
    }
}

impl Site {
    fn matched(program: &Program, at: usize, params: &dyn ParamValues) -> Option<Site> {
        let step = &program.steps[at];
        let k = kernel(step).filter(|k| k.class() == Class::Contract && k.inner.len() == 1)?;
        let [[a, b]] = products(k)?[..] else { return None };
        let sum = k.body.iter().position(|s| matches!(s.body, Body::Reduce { .. }))?;
        let f32s = k.body[sum].dtype == DType::F32 && [a, b].iter().all(|s| k.body[*s].dtype == DType::F32);
        let producers = program.producers();
        let weights = |s: usize| {
            let memlet = k.plain_load(s)?;
            let FlowOp::Param { source, window: None } = &program.steps[producers[step.args[memlet.container]]?].op
            else {
                return None;
            };
            (source.transform.is_none() && source.parts.is_empty()).then(|| (memlet.clone(), source.clone()))
        };
        let ((w, source), x) = match (weights(a), weights(b)) {
            (Some(w), None) => (w, k.plain_load(b)?),
            (None, Some(w)) => (w, k.plain_load(a)?),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        let summed = k.outer.len();
        let container = &k.reads[w.container];
        let strides = container.strides();
        let flat = w.index.iter().zip(&strides).fold(Dim::constant(0), |sum, (i, s)| sum + i.clone() * s.clone());
        let vars = own_vars(&flat);
        let n = *vars.iter().find(|v| **v != summed)?;
        let (column_stride, rest) = flat.linear_in(&format!("%{summed}"))?;
        let (row_stride, rest) = rest.linear_in(&format!("%{n}"))?;
        let sizes = [k.outer[n].as_const()?, k.inner[0].as_const()?];
        let strides = [row_stride.as_const()?, column_stride.as_const()?];
        let moved = |memlet: &Memlet, v: usize| -> Vec<usize> {
            (0..memlet.index.len()).filter(|d| own_vars(&memlet.index[*d]).contains(&v)).collect()
        };
        let &[axis] = &moved(x, summed)[..] else { return None };
        let fits = f32s
            && container.is_plain()
            && rest.is_const(0)
            && vars.iter().all(|v| [n, summed].contains(v))
            && bare_var(&x.index[axis]) == Some(summed)
            && k.reads[x.container].dims[axis].as_const() == Some(sizes[1])
            && moved(x, n).is_empty()
            && x.index.iter().all(|d| d.symbols().iter().all(|s| !s.starts_with('$')));
        if !fits || params_are_few(sizes) {
            return None;
        }
        let values = interp::joined(&source, params).ok()?.to_vec::<f32>()?;
        let matrix = Matrix::found(sizes, strides, &values)?;
        let zeros = 1.0 - matrix.words as f64 / matrix.elements() as f64;
        let mut site = Site { source, matrix, n, x: x.clone(), axis, sum, turned: None };
        let layout = site.layout(k)?;
        site.turned =
            layout.map(|layout| Turned { layout, by: multiplies_words(program, at, step.args[site.x.container]) });
        (zeros >= ZEROS_MIN && matrix.words > 0).then_some(site)
    }

    /// The layout in which lanes are neighbours, where the other factor has another one now; none where there are no lanes.
    fn layout(&self, k: &Kernel) -> Option<Option<Layout>> {
        let container = &k.reads[self.x.container];
        let bare = |v: usize| v < k.outer.len() && v != self.n && !k.outer[v].is_const(1);
        let lanes = |d: usize| bare_var(&self.x.index[d]).is_some_and(bare);
        let strides = container.strides();
        if (0..strides.len()).any(|d| strides[d].is_const(1) && lanes(d)) {
            return Some(None);
        }
        if container.encoding != Encoding::Plain || !(0..strides.len()).any(lanes) {
            return None;
        }
        let others = (0..strides.len()).filter(|d| *d != self.axis);
        Some(Some(Layout::Order([self.axis].into_iter().chain(others).collect())))
    }

    fn density(&self) -> f64 {
        self.matrix.words as f64 / self.matrix.elements() as f64
    }

    fn prices(&self, program: &Program, at: usize, costs: &Costs) -> Prices {
        let dense = Pricer::new(program, costs).cost(at, &|_| None);
        let mut trial = program.clone();
        self.apply(&mut trial, at);
        let made = kernel(&trial.steps[at]);
        let pace = made.and_then(|k| lower(k).ok()).map_or(Pace::UNKNOWN, |lowered| lowered.pace());
        let Some(k) = kernel(&program.steps[at]) else { return Prices { dense, sparse: u64::MAX } };
        let [moved, computed] = costs.work(k, program, Pace::FULL);
        // The words take more room than as many elements would: each has its column.
        let part = self.density() + ROW_WORDS / self.matrix.columns as f64;
        let copied = self.turned.as_ref().filter(|turned| turned.by.is_none());
        let copy = copied.map_or(0, |turned| {
            costs.kernel(&copy(&program.containers[program.steps[at].args[self.x.container]], &turned.layout), program)
        });
        let sparse = costs.launch() as f64 + moved + computed * part / pace.share + copy as f64;
        Prices { dense, sparse: sparse as u64 }
    }

    fn missed(&self, prices: &Prices) -> Missed {
        let zeros = format!("{:.1} % of `{}` are 0", 100.0 * (1.0 - self.density()), self.source.name());
        Missed::because("leaving out the zeros would take longer", &format!("{zeros}, {prices}"))
    }

    fn apply(&self, program: &mut Program, at: usize) {
        let origins = program.steps[at].origins.clone();
        let param = |program: &mut Program, part: Part| {
            let id = program.container(self.matrix.container(part));
            let source = Source { transform: Some(Transform::Sparse(part, self.matrix)), ..self.source.clone() };
            let op = FlowOp::Param { source, window: None };
            program.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
            id
        };
        let [values, columns, starts] = Part::ALL.map(|part| param(program, part));
        let mut args = program.steps[at].args.clone();
        let x = args[self.x.container];
        match &self.turned {
            Some(Turned { layout, by: Some(producer) }) => {
                program.containers[x].layout = layout.clone();
                let step = &mut program.steps[*producer];
                let written = step.results.iter().position(|id| *id == x);
                if let (FlowOp::Kernel(k), Some(written)) = (&mut step.op, written) {
                    Arc::make_mut(k).writes[written].layout = layout.clone();
                }
            }
            Some(Turned { layout, by: None }) => {
                let op = FlowOp::Kernel(Arc::new(copy(&program.containers[x], layout)));
                let known = program.steps.iter().find(|step| step.args == [x] && step.op == op);
                let id = known.map(|step| step.results[0]).unwrap_or_else(|| {
                    let made = Container { layout: layout.clone(), ..program.containers[x].clone() };
                    let id = program.container(made);
                    program.steps.push(Step { op, args: vec![x], results: vec![id], origins });
                    id
                });
                args[self.x.container] = id;
            }
            None => {}
        }
        let Some(k) = kernel(&program.steps[at]) else { return };
        let (kernel, args) = self.product(program, k, args, [values, columns, starts]);
        let step = &mut program.steps[at];
        (step.op, step.args) = (FlowOp::Kernel(Arc::new(kernel)), args);
    }

    /// The kernel over the words, with what followed the sum behind it.
    fn product(
        &self,
        program: &Program,
        k: &Kernel,
        args: Vec<Id>,
        [values, columns, starts]: [Id; 3],
    ) -> (Kernel, Vec<Id>) {
        let mut reads = k.reads.clone();
        reads[self.x.container] = program.containers[args[self.x.container]].clone();
        let mut body = Draft { reads, args, ..Draft::default() };
        let (row, summed) = (Kernel::var(self.n), k.outer.len());
        let start = |body: &mut Draft, row: Dim| {
            let start = body.load(program, starts, vec![row], None);
            body.push(Body::Convert(start, Conversion::Value), DType::I64)
        };
        let first = start(&mut body, row.clone());
        let end = start(&mut body, row + Dim::constant(1));
        let place = Kernel::value(first) + Kernel::var(summed);
        let length = body.apply(ScalarFn::Sub, &[end, first], DType::I64);
        let word = body.var(summed);
        let inside = body.apply(ScalarFn::Lt, &[word, length], DType::Bool);
        let column = body.load(program, columns, vec![place.clone()], Some(inside));
        let column = body.push(Body::Convert(column, Conversion::Value), DType::I64);
        let value = body.load(program, values, vec![place], Some(inside));
        let mut index = self.x.index.clone();
        index[self.axis] = Kernel::value(column);
        let memlet = Memlet { container: self.x.container, index };
        let x = body.push(Body::Load { memlet, guard: Some(inside) }, DType::F32);
        let product = body.apply(ScalarFn::Mul, &[value, x], DType::F32);
        let zero = body.push(Body::Const(0.0), DType::F32);
        let chosen = body.apply(ScalarFn::Select, &[inside, product, zero], DType::F32);
        let sum = body.push(Body::Reduce { f: ReduceFn::Add, arg: chosen }, DType::F32);
        let map = body.follow(k, (self.sum, sum), &|_| None);
        let renamed = |d: &Dim| rename(d, &|_| None, &|k| map[k]);
        let stores = k.stores.iter().map(|store| {
            let index = store.memlet.index.iter().map(renamed).collect();
            Store { memlet: Memlet { container: store.memlet.container, index }, value: map[store.value] }
        });
        // Rows that are nearly as long share a kernel.
        let longest = ((self.matrix.longest + LENGTHS - 1).div_euclid(LENGTHS) * LENGTHS).min(self.matrix.columns);
        let (stores, inner) = (stores.collect(), vec![Dim::constant(longest)]);
        let (outer, writes) = (k.outer.clone(), k.writes.clone());
        let Draft { reads, args, body } = body;
        tidy(Kernel { outer, inner, deep: vec![], reads, writes, body, stores }, args)
    }
}

/// The step that makes a container, where it multiplies with words, which it stores either way round as fast, and where no other
/// step than this one reads what it makes.
fn multiplies_words(program: &Program, at: usize, id: Id) -> Option<usize> {
    let producers = program.producers();
    let made = producers[id].filter(|_| program.consumers()[id] == [at] && !program.is_output(id))?;
    let step = &program.steps[made];
    let is_sparse = |arg: &Id| {
        let op = producers[*arg].map(|p| &program.steps[p].op);
        matches!(op, Some(FlowOp::Param { source: Source { transform: Some(Transform::Sparse(..)), .. }, .. }))
    };
    (kernel(step).is_some() && step.args.iter().any(is_sparse)).then_some(made)
}

/// Returns true for a matrix that is too small for words of its own.
fn params_are_few([rows, columns]: [i64; 2]) -> bool {
    rows.saturating_mul(columns) < 1 << 12
}

/// A container in another layout.
fn copy(container: &Container, layout: &Layout) -> Kernel {
    let mut body = Draft { reads: vec![container.clone()], ..Draft::default() };
    let index: Vec<Dim> = (0..container.dims.len()).map(Kernel::var).collect();
    let memlet = Memlet { container: 0, index };
    let value = body.push(Body::Load { memlet: memlet.clone(), guard: None }, container.dtype);
    let made = Container { layout: layout.clone(), ..container.clone() };
    let mut kernel = body.map(container.dims.clone(), vec![made], vec![Store { memlet, value }]);
    crate::layout::sort_outer(&mut kernel);
    kernel
}
