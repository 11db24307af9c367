//! program  =>  the program with every rule applied wherever it matches, one rule after the other
//!
//! The search replaces the result of these rules only by a cheaper program.

use crate::merge::merge_pairs;
use crate::rewrite::Rewrites;
use crate::{fuse_attention, fuse_epilogues, fuse_reductions, inline_maps};
use sardonyx_base::Result;
use sardonyx_dialects::flow::Program;

pub fn apply(program: &mut Program, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.sweep(program, inline_maps::RULE, inline_maps::find, inline_maps::apply)?;
    merge_pairs(program, rewrites, fuse_epilogues::RULE, fuse_epilogues::matches)?;
    merge_pairs(program, rewrites, fuse_reductions::RULE, fuse_reductions::matches)?;
    rewrites.sweep(program, inline_maps::RULE, inline_maps::find, inline_maps::apply)?;
    rewrites.sweep(program, fuse_attention::RULE, fuse_attention::find, fuse_attention::apply)?;
    rewrites.sweep(program, inline_maps::RULE, inline_maps::find, inline_maps::apply)
}
