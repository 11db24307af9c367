// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(fold-constants,simplify,sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,pack-weights)' --list-rewrites | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(fold-constants,simplify,sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,pack-weights)' --fuel 0 --list-rewrites | FileCheck %s --check-prefix=NONE
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(fold-constants,simplify,sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,pack-weights)' --fuel 1 --list-rewrites | FileCheck %s --check-prefix=ONE
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(fold-constants,simplify,sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions,pack-weights)' --fuel 3 | FileCheck %s --check-prefix=THREE
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(onnx-to-sdx,find-caches,fold-constants,simplify,sdx-to-flow,inline-maps,pack-weights,schedule,plan-memory,lower-kernels)' --fuel 0 | FileCheck %s --check-prefix=PLAN
// RUN: not sardonyx-opt %s --fuel some 2>&1 | FileCheck %s --check-prefix=WORD

// Rewrites are counted over all passes, in the order in which they were applied.

// CHECK: // rewrite 1 simplify: square, in dense, at /square
// CHECK-NEXT: // rewrite 2 inline-maps: inline, in dense, at /bias /add
// CHECK-NEXT: // rewrite 3 inline-maps: inline, in dense, at /bias /add /square
// CHECK-NEXT: // rewrite 4 fuse-epilogues: epilogue, in dense, at /matmul /bias /add /square
// CHECK-NEXT: // rewrite 5 pack-weights: panels, in dense, at /matmul /bias /add /square
// CHECK-NEXT: module
// CHECK-COUNT-1: flow.kernel
// CHECK-NOT: flow.kernel outer

// Without fuel the lowerings alone are left.

// NONE-NOT: rewrite
// NONE: flow.kernel outer ["b", "16"] inner ["8"]
// NONE: flow.kernel outer ["b", "16"]
// NONE: flow.kernel outer ["b", "16"]
// NONE: flow.kernel outer ["b", "16"]
// NONE: flow.apply "pow"
// NONE-NOT: flow.kernel

// ONE: // rewrite 1 simplify: square
// ONE-NEXT: module
// ONE-COUNT-4: flow.kernel outer
// ONE-NOT: flow.kernel outer
// ONE-NOT: flow.apply "pow"

// THREE-COUNT-2: flow.kernel outer
// THREE-NOT: flow.kernel outer
// THREE-NOT: panels

// PLAN-COUNT-4: plan.launch @
// PLAN: llvm.func @k3_v3

// WORD: invalid value 'some' for '--fuel <N>'

!x = !sdx.tensor<[b, 8], f32>
!y = !sdx.tensor<[b, 16], f32>

func.func @dense(%x: !x) -> !y {
  %w = sdx.param "w" : !sdx.tensor<[8, 16], f32> loc("/matmul")
  %v = sdx.param "v" : !sdx.tensor<[16], f32> loc("/add")
  %0 = sdx.contract "ak,kb->ab" (%x, %w) : (!x, !sdx.tensor<[8, 16], f32>) -> !y loc("/matmul")
  %1 = sdx.broadcast %v to [1] : !sdx.tensor<[16], f32> -> !y loc("/bias")
  %2 = sdx.map "add"(%0, %1) : (!y, !y) -> !y loc("/add")
  %c = sdx.const dense<2.0> : tensor<f32> : !sdx.tensor<[], f32> loc("/two")
  %d = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !y loc("/square")
  %3 = sdx.map "pow"(%2, %d) : (!y, !y) -> !y loc("/square")
  return %3 : !y
}
