//! which variant of the kernels this processor can run
//!
//! A process that is to use tiles (AMX) asks the operating system for them, once; it does so here, where an artifact has code
//! for them.

use crate::{Error, Result};

/// Levels of the x86-64 psABI and two beyond them, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    V3,
    V4,
    /// V4 and sums of four products of bytes.
    V4Vnni,
    /// The same and instructions for pairs of bf16.
    V4Bf16,
    /// The same and tiles of bf16 and of bytes.
    V4Amx,
}

/// (level, suffix of its kernels, what it needs beyond the level before)
static LEVELS: &[(Level, &str, &[&str])] = &[
    (Level::V3, "v3", &["avx2", "fma", "bmi1", "bmi2", "f16c", "lzcnt", "movbe"]),
    (Level::V4, "v4", &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
    (Level::V4Vnni, "v4vnni", &["avx512vnni"]),
    (Level::V4Bf16, "v4bf16", &["avx512bf16"]),
    (Level::V4Amx, "v4amx", &["amx-bf16", "amx-int8", "amx-tile"]),
];

impl Level {
    pub fn name(self) -> &'static str {
        LEVELS[self as usize].1
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        LEVELS.iter().map(|row| row.1)
    }

    pub fn from_name(name: &str) -> Option<Level> {
        LEVELS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// This level and those before it, the best first.
    pub fn and_lower(self) -> impl Iterator<Item = Level> {
        LEVELS.iter().rev().map(|row| row.0).filter(move |level| *level <= self)
    }

    /// Features of this level, and of those before it, that the processor or the operating system lacks.
    pub fn missing(self) -> Vec<&'static str> {
        let needed = LEVELS.iter().filter(|row| row.0 <= self).flat_map(|row| row.2);
        needed.copied().filter(|feature| !detected(feature)).collect()
    }
}

#[cfg(target_arch = "x86_64")]
fn detected(feature: &str) -> bool {
    use std::is_x86_feature_detected as has;
    match feature {
        "avx2" => has!("avx2"),
        "fma" => has!("fma"),
        "bmi1" => has!("bmi1"),
        "bmi2" => has!("bmi2"),
        "f16c" => has!("f16c"),
        "lzcnt" => has!("lzcnt"),
        "movbe" => has!("movbe"),
        "avx512f" => has!("avx512f"),
        "avx512bw" => has!("avx512bw"),
        "avx512cd" => has!("avx512cd"),
        "avx512dq" => has!("avx512dq"),
        "avx512vl" => has!("avx512vl"),
        "avx512vnni" => has!("avx512vnni"),
        "avx512bf16" => has!("avx512bf16"),
        "amx-bf16" => tile_features() & 1 << 22 != 0,
        "amx-int8" => tile_features() & 1 << 25 != 0,
        "amx-tile" => tile_features() & 1 << 24 != 0 && may_use_tiles(),
        other => unreachable!("{other} is not in LEVELS"),
    }
}

/// The register in which the processor says what it does with tiles.
#[cfg(target_arch = "x86_64")]
fn tile_features() -> u32 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).edx }
}

/// Whether the operating system lets this process use tiles, for which it is asked.
#[cfg(target_arch = "x86_64")]
fn may_use_tiles() -> bool {
    const REQUEST: libc::c_ulong = 0x1023;
    const TILE_DATA: libc::c_ulong = 18;
    // SAFETY: takes two numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected(_: &str) -> bool {
    false
}

/// The best of the artifact's variants that this processor runs, at most `limit`.
pub fn select(arch: &str, variants: &[String], limit: Option<Level>) -> Result<Level> {
    if arch != "x86_64" || std::env::consts::ARCH != "x86_64" {
        let message = format!("the artifact has code for `{arch}`, this machine is `{}`", std::env::consts::ARCH);
        return Err(Error::user("E0403", message).help("x86-64 processors with AVX2 are supported"));
    }
    // Variants of a newer version that this one does not know are passed over.
    let known: Vec<Level> = variants.iter().filter_map(|v| Level::from_name(v)).collect();
    if let Some(level) = limit
        && !known.contains(&level)
    {
        let message = format!("the artifact has no code for `{}`, only for {variants:?}", level.name());
        return Err(Error::user("E0403", message));
    }
    let wanted = known.iter().copied().filter(|level| limit.is_none_or(|l| *level <= l));
    // A level that was asked for and does not run is an error, not a reason to take a lower one.
    let best = wanted.filter(|level| level.missing().is_empty() || limit == Some(*level)).max();
    let lowest = known.iter().min().copied().unwrap_or(Level::V3);
    let level = best.unwrap_or(lowest);
    match (level.missing().as_slice(), known.contains(&level)) {
        ([], true) => Ok(level),
        ([], false) => Err(Error::user("E0403", format!("the artifact has code for {variants:?} only"))),
        (missing, _) => {
            let message = format!("code for `{}` needs {}, which this CPU lacks", level.name(), missing.join(", "));
            Err(Error::user("E0403", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_own_index_and_features_are_known() {
        for (i, row) in LEVELS.iter().enumerate() {
            assert_eq!(row.0 as usize, i);
            assert_eq!(Level::from_name(row.1), Some(row.0));
            row.0.missing();
        }
    }

    #[test]
    fn another_architecture_and_unknown_variants_are_refused() {
        assert_eq!(select("aarch64", &["v3".into()], None).unwrap_err().code, "E0403");
        assert_eq!(select("x86_64", &["v9".into()], None).unwrap_err().code, "E0403");
        assert_eq!(select("x86_64", &["v3".into()], Some(Level::V4)).unwrap_err().code, "E0403");
    }

    #[test]
    fn the_best_variant_that_runs_is_taken() {
        let all = ["v3".to_string(), "v4".to_string()];
        if Level::V3.missing().is_empty() {
            assert_eq!(select("x86_64", &all, Some(Level::V3)).unwrap(), Level::V3);
            let best = if Level::V4.missing().is_empty() { Level::V4 } else { Level::V3 };
            assert_eq!(select("x86_64", &all, None).unwrap(), best);
        }
    }
}
