// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Operand by operand; a letter that nothing needs later is summed at once.

// CHECK-LABEL: func.func @chain
// CHECK: sdx.contract "bij,bjk->bik"
// CHECK: sdx.contract "bik,k->bi"
func.func @chain(%x: !sdx.tensor<[p, q, r], f32>, %y: !sdx.tensor<[p, r, s], f32>, %z: !sdx.tensor<[s], f32>) -> !v {
  %0 = onnx.node "Einsum"(%x, %y, %z) opset 12 {equation = "bij,bjk,k->bi"}
    : (!sdx.tensor<[p, q, r], f32>, !sdx.tensor<[p, r, s], f32>, !sdx.tensor<[s], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// A repeated letter takes every (n + 1)th element.

// CHECK-LABEL: func.func @diagonal
// CHECK: sdx.reshape %{{.*}} -> <[b, n*n], f32>
// CHECK: sdx.gather
// CHECK: sdx.reduce "add" %{{.*}} axes [1]
func.func @diagonal(%x: !sdx.tensor<[b, n, n], f32>) -> (!v, !v) {
  %0 = onnx.node "Einsum"(%x) opset 12 {equation = "...ii"} : (!sdx.tensor<[b, n, n], f32>) -> !v
  %1 = onnx.node "Einsum"(%x) opset 12 {equation = "...ii->..."} : (!sdx.tensor<[b, n, n], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Without a sum it is a product; implicit results are in alphabetic order.

// CHECK-LABEL: func.func @outer
// CHECK: sdx.map "mul"
// CHECK-NOT: sdx.contract
// CHECK: !sdx.tensor<[p, q], f32>
func.func @outer(%x: !sdx.tensor<[q], f32>, %y: !sdx.tensor<[p], f32>) -> !v {
  %0 = onnx.node "Einsum"(%x, %y) opset 12 {equation = "j,i"} : (!sdx.tensor<[q], f32>, !sdx.tensor<[p], f32>) -> !v
  return %0 : !v
}
