//! a kernel's block and shared memory  =>  within what the device's description allows

use super::{PtxKernel, Target};
use crate::device_spec::{DeviceSpec, Figure, Gpu};
use sardonyx_base::{Error, Result};
use std::sync::LazyLock;

/// The descriptions of [`Target::ALL`].
static GPUS: LazyLock<[Gpu; 2]> = LazyLock::new(|| Target::ALL.map(described));

fn described(target: Target) -> Gpu {
    DeviceSpec::named(target.name()).and_then(|spec| spec.gpu).expect("every target has a description of a GPU")
}

impl Target {
    pub fn gpu(self) -> &'static Gpu {
        &GPUS[self as usize]
    }
}

/// A form that asks for more than there is would fail at the launch only. Errors: E0901.
pub fn check(target: Target, symbol: &str, kernel: &PtxKernel) -> Result<()> {
    let gpu = target.gpu();
    let asked = [
        ("threads of a block", kernel.block, &gpu.threads_cta_max),
        ("bytes of dynamic shared memory", kernel.shared_bytes, &gpu.shared_cta_bytes),
    ];
    match asked.into_iter().find(|(_, n, most)| !fits(u64::from(*n), most)) {
        None => Ok(()),
        Some((what, n, most)) => {
            let most = most.value.unwrap_or(0);
            Err(Error::defect(format!("{n} {what}, but {} has {most}", target.name())).node(symbol))
        }
    }
}

fn fits(n: u64, most: &Figure<u64>) -> bool {
    most.value.is_some_and(|most| n <= most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::Dim;

    fn checked(target: Target, block: u32, shared_bytes: u32) -> Result<()> {
        check(target, "k", &PtxKernel { text: String::new(), grid: Dim::constant(1), block, shared_bytes })
    }

    #[test]
    fn targets_stand_in_the_order_of_their_numbers() {
        assert!(Target::ALL.into_iter().enumerate().all(|(i, target)| target as usize == i));
    }

    #[test]
    fn a_block_and_its_shared_memory_fit_the_target() {
        assert!(checked(Target::Sm80, 1024, 163 << 10).is_ok());
        assert!(checked(Target::Sm90a, 128, 227 << 10).is_ok());
        let told = checked(Target::Sm80, 128, 164 << 10).unwrap_err().to_string();
        assert!(told.contains("167936 bytes of dynamic shared memory, but sm_80 has 166912\n  --> node k"), "{told}");
        let told = checked(Target::Sm90a, 1025, 0).unwrap_err().to_string();
        assert!(told.contains("1025 threads of a block, but sm_90a has 1024"), "{told}");
    }
}
