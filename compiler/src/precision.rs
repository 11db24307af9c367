//! an artifact of lower precision, canary inputs or data  =>  how far its outputs are from those of f32

use crate::calibrate::{Data, data::Sample};
use crate::compile::{Request, compile_read};
use crate::entries::Entries;
use crate::selftest;
use crate::session::own;
use sardonyx_base::compare::{Difference, Relative, Tolerance, compare};
use sardonyx_base::plan::SelfTest;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_passes::Options;
use sardonyx_runtime::{Model, Session, SessionOptions};
use std::path::Path;

/// What a lower precision came to.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub name: String,
    /// Contractions, and attentions, whose factors are of it.
    pub contractions: usize,
    pub measured: Measured,
}

/// How far the outputs are off.
#[derive(Clone, Debug)]
pub struct Measured {
    /// On canary inputs.
    pub canary: Errors,
    pub data: Option<OnData>,
}

/// On the data that weights and scales follow from, or on what was kept apart of it.
#[derive(Clone, Debug)]
pub struct OnData {
    pub calls: usize,
    /// The calls are some that nothing was rounded by.
    pub is_unseen: bool,
    pub errors: Errors,
}

impl Measured {
    /// What counts: data says more of a model than canary inputs do.
    pub fn errors(&self) -> &Errors {
        self.data.as_ref().map_or(&self.canary, |data| &data.errors)
    }
}

/// Of each output of numbers; or why that was not measured.
pub type Errors = std::result::Result<Vec<OutputError>, String>;

/// The `n` with the largest errors, the largest first.
pub fn worst<T>(all: &[T], n: usize, error: impl Fn(&T) -> f64) -> Vec<&T> {
    let mut worst: Vec<&T> = all.iter().collect();
    worst.sort_by(|a, b| error(b).total_cmp(&error(a)));
    worst.truncate(n);
    worst
}

/// How far an output is from that of f32: the interpreter's, which sums in f64, or else an artifact's.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputError {
    pub name: String,
    pub abs_max: f64,
    /// Euclidean length of the difference over that of what is expected.
    pub relative: f64,
    /// What the self-test would say.
    pub tolerable: bool,
}

/// Which errors are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accept {
    All,
    /// Those that the self-test will take.
    Tolerable,
    /// Up to a relative error (L2) of each output.
    Within(f64),
}

/// An artifact of f32 of the same model, for what the interpreter would take too long for.
pub struct Reference {
    session: Session,
    _folder: tempfile::TempDir,
}

impl Reference {
    /// The error says why there is none.
    pub fn new(model: &crate::onnx::Model, request: &Request) -> std::result::Result<Reference, String> {
        let text = |e: Box<Error>| e.message;
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let path = folder.path().join("f32.sdx");
        let plain = Request {
            dims: request.dims.clone(),
            entries: Entries::NONE,
            options: Options {
                masked_rows: request.options.masked_rows,
                // Inputs and outputs have its types.
                kv_cache: request.options.kv_cache,
                ..Options::default()
            },
            selftest: false,
            ..Request::new(request.model, &path)
        };
        compile_read(model, &plain, &mut |_| {}).map_err(text)?;
        Ok(Reference { session: session(&path).map_err(text)?, _folder: folder })
    }

    /// The first of some calls that it takes, with its outputs.
    pub fn test(&self, calls: &[Vec<(String, Tensor)>], options: &Options) -> std::result::Result<SelfTest, String> {
        let mut why = "there are no small inputs".to_string();
        for inputs in calls {
            let given: Vec<(&str, Tensor)> = inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
            match self.session.run(&given) {
                Ok(outputs) => return Ok(selftest::of(inputs, &outputs, options)),
                Err(e) => why = e.message,
            }
        }
        Err(why)
    }
}

/// What an artifact is measured by. The errors say why there is none.
pub struct Yardstick<'a> {
    pub canary: std::result::Result<&'a SelfTest, String>,
    pub data: Option<(&'a Data, std::result::Result<&'a Reference, String>)>,
}

/// Writes an artifact under another name beside `output`, measures it, and gives it its name. Errors: E0501 where it is
/// further off than what is accepted.
pub fn write_measured<T>(
    output: &Path,
    by: Yardstick,
    accept: Accept,
    write: impl FnOnce(&Path) -> Result<T>,
) -> Result<(T, Measured)> {
    if let Yardstick { canary: Err(why), data: None } = by {
        return Ok((write(output)?, Measured { canary: Err(why), data: None }));
    }
    // A link is followed, so that the file it names is replaced and not the link.
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
        // What is no number is too far.
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

/// Over all samples. Each is called and forgotten: their outputs together may be larger than memory.
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
        OutputError { name, abs_max: if relative.is_nan() { f64::NAN } else { abs_max }, relative, tolerable: true }
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
