// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[a, b], f32>

// The host finds indices; elements are gathered where the others are computed.

// CHECK-LABEL: func.func @indices
// CHECK: %[[N:.*]] = sdx.host "NonZero"(%{{.*}}) result 0 of 0 binds ["1 data0"] calls [] : (!sdx.tensor<[a, b], f32>) -> !sdx.tensor<[2, data0], i64>
// CHECK: %[[C:.*]] = sdx.host "NonZero"(%{{.*}}) result 0 of 1 binds ["1 data1"] calls [] : (!sdx.tensor<[3], i1>) -> !sdx.tensor<[1, data1], i64>
// CHECK: %[[I:.*]] = sdx.reshape %[[C]]
// CHECK: sdx.gather %{{.*}}[%[[I]]] axis 1 : (!sdx.tensor<[a, b], f32>, !sdx.tensor<[data1], i64>) -> !sdx.tensor<[a, data1], f32>
func.func @indices(%x: !x, %c: !sdx.tensor<[3], i1>) -> (!v, !v) {
  %0 = onnx.node "NonZero"(%x) opset 13 {} : (!x) -> !v
  %1 = onnx.node "Compress"(%x, %c) opset 11 {axis = 1 : i64} : (!x, !sdx.tensor<[3], i1>) -> !v
  return %0, %1 : !v, !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[a, b], f32>

// CHECK-LABEL: func.func @unique
// CHECK: %[[FIRST:.*]] = sdx.host "Unique axis=1 sorted=0"(%{{.*}}) result 0 of 0 binds ["0 data0"]
// CHECK: sdx.host "Unique axis=1 sorted=0"(%{{.*}}) result 1 of 0 binds [] calls [] : (!sdx.tensor<[a, b], f32>) -> !sdx.tensor<[b], i64>
// CHECK: sdx.gather %{{.*}}[%[[FIRST]]] axis 1
func.func @unique(%x: !x) -> (!v, !v, !v, !v) {
  %0:4 = onnx.node "Unique"(%x) opset 11 {axis = -1 : i64, sorted = 0 : i64} : (!x) -> (!v, !v, !v, !v)
  return %0#0, %0#1, %0#2, %0#3 : !v, !v, !v, !v
}

// -----

!v = !onnx.value

// CHECK-LABEL: func.func @boxes
// CHECK: sdx.host "NonMaxSuppression center=0"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) result 0 of 0 binds ["0 data0"] calls [] : (!sdx.tensor<[b, m, 4], f32>, !sdx.tensor<[b, c, m], f32>, !sdx.tensor<[], i64>, !sdx.tensor<[], f32>, !sdx.tensor<[], f32>) -> !sdx.tensor<[data0, 3], i64>
func.func @boxes(%b: !sdx.tensor<[b, m, 4], f32>, %s: !sdx.tensor<[b, c, m], f32>) -> !v {
  %0 = onnx.node "NonMaxSuppression"(%b, %s) opset 11 {} : (!sdx.tensor<[b, m, 4], f32>, !sdx.tensor<[b, c, m], f32>) -> !v
  return %0 : !v
}
