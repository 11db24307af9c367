//! `precision=bf16`, `layouts=columns`  =>  the options of one compilation
//!
//! A pass reads its options from its context ([`Rewrites::options`](crate::Rewrites::options)). A new option needs a
//! field with its default, and a row in `ROWS` that parses its value.

use crate::calibrated::{Calibrated, CodeType};
use crate::placement::{OperandPlace, Overlap, Stages};
use regex_lite::Regex;
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_dialects::flow::prepared::Prepared;
use sardonyx_dialects::params::ParamValues;
use sardonyx_kernels::Target;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Options of one compilation; each pass reads the options that it needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The target of the plan: its costs guide passes, and its features limit kernels.
    pub target: Target,
    /// Values of the model's parameters.
    pub params: Params,
    /// Maximum number of rewrites; unlimited if absent.
    pub fuel: Option<usize>,
    /// Whether to report rewrites that nearly applied, and the reasons why they did not apply.
    pub remarks: bool,
    /// Whether to check each rewrite by running the code that it changed, before and after.
    pub validate: bool,
    /// Whether packed weights may have a form that only targets of this class read, because no other class of targets
    /// shares the artifact.
    pub own_panels: bool,
    /// Type of the operands of contractions and attention.
    pub precision: Precision,
    /// Code type of quantised weights. By default, weights are not quantised.
    pub quantize: Quantize,
    /// Number of weights along K that share a scale; if absent, the code type determines it.
    pub group: Option<Group>,
    /// Type of the operand that quantised weights are multiplied by; if absent, the code type determines it.
    pub activations: Option<Activations>,
    /// Patterns for the names of ONNX nodes that are not quantised.
    pub keep: Vec<Regex>,
    /// The roundings and ranges that calibration found.
    pub calibrated: Calibrated,
    /// Format of a decoder's caches of keys and values.
    pub kv_cache: KvCache,
    /// Number of channels of a block in files that ONNX Runtime's optimiser wrote for one machine; if absent, such files
    /// are refused.
    pub nchwc_block: Option<NchwcBlock>,
    /// How the layouts of containers between kernels are chosen.
    pub layouts: Layouts,
    /// Contents of outputs at positions that an attention mask excludes.
    pub masked_rows: MaskedRows,
    /// How contractions treat weights that are mostly 0.
    pub sparsity: Sparsity,
    /// Whether weights are assumed to be multiplied by finite numbers only, so that a product with a zero weight is 0.
    pub assume_finite: bool,
    /// Maximum bytes of workspace between the kernels of one convolution; unlimited if absent.
    pub workspace_limit: Option<u64>,
    /// Number of ranks along each axis of the mesh; empty for one rank.
    pub mesh: Vec<i64>,
    /// Placements of operands on ranks, given by a distribution plan.
    pub places: Vec<OperandPlace>,
    /// Whether contractions and lookup tables without a placement in the model or in a distribution plan are split over
    /// ranks.
    pub seeds: bool,
    /// Axis of the mesh along which each rank keeps a part of the weights that it needs whole, and gathers them in calls.
    pub gathered_weights: Option<usize>,
    /// A pipeline along one axis of the mesh, if any.
    pub stages: Option<Stages>,
    /// Number of chunks of contractions and number of micro-batches, by which computation overlaps with exchanges.
    pub overlap: Option<Overlap>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            target: Target::cpu(),
            params: Params::default(),
            fuel: None,
            remarks: false,
            validate: false,
            own_panels: false,
            precision: Precision::default(),
            quantize: Quantize::default(),
            group: None,
            activations: None,
            keep: vec![],
            calibrated: Calibrated::default(),
            kv_cache: KvCache::default(),
            nchwc_block: None,
            layouts: Layouts::default(),
            masked_rows: MaskedRows::default(),
            sparsity: Sparsity::default(),
            assume_finite: false,
            workspace_limit: None,
            mesh: vec![],
            places: vec![],
            seeds: true,
            gathered_weights: None,
            stages: None,
            overlap: None,
        }
    }
}

/// Computes the values of some prepared parameters (parameters computed from others when the artifact is written),
/// faster than the interpreter does.
pub type Preparer = fn(&Prepared, &dyn ParamValues) -> Result<BTreeMap<String, Tensor>>;

/// The values of the model's parameters, for passes that compute with them; absent if the IR was not made from a model.
#[derive(Clone, Default)]
pub struct Params {
    values: Option<Arc<dyn ParamValues + Send + Sync>>,
    preparer: Option<Preparer>,
}

impl Params {
    /// Wraps the values of parameters, without a preparer.
    pub fn new(values: impl ParamValues + Send + Sync + 'static) -> Params {
        Params { values: Some(Arc::new(values)), preparer: None }
    }

    /// Returns the same parameters, with a function that computes prepared parameters.
    pub fn prepared_by(self, preparer: Preparer) -> Params {
        Params { preparer: Some(preparer), ..self }
    }

    /// Returns the values of the prepared parameters that the preparer can compute; empty without a preparer. Errors:
    /// the preparer's.
    pub fn prepare(&self, prepared: &Prepared) -> Result<BTreeMap<String, Tensor>> {
        self.preparer.map_or_else(|| Ok(BTreeMap::new()), |preparer| preparer(prepared, self))
    }
}

impl ParamValues for Params {
    fn value(&self, name: &str) -> Result<Tensor> {
        let absent = || Error::defect(format!("the parameter `{name}` has no value here"));
        self.values.as_ref().ok_or_else(absent)?.value(name)
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(if self.values.is_some() { "Params(..)" } else { "Params" })
    }
}

/// The type of the operands of contractions and attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// The types of the model, unchanged.
    #[default]
    F32,
    /// bf16, accumulated in f32.
    Bf16,
}

/// The code type of quantised weights: integers or small floats, with a scale for each column or each group of weights
/// in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantize {
    /// No quantisation.
    #[default]
    None,
    /// 8-bit integers.
    Int8,
    /// 4-bit integers.
    Int4,
    /// 3-bit integers, stored in 4 bits.
    Int3,
    /// 8-bit floats with 3 mantissa bits: f8e4m3fn.
    Fp8,
    /// No rounding: only weights that are already exact multiples of a scale are stored as codes.
    Lossless,
    /// The type that calibration chose for each layer.
    Auto,
}

impl Quantize {
    /// Returns the code type; for `Auto`, the narrowest type that calibration tries. Returns `None` if weights are not
    /// quantised, and for `Lossless`, for which the weights determine their code types.
    pub fn code(self) -> Option<CodeType> {
        match self {
            Quantize::None | Quantize::Lossless => None,
            Quantize::Int8 => Some(CodeType::BYTES),
            Quantize::Int4 | Quantize::Auto => Some(CodeType::Int(4)),
            Quantize::Int3 => Some(CodeType::Int(3)),
            Quantize::Fp8 => Some(CodeType::Float(DType::F8E4M3FN)),
        }
    }
}

/// Number of weights of a column that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// This many weights, adjacent along K.
    Of(i64),
    /// All weights of a column.
    Channel,
}

/// Number of channels of a block in com.microsoft.nchwc, which depends on the machine that wrote the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NchwcBlock(pub i64);

/// The type of the operands that quantised weights are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// 8-bit integers, with a scale for each row.
    Int8,
    /// f32, not quantised.
    F32,
}

/// The format of a decoder's caches of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCache {
    /// The type of the model, unchanged.
    #[default]
    F32,
    /// bf16, without scales.
    Bf16,
    /// 8-bit integers, with a scale for the elements of one head at one position.
    Int8,
    /// Block floating point: 8-bit codes, with an exponent for each block of up to 32 codes.
    Bfp8,
    /// Block floating point with 4-bit codes.
    Bfp4,
}

/// How the layouts of the containers between kernels are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layouts {
    /// The layouts with the least estimated total time of all kernels.
    #[default]
    Chosen,
    /// Row-major order: for images, channels before rows and columns of pixels.
    RowMajor,
    /// The columns of contractions innermost wherever possible: for images, channels last.
    Columns,
}

/// The contents of outputs at positions that an attention mask excludes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskedRows {
    /// The values that the model defines, which must be computed.
    #[default]
    Compute,
    /// Zeros, where the values need not be computed because no consumer reads them.
    Zero,
}

/// How contractions treat weights that are mostly 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparsity {
    /// Skips zeros where that is estimated to be faster.
    #[default]
    Auto,
    /// Skips zeros wherever a format can store weights of which at least half are 0, for comparisons.
    Always,
    /// Multiplies zeros like any other number.
    Off,
}

/// An option whose values have names.
pub trait Named: Copy + PartialEq + Send + Sync + 'static {
    /// Each value with its name.
    const NAMES: &'static [(&'static str, Self)];

    /// Returns the value of this name; `None` if there is none.
    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    /// Returns the name of the value; empty if it has none.
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }
}

impl Named for Precision {
    const NAMES: &'static [(&'static str, Precision)] = &[("f32", Precision::F32), ("bf16", Precision::Bf16)];
}

impl Named for Quantize {
    const NAMES: &'static [(&'static str, Quantize)] = &[
        ("none", Quantize::None),
        ("int8", Quantize::Int8),
        ("int4", Quantize::Int4),
        ("int3", Quantize::Int3),
        ("fp8", Quantize::Fp8),
        ("lossless", Quantize::Lossless),
        ("auto", Quantize::Auto),
    ];
}

impl Named for Group {
    const NAMES: &'static [(&'static str, Group)] =
        &[("32", Group::Of(32)), ("64", Group::Of(64)), ("128", Group::Of(128)), ("channel", Group::Channel)];
}

impl Named for NchwcBlock {
    const NAMES: &'static [(&'static str, NchwcBlock)] = &[("8", NchwcBlock(8)), ("16", NchwcBlock(16))];
}

impl Named for Activations {
    const NAMES: &'static [(&'static str, Activations)] = &[("int8", Activations::Int8), ("f32", Activations::F32)];
}

impl Named for KvCache {
    const NAMES: &'static [(&'static str, KvCache)] = &[
        ("f32", KvCache::F32),
        ("bf16", KvCache::Bf16),
        ("int8", KvCache::Int8),
        ("bfp8", KvCache::Bfp8),
        ("bfp4", KvCache::Bfp4),
    ];
}

impl Named for Layouts {
    const NAMES: &'static [(&'static str, Layouts)] =
        &[("chosen", Layouts::Chosen), ("row-major", Layouts::RowMajor), ("columns", Layouts::Columns)];
}

impl Named for MaskedRows {
    const NAMES: &'static [(&'static str, MaskedRows)] =
        &[("compute", MaskedRows::Compute), ("zero", MaskedRows::Zero)];
}

impl Named for Sparsity {
    const NAMES: &'static [(&'static str, Sparsity)] =
        &[("auto", Sparsity::Auto), ("always", Sparsity::Always), ("off", Sparsity::Off)];
}

struct Row {
    name: &'static str,
    /// Parses and sets a value; returns `None` if the value is invalid.
    set: fn(&mut Options, &str) -> Option<()>,
}

/// Options that `sardonyx-opt --option NAME=VALUE` sets, sorted by name; `sardonyx-opt` has separate flags for the
/// other options.
static ROWS: &[Row] = &[
    Row { name: "activations", set: |o, v| Activations::from_name(v).map(|v| o.activations = Some(v)) },
    Row { name: "assume-finite", set: |o, v| v.parse().ok().map(|v| o.assume_finite = v) },
    Row { name: "gathered-weights", set: |o, v| v.parse().ok().map(|v| o.gathered_weights = Some(v)) },
    Row { name: "group", set: |o, v| Group::from_name(v).map(|v| o.group = Some(v)) },
    Row { name: "kv-cache", set: |o, v| KvCache::from_name(v).map(|v| o.kv_cache = v) },
    Row { name: "layouts", set: |o, v| Layouts::from_name(v).map(|v| o.layouts = v) },
    Row { name: "masked-rows", set: |o, v| MaskedRows::from_name(v).map(|v| o.masked_rows = v) },
    Row { name: "mesh", set: |o, v| mesh(v).map(|v| o.mesh = v) },
    Row { name: "nchwc-block", set: |o, v| NchwcBlock::from_name(v).map(|v| o.nchwc_block = Some(v)) },
    Row { name: "overlap", set: |o, v| v.parse().ok().map(|v| o.overlap = Some(v)) },
    Row { name: "own-panels", set: |o, v| v.parse().ok().map(|v| o.own_panels = v) },
    Row { name: "precision", set: |o, v| Precision::from_name(v).map(|v| o.precision = v) },
    Row { name: "quantize", set: |o, v| Quantize::from_name(v).map(|v| o.quantize = v) },
    Row { name: "seeds", set: |o, v| v.parse().ok().map(|v| o.seeds = v) },
    Row { name: "sparsity", set: |o, v| Sparsity::from_name(v).map(|v| o.sparsity = v) },
    Row { name: "stages", set: |o, v| v.parse().ok().map(|v| o.stages = Some(v)) },
    Row { name: "target", set: |o, v| Target::from_name(v).map(|v| o.target = v) },
    Row { name: "workspace-limit", set: |o, v| v.parse().ok().map(|v| o.workspace_limit = Some(v)) },
];

/// Maximum number of ranks of a compiled program; collectives are not tested with more.
pub const RANKS_MAX: i64 = 1024;
/// Maximum number of ranks for which a distribution plan is searched.
pub const PLANNED_RANKS_MAX: i64 = 4096;

/// Parses the number of ranks along each axis of the mesh, such as `2x4`, for at most `RANKS_MAX` ranks in all. A
/// single rank gives an empty mesh.
pub fn mesh(text: &str) -> Option<Vec<i64>> {
    mesh_of_at_most(text, RANKS_MAX)
}

/// Maximum number of axes of a mesh, which the runtime supports.
pub const AXES_MAX: usize = 4;

/// As [`mesh`], for at most `most` ranks in all.
pub fn mesh_of_at_most(text: &str, most: i64) -> Option<Vec<i64>> {
    let sizes: Vec<i64> =
        text.split('x').map(|n| n.parse().ok().filter(|n| (1..=most).contains(n))).collect::<Option<_>>()?;
    let ranks = sizes.iter().try_fold(1i64, |p, n| p.checked_mul(*n)).filter(|n| *n <= most)?;
    let axes: Vec<i64> = sizes.into_iter().filter(|n| *n > 1).collect();
    Some(if ranks == 1 { vec![] } else { axes }).filter(|axes| axes.len() <= AXES_MAX)
}

impl Options {
    /// Returns the options that lower the precision of the model, for manifests and reports, or `None` if none does.
    pub fn lowered(&self) -> Option<String> {
        let bf16 = (self.precision != Precision::F32).then(|| self.precision.name());
        let codes = (self.quantize != Quantize::None).then(|| self.quantize.name());
        let group =
            codes.and(Some(self.group()).filter(|g| *g != Group::Channel)).map(|g| format!("group={}", g.name()));
        // Without other codes, only those of a file have a left factor to round.
        let lowers = |a: &Activations| codes.is_some() || *a == Activations::Int8;
        let floats = self.activations.filter(lowers).map(|a| format!("activations={}", a.name()));
        let calibrated = codes.and(self.calibrated.name());
        let named = bf16.into_iter().chain(codes).chain(calibrated).map(str::to_owned);
        let all: Vec<String> = named.chain(group).chain(floats).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }

    /// Returns the number of weights of a column that share a scale; by default, codes of at most 4 bits have groups of
    /// 32 weights, and other codes one scale per column.
    pub fn group(&self) -> Group {
        let usual = match self.quantize {
            Quantize::None | Quantize::Int8 | Quantize::Fp8 | Quantize::Lossless => Group::Channel,
            Quantize::Int4 | Quantize::Int3 | Quantize::Auto => Group::Of(32),
        };
        self.group.unwrap_or(usual)
    }

    /// Whether values that come from these ONNX nodes are not quantised.
    pub fn keeps(&self, origins: &[String]) -> bool {
        origins.iter().any(|origin| self.keep.iter().any(|keep| keep.is_match(origin)))
    }

    /// Returns the type of the operand that quantised weights are multiplied by. By default, this is f32 for lossless
    /// weights, so that no precision is lost, and for float codes.
    pub fn activations(&self) -> Activations {
        self.activations.unwrap_or(match self.quantize {
            Quantize::None | Quantize::Int8 | Quantize::Int4 | Quantize::Int3 | Quantize::Auto => Activations::Int8,
            Quantize::Fp8 | Quantize::Lossless => Activations::F32,
        })
    }

    /// Sets an option from `NAME=VALUE`. Errors: E0001 for an unknown name or an invalid value.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            let message = format!("there is no option `{name}`");
            return Err(Error::user("E0001", message).help(format!("the options are {}", names.join(", "))));
        };
        (row.set)(self, value).ok_or_else(|| Error::user("E0001", format!("`{value}` is no value of `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_by_name() {
        let mut options = Options::default();
        for text in [
            "precision=bf16",
            "layouts=columns",
            "masked-rows=zero",
            "workspace-limit=64",
            "target=cuda:sm_80",
            "kv-cache=bfp8",
        ] {
            options.set(text).unwrap();
        }
        assert_eq!((options.precision, options.layouts), (Precision::Bf16, Layouts::Columns));
        assert_eq!((options.masked_rows, options.workspace_limit), (MaskedRows::Zero, Some(64)));
        assert_eq!((options.target.name(), options.kv_cache), ("cuda:sm_80", KvCache::Bfp8));
        assert!(ROWS.windows(2).all(|w| w[0].name < w[1].name));
    }

    #[test]
    fn what_is_no_option_is_refused_with_the_names() {
        let refused = |text: &str| Options::default().set(text).unwrap_err().to_string();
        assert!(refused("precision=f31").contains("`f31` is no value of `precision`"));
        assert!(refused("workspace-limit=-1").contains("`-1` is no value of `workspace-limit`"));
        let told = refused("speed=fast");
        assert!(
            told.contains("no option `speed`")
                && told.contains(
                    "activations, assume-finite, gathered-weights, group, kv-cache, layouts, masked-rows, mesh, nchwc-block, overlap, own-panels, precision"
                ),
            "{told}"
        );
    }
}
