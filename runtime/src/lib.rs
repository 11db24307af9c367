//! model.sdx  =>  outputs: devices and sessions
//!
//! The runtime does not depend on ONNX, MLIR or LLVM. A [`Model`] is loaded and verified once and shared; a
//! [`Session`] runs it. Inputs are passed by name, and their dimensions determine the model's symbols (`batch`, `seq`).
//! A call that does not fit the model returns an [`Error`] value with a stable code; it never panics.
//!
//! ```no_run
//! use sardonyx_runtime::{ErrorKind, LoadOptions, Model, RunOptions, SessionOptions, Tensor, TensorBuffer, TensorView, Trust};
//! use std::time::{Duration, Instant};
//!
//! # fn main() -> sardonyx_runtime::Result<()> {
//! let seal = "9f2c…"; // as `sardonyx inspect` prints it
//! let model = Model::load("model.sdx", &LoadOptions::new(Trust::pin(seal)?))?;
//! let session = model.session(&SessionOptions::default().threads(2))?;
//!
//! // Tensors that own their bytes, in and out:
//! let ids = Tensor::from_vec(vec![1, 4], vec![101i64, 7592, 2088, 102]);
//! let outputs = session.run(&[("input_ids", ids)])?;
//! println!("{:?} {:?}", outputs["logits"].dims(), outputs["logits"].as_slice::<f32>());
//!
//! // Borrowed numbers in, the caller's memory out, no longer than 50 ms:
//! let ids = [101i64, 7592, 2088, 102];
//! let mut logits = vec![0f32; 4 * 384];
//! let inputs = [("input_ids", TensorView::from_slice(&[1, 4], &ids)?)];
//! let mut outputs = [("logits", TensorBuffer::from_slice(&mut logits)?)];
//! let options = RunOptions::default().deadline(Instant::now() + Duration::from_millis(50));
//! match session.run_with("main", &inputs, &mut outputs, &options) {
//!     Ok(_) => println!("{:?}", outputs[0].1.dims()),
//!     Err(e) if e.code == "E0305" => println!("too late; the session is as good as before"),
//!     Err(e) => return Err(e),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A decoder continues from the keys and values of all earlier tokens. They stay in place, in a [`Cache`] of the
//! caller, to which calls of the model's entry points append:
//!
//! ```no_run
//! # use sardonyx_runtime::{LoadOptions, Model, Result, RunOptions, SessionOptions, TensorView, Trust};
//! # fn main() -> Result<()> {
//! let options = LoadOptions::new(Trust::key(&std::fs::read_to_string("maker.pem").unwrap())?);
//! let session = Model::load("decoder.sdx", &options)?.session(&SessionOptions::default())?;
//! let mut cache = session.cache("decode", 512)?;
//! for (entry, ids) in [("prefill", &[1i64, 42, 7][..]), ("decode", &[99])] {
//!     // What the cache holds is neither an input nor an output of the call.
//!     let dims = [1, ids.len()];
//!     let inputs = [("input_ids", TensorView::from_slice(&dims, ids)?)];
//!     let logits = session.run_cached(entry, &inputs, &mut [], &mut cache, &RunOptions::default())?;
//!     println!("{} positions, {:?}", cache.len(), logits[0].1.dims());
//! }
//! cache.truncate(2); // Back to the second token, to go on in another way.
//! # Ok(())
//! # }
//! ```
//!
//! A model compiled with `--target cuda:sm_80` also runs on a GPU, by the same calls: inputs are uploaded, outputs
//! downloaded, and constants and caches stay on the GPU. The driver is loaded only when a model is loaded for a GPU. A
//! simulated GPU computes exact results and checks every access, but is slow.
//!
//! ```no_run
//! # use sardonyx_runtime::{DeviceName, LoadOptions, Model, Result, Trust};
//! # fn main() -> Result<()> {
//! # let trust = Trust::default();
//! let on = |device: DeviceName| LoadOptions::new(trust.clone()).device(device);
//! let model = Model::load("model.sdx", &on("cuda:0".parse()?))
//!     .or_else(|_| Model::load("model.sdx", &on(DeviceName::Sim("sm_80".into()))))?;
//! if let Some(report) = model.device_report() {
//!     println!("{}", report.text());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The features `cuda` and `sim`, on by default, enable these devices; without them the runtime only runs on the CPU.
//!
//! A server passes its requests to a [`SessionPool`], which begins them in order of arrival. `examples/embed.rs` is a
//! minimal server, and `examples/generate.rs` generates tokens. The bits of a result depend neither on the number of
//! threads, nor on earlier calls, nor on whether a cache is used. An artifact contains native code, so a program that
//! loads one must state with a [`Trust`] which files are allowed: the one with a given seal, those signed by a given
//! key, or (`unsafe`) any file.

mod bind;
mod cache;
mod call;
mod call_bytes;
mod code;
mod comm;
mod describe;
mod device;
mod device_tensor;
mod kept_shapes;
mod memory;
mod model;
mod outputs;
mod pool;
pub mod program;
mod selftest;
mod session;
mod session_pool;
mod shape;
mod stop;

pub use cache::Cache;
pub use call::{Launched, Watch};
pub use call_bytes::CallBytes;
pub use comm::{Algorithm, Ranks, Wire, is_launched, serve_rank};
pub use describe::{EntryPoint, Port, Symbol};
pub use device::{DeviceName, DeviceReport, Finding, Gpu};
pub use device_tensor::{DeviceTensor, Input};
pub use model::{LoadOptions, Model, Transport};
pub use outputs::Outputs;
pub use session::{Session, SessionOptions};
pub use session_pool::{PoolOptions, PoolStatistics, Request, SessionPool};
pub use stop::RunOptions;

// Items of the crates that this one is built on, re-exported for callers.
pub use bytes::Bytes;
pub use sardonyx_base::{
    DType, Dim, Error, ErrorKind, Fault, Kind, Result, Tensor, TensorBuffer, TensorView, Value, cpu,
};
pub use sardonyx_format::{Artifact, PublicKey, Seal, Trust, Verify};
