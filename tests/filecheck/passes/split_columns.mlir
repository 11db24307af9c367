// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,split-columns)' | FileCheck %s

!x = !sdx.tensor<[b, 16], f32>
!w = !sdx.tensor<[16, 24], f32>
!y = !sdx.tensor<[b, 24], f32>
!h = !sdx.tensor<[b, 8], f32>

// The three parts of a product's columns are sums of one kernel, which what reads them follows.

// CHECK-LABEL: func.func @gates
// CHECK: flow.kernel outer ["b", "8"] inner ["16"](%arg0, %arg1, %arg2)
// CHECK-DAG: flow.load 1 ["%2", "%1"]
// CHECK-DAG: flow.load 1 ["%2", "%1 + 8"]
// CHECK-DAG: flow.load 1 ["%2", "%1 + 16"]
// CHECK-COUNT-1: flow.store
// CHECK-NOT: flow.store
// CHECK-NOT: flow.kernel
func.func @gates(%x: !x, %w: !w, %c: !y) -> !h {
  %p = sdx.contract "bk,kn->bn"(%x, %w) : (!x, !w) -> !y
  %0 = sdx.map "add"(%p, %c) : (!y, !y) -> !y
  %1 = sdx.slice %0 from ["0", "0"] step [1, 1] : !y -> !h
  %2 = sdx.slice %0 from ["0", "8"] step [1, 1] : !y -> !h
  %3 = sdx.slice %0 from ["0", "16"] step [1, 1] : !y -> !h
  %4 = sdx.map "tanh"(%2) : (!h) -> !h
  %5 = sdx.map "mul"(%1, %4) : (!h, !h) -> !h
  %6 = sdx.map "add"(%5, %3) : (!h, !h) -> !h
  return %6 : !h
}

// -----

!x = !sdx.tensor<[b, 16], f32>
!w = !sdx.tensor<[16, 24], f32>
!y = !sdx.tensor<[b, 24], f32>
!h = !sdx.tensor<[b, 8], f32>

// Two readers, one of which reads the other's result: both results are stored.

// CHECK-LABEL: func.func @cell
// CHECK: %[[K:.*]]:2 = flow.kernel outer ["b", "8"] inner ["16"](%arg0, %arg1)
// CHECK-COUNT-2: flow.reduce "add"
// CHECK-NOT: flow.reduce
// CHECK-COUNT-2: flow.store
// CHECK-NOT: flow.kernel
// CHECK: return %[[K]]#0, %[[K]]#1
func.func @cell(%x: !x, %w: !w) -> (!h, !h) {
  %0 = sdx.contract "bk,kn->bn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.slice %0 from ["0", "0"] step [1, 1] : !y -> !h
  %2 = sdx.slice %0 from ["0", "16"] step [1, 1] : !y -> !h
  %3 = sdx.map "tanh"(%1) : (!h) -> !h
  %4 = sdx.map "mul"(%2, %3) : (!h, !h) -> !h
  return %3, %4 : !h, !h
}

// -----

!x = !sdx.tensor<[b, 16], f32>
!w = !sdx.tensor<[16, 24], f32>
!y = !sdx.tensor<[b, 24], f32>
!h = !sdx.tensor<[b, 8], f32>

// Who wants the whole product gets it.

// CHECK-LABEL: func.func @whole
// CHECK: flow.kernel outer ["b", "24"] inner ["16"]
// CHECK: flow.kernel outer ["b", "8"] inner []
func.func @whole(%x: !x, %w: !w) -> (!y, !h) {
  %0 = sdx.contract "bk,kn->bn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.slice %0 from ["0", "0"] step [1, 1] : !y -> !h
  %2 = sdx.slice %0 from ["0", "8"] step [1, 1] : !y -> !h
  %3 = sdx.map "mul"(%1, %2) : (!h, !h) -> !h
  return %0, %3 : !y, !h
}

// -----

!x = !sdx.tensor<[b, 16], f32>
!w = !sdx.tensor<[16, 24], f32>
!y = !sdx.tensor<[b, 24], f32>
!h = !sdx.tensor<[b, 8], f32>

// Parts that begin within others are no parts.

// CHECK-LABEL: func.func @overlapping
// CHECK: flow.kernel outer ["b", "24"] inner ["16"]
// CHECK: flow.kernel outer ["b", "8"] inner []
func.func @overlapping(%x: !x, %w: !w) -> !h {
  %0 = sdx.contract "bk,kn->bn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.slice %0 from ["0", "0"] step [1, 1] : !y -> !h
  %2 = sdx.slice %0 from ["0", "4"] step [1, 1] : !y -> !h
  %3 = sdx.map "mul"(%1, %2) : (!h, !h) -> !h
  return %3 : !h
}

// -----

!x = !sdx.tensor<[b, 16], f32>
!w = !sdx.tensor<[16, 24], f32>
!y = !sdx.tensor<[b, 24], f32>
!h = !sdx.tensor<[b, 8], f32>

// A reader that goes through a part backwards is at other points.

// CHECK-LABEL: func.func @other_points
// CHECK: flow.kernel outer ["b", "24"] inner ["16"]
// CHECK: flow.kernel outer ["b", "8"] inner []
func.func @other_points(%x: !x, %w: !w) -> !h {
  %0 = sdx.contract "bk,kn->bn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.slice %0 from ["0", "0"] step [1, 1] : !y -> !h
  %2 = sdx.slice %0 from ["0", "23"] step [1, -1] : !y -> !h
  %3 = sdx.map "mul"(%1, %2) : (!h, !h) -> !h
  return %3 : !h
}

// -----

!x = !sdx.tensor<[b, 16], f32>
!w = !sdx.tensor<[16, 24], f32>
!y = !sdx.tensor<[b, 24], f32>
!h = !sdx.tensor<[b, 7], f32>

// Columns between the parts are no part.

// CHECK-LABEL: func.func @narrow
// CHECK: flow.kernel outer ["b", "24"] inner ["16"]
// CHECK: flow.kernel outer ["b", "7"] inner []
func.func @narrow(%x: !x, %w: !w) -> !h {
  %0 = sdx.contract "bk,kn->bn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.slice %0 from ["0", "0"] step [1, 1] : !y -> !h
  %2 = sdx.slice %0 from ["0", "7"] step [1, 1] : !y -> !h
  %3 = sdx.map "mul"(%1, %2) : (!h, !h) -> !h
  return %3 : !h
}
