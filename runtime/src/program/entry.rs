//! an entry point of the plan  =>  checked against the symbols, constants and kernels

use super::needed::needed_steps;
use super::verify::undeclared;
use super::{Action, Buffer, Entry, Host, Launch, Operand, Place, Port, Program, Symbol, states};
use sardonyx_base::host::HostOp;
use sardonyx_base::plan::{self, Copy, SymbolKind, malformed, step_label};
use sardonyx_base::solve::{Source, further, sources};
use sardonyx_base::{DType, Dim, Kind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

pub struct EntryReader<'a> {
    pub(super) program: &'a Program,
    /// Index of a symbol => the first stage in which it has a value.
    values: BTreeMap<usize, usize>,
    /// Buffer with a host step's result => the stage that begins after that step.
    made: BTreeMap<usize, usize>,
    pub(super) stage: usize,
}

impl<'a> EntryReader<'a> {
    pub fn new(program: &'a Program) -> EntryReader<'a> {
        let values = program.coordinates.iter().map(|(at, _)| (*at, 0)).collect();
        EntryReader { program, values, made: BTreeMap::new(), stage: 0 }
    }

    pub fn read(mut self, plan: plan::Entry) -> Result<Entry> {
        states::check_dims(self.program, &plan.inputs)?;
        states::check_dims(self.program, &plan.outputs)?;
        let sources = self.read_inputs(&plan.inputs)?;
        // Sizes may use symbols that are read from data, so their stages must be known first.
        self.bind_stages(&plan.steps)?;
        self.check_each("output", &plan.outputs)?;
        let [input_states, output_states] = self.read_states(&plan)?;
        let own = |ports: &[Port], states: &[Option<usize>]| -> Result<Vec<Vec<Dim>>> {
            let one = |(port, state): (&Port, &Option<usize>)| match state {
                Some(at) => states::own_dims(self.program, &plan.states[*at], port),
                None => Ok(port.dims.clone()),
            };
            ports.iter().zip(states).map(one).collect()
        };
        let (own_inputs, own_outputs) = (own(&plan.inputs, &input_states)?, own(&plan.outputs, &output_states)?);
        let sources_in_place = self.sources_in_place(&plan.inputs, &input_states);
        let bound = self.values.iter().filter(|(_, stage)| **stage == 0).map(|(&at, _)| at).collect();
        let buffers = plan.buffers.iter().enumerate();
        let stage = |(i, b)| self.buffer_stage(i, b, &plan).map_err(|e| e.node(format!("buffer {i}")));
        let buffer_stages: Vec<usize> = buffers.map(stage).collect::<Result<_>>()?;
        check_ports(&plan)?;
        let check_stage = |c: &plan::Check| Ok(self.known(&c.left)?.max(self.known(&c.right)?));
        let check_stages = plan.checks.iter().map(check_stage).collect::<Result<_>>()?;
        self.known(&plan.arena_bytes)?;
        states::check_buffers(self.program, &plan)?;
        self.check_steps(&plan, &buffer_stages)?;
        states::check_carried(&plan)?;
        let (pointers_at, params_at) =
            (begins(&plan, |launch| launch.buffers.len()), begins(&plan, |launch| launch.params.len()));
        let n_stages = self.stage + 1;
        let needed = needed_steps(self.program, &plan);
        Ok(Entry {
            plan,
            input_states,
            output_states,
            own_inputs,
            own_outputs,
            sources,
            sources_in_place,
            bound,
            buffer_stages,
            check_stages,
            pointers_at,
            params_at,
            needed,
            n_stages,
            specialized: vec![],
        })
    }

    /// Returns the index of the state of each input and each output. A call knows the capacities from the start, like
    /// the dimensions of the inputs.
    fn read_states(&mut self, plan: &plan::Entry) -> Result<[Vec<Option<usize>>; 2]> {
        states::check_states(self.program, plan)?;
        let (mut of_inputs, mut of_outputs) = (vec![None; plan.inputs.len()], vec![None; plan.outputs.len()]);
        for (i, state) in plan.states.iter().enumerate() {
            (of_inputs[state.input], of_outputs[state.output]) = (Some(i), Some(i));
            let output = &plan.outputs[state.output];
            if self.known(&output.dims[state.axis])? > 0 {
                return Err(malformed(format!("the positions of `{}` depend on data", output.name)));
            }
            let symbols = [&state.input_capacity, &state.output_capacity].into_iter().chain(&state.kept);
            self.values.extend(symbols.map(|name| (self.program.symbol_index[name], 0)));
        }
        Ok([of_inputs, of_outputs])
    }

    /// Solves for as many symbols as possible from inputs that are not states: an empty cache knows only the number of
    /// its positions, not its other dimensions.
    fn sources_in_place(&self, inputs: &[Port], input_states: &[Option<usize>]) -> Vec<Source> {
        let of_inputs = |name: &str| self.symbol(name).is_some_and(|s| s.kind == SymbolKind::Input);
        let some = |states: bool| {
            let numbered = inputs.iter().enumerate().filter(move |(i, _)| input_states[*i].is_some() == states);
            numbered.map(|(i, port)| (i, port.dims.as_slice()))
        };
        further(further(vec![], some(false), &of_inputs), some(true), &of_inputs)
    }

    /// Solves for the symbols in the dimensions of the inputs; these symbols must determine all dimensions of the
    /// inputs.
    fn read_inputs(&mut self, ports: &[Port]) -> Result<Vec<Source>> {
        let dims = ports.iter().flat_map(|port| &port.dims);
        if let Some(name) = dims.flat_map(Dim::names).find(|s| self.symbol(s).is_none()) {
            return Err(undeclared(&name));
        }
        let of_inputs = |name: &str| self.symbol(name).is_some_and(|s| s.kind == SymbolKind::Input);
        let sources = sources(ports.iter().map(|port| port.dims.as_slice()), &of_inputs);
        self.values.extend(sources.iter().map(|s| (self.program.symbol_index[&*s.symbol], 0)));
        self.check_each("input", ports)?;
        Ok(sources)
    }

    fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.program.symbol_index.get(name).map(|&at| &self.program.symbols[at])
    }

    fn bind_stages(&mut self, steps: &[plan::Step]) -> Result<()> {
        let mut stage = 0;
        for step in steps {
            stage += usize::from(step.ends_stage());
            if let (Action::Host(host), true) = (&step.action, step.ends_stage()) {
                for buffer in host.results.iter().map(|value| value.buffer) {
                    if self.made.insert(buffer, stage).is_some() {
                        return Err(malformed(format!("buffer {buffer} is the result of two host operations")));
                    }
                }
            }
            step.binds().into_iter().try_for_each(|symbol| self.bind_stage(symbol, stage))?;
        }
        Ok(())
    }

    fn bind_stage(&mut self, symbol: &str, stage: usize) -> Result<()> {
        let &at = self.program.symbol_index.get(symbol).ok_or_else(|| undeclared(symbol))?;
        if self.program.symbols[at].kind != SymbolKind::Data {
            return Err(malformed(format!("`{symbol}` is bound by inputs and by a step")));
        }
        match self.values.insert(at, stage) {
            Some(_) => Err(malformed(format!("`{symbol}` is bound twice"))),
            None => Ok(()),
        }
    }

    /// Returns the first stage in which an expression has a value.
    fn known(&self, dim: &Dim) -> Result<usize> {
        self.stage_of(dim, usize::MAX)
    }

    /// Returns the first stage in which an expression has a value. Errors: E0401 if it is after `by`.
    pub fn stage_of(&self, dim: &Dim, by: usize) -> Result<usize> {
        let mut stage = 0;
        for name in dim.names() {
            let at = self.program.symbol_index.get(&*name).ok_or_else(|| undeclared(&name))?;
            match self.values.get(at) {
                Some(&s) if s <= by => stage = stage.max(s),
                Some(_) => return Err(malformed(format!("`{dim}` is needed before `{name}` has a value"))),
                None => return Err(malformed(format!("nothing gives `{name}` a value, which `{dim}` needs"))),
            }
        }
        Ok(stage)
    }

    /// Checks each port, and that no name occurs twice.
    fn check_each(&self, kind: &str, ports: &[Port]) -> Result<()> {
        let mut seen = BTreeSet::new();
        for port in ports {
            self.check_port(port).map_err(|e| e.node(format!("{kind} `{}`", port.name)))?;
        }
        match ports.iter().find(|p| !seen.insert(&p.name)) {
            Some(p) => Err(malformed(format!("the {kind} `{}` is there twice", p.name))),
            None => Ok(()),
        }
    }

    fn check_port(&self, port: &Port) -> Result<()> {
        port.dims.iter().try_for_each(|dim| self.known(dim).map(drop))?;
        match port.kind != Kind::Tensor && port.dtype != DType::Value {
            true => Err(malformed(format!("its kind is {}, its type {}", port.kind, port.dtype))),
            false => Ok(()),
        }
    }

    /// Returns the first stage in which size and offset of a buffer have values.
    fn buffer_stage(&self, i: usize, buffer: &Buffer, plan: &plan::Entry) -> Result<usize> {
        let size = self.known(&buffer.bytes)?;
        let index = |what: &str, i: usize, len: usize| match i < len {
            true => Ok(0),
            false => Err(malformed(format!("{what} {i} of {len}"))),
        };
        let place = match &buffer.place {
            Place::Input(i) => index("input", *i, plan.inputs.len())?,
            Place::Output(i) => index("output", *i, plan.outputs.len())?,
            Place::Constant(i) => index("constant", *i, self.program.constants.len())?,
            Place::Arena(offset) => self.known(offset)?,
            Place::Value => *self.made.get(&i).ok_or_else(|| malformed("no host operation makes it".into()))?,
        };
        if matches!(buffer.place, Place::Value) && size > place {
            // When the step has run, the call compares this size with that of the result.
            return Err(malformed("its size is known only after the host operation that makes it".into()));
        }
        match size > 0 && matches!(buffer.place, Place::Input(_)) {
            true => Err(malformed("the size of an input depends on data".into())),
            false => Ok(size.max(place)),
        }
    }

    fn check_steps(&mut self, plan: &plan::Entry, stages: &[usize]) -> Result<()> {
        let mut flow = Flow::new(plan, stages);
        for (i, step) in plan.steps.iter().enumerate() {
            let checked = self.check_step(step, plan, &mut flow);
            let checked = checked.and_then(|()| states::check_step(self.program, plan, step));
            checked.map_err(|e| e.node(step_label(i, &step.origins)))?;
        }
        flow.settled("the entry point ends")?;
        for port in &plan.outputs {
            if !flow.written[port.buffer] {
                return Err(malformed(format!("nothing writes the output `{}`", port.name)));
            }
        }
        Ok(())
    }

    fn check_step(&mut self, step: &plan::Step, plan: &plan::Entry, flow: &mut Flow) -> Result<()> {
        match &step.action {
            Action::Launch(launch) => self.check_launch(launch, plan, flow),
            Action::Copy(copy) => flow.copy(copy, plan, self.stage),
            Action::Bind(bind) => {
                flow.settled("a symbol is read")?;
                flow.read(bind.buffer, plan, self.stage)?;
                self.stage += 1;
                Ok(())
            }
            Action::Host(host) => self.check_host(host, plan, flow),
        }
    }

    fn check_launch(&self, launch: &Launch, plan: &plan::Entry, flow: &mut Flow) -> Result<()> {
        let kernels = &self.program.kernels;
        let kernel = kernels
            .get(launch.kernel)
            .ok_or_else(|| malformed(format!("kernel {} of {}", launch.kernel, kernels.len())))?;
        let (given, wanted) = ((launch.buffers.len(), launch.params.len()), (kernel.writes.len(), kernel.params));
        if given != wanted {
            return Err(malformed(format!("(buffers, parameters) are {given:?}, the kernel has {wanted:?}")));
        }
        for (&buffer, _) in launch.buffers.iter().zip(&kernel.writes).filter(|(_, writes)| !**writes) {
            flow.read(buffer, plan, self.stage)?;
        }
        for (&buffer, _) in launch.buffers.iter().zip(&kernel.writes).filter(|(_, writes)| **writes) {
            flow.write(buffer, plan, self.stage)?;
        }
        launch.params.iter().chain([&launch.grid]).try_for_each(|dim| self.stage_of(dim, self.stage).map(drop))
    }
}

/// Returns, by step, where the elements of the step's launch begin in the list of the elements of all launches; last,
/// the length of that list. `n` counts the elements of a launch.
fn begins(plan: &plan::Entry, n: fn(&Launch) -> usize) -> Vec<usize> {
    let mut at = vec![0];
    for step in &plan.steps {
        let n = if let Action::Launch(launch) = &step.action { n(launch) } else { 0 };
        at.push(at[at.len() - 1] + n);
    }
    at
}

/// Which buffers have content, and of which kind, at a point of the sequence of steps.
pub struct Flow<'a> {
    written: Vec<bool>,
    /// By buffer: whether it holds strings, a sequence or another value whose size is not an expression. Only host
    /// steps compute and read such values; copies pass them to outputs. A constant holds bytes, which a host step may
    /// read as such a value.
    opaque: Vec<bool>,
    /// By buffer: the first stage in which its size is known.
    stages: &'a [usize],
    /// The collective that is under way: other ranks read its operands, and its results are being written.
    under_way: Option<Host>,
}

impl<'a> Flow<'a> {
    fn new(entry: &plan::Entry, stages: &'a [usize]) -> Flow<'a> {
        let is_given = |b: &Buffer| matches!(b.place, Place::Input(_) | Place::Constant(_));
        let ports = entry.inputs.iter().chain(&entry.outputs).map(|port| (port.buffer, port.dtype));
        let hosts =
            entry.steps.iter().filter_map(|s| if let Action::Host(host) = &s.action { Some(host) } else { None });
        let results = hosts.flat_map(|host| &host.results).map(|value| (value.buffer, value.dtype));
        let mut opaque = vec![false; entry.buffers.len()];
        for (buffer, _) in ports.chain(results).filter(|(_, dtype)| dtype.is_opaque()) {
            // A buffer out of range is reported when its step is checked.
            opaque.get_mut(buffer).into_iter().for_each(|kind| *kind = true);
        }
        Flow { written: entry.buffers.iter().map(is_given).collect(), opaque, stages, under_way: None }
    }
}

impl Flow<'_> {
    /// Records that a host step makes the content of a buffer, which no other step may write.
    pub fn make(&mut self, buffer: usize, entry: &plan::Entry) -> Result<()> {
        match entry.buffers.get(buffer).map(|b| &b.place) {
            Some(Place::Value) => {
                self.written[buffer] = true;
                Ok(())
            }
            Some(_) => Err(malformed(format!("buffer {buffer} has a place, but a host operation makes it"))),
            None => Err(malformed(format!("buffer {buffer} of {}", entry.buffers.len()))),
        }
    }

    /// Checks a read of bytes, by a launch, a copy or a binding.
    fn read(&self, buffer: usize, entry: &plan::Entry, stage: usize) -> Result<()> {
        self.holds(buffer, entry, stage)?;
        self.plain(buffer)
    }

    /// Checks a read by a host step, as a tensor of the operand's type.
    pub fn read_operand(&self, operand: &Operand, entry: &plan::Entry, stage: usize) -> Result<()> {
        let (buffer, dtype) = (operand.buffer, operand.dtype);
        self.holds(buffer, entry, stage)?;
        let is_constant = matches!(entry.buffers[buffer].place, Place::Constant(_));
        match is_constant || self.opaque[buffer] == dtype.is_opaque() {
            true => Ok(()),
            false => Err(malformed(format!("buffer {buffer} is read as {dtype}, which it does not hold"))),
        }
    }

    /// Checks a copy of bytes, or of a host step's value to an output.
    fn copy(&mut self, copy: &Copy, entry: &plan::Entry, stage: usize) -> Result<()> {
        let Copy { from, to } = *copy;
        if self.opaque.get(to) != Some(&true) {
            self.read(from, entry, stage)?;
            return self.write(to, entry, stage);
        }
        self.holds(from, entry, stage)?;
        if !self.opaque[from] && !matches!(entry.buffers[from].place, Place::Constant(_)) {
            return Err(malformed(format!("buffer {from} is copied to {to}, which holds no bytes")));
        }
        self.write_any(to, entry, stage)
    }

    /// Checks that at most one collective is under way, and that it ends in the stage in which it began, because
    /// buffers may move between stages.
    pub fn come_to(&mut self, host: &Host) -> Result<()> {
        match (&host.call.op, self.under_way.take()) {
            (HostOp::Wait(op), Some(begun)) => {
                let same =
                    begun.call.op == HostOp::Begin(*op) && begun.args == host.args && begun.results == host.results;
                if same { Ok(()) } else { Err(malformed(format!("`{}` has begun, not `{op}`", begun.call.op))) }
            }
            (HostOp::Wait(op), None) => Err(malformed(format!("`{op}` is waited for, and has not begun"))),
            (op, begun) => {
                self.under_way = begun;
                self.settled(format!("`{op}`"))
            }
        }
    }

    pub fn go_from(&mut self, host: &Host) {
        if matches!(host.call.op, HostOp::Begin(_)) {
            self.under_way = Some(host.clone());
        }
    }

    fn settled(&self, before: impl Display) -> Result<()> {
        match &self.under_way {
            None => Ok(()),
            Some(begun) => Err(malformed(format!("`{}` is not waited for before {before}", begun.call.op))),
        }
    }

    fn holds(&self, buffer: usize, entry: &plan::Entry, stage: usize) -> Result<()> {
        self.usable(buffer, entry, stage)?;
        match self.written[buffer] {
            true => Ok(()),
            false => Err(malformed(format!("buffer {buffer} is read before anything wrote it"))),
        }
    }

    fn plain(&self, buffer: usize) -> Result<()> {
        match self.opaque[buffer] {
            false => Ok(()),
            true => Err(malformed(format!("buffer {buffer} holds no bytes, but a value for host steps"))),
        }
    }

    pub fn write(&mut self, buffer: usize, entry: &plan::Entry, stage: usize) -> Result<()> {
        self.usable(buffer, entry, stage)?;
        self.plain(buffer)?;
        self.write_any(buffer, entry, stage)
    }

    fn write_any(&mut self, buffer: usize, entry: &plan::Entry, stage: usize) -> Result<()> {
        self.usable(buffer, entry, stage)?;
        if self.under_way.iter().flat_map(|begun| &begun.args).any(|arg| arg.buffer == buffer) {
            return Err(malformed(format!("buffer {buffer} is written while other ranks read it")));
        }
        match &entry.buffers[buffer].place {
            Place::Input(_) | Place::Constant(_) => {
                Err(malformed(format!("buffer {buffer} is an input or a constant, but is written")))
            }
            Place::Value => Err(malformed(format!("buffer {buffer} is a host's result, but is written"))),
            Place::Output(_) | Place::Arena(_) => {
                self.written[buffer] = true;
                Ok(())
            }
        }
    }

    fn usable(&self, buffer: usize, entry: &plan::Entry, stage: usize) -> Result<()> {
        match self.stages.get(buffer) {
            None => Err(malformed(format!("buffer {buffer} of {}", entry.buffers.len()))),
            Some(known) if *known > stage => {
                Err(malformed(format!("buffer {buffer} is used before its size is known")))
            }
            Some(_) if self.under_way.iter().flat_map(|begun| &begun.results).any(|made| made.buffer == buffer) => {
                Err(malformed(format!("buffer {buffer} is used while a collective makes it")))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Checks that every port has exactly one buffer, because only the size of that buffer is checked against the port.
fn check_ports(plan: &plan::Entry) -> Result<()> {
    let own = |port: &Port, place: Place| match plan.buffers.get(port.buffer) {
        Some(buffer) if buffer.place == place => Ok(()),
        Some(_) | None => Err(malformed(format!("buffer {} is not the place of `{}`", port.buffer, port.name))),
    };
    plan.inputs.iter().enumerate().try_for_each(|(i, port)| own(port, Place::Input(i)))?;
    plan.outputs.iter().enumerate().try_for_each(|(i, port)| own(port, Place::Output(i)))?;
    for (i, buffer) in plan.buffers.iter().enumerate() {
        let port = match buffer.place {
            Place::Input(n) => &plan.inputs[n],
            Place::Output(n) => &plan.outputs[n],
            Place::Constant(_) | Place::Arena(_) | Place::Value => continue,
        };
        if port.buffer != i {
            return Err(malformed(format!("`{}` has the buffers {} and {i}", port.name, port.buffer)));
        }
    }
    Ok(())
}
