//! KernelDef  =>  estimated efficiency of its CPU code: a share of the peak rate, and the share of scattered accesses

use super::def::*;

/// Estimate that is used to compare layouts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Share of the best rate that code of its class reaches.
    pub share: f64,
    /// Share of the accesses whose lanes are not contiguous in memory.
    pub scattered: f64,
}

impl Pace {
    /// The full rate without scattered accesses.
    pub const FULL: Pace = Pace { share: 1.0, scattered: 0.0 };
    /// Pace assumed for a kernel that has no code yet.
    pub const UNKNOWN: Pace = Pace { share: 0.01, scattered: 1.0 };

    /// Both figures as one number; larger is faster.
    pub fn worth(self) -> f64 {
        self.share * (1.0 - self.scattered / 2.0)
    }
}

/// Number of vector lanes that the estimates assume.
pub const LANES: i64 = 16;
/// Share of the best rate that a contraction without register blocks reaches: vectorised, and element by element.
pub const PLAIN: f64 = 1.0 / 6.0;
const SINGLE: f64 = 1.0 / 64.0;

impl KernelDef {
    /// Pace of code whose lanes run along a variable.
    pub fn pace_along(&self, var: Option<usize>, share: f64) -> Pace {
        let Some(var) = var else { return Pace { share: share * SINGLE, scattered: 0.0 } };
        let short = self.used_lanes(var, LANES);
        let part = self.scattered_part(var, |_| true);
        Pace { share: share * short * (1.0 - part).max(SINGLE / PLAIN), scattered: part }
    }

    /// Share of non-contiguous accesses among those that depend on the variable along which lanes run.
    pub fn scattered_part(&self, var: usize, counts: impl Fn(&Access) -> bool) -> f64 {
        let loads = self
            .body
            .iter()
            .filter_map(|s| if let Op::Load { access, .. } = &s.op { Some((access, true)) } else { None });
        let moved = |(access, load): &(&Access, bool)| {
            let panels = *load && self.reads[access.buffer].panels.is_some();
            !panels && (access.moves_with(var) || !access.computed.is_empty())
        };
        let all = loads.chain(self.stores.iter().map(|w| (&w.access, false))).filter(moved);
        let all: Vec<&Access> = all.map(|(access, _)| access).filter(|access| counts(access)).collect();
        let apart = all.iter().filter(|access| !access.stride(var).is(1)).count();
        if all.is_empty() { 0.0 } else { apart as f64 / all.len() as f64 }
    }

    /// Share of the vector lanes that hold elements if lanes run along a variable.
    pub fn used_lanes(&self, var: usize, lanes: i64) -> f64 {
        self.extent(var).as_const().filter(|n| *n > 0).map_or(1.0, |n| {
            let whole = (n + lanes - 1).div_euclid(lanes) * lanes;
            n as f64 / whole as f64
        })
    }
}
