//! execution of the artifact's PTX by `ptxvm`: exact results and every check, but no timing

use super::ptx::{self, Entry};
use super::{Address, Block, Device, DeviceReport, Finding, Memory, Queue, Source, Work};
use crate::memory::AlignedBuf;
use crate::pool::Threads;
use crate::stop::Stop;
use ptxvm::{Kind, Launch, Module, Options};
use sardonyx_base::{Error, Result};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Sim {
    target: String,
    /// The parsed PTX; absent if the plan has no kernels.
    module: Option<Module>,
    entries: Vec<Entry>,
    memory: Mutex<ptxvm::Memory>,
    report: Mutex<DeviceReport>,
}

/// Maximum size in bytes of a simulated allocation; its shadow memory takes several times as much on the host.
const BYTES_MAX: usize = 1 << 36;

/// A launch that exceeds this number of warp instructions is ended with an error: at ten million per second they take
/// half an hour.
const INSTRUCTIONS_MAX: u64 = 1 << 34;

impl Sim {
    pub fn open(target: &str, source: &Source) -> Result<Arc<dyn Device>> {
        let selected = ptx::selected(source, target);
        let (module, entries) = match ptx::module(source, &selected)? {
            None => (None, vec![]),
            Some((text, entries)) => {
                let module = Module::parse(text).map_err(|e| refused(&format!("PTX for {target}"), &e))?;
                (Some(module), entries)
            }
        };
        let report = DeviceReport { device: format!("sim:{target}"), ..DeviceReport::default() };
        let (memory, report) = (Mutex::new(ptxvm::Memory::new()), Mutex::new(report));
        Ok(Arc::new(Sim { target: selected, module, entries, memory, report }))
    }

    fn memory(&self) -> MutexGuard<'_, ptxvm::Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<()> {
        self.memory().write(to, bytes).map_err(|e| refused("an upload", &e))
    }

    fn download(&self, from: Address, to: &mut [u8]) -> Result<()> {
        self.memory().read(from, to).map_err(|e| refused("a download", &e))
    }
}

fn refused(what: &str, e: &dyn std::fmt::Display) -> Box<Error> {
    let help = "compile the model again with this version, or run it on another device";
    Error::user("E0405", format!("the simulator refuses {what}: {e}")).help(help)
}

/// Guard that frees simulated memory.
struct Allocation {
    device: Arc<Sim>,
    address: Address,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Cannot fail: the address came from `alloc` and is freed once.
        let _ = self.device.memory().free(self.address);
    }
}

impl Device for Sim {
    fn memory(&self) -> Memory {
        Memory::Own { apart: true }
    }

    fn target(&self) -> Option<&str> {
        Some(&self.target)
    }

    fn allocate(self: Arc<Self>, bytes: usize, name: &dyn Fn() -> String) -> Result<Block> {
        if bytes > BYTES_MAX {
            return Err(Error::user("E0304", format!("cannot allocate {bytes} bytes on a simulated device")));
        }
        // The simulator aborts the process if memory runs out, so an allocation is tried here first.
        drop(AlignedBuf::new(bytes.saturating_mul(2))?);
        let address = self.memory().alloc(bytes, &name());
        Ok(Block::new(address, bytes, Allocation { device: self, address }))
    }

    fn write(&self, to: &Block, bytes: &[u8]) -> Result<()> {
        self.upload(to.range(0, bytes.len())?, bytes)
    }

    fn read(&self, from: &Block, at: usize, to: &mut [u8]) -> Result<()> {
        self.download(from.range(at, to.len())?, to)
    }

    fn queue(self: Arc<Self>, threads: Threads, stream: Option<NonZeroUsize>) -> Result<Box<dyn Queue>> {
        super::without_stream(stream)?;
        Ok(Box::new(Lane { device: self, threads: threads.count, status: None, n_steps: 0 }))
    }

    fn host_computes(&self) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).host_operations += 1;
    }

    fn report(&self) -> Option<DeviceReport> {
        Some(self.report.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// A queue that does its work immediately.
struct Lane {
    device: Arc<Sim>,
    /// Number of threads that simulate.
    threads: usize,
    /// Status words: one of 8 bytes for each step of the call.
    status: Option<Block>,
    n_steps: usize,
}

impl Queue for Lane {
    fn begin(&mut self, n_steps: usize) -> Result<()> {
        self.status = None;
        let status = self.device.clone().allocate(8 * n_steps, &|| "status words".into())?;
        self.device.write(&status, &vec![0; 8 * n_steps])?;
        (self.status, self.n_steps) = (Some(status), n_steps);
        Ok(())
    }

    fn scratch_bytes(&self, _: usize) -> usize {
        0
    }

    fn reserve(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn trim(&mut self) -> usize {
        0
    }

    unsafe fn launch(&mut self, work: &Work, stop: &Stop) -> Result<()> {
        let (Some(module), Some(status)) = (&self.device.module, &self.status) else {
            return Err(Error::defect("a launch without a module or outside of a call"));
        };
        if work.blocks == 0 {
            return Ok(());
        }
        let entry = &self.device.entries[work.kernel];
        let mut params: Vec<u8> = work.buffers.iter().flat_map(|b| b.to_le_bytes()).collect();
        params.extend(work.params.iter().flat_map(|p| p.to_le_bytes()));
        params.extend(status.range(8 * work.step, 8)?.to_le_bytes());
        let launch = Launch {
            entry: entry.symbol.clone(),
            grid: [work.blocks, 1, 1],
            block: [entry.block, 1, 1],
            cluster: [1, 1, 1],
            shared_bytes: entry.shared_bytes,
            params,
        };
        let options = Options { threads: self.threads, instructions_max: INSTRUCTIONS_MAX, ..Options::default() };
        let mut memory = self.device.memory();
        let ran = ptxvm::run_while(module, &mut memory, &launch, &options, &|| stop.go_on());
        let ran = ran.map_err(|e| refused(&entry.symbol, &e))?;
        stop.check()?;
        let is_endless = ran.findings.iter().any(|f| f.kind == Kind::InstructionLimit);
        let mut report = self.device.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.launches += 1;
        for f in ran.findings {
            let (kernel, kind) = (entry.symbol.clone(), f.kind.name());
            report.add(Finding { kernel, line: f.line, kind, message: f.message, count: f.count });
        }
        match is_endless {
            true => Err(refused(&entry.symbol, &format!("it runs more than {INSTRUCTIONS_MAX} warp instructions"))),
            false => Ok(()),
        }
    }

    unsafe fn copy(&mut self, from: Address, to: Address, bytes: usize) -> Result<()> {
        let mut through = AlignedBuf::new(bytes)?;
        self.device.download(from, &mut through.as_mut_slice()[..bytes])?;
        self.device.upload(to, &through.as_ref()[..bytes])
    }

    unsafe fn upload(&mut self, from: &[u8], to: Address) -> Result<()> {
        self.device.upload(to, from)
    }

    unsafe fn download(&mut self, from: Address, to: &mut [u8]) -> Result<()> {
        self.device.download(from, to)
    }

    fn finish(&mut self) -> Result<Option<usize>> {
        let Some(status) = self.status.take() else { return Ok(None) };
        let mut words = vec![0; 8 * self.n_steps];
        self.device.read(&status, 0, &mut words)?;
        Ok(words.chunks_exact(8).position(|word| word.iter().any(|b| *b != 0)))
    }
}
