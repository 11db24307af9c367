// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,choose-layouts,choose-algorithms)' | FileCheck %s

!x = !sdx.tensor<[n, 66, 66, 256], f32>
!k = !sdx.tensor<[256, 256, 3, 3], f32>
!b = !sdx.tensor<[256], f32>
!h = !sdx.tensor<[n, 64, 66, 256, 3], f32>
!w = !sdx.tensor<[n, 64, 64, 256, 3, 3], f32>
!y = !sdx.tensor<[n, 64, 64, 256], f32>
!t = !sdx.tensor<[20000000], f32>

// Pieces of 4 x 4 become 16 matrices of tiles by channels; each is multiplied with its filters; of 16 products four
// results are made, and each gets its bias.

// CHECK-LABEL: func.func @image
// CHECK-DAG: %[[U:.*]] = flow.param "k" transform "winograd" : <[16, 8, 256, 32], f32, row_major>
// CHECK-DAG: %[[V:.*]] = flow.kernel outer ["n", "32", "32", "256"] inner [](%arg0) : {{.*}} -> !flow.container<[16, n, 1024, 256], f32, row_major> {
// CHECK: flow.load 0 ["%0", "2*%1", "2*%2", "%3"]
// CHECK: flow.load 0 ["%0", "2*%1 + 3", "2*%2 + 3", "%3"]
// CHECK: flow.store {{.*}} to 0 ["0", "%0", "32*%1 + %2", "%3"]
// CHECK: flow.store {{.*}} to 0 ["15", "%0", "32*%1 + %2", "%3"]
// CHECK: %[[M:.*]] = flow.kernel outer ["16", "n", "1024", "8", "32"] inner ["256"](%[[V]], %[[U]])
// CHECK: flow.kernel outer ["n", "32", "32", "256"] inner []({{.*}}) : {{.*}} -> !flow.container<[n, 64, 64, 256], f32, row_major> {
// CHECK-COUNT-16: flow.load {{.}} ["{{[0-9]+}}", "%0", "32*%1 + %2", "%3"]
// CHECK: flow.store {{.*}} to 0 ["%0", "2*%1", "2*%2", "%3"]
// CHECK: flow.store {{.*}} to 0 ["%0", "2*%1 + 1", "2*%2 + 1", "%3"]
func.func @image(%x: !x) -> (!y, !t) {
  %t = sdx.param "t" : !t
  %u = sdx.map "abs"(%t) : (!t) -> !t
  %k = sdx.param "k" : !k
  %b = sdx.param "b" : !b
  %h = sdx.window %x axis 1 size "3" stride 1 dilation 1 : !x -> !h
  %w = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !w
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w, !k) -> !y
  %1 = sdx.broadcast %b to [3] : !b -> !y
  %2 = sdx.map "add"(%0, %1) : (!y, !y) -> !y
  return %2, %u : !y, !t
}

// -----

!x = !sdx.tensor<[n, 65, 65, 256], f32>
!k = !sdx.tensor<[256, 256, 3, 3], f32>
!h = !sdx.tensor<[n, 63, 65, 256, 3], f32>
!w = !sdx.tensor<[n, 63, 63, 256, 3, 3], f32>
!y = !sdx.tensor<[n, 63, 63, 256], f32>
!t = !sdx.tensor<[20000000], f32>

// Tiles do not cover an odd number of lines, and what is returned has no room for one more.

// CHECK-LABEL: func.func @odd
// CHECK-COUNT-2: flow.kernel
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @odd(%x: !x) -> (!y, !t) {
  %t = sdx.param "t" : !t
  %u = sdx.map "abs"(%t) : (!t) -> !t
  %k = sdx.param "k" : !k
  %h = sdx.window %x axis 1 size "3" stride 1 dilation 1 : !x -> !h
  %w = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !w
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w, !k) -> !y
  return %0, %u : !y, !t
}

// -----

!x = !sdx.tensor<[n, 65, 65, 256], f32>
!k = !sdx.tensor<[256, 256, 3, 3], f32>
!h = !sdx.tensor<[n, 63, 65, 256, 3], f32>
!w = !sdx.tensor<[n, 63, 63, 256, 3, 3], f32>
!y = !sdx.tensor<[n, 63, 63, 256], f32>
!m = !sdx.tensor<[n, 63, 63], f32>
!t = !sdx.tensor<[20000000], f32>

// What a kernel reads has it: the last tile's pieces are clamped to what there is.

// CHECK-LABEL: func.func @odd_inside
// CHECK: flow.kernel outer ["n", "32", "32", "256"] inner [](%arg0)
// CHECK: flow.load 0 ["%0", "2*%1", "2*%2", "%3"]
// CHECK: flow.load 0 ["%0", "min(2*%1 + 3, 64)", "min(2*%2 + 3, 64)", "%3"]
// CHECK: flow.kernel outer ["16", "n", "1024", "8", "32"] inner ["256"]
// CHECK: %[[Y:.*]] = flow.kernel outer ["n", "32", "32", "256"] inner []({{.*}}) : {{.*}} -> !flow.container<[n, 64, 64, 256], f32, row_major> {
// CHECK: flow.store {{.*}} to 0 ["%0", "2*%1 + 1", "2*%2 + 1", "%3"]
// CHECK: flow.kernel outer ["n", "63", "63"] inner ["256"](%[[Y]]) : (!flow.container<[n, 64, 64, 256], f32, row_major>)
// CHECK: flow.load 0 ["%0", "%1", "%2", "%3"]
func.func @odd_inside(%x: !x) -> (!m, !t) {
  %t = sdx.param "t" : !t
  %u = sdx.map "abs"(%t) : (!t) -> !t
  %k = sdx.param "k" : !k
  %h = sdx.window %x axis 1 size "3" stride 1 dilation 1 : !x -> !h
  %w = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !w
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w, !k) -> !y
  %1 = sdx.reduce "max" %0 axes [3] : !y -> !m
  return %1, %u : !m, !t
}

// -----

!x = !sdx.tensor<[n, 130, 130, 256], f32>
!k = !sdx.tensor<[256, 256, 3, 3], f32>
!h = !sdx.tensor<[n, 64, 130, 256, 3], f32>
!w = !sdx.tensor<[n, 64, 64, 256, 3, 3], f32>
!y = !sdx.tensor<[n, 64, 64, 256], f32>
!t = !sdx.tensor<[20000000], f32>

// With a stride of 2 pieces would share too little.

// CHECK-LABEL: func.func @far
// CHECK-COUNT-2: flow.kernel
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @far(%x: !x) -> (!y, !t) {
  %t = sdx.param "t" : !t
  %u = sdx.map "abs"(%t) : (!t) -> !t
  %k = sdx.param "k" : !k
  %h = sdx.window %x axis 1 size "3" stride 2 dilation 1 : !x -> !h
  %w = sdx.window %h axis 2 size "3" stride 2 dilation 1 : !h -> !w
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w, !k) -> !y
  return %0, %u : !y, !t
}

// -----

!x = !sdx.tensor<[n, 66, 66, 8], f32>
!k = !sdx.tensor<[16, 8, 3, 3], f32>
!h = !sdx.tensor<[n, 64, 66, 8, 3], f32>
!w = !sdx.tensor<[n, 64, 64, 8, 3, 3], f32>
!y = !sdx.tensor<[n, 64, 64, 16], f32>
!t = !sdx.tensor<[20000000], f32>

// Of few channels the transforms move more than the products save.

// CHECK-LABEL: func.func @small
// CHECK-COUNT-2: flow.kernel
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @small(%x: !x) -> (!y, !t) {
  %t = sdx.param "t" : !t
  %u = sdx.map "abs"(%t) : (!t) -> !t
  %k = sdx.param "k" : !k
  %h = sdx.window %x axis 1 size "3" stride 1 dilation 1 : !x -> !h
  %w = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !w
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w, !k) -> !y
  return %0, %u : !y, !t
}

// -----

!x = !sdx.tensor<[n, 66, 66, 256], f32>
!k = !sdx.tensor<[256, 256, 3, 3], f32>
!h = !sdx.tensor<[n, 64, 66, 256, 3], f32>
!w = !sdx.tensor<[n, 64, 64, 256, 3, 3], f32>
!y = !sdx.tensor<[n, 64, 64, 256], f32>

// Sixteen numbers for nine: where these are all the weights, the artifact would become too large, and each call makes
// the matrices from the filters, whose columns lie side by side.

// CHECK-LABEL: func.func @alone
// CHECK: %[[K:.*]] = flow.param "k" window [0, 1, 2304, 256, 9] : <[2304, 256], f32, row_major>
// CHECK: flow.kernel outer ["8", "256", "32"] inner [](%[[K]]) : {{.*}} -> !flow.container<[16, 8, 256, 32], f32, row_major> {
// CHECK: flow.load 0 ["%1", "32*%0 + %2"]
// CHECK: flow.load 0 ["%1 + 2048", "32*%0 + %2"]
// CHECK: flow.store {{.*}} to 0 ["15", "%0", "%1", "%2"]
// CHECK: flow.kernel outer ["n", "32", "32", "256"] inner [](%arg0)
func.func @alone(%x: !x) -> !y {
  %k = sdx.param "k" : !k
  %h = sdx.window %x axis 1 size "3" stride 1 dilation 1 : !x -> !h
  %w = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !w
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w, !k) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[1, 16, 16, 256], f32>
!k = !sdx.tensor<[256, 256, 3, 3], f32>
!h = !sdx.tensor<[1, 14, 16, 256, 3], f32>
!w = !sdx.tensor<[1, 14, 14, 256, 3, 3], f32>
!y = !sdx.tensor<[1, 14, 14, 256], f32>

// For few tiles that does not pay.

// CHECK-LABEL: func.func @few
// CHECK-COUNT-1: flow.kernel
// CHECK-NOT: flow.kernel
// CHECK: return
func.func @few(%x: !x) -> !y {
  %k = sdx.param "k" : !k
  %h = sdx.window %x axis 1 size "3" stride 1 dilation 1 : !x -> !h
  %w = sdx.window %h axis 2 size "3" stride 1 dilation 1 : !h -> !w
  %0 = sdx.contract "nhwcij,ocij->nhwo"(%w, %k) : (!w, !k) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[n, 512, 256], f32>
!k = !sdx.tensor<[512, 256, 5], f32>
!w = !sdx.tensor<[n, 508, 256, 5], f32>
!y = !sdx.tensor<[n, 508, 512], f32>

// Along one side five offsets take six products for two results, in place of ten.

// CHECK-LABEL: func.func @signal
// CHECK: %[[K:.*]] = flow.param "k" window [0, 1, 1280, 256, 5] : <[1280, 512], f32, row_major>
// CHECK: %[[U:.*]] = flow.kernel outer ["16", "256", "32"] inner [](%[[K]]) : {{.*}} -> !flow.container<[6, 16, 256, 32], f32, row_major> {
// CHECK: %[[V:.*]] = flow.kernel outer ["n", "254", "256"] inner [](%arg0) : {{.*}} -> !flow.container<[6, n, 254, 256], f32, row_major> {
// CHECK: flow.load 0 ["%0", "2*%1 + 5", "%2"]
// CHECK: flow.store {{.*}} to 0 ["5", "%0", "%1", "%2"]
// CHECK: flow.kernel outer ["6", "n", "254", "16", "32"] inner ["256"](%[[V]], %[[U]])
// CHECK: flow.kernel outer ["n", "254", "512"] inner []
// CHECK-COUNT-6: flow.load 0 ["{{[0-9]}}", "%0", "%1", "%2"]
// CHECK: flow.store {{.*}} to 0 ["%0", "2*%1 + 1", "%2"]
func.func @signal(%x: !x) -> !y {
  %k = sdx.param "k" : !k
  %w = sdx.window %x axis 1 size "5" stride 1 dilation 1 : !x -> !w
  %0 = sdx.contract "nwcj,ocj->nwo"(%w, %k) : (!w, !k) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[n, 512, 256], f32>
!k = !sdx.tensor<[512, 256, 5], f32>
!w = !sdx.tensor<[n, 508, 256, 5], f32>
!y = !sdx.tensor<[n, 508, 512], f32>

// Factors of bf16 are multiplied faster than transforms of f32 could save.

// CHECK-LABEL: func.func @signal_bf16
// CHECK-COUNT-1: flow.kernel
// CHECK-NOT: flow.kernel
// CHECK: return
// OPTION: precision=bf16
module {
  func.func @signal_bf16(%x: !x) -> !y {
    %k = sdx.param "k" : !k
    %w = sdx.window %x axis 1 size "5" stride 1 dilation 1 : !x -> !w
    %0 = sdx.contract "nwcj,ocj->nwo"(%w, %k) : (!w, !k) -> !y
    return %0 : !y
  }
}
