// RUN: not sardonyx-opt %s --pass-pipeline='builtin.module(fold-constants)' 2>&1 | FileCheck %s

// What has no value for any input is the model's fault, and the node is named.

// CHECK: error[E0303]: the index 2 is out of range 0..2 of axis 0
// CHECK-NEXT: --> node /Gather_3
func.func @index() -> !sdx.tensor<[], f32> {
  %a = sdx.const dense<[2.0, 4.0]> : tensor<2xf32> : !sdx.tensor<[2], f32>
  %i = sdx.const dense<2> : tensor<i64> : !sdx.tensor<[], i64>
  %0 = sdx.gather %a[%i] axis 0 : (!sdx.tensor<[2], f32>, !sdx.tensor<[], i64>) -> !sdx.tensor<[], f32> loc("/Gather_3")
  return %0 : !sdx.tensor<[], f32>
}
