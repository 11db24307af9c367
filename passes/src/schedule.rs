//! flow.kernel …  =>  plan.kernel @k0, plan.entry { plan.launch @k0 … }: order, buffers, one copy of equal kernels

use crate::kernel::{KernelDef, lower};
use sardonyx_dialects::flow::{Container, FlowOp, Layout, Program};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::{Action, Buffer, Plan, Step};
use sardonyx_dialects::sdx::SymbolKind;
use sardonyx_runtime::dim::product;
use sardonyx_runtime::{Dim, Error, Result};
use std::collections::HashMap;

pub fn run(module: Operation) -> Result<()> {
    let Some(block) = module.block(0) else { return Ok(()) };
    for op in block.operations().into_iter().filter(|op| op.name() == "func.func" && crate::is_flow(*op)) {
        let plan = schedule(&Program::read(op)?)?;
        for new in plan.write(module.context())? {
            block.insert_before(op, new);
        }
        op.detach();
        op.erase();
    }
    Ok(())
}

struct Scheduler<'p> {
    program: &'p Program,
    plan: Plan,
    /// Container to the container whose memory it shares, through views.
    roots: Vec<usize>,
    /// Root to buffer.
    buffers: HashMap<usize, usize>,
    kernels: HashMap<KernelDef, usize>,
}

fn schedule(program: &Program) -> Result<Plan> {
    if let Some((name, _)) = program.symbols.iter().find(|(_, s)| s.kind == SymbolKind::Data) {
        let binder = program.steps.iter().find(|s| matches!(&s.op, FlowOp::Bind { symbol } if symbol == name));
        let error = Error::user("E0203", "a shape that depends on data is not supported in a compiled plan yet")
            .help("export the model with shapes that follow from its input shapes");
        return Err(match binder.and_then(|s| s.origins.first()) {
            Some(node) => error.node(node),
            None => error,
        });
    }
    let plan = Plan {
        name: program.name.clone(),
        symbols: program.symbols.clone(),
        checks: program.checks.clone(),
        ..Plan::default()
    };
    let mut roots: Vec<usize> = (0..program.containers.len()).collect();
    for step in program.steps.iter().filter(|s| s.op == FlowOp::View) {
        roots[step.results[0]] = roots[step.args[0]];
    }
    let mut s = Scheduler { program, plan, roots, buffers: HashMap::new(), kernels: HashMap::new() };
    s.ports();
    for step in &program.steps {
        s.step(step).map_err(|e| match step.origins.first() {
            Some(node) => e.node(node),
            None => e,
        })?;
    }
    s.copy_outputs();
    Ok(s.plan)
}

impl Scheduler<'_> {
    fn buffer(&mut self, buffer: Buffer) -> usize {
        self.plan.buffers.push(buffer);
        self.plan.buffers.len() - 1
    }

    fn ports(&mut self) {
        for (name, id) in &self.program.inputs {
            let container = self.program.containers[*id].clone();
            let b = self.buffer(Buffer::Input { name: name.clone(), container });
            self.buffers.insert(*id, b);
        }
        let producers = self.program.producers();
        for (name, id) in &self.program.outputs {
            let root = self.roots[*id];
            let by_kernel = producers[root].is_some_and(|s| matches!(self.program.steps[s].op, FlowOp::Kernel(_)));
            let b = self.buffer(Buffer::Output { name: name.clone(), container: self.program.containers[*id].clone() });
            // The kernel writes an output directly; one that is an input, a constant or another output is copied.
            if by_kernel && !self.buffers.contains_key(&root) {
                self.buffers.insert(root, b);
            }
        }
    }

    fn copy_outputs(&mut self) {
        let outputs = self.plan.buffers.iter().enumerate().filter(|(_, b)| matches!(b, Buffer::Output { .. }));
        let outputs: Vec<usize> = outputs.map(|(i, _)| i).collect();
        for ((_, id), to) in self.program.outputs.iter().zip(outputs) {
            let from = self.buffers[&self.roots[*id]];
            if from != to {
                self.plan.steps.push(Step { action: Action::Copy { from, to }, origins: vec![] });
            }
        }
    }

    fn step(&mut self, step: &sardonyx_dialects::flow::Step) -> Result<()> {
        let container = |i: usize| self.program.containers[step.results[i]].clone();
        match &step.op {
            FlowOp::View | FlowOp::Bind { .. } => Ok(()),
            FlowOp::Param { name, window } => {
                let buffer = Buffer::Param { name: name.clone(), window: *window, container: container(0) };
                let same = self.plan.buffers.iter().position(|b| *b == buffer);
                let b = same.unwrap_or_else(|| self.buffer(buffer));
                self.buffers.insert(step.results[0], b);
                Ok(())
            }
            FlowOp::Const(value) => {
                let container = container(0);
                let b = self.buffer(Buffer::Const { value: value.clone(), container });
                self.buffers.insert(step.results[0], b);
                Ok(())
            }
            FlowOp::Kernel(kernel) => {
                for &id in &step.results {
                    if !self.buffers.contains_key(&id) {
                        let bytes = bytes(&self.program.containers[id])?;
                        let b = self.buffer(Buffer::Arena { bytes, offset: None });
                        self.buffers.insert(id, b);
                    }
                }
                let lowered = lower(kernel)?;
                let next = self.plan.kernels.len();
                let index = *self.kernels.entry(lowered.def).or_insert(next);
                if index == next {
                    self.plan.kernels.push((format!("k{next}"), (**kernel).clone()));
                }
                let touched = step.args.iter().chain(&step.results);
                let buffers = touched.map(|id| self.buffers[&self.roots[*id]]).collect();
                let action = Action::Launch { kernel: index, buffers, params: lowered.params, grid: lowered.grid };
                self.plan.steps.push(Step { action, origins: step.origins.clone() });
                Ok(())
            }
        }
    }
}

/// Bytes that a container takes.
pub fn bytes(container: &Container) -> Result<Dim> {
    let elements = match (&container.layout, container.dims.as_slice()) {
        (Layout::Panels { width }, [k, n]) => {
            let width = Dim::constant(*width as i64);
            n.ceildiv(&width) * width * k.clone()
        }
        _ => product(&container.dims),
    };
    match container.dtype.bits() {
        bits @ 8.. => Ok(elements * Dim::constant(bits as i64 / 8)),
        _ => Err(Error::user("E0107", format!("buffers of type {} are not supported", container.dtype))),
    }
}
