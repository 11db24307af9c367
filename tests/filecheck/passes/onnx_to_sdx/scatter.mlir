// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// The place of each element is reckoned from its other coordinates; -1 is refused.

// CHECK-LABEL: func.func @gather_elements
// CHECK: sdx.iota
// CHECK: sdx.map "select"
// CHECK: sdx.reshape %{{.*}} -> <[b*s], f32>
// CHECK: sdx.gather
func.func @gather_elements(%x: !sdx.tensor<[b, s], f32>, %i: !sdx.tensor<[b, 2], i64>) -> !v {
  %0 = onnx.node "GatherElements"(%x, %i) opset 13 {axis = 1 : i64}
    : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, 2], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// The last of the updates that hit counts.

// CHECK-LABEL: func.func @scatter_elements
// CHECK: sdx.map "eq"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "max"
// CHECK: sdx.gather
// CHECK: sdx.map "select"
// CHECK: sdx.map "eq"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "max"
func.func @scatter_elements(%x: !sdx.tensor<[b, 8], f32>, %i: !sdx.tensor<[b, 2], i64>, %u: !sdx.tensor<[b, 2], f32>) -> (!v, !v) {
  %0 = onnx.node "ScatterElements"(%x, %i, %u) opset 18 {axis = 1 : i64}
    : (!sdx.tensor<[b, 8], f32>, !sdx.tensor<[b, 2], i64>, !sdx.tensor<[b, 2], f32>) -> !v
  %1 = onnx.node "Scatter"(%x, %i, %u) opset 10 {axis = 1 : i64}
    : (!sdx.tensor<[b, 8], f32>, !sdx.tensor<[b, 2], i64>, !sdx.tensor<[b, 2], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Updates that hit are summed; outside the indices' shape the data stay.

// CHECK-LABEL: func.func @scatter_add
// CHECK: sdx.slice
// CHECK: sdx.map "eq"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "add"
// CHECK: sdx.map "add"
// CHECK: sdx.pad
// CHECK: sdx.map "select"
func.func @scatter_add(%x: !sdx.tensor<[4, 8], f32>, %i: !sdx.tensor<[3, 2], i64>, %u: !sdx.tensor<[3, 2], f32>) -> !v {
  %0 = onnx.node "ScatterElements"(%x, %i, %u) opset 18 {axis = 1 : i64, reduction = "add"}
    : (!sdx.tensor<[4, 8], f32>, !sdx.tensor<[3, 2], i64>, !sdx.tensor<[3, 2], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Tuples become one index; whole rows move.

// CHECK-LABEL: func.func @scatter_nd
// CHECK: sdx.slice
// CHECK: sdx.map "mul"
// CHECK: sdx.map "add"
// CHECK: sdx.map "eq"
// CHECK: sdx.reduce "max"
// CHECK: sdx.gather
// CHECK: sdx.map "select"
// CHECK: sdx.map "eq"
// CHECK: sdx.map "select"
// CHECK: sdx.reduce "max" %{{.*}} axes [1]
// CHECK: sdx.map "max"
func.func @scatter_nd(%x: !sdx.tensor<[4, 5, d], f32>, %i: !sdx.tensor<[n, 2], i64>, %u: !sdx.tensor<[n, d], f32>) -> (!v, !v) {
  %0 = onnx.node "ScatterND"(%x, %i, %u) opset 18 {}
    : (!sdx.tensor<[4, 5, d], f32>, !sdx.tensor<[n, 2], i64>, !sdx.tensor<[n, d], f32>) -> !v
  %1 = onnx.node "ScatterND"(%x, %i, %u) opset 18 {reduction = "max"}
    : (!sdx.tensor<[4, 5, d], f32>, !sdx.tensor<[n, 2], i64>, !sdx.tensor<[n, d], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Where there may be many updates and many places, the host does one update after the other. Indices are looked up in the
// numbers that are in range, which refuses others.

// CHECK-LABEL: func.func @scatter_in_turn
// CHECK: %[[NUMBERS:.*]] = sdx.iota axis 0 : <[s], i64>
// CHECK: sdx.gather %[[NUMBERS]][%{{.*}}] axis 0
// CHECK: %[[AT:.*]] = sdx.reshape %{{.*}} -> <[b*m], i64>
// CHECK: sdx.host "Scatter fn=add"(%{{.*}}, %[[AT]], %{{.*}}) result 0 of 0 {{.*}} -> !sdx.tensor<[b*s, 1], f32>
// CHECK: sdx.host "Scatter"(%{{.*}}) result 0 of 1 {{.*}} -> !sdx.tensor<[b, s], f32>
// CHECK-NOT: sdx.map "eq"
// CHECK: return
func.func @scatter_in_turn(%x: !sdx.tensor<[b, s], f32>, %i: !sdx.tensor<[b, m], i64>, %u: !sdx.tensor<[b, m], f32>, %r: !sdx.tensor<[n, 1], i64>, %v: !sdx.tensor<[n, s], f32>) -> (!v, !v) {
  %0 = onnx.node "ScatterElements"(%x, %i, %u) opset 18 {axis = 1 : i64, reduction = "add"}
    : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[b, m], i64>, !sdx.tensor<[b, m], f32>) -> !v
  %1 = onnx.node "ScatterND"(%x, %r, %v) opset 18 {}
    : (!sdx.tensor<[b, s], f32>, !sdx.tensor<[n, 1], i64>, !sdx.tensor<[n, s], f32>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value

// Each place of the cache looks whether it is inside the window.

// CHECK-LABEL: func.func @tensor_scatter
// CHECK: sdx.map "sub"
// CHECK: sdx.map "rem"
// CHECK: sdx.map "le"
// CHECK: sdx.map "lt"
// CHECK: sdx.map "and"
// CHECK: sdx.gather
// CHECK: sdx.map "select"
func.func @tensor_scatter(%x: !sdx.tensor<[b, t, d], f32>, %u: !sdx.tensor<[b, s, d], f32>, %w: !sdx.tensor<[b], i64>) -> !v {
  %0 = onnx.node "TensorScatter"(%x, %u, %w) opset 24 {mode = "circular"}
    : (!sdx.tensor<[b, t, d], f32>, !sdx.tensor<[b, s, d], f32>, !sdx.tensor<[b], i64>) -> !v
  return %0 : !v
}
