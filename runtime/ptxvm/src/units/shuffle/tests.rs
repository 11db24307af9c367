//! Shuffles against a transcription of the ISA's pseudocode; votes, matches and reductions against their definitions

use super::*;
use crate::units::testing::Random;

/// The pseudocode of `shfl.sync` in the PTX ISA, in signed arithmetic, one lane at a time.
fn transcription(mode: ShflMode, lane: i64, b: i64, c: i64) -> (i64, bool) {
    let lane_mask = c >> 8 & 0x1f;
    let (bval, cval) = (b & 0x1f, c & 0x1f);
    let max_lane = lane & lane_mask | cval & !lane_mask;
    let min_lane = lane & lane_mask;
    let (j, valid) = match mode {
        ShflMode::Up => (lane - bval, lane - bval >= max_lane),
        ShflMode::Down => (lane + bval, lane + bval <= max_lane),
        ShflMode::Bfly => (lane ^ bval, lane ^ bval <= max_lane),
        ShflMode::Idx => (min_lane | bval & !lane_mask, (min_lane | bval & !lane_mask) <= max_lane),
    };
    if valid { (j, true) } else { (lane, false) }
}

#[test]
fn shuffles_follow_the_pseudocode() {
    let mut r = Random(21);
    for trial in 0..4000 {
        let mode = [ShflMode::Up, ShflMode::Down, ShflMode::Bfly, ShflMode::Idx][trial % 4];
        let a = r.lanes();
        let (b, c) = if trial % 3 == 0 {
            (r.lanes(), r.lanes())
        } else {
            // Operands as compilers emit them: segments whose size is a power of two.
            let width = 1 << r.below(6);
            let c = (32 - width) << 8 | if mode == ShflMode::Up { 0 } else { 31 };
            ([r.below(32) as u32; 32], [c; 32])
        };
        let (mask, active) = if trial % 2 == 0 { (u32::MAX, u32::MAX) } else { (r.u32(), r.u32()) };
        let got = shfl(mode, &a, &b, &c, mask, active);
        for lane in 0..32 {
            let (source, valid) = transcription(mode, lane as i64, b[lane].into(), c[lane].into());
            let on = active >> lane & 1 == 1;
            assert_eq!(got.lanes[lane], if on { a[source as usize] } else { a[lane] }, "{mode:?} lane {lane}");
            assert_eq!(got.predicate >> lane & 1 == 1, on && valid, "{mode:?} lane {lane}");
            let bad = on && (mask & active) >> source & 1 == 0;
            assert_eq!(got.undefined >> lane & 1 == 1, bad, "{mode:?} lane {lane}");
        }
    }
}

#[test]
fn the_usual_reductions_sum_a_warp() {
    let mut values: Lanes = std::array::from_fn(|lane| 1 << lane);
    for offset in [16, 8, 4, 2, 1] {
        let other = shfl(ShflMode::Bfly, &values, &[offset; 32], &[31; 32], u32::MAX, u32::MAX);
        assert_eq!((other.predicate, other.undefined), (u32::MAX, 0));
        (0..32).for_each(|lane| values[lane] += other.lanes[lane]);
    }
    assert_eq!(values, [u32::MAX; 32]);
}

#[test]
fn a_lane_outside_the_mask_that_nobody_needs_is_no_finding() {
    // Lanes 0..16 shuffle down within halves; the upper half does not take part.
    let got = shfl(ShflMode::Down, &[7; 32], &[8; 32], &[16 << 8 | 31; 32], 0xffff, 0xffff);
    assert_eq!((got.undefined, got.predicate), (0, 0xff));
    let got = shfl(ShflMode::Down, &[7; 32], &[8; 32], &[31; 32], 0xffff, 0xffff);
    assert_eq!((got.undefined, got.predicate), (0xff00, 0xffff));
}

#[test]
fn votes_matches_and_reductions() {
    assert_eq!([Vote::All, Vote::Any, Vote::Uni, Vote::Ballot].map(|v| vote(v, 0b1011, 0b0011)), [1, 1, 1, 0b0011]);
    assert_eq!([Vote::All, Vote::Any, Vote::Uni, Vote::Ballot].map(|v| vote(v, 0b1000, 0b0011)), [0, 0, 1, 0]);
    assert_eq!([Vote::All, Vote::Any, Vote::Uni, Vote::Ballot].map(|v| vote(v, 0b0010, 0b0011)), [0, 1, 0, 0b0010]);
    let mut r = Random(22);
    for _ in 0..300 {
        let members = r.u32() | 1;
        let values: [u64; 32] = std::array::from_fn(|_| r.below(4) << 32 | r.below(2));
        let any = match_any(&values, members);
        for lane in 0..32 {
            for other in 0..32 {
                let both = members >> lane & members >> other & 1 == 1;
                assert_eq!(any[lane] >> other & 1 == 1, both && values[lane] == values[other]);
            }
        }
        assert!(!match_all(&values, members | 0xffff).1 || any[0] == members | 0xffff);
        let set: Vec<u32> = (0..32).filter(|l| members >> l & 1 == 1).map(|l| values[l] as u32 ^ r.0 as u32).collect();
        let lanes: Lanes = std::array::from_fn(|l| values[l] as u32 ^ r.0 as u32);
        assert_eq!(redux(Redux::Add, &lanes, members), set.iter().fold(0u32, |a, b| a.wrapping_add(*b)));
        assert_eq!(redux(Redux::MinS, &lanes, members) as i32, set.iter().map(|x| *x as i32).min().unwrap());
        assert_eq!(redux(Redux::MaxS, &lanes, members) as i32, set.iter().map(|x| *x as i32).max().unwrap());
        assert_eq!(redux(Redux::MinU, &lanes, members), *set.iter().min().unwrap());
        assert_eq!(redux(Redux::MaxU, &lanes, members), *set.iter().max().unwrap());
        assert_eq!(redux(Redux::And, &lanes, members), set.iter().fold(u32::MAX, |a, b| a & b));
        assert_eq!(redux(Redux::Or, &lanes, members), set.iter().fold(0, |a, b| a | b));
        assert_eq!(redux(Redux::Xor, &lanes, members), set.iter().fold(0, |a, b| a ^ b));
    }
    assert_eq!(match_all(&[5; 32], 0xf0), (0xf0, true));
    assert_eq!(redux(Redux::Add, &[1; 32], 0), 0);
}
