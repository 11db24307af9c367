//! devices/NAME.toml  =>  capabilities of a device, with the source of each figure

use sardonyx_base::{DType, Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Source of a figure that has not been measured.
pub const NOT_MEASURED: &str = "not measured";

/// Number that maps the range of signed bytes to that of unsigned bytes when it is added.
pub const BYTE_SHIFT: f64 = 128.0;

/// Description of a device. Cost models and limit checks use this description, never properties of the machine that the
/// compiler runs on.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Name of the device; for a device that comes with the compiler, also that of its file.
    pub name: String,
    /// Hardware that the figures describe, in one line for listings.
    pub about: String,
    /// Value of `--target` whose code the device runs: all CPU levels share one target, and a GPU also runs code for
    /// the target of an older GPU.
    pub target: String,
    /// Number of CPU cores or multiprocessors.
    pub cores: Figure<u64>,
    /// Clock frequency in GHz, by which rates per cycle are multiplied.
    pub clock_ghz: Figure<f64>,
    /// Time to launch one kernel.
    pub launch_us: Figure<f64>,
    /// Full descriptions of the sources that figures name.
    pub sources: BTreeMap<String, String>,
    /// Memory levels, from the nearest to the farthest.
    pub memory: Vec<Memory>,
    /// Rates of a core, at most one row for each unit and operand type.
    pub rate: Vec<Rate>,
    /// Signedness of the operands of byte products.
    pub byte_products: ByteProducts,
    /// Properties of a CPU; `None` for GPUs.
    pub cpu: Option<Cpu>,
    /// Limits of a GPU; `None` for CPUs.
    pub gpu: Option<Gpu>,
}

/// Number with its source; `value` is `None` if it was not measured.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// Number in the unit that the name of the figure states.
    pub value: Option<T>,
    /// Key in the table `sources`, or [`NOT_MEASURED`].
    pub source: String,
}

/// One level of the memory hierarchy.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Position in the memory hierarchy; each level occurs at most once.
    pub level: Level,
    /// Unit that owns one such memory: `bytes` and `read_gb_s` are per owner.
    pub per: Per,
    /// Capacity of one such memory, in bytes.
    pub bytes: Figure<u64>,
    /// Bytes of a cache line; `None` for memory without lines.
    pub line_bytes: Option<Figure<u64>>,
    /// Smallest unit of transfer; the whole line if absent.
    pub sector_bytes: Option<Figure<u64>>,
    /// Read bandwidth in 10⁹ bytes per second.
    pub read_gb_s: Figure<f64>,
}

/// Level of the memory hierarchy, ordered from the nearest to the farthest.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Shared memory of a multiprocessor.
    Shared,
    /// First-level cache.
    L1,
    /// Second-level cache.
    L2,
    /// Third-level cache.
    L3,
    /// Main memory of a CPU, or global memory of a GPU.
    Dram,
}

/// Unit that owns a memory of its own at some level.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// One CPU core or multiprocessor.
    Core,
    /// The whole device, whose cores share the memory.
    Device,
}

/// Rate at which one unit of a core executes operations on one operand type.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Unit that executes the operations.
    pub unit: Unit,
    /// Type of the operands.
    pub dtype: RateType,
    /// Operations per cycle and core; a multiply-add counts as two.
    pub ops_per_cycle: Figure<f64>,
}

/// Execution unit of a core.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Vector units of a CPU, or the ordinary arithmetic units of a GPU.
    Vector,
    /// The AMX unit of a CPU.
    Tile,
    /// Tensor cores of a GPU.
    Tensor,
    /// GPU unit for exp, reciprocal and similar functions.
    Special,
}

/// Operand type of a unit; no tensor element type corresponds to tf32, and several correspond to f8.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RateType {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// f32 with a mantissa of 10 bits, as tensor cores multiply it.
    Tf32,
    /// 16-bit float with a mantissa of 10 bits.
    F16,
    /// 16-bit float with a mantissa of 7 bits.
    Bf16,
    /// 8-bit float of any format.
    F8,
    /// 8-bit integer; [`ByteProducts`] states the signedness.
    I8,
}

/// Signedness of the bytes that the device's byte products accept.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ByteProducts {
    /// Unsigned operand A by signed operand B.
    UnsignedBySigned,
    /// Operands that are each signed or unsigned.
    AnySigns,
}

impl ByteProducts {
    /// Type in which an operand A of bytes is multiplied, and the offset added to its values.
    pub fn left(self, dtype: DType) -> (DType, f64) {
        match (self, dtype) {
            (ByteProducts::UnsignedBySigned, DType::I8) => (DType::U8, BYTE_SHIFT),
            _ => (dtype, 0.0),
        }
    }

    /// Type in which an operand B of bytes is multiplied, and the offset added to its values.
    pub fn right(self, dtype: DType) -> (DType, f64) {
        match (self, dtype) {
            (ByteProducts::UnsignedBySigned, DType::U8) => (DType::I8, -BYTE_SHIFT),
            _ => (dtype, 0.0),
        }
    }
}

/// Vector registers and features of a CPU.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Width of a vector register, in bits.
    pub vector_bits: Figure<u64>,
    /// Number of vector registers.
    pub vector_registers: Figure<u64>,
    /// Feature names as the operating system reports them.
    pub features: Vec<String>,
}

/// Limits of a multiprocessor, of a CTA on it and of a thread.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Lowest `.version` that a PTX module for this GPU may declare.
    pub ptx_version: String,
    /// Number of threads of a warp.
    pub warp_lanes: Figure<u64>,
    /// Maximum number of resident warps of a multiprocessor.
    pub warps_max: Figure<u64>,
    /// Maximum number of resident CTAs of a multiprocessor.
    pub ctas_max: Figure<u64>,
    /// Maximum number of threads of a CTA.
    pub threads_cta_max: Figure<u64>,
    /// Maximum number of CTAs of a cluster; 1 if there are no clusters.
    pub cluster_max: Figure<u64>,
    /// Number of 32-bit registers of a multiprocessor.
    pub registers: Figure<u64>,
    /// Maximum number of 32-bit registers of a thread.
    pub registers_thread_max: Figure<u64>,
    /// Bytes of shared memory that a CTA may declare with `.shared`.
    pub shared_static_bytes: Figure<u64>,
    /// Bytes of shared memory that a CTA may have in total, including those requested at the launch.
    pub shared_cta_bytes: Figure<u64>,
    /// Number of banks of shared memory.
    pub shared_banks: Figure<u64>,
    /// Whether four warps together can multiply tiles in shared memory (`wgmma`).
    #[serde(default)]
    pub warpgroup_products: bool,
}

/// Devices that come with the compiler, sorted by name; the `name` in each file equals the name given here.
static KNOWN: &[(&str, &str)] = &[
    ("amx", include_str!("../devices/amx.toml")),
    ("sm_80", include_str!("../devices/sm_80.toml")),
    ("sm_90a", include_str!("../devices/sm_90a.toml")),
    ("x86-64-v3", include_str!("../devices/x86-64-v3.toml")),
    ("x86-64-v4", include_str!("../devices/x86-64-v4.toml")),
];

/// Entry of a list of figures: its path in the file, its value, the name of its source.
pub struct Listed<'a> {
    /// Path of the figure in the file, such as `memory.l1.bytes`.
    pub path: String,
    /// Number as an f64; `None` if it was not measured.
    pub value: Option<f64>,
    /// Key in the table `sources`, or [`NOT_MEASURED`].
    pub source: &'a str,
}

impl DeviceSpec {
    /// Names of the devices that come with the compiler.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// Returns the device of this name; `None` if it does not come with the compiler.
    pub fn named(name: &str) -> Option<DeviceSpec> {
        let text = DeviceSpec::text(name)?;
        Some(DeviceSpec::parse(text, name).expect("what comes with the compiler is tested to be right"))
    }

    /// Returns the text of the device's file, as a template for a user's own description; `None` for an unknown name.
    pub fn text(name: &str) -> Option<&'static str> {
        KNOWN.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    /// Parses a description; `file` is the name used in diagnostics. Errors: E0406.
    pub fn parse(text: &str, file: &str) -> Result<DeviceSpec> {
        let spec: DeviceSpec = toml::from_str(text).map_err(|e| unreadable(text, file, &e))?;
        spec.check().map_err(|e| e.file(file))?;
        Ok(spec)
    }

    /// All figures, in the order of the file.
    pub fn figures(&self) -> Vec<Listed<'_>> {
        let mut list = List(vec![]);
        list.int("cores", &self.cores);
        list.float("clock_ghz", &self.clock_ghz);
        list.float("launch_us", &self.launch_us);
        for m in &self.memory {
            let at = |field: &str| format!("memory.{}.{field}", word(&m.level));
            list.int(at("bytes"), &m.bytes);
            m.line_bytes.iter().for_each(|f| list.int(at("line_bytes"), f));
            m.sector_bytes.iter().for_each(|f| list.int(at("sector_bytes"), f));
            list.float(at("read_gb_s"), &m.read_gb_s);
        }
        for r in &self.rate {
            list.float(format!("rate.{}.{}.ops_per_cycle", word(&r.unit), word(&r.dtype)), &r.ops_per_cycle);
        }
        if let Some(cpu) = &self.cpu {
            list.int("cpu.vector_bits", &cpu.vector_bits);
            list.int("cpu.vector_registers", &cpu.vector_registers);
        }
        if let Some(gpu) = &self.gpu {
            list.int("gpu.warp_lanes", &gpu.warp_lanes);
            list.int("gpu.warps_max", &gpu.warps_max);
            list.int("gpu.ctas_max", &gpu.ctas_max);
            list.int("gpu.threads_cta_max", &gpu.threads_cta_max);
            list.int("gpu.cluster_max", &gpu.cluster_max);
            list.int("gpu.registers", &gpu.registers);
            list.int("gpu.registers_thread_max", &gpu.registers_thread_max);
            list.int("gpu.shared_static_bytes", &gpu.shared_static_bytes);
            list.int("gpu.shared_cta_bytes", &gpu.shared_cta_bytes);
            list.int("gpu.shared_banks", &gpu.shared_banks);
        }
        list.0
    }

    /// Checks what the types do not express: figures are positive and have a source, no figure is stated twice, every
    /// source is used, memory levels are in order, and the target matches the tables.
    fn check(&self) -> Result<()> {
        let wrong = |at: &str, message: String| Err(Error::user("E0406", message).node(at));
        let figures = self.figures();
        for (i, f) in figures.iter().enumerate() {
            match (f.value, f.source) {
                (None, NOT_MEASURED) => {}
                (None, _) => return wrong(&f.path, format!("a source but no value; say `{NOT_MEASURED}`")),
                (Some(_), NOT_MEASURED) => return wrong(&f.path, "a value that was not measured".into()),
                (Some(v), _) if !v.is_finite() || v <= 0.0 => return wrong(&f.path, format!("{v} is not positive")),
                (Some(_), source) if !self.sources.contains_key(source) => {
                    return wrong(&f.path, format!("`{source}` is not in the table `sources`"));
                }
                (Some(_), _) => {}
            }
            if figures[..i].iter().any(|earlier| earlier.path == f.path) {
                return wrong(&f.path, "said twice".into());
            }
        }
        if let Some(unused) = self.sources.keys().find(|s| figures.iter().all(|f| f.source != **s)) {
            return wrong(&format!("sources.{unused}"), "no figure has this source".into());
        }
        if !self.memory.windows(2).all(|w| w[0].level < w[1].level) {
            return wrong("memory", "levels stand from the nearest to the farthest".into());
        }
        match (self.target.as_str(), &self.cpu, &self.gpu) {
            ("cpu", Some(_), None) => Ok(()),
            (target, None, Some(_)) if target.starts_with("cuda:sm_") => Ok(()),
            (target, ..) => wrong(
                "target",
                format!(
                    "`{target}`: a CPU has the target `cpu` and a table `cpu`, a GPU `cuda:sm_…` and a table `gpu`"
                ),
            ),
        }
    }
}

struct List<'a>(Vec<Listed<'a>>);

impl<'a> List<'a> {
    fn int(&mut self, path: impl Into<String>, f: &'a Figure<u64>) {
        // Values are far below 2⁵³, up to which f64 is exact.
        self.0.push(Listed { path: path.into(), value: f.value.map(|v| v as f64), source: &f.source });
    }

    fn float(&mut self, path: impl Into<String>, f: &'a Figure<f64>) {
        self.0.push(Listed { path: path.into(), value: f.value, source: &f.source });
    }
}

/// Name of an enum variant as the description file spells it.
fn word(level: &impl std::fmt::Debug) -> String {
    format!("{level:?}").to_lowercase()
}

fn unreadable(text: &str, file: &str, e: &toml::de::Error) -> Box<Error> {
    let line = e.span().and_then(|span| text.get(..span.start)).map_or(1, |before| before.matches('\n').count() + 1);
    Error::user("E0406", e.message().to_string()).file(format!("{file}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sm_80_with(from: &str, to: &str) -> String {
        let text = DeviceSpec::text("sm_80").unwrap();
        assert!(text.contains(from), "{from}");
        DeviceSpec::parse(&text.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
    }

    #[test]
    fn every_device_that_comes_with_the_compiler_is_right_and_named_by_its_file() {
        assert!(KNOWN.windows(2).all(|w| w[0].0 < w[1].0));
        for name in DeviceSpec::names() {
            assert_eq!(DeviceSpec::named(name).unwrap().name, name);
        }
        assert_eq!(DeviceSpec::named("sm_75"), None);
    }

    /// The vendor states both the rates per cycle and the peak rates below, so an error in one figure shows in the
    /// other.
    #[test]
    fn peaks_are_what_the_vendor_states() {
        for (name, unit, dtype, tera) in [
            ("sm_80", Unit::Tensor, RateType::Bf16, 312.0),
            ("sm_80", Unit::Tensor, RateType::Tf32, 156.0),
            ("sm_80", Unit::Tensor, RateType::I8, 624.0),
            ("sm_80", Unit::Vector, RateType::F32, 19.5),
            ("sm_80", Unit::Vector, RateType::F64, 9.7),
            ("sm_90a", Unit::Tensor, RateType::Bf16, 989.4),
            ("sm_90a", Unit::Tensor, RateType::F8, 1978.9),
        ] {
            let spec = DeviceSpec::named(name).unwrap();
            let rate = spec.rate.iter().find(|r| (r.unit, r.dtype) == (unit, dtype)).unwrap();
            let cores = spec.cores.value.unwrap() as f64;
            let found = cores * spec.clock_ghz.value.unwrap() * rate.ops_per_cycle.value.unwrap() / 1e3;
            assert!((found / tera - 1.0).abs() < 0.01, "{name} {unit:?} {dtype:?}: {found} and {tera}");
        }
    }

    #[test]
    fn an_unknown_field_is_told_with_its_line() {
        let text = sm_80_with("launch_us", "lunch_us");
        assert!(text.starts_with("error[E0406]: unknown field `lunch_us`, expected one of `name`"), "{text}");
        assert!(text.contains("--> my.toml:8\n"), "{text}");
        assert!(text.contains("help: compare the file with what `sardonyx devices NAME --toml` prints"), "{text}");
        let text = sm_80_with("dtype = \"tf32\"", "dtype = \"tf31\"");
        assert!(text.contains("unknown variant `tf31`") && text.contains("help: compare the file"), "{text}");
        let text = sm_80_with("value = 108,", "value = -108,");
        assert!(text.contains("my.toml:6") && text.contains("invalid value"), "{text}");
    }

    #[test]
    fn figures_without_a_source_or_out_of_order_are_told() {
        for (from, to, wanted) in [
            (
                "{ value = 1555, source = \"whitepaper\" }",
                "{ value = 1555, source = \"hearsay\" }",
                "`hearsay` is not in",
            ),
            (
                "{ value = 1555, source = \"whitepaper\" }",
                "{ value = 1555, source = \"not measured\" }",
                "not measured",
            ),
            ("{ value = 1555, source = \"whitepaper\" }", "{ source = \"whitepaper\" }", "a source but no value"),
            ("value = 1555", "value = nan", "is not positive"),
            ("value = 1555", "value = 0", "0 is not positive"),
            ("level = \"l2\"", "level = \"l1\"", "said twice"),
            ("level = \"shared\"", "level = \"l3\"", "from the nearest"),
            ("dtype = \"bf16\"", "dtype = \"f16\"", "--> my.toml, node rate.tensor.f16.ops_per_cycle"),
            ("target = \"cuda:sm_80\"", "target = \"cpu\"", "`cpu`: a CPU has"),
            ("ptx = \"PTX", "other = \"b\"\nptx = \"PTX", "no figure has this source"),
        ] {
            let text = sm_80_with(from, to);
            assert!(text.contains(wanted), "{to}: {text}");
        }
    }
}
