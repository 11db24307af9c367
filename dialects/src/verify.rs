//! operation  =>  ok, or the rule that it breaks: the verifier for the operations of all levels

use crate::mlir::Operation;
use crate::sdx;
use crate::sdx::graph::TensorType;

pub fn verify(op: Operation) -> Result<(), String> {
    let name = op.name();
    if name.starts_with("sdx.") {
        return verify_sdx(op);
    }
    if name == "flow.kernel" {
        return crate::flow::ir::verify_kernel(op);
    }
    if name == "flow.param" {
        return crate::flow::ir::read_source(op).map(|_| ());
    }
    Ok(())
}

fn verify_sdx(op: Operation) -> Result<(), String> {
    let meaning = sdx::ir::read_op(op)?;
    let shaped = |t: crate::mlir::Type| sdx::ir::tensor_type(t).map_err(|e| e.message);
    let args: Vec<TensorType> = op.operands().iter().map(|v| shaped(v.ty())).collect::<Result<_, _>>()?;
    let declared = shaped(op.results()[0].ty())?;
    let inferred = sdx::infer::result_type(&meaning, &args.iter().collect::<Vec<_>>(), Some(&declared))?;
    match inferred == declared {
        true => Ok(()),
        false => Err(format!("the result is {inferred}, not {declared}")),
    }
}
