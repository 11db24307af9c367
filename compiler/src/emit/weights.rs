//! parameters and values of plans  =>  constants of a file, each stored once; with a mesh, also one part for each rank

use crate::prepare::Store;
use sardonyx_base::dim::Symbol;
use sardonyx_base::encoding::strided;
use sardonyx_base::plan as file;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::flow::{Container, Layout, Source, Window};
use sardonyx_dialects::interp;
use sardonyx_dialects::plan::{Buffer, Plan};
use sardonyx_dialects::sdx::{Axis, coordinates};
use sardonyx_format::ArtifactWriter;
use std::collections::HashMap;

/// The constants of the artifact, each stored once however many plans and entry points use it.
pub struct Weights<'a> {
    pub writer: ArtifactWriter,
    params: Store<'a>,
    mesh: Vec<Axis>,
    stored: Vec<file::Constant>,
    /// Index into `stored` of a constant, by its content.
    places: HashMap<Stored, usize>,
    /// The constants of the plan that is being written, as indices into `stored`.
    used: Vec<usize>,
}

#[derive(PartialEq, Eq, Hash)]
enum Stored {
    /// A parameter; if it is packed or encoded, also its window, dimensions and storage.
    Param(Box<Source>, Option<(Option<Window>, Vec<Dim>, String)>),
    Value(DType, Vec<u8>),
    /// A constant that differs between ranks: for each rank, the index into `stored`.
    Parts(Vec<usize>),
}

impl Weights<'_> {
    pub fn new<'a>(writer: ArtifactWriter, params: Store<'a>, mesh: Vec<Axis>) -> Weights<'a> {
        Weights { writer, params, mesh, stored: vec![], places: HashMap::new(), used: vec![] }
    }

    /// The constants of the plan that was just written.
    pub fn of_plan(&mut self) -> Vec<file::Constant> {
        std::mem::take(&mut self.used).into_iter().map(|at| self.stored[at].clone()).collect()
    }

    /// Returns the size and location of a buffer. A constant is first written to the file, unless the file has it.
    pub fn place(&mut self, buffer: &Buffer) -> Result<file::Buffer> {
        let of = sardonyx_passes::schedule::bytes;
        let (bytes, place) = match buffer {
            Buffer::Input { container, .. } => (of(container)?, file::Place::Input(0)),
            Buffer::Output { container, .. } => (of(container)?, file::Place::Output(0)),
            Buffer::Param { source, window, container } => {
                let of_ranks = if source.parts.is_empty() { vec![vec![]] } else { coordinates(&self.mesh) };
                let mut at = vec![];
                for rank in &of_ranks {
                    at.push(self.stored_part(source, window, container, rank)?);
                }
                let i = self.parts(at, container);
                (self.bytes(i, container)?, file::Place::Constant(i))
            }
            Buffer::Const { value, container } => {
                let value = laid_out(&value.0, &container.layout)?;
                let bytes = value.bytes();
                let stored = Stored::Value(value.dtype(), bytes.to_vec());
                let at = self.stored(stored, "", container, |weights| weights.writer.constant(bytes))?;
                let i = self.used(at);
                (self.bytes(i, container)?, file::Place::Constant(i))
            }
            Buffer::Arena { bytes, offset } => {
                let offset = offset.as_ref().ok_or_else(|| Error::defect("memory is not planned"))?;
                (bytes.clone(), file::Place::Arena(offset.clone()))
            }
            Buffer::Value { container } => (of(container)?, file::Place::Value),
        };
        Ok(file::Buffer { bytes, place })
    }

    /// Size of a constant's buffer; opaque values have the size of their stored bytes.
    fn bytes(&self, i: usize, container: &Container) -> Result<Dim> {
        match container.dtype.is_opaque() {
            true => Ok(Dim::constant(self.stored[self.used[i]].bytes as i64)),
            false => sardonyx_passes::schedule::bytes(container),
        }
    }

    /// Stores the parts that belong to one rank next to each other, so that a rank reads a single range of the file.
    pub fn store_parts<'p>(&mut self, plans: impl Iterator<Item = &'p Plan> + Clone) -> Result<()> {
        for rank in coordinates(&self.mesh) {
            for buffer in plans.clone().flat_map(|plan| &plan.entries).flat_map(|entry| &entry.buffers) {
                match buffer {
                    Buffer::Param { source, window, container } if !source.parts.is_empty() => {
                        self.stored_part(source, window, container, &rank)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Index into `stored` of the part of a parameter that belongs to a rank.
    fn stored_part(
        &mut self,
        source: &Source,
        window: &Option<Window>,
        container: &Container,
        rank: &[usize],
    ) -> Result<usize> {
        let (source, container) = of_rank(source, container, &self.mesh, rank);
        let lies = || (window.clone(), container.dims.clone(), container.storage());
        let packed = (window.is_some() || !container.is_plain()).then(lies);
        let key = Stored::Param(Box::new(source.clone()), packed);
        self.stored(key, &self.name(&source), &container, |weights| weights.param(&source, window.as_ref(), &container))
    }

    /// Name of a constant: the names of the parameters that it is made of.
    fn name(&self, source: &Source) -> String {
        let one = |name: &String| match self.params.prepared.get(name) {
            Some(program) => format!("made of {}", program.made_of().join(", ")),
            None => name.clone(),
        };
        source.names.iter().map(one).collect::<Vec<_>>().join(" + ")
    }

    /// Index in the plan of a constant; `at` has the index into `stored` of its part for each rank. If all ranks have
    /// the same part, it is a common constant.
    fn parts(&mut self, at: Vec<usize>, c: &Container) -> usize {
        if at.iter().all(|part| *part == at[0]) {
            return self.used(at[0]);
        }
        let part = |i: &usize| {
            let file::Constant { offset, bytes, blake3, .. } = self.stored[*i].clone();
            file::Part { offset, bytes, blake3 }
        };
        let parts: Vec<file::Part> = at.iter().map(part).collect();
        let name = self.stored[at[0]].name.clone();
        let key = Stored::Parts(at);
        let known = self.places.get(&key).copied();
        let at = known.unwrap_or_else(|| {
            let layout = c.storage();
            self.stored.push(file::Constant {
                name,
                dtype: c.dtype,
                offset: 0,
                bytes: 0,
                layout,
                parts,
                blake3: String::new(),
            });
            self.places.insert(key, self.stored.len() - 1);
            self.stored.len() - 1
        });
        self.used(at)
    }

    /// Index in the plan of a stored constant.
    fn used(&mut self, at: usize) -> usize {
        let known = self.used.iter().position(|used| *used == at);
        known.unwrap_or_else(|| {
            self.used.push(at);
            self.used.len() - 1
        })
    }

    /// Index of a constant in `stored`; `write` writes it if it is not stored yet.
    fn stored(
        &mut self,
        stored: Stored,
        name: &str,
        c: &Container,
        write: impl FnOnce(&mut Self) -> Result<u64>,
    ) -> Result<usize> {
        if let Some(at) = self.places.get(&stored) {
            return Ok(*at);
        }
        let offset = write(self)?;
        self.stored.push(file::Constant {
            name: name.into(),
            dtype: c.dtype,
            offset,
            bytes: self.writer.weights_bytes() - offset,
            layout: c.storage(),
            parts: vec![],
            blake3: self.writer.constant_hash(),
        });
        self.places.insert(stored, self.stored.len() - 1);
        Ok(self.stored.len() - 1)
    }

    fn param(&mut self, source: &Source, window: Option<&Window>, container: &Container) -> Result<u64> {
        let tensor = interp::joined(source, &self.params)?;
        let Some(window) = window else {
            return self.writer.constant(laid_out(&tensor, &container.layout)?.bytes());
        };
        write_matrix(&mut self.writer, &tensor, container, window)
    }
}

/// The part of a parameter that belongs to a rank, with the rank's coordinates substituted.
fn of_rank(source: &Source, container: &Container, mesh: &[Axis], rank: &[usize]) -> (Source, Container) {
    let coordinate = |symbol: &Symbol| {
        let at = mesh.iter().position(|axis| *symbol == *axis.symbol)?;
        rank.get(at).map(|n| Dim::constant(*n as i64))
    };
    let (mut source, mut container) = (source.clone(), container.clone());
    for part in source.parts.iter_mut().flatten() {
        part.start = part.start.substitute(&coordinate);
        part.len = part.len.substitute(&coordinate);
    }
    container.dims.iter_mut().for_each(|d| *d = d.substitute(&coordinate));
    (source, container)
}

/// The elements in the order in which they are stored in memory.
fn laid_out(t: &Tensor, layout: &Layout) -> Result<Tensor> {
    match layout {
        Layout::Order(order) => interp::transposed(t, order),
        Layout::RowMajor | Layout::Capacity { .. } => Ok(t.clone()),
    }
}

/// Writes the matrix of the elements src[offset + i*stride_k + j*stride_n] in the container's type and encoding.
fn write_matrix(writer: &mut ArtifactWriter, t: &Tensor, c: &Container, w: &Window) -> Result<u64> {
    let dims: Option<Vec<i64>> = c.dims.iter().map(Dim::as_const).collect();
    let (Some([k, n]), Layout::RowMajor) = (dims.as_deref(), &c.layout) else {
        return Err(Error::defect("a packed constant is no constant matrix in rows"));
    };
    let converted: fn(&[u8], &mut [u8]) = match (t.dtype(), c.dtype) {
        (from, to) if from == to => |elements, out| out.copy_from_slice(elements),
        (DType::F32, DType::BF16) => |elements, out| {
            for (wide, out) in elements.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
                *out = half::bf16::from_f32(f32::from_le_bytes(*wide)).to_le_bytes();
            }
        },
        (DType::F16, DType::F32) => |elements, out| {
            for (narrow, out) in elements.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
                *out = half::f16::from_le_bytes(*narrow).to_f32().to_le_bytes();
            }
        },
        (from, to) => return Err(Error::defect(format!("a parameter of {from} is not packed as {to}"))),
    };
    let width = t.dtype().bytes();
    let mut elements = vec![];
    let row = &mut |row: i64, column: i64, out: &mut [u8]| {
        elements.resize(out.len() / c.dtype.bytes() * width, 0);
        let start = || w.row(row)?.checked_add(column.checked_mul(w.stride_n)?);
        start()
            .and_then(|start| strided(t.bytes(), width, start, w.stride_n, &mut elements))
            .ok_or_else(|| Error::defect("a packed constant reads outside its source"))?;
        converted(&elements, out);
        Ok(())
    };
    let offset = writer.begin_constant()?;
    c.encoding.encode(c.dtype, [*k, *n], row, &mut |part| writer.append(part))?;
    Ok(offset)
}
