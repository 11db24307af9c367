//! The arguments of a launch: entry, grid, block, parameters, options

use crate::Error;

/// The arguments of one kernel launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel, as its `.entry` directive declares it.
    pub entry: String,
    /// Number of blocks along x, y and z.
    pub grid: [u32; 3],
    /// Number of threads of a block along x, y and z; at most 1024 in all, and 64 along z.
    pub block: [u32; 3],
    /// Blocks per cluster; must be `[1, 1, 1]`.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of each block, in bytes.
    pub shared_bytes: u32,
    /// The bytes of the parameter space, laid out as the entry declares it; [`Params`] packs them.
    pub params: Vec<u8>,
}

impl Launch {
    /// A one-dimensional launch without dynamic shared memory.
    pub fn new(entry: &str, grid: u32, block: u32, params: Vec<u8>) -> Self {
        let (grid, block) = ([grid, 1, 1], [block, 1, 1]);
        Launch { entry: entry.to_owned(), grid, block, cluster: [1; 3], shared_bytes: 0, params }
    }
}

/// Packs parameters, each aligned to its size, as PTX lays out scalars.
#[derive(Clone, Debug, Default)]
pub struct Params {
    bytes: Vec<u8>,
}

impl Params {
    /// Returns an empty parameter space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the bytes of a parameter, for example of a structure, at the next multiple of `align`.
    pub fn bytes(mut self, value: &[u8], align: usize) -> Self {
        let end = self.bytes.len().next_multiple_of(align.max(1));
        self.bytes.resize(end, 0);
        self.bytes.extend_from_slice(value);
        self
    }

    /// Appends a 32-bit integer, little-endian and aligned to 4 bytes.
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// Appends a 64-bit integer or an address, little-endian and aligned to 8 bytes.
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes(), 8)
    }

    /// Appends a signed 64-bit integer, little-endian and aligned to 8 bytes.
    pub fn i64(self, value: i64) -> Self {
        self.u64(value as u64)
    }

    /// Appends the bits of an f32, aligned to 4 bytes.
    pub fn f32(self, value: f32) -> Self {
        self.u32(value.to_bits())
    }

    /// Returns the packed bytes, for [`Launch::params`]; there is no padding at the end.
    pub fn build(self) -> Vec<u8> {
        self.bytes
    }
}

/// How a launch is simulated. By default: seed 0, a thread per processor, 2^36 instructions, all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Selects the order in which warps are scheduled; every order is valid.
    pub seed: u64,
    /// Number of blocks that run at the same time.
    pub threads: usize,
    /// Maximum number of warp instructions of the whole launch; if it is exceeded, the launch stops with a finding.
    pub instructions_max: u64,
    /// Whether to check for uninitialised memory, races and copies in flight. Bounds and alignment are always checked.
    pub checks: bool,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Options { seed: 0, threads, instructions_max: 1 << 36, checks: true }
    }
}

/// Product of three extents: the number of threads of a block, or of blocks of a grid.
pub(crate) fn volume(extents: [u32; 3]) -> u64 {
    extents.iter().fold(1, |product: u64, extent| product.saturating_mul(u64::from(*extent)))
}

pub(crate) fn check(launch: &Launch) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::new(0, format!("launch of `{}`: {what}", launch.entry)));
    if launch.cluster != [1; 3] {
        return refuse(format!("cluster {:?}: only clusters of one block are supported", launch.cluster));
    }
    let threads = volume(launch.block);
    if threads == 0 || threads > 1024 || launch.block[2] > 64 {
        return refuse(format!("block {:?} does not have 1 to 1024 threads", launch.block));
    }
    if launch.grid[1] > 65535 || launch.grid[2] > 65535 || launch.grid[0] > i32::MAX as u32 {
        return refuse(format!("grid {:?} is larger than any GPU's", launch.grid));
    }
    Ok(())
}
