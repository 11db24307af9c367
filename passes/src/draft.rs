//! load, apply, reduce …  =>  the body and the operands of a kernel under construction

use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, Container, Kernel, Level, Memlet, Program, Statement, Store};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

/// A kernel under construction.
#[derive(Default)]
pub struct Draft {
    pub reads: Vec<Container>,
    pub args: Vec<Id>,
    pub body: Vec<Statement>,
}

impl Draft {
    pub fn push(&mut self, body: Body, dtype: DType) -> usize {
        self.body.push(Statement { body, dtype });
        self.body.len() - 1
    }

    pub fn load(&mut self, program: &Program, id: Id, index: Vec<Dim>, guard: Option<usize>) -> usize {
        let container = self.args.iter().position(|a| *a == id).unwrap_or_else(|| {
            self.args.push(id);
            self.reads.push(program.containers[id].clone());
            self.args.len() - 1
        });
        let dtype = program.containers[id].dtype;
        self.push(Body::Load { memlet: Memlet { container, index }, guard }, dtype)
    }

    pub fn apply(&mut self, f: ScalarFn, args: &[usize], dtype: DType) -> usize {
        self.push(Body::Apply { f, args: args.to_vec() }, dtype)
    }

    /// Appends the statements that follow a reduction of kernel `k`, with the value `sum` in place of the reduction
    /// `old`, and the expressions that `var` returns in place of the iteration variables. Returns the new number of
    /// each statement of `k`.
    pub fn follow(&mut self, k: &Kernel, (old, sum): (usize, usize), var: &dyn Fn(usize) -> Option<Dim>) -> Vec<usize> {
        let levels = k.levels();
        let mut map: Vec<usize> = vec![];
        for (at, statement) in k.body.iter().enumerate() {
            map.push(match levels[at] {
                _ if at == old => sum,
                Level::Row => {
                    let new = statement.body.renumbered(&|k| map[k], &|d| rename(d, var, &|k| map[k]));
                    self.push(new, statement.dtype)
                }
                // Only the reduction uses this value, so the number is never used.
                Level::Point | Level::Deep => sum,
            });
        }
        map
    }

    /// Builds a kernel without an inner space, which executes the drafted body at each outer point.
    pub fn map(self, outer: Vec<Dim>, writes: Vec<Container>, stores: Vec<Store>) -> Kernel {
        let Draft { reads, body, .. } = self;
        Kernel { outer, inner: vec![], deep: vec![], reads, writes, body, stores }
    }

    pub fn number(&mut self, v: i64) -> usize {
        self.push(Body::Index(Dim::constant(v)), DType::I64)
    }

    pub fn var(&mut self, v: usize) -> usize {
        self.push(Body::Index(Kernel::var(v)), DType::I64)
    }

    /// Appends statements that count the inner points at which a condition holds; returns the number of the statement
    /// that is the count.
    pub fn count(&mut self, condition: usize) -> usize {
        let (one, zero) = (self.number(1), self.number(0));
        let number = self.apply(ScalarFn::Select, &[condition, one, zero], DType::I64);
        self.sum(number)
    }

    pub fn sum(&mut self, arg: usize) -> usize {
        self.push(Body::Reduce { f: ReduceFn::Add, arg }, DType::I64)
    }
}
