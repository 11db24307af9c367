//! mask × weights × layout × element type  =>  attention as exporters write it, at sizes around the ends of tiles

use super::case::{Bound, Case};
use sardonyx_dialects::flow::Class;

/// What is applied to the scores before the softmax.
#[derive(Clone, Copy, PartialEq)]
enum Mask {
    None,
    /// Adds mask[b, t].
    Add,
    /// Keys whose boolean mask is false get this score.
    Hide(f64),
    /// Keys j > i + t − s get −inf; with more queries than keys, the first queries see no key.
    Causal,
    /// Keys from position at[b] on get −inf; at[b] may be 0.
    Length,
    /// The key at position at[b] has a score of inf or NaN.
    Odd(f64),
}

/// How the weights are computed from the scores.
#[derive(Clone, Copy, PartialEq)]
enum Weights {
    Softmax,
    /// Weights that are NaN after the softmax become 0.
    NanIsZero,
    /// The row maximum is clamped to at least the lowest f32, the row sum to at least 1.
    AtLeastOne,
}

/// Layout of the operands.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// q[b, h, s, d], k[b, h, t, d], v[b, h, t, e]
    Heads,
    /// q[b, s, h, d], k[b, t, h, d], v[b, t, h, e] and the result y[b, s, h, e]
    Positions,
    /// Transposed keys and values: k[b, h, d, t], v[b, h, e, t]
    Turned,
    /// Two heads of keys and values for four heads of queries.
    Grouped,
    /// q is rotated by the angles of its positions.
    Rotary,
    /// One tensor x[b, s, 3, h, d] holds q, k and v.
    Packed,
}

struct Form {
    name: &'static str,
    dtype: &'static str,
    mask: Mask,
    weights: Weights,
    layout: Layout,
    d: usize,
    e: usize,
    /// Absolute tolerance of the results.
    absolute: f64,
}

const LOWEST: f64 = -3.4028234663852886e38;

const fn form(name: &'static str, mask: Mask, weights: Weights, layout: Layout, (d, e): (usize, usize)) -> Form {
    Form { name, dtype: "f32", mask, weights, layout, d, e, absolute: 1e-4 }
}

const fn of_type(name: &'static str, dtype: &'static str, absolute: f64) -> Form {
    Form { name, dtype, absolute, ..form(name, Mask::Length, Weights::Softmax, Layout::Heads, (8, 8)) }
}

static FORMS: &[Form] = &[
    form("plain", Mask::None, Weights::Softmax, Layout::Heads, (8, 8)),
    form("added_mask", Mask::Add, Weights::Softmax, Layout::Positions, (16, 16)),
    form("hidden_keys", Mask::Hide(LOWEST), Weights::Softmax, Layout::Positions, (32, 32)),
    form("hidden_by_infinity", Mask::Hide(f64::NEG_INFINITY), Weights::NanIsZero, Layout::Heads, (8, 8)),
    form("causal", Mask::Causal, Weights::Softmax, Layout::Heads, (8, 8)),
    form("causal_nan_is_zero", Mask::Causal, Weights::NanIsZero, Layout::Positions, (8, 8)),
    form("causal_at_least_one", Mask::Causal, Weights::AtLeastOne, Layout::Grouped, (16, 16)),
    form("lengths", Mask::Length, Weights::Softmax, Layout::Packed, (16, 16)),
    form("lengths_at_least_one", Mask::Length, Weights::AtLeastOne, Layout::Turned, (8, 8)),
    form("turned", Mask::None, Weights::Softmax, Layout::Turned, (8, 24)),
    form("grouped", Mask::Add, Weights::NanIsZero, Layout::Grouped, (32, 32)),
    form("rotary", Mask::Add, Weights::Softmax, Layout::Rotary, (16, 16)),
    form("rotary_causal", Mask::Causal, Weights::AtLeastOne, Layout::Rotary, (32, 16)),
    form("packed", Mask::None, Weights::Softmax, Layout::Packed, (64, 64)),
    form("odd_widths", Mask::Add, Weights::Softmax, Layout::Heads, (5, 7)),
    form("width_one", Mask::Add, Weights::NanIsZero, Layout::Heads, (1, 1)),
    form("wide_values", Mask::None, Weights::Softmax, Layout::Positions, (3, 70)),
    form("infinite_score", Mask::Odd(f64::INFINITY), Weights::Softmax, Layout::Heads, (8, 8)),
    form("nan_score", Mask::Odd(f64::NAN), Weights::AtLeastOne, Layout::Heads, (8, 8)),
    form("nan_score_is_zero", Mask::Odd(f64::NAN), Weights::NanIsZero, Layout::Heads, (8, 8)),
    of_type("double", "f64", 1e-12),
    of_type("half", "f16", 0.1),
    of_type("bfloat", "bf16", 0.5),
];

/// Sizes `b s t`: no batch, no queries, no keys, single ones, and sizes around the ends of vectors and tiles.
const SIZES: &str = "1 1 1, 2 3 4, 0 2 3, 2 0 3, 2 3 0, 1 5 2, 1 1 40, 2 2 17, 1 15 16, 1 17 15, 1 4 33, 1 3 65";

/// Sizes for [`Layout::Packed`], where the symbol s counts both queries and keys: t equals s.
const SQUARE: &str = "1 1 1, 2 3 3, 0 2 2, 2 0 0, 1 15 15, 1 16 16, 2 17 17, 1 33 33";

pub fn cases() -> Vec<Case> {
    FORMS.iter().map(case).collect()
}

fn case(form: &Form) -> Case {
    let sizes = if form.layout == Layout::Packed { SQUARE } else { SIZES };
    let text = format!("// CALLS b s t: {sizes}\n// INDEX at: t + 1\n{}", Text::new(form).function());
    let mut case = Case::read("attention_form", &text);
    case.bound = Bound::Function { ulps: 0.0, absolute: form.absolute };
    case.class = Some(Class::Attention);
    case
}

/// A function under construction: its arguments and lines of text.
struct Text<'f> {
    form: &'f Form,
    arguments: Vec<String>,
    lines: Vec<String>,
    n: usize,
}

impl<'f> Text<'f> {
    fn new(form: &'f Form) -> Text<'f> {
        Text { form, arguments: vec![], lines: vec![], n: 0 }
    }

    fn tensor_type(&self, dims: &str) -> String {
        format!("!sdx.tensor<[{dims}], {}>", self.form.dtype)
    }

    fn argument(&mut self, name: &str, ty: String) -> String {
        self.arguments.push(format!("%{name}: {ty} {{sdx.name = \"{name}\"}}"));
        format!("%{name}")
    }

    fn line(&mut self, text: String) -> String {
        self.n += 1;
        self.lines.push(format!("  %{} = {text}", self.n));
        format!("%{}", self.n)
    }

    fn map(&mut self, f: &str, args: &[&str], types: &[&str], result: &str) -> String {
        self.line(format!("sdx.map \"{f}\"({}) : ({}) -> {result}", args.join(", "), types.join(", ")))
    }

    /// Constant of type `of` with the same value in every element.
    fn constant(&mut self, value: f64, of: &str) -> String {
        let dtype = self.form.dtype;
        // Infinities and NaN have no decimal spelling.
        let value = if dtype == "f32" { format!("0x{:08X}", (value as f32).to_bits()) } else { narrow(value, dtype) };
        let one = format!("!sdx.tensor<[], {dtype}>");
        let c = self.line(format!("sdx.const dense<{value}> : tensor<{dtype}> : {one}"));
        self.line(format!("sdx.broadcast {c} to [] : {one} -> {of}"))
    }

    fn function(mut self) -> String {
        let (name, layout) = (self.form.name, self.form.layout);
        let keys = if layout == Layout::Packed { "s" } else { "t" };
        let (q, k, v) = self.operands();
        let score = self.tensor_type(&format!("b, 4, s, {keys}"));
        let (qt, kt) = (self.tensor_type(&self.dims('q', keys)), self.tensor_type(&self.dims('k', keys)));
        let vt = self.tensor_type(&self.dims('v', keys));
        let (qs, ks, vs, ys) = match layout {
            Layout::Heads | Layout::Grouped | Layout::Rotary => ("bhsd", "bhtd", "bhte", "bhse"),
            Layout::Positions | Layout::Packed => ("bshd", "bthd", "bthe", "bshe"),
            Layout::Turned => ("bhsd", "bhdt", "bhet", "bhse"),
        };
        let s = self.line(format!("sdx.contract \"{qs},{ks}->bhst\"({q}, {k}) : ({qt}, {kt}) -> {score}"));
        let scale = self.constant(1.0 / (self.form.d as f64).sqrt(), &score);
        let s = self.map("mul", &[&s, &scale], &[&score, &score], &score);
        let s = self.masked(s, &score, keys);
        let w = self.weights(s, &score);
        let e = self.form.e;
        let head = self.tensor_type(&format!("b, 4, s, {e}"));
        let y = self.line(format!("sdx.contract \"bhst,{vs}->bhse\"({w}, {v}) : ({score}, {vt}) -> {head}"));
        let (y, result) = match ys {
            "bshe" => {
                let turned = self.tensor_type(&format!("b, s, 4, {e}"));
                (self.line(format!("sdx.transpose {y} [0, 2, 1, 3] : {head} -> {turned}")), turned)
            }
            _ => (y, head),
        };
        let (arguments, lines) = (self.arguments.join(", "), self.lines.join("\n"));
        format!("func.func @{name}({arguments}) -> {result} {{\n{lines}\n  return {y} : {result}\n}}\n")
    }

    /// Dimensions of an operand as the contraction expects it.
    fn dims(&self, operand: char, keys: &str) -> String {
        let (n, width) = match operand {
            'q' => ("s", self.form.d),
            'k' => (keys, self.form.d),
            _ => (keys, self.form.e),
        };
        match self.form.layout {
            Layout::Positions | Layout::Packed => format!("b, {n}, 4, {width}"),
            Layout::Turned if operand != 'q' => format!("b, 4, {width}, {n}"),
            Layout::Heads | Layout::Grouped | Layout::Rotary | Layout::Turned => format!("b, 4, {n}, {width}"),
        }
    }

    fn operands(&mut self) -> (String, String, String) {
        let (d, e) = (self.form.d, self.form.e);
        match self.form.layout {
            Layout::Heads | Layout::Positions | Layout::Turned => {
                let [q, k, v] =
                    ['q', 'k', 'v'].map(|o| self.argument(&o.to_string(), self.tensor_type(&self.dims(o, "t"))));
                (q, k, v)
            }
            Layout::Grouped => {
                let q = self.argument("q", self.tensor_type(&self.dims('q', "t")));
                let [k, v] = [("k", d), ("v", e)].map(|(name, width)| self.spread(name, width));
                (q, k, v)
            }
            Layout::Rotary => {
                let ty = self.tensor_type(&self.dims('q', "t"));
                let q = self.argument("q", ty.clone());
                let q = self.turned(q, &ty);
                let [k, v] = ['k', 'v'].map(|o| self.argument(&o.to_string(), self.tensor_type(&self.dims(o, "t"))));
                (q, k, v)
            }
            Layout::Packed => {
                let all = self.tensor_type(&format!("b, s, 3, 4, {d}"));
                let (one, part) =
                    (self.tensor_type(&format!("b, s, 1, 4, {d}")), self.tensor_type(&format!("b, s, 4, {d}")));
                let x = self.argument("x", all.clone());
                let [q, k, v] = [0, 1, 2].map(|i| {
                    let from = format!("from [\"0\", \"0\", \"{i}\", \"0\", \"0\"] step [1, 1, 1, 1, 1]");
                    let slice = self.line(format!("sdx.slice {x} {from} : {all} -> {one}"));
                    self.line(format!("sdx.reshape {slice} : {one} -> {part}"))
                });
                (q, k, v)
            }
        }
    }

    /// Adds an argument with two heads, and repeats each head twice.
    fn spread(&mut self, name: &str, width: usize) -> String {
        let given = self.tensor_type(&format!("b, 2, t, {width}"));
        let (twice, all) =
            (self.tensor_type(&format!("b, 2, 2, t, {width}")), self.tensor_type(&format!("b, 4, t, {width}")));
        let x = self.argument(name, given.clone());
        let x = self.line(format!("sdx.broadcast {x} to [0, 1, 3, 4] : {given} -> {twice}"));
        self.line(format!("sdx.reshape {x} : {twice} -> {all}"))
    }

    /// Rotary embedding: x · cos + (−x₂, x₁) · sin
    fn turned(&mut self, x: String, ty: &str) -> String {
        let d = self.form.d;
        let (half, angles) = (self.tensor_type(&format!("b, 4, s, {}", d / 2)), self.tensor_type(&format!("s, {d}")));
        let [cos, sin] = ["cos", "sin"].map(|name| {
            let a = self.argument(name, angles.clone());
            self.line(format!("sdx.broadcast {a} to [2, 3] : {angles} -> {ty}"))
        });
        let [low, high] = [0, d / 2].map(|from| {
            let from = format!("from [\"0\", \"0\", \"0\", \"{from}\"] step [1, 1, 1, 1]");
            self.line(format!("sdx.slice {x} {from} : {ty} -> {half}"))
        });
        let minus = self.map("neg", &[&high], &[&half], &half);
        let other = self.line(format!("sdx.concat ({minus}, {low}) axis 3 : ({half}, {half}) -> {ty}"));
        let straight = self.map("mul", &[&x, &cos], &[ty, ty], ty);
        let across = self.map("mul", &[&other, &sin], &[ty, ty], ty);
        self.map("add", &[&straight, &across], &[ty, ty], ty)
    }

    fn masked(&mut self, s: String, score: &str, keys: &str) -> String {
        let bools = format!("!sdx.tensor<[b, 4, s, {keys}], i1>");
        let ints = format!("!sdx.tensor<[b, 4, s, {keys}], i64>");
        let (seen, other) = match self.form.mask {
            Mask::None => return s,
            Mask::Add => {
                let ty = self.tensor_type(&format!("b, {keys}"));
                let mask = self.argument("mask", ty.clone());
                let mask = self.line(format!("sdx.broadcast {mask} to [0, 3] : {ty} -> {score}"));
                return self.map("add", &[&s, &mask], &[score, score], score);
            }
            Mask::Hide(low) => {
                let ty = format!("!sdx.tensor<[b, {keys}], i1>");
                let mask = self.argument("mask", ty.clone());
                (self.line(format!("sdx.broadcast {mask} to [0, 3] : {ty} -> {bools}")), low)
            }
            Mask::Causal => {
                let (i, j) =
                    (self.line(format!("sdx.iota axis 2 : {ints}")), self.line(format!("sdx.iota axis 3 : {ints}")));
                let more = self.line(format!("sdx.dims [\"{keys} - s\"] : !sdx.tensor<[1], i64>"));
                let more = self.line(format!("sdx.reshape {more} : !sdx.tensor<[1], i64> -> !sdx.tensor<[], i64>"));
                let more = self.line(format!("sdx.broadcast {more} to [] : !sdx.tensor<[], i64> -> {ints}"));
                let last = self.map("add", &[&i, &more], &[&ints, &ints], &ints);
                (self.map("le", &[&j, &last], &[&ints, &ints], &bools), f64::NEG_INFINITY)
            }
            Mask::Length | Mask::Odd(_) => {
                let at = self.argument("at", "!sdx.tensor<[b], i64>".into());
                let at = self.line(format!("sdx.broadcast {at} to [0] : !sdx.tensor<[b], i64> -> {ints}"));
                let j = self.line(format!("sdx.iota axis 3 : {ints}"));
                match self.form.mask {
                    Mask::Odd(value) => {
                        let same = self.map("eq", &[&j, &at], &[&ints, &ints], &bools);
                        (self.map("not", &[&same], &[&bools], &bools), value)
                    }
                    _ => (self.map("lt", &[&j, &at], &[&ints, &ints], &bools), f64::NEG_INFINITY),
                }
            }
        };
        let other = self.constant(other, score);
        self.map("select", &[&seen, &s, &other], &[&bools, score, score], score)
    }

    fn weights(&mut self, s: String, score: &str) -> String {
        let row = self.tensor_type("b, 4, s");
        let spread = |t: &mut Self, x: &str| t.line(format!("sdx.broadcast {x} to [0, 1, 2] : {row} -> {score}"));
        let bounded = self.form.weights == Weights::AtLeastOne;
        let mut m = self.line(format!("sdx.reduce \"max\" {s} axes [3] : {score} -> {row}"));
        if bounded {
            let lowest = self.constant(LOWEST, &row);
            m = self.map("max", &[&m, &lowest], &[&row, &row], &row);
        }
        let m = spread(self, &m);
        let d = self.map("sub", &[&s, &m], &[score, score], score);
        let e = self.map("exp", &[&d], &[score], score);
        let mut l = self.line(format!("sdx.reduce \"add\" {e} axes [3] : {score} -> {row}"));
        if bounded {
            let one = self.constant(1.0, &row);
            l = self.map("max", &[&l, &one], &[&row, &row], &row);
        }
        let l = spread(self, &l);
        let w = self.map("div", &[&e, &l], &[score, score], score);
        if self.form.weights != Weights::NanIsZero {
            return w;
        }
        let bools = score.replace(&format!(", {}>", self.form.dtype), ", i1>");
        let nan = self.map("isnan", &[&w], &[score], &bools);
        let zero = self.constant(0.0, score);
        self.map("select", &[&nan, &zero, &w], &[&bools, score, score], score)
    }
}

/// Bit pattern of `value` in the element type, as a literal.
fn narrow(value: f64, dtype: &str) -> String {
    match dtype {
        "f16" => format!("0x{:04X}", half::f16::from_f64(value).to_bits()),
        "bf16" => format!("0x{:04X}", half::bf16::from_f64(value).to_bits()),
        _ => format!("0x{:016X}", value.to_bits()),
    }
}
