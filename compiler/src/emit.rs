//! plan, parameters  =>  code and constants in a .sdx file

use crate::entries::MAIN;
use crate::import::ParamStore;
use crate::plans::Planned;
use crate::requires::{Requires, requires};
use sardonyx_base::plan as file;
use sardonyx_base::{DType, Dim, Error, Kind, Result, Tensor};
use sardonyx_dialects::flow::{Container, HostResult, Layout, Source, State, Window};
use sardonyx_dialects::interp;
use sardonyx_dialects::plan::{Action, Buffer, Entry, Plan};
use sardonyx_dialects::sdx::{Symbol, SymbolKind};
use sardonyx_format::ArtifactWriter;
use sardonyx_kernels::Target;
use sardonyx_kernels::codegen;
use sardonyx_kernels::codegen::ptx::PtxModule;
use sardonyx_kernels::target::Class;
use sardonyx_kernels::{Level, Lowered, levels_of, lower};
use sardonyx_passes::{Named, Precision};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// What a compilation came to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The first class of targets has.
    pub first: PlanSummary,
    /// Of each further class.
    pub others: Vec<PlanSummary>,
    pub weights_bytes: u64,
    /// Machine code for CPUs.
    pub code_bytes: usize,
    /// Targets of GPUs, and bytes of their PTX.
    pub ptx_bytes: Vec<(&'static str, usize)>,
}

#[derive(Clone, Debug)]
pub struct PlanSummary {
    pub class: Class,
    pub kernels: usize,
    /// `main` first.
    pub entries: Vec<EntrySummary>,
    /// Memory accesses of all kernels, and how many the runtime cannot keep within their buffers by what the kernels
    /// require of their launches: those rely on the plan being the compiler's.
    pub accesses: usize,
    pub unchecked: usize,
}

#[derive(Clone, Debug)]
pub struct EntrySummary {
    pub name: String,
    pub launches: usize,
    pub states: usize,
    pub arena_bytes: String,
    /// Only host operations of others call it.
    pub internal: bool,
    pub hosts: Vec<HostSummary>,
}

/// A step that the host makes.
#[derive(Clone, Debug)]
pub struct HostSummary {
    /// With its attributes.
    pub op: String,
    /// It computes nothing, but runs other entry points.
    pub calls: bool,
    pub origins: Vec<String>,
}

/// The host operations of an entry point, in order.
pub fn host_operations(entry: &Entry) -> Vec<HostSummary> {
    let one = |step: &sardonyx_dialects::plan::Step| match &step.action {
        Action::Host { host, .. } => {
            let (op, calls, origins) = (host.op.to_string(), host.op.is_call(), step.origins.clone());
            Some(HostSummary { op, calls, origins })
        }
        Action::Launch { .. } | Action::Copy { .. } | Action::Bind { .. } => None,
    };
    entry.steps.iter().filter_map(one).collect()
}

/// What a compilation made, to be written.
pub struct Product<'a> {
    pub planned: &'a [Planned],
    pub params: &'a ParamStore,
    pub model_hash: &'a str,
    pub selftest: Option<&'a file::SelfTest>,
    pub precision: Precision,
    /// Of inputs and outputs that are no tensors, by name.
    pub kinds: &'a BTreeMap<String, Kind>,
    pub targets: &'a [Target],
    /// The entry points that calls of `main` may run.
    pub specialized: &'a [String],
}

pub fn write(path: &Path, product: &Product) -> Result<Summary> {
    let codes: Vec<Code> = product.planned.iter().map(|made| Code::of(made, product.targets)).collect::<Result<_>>()?;
    let symbols = shared_symbols(product.planned.iter().flat_map(|made| &made.plan.entries))?;
    let writer = ArtifactWriter::create(path)?;
    let mut weights = Weights::new(writer, product.params);
    let (mut plans, mut summaries) = (vec![], vec![]);
    for (made, code) in product.planned.iter().zip(&codes) {
        let whole = plan(&made.plan, code, &symbols, product, &mut weights)?;
        summaries.push(summary(made, code, &whole));
        plans.push((made.target.class(), whole));
    }
    let mut writer = weights.writer;
    for (name, text) in codes.iter().flat_map(|code| &code.ptx) {
        writer.ptx(name, text.clone());
    }
    let weights_bytes = writer.weights_bytes();
    product.selftest.into_iter().for_each(|test| writer.selftest(test));
    let machine = codes.iter().find_map(|code| code.machine.as_ref());
    let mut manifest = manifest(&symbols, product.model_hash, machine.map(|(levels, _)| levels.as_slice()));
    if product.precision != Precision::F32 {
        manifest.precision = product.precision.name().to_string();
    }
    let machine = machine.map(|(_, code)| code.as_slice());
    let (_, first) = plans.remove(0);
    plans.into_iter().for_each(|(class, plan)| writer.plan(class.name(), &plan));
    writer.finish(manifest, &first, machine)?;
    Ok(Summary {
        first: summaries.remove(0),
        others: summaries,
        weights_bytes,
        code_bytes: machine.map_or(0, |code| code.len()),
        ptx_bytes: codes.iter().flat_map(|code| &code.ptx).map(|(name, text)| (*name, text.len())).collect(),
    })
}

/// A plan's kernels: as the plan says them, and what runs.
struct Code {
    kernels: Vec<file::Kernel>,
    /// For CPUs, where they are a target: the levels that there is code for, and the code.
    machine: Option<(Vec<Level>, Vec<u8>)>,
    /// Targets of GPUs, and their PTX.
    ptx: Vec<(&'static str, String)>,
    accesses: usize,
    unchecked: usize,
}

impl Code {
    fn of(made: &Planned, targets: &[Target]) -> Result<Code> {
        let plan = &made.plan;
        let lowered: Vec<Lowered> = plan.kernels.iter().map(|(_, k)| lower(k)).collect::<Result<_>>()?;
        let required: Vec<Requires> =
            lowered.iter().enumerate().map(|(i, l)| requires(plan, i, l)).collect::<Result<_>>()?;
        let own = targets.iter().copied().filter(|t| t.class() == made.target.class());
        let gpus = own.filter(|t| t.ptx().is_some());
        let ptx: Vec<PtxModule> = gpus.map(|t| PtxModule::emit(plan, &lowered, t)).collect::<Result<_>>()?;
        let kernels = kernels(plan, &lowered, &required, &ptx);
        let (accesses, unchecked) = required.iter().fold((0, 0), |(a, u), r| (a + r.accesses, u + r.unchecked));
        let machine = match (made.target == Target::cpu(), lowered.is_empty()) {
            (false, _) => None,
            // A plan that only copies needs no code.
            (true, true) => Some(vec![]),
            (true, false) => {
                let symbols = plan.kernels.iter().map(|(symbol, _)| symbol.clone());
                Some(codegen::build_with_declarations(&symbols.zip(&lowered).collect::<Vec<_>>(), &kernels)?)
            }
        };
        let machine = machine.map(|code| (levels_of(&lowered), code));
        let text = |module: &PtxModule| (module.target.ptx().unwrap_or_default(), module.text(&kernels));
        let ptx = ptx.iter().map(text).collect();
        Ok(Code { kernels, machine, ptx, accesses, unchecked })
    }
}

/// The plan as the file has it; its constants are written on the way.
fn plan(
    plan: &Plan,
    code: &Code,
    symbols: &BTreeMap<String, Symbol>,
    product: &Product,
    weights: &mut Weights,
) -> Result<file::Plan> {
    let names: Vec<&str> = plan.entries.iter().map(|e| e.name.as_str()).collect();
    let mut entries: Vec<file::Entry> =
        plan.entries.iter().map(|e| entry(e, &names, symbols, product.kinds, weights)).collect::<Result<_>>()?;
    for entry in entries.iter_mut().filter(|e| product.specialized.contains(&e.name)) {
        entry.specializes = MAIN.into();
    }
    Ok(file::Plan { entries, constants: weights.of_plan(), kernels: code.kernels.clone() })
}

fn summary(made: &Planned, code: &Code, written: &file::Plan) -> PlanSummary {
    let one = |(e, written): (&Entry, &file::Entry)| EntrySummary {
        name: e.name.clone(),
        launches: e.launches(),
        states: e.states.len(),
        arena_bytes: written.arena_bytes.clone(),
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

/// What the plan says of its kernels, and the code too.
fn kernels(plan: &Plan, lowered: &[Lowered], required: &[Requires], ptx: &[PtxModule]) -> Vec<file::Kernel> {
    let one = |(i, symbol): (usize, &String)| {
        let (l, r) = (&lowered[i], &required[i]);
        file::Kernel {
            symbol: symbol.clone(),
            writes: l.writes.clone(),
            params: l.params.len() as u32,
            scratch_bytes: l.scratch_bytes.clone(),
            class: l.class.name().to_string(),
            requires: r.requires.clone(),
            indexes: r.indexes.clone(),
            targets: ptx.iter().map(|module| module.launch(i)).collect(),
            flops: l.def.flops().to_string(),
            moved_bytes: l.def.moved_bytes().to_string(),
        }
    };
    plan.kernels.iter().map(|(symbol, _)| symbol).enumerate().map(one).collect()
}

/// The symbols of entry points: where one is of several, its range holds the ranges of all. A name that is derived
/// in one entry point may be a symbol of its own in another, or follow from others there: what fixes a symbol changes
/// which names are equal. Then the symbol counts, or what the first entry point derives.
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
    names: &[&str],
    symbols: &BTreeMap<String, Symbol>,
    kinds: &BTreeMap<String, Kind>,
    weights: &mut Weights,
) -> Result<file::Entry> {
    let mut places: Vec<file::Buffer> = vec![];
    let (mut inputs, mut outputs) = (0, 0);
    for buffer in &entry.buffers {
        let mut message = weights.place(buffer)?;
        match &mut message.place {
            Some(file::Place::Input(i)) => (*i, inputs) = (inputs, inputs + 1),
            Some(file::Place::Output(i)) => (*i, outputs) = (outputs, outputs + 1),
            Some(file::Place::Constant(_) | file::Place::Arena(_) | file::Place::Value(_)) | None => {}
        }
        places.push(message);
    }
    let steps = entry.steps.iter().map(|s| step(entry, s, names)).collect::<Result<_>>()?;
    let narrower = entry.symbols.iter().flat_map(|(name, s)| narrower(name, s, &symbols[name]));
    Ok(file::Entry {
        name: entry.name.clone(),
        inputs: ports(entry, true, kinds),
        outputs: ports(entry, false, kinds),
        buffers: places,
        body: Some(file::Block { steps }),
        arena_bytes: entry.arena_bytes.clone().unwrap_or(Dim::constant(0)).to_string(),
        checks: entry.checks.iter().map(check).chain(narrower).collect(),
        states: entry.states.iter().map(|s| state(entry, s)).collect::<Result<_>>()?,
        internal: entry.internal,
        specializes: String::new(),
    })
}

/// What an entry point demands of a symbol beyond what the symbol's shared range says.
fn narrower(name: &str, own: &Symbol, shared: &Symbol) -> Vec<file::Check> {
    if matches!(own.kind, SymbolKind::Derived { .. }) {
        return vec![];
    }
    let symbol = Dim::symbol(name);
    let mut out = vec![];
    let mut add = |left: Dim, why: String| {
        out.push(file::Check { left: left.to_string(), right: symbol.to_string(), why });
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
        Some(Layout::Capacity { axis, size }) => Ok((*axis as u32, size.to_string())),
        Some(Layout::RowMajor | Layout::Panels { .. } | Layout::Order(_)) | None => {
            Err(Error::defect("a state without room to grow in"))
        }
    };
    let ((axis, input_capacity), (_, output_capacity)) = (capacity(true, state.input)?, capacity(false, state.output)?);
    let (input, output, kept) = (state.input as u32, state.output as u32, state.kept.clone().unwrap_or_default());
    Ok(file::State { input, output, axis, input_capacity, output_capacity, kept })
}

/// `levels` are those of CPUs that there is code for, where the artifact is for any: a plan that only copies runs on all.
fn manifest(symbols: &BTreeMap<String, Symbol>, model_hash: &str, levels: Option<&[Level]>) -> file::Manifest {
    let mut manifest = file::Manifest::current(concat!("sardonyx ", env!("CARGO_PKG_VERSION")));
    match levels {
        Some(levels) => manifest.variants = levels.iter().map(|v| v.name().to_string()).collect(),
        None => manifest.arch.clear(),
    }
    manifest.pipeline = crate::pipeline::pipeline();
    manifest.model_hash = model_hash.to_string();
    for (name, s) in symbols {
        let symbol = |kind| file::Symbol { name: name.clone(), kind: kind as i32, lo: s.lo, hi: s.hi };
        match &s.kind {
            SymbolKind::Input => manifest.symbols.push(symbol(file::SymbolKind::Input)),
            SymbolKind::Data => manifest.symbols.push(symbol(file::SymbolKind::Data)),
            SymbolKind::Capacity => manifest.symbols.push(symbol(file::SymbolKind::Capacity)),
            SymbolKind::Kept => manifest.symbols.push(symbol(file::SymbolKind::Kept)),
            SymbolKind::Derived { equals, why } => manifest.derived.push(file::Derived {
                name: name.clone(),
                equals: equals.to_string(),
                lo: s.lo,
                hi: s.hi,
                why: why.clone(),
            }),
        }
    }
    manifest
}

fn check(c: &sardonyx_dialects::sdx::Equality) -> file::Check {
    file::Check { left: c.left.to_string(), right: c.right.to_string(), why: c.why.clone() }
}

fn ports(entry: &Entry, inputs: bool, kinds: &BTreeMap<String, Kind>) -> Vec<file::Port> {
    let port = |(i, name, container): (usize, &str, &Container)| file::Port {
        name: name.into(),
        dtype: container.dtype.onnx_code(),
        dims: container.dims.iter().map(Dim::to_string).collect(),
        buffer: i as u32,
        kind: kinds.get(name).map_or(String::new(), Kind::to_string),
    };
    entry.ports(inputs).into_iter().map(port).collect()
}

/// The constants of the artifact, each stored once whatever plans and entry points use it.
struct Weights<'a> {
    writer: ArtifactWriter,
    params: &'a ParamStore,
    stored: Vec<file::Constant>,
    /// Where in `stored` it is, by the bytes that it has.
    places: HashMap<Stored, usize>,
    /// Those of the plan that is written, as indices into `stored`.
    used: Vec<usize>,
}

#[derive(PartialEq, Eq, Hash)]
enum Stored {
    /// Parameters; those that lie in another way by their dimensions too.
    Param(Source, Option<(Option<Window>, Vec<Dim>, Layout)>),
    Value(DType, Vec<u8>),
}

impl Weights<'_> {
    fn new(writer: ArtifactWriter, params: &ParamStore) -> Weights<'_> {
        Weights { writer, params, stored: vec![], places: HashMap::new(), used: vec![] }
    }

    /// The constants of the plan that was written.
    fn of_plan(&mut self) -> Vec<file::Constant> {
        std::mem::take(&mut self.used).into_iter().map(|at| self.stored[at].clone()).collect()
    }

    /// A buffer's message; constants are written on the way.
    fn place(&mut self, buffer: &Buffer) -> Result<file::Buffer> {
        let of = |c: &Container| sardonyx_passes::schedule::bytes(c).map(|b| b.to_string());
        let (bytes, place) = match buffer {
            Buffer::Input { container, .. } => (of(container)?, file::Place::Input(0)),
            Buffer::Output { container, .. } => (of(container)?, file::Place::Output(0)),
            Buffer::Param { source, window, container } => {
                let lies = || (window.clone(), container.dims.clone(), container.layout.clone());
                let packed = (window.is_some() || container.layout != Layout::RowMajor).then(lies);
                let i = self.constant(Stored::Param(source.clone(), packed), &source.name(), container, |weights| {
                    weights.param(source, window.as_ref(), container)
                })?;
                (self.bytes(i, container)?, file::Place::Constant(i))
            }
            Buffer::Const { value, container } => {
                let value = laid_out(&value.0, &container.layout)?;
                let bytes = value.bytes();
                let stored = Stored::Value(value.dtype(), bytes.to_vec());
                let i = self.constant(stored, "", container, |weights| weights.writer.constant(bytes))?;
                (self.bytes(i, container)?, file::Place::Constant(i))
            }
            Buffer::Arena { bytes, offset } => {
                let offset = offset.as_ref().ok_or_else(|| Error::defect("memory is not planned"))?;
                (bytes.to_string(), file::Place::Arena(offset.to_string()))
            }
            Buffer::Value { container } => (of(container)?, file::Place::Value(file::Value {})),
        };
        Ok(file::Buffer { bytes, place: Some(place) })
    }

    /// The size of a constant's buffer: strings have what they have.
    fn bytes(&self, i: u32, container: &Container) -> Result<String> {
        match container.dtype.is_opaque() {
            true => Ok(self.stored[self.used[i as usize]].bytes.to_string()),
            false => sardonyx_passes::schedule::bytes(container).map(|b| b.to_string()),
        }
    }

    /// The number of a constant in the plan; `write` stores it where it is not there yet.
    fn constant(
        &mut self,
        stored: Stored,
        name: &str,
        c: &Container,
        write: impl FnOnce(&mut Self) -> Result<u64>,
    ) -> Result<u32> {
        let at = match self.places.get(&stored) {
            Some(at) => *at,
            None => {
                let offset = write(self)?;
                self.stored.push(file::Constant {
                    name: name.into(),
                    dtype: c.dtype.onnx_code(),
                    offset,
                    bytes: self.writer.weights_bytes() - offset,
                    layout: c.layout.name(),
                });
                self.places.insert(stored, self.stored.len() - 1);
                self.stored.len() - 1
            }
        };
        let known = self.used.iter().position(|used| *used == at);
        Ok(known.unwrap_or_else(|| {
            self.used.push(at);
            self.used.len() - 1
        }) as u32)
    }

    fn param(&mut self, source: &Source, window: Option<&Window>, container: &Container) -> Result<u64> {
        let param = |name: &str| {
            let tensor = self.params.get(name).cloned();
            tensor.ok_or_else(|| Error::defect(format!("the parameter `{name}` is gone")))
        };
        let tensor = interp::joined(source, &param)?;
        let Some(window) = window else {
            return self.writer.constant(laid_out(&tensor, &container.layout)?.bytes());
        };
        let panels = match (&container.layout, container.dims.last().and_then(Dim::as_const)) {
            (Layout::Panels { width, depth }, _) => (*width, *depth),
            // Its rows are those of one panel.
            (Layout::RowMajor, Some(n)) => (usize::try_from(n).unwrap_or(0).max(1), 1),
            _ => return Err(Error::defect("a window of a parameter lies neither in rows nor in panels")),
        };
        write_panels(&mut self.writer, &tensor, container, window, panels)
    }
}

/// The elements as they lie in memory.
fn laid_out(t: &Tensor, layout: &Layout) -> Result<Tensor> {
    match layout {
        Layout::Order(order) => interp::transposed(t, order),
        Layout::RowMajor | Layout::Panels { .. } | Layout::Capacity { .. } => Ok(t.clone()),
    }
}

/// dst[p][g][j][i] = src[offset + (depth*g + i)*stride_k + (width*p + j)*stride_n] in the container's type, a panel at a
/// time.
fn write_panels(
    writer: &mut ArtifactWriter,
    t: &Tensor,
    c: &Container,
    w: &Window,
    (width, depth): (usize, usize),
) -> Result<u64> {
    let dims: Option<Vec<i64>> = c.dims.iter().map(Dim::as_const).collect();
    let Some([k, n]) = dims.as_deref() else { return Err(Error::defect("a packed constant is no constant matrix")) };
    let bytes = t.dtype().bytes();
    let narrow = match (t.dtype(), c.dtype) {
        (from, to) if from == to => false,
        (DType::F32, DType::BF16) => true,
        (from, to) => return Err(Error::defect(format!("a parameter of {from} is not packed as {to}"))),
    };
    let padding = vec![0; bytes];
    let at = |row: i64, column: i64| {
        if row >= *k || column >= *n {
            return Some(padding.as_slice());
        }
        let element = w.row(row)?.checked_add(column.checked_mul(w.stride_n)?)?;
        let start = usize::try_from(element).ok()?.checked_mul(bytes)?;
        t.bytes().get(start..start + bytes)
    };
    let outside = || Error::defect("a packed constant reads outside its source");
    let offset = writer.begin_constant()?;
    let mut panel = Vec::new();
    for first in (0..*n).step_by(width) {
        panel.clear();
        for group in (0..*k).step_by(depth) {
            for column in first..first + width as i64 {
                for row in group..group + depth as i64 {
                    let element = at(row, column).ok_or_else(outside)?;
                    match element.try_into() {
                        Ok(bits) if narrow => {
                            panel.extend_from_slice(&half::bf16::from_f32(f32::from_le_bytes(bits)).to_le_bytes());
                        }
                        Ok(_) | Err(_) => panel.extend_from_slice(element),
                    }
                }
            }
        }
        writer.append(&panel)?;
    }
    Ok(offset)
}

/// `names` are those of the plan's entry points, in order.
fn step(entry: &Entry, step: &sardonyx_dialects::plan::Step, names: &[&str]) -> Result<file::Step> {
    let action = match &step.action {
        Action::Launch { kernel, buffers, params, grid } => file::Action::Launch(file::Launch {
            kernel: *kernel as u32,
            buffers: buffers.iter().map(|&b| b as u32).collect(),
            params: params.iter().map(Dim::to_string).collect(),
            grid: grid.to_string(),
            origins: step.origins.clone(),
            carries: None,
        }),
        Action::Copy { from, to } => file::Action::Copy(file::Copy { from: *from as u32, to: *to as u32 }),
        Action::Bind { symbol, buffer } => {
            file::Action::Bind(file::Bind { symbol: symbol.clone(), buffer: *buffer as u32 })
        }
        Action::Host { host, args, results } => {
            let container = |b: usize| match &entry.buffers[b] {
                Buffer::Value { container } => Ok(container),
                Buffer::Input { .. } | Buffer::Output { .. } | Buffer::Param { .. } | Buffer::Const { .. } => {
                    Err(Error::defect("a result of a host operation is no value"))
                }
                Buffer::Arena { .. } => Err(Error::defect("a result of a host operation is in the arena")),
            };
            let result = |(r, &b): (&HostResult, &usize)| {
                let binds = r.binds.iter();
                let binds = binds.map(|(axis, symbol)| file::Binding { axis: *axis as u32, symbol: symbol.clone() });
                let value = Some(operand(b, container(b)?));
                Ok(file::HostResult { index: r.index as u32, value, binds: binds.collect() })
            };
            let body = |name: &String| {
                let at = names.iter().position(|n| n == name);
                at.map(|at| at as u32).ok_or_else(|| Error::defect(format!("`{name}` is called, but not there")))
            };
            file::Action::Host(file::Host {
                op: host.op.to_string(),
                args: args.iter().map(|(b, c)| operand(*b, c)).collect(),
                results: host.results.iter().zip(results).map(result).collect::<Result<_>>()?,
                bodies: host.bodies.iter().map(body).collect::<Result<_>>()?,
                origins: step.origins.clone(),
            })
        }
    };
    Ok(file::Step { action: Some(action) })
}

fn operand(buffer: usize, c: &Container) -> file::Operand {
    let dims = c.dims.iter().map(Dim::to_string).collect();
    file::Operand { buffer: buffer as u32, dtype: c.dtype.code(), dims }
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
        let plan = Plan { entries: vec![a.clone(), b.clone()], kernels: vec![] };
        let shared = shared_symbols(plan.entries.iter()).unwrap();
        assert_eq!((shared["s"].lo, shared["s"].hi), (0, Some(8)));
        let checks = |e: &Entry| {
            let all = narrower("s", &e.symbols["s"], &shared["s"]);
            all.into_iter().map(|c| (c.left, c.right, c.why)).collect::<Vec<_>>()
        };
        assert_eq!(checks(&a), [("max(1, s)".into(), "s".into(), "`s` is at least 1 here".into())]);
        assert_eq!(checks(&b), [("min(6, s)".into(), "s".into(), "`s` is at most 6 here".into())]);
        let open = Plan { entries: vec![a, entry("c", SymbolKind::Input, 1, None)], kernels: vec![] };
        assert_eq!(shared_symbols(open.entries.iter()).unwrap()["s"].hi, None);
        let mixed = Plan { entries: vec![b, entry("d", SymbolKind::Capacity, 0, None)], kernels: vec![] };
        assert_eq!(shared_symbols(mixed.entries.iter()).unwrap_err().code, "E0901");
    }
}
