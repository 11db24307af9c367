// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value

// Positions below the number of tokens are rows of tokens, those above rows of padding; the rows are gathered.

// CHECK-LABEL: func.func @remove_padding
// CHECK: %[[STARTS:.*]] = sdx.reduce "add"
// CHECK: %[[PADDING:.*]] = sdx.map "sub"
// CHECK: sdx.reduce "add"
// CHECK: %[[TOTAL:.*]] = sdx.reduce "add"
// CHECK: sdx.map "le"
// CHECK: sdx.gather %[[STARTS]]
// CHECK: sdx.map "le"
// CHECK: %[[TOKENS:.*]] = sdx.map "lt"
// CHECK: %[[OFFSETS:.*]] = sdx.map "select"(%[[TOKENS]]
// CHECK: sdx.reduce "max"
// CHECK: sdx.bind
// CHECK: %[[TAKEN:.*]] = sdx.slice %[[OFFSETS]]
// CHECK: sdx.gather %{{.*}}[%[[TAKEN]]]
func.func @remove_padding(%x: !sdx.tensor<[b, s, 8], f32>, %counts: !sdx.tensor<[b], i32>) -> (!v, !v, !v, !v) {
  %0:4 = onnx.node "RemovePadding"(%x, %counts) opset 1 domain "com.microsoft" {}
    : (!sdx.tensor<[b, s, 8], f32>, !sdx.tensor<[b], i32>) -> (!v, !v, !v, !v)
  return %0#0, %0#1, %0#2, %0#3 : !v, !v, !v, !v
}

// -----

!v = !onnx.value

// A place takes the first row whose offset it is, or the row of zeros behind the last.

// CHECK-LABEL: func.func @restore_padding
// CHECK: sdx.map "eq"
// CHECK: sdx.dims ["n"]
// CHECK: sdx.map "select"
// CHECK: %[[ROW:.*]] = sdx.reduce "min"
// CHECK: %[[ROWS:.*]] = sdx.pad {{.*}} -> !sdx.tensor<[n + 1, 8], f32>
// CHECK: sdx.gather %[[ROWS]][%[[ROW]]]
// CHECK: sdx.reshape %{{.*}} -> <[b, s, 8], f32>
func.func @restore_padding(%x: !sdx.tensor<[n, 8], f32>, %offsets: !sdx.tensor<[b, s], i32>) -> !v {
  %0 = onnx.node "RestorePadding"(%x, %offsets) opset 1 domain "com.microsoft" {}
    : (!sdx.tensor<[n, 8], f32>, !sdx.tensor<[b, s], i32>) -> !v
  return %0 : !v
}
