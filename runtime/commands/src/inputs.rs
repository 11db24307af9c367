//! --input NAME=FILE|random|zeros|range:LO..HI, --inputs FILE.npz, --dim NAME=N  =>  tensors for a call

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use crate::literal;
use sardonyx_base::plan::SymbolKind;
use sardonyx_base::usual::{USUAL, Usual, keep_checks};
use sardonyx_base::{Dim, Error, Result, Tensor, solve};
use sardonyx_format::tensor_io::{Synthetic, load_tensor, read_npz};
use sardonyx_runtime::program::{Entry, Port, Program};
use sardonyx_runtime::{CallBytes, Model};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct InputArgs {
    /// An input: a `.npy` or ONNX `.pb` file, its elements as nested lists (`[[101,2023,102]]`), or `random`, `zeros`,
    /// `range:LO..HI` (bounds included)
    #[arg(long = "input", value_name = "NAME=FILE|[…]|random|zeros|range:LO..HI")]
    pub input: Vec<String>,
    /// A `.npz` file with an array for each input, by name
    #[arg(long, value_name = "FILE.npz")]
    pub inputs: Option<PathBuf>,
    /// The size of a named dimension, for inputs that are generated
    #[arg(long = "dim", value_name = "NAME=N")]
    pub dim: Vec<String>,
}

/// How to handle inputs and dimensions that the command line does not mention.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Refuse,
    /// Random inputs of the default sizes: a batch of 1, and 128 for other dimensions, adjusted to their ranges and to
    /// the model's conditions.
    MakeUp,
}

/// The call that inputs are gathered for.
pub struct Wanted<'a> {
    pub entry: &'a str,
    /// Positions in the cache, if the call has one; the states are then not inputs.
    pub cache_len: Option<usize>,
    pub missing: Missing,
}

enum Given {
    Tensor(Tensor),
    Made(Synthetic),
}

/// Tensors for a call.
pub struct Gathered {
    /// The inputs of the entry point, in the model's order.
    pub inputs: Vec<(String, Tensor)>,
    /// Sizes of dimensions that the command line leaves open, by symbol.
    pub assumed: Vec<(String, i64)>,
}

/// Reads and generates the inputs of an entry point.
pub fn gather(model: &Model, args: &InputArgs, wanted: &Wanted) -> Result<Gathered> {
    let (program, entry, missing) = (model.program(), model.entry(wanted.entry)?, wanted.missing);
    let mut given = BTreeMap::new();
    if let Some(path) = &args.inputs {
        for (name, tensor) in read_npz(path)? {
            insert(&mut given, entry, &name, Given::Tensor(tensor))?;
        }
    }
    for argument in &args.input {
        let (name, what) = split(entry, argument)?;
        let value = match (Synthetic::parse(what), entry.inputs.iter().find(|port| port.name == name)) {
            (Some(made), _) => Given::Made(made?),
            (None, Some(port)) if literal::is_list(what) => {
                Given::Tensor(literal::parse(what, port.dtype).map_err(|e| e.node(format!("input `{name}`")))?)
            }
            (None, _) => Given::Tensor(load_tensor(what)?),
        };
        insert(&mut given, entry, name, value)?;
    }
    let mut dims = Dims::collect(program, entry, &args.dim, &given, wanted.cache_len)?;
    // A call that continues a cache usually adds one position.
    let usual = if wanted.cache_len.is_some() { Usual { other: 1, ..USUAL } } else { USUAL };
    let assumed = if missing == Missing::MakeUp { dims.assume(entry, usual) } else { vec![] };
    let mut inputs = Vec::new();
    for (i, port) in entry.inputs.iter().enumerate() {
        if wanted.cache_len.is_some() && entry.input_states[i].is_some() {
            match given.remove(&port.name) {
                None => continue,
                Some(_) => {
                    return Err(Error::user("E0301", format!("the input `{}` is in the cache", port.name)));
                }
            }
        }
        let tensor = match (given.remove(&port.name), missing) {
            (Some(Given::Tensor(tensor)), _) => tensor,
            (Some(Given::Made(made)), _) => made.tensor(port.dtype, dims.shape(port)?, i as u64)?,
            (None, Missing::MakeUp) => Synthetic::Random.tensor(port.dtype, dims.shape(port)?, i as u64)?,
            (None, Missing::Refuse) => {
                let help = format!("give `--input {}=FILE.npy` or `--input {}=random`", port.name, port.name);
                return Err(Error::user("E0301", format!("the input `{}` is missing", port.name)).help(help));
            }
        };
        inputs.push((port.name.clone(), tensor));
    }
    Ok(Gathered { inputs, assumed })
}

/// Generates random inputs of an entry point with these sizes, each written as for `--dim`.
pub fn synthetic_inputs(model: &Model, entry: &str, sizes: &[String]) -> Result<Vec<(String, Tensor)>> {
    let args = InputArgs { dim: sizes.to_vec(), ..InputArgs::default() };
    Ok(gather(model, &args, &Wanted { entry, cache_len: None, missing: Missing::MakeUp })?.inputs)
}

/// Checks that the dimensions of `--dim` arguments exist. Errors: E0001, E0204 for an unknown name.
pub fn check_names(program: &Program, arguments: &[String]) -> Result<()> {
    arguments.iter().try_for_each(|argument| meaning(program, parse_dim(argument)?.0).map(drop))
}

/// The memory of a call with the sizes in the `--dim` arguments. Errors: E0001, E0204 for a missing size, E0301.
pub fn call_bytes(program: &Program, entry: &Entry, arguments: &[String]) -> Result<Option<CallBytes>> {
    let dims = Dims::collect(program, entry, arguments, &BTreeMap::new(), None)?;
    CallBytes::new(program, entry, &|symbol| dims.value(&symbol.name))
}

/// The sizes of a call's symbols: those of the `--dim` arguments, and defaults for the others. Errors: E0001, E0204,
/// E0301.
pub fn sizes(program: &Program, entry: &Entry, arguments: &[String]) -> Result<BTreeMap<String, i64>> {
    let mut dims = Dims::collect(program, entry, arguments, &BTreeMap::new(), None)?;
    dims.assume(entry, USUAL);
    let coordinates = program.coordinates.iter().map(|(at, place)| (program.symbols[*at].name.clone(), *place));
    Ok(dims.values.into_iter().chain(coordinates).collect())
}

/// The bytes of a call of the default sizes; `None` if the bytes have no bound, or if the default sizes violate a
/// condition of the model.
pub fn usual_bytes(program: &Program, entry: &Entry) -> Option<CallBytes> {
    let mut dims = Dims { program, values: BTreeMap::new() };
    dims.assume(entry, USUAL);
    CallBytes::new(program, entry, &|symbol| dims.value(&symbol.name)).ok().flatten()
}

/// Splits `NAME=VALUE`. Names may contain `=`, so the longest matching input name is used.
fn split<'a>(entry: &Entry, argument: &'a str) -> Result<(&'a str, &'a str)> {
    let known = entry
        .inputs
        .iter()
        .filter(|p| argument.strip_prefix(p.name.as_str()).is_some_and(|rest| rest.starts_with('=')));
    if let Some(name) = known.map(|p| p.name.len()).max() {
        return Ok((&argument[..name], &argument[name + 1..]));
    }
    argument.split_once('=').ok_or_else(|| {
        Error::user("E0001", format!("`--input {argument}` has no `=`")).help("write `--input NAME=FILE.npy`")
    })
}

fn insert(given: &mut BTreeMap<String, Given>, entry: &Entry, name: &str, value: Given) -> Result<()> {
    if !entry.inputs.iter().any(|p| p.name == name) {
        let names: Vec<&str> = entry.inputs.iter().map(|p| p.name.as_str()).collect();
        let help = format!("the model's inputs are {}", names.join(", "));
        return Err(Error::user("E0301", format!("the model has no input `{name}`")).help(help));
    }
    match given.insert(name.to_string(), value) {
        None => Ok(()),
        Some(_) => Err(Error::user("E0301", format!("the input `{name}` is given twice"))),
    }
}

/// The dimension that a name denotes: a symbol, or the expression that a node of the model equates with the name.
fn meaning(program: &Program, name: &str) -> Result<Dim> {
    if program.symbol_index.contains_key(name) {
        return Ok(Dim::symbol(name));
    }
    if let Some(derived) = program.derived.iter().find(|d| d.name == name) {
        return Ok(derived.equals.clone());
    }
    let names = program.symbols.iter().map(|s| s.name.as_str()).chain(program.derived.iter().map(|d| d.name.as_str()));
    let names: Vec<&str> = names.collect();
    let help = match names.is_empty() {
        true => "all its dimensions are fixed".to_string(),
        false => format!("it has {}", names.join(", ")),
    };
    Err(Error::user("E0204", format!("the model has no dimension named `{name}`")).help(help))
}

/// Sizes of named dimensions, from the command line and from given tensors.
struct Dims<'a> {
    program: &'a Program,
    values: BTreeMap<String, i64>,
}

impl<'a> Dims<'a> {
    fn collect(
        program: &'a Program,
        entry: &Entry,
        arguments: &[String],
        given: &BTreeMap<String, Given>,
        cache_len: Option<usize>,
    ) -> Result<Dims<'a>> {
        // Dimensions with known sizes: first those of the given tensors, then those of the command line.
        let mut known: Vec<(Dim, i64, String)> = vec![];
        for (state, len) in entry.states.iter().flat_map(|state| Some((state, cache_len?))) {
            let dim = entry.inputs[state.input].dims[state.axis].clone();
            known.push((dim, i64::try_from(len).unwrap_or(i64::MAX), "the cache".to_string()));
        }
        for port in &entry.inputs {
            let Some(Given::Tensor(tensor)) = given.get(&port.name) else { continue };
            for (axis, (dim, &size)) in port.dims.iter().zip(tensor.dims()).enumerate() {
                let size = i64::try_from(size).unwrap_or(i64::MAX);
                known.push((dim.clone(), size, format!("dimension {axis} of the input `{}`", port.name)));
            }
        }
        for argument in arguments {
            let (name, value) = parse_dim(argument)?;
            known.push((meaning(program, name)?, value, format!("`--dim {name}={value}`")));
        }
        let all: Vec<Dim> = known.iter().map(|(dim, ..)| dim.clone()).collect();
        let mut values = BTreeMap::new();
        for source in solve::sources([all.as_slice()], &|_| true) {
            let (dim, size, what) = &known[source.axis];
            let value = source.value(*size, &|name| values.get(name).copied()).ok_or_else(|| {
                Error::user("E0301", format!("{what}: no `{}` makes `{dim}` = {size}", source.symbol))
            })?;
            values.insert(source.symbol.to_string(), value);
        }
        let dims = Dims { program, values };
        // The call itself checks the tensors, with better error messages.
        let said = &known[known.len() - arguments.len()..];
        said.iter().try_for_each(|(dim, size, what)| dims.agree(dim, *size, what))?;
        Ok(dims)
    }

    fn agree(&self, dim: &Dim, size: i64, what: &str) -> Result<()> {
        match dim.eval_named(&|name| self.values.get(name).copied()) {
            Ok(other) if other != size => {
                let message = format!("{what}, but what else is given makes `{dim}` = {other}");
                Err(Error::user("E0301", message))
            }
            // A missing value is reported later, if an input needs it.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Sets each symbol of the inputs that has no value yet to its default size. Returns these symbols and their sizes.
    fn assume(&mut self, entry: &Entry, usual: Usual) -> Vec<(String, i64)> {
        let given = self.values.clone();
        let inputs: Vec<&[Dim]> = entry.inputs.iter().map(|port| port.dims.as_slice()).collect();
        let range = |name: &str| {
            let symbol = &self.program.symbols[*self.program.symbol_index.get(name)?];
            (symbol.kind == SymbolKind::Input).then_some((symbol.lo, symbol.hi))
        };
        for name in inputs.iter().flat_map(|dims| dims.iter()).flat_map(|dim| dim.names()) {
            if let Some(range) = range(&name).filter(|(lo, hi)| *hi != Some(*lo)) {
                self.values.entry(name.to_string()).or_insert_with(|| usual.size(&name, range, &inputs));
            }
        }
        let checks = entry.checks.iter().map(|check| (&check.left, &check.right));
        keep_checks(checks, &range, &|name| given.contains_key(name), &mut self.values);
        self.values.iter().filter(|(name, _)| !given.contains_key(*name)).map(|(n, size)| (n.clone(), *size)).collect()
    }

    /// The size of a symbol, if it is given or fixed.
    fn value(&self, name: &str) -> Option<i64> {
        let symbol = || Some(&self.program.symbols[*self.program.symbol_index.get(name)?]);
        self.values.get(name).copied().or_else(|| symbol().and_then(|s| s.hi.filter(|&hi| hi == s.lo)))
    }

    fn shape(&self, port: &Port) -> Result<Vec<usize>> {
        let value = |name: &str| self.value(name);
        let size = |dim: &Dim| {
            if let Some(unset) = dim.names().iter().find(|name| value(name).is_none()) {
                let message = format!("the input `{}` needs a size for `{unset}`", port.name);
                return Err(Error::user("E0204", message).help(format!("give `--dim {unset}=N`")));
            }
            let size = dim.eval_named(&value)?;
            usize::try_from(size).map_err(|_| {
                Error::user("E0301", format!("`{dim}` = {size} is no size for a dimension of `{}`", port.name))
            })
        };
        port.dims.iter().map(size).collect()
    }
}

fn parse_dim(argument: &str) -> Result<(&str, i64)> {
    let split = argument.rsplit_once('=').and_then(|(name, n)| Some((name, n.parse::<i64>().ok()?)));
    split.filter(|(name, n)| !name.is_empty() && *n >= 0).ok_or_else(|| {
        let message = format!("`--dim {argument}` is not a name and a size");
        Error::user("E0001", message).help("write `--dim NAME=N`, for example `--dim batch=1`")
    })
}
