//! `KernelDef`: a kernel whose sizes are constants or formal parameters, so that equal kernels are equal values

use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::Class;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};

/// An extent, a stride or an offset: known, or parameter `p{n}` of the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    Const(i64),
    Param(usize),
}

impl Size {
    pub fn dim(self) -> Dim {
        match self {
            Size::Const(c) => Dim::constant(c),
            Size::Param(p) => param(p),
        }
    }

    pub fn is(self, value: i64) -> bool {
        self == Size::Const(value)
    }

    pub fn as_const(self) -> Option<i64> {
        match self {
            Size::Const(c) => Some(c),
            Size::Param(_) => None,
        }
    }

    pub fn as_param(self) -> Option<usize> {
        match self {
            Size::Const(_) => None,
            Size::Param(p) => Some(p),
        }
    }
}

/// The symbol `p{n}`.
pub fn param(n: usize) -> Dim {
    Dim::symbol(&format!("p{n}"))
}

/// `offset + Σ strides[i] · %i`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    pub offset: Size,
    /// One per iteration variable, outer ones first.
    pub strides: Vec<Size>,
}

/// `stride · expr`, where `expr` is computed per element: it is not linear, or contains a value read from data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Computed {
    /// Over `%i`, `$k` and `p{n}`.
    pub expr: Dim,
    pub stride: Size,
    /// Where present, `expr` is checked to lie in `0..limit`.
    pub limit: Option<Size>,
    /// The coordinate that it is a part of.
    pub coord: usize,
}

/// Which element of a buffer is accessed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Among the reads, or among the writes.
    pub buffer: usize,
    /// The element's number; for panels the row `k` and the column `n` instead.
    pub coords: Vec<Linear>,
    pub computed: Vec<Computed>,
}

impl Access {
    /// The stride of a variable, where the access is linear in it and the buffer is row-major.
    pub fn stride(&self, var: usize) -> Size {
        self.coords[0].strides[var]
    }

    /// What is added to the element's number beside the steps along a variable, in a row-major buffer: the multiples of
    /// what, or the number itself.
    pub fn others(&self, var: usize) -> impl Iterator<Item = Size> {
        let line = &self.coords[0];
        let strides = line.strides.iter().enumerate().filter(move |(v, _)| *v != var).map(|(_, s)| *s);
        strides.chain([line.offset]).chain(self.computed.iter().map(|c| c.stride))
    }

    /// Whether the element's number is known to be a multiple wherever the variable is.
    pub fn is_aligned(&self, var: usize, of: i64) -> bool {
        self.others(var).all(|s| s.as_const().is_some_and(|c| c % of == 0))
    }

    /// Whether any coordinate moves with the variable (computed parts aside).
    pub fn moves_with(&self, var: usize) -> bool {
        self.coords.iter().any(|c| !c.strides[var].is(0))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Load {
        access: Access,
        guard: Option<usize>,
    },
    /// The bits of an f64.
    Const(u64),
    /// Over `%i` and `p{n}`.
    Index(Dim),
    Apply {
        f: ScalarFn,
        args: Vec<usize>,
    },
    Convert(usize, Conversion),
    Reduce {
        f: ReduceFn,
        arg: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    pub op: Op,
    pub dtype: DType,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub access: Access,
    pub value: usize,
}

/// How a buffer's elements lie: row-major, or `[ceil(n / width)][ceil(rows / depth)][width][depth]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    pub dtype: DType,
    pub panels: Option<Panels>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Panels {
    pub width: i64,
    /// Rows of a column that lie side by side.
    pub depth: i64,
    pub rows: i64,
    /// Two elements are a byte: four rows the low bits, the next four the high ones.
    pub halves: bool,
}

impl Panels {
    /// Groups of rows in a panel.
    pub fn groups(&self) -> i64 {
        self.rows.div_euclid(self.depth) + (self.rows % self.depth != 0) as i64
    }

    /// Places in memory of the rows that lie side by side.
    pub fn places(&self) -> i64 {
        if self.halves { self.depth.div_euclid(2) } else { self.depth }
    }
}

/// One kernel over formal parameters. Two layers of a network with the same shapes give equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelDef {
    pub class: Class,
    pub outer: Vec<Size>,
    pub inner: Vec<Size>,
    /// Summed at each inner point.
    pub deep: Vec<Size>,
    pub reads: Vec<Storage>,
    pub writes: Vec<Storage>,
    pub body: Vec<Step>,
    pub stores: Vec<Write>,
    pub n_params: usize,
}

/// A set of iteration variables, one bit each.
pub type VarSet = u64;

impl KernelDef {
    pub fn n_vars(&self) -> usize {
        self.outer.len() + self.inner.len() + self.deep.len()
    }

    /// The outer variables and the inner ones: those of points.
    pub fn n_point_vars(&self) -> usize {
        self.outer.len() + self.inner.len()
    }

    pub fn extent(&self, var: usize) -> Size {
        let (n_outer, n_inner) = (self.outer.len(), self.inner.len());
        match var {
            v if v < n_outer => self.outer[v],
            v if v < n_outer + n_inner => self.inner[v - n_outer],
            v => self.deep[v - n_outer - n_inner],
        }
    }

    /// The inner variables, and the deep ones.
    pub fn inner_vars(&self) -> VarSet {
        ((1 << self.n_vars()) - 1) & !((1 << self.outer.len()) - 1)
    }

    pub fn deep_vars(&self) -> VarSet {
        ((1 << self.n_vars()) - 1) & !((1 << self.n_point_vars()) - 1)
    }

    /// Which iteration variables each statement depends on.
    pub fn dependences(&self) -> Vec<VarSet> {
        let mut deps: Vec<VarSet> = vec![];
        for step in &self.body {
            let set = match &step.op {
                Op::Load { access, guard } => self.access_vars(access, &deps) | guard.map_or(0, |g| deps[g]),
                Op::Const(_) => 0,
                Op::Index(d) => dim_vars(d, &deps),
                Op::Apply { args, .. } => args.iter().fold(0, |s, a| s | deps[*a]),
                Op::Convert(a, _) => deps[*a],
                Op::Reduce { arg, .. } if deps[*arg] & self.deep_vars() != 0 => deps[*arg] & !self.deep_vars(),
                Op::Reduce { arg, .. } => deps[*arg] & !self.inner_vars(),
            };
            deps.push(set);
        }
        deps
    }

    /// The variables that move an access.
    pub fn access_vars(&self, access: &Access, deps: &[VarSet]) -> VarSet {
        let linear = (0..self.n_vars()).filter(|v| access.moves_with(*v)).fold(0, |s, v| s | 1 << v);
        access.computed.iter().fold(linear, |s, c| s | dim_vars(&c.expr, deps))
    }

    /// The statements that a statement reads directly.
    pub fn operands(&self, k: usize) -> Vec<usize> {
        match &self.body[k].op {
            Op::Load { access, guard } => access_values(access).into_iter().chain(*guard).collect(),
            Op::Const(_) | Op::Index(_) => vec![],
            Op::Apply { args, .. } => args.clone(),
            Op::Convert(a, _) | Op::Reduce { arg: a, .. } => vec![*a],
        }
    }

    /// Whether nothing but sums reads a statement.
    pub fn is_only_summed(&self, k: usize) -> bool {
        let sums = |reader: &usize| matches!(self.body[*reader].op, Op::Reduce { f: ReduceFn::Add, .. });
        let mut readers = (k + 1..self.body.len()).filter(|reader| self.operands(*reader).contains(&k));
        let stored = self.stores.iter().any(|w| w.value == k || access_values(&w.access).contains(&k));
        !stored && readers.all(|reader| sums(&reader))
    }
}

/// The statements whose values an access computes with.
pub fn access_values(access: &Access) -> Vec<usize> {
    let values = |c: &Computed| -> Vec<usize> { c.expr.symbols().iter().filter_map(|s| own(s, '$')).collect() };
    access.computed.iter().flat_map(values).collect()
}

/// The number of a symbol `%3` or `$3`.
pub fn own(symbol: &str, mark: char) -> Option<usize> {
    symbol.strip_prefix(mark)?.parse().ok()
}

fn dim_vars(d: &Dim, deps: &[VarSet]) -> VarSet {
    d.symbols().iter().fold(0, |set, s| match (own(s, '%'), own(s, '$')) {
        (Some(v), _) => set | 1 << v,
        (None, Some(k)) => set | deps[k],
        (None, None) => set,
    })
}
