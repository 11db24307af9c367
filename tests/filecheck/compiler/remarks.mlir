// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions)' --remarks all 2>&1 >%t | FileCheck %s
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,inline-maps,fuse-epilogues,fuse-reductions)' --remarks 'fuse-.*' 2>&1 >%t | FileCheck %s --check-prefix=SOME
// RUN: sardonyx-opt %s --pass-pipeline='builtin.module(sdx-to-flow,inline-maps)' --fuel 0 --remarks all 2>&1 >%t | FileCheck %s --check-prefix=EARLY --allow-empty
// RUN: not sardonyx-opt %s --remarks '[' 2>&1 | FileCheck %s --check-prefix=PATTERN

// Why two kernels are two: the pass, the node in the way, the nodes that would be one.

// CHECK: remark[inline-maps]: the result is an output of the model
// CHECK-NEXT:   --> f, node /exp
// CHECK-NEXT:   would be one: /exp /add
// CHECK-NEXT:   help: leave the output out
// CHECK: remark[fuse-epilogues]: the reader looks at other places: [b, 16] x [4] and [b, 8]
// CHECK-NEXT:   --> f, node /slice
// CHECK-NEXT:   would be one: /mm /slice /neg

// SOME-NOT: inline-maps
// SOME: remark[fuse-epilogues]
// SOME-NOT: remark

// What a later rewrite could still make one is not missed: the pair that lacked fuel, and the one of another pass.

// EARLY-NOT: /bias

// PATTERN: write `all`, the name of a pass, or a pattern of names

!x = !sdx.tensor<[b, 4], f32>
!w = !sdx.tensor<[4, 16], f32>
!y = !sdx.tensor<[b, 16], f32>
!h = !sdx.tensor<[b, 8], f32>

func.func @f(%x: !x, %w: !w, %z: !y) -> (!y, !y, !h, !y) {
  %0 = sdx.map "exp"(%z) : (!y) -> !y loc("/exp")
  %1 = sdx.map "add"(%0, %z) : (!y, !y) -> !y loc("/add")
  %2 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y loc("/mm")
  %3 = sdx.slice %2 from ["0", "8"] step [1, 1] : !y -> !h loc("/slice")
  %4 = sdx.map "neg"(%3) : (!h) -> !h loc("/neg")
  %5 = sdx.contract "mk,kn->mn"(%x, %w) : (!x, !w) -> !y loc("/mm2")
  %6 = sdx.map "neg"(%5) : (!y) -> !y loc("/bias")
  return %0, %1, %4, %6 : !y, !y, !h, !y
}
