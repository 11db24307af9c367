//! shfl.sync, vote.sync, match.sync, redux.sync: lanes of a warp exchange registers

use super::Lanes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

impl ShflMode {
    pub fn parse(text: &str) -> Option<ShflMode> {
        Some(match text {
            "up" => ShflMode::Up,
            "down" => ShflMode::Down,
            "bfly" => ShflMode::Bfly,
            "idx" => ShflMode::Idx,
            _ => return None,
        })
    }
}

/// The result of `shfl.sync`; lanes outside the active mask keep their own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shuffled {
    pub lanes: Lanes,
    /// Lanes whose source was inside their segment.
    pub predicate: u32,
    /// Lanes whose value is undefined, because they read a lane that is not active or not in the member mask.
    pub undefined: u32,
}

/// The lane that each lane reads, and the mask of lanes whose source is in range (PTX `shfl.sync`). A lane whose source
/// is out of range reads itself.
pub fn shfl_sources(mode: ShflMode, b: &Lanes, c: &Lanes) -> ([u8; 32], u32) {
    let mut sources = [0; 32];
    let mut in_range = 0;
    for lane in 0..32u32 {
        let (b, clamp, segment) = (b[lane as usize] & 31, c[lane as usize] & 31, c[lane as usize] >> 8 & 31);
        let max_lane = lane & segment | clamp & !segment;
        let min_lane = lane & segment;
        let source = match mode {
            ShflMode::Up => lane.wrapping_sub(b),
            ShflMode::Down => lane + b,
            ShflMode::Bfly => lane ^ b,
            ShflMode::Idx => min_lane | b & !segment,
        };
        let ok = match mode {
            ShflMode::Up => source as i32 >= max_lane as i32,
            ShflMode::Down | ShflMode::Bfly | ShflMode::Idx => source <= max_lane,
        };
        in_range |= u32::from(ok) << lane;
        sources[lane as usize] = if ok { source } else { lane } as u8;
    }
    (sources, in_range)
}

/// `shfl.sync.mode.b32 d|p, a, b, c, member_mask` as executed by the lanes of `active`.
pub fn shfl(mode: ShflMode, a: &Lanes, b: &Lanes, c: &Lanes, member_mask: u32, active: u32) -> Shuffled {
    let (sources, in_range) = shfl_sources(mode, b, c);
    let defined = member_mask & active;
    let mut result = Shuffled { lanes: *a, predicate: in_range & active, undefined: 0 };
    for lane in 0..32 {
        let source = sources[lane] as u32 & 31;
        result.lanes[lane] = if active >> lane & 1 == 1 { a[source as usize] } else { a[lane] };
        result.undefined |= (active >> lane & !(defined >> source) & 1) << lane;
    }
    result
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

/// `vote.sync.mode`: `predicate` holds each lane's operand; the result is the same for all lanes, a mask for `ballot`
/// and 0 or 1 for the others.
pub fn vote(mode: Vote, predicate: u32, members: u32) -> u32 {
    let set = predicate & members;
    match mode {
        Vote::All => u32::from(set == members),
        Vote::Any => u32::from(set != 0),
        Vote::Uni => u32::from(set == members || set == 0),
        Vote::Ballot => set,
    }
}

/// `match.any.sync.b32`/`.b64`: for each member, the members that hold the same value.
pub fn match_any(values: &[u64; 32], members: u32) -> Lanes {
    let mut result = [0; 32];
    for lane in 0..32 {
        if members >> lane & 1 == 1 {
            let same = (0..32).fold(0, |mask, j| mask | u32::from(values[j] == values[lane]) << j);
            result[lane] = same & members;
        }
    }
    result
}

/// `match.all.sync`: the member mask and true if all members hold one value, else 0 and false.
pub fn match_all(values: &[u64; 32], members: u32) -> (u32, bool) {
    let first = values[members.trailing_zeros() as usize & 31];
    let same = (0..32).all(|lane| members >> lane & 1 == 0 || values[lane] == first);
    if same { (members, true) } else { (0, false) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redux {
    Add,
    MinU,
    MaxU,
    MinS,
    MaxS,
    And,
    Or,
    Xor,
}

/// `redux.sync.op.type`: one value over all members (`add` wraps); 0 without members.
pub fn redux(op: Redux, values: &Lanes, members: u32) -> u32 {
    let combine = |a: u32, b: u32| match op {
        Redux::Add => a.wrapping_add(b),
        Redux::MinU => a.min(b),
        Redux::MaxU => a.max(b),
        Redux::MinS => (a as i32).min(b as i32) as u32,
        Redux::MaxS => (a as i32).max(b as i32) as u32,
        Redux::And => a & b,
        Redux::Or => a | b,
        Redux::Xor => a ^ b,
    };
    (0..32).filter(|lane| members >> lane & 1 == 1).map(|lane| values[lane]).reduce(combine).unwrap_or(0)
}

#[cfg(test)]
mod tests;
