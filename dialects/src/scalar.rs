//! The fixed set of scalar functions: name, operands, result type

use sardonyx_base::DType;

/// A function of scalars, applied by `sdx.map` to the elements of tensors and by kernels to values of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScalarFn {
    /// Absolute value; the least integer of a signed type stays as it is.
    Abs,
    /// Sum; integers wrap.
    Add,
    /// Logical and of bools.
    And,
    /// Arc tangent, in radians.
    Atan,
    /// Bitwise and of integers.
    BitAnd,
    /// Bitwise or of integers.
    BitOr,
    /// Bitwise exclusive or of integers.
    BitXor,
    /// Least integer that is not below the operand, as a float.
    Ceil,
    /// Cosine of an angle in radians.
    Cos,
    /// Quotient. Integers truncate towards zero (ONNX `Div`); a zero divisor gives 0. Floats follow IEEE 754.
    Div,
    /// Whether the operands are equal: NaN equals nothing, and +0 equals -0.
    Eq,
    /// Gauss error function.
    Erf,
    /// e to the power of the operand.
    Exp,
    /// Greatest integer that is not above the operand, as a float.
    Floor,
    /// Whether the operand is NaN.
    IsNan,
    /// Whether the first operand is less than or equal to the second; false if either is NaN.
    Le,
    /// Natural logarithm; NaN for negative operands, negative infinity for 0.
    Log,
    /// Whether the first operand is less than the second; false if either is NaN.
    Lt,
    /// Maximum; NaN if either operand is NaN, as in ONNX `Max` and `ReduceMax`.
    Max,
    /// Minimum; NaN if either operand is NaN, as in ONNX `Min` and `ReduceMin`.
    Min,
    /// Product; integers wrap.
    Mul,
    /// Negation; integers wrap.
    Neg,
    /// Logical negation of a bool.
    Not,
    /// Logical or of bools.
    Or,
    /// First operand to the power of the second. Integers wrap; a negative exponent gives the truncated reciprocal, and
    /// 0 for base 0.
    Pow,
    /// Remainder. For integers it has the sign of the divisor (ONNX `Mod` fmod=0), and a zero divisor gives 0; for
    /// floats it is C `fmod` (fmod=1).
    Rem,
    /// Rounds to the nearest integer, ties to even.
    Round,
    /// select(condition, a, b): a if the condition is true, else b.
    Select,
    /// Left shift. An amount outside 0..width gives 0.
    Shl,
    /// Right shift, arithmetic for signed integers. An amount outside 0..width gives copies of the sign bit for signed
    /// integers, and 0 for unsigned ones.
    Shr,
    /// -1, 0 or 1 of the operand's type; NaN for NaN.
    Sign,
    /// Sine of an angle in radians.
    Sin,
    /// Square root; NaN for negative operands.
    Sqrt,
    /// First operand minus the second; integers wrap.
    Sub,
    /// Hyperbolic tangent.
    Tanh,
    /// Logical exclusive or of bools.
    Xor,
}

/// The element types that a function accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Floats and integers of any width.
    Numbers,
    /// Floats of any width.
    Floats,
    /// Signed and unsigned integers of any width.
    Integers,
    /// Only bool.
    Bools,
    /// Numbers and bool.
    Any,
}

/// How the result's element type follows from the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// The type of the last operand.
    Same,
    /// Bool, whatever the operands are.
    Bool,
}

/// A row of [`ROWS`]: the name and the signature of a scalar function.
pub struct Row {
    /// Function that the row describes.
    pub function: ScalarFn,
    /// Name in the IR.
    pub name: &'static str,
    /// Number of operands.
    pub operands: usize,
    /// Element types of the operands, which are all of one type; the condition of `select` is a bool.
    pub domain: Domain,
    /// Element type of the result.
    pub result: ResultType,
}

const fn row(function: ScalarFn, name: &'static str, operands: usize, domain: Domain, result: ResultType) -> Row {
    Row { function, name, operands, domain, result }
}

/// One row per function, sorted by name, in the order of the variants of `ScalarFn`.
pub static ROWS: &[Row] = &[
    row(ScalarFn::Abs, "abs", 1, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Add, "add", 2, Domain::Numbers, ResultType::Same),
    row(ScalarFn::And, "and", 2, Domain::Bools, ResultType::Same),
    row(ScalarFn::Atan, "atan", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::BitAnd, "bitand", 2, Domain::Integers, ResultType::Same),
    row(ScalarFn::BitOr, "bitor", 2, Domain::Integers, ResultType::Same),
    row(ScalarFn::BitXor, "bitxor", 2, Domain::Integers, ResultType::Same),
    row(ScalarFn::Ceil, "ceil", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Cos, "cos", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Div, "div", 2, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Eq, "eq", 2, Domain::Any, ResultType::Bool),
    row(ScalarFn::Erf, "erf", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Exp, "exp", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Floor, "floor", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::IsNan, "isnan", 1, Domain::Floats, ResultType::Bool),
    row(ScalarFn::Le, "le", 2, Domain::Numbers, ResultType::Bool),
    row(ScalarFn::Log, "log", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Lt, "lt", 2, Domain::Numbers, ResultType::Bool),
    row(ScalarFn::Max, "max", 2, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Min, "min", 2, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Mul, "mul", 2, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Neg, "neg", 1, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Not, "not", 1, Domain::Bools, ResultType::Same),
    row(ScalarFn::Or, "or", 2, Domain::Bools, ResultType::Same),
    row(ScalarFn::Pow, "pow", 2, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Rem, "rem", 2, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Round, "round", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Select, "select", 3, Domain::Any, ResultType::Same),
    row(ScalarFn::Shl, "shl", 2, Domain::Integers, ResultType::Same),
    row(ScalarFn::Shr, "shr", 2, Domain::Integers, ResultType::Same),
    row(ScalarFn::Sign, "sign", 1, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Sin, "sin", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Sqrt, "sqrt", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Sub, "sub", 2, Domain::Numbers, ResultType::Same),
    row(ScalarFn::Tanh, "tanh", 1, Domain::Floats, ResultType::Same),
    row(ScalarFn::Xor, "xor", 2, Domain::Bools, ResultType::Same),
];

impl ScalarFn {
    /// Returns the row of [`ROWS`] that describes the function.
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Returns the name in the IR.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the function that has this name in the IR; `None` if there is none.
    pub fn from_name(name: &str) -> Option<ScalarFn> {
        ROWS.binary_search_by(|row| row.name.cmp(name)).ok().map(|i| ROWS[i].function)
    }

    /// Returns the result's type for operands of these types; the error says why they do not fit.
    pub fn result(self, operands: &[DType]) -> Result<DType, String> {
        let row = self.row();
        if operands.len() != row.operands {
            return Err(format!("`{}` takes {} operands, not {}", row.name, row.operands, operands.len()));
        }
        let values = if self == ScalarFn::Select { &operands[1..] } else { operands };
        let last = values[values.len() - 1];
        if values.iter().any(|&t| t != last) {
            return Err(format!("`{}` takes operands of one type, not {} and {last}", row.name, values[0]));
        }
        if self == ScalarFn::Select && operands[0] != DType::Bool {
            return Err(format!("`select` takes a bool condition, not {}", operands[0]));
        }
        if !row.domain.contains(last) {
            return Err(format!("`{}` does not take {last}", row.name));
        }
        Ok(match row.result {
            ResultType::Same => last,
            ResultType::Bool => DType::Bool,
        })
    }
}

impl Domain {
    /// Returns whether the domain contains an element type.
    pub fn contains(self, t: DType) -> bool {
        match self {
            Domain::Numbers => t.is_float() || t.is_int(),
            Domain::Floats => t.is_float(),
            Domain::Integers => t.is_int(),
            Domain::Bools => t == DType::Bool,
            Domain::Any => t.is_float() || t.is_int() || t == DType::Bool,
        }
    }
}

/// What a conversion preserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Conversion {
    /// The value. A float becomes an integer by truncation and saturates; NaN becomes 0. As a bool, a value is true if
    /// it is not 0.
    Value,
    /// The bits, which are reinterpreted as a type of the same width.
    Bits,
}

impl Conversion {
    /// Checks that the conversion between the two types is defined; the error says why it is not.
    pub fn check(self, from: DType, to: DType) -> Result<(), String> {
        match self {
            Conversion::Bits if from.bits() != to.bits() => Err(format!("{from} and {to} differ in their bits")),
            Conversion::Bits | Conversion::Value => Ok(()),
        }
    }
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceFn {
    /// Sum; 0 over no elements.
    Add,
    /// Maximum; negative infinity or the least integer over no elements.
    Max,
    /// Minimum; infinity or the greatest integer over no elements.
    Min,
    /// Product; 1 over no elements.
    Mul,
}

impl ReduceFn {
    /// All reductions, in declaration order.
    pub const ALL: [ReduceFn; 4] = [ReduceFn::Add, ReduceFn::Max, ReduceFn::Min, ReduceFn::Mul];

    /// The scalar function that combines two partial results.
    pub fn scalar(self) -> ScalarFn {
        match self {
            ReduceFn::Add => ScalarFn::Add,
            ReduceFn::Max => ScalarFn::Max,
            ReduceFn::Min => ScalarFn::Min,
            ReduceFn::Mul => ScalarFn::Mul,
        }
    }

    /// Returns the name in the IR, which is that of [`ReduceFn::scalar`].
    pub fn name(self) -> &'static str {
        self.scalar().name()
    }

    /// Returns the reduction that has this name in the IR; `None` if there is none.
    pub fn from_name(name: &str) -> Option<ReduceFn> {
        ReduceFn::ALL.into_iter().find(|f| f.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_own_index_and_are_sorted() {
        for (i, row) in ROWS.iter().enumerate() {
            assert_eq!(row.function as usize, i);
            assert_eq!(ScalarFn::from_name(row.name), Some(row.function));
        }
        assert!(ROWS.windows(2).all(|w| w[0].name < w[1].name));
    }

    #[test]
    fn operand_types_are_checked() {
        assert_eq!(ScalarFn::Lt.result(&[DType::I64, DType::I64]), Ok(DType::Bool));
        assert_eq!(ScalarFn::Select.result(&[DType::Bool, DType::F32, DType::F32]), Ok(DType::F32));
        assert!(ScalarFn::Add.result(&[DType::F32, DType::I32]).is_err());
        assert!(ScalarFn::Exp.result(&[DType::I32]).is_err());
    }
}
