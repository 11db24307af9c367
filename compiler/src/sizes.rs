//! `--at batch=8,seq=512`, a program  =>  the value of every symbol: as given, or a default that satisfies the checks

use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{FlowOp, Layout, Program};
use sardonyx_dialects::sdx::{Check, Symbol, SymbolKind};
use sardonyx_passes::usual::{self, USUAL};
use std::collections::BTreeMap;

pub use sardonyx_passes::usual::Sizes;

/// Parses the comma-separated `NAME=N` of every `--at` option. Errors: E0204.
pub fn parse_sizes(texts: &[String]) -> Result<Sizes> {
    let mut sizes = Sizes::new();
    for part in texts.iter().flat_map(|t| t.split(',')) {
        let wrong = || {
            Error::user("E0204", format!("`--at {part}` is not understood"))
                .help("write --at NAME=N with commas between, for example --at batch=8,seq=512")
        };
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let value: i64 = value.trim().parse().map_err(|_| wrong())?;
        if name.trim().is_empty() || value < 0 {
            return Err(wrong());
        }
        if sizes.insert(name.trim().to_string(), value).is_some() {
            return Err(
                Error::user("E0204", format!("`--at` gives `{}` twice", name.trim())).help("give each symbol one size")
            );
        }
    }
    Ok(sizes)
}

/// Returns the value of every symbol of a program. By default, an input symbol is 1 if it occurs in the first dimension
/// of an input and 128 otherwise, limited to its range, unless a check requires another value. A data symbol that a
/// host step binds is the largest size that the step's result can have, if a bound is known; other data symbols are
/// chosen like input symbols that occur in no input. The capacity of a state is the smallest that suffices for the
/// call, and 0 positions are kept. Errors: E0204 for a name whose size cannot be given, E0301 for a size out of range,
/// E0201 for sizes that violate a check, E0202 and E0204 if a dimension with a capacity has no value.
pub fn sizes(program: &Program, given: &Sizes) -> Result<Sizes> {
    let inputs = program.inputs.iter().map(|(_, id)| program.containers[*id].dims.as_slice()).collect();
    let mut out = sizes_of_call((&program.symbols, &program.checks), inputs, given)?;
    for step in &program.steps {
        let FlowOp::Host(call) = &step.op else { continue };
        let dims = |id: &Id| program.containers[*id].dims.iter().map(|d| value(d, &out)).collect::<Result<Vec<i64>>>();
        let Ok(args) = step.args.iter().map(dims).collect::<Result<Vec<_>>>() else { continue };
        let Some(most) = call.op.size_max(&args) else { continue };
        let limited = |name: &str| match program.symbols.get(name) {
            Some(symbol) => most.min(symbol.hi.unwrap_or(i64::MAX)).max(symbol.lo),
            None => most,
        };
        let bound =
            call.binds().filter(|name| !given.contains_key(*name)).map(|name| (name.to_string(), limited(name)));
        out.extend(bound.collect::<Vec<_>>());
    }
    for container in &program.containers {
        if let Layout::Capacity { axis, size } = &container.layout
            && let Some(name) = size.as_name()
        {
            let full = value(&container.dims[*axis], &out)?;
            let room = out.entry(name.to_string()).or_insert(full);
            *room = full.max(*room);
        }
    }
    Ok(out)
}

/// Like [`sizes`], but without a program's steps and containers: host steps do not determine the values of data
/// symbols, and capacities get no value.
pub fn sizes_of_call(
    (symbols, checks): (&BTreeMap<String, Symbol>, &[Check]),
    inputs: Vec<&[Dim]>,
    given: &Sizes,
) -> Result<Sizes> {
    let mut out = usual::usual(symbols, inputs, USUAL);
    let of_data: Vec<(&String, &Symbol)> = symbols.iter().filter(|(_, s)| s.kind == SymbolKind::Data).collect();
    let chosen = symbols.iter().filter(|(_, s)| s.kind == SymbolKind::Input).chain(of_data.iter().copied());
    for (name, symbol) in chosen {
        let Some(&value) = given.get(name) else { continue };
        let (lo, hi) = (symbol.lo, symbol.hi.unwrap_or(i64::MAX));
        if !(lo..=hi).contains(&value) {
            return Err(Error::user("E0301", format!("`{name}` is {value}, but must be between {lo} and {hi}"))
                .help("change --at or --dim"));
        }
        out.insert(name.clone(), value);
    }
    let can_be_given = |name: &String| {
        symbols.get(name).is_some_and(|symbol| matches!(symbol.kind, SymbolKind::Input | SymbolKind::Data))
    };
    if let Some(name) = given.keys().find(|name| !can_be_given(name)) {
        let known: Vec<&str> = symbols.keys().filter(|name| can_be_given(name)).map(String::as_str).collect();
        let help = match known.as_slice() {
            [] => "all dimensions of this model are fixed".to_string(),
            names => format!("its symbols are {}", names.join(", ")),
        };
        let message = match symbols.contains_key(name) {
            true => format!("`{name}` is no dimension whose size a caller chooses"),
            false => format!("the model has no dimension symbol `{name}`"),
        };
        return Err(Error::user("E0204", message).help(help));
    }
    keep_checks((symbols, checks), given, &mut out)?;
    let range = |name: &str| symbols.get(name).filter(|s| s.kind == SymbolKind::Data).map(|s| (s.lo, s.hi));
    for (name, symbol) in of_data {
        out.entry(name.clone()).or_insert_with(|| USUAL.size(name, (symbol.lo, symbol.hi), &[]));
    }
    // The value of a data symbol is a guess unless it is given, so a check that a guess violates is no error.
    let pairs = checks.iter().map(|c| (&c.left, &c.right));
    sardonyx_base::usual::keep_checks(
        pairs,
        &range,
        &|name| range(name).is_none() || given.contains_key(name),
        &mut out,
    );
    for (name, symbol) in symbols {
        if let SymbolKind::Derived { equals, .. } = &symbol.kind
            && let Ok(value) = value(equals, &out)
        {
            out.insert(name.clone(), value);
        }
    }
    Ok(out)
}

/// The value of an expression. Errors: E0202, E0204.
pub fn value(d: &Dim, sizes: &Sizes) -> Result<i64> {
    d.eval_named(&|name| sizes.get(name).copied())
}

/// Adjusts the input symbols whose sizes are not given so that the checks hold. Errors: E0201 if a check does not hold.
fn keep_checks(
    (symbols, checks): (&BTreeMap<String, Symbol>, &[Check]),
    given: &Sizes,
    sizes: &mut Sizes,
) -> Result<()> {
    usual::keep_checks(checks, symbols, &|name| given.contains_key(name), sizes);
    for check in checks {
        let (Ok(left), Ok(right)) = (value(&check.left, sizes), value(&check.right, sizes)) else { continue };
        if left != right {
            let message =
                format!("`{}` is {left} and `{}` is {right}, but they must be equal", check.left, check.right);
            return Err(Error::user("E0201", message).node(check.why.clone()).help("give other sizes with --at"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::DType;
    use sardonyx_base::host::HostOp;
    use sardonyx_base::plan::{HostCall, HostResult};
    use sardonyx_dialects::flow::{Container, Step};

    /// ids [batch, seq], mask [batch, total], past [batch, 2, past] with capacity `room`; past + seq equals total.
    fn decoder() -> Program {
        let mut p = Program::default();
        let symbol = |kind| Symbol { kind, lo: 0, hi: None };
        for name in ["batch", "seq", "past", "total"] {
            p.symbols.insert(name.into(), symbol(SymbolKind::Input));
        }
        p.symbols.insert("room".into(), symbol(SymbolKind::Capacity));
        let equals = Dim::symbol("past") + Dim::constant(1);
        p.symbols.insert("next".into(), symbol(SymbolKind::Derived { equals, why: "node".into() }));
        let dims = |texts: &[&str]| texts.iter().map(|t| Dim::parse(t).unwrap()).collect();
        let layout = Layout::Capacity { axis: 2, size: Dim::symbol("room") };
        for (name, of, layout) in [
            ("ids", dims(&["batch", "seq"]), Layout::RowMajor),
            ("mask", dims(&["batch", "total"]), Layout::RowMajor),
            ("past", dims(&["batch", "2", "past"]), layout),
        ] {
            let id = p.container(Container { layout, ..Container::plain(DType::F32, of) });
            p.inputs.push((name.into(), id));
        }
        let left = Dim::symbol("past") + Dim::symbol("seq");
        p.checks = vec![Check { left, right: Dim::symbol("total"), why: "node".into() }];
        p
    }

    fn at(given: &[&str]) -> Result<Vec<(String, i64)>> {
        let given: Vec<String> = given.iter().map(|t| t.to_string()).collect();
        Ok(sizes(&decoder(), &parse_sizes(&given)?)?.into_iter().collect())
    }

    fn pairs(list: &[(&str, i64)]) -> Vec<(String, i64)> {
        list.iter().map(|(n, v)| (n.to_string(), *v)).collect()
    }

    #[test]
    fn what_is_not_given_follows_from_checks_or_is_usual() {
        let all = [("batch", 1), ("next", 129), ("past", 128), ("room", 128), ("seq", 128), ("total", 256)];
        assert_eq!(at(&[]).unwrap(), pairs(&all));
        let all = [("batch", 2), ("next", 8), ("past", 7), ("room", 7), ("seq", 3), ("total", 10)];
        assert_eq!(at(&["batch=2,seq=3", "past=7"]).unwrap(), pairs(&all));
    }

    #[test]
    fn what_data_decide_is_guessed_but_never_refused() {
        let mut p = decoder();
        for name in ["found", "rank0", "rank1"] {
            p.symbols.insert(name.into(), Symbol { kind: SymbolKind::Data, lo: 0, hi: None });
        }
        let check = |left: &str, right: &str| {
            let [left, right] = [left, right].map(|text| Dim::parse(text).unwrap());
            Check { left, right, why: "node".into() }
        };
        p.checks.extend([check("rank0*rank1", "batch*seq + 3"), check("2*found", "7")]);
        let all = sizes(&p, &Sizes::new()).unwrap();
        assert_eq!((all["found"], all["rank0"] * all["rank1"]), (128, 131));
        let given = Sizes::from([("found".into(), 5)]);
        assert_eq!(sizes(&p, &given).unwrap_err().code, "E0201");
        p.checks.pop();
        assert_eq!(sizes(&p, &given).unwrap()["found"], 5);
        let results = vec![HostResult { index: 0, binds: vec![(1, "found".into())] }];
        let found = p.container(Container::plain(DType::I64, vec![Dim::constant(2), Dim::symbol("found")]));
        p.steps.push(Step {
            op: FlowOp::Host(HostCall { op: HostOp::NonZero, bodies: vec![], results }),
            args: vec![p.inputs[0].1],
            results: vec![found],
            origins: vec![],
        });
        let found = |given: &[(&str, i64)]| {
            let given = given.iter().map(|(name, n)| (name.to_string(), *n)).collect();
            sizes(&p, &given).unwrap()["found"]
        };
        assert_eq!((found(&[("batch", 3)]), found(&[("batch", 3), ("found", 5)])), (3 * 128, 5));
    }

    #[test]
    fn sizes_that_cannot_be_are_told() {
        for (given, code, wanted) in [
            ("seq", "E0204", "`--at seq` is not understood"),
            ("seq=-1", "E0204", "`--at seq=-1` is not understood"),
            ("seq=1,seq=2", "E0204", "gives `seq` twice"),
            ("room=4", "E0204", "`room` is no dimension whose size a caller chooses"),
            ("rooms=4", "E0204", "no dimension symbol `rooms`"),
            ("total=5,seq=5,past=5", "E0201", "`past + seq` is 10 and `total` is 5"),
        ] {
            let e = at(&[given]).unwrap_err();
            assert!(e.code == code && e.message.contains(wanted), "{given}: {e}");
        }
        let mut p = decoder();
        p.symbols.get_mut("seq").unwrap().hi = Some(64);
        assert_eq!(sizes(&p, &Sizes::new()).unwrap()["seq"], 64);
        assert_eq!(sizes(&p, &Sizes::from([("seq".into(), 65)])).unwrap_err().code, "E0301");
    }
}
