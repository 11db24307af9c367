//! jobs  =>  the inputs of one call;  its outputs  =>  the outputs of each job, bit for bit as if computed alone

use crate::ports::Ports;
use crate::queue::{Job, Limits};
use bytes::Bytes;
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_format::tensor_io::Synthetic;
use sardonyx_runtime::{Model, Outputs, Session, SessionOptions};

/// How the jobs of a model are stacked into one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stacking {
    pub limits: Limits,
    /// Whether rows are padded with zeros along the second dimension; the model skips the padding.
    pub pads: bool,
}

impl Stacking {
    /// Returns how jobs can be stacked; `None` if the shapes or the results of the model do not allow it. To test this,
    /// pairs of synthetic jobs are computed together and alone; no bit may differ.
    pub fn probe(model: &Model, ports: &Ports, options: &SessionOptions, positions_max: usize) -> Option<Stacking> {
        let symbol = ports.stacked.as_ref()?;
        let rows = symbol.hi.map_or(usize::MAX, |hi| usize::try_from(hi).unwrap_or(0));
        let stacking = |pads| Stacking { limits: Limits { rows, positions: positions_max }, pads };
        if rows < 2 {
            return None;
        }
        let is_exact = |pads| is_exact(model, ports, options, pads).unwrap_or(false);
        match can_pad(model, ports) && is_exact(true) {
            true => Some(stacking(true)),
            false => is_exact(false).then(|| stacking(false)),
        }
    }

    /// Returns whether two jobs can be computed by one call.
    pub fn fits(&self, a: &Job, b: &Job) -> bool {
        let same = |(a, b): (&Tensor, &Tensor)| a.dims().get(1..) == b.dims().get(1..);
        self.pads || a.inputs.iter().zip(&b.inputs).all(same)
    }
}

/// Returns whether padding with zeros should change no result: the model computes only the positions that its mask
/// keeps, and all its inputs are sequences of integers.
fn can_pad(model: &Model, ports: &Ports) -> bool {
    let inputs = ports.inputs();
    let is_packed = model.program().symbols.iter().any(|symbol| symbol.kind == sardonyx_base::plan::SymbolKind::Data);
    let has_mask = inputs.iter().any(|port| port.name == "attention_mask");
    let Some(length) = inputs[0].dims.get(1).and_then(|dim| dim.as_name()) else { return false };
    let is_sequence = |dims: &[sardonyx_base::Dim]| dims.len() == 2 && dims[1].as_name() == Some(length);
    let cuts = |dims: &[sardonyx_base::Dim]| {
        let is_free = |dims: &[sardonyx_base::Dim]| dims.iter().all(|dim| !dim.names().contains(length));
        is_free(dims) || (dims.get(1).and_then(|d| d.as_name()) == Some(length) && is_free(&dims[2..]))
    };
    let all_inputs = inputs.iter().all(|port| port.dtype.is_int() && is_sequence(&port.dims));
    is_packed && has_mask && all_inputs && ports.outputs().all(|port| cuts(&port.dims))
}

/// Returns whether the second dimension of an output is the length of the padded rows.
fn is_by_position(ports: &Ports, output: &str) -> bool {
    let length = ports.inputs()[0].dims.get(1).and_then(|dim| dim.as_name());
    let port = ports.outputs().find(|port| port.name == output);
    length.is_some() && port.and_then(|port| port.dims.get(1)?.as_name()) == length
}

/// Returns the inputs of one call that computes all jobs.
pub fn stack(inputs: &[&[Tensor]], pads: bool) -> Result<Vec<Tensor>> {
    let [first, rest @ ..] = inputs else { return Err(Error::defect("a call without a job")) };
    if rest.is_empty() {
        return Ok(first.to_vec());
    }
    (0..first.len()).map(|port| join(&inputs.iter().map(|inputs| &inputs[port]).collect::<Vec<_>>(), pads)).collect()
}

fn join(parts: &[&Tensor], pads: bool) -> Result<Tensor> {
    let rows = parts.iter().map(|part| part.dims()[0]).sum();
    let mut dims = parts[0].dims().to_vec();
    dims[0] = rows;
    let mut data = Vec::new();
    if !pads {
        parts.iter().for_each(|part| data.extend_from_slice(part.bytes()));
        return Tensor::new(parts[0].dtype(), dims, aligned(data));
    }
    dims[1] = parts.iter().map(|part| part.dims()[1]).max().unwrap_or(0);
    let width = dims[1] * parts[0].dtype().bytes();
    data.reserve_exact(rows * width);
    for part in parts {
        let bytes = (part.dims()[1] * part.dtype().bytes()).max(1);
        for row in part.bytes().chunks(bytes) {
            let end = data.len() + width;
            data.extend_from_slice(row);
            data.resize(end, 0);
        }
        if part.dims()[1] == 0 {
            data.resize(data.len() + part.dims()[0] * width, 0);
        }
    }
    Tensor::new(parts[0].dtype(), dims, aligned(data))
}

/// Wraps the bytes of a stacked tensor. In practice the allocator aligns them for all element types; a call would copy
/// an unaligned tensor.
fn aligned(data: Vec<u8>) -> Bytes {
    data.into()
}

/// Size of a job within its call: the number of its rows, and the unpadded length of each row.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub rows: usize,
    pub length: usize,
}

impl Share {
    pub fn from_inputs(inputs: &[Tensor]) -> Share {
        let dims = inputs.first().map(Tensor::dims).unwrap_or_default();
        Share { rows: dims.first().copied().unwrap_or(0), length: dims.get(1).copied().unwrap_or(0) }
    }
}

/// Cuts the outputs of a call into those of each job, and removes padding.
pub fn cut(outputs: Outputs, shares: &[Share], ports: &Ports, pads: bool) -> Result<Vec<Vec<(String, Tensor)>>> {
    if shares.len() == 1 {
        return Ok(vec![outputs.into()]);
    }
    let mut of_jobs: Vec<Vec<(String, Tensor)>> = shares.iter().map(|_| vec![]).collect();
    for (name, tensor) in outputs {
        let cuts = pads && is_by_position(ports, &name);
        let row_bytes = tensor.bytes().len() / tensor.dims()[0].max(1);
        let mut at = 0;
        for (share, own) in shares.iter().zip(&mut of_jobs) {
            let end = at + share.rows * row_bytes;
            let mut dims = tensor.dims().to_vec();
            dims[0] = share.rows;
            let mut bytes = tensor.bytes().slice(at..end);
            if cuts && share.length < dims[1] {
                let kept = row_bytes / dims[1].max(1) * share.length;
                bytes =
                    bytes.chunks(row_bytes.max(1)).flat_map(|row| &row[..kept]).copied().collect::<Vec<u8>>().into();
                dims[1] = share.length;
            }
            own.push((name.clone(), Tensor::new(tensor.dtype(), dims, bytes)?));
            at = end;
        }
    }
    Ok(of_jobs)
}

/// `(rows, length)` of the synthetic jobs of each test: first with enough rows that kernels use other tiles than for
/// one row, then with lengths beyond what a kernel computes at once. There are few tests, because every load of a model
/// runs them. Without padding, the first length is used for both jobs.
static PAIRS: [[(i64, i64); 2]; 2] = [[(1, 3), (8, 2)], [(1, 37), (1, 21)]];

/// Returns whether jobs computed together give the same bits as alone, or the error of a model that rejects the
/// synthetic inputs.
fn is_exact(model: &Model, ports: &Ports, options: &SessionOptions, pads: bool) -> Result<bool> {
    let session = model.session(options)?;
    for [first, second] in PAIRS {
        let length = if pads { second.1 } else { first.1 };
        // The seeds differ, because with equal values an influence of one job on the other would go unnoticed.
        let jobs = [synthetic_inputs(ports, first.0, first.1, 1)?, synthetic_inputs(ports, second.0, length, 2)?];
        if !is_exact_for(&session, ports, &jobs, pads)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_exact_for(session: &Session, ports: &Ports, jobs: &[Vec<Tensor>], pads: bool) -> Result<bool> {
    let run = |inputs: &[Tensor]| {
        let named: Vec<(&str, Tensor)> =
            ports.inputs().iter().zip(inputs).map(|(port, tensor)| (port.name.as_str(), tensor.clone())).collect();
        session.run_entry(&ports.entry.name, &named)
    };
    let alone: Vec<Vec<(String, Tensor)>> = jobs.iter().map(|job| run(job).map(Into::into)).collect::<Result<_>>()?;
    let views: Vec<&[Tensor]> = jobs.iter().map(Vec::as_slice).collect();
    let shares: Vec<Share> = jobs.iter().map(|job| Share::from_inputs(job)).collect();
    let together = cut(run(&stack(&views, pads)?)?, &shares, ports, pads)?;
    Ok(together == alone)
}

/// Returns synthetic inputs with `rows` rows, but few enough that another row can be stacked; other symbols are as
/// close to `length` as their range allows.
fn synthetic_inputs(ports: &Ports, rows: i64, length: i64, seed: u64) -> Result<Vec<Tensor>> {
    let stacked = ports.stacked.as_ref().map(|symbol| symbol.name.as_str());
    let size = |name: &str| {
        let symbol = ports.entry.symbols.iter().find(|symbol| symbol.name == name)?;
        let hi = symbol.hi.unwrap_or(i64::MAX);
        let wanted = if Some(name) == stacked { rows.min(hi - 1) } else { length.min(hi) };
        Some(wanted.max(symbol.lo))
    };
    let tensor = |(at, port): (usize, &sardonyx_runtime::Port)| {
        let dims: Result<Vec<usize>> = port.dims.iter().map(|dim| Ok(dim.eval_named(&size)?.max(0) as usize)).collect();
        let dims = dims?;
        match port.name.as_str() {
            "attention_mask" if port.dtype == DType::I64 => {
                let n = dims.iter().product();
                Ok(Tensor::from_vec(dims, vec![1i64; n]))
            }
            _ => Synthetic::Random.tensor(port.dtype, dims, at as u64 * 100 + seed),
        }
    };
    ports.inputs().iter().enumerate().map(tensor).collect()
}
