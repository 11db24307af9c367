// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(e-graph)' | FileCheck %s

!i = !sdx.tensor<[b, s], i64>
!b = !sdx.tensor<[b, s, 257], i64>
!f = !sdx.tensor<[b, s, 257], f32>
!w = !sdx.tensor<[257, 64], f32>
!y = !sdx.tensor<[b, s, 64], f32>

// A product with one-hot rows looks rows up; an index that is none of them gives zeros. A parameter that is infinite or no number
// somewhere would make NaN of all of them, so that holds where it is known to be bounded.

// CHECK-LABEL: func.func @bounded
// CHECK-NOT: sdx.contract
// CHECK: sdx.gather
// CHECK: sdx.map "select"
// CHECK-NOT: sdx.contract
func.func @bounded(%i: !i) -> !y attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %w = sdx.param "w" bounded : !w
  %c = sdx.iota axis 0 : <[257], i64>
  %count = sdx.broadcast %c to [2] : <[257], i64> -> !b
  %at = sdx.broadcast %i to [0, 1] : !i -> !b
  %e = sdx.map "eq"(%at, %count) : (!b, !b) -> !sdx.tensor<[b, s, 257], i1>
  %hot = sdx.convert %e : <[b, s, 257], i1> -> !f
  %0 = sdx.contract "bsk,kn->bsn"(%hot, %w) : (!f, !w) -> !y
  return %0 : !y
}

// CHECK-LABEL: func.func @anything
// CHECK: sdx.contract
func.func @anything(%i: !i) -> !y attributes {sdx.symbols = ["input b 0..", "input s 0.."]} {
  %w = sdx.param "w" : !w
  %c = sdx.iota axis 0 : <[257], i64>
  %count = sdx.broadcast %c to [2] : <[257], i64> -> !b
  %at = sdx.broadcast %i to [0, 1] : !i -> !b
  %e = sdx.map "eq"(%at, %count) : (!b, !b) -> !sdx.tensor<[b, s, 257], i1>
  %hot = sdx.convert %e : <[b, s, 257], i1> -> !f
  %0 = sdx.contract "bsk,kn->bsn"(%hot, %w) : (!f, !w) -> !y
  return %0 : !y
}
