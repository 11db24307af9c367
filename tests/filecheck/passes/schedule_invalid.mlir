// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,schedule)' 2>&1 | FileCheck %s

// CHECK: error[E0203]: a shape that depends on data is not supported in a compiled plan yet
// CHECK-NEXT: --> node /a/Reshape
// CHECK-NEXT: help: export the model with shapes that follow from its input shapes
func.func @data(%v: !sdx.tensor<[], i64>) -> !sdx.tensor<[n], i64> attributes {sdx.symbols = ["data n 0.."]} {
  %0 = sdx.bind "n" = %v : !sdx.tensor<[], i64> -> !sdx.tensor<[], i64> loc("/a/Reshape")
  %1 = sdx.iota axis 0 : !sdx.tensor<[n], i64>
  return %1 : !sdx.tensor<[n], i64>
}
