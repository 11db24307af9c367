// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// A shape from data: its elements become symbols, and the call must find as many elements as there are.

// CHECK-LABEL: func.func @reshape
// CHECK-SAME: sdx.checks = ["data0*data1 == 3*b : r"]
// CHECK: sdx.bind "data0"
// CHECK: sdx.bind "data1"
// CHECK: sdx.reshape %{{.*}} : <[b, 3], f32> -> <[3*b], f32>
// CHECK: sdx.slice %{{.*}} from ["0"] step [1] : <[3*b], f32> -> <[data0*data1], f32>
// CHECK: sdx.reshape %{{.*}} : <[data0*data1], f32> -> <[data0, data1], f32>
func.func @reshape(%x: !sdx.tensor<[b, 3], f32>, %t: !sdx.tensor<[2], i64>) -> !v {
  %0 = onnx.node "Reshape"(%x, %t) opset 13 {} : (!sdx.tensor<[b, 3], f32>, !sdx.tensor<[2], i64>) -> !v loc("r")
  return %0 : !v
}

// -----

!v = !onnx.value

// A dimension of 1 repeats; one that the call alone knows is looked up, so that it may repeat.

// CHECK-LABEL: func.func @expand
// CHECK: sdx.bind "data0"
// CHECK: sdx.broadcast %{{.*}} to [0, 1] : <[1, b], f32> -> <[data0, b], f32>
// CHECK: sdx.bind "data1"
// CHECK: sdx.gather %{{.*}} axis 1 : (!sdx.tensor<[data0, b], f32>, !sdx.tensor<[data1], i64>) -> !sdx.tensor<[data0, data1], f32>
func.func @expand(%x: !sdx.tensor<[1, b], f32>, %t: !sdx.tensor<[2], i64>) -> !v {
  %0 = onnx.node "Expand"(%x, %t) opset 13 {} : (!sdx.tensor<[1, b], f32>, !sdx.tensor<[2], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// CHECK-LABEL: func.func @slice
// CHECK: sdx.bind "data0"
// CHECK: sdx.gather %{{.*}} axis 1 : (!sdx.tensor<[b, 3], f32>, !sdx.tensor<[data0], i64>) -> !sdx.tensor<[b, data0], f32>
func.func @slice(%x: !sdx.tensor<[b, 3], f32>, %s: !sdx.tensor<[1], i64>, %e: !sdx.tensor<[1], i64>) -> !v {
  %a = sdx.const dense<1> : tensor<1xi64> : <[1], i64>
  %0 = onnx.node "Slice"(%x, %s, %e, %a) opset 13 {} : (!sdx.tensor<[b, 3], f32>, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>, !sdx.tensor<[1], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// CHECK-LABEL: func.func @range
// CHECK: sdx.map "ceil"
// CHECK: sdx.bind "data0"
// CHECK: sdx.iota axis 0 : <[data0], i64>
// CHECK: sdx.map "add"(%{{.*}}) : (!sdx.tensor<[data0], f32>, !sdx.tensor<[data0], f32>)
func.func @range(%s: !sdx.tensor<[], f32>, %l: !sdx.tensor<[], f32>, %d: !sdx.tensor<[], f32>) -> !v {
  %0 = onnx.node "Range"(%s, %l, %d) opset 11 {} : (!sdx.tensor<[], f32>, !sdx.tensor<[], f32>, !sdx.tensor<[], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Where the rank of the shape is known by its elements, nothing is bound.

// CHECK-LABEL: func.func @known
// CHECK-NOT: sdx.bind
// CHECK: sdx.reshape %{{.*}} -> <[3, b], f32>
func.func @known(%x: !sdx.tensor<[b, 3], f32>) -> !v {
  %t = sdx.const dense<[3, -1]> : tensor<2xi64> : <[2], i64>
  %0 = onnx.node "Reshape"(%x, %t) opset 13 {} : (!sdx.tensor<[b, 3], f32>, !sdx.tensor<[2], i64>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[a, b], f32>

// Axes from data: the dimensions are looked up. Where the vector's length is open, the declared rank says it.

// CHECK-LABEL: func.func @axes
// CHECK-SAME: %{{.*}}: !sdx.tensor<[1], i64>
// CHECK-COUNT-3: sdx.bind
// CHECK: sdx.reshape %{{.*}} -> <[data0, data1, data2], f32>
// CHECK: sdx.bind "data3"
// CHECK: sdx.slice %{{.*}} : <[a*b], f32> -> <[data3], f32>
func.func @axes(%x: !x, %p: !sdx.tensor<[n], i64>, %q: !sdx.tensor<[1], i64>) -> (!v, !v) {
  %0 = onnx.node "Unsqueeze"(%x, %p) opset 13 {} rank 3 : (!x, !sdx.tensor<[n], i64>) -> !v
  %1 = onnx.node "Squeeze"(%x, %q) opset 13 {} : (!x, !sdx.tensor<[1], i64>) -> !v
  return %0, %1 : !v, !v
}
