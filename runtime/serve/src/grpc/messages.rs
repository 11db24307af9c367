//! The messages of KServe's `grpc_predict_v2.proto` (package `inference`), as prost reads and writes them
//!
//! Source: kserve/open-inference-protocol, `specification/protocol/open_inference_grpc.proto`, which defines the field
//! numbers.

use std::collections::BTreeMap;

/// Asks whether the server runs.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ServerLiveRequest {}

/// Answer to [`ServerLiveRequest`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ServerLiveResponse {
    /// Whether the server runs; always true, since it answers.
    #[prost(bool, tag = "1")]
    pub live: bool,
}

/// Asks whether the server accepts requests.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ServerReadyRequest {}

/// Answer to [`ServerReadyRequest`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ServerReadyResponse {
    /// Whether the server accepts requests; false from the start of its shutdown.
    #[prost(bool, tag = "1")]
    pub ready: bool,
}

/// Asks whether a model can be called.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelReadyRequest {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the model; an empty text selects the version that is served.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Answer to [`ModelReadyRequest`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ModelReadyResponse {
    /// Whether the server is ready and serves the model in this version.
    #[prost(bool, tag = "1")]
    pub ready: bool,
}

/// Asks for a description of the server.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ServerMetadataRequest {}

/// Answer to [`ServerMetadataRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ServerMetadataResponse {
    /// Name of the server, `sardonyx-serve`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the server's package.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Names of the protocol extensions that the server supports, such as `statistics`.
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

/// Asks for a description of a model.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelMetadataRequest {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the model; an empty text selects the version that is served.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Answer to [`ModelMetadataRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelMetadataResponse {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Versions that are served; always one.
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    /// Format of the model, `sardonyx_sdx`.
    #[prost(string, tag = "3")]
    pub platform: String,
    /// Inputs, in the order of the model.
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    /// Outputs that the protocol can carry, in the order of the model.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
}

/// Description of an input or output of a model.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TensorMetadata {
    /// Name of the input or output.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Protocol's name of the element type, such as `FP32`; `UNSUPPORTED` if it has none.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Size of each dimension, outermost first; -1 if it is not constant.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

/// Asks for one inference.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModelInferRequest {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Version of the model; an empty text selects the version that is served.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// Identifier chosen by the client, which the response repeats.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Parameters of the request. Only `timeout`, in microseconds, is used.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    /// All inputs of the model, in any order.
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InferInputTensor>,
    /// Outputs that the response shall contain; all if empty.
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<InferRequestedOutputTensor>,
    /// The bytes of each input, in order, instead of `contents`.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: Vec<bytes::Bytes>,
}

/// An input of a request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferInputTensor {
    /// Name of the input in the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Protocol's name of the element type, such as `FP32`.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Size of each dimension, outermost first; none is negative.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    /// Parameters of the input, which are ignored.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    /// Elements of the input; `None` if they are sent as `raw_input_contents`.
    #[prost(message, optional, tag = "5")]
    pub contents: Option<InferTensorContents>,
}

/// An output that a request asks for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferRequestedOutputTensor {
    /// Name of the output in the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Parameters of the output, which are ignored.
    #[prost(btree_map = "string, message", tag = "2")]
    pub parameters: BTreeMap<String, InferParameter>,
}

/// Answer to [`ModelInferRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModelInferResponse {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Version of the model that was called.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// Identifier of the request.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Outputs; their elements are in `raw_output_contents`.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<InferOutputTensor>,
    /// The bytes of each output, in order.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: Vec<bytes::Bytes>,
}

/// Description of an output in a response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferOutputTensor {
    /// Name of the output in the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Protocol's name of the element type, such as `FP32`.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Size of each dimension, outermost first.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

/// Value of a parameter.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferParameter {
    /// The value with its type; `None` if the client sent none.
    #[prost(oneof = "ParameterChoice", tags = "1, 2, 3, 4, 5")]
    pub parameter_choice: Option<ParameterChoice>,
}

/// The types of a parameter's value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ParameterChoice {
    /// A truth value.
    #[prost(bool, tag = "1")]
    Bool(bool),
    /// A signed integer.
    #[prost(int64, tag = "2")]
    Int64(i64),
    /// A text.
    #[prost(string, tag = "3")]
    String(String),
    /// A floating-point number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// An unsigned integer.
    #[prost(uint64, tag = "5")]
    Uint64(u64),
}

/// Elements of a tensor in row-major order. Only the field of its element type is used.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferTensorContents {
    /// Elements of BOOL.
    #[prost(bool, repeated, tag = "1")]
    pub bool_contents: Vec<bool>,
    /// Elements of INT32, and also of INT8 and INT16.
    #[prost(int32, repeated, tag = "2")]
    pub int_contents: Vec<i32>,
    /// Elements of INT64.
    #[prost(int64, repeated, tag = "3")]
    pub int64_contents: Vec<i64>,
    /// Elements of UINT32, and also of UINT8 and UINT16.
    #[prost(uint32, repeated, tag = "4")]
    pub uint_contents: Vec<u32>,
    /// Elements of UINT64.
    #[prost(uint64, repeated, tag = "5")]
    pub uint64_contents: Vec<u64>,
    /// Elements of FP32.
    #[prost(float, repeated, tag = "6")]
    pub fp32_contents: Vec<f32>,
    /// Elements of FP64.
    #[prost(double, repeated, tag = "7")]
    pub fp64_contents: Vec<f64>,
    /// Elements of BYTES, each of any length.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes_contents: Vec<bytes::Bytes>,
}

/// Asks for the models of the repository, which is the folder that is served.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RepositoryIndexRequest {
    /// Name of the repository, which is ignored because there is only one.
    #[prost(string, tag = "1")]
    pub repository_name: String,
    /// Whether only models that are being served are listed.
    #[prost(bool, tag = "2")]
    pub ready: bool,
}

/// Answer to [`RepositoryIndexRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RepositoryIndexResponse {
    /// Models, sorted by name.
    #[prost(message, repeated, tag = "1")]
    pub models: Vec<ModelIndex>,
}

/// State of one model of the repository.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelIndex {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version that is served; empty if the model is not loaded.
    #[prost(string, tag = "2")]
    pub version: String,
    /// `READY` if the model is served, otherwise `UNAVAILABLE`.
    #[prost(string, tag = "3")]
    pub state: String,
    /// Message of the last attempt to load the model; empty if it did not fail.
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// The request for loading and for unloading a model.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RepositoryModelRequest {
    /// Name of the repository, which is ignored because there is only one.
    #[prost(string, tag = "1")]
    pub repository_name: String,
    /// Name of the model to load or unload.
    #[prost(string, tag = "2")]
    pub model_name: String,
    /// Parameters whose values are ignored, whatever their type.
    #[prost(btree_map = "string, message", tag = "3")]
    pub parameters: BTreeMap<String, Unread>,
}

/// A message whose fields are skipped, for values that are not used.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Unread {}

/// Answer to a request for loading or unloading; it has no content.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RepositoryModelResponse {}

/// Asks for the statistics of one model or all models.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelStatisticsRequest {
    /// Name of the model; an empty text selects all models.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the model; an empty text selects the version that is served.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Answer to [`ModelStatisticsRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelStatisticsResponse {
    /// Statistics of each requested model.
    #[prost(message, repeated, tag = "1")]
    pub model_stats: Vec<ModelStatistics>,
}

/// Counts and times of a model since it was loaded.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelStatistics {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the model.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Time of the last inference in milliseconds since 1970-01-01.
    #[prost(uint64, tag = "3")]
    pub last_inference: u64,
    /// Number of rows that were computed; a request may have several.
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    /// Number of calls of the model, each of which computes a batch of one or more requests.
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    /// Times of the steps of requests; always present.
    #[prost(message, optional, tag = "6")]
    pub inference_stats: Option<InferStatistics>,
    /// Times of calls by their number of rows.
    #[prost(message, repeated, tag = "7")]
    pub batch_stats: Vec<InferBatchStatistics>,
}

/// How often a step was made, and its total time.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StatisticDuration {
    /// Number of times that the step was made.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// Total time of the step in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}

/// Times of requests and of their steps.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct InferStatistics {
    /// Requests that succeeded, from the end of their headers to their answer.
    #[prost(message, optional, tag = "1")]
    pub success: Option<StatisticDuration>,
    /// Requests that failed, from the end of their headers to their answer.
    #[prost(message, optional, tag = "2")]
    pub fail: Option<StatisticDuration>,
    /// Waiting of requests in the queue until their batch started.
    #[prost(message, optional, tag = "3")]
    pub queue: Option<StatisticDuration>,
    /// Decoding of the requests' inputs.
    #[prost(message, optional, tag = "4")]
    pub compute_input: Option<StatisticDuration>,
    /// Calls of the model, counted once per batch.
    #[prost(message, optional, tag = "5")]
    pub compute_infer: Option<StatisticDuration>,
    /// Encoding of the outputs.
    #[prost(message, optional, tag = "6")]
    pub compute_output: Option<StatisticDuration>,
}

/// Times of the calls with one number of rows.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct InferBatchStatistics {
    /// Number of rows of the batch; 1024 also stands for all larger numbers.
    #[prost(uint64, tag = "1")]
    pub batch_size: u64,
    /// Calls with this number of rows.
    #[prost(message, optional, tag = "3")]
    pub compute_infer: Option<StatisticDuration>,
}
