//! plan, parameters  =>  code and constants in a .sdx file

use crate::codegen;
use crate::import::ParamStore;
use crate::requires::{Requires, requires};
use sardonyx_dialects::flow::{Container, Kernel, Layout, Window};
use sardonyx_dialects::plan::{Action, Buffer, Plan};
use sardonyx_dialects::sdx::SymbolKind;
use sardonyx_passes::kernel::{Lowered, Variant, lower};
use sardonyx_runtime::plan as file;
use sardonyx_runtime::{ArtifactWriter, Dim, Error, Result, Tensor};
use std::path::Path;

/// What a compilation came to.
#[derive(Clone, Debug)]
pub struct Summary {
    pub kernels: usize,
    pub launches: usize,
    pub weights_bytes: u64,
    pub code_bytes: usize,
    pub arena_bytes: String,
    /// Memory accesses of all kernels, and how many the runtime cannot keep within their buffers by what the kernels
    /// require of their launches: those rely on the plan being the compiler's.
    pub accesses: usize,
    pub unchecked: usize,
}

/// What a compilation made, to be written.
pub struct Product<'a> {
    pub plan: &'a Plan,
    /// The plan's kernels, in kernel-level MLIR per CPU variant.
    pub modules: &'a [(Variant, String)],
    pub params: &'a ParamStore,
    pub model_hash: &'a str,
    pub selftest: Option<&'a file::SelfTest>,
}

pub fn write(path: &Path, product: &Product) -> Result<Summary> {
    let Product { plan, modules, params, model_hash, selftest } = *product;
    let lowered: Vec<Lowered> = plan.kernels.iter().map(|(_, k)| lower(k)).collect::<Result<_>>()?;
    let required: Vec<Requires> =
        lowered.iter().enumerate().map(|(i, l)| requires(plan, i, &l.def)).collect::<Result<_>>()?;
    let kernels = kernels(plan, &lowered, &required);
    let (accesses, unchecked) = required.iter().fold((0, 0), |(a, u), r| (a + r.accesses, u + r.unchecked));
    let code = if modules.is_empty() { vec![] } else { codegen::link_modules(modules, &kernels)? };

    let mut writer = ArtifactWriter::create(path)?;
    let mut constants = vec![];
    let mut places: Vec<file::Buffer> = vec![];
    let (mut inputs, mut outputs) = (0, 0);
    for buffer in &plan.buffers {
        let mut message = place(buffer, &mut writer, params, &mut constants)?;
        match &mut message.place {
            Some(file::Place::Input(i)) => (*i, inputs) = (inputs, inputs + 1),
            Some(file::Place::Output(i)) => (*i, outputs) = (outputs, outputs + 1),
            Some(file::Place::Constant(_) | file::Place::Arena(_)) | None => {}
        }
        places.push(message);
    }
    let arena_bytes = plan.arena_bytes.clone().unwrap_or(Dim::constant(0)).to_string();
    let launches = plan.steps.iter().filter(|s| matches!(s.action, Action::Launch { .. })).count();
    let entry = file::Entry {
        name: plan.name.clone(),
        inputs: ports(plan, true),
        outputs: ports(plan, false),
        buffers: places,
        body: Some(file::Block { steps: plan.steps.iter().map(step).collect() }),
        arena_bytes: arena_bytes.clone(),
        checks: plan.checks.iter().map(check).collect(),
    };
    let whole = file::Plan { entries: vec![entry], constants, kernels };
    let weights_bytes = writer.weights_bytes();
    selftest.into_iter().for_each(|test| writer.selftest(test));
    writer.finish(manifest(plan, model_hash), &whole, &code)?;
    Ok(Summary {
        kernels: plan.kernels.len(),
        launches,
        weights_bytes,
        code_bytes: code.len(),
        arena_bytes,
        accesses,
        unchecked,
    })
}

/// What the plan says of its kernels, and the code too.
fn kernels(plan: &Plan, lowered: &[Lowered], required: &[Requires]) -> Vec<file::Kernel> {
    let one = |(((symbol, _), l), r): (((&String, &Kernel), &Lowered), &Requires)| file::Kernel {
        symbol: symbol.clone(),
        writes: l.writes.clone(),
        params: l.params.len() as u32,
        scratch_bytes: l.scratch_bytes.clone(),
        class: format!("{:?}", l.class).to_lowercase(),
        requires: r.requires.clone(),
        indexes: r.indexes.clone(),
    };
    let named = plan.kernels.iter().map(|(symbol, kernel)| (symbol, kernel));
    named.zip(lowered).zip(required).map(one).collect()
}

fn manifest(plan: &Plan, model_hash: &str) -> file::Manifest {
    let mut manifest = file::Manifest::current(concat!("sardonyx ", env!("CARGO_PKG_VERSION")));
    manifest.variants = Variant::ALL.iter().map(|v| v.name().to_string()).collect();
    manifest.pipeline = crate::pipeline::pipeline();
    manifest.model_hash = model_hash.to_string();
    let symbols = plan.symbols.iter().map(|(name, s)| file::Symbol {
        name: name.clone(),
        kind: match s.kind {
            SymbolKind::Input => file::SymbolKind::Input as i32,
            SymbolKind::Data => file::SymbolKind::Data as i32,
        },
        lo: s.lo,
        hi: s.hi,
    });
    manifest.symbols = symbols.collect();
    manifest
}

fn check(c: &sardonyx_dialects::sdx::Equality) -> file::Check {
    file::Check { left: c.left.to_string(), right: c.right.to_string(), why: c.why.clone() }
}

fn ports(plan: &Plan, inputs: bool) -> Vec<file::Port> {
    let port = |(i, b): (usize, &Buffer)| {
        let (name, container) = match (b, inputs) {
            (Buffer::Input { name, container }, true) | (Buffer::Output { name, container }, false) => {
                (name, container)
            }
            _ => return None,
        };
        Some(file::Port {
            name: name.clone(),
            dtype: container.dtype.onnx_code(),
            dims: container.dims.iter().map(Dim::to_string).collect(),
            buffer: i as u32,
        })
    };
    plan.buffers.iter().enumerate().filter_map(port).collect()
}

/// A buffer's message; constants are written on the way.
fn place(
    buffer: &Buffer,
    writer: &mut ArtifactWriter,
    params: &ParamStore,
    constants: &mut Vec<file::Constant>,
) -> Result<file::Buffer> {
    let of = |c: &Container| sardonyx_passes::schedule::bytes(c).map(|b| b.to_string());
    let mut constant = |name: &str, c: &Container, offset: u64, end: u64| {
        let message = file::Constant {
            name: name.into(),
            dtype: c.dtype.onnx_code(),
            offset,
            bytes: end - offset,
            layout: c.layout.name(),
        };
        constants.push(message);
        file::Place::Constant(constants.len() as u32 - 1)
    };
    let (bytes, place) = match buffer {
        Buffer::Input { container, .. } => (of(container)?, file::Place::Input(0)),
        Buffer::Output { container, .. } => (of(container)?, file::Place::Output(0)),
        Buffer::Param { name, window, container } => {
            let tensor = params.get(name).ok_or_else(|| Error::defect(format!("the parameter `{name}` is gone")))?;
            let offset = match (window, &container.layout) {
                (Some(w), Layout::Panels { width }) => write_panels(writer, tensor, container, w, *width)?,
                _ => writer.constant(tensor.bytes())?,
            };
            (of(container)?, constant(name, container, offset, writer.weights_bytes()))
        }
        Buffer::Const { value, container } => {
            let offset = writer.constant(value.0.bytes())?;
            (of(container)?, constant("", container, offset, writer.weights_bytes()))
        }
        Buffer::Arena { bytes, offset } => {
            let offset = offset.as_ref().ok_or_else(|| Error::defect("memory is not planned"))?;
            (bytes.to_string(), file::Place::Arena(offset.to_string()))
        }
    };
    Ok(file::Buffer { bytes, place: Some(place) })
}

/// dst[p][k][j] = src[offset + k*stride_k + (width*p + j)*stride_n], a panel at a time.
fn write_panels(writer: &mut ArtifactWriter, t: &Tensor, c: &Container, w: &Window, width: usize) -> Result<u64> {
    let dims: Option<Vec<i64>> = c.dims.iter().map(Dim::as_const).collect();
    let Some([k, n]) = dims.as_deref() else { return Err(Error::defect("a packed constant is no constant matrix")) };
    let at = |row: i64, column: i64| {
        let element =
            w.offset.checked_add(row.checked_mul(w.stride_k)?)?.checked_add(column.checked_mul(w.stride_n)?)?;
        let start = usize::try_from(element).ok()?.checked_mul(4)?;
        t.bytes().get(start..start + 4)
    };
    let offset = writer.begin_constant()?;
    let mut panel = Vec::new();
    for first in (0..*n).step_by(width) {
        panel.clear();
        for row in 0..*k {
            for column in first..first + width as i64 {
                let element = if column < *n { at(row, column) } else { Some(&[0; 4][..]) };
                panel.extend_from_slice(
                    element.ok_or_else(|| Error::defect("a packed constant reads outside its source"))?,
                );
            }
        }
        writer.append(&panel)?;
    }
    Ok(offset)
}

fn step(step: &sardonyx_dialects::plan::Step) -> file::Step {
    let action = match &step.action {
        Action::Launch { kernel, buffers, params, grid } => file::Action::Launch(file::Launch {
            kernel: *kernel as u32,
            buffers: buffers.iter().map(|&b| b as u32).collect(),
            params: params.iter().map(Dim::to_string).collect(),
            grid: grid.to_string(),
            origins: step.origins.clone(),
        }),
        Action::Copy { from, to } => file::Action::Copy(file::Copy { from: *from as u32, to: *to as u32 }),
    };
    file::Step { action: Some(action) }
}
