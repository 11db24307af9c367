//! Attention problems: sizes, element types, layouts of operands, and variants of the scores and weights

use crate::build::Builder;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

/// Layout of q, k, v and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// [b, h, s, d]
    Heads,
    /// [b, s, h·d]
    Rows,
    /// The heads of q, k and v one after another: [b, s, 3·h·d], or less if heads of q share one of k and v. All three
    /// are read from one container if the sizes are constants and s = t. The result is as in `Rows`.
    Stacked,
    /// k as [b, h, d, t], v as [b, h, e, t], the result as [b, h, e, s].
    Turned,
    /// q in rows of d + 1 elements; k and v in caches with spare capacity; the result as in `Heads`.
    Room,
}

/// How operand A of the scores is computed from q.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Plain,
    Scaled,
    /// Pairs of channels are rotated by an angle that depends on the row and the channel (rotary embedding).
    Rotated,
}

/// How operand B of the scores is computed from k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Plain,
    /// Cached keys followed by new ones.
    Joined,
}

/// The function that is applied to the scores x before the softmax; c is 1 / √d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    Nothing,
    /// x · c
    Scaled,
    /// x · c + mask[b, t]
    Mask,
    /// x · c + mask[b, h, s, t]
    FullMask,
    /// x · c where t ≤ s + (keys - queries), else the lowest finite number
    Causal,
    /// As `Causal`, but with -∞ in place of the lowest number, and with a mask of bools that hides further keys.
    Hidden,
    /// 5 · tanh(x · c / 5)
    Capped,
}

/// How weights are computed from the exponentials p, whose sum over a row is l.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// (Σ p·v) / l
    After,
    /// Σ (p / l)·v
    Inside,
    /// Results are 0 for rows that see no key, because the maximum and the sum are clamped from below.
    Visible,
    /// NaN weights are replaced by 0.
    Cleaned,
    /// Σ v·(p·(1 / l)), times a gate per row
    Inverse,
}

#[derive(Clone, Copy, Debug)]
pub struct Problem {
    pub dtype: DType,
    /// Whether q, k, v and the exponentials are rounded to bf16, and widened before they are multiplied.
    pub widened: bool,
    pub batch: i64,
    pub heads: i64,
    /// Number of query heads per key head.
    pub group: i64,
    pub queries: i64,
    pub keys: i64,
    pub d: i64,
    pub e: i64,
    pub lie: Lie,
    pub left: Left,
    pub right: Right,
    pub score: Score,
    pub weights: Weights,
    /// Whether the numbers of batches, queries and keys are parameters of the launch.
    pub symbolic: bool,
    /// Whether d and e, the widths of keys and values, are parameters of the launch, too.
    pub symbolic_width: bool,
}

pub const PLAIN: Problem = Problem {
    dtype: DType::F32,
    widened: false,
    batch: 1,
    heads: 2,
    group: 1,
    queries: 20,
    keys: 40,
    d: 32,
    e: 32,
    lie: Lie::Heads,
    left: Left::Plain,
    right: Right::Plain,
    score: Score::Nothing,
    weights: Weights::After,
    symbolic: true,
    symbolic_width: false,
};

/// Spare capacity of a cache in positions.
pub const ROOM: i64 = 7;

/// Number of cached keys of `Right::Joined`.
fn past(keys: i64) -> i64 {
    keys / 2
}

impl Problem {
    pub fn symbols(&self) -> Vec<(&'static str, i64)> {
        let past = past(self.keys);
        vec![
            ("b", self.batch),
            ("s", self.queries),
            ("t", self.keys),
            ("u", past),
            ("w", self.keys - past),
            ("c", self.keys + ROOM),
            ("d", self.d),
            ("e", self.e),
        ]
    }

    pub fn symbol(&self, name: &str) -> Option<i64> {
        self.symbols().iter().find(|(s, _)| *s == name).map(|(_, v)| *v)
    }

    /// Returns an expression with numbers in place of the symbols that are known at compile time.
    fn size(&self, text: &str) -> String {
        let known = |s: &Symbol| {
            let s = s.name()?;
            let symbolic = if matches!(s, "d" | "e") { self.symbolic_width } else { self.symbolic };
            if symbolic { None } else { Some(Dim::constant(self.symbol(s)?)) }
        };
        Dim::parse(text).unwrap().substitute(&known).to_string()
    }

    pub fn kernel(&self) -> Kernel {
        let (h, t) = (self.heads, self.dtype);
        let size = |text: &str| self.size(text);
        let outer = [size("b"), h.to_string(), size("s"), size("e")];
        let outer: Vec<&str> = outer.iter().map(String::as_str).collect();
        let mut b = Builder::new(&outer, &[&size("t")]).deep(&[&size("d")]);
        // Variables: %0 batch, %1 head, %2 query, %3 column of the result, %4 key, %5 column of q and k.
        let read = Problem { dtype: if self.widened { DType::BF16 } else { t }, ..*self };
        let head = if self.group > 1 { format!("%1 floordiv {}", self.group) } else { "%1".into() };
        let kv = (h / self.group).to_string();
        let q = read.left(&mut b);
        let k = match self.right {
            Right::Plain => read.operand(&mut b, ("t", "d"), &kv, &head, ("%4", "%5"), 1),
            Right::Joined => read.joined(&mut b, &kv, &head),
        };
        let (q, k) = if self.widened { (b.convert(q, t), b.convert(k, t)) } else { (q, k) };
        let product = b.apply(ScalarFn::Mul, &[q, k]);
        let sum = b.reduce(ReduceFn::Add, product);
        let x = self.score(&mut b, sum);
        let max = b.reduce(ReduceFn::Max, x);
        let shift = match self.weights {
            Weights::Visible => {
                let low = b.constant(lowest(t), t);
                b.apply(ScalarFn::Max, &[max, low])
            }
            Weights::After | Weights::Inside | Weights::Cleaned | Weights::Inverse => max,
        };
        let below = b.apply(ScalarFn::Sub, &[x, shift]);
        let p = b.apply(ScalarFn::Exp, &[below]);
        let total = b.reduce(ReduceFn::Add, p);
        let mut v = read.operand(&mut b, ("t", "e"), &kv, &head, ("%4", "%3"), 2);
        let mut factor = p;
        if self.widened {
            v = b.convert(v, t);
            let rounded = b.convert(p, DType::BF16);
            factor = b.convert(rounded, t);
        }
        let o = self.weighted(&mut b, factor, total, v);
        let width = format!("{h}*{}", self.size("e"));
        let (e, width) = (self.size("e"), size(&width));
        let (batch, s, h) = (size("b"), size("s"), h.to_string());
        match self.lie {
            Lie::Heads | Lie::Room => b.store(o, &[&batch, &h, &s, &e], &["%0", "%1", "%2", "%3"]),
            Lie::Rows | Lie::Stacked => b.store(o, &[&batch, &s, &width], &["%0", "%2", &format!("({e})*%1 + %3")]),
            Lie::Turned => b.store(o, &[&batch, &h, &e, &s], &["%0", "%1", "%3", "%2"]),
        }
        b.0
    }

    /// Loads q, k or v (`part` 0, 1, 2) at a row and a column.
    fn operand(
        &self,
        b: &mut Builder,
        (rows, columns): (&str, &str),
        heads: &str,
        head: &str,
        (row, column): (&str, &str),
        part: i64,
    ) -> usize {
        let (n, width) = (self.size(rows), self.size(columns));
        let (batch, wide) = (self.size("b"), self.size(&format!("({heads})*({columns})")));
        match self.lie {
            Lie::Heads => b.load(self.dtype, &[&batch, heads, &n, &width], &["%0", head, row, column]),
            Lie::Rows => {
                let at = format!("({width})*({head}) + {column}");
                b.load(self.dtype, &[&batch, &n, &wide], &["%0", row, &at])
            }
            Lie::Stacked => {
                // The container has the heads of queries first, then the heads of keys, then the heads of values.
                let all = self.size(&format!("({})*({columns}) + 2*({heads})*({columns})", self.heads));
                let before = if part == 0 { 0 } else { self.heads + (part - 1) * (self.heads / self.group) };
                let at = format!("({width})*({head} + {before}) + {column}");
                match part {
                    0 => b.load(self.dtype, &[&batch, &n, &all], &["%0", row, &at]),
                    _ if self.queries == self.keys && !self.symbolic => b.again(0, &["%0", row, &at]),
                    _ => b.load(self.dtype, &[&batch, &n, &all], &["%0", row, &at]),
                }
            }
            Lie::Turned if part == 0 => b.load(self.dtype, &[&batch, heads, &n, &width], &["%0", head, row, column]),
            Lie::Turned => b.load(self.dtype, &[&batch, heads, &width, &n], &["%0", head, column, row]),
            Lie::Room if part == 0 => {
                let pitch = self.size(&format!("{columns} + 1"));
                b.load(self.dtype, &[&batch, heads, &n, &pitch], &["%0", head, row, column])
            }
            Lie::Room => {
                let v = b.load(self.dtype, &[&batch, heads, &n, &width], &["%0", head, row, column]);
                b.give_room(b.0.reads.len() - 1, 2, &self.size("c"));
                v
            }
        }
    }

    /// select(key < past, cached[key], new[key - past])
    fn joined(&self, b: &mut Builder, heads: &str, head: &str) -> usize {
        let (batch, d) = (self.size("b"), self.size("d"));
        let (past, new) = (self.size("u"), self.size("w"));
        let (key, edge) = (b.index("%4"), b.index(&past));
        let first = b.apply(ScalarFn::Lt, &[key, edge]);
        let second = b.apply(ScalarFn::Not, &[first]);
        let x = b.guarded(self.dtype, &[&batch, heads, &past, &d], &["%0", head, "%4", "%5"], Some(first));
        let at = format!("%4 - ({past})");
        let y = b.guarded(self.dtype, &[&batch, heads, &new, &d], &["%0", head, &at, "%5"], Some(second));
        b.apply(ScalarFn::Select, &[first, x, y])
    }

    fn left(&self, b: &mut Builder) -> usize {
        let heads = self.heads.to_string();
        let at = |b: &mut Builder, column: &str| self.operand(b, ("s", "d"), &heads, "%1", ("%2", column), 0);
        match self.left {
            Left::Plain => at(b, "%5"),
            Left::Scaled => {
                let (q, scale) = (at(b, "%5"), b.constant(1.0 / (self.d as f64).sqrt(), self.dtype));
                b.apply(ScalarFn::Mul, &[q, scale])
            }
            Left::Rotated => {
                let q = at(b, "%5");
                let half = self.d / 2;
                let (s, d) = (self.size("s"), self.size("d"));
                let other = at(b, &format!("{d} - 1 - %5"));
                let (place, middle) = (b.index("%5"), b.constant(half as f64, DType::I64));
                let lower = b.apply(ScalarFn::Lt, &[place, middle]);
                let minus = b.apply(ScalarFn::Neg, &[other]);
                let other = b.apply(ScalarFn::Select, &[lower, minus, other]);
                let cos = b.load(self.dtype, &[&s, &d], &["%2", "%5"]);
                let sin = b.load(self.dtype, &[&s, &d], &["%2", "%5"]);
                let (x, y) = (b.apply(ScalarFn::Mul, &[q, cos]), b.apply(ScalarFn::Mul, &[other, sin]));
                b.apply(ScalarFn::Add, &[x, y])
            }
        }
    }

    fn score(&self, b: &mut Builder, sum: usize) -> usize {
        let (t, batch, s, n) = (self.dtype, self.size("b"), self.size("s"), self.size("t"));
        let scale = |b: &mut Builder| {
            let c = b.constant(1.0 / (self.d as f64).sqrt(), t);
            b.apply(ScalarFn::Mul, &[sum, c])
        };
        let earlier = |b: &mut Builder| {
            let (key, last) = (b.index("%4"), b.index(&format!("%2 + ({n}) - ({s})")));
            b.apply(ScalarFn::Le, &[key, last])
        };
        match self.score {
            Score::Nothing => sum,
            Score::Scaled => scale(b),
            Score::Mask => {
                let (x, mask) = (scale(b), b.load(t, &[&batch, &n], &["%0", "%4"]));
                b.apply(ScalarFn::Add, &[x, mask])
            }
            Score::FullMask => {
                let x = scale(b);
                let shape = [batch, self.heads.to_string(), s, n];
                let shape: Vec<&str> = shape.iter().map(String::as_str).collect();
                let mask = b.load(t, &shape, &["%0", "%1", "%2", "%4"]);
                b.apply(ScalarFn::Add, &[x, mask])
            }
            Score::Causal => {
                let (x, seen, low) = (scale(b), earlier(b), b.constant(lowest(t), t));
                b.apply(ScalarFn::Select, &[seen, x, low])
            }
            Score::Hidden => {
                let (x, seen) = (scale(b), earlier(b));
                let low = b.constant(f64::NEG_INFINITY, t);
                let mask = b.load(DType::Bool, &[&batch, &n], &["%0", "%4"]);
                let seen = b.apply(ScalarFn::And, &[seen, mask]);
                b.apply(ScalarFn::Select, &[seen, x, low])
            }
            Score::Capped => {
                let (x, cap) = (scale(b), b.constant(5.0, t));
                let x = b.apply(ScalarFn::Div, &[x, cap]);
                let x = b.apply(ScalarFn::Tanh, &[x]);
                b.apply(ScalarFn::Mul, &[x, cap])
            }
        }
    }

    fn weighted(&self, b: &mut Builder, p: usize, total: usize, v: usize) -> usize {
        let t = self.dtype;
        match self.weights {
            Weights::After => {
                let o = b.dot(p, v);
                b.apply(ScalarFn::Div, &[o, total])
            }
            Weights::Inside => {
                let w = b.apply(ScalarFn::Div, &[p, total]);
                b.dot(w, v)
            }
            Weights::Visible => {
                let one = b.constant(1.0, t);
                let total = b.apply(ScalarFn::Max, &[total, one]);
                let w = b.apply(ScalarFn::Div, &[p, total]);
                b.dot(w, v)
            }
            Weights::Cleaned => {
                let w = b.apply(ScalarFn::Div, &[p, total]);
                let (nan, zero) = (b.apply(ScalarFn::IsNan, &[w]), b.constant(0.0, t));
                let w = b.apply(ScalarFn::Select, &[nan, zero, w]);
                b.dot(w, v)
            }
            Weights::Inverse => {
                let one = b.constant(1.0, t);
                let inverse = b.apply(ScalarFn::Div, &[one, total]);
                let w = b.apply(ScalarFn::Mul, &[p, inverse]);
                let o = b.dot(v, w);
                let gate = b.load(t, &[&self.size("b"), &self.size("s")], &["%0", "%2"]);
                b.apply(ScalarFn::Mul, &[o, gate])
            }
        }
    }
}

/// Returns the lowest finite number of a type.
pub fn lowest(t: DType) -> f64 {
    match t {
        DType::F16 => -65504.0,
        DType::F64 => f64::MIN,
        DType::BF16 => -3.3895313892515355e38,
        _ => f32::MIN as f64,
    }
}
