// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(simplify,e-graph,simplify,sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,inline-maps,fuse-attention,inline-maps,fuse-siblings,pack-weights)' --validate 2>&1 >%t | FileCheck %s
// RUN: sardonyx-opt %s --split-input-file --pass-pipeline='builtin.module(sdx-to-flow,fuse)' --validate 2>&1 >%t | FileCheck %s --check-prefix=FUSE

// Each rewrite is checked by what it computes; a line for each module says how many were.

// CHECK: rewrites checked
// FUSE: rewrites checked

!x = !sdx.tensor<[b, 8], f32>
!w = !sdx.tensor<[8, 40], f32>
!y = !sdx.tensor<[b, 40], f32>

func.func @gated(%x: !x) -> !y {
  %g = sdx.param "g" : !w
  %u = sdx.param "u" : !w
  %0 = sdx.contract "mk,kn->mn"(%x, %g) : (!x, !w) -> !y
  %1 = sdx.contract "mk,kn->mn"(%x, %u) : (!x, !w) -> !y
  %2 = sdx.map "tanh"(%0) : (!y) -> !y
  %3 = sdx.map "mul"(%2, %1) : (!y, !y) -> !y
  return %3 : !y
}
