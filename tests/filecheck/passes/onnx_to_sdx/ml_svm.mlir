// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Three classes have three pairs, each with a score and a vote.

// CHECK-LABEL: func.func @pairs
// CHECK: sdx.contract "nf,vf->nv"
// CHECK: sdx.contract "nv,vp->np"
// CHECK: sdx.map "add"
// CHECK: sdx.map "lt"
// CHECK: sdx.contract "np,pc->nc"
// CHECK: sdx.map "not"
// CHECK: sdx.contract "np,pc->nc"
// CHECK: sdx.reduce "max"
// CHECK: sdx.gather
func.func @pairs(%x: !sdx.tensor<[b, 1], f32>) -> (!v, !v) {
  %0:2 = onnx.node "SVMClassifier"(%x) opset 1 domain "ai.onnx.ml" {classlabels_ints = [5, 6, 7], vectors_per_class = [1, 1, 1], support_vectors = [0.0 : f32, 1.0 : f32, 2.0 : f32], coefficients = [1.0 : f32, 2.0 : f32, 3.0 : f32, -1.0 : f32, -2.0 : f32, -3.0 : f32], rho = [0.1 : f32, 0.2 : f32, 0.3 : f32]}
    : (!sdx.tensor<[b, 1], f32>) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value

// Without support vectors each class has a plane.

// CHECK-LABEL: func.func @planes
// CHECK: sdx.contract "nf,cf->nc"
// CHECK: sdx.map "add"
// CHECK-NOT: sdx.contract
// CHECK: sdx.gather
func.func @planes(%x: !sdx.tensor<[b, 1], f32>) -> (!v, !v) {
  %0:2 = onnx.node "SVMClassifier"(%x) opset 1 domain "ai.onnx.ml" {classlabels_ints = [5, 6, 7], coefficients = [1.0 : f32, 2.0 : f32, 3.0 : f32], rho = [0.1 : f32]}
    : (!sdx.tensor<[b, 1], f32>) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value

// Probabilities of more than two classes come of those of the pairs, by an iteration.

// CHECK-LABEL: func.func @probable
// CHECK: sdx.map "exp"
// CHECK: sdx.map "min"
// CHECK: sdx.host "CouplePairs"{{.*}} -> !sdx.tensor<[b, 3], f32>
func.func @probable(%x: !sdx.tensor<[b, 1], f32>) -> (!v, !v) {
  %0:2 = onnx.node "SVMClassifier"(%x) opset 1 domain "ai.onnx.ml" {classlabels_ints = [5, 6, 7], vectors_per_class = [1, 1, 1], support_vectors = [0.0 : f32, 1.0 : f32, 2.0 : f32], coefficients = [1.0 : f32, 2.0 : f32, 3.0 : f32, -1.0 : f32, -2.0 : f32, -3.0 : f32], rho = [0.1 : f32, 0.2 : f32, 0.3 : f32], prob_a = [-1.0 : f32, -2.0 : f32, -3.0 : f32], prob_b = [0.0 : f32, 0.0 : f32, 0.5 : f32]}
    : (!sdx.tensor<[b, 1], f32>) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}
