//! inputs of the self-test  =>  the outputs that the compiler's interpreter computed for them, or an error

use crate::device::Memory;
use crate::{Model, RunOptions, SessionOptions};
use sardonyx_base::compare::compare;
use sardonyx_base::plan::SelfTest;
use sardonyx_base::{Error, Result, TensorView};
use std::time::{Duration, Instant};

/// Time limit of the self-test's call. The compiler chooses inputs that take far less on devices that are not
/// simulated.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Makes the call of the self-test, and compares its outputs. Errors: E0304, E0404.
pub fn run(model: &Model, test: &SelfTest) -> Result<()> {
    let inputs = test.inputs.iter().map(|c| Ok((c.name.as_str(), c.tensor()?))).collect::<Result<Vec<_>>>();
    let inputs = inputs.map_err(impossible)?;
    let session = model.session(&SessionOptions::default())?;
    let views: Vec<(&str, TensorView)> = inputs.iter().map(|(name, t)| (*name, t.into())).collect();
    let is_simulated = model.device().memory() == (Memory::Own { apart: true });
    let deadline = (!is_simulated).then(|| Instant::now() + TIME_MAX);
    let options = RunOptions::default().deadline(deadline);
    let outputs = session.run_with("main", &views, &mut [], &options).map_err(impossible)?;
    for (i, wanted) in test.outputs.iter().enumerate() {
        let canary = wanted.tensor.as_ref().ok_or_else(|| failed(format!("expected output {i} has no tensor")))?;
        let expected = canary.tensor().map_err(impossible)?;
        let actual = outputs.iter().find(|(name, _)| *name == canary.name).map(|(_, t)| t);
        let actual = actual.ok_or_else(|| failed(format!("the model has no output `{}`", canary.name)))?;
        let difference = compare(actual, &expected, &wanted.tolerance())
            .map_err(|why| failed(format!("the output `{}` cannot be compared: {why}", canary.name)))?;
        if let (true, Some((at, a, e))) = (difference.n_failed > 0, &difference.worst) {
            let (n, all) = (difference.n_failed, difference.n);
            let what = format!("the output `{}` at {at:?} is {a}, but must be {e}; {n} of {all} differ", canary.name);
            return Err(failed(what));
        }
    }
    Ok(())
}

/// Converts the error of a call that failed. An error for lack of memory is returned unchanged, because it says nothing
/// about the artifact.
fn impossible(e: Box<Error>) -> Box<Error> {
    match e.code {
        "E0304" => e,
        "E0305" => Error::user("E0404", format!("the self-test takes more than {} s", TIME_MAX.as_secs()))
            .help("load the artifact on a faster machine; `--no-selftest` loads it regardless"),
        code => failed(format!("its call ended with {code}: {}", e.message)),
    }
}

fn failed(what: String) -> Box<Error> {
    let message = format!("the self-test failed: {what}. The artifact is damaged, or this CPU computes wrongly");
    Error::user("E0404", message)
        .help("compile the model again, or compare with another machine; `--no-selftest` loads it regardless")
}
