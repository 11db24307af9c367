//! seed  =>  a graph with a few operations of every kind, over symbolic dimensions that may be 0

use super::Case;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::scalar::Conversion;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Op, Symbol, SymbolKind, TensorType, Value};
use std::collections::BTreeMap;

/// A linear congruential generator, which gives the same cases on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d);
        r.below(2);
        r
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Values of (b, s) in the calls of every graph.
static SIZES: [(i64, i64); 5] = [(2, 3), (3, 3), (0, 2), (2, 0), (1, 1)];
const ELEMENTS_MAX: i64 = 300;

pub struct Builder {
    pub r: Random,
    pub graph: Graph,
    params: BTreeMap<String, Tensor>,
    /// Data-dependent symbols, with their largest values.
    data: BTreeMap<String, i64>,
}

pub fn case(seed: u64) -> Case {
    let mut b =
        Builder { r: Random::new(seed), graph: Graph::default(), params: BTreeMap::new(), data: BTreeMap::new() };
    b.graph.name = "main".into();
    for name in ["b", "s"] {
        b.graph.symbols.insert(name.into(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
    }
    b.inputs();
    let n_ops = 2 + b.r.below(12);
    for _ in 0..n_ops {
        b.grow();
    }
    b.outputs();
    let calls = SIZES.iter().map(|&sizes| b.call(sizes)).collect();
    Case { name: format!("seed {seed}"), graph: b.graph, params: b.params, calls }
}

/// Random tensor of multiples of 1/4 between −4 and 4, or of integers between −16 and 16;
/// floating-point zeros are negative.
pub fn tensor(r: &mut Random, dtype: DType, dims: Vec<usize>) -> Tensor {
    let n = dims.iter().product();
    let quarters: Vec<i64> = (0..n).map(|_| r.below(33) as i64 - 16).collect();
    let float = |q: &i64| if *q == 0 { -0.0 } else { *q as f64 / 4.0 };
    match dtype {
        DType::F64 => Tensor::from_vec(dims, quarters.iter().map(float).collect()),
        DType::F32 => Tensor::from_vec(dims, quarters.iter().map(|q| float(q) as f32).collect()),
        DType::Bool => Tensor::from_vec(dims, quarters.iter().map(|q| *q > 0).collect()),
        _ => Tensor::from_vec(dims, quarters),
    }
}

impl Builder {
    pub fn ty(&self, v: Value) -> TensorType {
        self.graph.ty(v).clone()
    }

    fn dim(&mut self) -> Dim {
        let texts: [&str; 9] = ["b", "s", "b", "s", "1", "2", "3", "b + s", "6"];
        Dim::parse(texts[self.r.below(texts.len())]).expect("a dimension")
    }

    fn inputs(&mut self) {
        for name in ["x", "y", "z"] {
            let dims: Vec<Dim> = match name {
                "x" => vec![Dim::symbol("b"), Dim::symbol("s")],
                _ => (0..self.r.below(4)).map(|_| self.dim()).collect(),
            };
            let dtype = *self.r.pick(&[DType::F64, DType::F64, DType::I64, DType::F32]);
            let ty = TensorType::new(dtype, dims);
            self.add(Op::Input { name: name.into(), parts: vec![] }, &[], Some(ty));
        }
        if self.r.chance(40) {
            self.bind();
        }
        let dims = vec![3, 2];
        let weights = tensor(&mut self.r, DType::F64, dims.clone());
        self.params.insert("w".into(), weights);
        self.add(
            Op::Param { name: "w".into(), parts: vec![], bounded: false },
            &[],
            Some(static_type(DType::F64, &dims)),
        );
    }

    /// Adds a data-dependent symbol: the largest of three numbers in 0..4.
    fn bind(&mut self) {
        let ty = static_type(DType::I64, &[3]);
        let Some(counts) = self.add(Op::Input { name: "counts".into(), parts: vec![] }, &[], Some(ty)) else { return };
        let Some(most) = self.add(Op::Reduce { f: ReduceFn::Max, axes: vec![0] }, &[counts], None) else { return };
        self.graph.symbols.insert("n".into(), Symbol { kind: SymbolKind::Data, lo: 0, hi: Some(3) });
        self.add(Op::Bind { symbol: "n".into() }, &[most], None);
        self.data.insert("n".into(), 3);
        let n = Dim::symbol("n");
        self.add(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, vec![n.clone(), Dim::constant(2)])));
        self.add(Op::Dims(vec![n]), &[], Some(TensorType::new(DType::I64, vec![])));
        // Another use of the same reduction, which fusions may want to move.
        self.add(Op::Map(ScalarFn::Neg), &[most], None);
    }

    /// Adds a node if it is valid and its result small; otherwise adds nothing.
    pub fn add(&mut self, op: Op, args: &[Value], ty: Option<TensorType>) -> Option<Value> {
        let before = self.graph.nodes.len();
        let origins = [format!("/n{before}")];
        let v = self.graph.add_as(op, args, ty, &origins).ok()?;
        let largest = |name: &str| Some(self.data.get(name).copied().unwrap_or(3));
        let small = self.ty(v).elements().eval_named(&largest).is_ok_and(|n| n <= ELEMENTS_MAX);
        if small && self.ty(v).rank() <= 5 {
            return Some(v);
        }
        self.graph.nodes.truncate(before);
        None
    }

    fn any(&mut self) -> Value {
        // Later values are drawn more often, so that graphs are deep.
        let n = self.graph.nodes.len();
        let i = self.r.below(n).max(self.r.below(n));
        Value(i as u32)
    }

    fn any_where(&mut self, good: impl Fn(&TensorType) -> bool) -> Option<Value> {
        let all: Vec<Value> = self.graph.values().filter(|(_, n)| good(&n.ty)).map(|(v, _)| v).collect();
        if all.is_empty() { None } else { Some(*self.r.pick(&all)) }
    }

    fn outputs(&mut self) {
        let last = Value(self.graph.nodes.len() as u32 - 1);
        self.graph.outputs.push(("y0".into(), last));
        for i in 1..=self.r.below(3) {
            let v = self.any();
            self.graph.outputs.push((format!("y{i}"), v));
        }
    }

    fn call(&mut self, (b, s): (i64, i64)) -> Vec<(String, Tensor)> {
        let value = |name: &str| Some(if name == "b" { b } else { s });
        let inputs: Vec<(String, TensorType)> =
            self.graph.inputs().map(|(_, n, ty)| (n.to_string(), ty.clone())).collect();
        let one = |(name, ty): (String, TensorType)| {
            let dims = ty.dims.iter().map(|d| d.eval_named(&value).expect("a size") as usize).collect();
            let t = match name.as_str() {
                "counts" => Tensor::from_vec(dims, (0..3).map(|_| self.r.below(4) as i64).collect()),
                _ => tensor(&mut self.r, ty.dtype, dims),
            };
            (name, t)
        };
        inputs.into_iter().map(one).collect()
    }

    fn grow(&mut self) -> Option<Value> {
        match self.r.below(20) {
            0..3 => self.unary(),
            3..7 => self.binary(),
            7 => self.convert(),
            8 => self.reduce(),
            9..12 => self.normalise(),
            12 => self.contract(),
            13 => self.transpose(),
            14 => self.reshape(),
            15 => self.slice(),
            16 => self.gather(),
            17 => self.concat(),
            18 => self.pad(),
            _ => self.leaf(),
        }
    }

    fn leaf(&mut self) -> Option<Value> {
        let dims: Vec<Dim> = (0..1 + self.r.below(2)).map(|_| self.dim()).collect();
        match self.r.below(4) {
            0 => self.add(Op::Iota { axis: dims.len() - 1 }, &[], Some(TensorType::new(DType::I64, dims))),
            1 => {
                let n = Dim::constant(dims.len() as i64);
                self.add(Op::Dims(dims), &[], Some(TensorType::new(DType::I64, vec![n])))
            }
            2 => {
                let t = tensor(&mut self.r, DType::F64, vec![2]);
                self.add(Op::Const(t), &[], None)
            }
            _ => {
                let dtype = *self.r.pick(&[DType::F64, DType::I64, DType::Bool, DType::F32]);
                let t = tensor(&mut self.r, dtype, vec![]);
                let v = self.add(Op::Const(t), &[], None)?;
                self.add(Op::Broadcast { dims: vec![] }, &[v], Some(TensorType::new(dtype, dims)))
            }
        }
    }

    fn unary(&mut self) -> Option<Value> {
        use ScalarFn::*;
        let x = self.any();
        let f = match self.ty(x).dtype {
            DType::Bool => Not,
            DType::I64 => *self.r.pick(&[Neg, Abs, Sign]),
            _ => *self.r.pick(&[Neg, Abs, Exp, Tanh, Erf, Sqrt, Sin, Floor, Round]),
        };
        self.add(Op::Map(f), &[x], None)
    }

    fn binary(&mut self) -> Option<Value> {
        use ScalarFn::*;
        let x = self.any();
        let ty = self.ty(x);
        let y = match self.r.chance(60) {
            true => self.any_where(|t| *t == ty)?,
            false => self.broadcast_to(&ty)?,
        };
        let f = match ty.dtype {
            DType::Bool => *self.r.pick(&[And, Or, Xor]),
            DType::I64 => *self.r.pick(&[Add, Sub, Mul, Max, Min, Lt, Eq, Rem, Div]),
            _ => *self.r.pick(&[Add, Sub, Mul, Max, Min, Lt, Le, Div, Add, Mul]),
        };
        let v = self.add(Op::Map(f), &[x, y], None)?;
        match self.ty(v).dtype == DType::Bool && ty.dtype != DType::Bool {
            true => self.add(Op::Map(Select), &[v, x, y], None),
            false => Some(v),
        }
    }

    /// Broadcasts to `ty` a random value whose dimensions are some of the dimensions of `ty`, or 1.
    fn broadcast_to(&mut self, ty: &TensorType) -> Option<Value> {
        let wanted = ty.clone();
        let places = move |from: &TensorType| -> Option<Vec<usize>> {
            let mut at = 0;
            let mut next = |d: &Dim| {
                let hit = (at..wanted.rank()).find(|&i| wanted.dims[i] == *d || d.is_const(1))?;
                at = hit + 1;
                Some(hit)
            };
            from.dims.iter().map(&mut next).collect()
        };
        let x = self.any_where(|t| t.dtype == ty.dtype && places(t).is_some())?;
        let dims = places(&self.ty(x))?;
        self.add(Op::Broadcast { dims }, &[x], Some(ty.clone()))
    }

    fn convert(&mut self) -> Option<Value> {
        let x = self.any();
        let to = *self.r.pick(&[DType::F64, DType::I64, DType::F32, DType::Bool]);
        let ty = TensorType::new(to, self.ty(x).dims);
        self.add(Op::Convert(Conversion::Value), &[x], Some(ty))
    }

    fn axes(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|_| self.r.chance(50)).collect()
    }

    fn reduce(&mut self) -> Option<Value> {
        let x = self.any();
        let axes = self.axes(self.graph.ty(x).rank());
        let f = *self.r.pick(&ReduceFn::ALL);
        self.add(Op::Reduce { f, axes }, &[x], None)
    }

    /// x, reduce(x) broadcast  =>  f(x, …): the pattern of softmax and layer normalization
    fn normalise(&mut self) -> Option<Value> {
        let x = self.any();
        let ty = self.ty(x);
        let axes = self.axes(ty.rank());
        let f = *self.r.pick(&[ReduceFn::Add, ReduceFn::Max, ReduceFn::Min]);
        let mut row = self.add(Op::Reduce { f, axes: axes.clone() }, &[x], None)?;
        if self.r.chance(50) && ty.dtype != DType::Bool {
            row = self.add(Op::Map(ScalarFn::Neg), &[row], None)?;
        }
        let dims = (0..ty.rank()).filter(|i| !axes.contains(i)).collect();
        let spread = self.add(Op::Broadcast { dims }, &[row], Some(ty.clone()))?;
        let g = *self.r.pick(&[ScalarFn::Sub, ScalarFn::Add, ScalarFn::Max]);
        self.add(Op::Map(g), &[x, spread], None)
    }

    fn contract(&mut self) -> Option<Value> {
        let x = self.any();
        let (left_ty, mut letters) = (self.ty(x), 'a'..='z');
        let y = self.any_where(|t| t.dtype == left_ty.dtype && t.rank() <= 3)?;
        // A kernel may round the products of f32 one by one, so only f64 and integers are tested, which are stricter.
        if !matches!(left_ty.dtype, DType::F64 | DType::I64) || left_ty.rank() > 3 {
            return None;
        }
        let left: Vec<char> = left_ty.dims.iter().map(|_| letters.next()).collect::<Option<_>>()?;
        let mut right: Vec<char> = vec![];
        for d in self.ty(y).dims {
            let same = (0..left.len()).find(|&i| left_ty.dims[i] == d && !right.contains(&left[i]));
            right.push(match same.filter(|_| self.r.chance(80)) {
                Some(i) => left[i],
                None => letters.next()?,
            });
        }
        let mut all = left.clone();
        all.extend(right.iter().filter(|c| !left.contains(c)));
        // A dimension of one operand alone (a letter) must stay in f64: lowering would reduce it before the product,
        // which changes infinities and rounding.
        let stays = |c: &char| left_ty.dtype == DType::F64 && !(left.contains(c) && right.contains(c));
        let mut result: Vec<char> = all.into_iter().filter(|c| stays(c) || self.r.chance(60)).collect();
        if self.r.chance(30) {
            result.reverse();
        }
        let spec = ContractSpec { left, right, result };
        // A contraction without a reduction is left out, because its zeros may have either sign: it may compute 0 + x ·
        // y or x · y.
        if left_ty.dtype == DType::F64 && spec.summed().is_empty() {
            return None;
        }
        self.add(Op::Contract(spec), &[x, y], None)
    }

    fn transpose(&mut self) -> Option<Value> {
        let x = self.any();
        let mut perm: Vec<usize> = (0..self.graph.ty(x).rank()).collect();
        for i in (1..perm.len()).rev() {
            perm.swap(i, self.r.below(i + 1));
        }
        self.add(Op::Transpose { perm }, &[x], None)
    }
}

mod motion;

pub fn static_type(dtype: DType, dims: &[usize]) -> TensorType {
    TensorType::new(dtype, dims.iter().map(|&d| Dim::constant(d as i64)).collect::<Vec<_>>())
}
