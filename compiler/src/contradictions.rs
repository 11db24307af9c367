//! a request, options  =>  a diagnostic if they contradict each other

use crate::compile::Request;
use crate::onnx::Model;
use crate::precision;
use crate::sparsify::Saliency;
use sardonyx_base::{Error, Result};
use sardonyx_passes::{Activations, Named, Options, Quantize};

/// Refuses combinations of options that no compilation supports. Errors: E0001.
pub fn refuse(model: &Model, request: &Request, options: &Options) -> Result<()> {
    if precision::codes_of_file(model, options) == Some(0) {
        let message = "`--activations` is the type that quantised weights are multiplied by, and there are none";
        return Err(Error::user("E0001", message).help("leave out `--activations`, or give `--quantize int8`"));
    }
    if !options.mesh.is_empty() && options.quantize != Quantize::None {
        let message = "`--quantize` is not for several ranks: a rank's part of the codes is not in the file";
        return Err(
            Error::user("E0001", message).help("leave out `--quantize`, or compile for one rank with `--ranks 1`")
        );
    }
    if options.quantize == Quantize::Fp8 && options.activations() == Activations::Int8 {
        let message = "`--activations int8` is not for fp8: floats are multiplied with floats";
        return Err(Error::user("E0001", message).help("leave out `--activations`, or give `--quantize int8`"));
    }
    let is_auto = options.quantize == Quantize::Auto;
    let judged = request.error_budget.is_some() || request.score.is_some();
    if is_auto && (request.calibrate.is_empty() || !judged) {
        let message = "`--quantize auto` chooses by what layers lose on data, within an error budget";
        let help = "give `--calibrate DATA` and `--error-budget X`, for example 0.03, or `--score COMMAND`";
        return Err(Error::user("E0001", message).help(help));
    }
    if request.score.is_some() && !is_auto {
        let error = Error::user("E0001", "`--score` judges a choice of precisions, and none is to be made");
        return Err(error.help("give `--quantize auto`, or leave out `--score`"));
    }
    if !request.sparsify.is_empty() && is_auto {
        let message = "`--quantize auto` is not for `--sparsify`: its error budget would be that of rounding alone";
        let help = "give the codes, for example `--quantize int4`, or leave out `--sparsify`";
        return Err(Error::user("E0001", message).help(help));
    }
    if let (Some(saliency @ (Saliency::Obd | Saliency::Obs)), []) = (request.saliency, &request.calibrate[..]) {
        let message = format!("`--saliency {}` needs data that weights are multiplied with", saliency.name());
        let help = "give inputs with `--calibrate DATA`, or `--saliency magnitude`";
        return Err(Error::user("E0001", message).help(help));
    }
    if !request.sparsify.is_empty() && !options.mesh.is_empty() {
        let message = "`--sparsify` is not for several ranks";
        return Err(Error::user("E0001", message).help("leave it out, or compile for one rank with `--ranks 1`"));
    }
    Ok(())
}
