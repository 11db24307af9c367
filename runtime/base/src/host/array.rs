//! Array operations that would take quadratic time as maps and reductions: sorted order, scatter, Fourier transform

use super::{Budget, fourier, order, scatter, unfit};
use crate::reduction::Reduction;
use crate::{DType, Result, Tensor};
use std::fmt;

/// An operation on whole arrays, with its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArrayOp {
    /// x [.., n], k  =>  i64 [.., k]: for each row, the indices of the k elements that come first in sorted order.
    /// Equal elements are in the order of their indices; NaN is larger than any number.
    Order {
        /// Whether rows are sorted from the largest element to the smallest.
        descending: bool,
    },
    /// x [l, r], rows i64 [m], updates [m, r]  =>  a copy of x to which the updates are applied in their order: update
    /// i is combined with row `rows[i]` of the copy or, without a function, replaces this row. A row outside 0..l is
    /// an error.
    Scatter {
        /// The function that combines an update with its row; `None` if the update replaces the row.
        f: Option<Reduction>,
    },
    /// complex x, f64 [.., n, 2]  =>  y[k] = Σ x[j] exp(∓2πi jk / n) over j, not scaled, of the same shape
    Fourier {
        /// Whether the exponent is positive: the inverse transform, except for the factor 1/n.
        inverse: bool,
    },
}

impl fmt::Display for ArrayOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            ArrayOp::Order { descending } => write!(f, " descending={}", u8::from(*descending)),
            ArrayOp::Scatter { f: combine } => combine.map_or(Ok(()), |combine| write!(f, " fn={}", combine.name())),
            ArrayOp::Fourier { inverse } => write!(f, " inverse={}", u8::from(*inverse)),
        }
    }
}

impl ArrayOp {
    /// Returns the name of the operation without its attributes.
    pub fn name(&self) -> &'static str {
        match self {
            ArrayOp::Order { .. } => "Order",
            ArrayOp::Scatter { .. } => "Scatter",
            ArrayOp::Fourier { .. } => "Fourier",
        }
    }

    /// Parses text written by `Display`, such as `Scatter fn=add`; `None` for any other text.
    pub fn parse(text: &str) -> Option<ArrayOp> {
        let functions = [None].into_iter().chain(Reduction::ALL.map(Some)).map(|f| ArrayOp::Scatter { f });
        let flags = [false, true].into_iter();
        let flags = flags.flat_map(|on| [ArrayOp::Order { descending: on }, ArrayOp::Fourier { inverse: on }]);
        functions.chain(flags).find(|op| op.to_string() == text)
    }

    /// Returns the number of operands.
    pub fn n_args(&self) -> usize {
        match self {
            ArrayOp::Order { .. } => 2,
            ArrayOp::Scatter { .. } => 3,
            ArrayOp::Fourier { .. } => 1,
        }
    }

    /// Whether operands of these ranks can have a result of this type and rank.
    pub fn admits(&self, ranks: &[usize], dtype: DType, rank: usize) -> bool {
        let typed = match self {
            ArrayOp::Order { .. } => dtype == DType::I64,
            ArrayOp::Scatter { f } => !dtype.is_opaque() && f.is_none_or(|f| f.admits(dtype)),
            ArrayOp::Fourier { .. } => dtype == DType::F64,
        };
        typed && ranks.first() == Some(&rank)
    }

    /// Computes the result. Errors: E0303 if the operands do not fit; E0304, E0305 or E0306 at a limit of `budget`.
    pub fn run(&self, args: &[Tensor], budget: &Budget) -> Result<Tensor> {
        match (self, args) {
            (ArrayOp::Order { descending }, [x, count]) => order::order(x, count, *descending, budget),
            (ArrayOp::Scatter { f }, [x, rows, updates]) => scatter::scatter(x, rows, updates, *f, budget),
            (ArrayOp::Fourier { inverse }, [x]) => fourier::transform(x, *inverse, budget),
            (_, args) => Err(unfit(format!("`{self}` does not take {} operands", args.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_parsed_back() {
        for op in [
            ArrayOp::Order { descending: true },
            ArrayOp::Scatter { f: None },
            ArrayOp::Scatter { f: Some(Reduction::Mul) },
            ArrayOp::Fourier { inverse: false },
        ] {
            assert_eq!(ArrayOp::parse(&op.to_string()), Some(op));
        }
        for wrong in ["", "Order", "Scatter fn=no", "Fourier inverse=2", "Order descending=1 x=1"] {
            assert_eq!(ArrayOp::parse(wrong), None, "{wrong}");
        }
    }
}
