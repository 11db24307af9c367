// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// CHECK-LABEL: func.func @matmul
// CHECK: sdx.contract "mk,kn->mn"(%{{.*}}, %{{.*}}) : ({{.*}}) -> !sdx.tensor<[m, n], f32>
func.func @matmul(%x: !sdx.tensor<[m, k], f32>, %y: !sdx.tensor<[k, n], f32>) -> !v {
  %0 = onnx.node "MatMul"(%x, %y) opset 13 {} : (!sdx.tensor<[m, k], f32>, !sdx.tensor<[k, n], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Leading dimensions broadcast: a letter for each that varies, none for 1.

// CHECK-LABEL: func.func @batch
// CHECK: %[[Y:.*]] = sdx.reshape %{{.*}} : <[1, h, d, t], f32> -> <[h, d, t], f32>
// CHECK: sdx.contract "abmk,bkn->abmn"(%{{.*}}, %[[Y]]) : ({{.*}}) -> !sdx.tensor<[b, h, s, t], f32>
func.func @batch(%x: !sdx.tensor<[b, h, s, d], f32>, %y: !sdx.tensor<[1, h, d, t], f32>) -> !v {
  %0 = onnx.node "MatMul"(%x, %y) opset 13 {} : (!sdx.tensor<[b, h, s, d], f32>, !sdx.tensor<[1, h, d, t], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// CHECK-LABEL: func.func @weights
// CHECK: sdx.contract "amk,kn->amn"(%{{.*}}, %{{.*}}) : ({{.*}}) -> !sdx.tensor<[b, s, 8], f32>
func.func @weights(%x: !sdx.tensor<[b, s, 4], f32>, %y: !sdx.tensor<[4, 8], f32>) -> !v {
  %0 = onnx.node "MatMul"(%x, %y) opset 13 {} : (!sdx.tensor<[b, s, 4], f32>, !sdx.tensor<[4, 8], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// A vector gains a dimension that the result loses.

// CHECK-LABEL: func.func @vectors
// CHECK: %[[X:.*]] = sdx.reshape %{{.*}} : <[k], f32> -> <[1, k], f32>
// CHECK: %[[Y:.*]] = sdx.reshape %{{.*}} : <[k], f32> -> <[k, 1], f32>
// CHECK: %[[P:.*]] = sdx.contract "mk,kn->mn"(%[[X]], %[[Y]])
// CHECK: sdx.reshape %[[P]] : <[1, 1], f32> -> <[], f32>
func.func @vectors(%x: !sdx.tensor<[k], f32>, %y: !sdx.tensor<[k], f32>) -> !v {
  %0 = onnx.node "MatMul"(%x, %y) opset 13 {} : (!sdx.tensor<[k], f32>, !sdx.tensor<[k], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[m, 4], f32>

// CHECK-LABEL: func.func @gemm
// CHECK: %[[P:.*]] = sdx.contract "mk,kn->mn"
// CHECK: %[[C:.*]] = sdx.broadcast %{{.*}} to [1] : <[8], f32> -> <[m, 8], f32>
// CHECK: sdx.map "add"(%[[P]], %[[C]])
func.func @gemm(%x: !x, %y: !sdx.tensor<[4, 8], f32>, %c: !sdx.tensor<[8], f32>) -> !v {
  %0 = onnx.node "Gemm"(%x, %y, %c) opset 13 {} : (!x, !sdx.tensor<[4, 8], f32>, !sdx.tensor<[8], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// alpha, beta and the transposes

// CHECK-LABEL: func.func @gemm_all
// CHECK: %[[P:.*]] = sdx.contract "km,nk->mn"
// CHECK: sdx.const dense<5.000000e-01>
// CHECK: %[[SCALED:.*]] = sdx.map "mul"(%[[P]]
// CHECK: sdx.const dense<2.000000e+00>
// CHECK: %[[C:.*]] = sdx.map "mul"(%arg2
// CHECK: sdx.map "add"(%[[SCALED]], %[[C]])
func.func @gemm_all(%x: !sdx.tensor<[4, m], f32>, %y: !sdx.tensor<[8, 4], f32>, %c: !sdx.tensor<[m, 8], f32>) -> !v {
  %0 = onnx.node "Gemm"(%x, %y, %c) opset 13 {alpha = 0.5 : f32, beta = 2.0 : f32, transA = 1 : i64, transB = 1 : i64}
    : (!sdx.tensor<[4, m], f32>, !sdx.tensor<[8, 4], f32>, !sdx.tensor<[m, 8], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value

// Symbols that a contraction makes equal become one, also in the inputs' types.

// CHECK-LABEL: func.func @unified
// CHECK-SAME: !sdx.tensor<[m, [[K:[a-z0-9]+]]], f32>
// CHECK-SAME: !sdx.tensor<[[[K]], n], f32>
// CHECK-SAME: sdx.symbols = ["input [[K]] 2..8", "derived 2.. k2 = [[K]] : {{.*}}", "input m 0..", "input n 0.."]
func.func @unified(%x: !sdx.tensor<[m, k1], f32>, %y: !sdx.tensor<[k2, n], f32>) -> !v
    attributes {sdx.symbols = ["input m 0..", "input n 0..", "input k1 0..8", "input k2 2.."]} {
  %0 = onnx.node "MatMul"(%x, %y) opset 13 {} : (!sdx.tensor<[m, k1], f32>, !sdx.tensor<[k2, n], f32>) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!a = !sdx.tensor<[m, k], f32>
!b = !sdx.tensor<[k, n], f32>
!c = !sdx.tensor<[p], f32>

// C is one element or as many as there are columns, which the call knows.

// CHECK-LABEL: func.func @gemm_of_an_open_bias
// CHECK-SAME: sdx.checks = [{{.*}} == 0 : "]
// CHECK: sdx.contract
// CHECK: %[[AT:.*]] = sdx.map "min"
// CHECK: sdx.gather %arg2[%[[AT]]] axis 0
// CHECK: sdx.map "add"
func.func @gemm_of_an_open_bias(%a: !a, %b: !b, %c: !c) -> !v {
  %0 = onnx.node "Gemm"(%a, %b, %c) opset 13 {} : (!a, !b, !c) -> !v
  return %0 : !v
}
