//! [`TensorMap`]  =>  the 128 bytes passed to a kernel, and the 16-byte pieces of a box that a bulk copy moves
//!
//! The driver's format of these bytes is undocumented. Here, they contain a magic number and the index of the map in a
//! list in [`Memory`].

use crate::Error;
use crate::memory::Memory;
use crate::units::wgmma::swizzle;

/// Size of a tensor map object (`CUtensorMap`) in bytes.
pub const MAP_BYTES: usize = 128;
/// The first bytes of a tensor map object.
const MARK: &[u8; 8] = b"ptxvmMAP";
/// Largest extent of a box in one dimension.
const TILE_MAX: u32 = 256;

/// A tensor in global memory, of which a bulk copy moves one box (`cuTensorMapEncodeTiled`). Elements of the box that
/// are outside the tensor are read as zero and are not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Global address of the first element, a multiple of 16.
    pub address: u64,
    /// Size of an element in bytes: 1, 2, 4 or 8.
    pub element_bytes: u32,
    /// Number of elements of the tensor in each dimension, the innermost first.
    pub dims: Vec<u64>,
    /// Strides of all dimensions except the innermost, whose elements are adjacent.
    pub stride_bytes: Vec<u64>,
    /// Number of elements of a box in each dimension, the innermost first.
    pub tile: Vec<u32>,
    /// Width of the swizzle: 32, 64 or 128; 0 for no swizzle.
    pub swizzle_bytes: u32,
}

/// 16 adjacent bytes of shared memory, and which of them are copied from or to global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub shared: u32,
    /// Address of the first byte that is copied.
    pub global: u64,
    /// Offset in the piece of the first byte that is copied.
    pub first: u32,
    /// Number of bytes that are copied; 0 outside the tensor.
    pub bytes: u32,
}

impl TensorMap {
    /// Checks constraints that the driver enforces.
    fn check(&self) -> Result<(), String> {
        let rank = self.dims.len();
        if !(1..=5).contains(&rank) || self.stride_bytes.len() + 1 != rank || self.tile.len() != rank {
            return Err(format!("{rank} dimensions, {} strides, {} sides", self.stride_bytes.len(), self.tile.len()));
        }
        if !matches!(self.element_bytes, 1 | 2 | 4 | 8) || !matches!(self.swizzle_bytes, 0 | 32 | 64 | 128) {
            return Err(format!("elements of {} bytes, a swizzle of {}", self.element_bytes, self.swizzle_bytes));
        }
        if !self.address.is_multiple_of(16) || self.stride_bytes.iter().any(|stride| !stride.is_multiple_of(16)) {
            return Err("the address and the strides are multiples of 16".into());
        }
        if self.dims.iter().any(|dim| *dim == 0 || *dim > 1 << 32) || self.stride_bytes.iter().any(|s| *s >= 1 << 40) {
            return Err("dimensions are 1 to 2^32, strides below 2^40".into());
        }
        if self.tile.iter().any(|side| *side == 0 || *side > TILE_MAX) {
            return Err(format!("sides of a box are 1 to {TILE_MAX}"));
        }
        let inner = self.tile[0] * self.element_bytes;
        if !inner.is_multiple_of(16) || self.swizzle_bytes > 0 && inner > self.swizzle_bytes {
            return Err(format!("rows of {inner} bytes: multiples of 16, and no longer than the swizzle"));
        }
        Ok(())
    }

    pub(crate) fn box_bytes(&self) -> u32 {
        self.tile.iter().product::<u32>() * self.element_bytes
    }

    /// Returns the pieces of the box whose first element has the coordinates `at`. In shared memory the box starts at
    /// `shared`; a swizzle permutes its pieces.
    pub(crate) fn pieces(&self, shared: u32, at: &[i32]) -> Vec<Piece> {
        let (row_bytes, each) = (self.tile[0] * self.element_bytes, 16 / self.element_bytes);
        let rows: u32 = self.tile[1..].iter().product();
        let mut pieces = Vec::new();
        for row in 0..rows {
            let (mut rest, mut inside, mut line) = (row, true, self.address);
            for (d, side) in self.tile.iter().enumerate().skip(1) {
                let index = i64::from(at[d]) + i64::from(rest % side);
                rest /= side;
                inside &= index >= 0 && (index as u64) < self.dims[d];
                line = line.wrapping_add((index as u64).wrapping_mul(self.stride_bytes[d - 1]));
            }
            for chunk in 0..row_bytes / 16 {
                let element = i64::from(at[0]) + i64::from(chunk * each);
                let from = (-element).clamp(0, i64::from(each));
                let to = (self.dims[0] as i64 - element).clamp(from, i64::from(each));
                let bytes = if inside { (to - from) as u32 * self.element_bytes } else { 0 };
                let global = line.wrapping_add(((element + from) as u64).wrapping_mul(u64::from(self.element_bytes)));
                let place = swizzle(shared + row * row_bytes + chunk * 16, self.swizzle_bytes);
                pieces.push(Piece { shared: place, global, first: from as u32 * self.element_bytes, bytes });
            }
        }
        pieces
    }
}

/// Returns the pieces of a contiguous range, whose size in bytes must be a multiple of 16.
pub(crate) fn range(shared: u32, global: u64, bytes: u32) -> Vec<Piece> {
    let piece = |at: u32| Piece { shared: shared + at, global: global + u64::from(at), first: 0, bytes: 16 };
    (0..bytes).step_by(16).map(piece).collect()
}

impl Memory {
    /// Registers a tensor map. Returns the bytes of a kernel parameter, to be aligned to 64, that represent the map in
    /// launches with this memory. Errors: a map that the driver would refuse.
    pub fn tensor_map(&mut self, map: TensorMap) -> Result<[u8; MAP_BYTES], Error> {
        if let Err(what) = map.check() {
            return Err(Error::new(0, format!("tensor map: {what}")));
        }
        let mut bytes = [0; MAP_BYTES];
        bytes[..8].copy_from_slice(MARK);
        bytes[8..16].copy_from_slice(&(self.tensor_maps.len() as u64).to_le_bytes());
        self.tensor_maps.push(map);
        Ok(bytes)
    }

    /// Finds the registered map by the first bytes of a tensor map object.
    pub(crate) fn map_of(&self, object: [u8; 16]) -> Option<&TensorMap> {
        let (mark, index) = object.split_at(8);
        let index = u64::from_le_bytes(index.try_into().ok()?);
        self.tensor_maps.get(usize::try_from(index).ok()?).filter(|_| mark == MARK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        let (dims, stride_bytes) = (vec![20, 6], vec![48]);
        TensorMap { address: 0x1000, element_bytes: 2, dims, stride_bytes, tile: vec![16, 4], swizzle_bytes: 32 }
    }

    #[test]
    fn pieces_end_with_the_tensor() {
        let pieces = map().pieces(256, &[-3, 4]);
        assert_eq!(pieces.len(), 8);
        let first = Piece { shared: 256, global: 0x1000 + 4 * 48, first: 6, bytes: 10 };
        assert_eq!(pieces[0], first);
        assert_eq!((pieces[1].bytes, pieces[1].global), (16, 0x1000 + 4 * 48 + 10));
        // Rows 6 and 7 are outside the tensor.
        assert!(pieces[4..].iter().all(|piece| piece.bytes == 0));
        let right = map().pieces(256, &[8, 0]);
        assert_eq!((right[1].bytes, right[1].first), (8, 0));
        // Row 4, of 32 bytes, is in the second 128 bytes, so the swizzle exchanges its two pieces of 16 bytes.
        let tall = TensorMap { tile: vec![16, 8], ..map() };
        assert_eq!(tall.pieces(256, &[0, 0])[8].shared, 256 + 4 * 32 + 16);
    }

    #[test]
    fn maps_that_a_driver_refuses() {
        let mut memory = Memory::new();
        let object = memory.tensor_map(map()).unwrap();
        assert_eq!(memory.map_of(object[..16].try_into().unwrap()), Some(&map()));
        assert_eq!(memory.map_of([0; 16]), None);
        let wrong = [
            TensorMap { address: 8, ..map() },
            TensorMap { stride_bytes: vec![40], ..map() },
            TensorMap { tile: vec![32, 4], ..map() },
            TensorMap { tile: vec![4, 4], ..map() },
            TensorMap { tile: vec![16, 512], ..map() },
            TensorMap { dims: vec![20], ..map() },
        ];
        for map in wrong {
            assert!(memory.tensor_map(map.clone()).is_err(), "{map:?}");
        }
    }
}
