// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,choose-layouts,choose-algorithms)' | FileCheck %s

!k = !sdx.tensor<[256, 256, 3, 3], f32>
!x = !sdx.tensor<[n, 66, 66, 256], f32>
!h = !sdx.tensor<[n, 64, 66, 256, 3], f32>
!w = !sdx.tensor<[n, 64, 64, 256, 3, 3], f32>
!y = !sdx.tensor<[n, 64, 64, 256], f32>
!x8 = !sdx.tensor<[8, 18, 18, 256], f32>
!h8 = !sdx.tensor<[8, 16, 18, 256, 3], f32>
!w8 = !sdx.tensor<[8, 16, 16, 256, 3, 3], f32>
!y8 = !sdx.tensor<[8, 16, 16, 256], f32>
!t = !sdx.tensor<[20000000], f32>

// Between the kernels of a convolution 5 MiB may lie.

// OPTION: workspace-limit=5242880
module {

// An image alone needs 32 MiB.

// CHECK-LABEL: func.func @image
// CHECK-COUNT-2: flow.kernel
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @image(%x: !x) -> (!y, !t) {
  %t = sdx.param "t" : !t
  %u = sdx.map "abs"(%t) : (!t) -> !t
  %k = sdx.param "k" : !k
  %h = sdx.window %x axis 1 size "3" stride 1 dilation 1 : !x -> !h
  %w = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !w
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w, !k) -> !y
  return %0, %u : !y, !t
}

// Each of these needs 2 MiB: two at a time, whose results are put together.

// CHECK-LABEL: func.func @batch
// CHECK-DAG: flow.kernel outer ["2", "8", "8", "256"] inner [](%arg0) : {{.*}} -> !flow.container<[16, 2, 64, 256], f32, row_major> {
// CHECK-DAG: flow.load 0 ["%0 + 6", "2*%1 + 3", "2*%2 + 3", "%3"]
// CHECK: flow.kernel outer ["8", "16", "16", "256"] inner []
// CHECK-COUNT-4: flow.load
// CHECK: return
func.func @batch(%x: !x8) -> (!y8, !t) {
  %t = sdx.param "t" : !t
  %u = sdx.map "abs"(%t) : (!t) -> !t
  %k = sdx.param "k" : !k
  %h = sdx.window %x axis 1 size "3" stride 1 dilation 1 : !x8 -> !h8
  %w = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h8 -> !w8
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w8, !k) -> !y8
  return %0, %u : !y8, !t
}

}
