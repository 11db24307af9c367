//! contract(x, w in panels)  =>  contract(bf16(x), bf16(w) in panels of pairs), accumulated in f32 as before
//!
//! Applies if the option `precision` is bf16. The operands of contractions with a constant and of attention become
//! bf16; accumulators, epilogues, normalisation and softmax stay f32. Operand A is rounded by its producer: the bf16
//! result replaces the f32 result if nothing else reads the latter, or is an additional result if the producer may have
//! both. Otherwise a separate kernel rounds A.

pub mod attention;

use crate::layout::sort_outer;
use crate::options::Precision;
use crate::remark::Missed;
use crate::rewrite::{Found, Rewrites};
use crate::splice::{renumber_stores, tidy};
use crate::steps::{Uses, kernel};
use sardonyx_base::{DType, Encoding, Result};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{
    Body, Class, Container, FlowOp, Kernel, Layout, Memlet, Program, Statement, Step, Store, Transform,
};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_kernels::def::CHUNK_DEPTH;
use sardonyx_kernels::target::Class as TargetClass;
use sardonyx_kernels::{Lowered, Target, Words, lower, products};
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    if rewrites.options().precision == Precision::F32 {
        return Ok(());
    }
    rewrites.programs(module, |rewrites, program| {
        let mut rounded = BTreeMap::new();
        let (target, own_panels) = (rewrites.options().target, rewrites.options().own_panels);
        let find = |program: &Program, step: usize| find(program, step, target, own_panels);
        rewrites.each_step(program, find, |program, at, site| apply(program, at, site, &mut rounded))?;
        round_where_made(program, &rounded);
        Ok(())
    })
}

/// A kernel with bf16 operands.
struct Site {
    /// The kernel, whose last operands are the rounded copies.
    kernel: Kernel,
    /// Indices of the operands that become bf16 constants, packed or sparse.
    panels: Vec<usize>,
    /// Indices of the operands of which the kernel reads rounded copies, in the order of the copies.
    rounded: Vec<usize>,
}

fn find(program: &Program, step: usize, target: Target, own_panels: bool) -> Found<Site> {
    if let Some(k) = kernel(&program.steps[step]).filter(|k| k.class() == Class::Attention) {
        let narrowed = match target.class() {
            TargetClass::Cpu => attention::narrowed(k).map(|kernel| (kernel, vec![])),
            TargetClass::Gpu => attention::narrowed_for_gpu(k),
        };
        let (kernel, rounded) = narrowed.map_err(|why| Missed::because("attention stays in f32", why))?;
        return Ok(Some(("bf16-attention".into(), Site { kernel, panels: vec![], rounded })));
    }
    let for_gpu = Some(target).filter(|target| own_panels && target.gpu().is_some());
    let found = matches(program, step, for_gpu).map_err(|why| Missed::because("a contraction stays in f32", why))?;
    Ok(found.map(|site| ("bf16".into(), site)))
}

/// Matches a contraction with a packed constant. Returns `None` for any other step; the error is the reason why such a
/// contraction is not changed.
fn matches(program: &Program, step: usize, for_gpu: Option<Target>) -> std::result::Result<Option<Site>, &'static str> {
    if let Some(site) = sparse(program, step) {
        return Ok(Some(site));
    }
    let Some(k) = kernel(&program.steps[step]).filter(|k| k.class() == Class::Contract) else { return Ok(None) };
    let Some((common, rights)) = factors(k) else { return Ok(None) };
    let containers = [vec![common], rights.clone()].concat();
    let [left, panels @ ..] = &containers.iter().map(|l| read(k, *l)).collect::<Vec<_>>()[..] else { return Ok(None) };
    let makers = program.producers();
    let args = &program.steps[step].args;
    let constant = |operand: &usize| {
        let maker = makers[args[*operand]].map(|s| &program.steps[s].op);
        matches!(maker, Some(FlowOp::Param { window: Some(_), .. }))
    };
    if !panels.iter().all(constant) {
        return Err("its right factor is no constant");
    }
    if matches!(k.reads[*left].layout, Layout::Capacity { .. }) {
        return Err("its left factor grows in place");
    }
    let in_chunks = for_gpu.and_then(|target| in_chunks(k, common, &rights, target));
    let pairs = || {
        let kernel =
            narrowed(k, common, &rights, &|width| Encoding::Panels { width, depth: Words::Pairs.depth() as usize });
        Some(kernel).filter(|kernel| lower(kernel).is_ok_and(|l| l.words() == Some(Words::Pairs)))
    };
    let kernel = in_chunks.or_else(pairs).ok_or("neighbours along the sum are none in memory")?;
    Ok(Some(Site { kernel, panels: panels.to_vec(), rounded: vec![*left] }))
}

/// Matches a product with a sparse f32 matrix in a format for tensor cores, which multiply it as bf16. Returns `None` for
/// any other step.
fn sparse(program: &Program, step: usize) -> Option<Site> {
    let k = kernel(&program.steps[step])?;
    let mut summed = k.body.iter().filter_map(|s| match s.body {
        Body::Reduce { arg, .. } => Some(arg),
        _ => None,
    });
    // Past the end of a row, a select replaces the product by 0.
    let arg = match &k.body[summed.next()?].body {
        Body::Apply { f: ScalarFn::Select, args } => &k.body[args[1]].body,
        arg => arg,
    };
    let (Body::Apply { f: ScalarFn::Mul, args }, None) = (arg, summed.next()) else { return None };
    let [value, x] = [args[0], args[1]];
    let is_wide = |load: &usize| matches!(k.body[*load].body, Body::Load { .. }) && k.body[*load].dtype == DType::F32;
    let values = [value, x].iter().all(is_wide).then(|| read(k, value))?;
    let maker = program.producers()[program.steps[step].args[values]]?;
    let FlowOp::Param { source, .. } = &program.steps[maker].op else { return None };
    let is_for_tensor_cores = matches!(source.transform, Some(Transform::Sparse(_, f)) if f.is_for_tensor_cores());
    let kernel = is_for_tensor_cores.then(|| narrowed(k, x, &[value], &|_| Encoding::Plain))?;
    Some(Site { kernel, panels: vec![values], rounded: vec![read(k, x)] })
}

/// Returns the kernel that a product with a sparse matrix for tensor cores becomes.
pub fn narrowed_sparse(program: &Program, step: usize) -> Option<Kernel> {
    let site = sparse(program, step)?;
    let args = (0..site.kernel.reads.len()).collect();
    Some(tidy(site.kernel, args).0)
}

/// Widths of panels for GPUs. A tile of a product fetches the columns of one panel at once.
const WIDTHS: [usize; 3] = [128, 64, 32];

/// Returns the kernel with constants in chunks of 16 bytes along K, as the tensor cores of GPUs read them, in the
/// widest panels whose padding is at most an eighth of the columns, or else in the narrowest; `None` if the target does
/// not multiply them on tensor cores.
fn in_chunks(k: &Kernel, common: usize, rights: &[usize], target: Target) -> Option<Kernel> {
    let columns = k.reads[read(k, *rights.first()?)].dims.get(1)?.as_const()?;
    let columns = usize::try_from(columns).ok()?;
    let fits = |width: &usize| *width == WIDTHS[2] || columns.next_multiple_of(*width) - columns <= columns / 8;
    WIDTHS.into_iter().filter(fits).find_map(|width| {
        let kernel = narrowed(k, common, rights, &|_| Encoding::Panels { width, depth: CHUNK_DEPTH as usize });
        let is_fast = lower(&kernel).is_ok_and(|l| l.for_gpu(target).is_on_tensor_cores());
        is_fast.then_some(kernel)
    })
}

/// Returns the load that all products share (A) and the loads of packed constants, or `None` if a product has any other
/// operand.
fn factors(k: &Kernel) -> Option<(usize, Vec<usize>)> {
    let is_panel = |load: usize| {
        let plain = matches!(k.body[load].body, Body::Load { guard: None, .. }) && k.body[load].dtype == DType::F32;
        plain && matches!(k.reads[read(k, load)].encoding, Encoding::Panels { depth: 1, .. })
    };
    let mut found: Vec<[usize; 2]> = vec![];
    for [a, b] in products(k)? {
        found.push(match (is_panel(a), is_panel(b)) {
            (false, true) => [a, b],
            (true, false) => [b, a],
            (true, true) | (false, false) => return None,
        });
    }
    let common = found.first()?[0];
    let same = found.iter().all(|[a, _]| *a == common) && k.body[common].dtype == DType::F32;
    same.then(|| (common, found.iter().map(|[_, b]| *b).collect()))
}

/// Returns the operand that a load reads.
fn read(k: &Kernel, load: usize) -> usize {
    match &k.body[load].body {
        Body::Load { memlet, .. } => memlet.container,
        Body::Const(_) | Body::Index(_) | Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => 0,
    }
}

/// Returns the kernel with bf16 operands, which are widened before they are multiplied; `encoding` is that of constants,
/// given the width of their panels.
fn narrowed(k: &Kernel, common: usize, rights: &[usize], encoding: &dyn Fn(usize) -> Encoding) -> Kernel {
    let mut new = k.clone();
    let last = k.reads.len();
    new.reads.push(Container { dtype: DType::BF16, ..k.reads[read(k, common)].clone() });
    for right in rights {
        let container = &mut new.reads[read(k, *right)];
        container.dtype = DType::BF16;
        if let Encoding::Panels { width, .. } = container.encoding {
            container.encoding = encoding(width);
        }
    }
    let (mut body, mut map): (Vec<Statement>, Vec<usize>) = (vec![], vec![]);
    for (i, statement) in k.body.iter().enumerate() {
        let mut moved = statement.body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k]));
        if i == common || rights.contains(&i) {
            if let (Body::Load { memlet, .. }, true) = (&mut moved, i == common) {
                memlet.container = last;
            }
            body.push(Statement { body: moved, dtype: DType::BF16 });
            moved = Body::Convert(body.len() - 1, Conversion::Value);
        }
        body.push(Statement { body: moved, dtype: statement.dtype });
        map.push(body.len() - 1);
    }
    new.body = body;
    renumber_stores(&mut new, &map);
    new
}

/// Replaces the step's kernel. `rounded` caches the rounded copy of each container, which a separate kernel computes.
fn apply(program: &mut Program, step: usize, site: Site, rounded: &mut BTreeMap<Id, Id>) {
    if site.panels.is_empty() && site.rounded.is_empty() {
        program.steps[step].op = FlowOp::Kernel(Arc::new(site.kernel));
        return;
    }
    let makers = program.producers();
    let mut args = program.steps[step].args.clone();
    for operand in site.panels {
        let Some(maker) = makers[args[operand]] else { continue };
        let id = program.container(site.kernel.reads[operand].clone());
        let mut constant = Step { results: vec![id], ..program.steps[maker].clone() };
        if let FlowOp::Param { source, .. } = &mut constant.op {
            source.transform = source.transform.map(|transform| transform.of_type(DType::BF16));
        }
        program.steps.push(constant);
        args[operand] = id;
    }
    for operand in site.rounded {
        let (wide, origins) = (args[operand], program.steps[step].origins.clone());
        let id = *rounded.entry(wide).or_insert_with(|| {
            let from = program.containers[wide].clone();
            let to = Container { dtype: DType::BF16, ..from.clone() };
            let id = program.container(to.clone());
            let op = FlowOp::Kernel(Arc::new(rounding(from, to)));
            program.steps.push(Step { op, args: vec![wide], results: vec![id], origins });
            id
        });
        args.push(id);
    }
    let (kernel, args) = tidy(site.kernel, args);
    (program.steps[step].op, program.steps[step].args) = (FlowOp::Kernel(Arc::new(kernel)), args);
}

/// Builds to[i] = round(from[i]).
pub fn rounding(from: Container, to: Container) -> Kernel {
    let memlet = Memlet { container: 0, index: (0..from.dims.len()).map(Kernel::var).collect() };
    let load = Body::Load { memlet: memlet.clone(), guard: None };
    let mut kernel = Kernel {
        outer: from.dims.clone(),
        inner: vec![],
        deep: vec![],
        body: vec![
            Statement { body: load, dtype: from.dtype },
            Statement { body: Body::Convert(0, Conversion::Value), dtype: to.dtype },
        ],
        stores: vec![Store { memlet, value: 1 }],
        reads: vec![from],
        writes: vec![to],
    };
    sort_outer(&mut kernel);
    kernel
}

/// Moves rounding into producers: a result of which only the rounded copy is read is written as bf16; otherwise the
/// producer writes the bf16 copy as an additional result, if it may.
fn round_where_made(program: &mut Program, rounded: &BTreeMap<Id, Id>) {
    let mut beside: BTreeMap<Id, Id> = BTreeMap::new();
    for (&wide, &narrow) in rounded {
        let uses = Uses::new(program);
        let Some(root) = Root::find(program, &uses, wide) else { continue };
        let made = match root.is_only_rounded(program, &uses, rounded) {
            true => root.replace(program),
            false => root.add(program, &mut beside),
        };
        if !made {
            continue;
        }
        let end = match beside.get(&root.id) {
            // The views of the f32 result are repeated for the rounded result.
            Some(&id) => root.views.iter().rev().fold(id, |id, &view| {
                let step = program.steps[view].clone();
                let container = Container { dtype: DType::BF16, ..program.containers[step.results[0]].clone() };
                let result = program.container(container);
                program.steps.push(Step { args: vec![id], results: vec![result], ..step });
                result
            }),
            None => wide,
        };
        let reads = program.steps.iter_mut().flat_map(|s| &mut s.args).filter(|a| **a == narrow);
        reads.for_each(|a| *a = end);
    }
}

/// The result of a kernel from which a container comes, directly or through views.
struct Root {
    id: Id,
    maker: usize,
    /// Index among the producer's results.
    result: usize,
    /// The view steps, from the viewed container back to the result.
    views: Vec<usize>,
}

impl Root {
    fn find(program: &Program, uses: &Uses, mut id: Id) -> Option<Root> {
        let mut views = vec![];
        loop {
            let maker = uses.producers[id]?;
            let step = &program.steps[maker];
            match step.op {
                FlowOp::View => {
                    views.push(maker);
                    id = step.args[0];
                }
                FlowOp::Kernel(_) => {
                    let result = step.results.iter().position(|r| *r == id)?;
                    return Some(Root { id, maker, result, views });
                }
                FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::Bind { .. } | FlowOp::Host(_) => return None,
            }
        }
    }

    /// Returns the containers of the result and of all its views.
    fn names(&self, program: &Program, uses: &Uses) -> Vec<Id> {
        let mut names = vec![self.id];
        let mut at = 0;
        while at < names.len() {
            let readers = uses.consumers[names[at]].iter().map(|s| &program.steps[*s]);
            let views = readers.filter(|s| matches!(s.op, FlowOp::View));
            names.extend(views.map(|s| s.results[0]).collect::<Vec<_>>());
            at += 1;
        }
        names
    }

    fn is_only_rounded(&self, program: &Program, uses: &Uses, rounded: &BTreeMap<Id, Id>) -> bool {
        let rounds = |step: &Step, of: Id| rounded.get(&of).is_some_and(|id| step.results.contains(id));
        self.names(program, uses).into_iter().all(|name| {
            let mut readers = uses.consumers[name].iter().map(|s| &program.steps[*s]);
            !program.is_output(name) && readers.all(|s| matches!(s.op, FlowOp::View) || rounds(s, name))
        })
    }

    /// Makes the producer write bf16 into the same container, which becomes bf16 together with its views.
    fn replace(&self, program: &mut Program) -> bool {
        let Some(kernel) = self.rounded_maker(program, true) else { return false };
        let uses = Uses::new(program);
        for name in self.names(program, &uses) {
            program.containers[name].dtype = DType::BF16;
        }
        program.steps[self.maker].op = FlowOp::Kernel(Arc::new(kernel));
        true
    }

    /// Makes the producer write a bf16 copy as an additional result. Contractions and attention are excluded, because
    /// they store their registers to one result only.
    fn add(&self, program: &mut Program, beside: &mut BTreeMap<Id, Id>) -> bool {
        if beside.contains_key(&self.id) {
            return true;
        }
        let class = kernel(&program.steps[self.maker]).map(Kernel::class);
        let Some(Class::Map | Class::Normalise) = class else { return false };
        let Some(kernel) = self.rounded_maker(program, false) else { return false };
        let Some(container) = kernel.writes.last().cloned() else { return false };
        let id = program.container(container);
        let maker = &mut program.steps[self.maker];
        maker.op = FlowOp::Kernel(Arc::new(kernel));
        maker.results.push(id);
        beside.insert(self.id, id);
        true
    }

    /// Returns the producer with the result rounded, in place or as an additional result; `None` if another code
    /// generator would then have to generate it.
    fn rounded_maker(&self, program: &Program, in_place: bool) -> Option<Kernel> {
        let old = kernel(&program.steps[self.maker])?;
        let mut new = old.clone();
        let at = if in_place { self.result } else { new.writes.len() };
        if !in_place {
            new.writes.push(old.writes[self.result].clone());
        }
        new.writes[at].dtype = DType::BF16;
        for (i, store) in old.stores.iter().enumerate().filter(|(_, s)| s.memlet.container == self.result) {
            new.body.push(Statement { body: Body::Convert(store.value, Conversion::Value), dtype: DType::BF16 });
            let value = new.body.len() - 1;
            match in_place {
                true => new.stores[i].value = value,
                false => {
                    let memlet = Memlet { container: at, ..store.memlet.clone() };
                    new.stores.push(Store { memlet, value });
                }
            }
        }
        let route = |l: Lowered| (l.class, l.words().is_some());
        let (was, is) = (route(lower(old).ok()?), route(lower(&new).ok()?));
        (was == is).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::Dim;

    #[test]
    fn a_copy_goes_through_memory_in_its_order() {
        let dims = [1, 8, 4, 5].map(Dim::constant).to_vec();
        let from = Container { layout: Layout::Order(vec![0, 2, 3, 1]), ..Container::plain(DType::F32, dims) };
        let copy = rounding(from.clone(), Container { dtype: DType::BF16, ..from });
        assert_eq!(copy.outer, [1, 4, 5, 8].map(Dim::constant));
        assert_eq!(copy.stores[0].memlet.index, [0, 3, 1, 2].map(Kernel::var));
    }
}
