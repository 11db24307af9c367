//! Options of `sardonyx compile`, grouped as its help shows them

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use crate::commands::embedder::EmbedderArgs;
use crate::commands::movement::MovementArgs;
use crate::commands::values::{Limits, Mesh, budget, kept, named, passes_named, ranks, score_command, score_drop};
use crate::sparsify::{Choice, Saliency};
use crate::targets;
use regex_lite::Regex;
use sardonyx_kernels::Target;
use sardonyx_passes::{Activations, Group, KvCache, Layouts, MaskedRows, NchwcBlock, Precision, Quantize, Sparsity};
use sardonyx_run::values::byte_count;
use std::path::PathBuf;

const SHAPES: &str = "Shapes and entry points";
const PRECISION: &str = "Precision and quantization";
const SPARSITY: &str = "Sparsity";
const RANKS: &str = "Ranks";
const TILES: &str = "Tiles of kernels for GPUs";
const REPORTS: &str = "Reports and limits";
const ENGINEERS: &str = "For compiler engineers";

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} compile model.onnx -o model.sdx
  {bin} compile model.onnx --dim batch=1..8 --dim seq=1..512 --json
  {bin} compile model.onnx --target cpu --target cuda:sm_80
  {bin} compile model.onnx --precision bf16
  {bin} compile model.onnx --target cuda:sm_90a --tune tune.lock
  {bin} compile model.onnx --quantize int4 --calibrate texts.npz --error-budget 0.1
  {bin} compile decoder.onnx --entry decode:seq=1 --entry start:seq=64,past=0
  {bin} compile all-MiniLM-L6-v2 -o minilm.sdx
  {bin} compile model.onnx --pooling mean --normalize --tokenizer tokenizer.json
  {bin} compile model.onnx --report report.json --at batch=8,seq=512
  {bin} compile model.onnx --stop-after simplify -o model.mlir
  {bin} compile model.onnx --time-passes --dump-dir stages")]
pub struct CompileArgs {
    /// The model, or a folder as sentence-transformers saves it, whose pooling and tokenizer go into the artifact
    #[arg(value_name = "MODEL.onnx|FOLDER")]
    pub model: PathBuf,
    /// The artifact to write [default: the model's name with .sdx]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// What to compile for; several targets share one file and its weights
    #[arg(long = "target", value_name = "TARGET", default_value = "cpu", value_parser = targets::parser())]
    pub targets: Vec<Target>,
    /// Print one JSON object: file, counts, bytes, stage times; an error is an object too
    #[arg(long)]
    pub json: bool,

    /// Range of a dimension symbol: NAME=N or NAME=LO..HI
    #[arg(long = "dim", value_name = "NAME=RANGE", help_heading = SHAPES)]
    pub dims: Vec<String>,
    /// A further entry point with some dimension symbols fixed: NAME:DIM=N[,DIM=N] [default: for a model with caches `prefill`,
    /// whose caches are empty, and `decode`, which adds one position]
    #[arg(long = "entry", value_name = "NAME:DIM=N", help_heading = SHAPES)]
    pub entries: Vec<String>,
    /// Compile no entry point but `main`
    #[arg(long, conflicts_with = "entries", help_heading = SHAPES)]
    pub no_entries: bool,
    /// Compile separate code for these sizes: DIM=N[,DIM=N]. A call of `main` with these sizes runs it by itself
    #[arg(long, value_name = "DIM=N", help_heading = SHAPES)]
    pub specialize: Vec<String>,
    /// What outputs hold at positions that an attention mask excludes: the model's values (`compute`), or 0 (`zero`), so that rows
    /// of padding need not be computed. Where no output has such rows, padding is left out with either
    #[arg(long, value_name = "WHAT", default_value = "compute", value_parser = named::<MaskedRows>(), help_heading = SHAPES)]
    pub masked_rows: MaskedRows,

    /// Number of channels of a block, for a file that ONNX Runtime's optimiser wrote for one machine (com.microsoft.nchwc): 16 if
    /// that machine has AVX-512 or is an arm64, else 8. A wrong number gives wrong results
    #[arg(long, value_name = "N", value_parser = named::<NchwcBlock>(), help_heading = SHAPES)]
    pub nchwc_block: Option<NchwcBlock>,

    #[command(flatten)]
    pub embedder: EmbedderArgs,

    /// Type of the operands of contractions and attention. `bf16` keeps sums, softmax and normalisation in f32, and prints the error
    /// against f32
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = named::<Precision>(), help_heading = PRECISION)]
    pub precision: Precision,
    /// Store weights as integer codes with a scale for each column or group, or as 8-bit floats (`fp8`). `lossless` finds weights that
    /// are such codes already; `auto` chooses f32, int8 or int4 for each layer, in the fewest bytes that `--error-budget` allows on
    /// the data of `--calibrate`. The error against f32 is printed
    #[arg(long, value_name = "TYPE", default_value = "none", value_parser = named::<Quantize>(), help_heading = PRECISION)]
    pub quantize: Quantize,
    /// Number of weights along K that share a scale [default: channel, the whole column, for int8 and fp8; 32 for fewer bits]
    #[arg(long, value_name = "N", value_parser = named::<Group>(), requires = "quantize", help_heading = PRECISION)]
    pub group: Option<Group>,
    /// Type of the operand that quantised weights are multiplied with: int8 is faster, f32 is exact [default: f32 for fp8 and
    /// lossless, else int8; for MatMulNBits, what its `accuracy_level` says]
    #[arg(long, value_name = "TYPE", value_parser = named::<Activations>(), help_heading = PRECISION)]
    pub activations: Option<Activations>,
    /// Do not quantise nodes whose names match
    #[arg(long, value_name = "REGEX=f32", value_parser = kept, requires = "quantize", help_heading = PRECISION)]
    pub keep: Vec<Regex>,
    /// Inputs by which weights are rounded (GPTQ) and pruned (`--saliency`), and from which int8 convolutions take their ranges: `.npz`
    /// files with an array for each input, `test_data_set_*` folders, folders of them, or `random`
    #[arg(long, value_name = "DATA", num_args = 1.., help_heading = PRECISION)]
    pub calibrate: Vec<PathBuf>,
    /// Largest relative error (L2) of an output that lower precision or pruning may cause; above it nothing is written
    #[arg(long, value_name = "X", value_parser = budget, help_heading = PRECISION)]
    pub error_budget: Option<f64>,
    /// For `--quantize auto`, instead of an error budget: a shell command that judges the artifact at `{}`. The last line that it prints
    /// is a number, larger is better
    #[arg(long, value_name = "COMMAND", requires = "drop", conflicts_with = "error_budget", value_parser = score_command, help_heading = PRECISION)]
    pub score: Option<String>,
    /// How far the score may fall below that of f32
    #[arg(long, value_name = "X", value_parser = score_drop, requires = "score", help_heading = PRECISION)]
    pub drop: Option<f64>,
    /// Format of a decoder's caches: f32, bf16, int8 with a scale for each head and position, or block floating point (bfp8, bfp4) with
    /// an exponent for up to 32 elements. Inputs and outputs that are caches have this format
    #[arg(long, value_name = "FORMAT", default_value = "f32", value_parser = named::<KvCache>(), help_heading = PRECISION)]
    pub kv_cache: KvCache,

    /// Prune weights: keep the N largest of each M along K (2:4), or N of M neighbouring columns with one pattern for a group
    /// (2:4:16, which is fast), or prune a part of all weights (global:0.9) or of each product's blocks (block:0.8,1x4).
    /// REGEX=RULE applies to nodes whose names match; the first matching rule counts. Implies `--assume-finite`
    #[arg(long, value_name = "RULE|REGEX=RULE", value_parser = Choice::parse, help_heading = SPARSITY)]
    pub sparsify: Vec<Choice>,
    /// Which weights `--sparsify` prunes: the smallest (`magnitude`), or by the data of `--calibrate` those with the least w² · Σ x²
    /// (`obd`), or those whose loss the remaining weights make good best (`obs`, as SparseGPT) [default: obs with `--calibrate`, else
    /// magnitude]
    #[arg(long, value_name = "WHICH", requires = "sparsify", value_parser = named::<Saliency>(), help_heading = SPARSITY)]
    pub saliency: Option<Saliency>,
    /// Skip zeros in weights where that is estimated to be faster (`auto`), wherever a format stores them (`always`), or never (`off`).
    /// For floats this needs `--assume-finite`
    #[arg(long, value_name = "WHICH", default_value = "auto", value_parser = named::<Sparsity>(), help_heading = SPARSITY)]
    pub sparsity: Sparsity,
    /// Assume that weights are multiplied with finite numbers only, whatever the inputs, so that 0 · x is 0
    #[arg(long, help_heading = SPARSITY)]
    pub assume_finite: bool,

    /// Number of ranks that run the model together, each with a part of the weights: N, or NxM for a mesh of two axes
    /// [default: the model's device configuration, else 1]
    #[arg(long, value_name = "N", value_parser = ranks, help_heading = RANKS)]
    pub ranks: Option<Mesh>,
    /// A TOML file with the mesh and the placement of tensors, as `sardonyx plan` writes it: `mesh = [2]`, and for each rule
    /// `[[place]]` with `node = 'REGEX'`, `output` or `input = N`, `axis = N` of the mesh, `dim = N` to split or none,
    /// `unit = N` elements that stay together, `runs = N`
    #[arg(long, value_name = "PLAN.toml", help_heading = RANKS)]
    pub plan: Option<PathBuf>,

    /// Give kernels for GPUs the tiles that `sardonyx-run tune` has measured to be the fastest; may be repeated, for several GPUs
    #[arg(long, value_name = "tune.lock", help_heading = TILES)]
    pub tune: Vec<PathBuf>,
    /// Write code with each tile that a kernel for GPUs can have, for `sardonyx-run tune`. Other commands run the code that is
    /// expected to be the fastest
    #[arg(long, conflicts_with_all = ["tune", "stop_after"], help_heading = TILES)]
    pub tune_candidates: bool,

    /// Write the movement and launches of each kernel, and those without the optimiser, as one JSON object
    #[arg(long, value_name = "FILE.json", conflicts_with = "stop_after", help_heading = REPORTS)]
    pub report: Option<PathBuf>,
    #[command(flatten, next_help_heading = REPORTS)]
    pub movement: MovementArgs,
    /// Print what passes whose names match (or `all`) could not do, and the ONNX node in the way
    #[arg(long, value_name = "REGEX", value_parser = passes_named, help_heading = REPORTS)]
    pub remarks: Option<Regex>,
    /// Sign the artifact with an Ed25519 secret key, as `openssl genpkey -algorithm ed25519` writes it; `run --key` with the public
    /// key then loads no other artifact
    #[arg(long, value_name = "SECRET.pem", conflicts_with = "stop_after", help_heading = REPORTS)]
    pub sign: Option<PathBuf>,
    /// Leave out the call with known results that loading the artifact repeats
    #[arg(long, help_heading = REPORTS)]
    pub no_selftest: bool,
    /// Refuse a model of which the host must compute something on any device, such as a size that depends on data
    #[arg(long, help_heading = REPORTS)]
    pub no_host: bool,
    #[command(flatten, next_help_heading = REPORTS)]
    pub limits: Limits,

    /// Stop after a stage and print the IR (to -o, or standard output)
    #[arg(long, value_name = "STAGE", help_heading = ENGINEERS)]
    pub stop_after: Option<String>,
    /// Print the IR to standard error after a stage; `all` for every one
    #[arg(long, value_name = "STAGE", help_heading = ENGINEERS)]
    pub print_after: Vec<String>,
    /// Write the IR after every stage into a folder
    #[arg(long, value_name = "DIR", help_heading = ENGINEERS)]
    pub dump_dir: Option<PathBuf>,
    /// Print the time of each stage
    #[arg(long, help_heading = ENGINEERS)]
    pub time_passes: bool,
    /// Print the rewrites that were applied, numbered as `--fuel` counts them
    #[arg(long, help_heading = ENGINEERS)]
    pub list_rewrites: bool,
    /// Apply only the first N rewrites of all passes, to search for the one that breaks a model
    #[arg(long, value_name = "N", help_heading = ENGINEERS)]
    pub fuel: Option<usize>,
    /// Check each rewrite on random operands at small sizes, and fail at the first that is wrong
    #[arg(long, help_heading = ENGINEERS)]
    pub validate: bool,
    /// Layout of tensors between kernels: estimated fastest together (`chosen`), or for comparison all as in the model, or with
    /// the columns of contractions innermost (channels last)
    #[arg(long, value_name = "WHICH", default_value = "chosen", value_parser = named::<Layouts>(), help_heading = ENGINEERS)]
    pub layouts: Layouts,
    /// Bytes between the kernels of one convolution that algorithms may use to be faster: N, NKiB, NMiB or NGiB; per image where
    /// the batch is open
    #[arg(long, value_name = "BYTES", value_parser = byte_count, help_heading = ENGINEERS)]
    pub workspace_limit: Option<u64>,
}
