//! host steps of an entry point  =>  checked: operands with content, their own result buffers, bodies whose ports fit
//!
//! The dimensions of a result are known only after the operation has run; the call checks them (`call/host.rs`).

use super::entry::{EntryReader, Flow};
use super::{Action, Entry, Host, Operand, Port, Program};
use sardonyx_base::host::{HostOp, left_out};
use sardonyx_base::plan::{self, malformed};
use sardonyx_base::{DType, Result};

impl EntryReader<'_> {
    pub fn check_host(&mut self, host: &Host, entry: &plan::Entry, flow: &mut Flow) -> Result<()> {
        let op = &host.call.op;
        if let Some(feature) = op.lacks() {
            return Err(left_out(op.name(), feature));
        }
        for arg in &host.args {
            flow.read_operand(arg, entry, self.stage)?;
            self.check_operand(arg)?;
        }
        if let Some(op) = op.exchange().filter(|op| op.mesh() >= self.program.mesh.len()) {
            return Err(malformed(format!("`{op}` is along an axis that the mesh has not")));
        }
        let n_args = op.n_args().unwrap_or(host.args.len());
        let (given, wanted) = ((host.args.len(), host.call.bodies.len()), (n_args, op.n_bodies()));
        if given != wanted {
            return Err(malformed(format!("(operands, bodies) of `{op}` are {given:?}, not {wanted:?}")));
        }
        let ranks: Vec<usize> = host.args.iter().map(|arg| arg.dims.len()).collect();
        let exchange = op.exchange().is_some();
        flow.come_to(host)?;
        self.stage += usize::from(!exchange);
        for (k, (result, value)) in host.call.results.iter().zip(&host.results).enumerate() {
            let (i, rank) = (result.index, value.dims.len());
            self.check_operand(value)?;
            if let Some((axis, symbol)) = result.binds.iter().find(|(axis, _)| *axis >= rank) {
                return Err(malformed(format!("`{symbol}` is bound by axis {axis} of {rank}")));
            }
            if !op.admits(i, &ranks, value.dtype, rank) {
                let found = format!("{} with {rank} dimensions", value.dtype);
                return Err(malformed(format!("result {i} of `{op}` is not {found}")));
            }
            if host.call.results[..k].iter().any(|other| other.index == i) {
                return Err(malformed(format!("result {i} of `{op}` is there twice")));
            }
            match exchange {
                true => flow.write(value.buffer, entry, self.stage)?,
                false => flow.make(value.buffer, entry)?,
            }
        }
        flow.go_from(host);
        Ok(())
    }

    fn check_operand(&self, operand: &Operand) -> Result<()> {
        operand.dims.iter().try_for_each(|dim| self.stage_of(dim, self.stage).map(drop))
    }
}

/// Checks that bodies are internal entry points without states, that they are further down in the list, which excludes
/// recursion, and that their ports fit the operands and results.
pub fn check_bodies(program: &Program, at: usize) -> Result<()> {
    for step in &program.entries[at].steps {
        let Action::Host(host) = &step.action else { continue };
        let op = &host.call.op;
        for (k, &body) in host.call.bodies.iter().enumerate() {
            let n = program.entries.len();
            let entry = program.entries.get(body).filter(|_| body > at);
            let entry = entry.ok_or_else(|| malformed(format!("`{op}` calls entry point {body} of {n}")))?;
            if !entry.internal || !entry.states.is_empty() {
                return Err(malformed(format!("`{op}` calls `{}`, which is for callers", entry.name)));
            }
            check_ports(host, k, entry)
                .map_err(|e| e.node(format!("body `{}` of {}", entry.name, step.origins.join(" + "))))?;
        }
    }
    Ok(())
}

/// Maximum nesting of bodies: each level takes stack frames in a call.
const DEPTH_MAX: usize = 32;

/// Checks that the nesting of every entry point is bounded. Bodies come after their callers in the list.
pub fn check_depth(program: &Program) -> Result<()> {
    let mut depths = vec![0; program.entries.len()];
    for (i, entry) in program.entries.iter().enumerate().rev() {
        let hosts =
            entry.steps.iter().filter_map(|s| if let Action::Host(host) = &s.action { Some(host) } else { None });
        depths[i] = hosts.flat_map(|host| &host.call.bodies).map(|&b| depths[b] + 1).max().unwrap_or(0);
        if depths[i] > DEPTH_MAX {
            return Err(malformed(format!("`{}` calls to a depth of more than {DEPTH_MAX}", entry.name)));
        }
    }
    Ok(())
}

type Kind = (DType, usize);

fn check_ports(host: &Host, body: usize, entry: &Entry) -> Result<()> {
    let args: Vec<Kind> = host.args.iter().map(|a| (a.dtype, a.dims.len())).collect();
    let few = || malformed(format!("`{}` has too few operands", host.call.op));
    let kinds = |ports: &[Port]| ports.iter().map(|p| (p.dtype, p.dims.len())).collect::<Vec<Kind>>();
    let (inputs, outputs) = (kinds(&entry.inputs), kinds(&entry.outputs));
    // Kinds of the body's inputs, and of the operation's results in the order of the operation.
    let (given, results) = match &host.call.op {
        HostOp::If { n_then } => {
            let (then, otherwise) = args.get(1..).and_then(|a| a.split_at_checked(*n_then)).ok_or_else(few)?;
            (if body == 0 { then.to_vec() } else { otherwise.to_vec() }, outputs)
        }
        HostOp::Loop { n_carried } => {
            let n = *n_carried;
            let carried = args.get(2..).and_then(|a| a.get(..n)).ok_or_else(few)?;
            let mut given = vec![(DType::I64, 0), (DType::Bool, 0)];
            given.extend_from_slice(&args[2..]);
            let wrong = || malformed(format!("its outputs are {outputs:?}, which `{}` cannot continue", host.call.op));
            let (goes_on, rest) = outputs.split_first().ok_or_else(wrong)?;
            let (next, stacked) = rest.split_at_checked(n).ok_or_else(wrong)?;
            if *goes_on != (DType::Bool, 0) || next != carried {
                return Err(wrong());
            }
            let stacked = stacked.iter().map(|(dtype, rank)| (*dtype, rank + 1));
            (given, next.iter().copied().chain(stacked).collect())
        }
        HostOp::NonZero | HostOp::Unique { .. } | HostOp::NonMaxSuppression { .. } => return Ok(()),
        HostOp::Array(_) | HostOp::Data(_) => return Ok(()),
        HostOp::Collective(_) | HostOp::Begin(_) | HostOp::Wait(_) => return Ok(()),
    };
    if given != inputs {
        return Err(malformed(format!("its inputs are {inputs:?}, the operands {given:?}")));
    }
    for (result, value) in host.call.results.iter().zip(&host.results) {
        let kind = (value.dtype, value.dims.len());
        if results.get(result.index) != Some(&kind) {
            return Err(malformed(format!("result {} is {kind:?}, the bodies give {results:?}", result.index)));
        }
    }
    Ok(())
}
