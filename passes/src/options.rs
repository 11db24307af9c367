//! `precision=bf16`, `layouts=columns`  =>  what one compilation asks of its passes
//!
//! A pass reads its options from the context that it is given ([`Rewrites::options`](crate::Rewrites::options)). To add one: a
//! field with its default, and a row that says how its value is written.

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

#[derive(Clone, Debug)]
pub struct Options {
    /// What the plan is made for: whose costs decide, and what its kernels can do.
    pub target: Target,
    pub params: Params,
    /// How many rewrites may be applied; any number where absent.
    pub fuel: Option<usize>,
    /// Say what nearly was rewritten, and why it was not.
    pub remarks: bool,
    /// Check each rewrite by running what it changed, before and after.
    pub validate: bool,
    pub precision: Precision,
    pub quantize: Quantize,
    /// Weights along the sum that have a scale of their own; as the type of the codes has it where absent.
    pub group: Option<Group>,
    /// As the codes have it where absent.
    pub activations: Option<Activations>,
    /// ONNX nodes that are not quantised, by patterns of their names.
    pub keep: Vec<Regex>,
    /// The codes of weights that calibration rounded.
    pub calibrated: Calibrated,
    pub kv_cache: KvCache,
    pub layouts: Layouts,
    pub masked_rows: MaskedRows,
    pub sparsity: Sparsity,
    /// Weights are multiplied with finite numbers alone: a product with a weight that is 0 is 0.
    pub assume_finite: bool,
    /// Bytes that may lie between the kernels of one convolution; any number where absent.
    pub workspace_limit: Option<u64>,
    /// How many ranks there are along each axis of the mesh; empty for one rank.
    pub mesh: Vec<i64>,
    /// A plan says what ranks are to have of these operands.
    pub places: Vec<OperandPlace>,
    /// Products and tables are split that neither the model nor a plan has placed.
    pub seeds: bool,
    /// The pipeline along one of the axes.
    pub stages: Option<Stages>,
    /// What is computed in chunks that are exchanged meanwhile.
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
            precision: Precision::default(),
            quantize: Quantize::default(),
            group: None,
            activations: None,
            keep: vec![],
            calibrated: Calibrated::default(),
            kv_cache: KvCache::default(),
            layouts: Layouts::default(),
            masked_rows: MaskedRows::default(),
            sparsity: Sparsity::default(),
            assume_finite: false,
            workspace_limit: None,
            mesh: vec![],
            places: vec![],
            seeds: true,
            stages: None,
            overlap: None,
        }
    }
}

/// Gives the values of prepared parameters, or of some of them, faster than the interpreter does.
pub type Preparer = fn(&Prepared, &dyn ParamValues) -> Result<BTreeMap<String, Tensor>>;

/// The values of the model's parameters, for passes that compute with them; IR that comes without a model has none.
#[derive(Clone, Default)]
pub struct Params {
    values: Option<Arc<dyn ParamValues + Send + Sync>>,
    preparer: Option<Preparer>,
}

impl Params {
    pub fn new(values: impl ParamValues + Send + Sync + 'static) -> Params {
        Params { values: Some(Arc::new(values)), preparer: None }
    }

    /// The same values, of which prepared parameters are made so.
    pub fn prepared_by(self, preparer: Preparer) -> Params {
        Params { preparer: Some(preparer), ..self }
    }

    /// The values of prepared parameters that the preparer makes. Errors: those of the preparer.
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

/// In what the factors of contractions and of attention are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    #[default]
    F32,
    Bf16,
}

/// What weights are rounded to: whole numbers of so many bits or small floats, with a scale for each column, or for each group
/// of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantize {
    #[default]
    None,
    Int8,
    Int4,
    Int3,
    /// Floats of 8 bits, of which 3 are mantissa: f8e4m3fn.
    Fp8,
    /// Nothing: weights that lie on a grid of such numbers are stored so.
    Lossless,
    /// What calibration chose for each layer.
    Auto,
}

impl Quantize {
    /// None where it is no one code for all weights.
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

/// How many weights of a column have one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Of(i64),
    /// All.
    Channel,
}

/// What quantised weights are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// Whole numbers of 8 bits, with a scale for each row.
    Int8,
    F32,
}

/// In what a decoder's caches hold the keys and values of earlier positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCache {
    #[default]
    F32,
    Bf16,
    /// Whole numbers of 8 bits, with a scale for what a head has of a position.
    Int8,
    /// Block floating point: codes of 8 bits, with an exponent for up to 32 of them.
    Bfp8,
    /// The same of 4 bits.
    Bfp4,
}

/// Which layouts the containers between kernels get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layouts {
    /// Those in which the kernels are estimated fastest together.
    #[default]
    Chosen,
    /// Row-major order: channels before lines and columns.
    RowMajor,
    /// The columns of contractions innermost wherever they may be: channels last.
    Columns,
}

/// What outputs hold at positions that an attention mask leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskedRows {
    /// What the model says, which has to be computed.
    #[default]
    Compute,
    /// 0 where that saves computing them: nobody reads them.
    Zero,
}

/// A way to multiply with weights that are mostly 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparsity {
    /// Their zeros are left out of products where that is estimated faster.
    #[default]
    Auto,
    /// Their zeros are left out wherever a format stores them, for who compares.
    Always,
    /// They are multiplied like any number.
    Off,
}

/// A value that is written as one of a few words.
pub trait Named: Copy + PartialEq + Send + Sync + 'static {
    const NAMES: &'static [(&'static str, Self)];

    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.0 == name).map(|row| row.1)
    }

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
    /// Takes a value as it is written; none where it is no such value.
    set: fn(&mut Options, &str) -> Option<()>,
}

/// Those that have a name in `sardonyx-opt --option NAME=VALUE`, sorted; the others are flags of their own there.
static ROWS: &[Row] = &[
    Row { name: "activations", set: |o, v| Activations::from_name(v).map(|v| o.activations = Some(v)) },
    Row { name: "assume-finite", set: |o, v| v.parse().ok().map(|v| o.assume_finite = v) },
    Row { name: "group", set: |o, v| Group::from_name(v).map(|v| o.group = Some(v)) },
    Row { name: "kv-cache", set: |o, v| KvCache::from_name(v).map(|v| o.kv_cache = v) },
    Row { name: "layouts", set: |o, v| Layouts::from_name(v).map(|v| o.layouts = v) },
    Row { name: "masked-rows", set: |o, v| MaskedRows::from_name(v).map(|v| o.masked_rows = v) },
    Row { name: "mesh", set: |o, v| mesh(v).map(|v| o.mesh = v) },
    Row { name: "overlap", set: |o, v| v.parse().ok().map(|v| o.overlap = Some(v)) },
    Row { name: "precision", set: |o, v| Precision::from_name(v).map(|v| o.precision = v) },
    Row { name: "quantize", set: |o, v| Quantize::from_name(v).map(|v| o.quantize = v) },
    Row { name: "seeds", set: |o, v| v.parse().ok().map(|v| o.seeds = v) },
    Row { name: "sparsity", set: |o, v| Sparsity::from_name(v).map(|v| o.sparsity = v) },
    Row { name: "stages", set: |o, v| v.parse().ok().map(|v| o.stages = Some(v)) },
    Row { name: "target", set: |o, v| Target::from_name(v).map(|v| o.target = v) },
    Row { name: "workspace-limit", set: |o, v| v.parse().ok().map(|v| o.workspace_limit = Some(v)) },
];

/// More ranks than any collective is tested for.
pub const RANKS_MAX: i64 = 1024;
/// More ranks than a plan is found for.
pub const PLANNED_RANKS_MAX: i64 = 4096;

/// `2x4`: as many ranks along each axis, which a program can be compiled for. One rank is no mesh.
pub fn mesh(text: &str) -> Option<Vec<i64>> {
    mesh_of_at_most(text, RANKS_MAX)
}

/// The same of another number of ranks in all.
pub fn mesh_of_at_most(text: &str, most: i64) -> Option<Vec<i64>> {
    let sizes: Vec<i64> =
        text.split('x').map(|n| n.parse().ok().filter(|n| (1..=most).contains(n))).collect::<Option<_>>()?;
    let ranks = sizes.iter().try_fold(1i64, |p, n| p.checked_mul(*n)).filter(|n| *n <= most)?;
    Some(if ranks == 1 { vec![] } else { sizes.into_iter().filter(|n| *n > 1).collect() })
}

impl Options {
    /// What of precision is not the model's own, as manifests and reports call it; none where nothing is.
    pub fn lowered(&self) -> Option<String> {
        let bf16 = (self.precision != Precision::F32).then(|| self.precision.name());
        let codes = (self.quantize != Quantize::None).then(|| self.quantize.name());
        let group =
            codes.and(Some(self.group()).filter(|g| *g != Group::Channel)).map(|g| format!("group={}", g.name()));
        let floats = self.activations.filter(|_| codes.is_some()).map(|a| format!("activations={}", a.name()));
        let calibrated = codes.and(self.calibrated.name());
        let named = bf16.into_iter().chain(codes).chain(calibrated).map(str::to_owned);
        let all: Vec<String> = named.chain(group).chain(floats).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }

    /// Weights of a column that have one scale: of few bits only neighbours do.
    pub fn group(&self) -> Group {
        let usual = match self.quantize {
            Quantize::None | Quantize::Int8 | Quantize::Fp8 | Quantize::Lossless => Group::Channel,
            Quantize::Int4 | Quantize::Int3 | Quantize::Auto => Group::Of(32),
        };
        self.group.unwrap_or(usual)
    }

    /// Whether what comes from these ONNX nodes is not quantised.
    pub fn keeps(&self, origins: &[String]) -> bool {
        origins.iter().any(|origin| self.keep.iter().any(|keep| keep.is_match(origin)))
    }

    /// What quantised weights are multiplied with: where those lose nothing, nothing else does unasked; floats are multiplied with
    /// floats.
    pub fn activations(&self) -> Activations {
        self.activations.unwrap_or(match self.quantize {
            Quantize::None | Quantize::Int8 | Quantize::Int4 | Quantize::Int3 | Quantize::Auto => Activations::Int8,
            Quantize::Fp8 | Quantize::Lossless => Activations::F32,
        })
    }

    /// Takes `NAME=VALUE`. Errors: E0001 for an unknown name or a value that is none of its.
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
                    "activations, assume-finite, group, kv-cache, layouts, masked-rows, mesh, overlap, precision"
                ),
            "{told}"
        );
    }
}
