// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// A contraction with the coefficients, and the label of the highest score.

// CHECK-LABEL: func.func @linear
// CHECK: sdx.contract "nf,cf->nc"
// CHECK: sdx.map "add"
// CHECK: sdx.contract "nf,cf->nc"
// CHECK: sdx.map "neg"
// CHECK: sdx.concat
// CHECK: sdx.map "exp"
// CHECK: sdx.reduce "min"
// CHECK: sdx.const dense<[7, 9]>
// CHECK: sdx.gather
func.func @linear(%x: !sdx.tensor<[b, 2], f32>) -> (!v, !v, !v) {
  %0 = onnx.node "LinearRegressor"(%x) opset 1 domain "ai.onnx.ml" {coefficients = [1.0 : f32, 2.0 : f32], intercepts = [0.5 : f32]}
    : (!sdx.tensor<[b, 2], f32>) -> !v
  %1:2 = onnx.node "LinearClassifier"(%x) opset 1 domain "ai.onnx.ml" {coefficients = [1.0 : f32, 2.0 : f32], classlabels_ints = [7, 9], post_transform = "LOGISTIC"}
    : (!sdx.tensor<[b, 2], f32>) -> (!v, !v)
  return %0, %1#0, %1#1 : !v, !v, !v
}

// -----

!v = !onnx.value

// Distances to the support vectors, weighted.

// CHECK-LABEL: func.func @svm
// CHECK: sdx.map "sub"
// CHECK: sdx.map "mul"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "exp"
// CHECK: sdx.contract "nv,ov->no"
// CHECK: sdx.map "add"
func.func @svm(%x: !sdx.tensor<[b, 1], f32>) -> !v {
  %0 = onnx.node "SVMRegressor"(%x) opset 1 domain "ai.onnx.ml" {coefficients = [1.0 : f32, -1.0 : f32], support_vectors = [0.0 : f32, 1.0 : f32], n_supports = 2 : i64, rho = [0.5 : f32], kernel_type = "RBF", kernel_params = [0.1 : f32, 0.0 : f32, 3.0 : f32]}
    : (!sdx.tensor<[b, 1], f32>) -> !v
  return %0 : !v
}
