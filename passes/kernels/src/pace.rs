//! KernelDef  =>  how near its code comes to what a CPU could do: a share of the arithmetic, and what lies scattered

use super::contract::{self, Form, WIDTH};
use super::def::*;
use super::{Route, stages};

/// An estimate that layouts are compared by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Of the rate that code of its class has at best.
    pub share: f64,
    /// The part of its accesses whose lanes are no neighbours in memory.
    pub scattered: f64,
}

impl Pace {
    /// One number for both.
    pub fn worth(self) -> f64 {
        self.share * (1.0 - self.scattered / 2.0)
    }
}

/// Lanes of the vectors that are thought of.
const LANES: i64 = 16;
/// Rows of a block that keeps both multipliers busy.
const ROWS: f64 = 4.0;
/// Steps that a loop's beginning costs.
const BEGIN: f64 = 2.0;
/// Where neighbours of the left factor along the sum are none in memory, and where the right one's rows are not.
const FACTOR_APART: f64 = 0.35;
const ROWS_APART: f64 = 0.65;
const DIAGONAL: f64 = 0.6;
/// A contraction without blocks of registers: by vectors, and element by element.
const PLAIN: f64 = 1.0 / 6.0;
const SINGLE: f64 = 1.0 / 64.0;

impl KernelDef {
    pub fn pace(&self) -> Pace {
        let contraction = self.class == sardonyx_dialects::flow::Class::Contract;
        match self.route() {
            Route::Contract(plan) => self.blocked(&plan),
            Route::Attention(_) => Pace { share: 1.0, scattered: 0.0 },
            Route::Map => self.along(self.outer.len().checked_sub(1), 1.0),
            Route::Normalise => {
                let lanes = match stages::rows(self).along_outer {
                    true => self.outer.len().checked_sub(1),
                    false => self.n_point_vars().checked_sub(1),
                };
                self.along(lanes, if contraction { PLAIN } else { 1.0 })
            }
        }
    }

    /// Code whose lanes run along a variable.
    fn along(&self, var: Option<usize>, share: f64) -> Pace {
        let Some(var) = var else { return Pace { share: share * SINGLE, scattered: 0.0 } };
        let short = self.filled(var, LANES);
        let part = self.apart(var, |_| true);
        Pace { share: share * short * (1.0 - part).max(SINGLE / PLAIN), scattered: part }
    }

    /// Of those accesses that move with a variable along which lanes run, the part whose lanes are no neighbours.
    fn apart(&self, var: usize, counts: impl Fn(&Access) -> bool) -> f64 {
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

    /// The part of the lanes that is used.
    fn filled(&self, var: usize, lanes: i64) -> f64 {
        self.extent(var).as_const().filter(|n| *n > 0).map_or(1.0, |n| {
            let whole = (n + lanes - 1).div_euclid(lanes) * lanes;
            n as f64 / whole as f64
        })
    }

    fn blocked(&self, plan: &contract::Plan) -> Pace {
        let rows = plan.m.map_or(Some(1), |m| self.extent(m).as_const()).map_or(1.0, |m| (m as f64 / ROWS).min(1.0));
        let depth = self.extent(plan.k).as_const().filter(|_| !plan.around.is_empty());
        let begins = depth.map_or(1.0, |k| k as f64 / (k as f64 + BEGIN));
        let is_factor = |access: &Access| *access == plan.a || plan.sums.iter().any(|s| s.b == *access);
        let scattered = self.apart(plan.n, |access| !is_factor(access));
        let lanes = if self.extent(plan.n).as_const().is_some_and(|n| n < WIDTH) { LANES } else { WIDTH };
        let apart = |access: &Access, part: f64| if access.stride(plan.k).is(1) { 1.0 } else { part };
        let streams = match plan.form {
            // Every product has a load of its own.
            _ if plan.diagonal => DIAGONAL,
            Form::Panels => apart(&plan.a, FACTOR_APART),
            // Rows one behind the other are a panel.
            Form::Rows if plan.b().stride(plan.k).is(WIDTH) => apart(&plan.a, FACTOR_APART),
            Form::Rows | Form::Copied => apart(&plan.a, FACTOR_APART) * apart(plan.b(), ROWS_APART),
        };
        let share = rows * begins * self.filled(plan.n, lanes) * streams;
        Pace { share, scattered }
    }
}
