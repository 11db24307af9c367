//! Levels of CPU instruction sets: the features that code may use, their names in LLVM, and how they are detected
//!
//! The compiler generates code for each level of the table, and the runtime selects the best level that the machine
//! supports. A level includes the levels that it names, and the levels that these include. A process that uses tiles
//! (AMX) must request them from the operating system once; the check whether the machine supports a level with tiles
//! makes this request.

use crate::{Error, Result};
use std::fmt;

/// An architecture that kernels are compiled for.
pub struct Arch {
    /// Name used by Rust and in manifests.
    pub name: &'static str,
    /// LLVM's target triple of the objects that contain the kernels.
    pub triple: &'static str,
    /// `e_machine` of an ELF object.
    pub elf_machine: u16,
    /// Returns whether this machine and its operating system support the feature with this name in LLVM.
    detected: fn(&str) -> bool,
}

/// 64-bit x86 on Linux.
pub static X86_64: Arch =
    Arch { name: "x86_64", triple: "x86_64-unknown-linux-gnu", elf_machine: 62, detected: x86_64::detected };

/// All architectures that kernels are compiled for.
pub static ARCHES: &[&Arch] = &[&X86_64];

impl Arch {
    /// Returns the architecture that manifests call `name`; `None` if kernels are not compiled for it.
    pub fn from_name(name: &str) -> Option<&'static Arch> {
        ARCHES.iter().find(|arch| arch.name == name).copied()
    }
}

/// Instructions that only some CPUs have, and for which kernels are generated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Loads and stores of any element type take a lane mask.
    Masks,
    /// Four products of bytes are added to a 32-bit accumulator.
    Quads,
    /// Two products of bf16 are added to an f32 accumulator, and f32 is rounded to bf16.
    Pairs,
    /// Tiles of bf16 or of bytes are multiplied.
    Tiles,
}

struct Row {
    /// Suffix of the kernels' symbols.
    name: &'static str,
    arch: &'static Arch,
    /// Names of the levels whose features this level has as well.
    includes: &'static [&'static str],
    /// Features that this level needs beyond those of the included levels, in LLVM's spelling.
    features: &'static [&'static str],
    /// LLVM's name of a processor with these features and those of the included levels; if there is none, the features
    /// are listed individually.
    cpu: Option<&'static str>,
    vector_bits: u32,
    vector_registers: u32,
    /// Extensions beyond those of the included levels.
    extensions: &'static [Extension],
    /// Whether every kernel has code for this level; otherwise only the kernels that use its extensions have such code.
    common: bool,
}

/// If a machine supports several levels, the last one of them is the best.
static LEVELS: &[Row] = &[
    Row {
        name: "v3",
        arch: &X86_64,
        includes: &[],
        features: &["avx2", "fma", "bmi1", "bmi2", "f16c", "lzcnt", "movbe"],
        cpu: Some("x86-64-v3"),
        vector_bits: 256,
        vector_registers: 16,
        extensions: &[],
        common: true,
    },
    Row {
        name: "v4",
        arch: &X86_64,
        includes: &["v3"],
        features: &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
        cpu: Some("x86-64-v4"),
        vector_bits: 512,
        vector_registers: 32,
        extensions: &[Extension::Masks],
        common: true,
    },
    Row {
        name: "v4vnni",
        arch: &X86_64,
        includes: &["v4"],
        features: &["avx512vnni"],
        cpu: None,
        vector_bits: 512,
        vector_registers: 32,
        extensions: &[Extension::Quads],
        common: false,
    },
    Row {
        name: "v4bf16",
        arch: &X86_64,
        includes: &["v4vnni"],
        features: &["avx512bf16"],
        cpu: None,
        vector_bits: 512,
        vector_registers: 32,
        extensions: &[Extension::Pairs],
        common: false,
    },
    Row {
        name: "v4amx",
        arch: &X86_64,
        includes: &["v4bf16"],
        features: &["amx-bf16", "amx-int8", "amx-tile"],
        cpu: None,
        vector_bits: 512,
        vector_registers: 32,
        extensions: &[Extension::Tiles],
        common: false,
    },
];

/// A level of CPU instruction sets, as the index of its row in `LEVELS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Level(u8);

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Level {
    /// All levels, the best ones last.
    pub fn all() -> impl DoubleEndedIterator<Item = Level> {
        (0..LEVELS.len() as u8).map(Level)
    }

    /// Returns the levels for which every kernel has code, the best ones last.
    pub fn common() -> impl DoubleEndedIterator<Item = Level> {
        Level::all().filter(|level| level.is_common())
    }

    /// Returns the names of all levels, the best ones last.
    pub fn names() -> impl Iterator<Item = &'static str> {
        LEVELS.iter().map(|row| row.name)
    }

    /// Returns the level whose kernels' symbols have this suffix, such as `v4`; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::all().find(|level| level.name() == name)
    }

    fn row(self) -> &'static Row {
        &LEVELS[self.0 as usize]
    }

    /// Returns the name, which is also the suffix of the symbols of kernels compiled for this level.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the architecture that the level is part of.
    pub fn arch(self) -> &'static Arch {
        self.row().arch
    }

    /// Whether every kernel has code for this level; otherwise only the kernels that use its extensions have such code.
    pub fn is_common(self) -> bool {
        self.row().common
    }

    /// Returns the width of a vector register in bits.
    pub fn vector_bits(self) -> u32 {
        self.row().vector_bits
    }

    /// Returns the number of vector registers.
    pub fn vector_registers(self) -> u32 {
        self.row().vector_registers
    }

    /// Number of f32 lanes in a vector; vectors of other types have the same number of lanes.
    pub fn lanes(self) -> u32 {
        self.vector_bits() / 32
    }

    /// Whether machines of this level run code for `other`: `other` is the same level, or is included directly or
    /// indirectly.
    pub fn includes(self, other: Level) -> bool {
        let named = self.row().includes.iter().filter_map(|name| Level::from_name(name));
        self == other || named.into_iter().any(|level| level.includes(other))
    }

    /// This level and those that it includes, the best first.
    pub fn included(self) -> impl Iterator<Item = Level> {
        Level::all().rev().filter(move |level| self.includes(*level))
    }

    /// Whether this level, or one that it includes, has the extension.
    pub fn has(self, extension: Extension) -> bool {
        self.included().any(|level| level.adds(extension))
    }

    /// Whether this level has an extension that the included levels lack.
    pub fn adds(self, extension: Extension) -> bool {
        self.row().extensions.contains(&extension)
    }

    /// Returns LLVM's name of a processor, and the features that this level has in addition to that processor's, in
    /// LLVM's format: `+avx512vnni,…`.
    pub fn llvm(self) -> (&'static str, String) {
        let (mut cpu, mut features) = ("generic", vec![]);
        for level in self.included() {
            if let Some(name) = level.row().cpu {
                cpu = name;
                break;
            }
            features.splice(0..0, level.row().features.iter().map(|feature| format!("+{feature}")));
        }
        (cpu, features.join(","))
    }

    /// Returns the features of this level and of its included levels that the processor or the operating system lacks:
    /// all of them on a machine of another architecture.
    pub fn missing(self) -> Vec<&'static str> {
        let needed = Level::all().filter(|level| self.includes(*level)).flat_map(|level| level.row().features);
        let here = self.arch().name == std::env::consts::ARCH;
        needed.copied().filter(|feature| !here || !(self.arch().detected)(feature)).collect()
    }

    /// Whether this machine can run code of this level.
    pub fn is_here(self) -> bool {
        self.missing().is_empty()
    }
}

/// Whether this machine has a level with this extension.
pub fn has(extension: Extension) -> bool {
    Level::all().any(|level| level.adds(extension) && level.is_here())
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::is_x86_feature_detected as has;

    pub fn detected(feature: &str) -> bool {
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

    /// Returns EDX of CPUID leaf 7, which reports the supported tile operations; 0 if the CPU lacks this leaf.
    fn tile_features() -> u32 {
        if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).edx }
    }

    /// Requests the use of tiles from the operating system; returns whether this process may use them.
    fn may_use_tiles() -> bool {
        const REQUEST: libc::c_ulong = 0x1023;
        const TILE_DATA: libc::c_ulong = 18;
        // SAFETY: the system call takes two integers and accesses no memory of this process.
        unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod x86_64 {
    pub fn detected(_: &str) -> bool {
        false
    }
}

/// Returns the best of the artifact's levels that this processor supports, limited to `limit` and the levels that it
/// includes. Errors: E0403 if there is none, if the code is for another architecture, or if the artifact or this
/// machine does not support `limit` itself.
pub fn select(arch: &str, levels: &[String], limit: Option<Level>) -> Result<Level> {
    if Arch::from_name(arch).is_none() || arch != std::env::consts::ARCH {
        let message = format!("the artifact has code for `{arch}`, this machine is `{}`", std::env::consts::ARCH);
        return Err(Error::user("E0403", message).help("x86-64 processors with AVX2 are supported"));
    }
    // Levels that only a newer version of the runtime knows are ignored.
    let known: Vec<Level> = levels.iter().filter_map(|v| Level::from_name(v)).collect();
    if let Some(level) = limit
        && !known.contains(&level)
    {
        let message = format!("the artifact has no code for `{}`, only for {levels:?}", level.name());
        return Err(Error::user("E0403", message));
    }
    let wanted = known.iter().copied().filter(|level| limit.is_none_or(|l| l.includes(*level)));
    // A level that is explicitly requested but does not run here is an error; no lower level replaces it.
    let best = wanted.filter(|level| level.is_here() || limit == Some(*level)).max();
    let Some(level) = best.or(known.iter().min().copied()) else {
        return Err(Error::user("E0403", format!("the artifact has code for {levels:?} only")));
    };
    match level.missing().as_slice() {
        [] => Ok(level),
        missing => {
            let message = format!("code for `{}` needs {}, which this CPU lacks", level.name(), missing.join(", "));
            Err(Error::user("E0403", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(name: &str) -> Level {
        Level::from_name(name).unwrap()
    }

    #[test]
    fn names_are_distinct_and_what_is_included_comes_before() {
        for level in Level::all() {
            assert_eq!(Level::from_name(level.name()), Some(level));
            for name in level.row().includes {
                let other = Level::from_name(name).unwrap();
                assert!(other < level && other.arch().name == level.arch().name, "{level:?} includes {name}");
            }
            level.missing();
        }
    }

    #[test]
    fn what_a_level_has_comes_from_those_that_it_includes() {
        assert!(level("v4amx").includes(level("v3")) && !level("v4").includes(level("v4vnni")));
        assert!(level("v4amx").has(Extension::Pairs) && !level("v4amx").adds(Extension::Pairs));
        assert!(level("v4").has(Extension::Masks) && !level("v3").has(Extension::Masks));
        assert_eq!(level("v3").llvm(), ("x86-64-v3", String::new()));
        assert_eq!(level("v4bf16").llvm(), ("x86-64-v4", "+avx512vnni,+avx512bf16".into()));
        let names: Vec<&str> = level("v4bf16").included().map(Level::name).collect();
        assert_eq!(names, ["v4bf16", "v4vnni", "v4", "v3"]);
    }

    #[test]
    fn another_architecture_and_unknown_levels_are_refused() {
        assert_eq!(select("aarch64", &["v3".into()], None).unwrap_err().code, "E0403");
        assert_eq!(select("x86_64", &["v9".into()], None).unwrap_err().code, "E0403");
        assert_eq!(select("x86_64", &["v3".into()], Some(level("v4"))).unwrap_err().code, "E0403");
    }

    #[test]
    fn the_best_level_that_runs_is_taken() {
        let all = ["v3".to_string(), "v4".to_string()];
        if level("v3").is_here() {
            assert_eq!(select("x86_64", &all, Some(level("v3"))).unwrap(), level("v3"));
            let best = if level("v4").is_here() { "v4" } else { "v3" };
            assert_eq!(select("x86_64", &all, None).unwrap().name(), best);
        }
    }
}
