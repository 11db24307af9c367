//! seed  =>  a program: an operation under test, whose operands may be moved, and up to two operations after it
//!
//! Operations after an operation that rounds only move elements or commute with rounding. So the error bound of that
//! operation holds for the program's result, whatever is fused.

use super::builder::{Builder, Rest, c};
use super::models;
use super::random::{Random, Values};
use super::subject::{Move, Schedule, Subject};
use sardonyx::import::ParamStore;
use sardonyx::onnx::Model;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::scalar::{Conversion, Domain, ReduceFn, ResultType, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Op, TensorType, Value};

pub struct Program {
    pub seed: u64,
    pub subject: Subject,
    /// Name of the entry point.
    pub name: String,
    pub source: Source,
    pub params: ParamStore,
    pub inputs: Vec<(String, Tensor)>,
}

pub enum Source {
    Graph(Box<Graph>),
    Model(Box<Model>),
}

impl Program {
    pub fn new(schedule: &Schedule, seed: u64) -> Program {
        let subject = schedule.subject(seed);
        let name = format!("p{seed}");
        let mut r = Random::new(seed);
        for _ in 0..1000 {
            let r = Random::new(r.bits());
            let drawn = match subject {
                Subject::Model(form) => models::draw(r, form, &name)
                    .map(|(model, inputs)| (Source::Model(Box::new(model)), ParamStore::new(), inputs)),
                Subject::Map(..) | Subject::Convert(..) | Subject::Reduce(..) => draw(r, subject, &name),
                Subject::Contract(_) | Subject::Move(..) | Subject::Iota | Subject::Dims => draw(r, subject, &name),
            };
            if let Some((source, params, inputs)) = drawn {
                return Program { seed, subject, name, source, params, inputs };
            }
        }
        panic!("seed {seed}: no program of {subject:?} is small enough")
    }
}

type Drawn = (Source, ParamStore, Vec<(String, Tensor)>);

fn draw(mut r: Random, subject: Subject, name: &str) -> Option<Drawn> {
    let (behind, rank) = match subject {
        Subject::Move(Move::Append, _) => (0, 1 + r.below(6)),
        Subject::Dims => (0, r.below(2)),
        _ => (r.below(3), r.below(7)),
    };
    let mut b = Builder::new(r, name, subject, values(subject));
    let dims = b.dims(rank);
    let y = b.made(Rest::Subject(behind), result(subject), dims)?;
    b.graph.outputs.push(("y".into(), y));
    // Inputs come first, and only those that are used are kept.
    let mut graph = in_order(&b.graph);
    let used = |name: &str| graph.nodes.iter().any(|n| n.ty.dims.iter().any(|d| d.names().contains(name)));
    let used: Vec<String> = b.graph.symbols.keys().filter(|name| used(name)).cloned().collect();
    graph.symbols.retain(|name, _| used.contains(name));
    // A call gives a symbol its value by a dimension of an input.
    let given = |name: &str| graph.inputs().any(|(_, _, ty)| ty.dims.contains(&Dim::symbol(name)));
    if !graph.symbols.keys().all(|name| given(name)) {
        return None;
    }
    b.inputs.retain(|(name, _)| graph.inputs().any(|(_, n, _)| n == name));
    Some((Source::Graph(Box::new(graph)), b.params, b.inputs))
}

fn in_order(graph: &Graph) -> Graph {
    let live = graph.live();
    let is_input = |v: Value| matches!(graph.node(v).op, Op::Input { .. });
    let all = || graph.values().map(|(v, _)| v).filter(|v| live[v.index()]);
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut places = vec![Value(0); graph.nodes.len()];
    for v in all().filter(|v| is_input(*v)).chain(all().filter(|v| !is_input(*v))) {
        let mut node = graph.node(v).clone();
        node.args.iter_mut().for_each(|a| *a = places[a.index()]);
        places[v.index()] = out.push(node);
    }
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), places[v.index()])).collect();
    out
}

/// Kind of the values for a subject. Sums and products use numbers near 1, so that they stay in range.
fn values(subject: Subject) -> Values {
    match subject {
        Subject::Reduce(ReduceFn::Add | ReduceFn::Mul, _) | Subject::Contract(_) => Values::Near1,
        Subject::Convert(Conversion::Bits, ..) => Values::Numbers,
        Subject::Map(ScalarFn::Sin | ScalarFn::Cos, _) => Values::Angles,
        _ => Values::Any,
    }
}

/// Element type of the subject's result.
fn result(subject: Subject) -> DType {
    match subject {
        Subject::Map(f, _) if f.row().result == ResultType::Bool => DType::Bool,
        Subject::Map(_, t) | Subject::Convert(_, _, t) | Subject::Reduce(_, t) => t,
        Subject::Contract(t) | Subject::Move(_, t) => t,
        Subject::Iota | Subject::Dims => DType::I64,
        Subject::Model(_) => unreachable!("models are drawn elsewhere"),
    }
}

impl Builder {
    /// Builds the operation under test.
    pub fn subject(&mut self, dims: Vec<Dim>) -> Option<Value> {
        match self.subject {
            Subject::Map(f, t) => {
                let mut args = vec![];
                for i in 0..f.row().operands {
                    let t = if f == ScalarFn::Select && i == 0 { DType::Bool } else { t };
                    args.push(self.operand(t, dims.clone(), 2)?);
                }
                self.add(Op::Map(f), &args, None)
            }
            Subject::Convert(how, from, to) => {
                let x = self.operand(from, dims.clone(), 2)?;
                self.add(Op::Convert(how), &[x], Some(TensorType::new(to, dims)))
            }
            Subject::Reduce(f, t) => self.reduce(f, t, dims),
            Subject::Contract(t) => self.contract(t, dims),
            Subject::Move(how, t) => self.moved(how, t, dims, Rest::Operand(1)),
            Subject::Iota => {
                let axis = if dims.is_empty() { None } else { Some(self.r.below(dims.len())) }?;
                self.add(Op::Iota { axis }, &[], Some(TensorType::new(DType::I64, dims)))
            }
            Subject::Dims => {
                let (x, y) = (self.extent(), self.extent());
                let values = [x.clone(), y.clone(), x.clone() * y.clone(), c(-3)];
                let n = self.r.below(5).min(values.len());
                let (dims, n) = if dims.is_empty() { (vec![], 1) } else { (vec![c(n as i64)], n) };
                let ty = TensorType::new(DType::I64, dims);
                let numbers = self.add(Op::Dims(values[..n].to_vec()), &[], Some(ty))?;
                // Concatenated to an input whose dimensions give the symbols their values.
                let list = TensorType::new(DType::I64, vec![c(n as i64)]);
                let numbers = self.add(Op::Reshape, &[numbers], Some(list))?;
                let data = self.input(DType::I64, vec![x.clone(), y.clone()], Values::Any)?;
                let data = self.add(Op::Reshape, &[data], Some(TensorType::new(DType::I64, vec![x * y])))?;
                self.add(Op::Concat { axis: 0 }, &[data, numbers], None)
            }
            Subject::Model(_) => unreachable!("models are drawn elsewhere"),
        }
    }

    fn reduce(&mut self, f: ReduceFn, t: DType, dims: Vec<Dim>) -> Option<Value> {
        let (mut from, mut axes) = (dims, vec![]);
        for _ in 0..self.r.below(4) {
            let at = self.r.below(from.len() + 1);
            axes.iter_mut().filter(|a| **a >= at).for_each(|a| *a += 1);
            axes.push(at);
            let extent = self.extent();
            from.insert(at, extent);
        }
        axes.sort();
        let length: i64 = axes.iter().map(|a| self.size(&from[*a])).product();
        // A product of at most 64 factors of at least 1/2 does not underflow in f32.
        if f == ReduceFn::Mul && t.is_float() && length > 64 {
            return None;
        }
        let x = self.operand(t, from, 2)?;
        self.add(Op::Reduce { f, axes }, &[x], None)
    }

    fn contract(&mut self, t: DType, dims: Vec<Dim>) -> Option<Value> {
        let mut letters = 'a'..='z';
        let result: Vec<char> = letters.by_ref().take(dims.len()).collect();
        let mut all: Vec<(char, Dim)> = result.iter().copied().zip(dims).collect();
        for letter in letters.by_ref().take(self.r.below(3)) {
            let extent = self.extent();
            all.push((letter, extent));
        }
        let (mut left, mut right) = (vec![], vec![]);
        for at in self.r.permutation(all.len()) {
            let of = if result.contains(&all[at].0) { self.r.below(3) } else { self.r.pick(&[0, 1, 2, 2, 2, 2]) };
            (of != 1).then(|| left.push(all[at].clone()));
            (of != 0).then(|| right.push(all[at].clone()));
        }
        if self.r.chance(50) {
            right.reverse();
        }
        let letters = |side: &[(char, Dim)]| side.iter().map(|(c, _)| *c).collect::<Vec<char>>();
        let dims = |side: &[(char, Dim)]| side.iter().map(|(_, d)| d.clone()).collect::<Vec<Dim>>();
        let spec = ContractSpec { left: letters(&left), right: letters(&right), result };
        let x = self.operand(t, dims(&left), 1)?;
        let y = self.operand(t, dims(&right), 1)?;
        self.add(Op::Contract(spec), &[x, y], None)
    }

    /// Builds an operation after the one under test.
    pub fn wrapped(&mut self, more: usize, dtype: DType, dims: Vec<Dim>) -> Option<Value> {
        let rest = Rest::Subject(more - 1);
        // After a narrow float, only movements: a kernel may keep intermediate values in f32 and round only the stored
        // one.
        let narrow = dtype.is_float() && dtype.bits() <= 8;
        if narrow || self.r.chance(50) {
            let how = self.some_move();
            return self.moved(how, dtype, dims, rest);
        }
        let f = self.r.pick(functions(dtype));
        let x = self.made(rest, dtype, dims.clone())?;
        let mut args = vec![x];
        if f == ScalarFn::Select {
            args.insert(0, self.operand(DType::Bool, dims.clone(), 1)?);
        }
        while args.len() < f.row().operands {
            args.push(self.operand(dtype, dims.clone(), 1)?);
        }
        if self.r.chance(50) && f != ScalarFn::Select {
            args.reverse();
        }
        self.add(Op::Map(f), &args, None)
    }
}

/// Functions whose result has the type of their operands; for floats only those that commute with rounding.
fn functions(dtype: DType) -> &'static [ScalarFn] {
    use ScalarFn::*;
    match dtype {
        t if Domain::Bools.contains(t) => &[And, Not, Or, Xor, Select],
        t if Domain::Floats.contains(t) => &[Neg, Abs, Max, Min, Select],
        _ => &[Neg, Abs, Max, Min, Select, Add, Sub, Mul, Div, Rem, BitAnd, BitOr, BitXor, Sign],
    }
}
