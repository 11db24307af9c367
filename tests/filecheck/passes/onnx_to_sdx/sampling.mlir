// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 3, h, w], f32>
!g = !sdx.tensor<[b, p, q, 2], f32>

// Two neighbours along each axis; none counts outside.

// CHECK-LABEL: func.func @grid
// CHECK: sdx.gather %{{.*}} axis 0 : (!sdx.tensor<[3*b*h*w], f32>, !sdx.tensor<[b, 3, p, q, 2, 2], i64>)
// CHECK: sdx.map "mul"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "add" %{{.*}} axes [4, 5] : {{.*}} -> <[b, 3, p, q], f32>
func.func @grid(%x: !x, %g: !g) -> !v {
  %0 = onnx.node "GridSample"(%x, %g) opset 20 {} : (!x, !g) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, h, w], f32>
!g = !sdx.tensor<[b, p, q, 2], f32>

// The nearest element has no weight; places are turned back at the borders.

// CHECK-LABEL: func.func @nearest
// CHECK: sdx.map "rem"
// CHECK: sdx.gather
// CHECK-NOT: sdx.map "mul"
// CHECK-NOT: sdx.map "select"
// CHECK: return
func.func @nearest(%x: !x, %g: !g) -> !v {
  %0 = onnx.node "GridSample"(%x, %g) opset 20 {mode = "nearest", padding_mode = "reflection"} : (!x, !g) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!t = !sdx.tensor<[b, 2, 3], f32>

// CHECK-LABEL: func.func @affine
// CHECK: sdx.iota axis 0 : <[5], i64>
// CHECK: sdx.iota axis 0 : <[4], i64>
// CHECK: sdx.map "add"{{.*}} -> !sdx.tensor<[2, 4, 5, 2], f32>
func.func @affine(%t: !t) -> !v {
  %n = sdx.const dense<[2, 3, 4, 5]> : tensor<4xi64> : !sdx.tensor<[4], i64>
  %0 = onnx.node "AffineGrid"(%t, %n) opset 20 {} : (!t, !sdx.tensor<[4], i64>) -> !v
  return %0 : !v
}
