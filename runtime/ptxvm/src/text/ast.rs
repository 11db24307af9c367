//! Syntax tree of a PTX module

use super::lex::Number;
use super::types::{Space, Ty};

#[derive(Debug, Default)]
pub struct Unit {
    pub version: String,
    pub target: String,
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub line: u32,
    pub entry: bool,
    pub results: Vec<Variable>,
    pub params: Vec<Variable>,
    /// Statements of the body; `None` if the function is only declared.
    pub body: Option<Vec<Stmt>>,
    pub threads_max: Option<[u32; 3]>,
    pub threads_exact: Option<[u32; 3]>,
}

/// `.shared .align 16 .b8 tile[1024];`, `.param .u64 b0`, `.reg .b32 %r<10>;`
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: String,
    pub line: u32,
    /// State space; `None` for registers.
    pub space: Option<Space>,
    pub ty: Ty,
    /// Vector length: 1, or 2 for `.v2` and 4 for `.v4`.
    pub lanes: u32,
    pub align: u32,
    /// Number of elements over all dimensions; for an open `[]`, the number of initial values.
    pub elements: u64,
    pub array: bool,
    pub external: bool,
    /// Number of registers that the name stands for: `%r<10>` declares `%r0` to `%r9`. `None` for a single name.
    pub numbered: Option<u32>,
    pub init: Vec<Init>,
}

impl Variable {
    /// Returns the size in bytes. The product saturates, so that the result can be compared with a limit.
    pub fn bytes(&self) -> u64 {
        self.elements.saturating_mul(u64::from(self.ty.bytes() * self.lanes))
    }
}

#[derive(Clone, Debug)]
pub enum Init {
    Number(Number),
    /// The address of a variable plus an offset. `generic(name)` is the same, because the simulator stores module
    /// variables at generic addresses.
    Address(String, i64),
}

#[derive(Clone, Debug)]
pub enum Stmt {
    Ins(Ins),
    Label(String, u32),
    /// `name: .branchtargets L0, L1;`
    Targets(String, Vec<String>),
    Variable(Variable),
    Block(Vec<Stmt>),
}

#[derive(Clone, Debug)]
pub struct Ins {
    pub line: u32,
    /// Name of the predicate, and whether it is negated.
    pub guard: Option<(String, bool)>,
    pub opcode: String,
    pub operands: Vec<Operand>,
}

#[derive(Clone, Debug)]
pub enum Operand {
    /// Register, special register, variable, label, or `_`.
    Name(String),
    Not(String),
    /// `name+4`
    Sum(String, i64),
    Number(Number),
    /// `p|q`
    Pair(Box<Operand>, Box<Operand>),
    Vector(Vec<Operand>),
    Address(Address),
    List(Vec<Operand>),
    /// `[map, {x, y}]`
    Tensor(Address, Vec<Operand>),
}

#[derive(Clone, Debug)]
pub struct Address {
    /// Register or variable to which the offset is added; `None` for an absolute address such as `[64]`.
    pub base: Option<String>,
    pub offset: i64,
}
