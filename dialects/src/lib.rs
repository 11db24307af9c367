//! (under construction)
use mlir_link as _;
