//! Contraction in groups: packs its codes, and constants that are read once per group, in panels of the same columns

use super::{Packable, PackedFactor, is_blocked, load_of, matrix};
use crate::contract::{WIDTH, rows_of_cell};
use crate::target::Target;
use sardonyx_base::{Dim, Encoding};
use sardonyx_dialects::flow::kernel::{Body, Container, Kernel, Level, Memlet};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

/// Loads that the accumulators of groups depend on, and whether each one is a code.
fn loads(kernel: &Kernel) -> Vec<(usize, bool)> {
    let levels = kernel.levels();
    let (mut open, mut found) = (vec![], vec![]);
    for statement in &kernel.body {
        if let Body::Reduce { f: ReduceFn::Add, arg } = statement.body {
            open.push(arg);
        }
    }
    while let Some(k) = open.pop() {
        match &kernel.body[k].body {
            Body::Load { memlet, guard: None } if levels[k] != Level::Row => {
                let is_code = rows_of_cell(kernel.reads[memlet.container].dtype).is_some() && levels[k] == Level::Deep;
                let of_group = levels[k] == Level::Point;
                if (is_code || of_group) && !found.contains(&(k, is_code)) {
                    found.push((k, is_code));
                }
            }
            Body::Apply { args, .. } => open.extend(args),
            Body::Convert(arg, _) => open.push(*arg),
            Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Reduce { .. } => {}
        }
    }
    found.sort();
    found
}

/// Returns the load that the codes loaded by `code` are multiplied by.
fn left(kernel: &Kernel, code: usize) -> Option<(usize, &Memlet)> {
    let narrow = |k: usize| match kernel.body[k].body {
        Body::Convert(from, _) => from,
        _ => k,
    };
    let other = kernel.body.iter().find_map(|s| match &s.body {
        Body::Apply { f: ScalarFn::Mul, args } if narrow(args[0]) == code => Some(narrow(args[1])),
        Body::Apply { f: ScalarFn::Mul, args } if narrow(args[1]) == code => Some(narrow(args[0])),
        _ => None,
    })?;
    match &kernel.body[other].body {
        Body::Load { memlet, guard: None } => Some((other, memlet)),
        _ => None,
    }
}

/// Like [`super::packable`]. Operands that depend on the rows of the result are not constant and are not packed.
pub fn packable(kernel: &Kernel, target: Target) -> Option<Packable> {
    let loads = loads(kernel);
    // Both operands may be bytes: codes are those that depend on the columns.
    let last = kernel.stores.first()?.memlet.index.last()?;
    let in_columns = |load: usize| match &kernel.body[load].body {
        Body::Load { memlet, .. } => {
            memlet.index.iter().any(|d| d.symbols().iter().any(|s| last.symbols().contains(s)))
        }
        _ => false,
    };
    let mut codes: Vec<usize> = loads.iter().filter(|(_, is_code)| *is_code).map(|(load, _)| *load).collect();
    codes.sort_by_key(|load| !in_columns(*load));
    let (left_load, left) = left(kernel, *codes.first()?)?;
    let mut packed = kernel.clone();
    let mut factors = vec![];
    for (load, is_code) in loads.into_iter().filter(|(load, _)| *load != left_load) {
        let Body::Load { memlet, .. } = &kernel.body[load].body else { return None };
        let container = &kernel.reads[memlet.container];
        let depth = if is_code { rows_of_cell(container.dtype)? } else { 1 };
        let first = kernel.outer.len();
        let summed = first..first + 1 + usize::from(is_code);
        let alone = load_of(kernel, memlet.container) == load;
        let Some(matrix) = matrix(kernel, memlet, left, summed).filter(|_| alone) else {
            if is_code {
                return None;
            }
            continue;
        };
        let operand = memlet.container;
        let encoding = Encoding::Panels { width: WIDTH as usize, depth };
        let dims = matrix.size.map(Dim::constant).to_vec();
        packed.reads[operand] = Container { encoding, ..Container::plain(container.dtype, dims) };
        let memlet = Memlet { container: operand, index: matrix.index.to_vec() };
        factors.push(PackedFactor { operand, packed: operand, size: matrix.size, window: matrix.window });
        packed.body[load].body = Body::Load { memlet, guard: None };
    }
    let packable = Packable { factors, kernel: packed };
    is_blocked(&packable, target).then_some(packable)
}
