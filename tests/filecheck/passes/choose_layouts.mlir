// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,choose-layouts)' | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,choose-layouts,pack-weights)' | FileCheck %s --check-prefix=PACK

!x = !sdx.tensor<[1, 16, 30, 30], f32>
!v = !sdx.tensor<[64, 16], f32>
!k = !sdx.tensor<[32, 64, 3, 3], f32>
!y = !sdx.tensor<[1, 64, 30, 30], f32>
!z = !sdx.tensor<[1, 28, 28, 32], f32>

// Between two convolutions channels come last; the input and the output of the model lie as its author says.

// CHECK-LABEL: func.func @convolutions
// CHECK-SAME: (%arg0: !flow.container<[1, 16, 30, 30], f32, row_major>
// CHECK: %[[A:.*]] = flow.kernel outer ["1", "30", "30", "64"] inner ["16"](%arg0, {{.*}}) : {{.*}} -> !flow.container<[1, 64, 30, 30], f32, "order<0, 2, 3, 1>"> {
// CHECK: flow.load 0 ["%0", "%4", "%1", "%2"]
// CHECK: flow.store {{.*}} to 0 ["%0", "%3", "%1", "%2"]
// CHECK: flow.kernel {{.*}}"order<0, 2, 3, 1>">{{.*}} -> !flow.container<[1, 28, 28, 32], f32, row_major> {

// The rows of a convolution's packed weights are counted as the operand lies: the channels of a pixel after each other.

// PACK-LABEL: func.func @convolutions
// PACK: flow.param "k" window [0, 1, 576, 64, 9] : <[576, 32], f32, panels32>
// PACK: flow.load {{.}} ["192*%4 + 64*%5 + %6", "%3"]
func.func @convolutions(%x: !x) -> !z {
  %v = sdx.param "v" : !v
  %k = sdx.param "k" : !k
  %0 = sdx.contract "nchw,oc->nohw"(%x, %v) : (!x, !v) -> !y
  %1 = sdx.map "abs"(%0) : (!y) -> !y
  %h = sdx.window %1 axis 2 size "3" stride 1 dilation 1 : !y -> !sdx.tensor<[1, 64, 28, 30, 3], f32>
  %w = sdx.window %h axis 3 size "3" stride 1 dilation 1 : !sdx.tensor<[1, 64, 28, 30, 3], f32> -> !sdx.tensor<[1, 64, 28, 28, 3, 3], f32>
  %2 = sdx.contract "nchwij,ocij->nhwo"(%w, %k) : (!sdx.tensor<[1, 64, 28, 28, 3, 3], f32>, !k) -> !z
  return %2 : !z
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 40], f32>
!y = !sdx.tensor<[b, 40], f32>

// Where columns are innermost already, nothing is to be chosen.

// CHECK-LABEL: func.func @rows
// CHECK-NOT: order<
// CHECK: return
func.func @rows(%x: !x, %v: !sdx.tensor<[40, 8], f32>) -> !x {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%0, %v) : (!y, !sdx.tensor<[40, 8], f32>) -> !x
  return %1 : !x
}

// -----

!x = !sdx.tensor<[b, 512, 64], f32>
!m = !sdx.tensor<[b, 64], f32>
!t = !sdx.tensor<[b, 64, 512], f32>
!k = !sdx.tensor<[128, 64, 5], f32>
!w = !sdx.tensor<[b, 64, 508, 5], f32>
!y = !sdx.tensor<[b, 508, 128], f32>

// What no contraction has made comes with its channels last where a convolution sums along them.

// CHECK-LABEL: func.func @channels_of_a_signal
// CHECK: flow.kernel {{.*}} -> !flow.container<[b, 64, 512], f32, "order<0, 2, 1>">
// CHECK: flow.kernel {{.*}} inner ["64", "5"]
func.func @channels_of_a_signal(%x: !x) -> !y {
  %k = sdx.param "k" : !k
  %0 = sdx.reduce "max" %x axes [1] : !x -> !m
  %1 = sdx.broadcast %0 to [0, 2] : !m -> !x
  %2 = sdx.map "sub"(%x, %1) : (!x, !x) -> !x
  %3 = sdx.transpose %2 [0, 2, 1] : !x -> !t
  %w = sdx.window %3 axis 2 size "5" stride 1 dilation 1 : !t -> !w
  %4 = sdx.contract "bcpi,oci->bpo"(%w, %k) : (!w, !k) -> !y
  return %4 : !y
}
