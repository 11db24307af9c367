//! host steps of an entry point  =>  checked: operands that hold something, results of their own, bodies that fit
//!
//! What a result's dimensions are is known when the operation has run; the call checks it (`call/host.rs`).

use super::entry::{EntryReader, Flow};
use super::verify::{broken, read_dtype};
use super::{Entry, Host, HostResult, Operand, Port, Program, Step};
use sardonyx_base::host::{HostOp, left_out};
use sardonyx_base::{DType, Result, plan};

impl EntryReader<'_> {
    pub fn read_host(&mut self, host: &plan::Host, out: &Entry, flow: &mut Flow) -> Result<Step> {
        let op = HostOp::parse(&host.op);
        let op = op.ok_or_else(|| broken(format!("this version knows no host operation `{}`", host.op)))?;
        if let Some(feature) = op.lacks() {
            return Err(left_out(op.name(), feature));
        }
        let mut args = vec![];
        for arg in &host.args {
            flow.read(arg.buffer, out, self.stage)?;
            args.push(self.read_operand(arg, self.stage)?);
        }
        let n_args = op.n_args().unwrap_or(args.len());
        if (args.len(), host.bodies.len()) != (n_args, op.n_bodies()) {
            let (given, wanted) = ((args.len(), host.bodies.len()), (n_args, op.n_bodies()));
            return Err(broken(format!("(operands, bodies) of `{op}` are {given:?}, not {wanted:?}")));
        }
        let ranks: Vec<usize> = args.iter().map(|arg| arg.dims.len()).collect();
        self.stage += 1;
        let mut results: Vec<HostResult> = vec![];
        for result in &host.results {
            let read = self.read_result(result)?;
            let (i, value) = (read.index, &read.value);
            if !op.admits(i, &ranks, value.dtype, value.dims.len()) {
                let found = format!("{} with {} dimensions", value.dtype, value.dims.len());
                return Err(broken(format!("result {i} of `{op}` is not {found}")));
            }
            if results.iter().any(|other| other.index == i) {
                return Err(broken(format!("result {i} of `{op}` is there twice")));
            }
            flow.make(value.buffer, out)?;
            results.push(read);
        }
        let bodies = host.bodies.iter().map(|&b| b as usize).collect();
        Ok(Step::Host(Host { op, args, results, bodies, origins: host.origins.clone() }))
    }

    fn read_operand(&self, operand: &plan::Operand, stage: usize) -> Result<Operand> {
        let dims = operand.dims.iter().map(|d| self.known(d, stage).map(|(dim, _)| dim)).collect::<Result<_>>()?;
        let dtype = read_dtype(operand.dtype)?;
        Ok(Operand { buffer: operand.buffer as usize, dtype, dims })
    }

    fn read_result(&self, result: &plan::HostResult) -> Result<HostResult> {
        let value = result.value.as_ref().ok_or_else(|| broken("a result without a value".into()))?;
        let value = self.read_operand(value, self.stage)?;
        let rank = value.dims.len();
        let bind = |bind: &plan::Binding| match (bind.axis as usize) < rank {
            // `bind_stages` has seen this step and found the symbol.
            true => Ok((bind.axis as usize, self.program.symbol_index[&bind.symbol])),
            false => Err(broken(format!("`{}` is bound by axis {} of {rank}", bind.symbol, bind.axis))),
        };
        let binds = result.binds.iter().map(bind).collect::<Result<_>>()?;
        Ok(HostResult { index: result.index as usize, value, binds })
    }
}

/// Bodies are internal entry points that come later, so that calls end; their ports fit the operands.
pub fn check_bodies(program: &Program, at: usize) -> Result<()> {
    for step in &program.entries[at].steps {
        let Step::Host(host) = step else { continue };
        for (k, &body) in host.bodies.iter().enumerate() {
            let n = program.entries.len();
            let entry = program.entries.get(body).filter(|_| body > at);
            let entry = entry.ok_or_else(|| broken(format!("`{}` calls entry point {body} of {n}", host.op)))?;
            if !entry.internal || !entry.states.is_empty() {
                return Err(broken(format!("`{}` calls `{}`, which is for callers", host.op, entry.name)));
            }
            check_ports(host, k, entry)
                .map_err(|e| e.node(format!("body `{}` of {}", entry.name, host.origins.join(" + "))))?;
        }
    }
    Ok(())
}

/// Bodies inside each other: a call takes a stack frame for each.
const DEPTH_MAX: usize = 32;

/// The call depth of every entry point is bounded. Those that are called come later.
pub fn check_depth(program: &Program) -> Result<()> {
    let mut depths = vec![0; program.entries.len()];
    for (i, entry) in program.entries.iter().enumerate().rev() {
        let hosts = entry.steps.iter().filter_map(|s| if let Step::Host(host) = s { Some(host) } else { None });
        depths[i] = hosts.flat_map(|host| &host.bodies).map(|&b| depths[b] + 1).max().unwrap_or(0);
        if depths[i] > DEPTH_MAX {
            return Err(broken(format!("`{}` calls to a depth of more than {DEPTH_MAX}", entry.name)));
        }
    }
    Ok(())
}

type Kind = (DType, usize);

fn check_ports(host: &Host, body: usize, entry: &Entry) -> Result<()> {
    let args: Vec<Kind> = host.args.iter().map(|a| (a.dtype, a.dims.len())).collect();
    let few = || broken(format!("`{}` has too few operands", host.op));
    let kinds = |ports: &[Port]| ports.iter().map(|p| (p.dtype, p.dims.len())).collect::<Vec<Kind>>();
    let (inputs, outputs) = (kinds(&entry.inputs), kinds(&entry.outputs));
    // Those of the body: what it is given, and the results by the operation's numbers.
    let (given, results) = match &host.op {
        HostOp::If { n_then } => {
            let (then, otherwise) = args.get(1..).and_then(|a| a.split_at_checked(*n_then)).ok_or_else(few)?;
            (if body == 0 { then.to_vec() } else { otherwise.to_vec() }, outputs)
        }
        HostOp::Loop { n_carried } => {
            let n = *n_carried;
            let carried = args.get(2..).and_then(|a| a.get(..n)).ok_or_else(few)?;
            let mut given = vec![(DType::I64, 0), (DType::Bool, 0)];
            given.extend_from_slice(&args[2..]);
            let wrong = || broken(format!("its outputs are {outputs:?}, which `{}` cannot continue", host.op));
            let (goes_on, rest) = outputs.split_first().ok_or_else(wrong)?;
            let (next, stacked) = rest.split_at_checked(n).ok_or_else(wrong)?;
            if *goes_on != (DType::Bool, 0) || next != carried {
                return Err(wrong());
            }
            let stacked = stacked.iter().map(|(dtype, rank)| (*dtype, rank + 1));
            (given, next.iter().copied().chain(stacked).collect())
        }
        HostOp::NonZero | HostOp::Unique { .. } | HostOp::NonMaxSuppression { .. } | HostOp::Data(_) => return Ok(()),
    };
    if given != inputs {
        return Err(broken(format!("its inputs are {inputs:?}, the operands {given:?}")));
    }
    let kind = |r: &HostResult| (r.value.dtype, r.value.dims.len());
    match host.results.iter().find(|r| results.get(r.index) != Some(&kind(r))) {
        Some(r) => Err(broken(format!("result {} is {:?}, the bodies give {results:?}", r.index, kind(r)))),
        None => Ok(()),
    }
}
