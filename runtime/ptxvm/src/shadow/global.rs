//! allocations, footprints of blocks  =>  initialised bytes, races between blocks, distinct sectors

/// Initialised bytes of all allocations; as long-lived as the memory itself.
#[derive(Default)]
pub struct Global {}

impl Global {
    pub fn new() -> Self {
        Self::default()
    }
    /// `address` is a multiple of 256.
    pub fn alloc(&mut self, address: u64, bytes: u64) {}
    pub fn free(&mut self, address: u64) {}
    /// The host wrote these bytes.
    pub fn host_write(&mut self, address: u64, bytes: u64) {}
    /// A launch of `n_blocks` blocks, numbered 0..n_blocks and started in that order.
    pub fn launch(&self, n_blocks: u64) -> Launch<'_> {
        Launch { global: self }
    }
}

/// What the blocks of one launch share; `&Launch` goes to every OS thread.
pub struct Launch<'a> {
    global: &'a Global,
}

impl Launch<'_> {
    /// After every block's `finish`.
    pub fn finish(self) -> Outcome {
        Outcome::default()
    }
}

#[derive(Default, Debug)]
pub struct Outcome {
    /// Races between blocks, in order of the later block; at most some hundreds.
    pub crossings: Vec<Crossing>,
    /// One entry per allocation that the launch touched, in order of addresses.
    pub sectors: Vec<Sectors>,
}

/// A race between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    pub address: u64,
    /// How many bytes of the same 256-byte page are concerned.
    pub bytes: u32,
    pub block: u64,
    /// The last line of the block that touched the page this way.
    pub line: u32,
    pub write: bool,
    /// `None` when more blocks touched the page than are remembered by name.
    pub other_block: Option<u64>,
    pub other_line: u32,
    pub other_write: bool,
}

/// Distinct 32-byte sectors that a launch touched in one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sectors {
    pub address: u64,
    pub loads: u64,
    pub stores: u64,
}
