//! a field of a message  <=>  the checked value: expressions parsed, codes known, required parts present

use crate::{DType, Dim, Error, HostOp, Kind, Result};

/// Maximum length of an expression; no compiler writes longer ones, and the parsing time grows faster than the length.
const EXPRESSION_BYTES_MAX: usize = 1 << 14;

/// A checked value that is stored as `M` in a message.
pub trait Wire<M>: Sized {
    /// Reads and checks the value from the field `field` of a message. Errors: E0401.
    fn read(message: &M, field: &str) -> Result<Self>;

    /// Like [`read`](Wire::read), but expressions are over the arguments of a launch: `p0`, `b0`, `grid`.
    fn read_launch(message: &M, field: &str) -> Result<Self> {
        Self::read(message, field)
    }

    /// Returns the field that [`read`](Wire::read) reads as this value.
    fn write(&self) -> M;

    /// Returns the name that errors use for element `i` of the list `field`; `None` if errors do not name elements.
    fn label(_message: &M, _field: &str, _i: usize) -> Option<String> {
        None
    }
}

/// Declares a checked struct with the fields of the message of the same name, each converted by [`Wire`]. `as launch`
/// marks expressions over the arguments of a launch. Fields of the message after the semicolon are not part of the
/// struct; they are written with default values.
macro_rules! checked {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $ty:ty $(as $over:ident)?,)* $(; $($other:ident)*)? }
     $(|$message:ident, $list:ident, $i:ident| $label:expr)?) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $ty,)*
        }

        impl Wire<messages::$name> for $name {
            fn read(message: &messages::$name, _field: &str) -> Result<$name> {
                Ok($name { $($field: checked!(@$($over)?)(&message.$field, stringify!($field))?,)* })
            }

            fn write(&self) -> messages::$name {
                messages::$name { $($field: self.$field.write(),)* $($($other: Default::default(),)*)? }
            }

            $(fn label($message: &messages::$name, $list: &str, $i: usize) -> Option<String> {
                Some($label)
            })?
        }
    };
    (@) => { Wire::read };
    (@launch) => { Wire::read_launch };
}
pub(super) use checked;

/// Returns E0401, the error for a plan that the compiler would never write.
pub fn malformed(message: String) -> Box<Error> {
    Error::user("E0401", format!("the plan is malformed: {message}")).help("compile the model again")
}

/// Types that are stored in a message unchanged.
macro_rules! plain {
    ($($ty:ty)*) => {
        $(impl Wire<$ty> for $ty {
            fn read(message: &$ty, _field: &str) -> Result<$ty> {
                Ok(message.clone())
            }

            fn write(&self) -> $ty {
                self.clone()
            }
        })*
    };
}
plain!(String bool u32 u64 i64);

impl Wire<u32> for usize {
    fn read(message: &u32, _field: &str) -> Result<usize> {
        Ok(*message as usize)
    }

    fn write(&self) -> u32 {
        *self as u32
    }
}

fn list<T: Wire<M>, M>(message: &[M], field: &str, read: fn(&M, &str) -> Result<T>) -> Result<Vec<T>> {
    let element = |(i, m): (usize, &M)| {
        read(m, field).map_err(|e| match T::label(m, field, i) {
            Some(label) => e.node(label),
            None => e,
        })
    };
    message.iter().enumerate().map(element).collect()
}

impl<T: Wire<M>, M> Wire<Vec<M>> for Vec<T> {
    fn read(message: &Vec<M>, field: &str) -> Result<Vec<T>> {
        list(message, field, T::read)
    }

    fn read_launch(message: &Vec<M>, field: &str) -> Result<Vec<T>> {
        list(message, field, T::read_launch)
    }

    fn write(&self) -> Vec<M> {
        self.iter().map(T::write).collect()
    }
}

impl<T: Wire<M>, M> Wire<Option<M>> for Option<T> {
    fn read(message: &Option<M>, field: &str) -> Result<Option<T>> {
        message.as_ref().map(|m| T::read(m, field)).transpose()
    }

    fn write(&self) -> Option<M> {
        self.as_ref().map(T::write)
    }
}

/// An empty string represents `None`.
impl<T: Wire<String>> Wire<String> for Option<T> {
    fn read(message: &String, field: &str) -> Result<Option<T>> {
        Some(message).filter(|m| !m.is_empty()).map(|m| T::read(m, field)).transpose()
    }

    fn read_launch(message: &String, field: &str) -> Result<Option<T>> {
        Some(message).filter(|m| !m.is_empty()).map(|m| T::read_launch(m, field)).transpose()
    }

    fn write(&self) -> String {
        self.as_ref().map(T::write).unwrap_or_default()
    }
}

fn expression(message: &str, parse: fn(&str) -> Result<Dim>) -> Result<Dim> {
    if message.len() > EXPRESSION_BYTES_MAX {
        return Err(malformed(format!("an expression of {} bytes", message.len())));
    }
    parse(message).map_err(|e| malformed(e.message))
}

impl Wire<String> for Dim {
    fn read(message: &String, _field: &str) -> Result<Dim> {
        expression(message, Dim::parse_names)
    }

    fn read_launch(message: &String, _field: &str) -> Result<Dim> {
        expression(message, Dim::parse_launch)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Wire<i32> for DType {
    fn read(message: &i32, _field: &str) -> Result<DType> {
        let dtype = DType::from_code(*message);
        dtype.ok_or_else(|| malformed(format!("{message} is not an element type of tensors")))
    }

    fn write(&self) -> i32 {
        self.code()
    }
}

/// A tensor is represented by an empty string.
impl Wire<String> for Kind {
    fn read(message: &String, _field: &str) -> Result<Kind> {
        match message.as_str() {
            "" => Ok(Kind::Tensor),
            text => Kind::parse(text).ok_or_else(|| malformed(format!("`{text}` is no kind of value"))),
        }
    }

    fn write(&self) -> String {
        if *self == Kind::Tensor { String::new() } else { self.to_string() }
    }
}

impl Wire<String> for HostOp {
    fn read(message: &String, _field: &str) -> Result<HostOp> {
        let op = HostOp::parse(message);
        op.ok_or_else(|| malformed(format!("this version knows no host operation `{message}`")))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}
