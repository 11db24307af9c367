// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Backwards from y: of a product the other factor, of a broadcast the sum.

// CHECK-LABEL: func.func @product
// CHECK: sdx.map "mul"
// CHECK: sdx.map "mul"
// CHECK: sdx.reduce "add" %{{.*}} axes [0]
func.func @product(%x: !sdx.tensor<[b, s], f32>, %w: !sdx.tensor<[s], f32>) -> (!v, !v) {
  %y = onnx.node "Mul"(%x, %w) opset 13 {} : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[s], f32>) -> !v
  %0:2 = onnx.node "Gradient"(%x, %w, %y, %x, %w) opset 1 domain "ai.onnx.preview.training" {xs = ["x", "w"], y = "y"}
    : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[s], f32>, !v, !sdx.tensor<[b, s], f32>, !sdx.tensor<[s], f32>) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value

// The gradient of a contraction is one with the other operand.

// CHECK-LABEL: func.func @contraction
// CHECK: sdx.contract "mk,kn->mn"
// CHECK: sdx.map "tanh"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "mul"
// CHECK: sdx.contract "mn,kn->mk"
func.func @contraction(%x: !sdx.tensor<[m, k], f32>, %w: !sdx.tensor<[k, n], f32>) -> !v {
  %p = onnx.node "Gemm"(%x, %w) opset 13 {} : (!sdx.tensor<[m, k], f32>, !sdx.tensor<[k, n], f32>) -> !v
  %y = onnx.node "Tanh"(%p) opset 13 {} : (!v) -> !v
  %0 = onnx.node "Gradient"(%x, %y, %x) opset 1 domain "ai.onnx.preview.training" {xs = ["x"], y = "y"}
    : (!sdx.tensor<[m, k], f32>, !v, !sdx.tensor<[m, k], f32>) -> !v
  return %0 : !v
}
