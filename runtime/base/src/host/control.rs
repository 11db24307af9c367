//! If, Loop  =>  calls of their bodies

use super::{Budget, Collective, alone, unfit};
use crate::tensor::element_count;
use crate::{DType, Error, Result, Tensor};

/// Runs the entry points that an operation calls, and exchanges data with other ranks.
pub trait Bodies {
    /// Runs body number `at`. Returns its outputs, in the order of its output ports.
    fn run(&mut self, at: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>>;

    /// Called before each iteration of a loop, with the number of bytes that the loop has stacked so far. Errors: E0202
    /// for too many iterations, E0305 past the deadline, E0306 if cancelled.
    fn check(&self, stacked: usize) -> Result<()>;

    /// The result of a collective, given this rank's operand. Errors: E0407 if there are no other ranks.
    fn exchange(&mut self, op: &Collective, _operand: &Tensor) -> Result<Tensor> {
        Err(alone(op))
    }
}

/// Element type and dimensions of a result; `None` if the result is not used. A dimension is `None` if it is not known
/// before the operation runs.
pub type Wanted = Option<(DType, Vec<Option<usize>>)>;

fn condition(t: &Tensor) -> Result<bool> {
    let one = (t.len() == 1 && t.dtype() == DType::Bool).then(|| t.get_f64(0)).flatten();
    Ok(one.ok_or_else(|| unfit(format!("a condition is one bool, not {} {:?}", t.dtype(), t.dims())))? != 0.0)
}

pub fn run_if(n_then: usize, args: &[Tensor], bodies: &mut dyn Bodies) -> Result<Vec<Tensor>> {
    let short = || Error::defect("an If has too few operands");
    let (first, rest) = args.split_first().ok_or_else(short)?;
    let (then, otherwise) = rest.split_at_checked(n_then).ok_or_else(short)?;
    match condition(first)? {
        true => bodies.run(0, then.to_vec()),
        false => bodies.run(1, otherwise.to_vec()),
    }
}

pub fn run_loop(
    n_carried: usize,
    args: &[Tensor],
    wanted: &[Wanted],
    bodies: &mut dyn Bodies,
    budget: &Budget,
) -> Result<Vec<Tensor>> {
    let short = || Error::defect("a Loop has too few operands or results");
    let ([trips, start], rest) = args.split_first_chunk::<2>().map(|(a, b)| (a.clone(), b)).ok_or_else(short)?;
    let (initial, captured) = rest.split_at_checked(n_carried).ok_or_else(short)?;
    let trips = (trips.len() == 1).then(|| trips.get_i64(0)).flatten();
    let trips = trips.ok_or_else(|| unfit("a trip count is one integer".into()))?;
    let mut go_on = condition(&start)?;
    let mut carried = initial.to_vec();
    let mut stacks: Vec<Stack> = vec![];
    // The initial values are operands, whose bytes are not counted here.
    let mut carried_bytes = 0;
    let mut i = 0;
    while go_on && i < trips {
        budget.work(1)?;
        bodies.check(stacks.iter().map(|stack| stack.bytes.len()).sum())?;
        let mut inputs = vec![Tensor::scalar(i), Tensor::from_vec(vec![], vec![go_on])];
        inputs.append(&mut carried);
        inputs.extend_from_slice(captured);
        let mut outputs = bodies.run(0, inputs)?.into_iter();
        go_on = condition(&outputs.next().ok_or_else(short)?)?;
        carried = outputs.by_ref().take(n_carried).collect();
        if carried.len() < n_carried {
            return Err(short());
        }
        budget.give(carried_bytes);
        carried_bytes = carried.iter().map(|value| value.bytes().len()).sum();
        budget.take(carried_bytes)?;
        for (k, part) in outputs.enumerate() {
            match stacks.get_mut(k) {
                Some(stack) => stack.push(&part, budget)?,
                None => stacks.push(Stack::new(&part, budget)?),
            }
        }
        i += 1;
    }
    let mut results = carried;
    if i == 0 {
        results.extend(wanted.iter().skip(n_carried).map(nothing).collect::<Result<Vec<_>>>()?);
    }
    for stack in stacks {
        results.push(stack.finish()?);
    }
    Ok(results)
}

/// The stacked result of a loop without iterations: its first dimension and all unknown dimensions are 0.
fn nothing(wanted: &Wanted) -> Result<Tensor> {
    let Some((dtype, dims)) = wanted else { return Ok(Tensor::zeros(DType::I64, vec![0])) };
    let dims = dims.iter().enumerate().map(|(i, d)| if i == 0 { 0 } else { d.unwrap_or(0) });
    Tensor::new(*dtype, dims.collect(), Default::default())
}

/// Tensors of the same shape, stacked along a new first dimension.
struct Stack {
    dtype: DType,
    dims: Vec<usize>,
    bytes: Vec<u8>,
    count: usize,
}

impl Stack {
    fn new(first: &Tensor, budget: &Budget) -> Result<Stack> {
        let bytes = budget.copied(first.bytes())?;
        Ok(Stack { dtype: first.dtype(), dims: first.dims().to_vec(), bytes, count: 1 })
    }

    fn push(&mut self, next: &Tensor, budget: &Budget) -> Result<()> {
        if next.dims() != self.dims || next.dtype() != self.dtype {
            let (was, is) = (&self.dims, next.dims());
            return Err(unfit(format!("a loop stacks {was:?}, and {is:?} in turn {}", self.count)));
        }
        budget.append(&mut self.bytes, next.bytes())?;
        self.count += 1;
        Ok(())
    }

    fn finish(self) -> Result<Tensor> {
        let dims: Vec<usize> = [self.count].into_iter().chain(self.dims).collect();
        element_count(&dims).ok_or_else(|| Error::user("E0202", "what a loop stacks is too large"))?;
        Tensor::new(self.dtype, dims, self.bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that carries the sum of the carried and the captured value, and stacks twice this sum. The loop continues
    /// while the sum is below 10.
    struct Sum;

    impl Bodies for Sum {
        fn run(&mut self, _: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
            let number = |i: usize| inputs[i].get_i64(0).unwrap();
            let sum = number(2) + number(3);
            Ok(vec![Tensor::from_vec(vec![], vec![sum < 10]), Tensor::scalar(sum), Tensor::scalar(2 * sum)])
        }

        fn check(&self, _: usize) -> Result<()> {
            Ok(())
        }
    }

    fn run(trips: i64, start: bool) -> Vec<Tensor> {
        let start = Tensor::from_vec(vec![], vec![start]);
        let args = [Tensor::scalar(trips), start, Tensor::scalar(0i64), Tensor::scalar(4i64)];
        let wanted = [Some((DType::I64, vec![])), Some((DType::I64, vec![None]))];
        run_loop(1, &args, &wanted, &mut Sum, &Budget::unlimited()).unwrap()
    }

    #[test]
    fn a_loop_ends_by_its_count_or_by_its_condition() {
        let numbers = |t: &Tensor| t.to_vec::<i64>().unwrap();
        for (trips, sum, stacked) in [(2, 8, &[8, 16][..]), (9, 12, &[8, 16, 24]), (0, 0, &[])] {
            let out = run(trips, true);
            assert_eq!((numbers(&out[0]), numbers(&out[1])), (vec![sum], stacked.to_vec()));
        }
        assert_eq!(run(5, false)[1].dims(), [0]);
    }

    #[test]
    fn operands_that_are_missing_are_no_panic() {
        assert!(run_loop(3, &[Tensor::scalar(1i64)], &[], &mut Sum, &Budget::unlimited()).is_err());
        assert!(run_if(2, &[Tensor::from_vec(vec![], vec![true])], &mut Sum).is_err());
    }
}
