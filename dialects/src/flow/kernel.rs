//! for %0.. in outer { for %k.. in inner { v = f(load …); s = reduce v; store … } }: one kernel as plain data
//!
//! A kernel's iteration space is `outer` × `inner` × `deep`. Each statement of the body yields one scalar. A statement
//! is at *deep* level if it depends on a deep index, at *point* level if it depends on an inner but no deep index, else
//! at *row* level (once per outer point). `Reduce` turns a deep value into a point value by combining over the deep
//! space, and a point value into a row value by combining over the inner space; later statements may use values of
//! a shallower level at each of their points. Contractions, softmax, layer normalisation and elementwise chains need no
//! deep space; attention does: each score is a reduction over the deep space, computed once per inner point.
//!
//! Index expressions are `Dim`s over the model's symbols and symbols of the kernel: `%i` is iteration variable `i`
//! (outer ones first, then inner ones, then deep ones), `$k` is the value of statement `k` (an i64: an index read from
//! data).

use crate::scalar::{Conversion, ReduceFn, ScalarFn};
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Encoding};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::mem::{Discriminant, discriminant};

/// The element of a container that is read or written, by one index per dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Memlet {
    /// Index into the kernel's operands (reads) or results (writes).
    pub container: usize,
    /// One expression per dimension of the container.
    pub index: Vec<Dim>,
}

/// The computation of a statement's value. Two constants are equal if their bits are.
#[derive(Clone, Debug)]
pub enum Body {
    /// Reads an operand. An index that contains a `$k` is checked against the container's dimension at run time; other
    /// indices are in range by construction wherever `guard` (if present, a bool statement) is true. Where the guard is
    /// false, nothing is read and the value is 0.
    Load {
        /// Element that is read; `container` is an index into [`Kernel::reads`].
        memlet: Memlet,
        /// Number of the bool statement that permits the read; `None` if every point reads.
        guard: Option<usize>,
    },
    /// A constant of the statement's type. Integers beyond 2^53 in magnitude are not exact here and use `Index`.
    Const(f64),
    /// The value of an integer expression over symbols and iteration variables (type i64).
    Index(Dim),
    /// A scalar function of earlier statements.
    Apply {
        /// Function that is applied to one value per point.
        f: ScalarFn,
        /// Numbers of the statements that are the operands, in order.
        args: Vec<usize>,
    },
    /// Converts to the statement's type, as `sdx.convert` does.
    Convert(usize, Conversion),
    /// Combines a deep value over the deep space, any other value over the inner space; f32 accumulates in f32, in any
    /// order (see the floating-point contract).
    Reduce {
        /// Function that combines the values.
        f: ReduceFn,
        /// Number of the statement that is reduced; its element type is also that of the result.
        arg: usize,
    },
}

/// One scalar statement of a kernel, identified by its index in [`Kernel::body`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Statement {
    /// Computation of the value.
    pub body: Body,
    /// Element type of the value.
    pub dtype: DType,
}

/// Writes a statement's value to a result. A row value is written once per outer point.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// Element that is written; `container` is an index into [`Kernel::writes`].
    pub memlet: Memlet,
    /// Number of the statement whose value is written: a row or point value of the container's element type.
    pub value: usize,
}

/// Type, dimensions and storage of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Container {
    /// Element type.
    pub dtype: DType,
    /// Extent of each dimension, in logical order: layout and encoding do not change it.
    pub dims: Vec<Dim>,
    /// Order and capacity of the dimensions in memory.
    pub layout: Layout,
    /// Packing of the elements; `Plain` if they are not packed.
    pub encoding: Encoding,
}

/// Order of a container's dimensions in memory, and their capacity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The last dimension is contiguous, without spare capacity.
    RowMajor,
    /// Row-major, with spare capacity along one axis: `size`, a symbol of kind `Capacity`, replaces the dimension in
    /// the computation of strides and bytes.
    Capacity {
        /// Dimension that has spare capacity.
        axis: usize,
        /// Number of elements for which memory is reserved along `axis`.
        size: Dim,
    },
    /// Row-major in a permuted order of the dimensions, outermost first: `[0, 2, 3, 1]` is channels-last.
    Order(Vec<usize>),
}

/// Operator class of a kernel, derived from its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// No reduction.
    Map,
    /// Reductions that are no contraction, with elementwise operations before and after them.
    Normalise,
    /// Sums of products of two loads, with one load common to all products; all later statements are an epilogue at row
    /// level. The operands may be widened first: loads of bytes and f16, and loads of bf16 if one of the operands is
    /// packed in panels that interleave pairs of rows.
    Contract,
    /// Reductions over the inner space of values that are themselves sums over the deep space.
    Attention,
    /// Sums over the deep space of products with codes (at most 8 bits, widened), which are scaled and summed over the
    /// inner space: a contraction in groups with a scale per group.
    Groups,
}

/// How fusion passes treat the kernels of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// Independent points, which any consumer can recompute.
    Points,
    /// Rows: consecutive points that share an outer point.
    Rows,
    /// Sums of products, whose results may get an epilogue.
    Products,
    /// Complete kernels that are formed last: no other kernel is fused with them.
    Whole,
}

impl Class {
    /// All classes, in declaration order.
    pub const ALL: [Class; 5] = [Class::Map, Class::Normalise, Class::Contract, Class::Attention, Class::Groups];

    /// The name in artifacts and reports, the treatment by fusion passes, and whether the operations are those of a
    /// matrix multiplication.
    fn row(self) -> (&'static str, Merging, bool) {
        match self {
            Class::Map => ("map", Merging::Points, false),
            Class::Normalise => ("normalise", Merging::Rows, false),
            Class::Contract => ("contract", Merging::Products, true),
            Class::Attention => ("attention", Merging::Whole, true),
            Class::Groups => ("groups", Merging::Whole, true),
        }
    }

    /// Returns the name of the class in artifacts and reports.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns how fusion passes treat kernels of this class.
    pub fn merging(self) -> Merging {
        self.row().1
    }

    /// Whether most operations of such a kernel are those of a matrix multiplication.
    pub fn multiplies(self) -> bool {
        self.row().2
    }
}

/// An iteration space, the statements that are evaluated over it, and the stores of their values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Extents of the parallel iteration variables `%0 …`.
    pub outer: Vec<Dim>,
    /// Extents of the reduced iteration variables, numbered after the outer ones.
    pub inner: Vec<Dim>,
    /// Extents of the variables that are reduced at each inner point, numbered after the inner ones; usually none.
    pub deep: Vec<Dim>,
    /// Containers that are read: the operands.
    pub reads: Vec<Container>,
    /// Containers that are written: the results, each of which has at least one store.
    pub writes: Vec<Container>,
    /// Statements in order of evaluation: each uses only the values of earlier ones.
    pub body: Vec<Statement>,
    /// Stores of statements' values to elements of the results.
    pub stores: Vec<Store>,
}

impl Body {
    /// All parts of the statement in a form that can be compared and hashed.
    fn parts(&self) -> (Discriminant<Body>, u64, [Option<usize>; 2], impl PartialEq + Hash + '_) {
        let kind = discriminant(self);
        match self {
            Body::Load { memlet, guard } => (kind, 0, [*guard, None], (Some(memlet), None, None, None)),
            Body::Const(value) => (kind, value.to_bits(), [None; 2], (None, None, None, None)),
            Body::Index(index) => (kind, 0, [None; 2], (None, Some(index), None, None)),
            Body::Apply { f, args } => (kind, 0, [None; 2], (None, None, Some((f, args)), None)),
            Body::Convert(arg, conversion) => (kind, 0, [Some(*arg), None], (None, None, None, Some(conversion))),
            Body::Reduce { f, arg } => (kind, *f as u64, [Some(*arg), None], (None, None, None, None)),
        }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Body {}

impl Hash for Body {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.parts().hash(to);
    }
}

impl Layout {
    /// Dimensions of a container that is not packed, in memory order, outermost first.
    pub fn order(&self, rank: usize) -> Vec<usize> {
        match self {
            Layout::Order(order) => order.clone(),
            Layout::RowMajor | Layout::Capacity { .. } => (0..rank).collect(),
        }
    }
}

impl Container {
    /// A container in row-major order with plain encoding.
    pub fn plain(dtype: DType, dims: Vec<Dim>) -> Container {
        Container { dtype, dims, layout: Layout::RowMajor, encoding: Encoding::Plain }
    }

    /// Whether layout and encoding are those of [`Container::plain`].
    pub fn is_plain(&self) -> bool {
        self.layout == Layout::RowMajor && self.encoding == Encoding::Plain
    }

    /// Names of layout and encoding without those that are the default of [`Container::plain`]: `panels32`, or
    /// `order<1, 0>`. If both are the default, the result is `row_major`.
    pub fn storage(&self) -> String {
        match (&self.layout, self.encoding) {
            (layout, Encoding::Plain) => layout.name(),
            (Layout::RowMajor, encoding) => encoding.name(),
            (layout, encoding) => format!("{} {}", layout.name(), encoding.name()),
        }
    }

    /// This container with the layout and encoding named by `text`, which has the format of [`Container::storage`].
    pub fn stored_as(self, text: &str) -> Option<Container> {
        let with = |layout: &str, encoding: &str| {
            let (layout, encoding) = (Layout::from_name(layout)?, Encoding::from_name(encoding)?);
            Some(Container { layout, encoding, ..self.clone() })
        };
        let both = || text.rsplit_once(' ').and_then(|(layout, encoding)| with(layout, encoding));
        let found = with(text, "plain").or_else(|| with("row_major", text)).or_else(both)?;
        // Only the canonical text is accepted.
        (found.storage() == text).then_some(found)
    }

    /// Number of elements stored along each dimension of a container that is not packed, including spare capacity.
    pub fn memory_dims(&self) -> Vec<Dim> {
        let mut dims = self.dims.clone();
        match &self.layout {
            Layout::RowMajor | Layout::Order(_) => {}
            Layout::Capacity { axis, size } => dims[*axis] = size.clone(),
        }
        dims
    }

    /// Stride in elements along each dimension of a container that is not packed.
    pub fn strides(&self) -> Vec<Dim> {
        let dims = self.memory_dims();
        let mut strides = vec![Dim::constant(1); dims.len()];
        let mut stride = Dim::constant(1);
        for axis in self.layout.order(dims.len()).into_iter().rev() {
            strides[axis] = stride.clone();
            stride = stride * dims[axis].clone();
        }
        strides
    }
}

impl Kernel {
    /// The symbol of iteration variable `i`.
    pub fn var(i: usize) -> Dim {
        Dim::variable(i)
    }

    /// The symbol of statement `k`'s value.
    pub fn value(k: usize) -> Dim {
        Dim::statement(k)
    }

    /// Returns the number of iteration variables: outer, inner and deep ones together.
    pub fn n_vars(&self) -> usize {
        self.extents().count()
    }

    /// The extents of all iteration variables, in order of their numbers.
    pub fn extents(&self) -> impl Iterator<Item = &Dim> {
        self.outer.iter().chain(&self.inner).chain(&self.deep)
    }

    /// Replaces iteration variables in every index expression where `var` returns one; extents stay as they are.
    pub fn rename_vars(&mut self, var: &dyn Fn(usize) -> Option<Dim>) {
        let renamed = |d: &Dim| rename(d, var, &|k| k);
        for statement in &mut self.body {
            statement.body = statement.body.renumbered(&|k| k, &renamed);
        }
        for index in self.stores.iter_mut().flat_map(|s| &mut s.memlet.index) {
            *index = renamed(index);
        }
    }

    /// The level of an expression that depends on iteration variable `i`.
    pub fn level_of_var(&self, i: usize) -> Level {
        match i.checked_sub(self.outer.len()) {
            None => Level::Row,
            Some(i) if i < self.inner.len() => Level::Point,
            Some(_) => Level::Deep,
        }
    }

    /// Returns the operator class, derived from the body.
    pub fn class(&self) -> Class {
        if !self.deep.is_empty() {
            return if self.sums_groups() { Class::Groups } else { Class::Attention };
        }
        if !self.body.iter().any(|s| matches!(s.body, Body::Reduce { .. })) {
            return Class::Map;
        }
        match self.sums() {
            Some(sums) if self.contraction_is_whole(&sums) => Class::Contract,
            Some(_) | None => Class::Normalise,
        }
    }

    /// Returns whether every reduction is a sum, there is one inner and one deep variable, and the sums over the deep
    /// variable are of products with codes (at most 8 bits, widened).
    fn sums_groups(&self) -> bool {
        let levels = self.levels();
        let is_code = |k: usize| {
            let is_narrow = |dtype: DType| (dtype.is_int() || dtype.is_float()) && dtype.bits() <= 8;
            matches!(self.body[k].body, Body::Convert(from, Conversion::Value) if is_narrow(self.body[from].dtype) && self.plain_load(from).is_some())
        };
        let is_number = |k: usize| self.plain_load(k).is_some() || is_code(k);
        let is_part = |k: usize| match &self.body[k].body {
            Body::Apply { f: ScalarFn::Mul, args } => {
                let (a, b) = (args[0], args[1]);
                is_code(a) && is_number(b) || is_code(b) && is_number(a)
            }
            _ => false,
        };
        let Some(sums) = self.sums() else { return false };
        let (deep, others): (Vec<usize>, Vec<usize>) = sums.into_iter().partition(|k| levels[*k] == Level::Deep);
        self.inner.len() == 1 && self.deep.len() == 1 && deep.iter().all(|k| is_part(*k)) && others.len() == deep.len()
    }

    /// Numbers of the statements that are reduced; `None` if some reduction is not a sum.
    fn sums(&self) -> Option<Vec<usize>> {
        let reduced = |s: &Statement| match s.body {
            Body::Reduce { f, arg } => Some((f == ReduceFn::Add).then_some(arg)),
            Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Apply { .. } | Body::Convert(_, _) => None,
        };
        self.body.iter().filter_map(reduced).collect()
    }

    /// The statement that statement `k` widens: bf16 to f32, a byte to i32, or an f16 load to f32. If `k` widens
    /// nothing, the result is `k` itself.
    pub fn narrow(&self, k: usize) -> usize {
        let Body::Convert(from, Conversion::Value) = self.body[k].body else { return k };
        match (self.body[from].dtype, self.body[k].dtype) {
            (DType::BF16, DType::F32) | (DType::U8 | DType::I8, DType::I32) => from,
            (DType::F16, DType::F32) if self.plain_load(from).is_some() => from,
            _ => k,
        }
    }

    /// Whether a load reads from panels that interleave several rows.
    fn is_grouped(&self, m: &Memlet) -> bool {
        self.reads[m.container].encoding.depth() > 1
    }

    /// Whether statement `k` multiplies two loads, unguarded or padded, one of which is reused over an outer variable.
    /// Without reuse (a sum of squares, a dot product per row), a sum of products is an ordinary reduction.
    fn is_product(&self, k: usize) -> bool {
        let Body::Apply { f: ScalarFn::Mul, args } = &self.body[k].body else { return false };
        let loads: Vec<&Memlet> = args.iter().filter_map(|a| self.factor_load(self.narrow(*a))).collect();
        // Operands are widened from bf16 only for a requested precision, for which the constants have been packed.
        let pairs = args.iter().any(|a| self.body[self.narrow(*a)].dtype == DType::BF16 && self.narrow(*a) != *a);
        if pairs && !loads.iter().any(|m| self.is_grouped(m)) {
            return false;
        }
        let moves = |m: &Memlet, v: usize| m.index.iter().any(|d| d.variables().contains(&v));
        let wide = (0..self.outer.len()).filter(|&v| !self.outer[v].is_const(1));
        loads.len() == 2 && wide.into_iter().any(|v| loads.iter().any(|m| !moves(m, v)))
    }

    /// The memlet of a load without a guard; none for other statements.
    pub fn plain_load(&self, k: usize) -> Option<&Memlet> {
        match &self.body[k].body {
            Body::Load { memlet, guard: None } => Some(memlet),
            _ => None,
        }
    }

    /// The load that is an operand of a product, or the load from which a padded operand is computed.
    fn factor_load(&self, k: usize) -> Option<&Memlet> {
        self.plain_load(k).or_else(|| self.padded_load(k))
    }

    fn is_const(&self, k: usize) -> bool {
        matches!(self.body[k].body, Body::Const(_))
    }

    /// For a select of a padded value, which is a constant where the guard is false: the numbers of the guard and of
    /// the value where the guard is true.
    pub fn guarded_value(&self, k: usize) -> Option<(usize, usize)> {
        let Body::Apply { f: ScalarFn::Select, args } = &self.body[k].body else { return None };
        self.is_const(args[2]).then_some((args[0], args[1]))
    }

    /// The guarded load from which a padded value is computed by functions of that load and constants.
    pub fn padded_load(&self, k: usize) -> Option<&Memlet> {
        let (guard, mut value) = self.guarded_value(k)?;
        loop {
            value = match &self.body[value].body {
                Body::Load { memlet, guard: Some(own) } if *own == guard => return Some(memlet),
                Body::Convert(from, Conversion::Value) => *from,
                Body::Apply { args, .. } => {
                    let mut open = args.iter().copied().filter(|a| !self.is_const(*a));
                    open.next().filter(|_| open.next().is_none())?
                }
                Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Convert(..) | Body::Reduce { .. } => {
                    return None;
                }
            }
        }
    }

    /// Number of point-level statements that padding adds: those from which the padded operands are computed, minus one
    /// for each operand, because an unpadded operand needs a load too.
    fn padding_statements(&self, sums: &[usize], levels: &[Level]) -> usize {
        let padded = |k: &usize| self.plain_load(*k).is_none() && self.padded_load(*k).is_some();
        let roots: BTreeSet<usize> = self.factors(sums).map(|f| self.narrow(f)).filter(padded).collect();
        let (mut open, mut seen) = (roots.iter().copied().collect::<Vec<_>>(), BTreeSet::new());
        while let Some(k) = open.pop() {
            if levels[k] == Level::Point && seen.insert(k) {
                open.extend(self.body[k].body.operands());
            }
        }
        seen.len() - roots.len().min(seen.len())
    }

    /// Whether all sums are of products that have one operand in common, nothing else is at point level, and no point
    /// value is stored.
    fn contraction_is_whole(&self, sums: &[usize]) -> bool {
        let levels = self.levels();
        let factors = |k: &usize| match &self.body[*k].body {
            Body::Apply { args, .. } => args.as_slice(),
            Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Convert(_, _) | Body::Reduce { .. } => &[],
        };
        sums.iter().all(|k| self.is_product(*k))
            && factors(&sums[0]).iter().any(|f| sums.iter().all(|k| factors(k).contains(f)))
            && levels.iter().filter(|l| **l == Level::Point).count()
                <= 1 + 2 * sums.len() + self.widened(sums) + self.padding_statements(sums, &levels)
            && self.stores.iter().all(|s| levels[s.value] == Level::Row)
    }

    /// Number of operands of the products `sums` that are widened.
    fn widened(&self, sums: &[usize]) -> usize {
        let widened: BTreeSet<usize> = self.factors(sums).filter(|f| self.narrow(*f) != *f).collect();
        widened.len()
    }

    /// Numbers of the statements that are operands of the products `sums`.
    fn factors(&self, sums: &[usize]) -> impl Iterator<Item = usize> {
        sums.iter().flat_map(|k| match &self.body[*k].body {
            Body::Apply { args, .. } => args.clone(),
            Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Convert(_, _) | Body::Reduce { .. } => vec![],
        })
    }

    /// The level of each statement.
    pub fn levels(&self) -> Vec<Level> {
        let mut levels: Vec<Level> = vec![];
        for statement in &self.body {
            let of_index = |index: &[Dim]| index.iter().map(|d| self.level_of(d, &levels)).max().unwrap_or(Level::Row);
            let level = match &statement.body {
                Body::Load { memlet, guard } => of_index(&memlet.index).max(guard.map_or(Level::Row, |g| levels[g])),
                Body::Const(_) => Level::Row,
                Body::Reduce { arg, .. } if levels[*arg] == Level::Deep => Level::Point,
                Body::Reduce { .. } => Level::Row,
                Body::Index(d) => self.level_of(d, &levels),
                Body::Apply { args, .. } => args.iter().map(|a| levels[*a]).max().unwrap_or(Level::Row),
                Body::Convert(a, _) => levels[*a],
            };
            levels.push(level);
        }
        levels
    }

    /// The level of an index expression, given the levels of the statements that it may refer to.
    pub fn level_of(&self, d: &Dim, levels: &[Level]) -> Level {
        let level = |s: &Symbol| match s {
            Symbol::Variable(i) => self.level_of_var(*i),
            Symbol::Statement(k) => levels.get(*k).copied().unwrap_or(Level::Row),
            _ => Level::Row,
        };
        d.symbols().iter().map(level).max().unwrap_or(Level::Row)
    }
}

/// Part of the iteration space over which a statement is evaluated; deeper levels compare as greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Once per outer point.
    Row,
    /// Once per outer and inner point.
    Point,
    /// Once per outer, inner and deep point.
    Deep,
}

impl Body {
    /// The same statement with every statement number mapped by `at` and every index expression by `index`.
    pub fn renumbered(&self, at: &dyn Fn(usize) -> usize, index: &dyn Fn(&Dim) -> Dim) -> Body {
        match self {
            Body::Load { memlet, guard } => {
                let memlet = Memlet { container: memlet.container, index: memlet.index.iter().map(index).collect() };
                Body::Load { memlet, guard: guard.map(at) }
            }
            Body::Const(v) => Body::Const(*v),
            Body::Index(d) => Body::Index(index(d)),
            Body::Apply { f, args } => Body::Apply { f: *f, args: args.iter().map(|&a| at(a)).collect() },
            Body::Convert(a, how) => Body::Convert(at(*a), *how),
            Body::Reduce { f, arg } => Body::Reduce { f: *f, arg: at(*arg) },
        }
    }

    /// Numbers of the statements whose values this statement uses.
    pub fn operands(&self) -> Vec<usize> {
        match self {
            Body::Load { memlet, guard } => statements_in(&memlet.index).into_iter().chain(*guard).collect(),
            Body::Const(_) => vec![],
            Body::Index(d) => statements_in(std::slice::from_ref(d)),
            Body::Apply { args, .. } => args.clone(),
            Body::Convert(a, _) => vec![*a],
            Body::Reduce { arg, .. } => vec![*arg],
        }
    }

    /// The same statement with `base` added to all statement numbers.
    pub fn shifted(&self, base: usize) -> Body {
        self.renumbered(&|k| k + base, &|d| rename(d, &|_| None, &|k| k + base))
    }
}

/// Numbers of the statements that index expressions refer to.
pub fn statements_in(index: &[Dim]) -> Vec<usize> {
    index.iter().flat_map(|d| d.statements()).collect()
}

/// Replaces iteration variables for which `var` returns an expression, and maps statement numbers by `value`.
pub fn rename(d: &Dim, var: &dyn Fn(usize) -> Option<Dim>, value: &dyn Fn(usize) -> usize) -> Dim {
    d.substitute(&|symbol| match symbol {
        Symbol::Variable(i) => var(*i),
        Symbol::Statement(k) => Some(Kernel::value(value(*k))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::plan::is_product;

    #[test]
    fn artifacts_name_the_classes_that_multiply() {
        assert!(Class::ALL.iter().all(|class| class.multiplies() == is_product(class.name())));
    }
}
