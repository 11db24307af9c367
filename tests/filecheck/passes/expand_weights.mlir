// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,fuse,expand-weights)' | FileCheck %s

!w = !sdx.tensor<[256, 96], i8>
!f = !sdx.tensor<[256, 96], f32>
!x = !sdx.tensor<[m, 256], f32>
!y = !sdx.tensor<[m, 96], f32>

// Nothing took the bytes: they are wide in the file.

// CHECK-LABEL: func.func @widened
// CHECK: %[[W:.*]] = flow.param "@w{{[0-9a-f]+}}" : <[256, 96], f32, row_major>
// CHECK: flow.kernel outer ["m", "96"] inner ["256"](%arg0, %[[W]])
// CHECK: module @prepared
func.func @widened(%x: !x) -> !y {
  %w = sdx.param "w" : !w
  %0 = sdx.convert %w : !w -> !f
  %1 = sdx.contract "mk,kn->mn"(%x, %0) : (!x, !f) -> !y
  return %1 : !y
}

// -----

!s = !sdx.tensor<[1], f32>
!w = !sdx.tensor<[65536, 64], f32>

// A number is not made a table of 16 MB: a call writes that faster than a file gives it.

// CHECK-LABEL: func.func @repeated
// CHECK: flow.param "s"
// CHECK-NOT: module @prepared
func.func @repeated() -> !w {
  %s = sdx.param "s" : !s
  %0 = sdx.map "exp"(%s) : (!s) -> !s
  %1 = sdx.broadcast %0 to [1] : !s -> !w
  return %1 : !w
}
