//! graph  =>  the words that each operator would move as a separate kernel: the baseline for fusion
//!
//! `Graph::operators` defines the operators, one per ONNX node, and the values that they read. Each element that an
//! operator's operands view is read once, and each element of its results is written once.

use super::{Count, Sure, Words};
use sardonyx_base::Dim;
use sardonyx_base::dim::product;
use sardonyx_dialects::sdx::{Graph, Op, Operator, Read, Reading, Value, viewed};

/// Returns the algebraic words of one operator.
pub fn operator_words(graph: &Graph, operator: &Operator) -> Words {
    let values = Values { graph };
    let all = |v: &Value| Count { words: graph.ty(*v).elements(), sure: Sure::Exact };
    Words {
        reads: operator.reads.iter().map(|r| values.read(r)).collect(),
        writes: operator.writes.iter().map(all).collect(),
    }
}

struct Values<'g> {
    graph: &'g Graph,
}

impl Values<'_> {
    fn ge(&self, a: &Dim, b: &Dim) -> bool {
        a.provably_ge(b, &|s| self.graph.symbol_lo(s))
    }

    fn least(&self, a: Dim, b: Dim) -> Dim {
        match (self.ge(&b, &a), self.ge(&a, &b)) {
            (true, _) => a,
            (false, true) => b,
            (false, false) => a.minimum(&b),
        }
    }

    fn elements(&self, v: Value) -> Dim {
        self.graph.ty(v).elements()
    }

    /// Returns how many elements of its root a value views; the root is the stored value at the start of the chain of
    /// views.
    fn shown(&self, v: Value) -> Count {
        let node = self.graph.node(v);
        let Some(of) = viewed(node) else { return Count { words: self.elements(v), sure: Sure::Exact } };
        let behind = self.shown(of);
        if matches!(node.op, Op::Window(_)) {
            // Windows may overlap or skip elements.
            return Count { words: self.least(self.elements(v), behind.words), sure: Sure::AtMost };
        }
        if !matches!(node.op, Op::Slice { .. }) {
            return behind;
        }
        // If the sliced value repeats elements, the slice may view all distinct elements or few.
        match behind.words == self.elements(of) {
            true => Count { words: self.elements(v), sure: behind.sure },
            false => Count { words: self.least(self.elements(v), behind.words), sure: Sure::AtMost },
        }
    }

    fn through(&self, (v, reading): &(Value, Reading)) -> Count {
        let shown = self.shown(*v);
        let Reading::Gathered(gather) = reading else { return shown };
        let node = self.graph.node(*gather);
        let Op::Gather { axis } = node.op else { return shown };
        let dims = &self.graph.ty(*v).dims;
        let places = self.least(self.elements(node.args[1]), dims[axis].clone());
        let others = product(dims.iter().enumerate().filter(|(d, _)| *d != axis).map(|(_, n)| n));
        // If the value repeats elements, at most its distinct elements are read.
        let words = match shown.words == self.elements(*v) {
            true => places * others,
            false => self.least(places * others, shown.words),
        };
        Count { words, sure: shown.sure.max(Sure::ByData) }
    }

    fn read(&self, read: &Read) -> Count {
        let all = self.elements(read.root);
        let parts: Vec<Count> = read.through.iter().map(|t| self.through(t)).collect();
        if let Some(whole) = parts.iter().filter(|c| c.words == all).min_by_key(|c| c.sure) {
            return whole.clone();
        }
        if let [one] = parts.as_slice() {
            return one.clone();
        }
        // The parts may overlap.
        let sum = parts.iter().fold(Dim::constant(0), |s, c| s + c.words.clone());
        match sum == all && self.are_apart(read) {
            true => Count { words: all, sure: parts.iter().map(|c| c.sure).max().unwrap_or(Sure::Exact) },
            false => Count { words: self.least(sum, all), sure: Sure::AtMost },
        }
    }

    /// Returns whether the operator reads one value through slices, possibly reshaped, each of which ends before the
    /// next begins along some axis.
    fn are_apart(&self, read: &Read) -> bool {
        let Some(mut slices) = read.through.iter().map(|(v, _)| self.slice(*v)).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let parts = |v: &Value| match &self.graph.node(*v).op {
            Op::Slice { starts, steps } => (starts.clone(), steps.clone()),
            _ => (vec![], vec![]),
        };
        slices.sort_by_key(|v| parts(v).0);
        slices.windows(2).all(|pair| {
            let ([(starts, steps), (next, more)], node) =
                ([parts(&pair[0]), parts(&pair[1])], self.graph.node(pair[0]));
            let of_one = node.args == self.graph.node(pair[1]).args;
            let ends: Vec<Dim> = starts.iter().zip(&node.ty.dims).map(|(s, n)| s.clone() + n.clone()).collect();
            let plain = steps.iter().chain(&more).all(|s| *s == 1);
            plain && of_one && (0..ends.len()).any(|d| self.ge(&next[d], &ends[d]))
        })
    }

    /// Returns the slice that a value views.
    fn slice(&self, v: Value) -> Option<Value> {
        let node = self.graph.node(v);
        if matches!(node.op, Op::Slice { .. }) { Some(v) } else { self.slice(viewed(node)?) }
    }
}
