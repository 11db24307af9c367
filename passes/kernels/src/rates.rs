//! a device's description  =>  the rates that cost models use to compare plans

use crate::device_spec::{DeviceSpec, Figure, Level, Per, RateType, Unit};
use sardonyx_base::{Error, Result};

/// Rates of the whole device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bandwidth of the memory that holds tensors between kernels.
    pub bytes_per_s: f64,
    /// Bytes of the cache that all cores share, and its read bandwidth in bytes per second; `None` if either is not
    /// measured.
    pub cache: Option<(f64, f64)>,
    /// Vector additions of f32 per second; a multiply-add counts as two.
    pub vector_ops_per_s: f64,
    /// Multiplications and additions of f32 contractions per second.
    pub contract_ops_per_s: f64,
    /// Multiplications and additions of bf16 contractions per second; those of f32 if there is no figure for bf16.
    pub contract_bf16_ops_per_s: f64,
    /// Seconds to launch one kernel.
    pub launch_s: f64,
}

/// On tensor cores an f32 operand is split into two tf32, and three of their products are summed.
const TF32_PRODUCTS: f64 = 3.0;

impl Rates {
    /// Returns the rates of a described device. Errors: E0406 if the description lacks a required figure.
    pub fn new(spec: &DeviceSpec) -> Result<Rates> {
        let lacks = |figure: &str| {
            Error::user("E0406", format!("`{}` has no figure {figure}, which costs are computed with", spec.name))
                .help("give the figure with its source; an assumption is a source too, if it says so")
        };
        let value = |f: &Figure<f64>, name: &str| f.value.ok_or_else(|| lacks(name));
        let cycles =
            value(&spec.clock_ghz, "clock_ghz")? * 1e9 * spec.cores.value.ok_or_else(|| lacks("cores"))? as f64;
        let rate = |unit: Unit, dtype: RateType| {
            let row = spec.rate.iter().find(|r| (r.unit, r.dtype) == (unit, dtype));
            row.and_then(|r| r.ops_per_cycle.value).map(|ops| ops * cycles)
        };
        let vector_ops_per_s = rate(Unit::Vector, RateType::F32).ok_or_else(|| lacks("rate.vector.f32"))?;
        let tensor = rate(Unit::Tensor, RateType::Tf32).map(|ops| ops / TF32_PRODUCTS);
        let dram = spec.memory.iter().find(|m| m.level == Level::Dram).and_then(|m| m.read_gb_s.value);
        let shared = spec.memory.iter().rfind(|m| m.per == Per::Device && m.level != Level::Dram);
        Ok(Rates {
            bytes_per_s: dram.ok_or_else(|| lacks("memory.dram.read_gb_s"))? * 1e9,
            cache: shared.and_then(|m| Some((m.bytes.value? as f64, m.read_gb_s.value? * 1e9))),
            vector_ops_per_s,
            contract_ops_per_s: tensor.unwrap_or(vector_ops_per_s),
            contract_bf16_ops_per_s: rate(Unit::Tensor, RateType::Bf16).or(tensor).unwrap_or(vector_ops_per_s),
            launch_s: value(&spec.launch_us, "launch_us")? * 1e-6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn every_target_has_the_figures_that_costs_need() {
        for target in Target::all() {
            let rates = Rates::new(target.spec()).unwrap_or_else(|e| panic!("{}: {e}", target.name()));
            assert!(rates.contract_ops_per_s >= rates.vector_ops_per_s, "{target:?}: {rates:?}");
        }
    }

    #[test]
    fn a_figure_that_is_not_there_is_named() {
        let mut spec = DeviceSpec::named("x86-64-v4").unwrap();
        spec.launch_us.value = None;
        let told = Rates::new(&spec).unwrap_err().to_string();
        assert!(told.contains("`x86-64-v4` has no figure launch_us"), "{told}");
    }
}
