//! A[m, k] or B[n, k] in memory  =>  a tile of it in shared memory, placed so that nothing conflicts
//!
//! A tile is lines of `pitch` bytes; a line is a row (k runs inside) or a value of k (rows run inside). Chunks of 16
//! bytes change places within a line by an exclusive or with bits of the line's number: eight lines then have one
//! chunk in eight different groups of banks.

use crate::def::*;

/// What neighbours in a line are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    K,
    Rows,
}

/// How the lines of a tile lie in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Bytes of a line.
    pub pitch: i64,
    pub element_bytes: i64,
    /// What the number of a line's chunks is exclusive-or'ed with, as (shift right, mask, shift left) of the line.
    pub swizzle: (i64, i64, i64),
    /// Lines that are longer lie in blocks, each with its part of every line: the bytes of a block.
    pub block_bytes: Option<i64>,
}

/// One of the two factors. Its rows are the rows of A or the columns of B.
#[derive(Clone, Debug)]
pub struct Operand {
    pub access: Access,
    /// The variable of its rows.
    pub var: usize,
    pub k: usize,
    /// Elements along k: those of all groups, where there are some.
    pub k_extent: Size,
    /// Of a tile.
    pub rows: i64,
    pub k_tile: i64,
    pub element_bytes: i64,
    /// Neighbours along k that lie side by side and count as one element here.
    pub depth: i64,
    /// Bits of the codes in an element, which are made factors on the way to registers; none of what is multiplied as it is.
    pub code_bits: Option<i64>,
    pub inner: Inner,
    pub panels: Option<Panels>,
    /// As of [`Lines`].
    pub swizzle: (i64, i64, i64),
    /// The longest part of a line that lies together, where lines are cut.
    pub part_bytes: Option<i64>,
}

/// Whether addresses are multiples of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aligned {
    Always,
    Never,
    /// Known when the kernel runs.
    Perhaps,
}

impl Operand {
    pub fn lines(&self) -> i64 {
        match self.inner {
            Inner::K => self.rows,
            Inner::Rows => self.k_tile,
        }
    }

    /// Elements of a line.
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

    /// Elements from one line to the next in memory.
    pub fn line_stride(&self) -> Size {
        match (self.panels, self.inner) {
            (Some(panels), _) => Size::Const(panels.width),
            (None, Inner::K) => self.access.stride(self.var),
            (None, Inner::Rows) => self.access.stride(self.k),
        }
    }

    /// Elements from one element of a line to the next in memory; within one panel.
    pub fn inner_stride(&self) -> Size {
        match (self.panels, self.inner) {
            (Some(_), _) => Size::Const(1),
            (None, Inner::K) => self.access.stride(self.k),
            (None, Inner::Rows) => self.access.stride(self.var),
        }
    }

    /// Elements by which k of one row steps.
    pub fn k_stride(&self) -> Size {
        match self.inner {
            Inner::K => self.inner_stride(),
            Inner::Rows => self.line_stride(),
        }
    }

    /// Bytes that one copy may take: the first where it always may, else in order of preference.
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

    /// Whether lines can be copied by so many bytes. Buffers begin at multiples of 16.
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
    /// The swizzle of lines of so many bytes from which fragments are read.
    pub fn swizzle_of_fragments(pitch: i64, element_bytes: i64, inner: Inner) -> (i64, i64, i64) {
        // 4-byte elements with rows inside are read one by one, four lines by eight neighbours: two chunks go together.
        let pairs = inner == Inner::Rows && element_bytes == 4;
        match (pitch, pairs) {
            (32, _) => (2, 1, 0),
            (64, false) => (1, 3, 0),
            (64, true) => (1, 1, 1),
            (_, false) => (0, 7, 0),
            (_, true) => (0, 3, 1),
        }
    }

    /// The swizzle's value for a known line, in chunks.
    pub fn swizzle_of(&self, line: i64) -> i64 {
        let (right, mask, left) = self.swizzle;
        ((line >> right) & mask) << left
    }
}
