//! sequences and optionals: constructed, indexed, split and joined on the host

use super::{numbers, unfit};
use crate::tensor::element_count;
use crate::{DType, Error, Result, Tensor, Value};

fn sequence(t: &Tensor) -> Result<Vec<Value>> {
    Value::of(t)?.into_sequence()
}

/// A position that may count from the end: below `n` in general, up to `n` where something is inserted.
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

pub fn construct(args: &[Tensor]) -> Result<Tensor> {
    Ok(Value::Sequence(args.iter().map(Value::of).collect::<Result<_>>()?).into_tensor())
}

pub fn at(of: &Tensor, at: &Tensor) -> Result<Tensor> {
    let mut values = sequence(of)?;
    let at = position(at, values.len(), false)?;
    Ok(values.swap_remove(at).into_tensor())
}

/// Before the position; at the end without one.
pub fn insert(into: &Tensor, value: &Tensor, at: Option<&Tensor>) -> Result<Tensor> {
    let mut values = sequence(into)?;
    let at = at.map_or(Ok(values.len()), |at| position(at, values.len(), true))?;
    values.insert(at, Value::of(value)?);
    Ok(Value::Sequence(values).into_tensor())
}

/// The last one without a position.
pub fn erase(from: &Tensor, at: Option<&Tensor>) -> Result<Tensor> {
    let mut values = sequence(from)?;
    let last = values.len().checked_sub(1).ok_or_else(|| unfit("nothing is in the sequence to erase".into()));
    let at = at.map_or(last, |at| position(at, values.len(), false))?;
    values.remove(at);
    Ok(Value::Sequence(values).into_tensor())
}

pub fn length(of: &Tensor) -> Result<Tensor> {
    Ok(numbers(vec![], vec![sequence(of)?.len() as i64]))
}

/// A sequence of the parts along an axis: of the lengths that `split` lists, of its one length each (the last may be
/// shorter), or of one each, then without the axis unless it is kept.
pub fn split(x: &Tensor, split: Option<&Tensor>, axis: i64, keep: bool) -> Result<Tensor> {
    let axis = self::axis(axis, x.rank())?;
    let wrong = |what: String| unfit(format!("{:?} cannot be split along axis {axis}: {what}", x.dims()));
    let n = *x.dims().get(axis).ok_or_else(|| wrong("there is no such axis".into()))?;
    let lengths: Vec<usize> = match split {
        None => vec![1; n],
        Some(s) => {
            let given = (0..s.len()).map(|i| s.get_i64(i).and_then(|v| usize::try_from(v).ok()));
            let given: Option<Vec<usize>> = given.collect();
            let given = given.ok_or_else(|| wrong("a length is negative or no integer".into()))?;
            match (s.rank(), given.as_slice()) {
                (0, [0]) => return Err(wrong("parts of 0".into())),
                (0, [each]) => (0..n).step_by(*each).map(|at| (n - at).min(*each)).collect(),
                _ => given,
            }
        }
    };
    if lengths.iter().try_fold(0usize, |sum, l| sum.checked_add(*l)) != Some(n) {
        return Err(wrong(format!("the parts {lengths:?} are not {n} together")));
    }
    let mut start = 0;
    let mut parts = vec![];
    for length in lengths {
        let part = part(x, axis, start, length)?;
        let mut dims = part.dims().to_vec();
        if split.is_none() && !keep {
            dims.remove(axis);
        }
        parts.push(Value::Tensor(part.with_dims(dims)?));
        start += length;
    }
    Ok(Value::Sequence(parts).into_tensor())
}

/// A map from the keys for each row of numbers; a vector is one row.
pub fn zip_map(x: &Tensor, keys: &Tensor) -> Result<Tensor> {
    let (n, width) = match *x.dims() {
        [width] => (1, width),
        [n, width] => (n, width),
        _ => return Err(unfit(format!("maps are made of rows, not of {:?}", x.dims()))),
    };
    if keys.dims() != [width] {
        return Err(unfit(format!("{:?} keys for rows of {width}", keys.dims())));
    }
    let flat = x.clone().with_dims(vec![n * width])?;
    let map = |row: usize| {
        let one = |at: usize| Ok(Value::Tensor(part(&flat, 0, row * width + at, 1)?.with_dims(vec![])?));
        let values = Value::Sequence((0..width).map(one).collect::<Result<_>>()?);
        Ok(Value::Map { keys: keys.clone(), values: Box::new(values) })
    };
    Ok(Value::Sequence((0..n).map(map).collect::<Result<_>>()?).into_tensor())
}

/// What the map has for each word, and the scalar `absent` for one that it has not.
pub fn dict_vectorizer(map: &Tensor, words: &Tensor, absent: &Tensor) -> Result<Tensor> {
    let (keys, values) = match Value::of(map)? {
        Value::Map { keys, values } if keys.dtype() == words.dtype() => (keys, values.into_sequence()?),
        Value::Map { keys, .. } => return Err(unfit(format!("{} keys for {} words", keys.dtype(), words.dtype()))),
        other => return Err(unfit(format!("a map is wanted, not {}", other.kind_name()))),
    };
    let places: Vec<Option<usize>> = match (keys.strings(), words.strings()) {
        (Some(keys), Some(words)) => words.iter().map(|w| keys.iter().position(|k| k == w)).collect(),
        _ => {
            let all: Vec<Option<i64>> = (0..keys.len()).map(|i| keys.get_i64(i)).collect();
            (0..words.len()).map(|i| all.iter().position(|k| *k == words.get_i64(i))).collect()
        }
    };
    let mut out = vec![];
    for place in &places {
        let value = match place.and_then(|at| values.get(at)) {
            None => absent,
            Some(Value::Tensor(t)) if t.len() == 1 && t.dtype() == absent.dtype() => t,
            Some(other) => return Err(unfit(format!("a {} is wanted, not {}", absent.dtype(), other.kind_name()))),
        };
        out.extend_from_slice(value.bytes());
    }
    Tensor::new(absent.dtype(), vec![1, places.len()], out.into())
}

fn axis(axis: i64, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let at = at.and_then(|a| usize::try_from(a).ok()).filter(|a| *a < rank);
    at.ok_or_else(|| unfit(format!("the axis {axis} is outside a tensor of rank {rank}")))
}

/// Bytes of one element, where each has its own.
fn width(x: DType) -> Result<usize> {
    match x.bits() {
        bits @ 8.. => Ok(bits as usize / 8),
        _ => Err(Error::user("E0107", format!("tensors of type {x} are not split or joined on the host"))),
    }
}

fn part(x: &Tensor, axis: usize, start: usize, length: usize) -> Result<Tensor> {
    let inner = element_count(&x.dims()[axis + 1..]).unwrap_or(0) * width(x.dtype())?;
    let row = x.dims()[axis] * inner;
    let mut dims = x.dims().to_vec();
    dims[axis] = length;
    let mut out = Vec::with_capacity(element_count(&dims).unwrap_or(0) * width(x.dtype())?);
    if row > 0 {
        x.bytes().chunks_exact(row).for_each(|r| out.extend_from_slice(&r[start * inner..(start + length) * inner]));
    }
    Tensor::new(x.dtype(), dims, out.into())
}

/// The tensors of a sequence one behind the other along an axis, or along a new one.
pub fn join(of: &Tensor, axis: i64, new_axis: bool) -> Result<Tensor> {
    let tensor = |v: Value| match v {
        Value::Tensor(t) => Ok(t),
        other => Err(unfit(format!("{} cannot be joined", other.kind_name()))),
    };
    let parts: Vec<Tensor> = sequence(of)?.into_iter().map(tensor).collect::<Result<_>>()?;
    let first = parts.first().ok_or_else(|| unfit("an empty sequence has nothing to join".into()))?;
    let rank = first.rank() + new_axis as usize;
    let axis = self::axis(axis, rank)?;
    let mut shaped = vec![];
    for part in &parts {
        let mut dims = part.dims().to_vec();
        if new_axis && axis <= dims.len() {
            dims.insert(axis, 1);
        }
        shaped.push(part.with_dims(dims)?);
    }
    let mut dims = shaped[0].dims().to_vec();
    let others = |d: &[usize]| d.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| *d).collect::<Vec<_>>();
    for part in &shaped[1..] {
        if part.dtype() != first.dtype() || part.rank() != rank || others(part.dims()) != others(&dims) {
            return Err(unfit(format!("{:?} cannot be joined to {:?}", part.dims(), shaped[0].dims())));
        }
        dims[axis] += part.dims()[axis];
    }
    let rows = element_count(&dims[..axis]).unwrap_or(0);
    let row = |t: &Tensor| element_count(&t.dims()[axis..]).unwrap_or(0) * width(t.dtype()).unwrap_or(0);
    width(first.dtype())?;
    let mut out = vec![];
    for r in 0..rows {
        shaped.iter().for_each(|t| out.extend_from_slice(&t.bytes()[r * row(t)..(r + 1) * row(t)]));
    }
    Tensor::new(first.dtype(), dims, out.into())
}

pub fn optional(value: Option<&Tensor>) -> Result<Tensor> {
    let inside = value.map(|v| Value::of(v).map(Box::new)).transpose()?;
    Ok(Value::Optional(inside).into_tensor())
}

/// Anything that is no optional is there.
pub fn has_element(value: Option<&Tensor>) -> Result<Tensor> {
    let there = match value.map(Value::of).transpose()? {
        None | Some(Value::Optional(None)) => false,
        Some(Value::Optional(Some(_)) | Value::Tensor(_) | Value::Sequence(_) | Value::Map { .. }) => true,
    };
    Ok(Tensor::from_vec(vec![], vec![there]))
}

pub fn get_element(value: &Tensor) -> Result<Tensor> {
    match Value::of(value)? {
        Value::Optional(Some(inside)) => Ok(inside.into_tensor()),
        Value::Optional(None) => Err(unfit("the optional has no value".into())),
        other @ (Value::Tensor(_) | Value::Sequence(_) | Value::Map { .. }) => Ok(other.into_tensor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(dims: &[usize]) -> Tensor {
        let n = element_count(dims).unwrap();
        Tensor::from_vec(dims.to_vec(), (0..n).map(|i| i as f32).collect())
    }

    fn number(v: i64) -> Tensor {
        Tensor::scalar(v)
    }

    #[test]
    fn elements_are_put_in_and_taken_out() {
        let s = construct(&[floats(&[1]), floats(&[2])]).unwrap();
        let s = insert(&s, &floats(&[3]), Some(&number(-1))).unwrap();
        let lengths = |s: &Tensor| {
            let dims = |v: Value| v.into_tensor().dims()[0];
            sequence(s).unwrap().into_iter().map(dims).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&s), [1, 3, 2]);
        assert_eq!(lengths(&erase(&s, Some(&number(0))).unwrap()), [3, 2]);
        assert_eq!(at(&s, &number(-1)).unwrap().dims(), [2]);
        assert_eq!(length(&s).unwrap().get_i64(0), Some(3));
        assert_eq!(at(&s, &number(3)).unwrap_err().code, "E0303");
        assert_eq!(erase(&construct(&[]).unwrap(), None).unwrap_err().code, "E0303");
        assert_eq!(at(&floats(&[1]), &number(0)).unwrap_err().code, "E0301");
    }

    #[test]
    fn what_is_split_is_joined_again() {
        let x = floats(&[2, 3]);
        for (axis, by) in [(0, None), (1, Some(number(2))), (1, Some(Tensor::from_vec(vec![2], vec![0i64, 3])))] {
            let parts = split(&x, by.as_ref(), axis, true).unwrap();
            assert_eq!(join(&parts, axis, false).unwrap(), x);
        }
        let rows = split(&x, None, 0, false).unwrap();
        assert_eq!(join(&rows, 0, true).unwrap(), x);
        assert_eq!(join(&rows, -1, true).unwrap().dims(), [3, 2]);
        assert!(split(&x, Some(&number(0)), 0, true).is_err());
        assert!(split(&x, Some(&Tensor::from_vec(vec![1], vec![5i64])), 0, true).is_err());
        assert!(join(&construct(&[floats(&[2]), floats(&[2, 2])]).unwrap(), 0, false).is_err());
    }

    #[test]
    fn an_optional_has_a_value_or_none() {
        let x = floats(&[2]);
        let there = |v: Option<&Tensor>| has_element(v).unwrap().get_f64(0) == Some(1.0);
        let some = optional(Some(&x)).unwrap();
        let none = optional(None).unwrap();
        assert_eq!((there(Some(&some)), there(Some(&none)), there(None), there(Some(&x))), (true, false, false, true));
        assert_eq!(get_element(&some).unwrap(), x);
        assert_eq!(get_element(&none).unwrap_err().code, "E0303");
    }
}
