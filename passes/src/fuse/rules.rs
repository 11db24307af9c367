//! program  =>  the same with every rule applied wherever it fits, one rule after the other
//!
//! What any better way to merge has to beat.

use crate::fusion::{merge_pairs, sweep};
use crate::{Class, Rewrites, fuse_attention, fuse_epilogues, fuse_reductions, inline_maps};
use sardonyx_base::Result;
use sardonyx_dialects::flow::Program;

pub fn apply(program: &mut Program, rewrites: &mut Rewrites) -> Result<()> {
    let inline = |program: &mut Program, rewrites: &mut Rewrites| {
        sweep(program, rewrites, "inline", inline_maps::find, inline_maps::apply)
    };
    rewrites.of_class(Class::Exact, |rewrites| {
        inline(program, rewrites)?;
        merge_pairs(program, rewrites, "epilogue", fuse_epilogues::matches)?;
        merge_pairs(program, rewrites, "same-rows", fuse_reductions::matches)?;
        inline(program, rewrites)
    })?;
    sweep(program, rewrites, "attention", fuse_attention::find, fuse_attention::apply)?;
    rewrites.of_class(Class::Exact, |rewrites| inline(program, rewrites))
}
