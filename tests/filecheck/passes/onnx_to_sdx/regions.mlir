// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 3, h, w], f32>
!r = !sdx.tensor<[r, 4], f32>
!i = !sdx.tensor<[r], i64>

// Two samples along each axis of a bin, of two neighbours each.

// CHECK-LABEL: func.func @aligned
// CHECK: sdx.gather %{{.*}} axis 0 : {{.*}} -> !sdx.tensor<[r, 3, 5, 4, 2, 2, 2, 2], f32>
// CHECK: sdx.reduce "add" %{{.*}} axes [4, 5, 6, 7] : {{.*}} -> <[r, 3, 5, 4], f32>
// CHECK: sdx.map "div"
func.func @aligned(%x: !x, %r: !r, %i: !i) -> !v {
  %0 = onnx.node "RoiAlign"(%x, %r, %i) opset 16 {output_height = 5, output_width = 4, sampling_ratio = 2} : (!x, !r, !i) -> !v
  return %0 : !v
}

// -----

!v = !onnx.value
!x = !sdx.tensor<[b, 3, h, w], f32>
!r = !sdx.tensor<[r, 4], f32>
!i = !sdx.tensor<[r], i64>

// Without a ratio a bin has as many samples as elements; those of the largest one are looked at.

// CHECK-LABEL: func.func @adaptive
// CHECK: sdx.bind "data0"
// CHECK: sdx.bind "data1"
// CHECK: sdx.gather %{{.*}} axis 0 : {{.*}} -> !sdx.tensor<[r, 3, 1, 1, data0, data1, 2, 2], f32>
// CHECK: sdx.reduce "max" %{{.*}} axes [4, 5, 6, 7] : {{.*}} -> <[r, 3, 1, 1], f32>
func.func @adaptive(%x: !x, %r: !r, %i: !i) -> !v {
  %0 = onnx.node "RoiAlign"(%x, %r, %i) opset 10 {mode = "max"} : (!x, !r, !i) -> !v
  return %0 : !v
}
