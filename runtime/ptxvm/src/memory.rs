//! [`Memory`]: device addresses  =>  bytes, in allocations with unmapped gaps between them

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::Error;
use crate::decode::program::Inner;
use crate::shadow::Global;

/// Start of the window of shared memory in the generic address space. The windows of all state spaces are below every
/// allocation.
pub const SHARED_BASE: u64 = 0x1_0000_0000;
pub const LOCAL_BASE: u64 = 0x2_0000_0000;
pub const PARAM_BASE: u64 = 0x3_0000_0000;
pub const WINDOW_BYTES: u64 = 0x1_0000_0000;
const FIRST_ADDRESS: u64 = 0x100_0000_0000;
/// Gap between allocations, so that an access with a wrong stride does not hit the next allocation.
const GAP_BYTES: u64 = 1 << 26;

/// Global memory of the simulated device, with a shadow that tracks initialised bytes.
#[derive(Debug, Default)]
pub struct Memory {
    /// Sorted by address.
    pub(crate) allocations: Vec<Allocation>,
    pub(crate) shadow: Global,
    /// Addresses of the variables of each module that has run with this memory.
    modules: HashMap<u64, Vec<u64>>,
    pub(crate) tensor_maps: Vec<crate::TensorMap>,
    /// Locked by 64-bit atomic operations, since memory is stored as 32-bit words.
    pub(crate) wide: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub bytes: u64,
    pub name: String,
    pub constant: bool,
    pub words: Box<[AtomicU32]>,
}

impl Memory {
    /// Returns a memory without allocations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves uninitialised memory; the address is a multiple of 256. If `bytes` is 0, no byte can be read at the
    /// returned address.
    pub fn alloc(&mut self, bytes: usize, name: &str) -> u64 {
        self.alloc_as(bytes, name, false)
    }

    fn alloc_as(&mut self, bytes: usize, name: &str, constant: bool) -> u64 {
        let end = self.allocations.last().map_or(FIRST_ADDRESS, |last| last.base + last.bytes);
        let base = (end + GAP_BYTES).next_multiple_of(256);
        let words = (0..bytes.div_ceil(4)).map(|_| AtomicU32::new(0)).collect();
        self.allocations.push(Allocation { base, bytes: bytes as u64, name: name.to_owned(), constant, words });
        self.shadow.alloc(base, bytes as u64);
        base
    }

    /// Frees an allocation made by `alloc`; later accesses to it are out of bounds.
    pub fn free(&mut self, address: u64) -> Result<(), Error> {
        let Ok(at) = self.allocations.binary_search_by_key(&address, |allocation| allocation.base) else {
            return Err(Error::new(0, format!("no allocation starts at {address:#x}")));
        };
        self.allocations.remove(at);
        self.shadow.free(address);
        Ok(())
    }

    /// Copies bytes to the device and marks them initialised.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let (allocation, offset) = self.range(address, bytes.len())?;
        let (mut at, mut rest) = (offset, bytes);
        while let Some((first, tail)) = rest.split_first() {
            if at.is_multiple_of(4) && rest.len() >= 4 {
                let word = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
                allocation.words[at / 4].store(word, Relaxed);
                (at, rest) = (at + 4, &rest[4..]);
            } else {
                let shift = at % 4 * 8;
                let word = &allocation.words[at / 4];
                word.store(word.load(Relaxed) & !(0xff << shift) | u32::from(*first) << shift, Relaxed);
                (at, rest) = (at + 1, tail);
            }
        }
        if !bytes.is_empty() {
            self.shadow.host_write(address, bytes.len() as u64);
        }
        Ok(())
    }

    /// Copies bytes from the device; bytes that were never written are zero.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        let (allocation, offset) = self.range(address, into.len())?;
        let mut at = offset;
        for chunk in into.chunks_mut(if offset.is_multiple_of(4) { 4 } else { 1 }) {
            let word = (allocation.words[at / 4].load(Relaxed) >> (at % 4 * 8)).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
            at += chunk.len();
        }
        Ok(())
    }

    fn range(&self, address: u64, bytes: usize) -> Result<(&Allocation, usize), Error> {
        let wrong = || Error::new(0, format!("{bytes} bytes at {address:#x} are not inside one allocation"));
        let allocation = self.find(address).map(|at| &self.allocations[at]);
        // An empty range may start at the end of an allocation.
        let allocation = allocation.or_else(|| {
            self.allocations.iter().find(|allocation| allocation.base + allocation.bytes == address && bytes == 0)
        });
        let allocation = allocation.ok_or_else(wrong)?;
        let offset = address - allocation.base;
        if bytes as u64 > allocation.bytes - offset { Err(wrong()) } else { Ok((allocation, offset as usize)) }
    }

    /// Index of the allocation that contains the address.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let at = self.allocations.partition_point(|allocation| allocation.base <= address).checked_sub(1)?;
        (address - self.allocations[at].base < self.allocations[at].bytes).then_some(at)
    }

    /// Addresses of a module's variables, which are allocated and initialised when the module is first loaded.
    pub(crate) fn load(&mut self, module: &Inner) -> Result<Vec<u64>, Error> {
        if let Some(known) = self.modules.get(&module.id) {
            return Ok(known.clone());
        }
        let addresses: Vec<u64> = module
            .globals
            .iter()
            .map(|variable| self.alloc_as(variable.bytes as usize, &variable.name, variable.constant))
            .collect();
        for (variable, address) in module.globals.iter().zip(&addresses) {
            // Variables without a value are zero (PTX ISA, "Initializers").
            let mut bytes = variable.init.clone();
            bytes.resize(variable.bytes as usize, 0);
            for (at, target, addend) in &variable.relocations {
                let value = addresses.get(*target as usize).copied().unwrap_or(0).wrapping_add(*addend as u64);
                if let Some(slot) = bytes.get_mut(*at as usize..*at as usize + 8) {
                    slot.copy_from_slice(&value.to_le_bytes());
                }
            }
            self.write(*address, &bytes)?;
        }
        self.modules.insert(module.id, addresses.clone());
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_return_as_written_at_any_offset() {
        let mut memory = Memory::new();
        let address = memory.alloc(11, "x");
        assert_eq!(address % 256, 0);
        memory.write(address, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]).unwrap();
        memory.write(address + 3, &[40, 50]).unwrap();
        let mut bytes = [0; 7];
        memory.read(address + 2, &mut bytes).unwrap();
        assert_eq!(bytes, [3, 40, 50, 6, 7, 8, 9]);
        let mut bytes = [0; 3];
        memory.read(address + 8, &mut bytes).unwrap();
        assert_eq!(bytes, [9, 10, 11]);
    }

    #[test]
    fn ranges_end_with_their_allocation() {
        let mut memory = Memory::new();
        let (a, b) = (memory.alloc(8, "a"), memory.alloc(8, "b"));
        assert!(b - a > 1 << 20);
        assert!(memory.write(a + 4, &[0; 5]).is_err());
        assert!(memory.read(a + 8, &mut [0]).is_err());
        assert!(memory.read(a + 8, &mut []).is_ok());
        assert!(memory.free(a + 1).is_err());
        memory.free(a).unwrap();
        assert!(memory.read(a, &mut [0]).is_err());
        assert!(memory.read(b, &mut [0]).is_ok());
    }
}
