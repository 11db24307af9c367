//! (under construction)

pub mod codegen;
