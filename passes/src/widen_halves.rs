//! y = f(x), all of f16  =>  y = f16(f(f32(x))), with y stored as f32 between kernels
//!
//! CPUs compute f16 as f32 (see FLOATING_POINT.md), so this pass writes f16 kernels as f32 kernels before other passes
//! see them: contractions, convolutions, attention and Winograd's algorithm then need no f16 variants. The result of an
//! f16 kernel is rounded to f16 when it is stored, but stored as f32, because operand A is read one element at a time
//! and would be converted again for every panel. Parameters, inputs and outputs stay f16 in memory; a kernel that only
//! moves f16 elements moves them as f16.

use crate::lower_precision::rounding;
use crate::rewrite::Rewrites;
use crate::splice::tidy;
use crate::steps::kernel;
use half::f16;
use sardonyx_base::{DType, Result};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, Container, FlowOp, Kernel, Layout, Program, Statement, Step};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use std::sync::Arc;

const NARROW: DType = DType::F16;
const WIDE: DType = DType::F32;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |_, program| {
        widen_inputs(program);
        let wide = wide_containers(program);
        for at in 0..program.steps.len() {
            let step = &program.steps[at];
            let Some(old) = kernel(step).filter(|k| k.body.iter().any(|s| s.dtype == NARROW)) else { continue };
            let is_wide = |ids: &[Id]| ids.iter().map(|id| wide[*id]).collect::<Vec<bool>>();
            let (reads, writes) = (is_wide(&step.args), is_wide(&step.results));
            if only_moves(old) && !reads.iter().chain(&writes).any(|wide| *wide) {
                continue;
            }
            let (new, args) = tidy(widened(old, &reads, &writes), step.args.clone());
            (program.steps[at].op, program.steps[at].args) = (FlowOp::Kernel(Arc::new(new)), args);
        }
        for (container, _) in program.containers.iter_mut().zip(wide).filter(|(_, wide)| *wide) {
            container.dtype = WIDE;
        }
        Ok(())
    })
}

/// Makes kernels read a copy of each f16 input, which this pass then stores as f32 and which may later be inlined into
/// the kernels. Caches are not copied.
fn widen_inputs(program: &mut Program) {
    for (_, input) in program.inputs.clone() {
        let from = program.containers[input].clone();
        if from.dtype != NARROW || from.layout != Layout::RowMajor {
            continue;
        }
        let computes = |step: &Step| kernel(step).is_some() && step.args.contains(&input);
        let readers: Vec<usize> = (0..program.steps.len()).filter(|at| computes(&program.steps[*at])).collect();
        let Some(&first) = readers.first() else { continue };
        // The copy rounds values that are f16 already, so that its result has type f16 like the results of all kernels
        // at this point.
        let id = program.container(from.clone());
        let op = FlowOp::Kernel(Arc::new(rounding(from.clone(), from)));
        for reader in readers {
            let step = &mut program.steps[reader];
            step.args.iter_mut().filter(|arg| **arg == input).for_each(|arg| *arg = id);
        }
        let origins = program.steps[first].origins.clone();
        program.steps.insert(first, Step { op, args: vec![input], results: vec![id], origins });
    }
}

/// Returns, for each container, whether it stores f16 values as f32.
fn wide_containers(program: &Program) -> Vec<bool> {
    let n = program.containers.len();
    let (fixed, mut wide, mut constant) = (fixed_containers(program), vec![false; n], vec![false; n]);
    for step in &program.steps {
        let is_constant = match &step.op {
            FlowOp::Param { .. } | FlowOp::Const(_) => true,
            FlowOp::View | FlowOp::Kernel(_) => step.args.iter().all(|id| constant[*id]),
            FlowOp::Bind { .. } | FlowOp::Host(_) => false,
        };
        let of_wide = step.args.iter().any(|id| wide[*id]);
        let widens = match &step.op {
            FlowOp::View => of_wide,
            FlowOp::Kernel(k) => !is_constant && (of_wide || !only_moves(k)),
            FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::Bind { .. } | FlowOp::Host(_) => false,
        };
        for &id in &step.results {
            constant[id] = is_constant;
            wide[id] = widens && !fixed[id] && program.containers[id].dtype == NARROW;
        }
    }
    wide
}

/// Returns, for each container, whether its memory is an output or is read by a step other than a kernel, directly or
/// through a view.
fn fixed_containers(program: &Program) -> Vec<bool> {
    let mut fixed = vec![false; program.containers.len()];
    program.outputs.iter().for_each(|(_, id)| fixed[*id] = true);
    for step in program.steps.iter().rev() {
        match &step.op {
            FlowOp::Host(_) | FlowOp::Bind { .. } => step.args.iter().for_each(|id| fixed[*id] = true),
            FlowOp::View => fixed[step.args[0]] |= fixed[step.results[0]],
            FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::Kernel(_) => {}
        }
    }
    // Views of fixed containers share their memory, so they are fixed, too.
    let views = |step: &&Step| matches!(step.op, FlowOp::View);
    program.steps.iter().filter(views).for_each(|step| fixed[step.results[0]] |= fixed[step.args[0]]);
    fixed
}

/// Whether a kernel only moves f16 elements, without computing on them.
fn only_moves(k: &Kernel) -> bool {
    k.body.iter().all(|s| match &s.body {
        Body::Load { .. } | Body::Const(_) | Body::Index(_) => true,
        Body::Apply { f, args } => {
            *f == ScalarFn::Select || s.dtype != NARROW && args.iter().all(|a| k.body[*a].dtype != NARROW)
        }
        Body::Convert(from, _) => s.dtype != NARROW && k.body[*from].dtype != NARROW,
        Body::Reduce { .. } => s.dtype != NARROW,
    })
}

/// A body under construction, and the new number of each old statement; f16 statements become f32 ones with the same
/// value.
struct Widening<'k> {
    old: &'k Kernel,
    body: Vec<Statement>,
    map: Vec<usize>,
}

impl Widening<'_> {
    fn push(&mut self, body: Body, dtype: DType) -> usize {
        self.body.push(Statement { body, dtype });
        self.body.len() - 1
    }

    fn convert(&mut self, from: usize, dtype: DType) -> usize {
        self.push(Body::Convert(from, Conversion::Value), dtype)
    }

    /// Appends f32(f16(x)).
    fn rounded(&mut self, x: usize) -> usize {
        let narrow = self.convert(x, NARROW);
        self.convert(narrow, WIDE)
    }

    fn statement(&mut self, k: usize, wide_reads: &[bool]) -> usize {
        let Statement { body, dtype } = &self.old.body[k];
        let is_narrow = |k: usize| self.old.body[k].dtype == NARROW;
        let new = body.renumbered(&|k| self.map[k], &|d| rename(d, &|_| None, &|k| self.map[k]));
        match (body, *dtype == NARROW) {
            (Body::Load { memlet, .. }, true) if wide_reads[memlet.container] => self.push(new, WIDE),
            (Body::Load { .. }, true) => {
                let narrow = self.push(new, NARROW);
                self.convert(narrow, WIDE)
            }
            (Body::Const(value), true) => self.push(Body::Const(f16::from_f64(*value).to_f64()), WIDE),
            // A remainder is computed in f64: rounding to f32 before rounding to f16 could change the result.
            (Body::Apply { f: f @ ScalarFn::Rem, args }, true) => {
                let args = args.iter().map(|arg| self.convert(self.map[*arg], NARROW)).collect();
                let y = self.push(Body::Apply { f: *f, args }, NARROW);
                self.convert(y, WIDE)
            }
            (Body::Apply { f, .. }, true) => {
                let y = self.push(new, WIDE);
                if keeps_values(*f) || self.is_only_summed(k) { y } else { self.rounded(y) }
            }
            (Body::Reduce { f, .. }, true) => {
                let y = self.push(new, WIDE);
                if matches!(f, ReduceFn::Max | ReduceFn::Min) { y } else { self.rounded(y) }
            }
            (Body::Convert(from, Conversion::Value), true) if is_narrow(*from) => self.map[*from],
            (Body::Convert(..), true) => {
                let narrow = self.push(new, NARROW);
                self.convert(narrow, WIDE)
            }
            (Body::Convert(from, Conversion::Value), false) if is_narrow(*from) && *dtype == WIDE => self.map[*from],
            (Body::Convert(from, Conversion::Bits), false) if is_narrow(*from) => {
                let narrow = self.convert(self.map[*from], NARROW);
                self.push(Body::Convert(narrow, Conversion::Bits), *dtype)
            }
            _ => self.push(new, *dtype),
        }
    }

    /// Whether statement `k` is a product that only a sum reads; such products are not rounded.
    fn is_only_summed(&self, k: usize) -> bool {
        let is_product = matches!(self.old.body[k].body, Body::Apply { f: ScalarFn::Mul, .. });
        let sums = |s: &Statement| matches!(s.body, Body::Reduce { f: ReduceFn::Add, .. });
        let mut readers = self.old.body.iter().filter(|s| s.body.operands().contains(&k));
        is_product && !self.old.stores.iter().any(|s| s.value == k) && readers.all(sums)
    }
}

/// Whether the result of a function of f16 numbers is always an f16 number, so that it needs no rounding.
fn keeps_values(f: ScalarFn) -> bool {
    use ScalarFn::*;
    match f {
        Abs | Neg | Max | Min | Select | Sign | Ceil | Floor | Round => true,
        Add | Sub | Mul | Div | Rem | Pow | Sqrt | Exp | Log | Sin | Cos | Tanh | Atan | Erf => false,
        Eq | Le | Lt | IsNan | And | Or | Xor | Not | BitAnd | BitOr | BitXor | Shl | Shr => true,
    }
}

/// Returns the kernel in f32; `wide_reads` and `wide_writes` tell which operands and results are f32 in memory.
fn widened(old: &Kernel, wide_reads: &[bool], wide_writes: &[bool]) -> Kernel {
    let mut new = Widening { old, body: vec![], map: vec![] };
    for k in 0..old.body.len() {
        let at = new.statement(k, wide_reads);
        new.map.push(at);
    }
    let mut stores = old.stores.clone();
    for store in &mut stores {
        let (old_value, value) = (store.value, new.map[store.value]);
        let narrow = old.body[old_value].dtype == NARROW && !wide_writes[store.memlet.container];
        store.value = match new.body[value].body {
            _ if !narrow => value,
            Body::Convert(from, Conversion::Value) if new.body[from].dtype == NARROW => from,
            _ => new.convert(value, NARROW),
        };
        store.memlet.index.iter_mut().for_each(|d| *d = rename(d, &|_| None, &|k| new.map[k]));
    }
    let mut kernel = Kernel { body: new.body, stores, ..old.clone() };
    let widen = |containers: &mut [Container], wide: &[bool]| {
        containers.iter_mut().zip(wide).filter(|(_, wide)| **wide).for_each(|(c, _)| c.dtype = WIDE);
    };
    widen(&mut kernel.reads, wide_reads);
    widen(&mut kernel.writes, wide_writes);
    kernel
}
