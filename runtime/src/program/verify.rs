//! manifest + plan  =>  `Program`: symbols, constants, kernels, and each entry point

use super::entry::EntryReader;
use super::host;
use super::{Derived, Kernel, Port, Program, Symbol, Target};
use sardonyx_base::plan::{self, LaunchSymbol, Manifest, Plan, SHARED_BYTES_MAX, SymbolKind, THREADS_MAX};
use sardonyx_base::{DType, Dim, Error, Result};
use sardonyx_format::artifact::CONSTANT_ALIGNMENT;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// No expression that a compiler writes is longer; the time to parse grows faster than the length.
const EXPRESSION_BYTES_MAX: usize = 1 << 14;

/// Checks the plan against the manifest and the size of `weights`.
pub fn verify(manifest: &Manifest, plan: &Plan, weights_bytes: usize) -> Result<Program> {
    let mut program = Program {
        symbols: Vec::new(),
        symbol_index: BTreeMap::new(),
        derived: Vec::new(),
        constants: Vec::new(),
        kernels: Vec::new(),
        entries: Vec::new(),
    };
    for symbol in &manifest.symbols {
        let at = program.symbols.len();
        if program.symbol_index.insert(symbol.name.clone(), at).is_some() {
            return Err(broken(format!("the symbol `{}` is declared twice", symbol.name)));
        }
        program.symbols.push(read_symbol(symbol)?);
    }
    let mut names = BTreeSet::new();
    for derived in &manifest.derived {
        if !names.insert(&derived.name) {
            return Err(broken(format!("the derived symbol `{}` is declared twice", derived.name)));
        }
        let read = read_derived(derived, &program).map_err(|e| e.node(format!("derived symbol `{}`", derived.name)))?;
        program.derived.push(read);
    }
    for (i, constant) in plan.constants.iter().enumerate() {
        program.constants.push(constant_range(constant, weights_bytes).map_err(|e| e.node(format!("constant {i}")))?);
    }
    for (i, kernel) in plan.kernels.iter().enumerate() {
        program.kernels.push(read_kernel(kernel).map_err(|e| e.node(format!("kernel {i} `{}`", kernel.symbol)))?);
    }
    let mut names = BTreeSet::new();
    for entry in &plan.entries {
        if !names.insert(&entry.name) {
            return Err(broken(format!("the entry point `{}` is there twice", entry.name)));
        }
        let read = EntryReader::new(&program).read(entry);
        program.entries.push(read.map_err(|e| e.node(format!("entry point `{}`", entry.name)))?);
    }
    for (i, entry) in plan.entries.iter().enumerate().filter(|(_, entry)| !entry.specializes.is_empty()) {
        specialize(&mut program, i, &entry.specializes).map_err(|e| e.node(format!("entry point `{}`", entry.name)))?;
    }
    for (i, entry) in program.entries.iter().enumerate() {
        host::check_bodies(&program, i).map_err(|e| e.node(format!("entry point `{}`", entry.name)))?;
    }
    host::check_depth(&program)?;
    Ok(program)
}

/// Makes an entry point one that calls of another may run.
fn specialize(program: &mut Program, at: usize, of: &str) -> Result<()> {
    let general = program.entries.iter().position(|e| e.name == of).filter(|general| *general != at);
    let general = general.ok_or_else(|| broken(format!("there is no entry point `{of}` that it is made from")))?;
    let (own, other) = (&program.entries[at], &program.entries[general]);
    let same = |a: &[Port], b: &[Port]| {
        let one = |(a, b): (&Port, &Port)| {
            a.name == b.name && a.dtype == b.dtype && a.kind == b.kind && a.dims.len() == b.dims.len()
        };
        a.len() == b.len() && a.iter().zip(b).all(one)
    };
    if own.internal || other.internal || !same(&own.inputs, &other.inputs) || !same(&own.outputs, &other.outputs) {
        return Err(broken(format!("it has other inputs or outputs than `{of}`")));
    }
    let mut specialized = [program.entries[general].specialized.as_slice(), &[at]].concat();
    specialized.sort_by_key(|&i| std::cmp::Reverse(program.entries[i].n_fixed()));
    program.entries[general].specialized = specialized;
    Ok(())
}

pub fn broken(message: String) -> Box<Error> {
    Error::user("E0401", format!("the plan is malformed: {message}")).help("compile the model again")
}

pub fn undeclared(name: &str) -> Box<Error> {
    broken(format!("the symbol `{name}` is not declared"))
}

fn read_symbol(symbol: &plan::Symbol) -> Result<Symbol> {
    let kind = SymbolKind::try_from(symbol.kind)
        .map_err(|_| broken(format!("the symbol `{}` has the unknown kind {}", symbol.name, symbol.kind)))?;
    if symbol.lo < 0 || symbol.hi.is_some_and(|hi| hi < symbol.lo) {
        return Err(broken(format!("the range of the symbol `{}` is empty or negative", symbol.name)));
    }
    Ok(Symbol { name: symbol.name.clone(), kind, lo: symbol.lo, hi: symbol.hi })
}

fn read_derived(derived: &plan::Derived, program: &Program) -> Result<Derived> {
    let plan::Derived { name, equals, lo, hi, why } = derived.clone();
    let known = |name: &str| program.symbol_index.contains_key(name);
    if known(&name) {
        return Err(broken(format!("`{name}` is declared twice")));
    }
    let equals = parse(&equals)?;
    match equals.symbols().iter().find(|s| !known(s)) {
        Some(symbol) => Err(undeclared(symbol)),
        None => Ok(Derived { name, equals, lo, hi, why }),
    }
}

fn constant_range(constant: &plan::Constant, weights_bytes: usize) -> Result<Range<usize>> {
    if !constant.offset.is_multiple_of(CONSTANT_ALIGNMENT) {
        return Err(broken(format!("the offset {} is not a multiple of {CONSTANT_ALIGNMENT}", constant.offset)));
    }
    read_dtype(constant.dtype)?;
    let start = usize::try_from(constant.offset).ok();
    let end = start.and_then(|s| s.checked_add(usize::try_from(constant.bytes).ok()?));
    match (start, end) {
        (Some(start), Some(end)) if end <= weights_bytes => Ok(start..end),
        _ => {
            let (offset, bytes) = (constant.offset, constant.bytes);
            Err(broken(format!("{bytes} bytes at {offset} reach beyond the {weights_bytes} bytes of the weights")))
        }
    }
}

pub fn read_dtype(code: i32) -> Result<DType> {
    let dtype = DType::from_code(code);
    dtype.ok_or_else(|| broken(format!("{code} is not an element type of tensors")))
}

fn read_kernel(kernel: &plan::Kernel) -> Result<Kernel> {
    if kernel.symbol.is_empty() || kernel.symbol.contains('\0') {
        return Err(broken("the symbol is empty or holds a zero byte".into()));
    }
    let is_param = |s: LaunchSymbol| matches!(s, LaunchSymbol::Param(n) if n < kernel.params as usize);
    let is_known = |s: LaunchSymbol| match s {
        LaunchSymbol::Param(_) => is_param(s),
        LaunchSymbol::BufferBytes(n) => n < kernel.writes.len(),
        LaunchSymbol::Grid => true,
    };
    let over_params = |what: &str, text: &str| {
        let dim = parse(text)?;
        match dim.symbols().iter().find(|s| !LaunchSymbol::parse(s).is_some_and(is_param)) {
            Some(symbol) => Err(broken(format!("{what} uses `{symbol}`, which is no parameter of the kernel"))),
            None => Ok(dim),
        }
    };
    let required = |texts: &[String]| -> Result<Vec<Dim>> {
        let dims = texts.iter().map(|t| parse(t)).collect::<Result<Vec<Dim>>>()?;
        match dims.iter().flat_map(Dim::symbols).find(|s| !LaunchSymbol::parse(s).is_some_and(is_known)) {
            Some(symbol) => Err(broken(format!("a requirement uses `{symbol}`, which no launch has"))),
            None => Ok(dims),
        }
    };
    let work = match kernel.flops.is_empty() {
        true => None,
        false => {
            let one = |text: &String| required(std::slice::from_ref(text)).map(|mut dims| dims.pop());
            one(&kernel.flops)?.zip(one(&kernel.moved_bytes)?)
        }
    };
    Ok(Kernel {
        symbol: kernel.symbol.clone(),
        writes: kernel.writes.clone(),
        params: kernel.params as usize,
        scratch_bytes: over_params("the scratch size", &kernel.scratch_bytes)?,
        class: kernel.class.clone(),
        requires: required(&kernel.requires)?,
        indexes: required(&kernel.indexes)?,
        work,
        targets: read_targets(&kernel.targets, &|text| over_params("the grid", text))?,
        target: None,
    })
}

fn read_targets(targets: &[plan::KernelTarget], grid: &dyn Fn(&str) -> Result<Dim>) -> Result<Vec<Target>> {
    let mut read: Vec<Target> = vec![];
    for target in targets {
        let plan::KernelTarget { target: name, grid: text, block, shared_bytes } = target;
        if read.iter().any(|t| t.name == *name) {
            return Err(broken(format!("it has two launches for {name}")));
        }
        if !(1..=THREADS_MAX).contains(block) {
            return Err(broken(format!("blocks of {block} threads for {name}, where 1 to {THREADS_MAX} are possible")));
        }
        if *shared_bytes > SHARED_BYTES_MAX {
            let most = SHARED_BYTES_MAX;
            return Err(broken(format!("{shared_bytes} bytes of shared memory for {name}, where {most} are possible")));
        }
        let (block, shared_bytes) = (*block, *shared_bytes);
        read.push(Target { name: name.clone(), grid: grid(text)?, block, shared_bytes });
    }
    Ok(read)
}

pub fn parse(text: &str) -> Result<Dim> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(broken(format!("an expression of {} bytes", text.len())));
    }
    Dim::parse(text).map_err(|e| broken(e.message))
}
