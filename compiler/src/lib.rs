//! model.onnx  =>  model.sdx: reading ONNX, the pipeline, machine code

pub mod bisect;
pub mod calibrate;
pub mod commands;
pub mod compile;
pub mod emit;
pub mod entries;
pub mod explain;
pub mod import;
pub mod layers;
pub mod meaning;
pub mod module;
pub mod movement;
pub mod onnx;
pub mod pipeline;
pub mod placement;
pub mod planner;
pub mod plans;
pub mod precision;
mod prepare;
pub mod reduce;
pub mod reference;
pub mod requires;
pub mod selftest;
mod session;
pub mod sizes;
pub mod sparsify;
pub mod targets;
