//! ranks  =>  exchanges among them, and the calls that all of them make together
//!
//! | file | what it is |
//! |---|---|
//! | `link.rs` | the interface of a transport |
//! | `segment.rs` | the memory that the ranks of one host share |
//! | `shared.rs` | collectives over that memory: ranks read each other's operands in place |
//! | `wire.rs` | emulation of links that are slower than memory |
//! | `order.rs` | messages from the first rank to the others |
//! | `world.rs` | the calls of the first rank, which all ranks make together |
//! | `peer.rs` | the loop of the other ranks |
//! | `mpi.rs` | transport between ranks that an MPI launcher has started |
//! | `nccl.rs` | collectives between ranks that have GPUs |
//! | `library.rs` | loading of the MPI and NCCL libraries |
//! | `measure.rs` | measurements of collectives |
//! | `processes.rs` | ranks in other processes, and how their end is noticed |
//!
//! In a call, every rank runs the same steps. A collective joins the ranks that differ in one coordinate of the mesh,
//! and all ranks run their collectives in the same order. Each rank posts the location of its operand, waits until all
//! ranks have done so, and computes its own result from all operands. Reductions combine operands in the order of the
//! ranks, so that bits do not depend on timing.

mod library;
mod link;
mod measure;
mod mpi;
#[cfg(feature = "cuda")]
mod nccl;
mod order;
mod peer;
mod processes;
mod segment;
mod shared;
mod wire;
mod world;

use crate::model::Model;
use peer::Peer;
use sardonyx_base::{Error, Result};
use segment::Segment;
use shared::{Members, Shared};
use std::sync::Arc;

pub(crate) use link::{Exchange, Link};
pub use measure::Ranks;
#[cfg(feature = "cuda")]
pub(crate) use nccl::Meeting;
pub(crate) use order::{CacheRef, Load, Open, Order, Run};
pub use processes::serve_rank;
pub use sardonyx_base::schedule::Algorithm;
pub(crate) use sardonyx_base::schedule::{Operand, result, taken_bytes};
pub(crate) use segment::AXES_MAX;
pub use wire::Wire;
pub(crate) use world::{CacheIds, World};

/// Starts the other ranks of a mesh on threads of this process; `peers` are their models. Errors: E0304.
pub(crate) fn on_threads(
    mesh: &[usize],
    peers: impl Iterator<Item = Option<Model>>,
    wire: Option<Wire>,
) -> Result<World> {
    let segment = Arc::new(Segment::private(mesh.iter().product())?);
    wire.into_iter().for_each(|wire| segment.slow_down(wire));
    let rank = |at: usize| Shared::new(segment.clone(), at);
    let mut threads = vec![];
    for (at, model) in (1..).zip(peers) {
        let peer = Peer::new(Arc::new(rank(at)), model);
        // `serve` fails only when the first rank is gone, and then this thread ends as well.
        let thread = std::thread::Builder::new().name(format!("rank {at}")).spawn(move || drop(peer.serve()));
        threads.push(thread.map_err(|e| Error::user("E0304", format!("cannot start a rank: {e}")))?);
    }
    Ok(World::new(Arc::new(rank(0).leading(Members::Threads(threads), Arc::default()))))
}

/// Starts the other ranks of a mesh in processes, which have no model yet. Errors: E0304, E0408.
pub(crate) fn in_processes(mesh: &[usize], wire: Option<Wire>) -> Result<World> {
    let segment = Arc::new(Segment::shared(mesh.iter().product())?);
    wire.into_iter().for_each(|wire| segment.slow_down(wire));
    let call = Arc::default();
    let start = |rank| processes::Process::start(&segment, rank, &call);
    let members = (1..segment.n_ranks).map(start).collect::<Result<_>>()?;
    let first = Shared::new(segment, 0).leading(Members::Processes(members), call.clone());
    Ok(World::new(Arc::new(first)))
}

/// Joins the ranks of a mesh that an MPI launcher has started; this process is the first rank. Errors: E0407, E0408.
pub(crate) fn over_mpi(mesh: &[usize]) -> Result<World> {
    let none = || Error::user("E0408", "no MPI launcher has started this process").help("start it with `mpirun -n`");
    let mpi = mpi::joined()?.ok_or_else(none)?;
    let (n, started) = (mesh.iter().product::<usize>(), mpi.n_ranks());
    if n != started {
        let message = format!("the model is made for {n} ranks, the launcher has started {started}");
        return Err(Error::user("E0407", message).help(format!("start {n}, or compile it with `--ranks {started}`")));
    }
    Ok(World::new(mpi))
}

/// Returns the index of this process's rank among those of its host, as the launcher reports it; otherwise `rank`.
pub(crate) fn place_on_host(rank: usize) -> usize {
    mpi::place_on_host().unwrap_or(rank)
}

/// Whether an MPI launcher has started this process as one of several.
pub fn is_launched() -> bool {
    mpi::launcher().is_some()
}
