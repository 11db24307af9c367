//! [`Module::parse`]: PTX text  =>  global variables, and one program per entry

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::flow::Flow;
use super::program::{Bank, GlobalVariable, Inner, Instr, Module, NONE, Op, Param, Program, Reg};
use super::scope::{Place, Scope};
use super::statements::{Decoder, Raw, SHARED_BYTES_MAX};
use super::tracking::track;
use crate::Error;
use crate::text::ast::{Function, Init, Unit, Variable};
use crate::text::lex::Number;
use crate::text::parse::parse;
use crate::text::types::{Space, Ty};

/// Maximum size of the parameters of a launch (PTX ISA, "Kernel Function Parameters").
pub const PARAMS_BYTES_MAX: u64 = 32764;
/// Maximum total size of all module variables.
const GLOBALS_BYTES_MAX: u64 = 1 << 32;

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Module {
    /// Parses and decodes a text. In a module that parses, every instruction of every entry is supported.
    pub fn parse(text: &str) -> Result<Module, Error> {
        let unit = parse(text)?;
        let (globals, index) = globals(&unit)?;
        let mut programs: Vec<Program> = Vec::new();
        for function in unit.functions.iter().filter(|function| function.entry) {
            if programs.iter().any(|program| program.name == function.name) {
                return Err(Error::new(function.line, format!("entry `{}` stands twice", function.name)));
            }
            if let Some(program) = program(&unit, &index, function)? {
                programs.push(program);
            }
        }
        let lines = text.lines().map(|line| line.trim().to_owned()).collect();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Module { inner: Arc::new(Inner { id, programs, globals, lines }) })
    }

    /// Names of the entries, in text order.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.inner.programs.iter().map(|program| program.name.as_str())
    }

    /// Sizes in bytes of an entry's parameters and of its static shared memory.
    pub fn entry_sizes(&self, name: &str) -> Option<(u32, u32)> {
        let program = self.inner.programs.iter().find(|program| program.name == name)?;
        Some((program.params_bytes, program.shared_bytes))
    }

    /// Name, offset and size in bytes of each parameter of an entry.
    pub fn entry_params(&self, name: &str) -> Option<Vec<(&str, u32, u32)>> {
        let program = self.inner.programs.iter().find(|program| program.name == name)?;
        Some(program.params.iter().map(|(name, param)| (name.as_str(), param.offset, param.bytes)).collect())
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("entries", &self.entries().collect::<Vec<_>>()).finish()
    }
}

type Index = HashMap<String, (u32, u64)>;

fn globals(unit: &Unit) -> Result<(Vec<GlobalVariable>, Index), Error> {
    let mut index = Index::new();
    let in_memory = |variable: &&Variable| matches!(variable.space, Some(Space::Global | Space::Const));
    let variables: Vec<&Variable> = unit.variables.iter().filter(in_memory).collect();
    let mut total = 0u64;
    for (i, variable) in variables.iter().enumerate() {
        total = total.saturating_add(variable.bytes());
        if total > GLOBALS_BYTES_MAX {
            let what = format!("module variables of more than {GLOBALS_BYTES_MAX} bytes");
            return Err(Error::new(variable.line, what));
        }
        index.insert(variable.name.clone(), (i as u32, variable.bytes()));
    }
    let globals = variables.into_iter().map(|variable| global(variable, &index)).collect::<Result<_, _>>()?;
    Ok((globals, index))
}

fn global(variable: &Variable, index: &Index) -> Result<GlobalVariable, Error> {
    let wrong = |what: String| Error::new(variable.line, format!("`{}`: {what}", variable.name));
    let (bytes, width) = (variable.bytes(), variable.ty.bytes() as usize);
    if variable.external {
        return Err(wrong("external variables are not linked".into()));
    }
    if variable.init.len() as u64 * width as u64 > bytes {
        return Err(wrong("more initial values than elements".into()));
    }
    let mut init = Vec::new();
    let mut relocations = Vec::new();
    for value in &variable.init {
        let bits = match value {
            Init::Number(Number::Int(value)) if variable.ty == Ty::F32 => (*value as i64 as f32).to_bits().into(),
            Init::Number(Number::Int(value)) if variable.ty == Ty::F64 => (*value as i64 as f64).to_bits(),
            Init::Number(Number::F64(bits)) if variable.ty == Ty::F32 => {
                u64::from((f64::from_bits(*bits) as f32).to_bits())
            }
            Init::Number(Number::F32(bits)) if variable.ty == Ty::F64 => f64::from(f32::from_bits(*bits)).to_bits(),
            Init::Number(Number::Int(bits) | Number::F64(bits)) => *bits,
            Init::Number(Number::F32(bits)) => u64::from(*bits),
            Init::Address(name, addend) => {
                let Some((target, _)) = index.get(name).filter(|_| width == 8) else {
                    return Err(wrong(format!("`{name}` is no variable whose address fits here")));
                };
                relocations.push((init.len() as u64, *target, *addend));
                0
            }
        };
        init.extend_from_slice(&bits.to_le_bytes()[..width]);
    }
    let constant = variable.space == Some(Space::Const);
    Ok(GlobalVariable { name: variable.name.clone(), bytes, constant, init, relocations })
}

fn program(unit: &Unit, globals: &Index, function: &Function) -> Result<Option<Program>, Error> {
    let Some(body) = &function.body else { return Ok(None) };
    let mut decoder = Decoder::new(unit, globals);
    // Predicate register 0 is the carry flag.
    decoder.scopes.banks.fresh(1);
    let mut scope = Scope::default();
    let (params, params_bytes) = params(function, &mut scope)?;
    decoder.function(scope, body)?;
    if decoder.labels.iter().any(|at| *at != NONE && *at as usize > decoder.code.len()) {
        return Err(Error::new(function.line, "a label stands past the end"));
    }
    // An exit is appended, for bodies without a final `ret`.
    decoder.line = decoder.code.last().map_or(function.line, |raw| raw.line);
    decoder.guard = None;
    decoder.class = crate::report::Class::Branch;
    decoder.emit(Op::Exit);
    resolve_labels(&mut decoder)?;
    let shared_bytes = decoder.shared_bytes;
    let dynamic_at = shared_bytes.next_multiple_of(decoder.dynamic_align);
    if u64::from(dynamic_at) > SHARED_BYTES_MAX {
        return Err(Error::new(function.line, format!("{dynamic_at} bytes of shared memory")));
    }
    Ok(Some(finish(decoder, function, params, params_bytes, if shared_bytes == 0 { 0 } else { dynamic_at })))
}

fn params(function: &Function, scope: &mut Scope) -> Result<(Vec<(String, Param)>, u32), Error> {
    let (mut params, mut end) = (Vec::new(), 0u64);
    for variable in &function.params {
        let offset = end.next_multiple_of(u64::from(variable.align.max(1)));
        end = offset.saturating_add(variable.bytes());
        if variable.space.is_none() || end > PARAMS_BYTES_MAX {
            let what = format!("parameter `{}` does not fit the parameter space", variable.name);
            return Err(Error::new(variable.line, what));
        }
        let (offset, bytes) = (offset as u32, variable.bytes() as u32);
        params.push((variable.name.clone(), Param { offset, bytes }));
        let place = Place { space: Space::Param, offset, bytes: u64::from(bytes), dynamic: false };
        scope.places.insert(variable.name.clone(), place);
    }
    Ok((params, end as u32))
}

fn resolve_labels(decoder: &mut Decoder) -> Result<(), Error> {
    let labels = &decoder.labels;
    let at = |label: u32, line| match labels.get(label as usize) {
        Some(at) if *at != NONE => Ok(*at),
        _ => Err(Error::new(line, "a label was never reached")),
    };
    for raw in &mut decoder.code {
        match &mut raw.op {
            Op::Branch(target) => *target = at(*target, raw.line)?,
            Op::BranchTable(_, targets) => {
                for target in targets.iter_mut() {
                    *target = at(*target, raw.line)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn word_of(reg: &Reg) -> Option<u32> {
    (reg.bank == Bank::Word).then_some(reg.index)
}

/// Whether a product reads this register as metadata. Those are read when the product is issued, as far as is known:
/// published kernels overwrite them while the product is in flight.
fn is_metadata(op: &Op, reg: &Reg) -> bool {
    let Op::WgmmaMultiply(product) = op else { return false };
    product.sparse.is_some_and(|(metadata, _)| word_of(reg) == Some(metadata))
}

/// Numbers the 32-bit registers that any `wgmma` reads or writes, except metadata. Returns the number of each register, and the register
/// names in this order.
fn product_registers(code: &[Raw], names: &HashMap<Reg, String>) -> (BTreeMap<u32, u32>, Vec<String>) {
    let (mut numbers, mut found) = (BTreeMap::new(), Vec::new());
    let products = code.iter().filter(|raw| matches!(raw.op, Op::WgmmaMultiply(_)));
    let used = |raw: &'_ Raw| -> Vec<Reg> {
        let all = raw.reads.iter().chain(&raw.writes);
        all.filter(|reg| !is_metadata(&raw.op, reg)).copied().collect()
    };
    for reg in &products.flat_map(used).collect::<Vec<Reg>>() {
        let Some(index) = word_of(reg) else { continue };
        numbers.entry(index).or_insert_with(|| {
            found.push(names.get(&Reg { bits: 0, ..*reg }).cloned().unwrap_or_default());
            (found.len() - 1) as u32
        });
    }
    (numbers, found)
}

fn finish(
    decoder: Decoder,
    function: &Function,
    params: Vec<(String, Param)>,
    params_bytes: u32,
    dynamic_at: u32,
) -> Program {
    let flow = Flow::new(&decoder.code);
    let meets = flow.meets(&decoder.code);
    let mut constants = Vec::new();
    for (constant, regs) in &decoder.constants {
        constants.extend(regs.iter().map(|reg| (*reg, *constant)));
    }
    constants.sort_unstable_by_key(|(reg, _)| *reg);
    let mut written: Vec<Reg> = constants.iter().map(|(reg, _)| Reg { bits: 0, ..*reg }).collect();
    written.push(Reg { bank: Bank::Pred, index: 0, bits: 0 });
    let tracking = track(&decoder.code, &flow, &written);
    let names = &decoder.names;
    let tracked = tracking.slots.iter().map(|reg| names.get(reg).cloned().unwrap_or_default()).collect();
    let (uses_of, product_names) = product_registers(&decoder.code, names);
    let mut product_uses = Vec::new();
    let (mut checks, mut marks) = (Vec::new(), Vec::new());
    let mut code = Vec::with_capacity(decoder.code.len());
    for ((raw, check), mark) in decoder.code.into_iter().zip(&tracking.checks).zip(&tracking.marks) {
        let Raw { op, guard, line, class, reads, writes } = raw;
        let from = (checks.len() as u32, marks.len() as u32, product_uses.len() as u32);
        // Accumulators of a `wgmma` are listed only as written, although they are also read.
        let is_sum = |reg: &&Reg| matches!(op, Op::WgmmaMultiply(_)) && writes.contains(reg);
        product_uses.extend(
            reads
                .iter()
                .filter(|reg| !is_sum(reg) && !is_metadata(&op, reg))
                .filter_map(|reg| Some((*uses_of.get(&word_of(reg)?)?, false))),
        );
        product_uses.extend(writes.iter().filter_map(|reg| Some((*uses_of.get(&word_of(reg)?)?, true))));
        checks.extend_from_slice(check);
        marks.extend_from_slice(mark);
        let guard = guard.map_or(NONE, |(index, negated)| index << 1 | u32::from(negated));
        let ends = (checks.len() as u32, marks.len() as u32, product_uses.len() as u32);
        let products = (from.2, ends.2);
        code.push(Instr { op, guard, line, class, checks: (from.0, ends.0), marks: (from.1, ends.1), products });
    }
    Program {
        name: function.name.clone(),
        line: function.line,
        code,
        meets,
        n_words: decoder.scopes.banks.words,
        n_doubles: decoder.scopes.banks.doubles,
        n_preds: decoder.scopes.banks.preds,
        constants,
        checks,
        marks,
        tracked,
        product_uses,
        product_names,
        params,
        params_bytes,
        shared_bytes: if decoder.dynamic_shared { dynamic_at } else { decoder.shared_bytes },
        shared_variables: decoder.shared_variables,
        local_bytes: decoder.local_bytes.next_multiple_of(16),
        threads_max: function.threads_max,
        threads_exact: function.threads_exact,
    }
}
