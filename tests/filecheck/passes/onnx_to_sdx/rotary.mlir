// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 2, s, 4], f32>
!t = !sdx.tensor<[b, s, 2], f32>

// x1 cos - x2 sin, x1 sin + x2 cos: of the two halves …

// CHECK-LABEL: func.func @rotary
// CHECK: %[[COS:.*]] = sdx.reshape %arg1 : <[b, s, 2], f32> -> <[b, 1, s, 2], f32>
// CHECK: %[[SIN:.*]] = sdx.reshape %arg2
// CHECK: %[[X1:.*]] = sdx.slice %arg0 from ["0", "0", "0", "0"] step [1, 1, 1, 1]
// CHECK: %[[X2:.*]] = sdx.slice %arg0 from ["0", "0", "0", "2"] step [1, 1, 1, 1]
// CHECK: %[[REAL:.*]] = sdx.map "sub"
// CHECK: %[[IMAGINARY:.*]] = sdx.map "add"
// CHECK: sdx.concat(%[[REAL]], %[[IMAGINARY]]) axis 3
func.func @rotary(%x: !x, %cos: !t, %sin: !t) -> !v {
  %0 = onnx.node "RotaryEmbedding"(%x, %cos, %sin) opset 23 {} : (!x, !t, !t) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 2, s, 6], f32>
!t = !sdx.tensor<[n, 2], f32>
!i = !sdx.tensor<[b, s], i64>

// … or of neighbours, at given positions; the channels beyond stay.

// CHECK-LABEL: func.func @rotary_interleaved
// CHECK: sdx.gather %arg1[%arg3] axis 0
// CHECK: sdx.slice %arg0 from ["0", "0", "0", "0"] step [1, 1, 1, 2] : {{.*}} -> <[b, 2, s, 2], f32>
// CHECK: sdx.slice %arg0 from ["0", "0", "0", "1"] step [1, 1, 1, 2]
// CHECK: sdx.concat(%{{.*}}, %{{.*}}) axis 4
// CHECK: %[[TURNED:.*]] = sdx.reshape %{{.*}} -> <[b, 2, s, 4], f32>
// CHECK: %[[REST:.*]] = sdx.slice %arg0 from ["0", "0", "0", "4"] {{.*}} -> <[b, 2, s, 2], f32>
// CHECK: sdx.concat(%[[TURNED]], %[[REST]]) axis 3
func.func @rotary_interleaved(%x: !x, %cos: !t, %sin: !t, %i: !i) -> !v {
  %0 = onnx.node "RotaryEmbedding"(%x, %cos, %sin, %i) opset 23 {interleaved = 1 : i64, rotary_embedding_dim = 4 : i64}
    : (!x, !t, !t, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, w], f32>
!t = !sdx.tensor<[n, 2], f32>
!i = !sdx.tensor<[1], i64>

// com.microsoft: the tables come last, and one position is that of the first token. Four heads of tables of two angles
// make a width of 16.

// CHECK-LABEL: func.func @rotary_microsoft
// CHECK-SAME: !sdx.tensor<[b, s, 16], f32>
// CHECK-SAME: "derived 0.. w = 16 : "
// CHECK: sdx.iota axis 1 : <[b, s], i64>
// CHECK: %[[P:.*]] = sdx.map "add"
// CHECK: sdx.gather %arg2[%[[P]]] axis 0
func.func @rotary_microsoft(%x: !x, %i: !i, %cos: !t, %sin: !t) -> !v
    attributes {sdx.symbols = ["input b 0..", "input s 0..", "input w 0..", "input n 0.."]} {
  %0 = onnx.node "RotaryEmbedding"(%x, %i, %cos, %sin) opset 1 domain "com.microsoft" {num_heads = 4 : i64}
    : (!x, !i, !t, !t) -> !v
  return %0 : !v
}
