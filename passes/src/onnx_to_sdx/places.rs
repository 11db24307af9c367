//! `places ["in 1 0 2 1 32"]` of a node  =>  sdx.place of its operands and results

use super::builder::Builder;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::mlir::{Attr, Operation};
use sardonyx_dialects::sdx::{Op, Place, Value};

/// Whether an operand (else a result) is placed; its index; the mesh axis; for a split, the dimension, the number of
/// runs and the number of elements of a unit.
pub type Placed = (bool, usize, usize, Option<[i64; 3]>);

pub fn read(op: Operation) -> Result<Vec<Placed>> {
    let one = |text: &String| {
        let mut words = text.split(' ');
        let input = match words.next()? {
            "in" => true,
            "out" => false,
            _ => return None,
        };
        let numbers = words.map(|w| w.parse::<i64>().ok()).collect::<Option<Vec<i64>>>()?;
        match numbers[..] {
            [at, axis] => Some((input, at as usize, axis as usize, None)),
            [at, axis, dim, runs, unit] if runs > 0 && unit > 0 => {
                Some((input, at as usize, axis as usize, Some([dim, runs, unit])))
            }
            _ => None,
        }
    };
    let all = op.attr("places").and_then(Attr::as_strs).unwrap_or_default();
    all.iter().map(|text| one(text).ok_or_else(|| Error::defect(format!("`{text}` is no place")))).collect()
}

/// Applies the places of the operands (`input`) or of the results to the values.
pub fn placed(
    b: &mut Builder,
    places: &[Placed],
    input: bool,
    mut values: Vec<Option<Value>>,
) -> Result<Vec<Option<Value>>> {
    for (_, at, mesh, split) in places.iter().filter(|(of_input, ..)| *of_input == input) {
        let Some(v) = values.get(*at).copied().flatten() else { continue };
        let rank = b.ty(v).rank() as i64;
        let split = match split {
            None => None,
            Some([dim, runs, unit]) => {
                let dim = if *dim < 0 { dim + rank } else { *dim };
                let outside = || {
                    let what = if input { "input" } else { "output" };
                    b.error("E0108", format!("{what} {at} has {rank} dimensions, it cannot be split along {dim}"))
                };
                let dim = usize::try_from(dim).ok().filter(|d| (*d as i64) < rank).ok_or_else(outside)?;
                Some((dim, Dim::constant(*runs), Dim::constant(*unit)))
            }
        };
        let place = Op::Place(Box::new(Place { mesh: *mesh, split }));
        values[*at] = Some(b.add_typed(place, &[v], None)?);
    }
    Ok(values)
}
