//! `func.func` of sdx operations  <=>  `Graph`

use super::{ContractSpec, Graph, Host, Node, Op, Place, Symbol, SymbolKind, TensorType, Value, WindowSpec};
use crate::mlir::{Attr, Context, NewBlock, NewOperation, Operand, Operation, Parts, Type};
use crate::params::{Part, read_parts, write_parts};
use crate::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_base::plan::Check;
use sardonyx_base::{Dim, Error, HostOp, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Converts the type of an operation's result or of an argument. Errors: E0901 for a type that is no tensor.
pub fn tensor_type(t: Type) -> Result<TensorType> {
    let (dims, dtype) = t.as_shaped().ok_or_else(|| Error::defect(format!("{} is no tensor type", t.text())))?;
    Ok(TensorType { dims, dtype })
}

/// Returns the attributes of an operation, by name; `read_op` is the inverse.
fn write_attrs<'c>(cx: Context<'c>, op: &Op) -> Result<Vec<(&'static str, Attr<'c>)>> {
    let usizes = |v: &[usize]| cx.i64s(&v.iter().map(|&x| x as i64).collect::<Vec<_>>());
    Ok(match op {
        Op::Input { .. } | Op::Convert(Conversion::Value) | Op::Reshape => vec![],
        Op::Convert(Conversion::Bits) => vec![("bits", cx.unit())],
        Op::Param { name, parts, bounded } => {
            let mut attrs = vec![("name", cx.str(name))];
            attrs.extend(bounded.then(|| ("bounded", cx.unit())));
            attrs.extend((!parts.is_empty()).then(|| ("parts", write_parts(cx, parts))));
            attrs
        }
        Op::Const(t) => vec![("value", cx.dense(t)?)],
        Op::Dims(values) => vec![("values", cx.strs(values))],
        Op::Map(f) => vec![("fn", cx.str(f.name()))],
        Op::Reduce { f, axes } => vec![("fn", cx.str(f.name())), ("axes", usizes(axes))],
        Op::Contract(spec) => vec![("spec", cx.str(&spec.to_string()))],
        Op::Gather { axis } | Op::Concat { axis } | Op::Append { axis } | Op::Iota { axis } => {
            vec![("axis", cx.i64(*axis as i64))]
        }
        Op::Slice { starts, steps } => vec![("starts", cx.strs(starts)), ("steps", cx.i64s(steps))],
        Op::Pad { low } => vec![("low", cx.strs(low))],
        Op::Window(w) => vec![
            ("axis", cx.i64(w.axis as i64)),
            ("size", cx.str(&w.size.to_string())),
            ("stride", cx.i64(w.stride)),
            ("dilation", cx.i64(w.dilation)),
        ],
        Op::Transpose { perm } => vec![("perm", usizes(perm))],
        Op::Broadcast { dims } => vec![("dims", usizes(dims))],
        Op::Bind { symbol } => vec![("symbol", cx.str(symbol))],
        Op::Place(place) => {
            let split = place
                .split
                .iter()
                .flat_map(|(dim, outer, unit)| [Dim::constant(*dim as i64), outer.clone(), unit.clone()]);
            vec![("mesh", cx.i64(place.mesh as i64)), ("split", cx.strs(&split.collect::<Vec<Dim>>()))]
        }
        Op::Host(host) => {
            let binds: Vec<String> = host.binds.iter().map(|(axis, symbol)| format!("{axis} {symbol}")).collect();
            vec![
                ("op", cx.str(&host.op.to_string())),
                ("group", cx.i64(host.group as i64)),
                ("number", cx.i64(host.result as i64)),
                ("binds", cx.strs(&binds)),
                ("bodies", cx.strs(&host.bodies)),
            ]
        }
    })
}

fn read_place(op: Operation) -> std::result::Result<Place, String> {
    let mesh = op.attr("mesh").and_then(Attr::as_i64).and_then(|n| usize::try_from(n).ok());
    let mesh = mesh.ok_or("`mesh` is no number of an axis")?;
    let split = op.attr("split").and_then(Attr::as_strs).ok_or("the attribute `split` is missing or malformed")?;
    let split = match &split[..] {
        [] => None,
        [dim, outer, unit] => {
            let of = |text: &str| Dim::parse(text).map_err(|e| e.message);
            Some((dim.parse().map_err(|_| format!("`{dim}` is no dimension"))?, of(outer)?, of(unit)?))
        }
        _ => return Err(format!("`split` is a dimension, runs and elements of a unit, not {split:?}")),
    };
    Ok(Place { mesh, split })
}

/// Returns `Conversion::Bits` if the operation has the attribute `bits`, else `Conversion::Value`.
pub fn conversion(op: Operation) -> Conversion {
    if op.attr("bits").is_some() { Conversion::Bits } else { Conversion::Value }
}

/// Returns the operation with its attributes, or the reason why it is no valid operation of the sdx level.
pub fn read_op(op: Operation) -> std::result::Result<Op, String> {
    let name = op.name();
    let missing = |what: &str| format!("the attribute `{what}` is missing or malformed");
    let text = |what: &str| op.attr(what).and_then(Attr::as_str).ok_or_else(|| missing(what));
    let usizes = |what: &str| -> std::result::Result<Vec<usize>, String> {
        let list = op.attr(what).and_then(Attr::as_i64s).ok_or_else(|| missing(what))?;
        list.into_iter()
            .map(|v| usize::try_from(v).map_err(|_| format!("`{what}` has the negative entry {v}")))
            .collect()
    };
    let axis = || {
        let axis = op.attr("axis").and_then(Attr::as_i64).ok_or_else(|| missing("axis"))?;
        usize::try_from(axis).map_err(|_| format!("the axis {axis} is negative"))
    };
    let positive = |what: &str| {
        let number = op.attr(what).and_then(Attr::as_i64).filter(|n| *n > 0);
        number.ok_or_else(|| format!("the attribute `{what}` is no positive number"))
    };
    let dims = |what: &str| {
        let list = op.attr(what).and_then(Attr::as_strs).ok_or_else(|| missing(what))?;
        list.iter().map(|d| Dim::parse(d).map_err(|e| e.message)).collect::<std::result::Result<Vec<Dim>, String>>()
    };
    Ok(match name.as_str() {
        "sdx.param" => {
            let parts = op.attr("parts").map_or(Some(vec![]), read_parts).ok_or_else(|| missing("parts"))?;
            Op::Param { name: text("name")?, parts, bounded: op.attr("bounded").is_some() }
        }
        "sdx.const" => {
            let ty = op.results().first().and_then(|r| tensor_type(r.ty()).ok()).ok_or("its result is no tensor")?;
            let value = op.attr("value").and_then(|value| value.as_constant(ty.dtype, &ty.dims));
            Op::Const(value.ok_or_else(|| missing("value"))?)
        }
        "sdx.dims" => Op::Dims(dims("values")?),
        "sdx.map" => {
            let f = text("fn")?;
            Op::Map(ScalarFn::from_name(&f).ok_or_else(|| format!("there is no scalar function `{f}`"))?)
        }
        "sdx.convert" => Op::Convert(conversion(op)),
        "sdx.reduce" => {
            let f = text("fn")?;
            let f = ReduceFn::from_name(&f).ok_or_else(|| format!("there is no reduction `{f}`"))?;
            Op::Reduce { f, axes: usizes("axes")? }
        }
        "sdx.contract" => {
            let spec = text("spec")?;
            Op::Contract(ContractSpec::parse(&spec).ok_or_else(|| format!("`{spec}` is no contraction"))?)
        }
        "sdx.gather" => Op::Gather { axis: axis()? },
        "sdx.slice" => Op::Slice {
            starts: dims("starts")?,
            steps: op.attr("steps").and_then(Attr::as_i64s).ok_or_else(|| missing("steps"))?,
        },
        "sdx.pad" => Op::Pad { low: dims("low")? },
        "sdx.window" => Op::Window(WindowSpec {
            axis: axis()?,
            size: Dim::parse(&text("size")?).map_err(|e| e.message)?,
            stride: positive("stride")?,
            dilation: positive("dilation")?,
        }),
        "sdx.concat" => Op::Concat { axis: axis()? },
        "sdx.append" => Op::Append { axis: axis()? },
        "sdx.reshape" => Op::Reshape,
        "sdx.transpose" => Op::Transpose { perm: usizes("perm")? },
        "sdx.broadcast" => Op::Broadcast { dims: usizes("dims")? },
        "sdx.iota" => Op::Iota { axis: axis()? },
        "sdx.bind" => Op::Bind { symbol: text("symbol")? },
        "sdx.place" => Op::Place(Box::new(read_place(op)?)),
        "sdx.host" => {
            let number = |what: &str| {
                let n = op.attr(what).and_then(Attr::as_i64).ok_or_else(|| missing(what))?;
                usize::try_from(n).map_err(|_| missing(what))
            };
            let (group, result) = (number("group")?, number("number")?);
            let (host_op, bodies) = read_host_op(op)?;
            let bind = |text: String| {
                let (axis, symbol) = text.split_once(' ').ok_or_else(|| missing("binds"))?;
                Ok((axis.parse().map_err(|_| missing("binds"))?, symbol.to_string()))
            };
            let binds = op.attr("binds").and_then(Attr::as_strs).ok_or_else(|| missing("binds"))?;
            let binds = binds.into_iter().map(bind).collect::<std::result::Result<_, String>>()?;
            Op::Host(Box::new(Host { op: host_op, bodies, group, result, binds }))
        }
        other => return Err(format!("`{other}` is not an operation of the sdx level")),
    })
}

/// Reads the attributes `op` and `bodies` of a host operation of any level.
pub fn read_host_op(op: Operation) -> std::result::Result<(HostOp, Vec<String>), String> {
    let text = op.attr("op").and_then(Attr::as_str).ok_or("`op` is missing")?;
    let host_op = HostOp::parse(&text).ok_or_else(|| format!("there is no host operation `{text}`"))?;
    let bodies = op.attr("bodies").and_then(Attr::as_strs).unwrap_or_default();
    match (bodies.len(), host_op.n_bodies()) {
        (n, wanted) if n == wanted => Ok((host_op, bodies)),
        (n, wanted) => Err(format!("`{text}` calls {wanted} functions, not {n}")),
    }
}

fn write_symbol(name: &str, s: &Symbol) -> String {
    let hi = s.hi.map_or(String::new(), |h| h.to_string());
    match &s.kind {
        SymbolKind::Input => format!("input {name} {}..{hi}", s.lo),
        SymbolKind::Data => format!("data {name} {}..{hi}", s.lo),
        SymbolKind::Capacity => format!("capacity {name} {}..{hi}", s.lo),
        SymbolKind::Kept => format!("kept {name} {}..{hi}", s.lo),
        SymbolKind::Rank { axis } => format!("rank {axis} {name} {}..{hi}", s.lo),
        SymbolKind::Derived { equals, why } => {
            format!("derived {}..{hi} {} = {equals} : {why}", s.lo, Dim::symbol(name))
        }
    }
}

fn read_symbol(text: &str) -> Option<(String, Symbol)> {
    let (kind, rest) = text.split_once(' ')?;
    let (name, kind, range) = match kind {
        "derived" => {
            let (range, rest) = rest.split_once(' ')?;
            let (name, rest) = split_after_dim(rest, " = ")?;
            let (equals, why) = split_after_dim(rest, " : ")?;
            (name.as_name()?.to_string(), SymbolKind::Derived { equals, why: why.into() }, range)
        }
        "rank" => {
            let ((axis, name), range) =
                rest.rsplit_once(' ').and_then(|(l, range)| Some((l.split_once(' ')?, range)))?;
            (name.to_string(), SymbolKind::Rank { axis: axis.parse().ok()? }, range)
        }
        "input" | "data" | "capacity" | "kept" => {
            let (name, range) = rest.rsplit_once(' ')?;
            let kind = match kind {
                "input" => SymbolKind::Input,
                "data" => SymbolKind::Data,
                "kept" => SymbolKind::Kept,
                _ => SymbolKind::Capacity,
            };
            (name.to_string(), kind, range)
        }
        _ => return None,
    };
    let (lo, hi) = range.split_once("..")?;
    let hi = if hi.is_empty() { None } else { Some(hi.parse().ok()?) };
    Some((name, Symbol { kind, lo: lo.parse().ok()?, hi }))
}

/// Splits text into an expression and the text after the separator, which may also occur within a quoted name of the
/// expression.
fn split_after_dim<'a>(text: &'a str, separator: &str) -> Option<(Dim, &'a str)> {
    let parsed = |(at, _): (usize, &str)| Some((Dim::parse(&text[..at]).ok()?, &text[at + separator.len()..]));
    text.match_indices(separator).find_map(parsed)
}

/// Returns the attribute that declares symbols, with one string for each symbol.
pub fn write_symbols<'c>(cx: Context<'c>, symbols: &BTreeMap<String, Symbol>) -> Attr<'c> {
    cx.strs(&symbols.iter().map(|(n, s)| write_symbol(n, s)).collect::<Vec<_>>())
}

/// Reads the attribute that [`write_symbols`] writes. Errors: E0204 for a string that declares no symbol.
pub fn read_symbols(attr: Option<Attr>) -> Result<BTreeMap<String, Symbol>> {
    let list = attr.and_then(Attr::as_strs).unwrap_or_default();
    let one = |t: &String| read_symbol(t).ok_or_else(|| Error::user("E0204", format!("`{t}` declares no symbol")));
    list.iter().map(one).collect()
}

/// Returns the attribute that states the equalities of dimensions that every call must satisfy.
pub fn write_checks<'c>(cx: Context<'c>, checks: &[Check]) -> Attr<'c> {
    cx.strs(&checks.iter().map(|c| format!("{} == {} : {}", c.left, c.right, c.why)).collect::<Vec<_>>())
}

/// Reads the attribute that [`write_checks`] writes. Errors: E0204 for a string that states no equality of dimensions.
pub fn read_checks(attr: Option<Attr>) -> Result<Vec<Check>> {
    let list = attr.and_then(Attr::as_strs).unwrap_or_default();
    let one = |t: &String| -> Result<Check> {
        let parts = t.split_once(" == ").and_then(|(l, rest)| rest.split_once(" : ").map(|(r, why)| (l, r, why)));
        let (left, right, why) = parts.ok_or_else(|| Error::user("E0204", format!("`{t}` states no equality")))?;
        Ok(Check { left: Dim::parse(left)?, right: Dim::parse(right)?, why: why.into() })
    };
    list.iter().map(one).collect()
}

/// Returns the attributes of a function at this level: symbols, checks, names of the results, and whether the function
/// is internal.
pub fn function_attrs<'c>(cx: Context<'c>, graph: &Graph) -> Vec<(&'static str, Attr<'c>)> {
    let names: Vec<&str> = graph.outputs.iter().map(|(n, _)| n.as_str()).collect();
    let mut attrs = vec![
        ("sdx.symbols", write_symbols(cx, &graph.symbols)),
        ("sdx.checks", write_checks(cx, &graph.checks)),
        ("sdx.results", cx.strs(&names)),
    ];
    attrs.extend(graph.internal.then(|| ("sdx.internal", cx.unit())));
    attrs
}

/// Returns the internal function of this name, which a host operation calls. Errors: E0901 if there is none.
pub fn called<'m>(module: Operation<'m>, name: &str) -> Result<Operation<'m>> {
    let named = |op: &Operation| {
        let own = op.attr("sym_name").and_then(Attr::as_str);
        op.name() == "func.func" && own.as_deref() == Some(name) && is_internal(*op)
    };
    let functions = module.block(0).map_or(vec![], |b| b.operations());
    let found = functions.into_iter().find(named);
    found.ok_or_else(|| Error::defect(format!("the function `{name}` is called, but not there")))
}

/// Returns whether only host operations of other functions call this function.
pub fn is_internal(function: Operation) -> bool {
    function.attr("sdx.internal").is_some()
}

/// Returns the attributes of an argument as a dictionary: its name, and the parts of it that a rank holds.
pub fn argument<'c>(cx: Context<'c>, name: &str, parts: &[Part]) -> Attr<'c> {
    let mut attrs = vec![("sdx.name".to_string(), cx.str(name))];
    attrs.extend((!parts.is_empty()).then(|| ("sdx.parts".to_string(), write_parts(cx, parts))));
    cx.dict(&attrs)
}

/// Creates a `func.func` from a body block and the attributes of the block's arguments.
pub fn build_function<'c>(
    cx: Context<'c>,
    name: &str,
    body: NewBlock<'c>,
    arguments: &[Attr],
    results: &[Type],
    attrs: Vec<(&'static str, Attr<'c>)>,
) -> Result<NewOperation<'c>> {
    let inputs = body.argument_types();
    let mut all = vec![
        ("sym_name", cx.str(name)),
        ("function_type", cx.type_attr(cx.function_type(&inputs, results))),
        ("arg_attrs", cx.array(arguments)),
    ];
    all.extend(attrs);
    cx.build(Parts { name: "func.func", attrs: &all, regions: vec![body], ..Parts::default() })
}

/// Returns the names of a function's arguments: the attribute `sdx.name`, or `argI` for an argument I without it.
pub fn argument_names(function: Operation) -> Vec<String> {
    let names = argument_attrs(function, "sdx.name").into_iter().enumerate();
    names.map(|(i, attr)| attr.and_then(Attr::as_str).unwrap_or_else(|| format!("arg{i}"))).collect()
}

/// Returns the attribute called `name` of each argument; `None` for an argument without it.
fn argument_attrs<'m>(function: Operation<'m>, name: &str) -> Vec<Option<Attr<'m>>> {
    let count = function.block(0).map_or(0, |b| b.arguments().len());
    let attrs = function.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let one = |i: usize| {
        let entries = attrs.get(i).and_then(|a| a.as_dict()).unwrap_or_default();
        entries.iter().find(|(n, _)| n == name).map(|(_, a)| *a)
    };
    (0..count).map(one).collect()
}

/// Returns the names of the results: those in `sdx.results`, or `resultI` for a result I that the attribute does not
/// name.
pub fn result_names(function: Operation, count: usize) -> Vec<String> {
    let names = function.attr("sdx.results").and_then(Attr::as_strs).unwrap_or_default();
    (0..count).map(|i| names.get(i).cloned().unwrap_or_else(|| format!("result{i}"))).collect()
}

impl Graph {
    /// Reads a `func.func` of sdx operations. Errors: E0901 for other operations or malformed attributes, E0204 for
    /// malformed symbols or checks.
    pub fn read(function: Operation) -> Result<Graph> {
        let name = function.attr("sym_name").and_then(Attr::as_str).unwrap_or_default();
        let symbols = read_symbols(function.attr("sdx.symbols"))?;
        let checks = read_checks(function.attr("sdx.checks"))?;
        let mut graph = Graph { name, symbols, checks, internal: is_internal(function), ..Graph::default() };
        let body = function.block(0).ok_or_else(|| Error::defect("a function has no body"))?;
        let mut values: HashMap<usize, Value> = HashMap::new();
        let named = argument_names(function).into_iter().zip(argument_attrs(function, "sdx.parts"));
        for (argument, (name, parts)) in body.arguments().into_iter().zip(named) {
            let ty = tensor_type(argument.ty())?;
            let parts = parts.map_or(Some(vec![]), read_parts);
            let parts = parts.ok_or_else(|| Error::defect(format!("`sdx.parts` of `{name}` says no parts")))?;
            let op = Op::Input { name, parts };
            values.insert(argument.key(), graph.push(Node { op, args: vec![], ty, origins: vec![] }));
        }
        for op in body.operations() {
            let args: Option<Vec<Value>> = op.operands().iter().map(|v| values.get(&v.key()).copied()).collect();
            let args = args.ok_or_else(|| Error::defect(format!("`{}` uses a value of another level", op.name())))?;
            if op.name() == "func.return" {
                graph.outputs = result_names(function, args.len()).into_iter().zip(args).collect();
                continue;
            }
            let result = op.results()[0];
            let meaning = read_op(op).map_err(Error::defect)?;
            let node = Node { op: meaning, args, ty: tensor_type(result.ty())?, origins: op.origins() };
            values.insert(result.key(), graph.push(node));
        }
        Ok(graph)
    }

    /// Reads a function, together with all functions of the module that its host operations call, directly or
    /// indirectly. Errors: those of `Graph::read`, and E0901 for a called function that does not exist.
    pub fn read_whole(function: Operation, module: Operation) -> Result<Graph> {
        let mut graph = Graph::read(function)?;
        let hosts =
            graph.nodes.iter().filter_map(|n| if let Op::Host(host) = &n.op { Some(&host.bodies) } else { None });
        for name in hosts.flatten().cloned().collect::<BTreeSet<String>>() {
            let body = self::called(module, &name)?;
            graph.bodies.insert(name, Graph::read_whole(body, module)?);
        }
        Ok(graph)
    }

    /// Creates a detached `func.func`; nodes that are not live are omitted, except inputs.
    pub fn write<'c>(&self, cx: Context<'c>) -> Result<NewOperation<'c>> {
        let live = self.live();
        let inputs: Vec<Value> = self.inputs().map(|(v, _, _)| v).collect();
        let types: Vec<Type> = inputs.iter().map(|&v| cx.tensor(self.ty(v).dtype, &self.ty(v).dims)).collect();
        let body = NewBlock::new(cx, &types);
        let mut values: HashMap<Value, Operand> = inputs.iter().copied().zip(body.arguments()).collect();
        for (v, node) in self.values().filter(|(v, n)| live[v.index()] && !matches!(n.op, Op::Input { .. })) {
            let operands: Vec<Operand> = node.args.iter().map(|a| values[a]).collect();
            let op = cx.build(Parts {
                name: node.op.name(),
                operands: &operands,
                results: &[cx.tensor(node.ty.dtype, &node.ty.dims)],
                attrs: &write_attrs(cx, &node.op)?,
                origins: &node.origins,
                ..Parts::default()
            })?;
            values.insert(v, body.push(op)[0]);
        }
        let results: Vec<Operand> = self.outputs.iter().map(|(_, v)| values[v]).collect();
        body.push(cx.build(Parts { name: "func.return", operands: &results, ..Parts::default() })?);
        let arguments = self.inputs().map(|(v, name, _)| argument(cx, name, self.parts(v)));
        let types: Vec<Type> = results.iter().map(|v| body.type_of(*v)).collect();
        build_function(cx, &self.name, body, &arguments.collect::<Vec<_>>(), &types, function_attrs(cx, self))
    }

    /// Returns, for each node, whether an output or the binding of a symbol needs the node. Bindings are always live,
    /// because types refer to the symbols.
    pub fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.nodes.len()];
        let bindings = self.values().filter(|(_, n)| !n.op.binds().is_empty()).map(|(v, _)| v);
        for v in self.outputs.iter().map(|(_, v)| *v).chain(bindings) {
            live[v.index()] = true;
        }
        for i in (0..self.nodes.len()).rev().filter(|&i| live[i]).collect::<Vec<_>>() {
            self.mark(i, &mut live);
        }
        live
    }

    fn mark(&self, from: usize, live: &mut [bool]) {
        let mut stack = vec![from];
        while let Some(i) = stack.pop() {
            live[i] = true;
            stack.extend(self.nodes[i].args.iter().map(|a| a.index()).filter(|&a| !live[a]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_read_as_they_were_written() {
        let derived =
            |equals: &str, why: &str| SymbolKind::Derived { equals: Dim::parse(equals).unwrap(), why: why.into() };
        for (name, kind, lo, hi, text) in [
            ("batch size", SymbolKind::Input, 1, Some(8), "input batch size 1..8"),
            ("data0", SymbolKind::Data, 0, None, "data data0 0.."),
            ("my rank", SymbolKind::Rank { axis: 1 }, 0, Some(3), "rank 1 my rank 0..3"),
            ("total", derived("past + seq", "/add"), 2, None, "derived 2.. total = past + seq : /add"),
            ("a = b", derived("\"c : d\"", "x : y"), 0, Some(3), "derived 0..3 \"a = b\" = \"c : d\" : x : y"),
        ] {
            let symbol = Symbol { kind, lo, hi };
            assert_eq!(write_symbol(name, &symbol), text);
            assert_eq!(read_symbol(text), Some((name.to_string(), symbol)));
        }
        for wrong in ["input n", "other n 0..", "input n 0..x", "derived 0.. n : /add", "derived 0.. 2*n = m : /add"] {
            assert_eq!(read_symbol(wrong), None, "{wrong}");
        }
    }
}
