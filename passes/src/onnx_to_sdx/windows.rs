//! kernel_shape, strides, dilations, pads, auto_pad  =>  pad, and a window per spatial axis
//!
//! x[n, c, h, w]  =>  [n, c, p, q, i, j]: the position of the window, then the offset in it.

use super::builder::Builder;
use super::node::Node;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::sdx::{Value, WindowSpec};

/// Maximum number of spatial axes: a contraction has no letters for more.
pub const SPATIAL_MAX: usize = 8;

/// Maximum size, stride, dilation or padding: larger than any extent, and small enough that the product of two of them
/// does not overflow.
const STEP_MAX: i64 = i32::MAX as i64;

/// Layout of windows over the spatial axes of a tensor; one entry per axis.
pub struct Windows {
    pub sizes: Vec<Dim>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    /// Padding before (`low`) and after (`high`) the tensor, which follows from `pads` or `auto_pad`.
    pub low: Vec<Dim>,
    pub high: Vec<Dim>,
    /// Additional padding at the end, for a last, incomplete window.
    pub beyond: Vec<Dim>,
    pub places: Vec<Dim>,
}

/// Extents of the kernel, if an attribute gives them.
pub fn kernel_shape(node: &Node) -> Result<Option<Vec<i64>>> {
    let Some(sizes) = node.ints("kernel_shape")? else { return Ok(None) };
    match sizes.iter().all(|n| (1..=STEP_MAX).contains(n)) {
        true => Ok(Some(sizes)),
        false => Err(node.error("E0106", format!("`kernel_shape` = {sizes:?} is not positive, or too large"))),
    }
}

/// One positive number per spatial axis; 1 where the attribute is absent.
pub fn steps(node: &Node, name: &str, rank: usize) -> Result<Vec<i64>> {
    let list = node.ints(name)?.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![1; rank]);
    match list.len() == rank && list.iter().all(|n| (1..=STEP_MAX).contains(n)) {
        true => Ok(list),
        false => Err(node.error("E0106", format!("`{name}` = {list:?} is not one positive number per spatial axis"))),
    }
}

/// Padding at the beginning and at the end of each spatial axis; 0 where the attribute is absent.
pub fn pads(node: &Node, rank: usize) -> Result<(Vec<Dim>, Vec<Dim>)> {
    let list = node.ints("pads")?.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![0; 2 * rank]);
    if list.len() != 2 * rank || !list.iter().all(|n| (0..=STEP_MAX).contains(n)) {
        return Err(node.error("E0106", format!("`pads` = {list:?} is not a begin and an end per spatial axis")));
    }
    let dims = |part: &[i64]| part.iter().map(|&n| Dim::constant(n)).collect();
    Ok((dims(&list[..rank]), dims(&list[rank..])))
}

/// If `auto_pad` requests SAME padding, returns whether the end gets the larger half of an odd number of elements.
pub fn same_upper(node: &Node) -> Result<Option<bool>> {
    match node.str_or("auto_pad", "NOTSET")?.as_str() {
        "NOTSET" | "" | "VALID" => Ok(None),
        "SAME_UPPER" => Ok(Some(true)),
        "SAME_LOWER" => Ok(Some(false)),
        other => Err(node.error("E0106", format!("`auto_pad` = {other} is not known"))),
    }
}

/// The halves of a number of elements; the larger one is at the end if `upper`, else at the beginning.
pub fn halves(total: &Dim, upper: bool) -> (Dim, Dim) {
    let small = total.floordiv(&Dim::constant(2));
    let large = total.clone() - small.clone();
    if upper { (small, large) } else { (large, small) }
}

/// The extents of the spatial axes, which come after batch and channels.
pub fn spatial(b: &Builder, node: &Node, x: Value) -> Result<Vec<Dim>> {
    match b.rank(x) {
        rank if (3..=2 + SPATIAL_MAX).contains(&rank) => Ok(b.dims(x)[2..].to_vec()),
        _ => Err(node.error("E0201", format!("takes batch, channels and 1 to {SPATIAL_MAX} axes, not {}", b.ty(x)))),
    }
}

impl Windows {
    /// The windows that the node's attributes describe, over axes of these extents.
    pub fn from_node(node: &Node, extents: &[Dim], sizes: Vec<Dim>) -> Result<Windows> {
        let rank = extents.len();
        if sizes.len() != rank {
            return Err(node.error("E0106", format!("a kernel of {} axes does not fit {rank}", sizes.len())));
        }
        let (strides, dilations) = (steps(node, "strides", rank)?, steps(node, "dilations", rank)?);
        let auto = same_upper(node)?;
        let valid = node.str_or("auto_pad", "NOTSET")? == "VALID";
        let none = vec![Dim::constant(0); rank];
        let (low, high) = if valid || auto.is_some() { (none.clone(), none.clone()) } else { pads(node, rank)? };
        let mut out = Windows { sizes, strides, dilations, low, high, beyond: none, places: vec![] };
        let ceil = node.int_or("ceil_mode", 0)? != 0;
        for (axis, extent) in extents.iter().enumerate() {
            match auto {
                Some(upper) => out.keep_extent(axis, extent, upper),
                None => out.fit(axis, extent, ceil),
            }
        }
        Ok(out)
    }

    /// Number of elements from the first to the last one that a window reads.
    fn span(&self, axis: usize) -> Dim {
        let one = Dim::constant(1);
        (self.sizes[axis].clone() - one.clone()) * Dim::constant(self.dilations[axis]) + one
    }

    /// Number of elements that windows at `places` positions cover.
    fn reach(&self, axis: usize, places: &Dim) -> Dim {
        (places.clone() - Dim::constant(1)) * Dim::constant(self.strides[axis]) + self.span(axis)
    }

    /// Sets ⌈n / stride⌉ positions along an axis, with the padding that they need.
    fn keep_extent(&mut self, axis: usize, extent: &Dim, upper: bool) {
        let places = extent.ceildiv(&Dim::constant(self.strides[axis]));
        let total = (self.reach(axis, &places) - extent.clone()).maximum(&Dim::constant(0));
        (self.low[axis], self.high[axis]) = halves(&total, upper);
        self.places.push(places);
    }

    /// Sets all positions at which the window is inside the padded tensor. With `ceil`, this includes the position at
    /// which the window begins inside and ends outside, unless the window begins in the padding at the end.
    fn fit(&mut self, axis: usize, extent: &Dim, ceil: bool) {
        let (stride, one) = (Dim::constant(self.strides[axis]), Dim::constant(1));
        let begun = extent.clone() + self.low[axis].clone();
        let padded = begun.clone() + self.high[axis].clone();
        let room = padded.clone() - self.span(axis);
        if !ceil {
            return self.places.push(room.floordiv(&stride) + one);
        }
        let begins = (begun - one.clone()).floordiv(&stride) + one.clone();
        let places = (room.ceildiv(&stride) + one).minimum(&begins);
        self.beyond[axis] = (self.reach(axis, &places) - padded).maximum(&Dim::constant(0));
        self.places.push(places);
    }

    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Whether each window has a single element.
    pub fn are_points(&self) -> bool {
        self.sizes.iter().all(|n| n.is_const(1))
    }

    /// Pads the last axes of the operand with `value`, of rank 0.
    pub fn padded(&self, b: &mut Builder, x: Value, value: Value) -> Result<Value> {
        let high: Vec<Dim> = self.high.iter().zip(&self.beyond).map(|(h, more)| h.clone() + more.clone()).collect();
        let lead = vec![Dim::constant(0); b.rank(x) - self.rank()];
        b.pad(x, value, &[lead.as_slice(), &self.low].concat(), &[lead, high].concat())
    }

    /// Returns the windows [.., p, q, i, j] over the last axes of a padded operand.
    pub fn view(&self, b: &mut Builder, padded: Value) -> Result<Value> {
        let first = b.rank(padded) - self.rank();
        let mut x = padded;
        for (i, places) in self.places.iter().enumerate() {
            let (size, stride, dilation) = (self.sizes[i].clone(), self.strides[i], self.dilations[i]);
            x = b.window(x, WindowSpec { axis: first + i, size, stride, dilation }, places.clone())?;
        }
        Ok(x)
    }
}

/// Applies f to an image whose channels are its last dimension; f sees them as dimension 1.
pub fn with_channels_last(
    b: &mut Builder,
    node: &Node,
    x: Value,
    f: impl FnOnce(&mut Builder, Value) -> Result<Value>,
) -> Result<Value> {
    let rank = b.rank(x);
    if rank < 3 {
        return Err(node.error("E0201", format!("takes batch, spatial axes and channels, not {}", b.ty(x))));
    }
    let x = channels_first(b, x)?;
    let y = f(b, x)?;
    channels_last(b, y)
}

/// Moves the channels of an image from the last dimension to dimension 1. The image has a batch and channels.
pub fn channels_first(b: &mut Builder, x: Value) -> Result<Value> {
    let last = b.rank(x) - 1;
    b.transpose(x, [0, last].into_iter().chain(1..last).collect())
}

/// Moves the channels of an image from dimension 1 to the last dimension. The image has a batch and channels.
pub fn channels_last(b: &mut Builder, x: Value) -> Result<Value> {
    let rank = b.rank(x);
    b.transpose(x, [0].into_iter().chain(2..rank).chain([1]).collect())
}

/// Applies f as [`with_channels_last`] does if the node's attribute `channels_last` is set, else directly.
pub fn in_layout(
    b: &mut Builder,
    node: &Node,
    x: Value,
    f: impl FnOnce(&mut Builder, Value) -> Result<Value>,
) -> Result<Value> {
    match node.int_or("channels_last", 0)? {
        0 => f(b, x),
        _ => with_channels_last(b, node, x, f),
    }
}
