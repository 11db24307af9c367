// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,split-extrema)' | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,split-extrema,fuse)' | FileCheck %s --check-prefix=FUSED

!x = !sdx.tensor<[b, s, 384], f32>
!y = !sdx.tensor<[], f32>

// The smallest element of each row, then that of all rows; the rows' part follows what computes the rows.

// CHECK-LABEL: func.func @whole
// CHECK: %[[P:.*]] = flow.kernel outer ["b", "s"] inner ["384"]
// CHECK: flow.reduce "min"
// CHECK: %[[Y:.*]] = flow.kernel outer [] inner ["b", "s"](%[[P]])
// CHECK: flow.reduce "min"
// CHECK: return {{.*}}, %[[Y]]

// FUSED-LABEL: func.func @whole
// FUSED: flow.kernel outer ["b", "s"] inner ["384"]
// FUSED: flow.apply "exp"
// FUSED: flow.reduce "min"
// FUSED: flow.kernel outer [] inner ["b", "s"]
func.func @whole(%x: !x) -> (!x, !y) {
  %0 = sdx.map "exp"(%x) : (!x) -> !x
  %1 = sdx.reduce "min" %0 axes [0, 1, 2] : !x -> !y
  return %0, %1 : !x, !y
}

// -----

// A row of 7 elements is a part only together with the rows of its channel.

// CHECK-LABEL: func.func @channels
// CHECK: flow.kernel outer ["1", "256"] inner ["14", "7"]
// CHECK: flow.kernel outer [] inner ["1", "256"]
func.func @channels(%x: !sdx.tensor<[1, 256, 14, 7], f32>) -> !sdx.tensor<[], f32> {
  %0 = sdx.reduce "max" %x axes [0, 1, 2, 3] : !sdx.tensor<[1, 256, 14, 7], f32> -> !sdx.tensor<[], f32>
  return %0 : !sdx.tensor<[], f32>
}

// -----

// The bits of a sum depend on the order of its terms.

// CHECK-LABEL: func.func @sum
// CHECK-COUNT-1: flow.kernel
// CHECK-NOT: flow.kernel
func.func @sum(%x: !sdx.tensor<[b, 384], f32>) -> !sdx.tensor<[], f32> {
  %0 = sdx.reduce "add" %x axes [0, 1] : !sdx.tensor<[b, 384], f32> -> !sdx.tensor<[], f32>
  return %0 : !sdx.tensor<[], f32>
}

// -----

// Several results: there are as many work items as results.

// CHECK-LABEL: func.func @rows
// CHECK-COUNT-1: flow.kernel
// CHECK-NOT: flow.kernel
func.func @rows(%x: !sdx.tensor<[b, s, 384], f32>) -> !sdx.tensor<[b], f32> {
  %0 = sdx.reduce "max" %x axes [1, 2] : !sdx.tensor<[b, s, 384], f32> -> !sdx.tensor<[b], f32>
  return %0 : !sdx.tensor<[b], f32>
}

// -----

// A tensor of indices has few elements, although its extents are open.

// CHECK-LABEL: func.func @indices
// CHECK-COUNT-1: flow.kernel
// CHECK-NOT: flow.kernel
func.func @indices(%x: !sdx.tensor<[b, s], i64>) -> !sdx.tensor<[], i64> {
  %0 = sdx.reduce "max" %x axes [0, 1] : !sdx.tensor<[b, s], i64> -> !sdx.tensor<[], i64>
  return %0 : !sdx.tensor<[], i64>
}

// -----

// Few elements, and one row of many.

// CHECK-LABEL: func.func @small
// CHECK-COUNT-2: flow.kernel
// CHECK-NOT: flow.kernel
func.func @small(%x: !sdx.tensor<[16, 384], f32>, %y: !sdx.tensor<[1, 65536], f32>) -> (!sdx.tensor<[], f32>, !sdx.tensor<[], f32>) {
  %0 = sdx.reduce "max" %x axes [0, 1] : !sdx.tensor<[16, 384], f32> -> !sdx.tensor<[], f32>
  %1 = sdx.reduce "max" %y axes [0, 1] : !sdx.tensor<[1, 65536], f32> -> !sdx.tensor<[], f32>
  return %0, %1 : !sdx.tensor<[], f32>, !sdx.tensor<[], f32>
}
