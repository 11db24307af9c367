//! Launch of an entry: its blocks, clusters and shared memory, and the tensor maps that it receives

use sardonyx_base::Dim;

/// Launch configuration; sizes known only at the launch are expressions over `p0`, `p1`, …
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLaunch {
    /// Number of blocks, a multiple of the cluster size; 0 if there is no work.
    pub grid: Dim,
    /// Number of threads of a block.
    pub block: u32,
    /// Bytes of shared memory beyond what the entry declares.
    pub shared_bytes: u32,
    /// Number of blocks that run concurrently and can access each other's shared memory.
    pub cluster: u32,
    /// Tensor maps, which the entry takes before its buffers as `m0`, `m1`, …
    pub tensor_maps: Vec<TensorMap>,
}

/// Matrix or stack of matrices in a buffer, of which an instruction copies whole tiles (`cuTensorMapEncodeTiled`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Index of the buffer among the kernel's buffers, reads first.
    pub buffer: usize,
    /// Number of elements along each dimension, the innermost first.
    pub dims: Vec<Dim>,
    /// Bytes from one element to the next along each dimension except the innermost.
    pub stride_bytes: Vec<Dim>,
    /// Number of elements of a tile along each dimension.
    pub tile: Vec<u32>,
    /// Width of the swizzle, 32, 64 or 128 bytes, within which 16-byte chunks are permuted so that columns of a tile
    /// use all banks; `None` without a swizzle.
    pub swizzle_bytes: Option<u32>,
}

impl GpuLaunch {
    /// Launch without clusters, with only the shared memory that the entry declares.
    pub fn plain(grid: Dim, block: u32) -> GpuLaunch {
        GpuLaunch { grid, block, shared_bytes: 0, cluster: 1, tensor_maps: vec![] }
    }

    /// Returns the PTX declarations of the tensor maps, which are the entry's parameters before its buffers.
    pub fn params(&self) -> impl Iterator<Item = String> {
        (0..self.tensor_maps.len()).map(|i| format!("  .param .align 64 .b8 m{i}[128]"))
    }

    /// Directives after the parameters (PTX ISA, "Performance-Tuning Directives" and "Cluster Dimension Directives").
    pub fn directives(&self) -> String {
        let cluster = match self.cluster {
            1 => String::new(),
            n => format!("\n.reqnctapercluster {n}, 1, 1"),
        };
        format!("\n.reqntid {}, 1, 1{cluster}", self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_and_tensor_maps_are_part_of_the_entry() {
        let plain = GpuLaunch::plain(Dim::param(0), 128);
        assert_eq!((plain.params().count(), plain.directives().as_str()), (0, "\n.reqntid 128, 1, 1"));
        let (dims, stride_bytes) = (vec![Dim::constant(64), Dim::param(0)], vec![Dim::constant(128)]);
        let map = TensorMap { buffer: 0, dims, stride_bytes, tile: vec![64, 128], swizzle_bytes: Some(128) };
        let launch = GpuLaunch { cluster: 2, tensor_maps: vec![map.clone(), map], ..plain };
        assert_eq!(launch.directives(), "\n.reqntid 128, 1, 1\n.reqnctapercluster 2, 1, 1");
        assert_eq!(launch.params().last().as_deref(), Some("  .param .align 64 .b8 m1[128]"));
    }
}
