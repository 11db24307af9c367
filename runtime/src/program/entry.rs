//! an entry point of the plan  =>  checked against the symbols, constants and kernels

use super::verify::{broken, parse, read_dtype, undeclared};
use super::{Buffer, Check, Entry, Launch, Location, Port, Program, State, Step, Symbol, states};
use sardonyx_base::plan::{self, Action, Place, SymbolKind};
use sardonyx_base::solve::{Source, further, sources};
use sardonyx_base::{DType, Dim, Kind, Result};
use std::collections::{BTreeMap, BTreeSet};

pub struct EntryReader<'a> {
    pub(super) program: &'a Program,
    /// Symbol index => the stage from which on it has a value.
    values: BTreeMap<usize, usize>,
    /// Buffer of a host step's result => the stage that the step begins.
    made: BTreeMap<usize, usize>,
    pub(super) stage: usize,
}

impl<'a> EntryReader<'a> {
    pub fn new(program: &'a Program) -> EntryReader<'a> {
        EntryReader { program, values: BTreeMap::new(), made: BTreeMap::new(), stage: 0 }
    }

    pub fn read(mut self, entry: &plan::Entry) -> Result<Entry> {
        states::check_dims(self.program, &entry.inputs)?;
        states::check_dims(self.program, &entry.outputs)?;
        let (mut inputs, sources) = self.read_inputs(&entry.inputs)?;
        let body = entry.body.as_ref().ok_or_else(|| broken("it has no body".into()))?;
        // Which stage gives a data symbol its value must be known before sizes that use it are read.
        self.bind_stages(&body.steps)?;
        let outputs = entry.outputs.iter().map(|p| self.read_port(p).map_err(|e| e.node(port_name("output", p))));
        let mut outputs: Vec<Port> = outputs.collect::<Result<_>>()?;
        unique_names("output", &outputs)?;
        let states = self.read_states(&entry.states, &mut inputs, &mut outputs)?;
        let sources_in_place = self.sources_in_place(&inputs);
        let bound = self.values.iter().filter(|(_, stage)| **stage == 0).map(|(&at, _)| at).collect();
        let buffers = entry.buffers.iter().enumerate();
        let buffers = buffers.map(|(i, b)| self.read_buffer(i, b, entry).map_err(|e| e.node(format!("buffer {i}"))));
        let buffers: Vec<Buffer> = buffers.collect::<Result<_>>()?;
        check_ports(&inputs, &outputs, &buffers)?;
        let checks = entry.checks.iter().map(|c| self.read_check(c)).collect::<Result<_>>()?;
        let mut out = Entry {
            name: entry.name.clone(),
            inputs,
            outputs,
            buffers,
            steps: Vec::new(),
            arena_bytes: self.known(&entry.arena_bytes, usize::MAX)?.0,
            checks,
            states,
            sources,
            sources_in_place,
            bound,
            n_pointers: 0,
            n_params: 0,
            n_stages: 1,
            internal: entry.internal,
            specialized: vec![],
        };
        states::check_buffers(self.program, &out)?;
        self.read_steps(&body.steps, &mut out)?;
        states::check_carried(&out)?;
        Ok(out)
    }

    /// A call knows the capacities from the start, as it knows the dimensions of the inputs.
    fn read_states(&mut self, states: &[plan::State], inputs: &mut [Port], outputs: &mut [Port]) -> Result<Vec<State>> {
        let states = states::read_states(self.program, states, inputs, outputs)?;
        for (i, state) in states.iter().enumerate() {
            (inputs[state.input].state, outputs[state.output].state) = (Some(i), Some(i));
            let output = &outputs[state.output];
            if self.stage_of(&output.dims[state.axis], usize::MAX)? > 0 {
                return Err(broken(format!("the positions of `{}` depend on data", output.name)));
            }
            self.values.insert(state.input_capacity, 0);
            self.values.insert(state.output_capacity, 0);
            self.values.extend(state.kept.map(|kept| (kept, 0)));
        }
        Ok(states)
    }

    /// Tensors give all that they can: a cache knows its other dimensions only once it has some positions.
    fn sources_in_place(&self, inputs: &[Port]) -> Vec<Source> {
        let of_inputs = |name: &str| self.symbol(name).is_some_and(|s| s.kind == SymbolKind::Input);
        let some = |states: bool| {
            let numbered = inputs.iter().enumerate().filter(move |(_, port)| port.state.is_some() == states);
            numbered.map(|(i, port)| (i, port.dims.as_slice()))
        };
        further(further(vec![], some(false), &of_inputs), some(true), &of_inputs)
    }

    /// Inputs bind symbols by some of their dimensions; the others must follow from those.
    fn read_inputs(&mut self, ports: &[plan::Port]) -> Result<(Vec<Port>, Vec<Source>)> {
        let dims = |port: &plan::Port| port.dims.iter().map(|d| parse(d)).collect::<Result<Vec<Dim>>>();
        let dims = ports.iter().map(dims).collect::<Result<Vec<Vec<Dim>>>>()?;
        if let Some(name) = dims.iter().flatten().flat_map(Dim::symbols).find(|s| self.symbol(s).is_none()) {
            return Err(undeclared(&name));
        }
        let of_inputs = |name: &str| self.symbol(name).is_some_and(|s| s.kind == SymbolKind::Input);
        let sources = sources(dims.iter().map(Vec::as_slice), &of_inputs);
        self.values.extend(sources.iter().map(|s| (self.program.symbol_index[&*s.symbol], 0)));
        let inputs = ports.iter().map(|p| self.read_port(p).map_err(|e| e.node(port_name("input", p))));
        let inputs: Vec<Port> = inputs.collect::<Result<_>>()?;
        unique_names("input", &inputs)?;
        Ok((inputs, sources))
    }

    fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.program.symbol_index.get(name).map(|&at| &self.program.symbols[at])
    }

    fn bind_stages(&mut self, steps: &[plan::Step]) -> Result<()> {
        let mut stage = 0;
        for step in steps {
            match &step.action {
                Some(Action::Bind(bind)) => {
                    stage += 1;
                    self.bind_stage(&bind.symbol, stage)?;
                }
                Some(Action::Host(host)) => {
                    stage += 1;
                    for result in &host.results {
                        let buffer = result.value.as_ref().map_or(u32::MAX, |value| value.buffer);
                        if self.made.insert(buffer as usize, stage).is_some() {
                            return Err(broken(format!("buffer {buffer} is the result of two host operations")));
                        }
                        result.binds.iter().try_for_each(|bind| self.bind_stage(&bind.symbol, stage))?;
                    }
                }
                Some(Action::Launch(_) | Action::Copy(_)) | None => {}
            }
        }
        Ok(())
    }

    fn bind_stage(&mut self, symbol: &str, stage: usize) -> Result<()> {
        let &at = self.program.symbol_index.get(symbol).ok_or_else(|| undeclared(symbol))?;
        if self.program.symbols[at].kind != SymbolKind::Data {
            return Err(broken(format!("`{symbol}` is bound by inputs and by a step")));
        }
        match self.values.insert(at, stage) {
            Some(_) => Err(broken(format!("`{symbol}` is bound twice"))),
            None => Ok(()),
        }
    }

    /// The expression and the stage from which on it has a value, at most `by`.
    pub fn known(&self, text: &str, by: usize) -> Result<(Dim, usize)> {
        let dim = parse(text)?;
        let stage = self.stage_of(&dim, by)?;
        Ok((dim, stage))
    }

    fn stage_of(&self, dim: &Dim, by: usize) -> Result<usize> {
        let mut stage = 0;
        for name in dim.symbols() {
            let at = self.program.symbol_index.get(&*name).ok_or_else(|| undeclared(&name))?;
            match self.values.get(at) {
                Some(&s) if s <= by => stage = stage.max(s),
                Some(_) => return Err(broken(format!("`{dim}` is needed before `{name}` has a value"))),
                None => return Err(broken(format!("nothing gives `{name}` a value, which `{dim}` needs"))),
            }
        }
        Ok(stage)
    }

    fn read_port(&self, port: &plan::Port) -> Result<Port> {
        let dims = port.dims.iter().map(|d| self.known(d, usize::MAX).map(|(dim, _)| dim)).collect::<Result<_>>()?;
        let (dtype, buffer) = (read_dtype(port.dtype)?, port.buffer as usize);
        let kind = match port.kind.as_str() {
            "" => Kind::Tensor,
            text => Kind::parse(text).ok_or_else(|| broken(format!("`{text}` is no kind of value")))?,
        };
        if kind != Kind::Tensor && dtype != DType::Value {
            return Err(broken(format!("its kind is {kind}, its type {dtype}")));
        }
        Ok(Port { name: port.name.clone(), dtype, dims, buffer, kind, state: None })
    }

    fn read_buffer(&self, i: usize, buffer: &plan::Buffer, entry: &plan::Entry) -> Result<Buffer> {
        let (bytes, mut stage) = self.known(&buffer.bytes, usize::MAX)?;
        let index = |what: &str, i: u32, len: usize| match (i as usize) < len {
            true => Ok(i as usize),
            false => Err(broken(format!("{what} {i} of {len}"))),
        };
        let place = match &buffer.place {
            Some(Place::Input(i)) => Location::Input(index("input", *i, entry.inputs.len())?),
            Some(Place::Output(i)) => Location::Output(index("output", *i, entry.outputs.len())?),
            Some(Place::Constant(i)) => Location::Constant(index("constant", *i, self.program.constants.len())?),
            Some(Place::Arena(offset)) => {
                let (offset, s) = self.known(offset, usize::MAX)?;
                stage = stage.max(s);
                Location::Arena(offset)
            }
            Some(Place::Value(_)) => {
                let made = self.made.get(&i).ok_or_else(|| broken("no host operation makes it".into()))?;
                stage = stage.max(*made);
                Location::Value
            }
            None => return Err(broken("it has no place".into())),
        };
        if stage > 0 && matches!(place, Location::Input(_)) {
            return Err(broken("the size of an input depends on data".into()));
        }
        Ok(Buffer { bytes, place, stage })
    }

    fn read_check(&self, check: &plan::Check) -> Result<Check> {
        let ((left, a), (right, b)) = (self.known(&check.left, usize::MAX)?, self.known(&check.right, usize::MAX)?);
        Ok(Check { left, right, why: check.why.clone(), stage: a.max(b) })
    }

    fn read_steps(&mut self, steps: &[plan::Step], out: &mut Entry) -> Result<()> {
        let mut flow = Flow {
            written: out
                .buffers
                .iter()
                .map(|b| matches!(b.place, Location::Input(_) | Location::Constant(_)))
                .collect(),
        };
        for (i, step) in steps.iter().enumerate() {
            let read = match &step.action {
                Some(Action::Launch(launch)) => self.read_launch(launch, out, &mut flow),
                Some(Action::Copy(copy)) => self.read_copy(copy, out, &mut flow),
                Some(Action::Bind(bind)) => self.read_bind(bind, out, &mut flow),
                Some(Action::Host(host)) => self.read_host(host, out, &mut flow),
                None => Err(broken("it does nothing that this version knows".into())),
            };
            let checked = read.and_then(|read| {
                states::check_step(self.program, out, &read)?;
                Ok(read)
            });
            out.steps.push(checked.map_err(|e| e.node(step_name(i, step)))?);
        }
        for port in &out.outputs {
            if !flow.written[port.buffer] {
                return Err(broken(format!("nothing writes the output `{}`", port.name)));
            }
        }
        out.n_stages = self.stage + 1;
        Ok(())
    }

    fn read_launch(&self, launch: &plan::Launch, out: &mut Entry, flow: &mut Flow) -> Result<Step> {
        let kernels = &self.program.kernels;
        let kernel = kernels
            .get(launch.kernel as usize)
            .ok_or_else(|| broken(format!("kernel {} of {}", launch.kernel, kernels.len())))?;
        if (launch.buffers.len(), launch.params.len()) != (kernel.writes.len(), kernel.params) {
            let given = (launch.buffers.len(), launch.params.len());
            let wanted = (kernel.writes.len(), kernel.params);
            return Err(broken(format!("(buffers, parameters) are {given:?}, the kernel has {wanted:?}")));
        }
        for (&buffer, _) in launch.buffers.iter().zip(&kernel.writes).filter(|(_, writes)| !**writes) {
            flow.read(buffer, out, self.stage)?;
        }
        for (&buffer, _) in launch.buffers.iter().zip(&kernel.writes).filter(|(_, writes)| **writes) {
            flow.write(buffer, out, self.stage)?;
        }
        let value = |text: &String| self.known(text, self.stage).map(|(dim, _)| dim);
        let read = Launch {
            kernel: launch.kernel as usize,
            buffers: launch.buffers.iter().map(|&b| b as usize).collect(),
            params: launch.params.iter().map(value).collect::<Result<_>>()?,
            grid: value(&launch.grid)?,
            origins: launch.origins.clone(),
            carries: launch.carries.map(|at| at as usize),
            pointers_at: out.n_pointers,
            params_at: out.n_params,
        };
        out.n_pointers += read.buffers.len();
        out.n_params += read.params.len();
        Ok(Step::Launch(read))
    }

    fn read_copy(&self, copy: &plan::Copy, out: &Entry, flow: &mut Flow) -> Result<Step> {
        flow.read(copy.from, out, self.stage)?;
        flow.write(copy.to, out, self.stage)?;
        Ok(Step::Copy { from: copy.from as usize, to: copy.to as usize })
    }

    fn read_bind(&mut self, bind: &plan::Bind, out: &Entry, flow: &mut Flow) -> Result<Step> {
        flow.read(bind.buffer, out, self.stage)?;
        self.stage += 1;
        // `bind_stages` has seen this step and found the symbol.
        let symbol = self.program.symbol_index[&bind.symbol];
        Ok(Step::Bind { symbol, buffer: bind.buffer as usize })
    }
}

/// Which buffers hold something.
pub struct Flow {
    written: Vec<bool>,
}

impl Flow {
    /// A host step makes it, and nothing else ever writes it.
    pub fn make(&mut self, buffer: usize, entry: &Entry) -> Result<()> {
        match entry.buffers.get(buffer).map(|b| &b.place) {
            Some(Location::Value) => {
                self.written[buffer] = true;
                Ok(())
            }
            Some(_) => Err(broken(format!("buffer {buffer} has a place, but a host operation makes it"))),
            None => Err(broken(format!("buffer {buffer} of {}", entry.buffers.len()))),
        }
    }

    pub fn read(&self, buffer: u32, entry: &Entry, stage: usize) -> Result<()> {
        self.usable(buffer, entry, stage)?;
        match self.written[buffer as usize] {
            true => Ok(()),
            false => Err(broken(format!("buffer {buffer} is read before anything wrote it"))),
        }
    }

    fn write(&mut self, buffer: u32, entry: &Entry, stage: usize) -> Result<()> {
        self.usable(buffer, entry, stage)?;
        match &entry.buffers[buffer as usize].place {
            Location::Input(_) | Location::Constant(_) => {
                Err(broken(format!("buffer {buffer} is an input or a constant, but is written")))
            }
            Location::Value => Err(broken(format!("buffer {buffer} is a host's result, but is written"))),
            Location::Output(_) | Location::Arena(_) => {
                self.written[buffer as usize] = true;
                Ok(())
            }
        }
    }

    fn usable(&self, buffer: u32, entry: &Entry, stage: usize) -> Result<()> {
        match entry.buffers.get(buffer as usize) {
            None => Err(broken(format!("buffer {buffer} of {}", entry.buffers.len()))),
            Some(b) if b.stage > stage => Err(broken(format!("buffer {buffer} is used before its size is known"))),
            Some(_) => Ok(()),
        }
    }
}

/// Every port has one buffer and every buffer of a port is that one: sizes are checked against the port only there.
fn check_ports(inputs: &[Port], outputs: &[Port], buffers: &[Buffer]) -> Result<()> {
    let own = |i: usize, port: &Port, place: fn(&Location) -> Option<usize>| match buffers.get(port.buffer) {
        Some(buffer) if place(&buffer.place) == Some(i) => Ok(()),
        Some(_) | None => Err(broken(format!("buffer {} is not the place of `{}`", port.buffer, port.name))),
    };
    for (i, port) in inputs.iter().enumerate() {
        own(i, port, |place| if let Location::Input(n) = place { Some(*n) } else { None })?;
    }
    for (i, port) in outputs.iter().enumerate() {
        own(i, port, |place| if let Location::Output(n) = place { Some(*n) } else { None })?;
    }
    for (i, buffer) in buffers.iter().enumerate() {
        let port = match buffer.place {
            Location::Input(n) => &inputs[n],
            Location::Output(n) => &outputs[n],
            Location::Constant(_) | Location::Arena(_) | Location::Value => continue,
        };
        if port.buffer != i {
            return Err(broken(format!("`{}` has the buffers {} and {i}", port.name, port.buffer)));
        }
    }
    Ok(())
}

fn port_name(kind: &str, port: &plan::Port) -> String {
    format!("{kind} `{}`", port.name)
}

fn step_name(i: usize, step: &plan::Step) -> String {
    match &step.action {
        Some(Action::Launch(launch)) => match launch.origins.first() {
            Some(origin) => format!("step {i} ({origin})"),
            None => format!("step {i}"),
        },
        Some(Action::Host(host)) => match host.origins.first() {
            Some(origin) => format!("step {i} ({origin})"),
            None => format!("step {i}"),
        },
        Some(Action::Copy(_) | Action::Bind(_)) | None => format!("step {i}"),
    }
}

fn unique_names(kind: &str, ports: &[Port]) -> Result<()> {
    let mut seen = BTreeSet::new();
    match ports.iter().find(|p| !seen.insert(&p.name)) {
        Some(p) => Err(broken(format!("the {kind} `{}` is there twice", p.name))),
        None => Ok(()),
    }
}
