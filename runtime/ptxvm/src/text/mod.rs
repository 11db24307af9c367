//! PTX text  =>  functions, variables and instructions, nothing resolved yet

pub mod ast;
pub mod body;
pub mod lex;
pub mod parse;
pub mod types;
