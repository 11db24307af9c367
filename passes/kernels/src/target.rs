//! `cpu`, `cuda:sm_80`  =>  the described device for which code is planned, costed and limited
//!
//! A target is a device description: passes compute costs from its figures, and kernels keep to its limits. A GPU is
//! added by a description in `devices/`; code tests for special features through the description.

use crate::device_spec::{DeviceSpec, Gpu};
use crate::rates::Rates;
use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;

/// Devices that can execute the same plan: their kernels divide work alike. An artifact has one plan per class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Devices with the target `cpu`.
    Cpu,
    /// Devices with a target `cuda:sm_…`.
    Gpu,
}

impl Class {
    /// Both classes, in the order of their declaration.
    pub const ALL: [Class; 2] = [Class::Cpu, Class::Gpu];

    /// Name of the plan's entry in an artifact.
    pub fn name(self) -> &'static str {
        match self {
            Class::Cpu => "cpu",
            Class::Gpu => "gpu",
        }
    }
}

/// Device that code is generated for.
#[derive(Clone, Copy)]
pub struct Target(&'static DeviceSpec);

/// Name of the description from which the CPU plan is made. All CPU levels share one plan, because an object has code
/// for all of them.
const CPU: &str = "x86-64-v4";

/// All targets, sorted by name.
static TARGETS: LazyLock<Vec<DeviceSpec>> = LazyLock::new(|| {
    let described = DeviceSpec::names().filter_map(DeviceSpec::named);
    let mut specs: Vec<DeviceSpec> = described.filter(|spec| spec.gpu.is_some() || spec.name == CPU).collect();
    specs.sort_by(|a, b| a.target.cmp(&b.target));
    specs
});

impl Target {
    /// Every target, sorted by name.
    pub fn all() -> impl Iterator<Item = Target> {
        TARGETS.iter().map(Target)
    }

    /// Returns the target `cpu`, which stands for all CPU levels.
    pub fn cpu() -> Target {
        Target::from_name("cpu").expect("CPUs are described")
    }

    /// Returns the target of this name, such as `cpu` or `cuda:sm_80`; `None` if no described device has this target.
    pub fn from_name(name: &str) -> Option<Target> {
        Target::all().find(|target| target.name() == name)
    }

    /// Returns the GPU with this name in PTX, such as `sm_80`; `None` if no described GPU has it.
    pub fn from_ptx(name: &str) -> Option<Target> {
        Target::all().find(|target| target.ptx() == Some(name))
    }

    /// Name in the option `--target`.
    pub fn name(self) -> &'static str {
        self.0.target.as_str()
    }

    /// Returns the class of devices that the target belongs to.
    pub fn class(self) -> Class {
        if self.0.gpu.is_some() { Class::Gpu } else { Class::Cpu }
    }

    /// Returns the description of the device.
    pub fn spec(self) -> &'static DeviceSpec {
        self.0
    }

    /// Rates that costs are computed with.
    pub fn rates(self) -> Rates {
        Rates::new(self.0).expect("a target's description has all figures, as a test checks")
    }

    /// Limits of a GPU; `None` for CPUs.
    pub fn gpu(self) -> Option<&'static Gpu> {
        self.0.gpu.as_ref()
    }

    /// Name in the PTX directive `.target`, such as `sm_80`; `None` for CPUs.
    pub fn ptx(self) -> Option<&'static str> {
        self.name().strip_prefix("cuda:")
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Target {}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Target) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Target {
    fn cmp(&self, other: &Target) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_distinct_names_and_describe_what_they_name() {
        let names: Vec<&str> = Target::all().map(Target::name).collect();
        assert!(names.windows(2).all(|w| w[0] < w[1]), "{names:?}");
        assert_eq!(names.first(), Some(&"cpu"));
        for target in Target::all() {
            assert_eq!(Target::from_name(target.name()), Some(target));
            assert_eq!(target.ptx().is_some(), target.class() == Class::Gpu);
            assert!(target.ptx().is_none_or(|ptx| ptx == target.spec().name && Target::from_ptx(ptx) == Some(target)));
        }
    }
}
