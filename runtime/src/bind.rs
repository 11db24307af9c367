//! the inputs of a call  =>  values of the symbols; or a sentence that names the input and the dimension

use crate::cache::Held;
use crate::program::{Entry, Port, Program};
use crate::view::{TensorBuffer, TensorView};
use crate::{Dim, Error, Result};

/// An input of a call.
pub enum Given<'a> {
    Tensor(TensorView<'a>),
    /// The memory of a state: the filled positions are the size of the axis, other sizes may be open.
    Held {
        axis: usize,
        sizes: Vec<Option<usize>>,
    },
}

/// Gives every input port its tensor, in the ports' order, or what the cache has for it.
pub fn match_inputs<'a>(
    entry: &Entry,
    inputs: &[(&str, TensorView<'a>)],
    held: Option<&Held>,
) -> Result<Vec<Given<'a>>> {
    let names: Vec<&str> = inputs.iter().map(|(name, _)| *name).collect();
    check_names("input", &entry.inputs, &names)?;
    let find = |port: &Port| {
        let given = inputs.iter().find(|(name, _)| *name == port.name).map(|(_, tensor)| *tensor);
        match (held, port.state, given) {
            (Some(_), Some(_), Some(_)) => {
                Err(Error::user("E0301", format!("the input `{}` is in the cache, but is given too", port.name)))
            }
            (Some(held), Some(state), None) => Ok(held.given(entry, state)),
            (_, _, Some(tensor)) => Ok(Given::Tensor(tensor)),
            (_, _, None) => {
                let error = Error::user("E0301", format!("the input `{}` is missing", port.name));
                Err(error.help(known("input", &entry.inputs)))
            }
        }
    };
    entry.inputs.iter().map(find).collect()
}

/// The caller's memory for each output port that has some, in the ports' order.
pub fn match_outputs<'a, 'b>(
    entry: &Entry,
    outputs: &'a mut [(&str, TensorBuffer<'b>)],
    cached: bool,
) -> Result<Vec<Option<&'a mut TensorBuffer<'b>>>> {
    let names: Vec<&str> = outputs.iter().map(|(name, _)| *name).collect();
    check_names("output", &entry.outputs, &names)?;
    let mut found: Vec<Option<&mut TensorBuffer>> = entry.outputs.iter().map(|_| None).collect();
    for (name, buffer) in outputs {
        let Some(at) = entry.outputs.iter().position(|p| p.name == *name) else { continue };
        if cached && entry.outputs[at].state.is_some() {
            return Err(Error::user("E0301", format!("the output `{name}` stays in the cache, it takes no buffer")));
        }
        let wanted = entry.outputs[at].dtype;
        if buffer.dtype() != wanted {
            let message = format!("the output `{name}` has type {wanted}, but its buffer is of {}", buffer.dtype());
            return Err(Error::user("E0301", message));
        }
        found[at] = Some(buffer);
    }
    Ok(found)
}

fn check_names(kind: &str, ports: &[Port], names: &[&str]) -> Result<()> {
    for (i, name) in names.iter().enumerate() {
        if !ports.iter().any(|p| p.name == *name) {
            return Err(Error::user("E0301", format!("the model has no {kind} `{name}`")).help(known(kind, ports)));
        }
        if names[..i].contains(name) {
            return Err(Error::user("E0301", format!("the {kind} `{name}` is given twice")));
        }
    }
    Ok(())
}

fn known(kind: &str, ports: &[Port]) -> String {
    let names: Vec<String> = ports.iter().map(|p| format!("`{}`", p.name)).collect();
    format!("the model's {kind}s are {}", names.join(", "))
}

/// Values by symbol index. Types, ranks, ranges and agreement are checked.
pub fn bind_symbols(program: &Program, entry: &Entry, inputs: &[Given]) -> Result<Vec<Option<i64>>> {
    let mut values = vec![None; program.symbols.len()];
    // Where each symbol got its value, for the message when another input disagrees.
    let mut from: Vec<Option<(&Port, usize)>> = vec![None; program.symbols.len()];
    for (port, given) in entry.inputs.iter().zip(inputs) {
        let Given::Tensor(tensor) = given else { continue };
        check_type(port, tensor)?;
        for (axis, (dim, &size)) in port.dims.iter().zip(tensor.dims()).enumerate() {
            let Some(&at) = dim.as_symbol().and_then(|name| program.symbol_index.get(name)) else { continue };
            let symbol = &program.symbols[at];
            let value = i64::try_from(size).unwrap_or(i64::MAX);
            let here = || format!("input `{}`, dimension {axis}", port.name);
            match (values[at], from[at]) {
                (Some(other), Some((first, first_axis))) if other != value => {
                    let (there, here) = (format!("input `{}`, dimension {first_axis}", first.name), here());
                    let message = format!("`{}` = {other} ({there}), but also {value} ({here})", symbol.name);
                    return Err(Error::user("E0301", message));
                }
                _ if !symbol.admits(value) => {
                    let message = format!("`{}` = {value} ({}) is outside {}", symbol.name, here(), symbol.range());
                    return Err(Error::user("E0301", message));
                }
                _ => (values[at], from[at]) = (Some(value), Some((port, axis))),
            }
        }
    }
    for (port, given) in entry.inputs.iter().zip(inputs) {
        let Given::Held { axis, sizes } = given else { continue };
        bind_held(program, port, *axis, sizes, &mut values)?;
    }
    for (port, given) in entry.inputs.iter().zip(inputs) {
        match given {
            Given::Tensor(tensor) => {
                for (axis, (dim, &size)) in port.dims.iter().zip(tensor.dims()).enumerate() {
                    check_size(program, &values, dim, size).map_err(|what| {
                        Error::user("E0301", format!("dimension {axis} of the input `{}` {what}", port.name))
                    })?;
                }
            }
            Given::Held { axis, sizes } => check_held(program, entry, port, *axis, sizes, &values)?,
        }
    }
    Ok(values)
}

/// Symbols that no tensor gives a value have that of the cache.
fn bind_held(
    program: &Program,
    port: &Port,
    axis: usize,
    sizes: &[Option<usize>],
    values: &mut [Option<i64>],
) -> Result<()> {
    for (i, (dim, size)) in port.dims.iter().zip(sizes).enumerate() {
        let Some(&at) = dim.as_symbol().and_then(|name| program.symbol_index.get(name)) else { continue };
        let (Some(size), None) = (size, values[at]) else { continue };
        let (symbol, value) = (&program.symbols[at], i64::try_from(*size).unwrap_or(i64::MAX));
        if !symbol.admits(value) {
            let what = if i == axis { "positions in the cache" } else { "in the cache" };
            let message = format!("`{}` = {value} ({what}) is outside {}", symbol.name, symbol.range());
            return Err(Error::user("E0301", message));
        }
        values[at] = Some(value);
    }
    Ok(())
}

fn check_held(
    program: &Program,
    entry: &Entry,
    port: &Port,
    axis: usize,
    sizes: &[Option<usize>],
    values: &[Option<i64>],
) -> Result<()> {
    for (i, (dim, size)) in port.dims.iter().zip(sizes).enumerate() {
        let wanted = eval(program, values, dim).map_err(|_| {
            let message =
                format!("no input gives the dimensions {} of the state `{}`", describe(&port.dims), port.name);
            Error::user("E0301", message)
        })?;
        let Some(has) = size.filter(|&size| usize::try_from(wanted) != Ok(size)) else { continue };
        let (name, entry) = (&port.name, &entry.name);
        let message = match i == axis {
            true => format!("`{entry}` continues {wanted} positions (`{dim}`), but the cache has {has}"),
            false => format!("dimension {i} of the state `{name}` is {has} in the cache, but `{dim}` = {wanted}"),
        };
        return Err(Error::user("E0301", message).help("clear the cache before another sequence, or use another cache"));
    }
    Ok(())
}

/// Gives the capacities their values: in a call that does not work in place, what is filled is what has room.
pub fn bind_capacities(
    program: &Program,
    entry: &Entry,
    capacity: Option<usize>,
    values: &mut [Option<i64>],
) -> Result<()> {
    for state in &entry.states {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        for (at, port) in [(state.input_capacity, input), (state.output_capacity, output)] {
            let symbol = &program.symbols[at];
            let value = match capacity {
                Some(capacity) => i64::try_from(capacity).unwrap_or(i64::MAX),
                None => eval(program, values, &port.dims[state.axis])?,
            };
            if !symbol.admits(value) {
                let message = format!("room for {value} positions in `{}` is outside {}", port.name, symbol.range());
                return Err(Error::user("E0301", message));
            }
            if let Some(other) = values[at].replace(value).filter(|&other| other != value) {
                let message =
                    format!("the memory of `{}` has {value} positions, that of another state {other}", port.name);
                return Err(Error::user("E0301", message));
            }
        }
    }
    Ok(())
}

pub fn eval(program: &Program, values: &[Option<i64>], dim: &Dim) -> Result<i64> {
    dim.eval(&|name| program.symbol_index.get(name).and_then(|&at| values[at]))
}

fn check_type(port: &Port, tensor: &TensorView) -> Result<()> {
    if tensor.dtype() != port.dtype {
        let message = format!("the input `{}` has type {}, but {} is expected", port.name, tensor.dtype(), port.dtype);
        return Err(Error::user("E0301", message));
    }
    if tensor.rank() != port.dims.len() {
        let wanted = describe(&port.dims);
        let message = format!("the input `{}` has shape {:?}, but {wanted} is expected", port.name, tensor.dims());
        return Err(Error::user("E0301", message));
    }
    Ok(())
}

fn check_size(program: &Program, values: &[Option<i64>], dim: &Dim, size: usize) -> std::result::Result<(), String> {
    match eval(program, values, dim) {
        Ok(wanted) if usize::try_from(wanted) == Ok(size) => Ok(()),
        Ok(wanted) if dim.as_const().is_some() => Err(format!("is {size}, but {wanted} is expected")),
        Ok(wanted) => Err(format!("is {size}, but `{dim}` = {wanted} is expected")),
        Err(e) => Err(format!("cannot be checked: {}", e.message)),
    }
}

/// `[batch, seq, 384]`
pub fn describe(dims: &[Dim]) -> String {
    let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(", "))
}
