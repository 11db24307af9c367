//! the work of one session  =>  segments between waits, on its own stream
//!
//! Work is collected, and submitted when the host waits for it, or when work that is not collected must follow it on
//! the stream. A call that reads no data back before its end, and whose copies fit in the staging memory, is thus one
//! submission and one wait.

use super::Cuda;
use super::driver::{Event, Ordered, check};
use super::segment::{Graphs, Op, Segment};
use super::staging::Staging;
use crate::device::{self, Address, Block, Device, Queue, Work};
use crate::stop::Stop;
use cudarc::driver::sys::{self, CUresult};
use sardonyx_base::{Error, Result};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

pub struct Stream {
    stream: Ordered,
    device: Arc<Cuda>,
    /// Status words: one of 8 bytes for each step of a call.
    status: Option<Block>,
    /// Number of steps of the current call; 0 between calls.
    n_steps: usize,
    /// Work that is not submitted yet.
    segment: Segment,
    graphs: Graphs,
    staging: Staging,
    marks: Vec<Event>,
    /// Number of marks in use.
    n_marks: usize,
}

/// A copy from page-locked memory to its destination, which the host makes after the wait.
struct Arrival {
    from: *const u8,
    to: *mut u8,
    bytes: usize,
}

impl Stream {
    /// Creates a queue on the caller's stream, or on one of its own.
    pub fn new(device: Arc<Cuda>, given: Option<NonZeroUsize>) -> Result<Stream> {
        let stream = match given {
            Some(given) => Ordered::of_caller(&device.context, given)?,
            None => Ordered::new(&device.context)?,
        };
        Ok(Stream {
            stream,
            device,
            status: None,
            n_steps: 0,
            segment: Segment::default(),
            graphs: Graphs::default(),
            staging: Staging::default(),
            marks: vec![],
            n_marks: 0,
        })
    }

    /// Submits the collected work.
    fn submit(&mut self) -> Result<()> {
        if self.segment.ops.is_empty() {
            return Ok(());
        }
        let _here = self.device.context.enter()?;
        let segment = std::mem::take(&mut self.segment);
        // SAFETY: the callers of the methods that collected the work guarantee its memory.
        unsafe { self.graphs.submit(segment, &self.device, &self.stream, &self.marks) }
    }

    /// Submits the collected work and waits for it, even if not everything could be submitted.
    fn wait(&mut self) -> Result<()> {
        let submitted = self.submit();
        let waited = self.stream.wait();
        self.staging.release();
        self.graphs.release();
        submitted.and(waited)
    }

    /// Collects a copy to the host, which is complete after the wait and [`Arrival::deliver`].
    fn fetch(&mut self, from: Address, to: &mut [u8]) -> Result<Arrival> {
        let staged = self.staging.take(&self.device.context, to.len())?;
        self.segment.ops.push(Op::Download { from, to: staged.expose_provenance(), bytes: to.len() });
        Ok(Arrival { from: staged, to: to.as_mut_ptr(), bytes: to.len() })
    }

    /// Copies to the caller's memory without staging, and waits.
    ///
    /// # Safety
    /// As for [`Queue::download`].
    unsafe fn fetch_directly(&mut self, from: Address, to: &mut [u8]) -> Result<()> {
        self.submit()?;
        let _here = self.device.context.enter()?;
        // SAFETY: the caller guarantees it; the bytes are complete once the stream has been waited for.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.stream.handle.0) };
        let waited = self.wait();
        check(copied, "copy from the GPU").and(waited)
    }
}

impl Queue for Stream {
    fn begin(&mut self, n_steps: usize) -> Result<()> {
        if self.status.as_ref().is_none_or(|status| status.bytes() < 8 * n_steps) {
            // The collected work may use the old status words, which are freed below.
            self.submit()?;
            self.status = Some(self.device.clone().allocate(8 * n_steps, &String::new)?);
        }
        self.n_steps = n_steps;
        let status = self.status.as_ref().filter(|_| n_steps > 0);
        self.segment.ops.extend(status.map(|status| Op::Clear { to: status.address(), bytes: 8 * n_steps }));
        Ok(())
    }

    fn scratch_bytes(&self, _: usize) -> usize {
        0
    }

    fn reserve(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn trim(&mut self) -> usize {
        self.graphs = Graphs::default();
        self.staging.trim()
    }

    unsafe fn launch(&mut self, work: &Work, _: &Stop) -> Result<()> {
        let Some(status) = self.status.as_ref().filter(|_| work.kernel < self.device.functions.len()) else {
            return Err(Error::defect("a launch without a module or outside of a call"));
        };
        if work.blocks == 0 {
            return Ok(());
        }
        let (status, first_value) = (status.range(8 * work.step, 8)?, self.segment.values.len());
        self.segment.values.extend_from_slice(work.buffers);
        self.segment.values.extend(work.params.iter().map(|p| *p as u64));
        self.segment.values.push(status);
        let n_values = self.segment.values.len() - first_value;
        self.segment.ops.push(Op::Launch { kernel: work.kernel, blocks: work.blocks, first_value, n_values });
        Ok(())
    }

    unsafe fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<()> {
        if bytes > 0 {
            self.segment.ops.push(Op::Copy { from, to, bytes });
        }
        Ok(())
    }

    unsafe fn copy_rows(
        &mut self,
        from: (Address, usize),
        to: (Address, usize),
        width: usize,
        rows: usize,
    ) -> Result<()> {
        if width > 0 && rows > 0 {
            self.segment.ops.push(Op::CopyRows { from, to, width, rows });
        }
        Ok(())
    }

    fn stream(&mut self) -> Result<Option<device::Stream>> {
        self.submit()?;
        let here = self.device.context.enter()?;
        let mut id = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the driver writes its result to the given location.
        check(unsafe { sys::cuDeviceGetUuid_v2(&mut id, self.device.context.gpu) }, "tell the GPU's number")?;
        let (handle, gpu) = (self.stream.handle.0.cast(), id.bytes.map(|b| b as u8));
        Ok(Some(device::Stream { handle, gpu, _context: Box::new(here) }))
    }

    fn is_idle(&mut self) -> Result<bool> {
        self.submit()?;
        let _here = self.device.context.enter()?;
        // SAFETY: the stream lives as long as `self`.
        match unsafe { sys::cuStreamQuery(self.stream.handle.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check(result, "finish its work").map(|()| true),
        }
    }

    unsafe fn upload(&mut self, from: &[u8], to: Address) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        if self.staging.admits(from.len()) {
            let staged = self.staging.take(&self.device.context, from.len())?;
            // SAFETY: the memory was taken for these bytes, and nothing else uses it.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), staged, from.len()) };
            self.segment.ops.push(Op::Upload { from: staged.expose_provenance(), to, bytes: from.len() });
            return Ok(());
        }
        self.submit()?;
        let _here = self.device.context.enter()?;
        // SAFETY: the caller guarantees it.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.stream.handle.0) };
        check(copied, "copy to the GPU")
    }

    unsafe fn download(&mut self, from: Address, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        if !self.staging.admits(to.len()) {
            // SAFETY: the caller guarantees it.
            return unsafe { self.fetch_directly(from, to) };
        }
        let arrival = self.fetch(from, to)?;
        self.wait()?;
        // SAFETY: the copy has been waited for, and the memory stays until the next copy.
        unsafe { arrival.deliver() };
        Ok(())
    }

    fn discard(&mut self) {
        self.segment = Segment::default();
        self.n_marks = 0;
    }

    fn finish(&mut self) -> Result<Option<usize>> {
        // SAFETY: nothing is read.
        unsafe { self.finish_and_read(&mut []) }
    }

    unsafe fn finish_and_read(&mut self, results: &mut [(Address, &mut [u8])]) -> Result<Option<usize>> {
        let mut words = vec![0u8; 8 * std::mem::take(&mut self.n_steps)];
        let status = self.status.as_ref().map(Block::address).filter(|_| !words.is_empty());
        let status = status.map(|status| self.fetch(status, &mut words)).transpose()?;
        let mut arrivals = vec![];
        for (from, to) in results.iter_mut().filter(|(_, to)| !to.is_empty()) {
            let staged = self.staging.admits(to.len()).then(|| self.fetch(*from, to)).transpose()?;
            arrivals.push(staged);
        }
        self.wait()?;
        // SAFETY: the copies have been waited for, and the memory stays until the next copy.
        status.iter().for_each(|status| unsafe { status.deliver() });
        if let Some(step) = words.chunks_exact(8).position(|word| word.iter().any(|b| *b != 0)) {
            return Ok(Some(step));
        }
        for ((from, to), arrival) in results.iter_mut().filter(|(_, to)| !to.is_empty()).zip(arrivals) {
            match arrival {
                // SAFETY: as above.
                Some(arrival) => unsafe { arrival.deliver() },
                // SAFETY: the caller guarantees it.
                None => unsafe { self.fetch_directly(*from, to) }?,
            }
        }
        Ok(None)
    }

    fn mark(&mut self) -> Result<bool> {
        if self.marks.len() == self.n_marks {
            self.marks.push(Event::new(&self.device.context)?);
        }
        self.segment.ops.push(Op::Mark(self.n_marks));
        self.n_marks += 1;
        Ok(true)
    }

    fn times(&mut self) -> Result<Vec<Duration>> {
        let marks = &self.marks[..std::mem::take(&mut self.n_marks)];
        marks.iter().map(|mark| mark.since(&marks[0])).collect()
    }
}

impl Arrival {
    /// # Safety
    /// The copy has been waited for, its source not yet released, and the destination still lives.
    unsafe fn deliver(&self) {
        // SAFETY: the caller guarantees it.
        unsafe { std::ptr::copy_nonoverlapping(self.from, self.to, self.bytes) }
    }
}
