//! `--target cpu`, `--device cuda:0`  =>  the targets that an artifact needs code for

use clap::builder::{PossibleValuesParser, TypedValueParser};
use sardonyx_kernels::Target;
use sardonyx_runtime::DeviceName;

/// Returns the targets to compile for, so that the device can run one of them. For a CUDA device, these are all GPU
/// targets: its model is not known here, and a GPU also runs PTX of earlier targets.
pub fn of_device(device: &DeviceName) -> Vec<Target> {
    match device {
        DeviceName::Cpu => vec![Target::cpu()],
        DeviceName::Sim(name) => Target::from_ptx(name).into_iter().collect(),
        DeviceName::Cuda(_) => Target::all().filter(|target| target.ptx().is_some()).collect(),
    }
}

/// Parser of target names for command lines.
pub fn parser() -> impl TypedValueParser<Value = Target> {
    let known = PossibleValuesParser::new(Target::all().map(Target::name));
    known.try_map(|name| Target::from_name(&name).ok_or("is no target"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_their_targets() {
        let names =
            |device: &str| -> Vec<&str> { of_device(&device.parse().unwrap()).into_iter().map(Target::name).collect() };
        assert_eq!(names("cpu"), ["cpu"]);
        assert_eq!(names("sim:sm_80"), ["cuda:sm_80"]);
        assert_eq!(names("cuda:3"), ["cuda:sm_80", "cuda:sm_90a"]);
    }
}
