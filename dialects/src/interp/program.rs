//! flow program, parameters, inputs  =>  outputs: executes the steps in order, each kernel by `run_kernel`
//!
//! A packed container has the value of its logical matrix: encoding and layout affect only where elements are stored.

use super::bind::{self, Symbols};
use super::numbers::Numbers;
use super::ports::Ports;
use super::{Setting, Touched, extents, run_counted, run_kernel};
use crate::flow::prepared::Prepared;
use crate::flow::{FlowOp, HostCall, Kernel, Program, Source, Step, Window};
use crate::params::{ParamValues, Part, value_of};
use sardonyx_base::{DType, Error, Result, Tensor};

/// Parameters, and the parameters that are prepared from them.
pub struct Values<'a> {
    /// Values of the parameters that are not prepared.
    pub params: &'a dyn ParamValues,
    /// Programs that compute the prepared parameters, by name.
    pub prepared: &'a Prepared,
}

impl ParamValues for Values<'_> {
    fn value(&self, name: &str) -> Result<Tensor> {
        let Some(program) = self.prepared.get(name) else { return self.params.value(name) };
        let outputs = run_program(program, self, &[])?;
        let value = outputs.into_iter().next().map(|(_, value)| value);
        value.ok_or_else(|| Error::defect(format!("nothing is prepared for `{name}`")))
    }
}

/// Computes the outputs, in the program's order. Errors: those of [`super::run`] and of [`run_kernel`]; E0901 if a step
/// reads a container that no earlier step has written.
pub fn run_program(
    program: &Program,
    params: &dyn ParamValues,
    inputs: &[(String, Tensor)],
) -> Result<Vec<(String, Tensor)>> {
    run_program_by(program, params, inputs, &mut |call| call.interpret())
}

/// Called after each kernel with its step, the elements that it touched, and the symbols' values.
pub type Counter<'f> = &'f mut dyn FnMut(usize, &Touched, &dyn Fn(&str) -> Option<i64>);

/// Like [`run_program`], and counts the distinct elements that each kernel reads and writes.
pub fn count_program(
    program: &Program,
    params: &dyn ParamValues,
    inputs: &[(String, Tensor)],
    each: Counter,
) -> Result<Vec<(String, Tensor)>> {
    run_program_by(program, params, inputs, &mut |call| {
        let mut touched = Touched::default();
        let results = run_counted(call.kernel, call.symbols, call.args, Some(&mut touched))?;
        each(call.step, &touched, call.symbols);
        Ok(results)
    })
}

/// A kernel that is about to run.
pub struct KernelCall<'a> {
    /// Index of the kernel's step in the program.
    pub step: usize,
    /// Kernel of the step.
    pub kernel: &'a Kernel,
    /// Value of a symbol by its name; `None` if it is not bound yet.
    pub symbols: &'a dyn Fn(&str) -> Option<i64>,
    /// Operands, in the order of [`Kernel::reads`].
    pub args: &'a [Tensor],
}

impl KernelCall<'_> {
    /// Computes the results with [`run_kernel`], whose errors it returns.
    pub fn interpret(&self) -> Result<Vec<Tensor>> {
        run_kernel(self.kernel, self.symbols, self.args)
    }
}

/// Like [`run_program`], but `run` computes the results of each kernel, for example on a device.
pub fn run_program_by(
    program: &Program,
    params: &dyn ParamValues,
    inputs: &[(String, Tensor)],
    run: &mut dyn FnMut(&KernelCall) -> Result<Vec<Tensor>>,
) -> Result<Vec<(String, Tensor)>> {
    run_program_in(program, Setting::alone(params), inputs, run)
}

/// Like [`run_program_by`], as one rank of a mesh.
pub fn run_program_in(
    program: &Program,
    setting: Setting,
    inputs: &[(String, Tensor)],
    run: &mut dyn FnMut(&KernelCall) -> Result<Vec<Tensor>>,
) -> Result<Vec<(String, Tensor)>> {
    let ports = Ports { symbols: &program.symbols, world: setting.world };
    let states = || program.states.iter();
    let of_input = |name: &str| states().find(|s| program.inputs[s.input].0 == name).map_or(&[][..], |s| &s.parts);
    let inputs = &ports.cut(inputs, of_input)?;
    let mut symbols = Symbols::new(program.into(), inputs, setting.world)?;
    let params = Values { params: setting.params, prepared: &program.prepared };
    let of_ranks = |source: &Source, symbols: &Symbols| joined_in(source, &params, &|s| symbols.get(s));
    let mut values: Vec<Option<Tensor>> = vec![None; program.containers.len()];
    for (name, id) in &program.inputs {
        values[*id] = Some(bind::input(inputs, name)?.clone());
    }
    for (i, step) in program.steps.iter().enumerate() {
        let args = step.args.iter().map(|&a| values[a].clone()).collect::<Option<Vec<Tensor>>>();
        let args = args.ok_or_else(|| Error::defect("an operand has no value yet").node(label(i, step)))?;
        let results = match &step.op {
            FlowOp::Kernel(kernel) => run(&KernelCall { step: i, kernel, symbols: &|s| symbols.get(s), args: &args }),
            FlowOp::Param { source, window: None } => of_ranks(source, &symbols).map(|t| vec![t]),
            FlowOp::Param { source, window: Some(w) } => dims(program, step, &symbols)
                .and_then(|dims| windowed(&of_ranks(source, &symbols)?, w, &dims))
                .and_then(|matrix| narrowed(&matrix, program.containers[step.results[0]].dtype))
                .map(|t| vec![t]),
            FlowOp::Const(value) => Ok(vec![value.0.clone()]),
            FlowOp::View => {
                dims(program, step, &symbols).and_then(|dims| only(&args)?.with_dims(dims)).map(|t| vec![t])
            }
            FlowOp::Bind { symbol } => bind_symbol(&mut symbols, symbol, &args).map(|()| vec![]),
            FlowOp::Host(host) => run_host(program, step, host, &args, setting, &mut symbols),
        };
        let results = results.map_err(|e| e.node(label(i, step)))?;
        for (&id, result) in step.results.iter().zip(results) {
            values[id] = Some(accepted(program, id, result, &symbols).map_err(|e| e.node(label(i, step)))?);
        }
    }
    let output = |(at, (name, id)): (usize, &(String, usize))| {
        let value = values[*id].clone().ok_or_else(|| Error::defect(format!("the output `{name}` has no value")))?;
        let parts = states().find(|s| s.output == at).map_or(&[][..], |s| &s.parts);
        Ok((name.clone(), ports.gather_output(value, parts)?))
    };
    program.outputs.iter().enumerate().map(output).collect()
}

fn run_host(
    program: &Program,
    step: &Step,
    host: &HostCall<String>,
    args: &[Tensor],
    setting: Setting,
    symbols: &mut Symbols,
) -> Result<Vec<Tensor>> {
    let types = step.results.iter().map(|&id| (program.containers[id].dtype, program.containers[id].dims.as_slice()));
    let wanted = super::host::wanted(host.results.iter().map(|r| r.index).zip(types), &|s| symbols.get(s));
    let mut run = |at: usize, inputs: Vec<Tensor>, setting: Setting| {
        let body = program.bodies.get(&host.bodies[at]);
        let body = body.ok_or_else(|| Error::defect(format!("the program `{}` is not there", host.bodies[at])))?;
        let inputs = body.inputs.iter().map(|(name, _)| name.clone()).zip(inputs).collect::<Vec<_>>();
        let outputs = run_program_in(body, setting, &inputs, &mut |call| call.interpret())?;
        Ok(outputs.into_iter().map(|(_, t)| t).collect())
    };
    let all = super::host::run(&host.op, args, &wanted, setting, &mut run)?;
    let mut results = vec![];
    for result in &host.results {
        let value = all.get(result.index).ok_or_else(|| Error::defect("a host operation gives too few results"))?;
        super::host::bind(symbols, &result.binds, value)?;
        results.push(value.clone());
    }
    Ok(results)
}

fn bind_symbol(symbols: &mut Symbols, symbol: &str, args: &[Tensor]) -> Result<()> {
    let arg = only(args)?;
    let first = (arg.dtype() == DType::I64 && !arg.is_empty()).then(|| arg.get_i64(0)).flatten();
    symbols.bind(symbol, first.ok_or_else(|| Error::defect("a symbol is bound to an i64"))?)
}

/// The value of a source: its parameters, concatenated and transformed. Errors: E0204 if a rank reads only a part that
/// depends on its coordinates.
pub fn joined(source: &Source, params: &dyn ParamValues) -> Result<Tensor> {
    joined_in(source, params, &|_| None)
}

/// Like [`joined`], with the coordinates of a rank among the symbols.
pub fn joined_in(source: &Source, params: &dyn ParamValues, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<Tensor> {
    let one = |(name, parts): (&str, &[Part])| value_of(params, name, parts, symbols);
    let parts = source.each().map(one).collect::<Result<Vec<Tensor>>>()?;
    let whole = match parts.as_slice() {
        [one] => one.clone(),
        _ => super::movement::joined(source.axis, &parts)?,
    };
    source.transform.map_or(Ok(whole.clone()), |transform| transform.compute(&whole))
}

fn only(args: &[Tensor]) -> Result<&Tensor> {
    let [arg] = args else { return Err(Error::defect(format!("one operand, not {}", args.len()))) };
    Ok(arg)
}

/// The dimensions of a step's only result.
fn dims(program: &Program, step: &Step, symbols: &Symbols) -> Result<Vec<usize>> {
    let [id] = step.results.as_slice() else { return Err(Error::defect("one result")) };
    extents(&program.containers[*id].dims, &|s| symbols.get(s))
}

/// The matrix [k, n] of the elements of a source that a window selects.
fn windowed(source: &Tensor, w: &Window, dims: &[usize]) -> Result<Tensor> {
    let &[k, n] = dims else { return Err(Error::defect("a window gives a matrix")) };
    let width = source.dtype().bytes();
    let mut out = Vec::with_capacity(k * n * width);
    for i in 0..k as i64 {
        for j in 0..n as i64 {
            let at = w.row(i).and_then(|row| row.checked_add(j.checked_mul(w.stride_n)?));
            let at = at.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < source.len() && width > 0);
            let at = at.ok_or_else(|| Error::defect("a window reaches beyond its parameter"))?;
            out.extend_from_slice(&source.bytes()[at * width..(at + 1) * width]);
        }
    }
    Tensor::new(source.dtype(), dims.to_vec(), out.into())
}

/// Converts a packed float matrix to its container's type: f32 to bf16, rounded to nearest, ties to even, or f16 to
/// f32.
fn narrowed(matrix: &Tensor, to: DType) -> Result<Tensor> {
    match (matrix.dtype(), to) {
        (from, to) if from == to => Ok(matrix.clone()),
        (DType::F32, DType::BF16) | (DType::F16, DType::F32) => {
            Numbers::read(matrix)?.converted(to).write(to, matrix.dims().to_vec())
        }
        (from, to) => Err(Error::defect(format!("a parameter of {from} is not packed as {to}"))),
    }
}

/// Checks that a value has the type and dimensions of its container.
fn accepted(program: &Program, id: usize, value: Tensor, symbols: &Symbols) -> Result<Tensor> {
    let container = &program.containers[id];
    let dims = extents(&container.dims, &|s| symbols.get(s))?;
    if value.dtype() == container.dtype && value.dims() == dims {
        return Ok(value);
    }
    let message = format!("the value is {} {:?}, not {} {dims:?}", value.dtype(), value.dims(), container.dtype);
    Err(Error::defect(message))
}

/// The name of a step in errors: its ONNX origins, else its number.
fn label(i: usize, step: &Step) -> String {
    if step.origins.is_empty() { format!("step {i}") } else { step.origins.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Body, Container, Memlet, Statement, Store, TensorValue};
    use crate::scalar::ScalarFn;
    use crate::sdx::{Symbol, SymbolKind};
    use sardonyx_base::{Dim, Encoding};
    use std::sync::Arc;

    fn container(dtype: DType, dims: &[&str], encoding: Encoding) -> Container {
        let dims = dims.iter().map(|d| Dim::parse(d).unwrap()).collect();
        Container { encoding, ..Container::plain(dtype, dims) }
    }

    fn step(op: FlowOp, args: &[usize], results: &[usize]) -> Step {
        Step { op, args: args.to_vec(), results: results.to_vec(), origins: vec![] }
    }

    fn weights(name: &str) -> Result<Tensor> {
        assert_eq!(name, "w");
        Ok(Tensor::from_vec(vec![2, 3], (0..6).map(|i| i as f32).collect()))
    }

    /// The output of a program with a single step, which has no operands.
    fn lone(op: FlowOp, result: Container) -> Result<Tensor> {
        let mut program = Program::default();
        let id = program.container(result);
        program.steps = vec![step(op, &[], &[id])];
        program.outputs = vec![("y".into(), id)];
        run_program(&program, &weights, &[]).map(|mut out| out.remove(0).1)
    }

    #[test]
    fn a_window_reads_the_parameter_transposed_and_from_an_offset() {
        let param = |offset, stride_k, stride_n| FlowOp::Param {
            source: Source::one("w"),
            window: Some(Window { offset, stride_k, stride_n, digits: vec![] }),
        };
        let panels = |dims: &[&str]| container(DType::F32, dims, Encoding::Panels { width: 16, depth: 1 });
        let all = lone(param(0, 1, 3), panels(&["3", "2"])).unwrap();
        assert_eq!(all.to_vec::<f32>().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let part = lone(param(1, 3, 1), panels(&["2", "2"])).unwrap();
        assert_eq!(part.to_vec::<f32>().unwrap(), [1.0, 2.0, 4.0, 5.0]);
        assert!(lone(param(1, 3, 1), panels(&["2", "3"])).unwrap_err().message.contains("beyond its parameter"));
        assert!(lone(param(0, -1, 1), panels(&["2", "3"])).unwrap_err().message.contains("beyond its parameter"));
    }

    #[test]
    fn a_window_may_be_kept_in_bf16() {
        let window = Some(Window { offset: 0, stride_k: 3, stride_n: 1, digits: vec![] });
        let param = FlowOp::Param { source: Source::one("w"), window };
        let pairs = |dtype| container(dtype, &["2", "3"], Encoding::Panels { width: 16, depth: 2 });
        let third = |_: &str| Ok(Tensor::from_vec(vec![2, 3], (0..6).map(|i| i as f32 / 3.0).collect()));
        let run = |dtype| {
            let mut program = Program::default();
            let id = program.container(pairs(dtype));
            program.steps = vec![step(param.clone(), &[], &[id])];
            program.outputs = vec![("y".into(), id)];
            run_program(&program, &third, &[]).map(|mut out| out.remove(0).1)
        };
        let y = run(DType::BF16).unwrap();
        let wanted: Vec<f64> = (0..6).map(|i| half::bf16::from_f32(i as f32 / 3.0).to_f64()).collect();
        assert_eq!((0..6).map(|i| y.get_f64(i).unwrap()).collect::<Vec<_>>(), wanted);
        assert_eq!(run(DType::F16).unwrap_err().code, "E0901");
    }

    #[test]
    fn a_container_of_another_type_is_a_defect() {
        let value = FlowOp::Const(TensorValue(Tensor::scalar(1i64)));
        assert_eq!(lone(value.clone(), container(DType::F32, &[], Encoding::Plain)).unwrap_err().code, "E0901");
        assert_eq!(lone(value, container(DType::I64, &["1"], Encoding::Plain)).unwrap_err().code, "E0901");
    }

    /// A program of three steps: bind n = count; view of x as [n, 2]; kernel y = -x over [n, 2].
    fn bound() -> Program {
        let mut p = Program::default();
        p.symbols.insert("n".into(), Symbol { kind: SymbolKind::Data, lo: 0, hi: Some(3) });
        let count = p.container(container(DType::I64, &["1"], Encoding::Plain));
        let x = p.container(container(DType::F32, &["6"], Encoding::Plain));
        let view = p.container(container(DType::F32, &["n", "2"], Encoding::Plain));
        let y = p.container(container(DType::F32, &["n", "2"], Encoding::Plain));
        p.inputs = vec![("count".into(), count), ("x".into(), x)];
        p.outputs = vec![("y".into(), y)];
        let memlet = || Memlet { container: 0, index: vec![Kernel::var(0), Kernel::var(1)] };
        let statement = |body| Statement { body, dtype: DType::F32 };
        let kernel = Kernel {
            outer: vec![Dim::symbol("n"), 2.into()],
            inner: vec![],
            deep: vec![],
            reads: vec![p.containers[view].clone()],
            writes: vec![p.containers[y].clone()],
            body: vec![
                statement(Body::Load { memlet: memlet(), guard: None }),
                statement(Body::Apply { f: ScalarFn::Neg, args: vec![0] }),
            ],
            stores: vec![Store { memlet: memlet(), value: 1 }],
        };
        p.steps = vec![
            step(FlowOp::Bind { symbol: "n".into() }, &[count], &[]),
            step(FlowOp::View, &[x], &[view]),
            step(FlowOp::Kernel(Arc::new(kernel)), &[view], &[y]),
        ];
        p
    }

    fn call(p: &Program, count: i64) -> Result<Vec<(String, Tensor)>> {
        let x = Tensor::from_vec(vec![6], (0..6).map(|i| i as f32).collect());
        run_program(p, &weights, &[("count".into(), Tensor::from_vec(vec![1], vec![count])), ("x".into(), x)])
    }

    #[test]
    fn a_bound_symbol_gives_dimensions_to_what_follows() {
        let out = call(&bound(), 3).unwrap();
        assert_eq!(out[0].1.dims(), [3, 2]);
        assert_eq!(out[0].1.to_vec::<f32>().unwrap(), [0.0, -1.0, -2.0, -3.0, -4.0, -5.0]);
        assert_eq!(call(&bound(), 4).unwrap_err().code, "E0201");
    }

    #[test]
    fn steps_out_of_order_are_a_defect() {
        let mut p = bound();
        p.steps.swap(1, 2);
        assert!(call(&p, 3).unwrap_err().message.contains("no value yet"));
        let mut p = bound();
        p.steps.rotate_left(1);
        assert_eq!(call(&p, 3).unwrap_err().code, "E0204");
    }
}
