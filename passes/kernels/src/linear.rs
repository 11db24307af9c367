//! load a[%0, %1 + s], extents [b, s·64]  =>  load a + p0 + p1·%0 + %1, extents [p2, p3]: `Kernel` to `KernelDef`
//!
//! Every access becomes linear in the iteration variables, variables that step like a single one are merged, and each
//! non-constant size becomes a parameter.

use super::classes;
use super::cpu::CpuPlan;
use super::def::*;
use sardonyx_base::dim::{Atom, Symbol};
use sardonyx_base::{DType, Dim, Encoding, Error, Result};
use sardonyx_dialects::flow::kernel::{Body, Class, Container, Kernel, Memlet};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Kernel that is ready to be emitted, and the arguments of one launch of it.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// Kernel whose sizes are constants or parameters `p0`, `p1`, …
    pub def: KernelDef,
    /// Values of `p0`, `p1`, … over the model's symbols.
    pub params: Vec<Dim>,
    /// Number of work items of the launch, over the model's symbols.
    pub grid: Dim,
    /// Bytes of scratch per thread, over `p0`, `p1`, …
    pub scratch_bytes: Dim,
    /// Whether each buffer is written, reads first.
    pub writes: Vec<bool>,
    /// Class of the kernel, the same as in `def`.
    pub class: Class,
    /// Plan for CPUs.
    pub plan: Arc<dyn CpuPlan>,
}

impl Lowered {
    /// Number of floating-point operations of the launch, over the model's symbols.
    pub fn flops(&self) -> Dim {
        self.def.flops().by_params(&self.params)
    }
}

/// Lowers a kernel. Errors: E0107 for an element type that kernels do not support, E0202 for a size that overflows or
/// for more than 60 dimensions, E0901 for an index into panels that is not linear.
pub fn lower(kernel: &Kernel) -> Result<Lowered> {
    check_types(kernel)?;
    // A reduction over no dimensions visits one point.
    let mut walked = kernel.clone();
    if walked.inner.is_empty() && walked.class() != Class::Map {
        walked.inner.push(Dim::constant(1));
    }
    let kernel = &walked;
    let mut draft = Draft::new(kernel)?;
    draft.drop_unit_extents();
    draft.merge();
    let (def, params) = draft.finish()?;
    let plan = classes::plan_for_cpu(&def);
    let grid = plan.grid(&def).by_params(&params);
    let scratch_bytes = plan.scratch_bytes(&def);
    let writes = [vec![false; kernel.reads.len()], vec![true; kernel.writes.len()]].concat();
    Ok(Lowered { class: def.class, def, params, grid, scratch_bytes, writes, plan })
}

fn check_types(kernel: &Kernel) -> Result<()> {
    let containers = kernel.reads.iter().chain(&kernel.writes).map(|c| c.dtype);
    for t in containers.chain(kernel.body.iter().map(|s| s.dtype)) {
        if !supported(t) {
            return Err(Error::user("E0107", format!("no kernel computes with elements of type {t}"))
                .help("convert the tensor to f32 first"));
        }
    }
    if kernel.n_vars() > 60 {
        return Err(Error::user("E0202", format!("a kernel over {} dimensions is not supported", kernel.n_vars())));
    }
    Ok(())
}

fn supported(t: DType) -> bool {
    use DType::*;
    match t {
        F32 | U8 | I8 | U16 | I16 | I32 | I64 | Bool | F16 | F64 | U32 | U64 | BF16 => true,
        F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 | F4E2M1 | U4 | I4 | U2 | I2 => true,
        String | Value | C64 | C128 => false,
    }
}

/// [`Linear`] before sizes become parameters.
struct Line {
    offset: Dim,
    strides: Vec<Dim>,
}

struct Part {
    expr: Dim,
    stride: Dim,
    limit: Option<Dim>,
    /// Whether `expr` indexes a container of one dimension: its limit becomes a parameter even if constant, so that
    /// lists of any length share a kernel.
    of_list: bool,
    coord: usize,
}

struct Place {
    coords: Vec<Line>,
    computed: Vec<Part>,
}

struct Draft<'a> {
    kernel: &'a Kernel,
    /// Extents by variable; merged and dropped variables are `None`.
    extents: Vec<Option<Dim>>,
    /// Element that each load accesses, in order, then the element of each store.
    places: Vec<Place>,
}

impl<'a> Draft<'a> {
    fn new(kernel: &'a Kernel) -> Result<Draft<'a>> {
        let extents: Vec<Dim> = kernel.extents().cloned().collect();
        let mut places = vec![];
        for statement in &kernel.body {
            if let Body::Load { memlet, .. } = &statement.body {
                places.push(place(memlet, &kernel.reads[memlet.container], &extents)?);
            }
        }
        for store in &kernel.stores {
            places.push(place(&store.memlet, &kernel.writes[store.memlet.container], &extents)?);
        }
        Ok(Draft { kernel, extents: extents.into_iter().map(Some).collect(), places })
    }

    /// Variables of each space: outer, inner, deep.
    fn spaces(&self) -> [Range<usize>; 3] {
        let (outer, inner) = (self.kernel.outer.len(), self.kernel.outer.len() + self.kernel.inner.len());
        [0..outer, outer..inner, inner..self.extents.len()]
    }

    /// Drops variables of extent 1, which are always 0. One inner variable and one deep variable, if there are any, are
    /// kept, so that a reduction keeps its loop.
    fn drop_unit_extents(&mut self) {
        for (space, vars) in self.spaces().into_iter().enumerate() {
            for v in vars.clone() {
                let last = space > 0
                    && self.kernel.class() != Class::Map
                    && self.extents[vars.clone()].iter().flatten().count() == 1;
                if self.extents[v].as_ref().is_some_and(|e| e.is_const(1)) && !last {
                    self.extents[v] = None;
                }
            }
        }
    }

    /// (%i, %j) with stride(%i) = extent(%j) · stride(%j) in every access  =>  one variable
    fn merge(&mut self) {
        // Any two variables of the same space of a contraction may be merged; those of other kernels only if they are
        // adjacent, because lanes run along the innermost one.
        let any_order = self.kernel.class() == Class::Contract;
        for Range { start: first, end: last } in self.spaces() {
            let mut i = first;
            while i < last {
                let live = |d: &Draft, v: &usize| d.extents[*v].is_some();
                let next: Vec<usize> = match (any_order, self.extents[i].is_some()) {
                    (_, false) => vec![],
                    (true, true) => (first..last).filter(|j| *j != i && live(self, j)).collect(),
                    (false, true) => (i + 1..last).find(|j| live(self, j)).into_iter().collect(),
                };
                match next.into_iter().find(|&j| self.steps_like_one(i, j)) {
                    Some(j) => self.merge_pair(i, j),
                    None => i += 1,
                }
            }
        }
    }

    fn steps_like_one(&self, i: usize, j: usize) -> bool {
        let Some(extent) = &self.extents[j] else { return false };
        let uses = |d: &Dim| d.variables().iter().any(|v| [i, j].contains(v));
        let computed = self.places.iter().flat_map(|p| &p.computed).any(|c| uses(&c.expr));
        let indices = self.kernel.body.iter().any(|s| matches!(&s.body, Body::Index(d) if uses(d)));
        let lines = self.places.iter().flat_map(|p| &p.coords);
        let even = lines.into_iter().all(|l| l.strides[i] == extent.clone() * l.strides[j].clone());
        !computed && !indices && even
    }

    /// Merges %j into %i, whose position the merged variable keeps.
    fn merge_pair(&mut self, i: usize, j: usize) {
        let one = |e: &Option<Dim>| e.clone().unwrap_or(Dim::constant(1));
        let extent = one(&self.extents[i]) * one(&self.extents[j]);
        for line in self.places.iter_mut().flat_map(|p| &mut p.coords) {
            line.strides[i] = line.strides[j].clone();
        }
        self.extents[i] = Some(extent);
        self.extents[j] = None;
    }

    fn finish(self) -> Result<(KernelDef, Vec<Dim>)> {
        let kernel = self.kernel;
        let mut formal = Formal { params: vec![], overflow: false };
        let live: Vec<usize> = (0..self.extents.len()).filter(|v| self.extents[*v].is_some()).collect();
        // Without a reduction, inner variables are parallel too.
        let before = |end: usize| live.iter().filter(|v| **v < end).count();
        let [outer, inner, _] = self.spaces();
        let reduces = kernel.class() != Class::Map;
        let (n_outer, n_inner) =
            if reduces { (before(outer.end), before(inner.end)) } else { (live.len(), live.len()) };
        let extents: Vec<Size> = live.iter().map(|v| formal.size(self.extents[*v].as_ref().expect("live"))).collect();
        let mut places = self.places.into_iter();
        let mut body = vec![];
        for statement in &kernel.body {
            let op = match &statement.body {
                Body::Load { memlet, guard } => {
                    let place = places.next().expect("one per load");
                    Op::Load { access: formal.access(memlet.container, place, &live), guard: *guard }
                }
                Body::Const(c) => Op::Const(c.to_bits()),
                Body::Index(d) => Op::Index(formal.expr(d, &live)),
                Body::Apply { f, args } => Op::Apply { f: *f, args: args.clone() },
                Body::Convert(a, how) => Op::Convert(*a, *how),
                Body::Reduce { f, arg } => Op::Reduce { f: *f, arg: *arg },
            };
            body.push(Step { op, dtype: statement.dtype });
        }
        let mut stores = vec![];
        for store in &kernel.stores {
            let place = places.next().expect("one per store");
            stores.push(Write { access: formal.access(store.memlet.container, place, &live), value: store.value });
        }
        if formal.overflow {
            return Err(Error::user("E0202", "a size or an index of a kernel overflows 64 bits"));
        }
        let def = KernelDef {
            class: kernel.class(),
            outer: extents[..n_outer].to_vec(),
            inner: extents[n_outer..n_inner].to_vec(),
            deep: extents[n_inner..].to_vec(),
            reads: kernel.reads.iter().map(storage).collect(),
            writes: kernel.writes.iter().map(storage).collect(),
            body,
            stores,
            n_params: formal.params.len(),
        };
        Ok((def, formal.params))
    }
}

fn storage(container: &Container) -> Storage {
    let panels = match container.encoding {
        Encoding::Plain => None,
        Encoding::Panels { width, depth } => {
            let rows = container.dims.first().and_then(Dim::as_const).unwrap_or(0);
            let halves = container.encoding.per_byte(container.dtype) == 2;
            Some(Panels { width: width as i64, depth: depth as i64, rows, halves })
        }
    };
    Storage { dtype: container.dtype, panels }
}

/// The element index that a memlet accesses in its container, or its row and column in panels.
fn place(memlet: &Memlet, container: &Container, extents: &[Dim]) -> Result<Place> {
    let index: Vec<Dim> = memlet.index.iter().map(|d| simplify(d, extents)).collect();
    if container.encoding != Encoding::Plain {
        let mut computed = vec![];
        let coordinate = |(coord, index): (usize, Dim)| {
            if !has_loaded(&index) {
                return line(&index, extents.len());
            }
            let limit = container.dims.get(coord).cloned();
            computed.push(Part { expr: index, stride: Dim::constant(1), limit, of_list: false, coord });
            line(&Dim::constant(0), extents.len())
        };
        let coords: Option<Vec<Line>> = index.into_iter().enumerate().map(coordinate).collect();
        return match coords {
            Some(coords) if coords.len() == 2 => Ok(Place { coords, computed }),
            Some(_) | None => Err(Error::defect("a packed operand is read at an index that is not linear")),
        };
    }
    let mut flat = Dim::constant(0);
    let mut computed = vec![];
    for ((index, stride), dim) in index.into_iter().zip(container.strides()).zip(&container.dims) {
        if has_loaded(&index) {
            let of_list = container.dims.len() == 1;
            computed.push(Part { expr: index, stride, limit: Some(dim.clone()), of_list, coord: 0 });
        } else {
            let (linear, rest) = split(&index, extents.len());
            flat = flat + linear * stride.clone();
            if !rest.is_const(0) {
                computed.push(Part { expr: rest, stride, limit: None, of_list: false, coord: 0 });
            }
        }
    }
    let flat = line(&flat, extents.len()).ok_or_else(|| Error::user("E0202", "an index of a kernel overflows"))?;
    Ok(Place { coords: vec![flat], computed })
}

/// Splits an index into a part that is linear in its variables and the remainder, which is 0 if the whole index is
/// linear.
fn split(index: &Dim, n_vars: usize) -> (Dim, Dim) {
    let (mut linear, mut rest) = (Dim::constant(0), index.clone());
    for v in 0..n_vars {
        let found = rest.linear_in(&Symbol::Variable(v));
        if let Some((coefficient, left)) = found.filter(|(coefficient, _)| !coefficient.has_own()) {
            linear = linear + coefficient * Kernel::var(v);
            rest = left;
        }
    }
    if rest.has_own() { (linear, rest) } else { (linear + rest, Dim::constant(0)) }
}

/// Whether an index contains a value that is read from data.
fn has_loaded(index: &Dim) -> bool {
    !index.statements().is_empty()
}

/// Offset and strides of an expression, if it is linear in every variable.
fn line(d: &Dim, n_vars: usize) -> Option<Line> {
    let mut rest = d.clone();
    let mut strides = vec![];
    for v in 0..n_vars {
        let (coefficient, left) = rest.linear_in(&Symbol::Variable(v))?;
        strides.push(coefficient);
        rest = left;
    }
    let linear = !strides.iter().any(Dim::has_own) && !rest.has_own();
    linear.then_some(Line { offset: rest, strides })
}

/// %1 floordiv 64  =>  0 if %1 is below 64. Such terms remain when a reshape splits a dimension that another reshape
/// has merged.
fn simplify(d: &Dim, extents: &[Dim]) -> Dim {
    let mut sum = Dim::constant(0);
    if d.is_overflow() {
        return Dim::overflow();
    }
    for (monomial, c) in d.terms() {
        let product = monomial.iter().fold(Dim::constant(c), |p, atom| {
            p * match atom {
                Atom::Symbol(symbol) => symbol.clone().into(),
                Atom::FloorDiv(a, b) => {
                    let (a, b) = (simplify(a, extents), simplify(b, extents));
                    if below(&a, &b, extents) { Dim::constant(0) } else { a.floordiv(&b) }
                }
                Atom::Max(a, b) => simplify(a, extents).maximum(&simplify(b, extents)),
                Atom::Min(a, b) => simplify(a, extents).minimum(&simplify(b, extents)),
            }
        });
        sum = sum + product;
    }
    sum
}

/// Whether 0 ≤ a < b follows from the extents of the variables.
fn below(a: &Dim, b: &Dim, extents: &[Dim]) -> bool {
    let grows =
        a.terms().all(|(m, c)| c >= 0 && m.iter().all(|x| matches!(x, Atom::Symbol(s) if s.statement().is_none())));
    let top = a.substitute(&|s| Some(extents.get(s.variable()?)?.clone() - Dim::constant(1)));
    grows && b.provably_ge(&(top + Dim::constant(1)), &|_| 0)
}

/// Assigns a parameter to each distinct non-constant size, in order of first appearance.
struct Formal {
    params: Vec<Dim>,
    overflow: bool,
}

impl Formal {
    fn size(&mut self, d: &Dim) -> Size {
        self.overflow |= d.is_overflow();
        match d.as_const() {
            Some(c) => Size::Const(c),
            None => self.parameter(d),
        }
    }

    fn parameter(&mut self, d: &Dim) -> Size {
        Size::Param(self.params.iter().position(|p| p == d).unwrap_or_else(|| {
            self.params.push(d.clone());
            self.params.len() - 1
        }))
    }

    /// Renumbers the variables without gaps (dropped ones become 0) and replaces model symbols by parameters.
    fn expr(&mut self, d: &Dim, live: &[usize]) -> Dim {
        let mut by = BTreeMap::new();
        for s in d.symbols() {
            let value = match s {
                Symbol::Variable(v) => live.iter().position(|l| *l == v).map_or(Dim::constant(0), Dim::variable),
                Symbol::Statement(_) => continue,
                _ => self.size(&s.clone().into()).dim(),
            };
            by.insert(s, value);
        }
        d.substitute(&|symbol| by.get(symbol).cloned())
    }

    fn access(&mut self, buffer: usize, place: Place, live: &[usize]) -> Access {
        let mut coords = vec![];
        for line in &place.coords {
            let strides = live.iter().map(|v| self.size(&line.strides[*v])).collect();
            coords.push(Linear { offset: self.size(&line.offset), strides });
        }
        let mut computed = vec![];
        for part in &place.computed {
            let expr = self.expr(&part.expr, live);
            let stride = self.size(&part.stride);
            let size = |l: &Dim| if part.of_list { self.parameter(l) } else { self.size(l) };
            let limit = part.limit.as_ref().map(size);
            computed.push(Computed { expr, stride, limit, coord: part.coord });
        }
        Access { buffer, coords, computed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_dialects::flow::kernel::{Statement, Store};

    fn dims(texts: &[&str]) -> Vec<Dim> {
        texts.iter().map(|t| Dim::parse(t).unwrap()).collect()
    }

    /// result[written] = operand[read] over the extents.
    fn copy(outer: &[&str], (shape, read): (&[&str], &[&str]), (result, written): (&[&str], &[&str])) -> Kernel {
        let container = |d: &[&str]| Container::plain(DType::F32, dims(d));
        let load = Body::Load { memlet: Memlet { container: 0, index: dims(read) }, guard: None };
        Kernel {
            outer: dims(outer),
            inner: vec![],
            deep: vec![],
            reads: vec![container(shape)],
            writes: vec![container(result)],
            body: vec![Statement { body: load, dtype: DType::F32 }],
            stores: vec![Store { memlet: Memlet { container: 0, index: dims(written) }, value: 0 }],
        }
    }

    fn text(dims: &[Dim]) -> Vec<String> {
        dims.iter().map(Dim::to_string).collect()
    }

    #[test]
    fn dimensions_that_step_like_one_are_merged() {
        let shape = ["b", "s", "1", "384"];
        let all = ["%0", "%1", "%2", "%3"];
        let lowered = lower(&copy(&shape, (&shape, &all), (&shape, &all))).unwrap();
        assert_eq!(lowered.def.outer, [Size::Param(0)]);
        assert_eq!(text(&lowered.params), ["384*b*s"]);
        assert_eq!(lowered.grid.to_string(), "((384*b*s + 4095) floordiv (4096))");
        assert_eq!(lowered.writes, [false, true]);
    }

    #[test]
    fn a_transpose_keeps_its_dimensions() {
        let kernel =
            copy(&["h", "s", "8"], (&["s", "h", "8"], &["%1", "%0", "%2"]), (&["h", "s", "8"], &["%0", "%1", "%2"]));
        let lowered = lower(&kernel).unwrap();
        assert_eq!(lowered.def.outer, [Size::Param(0), Size::Param(1), Size::Const(8)]);
        assert_eq!(text(&lowered.params), ["h", "s", "8*h", "8*s"]);
        let Op::Load { access, .. } = &lowered.def.body[0].op else { panic!("a load") };
        assert_eq!(access.coords[0].strides, [Size::Const(8), Size::Param(2), Size::Const(1)]);
    }

    #[test]
    fn a_split_that_undoes_a_merge_is_linear() {
        let read = ["(s*%0 + %1) floordiv s", "(s*%0 + %1) mod s"];
        let kernel = copy(&["4", "s"], (&["4", "s"], &read), (&["4", "s"], &["%0", "%1"]));
        let lowered = lower(&kernel).unwrap();
        assert_eq!(lowered.def.outer, [Size::Param(0)], "merged: {:?}", lowered.def);
        let kernel = copy(&["6"], (&["2", "3"], &["%0 floordiv 3", "%0 mod 3"]), (&["6"], &["%0"]));
        let Op::Load { access, .. } = &lower(&kernel).unwrap().def.body[0].op.clone() else { panic!("a load") };
        assert_eq!(access.computed.len(), 2);
    }

    #[test]
    fn an_index_steps_along_what_it_is_linear_in() {
        let read = ["%1 + 4*(%0 floordiv 3) + 8"];
        let kernel = copy(&["6", "4"], (&["16"], &read), (&["6", "4"], &["%0", "%1"]));
        let Op::Load { access, .. } = &lower(&kernel).unwrap().def.body[0].op.clone() else { panic!("a load") };
        assert_eq!(access.coords[0].strides, [Size::Const(0), Size::Const(1)]);
        assert_eq!(access.computed.len(), 1);
    }

    #[test]
    fn an_overflowing_size_is_refused() {
        let huge = ["4611686018427387904", "16"];
        let kernel = copy(&huge, (&huge, &["%0", "%1"]), (&huge, &["%0", "%1"]));
        assert_eq!(lower(&kernel).unwrap_err().code, "E0202");
    }
}
