//! sequences and optionals: constructed, indexed, split and joined on the host

use super::text::places;
use super::{Budget, numbers, unfit};
use crate::tensor::element_count;
use crate::{DType, Error, Result, Tensor, Value};

fn sequence(t: &Tensor, budget: &Budget) -> Result<Vec<Value>> {
    Value::from_tensor_within(t, budget)?.into_sequence()
}

/// Resolves a position that may count from the end. The result is below `n`, or at most `n` if `inclusive`, as for
/// insertion.
fn position(t: &Tensor, n: usize, inclusive: bool) -> Result<usize> {
    let one = (t.len() == 1).then(|| t.get_i64(0)).flatten();
    let at = one.ok_or_else(|| unfit(format!("a position is one integer, not {} {:?}", t.dtype(), t.dims())))?;
    let from_start = if at < 0 { at.checked_add(n as i64) } else { Some(at) };
    let inside = |at: &usize| *at < n || (inclusive && *at == n);
    from_start
        .and_then(|at| usize::try_from(at).ok())
        .filter(inside)
        .ok_or_else(|| unfit(format!("the position {at} is outside a sequence of {n}")))
}

pub fn construct(args: &[Tensor], budget: &Budget) -> Result<Tensor> {
    let values = budget.collect(args.len(), |i| Value::from_tensor_within(&args[i], budget))?;
    Value::Sequence(values).into_tensor_within(budget)
}

pub fn at(of: &Tensor, at: &Tensor, budget: &Budget) -> Result<Tensor> {
    let mut values = sequence(of, budget)?;
    let at = position(at, values.len(), false)?;
    values.swap_remove(at).into_tensor_within(budget)
}

/// Inserts a value before the position, or at the end if no position is given.
pub fn insert(into: &Tensor, value: &Tensor, at: Option<&Tensor>, budget: &Budget) -> Result<Tensor> {
    let mut values = sequence(into, budget)?;
    let at = at.map_or(Ok(values.len()), |at| position(at, values.len(), true))?;
    let value = Value::from_tensor_within(value, budget)?;
    budget.push(&mut values, value)?;
    values[at..].rotate_right(1);
    Value::Sequence(values).into_tensor_within(budget)
}

/// Erases the value at the position, or the last value if no position is given.
pub fn erase(from: &Tensor, at: Option<&Tensor>, budget: &Budget) -> Result<Tensor> {
    let mut values = sequence(from, budget)?;
    let last = values.len().checked_sub(1).ok_or_else(|| unfit("nothing is in the sequence to erase".into()));
    let at = at.map_or(last, |at| position(at, values.len(), false))?;
    values.remove(at);
    Value::Sequence(values).into_tensor_within(budget)
}

pub fn length(of: &Tensor, budget: &Budget) -> Result<Tensor> {
    Ok(numbers(vec![], vec![sequence(of, budget)?.len() as i64]))
}

/// Splits a tensor along an axis: into parts of the lengths that `split` lists, of the single length `split` (the last
/// may be shorter), or of length 1, which then lose the axis unless `keep`.
pub fn split(x: &Tensor, split: Option<&Tensor>, axis: i64, keep: bool, budget: &Budget) -> Result<Tensor> {
    let axis = self::axis(axis, x.rank())?;
    let wrong = |what: String| unfit(format!("{:?} cannot be split along axis {axis}: {what}", x.dims()));
    let n = *x.dims().get(axis).ok_or_else(|| wrong("there is no such axis".into()))?;
    let lengths: Vec<usize> = match split {
        None => budget.filled(1, n)?,
        Some(s) => {
            let no_length = || wrong("a length is negative or no integer".into());
            let length = |i| s.get_i64(i).and_then(|v| usize::try_from(v).ok()).ok_or_else(no_length);
            let given = budget.collect(s.len(), length)?;
            match (s.rank(), given.as_slice()) {
                (0, [0]) => return Err(wrong("parts of 0".into())),
                (0, &[each]) => budget.collect(n.div_ceil(each), |i| Ok((n - i * each).min(each)))?,
                _ => given,
            }
        }
    };
    if lengths.iter().try_fold(0usize, |sum, l| sum.checked_add(*l)) != Some(n) {
        let shown = &lengths[..lengths.len().min(SHOWN_MAX)];
        let more = if lengths.len() > SHOWN_MAX { " and more" } else { "" };
        return Err(wrong(format!("the parts {shown:?}{more} are not {n} together")));
    }
    let mut start = 0;
    let parts = budget.collect(lengths.len(), |i| {
        let part = part(x, axis, start, lengths[i], budget)?;
        start += lengths[i];
        let mut dims = part.dims().to_vec();
        if split.is_none() && !keep {
            dims.remove(axis);
        }
        Ok(Value::Tensor(part.with_dims(dims)?))
    })?;
    Value::Sequence(parts).into_tensor_within(budget)
}

/// Maximum number of lengths that a message shows.
const SHOWN_MAX: usize = 16;

/// Returns a sequence that has, for each row, a map from the keys to the row's numbers; a vector is one row.
pub fn zip_map(x: &Tensor, keys: &Tensor, budget: &Budget) -> Result<Tensor> {
    let (n, width) = match *x.dims() {
        [width] => (1, width),
        [n, width] => (n, width),
        _ => return Err(unfit(format!("maps are made of rows, not of {:?}", x.dims()))),
    };
    if keys.dims() != [width] {
        return Err(unfit(format!("{:?} keys for rows of {width}", keys.dims())));
    }
    let flat = x.clone().with_dims(vec![x.len()])?;
    let map = |row: usize| {
        let one = |at: usize| Ok(Value::Tensor(part(&flat, 0, row * width + at, 1, budget)?.with_dims(vec![])?));
        let values = Value::Sequence(budget.collect(width, one)?);
        Ok(Value::Map { keys: keys.clone(), values: Box::new(values) })
    };
    Value::Sequence(budget.collect(n, map)?).into_tensor_within(budget)
}

/// The map's value of each word, or the scalar `absent` if the map lacks the word.
pub fn dict_vectorizer(map: &Tensor, words: &Tensor, absent: &Tensor, budget: &Budget) -> Result<Tensor> {
    let (keys, values) = match Value::from_tensor_within(map, budget)? {
        Value::Map { keys, values } if keys.dtype() == words.dtype() => (keys, values.into_sequence()?),
        Value::Map { keys, .. } => return Err(unfit(format!("{} keys for {} words", keys.dtype(), words.dtype()))),
        other => return Err(unfit(format!("a map is wanted, not {}", other.kind_name()))),
    };
    let lengths = [keys.len(), words.len()];
    let places = match (keys.string_view(), words.string_view()) {
        (Some(keys), Some(words)) => {
            let read = |text: &[u8]| budget.read(text.len());
            places(
                lengths,
                |i| read(keys.get(i)).map(|()| keys.get(i)),
                |i| read(words.get(i)).map(|()| words.get(i)),
                budget,
            )
        }
        _ => places(lengths, |i| Ok(keys.get_i64(i)), |i| Ok(words.get_i64(i)), budget),
    }?;
    let mut out = vec![];
    for place in &places {
        let value = match place.and_then(|at| values.get(at)) {
            None => absent,
            Some(Value::Tensor(t)) if t.len() == 1 && t.dtype() == absent.dtype() => t,
            Some(other) => return Err(unfit(format!("a {} is wanted, not {}", absent.dtype(), other.kind_name()))),
        };
        budget.append(&mut out, value.bytes())?;
        budget.work(1)?;
    }
    Tensor::new(absent.dtype(), vec![1, places.len()], out.into())
}

fn axis(axis: i64, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let at = at.and_then(|a| usize::try_from(a).ok()).filter(|a| *a < rank);
    at.ok_or_else(|| unfit(format!("the axis {axis} is outside a tensor of rank {rank}")))
}

/// Bytes of one element. Errors: E0107 for elements of less than a byte, and of no fixed width.
fn width(x: DType) -> Result<usize> {
    match x.bits() {
        bits @ 8.. => Ok(bits as usize / 8),
        _ => Err(Error::user("E0107", format!("tensors of type {x} are not split or joined on the host"))),
    }
}

fn part(x: &Tensor, axis: usize, start: usize, length: usize, budget: &Budget) -> Result<Tensor> {
    let inner = element_count(&x.dims()[axis + 1..]).unwrap_or(0) * width(x.dtype())?;
    let row = x.dims()[axis].saturating_mul(inner);
    let mut dims = x.dims().to_vec();
    dims[axis] = length;
    let mut out = budget.room(element_count(&dims).unwrap_or(0) * width(x.dtype())?)?;
    if row > 0 {
        for r in x.bytes().chunks_exact(row) {
            budget.work(1)?;
            budget.append(&mut out, &r[start * inner..(start + length) * inner])?;
        }
    }
    Tensor::new(x.dtype(), dims, out.into())
}

/// Concatenates the tensors of a sequence along an axis, or stacks them along a new one.
pub fn join(of: &Tensor, axis: i64, new_axis: bool, budget: &Budget) -> Result<Tensor> {
    let mut parts = vec![];
    for value in sequence(of, budget)? {
        match value {
            Value::Tensor(part) => budget.push(&mut parts, part)?,
            other => return Err(unfit(format!("{} cannot be joined", other.kind_name()))),
        }
    }
    let first = parts.first().ok_or_else(|| unfit("an empty sequence has nothing to join".into()))?;
    let rank = first.rank() + new_axis as usize;
    let axis = self::axis(axis, rank)?;
    let shaped = budget.collect(parts.len(), |i| {
        let mut dims = parts[i].dims().to_vec();
        if new_axis && axis <= dims.len() {
            dims.insert(axis, 1);
        }
        parts[i].with_dims(dims)
    })?;
    let mut dims = shaped[0].dims().to_vec();
    let others = |d: &[usize]| d.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| *d).collect::<Vec<_>>();
    for part in &shaped[1..] {
        budget.work(1)?;
        if part.dtype() != first.dtype() || part.rank() != rank || others(part.dims()) != others(&dims) {
            return Err(unfit(format!("{:?} cannot be joined to {:?}", part.dims(), shaped[0].dims())));
        }
        dims[axis] = dims[axis].saturating_add(part.dims()[axis]);
    }
    let rows = element_count(&dims[..axis]).unwrap_or(0);
    let row = |t: &Tensor| element_count(&t.dims()[axis..]).unwrap_or(0) * width(t.dtype()).unwrap_or(0);
    width(first.dtype())?;
    // The sum cannot overflow, because the parts are in memory.
    let mut out = budget.room(shaped.iter().map(|t| t.bytes().len()).sum())?;
    for r in 0..rows {
        for t in &shaped {
            budget.work(1)?;
            budget.append(&mut out, &t.bytes()[r * row(t)..(r + 1) * row(t)])?;
        }
    }
    Tensor::new(first.dtype(), dims, out.into())
}

pub fn optional(value: Option<&Tensor>, budget: &Budget) -> Result<Tensor> {
    let inside = value.map(|v| Value::from_tensor_within(v, budget).map(Box::new)).transpose()?;
    Value::Optional(inside).into_tensor_within(budget)
}

/// Whether there is a value; everything except an empty optional is a value.
pub fn has_element(value: Option<&Tensor>, budget: &Budget) -> Result<Tensor> {
    let there = match value.map(|v| Value::from_tensor_within(v, budget)).transpose()? {
        None | Some(Value::Optional(None)) => false,
        Some(Value::Optional(Some(_)) | Value::Tensor(_) | Value::Sequence(_) | Value::Map { .. }) => true,
    };
    Ok(Tensor::from_vec(vec![], vec![there]))
}

pub fn get_element(value: &Tensor, budget: &Budget) -> Result<Tensor> {
    match Value::from_tensor_within(value, budget)? {
        Value::Optional(Some(inside)) => inside.into_tensor_within(budget),
        Value::Optional(None) => Err(unfit("the optional has no value".into())),
        other @ (Value::Tensor(_) | Value::Sequence(_) | Value::Map { .. }) => other.into_tensor_within(budget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> Budget<'static> {
        Budget::unlimited()
    }

    fn floats(dims: &[usize]) -> Tensor {
        let n = element_count(dims).unwrap();
        Tensor::from_vec(dims.to_vec(), (0..n).map(|i| i as f32).collect())
    }

    fn number(v: i64) -> Tensor {
        Tensor::scalar(v)
    }

    #[test]
    fn elements_are_put_in_and_taken_out() {
        let s = construct(&[floats(&[1]), floats(&[2])], &free()).unwrap();
        let s = insert(&s, &floats(&[3]), Some(&number(-1)), &free()).unwrap();
        let lengths = |s: &Tensor| {
            let dims = |v: Value| v.into_tensor().dims()[0];
            sequence(s, &free()).unwrap().into_iter().map(dims).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&s), [1, 3, 2]);
        assert_eq!(lengths(&erase(&s, Some(&number(0)), &free()).unwrap()), [3, 2]);
        assert_eq!(at(&s, &number(-1), &free()).unwrap().dims(), [2]);
        assert_eq!(length(&s, &free()).unwrap().get_i64(0), Some(3));
        assert_eq!(at(&s, &number(3), &free()).unwrap_err().code, "E0303");
        assert_eq!(erase(&construct(&[], &free()).unwrap(), None, &free()).unwrap_err().code, "E0303");
        assert_eq!(at(&floats(&[1]), &number(0), &free()).unwrap_err().code, "E0301");
    }

    #[test]
    fn what_is_split_is_joined_again() {
        let x = floats(&[2, 3]);
        for (axis, by) in [(0, None), (1, Some(number(2))), (1, Some(Tensor::from_vec(vec![2], vec![0i64, 3])))] {
            let parts = split(&x, by.as_ref(), axis, true, &free()).unwrap();
            assert_eq!(join(&parts, axis, false, &free()).unwrap(), x);
        }
        let rows = split(&x, None, 0, false, &free()).unwrap();
        assert_eq!(join(&rows, 0, true, &free()).unwrap(), x);
        assert_eq!(join(&rows, -1, true, &free()).unwrap().dims(), [3, 2]);
        assert!(split(&x, Some(&number(0)), 0, true, &free()).is_err());
        assert!(split(&x, Some(&Tensor::from_vec(vec![1], vec![5i64])), 0, true, &free()).is_err());
        assert!(join(&construct(&[floats(&[2]), floats(&[2, 2])], &free()).unwrap(), 0, false, &free()).is_err());
    }

    #[test]
    fn an_optional_has_a_value_or_none() {
        let x = floats(&[2]);
        let there = |v: Option<&Tensor>| has_element(v, &free()).unwrap().get_f64(0) == Some(1.0);
        let some = optional(Some(&x), &free()).unwrap();
        let none = optional(None, &free()).unwrap();
        assert_eq!((there(Some(&some)), there(Some(&none)), there(None), there(Some(&x))), (true, false, false, true));
        assert_eq!(get_element(&some, &free()).unwrap(), x);
        assert_eq!(get_element(&none, &free()).unwrap_err().code, "E0303");
    }
}
