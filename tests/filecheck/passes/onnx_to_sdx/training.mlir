// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// The accumulated square damps each step.

// CHECK-LABEL: func.func @adagrad
// CHECK: sdx.map "div"
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "div"
// CHECK: sdx.map "sub"
func.func @adagrad(%r: !sdx.tensor<[], f32>, %t: !sdx.tensor<[], i64>, %x: !sdx.tensor<[n], f32>, %g: !sdx.tensor<[n], f32>, %h: !sdx.tensor<[n], f32>) -> (!v, !v) {
  %0:2 = onnx.node "Adagrad"(%r, %t, %x, %g, %h) opset 1 domain "ai.onnx.preview.training" {decay_factor = 0.5 : f32}
    : (!sdx.tensor<[], f32>, !sdx.tensor<[], i64>, !sdx.tensor<[n], f32>, !sdx.tensor<[n], f32>, !sdx.tensor<[n], f32>) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value

// Corrected rates from the second step on.

// CHECK-LABEL: func.func @adam
// CHECK: sdx.map "eq"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "pow"
// CHECK: sdx.map "pow"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "div"
// CHECK: sdx.map "select"
// CHECK: sdx.map "sub"
func.func @adam(%r: !sdx.tensor<[], f32>, %t: !sdx.tensor<[], i64>, %x: !sdx.tensor<[n], f32>, %g: !sdx.tensor<[n], f32>, %v: !sdx.tensor<[n], f32>, %h: !sdx.tensor<[n], f32>) -> (!v, !v, !v) {
  %0:3 = onnx.node "Adam"(%r, %t, %x, %g, %v, %h) opset 1 domain "ai.onnx.preview.training" {}
    : (!sdx.tensor<[], f32>, !sdx.tensor<[], i64>, !sdx.tensor<[n], f32>, !sdx.tensor<[n], f32>, !sdx.tensor<[n], f32>, !sdx.tensor<[n], f32>) -> (!v, !v, !v)
  return %0#0, %0#1, %0#2 : !v, !v, !v
}

// -----

!v = !onnx.value

// Two tensors: first both, then both states.

// CHECK-LABEL: func.func @momentum
// CHECK: sdx.map "lt"
// CHECK: sdx.map "select"
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "sub"({{.*}}) : ({{.*}}) -> !sdx.tensor<[p], f32>
func.func @momentum(%r: !sdx.tensor<[], f32>, %t: !sdx.tensor<[], i64>, %x: !sdx.tensor<[n], f32>, %y: !sdx.tensor<[p], f32>, %g: !sdx.tensor<[n], f32>, %h: !sdx.tensor<[p], f32>, %u: !sdx.tensor<[n], f32>, %v: !sdx.tensor<[p], f32>) -> (!v, !v, !v, !v) {
  %0:4 = onnx.node "Momentum"(%r, %t, %x, %y, %g, %h, %u, %v) opset 1 domain "ai.onnx.preview.training" {alpha = 0.9 : f32, beta = 1.0 : f32, norm_coefficient = 0.0 : f32, mode = "nesterov"}
    : (!sdx.tensor<[], f32>, !sdx.tensor<[], i64>, !sdx.tensor<[n], f32>, !sdx.tensor<[p], f32>, !sdx.tensor<[n], f32>, !sdx.tensor<[p], f32>, !sdx.tensor<[n], f32>, !sdx.tensor<[p], f32>) -> (!v, !v, !v, !v)
  return %0#0, %0#1, %0#2, %0#3 : !v, !v, !v, !v
}
