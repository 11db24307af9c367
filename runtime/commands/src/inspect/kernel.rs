//! the kernels of an artifact, and how GPUs launch them  =>  text, JSON

use crate::put;
use sardonyx_base::Result;
use sardonyx_base::json::Json;
use sardonyx_runtime::program::{Action, Kernel, KernelTarget, Program};
use std::io::Write;

pub fn text(program: &Program, out: &mut dyn Write) -> Result<()> {
    for (i, kernel) in program.kernels.iter().enumerate() {
        let uses = launches(program, i);
        let (buffers, writes) = (kernel.writes.len(), kernel.writes.iter().filter(|w| **w).count());
        put!(
            out,
            "kernel {i:<4} {} {}, {buffers} buffers ({writes} written), {} parameters, scratch {}, {uses} launches",
            kernel.symbol,
            kernel.class,
            kernel.params,
            kernel.scratch_bytes
        )?;
        for KernelTarget { target, grid, block, shared_bytes, tile, .. } in &kernel.targets {
            let tile = if tile.is_empty() { String::new() } else { format!(", tile {tile}") };
            put!(
                out,
                "  {target:<9} {grid} blocks of {block} threads, {shared_bytes} bytes of dynamic shared memory{tile}"
            )?;
        }
    }
    Ok(())
}

pub fn json(program: &Program) -> Json {
    let one = |(i, k): (usize, &Kernel)| {
        Json::Object(vec![
            ("symbol", k.symbol.as_str().into()),
            ("class", k.class.as_str().into()),
            ("writes", Json::list(k.writes.iter().copied())),
            ("params", k.params.into()),
            ("scratch_bytes", k.scratch_bytes.to_string().into()),
            ("launches", launches(program, i).into()),
            ("targets", Json::List(k.targets.iter().map(target).collect())),
        ])
    };
    Json::List(program.kernels.iter().enumerate().map(one).collect())
}

fn target(target: &KernelTarget) -> Json {
    let mut all = vec![
        ("target", target.target.as_str().into()),
        ("grid", target.grid.to_string().into()),
        ("block", u64::from(target.block).into()),
        ("shared_bytes", u64::from(target.shared_bytes).into()),
    ];
    if !target.tile.is_empty() {
        all.extend([("key", target.key.as_str().into()), ("tile", target.tile.as_str().into())]);
    }
    Json::Object(all)
}

/// Number of steps that launch a kernel.
fn launches(program: &Program, kernel: usize) -> usize {
    let steps = program.entries.iter().flat_map(|e| &e.steps);
    steps.filter(|s| matches!(&s.action, Action::Launch(l) if l.kernel == kernel)).count()
}
