//! "(contract (mul ?x scale) ?y)"  =>  a random graph of that structure, with random shapes, attributes and element
//! types

use crate::egraph::expr::scalar;
use crate::egraph::table::letter;
use crate::random::Random;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::scalar::{Conversion, ROWS, ReduceFn, ResultType, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Op, Symbol, SymbolKind, TensorType, Value};

#[derive(Clone, Debug)]
pub struct Sketch {
    name: String,
    /// Operations with the same label and the same result dimensions have the same attributes.
    label: String,
    args: Vec<Sketch>,
}

pub fn parse(text: &str) -> Sketch {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    parse_from(&mut spaced.split_whitespace().peekable())
}

fn parse_from<'a>(tokens: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Sketch {
    let token = tokens.next().expect("a sketch goes on");
    if token != "(" {
        return Sketch { name: token.into(), label: String::new(), args: vec![] };
    }
    let head = tokens.next().expect("an operation");
    let (name, label) = head.split_once('#').unwrap_or((head, ""));
    let mut args = vec![];
    while tokens.peek() != Some(&")") {
        args.push(parse_from(tokens));
    }
    tokens.next();
    Sketch { name: name.into(), label: label.into(), args }
}

/// Element types of results; the usual ones are more likely.
const DTYPES: [DType; 11] = [
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F64,
    DType::F16,
    DType::I64,
    DType::I32,
    DType::Bool,
    DType::BF16,
    DType::U32,
];

pub struct Sampler<'a> {
    pub r: &'a mut Random,
    pub graph: Graph,
    labelled: Vec<(String, Vec<Dim>, Op, Vec<Dim>)>,
    functions: Vec<(String, ReduceFn)>,
    /// Labelled contractions, with the dimensions of their operands.
    contractions: Vec<(String, ContractSpec, Vec<Dim>, Vec<Dim>)>,
    /// Labelled concatenations: the dimensions of the result, the axis and the sizes of the parts.
    partitions: Vec<(String, Vec<Dim>, usize, Vec<i64>)>,
    named: Vec<(String, TensorType, Value)>,
}

/// A random instance of a sketch; `None` if the random choices do not fit together.
pub fn sample(sketch: &Sketch, r: &mut Random) -> Option<Graph> {
    let (labelled, functions, contractions) = (vec![], vec![], vec![]);
    let graph = Graph::default();
    let mut s = Sampler { r, graph, labelled, functions, contractions, partitions: vec![], named: vec![] };
    for name in ["b", "s"] {
        s.graph.symbols.insert(name.into(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
    }
    let goal = TensorType::new(s.r.pick(&DTYPES), s.dims());
    let root = s.grow(sketch, &goal)?;
    s.graph.outputs.push(("y".into(), root));
    Some(s.graph)
}

impl Sampler<'_> {
    pub fn dim(&mut self) -> Dim {
        match self.r.below(12) {
            0 => Dim::constant(0),
            1..4 => Dim::constant(1),
            4..9 => Dim::constant(2 + self.r.below(3) as i64),
            9 => Dim::constant(6),
            10 => Dim::symbol("b"),
            _ => Dim::symbol("s"),
        }
    }

    fn dims(&mut self) -> Vec<Dim> {
        (0..self.r.below(5)).map(|_| self.dim()).collect()
    }

    pub fn add(&mut self, op: Op, args: &[Value], ty: Option<TensorType>) -> Option<Value> {
        let small = |t: &TensorType| t.elements().eval(&|_| Some(3)).is_ok_and(|n| n <= 2000) && t.rank() <= 7;
        let v = self.graph.add_as(op, args, ty, &[]).ok()?;
        small(self.graph.ty(v)).then_some(v)
    }

    pub fn grow(&mut self, sketch: &Sketch, goal: &TensorType) -> Option<Value> {
        if sketch.args.is_empty() {
            return self.leaf(&sketch.name, goal);
        }
        let known = self.labelled.iter().find(|l| !sketch.label.is_empty() && l.0 == sketch.label && l.1 == goal.dims);
        if let Some((_, _, op, dims)) = known.cloned() {
            let x = self.grow(&sketch.args[0], &TensorType::new(goal.dtype, dims))?;
            return self.add(op, &[x], Some(goal.clone()));
        }
        if let Some(f) = ScalarFn::from_name(&sketch.name) {
            return self.map(f, sketch, goal);
        }
        let of = |dims: Vec<Dim>| TensorType::new(goal.dtype, dims);
        match sketch.name.as_str() {
            "map" => {
                let fits = |r: &&sardonyx_dialects::scalar::Row| r.operands == sketch.args.len();
                let f = self.r.pick(&ROWS.iter().filter(fits).map(|r| r.function).collect::<Vec<_>>());
                self.map(f, sketch, goal)
            }
            "contract" => self.contract(sketch, goal),
            "concat" => self.concat(sketch, goal),
            "gather" => self.gather(sketch, goal),
            "mean" => self.mean(sketch, goal),
            name => {
                let (op, ty) = match name {
                    "convert" => {
                        let compares = ScalarFn::from_name(&sketch.args[0].name)
                            .is_some_and(|f| matches!(f.row().result, ResultType::Bool));
                        let from = if compares { DType::Bool } else { self.r.pick(&DTYPES) };
                        (Op::Convert(Conversion::Value), TensorType::new(from, goal.dims.clone()))
                    }
                    "reshape" => (Op::Reshape, of(self.regrouped(&goal.dims))),
                    "transpose" => self.transpose(goal),
                    "broadcast" => self.broadcast(goal),
                    "slice" => self.slice(goal)?,
                    "sum" => self.reduce(ReduceFn::Add, goal),
                    "reduce" => {
                        let known = self.functions.iter().find(|(l, _)| *l == sketch.label).map(|(_, f)| *f);
                        let f = known.unwrap_or_else(|| self.r.pick(&ReduceFn::ALL));
                        if !sketch.label.is_empty() {
                            self.functions.push((sketch.label.clone(), f));
                        }
                        self.reduce(f, goal)
                    }
                    other => panic!("a sketch of `{other}`"),
                };
                let x = self.grow(&sketch.args[0], &ty)?;
                if !sketch.label.is_empty() && name != "reduce" {
                    self.labelled.push((sketch.label.clone(), goal.dims.clone(), op.clone(), ty.dims));
                }
                self.add(op, &[x], Some(goal.clone()))
            }
        }
    }

    fn map(&mut self, f: ScalarFn, sketch: &Sketch, goal: &TensorType) -> Option<Value> {
        let operand = match f.row().result {
            ResultType::Same => goal.dtype,
            ResultType::Bool => self.r.pick(&DTYPES),
        };
        let ty = TensorType::new(operand, goal.dims.clone());
        let mut args = vec![];
        for (i, arg) in sketch.args.iter().enumerate() {
            let condition = f == ScalarFn::Select && i == 0;
            let ty = if condition { TensorType::new(DType::Bool, goal.dims.clone()) } else { ty.clone() };
            args.push(self.grow(arg, &ty)?);
        }
        let v = self.add(Op::Map(f), &args, None)?;
        (self.graph.ty(v) == goal).then_some(v)
    }

    fn leaf(&mut self, name: &str, goal: &TensorType) -> Option<Value> {
        if let Some((_, _, v)) = self.named.iter().find(|(n, ty, _)| n == name && ty == goal && n.starts_with('?')) {
            return Some(*v);
        }
        let number = |s: &mut Self, value: f64| {
            let c = s.add(Op::Const(scalar(goal.dtype, value)?), &[], None)?;
            if goal.rank() == 0 { Some(c) } else { s.add(Op::Broadcast { dims: vec![] }, &[c], Some(goal.clone())) }
        };
        let v = match name.split(':').next_back().unwrap_or(name) {
            "splat" => {
                let value = self.r.pick(&[0.0, -0.0, 1.0, -1.0, 0.3, 1e30, 1e30, f64::INFINITY, f64::NAN]);
                number(self, value)
            }
            "scale" => {
                let value = self.r.pick(&[1.0, -1.0, 3.0, 0.3, 8.0, 1e-3, 700.0]);
                number(self, value)
            }
            "power-of-two" => {
                let value = self.r.pick(&[1.0, -2.0, 0.125, 64.0]);
                number(self, value)
            }
            kind @ ("non-negative" | "finite" | "never-nan") => {
                let bytes = if kind == "non-negative" { DType::U8 } else { DType::I8 };
                let input = self.input(&TensorType::new(bytes, goal.dims.clone()))?;
                self.add(Op::Convert(Conversion::Value), &[input], Some(goal.clone()))
            }
            "param" => {
                let name = format!("p{}", self.graph.nodes.len());
                self.add(Op::Param { name, parts: vec![], bounded: false }, &[], Some(goal.clone()))
            }
            "iota" => {
                let axis = self.r.below(goal.rank());
                self.add(Op::Iota { axis }, &[], Some(goal.clone()))
            }
            text => match text.parse() {
                Ok(value) => number(self, value),
                Err(_) => self.input(goal),
            },
        }?;
        self.named.push((name.into(), goal.clone(), v));
        Some(v)
    }

    fn input(&mut self, ty: &TensorType) -> Option<Value> {
        let name = format!("x{}", self.graph.nodes.len());
        self.add(Op::Input { name, parts: vec![] }, &[], Some(ty.clone()))
    }

    /// Returns random dimensions with the same number of elements: neighbours are merged, dimensions are halved, and
    /// dimensions of 1 are added and removed.
    fn regrouped(&mut self, dims: &[Dim]) -> Vec<Dim> {
        let mut out = dims.to_vec();
        for _ in 0..1 + self.r.below(2) {
            let i = self.r.below(out.len() + 1);
            match self.r.below(4) {
                0 => out.insert(i, Dim::constant(1)),
                1 if i < out.len() && out[i].is_const(1) => drop(out.remove(i)),
                2 if i + 1 < out.len() => {
                    let next = out.remove(i + 1);
                    out[i] = out[i].clone() * next;
                }
                _ => {
                    let Some(n) = out.get(i).and_then(Dim::as_const).filter(|n| n % 2 == 0 && *n > 0) else { continue };
                    out[i] = Dim::constant(n / 2);
                    out.insert(i + self.r.below(2), Dim::constant(2));
                }
            }
        }
        out
    }

    fn transpose(&mut self, goal: &TensorType) -> (Op, TensorType) {
        let mut perm: Vec<usize> = (0..goal.rank()).collect();
        self.r.shuffle(&mut perm);
        let mut dims = goal.dims.clone();
        perm.iter().enumerate().for_each(|(i, &p)| dims[p] = goal.dims[i].clone());
        (Op::Transpose { perm }, TensorType::new(goal.dtype, dims))
    }

    fn broadcast(&mut self, goal: &TensorType) -> (Op, TensorType) {
        let at: Vec<usize> = (0..goal.rank()).filter(|_| self.r.chance(60)).collect();
        let dim = |s: &mut Self, i: usize| if s.r.chance(30) { Dim::constant(1) } else { goal.dims[i].clone() };
        let dims: Vec<Dim> = at.iter().map(|&i| dim(self, i)).collect();
        (Op::Broadcast { dims: at }, TensorType::new(goal.dtype, dims))
    }

    fn slice(&mut self, goal: &TensorType) -> Option<(Op, TensorType)> {
        let (mut starts, mut steps, mut dims) = (vec![], vec![], vec![]);
        for d in &goal.dims {
            let (start, step) = match (d.as_const(), self.r.below(4)) {
                (Some(n), 0) if n > 0 => (n - 1, -1),
                (Some(n), 1) if n > 0 => (1, 2),
                _ => (self.r.below(3) as i64, 1),
            };
            let n = match d.as_const() {
                Some(n) if n > 0 => Dim::constant(start.max(start + step * (n - 1)) + 1 + self.r.below(2) as i64),
                _ => d.clone() + Dim::constant(start),
            };
            starts.push(Dim::constant(start));
            steps.push(step);
            dims.push(n);
        }
        Some((Op::Slice { starts, steps }, TensorType::new(goal.dtype, dims)))
    }

    fn reduce(&mut self, f: ReduceFn, goal: &TensorType) -> (Op, TensorType) {
        let (mut dims, mut axes, mut rest) = (vec![], vec![], goal.dims.iter());
        loop {
            if self.r.chance(if axes.is_empty() { 50 } else { 20 }) {
                axes.push(dims.len());
                dims.push(self.dim());
            } else if let Some(d) = rest.next() {
                dims.push(d.clone());
            } else {
                break;
            }
        }
        (Op::Reduce { f, axes }, TensorType::new(goal.dtype, dims))
    }

    /// A sum over n elements times 1/n.
    fn mean(&mut self, sketch: &Sketch, goal: &TensorType) -> Option<Value> {
        // The label belongs to the sum, since the mean itself is not an operation.
        let label = format!("{}.sum", sketch.label);
        let sum = Sketch { name: "sum".into(), label, args: sketch.args.clone() };
        let sum = self.grow(&sum, goal)?;
        let n = |ty: &TensorType| ty.elements().as_const().filter(|n| *n > 0);
        let over = n(self.graph.ty(self.graph.node(sum).args[0]))? / n(goal)?;
        let c = self.add(Op::Const(scalar(goal.dtype, 1.0 / over as f64)?), &[], None)?;
        let c = match goal.rank() {
            0 => c,
            _ => self.add(Op::Broadcast { dims: vec![] }, &[c], Some(goal.clone()))?,
        };
        self.add(Op::Map(ScalarFn::Mul), &[sum, c], None)
    }

    fn concat(&mut self, sketch: &Sketch, goal: &TensorType) -> Option<Value> {
        let known =
            self.partitions.iter().find(|p| !sketch.label.is_empty() && p.0 == sketch.label && p.1 == goal.dims);
        let (axis, sizes) = match known.cloned() {
            Some((_, _, axis, sizes)) => (axis, sizes),
            None => self.partition(goal, sketch.args.len())?,
        };
        if !sketch.label.is_empty() {
            self.partitions.push((sketch.label.clone(), goal.dims.clone(), axis, sizes.clone()));
        }
        let of = |n: i64| {
            let mut ty = goal.clone();
            ty.dims[axis] = Dim::constant(n);
            ty
        };
        if sketch.args[0].name != "halves" {
            let parts = sketch.args.iter().zip(&sizes);
            let args = parts.map(|(arg, &n)| self.grow(arg, &of(n))).collect::<Option<Vec<_>>>()?;
            return self.add(Op::Concat { axis }, &args, None);
        }
        // The parts are slices of one value, beginning at a random offset.
        let mut from = self.r.below(2) as i64;
        let all = from + sizes.iter().sum::<i64>() + self.r.below(2) as i64;
        let x = self.grow(&sketch.args[0].args[0], &of(all))?;
        let mut args = vec![];
        for n in sizes {
            let mut starts = vec![Dim::constant(0); goal.rank()];
            starts[axis] = Dim::constant(from);
            from += n;
            args.push(self.add(Op::Slice { starts, steps: vec![1; goal.rank()] }, &[x], Some(of(n)))?);
        }
        self.add(Op::Concat { axis }, &args, None)
    }

    fn partition(&mut self, goal: &TensorType, parts: usize) -> Option<(usize, Vec<i64>)> {
        let fixed: Vec<usize> = (0..goal.rank()).filter(|&i| goal.dims[i].as_const().is_some()).collect();
        let axis = if fixed.is_empty() { return None } else { self.r.pick(&fixed) };
        let mut left = goal.dims[axis].as_const()?;
        let mut sizes = vec![];
        for i in 0..parts {
            let n = if i + 1 == parts { left } else { self.r.below(left as usize + 1) as i64 };
            left -= n;
            sizes.push(n);
        }
        Some((axis, sizes))
    }

    fn gather(&mut self, sketch: &Sketch, goal: &TensorType) -> Option<Value> {
        let from = self.r.below(goal.rank() + 1);
        let to = from + self.r.below(goal.rank() + 1 - from);
        match sketch.args[1].name.as_str() {
            "iota" => return self.gather_range(sketch, goal, from),
            "affine" => return self.gather_merged(sketch, goal, from, to),
            _ => {}
        }
        let n = 1 + self.r.below(4);
        let mut dims = goal.dims.clone();
        dims.splice(from..to, [Dim::constant(n as i64)]);
        let data = self.grow(&sketch.args[0], &TensorType::new(goal.dtype, dims))?;
        let ty = TensorType::new(DType::I64, goal.dims[from..to].to_vec());
        let indices = match sketch.args[1].name.as_str() {
            "permutation" => {
                let mut order: Vec<i64> = (0..n as i64).collect();
                self.r.shuffle(&mut order);
                self.add(Op::Const(Tensor::from_vec(vec![n], order)), &[], None)
            }
            _ => self.add(
                Op::Input { name: format!("index{n}.{}", self.graph.nodes.len()), parts: vec![] },
                &[],
                Some(ty),
            ),
        }?;
        let v = self.add(Op::Gather { axis: from }, &[data, indices], None)?;
        (sketch.args[1].name == "permutation" || self.graph.ty(v) == goal).then_some(v)
    }

    fn integers(&mut self, f: ScalarFn, x: Value, c: i64) -> Option<Value> {
        let ty = self.graph.ty(x).clone();
        let c = self.add(Op::Const(Tensor::scalar(c)), &[], None)?;
        let c = self.add(Op::Broadcast { dims: vec![] }, &[c], Some(ty))?;
        self.add(Op::Map(f), &[x, c], None)
    }

    /// Gathers at start + step * i.
    fn gather_range(&mut self, sketch: &Sketch, goal: &TensorType, axis: usize) -> Option<Value> {
        let n = goal.dims.get(axis)?.as_const().filter(|n| *n > 0)?;
        let (start, step) = (self.r.below(3) as i64, 1 + self.r.below(2) as i64);
        let mut data = goal.clone();
        data.dims[axis] = Dim::constant(start + step * (n - 1) + 1 + self.r.below(2) as i64);
        let data = self.grow(&sketch.args[0], &data)?;
        let ty = TensorType::new(DType::I64, vec![Dim::constant(n)]);
        let i = self.add(Op::Iota { axis: 0 }, &[], Some(ty))?;
        let scaled = self.integers(ScalarFn::Mul, i, step)?;
        let at = self.integers(ScalarFn::Add, scaled, start)?;
        self.add(Op::Gather { axis }, &[data, at], None)
    }

    /// Gathers from reshape(x[.., p, q, ..], [.., p*q, ..]) at q * i + j, for two dimensions of the index.
    fn gather_merged(&mut self, sketch: &Sketch, goal: &TensorType, from: usize, to: usize) -> Option<Value> {
        let index = TensorType::new(DType::I64, goal.dims[from..to].to_vec());
        let (i, j) = (self.r.below(index.rank()), self.r.below(index.rank()));
        let (p, q) = (index.dims.get(i)?.clone(), index.dims.get(j).filter(|_| i != j)?.clone());
        let stride = q.as_const()?;
        let mut dims = goal.dims.clone();
        dims.splice(from..to, [p.clone(), q.clone()]);
        let x = self.grow(&sketch.args[0].args[0], &TensorType::new(goal.dtype, dims.clone()))?;
        dims.splice(from..from + 2, [p.clone() * q.clone()]);
        let units = if from + 1 == dims.len() { self.r.below(2) } else { 0 };
        dims.extend((0..units).map(|_| Dim::constant(1)));
        let flat = self.add(Op::Reshape, &[x], Some(TensorType::new(goal.dtype, dims)))?;
        let along = |s: &mut Self, at: usize, d: Dim, by: i64| {
            let n = s.add(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, vec![d])))?;
            let n = s.integers(ScalarFn::Mul, n, by)?;
            s.add(Op::Broadcast { dims: vec![at] }, &[n], Some(index.clone()))
        };
        let (a, b) = (along(self, i, p, stride)?, along(self, j, q, 1)?);
        let at = self.add(Op::Map(ScalarFn::Add), &[a, b], None)?;
        self.add(Op::Gather { axis: from }, &[flat, at], None)
    }

    fn contract(&mut self, sketch: &Sketch, goal: &TensorType) -> Option<Value> {
        let known = self.contractions.iter().find(|c| !sketch.label.is_empty() && c.0 == sketch.label).cloned();
        let (spec, left, right) = match known {
            None => self.contraction(goal)?,
            Some((_, spec, left, right)) => {
                let of = |side: &[char], old: &[Dim]| -> Vec<Dim> {
                    let new = |c: &char| spec.result.iter().position(|r| r == c).and_then(|i| goal.dims.get(i));
                    side.iter().zip(old).map(|(c, d)| new(c).unwrap_or(d).clone()).collect()
                };
                (spec.clone(), of(&spec.left, &left), of(&spec.right, &right))
            }
        };
        if !sketch.label.is_empty() {
            self.contractions.push((sketch.label.clone(), spec.clone(), left.clone(), right.clone()));
        }
        let x = self.grow(&sketch.args[0], &TensorType::new(goal.dtype, left))?;
        let y = self.grow(&sketch.args[1], &TensorType::new(goal.dtype, right))?;
        self.add(Op::Contract(spec), &[x, y], None)
    }

    fn contraction(&mut self, goal: &TensorType) -> Option<(ContractSpec, Vec<Dim>, Vec<Dim>)> {
        let (mut left, mut right) = (vec![], vec![]);
        let result: Vec<char> = (0..goal.rank()).map(letter).collect::<Option<_>>()?;
        for (c, d) in result.iter().zip(&goal.dims) {
            let sides = self.r.below(5);
            if sides != 1 && sides != 2 {
                left.push((*c, d.clone()));
            }
            if sides != 0 && sides != 3 {
                right.push((*c, d.clone()));
            }
        }
        for i in 0..self.r.below(3) {
            let (c, d) = (letter(goal.rank() + i)?, self.dim());
            left.push((c, d.clone()));
            right.push((c, d));
        }
        for side in [&mut left, &mut right] {
            if self.r.chance(50) {
                self.r.shuffle(side);
            }
        }
        let letters = |side: &[(char, Dim)]| side.iter().map(|(c, _)| *c).collect::<Vec<char>>();
        let dims = |side: &[(char, Dim)]| side.iter().map(|(_, d)| d.clone()).collect::<Vec<Dim>>();
        Some((ContractSpec { left: letters(&left), right: letters(&right), result }, dims(&left), dims(&right)))
    }
}
