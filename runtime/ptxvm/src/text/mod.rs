//! PTX text  =>  functions, variables and instructions, with names not yet resolved

pub mod ast;
pub mod body;
pub mod lex;
pub mod parse;
pub mod types;
