//! a function of the level `sdx` or `flow`  =>  the outputs that it computes for synthetic inputs

use crate::selftest::{choices, choose_symbols};
use melior::ir::Module;
use sardonyx_base::hash::hash;
use sardonyx_base::tensor::element_count;
use sardonyx_base::{DType, Dim, Error, Result, Tensor, minifloat};
use sardonyx_dialects::flow::program::Source;
use sardonyx_dialects::flow::{Container, FlowOp, Program, Step};
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::{Context, NewOperation, Operation};
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType};
use std::collections::BTreeMap;

/// A function that the interpreter can execute.
#[derive(Clone, Debug)]
pub enum Function {
    /// A function of the level `sdx`.
    Values(Graph),
    /// A function of the level `flow`.
    Kernels(Program),
}

/// Tensors of inputs or outputs, with their names.
pub type Named = Vec<(String, Tensor)>;

/// Largest number of elements of a synthetic tensor.
const ELEMENTS_MAX: usize = 1 << 22;

impl Function {
    /// Reads a function; `None` if it is of another level.
    pub fn read(function: Operation) -> Result<Option<Function>> {
        let Some(block) = function.block(0) else { return Ok(None) };
        let all = |prefix: &str| {
            block.operations().iter().all(|op| op.name().starts_with(prefix) || op.name() == "func.return")
        };
        let is_flow = block.arguments().iter().any(|v| v.ty().container_layout().is_some())
            || block.operations().iter().any(|op| op.name().starts_with("flow."));
        match is_flow {
            true if all("flow.") => Program::read(function).map(|p| Some(Function::Kernels(p))),
            false if all("sdx.") => Graph::read(function).map(|g| Some(Function::Values(g))),
            true | false => Ok(None),
        }
    }

    /// Writes the function as a detached `func.func`.
    pub fn write<'c>(&self, cx: Context<'c>) -> Result<NewOperation<'c>> {
        match self {
            Function::Values(graph) => graph.write(cx),
            Function::Kernels(program) => program.write(cx),
        }
    }

    /// Returns the name of the function, such as `main`.
    pub fn name(&self) -> &str {
        match self {
            Function::Values(graph) => &graph.name,
            Function::Kernels(program) => &program.name,
        }
    }

    /// Interprets one call. Returns the outputs, in the function's order.
    pub fn run(&self, params: &dyn ParamValues, inputs: &Named) -> Result<Named> {
        match self {
            Function::Values(graph) => interp::run(graph, params, inputs),
            Function::Kernels(program) => interp::run_program(program, params, inputs),
        }
    }

    /// A graph of the inputs, symbols and checks alone.
    pub fn signature(&self) -> Graph {
        let input = |name: &str, ty: TensorType| Node {
            op: Op::Input { name: name.into(), parts: vec![] },
            args: vec![],
            ty,
            origins: vec![],
        };
        match self {
            Function::Values(g) => {
                let nodes = g.inputs().map(|(_, name, ty)| input(name, ty.clone())).collect();
                Graph { nodes, symbols: g.symbols.clone(), checks: g.checks.clone(), ..Graph::default() }
            }
            Function::Kernels(p) => {
                let ty = |id: usize| TensorType::new(p.containers[id].dtype, p.containers[id].dims.clone());
                let nodes = p.inputs.iter().map(|(name, id)| input(name, ty(*id))).collect();
                Graph { nodes, symbols: p.symbols.clone(), checks: p.checks.clone(), ..Graph::default() }
            }
        }
    }

    /// Type and dimensions of each parameter. A parameter that is only read through a packing window gets as many
    /// elements as the window reaches.
    pub fn params(&self) -> BTreeMap<String, (DType, Vec<usize>)> {
        let known = |dtype: DType, dims: &[Dim]| {
            let dims: Option<Vec<usize>> = dims.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect();
            dims.map(|dims| (dtype, dims))
        };
        let mut out = BTreeMap::new();
        match self {
            Function::Values(g) => {
                for node in &g.nodes {
                    if let (Op::Param { name, .. }, Some(ty)) = (&node.op, known(node.ty.dtype, &node.ty.dims)) {
                        out.insert(name.clone(), ty);
                    }
                }
            }
            Function::Kernels(p) => {
                for step in &p.steps {
                    let FlowOp::Param { source, window } = &step.op else { continue };
                    let container = &p.containers[step.results[0]];
                    let Some(made) = known(container.dtype, &container.dims) else { continue };
                    let taken = source.transform.map_or(Some(made.clone()), |t| t.takes(made.0, &made.1, None));
                    // If this result does not determine the parameter's dimensions, the result of another step of the
                    // program must.
                    let Some((dtype, dims)) = taken else { continue };
                    let dims = match window {
                        None => dims,
                        Some(w) => {
                            let elements = match dims[..] {
                                [k, n] => w.elements(k as i64, n as i64).and_then(|n| usize::try_from(n).ok()),
                                _ => None,
                            };
                            let elements = elements.unwrap_or(0);
                            // Parameters packed side by side are matrices; the larger stride is the distance between
                            // rows.
                            let row = usize::try_from(w.stride_k.max(w.stride_n)).unwrap_or(1).max(1);
                            match source.names.len() {
                                1 => vec![elements],
                                _ => vec![elements.div_ceil(row), row],
                            }
                        }
                    };
                    for (name, dims) in parts(source, &dims) {
                        let larger = |old: &(DType, Vec<usize>)| element_count(&old.1) >= element_count(&dims);
                        if !out.get(name).is_some_and(larger) {
                            out.insert(name.clone(), (dtype, dims));
                        }
                    }
                }
                p.steps.iter().for_each(|step| with_summed_axis(p, step, &mut out));
            }
        }
        out
    }
}

/// Derives the dimensions of a transformed parameter from the transform's result, if only its element count is known.
fn with_summed_axis(p: &Program, step: &Step, params: &mut BTreeMap<String, (DType, Vec<usize>)>) {
    let FlowOp::Param { source: Source { names, transform: Some(transform), .. }, .. } = &step.op else { return };
    let Container { dtype, dims: made, .. } = &p.containers[step.results[0]];
    let made: Option<Vec<usize>> = made.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect();
    let (Some(made), [name]) = (made, &names[..]) else { return };
    let Some((_, dims)) = params.get_mut(name).filter(|(_, dims)| dims.len() == 1) else { return };
    // Parameters that are determined by the result alone are complete already.
    let open = transform.takes(*dtype, &made, None).is_none();
    if let Some((_, taken)) = transform.takes(*dtype, &made, Some(dims[0])).filter(|_| open) {
        *dims = taken;
    }
}

/// Dimensions of the parameters that are concatenated to this tensor: equal parts; the last takes the remainder.
fn parts<'s>(source: &'s Source, dims: &[usize]) -> impl Iterator<Item = (&'s String, Vec<usize>)> {
    let (n, dims) = (source.names.len(), dims.to_vec());
    source.names.iter().enumerate().map(move |(i, name)| {
        let mut part = dims.clone();
        if let Some(extent) = part.get_mut(source.axis).filter(|_| n > 1) {
            *extent = if i + 1 < n { *extent / n } else { *extent - *extent / n * (n - 1) };
        }
        (name, part)
    })
}

/// The functions of a module that the interpreter can execute; those of kernels compute prepared parameters themselves.
pub fn functions(module: &Module) -> Result<Vec<Function>> {
    let module = Operation::of_module(module);
    let all = module.block(0).map_or(vec![], |b| b.operations());
    let read = |function: Operation| {
        let mut found = Function::read(function)?;
        if let Some(Function::Kernels(program)) = &mut found {
            *program = Program::read_whole(function, module)?;
            // Those with a window or a transform stay parameters, which the interpreter computes.
            let prepared = program.prepared.clone();
            program.inline_prepared();
            program.prepared = prepared;
        }
        Ok(found)
    };
    let found = all.into_iter().filter(|op| op.name() == "func.func").map(read);
    found.filter_map(Result::transpose).collect()
}

/// Number of kinds of synthetic elements; each call uses one of them, at one choice of sizes.
const KINDS: usize = 3;

/// Number of synthetic calls for a function; the most revealing come first.
pub fn n_calls(function: &Function) -> usize {
    KINDS * sizes(&function.signature()).len()
}

fn sizes(signature: &Graph) -> Vec<BTreeMap<String, i64>> {
    let n = signature.symbols.values().filter(|s| s.kind == sardonyx_dialects::sdx::SymbolKind::Input).count();
    let mut out: Vec<BTreeMap<String, i64>> = vec![];
    for found in choices(n).iter().filter_map(|choice| choose_symbols(signature, &[], choice)) {
        // More sizes would cost more time than they are worth.
        if out.len() < 3 && !out.contains(&found) {
            out.push(found);
        }
    }
    out
}

/// Synthetic inputs of call `i` of `n_calls`. Floats are multiples of 1/8 in -2..2 or, in every third call, in 0..4, so
/// that sums and products of a few of them are exact. Integers and bools are 0 and 1, or all 1.
pub fn call(function: &Function, i: usize) -> Result<Named> {
    let signature = function.signature();
    let sizes = sizes(&signature);
    let no_call = || Error::user("E0301", format!("no sizes satisfy the symbols and checks of `{}`", function.name()));
    let values = sizes.get(i / KINDS).ok_or_else(no_call)?;
    let input = |(_, name, ty): (_, &str, &TensorType)| {
        let size = |d: &Dim| Ok(usize::try_from(d.eval_named(&|s| values.get(s).copied())?).unwrap_or(0));
        let dims = ty.dims.iter().map(size).collect::<Result<Vec<usize>>>()?;
        Ok((name.to_string(), made(name, i % KINDS, ty.dtype, dims)?))
    };
    signature.inputs().map(input).collect()
}

/// Synthetic parameters of call `i`, made by name in the same way as inputs.
pub fn made_params(function: &Function, i: usize) -> impl Fn(&str) -> Result<Tensor> + use<> {
    let known = function.params();
    move |name| {
        let (dtype, dims) = known.get(name).cloned().ok_or_else(|| {
            Error::user("E0301", format!("the parameter `{name}` has no fixed size, and so no made-up value"))
        })?;
        made(name, i % KINDS, dtype, dims)
    }
}

/// A synthetic tensor; element `i` depends only on the name, the kind and `i`.
fn made(name: &str, kind: usize, dtype: DType, dims: Vec<usize>) -> Result<Tensor> {
    let n = element_count(&dims).filter(|n| *n <= ELEMENTS_MAX);
    let n = n.ok_or_else(|| Error::user("E0202", format!("`{name}` of {dims:?} is too large to be made up")))?;
    let seed = hash(name.as_bytes());
    let bits = |i: usize| {
        let z = (seed ^ i as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 40
    };
    let eighths = |i: usize| match kind {
        0 | 1 => bits(i) as i64 % 33 - 16,
        _ => bits(i) as i64 % 32 + 1,
    };
    let float = |i: usize| eighths(i) as f64 / 8.0;
    let int = |i: usize| if kind == 1 { 1 } else { (bits(i) & 1) as i64 };
    let floats = |f: &dyn Fn(f64) -> Vec<u8>| (0..n).flat_map(|i| f(float(i))).collect::<Vec<u8>>();
    let data = match dtype {
        DType::F32 => floats(&|v| (v as f32).to_le_bytes().to_vec()),
        DType::F64 => floats(&|v| v.to_le_bytes().to_vec()),
        // The upper half of an f32 is a bf16, which represents multiples of 1/8 up to 4 exactly.
        DType::BF16 => floats(&|v| (v as f32).to_le_bytes()[2..].to_vec()),
        DType::F16 => floats(&|v| half_bits(v).to_le_bytes().to_vec()),
        dtype if dtype == DType::Bool || dtype.is_int() => {
            (0..n).flat_map(|i| int(i).to_le_bytes()[..dtype.bytes()].to_vec()).collect()
        }
        dtype if dtype.is_float() => {
            let code = |i: usize| minifloat::encode(dtype, minifloat::round(dtype, float(i))).unwrap_or(0);
            (0..n).map(|i| code(i) as u8).collect()
        }
        other => return Err(Error::user("E0107", format!("tensors of {other} cannot be made up"))),
    };
    Tensor::new(dtype, dims, data.into())
}

/// The f16 bits of a multiple of 1/8 in -4..4, which is exact.
fn half_bits(v: f64) -> u16 {
    let single = (v as f32).to_bits();
    if v == 0.0 {
        return 0;
    }
    let exponent = ((single >> 23) & 0xff) as i32 - 127 + 15;
    ((single >> 16) as u16 & 0x8000) | ((exponent as u16) << 10) | ((single >> 13) as u16 & 0x3ff)
}

/// Describes the outputs of each function in one synthetic call, a line each, like `f: y f32[2] = 1.500e0 -2.500e-1`.
pub fn describe(functions: &[Function], i: usize) -> Result<String> {
    let mut text = String::new();
    for function in functions {
        let outputs = function.run(&made_params(function, i), &call(function, i)?);
        for (name, tensor) in outputs.map_err(|e| e.node(function.name()))? {
            let dims: Vec<String> = tensor.dims().iter().map(usize::to_string).collect();
            text +=
                &format!("{}: {name} {}[{}] ={}\n", function.name(), tensor.dtype(), dims.join(", "), shown(&tensor));
        }
    }
    Ok(text)
}

/// Prints four digits, which no permitted reordering of rounded operations changes.
fn shown(tensor: &Tensor) -> String {
    let one = |i: usize| match tensor.dtype().is_float() {
        // Prints -0 as 0, because the sign of an empty sum does not matter here.
        true => tensor.get_f64(i).map(|v| format!(" {:.3e}", v + 0.0)),
        false => tensor.get_i64(i).map(|v| format!(" {v}")),
    };
    (0..tensor.len()).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_numbers_are_eighths_in_every_float_type() {
        for kind in 0..KINDS {
            let wanted = made("x", kind, DType::F64, vec![64]).unwrap();
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let t = made("x", kind, dtype, vec![64]).unwrap();
                assert!((0..64).all(|i| t.get_f64(i) == wanted.get_f64(i)), "{dtype}");
            }
            let values: Vec<f64> = wanted.to_vec().unwrap();
            assert!(values.iter().all(|v| (v * 8.0).fract() == 0.0 && v.abs() <= 4.0 && (kind < 2 || *v > 0.0)));
            assert!(values.iter().any(|v| *v != values[0]));
            assert_ne!(values, made("y", kind, DType::F64, vec![64]).unwrap().to_vec::<f64>().unwrap());
        }
        assert_eq!(made("i", 1, DType::I64, vec![2]).unwrap().to_vec::<i64>().unwrap(), [1, 1]);
    }

    #[test]
    fn a_function_is_described_by_what_it_computes() {
        let context = sardonyx_passes::context();
        let text = r#"
            !x = !sdx.tensor<[n, 2], f32>
            func.func @f(%x: !x) -> !x attributes {sdx.symbols = ["input n 1..1"]} {
              %0 = sdx.map "neg"(%x) : (!x) -> !x
              return %0 : !x
            }"#;
        let mut module = Module::parse(&context, text).unwrap();
        let before = describe(&functions(&module).unwrap(), 0).unwrap();
        assert!(before.starts_with("f: result0 f32[1, 2] = "), "{before}");
        sardonyx_passes::run_pipeline(&context, &mut module, "builtin.module(sdx-to-flow)").unwrap();
        let after = functions(&module).unwrap();
        assert!(matches!(after[0], Function::Kernels(_)));
        assert_eq!(describe(&after, 0).unwrap(), before);
        let x: Vec<f32> = call(&after[0], 0).unwrap()[0].1.to_vec().unwrap();
        assert_eq!(before, format!("f: result0 f32[1, 2] = {:.3e} {:.3e}\n", -x[0] + 0.0, -x[1] + 0.0));
    }

    #[test]
    fn prepared_parameters_are_computed() {
        let context = sardonyx_passes::context();
        let text = r#"
            !x = !sdx.tensor<[2], f32>
            !w = !sdx.tensor<[2], i32>
            func.func @f(%x: !x) -> !x {
              %0 = sdx.param "w" : !w
              %1 = sdx.convert %0 : !w -> !x
              %2 = sdx.map "exp"(%1) : (!x) -> !x
              %3 = sdx.map "mul"(%x, %2) : (!x, !x) -> !x
              return %3 : !x
            }"#;
        let mut module = Module::parse(&context, text).unwrap();
        let before = describe(&functions(&module).unwrap(), 0).unwrap();
        sardonyx_passes::run_pipeline(&context, &mut module, "builtin.module(sdx-to-flow,prepare-weights)").unwrap();
        assert!(Operation::of_module(&module).to_string().contains("flow.param \"@w"));
        assert_eq!(describe(&functions(&module).unwrap(), 0).unwrap(), before);
    }
}
