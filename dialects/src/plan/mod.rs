//! The plan level, which fixes execution order and memory: entry points as sequences of launches over placed buffers

pub mod ir;
pub mod program;

pub use program::{Buffer, Entry, Plan};
pub use sardonyx_base::plan::{Action, Bind, Copy, Host, HostCall, Launch, Operand, Step};
