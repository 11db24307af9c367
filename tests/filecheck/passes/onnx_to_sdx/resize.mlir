// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// An axis with a scale of 1 stays. Places are computed in f64: (i + 1/2) / scale - 1/2, rounded, inside the operand.

// CHECK-LABEL: func.func @nearest
// CHECK: %[[I:.*]] = sdx.iota axis 0 : <[2*s], i64>
// CHECK: sdx.convert %[[I]] : <[2*s], i64> -> <[2*s], f64>
// CHECK: sdx.map "ceil"
// CHECK: sdx.map "max"
// CHECK: sdx.map "min"
// CHECK: sdx.gather %arg0[%{{.*}}] axis 1 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[2*s], i64>) -> !sdx.tensor<[b, 2*s], f32>
func.func @nearest(%x: !x) -> !v {
  %none = onnx.none : !v
  %n = sdx.const dense<[1.0, 2.0]> : tensor<2xf32> : !sdx.tensor<[2], f32>
  %0 = onnx.node "Resize"(%x, %none, %n) opset 13 {} : (!x, !v, !sdx.tensor<[2], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// Two neighbours, weighted.

// CHECK-LABEL: func.func @linear
// CHECK: %[[N:.*]] = sdx.gather %arg0[%{{.*}}] axis 1 : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[8, 2], i64>) -> !sdx.tensor<[b, 8, 2], f32>
// CHECK: %[[P:.*]] = sdx.map "mul"(%[[N]],
// CHECK: sdx.reduce "add" %[[P]] axes [2]
func.func @linear(%x: !x) -> !v {
  %none = onnx.none : !v
  %n = sdx.const dense<[8]> : tensor<1xi64> : !sdx.tensor<[1], i64>
  %0 = onnx.node "Resize"(%x, %none, %none, %n) opset 18 {mode = "linear", axes = [1]} : (!x, !v, !v, !sdx.tensor<[1], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @old
// CHECK: sdx.map "floor"
// CHECK: sdx.gather %arg0[%{{.*}}] axis 1 : {{.*}} -> !sdx.tensor<[b, ((3*s) floordiv (2))], f32>
func.func @old(%x: !x) -> !v {
  %0 = onnx.node "Upsample"(%x) opset 7 {scales = [1.0 : f32, 1.5 : f32]} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, h, w], f32>
!s = !sdx.tensor<[2], f16>

// Scales that a converter of types has cast, and those that are joined of constants, are constants.

// CHECK-LABEL: func.func @cast_scales
// CHECK-SAME: -> !sdx.tensor<[b, 3, 2*h, 2*w], f32>
func.func @cast_scales(%x: !x) -> !v {
  %s = sdx.const dense<[1.0, 1.0]> : tensor<2xf16> : !s
  %t = sdx.const dense<[2.0, 2.0]> : tensor<2xf16> : !s
  %0 = onnx.node "Concat"(%s, %t) opset 13 {axis = 0 : i64} : (!s, !s) -> !v
  %1 = onnx.node "Cast"(%0) opset 13 {to = 1 : i64} : (!v) -> !v
  %2 = onnx.none : !v
  %3 = onnx.node "Resize"(%x, %2, %1) opset 13 {mode = "nearest"} : (!x, !v, !v) -> !v
  return %3 : !v
}
