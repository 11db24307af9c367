// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,pack-weights)' | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,int8-contractions,pack-weights)' | FileCheck %s --check-prefix=GROUPS

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 40], f32>
!y = !sdx.tensor<[b, 40], f32>

// The weights of a contraction lie in panels of columns; nothing needs them as they were.

// CHECK-LABEL: func.func @matmul
// CHECK-NEXT: %[[W:.*]] = flow.param "w" window [0, 40, 1] : <[8, 40], f32, panels32>
// CHECK-NEXT: flow.kernel outer ["b", "40"] inner ["8"](%arg0, %[[W]])
// CHECK: flow.load 1 ["%2", "%1"]
func.func @matmul(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[40, 8], f32>
!y = !sdx.tensor<[b, 40], f32>

// A transpose, or a part of a stacked projection, is another window on the same bytes.

// CHECK-LABEL: func.func @windows
// CHECK-DAG: flow.param "w" window [0, 1, 8] : <[8, 40], f32, panels32>
// CHECK-DAG: flow.param "stacked" window [40, 80, 1] : <[8, 40], f32, panels32>
func.func @windows(%x: !x) -> (!y, !y) {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,nk->mn"(%x, %w) : (!x, !w) -> !y
  %s = sdx.param "stacked" : !sdx.tensor<[8, 80], f32>
  %p = sdx.slice %s from ["0", "40"] step [1, 1] : !sdx.tensor<[8, 80], f32> -> !sdx.tensor<[8, 40], f32>
  %1 = sdx.contract "mk,kn->mn"(%x, %p) : (!x, !sdx.tensor<[8, 40], f32>) -> !y
  return %0, %1 : !y, !y
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[20, 8], f32>
!y = !sdx.tensor<[b, 40], f32>

// Parameters one behind the other are packed as one.

// CHECK-LABEL: func.func @joined
// CHECK-NEXT: flow.param "q" and ["k"] axis 0 window [0, 1, 8] : <[8, 40], f32, panels32>
// CHECK-NEXT: flow.kernel outer ["b", "40"] inner ["8"]
func.func @joined(%x: !x) -> !y {
  %q = sdx.param "q" : !w
  %k = sdx.param "k" : !w
  %w = sdx.concat(%q, %k) axis 0 : (!w, !w) -> !sdx.tensor<[40, 8], f32>
  %0 = sdx.contract "mk,nk->mn"(%x, %w) : (!x, !sdx.tensor<[40, 8], f32>) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 40], f32>
!y = !sdx.tensor<[b, 40], f32>

// Other readers, and outputs, read the parameter as it is.

// CHECK-LABEL: func.func @other_readers
// CHECK: %[[PLAIN:.*]] = flow.param "w" : <[8, 40], f32, row_major>
// CHECK: flow.kernel {{.*}}(%[[PLAIN]])
// CHECK: flow.param "w" window
func.func @other_readers(%x: !x) -> (!y, !w) {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  %1 = sdx.map "neg"(%w) : (!w) -> !w
  return %0, %1 : !y, !w
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 40], f32>
!y = !sdx.tensor<[b, 40], f32>

// An input is not known when the model is compiled.

// CHECK-LABEL: func.func @input
// CHECK-NOT: panels
func.func @input(%x: !x, %w: !w) -> !y {
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 8], f64>
!w = !sdx.tensor<[8, 40], f64>
!y = !sdx.tensor<[b, 40], f64>

// Panels are for f32.

// CHECK-LABEL: func.func @f64
// CHECK-NOT: panels
func.func @f64(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[h, b, 8], f32>
!w = !sdx.tensor<[h, 8, 40], f32>
!y = !sdx.tensor<[h, b, 40], f32>

// A matrix for each of a batch is many matrices.

// CHECK-LABEL: func.func @batch
// CHECK-NOT: panels
func.func @batch(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.contract "hmk,hkn->hmn"(%x, %w) : (!x, !w) -> !y
  return %0 : !y
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8], f32>

// A kernel that is no contraction reads its parameters in order.

// CHECK-LABEL: func.func @map
// CHECK-NOT: panels
func.func @map(%x: !x) -> !x {
  %w = sdx.param "w" : !w
  %0 = sdx.broadcast %w to [1] : !w -> !x
  %1 = sdx.map "mul"(%x, %0) : (!x, !x) -> !x
  return %1 : !x
}

// -----

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 40], f32>
!y = !sdx.tensor<[b, 40], f32>

// Of two sums both factors are packed, also where they are parts of one parameter.

// CHECK-LABEL: func.func @two_sums
// CHECK-DAG: %[[G:.*]] = flow.param "g" window [0, 40, 1] : <[8, 40], f32, panels32>
// CHECK-DAG: %[[U:.*]] = flow.param "u" window [0, 40, 1] : <[8, 40], f32, panels32>
// CHECK: flow.kernel outer ["b", "40"] inner ["8"](%arg0, %{{.*}}, %{{.*}})
// CHECK-DAG: flow.load 1 ["%2", "%1"]
// CHECK-DAG: flow.load 2 ["%2", "%1"]
func.func @two_sums(%x: !x) -> !y {
  %g = sdx.param "g" : !w
  %u = sdx.param "u" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%x, %u) : (!x, !w) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}

// CHECK-LABEL: func.func @stacked
// CHECK-DAG: flow.param "stacked" window [0, 80, 1] : <[8, 40], f32, panels32>
// CHECK-DAG: flow.param "stacked" window [40, 80, 1] : <[8, 40], f32, panels32>
// CHECK: flow.kernel outer ["b", "40"] inner ["8"]
// CHECK-NOT: flow.kernel
func.func @stacked(%x: !x) -> !y {
  %s = sdx.param "stacked" : !sdx.tensor<[8, 80], f32>
  %g = sdx.slice %s from ["0", "0"] step [1, 1] : !sdx.tensor<[8, 80], f32> -> !w
  %u = sdx.slice %s from ["0", "40"] step [1, 1] : !sdx.tensor<[8, 80], f32> -> !w
  %0 = sdx.contract "mk,kn->mn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%x, %u) : (!x, !w) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}

// One of them is no constant: both stay as they are.

// CHECK-LABEL: func.func @one_input
// CHECK-NOT: panels
func.func @one_input(%x: !x, %u: !w) -> !y {
  %g = sdx.param "g" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%x, %u) : (!x, !w) -> !y
  %2 = sdx.map "mul"(%0, %1) : (!y, !y) -> !y
  return %2 : !y
}

// -----

!w = !sdx.tensor<[40, 8], f32>

// The embedding of a language model is its last matrix too: rows are looked up in the panels, which alone are kept.

// CHECK-LABEL: func.func @looked_up
// CHECK-NOT: row_major>{{$}}
// CHECK: flow.param "w" window [0, 1, 8] : <[8, 40], f32, panels32>
// CHECK: flow.kernel
// CHECK: flow.load {{[0-9]}} ["%1", "$0"] : f32
// CHECK-NOT: flow.param "w" :
func.func @looked_up(%i: !sdx.tensor<[b], i64>) -> !sdx.tensor<[b, 40], f32> {
  %w = sdx.param "w" : !w
  %x = sdx.gather %w[%i] axis 0 : (!w, !sdx.tensor<[b], i64>) -> !sdx.tensor<[b, 8], f32>
  %n = sdx.map "tanh"(%x) : (!sdx.tensor<[b, 8], f32>) -> !sdx.tensor<[b, 8], f32>
  %0 = sdx.contract "mk,nk->mn"(%n, %w) : (!sdx.tensor<[b, 8], f32>, !w) -> !sdx.tensor<[b, 40], f32>
  return %0 : !sdx.tensor<[b, 40], f32>
}

// -----

!w = !sdx.tensor<[40, 8], f32>

// A part of the table is multiplied with: rows outside of it are nowhere else.

// CHECK-LABEL: func.func @partly_multiplied
// CHECK: flow.param "w" : <[40, 8], f32, row_major>
// CHECK: flow.param "w" window [0, 1, 8] : <[8, 32], f32, panels32>
func.func @partly_multiplied(%i: !sdx.tensor<[b], i64>) -> !sdx.tensor<[b, 32], f32> {
  %w = sdx.param "w" : !w
  %x = sdx.gather %w[%i] axis 0 : (!w, !sdx.tensor<[b], i64>) -> !sdx.tensor<[b, 8], f32>
  %n = sdx.map "tanh"(%x) : (!sdx.tensor<[b, 8], f32>) -> !sdx.tensor<[b, 8], f32>
  %p = sdx.slice %w from ["0", "0"] step [1, 1] : !w -> !sdx.tensor<[32, 8], f32>
  %0 = sdx.contract "mk,nk->mn"(%n, %p) : (!sdx.tensor<[b, 8], f32>, !sdx.tensor<[32, 8], f32>) -> !sdx.tensor<[b, 32], f32>
  return %0 : !sdx.tensor<[b, 32], f32>
}

// -----

!x = !sdx.tensor<[m, 64], f32>
!w = !sdx.tensor<[2, 32, 48], i4>
!wf = !sdx.tensor<[2, 32, 48], f32>
!y = !sdx.tensor<[m, 48], f32>

// Codes of 4 bits lie eight rows side by side, two to a byte; their scales in panels of the same columns, a row for each group.

// GROUPS-LABEL: func.func @groups
// GROUPS-DAG: %[[W:.*]] = flow.param "w" window [0, 48, 1] : <[64, 48], i4, panels32x8>
// GROUPS-DAG: %[[S:.*]] = flow.param "s" window [0, 1, 2] : <[2, 48], f32, panels32>
// GROUPS: flow.kernel outer ["m", "48"] inner ["2"] deep ["32"](%arg0, %[[W]], %[[S]])
// GROUPS-DAG: flow.load 1 ["32*%2 + %3", "%1"] : i4
// GROUPS-DAG: flow.load 2 ["%2", "%1"] : f32
func.func @groups(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %s = sdx.param "s" : !sdx.tensor<[48, 2], f32>
  %0 = sdx.convert %w : !w -> !wf
  %t = sdx.transpose %s [1, 0] : !sdx.tensor<[48, 2], f32> -> !sdx.tensor<[2, 48], f32>
  %2 = sdx.broadcast %t to [0, 2] : !sdx.tensor<[2, 48], f32> -> !wf
  %3 = sdx.map "mul"(%0, %2) : (!wf, !wf) -> !wf
  %4 = sdx.reshape %3 : !wf -> !sdx.tensor<[64, 48], f32>
  %5 = sdx.contract "mk,kn->mn"(%x, %4) : (!x, !sdx.tensor<[64, 48], f32>) -> !y
  return %5 : !y
}
