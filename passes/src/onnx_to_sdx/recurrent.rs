//! LSTM, GRU, RNN  =>  one contraction for the inputs of all steps, then a recurrence over its rows
//!
//! x[s,b,i] · w[g*h,i] → all[s,b,g*h]; per step t: all[t] + state[b,h] · r[g*h,h] → gates, with s steps, b the batch, i
//! inputs, g gates and h states; operands with both directions have a first dimension d.

use super::builder::Builder;
use super::coordinates::checked_index;
use super::heads::iota;
use super::named_activation::Activation;
use super::node::Node;
use super::quantized::{Weights, dequantized_product};
use super::recurrence::{Recurrence, element, recur};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Rnn,
    Gru,
    Lstm,
}

impl Cell {
    fn from_node(node: &Node) -> Cell {
        match node.op_type.as_str() {
            "RNN" => Cell::Rnn,
            "GRU" => Cell::Gru,
            _ => Cell::Lstm,
        }
    }

    /// Default activations of one direction.
    fn activations(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru => &["Sigmoid", "Tanh"],
            Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }

    fn gates(self) -> i64 {
        match self {
            Cell::Rnn => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }
}

/// Operands and attributes of one direction.
#[derive(Clone)]
struct Direction {
    cell: Cell,
    /// Index of the direction along the first axis of operands that have all directions.
    number: i64,
    hidden: Dim,
    given: Given,
    activations: Vec<Activation>,
    clip: Option<f64>,
    /// Whether input and forget gates are coupled.
    coupled: bool,
    /// Whether the state is multiplied by its weights before the reset gate is applied.
    linear_before_reset: bool,
}

/// Operands of a node that a step uses, with all directions along a first axis. A step slices them itself, so that
/// parameters stay parameters in the function of the step, which packs them.
#[derive(Clone)]
struct Given {
    recurrent: Weights,
    /// Biases [d, 2*g*h]: those of the input, then those of the state.
    biases: Option<Value>,
    /// Peephole weights [d, 3*h] of the input, output and forget gates.
    peepholes: Option<Value>,
}

/// Operands of one direction, as values of the function that contains the step.
struct Own {
    /// Weights [h, g*h] of the state, or their transpose.
    recurrent: Weights,
    /// Bias [g*h] of the state.
    bias: Option<Value>,
    /// Peephole weights [3*h].
    peepholes: Option<Value>,
}

/// ai.onnx RNN, GRU and LSTM.
pub fn recurrent(b: &mut Builder, node: &Node) -> Outputs {
    run(b, node, [Weights::Rows(node.input(1)?), Weights::Rows(node.input(2)?)])
}

/// com.microsoft DynamicQuantizeLSTM: weights [i, 4*h] are integers with a scale and a zero point; inputs and states
/// are quantised at run time.
pub fn quantized_lstm(b: &mut Builder, node: &Node) -> Outputs {
    let read = |b: &Builder, values: usize, scale: usize| -> Result<Weights> {
        let (scale, zero) = (node.input(scale)?, node.input(scale + 1)?);
        let symmetric = b.constants(zero).is_some_and(|zeros| zeros.iter().all(|z| *z == 0));
        Ok(Weights::Quantized { values: node.input(values)?, scale, zero: (!symmetric).then_some(zero) })
    };
    let weights = [read(b, 1, 8)?, read(b, 2, 10)?];
    run(b, node, weights)
}

fn run(b: &mut Builder, node: &Node, [weights, recurrent]: [Weights; 2]) -> Outputs {
    let cell = Cell::from_node(node);
    let reversed: &[bool] = match node.str_or("direction", "forward")?.as_str() {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(node.error("E0106", format!("has no direction `{other}`"))),
    };
    let batch_first = node.int_or("layout", 0)? != 0;
    let [x, h0, c0] = sequence_first(b, node, cell, batch_first)?;
    let x = x.ok_or_else(|| node.error("E0103", "input 0 is missing"))?;
    if !b.dtype(x).is_float() {
        return Err(node.error("E0107", format!("does not take {}", b.dtype(x))));
    }
    for i in [1, 2] {
        let directions = b.dims(node.input(i)?).first().cloned().unwrap_or(Dim::constant(0));
        if b.rank(node.input(i)?) != 3 {
            return Err(node.error("E0201", format!("input {i} is {}, not of rank 3", b.ty(node.input(i)?))));
        }
        b.unify(&directions, &Dim::constant(reversed.len() as i64))?;
    }
    let activations = activations(node, cell, reversed.len())?;
    let mut sides: Vec<Vec<Value>> = vec![];
    for ((d, &reverse), activations) in (0..).zip(reversed).zip(activations) {
        let weights = weights.element(b, d)?;
        let direction = direction(b, node, cell, d, &weights, recurrent, activations)?;
        let initial = [h0, c0].map(|state| state.map(|v| element(b, v, d)).transpose());
        let [h, c] = initial;
        sides.push(one_direction(b, node, &direction, &weights, x, [h?, c?], reverse)?);
    }
    // y[s,d,b,h] and the last states [d,b,h]
    let mut outputs = vec![];
    for i in 0..sides[0].len() {
        let axis = usize::from(i == 0);
        let mut parts = vec![];
        for side in &sides {
            let mut dims = b.dims(side[i]);
            dims.insert(axis, Dim::constant(1));
            parts.push(b.reshape(side[i], &dims)?);
        }
        let all = b.concat(axis, &parts)?;
        outputs.push(match (batch_first, i) {
            (false, _) => all,
            (true, 0) => b.transpose(all, vec![2, 0, 1, 3])?,
            (true, _) => b.transpose(all, vec![1, 0, 2])?,
        });
    }
    Ok(outputs)
}

/// The sequence and the initial states, in the layout with the steps first.
fn sequence_first(b: &mut Builder, node: &Node, cell: Cell, batch_first: bool) -> Result<[Option<Value>; 3]> {
    let cell_state = if cell == Cell::Lstm { node.optional(6) } else { None };
    let mut values = [node.optional(0), node.optional(5), cell_state];
    for v in values.iter_mut().flatten() {
        if b.rank(*v) != 3 {
            return Err(node.error("E0201", format!("takes sequences and states of rank 3, not {}", b.ty(*v))));
        }
        if batch_first {
            *v = b.transpose(*v, vec![1, 0, 2])?;
        }
    }
    Ok(values)
}

/// The activations of each direction.
fn activations(node: &Node, cell: Cell, directions: usize) -> Result<Vec<Vec<Activation>>> {
    let default = cell.activations();
    let names = node
        .strs("activations")?
        .unwrap_or_else(|| (0..directions).flat_map(|_| default.iter().map(|name| name.to_string())).collect());
    if names.len() != directions * default.len() {
        let wanted = directions * default.len();
        return Err(node.error("E0106", format!("takes {wanted} activations, not {}", names.len())));
    }
    let list = |name: &str| -> Result<Vec<f64>> { Ok(node.floats(name)?.unwrap_or_default()) };
    let (mut alpha, mut beta) = (list("activation_alpha")?.into_iter(), list("activation_beta")?.into_iter());
    let all = names.iter().map(|name| Activation::next(node, name, &mut alpha, &mut beta));
    let all = all.collect::<Result<Vec<_>>>()?;
    Ok(all.chunks(default.len()).map(<[Activation]>::to_vec).collect())
}

fn direction(
    b: &mut Builder,
    node: &Node,
    cell: Cell,
    number: i64,
    weights: &Weights,
    recurrent: Weights,
    activations: Vec<Activation>,
) -> Result<Direction> {
    let (gates, own) = (Dim::constant(cell.gates()), recurrent.element(b, number)?);
    if let Some(hidden) = node.int("hidden_size")? {
        let depth = own.depth(b);
        b.unify(&depth, &Dim::constant(hidden))?;
    }
    for w in [weights, &own] {
        let (all, hidden) = (w.width(b), own.depth(b));
        b.unify(&all, &(hidden * gates.clone()))?;
    }
    let hidden = own.depth(b);
    let mut rows = |input: Option<Value>, parts: i64| -> Result<Option<Value>> {
        let Some(v) = input else { return Ok(None) };
        if b.rank(v) != 2 {
            return Err(node.error("E0201", format!("takes biases of rank 2, not {}", b.ty(v))));
        }
        let (own, wanted) = (b.dims(v)[1].clone(), hidden.clone() * Dim::constant(parts));
        b.unify(&own, &wanted)?;
        Ok(Some(v))
    };
    let peepholes = if cell == Cell::Lstm { rows(node.optional(7), 3)? } else { None };
    let biases = rows(node.optional(3), 2 * cell.gates())?;
    let clip = if node.has("clip") { Some(node.float_or("clip", 0.0)?.abs()) } else { None };
    Ok(Direction {
        cell,
        number,
        hidden: own.depth(b),
        given: Given { recurrent, biases, peepholes },
        activations,
        clip,
        coupled: node.int_or("input_forget", 0)? != 0,
        linear_before_reset: node.int_or("linear_before_reset", 0)? != 0,
    })
}

/// Returns y[s,b,h] and the last states of one direction.
fn one_direction(
    b: &mut Builder,
    node: &Node,
    d: &Direction,
    weights: &Weights,
    x: Value,
    initial: [Option<Value>; 2],
    reverse: bool,
) -> Result<Vec<Value>> {
    let mut inputs = dequantized_product(b, x, weights)?;
    if let Some(biases) = d.given.biases {
        let of_input = d.bias(b, biases, 0)?;
        inputs = b.map2(ScalarFn::Add, inputs, of_input)?;
        // A GRU adds the state's bias in each step, because its reset gate may scale a part of it.
        if d.cell != Cell::Gru {
            let of_state = d.bias(b, biases, 1)?;
            inputs = b.map2(ScalarFn::Add, inputs, of_state)?;
        }
    }
    let dims = b.dims(x);
    let state_dims = [dims[1].clone(), d.hidden.clone()];
    let mut states = vec![];
    for given in &initial[..if d.cell == Cell::Lstm { 2 } else { 1 }] {
        states.push(match given {
            Some(state) => {
                let zero = b.splat(b.dtype(x), 0.0, &state_dims)?;
                b.broadcast_all(&[*state, zero])?[0]
            }
            None => b.splat(b.dtype(x), 0.0, &state_dims)?,
        });
    }
    let mut sequences = vec![inputs];
    if let Some(lengths) = node.optional(4) {
        // Whether a row of the batch has the step: [s,b].
        let steps = iota(b, 0, &[dims[0].clone(), dims[1].clone()])?;
        let lengths = b.convert(lengths, DType::I64)?;
        let lengths = checked_index(b, lengths, &(dims[0].clone() + Dim::constant(1)))?;
        sequences.push(b.map2(ScalarFn::Lt, steps, lengths)?);
    }
    let captured = d.given.values();
    let mut step = |b: &mut Builder, elements: &[Value], states: &[Value], captured: &[Value]| {
        let own = d.own(b, captured)?;
        let mut next = d.step(b, &own, elements[0], states)?;
        let mut shown = next[0];
        if let Some(&has) = elements.get(1) {
            let mut column = b.dims(has);
            column.push(Dim::constant(1));
            let has = b.reshape(has, &column)?;
            let zero = b.splat(b.dtype(shown), 0.0, &b.dims(shown))?;
            shown = b.select(has, shown, zero)?;
            for (new, old) in next.iter_mut().zip(states) {
                *new = b.select(has, *new, *old)?;
            }
        }
        Ok((next, vec![shown]))
    };
    let run = Recurrence { sequences: &sequences, states: &states, captured: &captured, reverse };
    let (last, outputs) = recur(b, node, &run, &mut step)?;
    Ok(outputs.into_iter().chain(last).collect())
}

impl Given {
    /// The values that a step uses.
    fn values(&self) -> Vec<Value> {
        let mut all = self.recurrent.values();
        all.extend(self.biases);
        all.extend(self.peepholes);
        all
    }
}

impl Direction {
    /// Slices of this direction; `values` are those of `given` in the function of the step.
    fn own(&self, b: &mut Builder, values: &[Value]) -> Result<Own> {
        let mut left = values.iter().copied();
        let mut here = |v: Value| left.next().unwrap_or(v);
        let recurrent = self.given.recurrent.map(&mut here);
        let (biases, peepholes) = (self.given.biases.map(&mut here), self.given.peepholes.map(&mut here));
        Ok(Own {
            recurrent: recurrent.element(b, self.number)?,
            // In other cells the bias of the state is already part of the inputs.
            bias: biases.filter(|_| self.cell == Cell::Gru).map(|v| self.bias(b, v, 1)).transpose()?,
            peepholes: peepholes.map(|v| element(b, v, self.number)).transpose()?,
        })
    }

    /// Returns the bias [g*h] of the input (`part` 0) or of the state (1), sliced from biases[d, 2*g*h].
    fn bias(&self, b: &mut Builder, biases: Value, part: i64) -> Result<Value> {
        let both = element(b, biases, self.number)?;
        let width = b.dims(both)[0].exact_div(&Dim::constant(2));
        let width = width.unwrap_or_else(|| self.hidden.clone() * Dim::constant(self.cell.gates()));
        b.slice_axis(both, 0, width.clone() * Dim::constant(part), 1, width)
    }

    fn step(&self, b: &mut Builder, own: &Own, inputs: Value, states: &[Value]) -> Result<Vec<Value>> {
        match self.cell {
            Cell::Rnn => {
                let product = dequantized_product(b, states[0], &own.recurrent)?;
                let sum = b.map2(ScalarFn::Add, inputs, product)?;
                Ok(vec![self.activate(b, 0, sum)?])
            }
            Cell::Gru => Ok(vec![self.gru(b, own, inputs, states[0])?]),
            Cell::Lstm => self.lstm(b, own, inputs, states[0], states[1]),
        }
    }

    /// Activation `i`, applied to the clipped input.
    fn activate(&self, b: &mut Builder, i: usize, x: Value) -> Result<Value> {
        let mut x = x;
        if let Some(clip) = self.clip {
            x = b.map_const(ScalarFn::Max, x, -clip)?;
            x = b.map_const(ScalarFn::Min, x, clip)?;
        }
        self.activations[i].apply(b, x)
    }

    /// Gates `from` to `from + n` of the last axis.
    fn gates(&self, b: &mut Builder, own: &Own, x: Value, from: i64, n: i64) -> Result<Value> {
        let axis = b.rank(x) - 1;
        let hidden = own.recurrent.depth(b);
        let start = hidden.clone() * Dim::constant(from);
        b.slice_axis(x, axis, start, 1, hidden * Dim::constant(n))
    }

    /// Product of a state and its weights for gates `from` to `from + n`, plus the bias of the state.
    fn added_by_state(&self, b: &mut Builder, own: &Own, state: Value, from: i64, n: i64) -> Result<Value> {
        let weights = own.recurrent.gates(b, from, n)?;
        let product = dequantized_product(b, state, &weights)?;
        let Some(bias) = own.bias else { return Ok(product) };
        let bias = self.gates(b, own, bias, from, n)?;
        b.map2(ScalarFn::Add, product, bias)
    }

    /// Gates z, r and h: state = (1 - z) · h + z · state
    fn gru(&self, b: &mut Builder, own: &Own, inputs: Value, state: Value) -> Result<Value> {
        // Number of gates computed from the state at once: the last one needs the reset gate r first, unless r only
        // scales the product of the state.
        let n_first = if self.linear_before_reset { 3 } else { 2 };
        let with_bias = self.added_by_state(b, own, state, 0, n_first)?;
        let both = (self.gates(b, own, inputs, 0, 2)?, self.gates(b, own, with_bias, 0, 2)?);
        let sum = b.map2(ScalarFn::Add, both.0, both.1)?;
        let (z, r) = (self.gates(b, own, sum, 0, 1)?, self.gates(b, own, sum, 1, 1)?);
        let (z, r) = (self.activate(b, 0, z)?, self.activate(b, 0, r)?);
        let of_state = if self.linear_before_reset {
            let linear = self.gates(b, own, with_bias, 2, 1)?;
            b.map2(ScalarFn::Mul, r, linear)?
        } else {
            let reset = b.map2(ScalarFn::Mul, r, state)?;
            self.added_by_state(b, own, reset, 2, 1)?
        };
        let of_input = self.gates(b, own, inputs, 2, 1)?;
        let sum = b.map2(ScalarFn::Add, of_input, of_state)?;
        let hidden = self.activate(b, 1, sum)?;
        let one = b.splat(b.dtype(z), 1.0, &b.dims(z))?;
        let rest = b.map2(ScalarFn::Sub, one, z)?;
        let (new, old) = (b.map2(ScalarFn::Mul, rest, hidden)?, b.map2(ScalarFn::Mul, z, state)?);
        b.map2(ScalarFn::Add, new, old)
    }

    /// Gates i, o, f and c: cell = f · cell + i · c; state = o · h(cell)
    fn lstm(&self, b: &mut Builder, own: &Own, inputs: Value, state: Value, cell: Value) -> Result<Vec<Value>> {
        let product = dequantized_product(b, state, &own.recurrent)?;
        let sum = b.map2(ScalarFn::Add, inputs, product)?;
        let gate = |b: &mut Builder, i: i64, seen: Value| -> Result<Value> {
            let mut x = self.gates(b, own, sum, i, 1)?;
            if let Some(peepholes) = own.peepholes {
                let weight = self.gates(b, own, peepholes, i, 1)?;
                let look = b.map2(ScalarFn::Mul, seen, weight)?;
                x = b.map2(ScalarFn::Add, x, look)?;
            }
            self.activate(b, 0, x)
        };
        let i = gate(b, 0, cell)?;
        let f = match self.coupled {
            true => {
                let one = b.splat(b.dtype(i), 1.0, &b.dims(i))?;
                b.map2(ScalarFn::Sub, one, i)?
            }
            false => gate(b, 2, cell)?,
        };
        let c = self.gates(b, own, sum, 3, 1)?;
        let c = self.activate(b, 1, c)?;
        let (kept, new) = (b.map2(ScalarFn::Mul, f, cell)?, b.map2(ScalarFn::Mul, i, c)?);
        let cell = b.map2(ScalarFn::Add, kept, new)?;
        let o = gate(b, 1, cell)?;
        // Only the inputs of gates are clipped: other implementations of the operator read its definition this way.
        let shown = self.activations[2].apply(b, cell)?;
        Ok(vec![b.map2(ScalarFn::Mul, o, shown)?, cell])
    }
}
