//! the inputs of a call  =>  values of the symbols; or an error that names the input and the dimension

use crate::cache::Held;
use crate::device_tensor::{DeviceTensor, Input};
use crate::program::{Check, Entry, Port, Program};
use sardonyx_base::dim::Atom;
use sardonyx_base::dim::range;
use sardonyx_base::plan::SymbolKind;
use sardonyx_base::solve::Source;
use sardonyx_base::view::TensorBuffer;
use sardonyx_base::{Dim, Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An input of a call, or the part of a cache that replaces it.
pub enum Given<'a> {
    Tensor(Input<'a>),
    /// A state in a cache: the size of `axis` is the number of filled positions; sizes that are not known yet are
    /// `None`.
    Held {
        axis: usize,
        sizes: Vec<Option<usize>>,
    },
}

/// Returns the dimensions of all inputs; `None` if a cache holds some of them.
pub fn tensors<'a>(inputs: &'a [Given]) -> Option<Vec<&'a [usize]>> {
    let dims = |given: &'a Given| match given {
        Given::Tensor(tensor) => Some(tensor.dims()),
        Given::Held { .. } => None,
    };
    inputs.iter().map(dims).collect()
}

/// Returns, for every input port in order, the caller's tensor, or the sizes of the state that the cache holds. Errors:
/// E0301.
pub fn match_inputs<'a>(entry: &Entry, inputs: &[(&str, Input<'a>)], held: Option<&Held>) -> Result<Vec<Given<'a>>> {
    let names: Vec<&str> = inputs.iter().map(|(name, _)| *name).collect();
    check_names("input", &entry.inputs, &names)?;
    let find = |(port, state): (&Port, &Option<usize>)| {
        let given = inputs.iter().find(|(name, _)| *name == port.name).map(|(_, tensor)| *tensor);
        match (held, *state, given) {
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
    entry.inputs.iter().zip(&entry.input_states).map(find).collect()
}

/// Memory of the caller for an output.
pub enum Destination<'a, 'b> {
    Host(&'a mut TensorBuffer<'b>),
    Device(&'a mut DeviceTensor),
}

impl Destination<'_, '_> {
    /// Returns the number of bytes of the memory.
    pub fn bytes(&self) -> usize {
        match self {
            Destination::Host(buffer) => buffer.bytes().len(),
            Destination::Device(tensor) => tensor.bytes(),
        }
    }

    pub fn set_dims(&mut self, dims: &[usize]) {
        match self {
            Destination::Host(buffer) => buffer.set_dims(dims),
            Destination::Device(tensor) => tensor.set_dims(dims),
        }
    }
}

/// Returns, for every output port in order, the caller's memory if there is some. Errors: E0301.
pub fn match_outputs<'a, 'b>(
    entry: &Entry,
    outputs: Vec<(&str, Destination<'a, 'b>)>,
    cached: bool,
) -> Result<Vec<Option<Destination<'a, 'b>>>> {
    let names: Vec<&str> = outputs.iter().map(|(name, _)| *name).collect();
    check_names("output", &entry.outputs, &names)?;
    let mut found: Vec<Option<Destination>> = entry.outputs.iter().map(|_| None).collect();
    for (name, to) in outputs {
        let Some(at) = entry.outputs.iter().position(|p| p.name == *name) else { continue };
        if cached && entry.output_states[at].is_some() {
            return Err(Error::user("E0301", format!("the output `{name}` stays in the cache, it takes no buffer")));
        }
        let (wanted, has) = match &to {
            Destination::Host(buffer) => (entry.outputs[at].dtype, buffer.dtype()),
            Destination::Device(tensor) => (entry.outputs[at].dtype, tensor.dtype()),
        };
        if has != wanted {
            let message = format!("the output `{name}` has type {wanted}, but its buffer is of {has}");
            return Err(Error::user("E0301", message).help(format!("give a buffer of {wanted}, or none")));
        }
        found[at] = Some(to);
    }
    Ok(found)
}

/// Refuses names that are not outputs of the entry point, and names that are given twice. Errors: E0301.
pub fn check_wanted(entry: &Entry, wanted: Option<&[String]>) -> Result<()> {
    let names: Vec<&str> = wanted.unwrap_or_default().iter().map(String::as_str).collect();
    check_names("output", &entry.outputs, &names)
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

/// Returns the values of the symbols, by index. Checks types, ranks, ranges, and that all inputs agree. Errors: E0301.
pub fn bind_symbols(program: &Program, entry: &Entry, inputs: &[Given]) -> Result<Vec<Option<i64>>> {
    for (port, given) in entry.inputs.iter().zip(inputs) {
        if let Given::Tensor(tensor) = given {
            check_type(port, tensor)?;
        }
    }
    let in_place = inputs.iter().any(|given| matches!(given, Given::Held { .. }));
    let sources = if in_place { &entry.sources_in_place } else { &entry.sources };
    let mut binding = Binding { program, entry, inputs, sources, values: vec![None; program.symbols.len()] };
    program.coordinates.iter().for_each(|(at, place)| binding.values[*at] = Some(*place));
    for source in sources {
        // Sizes that a cache does not know yet are skipped; `check_held` reports symbols that stay without a value.
        let Some(size) = inputs[source.input].size(source.axis) else { continue };
        let value = source.value(size, &|name| binding.value(name));
        let value = value.ok_or_else(|| binding.unsolvable(source, size))?;
        if let Some(&at) = program.symbol_index.get(&*source.symbol) {
            binding.values[at] = Some(value);
        }
    }
    binding.check_ranges()?;
    for ((input, port), given) in entry.inputs.iter().enumerate().zip(inputs) {
        match given {
            Given::Tensor(_) => {
                for (axis, dim) in port.dims.iter().enumerate() {
                    binding.check_size(input, axis, dim, given.size(axis).unwrap_or(i64::MAX))?;
                }
            }
            Given::Held { axis, sizes } => check_held(program, entry, port, *axis, sizes, &binding.values)?,
        }
    }
    Ok(binding.values)
}

impl Given<'_> {
    fn size(&self, axis: usize) -> Option<i64> {
        let size = match self {
            Given::Tensor(tensor) => tensor.dims()[axis],
            Given::Held { sizes, .. } => sizes[axis]?,
        };
        Some(i64::try_from(size).unwrap_or(i64::MAX))
    }
}

/// Values of symbols, with the context that error messages about them name.
struct Binding<'a> {
    program: &'a Program,
    entry: &'a Entry,
    inputs: &'a [Given<'a>],
    sources: &'a [Source],
    values: Vec<Option<i64>>,
}

impl Binding<'_> {
    fn value(&self, name: &str) -> Option<i64> {
        self.program.value(&self.values, name)
    }

    fn unsolvable(&self, source: &Source, size: i64) -> Box<Error> {
        let port = &self.entry.inputs[source.input];
        let (dim, symbol) = (&port.dims[source.axis], &source.symbol);
        let known = explain(self.program, self.entry, &self.values, [&source.rest]);
        let message = format!("{}: no `{symbol}` makes `{dim}` = {size}", join(place(port, source.axis), &[known]));
        self.with_derived_names(dim, Error::user("E0301", message))
    }

    /// Reports all symbols and derived names that are out of range in one error.
    fn check_ranges(&self) -> Result<()> {
        let (mut wrong, mut same) = (vec![], vec![]);
        for source in self.sources {
            let Some(&at) = self.program.symbol_index.get(&*source.symbol) else { continue };
            let symbol = &self.program.symbols[at];
            let Some(value) = self.values[at].filter(|&v| !symbol.admits(v)) else { continue };
            wrong.push(format!("`{}` = {value} ({}) is outside {}", symbol.name, self.origin(source), symbol.range()));
            for d in self.program.derived.iter().filter(|d| d.equals.as_name() == Some(&symbol.name)) {
                let range = range(d.lo, d.hi);
                same.push(format!("`{}` in {range} is the same dimension, by the node {}", d.name, d.why));
            }
        }
        for derived in &self.program.derived {
            // The expression may use symbols of another entry point, which have no value in this call.
            let Ok(value) = derived.equals.eval_named(&|name| self.value(name)) else { continue };
            let inside = value >= derived.lo && derived.hi.is_none_or(|hi| value <= hi);
            // The range of a name that is only an alias of a symbol is part of that symbol's range.
            if !inside && derived.equals.as_name().is_none() {
                let known = explain(self.program, self.entry, &self.values, [&derived.equals]);
                let (name, equals) = (&derived.name, &derived.equals);
                let range = range(derived.lo, derived.hi);
                wrong.push(format!("`{name}` = `{equals}` = {value} ({known}) is outside {range}"));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        // If a node narrowed the range, the call also violates a check, which names the node.
        let value = |d: &Dim| d.eval_named(&|name| self.value(name)).ok();
        let broken =
            self.entry.checks.iter().find(|c| value(&c.left).zip(value(&c.right)).is_some_and(|(l, r)| l != r));
        let error = Error::user("E0301", wrong.join(", "));
        let error = match broken {
            Some(check) => error.node(&check.why),
            None => error,
        };
        match same.is_empty() {
            true => Err(error),
            false => Err(error.help(format!("{}; `sardonyx compile --dim` sets the ranges", same.join(", ")))),
        }
    }

    fn check_size(&self, input: usize, axis: usize, dim: &Dim, size: i64) -> Result<()> {
        let port = &self.entry.inputs[input];
        let at = place(port, axis);
        let message = match dim.eval_named(&|name| self.value(name)) {
            Ok(wanted) if wanted == size => return Ok(()),
            Ok(wanted) => match (dim.as_const(), dim.as_name().and_then(|s| self.source(s))) {
                (Some(_), _) => format!("{at} is {size}, but {wanted} is expected"),
                (None, Some(source)) => {
                    let there = self.origin(source);
                    format!("`{dim}` = {wanted} ({there}), but also {size} (input `{}`, dimension {axis})", port.name)
                }
                (None, None) => {
                    let known = explain(self.program, self.entry, &self.values, [dim]);
                    format!("{at} is {size}, but `{dim}` = {wanted} is expected, where {known}")
                }
            },
            Err(e) => format!("{at} cannot be checked: {}", e.message),
        };
        Err(self.with_derived_names(dim, Error::user("E0301", message)))
    }

    fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|s| &*s.symbol == name)
    }

    fn origin(&self, source: &Source) -> String {
        match &self.inputs[source.input] {
            Given::Tensor(_) => origin(self.entry, source),
            Given::Held { axis, .. } if *axis == source.axis => "positions in the cache".to_string(),
            Given::Held { .. } => "in the cache".to_string(),
        }
    }

    /// Adds a help text that names the derived symbols equal to `dim`, and the nodes that require them.
    fn with_derived_names(&self, dim: &Dim, error: Box<Error>) -> Box<Error> {
        let same = self.program.derived.iter().filter(|d| d.equals == *dim);
        let same: Vec<String> = same.map(|d| format!("the node {} needs `{}` = `{dim}`", d.why, d.name)).collect();
        match same.is_empty() {
            true => error,
            false => error.help(format!("give inputs whose dimensions agree: {}", same.join(", "))),
        }
    }
}

fn place(port: &Port, axis: usize) -> String {
    format!("dimension {axis} of the input `{}`", port.name)
}

fn join(head: String, rest: &[String]) -> String {
    let rest: Vec<&str> = rest.iter().map(String::as_str).filter(|r| !r.is_empty()).collect();
    if rest.is_empty() { head } else { format!("{head}, where {}", rest.join(", ")) }
}

/// Describes a source, such as `` input `mask`, dimension 1 ``, and adds the expression of the dimension if it is more
/// than the symbol.
pub fn origin(entry: &Entry, source: &Source) -> String {
    let port = &entry.inputs[source.input];
    let expression = match source.is_bare() {
        true => String::new(),
        false => format!(", which is `{}`", port.dims[source.axis]),
    };
    format!("input `{}`, dimension {}{expression}", port.name, source.axis)
}

/// Lists the symbols of expressions with their values and sources, such as
/// `` `past` = 5 (input `cache`, dimension 2), `seq` = 3 (input `ids`, dimension 1) ``.
pub fn explain<'d>(
    program: &Program,
    entry: &Entry,
    values: &[Option<i64>],
    dims: impl IntoIterator<Item = &'d Dim>,
) -> String {
    let names: BTreeSet<Arc<str>> = dims.into_iter().flat_map(Dim::names).collect();
    let one = |name: &Arc<str>| {
        let value = program.value(values, name)?;
        let from = entry.sources.iter().find(|s| s.symbol == *name).map(|s| format!(" ({})", origin(entry, s)));
        Some(format!("`{name}` = {value}{}", from.unwrap_or_default()))
    };
    names.iter().filter_map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the error for a check that this call violates.
pub fn broken_check(
    program: &Program,
    entry: &Entry,
    values: &[Option<i64>],
    check: &Check,
    found: [i64; 2],
) -> Box<Error> {
    let (left, right) = (&check.left, &check.right);
    let what = match at_most(check) {
        Some(least) => format!("`{right}` must be at least `{least}`, but is {}", found[1]),
        None => format!("`{left}` = {} must be equal to `{right}` = {}", found[0], found[1]),
    };
    let known = explain(program, entry, values, [left, right]);
    let symbols = left.names().into_iter().chain(right.names());
    let from_data =
        |s: &str| program.symbol_index.get(s).is_some_and(|&at| program.symbols[at].kind == SymbolKind::Data);
    let code = if symbols.into_iter().any(|s| from_data(&s)) { "E0303" } else { "E0301" };
    Error::user(code, join(what, &[known])).node(&check.why)
}

/// Returns `a` if the check has the form `max(a, right) = right`, that is, `a <= right`.
pub fn at_most(check: &Check) -> Option<&Dim> {
    match check.left.as_atom()? {
        Atom::Max(a, b) if **b == check.right => Some(a),
        Atom::Max(a, b) if **a == check.right => Some(b),
        Atom::Max(..) | Atom::Min(..) | Atom::Symbol(_) | Atom::FloorDiv(..) => None,
    }
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
        let wanted = program.eval(values, dim).map_err(|_| {
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

/// Sets the symbols of the states' memory. With a cache, each capacity is that of the cache, and `kept` is the number
/// of filled positions; without a cache, each capacity is the size of its port, and `kept` is 0. Errors: E0301.
pub fn bind_capacities(
    program: &Program,
    entry: &Entry,
    capacity: Option<usize>,
    values: &mut [Option<i64>],
) -> Result<()> {
    for state in &entry.states {
        let (input, output) = (&entry.inputs[state.input], &entry.outputs[state.output]);
        if let Some(at) = state.kept.as_ref().map(|name| program.symbol_index[name]) {
            let value = match capacity {
                Some(_) => program.eval(values, &input.dims[state.axis])?,
                None => 0,
            };
            if let Some(other) = values[at].replace(value).filter(|&other| other != value) {
                let message = format!("`{}` has {value} positions, another state has {other}", input.name);
                return Err(Error::user("E0301", message));
            }
        }
        for (name, port) in [(&state.input_capacity, input), (&state.output_capacity, output)] {
            let at = program.symbol_index[name];
            let symbol = &program.symbols[at];
            let value = match capacity {
                Some(capacity) => i64::try_from(capacity).unwrap_or(i64::MAX),
                None => program.eval(values, &port.dims[state.axis])?,
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

fn check_type(port: &Port, tensor: &Input) -> Result<()> {
    if tensor.dtype() != port.dtype {
        let message = format!("the input `{}` has type {}, but {} is expected", port.name, tensor.dtype(), port.dtype);
        let help = format!("convert its elements to {}, for example with `numpy.astype`", port.dtype);
        return Err(Error::user("E0301", message).help(help));
    }
    // A tensor of one element passes as a scalar whatever its rank: exporters declare `[]` where users pass `[1]`.
    let scalar = port.dims.is_empty() && tensor.dims().iter().all(|n| *n == 1);
    if tensor.dims().len() != port.dims.len() && !scalar {
        let wanted = describe(&port.dims);
        let message = format!("the input `{}` has shape {:?}, but {wanted} is expected", port.name, tensor.dims());
        let help = match port.dims.len() {
            0 => "give a tensor of one element".to_string(),
            n => format!("give a tensor of {n} dimensions; a batch of one has a leading dimension of 1"),
        };
        return Err(Error::user("E0301", message).help(help));
    }
    Ok(())
}

/// Formats dimensions: `[batch, seq, 384]`.
pub fn describe(dims: &[Dim]) -> String {
    let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(", "))
}
