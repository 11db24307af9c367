//! sequence(f32:2)  <=>  the type of an opaque value as far as it is known: here, a sequence of f32 tensors of rank 2

use super::builder::Builder;
use sardonyx_base::{DType, Dim, Error, Result};
use sardonyx_dialects::sdx::{TensorType, Value};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// A tensor; `rank` is `None` if it is not known.
    Tensor {
        dtype: DType,
        rank: Option<usize>,
    },
    Sequence(Box<Held>),
    Optional(Box<Held>),
    /// A map, given by the type of its values; the keys are strings or i64.
    Map(Box<Held>),
    /// The type is not known.
    Unknown,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Tensor { dtype, rank: Some(rank) } => write!(f, "{dtype}:{rank}"),
            Held::Tensor { dtype, rank: None } => write!(f, "{dtype}:?"),
            Held::Sequence(of) => write!(f, "sequence({of})"),
            Held::Optional(of) => write!(f, "optional({of})"),
            Held::Map(of) => write!(f, "map({of})"),
            Held::Unknown => f.write_str("?"),
        }
    }
}

impl Held {
    pub fn of_type(ty: &TensorType) -> Held {
        Held::Tensor { dtype: ty.dtype, rank: Some(ty.rank()) }
    }

    /// Parses the output of `Display`; returns `Unknown` for any other text.
    pub fn parse(text: &str) -> Held {
        if let Some((kind, inside)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) {
            let of = Box::new(Held::parse(inside));
            return match kind {
                "sequence" => Held::Sequence(of),
                "optional" => Held::Optional(of),
                "map" => Held::Map(of),
                _ => Held::Unknown,
            };
        }
        let parsed = text.split_once(':').and_then(|(dtype, rank)| Some((DType::from_name(dtype)?, rank)));
        match parsed {
            Some((dtype, rank)) => Held::Tensor { dtype, rank: rank.parse().ok() },
            None => Held::Unknown,
        }
    }

    /// Returns the type of a value that has one of two types; what differs between them is unknown in the result. If
    /// one of the types is unknown, returns the other one.
    pub fn joined(&self, other: &Held) -> Held {
        match (self, other) {
            (Held::Unknown, known) | (known, Held::Unknown) => known.clone(),
            (Held::Tensor { dtype, rank }, Held::Tensor { dtype: d, rank: r }) if dtype == d => {
                Held::Tensor { dtype: *dtype, rank: rank.filter(|_| rank == r) }
            }
            (Held::Sequence(a), Held::Sequence(b)) => Held::Sequence(Box::new(a.joined(b))),
            (Held::Optional(a), Held::Optional(b)) => Held::Optional(Box::new(a.joined(b))),
            (Held::Map(a), Held::Map(b)) => Held::Map(Box::new(a.joined(b))),
            // A sequence is accepted as an optional that contains this sequence.
            (Held::Optional(a), b @ Held::Sequence(_)) | (b @ Held::Sequence(_), Held::Optional(a)) => {
                Held::Optional(Box::new(a.joined(b)))
            }
            (_, _) => Held::Unknown,
        }
    }

    pub fn is_tensor(&self) -> bool {
        matches!(self, Held::Tensor { .. })
    }

    /// Returns the type of a value that has this type at first and the type `new` later, for example in the next
    /// iteration of a loop. As [`Held::joined`], except that a tensor of unknown rank in this type takes the rank from
    /// `new`: it describes the elements of a sequence that is still empty.
    pub fn grown(&self, new: &Held) -> Held {
        match (self, new) {
            (Held::Tensor { dtype, rank: None }, Held::Tensor { dtype: d, .. }) if dtype == d => new.clone(),
            (Held::Sequence(a), Held::Sequence(b)) => Held::Sequence(Box::new(a.grown(b))),
            (Held::Optional(a), Held::Optional(b)) => Held::Optional(Box::new(a.grown(b))),
            (_, _) => self.joined(new),
        }
    }
}

impl Builder {
    /// Returns the type of a value, including the types of its contents if the value is opaque.
    pub fn held(&self, v: Value) -> Held {
        match self.dtype(v) {
            DType::Value => self.values_held.get(&v).cloned().unwrap_or(Held::Unknown),
            _ => Held::of_type(self.ty(v)),
        }
    }

    pub fn hold(&mut self, v: Value, held: Held) {
        if self.dtype(v) == DType::Value {
            self.values_held.insert(v, held);
        }
    }

    /// Returns the type, in `sdx`, of a value that `held` describes, and the new data-dependent symbols that are its
    /// dimensions. Errors: E0203 if the type or the rank is not known.
    pub fn type_of(&mut self, held: &Held) -> Result<(TensorType, Vec<String>)> {
        match held {
            Held::Sequence(_) | Held::Optional(_) | Held::Map(_) => Ok((TensorType::new(DType::Value, vec![]), vec![])),
            Held::Tensor { dtype, rank: Some(rank) } => {
                let fresh: Vec<String> = (0..*rank).map(|_| self.data_symbol()).collect();
                let dims: Vec<Dim> = fresh.iter().map(|s| Dim::symbol(s)).collect();
                Ok((TensorType::new(*dtype, dims), fresh))
            }
            Held::Tensor { rank: None, .. } | Held::Unknown => {
                let what = if *held == Held::Unknown { "type" } else { "rank" };
                let error = Error::user("E0203", format!("the {what} of the elements of a sequence is not known"));
                Err(error.node(&self.origin).help("export the model with the shapes of the sequence's elements"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_parsed_back() {
        for text in ["f32:2", "i64:?", "sequence(f32:2)", "optional(sequence(string:0))", "map(f32:0)", "?"] {
            assert_eq!(Held::parse(text).to_string(), text);
        }
        assert_eq!(Held::parse("list(f32:2"), Held::Unknown);
    }

    #[test]
    fn what_differs_is_not_known() {
        let joined = |a: &str, b: &str| Held::parse(a).joined(&Held::parse(b)).to_string();
        assert_eq!(joined("f32:2", "f32:3"), "f32:?");
        assert_eq!(joined("sequence(?)", "sequence(f32:3)"), "sequence(f32:3)");
        assert_eq!(joined("f32:2", "i64:2"), "?");
    }
}
