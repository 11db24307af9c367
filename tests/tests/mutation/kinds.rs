//! kernel  =>  places where it can be broken, with one row for each kind of mistake

use crate::hopper::*;
use crate::source::{Edit, Line, Source, elements, shifted};

/// A kind of mistake in a kernel.
pub struct Kind {
    pub name: &'static str,
    /// The mistake that an author of the kernel might have made, in words.
    pub mistake: &'static str,
    pub places: fn(&Source) -> Vec<Edit>,
    pub matters: Matters,
}

/// Condition under which a mistake can have an effect. A place where the condition holds in no call is not mutated.
#[derive(Clone, Copy)]
pub enum Matters {
    /// The instruction is executed.
    Executed,
    /// The guard of the instruction is false.
    Masked,
    /// The two numbers that the instruction compares are equal.
    Equal,
    /// The instruction copies fewer bytes than its full size.
    Short,
    /// The number that the instruction multiplies or shifts is not zero.
    NotZero,
    /// The highest bit that the mask of the instruction keeps is set.
    TopBit,
}

impl Matters {
    /// PTX that traps just before the line when the mistake would matter.
    pub fn probe(self, line: &Line) -> String {
        let args: Vec<&str> = line.args.iter().map(String::as_str).collect();
        match (self, line.guard.as_deref(), args.as_slice()) {
            (Matters::Masked, Some(guard), _) => match guard.strip_prefix("@!") {
                Some(positive) => format!("@{positive} trap;"),
                None => format!("@!{} trap;", &guard[1..]),
            },
            (Matters::Equal, None, [_, a, b]) => {
                let kind = line.op.rsplit('.').next().unwrap_or("s32");
                format!("{{ .reg .pred %reach; setp.eq.{kind} %reach, {a}, {b}; @%reach trap; }}")
            }
            (Matters::Short, None, [_, _, whole, size]) => {
                format!("{{ .reg .pred %reach; setp.lt.u32 %reach, {size}, {whole}; @%reach trap; }}")
            }
            (Matters::NotZero, None, [_, a, _, ..]) => {
                let bits = if line.op.ends_with("64") { 64 } else { 32 };
                format!("{{ .reg .pred %reach; setp.ne.b{bits} %reach, {a}, 0; @%reach trap; }}")
            }
            (Matters::TopBit, None, [_, a, mask]) => {
                let (bits, mask) = (if line.op.ends_with("64") { 64 } else { 32 }, mask.parse::<u64>().unwrap_or(0));
                let top = mask.div_ceil(2);
                let test = format!("and.b{bits} %bit, {a}, {top}; setp.ne.b{bits} %reach, %bit, 0;");
                format!("{{ .reg .pred %reach; .reg .b{bits} %bit; {test} @%reach trap; }}")
            }
            // A copy of zero bytes only fills with zeros, and so does not count as executed.
            (Matters::Executed, None, [_, _, _, size]) if line.op.starts_with("cp.async") => {
                format!("{{ .reg .pred %reach; setp.ne.u32 %reach, {size}, 0; @%reach trap; }}")
            }
            (_, guard, _) => format!("{} trap;", guard.unwrap_or("")),
        }
    }
}

pub const KINDS: &[Kind] = &[
    kind("arrival-dropped", "a thread does not arrive at a barrier", arrival_dropped),
    kind("arrivals-miscounted", "a barrier expects one arrival more", arrivals_miscounted),
    kind("barrier-dropped", "a barrier is missing", |s| deleted(s, BARRIERS)),
    kind("barrier-early", "a store follows the barrier that should publish it", barrier_early),
    kind("barrier-late", "a tile is read before the barrier", barrier_late),
    kind("bound-off-by-one", "`<` for `<=`", bound_off_by_one).when(Matters::Equal),
    kind("branch-inverted", "a condition is the wrong way round", branch_inverted),
    kind("bytes-miscounted", "a barrier expects fewer bytes than are copied", bytes_miscounted),
    kind("commit-dropped", "copies join a later group", |s| deleted(s, &["cp.async.commit"])),
    kind("copy-unpadded", "a copy takes its full size at the edge", copy_unpadded).when(Matters::Short),
    kind("distance-changed", "a descriptor has another distance between groups of lines", distance_changed),
    kind("factor-swapped", "two registers of a warpgroup's operand change places", factor_swapped),
    kind("fragment-swapped", "two registers of a fragment change places", fragment_swapped),
    kind("global-shifted", "a global address is an element off", global_shifted),
    kind("guard-dropped", "the mask of a tail is missing", guard_dropped).when(Matters::Masked),
    kind("loop-cut", "a loop runs once", loop_cut),
    kind("mask-narrowed", "half of the lanes' bits are kept", mask_narrowed).when(Matters::TopBit),
    kind("matrix-transposed", "a tile is loaded the other way round", matrix_transposed),
    kind("operand-turned", "a product reads an operand the other way round", operand_turned),
    kind("other-barrier", "a wait is for the barrier of another stage", other_barrier),
    kind("phase-ignored", "a wait is always for the first phase", phase_ignored),
    kind("phase-kept", "the phase stays after a round", phase_kept),
    kind("product-commit-dropped", "products join a later group", |s| deleted(s, &["wgmma.commit"])),
    kind("product-fence-dropped", "registers are not ready for products", |s| deleted(s, &["wgmma.fence"])),
    kind("product-negated", "a product is subtracted", product_negated),
    kind("product-wait-dropped", "products are not waited for", |s| deleted(s, &["wgmma.wait"])),
    kind("product-wait-weakened", "one group of products more may be pending", product_wait_weakened),
    kind("proxy-fence-dropped", "copies are not visible to products", |s| deleted(s, &["fence.proxy"])),
    kind("selector-wrong", "a sparse product takes the positions of other lanes", selector_wrong),
    kind("shared-shifted", "a shared address is an element off", shared_shifted),
    kind("shuffle-wrong", "a shuffle takes the wrong distance", shuffle_wrong),
    kind("store-dropped", "a result is not stored", |s| deleted(s, &["st.global", "st.shared"])),
    kind("stride-wrong", "a factor or shift of an address is off", stride_wrong).when(Matters::NotZero),
    kind("sums-forgotten", "a product forgets the sums, or adds to what is none", sums_forgotten),
    kind("swizzle-changed", "a descriptor has another swizzle than the copies", swizzle_changed),
    kind("term-lost", "a sum forgets what it had", term_lost),
    kind("uninitialised", "an accumulator does not start at zero", uninitialised),
    kind("wait-dropped", "copies are not waited for", |s| deleted(s, &["cp.async.wait"])),
    kind("wait-late", "the wait follows the barrier", wait_late),
    kind("wait-weakened", "one group more may be pending", wait_weakened),
    kind("warp-sync-dropped", "lanes go on without each other", |s| deleted(s, &["bar.warp"])),
];

const fn kind(name: &'static str, mistake: &'static str, places: fn(&Source) -> Vec<Edit>) -> Kind {
    Kind { name, mistake, places, matters: Matters::Executed }
}

impl Kind {
    const fn when(self, matters: Matters) -> Kind {
        Kind { matters, ..self }
    }
}

const BARRIERS: &[&str] = &["bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync"];
const SHARED_LOADS: &[&str] = &["ld.shared", "ldmatrix"];

pub fn deleted(source: &Source, prefixes: &[&str]) -> Vec<Edit> {
    source.with_op(prefixes).into_iter().map(Edit::Delete).collect()
}

pub fn replaced(source: &Source, prefixes: &[&str], change: impl Fn(&Line) -> Option<Line>) -> Vec<Edit> {
    let lines = source.with_op(prefixes).into_iter();
    lines.filter_map(|i| Some(Edit::Replace(i, change(&source.lines[i])?))).collect()
}

fn begins(line: &Line, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| line.op.starts_with(prefix))
}

/// Only products of 16-bit elements select the lanes; for bytes all lanes supply positions.
fn selector_wrong(source: &Source) -> Vec<Edit> {
    replaced(source, &["mma.sp"], |line| {
        let mut changed = line.clone();
        let selector = changed.args.last_mut().filter(|_| line.op.contains("bf16"))?;
        *selector = if selector == "0" { "1".into() } else { "0".into() };
        Some(changed)
    })
}

/// Moves each barrier after the next load of shared memory.
fn barrier_late(source: &Source) -> Vec<Edit> {
    let load = |i: usize| source.following(i).find(|j| begins(&source.lines[*j], SHARED_LOADS));
    source.with_op(BARRIERS).into_iter().filter_map(|i| Some(Edit::MoveAfter(i, load(i)?))).collect()
}

/// Moves each barrier before the preceding store to shared memory.
fn barrier_early(source: &Source) -> Vec<Edit> {
    let store = |i: usize| source.preceding(i).find(|j| begins(&source.lines[*j], &["st.shared"]));
    source.with_op(BARRIERS).into_iter().filter_map(|i| Some(Edit::MoveBefore(i, store(i)?))).collect()
}

fn wait_late(source: &Source) -> Vec<Edit> {
    let barrier = |i: usize| source.following(i).find(|j| begins(&source.lines[*j], BARRIERS));
    let waits = source.with_op(&["cp.async.wait"]).into_iter();
    waits.filter_map(|i| Some(Edit::MoveAfter(i, barrier(i)?))).collect()
}

fn wait_weakened(source: &Source) -> Vec<Edit> {
    replaced(source, &["cp.async.wait"], |line| match line.args.first() {
        Some(pending) => Some(line.with_arg(0, (pending.parse::<u32>().ok()? + 1).to_string())),
        None => Some(Line { op: "cp.async.wait_group".into(), args: vec!["1".into()], ..line.clone() }),
    })
}

fn bound_off_by_one(source: &Source) -> Vec<Edit> {
    replaced(source, &["setp."], |line| {
        let swap = [(".lt.", ".le."), (".le.", ".lt."), (".gt.", ".ge."), (".ge.", ".gt.")];
        let integer = line.op.ends_with('2') || line.op.ends_with('4');
        let (from, to) = swap.into_iter().find(|(from, _)| line.op.contains(from))?;
        (integer && !line.op.contains(".f")).then(|| line.with_op(line.op.replacen(from, to, 1)))
    })
}

fn branch_inverted(source: &Source) -> Vec<Edit> {
    let mut edits = replaced(source, &["bra"], |line| {
        let guard = line.guard.as_ref()?;
        let inverted = guard.strip_prefix("@!").map_or(format!("@!{}", &guard[1..]), |p| format!("@{p}"));
        Some(Line { guard: Some(inverted), ..line.clone() })
    });
    // A branch to the next line has the same effect whether it is taken or not.
    edits.retain(|edit| {
        let (line, next) = (&source.lines[edit.line()], source.lines.get(edit.line() + 1));
        next.is_none_or(|next| line.args.first().map(|label| format!("{label}:")) != Some(next.text.trim().into()))
    });
    edits
}

/// Deletes branches to a label above.
fn loop_cut(source: &Source) -> Vec<Edit> {
    let is_back = |i: &usize| {
        let target = source.lines[*i].args.first().map(|label| format!("{label}:"));
        source.lines[..*i].iter().any(|line| target.as_deref() == Some(line.text.trim()))
    };
    source.with_op(&["bra"]).into_iter().filter(is_back).map(Edit::Delete).collect()
}

fn copy_unpadded(source: &Source) -> Vec<Edit> {
    let copies = ["cp.async.ca", "cp.async.cg"];
    replaced(source, &copies, |line| (line.args.len() > 3).then(|| line.with_args(line.args[..3].to_vec())))
}

/// Swaps two registers of A, of B, of the accumulator, or of the result of `ldmatrix`.
fn fragment_swapped(source: &Source) -> Vec<Edit> {
    let swapped = |line: &Line, arg: usize, a: usize, b: usize| {
        let mut registers = elements(line.args.get(arg)?)?;
        (a < registers.len() && b < registers.len() && registers[a] != registers[b]).then(|| {
            registers.swap(a, b);
            line.with_arg(arg, format!("{{{}}}", registers.join(", ")))
        })
    };
    let mut edits = vec![];
    for i in source.with_op(&["mma.sync", "ldmatrix"]) {
        let line = &source.lines[i];
        let swaps: &[(usize, usize, usize)] = match line.op.starts_with("mma") {
            true => &[(1, 0, 1), (2, 0, 1), (3, 0, 2), (1, 1, 2)],
            false => &[(0, 0, 1)],
        };
        edits.extend(swaps.iter().filter_map(|(arg, a, b)| Some(Edit::Replace(i, swapped(line, *arg, *a, *b)?))));
    }
    edits
}

/// Bytes of one element of a load or store.
fn element_bytes(line: &Line) -> i64 {
    let bits =
        line.op.rsplit('.').next().and_then(|t| t.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok());
    bits.unwrap_or(32i64) / 8
}

fn moved(line: &Line, arg: usize, bytes: i64) -> Option<Line> {
    Some(line.with_arg(arg, shifted(line.args.get(arg)?, bytes)?))
}

fn global_shifted(source: &Source) -> Vec<Edit> {
    let mut edits = replaced(source, &["ld.global"], |line| moved(line, 1, element_bytes(line)));
    edits.extend(replaced(source, &["st.global"], |line| moved(line, 0, element_bytes(line))));
    edits.extend(replaced(source, &["cp.async.ca", "cp.async.cg"], |line| {
        moved(line, 1, line.args.get(2)?.parse().ok()?)
    }));
    edits
}

fn shared_shifted(source: &Source) -> Vec<Edit> {
    let mut edits = replaced(source, &["ld.shared"], |line| moved(line, 1, element_bytes(line)));
    edits.extend(replaced(source, &["st.shared"], |line| moved(line, 0, element_bytes(line))));
    edits.extend(replaced(source, &["ldmatrix"], |line| moved(line, 1, 16)));
    edits.extend(replaced(source, &["cp.async.ca", "cp.async.cg"], |line| {
        moved(line, 0, line.args.get(2)?.parse().ok()?)
    }));
    edits
}

fn guard_dropped(source: &Source) -> Vec<Edit> {
    replaced(source, &["ld.", "st.", "cp.async.ca", "cp.async.cg", "red.", "atom."], |line| {
        line.guard.is_some().then(|| Line { guard: None, ..line.clone() })
    })
}

fn mask_narrowed(source: &Source) -> Vec<Edit> {
    replaced(source, &["and.b"], |line| {
        let bits: u64 = line.args.get(2)?.parse().ok()?;
        (bits > 0 && (bits + 1).is_power_of_two()).then(|| line.with_arg(2, (bits >> 1).to_string()))
    })
}

fn matrix_transposed(source: &Source) -> Vec<Edit> {
    replaced(source, &["ldmatrix"], |line| {
        Some(line.with_op(match line.has_part("trans") {
            true => line.op.replacen(".trans", "", 1),
            false => line.op.replacen(".shared", ".trans.shared", 1),
        }))
    })
}

fn shuffle_wrong(source: &Source) -> Vec<Edit> {
    replaced(source, &["shfl.sync"], |line| {
        let distance: u32 = line.args.get(2)?.parse().ok()?;
        let wrong = if distance > 1 { distance / 2 } else { 2 };
        Some(line.with_arg(2, wrong.to_string()))
    })
}

/// Changes constant factors and shifts of 32 and 64-bit integers.
fn stride_wrong(source: &Source) -> Vec<Edit> {
    let mut edits = replaced(source, &["mul.lo.", "mul.wide.", "mad.lo.", "mad.wide."], |line| {
        let factor: i64 = line.args.get(2)?.parse().ok()?;
        Some(line.with_arg(2, (factor + if factor % 4 == 0 { 4 } else { 1 }).to_string()))
    });
    edits.extend(replaced(source, &["shl.b"], |line| {
        let bits: u32 = line.args.get(2)?.parse().ok()?;
        Some(line.with_arg(2, (bits + 1).to_string()))
    }));
    edits
}

fn term_lost(source: &Source) -> Vec<Edit> {
    let mut edits = replaced(source, &["fma.rn."], |line| {
        let line = line.with_op(line.op.replacen("fma.", "mul.", 1));
        Some(line.with_args(line.args.get(..3)?.to_vec()))
    });
    edits.extend(replaced(source, &["add.f32", "add.rn.f32", "max.f32"], |line| {
        let (d, a) = (line.args.first()?.clone(), line.args.get(2)?.clone());
        Some(Line { op: "mov.f32".into(), args: vec![d, a], ..line.clone() })
    }));
    edits
}

/// Whether an operand is the register, or a list that contains it.
fn has(arg: &str, register: &str) -> bool {
    elements(arg).map_or(arg == register, |all| all.iter().any(|element| element == register))
}

/// Deletes the initialization with zero of float registers that accumulate, but not of those
/// that a masked load may leave.
fn uninitialised(source: &Source) -> Vec<Edit> {
    let is_accumulator = |i: &usize| {
        let args = &source.lines[*i].args;
        let zero = args.get(1).is_some_and(|value| value == "0f00000000");
        let is_target = |line: &Line| line.guard.is_some() && line.args.first().is_some_and(|arg| has(arg, &args[0]));
        let is_source = |line: &Line| line.args.iter().skip(1).any(|arg| args.first().is_some_and(|r| has(arg, r)));
        zero && source.lines.iter().any(is_source) && !source.lines.iter().any(is_target)
    };
    source.with_op(&["mov."]).into_iter().filter(is_accumulator).map(Edit::Delete).collect()
}
