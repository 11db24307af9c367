//! A minimal server: one session shared by two threads, with named inputs and a deadline
//!
//!     cargo run --release -p sardonyx-runtime --example embed -- MODEL.sdx

use sardonyx_base::{Error, Result, Tensor};
use sardonyx_format::tensor_io::Synthetic;
use sardonyx_runtime::{EntryPoint, ErrorKind, LoadOptions, Model, Port, RunOptions, Session, SessionOptions, Trust};
use std::time::{Duration, Instant};

fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    if let Err(error) = serve(&path) {
        eprintln!("{error}");
        std::process::exit(error.fault.exit_code());
    }
}

fn serve(path: &str) -> Result<()> {
    // A model is loaded and verified once; sessions and clones share its weights and its code.
    // SAFETY: the user who starts this program trusts the file, whose code is executed.
    let model = Model::load(path, &LoadOptions::new(unsafe { Trust::file() }))?;
    let session = &model.session(&SessionOptions::default().threads(1))?;

    // A session may be shared between threads, but its calls run one at a time. For parallel calls, make one session
    // per thread.
    std::thread::scope(|scope| {
        let both = [1, 2].map(|request| scope.spawn(move || answer(session, request)));
        both.into_iter().try_for_each(|thread| thread.join().map_err(|_| Error::defect("a thread failed"))?)
    })
}

fn answer(session: &Session, request: u64) -> Result<()> {
    // The model declares its inputs; a real server would pass data instead of random numbers.
    let entry = &session.model().entry_points()[0];
    let tensors: Vec<(&str, Tensor)> = entry
        .inputs
        .iter()
        .map(|port| Ok((port.name.as_str(), random_input(entry, port, request)?)))
        .collect::<Result<_>>()?;

    // The call borrows its inputs. `TensorView::from_slice(&dims, &values)` borrows a slice of numbers in the same way.
    let inputs: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, tensor.into())).collect();
    let options = RunOptions::default().deadline(Instant::now() + Duration::from_secs(10));
    match session.run_with(&entry.name, &inputs, &mut [], &options) {
        Ok(outputs) => outputs.iter().for_each(|(name, tensor)| {
            let first: Vec<f64> = (0..tensor.len().min(4)).filter_map(|i| tensor.get_f64(i)).collect();
            println!("request {request}: {name} {} {:?} {first:?}", tensor.dtype(), tensor.dims());
        }),
        // A missed deadline does not end the server: the session stays usable.
        Err(error) if error.kind() == ErrorKind::Deadline => println!("request {request}: {}", error.message),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Returns a random tensor for an input port, with every symbol at its lower bound, but at least 1.
fn random_input(entry: &EntryPoint, port: &Port, seed: u64) -> Result<Tensor> {
    let smallest = |name: &str| entry.symbols.iter().find(|s| s.name == name).map(|s| s.lo.max(1));
    let dims: Result<Vec<usize>> = port.dims.iter().map(|dim| Ok(dim.eval_named(&smallest)?.max(0) as usize)).collect();
    Synthetic::Random.tensor(port.dtype, dims?, seed)
}
