//! The level of order and place: entry points as programs of launches over placed buffers

pub mod ir;
pub mod program;

pub use program::{Action, Buffer, Entry, Plan, Step};
