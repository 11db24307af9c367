//! Ranks that run one program together: each runs on its own thread, and they exchange tensors in collectives
//!
//! The mesh is a grid of ranks, numbered so that the last axis varies fastest. A collective along an axis is executed
//! by groups of ranks that differ only in their coordinate along this axis.

use crate::params::ParamValues;
use sardonyx_base::host::{Collective, alone};
use sardonyx_base::{Error, Result, Tensor};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

/// The mesh as seen by the rank that runs.
pub trait World {
    /// The rank's coordinate along an axis of the mesh; `None` if there is no such axis.
    fn coordinate(&self, axis: usize) -> Option<i64>;

    /// Executes a collective with the other ranks of its group, and returns this rank's result. Errors: E0407 if the
    /// mesh has no such axis; E0408 if another rank has ended; E0901 if it executes another collective.
    fn exchange(&self, op: &Collective, operand: &Tensor) -> Result<Tensor>;
}

/// The environment in which a program runs.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// Values of the model's parameters.
    pub params: &'a dyn ParamValues,
    /// The mesh as seen by the rank that runs; [`Alone`] without a mesh.
    pub world: &'a dyn World,
    /// Number of iterations executed so far by the outermost loop and all loops nested in it; `None` outside of loops.
    pub n_turns: Option<&'a Cell<usize>>,
}

impl<'a> Setting<'a> {
    /// Returns the setting of a program that runs without a mesh and outside of loops.
    pub fn alone(params: &'a dyn ParamValues) -> Setting<'a> {
        Setting { params, world: &Alone, n_turns: None }
    }
}

/// The world of a program that runs without a mesh.
pub struct Alone;

impl World for Alone {
    fn coordinate(&self, _: usize) -> Option<i64> {
        None
    }

    fn exchange(&self, op: &Collective, _: &Tensor) -> Result<Tensor> {
        Err(alone(op))
    }
}

/// Runs all ranks of a mesh and returns their results in rank order. If ranks fail, returns the first error other than
/// E0408, since E0408 only reports that another rank has ended; if there is none, the first E0408.
pub fn on_ranks<T: Send>(mesh: &[usize], run: impl Fn(&dyn World) -> Result<T> + Sync) -> Result<Vec<T>> {
    let meeting = Meeting::default();
    let rank = |rank: usize| {
        let member = Member { mesh, rank, meeting: &meeting, begun: Mutex::default() };
        let result = run(&member);
        meeting.leave(rank);
        result
    };
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..mesh.iter().product()).map(|r| scope.spawn(move || rank(r))).collect();
        let joined = threads.into_iter().map(|t| t.join());
        joined.map(|r| r.unwrap_or_else(|_| Err(Error::defect("a rank panicked")))).collect()
    });
    let is_own = |e: &Error| e.code != LEFT;
    let mut of_others = None;
    let mut all = vec![];
    for result in results {
        match result {
            Ok(value) => all.push(value),
            Err(e) if is_own(&e) => return Err(e),
            Err(e) => of_others = of_others.or(Some(e)),
        }
    }
    of_others.map_or(Ok(all), Err)
}

/// Code of the error if a rank waits for another rank that has ended without executing the collective.
const LEFT: &str = "E0408";

/// One rank of a mesh.
struct Member<'a> {
    mesh: &'a [usize],
    rank: usize,
    meeting: &'a Meeting,
    /// Number of collectives that the rank has begun, per axis.
    begun: Mutex<BTreeMap<usize, usize>>,
}

/// Where the threads of all ranks exchange operands.
#[derive(Default)]
struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

/// The collective that each rank executes, and the rank's operand.
type Brought = BTreeMap<usize, (Collective, Tensor)>;

#[derive(Default)]
struct State {
    /// Operands of each collective. A collective is identified by its axis, the first rank of the group, and its number
    /// among the group's collectives along this axis.
    brought: BTreeMap<(usize, usize, usize), Brought>,
    /// Ranks that have ended.
    ended: Vec<usize>,
}

impl Meeting {
    fn leave(&self, rank: usize) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended.push(rank);
        self.changed.notify_all();
    }
}

impl Member<'_> {
    /// Distance in rank numbers between neighbours along an axis.
    fn stride(&self, axis: usize) -> usize {
        self.mesh[axis + 1..].iter().product()
    }

    /// Coordinate along an axis; the axis must exist.
    fn place(&self, axis: usize) -> Option<usize> {
        Some(self.rank / self.stride(axis) % self.mesh.get(axis)?)
    }
}

impl World for Member<'_> {
    fn coordinate(&self, axis: usize) -> Option<i64> {
        (axis < self.mesh.len()).then(|| self.place(axis)).flatten().map(|at| at as i64)
    }

    fn exchange(&self, op: &Collective, operand: &Tensor) -> Result<Tensor> {
        let axis = op.mesh();
        if axis >= self.mesh.len() {
            return Err(alone(op));
        }
        let (stride, own) = (self.stride(axis), self.place(axis).unwrap_or(0));
        let first = self.rank - own * stride;
        let group: Vec<usize> = (0..self.mesh[axis]).map(|at| first + at * stride).collect();
        let number = {
            let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            let number = begun.entry(axis).or_default();
            *number += 1;
            *number
        };
        let mut state = self.meeting.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (axis, first, number);
        state.brought.entry(key).or_default().insert(self.rank, (*op, operand.clone()));
        self.meeting.changed.notify_all();
        while state.brought[&key].len() < group.len() {
            let absent = |r: &&usize| state.ended.contains(r) && !state.brought[&key].contains_key(r);
            if let Some(rank) = group.iter().find(absent) {
                return Err(Error::user(LEFT, format!("rank {rank} does not take part in `{op}`")));
            }
            state = self.meeting.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let brought: Vec<(Collective, Tensor)> = state.brought[&key].values().cloned().collect();
        drop(state);
        if let Some((other, _)) = brought.iter().find(|(other, _)| other != op) {
            return Err(Error::defect(format!("ranks meet at `{op}` and `{other}`")));
        }
        let operands: Vec<Tensor> = brought.into_iter().map(|(_, t)| t).collect();
        op.result(&operands, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(world: &dyn World, op: &str, values: &[i64]) -> Result<Vec<i64>> {
        let operand = Tensor::from_vec(vec![values.len()], values.to_vec());
        Ok(world.exchange(&Collective::parse(op).unwrap(), &operand)?.to_vec::<i64>().unwrap())
    }

    #[test]
    fn groups_are_the_ranks_that_differ_in_one_coordinate() {
        let run = |world: &dyn World| {
            let [a, b] = [0, 1].map(|axis| world.coordinate(axis).unwrap());
            let rows = exchange(world, "AllGather mesh=1 dim=0", &[10 * a + b])?;
            let columns = exchange(world, "AllReduce mesh=0 by=add", &[10 * a + b])?;
            Ok((rows, columns))
        };
        let all = on_ranks(&[2, 3], run).unwrap();
        assert_eq!(all[4], (vec![10, 11, 12], vec![12]));
        assert_eq!(all[2], (vec![0, 1, 2], vec![14]));
    }

    #[test]
    fn who_leaves_keeps_nobody_waiting() {
        let run = |world: &dyn World| match world.coordinate(0) {
            Some(1) => Err(Error::user("E0303", "mine")),
            _ => exchange(world, "AllReduce mesh=0 by=add", &[1]),
        };
        assert_eq!(on_ranks(&[3], run).unwrap_err().message, "mine");
        let run = |world: &dyn World| match world.coordinate(0) {
            Some(1) => Ok(vec![]),
            _ => exchange(world, "AllReduce mesh=0 by=add", &[1]),
        };
        let error = on_ranks(&[3], run).unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (LEFT, "rank 1 does not take part in `AllReduce mesh=0 by=add`")
        );
    }

    #[test]
    fn ranks_must_meet_at_one_collective() {
        let run = |world: &dyn World| match world.coordinate(0) {
            Some(0) => exchange(world, "AllGather mesh=0 dim=0", &[1]),
            _ => exchange(world, "AllReduce mesh=0 by=add", &[1]),
        };
        assert_eq!(on_ranks(&[2], run).unwrap_err().code, "E0901");
    }
}
