//! flow.kernel …  =>  plan.kernel @k0, plan.entry { plan.launch @k0 … }: launches in order, buffers, shared kernels

use crate::levels::is_flow;
use crate::rewrite::Rewrites;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::flow::{Container, FlowOp, Layout, Program};
use sardonyx_dialects::mlir::{Module, Operation};
use sardonyx_dialects::plan::{Action, Bind, Buffer, Copy, Entry, Host, HostCall, Launch, Operand, Plan, Step};
use sardonyx_kernels::{KernelDef, lower};
use std::collections::HashMap;

/// Replaces the flow functions of a module by one plan, whose entry points share equal kernels.
pub fn run(module: &mut Module, _: &mut Rewrites) -> Result<()> {
    let is_program = |op: &Operation| op.name() == "func.func" && is_flow(*op);
    let functions = module.operations().into_iter().filter(is_program);
    let programs = functions.map(Program::read).collect::<Result<Vec<_>>>()?;
    let (mut plan, mut kernels) = (Plan::default(), HashMap::new());
    let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
    for program in &programs {
        let entry = schedule(program, &names, &mut plan, &mut kernels)?;
        plan.entries.push(entry);
    }
    // The plan replaces the first function; the other functions are removed.
    let mut new = plan.write(module.context())?;
    module.replace(|op| Ok(is_program(&op).then(|| std::mem::take(&mut new))))
}

struct Scheduler<'p> {
    program: &'p Program,
    entry: Entry,
    /// For each container, its root: the container whose memory it shares through views, or itself.
    roots: Vec<usize>,
    /// Buffer of each root.
    buffers: HashMap<usize, usize>,
    /// The plan, with the kernels of all entry points.
    plan: &'p mut Plan,
    kernels: &'p mut HashMap<KernelDef, usize>,
    /// Names of all entry points, in order.
    names: &'p [&'p str],
}

fn schedule(
    program: &Program,
    names: &[&str],
    plan: &mut Plan,
    kernels: &mut HashMap<KernelDef, usize>,
) -> Result<Entry> {
    let entry = Entry {
        name: program.name.clone(),
        symbols: program.symbols.clone(),
        checks: program.checks.clone(),
        states: program.states.clone(),
        internal: program.internal,
        ..Entry::default()
    };
    let mut roots: Vec<usize> = (0..program.containers.len()).collect();
    for step in &program.steps {
        if let (FlowOp::View, [of], [result]) = (&step.op, &step.args[..], &step.results[..]) {
            roots[*result] = roots[*of];
        }
    }
    let buffers = HashMap::new();
    let mut s = Scheduler { program, entry, roots, buffers, plan, kernels, names };
    s.ports();
    for step in &program.steps {
        s.step(step).map_err(|e| match step.origins.first() {
            Some(node) => e.node(node),
            None => e,
        })?;
    }
    s.copy_outputs();
    Ok(s.entry)
}

impl Scheduler<'_> {
    fn buffer(&mut self, buffer: Buffer) -> usize {
        self.entry.buffers.push(buffer);
        self.entry.buffers.len() - 1
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
            // A kernel's result that is an output is written directly to the output's buffer. An output that is an
            // input, a constant or also another output is copied.
            if by_kernel && !self.buffers.contains_key(&root) {
                self.buffers.insert(root, b);
            }
        }
    }

    fn copy_outputs(&mut self) {
        let outputs = self.entry.buffers.iter().enumerate().filter(|(_, b)| matches!(b, Buffer::Output { .. }));
        let outputs: Vec<usize> = outputs.map(|(i, _)| i).collect();
        for ((_, id), to) in self.program.outputs.iter().zip(outputs) {
            let from = self.buffers[&self.roots[*id]];
            if from != to {
                self.entry.steps.push(Step { action: Action::Copy(Copy { from, to }), origins: vec![] });
            }
        }
    }

    fn step(&mut self, step: &sardonyx_dialects::flow::Step) -> Result<()> {
        let container = |i: usize| self.program.containers[step.results[i]].clone();
        match &step.op {
            FlowOp::View => Ok(()),
            FlowOp::Bind { symbol } => {
                let buffer = self.buffers[&self.roots[step.args[0]]];
                let action = Action::Bind(Bind { symbol: symbol.clone(), buffer });
                self.entry.steps.push(Step { action, origins: step.origins.clone() });
                Ok(())
            }
            FlowOp::Param { source, window } => {
                let buffer = Buffer::Param { source: source.clone(), window: window.clone(), container: container(0) };
                let same = self.entry.buffers.iter().position(|b| *b == buffer);
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
            FlowOp::Host(host) => {
                let args = step.args.iter().map(|id| self.operand(*id)).collect();
                for &id in &step.results {
                    if host.op.exchange().is_some() {
                        self.arena(id)?;
                        continue;
                    }
                    let container = self.program.containers[id].clone();
                    let b = self.buffer(Buffer::Value { container });
                    self.buffers.insert(self.roots[id], b);
                }
                let body = |name: &String| {
                    let at = self.names.iter().position(|n| n == name);
                    at.ok_or_else(|| Error::defect(format!("`{name}` is called, but not there")))
                };
                let bodies = host.bodies.iter().map(body).collect::<Result<_>>()?;
                let call = HostCall { op: host.op.clone(), bodies, results: host.results.clone() };
                let results = step.results.iter().map(|id| self.operand(*id)).collect();
                let action = Action::Host(Host { call, args, results });
                self.entry.steps.push(Step { action, origins: step.origins.clone() });
                Ok(())
            }
            FlowOp::Kernel(kernel) => {
                for &id in &step.results {
                    self.arena(id)?;
                }
                let lowered = lower(kernel)?;
                let next = self.plan.kernels.len();
                let kernel_idx = *self.kernels.entry(lowered.def).or_insert(next);
                if kernel_idx == next {
                    self.plan.kernels.push((format!("k{next}"), (**kernel).clone()));
                }
                let touched = step.args.iter().chain(&step.results);
                let buffers = touched.map(|id| self.buffers[&self.roots[*id]]).collect();
                let (params, grid) = (lowered.params, lowered.grid);
                let action = Action::Launch(Launch { kernel: kernel_idx, buffers, params, grid, carries: None });
                self.entry.steps.push(Step { action, origins: step.origins.clone() });
                Ok(())
            }
        }
    }

    fn operand(&self, id: usize) -> Operand {
        let Container { dtype, dims, .. } = self.program.containers[id].clone();
        Operand { buffer: self.buffers[&self.roots[id]], dtype, dims }
    }

    /// Adds a buffer in the arena for a container that has none yet.
    fn arena(&mut self, id: usize) -> Result<()> {
        let root = self.roots[id];
        if self.buffers.contains_key(&root) {
            return Ok(());
        }
        let container = &self.program.containers[id];
        if matches!(container.layout, Layout::Capacity { .. }) {
            return Err(Error::defect("room for a state in the arena, whose size no call could know"));
        }
        let b = self.buffer(Buffer::Arena { bytes: bytes(container)?, offset: None });
        self.buffers.insert(root, b);
        Ok(())
    }
}

/// Returns the bytes of a container, 0 for opaque values. Errors: E0107 if its element type is not supported.
pub fn bytes(container: &Container) -> Result<Dim> {
    match container.dtype.bytes() {
        0 if !container.dtype.is_opaque() => {
            Err(Error::user("E0107", format!("buffers of type {} are not supported", container.dtype)))
        }
        _ => Ok(container.encoding.bytes(container.dtype, &container.memory_dims())),
    }
}
