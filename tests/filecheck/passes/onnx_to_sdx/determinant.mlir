// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Two rows: one elimination, in f64, and the product of the pivots.

// CHECK-LABEL: func.func @det
// CHECK: sdx.convert %{{.*}} -> <[b, 2, 2], f64>
// CHECK: sdx.map "abs"
// CHECK: sdx.reduce "max"
// CHECK: sdx.reduce "min"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "div"
// CHECK: sdx.map "select"
// CHECK: sdx.map "mul"
// CHECK: sdx.map "sub"
// CHECK: sdx.convert %{{.*}} -> <[b], f32>
func.func @det(%x: !sdx.tensor<[b, 2, 2], f32>) -> !v {
  %0 = onnx.node "Det"(%x) opset 11 {} : (!sdx.tensor<[b, 2, 2], f32>) -> !v
  return %0 : !v
}
