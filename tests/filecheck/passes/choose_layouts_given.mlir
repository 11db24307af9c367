// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,choose-layouts)' | FileCheck %s

!x = !sdx.tensor<[1, 16, 30, 30], f32>
!v = !sdx.tensor<[64, 16], f32>
!k = !sdx.tensor<[32, 64, 3, 3], f32>
!y = !sdx.tensor<[1, 64, 30, 30], f32>
!z = !sdx.tensor<[1, 28, 28, 32], f32>

// A module may say how tensors lie, to compare with what would be chosen.

// OPTION: layouts=row-major
module {

// CHECK-LABEL: func.func @convolutions
// CHECK-NOT: order<
// CHECK: return
func.func @convolutions(%x: !x) -> !z {
  %v = sdx.param "v" : !v
  %k = sdx.param "k" : !k
  %0 = sdx.contract "nchw,oc->nohw"(%x, %v) : (!x, !v) -> !y
  %h = sdx.window %0 axis 2 size "3" stride 1 dilation 1 : !y -> !sdx.tensor<[1, 64, 28, 30, 3], f32>
  %w = sdx.window %h axis 3 size "3" stride 1 dilation 1 : !sdx.tensor<[1, 64, 28, 30, 3], f32> -> !sdx.tensor<[1, 64, 28, 28, 3, 3], f32>
  %1 = sdx.contract "nchwij,ocij->nhwo"(%w, %k) : (!sdx.tensor<[1, 64, 28, 28, 3, 3], f32>, !k) -> !z
  return %1 : !z
}

}

// -----

!x = !sdx.tensor<[1, 16, 30, 30], f32>
!v = !sdx.tensor<[64, 16], f32>
!k = !sdx.tensor<[32, 64, 3, 3], f32>
!y = !sdx.tensor<[1, 64, 30, 30], f32>
!z = !sdx.tensor<[1, 28, 28, 32], f32>

// OPTION: layouts=columns
module {

// CHECK-LABEL: func.func @convolutions
// CHECK: flow.kernel outer ["1", "30", "30", "64"] inner ["16"](%arg0, {{.*}}) : {{.*}} -> !flow.container<[1, 64, 30, 30], f32, "order<0, 2, 3, 1>"> {
func.func @convolutions(%x: !x) -> !z {
  %v = sdx.param "v" : !v
  %k = sdx.param "k" : !k
  %0 = sdx.contract "nchw,oc->nohw"(%x, %v) : (!x, !v) -> !y
  %h = sdx.window %0 axis 2 size "3" stride 1 dilation 1 : !y -> !sdx.tensor<[1, 64, 28, 30, 3], f32>
  %w = sdx.window %h axis 3 size "3" stride 1 dilation 1 : !sdx.tensor<[1, 64, 28, 30, 3], f32> -> !sdx.tensor<[1, 64, 28, 28, 3, 3], f32>
  %1 = sdx.contract "nchwij,ocij->nhwo"(%w, %k) : (!sdx.tensor<[1, 64, 28, 28, 3, 3], f32>, !k) -> !z
  return %1 : !z
}

}
