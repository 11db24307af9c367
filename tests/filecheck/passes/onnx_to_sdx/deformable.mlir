// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(onnx-to-sdx)' | FileCheck %s

!v = !onnx.value
!x = !sdx.tensor<[b, 4, s], f32>
!w = !sdx.tensor<[6, 2, 3], f32>
!o = !sdx.tensor<[b, 6, s - 2], f32>

// Groups of offsets are batch elements of their own; groups of channels are a letter.

// CHECK-LABEL: func.func @deformable
// CHECK: %[[S:.*]] = sdx.reduce "add" %{{.*}} axes [4] : {{.*}} -> <[2*b, 2, 3, s - 2], f32>
// CHECK: %[[C:.*]] = sdx.reshape %[[S]] : {{.*}} -> <[b, 4, 3, s - 2], f32>
// CHECK: sdx.reshape %[[C]] : {{.*}} -> <[b, 2, 2, 3, s - 2], f32>
// CHECK: sdx.contract "ngcip,goci->ngop"
// CHECK: sdx.reshape %{{.*}} -> <[b, 6, s - 2], f32>
func.func @deformable(%x: !x, %w: !w, %o: !o) -> !v {
  %0 = onnx.node "DeformConv"(%x, %w, %o) opset 19 {group = 2, offset_group = 2} : (!x, !w, !o) -> !v
  return %0 : !v
}
