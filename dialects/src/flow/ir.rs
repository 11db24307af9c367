//! `func.func` of flow operations  <=>  `Program`; `flow.kernel`  <=>  `Kernel`

use super::kernel::{Body, Container, Kernel, Layout, Memlet, Statement, Store};
use super::program::{FlowOp, Id, Program, Source, State, Step, TensorValue, Window};
use super::transform::Transform;
use crate::mlir::{Attr, Context, NewBlock, NewOperation, Operand, Operation, Parts, Type, Val};
use crate::params::{read_parts, write_parts};
use crate::scalar::{Conversion, ReduceFn, ScalarFn};
use crate::sdx::ir as sdx_ir;
use sardonyx_base::plan::{HostCall, HostResult};
use sardonyx_base::{Dim, Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

type Reading<T> = std::result::Result<T, String>;

/// Reads a `!flow.container`; the error says why it is invalid.
pub fn container_of(t: Type) -> Reading<Container> {
    let (dims, dtype) = t.as_shaped().ok_or_else(|| format!("{} is no container", t.text()))?;
    let stored = t.container_layout().and_then(|storage| Container::plain(dtype, dims).stored_as(&storage));
    let container = stored.ok_or_else(|| format!("{} has no layout or encoding that is known", t.text()))?;
    match container.layout {
        Layout::Capacity { axis, .. } if axis >= container.dims.len() => {
            Err(format!("{} has no dimension for its capacity", t.text()))
        }
        Layout::Capacity { .. } | Layout::RowMajor | Layout::Order(_) => Ok(container),
    }
}

/// The type of a container.
pub fn container_type<'c>(cx: Context<'c>, c: &Container) -> Type<'c> {
    cx.container(c.dtype, &c.dims, &c.storage())
}

fn dims_attr(op: Operation, name: &str) -> Reading<Vec<Dim>> {
    let texts = op.attr(name).and_then(Attr::as_strs).ok_or_else(|| format!("`{name}` is missing"))?;
    texts.iter().map(|t| Dim::parse(t).map_err(|e| e.message)).collect()
}

fn text_attr(op: Operation, name: &str) -> Reading<String> {
    op.attr(name).and_then(Attr::as_str).ok_or_else(|| format!("`{name}` is missing"))
}

fn memlet(op: Operation, which: &str) -> Reading<Memlet> {
    let number = op.attr(which).and_then(Attr::as_i64).ok_or_else(|| format!("`{which}` is missing"))?;
    let container = usize::try_from(number).map_err(|_| format!("`{which}` is negative"))?;
    Ok(Memlet { container, index: dims_attr(op, "index")? })
}

/// Reads a `flow.kernel` and checks it.
pub fn read_kernel(op: Operation) -> Reading<Kernel> {
    let containers = |values: Vec<Val>| values.iter().map(|v| container_of(v.ty())).collect::<Reading<Vec<_>>>();
    let mut kernel = Kernel {
        outer: dims_attr(op, "outer")?,
        inner: dims_attr(op, "inner")?,
        deep: if op.attr("deep").is_some() { dims_attr(op, "deep")? } else { vec![] },
        reads: containers(op.operands())?,
        writes: containers(op.results())?,
        body: vec![],
        stores: vec![],
    };
    let mut values: HashMap<usize, usize> = HashMap::new();
    let block = op.block(0).ok_or("a kernel has a body")?;
    for inner in block.operations() {
        let args = inner.operands().iter().map(|v| values.get(&v.key()).copied()).collect::<Option<Vec<usize>>>();
        let args = args.ok_or("a statement uses a value from outside its kernel")?;
        if inner.name() == "flow.store" {
            kernel.stores.push(Store { memlet: memlet(inner, "out")?, value: args[0] });
            continue;
        }
        let body = read_statement(inner, args)?;
        let result = inner.results()[0];
        let dtype = result.ty().as_element().ok_or_else(|| format!("{} is no element type", result.ty().text()))?;
        values.insert(result.key(), kernel.body.len());
        kernel.body.push(Statement { body, dtype });
    }
    kernel.check()?;
    Ok(kernel)
}

fn read_statement(op: Operation, args: Vec<usize>) -> Reading<Body> {
    Ok(match op.name().as_str() {
        "flow.load" => Body::Load { memlet: memlet(op, "arg")?, guard: args.first().copied() },
        "flow.scalar" => Body::Const(op.attr("value").and_then(Attr::as_f64).ok_or("`value` is missing")?),
        "flow.index" => Body::Index(Dim::parse(&text_attr(op, "value")?).map_err(|e| e.message)?),
        "flow.apply" => {
            let f = text_attr(op, "fn")?;
            let f = ScalarFn::from_name(&f).ok_or_else(|| format!("there is no scalar function `{f}`"))?;
            Body::Apply { f, args }
        }
        "flow.convert" => Body::Convert(args[0], crate::sdx::ir::conversion(op)),
        "flow.reduce" => {
            let f = text_attr(op, "fn")?;
            let f = ReduceFn::from_name(&f).ok_or_else(|| format!("there is no reduction `{f}`"))?;
            Body::Reduce { f, arg: args[0] }
        }
        other => return Err(format!("`{other}` is no statement of a kernel")),
    })
}

/// Checks a `flow.kernel`; the error says what is wrong with it.
pub fn verify_kernel(op: Operation) -> Reading<()> {
    read_kernel(op).map(|_| ())
}

/// Creates a detached `flow.kernel` over the given operands.
pub fn write_kernel<'c>(
    cx: Context<'c>,
    kernel: &Kernel,
    operands: &[Operand],
    origins: &[String],
) -> Result<NewOperation<'c>> {
    let block = NewBlock::new(cx, &[]);
    let mut values: Vec<Operand> = vec![];
    for statement in &kernel.body {
        values.push(block.push(write_statement(cx, statement, &values)?)[0]);
    }
    for store in &kernel.stores {
        let attrs = [("out", cx.i64(store.memlet.container as i64)), ("index", cx.strs(&store.memlet.index))];
        let value = [values[store.value]];
        block.push(cx.build(Parts { name: "flow.store", operands: &value, attrs: &attrs, ..Parts::default() })?);
    }
    let results: Vec<Type> = kernel.writes.iter().map(|c| container_type(cx, c)).collect();
    let mut attrs = vec![("outer", cx.strs(&kernel.outer)), ("inner", cx.strs(&kernel.inner))];
    if !kernel.deep.is_empty() {
        attrs.push(("deep", cx.strs(&kernel.deep)));
    }
    let regions = vec![block];
    cx.build(Parts { name: "flow.kernel", operands, results: &results, attrs: &attrs, regions, origins })
}

fn write_statement<'c>(cx: Context<'c>, statement: &Statement, values: &[Operand]) -> Result<NewOperation<'c>> {
    let of = |ids: &[usize]| ids.iter().map(|&i| values[i]).collect::<Vec<_>>();
    let (name, operands, attrs) = match &statement.body {
        Body::Load { memlet, guard } => {
            let attrs = vec![("arg", cx.i64(memlet.container as i64)), ("index", cx.strs(&memlet.index))];
            ("flow.load", of(guard.as_slice()), attrs)
        }
        Body::Const(v) => ("flow.scalar", vec![], vec![("value", cx.f64(*v))]),
        Body::Index(d) => ("flow.index", vec![], vec![("value", cx.str(&d.to_string()))]),
        Body::Apply { f, args } => ("flow.apply", of(args), vec![("fn", cx.str(f.name()))]),
        Body::Convert(arg, Conversion::Value) => ("flow.convert", of(&[*arg]), vec![]),
        Body::Convert(arg, Conversion::Bits) => ("flow.convert", of(&[*arg]), vec![("bits", cx.unit())]),
        Body::Reduce { f, arg } => ("flow.reduce", of(&[*arg]), vec![("fn", cx.str(f.name()))]),
    };
    let results = [cx.element(statement.dtype)];
    cx.build(Parts { name, operands: &operands, results: &results, attrs: &attrs, ..Parts::default() })
}

/// Reads the attribute `window`, as [`write_window`] writes it: `offset, stride_k, stride_n, extent, stride, …`.
pub fn read_window(attr: Option<Attr>) -> Reading<Option<Window>> {
    match attr.and_then(Attr::as_i64s).as_deref() {
        None => Ok(None),
        Some([offset, stride_k, stride_n, digits @ ..]) if digits.as_chunks::<2>().1.is_empty() => {
            let digits = digits.as_chunks::<2>().0.iter().map(|[extent, stride]| (*extent, *stride)).collect();
            Ok(Some(Window { offset: *offset, stride_k: *stride_k, stride_n: *stride_n, digits }))
        }
        Some(other) => {
            Err(format!("a window is offset, stride_k, stride_n and pairs of extent and stride, not {other:?}"))
        }
    }
}

/// Reads a source from the attribute `name`, for several parameters also `others` and `axis`, and from the optional
/// attributes `parts` and `transform`.
pub fn read_source(op: Operation) -> Reading<Source> {
    let mut names = vec![text_attr(op, "name")?];
    names.extend(op.attr("others").and_then(Attr::as_strs).unwrap_or_default());
    let axis = op.attr("axis").and_then(Attr::as_i64);
    let parts = match op.attr("parts") {
        None => vec![],
        Some(attr) => {
            let parts = attr.as_array().map(|all| all.into_iter().map(read_parts).collect::<Option<Vec<_>>>());
            parts.flatten().filter(|p| p.len() == names.len()).ok_or("`parts` says the parts of each parameter")?
        }
    };
    match (names.len(), axis.map(usize::try_from)) {
        (1, None) => Ok(Source { names, parts, axis: 0, transform: read_transform(op)? }),
        (1, Some(_)) => Err("one parameter is along no axis".into()),
        (_, Some(Ok(axis))) => Ok(Source { names, parts, axis, transform: read_transform(op)? }),
        (_, Some(Err(_)) | None) => Err("several parameters are one behind the other along an axis".into()),
    }
}

fn read_transform(op: Operation) -> Reading<Option<Transform>> {
    let Some(name) = op.attr("transform").and_then(Attr::as_str) else { return Ok(None) };
    Transform::from_name(&name).map(Some).ok_or_else(|| format!("there is no transform `{name}`"))
}

/// The attributes that [`read_source`] reads.
pub fn write_source<'a, 'c>(cx: Context<'c>, source: &Source) -> Vec<(&'a str, Attr<'c>)> {
    let mut attrs = vec![("name", cx.str(&source.names[0]))];
    if source.names.len() > 1 {
        attrs.extend([("others", cx.strs(&source.names[1..])), ("axis", cx.i64(source.axis as i64))]);
    }
    attrs.extend(source.transform.map(|t| ("transform", cx.str(&t.to_string()))));
    if !source.parts.is_empty() {
        let parts: Vec<Attr> = source.parts.iter().map(|parts| write_parts(cx, parts)).collect();
        attrs.push(("parts", cx.array(&parts)));
    }
    attrs
}

/// The attribute `window` of a packed constant, as `read_window` reads it.
pub fn write_window<'c>(cx: Context<'c>, w: &Window) -> Attr<'c> {
    let digits = w.digits.iter().flat_map(|(extent, stride)| [*extent, *stride]);
    cx.i64s(&[w.offset, w.stride_k, w.stride_n].into_iter().chain(digits).collect::<Vec<_>>())
}

/// The attributes of a host step that the flow and the plan level share; `bodies` are the names of its bodies. The
/// binding `"0 1 n"` says that dimension 1 of result 0 is `n`; results are counted among those that some step reads.
pub fn write_host<'a, 'c, T>(cx: Context<'c>, host: &HostCall<T>, bodies: &[String]) -> Vec<(&'a str, Attr<'c>)> {
    let binds = host.results.iter().enumerate();
    let binds = binds.flat_map(|(i, r)| r.binds.iter().map(move |(axis, symbol)| format!("{i} {axis} {symbol}")));
    vec![
        ("op", cx.str(&host.op.to_string())),
        ("numbers", cx.i64s(&host.results.iter().map(|r| r.index as i64).collect::<Vec<_>>())),
        ("binds", cx.strs(&binds.collect::<Vec<_>>())),
        ("bodies", cx.strs(bodies)),
    ]
}

/// Reads the attributes that [`write_host`] writes.
pub fn read_host(op: Operation) -> Reading<HostCall<String>> {
    let (host_op, bodies) = sdx_ir::read_host_op(op)?;
    let numbers = op.attr("numbers").and_then(Attr::as_i64s).ok_or("`numbers` is missing")?;
    let result = |n: i64| usize::try_from(n).map(|index| HostResult { index, binds: vec![] });
    let results: std::result::Result<Vec<HostResult>, _> = numbers.into_iter().map(result).collect();
    let mut results = results.map_err(|_| "a result has a negative number")?;
    for text in op.attr("binds").and_then(Attr::as_strs).unwrap_or_default() {
        let mut parts = text.splitn(3, ' ');
        let mut number = || parts.next().and_then(|t| t.parse::<usize>().ok());
        let (at, axis) = (number(), number());
        let bound = at.and_then(|at| results.get_mut(at)).zip(axis).zip(parts.next());
        let ((result, axis), symbol) = bound.ok_or_else(|| format!("`{text}` binds no dimension"))?;
        result.binds.push((axis, symbol.to_string()));
    }
    Ok(HostCall { op: host_op, bodies, results })
}

/// Writes states: `"0 1 kept"` says that output 1 continues input 0, of which `kept` positions stay unchanged. An array
/// with the parts that a rank holds of these tensors may follow: `["0 1 kept", ["1", "1", "4", "3", "rank0", "1"]]`.
pub fn write_states<'c>(cx: Context<'c>, states: &[State]) -> Attr<'c> {
    let text = |s: &State| {
        let kept = s.kept.as_ref().map_or(String::new(), |kept| format!(" {kept}"));
        cx.str(&format!("{} {}{kept}", s.input, s.output))
    };
    let attrs = |s: &State| {
        let parts = (!s.parts.is_empty()).then(|| write_parts(cx, &s.parts));
        std::iter::once(text(s)).chain(parts).collect::<Vec<_>>()
    };
    cx.array(&states.iter().flat_map(attrs).collect::<Vec<_>>())
}

/// Reads the attribute that [`write_states`] writes. Errors: E0901.
pub fn read_states(attr: Option<Attr>) -> Result<Vec<State>> {
    let state = |text: String| {
        let (input, rest) = text.split_once(' ')?;
        let (output, kept) =
            rest.split_once(' ').map_or((rest, None), |(output, kept)| (output, Some(kept.to_string())));
        Some(State { input: input.parse().ok()?, output: output.parse().ok()?, kept, parts: vec![] })
    };
    let mut states: Vec<State> = vec![];
    for attr in attr.and_then(Attr::as_array).unwrap_or_default() {
        let read = match attr.as_str() {
            Some(text) => state(text).map(|state| states.push(state)),
            None => read_parts(attr).zip(states.last_mut()).map(|(parts, state)| state.parts = parts),
        };
        read.ok_or_else(|| Error::defect("a state is an input, an output and what counts the kept positions"))?;
    }
    Ok(states)
}

impl Program {
    /// Reads a `func.func` of flow operations. Errors: E0901 if it holds other operations or malformed attributes.
    pub fn read(function: Operation) -> Result<Program> {
        let name = function.attr("sym_name").and_then(Attr::as_str).unwrap_or_default();
        let symbols = sdx_ir::read_symbols(function.attr("sdx.symbols"))?;
        let checks = sdx_ir::read_checks(function.attr("sdx.checks"))?;
        let states = read_states(function.attr("sdx.states"))?;
        let internal = sdx_ir::is_internal(function);
        let mut program = Program { name, symbols, checks, states, internal, ..Program::default() };
        let body = function.block(0).ok_or_else(|| Error::defect("a function has no body"))?;
        let mut ids: HashMap<usize, Id> = HashMap::new();
        for (argument, name) in body.arguments().into_iter().zip(sdx_ir::argument_names(function)) {
            let id = program.container(container_of(argument.ty()).map_err(Error::defect)?);
            program.inputs.push((name, id));
            ids.insert(argument.key(), id);
        }
        for op in body.operations() {
            let args: Option<Vec<Id>> = op.operands().iter().map(|v| ids.get(&v.key()).copied()).collect();
            let args = args.ok_or_else(|| Error::defect(format!("`{}` uses a value of another level", op.name())))?;
            if op.name() == "func.return" {
                program.outputs = sdx_ir::result_names(function, args.len()).into_iter().zip(args).collect();
                continue;
            }
            let mut results = vec![];
            for result in op.results() {
                let id = program.container(container_of(result.ty()).map_err(Error::defect)?);
                ids.insert(result.key(), id);
                results.push(id);
            }
            let flow_op = read_op(op).map_err(Error::defect)?;
            program.steps.push(Step { op: flow_op, args, results, origins: op.origins() });
        }
        Ok(program)
    }

    /// Reads a program with everything that running it needs: the module's prepared parameters, and the programs that
    /// its host steps call.
    pub fn read_whole(function: Operation, module: Operation) -> Result<Program> {
        let mut program = Program::read(function)?;
        program.prepared = super::prepared::read(module)?;
        let called =
            program.steps.iter().filter_map(|s| if let FlowOp::Host(h) = &s.op { Some(&h.bodies) } else { None });
        for name in called.flatten().cloned().collect::<BTreeSet<String>>() {
            let body = sdx_ir::called(module, &name)?;
            program.bodies.insert(name, Program::read_whole(body, module)?);
        }
        Ok(program)
    }

    /// Creates a detached `func.func`. Errors: E0901.
    pub fn write<'c>(&self, cx: Context<'c>) -> Result<NewOperation<'c>> {
        let types: Vec<Type> = self.inputs.iter().map(|(_, id)| container_type(cx, &self.containers[*id])).collect();
        let body = NewBlock::new(cx, &types);
        let mut values: HashMap<Id, Operand> = self.inputs.iter().map(|(_, id)| *id).zip(body.arguments()).collect();
        for step in &self.steps {
            let operands: Vec<Operand> = step.args.iter().map(|a| values[a]).collect();
            let results: Vec<Type> = step.results.iter().map(|r| container_type(cx, &self.containers[*r])).collect();
            let parts = Parts { operands: &operands, results: &results, origins: &step.origins, ..Parts::default() };
            let op = match &step.op {
                FlowOp::Kernel(kernel) => write_kernel(cx, kernel, &operands, &step.origins)?,
                FlowOp::Param { source, window } => {
                    let mut attrs = write_source(cx, source);
                    attrs.extend(window.iter().map(|w| ("window", write_window(cx, w))));
                    cx.build(Parts { name: "flow.param", attrs: &attrs, ..parts })?
                }
                FlowOp::Const(t) => {
                    cx.build(Parts { name: "flow.const", attrs: &[("value", cx.dense(&t.0)?)], ..parts })?
                }
                FlowOp::View => cx.build(Parts { name: "flow.view", ..parts })?,
                FlowOp::Bind { symbol } => {
                    cx.build(Parts { name: "flow.bind", attrs: &[("symbol", cx.str(symbol))], ..parts })?
                }
                FlowOp::Host(host) => {
                    cx.build(Parts { name: "flow.host", attrs: &write_host(cx, host, &host.bodies), ..parts })?
                }
            };
            values.extend(step.results.iter().copied().zip(body.push(op)));
        }
        let results: Vec<Operand> = self.outputs.iter().map(|(_, id)| values[id]).collect();
        body.push(cx.build(Parts { name: "func.return", operands: &results, ..Parts::default() })?);
        let inputs: Vec<Attr> = self.inputs.iter().map(|(name, _)| sdx_ir::argument(cx, name, &[])).collect();
        let outputs: Vec<&String> = self.outputs.iter().map(|(n, _)| n).collect();
        let types: Vec<Type> = results.iter().map(|v| body.type_of(*v)).collect();
        let mut attrs = vec![
            ("sdx.symbols", sdx_ir::write_symbols(cx, &self.symbols)),
            ("sdx.checks", sdx_ir::write_checks(cx, &self.checks)),
            ("sdx.results", cx.strs(&outputs)),
        ];
        if !self.states.is_empty() {
            attrs.push(("sdx.states", write_states(cx, &self.states)));
        }
        attrs.extend(self.internal.then(|| ("sdx.internal", cx.unit())));
        sdx_ir::build_function(cx, &self.name, body, &inputs, &types, attrs)
    }
}

fn read_op(op: Operation) -> Reading<FlowOp> {
    Ok(match op.name().as_str() {
        "flow.kernel" => FlowOp::Kernel(Arc::new(read_kernel(op)?)),
        "flow.param" => FlowOp::Param { source: read_source(op)?, window: read_window(op.attr("window"))? },
        "flow.const" => {
            let result = op.results().first().map(|r| r.ty()).ok_or("it has no result")?;
            let container = container_of(result)?;
            let value = op.attr("value").and_then(|value| value.as_constant(container.dtype, &container.dims));
            FlowOp::Const(TensorValue(value.ok_or("`value` is missing")?))
        }
        "flow.view" => FlowOp::View,
        "flow.bind" => FlowOp::Bind { symbol: text_attr(op, "symbol")? },
        "flow.host" => FlowOp::Host(read_host(op)?),
        other => return Err(format!("`{other}` is not an operation of the flow level")),
    })
}
