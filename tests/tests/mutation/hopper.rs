//! kernel of warpgroups  =>  places where its barriers, fences, products and descriptors can be broken

use crate::kinds::{deleted, replaced};
use crate::source::{Edit, Line, Source, elements};

/// Bytes from one mbarrier to the next.
const BARRIER_BYTES: i64 = 8;

/// A barrier expects one arrival more than there are.
pub fn arrivals_miscounted(source: &Source) -> Vec<Edit> {
    replaced(source, &["mbarrier.init"], |line| {
        let n: u32 = line.args.get(1)?.parse().ok()?;
        Some(line.with_arg(1, (n + 1).to_string()))
    })
}

/// A barrier expects 16 bytes less than bulk copies move.
pub fn bytes_miscounted(source: &Source) -> Vec<Edit> {
    replaced(source, &["mbarrier.arrive.expect_tx"], |line| {
        let bytes: u32 = line.args.get(2)?.parse().ok()?;
        Some(line.with_arg(2, (bytes - 16).to_string()))
    })
}

/// A wait is for the barrier of the next stage.
pub fn other_barrier(source: &Source) -> Vec<Edit> {
    replaced(source, &["mbarrier.try_wait"], |line| {
        let (start, offset) = line.args.get(1)?.trim_matches(['[', ']']).split_once('+')?;
        let offset = offset.parse::<i64>().ok()? + BARRIER_BYTES;
        Some(line.with_arg(1, format!("[{start}+{offset}]")))
    })
}

/// A wait is always for the first phase of a barrier.
pub fn phase_ignored(source: &Source) -> Vec<Edit> {
    replaced(source, &["mbarrier.try_wait"], |line| Some(line.with_arg(2, "0".into())))
}

/// The parity stays after a round.
pub fn phase_kept(source: &Source) -> Vec<Edit> {
    replaced(source, &["xor.b32"], |line| (line.args.get(2)? == "1").then(|| line.with_arg(2, "0".into())))
}

/// The constant part of a descriptor: in the upper bits the swizzle, if there is one, below it two distances.
fn constant(line: &Line) -> Option<(usize, u64)> {
    let is_constant = |v: i64| v >= 1 << 32 && v as u32 != 0;
    let at = line.args.iter().position(|arg| arg.parse::<i64>().is_ok_and(is_constant))?;
    Some((at, line.args[at].parse::<i64>().ok()? as u64))
}

/// A descriptor has the 64-byte swizzle instead of the 128-byte swizzle.
pub fn swizzle_changed(source: &Source) -> Vec<Edit> {
    replaced(source, &["add.s64"], |line| {
        let (at, value) = constant(line).filter(|(_, value)| value >> 62 == 1)?;
        Some(line.with_arg(at, ((value ^ 3 << 62) as i64).to_string()))
    })
}

/// A descriptor's groups of eight lines are 16 bytes further apart.
pub fn distance_changed(source: &Source) -> Vec<Edit> {
    replaced(source, &["add.s64"], |line| {
        let (at, value) = constant(line)?;
        Some(line.with_arg(at, ((value + (1 << 32)) as i64).to_string()))
    })
}

pub fn product_wait_weakened(source: &Source) -> Vec<Edit> {
    replaced(source, &["wgmma.wait_group"], |line| {
        let pending: u32 = line.args.first()?.parse().ok()?;
        Some(line.with_arg(0, (pending + 1).to_string()))
    })
}

/// Changes an argument of products behind the predicate that says whether they add to the sums: after the predicate come
/// the signs of both operands, then how the operands in shared memory are read.
fn products(source: &Source, behind: usize, change: impl Fn(&str) -> String) -> Vec<Edit> {
    replaced(source, &["wgmma.mma_async"], |line| {
        let at = behind + line.args.iter().rposition(|arg| arg.starts_with("%p"))?;
        Some(line.with_arg(at, change(line.args.get(at)?)))
    })
}

/// An operand in shared memory is read the other way round.
pub fn operand_turned(source: &Source) -> Vec<Edit> {
    products(source, 3, |turned| if turned == "0" { "1" } else { "0" }.into())
}

pub fn product_negated(source: &Source) -> Vec<Edit> {
    products(source, 1, |_| "-1".into())
}

/// A product forgets the sums, or adds to them when it should not.
pub fn sums_forgotten(source: &Source) -> Vec<Edit> {
    products(source, 0, |adds| format!("!{adds}"))
}

/// Swaps two registers of operand A.
pub fn factor_swapped(source: &Source) -> Vec<Edit> {
    replaced(source, &["wgmma.mma_async"], |line| {
        let mut registers = elements(line.args.get(1)?)?;
        registers.swap(0, 1);
        Some(line.with_arg(1, format!("{{{}}}", registers.join(", "))))
    })
}

pub fn arrival_dropped(source: &Source) -> Vec<Edit> {
    deleted(source, &["mbarrier.arrive"])
}
