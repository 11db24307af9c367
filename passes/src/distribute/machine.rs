//! operations, bytes, exchanges  =>  microseconds on the ranks of a described cluster

use sardonyx_base::host::Collective;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::schedule::operands_for;
use sardonyx_base::{DType, Result};
use sardonyx_cluster::{Fastest, Groups, Topology};
use sardonyx_kernels::Rates;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const US: f64 = 1e6;

/// Ranks of a mesh; rank r is device r of the topology, and the last axis of the mesh varies fastest.
pub struct Machine<'m, 't> {
    /// Rates of one rank.
    rates: Rates,
    mesh: Vec<usize>,
    times: &'m Times<'t>,
}

/// Cache of the simulated times of collectives, by bytes and groups; shared by all meshes and threads.
pub struct Times<'t> {
    topology: &'t Topology,
    known: Mutex<BTreeMap<Asked, f64>>,
    /// Simulations that no thread is using, with the routes that they remember.
    idle: Mutex<Vec<Fastest<'t>>>,
}

impl<'t> Times<'t> {
    /// Creates an empty cache for a cluster.
    pub fn new(topology: &'t Topology) -> Times<'t> {
        Times { topology, known: Mutex::default(), idle: Mutex::default() }
    }

    /// Returns the time of a collective, from `simulate` if it is not known yet. No lock is held during the simulation.
    fn get(&self, key: Asked, simulate: impl FnOnce(&mut Fastest) -> Result<f64>) -> Result<f64> {
        if let Some(known) = locked(&self.known).get(&key) {
            return Ok(*known);
        }
        let idle = locked(&self.idle).pop();
        let mut fastest = idle.unwrap_or_else(|| Fastest::new(self.topology));
        let time = simulate(&mut fastest)?;
        locked(&self.idle).push(fastest);
        locked(&self.known).insert(key, time);
        Ok(time)
    }
}

/// Locks a cache, whose contents are complete even if a thread panicked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A collective; ranks, size and stride of its groups; log2 of its bytes.
type Asked = (Collective, [usize; 3], u32);

/// Step between simulated sizes, in powers of two; times in between are interpolated linearly.
const STEP: u32 = 2;

impl<'m, 't> Machine<'m, 't> {
    /// Creates the machine from the rates of one rank and the number of ranks along each axis of the mesh.
    pub fn new(rates: Rates, mesh: &[i64], times: &'m Times<'t>) -> Machine<'m, 't> {
        let mesh = mesh.iter().map(|n| usize::try_from(*n).unwrap_or(1)).collect();
        Machine { rates, mesh, times }
    }

    /// Returns the microseconds that a rank takes for the work of an operation.
    pub fn compute_us(&self, work: Work) -> f64 {
        let launch = f64::from(work.launches) * self.rates.launch_s;
        let computed = work.products / self.rates.contract_ops_per_s;
        (launch + computed.max(work.bytes / self.rates.bytes_per_s)) * US
    }

    /// Returns the microseconds of the fastest algorithm that ranks can run, or infinity if all algorithms have too
    /// many messages to simulate. `bytes` is the size of the whole tensor, which is each rank's operand of a reduction,
    /// or the result of a gather; for a halo, it is the number of bytes that a rank takes from one neighbour.
    pub fn exchange_us(&self, op: &Collective, bytes: f64) -> Result<f64> {
        let exponent = bytes.max(1.0).log2();
        let below = (exponent / f64::from(STEP)).floor() as u32 * STEP;
        let [low, high] = [below, below + STEP].map(|e| self.simulated(op, e));
        let (low, high) = (low?, high?);
        if !(low.is_finite() && high.is_finite()) {
            return Ok(f64::INFINITY);
        }
        let [from, to] = [below, below + STEP].map(|e| f64::from(e).exp2());
        Ok(low + (high - low) * ((bytes - from) / (to - from)).max(0.0))
    }

    fn simulated(&self, op: &Collective, exponent: u32) -> Result<f64> {
        let axis = op.mesh();
        let op = &same_time(op);
        let ranks = self.mesh.get(axis).copied().unwrap_or(1);
        let inner: usize = self.mesh.iter().skip(axis + 1).product();
        let groups = Groups { ranks: self.mesh.iter().product(), size: ranks, stride: inner };
        self.times.get((*op, [groups.ranks, groups.size, groups.stride], exponent), |fastest| {
            let operands = operands_for(op, ranks, 1 << exponent.min(40));
            Ok(fastest.time_us(op, &operands, groups)?.unwrap_or(f64::INFINITY))
        })
    }
}

/// The work of an operation on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Number of multiplications and additions of contractions.
    pub products: f64,
    pub bytes: f64,
    pub launches: u32,
}

/// Returns the collective with a fixed dimension, and a halo with fixed widths: these affect the time only through the
/// number of bytes.
pub fn same_kind(op: &Collective) -> Collective {
    match *op {
        Collective::AllGather { mesh, .. } => Collective::AllGather { mesh, dim: 0 },
        Collective::ReduceScatter { mesh, f, .. } => Collective::ReduceScatter { mesh, f, dim: 0 },
        Collective::Halo { mesh, .. } => Collective::Halo { mesh, dim: 0, before: 1, after: 1 },
        op => op,
    }
}

/// Returns the same collective for all those that take the same time: combining two elements takes as long for every
/// reduction.
fn same_time(op: &Collective) -> Collective {
    let f = Reduction::Add;
    match same_kind(op) {
        Collective::AllReduce { mesh, .. } => Collective::AllReduce { mesh, f },
        Collective::ReduceScatter { mesh, dim, .. } => Collective::ReduceScatter { mesh, f, dim },
        op => op,
    }
}

/// Returns the bytes of this many elements.
pub fn bytes(elements: f64, dtype: DType) -> f64 {
    elements * dtype.bits() as f64 / 8.0
}
