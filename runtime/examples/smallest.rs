//! The smallest program that runs a model on a CPU; `tests/tests/runtime_alone.rs` measures its size in bytes
//!
//!     cargo run --release -p sardonyx-runtime --no-default-features --example smallest -- MODEL.sdx

use sardonyx_runtime::{LoadOptions, Model, Result, SessionOptions, Tensor, Trust};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_default();
    // SAFETY: the user who starts this program trusts the file, whose code is executed. `Trust::pin` and `Trust::key`
    // need no `unsafe`.
    let options = LoadOptions::new(unsafe { Trust::file() });
    let session = Model::load(path, &options)?.session(&SessionOptions::default())?;
    let ids = Tensor::from_vec(vec![1, 4], vec![101i64, 7592, 2088, 102]);
    let ones = Tensor::from_vec(vec![1, 4], vec![1i64; 4]);
    let zeros = Tensor::from_vec(vec![1, 4], vec![0i64; 4]);
    let inputs = [("input_ids", ids), ("attention_mask", ones), ("token_type_ids", zeros)];
    for (name, tensor) in &session.run(&inputs)? {
        println!("{name}: {:?} {:?}", tensor.dims(), tensor.as_slice::<f32>().and_then(|x| x.first()));
    }
    Ok(())
}
