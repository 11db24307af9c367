//! operation, operand types  =>  result type, or the rule that is broken

use super::{ContractSpec, Graph, Host, Node, Op, TensorType, Value, WindowSpec};
use sardonyx_base::{DType, Dim, Error, Result};

type Verdict = std::result::Result<TensorType, String>;

/// The result's type. Operations whose result does not follow from the operands (reshape, slice, …) take it from
/// `declared` and check it. The caller compares the result with the declared type, if there is one.
pub fn result_type(op: &Op, args: &[&TensorType], declared: Option<&TensorType>) -> Verdict {
    let wanted = op.properties().operands;
    if wanted.is_some_and(|n| n != args.len()) {
        return Err(format!("takes {} operands, not {}", wanted.unwrap_or(0), args.len()));
    }
    let given = || declared.cloned().ok_or_else(|| format!("{} needs a declared result type", op.name()));
    match op {
        Op::Input { .. } | Op::Param { .. } => given(),
        Op::Const(t) => {
            let dims: Vec<Dim> = t.dims().iter().map(|&d| Dim::constant(d as i64)).collect();
            Ok(TensorType::new(t.dtype(), dims))
        }
        Op::Dims(values) => dims_type(values, &given()?),
        Op::Map(f) => map_type(*f, args),
        Op::Convert(how) => {
            let dtype = given()?.dtype;
            how.check(args[0].dtype, dtype)?;
            Ok(TensorType::new(dtype, args[0].dims.clone()))
        }
        Op::Reduce { f, axes } => {
            f.scalar().result(&[args[0].dtype, args[0].dtype])?;
            check_axes(axes, args[0].rank())?;
            let kept = args[0].dims.iter().enumerate().filter(|(i, _)| !axes.contains(i));
            Ok(TensorType::new(args[0].dtype, kept.map(|(_, d)| d.clone()).collect::<Vec<_>>()))
        }
        Op::Contract(spec) => contract_type(spec, args),
        Op::Gather { axis } => gather_type(*axis, args),
        Op::Slice { starts, steps } => slice_type(starts, steps, args[0], &given()?),
        Op::Pad { low } => {
            same(&args[1].dims, &[], "the padding value is a scalar")?;
            if low.len() != args[0].rank() || given()?.rank() != args[0].rank() {
                return Err(format!("one `low` per dimension of {}", args[0]));
            }
            let dtype = same_dtype(args[0], args[1])?;
            Ok(TensorType::new(dtype, given()?.dims))
        }
        Op::Window(window) => window_type(window, args[0], declared),
        Op::Concat { axis } | Op::Append { axis } => concat_type(*axis, args),
        Op::Reshape => {
            let to = given()?;
            match to.elements() == args[0].elements() {
                true => Ok(TensorType::new(args[0].dtype, to.dims)),
                false => Err(format!("{} has {} elements, {to} has {}", args[0], args[0].elements(), to.elements())),
            }
        }
        Op::Transpose { perm } => {
            let mut sorted = perm.clone();
            sorted.sort();
            if sorted != (0..args[0].rank()).collect::<Vec<_>>() {
                return Err(format!("{perm:?} is no permutation of the dimensions of {}", args[0]));
            }
            Ok(TensorType::new(args[0].dtype, perm.iter().map(|&p| args[0].dims[p].clone()).collect::<Vec<_>>()))
        }
        Op::Broadcast { dims } => broadcast_type(dims, args[0], &given()?),
        Op::Iota { axis } => {
            let to = given()?;
            if *axis >= to.rank() || to.dtype != DType::I64 {
                return Err(format!("needs an i64 result with a dimension {axis}, not {to}"));
            }
            Ok(to)
        }
        Op::Bind { .. } => match args[0].elements().is_const(1) && args[0].dtype == DType::I64 {
            true => Ok(args[0].clone()),
            false => Err(format!("takes one i64, not {}", args[0])),
        },
        Op::Place(place) => match place.split.as_ref().filter(|(dim, ..)| *dim >= args[0].rank()) {
            None => Ok(args[0].clone()),
            Some((dim, ..)) => Err(format!("{} has no dimension {dim}", args[0])),
        },
        Op::Host(host) => host_type(host, args, &given()?),
    }
}

fn same(a: &[Dim], b: &[Dim], rule: &str) -> std::result::Result<(), String> {
    if a == b {
        return Ok(());
    }
    let text = |dims: &[Dim]| dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
    Err(format!("{rule}: [{}] against [{}]", text(a), text(b)))
}

fn same_dtype(a: &TensorType, b: &TensorType) -> std::result::Result<DType, String> {
    match a.dtype == b.dtype {
        true => Ok(a.dtype),
        false => Err(format!("operands of one element type, not {} and {}", a.dtype, b.dtype)),
    }
}

fn check_axes(axes: &[usize], rank: usize) -> std::result::Result<(), String> {
    match axes.windows(2).all(|w| w[0] < w[1]) && axes.iter().all(|&a| a < rank) {
        true => Ok(()),
        false => Err(format!("axes {axes:?} are not increasing and below {rank}")),
    }
}

fn dims_type(values: &[Dim], declared: &TensorType) -> Verdict {
    let fits = match declared.dims.as_slice() {
        [] => values.len() == 1,
        [n] => n.is_const(values.len() as i64),
        _ => false,
    };
    match fits && declared.dtype == DType::I64 {
        true => Ok(declared.clone()),
        false => Err(format!("{} values do not make {declared}", values.len())),
    }
}

fn map_type(f: crate::scalar::ScalarFn, args: &[&TensorType]) -> Verdict {
    let dtypes: Vec<DType> = args.iter().map(|a| a.dtype).collect();
    let dtype = f.result(&dtypes)?;
    for arg in &args[1..] {
        same(&args[0].dims, &arg.dims, "operands have the same dimensions")?;
    }
    Ok(TensorType::new(dtype, args[0].dims.clone()))
}

fn contract_type(spec: &ContractSpec, args: &[&TensorType]) -> Verdict {
    let mut extent: Vec<(char, Dim)> = vec![];
    for (letters, arg) in [(&spec.left, args[0]), (&spec.right, args[1])] {
        if letters.len() != arg.rank() {
            return Err(format!("`{spec}` does not fit {arg}"));
        }
        for (&c, d) in letters.iter().zip(&arg.dims) {
            match extent.iter().find(|(known, _)| *known == c) {
                Some((_, other)) => {
                    same(std::slice::from_ref(other), std::slice::from_ref(d), "one letter, one extent")?
                }
                None => extent.push((c, d.clone())),
            }
        }
    }
    let dtype = same_dtype(args[0], args[1])?;
    crate::scalar::ScalarFn::Mul.result(&[dtype, dtype])?;
    let dims = spec.result.iter().filter_map(|c| extent.iter().find(|(k, _)| k == c)).map(|(_, d)| d.clone());
    Ok(TensorType::new(dtype, dims.collect::<Vec<_>>()))
}

fn gather_type(axis: usize, args: &[&TensorType]) -> Verdict {
    let (data, indices) = (args[0], args[1]);
    if axis >= data.rank() || indices.dtype != DType::I64 {
        return Err(format!("needs a dimension {axis} of {data} and i64 indices, not {}", indices.dtype));
    }
    let dims = data.dims[..axis].iter().chain(&indices.dims).chain(&data.dims[axis + 1..]);
    Ok(TensorType::new(data.dtype, dims.cloned().collect::<Vec<_>>()))
}

fn slice_type(starts: &[Dim], steps: &[i64], arg: &TensorType, to: &TensorType) -> Verdict {
    let rank = arg.rank();
    if starts.len() != rank || steps.len() != rank || to.rank() != rank || steps.contains(&0) {
        return Err(format!("needs a start and a non-zero step for each dimension of {arg}"));
    }
    for i in 0..rank {
        let numbers = (starts[i].as_const(), to.dims[i].as_const(), arg.dims[i].as_const());
        let (Some(start), Some(n), Some(extent)) = numbers else { continue };
        let last = start.saturating_add(steps[i].saturating_mul(n - 1));
        if n > 0 && !((0..extent).contains(&start) && (0..extent).contains(&last)) {
            return Err(format!("{start} to {last} is outside dimension {i} of {arg}"));
        }
    }
    Ok(TensorType::new(arg.dtype, to.dims.clone()))
}

/// The type of a window view. The declared number of positions may be another expression than `WindowSpec::places`
/// returns, such as a unified dimension.
fn window_type(w: &WindowSpec, arg: &TensorType, declared: Option<&TensorType>) -> Verdict {
    if w.axis >= arg.rank() || w.stride < 1 || w.dilation < 1 {
        return Err(format!("needs a dimension {} of {arg}, and a positive stride and dilation", w.axis));
    }
    let mut to = arg.clone();
    to.dims[w.axis] = w.places(&arg.dims[w.axis]);
    to.dims.push(w.size.clone());
    if w.size.as_const().is_some_and(|n| n < 1) || to.dims[w.axis].as_const().is_some_and(|n| n < 1) {
        return Err(format!("a window of {} by {} does not fit dimension {} of {arg}", w.size, w.dilation, w.axis));
    }
    match declared {
        Some(given) if given.rank() != to.rank() => Err(format!("{given} has not the dimensions of {to}")),
        Some(given) => {
            let places = given.dims[w.axis].clone();
            if let (Some(n), Some(most)) = (places.as_const(), to.dims[w.axis].as_const())
                && n > most
            {
                return Err(format!("the window has {most} places in dimension {} of {arg}, not {n}", w.axis));
            }
            to.dims[w.axis] = places;
            Ok(to)
        }
        None => Ok(to),
    }
}

fn concat_type(axis: usize, args: &[&TensorType]) -> Verdict {
    let Some((first, rest)) = args.split_first() else { return Err("takes at least one operand".into()) };
    if axis >= first.rank() {
        return Err(format!("{first} has no dimension {axis}"));
    }
    let mut out = (*first).clone();
    for arg in rest {
        same_dtype(first, arg)?;
        let others = |t: &TensorType| {
            t.dims.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| d.clone()).collect::<Vec<_>>()
        };
        same(&others(first), &others(arg), "the other dimensions agree")?;
        out.dims[axis] = out.dims[axis].clone() + arg.dims[axis].clone();
    }
    Ok(out)
}

fn host_type(host: &Host, args: &[&TensorType], declared: &TensorType) -> Verdict {
    let ranks: Vec<usize> = args.iter().map(|a| a.rank()).collect();
    if !host.op.admits(host.result, &ranks, declared.dtype, declared.rank()) {
        return Err(format!("result {} of `{}` is not {declared}", host.result, host.op));
    }
    match host.binds.iter().find(|(axis, _)| *axis >= declared.rank()) {
        Some((axis, symbol)) => Err(format!("`{symbol}` is dimension {axis} of {declared}")),
        None => Ok(declared.clone()),
    }
}

fn broadcast_type(dims: &[usize], arg: &TensorType, to: &TensorType) -> Verdict {
    let increasing = dims.windows(2).all(|w| w[0] < w[1]) && dims.iter().all(|&d| d < to.rank());
    if dims.len() != arg.rank() || !increasing {
        return Err(format!("{dims:?} does not place the dimensions of {arg} in {to}"));
    }
    for (d, &at) in arg.dims.iter().zip(dims) {
        if !d.is_const(1) && *d != to.dims[at] {
            return Err(format!("{d} does not broadcast to {}", to.dims[at]));
        }
    }
    Ok(TensorType::new(arg.dtype, to.dims.clone()))
}

impl Graph {
    /// Appends a node whose type is inferred from its operands.
    pub fn add(&mut self, op: Op, args: &[Value], origins: &[String]) -> Result<Value> {
        self.add_as(op, args, None, origins)
    }

    /// Appends a node with a declared type; refuses one that breaks the operation's rule.
    pub fn add_as(&mut self, op: Op, args: &[Value], ty: Option<TensorType>, origins: &[String]) -> Result<Value> {
        let types: Vec<&TensorType> = args.iter().map(|&v| self.ty(v)).collect();
        let result = result_type(&op, &types, ty.as_ref())
            .map_err(|reason| Error::user("E0201", format!("{}: {reason}", op.name())));
        let named = |e: Box<Error>| match origins.first() {
            Some(origin) => e.node(origin),
            None => e,
        };
        let ty = result.map_err(named)?;
        super::graph::check_type(&ty).map_err(named)?;
        Ok(self.push(Node { op, args: args.to_vec(), ty, origins: origins.to_vec() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::{ReduceFn, ScalarFn};

    fn ty(dims: &[&str]) -> TensorType {
        TensorType::new(DType::F32, dims.iter().map(|d| Dim::parse(d).unwrap()).collect::<Vec<_>>())
    }

    fn inferred_type(op: Op, args: &[TensorType], declared: Option<&TensorType>) -> Verdict {
        result_type(&op, &args.iter().collect::<Vec<_>>(), declared)
    }

    #[test]
    fn shapes_follow() {
        let x = ty(&["b", "s", "384"]);
        assert_eq!(
            inferred_type(Op::Reduce { f: ReduceFn::Add, axes: vec![2] }, std::slice::from_ref(&x), None),
            Ok(ty(&["b", "s"]))
        );
        let spec = ContractSpec::parse("bmk,kn->bmn").unwrap();
        assert_eq!(inferred_type(Op::Contract(spec), &[x.clone(), ty(&["384", "8"])], None), Ok(ty(&["b", "s", "8"])));
        assert_eq!(
            inferred_type(Op::Concat { axis: 1 }, &[x.clone(), ty(&["b", "past", "384"])], None),
            Ok(ty(&["b", "past + s", "384"]))
        );
        assert_eq!(
            inferred_type(Op::Reshape, &[x], Some(&ty(&["b", "s", "12", "32"]))),
            Ok(ty(&["b", "s", "12", "32"]))
        );
    }

    #[test]
    fn broken_rules_are_named() {
        let x = ty(&["b", "s"]);
        assert!(
            inferred_type(Op::Map(ScalarFn::Add), &[x.clone(), ty(&["b", "t"])], None)
                .unwrap_err()
                .contains("[b, s] against [b, t]")
        );
        assert!(inferred_type(Op::Reshape, std::slice::from_ref(&x), Some(&ty(&["b", "s", "2"]))).is_err());
        assert!(inferred_type(Op::Transpose { perm: vec![0, 0] }, std::slice::from_ref(&x), None).is_err());
        assert!(
            inferred_type(Op::Broadcast { dims: vec![0, 1] }, std::slice::from_ref(&x), Some(&ty(&["b", "t"])))
                .is_err()
        );
        assert!(inferred_type(Op::Map(ScalarFn::Exp), &[], None).is_err());
        let slice = Op::Slice { starts: vec![Dim::constant(3)], steps: vec![2] };
        assert!(inferred_type(slice, &[ty(&["4"])], Some(&ty(&["2"]))).unwrap_err().contains("3 to 5"));
    }
}
