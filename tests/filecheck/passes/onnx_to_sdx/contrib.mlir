// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!i = !sdx.tensor<[b, s], i32>
!w = !sdx.tensor<[100, 4], f32>
!p = !sdx.tensor<[64, 4], f32>
!c = !sdx.tensor<[4], f32>

// The embedding of the position i is row i: the sequence is no longer than the table.

// CHECK-LABEL: func.func @embed
// CHECK-SAME: sdx.symbols = ["input b 0..", "input s 0..64"]
// CHECK: %[[WORD:.*]] = sdx.gather %arg2
// CHECK: %[[POSITION:.*]] = sdx.slice %arg3 {{.*}} -> <[s, 4], f32>
// CHECK: %[[SEGMENT:.*]] = sdx.gather %arg4
// CHECK: sdx.map "add"(%[[WORD]], %[[SEGMENT]])
// CHECK: sdx.map "sqrt"
// CHECK: sdx.reduce "add" %arg7 axes [1] : <[b, s], i32> -> <[b], i32>
func.func @embed(%ids: !i, %seg: !i, %w: !w, %p: !p, %s: !w, %g: !c, %c: !c, %m: !i) -> (!v, !v)
    attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %0:2 = onnx.node "EmbedLayerNormalization"(%ids, %seg, %w, %p, %s, %g, %c, %m) opset 1 domain "com.microsoft" {}
    : (!i, !i, !w, !p, !w, !c, !c, !i) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, s, 8], f32>
!c = !sdx.tensor<[8], f32>

// Biases and gates: (x + bias + skip), the first half times gelu of the second, x · sigmoid(1.5 x).

// CHECK-LABEL: func.func @biases
// CHECK: %[[SUM:.*]] = sdx.map "add"(%arg0
// CHECK: sdx.map "add"(%[[SUM]], %arg2)
// CHECK: sdx.slice %{{.*}} from ["0", "0", "0"]
// CHECK: %[[HALF:.*]] = sdx.slice %{{.*}} from ["0", "0", "4"]
// CHECK: sdx.map "erf"
// CHECK: sdx.const dense<1.500000e+00>
// CHECK: sdx.map "exp"
func.func @biases(%x: !x, %c: !c, %s: !x) -> (!v, !v) {
  %0 = onnx.node "BiasAdd"(%x, %c, %s) opset 1 domain "com.microsoft" {} : (!x, !c, !x) -> !v
  %1 = onnx.node "BiasSplitGelu"(%0, %c) opset 1 domain "com.microsoft" {} : (!v, !c) -> !v
  %2 = onnx.node "QuickGelu"(%x) opset 1 domain "com.microsoft" {alpha = 1.5 : f32} : (!x) -> !v
  return %1, %2 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 2, s, t], f32>
!m = !sdx.tensor<[b, 1, 1, t], f32>

// CHECK-LABEL: func.func @bias_softmax
// CHECK: %[[SUM:.*]] = sdx.map "add"(%arg0
// CHECK: sdx.reduce "max" %[[SUM]] axes [3]
func.func @bias_softmax(%x: !x, %m: !m) -> !v {
  %0 = onnx.node "BiasSoftmax"(%x, %m) opset 1 domain "com.microsoft" {axis = 3 : i64, is_inner_broadcast = 1 : i64} : (!x, !m) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!a = !sdx.tensor<[k, b, m], f32>
!b = !sdx.tensor<[b, n, k], f32>
!x = !sdx.tensor<[m, k], f32>
!y = !sdx.tensor<[k, n], f32>

// The first dimension goes behind the batch's; then the last two change places.

// CHECK-LABEL: func.func @fused_matmul
// CHECK: sdx.transpose %arg0 [1, 0, 2]
// CHECK: sdx.transpose %{{.*}} [0, 2, 1]
// CHECK: sdx.transpose %arg1 [0, 2, 1]
// CHECK: %[[P:.*]] = sdx.contract "amk,akn->amn"
// CHECK: sdx.const dense<2.000000e+00>
// CHECK: sdx.contract "mk,kn->mn"
// CHECK: sdx.map "max"
// CHECK: sdx.contract "mk,kn->mn"
// CHECK: sdx.contract "mk,kn->mn"
// CHECK: sdx.map "tanh"
func.func @fused_matmul(%a: !a, %b: !b, %x: !x, %y: !y) -> (!v, !v, !v, !v) {
  %0 = onnx.node "FusedMatMul"(%a, %b) opset 1 domain "com.microsoft" {transA = 1 : i64, transB = 1 : i64, transBatchA = 1 : i64, alpha = 2.0 : f32}
    : (!a, !b) -> !v
  %1 = onnx.node "FusedGemm"(%x, %y) opset 1 domain "com.microsoft" {activation = "Relu"} : (!x, !y) -> !v
  %2 = onnx.node "TransposeMatMul"(%x, %y) opset 1 domain "com.microsoft" {} : (!x, !y) -> !v
  %3 = onnx.node "GemmFastGelu"(%x, %y) opset 1 domain "com.microsoft" {} : (!x, !y) -> !v
  return %0, %1, %2, %3 : !v, !v, !v, !v
}

// -----

!v = !onnx.value
!i = !sdx.tensor<[b, s], i32>
!w = !sdx.tensor<[99, 16], ui8>
!p = !sdx.tensor<[64, 16], ui8>
!g = !sdx.tensor<[16], ui8>
!s = !sdx.tensor<[], f32>
!z = !sdx.tensor<[], ui8>

// What is looked up becomes numbers afterwards.

// CHECK-LABEL: func.func @codes
// CHECK: %[[C:.*]] = sdx.gather %arg1[%{{.*}}] axis 0 {{.*}} -> !sdx.tensor<[b, s, 16], ui8>
// CHECK: sdx.convert %[[C]]
// CHECK: sdx.map "sub"
// CHECK: sdx.map "mul"
func.func @codes(%i: !i, %w: !w, %p: !p, %g: !g, %s: !s, %z: !z) -> (!v, !v) {
  %no = onnx.none : !v
  %0:2 = onnx.node "QEmbedLayerNormalization"(%i, %no, %w, %p, %no, %g, %g, %no, %s, %s, %no, %s, %s, %z, %z, %no, %z, %z) opset 1 domain "com.microsoft" {}
    : (!i, !v, !w, !p, !v, !g, !g, !v, !s, !s, !v, !s, !s, !z, !z, !v, !z, !z) -> (!v, !v)
  return %0#0, %0#1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[m, n], f32>
!y = !sdx.tensor<[k, n], f32>

// CHECK-LABEL: func.func @distances
// CHECK: %[[D:.*]] = sdx.map "sub"
// CHECK: %[[S:.*]] = sdx.map "mul"(%[[D]], %[[D]])
// CHECK: %[[R:.*]] = sdx.reduce "add" %[[S]] axes [2] : {{.*}} -> <[m, k], f32>
// CHECK: sdx.map "sqrt"(%[[R]])
func.func @distances(%x: !x, %y: !y) -> !v {
  %0 = onnx.node "CDist"(%x, %y) opset 1 domain "com.microsoft" {metric = "euclidean"} : (!x, !y) -> !v
  return %0 : !v
}
