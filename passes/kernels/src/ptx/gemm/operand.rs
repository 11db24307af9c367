//! A[m, k] or B[n, k] in memory  =>  a tile of it in shared memory, in a layout without bank conflicts
//!
//! A tile consists of lines of `pitch` bytes; a line is a row (k is contiguous) or a value of k (rows are contiguous).
//! Chunks of 16 bytes are permuted within a line by an xor with bits of the line's number (swizzle), so that the same
//! chunk of eight lines falls into eight different groups of banks.

use crate::def::*;

/// Dimension along which the elements of a line are consecutive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    K,
    Rows,
}

/// Layout of a tile's lines in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Number of bytes of a line or, if lines are divided into parts, of a part.
    pub pitch: i64,
    pub element_bytes: i64,
    /// Swizzle (right, mask, left): the index of each chunk of a line is xor'ed with ((line >> right) & mask) << left,
    /// where `line` is the line's number.
    pub swizzle: (i64, i64, i64),
    /// Bytes of a block, if lines are longer than `pitch`: each line is then divided into parts of `pitch` bytes, and a
    /// block holds one part of every line.
    pub block_bytes: Option<i64>,
}

/// Operand A or B of a product. Its rows are the rows of A or the columns of B.
#[derive(Clone, Debug)]
pub struct Operand {
    pub access: Access,
    /// Variable of the operand's rows.
    pub var: usize,
    pub k: usize,
    /// Number of elements along k, over all groups if there are any.
    pub k_extent: Size,
    /// Number of rows of a tile.
    pub rows: i64,
    pub k_tile: i64,
    pub element_bytes: i64,
    /// Number of consecutive elements along k that are stored side by side and count as one element here.
    pub depth: i64,
    /// Number of bits of a code, if threads convert codes when they load them into registers; `None` if there is no
    /// conversion.
    pub code_bits: Option<i64>,
    pub inner: Inner,
    pub panels: Option<Panels>,
    /// Swizzle of the lines, as in [`Lines`].
    pub swizzle: (i64, i64, i64),
    /// Maximum bytes of a line that are stored together, if lines are split.
    pub part_bytes: Option<i64>,
}

/// States whether the addresses of copies are multiples of the number of bytes that one copy moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aligned {
    Always,
    Never,
    /// The code tests at run time whether the addresses are aligned.
    Perhaps,
}

impl Operand {
    pub fn lines(&self) -> i64 {
        match self.inner {
            Inner::K => self.rows,
            Inner::Rows => self.k_tile,
        }
    }

    /// Number of elements of a line.
    pub fn length(&self) -> i64 {
        match self.inner {
            Inner::K => self.k_tile,
            Inner::Rows => self.rows,
        }
    }

    pub fn pitch(&self) -> i64 {
        self.length() * self.element_bytes
    }

    pub fn tile_bytes(&self) -> i64 {
        self.lines() * self.pitch()
    }

    pub fn layout(&self) -> Lines {
        let (pitch, element_bytes, swizzle) = (self.pitch(), self.element_bytes, self.swizzle);
        let part = self.part_bytes.unwrap_or(pitch).min(pitch);
        let block_bytes = (part < pitch).then(|| self.lines() * part);
        Lines { pitch: part, element_bytes, swizzle, block_bytes }
    }

    /// Distance from one line to the next in memory, in elements.
    pub fn line_stride(&self) -> Size {
        match (self.panels, self.inner) {
            (Some(panels), _) => Size::Const(panels.width),
            (None, Inner::K) => self.access.stride(self.var),
            (None, Inner::Rows) => self.access.stride(self.k),
        }
    }

    /// Distance between consecutive elements of a line in memory, in elements; for panels, within one panel.
    pub fn inner_stride(&self) -> Size {
        match (self.panels, self.inner) {
            (Some(_), _) => Size::Const(1),
            (None, Inner::K) => self.access.stride(self.k),
            (None, Inner::Rows) => self.access.stride(self.var),
        }
    }

    /// Distance between consecutive k of a row in memory, in elements.
    pub fn k_stride(&self) -> Size {
        match self.inner {
            Inner::K => self.inner_stride(),
            Inner::Rows => self.line_stride(),
        }
    }

    /// Sizes in bytes that one copy may have, in order of preference, up to the first that is always possible.
    pub fn units(&self) -> Vec<(i64, Aligned)> {
        let mut units = vec![];
        for bytes in [16, 4, 2, 1].into_iter().filter(|b| *b >= self.element_bytes) {
            let aligned = self.aligned(bytes);
            if aligned != Aligned::Never {
                units.push((bytes, aligned));
            }
            if aligned == Aligned::Always {
                break;
            }
        }
        units
    }

    /// Returns whether lines can be copied in units of `bytes`. Buffers are aligned to 16 bytes.
    fn aligned(&self, bytes: i64) -> Aligned {
        let elements = bytes / self.element_bytes;
        if elements == 1 || self.panels.is_some() {
            return Aligned::Always;
        }
        if !self.inner_stride().is(1) {
            return Aligned::Never;
        }
        let inner = if self.inner == Inner::K { self.k } else { self.var };
        let whole = |s: Size| s.as_const().map(|c| c % elements == 0);
        if whole(self.line_stride()) == Some(false) {
            return Aligned::Never;
        }
        if self.access.is_aligned(inner, elements) { Aligned::Always } else { Aligned::Perhaps }
    }
}

impl Lines {
    /// Swizzle of lines of `pitch` bytes from which fragments are read.
    pub fn swizzle_of_fragments(pitch: i64, element_bytes: i64, inner: Inner) -> (i64, i64, i64) {
        // 4-byte elements with contiguous rows are read one by one, eight adjacent ones from each of four lines: their
        // two chunks stay adjacent.
        let pairs = inner == Inner::Rows && element_bytes == 4;
        match (pitch, pairs) {
            // An element is a chunk; the chunks of consecutive rows are adjacent and read together, without conflicts.
            _ if element_bytes == 16 => (0, 0, 0),
            (32, _) => (2, 1, 0),
            (64, false) => (1, 3, 0),
            (64, true) => (1, 1, 1),
            (_, false) => (0, 7, 0),
            (_, true) => (0, 3, 1),
        }
    }

    /// Returns the number with which the indices of the chunks of a known line are xor'ed.
    pub fn swizzle_of(&self, line: i64) -> i64 {
        let (right, mask, left) = self.swizzle;
        ((line >> right) & mask) << left
    }
}
