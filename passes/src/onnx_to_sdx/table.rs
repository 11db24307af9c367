//! domain, name, opsets  =>  lowering: the one list of ONNX operators
//!
//! To add an operator, add its row (sorted by name) and its lowering, in the file of its kin.

use super::builder::Builder;
use super::node::Node;
use super::{attention as a, elementwise as e, indexing as i, linear as l, reduction as r, shape as s};
use super::{blocks, convolution, deformable, padding, pooling, regions, resize, sampling, statistics};
use sardonyx_dialects::sdx::Value;
use sardonyx_runtime::Result;

pub type Lower = fn(&mut Builder, &Node) -> Result<Vec<Value>>;

pub struct Operator {
    /// Empty for ai.onnx.
    pub domain: &'static str,
    pub name: &'static str,
    /// First and last opset version whose meaning the lowering has.
    pub opsets: (i64, i64),
    pub lower: Lower,
}

const fn onnx(name: &'static str, first: i64, lower: Lower) -> Operator {
    Operator { domain: "", name, opsets: (first, 28), lower }
}

const fn microsoft(name: &'static str, lower: Lower) -> Operator {
    Operator { domain: "com.microsoft", name, opsets: (1, 1), lower }
}

pub static OPERATORS: &[Operator] = &[
    onnx("Abs", 7, e::unary),
    onnx("Add", 7, e::binary),
    onnx("AffineGrid", 20, sampling::affine_grid),
    onnx("And", 7, e::binary),
    onnx("Attention", 23, a::attention),
    onnx("AveragePool", 1, pooling::average_pool),
    onnx("BatchNormalization", 1, statistics::batch_normalization),
    onnx("Cast", 7, e::cast),
    onnx("Ceil", 7, e::unary),
    onnx("CenterCropPad", 18, padding::center_crop_pad),
    onnx("Clip", 7, e::clip),
    onnx("Col2Im", 18, blocks::col2im),
    onnx("Concat", 7, s::concat),
    onnx("ConstantOfShape", 9, s::constant_of_shape),
    onnx("Conv", 1, convolution::conv),
    onnx("ConvTranspose", 1, convolution::conv_transpose),
    onnx("Cos", 7, e::unary),
    onnx("DeformConv", 19, deformable::deform_conv),
    onnx("DepthToSpace", 1, blocks::depth_to_space),
    onnx("Div", 7, e::binary),
    onnx("Dropout", 7, e::identity),
    onnx("Equal", 7, e::binary),
    onnx("Erf", 9, e::unary),
    onnx("Exp", 7, e::unary),
    onnx("Expand", 8, s::expand),
    onnx("Flatten", 7, s::flatten),
    onnx("Floor", 7, e::unary),
    onnx("Gather", 7, i::gather),
    onnx("GatherND", 11, i::gather_nd),
    onnx("Gelu", 20, e::gelu),
    onnx("Gemm", 7, l::gemm),
    onnx("GlobalAveragePool", 1, pooling::global_average_pool),
    onnx("GlobalLpPool", 2, pooling::global_lp_pool),
    onnx("GlobalMaxPool", 1, pooling::global_max_pool),
    onnx("Greater", 7, e::binary),
    onnx("GreaterOrEqual", 12, e::binary),
    onnx("GridSample", 16, sampling::grid_sample),
    onnx("GroupNormalization", 18, statistics::group_normalization),
    onnx("Identity", 7, e::identity),
    onnx("InstanceNormalization", 1, statistics::instance_normalization),
    onnx("IsNaN", 9, e::unary),
    onnx("LRN", 1, statistics::lrn),
    onnx("LayerNormalization", 17, r::layer_normalization),
    onnx("LeakyRelu", 7, e::leaky_relu),
    onnx("Less", 7, e::binary),
    onnx("LessOrEqual", 12, e::binary),
    onnx("Log", 7, e::unary),
    onnx("LogSoftmax", 7, r::softmax),
    onnx("LpPool", 2, pooling::lp_pool),
    onnx("MatMul", 7, l::matmul),
    onnx("Max", 8, e::variadic),
    onnx("MaxPool", 1, pooling::max_pool),
    onnx("MaxRoiPool", 1, pooling::max_roi_pool),
    onnx("MaxUnpool", 9, pooling::max_unpool),
    onnx("Mean", 8, e::variadic),
    onnx("MeanVarianceNormalization", 9, statistics::mean_variance_normalization),
    onnx("Min", 8, e::variadic),
    onnx("Mul", 7, e::binary),
    onnx("Neg", 7, e::unary),
    onnx("Not", 7, e::unary),
    onnx("Or", 7, e::binary),
    onnx("Pad", 1, padding::pad),
    onnx("Pow", 7, e::pow),
    onnx("RMSNormalization", 23, r::layer_normalization),
    onnx("Range", 11, s::range),
    onnx("Reciprocal", 7, e::reciprocal),
    onnx("ReduceL2", 7, r::reduce),
    onnx("ReduceMax", 7, r::reduce),
    onnx("ReduceMean", 7, r::reduce),
    onnx("ReduceMin", 7, r::reduce),
    onnx("ReduceProd", 7, r::reduce),
    onnx("ReduceSum", 7, r::reduce),
    onnx("ReduceSumSquare", 7, r::reduce),
    onnx("Relu", 7, e::relu),
    onnx("Reshape", 7, s::reshape),
    onnx("Resize", 10, resize::resize),
    onnx("RoiAlign", 10, regions::roi_align),
    onnx("RotaryEmbedding", 23, a::rotary_embedding),
    onnx("Round", 11, e::unary),
    onnx("Shape", 7, s::shape),
    onnx("Sigmoid", 7, e::sigmoid),
    onnx("Sign", 9, e::unary),
    // Written by ONNX Runtime's optimiser under the plain domain.
    onnx("SimplifiedLayerNormalization", 1, r::layer_normalization),
    onnx("Sin", 7, e::unary),
    onnx("Size", 7, s::size),
    onnx("Slice", 7, i::slice),
    onnx("Softmax", 7, r::softmax),
    onnx("SpaceToDepth", 1, blocks::space_to_depth),
    onnx("Split", 7, i::split),
    onnx("Sqrt", 7, e::unary),
    onnx("Squeeze", 7, s::squeeze),
    onnx("Sub", 7, e::binary),
    onnx("Sum", 8, e::variadic),
    onnx("Tanh", 7, e::unary),
    onnx("Transpose", 7, s::transpose),
    onnx("Unsqueeze", 7, s::unsqueeze),
    onnx("Upsample", 1, resize::upsample),
    onnx("Where", 9, e::where_),
    onnx("Xor", 7, e::binary),
    microsoft("Attention", a::stacked_attention),
    microsoft("BiasGelu", e::bias_gelu),
    microsoft("EmbedLayerNormalization", a::embed_layer_normalization),
    microsoft("FastGelu", e::bias_gelu),
    microsoft("FusedConv", convolution::fused_conv),
    microsoft("Gelu", e::bias_gelu),
    microsoft("NhwcMaxPool", pooling::nhwc_max_pool),
    microsoft("SkipLayerNormalization", r::skip_layer_normalization),
    microsoft("SkipSimplifiedLayerNormalization", r::skip_layer_normalization),
];

/// The row that serves a node, or the operator's full name for the diagnostic.
pub fn find(node: &Node) -> std::result::Result<&'static Operator, String> {
    lookup(&node.domain, &node.op_type, node.opset)
}

pub fn lookup(domain: &str, op_type: &str, opset: i64) -> std::result::Result<&'static Operator, String> {
    let row = OPERATORS.iter().find(|row| row.domain == domain && row.name == op_type);
    let wanted = || if domain.is_empty() { op_type.to_string() } else { format!("{domain}.{op_type}") };
    let row = row.ok_or_else(wanted)?;
    match (row.opsets.0..=row.opsets.1).contains(&opset) {
        true => Ok(row),
        false => Err(format!("{} (opset {opset})", wanted())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_unique() {
        assert!(OPERATORS.windows(2).all(|w| (w[0].domain, w[0].name) < (w[1].domain, w[1].name)));
    }
}
