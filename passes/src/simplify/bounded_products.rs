//! contract(a, b) of integers  =>  i32(contract(f32(a), f32(b))), if f32 represents every sum exactly
//!
//! This holds for contractions of bytes minus a zero point, unless K is too large. Kernels multiply f32 several times as
//! fast as i32. The rule takes contractions of two activations, and those in groups whose bytes form no words, such as
//! depthwise convolutions. Other contractions with weights stay as they are, because `int8-contractions` makes them
//! multiply bytes.

use super::Rewrite;
use sardonyx_base::DType;
use sardonyx_dialects::flow::transform::WORD_BYTES;
use sardonyx_dialects::interp::int_range;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op, TensorType, Value};

/// f32 represents all integers up to this magnitude.
const SUM_MAX: i64 = 1 << 24;

/// GPUs multiply an f32 as the sum of two tf32; the first tf32 represents all integers up to this magnitude.
const FACTOR_MAX: i64 = 1 << 11;

/// Maximum number of operations from which the range of an operand is derived.
const VISITS_MAX: usize = 256;

pub fn bounded_products(g: &Graph, node: &Node) -> Option<Rewrite> {
    let Op::Contract(spec) = &node.op else { return None };
    let &[left, right] = &node.args[..] else { return None };
    if node.ty.dtype != DType::I32 || !has_exact_sums(g, spec, [left, right]) {
        return None;
    }
    if ![left, right].iter().all(|v| is_activation(g, *v)) && !has_no_words(g, spec, [left, right]) {
        return None;
    }
    let mut new = vec![];
    let args = vec![converted(g, left, node, &mut new), converted(g, right, node, &mut new)];
    let ty = TensorType::new(DType::F32, node.ty.dims.clone());
    new.push(Node { args, ty, ..node.clone() });
    let product = Value((g.nodes.len() + new.len() - 1) as u32);
    Some(Rewrite::After(new, Op::Convert(Conversion::Value), vec![product]))
}

/// Appends nodes that convert an operand to f32, and returns the result. What only moves or pads elements is applied to
/// the converted elements: a window has each of them several times.
fn converted(g: &Graph, v: Value, product: &Node, new: &mut Vec<Node>) -> Value {
    let (mut moved, mut from) = (vec![], v);
    while let Op::Window(_) | Op::Reshape | Op::Transpose { .. } | Op::Broadcast { .. } | Op::Pad { .. } =
        g.node(from).op
    {
        moved.push(from);
        from = g.node(from).args[0];
    }
    let mut push = |op: Op, args: Vec<Value>, like: Value| {
        let ty = TensorType::new(DType::F32, g.ty(like).dims.clone());
        new.push(Node { op, args, ty, ..product.clone() });
        Value((g.nodes.len() + new.len() - 1) as u32)
    };
    let convert = || Op::Convert(Conversion::Value);
    let mut last = push(convert(), vec![from], from);
    for v in moved.into_iter().rev() {
        let mut args = vec![last];
        // The value of padding is the second operand.
        args.extend(g.node(v).args[1..].iter().map(|fill| push(convert(), vec![*fill], *fill)));
        last = push(g.node(v).op.clone(), args, v);
    }
    last
}

/// Returns whether an f32 contraction of the two integer tensors is exact on every device, in any order of additions.
pub fn has_exact_sums(g: &Graph, spec: &ContractSpec, [left, right]: [Value; 2]) -> bool {
    let extent = |c: &char| extent(g, spec, [left, right], *c);
    let terms = || spec.summed().iter().try_fold(1i64, |n, c| n.checked_mul(extent(c)?));
    let largest = |v: Value| {
        let (lo, hi) = range(g, v, &mut VISITS_MAX.clone())?;
        Some(lo.abs().max(hi.abs())).filter(|most| *most <= FACTOR_MAX)
    };
    let sum = || largest(left)?.checked_mul(largest(right)?)?.checked_mul(terms()?);
    sum().is_some_and(|sum| sum <= SUM_MAX)
}

/// Returns the extent of a letter; `None` if it is not constant.
fn extent(g: &Graph, spec: &ContractSpec, [left, right]: [Value; 2], letter: char) -> Option<i64> {
    let sides = [(&spec.left, left), (&spec.right, right)];
    let found = sides.into_iter().find_map(|(letters, v)| Some((letters.iter().position(|l| *l == letter)?, v)));
    found.and_then(|(at, v)| g.ty(v).dims[at].as_const())
}

/// Returns whether a contraction has groups, and adds up over two or more dimensions of which none is a multiple of a
/// word, as depthwise convolutions do. Its bytes are no neighbours in memory, so that no instruction multiplies four of
/// them at once.
fn has_no_words(g: &Graph, spec: &ContractSpec, operands: [Value; 2]) -> bool {
    let extents = |letters: &[char]| -> Vec<Option<i64>> {
        letters.iter().map(|c| extent(g, spec, operands, *c)).filter(|n| *n != Some(1)).collect()
    };
    let groups: Vec<char> =
        spec.left.iter().copied().filter(|c| spec.right.contains(c) && spec.result.contains(c)).collect();
    let window = extents(&spec.summed());
    !extents(&groups).is_empty() && window.len() > 1 && window.iter().all(|n| n.is_some_and(|n| n % WORD_BYTES != 0))
}

/// Returns whether a value depends on an input of the model or a host operation. Models may be too deep for recursion.
fn is_activation(g: &Graph, v: Value) -> bool {
    let (mut open, mut seen) = (vec![v], vec![false; g.nodes.len()]);
    while let Some(v) = open.pop() {
        let node = g.node(v);
        if matches!(node.op, Op::Input { .. } | Op::Host(_) | Op::Bind { .. } | Op::Append { .. }) {
            return true;
        }
        for arg in &node.args {
            if !std::mem::replace(&mut seen[arg.index()], true) {
                open.push(*arg);
            }
        }
    }
    false
}

/// Returns bounds of all elements of an integer tensor, derived from at most `visits` operations, or else the bounds of
/// the element type; `None` if these exceed `SUM_MAX` in magnitude.
fn range(g: &Graph, v: Value, visits: &mut usize) -> Option<(i64, i64)> {
    let node = g.node(v);
    let (least, most) = int_range(node.ty.dtype).filter(|_| node.ty.dtype.is_int())?;
    let of_type = i64::try_from(least).ok().zip(i64::try_from(most).ok());
    let of_type = of_type.filter(|(lo, hi)| -SUM_MAX <= *lo && *hi <= SUM_MAX);
    if *visits == 0 {
        return of_type;
    }
    *visits -= 1;
    let mut of = |i: usize| range(g, node.args[i], visits);
    let found = match &node.op {
        Op::Const(t) => {
            let values: Option<Vec<i64>> = (0..t.len()).map(|i| t.get_f64(i).map(|v| v as i64)).collect();
            values.and_then(|values| Some((*values.iter().min()?, *values.iter().max()?)))
        }
        Op::Map(ScalarFn::Sub) => of(0).zip(of(1)).map(|((a, b), (c, d))| (a - d, b - c)),
        Op::Map(ScalarFn::Add) => of(0).zip(of(1)).map(|((a, b), (c, d))| (a + c, b + d)),
        Op::Map(ScalarFn::Neg) => of(0).map(|(a, b)| (-b, -a)),
        Op::Map(ScalarFn::Max) => of(0).zip(of(1)).map(|((a, b), (c, d))| (a.max(c), b.max(d))),
        Op::Map(ScalarFn::Min) => of(0).zip(of(1)).map(|((a, b), (c, d))| (a.min(c), b.min(d))),
        Op::Convert(Conversion::Value)
        | Op::Reshape
        | Op::Transpose { .. }
        | Op::Broadcast { .. }
        | Op::Slice { .. }
        | Op::Window(_) => of(0),
        Op::Pad { .. } | Op::Concat { .. } => {
            let mut all = Some((i64::MAX, i64::MIN));
            for i in 0..node.args.len() {
                all = all.zip(of(i)).map(|((a, b), (c, d))| (a.min(c), b.max(d)));
            }
            all
        }
        _ => None,
    };
    // Results that the type cannot represent have wrapped, so their bounds do not hold.
    let fits = |(lo, hi): &(i64, i64)| least <= i128::from(*lo) && i128::from(*hi) <= most;
    let is_small = |(lo, hi): &(i64, i64)| -SUM_MAX <= *lo && *hi <= SUM_MAX;
    found.filter(fits).filter(is_small).or(of_type)
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
    fn factors_that_wrap_have_the_range_of_their_type() {
        // u16(x) - zero wraps, so that it has up to 65,535.
        let mut g = graph(DType::U8, 3, Dim::constant(4));
        for at in [2, 4, 5, 6] {
            g.nodes[at].ty.dtype = DType::U16;
        }
        g.nodes[4].op = Op::Const(Tensor::from_vec(vec![], vec![3u16]));
        assert!(!applies(&g));
        g.nodes[6].op = Op::Map(ScalarFn::Max);
        assert!(applies(&g));
    }

    #[test]
    fn factors_of_more_bits_than_tf32_has_stay() {
        let of = |zero: i32| applies(&graph(DType::U8, zero, Dim::constant(1)));
        assert!(of(-1793) && !of(-1794));
    }

    #[test]
    fn long_chains_end() {
        let mut g = graph(DType::U8, 0, Dim::constant(4));
        let product = g.nodes.pop().unwrap();
        for _ in 0..100_000 {
            let last = Value(g.nodes.len() as u32 - 1);
            g.nodes.push(Node { op: Op::Map(ScalarFn::Min), args: vec![last, last], ..g.nodes[6].clone() });
        }
        let last = Value(g.nodes.len() as u32 - 1);
        g.nodes.push(Node { args: vec![last, Value(3)], ..product });
        assert!(!applies(&g));
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
