//! small random programs  =>  the layouts found have the least cost

use super::pace::Pricer;
use super::path::{assignments, layout, shortest};
use super::*;
use crate::random::Random;
use sardonyx_base::DType;
use sardonyx_dialects::flow::{Container, Source, Statement, Step, Store};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_kernels::Target;
use std::collections::HashMap;
use std::sync::Arc;

const F: DType = DType::F32;

fn dims(sizes: &[i64]) -> Vec<Dim> {
    sizes.iter().map(|n| Dim::constant(*n)).collect()
}

fn load(container: usize, index: &[Dim]) -> Statement {
    Statement { body: Body::Load { memlet: Memlet { container, index: index.to_vec() }, guard: None }, dtype: F }
}

fn apply(f: ScalarFn, args: &[usize]) -> Statement {
    Statement { body: Body::Apply { f, args: args.to_vec() }, dtype: F }
}

#[derive(Default)]
struct Draft(Program);

impl Draft {
    fn container(&mut self, sizes: &[i64]) -> Id {
        self.0.container(Container::plain(F, dims(sizes)))
    }

    fn weights(&mut self, sizes: &[i64]) -> Id {
        let id = self.container(sizes);
        let op = FlowOp::Param { source: Source::one(&format!("w{id}")), window: None };
        self.0.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
        id
    }

    fn kernel(&mut self, outer: &[i64], inner: &[i64], args: &[Id], body: Vec<Statement>) -> Id {
        let result = self.container(outer);
        let of = |id: &Id| self.0.containers[*id].clone();
        let memlet = Memlet { container: 0, index: (0..outer.len()).map(Kernel::var).collect() };
        let kernel = Kernel {
            outer: dims(outer),
            inner: dims(inner),
            deep: vec![],
            reads: args.iter().map(of).collect(),
            writes: vec![of(&result)],
            stores: vec![Store { memlet, value: body.len() - 1 }],
            body,
        };
        kernel.check().unwrap();
        let op = FlowOp::Kernel(Arc::new(kernel));
        self.0.steps.push(Step { op, args: args.to_vec(), results: vec![result], origins: vec![] });
        result
    }

    /// Adds a convolution with constant weights of k x k.
    fn convolution(&mut self, x: Id, [c, o, h, w, k]: [i64; 5]) -> Id {
        let weights = self.weights(&[o, c, k, k]);
        let v = Kernel::var;
        let place = [v(0), v(4), v(2) + v(5), v(3) + v(6)];
        let sum = Statement { body: Body::Reduce { f: ReduceFn::Add, arg: 2 }, dtype: F };
        let body = vec![load(0, &place), load(1, &[v(1), v(4), v(5), v(6)]), apply(ScalarFn::Mul, &[0, 1]), sum];
        self.kernel(&[1, o, h, w], &[c, k, k], &[x, weights], body)
    }

    fn add(&mut self, a: Id, b: Id, sizes: &[i64]) -> Id {
        let at: Vec<Dim> = (0..4).map(Kernel::var).collect();
        self.kernel(sizes, &[], &[a, b], vec![load(0, &at), load(1, &at), apply(ScalarFn::Add, &[0, 1])])
    }

    /// Adds y[n, h, w, c] = x[n, c, h, w].
    fn transpose(&mut self, a: Id, [n, c, h, w]: [i64; 4]) -> Id {
        let at = [0, 3, 1, 2].map(Kernel::var);
        self.kernel(&[n, h, w, c], &[], &[a], vec![load(0, &at)])
    }
}

/// Builds convolutions, sums with earlier values, and a last step that is faster with one of the two orders of its
/// operand.
fn random_program(seed: u64) -> Program {
    let random = &mut Random::new(seed);
    let mut d = Draft::default();
    let (h, w) = (random.pick(&[1, 7, 20]), random.pick(&[3, 16, 50]));
    let c = random.pick(&[3, 16, 40]);
    let x = d.container(&[1, c, h, w]);
    d.0.inputs.push(("x".into(), x));
    let mut values = vec![];
    let (mut last, mut channels) = (x, c);
    for _ in 0..random.pick(&[2, 3, 4]) {
        let same: Vec<Id> = values.iter().filter(|(_, n)| *n == channels).map(|(id, _)| *id).collect();
        if random.pick(&[true, false]) && !same.is_empty() {
            last = d.add(last, random.pick(&same), &[1, channels, h, w]);
        } else {
            let o = random.pick(&[channels, 1, 12, 32]);
            last = d.convolution(last, [channels, o, h, w, 1]);
            channels = o;
        }
        values.push((last, channels));
    }
    let end = match random.pick(&[true, false]) {
        true => d.transpose(last, [1, channels, h, w]),
        false => d.add(last, last, &[1, channels, h, w]),
    };
    d.0.outputs.push(("y".into(), end));
    d.0
}

fn costs() -> Costs {
    Costs::new(Target::cpu())
}

/// Returns the least total cost over all combinations of layouts, pricing each kernel once per combination of its own
/// containers.
fn least(program: &Program, choices: &[Choice], pricer: &Pricer) -> u64 {
    let of: HashMap<Id, &Choice> = choices.iter().map(|c| (c.id, c)).collect();
    let mut known: HashMap<(usize, Vec<(Id, usize)>), u64> = HashMap::new();
    let ids: Vec<Id> = choices.iter().map(|c| c.id).collect();
    let mut total = |state: &Vec<(Id, usize)>| -> u64 {
        let steps = program.steps.iter().enumerate().filter(|(_, s)| kernel(s).is_some());
        steps
            .map(|(at, step)| {
                let concerns = |(id, _): &&(Id, usize)| step.args.contains(id) || step.results.contains(id);
                let own: Vec<(Id, usize)> = state.iter().filter(concerns).copied().collect();
                *known.entry((at, own)).or_insert_with(|| pricer.cost(at, &|id| layout(&of, state, id)))
            })
            .sum()
    };
    assignments(&ids, &of).iter().map(&mut total).min().unwrap_or(0)
}

#[test]
fn no_layouts_cost_less_than_those_found() {
    let costs = costs();
    let (mut chosen, mut ways) = (0, 0);
    for seed in 0..500 {
        let program = random_program(seed);
        let choices = choices(&program, Target::cpu());
        let pricer = Pricer::new(&program, &costs);
        let found = shortest(&program, &choices, &pricer);
        assert_eq!(found.cost, least(&program, &choices, &pricer), "seed {seed}");
        assert!(found.best_alone <= found.cost && found.cost <= found.plain, "seed {seed}");
        chosen += found.layouts.iter().filter(|(_, l)| *l != Layout::RowMajor).count();
        ways += choices.iter().map(|c| c.layouts.len()).product::<usize>();
    }
    assert!(chosen > 100 && ways > 2000, "{chosen} {ways}");
}

#[test]
fn a_convolution_net_gets_channels_last_and_its_ends_keep_theirs() {
    let mut d = Draft::default();
    let x = d.container(&[1, 16, 30, 30]);
    d.0.inputs.push(("x".into(), x));
    let a = d.convolution(x, [16, 64, 28, 28, 3]);
    let b = d.convolution(a, [64, 64, 28, 28, 1]);
    let c = d.add(a, b, &[1, 64, 28, 28]);
    let y = d.convolution(c, [64, 64, 26, 26, 3]);
    d.0.outputs.push(("y".into(), y));
    let mut program = d.0;
    lay_out(&mut program, &costs(), &mut Rewrites::default()).unwrap();
    let layout = |id: Id| &program.containers[id].layout;
    for id in [a, b, c] {
        assert_eq!(*layout(id), Layout::Order(vec![0, 2, 3, 1]));
    }
    assert!([x, y].iter().all(|id| *layout(*id) == Layout::RowMajor));
    // The vector lanes of the elementwise sum run along the channels.
    let Some(FlowOp::Kernel(sum)) =
        program.steps.iter().map(|s| &s.op).rfind(|op| matches!(op, FlowOp::Kernel(k) if k.inner.is_empty()))
    else {
        panic!("a map")
    };
    assert_eq!(sum.outer, dims(&[1, 28, 28, 64]));
    assert!(program.steps.iter().filter_map(kernel).all(|k| k.check().is_ok()));
}

/// One kernel with many operands that have a choice: the search ends, and the reported cost is correct.
#[test]
fn wide_kernels_are_laid_out_in_time() {
    let mut d = Draft::default();
    let x = d.container(&[1, 16, 20, 20]);
    d.0.inputs.push(("x".into(), x));
    let parts: Vec<Id> = (0..24).map(|_| d.convolution(x, [16, 32, 20, 20, 1])).collect();
    let at: Vec<Dim> = (0..4).map(Kernel::var).collect();
    let mut body: Vec<Statement> = (0..parts.len()).map(|i| load(i, &at)).collect();
    let mut sum = 0;
    for i in 1..parts.len() {
        body.push(apply(ScalarFn::Add, &[sum, i]));
        sum = body.len() - 1;
    }
    let all = d.kernel(&[1, 32, 20, 20], &[], &parts, body);
    let y = d.convolution(all, [32, 32, 18, 18, 3]);
    d.0.outputs.push(("y".into(), y));
    let (program, costs) = (d.0, costs());
    let (choices, pricer) = (choices(&program, Target::cpu()), Pricer::new(&program, &costs));
    let found = shortest(&program, &choices, &pricer);
    let of = |id: Id| found.layouts.iter().find(|(own, _)| *own == id).map(|(_, l)| l);
    let steps = program.steps.iter().enumerate().filter(|(_, s)| kernel(s).is_some());
    assert_eq!(found.cost, steps.map(|(at, _)| pricer.cost(at, &of)).sum::<u64>());
    assert!(found.cost <= found.plain, "{} {}", found.cost, found.plain);
}
