//! A short way to write a flow kernel

use sardonyx_dialects::flow::kernel::{Body, Container, Kernel, Layout, Memlet, Statement, Store};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_runtime::{DType, Dim};

pub struct Builder(pub Kernel);

fn dims(texts: &[&str]) -> Vec<Dim> {
    texts.iter().map(|t| Dim::parse(t).unwrap()).collect()
}

impl Builder {
    pub fn new(outer: &[&str], inner: &[&str]) -> Builder {
        let (outer, inner) = (dims(outer), dims(inner));
        Builder(Kernel { outer, inner, reads: vec![], writes: vec![], body: vec![], stores: vec![] })
    }

    fn push(&mut self, body: Body, dtype: DType) -> usize {
        self.0.body.push(Statement { body, dtype });
        self.0.body.len() - 1
    }

    /// A new operand, and a load of it.
    pub fn load(&mut self, dtype: DType, shape: &[&str], index: &[&str]) -> usize {
        self.guarded(dtype, shape, index, None)
    }

    pub fn guarded(&mut self, dtype: DType, shape: &[&str], index: &[&str], guard: Option<usize>) -> usize {
        self.0.reads.push(Container { dtype, dims: dims(shape), layout: Layout::RowMajor });
        let memlet = Memlet { container: self.0.reads.len() - 1, index: dims(index) };
        self.push(Body::Load { memlet, guard }, dtype)
    }

    /// A second load of operand `container`.
    pub fn again(&mut self, container: usize, index: &[&str]) -> usize {
        let dtype = self.0.reads[container].dtype;
        self.push(Body::Load { memlet: Memlet { container, index: dims(index) }, guard: None }, dtype)
    }

    pub fn constant(&mut self, value: f64, dtype: DType) -> usize {
        self.push(Body::Const(value), dtype)
    }

    pub fn index(&mut self, d: &str) -> usize {
        self.push(Body::Index(Dim::parse(d).unwrap()), DType::I64)
    }

    pub fn apply(&mut self, f: ScalarFn, args: &[usize]) -> usize {
        let types: Vec<DType> = args.iter().map(|a| self.0.body[*a].dtype).collect();
        let dtype = f.result(&types).unwrap();
        self.push(Body::Apply { f, args: args.to_vec() }, dtype)
    }

    pub fn convert(&mut self, value: usize, dtype: DType) -> usize {
        self.push(Body::Convert(value), dtype)
    }

    pub fn reduce(&mut self, f: ReduceFn, arg: usize) -> usize {
        let dtype = self.0.body[arg].dtype;
        self.push(Body::Reduce { f, arg }, dtype)
    }

    /// A new result.
    pub fn store(&mut self, value: usize, shape: &[&str], index: &[&str]) {
        let dtype = self.0.body[value].dtype;
        self.0.writes.push(Container { dtype, dims: dims(shape), layout: Layout::RowMajor });
        let memlet = Memlet { container: self.0.writes.len() - 1, index: dims(index) };
        self.0.stores.push(Store { memlet, value });
    }

    /// x · (1 + erf(x / √2)) / 2
    pub fn gelu(&mut self, x: usize) -> usize {
        let (half, one, root) = (
            self.constant(0.5, DType::F32),
            self.constant(1.0, DType::F32),
            self.constant(std::f64::consts::FRAC_1_SQRT_2, DType::F32),
        );
        let scaled = self.apply(ScalarFn::Mul, &[x, root]);
        let erf = self.apply(ScalarFn::Erf, &[scaled]);
        let sum = self.apply(ScalarFn::Add, &[erf, one]);
        let x = self.apply(ScalarFn::Mul, &[x, half]);
        self.apply(ScalarFn::Mul, &[x, sum])
    }

    /// Σ a · b
    pub fn dot(&mut self, a: usize, b: usize) -> usize {
        let product = self.apply(ScalarFn::Mul, &[a, b]);
        self.reduce(ReduceFn::Add, product)
    }
}
