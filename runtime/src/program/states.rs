//! states of an entry point  =>  checked: a call in place, that is, with a cache, reads only old positions and writes
//! only new ones
//!
//! The compiler is responsible for what kernels do with their buffers; this module checks, when an artifact is loaded,
//! which buffers the plan passes to them.

use super::verify::undeclared;
use super::{Action, Place, Port, Program, State};
use sardonyx_base::dim::product;
use sardonyx_base::plan::{self, SymbolKind, malformed};
use sardonyx_base::{Dim, Result};

/// Checks the states against the ports. Errors: E0401.
pub fn check_states(program: &Program, plan: &plan::Entry) -> Result<()> {
    for (i, state) in plan.states.iter().enumerate() {
        check_state(program, state, plan).map_err(|e| e.node(format!("state {i}")))?;
        for other in &plan.states[..i] {
            let shared = [
                (other.input == state.input, &plan.inputs[state.input]),
                (other.output == state.output, &plan.outputs[state.output]),
            ];
            if let Some((_, port)) = shared.iter().find(|(same, _)| *same) {
                return Err(malformed(format!("`{}` belongs to two states", port.name)));
            }
        }
    }
    Ok(())
}

fn check_state(program: &Program, state: &State, plan: &plan::Entry) -> Result<()> {
    let State { axis, .. } = *state;
    let (Some(input), Some(output)) = (plan.inputs.get(state.input), plan.outputs.get(state.output)) else {
        let (n_inputs, n_outputs) = (plan.inputs.len(), plan.outputs.len());
        let (input, output) = (state.input, state.output);
        return Err(malformed(format!("input {input} of {n_inputs} continues as output {output} of {n_outputs}")));
    };
    let names = format!("`{}` and `{}`", input.name, output.name);
    if axis >= input.dims.len() {
        return Err(malformed(format!("`{}` has {} dimensions, none is axis {axis}", input.name, input.dims.len())));
    }
    if input.dtype != output.dtype || input.dtype.bytes() == 0 {
        return Err(malformed(format!("{names} are {} and {}, not the same", input.dtype, output.dtype)));
    }
    let other_axes = |port: &'_ Port| -> Vec<Dim> {
        port.dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| d.clone()).collect()
    };
    if input.dims.len() != output.dims.len() || other_axes(input) != other_axes(output) {
        return Err(malformed(format!("{names} differ in more than axis {axis}")));
    }
    own_dims(program, state, input)?;
    check_symbol(program, &state.input_capacity, SymbolKind::Capacity)?;
    check_symbol(program, &state.output_capacity, SymbolKind::Capacity)?;
    state.kept.as_ref().map_or(Ok(()), |name| check_symbol(program, name, SymbolKind::Kept))
}

/// Returns the dimensions of this rank's part of a state's input or output. Errors: E0401.
pub fn own_dims(program: &Program, state: &State, port: &Port) -> Result<Vec<Dim>> {
    let mut dims = port.dims.clone();
    for units in &state.units {
        let extent = units.extent()?;
        let cut = dims.get_mut(units.dim).filter(|dim| units.dim != state.axis && dim.is_const(extent));
        let (Some(dim), Some(ranks)) = (cut, program.mesh.get(units.mesh)) else {
            let (name, dim, mesh) = (&port.name, units.dim, units.mesh);
            let message = format!("dimension {dim} of `{name}` is not {extent} elements along axis {mesh} of the mesh");
            return Err(malformed(message));
        };
        let coordinate = Dim::symbol(&program.symbols[program.coordinates[units.mesh].0].name);
        let [_, len] = units.part(*ranks, &coordinate);
        *dim = product(&[Dim::constant(units.outer as i64), len, Dim::constant(units.unit as i64)]);
    }
    Ok(dims)
}

fn check_symbol(program: &Program, name: &str, kind: SymbolKind) -> Result<()> {
    let &at = program.symbol_index.get(name).ok_or_else(|| undeclared(name))?;
    match (program.symbols[at].kind == kind, kind) {
        (true, _) => Ok(()),
        (false, SymbolKind::Kept) => Err(malformed(format!("`{name}` does not count kept positions"))),
        (false, SymbolKind::Capacity | SymbolKind::Input | SymbolKind::Data | SymbolKind::Rank) => {
            Err(malformed(format!("`{name}` is no capacity symbol")))
        }
    }
}

/// Checks that the dimensions of ports use no capacity or `kept` symbol: a dimension counts filled positions, and the
/// capacity is a property of the memory.
pub fn check_dims(program: &Program, ports: &[Port]) -> Result<()> {
    for port in ports {
        for dim in &port.dims {
            let of_memory = |name: &str| {
                let kind = program.symbol_index.get(name).map(|&at| program.symbols[at].kind);
                matches!(kind, Some(SymbolKind::Capacity | SymbolKind::Kept))
            };
            if let Some(name) = dim.names().iter().find(|name| of_memory(name)) {
                return Err(malformed(format!("the capacity `{name}` is in a dimension of `{}`", port.name)));
            }
        }
    }
    Ok(())
}

/// Checks that both buffers of a state have exactly the size of its capacity.
pub fn check_buffers(program: &Program, entry: &plan::Entry) -> Result<()> {
    for state in &entry.states {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        for (port, capacity) in [(input, &state.input_capacity), (output, &state.output_capacity)] {
            let capacity = Dim::symbol(capacity);
            let dims = own_dims(program, state, port)?;
            let dims = dims.iter().enumerate().map(|(i, dim)| if i == state.axis { &capacity } else { dim });
            let element = Dim::constant(port.dtype.bytes() as i64);
            let (wanted, bytes) = (dims.cloned().fold(element, |n, dim| n * dim), &entry.buffers[port.buffer].bytes);
            if wanted != *bytes {
                return Err(malformed(format!("the buffer of `{}` has `{bytes}` bytes, not `{wanted}`", port.name)));
            }
        }
    }
    Ok(())
}

/// The places (input, output, constant, arena …) of the buffers that a step reads and writes.
struct Touched<'a> {
    reads: Vec<&'a Place>,
    writes: Vec<&'a Place>,
}

impl Touched<'_> {
    fn reads_input(&self, at: usize) -> bool {
        self.reads.iter().any(|place| is_input(place, at))
    }

    fn reads_output(&self, at: usize) -> bool {
        self.reads.iter().any(|place| is_output(place, at))
    }

    fn writes_output(&self, at: usize) -> bool {
        self.writes.iter().any(|place| is_output(place, at))
    }
}

fn is_input(place: &Place, at: usize) -> bool {
    match place {
        Place::Input(i) => *i == at,
        Place::Output(_) | Place::Constant(_) | Place::Arena(_) | Place::Value => false,
    }
}

fn is_output(place: &Place, at: usize) -> bool {
    match place {
        Place::Output(i) => *i == at,
        Place::Input(_) | Place::Constant(_) | Place::Arena(_) | Place::Value => false,
    }
}

/// Checks how a step uses states. In place, that is, with a cache, the input and output of a state are the same memory:
/// no step may read the input and write the output, except launches that begin behind the kept positions. A launch that
/// only carries the state over must be marked as such, because it is skipped.
pub fn check_step(program: &Program, entry: &plan::Entry, step: &plan::Step) -> Result<()> {
    let place = |&b: &usize| &entry.buffers[b].place;
    let names = |state: &State| (&entry.inputs[state.input].name, &entry.outputs[state.output].name);
    let (touched, carries) = match &step.action {
        Action::Launch(launch) => {
            let writes = &program.kernels[launch.kernel].writes;
            let part = |written| launch.buffers.iter().zip(writes).filter(move |(_, w)| **w == written);
            let (reads, writes) = (part(false).map(|(b, _)| place(b)), part(true).map(|(b, _)| place(b)));
            (Touched { reads: reads.collect(), writes: writes.collect() }, launch.carries)
        }
        Action::Copy(copy) => (Touched { reads: vec![place(&copy.from)], writes: vec![place(&copy.to)] }, None),
        Action::Bind(bind) => (Touched { reads: vec![place(&bind.buffer)], writes: vec![] }, None),
        Action::Host(host) => {
            let reads = host.args.iter().map(|arg| place(&arg.buffer)).collect();
            let writes = host.results.iter().map(|value| place(&value.buffer)).collect();
            (Touched { reads, writes }, None)
        }
    };
    if let Some(at) = carries {
        let n = entry.states.len();
        let state = entry.states.get(at).ok_or_else(|| malformed(format!("it carries state {at} of {n}")))?;
        let only_input = touched.reads.iter().all(|place| is_input(place, state.input));
        let only_output = touched.writes.iter().all(|place| is_output(place, state.output));
        let both = touched.reads_input(state.input) && touched.writes_output(state.output);
        return match only_input && only_output && both {
            true => Ok(()),
            false => {
                let (from, to) = names(state);
                Err(malformed(format!(
                    "it carries `{from}` to `{to}`, but does not read only that and write only this"
                )))
            }
        };
    }
    for state in entry.states.iter().filter(|s| touched.writes_output(s.output)) {
        let (from, to) = names(state);
        let continues = state.kept.is_some() && matches!(step.action, Action::Launch(_));
        if touched.reads_input(state.input) && !continues {
            return Err(malformed(format!("it reads `{from}` and writes `{to}`, but does not carry the state")));
        }
        if touched.reads_output(state.output) {
            return Err(malformed(format!("it reads and writes `{to}`")));
        }
        if matches!(step.action, Action::Copy(_)) {
            return Err(malformed(format!("a copy overwrites the old positions of `{to}`")));
        }
    }
    Ok(())
}

/// Checks that in a call without a cache, a launch copies the old positions of each state to its output.
pub fn check_carried(entry: &plan::Entry) -> Result<()> {
    for (i, state) in entry.states.iter().enumerate() {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        let continues = |buffers: &[usize]| {
            let touches = |at: usize| buffers.contains(&at);
            state.kept.is_some() && touches(input.buffer) && touches(output.buffer)
        };
        let carries = |step: &plan::Step| match &step.action {
            Action::Launch(launch) => launch.carries == Some(i) || continues(&launch.buffers),
            Action::Copy(_) | Action::Bind(_) | Action::Host(_) => false,
        };
        if !input.dims[state.axis].is_const(0) && !entry.steps.iter().any(carries) {
            return Err(malformed(format!("nothing carries `{}` over to `{}`", input.name, output.name)));
        }
    }
    Ok(())
}
