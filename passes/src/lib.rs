//! (under construction)

pub mod kernel;
