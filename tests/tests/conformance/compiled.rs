//! a case, a route through the passes, a device  =>  an artifact for it, whose calls are compared with the interpreter

use super::case::{Case, Sizes};
use super::values::{Expected, Random, Tensors, indices, tensor};
use melior::Context as MlirContext;
use melior::ir::{Location, Module};
use sardonyx::import::ParamStore;
use sardonyx::pipeline::pipeline;
use sardonyx_base::{Dim, Error, Result, Tensor, TensorView};
use sardonyx_dialects::mlir::{self, Context, Operation};
use sardonyx_dialects::plan::Plan;
use sardonyx_dialects::sdx::{Graph, Op, Symbol, SymbolKind, TensorType};
use sardonyx_runtime::{DeviceName, Model, RunOptions, SessionOptions};
use sardonyx_tests::emitted::emit;
use sardonyx_tests::trust::trusted;

/// The passes between the program and its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The whole pipeline.
    Fused,
    /// Every operation is a kernel of its own.
    Apart,
}

impl Route {
    pub fn name(self) -> &'static str {
        match self {
            Route::Fused => "fused",
            Route::Apart => "apart",
        }
    }

    fn passes(self) -> String {
        match self {
            Route::Fused => pipeline(),
            Route::Apart => "builtin.module(find-caches,sdx-to-flow,schedule,plan-memory)".into(),
        }
    }
}

/// Threads of a session: more than one, so that kernels are split among threads.
const THREADS: usize = 2;

/// Returns the reason as `Err` if the device cannot be used on this machine.
pub fn available(device: &DeviceName) -> std::result::Result<(), String> {
    let case = Case::read(
        "none",
        "// CALLS b: 1\nfunc.func @f(%x: !sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32> {\n\
        %y = sdx.map \"neg\"(%x) : (!sdx.tensor<[b], f32>) -> !sdx.tensor<[b], f32>\n  return %y : !sdx.tensor<[b], f32>\n}",
    );
    match Compiled::new(&case, Route::Fused, device) {
        Err(e) if e.code == "E0405" => Err(e.message),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The program as a graph for the interpreter, and compiled as a model on the device.
struct Compiled {
    graph: Graph,
    params: ParamStore,
    model: Model,
    threads: usize,
}

pub fn check(case: &Case, route: Route, device: &DeviceName) -> std::result::Result<(), String> {
    let compiled = Compiled::new(case, route, device).map_err(|e| e.to_string())?;
    for (i, sizes) in case.calls.iter().enumerate() {
        let call = compiled.inputs(case, sizes, i as u64).map_err(|e| e.to_string())?;
        compiled.call(case, &call).map_err(|what| format!("{sizes:?}: {what}"))?;
    }
    let Some(report) = compiled.model.device_report() else { return Ok(()) };
    match report.findings.is_empty() && report.host_operations == 0 {
        true => Ok(()),
        false => Err(report.text()),
    }
}

impl Compiled {
    fn new(case: &Case, route: Route, device: &DeviceName) -> Result<Compiled> {
        let context = sardonyx_passes::context();
        context.attach_diagnostic_handler(|d| {
            eprintln!("{d}");
            true
        });
        let graph = parse(&context, case)?;
        let mut module = Module::new(Location::unknown(&context));
        mlir::Module::new(&mut module).push(graph.write(Context::new(&context))?)?;
        let params = parameters(&graph);
        sardonyx_passes::run_pipeline(&context, &mut module, &route.passes())?;
        let plan = Plan::read(Operation::of_module(&module))?.ok_or_else(|| Error::defect("no plan was made"))?;
        let missing = |class| !plan.kernels.iter().any(|(_, k)| k.class() == class);
        if let (Route::Fused, Some(class)) = (route, case.class.filter(|c| missing(*c))) {
            return Err(Error::defect(format!("no kernel of class {class:?} was made")));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("case.sdx");
        emit(&path, &plan, &params, &sardonyx::targets::of_device(device))?;
        let model = Model::load(&path, &trusted().device(device.clone()))?;
        Ok(Compiled { graph, params, model, threads: THREADS })
    }

    fn inputs(&self, case: &Case, sizes: &Sizes, seed: u64) -> Result<Tensors> {
        let mut r = Random::new(seed);
        let value = |name: &str| sizes.get(name).copied();
        let size = |d: &Dim| Ok(usize::try_from(d.eval_named(&value)?).expect("no negative size"));
        let mut made = vec![];
        for (_, name, TensorType { dims, dtype }) in self.graph.inputs() {
            let dims = dims.iter().map(size).collect::<Result<Vec<usize>>>()?;
            let t = match case.indexes.get(name) {
                Some(limit) => indices(&mut r, dims, limit.eval_named(&value)?),
                None => tensor(&mut r, *dtype, dims),
            };
            made.push((name.to_string(), t));
        }
        Ok(made)
    }

    fn expected(&self, case: &Case, inputs: &[(String, Tensor)]) -> std::result::Result<Expected, String> {
        Expected::new(&self.graph, &self.params, inputs, case.bound).map_err(|e| format!("the interpreter: {e}"))
    }

    /// Makes the call twice with all inputs given; if the entry point has states, also with the states in a cache.
    fn call(&self, case: &Case, inputs: &Tensors) -> std::result::Result<(), String> {
        let wanted = self.expected(case, inputs)?;
        let session = self.model.session(&SessionOptions::default().threads(self.threads));
        let session = session.map_err(|e| e.to_string())?;
        let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let name = self.graph.name.as_str();
        for _ in 0..2 {
            let got = session.run_entry(name, &given).map_err(|e| e.to_string())?;
            wanted.compare(&got)?;
        }
        let entry = self.model.entry(name).map_err(|e| e.to_string())?;
        if entry.states.is_empty() {
            return Ok(());
        }
        let held: Vec<(String, String)> = entry
            .states
            .iter()
            .map(|s| (entry.inputs[s.input].name.clone(), entry.outputs[s.output].name.clone()))
            .collect();
        self.in_place(case, inputs, &held, &session).map_err(|what| format!("in place: {what}"))
    }

    /// Makes the call twice on one cache: the first call appends positions to an empty cache, the second appends the
    /// same positions again after them.
    fn in_place(
        &self,
        case: &Case,
        inputs: &Tensors,
        held: &[(String, String)],
        session: &sardonyx_runtime::Session,
    ) -> std::result::Result<(), String> {
        let text = |e: Box<Error>| e.to_string();
        let is_held = |name: &str| held.iter().any(|(input, _)| input == name);
        let views: Vec<(&str, TensorView)> =
            inputs.iter().filter(|(n, _)| !is_held(n)).map(|(n, t)| (n.as_str(), t.into())).collect();
        // More capacity than the calls need, so that the cache has other strides than a contiguous tensor.
        let mut cache = session.cache(&self.graph.name, 1000).map_err(text)?;
        let mut now: Tensors = inputs.clone();
        for (name, t) in now.iter_mut().filter(|(n, _)| is_held(n)) {
            let state = self.model.entry(&self.graph.name).map_err(text)?;
            let state = state.states.iter().find(|s| state.inputs[s.input].name == *name).expect("a state");
            let mut dims = t.dims().to_vec();
            dims[state.axis] = 0;
            *t = tensor(&mut Random::new(0), t.dtype(), dims);
        }
        for _ in 0..2 {
            let wanted = self.expected(case, &now)?;
            let got = session.run_cached(&self.graph.name, &views, &mut [], &mut cache, &RunOptions::default());
            let mut got = Tensors::from(got.map_err(text)?);
            for (i, (output, _)) in wanted.outputs.iter().enumerate() {
                if held.iter().any(|(_, o)| o == output) {
                    got.insert(i, (output.clone(), cache.tensor(output).map_err(text)?));
                }
            }
            wanted.compare(&got)?;
            for (input, output) in held {
                let longer = wanted.outputs.iter().find(|(n, _)| n == output).map(|(_, t)| t.clone());
                let at = now.iter().position(|(n, _)| n == input).expect("an input");
                now[at].1 = longer.expect("an output");
            }
        }
        Ok(())
    }
}

/// Parses the function, and declares the symbols that the calls name.
fn parse(context: &MlirContext, case: &Case) -> Result<Graph> {
    let module = Module::parse(context, &case.text).ok_or_else(|| Error::user("E0001", "the case does not parse"))?;
    let function = Operation::of_module(&module).block(0).and_then(|b| b.operations().first().copied());
    let mut graph = Graph::read(function.ok_or_else(|| Error::defect("no function"))?)?;
    for name in case.calls.iter().flat_map(|sizes| sizes.keys()) {
        graph.symbols.insert(name.clone(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
    }
    Ok(graph)
}

fn parameters(graph: &Graph) -> ParamStore {
    let mut params = ParamStore::new();
    for node in &graph.nodes {
        if let Op::Param { name, .. } = &node.op {
            let dims = node.ty.static_dims().expect("parameters have sizes");
            params.insert(name.clone(), tensor(&mut Random::new(params.len() as u64 + 99), node.ty.dtype, dims));
        }
    }
    params
}
