//! All passes: rewrites within an IR level or from one level to the next. A pipeline string selects them by name

pub mod calibrated;
mod choose_algorithms;
mod class;
pub mod distribute;
mod draft;
mod drop_roundings;
pub mod egraph;
mod find_caches;
mod fold_constants;
mod fuse;
mod fuse_attention;
mod fuse_epilogues;
mod fuse_reductions;
mod fuse_siblings;
mod inline_maps;
mod int8_contractions;
mod layout;
mod levels;
mod lower_kernels;
mod lower_precision;
mod merge;
mod miss;
pub mod movement;
mod narrow_caches;
mod near_misses;
mod onnx_to_sdx;
pub mod options;
mod overlap;
mod pack_weights;
mod placement;
pub mod plan_memory;
mod prepare_weights;
pub mod quantize;
#[cfg(test)]
mod random;
mod registry;
mod remark;
mod remove_padding;
mod rewrite;
pub mod schedule;
mod sdx_to_flow;
mod shard;
mod simplify;
mod skip_masked_keys;
mod skip_zeros;
mod slow_launches;
mod splice;
mod split_columns;
mod split_extrema;
mod stage_operands;
mod steps;
mod tabulate;
pub mod usual;
mod validate;
mod version;
pub mod weights;
mod widen_halves;

pub use calibrated::CodeType;
pub use class::Class;
pub use lower_precision::attention::narrowed as narrowed_attention;
pub use onnx_to_sdx::{Device as OperatorDevice, OPERATORS, Operator, has_open_rank, is_supported, keeps_rank};
pub use options::{
    Activations, Group, KvCache, Layouts, MaskedRows, Named, NchwcBlock, Options, Params, Precision, Quantize,
    Sparsity, mesh,
};
pub use placement::{CHUNKS_MAX, MICRO_BATCHES_MAX, OperandPlace, Overlap, Stages};
pub use registry::{PASSES, PassRow, context, parse, run_pipeline, run_pipeline_with};
pub use remark::{Missed, Remark};
pub use rewrite::{Rewrite, Rewrites};
pub use simplify::{FurtherRule, has_exact_sums, with_rule};
pub use splice::tidy;
pub use steps::drop_dead;
pub use validate::Validation;
pub use version::{IR_VERSION, set_version};
