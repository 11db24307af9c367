//! a launch's block, cluster and shared memory  =>  checked against the limits in the device's description

use super::GpuLaunch;
use crate::device_spec::Figure;
use crate::target::Target;
use sardonyx_base::{Error, Result};

/// Checks a launch here, because exceeding a limit would otherwise fail only at the launch. Errors: E0901.
pub fn check(target: Target, symbol: &str, launch: &GpuLaunch) -> Result<()> {
    let Some(gpu) = target.gpu() else {
        return Err(Error::defect(format!("PTX for {}, which is no GPU", target.name())));
    };
    let asked = [
        ("threads of a block", launch.block, &gpu.threads_cta_max),
        ("bytes of dynamic shared memory", launch.shared_bytes, &gpu.shared_cta_bytes),
        ("blocks of a cluster", launch.cluster, &gpu.cluster_max),
    ];
    match asked.into_iter().find(|(_, n, most)| !fits(u64::from(*n), most)) {
        None => Ok(()),
        Some((what, n, most)) => {
            let most = most.value.unwrap_or(0);
            Err(Error::defect(format!("{n} {what}, but {} has {most}", target.spec().name)).node(symbol))
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

    fn checked_in_clusters(target: &str, cluster: u32, block: u32, shared_bytes: u32) -> Result<()> {
        let launch = GpuLaunch { shared_bytes, cluster, ..GpuLaunch::plain(Dim::constant(1), block) };
        check(Target::from_ptx(target).unwrap(), "k", &launch)
    }

    fn checked(target: &str, block: u32, shared_bytes: u32) -> Result<()> {
        checked_in_clusters(target, 1, block, shared_bytes)
    }

    #[test]
    fn only_some_devices_have_clusters() {
        assert!(checked_in_clusters("sm_90a", 8, 128, 0).is_ok());
        let told = checked_in_clusters("sm_80", 2, 128, 0).unwrap_err().to_string();
        assert!(told.contains("2 blocks of a cluster, but sm_80 has 1"), "{told}");
    }

    #[test]
    fn a_block_and_its_shared_memory_fit_the_target() {
        assert!(checked("sm_80", 1024, 163 << 10).is_ok());
        assert!(checked("sm_90a", 128, 227 << 10).is_ok());
        let told = checked("sm_80", 128, 164 << 10).unwrap_err().to_string();
        assert!(told.contains("167936 bytes of dynamic shared memory, but sm_80 has 166912\n  --> node k"), "{told}");
        let told = checked("sm_90a", 1025, 0).unwrap_err().to_string();
        assert!(told.contains("1025 threads of a block, but sm_90a has 1024"), "{told}");
    }
}
