// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Each dimension is split in two, of which one is 1; the second halves are reduced.

// CHECK-LABEL: func.func @axes_from_data
// CHECK: sdx.map "eq"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "select"
// CHECK: sdx.map "select"
// CHECK: sdx.bind
// CHECK: sdx.bind
// CHECK: sdx.bind
// CHECK: sdx.bind
// CHECK: sdx.reshape %{{.*}} -> <[data0, data2, data1, data3], f32>
// CHECK: sdx.reduce "add" %{{.*}} axes [1, 3]
func.func @axes_from_data(%x: !sdx.tensor<[b, s], f32>, %a: !sdx.tensor<[1], i64>) -> !v {
  %0 = onnx.node "ReduceSum"(%x, %a) opset 13 {} : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[1], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Without `keepdims` the dimensions that are left are found too.

// CHECK-LABEL: func.func @rank_from_data
// CHECK: sdx.reduce "max" %{{.*}} axes [1, 3]
// CHECK: sdx.reshape %{{.*}} -> <[data{{[0-9]+}}*data{{[0-9]+}}], f32>
func.func @rank_from_data(%x: !sdx.tensor<[b, s], f32>, %a: !sdx.tensor<[1], i64>) -> !v {
  %0 = onnx.node "ReduceMax"(%x, %a) opset 18 {keepdims = 0 : i64}
    : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[1], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// The largest element is taken out, where it is finite.

// CHECK-LABEL: func.func @logarithms
// CHECK: sdx.map "log"
// CHECK: sdx.reduce "max"
// CHECK: sdx.map "abs"
// CHECK: sdx.map "lt"
// CHECK: sdx.map "select"
// CHECK: sdx.map "sub"
// CHECK: sdx.map "exp"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "log"
// CHECK: sdx.map "add"
// CHECK: sdx.map "abs"
// CHECK: sdx.reduce "add"
func.func @logarithms(%x: !sdx.tensor<[b, s], f32>) -> (!v, !v, !v) {
  %0 = onnx.node "ReduceLogSum"(%x) opset 13 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "ReduceLogSumExp"(%x) opset 13 {} : (!sdx.tensor<[b, s], f32>) -> !v
  %2 = onnx.node "ReduceL1"(%x) opset 13 {} : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1, %2 : !v, !v, !v
}

// -----

!v = !onnx.value

// The largest of bools is reckoned in integers.

// CHECK-LABEL: func.func @bools
// CHECK: sdx.convert %{{.*}} -> <[b], ui8>
// CHECK: sdx.reduce "max"
// CHECK: sdx.convert %{{.*}} -> <[], i1>
func.func @bools(%x: !sdx.tensor<[b], i1>) -> !v {
  %0 = onnx.node "ReduceMax"(%x) opset 20 {keepdims = 0 : i64} : (!sdx.tensor<[b], i1>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// A norm of 0 gives 0.

// CHECK-LABEL: func.func @lp
// CHECK: sdx.map "abs"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "eq"
// CHECK: sdx.map "div"
// CHECK: sdx.map "select"
// CHECK: sdx.map "sqrt"
func.func @lp(%x: !sdx.tensor<[b, s], f32>) -> (!v, !v) {
  %0 = onnx.node "LpNormalization"(%x) opset 22 {p = 1 : i64} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "LpNormalization"(%x) opset 22 {} : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1 : !v, !v
}
