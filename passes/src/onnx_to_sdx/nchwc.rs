//! com.microsoft.nchwc: blocked images  =>  images of whole blocks of channels in the usual order
//!
//! ONNX Runtime's optimiser writes convolution nets for the machine that it runs on: the channels of images are in
//! blocks of as many as a vector register holds floats, the last block filled with zeros, and weights are stored in the
//! order in which its kernels read them. Shapes are those of the usual order. The file does not say how large a block
//! is, so the option `nchwc-block` does.

use super::builder::Builder;
use super::convolution::{conv_with_weights, summed_and_activated};
use super::node::Node;
use super::windows::spatial;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

/// Returns the number of channels of a block.
fn block(b: &Builder, node: &Node) -> Result<i64> {
    b.nchwc_block.ok_or_else(|| {
        let message = "its channels are in blocks whose size is that of the machine which wrote the file, and which the file does not say";
        node.error("E0101", message).help(
            "compile with `--nchwc-block 16` if that machine has AVX-512, with `--nchwc-block 8` if not; or optimise with \
             ORT_ENABLE_EXTENDED at most",
        )
    })
}

/// Returns the number of channels, which the format wants to be a constant.
fn channels(b: &Builder, node: &Node, v: Value, axis: usize) -> Result<i64> {
    let known = b.dims(v).get(axis).and_then(Dim::as_const);
    known.ok_or_else(|| node.error("E0201", format!("takes a constant number of channels, not {}", b.ty(v))))
}

pub fn reorder_input(b: &mut Builder, node: &Node) -> Outputs {
    let (x, block) = (node.input(0)?, block(b, node)?);
    spatial(b, node, x)?;
    let x = match node.int_or("channels_last", 0)? {
        0 => x,
        _ => {
            let last = b.rank(x) - 1;
            b.transpose(x, [0, last].into_iter().chain(1..last).collect())?
        }
    };
    let n = channels(b, node, x, 1)?;
    let (none, mut more) = (vec![Dim::constant(0); b.rank(x)], vec![Dim::constant(0); b.rank(x)]);
    more[1] = Dim::constant((block - n % block) % block);
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    Ok(vec![b.pad(x, zero, &none, &more)?])
}

pub fn reorder_output(b: &mut Builder, node: &Node) -> Outputs {
    let (x, n) = (node.input(0)?, node.require("channels", node.int("channels")?)?);
    block(b, node)?;
    spatial(b, node, x)?;
    let all = channels(b, node, x, 1)?;
    if !(1..=all).contains(&n) {
        return Err(node.error("E0106", format!("`channels` = {n} of {all}")));
    }
    let x = b.slice_axis(x, 1, Dim::constant(0), 1, Dim::constant(n))?;
    Ok(vec![match node.int_or("channels_last", 0)? {
        0 => x,
        _ => b.transpose(x, [0].into_iter().chain(2..b.rank(x)).chain([1]).collect())?,
    }])
}

/// Conv: a convolution with weights in blocks, a sum with `Sum`, and an activation.
pub fn conv(b: &mut Builder, node: &Node) -> Outputs {
    let (w, block) = (node.input(1)?, block(b, node)?);
    let w = in_order(b, node, w, block)?;
    let y = conv_with_weights(b, node, node.input(0)?, w)?;
    Ok(vec![summed_and_activated(b, node, y)?])
}

/// Returns weights in the order of their shape [out, in, …]. They are stored as [out / block, in / block, …, block of
/// in, block of out] if there is a whole block of input channels, else as [out / block, in, …, block of out].
fn in_order(b: &mut Builder, node: &Node, w: Value, block: i64) -> Result<Value> {
    let (out, inputs) = (channels(b, node, w, 0)?, channels(b, node, w, 1)?);
    let is_whole = inputs % block == 0;
    if out % block != 0 || (!is_whole && inputs > block) {
        let message = format!("{} is not in blocks of {block} channels", b.ty(w));
        return Err(node.error("E0201", message).help("`--nchwc-block` is that of the machine which wrote the file"));
    }
    let (dims, count) = (b.dims(w), |n: i64| Dim::constant(n));
    let offsets = dims[2..].to_vec();
    let (stored, perm) = match is_whole {
        true => {
            let last = offsets.len() + 2;
            let perm: Vec<usize> = [0, last + 1, 1, last].into_iter().chain(2..last).collect();
            ([&[count(out / block), count(inputs / block)], &offsets[..], &[count(block), count(block)]].concat(), perm)
        }
        false => {
            let last = offsets.len() + 2;
            let perm: Vec<usize> = [0, last, 1].into_iter().chain(2..last).collect();
            ([&[count(out / block), count(inputs)], &offsets[..], &[count(block)]].concat(), perm)
        }
    };
    let w = b.reshape(w, &stored)?;
    let w = b.transpose(w, perm)?;
    b.reshape(w, &dims)
}
