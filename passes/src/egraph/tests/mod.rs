//! Rules against the interpreter, weakened rules that must be caught, extraction against exhaustive search

mod harness;
mod rules;
mod sketch;
mod twins;
mod values;
mod weakened;
mod whole;
