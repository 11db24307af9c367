//! [`run`]: a program, memory and a launch  =>  findings and counters; blocks run on several OS threads

mod access;
mod agents;
mod atomics;
mod barrier;
mod block;
mod bulk;
mod env;
mod exchange;
mod mbarrier;
mod memory_ops;
mod notes;
mod tally;
mod warp;
mod wgmma;
mod wmma;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::decode::program::{Inner, Program};
use crate::launch::{check, volume};
use crate::report::{Finding, Kind, Report};
use crate::shadow;
use crate::{Error, Launch, Memory, Module, Options};
use block::Block;
use env::Env;
use notes::Notes;
use tally::Tally;

/// Maximum local memory of all threads of a block.
const LOCAL_BYTES_MAX: u64 = 1 << 30;
/// Maximum size of the registers of all threads of a block. PTX registers are virtual, so this limit is larger than the
/// register file of any GPU.
const REGISTER_BYTES_MAX: u64 = 1 << 30;

/// State shared by all blocks of a launch.
pub(crate) struct Context<'a> {
    pub module: &'a Inner,
    pub program: &'a Program,
    pub memory: &'a Memory,
    pub launch: &'a Launch,
    pub options: &'a Options,
    pub go_on: &'a (dyn Fn() -> bool + Sync),
    /// Addresses of the module's variables.
    pub symbols: Vec<u64>,
    pub n_threads: u32,
    pub shared_bytes: u32,
    /// Number of warp instructions executed; each block adds its own count after every time slice.
    pub spent: AtomicU64,
    /// Set to stop all blocks: by a trap, by too many instructions, or at the caller's request.
    pub halt: AtomicBool,
}

/// Executes all blocks of a launch. Findings do not stop the launch, apart from a trap and the instruction limit; a
/// load out of bounds returns 0, and a store out of bounds is dropped. Errors mean that nothing ran: unknown entry,
/// wrong parameters, impossible grid.
pub fn run(module: &Module, memory: &mut Memory, launch: &Launch, options: &Options) -> Result<Report, Error> {
    run_while(module, memory, launch, options, &|| true)
}

/// Like [`run`], but calls `go_on` after each time slice of a warp, which has at most 512 instructions, and stops the
/// launch once `go_on` returns false.
pub fn run_while(
    module: &Module,
    memory: &mut Memory,
    launch: &Launch,
    options: &Options,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Report, Error> {
    check(launch)?;
    let inner = &*module.inner;
    let Some(program) = inner.programs.iter().find(|program| program.name == launch.entry) else {
        let known: Vec<&str> = module.entries().collect();
        return Err(Error::new(0, format!("no entry `{}`; the text has {}", launch.entry, known.join(", "))));
    };
    let shared_bytes = check_entry(program, launch)?;
    let symbols = memory.load(inner)?;
    let context = Context {
        module: inner,
        program,
        memory,
        launch,
        options,
        go_on,
        symbols,
        n_threads: volume(launch.block) as u32,
        shared_bytes,
        spent: AtomicU64::new(0),
        halt: AtomicBool::new(false),
    };
    Ok(blocks(&context))
}

fn check_entry(program: &Program, launch: &Launch) -> Result<u32, Error> {
    let refuse = |what: String| Err(Error::new(program.line, format!("launch of `{}`: {what}", program.name)));
    if launch.params.len() != program.params_bytes as usize {
        return refuse(format!("{} bytes of parameters, not {}", program.params_bytes, launch.params.len()));
    }
    let threads = volume(launch.block);
    if program.threads_exact.is_some_and(|exact| exact != launch.block && volume(exact) != threads) {
        return refuse(format!("block {:?} differs from .reqntid", launch.block));
    }
    if program.threads_max.is_some_and(|most| threads > volume(most)) {
        return refuse(format!("block {:?} is larger than .maxntid", launch.block));
    }
    let shared = u64::from(program.shared_bytes) + u64::from(launch.shared_bytes);
    if shared > crate::decode::SHARED_BYTES_MAX {
        return refuse(format!("{shared} bytes of shared memory"));
    }
    let register_bytes = 4 * u64::from(program.n_words) + 8 * u64::from(program.n_doubles);
    if threads.next_multiple_of(32) * register_bytes > REGISTER_BYTES_MAX {
        return refuse(format!("{register_bytes} bytes of registers for each of {threads} threads"));
    }
    if threads.next_multiple_of(32) * u64::from(program.local_bytes) > LOCAL_BYTES_MAX {
        return refuse(format!("{} bytes of local memory for each of {threads} threads", program.local_bytes));
    }
    Ok(shared as u32)
}

fn blocks(context: &Context) -> Report {
    let n_blocks = volume(context.launch.grid);
    let shadow = context.options.checks.then(|| context.memory.shadow.launch(n_blocks));
    let (next, total) = (AtomicU64::new(0), Mutex::new((Notes::default(), fresh_tally(context))));
    let worker = || {
        let (mut notes, mut tally) = (Notes::default(), fresh_tally(context));
        let mut block = Block::new(context);
        loop {
            let index = next.fetch_add(1, Relaxed);
            if index >= n_blocks || context.halt.load(Relaxed) {
                break;
            }
            let shadow = shadow
                .as_ref()
                .map(|launch| shadow::Block::new(launch, index, context.n_threads, context.shared_bytes));
            let env = Env::new(context, index, shadow, &mut notes, &mut tally, block.take_shared());
            block.run(env);
        }
        let mut total = total.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        total.0.merge(notes);
        total.1.merge(&tally);
    };
    let n_workers = (context.options.threads.max(1) as u64).min(n_blocks);
    std::thread::scope(|scope| {
        for _ in 1..n_workers {
            scope.spawn(worker);
        }
        worker();
    });
    let (mut notes, tally) = total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut counters = tally.counters(context.program, context.memory, &context.module.lines);
    if let Some(shadow) = shadow {
        let outcome = shadow.finish();
        for crossing in &outcome.crossings {
            notes.add(Kind::Race, crossing.line, crossing.block, 1, || crossing_message(context, crossing));
        }
        for sectors in &outcome.sectors {
            if let Some(counters) = counters.allocations.iter_mut().find(|found| found.address == sectors.address) {
                counters.distinct_load_sectors = sectors.loads;
                counters.distinct_store_sectors = sectors.stores;
            }
        }
    }
    let findings: Vec<Finding> = notes.into_findings();
    Report { findings, counters }
}

fn fresh_tally(context: &Context) -> Tally {
    Tally::new(context.program.code.len(), context.memory.allocations.len())
}

fn crossing_message(context: &Context, crossing: &shadow::Crossing) -> String {
    let verb = if crossing.write { "writes" } else { "reads" };
    let other = match crossing.other_block {
        Some(block) => format!("block {}", env::position(block, context.launch.grid)),
        None => "an earlier block".to_owned(),
    };
    format!(
        "`{}`: block {} {verb} {} bytes at {} that {other} touched in line {} without an order between them",
        context.text(crossing.line),
        env::position(crossing.block, context.launch.grid),
        crossing.bytes,
        context.place(crossing.address),
        crossing.other_line
    )
}

impl Context<'_> {
    /// Returns a line of the PTX text.
    pub fn text(&self, line: u32) -> &str {
        self.module.lines.get(line.wrapping_sub(1) as usize).map_or("", String::as_str)
    }

    /// Describes an address by the allocation that contains it, or else by the nearest allocation.
    pub fn place(&self, address: u64) -> String {
        if let Some(at) = self.memory.find(address) {
            let found = &self.memory.allocations[at];
            return format!("{address:#x}, byte {} of `{}` ({} bytes)", address - found.base, found.name, found.bytes);
        }
        let near = self.memory.allocations.iter().rev().find(|allocation| allocation.base <= address);
        match near {
            Some(near) if address - near.base - near.bytes < 1 << 25 => {
                let past = address - near.base - near.bytes;
                format!("{address:#x}, {past} bytes past the end of `{}` ({} bytes)", near.name, near.bytes)
            }
            _ => {
                let next = self.memory.allocations.iter().find(|allocation| allocation.base > address);
                match next {
                    Some(next) if next.base - address < 1 << 25 => {
                        format!("{address:#x}, {} bytes before `{}`", next.base - address, next.name)
                    }
                    _ => format!("{address:#x}, in no allocation"),
                }
            }
        }
    }
}
