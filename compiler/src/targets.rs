//! `cpu`, `cuda:sm_80`  =>  what an artifact has code for

use clap::builder::{PossibleValuesParser, TypedValueParser};
use sardonyx_kernels::ptx;
use sardonyx_runtime::DeviceName;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All variants of x86-64, in one object.
    Cpu,
    Ptx(ptx::Target),
}

/// Sorted by name.
pub static TARGETS: &[(&str, Target)] = &[("cpu", Target::Cpu), ("cuda:sm_80", Target::Ptx(ptx::Target::Sm80))];

impl Target {
    pub fn from_name(name: &str) -> Option<Target> {
        TARGETS.iter().find(|(n, _)| *n == name).map(|(_, target)| *target)
    }

    /// The described device whose caches and limits its code is judged by.
    pub fn usual_device(self) -> &'static str {
        match self {
            Target::Cpu => "x86-64-v4",
            Target::Ptx(target) => target.name(),
        }
    }

    /// What a device needs. Every GPU runs the PTX of those before it.
    pub fn of_device(device: &DeviceName) -> Vec<Target> {
        let gpus = |wanted: &dyn Fn(&str) -> bool| {
            let named = |t: &Target| matches!(t, Target::Ptx(ptx) if wanted(ptx.name()));
            TARGETS.iter().map(|(_, target)| *target).filter(named).collect()
        };
        match device {
            DeviceName::Cpu => vec![Target::Cpu],
            DeviceName::Sim(name) => gpus(&|target| target == name),
            DeviceName::Cuda(_) => gpus(&|_| true),
        }
    }
}

/// For command lines.
pub fn parser() -> impl TypedValueParser<Value = Target> {
    let known = PossibleValuesParser::new(TARGETS.iter().map(|(name, _)| *name));
    known.map(|name| Target::from_name(&name).unwrap_or(Target::Cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that is described has a target, and a target a device.
    #[test]
    fn targets_are_those_of_the_described_devices() {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        assert_eq!(sardonyx_kernels::DeviceSpec::targets(), names);
    }

    #[test]
    fn targets_are_sorted_and_devices_have_theirs() {
        assert!(TARGETS.windows(2).all(|w| w[0].0 < w[1].0));
        for (name, target) in TARGETS {
            assert_eq!(Target::from_name(name), Some(*target));
        }
        let of = |device: &str| Target::of_device(&device.parse().unwrap());
        assert_eq!(of("cpu"), [Target::Cpu]);
        assert_eq!(of("sim:sm_80"), [Target::Ptx(ptx::Target::Sm80)]);
        assert!(of("cuda:3").contains(&Target::Ptx(ptx::Target::Sm80)));
    }
}
