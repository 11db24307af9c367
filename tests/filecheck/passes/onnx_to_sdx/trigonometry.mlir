// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @circular
// CHECK: sdx.map "atan"
// CHECK: sdx.map "sin"
// CHECK: sdx.map "cos"
// CHECK: sdx.map "div"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "div"
// CHECK: sdx.map "atan"
// CHECK: sdx.map "div"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "atan"
// CHECK: sdx.map "mul"
func.func @circular(%x: !x) -> (!v, !v, !v, !v) {
  %atan = onnx.node "Atan"(%x) opset 13 {} : (!x) -> !v
  %tan = onnx.node "Tan"(%x) opset 13 {} : (!x) -> !v
  %asin = onnx.node "Asin"(%x) opset 13 {} : (!x) -> !v
  %acos = onnx.node "Acos"(%x) opset 13 {} : (!x) -> !v
  return %atan, %tan, %asin, %acos : !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// CHECK-LABEL: func.func @hyperbolic
// CHECK: sdx.map "exp"
// CHECK: sdx.map "add"
// CHECK: sdx.map "tanh"
// CHECK: sdx.map "select"
// CHECK: sdx.map "log"
// CHECK: sdx.map "log"
// CHECK: sdx.map "log"
// CHECK: sdx.map "log"
// CHECK: sdx.map "log"
func.func @hyperbolic(%x: !x) -> (!v, !v, !v, !v, !v) {
  %cosh = onnx.node "Cosh"(%x) opset 13 {} : (!x) -> !v
  %sinh = onnx.node "Sinh"(%x) opset 13 {} : (!x) -> !v
  %asinh = onnx.node "Asinh"(%x) opset 13 {} : (!x) -> !v
  %acosh = onnx.node "Acosh"(%x) opset 13 {} : (!x) -> !v
  %atanh = onnx.node "Atanh"(%x) opset 13 {} : (!x) -> !v
  return %cosh, %sinh, %asinh, %acosh, %atanh : !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!h = !sdx.tensor<[n], f16>

// Types of 16 bits are rounded once.

// CHECK-LABEL: func.func @narrow
// CHECK: %[[X:.*]] = sdx.convert %{{.*}} : <[n], f16> -> <[n], f32>
// CHECK: sdx.map "sin"(%[[X]])
// CHECK: sdx.convert %{{.*}} : <[n], f32> -> <[n], f16>
func.func @narrow(%x: !h) -> !v {
  %tan = onnx.node "Tan"(%x) opset 13 {} : (!h) -> !v
  return %tan : !v
}
