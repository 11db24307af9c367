// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// What is below 0 is bent by an exponential.

// CHECK-LABEL: func.func @exponentials
// CHECK: sdx.map "exp"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "min"
// CHECK: sdx.map "max"
// CHECK: sdx.map "add"
// CHECK: sdx.map "exp"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "lt"
// CHECK: sdx.map "select"
// CHECK: sdx.map "exp"
// CHECK: sdx.map "select"
// CHECK: sdx.map "mul"
func.func @exponentials(%x: !sdx.tensor<[b, s], f32>) -> (!v, !v, !v) {
  %0 = onnx.node "Celu"(%x) opset 12 {alpha = 2.0 : f32} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "Elu"(%x) opset 7 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %2 = onnx.node "Selu"(%x) opset 7 {} : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value

// Gates of straight lines, and a product with them.

// CHECK-LABEL: func.func @gates
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.map "min"
// CHECK: sdx.map "max"
// CHECK: sdx.map "min"
// CHECK: sdx.map "max"
// CHECK: sdx.map "mul"
func.func @gates(%x: !sdx.tensor<[b, s], f32>) -> (!v, !v) {
  %0 = onnx.node "HardSigmoid"(%x) opset 7 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "HardSwish"(%x) opset 14 {} : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// The exponent is never positive, so that nothing overflows.

// CHECK-LABEL: func.func @softplus
// CHECK: sdx.map "abs"
// CHECK: sdx.map "neg"
// CHECK: sdx.map "exp"
// CHECK: sdx.map "add"
// CHECK: sdx.map "log"
// CHECK: sdx.map "max"
// CHECK: sdx.map "add"
// CHECK: sdx.map "log"
// CHECK: sdx.map "tanh"
// CHECK: sdx.map "mul"
func.func @softplus(%x: !sdx.tensor<[b, s], f32>) -> (!v, !v) {
  %0 = onnx.node "Softplus"(%x) opset 7 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "Mish"(%x) opset 18 {} : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// A quotient each.

// CHECK-LABEL: func.func @ratios
// CHECK: sdx.map "exp"
// CHECK: sdx.map "add"
// CHECK: sdx.map "div"
// CHECK: sdx.map "abs"
// CHECK: sdx.map "add"
// CHECK: sdx.map "div"
func.func @ratios(%x: !sdx.tensor<[b, s], f32>) -> (!v, !v) {
  %0 = onnx.node "Swish"(%x) opset 24 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "Softsign"(%x) opset 7 {} : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Comparison and choice; integers are compared as f64.

// CHECK-LABEL: func.func @thresholds
// CHECK: sdx.map "lt"
// CHECK: sdx.map "select"
// CHECK: sdx.map "lt"
// CHECK: sdx.map "lt"
// CHECK: sdx.map "select"
// CHECK: sdx.map "select"
// CHECK: sdx.convert %{{.*}} : <[b], i32> -> <[b], f64>
// CHECK: sdx.convert %{{.*}} : <[b], f64> -> <[b], i32>
func.func @thresholds(%x: !sdx.tensor<[b, s], f32>, %i: !sdx.tensor<[b], i32>) -> (!v, !v, !v) {
  %0 = onnx.node "ThresholdedRelu"(%x) opset 10 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "Shrink"(%x) opset 9 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %2 = onnx.node "Shrink"(%i) opset 9 {} : (!sdx.tensor<[b], i32>) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value

// The slope broadcasts to the data.

// CHECK-LABEL: func.func @prelu
// CHECK: sdx.broadcast
// CHECK: sdx.map "mul"
// CHECK: sdx.map "lt"
// CHECK: sdx.map "select"
func.func @prelu(%x: !sdx.tensor<[b, s], f32>, %w: !sdx.tensor<[s], f32>) -> !v {
  %0 = onnx.node "PRelu"(%x, %w) opset 16 {} : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[s], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 4], f32>

// CHECK-LABEL: func.func @swiglu
// CHECK: %[[G:.*]] = sdx.map "div"(%arg0, %{{.*}})
// CHECK: sdx.map "mul"(%[[G]], %arg1)
func.func @swiglu(%a: !x, %b: !x) -> !v {
  %0 = onnx.node "SwiGLU"(%a, %b) opset 28 {} : (!x, !x) -> !v
  return %0 : !v
}
