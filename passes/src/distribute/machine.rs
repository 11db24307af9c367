//! operations, bytes, exchanges  =>  microseconds of ranks on a described cluster

use sardonyx_base::host::Collective;
use sardonyx_base::schedule::operands_for;
use sardonyx_base::{DType, Result};
use sardonyx_cluster::{Fastest, Groups, Topology};
use sardonyx_kernels::Rates;
use std::cell::RefCell;
use std::collections::BTreeMap;

const US: f64 = 1e6;

/// Ranks of a mesh, rank r on device r of the topology; the last axis of the mesh runs fastest.
pub struct Machine<'m, 't> {
    /// Of one rank.
    rates: Rates,
    mesh: Vec<usize>,
    times: &'m Times<'t>,
}

/// The time of a collective of so many bytes in groups, as far as somebody asked: it is the same for all meshes.
pub struct Times<'t> {
    known: RefCell<BTreeMap<Asked, f64>>,
    fastest: RefCell<Fastest<'t>>,
}

impl<'t> Times<'t> {
    pub fn new(topology: &'t Topology) -> Times<'t> {
        Times { known: RefCell::default(), fastest: RefCell::new(Fastest::new(topology)) }
    }
}

/// A collective; the ranks, the size and the stride of its groups; bytes as a power of two.
type Asked = (Collective, [usize; 3], u32);

/// Bytes that are simulated, as powers of two; between two of them time is a straight line.
const STEP: u32 = 2;

impl<'m, 't> Machine<'m, 't> {
    pub fn new(rates: Rates, mesh: &[i64], times: &'m Times<'t>) -> Machine<'m, 't> {
        let mesh = mesh.iter().map(|n| usize::try_from(*n).unwrap_or(1)).collect();
        Machine { rates, mesh, times }
    }

    /// A rank takes so long for the work of an operation.
    pub fn compute_us(&self, work: Work) -> f64 {
        let launch = f64::from(work.launches) * self.rates.launch_s;
        let computed = work.products / self.rates.contract_ops_per_s;
        (launch + computed.max(work.bytes / self.rates.bytes_per_s)) * US
    }

    /// Microseconds of the fastest algorithm that ranks can run; infinite where all have more messages than are simulated. Bytes are those of the whole: what each rank has of a reduction,
    /// or gets of a gathering.
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
        let op = &same_kind(op);
        let ranks = self.mesh.get(axis).copied().unwrap_or(1);
        let inner: usize = self.mesh.iter().skip(axis + 1).product();
        let groups = Groups { ranks: self.mesh.iter().product(), size: ranks, stride: inner };
        let key = (*op, [groups.ranks, groups.size, groups.stride], exponent);
        if let Some(known) = self.times.known.borrow().get(&key) {
            return Ok(*known);
        }
        let operands = operands_for(op, ranks, 1 << exponent.min(40));
        let time = self.times.fastest.borrow_mut().time_us(op, &operands, groups)?.unwrap_or(f64::INFINITY);
        self.times.known.borrow_mut().insert(key, time);
        Ok(time)
    }
}

/// What an operation does on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Multiplications and additions of contractions.
    pub products: f64,
    pub bytes: f64,
    pub launches: u32,
}

/// Along whichever dimension.
pub fn same_kind(op: &Collective) -> Collective {
    match *op {
        Collective::AllGather { mesh, .. } => Collective::AllGather { mesh, dim: 0 },
        Collective::ReduceScatter { mesh, f, .. } => Collective::ReduceScatter { mesh, f, dim: 0 },
        op => op,
    }
}

/// Bytes of so many elements.
pub fn bytes(elements: f64, dtype: DType) -> f64 {
    elements * dtype.bits() as f64 / 8.0
}
