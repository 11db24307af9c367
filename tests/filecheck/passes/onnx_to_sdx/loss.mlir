// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Scores and weights of each target's class; what is ignored counts nothing.

// CHECK-LABEL: func.func @nll
// CHECK: sdx.map "eq"
// CHECK: sdx.map "not"
// CHECK: sdx.map "select"
// CHECK: sdx.gather
// CHECK: sdx.map "neg"
// CHECK: sdx.gather
// CHECK: sdx.map "mul"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "add"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "div"
func.func @nll(%x: !sdx.tensor<[n, c, d], f32>, %t: !sdx.tensor<[n, d], i64>, %w: !sdx.tensor<[c], f32>) -> !v {
  %0 = onnx.node "NegativeLogLikelihoodLoss"(%x, %t, %w) opset 13 {ignore_index = 1 : i64}
    : (!sdx.tensor<[n, c, d], f32>, !sdx.tensor<[n, d], i64>, !sdx.tensor<[c], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// The logarithm of the softmax is an output too.

// CHECK-LABEL: func.func @cross_entropy
// CHECK: sdx.reduce "max"
// CHECK: sdx.map "exp"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "log"
// CHECK: sdx.map "sub"
// CHECK: sdx.gather
// CHECK: sdx.map "neg"
// CHECK-NOT: sdx.reduce
// CHECK: return
func.func @cross_entropy(%x: !sdx.tensor<[n, c], f32>, %t: !sdx.tensor<[n], i64>) -> (!v, !v) {
  %0:2 = onnx.node "SoftmaxCrossEntropyLoss"(%x, %t) opset 13 {reduction = "none"}
    : (!sdx.tensor<[n, c], f32>, !sdx.tensor<[n], i64>) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}
