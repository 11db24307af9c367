//! two states of a program  =>  the operations that only one of them has

use crate::meaning::Function;
use sardonyx_base::Dim;
use sardonyx_dialects::flow::{Body, FlowOp, Kernel};
use sardonyx_dialects::scalar::Conversion;
use sardonyx_dialects::sdx::{Node, Op};

/// Returns `- add(mul, x) : …` for each removed operation, then `+ …` for each added one. An operand is named after the
/// operation that defines it, because its value number would depend on all earlier operations.
pub fn changes(before: &[Function], after: &[Function]) -> Vec<String> {
    let all = |functions: &[Function]| functions.iter().flat_map(lines).collect::<Vec<String>>();
    let (old, new) = (all(before), all(after));
    let gone = without(&old, &new).into_iter().map(|line| format!("- {line}"));
    gone.chain(without(&new, &old).into_iter().map(|line| format!("+ {line}"))).collect()
}

/// Multiset difference `of` - `other`: a line that occurs a times in `of` and b times in `other` is returned a - b
/// times.
fn without<'l>(of: &'l [String], other: &[String]) -> Vec<&'l String> {
    let mut rest: Vec<&String> = other.iter().collect();
    let mut out = vec![];
    for line in of {
        match rest.iter().position(|l| *l == line) {
            Some(at) => {
                rest.swap_remove(at);
            }
            None => out.push(line),
        }
    }
    out
}

/// Returns one line for each operation that has operands, or for each kernel.
fn lines(function: &Function) -> Vec<String> {
    match function {
        Function::Values(g) => {
            let computed = g.nodes.iter().filter(|n| !n.args.is_empty());
            let line = |n: &Node| {
                let args: Vec<String> = n.args.iter().map(|a| label(g.node(*a))).collect();
                located(format!("{}({}) : {}", label(n), args.join(", "), n.ty), &n.origins)
            };
            computed.map(line).collect()
        }
        Function::Kernels(p) => {
            let kernels = p.steps.iter().filter_map(|step| match &step.op {
                FlowOp::Kernel(k) => Some(located(kernel(k), &step.origins)),
                FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View | FlowOp::Bind { .. } | FlowOp::Host(_) => None,
            });
            kernels.collect()
        }
    }
}

fn located(line: String, origins: &[String]) -> String {
    if origins.is_empty() { line } else { format!("{line}, at {}", origins.join(" ")) }
}

fn label(node: &Node) -> String {
    match &node.op {
        Op::Input { name, .. } | Op::Param { name, .. } => name.clone(),
        Op::Map(f) => f.name().to_string(),
        op => op.text().trim_start_matches("sdx.").replace('"', ""),
    }
}

fn list(dims: &[Dim]) -> String {
    dims.iter().map(Dim::to_string).collect::<Vec<String>>().join(", ")
}

fn kernel(k: &Kernel) -> String {
    let body: Vec<String> = k.body.iter().enumerate().map(|(i, s)| format!("${i} = {}", statement(&s.body))).collect();
    let store = |s: &sardonyx_dialects::flow::Store| format!("store ${} [{}]", s.value, list(&s.memlet.index));
    let all: Vec<String> = body.into_iter().chain(k.stores.iter().map(store)).collect();
    let deep = if k.deep.is_empty() { String::new() } else { format!(" x [{}]", list(&k.deep)) };
    format!("kernel [{}] x [{}]{deep} {{ {} }}", list(&k.outer), list(&k.inner), all.join("; "))
}

fn statement(body: &Body) -> String {
    match body {
        Body::Load { memlet, guard } => {
            let guard = guard.map_or(String::new(), |g| format!(" if ${g}"));
            format!("load {} [{}]{guard}", memlet.container, list(&memlet.index))
        }
        Body::Const(v) => v.to_string(),
        Body::Index(d) => format!("index {d}"),
        Body::Apply { f, args } => {
            let args: Vec<String> = args.iter().map(|a| format!("${a}")).collect();
            format!("{} {}", f.name(), args.join(" "))
        }
        Body::Convert(a, Conversion::Value) => format!("convert ${a}"),
        Body::Convert(a, Conversion::Bits) => format!("convert ${a} {{bits}}"),
        Body::Reduce { f, arg } => format!("reduce {} ${arg}", f.name()),
    }
}
