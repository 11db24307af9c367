//! One row per instruction name: its class, and the function that decodes its modifiers and operands

use super::mods::Mods;
use super::statements::Decoder;
use super::{compare, control, convert, float, int, logic, matrix, mbarrier, memory, moves, warp, wgmma, wmma};
use crate::Error;
use crate::report::Class;
use crate::text::ast::Operand;

pub type Decode = fn(&mut Decoder, &mut Mods, &[Operand]) -> Result<(), Error>;

pub struct Row {
    pub name: &'static str,
    pub class: Class,
    pub decode: Decode,
}

const fn row(name: &'static str, class: Class, decode: Decode) -> Row {
    Row { name, class, decode }
}

/// Sorted by name. If an instruction has integer and floating-point variants, the decoder chooses by type and corrects
/// the class.
static ROWS: &[Row] = &[
    row("abs", Class::Integer, int::abs),
    row("activemask", Class::Warp, warp::activemask),
    row("add", Class::Integer, int::add),
    row("addc", Class::Integer, int::addc),
    row("and", Class::Integer, logic::and),
    row("applypriority", Class::Other, memory::hint),
    row("atom", Class::Atomic, memory::atom),
    row("bar", Class::Barrier, warp::bar),
    row("barrier", Class::Barrier, warp::barrier),
    row("bfe", Class::Integer, logic::bfe),
    row("bfi", Class::Integer, logic::bfi),
    row("bfind", Class::Integer, logic::bfind),
    row("bra", Class::Branch, control::bra),
    row("brev", Class::Integer, logic::brev),
    row("brkpt", Class::Branch, control::trap),
    row("brx", Class::Branch, control::brx),
    row("call", Class::Branch, control::call),
    row("clz", Class::Integer, logic::clz),
    row("cnot", Class::Integer, logic::cnot),
    row("copysign", Class::Float, float::copysign),
    row("cos", Class::Special, float::cos),
    row("cp", Class::AsyncCopy, memory::cp),
    row("createpolicy", Class::Other, memory::createpolicy),
    row("cvt", Class::Convert, convert::cvt),
    row("cvta", Class::Convert, moves::cvta),
    row("discard", Class::Other, memory::hint),
    row("div", Class::Integer, int::div),
    row("dp2a", Class::Integer, int::dp2a),
    row("dp4a", Class::Integer, int::dp4a),
    row("elect", Class::Warp, warp::elect),
    row("ex2", Class::Special, float::ex2),
    row("exit", Class::Branch, control::exit),
    row("fence", Class::Barrier, warp::fence),
    row("fma", Class::Float, float::fma),
    row("fns", Class::Integer, logic::fns),
    row("griddepcontrol", Class::Other, warp::griddepcontrol),
    row("isspacep", Class::Compare, moves::isspacep),
    row("ld", Class::Load, memory::ld),
    row("ldmatrix", Class::Matrix, matrix::ldmatrix),
    row("ldu", Class::Load, memory::ld),
    row("lg2", Class::Special, float::lg2),
    row("lop3", Class::Integer, logic::lop3),
    row("mad", Class::Integer, int::mad),
    row("mad24", Class::Integer, int::mad24),
    row("madc", Class::Integer, int::madc),
    row("match", Class::Warp, warp::matching),
    row("max", Class::Integer, int::max),
    row("mbarrier", Class::Barrier, mbarrier::mbarrier),
    row("membar", Class::Barrier, warp::membar),
    row("min", Class::Integer, int::min),
    row("mma", Class::Mma, matrix::mma),
    row("mov", Class::Move, moves::mov),
    row("mul", Class::Integer, int::mul),
    row("mul24", Class::Integer, int::mul24),
    row("nanosleep", Class::Other, control::nanosleep),
    row("neg", Class::Integer, int::neg),
    row("not", Class::Integer, logic::not),
    row("or", Class::Integer, logic::or),
    row("popc", Class::Integer, logic::popc),
    row("prefetch", Class::Other, memory::hint),
    row("prefetchu", Class::Other, memory::hint),
    row("prmt", Class::Integer, logic::prmt),
    row("rcp", Class::Special, float::rcp),
    row("red", Class::Atomic, memory::red),
    row("redux", Class::Warp, warp::redux),
    row("rem", Class::Integer, int::rem),
    row("ret", Class::Branch, control::ret),
    row("rsqrt", Class::Special, float::rsqrt),
    row("sad", Class::Integer, int::sad),
    row("selp", Class::Move, moves::selp),
    row("set", Class::Compare, compare::set),
    row("setmaxnreg", Class::Warp, warp::setmaxnreg),
    row("setp", Class::Compare, compare::setp),
    row("shf", Class::Integer, logic::shf),
    row("shfl", Class::Warp, warp::shfl),
    row("shl", Class::Integer, logic::shl),
    row("shr", Class::Integer, logic::shr),
    row("sin", Class::Special, float::sin),
    row("slct", Class::Move, moves::slct),
    row("sqrt", Class::Special, float::sqrt),
    row("st", Class::Store, memory::st),
    row("stmatrix", Class::Matrix, matrix::stmatrix),
    row("sub", Class::Integer, int::sub),
    row("subc", Class::Integer, int::subc),
    row("szext", Class::Integer, logic::szext),
    row("tanh", Class::Special, float::tanh),
    row("testp", Class::Compare, compare::testp),
    row("trap", Class::Branch, control::trap),
    row("vote", Class::Warp, warp::vote),
    row("wgmma", Class::Mma, wgmma::wgmma),
    row("wmma", Class::Mma, wmma::wmma),
    row("xor", Class::Integer, logic::xor),
];

pub fn find(name: &str) -> Option<&'static Row> {
    let at = ROWS.binary_search_by(|row| row.name.cmp(name)).ok()?;
    ROWS.get(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted() {
        assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
    }
}
