//! domain, name, opsets  =>  lowering: the list of all supported ONNX operators
//!
//! To add an operator, add its row (sorted by name), and its lowering in the file of related operators.

use super::builder::Builder;
use super::node::Node;
use super::{
    activation, blocks, contrib, contrib_attention, control, convolution, cumulative, deformable, determinant, einsum,
    generate, gradient, linear_attention, loss, ml_features, ml_models, ml_svm, ml_trees, nchwc, packing, padding,
    pooling, random, ranking, recurrent, regions, resize, rotary, sampling, scatter, select, sequences, signal,
    sparse_attention, statistics, texts, training,
};
use super::{
    attention as a, bits as b, cast as c, elementwise as e, indexing as i, linear as l, qlinear as ql, quantize as q,
    reduction as r, shape as s, trigonometry as t,
};
use sardonyx_base::Result;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

pub type Lower = fn(&mut Builder, &Node) -> Result<Vec<Value>>;

#[derive(Clone, Copy)]
pub enum Lowering {
    Code(Lower),
    /// A scalar function of the broadcast operands.
    Map(ScalarFn),
    /// A scalar function of two operands in reverse order.
    Swapped(ScalarFn),
    /// A scalar function of two operands, folded over any number of operands.
    Fold(ScalarFn),
}

/// An ONNX operator, and its lowering.
pub struct Operator {
    /// Empty for ai.onnx.
    pub domain: &'static str,
    /// The `op_type` of the operator's nodes.
    pub name: &'static str,
    /// First and last opset version that the lowering implements.
    pub opsets: (i64, i64),
    /// How a node is lowered to sdx values.
    pub lowering: Lowering,
    /// Where the operator runs.
    pub device: Device,
}

/// Where an operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// In kernels, on every device.
    Compiled,
    /// On the host, by the runtime, as no kernel can do it: data-dependent sizes, sequences, strings, files.
    Host,
    /// In kernels, except for strings.
    HostForStrings,
    /// In kernels if a certain dimension is a small constant, else on the host: kernels need quadratic time, the host
    /// does not.
    HostForLong,
}

impl Device {
    /// Returns the text that lists of operators show, such as `compiled; strings: host`.
    pub fn name(self) -> &'static str {
        match self {
            Device::Compiled => "compiled",
            Device::Host => "host",
            Device::HostForStrings => "compiled; strings: host",
            Device::HostForLong => "compiled; long or open dimensions: host",
        }
    }
}

const fn onnx(name: &'static str, first: i64, lower: Lower) -> Operator {
    Operator { domain: "", name, opsets: (first, 28), lowering: Lowering::Code(lower), device: Device::Compiled }
}

const fn host(name: &'static str, first: i64, lower: Lower) -> Operator {
    Operator { device: Device::Host, ..onnx(name, first, lower) }
}

/// Marks an operator that runs in kernels, except for strings.
const fn strings_on_host(operator: Operator) -> Operator {
    Operator { device: Device::HostForStrings, ..operator }
}

/// Marks an operator that runs in kernels only if a dimension is short.
const fn long_on_host(operator: Operator) -> Operator {
    Operator { device: Device::HostForLong, ..operator }
}

const fn map(name: &'static str, first: i64, f: ScalarFn) -> Operator {
    Operator { domain: "", name, opsets: (first, 28), lowering: Lowering::Map(f), device: Device::Compiled }
}

const fn swapped(name: &'static str, first: i64, f: ScalarFn) -> Operator {
    Operator { domain: "", name, opsets: (first, 28), lowering: Lowering::Swapped(f), device: Device::Compiled }
}

const fn fold(name: &'static str, first: i64, f: ScalarFn) -> Operator {
    Operator { domain: "", name, opsets: (first, 28), lowering: Lowering::Fold(f), device: Device::Compiled }
}

/// An operator of ai.onnx.ml, up to its version 5.
const fn ml(name: &'static str, first: i64, lower: Lower) -> Operator {
    Operator {
        domain: "ai.onnx.ml",
        name,
        opsets: (first, 5),
        lowering: Lowering::Code(lower),
        device: Device::Compiled,
    }
}

const fn training(name: &'static str, lower: Lower) -> Operator {
    Operator {
        domain: "ai.onnx.preview.training",
        name,
        opsets: (1, 1),
        lowering: Lowering::Code(lower),
        device: Device::Compiled,
    }
}

const fn preview(name: &'static str, lower: Lower) -> Operator {
    Operator {
        domain: "ai.onnx.preview",
        name,
        opsets: (1, 1),
        lowering: Lowering::Code(lower),
        device: Device::Compiled,
    }
}

const fn microsoft(name: &'static str, lower: Lower) -> Operator {
    Operator {
        domain: "com.microsoft",
        name,
        opsets: (1, 1),
        lowering: Lowering::Code(lower),
        device: Device::Compiled,
    }
}

/// An operator that ONNX Runtime's optimiser writes for images in blocks of channels.
const fn blocked(name: &'static str, lower: Lower) -> Operator {
    Operator { domain: "com.microsoft.nchwc", ..microsoft(name, lower) }
}

/// All supported operators, sorted by domain and then by name.
pub static OPERATORS: &[Operator] = &[
    map("Abs", 7, ScalarFn::Abs),
    onnx("Acos", 7, t::acos),
    onnx("Acosh", 9, t::acosh),
    map("Add", 7, ScalarFn::Add),
    onnx("AffineGrid", 20, sampling::affine_grid),
    map("And", 7, ScalarFn::And),
    onnx("ArgMax", 7, ranking::arg_extreme),
    onnx("ArgMin", 7, ranking::arg_extreme),
    onnx("Asin", 7, t::asin),
    onnx("Asinh", 9, t::asinh),
    map("Atan", 7, ScalarFn::Atan),
    onnx("Atanh", 9, t::atanh),
    onnx("Attention", 23, a::attention),
    onnx("AveragePool", 1, pooling::average_pool),
    onnx("BatchNormalization", 1, statistics::batch_normalization),
    onnx("Bernoulli", 15, random::bernoulli),
    onnx("BitCast", 26, c::bit_cast),
    onnx("BitShift", 11, b::bit_shift),
    map("BitwiseAnd", 18, ScalarFn::BitAnd),
    onnx("BitwiseNot", 18, b::bitwise_not),
    map("BitwiseOr", 18, ScalarFn::BitOr),
    map("BitwiseXor", 18, ScalarFn::BitXor),
    onnx("BlackmanWindow", 17, signal::window),
    strings_on_host(onnx("Cast", 7, c::cast)),
    onnx("CastLike", 15, c::cast_like),
    onnx("CausalConvWithState", 27, linear_attention::causal_conv_with_state),
    map("Ceil", 7, ScalarFn::Ceil),
    onnx("Celu", 12, activation::celu),
    onnx("CenterCropPad", 18, padding::center_crop_pad),
    onnx("Clip", 7, e::clip),
    onnx("Col2Im", 18, blocks::col2im),
    host("Compress", 9, select::compress),
    onnx("Concat", 7, s::concat),
    host("ConcatFromSequence", 11, sequences::concat),
    onnx("ConstantOfShape", 9, s::constant_of_shape),
    onnx("Conv", 1, convolution::conv),
    onnx("ConvInteger", 10, ql::conv_integer),
    onnx("ConvTranspose", 1, convolution::conv_transpose),
    map("Cos", 7, ScalarFn::Cos),
    onnx("Cosh", 9, t::cosh),
    onnx("CumProd", 26, cumulative::cumulate),
    onnx("CumSum", 11, cumulative::cumulate),
    long_on_host(onnx("DFT", 17, signal::dft)),
    onnx("DeformConv", 19, deformable::deform_conv),
    onnx("DepthToSpace", 1, blocks::depth_to_space),
    onnx("DequantizeLinear", 10, q::dequantize_linear),
    onnx("Det", 11, determinant::determinant),
    map("Div", 7, ScalarFn::Div),
    onnx("Dropout", 7, random::dropout),
    onnx("DynamicQuantizeLinear", 11, q::dynamic_quantize_linear),
    onnx("Einsum", 12, einsum::einsum),
    onnx("Elu", 7, activation::elu),
    strings_on_host(onnx("Equal", 7, texts::equal)),
    map("Erf", 9, ScalarFn::Erf),
    map("Exp", 7, ScalarFn::Exp),
    onnx("Expand", 8, s::expand),
    onnx("EyeLike", 9, generate::eye_like),
    onnx("Flatten", 7, s::flatten),
    map("Floor", 7, ScalarFn::Floor),
    onnx("GRU", 7, recurrent::recurrent),
    onnx("Gather", 7, i::gather),
    onnx("GatherElements", 11, scatter::gather_elements),
    onnx("GatherND", 11, i::gather_nd),
    onnx("Gelu", 20, e::gelu),
    onnx("Gemm", 7, l::gemm),
    onnx("GlobalAveragePool", 1, pooling::global_average_pool),
    onnx("GlobalLpPool", 2, pooling::global_lp_pool),
    onnx("GlobalMaxPool", 1, pooling::global_max_pool),
    swapped("Greater", 7, ScalarFn::Lt),
    swapped("GreaterOrEqual", 12, ScalarFn::Le),
    onnx("GridSample", 16, sampling::grid_sample),
    onnx("GroupNormalization", 18, statistics::group_normalization),
    onnx("HammingWindow", 17, signal::window),
    onnx("HannWindow", 17, signal::window),
    onnx("HardSigmoid", 7, activation::hard_sigmoid),
    onnx("HardSwish", 14, activation::hard_swish),
    onnx("Hardmax", 7, ranking::hardmax),
    onnx("Identity", 7, e::identity),
    onnx("If", 7, control::if_),
    host("ImageDecoder", 20, texts::image_decoder),
    onnx("InstanceNormalization", 1, statistics::instance_normalization),
    onnx("IsInf", 10, e::is_inf),
    map("IsNaN", 9, ScalarFn::IsNan),
    onnx("LRN", 1, statistics::lrn),
    onnx("LSTM", 7, recurrent::recurrent),
    onnx("LayerNormalization", 1, r::layer_normalization),
    onnx("LeakyRelu", 7, e::leaky_relu),
    map("Less", 7, ScalarFn::Lt),
    map("LessOrEqual", 12, ScalarFn::Le),
    onnx("LinearAttention", 27, linear_attention::linear_attention),
    map("Log", 7, ScalarFn::Log),
    onnx("LogSoftmax", 7, r::softmax),
    onnx("Loop", 7, control::loop_),
    onnx("LpNormalization", 7, r::lp_normalization),
    onnx("LpPool", 2, pooling::lp_pool),
    onnx("MatMul", 7, l::matmul),
    onnx("MatMulInteger", 10, ql::matmul_integer),
    fold("Max", 7, ScalarFn::Max),
    onnx("MaxPool", 1, pooling::max_pool),
    onnx("MaxRoiPool", 1, pooling::max_roi_pool),
    long_on_host(onnx("MaxUnpool", 9, pooling::max_unpool)),
    onnx("Mean", 7, e::mean),
    onnx("MeanVarianceNormalization", 9, statistics::mean_variance_normalization),
    onnx("MelWeightMatrix", 17, signal::mel_weight_matrix),
    fold("Min", 7, ScalarFn::Min),
    onnx("Mish", 18, activation::mish),
    onnx("Mod", 10, b::modulo),
    map("Mul", 7, ScalarFn::Mul),
    onnx("Multinomial", 7, random::multinomial),
    map("Neg", 7, ScalarFn::Neg),
    onnx("NegativeLogLikelihoodLoss", 12, loss::negative_log_likelihood),
    host("NonMaxSuppression", 10, select::non_max_suppression),
    host("NonZero", 9, select::nonzero),
    map("Not", 7, ScalarFn::Not),
    onnx("OneHot", 9, generate::one_hot),
    host("Optional", 15, sequences::optional),
    host("OptionalGetElement", 15, sequences::get_element),
    host("OptionalHasElement", 15, sequences::has_element),
    map("Or", 7, ScalarFn::Or),
    onnx("PRelu", 7, activation::prelu),
    onnx("Pad", 1, padding::pad),
    onnx("Pow", 7, e::pow),
    onnx("QLinearConv", 10, ql::qlinear_conv),
    onnx("QLinearMatMul", 10, ql::qlinear_matmul),
    onnx("QuantizeLinear", 10, q::quantize_linear),
    onnx("RMSNormalization", 23, r::layer_normalization),
    onnx("RNN", 7, recurrent::recurrent),
    onnx("RandomNormal", 7, random::random),
    onnx("RandomNormalLike", 7, random::random),
    onnx("RandomUniform", 7, random::random),
    onnx("RandomUniformLike", 7, random::random),
    onnx("Range", 11, s::range),
    onnx("Reciprocal", 7, e::reciprocal),
    onnx("ReduceL1", 7, r::reduce),
    onnx("ReduceL2", 7, r::reduce),
    onnx("ReduceLogSum", 7, r::reduce),
    onnx("ReduceLogSumExp", 7, r::reduce),
    onnx("ReduceMax", 7, r::reduce),
    onnx("ReduceMean", 7, r::reduce),
    onnx("ReduceMin", 7, r::reduce),
    onnx("ReduceProd", 7, r::reduce),
    onnx("ReduceSum", 7, r::reduce),
    onnx("ReduceSumSquare", 7, r::reduce),
    host("RegexFullMatch", 20, texts::full_match),
    onnx("Relu", 7, e::relu),
    onnx("Reshape", 7, s::reshape),
    onnx("Resize", 10, resize::resize),
    onnx("ReverseSequence", 10, generate::reverse_sequence),
    onnx("RoiAlign", 10, regions::roi_align),
    onnx("RotaryEmbedding", 23, rotary::rotary_embedding),
    map("Round", 11, ScalarFn::Round),
    long_on_host(onnx("STFT", 17, signal::stft)),
    onnx("Scan", 8, control::scan),
    long_on_host(onnx("Scatter", 9, scatter::scatter_elements)),
    long_on_host(onnx("ScatterElements", 11, scatter::scatter_elements)),
    long_on_host(onnx("ScatterND", 11, scatter::scatter_nd)),
    onnx("Selu", 7, activation::selu),
    host("SequenceAt", 11, sequences::at),
    host("SequenceConstruct", 11, sequences::construct),
    host("SequenceEmpty", 11, sequences::empty),
    host("SequenceErase", 11, sequences::erase),
    host("SequenceInsert", 11, sequences::insert),
    host("SequenceLength", 11, sequences::length),
    host("SequenceMap", 17, sequences::map),
    onnx("Shape", 7, s::shape),
    onnx("Shrink", 9, activation::shrink),
    onnx("Sigmoid", 7, e::sigmoid),
    map("Sign", 9, ScalarFn::Sign),
    // ONNX Runtime's optimiser writes this operator under the default domain.
    onnx("SimplifiedLayerNormalization", 1, r::layer_normalization),
    map("Sin", 7, ScalarFn::Sin),
    onnx("Sinh", 9, t::sinh),
    onnx("Size", 7, s::size),
    onnx("Slice", 7, i::slice),
    onnx("Softmax", 7, r::softmax),
    onnx("SoftmaxCrossEntropyLoss", 12, loss::cross_entropy),
    onnx("Softplus", 7, activation::softplus),
    onnx("Softsign", 7, activation::softsign),
    onnx("SpaceToDepth", 1, blocks::space_to_depth),
    onnx("Split", 7, i::split),
    host("SplitToSequence", 11, sequences::split),
    map("Sqrt", 7, ScalarFn::Sqrt),
    onnx("Squeeze", 7, s::squeeze),
    host("StringConcat", 20, texts::concat),
    host("StringNormalizer", 10, texts::normalize),
    host("StringSplit", 20, texts::split),
    map("Sub", 7, ScalarFn::Sub),
    fold("Sum", 7, ScalarFn::Add),
    onnx("SwiGLU", 28, activation::swiglu),
    onnx("Swish", 24, activation::swish),
    onnx("Tan", 7, t::tan),
    map("Tanh", 7, ScalarFn::Tanh),
    onnx("TensorScatter", 24, scatter::tensor_scatter),
    host("TfIdfVectorizer", 9, texts::tf_idf),
    onnx("ThresholdedRelu", 10, activation::thresholded_relu),
    onnx("Tile", 7, generate::tile),
    long_on_host(onnx("TopK", 7, ranking::top_k)),
    onnx("Transpose", 7, s::transpose),
    onnx("Trilu", 14, generate::trilu),
    host("Unique", 11, select::unique),
    onnx("Unsqueeze", 7, s::unsqueeze),
    onnx("Upsample", 1, resize::upsample),
    onnx("Where", 9, e::where_),
    map("Xor", 7, ScalarFn::Xor),
    ml("ArrayFeatureExtractor", 1, ml_features::array_feature_extractor),
    ml("Binarizer", 1, ml_features::binarizer),
    Operator { device: Device::Host, ..ml("CastMap", 1, sequences::cast_map) },
    strings_on_host(ml("CategoryMapper", 1, texts::label_encoder)),
    Operator { device: Device::Host, ..ml("DictVectorizer", 1, sequences::dict_vectorizer) },
    ml("FeatureVectorizer", 1, ml_features::feature_vectorizer),
    ml("Imputer", 1, ml_features::imputer),
    strings_on_host(ml("LabelEncoder", 1, texts::label_encoder)),
    ml("LinearClassifier", 1, ml_models::linear_classifier),
    ml("LinearRegressor", 1, ml_models::linear_regressor),
    ml("Normalizer", 1, ml_features::normalizer),
    ml("OneHotEncoder", 1, ml_features::one_hot_encoder),
    ml("SVMClassifier", 1, ml_svm::svm_classifier),
    ml("SVMRegressor", 1, ml_models::svm_regressor),
    ml("Scaler", 1, ml_features::scaler),
    ml("TreeEnsemble", 5, ml_trees::tree_ensemble),
    ml("TreeEnsembleClassifier", 1, ml_trees::tree_ensemble_classifier),
    ml("TreeEnsembleRegressor", 1, ml_trees::tree_ensemble_regressor),
    Operator { device: Device::Host, ..ml("ZipMap", 1, sequences::zip_map) },
    preview("FlexAttention", a::flex_attention),
    training("Adagrad", training::adagrad),
    training("Adam", training::adam),
    training("Gradient", gradient::gradient),
    training("Momentum", training::momentum),
    microsoft("Attention", contrib_attention::stacked_attention),
    microsoft("BiasAdd", contrib::bias_add),
    microsoft("BiasGelu", e::bias_gelu),
    microsoft("BiasSoftmax", contrib::bias_softmax),
    microsoft("BiasSplitGelu", contrib::bias_split_gelu),
    microsoft("CDist", contrib::distances),
    microsoft("DequantizeLinear", q::dequantize_linear),
    microsoft("DynamicQuantizeLSTM", recurrent::quantized_lstm),
    microsoft("DynamicQuantizeMatMul", ql::dynamic_quantize_matmul),
    microsoft("EmbedLayerNormalization", contrib::embed_layer_normalization),
    microsoft("FastGelu", e::bias_gelu),
    microsoft("FusedConv", convolution::fused_conv),
    microsoft("FusedGemm", contrib::fused_gemm),
    microsoft("FusedMatMul", contrib::fused_matmul),
    microsoft("GatherBlockQuantized", ql::gather_block_quantized),
    microsoft("Gelu", e::bias_gelu),
    microsoft("GemmFastGelu", contrib::gemm_fast_gelu),
    microsoft("GroupNorm", statistics::microsoft_group_norm),
    microsoft("GroupQueryAttention", contrib_attention::group_query_attention),
    microsoft("MatMulIntegerToFloat", ql::matmul_integer_to_float),
    microsoft("MatMulNBits", ql::matmul_nbits),
    microsoft("MultiHeadAttention", contrib_attention::multi_head_attention),
    microsoft("NhwcFusedConv", convolution::nhwc_fused_conv),
    microsoft("NhwcMaxPool", pooling::nhwc_max_pool),
    microsoft("PackedAttention", contrib_attention::packed_attention),
    microsoft("QAttention", contrib_attention::quantized_attention),
    microsoft("QEmbedLayerNormalization", contrib::quantized_embed_layer_normalization),
    microsoft("QGemm", ql::qgemm),
    microsoft("QLinearAdd", ql::qlinear_add),
    microsoft("QLinearAveragePool", ql::qlinear_average_pool),
    microsoft("QLinearConcat", ql::qlinear_concat),
    microsoft("QLinearConv", ql::qlinear_conv),
    microsoft("QLinearGlobalAveragePool", ql::qlinear_global_average_pool),
    microsoft("QLinearLeakyRelu", ql::qlinear_leaky_relu),
    microsoft("QLinearMul", ql::qlinear_mul),
    microsoft("QLinearReduceMean", ql::qlinear_reduce_mean),
    microsoft("QLinearSigmoid", ql::qlinear_sigmoid),
    microsoft("QLinearSoftmax", ql::qlinear_softmax),
    microsoft("QLinearWhere", ql::qlinear_where),
    microsoft("QuantizeLinear", q::quantize_linear),
    microsoft("QuickGelu", contrib::quick_gelu),
    microsoft("RemovePadding", packing::remove_padding),
    microsoft("RestorePadding", packing::restore_padding),
    microsoft("RotaryEmbedding", rotary::microsoft_rotary_embedding),
    microsoft("SkipGroupNorm", statistics::microsoft_group_norm),
    microsoft("SkipLayerNormalization", r::skip_layer_normalization),
    microsoft("SkipSimplifiedLayerNormalization", r::skip_layer_normalization),
    microsoft("SparseAttention", sparse_attention::sparse_attention),
    microsoft("TransposeMatMul", contrib::fused_matmul),
    microsoft("Trilu", generate::trilu),
    blocked("AveragePool", nchwc::average_pool),
    blocked("Conv", nchwc::conv),
    blocked("GlobalAveragePool", nchwc::global_average_pool),
    blocked("GlobalMaxPool", nchwc::global_max_pool),
    blocked("MaxPool", nchwc::max_pool),
    blocked("ReorderInput", nchwc::reorder_input),
    blocked("ReorderOutput", nchwc::reorder_output),
    blocked("Upsample", nchwc::upsample),
];

/// The row for a node, or the operator's full name for the diagnostic.
pub fn find(node: &Node) -> std::result::Result<&'static Operator, String> {
    lookup(&node.domain, &node.op_type, node.opset)
}

pub fn lookup(domain: &str, op_type: &str, opset: i64) -> std::result::Result<&'static Operator, String> {
    let row = OPERATORS.iter().find(|row| row.domain == domain && row.name == op_type);
    let wanted = || if domain.is_empty() { op_type.to_string() } else { format!("{domain}.{op_type}") };
    let row = row.ok_or_else(wanted)?;
    // Before opset 7 introduced numpy's broadcasting, the operators were the same, except for attributes that their
    // lowerings handle.
    let first = if domain.is_empty() && row.opsets.0 == 7 { 1 } else { row.opsets.0 };
    match (first..=row.opsets.1).contains(&opset) {
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
