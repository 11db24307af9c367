//! Σk x[t, k] · w[n, k], w mostly 0  =>  a sum over stored elements: Σj value[n, j] · x[t, column[n, j]]
//!
//! Zeros in weights are skipped where that is estimated to be faster; the pass does not set any weights to 0. Among the
//! sparse formats that `Format::all` finds, the one with the shortest estimated time is used. A product with 0 is 0 for
//! finite values only, so the user must declare all values finite (`assume-finite`). Vector lanes run along a variable
//! that indexes only the other operand, x. The elements of x must be contiguous in memory along this variable;
//! otherwise x is copied to such a layout first.

mod apart;
mod known;
mod sums;

use self::apart::apart;
use self::known::Known;
use crate::class::Class as Equality;
use crate::draft::Draft;
use crate::fuse::Costs;
use crate::layout::Pricer;
use crate::lower_precision::narrowed_sparse;
use crate::options::{Precision, Sparsity};
use crate::remark::Missed;
use crate::rewrite::{Rewrites, Rule};
use crate::splice::tidy;
use crate::steps::kernel;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Encoding, Result};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::prepared;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::sparse::{self, Format, Grid};
use sardonyx_dialects::flow::{
    Body, Class, Container, FlowOp, Kernel, Layout, Memlet, Program, Source, Step, Store, Transform,
};
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::ReduceFn;
use sardonyx_kernels::{Pace, lower, products};
use std::fmt;
use std::sync::Arc;

/// Minimum fraction of zeros; with fewer zeros, a sparse format costs more than the dense matrix.
const ZEROS_MIN: f64 = 0.5;
/// Overhead of a row of the sparse matrix, in units of the time for one word.
const ROW_WORDS: f64 = 6.0;
/// Cost, in multiplications, of adding a row's accumulators to the sums of earlier chunks (`ADDED`), and of copying the
/// vectors of a column (`COPIED`).
const ADDED: f64 = 3.0;
const COPIED: f64 = 2.0;
/// Time of a 2:4 product on tensor cores compared with the dense one. The instruction multiplies twice as many columns;
/// copies of the dense operand take as long as before (an assumption, not measured).
const TENSOR_CORES: f64 = 0.65;
/// Time of a stored value in vectors of eight rows compared with one of the dense product: shared memory delivers
/// fragments of eight columns more slowly than tensor cores multiply them (an assumption, not measured).
const VECTORS: f64 = 3.0;
/// Number of rows of a work item that share one copy of a column's vectors.
const ROWS: f64 = 128.0;

const WORDS: Rule = Rule::of_class(Equality::FiniteOnly, "words");
const GROUPS: Rule = Rule::of_class(Equality::FiniteOnly, "groups");
const WINDOWS: Rule = Rule::of_class(Equality::FiniteOnly, "windows");
const TWO_OF_FOUR: Rule = Rule::of_class(Equality::FiniteOnly, "two_of_four");
/// The rule for two sums that get kernels of their own.
const APART: Rule = Rule::of_class(Equality::Exact, "apart");
/// The rules for products of bytes, which are exact, because integers have no infinity.
const QUADS: Rule = Rule::of_class(Equality::Exact, "quads");
const TWO_OF_FOUR_BYTES: Rule = Rule::of_class(Equality::Exact, "two_of_four_bytes");

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    if rewrites.options().sparsity == Sparsity::Off {
        return Ok(());
    }
    let costs = Costs::new(rewrites.options().target);
    // Tensor cores multiply f32 as bf16.
    let for_tensor_cores = rewrites.options().target.gpu().is_some();
    let in_f32 = rewrites.options().precision == Precision::F32;
    let is_forced = rewrites.options().sparsity == Sparsity::Always;
    let known = Known::new(prepared::read(module.operation())?, &rewrites.options().params);
    let is_allowed = rewrites.options().assume_finite;
    let best = &|program: &Program, at: usize| {
        let sites = Site::matched(program, at, &known, for_tensor_cores).unwrap_or_default();
        let priced = sites.into_iter().filter_map(|site| Some((site.prices(program, at, &costs)?, site)));
        priced.min_by_key(|(prices, _)| prices.sparse)
    };
    // Whether both parts of a kernel gain more than the launch that they need in addition.
    let pays_apart = |split: &Program, parts: [usize; 2]| {
        let found = parts.map(|at| best(split, at).filter(|(_, site)| is_allowed || site.is_exact()));
        let [Some((a, _)), Some((b, _))] = found else { return false };
        let both = a.sum(&b);
        both.sparse.saturating_add(costs.launch()) < both.dense || is_forced
    };
    rewrites.programs(module, |rewrites, program| {
        let mut held = Held::default();
        let mut next = 0;
        // Rewrites append steps to the program, which are visited, too.
        while next < program.steps.len() {
            let at = next;
            next += 1;
            let split = if for_tensor_cores && !in_f32 { apart(program, at) } else { None };
            if let Some(split) = split.filter(|split| pays_apart(split, [at, split.steps.len() - 1])) {
                // Each part is then visited on its own.
                if rewrites.apply(program, APART, &[at], |program| *program = split)? {
                    next = at;
                }
                continue;
            }
            let Some((prices, site)) = best(program, at) else { continue };
            let origins = &program.steps[at].origins;
            if for_tensor_cores && in_f32 && site.format.dtype() == DType::F32 {
                let detail = format!("{}, {prices} in bf16", site.zeros());
                let why = "zeros are multiplied: sparse tensor cores multiply no f32";
                let remedy = Some("`--precision bf16`");
                rewrites.missed(Missed { node: origins.first().cloned(), remedy, ..Missed::because(why, &detail) });
            } else if prices.sparse >= prices.dense && !is_forced {
                rewrites.missed(Missed { node: origins.first().cloned(), ..site.missed(&prices) });
            } else if !site.is_exact() && !is_allowed {
                held.add(origins, &prices);
            } else {
                rewrites.apply(program, site.rule(), &[at], |program| site.apply(program, at))?;
            }
        }
        held.tell(rewrites);
        Ok(())
    })
}

/// A contraction with a matrix that is mostly 0.
struct Site {
    source: Source,
    /// Index of the matrix among the kernel's reads.
    matrix: usize,
    format: Format,
    /// Fraction of elements that are not 0.
    density: f64,
    /// The variable that numbers the rows of the matrix.
    n: usize,
    /// The other operand, and the dimension along which it is reduced.
    x: Memlet,
    axis: usize,
    sum: usize,
    /// The layout that the other operand needs, if it has a different layout.
    turned: Option<Turned>,
}

/// A layout that an operand needs, and the step that can write it.
#[derive(Clone)]
struct Turned {
    layout: Layout,
    /// The step that can write this layout, if the operand has no other consumer; otherwise the operand is copied.
    by: Option<usize>,
}

/// Estimated times of the dense and the sparse contraction, in picoseconds.
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

/// Contractions whose zeros would be skipped if their other operands were known to be finite.
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

    /// Reports all these contractions in one remark, which `compile` prints even if no remarks are requested.
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
    /// Returns the contraction of step `at` as a site for each sparse format in which its weights can be stored, of those
    /// for tensor cores or of the others.
    fn matched(program: &Program, at: usize, known: &Known, for_tensor_cores: bool) -> Option<Vec<Site>> {
        let step = &program.steps[at];
        let k = kernel(step).filter(|k| k.class() == Class::Contract && k.inner.len() == 1)?;
        let [[a, b]] = products(k)?[..] else { return None };
        let sum = k.body.iter().position(|s| matches!(s.body, Body::Reduce { .. }))?;
        let [a, b] = [a, b].map(|s| k.narrow(s));
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
        let vars = flat.variables();
        let n = *vars.iter().find(|v| **v != summed)?;
        let (column_stride, rest) = flat.linear_in(&Symbol::Variable(summed))?;
        let (row_stride, rest) = rest.linear_in(&Symbol::Variable(n))?;
        let sizes = [k.outer[n].as_const()?, k.inner[0].as_const()?];
        let strides = [row_stride.as_const()?, column_stride.as_const()?];
        let moved = |memlet: &Memlet, v: usize| -> Vec<usize> {
            (0..memlet.index.len()).filter(|d| memlet.index[*d].variables().contains(&v)).collect()
        };
        let &[axis] = &moved(x, summed)[..] else { return None };
        let dtypes = (k.body[sum].dtype, container.dtype, k.reads[x.container].dtype);
        let kinds = [(DType::F32, DType::F32, DType::F32), (DType::I32, DType::I8, DType::U8)];
        let is_signed = dtypes == (DType::I32, DType::I8, DType::I8);
        let fits = (kinds.contains(&dtypes) || is_signed && for_tensor_cores)
            && container.is_plain()
            && rest.is_const(0)
            && vars.iter().all(|v| [n, summed].contains(v))
            && x.index[axis].as_variable() == Some(summed)
            && k.reads[x.container].dims[axis].as_const() == Some(sizes[1])
            && moved(x, n).is_empty()
            && x.index.iter().all(|d| d.statements().is_empty());
        if !fits || params_are_few(sizes) {
            return None;
        }
        if !source.names.iter().all(|name| known.may_be_sparse(name)) {
            return None;
        }
        let values = interp::joined(&source, known).ok()?;
        let elements = sparse::elements(&values)?;
        let words = elements.iter().filter(|value| **value != 0.0).count();
        let density = words as f64 / elements.len().max(1) as f64;
        if words == 0 || density > 1.0 - ZEROS_MIN {
            return None;
        }
        let x = x.clone();
        // A kernel that multiplies words of bytes copies the other operand itself, so it needs no layout.
        let lanes = if values.dtype() == DType::F32 { layout(k, &x, (n, axis)) } else { Some(None) };
        let by = multiplies_words(program, at, step.args[x.container]);
        let [[rows, columns], [row_stride, column_stride]] = [sizes, strides];
        let grid = Grid { rows, columns, row_stride, column_stride };
        let site = |format: Format| {
            // Fragments of 2:4 are read along K.
            let layout = if matches!(format, Format::TwoOfFour(_)) { None } else { lanes.clone()? };
            let turned = layout.map(|layout| Turned { layout, by });
            Some(Site {
                source: source.clone(),
                matrix: w.container,
                format,
                density,
                n,
                x: x.clone(),
                axis,
                sum,
                turned,
            })
        };
        let formats = Format::all(grid, values.dtype(), &elements, for_tensor_cores);
        Some(formats.into_iter().filter_map(site).collect())
    }

    fn rule(&self) -> Rule {
        match self.format {
            Format::Words(words) if words.depth > 1 => QUADS,
            Format::Words(_) => WORDS,
            Format::Groups(_) => GROUPS,
            Format::TwoOfFour(matrix) if matrix.dtype == DType::I8 => TWO_OF_FOUR_BYTES,
            Format::TwoOfFour(_) => TWO_OF_FOUR,
            Format::Windows(_) => WINDOWS,
        }
    }

    /// Returns whether skipping the zeros needs no promise that values are finite.
    fn is_exact(&self) -> bool {
        self.rule().class == Some(Equality::Exact)
    }

    /// Returns the amount of arithmetic as a fraction of the amount in the dense contraction.
    fn part(&self) -> f64 {
        let grid = self.format.grid();
        let stored = self.format.stored() as f64 / grid.elements() as f64;
        match &self.format {
            Format::Words(_) => stored + ROW_WORDS / grid.columns as f64,
            Format::Groups(groups) => {
                let flushed = groups.patterns().map_or(0, |patterns| patterns.len()) as f64 + groups.n as f64 - 1.0;
                stored + ADDED * flushed / (groups.m * groups.width) as f64 + COPIED / ROWS
            }
            Format::TwoOfFour(_) => TENSOR_CORES,
            Format::Windows(_) => stored * VECTORS,
        }
    }

    /// Estimates the times of both products on tensor cores, which multiply f32 operands as bf16; `None` if they cannot
    /// multiply the sparse one.
    fn prices_on_tensor_cores(&self, program: &Program, at: usize, costs: &Costs) -> Option<Prices> {
        let mut dense = kernel(&program.steps[at])?.clone();
        let mut trial = program.clone();
        self.apply(&mut trial, at);
        let sparse = narrowed_sparse(&trial, at).or_else(|| kernel(&trial.steps[at]).cloned())?;
        let is_fast = lower(&sparse).is_ok_and(|l| l.for_gpu(costs.target).is_on_tensor_cores());
        for factor in [self.matrix, self.x.container] {
            let dtype = &mut dense.reads[factor].dtype;
            *dtype = if *dtype == DType::F32 { DType::BF16 } else { *dtype };
        }
        let dense_ps = costs.on_tensor_cores(&dense, program, 1.0);
        let [moved, all] = [&sparse, &dense].map(|k| costs.on_tensor_cores(k, &trial, 0.0));
        let computed = dense_ps.saturating_sub(all) as f64 * self.part();
        let sparse = moved + computed as u64 + self.copying(program, at, costs);
        is_fast.then_some(Prices { dense: dense_ps, sparse })
    }

    /// Estimates the times of the dense and the sparse product; `None` if there is no fast code for the sparse one.
    fn prices(&self, program: &Program, at: usize, costs: &Costs) -> Option<Prices> {
        if self.format.is_for_tensor_cores() {
            return self.prices_on_tensor_cores(program, at, costs);
        }
        let dense = Pricer::new(program, costs).cost(at, &|_| None);
        let mut trial = program.clone();
        self.apply(&mut trial, at);
        let made = kernel(&trial.steps[at]);
        let pace = made.and_then(|k| lower(k).ok()).map_or(Pace::UNKNOWN, |lowered| lowered.pace());
        let k = kernel(&program.steps[at])?;
        let [moved, computed] = costs.work(k, program, Pace::FULL);
        let copy = self.copying(program, at, costs);
        let sparse = costs.launch() as f64 + moved + computed * self.part() / pace.share + copy as f64;
        Some(Prices { dense, sparse: sparse as u64 })
    }

    /// Estimates the time of the copy of the other operand to another layout, if there is one.
    fn copying(&self, program: &Program, at: usize, costs: &Costs) -> u64 {
        let copied = self.turned.as_ref().filter(|turned| turned.by.is_none());
        let x = &program.containers[program.steps[at].args[self.x.container]];
        copied.map_or(0, |turned| costs.kernel(&copy(x, &turned.layout), program))
    }

    fn missed(&self, prices: &Prices) -> Missed {
        Missed::because("leaving out the zeros would take longer", &format!("{}, {prices}", self.zeros()))
    }

    fn zeros(&self) -> String {
        format!("{:.1} % of `{}` are 0", 100.0 * (1.0 - self.density), self.source.name())
    }

    fn apply(&self, program: &mut Program, at: usize) {
        let origins = program.steps[at].origins.clone();
        let mut parts = vec![];
        for part in self.format.parts() {
            let Some(container) = self.format.container(*part) else { continue };
            let id = program.container(container);
            let source = Source { transform: Some(Transform::Sparse(*part, self.format)), ..self.source.clone() };
            let op = FlowOp::Param { source, window: None };
            program.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
            parts.push(id);
        }
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
        let (kernel, args) = self.product(program, k, args, &parts);
        let step = &mut program.steps[at];
        (step.op, step.args) = (FlowOp::Kernel(Arc::new(kernel)), args);
    }

    /// Builds the kernel over the stored elements, followed by the epilogue of the reduction.
    fn product(&self, program: &Program, k: &Kernel, args: Vec<Id>, parts: &[Id]) -> (Kernel, Vec<Id>) {
        let mut reads = k.reads.clone();
        reads[self.x.container] = program.containers[args[self.x.container]].clone();
        let dtype = reads[self.x.container].dtype;
        let mut body = Draft { reads, args, ..Draft::default() };
        let (row, summed) = (Kernel::var(self.n), k.outer.len());
        let factor = sums::Factor { memlet: &self.x, axis: self.axis, dtype };
        let made = sums::Writer { body: &mut body, program, parts, row, summed, factor }.sum(&self.format);
        let sum = body.push(Body::Reduce { f: ReduceFn::Add, arg: made.arg }, k.body[self.sum].dtype);
        let map = body.follow(k, (self.sum, sum), &|_| None);
        let renamed = |d: &Dim| rename(d, &|_| None, &|k| map[k]);
        let stores = k.stores.iter().map(|store| {
            let index = store.memlet.index.iter().map(renamed).collect();
            Store { memlet: Memlet { container: store.memlet.container, index }, value: map[store.value] }
        });
        let (stores, inner) = (stores.collect(), made.inner);
        let (outer, writes) = (k.outer.clone(), k.writes.clone());
        let Draft { reads, args, body } = body;
        tidy(Kernel { outer, inner, deep: vec![], reads, writes, body, stores }, args)
    }
}

/// Returns the layout in which lanes are contiguous, if the other operand has a different layout, else `Some(None)`.
/// The result is `None` if no variable is suitable for vector lanes.
fn layout(k: &Kernel, x: &Memlet, (n, axis): (usize, usize)) -> Option<Option<Layout>> {
    let container = &k.reads[x.container];
    let bare = |v: usize| v < k.outer.len() && v != n && !k.outer[v].is_const(1);
    let lanes = |d: usize| x.index[d].as_variable().is_some_and(bare);
    let strides = container.strides();
    if (0..strides.len()).any(|d| strides[d].is_const(1) && lanes(d)) {
        return Some(None);
    }
    if container.encoding != Encoding::Plain || !(0..strides.len()).any(lanes) {
        return None;
    }
    let others = (0..strides.len()).filter(|d| *d != axis);
    Some(Some(Layout::Order([axis].into_iter().chain(others).collect())))
}

/// Returns the producer of a container if the producer multiplies by sparse weights, and so stores either layout
/// equally fast, and if step `at` is the only consumer.
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

/// Whether a matrix is too small for sparse formats.
fn params_are_few([rows, columns]: [i64; 2]) -> bool {
    rows.saturating_mul(columns) < 1 << 12
}

/// Builds a kernel that copies a container to another layout.
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
