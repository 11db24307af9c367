//! shfl.sync, vote.sync, match.sync, redux.sync: lanes of a warp exchange registers

use super::Lanes;

/// How a lane of `shfl.sync` finds the lane that it reads; `b` is the second operand, modulo 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShflMode {
    /// Reads the lane `b` below its own.
    Up,
    /// Reads the lane `b` above its own.
    Down,
    /// Reads the lane whose number is its own XOR `b` (butterfly).
    Bfly,
    /// Reads lane `b` of its segment.
    Idx,
}

impl ShflMode {
    /// Parses a modifier without its dot, such as `bfly`; `None` for any other text.
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
    /// Destination register; a lane whose source is out of its segment gets its own value.
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

/// Mode of `vote.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// 1 if the predicate holds for all members.
    All,
    /// 1 if the predicate holds for at least one member.
    Any,
    /// 1 if the predicate is the same for all members.
    Uni,
    /// The mask of members for which the predicate holds.
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

/// Operation and type of `redux.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redux {
    /// `.add.u32` and `.add.s32`: the sum modulo 2^32.
    Add,
    /// `.min.u32`.
    MinU,
    /// `.max.u32`.
    MaxU,
    /// `.min.s32`.
    MinS,
    /// `.max.s32`.
    MaxS,
    /// `.and.b32`.
    And,
    /// `.or.b32`.
    Or,
    /// `.xor.b32`.
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
