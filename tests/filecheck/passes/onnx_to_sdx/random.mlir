// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Squarings of the count by the key, in u64: nothing depends on an order.

// CHECK-LABEL: func.func @uniform
// CHECK: sdx.iota
// CHECK: sdx.convert %{{.*}} -> <[6], ui64>
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.map "div"
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.convert %{{.*}} -> <[6], f32>
func.func @uniform(%x: !sdx.tensor<[b], f32>) -> (!v, !v) {
  %0 = onnx.node "RandomUniform"() opset 7 {shape = [2, 3], seed = 1.0 : f32} : () -> !v
  %1 = onnx.node "RandomUniformLike"(%x) opset 7 {} : (!sdx.tensor<[b], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Two uniform numbers make one.

// CHECK-LABEL: func.func @normal
// CHECK: sdx.map "log"
// CHECK: sdx.map "sqrt"
// CHECK: sdx.map "cos"
// CHECK: sdx.map "mul"
func.func @normal(%x: !sdx.tensor<[b], f32>) -> (!v, !v) {
  %0 = onnx.node "RandomNormal"() opset 7 {shape = [2, 3]} : () -> !v
  %1 = onnx.node "RandomNormalLike"(%x) opset 7 {} : (!sdx.tensor<[b], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Comparison with the probability, and the largest score of each draw.

// CHECK-LABEL: func.func @draws
// CHECK: sdx.map "lt"
// CHECK: sdx.reduce "max"
// CHECK: sdx.map "eq"
// CHECK: sdx.reduce "min"
func.func @draws(%x: !sdx.tensor<[b, s], f32>) -> (!v, !v) {
  %0 = onnx.node "Bernoulli"(%x) opset 15 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "Multinomial"(%x) opset 7 {sample_size = 4 : i64} : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Without training the data and a mask of ones; else what was drawn decides.

// CHECK-LABEL: func.func @dropout
// CHECK-SAME: (%[[X:[^:]*]]: 
// CHECK: sdx.map "le"
// CHECK: sdx.map "not"
// CHECK: sdx.map "or"
// CHECK: sdx.map "select"
// CHECK: sdx.map "mul"
// CHECK: return %[[X]]
func.func @dropout(%x: !sdx.tensor<[b, s], f32>, %r: !sdx.tensor<[], f32>, %t: !sdx.tensor<[], i1>) -> (!v, !v, !v) {
  %0:2 = onnx.node "Dropout"(%x) opset 13 {} : (!sdx.tensor<[b, s], f32>) -> (!v, !v)
  %1 = onnx.node "Dropout"(%x, %r, %t) opset 13 {}
    : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[], f32>, !sdx.tensor<[], i1>) -> !v
  return %0#0, %0#1, %1 : !v, !v, !v
}
