//! the accesses of a kernel, all of its launches  =>  the launch requirements that all of them provably fulfil
//!
//! The runtime checks these requirements for every call, so that a modified plan is refused instead of letting native
//! code access memory out of bounds. A requirement that cannot be proved here is left out, as it might refuse a valid
//! call.

use sardonyx_base::dim::{Atom, Symbol};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::{Container, Layout, State};
use sardonyx_dialects::plan::{Action, Buffer, Entry, Plan};
use sardonyx_kernels::{Footprint, KernelDef, Lowered};
use std::collections::{BTreeMap, BTreeSet};

/// The requirements of a kernel, as declared in the artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requires {
    /// Expressions that are not negative in any launch with work items.
    pub requires: Vec<Dim>,
    /// Largest valid value of each data-dependent index; if it is negative, no index can be in range.
    pub indexes: Vec<Dim>,
    /// Number of memory accesses of the kernel.
    pub accesses: usize,
    /// Number of accesses for which no requirement was proved that keeps them within their buffer.
    pub unchecked: usize,
}

/// The requirements of the kernel with index `kernel` of a plan.
pub fn requires(plan: &Plan, kernel: usize, lowered: &Lowered) -> Result<Requires> {
    let mut launches: Vec<Launch> = vec![];
    for entry in &plan.entries {
        let bytes: Vec<Dim> = entry.buffers.iter().map(buffer_bytes).collect::<Result<_>>()?;
        launches.extend(entry.steps.iter().filter_map(|s| match &s.action {
            Action::Launch(launch) if launch.kernel == kernel => {
                let bytes = launch.buffers.iter().map(|b| bytes[*b].clone()).collect();
                Some(Launch::new(&lowered.def, &launch.params, bytes, &launch.grid, entry))
            }
            Action::Launch(_) | Action::Copy(_) | Action::Bind(_) | Action::Host(_) => None,
        }));
    }
    let Footprint { launch, accesses, limits } = lowered.footprint();
    let proved = |d: &Dim| launches.iter().all(|l| l.proves(d));
    let mut found: BTreeSet<Dim> = launch.into_iter().filter(|d| proved(d)).collect();
    let (n, mut unchecked) = (accesses.len(), 0);
    for ways in accesses {
        match ways.into_iter().find(|way| way.iter().all(proved)) {
            Some(way) => found.extend(way),
            None => unchecked += 1,
        }
    }
    Ok(Requires { requires: found.into_iter().collect(), indexes: limits, accesses: n, unchecked })
}

fn buffer_bytes(buffer: &Buffer) -> Result<Dim> {
    match buffer {
        Buffer::Input { container, .. }
        | Buffer::Output { container, .. }
        | Buffer::Param { container, .. }
        | Buffer::Const { container, .. }
        | Buffer::Value { container } => sardonyx_passes::schedule::bytes(container),
        Buffer::Arena { bytes, .. } => Ok(bytes.clone()),
    }
}

/// Writes the past size of each state as the symbol of its kept positions plus a non-negative remainder: the runtime
/// checks that no more positions are kept than exist.
fn kept(entry: &Entry) -> BTreeMap<String, Dim> {
    let one = |state: &State| {
        let Layout::Capacity { axis, .. } = entry.ports(true).get(state.input)?.2.layout else { return None };
        let past = entry.ports(true)[state.input].2.dims[axis].as_name()?.to_string();
        let (kept, others) = (Dim::symbol(state.kept.as_ref()?), Dim::symbol(&format!("carried {past}")));
        Some((past, kept + others))
    };
    entry.states.iter().filter_map(one).collect()
}

/// Writes each capacity as the filled size plus a non-negative spare part: the runtime checks for every call that
/// capacities suffice.
fn room(entry: &Entry) -> BTreeMap<String, Dim> {
    let ports = [true, false].into_iter().flat_map(|inputs| entry.ports(inputs));
    let one = |(_, _, c): (usize, &str, &Container)| match &c.layout {
        Layout::Capacity { axis, size } => {
            let name = size.as_name()?;
            Some((name.to_string(), c.dims[*axis].clone() + Dim::symbol(&format!("spare {name}"))))
        }
        Layout::RowMajor | Layout::Order(_) => None,
    };
    ports.filter_map(one).collect()
}

struct Launch<'a> {
    params: &'a [Dim],
    bytes: Vec<Dim>,
    grid: &'a Dim,
    entry: &'a Entry,
    /// Capacity symbols as the filled size plus a spare part.
    room: BTreeMap<String, Dim>,
    /// Symbols of past sizes as the kept positions plus a remainder.
    kept: BTreeMap<String, Dim>,
    /// Symbols that are at least 1 whenever the launch has any work.
    positive: BTreeSet<Symbol>,
}

impl<'a> Launch<'a> {
    fn new(def: &KernelDef, params: &'a [Dim], bytes: Vec<Dim>, grid: &'a Dim, entry: &'a Entry) -> Launch<'a> {
        let (room, kept) = (room(entry), kept(entry));
        let mut launch = Launch { params, bytes, grid, entry, room, kept, positive: BTreeSet::new() };
        for extent in &def.outer {
            let extent = launch.value(&extent.dim());
            // If a product is not 0, none of its factors is.
            if let (Some((monomial, _)), 1) = (extent.terms().next(), extent.terms().count()) {
                let symbols =
                    monomial.iter().filter_map(|a| if let Atom::Symbol(s) = a { Some(s.clone()) } else { None });
                launch.positive.extend(symbols);
            }
        }
        launch
    }

    /// An expression over launch symbols, rewritten to the symbols of the model.
    fn value(&self, d: &Dim) -> Dim {
        let own = d.substitute(&|symbol| match symbol {
            Symbol::Param(n) => self.params.get(*n).cloned(),
            Symbol::BufferBytes(n) => self.bytes.get(*n).cloned(),
            Symbol::Grid => Some(self.grid.clone()),
            Symbol::Statement(_) | Symbol::Variable(_) | Symbol::Named(_) => None,
        });
        own.substitute(&|s| self.room.get(s.name()?).cloned()).substitute(&|s| self.kept.get(s.name()?).cloned())
    }

    fn proves(&self, d: &Dim) -> bool {
        if d.has_own() {
            return false;
        }
        let mut value = self.entry.checks.iter().fold(self.value(d), |value, c| match c.left.as_name() {
            // Both sides of the check are equal here, since the runtime refuses other calls.
            Some(name) => value.substitute(&|s| (s == name).then(|| c.right.clone())),
            None => value,
        });
        let minus_one = Dim::constant(-1);
        let atoms: Vec<Atom> = value.terms().flat_map(|(m, _)| m.to_vec()).collect();
        for atom in atoms {
            // Divisors are positive, so ⌊−1 / d⌋ is −1.
            if matches!(&atom, Atom::FloorDiv(a, _) if **a == minus_one) {
                value = value.replace(&atom, &minus_one);
            }
        }
        let bounded = |(m, c): (&[Atom], i64)| match m {
            [Atom::Symbol(s)] if c < 0 => Some((Dim::from(s.clone()), c, self.entry.symbols.get(s.name()?)?.hi?)),
            _ => None,
        };
        let downward: Vec<(Dim, i64, i64)> = value.terms().filter_map(bounded).collect();
        for (symbol, c, hi) in downward {
            value = value + Dim::constant(c) * (Dim::constant(hi) - symbol);
        }
        let lo = |symbol: &Symbol| self.entry.symbol_lo(symbol).max(self.positive.contains(symbol) as i64);
        value.lower_bound(&lo).is_some_and(|lo| lo >= 0)
    }
}
