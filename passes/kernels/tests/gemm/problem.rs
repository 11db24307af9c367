//! Contraction problems: extents, element types, layouts of the operands, epilogues

use sardonyx_base::{DType, Dim, Encoding};
use sardonyx_dialects::flow::kernel::{Body, Container, Kernel, Memlet, Statement, Store};
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};

/// Layout of an operand, with b the number of batch entries, `rows` the operand's m or n, and `pad` unused elements at
/// the end of the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// [b, rows, k + pad]
    K(i64),
    /// [b, k, rows + pad]
    Rows(i64),
    /// [b, rows, k, 3]: no variable is contiguous.
    Apart,
    /// A constant packed in panels, the same for all batch entries.
    Panels,
    /// A constant of bf16 packed for GPUs, in panels of this many columns.
    Chunks(i64),
    /// [b / 3, rows, k + pad]: three batch entries share a matrix.
    Grouped(i64),
}

/// Epilogue that follows the reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Nothing,
    /// The result is [b, n, m].
    Transposed,
    /// gelu(x + bias[n])
    BiasGelu,
    /// x + residual[b, m, n]
    Residual,
    /// x · 0.125 + mask[b, n] + y[m]
    ScaleMask,
}

#[derive(Clone, Copy, Debug)]
pub struct Problem {
    pub dtype: DType,
    /// Whether the operands are bf16 and are widened to `dtype` before they are multiplied.
    pub widened: bool,
    /// Types of operands A and B if they are bytes; the accumulators are then i32.
    pub bytes: Option<[DType; 2]>,
    /// m, n, k
    pub sizes: [i64; 3],
    pub batch: i64,
    pub a: Lie,
    pub b: Lie,
    /// Layout of operand B of a second product with the same A, if any. The result is s + 2·t, where s is the first and
    /// t the second product.
    pub second: Option<Lie>,
    pub after: After,
    /// Whether extents are parameters of the launch.
    pub symbolic: bool,
    /// Whether n and k are constants even if `symbolic` is set.
    pub fixed: bool,
}

pub const PLAIN: Problem = Problem {
    dtype: DType::F32,
    widened: false,
    bytes: None,
    sizes: [64, 64, 64],
    batch: 1,
    a: Lie::K(0),
    b: Lie::Rows(0),
    second: None,
    after: After::Nothing,
    symbolic: false,
    fixed: false,
};

fn dim(text: &str) -> Dim {
    Dim::parse(text).unwrap()
}

impl Problem {
    pub fn symbol(&self, name: &str) -> Option<i64> {
        let [m, n, k] = self.sizes;
        [("b", self.batch), ("m", m), ("n", n), ("k", k)].iter().find(|(s, _)| *s == name).map(|(_, v)| *v)
    }

    /// Returns the extent of a variable plus `pad`.
    fn extent(&self, name: &str, pad: i64) -> Dim {
        let is_symbol = self.symbolic && !(self.fixed && matches!(name, "n" | "k"));
        let extent = if is_symbol { Dim::symbol(name) } else { Dim::constant(self.symbol(name).unwrap()) };
        extent + Dim::constant(pad)
    }

    fn container(&self, dims: Vec<Dim>) -> Container {
        Container::plain(self.dtype, dims)
    }

    /// Returns the container of an operand and the index with which it is loaded; %0 to %3 are b, m, n, k.
    fn factor(&self, lie: Lie, rows: &str, var: &str) -> (Container, Vec<Dim>) {
        let (container, index) = self.lying(lie, rows, var);
        let (dtype, depth) = match self.bytes {
            Some([left, right]) => (if rows == "m" { left } else { right }, 4),
            None if self.widened => (DType::BF16, 2),
            None => (self.dtype, 1),
        };
        let encoding = match container.encoding {
            Encoding::Panels { width, depth: 1 } => Encoding::Panels { width, depth },
            Encoding::Panels { .. } | Encoding::Plain => container.encoding,
        };
        (Container { dtype, encoding, ..container }, index)
    }

    fn lying(&self, lie: Lie, rows: &str, var: &str) -> (Container, Vec<Dim>) {
        let (b, k) = (self.extent("b", 0), self.extent("k", 0));
        match lie {
            Lie::K(pad) => (
                self.container(vec![b, self.extent(rows, 0), self.extent("k", pad)]),
                vec![dim("%0"), dim(var), dim("%3")],
            ),
            Lie::Rows(pad) => {
                (self.container(vec![b, k, self.extent(rows, pad)]), vec![dim("%0"), dim("%3"), dim(var)])
            }
            Lie::Apart => (
                self.container(vec![b, self.extent(rows, 0), k, Dim::constant(3)]),
                vec![dim("%0"), dim(var), dim("%3"), dim("1")],
            ),
            Lie::Grouped(pad) => {
                let groups = b.floordiv(&Dim::constant(3));
                let dims = vec![groups, self.extent(rows, 0), self.extent("k", pad)];
                (self.container(dims), vec![dim("%0 floordiv 3"), dim(var), dim("%3")])
            }
            Lie::Panels | Lie::Chunks(_) => {
                let dims = ["k", rows].map(|s| Dim::constant(self.symbol(s).unwrap()));
                let encoding = match lie {
                    Lie::Chunks(width) => Encoding::Panels { width: width as usize, depth: 8 },
                    _ => Encoding::Panels { width: 32, depth: 1 },
                };
                (Container { encoding, ..self.container(dims.to_vec()) }, vec![dim("%3"), dim(var)])
            }
        }
    }

    pub fn kernel(&self) -> Kernel {
        let mut k = Builder { reads: vec![], body: vec![], t: self.dtype };
        let (a, a_index) = self.factor(self.a, "m", "%1");
        let a = k.load(a, a_index);
        let mut sum = |lie: Lie| {
            let (b, b_index) = self.factor(lie, "n", "%2");
            let b = k.load(b, b_index);
            let product = k.apply(ScalarFn::Mul, &[a, b]);
            k.push(Body::Reduce { f: ReduceFn::Add, arg: product })
        };
        let (mut value, second) = (sum(self.b), self.second.map(sum));
        if let Some(second) = second {
            let two = k.constant(2.0);
            let twice = k.apply(ScalarFn::Mul, &[second, two]);
            value = k.apply(ScalarFn::Add, &[value, twice]);
        }
        match self.after {
            After::Nothing | After::Transposed => {}
            After::BiasGelu => {
                let bias = k.load(self.container(vec![self.extent("n", 0)]), vec![dim("%2")]);
                let x = k.apply(ScalarFn::Add, &[value, bias]);
                let (half, one, root) = (k.constant(0.5), k.constant(1.0), k.constant(std::f64::consts::FRAC_1_SQRT_2));
                let inner = k.apply(ScalarFn::Mul, &[x, root]);
                let erf = k.apply(ScalarFn::Erf, &[inner]);
                let up = k.apply(ScalarFn::Add, &[erf, one]);
                let scaled = k.apply(ScalarFn::Mul, &[x, half]);
                value = k.apply(ScalarFn::Mul, &[scaled, up]);
            }
            After::Residual => {
                let dims = ["b", "m", "n"].map(|s| self.extent(s, 0)).to_vec();
                let residual = k.load(self.container(dims), vec![dim("%0"), dim("%1"), dim("%2")]);
                value = k.apply(ScalarFn::Add, &[value, residual]);
            }
            After::ScaleMask => {
                let scale = k.constant(0.125);
                let scaled = k.apply(ScalarFn::Mul, &[value, scale]);
                let dims = ["b", "n"].map(|s| self.extent(s, 0)).to_vec();
                let mask = k.load(self.container(dims), vec![dim("%0"), dim("%2")]);
                let masked = k.apply(ScalarFn::Add, &[scaled, mask]);
                let y = k.load(self.container(vec![self.extent("m", 0)]), vec![dim("%1")]);
                value = k.apply(ScalarFn::Add, &[masked, y]);
            }
        }
        let outer = ["b", "m", "n"].map(|s| self.extent(s, 0)).to_vec();
        let mut out = outer.clone();
        let mut index = vec![dim("%0"), dim("%1"), dim("%2")];
        if self.after == After::Transposed {
            out.swap(1, 2);
            index.swap(1, 2);
        }
        Kernel {
            outer,
            inner: vec![self.extent("k", 0)],
            deep: vec![],
            reads: k.reads,
            writes: vec![self.container(out)],
            body: k.body,
            stores: vec![Store { memlet: Memlet { container: 0, index }, value }],
        }
    }
}

struct Builder {
    reads: Vec<Container>,
    body: Vec<Statement>,
    t: DType,
}

impl Builder {
    fn push(&mut self, body: Body) -> usize {
        self.body.push(Statement { body, dtype: self.t });
        self.body.len() - 1
    }

    fn load(&mut self, from: Container, index: Vec<Dim>) -> usize {
        let dtype = from.dtype;
        self.reads.push(from);
        let container = self.reads.len() - 1;
        let body = Body::Load { memlet: Memlet { container, index }, guard: None };
        self.body.push(Statement { body, dtype });
        let load = self.body.len() - 1;
        if dtype == self.t { load } else { self.push(Body::Convert(load, Conversion::Value)) }
    }

    fn apply(&mut self, f: ScalarFn, args: &[usize]) -> usize {
        self.push(Body::Apply { f, args: args.to_vec() })
    }

    fn constant(&mut self, value: f64) -> usize {
        self.push(Body::Const(value))
    }
}
