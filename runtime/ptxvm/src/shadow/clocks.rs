//! barriers, warp synchronisation, fences, atomics of one block  =>  the epochs that each thread has seen of others
//!
//! Every warp counts epochs; an epoch ends whenever lanes of the warp release their accesses to other threads. The view
//! of a thread holds, for each warp, the last epoch seen of all lanes of the warp; values per lane are added only where
//! the lanes differ. Lanes of a warp with equal views share one view, so a converged warp has exactly one view.

use std::collections::HashMap;

use super::Place;

/// The epochs that a thread has seen. A thread's own past needs no view.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    warps: [u32; 32],
    /// Epochs per lane, for each warp of which at least one lane has been seen in a later epoch than `warps` holds.
    lanes: Vec<(u32, [u32; 32])>,
}

impl View {
    #[inline]
    pub fn knows(&self, warp: u32, lane: u32, epoch: u32) -> bool {
        self.warps[warp as usize & 31] >= epoch
            || self.lanes.iter().any(|(w, lanes)| *w == warp && lanes[lane as usize & 31] >= epoch)
    }

    pub fn knows_all(&self, warp: u32, epoch: u32) -> bool {
        self.warps[warp as usize & 31] >= epoch
    }

    /// Returns whether the view has seen the epoch of at least one lane of a warp. One lane suffices for a collective
    /// access, which counts as made by all lanes.
    pub fn knows_any(&self, warp: u32, epoch: u32) -> bool {
        self.warps[warp as usize & 31] >= epoch
            || self.lanes.iter().any(|(w, lanes)| *w == warp && lanes.iter().any(|lane| *lane >= epoch))
    }

    fn join(&mut self, other: &View) {
        for (mine, theirs) in self.warps.iter_mut().zip(&other.warps) {
            *mine = (*mine).max(*theirs);
        }
        for (warp, theirs) in &other.lanes {
            match self.lanes.iter_mut().find(|(w, _)| w == warp) {
                Some((_, mine)) => mine.iter_mut().zip(theirs).for_each(|(m, t)| *m = (*m).max(*t)),
                None => self.lanes.push((*warp, *theirs)),
            }
        }
        let warps = &self.warps;
        self.lanes.retain(|(w, lanes)| lanes.iter().any(|lane| *lane > warps[*w as usize & 31]));
    }

    fn raise(&mut self, warp: &Warp, warp_idx: u32, mask: u32, epoch: u32) {
        if mask & warp.existing == warp.existing {
            let known = &mut self.warps[warp_idx as usize & 31];
            *known = (*known).max(epoch);
            return;
        }
        let mut lanes = [0; 32];
        (0..32).filter(|lane| mask & warp.existing & (1 << lane) != 0).for_each(|lane| lanes[lane] = epoch);
        self.join(&View { warps: [0; 32], lanes: vec![(warp_idx, lanes)] });
    }
}

#[derive(Clone, Debug)]
struct Warp {
    existing: u32,
    exited: u32,
    epoch: u32,
    /// Whether an access was recorded or a lane's view changed since the last full synchronisation.
    dirty: bool,
    /// Lanes with equal views; the masks are disjoint and cover all running lanes.
    groups: Vec<(u32, View)>,
    /// The views that lanes had at their last fences; later relaxed stores of these lanes release them.
    fenced: Vec<Fenced>,
    /// The views that relaxed loads of lanes have read; the lanes acquire them at their next fence.
    seen: Vec<(u32, View)>,
}

#[derive(Clone, Debug)]
struct Fenced {
    mask: u32,
    view: View,
    epoch: u32,
}

#[derive(Clone, Debug, Default)]
struct Barrier {
    view: View,
    arrived: [u32; 32],
    waiting: Vec<(u32, u32)>,
    /// Whether a warp arrived without waiting, so that not all threads are ordered afterwards.
    released_only: bool,
}

#[derive(Debug)]
pub(super) struct Clocks {
    warps: Vec<Warp>,
    barriers: HashMap<u32, Barrier>,
    /// The view that atomic stores have released at each location.
    places: HashMap<Place, View>,
}

impl Clocks {
    pub fn new(n_threads: u32) -> Self {
        let n_threads = n_threads.min(1024);
        let warp = |idx: u32| {
            let lanes = (n_threads - idx * 32).min(32);
            let existing = u32::MAX >> (32 - lanes);
            Warp {
                existing,
                exited: 0,
                epoch: 1,
                dirty: false,
                groups: vec![(existing, View::default())],
                fenced: Vec::new(),
                seen: Vec::new(),
            }
        };
        let warps = (0..n_threads.div_ceil(32)).map(warp).collect();
        Clocks { warps, barriers: HashMap::new(), places: HashMap::new() }
    }

    /// Returns the current epoch of a warp, for an access that is recorded now.
    #[inline]
    pub fn epoch(&mut self, warp: u32) -> u32 {
        self.warps.get_mut(warp as usize).map_or(0, |warp| {
            warp.dirty = true;
            warp.epoch
        })
    }

    #[inline]
    pub fn view(&self, warp: u32, lane: u32) -> Option<&View> {
        let groups = &self.warps.get(warp as usize)?.groups;
        match groups.as_slice() {
            [(_, view)] => Some(view),
            // An exited lane may be in no group. Such a lane is only queried as a representative of its warp, so the
            // view of any group can be returned.
            many => many.iter().find(|(mask, _)| mask & (1 << (lane & 31)) != 0).or(many.first()).map(|(_, view)| view),
        }
    }

    /// Returns the view of all lanes of a warp, if they share one.
    pub fn converged(&self, warp: u32) -> Option<&View> {
        match self.warps.get(warp as usize)?.groups.as_slice() {
            [(_, view)] => Some(view),
            _ => None,
        }
    }

    pub fn warp_sync(&mut self, warp_idx: u32, mask: u32) {
        let Some(warp) = self.warps.get_mut(warp_idx as usize) else { return };
        let everyone = (mask | warp.exited) & warp.existing == warp.existing;
        if everyone && !warp.dirty && warp.groups.len() == 1 {
            return;
        }
        let mut view = warp.joined(mask);
        view.raise(warp, warp_idx, mask | warp.exited, warp.epoch);
        warp.regroup(mask, view);
        warp.next_epoch();
        warp.dirty = !everyone;
    }

    pub fn exit(&mut self, warp_idx: u32, mask: u32) {
        if let Some(warp) = self.warps.get_mut(warp_idx as usize) {
            warp.exited |= mask & warp.existing;
            warp.dirty = true;
        }
    }

    pub fn arrive(&mut self, barrier: u32, warp_idx: u32, mask: u32, waits: bool) {
        let Some(warp) = self.warps.get_mut(warp_idx as usize) else { return };
        let barrier = self.barriers.entry(barrier).or_default();
        barrier.view.join(&warp.joined(mask));
        barrier.view.raise(warp, warp_idx, mask | warp.exited, warp.epoch);
        barrier.arrived[warp_idx as usize & 31] |= mask;
        barrier.released_only |= !waits;
        if waits {
            barrier.waiting.push((warp_idx, mask));
        }
        warp.next_epoch();
    }

    /// Completes a barrier. Returns whether every running thread waited; if so, all earlier accesses are ordered before
    /// all later accesses.
    pub fn complete(&mut self, barrier: u32) -> bool {
        let Some(barrier) = self.barriers.remove(&barrier) else { return false };
        let arrived = |(warp, mask): (&Warp, &u32)| (mask | warp.exited) & warp.existing == warp.existing;
        let full = !barrier.released_only && self.warps.iter().zip(&barrier.arrived).all(arrived);
        if full {
            // Older epochs are never compared again, so the views are reset.
            self.warps.iter_mut().for_each(|warp| {
                warp.groups = vec![(warp.existing, View::default())];
                warp.dirty = false;
            });
            return true;
        }
        for (warp_idx, mask) in barrier.waiting {
            let Some(warp) = self.warps.get_mut(warp_idx as usize) else { continue };
            warp.learn(mask, &barrier.view);
        }
        false
    }

    pub fn fence(&mut self, warp_idx: u32, mask: u32) {
        let Some(warp) = self.warps.get_mut(warp_idx as usize) else { return };
        for (lane, view) in std::mem::take(&mut warp.seen) {
            if mask & (1 << lane) != 0 {
                warp.learn(1 << lane, &view);
            } else {
                warp.seen.push((lane, view));
            }
        }
        warp.fenced.iter_mut().for_each(|fenced| fenced.mask &= !mask);
        warp.fenced.retain(|fenced| fenced.mask != 0);
        for (group, view) in &warp.groups {
            if group & mask != 0 {
                warp.fenced.push(Fenced { mask: group & mask, view: view.clone(), epoch: warp.epoch });
            }
        }
        warp.next_epoch();
    }

    pub fn publish(&mut self, warp_idx: u32, lane: u32, place: Place, release: bool, rmw: bool) {
        let Some(warp) = self.warps.get_mut(warp_idx as usize) else { return };
        let bit = 1 << (lane & 31);
        let visible = if release {
            let mut view = warp.joined(bit);
            view.raise(warp, warp_idx, bit, warp.epoch);
            warp.next_epoch();
            Some(view)
        } else {
            warp.fenced.iter().find(|fenced| fenced.mask & bit != 0).map(|fenced| {
                let mut view = fenced.view.clone();
                view.raise(warp, warp_idx, bit, fenced.epoch);
                view
            })
        };
        match (visible, rmw) {
            (Some(view), true) => self.places.entry(place).or_default().join(&view),
            (Some(view), false) => drop(self.places.insert(place, view)),
            (None, true) => {}
            // A relaxed store replaces the value of earlier stores, so a load no longer acquires what these released.
            (None, false) if self.places.is_empty() => {}
            (None, false) => drop(self.places.remove(&place)),
        }
    }

    /// Completes a phase of an mbarrier: threads that wait for the phase see the accesses that all its arrivals
    /// released.
    pub fn complete_phase(&mut self, at: u32) {
        if let Some(view) = self.places.get(&Place::Arrivals(at)).cloned() {
            self.places.insert(Place::Phase(at), view);
        }
    }

    /// Forgets what was released at an mbarrier, which has been initialised or invalidated.
    pub fn forget_phases(&mut self, at: u32) {
        self.places.remove(&Place::Arrivals(at));
        self.places.remove(&Place::Phase(at));
    }

    pub fn observe(&mut self, warp_idx: u32, lane: u32, place: Place, acquire: bool) {
        if self.places.is_empty() {
            return;
        }
        let (Some(view), Some(warp)) = (self.places.get(&place), self.warps.get_mut(warp_idx as usize)) else { return };
        let lane = lane & 31;
        if acquire {
            warp.learn(1 << lane, view);
            return;
        }
        match warp.seen.iter_mut().find(|(l, _)| *l == lane) {
            Some((_, seen)) => seen.join(view),
            None => warp.seen.push((lane, view.clone())),
        }
    }
}

impl Warp {
    fn joined(&self, mask: u32) -> View {
        let mut groups = self.groups.iter().filter(|(group, _)| group & mask != 0);
        let mut view = groups.next().map(|(_, view)| view.clone()).unwrap_or_default();
        groups.for_each(|(_, other)| view.join(other));
        view
    }

    /// Assigns a view to the lanes of the mask.
    fn regroup(&mut self, mask: u32, view: View) {
        let mask = mask & self.existing;
        if mask == 0 {
            return;
        }
        self.groups.iter_mut().for_each(|(group, _)| *group &= !mask);
        self.groups.retain(|(group, _)| *group & !self.exited != 0);
        match self.groups.iter_mut().find(|(_, known)| *known == view) {
            Some((group, _)) => *group |= mask,
            None => self.groups.push((mask, view)),
        }
    }

    fn learn(&mut self, mask: u32, view: &View) {
        for idx in (0..self.groups.len()).rev() {
            let Some((group, known)) = self.groups.get(idx) else { continue };
            let learners = group & mask;
            if learners == 0 {
                continue;
            }
            let mut joined = known.clone();
            joined.join(view);
            if joined != *known {
                // Groups after this one have been handled, and a group that `regroup` adds already includes the view.
                self.regroup(learners, joined);
                self.dirty = true;
            }
        }
    }

    fn next_epoch(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
    }
}
