//! bulk copies  =>  accesses of 16 bytes, attributed to the thread that started the copy

use super::block::{Block, Space, Target, pieces, report};
use super::page::PAGE_BYTES;
use super::{Access, Kind, Other, Problem, ProblemKind};

/// Size of a piece in bytes.
const BYTES: u32 = 16;

/// The thread that started a copy, and the line.
#[derive(Clone, Copy, Debug)]
pub struct Starter {
    /// Index of the warp in its block.
    pub warp: u32,
    /// Lane of the thread, 0 to 31.
    pub lane: u32,
    /// Line of the instruction in the PTX text, numbered from 1.
    pub line: u32,
}

impl Starter {
    fn access(&self, kind: Kind, bytes: u32) -> Access {
        Access { warp: self.warp, mask: 1 << self.lane, bytes, kind, collective: false, line: self.line }
    }
}

impl Block<'_> {
    /// Records that a copy starts to write a piece of shared memory. The piece must not be accessed until the write has
    /// completed.
    pub fn bulk_write_start(&mut self, starter: Starter, at: u32, problems: &mut Vec<Problem>) {
        self.unfenced(starter, at, problems);
        let call = self.call(&starter.access(Kind::Write, BYTES));
        self.one(&call, Target { space: Space::Shared, at: at.into(), lanes: 1 << starter.lane }, problems);
        if let Some((page, (word, bits))) = self.pages.shared(at, BYTES) {
            page.in_flight.0[word] |= bits;
            page.copy = Some(Other { warp: starter.warp, lane: starter.lane, line: starter.line, write: true });
        }
    }

    /// Records that the write of a piece of shared memory has completed.
    pub fn bulk_write_land(&mut self, starter: Starter, at: u32) {
        let call = self.call(&starter.access(Kind::Write, BYTES));
        if let Some((page, (word, bits))) = self.pages.shared(at, BYTES) {
            page.in_flight.0[word] &= !bits;
            page.unfenced.0[word] &= !bits;
            page.init.0[word] |= bits;
            page.land(at % PAGE_BYTES, BYTES, call.entry << 6 | starter.lane);
        }
    }

    /// Checks a read of a piece of shared memory by a copy. Must be called when the copy starts and again when it is
    /// waited for, since the copy may read at any time in between.
    pub fn bulk_read(&mut self, starter: Starter, at: u32, is_start: bool, problems: &mut Vec<Problem>) {
        if is_start {
            self.unfenced(starter, at, problems);
        }
        let call = self.call(&starter.access(Kind::Read, BYTES));
        self.one(&call, Target { space: Space::Shared, at: at.into(), lanes: 1 << starter.lane }, problems);
    }

    fn unfenced(&mut self, starter: Starter, at: u32, problems: &mut Vec<Problem>) {
        if let Some((page, (word, bits))) = self.pages.shared(at, BYTES)
            && page.unfenced.0[word] & bits != 0
        {
            report(problems, ProblemKind::Unfenced, starter.lane, at.into(), None);
        }
    }

    /// Checks a read or write of all or part of a piece of global memory by a copy.
    pub fn bulk_global(&mut self, starter: Starter, kind: Kind, at: u64, bytes: u32, problems: &mut Vec<Problem>) {
        for (at, bytes) in pieces(at, bytes) {
            self.global(&starter.access(kind, bytes), &[at; 32], problems);
            if kind == Kind::Write
                && let Some((page, (word, bits))) = self.pages.global(at, bytes)
            {
                page.in_flight.0[word] |= bits;
                page.copy = Some(Other { warp: starter.warp, lane: starter.lane, line: starter.line, write: true });
            }
        }
    }

    /// Records that the write of all or part of a piece of global memory has completed.
    pub fn bulk_global_land(&mut self, at: u64, bytes: u32) {
        for (at, bytes) in pieces(at, bytes) {
            if let Some((page, (word, bits))) = self.pages.global(at, bytes) {
                page.in_flight.0[word] &= !bits;
            }
        }
    }
}
