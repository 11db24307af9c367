//! sdx FILE.mlir [--allow-finite] [--explain-node NAME] [--out OUT]  =>  sizes, costs, rules and time of the e-graphs
//!
//! Each function is optimised by itself; with `--out OUT`, the result of function `f` is written to `OUT.f`.

use melior::ir::Module;
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::egraph::{Options, optimise};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| args.iter().position(|a| a == flag).and_then(|i| args.get(i + 1));
    let mut options = Options::for_target(sardonyx_kernels::Target::cpu());
    options.allow_finite = args.iter().any(|a| a == "--allow-finite");
    let text = std::fs::read_to_string(args.first().ok_or("a file is missing")?)?;
    let context = sardonyx_passes::context();
    let module = Module::parse(&context, &text).ok_or("the file is no MLIR")?;
    let module = Operation::of_module(&module);
    for function in module.block(0).ok_or("the module is empty")?.operations() {
        let graph = Graph::read(function).map_err(|e| e.to_string())?;
        let start = Instant::now();
        let (new, report) = optimise(&graph, &options).map_err(|e| e.to_string())?;
        let time = start.elapsed();
        if let Some(name) = after("--explain-node") {
            report.explanations.lines_for(name).iter().for_each(|line| println!("{line}"));
            continue;
        }
        println!("{}: {} nodes => {} nodes in {time:?}", graph.name, report.nodes_before, report.nodes_after);
        println!(
            "  e-graph of {} nodes, {} iterations, limited {}",
            report.egraph_nodes, report.iterations, report.limited
        );
        println!("  cost {} => {} ps, proved {}", report.cost_before, report.cost_after, report.proved);
        report.fired.iter().for_each(|(rule, n)| println!("  {n:6} {rule}"));
        if let Some(path) = after("--out") {
            let cx = sardonyx_dialects::mlir::Context::new(&context);
            std::fs::write(
                format!("{path}.{}", graph.name),
                new.write(cx).map_err(|e| e.to_string())?.operation().to_string(),
            )?;
        }
    }
    Ok(())
}
