//! graph  =>  per operator the words that it would move as a kernel of its own: what fusion has to beat
//!
//! What an operator is, and which values it reads, says `Graph::operators`: one per ONNX node. It reads what its
//! operands show, each element once, and writes its results once.

use super::{Count, Sure, Words};
use sardonyx_base::Dim;
use sardonyx_base::dim::product;
use sardonyx_dialects::sdx::{Graph, Op, Operator, Read, Reading, Value, viewed};

/// The algebraic words of one operator.
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

    /// How many elements of its root a value shows.
    fn shown(&self, v: Value) -> Count {
        let node = self.graph.node(v);
        let Some(of) = viewed(node) else { return Count { words: self.elements(v), sure: Sure::Exact } };
        let behind = self.shown(of);
        if matches!(node.op, Op::Window(_)) {
            // Windows overlap, or leave elements out.
            return Count { words: self.least(self.elements(v), behind.words), sure: Sure::AtMost };
        }
        if !matches!(node.op, Op::Slice { .. }) {
            return behind;
        }
        // A part of what stands there repeatedly may show all of it, or little.
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
        // Places that show one element twice are no more than there are elements.
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
        // Parts may overlap.
        let sum = parts.iter().fold(Dim::constant(0), |s, c| s + c.words.clone());
        match sum == all && self.are_apart(read) {
            true => Count { words: all, sure: parts.iter().map(|c| c.sure).max().unwrap_or(Sure::Exact) },
            false => Count { words: self.least(sum, all), sure: Sure::AtMost },
        }
    }

    /// Slices of one value along one axis that follow each other, in whatever form they are read.
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

    /// The slice that a value shows.
    fn slice(&self, v: Value) -> Option<Value> {
        let node = self.graph.node(v);
        if matches!(node.op, Op::Slice { .. }) { Some(v) } else { self.slice(viewed(node)?) }
    }
}
