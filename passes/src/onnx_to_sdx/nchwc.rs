//! com.microsoft.nchwc: blocked images  =>  images of whole blocks of channels in the usual order
//!
//! ONNX Runtime's optimiser writes convolution nets for the machine that it runs on: the channels of images are in
//! blocks of 8 or 16, the last block filled with zeros, and weights are stored in the order in which the kernels of
//! ONNX Runtime read them. Shapes are written as in the usual order, without blocks, except around a sum of operands
//! whose shapes are not known to be equal: there the optimiser writes two Reshapes, one that shows the blocks as a last
//! dimension and one that hides them again. The file does not say how large a block is, so the option `--nchwc-block`
//! does. A wrong size that fits all shapes gives wrong results.

use super::builder::Builder;
use super::convolution::{conv_with_weights, summed_and_activated};
use super::node::Node;
use super::windows::{channels_first, channels_last, spatial};
use super::{pooling, resize};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

/// Returns the number of channels of a block.
fn block(b: &Builder, node: &Node) -> Result<i64> {
    b.nchwc_block.ok_or_else(|| {
        let message = "its channels are in blocks whose size is that of the machine which wrote the file, and which the file does not say";
        node.error("E0101", message).help(
            "`sardonyx compile --nchwc-block 16` if that machine has AVX-512 or is an arm64, else 8 (a wrong number gives wrong \
             results); or optimise with ORT_ENABLE_EXTENDED at most",
        )
    })
}

/// Returns the number of channels of an image, which must fill whole blocks.
fn whole_blocks(b: &Builder, node: &Node, x: Value) -> Result<i64> {
    let block = block(b, node)?;
    spatial(b, node, x)?;
    let n = channels(b, node, x, 1)?;
    match n % block {
        0 => Ok(n),
        _ => Err(node.error("E0201", format!("{} is not in blocks of {block} channels", b.ty(x))).help(OTHER_MACHINE)),
    }
}

const OTHER_MACHINE: &str = "`--nchwc-block` is that of the machine which wrote the file";

/// Returns the number of channels, which must be a constant in this format.
fn channels(b: &Builder, node: &Node, v: Value, axis: usize) -> Result<i64> {
    let known = b.dims(v).get(axis).and_then(Dim::as_const);
    known.ok_or_else(|| node.error("E0201", format!("takes a constant number of channels, not {}", b.ty(v))))
}

pub fn reorder_input(b: &mut Builder, node: &Node) -> Outputs {
    let (x, block) = (node.input(0)?, block(b, node)?);
    spatial(b, node, x)?;
    let x = match node.int_or("channels_last", 0)? {
        0 => x,
        _ => channels_first(b, x)?,
    };
    let n = channels(b, node, x, 1)?;
    let (none, mut more) = (vec![Dim::constant(0); b.rank(x)], vec![Dim::constant(0); b.rank(x)]);
    more[1] = Dim::constant((block - n % block) % block);
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    Ok(vec![b.pad(x, zero, &none, &more)?])
}

pub fn reorder_output(b: &mut Builder, node: &Node) -> Outputs {
    let (x, n) = (node.input(0)?, node.require("channels", node.int("channels")?)?);
    let (block, all) = (block(b, node)?, whole_blocks(b, node, x)?);
    if !(1..=all).contains(&n) || all - n >= block {
        let message = format!("`channels` = {n} are not those of {all} in blocks of {block}");
        return Err(node.error("E0106", message).help(OTHER_MACHINE));
    }
    let x = b.slice_axis(x, 1, Dim::constant(0), 1, Dim::constant(n))?;
    Ok(vec![match node.int_or("channels_last", 0)? {
        0 => x,
        _ => channels_last(b, x)?,
    }])
}

/// Conv: a convolution with weights in blocks, then the addition of the input `Sum`, if there is one, and an
/// activation.
pub fn conv(b: &mut Builder, node: &Node) -> Outputs {
    let (x, w, block) = (node.input(0)?, node.input(1)?, block(b, node)?);
    spatial(b, node, x)?;
    // An image with fewer channels than a block is in the usual order, without blocks.
    if channels(b, node, x, 1)? >= block {
        whole_blocks(b, node, x)?;
    }
    let w = in_order(b, node, w, block)?;
    let y = conv_with_weights(b, node, x, w)?;
    Ok(vec![summed_and_activated(b, node, y)?])
}

/// Returns weights in the order of their shape [out, in, …]. They are stored as [out / block, in / block, …, block of
/// in, block of out] if the input channels fill whole blocks, else as [out / block, in, …, block of out].
fn in_order(b: &mut Builder, node: &Node, w: Value, block: i64) -> Result<Value> {
    let (out, inputs) = (channels(b, node, w, 0)?, channels(b, node, w, 1)?);
    let is_whole = inputs % block == 0;
    if out % block != 0 || (!is_whole && inputs > block) {
        let message = format!("{} is not in blocks of {block} channels", b.ty(w));
        return Err(node.error("E0201", message).help(OTHER_MACHINE));
    }
    let (dims, count) = (b.dims(w), |n: i64| Dim::constant(n));
    // The offsets of a window are dimensions 2 to `last` of what is stored.
    let (offsets, last) = (&dims[2..], dims.len());
    let (blocks, within, perm): (i64, Vec<Dim>, Vec<usize>) = match is_whole {
        true => (inputs / block, vec![count(block); 2], [0, last + 1, 1, last].into_iter().chain(2..last).collect()),
        false => (inputs, vec![count(block)], [0, last, 1].into_iter().chain(2..last).collect()),
    };
    let stored = [&[count(out / block), count(blocks)][..], offsets, &within].concat();
    let w = b.reshape(w, &stored)?;
    let w = b.transpose(w, perm)?;
    b.reshape(w, &dims)
}

/// Lowers an operator whose meaning does not depend on blocks.
fn unblocked(b: &mut Builder, node: &Node, lower: fn(&mut Builder, &Node) -> Outputs) -> Outputs {
    whole_blocks(b, node, node.input(0)?)?;
    lower(b, node)
}

pub fn average_pool(b: &mut Builder, node: &Node) -> Outputs {
    unblocked(b, node, pooling::average_pool)
}

pub fn max_pool(b: &mut Builder, node: &Node) -> Outputs {
    unblocked(b, node, pooling::max_pool)
}

pub fn global_average_pool(b: &mut Builder, node: &Node) -> Outputs {
    unblocked(b, node, pooling::global_average_pool)
}

pub fn global_max_pool(b: &mut Builder, node: &Node) -> Outputs {
    unblocked(b, node, pooling::global_max_pool)
}

pub fn upsample(b: &mut Builder, node: &Node) -> Outputs {
    unblocked(b, node, resize::blocked_upsample)
}

/// A Reshape to [0, blocks, 0, 0, block] shows the blocks of an image: [batch, block number, height, width, channel of
/// the block]. A Reshape of such an image to [0, channels, 0, 0] hides them again. In both, -1 may stand for the second
/// number. Returns the result of a Reshape of these two kinds, and `None` for others.
pub fn reshaped(b: &mut Builder, node: &Node, x: Value, target: &[Dim]) -> Result<Option<Value>> {
    let Some(block) = b.nchwc_block else { return Ok(None) };
    let (dims, target) = (b.dims(x), target.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>());
    match (&dims[..], target.as_deref()) {
        ([_, all, _, _], Some(&[0, blocks, 0, 0, last])) if last == 8 || last == 16 => {
            let all = all.as_const().filter(|all| all % last == 0 && (blocks == -1 || blocks == all / last));
            let Some(all) = all else { return Ok(None) };
            if last != block {
                let message = format!("it shows blocks of {last} channels, not of {block}");
                return Err(node.error("E0201", message).help(OTHER_MACHINE));
            }
            let x = b.split_axis(x, 1, Dim::constant(all / block))?;
            b.transpose(x, vec![0, 1, 3, 4, 2]).map(Some)
        }
        ([n, blocks, height, width, last], Some(&[0, all, 0, 0])) if last.is_const(block) => {
            let channels = blocks.clone() * last.clone();
            if all != -1 && !channels.is_const(all) {
                return Ok(None);
            }
            let dims = [n.clone(), channels, height.clone(), width.clone()];
            let x = b.transpose(x, vec![0, 1, 4, 2, 3])?;
            b.reshape(x, &dims).map(Some)
        }
        _ => Ok(None),
    }
}
