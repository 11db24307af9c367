//! a collective, repeated  =>  how long each repetition took

use super::link::{Exchange, Link};
use super::order::{Measure, Order};
use super::wire::Wire;
use super::world::World;
use crate::memory::AlignedBuf;
use crate::model::Transport;
use crate::stop::{RunOptions, Stop};
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::{Algorithm, Operand, operands_for};
use sardonyx_base::{Error, Result, Tensor};
use std::time::{Duration, Instant};

/// Ranks that run collectives without a model, to measure how long each collective takes.
pub struct Ranks {
    world: World,
    n: usize,
}

impl Ranks {
    /// Starts `n` ranks. Errors: E0304, E0407, E0408.
    pub fn start(n: usize, transport: Transport, wire: Option<Wire>) -> Result<Ranks> {
        let world = match transport {
            Transport::Threads => super::on_threads(&[n], (1..n).map(|_| None), wire)?,
            Transport::Processes => super::in_processes(&[n], wire)?,
            Transport::Mpi => super::over_mpi(&[n])?,
        };
        world.link().expect_threads(1);
        Ok(Ranks { world, n })
    }

    /// Returns the times that repetitions of a collective on f32 took on the first rank. `bytes` is about the size of a
    /// rank's operand, or of the result if the collective gathers. Without an algorithm, the transport's own library
    /// (MPI) runs the collective. Errors: E0001 for an unknown collective, E0304, E0408 also if the transport has no
    /// library, and E0901 if a rank got a wrong result.
    pub fn measure(&self, op: &str, bytes: usize, times: u32, algorithm: Option<Algorithm>) -> Result<Vec<Duration>> {
        let algorithm = algorithm.map_or(String::new(), |a| a.name().into());
        let measure = Measure { op: op.into(), bytes: bytes as u64, times, ranks: self.n as u32, algorithm };
        Collective::from_user(op)?;
        let order = Order { measure: Some(measure.clone()), ..Order::default() };
        self.world.together(order, |link| run(link, &measure))
    }
}

/// Runs one rank's part of a measurement; returns the time of each repetition.
pub fn run(link: &dyn Link, what: &Measure) -> Result<Vec<Duration>> {
    let (op, n) = (Collective::from_user(&what.op)?, what.ranks as usize);
    link.expect_threads(1);
    let operands = operands_for(&op, n, what.bytes as usize);
    let own = link.rank();
    let result = sardonyx_base::schedule::result(&op, &operands, own)?;
    let (from, to) = (operands[own].bytes().next_multiple_of(4096), result.bytes());
    let (mut apart, arena) = (AlignedBuf::new(0)?, link.arena(from + to).transpose()?);
    let start: *mut u8 = match &arena {
        Some(arena) => std::ptr::with_exposed_provenance_mut(arena.address() as usize),
        None => {
            apart.grow(from + to, 0)?;
            apart.as_ptr()
        }
    };
    let brought = numbers(own, &operands[own]);
    let brings = brought.bytes().len() / brought.dtype().bytes();
    // SAFETY: the memory has `from + to` bytes, and belongs to this rank alone.
    unsafe {
        start.write_bytes(0, from + to);
        start.copy_from_nonoverlapping(brought.bytes().as_ptr(), brought.bytes().len());
    }
    let algorithm = Algorithm::from_name(&what.algorithm);
    let ranks: Vec<usize> = (0..n).collect();
    let (options, mut took) = (RunOptions::default(), vec![]);
    for step in 0..what.times as usize {
        let exchange = Exchange {
            op: &op,
            step,
            ranks: &ranks,
            operands: &operands,
            own,
            result: &result,
            algorithm: algorithm.unwrap_or(Algorithm::Direct),
        };
        let begun = Instant::now();
        // SAFETY: the result is stored after the operand, without overlap.
        unsafe {
            let result = start.add(from);
            match algorithm {
                None => link.library(&op, start, result, brings)?,
                Some(_) => link.exchange(&exchange, start, result, &Stop::new(&options))?,
            }
        }
        took.push(begun.elapsed());
        if step == 0 && what.bytes <= CHECKED_MAX {
            let all: Vec<Tensor> = operands.iter().enumerate().map(|(rank, o)| numbers(rank, o)).collect();
            // SAFETY: as above.
            let made = unsafe { std::slice::from_raw_parts(start.add(from), to) };
            if op.result(&all, own)?.bytes()[..] != *made {
                return Err(Error::defect(format!("`{op}` of {brings} elements gave rank {own} another result")));
            }
        }
    }
    Ok(took)
}

/// The first repetition's result is compared with the expected one if a measurement's `bytes` are at most this many.
const CHECKED_MAX: u64 = 4 << 20;

/// Returns the operand of a rank: small integers, whose sums are exact in any order.
fn numbers(rank: usize, operand: &Operand) -> Tensor {
    let n = operand.dims.iter().product();
    Tensor::from_vec(operand.dims.clone(), (0..n).map(|i| ((i * 7 + rank * 5) % 3) as f32 - 1.0).collect())
}
