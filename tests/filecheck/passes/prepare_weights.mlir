// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,prepare-weights)' | FileCheck %s

!w = !sdx.tensor<[256, 96], f32>
!a = !sdx.tensor<[256, 4], f32>
!b = !sdx.tensor<[4, 96], f32>
!x = !sdx.tensor<[m, 256], f32>
!y = !sdx.tensor<[m, 96], f32>
!s = !sdx.tensor<[], f32>

// A low-rank correction, W + 0.5 A B, is computed when the artifact is written; the product reads one parameter.

// CHECK-LABEL: func.func @lora
// CHECK: %[[W:.*]] = flow.param "@[[NAME:w[0-9a-f]+]]" : <[256, 96], f32, row_major>
// CHECK-NOT: flow.param
// CHECK: flow.kernel outer ["m", "96"] inner ["256"](%arg0, %[[W]])
// CHECK-NOT: flow.kernel
// CHECK: return
// CHECK: module @prepared
// CHECK: func.func @[[NAME]]()
// CHECK-DAG: flow.param "a"
// CHECK-DAG: flow.param "b"
// CHECK-DAG: flow.param "w"
func.func @lora(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %a = sdx.param "a" : !a
  %b = sdx.param "b" : !b
  %half = sdx.const dense<0.5> : tensor<f32> : !s
  %halves = sdx.broadcast %half to [] : !s -> !w
  %0 = sdx.contract "kr,rn->kn"(%a, %b) : (!a, !b) -> !w
  %1 = sdx.map "mul"(%0, %halves) : (!w, !w) -> !w
  %2 = sdx.map "add"(%w, %1) : (!w, !w) -> !w
  %3 = sdx.contract "mk,kn->mn"(%x, %2) : (!x, !w) -> !y
  return %3 : !y
}

// -----

!w = !sdx.tensor<[256, 96], i8>
!f = !sdx.tensor<[256, 96], f32>
!x = !sdx.tensor<[m, 256], f32>
!y = !sdx.tensor<[m, 96], f32>

// What becomes wider stays narrow as long as a kernel may take the bytes.

// CHECK-LABEL: func.func @widened
// CHECK: flow.param "w" : <[256, 96], i8, row_major>
// CHECK-NOT: module @prepared
func.func @widened(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.convert %w : !w -> !f
  %1 = sdx.contract "mk,kn->mn"(%x, %0) : (!x, !f) -> !y
  return %1 : !y
}

// -----

!w = !sdx.tensor<[8, 4], f32>
!t = !sdx.tensor<[4, 8], f32>
!p = !sdx.tensor<[16, 8], f32>
!x = !sdx.tensor<[m, 8], f32>
!y = !sdx.tensor<[m, 4], f32>
!z = !sdx.tensor<[16, 8], f32>

// What only moves a parameter is left to who reads it; so is what an input has a part in.

// CHECK-LABEL: func.func @moved
// CHECK: flow.param "w"
// CHECK-NOT: module @prepared
func.func @moved(%x: !x) -> !y {
  %w = sdx.param "w" : !t
  %0 = sdx.transpose %w [1, 0] : !t -> !w
  %1 = sdx.contract "mk,kn->mn"(%x, %0) : (!x, !w) -> !y
  return %1 : !y
}

// -----

!x = !sdx.tensor<[m, 4], f32>
!c = !sdx.tensor<[1048576, 1048576], f32>
!e = !sdx.tensor<[4], f32>
!w = !sdx.tensor<[4], f32>

// What would take minutes is not done for the file: 2^40 products.

// CHECK-LABEL: func.func @vast
// CHECK-NOT: flow.param "@
// CHECK: flow.kernel outer ["4"] inner ["1048576", "1048576"]
// CHECK-NOT: module @prepared
func.func @vast(%x: !x) -> !x {
  %w = sdx.param "w" : !w
  %n = sdx.const dense<1.5> : tensor<f32> : !sdx.tensor<[], f32>
  %c = sdx.broadcast %n to [] : !sdx.tensor<[], f32> -> !c
  %0 = sdx.contract "e,kr->e"(%w, %c) : (!w, !c) -> !e
  %1 = sdx.broadcast %0 to [1] : !e -> !x
  %2 = sdx.map "add"(%x, %1) : (!x, !x) -> !x
  return %2 : !x
}
