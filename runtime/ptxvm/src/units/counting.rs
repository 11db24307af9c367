//! addresses of a warp  =>  32-byte sectors of global memory, wavefronts of shared memory
//!
//! The rules are those of the published tuning guides and of profilers. A request to global memory costs the distinct
//! 32-byte sectors that its active lanes access. Shared memory has 32 banks of 4 bytes. Accesses of up to 4 bytes are
//! served for the whole warp in one phase, those of 8 bytes per half-warp, those of 16 bytes per quarter-warp. A phase
//! takes as many wavefronts as there are distinct words in its most requested bank; lanes that access the same word
//! share it.

/// Addresses of one operand, one per lane.
pub type Addresses = [u64; 32];

/// Size of a sector of global memory, the unit of transfer.
pub const SECTOR_BYTES: u64 = 32;

/// The distinct sectors (address / 32) of one warp access, ascending.
#[derive(Clone, Copy, Debug)]
pub struct Sectors {
    ids: [u64; 64],
    len: usize,
}

impl Sectors {
    /// Returns the numbers of the sectors, ascending and without duplicates.
    pub fn as_slice(&self) -> &[u64] {
        &self.ids[..self.len]
    }
}

/// The sectors that the lanes of `active` access, with `bytes` (1 to 32) each.
pub fn sectors(addresses: &Addresses, active: u32, bytes: u32) -> Sectors {
    let mut ids = [0; 64];
    let mut len = 0;
    let mut sorted = true;
    for lane in (0..32).filter(|lane| active >> lane & 1 == 1) {
        let first = addresses[lane] / SECTOR_BYTES;
        let last = addresses[lane].wrapping_add(u64::from(bytes) - 1) / SECTOR_BYTES;
        for id in [first, last] {
            // Consecutive lanes usually share a sector or have ascending ones, which keeps the list a sorted set.
            if len > 0 && ids[len - 1] == id {
                continue;
            }
            sorted &= len == 0 || ids[len - 1] < id;
            ids[len] = id;
            len += 1;
        }
    }
    if !sorted {
        ids[..len].sort_unstable();
        let mut kept = 0;
        for i in 0..len {
            if i == 0 || ids[i] != ids[kept - 1] {
                ids[kept] = ids[i];
                kept += 1;
            }
        }
        len = kept;
    }
    Sectors { ids, len }
}

/// Number of wavefronts of a shared-memory instruction, with and without bank conflicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wavefronts {
    /// Number of wavefronts: the sum over all phases of the words in the most requested bank.
    pub actual: u32,
    /// Number of phases with an active lane, each of which takes at least one wavefront.
    pub ideal: u32,
}

/// Wavefronts of a load or store of `bytes` (1, 2, 4, 8 or 16) per lane.
pub fn shared_wavefronts(addresses: &Addresses, active: u32, bytes: u32) -> Wavefronts {
    let lanes = match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let mut total = Wavefronts::default();
    for first in (0..32).step_by(lanes) {
        let phase = (first..first + lanes).filter(|lane| active >> lane & 1 == 1).map(|lane| addresses[lane]);
        total.add_phase(phase, bytes);
    }
    total
}

/// Wavefronts of `ldmatrix`/`stmatrix` with `count` tiles: one phase per tile; lanes `8j..8j+8` hold the row addresses
/// of tile `j`.
pub fn matrix_wavefronts(addresses: &Addresses, count: usize) -> Wavefronts {
    let mut total = Wavefronts::default();
    for tile in addresses.chunks_exact(8).take(count) {
        total.add_phase(tile.iter().copied(), 16);
    }
    total
}

impl Wavefronts {
    fn add_phase(&mut self, addresses: impl Iterator<Item = u64>, bytes: u32) {
        // A phase has at most 32 words if its addresses are aligned, otherwise at most 64.
        let mut words = [0u64; 64];
        let mut n = 0;
        for address in addresses {
            let (first, last) = (address / 4, (address + u64::from(bytes.max(1)) - 1) / 4);
            for word in first..=last {
                if n < words.len() && !(n > 0 && words[n - 1] == word) {
                    words[n] = word;
                    n += 1;
                }
            }
        }
        if n > 0 {
            self.actual += worst_bank(&mut words[..n]);
            self.ideal += 1;
        }
    }
}

/// The largest number of distinct words in one of the 32 banks.
fn worst_bank(words: &mut [u64]) -> u32 {
    // Most phases access no bank twice.
    let banks = words.iter().fold(0u32, |mask, word| mask | 1 << (word % 32));
    if banks.count_ones() as usize == words.len() {
        return 1;
    }
    words.sort_unstable();
    let mut per_bank = [0u8; 32];
    let mut worst = 0;
    for (i, &word) in words.iter().enumerate() {
        if i == 0 || word != words[i - 1] {
            let bank = &mut per_bank[(word % 32) as usize];
            *bank += 1;
            worst = worst.max(*bank);
        }
    }
    u32::from(worst)
}

#[cfg(test)]
mod tests;
