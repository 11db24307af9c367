//! Conv(x, w, b)  =>  pad, window, contract over channels and offsets
//!
//! x[n, g, c, p, q, i, j] · w[g, o, c, i, j] → y[n, g, o, p, q]: the group g is a batch letter, n the batch, c an input
//! and o an output channel, (p, q) the position of a window, and (i, j) an offset in it.

use super::builder::Builder;
use super::elementwise as e;
use super::node::Node;
use super::windows::{
    SPATIAL_MAX, Windows, halves, kernel_shape, pads, same_upper, spatial, steps, with_channels_last,
};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

pub fn conv(b: &mut Builder, node: &Node) -> Outputs {
    Ok(vec![conv_of(b, node, node.input(0)?)?])
}

fn conv_of(b: &mut Builder, node: &Node, x: Value) -> Result<Value> {
    conv_with_weights(b, node, x, node.input(1)?)
}

/// Conv of these operands, with the node's bias and attributes.
pub fn conv_with_weights(b: &mut Builder, node: &Node, x: Value, w: Value) -> Result<Value> {
    check_types(b, node, x, w)?;
    let y = convolve(b, node, x, w)?;
    biased(b, node, y, node.optional(2))
}

/// com.microsoft FusedConv: a convolution, a sum with `Z`, and an activation.
pub fn fused_conv(b: &mut Builder, node: &Node) -> Outputs {
    let y = conv(b, node)?[0];
    Ok(vec![summed_and_activated(b, node, y)?])
}

/// com.microsoft NhwcFusedConv: FusedConv with channels last in x, `Z` and the result; the weights keep their layout.
pub fn nhwc_fused_conv(b: &mut Builder, node: &Node) -> Outputs {
    let y = with_channels_last(b, node, node.input(0)?, |b, x| conv_of(b, node, x))?;
    Ok(vec![summed_and_activated(b, node, y)?])
}

/// Adds the node's fourth operand, if any, and applies its activation.
pub fn summed_and_activated(b: &mut Builder, node: &Node, mut y: Value) -> Result<Value> {
    if let Some(z) = node.optional(3) {
        y = b.map2(ScalarFn::Add, y, z)?;
    }
    let params = node.floats("activation_params")?.unwrap_or_default();
    let param = |i: usize, default: f64| params.get(i).copied().unwrap_or(default);
    Ok(match node.str_or("activation", "")?.as_str() {
        "" => y,
        "Relu" => b.map_const(ScalarFn::Max, y, 0.0)?,
        "Tanh" => b.map1(ScalarFn::Tanh, y)?,
        "Sigmoid" => e::sigmoid_of(b, y)?,
        "LeakyRelu" => e::leaky_relu_of(b, y, param(0, 0.01))?,
        "Clip" => {
            let above = b.map_const(ScalarFn::Max, y, param(0, f64::from(f32::MIN)))?;
            b.map_const(ScalarFn::Min, above, param(1, f64::from(f32::MAX)))?
        }
        "HardSigmoid" => {
            let scaled = b.map_const(ScalarFn::Mul, y, param(0, 0.2))?;
            let shifted = b.map_const(ScalarFn::Add, scaled, param(1, 0.5))?;
            let above = b.map_const(ScalarFn::Max, shifted, 0.0)?;
            b.map_const(ScalarFn::Min, above, 1.0)?
        }
        other => return Err(node.error("E0106", format!("the activation {other} is not known"))),
    })
}

fn check_types(b: &Builder, node: &Node, x: Value, w: Value) -> Result<()> {
    ScalarFn::Mul.result(&[b.dtype(x), b.dtype(w)]).map(|_| ()).map_err(|reason| node.error("E0107", reason))
}

/// Adds one bias per channel; channels are dimension 1.
pub fn biased(b: &mut Builder, node: &Node, y: Value, bias: Option<Value>) -> Result<Value> {
    let Some(bias) = bias else { return Ok(y) };
    if b.rank(bias) != 1 {
        return Err(node.error("E0201", format!("the bias is a vector, not {}", b.ty(bias))));
    }
    let (own, channels) = (b.dims(bias)[0].clone(), b.dims(y)[1].clone());
    b.unify(&own, &channels)?;
    let dims = b.dims(y);
    let bias = b.broadcast_at(bias, vec![1], &dims)?;
    b.map2(ScalarFn::Add, y, bias)
}

pub fn groups(node: &Node) -> Result<i64> {
    let n = node.int_or("group", 1)?;
    if n < 1 { Err(node.error("E0106", format!("`group` = {n} is not positive"))) } else { Ok(n) }
}

/// Checks that the kernel has the operand's rank and, if `kernel_shape` is given, these spatial extents.
fn check_kernel(b: &mut Builder, node: &Node, x: Value, w: Value) -> Result<()> {
    if b.rank(w) != b.rank(x) {
        return Err(node.error("E0201", format!("the kernel {} does not fit {}", b.ty(w), b.ty(x))));
    }
    if let Some(given) = kernel_shape(node)? {
        if given.len() + 2 != b.rank(w) {
            return Err(node.error("E0106", format!("`kernel_shape` = {given:?} does not fit {}", b.ty(w))));
        }
        for (i, n) in given.into_iter().enumerate() {
            let own = b.dims(w)[2 + i].clone();
            b.unify(&own, &Dim::constant(n))?;
        }
    }
    Ok(())
}

/// The convolution described by the node's attributes, without a bias. Both operands have the accumulation type.
/// Elements outside the operand count as 0.
pub fn convolve(b: &mut Builder, node: &Node, x: Value, w: Value) -> Result<Value> {
    spatial(b, node, x)?;
    check_kernel(b, node, x, w)?;
    let group = groups(node)?;
    let (channels, each) = (b.dims(x)[1].clone(), b.dims(w)[1].clone());
    b.unify(&channels, &(each * Dim::constant(group)))?;
    // The extents are read again, because unification may have rewritten them in terms of other symbols.
    let (extents, sizes) = (spatial(b, node, x)?, b.dims(w)[2..].to_vec());
    let windows = Windows::from_node(node, &extents, sizes)?;
    let x = b.split_axis(x, 1, Dim::constant(group))?;
    let w = b.split_axis(w, 0, Dim::constant(group))?;
    let y = correlate(b, &windows, x, w, "goc")?;
    merge_groups(b, y)
}

/// Σ over channels and offsets of x[n, g, c, spatial] times w; `letters` name the first three dimensions of w.
fn correlate(b: &mut Builder, windows: &Windows, x: Value, w: Value, letters: &str) -> Result<Value> {
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    let x = windows.padded(b, x, zero)?;
    let (places, offsets) = (&"pqrstuvw"[..windows.rank()], &"ijklmabd"[..windows.rank()]);
    debug_assert!(windows.rank() <= SPATIAL_MAX);
    if windows.are_points() {
        // A window of one element is that element, so only channels are contracted.
        let mut x = x;
        for (i, (stride, n)) in windows.strides.iter().zip(&windows.places).enumerate() {
            x = b.slice_axis(x, 3 + i, Dim::constant(0), *stride, n.clone())?;
        }
        let dims = b.dims(w)[..3].to_vec();
        let w = b.reshape(w, &dims)?;
        return contract(b, &format!("ngc{places},{letters}->ngo{places}"), x, w);
    }
    let x = windows.view(b, x)?;
    contract(b, &format!("ngc{places}{offsets},{letters}{offsets}->ngo{places}"), x, w)
}

/// A contraction that leaves out letters of extent 1, such as a single group or one channel per group.
pub fn contract(b: &mut Builder, spec: &str, x: Value, w: Value) -> Result<Value> {
    let (operands, result) = spec.split_once("->").unwrap_or((spec, ""));
    let (left, right) = operands.split_once(',').unwrap_or((operands, ""));
    let mut extents: Vec<(char, Dim)> = vec![];
    for (letters, v) in [(left, x), (right, w)] {
        extents.extend(letters.chars().zip(b.dims(v)));
    }
    let extent = |c: char| extents.iter().find(|(d, _)| *d == c).map_or(Dim::constant(1), |(_, n)| n.clone());
    let whole: Vec<Dim> = result.chars().map(extent).collect();
    let drops = |c: &char| "gco".contains(*c) && extents.iter().filter(|(d, _)| d == c).all(|(_, n)| n.is_const(1));
    let kept = |letters: &str| letters.chars().filter(|c| !drops(c)).collect::<String>();
    let mut parts = vec![];
    for (letters, v) in [(left, x), (right, w)] {
        let dims: Vec<Dim> = letters.chars().zip(b.dims(v)).filter(|(c, _)| !drops(c)).map(|(_, n)| n).collect();
        parts.push(b.reshape(v, &dims)?);
    }
    let y = b.contract(&format!("{},{}->{}", kept(left), kept(right), kept(result)), parts[0], parts[1])?;
    b.reshape(y, &whole)
}

/// [n, g, o, …]  =>  [n, g·o, …]
pub fn merge_groups(b: &mut Builder, y: Value) -> Result<Value> {
    let dims = b.dims(y);
    let mut merged = vec![dims[0].clone(), dims[1].clone() * dims[2].clone()];
    merged.extend_from_slice(&dims[3..]);
    b.reshape(y, &merged)
}

/// ConvTranspose. The offsets of an undilated kernel fall into `stride` phases per axis (`by_phases`). Otherwise, such
/// as for a dilated kernel, the flipped kernel is applied to the operand with stride - 1 zeros between its elements and
/// zeros around it.
pub fn conv_transpose(b: &mut Builder, node: &Node) -> Outputs {
    let (x, w) = (node.input(0)?, node.input(1)?);
    check_types(b, node, x, w)?;
    spatial(b, node, x)?;
    check_kernel(b, node, x, w)?;
    let group = groups(node)?;
    let (channels, own) = (b.dims(x)[1].clone(), b.dims(w)[0].clone());
    b.unify(&channels, &own)?;
    let (extents, sizes) = (spatial(b, node, x)?, b.dims(w)[2..].to_vec());
    let strides = steps(node, "strides", extents.len())?;
    let windows = transposed(node, &extents, sizes, &strides)?;
    let mut x = b.split_axis(x, 1, Dim::constant(group))?;
    let mut w = b.split_axis(w, 0, Dim::constant(group))?;
    if let Some(y) = by_phases(b, &windows, &strides, (x, w))? {
        let y = merge_groups(b, y)?;
        return Ok(vec![biased(b, node, y, node.optional(2))?]);
    }
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    for (i, &stride) in strides.iter().enumerate() {
        x = spread(b, x, 3 + i, stride, zero)?;
        let n = windows.sizes[i].clone();
        w = if n.is_const(1) { w } else { b.slice_axis(w, 3 + i, n.clone() - Dim::constant(1), -1, n)? };
    }
    let y = correlate(b, &windows, x, w, "gco")?;
    let y = merge_groups(b, y)?;
    Ok(vec![biased(b, node, y, node.optional(2))?])
}

/// y[.., s·p + f] = Σr x[.., p - r] w[.., s·r + f], with stride s: each phase f is a convolution of its own. All phases
/// are computed as one contraction (`phases`). Returns `None` if the sizes do not determine which part of the
/// contraction is the result, if the kernel is dilated, if nothing would be saved because all strides are 1, or if
/// there are more axes than letters in `PHASES`.
fn by_phases(b: &mut Builder, windows: &Windows, strides: &[i64], (x, w): (Value, Value)) -> Result<Option<Value>> {
    let rank = windows.rank();
    let sizes: Option<Vec<i64>> = windows.sizes.iter().map(Dim::as_const).collect();
    let (Some(sizes), true) = (sizes, rank <= PHASES.len()) else { return Ok(None) };
    if windows.dilations.iter().any(|d| *d != 1) || strides.iter().all(|s| *s == 1) {
        return Ok(None);
    }
    let extents = b.dims(x)[3..].to_vec();
    let turns: Vec<i64> = sizes.iter().zip(strides).map(|(k, s)| (k + s - 1).div_euclid(*s)).collect();
    // By axis: the number of computed elements before the result, which are cut off, and the number of elements of the
    // result after the last computed one.
    let mut cuts = vec![];
    for i in 0..rank {
        let before = Dim::constant(sizes[i] - 1) - windows.low[i].clone();
        let all = (extents[i].clone() + Dim::constant(turns[i] - 1)) * Dim::constant(strides[i]);
        let behind = all - before.clone() - windows.places[i].clone();
        let (Some(start), Some(behind)) = (before.as_const(), behind.as_const()) else { return Ok(None) };
        if start < 0 {
            return Ok(None);
        }
        cuts.push((start, (-behind).max(0)));
    }
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    let around = |n: &dyn Fn(usize) -> i64| -> Vec<Dim> {
        let dims = [0; 3].into_iter().chain((0..rank).map(n));
        dims.map(Dim::constant).collect()
    };
    let (none, margin) = (around(&|_| 0), around(&|i| turns[i] - 1));
    let mut x = if turns.iter().all(|n| *n == 1) { x } else { b.pad(x, zero, &margin, &margin)? };
    let filled = around(&|i| turns[i] * strides[i] - sizes[i]);
    let mut w = if filled == none { w } else { b.pad(w, zero, &none, &filled)? };
    let mut split = b.dims(w)[..3].to_vec();
    (0..rank).for_each(|i| split.extend([turns[i], strides[i]].map(Dim::constant)));
    w = b.reshape(w, &split)?;
    for (i, &n) in turns.iter().enumerate().filter(|(_, n)| **n > 1) {
        w = b.slice_axis(w, 3 + 2 * i, Dim::constant(n - 1), -1, Dim::constant(n))?;
    }
    let places: Vec<Dim> = extents.iter().zip(&turns).map(|(n, turns)| n.clone() + Dim::constant(turns - 1)).collect();
    let over = Windows {
        sizes: turns.iter().map(|n| Dim::constant(*n)).collect(),
        strides: vec![1; rank],
        dilations: vec![1; rank],
        low: vec![Dim::constant(0); rank],
        high: vec![Dim::constant(0); rank],
        beyond: vec![Dim::constant(0); rank],
        places: places.clone(),
    };
    x = over.view(b, x)?;
    let y = phases(b, (x, w), rank)?;
    let mut dims = b.dims(y)[..3].to_vec();
    dims.extend(places.iter().zip(strides).map(|(n, s)| n.clone() * Dim::constant(*s)));
    let mut y = b.reshape(y, &dims)?;
    let missing = around(&|i| cuts[i].1);
    if missing != none {
        y = b.pad(y, zero, &none, &missing)?;
    }
    for (i, (start, _)) in cuts.iter().enumerate() {
        y = b.slice_axis(y, 3 + i, Dim::constant(*start), 1, windows.places[i].clone())?;
    }
    Ok(Some(y))
}

/// Letters of the phase axes in a contraction's specification, distinct from those of `correlate`.
const PHASES: &str = "xyzefh";

/// The contraction of all phases: [n, g, c, place…, turn…], [g, c, o, (turn, phase)…]  =>  [n, g, o, (place, phase)…].
/// The phases and output channels of a group are one dimension of columns, which are adjacent in the weights and in the
/// result, however few channels there are. If there are several groups with one output channel each, the phases are the
/// only columns; they then keep their axes, so that vectors can run along the groups.
fn phases(b: &mut Builder, (x, w): (Value, Value), rank: usize) -> Result<Value> {
    let (p, r) = (&"pqrstuvw"[..rank], &"ijklmabd"[..rank]);
    let dims = b.dims(w);
    if dims[2].is_const(1) && !dims[0].is_const(1) {
        let pairs = |first: &str| -> String { first.chars().zip(PHASES.chars()).flat_map(|(a, f)| [a, f]).collect() };
        return contract(b, &format!("ngc{p}{r},gco{}->ngo{}", pairs(r), pairs(p)), x, w);
    }
    let (turns, steps) = ((0..rank).map(|i| 3 + 2 * i), (0..rank).map(|i| 4 + 2 * i));
    let order: Vec<usize> = [0, 1].into_iter().chain(turns.clone()).chain(steps.clone()).chain([2]).collect();
    let w = b.transpose(w, order)?;
    let columns: Vec<Dim> = steps.chain([2]).map(|axis| dims[axis].clone()).collect();
    let all = columns.iter().fold(Dim::constant(1), |n, extent| n * extent.clone());
    let matrix: Vec<Dim> = [0, 1].into_iter().chain(turns).map(|axis| dims[axis].clone()).chain([all]).collect();
    let w = b.reshape(w, &matrix)?;
    let y = contract(b, &format!("ngc{p}{r},gc{r}x->ng{p}x"), x, w)?;
    let mut apart = b.dims(y)[..2 + rank].to_vec();
    apart.extend(columns);
    let y = b.reshape(y, &apart)?;
    let pairs = (0..rank).flat_map(|i| [2 + i, 2 + rank + i]);
    b.transpose(y, [0, 1, 2 + 2 * rank].into_iter().chain(pairs).collect())
}

/// The windows of stride 1 over the operand whose elements are spread `strides` apart.
fn transposed(node: &Node, extents: &[Dim], sizes: Vec<Dim>, strides: &[i64]) -> Result<Windows> {
    let rank = extents.len();
    let dilations = steps(node, "dilations", rank)?;
    let more = node.ints("output_padding")?.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![0; rank]);
    let wanted = node.ints("output_shape")?.filter(|list| !list.is_empty());
    // Some exporters also give the batch and channel dimensions.
    let wanted = wanted.map(|list| if list.len() == rank + 2 { list[2..].to_vec() } else { list });
    let fits = |list: &Vec<i64>| list.len() == rank && list.iter().all(|&n| n >= 0);
    if !fits(&more) || !wanted.as_ref().is_none_or(fits) {
        return Err(node.error("E0106", "`output_padding` and `output_shape` have one number per spatial axis"));
    }
    let auto = same_upper(node)?;
    let valid = node.str_or("auto_pad", "NOTSET")? == "VALID";
    let none = vec![Dim::constant(0); rank];
    let given =
        if valid || auto.is_some() || wanted.is_some() { (none.clone(), none.clone()) } else { pads(node, rank)? };
    let (mut low, mut high, mut places) = (vec![], vec![], vec![]);
    for i in 0..rank {
        let one = Dim::constant(1);
        let around = (sizes[i].clone() - one.clone()) * Dim::constant(dilations[i]);
        let apart = (extents[i].clone() - one.clone()) * Dim::constant(strides[i]) + one.clone();
        let full = apart.clone() + around.clone() + Dim::constant(more[i]);
        let kept = auto.map(|_| extents[i].clone() * Dim::constant(strides[i]));
        let target = wanted.as_ref().map(|list| Dim::constant(list[i])).or(kept);
        let (n, before) = match target {
            Some(n) => {
                let total = (full - n.clone()).maximum(&Dim::constant(0));
                (n, halves(&total, auto == Some(true)).0)
            }
            None => (full - given.0[i].clone() - given.1[i].clone(), given.0[i].clone()),
        };
        low.push(around.clone() - before);
        // The last window ends where the output does.
        high.push(n.clone() + around - apart - low[i].clone());
        places.push(n);
    }
    Ok(Windows { sizes, strides: vec![1; rank], dilations, low, high, beyond: none, places })
}

/// Inserts stride - 1 copies of a value after each element along an axis, except the last.
fn spread(b: &mut Builder, x: Value, axis: usize, stride: i64, value: Value) -> Result<Value> {
    if stride == 1 {
        return Ok(x);
    }
    let dims = b.dims(x);
    let mut apart = dims.clone();
    apart.insert(axis + 1, Dim::constant(1));
    let rank = apart.len();
    let x = b.reshape(x, &apart)?;
    let none = vec![Dim::constant(0); rank];
    let mut high = none.clone();
    high[axis + 1] = Dim::constant(stride - 1);
    let x = b.pad(x, value, &none, &high)?;
    let mut merged = dims;
    let n = merged[axis].clone();
    merged[axis] = n.clone() * Dim::constant(stride);
    let x = b.reshape(x, &merged)?;
    // Cuts off what follows the last element.
    b.slice_axis(x, axis, Dim::constant(0), 1, (n - Dim::constant(1)) * Dim::constant(stride) + Dim::constant(1))
}
