//! contract(a, b) of integers  =>  i32(contract(f32(a), f32(b))), where every sum is an integer that f32 has
//!
//! Products of two activations in bytes are such: their factors are bytes less a zero. Kernels multiply f32 several times
//! as fast as i32. Products with weights stay as they are, because `int8-contractions` multiplies bytes in these.

use super::Rewrite;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType, Value};

/// f32 has all integers up to this magnitude.
const EXACT_MAX: i64 = 1 << 24;

/// Maximum number of operations from which a range is derived.
const DEPTH_MAX: usize = 16;

pub fn bounded_products(g: &Graph, node: &Node) -> Option<Rewrite> {
    let Op::Contract(spec) = &node.op else { return None };
    let &[left, right] = &node.args[..] else { return None };
    if node.ty.dtype != DType::I32 || [left, right].iter().any(|v| is_constant(g, *v)) {
        return None;
    }
    let of_letter = |c: &char| {
        let sides = [(&spec.left, left), (&spec.right, right)];
        let found = sides.into_iter().find_map(|(letters, v)| Some((letters.iter().position(|l| l == c)?, v)));
        found.and_then(|(at, v)| g.ty(v).dims[at].as_const())
    };
    let terms = spec.summed().iter().try_fold(1i64, |n, c| n.checked_mul(of_letter(c)?))?;
    let largest = |v: Value| range(g, v, DEPTH_MAX).map(|(lo, hi)| lo.abs().max(hi.abs()));
    let largest = largest(left)?.checked_mul(largest(right)?)?.checked_mul(terms)?;
    if largest > EXACT_MAX {
        return None;
    }
    let first = g.nodes.len() as u32;
    let convert = |v: Value| {
        let ty = TensorType::new(DType::F32, g.ty(v).dims.clone());
        Node { op: Op::Convert(Conversion::Value), args: vec![v], ty, ..node.clone() }
    };
    let ty = TensorType::new(DType::F32, node.ty.dims.clone());
    let product = Node { args: vec![Value(first), Value(first + 1)], ty, ..node.clone() };
    let new = vec![convert(left), convert(right), product];
    Some(Rewrite::After(new, Op::Convert(Conversion::Value), vec![Value(first + 2)]))
}

/// Whether a value depends on parameters and constants only.
fn is_constant(g: &Graph, v: Value) -> bool {
    let node = g.node(v);
    match &node.op {
        Op::Param { .. } | Op::Const(_) | Op::Dims(_) | Op::Iota { .. } => true,
        Op::Input { .. } | Op::Host(_) | Op::Bind { .. } | Op::Append { .. } | Op::Place(_) => false,
        _ => node.args.iter().all(|arg| is_constant(g, *arg)),
    }
}

/// Bounds of all elements of an integer tensor; `None` if none are known.
fn range(g: &Graph, v: Value, depth: usize) -> Option<(i64, i64)> {
    let node = g.node(v);
    if depth == 0 || !node.ty.dtype.is_int() {
        return None;
    }
    let of = |i: usize| range(g, node.args[i], depth - 1);
    let both = || {
        let ((a, b), (c, d)) = (of(0)?, of(1)?);
        Some(((a, b), (c, d)))
    };
    let by_type = match node.ty.dtype {
        DType::U8 => Some((0, 255)),
        DType::I8 => Some((-128, 127)),
        _ => None,
    };
    let found = match &node.op {
        Op::Const(t) => {
            let values: Option<Vec<i64>> = (0..t.len()).map(|i| t.get_f64(i).map(|v| v as i64)).collect();
            let values = values?;
            Some((*values.iter().min()?, *values.iter().max()?))
        }
        Op::Convert(Conversion::Value) => of(0),
        Op::Map(ScalarFn::Sub) => both().map(|((a, b), (c, d))| (a - d, b - c)),
        Op::Map(ScalarFn::Add) => both().map(|((a, b), (c, d))| (a + c, b + d)),
        Op::Map(ScalarFn::Neg) => of(0).map(|(a, b)| (-b, -a)),
        Op::Map(ScalarFn::Max) => both().map(|((a, b), (c, d))| (a.max(c), b.max(d))),
        Op::Map(ScalarFn::Min) => both().map(|((a, b), (c, d))| (a.min(c), b.min(d))),
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Slice { .. } | Op::Window(_) => of(0),
        Op::Pad { .. } | Op::Concat { .. } => {
            (0..node.args.len()).map(of).reduce(|one, other| Some((one?.0.min(other?.0), one?.1.max(other?.1))))?
        }
        _ => None,
    };
    // Integers that wrap in the type have only its bounds.
    let fits = |(lo, hi): &(i64, i64)| by_type.is_none_or(|(least, most)| least <= *lo && *hi <= most);
    found.filter(fits).filter(|(lo, hi)| lo.abs().max(hi.abs()) <= EXACT_MAX).or(by_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::{Dim, Tensor};
    use sardonyx_dialects::sdx::ContractSpec;

    /// contract(i32(x) - zero, i32(y)) over `k` elements, where x and y are inputs of a type.
    fn graph(dtype: DType, zero: i32, k: Dim) -> Graph {
        let dims = vec![Dim::constant(3), k];
        let node = |op: Op, args: Vec<Value>, dtype: DType, dims: Vec<Dim>| Node {
            op,
            args,
            ty: TensorType::new(dtype, dims),
            origins: vec![],
        };
        let input = |name: &str| Op::Input { name: name.into(), parts: vec![] };
        let convert = || Op::Convert(Conversion::Value);
        let spec = ContractSpec::parse("mk,nk->mn").unwrap();
        let nodes = vec![
            node(input("x"), vec![], dtype, dims.clone()),
            node(input("y"), vec![], dtype, dims.clone()),
            node(convert(), vec![Value(0)], DType::I32, dims.clone()),
            node(convert(), vec![Value(1)], DType::I32, dims.clone()),
            node(Op::Const(Tensor::from_vec(vec![], vec![zero])), vec![], DType::I32, vec![]),
            node(Op::Broadcast { dims: vec![] }, vec![Value(4)], DType::I32, dims.clone()),
            node(Op::Map(ScalarFn::Sub), vec![Value(2), Value(5)], DType::I32, dims),
            node(Op::Contract(spec), vec![Value(6), Value(3)], DType::I32, vec![Dim::constant(3); 2]),
        ];
        Graph { nodes, ..Graph::default() }
    }

    fn applies(g: &Graph) -> bool {
        bounded_products(g, g.nodes.last().unwrap()).is_some()
    }

    #[test]
    fn sums_are_exact_up_to_two_to_the_24th() {
        // 255 · 255 · 258 = 16,776,450, and 2^24 = 16,777,216.
        let of = |zero: i32, k: i64| applies(&graph(DType::U8, zero, Dim::constant(k)));
        assert!(of(0, 258) && !of(0, 259));
        // The largest factor is 128 then.
        assert!(of(127, 514) && !of(127, 515));
        // 128 · 128 · 1024 = 2^24.
        let signed = |zero: i32, k: i64| applies(&graph(DType::I8, zero, Dim::constant(k)));
        assert!(signed(0, 1024) && !signed(0, 1025) && !signed(1, 1024));
    }

    #[test]
    fn open_sums_and_wide_factors_stay() {
        assert!(!applies(&graph(DType::U8, 0, Dim::symbol("k"))));
        assert!(!applies(&graph(DType::I32, 0, Dim::constant(4))));
        assert!(!applies(&graph(DType::U8, i32::MAX, Dim::constant(4))));
    }

    #[test]
    fn products_with_weights_stay() {
        let mut g = graph(DType::U8, 0, Dim::constant(4));
        g.nodes[1].op = Op::Param { name: "w".into(), parts: vec![], bounded: true };
        assert!(!applies(&g));
    }
}
