//! work between two waits  =>  launches and copies on a stream, or one launch of a graph that has been recorded before
//!
//! A call repeats what an earlier one did if it launches the same kernels with the same addresses and sizes. Such a
//! segment is compared word by word with those that were submitted before, so that a graph is launched only if it does
//! exactly what was asked for. The first time the work is enqueued as it is; the second time it is recorded.

use super::Cuda;
use super::driver::{Event, Graph, Ordered, check};
use crate::device::Address;
use crate::device::ptx::Entry;
use cudarc::driver::sys;
use sardonyx_base::Result;
use std::ffi::c_void;

/// One piece of work. Addresses of the host are those of page-locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Clear {
        to: Address,
        bytes: usize,
    },
    /// The arguments are `n_values` of the segment's values, from `first_value` on.
    Launch {
        kernel: usize,
        blocks: u32,
        first_value: usize,
        n_values: usize,
    },
    Copy {
        from: Address,
        to: Address,
        bytes: usize,
    },
    CopyRows {
        from: (Address, usize),
        to: (Address, usize),
        width: usize,
        rows: usize,
    },
    Upload {
        from: usize,
        to: Address,
        bytes: usize,
    },
    Download {
        from: Address,
        to: usize,
        bytes: usize,
    },
    /// Records an event of the queue.
    Mark(usize),
}

/// Work in order, with the arguments of its launches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub ops: Vec<Op>,
    pub values: Vec<u64>,
}

impl Segment {
    /// Enqueues the work.
    ///
    /// # Safety
    /// All addresses are in memory of the device or page-locked memory of the host, of at least these sizes.
    unsafe fn enqueue(&mut self, device: &Cuda, stream: sys::CUstream, marks: &[Event], in_graph: bool) -> Result<()> {
        let mut arguments: Vec<*mut c_void> = self.values.iter_mut().map(|v| (v as *mut u64).cast()).collect();
        for op in &self.ops {
            // SAFETY: the caller guarantees the memory. A kernel's entry declares as many arguments, each of 8 bytes
            // (`program::verify`, and the declaration in the PTX); the driver copies them before it returns.
            unsafe {
                match *op {
                    Op::Clear { to, bytes } => check(sys::cuMemsetD8Async(to, 0, bytes, stream), "clear memory")?,
                    Op::Launch { kernel, blocks, first_value, n_values } => {
                        let function = &device.functions[kernel];
                        let Entry { block, shared_bytes, .. } = function.entry;
                        let values = arguments[first_value..first_value + n_values].as_mut_ptr();
                        let (handle, none) = (function.handle.0, std::ptr::null_mut());
                        let launched =
                            sys::cuLaunchKernel(handle, blocks, 1, 1, block, 1, 1, shared_bytes, stream, values, none);
                        check(launched, &format!("launch `{}`", function.entry.symbol))?;
                    }
                    Op::Copy { from, to, bytes } => {
                        check(sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream), "copy on the GPU")?;
                    }
                    Op::CopyRows { from, to, width, rows } => {
                        check(sys::cuMemcpy2DAsync_v2(&rows_copy(from, to, width, rows), stream), "copy on the GPU")?;
                    }
                    Op::Upload { from, to, bytes } => {
                        let from = std::ptr::with_exposed_provenance(from);
                        check(sys::cuMemcpyHtoDAsync_v2(to, from, bytes, stream), "copy to the GPU")?;
                    }
                    Op::Download { from, to, bytes } => {
                        let to = std::ptr::with_exposed_provenance_mut(to);
                        check(sys::cuMemcpyDtoHAsync_v2(to, from, bytes, stream), "copy from the GPU")?;
                    }
                    Op::Mark(at) => marks[at].record(stream, in_graph)?,
                }
            }
        }
        Ok(())
    }
}

fn rows_copy(from: (Address, usize), to: (Address, usize), width: usize, rows: usize) -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: std::ptr::null(),
        srcDevice: from.0,
        srcArray: std::ptr::null_mut(),
        srcPitch: from.1,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: to.0,
        dstArray: std::ptr::null_mut(),
        dstPitch: to.1,
        WidthInBytes: width,
        Height: rows,
    }
}

/// The segments that a stream submitted last, and their graphs.
#[derive(Default)]
pub struct Graphs {
    kept: Vec<Kept>,
    n_uses: u64,
    /// Graphs that may still run.
    retired: Vec<Graph>,
    /// The stream on which graphs are recorded; absent before the first.
    recorder: Option<Ordered>,
}

struct Kept {
    segment: Segment,
    /// Absent until the segment is submitted a second time.
    graph: Option<Graph>,
    /// Value of `n_uses` at the last use.
    used: u64,
}

/// Number of segments that are kept with a graph, and without one. A decoder's segments are all different; they push out
/// only those without a graph.
const KEPT_MAX: usize = 16;

/// Segments of fewer operations are no graphs, because these would save nothing.
const OPS_MIN: usize = 4;

impl Graphs {
    /// Enqueues a segment on a stream.
    ///
    /// # Safety
    /// As for [`Segment::enqueue`].
    pub unsafe fn submit(
        &mut self,
        mut segment: Segment,
        device: &Cuda,
        stream: &Ordered,
        marks: &[Event],
    ) -> Result<()> {
        if segment.ops.len() < OPS_MIN {
            // SAFETY: the caller guarantees it.
            return unsafe { segment.enqueue(device, stream.handle.0, marks, false) };
        }
        self.n_uses += 1;
        let Some(at) = self.kept.iter().position(|kept| kept.segment == segment) else {
            // SAFETY: the caller guarantees it.
            unsafe { segment.enqueue(device, stream.handle.0, marks, false) }?;
            self.make_room(false);
            self.kept.push(Kept { segment, graph: None, used: self.n_uses });
            return Ok(());
        };
        let mut kept = self.kept.swap_remove(at);
        let graph = match kept.graph.take() {
            Some(graph) => graph,
            None => {
                let recorder = match &self.recorder {
                    Some(recorder) => recorder,
                    None => self.recorder.insert(Ordered::new(&device.context)?),
                };
                // SAFETY: the caller guarantees it.
                let record = |stream| unsafe { kept.segment.enqueue(device, stream, marks, true) };
                let graph = Graph::record(recorder, record)?;
                self.make_room(true);
                graph
            }
        };
        // SAFETY: the caller guarantees it: the graph's work is equal to the segment.
        let launched = unsafe { graph.launch(stream) };
        self.kept.push(Kept { graph: Some(graph), used: self.n_uses, ..kept });
        launched
    }

    /// Removes the oldest segment of those with, or without a graph if there is no place for another one.
    fn make_room(&mut self, with_graph: bool) {
        let those = || self.kept.iter().enumerate().filter(|(_, kept)| kept.graph.is_some() == with_graph);
        if those().count() < KEPT_MAX {
            return;
        }
        if let Some((at, _)) = those().min_by_key(|(_, kept)| kept.used) {
            self.retired.extend(self.kept.swap_remove(at).graph);
        }
    }

    /// Frees the graphs that are no longer needed, after the stream has been waited for.
    pub fn release(&mut self) {
        self.retired.clear();
    }
}
