//! an operator  =>  an ONNX model with one node of this operator: negative axes, indices and steps, omitted attributes
//! with defaults

use super::random::{Random, Values, tensor};
use sardonyx::onnx::proto::TensorProto;
use sardonyx::onnx::{Model, parse_model};
use sardonyx_base::{DType, Tensor};
use sardonyx_tests::onnx::Net;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Add,
    ArgMax,
    Concat,
    CumSum,
    Expand,
    Flatten,
    Gather,
    GatherElements,
    Pad,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    Reshape,
    ScatterElements,
    Slice,
    Split,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
}

impl Form {
    pub const ALL: [Form; 21] = [
        Form::Add,
        Form::ArgMax,
        Form::Concat,
        Form::CumSum,
        Form::Expand,
        Form::Flatten,
        Form::Gather,
        Form::GatherElements,
        Form::Pad,
        Form::ReduceMax,
        Form::ReduceMin,
        Form::ReduceProd,
        Form::ReduceSum,
        Form::Reshape,
        Form::ScatterElements,
        Form::Slice,
        Form::Split,
        Form::Squeeze,
        Form::Tile,
        Form::Transpose,
        Form::Unsqueeze,
    ];
}

/// A model under construction. Its dimensions may be symbols.
struct Draft {
    r: Random,
    net: Net,
    inputs: Vec<(String, Tensor)>,
    op: String,
    n_outputs: usize,
    /// Whether no dimension is a symbol.
    fixed: bool,
}

static TYPES: &[DType] =
    &[DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U8];

pub fn draw(mut r: Random, form: Form, name: &str) -> Option<(Model, Vec<(String, Tensor)>)> {
    let dtype = r.pick(TYPES);
    let zeros = r.chance(15);
    let dims: Vec<usize> = (0..r.below(7)).map(|_| extent(&mut r, zeros)).collect();
    if dims.iter().product::<usize>() > 600 {
        return None;
    }
    let mut draft = Draft { r, net: Net::new(), inputs: vec![], op: format!("{form:?}"), n_outputs: 1, fixed: false };
    draft.form(form, dtype, &dims)?;
    let Draft { mut net, inputs, n_outputs, .. } = draft;
    for i in 0..n_outputs {
        net = net.output(&format!("y{i}"));
    }
    let mut model = parse_model(net.bytes().into()).unwrap_or_else(|e| panic!("{name}: {e}"));
    // Models that are compiled together share a store of parameters, so the names of initializers must be distinct.
    let own = |stored: &str| format!("{name}.{stored}");
    let stored: Vec<String> = model.graph.initializers.iter().map(|i| i.name.clone()).collect();
    model.graph.initializers.iter_mut().for_each(|i| i.name = own(&i.name));
    for read in model.graph.nodes.iter_mut().flat_map(|n| &mut n.inputs).flatten() {
        if stored.contains(read) {
            *read = own(read);
        }
    }
    Some((model, inputs))
}

fn extent(r: &mut Random, zeros: bool) -> usize {
    match r.below(8) {
        _ if zeros && r.chance(30) => 0,
        0..3 => 1,
        3..7 => 2 + r.below(4),
        _ => 6 + r.below(14),
    }
}

impl Draft {
    /// The axis, randomly counted from the end.
    fn axis(&mut self, axis: usize, rank: usize) -> i64 {
        axis as i64 - if self.r.chance(60) { rank as i64 } else { 0 }
    }

    /// Adds the node with these operands, which were added before it.
    fn node(&mut self, inputs: &str) {
        let outputs: Vec<String> = (0..self.n_outputs).map(|i| format!("y{i}")).collect();
        let net = std::mem::take(&mut self.net);
        self.net = net.node("/node", &self.op, inputs, &outputs.join(" "));
    }

    fn int(&mut self, name: &str, value: i64) {
        self.net = std::mem::take(&mut self.net).int(name, value);
    }

    fn ints(&mut self, name: &str, values: &[i64]) {
        self.net = std::mem::take(&mut self.net).ints(name, values);
    }

    /// Adds an i64 constant that parameterizes a node.
    fn numbers(&mut self, name: &str, values: &[i64]) {
        self.net = std::mem::take(&mut self.net).i64s(name, values);
    }

    fn input(&mut self, name: &str, data: Tensor) {
        // Equal sizes get the same symbol, so that symbols stand for equal dimensions.
        let symbolic = !self.fixed && self.r.chance(30);
        let dim = |n: &usize| if symbolic && *n > 1 { format!("d{n}") } else { n.to_string() };
        let dims: Vec<String> = data.dims().iter().map(dim).collect();
        self.net = std::mem::take(&mut self.net).input(name, data.dtype(), &dims.join(" "));
        self.inputs.push((name.into(), data));
    }

    /// Adds an operand of numbers from `lo` to `hi`, inclusive: usually an input, sometimes a constant.
    fn indices(&mut self, name: &str, dims: Vec<usize>, lo: i64, hi: i64) {
        let n: usize = dims.iter().product();
        let values: Vec<i64> = (0..n).map(|_| self.r.between(lo, hi.max(lo))).collect();
        if self.r.chance(70) {
            return self.input(name, Tensor::from_vec(dims, values));
        }
        let dims = dims.iter().map(|n| *n as i64).collect();
        let data_type = DType::I64.onnx_code();
        let proto = TensorProto { name: name.into(), data_type, dims, int64_data: values, ..TensorProto::default() };
        self.net = std::mem::take(&mut self.net).tensor(proto);
    }

    fn data(&mut self, name: &str, dtype: DType, dims: &[usize], values: Values) {
        let data = tensor(&mut self.r, dtype, dims.to_vec(), values);
        self.input(name, data);
    }

    fn form(&mut self, form: Form, dtype: DType, dims: &[usize]) -> Option<()> {
        let rank = dims.len();
        let any = Values::Any;
        let at = if rank == 0 { None } else { Some(self.r.below(rank)) };
        match form {
            Form::Add => {
                self.data("x", dtype, dims, any);
                let from = self.r.below(rank + 1);
                let other: Vec<usize> = dims[from..].iter().map(|n| if self.r.chance(30) { 1 } else { *n }).collect();
                self.data("z", dtype, &other, any);
                self.node("x z");
            }
            Form::ArgMax => {
                let at = at.filter(|at| dims[*at] > 0)?;
                let data = tensor(&mut self.r, DType::I32, dims.to_vec(), any);
                self.input("x", data);
                self.node("x");
                let axis = self.axis(at, rank);
                self.int("axis", axis);
                let (keep, last) = (self.r.below(2), self.r.below(2));
                self.int("keepdims", keep as i64);
                self.int("select_last_index", last as i64);
            }
            Form::Concat => {
                let at = at?;
                let mut names = vec![];
                for i in 0..1 + self.r.below(3) {
                    let mut dims = dims.to_vec();
                    dims[at] = self.r.below(4);
                    names.push(format!("x{i}"));
                    self.data(&format!("x{i}"), dtype, &dims, any);
                }
                self.node(&names.join(" "));
                let axis = self.axis(at, rank);
                self.int("axis", axis);
            }
            Form::CumSum => {
                let at = at?;
                let data = tensor(&mut self.r, DType::I64, dims.to_vec(), any);
                self.input("x", data);
                let axis = self.axis(at, rank);
                self.numbers("axis", &[axis]);
                self.node("x axis");
                let (exclusive, reverse) = (self.r.below(2), self.r.below(2));
                self.int("exclusive", exclusive as i64);
                self.int("reverse", reverse as i64);
            }
            Form::Expand => {
                let from: Vec<usize> = dims.iter().map(|n| if self.r.chance(40) { 1 } else { *n }).collect();
                let first = (0..self.r.below(rank + 1)).take_while(|i| from[*i] == 1).count();
                self.data("x", dtype, &from[first..], any);
                let wanted: Vec<i64> = dims.iter().map(|n| *n as i64).collect();
                self.numbers("shape", &wanted);
                self.node("x shape");
            }
            Form::Flatten => {
                self.data("x", dtype, dims, any);
                self.node("x");
                let axis = self.r.between(-(rank as i64), rank as i64);
                self.int("axis", axis);
            }
            Form::Gather | Form::GatherElements | Form::ScatterElements => self.picks(form, dtype, dims, at?)?,
            Form::Pad => {
                self.data("x", dtype, dims, any);
                let mut pads = vec![0; 2 * rank];
                for (i, n) in dims.iter().enumerate() {
                    let (low, high) = (self.r.between(-2, 3), self.r.between(-2, 3));
                    if low + high + *n as i64 >= 0 {
                        (pads[i], pads[rank + i]) = (low, high);
                    }
                }
                self.numbers("pads", &pads);
                self.data("value", dtype, &[], any);
                self.node("x pads value");
            }
            Form::ReduceMax | Form::ReduceMin | Form::ReduceProd | Form::ReduceSum => self.reduce(form, dtype, dims)?,
            Form::Reshape => self.reshape(dtype, dims),
            Form::Slice => self.slice(dtype, dims)?,
            Form::Split => {
                let at = at?;
                self.data("x", dtype, dims, any);
                let first = self.r.below(dims[at] + 1);
                let second = self.r.below(dims[at] - first + 1);
                let parts = [first, second, dims[at] - first - second].map(|n| n as i64);
                self.n_outputs = 3;
                self.numbers("parts", &parts);
                self.node("x parts");
                let axis = self.axis(at, rank);
                self.int("axis", axis);
            }
            Form::Squeeze => {
                self.data("x", dtype, dims, any);
                let ones = (0..rank).filter(|i| dims[*i] == 1).collect::<Vec<_>>();
                let some: Vec<usize> = ones.into_iter().filter(|_| self.r.chance(60)).collect();
                let axes: Vec<i64> = some.into_iter().map(|i| self.axis(i, rank)).collect();
                self.numbers("axes", &axes);
                self.node("x axes");
            }
            Form::Tile => {
                self.data("x", dtype, dims, any);
                let repeats: Vec<i64> = dims.iter().map(|_| self.r.pick(&[0, 1, 1, 1, 2, 3])).collect();
                self.numbers("repeats", &repeats);
                self.node("x repeats");
            }
            Form::Transpose => {
                self.data("x", dtype, dims, any);
                self.node("x");
                let perm: Vec<i64> = self.r.permutation(rank).into_iter().map(|i| i as i64).collect();
                if self.r.chance(80) {
                    self.ints("perm", &perm);
                }
            }
            Form::Unsqueeze => {
                let dims = &dims[..rank.min(4)];
                let more = 1 + self.r.below(2);
                self.data("x", dtype, dims, any);
                let places = self.r.permutation(dims.len() + more);
                let axes: Vec<i64> = places[..more].iter().map(|i| self.axis(*i, dims.len() + more)).collect();
                self.numbers("axes", &axes);
                self.node("x axes");
            }
        }
        Some(())
    }

    /// Adds a Reshape whose shape operand has the dimensions as numbers or as copies (0), and perhaps one dimension
    /// that is inferred from the others (−1).
    fn reshape(&mut self, dtype: DType, dims: &[usize]) {
        let copied = self.r.chance(50);
        let mut wanted: Vec<i64> = dims.iter().map(|n| if copied { 0 } else { *n as i64 }).collect();
        if !dims.is_empty() && !dims.contains(&0) && self.r.chance(70) {
            let at = self.r.below(dims.len());
            wanted[at] = -1;
            if self.r.chance(50) {
                wanted.truncate(at + 1);
            }
            // If the shape has only numbers besides -1, symbols in the input would leave open whether the inferred
            // quotient is an integer.
            self.fixed = !copied;
        }
        self.data("x", dtype, dims, Values::Any);
        self.numbers("shape", &wanted);
        self.node("x shape");
    }

    fn reduce(&mut self, form: Form, dtype: DType, dims: &[usize]) -> Option<()> {
        let rank = dims.len();
        let axes: Vec<usize> = (0..rank).filter(|_| self.r.chance(40)).collect();
        let length: usize = axes.iter().map(|a| dims[*a]).product();
        if form == Form::ReduceProd && dtype.is_float() && length > 64 {
            return None;
        }
        let rounds = matches!(form, Form::ReduceSum | Form::ReduceProd);
        self.data("x", dtype, dims, if rounds { Values::Near1 } else { Values::Any });
        let axes: Vec<i64> = axes.into_iter().map(|a| self.axis(a, rank)).collect();
        let keep = self.r.below(2) as i64;
        // In opset 17 the axes are an operand of ReduceSum and an attribute of the others, where
        // their absence means all axes.
        if form == Form::ReduceSum {
            self.numbers("axes", &axes);
            self.node("x axes");
            self.int("noop_with_empty_axes", 1);
        } else if axes.is_empty() && length.max(dims.iter().product()) > 64 {
            return None;
        } else {
            self.node("x");
            if !axes.is_empty() {
                self.ints("axes", &axes);
            }
        }
        self.int("keepdims", keep);
        Some(())
    }

    fn picks(&mut self, form: Form, dtype: DType, dims: &[usize], at: usize) -> Option<()> {
        let n = dims[at] as i64;
        self.data("x", dtype, dims, Values::Any);
        let mut wanted: Vec<usize> = match form {
            Form::Gather => (0..self.r.below(3)).map(|_| self.r.below(4)).collect(),
            _ => dims.to_vec(),
        };
        if form != Form::Gather {
            wanted[at] = if form == Form::GatherElements { self.r.below(5) } else { self.r.below(2).min(dims[at]) };
        }
        if n == 0 && wanted.iter().product::<usize>() > 0 {
            return None;
        }
        self.indices("i", wanted.clone(), -n, n - 1);
        if form == Form::ScatterElements {
            self.data("u", dtype, &wanted, Values::Any);
        }
        self.node(if form == Form::ScatterElements { "x i u" } else { "x i" });
        let axis = self.axis(at, dims.len());
        self.int("axis", axis);
        Some(())
    }

    /// Adds a Slice with starts and ends of either sign, some of them beyond the ends of the dimension.
    fn slice(&mut self, dtype: DType, dims: &[usize]) -> Option<()> {
        let rank = dims.len();
        let order = self.r.permutation(rank);
        let some = &order[..self.r.below(rank + 1)];
        let (mut starts, mut ends, mut axes, mut steps) = (vec![], vec![], vec![], vec![]);
        for &at in some {
            let n = dims[at] as i64;
            let (first, last) = (self.r.between(-n - 2, n + 2), self.r.between(-n - 2, n + 2));
            let edge = self.r.pick(&[last, last, last, i64::MAX, i64::MIN, i64::from(i32::MAX)]);
            starts.push(first);
            ends.push(edge);
            axes.push(self.axis(at, rank));
            steps.push(self.r.pick(&[1, 1, 2, 3, -1, -1, -2, -3]));
        }
        self.data("x", dtype, dims, Values::Any);
        for (name, values) in [("starts", &starts), ("ends", &ends), ("axes", &axes), ("steps", &steps)] {
            self.numbers(name, values);
        }
        self.node("x starts ends axes steps");
        Some(())
    }
}
