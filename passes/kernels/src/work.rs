//! KernelDef  =>  operations and moved bytes of a launch, over its parameters `p{n}` and its buffers' sizes `b{n}`

use super::def::*;
use super::scalar;
use super::stages::is_deep_sum;
use sardonyx_base::Dim;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::scalar::ScalarFn;

impl KernelDef {
    /// Returns the number of floating-point operations: one per scalar function other than select and one per reduced
    /// element, if the result is a float. Each statement is counted once per combination of values of the variables
    /// that it depends on.
    pub fn flops(&self) -> Dim {
        let deps = self.dependences();
        let mut flops = Dim::constant(0);
        for (k, step) in self.body.iter().enumerate().filter(|(_, s)| s.dtype.is_float()) {
            let vars = match &step.op {
                Op::Apply { f: ScalarFn::Select, .. } => continue,
                Op::Apply { .. } => deps[k],
                Op::Reduce { arg, .. } if is_deep_sum(self, &deps, k) => deps[*arg] | self.deep_vars(),
                Op::Reduce { arg, .. } => deps[*arg] | self.inner_vars() & !self.deep_vars(),
                Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Convert(_, _) => continue,
            };
            flops = flops + self.points(vars);
        }
        flops
    }

    /// Returns the number of bytes that are read and written if each is moved once. Each access counts one element per
    /// combination of values of the variables that it depends on; a buffer counts at most its size.
    pub fn moved_bytes(&self) -> Dim {
        let deps = self.dependences();
        let touched = |accesses: &mut dyn Iterator<Item = &Access>, buffer: usize, storage: &Storage| {
            let points = accesses.fold(Dim::constant(0), |sum, a| sum + self.points(self.access_vars(a, &deps)));
            let bytes = points * Dim::constant(scalar::stored(storage.dtype).bits() as i64 / 8);
            bytes.minimum(&Symbol::BufferBytes(buffer).into())
        };
        let loads = |b: usize| {
            self.body.iter().filter_map(move |s| match &s.op {
                Op::Load { access, .. } if access.buffer == b => Some(access),
                _ => None,
            })
        };
        let mut bytes = Dim::constant(0);
        for (b, storage) in self.reads.iter().enumerate() {
            bytes = bytes + touched(&mut loads(b), b, storage);
        }
        for (w, storage) in self.writes.iter().enumerate() {
            let mut stores = self.stores.iter().map(|s| &s.access).filter(|a| a.buffer == w);
            bytes = bytes + touched(&mut stores, self.reads.len() + w, storage);
        }
        bytes
    }

    /// Returns the number of combinations of values of these variables.
    fn points(&self, vars: VarSet) -> Dim {
        (0..self.n_vars()).filter(|v| vars >> v & 1 == 1).fold(Dim::constant(1), |n, v| n * self.extent(v).dim())
    }
}

#[cfg(test)]
mod tests {
    use super::super::lower;
    use sardonyx_base::dim::Symbol;
    use sardonyx_base::{DType, Dim};
    use sardonyx_dialects::flow::kernel::{Body, Container, Kernel, Memlet, Statement, Store};
    use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

    /// The kernel is a product of [m, 8] and [8, 40], plus a bias.
    #[test]
    fn a_product_counts_its_multiplications_additions_and_operands() {
        let dims = |texts: &[&str]| -> Vec<Dim> { texts.iter().map(|t| Dim::parse(t).unwrap()).collect() };
        let container = |d: &[&str]| Container::plain(DType::F32, dims(d));
        let load = |container: usize, index: &[&str]| Body::Load {
            memlet: Memlet { container, index: dims(index) },
            guard: None,
        };
        let apply = |f, a, b| Body::Apply { f, args: vec![a, b] };
        let body = [
            load(0, &["%0", "%2"]),
            load(1, &["%2", "%1"]),
            apply(ScalarFn::Mul, 0, 1),
            Body::Reduce { f: ReduceFn::Add, arg: 2 },
            load(2, &["%1"]),
            apply(ScalarFn::Add, 3, 4),
        ];
        let kernel = Kernel {
            outer: dims(&["m", "40"]),
            inner: dims(&["8"]),
            deep: vec![],
            reads: vec![container(&["m", "8"]), container(&["8", "40"]), container(&["40"])],
            writes: vec![container(&["m", "40"])],
            body: body.into_iter().map(|body| Statement { body, dtype: DType::F32 }).collect(),
            stores: vec![Store { memlet: Memlet { container: 0, index: dims(&["%0", "%1"]) }, value: 5 }],
        };
        let def = lower(&kernel).unwrap().def;
        assert_eq!(def.flops().to_string(), "680*p0");
        let sizes = [96, 1280, 160, 480];
        let value = |symbol: &Symbol| match symbol {
            Symbol::BufferBytes(buffer) => sizes.get(*buffer).copied(),
            symbol => symbol.param().map(|_| 3),
        };
        assert_eq!(def.moved_bytes().eval(&value).unwrap(), sizes.iter().sum());
    }
}
