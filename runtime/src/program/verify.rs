//! manifest + plan  =>  `Program`: symbols, constants, kernels, and each entry point

use super::entry::EntryReader;
use super::needed::needed_constants;
use super::{Derived, Kernel, KernelTarget, Port, Program, Symbol};
use super::{host, world};
use crate::comm::AXES_MAX;
use sardonyx_base::plan::{
    Constant, Manifest, MeshAxis, Part, Plan, SHARED_BYTES_MAX, SymbolKind, THREADS_MAX, Wire, malformed, messages,
};
use sardonyx_base::{Dim, Error, Result, dim};
use sardonyx_format::artifact::CONSTANT_ALIGNMENT;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Checks the plan against the manifest and the size of `weights`, for a rank of the mesh. Errors: E0401, E0407.
pub fn verify(manifest: &Manifest, plan: &messages::Plan, weights_bytes: usize, rank: usize) -> Result<Program> {
    let plan = Plan::read(plan)?;
    let mut program = Program {
        symbols: Wire::read(&manifest.symbols, "symbols")?,
        symbol_index: BTreeMap::new(),
        derived: Wire::read(&manifest.derived, "derived")?,
        constants: Vec::new(),
        needed: Vec::new(),
        hashes: Vec::new(),
        kernels: plan.kernels,
        entries: Vec::new(),
        mesh: Vec::new(),
        coordinates: Vec::new(),
        chosen: Vec::new(),
    };
    for (at, symbol) in program.symbols.iter().enumerate() {
        if program.symbol_index.insert(symbol.name.clone(), at).is_some() {
            return Err(malformed(format!("the symbol `{}` is declared twice", symbol.name)));
        }
        check_symbol(symbol)?;
    }
    read_mesh(manifest, rank, &mut program)?;
    let mut names = BTreeSet::new();
    for derived in &program.derived {
        if !names.insert(&derived.name) {
            return Err(malformed(format!("the derived symbol `{}` is declared twice", derived.name)));
        }
        check_derived(derived, &program).map_err(|e| e.node(format!("derived symbol `{}`", derived.name)))?;
    }
    for (i, constant) in plan.constants.iter().enumerate() {
        let part = of_rank(constant, &program.mesh, rank).map_err(|e| e.node(format!("constant {i}")))?;
        program.hashes.push(part.blake3.clone());
        program.constants.push(constant_range(part, weights_bytes).map_err(|e| e.node(format!("constant {i}")))?);
    }
    for (i, kernel) in program.kernels.iter().enumerate() {
        check_kernel(kernel).map_err(|e| e.node(format!("kernel {i} `{}`", kernel.symbol)))?;
    }
    let named = |name: &str| format!("entry point `{name}`");
    for entry in plan.entries {
        let name = entry.name.clone();
        if program.entries.iter().any(|e| e.name == name) {
            return Err(malformed(format!("the entry point `{name}` is there twice")));
        }
        let read = EntryReader::new(&program).read(entry).and_then(|entry| {
            world::check(&program, &entry)?;
            Ok(entry)
        });
        program.entries.push(read.map_err(|e| e.node(named(&name)))?);
    }
    for i in 0..program.entries.len() {
        let Some(of) = program.entries[i].specializes.clone() else { continue };
        specialize(&mut program, i, &of).map_err(|e| e.node(named(&program.entries[i].name)))?;
    }
    for (i, entry) in program.entries.iter().enumerate() {
        host::check_bodies(&program, i).map_err(|e| e.node(named(&entry.name)))?;
    }
    host::check_depth(&program)?;
    program.needed = needed_constants(&program);
    Ok(program)
}

/// Registers an entry point as a specialization of another one.
fn specialize(program: &mut Program, at: usize, of: &str) -> Result<()> {
    let general = program.entries.iter().position(|e| e.name == of).filter(|general| *general != at);
    let general = general.ok_or_else(|| malformed(format!("there is no entry point `{of}` that it is made from")))?;
    let (own, other) = (&program.entries[at], &program.entries[general]);
    let same = |a: &[Port], b: &[Port]| {
        let one = |(a, b): (&Port, &Port)| {
            a.name == b.name && a.dtype == b.dtype && a.kind == b.kind && a.dims.len() == b.dims.len()
        };
        a.len() == b.len() && a.iter().zip(b).all(one)
    };
    if own.internal || other.internal || !same(&own.inputs, &other.inputs) || !same(&own.outputs, &other.outputs) {
        return Err(malformed(format!("it has other inputs or outputs than `{of}`")));
    }
    let mut specialized = [program.entries[general].specialized.as_slice(), &[at]].concat();
    specialized.sort_by_key(|&i| std::cmp::Reverse(program.entries[i].n_fixed()));
    program.entries[general].specialized = specialized;
    Ok(())
}

pub fn undeclared(name: &str) -> Box<Error> {
    malformed(format!("the symbol `{name}` is not declared"))
}

fn check_symbol(symbol: &Symbol) -> Result<()> {
    match symbol.lo < 0 || symbol.hi.is_some_and(|hi| hi < symbol.lo) {
        true => Err(malformed(format!("the range of the symbol `{}` is empty or negative", symbol.name))),
        false => Ok(()),
    }
}

fn check_derived(derived: &Derived, program: &Program) -> Result<()> {
    let known = |name: &str| program.symbol_index.contains_key(name);
    if known(&derived.name) {
        return Err(malformed(format!("`{}` is declared twice", derived.name)));
    }
    match derived.equals.names().iter().find(|s| !known(s)) {
        Some(symbol) => Err(undeclared(symbol)),
        None => Ok(()),
    }
}

/// Maximum number of ranks of a mesh.
pub const RANKS_MAX: usize = 1024;

/// Reads the mesh, and the coordinates of a rank in it.
fn read_mesh(manifest: &Manifest, rank: usize, program: &mut Program) -> Result<()> {
    let axes: Vec<MeshAxis> = Wire::read(&manifest.mesh, "mesh")?;
    let ranks = axes.iter().try_fold(1usize, |n, axis| n.checked_mul(axis.size)).unwrap_or(usize::MAX);
    if axes.len() > AXES_MAX || !(1..=RANKS_MAX).contains(&ranks) {
        return Err(malformed(format!("a mesh of {} axes and {ranks} ranks", axes.len())));
    }
    if rank >= ranks {
        return Err(Error::user("E0407", format!("the model is made for {ranks} ranks, and there is no rank {rank}")));
    }
    let is_rank = |at: &usize| program.symbols[*at].kind == SymbolKind::Rank;
    for (i, axis) in axes.iter().enumerate() {
        let at = program.symbol_index.get(&axis.symbol).copied().filter(is_rank);
        let at = at.ok_or_else(|| malformed(format!("`{}` is no coordinate of a rank", axis.symbol)))?;
        if program.coordinates.iter().any(|(other, _)| *other == at) {
            return Err(malformed(format!("`{}` is the coordinate along two axes", axis.symbol)));
        }
        let stride: usize = axes[i + 1..].iter().map(|axis| axis.size).product();
        program.coordinates.push((at, (rank / stride % axis.size) as i64));
    }
    if let Some(at) =
        (0..program.symbols.len()).find(|at| is_rank(at) && !program.coordinates.iter().any(|c| c.0 == *at))
    {
        return Err(malformed(format!("the mesh has no axis for `{}`", program.symbols[at].name)));
    }
    program.mesh = axes.into_iter().map(|axis| axis.size).collect();
    Ok(())
}

/// Returns offset, size and hash of a rank's part of a constant.
fn of_rank(constant: &Constant, mesh: &[usize], rank: usize) -> Result<Part> {
    let (n, ranks) = (constant.parts.len(), mesh.iter().product::<usize>());
    match constant.parts.get(rank) {
        _ if n == 0 => Ok(Part { offset: constant.offset, bytes: constant.bytes, blake3: constant.blake3.clone() }),
        Some(part) if n == ranks => Ok(part.clone()),
        Some(_) | None => Err(malformed(format!("{n} parts for {ranks} ranks"))),
    }
}

fn constant_range(constant: Part, weights_bytes: usize) -> Result<Range<usize>> {
    if !constant.offset.is_multiple_of(CONSTANT_ALIGNMENT) {
        return Err(malformed(format!("the offset {} is not a multiple of {CONSTANT_ALIGNMENT}", constant.offset)));
    }
    let start = usize::try_from(constant.offset).ok();
    let end = start.and_then(|s| s.checked_add(usize::try_from(constant.bytes).ok()?));
    match (start, end) {
        (Some(start), Some(end)) if end <= weights_bytes => Ok(start..end),
        _ => {
            let (offset, bytes) = (constant.offset, constant.bytes);
            Err(malformed(format!("{bytes} bytes at {offset} reach beyond the {weights_bytes} bytes of the weights")))
        }
    }
}

fn check_kernel(kernel: &Kernel) -> Result<()> {
    if kernel.symbol.is_empty() || kernel.symbol.contains('\0') {
        return Err(malformed("the symbol is empty or holds a zero byte".into()));
    }
    let is_param = |s: &dim::Symbol| s.param().is_some_and(|n| n < kernel.params);
    let is_known = |s: &dim::Symbol| match s {
        dim::Symbol::BufferBytes(n) => *n < kernel.writes.len(),
        dim::Symbol::Grid => true,
        _ => is_param(s),
    };
    let over_params = |what: &str, dim: &Dim| match dim.symbols().iter().find(|s| !is_param(s)) {
        Some(symbol) => Err(malformed(format!("{what} uses `{symbol}`, which is no parameter of the kernel"))),
        None => Ok(()),
    };
    over_params("the scratch size", &kernel.scratch_bytes)?;
    let required = [&kernel.requires, &kernel.indexes].into_iter().flatten();
    let mut symbols = required.chain(&kernel.flops).chain(&kernel.moved_bytes).flat_map(Dim::symbols);
    if let Some(symbol) = symbols.find(|s| !is_known(s)) {
        return Err(malformed(format!("a requirement uses `{symbol}`, which no launch has")));
    }
    kernel.targets.iter().try_for_each(|target| over_params("the grid", &target.grid))?;
    check_targets(&kernel.targets)
}

fn check_targets(targets: &[KernelTarget]) -> Result<()> {
    for (i, KernelTarget { target: name, block, shared_bytes, .. }) in targets.iter().enumerate() {
        if targets[..i].iter().any(|t| t.target == *name) {
            return Err(malformed(format!("it has two launches for {name}")));
        }
        if !(1..=THREADS_MAX).contains(block) {
            return Err(malformed(format!(
                "blocks of {block} threads for {name}, where 1 to {THREADS_MAX} are possible"
            )));
        }
        if *shared_bytes > SHARED_BYTES_MAX {
            let most = SHARED_BYTES_MAX;
            return Err(malformed(format!(
                "{shared_bytes} bytes of shared memory for {name}, where {most} are possible"
            )));
        }
    }
    Ok(())
}
