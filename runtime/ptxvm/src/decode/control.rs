//! bra, brx, call, ret, exit, trap, nanosleep

use super::mods::Mods;
use super::program::Op;
use super::statements::Decoder;
use crate::Error;
use crate::text::ast::Operand;
use crate::text::types::Ty;

type Done = Result<(), Error>;

fn label(d: &Decoder, name: &str) -> Result<u32, Error> {
    match d.scopes.label(name) {
        Some(label) => Ok(label),
        None => d.error(format!("unknown label `{name}`")),
    }
}

pub fn bra(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    mods.take("uni");
    let [Operand::Name(name)] = ops else {
        return d.error("takes one label");
    };
    let target = label(d, name)?;
    d.emit(Op::Branch(target));
    Ok(())
}

pub fn brx(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    mods.required(&["idx"])?;
    mods.take("uni");
    let [index, Operand::Name(table)] = ops else {
        return d.error("takes an index and a table of .branchtargets");
    };
    let Some(targets) = d.scopes.find(|scope| scope.targets.get(table).cloned()) else {
        return d.error(format!("unknown table `{table}`"));
    };
    let index = d.source::<u32>(index, Ty::U32)?;
    let mut labels = Vec::new();
    for target in &targets {
        labels.push(label(d, target)?);
    }
    d.emit(Op::BranchTable(index, labels.into()));
    Ok(())
}

/// Decodes `call.uni (results), name, (arguments);`. Either list may be omitted.
pub fn call(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    mods.take("uni");
    let (results, rest) = match ops {
        [Operand::List(results), rest @ ..] => (results.as_slice(), rest),
        rest => (&[][..], rest),
    };
    let (name, arguments) = match rest {
        [Operand::Name(name)] => (name, &[][..]),
        [Operand::Name(name), Operand::List(arguments)] => (name, arguments.as_slice()),
        _ => return d.error("takes a function's name and its arguments; indirect calls are not supported"),
    };
    match name.as_str() {
        // A failed `assert` of CUDA calls this function.
        "__assertfail" => trap(d, mods, &[]),
        _ => d.inline(name, results, arguments),
    }
}

/// Decodes `ret`, which in an inlined function is a branch to the instruction after the call.
pub fn ret(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    mods.take("uni");
    d.count::<0>(ops)?;
    let after = d.calls.last().map(|(_, after)| *after);
    d.emit(after.map_or(Op::Exit, Op::Branch));
    Ok(())
}

pub fn exit(d: &mut Decoder, _: &mut Mods, ops: &[Operand]) -> Done {
    d.count::<0>(ops)?;
    d.emit(Op::Exit);
    Ok(())
}

pub fn trap(d: &mut Decoder, _: &mut Mods, ops: &[Operand]) -> Done {
    d.count::<0>(ops)?;
    d.emit(Op::Trap);
    Ok(())
}

pub fn nanosleep(d: &mut Decoder, mods: &mut Mods, ops: &[Operand]) -> Done {
    let ty = mods.ty()?;
    d.count::<1>(ops)?;
    d.source::<u32>(&ops[0], ty)?;
    d.emit(Op::Nop);
    Ok(())
}
