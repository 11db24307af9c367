// Shared by all levels: the trait that delegates verification to Rust.
#ifndef SARDONYX_BASE
#define SARDONYX_BASE
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// The rules live in Rust (`verify.rs`): one callback serves every operation of every level.
def RustVerified : NativeOpTrait<"RustVerified"> { let cppNamespace = "::sardonyx"; }
#endif
