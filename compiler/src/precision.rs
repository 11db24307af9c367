//! an artifact of lower precision, canary inputs or data  =>  the errors of its outputs against f32

use crate::calibrate::{Data, data::Sample};
use crate::compile::{Request, compile_read};
use crate::entries::Entries;
use crate::selftest;
use crate::session::own;
use sardonyx_base::compare::{Difference, Relative, Tolerance, compare};
use sardonyx_base::plan::SelfTest;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_passes::{Activations, Options, Quantize};
use sardonyx_runtime::{Model, Session, SessionOptions};
use std::path::Path;

/// Summary of a compilation at lower precision.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// Changes to precision and weights, separated by spaces, such as `bf16`.
    pub name: String,
    /// Number of contractions and attentions with operands of lower precision, and of pruned matrix products.
    pub contractions: usize,
    /// Errors of the outputs.
    pub measured: Measured,
}

/// Errors of an artifact's outputs against f32.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Errors on the canary inputs.
    pub canary: Errors,
    /// Errors on data; `None` if none were measured.
    pub data: Option<OnData>,
}

/// Errors on the calibration data, or on the part of it that was held out.
#[derive(Clone, Debug)]
pub struct OnData {
    /// Number of calls.
    pub calls: usize,
    /// Whether the calls were held out, that is, not used for rounding.
    pub is_unseen: bool,
    /// Errors of the outputs over all calls.
    pub errors: Errors,
}

impl Measured {
    /// The errors to report: those on data, if any, since they are more representative than canary inputs.
    pub fn errors(&self) -> &Errors {
        self.data.as_ref().map_or(&self.canary, |data| &data.errors)
    }
}

/// An error for each output that is not an opaque value, or why it was not measured.
pub type Errors = std::result::Result<Vec<OutputError>, String>;

/// The `n` items with the largest errors, in descending order.
pub fn worst<T>(all: &[T], n: usize, error: impl Fn(&T) -> f64) -> Vec<&T> {
    let mut worst: Vec<&T> = all.iter().collect();
    worst.sort_by(|a, b| error(b).total_cmp(&error(a)));
    worst.truncate(n);
    worst
}

/// Error of an output against f32: against the interpreter, which accumulates in f64, or else an f32 artifact.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputError {
    /// Name of the output.
    pub name: String,
    /// Largest absolute difference; NaN if `relative` is NaN.
    pub abs_max: f64,
    /// L2 norm of the difference, divided by that of the expected output.
    pub relative: f64,
    /// Whether the self-test would accept the output. Errors on data have no tolerance: all are accepted but NaN.
    pub tolerable: bool,
}

/// Which errors are accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accept {
    /// All errors.
    All,
    /// Only errors that the self-test would accept.
    Tolerable,
    /// Only errors within this bound on the relative error (L2) of each output.
    Within(f64),
}

/// An f32 artifact of the same model. It computes the expected outputs of calls for which the interpreter is too slow.
pub struct Reference {
    session: Session,
    _folder: tempfile::TempDir,
}

/// Returns the number of products by codes in the model's file, if the options ask to multiply these by bytes and
/// quantise nothing else.
pub fn codes_of_file(model: &crate::onnx::Model, options: &Options) -> Option<usize> {
    let asked = options.activations == Some(Activations::Int8) && options.quantize == Quantize::None;
    asked.then(|| model.graph.count("MatMulNBits"))
}

impl Reference {
    /// Compiles the reference. The error says why that failed.
    pub fn new(model: &crate::onnx::Model, request: &Request) -> std::result::Result<Reference, String> {
        let text = |e: Box<Error>| e.message;
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let path = folder.path().join("f32.sdx");
        let plain = Request {
            dims: request.dims.clone(),
            entries: Entries::NONE,
            options: Options {
                masked_rows: request.options.masked_rows,
                nchwc_block: request.options.nchwc_block,
                // The format of the caches decides the types of inputs and outputs, which must be the artifact's.
                kv_cache: request.options.kv_cache,
                activations: Some(Activations::F32),
                ..Options::default()
            },
            selftest: false,
            ..Request::new(request.model, &path)
        };
        compile_read(model, &plain, &mut |_| {}).map_err(text)?;
        Ok(Reference { session: session(&path).map_err(text)?, _folder: folder })
    }

    /// Runs the first of `calls` that the model accepts, and returns a self-test with its inputs and outputs.
    pub fn test(&self, calls: &[Vec<(String, Tensor)>], options: &Options) -> std::result::Result<SelfTest, String> {
        let mut why = "there are no small inputs".to_string();
        for inputs in calls {
            let given: Vec<(&str, Tensor)> = inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
            match self.session.run(&given) {
                Ok(outputs) => return Ok(selftest::from_call(inputs, &outputs, options)),
                Err(e) => why = e.message,
            }
        }
        Err(why)
    }
}

/// The references that an artifact is measured against. An `Err` says why a reference is missing.
pub struct Yardstick<'a> {
    /// A call with the expected outputs of the model.
    pub canary: std::result::Result<&'a SelfTest, String>,
    /// Calls, and the f32 artifact that computes the expected outputs; `None` to use the canary alone.
    pub data: Option<(&'a Data, std::result::Result<&'a Reference, String>)>,
}

/// Writes an artifact to a temporary file beside `output`, measures it, and renames it to `output`. Errors: E0501 if an
/// error is larger than accepted.
pub fn write_measured<T>(
    output: &Path,
    by: Yardstick,
    accept: Accept,
    write: impl FnOnce(&Path) -> Result<T>,
) -> Result<(T, Measured)> {
    if let Yardstick { canary: Err(why), data: None } = by {
        return Ok((write(output)?, Measured { canary: Err(why), data: None }));
    }
    // Symbolic links are followed, so that the file and not the link is replaced.
    let target = std::fs::canonicalize(output).unwrap_or_else(|_| output.to_path_buf());
    let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fail = |e: std::io::Error| Error::io(output, "write", &e);
    let folder = tempfile::Builder::new().prefix(".sardonyx").tempdir_in(parent).map_err(fail)?;
    let path = folder.path().join("measured.sdx");
    let written = write(&path)?;
    let measured = measure(&path, by);
    let is_far = |e: &&OutputError| match accept {
        Accept::All => false,
        Accept::Tolerable => !e.tolerable,
        // A NaN counts as exceeding the budget.
        Accept::Within(budget) => e.relative.is_nan() || e.relative > budget,
    };
    if let Some(OutputError { name, abs_max, relative, .. }) = measured.errors().iter().flatten().find(is_far) {
        let how = format!("max abs error {abs_max:.3e}, relative (L2) {relative:.3e}");
        let error = Error::user("E0501", format!("the output `{name}` is too far from that of f32: {how}"));
        return Err(error.help(match accept {
            Accept::Within(_) => "allow more with `--error-budget`, or leave out `--quantize` and `--sparsify`",
            Accept::All | Accept::Tolerable => "leave out `--precision`, or take it as it is with `--no-selftest`",
        }));
    }
    std::fs::rename(&path, &target).map_err(fail)?;
    Ok((written, measured))
}

fn session(artifact: &Path) -> Result<Session> {
    Model::load(artifact, &own().selftest(false))?.session(&SessionOptions::default())
}

fn measure(artifact: &Path, by: Yardstick) -> Measured {
    let session = session(artifact).map_err(|e| e.message);
    let on = |measured: &dyn Fn(&Session) -> Result<Vec<OutputError>>| {
        measured(session.as_ref().map_err(String::clone)?).map_err(|e| e.message)
    };
    let canary = by.canary.and_then(|test| on(&|session| on_canary(session, test)));
    let data = by.data.map(|(data, reference)| OnData {
        calls: data.samples.len(),
        is_unseen: data.is_unseen,
        errors: reference.and_then(|reference| on(&|session| on_data(session, reference, &data.samples))),
    });
    Measured { canary, data }
}

fn on_canary(session: &Session, test: &SelfTest) -> Result<Vec<OutputError>> {
    let inputs = test.inputs.iter().map(|c| Ok((c.name.as_str(), c.tensor()?))).collect::<Result<Vec<_>>>()?;
    let outputs = session.run(&inputs)?;
    let mut errors = vec![];
    for (wanted, canary) in test.outputs.iter().filter_map(|w| Some((w, w.tensor.as_ref()?))) {
        let expected = canary.tensor()?;
        let actual = outputs.iter().find(|(name, _)| *name == canary.name);
        if let Some((_, actual)) = actual.filter(|_| !expected.dtype().is_opaque()) {
            errors.push(error(&canary.name, actual, &expected, &wanted.tolerance()));
        }
    }
    Ok(errors)
}

/// Errors over all samples. Outputs are compared sample by sample, since all of them together may exceed the memory.
fn on_data(session: &Session, reference: &Reference, samples: &[Sample]) -> Result<Vec<OutputError>> {
    let mut errors: Vec<(String, f64, Relative)> = vec![];
    for sample in samples {
        let expected = sample.outputs(&reference.session, &[])?;
        let actual = sample.outputs(session, &[])?;
        let numbers = expected.iter().zip(&actual).filter(|((_, e), _)| !e.dtype().is_opaque());
        for (at, ((name, e), (_, a))) in numbers.enumerate() {
            if errors.len() == at {
                errors.push((name.clone(), 0.0, Relative::default()));
            }
            let (_, abs_max, relative) = &mut errors[at];
            for (a, e) in (0..e.len()).filter_map(|i| a.get_f64(i).zip(e.get_f64(i))) {
                relative.add(a, e);
                *abs_max = if a == e { *abs_max } else { abs_max.max((a - e).abs()) };
            }
        }
    }
    let error = |(name, abs_max, relative): (String, f64, Relative)| {
        let relative = relative.error();
        let abs_max = if relative.is_nan() { f64::NAN } else { abs_max };
        OutputError { name, abs_max, relative, tolerable: !relative.is_nan() }
    };
    Ok(errors.into_iter().map(error).collect())
}

fn error(name: &str, actual: &Tensor, expected: &Tensor, tolerance: &Tolerance) -> OutputError {
    let found =
        compare(actual, expected, tolerance).unwrap_or_else(|_| Difference { n_failed: 1, ..Difference::default() });
    let abs_max = if found.relative.is_nan() { f64::NAN } else { found.abs_max };
    OutputError { name: name.to_string(), abs_max, relative: found.relative, tolerable: found.n_failed == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_relative_to_the_whole_output() {
        let t = |v: [f32; 3]| Tensor::from_vec(vec![3], v.to_vec());
        let error = |a, e| error("y", &t(a), &t(e), &Tolerance { rtol: 0.0, atol: 0.5, instead: None });
        let e = error([3.0, 4.5, 0.0], [3.0, 4.0, 0.0]);
        assert_eq!((e.abs_max, e.relative, e.tolerable), (0.5, 0.1, true));
        assert!(!error([3.0, 4.75, 0.0], [3.0, 4.0, 0.0]).tolerable);
        let same = error([f32::NAN, f32::INFINITY, 0.0], [f32::NAN, f32::INFINITY, 0.0]);
        assert_eq!((same.abs_max, same.relative, same.tolerable), (0.0, 0.0, true));
        let e = error([f32::NAN, 0.0, 0.0], [1.0, 0.0, 0.0]);
        assert!(e.relative.is_nan() && !e.tolerable);
    }
}
