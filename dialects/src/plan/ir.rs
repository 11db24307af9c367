//! `plan.kernel …` and `plan.entry …`  <=>  `Plan`

use super::program::{Buffer, Entry, Plan};
use super::{Action, Bind, Copy, Host, HostCall, Launch, Operand, Step};
use crate::flow::ir::{
    container_of, container_type, read_host, read_kernel, read_source, read_states, read_window, write_host,
    write_kernel, write_source, write_states, write_window,
};
use crate::flow::{Container, TensorValue, prepared};
use crate::mlir::{self, Attr, Context, Module, NewBlock, NewOperation, Operation, Parts, Type};
use crate::sdx::ir as sdx_ir;
use sardonyx_base::{Dim, Error, Result};
use std::collections::HashMap;

impl Plan {
    /// Writes detached operations: the kernels, then the entries.
    pub fn write<'c>(&self, cx: Context<'c>) -> Result<Vec<NewOperation<'c>>> {
        let mut out = vec![];
        for (symbol, kernel) in &self.kernels {
            let types: Vec<Type> = kernel.reads.iter().map(|c| container_type(cx, c)).collect();
            let body = NewBlock::new(cx, &types);
            body.push(write_kernel(cx, kernel, &body.arguments(), &[])?);
            let attrs = [("sym_name", cx.str(symbol))];
            out.push(cx.build(Parts {
                name: "plan.kernel",
                attrs: &attrs,
                regions: vec![body],
                ..Parts::default()
            })?);
        }
        for entry in &self.entries {
            out.push(self.write_entry(cx, entry)?);
        }
        Ok(out)
    }

    fn write_entry<'c>(&self, cx: Context<'c>, entry: &Entry) -> Result<NewOperation<'c>> {
        let body = NewBlock::new(cx, &[]);
        let mut values: Vec<mlir::Operand> = vec![];
        for buffer in &entry.buffers {
            values.push(body.push(write_buffer(cx, buffer)?)[0]);
        }
        for step in &entry.steps {
            body.push(self.write_step(cx, step, &values)?);
        }
        let arena = entry.arena_bytes.as_ref().map_or(String::new(), Dim::to_string);
        let mut attrs = vec![
            ("sym_name", cx.str(&entry.name)),
            ("symbols", sdx_ir::write_symbols(cx, &entry.symbols)),
            ("checks", sdx_ir::write_checks(cx, &entry.checks)),
            ("arena_bytes", cx.str(&arena)),
        ];
        if !entry.states.is_empty() {
            attrs.push(("states", write_states(cx, &entry.states)));
        }
        attrs.extend(entry.internal.then(|| ("internal", cx.unit())));
        cx.build(Parts { name: "plan.entry", attrs: &attrs, regions: vec![body], ..Parts::default() })
    }

    fn write_step<'c>(&self, cx: Context<'c>, step: &Step, values: &[mlir::Operand]) -> Result<NewOperation<'c>> {
        let operands: Vec<mlir::Operand> = step.buffers().iter().map(|&b| values[b]).collect();
        let parts = Parts { operands: &operands, origins: &step.origins, ..Parts::default() };
        match &step.action {
            Action::Launch(launch) => {
                let attrs = [
                    ("kernel", cx.symbol(&self.kernels[launch.kernel].0)),
                    ("grid", cx.str(&launch.grid.to_string())),
                    ("params", cx.strs(&launch.params)),
                ];
                cx.build(Parts { name: "plan.launch", attrs: &attrs, ..parts })
            }
            Action::Copy(_) => cx.build(Parts { name: "plan.copy", ..parts }),
            Action::Bind(bind) => {
                cx.build(Parts { name: "plan.bind", attrs: &[("symbol", cx.str(&bind.symbol))], ..parts })
            }
            Action::Host(host) => {
                let bodies: Vec<String> = host.call.bodies.iter().map(|&b| self.entries[b].name.clone()).collect();
                let mut attrs = write_host(cx, &host.call, &bodies);
                // A result that the host allocates is a `plan.value`, which has a type attribute. The results of an
                // exchange are in other buffers, so their types are written here.
                let placed = host.results.iter().filter(|_| host.call.op.exchange().is_some());
                let types: Vec<Attr> =
                    host.args.iter().chain(placed).map(|operand| write_operand(cx, operand)).collect();
                attrs.push(("types", cx.array(&types)));
                cx.build(Parts { name: "plan.host", attrs: &attrs, ..parts })
            }
        }
    }

    /// Replaces the plan that the module contains by this one.
    pub fn replace(&self, module: &mut Module) -> Result<()> {
        module.replace(|op| Ok(op.name().starts_with("plan.").then(Vec::new)))?;
        self.write(module.context())?.into_iter().try_for_each(|op| module.push(op))
    }

    /// Reads the plan of a module; `None` if it has no entry.
    pub fn read(module: Operation) -> Result<Option<Plan>> {
        let mut plan = Plan { prepared: prepared::read(module)?, ..Plan::default() };
        let operations = module.block(0).map_or(vec![], |b| b.operations());
        let entries = operations.iter().filter(|op| op.name() == "plan.entry").map(|op| text(*op, "sym_name"));
        let mut names = Names { kernels: HashMap::new(), entries: entries.collect::<Result<_>>()? };
        for op in operations {
            match op.name().as_str() {
                "plan.kernel" => {
                    let symbol = text(op, "sym_name")?;
                    let inner = op.block(0).map_or(vec![], |b| b.operations());
                    let kernel = inner.first().ok_or_else(|| Error::defect("a plan.kernel is empty"))?;
                    names.kernels.insert(symbol.clone(), plan.kernels.len());
                    plan.kernels.push((symbol, read_kernel(*kernel).map_err(Error::defect)?));
                }
                "plan.entry" => plan.entries.push(read_entry(op, &names)?),
                _ => {}
            }
        }
        Ok((!plan.entries.is_empty()).then_some(plan))
    }
}

/// The kernels and entries that steps refer to by name.
struct Names {
    kernels: HashMap<String, usize>,
    entries: Vec<String>,
}

fn read_entry(op: Operation, names: &Names) -> Result<Entry> {
    let arena = text(op, "arena_bytes")?;
    let mut entry = Entry {
        name: text(op, "sym_name")?,
        symbols: sdx_ir::read_symbols(op.attr("symbols"))?,
        checks: sdx_ir::read_checks(op.attr("checks"))?,
        states: read_states(op.attr("states"))?,
        internal: op.attr("internal").is_some(),
        arena_bytes: if arena.is_empty() { None } else { Some(Dim::parse(&arena)?) },
        ..Entry::default()
    };
    let mut values: HashMap<usize, usize> = HashMap::new();
    for op in op.block(0).map_or(vec![], |b| b.operations()) {
        if let Some(result) = op.results().first() {
            values.insert(result.key(), entry.buffers.len());
            entry.buffers.push(read_buffer(op)?);
            continue;
        }
        let buffers: Option<Vec<usize>> = op.operands().iter().map(|v| values.get(&v.key()).copied()).collect();
        let buffers = buffers.ok_or_else(|| Error::defect("a plan uses a value that is no buffer"))?;
        let action = match (op.name().as_str(), buffers.as_slice()) {
            ("plan.copy", &[from, to]) => Action::Copy(Copy { from, to }),
            ("plan.bind", &[buffer]) => Action::Bind(Bind { symbol: text(op, "symbol")?, buffer }),
            ("plan.host", _) => Action::Host(read_host_step(op, &buffers, &entry, names)?),
            ("plan.launch", _) => {
                let symbol = op.attr("kernel").and_then(Attr::as_symbol).unwrap_or_default();
                let unknown = || Error::user("E0104", format!("the plan launches `{symbol}`, which is not there"));
                let params = op.attr("params").and_then(Attr::as_strs).unwrap_or_default();
                Action::Launch(Launch {
                    kernel: *names.kernels.get(&symbol).ok_or_else(unknown)?,
                    buffers,
                    params: params.iter().map(|p| Dim::parse(p)).collect::<Result<_>>()?,
                    grid: Dim::parse(&text(op, "grid")?)?,
                    carries: None,
                })
            }
            (other, _) => return Err(Error::defect(format!("`{other}` is no step of a plan"))),
        };
        entry.steps.push(Step { action, origins: op.origins() });
    }
    Ok(entry)
}

fn read_host_step(op: Operation, buffers: &[usize], entry: &Entry, names: &Names) -> Result<Host> {
    let HostCall { op: host_op, bodies, results } = read_host(op).map_err(Error::defect)?;
    let types = op.attr("types").and_then(Attr::as_array).unwrap_or_default();
    let placed = host_op.exchange().map_or(0, |_| results.len());
    if buffers.len() + placed != types.len() + results.len() {
        return Err(Error::defect("a host step has a buffer for each operand and for each result"));
    }
    let (given, made) = buffers.split_at(buffers.len() - results.len());
    let typed = |(&buffer, ty): (&usize, &Attr)| {
        let ty = ty.as_type().ok_or_else(|| Error::defect("an operand has no type"))?;
        Ok(operand(buffer, container_of(ty).map_err(Error::defect)?))
    };
    let args = given.iter().zip(&types).map(typed).collect::<Result<_>>()?;
    let values = made.iter().enumerate().map(|(i, buffer)| match &entry.buffers[*buffer] {
        _ if placed > 0 => typed((buffer, &types[given.len() + i])),
        Buffer::Value { container } => Ok(operand(*buffer, container.clone())),
        Buffer::Input { .. } | Buffer::Output { .. } | Buffer::Param { .. } | Buffer::Const { .. } => {
            Err(Error::defect("a result of a host operation is no value"))
        }
        Buffer::Arena { .. } => Err(Error::defect("a result of a host operation is in the arena")),
    });
    let body = |name: &String| {
        let at = names.entries.iter().position(|entry| entry == name);
        at.ok_or_else(|| Error::defect(format!("`{name}` is called, but not there")))
    };
    let bodies = bodies.iter().map(body).collect::<Result<_>>()?;
    let call = HostCall { op: host_op, bodies, results };
    Ok(Host { call, args, results: values.collect::<Result<_>>()? })
}

fn operand(buffer: usize, container: Container) -> Operand {
    Operand { buffer, dtype: container.dtype, dims: container.dims }
}

/// The type attribute of a host step's operand, which is row-major.
fn write_operand<'c>(cx: Context<'c>, operand: &Operand) -> Attr<'c> {
    cx.type_attr(container_type(cx, &Container::plain(operand.dtype, operand.dims.clone())))
}

fn text(op: Operation, name: &str) -> Result<String> {
    op.attr(name).and_then(Attr::as_str).ok_or_else(|| Error::defect(format!("{} has no `{name}`", op.name())))
}

fn write_buffer<'c>(cx: Context<'c>, buffer: &Buffer) -> Result<NewOperation<'c>> {
    let typed = |c| ("type", cx.type_attr(container_type(cx, c)));
    let (name, attrs) = match buffer {
        Buffer::Input { name, container } => ("plan.input", vec![("name", cx.str(name)), typed(container)]),
        Buffer::Output { name, container } => ("plan.output", vec![("name", cx.str(name)), typed(container)]),
        Buffer::Param { source, window, container } => {
            let mut attrs = write_source(cx, source);
            attrs.push(typed(container));
            attrs.extend(window.iter().map(|w| ("window", write_window(cx, w))));
            ("plan.param", attrs)
        }
        Buffer::Const { value, container } => ("plan.const", vec![("value", cx.dense(&value.0)?), typed(container)]),
        Buffer::Arena { bytes, offset } => {
            let mut attrs = vec![("bytes", cx.str(&bytes.to_string()))];
            attrs.extend(offset.iter().map(|o| ("offset", cx.str(&o.to_string()))));
            ("plan.arena", attrs)
        }
        Buffer::Value { container } => ("plan.value", vec![typed(container)]),
    };
    let results = [cx.parse_type("!plan.buffer")];
    cx.build(Parts { name, attrs: &attrs, results: &results, ..Parts::default() })
}

fn read_buffer(op: Operation) -> Result<Buffer> {
    let container = || {
        let ty = op.attr("type").and_then(Attr::as_type).ok_or_else(|| Error::defect("a buffer has no type"))?;
        container_of(ty).map_err(Error::defect)
    };
    Ok(match op.name().as_str() {
        "plan.input" => Buffer::Input { name: text(op, "name")?, container: container()? },
        "plan.output" => Buffer::Output { name: text(op, "name")?, container: container()? },
        "plan.param" => {
            let window = read_window(op.attr("window")).map_err(Error::defect)?;
            let source = read_source(op).map_err(Error::defect)?;
            Buffer::Param { source, window, container: container()? }
        }
        "plan.const" => {
            let container = container()?;
            let value = op.attr("value").and_then(|value| value.as_constant(container.dtype, &container.dims));
            let value = TensorValue(value.ok_or_else(|| Error::defect("a constant has no value"))?);
            Buffer::Const { value, container }
        }
        "plan.arena" => {
            let offset = op.attr("offset").and_then(Attr::as_str);
            Buffer::Arena {
                bytes: Dim::parse(&text(op, "bytes")?)?,
                offset: offset.map(|o| Dim::parse(&o)).transpose()?,
            }
        }
        "plan.value" => Buffer::Value { container: container()? },
        other => return Err(Error::defect(format!("`{other}` is no buffer"))),
    })
}
