//! `KernelDef`: a kernel whose sizes are constants or formal parameters, so that equal kernels are equal values

use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::Class;
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};

/// Extent, stride or offset: a constant, or parameter `p{n}` of the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// Value known at compile time.
    Const(i64),
    /// Number of a launch parameter, counted from 0.
    Param(usize),
}

impl Size {
    /// Returns the size as an expression; a parameter becomes the symbol `p{n}`.
    pub fn dim(self) -> Dim {
        match self {
            Size::Const(c) => Dim::constant(c),
            Size::Param(p) => Dim::param(p),
        }
    }

    /// Whether the size is this constant; false for parameters.
    pub fn is(self, value: i64) -> bool {
        self == Size::Const(value)
    }

    /// Returns the constant; `None` for a parameter.
    pub fn as_const(self) -> Option<i64> {
        match self {
            Size::Const(c) => Some(c),
            Size::Param(_) => None,
        }
    }

    /// Returns the number of the parameter; `None` for a constant.
    pub fn as_param(self) -> Option<usize> {
        match self {
            Size::Const(_) => None,
            Size::Param(p) => Some(p),
        }
    }
}

/// Linear expression `offset + Σ strides[i] · %i`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    /// Value of the expression where all iteration variables are 0.
    pub offset: Size,
    /// One stride per iteration variable, outermost first.
    pub strides: Vec<Size>,
}

/// Part `stride · expr` of a coordinate, where `expr` is not linear or contains a value read from data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Computed {
    /// Expression over `%i`, `$k` and `p{n}`.
    pub expr: Dim,
    /// Number that the value of `expr` is multiplied by.
    pub stride: Size,
    /// If present, the kernel checks that `expr` is in `0..limit`.
    pub limit: Option<Size>,
    /// Index of the coordinate that this part is added to.
    pub coord: usize,
}

/// Element of a buffer that is accessed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Index among the reads, or among the writes.
    pub buffer: usize,
    /// Index of the element; for panels, the row `k` and the column `n` instead.
    pub coords: Vec<Linear>,
    /// Terms that are added to the linear expressions of `coords`.
    pub computed: Vec<Computed>,
}

impl Access {
    /// Stride of a variable, if the access is linear in it and the buffer is row-major.
    pub fn stride(&self, var: usize) -> Size {
        self.coords[0].strides[var]
    }

    /// Coefficients of the element's index in a row-major buffer, except the stride of this variable: the strides of
    /// the other variables, the offset, and the strides of the computed parts.
    pub fn others(&self, var: usize) -> impl Iterator<Item = Size> {
        let line = &self.coords[0];
        let strides = line.strides.iter().enumerate().filter(move |(v, _)| *v != var).map(|(_, s)| *s);
        strides.chain([line.offset]).chain(self.computed.iter().map(|c| c.stride))
    }

    /// Whether the element's index is a multiple of `of` whenever the term of `var` is.
    pub fn is_aligned(&self, var: usize, of: i64) -> bool {
        self.others(var).all(|s| s.as_const().is_some_and(|c| c % of == 0))
    }

    /// Whether any coordinate depends on the variable linearly; computed parts are ignored.
    pub fn moves_with(&self, var: usize) -> bool {
        self.coords.iter().any(|c| !c.strides[var].is(0))
    }
}

/// Operation of a statement; operands are numbers of earlier statements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads an element; the value is 0 where the guard is false.
    Load {
        /// Element of one of the buffers in `reads`.
        access: Access,
        /// Statement that must be true for the element to be read; `None` if it is always read.
        guard: Option<usize>,
    },
    /// Constant, as the bits of an f64.
    Const(u64),
    /// Integer expression over `%i` and `p{n}`.
    Index(Dim),
    /// Scalar function of the values of other statements.
    Apply {
        /// Function to apply.
        f: ScalarFn,
        /// Statements of the operands, in the function's order.
        args: Vec<usize>,
    },
    /// Value of another statement, converted to the type of this one.
    Convert(usize, Conversion),
    /// Reduction over the deep space if the argument depends on it, else over the inner space.
    Reduce {
        /// Function that combines two values.
        f: ReduceFn,
        /// Statement whose values are combined.
        arg: usize,
    },
}

/// Statement of a kernel, which yields one scalar.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Operation that computes the scalar.
    pub op: Op,
    /// Element type of the scalar.
    pub dtype: DType,
}

/// Store of a statement's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// Element of one of the buffers in `writes`.
    pub access: Access,
    /// Statement whose value is stored.
    pub value: usize,
}

/// Layout of a buffer's elements: row-major, or panels `[ceil(n / width)][ceil(rows / depth)][width][depth]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storage {
    /// Element type in memory.
    pub dtype: DType,
    /// Panel layout; `None` if the buffer is row-major.
    pub panels: Option<Panels>,
}

/// Panel layout of a matrix, as described at [`Storage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Panels {
    /// Number of columns of a panel.
    pub width: i64,
    /// Number of rows of a column that are stored side by side.
    pub depth: i64,
    /// Number of rows of the matrix.
    pub rows: i64,
    /// Whether two elements share a byte; then the first half of a group of `depth` rows is in the low nibbles, the
    /// second half in the high nibbles.
    pub halves: bool,
}

/// Number of elements of 16 bits along K that panels for GPUs store side by side: 16 bytes, as tensor cores read them.
pub const CHUNK_DEPTH: i64 = 8;

impl Panels {
    /// Number of groups of `depth` rows in a panel.
    pub fn groups(&self) -> i64 {
        self.rows.div_euclid(self.depth) + (self.rows % self.depth != 0) as i64
    }

    /// Number of storage units (bytes if `halves`, else elements) that a group of rows takes per column.
    pub fn places(&self) -> i64 {
        if self.halves { self.depth.div_euclid(2) } else { self.depth }
    }
}

/// Kernel over formal parameters. Two layers of a network with the same shapes give equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelDef {
    /// Class of the kernel, which selects the planners to try.
    pub class: Class,
    /// Extents of the outer variables, outermost first.
    pub outer: Vec<Size>,
    /// Extents of the inner variables, which enumerate the points of a row, outermost first.
    pub inner: Vec<Size>,
    /// Extents of the variables that are reduced at each inner point.
    pub deep: Vec<Size>,
    /// Layouts of the buffers that are read.
    pub reads: Vec<Storage>,
    /// Layouts of the buffers that are written; in a launch's arguments, these buffers follow those that are read.
    pub writes: Vec<Storage>,
    /// Statements in order of evaluation: operands precede their users.
    pub body: Vec<Step>,
    /// Stores of values of `body` to the written buffers.
    pub stores: Vec<Write>,
    /// Number of launch parameters `p0`, `p1`, …
    pub n_params: usize,
}

/// Set of iteration variables, one bit each.
pub type VarSet = u64;

impl KernelDef {
    /// Returns the number of iteration variables, which are numbered in the order outer, inner, deep.
    pub fn n_vars(&self) -> usize {
        self.outer.len() + self.inner.len() + self.deep.len()
    }

    /// Number of outer and inner variables, which together enumerate the points.
    pub fn n_point_vars(&self) -> usize {
        self.outer.len() + self.inner.len()
    }

    /// Returns the extent of a variable, given by its number among the outer, inner and deep ones.
    pub fn extent(&self, var: usize) -> Size {
        let (n_outer, n_inner) = (self.outer.len(), self.inner.len());
        match var {
            v if v < n_outer => self.outer[v],
            v if v < n_outer + n_inner => self.inner[v - n_outer],
            v => self.deep[v - n_outer - n_inner],
        }
    }

    /// Set of the inner and the deep variables.
    pub fn inner_vars(&self) -> VarSet {
        ((1 << self.n_vars()) - 1) & !((1 << self.outer.len()) - 1)
    }

    /// Returns the set of the deep variables.
    pub fn deep_vars(&self) -> VarSet {
        ((1 << self.n_vars()) - 1) & !((1 << self.n_point_vars()) - 1)
    }

    /// Set of iteration variables that each statement depends on.
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

    /// Set of variables that an access depends on.
    pub fn access_vars(&self, access: &Access, deps: &[VarSet]) -> VarSet {
        let linear = (0..self.n_vars()).filter(|v| access.moves_with(*v)).fold(0, |s, v| s | 1 << v);
        access.computed.iter().fold(linear, |s, c| s | dim_vars(&c.expr, deps))
    }

    /// Statements that a statement reads directly.
    pub fn operands(&self, k: usize) -> Vec<usize> {
        match &self.body[k].op {
            Op::Load { access, guard } => access_values(access).into_iter().chain(*guard).collect(),
            Op::Const(_) | Op::Index(_) => vec![],
            Op::Apply { args, .. } => args.clone(),
            Op::Convert(a, _) | Op::Reduce { arg: a, .. } => vec![*a],
        }
    }

    /// Returns the only reduction, if it is a sum: its statement and its argument.
    pub fn only_sum(&self) -> Option<(usize, usize)> {
        let mut reductions = self.body.iter().enumerate().filter_map(|(k, step)| match step.op {
            Op::Reduce { f, arg } => Some((k, f, arg)),
            _ => None,
        });
        match (reductions.next(), reductions.next()) {
            (Some((k, ReduceFn::Add, arg)), None) => Some((k, arg)),
            (_, _) => None,
        }
    }

    /// Returns the access and the guard of a load; `None` for any other statement.
    pub fn load(&self, k: usize) -> Option<(&Access, Option<usize>)> {
        match &self.body[k].op {
            Op::Load { access, guard } => Some((access, *guard)),
            _ => None,
        }
    }

    /// Returns the access and the guard of the load whose value a statement converts.
    pub fn converted_load(&self, k: usize) -> Option<(&Access, Option<usize>)> {
        match self.body[k].op {
            Op::Convert(from, Conversion::Value) => self.load(from),
            _ => None,
        }
    }

    /// Returns whether all results are stored once per outer point.
    pub fn stores_outer_points(&self) -> bool {
        let (deps, inner) = (self.dependences(), self.inner_vars());
        self.stores.iter().all(|w| (deps[w.value] | self.access_vars(&w.access, &deps)) & inner == 0)
    }

    /// Returns whether sums are the only users of a statement.
    pub fn is_only_summed(&self, k: usize) -> bool {
        let sums = |reader: &usize| matches!(self.body[*reader].op, Op::Reduce { f: ReduceFn::Add, .. });
        let mut readers = (k + 1..self.body.len()).filter(|reader| self.operands(*reader).contains(&k));
        let stored = self.stores.iter().any(|w| w.value == k || access_values(&w.access).contains(&k));
        !stored && readers.all(|reader| sums(&reader))
    }
}

/// Statements whose values an access is computed from.
pub fn access_values(access: &Access) -> Vec<usize> {
    let values = |c: &Computed| -> Vec<usize> { c.expr.statements().into_iter().collect() };
    access.computed.iter().flat_map(values).collect()
}

/// Variables that an expression depends on, given those that each statement depends on.
pub fn dim_vars(d: &Dim, deps: &[VarSet]) -> VarSet {
    d.symbols().iter().fold(0, |set, symbol| match symbol {
        Symbol::Variable(v) => set | 1 << v,
        Symbol::Statement(k) => set | deps[*k],
        _ => set,
    })
}
