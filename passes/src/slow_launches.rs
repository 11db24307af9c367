//! launches predicted to be far below the rate of the device  =>  remarks that `compile` always prints
//!
//! Slow launches are reported at compile time, with the ONNX node and the reason, so that users know which parts of the
//! artifact will be slow.

use crate::fuse::Costs;
use crate::prepare_weights;
use crate::remark::Missed;
use crate::rewrite::{Review, Rewrites};
use crate::steps::kernel;
use sardonyx_dialects::flow::{Class, Kernel, Program};
use sardonyx_kernels::{Lowered, Pace, Target, lower};

/// The pass name of these remarks.
pub const NAME: &str = "slow-launches";

/// Launches that take less than this fraction of the predicted time of their function are not reported.
const TIME_MIN: f64 = 0.02;
/// A launch is slow if it is predicted to move words and execute operations at less than this fraction of the device's
/// rate.
const ROOFLINE_MIN: f64 = 0.1;

pub(crate) const REVIEW: Review = Review { tell, always: true };

/// Reports slow launches of a program after its last rewrite, for typical values of its symbols.
fn tell(program: &Program, rewrites: &mut Rewrites) {
    rewrites.take_back(&[NAME]);
    let target = rewrites.options().target;
    let (costs, prepared) = (Costs::new(target), prepare_weights::steps(program));
    let launches: Vec<Launch> = (0..program.steps.len())
        .filter(|step| !prepared.contains(step))
        .filter_map(|step| Some(Launch::predicted(program, (&costs, target), step, kernel(&program.steps[step])?)))
        .collect();
    let total: f64 = launches.iter().map(|l| l.time).sum();
    for launch in launches.iter().filter(|l| l.time > TIME_MIN * total) {
        let Some(reason) = launch.reason() else { continue };
        let step = &program.steps[launch.step];
        let detail = format!(
            "{:.0} % of the time predicted for `{}` at usual sizes, at {:.1} % of the rate of {}",
            100.0 * launch.time / total,
            rewrites.function(),
            100.0 * launch.roofline,
            target.name()
        );
        let node = step.origins.first().cloned();
        rewrites.told_unasked(NAME, Missed { node, origins: step.origins.clone(), ..Missed::because(reason, &detail) });
    }
}

struct Launch {
    step: usize,
    /// Predicted time in picoseconds.
    time: f64,
    /// Fraction of the device's rate that the kernel's code is predicted to reach.
    roofline: f64,
    plain: bool,
}

impl Launch {
    fn predicted(program: &Program, (costs, target): (&Costs, Target), step: usize, k: &Kernel) -> Launch {
        let lowered = lower(k).ok();
        let is_for_gpu = target.gpu().is_some();
        let pace = match &lowered {
            // The efficiency of code for GPUs is not estimated.
            _ if is_for_gpu => Pace::FULL,
            Some(lowered) => lowered.pace(),
            None => Pace::UNKNOWN,
        };
        let work = |pace| costs.work(k, program, pace).iter().sum::<f64>().max(1.0);
        let (best, predicted) = (work(Pace::FULL), work(Pace { share: pace.share.max(f64::MIN_POSITIVE), ..pace }));
        let multiplies = matches!(k.class(), Class::Contract | Class::Groups | Class::Attention);
        let is_blocked = |lowered: Lowered| match is_for_gpu {
            true => lowered.for_gpu(target).is_on_tensor_cores(),
            false => lowered.words().is_some(),
        };
        let plain = multiplies && !lowered.is_some_and(is_blocked);
        Launch { step, time: predicted + costs.launch() as f64, roofline: best / predicted, plain }
    }

    fn reason(&self) -> Option<&'static str> {
        match (self.plain, self.roofline < ROOFLINE_MIN) {
            (true, _) => Some("products in plain loops"),
            (false, true) => Some("elements of a vector lie apart, or there are few of them"),
            (false, false) => None,
        }
    }
}
