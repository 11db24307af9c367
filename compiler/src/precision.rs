//! an artifact of lower precision, canary inputs  =>  how far its outputs are from those of f32

use crate::compile::{Request, compile_read};
use crate::entries::Entries;
use crate::selftest;
use sardonyx_base::compare::{Difference, Tolerance, compare};
use sardonyx_base::plan::SelfTest;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_passes::Options;
use sardonyx_runtime::{LoadOptions, Model, SessionOptions};
use std::path::Path;

/// What a lower precision came to.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub name: String,
    /// Contractions, and attentions, whose factors are of it.
    pub contractions: usize,
    pub errors: Errors,
}

/// Of each output of numbers; or why that was not measured.
pub type Errors = std::result::Result<Vec<OutputError>, String>;

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

/// A call with outputs of f32 where the interpreter would take too long: those of an artifact of f32, which is made for
/// that. The error says why there is none.
pub fn by_f32(
    model: &crate::onnx::Model,
    request: &Request,
    calls: &[Vec<(String, Tensor)>],
) -> std::result::Result<SelfTest, String> {
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
    let loaded = Model::load(&path, &LoadOptions { selftest: false, ..LoadOptions::default() }).map_err(text)?;
    let session = loaded.session(&SessionOptions::default()).map_err(text)?;
    let mut why = "there are no small inputs".to_string();
    for inputs in calls {
        let given: Vec<(&str, Tensor)> = inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
        match session.run(&given) {
            Ok(outputs) => return Ok(selftest::of(inputs, &outputs, &request.options)),
            Err(e) => why = e.message,
        }
    }
    Err(why)
}

/// Writes an artifact under another name beside `output`, measures it, and gives it its name. Errors: E0501 where it is
/// further off than its own self-test allows, unless `any`.
pub fn write_measured<T>(
    output: &Path,
    test: std::result::Result<&SelfTest, String>,
    accept: Accept,
    write: impl FnOnce(&Path) -> Result<T>,
) -> Result<(T, Errors)> {
    let test = match test {
        Ok(test) => test,
        Err(why) => return Ok((write(output)?, Err(why))),
    };
    // A link is followed, so that the file it names is replaced and not the link.
    let target = std::fs::canonicalize(output).unwrap_or_else(|_| output.to_path_buf());
    let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fail = |e: std::io::Error| Error::io(output, "write", &e);
    let folder = tempfile::Builder::new().prefix(".sardonyx").tempdir_in(parent).map_err(fail)?;
    let path = folder.path().join("measured.sdx");
    let written = write(&path)?;
    let errors = measure(&path, test);
    let is_far = |e: &&OutputError| match accept {
        Accept::All => false,
        Accept::Tolerable => !e.tolerable,
        // What is no number is too far.
        Accept::Within(budget) => e.relative.is_nan() || e.relative > budget,
    };
    if let Some(OutputError { name, abs_max, relative, .. }) = errors.iter().flatten().find(is_far) {
        let how = format!("max abs error {abs_max:.3e}, relative (L2) {relative:.3e}");
        let error = Error::user("E0501", format!("the output `{name}` is too far from that of f32: {how}"));
        return Err(error.help(match accept {
            Accept::Within(_) => "allow more with `--error-budget`, or leave out `--quantize`",
            Accept::All | Accept::Tolerable => "leave out `--precision`, or take it as it is with `--no-selftest`",
        }));
    }
    std::fs::rename(&path, &target).map_err(fail)?;
    Ok((written, errors))
}

/// Calls the artifact with the canary inputs. The error says why that cannot be.
fn measure(artifact: &Path, test: &SelfTest) -> Errors {
    let measured = || {
        let model = Model::load(artifact, &LoadOptions { selftest: false, ..LoadOptions::default() })?;
        let inputs = test.inputs.iter().map(|c| Ok((c.name.as_str(), c.tensor()?))).collect::<Result<Vec<_>>>()?;
        let outputs = model.session(&SessionOptions::default())?.run(&inputs)?;
        let mut errors = vec![];
        for (wanted, canary) in test.outputs.iter().filter_map(|w| Some((w, w.tensor.as_ref()?))) {
            let expected = canary.tensor()?;
            let actual = outputs.iter().find(|(name, _)| *name == canary.name);
            if let Some((_, actual)) = actual.filter(|_| !expected.dtype().is_opaque()) {
                errors.push(error(&canary.name, actual, &expected, &wanted.tolerance()));
            }
        }
        Ok(errors)
    };
    measured().map_err(|e: Box<Error>| e.message)
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
