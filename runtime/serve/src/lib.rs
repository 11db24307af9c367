//! MODEL.sdx | FOLDER  =>  a server: KServe's protocol, embeddings and completions of texts over HTTP, and KServe's over gRPC
//!
//! A request goes through these files: `connections` (bytes of a peer), `app` (routes), `body` (limits), `kserve` (its tensors),
//! `served` (the model), `queue` (its turn), `stacking` (those that one call computes), and back.

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
