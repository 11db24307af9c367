//! plan, parameters  =>  code and constants in a .sdx file

mod weights;

use crate::import::ParamStore;
use crate::module::MAIN;
use crate::plans::Planned;
use crate::prepare::{self, Store};
use crate::requires::{Requires, requires};
use sardonyx_base::plan::{self as file, Wire};
use sardonyx_base::{Dim, Error, HostOp, Kind, Result, Tensor};
use sardonyx_dialects::flow::prepared::Prepared;
use sardonyx_dialects::flow::{Container, Layout, State};
use sardonyx_dialects::params::Part;
use sardonyx_dialects::plan::{Action, Entry, Plan};
use sardonyx_dialects::sdx::{Axis, Symbol, SymbolKind, mesh};
use sardonyx_format::{ArtifactWriter, SecretKey};
use sardonyx_kernels::codegen::{self, ptx::PtxModule};
use sardonyx_kernels::target::Class;
use sardonyx_kernels::{Level, Lowered, Target, Tiles, Tuning, levels_of, lower, tuning};
use sardonyx_passes::plan_memory;
use sardonyx_passes::usual::USUAL;
use std::collections::BTreeMap;
use std::path::Path;
use weights::Weights;

/// Summary of a finished compilation.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The plan of the first target class.
    pub first: PlanSummary,
    /// The plans of the further classes.
    pub others: Vec<PlanSummary>,
    /// Bytes of the constants, which all plans share.
    pub weights_bytes: u64,
    /// Bytes of machine code for CPUs.
    pub code_bytes: usize,
    /// The code for each GPU target.
    pub ptx: Vec<PtxSummary>,
}

/// Summary of the code for a GPU target.
#[derive(Clone, Copy, Debug, Default)]
pub struct PtxSummary {
    /// Name of the target, such as `sm_80`.
    pub target: &'static str,
    /// Bytes of PTX, of all candidates.
    pub bytes: usize,
    /// Number of modules: one, or one for each candidate of the tiles.
    pub candidates: usize,
    /// Number of kernels.
    pub kernels: usize,
    /// Number of kernels whose tile was selected because it was measured to be the fastest.
    pub measured: usize,
}

/// Summary of the plan of one target class.
#[derive(Clone, Debug)]
pub struct PlanSummary {
    /// Class of the targets that the plan is for.
    pub class: Class,
    /// Number of kernels.
    pub kernels: usize,
    /// The entry points; `main` is the first.
    pub entries: Vec<EntrySummary>,
    /// Number of memory accesses in all kernels.
    pub accesses: usize,
    /// Number of accesses for which no requirement was proved that keeps them within their buffer. They are safe only
    /// in plans that come unchanged from the compiler.
    pub unchecked: usize,
}

/// Summary of an entry point.
#[derive(Clone, Debug)]
pub struct EntrySummary {
    /// Name of the entry point, such as `main`.
    pub name: String,
    /// Number of steps that launch a kernel.
    pub launches: usize,
    /// Number of states, which are outputs that continue an input, such as caches.
    pub states: usize,
    /// Bytes of the arena, as an expression over the symbols.
    pub arena_bytes: String,
    /// The arena at default sizes: its symbols with their values, and the bytes. `None` if its size is constant.
    pub arena_example: Option<(Vec<(String, i64)>, i64)>,
    /// Bounds of the symbols whose values come from the dimensions of inputs.
    pub ranges: BTreeMap<String, (i64, Option<i64>)>,
    /// Whether the entry point is only called by host operations of other entry points.
    pub internal: bool,
    /// Steps that the host executes, in order.
    pub hosts: Vec<HostSummary>,
}

/// A step that the host executes.
#[derive(Clone, Debug)]
pub struct HostSummary {
    /// The operation with its attributes.
    pub op: String,
    /// Whether the step computes nothing itself but runs other entry points.
    pub calls: bool,
    /// ONNX nodes that the step computes.
    pub origins: Vec<String>,
}

/// The host operations of an entry point, in order.
pub fn host_operations(entry: &Entry) -> Vec<HostSummary> {
    let one = |step: &file::Step| match &step.action {
        Action::Host(host) => {
            let (op, calls, origins) = (host.call.op.to_string(), host.call.op.is_call(), step.origins.clone());
            Some(HostSummary { op, calls, origins })
        }
        Action::Launch(_) | Action::Copy(_) | Action::Bind(_) => None,
    };
    entry.steps.iter().filter_map(one).collect()
}

/// Everything that goes into an artifact.
pub struct Product<'a> {
    /// Plan of each target class; not empty.
    pub planned: &'a [Planned],
    /// Values of the model's parameters, and of those that calibration added.
    pub params: &'a ParamStore,
    /// BLAKE3 of the model file in hexadecimal; empty if there is no file.
    pub model_hash: &'a str,
    /// Call with known results that loading the artifact repeats; `None` to leave it out.
    pub selftest: Option<&'a file::SelfTest>,
    /// Description of the precision; `None` if it is the model's own.
    pub precision: Option<String>,
    /// Kinds of the inputs and outputs that are not tensors, by name.
    pub kinds: &'a BTreeMap<String, Kind>,
    /// Targets to generate code for, of the classes that have a plan.
    pub targets: &'a [Target],
    /// Tiles of the kernels for GPUs; `None` for all candidates, which are to be measured.
    pub tuning: Option<&'a Tuning>,
    /// The highest CPU level to generate code for; `None` for all levels.
    pub most: Option<Level>,
    /// Key that signs the artifact; `None` for an unsigned one.
    pub sign: Option<&'a SecretKey>,
    /// Files to attach: names and contents.
    pub attached: &'a [(&'static str, Vec<u8>)],
    /// Names of the entry points that a call of `main` runs instead if it has their sizes.
    pub specialized: &'a [String],
}

impl<'a> Product<'a> {
    /// A product of plans and their parameters, without a self-test or attached files.
    pub fn of_plans(planned: &'a [Planned], params: &'a ParamStore, targets: &'a [Target]) -> Product<'a> {
        static NO_KINDS: BTreeMap<String, Kind> = BTreeMap::new();
        static EXPECTED: Tuning = Tuning::expected();
        Product {
            planned,
            params,
            model_hash: "",
            selftest: None,
            precision: None,
            kinds: &NO_KINDS,
            targets,
            tuning: Some(&EXPECTED),
            most: None,
            sign: None,
            attached: &[],
            specialized: &[],
        }
    }
}

/// Code and prepared parameters of a product. Computing them takes most of the time of writing an artifact. All files
/// that are written from the product share them.
pub struct Built {
    codes: Vec<Code>,
    prepared: Prepared,
    values: BTreeMap<String, Tensor>,
}

/// Generates the code of all plans, and computes the parameters that are stored in a prepared format.
pub fn build(product: &Product) -> Result<Built> {
    let codes = product.planned.iter().map(|made| Code::build(made, product)).collect::<Result<_>>()?;
    let prepared = product.planned.iter().flat_map(|made| made.plan.prepared.clone()).collect();
    let values = prepare::values(&prepared, product.params)?;
    Ok(Built { codes, prepared, values })
}

/// Writes an artifact from a product and what was built from it. Returns its summary.
pub fn write(path: &Path, product: &Product, built: &Built) -> Result<Summary> {
    let codes = &built.codes;
    let symbols = shared_symbols(product.planned.iter().flat_map(|made| &made.plan.entries))?;
    let mut writer = ArtifactWriter::create(path)?;
    if !mesh(&symbols).is_empty() {
        // Constants get hashes of their own, because each rank checks only its own constants.
        writer.hash_constants();
    }
    let params = Store { params: product.params, prepared: &built.prepared, values: &built.values };
    let mut weights = Weights::new(writer, params, mesh(&symbols));
    weights.store_parts(product.planned.iter().map(|made| &made.plan))?;
    let (mut plans, mut summaries) = (vec![], vec![]);
    for (made, code) in product.planned.iter().zip(codes) {
        let whole = plan(&made.plan, code, &symbols, product, &mut weights)?;
        summaries.push(summary(made, code, &whole));
        plans.push((made.target.class(), whole));
    }
    let mut writer = weights.writer;
    for (name, text) in codes.iter().flat_map(|code| &code.ptx) {
        writer.ptx(name, text.clone());
    }
    let weights_bytes = writer.weights_bytes();
    product.attached.iter().for_each(|(name, bytes)| writer.attach(name, bytes.clone()));
    product.sign.into_iter().for_each(|key| writer.sign(key.clone()));
    product.selftest.into_iter().for_each(|test| writer.selftest(test));
    let machine = codes.iter().find_map(|code| code.machine.as_ref());
    let mut manifest = manifest(&symbols, product.model_hash, machine.map(|(levels, _)| levels.as_slice()));
    manifest.precision = product.precision.clone().unwrap_or_default();
    if product.planned.iter().any(|made| overlaps(&made.plan)) {
        manifest.format_minor = file::FORMAT_MINOR_OVERLAP;
        manifest.needs.push(file::NEEDS_OVERLAP.to_string());
    }
    let machine = machine.map(|(_, code)| code.as_slice());
    let (_, first) = plans.remove(0);
    plans.into_iter().for_each(|(class, plan)| writer.plan(class.name(), &plan.write()));
    writer.finish(manifest, &first.write(), machine)?;
    Ok(Summary {
        first: summaries.remove(0),
        others: summaries,
        weights_bytes,
        code_bytes: machine.map_or(0, |code| code.len()),
        ptx: codes.iter().flat_map(|code| code.ptx_summary.iter().copied()).collect(),
    })
}

/// Returns whether a plan has collectives that are started in one step and awaited in another.
fn overlaps(plan: &Plan) -> bool {
    let steps = plan.entries.iter().flat_map(|entry| &entry.steps);
    let begins = |action: &Action| matches!(action, Action::Host(host) if matches!(host.call.op, HostOp::Begin(_)));
    steps.into_iter().any(|step| begins(&step.action))
}

/// Kernels of a plan: their descriptions and their code.
struct Code {
    kernels: Vec<file::Kernel>,
    /// If the CPU is a target: the levels that there is code for, and the code.
    machine: Option<(Vec<Level>, Vec<u8>)>,
    /// GPU targets, and their PTX.
    ptx: Vec<(String, String)>,
    ptx_summary: Vec<PtxSummary>,
    accesses: usize,
    unchecked: usize,
}

impl Code {
    fn build(made: &Planned, product: &Product) -> Result<Code> {
        let (plan, most) = (&made.plan, product.most);
        let lowered: Vec<Lowered> = plan.kernels.iter().map(|(_, k)| lower(k)).collect::<Result<_>>()?;
        let required: Vec<Requires> =
            lowered.iter().enumerate().map(|(i, l)| requires(plan, i, l)).collect::<Result<_>>()?;
        let own = product.targets.iter().copied().filter(|t| t.class() == made.target.class());
        let mut ptx = vec![];
        for target in own.filter(|t| t.ptx().is_some()) {
            match product.tuning {
                Some(tuning) => ptx.push(PtxModule::emit(plan, &lowered, target, Tiles::Measured(tuning))?),
                None => {
                    for i in 0..tuning::candidates(&lowered, target).max(1) {
                        ptx.push(PtxModule::emit(plan, &lowered, target, Tiles::Candidate(i))?);
                    }
                }
            }
        }
        let kernels = kernels(plan, &lowered, &required, &ptx);
        let (accesses, unchecked) = required.iter().fold((0, 0), |(a, u), r| (a + r.accesses, u + r.unchecked));
        let levels: Vec<Level> =
            levels_of(&lowered).into_iter().filter(|level| most.is_none_or(|m| *level <= m)).collect();
        let machine = match (made.target == Target::cpu(), lowered.is_empty()) {
            (false, _) => None,
            // A plan that only copies needs no code.
            (true, true) => Some(vec![]),
            (true, false) => {
                let symbols = plan.kernels.iter().map(|(symbol, _)| symbol.clone());
                Some(codegen::build_with_declarations(&symbols.zip(&lowered).collect::<Vec<_>>(), &levels, &kernels)?)
            }
        };
        let machine = machine.map(|code| (levels, code));
        let texts: Vec<(String, String)> = ptx.iter().map(|m| (m.name.clone(), m.text(&kernels))).collect();
        let mut ptx_summary: Vec<PtxSummary> = vec![];
        for (module, (_, text)) in ptx.iter().zip(&texts) {
            let target = module.target.ptx().unwrap_or_default();
            if ptx_summary.last().is_none_or(|last| last.target != target) {
                let (kernels, measured) = (lowered.len(), module.measured());
                ptx_summary.push(PtxSummary { target, kernels, measured, ..PtxSummary::default() });
            }
            if let Some(last) = ptx_summary.last_mut() {
                last.bytes += text.len();
                last.candidates += 1;
            }
        }
        Ok(Code { kernels, machine, ptx: texts, ptx_summary, accesses, unchecked })
    }
}

/// Converts a plan to the file's format, and writes its constants to the file.
fn plan(
    plan: &Plan,
    code: &Code,
    symbols: &BTreeMap<String, Symbol>,
    product: &Product,
    weights: &mut Weights,
) -> Result<file::Plan> {
    let mut entries: Vec<file::Entry> =
        plan.entries.iter().map(|e| entry(e, symbols, product.kinds, weights)).collect::<Result<_>>()?;
    for entry in entries.iter_mut().filter(|e| product.specialized.contains(&e.name)) {
        entry.specializes = Some(MAIN.into());
    }
    Ok(file::Plan { entries, constants: weights.of_plan(), kernels: code.kernels.clone() })
}

fn arena_example(entry: &Entry, arena_bytes: &Dim) -> Option<(Vec<(String, i64)>, i64)> {
    let sizes = plan_memory::values(entry, USUAL);
    let at = arena_bytes.names().into_iter().map(|name| Some((name.to_string(), *sizes.get(&*name)?)));
    let at = at.collect::<Option<Vec<_>>>().filter(|at| !at.is_empty())?;
    Some((at, arena_bytes.eval_named(&|name| sizes.get(name).copied()).ok()?))
}

fn summary(made: &Planned, code: &Code, written: &file::Plan) -> PlanSummary {
    let range = |(name, symbol): (&String, &Symbol)| (name.clone(), (symbol.lo, symbol.hi));
    let one = |(e, written): (&Entry, &file::Entry)| EntrySummary {
        name: e.name.clone(),
        launches: e.launches(),
        states: e.states.len(),
        arena_bytes: written.arena_bytes.to_string(),
        arena_example: arena_example(e, &written.arena_bytes),
        ranges: e.symbols.iter().filter(|(_, s)| s.kind == SymbolKind::Input).map(range).collect(),
        internal: e.internal,
        hosts: host_operations(e),
    };
    PlanSummary {
        class: made.target.class(),
        kernels: made.plan.kernels.len(),
        entries: made.plan.entries.iter().zip(&written.entries).map(one).collect(),
        accesses: code.accesses,
        unchecked: code.unchecked,
    }
}

/// Descriptions of the kernels, as they appear in the plan and are compiled into the code.
fn kernels(plan: &Plan, lowered: &[Lowered], required: &[Requires], ptx: &[PtxModule]) -> Vec<file::Kernel> {
    let one = |(i, symbol): (usize, &String)| {
        let (l, r) = (&lowered[i], &required[i]);
        file::Kernel {
            symbol: symbol.clone(),
            writes: l.writes.clone(),
            params: l.params.len(),
            scratch_bytes: l.scratch_bytes.clone(),
            class: l.class.name().to_string(),
            requires: r.requires.clone(),
            indexes: r.indexes.clone(),
            targets: ptx.iter().map(|module| module.launch(i)).collect(),
            flops: Some(l.def.flops()),
            moved_bytes: Some(l.def.moved_bytes()),
        }
    };
    plan.kernels.iter().map(|(symbol, _)| symbol).enumerate().map(one).collect()
}

/// Symbols of all entry points. The range of a symbol covers its ranges in all of them. A name that is derived in one
/// entry point may be a free symbol in another, or be derived differently there, since fixing a symbol changes which
/// names are equal. Then the free symbol wins, or else the derivation of the first entry point.
fn shared_symbols<'a>(entries: impl Iterator<Item = &'a Entry> + Clone) -> Result<BTreeMap<String, Symbol>> {
    let is_derived = |s: &Symbol| matches!(s.kind, SymbolKind::Derived { .. });
    let all = || entries.clone().flat_map(|e| &e.symbols);
    let mut out: BTreeMap<String, Symbol> = BTreeMap::new();
    for (name, symbol) in all().filter(|(_, s)| !is_derived(s)) {
        let Some(known) = out.get_mut(name) else {
            out.insert(name.clone(), symbol.clone());
            continue;
        };
        if known.kind != symbol.kind {
            return Err(Error::defect(format!("`{name}` means different things in two entry points")));
        }
        known.lo = known.lo.min(symbol.lo);
        known.hi = known.hi.zip(symbol.hi).map(|(a, b)| a.max(b));
    }
    for (name, symbol) in all().filter(|(_, s)| is_derived(s)) {
        out.entry(name.clone()).or_insert_with(|| symbol.clone());
    }
    Ok(out)
}

fn entry(
    entry: &Entry,
    symbols: &BTreeMap<String, Symbol>,
    kinds: &BTreeMap<String, Kind>,
    weights: &mut Weights,
) -> Result<file::Entry> {
    let mut buffers: Vec<file::Buffer> = vec![];
    let (mut inputs, mut outputs) = (0, 0);
    for buffer in &entry.buffers {
        let mut placed = weights.place(buffer)?;
        match &mut placed.place {
            file::Place::Input(i) => (*i, inputs) = (inputs, inputs + 1),
            file::Place::Output(i) => (*i, outputs) = (outputs, outputs + 1),
            file::Place::Constant(_) | file::Place::Arena(_) | file::Place::Value => {}
        }
        buffers.push(placed);
    }
    let narrower = entry.symbols.iter().flat_map(|(name, s)| narrower(name, s, &symbols[name]));
    Ok(file::Entry {
        name: entry.name.clone(),
        inputs: ports(entry, true, kinds),
        outputs: ports(entry, false, kinds),
        buffers,
        steps: entry.steps.clone(),
        arena_bytes: entry.arena_bytes.clone().unwrap_or(Dim::constant(0)),
        checks: entry.checks.iter().cloned().chain(narrower).collect(),
        states: entry.states.iter().map(|s| state(entry, s)).collect::<Result<_>>()?,
        internal: entry.internal,
        specializes: None,
    })
}

/// Returns the checks that calls of an entry point need because its bounds of a symbol are narrower than the shared
/// range.
fn narrower(name: &str, own: &Symbol, shared: &Symbol) -> Vec<file::Check> {
    if matches!(own.kind, SymbolKind::Derived { .. }) {
        return vec![];
    }
    let symbol = Dim::symbol(name);
    let mut out = vec![];
    let mut add = |left: Dim, why: String| {
        out.push(file::Check { left, right: symbol.clone(), why });
    };
    if own.lo > shared.lo {
        add(symbol.maximum(&Dim::constant(own.lo)), format!("`{name}` is at least {} here", own.lo));
    }
    if let Some(hi) = own.hi.filter(|_| own.hi != shared.hi) {
        add(symbol.minimum(&Dim::constant(hi)), format!("`{name}` is at most {hi} here"));
    }
    out
}

fn state(entry: &Entry, state: &State) -> Result<file::State> {
    let capacity = |inputs: bool, at: usize| match entry.ports(inputs).get(at).map(|(_, _, c)| &c.layout) {
        Some(Layout::Capacity { axis, size }) => Ok((*axis, size.to_string())),
        Some(Layout::RowMajor | Layout::Order(_)) | None => Err(Error::defect("a state without room to grow in")),
    };
    let ((axis, input_capacity), (_, output_capacity)) = (capacity(true, state.input)?, capacity(false, state.output)?);
    let State { input, output, kept, parts } = state.clone();
    let units = parts.iter().map(|part| units(entry, part)).collect::<Result<_>>()?;
    Ok(file::State { input, output, axis, input_capacity, output_capacity, kept, units })
}

/// How a state is distributed over an axis of the mesh.
fn units(entry: &Entry, part: &Part) -> Result<file::Units> {
    let axis = part.start.names().into_iter().find_map(|name| match entry.symbols.get(&*name)?.kind {
        SymbolKind::Rank { axis } => Some(axis),
        _ => None,
    });
    let mesh = axis.ok_or_else(|| Error::defect("a part that is the same on all ranks"))?;
    let [outer, count, unit] = [part.outer, part.count, part.unit].map(|n| n as u64);
    Ok(file::Units { mesh, dim: part.axis, outer, count, unit })
}

/// The manifest of the file. `levels` are the CPU levels that the file has code for; `None` if the CPU is no target.
fn manifest(symbols: &BTreeMap<String, Symbol>, model_hash: &str, levels: Option<&[Level]>) -> file::Manifest {
    let mut manifest = file::Manifest::current(concat!("sardonyx ", env!("CARGO_PKG_VERSION")));
    match levels {
        Some(levels) => manifest.variants = levels.iter().map(|v| v.name().to_string()).collect(),
        None => manifest.arch.clear(),
    }
    let axis = |(i, axis): (usize, Axis)| file::MeshAxis { name: format!("{i}"), size: axis.size, symbol: axis.symbol };
    manifest.mesh = mesh(symbols).into_iter().enumerate().map(|axis_| axis(axis_).write()).collect();
    if !manifest.mesh.is_empty() {
        manifest.format_minor = file::FORMAT_MINOR_MESH;
        manifest.needs = vec![file::NEEDS_MESH.to_string()];
    }
    manifest.pipeline = crate::pipeline::pipeline();
    manifest.model_hash = model_hash.to_string();
    for (name, Symbol { kind, lo, hi }) in symbols.clone() {
        let symbol = |kind| file::Symbol { name: name.clone(), kind, lo, hi }.write();
        match kind {
            SymbolKind::Input => manifest.symbols.push(symbol(file::SymbolKind::Input)),
            SymbolKind::Data => manifest.symbols.push(symbol(file::SymbolKind::Data)),
            SymbolKind::Capacity => manifest.symbols.push(symbol(file::SymbolKind::Capacity)),
            SymbolKind::Kept => manifest.symbols.push(symbol(file::SymbolKind::Kept)),
            SymbolKind::Rank { .. } => manifest.symbols.push(symbol(file::SymbolKind::Rank)),
            SymbolKind::Derived { equals, why } => {
                manifest.derived.push(file::Derived { name, equals, lo, hi, why }.write());
            }
        }
    }
    manifest
}

fn ports(entry: &Entry, inputs: bool, kinds: &BTreeMap<String, Kind>) -> Vec<file::Port> {
    let port = |(at, (buffer, name, container)): (usize, (usize, &str, &Container))| {
        let mut dims = container.dims.clone();
        let state = entry.states.iter().find(|s| at == if inputs { s.input } else { s.output });
        // A state that is split over ranks is declared with the size that all ranks hold together.
        for part in state.iter().flat_map(|s| &s.parts) {
            dims[part.axis] = Dim::constant(part.outer * part.count * part.unit);
        }
        let kind = kinds.get(name).cloned().unwrap_or(Kind::Tensor);
        file::Port { name: name.into(), dtype: container.dtype, dims, buffer, kind }
    };
    entry.ports(inputs).into_iter().enumerate().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: SymbolKind, lo: i64, hi: Option<i64>) -> Entry {
        let symbols = BTreeMap::from([("s".to_string(), Symbol { kind, lo, hi })]);
        Entry { name: name.into(), symbols, ..Entry::default() }
    }

    #[test]
    fn a_shared_symbol_has_the_wider_range_and_the_narrower_one_is_checked() {
        let (a, b) = (entry("a", SymbolKind::Input, 1, Some(8)), entry("b", SymbolKind::Input, 0, Some(6)));
        let plan = Plan { entries: vec![a.clone(), b.clone()], ..Plan::default() };
        let shared = shared_symbols(plan.entries.iter()).unwrap();
        assert_eq!((shared["s"].lo, shared["s"].hi), (0, Some(8)));
        let checks = |e: &Entry| {
            let all = narrower("s", &e.symbols["s"], &shared["s"]);
            all.into_iter().map(|c| (c.left.to_string(), c.right.to_string(), c.why)).collect::<Vec<_>>()
        };
        assert_eq!(checks(&a), [("max(1, s)".into(), "s".into(), "`s` is at least 1 here".into())]);
        assert_eq!(checks(&b), [("min(6, s)".into(), "s".into(), "`s` is at most 6 here".into())]);
        let open = Plan { entries: vec![a, entry("c", SymbolKind::Input, 1, None)], ..Plan::default() };
        assert_eq!(shared_symbols(open.entries.iter()).unwrap()["s"].hi, None);
        let mixed = Plan { entries: vec![b, entry("d", SymbolKind::Capacity, 0, None)], ..Plan::default() };
        assert_eq!(shared_symbols(mixed.entries.iter()).unwrap_err().code, "E0901");
    }
}
