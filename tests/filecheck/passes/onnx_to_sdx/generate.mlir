// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// The depth is read from data; negative indices count from its end.

// CHECK-LABEL: func.func @one_hot
// CHECK: sdx.bind
// CHECK: sdx.map "lt"
// CHECK: sdx.map "add"
// CHECK: sdx.map "select"
// CHECK: sdx.iota axis 0
// CHECK: sdx.map "eq"
// CHECK: sdx.map "select"
func.func @one_hot(%i: !sdx.tensor<[n], i64>, %d: !sdx.tensor<[], i64>, %v: !sdx.tensor<[2], f32>) -> !v {
  %0 = onnx.node "OneHot"(%i, %d, %v) opset 11 {axis = 0 : i64}
    : (!sdx.tensor<[n], i64>, !sdx.tensor<[], i64>, !sdx.tensor<[2], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Repetitions stand before each dimension.

// CHECK-LABEL: func.func @tile
// CHECK: sdx.broadcast %{{.*}} -> <[2, b, 3, s], f32>
// CHECK: sdx.reshape %{{.*}} -> <[2*b, 3*s], f32>
func.func @tile(%x: !sdx.tensor<[b, s], f32>) -> !v {
  %t = sdx.const dense<[2, 3]> : tensor<2xi64> : !sdx.tensor<[2], i64>
  %0 = onnx.node "Tile"(%x, %t) opset 13 {} : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[2], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Coordinates are compared.

// CHECK-LABEL: func.func @triangles
// CHECK: sdx.iota axis 0
// CHECK: sdx.iota axis 1
// CHECK: sdx.map "le"
// CHECK: sdx.map "select"
// CHECK: sdx.iota
// CHECK: sdx.map "eq"
// CHECK: sdx.convert
func.func @triangles(%x: !sdx.tensor<[b, s], f32>, %k: !sdx.tensor<[], i64>) -> (!v, !v) {
  %0 = onnx.node "Trilu"(%x, %k) opset 14 {upper = 0 : i64} : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[], i64>) -> !v
  %1 = onnx.node "EyeLike"(%x) opset 9 {k = 1 : i64} : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Places before the length are mirrored.

// CHECK-LABEL: func.func @reverse_sequence
// CHECK: sdx.map "sub"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "lt"
// CHECK: sdx.map "select"
// CHECK: sdx.gather
func.func @reverse_sequence(%x: !sdx.tensor<[t, n], f32>, %l: !sdx.tensor<[n], i64>) -> !v {
  %0 = onnx.node "ReverseSequence"(%x, %l) opset 10 {} : (!sdx.tensor<[t, n], f32>, !sdx.tensor<[n], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, m], f32>

// CHECK-LABEL: func.func @older_triangle
// CHECK: sdx.map "le"
// CHECK: sdx.map "select"
func.func @older_triangle(%x: !x) -> !v {
  %0 = onnx.node "Trilu"(%x) opset 1 domain "com.microsoft" {} : (!x) -> !v
  return %0 : !v
}
