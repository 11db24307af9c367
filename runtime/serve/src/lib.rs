//! MODEL.sdx | FOLDER  =>  a server: KServe's protocol over HTTP and gRPC; text embeddings and completions over HTTP
//!
//! A request passes through these files: `connections` (bytes of a client), `app` (routes), `body` (limits), `kserve`
//! (tensors), `served` (the model), `queue` (waiting), `stacking` (forming a batch), and back.

mod app;
mod args;
mod asking;
mod body;
mod completions;
mod connections;
mod embedder;
mod embeddings;
mod gentle;
pub mod grpc;
mod json;
mod kserve;
mod metrics;
mod pace;
mod patience;
mod ports;
mod queue;
mod refusal;
mod registry;
mod served;
mod server;
mod stacking;
mod statistics;
mod texts;
#[cfg(feature = "otlp")]
mod traces;

pub use args::ServeArgs;
pub use server::serve;
