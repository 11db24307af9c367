//! the name of a parameter  =>  its value: the interface through which all computations read parameters

use crate::mlir::{Attr, Context};
use sardonyx_base::{Dim, Error, Result, Tensor};
use std::collections::BTreeMap;

/// The values of a model's parameters. A function from names to values implements the trait too.
pub trait ParamValues {
    /// The value of a parameter. Errors: E0901 for an unknown name.
    fn value(&self, name: &str) -> Result<Tensor>;
}

impl ParamValues for BTreeMap<String, Tensor> {
    fn value(&self, name: &str) -> Result<Tensor> {
        self.get(name).cloned().ok_or_else(|| Error::defect(format!("the parameter `{name}` is gone")))
    }
}

impl<F: Fn(&str) -> Result<Tensor>> ParamValues for F {
    fn value(&self, name: &str) -> Result<Tensor> {
        self(name)
    }
}

/// The part of a parameter that a rank holds along one axis: the axis consists of `outer` runs of `count` units, and
/// the rank holds `len` units of each run, beginning at `start`. A unit is `unit` elements, for example an attention
/// head.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// Axis of the parameter that is cut.
    pub axis: usize,
    /// Number of runs along the axis.
    pub outer: i64,
    /// Number of units in each run of the whole parameter.
    pub count: i64,
    /// Number of elements along the axis in a unit.
    pub unit: i64,
    /// First unit of each run that the rank holds, usually an expression of the rank's coordinates.
    pub start: Dim,
    /// Number of units of each run that the rank holds.
    pub len: Dim,
}

impl Part {
    /// Cuts this part out of a value. Errors: E0901 if the value has no such part.
    pub fn cut(&self, whole: &Tensor, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<Tensor> {
        let (start, len) = (self.start.eval_named(symbols)?, self.len.eval_named(symbols)?);
        let wrong = || Error::defect(format!("{:?} has no part {start}..+{len} of {self:?}", whole.dims()));
        let size = |n: i64| usize::try_from(n).map_err(|_| wrong());
        let (outer, count, unit, start, len) =
            (size(self.outer)?, size(self.count)?, size(self.unit)?, size(start)?, size(len)?);
        let extent = whole.dims().get(self.axis).copied();
        if extent != Some(outer * count * unit) || start + len > count || whole.dtype().is_opaque() {
            return Err(wrong());
        }
        let mut dims = whole.dims().to_vec();
        dims[self.axis] = outer * len * unit;
        let inner = dims[self.axis + 1..].iter().product::<usize>() * unit * whole.dtype().bytes();
        let runs = dims[..self.axis].iter().product::<usize>() * outer;
        let run = |at: usize| &whole.bytes()[(at * count + start) * inner..(at * count + start + len) * inner];
        Tensor::new(whole.dtype(), dims, (0..runs).flat_map(run).copied().collect::<Vec<u8>>().into())
    }
}

/// The value of a parameter that a rank holds, cut by each of `parts` in turn.
pub fn value_of(
    values: &dyn ParamValues,
    name: &str,
    parts: &[Part],
    symbols: &dyn Fn(&str) -> Option<i64>,
) -> Result<Tensor> {
    parts.iter().try_fold(values.value(name)?, |value, part| part.cut(&value, symbols))
}

/// Returns a list of parts as an attribute, six strings per part.
pub fn write_parts<'c>(cx: Context<'c>, parts: &[Part]) -> Attr<'c> {
    let one = |p: &Part| {
        let numbers = [p.axis as i64, p.outer, p.count, p.unit].map(|n| n.to_string());
        numbers.into_iter().chain([p.start.to_string(), p.len.to_string()])
    };
    cx.strs(&parts.iter().flat_map(one).collect::<Vec<String>>())
}

/// Reads a list of parts; `None` if the attribute is not such a list.
pub fn read_parts(attr: Attr) -> Option<Vec<Part>> {
    let texts = attr.as_strs()?;
    let (parts, rest) = texts.as_chunks::<6>();
    let one = |[axis, outer, count, unit, start, len]: &[String; 6]| {
        let size = |text: &String| text.parse::<i64>().ok().filter(|&n| n > 0);
        let (start, len) = (Dim::parse(start).ok()?, Dim::parse(len).ok()?);
        Some(Part { axis: axis.parse().ok()?, outer: size(outer)?, count: size(count)?, unit: size(unit)?, start, len })
    };
    if rest.is_empty() { parts.iter().map(one).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_some_units_of_each_run() {
        let whole = Tensor::from_vec(vec![2, 12], (0..24).collect::<Vec<i32>>());
        let cut = |outer, count, unit, rank: i64| {
            let (start, len) = (Dim::parse("2*r").unwrap(), Dim::parse("min(2, 3 - 2*r)").unwrap());
            let part = Part { axis: 1, outer, count, unit, start, len };
            part.cut(&whole, &|_| Some(rank)).map(|t| (t.dims().to_vec(), t.to_vec::<i32>().unwrap()))
        };
        assert_eq!(cut(2, 3, 2, 0).unwrap(), (vec![2, 8], [0, 6, 12, 18].iter().flat_map(|&a| a..a + 4).collect()));
        assert_eq!(cut(2, 3, 2, 1).unwrap().1, [4, 5, 10, 11, 16, 17, 22, 23]);
        assert_eq!(cut(1, 3, 4, 1).unwrap().0, [2, 4]);
        assert_eq!(cut(1, 5, 4, 0).unwrap_err().code, "E0901");
    }
}
