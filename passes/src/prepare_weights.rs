//! kernels that depend on parameters only  =>  parameters that are computed when the artifact is written
//!
//! `prepare-weights` runs before fusion. It precomputes results of arithmetic on parameters, if a result is no larger
//! than the values from which it is computed, directly or indirectly: codes and scales, but not the weights decoded
//! from them. Pure data movement is left alone, as constants are laid out for their consumers anyway. `expand-weights`
//! runs after contractions have been rewritten to multiply bytes, and precomputes the other values that depend on
//! parameters only, unless they would be more than 8 times as large as the parameters; for example, a value that each
//! call would otherwise widen is stored widened. A parameter of which each rank holds only a part is not prepared.

use crate::rewrite::Rewrites;
use crate::steps::{drop_dead, kernel, origins_of, sort_steps};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::prepared::{self, Prepared};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, FlowOp, Kernel, Program, Source, Step};
use sardonyx_dialects::mlir::Module;
use std::collections::{BTreeMap, BTreeSet};

/// Number of bytes by which a precomputed result may exceed `EXPANDS` times the bytes of its parameters.
const SMALL: i64 = 1 << 16;
/// Maximum ratio of a result's bytes to the bytes of its parameters: 4 bits may become 32.
const EXPANDS: i64 = 8;
/// Limit on the iteration points executed when an artifact is written, so that preparation takes seconds: `POINTS_MAX`,
/// plus `POINTS_PER_BYTE` for each byte of the parameters.
const POINTS_MAX: i64 = 1 << 34;
const POINTS_PER_BYTE: i64 = 256;

pub fn prepare(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    run(module, rewrites, |constants, id| {
        let mut found = BTreeSet::new();
        narrowest(constants, id, &mut found);
        found
    })
}

/// Returns the steps that no call executes, because their results will be stored in the artifact.
pub fn steps(program: &Program) -> BTreeSet<usize> {
    constants(program).into_values().filter(Constant::is_expanded).flat_map(|value| value.steps).collect()
}

pub fn expand(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    run(module, rewrites, |constants, id| {
        let value = constants.get(&id).filter(|value| value.is_expanded());
        value.into_iter().map(|_| id).collect()
    })
}

/// Properties of a value that depends on parameters only.
#[derive(Clone, Default)]
struct Constant {
    /// The steps that compute the value, including its parameters.
    steps: BTreeSet<usize>,
    /// The operands of the last of these steps.
    args: Vec<Id>,
    bytes: i64,
    /// Bytes of the parameters and constants that the value depends on, each counted once.
    read: i64,
    /// The fewest stored bytes from which the value can be computed: its own bytes, or the sum of `least` over its
    /// operands.
    least: i64,
    /// Whether any of the steps is a kernel, and whether any of the kernels does more than move elements.
    made: bool,
    computes: bool,
}

impl Constant {
    fn is_expanded(&self) -> bool {
        self.made && self.bytes <= self.read.saturating_mul(EXPANDS).saturating_add(SMALL)
    }
}

type Constants = BTreeMap<Id, Constant>;

/// Collects the values to store so that `id` can be computed from the fewest bytes.
fn narrowest(constants: &Constants, id: Id, found: &mut BTreeSet<Id>) {
    let Some(value) = constants.get(&id).filter(|value| value.computes) else { return };
    if value.bytes == value.least {
        found.insert(id);
    } else {
        value.args.iter().for_each(|arg| narrowest(constants, *arg, found));
    }
}

fn run(module: &mut Module, rewrites: &mut Rewrites, choose: impl Fn(&Constants, Id) -> BTreeSet<Id>) -> Result<()> {
    let (mut all, cx) = (Prepared::new(), module.context());
    rewrites.programs(module, |rewrites, program| {
        let constants = constants(program);
        let wanted = wanted(program, &constants);
        let chosen: BTreeSet<Id> = wanted.into_iter().flat_map(|id| choose(&constants, id)).collect();
        // All programs are extracted first, because replacing one value removes it from the computation of others.
        let site = |id: Id| (id, alone(program, id, &constants[&id].steps));
        let sites: Vec<(Id, Program)> = chosen.into_iter().map(site).collect();
        for (id, small) in sites {
            let (name, made) = prepared::named(small, cx)?;
            let steps: Vec<usize> = constants[&id].steps.iter().copied().collect();
            let origins = origins_of(program, &steps);
            let applied = rewrites.apply(program, "when written", &steps, |program| {
                program.prepared.insert(name.clone(), made.clone());
                // A new container replaces `id`, because the step that computes `id` remains if its other results are
                // read.
                let new = program.container(program.containers[id].clone());
                program.steps.iter_mut().flat_map(|s| &mut s.args).filter(|arg| **arg == id).for_each(|arg| *arg = new);
                program.outputs.iter_mut().filter(|(_, output)| *output == id).for_each(|(_, output)| *output = new);
                let op = FlowOp::Param { source: Source::one(&name), window: None };
                program.steps.push(Step { op, args: vec![], results: vec![new], origins });
            })?;
            if applied {
                all.insert(name, made);
            }
        }
        Ok(())
    })?;
    prepared::write(module.operation(), &all)
}

/// Returns the containers whose values depend on parameters and constants only, as far as the limit on iteration points
/// permits to compute them.
fn constants(program: &Program) -> Constants {
    let mut known = Constants::new();
    let mut points_left = read_bytes(program).saturating_mul(POINTS_PER_BYTE).saturating_add(POINTS_MAX);
    for (at, step) in program.steps.iter().enumerate() {
        let (kernel, computes) = match &step.op {
            FlowOp::Param { source, window: None } if source.parts.is_empty() => (false, false),
            FlowOp::Const(_) | FlowOp::View => (false, false),
            FlowOp::Kernel(k) if is_fixed(k) && points(k) <= points_left => {
                points_left -= points(k);
                let moves = |body: &Body| matches!(body, Body::Load { .. } | Body::Index(_) | Body::Const(_));
                (true, !k.body.iter().all(|s| moves(&s.body)))
            }
            FlowOp::Kernel(_) | FlowOp::Param { .. } | FlowOp::Bind { .. } | FlowOp::Host(_) => continue,
        };
        let args: Option<Vec<&Constant>> = step.args.iter().map(|arg| known.get(arg)).collect();
        let Some(args) = args else { continue };
        let mut whole = Constant { made: kernel, computes, args: step.args.clone(), ..Constant::default() };
        whole.args.dedup();
        for arg in args {
            whole.steps.extend(&arg.steps);
            (whole.made, whole.computes) = (whole.made | arg.made, whole.computes | arg.computes);
        }
        whole.steps.insert(at);
        let results: Vec<(Id, Option<i64>)> = step.results.iter().map(|id| (*id, bytes(program, *id))).collect();
        let is_leaf = |at: &usize| matches!(program.steps[*at].op, FlowOp::Param { .. } | FlowOp::Const(_));
        let leaves = whole.steps.iter().filter(|at| is_leaf(at));
        let read = |at: &usize| bytes(program, program.steps[*at].results[0]).unwrap_or(0);
        whole.read = leaves.map(read).fold(0, i64::saturating_add);
        let of_args = whole.args.iter().map(|arg| known[arg].least).fold(0, i64::saturating_add);
        let through = if whole.args.is_empty() { i64::MAX } else { of_args };
        for (id, bytes) in results {
            if let Some(bytes) = bytes {
                known.insert(id, Constant { bytes, least: bytes.min(through), ..whole.clone() });
            }
        }
    }
    known
}

/// Whether a kernel does the same in every call: it uses no symbols, so its results depend only on the contents of its
/// operands.
fn is_fixed(k: &Kernel) -> bool {
    let own = |d: &Dim| d.names().is_empty();
    let of_body = k.body.iter().all(|s| match &s.body {
        Body::Load { memlet, .. } => memlet.index.iter().all(own),
        Body::Index(d) => own(d),
        Body::Const(_) | Body::Apply { .. } | Body::Convert(..) | Body::Reduce { .. } => true,
    });
    of_body && k.extents().all(|n| n.as_const().is_some()) && k.stores.iter().flat_map(|s| &s.memlet.index).all(own)
}

/// Returns the number of iteration points of a kernel with constant extents.
fn points(k: &Kernel) -> i64 {
    k.extents().filter_map(Dim::as_const).fold(1, i64::saturating_mul)
}

/// Returns the total bytes of all parameters.
fn read_bytes(program: &Program) -> i64 {
    let is_param = |step: &&Step| matches!(step.op, FlowOp::Param { .. });
    let params = program.steps.iter().filter(is_param).flat_map(|step| &step.results);
    params.filter_map(|id| bytes(program, *id)).fold(0, i64::saturating_add)
}

/// Returns the bytes of a container, or `None` if it is opaque, not plain in row-major order, or not of constant size.
fn bytes(program: &Program, id: Id) -> Option<i64> {
    let c = &program.containers[id];
    if c.dtype.is_opaque() || !c.is_plain() {
        return None;
    }
    let each = c.dtype.bytes() as i64;
    c.dims.iter().map(Dim::as_const).try_fold(each, |n, d| n.checked_mul(d?))
}

/// Returns the constants that are outputs of the program, or operands of steps whose results are not all constant.
fn wanted(program: &Program, constants: &Constants) -> Vec<Id> {
    let mut wanted: BTreeSet<Id> = program.outputs.iter().map(|(_, id)| *id).collect();
    for step in &program.steps {
        if kernel(step).is_none() && !matches!(step.op, FlowOp::Host(_) | FlowOp::Bind { .. } | FlowOp::View) {
            continue;
        }
        if !step.results.iter().all(|id| constants.contains_key(id)) || step.results.is_empty() {
            wanted.extend(&step.args);
        }
    }
    wanted.into_iter().filter(|id| constants.contains_key(id)).collect()
}

/// Returns a program of these steps, whose only output is the given container.
fn alone(program: &Program, id: Id, steps: &BTreeSet<usize>) -> Program {
    let mut out = Program::default();
    let mut ids = BTreeMap::new();
    for at in steps {
        let mut step = Step { origins: vec![], ..program.steps[*at].clone() };
        // Copies only the containers of these steps; the program may have thousands of other containers.
        for id in step.args.iter_mut().chain(&mut step.results) {
            *id = *ids.entry(*id).or_insert_with(|| out.container(program.containers[*id].clone()));
        }
        out.steps.push(step);
    }
    out.outputs = ids.get(&id).map(|id| ("value".into(), *id)).into_iter().collect();
    sort_steps(&mut out);
    drop_dead(&mut out);
    out
}
