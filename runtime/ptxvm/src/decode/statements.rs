//! the statements of one entry  =>  one list of instructions, with called functions inlined, and each label's position

use std::collections::HashMap;

use super::mods::Mods;
use super::ops::Address;
use super::program::{Constant, Op, Reg};
use super::scope::{Place, Scope, Scopes};
use super::table;
use crate::Error;
use crate::report::Class;
use crate::text::ast::{Function, Ins, Operand, Stmt, Unit, Variable};
use crate::text::types::Space;

/// Maximum number of instructions of one entry after inlining.
const CODE_MAX: usize = 1 << 20;
/// Maximum depth of nested calls.
const CALLS_MAX: usize = 24;
/// Maximum number of inlined calls in one entry, nested ones included.
const INLINED_MAX: u32 = 1 << 16;
/// Maximum shared memory of a block: that of sm_90, the largest of all GPUs that are simulated.
pub const SHARED_BYTES_MAX: u64 = 227 * 1024;
/// Largest local memory that a GPU allows per thread.
pub const LOCAL_BYTES_MAX: u64 = 512 * 1024;

/// An instruction before control flow analysis.
pub struct Raw {
    pub op: Op,
    pub guard: Option<(u32, bool)>,
    pub line: u32,
    pub class: Class,
    pub reads: Vec<Reg>,
    pub writes: Vec<Reg>,
}

pub struct Decoder<'a> {
    pub unit: &'a Unit,
    /// Module variables in global memory, by name: the index in the module, and the size in bytes.
    pub globals: &'a HashMap<String, (u32, u64)>,
    pub scopes: Scopes,
    pub code: Vec<Raw>,
    /// Index of the instruction that follows each label. Branches hold label numbers until all code has been emitted.
    pub labels: Vec<u32>,
    pub constants: HashMap<Constant, Vec<Reg>>,
    pub names: HashMap<Reg, String>,
    pub shared_bytes: u32,
    pub shared_variables: Vec<(String, u32, u32)>,
    module_shared: HashMap<String, Place>,
    pub dynamic_shared: bool,
    pub dynamic_align: u32,
    pub local_bytes: u32,
    /// Functions being inlined, each with the label after the call.
    pub calls: Vec<(String, u32)>,
    n_inlined: u32,
    /// Line of the instruction that is being decoded; the fields below also describe this instruction.
    pub line: u32,
    pub opcode: String,
    pub guard: Option<(u32, bool)>,
    pub class: Class,
    pub reads: Vec<Reg>,
    pub writes: Vec<Reg>,
}

impl<'a> Decoder<'a> {
    pub fn new(unit: &'a Unit, globals: &'a HashMap<String, (u32, u64)>) -> Self {
        Decoder {
            unit,
            globals,
            scopes: Scopes::default(),
            code: Vec::new(),
            labels: Vec::new(),
            constants: HashMap::new(),
            names: HashMap::new(),
            shared_bytes: 0,
            shared_variables: Vec::new(),
            module_shared: HashMap::new(),
            dynamic_shared: false,
            dynamic_align: 16,
            local_bytes: 0,
            calls: Vec::new(),
            n_inlined: 0,
            line: 0,
            opcode: String::new(),
            guard: None,
            class: Class::Other,
            reads: Vec::new(),
            writes: Vec::new(),
        }
    }

    pub fn error<T>(&self, what: impl std::fmt::Display) -> Result<T, Error> {
        Err(Error::new(self.line, format!("`{}`: {what}", self.opcode)))
    }

    /// Decodes a body in a new scope that does not see the caller's names; `scope` holds its parameters.
    pub fn function(&mut self, scope: Scope, body: &[Stmt]) -> Result<(), Error> {
        self.scopes.stack.push(Scope { outermost: true, ..scope });
        self.statements(body)?;
        self.scopes.stack.pop();
        Ok(())
    }

    fn statements(&mut self, body: &[Stmt]) -> Result<(), Error> {
        self.declare_labels(body)?;
        for statement in body {
            match statement {
                Stmt::Ins(ins) => self.instruction(ins)?,
                Stmt::Label(name, _) => {
                    if let Some(label) = self.scopes.top().labels.get(name).copied() {
                        self.labels[label as usize] = self.code.len() as u32;
                    }
                }
                Stmt::Targets(..) => {}
                Stmt::Variable(variable) => self.declare(variable)?,
                Stmt::Block(inner) => {
                    self.scopes.stack.push(Scope::default());
                    self.statements(inner)?;
                    self.scopes.stack.pop();
                }
            }
        }
        Ok(())
    }

    /// Declares all labels of a block in advance, since they may be used before they are defined.
    fn declare_labels(&mut self, body: &[Stmt]) -> Result<(), Error> {
        for statement in body {
            match statement {
                Stmt::Label(name, line) => {
                    let label = self.fresh_label();
                    if self.scopes.top().labels.insert(name.clone(), label).is_some() {
                        return Err(Error::new(*line, format!("label `{name}` stands twice in one block")));
                    }
                }
                Stmt::Targets(name, targets) => {
                    self.scopes.top().targets.insert(name.clone(), targets.clone());
                }
                Stmt::Ins(_) | Stmt::Variable(_) | Stmt::Block(_) => {}
            }
        }
        Ok(())
    }

    pub fn fresh_label(&mut self) -> u32 {
        self.labels.push(super::program::NONE);
        (self.labels.len() - 1) as u32
    }

    fn declare(&mut self, variable: &Variable) -> Result<(), Error> {
        let Some(space) = variable.space else {
            if variable.lanes != 1 {
                return Err(Error::new(variable.line, "vector registers are not supported: name the elements"));
            }
            let scope = self.scopes.top();
            match variable.numbered {
                Some(count) => {
                    scope.numbered.insert(variable.name.clone(), (variable.ty, count));
                }
                None => {
                    scope.single.insert(variable.name.clone(), variable.ty);
                }
            }
            return Ok(());
        };
        let place = match space {
            Space::Shared => self.place_shared(variable)?,
            Space::Local | Space::Param => self.place_local(variable)?,
            Space::Global | Space::Const | Space::Generic => {
                let what =
                    format!("variable `{}`: move .global and .const variables out of the function", variable.name);
                return Err(Error::new(variable.line, what));
            }
        };
        self.scopes.top().places.insert(variable.name.clone(), place);
        Ok(())
    }

    fn place_shared(&mut self, variable: &Variable) -> Result<Place, Error> {
        if variable.external || variable.elements == 0 {
            self.dynamic_shared = true;
            self.dynamic_align = self.dynamic_align.max(variable.align);
            return Ok(Place { space: Space::Shared, offset: 0, bytes: 0, dynamic: true });
        }
        let offset = self.shared_bytes.next_multiple_of(variable.align.max(1));
        let end = u64::from(offset).saturating_add(variable.bytes());
        if end > SHARED_BYTES_MAX {
            let what = format!("`{}`: {end} bytes of shared memory, more than {SHARED_BYTES_MAX}", variable.name);
            return Err(Error::new(variable.line, what));
        }
        self.shared_bytes = end as u32;
        self.shared_variables.push((variable.name.clone(), offset, variable.bytes() as u32));
        Ok(Place { space: Space::Shared, offset, bytes: variable.bytes(), dynamic: false })
    }

    /// Allocates a variable in the thread's local memory, where parameters of calls are stored too.
    pub fn place_local(&mut self, variable: &Variable) -> Result<Place, Error> {
        let offset = self.local_bytes.next_multiple_of(variable.align.max(1));
        let end = u64::from(offset).saturating_add(variable.bytes());
        if end > LOCAL_BYTES_MAX {
            let what = format!("`{}`: {end} bytes of local memory, more than {LOCAL_BYTES_MAX}", variable.name);
            return Err(Error::new(variable.line, what));
        }
        self.local_bytes = end as u32;
        Ok(Place { space: Space::Local, offset, bytes: variable.bytes(), dynamic: false })
    }

    /// Finds a variable of the function or of the module. A shared variable of the module is allocated when it is first
    /// found.
    pub fn find_place(&mut self, name: &str) -> Result<Option<Place>, Error> {
        if let Some(place) = self.scopes.place(name).or_else(|| self.module_shared.get(name).copied()) {
            return Ok(Some(place));
        }
        if let Some((index, bytes)) = self.globals.get(name) {
            return Ok(Some(Place { space: Space::Global, offset: *index, bytes: *bytes, dynamic: false }));
        }
        let unit = self.unit;
        let Some(variable) = unit.variables.iter().find(|variable| variable.name == name) else { return Ok(None) };
        if variable.space != Some(Space::Shared) {
            return Ok(None);
        }
        let place = self.place_shared(variable)?;
        self.module_shared.insert(name.to_owned(), place);
        Ok(Some(place))
    }

    fn instruction(&mut self, ins: &Ins) -> Result<(), Error> {
        self.line = ins.line;
        self.opcode.clone_from(&ins.opcode);
        self.reads.clear();
        self.writes.clear();
        self.guard = None;
        if let Some((name, negated)) = &ins.guard {
            let reg = self.pred_named(name)?;
            self.guard = Some((reg, *negated));
        }
        let (name, mut mods) = Mods::split(&ins.opcode, ins.line);
        let Some(row) = table::find(name) else {
            return Err(Error::new(ins.line, format!("unknown instruction `{}`", ins.opcode)));
        };
        self.class = row.class;
        (row.decode)(self, &mut mods, &ins.operands)?;
        if let Some(part) = mods.unknown() {
            return self.error(format!("unknown modifier `.{part}`"));
        }
        if self.code.len() > CODE_MAX {
            return self.error(format!("more than {CODE_MAX} instructions after inlining"));
        }
        Ok(())
    }

    /// Appends an instruction. The registers looked up since the previous call count as read and written by this
    /// instruction.
    pub fn emit(&mut self, op: Op) {
        let mut reads = std::mem::take(&mut self.reads);
        if let Some((index, _)) = self.guard {
            reads.push(Reg { bank: super::program::Bank::Pred, index, bits: 1 });
        }
        let writes = std::mem::take(&mut self.writes);
        self.code.push(Raw { op, guard: self.guard, line: self.line, class: self.class, reads, writes });
    }

    /// Emits the body of a function in place of its call, `call.uni (results), function, (arguments);`.
    pub fn inline(&mut self, name: &str, results: &[Operand], arguments: &[Operand]) -> Result<(), Error> {
        let unit = self.unit;
        let with_body = |function: &&Function| function.name == name && !function.entry && function.body.is_some();
        let Some(function) = unit.functions.iter().find(with_body) else {
            return self.error(format!("function `{name}` has no body here; only functions of the same text can run"));
        };
        if self.calls.iter().any(|(open, _)| open == name) || self.calls.len() >= CALLS_MAX {
            return self.error(format!("`{name}` calls itself or nests too deep; recursion is not supported"));
        }
        self.n_inlined += 1;
        if self.n_inlined > INLINED_MAX {
            return self.error(format!("more than {INLINED_MAX} calls after inlining"));
        }
        if results.len() != function.results.len() || arguments.len() != function.params.len() {
            return self.error(format!(
                "`{name}` takes {} arguments and gives {}",
                function.params.len(),
                function.results.len()
            ));
        }
        if self.guard.is_some() {
            return self.error("a guarded call is not supported: branch around it");
        }
        let mut scope = Scope::default();
        let mut copies = Vec::new();
        for (operand, variable) in arguments.iter().zip(&function.params) {
            self.bind(&mut scope, operand, variable, true, &mut copies)?;
        }
        for (operand, variable) in results.iter().zip(&function.results) {
            self.bind(&mut scope, operand, variable, false, &mut copies)?;
        }
        let after = self.fresh_label();
        self.calls.push((name.to_owned(), after));
        let (line, opcode) = (self.line, self.opcode.clone());
        self.function(scope, function.body.as_deref().unwrap_or_default())?;
        self.calls.pop();
        self.labels[after as usize] = self.code.len() as u32;
        (self.line, self.opcode, self.guard) = (line, opcode, None);
        for (to, from) in copies {
            self.copy_register(to, from)?;
        }
        Ok(())
    }

    /// Binds a parameter to an operand. A parameter in memory is an alias of the caller's variable; a parameter in a
    /// register is copied.
    fn bind(
        &mut self,
        scope: &mut Scope,
        operand: &Operand,
        variable: &Variable,
        input: bool,
        copies: &mut Vec<(Reg, Reg)>,
    ) -> Result<(), Error> {
        if variable.space.is_some() {
            let Operand::Name(name) = operand else {
                return self.error("a parameter in memory takes a variable of .param");
            };
            let Some(place) = self.scopes.place(name).filter(|place| place.space == Space::Local) else {
                return self.error(format!("`{name}` is no variable of .param"));
            };
            if place.bytes < variable.bytes() {
                return self.error(format!("`{name}` is smaller than the parameter `{}`", variable.name));
            }
            scope.places.insert(variable.name.clone(), place);
            return Ok(());
        }
        let inner = self.scopes.banks.fresh(variable.ty.bits());
        scope.regs.insert(variable.name.clone(), inner);
        if input {
            let from = self.any_source(operand, variable.ty)?;
            self.copy_register(inner, from)?;
        } else {
            let to = self.any_target(operand, variable.ty)?;
            self.writes.clear();
            copies.push((to, inner));
        }
        Ok(())
    }

    /// Returns an address in a variable, such as `[name+4]`. Its base is a register that holds a constant.
    pub fn place_address(&mut self, place: Place, offset: i64) -> Address {
        let constant = match (place.space, place.dynamic) {
            (Space::Global | Space::Const | Space::Generic, _) => Constant::Symbol(place.offset, 0),
            (Space::Shared, true) => Constant::DynamicShared(0),
            (Space::Shared | Space::Local | Space::Param, _) => Constant::Number(u64::from(place.offset)),
        };
        Address { base: self.constant(constant, 64), offset }
    }
}
