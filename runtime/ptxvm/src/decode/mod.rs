//! functions and statements  =>  programs: names resolved, calls inlined, every instruction decoded or refused

mod bulk;
mod classes;
mod compare;
mod control;
mod convert;
mod float;
mod flow;
mod half;
mod int;
mod logic;
mod matrix;
mod mbarrier;
mod memory;
mod mods;
mod module;
mod moves;
mod operands;
pub mod ops;
pub mod program;
mod scope;
mod statements;
mod table;
mod target;
mod tracking;
mod warp;
mod wgmma;
mod wmma;

pub use mbarrier::PENDING_SHIFT;
pub use program::Module;
pub use statements::SHARED_BYTES_MAX;
