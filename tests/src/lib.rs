//! Helpers shared by the test suites: checking models, emitting plans, building and running the programs, small ONNX
//! models, prepared, cut and deepened models, entries of artifacts, damaged bytes, schemas and trees of protobuf
//! messages, targets of the fuzzer, the selection of cases, PTX in libraries, the sources, modules and crates of the
//! workspace, trust in test artifacts

pub mod checked;
pub mod cut;
pub mod damage;
pub mod deepened;
pub mod drawn;
pub mod emitted;
pub mod fatbin;
pub mod fuzz;
pub mod metadata;
pub mod modules;
pub mod onnx;
pub mod prepared;
pub mod programs;
pub mod schemas;
pub mod sdx;
pub mod sources;
pub mod trust;
pub mod wire;
