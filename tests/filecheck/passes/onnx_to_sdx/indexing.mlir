// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[n, d], f32>
!i = !sdx.tensor<[b, s], i64>

// Indices from data may be negative: they count from the end.

// CHECK-LABEL: func.func @gather
// CHECK-SAME: (%[[X:[^:]*]]: {{.*}}, %[[I:[^:]*]]: !sdx
// CHECK: %[[NEGATIVE:.*]] = sdx.map "lt"(%[[I]],
// CHECK: sdx.dims ["n"]
// CHECK: %[[WRAPPED:.*]] = sdx.map "add"(%[[I]],
// CHECK: %[[J:.*]] = sdx.map "select"(%[[NEGATIVE]], %[[WRAPPED]], %[[I]])
// CHECK: sdx.gather %[[X]][%[[J]]] axis 0 : ({{.*}}) -> !sdx.tensor<[b, s, d], f32>
func.func @gather(%x: !x, %i: !i) -> !v {
  %0 = onnx.node "Gather"(%x, %i) opset 13 {} : (!x, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, d], f32>

// Known ones are wrapped when the model is compiled.

// CHECK-LABEL: func.func @gather_constants
// CHECK: %[[C:.*]] = sdx.const dense<[0, 2]>
// CHECK: sdx.gather %{{.*}}[%[[C]]] axis 0
// CHECK: %[[D:.*]] = sdx.dims ["d - 1"] : <[1], i64>
// CHECK: %[[S:.*]] = sdx.reshape %[[D]] : <[1], i64> -> <[], i64>
// CHECK: sdx.gather %{{.*}}[%[[S]]] axis 1 : ({{.*}}) -> !sdx.tensor<[n], f32>
// CHECK-NOT: select
func.func @gather_constants(%x: !x) -> (!v, !v) {
  %c = sdx.const dense<[0, 2]> : tensor<2xi64> : !sdx.tensor<[2], i64>
  %m = sdx.const dense<-1> : tensor<i64> : !sdx.tensor<[], i64>
  %0 = onnx.node "Gather"(%x, %c) opset 13 {} : (!x, !sdx.tensor<[2], i64>) -> !v
  %1 = onnx.node "Gather"(%x, %m) opset 13 {axis = 1 : i64} : (!x, !sdx.tensor<[], i64>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[n, d], f32>

// CHECK-LABEL: func.func @gather_i32
// CHECK: sdx.convert %{{.*}} : <[b], i32> -> <[b], i64>
func.func @gather_i32(%x: !x, %i: !sdx.tensor<[b], i32>) -> !v {
  %0 = onnx.node "Gather"(%x, %i) opset 13 {} : (!x, !sdx.tensor<[b], i32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 8], f32>
!i = !sdx.tensor<[2], i64>

// Ends are clamped to the extent, which may be an expression; "to the end" is a huge constant.

// CHECK-LABEL: func.func @slice
// CHECK: sdx.slice %{{.*}} from ["0", "1", "0"] step [1, 1, 1] : <[b, s, 8], f32> -> <[b, s - 1, 8], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "0", "2"] step [1, 1, 2] : <[b, s - 1, 8], f32> -> <[b, s - 1, 3], f32>
func.func @slice(%x: !x) -> !v attributes {sdx.symbols = ["input b 0..", "input s 1.."]} {
  %start = sdx.const dense<[1, 2]> : tensor<2xi64> : !i
  %end = sdx.const dense<[9223372036854775807, 7]> : tensor<2xi64> : !i
  %axes = sdx.const dense<[1, 2]> : tensor<2xi64> : !i
  %step = sdx.const dense<[1, 2]> : tensor<2xi64> : !i
  %0 = onnx.node "Slice"(%x, %start, %end, %axes, %step) opset 13 {} : (!x, !i, !i, !i, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 8], f32>
!i = !sdx.tensor<[1], i64>

// Backwards, and negative ends, and the attributes of before opset 10.

// CHECK-LABEL: func.func @slice_negative
// CHECK: sdx.slice %{{.*}} from ["0", "7"] step [1, -1] : <[b, 8], f32> -> <[b, 8], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "5"] step [1, 1] : <[b, 8], f32> -> <[b, 2], f32>
func.func @slice_negative(%x: !x) -> (!v, !v) {
  %start = sdx.const dense<-1> : tensor<1xi64> : !i
  %end = sdx.const dense<-9223372036854775808> : tensor<1xi64> : !i
  %axes = sdx.const dense<1> : tensor<1xi64> : !i
  %step = sdx.const dense<-1> : tensor<1xi64> : !i
  %0 = onnx.node "Slice"(%x, %start, %end, %axes, %step) opset 13 {} : (!x, !i, !i, !i, !i) -> !v
  %1 = onnx.node "Slice"(%x) opset 7 {starts = [-3], ends = [-1], axes = [1]} : (!x) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>
!i = !sdx.tensor<[1], i64>

// Backwards from an element that may not be there: nothing where the extent is 0.

// CHECK-LABEL: func.func @slice_backwards_clamped
// CHECK: sdx.slice %{{.*}} from ["0", "min(s - 1, 2)"] step [1, -1] : <[b, s], f32> -> <[b, max(0, min(s - 1, 2) + 1)], f32>
func.func @slice_backwards_clamped(%x: !x) -> !v {
  %start = sdx.const dense<2> : tensor<1xi64> : !i
  %end = sdx.const dense<-9223372036854775808> : tensor<1xi64> : !i
  %axes = sdx.const dense<1> : tensor<1xi64> : !i
  %step = sdx.const dense<-1> : tensor<1xi64> : !i
  %0 = onnx.node "Slice"(%x, %start, %end, %axes, %step) opset 13 {} : (!x, !i, !i, !i, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>

// An end beyond an extent that is not known is clamped.

// CHECK-LABEL: func.func @slice_clamped
// CHECK: sdx.slice %{{.*}} from ["0", "0"] step [1, 1] : <[b, s], f32> -> <[b, min(3, s)], f32>
func.func @slice_clamped(%x: !x) -> !v {
  %0 = onnx.node "Slice"(%x) opset 7 {starts = [0], ends = [3], axes = [1]} : (!x) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 7], f32>
!i = !sdx.tensor<[2], i64>

// Sizes are an operand, an attribute, or equal parts of which the last is smaller.

// CHECK-LABEL: func.func @split
// CHECK: sdx.slice %{{.*}} from ["0", "0"] {{.*}} -> <[b, 2], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "2"] {{.*}} -> <[b, 5], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "0"] {{.*}} -> <[b, 3], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "3"] {{.*}} -> <[b, 4], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "0"] {{.*}} -> <[b, 4], f32>
// CHECK: sdx.slice %{{.*}} from ["0", "4"] {{.*}} -> <[b, 3], f32>
func.func @split(%x: !x) -> (!v, !v, !v, !v, !v, !v) {
  %sizes = sdx.const dense<[2, 5]> : tensor<2xi64> : !i
  %0:2 = onnx.node "Split"(%x, %sizes) opset 13 {axis = 1 : i64} : (!x, !i) -> (!v, !v)
  %1:2 = onnx.node "Split"(%x) opset 11 {axis = 1 : i64, split = [3, 4]} : (!x) -> (!v, !v)
  %2:2 = onnx.node "Split"(%x) opset 18 {axis = 1 : i64, num_outputs = 2 : i64} : (!x) -> (!v, !v)
  return %0#0, %0#1, %1#0, %1#1, %2#0, %2#1 : !v, !v, !v, !v, !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, n, m, d], f32>
!i = !sdx.tensor<[b, k, 2], i64>

// A tuple of indices, behind the batch dimension, is one index into all of them; -1, which the gather refuses, where one
// of the tuple is out of range.

// CHECK-LABEL: func.func @gather_nd
// CHECK: sdx.iota axis 0 : <[b, k], i64>
// CHECK: sdx.slice %arg1 from ["0", "0", "0"]
// CHECK: sdx.slice %arg1 from ["0", "0", "1"]
// CHECK: %[[VALID:.*]] = sdx.map "and"
// CHECK: sdx.const dense<-1>
// CHECK: %[[AT:.*]] = sdx.map "select"(%{{.*}}, %{{.*}}, %{{.*}}) : (!sdx.tensor<[b, k], i1>
// CHECK: %[[TABLE:.*]] = sdx.reshape %arg0 : <[b, n, m, d], f32> -> <[b*m*n, d], f32>
// CHECK: sdx.gather %[[TABLE]][%[[AT]]] axis 0 : ({{.*}}) -> !sdx.tensor<[b, k, d], f32>
func.func @gather_nd(%x: !x, %i: !i) -> !v {
  %0 = onnx.node "GatherND"(%x, %i) opset 13 {batch_dims = 1 : i64} : (!x, !i) -> !v
  return %0 : !v
}
