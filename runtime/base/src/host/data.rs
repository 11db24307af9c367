//! operations on values that kernels cannot process: strings, sequences, optionals

use super::text::Case;
use super::tfidf::{Ngrams, Weighing};
use super::{Budget, couple, image, pattern, sequence, text, tfidf, unfit};
use crate::{DType, Result, Tensor};
use std::fmt;

/// An operation on strings, sequences, optionals, maps or images, with its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataOp {
    /// values … => a sequence of them
    SequenceConstruct,
    /// sequence, position  =>  the value there
    SequenceAt,
    /// sequence, value, maybe position  =>  sequence
    SequenceInsert,
    /// sequence, maybe position  =>  sequence
    SequenceErase,
    /// sequence  =>  i64
    SequenceLength,
    /// numbers [n, k] or [k], keys [k]  =>  sequence with a map for each row
    ZipMap,
    /// map, words [k], scalar  =>  [1, k]: the map's value of each word, or the scalar if the map lacks it
    DictVectorizer,
    /// tensor, maybe lengths  =>  sequence of its parts along an axis
    SplitToSequence {
        /// The axis to split; a negative one counts from the end.
        axis: i64,
        /// Whether the parts keep the axis if no lengths are given: ONNX `keepdims`.
        keep: bool,
    },
    /// sequence of tensors  =>  the tensors joined along an axis, or along a new one
    ConcatFromSequence {
        /// The axis of the result along which tensors are joined; a negative one counts from the end.
        axis: i64,
        /// Whether the axis is inserted, which stacks the tensors.
        new_axis: bool,
    },
    /// maybe a value  =>  optional
    Optional,
    /// maybe a value  =>  bool
    OptionalHasElement,
    /// optional or value  =>  value
    OptionalGetElement,
    /// strings, strings  =>  strings
    StringConcat,
    /// strings, strings  =>  bools
    StringEqual,
    /// strings, delimiter  =>  parts along a new axis, number of parts; a negative `limit` means no limit
    StringSplit {
        /// Maximum number of splits per string: ONNX `maxsplit`.
        limit: i64,
    },
    /// strings, stop words  =>  strings
    StringNormalizer {
        /// Change of the case of the strings that are kept.
        case: Case,
        /// Whether strings are compared with stop words as they are; otherwise in lower case.
        sensitive: bool,
    },
    /// strings, pattern  =>  bools: whether each string matches the pattern as a whole
    RegexFullMatch,
    /// numbers  =>  strings
    StringFromNumbers,
    /// strings  =>  f64 or i64
    StringToNumbers {
        /// Whether the result is f64; otherwise it is i64.
        float: bool,
    },
    /// elements, keys  =>  i64: the position of each element among the keys, or the number of keys if it is no key
    LookUp,
    /// strings, positions  =>  the strings at these positions
    Pick,
    /// probabilities of pairs of classes [n, pairs]  =>  of classes [n, k]
    CouplePairs,
    /// see [`tfidf::count`]
    TfIdf(Ngrams),
    /// the bytes of a file  =>  u8 [height, width, channels]
    ImageDecoder {
        /// Channels of the result.
        pixels: image::Pixels,
    },
}

impl fmt::Display for DataOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            DataOp::SplitToSequence { axis, keep } => write!(f, " axis={axis} keep={}", *keep as u8),
            DataOp::ConcatFromSequence { axis, new_axis } => write!(f, " axis={axis} new={}", *new_axis as u8),
            DataOp::StringSplit { limit } => write!(f, " limit={limit}"),
            DataOp::StringNormalizer { case, sensitive } => {
                write!(f, " case={} sensitive={}", *case as u8, *sensitive as u8)
            }
            DataOp::StringToNumbers { float } => write!(f, " float={}", *float as u8),
            DataOp::TfIdf(n) => {
                let (least, most) = n.lengths;
                write!(f, " least={least} most={most} skip={} weighing={}", n.skip_max, n.weighing as u8)
            }
            DataOp::ImageDecoder { pixels } => write!(f, " pixels={}", *pixels as u8),
            _ => Ok(()),
        }
    }
}

impl DataOp {
    /// Returns the name of the operation without its attributes.
    pub fn name(&self) -> &'static str {
        match self {
            DataOp::SequenceConstruct => "SequenceConstruct",
            DataOp::SequenceAt => "SequenceAt",
            DataOp::SequenceInsert => "SequenceInsert",
            DataOp::SequenceErase => "SequenceErase",
            DataOp::SequenceLength => "SequenceLength",
            DataOp::ZipMap => "ZipMap",
            DataOp::DictVectorizer => "DictVectorizer",
            DataOp::SplitToSequence { .. } => "SplitToSequence",
            DataOp::ConcatFromSequence { .. } => "ConcatFromSequence",
            DataOp::Optional => "Optional",
            DataOp::OptionalHasElement => "OptionalHasElement",
            DataOp::OptionalGetElement => "OptionalGetElement",
            DataOp::StringConcat => "StringConcat",
            DataOp::StringEqual => "StringEqual",
            DataOp::StringSplit { .. } => "StringSplit",
            DataOp::StringNormalizer { .. } => "StringNormalizer",
            DataOp::RegexFullMatch => "RegexFullMatch",
            DataOp::StringFromNumbers => "StringFromNumbers",
            DataOp::StringToNumbers { .. } => "StringToNumbers",
            DataOp::LookUp => "LookUp",
            DataOp::Pick => "Pick",
            DataOp::CouplePairs => "CouplePairs",
            DataOp::TfIdf(_) => "TfIdf",
            DataOp::ImageDecoder { .. } => "ImageDecoder",
        }
    }

    /// Parses text that `Display` has written, such as `SplitToSequence axis=0 keep=1`.
    pub fn parse(text: &str) -> Option<DataOp> {
        let mut words = text.split(' ');
        let name = words.next()?;
        let mut given: Vec<(&str, i64)> = vec![];
        for word in words {
            let (key, value) = word.split_once('=')?;
            given.push((key, value.parse().ok()?));
        }
        let mut take = |key: &str| {
            let at = given.iter().position(|(k, _)| *k == key)?;
            Some(given.remove(at).1)
        };
        let flag = |value: i64| (0..2).contains(&value).then_some(value == 1);
        let op = match name {
            "SequenceConstruct" => DataOp::SequenceConstruct,
            "SequenceAt" => DataOp::SequenceAt,
            "SequenceInsert" => DataOp::SequenceInsert,
            "SequenceErase" => DataOp::SequenceErase,
            "SequenceLength" => DataOp::SequenceLength,
            "ZipMap" => DataOp::ZipMap,
            "DictVectorizer" => DataOp::DictVectorizer,
            "SplitToSequence" => DataOp::SplitToSequence { axis: take("axis")?, keep: flag(take("keep")?)? },
            "ConcatFromSequence" => DataOp::ConcatFromSequence { axis: take("axis")?, new_axis: flag(take("new")?)? },
            "Optional" => DataOp::Optional,
            "OptionalHasElement" => DataOp::OptionalHasElement,
            "OptionalGetElement" => DataOp::OptionalGetElement,
            "StringConcat" => DataOp::StringConcat,
            "StringEqual" => DataOp::StringEqual,
            "StringSplit" => DataOp::StringSplit { limit: take("limit")? },
            "StringNormalizer" => {
                let case = *[Case::None, Case::Lower, Case::Upper].get(usize::try_from(take("case")?).ok()?)?;
                DataOp::StringNormalizer { case, sensitive: flag(take("sensitive")?)? }
            }
            "RegexFullMatch" => DataOp::RegexFullMatch,
            "StringFromNumbers" => DataOp::StringFromNumbers,
            "StringToNumbers" => DataOp::StringToNumbers { float: flag(take("float")?)? },
            "LookUp" => DataOp::LookUp,
            "Pick" => DataOp::Pick,
            "CouplePairs" => DataOp::CouplePairs,
            "TfIdf" => {
                let size = |value: i64| usize::try_from(value).ok();
                let kinds = [Weighing::Tf, Weighing::Idf, Weighing::TfIdf];
                DataOp::TfIdf(Ngrams {
                    lengths: (size(take("least")?)?, size(take("most")?)?),
                    skip_max: size(take("skip")?)?,
                    weighing: *kinds.get(size(take("weighing")?)?)?,
                })
            }
            "ImageDecoder" => {
                let pixels = *image::Pixels::ALL.get(usize::try_from(take("pixels")?).ok()?)?;
                DataOp::ImageDecoder { pixels }
            }
            _ => return None,
        };
        given.is_empty().then_some(op)
    }

    /// Number of operands; `None` if it varies.
    pub fn n_args(&self) -> Option<usize> {
        match self {
            DataOp::SequenceConstruct | DataOp::SequenceInsert | DataOp::SequenceErase => None,
            DataOp::SplitToSequence { .. } | DataOp::Optional | DataOp::OptionalHasElement => None,
            DataOp::SequenceLength | DataOp::ConcatFromSequence { .. } | DataOp::OptionalGetElement => Some(1),
            DataOp::StringFromNumbers | DataOp::StringToNumbers { .. } | DataOp::ImageDecoder { .. } => Some(1),
            DataOp::CouplePairs => Some(1),
            DataOp::SequenceAt | DataOp::StringConcat | DataOp::StringEqual | DataOp::StringSplit { .. } => Some(2),
            DataOp::StringNormalizer { .. } | DataOp::RegexFullMatch | DataOp::LookUp | DataOp::Pick => Some(2),
            DataOp::ZipMap => Some(2),
            DataOp::DictVectorizer => Some(3),
            DataOp::TfIdf(_) => Some(5),
        }
    }

    /// Whether result `i` may have this type and rank. Values taken out of a sequence have the type they were inserted
    /// with.
    pub fn admits(&self, i: usize, ranks: &[usize], dtype: DType, rank: usize) -> bool {
        let of = |n: usize| ranks.get(n).copied();
        let both = || of(0).zip(of(1)).map(|(a, b)| a.max(b));
        let value = (dtype, rank) == (DType::Value, 0);
        match (self, i) {
            (DataOp::StringSplit { .. }, 0) => dtype == DType::String && of(0).map(|r| r + 1) == Some(rank),
            (DataOp::StringSplit { .. }, 1) => dtype == DType::I64 && of(0) == Some(rank),
            (_, 1..) => false,
            (DataOp::SequenceConstruct | DataOp::SequenceInsert | DataOp::SequenceErase, 0) => value,
            (DataOp::SplitToSequence { .. } | DataOp::Optional | DataOp::ZipMap, 0) => value,
            (DataOp::SequenceAt | DataOp::OptionalGetElement, 0) => dtype != DType::Value || rank == 0,
            (DataOp::ConcatFromSequence { .. }, 0) => dtype != DType::Value,
            (DataOp::DictVectorizer, 0) => dtype != DType::Value && rank == 2,
            (DataOp::SequenceLength, 0) => (dtype, rank) == (DType::I64, 0),
            (DataOp::OptionalHasElement, 0) => (dtype, rank) == (DType::Bool, 0),
            (DataOp::StringConcat, 0) => dtype == DType::String && both() == Some(rank),
            (DataOp::StringEqual, 0) => dtype == DType::Bool && both() == Some(rank),
            (DataOp::StringNormalizer { .. } | DataOp::StringFromNumbers, 0) => {
                dtype == DType::String && of(0) == Some(rank)
            }
            (DataOp::Pick, 0) => dtype == DType::String && of(1) == Some(rank),
            (DataOp::RegexFullMatch, 0) => dtype == DType::Bool && of(0) == Some(rank),
            (DataOp::StringToNumbers { float }, 0) => {
                dtype == (if *float { DType::F64 } else { DType::I64 }) && of(0) == Some(rank)
            }
            (DataOp::LookUp, 0) => dtype == DType::I64 && of(0) == Some(rank),
            (DataOp::CouplePairs, 0) => (dtype, rank) == (DType::F32, 2) && of(0) == Some(2),
            (DataOp::TfIdf(_), 0) => dtype == DType::F32 && of(0) == Some(rank),
            (DataOp::ImageDecoder { .. }, 0) => (dtype, rank) == (DType::U8, 3),
        }
    }

    /// Computes the results. Errors: E0301 and E0303 if the operands do not fit, E0106 for a pattern.
    pub fn run(&self, args: &[Tensor], budget: &Budget) -> Result<Vec<Tensor>> {
        let one = match (self, args) {
            (DataOp::SequenceConstruct, args) => sequence::construct(args, budget)?,
            (DataOp::SequenceAt, [s, at]) => sequence::at(s, at, budget)?,
            (DataOp::SequenceInsert, [s, v]) => sequence::insert(s, v, None, budget)?,
            (DataOp::SequenceInsert, [s, v, at]) => sequence::insert(s, v, Some(at), budget)?,
            (DataOp::SequenceErase, [s]) => sequence::erase(s, None, budget)?,
            (DataOp::SequenceErase, [s, at]) => sequence::erase(s, Some(at), budget)?,
            (DataOp::SequenceLength, [s]) => sequence::length(s, budget)?,
            (DataOp::ZipMap, [x, keys]) => sequence::zip_map(x, keys, budget)?,
            (DataOp::DictVectorizer, [map, words, absent]) => sequence::dict_vectorizer(map, words, absent, budget)?,
            (DataOp::SplitToSequence { axis, keep }, [x]) => sequence::split(x, None, *axis, *keep, budget)?,
            (DataOp::SplitToSequence { axis, keep }, [x, by]) => sequence::split(x, Some(by), *axis, *keep, budget)?,
            (DataOp::ConcatFromSequence { axis, new_axis }, [s]) => sequence::join(s, *axis, *new_axis, budget)?,
            (DataOp::Optional, []) => sequence::optional(None, budget)?,
            (DataOp::Optional, [v]) => sequence::optional(Some(v), budget)?,
            (DataOp::OptionalHasElement, []) => sequence::has_element(None, budget)?,
            (DataOp::OptionalHasElement, [v]) => sequence::has_element(Some(v), budget)?,
            (DataOp::OptionalGetElement, [v]) => sequence::get_element(v, budget)?,
            (DataOp::StringConcat, [a, b]) => text::concat(a, b, budget)?,
            (DataOp::StringEqual, [a, b]) => text::equal(a, b, budget)?,
            (DataOp::StringSplit { limit }, [x, by]) => return text::split(x, by, *limit, budget),
            (DataOp::StringNormalizer { case, sensitive }, [x, stop]) => {
                text::normalise(x, stop, *case, *sensitive, budget)?
            }
            (DataOp::RegexFullMatch, [x, pattern]) => pattern::full_match(x, pattern, budget)?,
            (DataOp::StringFromNumbers, [x]) => text::from_numbers(x, budget)?,
            (DataOp::StringToNumbers { float }, [x]) => text::to_numbers(x, *float, budget)?,
            (DataOp::LookUp, [x, keys]) => text::look_up(x, keys, budget)?,
            (DataOp::Pick, [x, at]) => text::pick(x, at, budget)?,
            (DataOp::CouplePairs, [pairs]) => couple::couple(pairs, budget)?,
            (DataOp::TfIdf(ngrams), args) => tfidf::count(ngrams, args, budget)?,
            (DataOp::ImageDecoder { pixels }, [x]) => image::decode(x, *pixels, budget)?,
            (_, args) => return Err(unfit(format!("`{self}` does not take {} operands", args.len()))),
        };
        Ok(vec![one])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_parsed_back() {
        let ngrams = Ngrams { lengths: (1, 2), skip_max: 5, weighing: Weighing::Idf };
        for op in [
            DataOp::SequenceAt,
            DataOp::SplitToSequence { axis: -1, keep: true },
            DataOp::ConcatFromSequence { axis: 2, new_axis: false },
            DataOp::StringSplit { limit: -1 },
            DataOp::StringNormalizer { case: Case::Upper, sensitive: false },
            DataOp::StringToNumbers { float: true },
            DataOp::TfIdf(ngrams),
            DataOp::ImageDecoder { pixels: image::Pixels::Bgr },
        ] {
            assert_eq!(DataOp::parse(&op.to_string()), Some(op));
        }
        for wrong in ["", "SequenceAt axis=1", "StringNormalizer case=3 sensitive=0", "StringSplit", "TfIdf least=1"] {
            assert_eq!(DataOp::parse(wrong), None, "{wrong}");
        }
    }
}
