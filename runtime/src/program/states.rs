//! states of an entry point  =>  checked: a call in place reads only old positions and writes only new ones
//!
//! What the kernels do with their buffers is theirs; what the plan lets them do is checked here, at load.

use super::verify::{broken, parse, undeclared};
use super::{Entry, Location, Port, Program, State, Step};
use sardonyx_base::plan::{self, SymbolKind};

use sardonyx_base::{Dim, Result};

/// Checks the states against the ports.
pub fn read_states(program: &Program, states: &[plan::State], inputs: &[Port], outputs: &[Port]) -> Result<Vec<State>> {
    let mut read: Vec<State> = Vec::new();
    for (i, state) in states.iter().enumerate() {
        let next = read_state(program, state, inputs, outputs).map_err(|e| e.node(format!("state {i}")))?;
        for other in &read {
            let shared = [
                (other.input == next.input, &inputs[next.input]),
                (other.output == next.output, &outputs[next.output]),
            ];
            if let Some((_, port)) = shared.iter().find(|(same, _)| *same) {
                return Err(broken(format!("`{}` belongs to two states", port.name)));
            }
        }
        read.push(next);
    }
    Ok(read)
}

fn read_state(program: &Program, state: &plan::State, inputs: &[Port], outputs: &[Port]) -> Result<State> {
    let (Some(input), Some(output)) = (inputs.get(state.input as usize), outputs.get(state.output as usize)) else {
        let (n_inputs, n_outputs) = (inputs.len(), outputs.len());
        let (input, output) = (state.input, state.output);
        return Err(broken(format!("input {input} of {n_inputs} continues as output {output} of {n_outputs}")));
    };
    let names = format!("`{}` and `{}`", input.name, output.name);
    let axis = state.axis as usize;
    if axis >= input.dims.len() {
        return Err(broken(format!("`{}` has {} dimensions, none is axis {axis}", input.name, input.dims.len())));
    }
    if input.dtype != output.dtype || input.dtype.bytes() == 0 {
        return Err(broken(format!("{names} are {} and {}, not the same", input.dtype, output.dtype)));
    }
    let other_axes = |port: &'_ Port| -> Vec<Dim> {
        port.dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| d.clone()).collect()
    };
    if input.dims.len() != output.dims.len() || other_axes(input) != other_axes(output) {
        return Err(broken(format!("{names} differ in more than axis {axis}")));
    }
    Ok(State {
        input: state.input as usize,
        output: state.output as usize,
        axis,
        input_capacity: symbol(program, &state.input_capacity, SymbolKind::Capacity)?,
        output_capacity: symbol(program, &state.output_capacity, SymbolKind::Capacity)?,
        kept: match state.kept.as_str() {
            "" => None,
            name => Some(symbol(program, name, SymbolKind::Kept)?),
        },
    })
}

fn symbol(program: &Program, name: &str, kind: SymbolKind) -> Result<usize> {
    let &at = program.symbol_index.get(name).ok_or_else(|| undeclared(name))?;
    match (program.symbols[at].kind == kind, kind) {
        (true, _) => Ok(at),
        (false, SymbolKind::Kept) => Err(broken(format!("`{name}` does not count kept positions"))),
        (false, SymbolKind::Capacity | SymbolKind::Input | SymbolKind::Data) => {
            Err(broken(format!("`{name}` is no capacity symbol")))
        }
    }
}

/// A dimension says how many positions are filled; how many have room, or are kept, is no matter of shapes.
pub fn check_dims(program: &Program, ports: &[plan::Port]) -> Result<()> {
    for port in ports {
        for dim in &port.dims {
            let of_memory = |name: &str| {
                let kind = program.symbol_index.get(name).map(|&at| program.symbols[at].kind);
                matches!(kind, Some(SymbolKind::Capacity | SymbolKind::Kept))
            };
            if let Some(name) = parse(dim)?.symbols().iter().find(|name| of_memory(name)) {
                return Err(broken(format!("the capacity `{name}` is in a dimension of `{}`", port.name)));
            }
        }
    }
    Ok(())
}

/// Both buffers of a state have room for its capacity, no more and no less.
pub fn check_buffers(program: &Program, entry: &Entry) -> Result<()> {
    for state in &entry.states {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        for (port, capacity) in [(input, state.input_capacity), (output, state.output_capacity)] {
            let capacity = Dim::symbol(&program.symbols[capacity].name);
            let dims = port.dims.iter().enumerate().map(|(i, dim)| if i == state.axis { &capacity } else { dim });
            let element = Dim::constant(port.dtype.bytes() as i64);
            let (wanted, bytes) = (dims.cloned().fold(element, |n, dim| n * dim), &entry.buffers[port.buffer].bytes);
            if wanted != *bytes {
                return Err(broken(format!("the buffer of `{}` has `{bytes}` bytes, not `{wanted}`", port.name)));
            }
        }
    }
    Ok(())
}

/// What a step reads and writes, as places of its buffers.
struct Touched<'a> {
    reads: Vec<&'a Location>,
    writes: Vec<&'a Location>,
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

fn is_input(place: &Location, at: usize) -> bool {
    match place {
        Location::Input(i) => *i == at,
        Location::Output(_) | Location::Constant(_) | Location::Arena(_) | Location::Value => false,
    }
}

fn is_output(place: &Location, at: usize) -> bool {
    match place {
        Location::Output(i) => *i == at,
        Location::Input(_) | Location::Constant(_) | Location::Arena(_) | Location::Value => false,
    }
}

/// In place, input and output of a state are the same memory: no step may write the one while it reads the other, but
/// for launches that begin behind what is kept; and one that does nothing but carry the state over must be known as
/// such, for it is left out.
pub fn check_step(program: &Program, entry: &Entry, step: &Step) -> Result<()> {
    let place = |&b: &usize| &entry.buffers[b].place;
    let names = |state: &State| (&entry.inputs[state.input].name, &entry.outputs[state.output].name);
    let (touched, carries) = match step {
        Step::Launch(launch) => {
            let writes = &program.kernels[launch.kernel].writes;
            let part = |written| launch.buffers.iter().zip(writes).filter(move |(_, w)| **w == written);
            let (reads, writes) = (part(false).map(|(b, _)| place(b)), part(true).map(|(b, _)| place(b)));
            (Touched { reads: reads.collect(), writes: writes.collect() }, launch.carries)
        }
        Step::Copy { from, to } => (Touched { reads: vec![place(from)], writes: vec![place(to)] }, None),
        Step::Bind { buffer, .. } => (Touched { reads: vec![place(buffer)], writes: vec![] }, None),
        Step::Host(host) => {
            let reads = host.args.iter().map(|arg| place(&arg.buffer)).collect();
            let writes = host.results.iter().map(|result| place(&result.value.buffer)).collect();
            (Touched { reads, writes }, None)
        }
    };
    if let Some(at) = carries {
        let n = entry.states.len();
        let state = entry.states.get(at).ok_or_else(|| broken(format!("it carries state {at} of {n}")))?;
        let only_input = touched.reads.iter().all(|place| is_input(place, state.input));
        let only_output = touched.writes.iter().all(|place| is_output(place, state.output));
        let both = touched.reads_input(state.input) && touched.writes_output(state.output);
        return match only_input && only_output && both {
            true => Ok(()),
            false => {
                let (from, to) = names(state);
                Err(broken(format!("it carries `{from}` to `{to}`, but does not read only that and write only this")))
            }
        };
    }
    for state in entry.states.iter().filter(|s| touched.writes_output(s.output)) {
        let (from, to) = names(state);
        let continues = state.kept.is_some() && matches!(step, Step::Launch(_));
        if touched.reads_input(state.input) && !continues {
            return Err(broken(format!("it reads `{from}` and writes `{to}`, but does not carry the state")));
        }
        if touched.reads_output(state.output) {
            return Err(broken(format!("it reads and writes `{to}`")));
        }
        if matches!(step, Step::Copy { .. }) {
            return Err(broken(format!("a copy overwrites the old positions of `{to}`")));
        }
    }
    Ok(())
}

/// A call that does not work in place must find the old positions in the output.
pub fn check_carried(entry: &Entry) -> Result<()> {
    for (i, state) in entry.states.iter().enumerate() {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        let continues = |buffers: &[usize]| {
            let touches = |at: usize| buffers.contains(&at);
            state.kept.is_some() && touches(input.buffer) && touches(output.buffer)
        };
        let carries = |step: &Step| match step {
            Step::Launch(launch) => launch.carries == Some(i) || continues(&launch.buffers),
            Step::Copy { .. } | Step::Bind { .. } | Step::Host(_) => false,
        };
        if !input.dims[state.axis].is_const(0) && !entry.steps.iter().any(carries) {
            return Err(broken(format!("nothing carries `{}` over to `{}`", input.name, output.name)));
        }
    }
    Ok(())
}
