// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, s], f32>
!i = !sdx.tensor<[3], i64>

// CHECK-LABEL: func.func @plain
// CHECK: sdx.convert %arg0 : <[b, s], f32> -> <[b, s], f16>
// CHECK: sdx.convert %arg0 : <[b, s], f32> -> <[b, s], i64>
func.func @plain(%x: !x, %like: !i) -> (!v, !v) {
  %half = onnx.node "Cast"(%x) opset 13 {to = 10 : i64} : (!x) -> !v
  %like_ints = onnx.node "CastLike"(%x, %like) opset 15 {} : (!x, !i) -> !v
  return %half, %like_ints : !v, !v
}
