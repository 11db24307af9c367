// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// The first place where the extreme stands, or the last; NaN is one.

// CHECK-LABEL: func.func @positions
// CHECK: sdx.reduce "max"
// CHECK: sdx.map "eq"
// CHECK: sdx.map "isnan"
// CHECK: sdx.map "or"
// CHECK: sdx.iota
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "min"
// CHECK: sdx.reduce "min"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "max"
// CHECK-NOT: sdx.reshape
// CHECK: return
func.func @positions(%x: !sdx.tensor<[b, s], f32>) -> (!v, !v) {
  %0 = onnx.node "ArgMax"(%x) opset 13 {axis = 1 : i64} : (!sdx.tensor<[b, s], f32>) -> !v
  %1 = onnx.node "ArgMin"(%x) opset 13 {axis = 0 : i64, keepdims = 0 : i64, select_last_index = 1 : i64}
    : (!sdx.tensor<[b, s], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Before opset 13 over all dimensions from the axis on.

// CHECK-LABEL: func.func @hardmax
// CHECK: sdx.reshape %{{.*}} -> <[b, 3*s], f32>
// CHECK: sdx.reduce "min"
// CHECK: sdx.map "eq"
// CHECK: sdx.convert
// CHECK: sdx.reshape %{{.*}} -> <[b, s, 3], f32>
func.func @hardmax(%x: !sdx.tensor<[b, s, 3], f32>) -> !v {
  %0 = onnx.node "Hardmax"(%x) opset 11 {} : (!sdx.tensor<[b, s, 3], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Rows of an open length are sorted on the host; `k` may be read from data.

// CHECK-LABEL: func.func @top_k_open
// CHECK: %[[K:.*]] = sdx.dims
// CHECK: %[[I:.*]] = sdx.host "Order descending=0"(%arg0, %[[K]]) result 0 of 0
// CHECK-NOT: sdx.map "lt"
// CHECK: sdx.gather
func.func @top_k_open(%x: !sdx.tensor<[b, s], f32>, %k: !sdx.tensor<[1], i64>) -> (!v, !v) {
  %0:2 = onnx.node "TopK"(%x, %k) opset 11 {largest = 0 : i64} : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[1], i64>) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value

// Of a short row each element counts those that come before it; `k` may be read from data.

// CHECK-LABEL: func.func @top_k
// CHECK: sdx.bind
// CHECK: sdx.map "lt"
// CHECK: sdx.map "eq"
// CHECK: sdx.map "isnan"
// CHECK: sdx.map "and"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "eq"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "add"
// CHECK: sdx.gather
// CHECK: return
func.func @top_k(%x: !sdx.tensor<[b, 9], f32>, %k: !sdx.tensor<[1], i64>) -> (!v, !v) {
  %0:2 = onnx.node "TopK"(%x, %k) opset 11 {} : (!sdx.tensor<[b, 9], f32>, !sdx.tensor<[1], i64>) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value

// Integers have no NaN.

// CHECK-LABEL: func.func @top_k_attribute
// CHECK-NOT: isnan
// CHECK: !sdx.tensor<[b, 2], i64>
func.func @top_k_attribute(%x: !sdx.tensor<[b, 4], i64>) -> !v {
  %0:2 = onnx.node "TopK"(%x) opset 9 {k = 2 : i64} : (!sdx.tensor<[b, 4], i64>) -> (!v, !v)
  return %0#0 : !v
}
